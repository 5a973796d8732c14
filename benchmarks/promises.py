"""Measure what users suffer from, on `PositionalEncoding` and on keras-hub's layer.

Errors against the exact encoding, and the mask: `python -m benchmarks.promises` writes
`results/promises.json`. What they cost is measured by `benchmarks.performance`. Without
keras-hub its column says so.
"""

import keras
import numpy as np
import tensorflow as tf

from benchmarks.measure import save
from keras_pe import PositionalEncoding
from tests.oracle import exact_rows_fast

D_MODEL = 512
STEPS = 128


def main():
    layers = {"keras_pe": PositionalEncoding}
    try:
        from keras_hub.layers import SinePositionEncoding
    except ImportError:
        print("keras-hub is not installed: its column stays empty")
    else:
        layers["keras_hub"] = peer(SinePositionEncoding)
    save(
        "promises",
        "python -m benchmarks.promises",
        {
            "half_error": {
                name: {
                    dtype: half_error(layer, dtype) for dtype in ("float16", "bfloat16")
                }
                for name, layer in layers.items()
            },
            "error": {
                name: {last: error(layer, last) for last in (2**15, 2**18, 2**20)}
                for name, layer in layers.items()
            },
            "mask": {name: keeps_mask(layer) for name, layer in layers.items()},
        },
        packages=("tensorflow", "keras", "numpy", "keras-hub"),
    )


def peer(layer):
    """Return keras-hub's layer, used as its documentation says: added to its input."""

    class Added(keras.layers.Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.encoding = layer(dtype=self.dtype_policy)

        def call(self, inputs, start_index=0):
            return inputs + self.encoding(inputs, start_index=start_index)

    return Added


def half_error(layer, dtype):
    """Return the largest error over 4,096 positions under a mixed policy."""
    rows = layer(dtype=f"mixed_{dtype}")(np.zeros((1, 4096, D_MODEL), "float32"))
    rows = keras.ops.convert_to_numpy(keras.ops.cast(rows, "float32"))
    return float(np.abs(rows[0] - exact_rows_fast(range(4096), D_MODEL)).max())


def error(layer, last):
    """Return the largest float32 error over the steps up to a position, in a graph."""
    layer = layer()
    first = last - STEPS + 1

    @tf.function(input_signature=[tf.TensorSpec((None, None, D_MODEL))])
    def graph(x):
        return layer(x, start_index=tf.constant(first))

    rows = graph(tf.zeros((1, STEPS, D_MODEL)))[0].numpy()
    return float(np.abs(rows - exact_rows_fast(range(first, last + 1), D_MODEL)).max())


def keeps_mask(layer, ids=((3, 4, 0),)):
    seen = []

    class Probe(keras.layers.Layer):
        supports_masking = True

        def call(self, inputs, mask=None):
            seen.append(mask)
            return inputs

    x = keras.layers.Embedding(9, D_MODEL, mask_zero=True)(np.array(ids))
    Probe()(layer()(x))
    return seen[0] is not None


if __name__ == "__main__":
    main()
