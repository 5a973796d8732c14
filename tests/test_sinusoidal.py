"""PositionalEncoding: its arguments, its errors, its values."""

import json
from fractions import Fraction

import keras
import numpy as np
import pytest
from keras import ops
from oracle import exact_rows

from keras_pe import PositionalEncoding, sinusoid_rows
from keras_pe.recipe import sinusoids

# The definition, computed at 40 digits.
ROWS = {
    0: [0, 1, 0, 1],
    1: [0.841471, 0.540302, 0.01, 0.99995],
    2: [0.909297, -0.416147, 0.019999, 0.9998],
    3: [0.14112, -0.989992, 0.029996, 0.99955],
    257: [-0.573357, 0.819306, 0.540972, -0.84104],
    2049: [0.630028, 0.776572, 0.997576, -0.069591],
    100000: [0.035749, -0.999361, 0.82688, 0.562379],
    -1: [-0.841471, 0.540302, -0.01, 0.99995],
    0.5: [0.479426, 0.877583, 0.005, 0.999988],
}


def zeros(*shape, dtype="float32"):
    return np.zeros(shape, dtype)


def rows(*positions):
    return [ROWS[position] for position in positions]


def tensor(value, dtype="int32"):
    return ops.convert_to_tensor(np.array(value, dtype))


def encode(inputs, layer=None, **kwargs):
    return ops.convert_to_numpy((layer or PositionalEncoding())(inputs, **kwargs))


def check_rows(result, expected):
    """To half a unit of the sixth place, and what float32 adds to it."""
    expected = np.broadcast_to(expected, result.shape)
    np.testing.assert_allclose(result, expected, rtol=0, atol=8e-7)


# Arguments.


@pytest.mark.parametrize("max_length", [None, 4096])
@pytest.mark.parametrize("max_wavelength", [0.5, 1e-6, 1e-12, 5e-324])
def test_waves_shorter_than_a_step(max_wavelength, max_length):
    layer = PositionalEncoding(max_length=max_length, max_wavelength=max_wavelength)
    expected = exact_rows([2000, 2001], 64, max_wavelength=max_wavelength)
    for kwargs in (dict(start_index=2000), dict(positions=[2000, 2001])):
        result = encode(zeros(1, 2, 64), layer, **kwargs)[0]
        np.testing.assert_allclose(result, expected, rtol=0, atol=3e-7)


def test_arguments_are_keyword_only():
    with pytest.raises(TypeError):
        PositionalEncoding(8)


@pytest.mark.parametrize(
    "value",
    [
        *[0, -1, 2.5, 8.0, True, False, "8", b"8", (8,), [8], {}, 8j],
        *[np.int64(0), np.int8(-1), np.float32(8), np.True_, np.array([8])],
        *[np.array(8.0), np.array(True), float("nan"), float("inf")],
        2**31 + 1,
    ],
    ids=repr,
)
def test_bad_max_length(value):
    message = "`max_length` must be an integer of at least 1 and at most 2147483648. R"
    with pytest.raises(ValueError, match=message):
        PositionalEncoding(max_length=value)


@pytest.mark.parametrize(
    "value",
    [
        *[0, 0.0, -1, -1e-9, True, "1e4", b"1", None, 1j, [1e4], (1e4,), {}],
        *[float("nan"), float("inf"), -float("inf"), 10**400],
        *[np.float32(0), np.float32("nan"), np.int64(-1), np.True_, np.array([1.0])],
    ],
    ids=lambda value: repr(value)[:20],
)
def test_bad_max_wavelength(value):
    message = "`max_wavelength` must be a finite real number above 0. Received: max_"
    with pytest.raises(ValueError, match=message):
        PositionalEncoding(max_wavelength=value)


@pytest.mark.parametrize(
    "value",
    ["", "half", "Halves", "interleaved ", b"halves", None, True, 0, ["halves"], {}],
    ids=repr,
)
def test_bad_layout(value):
    message = "`layout` must be one of 'interleaved', 'halves'. Received: layout="
    with pytest.raises(ValueError, match=message):
        PositionalEncoding(layout=value)


@pytest.mark.parametrize("dtype", ["float32", "bool"])
def test_tensors_are_no_max_length(dtype):
    with pytest.raises(ValueError, match="`max_length` must be an integer"):
        PositionalEncoding(max_length=tensor(1, dtype))


