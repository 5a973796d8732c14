"""What a call was given, checked as far as it is known before the numbers are.

`standardize` makes plain numbers and arrays safe to hand to any backend and checks
dtypes; `check_call` checks what shapes and a plain `start_index` show. `rows.py` does
the rest.
"""

import numpy as np
from keras import ops

from keras_pe.checks import (
    FLOATS,
    constant,
    dtype_name,
    has_rank,
    is_dense,
    is_plain,
)

_FIRST, _LAST = -(2**31), 2**31 - 1  # the positions that int32 holds
_INTEGERS = ("int", "uint")
_NUMBERS = ("int", "uint", "float", "bfloat")


def standardize(owner, positions, start_index):
    """Return both arguments with no plain number left that a backend could change.

    JAX cuts int64 arrays to int32, and float64 to float32, as Keras converts the
    arguments of a layer. So arrays of whole numbers become int32 tensors here, or an
    error, and a plain `start_index` becomes a Python int. Tensors stay as they are.
    """
    if positions is not None:
        if not (type(start_index) is int and start_index == 0):
            raise ValueError(
                f"{owner} takes `positions` or `start_index`, not both. "
                f"Received: positions={positions}, start_index={start_index}"
            )
        return standardize_positions(owner, positions), start_index
    if not is_plain(start_index):
        _check_kind(owner, "start_index", start_index, _INTEGERS)
        return None, start_index
    start = _as_array(owner, "start_index", start_index, _INTEGERS)
    _check_int32(owner, "start_index", start)
    return None, constant(start.astype("int32")) if start.ndim else int(start)


def standardize_positions(owner, positions, name="positions"):
    """Return `positions` as `standardize` does."""
    if not is_plain(positions):
        _check_kind(owner, name, positions, _NUMBERS)
        return positions
    positions = _as_array(owner, name, positions, _NUMBERS)
    if not np.issubdtype(positions.dtype, np.integer):
        exact = positions.astype("float64")
        if not np.all(np.isfinite(exact) & (exact == np.rint(exact))):
            # Backends have no longer floats, and torch no other order of bytes.
            native = positions.astype(positions.dtype.newbyteorder("="))
            return native if dtype_name(positions) in FLOATS else exact
        positions = exact
    _check_int32(owner, name, positions)
    return constant(positions.astype("int32"))


def check_call(
    owner, batch, time, positions, start_index, max_length, name="positions"
):
    """Raise ValueError for what shapes and a plain `start_index` show."""
    if positions is not None:
        allowed = [{"time": time}, {"batch": batch, "time": time}]
        check_shape(owner, name, positions, allowed)
    elif not isinstance(start_index, int):
        check_shape(owner, "start_index", start_index, [{}, {"batch": batch}])
    else:
        steps = time if isinstance(time, int) else None
        if not run_fits(start_index, steps, max_length):
            parts = received_run(owner, start_index, steps, max_length)()
            raise ValueError("".join(map(str, parts)))


def run_fits(start, length, max_length):
    """Return whether all steps of a run are positions. Nothing here overflows.

    Where the length is None, unknown, only the first step counts.
    """
    first, last = limits(max_length)
    if isinstance(length, int):
        last = last - max(length - 1, 0)
    elif length is not None:
        last = last - ops.maximum(length - 1, 0)
    return (start >= first) & (start <= last)


def sizes_fit(shape, wanted):
    """Return whether `shape` is as `wanted`, `{"batch": 2, "time": 5}`, or 1 for 2."""
    fits = True
    for size, (axis, other) in zip(shape, wanted.items(), strict=True):
        if size is not None and other is not None:
            fit = size == other
            fits = fits & ((size == 1) | fit if axis == "batch" else fit)
    return fits


def limits(max_length):
    """Return the first and the last position that there are."""
    return (_FIRST, _LAST) if max_length is None else (0, max_length - 1)


def allowed_positions(owner, max_length):
    """Return how a message starts about a position that there is not."""
    first, last = limits(max_length)
    limit = "" if max_length is None else f" (`max_length={max_length}`)"
    return f"{owner} takes positions {first} to {last}{limit}. Received: "


def received_run(owner, start, length, max_length):
    """Return a function that gives the message about a run, in parts."""

    def parts():
        allowed, steps = allowed_positions(owner, max_length), " steps from position "
        if length is None:
            return [allowed, f"steps from position {start}"]
        if isinstance(start, int) or len(start.shape) == 0:
            return [allowed, length, steps, start]
        return [allowed, length, steps, ops.min(start), " to ", ops.max(start)]

    return parts


def _as_array(owner, name, value, kinds):
    try:
        array = np.asarray(value)
    except (NotImplementedError, TypeError, ValueError) as error:
        # Rows of several lengths, or tensors in a list while a graph is traced.
        raise ValueError(
            f"{owner}: `{name}` must be an array, or one tensor. "
            f"Received: {name}={value!r}"
        ) from error
    _check_kind(owner, name, array, kinds)
    return array


def _check_kind(owner, name, value, kinds):
    # Not of arrays: under torch.compile they answer to more than they can.
    if not isinstance(value, np.ndarray) and not (is_dense(value) and has_rank(value)):
        raise ValueError(
            f"{owner}: `{name}` must be dense and of a known rank. "
            f"Received: {name}={value}"
        )
    if not dtype_name(value).startswith(kinds):
        numbers = "integers" if kinds == _INTEGERS else "integers or floats"
        # NumPy makes objects of integers that no dtype holds.
        raise ValueError(
            f"{owner}: `{name}` must be {numbers}, in {_FIRST}..{_LAST}. "
            f"Received: {name}={value} of dtype {dtype_name(value)}"
        )


def _check_int32(owner, name, array):
    if array.size and not (_FIRST <= array.min() and array.max() <= _LAST):
        raise ValueError(
            f"{owner}: `{name}` must lie in {_FIRST}..{_LAST}. "
            f"Received: {name} from {array.min()} to {array.max()}"
        )


def check_shape(owner, name, tensor, allowed):
    """Raise where no shape of `allowed` fits, as far as sizes are known (not None)."""
    shape = tensor.shape
    for wanted in allowed:
        if len(shape) == len(wanted) and sizes_fit(shape, wanted) is True:
            return
    names = " or ".join(str(tuple(axes)).replace("'", "") for axes in allowed)
    *_, full = allowed
    sizes = ", ".join(f"{axis}={size}" for axis, size in full.items())
    raise ValueError(
        f"{owner}: `{name}` must be of shape {names}, and the "
        f"input has {sizes}. Received: {name} of shape {tuple(shape)}"
    )
