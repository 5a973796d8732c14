"""What is promised of the numbers that the layer adds."""

import functools

import keras
import numpy as np
import pytest
from keras import ops
from likeness import first_of
from oracle import exact_rows, exact_rows_fast

from keras_pe import PositionalEncoding, positional_encoding
from keras_pe.contract import JIT_COMPILE
from keras_pe.recipe import sinusoids

BACKEND = keras.config.backend()
# JAX has no float64 unless it is asked to: its rows are then float32 ones.
FLOAT64 = {"jax": ("float32", 3e-7)}.get(BACKEND, ("float64", 1e-9))
D_MODELS = [*range(1, 66), 128, 512, 1024]
if BACKEND == "jax":  # which compiles the addition anew for each size
    D_MODELS = D_MODELS[::5] + D_MODELS[-2:]
LENGTHS = [1, 2, 63, 64, 65, 2048]
LONGEST = LENGTHS[-1]
CONSTANT = 4 * 2**20  # bytes of the largest table that a graph holds unasked
STARTS = [1, 63, 129, 1983, 40_000, 2**29]
HALVES = ["mixed_float16", "mixed_bfloat16", "float16", "bfloat16"]


@functools.cache
def recipe(d_model):
    """The document's table; off TensorFlow its float64 rows, rounded as it does."""
    if BACKEND == "tensorflow":
        return positional_encoding(LONGEST, d_model).numpy()[0]
    return sinusoids(np.arange(LONGEST), d_model).astype("float32")


def zeros(batch, time, d_model):
    return ops.convert_to_tensor(np.zeros((batch, time, d_model), "float32"))


def numpy_of(tensor):
    return ops.convert_to_numpy(tensor)


def argument(value):
    """Return a call argument of a table of cases: a tensor for `(dtype, value)`."""
    if isinstance(value, tuple):
        return ops.convert_to_tensor(np.array(value[1], value[0]))
    return value


def int32(value):
    return ops.convert_to_tensor(np.array(value, "int32"))


def assert_within(bound, rows, positions, **kwargs):
    exact = exact_rows_fast(np.ravel(positions), rows.shape[-1], **kwargs)
    error = np.abs(rows.reshape(exact.shape) - exact).max()
    assert error <= bound, f"measured {error}"


# 1. A known run is the document's, bit for bit.


def known_runs(max_length):
    """Every size; without `max_length`, those of which the table is small enough."""
    for d_model in D_MODELS:
        for length in LENGTHS:
            if max_length is not None or 4 * length * d_model <= CONSTANT:
                yield d_model, length


def assert_the_recipes_bits(runs, results):
    different = [
        run
        for run, rows in zip(runs, results, strict=True)
        if numpy_of(rows)[0].tobytes() != recipe(run[0])[: run[1]].tobytes()
    ]
    assert not different, f"(d_model, length) that differ: {different}"


@pytest.mark.parametrize("max_length", [None, LONGEST, 5000])
def test_known_runs_are_the_recipe_eager(max_length):
    layer, runs = PositionalEncoding(max_length=max_length), [*known_runs(max_length)]
    results = (layer(zeros(1, length, d_model)) for d_model, length in runs)
    assert_the_recipes_bits(runs, results)


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("max_length", "jit_compile"),
    first_of([(None, False), (LONGEST, False), (None, True), (LONGEST, True)]),
)
def test_known_runs_are_the_recipe_compiled(max_length, jit_compile):
    import tensorflow as tf

    layer, runs = PositionalEncoding(max_length=max_length), [*known_runs(max_length)]

    # One function for all, since each costs a compilation.
    @tf.function(jit_compile=jit_compile)
    def all_runs(x):
        return [layer(x[:, :length, :d_model]) for d_model, length in runs]

    assert_the_recipes_bits(runs, all_runs(zeros(1, LONGEST, D_MODELS[-1])))


