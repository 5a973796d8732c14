"""The functions, beside slow arithmetic, on arguments that are drawn."""

import math

import keras
import numpy as np
import pytest
from drawn import (
    FLOATS,
    INTEGERS,
    NO_TENSORS,
    dtype_called,
    dtype_of,
    emptied,
    exact,
    keras_dtype,
    layouts,
    lengths,
    positions,
    sampled,
    seldom,
    sizes,
    wavelengths,
    ways,
)
from generated import (
    COMPARED,
    COMPILED,
    REFUSED,
    assert_near,
    call,
    compared,
    generated,
    outcome,
    to_numpy,
)
from hypothesis import strategies as st
from keras import ops
from truth import (
    LEAST,
    UNIT,
    error_of_rows,
    recipe_angles,
    recipe_rows,
    rows_at,
    segments_of,
    steps_of,
)

import keras_pe
from keras_pe import analysis

BAD_SIZES = [0, -1, 2.5, True, "8", None, 1 + 0j]
BAD_WAVELENGTHS = [0, -1.0, math.nan, math.inf, "9", None, True]
BAD_LAYOUTS = ["pairs", "", None, 1]


def bad(**arguments):
    """A change of one argument to one of its wrong values."""
    return st.sampled_from(
        [{name: value} for name, values in arguments.items() for value in values]
    )


# The recipe.


@st.composite
def angles(draw):
    shape = draw(emptied(draw(st.lists(sizes(1, 5), max_size=3))))
    other = [draw(st.sampled_from([1, size])) for size in shape]
    position = draw(st.floats(-1e6, 1e6) | st.integers(-(2**31), 2**31))
    dtype = draw(st.sampled_from(["int64", "int32", "float64", "float32"]))
    position = np.asarray(position).astype("float64" if "f" in dtype else "int64")
    position = (position + np.arange(math.prod(shape)).reshape(shape)).astype(dtype)
    channels = np.arange(math.prod(other)).reshape(other)
    arguments = {"position": position, "i": channels, "d_model": draw(sizes(1, 300))}
    return arguments, draw(seldom(bad(d_model=BAD_SIZES), st.just({})))


@generated(angles())
def test_get_angles(case):
    arguments, change = case
    if change:
        with pytest.raises(ValueError, match="`d_model` must be an integer"):
            keras_pe.get_angles(**{**arguments, **change})
        return REFUSED
    result = keras_pe.get_angles(**arguments)
    position, i = arguments["position"], arguments["i"]
    expected = recipe_angles(position.astype("float64"), i, arguments["d_model"])
    assert result.dtype == "float64"
    np.testing.assert_array_equal(result, expected, strict=True)
    return compared(result)


@st.composite
def tables(draw):
    change = bad(d_model=BAD_SIZES, position=BAD_SIZES[1:])
    (position,) = draw(emptied((draw(lengths()),)))
    arguments = {
        "position": draw(st.sampled_from([position, np.int64(position)])),
        "d_model": draw(sizes(1, 300)),
    }
    return arguments, draw(seldom(change, st.just({})))


@pytest.mark.tensorflow
@generated(tables())
def test_positional_encoding_of_the_recipe(case):
    arguments, change = case
    if change:
        with pytest.raises(ValueError, match=f"`{next(iter(change))}` must be an int"):
            keras_pe.positional_encoding(**{**arguments, **change})
        return REFUSED
    result = keras_pe.positional_encoding(**arguments)
    count, d_model = arguments.values()
    expected = recipe_rows(np.arange(count), d_model).astype("float32")
    assert result.dtype == "float32"
    np.testing.assert_array_equal(np.array(result), expected[None], strict=True)
    steps = sampled(count, 16)
    assert_near(to_numpy(result)[0, steps], rows_at(steps, d_model), 3.1e-8)
    return compared(expected)


# Rows of any positions.


@st.composite
def encodings(draw):
    shape = (draw(lengths()),)
    if draw(st.booleans()):
        shape = draw(emptied(draw(st.lists(sizes(1, 6), max_size=3))))
    places, wavelength = draw(positions(shape)), draw(wavelengths())
    arguments = {
        "positions": places,
        "d_model": draw(sizes(1, 300)),
        "max_wavelength": wavelength,
        "layout": draw(layouts()),
        "dtype": draw(st.sampled_from([*FLOATS, None])),
    }
    change = draw(seldom(_bad_encodings(), st.just({})))
    unknown = draw(st.booleans())
    return draw(ways()), arguments, change, unknown


