"""The mathematics, to look at: pictures of the encoding, drawn with matplotlib.

Needs the extra "plots", which is imported when a function is called, not before.
"""

import keras
import numpy as np

from keras_pe import analysis
from keras_pe.checks import check_float_dtype, check_layout, check_size
from keras_pe.functional import sinusoidal_encoding

# The colours of Okabe and Ito, which the colour-blind tell apart.
BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"
# From dark to bright in even steps, so that it is the same picture in grey.
COLORS = {"cmap": "cividis", "vmin": -1, "vmax": 1, "aspect": "auto"}
# Where rows are tried: at the start, and where float32 angles would be off.
ANCHORS = 0, 1000, 1_000_000
TRIED = 1000
# As many digits or columns have room for what is written on them.
WRITTEN = 16


def plot_encoding(
    positions, d_model, *, max_wavelength=10000.0, layout="interleaved", ax=None
):
    """Draw the rows of the encoding as a heat map, one row for each position.

    To see in it: the channels to the left turn within a few steps, each pair to the
    right of it more slowly, and the last hardly move. No two rows are the same. In
    the layout "halves" the sines and the cosines are two pictures side by side.

    >>> ax = plot_encoding(100, 128)
    >>> ax.get_ylabel(), ax.images[0].get_array().shape
    ('position', (100, 128))

    Args:
        positions: Integer of at least 1: that many positions, from 0. Or a list or
            array of one axis: the positions themselves, finite, in steps, drawn in
            their order, one below the other.
        d_model: Integer of at least 1: the number of channels.
        max_wavelength: Real number above 0, as in `PositionalEncoding`.
        layout: "interleaved" or "halves", as in `PositionalEncoding`.
        ax: The matplotlib `Axes` to draw in, of the projection "rectilinear", or None
            for those of a new figure.

    Returns:
        The matplotlib `Axes`, with one image: float32 `(positions, d_model)`.

    Raises:
        ValueError: for an argument that is not as above.
        ImportError: if matplotlib is not installed.

    References:
        Vaswani et al., 2017, "Attention Is All You Need", section 3.5.
    """
    positions = _check_positions(positions)
    layout = check_layout(layout)
    rows = _rows(positions, d_model, max_wavelength, layout)
    order = {
        "interleaved": "sine, cosine, sine, cosine ...",
        "halves": "all sines, then all cosines",
    }
    ax = _check_axes(ax)
    image = ax.imshow(rows, **COLORS)
    _whole_ticks(ax.xaxis, range(rows.shape[1]))
    _whole_ticks(ax.yaxis, positions)
    ax.set(title="What is added to the embeddings", ylabel="position")
    ax.set_xlabel(f"channel (d_model = {d_model}; {order[layout]})")
    ax.figure.colorbar(image, ax=ax, label="P[position, channel]")
    return ax


