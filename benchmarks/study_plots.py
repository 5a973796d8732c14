"""The plots of docs/study.md, from the results of the study: one for each question."""

import math
import statistics

from benchmarks.plots import new_figure, two_panels, with_legend
from benchmarks.study_tables import (
    ENCODINGS,
    LENGTHS,
    lengths,
    of_runs,
    tasks_of,
    whole,
)

# The colours of Okabe and Ito, which the colour-blind tell apart, and a marker.
STYLES = {
    "sinusoidal": ("#0072B2", "o"),
    "learned": ("#56B4E9", "s"),
    "rotary": ("#D55E00", "D"),
    "alibi": ("#009E73", "^"),
    "relative": ("#CC79A7", "v"),
    "none": ("#000000", "x"),
}
CORRUPT = {"shuffled": "all words shuffled", "swapped": "two neighbours swapped"}
# What is better there.
MORE, LESS = "higher is better", "lower is better"


def draw(study, folder):
    study = whole(study)
    for plot in (order, tasks, length, cost):
        # No version of matplotlib in the file: the same numbers give the same bytes.
        path = folder / f"study-{plot.__name__}.png"
        plot(study).savefig(path, dpi=120, metadata={"Software": None})
        print(f"wrote {path.name}")


def order(study):
    """Return a figure of how many sentences are told from their likenesses."""
    figure, panels = two_panels()
    for axes, (corrupt, title) in zip(panels, CORRUPT.items(), strict=True):
        for place, encoding in enumerate(ENCODINGS):
            runs = of_runs(study, "order", encoding)
            seeds(axes, place, encoding, [100 * run[corrupt] for run in runs])
        name_encodings(axes)
        axes.axhline(50, color="black", linewidth=1, linestyle="--")
        axes.set_title(title)
    panels[0].set_ylabel("pairs told apart, percent (dashed: chance)")
    return figure


def tasks(study):
    """Return a figure of the results of the three tasks, a point for each seed."""
    figure = new_figure()
    panels = figure.subplots(1, 3)
    titles = {
        "reviews": ("reviews", f"accuracy: {MORE}"),
        "names": ("names", f"F1: {MORE}"),
        "writing": ("writing", f"bits per character: {LESS}"),
    }
    for axes, (task, (title, label)) in zip(panels, titles.items(), strict=True):
        for place, encoding in enumerate(ENCODINGS):
            seeds(axes, place, encoding, tasks_of(study, encoding)[task])
        name_encodings(axes)
        axes.set(title=title, ylabel=label)
    return figure


def length(study):
    """Return a figure of bits per character against length."""
    figure, panels = two_panels()
    looks = iter(["--", ":", "-."] * 2)
    for title, runs in lengths(study):
        encoding, *ways = title.replace("`", "").split(", ", 1)
        color, marker = STYLES[encoding]
        shown = [panels[0]] if not ways else [panels[1]]
        if encoding == "sinusoidal" and not ways:
            shown = panels
        line = next(looks) if ways else "-"
        known = [n for n in LENGTHS if all(n in bits for bits in runs)]
        values = [[bits[n] for bits in runs] for n in known]
        at = [math.log2(int(n)) for n in known]
        for axes in shown:
            drawn = {"color": color, "marker": marker, "linestyle": line}
            if len(at) == 1:  # a ring around the points of others
                drawn |= {"markersize": 14, "fillstyle": "none"}
            label = title.replace("`", "")
            axes.plot(at, list(map(statistics.mean, values)), label=label, **drawn)
            low, high = list(map(min, values)), list(map(max, values))
            axes.fill_between(at, low, high, color=color, alpha=0.15, linewidth=0)
    for axes, title in zip(panels, ("as they are", "with a remedy"), strict=True):
        axes.set_xticks([math.log2(int(n)) for n in LENGTHS], LENGTHS)
        axes.set(title=title, xlabel="characters of a text (trained on 64)")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel(f"bits per character: {LESS}")
    return with_legend(figure, *panels)


def cost(study):
    """Return a figure of the result of each encoding against its training time."""
    figure = new_figure(width=6.5)
    axes = figure.subplots()
    for encoding in ENCODINGS:
        color, marker = STYLES[encoding]
        low, middle, high = study["cost"][encoding]
        found = tasks_of(study, encoding)["names"]
        mean = statistics.mean(found)
        looks = {"color": color, "marker": marker, "linestyle": "none", "capsize": 2}
        axes.errorbar(
            [middle],
            [mean],
            xerr=[[middle - low], [high - middle]],
            yerr=[[mean - min(found)], [max(found) - mean]],
            label=encoding,
            **looks,
        )
    axes.set_xlabel("a training step, over one without positions")
    axes.set_ylabel(f"F1 of names: {MORE}")
    axes.grid(alpha=0.3)
    return with_legend(figure, axes)


def seeds(axes, place, encoding, values):
    """Draw a point for each seed, and a line at their mean."""
    color, marker = STYLES[encoding]
    at = [place + 0.15 * (i - (len(values) - 1) / 2) for i in range(len(values))]
    axes.plot(at, values, color=color, marker=marker, linestyle="none")
    mean = statistics.mean(values)
    axes.plot([place - 0.3, place + 0.3], [mean, mean], color=color, linewidth=1)


def name_encodings(axes):
    axes.set_xticks(range(len(ENCODINGS)), ENCODINGS, rotation=30)
    axes.grid(axis="y", alpha=0.3)
