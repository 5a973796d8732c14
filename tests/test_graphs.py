"""The layer in TensorFlow graphs: traces, XLA, loops, datasets, half precision."""

import warnings

import keras
import numpy as np
import pytest
from likeness import first_of

import keras_pe
from keras_pe import PositionalEncoding

pytestmark = pytest.mark.tensorflow


def make_graph(tf, layer, jit_compile=False, d_model=4, dtype="float32", **specs):
    spec = [tf.TensorSpec((None, None, d_model), dtype), *specs.values()]

    @tf.function(input_signature=spec, jit_compile=jit_compile)
    def call(inputs, *args):
        return layer(inputs, **dict(zip(specs, args, strict=True)))

    return call


def table(length, d_model):
    """The rows of the document's function, `(length, d_model)`."""
    return keras_pe.positional_encoding(length, d_model)[0].numpy()


def check_rows(result, rows, atol=3e-7):
    result = np.asarray(result, "float64")
    np.testing.assert_allclose(
        result, np.broadcast_to(rows, result.shape), rtol=0, atol=atol
    )


# Traces.


@pytest.mark.parametrize("max_length", [None, 32])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_one_trace_for_all_lengths(tf, jit_compile, max_length):
    layer = PositionalEncoding(max_length=max_length)
    graph = make_graph(tf, layer, jit_compile)
    lengths = [1, 2, 3, 4, *range(5, 32, 6)] if jit_compile else range(1, 21)
    for length in lengths:
        check_rows(graph(tf.zeros((2, length, 4))), table(length, 4))
    assert graph.experimental_get_tracing_count() == 1


def test_one_trace_for_all_batches_and_starts(tf):
    graph = make_graph(
        tf, PositionalEncoding(), start_index=tf.TensorSpec((), tf.int32)
    )
    for batch, start in ((1, 0), (2, 5), (7, 11)):
        check_rows(
            graph(tf.zeros((batch, 3, 4)), tf.constant(start)),
            table(14, 4)[start : start + 3],
        )
    assert graph.experimental_get_tracing_count() == 1


def test_last_axis_is_static(tf):
    layer, dense = PositionalEncoding(), keras.layers.Dense(3)
    dense.build((None, None, 4))

    @tf.function(input_signature=[tf.TensorSpec((None, None, 4))])
    def call(inputs):
        length = tf.shape(inputs)[1]
        for kwargs in (
            dict(start_index=tf.constant(1)),
            dict(start_index=tf.zeros(tf.shape(inputs)[0], tf.int32)),
            dict(positions=tf.range(length)),
            dict(positions=tf.zeros(tf.shape(inputs)[:2], tf.int32)),
            {},
        ):
            result = layer(inputs, **kwargs)
            assert result.shape.as_list() == [None, None, 4]
        return dense(result)

    assert call.get_concrete_function().output_shapes.as_list() == [None, None, 3]


@pytest.mark.parametrize("max_length", [None, 9000])
def test_known_lengths_are_bit_for_bit_the_document(tf, max_length):
    layer = PositionalEncoding(max_length=max_length)
    for shape in ((2, 9000, 6), (1, 1, 512), (1, 2048, 512), (3, 7, 5)):
        inputs, rows = tf.zeros(shape), table(shape[1], shape[2])
        for call in (layer, tf.function(layer), tf.function(layer, jit_compile=True)):
            result = call(inputs).numpy()
            np.testing.assert_array_equal(result, np.broadcast_to(rows, shape))


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        dict(start_index=3),
        dict(start_index=[2, 0]),
        dict(positions=[[3, 0, 2], [1, 1, 5]]),
        dict(positions=[0.5, -2.25, 1e4]),
    ],
    ids=repr,
)
@pytest.mark.parametrize("layout", first_of(["halves", "interleaved"]))
def test_graph_and_xla_equal_eager(tf, kwargs, layout):
    layer = PositionalEncoding(layout=layout, max_wavelength=300.0)
    inputs = tf.random.normal((2, 3, 6))
    specs = {
        name: tf.TensorSpec((None,) * np.ndim(value), np.asarray(value).dtype)
        for name, value in kwargs.items()
    }
    args = [tf.constant(value, specs[name].dtype) for name, value in kwargs.items()]
    eager = layer(inputs, **kwargs)
    for jit_compile in (False, True):
        graph = make_graph(tf, layer, jit_compile, 6, **specs)
        check_rows(graph(inputs, *args), eager, atol=7e-7)