def started_runs(max_length):
    for start in STARTS:
        for d_model in (1, 2, 5, 64, 512):
            for length in (1, 2, 65):
                if max_length is None or start + length <= max_length:
                    yield start, d_model, length


def assert_the_recipes_rows(runs, results):
    different = []
    for run, rows in zip(runs, results, strict=True):
        start, d_model, length = run
        wanted = sinusoids(np.arange(start, start + length), d_model).astype("float32")
        if start + length <= LONGEST:
            assert wanted.tobytes() == recipe(d_model)[start:][:length].tobytes()
        if numpy_of(rows)[0].tobytes() != wanted.tobytes():
            different.append(run)
    assert not different, f"(start, d_model, length) that differ: {different}"


@pytest.mark.parametrize("max_length", [None, LONGEST])
def test_a_known_start_is_the_recipe_eager(max_length):
    layer, runs = PositionalEncoding(max_length=max_length), [*started_runs(max_length)]
    results = (layer(zeros(1, t, d), start_index=start) for start, d, t in runs)
    assert_the_recipes_rows(runs, results)


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", first_of([True, False]))
def test_a_known_start_is_the_recipe_compiled(jit_compile):
    import tensorflow as tf

    layers = [PositionalEncoding(), PositionalEncoding(max_length=LONGEST)]
    runs = [(layer, *r) for layer in layers for r in started_runs(layer.max_length)]

    @tf.function(jit_compile=jit_compile)
    def all_runs(x):
        return [layer(x[:, :t, :d], start_index=start) for layer, start, d, t in runs]

    results = all_runs(zeros(1, LONGEST, D_MODELS[-1]))
    assert_the_recipes_rows([run[1:] for run in runs], results)


# 2. Any other way is within 3e-7, and 1e-6 for the last half of int32.


@pytest.mark.parametrize("start", [0, 1, 2**20 + 1, 2**29 - 2**17])
def test_a_table_too_large_for_a_graph(start):
    time, d_model = 2**17, 10
    assert 4 * time * d_model > CONSTANT
    rows = numpy_of(PositionalEncoding()(zeros(1, time, d_model), start_index=start))
    assert_within(3e-7, rows, range(start, start + time))


