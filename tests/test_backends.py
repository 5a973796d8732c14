"""What each backend does in its own way: its compiler, its float64."""

import math
import re

import keras
import numpy as np
import pytest
from keras import ops
from oracle import exact_rows
from processes import run

import keras_pe
from keras_pe import PositionalEncoding, rates, relative, tables, turns


def compile_for_any_length(layer, **kwargs):
    """Return the layer, traced by the backend's own means with its length unknown."""
    backend = keras.config.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        spec = tf.TensorSpec((None, None, 8))
        return tf.function(lambda x: layer(x, **kwargs), input_signature=[spec])
    if backend == "jax":
        import jax

        batch, time = jax.export.symbolic_shape("batch, time")
        spec = jax.ShapeDtypeStruct((batch, time, 8), "float32")
        return jax.export.export(jax.jit(lambda x: layer(x, **kwargs)))(spec).call
    import torch

    return torch.compile(lambda x: layer(x, **kwargs), backend="eager")


@pytest.mark.parametrize("max_length", [None, 305])
@pytest.mark.parametrize("start", [0, 3, np.int64(5)])
def test_a_length_that_is_unknown_when_traced(start, max_length):
    layer = PositionalEncoding(max_length=max_length)
    compiled = compile_for_any_length(layer, start_index=start)
    for time in (1, 5, 300):
        rows = compiled(ops.zeros((2, time, 8)))
        truth = exact_rows(range(start, start + time), 8)
        np.testing.assert_allclose(
            ops.convert_to_numpy(rows)[1], truth, rtol=0, atol=3e-7
        )


@pytest.mark.torch
@pytest.mark.parametrize("name", ["positions", "start_index"])
def test_arrays_that_torch_compiles(name):
    import torch

    layer, call = PositionalEncoding(), {name: np.array([2, 5])}
    x = torch.zeros(2, 2, 8)
    compiled = torch.compile(lambda x: layer(x, **call), backend="eager")
    np.testing.assert_array_equal(compiled(x), layer(x, **call))


LLAMA3 = {
    "type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@pytest.mark.torch
@pytest.mark.parametrize(
    "layer",
    [
        PositionalEncoding(),
        PositionalEncoding(max_length=80_000),
        keras_pe.LearnedPositionalEncoding(max_length=80_000, initializer="sinusoidal"),
        keras_pe.RotaryEmbedding(),
        keras_pe.RotaryEmbedding(scaling={"type": "linear", "factor": 3.0}),
        keras_pe.RotaryEmbedding(scaling=LLAMA3),
        keras_pe.ALiBi(num_heads=6),
        keras_pe.RelativePositionBias(num_heads=6),
    ],
    ids=lambda layer: layer.name,
)
def test_the_first_call_is_one_that_torch_compiles(layer):
    """What the host makes for it, NumPy and decimals, is kept for later calls."""
    import torch

    caches = (
        rates.sinusoid_turns,
        rates.turns_of_rates,
        tables._array,
        relative._buckets,
    )
    for cache in caches:
        cache.cache_clear()
    x, at = torch.ones(1, 3, 8), torch.tensor([5, 7, 70_000])
    layer.build(x.shape)
    compiled = torch.compile(lambda x: layer(x, positions=at), backend="eager")
    found = compiled(x)
    for cache in caches:
        cache.cache_clear()
    np.testing.assert_allclose(
        found.detach(), layer(x, positions=at).detach(), rtol=0, atol=1e-7
    )


@pytest.mark.parametrize(
    "layer",
    [
        PositionalEncoding(),
        keras_pe.LearnedPositionalEncoding(max_length=9, initializer="sinusoidal"),
        keras_pe.RotaryEmbedding(),
    ],
    ids=lambda layer: layer.name,
)
def test_a_call_that_is_taken_again_for_the_gradient(layer):
    """There JAX makes tensors of all that is given, a default `start_index` too."""
    x = np.ones((1, 3, 8), "float32")
    for call in ({}, {"positions": np.array([4, 0, 1])}, {"start_index": 2}):
        expected = ops.convert_to_numpy(ops.stop_gradient(layer(x, **call)))
        with keras.RematScope("full"):
            again = type(layer).from_config(layer.get_config())
            result = again(x, **call)
        result = ops.convert_to_numpy(ops.stop_gradient(result))
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-6)


