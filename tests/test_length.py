"""Lengths and limits: the right rows, an error, or NaN, but never a wrong row."""

import collections

import keras
import numpy as np
import pytest
from keras import ops
from likeness import first_of

from keras_pe import PositionalEncoding, sinusoid_rows

# Row 9 at 40 digits, and others that a wrapped position would miss.
ROW_3 = [0.14112, -0.989992, 0.029996, 0.99955]
ROW_9 = [0.412118, -0.91113, 0.089879, 0.995953]
ROW_4095 = [-0.997821, -0.065976, -0.109078, -0.994033]


def zeros(*shape):
    return np.zeros(shape, "float32")


def tensor(value, dtype="int32"):
    return ops.convert_to_tensor(np.array(value, dtype))


def encode(inputs, layer, **kwargs):
    return ops.convert_to_numpy(layer(inputs, **kwargs))


def make_graph(tf, layer, jit_compile, d_model=4, **specs):
    """`layer` as a function that knows no batch and no length, of any argument."""
    spec = [tf.TensorSpec((None, None, d_model), tf.float32), *specs.values()]

    @tf.function(input_signature=spec, jit_compile=jit_compile)
    def call(inputs, *args):
        return layer(inputs, **dict(zip(specs, args, strict=True)))

    return call


def check_rows(result, expected):
    expected = np.broadcast_to(expected, result.shape)
    np.testing.assert_allclose(result, expected, rtol=0, atol=8e-7)


def check_not_wrong(call, expected):
    """`call` raises, or gives the true rows, or NaN in the place of some."""
    try:
        result = np.array(call())
    except Exception as error:
        # Not an error of this test's own making.
        assert not isinstance(error, (AttributeError, NameError, TypeError)), error
        return
    assert result.shape == np.shape(expected)
    kept = ~np.isnan(result).any(axis=-1)
    check_rows(result[kept], np.asarray(expected)[kept])


# More steps than `max_length`, or positions beyond it.


@pytest.mark.parametrize(
    ("shape", "kwargs", "received"),
    [
        ((1, 5, 4), {}, "5 steps from position 0"),
        ((1, 5, 4), dict(start_index=0), "5 steps from position 0"),
        ((1, 2, 4), dict(start_index=3), "2 steps from position 3"),
        ((1, 1, 4), dict(start_index=-1), "1 steps from position -1"),
        ((1, 2, 4), dict(start_index=np.int64(3)), "2 steps from position 3"),
        ((2, 2, 4), dict(start_index=[0, 3]), "2 steps from position 0 to 3"),
        ((1, 2, 4), dict(positions=[[3, 9]]), "positions from 3 to 9"),
        ((1, 2, 4), dict(positions=[-1, 3]), "positions from -1 to 3"),
        ((1, 2, 4), dict(positions=[3, 3.5]), "positions from 3.0 to 3.5"),
        ((1, 2, 4), dict(positions=[-0.5, 3]), "positions from -0.5 to 3.0"),
    ],
    ids=repr,
)
def test_beyond_max_length(shape, kwargs, received):
    layer = PositionalEncoding(max_length=4, name="pos")
    message = "layer 'pos' takes positions 0 to 3 .`max_length=4`.. Received: "
    with pytest.raises(ValueError, match=message + received):
        layer(zeros(*shape), **kwargs)
    kwargs = {
        name: tensor(value, np.array(value).dtype) for name, value in kwargs.items()
    }
    with pytest.raises(ValueError, match=message + received):
        layer(zeros(*shape), **kwargs)


def test_beyond_max_length_where_the_length_is_static():
    layer = PositionalEncoding(max_length=4, name="pos")
    message = "layer 'pos' takes positions 0 to 3 .* Received: 5 steps from position 0"
    with pytest.raises(ValueError, match=message):
        layer(keras.Input((5, 4)))
    with pytest.raises(ValueError, match="3 steps from position 2"):
        layer(keras.Input((3, 4)), start_index=2)
    assert layer(keras.Input((4, 4))).shape == (None, 4, 4)


def test_a_run_beyond_int32_from_a_tensor():
    layer = PositionalEncoding(name="pos")
    message = "Received: 3 steps from position 2147483646(?! to)"
    with pytest.raises(ValueError, match=message):
        layer(zeros(1, 3, 4), start_index=tensor(2**31 - 2, "int32"))