@pytest.mark.parametrize("dtype", ["int32", "float32", "bool"])
def test_tensors_are_no_max_wavelength(dtype):
    with pytest.raises(ValueError, match="`max_wavelength` must be a finite real"):
        PositionalEncoding(max_wavelength=tensor(1, dtype))


@pytest.mark.parametrize("dtype", ["int32", "string", "bool", "complex64"])
def test_dtype_must_be_float(dtype):
    with pytest.raises(ValueError, match="dtype"):
        PositionalEncoding(dtype=dtype)


def test_unknown_argument():
    with pytest.raises(ValueError, match="max_len"):
        PositionalEncoding(max_len=8)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (dict(max_length=None), None),
        (dict(max_length=1), 1),
        (dict(max_length=np.int64(8)), 8),
        (dict(max_length=np.uint8(8)), 8),
        (dict(max_length=np.array(8)), 8),
        (dict(max_wavelength=500), 500.0),
        (dict(max_wavelength=np.float32(0.5)), 0.5),
        (dict(max_wavelength=np.int64(7)), 7.0),
        (dict(max_wavelength=Fraction(1, 4)), 0.25),
        (dict(layout="halves"), "halves"),
        (dict(layout=np.str_("halves")), "halves"),
    ],
    ids=repr,
)
def test_arguments_are_stored_as_plain_python(given, stored):
    layer = PositionalEncoding(**given)
    [name] = given
    for value in (getattr(layer, name), layer.get_config()[name]):
        assert value == stored
        assert type(value) is type(stored)


def test_defaults():
    layer = PositionalEncoding()
    assert layer.max_length is None
    assert layer.max_wavelength == 10000.0
    assert layer.layout == "interleaved"


# Config.


def test_config_holds_every_argument_and_nothing_else():
    given = dict(name="pos", trainable=False, dtype="float16")
    given |= dict(max_length=8, max_wavelength=500.0, layout="halves")
    config = PositionalEncoding(**given).get_config()
    assert set(config) == set(given)
    assert config["dtype"]["config"] == {"name": "float16"}
    assert {**config, "dtype": "float16"} == given
    layer = PositionalEncoding.from_config(json.loads(json.dumps(config)))
    assert layer.get_config() == config
    assert (layer.name, layer.trainable, layer.compute_dtype) == (
        "pos",
        False,
        "float16",
    )
    layer(zeros(1, 2, 4))
    assert layer.get_config() == config


def test_config_of_the_defaults_passes_json():
    config = PositionalEncoding().get_config()
    assert json.loads(json.dumps(config)) == config
    assert PositionalEncoding.from_config(config).get_config() == config


@pytest.mark.parametrize(
    "dtype", ["mixed_float16", "mixed_bfloat16", keras.DTypePolicy("bfloat16")], ids=str
)
def test_dtype_is_kept_against_a_global_policy(dtype):
    layer = PositionalEncoding(dtype=dtype)
    keras.config.set_dtype_policy("float64")
    copy = PositionalEncoding.from_config(layer.get_config())
    assert copy.dtype_policy == layer.dtype_policy
    assert copy.compute_dtype == layer.compute_dtype != "float64"


def test_registered_under_the_name_of_the_package():
    name = keras.saving.get_registered_name(PositionalEncoding)
    assert name == "keras_pe>PositionalEncoding"


# Inputs.


@pytest.mark.parametrize(
    "dtype", ["int32", "uint8", "int64", "bool", "complex64", "str", "object"]
)
def test_inputs_must_be_float(dtype):
    message = "layer 'pos' takes a float tensor: put it after an Embedding layer"
    with pytest.raises(ValueError, match=message):
        PositionalEncoding(name="pos")(np.ones((1, 3, 4), dtype))


@pytest.mark.parametrize("dtype", ["int32", "bool"])
def test_inputs_must_be_float_tensors(dtype):
    message = "layer 'pos' takes a float tensor: put it after an Embedding layer"
    for inputs in (tensor(np.ones((1, 3, 4)), dtype), keras.Input((3, 4), dtype=dtype)):
        with pytest.raises(ValueError, match=message):
            PositionalEncoding(name="pos")(inputs)


@pytest.mark.parametrize("shape", [(), (4,), (3, 4)])
def test_inputs_must_have_three_axes(shape):
    message = r"layer 'pos' takes inputs of shape \(batch, ..., time, d_model\)"
    with pytest.raises(ValueError, match=message):
        PositionalEncoding(name="pos")(zeros(*shape))


