"""Write measured numbers into the documents: `python -m benchmarks.documents`.

Between `<!-- numbers: NAME -->` and `<!-- end -->` stands what the function NAME here
makes of the results files. A test checks that the documents agree with them.
"""

import json
import re
from pathlib import Path

from benchmarks import (
    family_table,
    performance_tables,
    plots,
    study_plots,
    study_tables,
)
from benchmarks.device_table import cells
from benchmarks.markdown import kilobytes, number, source, table
from benchmarks.measure import RESULTS
from benchmarks.readings import matches, name_of

ROOT = Path(__file__).parents[1]
DOCUMENTS = (
    "README.md",
    "docs/choosing.md",
    "docs/study.md",
    "docs/rows.md",
    "docs/performance.md",
    "docs/performance-all.md",
    "docs/serving.md",
)
# The names of promises.json there.
IN_PERFORMANCE = {"keras_pe": "unlimited", "keras_hub": "keras-hub"}
MARKED = re.compile(r"(<!-- numbers: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def promises():
    result, measured = load("promises"), load("performance")
    peers = ["keras_pe", *(name for name in result["mask"] if name != "keras_pe")]
    titles = {"keras_pe": "ours", "keras_hub": "keras-hub's `SinePositionEncoding`"}
    rows = [["", *(titles[name] for name in peers)]]
    for dtype in ("float16", "bfloat16"):
        row = [f"error, mixed_{dtype}, 4,096 positions"]
        rows.append(row + [number(result["half_error"][p][dtype]) for p in peers])
    for last in result["error"]["keras_pe"]:
        row = [f"error, float32, position {int(last):,}"]
        rows.append(row + [number(result["error"][p][last]) for p in peers])
    for shape in ((1, 2048, 512), (8, 2048, 512)):
        case = next(case for case in measured["times"] if is_common(case, shape))
        row = [f"time over adding a ready table, {name_of(shape)}, length unknown"]
        found = [case["candidates"][IN_PERFORMANCE[peer]] for peer in peers]
        rows.append(row + [ratio(record["ratio"]) for record in found])
    saved = {record["candidate"]: record for record in measured["sizes"]}
    sizes = [saved_size(saved[IN_PERFORMANCE[peer]]) for peer in peers]
    rows.append(["adds to saved_model.pb at 512 channels, one / two endpoints", *sizes])
    answers = {True: "passes", False: "lost"}
    rows.append(["mask of the embedding", *(answers[result["mask"][p]] for p in peers)])
    bounded = saved_size(saved["bounded"])
    note = f"\nWith `max_length=8192` a SavedModel holds the table: {bounded}.\n"
    return table(rows) + note + source(result) + source(measured)


def is_common(case, shape):
    """Return whether the case is a plain graph from 0, its length unknown."""
    where = {"mode": "graph", "dtype": "float32", "length": "unknown", "start": "zero"}
    return matches(case, {"backend": "tensorflow", "shape": [*shape], **where})


def saved_size(record):
    names = ("one endpoint", "two endpoints")
    return " / ".join(kilobytes(record[f"saved_model.pb, {name}"]) for name in names)


def ways():
    result = load("ways")
    times = [key for key in next(iter(result["ways"].values())) if " x " in key]
    rows = [["way", "error, p < 2**30", *times, "adds to saved_model.pb", "LiteRT"]]
    for name, way in result["ways"].items():
        size, lite = way["saved_model_bytes"], way["litert"]
        error = "ends" if way["error"] is None else number(way["error"])
        lite = number(lite) if isinstance(lite, float) else "no"
        cells = [ratio(way[key]) for key in times]
        rows.append([name, error, *cells, f"{size / 1000:,.0f} kB", lite])
    return table(rows) + source(result)


def family():
    result = load("family")
    return family_table.written(result["family"]) + source(result)


def devices():
    """Return what `device_check` found, a table for each device it ran on."""
    paths = sorted(RESULTS.glob("device-*.json"))
    return "\n".join(device(load(path.stem)) for path in paths)


def device(result):
    size = result["size"]
    shape = name_of([size["batch"], size["steps"], size["width"]])
    title = f"{result['device']}, {result['backend']}, {shape}:\n\n"
    return title + table(cells(result["rows"])) + source(result)


def profile():
    """Return which operations take longest."""
    result = load("profile")
    rows = [["call", "shape", "microseconds of each operation, longest first"]]
    for found in result["profiles"]:
        listed = [
            f"{op['kind']} {op['microseconds']:.0f}" for op in found["operations"]
        ]
        rest = f"{found['others']} others {found['others_microseconds']:.0f}"
        cells = ", ".join([*listed, rest])
        rows.append([found["call"], name_of(found["shape"]), cells])
    return table(rows) + source(result)


def example():
    """Return where an epoch of the example goes."""
    result = load("example")
    rows = [["an epoch of", "seconds, quartiles", "CPU seconds of all threads"]]
    for name, (wall, cpu) in result["epoch"].items():
        quartiles = ", ".join(f"{seconds:.2f}" for seconds in wall)
        rows.append([name, quartiles, f"{cpu[1]:.2f}"])
    once = [["once", "seconds"]]
    once += [[name, f"{taken:.1f}"] for name, taken in result["seconds"].items()]
    whole = result["whole"]
    once.append(["the whole command", f"{whole['seconds']:.0f}"])
    once.append(
        ["the whole command, CPU time of all threads", f"{whole['cpu_seconds']:.0f}"]
    )
    note = f"\nIts peak memory is {whole['peak_megabytes']:,.0f} MB.\n"
    return table(rows) + "\n" + table(once) + note + source(result)


def serving():
    """Return the sizes of exports, and how long they take to load and to answer."""
    result = load("serving")
    rows = [
        [
            "exported",
            "signatures",
            "saved_model.pb",
            "the whole folder",
            "loads in",
            "first request",
            "after warm-up",
            "later ones",
        ]
    ]
    keys = ("load", "first", "first_after", "later")
    for found in result["exports"]:
        times = [f"{found[f'{key}_seconds'] * 1e3:,.1f} ms" for key in keys]
        names = ("saved_model_bytes", "total_bytes")
        bytes_of = [kilobytes(found[name]) for name in names]
        rows.append([found["name"], str(found["endpoints"]), *bytes_of, *times])
    note = (
        f"\nMedians of {result['rounds']} fresh processes in TensorFlow's C++ runtime;"
    )
    note += f" requests of 1 x {result['steps']} x 512, or one text.\n"
    return table(rows) + note + source(result)


def attention():
    """Return what a training step and a decode step of attention cost."""
    result = load("attention")
    ways = list(result["training"][0]["ratios"])
    rows = [["a step of", "mode", "at", *ways]]
    for found in result["training"]:
        cells = [ratio(found["ratios"][way]) for way in ways]
        rows.append(["training", found["mode"], name_of(found["shape"]), *cells])
    for found in result["decoding"]:
        cells = [ratio(found["ratios"][way]) for way in ways]
        at = f"batch {found['batch']}, {found['slots']:,} slots"
        rows.append(["decoding", found["mode"], at, *cells])
    return table(rows) + source(result)


def load(name):
    return json.loads((RESULTS / f"{name}.json").read_text("utf-8"))


def ratio(quartiles):
    return f"{quartiles[1]:.2f}"


def written(name):
    """Return the table NAME, `MODULE_NAME` from the tables of that module."""
    first, _, rest = name.partition("_")
    if rest and first in MODULES:
        return MODULES[first].TABLES[rest](load(first))
    return TABLES[name]()


MODULES = {"performance": performance_tables, "study": study_tables}
TABLES = {
    made.__name__: made
    for made in (
        promises,
        ways,
        family,
        attention,
        devices,
        profile,
        example,
        serving,
    )
}


def render(text):
    """Return a document with all that is between its markers written anew."""
    return MARKED.sub(lambda m: m[1] + written(m[2]) + m[3], text)


def main():
    for name in DOCUMENTS:
        path = ROOT / name
        path.write_text(render(path.read_text("utf-8")), "utf-8")
        print(f"wrote {name}")
    plots.draw(load("performance"), ROOT / "docs")
    study_plots.draw(load("study"), ROOT / "docs")


if __name__ == "__main__":
    main()