@pytest.mark.parametrize("max_length", [None, 4])
def test_of_an_unknown_length_the_first_step_counts(max_length):
    first, last = (0, 3) if max_length else (-(2**31), 2**31 - 1)
    layer = PositionalEncoding(max_length=max_length)
    for time in (None, 1, 0):
        x = keras.KerasTensor((None, time, 4))
        for start in (first, last):
            assert layer(x, start_index=start).shape == x.shape
        for start in (first - 1, last + 1):
            with pytest.raises(
                ValueError, match=rf"steps? .*{start}|in -2147483648\.\."
            ):
                layer(x, start_index=start)


@pytest.mark.parametrize("sizes", [(None, None), (None, 5), (2, None), (2, 5), (1, 5)])
@pytest.mark.parametrize("known", [(None, None), (None, 5), (2, None), (2, 5)])
def test_sizes_that_are_not_known_fit(sizes, known):
    """Of the input or of positions: what is not known is found as a graph runs."""
    layer, x = PositionalEncoding(), keras.KerasTensor((*known, 4))
    positions = keras.KerasTensor(sizes, "int32")
    assert layer(x, positions=positions).shape == x.shape
    if known[1] == 5:
        with pytest.raises(ValueError, match=r"time=5\. Received: .* of shape"):
            layer(x, positions=keras.KerasTensor((sizes[0], 6), "int32"))


@pytest.mark.parametrize("max_length", [1, 4])
def test_up_to_max_length(max_length):
    layer = PositionalEncoding(max_length=max_length)
    expected = encode(zeros(2, 4, 4), PositionalEncoding())[:, :max_length]
    for inputs in (zeros(2, max_length, 4), ops.zeros((2, max_length, 4))):
        np.testing.assert_array_equal(encode(inputs, layer), expected)
    last = max_length - 1
    for kwargs in (dict(start_index=last), dict(positions=[last])):
        result = encode(zeros(2, 1, 4), layer, **kwargs)
        np.testing.assert_array_equal(result, expected[:, -1:])


@pytest.mark.tensorflow
def test_beyond_max_length_in_predict(tf):
    inputs = keras.Input((None, 4))
    layer = PositionalEncoding(max_length=4, name="pos")
    model = keras.Model(inputs, layer(inputs))
    with pytest.raises(ValueError, match=r"'pos' takes positions 0 to 3 .* 5 steps"):
        model.predict(zeros(1, 5, 4), verbose=0)
    with pytest.raises(ValueError, match=r"'pos' takes positions 0 to 3 .* 5 steps"):
        model(zeros(1, 5, 4))
    assert model.predict(zeros(1, 4, 4), verbose=0).shape == (1, 4, 4)
    data = tf.data.Dataset.from_generator(
        lambda: [zeros(1, 5, 4)], output_signature=tf.TensorSpec((None, None, 4))
    )
    message = "'pos.*' takes positions 0 to 3 .`max_length=4`.. Received: .*5"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        model.predict(data, verbose=0)


@pytest.mark.tensorflow
def test_beyond_max_length_in_an_exported_model(tf, tmp_path):
    inputs = keras.Input((None, 4), name="x")
    layer = PositionalEncoding(max_length=4, name="pos")
    keras.Model(inputs, layer(inputs)).export(tmp_path / "model", verbose=False)
    serve = tf.saved_model.load(tmp_path / "model").signatures["serving_default"]
    message = "'pos.*' takes positions 0 to 3 .`max_length=4`.. Received: .*5"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        serve(x=tf.zeros((1, 5, 4)))
    check_rows(serve(x=tf.zeros((2, 4, 4)))["output_0"].numpy()[:, 3], ROW_3)


def test_the_sizes_of_the_input_are_told():
    layer = PositionalEncoding(name="pos")
    message = r"input has batch=2, time=5\. Received: positions of shape \(3,\)"
    with pytest.raises(ValueError, match=message):
        layer(zeros(2, 5, 4), positions=[1, 2, 3])


def test_a_start_beyond_max_length_where_no_length_is_known():
    layer = PositionalEncoding(max_length=4)
    message = "takes positions 0 to 3 .*. Received: steps from position 4"
    with pytest.raises(ValueError, match=message):
        layer(keras.Input((None, 4)), start_index=4)


