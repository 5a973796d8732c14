"""Pictures of the mathematics: what is drawn is true, and labelled."""

import math
import re

import keras
import numpy as np
import processes
import pytest
from matplotlib import colormaps, pyplot
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from oracle import exact_rows

import keras_pe
from keras_pe import analysis, plots

PLOTS = {
    "encoding": lambda **kwargs: plots.plot_encoding(5, 6, **kwargs),
    "similarity": lambda **kwargs: plots.plot_similarity(6, **kwargs),
    "shift": lambda **kwargs: plots.plot_shift(3, 6, **kwargs),
    "digits": lambda **kwargs: plots.plot_digits(**kwargs),
    "wavelengths": lambda **kwargs: plots.plot_wavelengths(6, length=9, **kwargs),
}
each_plot = pytest.mark.parametrize("draw", PLOTS.values(), ids=PLOTS)


@pytest.fixture(autouse=True)
def no_figure_before_or_after():
    assert not pyplot.get_fignums()
    yield
    pyplot.close("all")


@pytest.fixture
def ax():
    return Figure().subplots()


def line(ax, label):
    """Return the points of the line with this label, up to a colon, as float64."""
    (found,) = (it for it in ax.lines if it.get_label().partition(":")[0] == label)
    return np.asarray(found.get_xdata()), np.asarray(found.get_ydata(), "float64")


def image(ax):
    (found,) = ax.images
    return np.ma.filled(found.get_array().astype("float64"), np.nan)


def ticks(axis):
    """Return the labels that are drawn, by their places."""
    axis.figure.draw_without_rendering()
    low, high = sorted(axis.get_view_interval())
    labels = (label.get_text() for label in axis.get_ticklabels())
    pairs = sorted(zip(axis.get_ticklocs(), labels, strict=True))
    return {place: label for place, label in pairs if low <= place <= high and label}


def number_in(text):
    """Return the number that a title has as 1.2e-07."""
    (found,) = re.findall(r"\d\.\de[-+]\d+", text)
    return float(found)


@each_plot
def test_axes_are_labelled(draw, ax):
    assert draw(ax=ax) is ax
    assert ax.get_title() and ax.get_xlabel() and ax.get_ylabel()
    labels = [ax.get_xlabel(), ax.get_ylabel()]
    units = ("step", "position", "channel", "product", "value", "digit")
    assert all(any(unit in label for unit in units) for label in labels)
    for drawn in ax.images:
        assert drawn.colorbar.ax.get_ylabel()
    assert bool(ax.get_legend()) == bool(ax.lines)


@each_plot
def test_a_figure_is_made_where_there_are_no_axes(draw, ax):
    draw(ax=ax)
    assert not pyplot.get_fignums()
    made = draw()
    assert [pyplot.gcf()] == [made.figure]
    assert len(pyplot.get_fignums()) == 1
    assert made.figure.get_layout_engine()


@each_plot
@pytest.mark.parametrize("ax", [1, "ax", Figure(), Figure().subplots(2)])
def test_what_are_no_axes_is_refused(draw, ax):
    with pytest.raises(ValueError, match=r"(?s)`ax` must be .* Received: ax="):
        draw(ax=ax)


@each_plot
@pytest.mark.parametrize("projection", ["3d", "polar", "mollweide"])
def test_axes_of_another_projection_are_refused_undrawn(draw, projection):
    ax = Figure().add_subplot(projection=projection)
    drawn = len(ax.get_children())
    with pytest.raises(ValueError, match=r'"rectilinear" .* Received: ax=<'):
        draw(ax=ax)
    assert len(ax.get_children()) == drawn


@each_plot
def test_axes_that_were_removed_are_refused(draw, ax):
    ax.remove()
    with pytest.raises(ValueError, match=r"in a figure\. Received: ax=<"):
        draw(ax=ax)


