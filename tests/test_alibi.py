"""The bias that falls with the distance, and what all biases take and refuse."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_pe import ALiBi, RelativePositionBias

JIT_COMPILE = (False, True)
FAR = 2**30
PLACES = [(0, 1), (4, 0), (7, 7)]


def bias(*sizes, call=None, num_heads=2, **kwargs):
    """The bias of a query, or of a query and a key, of such sizes."""
    tensors = [np.zeros((3, size, 4), "float32") for size in sizes]
    result = ALiBi(num_heads=num_heads, **kwargs)(*tensors, **(call or {}))
    assert keras.backend.standardize_dtype(result.dtype) == "float32"
    return ops.convert_to_numpy(result)


def expected(query, key, slopes=(2**-4, 2**-8)):
    """The formula as loops, `(heads, query, key)`."""
    return np.array([[[-s * abs(q - k) for k in key] for q in query] for s in slopes])


def slopes_of(num_heads):
    """As in the code of the paper, attention_with_linear_biases, by recursion."""
    power = num_heads.bit_length() - 1
    if 2**power == num_heads:
        return [2 ** (-8 * (i + 1) / num_heads) for i in range(num_heads)]
    below = 2**power
    rest = slopes_of(2 * below)[0::2]
    return slopes_of(below) + rest[: num_heads - below]


# Values.


@pytest.mark.parametrize(
    ("sizes", "call", "query", "key"),
    [
        ((4,), {}, range(4), range(4)),
        ((4,), dict(start_index=7), range(7, 11), range(7, 11)),
        ((2, 5), {}, range(2), range(5)),
        ((1, 5), dict(start_index=3), [3], range(5)),
        ((1, 5), dict(start_index=np.array(4)), [4], range(5)),
        ((3, 2), dict(positions=[5, 0, -2]), [5, 0, -2], range(2)),
        ((3,), dict(positions=[5, 0, -2]), [5, 0, -2], [5, 0, -2]),
        ((2, 2), dict(key_positions=[9, 3]), range(2), [9, 3]),
        ((2,), dict(key_positions=[9, 3]), range(2), [9, 3]),
        ((2,), dict(positions=[0.5, 2.25]), [0.5, 2.25], [0.5, 2.25]),
        ((2, 2), dict(positions=[0.5, 2.25]), [0.5, 2.25], [0, 1]),
        ((2, 2), dict(key_positions=[0.5, 2.25]), [0, 1], [0.5, 2.25]),
        ((2,), dict(positions=[FAR, -FAR]), [FAR, -FAR], [FAR, -FAR]),
        ((2,), dict(positions=[2**24 + 1, 2**24]), [1, 0], [1, 0]),
        ((2,), dict(positions=np.array([250, 3], "uint8")), [250, 3], [250, 3]),
    ],
    ids=str,
)
def test_it_falls_with_the_distance(sizes, call, query, key):
    result = bias(*sizes, call=call)
    assert result.shape == (1, 2, len(query), len(key))
    np.testing.assert_allclose(result[0], expected(query, key), rtol=1e-6)


@pytest.mark.parametrize(
    ("sizes", "call", "queries", "keys"),
    [
        ((2,), dict(start_index=[0, 5, 9]), [(0, 1), (5, 6), (9, 10)], None),
        ((1, 4), dict(start_index=[0, 3, 2]), [(0,), (3,), (2,)], [range(4)] * 3),
        ((2,), dict(positions=PLACES), PLACES, None),
        ((1, 2), dict(key_positions=PLACES), [(0,)] * 3, PLACES),
    ],
    ids=str,
)
def test_each_row_of_a_batch_has_its_own(sizes, call, queries, keys):
    result = bias(*sizes, call=call)
    for row, query, key in zip(result, queries, keys or queries, strict=True):
        np.testing.assert_allclose(row, expected(query, key), rtol=1e-6)


@pytest.mark.parametrize("num_heads", [1, 2, 3, 4, 6, 8, 12, 16, 20, 64, 71])
def test_slopes_are_those_of_the_paper(num_heads):
    found = -bias(2, num_heads=num_heads)[0, :, 0, 1]
    np.testing.assert_allclose(found, slopes_of(num_heads), rtol=1e-6)


def test_slopes_of_bloom():
    # transformers 5.24.0 on torch 2.13.0, `build_alibi_tensor` of modeling_bloom, the
    # differences of two keys, for 6 heads.
    found = -bias(2, num_heads=6)[0, :, 0, 1]
    wanted = [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_the_diagonal_is_zero_and_all_else_below():
    result = bias(300)[0]
    for head in result:
        assert (np.diag(head) == 0).all()
        assert (head[~np.eye(300, dtype=bool)] < 0).all()


def test_positions_that_are_no_number_or_too_far_give_nan():
    result = bias(3, call=dict(positions=[0.0, np.nan, np.inf]))[0, 0]
    assert np.isnan(result).sum() == 8 and result[0, 0] == 0
    result = bias(2, call=dict(positions=[0, FAR + 1]))[0, 0]
    assert np.isnan(result).sum() == 3 and result[0, 0] == 0
    assert np.isnan(bias(1, 1, call=dict(start_index=-(2**31)))).all()


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "float16", "float64"])
def test_every_policy_gives_float32(dtype):
    np.testing.assert_array_equal(bias(70, dtype=dtype), bias(70))


def test_half_precision_keeps_near_keys_apart():
    """Where a bias counts from the last key, bfloat16 rounds them to one number.

    keras-hub 0.32.0 on TensorFlow 2.21, `AlibiBias(dtype="bfloat16")` on zeros with 8
    heads and 4,096 keys: for query 999, which sees the keys up to its own, the
    probabilities of the steepest head are 0.63 off in total variation.
    """
    scores = bias(1, 4096, call=dict(start_index=999), num_heads=8)[0, 0, 0, :1000]
    half = ops.convert_to_numpy(ops.cast(ops.cast(scores, "bfloat16"), "float32"))
    exact, found = (np.exp(each.astype("float64")) for each in (scores, half))
    assert np.abs(found / found.sum() - exact / exact.sum()).sum() / 2 < 1e-3


def test_the_last_query_has_the_bias_of_keras_hub():
    # `AlibiBias()` on zeros, as there, of 2 heads and 4 keys: it gives all queries the
    # bias of the last, from which theirs differ by a number for each query alone.
    wanted = [-0.1875, -0.125, -0.0625, 0], [-0.01171875, -0.0078125, -0.00390625, 0]
    result = bias(4)[0]
    np.testing.assert_array_equal(result[:, -1], wanted)
    for query in range(4):
        differences = result[:, query, : query + 1] - np.array(wanted)[:, : query + 1]
        np.testing.assert_allclose(np.ptp(differences, axis=-1), 0, atol=1e-7)


# Inputs.


def test_only_sizes_matter():
    layer = ALiBi(num_heads=2)
    ids = np.ones((3, 4), "int32")
    embedded = keras.layers.Embedding(9, 5, mask_zero=True)(ids)
    wanted = bias(4)
    for given in (ids, embedded, np.zeros((3, 4, 5, 6), "float16")):
        result = layer(given)
        np.testing.assert_array_equal(ops.convert_to_numpy(result), wanted)
        assert getattr(result, "_keras_mask", None) is None


def integers(*shape):
    return keras.KerasTensor(shape, "int32")


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        ({}, (1, 2, None, None)),
        (dict(start_index=5), (1, 2, None, None)),
        (dict(positions=integers(None)), (1, 2, None, None)),
        (dict(positions=integers(None, None)), (None, 2, None, None)),
        (dict(key_positions=integers(None, None)), (None, 2, None, None)),
        (dict(start_index=integers(None)), (None, 2, None, None)),
        (dict(key=integers(None, 7)), (1, 2, None, 7)),
        (dict(key=integers(None, 7), start_index=integers()), (1, 2, None, 7)),
    ],
    ids=str,
)
def test_symbolic(call, wanted):
    result = ALiBi(num_heads=2)(keras.KerasTensor((None, None, 4)), **call)
    assert result.shape == wanted and result.dtype == "float32"


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", JIT_COMPILE)
def test_sizes_known_only_in_a_graph(tf, jit_compile):
    layer = ALiBi(num_heads=2)
    call = tf.function(
        lambda x, y, start: layer(x, y, start_index=start),
        input_signature=[
            tf.TensorSpec((None, None, 4)),
            tf.TensorSpec((None, None)),
            tf.TensorSpec((), tf.int32),
        ],
        jit_compile=jit_compile,
    )
    for query, key, start in ((3, 3, 0), (1, 70, 69), (2, 0, 5)):
        x, y = tf.zeros((2, query, 4)), tf.zeros((2, key))
        result = call(x, y, tf.constant(start)).numpy()
        wanted = expected(range(start, start + query), range(key))
        np.testing.assert_allclose(result[0], wanted.reshape(2, query, key), rtol=1e-6)
    assert call.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("batches", [(1, 2), (2, 1), (2, 2), (None, 2), (1, 1)])
def test_symbolic_batch_is_that_of_the_positions(batches):
    query, positions = np.zeros((2, 3, 4), "float32"), np.zeros((2, 3), "int32")
    real = [rows or 2 for rows in batches]
    given = [integers(rows, 3) for rows in batches]
    names = ("positions", "key_positions")
    layer = ALiBi(num_heads=2)
    symbolic = layer(
        keras.KerasTensor((2, 3, 4)), **dict(zip(names, given, strict=True))
    )
    found = layer(query, **{n: positions[:r] for n, r in zip(names, real, strict=True)})
    assert symbolic.shape == found.shape


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", ["positions", "key_positions", "start_index"])
@pytest.mark.parametrize("kind", [ALiBi, RelativePositionBias])
def test_positions_of_another_batch_under_a_compiler(tf, kind, name):
    layer, rank = kind(num_heads=2), 1 if name == "start_index" else 2
    call = tf.function(
        lambda x, given: layer(x, **{name: given}),
        input_signature=[
            tf.TensorSpec((None, None, 4)),
            tf.TensorSpec([None] * rank, tf.int32),
        ],
        jit_compile=True,
    )
    for rows in (1, 2):
        assert np.isfinite(
            call(tf.zeros((2, 3, 4)), tf.zeros([rows, 3][:rank], "int32"))
        ).all()
    try:
        result = call(tf.zeros((1, 3, 4)), tf.zeros([2, 3][:rank], "int32"))
    except (tf.errors.InvalidArgumentError, ValueError):
        return
    assert np.isnan(result).all()


# What is refused.

QUERY = np.zeros((2, 3, 4), "float32")
BOTH = (ALiBi, RelativePositionBias)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("num_heads", [0, -1, 2.0, True, "2", None])
def test_bad_heads_are_refused(kind, num_heads):
    with pytest.raises(ValueError, match="`num_heads` must be an integer of at least"):
        kind(num_heads=num_heads)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (dict(positions=[0, 1]), r"`positions` must be of shape \(time,\) or"),
        (dict(positions=[[0, 1, 2]] * 3), "`positions` must be of shape"),
        (dict(key_positions=[0, 1]), "`key_positions` must be of shape"),
        (dict(key_positions="a"), "`key_positions` must be"),
        (dict(positions=[0, 1, 2], start_index=1), "not both"),
        (dict(start_index=[0, 1, 2]), "`start_index` must be of shape"),
        (dict(start_index=2**31 - 2), "3 steps from position 2147483646"),
        (dict(key_positions=[0, 1, 2**31]), "`key_positions` must lie in"),
        (
            dict(key=np.zeros((3, 3))),
            r"a query and a key of one batch\. .* \([0-9, ]+\), key of shape \(3, 3\)",
        ),
        (dict(key=np.zeros(3)), r"takes tensors \(batch, time, ...\)"),
    ],
    ids=str,
)
def test_bad_calls_are_refused(kind, call, message):
    layer = kind(num_heads=2)
    with pytest.raises(ValueError, match=f"{kind.__name__} layer '.*{message}"):
        layer(QUERY, **call)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("query", [3.0, np.zeros(4), None, "text"])
def test_bad_queries_are_refused(kind, query):
    with pytest.raises(ValueError, match=r"takes (dense )?tensors"):
        kind(num_heads=2)(query)


@pytest.mark.tensorflow
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("batches", [(2, 3), (3, 1), (1, 3), (0, 1)], ids=str)
def test_two_batches_in_a_graph(tf, kind, batches):
    layer = kind(num_heads=2)
    spec = tf.TensorSpec((None, None))
    call = tf.function(lambda x, y: layer(x, y), input_signature=[spec, spec])
    x, y = (tf.zeros((batch, 2)) for batch in batches)
    assert call(x, x).shape == (1, 2, 2, 2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="`key` must fit the inp"):
        call(x, y)


def test_the_shape_is_computed():
    layer = ALiBi(num_heads=3)
    assert layer.compute_output_shape((None, 5, 8)) == (1, 3, 5, 5)
    assert layer.compute_output_shape((2, 5), (2, None, 8)) == (1, 3, 5, None)
    assert layer(np.zeros((2, 5)), np.zeros((2, 7))).shape == (1, 3, 5, 7)
