"""Train the text classifier with and without positions, and collect its results.

`python -m benchmarks.classification` runs the example for each encoding and seed, and
writes `results/classification.json`. About 25 minutes.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import save

EXAMPLE = Path(__file__).parents[1] / "examples" / "text_classification.py"
ENCODINGS = ("sinusoidal", "learned", "rotary", "alibi", "relative", "none")
SEEDS = (0, 1, 2)


def main():
    runs = []
    for seed in SEEDS:
        for encoding in ENCODINGS:
            with tempfile.TemporaryDirectory() as folder:
                runs.append(run(encoding, seed, Path(folder)))
            print(runs[-1])
    save("classification", "python -m benchmarks.classification", {"runs": runs})


def run(encoding, seed, folder):
    options = ["--encoding", encoding, "--seed", str(seed)]
    options += ["--out", folder / "out", "--saved-models", folder / "saved"]
    subprocess.run([sys.executable, EXAMPLE, *options], check=True)
    metrics = json.loads((folder / "out" / "metrics.json").read_text("utf-8"))
    return {
        "encoding": encoding,
        "seed": seed,
        "validation_accuracy": metrics["validation"]["accuracy"],
        "test_accuracy": metrics["test"]["accuracy"],
        "macro_f1": metrics["test"]["macro_f1"],
        "majority": metrics["majority_accuracy"],
    }


if __name__ == "__main__":
    main()
