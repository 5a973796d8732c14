"""Write `saved_models/golden/` for a layer, once, with the oldest Keras of setup.cfg.

    python tests/make_golden.py attention

Files load forward only. The numbers that the model must give come from plain loops and
the oracle, never from the layer; `test_golden.py` holds every later version to them.
"""

import functools
import json
import math
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
from oracle import exact_rows

FOLDER = Path(__file__).parents[1] / "saved_models" / "golden"
WIDTH, VOCABULARY, CLASSES = 8, 11, 3
NAMES = ("sinusoidal", "learned", "axial", "rotary", "alibi", "relative", "attention")
IN_ATTENTION = NAMES[-3:]  # the last turns queries and keys
TEXTS = [[1], [3, 4, 0, 0], [5, 6, 7, 8, 9, 10, 1, 2], [*range(1, 11)] * 7]
GRIDS = [[[1]], [[3, 4], [0, 0]], [[5, 6, 7, 8], [9, 10, 1, 2]], [[*range(1, 11)]] * 7]
HEADS, DIM = 2, 4
RELATIVE = {"num_buckets": 8, "max_distance": 20}
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
    rows = ENCODED[name](embedding[ids.ravel()], ids)
    masked = ids.ndim == 1
    kept = [row for i, row in zip(ids.ravel(), rows, strict=True) if i or not masked]
    mean = [sum(column) / len(kept) for column in zip(*kept, strict=True)]
    return [
        sum(m * k for m, k in zip(mean, kernel[:, c], strict=True)) + bias[c]
        for c in range(CLASSES)
    ]


def with_sinusoids(vectors, ids):
    return vectors + exact_rows(range(len(ids)), WIDTH)


def with_table(vectors, ids):
    return vectors + learned_table()[: len(ids)]


def with_axes(vectors, ids):
    y, x = zip(*np.ndindex(ids.shape), strict=True)
    both = [exact_rows(places, WIDTH // 2) for places in (y, x)]
    return vectors + np.concatenate(both, axis=-1)


def turned(vectors, ids):
    """Half as fast: the linear scaling by 2."""
    dim, result = ROTARY["rotary_dim"], vectors.copy()
    places = [Fraction(step, 2) for step in range(len(ids))]
    for row, waves in zip(result, exact_rows(places, dim), strict=True):
        for i in range(0, dim, 2):
            (a, b), (sine, cosine) = row[i : i + 2], waves[i : i + 2]
            row[i], row[i + 1] = a * cosine - b * sine, b * cosine + a * sine
    return result


def attention_weights():
    """Return the kernel and the bias of query, key, value and output."""
    into, out = (WIDTH, HEADS, DIM), (HEADS, DIM, WIDTH)
    shapes = [into, into[1:]] * 3 + [out, out[2:]]
    sizes = [math.prod(shape) for shape in shapes]
    wave = np.array([math.sin(2 + 5 * k) for k in range(sum(sizes))], "float32")
    parts = np.split(wave, np.cumsum(sizes)[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def relative_table():
    """Return the weight of each bucket in each head."""
    wave = [math.cos(2 + 3 * k) for k in range(RELATIVE["num_buckets"] * HEADS)]
    return np.array(wave, "float32").reshape(-1, HEADS)


def with_alibi(query, key, head):
    return -abs(query - key) * 2.0 ** (-4 * (head + 1))


def with_bucket(query, key, head):
    """Of 4 buckets a side 0 and 1 are exact, 2 begins at 2 steps, 3 at 7."""
    bucket = sum(abs(query - key) >= start for start in (1, 2, 7))
    return float(relative_table()[bucket + 4 * (key > query), head])


def attended(vectors, ids, bias=None):
    """Attention of each step to those that are no padding, in loops."""
    parts = [weight.astype("float64") for weight in attention_weights()]
    q, k, v = (
        np.tensordot(vectors, parts[2 * i], 1) + parts[2 * i + 1] for i in range(3)
    )
    if bias is None:
        q, k = (turned_heads(side) for side in (q, k))
    result = np.zeros((len(ids), HEADS, DIM))
    for i, j in np.ndindex(len(ids), HEADS):
        scores = [
            q[i, j] @ k[other, j] / DIM**0.5 + (bias(i, other, j) if bias else 0)
            for other in range(len(ids))
        ]
        powers = np.where(ids != 0, np.exp(scores), 0)
        result[i, j] = powers / powers.sum() @ v[:, j]
    return np.tensordot(result, parts[6], 2) + parts[7]


def turned_heads(side):
    """In the layout "halves", all features."""
    sines, cosines = np.split(exact_rows(range(len(side)), DIM, layout="halves"), 2, 1)
    result = np.empty_like(side)
    for head in range(HEADS):
        a, b = np.split(side[:, head], 2, axis=1)
        turned = a * cosines - b * sines, b * cosines + a * sines
        result[:, head] = np.concatenate(turned, axis=1)
    return result


ENCODED = {
    "sinusoidal": with_sinusoids,
    "learned": with_table,
    "axial": with_axes,
    "rotary": turned,
    "alibi": functools.partial(attended, bias=with_alibi),
    "relative": functools.partial(attended, bias=with_bucket),
    "attention": attended,
}


def encode(x, name):
    """Return `x` with positions, of a layer with the weights above."""
    import keras_pe

    if name in IN_ATTENTION:
        return attend(x, name)
    if name == "sinusoidal":
        layer = keras_pe.PositionalEncoding(name="positions")
    elif name == "axial":
        layer = keras_pe.AxialPositionalEncoding(name="positions")
    elif name == "rotary":
        scaling = {"rope_type": "linear", "factor": 2.0}
        arguments = dict(ROTARY, scaling=scaling, name="positions")
        layer = keras_pe.RotaryEmbedding(**arguments)
    else:
        table = learned_table()
        arguments = {"max_length": len(table), "name": "positions"}
        layer = keras_pe.LearnedPositionalEncoding(**arguments)
        layer.build((None, None, WIDTH))
        layer.set_weights([table])
    return layer(x)


def attend(x, name):
    import keras_pe

    bias, rotary = None, None
    if name == "alibi":
        bias = keras_pe.ALiBi(num_heads=HEADS, name="positions")(x)
    elif name == "relative":
        arguments = dict(RELATIVE, num_heads=HEADS, name="positions")
        layer = keras_pe.RelativePositionBias(**arguments)
        bias = layer(x)
        layer.set_weights([relative_table()])
    else:
        rotary = keras_pe.RotaryEmbedding(name="positions")
    layer = keras_pe.MultiHeadAttention(HEADS, DIM, rotary=rotary, name="attention")
    x = layer(x, x, bias=bias)
    layer.set_weights(attention_weights())
    return x


def main(name):
    import keras
    from keras import layers

    import keras_pe

    embedding, kernel, bias = weights()
    grid = name == "axial"
    ids = keras.Input((None, None) if grid else (None,), dtype="int32", name="ids")
    embed = layers.Embedding(VOCABULARY, WIDTH, mask_zero=not grid)
    x = encode(embed(ids), name)
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
