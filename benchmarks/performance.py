"""Measure the layer beside a ready table, the pasted recipe and its peers.

`python -m benchmarks.performance` writes `results/performance.json`, from which
`python -m benchmarks.documents` makes the tables and plots of docs/performance.md.
With `--quick` a small part of it is measured, in about 2 minutes, and printed.
"""

import argparse
import sys
import time

from benchmarks import performance_tables
from benchmarks.apart import Died, apart
from benchmarks.measure import save
from benchmarks.plans import FULL, QUICK

PACKAGES = ("tensorflow", "keras", "numpy", "keras-hub", "positional-encodings", "jax")
CASES = ("times", "decoding", "growth")
HELD = (8, 16384, 512)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a small part, printed")
    quick = parser.parse_args().quick
    command = "python -m benchmarks.performance" + " --quick" * quick
    name = "performance-quick" if quick else "performance"
    result = save(name, command, measure(QUICK if quick else FULL), PACKAGES)
    if quick:
        print(performance_tables.everything(result))


def measure(plan):
    """Return all that the plan asks for, its parts in processes of their own."""
    return {
        **plan.each_round,
        "held": HELD,
        **timed(plan),
        "memory": [memory(mode, name, plan.repeats) for mode, name in plan.memory],
        **logged(
            "steps, sizes and retraces",
            {
                "steps": {**plan.each_round, **plan.steps},
                "sizes": {"candidates": plan.sizes},
                "retraces": {"candidates": plan.retraces},
            },
        ),
    }


def timed(plan):
    """Return the records of every case, under the name of its grid."""
    labelled = [(name, case) for name in CASES for case in getattr(plan, name)]
    found = {name: [] for name in CASES}
    for backend in ("tensorflow", "jax"):
        of_one = [pair for pair in labelled if pair[1].backend == backend]
        for first in range(0, len(of_one), plan.together):
            together = of_one[first : first + plan.together]
            records = timed_cases(backend, [case for _, case in together], plan)
            for (name, _), record in zip(together, records, strict=True):
                found[name].append(record)
    return found


def timed_cases(backend, cases, plan):
    cases = [case._asdict() for case in cases]
    calls = {"times": {"cases": cases, **plan.each_round}}
    try:
        return logged(f"{len(cases)} cases on {backend}", calls, backend)["times"]
    except Died as problem:
        died = {"floor": {"reason": str(problem)}}
        return [{**case, "candidates": died} for case in cases]


def memory(mode, candidate, repeats):
    """Return the growth of as many processes."""
    record = {"mode": mode, "candidate": candidate}
    calls = {"memory": {**record, "shape": HELD}}
    title = f"memory, {mode}, {candidate}"
    try:
        runs = [logged(title, calls)["memory"] for _ in range(repeats)]
    except Died as problem:
        return {**record, "reason": str(problem)}
    if "reason" in runs[0]:
        return {**record, "reason": runs[0]["reason"]}
    return {**record, "growth": [r["growth"] for r in runs], "how": runs[0]["how"]}


def logged(title, calls, backend="tensorflow"):
    start = time.perf_counter()
    found = apart(calls, backend)
    print(f"{title}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
    return found


if __name__ == "__main__":
    main()
