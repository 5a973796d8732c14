"""The trainings of the study: small nets of the examples, on their data.

Each task takes an encoding, a seed and a size, and gives what the test split says of
the epoch that the validation split has chosen.
"""

import functools
import itertools
import json
import math
import os
import random
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

ENCODINGS = ("sinusoidal", "learned", "rotary", "alibi", "relative", "none")
LENGTHS = (64, 128, 256, 512)
LONGEST_SENTENCE = 40  # characters


class Size(NamedTuple):
    """How much of the data is read, how often, and by nets of which width."""

    texts: int  # of the training split; an eighth of that of each other
    epochs: int
    dim: int = 64


# Sentences, true and false.


def order(encoding, seed, size, corrupt="shuffled"):
    """Tell sentences from their likenesses: the same in another order.

    It trains on those of one kind, and is asked of both: how many pairs of a sentence
    and its likeness it tells apart. `pairs_differ` is the most by which the scores of a
    pair do: without positions it is a rounding error.
    """
    import numpy as np

    options = {"length": LONGEST_SENTENCE, "blocks": 2, "batch_size": 32}
    args = set_up("text_classification", encoding, seed, size, **options)
    draw = random.Random(0)  # the same likenesses for all
    splits = sentences(size.texts)
    counts = Counter(itertools.chain(*itertools.chain(*splits["training"])))
    number = {c: i + 2 for i, (c, _) in enumerate(counts.most_common(3000))}

    def pairs(true, corrupt):
        """Return ids of the characters of both, and which are true."""
        ids = np.zeros((2 * len(true), LONGEST_SENTENCE), "int32")
        false = [CORRUPT[corrupt](words, draw) for words in true]
        for row, words in zip(ids, true + false, strict=True):
            text = "".join(words)
            row[: len(text)] = [number.get(character, 1) for character in text]
        return ids, np.repeat([1, 0], len(true))

    data = {name: pairs(splits[name], corrupt) for name in ("training", "validation")}
    import text_classification

    model = text_classification.make_classifier(len(number) + 2, 2, args)
    result = {**train(model, data, args), "pairs_differ": 0.0}
    for corrupt in CORRUPT:
        ids, _ = pairs(splits["test"], corrupt)
        scores = model.predict(ids, batch_size=512, verbose=0)[:, 1]
        true, false = np.split(scores, 2)
        # A score that is the same of both is no answer.
        told = np.sign(np.round(true - false, 5)) / 2 + 0.5
        result[corrupt] = float(told.mean())
        most = float(np.abs(true - false).max())
        result["pairs_differ"] = max(most, result["pairs_differ"])
    return result


def shuffled(words, draw):
    """Return the words in another order, but for the last, a full stop."""
    *other, stop = words
    while "".join(other) == "".join(words[:-1]):
        draw.shuffle(other)
    return [*other, stop]


def swapped(words, draw):
    """Return the words, two neighbours but for the last in each other's place."""
    other = list(words)
    i = draw.choice([i for i in range(len(words) - 2) if words[i] != words[i + 1]])
    other[i : i + 2] = reversed(other[i : i + 2])
    return other


CORRUPT = {"shuffled": shuffled, "swapped": swapped}


@functools.cache
def sentences(count):
    """Return sentences of at least 8 words, lists of their words, by their split.

    A sentence is in one split alone.
    """
    from corpus import SPLITS
    from peoples_daily import NAME, load, words_of

    splits, before = {}, set()
    for name, lines in load(NAME, words_of).items():
        found = {}
        for line in lines:
            sentence = []
            for word, _ in line:
                sentence.append(word)
                if word in "\u3002\uff01\uff1f\uff1b":
                    text = "".join(sentence)
                    if len(sentence) >= 8 and len(text) <= LONGEST_SENTENCE:
                        found[text] = sentence
                    sentence = []
        texts = sorted(found.keys() - before)
        before.update(texts)
        random.Random(0).shuffle(texts)
        most = count if name == SPLITS[0] else count // 8
        splits[name] = [found[text] for text in texts[:most]]
    return splits


# The tasks of the examples.


def classification(encoding, seed, size):
    """Tell good reviews from bad ones, as examples/text_classification.py does."""
    args = set_up("text_classification", encoding, seed, size, dropout=0.4, length=100)
    import text_classification as example

    args.split = "characters"
    _, splits = example.load("reviews")
    splits = {name: cut(rows, size, name) for name, rows in splits.items()}
    texts = {name: [text for text, _ in rows] for name, rows in splits.items()}
    labels = {name: [label for _, label in rows] for name, rows in splits.items()}
    data, vocabulary = batches(texts, labels, args)
    model = example.make_classifier(vocabulary, 2, args)
    result = train(model, data, args)
    return {**result, "accuracy": example.evaluate(model, data["test"], 2)["accuracy"]}