def long_runs():
    """Every way but that of a known run, as the inputs of `model_of_every_way`."""
    for time, start in [(5000, 0), (5000, 2**29 - 5000), (130, -(2**29)), (1, 77)]:
        drawn = np.random.default_rng(time).integers(-(2**29), 2**29, (2, time))
        yield time, drawn, np.array([start, start // 3])


@functools.cache
def model_of_every_way(d_model=24):
    """A model of unknown length that gives the rows of each way, and no other's."""
    x = keras.Input((None, d_model))
    positions = keras.Input((None,), dtype="int32")
    start = keras.Input((), dtype="int32")
    rows = [
        PositionalEncoding()(x),
        PositionalEncoding()(x, positions=positions),
        PositionalEncoding()(x, start_index=start),
        PositionalEncoding(max_length=5000)(x),
        PositionalEncoding(max_length=5000)(x, positions=positions % 5000),
    ]
    return keras.Model([x, positions, start], rows)


def eager(model, path):
    return model


def traced(model, path, **kwargs):
    import tensorflow as tf

    specs = [tf.TensorSpec(x.shape, x.dtype) for x in model.inputs]
    return tf.function(lambda *x: model(x), input_signature=specs, **kwargs)


def xla(model, path):
    return traced(model, path, jit_compile=True)


def exported(model, path):
    import tensorflow as tf

    model.export(path, verbose=False)
    # The signature is all that a server sees.
    serve = tf.saved_model.load(path).signatures["serving_default"]
    names = [x.name for x in model.inputs]
    outputs = sorted(serve.structured_outputs)

    def call(*values):
        results = serve(**dict(zip(names, values, strict=True)))
        return [results[name] for name in outputs]

    return call


def reloaded(model, path):
    model.save(f"{path}.keras")
    return keras.saving.load_model(f"{path}.keras")


WAYS = [
    eager,
    reloaded,
    *(
        pytest.param(way, marks=pytest.mark.tensorflow)
        for way in (traced, xla, exported)
    ),
]


@pytest.mark.parametrize("way", WAYS)
def test_every_other_way_is_within_the_bound(way, tmp_path):
    model = model_of_every_way()
    call = way(model, str(tmp_path / "model"))
    for time, positions, starts in long_runs():
        inputs = zeros(2, time, 24), int32(positions), int32(starts)
        results = call(*inputs) if way in (traced, xla, exported) else call([*inputs])
        plain, at, runs, bounded, bounded_at = map(numpy_of, results)
        steps = np.arange(time)
        assert_within(3e-7, plain[:1], steps)
        assert_within(3e-7, at, positions)
        assert_within(3e-7, runs, starts[:, np.newaxis] + steps)
        table = sinusoids(np.arange(5000), 24).astype("float32")
        np.testing.assert_array_equal(bounded[0], table[:time])
        np.testing.assert_array_equal(bounded_at, table[positions % 5000])
        for rows in (plain, bounded):
            np.testing.assert_array_equal(rows[0], rows[1])


@pytest.mark.parametrize("edge", [2**30, -(2**30), 2**31 - 300, -(2**31)])
def test_the_ends_of_int32(edge):
    layer, positions = PositionalEncoding(), np.arange(edge, edge + 300)
    for kwargs in (
        {"positions": int32(positions)},
        {"start_index": int32(edge)},
        {"start_index": edge},
    ):
        assert_within(1e-6, numpy_of(layer(zeros(1, 300, 32), **kwargs)), positions)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fractional_positions(dtype):
    positions = np.array([0.5, -0.25, 99.875, -1000.0625, 2**20 + 0.5, 1e6 - 0.25])
    tensor = ops.convert_to_tensor(positions.astype(dtype))
    rows = PositionalEncoding()(zeros(1, 6, 32), positions=tensor)
    assert_within(3e-7, numpy_of(rows), positions)


@pytest.mark.parametrize("jit_compile", JIT_COMPILE)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_what_lies_just_beside_a_position(dtype, jit_compile):
    """Of a number just below 0, what is left above -1 rounds to 1."""
    positions = np.array([-1e-8, -1e-30, 1e-8, 0.0, -0.0, -0.25, -1 - 1e-3], dtype)
    x = zeros(1, len(positions), 4)
    inputs = [keras.Input((None, 4)), keras.Input((None,), dtype=dtype)]
    layer = PositionalEncoding()
    model = keras.Model(inputs, layer(inputs[0], positions=inputs[1]))
    model.compile(jit_compile=jit_compile)
    for result in (
        layer(x, positions=ops.convert_to_tensor(positions)),
        model.predict([x, positions[None]], verbose=0),
    ):
        assert_within(3e-7, numpy_of(result), positions)


@pytest.mark.parametrize("kwargs", [{"max_wavelength": 500.0}, {"layout": "halves"}])
def test_other_rates_and_layouts(kwargs):
    layer = PositionalEncoding(**kwargs)
    positions = np.arange(70_000, 70_200)
    for call in (
        {"start_index": 70_000},
        {"start_index": int32(70_000)},
        {"positions": int32(positions)},
    ):
        rows = numpy_of(layer(zeros(1, 200, 33), **call))
        assert_within(3e-7, rows, positions, **kwargs)


def assert_steps_are_the_whole(step, start):
    whole = PositionalEncoding()(zeros(1, 300, 16), start_index=start)
    steps = [step(zeros(1, 1, 16), int32(start + t)) for t in range(0, 300, 23)]
    steps = np.concatenate([numpy_of(rows)[0] for rows in steps])
    error = np.abs(numpy_of(whole)[0, ::23] - steps).max()
    assert error <= 3e-7, f"measured {error}"


@pytest.mark.parametrize("max_length", [None, 2**17])
@pytest.mark.parametrize("start", [0, 100_000])
def test_steps_are_the_rows_of_the_whole(start, max_length):
    layer = PositionalEncoding(max_length=max_length)
    assert_steps_are_the_whole(lambda x, t: layer(x, start_index=t), start)


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_compiled_steps_are_the_rows_of_the_whole(jit_compile):
    import tensorflow as tf

    layer = PositionalEncoding()
    step = tf.function(lambda x, t: layer(x, start_index=t), jit_compile=jit_compile)
    for start in (0, 100_000, 2**29):
        assert_steps_are_the_whole(step, start)


# 3. The half types are the float32 rows, rounded once.


HALF_CALLS = [
    (2048, {}),
    (65_600, {}),
    (3, {"start_index": 65_530}),
    (3, {"start_index": ("int32", 257)}),
    (4, {"positions": ("int32", [256, 257, 65_535, 10**6])}),
    (4, {"positions": ("int64", [256, 257, 65_535, 10**6])}),
    (4, {"positions": ("float32", [257.0, 2049.5, 65_535.0, 10**6])}),
    (4, {"positions": [257.0, 2049.5, 65_535.0, 70_000.25]}),
]


@pytest.mark.parametrize("layer_kwargs", [{}, {"max_length": 10**6 + 1}], ids=repr)
@pytest.mark.parametrize(("time", "call"), HALF_CALLS, ids=repr)
@pytest.mark.parametrize("policy", HALVES)
def test_half_types_are_rounded_once(policy, time, call, layer_kwargs):
    call = {name: argument(value) for name, value in call.items()}
    half = PositionalEncoding(dtype=policy, **layer_kwargs)(zeros(1, time, 6), **call)
    full = PositionalEncoding(**layer_kwargs)(zeros(1, time, 6), **call)
    dtype = policy.removeprefix("mixed_")
    assert keras.backend.standardize_dtype(half.dtype) == dtype
    assert keras.backend.standardize_dtype(full.dtype) == "float32"
    rounded = ops.cast(ops.cast(full, dtype), "float32")
    np.testing.assert_array_equal(
        numpy_of(ops.cast(half, "float32")), numpy_of(rounded)
    )


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_a_global_policy_changes_no_position(policy):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        layer = PositionalEncoding()
        rows = layer(zeros(1, 2, 32), positions=np.array([[257.0, 65_535.0]]))
    finally:
        keras.config.set_dtype_policy(before)
    bound = {"mixed_float16": 2**-12, "mixed_bfloat16": 2**-9}[policy] + 3e-7
    assert_within(bound, numpy_of(ops.cast(rows, "float32")), [257, 65_535])


@pytest.mark.tensorflow
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_compiled_half_types(policy, jit_compile):
    import tensorflow as tf

    layer = PositionalEncoding(dtype=policy)

    @tf.function(
        input_signature=[
            tf.TensorSpec((None, None, 32)),
            tf.TensorSpec((None, None), tf.int32),
            tf.TensorSpec((), tf.int32),
        ],
        jit_compile=jit_compile,
    )
    def ways(x, positions, start):
        rows = layer(x), layer(x, positions=positions), layer(x, start_index=start)
        assert all(each.dtype == layer.compute_dtype for each in rows)
        return [tf.cast(each, "float32") for each in rows]

    start, steps = 65_000, np.arange(1500)
    positions = np.random.default_rng(2).integers(0, 2**29, 1500)
    results = ways(zeros(1, 1500, 32), int32(positions[np.newaxis]), int32(start))
    bound = {"mixed_float16": 2**-12, "mixed_bfloat16": 2**-9}[policy] + 3e-7
    for rows, at in zip(results, (steps, positions, start + steps), strict=True):
        assert_within(bound, rows.numpy(), at)


@pytest.mark.parametrize("policy", ["float32", *HALVES])
def test_rows_are_added_once_in_the_compute_dtype(policy):
    x = ops.convert_to_tensor(np.random.default_rng(3).normal(size=(2, 9, 6)))
    layer = PositionalEncoding(dtype=policy)
    x = ops.cast(x, layer.compute_dtype)
    wanted = ops.add(x, layer(ops.zeros_like(x)))
    ours, wanted = (numpy_of(ops.cast(y, "float32")) for y in (layer(x), wanted))
    np.testing.assert_array_equal(ours, wanted)


# 4. float64 is within 1e-9 up to 10**6.


MILLION = 10**6
FRACTIONS = [0.3, -0.7, MILLION - 0.1, -999_999.9]


@pytest.mark.parametrize(
    ("positions", "call"),
    [
        (range(5000), {}),
        (range(MILLION - 99, MILLION + 1), {"start_index": MILLION - 99}),
        (range(MILLION - 99, MILLION + 1), {"start_index": ("int32", MILLION - 99)}),
        (range(-MILLION, 99 - MILLION), {"start_index": ("int32", -MILLION)}),
        ([0, -1, MILLION], {"positions": ("int32", [0, -1, MILLION])}),
        (FRACTIONS, {"positions": ("float64", FRACTIONS)}),
        (FRACTIONS, {"positions": FRACTIONS}),
    ],
)
def test_float64(positions, call):
    dtype, bound = FLOAT64
    call = {name: argument(value) for name, value in call.items()}
    rows = PositionalEncoding(dtype="float64")(zeros(1, len(positions), 32), **call)
    assert keras.backend.standardize_dtype(rows.dtype) == dtype
    if dtype == "float32":
        positions = np.float32(positions)
    assert_within(bound, numpy_of(rows), positions)


@pytest.mark.parametrize("start", [MILLION - 99, ("int32", MILLION - 99)])
def test_float64_with_a_limit(start):
    dtype, bound = FLOAT64
    layer = PositionalEncoding(dtype="float64", max_length=MILLION + 1)
    rows = numpy_of(layer(zeros(1, 100, 4), start_index=argument(start)))
    assert rows.dtype == dtype
    assert_within(bound, rows, range(MILLION - 99, MILLION + 1))


@pytest.mark.tensorflow
def test_float64_in_a_graph():
    import tensorflow as tf

    layer = PositionalEncoding(dtype="float64")
    specs = [tf.TensorSpec((1, None, 16)), tf.TensorSpec((None,), tf.float64)]
    graph = tf.function(lambda x, p: layer(x, positions=p), input_signature=specs)
    rows = graph(zeros(1, 4, 16), tf.constant(FRACTIONS, "float64")).numpy()
    error = np.abs(rows[0] - exact_rows(FRACTIONS, 16)).max()
    assert error <= 1e-9, f"measured {error}"


# 5. P is the same in training, at every call, and out of a file.


def test_p_is_always_the_same(tmp_path):
    model = model_of_every_way()
    time, positions, starts = next(long_runs())
    inputs = [zeros(2, time, 24), int32(positions), int32(starts)]
    first = [numpy_of(rows) for rows in model(inputs)]
    again = reloaded(model, str(tmp_path / "model"))
    for call, kwargs in [
        (model, {}),
        (model, {"training": True}),
        (model, {"training": False}),
        (again, {}),
        (again, {"training": True}),
        (reloaded(again, str(tmp_path / "again")), {}),
    ]:
        for rows, wanted in zip(call(inputs, **kwargs), first, strict=True):
            assert numpy_of(rows).tobytes() == wanted.tobytes()


def test_p_does_not_depend_on_earlier_lengths():
    layer, start = PositionalEncoding(), int32(3)
    fresh = {t: numpy_of(PositionalEncoding()(zeros(1, t, 6))) for t in (1, 8, 9000)}
    for time in (8, 9000, 1, 9000, 8):
        rows = numpy_of(layer(zeros(1, time, 6)))
        assert rows.tobytes() == fresh[time].tobytes()
        layer(zeros(1, time, 6), start_index=start)
