"""The bias with a weight for each bucket of distances."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_pe import RelativePositionBias
from keras_pe.contract import JIT_COMPILE


def make(num_heads=2, num_buckets=32, **kwargs):
    """A built layer, whose weight of bucket b in head h is `100 * h + b`."""
    layer = RelativePositionBias(num_heads=num_heads, num_buckets=num_buckets, **kwargs)
    layer.build((None, None))
    weights = np.arange(num_buckets)[:, None] + 100 * np.arange(num_heads)
    layer.set_weights([weights])
    return layer


def buckets(layer, query, key=None, **call):
    """The buckets that a layer of `make` has, `(query, key)` or with a batch before."""
    sides = [np.zeros((3, size)) for size in (query, key) if size is not None]
    result = ops.convert_to_numpy(layer(*sides, **call))
    assert result.dtype == "float32"
    np.testing.assert_array_equal(result[:, 1] - result[:, 0], 100)
    return result[0, 0] if result.shape[0] == 1 else result[:, 0]


# transformers 5.24.0 on torch 2.13.0: `T5Attention._relative_position_bucket`, the
# first distance of each bucket, for keys before the query. It agrees at all distances
# up to `max_distance + 5`, and for all of 124 arguments tried. keras-hub 0.32.0 too, by
# `T5MultiHeadAttention._relative_position_bucket`, for the first two.
FIRST = {
    (32, 128, True): [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91],
    (32, 128, False): [*range(17), 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87,
                       99, 113],
    (8, 20, True): [0, 1, 2, 7],
    (8, 20, False): [0, 1, 2, 3, 4, 6, 9, 14],
}  # fmt: skip


@pytest.mark.parametrize("arguments", FIRST)
def test_buckets_begin_where_those_of_t5_do(arguments):
    num_buckets, max_distance, bidirectional = arguments
    layer = make(
        num_buckets=num_buckets, max_distance=max_distance, bidirectional=bidirectional
    )
    steps = np.arange(2 * max_distance)
    before = buckets(layer, len(steps), 1)[:, 0]
    starts = np.array(FIRST[arguments])
    wanted = (steps[:, None] >= starts).sum(axis=1) - 1
    np.testing.assert_array_equal(before, wanted)
    after = buckets(layer, 1, len(steps))[0]
    if bidirectional:
        wanted = np.where(steps > 0, wanted + num_buckets // 2, 0)
    np.testing.assert_array_equal(after, wanted if bidirectional else 0 * steps)


@pytest.mark.parametrize("num_buckets", [2, 3, 5, 32, 100])
@pytest.mark.parametrize("max_distance", [60, 128, 5000])
def test_buckets_are_those_of_the_formula(num_buckets, max_distance):
    """With the logarithms of the code, away from where they may round."""
    arguments = dict(num_buckets=num_buckets, max_distance=max_distance)
    steps = np.arange(2 * max_distance)
    found = buckets(make(**arguments, bidirectional=False), len(steps), 1)[:, 0]
    exact = num_buckets // 2
    scaled = np.log(np.maximum(steps, 1) / exact) / np.log(max_distance / exact)
    scaled = exact + scaled * (num_buckets - exact)
    wanted = np.where(steps < exact, steps, np.floor(scaled.clip(0)))
    near = np.abs(scaled - np.rint(scaled)) < 1e-9
    found, wanted = found[~near], wanted.clip(max=num_buckets - 1)[~near]
    np.testing.assert_array_equal(found, wanted)


def test_large_distances():
    layer = make(num_heads=2, max_distance=2**20)
    found = buckets(layer, 1, 1, start_index=2**30)
    assert found == 15
    assert buckets(layer, 1, 1, positions=[2**20 - 1]) == 15
    assert buckets(layer, 1, 1, key_positions=[2**30]) == 31
    far = layer(np.zeros((1, 1)), key_positions=[2**31 - 1])
    assert np.isnan(ops.convert_to_numpy(ops.stop_gradient(far))).all()


# Positions.


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        ({}, [[0, 17, 18], [1, 0, 17], [2, 1, 0]]),
        (dict(start_index=40), [[0, 17, 18], [1, 0, 17], [2, 1, 0]]),
        (dict(positions=[0, 5, 300]), [[0, 21, 31], [5, 0, 31], [15, 15, 0]]),
        (dict(key=4, start_index=3), [[3, 2, 1, 0], [4, 3, 2, 1], [5, 4, 3, 2]]),
        (dict(key=1, start_index=np.array(9)), [[8], [8], [8]]),
        (dict(key=2, key_positions=[7, 1]), [[23, 17], [22, 0], [21, 1]]),
    ],
    ids=str,
)
def test_positions(call, wanted):
    assert buckets(make(), 3, **call).tolist() == wanted


def test_each_row_of_a_batch_has_its_own_positions():
    layer = make()
    found = buckets(layer, 1, 3, start_index=[0, 1, 2])
    assert found.tolist() == [[[0, 17, 18]], [[1, 0, 17]], [[2, 1, 0]]]
    found = buckets(layer, 2, positions=[[0, 1], [0, 5], [3, 3]])
    assert found.tolist() == [[[0, 17], [1, 0]], [[0, 21], [5, 0]], [[0, 0], [0, 0]]]


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16", "float64"])
def test_every_policy_gives_float32(dtype):
    np.testing.assert_array_equal(buckets(make(dtype=dtype), 70), buckets(make(), 70))


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_weights_are_not_rounded_under_a_mixed_policy(dtype):
    layer = RelativePositionBias(num_heads=2, dtype=dtype)
    bias = ops.convert_to_numpy(layer(np.zeros((1, 3, 4), "float32")))
    weights = ops.convert_to_numpy(layer.embeddings)
    np.testing.assert_array_equal(bias[0, :, 0, 0], weights[0])
    assert (weights != weights.astype("float16")).any()


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", JIT_COMPILE)
def test_sizes_known_only_in_a_graph(tf, jit_compile):
    layer = make()
    call = tf.function(
        lambda x, y, start: layer(x, y, start_index=start),
        input_signature=[tf.TensorSpec((None, None))] * 2
        + [tf.TensorSpec((None,), tf.int32)],
        jit_compile=jit_compile,
    )
    for query, key, start in ((3, 3, 0), (1, 170, 169), (2, 0, 5)):
        x, y = tf.zeros((2, query)), tf.zeros((2, key))
        result = call(x, y, tf.constant([start, 0])).numpy()
        wanted = layer(np.zeros((2, query)), np.zeros((2, key)), start_index=[start, 0])
        np.testing.assert_array_equal(result, wanted.numpy())
    assert call.experimental_get_tracing_count() == 1


# Weights.


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_a_mixed_policy_rounds_no_weight(dtype):
    layer = RelativePositionBias(num_heads=3, dtype=dtype)
    layer.build((None, None))
    weights = np.random.default_rng(0).normal(size=(32, 3)).astype("float32")
    layer.set_weights([weights])
    result = ops.convert_to_numpy(ops.stop_gradient(layer(np.zeros((1, 1)))))
    np.testing.assert_array_equal(result[0, :, 0, 0], weights[0])


@pytest.mark.parametrize("jit_compile", JIT_COMPILE)
def test_weights_of_all_buckets_that_occur_are_trained(jit_compile):
    layer = make(num_heads=1, num_buckets=4, bidirectional=False, max_distance=3)
    x = keras.Input((4, 1))
    model = keras.Model(x, layer(x))
    model.compile(keras.optimizers.SGD(1.0), "mse", jit_compile=jit_compile)
    before = layer.get_weights()[0]
    model.fit(np.zeros((1, 4, 1)), np.ones((1, 1, 4, 4)), verbose=0)
    # Of 16 numbers 10 are in bucket 0, 3 in bucket 1, 2 in bucket 2, 1 in bucket 3.
    counts = np.array([[10], [3], [2], [1]])
    wanted = before + 2 * (1 - before) * counts / 16
    np.testing.assert_allclose(layer.get_weights()[0], wanted, rtol=1e-6)


def test_initializer_comes_back_from_the_config():
    layer = RelativePositionBias(num_heads=3, initializer="ones")
    again = RelativePositionBias.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    assert (ops.convert_to_numpy(again(np.zeros((1, 9)))) == 1).all()
    assert again.get_weights()[0].shape == (32, 3)


# What is refused.


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        (dict(num_buckets=1), "`num_buckets` must be an integer of at least 2"),
        (dict(num_buckets=7), "`num_buckets` must be even where `bidirectional`"),
        (dict(num_buckets=2.0), "`num_buckets` must be an integer"),
        (dict(max_distance=8), "`max_distance` must be an integer of at least 9"),
        (dict(max_distance=16, bidirectional=False), "an integer of at least 17"),
        (dict(max_distance=2**20 + 1), "at least 9 and at most 1048576"),
        (dict(bidirectional=1), "`bidirectional` must be True or False. Received"),
        (dict(bidirectional=None), "`bidirectional` must be True or False. Received"),
        (dict(initializer="nope"), "`initializer` must be an initializer of Keras"),
    ],
    ids=str,
)  # fmt: skip
def test_bad_arguments_are_refused(kwargs, message):
    with pytest.raises(ValueError, match=message):
        RelativePositionBias(num_heads=2, **kwargs)


@pytest.mark.parametrize("name", ["positions", "key_positions"])
def test_fractions_are_refused(name):
    layer = RelativePositionBias(num_heads=2)
    assert layer(np.zeros((1, 2)), **{name: [0.0, 1.0]}).shape == (1, 2, 2, 2)
    tensor = ops.convert_to_tensor([0.0, 1.0])
    for values in ([0.5, 1.0], tensor):
        with pytest.raises(ValueError, match=f"`{name}` must be integers, for there"):
            layer(np.zeros((1, 2)), **{name: values})