def _bad_encodings():
    far = [2**31, -(2**31) - 1, 2**40, 2.0**31, -3e9, [0.5, 3e9], [3, 2**31]]
    tensors = [
        ops.convert_to_tensor(np.array([1, place]).astype(dtype))
        for place, dtype in ((2.0**31, "float32"), (-3e9, "float32"))
    ]
    if "uint32" not in NO_TENSORS:
        tensors.append(ops.convert_to_tensor(np.array([5, 2**31], "uint32")))
    if "int64" not in NO_TENSORS:
        tensors.append(ops.convert_to_tensor(np.array([5, -(2**40)], "int64")))
    kinds = [True, [1j], "3", None, [[1], [1, 2]], np.array(["a"])]
    kinds += [ops.convert_to_tensor(np.array([True, False]))]
    return bad(
        positions=far + tensors + kinds,
        d_model=BAD_SIZES,
        max_wavelength=BAD_WAVELENGTHS,
        layout=BAD_LAYOUTS,
        dtype=["int32", "float8_e4m3fn", "complex64"],
    )


@generated(encodings(), share=2)
def test_sinusoidal_encoding(case):
    way, arguments, change, unknown = case
    places, given = arguments["positions"].places, arguments["positions"].given
    arguments = {**arguments, "positions": given, **change}
    given = arguments.pop("positions")
    is_tensor = ops.is_tensor(given)

    tensors, plain = (
        ({"positions": given}, {}) if is_tensor else ({}, {"positions": given})
    )

    def encode(**tensors):
        return keras_pe.sinusoidal_encoding(**tensors, **plain, **arguments)

    axes = range(len(given.shape)) if is_tensor and unknown else ()
    result = outcome(
        way, change, lambda: call(way, encode, tensors, {"positions": axes})
    )
    if change:
        if result is not None:
            # The other position is right, and this one has no row.
            assert np.isnan(to_numpy(result)[1]).all()
        return REFUSED
    dtype = dtype_of(arguments["dtype"] or keras.config.floatx())
    assert keras_dtype(result.dtype) == dtype
    assert tuple(result.shape) == (*places.shape, arguments["d_model"])
    flat, rows = places.ravel(), to_numpy(result)
    steps = sampled(len(flat))
    rows = rows.reshape(len(flat), arguments["d_model"])
    expected = rows_at(
        flat[steps],
        arguments["d_model"],
        max_wavelength=arguments["max_wavelength"],
        layout=arguments["layout"],
    )
    error = error_of_rows(flat[steps], dtype, arguments["max_wavelength"])
    if "16" in dtype:
        error = error + UNIT[dtype] * np.abs(expected) + LEAST.get(dtype, 0)
    assert_near(rows[steps], expected, error)
    assert (np.isnan(rows) == ~np.isfinite(flat)[:, None]).all()
    return compared(rows)


# Positions of a mask, and of segments.


@st.composite
def grids(draw):
    """Numbers `(batch, time)` of few kinds, as any argument, and as an array."""
    shape = draw(emptied((draw(sizes(1, 8)), draw(lengths()))))
    form = draw(st.sampled_from(["array", "tensor", "list"]))
    allowed = NO_TENSORS if form == "tensor" else ()
    names = ["bool", *INTEGERS, *FLOATS]
    name = draw(st.sampled_from([name for name in names if name not in allowed]))
    if name in INTEGERS:
        info = np.iinfo(name)
        elements = st.integers(0, 3) | st.integers(int(info.min), int(info.max))
    elif name == "bool":
        elements = st.booleans()
    else:
        special = st.sampled_from([0.0, math.nan, math.inf, 2.0**-14, -0.0])
        elements = st.integers(-2, 2).map(float) | special | st.floats(-9, 9, width=16)
    pool = draw(st.lists(elements, min_size=2, max_size=4))
    array = np.array(pool, dtype_called(name))
    random = np.random.default_rng(draw(st.integers(0, 999)))
    chosen = random.integers(0, len(pool), shape)
    # In runs, as packed rows and padding are, or in any order.
    array = array[np.sort(chosen, axis=1) if draw(st.booleans()) else chosen]
    given = array
    if form == "list" and array.size:
        given = (array if name in INTEGERS else exact(array)).tolist()
    elif form == "tensor":
        given = ops.convert_to_tensor(array, name)
    return given, array


BAD_GRIDS = [None, "a", [["a"]], [1, 0], [[[1]]], [[1j]], [[1], [1, 2]], 1, {}]