def test_feature_size_must_be_known():
    message = "layer 'pos' .* with a known d_model. Received: .*None, None, None"
    with pytest.raises(ValueError, match=message):
        PositionalEncoding(name="pos")(keras.Input((None, None)))


@pytest.mark.tensorflow
def test_ragged_and_sparse_inputs(tf):
    layer = PositionalEncoding(name="pos")
    dense = tf.ones((2, 3, 4))
    for inputs in (
        tf.RaggedTensor.from_tensor(dense),
        tf.RaggedTensor.from_tensor(dense, ragged_rank=2),
        tf.sparse.from_dense(dense),
        keras.Input((None, 4), ragged=True),
        keras.Input((None, 4), sparse=True),
    ):
        with pytest.raises(ValueError, match="layer 'pos' takes a dense tensor"):
            layer(inputs)
        with pytest.raises(ValueError, match="layer 'pos' takes a dense tensor"):
            layer(inputs=inputs)


@pytest.mark.tensorflow
def test_ragged_inputs_of_a_graph(tf):
    layer = PositionalEncoding(name="pos")
    spec = tf.RaggedTensorSpec((None, None, 4), ragged_rank=1)
    with pytest.raises(ValueError, match="layer 'pos' takes a dense tensor"):
        tf.function(layer).get_concrete_function(spec)


# Positions and start_index.


@pytest.mark.parametrize(
    "start", [1, 0.0, False, None, np.int64(0), [0], "0"], ids=repr
)
def test_positions_or_start_index(start):
    message = "layer 'pos' takes `positions` or `start_index`, not both"
    with pytest.raises(ValueError, match=message):
        encode(
            zeros(2, 3, 4),
            PositionalEncoding(name="pos"),
            positions=[0, 1, 2],
            start_index=start,
        )


def test_positions_or_start_index_as_tensors():
    layer = PositionalEncoding(name="pos")
    message = "layer 'pos' takes `positions` or `start_index`, not both"
    for start in (tensor(0), keras.Input((), dtype="int32")):
        with pytest.raises(ValueError, match=message):
            layer(zeros(2, 3, 4), positions=[0, 1, 2], start_index=start)
    assert encode(zeros(2, 3, 4), positions=[0, 1, 2], start_index=0).shape == (2, 3, 4)


NUMBERS = r"layer 'pos': `positions` must be integers or floats, in -2147483648"
SHAPE = r"layer 'pos': `positions` must be of shape \(time,\) or \(batch, time\), and"


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        ([True, False, True], NUMBERS),
        ([1j, 0, 1], NUMBERS),
        (["0", "1", "2"], NUMBERS),
        ([None, 0, 1], NUMBERS),
        ({0, 1, 2}, "layer 'pos': `positions` must be"),
        (0, SHAPE),
        ([0, 1], SHAPE),
        ([0], SHAPE),
        ([0, 1, 2, 3], SHAPE),
        ([[0, 1]], SHAPE),
        ([[0], [1]], SHAPE),
        ([[0, 1, 2]] * 3, SHAPE),
        ([[0], [1], [2]], SHAPE),
        ([[[0, 1, 2]] * 2], SHAPE),
        ([], SHAPE),
        ([2**31, 0, 1], "layer 'pos'.*`positions` must lie in.*2147483648"),
        ([-(2**31) - 1, 0, 1], "layer 'pos'.*`positions` must lie in.*-2147483649"),
        ([2**64, 0, 1], "layer 'pos': `positions` must"),
        ([1e10, 0, 1], "layer 'pos'.*10000000000.0"),
        (np.array([2**63, 0, 1], "uint64"), "layer 'pos'.*9223372036854775808"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_bad_positions(positions, message):
    with pytest.raises(ValueError, match=message):
        encode(zeros(2, 3, 4), PositionalEncoding(name="pos"), positions=positions)


@pytest.mark.parametrize(
    ("positions", "dtype", "message"),
    [
        ([1, 0, 1], "bool", NUMBERS),
        ([1, 0, 1], "complex64", NUMBERS),
        ([0], "int32", SHAPE),
        ([0, 1], "float32", SHAPE),
        ([[0, 1, 2]] * 3, "int32", SHAPE),
        (0, "int32", SHAPE),
        ([[[0, 1, 2]]], "int32", SHAPE),
    ],
    ids=repr,
)
def test_bad_position_tensors(positions, dtype, message):
    array = np.array(positions, dtype)
    for value in (array, tensor(array, dtype)):
        with pytest.raises(ValueError, match=message):
            encode(zeros(2, 3, 4), PositionalEncoding(name="pos"), positions=value)
    spec = keras.KerasTensor(array.shape, dtype)
    with pytest.raises(ValueError, match=message):
        PositionalEncoding(name="pos")(keras.KerasTensor((2, 3, 4)), positions=spec)


WHOLE = "layer 'pos': `start_index` must be integers, in -2147483648..2147483647"
START = r"layer 'pos': `start_index` must be of shape \(\) or \(batch,\), and the"


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (2.5, WHOLE),
        (2.0, WHOLE),
        (True, WHOLE),
        (np.True_, WHOLE),
        ("2", WHOLE),
        (1j, WHOLE),
        ([2.0, 3.0], WHOLE),
        (np.float32(2), WHOLE),
        (None, "layer 'pos': `start_index` must be"),
        ([0, 1, 2], START),
        ([[0, 1]], START),
        ([[0]], START),
        ([], WHOLE),
        (2**31, "layer 'pos': `start_index` must lie in .*2147483648"),
        (-(2**31) - 1, "layer 'pos': `start_index` must lie in .*-2147483649"),
        (2**31 - 2, "layer 'pos' takes positions .* 3 steps from position 2147483646"),
        (2**64, "layer 'pos': `start_index` must"),
    ],
    ids=repr,
)
def test_bad_start_index(start, message):
    with pytest.raises(ValueError, match=message):
        encode(zeros(2, 3, 4), PositionalEncoding(name="pos"), start_index=start)


