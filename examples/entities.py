"""Named entities: in lines of tagged words, as spans of characters, and as BIO tags."""

import itertools

from peoples_daily import words_of

KINDS = {"nr": "person", "ns": "place", "nt": "organization"}
TAGS = ("O", *(f"{part}-{kind}" for kind in KINDS.values() for part in "BI"))
# Family names of two characters. All others have one.
_FAMILIES = {"欧阳", "诸葛", "司马", "司徒", "令狐", "南宫", "上官", "东方", "夏侯"}
# The full stop, the exclamation and the question mark, and the semicolon.
_ENDS = "\u3002\uff01\uff1f\uff1b"


def parse(line):
    """Return the text of a line of tagged words, and its spans `(start, end, kind)`."""
    text, spans = "", []
    for part, words in itertools.groupby(words_of(line), lambda word: word[1]):
        words = [word for word, _ in words]
        for name in _names(words) if part == "nr" else words:
            if part in KINDS:
                spans.append((len(text), len(text) + len(name), KINDS[part]))
            text += name
    return text, spans


def _names(words):
    """Join the parts of each person's name, of neighbouring words that are such parts.

    A family name takes the given name after it; of three words of which two are family
    names, the first is a husband's. Others stand alone.
    """
    families = [len(word) == 1 or word in _FAMILIES for word in words]
    if len(words) == 3 and families == [True, True, False]:
        return ["".join(words)]
    names, open_name = [], ""
    for word, is_family in zip(words, families, strict=True):
        if open_name or not is_family:
            names.append(open_name + word)
            open_name = ""
        else:
            open_name = word
    return [*names, open_name] if open_name else names


def pieces(text, spans, length):
    """Cut a text into pieces of at most `length` characters, and its spans with it.

    The cuts are after the ends of sentences, where there are any, and not in a span
    that fits.
    """
    found, start = [], 0
    while start < len(text):
        end = min(start + length, len(text))
        if end < len(text):
            at = max(text.rfind(mark, start, end) for mark in _ENDS) + 1
            end = at if at > start else end
            cut = [a for a, b, _ in spans if a < end < b and a > start]
            end = min([end, *cut])
        inside = [
            (a - start, b - start, kind)
            for a, b, kind in spans
            if a >= start and b <= end
        ]
        found.append((text[start:end], inside))
        start = end
    return found


def tags_of(text, spans):
    """Return the number of the tag of each character."""
    tags = [0] * len(text)
    for start, end, kind in spans:
        tags[start] = TAGS.index(f"B-{kind}")
        tags[start + 1 : end] = [TAGS.index(f"I-{kind}")] * (end - start - 1)
    return tags


def spans_of(tags):
    """Return the spans that numbers of tags say: an I without its B begins one too."""
    spans, start, open_kind = [], 0, None
    for at, tag in enumerate([*tags, 0]):
        part, _, kind = TAGS[tag].partition("-")
        if open_kind is not None and (part != "I" or kind != open_kind):
            spans.append((start, at, open_kind))
            open_kind = None
        if open_kind is None and part != "O":
            start, open_kind = at, kind
    return spans


def score(true, predicted):
    """Return precision, recall and F1 of entities: right if bounds and kind are.

    Args:
        true, predicted: Lists of texts, each a list of spans.
    """
    from nervaluate.evaluator import Evaluator

    sides = [
        [
            [{"label": kind, "start": a, "end": b} for a, b, kind in spans]
            for spans in side
        ]
        for side in (true, predicted)
    ]
    result = Evaluator(*sides, tags=[*KINDS.values()], loader="dict").evaluate()

    def of(found):
        if found is None:  # there are none of a kind, nor were any found
            return {"precision": 0.0, "recall": 0.0, "f1": 0.0, "entities": 0}
        strict = found["strict"]
        return {
            "precision": strict.precision,
            "recall": strict.recall,
            "f1": strict.f1,
            "entities": strict.possible,
        }

    kinds = {kind: of(result["entities"].get(kind)) for kind in KINDS.values()}
    return {**of(result["overall"]), "kinds": kinds}
