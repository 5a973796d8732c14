"""How a candidate is called: its compiled function, its arguments, its error."""

import functools
import sys

import keras
import numpy as np

from tests.oracle import exact_rows_fast

KEYWORDS = {"zero": (), "tensor": ("start_index",), "positions": ("positions",)}


def compiled(case, add):
    """Return the function that the case calls: `x`, then what says where it starts."""
    keywords = KEYWORDS[case.start]

    def call(x, *at):
        return add(x, **dict(zip(keywords, at, strict=True)))

    if case.mode == "eager":
        return call
    if case.backend == "jax":
        import jax

        call = jax.jit(call)
        return lambda *arguments: call(*arguments).block_until_ready()
    import tensorflow as tf

    jit_compile = case.mode == "XLA"
    return tf.function(call, input_signature=specs(case), jit_compile=jit_compile)


def specs(case):
    import tensorflow as tf

    batch, time, width = case.shape
    if case.length == "unknown":
        batch = time = None
    x = tf.TensorSpec((batch, time, width), case.dtype)
    shapes = {"zero": [], "tensor": [()], "positions": [(time,)]}[case.start]
    return [x, *(tf.TensorSpec(shape, "int32") for shape in shapes)]


def random_input(case):
    x = np.random.default_rng(0).standard_normal(case.shape, "float32")
    return keras.ops.convert_to_tensor(x, case.dtype)


def place(case):
    """Return the arguments that say where the case starts, after `x`."""
    at = {
        "zero": [],
        "tensor": [np.int32(case.first)],
        "positions": [np.array(case.positions, "int32")],
    }[case.start]
    return [keras.ops.convert_to_tensor(each) for each in at]


def error(case, function):
    """Return the largest error of what the function adds, in rows of the whole run."""
    out = function(keras.ops.zeros(case.shape, case.dtype), *place(case))
    if tuple(out.shape) != case.shape:
        raise ValueError(f"a result of shape {tuple(out.shape)} for {case.shape}")
    out = keras.ops.convert_to_numpy(keras.ops.cast(out, "float32"))
    if not np.isfinite(out).all():
        raise ValueError("rows that are not finite")
    steps = probed(case.shape[1])
    true = truth(tuple(case.first + step for step in steps), case.shape[-1])
    return max(float(np.abs(rows[steps] - true).max()) for rows in out)


def probed(time):
    """Return the steps to look at: all, or 4,096 spread from the first to the last."""
    return np.linspace(0, time - 1, min(time, 4096)).astype(int).tolist()


@functools.lru_cache(maxsize=4)
def truth(positions, width):
    return exact_rows_fast(positions, width)


def forget():
    """Clear what keras_pe remembers, so that a first call is that of a new process."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "keras_pe":
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()