@pytest.mark.parametrize(
    ("start", "dtype", "message"),
    [
        (2, "float32", WHOLE),
        (1, "bool", WHOLE),
        ([0, 1, 2], "int32", START),
        ([[0, 1]], "int32", START),
        (
            2**31 - 2,
            "int32",
            "layer 'pos' takes positions .* 3 steps from .*2147483646",
        ),
    ],
    ids=repr,
)
def test_bad_start_index_tensors(start, dtype, message):
    layer = PositionalEncoding(name="pos")
    with pytest.raises(ValueError, match=message):
        layer(zeros(2, 3, 4), start_index=tensor(start, dtype))


@pytest.mark.tensorflow
def test_ragged_and_sparse_positions(tf):
    layer = PositionalEncoding(name="pos")
    # As many numbers as the input has steps, in rows of other lengths.
    ragged, sparse = tf.ragged.constant([[0, 1, 2], [3]]), tf.sparse.eye(2)
    for positions in (ragged, sparse):
        with pytest.raises(ValueError, match=r"'pos'.*dense"):
            layer(zeros(2, 2, 4), positions=positions)
    with pytest.raises(ValueError, match=r"'pos'.*dense"):
        tf.function(lambda positions: layer(zeros(2, 2, 4), positions=positions))(
            ragged
        )
    with pytest.raises(ValueError, match=r"'pos'.*dense"):
        layer(zeros(2, 2, 4), start_index=tf.sparse.from_dense([1, 2]))


def test_start_index_may_be_a_variable():
    index = keras.Variable(2, dtype="int32", trainable=False)
    for layer in (PositionalEncoding(), PositionalEncoding(max_length=8)):
        index.assign(2)
        check_rows(encode(zeros(1, 2, 4), layer, start_index=index), rows(2, 3))
        index.assign(1)
        check_rows(encode(zeros(1, 2, 4), layer, start_index=index), rows(1, 2))


# Values.


def test_adds_once():
    expected = [[1, 2, 1, 2], [1.841471, 1.540302, 1.01, 1.99995]]
    check_rows(encode(np.ones((1, 2, 4), "float32")), expected)
    layer = PositionalEncoding()
    result = layer(inputs=np.ones((1, 2, 4), "float32"))
    check_rows(ops.convert_to_numpy(result), expected)


@pytest.mark.parametrize("max_length", [None, 3, 8])
def test_rows_from_0_for_each_of_a_batch(max_length):
    result = encode(zeros(16, 3, 4), PositionalEncoding(max_length=max_length))
    check_rows(result, rows(0, 1, 2))
    assert result.dtype == "float32"


