"""Strategies: the sizes, numbers and positions that generated tests draw."""

import math

import keras
import ml_dtypes
import numpy as np
from generated import BACKEND, WAYS
from hypothesis import strategies as st
from keras import ops

LEAST, MOST = -(2**31), 2**31 - 1  # the positions that there are
INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
POLICIES = [*FLOATS, "mixed_float16", "mixed_bfloat16"]
# JAX has no 64 bits unless it is asked to, and of these torch has no arithmetic.
NO_TENSORS = {
    "jax": ("int64", "uint64", "float64"),
    "torch": ("uint16", "uint32", "uint64"),
}.get(BACKEND, ())
EDGES = (0, 1, 255, 256, 257, 2**15, 2**24 + 1, 2**30 - 1, 2**30, MOST, -1, LEAST)
BLOCKS = (255, 256, 257, 512, 513)


def seldom(strategy, often):
    """A strategy that is in place of `often` once in five times."""
    return st.integers(0, 4).flatmap(lambda n: strategy if n == 3 else often)


def ways():
    return st.sampled_from(WAYS)


@st.composite
def sizes(draw, least, most):
    """A size, as likely below ten as between a tenth of `most` and that."""
    bits = draw(st.integers(0, (most - least + 1).bit_length() - 1))
    return min(most, least - 1 + draw(st.integers(2**bits, 2 ** (bits + 1) - 1)))


def lengths(most=5000):
    blocks = [size for size in BLOCKS if size <= most]
    return seldom(st.sampled_from(blocks), sizes(1, most)) if blocks else sizes(1, most)


@st.composite
def emptied(draw, shape):
    """The same sizes, or once in 16 times with a 0 among them."""
    shape = list(shape)
    if shape and draw(st.integers(0, 15)) == 5:
        shape[draw(st.integers(0, len(shape) - 1))] = 0
    return tuple(shape)


@st.composite
def shapes(draw, *, ranks=(3, 5), widths=(1, 300), most=2**19):
    """The shape of an input: batch, axes between, steps, features."""
    time, width = draw(lengths()), draw(sizes(*widths))
    middle = draw(st.lists(sizes(1, 4), max_size=ranks[1] - 3, min_size=ranks[0] - 3))
    batch = draw(sizes(1, 8))
    while batch * math.prod(middle) * time * width > most:
        # Each size reaches its most, but not all of them at once.
        batch, middle, width = min(batch, 2), [min(n, 1) for n in middle], width // 2
        if batch * time * width > most and width == widths[0]:
            break
        width = max(width, widths[0])
    return (*draw(emptied((batch, *middle, time))), width)


def dtype_of(policy):
    """Return the dtype of what a layer under a policy gives."""
    dtype = policy.removeprefix("mixed_")
    return "float32" if BACKEND == "jax" and dtype == "float64" else dtype


def numbers(shape, dtype="float32", seed=0):
    """Return zeros for the seed 0, else random numbers, as an array."""
    if seed == 0:
        return np.zeros(shape, dtype_called(dtype))
    drawn = np.random.default_rng(seed).normal(size=shape)
    return np.asarray(drawn).astype(dtype_called(dtype))


def dtype_called(name):
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def exact(array):
    """Return an array as float64, which holds all of its numbers if they are near."""
    return np.asarray(array).astype("float64")


@st.composite
def wavelengths(draw, least=1e-3):
    """The usual one, others of models, and any other."""
    powers = st.integers(round(math.log2(least)), 40)
    other = st.builds(lambda power, part: part * 2.0**power, powers, st.floats(1, 2))
    return draw(st.one_of(st.just(10000.0), st.sampled_from([100, 5e5]), other))


def layouts():
    return st.sampled_from(["interleaved", "halves"])


class Given:
    """Positions or starts as they are handed over, and as what they are to be read."""

    def __init__(self, given, places):
        self.given, self.places = given, places

    def __repr__(self):
        kind = getattr(self.given, "dtype", type(self.given).__name__)
        few = self.places if self.places.size < 9 else f"... {self.places.shape}"
        return f"<{kind} {few}>"

    @property
    def is_tensor(self):
        return ops.is_tensor(self.given)


