"""Rows of sines and cosines, each made in the way that suits it."""

from typing import NamedTuple

import numpy as np
from keras import ops

from keras_pe.rates import sinusoid_turns, turns_of_rates
from keras_pe.recipe import sinusoids
from keras_pe.tables import (
    LARGEST_CONSTANT,
    LARGEST_TABLE,
    row_size,
    rows_of_table,
    run_of_table,
)
from keras_pe.turns import rows_at, rows_from


class Sinusoids(NamedTuple):
    """The channels of the sine/cosine encoding, its arguments standardized."""

    d_model: int
    max_wavelength: float
    layout: str

    @property
    def has_table(self):
        # The float64 angles of the recipe lose their turns under shorter waves.
        return self.max_wavelength >= 1

    def table(self, positions):
        """Return float64 `(time, d_model)`, the recipe's rows."""
        return sinusoids(positions, *self)

    def turns(self):
        return sinusoid_turns(*self)


class Rotations(NamedTuple):
    """The sines of all rates, then their cosines."""

    rates: tuple  # of floats, radians a step, at most 1

    @property
    def d_model(self):
        return 2 * len(self.rates)

    has_table = True

    def table(self, positions):
        """Return float64 `(time, d_model)`."""
        angles = positions[:, np.newaxis] * self.rates
        return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)

    def turns(self):
        return turns_of_rates(self.rates)


def sinusoid_rows(rows, encoding, dtype, max_length=None):
    """Return `rows` of an encoding in `dtype`, rounded to it once.

    Args:
        rows: `Rows`.
        encoding: `Sinusoids` or `Rotations`.
        dtype: Of the rows.
        max_length: None, or the number of positions that there are: then rows are
            taken from the table of that many.

    Returns:
        A tensor `(time, d_model)`, or with a batch before.
    """
    known = isinstance(rows.whole, int) and isinstance(rows.length, int)
    if encoding.has_table and rows.fraction is None:
        bounded = max_length is not None
        row = row_size(encoding, dtype)
        # Beyond that, rows are made as without a `max_length`.
        if bounded and row * max_length <= LARGEST_TABLE:
            return rows_of_table(rows, max_length, encoding, dtype)
        if known and (bounded or row * rows.length <= LARGEST_CONSTANT):
            return run_of_table(rows.whole, rows.length, encoding, dtype)
    make = rows_at if rows.length is None else rows_from
    return ops.cast(make(rows, encoding.turns(), dtype), dtype)