def test_a_call_in_a_layer_of_ones_own_takes_arrays():
    """Keras makes tensors of what a layer is called on, but not of what `call` is."""
    x, positions = ops.zeros((2, 2, 8)), np.array([0.5, 2.25])
    layer = PositionalEncoding()
    layer.build(x.shape)
    rows = ops.convert_to_numpy(layer.call(x, positions=positions))
    np.testing.assert_allclose(rows[1], exact_rows(positions, 8), rtol=0, atol=3e-7)


@pytest.mark.long
def test_a_float64_policy_is_never_worse_than_float32():
    """Also on JAX with float64 switched on, whose sine in Keras stays float32."""
    printed = run(
        """
        import numpy as np, keras_pe
        from keras import ops
        layer = keras_pe.PositionalEncoding(dtype="float64")
        start = ops.convert_to_tensor(999_999, "int32")
        rows = layer(np.zeros((1, 2, 8)), start_index=start)
        print(*map(repr, ops.convert_to_numpy(rows).ravel().tolist()))
        """,
        env={"JAX_ENABLE_X64": "1"},
    )
    rows = np.array(printed.splitlines()[-1].split(), "float64").reshape(2, 8)
    truth = exact_rows([999_999, 1_000_000], 8)
    np.testing.assert_allclose(rows, truth, rtol=0, atol=3e-7)


@pytest.mark.parametrize("kind", ["positions", "start_index"])
@pytest.mark.jax
def test_jax_takes_sines_of_block_starts_alone(kind):
    """XLA's sine is slow, so an element of the result must not cost one."""
    import jax

    layer, time, d_model = PositionalEncoding(), 1024, 32
    program = jax.jit(lambda x, rows: layer(x, **{kind: rows})).lower(
        jax.ShapeDtypeStruct((2, time, d_model), "float32"),
        jax.ShapeDtypeStruct((time,) if kind == "positions" else (), "int32"),
    )
    sizes = re.findall(r"stablehlo.sine %\d+ : tensor<([\dx]+)xf32>", program.as_text())
    elements = sum(math.prod(map(int, size.split("x"))) for size in sizes)
    blocks = -(-time // 256)
    assert elements == (0 if kind == "positions" else 2 * blocks * d_model)


@pytest.mark.skipif(keras.config.backend() == "torch", reason="XLA's own program")
def test_xla_takes_no_sine_again_for_every_row():
    """It would, if it fused the sines of the block starts into the rows."""
    layer, time, d_model = PositionalEncoding(), 1024, 32
    if keras.config.backend() == "jax":
        import jax

        call = jax.jit(lambda x, start: layer(x, start_index=start))
        program = call.lower(np.zeros((2, time, d_model), "float32"), np.int32(3))
        text = program.compile().as_text()
    else:
        import tensorflow as tf

        call = tf.function(
            lambda x, start: layer(x, start_index=start), jit_compile=True
        )
        program = call.experimental_get_compiler_ir(
            tf.zeros((2, time, d_model)), tf.constant(3)
        )
        text = program(stage="optimized_hlo")
    [taken] = [part for part in text.split("\n\n") if " sine(" in part]
    shapes = re.findall(r"= \w+\[([\d,]+)\]", taken)
    elements = max(math.prod(map(int, shape.split(","))) for shape in shapes)
    assert elements < time * d_model


def test_sines_within_a_quarter_turn():
    phases = np.linspace(-(2**31), 2**31 - 1, 20_001).astype("int32")
    sines = ops.convert_to_numpy(turns._sines(ops.convert_to_tensor(phases, "int32")))
    error = np.abs(sines - np.sin(phases * (2 * np.pi / 2**32))).max()
    assert error < 1.3e-7, f"measured {error}"
