"""Nothing, one step, and very many; positions at the ends of what integers hold.

What `tests/test_length.py` asks of `PositionalEncoding`, of its siblings.
"""

import json
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops
from likeness import first_of
from oracle import exact_rows
from processes import run
from small_models import WIDTH, answer, numbers

import keras_pe
from keras_pe import turns
from keras_pe.rates import sinusoid_turns
from keras_pe.rows import Rows

LAST = 2**31 - 1  # position that int32 holds
BACKEND = keras.config.backend()


def biased(layer, bias):
    """Attention with a bias that is made of the same input."""

    def call(x, **kwargs):
        return layer(x, x, bias=bias(x, **kwargs), use_causal_mask=True)

    return call


def attending(**kwargs):
    layer = keras_pe.MultiHeadAttention(2, 4, **kwargs)
    return lambda x, **kwargs: layer(x, x, use_causal_mask=True, **kwargs)


# Each as a call of `(batch, time, 8)`, of which a step knows none after it.
CALLS = {
    "sinusoidal": lambda: keras_pe.PositionalEncoding(),
    "bounded": lambda: keras_pe.PositionalEncoding(max_length=70_000),
    "axial": lambda: keras_pe.AxialPositionalEncoding(),
    "learned": lambda: keras_pe.LearnedPositionalEncoding(max_length=70_000),
    "rotary": lambda: keras_pe.RotaryEmbedding(),
    "scaled": lambda: keras_pe.RotaryEmbedding(
        scaling={"rope_type": "linear", "factor": 3.0}
    ),
    "alibi": lambda: keras_pe.ALiBi(num_heads=2),
    "relative": lambda: keras_pe.RelativePositionBias(num_heads=2),
    "attention": lambda: attending(),
    "turned": lambda: attending(rotary=keras_pe.RotaryEmbedding()),
    "biased": lambda: biased(
        keras_pe.MultiHeadAttention(2, 4), keras_pe.RelativePositionBias(num_heads=2)
    ),
}
BIASES = ("alibi", "relative")
QUICK = ("rotary", "relative", "turned")


def compiled(tf, call, mode, **specs):
    """`call` as it is, or as a function that knows no size, of any argument."""
    if mode == "eager":
        return call
    spec = [tf.TensorSpec((None, None, WIDTH)), *specs.values()]

    @tf.function(input_signature=spec, jit_compile=mode == "XLA")
    def function(x, *args):
        return call(x, **dict(zip(specs, args, strict=True)))

    return function


MODES = [
    "eager",
    pytest.param("graph", marks=pytest.mark.tensorflow),
    pytest.param("XLA", marks=pytest.mark.tensorflow),
]
LONG = pytest.mark.long


@pytest.fixture
def compile_in(request):
    tensorflow = BACKEND == "tensorflow" and request.getfixturevalue("tf")
    return lambda *args, **kwargs: compiled(tensorflow, *args, **kwargs)


# Nothing, and one step.


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        pytest.param(name, mode, marks=[pytest.mark.tensorflow, *marks])
        if mode != "eager"
        else (name, mode)
        for name in CALLS
        for mode in ("eager", "graph", "XLA")
        for marks in [[] if name in QUICK else [LONG]]
    ],
)
def test_nothing_and_one_step(name, mode, compile_in):
    call = CALLS[name]()
    whole = answer(call, numbers(2, 3))
    function = compile_in(call, mode)
    for batch, time in ((0, 3), (2, 0), (0, 0), (0, 1), (1, 1), (2, 1)):
        if batch == time == 0 and name == "attention":
            continue  # of which EinsumDense of Keras makes a batch of 1
        result = answer(function, numbers(2, 3)[:batch, :time])
        if name in BIASES:
            np.testing.assert_array_equal(result, whole[:, :, :time, :time])
        else:
            assert result.shape == (batch, time, WIDTH)
            rows = whole[:batch, :time]
            np.testing.assert_allclose(result, rows, rtol=0, atol=2e-6)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", first_of(BIASES))