@pytest.mark.tensorflow
def test_a_constant_of_a_graph_is_known_as_it_is_traced(tf):
    layer = PositionalEncoding(max_length=4)
    graph = tf.function(lambda x: layer(x, start_index=tf.constant(4)))
    with pytest.raises(ValueError, match="1 steps from position 4"):
        graph.get_concrete_function(tf.TensorSpec((1, 1, 4)))


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_the_last_position_in_a_graph(tf, jit_compile):
    """There is room for one step, and for none."""
    layer = PositionalEncoding(max_length=4)
    start = tf.TensorSpec((), tf.int32)
    graph = make_graph(tf, layer, jit_compile, start_index=start)
    check_rows(graph(tf.zeros((2, 1, 4)), tf.constant(3)), ROW_3)
    assert graph(tf.zeros((2, 0, 4)), tf.constant(3)).shape == (2, 0, 4)


@pytest.mark.tensorflow
@pytest.mark.parametrize("kind", ["steps", "positions", "fractions", "start", "starts"])
def test_beyond_max_length_in_a_graph(tf, kind):
    layer = PositionalEncoding(max_length=4, name="pos")
    specs, time, args, received = {
        "steps": ({}, 9, [], "9.* steps from position .*0"),
        "positions": (
            dict(positions=tf.TensorSpec((None, None), tf.int32)),
            2,
            [tf.constant([[3, 9]])],
            "positions from .*3.* to .*9",
        ),
        "fractions": (
            dict(positions=tf.TensorSpec((None,), tf.float32)),
            2,
            [tf.constant([3, 8.5])],
            "positions from .*3.* to .*8.5",
        ),
        "start": (
            dict(start_index=tf.TensorSpec((), tf.int32)),
            2,
            [tf.constant(3)],
            "2.* steps from position .*3",
        ),
        "starts": (
            dict(start_index=tf.TensorSpec((None,), tf.int64)),
            2,
            [tf.constant([9], tf.int64)],
            "2.* steps from position .*9",
        ),
    }[kind]
    graph = make_graph(tf, layer, False, **specs)
    message = "'pos.*' takes positions 0 to 3 .`max_length=4`.. Received: .*"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message + received):
        graph(tf.zeros((1, time, 4)), *args)


@pytest.mark.tensorflow
def test_beyond_int32_in_a_graph(tf):
    layer = PositionalEncoding(name="pos")
    message = "'pos.*' takes positions -2147483648 to 2147483647. Received: "
    for name, number in (
        ("positions", [2**31]),
        ("positions", [-(2**31) - 1]),
        ("start_index", 2**31),
        ("start_index", 2**32 + 1),
        ("start_index", [2**31 - 1]),
    ):
        spec = tf.TensorSpec(np.shape(number) and (None,), tf.int64)
        graph = make_graph(tf, layer, False, **{name: spec})
        time = 1 if name == "positions" else 2
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            graph(tf.zeros((1, time, 4)), tf.constant(number, tf.int64))


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_run_beyond_int32_in_a_graph(tf, jit_compile):
    layer, spec = PositionalEncoding(name="pos"), tf.TensorSpec((None, None, 4))
    last = 2**31 - 1
    graph = tf.function(
        lambda x: layer(x, start_index=last - 1), [spec], jit_compile=jit_compile
    )
    rows = [[angles_of(last - 1), angles_of(last)]]
    np.testing.assert_allclose(graph(tf.zeros((1, 2, 4))), rows, rtol=0, atol=1e-6)
    if jit_compile:
        assert np.isnan(graph(tf.zeros((1, 3, 4)))).any()
    else:
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=r"'pos.*' takes positions"
        ):
            graph(tf.zeros((1, 3, 4)))


@pytest.mark.tensorflow
@pytest.mark.parametrize("start", [0, -5])
def test_a_run_that_always_fits_is_not_checked(tf, start):
    layer = PositionalEncoding()
    graph = tf.function(lambda inputs: layer(inputs, start_index=start))
    graph = graph.get_concrete_function(tf.TensorSpec((None, None, 4))).graph
    assert "Assert" not in {operation.type for operation in graph.get_operations()}


@pytest.mark.tensorflow
@pytest.mark.parametrize("dtype", ["int32", "uint16"])
def test_positions_that_int32_always_holds_are_not_checked(tf, dtype):
    spec = tf.TensorSpec((5,), dtype)
    graph = tf.function(
        lambda p: PositionalEncoding()(tf.zeros((2, 5, 4)), positions=p)
    )
    graph = graph.get_concrete_function(spec).graph
    assert "Assert" not in {operation.type for operation in graph.get_operations()}