@each_plot
@pytest.mark.parametrize("size", [(8, 3.6), (5, 3.2)])
def test_nothing_is_cut_or_lies_on_the_lines(draw, size):
    figure = Figure(size, layout="constrained")
    ax = draw(ax=figure.subplots())
    figure.draw_without_rendering()
    inner = figure.get_tightbbox()
    assert inner.x0 >= 0 and inner.y0 >= 0
    assert inner.x1 <= size[0] and inner.y1 <= size[1]
    if legend := ax.get_legend():
        box = legend.get_window_extent()
        points = [ax.transData.transform(it.get_xydata()) for it in ax.lines[:2]]
        assert not box.count_contains(np.concatenate(points))


def test_every_look_survives_without_colour(ax):
    lightness = colormaps["cividis"](np.linspace(0, 1, 256))[:, :3] @ [0.3, 0.59, 0.11]
    assert (np.diff(lightness) > -0.003).all()
    for name in ("encoding", "digits"):
        drawn = PLOTS[name](ax=Figure().subplots()).images[0]
        assert drawn.get_cmap().name == "cividis"
        assert drawn.get_clim() == (-1, 1)
    for name in ("similarity", "shift", "wavelengths"):
        lines = PLOTS[name](ax=Figure().subplots()).lines
        looks = {(it.get_marker(), it.get_linestyle()) for it in lines}
        assert len(looks) == len(lines)
        assert len({to_rgb(it.get_color()) for it in lines}) >= 3


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
@pytest.mark.parametrize("d_model", [1, 6, 7])
@pytest.mark.parametrize(
    "positions", [4, np.int64(1), [0, 2.5, -3], np.array([7]), (100000, 5)], ids=repr
)
def test_encoding(ax, positions, d_model, layout):
    kwargs = {"max_wavelength": 50.0, "layout": layout}
    plots.plot_encoding(positions, d_model, **kwargs, ax=ax)
    counted = range(positions) if np.ndim(positions) == 0 else positions
    wanted = exact_rows(list(counted), d_model, **kwargs)
    np.testing.assert_allclose(image(ax), wanted, rtol=0, atol=3e-7)
    assert f"d_model = {d_model}" in ax.get_xlabel()
    assert ("all sines" in ax.get_xlabel()) == (layout == "halves")


def test_encoding_names_its_rows_by_their_positions(ax):
    plots.plot_encoding([0, 2.5, 1000000, -7], 3, ax=ax)
    assert ticks(ax.yaxis) == {0: "0", 1: "2.5", 2: "1000000", 3: "-7"}
    assert ticks(ax.xaxis) == {0: "0", 1: "1", 2: "2"}
    # What a window shows of the place of the mouse: the row that is there.
    assert [ax.format_ydata(place) for place in (-0.4, 0.6, 3.4)] == ["0", "2.5", "-7"]


def test_encoding_takes_the_wavelength_and_layout_of_the_layer(ax):
    plots.plot_encoding(3, 4, ax=ax)
    np.testing.assert_allclose(image(ax), exact_rows(range(3), 4), atol=3e-7)


@pytest.mark.parametrize(
    "positions",
    [0, -1, 2.5, True, None, "8", [], [[0]], [[0], [1, 2]], ["a"], [True], [1j]],
    ids=repr,
)
def test_positions_that_are_none_are_refused(positions):
    match = r"`positions` must be an integer of at least 1, .* Received: positions="
    with pytest.raises(ValueError, match=match):
        plots.plot_encoding(positions, 4)
    assert not pyplot.get_fignums()


@pytest.mark.parametrize("max_distance", [1, 7, 200])
@pytest.mark.parametrize("d_model", [2, 10])
def test_similarity(ax, d_model, max_distance):
    kwargs = {"max_wavelength": 50.0}
    plots.plot_similarity(d_model, max_distance=max_distance, **kwargs, ax=ax)
    distances, curve = line(ax, "sum of the cosines")
    assert distances.tolist() == list(range(-max_distance, max_distance + 1))
    origin = exact_rows([0], d_model, **kwargs)[0]
    wanted = exact_rows(distances, d_model, **kwargs) @ origin
    np.testing.assert_allclose(curve, wanted, rtol=0, atol=1e-12)
    shown = set()
    for anchor in (0, 1000, 1_000_000):
        offsets, products = line(ax, f"rows at p = {anchor:,}")
        wanted = exact_rows(offsets, d_model, **kwargs) @ origin
        error = np.abs(products - wanted).max()
        assert 0 < error < d_model * 3e-7, f"measured {error}"
        assert not shown & set(offsets)
        shown |= set(offsets)
    assert len(shown) == min(2 * max_distance + 1, len(shown))
    assert 3 <= len(shown) <= 90
    low, high = ax.get_ylim()
    assert low <= min(0, curve.min()) and high > curve.max()
    assert f"d_model = {d_model}" in ax.get_title()


