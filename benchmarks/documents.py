"""Write measured numbers into the documents: `python -m benchmarks.documents`.

Between `<!-- numbers: NAME -->` and `<!-- end -->` stands what the function NAME here
makes of the results files. A test checks that the documents agree with them.
"""

import json
import re
import statistics
from pathlib import Path

from benchmarks.measure import RESULTS

ROOT = Path(__file__).parents[1]
DOCUMENTS = ("README.md", "docs/rows.md")
MARKED = re.compile(r"(<!-- numbers: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def promises():
    result = load("promises")
    peers = ["keras_pe", *(name for name in result["mask"] if name != "keras_pe")]
    titles = {"keras_pe": "ours", "keras_hub": "keras-hub's `SinePositionEncoding`"}
    rows = [["", *(titles[name] for name in peers)]]
    for dtype in ("float16", "bfloat16"):
        row = [f"error, mixed_{dtype}, 4,096 positions"]
        rows.append(row + [number(result["half_error"][p][dtype]) for p in peers])
    for last in result["error"]["keras_pe"]:
        row = [f"error, float32, position {int(last):,}"]
        rows.append(row + [number(result["error"][p][last]) for p in peers])
    for size in result["unknown_length_ratio"]["keras_pe"]:
        row = [f"time over adding a ready table, {size} x 512, length unknown"]
        ratios = [result["unknown_length_ratio"][p][size] for p in peers]
        rows.append(row + [ratio(quartiles) for quartiles in ratios])
    sizes = [kilobytes(result["saved_bytes"][p]) for p in peers]
    rows.append(["adds to saved_model.pb at 512 channels, one / two endpoints", *sizes])
    answers = {True: "passes", False: "lost"}
    rows.append(["mask of the embedding", *(answers[result["mask"][p]] for p in peers)])
    bounded = kilobytes(result["saved_bytes_bounded"])
    note = f"\nWith `max_length=8192` a SavedModel holds the table: {bounded}.\n"
    return table(rows) + note + source(result)


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


def classification():
    result = load("classification")
    rows = [["encoding", "test accuracy", "macro F1", "validation accuracy", "seconds"]]
    for encoding in ("sinusoidal", "none"):
        runs = [run for run in result["runs"] if run["encoding"] == encoding]
        row = [f"`{encoding}`"]
        for key in ("test_accuracy", "macro_f1", "validation_accuracy"):
            values = [run[key] for run in runs]
            row.append(f"{statistics.mean(values):.3f} ({spread(values)})")
        row.append(f"{statistics.median(run['seconds'] for run in runs):.0f}")
        rows.append(row)
    majority = f"{result['runs'][0]['majority']:.3f}"
    rows.append(["majority class", majority, "", "", ""])
    seeds = len({run["seed"] for run in result["runs"]})
    note = f"\nMeans over {seeds} seeds, least and most in brackets; seconds are the "
    note += "median of the whole command.\n"
    return table(rows) + note + source(result)


def load(name):
    return json.loads((RESULTS / f"{name}.json").read_text("utf-8"))


def number(value):
    return f"{value:.1e}" if value < 0.01 else f"{value:.2f}"


def kilobytes(sizes):
    return " / ".join(f"{size / 1000:,.0f} kB" for size in sizes)


def ratio(quartiles):
    return f"{quartiles[1]:.2f}"


def spread(values):
    return f"{min(values):.3f} to {max(values):.3f}"


def table(rows):
    header, *body = rows
    lines = [header, ["---"] * len(header), *body]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def source(result):
    versions = ", ".join(f"{name} {v}" for name, v in result["versions"].items())
    command, date, machine = result["command"], result["date"], result["machine"]
    return f"\n`{command}`, {date}, {machine}: {versions}.\n"


def render(text):
    """Return a document with all that is between its markers written anew."""
    return MARKED.sub(lambda m: m[1] + globals()[m[2]]() + m[3], text)


def main():
    for name in DOCUMENTS:
        path = ROOT / name
        path.write_text(render(path.read_text("utf-8")), "utf-8")
        print(f"wrote {name}")


if __name__ == "__main__":
    main()
