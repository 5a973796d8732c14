"""How tables and numbers are written in the documents."""


def table(rows):
    header, *body = rows
    lines = [header, ["---"] * len(header), *body]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def source(result):
    """Return the line that says by what, when and on what the numbers were made."""
    versions = ", ".join(f"{name} {v}" for name, v in result["versions"].items())
    command, date, machine = result["command"], result["date"], result["machine"]
    return f"\n`{command}`, {date}, {machine}: {versions}.\n"


def number(value):
    return f"{value:.1e}" if value < 0.01 else f"{value:.2f}"


def kilobytes(size):
    return f"{size / 1000:,.0f} kB"
