"""The text classification example as a module, and small texts to train it on."""

import json
import random
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "examples" / "text_classification.py"
sys.path.insert(0, str(SCRIPT.parent))
import text_classification as example  # noqa: E402

TINY = ["--dim", "16", "--heads", "2", "--dropout", "0", "--batch-size", "16"]
TINY += ["--learning-rate", "0.01", "--length", "16"]
TEXTS = [
    "alpha w1 w2 w4 beta",
    "beta w1 w2 w4 alpha",
    "",
    "never seen words",
    "w3",
    "w1 alpha w2 beta " * 5000,
    "\ud55c\uad6d\uc5b4 \U0001f600 alpha\tbeta\n",
]


def write_texts(folder, **texts):
    for label, rows in texts.items():
        (folder / label).mkdir(parents=True)
        for i, text in enumerate(rows):
            (folder / label / f"{i}.txt").write_text(text, encoding="utf-8")
    return folder


def train(data, folder, *options):
    """Run the example into `out` and `saved` of a folder, and return its metrics."""
    example.main(
        [
            f"--data={data}",
            f"--out={folder / 'out'}",
            f"--saved-models={folder / 'saved'}",
            *TINY,
            *options,
        ]
    )
    return json.loads((folder / "out" / "metrics.json").read_text(encoding="utf-8"))


def ordered_texts(first, second, seed):
    """Texts of the same words, in which `first` comes before `second`."""
    rng = random.Random(seed)
    texts = []
    for _ in range(300):
        words = [f"w{rng.randrange(30)}" for _ in range(rng.choice((2, 6, 10)))]
        start, end = sorted(rng.sample(range(len(words) + 1), 2))
        words.insert(end, second)
        words.insert(start, first)
        texts.append(" ".join(words))
    return texts
