"""Layers under a backend's transformations: compiled, mapped, differentiated."""

import keras
import numpy as np
import pytest
from keras import ops
from oracle import exact_rows
from positioned import LAYERS
from processes import run

import keras_pe
from keras_pe import sinusoidal_encoding

BACKEND = keras.config.backend()
# Vectorized by TensorFlow (2.18 and 2.21, on a CPU), Keras's own EinsumDense gives
# wrong numbers or aborts, unless oneDNN is off: these have a process where it is.
APART = ("rotary", "alibi", "relative") if BACKEND == "tensorflow" else ()
MAPPED = [name for name in LAYERS if name not in APART]
FAR = [2**30 - 1, 2**30, 2**31 - 1, -(2**30), -(2**31)]


def compiled(function):
    """The function, compiled by the backend: `jax.jit`, XLA, or `torch.compile`."""
    if BACKEND == "jax":
        import jax

        return jax.jit(function)
    if BACKEND == "torch":
        import torch

        return torch.compile(function)
    import tensorflow as tf

    return tf.function(function, jit_compile=True)


def mapped(function):
    """The function of one member of a batch, on all: `vmap`, `vectorized_map`."""
    if BACKEND == "jax":
        import jax

        return jax.vmap(function)
    if BACKEND == "torch":
        import torch

        return torch.func.vmap(function)
    import tensorflow as tf

    return lambda *arrays: tf.vectorized_map(lambda each: function(*each), arrays)


def compiled_and_mapped(function):
    return compiled(mapped(function))


def gradient(function):
    """The gradient of a function of a list of tensors: `jax.grad`, a tape, `grad`."""
    if BACKEND == "jax":
        import jax

        return jax.grad(function)
    if BACKEND == "torch":
        import torch

        return torch.func.grad(function)
    import tensorflow as tf

    def differentiated(tensors, *others):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            result = function(tensors, *others)
        unconnected = tf.UnconnectedGradients.ZERO
        return tape.gradient(result, tensors, unconnected_gradients=unconnected)

    return differentiated


def jacobian(function):
    """The jacobian of a function of a tensor."""
    if BACKEND == "jax":
        import jax

        return jax.jacobian(function)
    if BACKEND == "torch":
        import torch

        return torch.func.jacrev(function)
    import tensorflow as tf

    def differentiated(tensor):
        with tf.GradientTape() as tape:
            tape.watch(tensor)
            result = function(tensor)
        return tape.jacobian(result, tensor)

    return differentiated


def array(tensor):
    return ops.convert_to_numpy(ops.stop_gradient(tensor))


def tensor(values, dtype="float32"):
    return ops.convert_to_tensor(np.array(values, dtype))


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


INPUTS = normal(3, 6, 16)


def model_of(name):
    """A model of one layer, `(batch, 6, 16)` to as much."""
    x = keras.Input((6, 16))
    return keras.Model(x, LAYERS[name](x))


# The functional form.


@pytest.mark.parametrize("dtype", ["int32", "float32"])
@pytest.mark.parametrize("how", [compiled, mapped, compiled_and_mapped])
def test_functional_rows(how, dtype):
    positions = np.array([[0, 1, 257], [70_000, 2**24, -3]])
    rows = how(lambda p: sinusoidal_encoding(p, 6))(tensor(positions, dtype))
    truth = exact_rows(positions.ravel(), 6).reshape(2, 3, 6)
    np.testing.assert_allclose(array(rows), truth, rtol=0, atol=3e-7)


@pytest.mark.parametrize("how", [compiled, mapped, compiled_and_mapped])
def test_functional_rows_at_the_ends_of_int32(how):
    rows = array(how(lambda p: sinusoidal_encoding(p, 64))(tensor(FAR, "int32")))
    error = np.abs(rows - exact_rows(FAR, 64)).max(axis=1)
    assert error[0] < 3e-7 and error.max() < 1e-6, f"measured {error}"


def test_no_gradient_flows_to_positions_of_the_functional_form():
    def total(tensors):
        return ops.sum(sinusoidal_encoding(tensors[0], 6))

    for differentiated in (gradient(total), compiled(gradient(total))):
        [found] = differentiated([tensor([0.5, 1.5])])
        assert array(found).tolist() == [0, 0]


# The layers.


HOWS = [
    pytest.param(mapped, id="mapped"),
    pytest.param(compiled_and_mapped, id="compiled", marks=pytest.mark.long),
]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("name", MAPPED)
def test_a_model(name, how):
    model = model_of(name)
    found = how(lambda x: model(x[None])[0])(tensor(INPUTS))
    np.testing.assert_allclose(array(found), array(model(INPUTS)), rtol=0, atol=2e-6)


@pytest.mark.long
@pytest.mark.parametrize("name", LAYERS)
def test_a_compiled_model(name):
    model = model_of(name)
    found = compiled(lambda x: model(x))(tensor(INPUTS))
    np.testing.assert_allclose(array(found), array(model(INPUTS)), rtol=0, atol=2e-6)


