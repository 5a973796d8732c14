"""The mathematics of the encoding: shifts are rotations, products show distance."""

import numpy as np

from keras_pe.checks import (
    check_float_dtype,
    check_layout,
    check_real,
    check_size,
    check_wavelength,
)
from keras_pe.rates import exact_angles
from keras_pe.recipe import angles, channel_order

# Of each dtype the bits of a number, and the exponent from which on there are fewer.
BITS = {
    "float16": (11, -13),
    "bfloat16": (8, -125),
    "float32": (24, -125),
    "float64": (53, -1021),
}


def shift_matrix(k, d_model, *, max_wavelength=10000.0, layout="interleaved"):
    """Return the matrix that turns the row of any position p into that of `p + k`.

    The theorem of the shift: with the angle sums, each pair of channels (the sine and
    the cosine of one rate) is rotated by `k` times its rate, whatever p is.
    `PE(p + k) = shift_matrix(k, d_model) @ PE(p)`.

    >>> import numpy as np
    >>> shift_matrix(1, 2).round(4)
    array([[ 0.5403,  0.8415],
           [-0.8415,  0.5403]])

    Args:
        k: Finite real number: the shift, in steps; also negative and fractional.
        d_model: Even integer of at least 2. Where it is odd, the last sine has no
            cosine, and there is no such matrix.
        max_wavelength: Real number above 0, as in `PositionalEncoding`.
        layout: "interleaved" or "halves", as in `PositionalEncoding`.

    Returns:
        float64 array `(d_model, d_model)`.

    Raises:
        ValueError: for an argument that is not as above.
    """
    angle = _pair_angles(k, d_model, max_wavelength)
    if angle.ndim != 1 or not np.isfinite(angle).all():
        raise ValueError(f"`k` must be one finite number. Received: k={k!r}")
    order = channel_order(np.arange(d_model), check_layout(layout))
    matrix = np.zeros((d_model, d_model))
    sines, cosines = np.arange(0, d_model, 2), np.arange(1, d_model, 2)
    matrix[sines, sines] = matrix[cosines, cosines] = np.cos(angle)
    matrix[sines, cosines] = np.sin(angle)
    matrix[cosines, sines] = -np.sin(angle)
    return matrix[np.ix_(order, order)]


def offset_similarity(k, d_model, *, max_wavelength=10000.0):
    """Return the product of two rows that are `k` steps apart.

    `PE(p) . PE(p + k)` does not depend on p: it is the sum of the cosines of `k`
    times each rate. It is largest, `d_model / 2`, at 0, and the same for k and -k.

    >>> import numpy as np
    >>> offset_similarity(np.array([0, 1, -1, 5]), 4).round(4)
    array([2.    , 1.5403, 1.5403, 1.2824])

    Args:
        k: Real array or number: distances, in steps.
        d_model: Even integer of at least 2.
        max_wavelength: Real number above 0, as in `PositionalEncoding`.

    Returns:
        float64, of the shape of `k`.

    Raises:
        ValueError: for an argument that is not as above.
    """
    return np.cos(_pair_angles(k, d_model, max_wavelength)).sum(axis=-1)


def wavelengths(d_model, *, max_wavelength=10000.0):
    """Return how many steps each pair of channels takes for a whole turn.

    `2 * pi * max_wavelength ** (2i / d_model)`. Over `length` positions a pair tells
    any two apart by itself where its wavelength is at least `length`. Where it is
    shorter, the pair repeats: some two positions are closer to each other, on its
    circle, than neighbours are. Where it is many times as long, the pair turns by a
    small part, and is nearly constant.

    >>> wavelengths(8).round(1)
    array([   6.3,   62.8,  628.3, 6283.2])

    Args:
        d_model: Even integer of at least 2.
        max_wavelength: Real number above 0, as in `PositionalEncoding`.

    Returns:
        float64 array `(d_model / 2,)`, in steps.

    Raises:
        ValueError: for an argument that is not as above.
    """
    channels = _first_of_pairs(d_model)
    return 2 * np.pi / angles(1, channels, d_model, check_wavelength(max_wavelength))


def longest_runs(length, d_model, *, dtype="float32", max_wavelength=10000.0):
    """Return how many positions in a row each pair of channels cannot tell apart.

    Each number is rounded once to `dtype`. A slow pair moves by less in a step than
    numbers of a half type are apart, so that some neighbours get the same sine and the
    same cosine. This is the length of the longest such run: 1 where the pair tells all
    neighbours apart, `length` where it is constant. What is added to embeddings larger
    than 1 is rounded more: from 2 to 4 they are 4 times as far apart.

    >>> longest_runs(1000, 8, dtype="bfloat16")
    array([1, 1, 1, 6])
    >>> longest_runs(1000, 8)
    array([1, 1, 1, 1])

    Args:
        length: Integer of at least 1: the positions are 0 to `length - 1`.
        d_model: Even integer of at least 2.
        dtype: "float16", "bfloat16", "float32" or "float64".
        max_wavelength: Real number above 0, as in `PositionalEncoding`.

    Returns:
        Integer array `(d_model / 2,)`, in positions.

    Raises:
        ValueError: for an argument that is not as above.
    """
    length = check_size("length", length)
    bits, least = BITS[check_float_dtype("dtype", dtype)]
    rates = _pair_angles(1, d_model, max_wavelength)
    runs = np.ones(rates.shape, "int64")
    # In a step one of the two numbers moves by this at least. No two numbers that are
    # further apart than those of the dtype are, just below 1, are rounded to the same.
    moves = np.sqrt(2) * np.abs(np.sin(rates / 2))
    for pair in np.flatnonzero(moves <= 2.0**-bits):
        angle = np.arange(length) * rates[pair]
        numbers = _rounded(np.stack([np.sin(angle), np.cos(angle)]), bits, least)
        changes = np.flatnonzero((np.diff(numbers) != 0).any(axis=0))
        runs[pair] = np.diff(np.concatenate([[-1], changes, [length - 1]])).max()
    return runs


def _rounded(numbers, bits, least):
    """Return float64 rounded to the nearest of so many bits, ties to even."""
    exponents = np.maximum(np.frexp(numbers)[1], least)
    return np.ldexp(np.rint(np.ldexp(numbers, bits - exponents)), exponents - bits)


def _pair_angles(k, d_model, max_wavelength):
    """Return `k.shape + (d_model / 2,)`: `k` times the rate of each pair.

    Where rates are above 1, whole turns may be left out.
    """
    channels = _first_of_pairs(d_model)
    offsets = check_real("k", k)
    wavelength = check_wavelength(max_wavelength)
    if wavelength >= 1:
        return angles(offsets[..., None], channels, d_model, wavelength)
    offsets = offsets if offsets.dtype.kind in "iu" else offsets.astype("float64")
    return exact_angles(offsets, channels, d_model, wavelength)


def _first_of_pairs(d_model):
    d_model = check_size("d_model", d_model, minimum=2)
    if d_model % 2:
        raise ValueError(
            "`d_model` must be even: its last sine has no cosine to turn with. "
            f"Received: d_model={d_model}"
        )
    return np.arange(0, d_model, 2)