def test_nothing_on_one_side_of_a_bias(name, mode, compile_in):
    layer = CALLS[name]()
    whole = answer(layer, numbers(2, 3), numbers(2, 3))
    for queries, keys in ((0, 3), (3, 0), (1, 3), (3, 1), (0, 0)):
        rows = numbers(2, 3)[:, :keys]
        function = compile_in(lambda x: layer(x, rows), mode)  # noqa: B023
        result = answer(function, numbers(2, 3)[:, :queries])
        np.testing.assert_array_equal(result, whole[:, :, :queries, :keys])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rotary", first_of([True, False]))
def test_nothing_and_one_step_with_a_cache(rotary, mode, compile_in):
    """No steps leave a cache as it was, also where a graph does not know of that."""
    rotary = keras_pe.RotaryEmbedding() if rotary else None
    layer = keras_pe.MultiHeadAttention(2, 4, rotary=rotary)
    x = numbers(2, 5)
    whole = answer(layer, x, x, use_causal_mask=True, bias=np.zeros((1, 2, 5, 5)))
    cache = layer.init_cache(2, 6)  # one slot stays empty

    def call(x, start_index=0, **cache):
        return layer(x, x, cache=cache, start_index=start_index, use_causal_mask=True)

    specs = {}
    if mode != "eager":
        import tensorflow as tf

        specs["start_index"] = tf.TensorSpec((), tf.int32)
        for name, slots in cache.items():
            specs[name] = tf.TensorSpec((None, *slots.shape[1:]), slots.dtype)
    function = compile_in(call, mode, **specs)
    start, outputs = 0, []
    for steps in (0, 1, 0, 1, 3, 0):
        given = [ops.convert_to_tensor(start, "int32"), *cache.values()]
        given = dict(zip(("start_index", *cache), given, strict=True))
        given = given if mode == "eager" else {}
        args = [] if given else [ops.convert_to_tensor(start, "int32")]
        args += [] if given else cache.values()
        before = {name: ops.convert_to_numpy(slots) for name, slots in cache.items()}
        output, cache = function(x[:, start : start + steps], *args, **given)
        assert output.shape == (2, steps, WIDTH)
        outputs.append(ops.convert_to_numpy(ops.stop_gradient(output)))
        if not steps:
            for name, slots in before.items():
                found = ops.convert_to_numpy(ops.stop_gradient(cache[name]))
                np.testing.assert_array_equal(found, slots)
        start += steps
    outputs = np.concatenate(outputs, axis=1)
    np.testing.assert_allclose(outputs, whole, rtol=0, atol=2e-6)


# The last positions, and what is beyond them.


def turned_ones(positions):
    rows = exact_rows(positions, WIDTH, layout="halves")
    sine, cosine = np.split(rows, 2, axis=-1)
    return np.concatenate([cosine - sine, cosine + sine], axis=-1)


FAR = {
    "sinusoidal": lambda p: 1 + exact_rows(p, WIDTH),
    "axial": lambda p: 1 + exact_rows(p, WIDTH),
    "rotary": turned_ones,
}


def kinds(name):
    """The arguments that say where a step is, as specs and as values of numbers."""
    given = {"positions": ((None, None), lambda p: [p])}
    if name == "axial":
        return {"positions": ((None, None, 1), lambda p: np.array(p)[None, :, None])}
    given["start_index"] = ((), lambda p: p[0])
    return given


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", first_of(["int64", "int32"]))
@pytest.mark.parametrize("name", FAR)
def test_the_last_positions(name, dtype, mode, compile_in):
    layer = CALLS[name]()
    x = np.ones((1, 4, WIDTH), "float32")
    for steps in (range(LAST - 3, LAST + 1), range(-LAST - 1, -LAST + 3)):
        expected = FAR[name]([*steps])
        for kind, (shape, make) in kinds(name).items():
            value = ops.convert_to_tensor(np.array(make([*steps]), dtype))
            function = in_mode(compile_in, layer, mode, kind, shape, dtype)
            result = answer(function, x, value)
            np.testing.assert_allclose(result[0], expected, rtol=0, atol=3e-6)
            if mode == "eager":
                plain = answer(layer, x, **{kind: make([*steps])})
                np.testing.assert_allclose(plain[0], expected, rtol=0, atol=3e-6)


