"""The eight small models behind data/rest_answers.jsonl: no weights, no training."""

import tensorflow as tf


def write_models(folder):
    """Writes version 1 of each, with the signatures serving_default and alt."""
    F, S, N = tf.float32, tf.string, None
    save(folder / "text", text, text=((N,), S))
    save(folder / "single", lambda x: {"y": x / 2.0 + 2.0}, x=((N, 2), F))
    save(folder / "vec", lambda x: {"y": x * 1e-7}, x=((N,), F))
    save(folder / "multi", multiply, ids=((N, N), tf.int64), w=((N, N), F))
    save(folder / "flags", flags, b=((N,), tf.bool), i=((N,), tf.int32))
    save(folder / "nonfinite", lambda x: {"y": tf.math.log(x)}, x=((N,), F))
    save(
        folder / "unbatched", lambda x: {"y": x, "table": tf.zeros((3, 2))}, x=((N,), F)
    )
    save(folder / "scalar", lambda x: {"y": tf.reduce_sum(x)}, x=((N,), F))


def text(text):
    length = tf.strings.length(text)
    score = [tf.cast(length, tf.float32) / 3.0, tf.fill(tf.shape(text), 0.1)]
    return {
        "n": length,
        "echo": tf.identity(text),
        "echo_bytes": tf.identity(text),
        "score": tf.stack(score, -1),
    }


def multiply(ids, w):
    return {"s": tf.reduce_sum(tf.cast(ids, tf.float32) * w, -1)}


def flags(b, i):
    return {"nb": tf.logical_not(b), "i": i + 1}


def save(folder, function, **inputs):
    specs = [tf.TensorSpec(*spec, name=name) for name, spec in inputs.items()]
    module = tf.Module()
    module.f = tf.function(function, input_signature=specs)
    signatures = {"serving_default": module.f, "alt": module.f}
    tf.saved_model.save(module, str(folder / "1"), signatures=signatures)
