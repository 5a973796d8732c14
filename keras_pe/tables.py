"""Rows taken from the recipe's table, which is made once."""

import functools

import keras
import numpy as np
from keras import ops

from keras_pe.checks import constant, tensorflow_mode
from keras_pe.recipe import sinusoids
from keras_pe.turns import precision_of

LARGEST_CONSTANT = 4 * 2**20  # in bytes: what a graph is given to hold unasked


def run_of_table(start, length, *encoding):
    """Return the rows of a run as a tensor `(length, d_model)`.

    Args:
        start, length: Python ints.
        *encoding: `d_model`, `max_wavelength`, `layout` and the dtype of the rows.
    """
    if tensorflow_mode() == "eager":
        return _shared_tensor(_run_table, start, length, *encoding)
    return constant(_array(_run_table, start, length, *encoding))


def rows_of_table(rows, max_length, *encoding):
    """Return `rows` of the table of `max_length` rows, where they are valid, else NaN.

    Args:
        rows: `Rows`, without a fraction.
        max_length: Python int.
        *encoding: As for `run_of_table`.
    """
    table = _shared(_bounded_table, max_length, *encoding)
    start, length = rows.whole, rows.length
    if isinstance(start, int) and isinstance(length, int):
        return constant(table[start : start + length])
    if isinstance(start, int) and tensorflow_mode():
        # At the end the slice stops, and fits no input but by the row of NaN.
        return constant(table)[start : start + length]
    rows = rows.spread()
    index = ops.where(rows.valid, rows.whole, max_length)
    return ops.take(constant(table), index, axis=0)


def _shared(make, *arguments):
    """Return a table that calls share: a tensor on TensorFlow, else an array.

    A TensorFlow function takes the tensor in as it does a variable. As a constant of
    its graph, a large table would be copied ten times over at the first call, and be
    written anew for every endpoint of a SavedModel. A small one is an array there, and
    so a constant: an ONNX file asks whoever runs it for what a function takes in.
    """
    if keras.config.backend() == "tensorflow":
        import tensorflow as tf

        in_graph = not tf.executing_eagerly()
        with tf.init_scope():
            if tf.executing_eagerly():  # and not in a graph of TensorFlow 1
                table = _shared_tensor(make, *arguments)
                size = table.shape.num_elements() * table.dtype.size
                if not (in_graph and size <= LARGEST_CONSTANT):
                    return table
    return _array(make, *arguments)


@functools.lru_cache(maxsize=8)
def _shared_tensor(make, *arguments):
    # Each eager call would copy the array, which takes longer than to add it.
    return constant(make(*arguments))


@functools.lru_cache(maxsize=8)
def _array(make, *arguments):
    return make(*arguments)


def _run_table(start, length, d_model, max_wavelength, layout, dtype):
    """Return the recipe's rows of a run, as NumPy."""
    rows = sinusoids(np.arange(start, start + length), d_model, max_wavelength, layout)
    return rows.astype(precision_of(dtype)).astype(dtype)


def _bounded_table(max_length, *encoding):
    """Return the recipe's rows 0 to `max_length - 1`, and a row of NaN, as NumPy."""
    table = _run_table(0, max_length, *encoding)
    return np.concatenate([table, np.full_like(table[:1], np.nan)])
