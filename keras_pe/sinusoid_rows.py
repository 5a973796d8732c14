"""The rows of the sine/cosine encoding, each made in the way that suits it."""

import numpy as np
from keras import ops

from keras_pe.rates import sinusoid_turns
from keras_pe.tables import LARGEST_CONSTANT, rows_of_table, run_of_table
from keras_pe.turns import precision_of, rows_at, rows_from

# In bytes: what `max_length` may ask for before its rows are made as without it.
_LARGEST_TABLE = 2**28


def sinusoid_rows(rows, d_model, max_length, max_wavelength, layout, dtype):
    """Return `rows` of the encoding in `dtype`, rounded to it once.

    Args:
        rows: `Rows`.
        d_model: Python int, the number of channels.
        max_length: None, or the number of positions that there are: then rows are
            taken from the recipe's table of that many.
        max_wavelength, layout, dtype: Of the encoding, standardized.

    Returns:
        A tensor `(time, d_model)`, or with a batch before.
    """
    arguments = d_model, max_wavelength, layout
    known = isinstance(rows.whole, int) and isinstance(rows.length, int)
    # The float64 angles of the recipe lose their turns under shorter waves.
    if max_wavelength >= 1 and rows.fraction is None:
        bounded = max_length is not None
        row = np.dtype(precision_of(dtype)).itemsize * d_model
        if bounded and row * max_length <= _LARGEST_TABLE:
            return rows_of_table(rows, max_length, *arguments, dtype)
        if known and (bounded or row * rows.length <= LARGEST_CONSTANT):
            return run_of_table(rows.whole, rows.length, *arguments, dtype)
    make = rows_at if rows.length is None else rows_from
    turns = sinusoid_turns(*arguments)
    return ops.cast(make(rows, turns, precision_of(dtype)), dtype)
