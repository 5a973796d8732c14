"""The tables of docs/performance.md and docs/performance-all.md."""

import statistics

from benchmarks import bars
from benchmarks.markdown import kilobytes, source, table
from benchmarks.readings import (
    encoding_bytes,
    exponent,
    growth,
    matches,
    name_of,
    without_call,
)

PEERS = {
    "pasted": "pasted recipe",
    "keras-hub": "keras-hub",
    "positional-encodings": "positional-encodings",
}
CANDIDATES = {**bars.TITLES, **PEERS}
FLOOR = {"floor": "ready table"}


def verdicts(result):
    return table(bars.rows(result)) + source(result)


def times(cell, **where):
    """Return a function of the results to a table with a row for each case."""

    def write(result):
        cases = [case for case in result["times"] if matches(case, where)]
        return of_cases(cases, cell)

    return write


def of_cases(cases, cell, names=CANDIDATES, label="shape"):
    rows = [["call", label, *names.values()]]
    for case in sorted(cases, key=order):
        place = name_of(case["shape"])
        if label == "first position":
            place = f"{case['first']:,}"
        found = [case["candidates"].get(name, {}) for name in names]
        rows.append([call_of(case), place, *map(cell, found)])
    return table(rows) + reasons(cases, names)


def order(case):
    """Return what sorts cases by how they are called; shapes stay in their order."""
    modes, starts = ["graph", "XLA", "eager", "jit"], list(bars.STARTS)
    return modes.index(case["mode"]), starts.index(case["start"])


def call_of(case):
    return f"{case['mode']}, {bars.STARTS[case['start']]}"


def ratio(found):
    """Return the median ratio to the floor, and the error of the rows."""
    if "ratio" not in found:
        return "no"
    return f"{found['ratio'][1]:.2f} ({error(found)})"


def error(found):
    size = found["error"]
    return f"{size:.0e}" if 0 < size < 0.1 else f"{size:.2g}"


def details(found):
    """Return the median ratio with its quartiles, and the median time."""
    if "ratio" not in found:
        return "no"
    low, middle, high = found["ratio"]
    return f"{middle:.2f} ({low:.2f} to {high:.2f}), {milliseconds(found)}"


def milliseconds(found):
    return f"{found['ms'][1]:.3g} ms" if "ms" in found else "no"


def first_call(found):
    return f"{found['first_s']:.2f} s" if "first_s" in found else "no"


def reasons(cases, names):
    """Return the lines that say why a cell is "no"."""
    lines = []
    for name, title in names.items():
        found = [case["candidates"].get(name, {}).get("reason") for case in cases]
        for words in dict.fromkeys(filter(None, found)):
            quoted = f"`{words}`" if "Error: " in words else words
            lines.append(
                f"- {title}: {quoted} ({found.count(words)} of {len(cases)})\n"
            )
    return "\n" + "".join(lines) if lines else ""


def decoding(result):
    return of_cases(result["decoding"], ratio, label="first position")


def memory(result):
    names = {**FLOOR, "ready": "ready table, passed in", **CANDIDATES}
    rows = [["candidate", "mode", "beyond the result", "over the table passed in"]]
    batch = result["held"][0]
    growths = {(r["mode"], r["candidate"]): r for r in result["memory"]}
    for (mode, name), record in growths.items():
        if "growth" not in record:
            rows.append([names[name], mode, record["reason"], ""])
            continue
        units = statistics.median(record["growth"]) / encoding_bytes(result)
        ready = statistics.median(growths[mode, "ready"]["growth"])
        over = units - ready / encoding_bytes(result)
        rows.append([names[name], mode, f"{units - batch:.2f}", f"{over:+.2f}"])
    return table(rows)


def steps(result):
    names = {"none": "no positions", **bars.TITLES}
    rows = [["mode", *names.values()]]
    for record in result["steps"]:
        found = [record["candidates"][name] for name in names]
        cells = [f"{details(f)}, first {first_call(f)}" for f in found]
        rows.append([record["mode"], *cells])
    return table(rows)


def sizes(result):
    files = [key for key in result["sizes"][0] if key != "candidate"]
    rows = [["candidate", *files]]
    for record in result["sizes"]:
        cells = [in_bytes(record[file]) for file in files]
        rows.append([CANDIDATES[record["candidate"]], *cells])
    return table(rows)


def in_bytes(size):
    return kilobytes(size) if isinstance(size, int) else f"no: {size}"


def retraces(result):
    keys = ("calls of Python", "tracing count")
    rows = [["candidate", *keys]]
    for record in result["retraces"]:
        cells = [str(record.get(key, f"no: {record.get('reason')}")) for key in keys]
        rows.append([CANDIDATES[record["candidate"]], *cells])
    return table(rows)


def exponents(result):
    titles = ("of time", "without the call itself", "over the ready table")
    rows = [["candidate", "mode", *titles]]
    for mode in ("graph", "XLA"):
        lengths, floor = growth(result, "floor", mode)
        for name, title in {**FLOOR, **CANDIDATES}.items():
            _, taken = growth(result, name, mode)
            if len(taken) < len(lengths):
                rows.append([title, mode, "no", "no", "no"])
                continue
            of_time, alone = exponent(lengths, taken), without_call(result, name, mode)
            net = f"{exponent(lengths, alone):.2f}" if alone else "lost in noise"
            over = of_time - exponent(lengths, floor)
            rows.append([title, mode, f"{of_time:.2f}", net, f"{over:+.2f}"])
    return table(rows)


def complete(result):
    """Return every case that was timed, in a table for each way to call."""
    keys = ("backend", "mode", "dtype", "length")
    ways = dict.fromkeys(tuple(case[key] for key in keys) for case in result["times"])
    names, parts = {**FLOOR, **CANDIDATES}, []
    for way in ways:
        where = dict(zip(keys, way, strict=True))
        backend, mode, dtype, length = way
        parts.append(f"## {backend}, {mode}, {dtype}, length {length}\n\n")
        cases = [case for case in result["times"] if matches(case, where)]
        parts.append(of_cases(cases, details, names) + "\n")
    return "".join(parts) + source(result).lstrip("\n")


UNKNOWN = {"backend": "tensorflow", "length": "unknown"}
KNOWN = {"backend": "tensorflow", "length": "known", "dtype": "float32"}
TABLES = {
    "bars": verdicts,
    "graph": times(ratio, **UNKNOWN, dtype="float32", mode="graph"),
    "xla": times(ratio, **UNKNOWN, dtype="float32", mode="XLA"),
    "known": times(ratio, **KNOWN, mode=("graph", "XLA"), start="zero"),
    "eager": times(ratio, **KNOWN, mode="eager"),
    "jax": times(ratio, backend="jax", dtype="float32"),
    "decoding": decoding,
    "bfloat16": times(ratio, **UNKNOWN, dtype="bfloat16", start="zero"),
    "first": times(first_call, **UNKNOWN, dtype="float32", start="zero"),
    "growth": exponents,
    "memory": memory,
    "steps": steps,
    "sizes": sizes,
    "retraces": retraces,
    "all": complete,
}


def everything(result):
    """Return all but the complete table one below the other, for a terminal."""
    shown = {name: write for name, write in TABLES.items() if write is not complete}
    return "\n".join(f"### {name}\n\n{write(result)}" for name, write in shown.items())
