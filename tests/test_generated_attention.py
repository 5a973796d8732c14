"""Biases and attention, beside slow arithmetic, on inputs that are drawn."""

import math
from typing import NamedTuple

import numpy as np
import pytest
from drawn import (
    POLICIES,
    Steps,
    dtype_called,
    emptied,
    exact,
    keras_dtype,
    numbers,
    positions,
    seldom,
    sizes,
    steps,
    ways,
    wrong_steps,
)
from generated import (
    BACKEND,
    COMPARED,
    REFUSED,
    assert_near,
    call,
    compared,
    generated,
    outcome,
    to_numpy,
)
from hypothesis import strategies as st
from keras import ops
from truth import attend, bucket_of, heads_of, slopes_of, turn

import keras_pe

# Keras's, of attention with one key.
pytestmark = pytest.mark.filterwarnings("ignore:You are using a softmax:UserWarning")
FARTHEST = 2**30
NOTHING = Steps({}, None, is_known=True)


def split(arguments):
    """Return the tensors among arguments, and the others."""
    tensors = {n: v for n, v in arguments.items() if ops.is_tensor(v)}
    return tensors, {n: v for n, v in arguments.items() if n not in tensors}


# Biases.


class Bias(NamedTuple):
    """A call of a bias. What is refused may be any part."""

    way: str
    unknown: bool
    arguments: dict
    given: dict  # the inputs
    query: Steps
    key: Steps | None  # where that has places of its own
    is_refused: bool
    seed: int

    def run(self, kind, weights=()):
        def attempt():
            layer = kind(**self.arguments)
            if weights:
                layer.build((None, None))
                layer.set_weights(weights)
            given = {**self.given, **self.query.arguments}
            if self.key is not None:
                given |= self.key.arguments
            if self.way != "eager":
                for name, side in self.given.items():
                    if isinstance(side, np.ndarray):
                        given[name] = ops.convert_to_tensor(side)
            tensors, plain = split(given)
            axes = {name: range(len(t.shape)) for name, t in tensors.items()}
            return call(
                self.way,
                lambda **tensors: layer(**plain, **tensors),
                tensors,
                axes if self.unknown else {},
            )

        return outcome(self.way, self.refused, attempt)

    @property
    def refused(self):
        parts = (self.query, self.key or NOTHING)
        return self.is_refused or any(part.is_refused for part in parts)

    def distances(self):
        """Return how far each query is after each key, NaN where one is too far."""
        sides = [self.query.places, (self.key or self.query).places]
        near = [np.where(np.abs(side) <= FARTHEST, side, np.nan) for side in sides]
        return near[0][..., :, None] - near[1][..., None, :]


