"""The encoders of the family, each with its peer and with what it owes."""

import functools
import importlib
from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np

from benchmarks.calls import truth
from benchmarks.reasons import Cannot
from keras_pe import (
    AxialPositionalEncoding,
    LearnedPositionalEncoding,
    PositionalEncoding,
    RotaryEmbedding,
)
from keras_pe.scaling import check_scaling, scaled_rates

ROWS, WIDTH, DIM = 4096, 512, 64
LLAMA_WAVELENGTH = 500_000.0
LLAMA = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}


class Member(NamedTuple):
    """An encoder, its peer, and the inputs that both get.

    To make either is to call it with `dtype`, a policy: that gives a function of `x`
    and of what says where `x` starts.
    """

    name: str
    ours: Callable
    peer: str
    theirs: Callable
    shape: tuple  # of the input that is timed
    unknown: tuple  # the axes whose size a traced function does not know
    ready: tuple  # the shape of a ready tensor to add
    probe: Callable  # gives the input in which errors are sought
    true: Callable  # the exact result, of that input and its first position
    place: Callable  # keywords that say where it starts, of a shape and a position
    rows: int | None = None  # how many there are of a learned table


def nothing(*shape):
    """Return what makes zeros, beside which what is added is seen best."""
    return functools.partial(np.zeros, shape, "float32")


def numbers(shape):
    """Return numbers in -1..1 that bfloat16 holds: zeros do not turn."""
    return np.random.default_rng(0).integers(-128, 129, shape).astype("float32") / 128


def from_a_start(shape, first):
    return {"start_index": np.int32(first)} if first else {}


def from_positions(shape, first):
    return {"positions": np.arange(first, first + shape[1], dtype="int32")}


def on_a_grid(shape, first):
    """Return the places on a grid, which takes no start."""
    places = np.moveaxis(np.indices(shape[1:-1], "int32"), 0, -1)
    return {"positions": places + np.int32(first)} if first else {}


def added(make):
    """Return what makes a peer, used as its documentation says: added to `x`."""

    def make_added(dtype):
        encoding = make(dtype=dtype)
        return lambda x, **at: x + encoding(x, **at)

    return make_added


def keras_hub(name, module="layers", **arguments):
    """Return what makes a layer of keras-hub."""

    def make(dtype):
        layers = importlib.import_module(f"keras_hub.{module}")
        return getattr(layers, name)(dtype=dtype, **arguments)

    return make


def roformer(dtype):
    """Return the rotation inside keras-hub's RoFormer, which takes a list."""
    module = "src.models.roformer_v2.roformer_v2_attention"

    def call(x, **at):
        if at:
            raise Cannot("it takes no positions and no start")
        name, width = "RoformrPositionalEmbedding", x.shape[-1]
        return keras_hub(name, module, output_dim=width)(dtype)([x])

    return call


def positional_encodings_2d(dtype):
    from positional_encodings.tf_encodings import TFPositionalEncoding2D

    layer = TFPositionalEncoding2D(WIDTH)

    def call(x, **at):
        if at:
            raise Cannot("it takes no positions and no start")
        if None in x.shape[1:]:
            raise Cannot("it takes no unknown size")
        return x + keras.ops.cast(layer(x), x.dtype)

    return call


def with_rows(make):
    """Return what makes a learned layer, and gives it the rows of `learned_rows`."""

    def make_built(dtype):
        layer = make(dtype=dtype)
        layer.build((None, None, WIDTH))
        layer.set_weights([learned_rows()])
        return layer

    return make_built


@functools.cache
def learned_rows():
    return np.random.default_rng(0).uniform(-1, 1, (ROWS, WIDTH)).astype("float32")


def exact(x, first):
    return x + truth(tuple(range(first, first + x.shape[1])), x.shape[-1])


def exact_grid(x, first):
    tall, wide = (tuple(range(first, first + size)) for size in x.shape[1:3])
    half = x.shape[-1] // 2
    tall, wide = truth(tall, half)[:, None], truth(wide, half)[None]
    rows = np.broadcast_arrays(tall, wide)
    return x + np.concatenate(rows, axis=-1)


def exact_learned(x, first):
    return x + learned_rows()[first : first + x.shape[1]]


