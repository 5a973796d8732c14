"""The table of docs/choosing.md: each encoder of the family beside its peer."""

from benchmarks.markdown import number, table
from benchmarks.readings import name_of

POLICIES = ("float32", "mixed_bfloat16")
COLUMNS = {
    "time, graph": ("times", "graph"),
    "time, XLA": ("times", "XLA"),
    "error, positions 0 to 4,095": ("errors", "0"),
    "error, from position 1,000,000": ("errors", "1000000"),
}
MASKS = {True: "passes", False: "lost"}


def written(records):
    """Return the table, and below it why a cell is "no"."""
    rows = [["", "input", *COLUMNS, "mask"], *map(row, records)]
    return table(rows) + reasons(records)


def row(record):
    cells = [pair(record[what], where) for what, where in COLUMNS.values()]
    ours = record["candidate"] == record["member"]
    shape = name_of(record["shape"]) if ours else ""
    return [record["candidate"], shape, *cells, MASKS.get(record["mask"], "no")]


def pair(found, where):
    """Return what was found there in float32 and in mixed_bfloat16."""
    cells = [shown(found[f"{where}, {policy}"]) for policy in POLICIES]
    return " / ".join(cells) if cells[0] != cells[1] else cells[0]


def shown(value):
    """Return a ratio, an error or what comes beyond a table; "no" for a reason."""
    if isinstance(value, list):
        return f"{value[1]:.2f}"
    if isinstance(value, dict):
        return value["beyond"]
    if isinstance(value, str):
        return "no"
    return number(value) if value else "0"


def reasons(records):
    lines = []
    for record in records:
        found = [*record["times"].values(), *record["errors"].values(), record["mask"]]
        for value in found:
            line = f"- {record['candidate']}: {value}\n"
            if isinstance(value, str) and line not in lines:
                lines.append(line)
    return "\n" + "".join(lines) if lines else ""