def test_no_warning_of_autograph(tf, capfd, caplog):
    layer = PositionalEncoding()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph = make_graph(tf, layer, start_index=tf.TensorSpec((None,), tf.int32))
        graph(tf.zeros((1, 3, 4)), tf.constant([2]))
        make_graph(tf, layer)(tf.zeros((1, 3, 4)))
        tf.function(layer)(tf.zeros((1, 3, 4)), positions=[0, 1, 2.5])
    assert "AutoGraph" not in caplog.text + capfd.readouterr().err


# One step after another.


def test_single_steps_have_the_rows_of_the_whole(tf):
    layer = PositionalEncoding()
    inputs = tf.random.normal((2, 5, 4))
    whole = layer(inputs)
    parts = [layer(inputs[:, :3])]
    parts += [layer(inputs[:, i : i + 1], start_index=i) for i in (3, 4)]
    np.testing.assert_array_equal(tf.concat(parts, 1), whole)
    parts = [layer(inputs[:, :3])]
    for i in (3, 4):
        parts.append(layer(inputs[:, i : i + 1], start_index=tf.constant(i)))
    check_rows(tf.concat(parts, 1), whole)


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("max_length", [None, 50])
def test_single_steps_of_a_loop(tf, max_length, jit_compile):
    layer = PositionalEncoding(max_length=max_length)

    @tf.function(jit_compile=jit_compile)
    def decode():
        rows = tf.TensorArray(tf.float32, 40, element_shape=(2, 1, 4))
        index = tf.constant(0)
        _, rows = tf.while_loop(
            lambda index, rows: index < 40,
            lambda index, rows: (
                index + 1,
                rows.write(index, layer(tf.zeros((2, 1, 4)), start_index=index)),
            ),
            (index, rows),
        )
        return rows.stack()

    check_rows(decode()[:, 0, 0], table(40, 4))


def test_beyond_max_length_in_a_loop(tf):
    layer = PositionalEncoding(max_length=4, name="pos")

    @tf.function
    def decode():
        total = tf.zeros((1, 1, 4))
        for index in tf.range(6):
            total += layer(tf.zeros((1, 1, 4)), start_index=index)
        return total

    with pytest.raises(tf.errors.InvalidArgumentError, match="takes positions 0 to 3"):
        decode()


def test_dataset_map(tf):
    layer = PositionalEncoding(max_length=8)
    data = tf.data.Dataset.from_tensor_slices(tf.ones((6, 5, 4)))
    data = data.batch(2).map(layer, num_parallel_calls=2)
    batches = list(data)
    assert len(batches) == 3
    for batch in batches:
        np.testing.assert_array_equal(batch, np.stack([1 + table(5, 4)] * 2))


# Half precision.


@pytest.mark.parametrize(
    ("policy", "atol"),
    [("mixed_bfloat16", 0.004), ("mixed_float16", 0.0005), ("float16", 0.0005)],
)
@pytest.mark.parametrize("max_length", [None, 2048])
def test_half_precision(tf, policy, atol, max_length):
    layer = PositionalEncoding(dtype=policy, max_length=max_length)
    rows = table(2048, 64)
    inputs = tf.zeros((1, 2048, 64))
    for call in (
        layer,
        make_graph(tf, layer, d_model=64),
        make_graph(tf, layer, jit_compile=True, d_model=64),
    ):
        result = call(inputs)
        assert result.dtype == layer.compute_dtype
        check_rows(tf.cast(result, tf.float32), rows, atol)


@pytest.mark.parametrize("policy", ["float16", "bfloat16"])
def test_half_precision_is_float32_rounded_once(tf, policy):
    layer = PositionalEncoding(dtype=policy)
    expected = tf.cast(table(300, 64), policy)
    np.testing.assert_array_equal(layer(tf.zeros((1, 300, 64)))[0], expected)
    far = PositionalEncoding()(tf.zeros((1, 3, 64)), start_index=tf.constant(70000))
    result = layer(tf.zeros((1, 3, 64)), start_index=tf.constant(70000))
    np.testing.assert_array_equal(result, tf.cast(far, policy))


def test_a_value_of_pure_float16(tf):
    layer = PositionalEncoding(dtype="float16")
    expected = [-0.313372, -0.94963, -0.275929, 0.961178]
    for inputs in (tf.zeros((1, 1858, 4)), tf.zeros((1, 1858, 4), tf.float16)):
        check_rows(layer(inputs)[0, 1857], expected, 1e-3)
    result = layer(tf.zeros((1, 1, 4)), positions=tf.constant([1857]))
    check_rows(result[0, 0], expected, 1e-3)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "bfloat16", "mixed_float16"])
