"""What the measurements share: interleaved timing, the machine, the results files."""

import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import statistics
import time

RESULTS = pathlib.Path(__file__).parent / "results"


def ratios(functions, floor, rounds=15, seconds=0.2):
    """Return, by name, the quartiles of each function's time over that of `floor`.

    All run in turn in every round, so that what else the machine does meets all of
    them; each round divides by its own floor. Warm-up is apart.
    """
    loops = {}
    for name, function in functions.items():
        function()
        start = time.perf_counter()
        function()
        loops[name] = max(1, round(seconds / (time.perf_counter() - start)))
    times = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            start = time.perf_counter()
            for _ in range(loops[name]):
                function()
            times[name].append((time.perf_counter() - start) / loops[name])
    quotients = {
        name: [a / b for a, b in zip(times[name], times[floor], strict=True)]
        for name in functions
    }
    return {name: statistics.quantiles(q, n=4) for name, q in quotients.items()}


def save(name, command, measured, packages=("tensorflow", "keras", "numpy")):
    """Write `results/NAME.json`: what was measured, when, with what, on what."""
    versions = {}
    for package in packages:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    record = {
        "command": command,
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": {"python": platform.python_version(), **versions},
        **measured,
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", "utf-8")
    print(f"wrote {path}")
