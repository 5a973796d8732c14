"""What layers and functions are to give, by plain arithmetic in float64.

`oracle.py` has the encoding itself. Nothing here is shared with the package.
"""

import functools
import math

import mpmath
import numpy as np
from oracle import exact_rows_fast

# What rounding to a dtype may change, relative to the number; and the least it may.
UNIT = {"float16": 2**-11, "bfloat16": 2**-8, "float32": 2**-24, "float64": 2**-53}
LEAST = {"float16": 2**-25}


# The encoding.


def recipe_angles(position, i, d_model, max_wavelength=10000.0):
    """The recipe, as it stands in tutorials, but in float64."""
    rates = 1 / np.power(max_wavelength, (2 * (i // 2)) / np.float64(d_model))
    return position * rates


def recipe_rows(positions, d_model, layout="interleaved"):
    """The recipe's rows of integers `(n,)`, before they are rounded."""
    rows = recipe_angles(np.asarray(positions)[:, None], np.arange(d_model), d_model)
    rows[:, 0::2] = np.sin(rows[:, 0::2])
    rows[:, 1::2] = np.cos(rows[:, 1::2])
    pairs = [rows[:, 0::2], rows[:, 1::2]]
    return rows if layout == "interleaved" else np.concatenate(pairs, axis=-1)


def rows_at(places, d_model, **kwargs):
    """The encoding of places of any shape, NaN where one is no number."""
    finite = np.isfinite(places)
    distinct, index = np.unique(np.where(finite, places, 0), return_inverse=True)
    rows = exact_rows_fast(distinct.tolist(), d_model, **kwargs)
    rows = rows[index.reshape(places.shape)]
    return np.where(finite[..., None], rows, np.nan)


def error_of_rows(places, dtype, max_wavelength=10000.0, is_table=False):
    """How far rows may be off, `(..., 1)`, before they are rounded to a half type.

    `is_table` says that they may be the recipe's, whose angles are float64.
    """
    size = np.abs(np.where(np.isfinite(places), places, 0))[..., None]
    error = np.where(size < 2**30, 3e-7, 1e-6)
    if dtype == "float64":
        error = np.where(size <= 1e6, 1e-9, error)
    fastest = 1 / min(max_wavelength, 1.0)
    if not np.all(places == np.rint(places)):
        # What is behind the point is known to the 31st bit of a step.
        error = error + fastest * 2.0**-31
    if is_table and max_wavelength >= 1:
        error = error + size * 2.0**-52
    return error


def error_of_sum(dtype, x, rows, error):
    """How far `x + rows` may be, where rows are first rounded to the dtype."""
    unit = UNIT[dtype]
    half = dtype in ("float16", "bfloat16")
    rounded = unit * np.abs(rows) if half else 0
    total = np.abs(x) + np.abs(rows)
    return error + rounded + unit * total + LEAST.get(dtype, 0)


# Positions.


def steps_of(mask):
    """The number of each kept step, as a loop over a mask `(batch, time)`."""
    rows = np.zeros(mask.shape, int)
    for row, kept in zip(rows, mask, strict=True):
        count = 0
        for step, value in enumerate(kept.tolist()):
            count += value != 0
            row[step] = max(count - 1, 0)
    return rows


def segments_of(ids):
    """The number of each step in its segment, as a loop over ids `(batch, time)`."""
    rows = np.zeros(ids.shape, int)
    for row, given in zip(rows, ids, strict=True):
        for step in range(1, len(row)):
            if given[step] == given[step - 1]:
                row[step] = row[step - 1] + 1
    return rows


# The other layers.


def widths_of(d_model, axes):
    """How many channels each of so many axes has: pairs are dealt out in turn."""
    widths = [0] * axes
    for pair in range((d_model + 1) // 2):
        widths[pair % axes] += 2
    # The dealing goes round in order, so that an odd one is the last axis's.
    widths[-1] -= d_model % 2
    return widths


def scaled_rates(dim, base, scaling):
    """Rates of rotary positions and the attention factor, as loops over the papers."""
    kind = scaling and scaling["rope_type"]
    rates, factor = [], 1.0
    for pair in range(dim // 2):
        rate = base ** (-2 * pair / dim)
        if kind == "linear":
            rate = rate / scaling["factor"]
        elif kind == "llama3":
            rate = _llama3_rate(rate, scaling)
        elif kind == "yarn":
            rate = _yarn_rate(rate, pair, dim, base, scaling)
        rates.append(rate)
    if kind == "yarn":
        factor = _yarn_factor(scaling)
    return np.array(rates), factor


def _llama3_rate(rate, scaling):
    length = scaling["original_max_position_embeddings"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    wavelength = 2 * math.pi / rate
    if wavelength < length / high:
        return rate
    if wavelength > length / low:
        return rate / scaling["factor"]
    if low == high:
        return rate
    smooth = (length / wavelength - low) / (high - low)
    return (1 - smooth) * rate / scaling["factor"] + smooth * rate


def _yarn_rate(rate, pair, dim, base, scaling):
    length = scaling["original_max_position_embeddings"]

    def dim_of(rotations):
        return dim * math.log(length / (rotations * 2 * math.pi)) / (2 * math.log(base))

    low = dim_of(scaling.get("beta_fast", 32))
    high = dim_of(scaling.get("beta_slow", 1))
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001
    ramp = min(max((pair - low) / (high - low), 0), 1)
    return rate * (1 - ramp) + rate / scaling["factor"] * ramp


def _yarn_factor(scaling):
    def scale(weight):
        factor = scaling["factor"]
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    if "attention_factor" in scaling:
        return scaling["attention_factor"]
    if scaling.get("mscale") and scaling.get("mscale_all_dim"):
        return scale(scaling["mscale"]) / scale(scaling["mscale_all_dim"])
    return scale(1)


def turn(
    x, places, *, rotary_dim=None, max_wavelength=1e4, layout="halves", scaling=None
):
    """Features `(..., dim)` turned to places `(...)`, and sums of what is multiplied.

    Of one that is not turned that is 0.
    """
    dim = rotary_dim or x.shape[-1]
    kind = scaling and scaling.get("rope_type", scaling.get("type"))
    rates, factor = None, 1.0
    if kind not in (None, "default"):
        scaling = {**scaling, "rope_type": kind}
        rates, factor = scaled_rates(dim, max_wavelength, scaling)
        rows = rows_of_rates(places, rates)
    else:
        rows = rows_at(places, dim, max_wavelength=max_wavelength, layout="halves")
    shape = np.broadcast_shapes(x.shape[:-1], places.shape)
    expected, size = np.broadcast_to(x, (*shape, x.shape[-1])).copy(), np.zeros(x.shape)
    half = dim // 2
    for pair in range(half):
        i, j = (pair, pair + half) if layout == "halves" else (2 * pair, 2 * pair + 1)
        sine, cosine = factor * rows[..., pair], factor * rows[..., pair + half]
        a, b = x[..., i], x[..., j]
        expected[..., i] = a * cosine - b * sine
        expected[..., j] = b * cosine + a * sine
        size[..., i] = size[..., j] = (np.abs(a) + np.abs(b)) * factor
    return expected, size


def rows_of_rates(places, rates):
    """Sines, then cosines, of places times rates, which are taken as they are."""
    finite = np.isfinite(places)
    distinct, index = np.unique(np.where(finite, places, 0), return_inverse=True)
    with mpmath.workdps(80):
        turns = [mpmath.mpf(rate) / (2 * mpmath.pi) for rate in rates]
        bits = np.array([int(turn * 2**192) for turn in turns], object)
    ratios = [float(place).as_integer_ratio() for place in distinct]
    above, below = np.array(ratios, object).reshape(-1, 2, 1).swapaxes(0, 1)
    parts = (above * bits // below) % 2**192 >> (192 - 64)
    angles = parts.astype("uint64").astype("int64") * (math.pi / 2**63)
    rows = np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)
    rows = rows[index.reshape(places.shape)]
    return np.where(finite[..., None], rows, np.nan)


@functools.lru_cache
def slopes_of(num_heads):
    """The slopes of ALiBi, by the recursion in the code of the paper."""
    below = 2 ** (num_heads.bit_length() - 1)
    slopes = [2 ** (-8 * (head + 1) / below) for head in range(below)]
    if below == num_heads:
        return slopes
    return slopes + slopes_of(2 * below)[0::2][: num_heads - below]


@functools.lru_cache(maxsize=2**16)
def bucket_of(distance, num_buckets, max_distance, bidirectional):
    """T5's bucket of a distance, query after key, with logarithms of 50 digits."""
    start = 0
    if bidirectional:
        num_buckets //= 2
        start = num_buckets if distance < 0 else 0
        distance = abs(distance)
    distance = max(distance, 0)
    exact = num_buckets // 2
    if distance < exact:
        return start + distance
    if distance >= max_distance:
        return start + num_buckets - 1
    if exact == 0:
        # With one bucket there is no other.
        return start
    with mpmath.workdps(50):
        part = mpmath.log(mpmath.mpf(distance) / exact)
        part = part / mpmath.log(mpmath.mpf(max_distance) / exact)
        # A whole number is whole, whatever its 45th digit says.
        part = part * (num_buckets - exact) + mpmath.mpf(10) ** -40
        return start + min(exact + int(mpmath.floor(part)), num_buckets - 1)


def heads_of(x, kernel, shift):
    """A projection of `(batch, time, width)` to `(batch, time, heads, dim)`."""
    return np.einsum("btd,dnh->btnh", x, kernel) + shift


def attend(query, key, value, kernel, shift, bias=0, mask=True):
    """The output of attention, and its probabilities `(batch, heads, query, key)`."""
    scores = np.einsum("btnh,bsnh->bnts", query, key) / query.shape[-1] ** 0.5 + bias
    scores = np.where(mask, scores, -1e30)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    probabilities = powers / powers.sum(axis=-1, keepdims=True)
    output = np.einsum("bnts,bsnh->btnh", probabilities, value)
    return np.einsum("btnh,nhd->btd", output, kernel) + shift, probabilities
