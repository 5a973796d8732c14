"""Sine and cosine rows for any position: phases as fixed-point fractions of a turn.

A float32 angle has lost the fraction of its turn by position 10**6. Here each rate
is a 62-bit fraction of a turn, and `position * rate` is taken in wrapping int32
arithmetic, where whole turns fall away by themselves: what is left is the phase in
units of 2**-32 turns, exact to three units for every int32 position. Only then
does it become a float32 angle, of at most a quarter turn, and a sine.

Every channel is a sine: a cosine starts a quarter turn later. So the layout of the
channels is just the order of the rates.
"""

import math

import keras
import numpy as np
from keras import ops

from keras_pe.checks import constant, tensorflow_mode
from keras_pe.rates import BLOCK, QUARTER, Rates

# A unit. Of its dtype, as beside it there may be nothing that has one.
_RADIANS = np.float32(2 * math.pi / 2**32)
_COARSE = round(2 * math.pi * 2**8) / 2**22  # 2**18 units, in 11 bits
_COARSE_REST = 2 * math.pi / 2**14 - _COARSE
# Of x**3 to x**9 in the sine: the fit up to a quarter turn with the least error, 5e-9.
_SINE_SERIES = (-1.6666657e-1, 8.3330171e-3, -1.9806615e-4, 2.6000544e-6)
_PIECE = 2**20  # numbers of rows that are made at once, where each step is a copy
_TINY = np.finfo("float32").tiny  # in place of a cosine that is 0


def precision_of(dtype):
    """Return the dtype in which rows of `dtype` are made, before they are rounded."""
    return "float64" if dtype == "float64" else "float32"