@st.composite
def positions(draw, shape, first=LEAST, last=MOST, floats=True):
    """Positions of that shape within bounds, in all dtypes, as lists, arrays, tensors.

    Among floats are NaN and infinite ones.
    """
    form = draw(st.sampled_from(["array", "tensor", "list"]))
    allowed = NO_TENSORS if form == "tensor" else ()
    names = [*INTEGERS, *(FLOATS if floats else [])]
    name = draw(st.sampled_from([name for name in names if name not in allowed]))
    dtype = dtype_called(name)
    low, high = limits(name, first, last)
    elements = st.one_of(
        st.integers(max(low, -99), min(high, 99)),
        st.integers(low, high),
        st.sampled_from([edge for edge in (*EDGES, low, high) if low <= edge <= high]),
    )
    if name in FLOATS:
        parts = st.floats(max(low, -999), min(high, 999), width=16)
        special = [math.nan, math.inf, -math.inf]
        special = st.sampled_from([*special, max(low, high - 0.5)])
        wide = st.floats(low, high)
        if BACKEND == "jax" and form != "tensor":
            # There, those of 64 bits are read as float32.
            wide = st.floats(max(low, -(2**20)), min(high, 2**20))
        elements = st.one_of(elements, parts, wide, special)
    pool = draw(st.lists(elements, min_size=1, max_size=5))
    count = math.prod(shape)
    if draw(st.booleans()):
        flat = np.arange(count) + (0 if not math.isfinite(pool[0]) else pool[0])
        flat = np.clip(flat, low, high)
    else:
        chosen = np.random.default_rng(draw(st.integers(0, 99))).integers(
            0, len(pool), count
        )
        flat = np.array(pool)[chosen]
    array = flat.astype(dtype).reshape(shape)
    # A type with few bits may have rounded a number beyond the bounds.
    beyond = np.isfinite(exact(array))
    beyond &= (exact(array) < first) | (exact(array) > last)
    array[beyond] = 0
    places = exact(array)
    if BACKEND == "jax" and form != "tensor" and not whole(places):
        places = places.astype("float32").astype("float64")
    if form == "list" and count:
        array = (array if name in INTEGERS else exact(array)).tolist()
    elif form == "tensor":
        array = ops.convert_to_tensor(array, name)
    return Given(array, places)


def whole(places):
    return bool(np.all(np.isfinite(places) & (places == np.rint(places))))


def limits(name, first, last):
    """Return the first and last integer of a dtype within other bounds."""
    if name in INTEGERS:
        info = np.iinfo(name)
        return max(first, int(info.min)), min(last, int(info.max))
    most = 65504 if name == "float16" else MOST
    return max(first, -most), min(last, most)


@st.composite
def starts(draw, batch, time, last=MOST, first=LEAST, of_each=True):
    """A start from which there are so many steps: `Given`, with places of all steps."""
    last = last - max(time - 1, 0)
    forms = ["int", "numpy", "0-d array", *["tensor"] * 3]
    if of_each:
        forms += ["array of each", "tensor of each", "list of each", "tensor of all"]
    form = draw(st.sampled_from(forms))
    allowed = NO_TENSORS if "tensor" in form else ()
    names = [name for name in INTEGERS if name not in allowed]
    name = draw(st.sampled_from(names))
    low, high = limits(name, first, last)
    values = st.one_of(
        st.integers(max(low, 0), min(high, 99)) if high >= max(low, 0) else st.just(0),
        st.integers(low, high),
        st.sampled_from([edge for edge in (*EDGES, low, high) if low <= edge <= high]),
    )
    size = 1 if form == "tensor of all" else batch
    if "of" in form:
        array = np.array(draw(st.lists(values, min_size=size, max_size=size)), name)
    else:
        array = np.array(draw(values), name)
    given = {
        "int": lambda: int(array),
        "numpy": lambda: array[()],
        "0-d array": lambda: array,
        "list of each": lambda: array.tolist() if size else array,
        "array of each": lambda: array,
    }.get(form, lambda: ops.convert_to_tensor(array, name))()
    return Given(given, array.astype("int64")[..., None] + np.arange(time))


def is_known(start):
    """Return whether a start is a plain number."""
    return not start.is_tensor and np.ndim(start.given) == 0