def in_mode(compile_in, layer, mode, kind, shape, dtype):
    if mode == "eager":
        return lambda x, value: layer(x, **{kind: value})
    import tensorflow as tf

    return compile_in(layer, mode, **{kind: tf.TensorSpec(shape, dtype)})


@pytest.mark.parametrize("name", [*FAR, "turned", *BIASES])
def test_beyond_the_last_position(name):
    layer, x = CALLS[name](), numbers(1, 4)
    for kind, (_, make) in kinds(name).items():
        if name in BIASES and kind == "positions":
            kind = "key_positions"
        wrong = [*range(LAST - 2, LAST + 2)]
        with pytest.raises(
            ValueError, match=rf"4 steps from position {wrong[0]}|lie in"
        ):
            layer(x, **{kind: make(wrong)})


@pytest.mark.tensorflow
@pytest.mark.parametrize("mode", ["graph", "XLA"])
@pytest.mark.parametrize("name", FAR)
def test_beyond_the_last_position_in_a_graph(name, mode, compile_in, tf):
    layer = CALLS[name]()
    x = np.ones((1, 4, WIDTH), "float32")
    wrong = [*range(LAST - 2, LAST + 2)]
    rows = FAR[name](wrong)
    for kind, (shape, make) in kinds(name).items():
        function = in_mode(compile_in, layer, mode, kind, shape, "int64")
        value = tf.constant(make(wrong), "int64")
        if mode == "graph":
            with pytest.raises(tf.errors.InvalidArgumentError, match="takes positions"):
                function(x, value)
            continue
        # A compiler drops the check: rows of NaN, and the right ones.
        result = function(x, value).numpy()[0]
        assert np.isnan(result[-1]).all()
        kept = ~np.isnan(result).any(axis=-1)
        np.testing.assert_allclose(result[kept], rows[kept], rtol=0, atol=3e-6)


# Narrow and unsigned integers.

DTYPES = ("int8", "uint8", "uint64", "int16", "uint16", "uint32")
WRAPPING = [*DTYPES[:3], *(pytest.param(dtype, marks=LONG) for dtype in DTYPES[3:])]


def ends(dtype, name):
    """The first number of four that the dtype, and the layer, have at last."""
    last = (
        2**30 if name in BIASES else 60_000 if name in ("learned", "bounded") else LAST
    )
    return min(np.iinfo(dtype).max, last) - 3


@pytest.mark.parametrize("dtype", WRAPPING)
@pytest.mark.parametrize("name", [name for name in CALLS if name != "attention"])
def test_narrow_integers_do_not_wrap(name, dtype):
    check_narrow(name, dtype, lambda value: value)


@pytest.mark.parametrize("dtype", WRAPPING)
@pytest.mark.parametrize("name", [name for name in CALLS if name != "attention"])
def test_tensors_of_narrow_integers_do_not_wrap(name, dtype):
    if BACKEND == "torch" and dtype.startswith("uint") and dtype != "uint8":
        dtype = "int16"  # of the others torch has next to nothing
    check_narrow(name, dtype, ops.convert_to_tensor)


def check_narrow(name, dtype, convert):
    call, first = CALLS[name](), ends(dtype, name)
    x = numbers(1, 4)
    for kind, (_, make) in kinds(name).items():
        given = [*range(first, first + 4)]
        expected = answer(call, x, **{kind: make(given)})
        value = convert(np.array(make(given), dtype))
        result = answer(call, x, **{kind: value})
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-6)
        if kind == "start_index":  # and a run goes on behind what its dtype holds
            x_300 = numbers(1, 300)
            first = min(first, ends("int32", name) - 300)
            expected = answer(call, x_300, start_index=first)
            value = convert(np.array(first, dtype))
            result = answer(call, x_300, start_index=value)
            np.testing.assert_allclose(result, expected, rtol=0, atol=2e-6)