def names(encoding, seed, size):
    """Find persons, places and organizations, as examples/named_entities.py does."""
    args = set_up("named_entities", encoding, seed, size, batch_size=16)
    import named_entities as example
    from entities import parse, pieces, tags_of
    from peoples_daily import NAME, load

    splits = {
        name: cut([p for line in part for p in pieces(*line, args.length)], size, name)
        for name, part in load(NAME, parse).items()
    }
    texts = {name: [text for text, _ in part] for name, part in splits.items()}
    tags = {name: [tags_of(*piece) for piece in part] for name, part in splits.items()}
    data, vocabulary = batches(texts, tags, args)
    model = example.make_tagger(vocabulary, args)
    result = train(model, data, args)
    return {**result, "f1": example.evaluate(model, data["test"])["f1"]}


def cut(rows, size, name):
    """Return some rows, drawn over all."""
    rows = list(rows)
    random.Random(0).shuffle(rows)
    return rows[: size.texts if name == "training" else size.texts // 8]


def batches(texts, labels, args):
    from batches import make_batches, make_tokenizer

    tokenizer = make_tokenizer(texts["training"], args)
    data = {
        name: make_batches(
            texts[name], labels[name], tokenizer, args, name == "training"
        )
        for name in texts
    }
    return data, tokenizer.get_layer("vectorize").vocabulary_size()


# Texts longer than those of training.


def writing(encoding, seed, size, variant="plain"):
    """Write on, as examples/language_model.py does, trained on texts of 64 characters.

    Returns bits per character of texts of each of `LENGTHS`, by what is done to the
    positions then: `AT_TEST` of the encoding.
    """
    import keras
    import language_model as example
    from batches import make_vectorizer
    from encoder import Encoder
    from peoples_daily import NAME, load

    options = {"length": LENGTHS[0], "max_tokens": 2000}
    # So that it gets far in few steps.
    options |= {"batch_size": 16, "learning_rate": 5e-3}
    args = set_up("language_model", encoding, seed, size, **options)
    lines = load(NAME, example.parser_of(NAME))
    # Neighbours stay neighbours: a text goes on where another ends.
    text = {name: "".join(f"{line}\n" for line in part) for name, part in lines.items()}
    text = {
        name: part[: size.texts if name == "training" else size.texts // 8]
        for name, part in text.items()
    }
    vectorize = make_vectorizer(text["training"].splitlines(keepends=True), args)
    ids = {name: vectorize([part])[0].numpy() for name, part in text.items()}
    vocabulary = vectorize.vocabulary_size()

    def make(change):
        encoder = Encoder(vocabulary, args, causal=True)
        change(encoder, args)
        return example.make_model(encoder, keras.layers.Dense(vocabulary))

    model = make(IN_TRAINING[variant])
    data = {
        name: example.make_windows(ids[name], args, name == "training")
        for name in ("training", "validation")
    }
    result = {**train(model, data, args, from_logits=True), "bits": {}}
    ways = AT_TEST.get(encoding if variant == "plain" else None, AS_IT_IS)
    for way, change in ways.items():
        found = result["bits"][way] = {}
        for length in LENGTHS:
            args.length = length
            if way == "as it is" and encoding == "learned" and length > LENGTHS[0]:
                continue  # it has no rows there
            at_length = make(change)
            transfer(model, at_length)
            at_length.compile(
                loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                jit_compile=False,
            )
            windows = example.make_windows(ids["test"], args, False)
            loss = at_length.evaluate(windows, verbose=0)
            found[str(length)] = loss / math.log(2)
    return result


def as_it_is(encoder, args):
    pass


def longer_waves(encoder, args):
    import keras_pe

    encoder.add_rows = keras_pe.PositionalEncoding(max_wavelength=1e6)


def random_starts(encoder, args):
    """Have texts begin anywhere in training, up to where the longest end."""
    import keras

    add_rows, length = encoder.add_rows, args.length

    class RandomStart(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.seed = keras.random.SeedGenerator(args.seed)

        def call(self, x, training=False):
            if not training:
                return add_rows(x)
            most = LENGTHS[-1] - length + 1
            shape = keras.ops.shape(x)[:1]
            start = keras.random.randint(shape, 0, most, seed=self.seed)
            return add_rows(x, start_index=start)

    encoder.add_rows = RandomStart()


def interpolated(encoder, args):
    """Have the positions of a longer text stay below the length of training."""
    from keras import ops

    add_rows = encoder.add_rows
    positions = ops.arange(args.length, dtype="float32") * (LENGTHS[0] / args.length)
    encoder.add_rows = lambda x: add_rows(x, positions=positions)


def scaled(encoder, args):
    import keras_pe

    scaling = {"rope_type": "linear", "factor": args.length / LENGTHS[0]}
    rotary = keras_pe.RotaryEmbedding(scaling=scaling)
    for block in encoder.blocks:
        block.attend.rotary = rotary


IN_TRAINING = {
    "plain": as_it_is,
    "longer waves": longer_waves,
    "random starts": random_starts,
}
AS_IT_IS = {"as it is": as_it_is}
AT_TEST = {
    "sinusoidal": {**AS_IT_IS, "interpolated": interpolated},
    "learned": {**AS_IT_IS, "resized": as_it_is},
    "rotary": {**AS_IT_IS, "interpolated": scaled},
}


def transfer(model, other):
    """Give another model the weights of a model, a learned table of its length."""
    import keras_pe

    weights = model.get_weights()
    for layer in model.layers:
        if isinstance(layer, keras_pe.LearnedPositionalEncoding):
            wanted = next(x for x in other.layers if type(x) is type(layer)).max_length
            table = layer.resized(wanted).get_weights()[0]
            place = next(
                i
                for i, weight in enumerate(model.weights)
                if weight is layer.embeddings
            )
            weights[place] = table
    own = [w for w in other.weights if "seed_generator" not in w.path]
    given = [
        value
        for weight, value in zip(model.weights, weights, strict=True)
        if "seed_generator" not in weight.path
    ]
    for weight, value in zip(own, given, strict=True):
        weight.assign(value)


# What all share.


def set_up(example, encoding, seed, size, **options):
    """Return the options of an example, and set the seed."""
    import importlib

    import keras

    args = importlib.import_module(example).make_parser().parse_args([])
    options = {"dropout": 0.1, **options, "encoding": encoding, "seed": seed}
    vars(args).update(options, epochs=size.epochs, dim=size.dim)
    keras.utils.set_random_seed(seed)
    return args


def train(model, data, args, from_logits=False):
    """Train up to the epoch that is best on the validation split, and say how long."""
    import keras
    import numpy as np
    from training import compile_model

    arrays = isinstance(data["training"], tuple)
    count = len(data["training"][0]) if arrays else len(data["training"])
    steps = -(-count // args.batch_size) if arrays else count
    compile_model(model, args, steps, from_logits)
    model.jit_compile = False  # which takes longer than these trainings gain
    start = time.process_time()
    kwargs = {"batch_size": args.batch_size} if arrays else {"shuffle": False}
    given = data["training"] if arrays else (data["training"],)
    stop = keras.callbacks.EarlyStopping(
        "val_loss", patience=3, restore_best_weights=True
    )
    history = model.fit(
        *given,
        validation_data=data["validation"],
        epochs=args.epochs,
        callbacks=[stop],
        verbose=0,
        **kwargs,
    ).history
    return {
        "cpu_seconds": round(time.process_time() - start, 1),
        "epoch": int(np.argmin(history["val_loss"])) + 1,
        "validation_loss": float(np.min(history["val_loss"])),
    }


# What it costs.


def cost(quick):
    """Return, by encoding, the quartiles of a training step over one without."""
    import numpy as np

    from benchmarks.measure import interleave, over

    draw = np.random.default_rng(0)
    ids, tags = (draw.integers(1, n, (64, 100)).astype("int32") for n in (3000, 7))
    functions = {}
    for encoding in ENCODINGS:
        size = Size(texts=0, epochs=1)
        args = set_up("named_entities", encoding, 0, size, blocks=1)
        import named_entities

        model = named_entities.make_tagger(3000, args)
        compile_model(model, args, 1)
        model.jit_compile = False
        functions[encoding] = lambda model=model: model.train_on_batch(ids, tags)
    rounds, seconds = (3, 0.2) if quick else (15, 1.0)
    times = interleave(functions, rounds, seconds)
    return {name: over(taken, times["none"]) for name, taken in times.items()}


def compile_model(*arguments):
    from training import compile_model

    compile_model(*arguments)


TASKS = {f.__name__: f for f in (order, classification, names, writing, cost)}


def end_with_stdin():
    """End when stdin does, which the study holds open until it ends itself."""
    os.read(0, 1)
    os._exit(1)


def main():
    threading.Thread(target=end_with_stdin, daemon=True).start()
    run = json.loads(sys.argv[1])
    task = TASKS[run.pop("task")]
    if "size" in run:
        run["size"] = Size(*run["size"])
    print(json.dumps(task(**run)))


if __name__ == "__main__":
    main()
