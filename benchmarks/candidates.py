"""The candidates: each makes of a `Case` a function of `x` that adds positions to it.

The function also takes `start_index` or `positions`, as the case says. A candidate that
has no argument for what the case asks raises `Cannot`.
"""

import keras
import numpy as np

from benchmarks.reasons import Cannot
from keras_pe import PositionalEncoding, positional_encoding
from keras_pe.recipe import sinusoids


class Pasted(keras.layers.Layer):
    """TensorFlow's tutorial recipe in a layer, as people paste it."""

    def __init__(self, position, d_model, **kwargs):
        super().__init__(**kwargs)
        self.pos_encoding = positional_encoding(position, d_model)

    def call(self, x, start_index=None):
        import tensorflow as tf

        length = tf.shape(x)[1]
        if start_index is None:
            return x + self.pos_encoding[:, :length, :]
        return x + self.pos_encoding[:, start_index : start_index + length, :]


def nothing(case):
    """Return what a call costs by itself, on next to nothing of the input."""
    return lambda x, **at: x[:1, :1, :1] + 1


def floor(case):
    """Return the addition of a table that is ready, of just the rows it takes."""
    table = sinusoids(np.array(case.positions), case.shape[-1])
    table = table.astype("float32").astype(case.dtype)
    if case.mode == "eager":
        table = keras.ops.convert_to_tensor(table)
    return lambda x, **at: x + table


def unlimited(case):
    return PositionalEncoding(dtype=policy(case))


def bounded(case):
    return PositionalEncoding(max_length=case.max_length, dtype=policy(case))


def pasted(case):
    if case.backend != "tensorflow":
        raise Cannot("it is for TensorFlow")
    if case.start == "positions":
        raise Cannot("it takes no positions")
    return Pasted(case.max_length, case.shape[-1], dtype=policy(case))


def keras_hub(case):
    from keras_hub.layers import SinePositionEncoding

    layer = SinePositionEncoding(dtype=policy(case))
    return lambda x, **at: x + layer(x, **at)


def positional_encodings(case):
    if case.backend != "tensorflow":
        raise Cannot("it is for TensorFlow")
    if case.start != "zero":
        raise Cannot("it takes no positions and no start")
    from positional_encodings.tf_encodings import TFPositionalEncoding1D

    layer = TFPositionalEncoding1D(case.shape[-1])
    return lambda x: x + layer(x)


def policy(case):
    return case.dtype if case.dtype == "float32" else f"mixed_{case.dtype}"


CANDIDATES = {
    "nothing": nothing,
    "floor": floor,
    "unlimited": unlimited,
    "bounded": bounded,
    "pasted": pasted,
    "keras-hub": keras_hub,
    "positional-encodings": positional_encodings,
}
