"""The folder of the results: whose it is, and how they are moved into place."""

import contextlib
import json
import os
import platform
import tempfile
from pathlib import Path

from options import InputError


def check_outputs(args, name, files):
    """Refuse folders that cannot be written, and those with files of others."""
    for option, folder in (("--out", args.out), ("--saved-models", args.saved_models)):
        path = next(filter(os.path.lexists, (folder, *folder.absolute().parents)))
        if not path.is_dir() or not os.access(path, os.W_OK | os.X_OK):
            raise InputError(
                f"`{option}` must be a folder that can be written or created. "
                f"Received: {str(folder)!r}, and {str(path)!r} is "
                + ("read-only" if path.is_dir() else "a file")
            )
        if args.data != "reviews" and folder.resolve().is_relative_to(
            Path(args.data).resolve()
        ):
            raise InputError(
                f"`{option}` must not lie in the folder of the texts. "
                f"Received: {str(folder)!r} in {str(args.data)!r}"
            )
    ours = is_from(name, args.out / "metrics.json")
    for path in (args.out / file for file in files):
        if path.is_dir() or (path.exists() and not ours):
            raise InputError(
                f"`--out` must not hold files of others: {str(path)!r} is not from an "
                f"earlier run of this script. Received: {str(args.out)!r}"
            )


def is_from(name, metrics):
    try:
        return json.loads(metrics.read_bytes())["example"] == name
    except (OSError, ValueError, TypeError, LookupError):
        return False


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


@contextlib.contextmanager
def replaced(out, files):
    """Give a folder to write files in, which replace those in `out` if nothing fails.

    They are replaced in their order. metrics.json is the first, since it tells whose
    the folder is.
    """
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".writing-", dir=out) as aside:
        yield Path(aside)
        for name in files:
            os.replace(Path(aside) / name, out / name)


def write_metrics(metrics, path):
    text = json.dumps(metrics, indent=2, ensure_ascii=False, default=str) + "\n"
    path.write_text(text, encoding="utf-8")
