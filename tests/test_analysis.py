"""The mathematics of the encoding: shifts are rotations, products show distance."""

import itertools
import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from oracle import exact_rows, exact_rows_fast, formula_rows

from keras_pe import analysis
from keras_pe.analysis import (
    longest_runs,
    offset_similarity,
    shift_matrix,
    wavelengths,
)

LAYOUTS = ["interleaved", "halves"]
SHIFTS = [0, 1, -1, 0.5, -2.25, 7, 1000, -100000, np.float32(0.25), np.int64(3)]
ODD = r"`d_model` must be even: .* Received: d_model="
BAD_SIZE = r"`d_model` must be an integer of at least 2. Received: d_model="
SIZES = [(3, ODD), (513, ODD), *((bad, BAD_SIZE) for bad in (0, 1, -2, True, 2.5, "8"))]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("max_wavelength", [10000.0, 50.0])
@pytest.mark.parametrize("k", SHIFTS)
@pytest.mark.parametrize("d_model", [2, 4, 10, 64])
def test_a_shift_is_one_matrix_for_every_position(d_model, k, max_wavelength, layout):
    kwargs = {"max_wavelength": max_wavelength, "layout": layout}
    matrix = shift_matrix(k, d_model, **kwargs)
    positions = np.array([0, 1, -5, 17.5, 4096])
    rows = exact_rows(positions, d_model, **kwargs)
    shifted = exact_rows(positions + float(k), d_model, **kwargs)
    error = np.abs(rows @ matrix.T - shifted).max()
    assert matrix.dtype == "float64"
    assert matrix.shape == (d_model, d_model)
    assert error < 1e-9, f"measured {error}"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("k", SHIFTS)
def test_a_shift_is_a_rotation(k, layout):
    matrix = shift_matrix(k, 12, layout=layout)
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(12), atol=1e-14)
    assert np.linalg.det(matrix) == pytest.approx(1, abs=1e-13)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("a", "b"), [(1, 2), (7, -7), (0.5, 0.25), (-300, 12.5)])
def test_shifts_add(a, b, layout):
    product = shift_matrix(a, 8, layout=layout) @ shift_matrix(b, 8, layout=layout)
    np.testing.assert_allclose(
        product, shift_matrix(a + b, 8, layout=layout), atol=1e-12
    )


def test_the_smallest_shift_by_hand():
    sine, cosine = math.sin(1), math.cos(1)
    np.testing.assert_allclose(shift_matrix(1, 2), [[cosine, sine], [-sine, cosine]])
    np.testing.assert_array_equal(shift_matrix(0, 6), np.eye(6))


def test_the_rates_are_those_of_the_recipe_unless_others_are_asked_for():
    wanted = shift_matrix(3, 6, max_wavelength=10000.0, layout="interleaved")
    np.testing.assert_array_equal(shift_matrix(3, 6), wanted)
    wanted = offset_similarity(3, 6, max_wavelength=10000.0)
    np.testing.assert_array_equal(offset_similarity(3, 6), wanted)


@pytest.mark.parametrize(("d_model", "match"), SIZES)
def test_a_size_without_pairs_is_refused(d_model, match):
    with pytest.raises(ValueError, match=match):
        shift_matrix(1, d_model)
    with pytest.raises(ValueError, match=match):
        offset_similarity(1, d_model)
    with pytest.raises(ValueError, match=match):
        wavelengths(d_model)
    with pytest.raises(ValueError, match=match):
        longest_runs(1, d_model)


@pytest.mark.parametrize(
    "k", ["1", None, 1j, True, [True, False], [[1], [1, 2]]], ids=repr
)
def test_a_shift_that_is_no_number_is_refused(k):
    with pytest.raises(ValueError, match=r"`k` must be real. Received: k="):
        shift_matrix(k, 4)
    with pytest.raises(ValueError, match=r"`k` must be real. Received: k="):
        offset_similarity(k, 4)


@pytest.mark.parametrize(
    "k", [[1], [1, 2], np.ones((1, 1)), math.nan, -math.inf], ids=repr
)
def test_a_matrix_is_of_one_finite_shift(k):
    with pytest.raises(
        ValueError, match=r"`k` must be one finite number. Received: k="
    ):
        shift_matrix(k, 4)


@pytest.mark.parametrize("max_wavelength", [10000.0, 1.0, 0.5, 1e-12, 1e-300])
@pytest.mark.parametrize("k", [7, -1000, 0.25, np.int64(2**40 + 1), 1e-10])
def test_short_waves_keep_their_turns(max_wavelength, k):
    positions = [11, 11 + Fraction(k if isinstance(k, float) else int(k))]
    kwargs = {"max_wavelength": max_wavelength}
    rows = exact_rows(positions, 6, **kwargs)
    bound = 1e-12 + (2e-16 * abs(k) if max_wavelength >= 1 else 0)
    shifted = shift_matrix(k, 6, **kwargs) @ rows[0]
    np.testing.assert_allclose(shifted, rows[1], rtol=0, atol=bound)
    product = offset_similarity(k, 6, **kwargs)
    np.testing.assert_allclose(rows[0] @ rows[1], product, rtol=0, atol=bound)


