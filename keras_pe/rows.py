"""Which rows of an encoding a call needs, and the checks of what it was given.

Three steps, in the order in which a layer takes them: `standardize` makes plain
numbers and arrays safe to hand to any backend and checks dtypes, `check_call` raises
what shapes and plain numbers show, `find_rows` finds the rows and checks their numbers:
at once where they are known, else as the TensorFlow graph runs.
"""

from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_pe.checks import dtype_name, has_rank, is_dense

_FIRST, _LAST = -(2**31), 2**31 - 1  # the positions that int32 holds
_INTEGERS = ("int", "uint")
_NUMBERS = ("int", "uint", "float", "bfloat")


class Rows(NamedTuple):
    """The rows that a call needs: positions, or runs of `length` from each position.

    Where only a running graph can tell a bad position, `valid` is False there, and
    the row is to become NaN.
    """

    whole: object  # int32 tensor: (), (time,), (batch,) or (batch, time)
    fraction: object = None  # float tensor, what lies behind the point, or None
    valid: object = None  # bool tensor that broadcasts against `whole`, or None
    length: object = None  # of each run, int or int32 tensor; None: no runs

    def spread(self):
        """Return the same rows, with runs written out as positions."""
        if self.length is None:
            return self
        steps = ops.arange(self.length, dtype="int32")
        whole = ops.convert_to_tensor(self.whole, "int32")[..., None]
        valid = None if self.valid is None else self.valid[..., None]
        return Rows(whole + steps, valid=valid)


def standardize(owner, positions, start_index):
    """Return both arguments with no plain number left that a backend could change.

    JAX cuts int64 arrays to int32, and float64 to float32, as Keras converts the
    arguments of a layer. So arrays of whole numbers become int32 here, or an error,
    and a plain `start_index` becomes a Python int. Tensors stay as they are.
    """
    if positions is not None:
        if not (type(start_index) is int and start_index == 0):
            raise ValueError(
                f"{owner} takes `positions` or `start_index`, not both. "
                f"Received: positions={positions}, start_index={start_index}"
            )
        return standardize_positions(owner, positions), start_index
    plain = _is_plain(start_index)
    start = np.asarray(start_index) if plain else start_index
    _check_kind(owner, "start_index", start, _INTEGERS)
    if plain:
        _check_int32(owner, "start_index", start)
        start = start.astype("int32") if start.ndim else int(start)
    return None, start


def standardize_positions(owner, positions):
    """Return `positions` as `standardize` does."""
    plain = _is_plain(positions)
    if plain:
        positions = np.asarray(positions)
    _check_kind(owner, "positions", positions, _NUMBERS)
    if not plain:
        return positions
    if positions.dtype.kind not in "iu":
        exact = positions.astype("float64")
        if not np.all(np.isfinite(exact) & (exact == np.rint(exact))):
            return positions
        positions = exact
    _check_int32(owner, "positions", positions)
    return positions.astype("int32")


def check_call(owner, shape, positions, start_index, max_length):
    """Raise ValueError for what shapes and a plain `start_index` show."""
    batch, time = shape[0], shape[-2]
    if positions is not None:
        _check_kind(owner, "positions", positions, _NUMBERS)
        _check_shape(
            owner,
            "positions",
            positions,
            [{"time": time}, {"batch": batch, "time": time}],
        )
    elif not isinstance(start_index, int):
        _check_shape(owner, "start_index", start_index, [{}, {"batch": batch}])
    elif not _run_fits(start_index, time or 0, max_length):
        _refuse(_run(owner, start_index, time or 0, max_length)())


def find_rows(owner, inputs, positions, start_index, max_length):
    """Return the `Rows` of a call to a layer, its numbers checked.

    Args:
        owner: Who speaks in an error, such as "PositionalEncoding layer 'pos'".
        inputs: Tensor `(batch, ..., time, d_model)`.
        positions: None, or a tensor or array `(time,)` or `(batch, time)`.
        start_index: Python int, or an int tensor, `()` or `(batch,)`.
        max_length: None, or the number of positions that there are.

    Returns:
        `Rows`. Its `whole` is a Python int where `start_index` is one.
    """
    batch, time = ops.shape(inputs)[0], ops.shape(inputs)[-2]
    if positions is not None:
        positions = ops.convert_to_tensor(positions)
        wanted = {"batch": batch, "time": time}
        if len(positions.shape) == 1:
            del wanted["batch"]
        positions = _fit(owner, "positions", positions, wanted)
        # Even where a compiler drops that check, one row is never broadcast to all.
        positions = ops.reshape(positions, (*ops.shape(positions)[:-1], time))
        return rows_of_positions(owner, positions, max_length)
    if isinstance(start_index, int):
        if isinstance(time, int) or (max_length is None and start_index <= 0):
            return Rows(start_index, length=time)
        valid = _run_fits(start_index, time, max_length)
        received = _run(owner, start_index, time, max_length)
        return Rows(start_index, valid=valid, length=_require(valid, time, received))
    start = ops.convert_to_tensor(start_index)
    if len(start.shape) == 1:
        start = _fit(owner, "start_index", start, {"batch": batch})
    whole, valid = _to_int32(start, None)
    fits = _run_fits(whole, time, max_length)
    valid = fits if valid is None else valid & fits
    received = _run(owner, start, time, max_length)
    return Rows(_require(ops.all(valid), whole, received), valid=valid, length=time)