def test_similarity_says_how_far_off_it_is_at_every_distance(ax, monkeypatch):
    found = []
    for anchor in (0, 1000, 1_000_000):
        rows = keras_pe.sinusoidal_encoding(range(anchor - 9, anchor + 10), 6)
        rows = np.asarray(keras.ops.convert_to_numpy(rows), "float64")
        for k in range(-9, 10):
            product = rows[9] @ rows[9 + k]
            found.append(product - analysis.offset_similarity(k, 6))
    plots.plot_similarity(6, max_distance=9, ax=ax)
    wanted = np.abs(found).max()
    assert number_in(ax.get_title()) == pytest.approx(wanted, rel=0.06)

    monkeypatch.setattr(analysis, "offset_similarity", lambda k, *_, **__: 0.0 * k)
    plots.plot_similarity(6, max_distance=9, ax=(off := Figure().subplots()))
    assert number_in(off.get_title()) == pytest.approx(3)


@pytest.mark.parametrize("position", [0, 10, 123456])
@pytest.mark.parametrize("k", [0, 5, -7, 2.5, np.float32(0.25)])
def test_shift(ax, k, position):
    kwargs = {"max_wavelength": 50.0}
    plots.plot_shift(k, 6, position=position, **kwargs, ax=ax)
    before, after = exact_rows([position, position + float(k)], 6, **kwargs)
    for label, channels, wanted in (
        ("PE(p)", slice(None), before),
        ("PE(p + k), sines", slice(0, None, 2), after),
        ("PE(p + k), cosines", slice(1, None, 2), after),
        ("matrix @ PE(p)", slice(None), after),
    ):
        places, values = line(ax, label)
        assert places.tolist() == list(range(6))[channels]
        np.testing.assert_allclose(values, wanted[channels], rtol=0, atol=6e-7)
    assert f"p = {position}, k = {k}:" in ax.get_title()
    assert number_in(ax.get_title()) < 8e-7


@pytest.mark.parametrize(
    ("k", "position"),
    [
        (0, 2**31 - 1000),
        (-(2**31), 0),
        (-(2.0**32) + 1000, 2**31 - 1000),
        (2**31 - 1010, np.array(10)),
    ],
)
def test_shift_goes_to_the_ends_of_int32(ax, k, position):
    plots.plot_shift(k, 6, position=position, ax=ax)
    assert number_in(ax.get_title()) < 8e-7


def test_shift_says_how_far_off_it_is_at_1000_positions(ax, monkeypatch):
    rows = keras_pe.sinusoidal_encoding(range(10, 1015), 4)
    rows = np.asarray(keras.ops.convert_to_numpy(rows), "float64")
    errors = rows[:1000] @ analysis.shift_matrix(5, 4).T - rows[5:]
    plots.plot_shift(5, 4, ax=ax)
    wanted = np.abs(errors).max()
    assert number_in(ax.get_title()) == pytest.approx(wanted, rel=0.06)
    assert "p and the 999 after" in ax.get_title()

    monkeypatch.setattr(analysis, "shift_matrix", lambda *_, **__: np.zeros((4, 4)))
    plots.plot_shift(5, 4, ax=(off := Figure().subplots()))
    assert number_in(off.get_title()) == pytest.approx(1)


def test_shift_shows_every_channel_below_its_legend(ax):
    plots.plot_shift(5, 8, ax=ax)
    low, high = ax.get_ylim()
    assert low < -1 and high > 1.5
    assert ax.get_yticks().tolist() == [-1, -0.5, 0, 0.5, 1]