# Where a compiler drops the checks.


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize(("max_length", "start"), [(1, 0), (2, 0), (4, 0), (4, 3)])
def test_no_wrong_row_of_too_many_steps(tf, max_length, start, jit_compile):
    layer = PositionalEncoding(max_length=max_length)
    spec = [tf.TensorSpec((None, None, 4))]
    graph = tf.function(
        lambda inputs: layer(inputs, start_index=start), spec, jit_compile=jit_compile
    )
    rows = encode(zeros(2, 12, 4), PositionalEncoding())
    for time in (2, 3, 5, 9):
        expected = rows[:, start : start + time]
        check_not_wrong(lambda: graph(tf.zeros(expected.shape)), expected)  # noqa: B023


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize(
    ("dtype", "last"), [("int32", 9), ("int64", 2**33), ("uint8", 255), ("float32", 9)]
)
def test_no_wrong_row_of_positions(tf, dtype, last, jit_compile):
    layer = PositionalEncoding(max_length=4)
    spec = tf.TensorSpec((None, None), dtype)
    graph = make_graph(tf, layer, jit_compile, positions=spec)
    unlimited = PositionalEncoding(dtype="float64")
    expected = encode(zeros(1, 2, 4), unlimited, positions=[[3, min(last, 2**31 - 1)]])
    if last == 2**33:
        expected[0, 1] = np.nan  # No row can be right.
    positions = tf.constant([[3, last]], dtype)
    check_not_wrong(lambda: graph(tf.zeros((1, 2, 4)), positions), expected)
    good = tf.constant([[3, 2]], dtype)
    assert np.isfinite(graph(tf.zeros((1, 2, 4)), good)).all()


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("max_length", [None, 4])
@pytest.mark.parametrize(
    "start", first_of([3, 2**31 - 1, 2**32, 9, -1, 2**31, -(2**31) - 1], 3)
)
def test_no_wrong_row_of_a_start_index(tf, start, max_length, jit_compile):
    layer = PositionalEncoding(max_length=max_length)
    for shape in ((), (None,)):
        spec = tf.TensorSpec(shape, tf.int64)
        graph = make_graph(tf, layer, jit_compile, start_index=spec)
        given = tf.constant([start] if shape else start, tf.int64)
        expected = np.stack([angles_of(start), angles_of(start + 1)])[None]
        check_not_wrong(lambda: graph(tf.zeros((1, 2, 4)), given), expected)  # noqa: B023


def angles_of(position):
    if not -(2**31) <= position < 2**31:
        return np.full(4, np.nan)
    a, b = float(position), position / 100
    return np.array([np.sin(a), np.cos(a), np.sin(b), np.cos(b)])


@pytest.mark.parametrize("name", ["positions", "start_index"])
@pytest.mark.parametrize("value", [3, 9, -1])
def test_no_wrong_row_in_a_compiled_predict(name, value):
    """Of every backend: `jax.jit` among them."""
    inputs = keras.Input((2, 4))
    shape = () if name == "start_index" else (2,)
    second = keras.Input(shape, dtype="int32")
    layer = PositionalEncoding(max_length=4)
    model = keras.Model([inputs, second], layer(inputs, **{name: second}))
    model.compile(jit_compile=keras.backend.backend() != "torch")
    given = np.array([[3, value]] if shape else [value], "int32")
    numbers = [3, value] if shape else [value, value + 1]
    expected = np.stack([angles_of(number) for number in numbers])[None]
    check_not_wrong(lambda: model.predict([zeros(1, 2, 4), given], verbose=0), expected)


@pytest.mark.tensorflow
@pytest.mark.parametrize("max_length", [None, 1, 4])
def test_no_wrong_row_in_lite_rt(tf, max_length):
    layer = PositionalEncoding(max_length=max_length)
    graph = make_graph(tf, layer, False)
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [graph.get_concrete_function()], layer
    )
    interpreter = tf.lite.Interpreter(model_content=converter.convert())
    [given], [made] = interpreter.get_input_details(), interpreter.get_output_details()

    def call(shape):
        interpreter.resize_tensor_input(given["index"], shape)
        interpreter.allocate_tensors()
        interpreter.set_tensor(given["index"], zeros(*shape))
        interpreter.invoke()
        return interpreter.get_tensor(made["index"])

    rows = encode(zeros(1, 70, 4), PositionalEncoding())
    for time in (1, 3, 70, 1):
        expected = np.repeat(rows[:, :time], 2, axis=0)
        if max_length is None or time <= max_length:
            np.testing.assert_allclose(call((2, time, 4)), expected, atol=1e-6)
        else:
            check_not_wrong(lambda: call((2, time, 4)), expected)  # noqa: B023


