"""Rows taken from the recipe's table, which is a constant where a graph is traced."""

import functools

import numpy as np
from keras import ops

from keras_pe.checks import constant, tensorflow_mode
from keras_pe.recipe import sinusoids
from keras_pe.turns import precision_of


def run_of_table(start, length, *encoding):
    """Return the rows of a run as a tensor `(length, d_model)`.

    Args:
        start, length: Python ints.
        *encoding: `d_model`, `max_wavelength`, `layout` and the dtype of the rows.
    """
    return _tensor(_run_table, start, length, *encoding)


def rows_of_table(rows, max_length, *encoding):
    """Return `rows` of the table of `max_length` rows, where they are valid, else NaN.

    Args:
        rows: `Rows`, without a fraction.
        max_length: Python int.
        *encoding: As for `run_of_table`.
    """
    start, length = rows.whole, rows.length
    if isinstance(start, int):
        stop = start + length
        if isinstance(stop, int) and tensorflow_mode() != "eager":
            return constant(_bounded_table(max_length, *encoding)[start:stop])
        # At the end the slice stops, and fits no input but by the row of NaN.
        return _tensor(_bounded_table, max_length, *encoding)[start:stop]
    rows = rows.spread()
    index = ops.where(rows.valid, rows.whole, max_length)
    return ops.take(_tensor(_bounded_table, max_length, *encoding), index, axis=0)


def _tensor(make, *arguments):
    if tensorflow_mode() == "eager":
        return _shared_tensor(make, *arguments)
    return constant(make(*arguments))


@functools.lru_cache(maxsize=8)
def _shared_tensor(make, *arguments):
    """Return a table as the tensor that eager calls share: to copy it takes longest."""
    return constant(make(*arguments))


@functools.lru_cache(maxsize=16)
def _run_table(start, length, *encoding):
    """Return the recipe's rows of a run, as NumPy."""
    return _recipe_rows(np.arange(start, start + length), *encoding)


@functools.lru_cache(maxsize=8)
def _bounded_table(max_length, *encoding):
    """Return the recipe's rows 0 to `max_length - 1`, and a row of NaN, as NumPy."""
    table = _recipe_rows(np.arange(max_length), *encoding)
    return np.concatenate([table, np.full_like(table[:1], np.nan)])


def _recipe_rows(positions, d_model, max_wavelength, layout, dtype):
    rows = sinusoids(positions, d_model, max_wavelength, layout)
    return rows.astype(precision_of(dtype)).astype(dtype)
