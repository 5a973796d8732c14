"""The sine/cosine encoding as a function of positions."""

import keras
from keras import ops

from keras_pe.arguments import standardize_positions
from keras_pe.checks import (
    check_float_dtype,
    check_layout,
    check_size,
    check_wavelength,
)
from keras_pe.legacy import refuse_keras_2
from keras_pe.rates import sinusoid_turns
from keras_pe.rows import rows_of_positions
from keras_pe.turns import rows_at


def sinusoidal_encoding(
    positions, d_model, *, max_wavelength=10000.0, layout="interleaved", dtype=None
):
    """Return the sine/cosine encoding of any positions.

    The rows that `PositionalEncoding` adds, alone: for positions that are neither a
    run nor integers, for diffusion steps, for a look at them. No weights, no limit.

    `row[2i] = sin(p / max_wavelength ** (2i / d_model))`, and `row[2i + 1]` is the
    cosine of the same angle (layout "interleaved").

    >>> import numpy as np
    >>> np.array(sinusoidal_encoding([1, 0.5], 4)).round(3)
    array([[0.841, 0.54 , 0.01 , 1.   ],
           [0.479, 0.878, 0.005, 1.   ]], dtype=float32)

    Args:
        positions: Int or float tensor, array or list of any shape, in steps; also
            negative and fractional. May be a `KerasTensor`. Integers keep every bit;
            floats are read in their own precision (at least float32), which on JAX
            is float32. No gradient flows to them.
        d_model: Integer of at least 1: the number of channels.
        max_wavelength: Real number above 0: the slowest channels come close to a
            period of `2 * pi * max_wavelength` steps.
        layout: "interleaved" (sin, cos, sin, cos: the paper) or "halves" (all
            sines, then all cosines: the same rates in another order).
        dtype: Float dtype of the result, or None for `keras.config.floatx()`.

    Returns:
        Tensor of shape `positions.shape + (d_model,)`. Within 3e-7 in float32 for
        integers below 2**30 in size (1e-6 up to 2**31 - 1); float16 and bfloat16 are
        that, rounded once; float64 within 1e-9 up to 10**6 (not on JAX, which has
        none by default). NaN and infinite positions give rows of NaN.

    Raises:
        ValueError: for an argument not as above, and for positions that int32 does
            not hold. In a TensorFlow graph the last is an `InvalidArgumentError`;
            under a compiler those rows are NaN.

    References:
        Vaswani et al., 2017, "Attention Is All You Need", section 3.5.
    """
    # Said now, so that a saved model does not depend on the setting of a later day.
    try:
        dtype = keras.backend.standardize_dtype(dtype)
    except (TypeError, ValueError):
        check_float_dtype("dtype", dtype)
    encoding = SinusoidalEncoding(d_model, max_wavelength, layout, dtype)
    refuse_keras_2("sinusoidal_encoding", positions)
    return encoding(standardize_positions("sinusoidal_encoding", positions))


@keras.saving.register_keras_serializable(package="keras_pe")
class SinusoidalEncoding(keras.Operation):
    """`sinusoidal_encoding` as an operation, so that a functional model can hold it."""

    def __init__(self, d_model, max_wavelength, layout, dtype, name=None):
        super().__init__(name=name)
        self.d_model = check_size("d_model", d_model)
        self.max_wavelength = check_wavelength(max_wavelength)
        self.layout = check_layout(layout)
        self.dtype = check_float_dtype("dtype", dtype)

    def call(self, positions):
        positions = ops.convert_to_tensor(positions)
        rows = rows_of_positions("sinusoidal_encoding", positions)
        turns = sinusoid_turns(self.d_model, self.max_wavelength, self.layout)
        return ops.cast(rows_at(rows, turns, self.dtype), self.dtype)

    def compute_output_spec(self, positions):
        return keras.KerasTensor((*positions.shape, self.d_model), self.dtype)