def turned(x, first, layout="halves", scaling=None, max_wavelength=10_000.0):
    """Return `x` with its pairs of features turned, pair by pair, in float64.

    The rates of a scaling are those of `keras_pe.scaling`, which the tests hold to
    those of transformers; what is done with them shares nothing with the layer.
    """
    positions, dim = range(first, first + x.shape[1]), x.shape[-1]
    if scaling is None:
        rows = truth(tuple(positions), dim)
        sines, cosines = rows[:, 0::2], rows[:, 1::2]
    else:
        rates, factor = scaled_rates(dim, max_wavelength, check_scaling(scaling))
        angles = np.outer(positions, rates)
        sines, cosines = factor * np.sin(angles), factor * np.cos(angles)
    result, apart = np.empty(x.shape), layout == "halves"
    for pair in range(dim // 2):
        i, j = (pair, pair + dim // 2) if apart else (2 * pair, 2 * pair + 1)
        sine, cosine = sines[:, pair, None], cosines[:, pair, None]
        result[..., i] = x[..., i] * cosine - x[..., j] * sine
        result[..., j] = x[..., j] * cosine + x[..., i] * sine
    return result


def member(name, ours, peer, theirs, **rest):
    """Return a member that adds to embeddings, but for the `rest`."""
    kind = {
        "shape": (8, 2048, WIDTH),
        "unknown": (0, 1),
        "ready": (2048, WIDTH),
        "probe": nothing(1, ROWS, WIDTH),
        "true": exact,
        "place": from_a_start,
    }
    return Member(name, ours, peer, theirs, **{**kind, **rest})


def grid(name, unknown):
    return member(
        name,
        AxialPositionalEncoding,
        "positional-encodings `TFPositionalEncoding2D`",
        positional_encodings_2d,
        shape=(8, 32, 64, WIDTH),
        unknown=unknown,
        ready=(32, 64, WIDTH),
        probe=nothing(1, ROWS, 2, WIDTH),
        true=exact_grid,
        place=on_a_grid,
    )


def learned(name, place):
    return member(
        name,
        with_rows(functools.partial(LearnedPositionalEncoding, max_length=ROWS)),
        "keras-hub `PositionEmbedding`",
        added(with_rows(keras_hub("PositionEmbedding", sequence_length=ROWS))),
        true=exact_learned,
        place=place,
        rows=ROWS,
    )


def rotary(name, peer, theirs, **arguments):
    return member(
        name,
        functools.partial(RotaryEmbedding, **arguments),
        peer,
        theirs,
        shape=(8, 2048, 8, DIM),
        ready=(8, 2048, 8, DIM),
        probe=functools.partial(numbers, (1, ROWS, 2, DIM)),
        true=functools.partial(turned, **arguments),
    )


MEMBERS = (
    member(
        "`PositionalEncoding`",
        PositionalEncoding,
        "keras-hub `SinePositionEncoding`",
        added(keras_hub("SinePositionEncoding")),
    ),
    grid("`AxialPositionalEncoding`", unknown=(0, 1, 2)),
    grid("`AxialPositionalEncoding`, size known", unknown=()),
    learned("`LearnedPositionalEncoding`", from_a_start),
    learned("`LearnedPositionalEncoding`, `positions` given", from_positions),
    rotary(
        "`RotaryEmbedding`, halves",
        "keras-hub `RotaryEmbedding`",
        keras_hub("RotaryEmbedding"),
    ),
    rotary(
        "`RotaryEmbedding`, interleaved",
        "inside keras-hub: `RoformrPositionalEmbedding`",
        roformer,
        layout="interleaved",
    ),
    rotary(
        "`RotaryEmbedding`, Llama 3",
        "inside keras-hub: `LlamaRotaryEmbedding`",
        keras_hub(
            "LlamaRotaryEmbedding",
            "src.models.llama.llama_rotary_embedding",
            max_wavelength=LLAMA_WAVELENGTH,
            frequency_adjustment_factor=LLAMA["factor"],
            low_freq_factor=LLAMA["low_freq_factor"],
            high_freq_factor=LLAMA["high_freq_factor"],
            pretraining_sequence_length=LLAMA["original_max_position_embeddings"],
        ),
        scaling=LLAMA,
        max_wavelength=LLAMA_WAVELENGTH,
    ),
    rotary(
        "`RotaryEmbedding`, YaRN",
        'keras-hub `RotaryEmbedding(rope_type="yarn")`',
        keras_hub(
            "RotaryEmbedding",
            rope_type="yarn",
            scaling_factor=YARN["factor"],
            original_max_position_embeddings=YARN["original_max_position_embeddings"],
        ),
        scaling=YARN,
    ),
)
