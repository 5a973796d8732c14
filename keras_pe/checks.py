"""Checks of plain Python arguments, shared by every public name."""

import inspect
import math
import numbers
import operator

import keras
import numpy as np
from keras import ops

FLOATS = ("float16", "bfloat16", "float32", "float64")
LAYOUTS = ("interleaved", "halves")


def check_size(name, value, minimum=1, maximum=math.inf):
    """Return `value` as a Python int within these bounds, or raise ValueError."""
    try:
        size = None if _is_bool(value) else operator.index(value)
    except (TypeError, AttributeError):  # TensorFlow's tensors raise the latter
        size = None
    if size is None or not minimum <= size <= maximum:
        limit = "" if maximum == math.inf else f" and at most {maximum}"
        raise ValueError(
            f"`{name}` must be an integer of at least {minimum}{limit}. "
            f"Received: {name}={value!r}"
        )
    return size


def check_wavelength(value):
    """Return `max_wavelength` as a Python float, or raise ValueError."""
    if isinstance(value, numbers.Real) and not _is_bool(value):
        try:
            wavelength = float(value)
        except OverflowError:  # an integer of more than 308 digits
            wavelength = math.inf
        if math.isfinite(wavelength) and wavelength > 0:
            return wavelength
    raise ValueError(
        "`max_wavelength` must be a finite real number above 0. "
        f"Received: max_wavelength={value!r}"
    )


def check_real(name, value):
    """Return real numbers as an array, or raise ValueError."""
    try:
        array = np.asarray(value)
    except ValueError:  # rows of several lengths
        array = np.asarray(None)
    kind = dtype_name(array)
    if "int" not in kind and "float" not in kind and array.dtype.kind != "f":
        raise ValueError(f"`{name}` must be real. Received: {name}={value!r}")
    return array


def check_layout(value):
    """Return `layout` if it is one of `LAYOUTS`, or raise ValueError."""
    if not isinstance(value, str) or value not in LAYOUTS:
        raise ValueError(
            f"`layout` must be one of {', '.join(map(repr, LAYOUTS))}. "
            f"Received: layout={value!r}"
        )
    return str(value)


def check_initializer(value, others=""):
    """Return an initializer of Keras, or raise ValueError that names `others` too."""
    found = None
    # Of an array Keras makes a function, which no file can hold.
    if isinstance(value, (str, dict)) or callable(value):
        try:
            found = keras.initializers.get(value)
        except (TypeError, ValueError) as error:
            found = error
    # Keras takes anything that can be called, also a layer.
    if not (isinstance(found, keras.Initializer) or inspect.isfunction(found)):
        raise ValueError(
            f"`initializer` must be {others}an initializer of Keras, as its name, "
            "config or object; a table is for `set_weights`. "
            f"Received: initializer={value!r}"
        )
    return found


def _is_bool(value):
    # NumPy's bools and tensors of bool too answer to `__index__` or to `float`.
    bools = hasattr(value, "dtype") and dtype_name(value) == "bool"
    return bools or isinstance(value, bool)


def check_float_dtype(name, value):
    """Return the name of a dtype if it is a float's, or raise ValueError."""
    if value not in FLOATS:
        raise ValueError(
            f"`{name}` must be one of {', '.join(FLOATS)}. Received: {name}={value!r}"
        )
    # NumPy's and TensorFlow's dtypes are equal to their names, but are no strings.
    return FLOATS[FLOATS.index(value)]


def dtype_name(tensor):
    """Return the name of the dtype of anything with one, such as "float32"."""
    dtype = tensor.dtype
    return getattr(dtype, "name", str(dtype).removeprefix("torch."))


def comparable(integers):
    """Return a tensor of integers as one that the backend compares."""
    if keras.config.backend() == "torch" and dtype_name(integers).startswith("uint"):
        # What int64 does not hold becomes negative.
        return ops.cast(integers, "int64")
    return integers


def constant(array):
    """Return a tensor of a NumPy array, of the array's dtype."""
    # Unasked, Keras on JAX makes integers float where floatx is bfloat16. But JAX has
    # no float64 unless it is asked to, and warns where that is asked for by name.
    dtype = dtype_name(array)
    return ops.convert_to_tensor(array, None if dtype == "float64" else dtype)


def tensorflow_mode():
    """Return "eager" or "graph", or None on another backend."""
    if keras.config.backend() != "tensorflow":
        return None
    import tensorflow as tf

    return "eager" if tf.executing_eagerly() else "graph"


def on_the_host(make):
    """Return `make`, which makes what layers are given, as no part of a graph.

    `torch.compile` looks into it, past a memory that it has, and makes float32 of what
    NumPy has in float64, or fails among its decimals.
    """
    if keras.config.backend() != "torch":
        return make
    import torch

    disabled = torch.compiler.disable(make)
    if hasattr(make, "cache_info"):
        disabled.cache_info, disabled.cache_clear = make.cache_info, make.cache_clear
    return disabled


def has_rank(tensor):
    """Return whether the rank is known: TensorFlow has graphs where it is not."""
    return getattr(tensor.shape, "rank", 0) is not None


def is_plain(value):
    """Return whether `value` is no tensor of the backend, known or to come."""
    symbols = keras.KerasTensor, keras.Variable
    return not (ops.is_tensor(value) or isinstance(value, symbols))


def is_dense(tensor):
    """Return whether `tensor` is neither ragged nor sparse, on any backend."""
    if isinstance(tensor, keras.KerasTensor):
        return not (tensor.sparse or getattr(tensor, "ragged", False))
    # TensorFlow's ragged, sparse and sliced tensors; JAX's BCOO; torch's sparse ones.
    marks = ("row_splits", "dense_shape", "todense")
    if any(hasattr(tensor, mark) for mark in marks):
        return False
    return not (hasattr(tensor, "to_dense") and "strided" not in str(tensor.layout))
