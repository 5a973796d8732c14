"""The mathematics of the encoding: shifts are rotations, products show distance."""

import numpy as np

from keras_pe.checks import check_layout, check_real, check_size, check_wavelength
from keras_pe.rates import exact_angles
from keras_pe.recipe import angles, channel_order


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
        k: Real number: the shift, in steps; also negative and fractional.
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
    if angle.ndim != 1:
        raise ValueError(f"`k` must be one number. Received: k={k!r}")
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


def _pair_angles(k, d_model, max_wavelength):
    """Return `k.shape + (d_model / 2,)`: `k` times the rate of each pair."""
    d_model = check_size("d_model", d_model, minimum=2)
    if d_model % 2:
        raise ValueError(
            "`d_model` must be even: its last sine has no cosine to turn with. "
            f"Received: d_model={d_model}"
        )
    offsets = check_real("k", k)
    wavelength = check_wavelength(max_wavelength)
    channels = np.arange(0, d_model, 2)
    if wavelength >= 1:
        return angles(offsets[..., None], channels, d_model, wavelength)
    offsets = offsets if offsets.dtype.kind in "iu" else offsets.astype("float64")
    return exact_angles(offsets, channels, d_model, wavelength)
