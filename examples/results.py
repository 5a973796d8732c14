"""The folder of the results: whose it is, and how they are moved into place."""

import contextlib
import json
import os
import platform
import re
import shutil
import tempfile
from pathlib import Path

from options import InputError

# What is half written is in a folder of this prefix, in one of this name: removed after
# its files, so that it tells to the end whose they are.
PREFIX = ".keras_pe-writing-"
INSIDE = "unfinished"


def check_outputs(args, name, files, texts=None):
    """Refuse folders that cannot be written, and those with files of others.

    `texts` is a folder that is read, if there is one, in which nothing is written.
    """
    for option, folder in (("--out", args.out), ("--saved-models", args.saved_models)):
        check_folder(option, folder)
        if texts is not None and real(folder).is_relative_to(real(texts)):
            raise InputError(
                f"`{option}` must not lie in the folder of the texts. "
                f"Received: {str(folder)!r} in {str(texts)!r}"
            )
    ours = is_from(name, args.out / "metrics.json")
    for path in (args.out / file for file in files):
        if path.is_dir() or (os.path.lexists(path) and not ours):
            raise InputError(
                f"`--out` must not hold files of others: {str(path)!r} is not from an "
                f"earlier run of this script. Received: {str(args.out)!r}"
            )


def real(path):
    return Path(os.path.realpath(path))  # `Path.resolve` fails on a loop of links


def check_folder(option, folder):
    """Refuse a folder that can be neither used nor made, by what of it is there."""
    for path in (folder, *folder.absolute().parents):
        try:
            path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            fault = f": {error.strerror}"
        else:
            if not path.is_dir():
                fault = " is a file"
            elif not os.access(path, os.W_OK | os.X_OK):
                fault = " is read-only"
            elif path == folder and not os.access(path, os.R_OK):
                fault = " cannot be read"
            else:
                return
        raise InputError(
            f"`{option}` must be a folder that can be read and written, or created. "
            f"Received: {str(folder)!r}, and {str(path)!r}{fault}"
        )


def is_from(name, metrics):
    try:
        # Not a pipe, which could be read for ever.
        return metrics.is_file() and json.loads(metrics.read_bytes())["example"] == name
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return False


def describe(name, args, model, history, seconds):
    """Return what every example says of a training in its metrics."""
    return {
        "example": name,
        "settings": vars(args),
        "versions": versions(),
        "parameters": model.count_params(),
        "epochs": len(history["loss"]),
        "training_seconds": round(seconds, 1),
    }


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
def alone(out):
    """Hold the folder of the results, in which one run at a time may write.

    It is made if it is not there. What a killed run left half written is removed.
    """
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    held = hold(out)
    try:
        if held is not None:
            remove_leftovers(out)
        yield
    finally:
        if held is not None:
            os.close(held)


def remove_leftovers(out):
    for path in out.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            # Nothing else in it, or what killed it was too early for that.
            if set(os.listdir(path)) <= {INSIDE}:
                shutil.rmtree(path)


def hold(folder):
    """Return a lock that ends with the process, or None where there are none."""
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(held)
        if isinstance(error, BlockingIOError):
            raise InputError(
                "`--out` must not be the folder of a run that is not over: wait for "
                f"it, or give another one. Received: {str(folder)!r}"
            ) from error
        return None  # a file system without locks
    return held


def keep(args, files, write, export):
    """Put results into `--out`, and then a version of the model beside the others.

    Args:
        files: Names of the results, in the order they are replaced.
        write: Takes a folder, and writes all of them into it.
        export: Gives the path of the version that it makes.
    """
    with replaced(args.out, files) as folder:
        write(folder)
    print(f"Results: {args.out}")
    with writing(args.saved_models):
        version = export()
    print(f"SavedModel: {version}")


@contextlib.contextmanager
def replaced(out, files):
    """Give a folder to write files in, which replace those in `out` if nothing fails.

    They are replaced in their order. metrics.json is the first, since it tells whose
    the folder is.
    """
    with writing(out), aside(out) as folder:
        yield folder
        for name in files:
            os.replace(folder / name, out / name)


@contextlib.contextmanager
def aside(folder):
    """Give a folder to write in, of a kind that `remove_leftovers` knows."""
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=folder) as name:
        inside = Path(name, INSIDE)
        inside.mkdir()
        yield inside


@contextlib.contextmanager
def writing(path):
    """Make an `InputError` of what the system or TensorFlow cannot write."""
    import tensorflow as tf

    try:
        yield
    except OSError as error:
        raise InputError(f"Cannot write {str(path)!r}: {error}") from error
    except tf.errors.OpError as error:
        # Without the names of its operations.
        reason = re.sub(r"\{\{.*?\}\} *| *\[Op:.*?\]", "", error.message)
        raise InputError(f"Cannot write {str(path)!r}: {reason}") from error


def write_metrics(metrics, path):
    text = json.dumps(metrics, indent=2, ensure_ascii=False, default=str) + "\n"
    path.write_text(text, encoding="utf-8")
