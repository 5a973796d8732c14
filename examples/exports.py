"""The newest of the exported models. TensorFlow alone is needed to run it."""

from options import InputError


def load_newest(base, needed):
    """Return the newest export.

    Args:
        base: Folder of the versions.
        needed: By signature, the tensors that it must have, and the rank of each.
    """
    found = [n for n in numbers(base) if (base / str(n) / "saved_model.pb").is_file()]
    if not found:
        raise InputError(
            "`--saved-models` must be a folder with an exported model: train one "
            f"first, without `--predict`. Received: {str(base)!r}"
        )
    import tensorflow as tf

    path = str(base / str(max(found)))
    try:
        model = tf.saved_model.load(path)
    except Exception as error:  # of any type: what is read can be anything
        reason = " ".join(str(error).split())
        raise InputError(
            f"Cannot load {path!r}, the newest version in `--saved-models`: {reason}"
        ) from error
    for name, tensors in needed.items():
        has = ranks(model.signatures[name]) if name in model.signatures else {}
        if not tensors.items() <= has.items():
            raise InputError(
                "The newest version in `--saved-models` must be an export of this "
                f"example, with the signature {name!r} of {tensors}, names and ranks. "
                f"Received: {path!r}, where it has {has}"
            )
    return model


def ranks(signature):
    """Return the names of a signature's inputs and outputs, and the rank of each."""
    _, inputs = signature.structured_input_signature
    tensors = {**inputs, **signature.structured_outputs}
    return {name: tensor.shape.rank for name, tensor in tensors.items()}


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