@pytest.mark.parametrize("position", ROWS)
def test_row_of_any_position(position):
    check_rows(encode(zeros(1, 1, 4), positions=[position]), [ROWS[position]])


@pytest.mark.parametrize(
    ("arguments", "d_model", "row"),
    [
        ({}, 1, [0.841471]),
        ({}, 2, [0.841471, 0.540302]),
        ({}, 3, [0.841471, 0.540302, 0.002154]),
        ({}, 5, [0.841471, 0.540302, 0.025116, 0.999685, 0.000631]),
        (
            {},
            8,
            [0.841471, 0.540302, 0.099833, 0.995004, 0.01, 0.99995, 0.001, 1.0],
        ),
        (dict(layout="halves"), 4, [0.841471, 0.01, 0.540302, 0.99995]),
        (
            dict(layout="halves"),
            5,
            [0.841471, 0.025116, 0.000631, 0.540302, 0.999685],
        ),
        (dict(max_wavelength=1000), 4, [0.841471, 0.540302, 0.031618, 0.9995]),
        (dict(max_wavelength=1000, layout="halves"), 3, [0.841471, 0.01, 0.540302]),
    ],
    ids=repr,
)
@pytest.mark.parametrize("max_length", [None, 2])
def test_row_1(arguments, d_model, row, max_length):
    layer = PositionalEncoding(max_length=max_length, **arguments)
    check_rows(encode(zeros(1, 2, d_model), layer)[:, 1], row)
    check_rows(encode(zeros(1, 1, d_model), layer, start_index=tensor(1)), [row])
    check_rows(encode(zeros(1, 1, d_model), layer, positions=[1.0]), [row])


def test_channels_of_a_pair_share_a_rate():
    result = encode(zeros(1, 50, 6))
    pairs = result[..., 0::2] ** 2 + result[..., 1::2] ** 2
    np.testing.assert_allclose(pairs, 1, atol=3e-7)


@pytest.mark.parametrize(
    "shape", [(2, 3, 5, 4), (2, 5, 5, 4), (2, 2, 2, 3, 4), (2, 5, 5, 1), (1, 3, 3, 2)]
)
@pytest.mark.parametrize("max_length", [None, 8])
def test_middle_axes_are_broadcast_over(shape, max_length):
    layer = PositionalEncoding(max_length=max_length)
    expected = encode(zeros(1, *shape[-2:]), layer)[0]
    assert not np.array_equal(expected[0], expected[1])
    for kwargs in ({}, dict(start_index=tensor(0)), dict(positions=range(shape[-2]))):
        result = encode(zeros(*shape), layer, **kwargs)
        assert result.shape == shape
        np.testing.assert_allclose(result, np.broadcast_to(expected, shape), atol=3e-7)


@pytest.mark.parametrize("shape", [(3, 3, 1, 1), (3, 2, 1, 4), (3, 3, 1, 4)])
def test_positions_of_each_row_with_middle_axes(shape):
    expected = encode(zeros(1, 3, shape[-1]))[0][:, None, None]
    expected = np.broadcast_to(expected, shape)
    for kwargs in (dict(positions=[[0], [1], [2]]), dict(start_index=[0, 1, 2])):
        result = encode(zeros(*shape), **kwargs)
        np.testing.assert_allclose(result, expected, atol=3e-7)


@pytest.mark.parametrize(
    "start",
    [2, np.int64(2), np.uint8(2), np.array(2), [2], [2, 2], np.array([2, 2], "int64")],
    ids=repr,
)
@pytest.mark.parametrize("max_length", [None, 5])
def test_start_index(start, max_length):
    layer = PositionalEncoding(max_length=max_length)
    result = encode(zeros(2, 2, 4), layer, start_index=start)
    check_rows(result, rows(2, 3))


@pytest.mark.parametrize("dtype", ["int32", "int64", "int8", "uint8", "int16"])
@pytest.mark.parametrize("max_length", [None, 4])
def test_start_index_tensors(dtype, max_length):
    layer = PositionalEncoding(max_length=max_length)
    for start in (2, [2], [2, 2]):
        result = encode(zeros(2, 2, 4), layer, start_index=tensor(start, dtype))
        check_rows(result, rows(2, 3))
    result = encode(zeros(2, 2, 4), layer, start_index=tensor([2, 1], dtype))
    check_rows(result, [rows(2, 3), rows(1, 2)])


