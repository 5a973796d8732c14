"""Draw the encoding that `PositionalEncoding` adds: `plot_encoding.py [PNG]`.

Each row is a position, each column a channel. To the left the channels turn fast, to
the right slowly, as the digits of a counter do.
"""

import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from keras_pe import get_angles, positional_encoding

POSITIONS, D_MODEL = 100, 128


def main(path):
    table = positional_encoding(POSITIONS, D_MODEL)[0].numpy()
    figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
    image = axes.imshow(table, aspect="auto", cmap="RdBu", vmin=-1, vmax=1)
    axes.set_xlabel(f"channel (d_model = {D_MODEL}; sine, cosine, sine, cosine ...)")
    axes.set_ylabel("position")
    axes.set_title("What is added to the embeddings")
    figure.colorbar(image, label="P[position, channel]")
    figure.savefig(path, dpi=120)
    slowest = get_angles(POSITIONS - 1, D_MODEL - 1, D_MODEL)
    print(f"{path}: the slowest channel turns by {slowest:.4f} rad over the plot")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "encoding.png")
