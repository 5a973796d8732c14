"""The tables of docs/study.md, from the results of the study: one for each question."""

import math
import statistics

from benchmarks.markdown import source, table
from benchmarks.study import ENCODINGS, all_runs, name_of

LENGTHS = ("64", "128", "256", "512")
# Titles of what is done in training, and then to the positions of longer texts.
VARIANTS = {
    "longer waves": "`max_wavelength=1e6`",
    "random starts": "random starts in training",
}
WAYS = {"interpolated": "positions interpolated", "resized": "table resized"}


def first(study):
    """Return the one result of the README's first screen."""
    told = {
        name: [run["shuffled"] for run in of_runs(study, "order", name)]
        for name in ENCODINGS
    }
    without, fixed = (statistics.mean(told[name]) for name in ("none", "sinusoidal"))
    return (
        "Beside the same words shuffled, a small net finds the true sentence in "
        f"**{fixed:.0%}** of the pairs with `PositionalEncoding`, and in {without:.0%} "
        "without positions: [the study](docs/study.md).\n"
    )


def choice(study):
    """Return the means of every question, a row for each encoding."""
    titles = (
        "sentences told from shuffled words",
        "reviews, accuracy",
        "names, F1",
        f"bits per character, of {LENGTHS[0]} characters as in training",
        f"of {LENGTHS[-1]}",
        "a training step, over one without",
    )
    rows = [["encoding", *titles]]
    for encoding in ENCODINGS:
        told = [run["shuffled"] for run in of_runs(study, "order", encoding)]
        found = tasks_of(study, encoding)
        far = [bits_of(run, "as it is") for run in written(study, encoding)]
        far = [bits[LENGTHS[-1]] for bits in far if LENGTHS[-1] in bits]
        cells = [f"{statistics.mean(told):.0%}"]
        cells += [number_of(values) for values in (*found.values(), far)]
        rows.append([f"`{encoding}`", *cells, f"{study['cost'][encoding][1]:.2f}"])
    return table(rows) + f"\nMeans of {seeds_of(study)} seeds.\n" + source(study)


def order(study):
    """Return how many of the sentences are told from their likenesses."""
    rows = [["encoding", "words shuffled", "two neighbours swapped"]]
    for encoding in ENCODINGS:
        runs = of_runs(study, "order", encoding)
        told = [[run[kind] for run in runs] for kind in ("shuffled", "swapped")]
        rows.append([f"`{encoding}`", *map(mean, told)])
    none = of_runs(study, "order", "none")
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
        rows.append([f"`{encoding}`", *map(mean, tasks_of(study, encoding).values())])
    return table(rows) + end(study)


def tasks_of(study, encoding):
    """Return what each seed has on the three tasks, by the name of the task."""
    reviews = of_runs(study, "classification", encoding)
    names = of_runs(study, "names", encoding)
    return {
        "reviews": [run["accuracy"] for run in reviews],
        "names": [run["f1"] for run in names],
        "writing": [bits_of(run, "as it is")["64"] for run in written(study, encoding)],
    }


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
            for way in runs[0]["bits"]:
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


def of_runs(study, task, encoding, variant=None):
    """Return the runs of all seeds."""
    asked = {"task": task, "encoding": encoding, "variant": variant}
    return [
        run
        for run in study["runs"].values()
        if all(run.get(key) == value for key, value in asked.items())
    ]


def written(study, encoding, variant=None):
    return of_runs(study, "writing", encoding, variant)


def bits_of(run, way):
    return run["bits"][way]


def mean(values):
    """Return the mean, and in brackets the least and the most."""
    if not values:
        return ""
    least, most = number_of([min(values)]), number_of([max(values)])
    return f"{number_of(values)} ({least} to {most})"


def number_of(values):
    """Return the mean: of bits with two digits, of shares of 1 with three."""
    if not values:
        return ""
    middle = statistics.mean(values)
    return f"{middle:.{2 if middle > 1 else 3}f}"


def end(study):
    note = f"\nMeans of {seeds_of(study)} seeds, least and most in brackets.\n"
    return note + source(study)


def seeds_of(study):
    return len({run["seed"] for run in study["runs"].values()})


def whole(study):
    """Return the study with the runs asked for now alone, or raise ValueError."""
    runs = {name: study["runs"].get(name) for name in map(name_of, all_runs(False))}
    results = {**runs, "cost": study.get("cost")}
    if lacking := [name for name in results if not is_finite(results[name])]:
        raise ValueError(
            "A study must have the results of all its runs, as finite numbers: "
            f"`python -m benchmarks.study`. It lacks those of: {', '.join(lacking)}"
        )
    return {**study, "runs": runs}


def is_finite(result):
    """Return whether there is a result, without null and NaN at any depth."""
    if isinstance(result, dict):
        result = [*result.values()]
    if isinstance(result, (list, tuple)):
        return len(result) > 0 and all(map(is_finite, result))
    return isinstance(result, str) or (result is not None and math.isfinite(result))


def of_whole(made):
    """Return the function, of what is `whole` of a study."""
    return lambda study: made(whole(study))


TABLES = {
    made.__name__: of_whole(made)
    for made in (first, choice, order, tasks, length, cost)
}
