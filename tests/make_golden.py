"""Write `saved_models/golden/` for a layer, once, with the oldest Keras of setup.cfg.

    python tests/make_golden.py learned

Files load forward only. The numbers that the model must give come from plain loops and
the oracle, never from the layer; `test_golden.py` holds every later version to them.
"""

import json
import math
import sys
from pathlib import Path

import numpy as np
from oracle import exact_rows

FOLDER = Path(__file__).parents[1] / "saved_models" / "golden"
WIDTH, VOCABULARY, CLASSES = 8, 11, 3
NAMES = ("sinusoidal", "learned")
TEXTS = [[1], [3, 4, 0, 0], [5, 6, 7, 8, 9, 10, 1, 2], [*range(1, 11)] * 7]


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


def expected(ids, name):
    """Return the scores of one text: embedding plus row, masked mean, product."""
    embedding, kernel, bias = (part.astype("float64") for part in weights())
    rows = {
        "sinusoidal": lambda n: exact_rows(range(n), WIDTH),
        "learned": lambda n: learned_table()[:n].astype("float64"),
    }[name](len(ids))
    kept = [embedding[i] + row for i, row in zip(ids, rows, strict=True) if i != 0]
    mean = [sum(column) / len(kept) for column in zip(*kept, strict=True)]
    return [
        sum(m * k for m, k in zip(mean, kernel[:, c], strict=True)) + bias[c]
        for c in range(CLASSES)
    ]


def make_layer(name):
    import keras_pe

    if name == "sinusoidal":
        return keras_pe.PositionalEncoding(name="positions")
    table = learned_table()
    layer = keras_pe.LearnedPositionalEncoding(max_length=len(table), name="positions")
    layer.build((None, None, WIDTH))
    layer.set_weights([table])
    return layer


def main(name):
    import keras

    import keras_pe

    embedding, kernel, bias = weights()
    ids = keras.Input((None,), dtype="int32", name="ids")
    embed = keras.layers.Embedding(VOCABULARY, WIDTH, mask_zero=True)
    x = make_layer(name)(embed(ids))
    x = keras.layers.GlobalAveragePooling1D()(x)
    dense = keras.layers.Dense(CLASSES)
    model = keras.Model(ids, {"scores": dense(x)}, name="golden")
    embed.set_weights([embedding])
    dense.set_weights([kernel, bias])
    path = folder(name)
    path.mkdir(parents=True, exist_ok=False)
    model.save(path / "model.keras")
    model.export(path / "1", verbose=False)
    record = {
        "keras": keras.__version__,
        "keras_pe": keras_pe.__version__,
        "ids": TEXTS,
        "scores": [[float(score) for score in expected(ids, name)] for ids in TEXTS],
    }
    (path / "expected.json").write_text(json.dumps(record, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