@pytest.mark.parametrize("positions", [1, 2, 3, 16, 17])
@pytest.mark.parametrize("d_model", [1, 4, 5])
def test_digits(ax, positions, d_model):
    plots.plot_digits(positions, d_model, max_wavelength=50.0, ax=ax)
    width = max(1, math.ceil(math.log2(positions)))
    rows = exact_rows(range(positions), d_model, max_wavelength=50.0)
    drawn = image(ax)
    assert drawn.shape == (positions, width + 1 + d_model)
    for position, columns in enumerate(drawn):
        text = "".join("01"[int(value > 0)] for value in columns[:width])
        assert text == f"{position:0{width}b}"
        assert set(columns[:width]) <= {-1, 1}
    assert np.isnan(drawn[:, width]).all()
    np.testing.assert_allclose(drawn[:, width + 1 :], rows, rtol=0, atol=3e-7)


def test_digits_are_the_table_of_a_counter(ax):
    plots.plot_digits(ax=ax)
    cells = {it.get_position(): it.get_text() for it in ax.texts[: 16 * 4]}
    for position in range(16):
        written = "".join(cells[column, position] for column in range(4))
        assert written == f"{position:04b}"
    wanted = [*"8421", *"01234567"]
    assert list(ticks(ax.xaxis).values()) == wanted
    assert [it.get_text() for it in ax.texts[64:]] == [
        "digits",
        "channels, d_model = 8",
    ]
    # Each pair turns half as fast as the one before.
    rows = exact_rows(range(16), 8, max_wavelength=16.0)
    np.testing.assert_allclose(image(ax)[:, 5:], rows, atol=3e-7)


def test_many_digits_are_not_written_on_each_other(ax):
    plots.plot_digits(64, 32, ax=ax)
    assert [it.get_text() for it in ax.texts] == ["digits", "channels, d_model = 32"]
    labels = ticks(ax.xaxis)
    assert [labels[place] for place in (2, 5, 7, 10)] == ["8", "1", "0", "3"]
    assert len(labels) == 2 + 11


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
@pytest.mark.parametrize("length", [1, np.array(60), 3000], ids=str)
@pytest.mark.parametrize("d_model", [2, 40])
def test_wavelengths(ax, d_model, length, dtype):
    kwargs = {"max_wavelength": 5000.0}
    plots.plot_wavelengths(d_model, length=length, dtype=dtype, **kwargs, ax=ax)
    count = d_model // 2
    turns = [math.tau * 5000 ** (2 * pair / d_model) for pair in range(count)]
    runs = analysis.longest_runs(length, d_model, dtype=dtype, **kwargs)
    places, values = line(ax, "wavelength")
    assert places.tolist() == list(range(count))
    np.testing.assert_allclose(values, turns, rtol=1e-12)
    np.testing.assert_array_equal(line(ax, "longest run")[1], runs)
    assert set(line(ax, "length")[1]) == {int(length)}
    repeat = {pair for pair in range(count) if turns[pair] < length}
    blurred = {pair for pair in range(count) if runs[pair] > 1}
    labels = [it.get_text() for it in ax.get_legend().get_texts()]
    assert f"wavelength: {len(repeat)} of {count} pairs repeat" in labels
    assert f"longest run: {len(blurred)} of {count} pairs are blurred" in labels
    alone = count - len(repeat | blurred)
    told = f"all {int(length):,} positions" if length > 1 else "the only position"
    wanted = f"{alone} of {count} pairs alone tell apart\n{told} in {dtype}"
    assert ax.get_title() == wanted
    assert ax.get_yscale() == "log"
    low, high = ax.get_ylim()
    assert low < 1 and high > 10 * max(length, *turns)


def test_what_is_black_is_white_on_black():
    with pyplot.style.context("dark_background"):
        shift, turns = plots.plot_shift(5, 8), plots.plot_wavelengths(8, length=9)
    for ax, label in ((shift, "matrix @ PE(p)"), (turns, "length")):
        (drawn,) = (it for it in ax.lines if it.get_label().startswith(label))
        assert to_rgb(drawn.get_color()) == (1, 1, 1)


def test_wavelengths_of_one_position_are_of_one(ax):
    plots.plot_wavelengths(8, length=1, ax=ax)
    assert ax.get_title().endswith("\nthe only position in float32")
    assert "length: 1 step" in [it.get_text() for it in ax.get_legend().get_texts()]