def sampled(time, count=64):
    """Return some steps: the first and last, those where blocks end, and others."""
    if time <= count:
        return np.arange(time)
    edges = [0, 1, time - 2, time - 1]
    edges += [edge + n for edge in range(256, time, 256) for n in (-1, 0)]
    edges = edges[: count // 2]
    rest = np.random.default_rng(0).integers(0, time, count - len(edges))
    return np.unique([*edges, *rest])


keras_dtype = keras.backend.standardize_dtype


# What an encoder is called with.


class Steps:
    """How a call says where its steps are, and where they are, in truth.

    `places` is `(time,)` or `(batch, time)`, NaN where there is no row.
    """

    def __init__(self, arguments, places, is_refused=False, is_known=False):
        self.arguments, self.places = arguments, places
        self.is_refused, self.is_known = is_refused, is_known

    def __repr__(self):
        with np.printoptions(threshold=8):
            return f"<{self.arguments}, refused: {self.is_refused}>"


@st.composite
def steps(draw, batch, time, first=LEAST, last=MOST, floats=True, of_each=True):
    """`Steps` that a layer takes, whose positions lie within bounds.

    `floats` says whether it takes those too, `of_each` whether starts `(batch,)`.
    """
    kind = draw(st.sampled_from(["positions", "start", "start", "none"]))
    if kind == "none":
        return Steps({}, np.arange(time, dtype=float), is_known=True)
    if kind == "start":
        start = draw(starts(batch, time, last, first, of_each))
        return Steps(
            {"start_index": start.given}, exact(start.places), is_known=is_known(start)
        )
    shape = draw(st.sampled_from([(time,), (batch, time), (1, time)]))
    given = draw(positions(shape, first, last, floats))
    return Steps({"positions": given.given}, given.places)


def wrong_steps(batch, time, first=LEAST, last=MOST):
    """`Steps` that a layer refuses."""
    nowhere = np.full(time, np.nan)
    plain = [
        {name: value}
        for name, values in {
            "positions": [True, "a", [1j], [[0], [0, 1]], np.array(["a"] * time)],
            "start_index": [1.5, True, "1", None, [0.0] * batch, [[0]], 2**70],
        }.items()
        for value in values
    ]
    plain.append({"positions": np.zeros(time, "int32"), "start_index": 1})
    sizes = [(time + 1,), (batch + 2, time), (batch, time, 1), (batch, time + 2), ()]
    # One step is never taken for all.
    sizes += [(1,), (batch, 1)] if time > 1 else []
    shaped = [("positions", size) for size in sizes]
    shaped += [("start_index", size) for size in [(batch + 2,), (batch, 1)]]
    of_shapes = st.builds(
        lambda which, form: Steps(
            {which[0]: form(np.zeros(which[1], "int32"))}, nowhere, True
        ),
        st.sampled_from(shaped),
        st.sampled_from([np.asarray, ops.convert_to_tensor]),
    )
    far = [_far_starts(batch, time, first, last)]
    far += [_far_positions(batch, time, first, last)] if time else []
    plain = st.sampled_from(plain).map(lambda given: Steps(given, nowhere, True))
    # Those that a running graph has to find are the harder ones.
    kinds = [plain, *[of_shapes] * 2, *far * 2]
    return st.sampled_from(kinds).flatmap(lambda kind: kind)


@st.composite
def _far_positions(draw, batch, time, first, last):
    far = draw(_far(first, last) | st.just(2.0**31))
    places = np.zeros(time)
    places[draw(st.integers(0, time - 1))] = far
    if isinstance(far, float):
        dtype = draw(st.sampled_from(["float32", "float64"]))
    else:
        dtype = draw(st.sampled_from(_holding([far])))
    array = places.astype(dtype)
    forms = [np.asarray, lambda array: array.tolist()]
    if dtype not in NO_TENSORS:
        forms.append(ops.convert_to_tensor)
    given = draw(st.sampled_from(forms))(array)
    return Steps({"positions": given}, _on_rows(places), True)


@st.composite
def _far_starts(draw, batch, time, first, last):
    far = draw(_far(first, last) | _far(first, last - max(time - 1, 0)))
    kinds = [int, np.asarray, ops.convert_to_tensor]
    kind = draw(st.sampled_from(kinds))
    dtypes = [name for name in _holding([far]) if name not in NO_TENSORS]
    of_each = batch and draw(st.booleans())
    array = np.array([far, *[0] * (batch - 1)] if of_each else far, object)
    if kind is int or not dtypes:
        given = array.tolist()
    else:
        array = array.astype(draw(st.sampled_from(dtypes)))
        given = kind(array)
    places = exact(array)[..., None] + np.arange(time)
    return Steps({"start_index": given}, _on_rows(places), True)


def _far(first, last):
    near = [first - 1, last + 1, last + 2, first - 300]
    return st.sampled_from([*near, 2**31, -(2**31) - 1, 2**32, 2**40, -(2**40)]).filter(
        lambda place: not first <= place <= last
    )


def _holding(numbers):
    """Return the integer dtypes that hold all of these."""
    low, high = min(numbers), max(numbers)
    infos = {name: np.iinfo(name) for name in INTEGERS}
    return [n for n, info in infos.items() if info.min <= low and high <= info.max]


def _on_rows(places):
    """Return places, NaN where int32 holds none."""
    return np.where((places >= LEAST) & (places <= MOST), places, np.nan)