def test_negative_start_index():
    check_rows(encode(zeros(1, 3, 4), start_index=-1), rows(-1, 0, 1))
    check_rows(encode(zeros(1, 3, 4), start_index=tensor(-1)), rows(-1, 0, 1))


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "float32", "float16"])
@pytest.mark.parametrize("max_length", [None, 4])
def test_positions(dtype, max_length):
    layer = PositionalEncoding(max_length=max_length)
    for positions, expected in (
        ([0, 0, 1, 2], rows(0, 0, 1, 2)),
        ([[1, 2, 3, 0]], rows(1, 2, 3, 0)),
        ([[0, 0, 1, 2], [1, 2, 3, 0]], [rows(0, 0, 1, 2), rows(1, 2, 3, 0)]),
    ):
        for value in (np.array(positions, dtype), tensor(positions, dtype)):
            check_rows(encode(zeros(2, 4, 4), layer, positions=value), expected)


def test_positions_that_are_not_finite_have_rows_of_nan():
    positions = [0, float("nan"), 0.5, float("inf"), -float("inf"), 3]
    for layer in (PositionalEncoding(), PositionalEncoding(max_length=4)):
        result = encode(zeros(1, 6, 4), layer, positions=positions)
        check_rows(result[:, [0, 2, 5]], rows(0, 0.5, 3))
        assert np.isnan(result[:, [1, 3, 4]]).all()


def test_one_layer_on_two_widths():
    layer = PositionalEncoding(max_length=4)
    check_rows(encode(zeros(1, 2, 4), layer), rows(0, 1))
    check_rows(encode(zeros(1, 2, 3), layer)[:, 1], [0.841471, 0.540302, 0.002154])
    check_rows(encode(zeros(1, 2, 4), layer), rows(0, 1))


def test_layers_do_not_share_their_tables():
    inputs = zeros(1, 2, 4)
    arguments = [dict(max_wavelength=1000), dict(layout="halves"), dict(max_length=2)]
    results = [encode(inputs, PositionalEncoding(**a))[0, 1] for a in arguments]
    check_rows(results[0], [0.841471, 0.540302, 0.031618, 0.9995])
    check_rows(results[1], [0.841471, 0.01, 0.540302, 0.99995])
    check_rows(results[2], ROWS[1])


# Dtypes.


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_output_has_the_compute_dtype(dtype):
    layer = PositionalEncoding()
    assert encode(zeros(1, 2, 4, dtype=dtype), layer).dtype == "float32"
    symbolic = layer(keras.Input((None, 4), dtype=dtype))
    assert symbolic.dtype == "float32"


@pytest.mark.parametrize("policy", ["float16", "bfloat16", "mixed_bfloat16", "float64"])
def test_compute_output_spec(policy):
    layer = PositionalEncoding(dtype=policy)
    spec = layer.compute_output_spec(keras.KerasTensor((2, None, 4), "float16"))
    assert (spec.shape, spec.dtype) == ((2, None, 4), layer.compute_dtype)
    assert layer.compute_output_shape((2, None, 4)) == (2, None, 4)


def test_symbolic_result():
    result = PositionalEncoding()(keras.KerasTensor((None, None, 4)))
    assert result.shape == (None, None, 4)
    assert keras.layers.Dense(3)(result).shape == (None, None, 3)


@pytest.mark.tensorflow
def test_float64(tf):
    layer = PositionalEncoding(dtype="float64")
    result = encode(zeros(1, 3, 4, dtype="float64"), layer, start_index=10**6 - 2)
    assert result.dtype == "float64"
    angles = np.arange(10**6 - 2, 10**6 + 1)[:, None] * [1, 0.01]
    np.testing.assert_allclose(result[0, :, 0::2], np.sin(angles), rtol=0, atol=1e-9)
    np.testing.assert_allclose(result[0, :, 1::2], np.cos(angles), rtol=0, atol=1e-9)


# Training.