@st.composite
def biases(draw, arguments, bad, floats=True):
    arguments = {**arguments, "num_heads": draw(sizes(1, 40))}
    arguments["dtype"] = draw(st.sampled_from(POLICIES))
    most = 2**17 // arguments["num_heads"]
    batch, query = draw(sizes(1, 8)), draw(sizes(1, min(most, 5000)))
    same = draw(st.booleans())
    if same:
        query = min(query, math.isqrt(most))
    key = query if same else draw(sizes(1, min(5000, most // query)))
    batch, query, key = draw(emptied((batch, query, key)))
    key = query if same else key
    rest = tuple(draw(st.lists(sizes(1, 3), max_size=2)))
    dtype = draw(st.sampled_from(["float32", "int32", "float16", "bool"]))
    given = {"query": np.zeros((batch, query, *rest), dtype)}
    if not same:
        given["key"] = np.zeros((batch, key, *rest), dtype)
    where = draw(steps(batch, query, floats=floats))
    own = None
    if not same or draw(st.booleans()):
        shape = draw(st.sampled_from([(key,), (batch, key), (1, key)]))
        places = draw(positions(shape, floats=floats))
        own = Steps({"key_positions": places.given}, places.places)
        if not same and draw(st.booleans()):
            own = Steps({}, np.arange(key, dtype=float))
    case = Bias(
        draw(ways()),
        draw(st.sampled_from([True, True, False])),
        arguments,
        given,
        where,
        own,
        False,
        draw(st.integers(0, 9)),
    )
    defect = draw(
        seldom(st.sampled_from(["argument", "side", *["steps"] * 4]), st.none())
    )
    if defect == "argument":
        bad = {"num_heads": [0, -1, 2.5, True, "8", None], **bad}
        name = draw(st.sampled_from(sorted(bad)))
        change = {name: draw(st.sampled_from(bad[name]))}
        return case._replace(arguments={**arguments, **change}, is_refused=True)
    if defect == "side":
        other = {"key": np.zeros((batch + 1, key))}
        wrong = draw(st.sampled_from([{"query": np.zeros(3)}, other, {"query": [[1]]}]))
        return case._replace(given={**given, **wrong}, is_refused=True)
    if defect == "steps":
        wrong = draw(wrong_steps(batch, query))
        if "start_index" not in wrong.arguments and draw(st.booleans()):
            wrong = draw(wrong_steps(batch, key))
            if "start_index" in wrong.arguments:
                return case._replace(query=wrong) if key == query else case
            wrong.arguments = {"key_positions": wrong.arguments["positions"]}
            return case._replace(key=wrong)
        return case._replace(query=wrong)
    return case


@generated(biases({}, {}), share=1.5)
def test_alibi(case):
    result = case.run(keras_pe.ALiBi)
    if result is None:
        return REFUSED
    assert keras_dtype(result.dtype) == "float32"
    distance = np.abs(case.distances())
    slopes = np.array(slopes_of(case.arguments["num_heads"]))[:, None, None]
    distance = distance[..., None, :, :]
    expected = -slopes * distance
    expected = expected if expected.ndim == 4 else expected[None]
    # float32 of the distance, of what is behind points, of the slope and of all.
    most = slopes * (4 * 2.0**-24 * distance + 2.0**-22)
    assert_near(to_numpy(result), expected, most, case.refused)
    return REFUSED if case.refused else compared(expected)


@st.composite
def relative(draw):
    bidirectional = draw(st.booleans())
    buckets = draw(sizes(2, 64))
    buckets += buckets % 2 if bidirectional else 0
    least = buckets // (4 if bidirectional else 2) + 1
    arguments = {
        "num_buckets": buckets,
        "max_distance": draw(sizes(least, 2**12)),
        "bidirectional": bidirectional,
    }
    bad = {
        "num_buckets": [0, 1, 2.5, True, None, *[buckets + 1] * bidirectional],
        "max_distance": [0, least - 1, 2**20 + 1, 2.5, None],
        "bidirectional": [None, 1, "no"],
        "initializer": ["no such", 3, None],
    }
    return draw(biases(arguments, bad, floats=False))


@generated(relative(), share=1.5)
def test_relative_position_bias(case):
    arguments, weights = {**case.arguments}, []
    if not case.is_refused:
        shape = arguments["num_buckets"], arguments["num_heads"]
        weights = [numbers(shape, seed=1 + case.seed)]
    result = case.run(keras_pe.RelativePositionBias, weights)
    if result is None:
        return REFUSED
    assert keras_dtype(result.dtype) == "float32"
    dtype = arguments["dtype"]
    if "mixed" not in dtype and "16" in dtype:
        # A layer of such a dtype has rounded its weights.
        weights = [exact(weights[0].astype(dtype_called(dtype)))]
    names = ("num_buckets", "max_distance", "bidirectional")
    distance, kinds = case.distances(), [arguments[name] for name in names]
    most = arguments["max_distance"]
    distinct, index = np.unique(
        np.clip(np.nan_to_num(distance), -most, most), return_inverse=True
    )
    buckets = np.array([bucket_of(int(n), *kinds) for n in distinct], int)
    expected = exact(weights[0])[buckets[index.reshape(distance.shape)]]
    expected = np.where(np.isnan(distance)[..., None], np.nan, expected)
    expected = np.moveaxis(expected, -1, -3)
    expected = expected if expected.ndim == 4 else expected[None]
    assert_near(to_numpy(result), expected, 0, case.refused)
    return REFUSED if case.refused else compared(expected)


# Attention.


class Attention(NamedTuple):
    """A layer, and how it is asked."""

    way: str
    unknown: bool
    heads: int
    dim: int
    width: int
    batch: int
    rotary: dict | None
    value_dim: int | None
    seed: int
    is_refused: bool = False

    def make(self):
        """Return the layer, and its weights in float64."""
        rotary = self.rotary
        if rotary is not None:
            rotary = keras_pe.RotaryEmbedding(**rotary)
        layer = keras_pe.MultiHeadAttention(
            self.heads, self.dim, rotary=rotary, value_dim=self.value_dim
        )
        shape = (None, None, self.width)
        layer.build(shape, shape)
        weights = [
            numbers(weight.shape, seed=i + 1) / math.sqrt(self.width)
            for i, weight in enumerate(layer.weights)
        ]
        layer.set_weights(weights)
        return layer, [exact(weight) for weight in weights]

    def side(self, time, seed):
        return numbers((self.batch, time, self.width), seed=self.seed + seed)

    def ask(self, layer, arguments):
        """Return what a call gives, of arguments that are arrays or tensors."""

        def as_tensor(value):
            if isinstance(value, np.ndarray):
                return ops.convert_to_tensor(value)
            return value

        if self.way != "eager":
            arguments = {name: as_tensor(value) for name, value in arguments.items()}
        cache = arguments.pop("cache", None)
        tensors, plain = split(arguments)
        axes = {name: range(len(t.shape)) for name, t in tensors.items()}
        for name in ("query", "value", "key"):
            axes[name] = (0, 1)
        # Heads, if there are.
        for name in ("bias", "attention_mask"):
            if name in tensors:
                axes[name] = [n for n in axes[name] if n not in (1,)]
        if cache is not None:
            tensors["cache"] = cache
            axes["cache"] = (0,)
        return call(
            self.way,
            lambda **tensors: layer(**plain, **tensors),
            tensors,
            axes if self.unknown else {},
        )


@st.composite
def layers(draw):
    # Not 1: there Keras 3.15 on TensorFlow adds the bias of a head to a step, where
    # there are as many (`keras.ops.add` takes it for a `bias_add`).
    dim, rotary = draw(sizes(2, 8)), None
    if draw(st.booleans()):
        dim = 2 * dim
        rotary = {"layout": draw(st.sampled_from(["halves", "interleaved"]))}
        if draw(st.booleans()):
            rotary["rotary_dim"] = 2 * draw(sizes(1, dim // 2))
    value_dim = None
    if BACKEND == "tensorflow" and draw(st.booleans()):
        value_dim = draw(sizes(2, 8))  # For which Keras's own layer fails on JAX.
    return Attention(
        way=draw(ways()),
        unknown=draw(st.booleans()),
        heads=draw(sizes(1, 4)),
        dim=dim,
        width=draw(sizes(1, 16)),
        batch=draw(sizes(1, 4)),
        rotary=rotary,
        value_dim=value_dim,
        seed=draw(st.integers(1, 9)),
    )


@st.composite
def masks(draw, shape):
    """A mask: all, none, a part from the left or the right, or any."""
    kind = draw(st.sampled_from(["any", "all", "none", "left", "right"]))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    count = random.integers(0, shape[-1] + 1, (*shape[:-1], 1))
    at = np.broadcast_to(np.arange(shape[-1]), shape)
    return {
        "any": random.integers(0, 3, shape) > 0,
        "all": np.ones(shape, bool),
        "none": np.zeros(shape, bool),
        "left": at >= count,
        "right": at < count,
    }[kind]


@st.composite
def wholes(draw):
    """A layer, and arguments of one call without a cache."""
    layer = draw(layers())
    batch, heads = layer.batch, layer.heads
    query = draw(sizes(1, 12))
    key = query if layer.rotary or draw(st.booleans()) else draw(sizes(1, 12))
    given = {"query": layer.side(query, 0), "value": layer.side(key, 1)}
    if draw(st.booleans()):
        given["key"] = layer.side(key, 2)
    where = NOTHING
    if layer.rotary is not None:
        near = {"first": -(10**6), "last": 10**6}
        where = draw(steps(batch, query, **near, floats=False, of_each=False))
    if layer.rotary is None or draw(st.booleans()):
        shape = draw(st.sampled_from([1, batch])), heads, query, key
        given["bias"] = numbers(shape, seed=layer.seed + 3)
    for name, time in (("query_mask", query), ("value_mask", key), ("key_mask", key)):
        if draw(st.integers(0, 3)) == 1:
            given[name] = draw(masks((batch, time)))
    if draw(st.booleans()):
        leads = [(), (batch,), (batch, 1), (batch, heads)]
        lead = draw(st.sampled_from(leads))
        given["attention_mask"] = draw(masks((*lead, query, key)))
    given["use_causal_mask"] = draw(st.booleans())
    given["return_attention_scores"] = draw(st.booleans())
    defect = draw(seldom(st.just(True), st.just(False)))
    if not defect:
        return layer, given, where
    wrong = {
        "bias": [
            np.zeros((batch, heads, query, key + 1), "float32"),
            np.zeros((batch + 2, heads, query, key), "float32"),
            np.zeros((batch, heads + 1, query, key), "float32"),
            np.zeros((heads, query, key), "float32"),
            np.zeros((1, heads, query, key), "int32"),
        ],
        "attention_mask": [np.ones((batch, query, key + 1)), np.ones(query)],
        "query_mask": [np.ones((batch, query + 1)), np.ones(query)],
        "value_mask": [np.ones((batch + 2, key)), np.ones((batch, key + 1))],
        "key_mask": [np.ones((batch, key + 1)), np.ones((batch, key, 1))],
        "value": [np.ones((batch + 2, key, layer.width), "float32")],
        "positions": [np.zeros(query + 1, "int32"), ["a"] * query, [2**31] * query],
        "start_index": [1.5, "1", None, 2**31 - query + 1],
    }
    name = draw(st.sampled_from(sorted(wrong)))
    change = {name: draw(st.sampled_from(wrong[name]))}
    if name in ("positions", "start_index"):
        where = NOTHING
    return layer._replace(is_refused=True), {**given, **change}, where


@generated(wholes(), share=1.5)
def test_attention_of_a_whole(case):
    asked, given, where = case
    layer, weights = asked.make()
    arguments = {**given, **where.arguments}
    result = outcome(
        asked.way, asked.is_refused, lambda: asked.ask(layer, {**arguments})
    )
    if asked.is_refused:
        if result is not None:
            result = result[0] if isinstance(result, tuple) else result
            assert np.isnan(to_numpy(result)).all()
        return REFUSED
    query, value = given["query"], given["value"]
    q, k, v = (
        heads_of(exact(side), *weights[2 * i : 2 * i + 2])
        for i, side in enumerate((query, given.get("key", value), value))
    )
    if asked.rotary is not None:
        q, k = (
            turn(side, of_heads(where.places), **asked.rotary)[0] for side in (q, k)
        )
    mask = given.get("attention_mask", np.True_)
    mask = mask[:, None] if mask.ndim == 3 else mask
    for name in ("value_mask", "key_mask"):
        if name in given:
            mask = mask & given[name][:, None, None, :]
    if "query_mask" in given:
        mask = mask & given["query_mask"][:, None, :, None]
    if given["use_causal_mask"]:
        mask = mask & np.tril(np.ones((query.shape[1], value.shape[1]), bool))
    bias = exact(given.get("bias", 0))
    output, probabilities = attend(q, k, v, *weights[6:8], bias, mask)
    if given["return_attention_scores"]:
        result, scores = result
        assert_near(to_numpy(scores), probabilities, 1e-5)
    assert_near(to_numpy(result), output, 2e-5)
    return COMPARED


def of_heads(places):
    """Return places that broadcast against `(batch, time, heads)`."""
    return places[..., :, None]


@st.composite
def decodings(draw):
    """A layer, how many slots its cache has, and calls one after the other."""
    layer = draw(layers())
    slots, start, calls = draw(sizes(1, 12)), 0, []
    few = 4 if layer.way == "eager" else 2
    for index in range(draw(st.integers(1, few))):
        # Mostly the next, but steps may be taken anew, or slots be left out.
        start = draw(st.sampled_from([start, start, start, draw(sizes(0, slots))]))
        if start >= slots:
            break
        (time,) = draw(emptied((draw(sizes(1, slots - start)),)))
        kinds = [int, np.int64, np.asarray, ops.convert_to_tensor]
        kind = draw(st.sampled_from(kinds))
        call = {
            "start_index": kind(np.int32(start)),
            "use_causal_mask": draw(st.booleans()),
        }
        if draw(st.booleans()):
            call["value_mask"] = draw(masks((layer.batch, time)))
        if draw(st.booleans()):
            shape = draw(st.sampled_from([1, layer.batch])), layer.heads, time, slots
            call["bias"] = numbers(shape, seed=index + 20)
        if layer.rotary is not None and draw(st.booleans()):
            shape = draw(st.sampled_from([(time,), (layer.batch, time)]))
            places = draw(positions(shape, -(10**6), 10**6, floats=False))
            call["positions"] = places
        calls.append((start, time, call))
        start += time
    wrong = None
    if draw(seldom(st.just(True), st.just(False))) and calls:
        time = draw(sizes(1, slots))
        start = draw(
            st.sampled_from([slots - time + 1, slots, -1, -time, 2**30, 2**31 - 1])
        )
        kind = draw(st.sampled_from([int, np.asarray, ops.convert_to_tensor]))
        wrong = {
            "start_index": kind(np.int32(start)),
            **draw(
                st.sampled_from(
                    [{}, {}, {"start_index": [0] * layer.batch}, {"start_index": 0.5}]
                )
            ),
        }
        wrong = time, wrong
    return layer, slots, calls, wrong


@generated(decodings())
def test_attention_with_a_cache(case):
    asked, slots, calls, wrong = case
    layer, weights = asked.make()
    cache = layer.init_cache(asked.batch, slots)
    held = {name: to_numpy(cache[name]) for name in cache}
    for index, (start, time, given) in enumerate(calls):
        x = asked.side(time, 30 + index)
        arguments = {"query": x, "value": x, "cache": cache, **given}
        places = start + np.arange(time, dtype=float)
        if "positions" in given:
            places = given["positions"].places
            arguments["positions"] = given["positions"].given
        output, cache = asked.ask(layer, arguments)
        q, k, v = (heads_of(exact(x), *weights[2 * i : 2 * i + 2]) for i in range(3))
        if asked.rotary is not None:
            q, k = (turn(side, of_heads(places), **asked.rotary)[0] for side in (q, k))
        written = slice(start, start + time)
        held["key"][:, written], held["value"][:, written] = k, v
        held["mask"][:, written] = given.get("value_mask", True)
        for name, slot in cache.items():
            assert_near(to_numpy(slot), held[name], 1e-5)
        mask = held["mask"][:, None, None, :] > 0
        if given["use_causal_mask"]:
            reach = np.arange(slots) <= start + np.arange(time)[:, None]
            mask = mask & reach
        bias = exact(given.get("bias", 0))
        expected, _ = attend(q, held["key"], held["value"], *weights[6:8], bias, mask)
        assert_near(to_numpy(output), expected, 2e-5)
    if wrong is None:
        return COMPARED
    time, change = wrong
    x = asked.side(time, 50)
    arguments = {"query": x, "value": x, "cache": cache, **change}
    result = outcome(asked.way, True, lambda: asked.ask(layer, arguments))
    if result is not None:
        output, after = result
        assert np.isnan(to_numpy(output)).all()
        for name, slot in after.items():
            assert_near(to_numpy(slot), held[name], 1e-5)
    return COMPARED if calls else REFUSED
