"""`sinusoidal_encoding`: rows of any positions, in any dtype, on every backend."""

import math

import keras
import ml_dtypes
import numpy as np
import pytest
from keras import ops
from oracle import exact_rows, exact_rows_fast, formula_rows

from keras_pe import PositionalEncoding, sinusoidal_encoding
from keras_pe.arguments import standardize_positions

BACKEND = keras.config.backend()
# JAX has no float64 unless it is asked to: its rows are then float32 ones.
FLOAT64 = {"jax": ("float32", 3e-7)}.get(BACKEND, ("float64", 1e-9))
# What the cases of bad input say of themselves.
POSITIONS = r"sinusoidal_encoding: `positions` must be integers or floats.*of dtype "
BEYOND = r"sinusoidal_encoding.* -2147483648.*2147483647.* Received: "
INTEGERS = [0, 1, 2, 3, 257, 2049, 100_000, -1, 2**29 + 1, -(2**30) + 1]
FLOATS = [0.5, -0.25, 1234.5, -7.0, 99_999.75]


@pytest.fixture
def floatx():
    before = keras.config.floatx()
    yield keras.config.set_floatx
    keras.config.set_floatx(before)


def encode(*args, **kwargs):
    return ops.convert_to_numpy(sinusoidal_encoding(*args, **kwargs))


def dtype_of(tensor):
    return keras.backend.standardize_dtype(tensor.dtype)


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
@pytest.mark.parametrize("max_wavelength", [10000.0, 100, 0.5, 1e9])
@pytest.mark.parametrize("d_model", [1, 2, 5, 64])
@pytest.mark.parametrize("positions", [INTEGERS, FLOATS], ids=["int", "float"])
def test_rows_are_the_truth(positions, d_model, max_wavelength, layout):
    kwargs = {"max_wavelength": max_wavelength, "layout": layout}
    rows = encode(positions, d_model, **kwargs)
    error = np.abs(rows - exact_rows_fast(positions, d_model, **kwargs)).max()
    assert rows.dtype == "float32"
    assert rows.shape == (len(positions), d_model)
    assert error < 3e-7, f"measured {error}"


@pytest.mark.parametrize(
    ("position", "row"),
    [
        (0, [0, 1, 0, 1]),
        (1, [0.841471, 0.540302, 0.01, 0.99995]),
        (257, [-0.573357, 0.819306, 0.540972, -0.84104]),
        (100_000, [0.035749, -0.999361, 0.82688, 0.562379]),
        (-1, [-0.841471, 0.540302, -0.01, 0.99995]),
        (0.5, [0.479426, 0.877583, 0.005, 0.999988]),
    ],
)
def test_rows_known_by_hand(position, row):
    np.testing.assert_allclose(encode(position, 4), row, atol=6e-7)
    np.testing.assert_allclose(formula_rows([position], 4)[0], row, atol=6e-7)


@pytest.mark.parametrize("position", [2**31 - 1, -(2**31), 2**30, -(2**30) - 1])
def test_the_last_positions_of_int32(position):
    error = np.abs(encode([position], 64) - exact_rows([position], 64)).max()
    assert error < 1e-6, f"measured {error}"


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (1, 2, 3, 2), (0,), (2, 0, 3)])
@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_any_rank(shape, dtype):
    positions = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    rows = encode(ops.convert_to_tensor(positions.astype(dtype)), 6)
    assert rows.shape == (*shape, 6)
    flat = formula_rows(positions.ravel().tolist(), 6).reshape(rows.shape)
    np.testing.assert_allclose(rows, flat, atol=3e-7)


@pytest.mark.parametrize(
    "position",
    [3, 3.0, np.int64(3), np.float16(3), np.array(3), [3], (3,), range(3, 4), [[3.0]]],
    ids=repr,
)
def test_any_kind_of_position(position):
    rows = encode(position, 4)
    assert rows.shape == (*np.shape(position), 4)
    np.testing.assert_allclose(rows.reshape(1, 4), formula_rows([3], 4), atol=2e-7)


