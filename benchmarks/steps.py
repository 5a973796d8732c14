"""Time a gradient step of a small encoder, with and without positions."""

import time

import keras
import numpy as np
import tensorflow as tf

from benchmarks.measure import interleave, over, quartiles
from benchmarks.times import short
from keras_pe import PositionalEncoding

WIDTH, VOCABULARY = 128, 1000


def measure(rounds, seconds, modes=("graph", "XLA"), shape=(32, 256)):
    """Return a record for each mode: loss and all gradients, in one call."""
    return [side_by_side(mode, shape, rounds, seconds) for mode in modes]


def side_by_side(mode, shape, rounds, seconds):
    layers = {
        "none": keras.layers.Activation("linear"),
        "unlimited": PositionalEncoding(),
        "bounded": PositionalEncoding(max_length=shape[1]),
    }
    ids = tf.constant(np.random.default_rng(0).integers(VOCABULARY, size=shape))
    calls, found = {}, {}
    for name, layer in layers.items():
        step = gradient_step(encoder(layer), mode)
        start = time.perf_counter()
        step(ids)
        found[name] = {"first_s": short([time.perf_counter() - start])[0]}
        calls[name] = lambda step=step: step(ids)
    times = interleave(calls, rounds, seconds)
    for name, taken in times.items():
        found[name]["ms"] = short(quartiles([1000 * each for each in taken]))
        found[name]["ratio"] = short(over(taken, times["none"]))
    return {"mode": mode, "shape": shape, "candidates": found}


def gradient_step(model, mode):
    """Return a function of ids, of unknown length, to the loss and its gradients."""

    def step(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(ids, training=True) ** 2)
        return loss, tape.gradient(loss, model.trainable_variables)

    signature = [tf.TensorSpec((None, None), tf.int64)]
    return tf.function(step, input_signature=signature, jit_compile=mode == "XLA")


def encoder(layer):
    """Return a Transformer encoder of two blocks behind an embedding."""
    ids = keras.Input((None,), dtype="int64")
    x = layer(keras.layers.Embedding(VOCABULARY, WIDTH)(ids))
    for _ in range(2):
        y = keras.layers.LayerNormalization()(x)
        x = x + keras.layers.MultiHeadAttention(4, WIDTH // 4)(y, y)
        y = keras.layers.LayerNormalization()(x)
        y = keras.layers.Dense(256, activation="relu")(y)
        x = x + keras.layers.Dense(WIDTH)(y)
    return keras.Model(ids, x)
