"""The table of what `device_check` found on a device."""

from benchmarks.markdown import number

STARTS = (0, 10**4, 10**6)


def cells(rows):
    """Return the rows as text, under a header."""
    starts = [f"error from {start:,}" for start in STARTS]
    header = ["mode", "dtype", "given", *starts, "numbers", "time over `x + table`"]
    lines = [[*header, "`x + table`, microseconds"]]
    for row in rows:
        errors = [row.get("errors", {}).get(str(start)) for start in STARTS]
        line = [row["mode"], row["dtype"], row["given"]]
        line += ["" if e is None else number(e) for e in errors]
        line.append("ok" if row["ok"] else "WRONG")
        if "ratio" in row:
            low, median, high = row["ratio"]
            line.append(f"{median:.2f} ({low:.2f} to {high:.2f})")
            line.append(f"{row['addition_microseconds']:,.0f}")
        lines.append(line + [""] * (len(lines[0]) - len(line)))
    return lines
