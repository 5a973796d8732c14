"""The rates of an encoding, made on the host: exact fractions of a turn as integers."""

import functools
import math
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
    part: Rates  # of 2**-31 steps, for what lies between two positions
    first: np.ndarray  # int32, the phase of position 0
    # float64, for float64 rows: turns a step without and with whole ones, and radians.
    turn: np.ndarray
    all_turns: np.ndarray
    start: np.ndarray
    # float32 `(BLOCK, d_model)`, of the angles from the start of a block.
    block_tangent: np.ndarray
    block_cosine: np.ndarray


@on_the_host
@functools.lru_cache(maxsize=32)
def sinusoid_turns(d_model, max_wavelength, layout):
    """Return the `Turns` of rates `max_wavelength ** (-2i / d_model)`, sines first."""
    channels = channel_order(np.arange(d_model), layout)
    # A wavelength below 1 puts digits before the point.
    more = abs(Decimal(max_wavelength).adjusted())
    with localcontext(Context(prec=_DIGITS + more)):
        logarithm, two_pi = Decimal(max_wavelength).ln(), _two_pi()
        turns = [
            (-logarithm * (channel - channel % 2) / d_model).exp() / two_pi
            for channel in channels.tolist()
        ]
        return _turns(turns, channels % 2)


@on_the_host
@functools.lru_cache(maxsize=32)
def turns_of_rates(rates):
    """Return the `Turns` of a tuple of rates in radians: all sines, then all cosines.

    The rates, floats of at most 1, are taken as they are, to their last bit.
    """
    with localcontext(Context(prec=_DIGITS)):
        two_pi = _two_pi()
        turns = [Decimal(rate) / two_pi for rate in rates]
        return _turns(2 * turns, np.repeat([0, 1], len(rates)))


def _turns(turns, cosine):
    """Return the `Turns` of channels.

    Args:
        turns: Turns a step, Decimals in a context that holds them.
        cosine: Int array, 1 where a channel is a cosine and 0 where it is a sine.
    """
    step, part = _rates(turns), _rates([turn / 2**31 for turn in turns])
    turn = np.array([float(turn - round(turn)) for turn in turns])
    within = 2 * math.pi * np.arange(BLOCK)[:, None] * turn
    return Turns(
        step=step,
        part=part,
        first=(cosine * QUARTER).astype("int32"),
        turn=turn,
        all_turns=np.array([float(turn) for turn in turns]),
        start=cosine * (math.pi / 2),
        block_tangent=np.tan(within).astype("float32"),
        block_cosine=np.cos(within).astype("float32"),
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


def _two_pi():
    return 8 * (4 * _arctan_of_inverse(5) - _arctan_of_inverse(239))  # Machin


def _arctan_of_inverse(n):
    """Return arctan(1 / n) in the precision of the context, by its power series."""
    total, power, k = 0, 1 / Decimal(n), 1
    while total + power / k != total:
        total += power / k
        power, k = -power / (n * n), k + 2
    return total
