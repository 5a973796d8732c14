"""Sine and cosine rows for any position: phases as fixed-point fractions of a turn.

A float32 angle has lost the fraction of its turn by position 10**6. Here each rate
is a 62-bit fraction of a turn, and `position * rate` is taken in wrapping int32
arithmetic, where whole turns fall away by themselves: what is left is the phase in
units of 2**-32 turns, exact to three units for every int32 position. Only then
does it become a float32 angle, of at most a quarter turn, and a sine.

Every channel is a sine: a cosine starts a quarter turn later. So the layout of the
channels is just the order of the rates.
"""

import functools
import math
from decimal import Decimal, localcontext
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_pe.recipe import channel_order

_QUARTER = 2**30  # of a turn, in units of 2**-32 turns
_RADIANS = np.float32(2 * math.pi / 2**32)  # a unit
_COARSE = np.float32(round(2 * math.pi * 2**8) / 2**22)  # 2**18 units, in 11 bits
_COARSE_REST = np.float32(2 * math.pi / 2**14 - float(_COARSE))
_NAN = np.float32(math.nan)
_TINY = np.float32(2.0**-120)  # in place of a cosine that is 0
_BLOCK = 256  # positions that share one rotation


class Rates(NamedTuple):
    """A rate for each channel, `(d_model,)` each, as 62 bits of a fraction of a turn.

    With `p = 2**15 * a + b`, p steps give the phase
    `p * high + a * middle + floor(b * low + a * lowest)` in units of 2**-32 turns.
    """

    high: np.ndarray  # int32, the first 32 bits
    middle: np.ndarray  # int32, the next 15 bits
    low: np.ndarray  # float32, all 30 bits after `high`, as a fraction of its unit
    lowest: np.ndarray  # float32, the bits after `middle`, as a fraction of its unit


class Turns(NamedTuple):
    """The channels of an encoding: how they turn, and where they start."""

    step: Rates
    part: Rates  # of 2**-31 steps, for what lies between two positions
    first: np.ndarray  # int32, the phase of position 0
    # float64, for float64 rows: turns a step without and with whole ones, and radians.
    turn: np.ndarray
    all_turns: np.ndarray
    start: np.ndarray


@functools.lru_cache(maxsize=32)
def sinusoid_turns(d_model, max_wavelength, layout):
    """Return the `Turns` of rates `max_wavelength ** (-2i / d_model)`, sines first."""
    channels = channel_order(np.arange(d_model), layout)
    with localcontext() as context:
        # 62 bits of the fraction are 19 digits behind the point, and a wavelength below
        # 1 puts digits before it.
        context.prec = 50 + abs(Decimal(max_wavelength).adjusted())
        logarithm = Decimal(max_wavelength).ln()
        two_pi = 8 * (4 * _arctan_of_inverse(5) - _arctan_of_inverse(239))  # Machin
        turns = [
            (-logarithm * (channel - channel % 2) / d_model).exp() / two_pi
            for channel in channels.tolist()
        ]
        step, part = _rates(turns), _rates([turn / 2**31 for turn in turns])
        fractions = [float(turn - round(turn)) for turn in turns]
    cosine = channels % 2
    return Turns(
        step=step,
        part=part,
        first=(cosine * _QUARTER).astype("int32"),
        turn=np.array(fractions),
        all_turns=np.array([float(turn) for turn in turns]),
        start=cosine * (math.pi / 2),
    )


def _rates(turns):
    """Return the `Rates` of turns a step, Decimals in a context that holds them."""
    bits = [int(turn % 1 * 2**62) for turn in turns]
    low = np.array([b % 2**30 for b in bits])
    return Rates(
        high=np.array([b >> 30 for b in bits], "uint32").astype("int32"),
        middle=(low >> 15).astype("int32"),
        low=(low / 2**30).astype("float32"),
        lowest=(low % 2**15 / 2**15).astype("float32"),
    )


def _arctan_of_inverse(n):
    """Return arctan(1 / n) in the precision of the context, by its power series."""
    total, power, k = Decimal(0), 1 / Decimal(n), 1
    while total + power / k != total:
        total += power / k
        power, k = -power / (n * n), k + 2
    return total


def precision_of(dtype):
    """Return the dtype in which rows of `dtype` are made, before they are rounded."""
    return "float64" if dtype == "float64" else "float32"