STARTED = {
    "sinusoidal": keras_pe.PositionalEncoding,
    "table": lambda: keras_pe.PositionalEncoding(max_length=9),
    "learned": lambda: keras_pe.LearnedPositionalEncoding(max_length=9),
    "rotary": keras_pe.RotaryEmbedding,
    "alibi": lambda: keras_pe.ALiBi(num_heads=2),
    "relative": lambda: keras_pe.RelativePositionBias(num_heads=2),
}


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("given", ["start_index", "positions"])
@pytest.mark.parametrize("name", STARTED)
def test_each_member_of_a_batch_has_its_own_positions(name, given, how):
    layer = STARTED[name]()
    numbers = np.array([3, 0, 1], "int32")
    if given == "positions":
        numbers = numbers[:, None] + np.array([5, 0, 2, 2, 1, 3], "int32")
    expected = layer(INPUTS, **{given: numbers})
    found = how(lambda x, n: layer(x[None], **{given: n})[0])(
        tensor(INPUTS), tensor(numbers, "int32")
    )
    np.testing.assert_allclose(array(found), array(expected), rtol=0, atol=2e-6)


@pytest.mark.long
@pytest.mark.parametrize("given", ["nothing", "start_index", "positions"])
@pytest.mark.parametrize("name", STARTED)
def test_a_compiled_batch(name, given):
    layer = STARTED[name]()
    numbers = np.array([[3], [0], [1]], "int32") + np.arange(6, dtype="int32")
    numbers = {"start_index": numbers[:, 0], "positions": numbers}.get(given)
    call = {} if numbers is None else {given: tensor(numbers, "int32")}
    expected = layer(INPUTS, **call)
    found = compiled(lambda x, call: layer(x, **call))(tensor(INPUTS), call)
    np.testing.assert_allclose(array(found), array(expected), rtol=0, atol=2e-6)


@pytest.mark.parametrize("how", HOWS)
def test_no_wrong_row_for_a_member_that_is_beyond_the_table(how):
    """NaN, where a mapped check can raise nothing; or the error of a graph."""
    layer = keras_pe.PositionalEncoding(max_length=8)
    call = how(lambda x, start: layer(x[None], start_index=start)[0])
    try:
        found = array(call(tensor(INPUTS), tensor([0, 3, 2], "int32")))
    except Exception as error:
        # Compiled, torch has an error of its own.
        assert "positional_encoding" in str(error) or "vmap" in str(error)
    else:
        assert np.isnan(found[1]).any() and np.isfinite(found[[0, 2]]).all()


@pytest.mark.parametrize("name", MAPPED)
def test_gradients_of_weights_and_inputs(name):
    """As finite differences have them; alone, compiled, and of each of a batch."""
    model = model_of(name)
    others = [weight.value for weight in model.non_trainable_variables]
    weights = [weight.value for weight in model.trainable_variables]
    # Of each member and place another part of the sum.
    parts = tensor(normal(*INPUTS.shape))

    def loss(tensors, parts):
        *weights, x = tensors
        found, _ = model.stateless_call(weights, others, x)
        return ops.sum(ops.square(found) * parts)

    point = [*weights, tensor(INPUTS)]
    found = [array(each) for each in gradient(loss)(point, parts)]
    direction = [np.sign(each) / np.sqrt(each.size) for each in found]
    ends = [
        loss(
            [p + step * tensor(d) for p, d in zip(point, direction, strict=True)], parts
        )
        for step in (1e-2, -1e-2)
    ]
    slope = sum((f * d).sum() for f, d in zip(found, direction, strict=True))
    assert slope > 1
    np.testing.assert_allclose(array(ends[0] - ends[1]) / 2e-2, slope, rtol=1e-3)
    # Per example, as for private training: summed, those of the whole batch.
    each = mapped(lambda x, parts: gradient(loss)([*weights, x[None]], parts[None]))
    *of_weights, of_inputs = map(array, each(tensor(INPUTS), parts))
    summed = [of_weight.sum(axis=0) for of_weight in of_weights]
    for one, other in zip([*summed, of_inputs[:, 0]], found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.long
@pytest.mark.tensorflow
def test_attention_without_one_dnn():
    printed = run(
        """
        import test_transforms as tests

        for name in tests.APART:
            tests.test_a_model(name, tests.mapped)
            tests.test_gradients_of_weights_and_inputs(name)
        print(*tests.APART)
        """,
        env={"TF_ENABLE_ONEDNN_OPTS": "0"},
    )
    assert printed.splitlines()[-1] == "rotary alibi relative"


@pytest.mark.parametrize("name", ["sinusoidal", "table", "learned", "axial"])
def test_what_is_added_has_no_part_in_the_jacobian(name):
    found = array(jacobian(model_of(name))(tensor(INPUTS[:1])))
    identity = np.eye(INPUTS[0].size).reshape(found.shape)
    np.testing.assert_array_equal(found, identity)
