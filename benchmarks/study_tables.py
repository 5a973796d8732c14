"""The tables of docs/study.md, from the results of the study: one for each question."""

import statistics

from benchmarks.markdown import source, table

ENCODINGS = ("sinusoidal", "learned", "rotary", "alibi", "relative", "none")
LENGTHS = ("64", "128", "256", "512")
# Titles of what is done in training, and then to the positions of longer texts.
VARIANTS = {
    "longer waves": "`max_wavelength=1e6`",
    "random starts": "random starts in training",
}
WAYS = {"interpolated": "positions interpolated", "resized": "table resized"}


def order(study):
    """Return how many of the sentences are told from their likenesses."""
    rows = [["encoding", "words shuffled", "two neighbours swapped"]]
    for encoding in ENCODINGS:
        found = [
            of_runs(study, task="order", encoding=encoding, corrupt=corrupt)
            for corrupt in ("shuffled", "swapped")
        ]
        accuracies = [[run["accuracy"] for run in runs] for runs in found]
        rows.append([f"`{encoding}`", *map(mean, accuracies)])
    none = of_runs(study, task="order", encoding="none")
    most = max(run["pairs_differ"] for run in none)
    note = (
        f"\nWithout positions the scores of a pair differ by {most:.0e} at most, in "
        f"all {len(none)} runs.\n"
    )
    return table(rows) + note + end(study)


def tasks(study):
    """Return what each encoding is worth on the three tasks."""
    rows = [
        ["encoding", "reviews, accuracy", "names, F1", "writing, bits per character"]
    ]
    for encoding in ENCODINGS:
        asked = {"encoding": encoding}
        reviews = of_runs(study, task="classification", **asked)
        names = of_runs(study, task="names", **asked)
        bits = [bits_of(run, "as it is") for run in written(study, encoding)]
        cells = [
            [run["accuracy"] for run in reviews],
            [run["f1"] for run in names],
            [found["64"] for found in bits],
        ]
        rows.append([f"`{encoding}`", *map(mean, cells)])
    return table(rows) + end(study)


def length(study):
    """Return bits per character of texts longer than those of training."""
    rows = [["encoding", *(f"{n} characters" for n in LENGTHS)]]
    for title, found in lengths(study):
        cells = [mean([bits[n] for bits in found if n in bits]) for n in LENGTHS]
        rows.append([title, *cells])
    return table(rows) + end(study)


def lengths(study):
    """Return, by a title, what each run has by length."""
    found = []
    for encoding in ENCODINGS:
        for variant in (None, *VARIANTS) if encoding == "sinusoidal" else (None,):
            runs = written(study, encoding, variant)
            for way in runs[0]["bits"] if runs else ():
                if variant and way != "as it is":
                    continue
                titles = [f"`{encoding}`", VARIANTS.get(variant), WAYS.get(way)]
                title = ", ".join(filter(None, titles))
                found.append((title, [bits_of(run, way) for run in runs]))
    return found


def cost(study):
    """Return what a training step takes, over one without positions."""
    rows = [["encoding", "a training step, over one without positions"]]
    for encoding in ENCODINGS:
        low, middle, high = study["cost"][encoding]
        rows.append([f"`{encoding}`", f"{middle:.2f} ({low:.2f} to {high:.2f})"])
    return table(rows) + "\nMedians, quartiles in brackets.\n" + source(study)


def of_runs(study, **asked):
    """Return the runs that have these values, `None` meaning none."""
    return [
        run
        for run in study["runs"].values()
        if all(run.get(key) == value for key, value in asked.items())
    ]


def written(study, encoding, variant=None):
    return of_runs(study, task="writing", encoding=encoding, variant=variant)


def bits_of(run, way):
    return run["bits"][way]


def mean(values):
    """Return the mean, and in brackets the least and the most."""
    if not values:
        return ""
    digits = 2 if max(values) > 2 else 3
    low, middle, high = min(values), statistics.mean(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def end(study):
    seeds = len({run["seed"] for run in study["runs"].values()})
    return f"\nMeans of {seeds} seeds, least and most in brackets.\n" + source(study)


TABLES = {made.__name__: made for made in (order, tasks, length, cost)}
