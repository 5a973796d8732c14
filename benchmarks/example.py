"""Find out where an epoch of the text classification example goes.

`python -m benchmarks.example` writes `results/example.json`. About 4 minutes.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measure import save

os.environ["KERAS_BACKEND"] = "tensorflow"
EXAMPLE = Path(__file__).parents[1] / "examples" / "text_classification.py"
ROUNDS = 4
# The options of the example that leave parts out.
MODELS = {
    "embedding, mean and softmax": ["--blocks", "0", "--encoding", "none"],
    "with positions": ["--blocks", "0"],
    "the whole model": [],
}


def main():
    example = load_example()
    seconds, data = prepare(example)
    models = {
        name: trainable(example, data, options) for name, options in MODELS.items()
    }
    for name, (_, first) in models.items():
        seconds[f"first epoch, {name}"] = first
    epochs = {"the data alone": lambda: sum(1 for _ in data["training"])}
    for name, (model, _) in models.items():
        epochs[name] = lambda model=model: train(model, data["training"])
    whole, _ = models["the whole model"]
    epochs["evaluation of the validation texts"] = lambda: whole.evaluate(
        data["validation"], verbose=0
    )
    taken = {name: [] for name in epochs}
    for _ in range(ROUNDS):
        for name, epoch in epochs.items():
            start = time.process_time()
            seconds_taken = clock(epoch)
            taken[name].append((seconds_taken, time.process_time() - start))
    # The CPU time too: it does not count what a virtual machine stands still.
    epoch = {
        name: [statistics.quantiles(t, n=4) for t in zip(*both, strict=True)]
        for name, both in taken.items()
    }
    measured = {"seconds": seconds, "epoch": epoch, "whole": whole_command()}
    save("example", "python -m benchmarks.example", measured)


def whole_command():
    """Return what a process takes that trains, evaluates and exports as by default."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--out", f"{folder}/out", "--saved-models", f"{folder}/saved"]
        start = time.perf_counter()
        process = subprocess.Popen([sys.executable, EXAMPLE, *options])
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
    if status:
        raise SystemExit(f"the example ended with status {status}")
    return {
        "seconds": seconds,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_megabytes": usage.ru_maxrss * 1024 / 1e6,  # Linux counts in 1,024 bytes
    }


def load_example():
    sys.path.insert(0, str(EXAMPLE.parent))
    import text_classification

    return text_classification


def prepare(example):
    """Return how long each preparation took, and the data sets."""
    import keras

    seconds = {}

    def timed(name, function):
        start = time.perf_counter()
        result = function()
        seconds[name] = time.perf_counter() - start
        return result

    args = options_of(example, [])
    keras.utils.set_random_seed(args.seed)
    _, splits = timed("reading and splitting", lambda: example.load(args.data))
    texts = [text for text, _ in splits["training"]]
    tokenizer = timed("the vocabulary", lambda: example.make_tokenizer(texts, args))
    data = timed(
        "turning texts into ids",
        lambda: {
            name: example.make_batches(
                *zip(*splits[name], strict=True), tokenizer, args, name == "training"
            )
            for name in ("training", "validation")
        },
    )
    data["vocabulary"] = tokenizer.get_layer("vectorize").vocabulary_size()
    return seconds, data


def trainable(example, data, options):
    """Return a model after its first epoch, and how long that took."""
    import training

    args = options_of(example, options)
    model = example.make_classifier(data["vocabulary"], 2, args)
    training.compile_model(model, args, len(data["training"]))
    return model, clock(lambda: train(model, data["training"]))


def train(model, texts):
    model.fit(texts, epochs=1, shuffle=False, verbose=0)


def options_of(example, options):
    args = example.make_parser().parse_args(options)
    args.split = "characters"
    return args


def clock(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
