"""What the results of the benchmark say, read for a question about one candidate.

Each function returns a function of the results to a list of `Reading`: where it was
read, the number to judge, and the words to show.
"""

import math
import statistics
from typing import NamedTuple

EXACT = 1e-6


class Reading(NamedTuple):
    where: str
    judged: float
    shown: str


def one(shape):
    return shape[0] == 1


def many(shape):
    return shape[0] >= 8


def any_shape(shape):
    return True


def name_of(shape):
    return " x ".join(str(size) for size in shape)


def ratios(candidate, shapes, **where):
    """Read the lower quartile of the ratio to the floor, in all cases that fit."""

    def read(result):
        return [
            ratio_in(case, candidate)
            for case in result["times"]
            if matches(case, where) and shapes(tuple(case["shape"]))
        ]

    return read


def matches(case, where):
    """Return whether the case has each value, or one of them where it is a tuple."""
    return all(
        case[key] in value if isinstance(value, tuple) else case[key] == value
        for key, value in where.items()
    )


def ratio_in(case, candidate):
    found, where = case["candidates"].get(candidate, {}), name_of(case["shape"])
    if "ratio" not in found:
        return Reading(where, math.inf, found.get("reason", "not measured"))
    low, middle, _ = found["ratio"]
    return Reading(where, low, f"{middle:.2f} ({low:.2f})")


def against(candidate, allowed):
    """Read the lower quartile over the peer's upper one, in all cases that both run.

    `allowed` says of a peer's name and record whether it is one to compare with.
    """

    def read(result):
        found = []
        for case in result["times"]:
            ours = case["candidates"].get(candidate, {})
            for name, peer in case["candidates"].items():
                if allowed(name, peer) and "ratio" in ours and "ratio" in peer:
                    found.append(slower(case, ours, name, peer))
        return found

    return read


def slower(case, ours, name, peer):
    keys = ("mode", "dtype", "length", "start")
    where = ", ".join([name_of(case["shape"]), *(case[key] for key in keys)])
    ours, theirs = ours["ratio"], peer["ratio"]
    shown = f"{ours[1]:.2f} ({ours[0]:.2f}), {name} {theirs[1]:.2f} ({theirs[2]:.2f})"
    return Reading(where, ours[0] / theirs[2], shown)


def is_pasted(name, peer):
    return name == "pasted"


def takes_any_length(name, peer):
    """Return whether a peer is one without a limit that is right in the case."""
    peers = ("keras-hub", "positional-encodings")
    return name in peers and peer.get("error", math.inf) <= EXACT


def memory(candidate, mode):
    """Read the growth of the peak over a ready table's, in sizes of the encoding.

    That is the table which is passed in: as a constant, it takes ten times its size.
    """

    def read(result):
        growth = {
            record["candidate"]: statistics.median(record["growth"])
            for record in result["memory"]
            if record["mode"] == mode and "growth" in record
        }
        if not {candidate, "ready"} <= set(growth):
            return []
        over = (growth[candidate] - growth["ready"]) / encoding_bytes(result)
        return [Reading(name_of(result["held"]), over, f"{over:.2f}")]

    return read


def encoding_bytes(result):
    _, time, width = result["held"]
    return time * width * 4


def size(candidate, file):
    def read(result):
        found = [r[file] for r in result["sizes"] if r["candidate"] == candidate]
        return [Reading("512 channels", b, f"{b / 1000:,.0f} kB") for b in found]

    return read


def retraces(candidate):
    def read(result):
        return [
            Reading(f"{record['lengths']} lengths", count, f"{count}")
            for record in result["retraces"]
            if record["candidate"] == candidate
            for count in [max(record["calls of Python"], record["tracing count"])]
        ]

    return read


def exponents(candidate, mode):
    """Read how far from 1 the exponent of time against length is.

    The time is that over a call which does next to nothing: what a call costs by itself
    does not grow, and is most of it where inputs are short.
    """

    def read(result):
        lengths, times = growth(result, candidate, mode)
        if len(lengths) < 2:
            return []
        alone = without_call(result, candidate, mode)
        where = f"{lengths[0]:,} to {lengths[-1]:,} steps"
        if alone is None:
            return [Reading(where, math.inf, "lost in the cost of a call")]
        found, whole = exponent(lengths, alone), exponent(lengths, times)
        shown = f"{found:.2f}, with the call {whole:.2f}"
        return [Reading(where, abs(found - 1), shown)]

    return read


def without_call(result, candidate, mode):
    """Return the milliseconds of each length over a call of next to nothing, or None.

    None stands for times that are not all above it.
    """
    _, times = growth(result, candidate, mode)
    _, nothing = growth(result, "nothing", mode)
    alone = [t - n for t, n in zip(times, nothing, strict=True)]
    return alone if min(alone) > 0 else None


def growth(result, candidate, mode):
    """Return the lengths, and the median milliseconds of each."""
    cases = [case for case in result["growth"] if case["mode"] == mode]
    found = [
        (case["shape"][1], case["candidates"][candidate]["ms"][1])
        for case in cases
        if "ms" in case["candidates"].get(candidate, {})
    ]
    return [length for length, _ in found], [time for _, time in found]


def exponent(lengths, times):
    """Return the slope of the line through the logarithms, by least squares."""
    logs = [math.log(n) for n in lengths], [math.log(t) for t in times]
    return statistics.linear_regression(*logs).slope