def test_wavelengths_count_whole_turns_too():
    found = wavelengths(6, max_wavelength=1e-12)
    np.testing.assert_allclose(found, 2 * math.pi * np.array([1, 1e-4, 1e-8]))


def test_nowhere_is_nan():
    offsets = np.array([[np.nan, 1.0], [np.inf, -np.inf]])
    for max_wavelength in (1.0, 0.5):
        with np.errstate(invalid="ignore"):
            products = offset_similarity(offsets, 4, max_wavelength=max_wavelength)
        assert np.isnan(products).tolist() == [[True, False], [True, True]]
    assert offset_similarity(np.zeros((2, 0)), 4, max_wavelength=0.5).shape == (2, 0)


@pytest.mark.parametrize("kind", ["bfloat16", "float16", "int8", "uint64", "float64"])
def test_k_may_be_of_any_real_dtype(kind):
    k = np.array([1, 2]).astype(getattr(ml_dtypes, kind, kind))
    np.testing.assert_array_equal(offset_similarity(k, 4), offset_similarity([1, 2], 4))
    np.testing.assert_array_equal(shift_matrix(k[1], 4), shift_matrix(2, 4))


@pytest.mark.parametrize("max_wavelength", [0, -1.0, math.inf, math.nan, "1", True])
@pytest.mark.parametrize("function", [shift_matrix, offset_similarity, longest_runs])
def test_a_bad_wavelength_is_refused(function, max_wavelength):
    match = "`max_wavelength` .* above 0. Received: max_wavelength="
    with pytest.raises(ValueError, match=match):
        function(1, 4, max_wavelength=max_wavelength)
    with pytest.raises(ValueError, match=match):
        wavelengths(4, max_wavelength=max_wavelength)


@pytest.mark.parametrize("layout", ["sines", None, ["halves"]], ids=repr)
def test_an_unknown_layout_is_refused(layout):
    with pytest.raises(
        ValueError, match=r"`layout` .*'interleaved', 'halves'.*layout="
    ):
        shift_matrix(1, 4, layout=layout)


@pytest.mark.parametrize("max_wavelength", [10000.0, 50.0])
@pytest.mark.parametrize("d_model", [2, 6, 64])
@pytest.mark.parametrize("position", [0, 3, -40.5, 100000])
def test_similarity_is_the_product_of_two_rows(position, d_model, max_wavelength):
    offsets = np.array([0, 1, -1, 0.5, 30, -2000])
    kwargs = {"max_wavelength": max_wavelength}
    (row,) = exact_rows([position], d_model, **kwargs)
    products = exact_rows(position + offsets, d_model, **kwargs) @ row
    error = np.abs(offset_similarity(offsets, d_model, **kwargs) - products).max()
    assert error < 1e-10, f"measured {error}"


@pytest.mark.parametrize("d_model", [2, 6, 512])
def test_similarity_is_largest_at_zero_and_symmetric(d_model):
    offsets = np.arange(1, 200)
    ahead, behind = (offset_similarity(k, d_model) for k in (offsets, -offsets))
    assert offset_similarity(0, d_model) == d_model / 2
    assert ahead.max() < d_model / 2
    np.testing.assert_array_equal(ahead, behind)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,), (2, 1, 0)])
@pytest.mark.parametrize("dtype", ["int8", "uint16", "float16", "float64"])
def test_similarity_has_the_shape_of_its_offsets(shape, dtype):
    offsets = np.full(shape, 3, dtype)
    similarity = offset_similarity(offsets, 4)
    assert np.shape(similarity) == shape
    assert similarity.dtype == "float64"
    wanted = math.cos(3) + math.cos(0.03)
    np.testing.assert_allclose(similarity, np.full(shape, wanted), rtol=1e-15)


def test_similarity_of_a_list_by_the_formula():
    first, second = formula_rows([2, 7], 4)
    assert offset_similarity([5], 4) == pytest.approx([first @ second], abs=1e-14)


def test_wavelengths_by_hand():
    assert wavelengths(2) == pytest.approx([math.tau])
    wanted = [math.tau, math.tau * 10, math.tau * 100, math.tau * 1000]
    np.testing.assert_allclose(wavelengths(8), wanted, rtol=1e-15)
    wanted = [math.tau, math.tau / 2]
    np.testing.assert_allclose(wavelengths(4, max_wavelength=0.25), wanted, rtol=1e-15)
    assert wavelengths(8).dtype == "float64"


