"""Time a training step and a decode step of attention, beside Keras's and keras-hub's.

`python -m benchmarks.attention` writes `results/attention.json`, in about 2 minutes.
"""

import keras
import tensorflow as tf
from keras import ops

from benchmarks.measure import ratios, save
from benchmarks.reasons import reason
from benchmarks.times import short
from keras_pe import ALiBi, MultiHeadAttention, RelativePositionBias, RotaryEmbedding

HEADS, DIM = 8, 64
WIDTH = HEADS * DIM
TRAINED = (8, 512, WIDTH)
DECODED = ((1, 2048), (8, 2048))  # batch and slots
MODES = ("graph", "XLA")
WAYS = ("no positions", "rotary", "ALiBi", "relative bias")


def main():
    save(
        "attention",
        "python -m benchmarks.attention",
        {
            "training": [training(mode) for mode in MODES],
            "decoding": [decoding(mode, *at) for at in DECODED for mode in MODES],
        },
        packages=("tensorflow", "keras", "numpy", "keras-hub"),
    )


def training(mode, shape=TRAINED, **how):
    """Return the time of a gradient step over that of Keras's layer."""
    x = tf.random.stateless_normal(shape, (0, 0))
    plain = keras.layers.MultiHeadAttention(HEADS, DIM)
    calls = {"Keras": gradient(lambda x: plain(x, x), plain, x, mode)}
    for way in WAYS:
        layer, bias = ours(way)

        def attend(x, layer=layer, bias=bias):
            return layer(x, x, bias=None if bias is None else bias(x))

        calls[way] = gradient(attend, layer, x, mode)
    found = ratios(calls, "Keras", **how)
    return {"mode": mode, "shape": shape, "ratios": shortened(found, "Keras")}


def ours(way):
    rotary = RotaryEmbedding() if way == "rotary" else None
    bias = {"ALiBi": ALiBi, "relative bias": RelativePositionBias}.get(way)
    layer = MultiHeadAttention(HEADS, DIM, rotary=rotary)
    return layer, None if bias is None else bias(num_heads=HEADS)


def gradient(attend, layer, x, mode):
    """Return a call of the loss and its gradients, the length unknown when traced."""
    attend(x)

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(attend(x) ** 2)
        return loss, tape.gradient(loss, layer.trainable_variables)

    spec = tf.TensorSpec((None, None, WIDTH))
    function = tf.function(step, input_signature=[spec], jit_compile=mode == "XLA")
    return lambda: function(x)


def decoding(mode, batch, slots, **how):
    """Return the time of a step with a cache over that of keras-hub's layer."""
    token = tf.random.stateless_normal((batch, 1, WIDTH), (0, 0))
    start = tf.constant(slots // 2)
    record = {"mode": mode, "batch": batch, "slots": slots}
    try:
        calls = {"keras-hub": theirs(token, start, slots, mode)}
    except ImportError as problem:
        return {**record, "reason": reason(problem)}
    for way in WAYS:
        calls[way] = step_of_ours(way, token, start, slots, mode)
    found = ratios(calls, "keras-hub", **how)
    return {**record, "ratios": shortened(found, "keras-hub")}


def step_of_ours(way, token, start, slots, mode):
    layer, bias = ours(way)
    _, cache = layer(token, token, cache=layer.init_cache(len(token), slots))

    def step(token, start, cache):
        given = {}
        if bias is not None:
            given["bias"] = bias(token, cache["mask"], start_index=start)
        return layer(token, token, start_index=start, cache=cache, **given)

    return compiled(step, mode, token, start, cache)


def theirs(token, start, slots, mode):
    """Return keras-hub's step, with the mask that its decoder gives it."""
    from keras_hub.layers import CachedMultiHeadAttention

    layer = CachedMultiHeadAttention(HEADS, DIM)
    cache = tf.zeros((len(token), 2, slots, HEADS, DIM))
    layer(token, token)

    def step(token, start, cache):
        seen = ops.arange(slots)[None, None, :] <= start
        return layer(
            token, token, attention_mask=seen, cache=cache, cache_update_index=start
        )

    return compiled(step, mode, token, start, cache)


def compiled(step, mode, *arguments):
    function = tf.function(step, jit_compile=mode == "XLA")
    function(*arguments)  # biases make their weights
    return lambda: function(*arguments)


def shortened(found, floor):
    return {
        name: short(quartiles) for name, quartiles in found.items() if name != floor
    }


if __name__ == "__main__":
    main()
