"""Which rows of an encoding a call needs.

The numbers among its arguments are checked here: at once where they are known, else as
the TensorFlow graph runs.
"""

from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_pe.arguments import (
    allowed_positions,
    limits,
    received_run,
    run_fits,
    sizes_fit,
)
from keras_pe.checks import comparable, dtype_name


class Rows(NamedTuple):
    """The rows that a call needs: positions, or runs of `length` from each position.

    Where only a running graph can tell a bad position, `valid` is False there, and
    the row is to become NaN.
    """

    whole: object  # int32 tensor: (), (time,), (batch,) or (batch, time)
    fraction: object = None  # float tensor, above -1 and below 1, or None
    valid: object = None  # bool tensor that broadcasts against `whole`, or None
    length: object = None  # of each run, int or int32 tensor; None: no runs

    def spread(self):
        """Return the same rows, with runs written out as positions."""
        if self.length is None:
            return self
        steps = ops.arange(self.length)
        whole = ops.expand_dims(self.whole, -1)
        valid = None if self.valid is None else ops.expand_dims(self.valid, -1)
        return Rows(whole + steps, valid=valid)


def find_rows(owner, batch, time, positions, start_index, max_length, name="positions"):
    """Return the `Rows` of a call to a layer, its numbers checked.

    Args:
        owner: Who speaks in an error, such as "PositionalEncoding layer 'pos'".
        batch, time: The input's, ints or int32 tensors.
        positions: None, or a tensor or array `(time,)` or `(batch, time)`.
        start_index: Python int, or an int tensor, `()` or `(batch,)`.
        max_length: None, or the number of positions that there are.
        name: Of the argument `positions`.

    Returns:
        `Rows`. Its `whole` is a Python int where `start_index` is one.
    """
    if positions is not None:
        positions = ops.convert_to_tensor(positions)
        wanted = {"batch": batch, "time": time}
        if len(positions.shape) == 1:
            del wanted["batch"]
        positions = fit(owner, name, positions, wanted)
        return rows_of_positions(owner, positions, max_length)
    if isinstance(start_index, int):
        if isinstance(time, int) or (max_length is None and start_index <= 0):
            return Rows(start_index, length=time)
        valid = run_fits(start_index, time, max_length)
        received = received_run(owner, start_index, time, max_length)
        return Rows(start_index, valid=valid, length=_require(valid, time, received))
    start = comparable(start_index)
    if len(start.shape) == 1:
        start = fit(owner, "start_index", start, {"batch": batch})
    elif max_length is not None and (known := _known(start)) is not None:
        # Eager: a slice of the table will do.
        start = int(known)
        valid = run_fits(start, time, max_length)
        received = received_run(owner, start, time, max_length)
        return Rows(_require(valid, start, received), length=time)
    whole, valid = _to_int32(start, None)
    fits = run_fits(whole, time, max_length)
    valid = fits if valid is None else valid & fits
    received = received_run(owner, start, time, max_length)
    return Rows(_require(ops.all(valid), whole, received), valid=valid, length=time)


def rows_of_positions(owner, positions, max_length=None):
    """Return the `Rows` of a tensor of positions, its numbers checked."""
    if "float" not in dtype_name(positions):
        positions = comparable(positions)
        whole, valid = _to_int32(positions, max_length)
        if valid is None:
            return Rows(whole)
        received = _received_extremes(owner, positions, max_length)
        return Rows(_require(ops.all(valid), whole, received), valid=valid)
    if dtype_name(positions) != "float64":
        positions = ops.cast(positions, "float32")
    positions = ops.stop_gradient(positions)  # float64 rows would have one
    # NaN and infinity are no error: they give NaN, in their own rows.
    finite = ops.isfinite(positions)
    numbers = ops.where(finite, positions, ops.zeros_like(positions))
    first, last = limits(max_length)
    # Both: float32 rounds 2**31 - 1 up to 2**31, which is no position.
    within = (numbers <= last) & (numbers < float(last + 1)) & (numbers >= first)
    received = _received_extremes(owner, numbers, max_length)
    numbers = _require(ops.all(within), numbers, received)
    numbers = ops.where(within, numbers, ops.zeros_like(numbers))
    # Towards 0, so that what is left is exact: of -1e-8, the rest above -1 would be 1.
    # `ops.floor` gives float32 for float64 on torch.
    whole = ops.sign(numbers) * (ops.abs(numbers) // 1)
    valid = finite & within
    return Rows(ops.cast(whole, "int32"), fraction=numbers - whole, valid=valid)


def fit(owner, name, tensor, wanted):
    """Return `tensor`, its shape checked where it is known only in a running graph.

    `wanted` is as for `sizes_fit`, the batch first, if it is there, and no size None.
    """
    shape = ops.shape(tensor)
    fits = sizes_fit(shape, wanted)
    if fits is True:
        return tensor
    message = f"{owner}: `{name}` must fit the input. Received sizes, and sizes wanted:"
    sizes = [*wanted.values()]
    tensor = _require(fits, tensor, lambda: [message, *shape, *sizes])
    # Even where a compiler drops that check, one row is never broadcast to all.
    if "batch" in wanted:
        sizes[0] = shape[0]
    return ops.reshape(tensor, sizes)


def _to_int32(numbers, max_length):
    """Return integers as int32, and where they are positions (None: everywhere)."""
    first, last = limits(max_length)
    if np.can_cast(dtype_name(numbers), "int32"):
        numbers = ops.cast(numbers, "int32")
        if max_length is None:
            return numbers, None
    # Not by `ops.less_equal`, which may compare uint64 as float32.
    valid = numbers <= last
    if dtype_name(numbers).startswith("int"):
        valid = valid & (numbers >= first)
    numbers = ops.where(valid, numbers, ops.zeros_like(numbers))
    return ops.cast(numbers, "int32"), valid


def _received_extremes(owner, positions, max_length):
    return lambda: [
        allowed_positions(owner, max_length),
        "positions from ",
        ops.min(positions),
        " to ",
        ops.max(positions),
    ]


def _require(condition, tensor, received):
    """Return `tensor` if `condition` holds, else raise a message of `received()`.

    That is a list of texts, numbers, and tensors of one number. Where the condition is
    known only as a TensorFlow graph runs, the tensor that is returned depends on the
    check. Where nothing can be raised (a compiler, another backend's graph) it is
    returned as it is.
    """
    known = _known(condition)
    if known is None and keras.config.backend() == "tensorflow":
        import tensorflow as tf

        with tf.control_dependencies([tf.debugging.Assert(condition, received())]):
            return tf.identity(tensor)
    if known is not None and not known:
        raise ValueError("".join(str(_known(part)) for part in received()))
    return tensor


def _known(tensor):
    """Return the value of a tensor, or None while a graph is traced.

    Numbers and texts are their own values.
    """
    if keras.config.backend() == "tensorflow":
        import tensorflow as tf

        return tf.get_static_value(tensor)
    try:
        return ops.convert_to_numpy(tensor)
    except (RuntimeError, TypeError):
        return None