@pytest.mark.parametrize("length", [2, 7, 40, 300])
def test_a_pair_repeats_where_its_wavelength_is_below_the_length(length):
    """Then some positions are closer on its circle than neighbours are, else none."""
    turns = wavelengths(24, max_wavelength=100.0)
    rows = exact_rows(range(length), 24, max_wavelength=100.0).reshape(length, -1, 2)
    for pair, turn in enumerate(turns):
        points = rows[:, pair]
        gaps = np.linalg.norm(points[:, None] - points, axis=-1)
        first, second = np.triu_indices(length, 2)
        step = gaps[0, 1]
        closest = gaps[first, second].min(initial=math.inf)
        assert (closest < step * (1 - 1e-9)) == (turn < length)


DTYPES = {
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
    "float32": np.float32,
    "float64": np.float64,
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("max_wavelength", [0.5, 10000.0, 1e9])
@pytest.mark.parametrize("length", [1, 2, 50, 3000])
def test_runs_are_those_of_rows_rounded_to_the_dtype(length, max_wavelength, dtype):
    rows = exact_rows_fast(range(length), 30, max_wavelength=max_wavelength)
    # ml_dtypes itself rounds float64 to float32 first: rows of float32 are as given.
    pairs = rows.astype("float32" if dtype == "bfloat16" else "float64")
    pairs = pairs.astype(DTYPES[dtype]).astype("float64").reshape(length, -1, 2)
    wanted = [
        max(len([*run]) for _, run in itertools.groupby(map(tuple, pairs[:, pair])))
        for pair in range(15)
    ]
    runs = longest_runs(length, 30, dtype=dtype, max_wavelength=max_wavelength)
    assert runs.tolist() == wanted
    assert runs.dtype.kind == "i"


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_are_rounded_to_the_nearest_of_the_dtype(dtype):
    draw = np.random.default_rng(0)
    # The small ones are among the last of the dtype, which have fewer bits.
    smallest = float(ml_dtypes.finfo(DTYPES[dtype]).smallest_subnormal)
    numbers = [draw.normal(size=1000), draw.integers(-99, 99, 1000) / 2 * smallest]
    # ml_dtypes itself rounds float64 to float32 first.
    numbers = np.concatenate(numbers).astype("float32" if dtype == "bfloat16" else None)
    found = analysis._rounded(numbers.astype("float64"), *analysis.BITS[dtype])
    np.testing.assert_array_equal(found, numbers.astype(DTYPES[dtype]).astype(float))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", [100, 2000])
def test_a_long_pair_without_runs_tells_all_positions_apart(length, dtype):
    runs, turns = longest_runs(length, 64, dtype=dtype), wavelengths(64)
    rows = exact_rows_fast(range(length), 64).astype(DTYPES[dtype])
    for pair in np.flatnonzero((turns >= length) & (runs == 1)):
        points = rows[:, 2 * pair : 2 * pair + 2].astype("float64")
        assert len(np.unique(points, axis=0)) == length


def test_half_types_blur_slow_pairs_and_float32_none():
    kwargs = {"dtype": "bfloat16", "max_wavelength": 10000.0}
    wanted = longest_runs(500, 6, **kwargs)
    np.testing.assert_array_equal(longest_runs(500, 6, dtype="bfloat16"), wanted)
    assert longest_runs(500, 6).tolist() != wanted.tolist()
    assert (longest_runs(10**6, 512) == 1).all()
    assert longest_runs(10**5, 512, dtype="float16").max() > 5
    assert longest_runs(10**5, 512, dtype="bfloat16").max() > 50
    # So slow that the sine never leaves 0, for 0 is nearest: constant.
    runs = longest_runs(1000, 4, dtype="float16", max_wavelength=1e30)
    assert runs.tolist() == [1, 1000]


@pytest.mark.parametrize("length", [0, -1, 2.5, True, "8", None, [3]], ids=repr)
def test_a_length_that_is_none_is_refused(length):
    match = r"`length` must be an integer of at least 1. Received: length="
    with pytest.raises(ValueError, match=match):
        longest_runs(length, 4)


def test_a_dtype_of_numpy_is_taken_by_its_name():
    runs = longest_runs(20000, 64, dtype=np.dtype("float16"))
    wanted = longest_runs(20000, 64, dtype="float16")
    np.testing.assert_array_equal(runs, wanted)
    assert runs.max() > 1


@pytest.mark.parametrize("dtype", ["int8", None, "half", ["float16"]], ids=repr)
def test_a_dtype_that_is_no_float_is_refused(dtype):
    match = r"`dtype` must be one of float16, .* Received: dtype="
    with pytest.raises(ValueError, match=match):
        longest_runs(4, 4, dtype=dtype)
