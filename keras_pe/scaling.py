"""The rates of rotary positions, and how models of long texts scale them.

Host arithmetic in float64. A scaling is the dict `rope_scaling` of a Hugging Face
config, as it stands there.
"""

import math
from typing import NamedTuple

import numpy as np

from keras_pe.checks import on_the_host

_LENGTH = "original_max_position_embeddings"
# By the type: the keys that it needs, and those it may have.
_KEYS = {
    "default": ((), ()),
    "linear": (("factor",), ()),
    "llama3": (("factor", "low_freq_factor", "high_freq_factor", _LENGTH), ()),
    "yarn": (
        ("factor", _LENGTH),
        ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"),
    ),
}
_FLAGS = {"yarn": ("truncate",)}
_LEAST, _MOST = 1e-18, 1e18  # of all numbers, so that float64 holds what comes of them
# What newer configs have there, too.
_ARGUMENTS = {"rope_theta": "max_wavelength", "partial_rotary_factor": "rotary_dim"}


class ScaledRates(NamedTuple):
    """Rates in radians a step, and what the rotated features are multiplied with."""

    rates: np.ndarray  # float64 `(dim / 2,)`
    attention_factor: float


def rotary_rates(dim, max_wavelength):
    """Return the rates `max_wavelength ** (-2i / dim)` of `dim / 2` pairs, float64."""
    return max_wavelength ** (-np.arange(0, dim, 2) / dim)


@on_the_host
def scaled_rates(dim, max_wavelength, scaling):
    """Return the `ScaledRates` of `dim` features.

    Args:
        dim: Even number of features that are rotated.
        max_wavelength: Real number above 1, a Hugging Face config's `rope_theta`.
        scaling: What `check_scaling` returned.

    References:
        Chen et al., 2023, "Extending Context Window of Large Language Models via
        Positional Interpolation" (linear); Peng et al., 2023, "YaRN: Efficient Context
        Window Extension of Large Language Models", section 3; for "llama3" the code of
        Llama 3.1, which transformers has too.
    """
    rates = rotary_rates(dim, max_wavelength)
    kind = scaling["rope_type"]
    if kind == "linear":
        return ScaledRates(rates / scaling["factor"], 1.0)
    if kind == "llama3":
        return ScaledRates(_llama3(rates, scaling), 1.0)
    if kind == "yarn":
        rates = _yarn(rates, dim, max_wavelength, scaling)
        return ScaledRates(rates, _attention_factor(scaling))
    return ScaledRates(rates, 1.0)


def _llama3(rates, scaling):
    """Slow channels are slowed down, fast ones not, those between by a part."""
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = scaling[_LENGTH] * rates / (2 * math.pi)  # over the original length
    if low == high:
        kept = turns >= low
    else:
        kept = np.clip((turns - low) / (high - low), 0, 1)
    return kept * rates + (1 - kept) * rates / scaling["factor"]


def _yarn(rates, dim, max_wavelength, scaling):
    """As there, but what is between is counted in channels, not in turns."""

    def channel(turns):
        """Where the channels turn so often over the original length."""
        wavelength = scaling[_LENGTH] / (2 * math.pi * turns)
        return dim * math.log(wavelength) / (2 * math.log(max_wavelength))

    first = channel(scaling.get("beta_fast") or 32)
    last = channel(scaling.get("beta_slow") or 1)
    if scaling.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dim - 1)
    if first == last:
        last += 0.001
    slowed = np.clip((np.arange(dim // 2) - first) / (last - first), 0, 1)
    return (1 - slowed) * rates + slowed * rates / scaling["factor"]


def _attention_factor(scaling):
    if (given := scaling.get("attention_factor")) is not None:
        return float(given)
    factor = scaling["factor"]
    mscale, mscale_all_dim = scaling.get("mscale"), scaling.get("mscale_all_dim")
    if mscale and mscale_all_dim:
        return _mscale(factor, mscale) / _mscale(factor, mscale_all_dim)
    return _mscale(factor)


def _mscale(factor, weight=1.0):
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0


def check_scaling(scaling):
    """Return a scaling with its type under `rope_type`, or raise ValueError.

    Args:
        scaling: A dict with `rope_type` (or `type`, as older configs have it), and the
            keys that go with it. A key that is None counts as left out.
    """
    if not isinstance(scaling, dict):
        raise ValueError(f"`scaling` must be a dict. Received: scaling={scaling!r}")
    rest = {
        key: value.item() if isinstance(value, np.generic) else value
        for key, value in scaling.items()
        if value is not None
    }
    kinds = [str(rest.pop(key)) for key in ("rope_type", "type") if key in rest]
    if "dynamic" in kinds:
        raise ValueError(
            "`scaling` cannot be of the type 'dynamic': its rows would depend on the "
            "length of the whole text, so that the keys in a cache would be wrong as "
            f"soon as it grows. Received: scaling={scaling!r}"
        )
    if len({*kinds}) != 1 or kinds[0] not in _KEYS:
        raise ValueError(
            "`scaling` must have as its `rope_type` one of "
            f"{', '.join(map(repr, _KEYS))}. Received: scaling={scaling!r}"
        )
    [kind, *_] = kinds
    (needed, possible), flags = _KEYS[kind], _FLAGS.get(kind, ())
    possible = (*possible, *flags)
    missing = [key for key in needed if key not in rest]
    unknown = [key for key in rest if key not in (*needed, *possible)]
    if missing or unknown:
        found = [f"lacks {key}" for key in missing]
        found += [f"has no use for {_named(key)}" for key in unknown]
        raise ValueError(
            f"`scaling` of the type {kind!r} {', '.join(found)}. It must have "
            f"{', '.join(needed) or 'no other key'}"
            f"{', and may have ' + ', '.join(possible) if possible else ''}. "
            f"Received: scaling={scaling!r}"
        )
    for key, value in rest.items():
        _check_value(key, value, key in flags, scaling)
    if kind == "llama3" and rest["low_freq_factor"] > rest["high_freq_factor"]:
        raise ValueError(
            "`scaling` must have a `low_freq_factor` up to its `high_freq_factor`. "
            f"Received: scaling={scaling!r}"
        )
    return {"rope_type": kind, **rest}


def _named(key):
    """Return a key, with the argument of the layer that it is for, if there is one."""
    argument = _ARGUMENTS.get(key)
    return f"{key} (which is for `{argument}`)" if argument else str(key)


def _check_value(key, value, is_flag, scaling):
    least = 1 if key == "factor" else _LEAST
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    good = isinstance(value, bool) if is_flag else number and least <= value <= _MOST
    if not good:
        allowed = "True or False" if is_flag else f"a number in {least:g}..{_MOST:g}"
        raise ValueError(
            f"`scaling` must have {allowed} as its `{key}`. "
            f"Received: scaling={scaling!r}"
        )