def rows_at(rows, turns, dtype):
    """Return `(..., d_model)`: the encoding at the positions `(...)` of `rows`.

    It is made in float64 for "float64", and in float32 for any other `dtype`: rounding
    to a half type is the caller's, so that it happens once.
    """
    parts = rows.whole, rows.fraction, rows.valid
    most = max(1, _PIECE // turns.first.size)
    if tensorflow_mode() != "eager" or math.prod(rows.whole.shape) <= most:
        return _rows_at(*parts, turns, dtype)
    # Each operation has a result of its own there, and a dozen of these are large.
    shape = ops.shape(rows.whole)
    parts = [
        None if part is None else ops.reshape(ops.broadcast_to(part, shape), (-1,))
        for part in parts
    ]
    pieces = [
        _rows_at(*(p if p is None else p[i : i + most] for p in parts), turns, dtype)
        for i in range(0, math.prod(shape), most)
    ]
    return ops.reshape(ops.concatenate(pieces), (*shape, turns.first.size))


def _rows_at(whole, fraction, valid, turns, dtype):
    if dtype == "float64":
        positions = ops.expand_dims(ops.cast(whole, dtype), -1)
        part = positions * constant(turns.turn)
        if fraction is not None:
            rest = ops.expand_dims(ops.cast(fraction, dtype), -1)
            for turn in turns.turn_parts:
                steps, rest = _whole_and_rest(rest * 2.0**16)
                part = part + ops.cast(steps, dtype) * constant(turn)
            part = part + rest * constant(turns.last_turns)
        angles = (part - ops.round(part)) * (2 * math.pi)
        sines = ops.sin(angles + constant(turns.start))
        if valid is not None:
            sines = ops.where(ops.expand_dims(valid, -1), sines, math.nan)
        # On JAX it is float32: all of this without x64, Keras's sine even with it.
        if keras.backend.standardize_dtype(sines.dtype) == dtype:
            return sines
    phases = _phases(whole, turns.step) + constant(turns.first)
    if fraction is not None:
        for rates in turns.parts:
            steps, fraction = _whole_and_rest(fraction * 2.0**31)
            phases = phases + _phases(steps, rates)
    if valid is None:
        return _sines(phases)
    scale = ops.where(valid, _RADIANS, math.nan)
    return _sines(phases, ops.expand_dims(scale, -1))


def _whole_and_rest(numbers):
    """Return numbers towards 0, as int32, and what that leaves, exactly."""
    whole = ops.cast(numbers, "int32")
    return whole, numbers - ops.cast(whole, numbers.dtype)


def rows_from(rows, turns, dtype):
    """Return `(..., length, d_model)`: the encoding of the runs that start at `rows`.

    A block of positions shares one rotation, by the theorem of the shift:
    `sin(a + b) = (sin(a) + cos(a) tan(b)) cos(b)`, with `a` where the block starts
    and `b` within it. A row then costs two products and no sine, and all but the first
    of its three operations can work in place.
    """
    if dtype == "float64":
        return rows_at(rows.spread(), turns, dtype)
    length, valid = rows.length, rows.valid
    block = max(1, min(length, BLOCK)) if isinstance(length, int) else BLOCK
    blocks = (length + block - 1) // block
    steps = block * ops.arange(blocks, dtype="int32")
    starts = ops.expand_dims(rows.whole, -1) + steps
    # As tensors once: a graph then holds one copy of each, not two.
    rates = Rates(*map(constant, turns.step))
    starts = _phases(starts, rates) + constant(turns.first)
    around = ops.expand_dims(_wall(_sine_and_cosine(starts)), -2)
    sine, cosine = around[0], around[1]
    if valid is not None:
        sine = ops.where(ops.expand_dims(valid, (-1, -2, -3)), sine, math.nan)
    step_tangent, step_cosine = _within_block(turns, rates, block)
    table = (sine + cosine * step_tangent) * step_cosine
    lead = ops.shape(starts)[:-2]
    table = ops.reshape(table, (*lead, blocks * block, len(turns.first)))
    # Not `[..., :length, :]`: the LiteRT converter takes no ellipsis.
    return table[:, :length] if lead else table[:length]


def _within_block(turns, rates, block):
    """Return float32 `(block, d_model)` twice: tangents and cosines of its steps."""
    if tensorflow_mode() != "graph":
        tangent, cosine = turns.block_tangent[:block], turns.block_cosine[:block]
        return constant(tangent), constant(cosine)
    # There a constant goes into every file. TensorFlow folds this when it loads one.
    steps = _sine_and_cosine(_phases(ops.arange(block), rates))
    cosine = steps[1] + _TINY  # beside any other it is lost
    return steps[0] / cosine, cosine


def _phases(positions, rates):
    """Return int32 `(..., d_model)`: `position * rate` in units of 2**-32 turns."""
    a = positions // 2**15
    b = positions - a * 2**15
    # Not `[..., None]`: a strided slice takes more of a SavedModel.
    a, b, positions = (ops.expand_dims(part, -1) for part in (a, b, positions))
    carry = ops.cast(b, "float32") * constant(rates.low)
    carry = carry + ops.cast(a, "float32") * constant(rates.lowest)
    phases = positions * constant(rates.high)
    phases = phases + a * constant(rates.middle)
    return phases + ops.cast(carry, "int32")


def _fold(phases):
    """Return phases of the same sines within a quarter turn of 0."""
    # A sine is symmetric about its quarter turns. Both sums wrap.
    return ops.abs(phases + QUARTER) - QUARTER


def _sines(phases, scale=_RADIANS):
    """Return the float32 sines of `phases`; the angles are rounded three times."""
    angles = ops.cast(_fold(phases), "float32") * scale
    if keras.config.backend() != "jax":
        return ops.sin(angles)
    # XLA's sine takes any angle, and several times as long as this.
    square = angles * angles
    *rest, series = _SINE_SERIES
    for coefficient in reversed(rest):
        series = series * square + coefficient
    return angles + angles * square * series


def _sine_and_cosine(phases):
    """Return float32 `(2, ..., d_model)`; the angles are rounded once."""
    folded = _fold(ops.stack([phases, phases + QUARTER]))
    coarse = folded // 2**18
    rest = ops.cast(folded - coarse * 2**18, "float32")
    coarse = ops.cast(coarse, "float32")
    # 13 bits times 11 bits is exact, and what is added to it is small.
    return ops.sin(coarse * _COARSE + (coarse * _COARSE_REST + rest * _RADIANS))


def _wall(table):
    """Return `table` itself, past something that XLA does not fuse through.

    Otherwise XLA inlines these sines into the products and takes them again for
    every row and every member of the batch (docs/rows.md has the price).
    """
    return ops.sum([table, ops.zeros_like(table)], axis=0)
