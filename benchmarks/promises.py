"""Measure what users suffer from, on `PositionalEncoding` and on keras-hub's layer.

Errors against the exact encoding, the price of an unknown length, and the mask, in one
run: `python -m benchmarks.promises` writes `results/promises.json`. Without keras-hub
its column says so.
"""

import pathlib
import tempfile

import keras
import numpy as np
import tensorflow as tf

from benchmarks.measure import ratios, save
from keras_pe import PositionalEncoding
from tests.oracle import exact_rows_fast

D_MODEL = 512
STEPS = 128


def bounded():
    return PositionalEncoding(max_length=8192)


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
            "unknown_length_ratio": price(layers),
            "mask": {name: keeps_mask(layer) for name, layer in layers.items()},
            "saved_bytes": {name: saved_bytes(layer) for name, layer in layers.items()},
            "saved_bytes_bounded": saved_bytes(
                lambda: PositionalEncoding(max_length=8192)
            ),
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


def price(layers):
    """Return the time over adding a ready table, length unknown, in a graph."""
    results = {}
    signature = [tf.TensorSpec((None, None, D_MODEL))]
    for batch, steps in ((1, 2048), (8, 512)):
        x = tf.random.normal((batch, steps, D_MODEL))
        table = tf.constant(exact_rows_fast(range(steps), D_MODEL).astype("float32"))
        graphs = {"floor": tf.function(lambda x, t=table: x + t)}
        for name, layer in layers.items():
            graphs[name] = tf.function(layer(), input_signature=signature)
        calls = {name: lambda g=graph, x=x: g(x) for name, graph in graphs.items()}
        for name, quartiles in ratios(calls, "floor").items():
            if name != "floor":
                results.setdefault(name, {})[f"{batch} x {steps}"] = quartiles
    return results


def saved_bytes(layer):
    """Return what the layer adds to saved_model.pb, with one and with two endpoints."""

    def size(layer, endpoints):
        x = keras.Input((None, D_MODEL))
        model = keras.Model(x, layer(x))
        archive = keras.export.ExportArchive()
        archive.track(model)
        spec = tf.TensorSpec((None, None, D_MODEL), name="x")
        for endpoint in range(endpoints):
            archive.add_endpoint(f"serve_{endpoint}", lambda x: model(x), [spec])
        with tempfile.TemporaryDirectory() as folder:
            archive.write_out(folder, verbose=False)
            return (pathlib.Path(folder) / "saved_model.pb").stat().st_size

    nothing = keras.layers.Activation("linear")
    return [size(layer(), n) - size(nothing, n) for n in (1, 2)]


def keeps_mask(layer):
    seen = []

    class Probe(keras.layers.Layer):
        supports_masking = True

        def call(self, inputs, mask=None):
            seen.append(mask)
            return inputs

    x = keras.layers.Embedding(9, D_MODEL, mask_zero=True)(np.array([[3, 4, 0]]))
    Probe()(layer()(x))
    return seen[0] is not None


if __name__ == "__main__":
    main()