@st.composite
def numberings(draw, length=False):
    given, array = draw(grids())
    most, arguments, is_refused = array.shape[1], {}, False
    defects = ["grid", *["length"] * length]
    defect = draw(seldom(st.sampled_from(defects), st.none()))
    if length and most and draw(st.booleans()):
        kind = draw(st.sampled_from([int, np.int8, np.int64]))
        arguments["length"] = kind(draw(st.integers(1, min(most, 127))))
    way, unknown = draw(ways()), draw(st.booleans())
    if defect == "grid":
        given, is_refused = draw(st.sampled_from(BAD_GRIDS)), True
    if defect == "length":
        wrong = [0, -1, True, 2.5, "1", [1], most + 1]
        arguments["length"] = draw(st.sampled_from(wrong))
        # What is beyond the mask only where that is known: else all of it comes.
        is_beyond = arguments["length"] == most + 1 and type(most) is int
        traced = way in ("graph", "xla") and unknown and ops.is_tensor(given)
        is_refused = not (is_beyond and traced)
    return way, unknown, given, array, arguments, is_refused


def check_numbering(function, expected_of, case):
    way, unknown, given, array, arguments, is_refused = case
    tensors = {"given": given} if ops.is_tensor(given) else {}
    axes = {"given": (0, 1)} if unknown else {}

    def number(**tensors):
        return function(tensors.get("given", given), **arguments)

    # A compiler's check of what is static is never dropped.
    if is_refused and way in COMPILED:
        way = "graph" if way == "xla" else "eager"
    result = outcome(way, is_refused, lambda: call(way, number, tensors, axes))
    if is_refused:
        return REFUSED
    assert keras_dtype(result.dtype) == "int32"
    expected = expected_of(array)
    if "length" in arguments:
        expected = expected[:, -int(arguments["length"]) :]
    np.testing.assert_array_equal(ops.convert_to_numpy(result), expected)
    return compared(expected)


@generated(numberings(length=True), share=3)
def test_positions_from_mask(case):
    return check_numbering(keras_pe.positions_from_mask, steps_of, case)


@generated(numberings(), share=3)
def test_positions_from_segments(case):
    return check_numbering(keras_pe.positions_from_segments, segments_of, case)


# The mathematics.


@st.composite
def shifts(draw):
    # float64 angles, which the promise is of, have 1e-9 left of a turn up to here.
    k = draw(st.integers(-(10**6), 10**6) | st.floats(-1e6, 1e6))
    arguments = {
        "k": k,
        "d_model": 2 * draw(sizes(1, 32)),
        "max_wavelength": draw(wavelengths(1)),
        "layout": draw(layouts()),
    }
    wrong = bad(
        k=[1j, "1", None, [[1], [1, 2]], True, [1, 2]],
        d_model=[*BAD_SIZES, 1, 5],
        max_wavelength=BAD_WAVELENGTHS,
        layout=BAD_LAYOUTS,
    )
    return arguments, draw(st.floats(-1e6, 1e6)), draw(seldom(wrong, st.just({})))


@generated(shifts())
def test_shift_matrix(case):
    arguments, place, change = case
    if change:
        with pytest.raises(ValueError, match=f"`{next(iter(change))}`"):
            analysis.shift_matrix(**{**arguments, **change})
        return REFUSED
    matrix = analysis.shift_matrix(**arguments)
    k, d_model = arguments.pop("k"), arguments.pop("d_model")
    assert matrix.dtype == "float64" and matrix.shape == (d_model, d_model)
    before, after = rows_at(np.array([place, place + k]), d_model, **arguments)
    # What rounding `place + k`, and the angles, leaves.
    assert_near(matrix @ before, after, 2e-9)
    assert_near(matrix @ matrix.T, np.eye(d_model), 1e-12)
    return COMPARED


@st.composite
def offsets(draw):
    shape = draw(emptied(draw(st.lists(sizes(1, 4), max_size=3))))
    base = draw(st.integers(-(10**6), 10**6) | st.floats(-1e6, 1e6))
    k = np.asarray(base) + np.arange(math.prod(shape)).reshape(shape)
    arguments = {
        "k": draw(st.sampled_from([k, k.tolist() if k.size else k])),
        "d_model": 2 * draw(sizes(1, 150)),
        "max_wavelength": draw(wavelengths(1)),
    }
    wrong = bad(
        k=[1j, "1", None, True],
        d_model=[*BAD_SIZES, 1, 5],
        max_wavelength=BAD_WAVELENGTHS,
    )
    return arguments, k, draw(seldom(wrong, st.just({})))


@generated(offsets())
def test_offset_similarity(case):
    arguments, k, change = case
    if change:
        with pytest.raises(ValueError, match=f"`{next(iter(change))}`"):
            analysis.offset_similarity(**{**arguments, **change})
        return REFUSED
    result = analysis.offset_similarity(**arguments)
    d_model, wavelength = arguments["d_model"], arguments["max_wavelength"]
    cosines = rows_at(k, d_model, max_wavelength=wavelength)[..., 1::2]
    assert result.dtype == "float64"
    assert_near(result, cosines.sum(axis=-1), 1e-9 * d_model)
    return compared(result)
