"""Time the candidates of each case side by side, in this process."""

import time

import keras

from benchmarks.calls import compiled, error, forget, place, random_input
from benchmarks.candidates import CANDIDATES, nothing
from benchmarks.cases import Case
from benchmarks.measure import interleave, over, quartiles
from benchmarks.reasons import reason

FLOOR = "floor"


def measure(cases, rounds, seconds):
    """Return a record for each case, which is a `Case` as a dictionary."""
    warm_up(cases)
    cases = [Case(**{**case, "shape": tuple(case["shape"])}) for case in cases]
    return [side_by_side(case, CANDIDATES, rounds, seconds) for case in cases]


def side_by_side(case, candidates, rounds, seconds):
    """Return times, ratios and errors of the candidates, or why one has none."""
    given = random_input(case), *place(case)
    calls, found = {}, {}
    for name, make in candidates.items():
        try:
            calls[name], found[name] = prepared(case, make, given)
        except Exception as problem:
            found[name] = {"reason": reason(problem)}
    times = interleave(calls, rounds, seconds)
    for name, taken in times.items():
        milliseconds = quartiles([1000 * each for each in taken])
        ratio = over(taken, times[FLOOR])
        found[name] |= {"ms": short(milliseconds), "ratio": short(ratio)}
    return {**case._asdict(), "candidates": found}


def prepared(case, make, given):
    """Return a call that ran once, how long that took, and the error of its rows."""
    forget()
    start = time.perf_counter()
    function = compiled(case, make(case))
    function(*given)
    first = time.perf_counter() - start
    found = {"first_s": short([first])[0]}
    if make is not nothing:
        found["error"] = short([error(case, function)])[0]
    return lambda: function(*given), found


def warm_up(cases):
    """Start what the first call of a process starts, before any first call is timed."""
    modes = {(case["backend"], case["mode"]) for case in cases}
    for backend, mode in modes:
        case = Case(backend, mode, "float32", "known", "zero", (1, 1, 1), 0)
        compiled(case, lambda x: keras.ops.sin(x) + 1)(random_input(case))


def short(values):
    """Return the numbers to four digits: no clock has more."""
    return [float(f"{value:.4g}") for value in values]