def rows_at(rows, turns, dtype):
    """Return `(..., d_model)`: the encoding at the positions `(...)` of `rows`.

    `dtype` is "float64" or "float32". Rounding to a half type is the caller's, so
    that it happens once.
    """
    whole, fraction, valid = rows.whole, rows.fraction, rows.valid
    if dtype == "float64":
        positions = ops.expand_dims(ops.cast(whole, dtype), -1)
        part = positions * ops.convert_to_tensor(turns.turn)
        if fraction is not None:
            fraction_64 = ops.expand_dims(ops.cast(fraction, dtype), -1)
            part = part + fraction_64 * ops.convert_to_tensor(turns.all_turns)
        angles = (part - ops.round(part)) * (2 * math.pi)
        sines = ops.sin(angles + ops.convert_to_tensor(turns.start))
        if valid is not None:
            sines = ops.where(ops.expand_dims(valid, -1), sines, ops.cast(_NAN, dtype))
        # On JAX it is float32: all of this without x64, Keras's sine even with it.
        if keras.backend.standardize_dtype(sines.dtype) == dtype:
            return sines
    phases = _phases(whole, turns.step) + ops.convert_to_tensor(turns.first)
    if fraction is not None:
        phases = phases + _phases(ops.cast(fraction * 2.0**31, "int32"), turns.part)
    if valid is None:
        return _sines(phases)
    scale = ops.where(valid, _RADIANS, _NAN)
    return _sines(phases, ops.expand_dims(scale, -1))


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
    whole = ops.convert_to_tensor(rows.whole, "int32")
    block = max(1, min(length, _BLOCK)) if isinstance(length, int) else _BLOCK
    blocks = (length + block - 1) // block
    starts = ops.expand_dims(whole, -1) + block * ops.arange(blocks, dtype="int32")
    # As tensors once: a graph then holds one copy of each, not two.
    rates = Rates(*map(ops.convert_to_tensor, turns.step))
    starts = _phases(starts, rates) + ops.convert_to_tensor(turns.first)
    steps = _phases(ops.arange(block, dtype="int32"), rates)
    a, b = _wall(_sine_and_cosine(starts)), _sine_and_cosine(steps)
    if valid is not None:
        a = ops.where(ops.expand_dims(valid, (-1, -2)), a, _NAN)
    a = ops.expand_dims(a, -2)
    cosine = b[1] + _TINY  # beside any other it is lost
    table = (a[1] * (b[0] / cosine) + a[0]) * cosine
    lead = tuple(ops.shape(starts))[:-2]
    table = ops.reshape(table, (*lead, blocks * block, turns.first.shape[0]))
    # Not `[..., :length, :]`: the LiteRT converter takes no ellipsis.
    return table[:, :length] if lead else table[:length]


def _phases(positions, rates):
    """Return int32 `(..., d_model)`: `position * rate` in units of 2**-32 turns."""
    a = ops.floor_divide(positions, 2**15)
    b = positions - a * 2**15
    # Not `[..., None]`: a strided slice takes more of a SavedModel.
    a, b, positions = (ops.expand_dims(part, -1) for part in (a, b, positions))
    carry = ops.cast(b, "float32") * ops.convert_to_tensor(rates.low)
    carry = carry + ops.cast(a, "float32") * ops.convert_to_tensor(rates.lowest)
    phases = positions * ops.convert_to_tensor(rates.high)
    phases = phases + a * ops.convert_to_tensor(rates.middle)
    return phases + ops.cast(carry, "int32")


def _fold(phases):
    """Return phases of the same sines within a quarter turn of 0."""
    # A sine is symmetric about its quarter turns. Both sums wrap.
    return ops.abs(phases + _QUARTER) - _QUARTER


def _sines(phases, scale=_RADIANS):
    """Return the float32 sines of `phases`; the angles are rounded three times."""
    return ops.sin(ops.cast(_fold(phases), "float32") * scale)


def _sine_and_cosine(phases):
    """Return float32 `(2, ..., d_model)`; the angles are rounded once."""
    folded = _fold(ops.stack([phases, phases + _QUARTER]))
    coarse = ops.floor_divide(folded, 2**18)
    rest = ops.cast(folded - coarse * 2**18, "float32")
    coarse = ops.cast(coarse, "float32")
    # 13 bits times 11 bits is exact, and what is added to it is small.
    return ops.sin(coarse * _COARSE + (coarse * _COARSE_REST + rest * _RADIANS))


def _wall(table):
    """Return `table` itself, past something that XLA does not fuse through.

    Otherwise XLA inlines these sines into the products and takes them again for
    every row and every member of the batch (docs/rows.md has the price).
    """
    return ops.sum(ops.stack([table, ops.zeros_like(table)]), axis=0)
