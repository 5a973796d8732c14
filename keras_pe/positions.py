"""Positions out of what a model already has: its mask, or the ids of its segments."""

import numpy as np
from keras import ops

from keras_pe.checks import check_size, dtype_name, has_rank, is_dense, is_plain

_DTYPES = ("bool", "bfloat16", *(f"float{bits}" for bits in (16, 32, 64)))
_DTYPES += tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))


def positions_from_mask(mask, length=None):
    """Number the kept steps of a mask from 0, for left padding and cached steps.

    A running count: `cumsum(mask) - 1`, never below 0. Steps that are
    not kept repeat the number before them.

    >>> positions_from_mask([[False, False, True, True]])
    <tf.Tensor: shape=(1, 4), dtype=int32, numpy=array([[0, 0, 0, 1]], dtype=int32)>

    Args:
        mask: Bool or number tensor `(batch, time)`, True or not 0 at the steps that
            are kept. May be a `KerasTensor`.
        length: Integer of at least 1, or None. With a cache the mask is longer than
            the input: `length=1` gives the number of the last step alone.

    Returns:
        int32 tensor `(batch, time)`, or `(batch, length)`: fewer columns where a
        mask turns out to have fewer.

    Raises:
        ValueError: if `mask` is not such a tensor, or `length` is no such integer or
            larger than the known length of the mask.
    """
    mask = _as_rank_2("mask", mask)
    # `torch.compile` casts no array.
    mask = mask != 0 if is_plain(mask) else ops.cast(mask, "bool")
    steps = ops.cumsum(mask, axis=1)  # int32, of bools
    numbers = ops.maximum(steps - 1, 0)
    if length is None:
        return numbers
    length = check_size("length", length)
    if mask.shape[1] is not None and length > mask.shape[1]:
        raise ValueError(
            f"`length` must be at most the length of `mask`, {mask.shape[1]}. "
            f"Received: length={length}"
        )
    return numbers[:, -length:]


def positions_from_segments(segment_ids):
    """Number the steps of packed rows from 0 in each segment.

    >>> positions_from_segments([[7, 7, 9, 9, 9]])
    <tf.Tensor: shape=(1, 5), dtype=int32, numpy=array([[0, 1, 0, 1, 2]], dtype=int32)>

    Args:
        segment_ids: Number tensor `(batch, time)`; a segment ends where the number
            changes. May be a `KerasTensor`.

    Returns:
        int32 tensor `(batch, time)`.

    Raises:
        ValueError: if `segment_ids` is not such a tensor.
    """
    ids = _as_rank_2("segment_ids", segment_ids)
    if is_plain(ids):
        # Numbered before a backend cuts them to 32 bits.
        changes = (ids != np.roll(ids, 1)).astype("int32")
        ids = np.cumsum(changes, axis=1)
    ones = ops.ones_like(ids, dtype="int32")
    steps = ops.cumsum(ones, axis=1)
    changes = ops.not_equal(ids[:, 1:], ids[:, :-1])
    starts = ops.concatenate([ones[:, :1], changes], axis=1)
    # Sorted, the steps where a segment starts come first, in order: the k-th of them
    # is the start of segment k.
    firsts = ops.sort(ops.where(starts, steps, np.iinfo("int32").max))
    segments = ops.cumsum(starts, axis=1) - 1
    return steps - ops.take_along_axis(firsts, segments, axis=1)


def _as_rank_2(name, value):
    plain = is_plain(value)
    try:
        value = np.asarray(value) if plain else value
    except ValueError as error:  # rows of several lengths
        raise ValueError(f"`{name}` must be an array. Received: {value!r}") from error
    # In `torch.compile` an array has a tensor's methods.
    dense = plain or (is_dense(value) and has_rank(value))
    if not dense or dtype_name(value) not in _DTYPES:
        raise ValueError(
            f"`{name}` must be a dense tensor of bools or real numbers, of a known "
            f"rank. Received: {name}={value}"
        )
    if len(value.shape) != 2:
        raise ValueError(
            f"`{name}` must have the shape (batch, time). "
            f"Received: {name} of shape {tuple(value.shape)}"
        )
    return value
