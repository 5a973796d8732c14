"""Rows taken from a table that is made once, on the host."""

import functools

import keras
import numpy as np
from keras import ops

from keras_pe.checks import constant, on_the_host, tensorflow_mode
from keras_pe.turns import precision_of

LARGEST_CONSTANT = 4 * 2**20  # in bytes: what a graph is given to hold unasked
LARGEST_TABLE = 2**28  # in bytes: what is kept for the next call


def run_of_table(start, length, encoding, dtype):
    """Return the rows of a run as a tensor `(length, d_model)`.

    Args:
        start, length: Python ints.
        encoding: `Sinusoids` or `Rotations`, whose table it is.
        dtype: Of the rows.
    """
    arguments = start, length, encoding, dtype
    if length * row_size(encoding, dtype) > LARGEST_TABLE:
        return constant(_run_table(*arguments))
    if tensorflow_mode() == "eager":
        return _shared_tensor(_run_table, *arguments)
    return constant(_array(_run_table, *arguments))


def row_size(encoding, dtype):
    """Return the bytes of a row as it is made, before it is rounded to a half type."""
    return np.dtype(precision_of(dtype)).itemsize * encoding.d_model


def rows_of_table(rows, max_length, encoding, dtype):
    """Return `rows` of the table of `max_length` rows, where they are valid, else NaN.

    Args:
        rows: `Rows`, without a fraction.
        max_length: Python int.
        encoding, dtype: As for `run_of_table`.
    """
    table = _shared(_bounded_table, max_length, encoding, dtype)
    start, length = rows.whole, rows.length
    if isinstance(start, int) and isinstance(length, int):
        return constant(table[start : start + length])
    if isinstance(start, int) and tensorflow_mode():
        # At the end the slice stops, and fits no input but by the row of NaN.
        return constant(table)[start : start + length]
    rows = rows.spread()
    index = ops.where(rows.valid, rows.whole, max_length)
    return ops.take(table, index, axis=0)


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


@on_the_host
@functools.lru_cache(maxsize=8)
def _array(make, *arguments):
    return make(*arguments)


@on_the_host
def _run_table(start, length, encoding, dtype):
    """Return the rows of a run, as NumPy."""
    table = encoding.table(np.arange(start, start + length))
    return table.astype(precision_of(dtype)).astype(dtype)


def _bounded_table(max_length, encoding, dtype):
    """Return rows 0 to `max_length - 1`, and a row of NaN, as NumPy."""
    table = _run_table(0, max_length, encoding, dtype)
    return np.concatenate([table, np.full_like(table[:1], np.nan)])
