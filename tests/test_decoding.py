"""Decoding with a cache gives the tokens of the whole pass."""

import json

import keras
import numpy as np
import pytest
from cpp import ask
from decoder import ENCODINGS, VOCABULARY, Decoder, decode
from keras import ops
from likeness import first_of

from keras_pe.serving import export

LENGTH = 70
# The first text has padding before it, the second has none.
PROMPTS = np.array([[0, 0, 0, 4, 9, 11], [5, 5, 1, 2, 41, 8]])


def compiled(step, jit_compile=False):
    """The step, compiled by the backend's own means, and how often it was traced."""
    traces = []

    def traced(inputs):
        traces.append(inputs["ids"].shape)
        return step(inputs)

    backend = keras.config.backend()
    if backend == "jax":
        import jax

        return jax.jit(traced), traces
    if backend == "torch":
        return step, traces
    import tensorflow as tf

    specs = {
        x.name: tf.TensorSpec((2, *x.shape[1:]) if x.shape else (), x.dtype, x.name)
        for x in step.inputs
    }
    specs["ids"] = tf.TensorSpec((2, None), tf.int32, "ids")
    function = tf.function(traced, input_signature=[specs], jit_compile=jit_compile)
    return function, traces


def assert_the_whole_agrees(decoder, ids, prompt, error):
    """The whole pass gives each token after the prompt, or scores it as high."""
    logits = ops.convert_to_numpy(ops.stop_gradient(decoder.whole(ids)))
    logits, tokens = logits[:, prompt - 1 : -1, 1:], ids[:, prompt:, None] - 1
    chosen = np.take_along_axis(logits, tokens, axis=-1)
    short = logits.max(axis=-1, keepdims=True) - chosen
    assert short.max() <= error * np.abs(logits).max()


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("encoding", first_of(ENCODINGS, 2))
def test_64_tokens(encoding, dtype):
    decoder = Decoder(encoding, LENGTH, dtype)
    step, traces = compiled(decoder.step)
    ids = decode(decoder, PROMPTS, LENGTH, step)
    assert ids.shape == (2, LENGTH) and len(np.unique(ids)) > VOCABULARY // 5
    backend = keras.config.backend()
    # Products of other sizes, and compilers, round to bfloat16 at other places.
    error = 0 if dtype == "float32" else 0.02
    assert_the_whole_agrees(decoder, ids, 6, error)
    # Of the first text without the padding, too.
    assert_the_whole_agrees(decoder, ids[:1, 3:], 3, error)
    # JAX has one for the prompt, too.
    assert len(traces) == {"tensorflow": 1, "jax": 2, "torch": 0}[backend]


@pytest.mark.tensorflow
@pytest.mark.parametrize("encoding", first_of(ENCODINGS))
def test_exported_steps_in_cpp(encoding, tmp_path):
    """Prompt and steps by one signature, in TensorFlow's C++ runtime alone."""
    decoder = Decoder(encoding, 16)
    step, _ = compiled(decoder.step)
    expected = decode(decoder, PROMPTS, 16, step)
    path = export(decoder.step, tmp_path)
    caches = {k: ops.convert_to_numpy(v) for k, v in decoder.new_caches(2).items()}
    np.savez(tmp_path / "start.npz", ids=PROMPTS, **caches)
    printed = ask(
        """
        inputs = dict(np.load(sys.argv[2]))
        ids = inputs["ids"] = inputs["ids"].astype("int32")
        with load(sys.argv[1]) as runtime:
            start = 0
            while ids.shape[1] < 16:
                start_index = np.array(start, "int32")
                outputs = runtime.run(
                    "serving_default", {**inputs, "start_index": start_index}
                )
                start += inputs["ids"].shape[1]
                inputs = {**outputs, "ids": outputs["next"]}
                del inputs["next"]
                ids = np.concatenate([ids, inputs["ids"]], axis=1)
            start_index = np.array(16, "int32")
            error = error_of(
                runtime.run, "serving_default", {**inputs, "start_index": start_index}
            )
            assert "Received: " in str(error), error
        print(ids.tolist())
        """,
        path,
        tmp_path / "start.npz",
    )
    assert json.loads(printed.splitlines()[-1]) == expected.tolist()