# Any length.


@pytest.mark.parametrize("start", [0, tensor(0)], ids=["int", "tensor"])
def test_long_inputs(start):
    result = encode(zeros(1, 5000, 4), PositionalEncoding(), start_index=start)
    check_rows(result[0, 4095], ROW_4095)
    result = encode(zeros(1, 20000, 4), PositionalEncoding(), start_index=start)
    check_rows(result[0, 4095], ROW_4095)
    check_rows(result[0, [0, 9, 19999]], [angles_of(p) for p in (0, 9, 19999)])


@pytest.mark.parametrize("max_length", [None, 9000])
def test_one_layer_at_several_lengths(max_length):
    layer = PositionalEncoding(max_length=max_length)
    for time in (8, 9000, 1, 8):
        result = encode(zeros(1, time, 4), layer)
        assert (result.dtype, result.shape) == ("float32", (1, time, 4))
        check_rows(result[0, 0], [0, 1, 0, 1])
        check_rows(result[0, time - 1], angles_of(time - 1))


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("max_length", [None, 9000])
def test_one_graph_at_several_lengths(tf, max_length, jit_compile):
    graph = make_graph(tf, PositionalEncoding(max_length=max_length), jit_compile)
    for time in (8, 9000, 1, 255, 256, 257):
        result = graph(tf.zeros((1, time, 4))).numpy()
        check_rows(result[0, [0, -1]], [[0, 1, 0, 1], angles_of(time - 1)])


@pytest.mark.parametrize("max_length", [None, 4])
@pytest.mark.parametrize(
    "shape", [(0, 3, 4), (2, 0, 4), (1, 0, 1), (0, 0, 4), (2, 3, 0, 4)]
)
def test_empty_inputs(shape, max_length):
    layer = PositionalEncoding(max_length=max_length)
    batch, time = shape[0], shape[-2]
    for kwargs in (
        {},
        dict(start_index=1),
        dict(start_index=tensor(1)),
        dict(start_index=tensor(np.ones(batch))),
        dict(positions=np.ones(time, "int32")),
        dict(positions=tensor(np.ones((batch, time)))),
        dict(positions=tensor(np.ones((batch, time)), "float32")),
    ):
        assert encode(zeros(*shape), layer, **kwargs).shape == shape


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("max_length", [None, 4])
@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 4), (0, 0, 4)])
def test_empty_inputs_of_a_graph(tf, shape, max_length, jit_compile):
    layer = PositionalEncoding(max_length=max_length)
    batch, time = shape[:2]
    for specs, args in (
        ({}, []),
        (dict(start_index=tf.TensorSpec((), tf.int32)), [tf.constant(1)]),
        (
            dict(start_index=tf.TensorSpec((None,), tf.int32)),
            [tf.ones(batch, tf.int32)],
        ),
        (dict(positions=tf.TensorSpec((None,), tf.int32)), [tf.ones(time, tf.int32)]),
        (dict(positions=tf.TensorSpec((None, None))), [tf.ones((batch, time))]),
    ):
        graph = make_graph(tf, layer, jit_compile, **specs)
        assert graph(tf.zeros(shape), *args).shape == shape


# Integer types near their limits.


@pytest.mark.parametrize(
    ("dtype", "numbers"),
    [
        ("int8", [127, 0]),
        ("int8", [-128, -1]),
        ("uint8", [255, 128]),
        ("int16", [32767, -32768]),
        ("uint16", [65535, 32768]),
        ("int32", [2**31 - 1, -(2**31)]),
        ("uint32", [2**31 - 1, 2**24 + 1]),
        ("int64", [2**31 - 1, -(2**31)]),
    ],
)
def test_positions_at_the_limits_of_a_dtype(dtype, numbers):
    layer = PositionalEncoding(dtype="float32")
    expected = [angles_of(number) for number in numbers]
    for positions in (np.array(numbers, dtype), tensor(numbers, dtype)):
        result = encode(zeros(1, 2, 4), layer, positions=positions)
        np.testing.assert_allclose(result[0], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "number"),
    [("uint32", 2**31), ("uint64", 2**31), ("uint64", 2**63), ("int64", 2**31)],
)
def test_positions_beyond_int32(dtype, number):
    check_refused(np.array([number], dtype), number)


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("dtype", "number"),
    [("uint32", 2**31), ("uint64", 2**31), ("uint64", 2**63), ("int64", 2**31)],
)
def test_position_tensors_beyond_int32(dtype, number):
    check_refused(tensor([number], dtype), number)