def plot_similarity(d_model, *, max_distance=100, max_wavelength=10000.0, ax=None):
    """Draw the product of two rows against their distance, measured and by formula.

    The points are products of rows in float32, of three positions far from each other;
    the curve is the sum of the cosines, `analysis.offset_similarity`. To see in it: the
    product depends on the distance alone, is largest at 0, and is the same before and
    after. It falls at first, and then waves: of two distances, the larger may well have
    the larger product.

    >>> ax = plot_similarity(128)
    >>> [line.get_label() for line in ax.lines[:3]]
    ['sum of the cosines', 'rows at p = 0', 'rows at p = 1,000']

    Args:
        d_model: Even integer of at least 2.
        max_distance: Integer of at least 1: the distances go from `-max_distance` to
            `max_distance`, in steps.
        max_wavelength: Real number above 0, as in `PositionalEncoding`.
        ax: The matplotlib `Axes` to draw in, of the projection "rectilinear", or None
            for those of a new figure.

    Returns:
        The matplotlib `Axes`. Its title has the largest difference of a product, at any
        of these distances, from the curve; not every product has its point.

    Raises:
        ValueError: for an argument that is not as above.
        ImportError: if matplotlib is not installed.

    References:
        Vaswani et al., 2017, "Attention Is All You Need", section 3.5.
    """
    max_distance = check_size("max_distance", max_distance)
    distances = np.arange(-max_distance, max_distance + 1)
    kwargs = {"max_wavelength": max_wavelength}
    formula = analysis.offset_similarity(distances, d_model, **kwargs)
    products = []
    for anchor in ANCHORS:
        rows = _rows(anchor + distances, d_model, max_wavelength).astype("float64")
        products.append(rows @ rows[max_distance])
    ax = _check_axes(ax)
    ax.plot(distances, formula, color="0.5", label="sum of the cosines")
    every = max(1, len(distances) // 45)
    looks = zip((BLUE, ORANGE, GREEN), "os^", strict=True)
    for place, (color, marker) in enumerate(looks):
        shown = slice(place * every, None, len(ANCHORS) * every)
        ax.plot(
            distances[shown],
            products[place][shown],
            marker,
            color=color,
            label=f"rows at p = {ANCHORS[place]:,}",
        )
    difference = np.abs(products - formula).max()
    ax.set_title(
        f"PE(p) . PE(p + k), d_model = {d_model}:\n"
        f"measured at most {difference:.1e} off the formula"
    )
    ax.set(xlabel="distance k, in steps", ylabel="product of the two rows")
    # With 0 in it: the product of far rows is a good part of the largest. Above is room
    # for the legend, which would hide points anywhere else.
    low, high = min(0, formula.min()), d_model / 2
    ax.set_ylim(low - 0.05 * (high - low), high + 0.4 * (high - low))
    ax.legend(loc="upper center", ncols=2, fontsize="small")
    return ax


def plot_shift(k, d_model, *, position=10, max_wavelength=10000.0, ax=None):
    """Draw a row, the row `k` steps on, and what the rotation makes of the first.

    The crosses are `analysis.shift_matrix(k, d_model) @ PE(position)`, the hollow
    points `PE(position + k)`. To see in it: each cross is in its point, so a model can
    find the row `k` steps away by one linear map, the same for every position. The fast
    channels to the left are anywhere after the shift, the slow ones hardly move.

    >>> ax = plot_shift(5, 32)
    >>> ax.get_xlabel()
    'channel (d_model = 32)'

    Args:
        k: Real number: the shift, in steps; also negative and fractional. From
            `-2**31 - position` to `2**31 - 1000 - position`, for int32 to hold all
            the positions.
        d_model: Even integer of at least 2.
        position: Integer of at least 0 and at most `2**31 - 1000`: the position p of
            the row that is drawn.
        max_wavelength: Real number above 0, as in `PositionalEncoding`.
        ax: The matplotlib `Axes` to draw in, of the projection "rectilinear", or None
            for those of a new figure.

    Returns:
        The matplotlib `Axes`. Its title has the largest error of any channel at this
        position and at the 999 after it, by the same matrix, from rows in float32.

    Raises:
        ValueError: for an argument that is not as above.
        ImportError: if matplotlib is not installed.

    References:
        Vaswani et al., 2017, "Attention Is All You Need", section 3.5.
    """
    matrix = analysis.shift_matrix(k, d_model, max_wavelength=max_wavelength)
    last = 2**31 - TRIED
    position = check_size("position", position, minimum=0, maximum=last)
    least, most = -(2**31) - position, last - position
    if not least <= float(np.asarray(k)) <= most:
        raise ValueError(
            f"`k` must be at least {least} and at most {most} where `position` is "
            f"{position}. Received: k={k!r}"
        )
    positions = position + np.arange(TRIED)
    rows = _rows(positions, d_model, max_wavelength)
    shifted = _rows(positions + np.asarray(k), d_model, max_wavelength)
    predicted = rows @ matrix.T
    ax = _check_axes(ax)
    channels = np.arange(d_model)
    ax.plot(channels, rows[0], ".", color="0.6", label="PE(p)")
    for name, first, color, marker in (
        ("sines", 0, BLUE, "o"),
        ("cosines", 1, ORANGE, "s"),
    ):
        looks = {"color": color, "marker": marker, "markersize": 8}
        ax.plot(
            channels[first::2],
            shifted[0, first::2],
            **looks,
            fillstyle="none",
            linestyle="none",
            label=f"PE(p + k), {name}",
        )
    looks = {"color": ax.title.get_color(), "markersize": 4}
    ax.plot(channels, predicted[0], "x", **looks, label="matrix @ PE(p)")
    error = np.abs(predicted - shifted).max()
    ax.set_title(
        f"PE(p + k) from PE(p), p = {position}, k = {k}:\n"
        f"at most {error:.1e} off, at p and the {TRIED - 1} after it"
    )
    ax.set(xlabel=f"channel (d_model = {d_model})", xlim=(-0.5, d_model - 0.5))
    # Room for the legend, which would hide channels anywhere else.
    ax.set(ylabel="value", ylim=(-1.15, 2.1), yticks=np.linspace(-1, 1, 5))
    _whole_ticks(ax.xaxis, channels)
    ax.legend(loc="upper center", ncols=2, fontsize="small")
    return ax


def plot_digits(positions=16, d_model=8, *, max_wavelength=16.0, ax=None):
    """Draw the binary digits of a counter beside the sines and cosines.

    To see in it: each digit has a period of its own, and so has each pair of channels;
    by all of them together a position is known. Digits are read from the right, where
    they change with each step; channels from the left. From 7 to 8 four digits jump,
    where each pair of channels turns on by as much as at any other step.

    >>> ax = plot_digits()
    >>> [label.get_text() for label in ax.get_xticklabels()]
    ['1', '2', '4', '8', '0', '1', '2', '3', '4', '5', '6', '7']

    Args:
        positions: Integer of at least 1: that many positions, from 0.
        d_model: Integer of at least 1: the number of channels.
        max_wavelength: Real number above 0, as in `PositionalEncoding`. Each pair of
            channels turns `max_wavelength ** (2 / d_model)` times as slowly as the one
            before it: twice with both defaults, as digits do. With the 10000 of the
            encoding 8 channels turn as decimal digits do, ten times as slowly each,
            and most of them hardly move in 16 steps.
        ax: The matplotlib `Axes` to draw in, of the projection "rectilinear", or None
            for those of a new figure.

    Returns:
        The matplotlib `Axes`, with one image: the digits, 0 as -1, to the left of an
        empty column, the channels to its right.

    Raises:
        ValueError: for an argument that is not as above.
        ImportError: if matplotlib is not installed.

    References:
        Vaswani et al., 2017, "Attention Is All You Need", section 3.5.
    """
    counted = np.arange(check_size("positions", positions))
    rows = _rows(counted, d_model, max_wavelength)
    places = np.arange(max(1, int(counted[-1]).bit_length()))[::-1]
    digits = counted[:, None] >> places & 1
    gap = np.full((len(counted), 1), np.nan)
    columns = np.hstack([2 * digits - 1, gap, rows])
    ax = _check_axes(ax)
    image = ax.imshow(columns, **COLORS)
    if len(columns) <= WRITTEN:
        for (row, column), digit in np.ndenumerate(digits):
            color = "black" if digit else "white"
            looks = {"ha": "center", "va": "center", "fontsize": "small"}
            ax.text(column, row, f"{digit}", color=color, **looks)
    every = 1 + columns.shape[1] // WRITTEN
    first = len(places) + 1
    last_digits = range(len(places) - 1, -1, -every)
    channels = range(0, d_model, every)
    ax.set_xticks(
        [*last_digits, *(first + channel for channel in channels)],
        [*(f"{2 ** places[digit]}" for digit in last_digits), *channels],
    )
    _whole_ticks(ax.yaxis, counted)
    ax.set_title("A counter and the encoding", pad=20)
    for text, middle in (
        ("digits", (len(places) - 1) / 2),
        (f"channels, d_model = {d_model}", first + (d_model - 1) / 2),
    ):
        over = {"transform": ax.get_xaxis_transform(), "ha": "center", "va": "bottom"}
        ax.text(middle, 1.01, text, **over)
    ax.set(xlabel="worth of the digit; number of the channel", ylabel="position")
    ax.figure.colorbar(image, ax=ax, label="value (digit 0: -1)")
    return ax


def plot_wavelengths(
    d_model, *, length, dtype="float32", max_wavelength=10000.0, ax=None
):
    """Draw which distances each pair of channels tells apart in `length` positions.

    A pair is a hand on a clock: from its wavelength on (`analysis.wavelengths`) it
    repeats, and below the longest run of positions that are the same in `dtype`
    (`analysis.longest_runs`) it is blurred. In between it tells positions apart by
    itself. To see in it: the pairs to the left tell neighbours apart and repeat, those
    to the right span the length; what one lacks another has, as the digits of a number
    do. Where a half type blurs the pairs to the right, that is what is lost. Pairs far
    above the length turn by a small part of a turn, and are nearly constant.

    >>> ax = plot_wavelengths(128, length=512, dtype="bfloat16")
    >>> print(ax.get_title())
    6 of 64 pairs alone tell apart
    all 512 positions in bfloat16

    Args:
        d_model: Even integer of at least 2.
        length: Integer of at least 1: the positions are 0 to `length - 1`.
        dtype: "float16", "bfloat16", "float32" or "float64": what the numbers are
            rounded to.
        max_wavelength: Real number above 0, as in `PositionalEncoding`.
        ax: The matplotlib `Axes` to draw in, of the projection "rectilinear", or None
            for those of a new figure.

    Returns:
        The matplotlib `Axes`. Its title says how many pairs neither repeat nor are
        blurred, its legend how many do and are.

    Raises:
        ValueError: for an argument that is not as above.
        ImportError: if matplotlib is not installed.

    References:
        Vaswani et al., 2017, "Attention Is All You Need", section 3.5.
    """
    length = check_size("length", length)
    dtype = check_float_dtype("dtype", dtype)
    kwargs = {"max_wavelength": max_wavelength}
    runs = analysis.longest_runs(length, d_model, dtype=dtype, **kwargs)
    turns = analysis.wavelengths(d_model, **kwargs)
    repeat, blurred = turns < length, runs > 1
    pairs, count = np.arange(len(runs)), len(runs)
    ax = _check_axes(ax)
    told = "distances that a pair alone tells apart"
    ax.fill_between(pairs, runs, turns, color="0.5", alpha=0.25, label=told)
    looks = {"markevery": 1 + count // WRITTEN, "markersize": 5}
    repeats = f"wavelength: {repeat.sum()} of {count} pairs repeat"
    ax.plot(pairs, turns, "o-", color=BLUE, label=repeats, **looks)
    ink = ax.title.get_color()
    steps = "1 step" if length == 1 else f"{length:,} steps"
    ax.axhline(length, color=ink, linestyle="--", label=f"length: {steps}")
    blurs = f"longest run: {blurred.sum()} of {count} pairs are blurred"
    ax.plot(pairs, runs, "s-", color=ORANGE, label=blurs, **looks)
    which = "the only position" if length == 1 else f"all {length:,} positions"
    ax.set_title(
        f"{(~repeat & ~blurred).sum()} of {count} pairs alone tell apart\n"
        f"{which} in {dtype}"
    )
    ax.set(xlabel=f"pair of channels (d_model = {d_model})", xlim=(-0.5, count - 0.5))
    _whole_ticks(ax.xaxis, pairs)
    # Room for the legend, which would hide pairs anywhere else.
    ax.set(yscale="log", ylabel="steps")
    ax.set_ylim(0.6 * min(1, turns.min()), 300 * max(length, turns.max()))
    ax.legend(loc="upper left", fontsize="small")
    return ax


def _rows(positions, d_model, max_wavelength, layout="interleaved"):
    """Return the rows that the layer adds in float32, as a NumPy array."""
    kwargs = {"max_wavelength": max_wavelength, "layout": layout, "dtype": "float32"}
    return keras.ops.convert_to_numpy(sinusoidal_encoding(positions, d_model, **kwargs))


def _check_positions(value):
    """Return positions `(time,)`: `value`, or as many from 0, or raise ValueError."""
    try:
        positions = np.asarray(value)
    except ValueError:  # rows of several lengths
        positions = np.asarray(None)
    if positions.ndim == 0 and positions.dtype.kind in "iu" and positions > 0:
        return np.arange(positions)
    numbers = positions.ndim == 1 and positions.size and positions.dtype.kind in "iuf"
    if not numbers or not np.isfinite(positions).all():
        raise ValueError(
            "`positions` must be an integer of at least 1, or finite positions in a "
            f"list or array of one axis. Received: positions={value!r}"
        )
    return positions


def _check_axes(ax):
    """Return `ax`, or those of a new figure, or raise ValueError or ImportError."""
    try:
        from matplotlib import pyplot
        from matplotlib.axes import Axes
    except ImportError as error:
        raise ImportError(
            "keras_pe.plots needs matplotlib, of the extra `plots`: "
            "`pip install 'matplotlib>=3.8'`."
        ) from error
    if ax is None:
        return pyplot.subplots(figsize=(8, 3.6), layout="constrained")[1]
    if not isinstance(ax, Axes) or ax.name != "rectilinear" or ax.figure is None:
        raise ValueError(
            '`ax` must be the Axes of matplotlib, one of them, "rectilinear" and in a '
            f"figure. Received: ax={ax!r}"
        )
    return ax


def _whole_ticks(axis, names):
    """Have ticks at whole places alone, and write what is `names` of each."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    def name(place, _):
        row = round(place)
        return f"{names[row]:.10g}" if 0 <= row < len(names) else ""

    axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axis.set_major_formatter(FuncFormatter(name))