@pytest.mark.parametrize("convert", [np.asarray, ops.convert_to_tensor])
@pytest.mark.parametrize(
    ("dtype", "positions"),
    [
        ("uint8", [0, 127, 128, 255]),
        ("int8", [-128, -1, 127]),
        ("int16", [-(2**15), 2**15 - 1, 257]),
        ("uint16", [2**16 - 1, 2**15]),
        ("uint32", [2**31 - 1, 70_000]),
        ("int64", [-(2**31), 2**31 - 1, 70_001]),
        ("float16", [65_504, 2048, 0.5, -0.0625]),
        ("float32", [2**24 + 2, 1.25, -(2**31)]),
        ("float64", [2**24 + 1, 2.0**31 - (2048 if BACKEND == "jax" else 1), -0.5]),
    ],
)
def test_positions_of_any_dtype_never_wrap(dtype, positions, convert):
    unsigned = BACKEND == "torch" and dtype in ("uint16", "uint32")
    # torch has no arithmetic for these, so Keras makes int32 and int64 of them.
    dtype = {"uint16": "int32", "uint32": "int64"}[dtype] if unsigned else dtype
    array = np.array(positions).astype(dtype)
    rows = encode(convert(array), 32)
    if BACKEND == "jax" and dtype == "float64":
        array = array.astype("float32")
    error = np.abs(rows - exact_rows(array, 32)).max()
    assert error < 1e-6, f"measured {error}"


def test_longer_floats_are_read_in_float64():
    """Which is the longest that backends have."""
    positions = np.array([0.5, 100_000.25, -7], "longdouble")
    assert (
        np.abs(encode(positions, 8) - exact_rows([*map(float, positions)], 8)).max()
        < 3e-7
    )


def test_bfloat16_positions_do_not_round_again():
    positions = ops.cast(np.array([256.0, 1.5, 32768.0]), "bfloat16")
    error = np.abs(encode(positions, 32) - exact_rows([256, 1.5, 32768], 32)).max()
    assert error < 3e-7, f"measured {error}"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("positions", [INTEGERS, FLOATS], ids=["int", "float"])
def test_half_types_are_the_float32_rows_rounded_once(positions, dtype):
    rows = sinusoidal_encoding(positions, 64, dtype=dtype)
    rounded = ops.cast(sinusoidal_encoding(positions, 64, dtype="float32"), dtype)
    assert dtype_of(rows) == dtype
    rows, rounded = (
        ops.convert_to_numpy(ops.cast(x, "float32")) for x in (rows, rounded)
    )
    np.testing.assert_array_equal(rows, rounded)


@pytest.mark.parametrize("max_wavelength", [10000.0, 1e9])
@pytest.mark.parametrize("positions", [[*range(0, 10**6, 9973), -(10**6)], FLOATS])
def test_float64(positions, max_wavelength):
    dtype, bound = FLOAT64
    rows = encode(positions, 32, max_wavelength=max_wavelength, dtype="float64")
    exact = exact_rows(positions, 32, max_wavelength=max_wavelength)
    error = np.abs(rows - exact).max()
    assert rows.dtype == dtype
    assert error < bound, f"measured {error}"


def test_plain_floats_are_read_in_float64():
    # As float32, 100000.3 is 100000.296875.
    if BACKEND == "jax":
        exact = exact_rows([np.float32(100_000.3)], 8)
    else:
        exact = exact_rows([100_000.3], 8)
    error = np.abs(encode([100_000.3], 8) - exact).max()
    assert error < 3e-7, f"measured {error}"


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_no_dtype_is_floatx(name, floatx):
    floatx(name)
    rows = sinusoidal_encoding([257, 70_000], 4)
    wanted = FLOAT64[0] if name == "float64" else name
    assert dtype_of(rows) == wanted
    rows = ops.convert_to_numpy(ops.cast(rows, "float32"))
    bound = {"float16": 2**-11, "bfloat16": 2**-8}.get(name, 2e-7)
    assert np.abs(rows - exact_rows([257, 70_000], 4)).max() < bound


@pytest.mark.parametrize("dtype", ["int32", "foo", 5, [], {}, [1]], ids=repr)
def test_other_dtypes_are_refused(dtype):
    match = "`dtype` must be one of float16, .* Received: dtype="
    with pytest.raises(ValueError, match=match):
        sinusoidal_encoding([1], 4, dtype=dtype)


