"""Small models, one with each layer of positions, and the numbers that they give.

For tests on several devices and backends, which import it in processes of their own.
"""

import keras
import numpy as np
from keras import layers, ops

import keras_pe


def _large():
    # So that a wrong position is far from a rounding error.
    return keras.initializers.RandomNormal(stddev=0.3)


def _attend(x, rotary=None, bias=None):
    attention = keras_pe.MultiHeadAttention(
        2, 4, rotary=rotary, kernel_initializer=_large()
    )
    return layers.Add()([x, attention(x, x, bias=bias)])


def _axial(x):
    grid = ops.reshape(x, (-1, 2, 3, 16))
    return ops.reshape(keras_pe.AxialPositionalEncoding()(grid), (-1, 6, 16))


LAYERS = {
    "rotary": lambda x: _attend(x, rotary=keras_pe.RotaryEmbedding()),
    "alibi": lambda x: _attend(x, bias=keras_pe.ALiBi(num_heads=2)(x)),
    "relative": lambda x: _attend(
        x,
        bias=keras_pe.RelativePositionBias(
            num_heads=2, initializer=_large(), name="relative"
        )(x),
    ),
    "learned": lambda x: keras_pe.LearnedPositionalEncoding(
        max_length=8, initializer=_large(), name="learned"
    )(x),
    "sinusoidal": lambda x: keras_pe.PositionalEncoding()(x),
    "table": lambda x: keras_pe.PositionalEncoding(max_length=8)(x),
    "axial": _axial,
}
_draw = np.random.default_rng(0)
# Padded, but each row has a step that counts.
IDS = np.where(_draw.random((16, 6)) < 0.2, 0, _draw.integers(1, 32, (16, 6)))
LABELS = _draw.normal(size=(16, 3)).astype("float32")


def make(*names):
    """Return a compiled model with these layers, ids to three numbers.

    It is the same at every call.
    """
    keras.utils.set_random_seed(0)
    ids = keras.Input((6,), dtype="int32")
    x = layers.Embedding(32, 16, _large(), mask_zero=True, name="ids")(ids)
    for name in names:
        x = LAYERS[name](x)
    # The mean of sums is the same for positions in any order.
    x = layers.Dense(16, "tanh", name="hidden")(x)
    x = layers.Dense(3, name="scores")(ops.mean(x, axis=1))
    model = keras.Model(ids, x)
    # Not Adam, which makes a step of its full size out of a gradient of rounding
    # errors, as the bias of a key has: a softmax does not see it.
    model.compile(keras.optimizers.SGD(0.02, momentum=0.9), "mse")
    return model


def train(model, epochs=3):
    """Return the losses, of one step of training an epoch."""
    options = dict(batch_size=16, epochs=epochs, shuffle=False, verbose=0)
    return model.fit(IDS, LABELS, **options).history["loss"]


def predict(model):
    return model.predict(IDS, batch_size=16, verbose=0)


def numbers(model):
    """Return what a model gives before, during and after training, and its weights."""
    before, losses = predict(model), train(model)
    assert losses[2] < losses[0]
    return [before, losses, predict(model), *model.get_weights()]


def assert_alike(found, expected):
    """Sums are taken in other orders. A position off by one makes some 0.1."""
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=5e-6)