def test_wavelengths_below_a_step_are_in_the_picture(ax):
    plots.plot_wavelengths(40, length=9, max_wavelength=1e-6, ax=ax)
    assert ax.get_ylim()[0] < line(ax, "wavelength")[1].min()


@pytest.mark.parametrize(
    ("draw", "match"),
    [
        (lambda: plots.plot_encoding(3, 0), "`d_model` .* d_model=0"),
        (lambda: plots.plot_encoding(3, 4, layout="x"), "`layout` .* layout='x'"),
        (
            lambda: plots.plot_encoding(3, 4, max_wavelength=0),
            "`max_wavelength` .* max_wavelength=0",
        ),
        (lambda: plots.plot_encoding([0, math.nan], 4), "`positions` .*finite.* nan"),
        (lambda: plots.plot_encoding([-math.inf], 4), "`positions` .*finite.*=.-inf"),
        (lambda: plots.plot_encoding([2**31], 4), "`positions` .*2147483648"),
        (lambda: plots.plot_similarity(3), "`d_model` must be even.* d_model=3"),
        (
            lambda: plots.plot_similarity(4, max_distance=0),
            "`max_distance` .* at least 1. Received: max_distance=0",
        ),
        (lambda: plots.plot_shift(1, 3), "`d_model` must be even.* d_model=3"),
        (lambda: plots.plot_shift([1], 4), "`k` must be one finite number.* k="),
        (lambda: plots.plot_shift("1", 4), "`k` must be real.* k='1'"),
        (
            lambda: plots.plot_shift(1, 4, position=-1),
            "`position` .* at least 0 and .* Received: position=-1",
        ),
        (lambda: plots.plot_shift(math.nan, 4), "`k` must be one finite.* k=nan"),
        (lambda: plots.plot_shift(-math.inf, 4), "`k` must be one finite.* k=-inf"),
        (
            lambda: plots.plot_shift(1e12, 4),
            "`k` must be .* -2147483658 and at most 2147482638.* k=1000000000000.0",
        ),
        (
            lambda: plots.plot_shift(-(2**31) - 0.5, 4, position=0),
            "`k` must be .* -2147483648 and at most .* k=-2147483648.5",
        ),
        *(
            (
                lambda position=position: plots.plot_shift(0, 4, position=position),
                f"`position` .* at most 2147482648. Received: position={position}",
            )
            for position in (2**31 - 999, 2**63 - 1, 2**70)
        ),
        (lambda: plots.plot_digits(0), "`positions` .* positions=0"),
        (lambda: plots.plot_digits([1, 2]), r"`positions` .* positions=\[1, 2\]"),
        (lambda: plots.plot_digits(4, 2.5), "`d_model` .* d_model=2.5"),
        (lambda: plots.plot_wavelengths(3, length=4), "`d_model` must be even"),
        (lambda: plots.plot_wavelengths(4, length=0), "`length` .* length=0"),
        (
            lambda: plots.plot_wavelengths(4, length=4, dtype="int8"),
            "`dtype` must be one of float16, .* dtype='int8'",
        ),
    ],
)
def test_wrong_arguments_are_refused_and_leave_no_figure(draw, match):
    with pytest.raises(ValueError, match=match):
        draw()
    assert not pyplot.get_fignums()


@pytest.mark.long
def test_the_package_does_without_matplotlib_until_it_draws():
    code = """if True:
        import sys
        sys.modules["matplotlib"] = None
        from keras_pe import plots
        for draw in (
            lambda: plots.plot_encoding(2, 2),
            lambda: plots.plot_similarity(2),
            lambda: plots.plot_shift(1, 2),
            lambda: plots.plot_digits(),
            lambda: plots.plot_wavelengths(2, length=2),
        ):
            try:
                draw()
            except ImportError as error:
                print(error)
    """
    lines = processes.run(code).splitlines()
    wanted = "keras_pe.plots needs matplotlib, of the extra `plots`: "
    assert lines == [f"{wanted}`pip install 'matplotlib>=3.8'`."] * 5