@pytest.mark.parametrize("dtype", [">f8", ">f4", ">f2", ">i4", "<f8"])
def test_positions_in_any_order_of_bytes(dtype):
    positions = [0.5, 1, -3] if "f" in dtype else [1, 2, -3]
    rows = encode(np.array(positions, dtype), 6)
    np.testing.assert_array_equal(rows, encode(np.array(positions), 6))


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
def test_tensors_that_torch_does_not_compare(dtype):
    import torch

    positions = torch.tensor([7, 1, 3]).to(getattr(torch, dtype))
    np.testing.assert_array_equal(encode(positions, 6), encode([7, 1, 3], 6))
    start = torch.tensor(7).to(getattr(torch, dtype))
    layer, x = PositionalEncoding(), ops.zeros((1, 2, 6))
    rows = ops.convert_to_numpy(layer(x, start_index=start))[0]
    np.testing.assert_allclose(rows, encode([7, 8], 6), rtol=0, atol=3e-7)
    if dtype != "uint16":
        far = torch.tensor(2**31).to(getattr(torch, dtype))
        with pytest.raises(ValueError, match=r"takes positions .* to 2147483648"):
            encode(far[None], 6)
        with pytest.raises(ValueError, match="from position 2147483648"):
            layer(x, start_index=far)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_positions_keep_their_bits_where_floatx_is_a_half(name, floatx):
    floatx(name)
    rows = encode([2049.0, 70_000.5], 4, dtype="float32")
    assert np.abs(rows - exact_rows([2049, 70_000.5], 4)).max() < 3e-7
    integers = [2**24 + 1, 2**29 + 3]
    exact = exact_rows(integers, 4)
    layer, zeros = PositionalEncoding(dtype="float32"), np.zeros((2, 2, 4), "float32")
    starts = np.array(integers)
    for rows in (
        encode(integers, 4, dtype="float32"),
        ops.convert_to_numpy(layer(zeros, positions=integers)[0]),
        ops.convert_to_numpy(layer(zeros, start_index=starts)[:, 0]),
    ):
        error = np.abs(rows - exact).max()
        assert error < 3e-7, f"measured {error}"


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_nan_and_infinity_stay_in_their_rows(dtype):
    rows = encode([1.0, math.nan, math.inf, -math.inf, 2.5], 6, dtype=dtype)
    assert np.isnan(rows[1:4]).all()
    np.testing.assert_allclose(rows[[0, 4]], formula_rows([1, 2.5], 6), atol=1e-3)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"d_model": 0}, r"`d_model` .* at least 1. Received: d_model=0"),
        ({"d_model": -1}, r"`d_model` .* at least 1. Received: d_model=-1"),
        ({"d_model": True}, r"`d_model` .* at least 1. Received: d_model=True"),
        ({"d_model": 2.5}, r"`d_model` .* at least 1. Received: d_model=2.5"),
        ({"d_model": None}, r"`d_model` .* at least 1. Received: d_model=None"),
        ({"max_wavelength": 0}, r"`max_wavelength` .* Received: max_wavelength=0"),
        ({"max_wavelength": math.nan}, r"`max_wavelength` .* max_wavelength=nan"),
        ({"max_wavelength": math.inf}, r"`max_wavelength` .* max_wavelength=inf"),
        ({"max_wavelength": "9"}, r"`max_wavelength` .* max_wavelength='9'"),
        ({"layout": "sines"}, r"`layout` .*'interleaved', 'halves'.*layout='sines'"),
        (
            {"dtype": "int32"},
            r"`dtype` must be one of float16.* Received: dtype='int32'",
        ),
        ({"positions": True}, POSITIONS + "bool"),
        ({"positions": [1j]}, POSITIONS + "complex128"),
        ({"positions": "3"}, POSITIONS + "str"),
        ({"positions": None}, "`positions`"),
        ({"positions": 2**31}, BEYOND),
        ({"positions": -(2**31) - 1}, BEYOND),
        ({"positions": [0, 2**70]}, "`positions`"),
        ({"positions": np.array([2**31], "int64")}, BEYOND + ".*2147483648"),
        ({"positions": np.array([2**32], "uint64")}, BEYOND + ".*4294967296"),
        ({"positions": [0.5, 3e9]}, BEYOND),
        ({"positions": [2.0**31]}, BEYOND),
        ({"positions": np.array([2.0**31], "float32")}, BEYOND),
        ({"positions": np.float32(2.0**31)}, BEYOND),
        ({"positions": [2.0**31 - 0.5]}, BEYOND),
        ({"positions": [-(2.0**31) - 1]}, BEYOND),
    ],
    ids=repr,
)
def test_bad_arguments_are_refused(change, match):
    with pytest.raises(ValueError, match=match):
        sinusoidal_encoding(**{"positions": [1], "d_model": 4, **change})