def check_refused(value, number):
    layer = PositionalEncoding(name="pos")
    for name in ("positions", "start_index"):
        with pytest.raises(ValueError, match=rf"'pos'.*{number}"):
            layer(zeros(1, 1, 4), **{name: value})


@pytest.mark.tensorflow
def test_unsigned_tensors_keep_every_bit(tf):
    numbers = [2**31 - 1, 2**24 + 1]
    expected = [[angles_of(number) for number in numbers]]
    for dtype in (tf.uint32, tf.uint64):
        positions = tf.constant([numbers], dtype)
        result = PositionalEncoding()(tf.zeros((1, 2, 4)), positions=positions)
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("max_length", [None, 300])
def test_a_run_leaves_the_range_of_its_start_index(dtype, max_length):
    layer = PositionalEncoding(max_length=max_length)
    start = np.iinfo(dtype).max - 1
    result = encode(zeros(1, 40, 4), layer, start_index=tensor(start, dtype))
    expected = [angles_of(start + step) for step in range(40)]
    np.testing.assert_allclose(result[0], expected, rtol=0, atol=8e-7)


def test_limit_is_larger_than_the_dtype_of_the_positions():
    layer = PositionalEncoding(max_length=70000)
    for dtype, number in (("int8", 127), ("uint8", 255), ("int16", 32767)):
        result = encode(zeros(1, 1, 4), layer, positions=tensor([number], dtype))
        check_rows(result[0, 0], angles_of(number))


@pytest.mark.parametrize("start", [2**31 - 2, -(2**31)])
def test_start_index_at_the_limits_of_int32(start):
    layer = PositionalEncoding()
    expected = [[angles_of(start), angles_of(start + 1)]]
    for value in (start, tensor(start), [start], tensor([start])):
        result = encode(zeros(1, 2, 4), layer, start_index=value)
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-6)


# Shapes that only a running graph knows.


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("max_length", [None, 8])
@pytest.mark.parametrize("dtype", ["int32", "float32"])
@pytest.mark.parametrize(
    ("inputs", "positions"),
    [
        ((2, 3), (1,)),
        ((2, 3), (2,)),
        ((2, 3), (6,)),
        ((2, 1), (3,)),
        ((2, 3), (2, 1)),
        ((2, 3), (1, 1)),
        ((2, 3), (3, 2)),
        ((2, 3), (1, 6)),
        ((1, 3), (3, 3)),
        ((3, 3), (2, 3)),
        ((2, 1), (2, 3)),
        ((0, 3), (2, 3)),
        ((2, 0), (2, 1)),
        ((2, 3), (0, 3)),
    ],
    ids=repr,
)
def test_positions_are_never_broadcast(
    tf, inputs, positions, dtype, max_length, jit_compile
):
    graph = unknown_positions(tf, len(positions), dtype, max_length, jit_compile)
    with pytest.raises(tf.errors.InvalidArgumentError):
        graph(tf.zeros((*inputs, 4)), tf.zeros(positions, dtype))


GRAPHS = {}


def unknown_positions(tf, rank, dtype, max_length, jit_compile):
    """One graph for all shapes: that saves the tests most of their time."""
    key = rank, dtype, max_length, jit_compile
    if key not in GRAPHS:
        spec = tf.TensorSpec((None,) * rank, dtype)
        layer = PositionalEncoding(max_length=max_length, name="pos")
        GRAPHS[key] = make_graph(tf, layer, jit_compile, positions=spec)
    return GRAPHS[key]


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("max_length", [None, 8])
@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_positions_of_unknown_shape_that_fit(tf, dtype, max_length, jit_compile):
    for batch, shape in ((2, (3,)), (2, (2, 3)), (2, (1, 3)), (1, (1, 3)), (0, (1, 3))):
        graph = unknown_positions(tf, len(shape), dtype, max_length, jit_compile)
        positions = np.arange(np.prod(shape)).reshape(shape) % 4
        result = graph(tf.zeros((batch, 3, 4)), tf.constant(positions, dtype)).numpy()
        expected = [[angles_of(p) for p in row] for row in np.atleast_2d(positions)]
        assert result.shape == (batch, 3, 4)
        check_rows(result, expected)


