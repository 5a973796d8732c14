"""The rates of an encoding, made on the host: exact fractions of a turn as integers."""

import functools
import math
import sys
from decimal import Context, Decimal, localcontext
from typing import NamedTuple

import numpy as np

from keras_pe.checks import on_the_host
from keras_pe.recipe import channel_order

QUARTER = 2**30  # of a turn, in units of 2**-32 turns
BLOCK = 256  # positions that share one rotation
_DIGITS = 50  # behind the point, of a turn: 62 bits are 19


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
    # Of 2**-31 steps, for what lies between two positions; where there are rates above
    # 1, also of 2**-62 steps, and so on.
    parts: tuple
    first: np.ndarray  # int32, the phase of position 0
    # For float64 rows, float64: turns a step, without whole ones; the same of 2**-16
    # steps, 2**-32 and so on, where there are rates above 1; all turns of the last of
    # these, else of a step; and in radians the phase of position 0.
    turn: np.ndarray
    turn_parts: tuple
    last_turns: np.ndarray
    start: np.ndarray
    # float32 `(BLOCK, d_model)`, of the angles from the start of a block.
    block_tangent: np.ndarray
    block_cosine: np.ndarray


@on_the_host
@functools.lru_cache(maxsize=32)
def sinusoid_turns(d_model, max_wavelength, layout):
    """Return the `Turns` of rates `max_wavelength ** (-2i / d_model)`, sines first."""
    channels = channel_order(np.arange(d_model), layout)
    with localcontext(_context_for(max_wavelength)):
        turns = _sinusoid_turns(channels, d_model, max_wavelength)
        return _turns(turns, channels % 2)


def exact_angles(positions, channels, d_model, max_wavelength):
    """Return `recipe.angles`, without their whole turns, which float64 could not hold.

    Args:
        positions: float64 or integer array, `(...)`.
        channels: Int array `(n,)`.

    Returns:
        float64 `(..., n)`.
    """
    steps = np.vectorize(Decimal, "O")(np.asarray(positions, object)[..., None])
    with localcontext(_context_for(max_wavelength, sys.float_info.max)):
        turns = _sinusoid_turns(channels, d_model, max_wavelength)
        parts = steps * turns % 1  # NaN at no position
    return parts.astype("float64") * (2 * math.pi)


def _context_for(*numbers):
    """Return a context for rates: small waves and far positions have more digits."""
    more = sum(abs(Decimal(number).adjusted()) for number in numbers)
    return Context(prec=_DIGITS + more, traps=[])


def _sinusoid_turns(channels, d_model, max_wavelength):
    """Return the turns a step of each channel, as Decimals."""
    logarithm, two_pi = Decimal(max_wavelength).ln(), _two_pi()
    return [
        (-logarithm * (channel - channel % 2) / d_model).exp() / two_pi
        for channel in channels.tolist()
    ]


@on_the_host
@functools.lru_cache(maxsize=32)
def turns_of_rates(rates):
    """Return the `Turns` of a tuple of rates in radians: all sines, then all cosines.

    The rates, floats of at most 1, are taken as they are, to their last bit.
    """
    with localcontext(_context_for()):
        two_pi = _two_pi()
        turns = [Decimal(rate) / two_pi for rate in rates]
        return _turns(2 * turns, np.repeat([0, 1], len(rates)))


def _turns(turns, cosine):
    """Return the `Turns` of channels.

    Args:
        turns: Turns a step, Decimals in a context that holds them.
        cosine: Int array, 1 where a channel is a cosine and 0 where it is a sine.
    """
    # What is left of a part is 7e-10 radians at most.
    parts = _parts(turns, 2**31, 2.0**-33)[1:]
    whole, *parts_64 = _parts(turns, 2**16, 1)
    turn = _without_whole(whole)
    within = 2 * math.pi * np.arange(BLOCK)[:, None] * turn
    return Turns(
        step=_rates(turns),
        parts=tuple(map(_rates, parts)),
        first=(cosine * QUARTER).astype("int32"),
        turn=turn,
        turn_parts=tuple(map(_without_whole, parts_64)),
        last_turns=np.array([float(turn) for turn in (whole, *parts_64)[-1]]),
        start=cosine * (math.pi / 2),
        block_tangent=np.tan(within).astype("float32"),
        block_cosine=np.cos(within).astype("float32"),
    )


def _parts(turns, count, enough):
    """Return turns of a step, of its `count`th part, of the `count`th part of that ...

    The last are the first that are all at most `enough`.
    """
    parts = [turns]
    while max(parts[-1]) > enough:
        parts.append([turn / count for turn in parts[-1]])
    return parts


def _without_whole(turns):
    return np.array([float(turn - round(turn)) for turn in turns])


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


def _two_pi():
    return 8 * (4 * _arctan_of_inverse(5) - _arctan_of_inverse(239))  # Machin


def _arctan_of_inverse(n):
    """Return arctan(1 / n) in the precision of the context, by its power series."""
    total, power, k = 0, 1 / Decimal(n), 1
    while total + power / k != total:
        total += power / k
        power, k = -power / (n * n), k + 2
    return total
