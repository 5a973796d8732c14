"""Write `saved_models/golden/` for a layer, once, with the oldest Keras of setup.cfg.

    python tests/make_golden.py rotary

Files load forward only. The numbers that the model must give come from plain loops and
the oracle, never from the layer; `test_golden.py` holds every later version to them.
"""

import json
import math
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
from oracle import exact_rows

FOLDER = Path(__file__).parents[1] / "saved_models" / "golden"
WIDTH, VOCABULARY, CLASSES = 8, 11, 3
NAMES = ("sinusoidal", "learned", "axial", "rotary")
TEXTS = [[1], [3, 4, 0, 0], [5, 6, 7, 8, 9, 10, 1, 2], [*range(1, 11)] * 7]
GRIDS = [[[1]], [[3, 4], [0, 0]], [[5, 6, 7, 8], [9, 10, 1, 2]], [[*range(1, 11)]] * 7]
ROTARY = {"layout": "interleaved", "rotary_dim": 6, "sequence_axis": -2}


def folder(name):
    """Return the folder of a layer: the first one's is the golden folder itself."""
    return FOLDER if name == "sinusoidal" else FOLDER / name


def weights():
    """Return the embedding, kernel and bias: numbers anybody can make again."""
    wave = [math.sin(1 + k) for k in range(VOCABULARY * WIDTH + WIDTH * CLASSES)]
    wave = np.array(wave, "float32")
    embedding = wave[: VOCABULARY * WIDTH].reshape(VOCABULARY, WIDTH)
    kernel = wave[VOCABULARY * WIDTH :].reshape(WIDTH, CLASSES)
    return embedding, kernel, np.array([0.1, -0.2, 0.3], "float32")


def learned_table():
    """Return a row for each position of the longest text."""
    longest = max(map(len, TEXTS))
    wave = [math.cos(1 + 3 * k) for k in range(longest * WIDTH)]
    return np.array(wave, "float32").reshape(longest, WIDTH)


def inputs(name):
    """Return the texts of a layer: on a grid they have two axes."""
    return GRIDS if name == "axial" else TEXTS


def expected(ids, name):
    """Return the scores of one text: embedding with positions, mean, product.

    The mean is that of the ids that are not 0, but on a grid, where Keras has no such.
    """
    embedding, kernel, bias = (part.astype("float64") for part in weights())
    ids = np.array(ids)
    rows = ENCODED[name](embedding[ids.ravel()], ids.shape)
    masked = ids.ndim == 1
    kept = [row for i, row in zip(ids.ravel(), rows, strict=True) if i or not masked]
    mean = [sum(column) / len(kept) for column in zip(*kept, strict=True)]
    return [
        sum(m * k for m, k in zip(mean, kernel[:, c], strict=True)) + bias[c]
        for c in range(CLASSES)
    ]


def with_sinusoids(vectors, shape):
    return vectors + exact_rows(range(*shape), WIDTH)


def with_table(vectors, shape):
    return vectors + learned_table()[range(*shape)]


def with_axes(vectors, shape):
    y, x = zip(*np.ndindex(shape), strict=True)
    both = [exact_rows(places, WIDTH // 2) for places in (y, x)]
    return vectors + np.concatenate(both, axis=-1)


def turned(vectors, shape):
    """Half as fast: the linear scaling by 2."""
    dim, result = ROTARY["rotary_dim"], vectors.copy()
    places = [Fraction(step, 2) for step in range(*shape)]
    for row, waves in zip(result, exact_rows(places, dim), strict=True):
        for i in range(0, dim, 2):
            (a, b), (sine, cosine) = row[i : i + 2], waves[i : i + 2]
            row[i], row[i + 1] = a * cosine - b * sine, b * cosine + a * sine
    return result


ENCODED = dict(zip(NAMES, (with_sinusoids, with_table, with_axes, turned), strict=True))


def make_layer(name):
    import keras_pe

    if name == "sinusoidal":
        return keras_pe.PositionalEncoding(name="positions")
    if name == "axial":
        return keras_pe.AxialPositionalEncoding(name="positions")
    if name == "rotary":
        scaling = {"rope_type": "linear", "factor": 2.0}
        arguments = dict(ROTARY, scaling=scaling, name="positions")
        return keras_pe.RotaryEmbedding(**arguments)
    table = learned_table()
    layer = keras_pe.LearnedPositionalEncoding(max_length=len(table), name="positions")
    layer.build((None, None, WIDTH))
    layer.set_weights([table])
    return layer


def main(name):
    import keras
    from keras import layers

    import keras_pe

    embedding, kernel, bias = weights()
    grid = name == "axial"
    ids = keras.Input((None, None) if grid else (None,), dtype="int32", name="ids")
    embed = layers.Embedding(VOCABULARY, WIDTH, mask_zero=not grid)
    x = make_layer(name)(embed(ids))
    pool = layers.GlobalAveragePooling2D if grid else layers.GlobalAveragePooling1D
    dense = layers.Dense(CLASSES)
    model = keras.Model(ids, {"scores": dense(pool()(x))}, name="golden")
    embed.set_weights([embedding])
    dense.set_weights([kernel, bias])
    path = folder(name)
    path.mkdir(parents=True, exist_ok=False)
    model.save(path / "model.keras")
    model.export(path / "1", verbose=False)
    texts = inputs(name)
    record = {
        "keras": keras.__version__,
        "keras_pe": keras_pe.__version__,
        "ids": texts,
        "scores": [[float(score) for score in expected(ids, name)] for ids in texts],
    }
    (path / "expected.json").write_text(json.dumps(record, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