@pytest.mark.tensorflow
def test_a_start_that_is_constant_is_known_as_a_graph_is_traced(tf):
    layer, start = PositionalEncoding(max_length=4), tf.constant(3)
    trace = tf.function(lambda x: layer(x, start_index=start))
    with pytest.raises(ValueError, match=r"takes positions 0 to 3 .* from position 3"):
        trace.get_concrete_function(tf.TensorSpec((2, 2, 4)))


@pytest.mark.tensorflow
def test_error_of_a_shape_in_a_graph_names_the_layer(tf):
    graph = unknown_positions(tf, 1, "int32", None, False)
    message = r"(?s)'pos.*`positions` must fit the input.*, and sizes wanted:\D*2\D*3"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        graph(tf.zeros((2, 3, 4)), tf.constant([0, 1]))


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("max_length", [None, 8])
def test_start_index_is_never_broadcast(tf, max_length, jit_compile):
    layer = PositionalEncoding(max_length=max_length)
    spec = tf.TensorSpec((None,), tf.int32)
    graph = make_graph(tf, layer, jit_compile, start_index=spec)
    message = "" if jit_compile else "`start_index` must fit the input"
    for batch, size in ((1, 3), (3, 2), (2, 0), (4, 2)):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            graph(tf.zeros((batch, 2, 4)), tf.zeros(size, tf.int32))
    assert graph(tf.zeros((3, 2, 4)), tf.zeros(1, tf.int32)).shape == (3, 2, 4)


@pytest.mark.tensorflow
def test_positions_of_unknown_rank(tf):
    layer = PositionalEncoding(name="pos")
    spec = tf.TensorSpec(None, tf.int32)
    graph = make_graph(tf, layer, False, positions=spec)
    with pytest.raises(ValueError, match=r"'pos': `positions` must be .* known rank"):
        graph.get_concrete_function()


@pytest.mark.tensorflow
def test_inputs_of_unknown_rank(tf):
    layer = PositionalEncoding(name="pos")
    graph = tf.function(layer, input_signature=[tf.TensorSpec(None)])
    with pytest.raises(ValueError, match="'pos' takes inputs of a known rank"):
        graph.get_concrete_function()


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", ["positions", "start_index"])
def test_lists_of_symbolic_tensors(tf, name):
    layer = PositionalEncoding(name="pos")

    @tf.function(input_signature=[tf.TensorSpec((), tf.int32)])
    def graph(number):
        return layer(tf.zeros((2, 2, 4)), **{name: [number, number]})

    with pytest.raises(ValueError, match=f"'pos': `{name}` must be an array, or one"):
        graph.get_concrete_function()


@pytest.mark.tensorflow
def test_sizes_that_are_known_are_not_looked_at_in_a_graph(tf):
    layer = PositionalEncoding()

    def operations(batch):
        spec = tf.TensorSpec((batch, 3, 4)), tf.TensorSpec((batch, 3), tf.int32)
        graph = tf.function(lambda x, at: layer(x, positions=at))
        made = graph.get_concrete_function(*spec).graph.get_operations()
        return collections.Counter(op.type for op in made)

    known, unknown = operations(2), operations(None)
    assert (known["Assert"], unknown["Assert"]) == (0, 1)
    assert known["Reshape"] < unknown["Reshape"]


@pytest.mark.tensorflow
def test_known_runs_are_not_looked_at_in_a_graph(tf, monkeypatch):
    monkeypatch.setattr(sinusoid_rows, "LARGEST_CONSTANT", 0)  # no table of them
    layer = PositionalEncoding()
    graph = tf.function(lambda x: layer(x, start_index=3))
    made = graph.get_concrete_function(tf.TensorSpec((1, 300, 4))).graph
    kinds = {op.type for op in made.get_operations()}
    assert "Sin" in kinds and kinds.isdisjoint({"Assert", "SelectV2"})
