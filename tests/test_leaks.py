"""What calls leave behind: memory, traces, caches, and layers that nobody holds."""

import gc
import importlib
import pkgutil
import weakref
from pathlib import Path

import keras
import numpy as np
import pytest
from processes import run
from small_models import ENCODINGS, LONGEST, WIDTH, answer, model_of, numbers

import keras_pe
from keras_pe import rates, relative, tables

MODULES = [
    importlib.import_module(f"keras_pe.{module.name}")
    for module in pkgutil.iter_modules(keras_pe.__path__)
]
LAYERS = {
    "sinusoidal": (keras_pe.PositionalEncoding, {}),
    "bounded": (keras_pe.PositionalEncoding, {"max_length": 8_000}),
    "axial": (keras_pe.AxialPositionalEncoding, {}),
    "learned": (keras_pe.LearnedPositionalEncoding, {"max_length": 8_000}),
    "rotary": (keras_pe.RotaryEmbedding, {}),
    "alibi": (keras_pe.ALiBi, {"num_heads": 2}),
    "relative": (keras_pe.RelativePositionBias, {"num_heads": 2}),
}

# Memory.

CALLS = """
import gc, pathlib, sys
import numpy as np, tensorflow as tf
import keras_pe, test_leaks

def resident():
    gc.collect()
    [line] = [
        line for line in pathlib.Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmRSS")
    ]
    return int(line.split()[1]) * 1024

calls, width, names = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
for name in names:
    kind, arguments = test_leaks.LAYERS[name]
    layer, rng = kind(**arguments), np.random.default_rng(0)
    longest = 200 if name in ("alibi", "relative") else 2_000
    before = None
    for i in range(calls):
        if i == calls // 4:
            before = resident()
        length, start = rng.integers(1, longest), int(rng.integers(0, 6_000))
        positions = rng.integers(0, 8_000, length)
        call = [
            {},
            {"start_index": start},
            {"start_index": tf.constant(start)},
            {"positions": positions},
            {"positions": tf.constant(positions[None], "int64")},
        ][i % 5]
        if name == "axial":
            call = {"positions": positions[:, None]} if "positions" in call else {}
        layer(np.zeros((1, length, width), "float32"), **call)
    print(name, calls, resident() - before)
"""


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("calls", "width", "names"),
    [
        # Beside 20 MB: of as many tables 100 MB, if each call left one.
        (600, 64, ["sinusoidal", "relative", "rotary"]),
        (10_000, 16, ["sinusoidal"]),
    ],
    ids=str,
)
@pytest.mark.long
def test_memory_is_flat_over_eager_calls(calls, width, names):
    printed = run(CALLS, calls, width, *names, cwd=Path(__file__).parent).splitlines()
    grown = {line.split()[0]: int(line.split()[2]) for line in printed}
    assert [*grown] == names
    assert all(growth < 20e6 for growth in grown.values()), grown


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("name", "calls"),
    [
        *((name, 300) for name in LAYERS),
        pytest.param("sinusoidal", 10_000, marks=pytest.mark.long),
    ],
)
def test_one_trace_for_many_calls(name, calls, tf):
    kind, arguments = LAYERS[name]
    layer, rng = kind(**arguments), np.random.default_rng(0)
    layer(tf.zeros((1, 1, WIDTH)))  # a trace that makes weights counts twice
    by_place = name == "axial"
    specs = [tf.TensorSpec((None, None, WIDTH))]
    specs.append(tf.TensorSpec((None, 1) if by_place else (), tf.int32))
    key = "positions" if by_place else "start_index"
    function = tf.function(
        lambda x, given: layer(x, **{key: given}), input_signature=specs
    )
    longest = 50 if name in ("alibi", "relative") else 2_000
    for _ in range(calls):
        length, start = rng.integers(1, longest), rng.integers(0, 6_000)
        given = rng.integers(0, 6_000, (length, 1)) if by_place else start
        function(tf.zeros((1, length, WIDTH)), tf.constant(given, tf.int32))
    assert function.experimental_get_tracing_count() == 1


# Caches.

# And how much each keeps, as docs/reliability.md says.
CACHES = {
    "rates.sinusoid_turns": (rates.sinusoid_turns, 32),
    "rates.turns_of_rates": (rates.turns_of_rates, 32),
    "relative._buckets": (relative._buckets, 32),
    "tables._array": (tables._array, 8),
    "tables._shared_tensor": (tables._shared_tensor, 8),
}


def test_every_cache_is_bounded():
    found = {
        f"{module.__name__.removeprefix('keras_pe.')}.{name}": (
            value,
            value.cache_info().maxsize,
        )
        for module in MODULES
        for name, value in vars(module).items()
        if hasattr(value, "cache_info") and value.__module__ == module.__name__
    }
    assert found == CACHES


def test_calls_leave_nothing_but_in_caches():
    """No module has a dict or list of its own that calls fill."""

    def sizes():
        return {
            (module.__name__, name): len(value)
            for module in MODULES
            for name, value in vars(module).items()
            if isinstance(value, dict | list | set) and not name.startswith("__")
        }

    before = sizes()
    for name, make in ENCODINGS.items():
        layer = make()
        for time in (1, 7, LONGEST):
            answer(layer, numbers(time=time))
        assert sizes() == before, name


# Layers that nobody holds.


def used_eagerly(name):
    layer = ENCODINGS[name]()
    answer(layer, numbers())
    answer(layer, numbers(time=9))
    return layer


def used_in_a_model(name):
    model = model_of(name)
    model.compile("sgd", "mse")
    model.predict(numbers(), verbose=0)
    return model.get_layer("encoding")


def used_in_a_function(name):
    import tensorflow as tf

    layer = ENCODINGS[name]()
    answer(layer, numbers())
    tf.function(lambda x: layer(x))(numbers())
    return layer


LONG = pytest.mark.long
USES = {
    used_eagerly: [],
    used_in_a_model: [],
    used_in_a_function: [pytest.mark.tensorflow],
}


@pytest.mark.parametrize(
    ("name", "use"),
    [
        pytest.param(name, use, marks=[*marks, *([] if quick else [LONG])])
        for use, marks in USES.items()
        for name in ENCODINGS
        for quick in [name == "relative" or (use, name) == (used_eagerly, "rotary")]
    ],
)
def test_a_layer_that_nobody_holds_is_collected(name, use):
    layer = use(name)
    held = [weakref.ref(layer), *map(weakref.ref, layer.weights)]
    del layer
    keras.utils.clear_session()
    gc.collect()
    assert not [ref() for ref in held if ref() is not None]


@pytest.mark.tensorflow
def test_a_table_that_is_forgotten_is_collected():
    tables._shared_tensor.cache_clear()
    layer = keras_pe.PositionalEncoding(max_length=LONGEST)
    answer(layer, numbers())
    asked = LONGEST, keras_pe.sinusoid_rows.Sinusoids(WIDTH, 10000.0, "interleaved")
    table = weakref.ref(tables._shared_tensor(tables._bounded_table, *asked, "float32"))
    assert tables._shared_tensor.cache_info().misses == 1
    del layer
    gc.collect()
    assert table() is not None  # for the next layer alike
    tables._shared_tensor.cache_clear()
    gc.collect()
    assert table() is None
