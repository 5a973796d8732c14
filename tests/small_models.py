"""Each public layer as one that takes a float tensor and gives back its shape."""

import keras
import numpy as np
import pytest
from attending import Attending

import keras_pe

WIDTH = 8
LONGEST = 64  # of those that have a `max_length`
IN_ATTENTION = ("attention", "alibi", "relative")
ENCODINGS = {
    "sinusoidal": lambda **kwargs: keras_pe.PositionalEncoding(**kwargs),
    "bounded": lambda **kwargs: keras_pe.PositionalEncoding(
        max_length=LONGEST, **kwargs
    ),
    "axial": lambda **kwargs: keras_pe.AxialPositionalEncoding(**kwargs),
    "learned": lambda **kwargs: keras_pe.LearnedPositionalEncoding(
        max_length=LONGEST, **kwargs
    ),
    "rotary": lambda **kwargs: keras_pe.RotaryEmbedding(**kwargs),
    # These a layer of the tests holds, with attention.
    "attention": lambda **kwargs: Attending("rotary", **kwargs),
    "alibi": lambda **kwargs: Attending("alibi", **kwargs),
    "relative": lambda **kwargs: Attending("relative", **kwargs),
}
# By default the tests take one without weights, and one with all that there is.
QUICK = ("sinusoidal", "relative")
EACH = [
    name if name in QUICK else pytest.param(name, marks=pytest.mark.long)
    for name in ENCODINGS
]


def numbers(batch=2, time=5, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(batch, time, WIDTH)).astype("float32")


def model_of(name, layer=None):
    """A model of unknown length: something trained, the layer "encoding", and more."""
    layer = layer or ENCODINGS[name](name="encoding")
    inputs = keras.Input((None, WIDTH), name="x")
    x = keras.layers.Dense(WIDTH)(inputs)
    return keras.Model(inputs, keras.layers.Dense(2)(layer(x)))


def answer(model, *args, **kwargs):
    result = keras.ops.stop_gradient(model(*args, **kwargs))
    return keras.ops.convert_to_numpy(result)