@pytest.mark.parametrize("max_length", [None, 4096])
def test_positions_never_pass_through_a_half_type(tf, policy, max_length):
    layer = PositionalEncoding(dtype=policy, max_length=max_length)
    numbers = [256, 257, 2049]
    rows = table(2050, 4)[numbers]
    for dtype in ("int32", "int64", "float32"):
        positions = tf.constant([numbers], dtype)
        check_rows(layer(tf.zeros((1, 3, 4)), positions=positions), rows, 4e-3)
        spec = tf.TensorSpec((None, None), dtype)
        graph = make_graph(tf, layer, positions=spec)
        check_rows(graph(tf.zeros((1, 3, 4)), positions), rows, 4e-3)
    check_rows(
        layer(tf.zeros((1, 1, 4)), positions=[[0.5]]),
        [0.479426, 0.877583, 0.005, 0.999988],
        4e-3,
    )


def test_positions_of_a_functional_model_are_not_cast(tf):
    keras.config.set_dtype_policy("mixed_bfloat16")
    inputs = keras.Input((None, 4))
    positions = keras.Input((None,), dtype="float32")
    outputs = PositionalEncoding()(inputs, positions=positions)
    model = keras.Model([inputs, positions], outputs)
    result = model([tf.zeros((1, 2, 4)), tf.constant([[257.0, 2049.0]])])
    assert result.dtype == "bfloat16"
    check_rows(tf.cast(result, tf.float32), table(2050, 4)[[257, 2049]], 4e-3)


@pytest.mark.parametrize("policy", first_of(["mixed_float16", "mixed_bfloat16"]))
@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_step_of_training_under_a_global_policy(tf, policy, jit_compile):
    keras.config.set_dtype_policy(policy)
    model = keras.Sequential(
        [
            keras.layers.Embedding(9, 8, mask_zero=True),
            PositionalEncoding(),
            keras.layers.Dense(3),
        ]
    )
    model.compile("adam", "mse", jit_compile=jit_compile)
    ids = np.array([[1, 2, 0], [3, 4, 5]])
    history = model.fit(ids, np.ones((2, 3, 3), "float32"), verbose=0).history
    assert np.isfinite(history["loss"]).all()
    assert model.layers[1].compute_dtype == policy.removeprefix("mixed_")
    assert model(ids).dtype == model.layers[1].compute_dtype


# What an export holds.


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The graph of a model of every way to make rows, compiled with XLA before."""
    from tensorflow.core.protobuf import saved_model_pb2

    path = tmp_path_factory.mktemp("exported") / "model"
    inputs = keras.Input((None, 4), name="x")
    positions = keras.Input((None,), dtype="int32", name="positions")
    start = keras.Input((), dtype="int32", name="start")
    x = PositionalEncoding()(inputs)
    x = PositionalEncoding(max_length=8)(x)
    x = PositionalEncoding(max_length=8)(x, positions=positions)
    x = PositionalEncoding()(x, positions=positions)
    x = PositionalEncoding()(x, start_index=start)
    model = keras.Model([inputs, positions, start], x)
    model.compile("sgd", "mse", jit_compile=True)
    zeros = np.zeros((1, 3, 4), "float32")
    given = [zeros, np.zeros((1, 3), "int32"), np.zeros(1, "int32")]
    model.fit(given, zeros, verbose=0)
    model.export(path, verbose=False)
    return saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())


def nodes_of(saved):
    graph = saved.meta_graphs[0].graph_def
    return [*graph.node, *(n for f in graph.library.function for n in f.node_def)]


def test_an_export_is_not_bound_to_xla(exported):
    functions = exported.meta_graphs[0].graph_def.library.function
    marked = [*nodes_of(exported), *functions]
    assert len(marked) > 50
    assert not {
        key
        for part in marked
        for key, value in part.attr.items()
        if "Xla" in key and (value.b or value.s)
    }


def test_an_export_calls_no_python(exported):
    operations = {node.op for node in nodes_of(exported)}
    assert "AddV2" in operations
    assert not {name for name in operations if "Py" in name or "Xla" in name}


def test_an_export_computes_in_no_float64(tf, exported):
    float64 = tf.float64.as_datatype_enum
    assert not {
        node.name for node in nodes_of(exported) if node.attr["T"].type == float64
    }
