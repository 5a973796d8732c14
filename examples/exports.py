"""The newest of the exported models. TensorFlow alone is needed to run it."""

from options import InputError


def load_newest(base):
    found = [n for n in numbers(base) if (base / str(n) / "saved_model.pb").is_file()]
    if not found:
        raise InputError(
            "`--saved-models` must be a folder with an exported model: train one "
            f"first, without `--predict`. Received: {str(base)!r}"
        )
    import tensorflow as tf

    return tf.saved_model.load(str(base / str(max(found))))


def numbers(base):
    names = [path.name for path in base.iterdir()] if base.is_dir() else []
    return [int(name) for name in names if name.isascii() and name.isdigit()]


def as_utf_8(text):
    """Return an argument that TensorFlow can take: one that is not UTF-8 cannot be."""
    return text.encode("utf-8", "replace").decode()


def warmup_samples(texts, tokenizer):
    """Return eight texts from the shortest to the longest, and their ids."""
    import tensorflow as tf

    texts = sorted(texts, key=len)
    texts = [texts[i * (len(texts) - 1) // 7] for i in range(8)]
    return {"text": texts, "ids": [tokenizer(tf.constant([text])) for text in texts]}
