"""A small decoder, whole and step by step, with each way to give it positions."""

import keras
import numpy as np
from keras import layers, ops

import keras_pe

ENCODINGS = ("relative", "rotary", "sinusoidal", "learned", "alibi")
VOCABULARY, WIDTH, HEADS, BLOCKS = 50, 16, 2, 2


class Decoder:
    """Two models of the same layers.

    `whole` takes ids `(batch, time)`, 0 for padding, and gives logits. `step` takes a
    dict of the next ids, `start_index` and the caches of all blocks; it gives the ids
    that follow the last ones, and the caches.
    """

    def __init__(self, encoding, max_length, dtype="float32"):
        self.encoding, self.max_length, self.dtype = encoding, max_length, dtype
        large = keras.initializers.RandomNormal(stddev=1.0)
        self.embed = layers.Embedding(
            VOCABULARY, WIDTH, large, mask_zero=True, dtype=dtype
        )
        self.positions = self.bias = rotary = None
        if encoding == "sinusoidal":
            self.positions = keras_pe.PositionalEncoding(dtype=dtype)
        elif encoding == "learned":
            self.positions = keras_pe.LearnedPositionalEncoding(
                max_length=max_length, initializer=large, dtype=dtype
            )
        elif encoding == "rotary":
            rotary = keras_pe.RotaryEmbedding(dtype=dtype)
        elif encoding == "alibi":
            self.bias = keras_pe.ALiBi(num_heads=HEADS, dtype=dtype)
        else:
            self.bias = keras_pe.RelativePositionBias(
                num_heads=HEADS, initializer=large, dtype=dtype
            )
        self.attentions = [
            keras_pe.MultiHeadAttention(
                HEADS, WIDTH // HEADS, rotary=rotary, dtype=dtype
            )
            for _ in range(BLOCKS)
        ]
        self.norms = [layers.LayerNormalization(dtype=dtype) for _ in range(BLOCKS)]
        self.denses = [layers.Dense(WIDTH, dtype=dtype) for _ in range(BLOCKS)]
        self.head = layers.Dense(VOCABULARY, kernel_initializer=large, dtype="float32")
        # In this order: Keras 3.15 takes what a layer gave at its first call for all
        # that it ever gives, and with a cache that is more.
        self.step = self._make_step()
        self.whole = self._make_whole()

    def _make_whole(self):
        ids = keras.Input((None,), dtype="int32", name="ids")
        x = self.embed(ids)
        if self.positions is not None:
            x = self.positions(x, positions=keras_pe.positions_from_mask(ids != 0))
        given = {} if self.bias is None else {"bias": self.bias(x)}
        for i in range(BLOCKS):
            y = self.norms[i](x)
            y = self.attentions[i](y, y, use_causal_mask=True, **given)
            x = self._rest(i, layers.Add(dtype=self.dtype)([x, y]))
        return keras.Model(ids, self.head(x))

    def _make_step(self):
        inputs = {
            "ids": keras.Input((None,), dtype="int32", name="ids"),
            "start_index": keras.Input(
                batch_shape=(), dtype="int32", name="start_index"
            ),
        }
        for name, slots in self.new_caches(1).items():
            dtype = keras.backend.standardize_dtype(slots.dtype)
            inputs[name] = keras.Input(slots.shape[1:], dtype=dtype, name=name)
        ids, start = inputs["ids"], inputs["start_index"]
        x = self.embed(ids)
        if self.positions is not None:
            seen = ops.concatenate([inputs["mask_0"], ids != 0], axis=1)
            numbers = ops.cumsum(ops.cast(seen, "int32"), axis=1) - 1
            numbers = ops.maximum(numbers, 0)[:, self.max_length :]
            x = self.positions(x, positions=numbers)
        given, outputs = {}, {}
        if self.bias is not None:
            given["bias"] = self.bias(x, inputs["mask_0"], start_index=start)
        for i, attention in enumerate(self.attentions):
            cache = {name: inputs[f"{name}_{i}"] for name in ("key", "value", "mask")}
            y = self.norms[i](x)
            y, cache = attention(
                y, y, use_causal_mask=True, start_index=start, cache=cache, **given
            )
            outputs |= {f"{name}_{i}": slots for name, slots in cache.items()}
            x = self._rest(i, layers.Add(dtype=self.dtype)([x, y]))
        # 0 is padding.
        logits = self.head(x)[:, -1:, 1:]
        outputs["next"] = ops.cast(ops.argmax(logits, axis=-1), "int32") + 1
        return keras.Model(inputs, outputs)

    def _rest(self, i, x):
        return layers.Add(dtype=self.dtype)([x, self.denses[i](x)])

    def new_caches(self, batch):
        caches = {}
        for i, attention in enumerate(self.attentions):
            for name, slots in attention.init_cache(batch, self.max_length).items():
                caches[f"{name}_{i}"] = slots
        return caches


def decode(decoder, prompt, length, step=None):
    """Return the prompt and what follows, `(batch, length)`, token by token."""
    step = step or decoder.step
    caches, ids = decoder.new_caches(len(prompt)), np.array(prompt, "int32")
    given, start = ids, 0
    while ids.shape[1] < length:
        index = ops.convert_to_tensor(np.array(start, "int32"))
        given = ops.convert_to_tensor(given)
        caches = dict(step({"ids": given, "start_index": index, **caches}))
        start += given.shape[1]
        given = ops.convert_to_numpy(caches.pop("next"))
        ids = np.concatenate([ids, given], axis=1)
    return ids
