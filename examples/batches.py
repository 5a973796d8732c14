"""From texts to batches of the ids of their tokens."""

import math


def make_tokenizer(texts, args):
    """Text to ids of its first `--length` tokens; 0 is padding, 1 an unknown token.

    `args.split` says what a token is: "characters" or "words".
    """
    import keras

    text = keras.Input((), dtype="string", name="text")
    # One column of padding more, since layers fail on empty texts of length 0.
    ids = keras.ops.pad(make_vectorizer(texts, args)(text), [[0, 0], [0, 1]])
    return keras.Model(text, ids[:, : args.length], name="tokenizer")


def make_vectorizer(texts, args):
    """Return a layer from texts to the ids of all of their tokens."""
    import keras

    characters = args.split == "characters"
    vectorize = keras.layers.TextVectorization(
        max_tokens=args.max_tokens,
        standardize="lower" if characters else "lower_and_strip_punctuation",
        split="character" if characters else "whitespace",
        name="vectorize",
    )
    vectorize.adapt(texts)
    return vectorize


def make_batches(texts, labels, tokenizer, args, shuffle):
    """Batches of (ids, labels), each of texts of about one length.

    Labels are one for each text, or a list for each, padded with 0 as the ids are.
    """
    import tensorflow as tf

    rows = tf.constant(texts), tf.ragged.constant(labels)
    data = tf.data.Dataset.from_tensor_slices(rows)
    data = data.map(
        lambda text, label: (tokenizer(text[None])[0], label), tf.data.AUTOTUNE
    ).cache()
    if shuffle:
        data = data.shuffle(len(texts), seed=args.seed)
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
