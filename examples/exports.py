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