def rows_of_positions(owner, positions, max_length=None):
    """Return the `Rows` of a tensor of positions, its numbers checked."""
    if "float" not in dtype_name(positions):
        whole, valid = _to_int32(positions, max_length)
        if valid is None:
            return Rows(whole)
        received = _extremes(owner, positions, max_length)
        return Rows(_require(ops.all(valid), whole, received), valid=valid)
    if dtype_name(positions) != "float64":
        positions = ops.cast(positions, "float32")
    # NaN and infinity are no error: they give NaN, in their own rows.
    finite = ops.isfinite(positions)
    numbers = ops.where(finite, positions, ops.zeros_like(positions))
    first, last = _limits(max_length)
    # Both: float32 rounds 2**31 - 1 up to 2**31, which is no position.
    within = (numbers <= float(last)) & (numbers < float(last + 1))
    within = within & (numbers >= float(first))
    received = _extremes(owner, numbers, max_length)
    numbers = _require(ops.all(within), numbers, received)
    numbers = ops.where(within, numbers, ops.zeros_like(numbers))
    whole = numbers // 1  # `ops.floor` gives float32 for float64 on torch
    valid = finite & within
    return Rows(ops.cast(whole, "int32"), fraction=numbers - whole, valid=valid)


def _is_plain(value):
    return isinstance(value, (np.ndarray, np.generic)) or not hasattr(value, "dtype")


def _check_kind(owner, name, value, kinds):
    if not is_dense(value) or not has_rank(value):
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


def _check_shape(owner, name, tensor, allowed):
    """Raise where no shape of `allowed` fits, as far as sizes are known (not None)."""
    shape = tensor.shape
    for wanted in allowed:
        if len(shape) == len(wanted) and _sizes_fit(shape, wanted) is True:
            return
    names = " or ".join(str(tuple(axes)).replace("'", "") for axes in allowed)
    sizes = ", ".join(f"{axis}={size}" for axis, size in allowed[-1].items())
    raise ValueError(
        f"{owner}: `{name}` must be of shape {names}, and the "
        f"input has {sizes}. Received: {name} of shape {shape}"
    )


def _fit(owner, name, tensor, wanted):
    """Return `tensor`, its shape checked where it is known only in a running graph."""
    shape = ops.shape(tensor)
    fits = _sizes_fit(shape, wanted)
    if fits is True:
        return tensor
    message = f"{owner}: `{name}` must fit the input. Received sizes, and sizes wanted:"
    return _require(fits, tensor, lambda: [message, *shape, *wanted.values()])


def _sizes_fit(shape, wanted):
    """Return whether `shape` is as `wanted`, `{"batch": 2, "time": 5}`, or 1 for 2."""
    fits = True
    for size, (axis, other) in zip(shape, wanted.items(), strict=True):
        if size is not None and other is not None:
            fit = size == other
            fits = fits & ((size == 1) | fit if axis == "batch" else fit)
    return fits


def _to_int32(numbers, max_length):
    """Return integers as int32, and where they are positions (None: everywhere)."""
    first, last = _limits(max_length)
    if dtype_name(numbers) in ("int8", "int16", "int32", "uint8", "uint16"):
        numbers = ops.cast(numbers, "int32")
        if max_length is None:
            return numbers, None
    # Not by `ops.less_equal`, which may compare uint64 as float32.
    valid = numbers <= last
    if dtype_name(numbers).startswith("int"):
        valid = valid & (numbers >= first)
    numbers = ops.where(valid, numbers, ops.zeros_like(numbers))
    return ops.cast(numbers, "int32"), valid


def _limits(max_length):
    return (_FIRST, _LAST) if max_length is None else (0, max_length - 1)


def _run_fits(start, length, max_length):
    """Return whether all steps of a run are positions. Nothing here overflows."""
    first, last = _limits(max_length)
    steps = length - 1
    steps = max(steps, 0) if isinstance(steps, int) else ops.maximum(steps, 0)
    return (start >= first) & (start <= last - steps)


def _run(owner, start, length, max_length):
    return lambda: [
        _allowed(owner, max_length),
        length,
        " steps from position ",
        start,
    ]


def _extremes(owner, positions, max_length):
    return lambda: [
        _allowed(owner, max_length),
        "positions from ",
        ops.min(positions),
        " to ",
        ops.max(positions),
    ]


def _allowed(owner, max_length):
    first, last = _limits(max_length)
    limit = "" if max_length is None else f" (`max_length={max_length}`)"
    return f"{owner} takes positions {first} to {last}{limit}. Received: "


def _require(condition, tensor, received):
    """Return `tensor` if `condition` holds, else raise the message `received()`.

    Where the condition is known only as a TensorFlow graph runs, the tensor that is
    returned depends on the check. Where nothing can be raised (a compiler, another
    backend's graph) it is returned as it is.
    """
    known = _known(condition)
    if known is None and keras.config.backend() == "tensorflow":
        import tensorflow as tf

        with tf.control_dependencies([tf.debugging.Assert(condition, received())]):
            return tf.identity(tensor)
    if known is not None and not known:
        _refuse(received())
    return tensor


def _refuse(parts):
    # The parts are texts, numbers, and tensors of one number.
    parts = [part if isinstance(part, str) else _known(part) for part in parts]
    raise ValueError("".join(map(str, parts)))


def _known(tensor):
    """Return the value of a tensor or a number, or None while a graph is traced."""
    if keras.config.backend() == "tensorflow":
        import tensorflow as tf

        return tf.get_static_value(tensor) if tf.is_tensor(tensor) else tensor
    try:
        return ops.convert_to_numpy(tensor)
    except (RuntimeError, TypeError):
        return None