@pytest.mark.tensorflow
@pytest.mark.parametrize("mode", ["graph", pytest.param("XLA", marks=pytest.mark.long)])
@pytest.mark.parametrize("dtype", WRAPPING)
@pytest.mark.parametrize("name", ["axial", "rotary", "relative"])
def test_narrow_integers_do_not_wrap_in_a_graph(name, dtype, mode, compile_in, tf):
    call, first = CALLS[name](), ends(dtype, name)
    for kind, (shape, make) in kinds(name).items():
        steps = 300 if kind == "start_index" else 4
        first = min(first, ends("int32", name) - steps)
        given, x = [*range(first, first + steps)], numbers(1, steps)
        function = in_mode(compile_in, call, mode, kind, shape, dtype)
        result = answer(function, x, tf.constant(make(given), dtype))
        expected = answer(call, x, **{kind: make(given)})
        np.testing.assert_allclose(result, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_narrow_start_in_a_cache(dtype):
    layer = keras_pe.MultiHeadAttention(2, 4, rotary=keras_pe.RotaryEmbedding())
    first = int(np.iinfo(dtype).max) - 1
    x = numbers(1, first + 40)
    outputs = []
    for start in (first, ops.convert_to_tensor(np.array(first, dtype))):
        cache = layer.init_cache(1, first + 40)
        _, cache = layer(x[:, :first], x[:, :first], cache=cache)
        last = x[:, first:]
        output, _ = layer(last, last, cache=cache, start_index=start)
        outputs.append(ops.convert_to_numpy(ops.stop_gradient(output)))
    assert np.isfinite(outputs[1]).all()
    np.testing.assert_allclose(*outputs, rtol=0, atol=1e-6)


# Very many.

GROWTH = """
import gc, json, pathlib
import keras_pe, tensorflow as tf
from test_sizes import LARGE, MOST

def read(key):
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith(key)]
    return int(line.split()[1]) * 1024

def grown(name, mode, kind):
    make, sizes, dtype = LARGE[name]
    call, given = make(), tf.zeros(sizes, dtype)
    small = given[tuple(slice(8) for _ in sizes)]
    if name == "function":
        given = tf.range(sizes[0])
    more = {"start_index": (tf.constant(5),), "": ()}[kind]
    function = lambda x, *more: call(x, **dict(zip([kind], more)))
    if mode == "graph":
        function = tf.function(function)
    elif mode == "unknown":
        unknown = tf.TensorSpec([n if n < 100 else None for n in sizes], dtype)
        specs = [unknown, *map(tf.TensorSpec.from_tensor, more)]
        function = tf.function(function, input_signature=specs)
    function(small, *more)
    gc.collect()
    # The peak becomes what is resident now.
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    before = read("VmRSS")
    result = function(given, *more)
    grown = read("VmHWM") - before
    return grown / (result.shape.num_elements() * result.dtype.size)

# The first time its code comes into memory too, whose pages would count.
print(json.dumps([[grown(*case) for _ in range(2)][1] for case in MOST]))
"""


def encoded(positions):
    return keras_pe.sinusoidal_encoding(positions, WIDTH)


STEPS = 2**20
LARGE = {
    "sinusoidal": (keras_pe.PositionalEncoding, (1, STEPS, WIDTH), "float32"),
    "function": (lambda: encoded, (STEPS,), "int32"),
    "rotary": (keras_pe.RotaryEmbedding, (1, STEPS, 1, WIDTH), "float32"),
    "alibi": (lambda: keras_pe.ALiBi(num_heads=4), (1, 2048), "float32"),
    "relative": (CALLS["relative"], (1, 2896), "float32"),
}


# The peak at most, over the result: 32 MB of an encoding, and 64 MB of a bias.
MOST = {
    ("function", "eager", ""): 2.5,
    ("sinusoidal", "eager", ""): 2.5,
    ("sinusoidal", "graph", ""): 2.5,
    ("sinusoidal", "graph", "start_index"): 1.5,
    ("sinusoidal", "unknown", ""): 1.5,
    ("sinusoidal", "eager", "start_index"): 2.5,
    ("sinusoidal", "unknown", "start_index"): 1.5,
    # In a graph TensorFlow takes several of the sums at once.
    ("function", "graph", ""): 5,
    ("function", "unknown", ""): 5,
    # Rows as large as the only head, and each of their halves.
    ("rotary", "eager", ""): 5.5,
    ("rotary", "graph", ""): 3.5,
    ("rotary", "unknown", ""): 3.5,
    ("alibi", "eager", ""): 2,
    ("alibi", "graph", ""): 2.5,
    ("alibi", "unknown", ""): 2,
    ("relative", "eager", ""): 3,
    ("relative", "graph", ""): 2.5,
    ("relative", "unknown", ""): 2,
}


@pytest.mark.long
@pytest.mark.tensorflow
@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells what memory is in use")
def test_memory_of_many_steps(monkeypatch):
    # What is freed goes back at once, so that each case starts alike: neither the C
    # library nor oneDNN, which TensorFlow uses on some processors, keeps it.
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "65536")
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    grown = json.loads(run(GROWTH, cwd=Path(__file__).parent))
    found = dict(zip(MOST, grown, strict=True))
    assert {case for case in MOST if not 0.9 < found[case] < MOST[case]} == set(), found


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "positions",
    [
        np.arange(100, dtype="int32"),
        np.arange(60).reshape(3, 20) * 100_003,
        np.linspace(-5, 5, 50).reshape(2, 25),
        np.array([[0.5, np.nan, 2.0, np.inf] * 9], "float32"),
    ],
    ids=lambda positions: str(positions.shape),
)
def test_pieces_are_those_of_the_whole(positions, dtype, monkeypatch):
    """Which are made where an eager result is large."""

    def calls():
        """Of a shape of its own, and beside an input that shares positions."""
        layer, x = keras_pe.PositionalEncoding(dtype=dtype), np.zeros((3, 25, 6))
        at = np.resize(positions, 25)
        yield answer(keras_pe.sinusoidal_encoding, positions, 6, dtype=dtype)
        yield answer(layer, x, positions=at)
        yield answer(layer, x, positions=at[None])

    wholes = [*calls()]
    assert wholes[0].shape == (*positions.shape, 6)
    made = []
    rows_at = turns._rows_at
    monkeypatch.setattr(
        turns, "_rows_at", lambda *args: made.append(args) or rows_at(*args)
    )
    monkeypatch.setattr(turns, "_PIECE", 6 * 16)
    pieces = [*calls()]
    if BACKEND == "tensorflow":
        assert len(made) > 4
        assert max(whole.numpy().size for whole, *_ in made) == 16
    for whole, piece in zip(wholes, pieces, strict=True):
        np.testing.assert_allclose(piece, whole, rtol=0, atol=1e-7)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pieces_of_runs_that_are_valid_or_not(dtype, monkeypatch):
    whole = ops.convert_to_tensor(np.arange(60).reshape(3, 20), "int32")
    valid = ops.convert_to_tensor(np.array([[True], [False], [True]]))
    made = sinusoid_turns(6, 10000.0, "halves")
    rows = answer(turns.rows_at, Rows(whole, valid=valid), made, dtype)
    assert np.isnan(rows).all(axis=(1, 2)).tolist() == [False, True, False]
    monkeypatch.setattr(turns, "_PIECE", 6 * 16)
    pieces = answer(turns.rows_at, Rows(whole, valid=valid), made, dtype)
    np.testing.assert_allclose(pieces, rows, rtol=0, atol=1e-7)


@pytest.mark.tensorflow
def test_a_piece_has_a_million_numbers(monkeypatch):
    made, rows_at = [], turns._rows_at
    monkeypatch.setattr(
        turns, "_rows_at", lambda *args: made.append(args[0].shape) or rows_at(*args)
    )
    keras_pe.sinusoidal_encoding(np.arange(2**18), 4)
    keras_pe.sinusoidal_encoding(np.arange(1, 2**18 + 2), 4)
    assert made == [(2**18,), (2**18,), (1,)]
    made.clear()
    monkeypatch.setattr(turns, "_PIECE", 4)  # fewer than a row has
    keras_pe.sinusoidal_encoding(np.arange(3), 6)
    assert made == [(1,)] * 3
