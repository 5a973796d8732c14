"""The learned encoding: its table, and the positions that take rows of it."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_pe
from keras_pe import LearnedPositionalEncoding

JIT_COMPILE = (False, True)


def make(max_length=6, table=None, **kwargs):
    """A built layer, whose row p is `p, 10 * p` unless a table is given."""
    layer = LearnedPositionalEncoding(max_length=max_length, **kwargs)
    if table is None:
        table = np.arange(max_length)[:, None] * [1.0, 10.0]
    layer.build((None, None, np.shape(table)[-1]))
    layer.set_weights([np.array(table)])
    return layer


def rows(layer, time=3, batch=1, **kwargs):
    result = layer(np.zeros((batch, time, 2), "float32"), **kwargs)
    return ops.convert_to_numpy(ops.cast(result, "float32"))


def table_of(*positions):
    return [[p, 10 * p] for p in positions]


# Values.


def test_rows_are_added():
    result = make()(np.ones((2, 3, 2), "float32"))
    assert ops.convert_to_numpy(result).tolist() == [[[1, 1], [2, 11], [3, 21]]] * 2


@pytest.mark.parametrize(
    ("kwargs", "wanted"),
    [
        (dict(start_index=2), table_of(2, 3, 4)),
        (dict(start_index=np.int64(3)), table_of(3, 4, 5)),
        (dict(start_index=np.array(3)), table_of(3, 4, 5)),
        (dict(start_index=[1]), table_of(1, 2, 3)),
        (dict(positions=[5, 0, 0]), table_of(5, 0, 0)),
        (dict(positions=[[5, 0, 0]]), table_of(5, 0, 0)),
        (dict(positions=[0.5, 4.25, 5.0]), table_of(0.5, 4.25, 5)),
        (dict(positions=np.array([1, 2, 3], "uint8")), table_of(1, 2, 3)),
    ],
    ids=str,
)
def test_positions_and_starts(kwargs, wanted):
    assert rows(make(), **kwargs)[0].tolist() == wanted


def test_each_row_of_a_batch_has_its_own_positions():
    layer = make()
    assert rows(layer, batch=2, start_index=[0, 3]).tolist() == [
        table_of(0, 1, 2),
        table_of(3, 4, 5),
    ]
    positions = [[0, 0, 1], [1, 2, 3]]
    assert rows(layer, batch=2, positions=positions).tolist() == [
        table_of(0, 0, 1),
        table_of(1, 2, 3),
    ]


def test_middle_axes_share_the_rows():
    result = ops.convert_to_numpy(make()(np.zeros((2, 3, 4, 2), "float32")))
    assert (result == table_of(0, 1, 2, 3)).all()


def test_no_float_position_gives_nan_in_its_own_row():
    result = rows(make(), positions=[np.nan, 1.0, np.inf])[0]
    assert np.isnan(result[[0, 2]]).all() and result[1].tolist() == [1, 10]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "mixed_float16", "float64"])
def test_positions_never_pass_through_a_half_type(dtype):
    table = np.arange(3000)[:, None] % [2.0, 7.0]
    layer = make(3000, table, dtype=dtype)
    positions = np.array([256, 257, 2049, 2999])
    assert rows(layer, 4, positions=positions)[0].tolist() == table[positions].tolist()
    assert keras.backend.standardize_dtype(layer.embeddings.dtype) == (
        "float32" if "mixed" in dtype else dtype
    )


# Where the table starts.


def test_sinusoidal_start_is_the_fixed_encoding():
    layer = LearnedPositionalEncoding(max_length=50, initializer="sinusoidal")
    fixed = keras_pe.PositionalEncoding()
    x = np.random.default_rng(0).normal(size=(2, 50, 7)).astype("float32")
    np.testing.assert_array_equal(*map(ops.convert_to_numpy, (layer(x), fixed(x))))
    assert len(layer.trainable_weights) == 1


@pytest.mark.parametrize(
    "initializer",
    [
        "zeros",
        keras.initializers.RandomNormal(stddev=0.5, seed=3),
        {"class_name": "Constant", "config": {"value": 0.25}},
        keras.initializers.Constant(0.25),
    ],
    ids=["name", "object", "config", "constant"],
)
def test_initializers_come_back_from_the_config(initializer):
    layer = LearnedPositionalEncoding(max_length=4, initializer=initializer)
    again = LearnedPositionalEncoding.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    np.testing.assert_array_equal(rows(again), rows(layer))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "mixed_float16", "float64"])
def test_sinusoidal_start_is_the_fixed_encoding_of_a_dtype(dtype):
    """Also where a half type rounds a float64 row elsewhere than its float32 one."""
    kwargs = {"max_length": 301, "dtype": dtype}
    layer = LearnedPositionalEncoding(**kwargs, initializer="sinusoidal")
    fixed, x = keras_pe.PositionalEncoding(**kwargs), np.zeros((1, 301, 1), "float32")
    results = [ops.stop_gradient(each(x)) for each in (layer, fixed)]
    results = [ops.convert_to_numpy(ops.cast(rows, "float32")) for rows in results]
    np.testing.assert_array_equal(*results)


def test_uniform_is_the_default():
    values = rows(LearnedPositionalEncoding(max_length=500), 500)
    assert 0.045 < np.abs(values).max() <= 0.05


def test_weights_are_trained():
    layer = make(4, np.zeros((4, 2)))
    model = keras.Sequential([keras.Input((None, 2)), layer])
    model.compile(keras.optimizers.SGD(1.0), "mse")
    model.fit(np.zeros((2, 3, 2)), np.ones((2, 3, 2)), batch_size=2, verbose=0)
    # The error's slope is 2 * (0 - 1) / 6 at each number of the 3 steps of 2 rows.
    expected = [[1 / 3] * 2] * 3 + [[0, 0]]
    np.testing.assert_allclose(layer.get_weights()[0], expected, rtol=1e-6)
    layer.trainable = False
    assert layer.trainable_weights == []


@pytest.mark.parametrize("dtype", ["float16", "mixed_float16", "mixed_bfloat16"])
def test_between_rows_it_is_rounded_once(dtype):
    low, high = 1.0, 1.9
    layer = make(2, [[low], [high]], dtype=dtype)
    if not dtype.startswith("mixed"):
        low, high = (float(value) for value in np.array([low, high], dtype))
    positions = np.linspace(0, 1, 1001, dtype="float32")
    x = np.zeros((1, 1001, 1), "float32")
    result = ops.cast(layer(x, positions=positions), "float32")
    exact = low + (high - low) * positions.astype("float64")
    error = {"float16": 2**-11, "bfloat16": 2**-8}[dtype.removeprefix("mixed_")]
    assert (np.abs(ops.convert_to_numpy(result)[0, :, 0] - exact) <= error + 3e-7).all()


@pytest.mark.parametrize("ends", [[3e38, -3e38], [0.0, np.inf]])
def test_a_row_beside_a_large_one(ends):
    layer = make(2, [[end] for end in ends])
    at = ops.convert_to_tensor(np.array([0.0, 0.5], "float32"))
    result = ops.convert_to_numpy(layer(np.zeros((1, 2, 1), "float32"), positions=at))
    assert result[0, :, 0].tolist() == [np.float32(ends[0]), sum(ends)]


# Another length.


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ([0, 1, 4], 5, [0, 0.5, 1, 2.5, 4]),
        ([0, 1, 4], 2, [0, 4]),
        ([0, 1, 4], 3, [0, 1, 4]),
        ([0, 1, 4], 1, [0]),
        ([7], 3, [7, 7, 7]),
        ([0, 3], 4, [0, 1, 2, 3]),
    ],
)
def test_resized_interpolates_and_keeps_the_ends(old, new, wanted):
    table = np.array(old)[:, None] * [1.0, -2.0]
    layer = make(len(old), table, name="positions", dtype="mixed_bfloat16")
    other = layer.resized(new)
    expected = np.array(wanted)[:, None] * [1.0, -2.0]
    np.testing.assert_allclose(other.get_weights()[0], expected, rtol=1e-6)
    assert other.get_config() == {**layer.get_config(), "max_length": new}
    np.testing.assert_array_equal(layer.get_weights()[0], table)


def test_resized_layer_is_built_for_its_input():
    other = make().resized(12)
    assert other.built and rows(other, 12).shape == (1, 12, 2)


def test_unbuilt_layer_cannot_be_resized():
    layer = LearnedPositionalEncoding(max_length=3, name="it")
    with pytest.raises(ValueError, match=r"layer 'it' must be built before.*Received"):
        layer.resized(4)
    with pytest.raises(ValueError, match="`max_length` must be an integer"):
        make().resized(0)


def test_weights_of_another_length_are_never_skipped(tmp_path):
    def model(max_length):
        x = keras.Input((None, 2))
        return keras.Model(x, LearnedPositionalEncoding(max_length=max_length)(x))

    file = tmp_path / "model.weights.h5"
    model(6).save_weights(file)
    with pytest.raises(
        ValueError, match=r"shape \(4, 2\). Received: .*\(6, 2\).*resiz"
    ):
        model(4).load_weights(file)


# What is refused.


@pytest.mark.parametrize(
    "initializer",
    [
        *(None, 3, "nope", [1], object(), np.ones((3, 2))),
        {"class_name": "Nope", "config": {}},
        *(len, print, keras.layers.Dense(3), keras.regularizers.L2(1.0)),
        keras.saving.serialize_keras_object(keras_pe.PositionalEncoding()),
    ],
)
def test_bad_initializers_are_refused(initializer):
    with pytest.raises(ValueError, match=r"`initializer` must be .*Received: init"):
        LearnedPositionalEncoding(max_length=3, initializer=initializer)


@pytest.mark.parametrize("max_length", [0, -1, 2.5, True, "8", None])
def test_bad_lengths_are_refused(max_length):
    with pytest.raises(ValueError, match="`max_length` must be an integer of"):
        LearnedPositionalEncoding(max_length=max_length)


@pytest.mark.parametrize("first", [1, 8])
def test_another_width_is_refused(first):
    layer = LearnedPositionalEncoding(max_length=5)
    layer(np.zeros((1, 3, first), "float32"))
    with pytest.raises(ValueError, match=f"for a d_model of {first}. Received: inputs"):
        layer(np.zeros((1, 3, 4), "float32"))
    with pytest.raises(ValueError, match=f"for a d_model of {first}. Received: inputs"):
        layer(keras.KerasTensor((None, None, 4)))


def test_max_length_is_needed():
    with pytest.raises(TypeError, match="max_length"):
        LearnedPositionalEncoding()


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        (dict(time=7), r"positions 0 to 5 \(`max_length=6`\). Received: 7 steps"),
        (dict(start_index=4), "Received: 3 steps from position 4"),
        (dict(start_index=-1), "Received: 3 steps from position -1"),
        (dict(positions=[0, 6, 1]), "Received: positions from 0 to 6"),
        (dict(positions=[0, -1, 1]), "Received: positions from -1 to 1"),
        (dict(positions=[0, 5.5, 1]), "Received: positions from 0.0 to 5.5"),
        (dict(positions=[0, 1]), "must be of shape"),
        (dict(positions=[0, 1, 2], start_index=1), "not both"),
    ],
    ids=str,
)
def test_positions_that_do_not_exist_are_refused(kwargs, message):
    with pytest.raises(ValueError, match=f"LearnedPositionalEncoding layer.*{message}"):
        rows(make(), **kwargs)


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", JIT_COMPILE)
@pytest.mark.parametrize("max_length", [1, 4])
def test_beyond_the_table_in_a_graph(tf, jit_compile, max_length):
    """An error, or NaN where a compiler drops it; never another position's row."""
    layer = make(max_length)

    @tf.function(jit_compile=jit_compile)
    def start(x, start_index):
        return layer(x, start_index=start_index)

    @tf.function(jit_compile=jit_compile)
    def at(x, positions):
        return layer(x, positions=positions)

    x = tf.zeros((1, 2, 2))
    for call in (
        lambda: start(x, tf.constant(max_length)),
        lambda: start(x, tf.constant(-1)),
        lambda: at(x, tf.constant([0, max_length])),
        lambda: at(x, tf.constant([[0, 10**6]])),
    ):
        try:
            result = call().numpy()
        except tf.errors.InvalidArgumentError as error:
            assert not jit_compile and "learned_positional_encoding" in str(error)
        else:
            assert jit_compile and np.isnan(result[0, 1]).all()


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", JIT_COMPILE)
@pytest.mark.parametrize("max_length", [1, 4])
def test_unknown_length_beyond_the_table(tf, max_length, jit_compile):
    """An error: a table of one row must not be that of all."""
    layer = make(max_length)
    spec = tf.TensorSpec((None, None, 2))
    call = tf.function(
        lambda x: layer(x), input_signature=[spec], jit_compile=jit_compile
    )
    assert call(tf.zeros((1, max_length, 2))).shape[1] == max_length
    with pytest.raises(tf.errors.InvalidArgumentError):
        call(tf.zeros((1, max_length + 2, 2)))


def test_rows_are_those_of_keras_hub():
    # keras-hub 0.32.0, TensorFlow 2.21: PositionEmbedding(6) with the table of `make`.
    assert rows(make(), start_index=2)[0].tolist() == [[2, 20], [3, 30], [4, 40]]


@pytest.mark.tensorflow
def test_compiled_positions_beyond_the_table_are_no_row(tf):
    # There it gives row 5 for both, as a gather does: [[0, 0], [5, 50], [5, 50]].
    layer, x = make(), tf.zeros((1, 3, 2))
    call = tf.function(lambda p: layer(x, positions=p), jit_compile=True)
    result = call(tf.constant([0, 6, 9])).numpy()[0]
    assert result[0].tolist() == [0, 0] and np.isnan(result[1:]).all()
