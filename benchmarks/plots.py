"""The plots of docs/performance.md, from the results of the benchmark."""

from benchmarks.readings import growth, matches, name_of

STYLES = {
    # The colours of Okabe and Ito, which the colour-blind tell apart, and a marker.
    "floor": ("ready table", "#000000", "_"),
    "unlimited": ("PositionalEncoding()", "#0072B2", "o"),
    "bounded": ("PositionalEncoding(max_length=...)", "#56B4E9", "s"),
    "pasted": ("pasted recipe", "#009E73", "^"),
    "keras-hub": ("keras-hub", "#D55E00", "D"),
    "positional-encodings": ("positional-encodings", "#CC79A7", "v"),
    "nothing": ("the call alone", "#888888", "x"),
}
MODES = ("graph", "XLA")


def draw(result, folder):
    for name, plot in {"performance": ratios, "growth": times}.items():
        # No version of matplotlib in the file: the same numbers give the same bytes.
        path = folder / f"{name}.png"
        plot(result).savefig(path, dpi=120, metadata={"Software": None})
        print(f"wrote {path.name}")


def ratios(result):
    """Return a figure of time over the ready table's, by shape."""
    figure, panels = two_panels()
    for axes, mode in zip(panels, MODES, strict=True):
        cases = [case for case in result["times"] if is_shown(case, mode)]
        axes.set_xticks(range(len(cases)), [shape_label(case) for case in cases])
        axes.axhline(1, color="black", linewidth=1)
        for place, name in enumerate(("unlimited", "bounded", "pasted", "keras-hub")):
            at = [row + 0.16 * (place - 1.5) for row in range(len(cases))]
            draw_ratios(axes, name, at, cases)
        for row in range(1, len(cases)):
            axes.axvline(row - 0.5, color="0.85", linewidth=1)
        axes.set(title=f"{mode}, length unknown, start 0", yscale="log")
        axes.set_xlabel("shape: batch x time x channels")
        plain_numbers(axes, [0.5, 1, 2, 5, 10, 20, 50])
    panels[0].set_ylabel("time over adding a ready table")
    return with_legend(figure, panels[0])


def draw_ratios(axes, name, at, cases):
    """Draw the medians of a candidate, with bars from quartile to quartile."""
    title, color, marker = STYLES[name]
    found = [case["candidates"].get(name, {}).get("ratio") for case in cases]
    points = [(x, *ratio) for x, ratio in zip(at, found, strict=True) if ratio]
    if not points:
        return
    xs, lows, middles, highs = zip(*points, strict=True)
    below = [m - low for m, low in zip(middles, lows, strict=True)]
    above = [high - m for m, high in zip(middles, highs, strict=True)]
    looks = {"color": color, "marker": marker, "markersize": 6, "linestyle": "none"}
    axes.errorbar(xs, middles, [below, above], label=title, capsize=2, **looks)


def times(result):
    """Return a figure of time against length."""
    figure, panels = two_panels()
    for axes, mode in zip(panels, MODES, strict=True):
        for name, (title, color, marker) in STYLES.items():
            lengths, taken = growth(result, name, mode)
            if lengths:
                line = "--" if name in ("floor", "nothing") else "-"
                looks = {"color": color, "marker": marker, "linestyle": line}
                axes.plot(lengths, taken, label=title, markersize=5, **looks)
        axes.set(title=f"{mode}, length unknown, 1 x time x 128")
        axes.set(xscale="log", yscale="log", xlabel="time, in steps")
        ticks = [2**power for power in range(10, 18)]
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks], rotation=35)
        axes.minorticks_off()
        plain_numbers(axes, [0.1, 1, 10, 100, 1000])
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("milliseconds a call")
    return with_legend(figure, panels[0])


def two_panels():
    figure = new_figure()
    return figure, figure.subplots(1, 2, sharey=True)


def new_figure(width=11):
    # Matplotlib is for who draws: the tables are written without it.
    from matplotlib.figure import Figure

    return Figure(figsize=(width, 4.8), layout="constrained")


def with_legend(figure, *panels):
    found = {}
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
    looks = {"loc": "outside lower center", "ncols": 4, "frameon": False}
    looks["handlelength"] = 3.5  # for the kinds of dashes
    figure.legend(found.values(), found.keys(), **looks)
    return figure


def is_shown(case, mode):
    where = {"backend": "tensorflow", "dtype": "float32", "length": "unknown"}
    return matches(case, {**where, "mode": mode, "start": "zero"})


def shape_label(case):
    return name_of(case["shape"]).replace(" x ", " x\n")


def plain_numbers(axes, ticks):
    low, high = axes.get_ylim()
    shown = [tick for tick in ticks if low <= tick <= high]
    axes.set_yticks(shown, [f"{tick:g}" for tick in shown])
    axes.set_ylim(low, high)
    axes.minorticks_off()
    axes.grid(axis="y", alpha=0.3)
