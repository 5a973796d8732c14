"""Draw the pictures of docs/choosing.md and mathematics.md: `plot_encodings.py DIR`.

They replace those of the same name in the folder. Needs the extra "examples".
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import keras_pe
from keras_pe import plots

# The colours of Okabe and Ito, which the colour-blind tell apart.
COLORS = "#0072B2", "#D55E00", "#009E73"
MARKERS = "o", "s", "^"


def sinusoidal():
    """What is added: to the left channels turn fast, as the digits of a counter do."""
    return plots.plot_encoding(100, 128).figure


def similarity():
    """Products of rows: they depend on the distance alone."""
    return plots.plot_similarity(128).figure


def shift():
    """A row, the row 5 steps on, and what a rotation makes of the first."""
    return plots.plot_shift(5, 64).figure


def digits():
    """A binary counter, and channels that turn at half the rate, pair by pair."""
    return plots.plot_digits().figure


def wavelengths():
    """Which pairs of channels repeat in 512 positions, and which bfloat16 blurs."""
    return plots.plot_wavelengths(128, length=512, dtype="bfloat16").figure


def axial(size=14, d_model=192, cells=((0, 0), (6, 6), (6, 13))):
    """How alike the rows of a grid are: brightest on the cell itself and its axes."""
    empty = np.zeros((1, size, size, d_model), "float32")
    rows = np.array(keras_pe.AxialPositionalEncoding()(empty))[0]
    rows /= np.linalg.norm(rows, axis=-1, keepdims=True)
    figure, panels = plt.subplots(1, 3, figsize=(8, 3.1), layout="constrained")
    for axes, (y, x) in zip(panels, cells, strict=True):
        image = axes.imshow(rows @ rows[y, x], cmap="cividis", vmin=0.6, vmax=1)
        axes.plot(x, y, "k+", markersize=9)
        axes.set(title=f"y = {y}, x = {x}", xlabel="x", xticks=range(0, size, 4))
        axes.set_yticks(range(0, size, 4))
    panels[0].set_ylabel("y")
    figure.suptitle(
        f"How alike the rows of a cell (+) and of all {size} x {size} cells are: most\n"
        f"in its row and column, where half of the {d_model} channels are the same"
    )
    figure.colorbar(image, ax=panels, label="cosine of the two (from 0.6)")
    return figure


def learned(short=12, long=31, d_model=12):
    """What `resized` does to a table: its ends stay, the rows between are spread."""
    layer = keras_pe.LearnedPositionalEncoding(
        max_length=short, initializer="sinusoidal"
    )
    layer.build((None, None, d_model))
    figure, panels = plt.subplots(1, 2, figsize=(8, 3.3), layout="constrained")
    for axes, made in zip(panels, (layer, layer.resized(long)), strict=True):
        [table] = made.get_weights()
        for channel, color, marker in zip((0, 2, 4), COLORS, MARKERS, strict=True):
            looks = {"color": color, "marker": marker, "markersize": 4}
            axes.plot(table[:, channel], label=f"channel {channel}", **looks)
        axes.set_xlabel(f"position, of {made.max_length}")
    panels[0].set(ylabel="weight", title='as it starts from "sinusoidal", untrained')
    panels[1].set_title(f"resized({long}): linear in between")
    lines, labels = panels[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside lower center", ncols=len(labels))
    return figure


def rotary(steps=7, dim=8, distances=200, wide=64):
    """What becomes of two pairs of features; what that does to products."""
    figure, panels = plt.subplots(1, 3, figsize=(9, 3.2), layout="constrained")
    query = np.zeros((1, steps, dim), "float32")
    query[..., : dim // 2] = 1  # the first features of all pairs
    turned = np.array(keras_pe.RotaryEmbedding(max_wavelength=100.0)(query))[0]
    for pair in (0, 1):
        x, y = turned[:, pair], turned[:, pair + dim // 2]
        draw_turns(panels[pair], x, y, COLORS[pair], MARKERS[pair])
        title = f"pair {pair} of {dim // 2}, first (1, 0)\nmax_wavelength=100"
        panels[pair].set_title(title)
    ones = np.ones((1, distances, wide), "float32")
    scaling = {"rope_type": "linear", "factor": 4.0}
    for name, given, color, line in (
        ("no scaling", None, COLORS[0], "-"),
        ("linear scaling by 4", scaling, COLORS[1], "--"),
    ):
        keys = np.array(keras_pe.RotaryEmbedding(scaling=given)(ones))[0]
        panels[2].plot(keys @ keys[0] / wide, line, color=color, label=name)
    panels[2].set(title=f"{wide} ones against {wide} ones", ylim=(0, 1.35))
    panels[2].set_ylabel("product, as a part of that at 0")
    panels[2].set_xlabel("distance of their positions, in steps")
    panels[2].legend(loc="upper right")
    return figure


def draw_turns(axes, x, y, color, marker):
    """Draw a pair of features at its first positions, on its circle."""
    axes.add_patch(plt.Circle((0, 0), 1, fill=False, color="0.8"))
    axes.plot(x, y, marker, color=color)
    for step, place in enumerate(zip(x, y, strict=True)):
        axes.plot(*zip((0, 0), place, strict=True), color=color, linewidth=0.5)
        axes.text(*np.multiply(1.2, place), str(step), ha="center", va="center")
    axes.set(aspect="equal", xlim=(-1.4, 1.4), ylim=(-1.4, 1.4))
    axes.set(xlabel="first feature", ylabel="second feature")


PICTURES = (
    *(sinusoidal, axial, learned, rotary),
    *(similarity, shift, digits, wavelengths),
)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for draw in PICTURES:
        path = folder / f"{draw.__name__}.png"
        # No version of matplotlib in the file: the same numbers give the same bytes.
        draw().savefig(path, dpi=120, metadata={"Software": None})
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