@pytest.mark.parametrize(
    ("dtype", "position"), [("float32", 2.0**31), ("float32", -3e9), ("uint32", 2**31)]
)
def test_tensors_beyond_int32_are_refused(dtype, position):
    tensor = ops.convert_to_tensor(np.array([1, position]).astype(dtype))
    with pytest.raises(ValueError, match=BEYOND):
        sinusoidal_encoding(tensor, 4)


@pytest.mark.parametrize("dtype", ["bool", "complex64"])
def test_tensors_that_are_no_positions_are_refused(dtype):
    tensor = ops.convert_to_tensor(np.array([1, 0]).astype(dtype))
    with pytest.raises(ValueError, match=POSITIONS + dtype):
        sinusoidal_encoding(tensor, 4)
    with pytest.raises(ValueError, match=POSITIONS + dtype):
        sinusoidal_encoding(keras.KerasTensor((None, 2), dtype), 4)


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize(
    ("dtype", "position"), [("int64", 2**31), ("int64", -(2**40)), ("float32", 3e9)]
)
def test_graphs_never_give_a_wrong_row(dtype, position, jit_compile):
    import tensorflow as tf

    @tf.function(jit_compile=jit_compile)
    def graph(positions):
        return sinusoidal_encoding(positions, 4)

    positions = tf.constant([3, position], dtype)
    if jit_compile:
        rows = graph(positions).numpy()
        assert np.isnan(rows[1]).all()
        np.testing.assert_allclose(rows[:1], formula_rows([3], 4), atol=2e-7)
    else:
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=r"sinusoidal_encoding"
        ):
            graph(positions)


@pytest.mark.parametrize("dtype", ["int32", "float32"])
@pytest.mark.parametrize("name", [None, "float16", "float32"])
def test_a_functional_model_is_saved_and_reloaded(dtype, name, tmp_path):
    positions = keras.Input((None,), dtype=dtype)
    rows = sinusoidal_encoding(
        positions, 6, max_wavelength=50.0, layout="halves", dtype=name
    )
    assert rows.shape == (None, None, 6)
    assert rows.dtype == (name or keras.config.floatx())
    model = keras.Model(positions, rows)
    model.save(tmp_path / "model.keras")
    reloaded = keras.saving.load_model(tmp_path / "model.keras")
    inputs = ops.convert_to_tensor(np.array([[3, -1, 70_000]], dtype))
    exact = exact_rows([3, -1, 70_000], 6, max_wavelength=50.0, layout="halves")
    first, second = (ops.convert_to_numpy(each(inputs)) for each in (model, reloaded))
    assert first.dtype == second.dtype == rows.dtype
    np.testing.assert_array_equal(first, second)
    assert np.abs(first[0] - exact).max() < (6e-4 if name == "float16" else 3e-7)


def test_the_floatx_of_a_model_is_kept_in_its_file(floatx, tmp_path):
    floatx("float16")
    positions = keras.Input((None,), dtype="int32")
    model = keras.Model(positions, sinusoidal_encoding(positions, 4))
    model.save(tmp_path / "model.keras")
    floatx("float32")
    reloaded = keras.saving.load_model(tmp_path / "model.keras")
    rows = reloaded(ops.convert_to_tensor(np.array([[3]], "int32")))
    assert dtype_of(rows) == "float16"


@pytest.mark.tensorflow
def test_no_gradient_flows_to_positions(tf):
    positions = tf.Variable([0.5, 1.5], dtype="float64")
    with tf.GradientTape() as tape:
        rows = sinusoidal_encoding(positions, 6, dtype="float64")
    assert tape.gradient(rows, positions) is None


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_arrays_of_fractions_are_handed_on_as_they_are(dtype):
    """In float64 they would take twice the memory, or more."""
    array = np.array([0.5, 3]).astype(getattr(ml_dtypes, dtype, dtype))
    assert standardize_positions("it", array).dtype == array.dtype
    assert standardize_positions("it", array.astype("longdouble")).dtype == "float64"
