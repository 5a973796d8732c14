"""What the measurements share: interleaved timing, the machine, the results files.

pyperf and pytest-benchmark time each benchmark apart, in a process of its own or after
the one before, so what else the machine does meets one candidate and not the next:
here all of them take turns within every round.
"""

import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import statistics
import sys
import time

RESULTS = pathlib.Path(__file__).parent / "results"


def interleave(functions, rounds, seconds, clock=time.perf_counter):
    """Return, by name, the time of a call in each round.

    All run in turn in every round, forth and back, each in a loop of about `seconds`.
    Warm-up is apart.
    """
    loops = {}
    for name, function in functions.items():
        function()
        loops[name] = loops_for(function, seconds, clock)
    times = {name: [] for name in functions}
    names = list(functions)
    for _ in range(rounds):
        for name in names:
            took = timed(functions[name], loops[name], clock)
            times[name].append(took / loops[name])
        names.reverse()
    return times


def loops_for(function, seconds, clock):
    """Return how many calls take about `seconds`, found out in a tenth of them."""
    loops = 1
    while (took := timed(function, loops, clock)) < seconds / 10:
        loops *= 2
    return max(1, round(loops * seconds / took))


def timed(function, loops, clock):
    start = clock()
    for _ in range(loops):
        function()
    return clock() - start


def over(times, floor):
    """Return the quartiles of the ratio of times, each round by its own floor."""
    return quartiles([a / b for a, b in zip(times, floor, strict=True)])


def quartiles(values):
    return statistics.quantiles(values, n=4, method="inclusive")


def ratios(functions, floor, rounds=15, seconds=0.2):
    """Return, by name, the quartiles of each function's time over that of `floor`."""
    times = interleave(functions, rounds, seconds)
    return {name: over(times[name], times[floor]) for name in functions}


def save(name, command, measured, packages=("tensorflow", "keras", "numpy")):
    """Write `results/NAME.json`: what was measured, when, with what, on what."""
    record = {**heading(command, packages), **measured}
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json_lines(record), "utf-8")
    print(f"wrote {path}", file=sys.stderr)
    return record


def heading(command, packages=("tensorflow", "keras", "numpy")):
    """Return what every results file begins with: when, with what, and on what."""
    versions = {}
    for package in packages:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "command": command,
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "versions": {"python": platform.python_version(), **versions},
    }


def machine():
    """Return the processor by name, its cores and the system."""
    name = platform.machine()
    cpu = pathlib.Path("/proc/cpuinfo")
    if cpu.exists():
        models = re.findall(r"model name\s*: (.*)", cpu.read_text("utf-8"))
        name = ", ".join([*models[:1], name])
    return f"{name}, {os.cpu_count()} cores, {platform.system()}"


def json_lines(record):
    """Return a record as JSON that reads well: a line for each record in a list."""
    parts = []
    for key, value in record.items():
        if isinstance(value, list) and value:
            lines = ",\n  ".join(json.dumps(v, ensure_ascii=False) for v in value)
            text = f"[\n  {lines}\n ]"
        else:
            text = json.dumps(value, indent=1, ensure_ascii=False)
            text = text.replace("\n", "\n ")
        parts.append(f" {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"
