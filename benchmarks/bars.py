"""The bars that the layer is held to, and how the results stand against them."""

from collections.abc import Callable
from itertools import product
from typing import NamedTuple

from benchmarks.readings import (
    against,
    any_shape,
    exponents,
    is_pasted,
    many,
    memory,
    name_of,
    one,
    ratios,
    retraces,
    size,
    takes_any_length,
)

OURS = ("unlimited", "bounded")
TITLES = {
    "unlimited": "`PositionalEncoding()`",
    "bounded": "`PositionalEncoding(max_length=...)`",
}
STARTS = {"zero": "start 0", "tensor": "tensor start", "positions": "`positions`"}


class Bar(NamedTuple):
    case: str
    candidate: str
    limit: float
    read: Callable  # of the results, to a list of `Reading`
    at_most: str  # the limit in words
    empty: str = "not measured"  # the verdict on results without a reading


class Verdict(NamedTuple):
    """How the results stand against a bar: the worst reading, and how many meet it."""

    bar: Bar
    worst: object  # a `Reading`, or None where nothing was measured
    met: int
    total: int

    @property
    def word(self):
        if self.worst is None:
            return self.bar.empty
        return "met" if self.met == self.total else "not met"


def ratio_bar(case, candidate, limit, shapes, **where):
    where = {"dtype": "float32", **where}
    read = ratios(candidate, shapes, **where)
    return Bar(case, candidate, limit, read, f"{limit:.2f}")


def is_named(name):
    return lambda shape: name_of(shape) == name


def ratio_bars():
    at = {"backend": "tensorflow", "length": "known", "start": "zero"}
    for mode, name in product(("graph", "XLA"), OURS):
        case = f"{mode}, length known, start 0"
        yield ratio_bar(case, name, 1.10, any_shape, **at, mode=mode)
    at = {"backend": "tensorflow", "length": "unknown", "mode": "XLA"}
    for name in OURS:
        case = "XLA, length unknown, start 0"
        yield ratio_bar(case, name, 1.15, any_shape, **at, start="zero")
    for (batch, shapes, limit), name in product(classes(2.0, 1.3), OURS):
        case = f"XLA, length unknown, tensor start, {batch}"
        yield ratio_bar(case, name, limit, shapes, **at, start="tensor")
    at = {"backend": "tensorflow", "length": "unknown", "mode": "graph"}
    for start, (batch, shapes, limit) in product(STARTS, classes(1.35, 1.10)):
        case = f"graph, length unknown, {STARTS[start]}, {batch}"
        yield ratio_bar(case, "bounded", limit, shapes, **at, start=start)
    few = (("1 x 2048 x 512", 2.5), ("1 x 32768 x 128", 3.0))
    kinds = [(size, is_named(size), limit) for size, limit in few]
    kinds += classes(None, 1.25)[1:]
    for start, (batch, shapes, limit) in product(STARTS, kinds):
        case = f"graph, length unknown, {STARTS[start]}, {batch}"
        yield ratio_bar(case, "unlimited", limit, shapes, **at, start=start)
    at = {"backend": "jax", "mode": "jit"}
    for start, (batch, shapes, limit) in product(STARTS, classes(1.3, 1.1)):
        for name in OURS:
            case = f"JAX, jitted, {STARTS[start]}, {batch}"
            yield ratio_bar(case, name, limit, shapes, **at, start=start)


def classes(one_row, many_rows):
    """Return the two classes of batches, each with its limit."""
    return [("batch 1", one, one_row), ("batch 8 or more", many, many_rows)]


def other_bars():
    for mode, name, limit in (
        ("graph", "bounded", 1),
        ("graph", "unlimited", 3),
        ("XLA", "bounded", 1),
        ("XLA", "unlimited", 1),
    ):
        case = f"memory over a ready table's, in encodings, {mode}"
        yield Bar(case, name, limit, memory(name, mode), f"{limit}")
    file = "saved_model.pb, two endpoints"
    case = f"added to {file}"
    yield Bar(case, "unlimited", 100_000, size("unlimited", file), "100 kB")
    for name in OURS:
        yield Bar("tracings over 20 lengths", name, 1, retraces(name), "1")
    for mode, name in product(("graph", "XLA"), OURS):
        case = f"exponent of time against length, {mode}"
        yield Bar(case, name, 0.1, exponents(name, mode), "1.0 within 0.1")
    beside = "not slower beyond the quartiles"
    read = against("bounded", is_pasted)
    yield Bar("beside the pasted recipe", "bounded", 1, read, beside)
    read = against("unlimited", takes_any_length)
    case = "beside peers without a limit, where right to 1e-6"
    yield Bar(case, "unlimited", 1, read, beside, empty="no peer is")


BARS = (*ratio_bars(), *other_bars())


def judged(bar, result):
    """Return the `Verdict` on a bar: it is met where every reading is at most it."""
    readings = bar.read(result)
    worst = max(readings, key=lambda reading: reading.judged, default=None)
    met = sum(reading.judged <= bar.limit for reading in readings)
    return Verdict(bar, worst, met, len(readings))


def rows(result):
    """Return the table of the bars, a row for each."""
    table = [["case", "candidate", "at most", "worst", "there", "met by", "verdict"]]
    for bar in BARS:
        verdict = judged(bar, result)
        worst = verdict.worst
        shown = [worst.shown, worst.where] if worst else ["", ""]
        met = f"{verdict.met} of {verdict.total}"
        title = TITLES[bar.candidate]
        table.append([bar.case, title, bar.at_most, *shown, met, verdict.word])
    return table