def test_no_weights():
    for layer in (PositionalEncoding(), PositionalEncoding(max_length=8)):
        layer(zeros(1, 3, 4))
        assert layer.weights == []
        assert layer.count_params() == 0


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize(
    "kwargs", [{}, dict(start_index=[2, 1]), dict(positions=[0.5] * 3)]
)
def test_gradient_is_1(tf, kwargs, jit_compile):
    layer = PositionalEncoding()

    @tf.function(jit_compile=jit_compile)
    def gradient(inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            total = tf.reduce_sum(layer(inputs, **kwargs))
        return tape.gradient(total, inputs)

    np.testing.assert_array_equal(
        gradient(tf.random.normal((2, 3, 4))), np.ones((2, 3, 4))
    )


def test_a_step_of_training_leaves_the_rows_alone():
    inputs = keras.Input((3, 4))
    layer = PositionalEncoding()
    model = keras.Model(inputs, keras.layers.Dense(4)(layer(inputs)))
    model.compile("adam", "mse")
    before = encode(zeros(1, 3, 4), layer)
    kernel = ops.convert_to_numpy(model.trainable_weights[0])
    model.fit(np.ones((2, 3, 4), "float32"), zeros(2, 3, 4), verbose=0)
    assert not np.array_equal(kernel, ops.convert_to_numpy(model.trainable_weights[0]))
    np.testing.assert_array_equal(encode(zeros(1, 3, 4), layer), before)
    np.testing.assert_array_equal(encode(zeros(1, 3, 4), layer, training=True), before)


@pytest.mark.parametrize("shape", [(3, 4), (4,), (2, 5, 0)])
def test_shapes_are_checked_at_every_call(shape):
    layer = PositionalEncoding(name="pos")
    layer(zeros(1, 2, 4))
    message = r"'pos' takes inputs of shape \(batch, ..., time, d_model\).* Received: "
    with pytest.raises(ValueError, match=message):
        layer(zeros(*shape))
    with pytest.raises(ValueError, match=message):
        layer(keras.KerasTensor(shape))
    with pytest.raises(ValueError, match=message):
        layer.compute_output_shape(shape)


def test_an_unbounded_table_is_never_made():
    # 2**31 rows would be 48 GB; known runs are the recipe's rows all the same.
    layer = PositionalEncoding(max_length=2**31)
    expected = encode(zeros(1, 3, 4), start_index=5)
    np.testing.assert_array_equal(
        encode(zeros(1, 3, 4), layer, start_index=5), expected
    )
    result = encode(zeros(1, 2**18, 8), layer)[0]  # 8 MiB
    table = sinusoids(np.arange(2**18), 8).astype("float32")
    np.testing.assert_array_equal(result, table)
    result = encode(zeros(1, 3, 4), layer, start_index=tensor(5))
    np.testing.assert_allclose(result, expected, rtol=0, atol=3e-7)
    assert np.isfinite(encode(zeros(1, 1, 4), layer, positions=[2**31 - 1])).all()


def test_a_table_has_256_mib_at_most(monkeypatch):
    made = []

    def rows_of_table(rows, max_length, encoding, dtype):
        made.append(max_length)
        return tensor([ROWS[0]], dtype)

    monkeypatch.setattr(sinusoid_rows, "rows_of_table", rows_of_table)
    for max_length in (2**24, 2**24 + 1):  # of 16 bytes
        layer = PositionalEncoding(max_length=max_length)
        check_rows(encode(zeros(1, 1, 4), layer, positions=[0]), ROWS[0])
    assert made == [2**24]


@pytest.mark.parametrize("max_wavelength", [1, 1.5])
def test_waves_of_a_step_have_the_rows_of_the_recipe(max_wavelength):
    layer = PositionalEncoding(max_wavelength=max_wavelength)
    result = encode(zeros(1, 50, 6), layer, start_index=10**6)[0]
    expected = sinusoids(np.arange(10**6, 10**6 + 50), 6, max_wavelength)
    np.testing.assert_array_equal(result, expected.astype("float32"))


def test_ragged_lists_are_refused():
    with pytest.raises(ValueError, match="'pos': `positions` must be an array"):
        PositionalEncoding(name="pos")(zeros(2, 2, 4), positions=[[0], [1, 2]])


def test_arrays_of_others_keep_every_bit():
    class Series:
        dtype, shape = np.dtype("int64"), (2,)

        def __array__(self, dtype=None, copy=None):
            return np.array([2**32 + 1, 1])

    with pytest.raises(ValueError, match="must lie in"):
        PositionalEncoding()(zeros(1, 2, 4), positions=Series())


def test_other_dtypes_are_refused():
    with pytest.raises(ValueError, match="`dtype` must be one of float16, bfloat16"):
        PositionalEncoding(dtype="int32")
