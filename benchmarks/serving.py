"""Measure exports: their sizes, and how long the first request takes.

`python -m benchmarks.serving` writes `results/serving.json`, in about 2 minutes. Each
request is asked of TensorFlow's C++ runtime in a process of its own, fresh, as it is
when a server has just loaded a model; with warm-up that has run its records before.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measure import save

ROOT = Path(__file__).parents[1]
ROUNDS = 7
D_MODEL, MAX_LENGTH, STEPS = 512, 8192, 128
WORDS = [f"w{i}" for i in range(9_998)]  # which the padding and the rest make 10,000
TEXT = " ".join(WORDS[:38])


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ask", metavar="FOLDER", help=argparse.SUPPRESS)
    parser.add_argument("--warm-up", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.ask:
        return print(json.dumps(ask(args.ask, args.warm_up)))
    with tempfile.TemporaryDirectory() as folder:
        versions = write(Path(folder))
        measured = {
            "rounds": ROUNDS,
            "steps": STEPS,
            "exports": [
                {"name": name, "endpoints": n, **sizes(path), **times(path)}
                for (name, n), path in versions.items()
            ],
        }
    save("serving", "python -m benchmarks.serving", measured)


def write(folder):
    """Export each model, and return the versions by name and number of endpoints."""
    import keras
    import numpy as np

    import keras_pe

    os.environ["KERAS_BACKEND"] = "tensorflow"
    versions = {}
    for options in ({}, {"max_length": MAX_LENGTH}):
        inputs = keras.Input((None, D_MODEL), name="x")
        model = keras.Model(inputs, keras_pe.PositionalEncoding(**options)(inputs))
        arguments = ", ".join(f"{name}={value}" for name, value in options.items())
        for n in (1, 2):
            versions[f"`PositionalEncoding({arguments})`", n] = keras_pe.serving.export(
                model,
                folder,
                samples=np.ones((1, STEPS, D_MODEL), "float32"),
                endpoints={"other": model} if n == 2 else None,
            )
    classifier, model = make_classifier()
    versions["the example's classifier, of 10,000 words", 2] = keras_pe.serving.export(
        model,
        folder,
        samples={"text": [TEXT], "ids": [[*range(2, 40)]]},
        labels=["negative", "positive"],
        endpoints={"serve_ids": classifier},
    )
    return versions


def make_classifier():
    """Return the example's model as it is before training, of ids and of texts."""
    import keras

    sys.path.insert(0, str(ROOT / "examples"))
    import text_classification as example

    args = example.make_parser().parse_args([])
    args.split = "words"
    tokenizer = example.make_tokenizer([" ".join(WORDS)], args)
    size = tokenizer.get_layer("vectorize").vocabulary_size()
    classifier = example.make_classifier(size, 2, args)
    text = keras.Input((), dtype="string", name="text")
    return classifier, keras.Model(text, classifier(tokenizer(text)))


def sizes(path):
    card = json.loads((path / "model_card.json").read_text("utf-8"))
    return {
        "saved_model_bytes": card["bytes"]["saved_model.pb"],
        "total_bytes": card["bytes"]["total"],
    }


def times(path):
    """Return medians over fresh processes, with and without warm-up in turn."""
    found = {False: [], True: []}
    for _ in range(ROUNDS):
        for warm_up, records in found.items():
            command = [sys.executable, "-m", "benchmarks.serving", "--ask", str(path)]
            done = subprocess.run(
                [*command, *(["--warm-up"] if warm_up else [])],
                cwd=ROOT,
                capture_output=True,
                check=True,
            )
            records.append(json.loads(done.stdout))
    medians = {
        warm_up: {
            key: statistics.median(record[key] for record in records)
            for key in records[0]
        }
        for warm_up, records in found.items()
    }
    return {
        "load_seconds": medians[False]["load_seconds"],
        "first_seconds": medians[False]["first_seconds"],
        "first_after_seconds": medians[True]["first_seconds"],
        "later_seconds": medians[False]["later_seconds"],
    }


def ask(path, warm_up):
    """Load an export into the C++ runtime, and time its first and later requests."""
    sys.path.insert(0, str(ROOT / "examples" / "serving"))
    import numpy as np
    from cpp_runtime import Runtime, run_warmup

    start = time.perf_counter()
    runtime = Runtime(path)
    load_seconds = time.perf_counter() - start
    if warm_up:
        run_warmup(runtime, Path(path))
    if "text" in runtime.signatures["serving_default"].inputs:
        inputs = {"text": [TEXT]}
    else:
        inputs = {"x": np.ones((1, STEPS, D_MODEL), "float32")}
    taken = []
    for _ in range(22):
        start = time.perf_counter()
        runtime.run("serving_default", inputs)
        taken.append(time.perf_counter() - start)
    return {
        "load_seconds": load_seconds,
        "first_seconds": taken[0],
        "later_seconds": statistics.median(taken[2:]),
    }


if __name__ == "__main__":
    main()
