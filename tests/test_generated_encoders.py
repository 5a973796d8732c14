"""The encoders, beside slow arithmetic, on inputs and arguments that are drawn."""

import functools
import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from drawn import (
    FLOATS,
    MOST,
    POLICIES,
    Steps,
    dtype_called,
    dtype_of,
    exact,
    keras_dtype,
    layouts,
    numbers,
    positions,
    sampled,
    seldom,
    shapes,
    sizes,
    steps,
    wavelengths,
    ways,
    wrong_steps,
)
from generated import (
    COMPARED,
    REFUSED,
    assert_near,
    call,
    compared,
    generated,
    outcome,
    to_numpy,
)
from hypothesis import strategies as st
from keras import ops
from truth import (
    UNIT,
    error_of_rows,
    error_of_sum,
    recipe_rows,
    rows_at,
    turn,
    widths_of,
)

import keras_pe

BAD_INPUTS = [
    np.ones((2, 3, 4), "int32"),
    np.ones((2, 3, 4), bool),
    np.ones((2, 3, 4), "complex64"),
    np.ones((2, 4), "float32"),
    np.ones(4, "float32"),
    np.ones((2, 3, 0), "float32"),
    [[["a"]]],
]
BAD_ARGUMENTS = {
    "max_length": [0, -1, 2.5, True, "8", 2**31 + 1],
    "max_wavelength": [0, -1.0, math.nan, math.inf, "9", None, True],
    "layout": ["pairs", "", None, 1],
    "dtype": ["int32", "bool"],
}


class Case(NamedTuple):
    """A layer and a call of it. What is refused may be any part."""

    way: str
    unknown: bool
    arguments: dict
    shape: tuple
    dtype: str
    seed: int
    steps: Steps
    inputs: object = None  # instead of numbers of the shape
    is_refused: bool = False

    @property
    def policy(self):
        return dtype_of(self.arguments["dtype"])

    def array(self):
        return numbers(self.shape, self.dtype, self.seed)

    def run(self, kind, weights=()):
        """Return the layer, and what its call gives: None where it is refused."""
        layers = []

        def attempt():
            layer = kind(**self.arguments)
            if weights or self.way == "jit":  # JAX makes no weights as it traces
                layer.build(self.shape)
            if weights:
                layer.set_weights(weights)
            layers.append(layer)
            given = self.array() if self.inputs is None else self.inputs
            if self.way != "eager" and self.inputs is None:
                given = ops.convert_to_tensor(given, self.dtype)
            given = {"inputs": given, **self.steps.arguments}
            tensors = {name: v for name, v in given.items() if ops.is_tensor(v)}
            plain = {name: v for name, v in given.items() if name not in tensors}
            axes = {n: range(len(v.shape)) for n, v in tensors.items()}
            axes["inputs"] = range(len(self.shape) - 1)
            return call(
                self.way,
                lambda **tensors: layer(**plain, **tensors),
                tensors,
                axes if self.unknown else {},
            )

        result = outcome(self.way, self.refused, attempt)
        return (layers[0] if layers else None), result

    @property
    def refused(self):
        return self.is_refused or self.steps.is_refused

    def check(self, result, truth, axis=-2):
        """Compare some steps of a result with what `truth` makes of them.

        `truth` takes the steps' numbers, `(batch, ..., steps, features)`, and places
        that broadcast against `(batch, ..., steps)`. It returns what is to come and
        how much it may differ.
        """
        if result is None:
            return REFUSED
        assert keras_dtype(result.dtype) == self.policy
        assert tuple(result.shape) == self.shape
        x, result, places = exact(self.array()), to_numpy(result), self.steps.places
        x, result = np.moveaxis(x, axis, -2), np.moveaxis(result, axis, -2)
        chosen = sampled(x.shape[-2], max(8, 64 // max(1, len(np.atleast_2d(places)))))
        places = places[..., chosen]
        if places.ndim == 2:
            rows = len(places)
            places = places.reshape(rows, *[1] * (x.ndim - 3), len(chosen))
        expected, most = truth(x[..., chosen, :], places)
        assert_near(result[..., chosen, :], expected, most, self.refused)
        if not self.refused and np.isfinite(self.steps.places).all():
            assert np.isfinite(result).all()
        return REFUSED if self.refused else compared(result)


@st.composite
def cases(draw, arguments, shape, bounds=None, axis=-2, bad=None, with_steps=True):
    """A `Case`, of drawn arguments of a layer and a shape of its input."""
    arguments = {**arguments, "dtype": draw(st.sampled_from(POLICIES))}
    batch, time = shape[0], shape[axis]
    first, last = bounds or (-(2**31), MOST)
    case = Case(
        draw(ways()),
        draw(st.sampled_from([True, True, False])),
        arguments,
        shape,
        draw(st.sampled_from(FLOATS)),
        draw(st.integers(0, 3)),
        Steps({}, np.arange(time, dtype=float), is_known=True),
    )
    kinds = ["arguments", "inputs", *["steps"] * 6]
    defect = draw(seldom(st.sampled_from(kinds), st.none()))
    if defect == "steps" or time - 1 > last:
        wrong = draw(wrong_steps(batch, time, first, last))
        return case._replace(steps=wrong)
    if with_steps:
        case = case._replace(steps=draw(steps(batch, time, first, last)))
    if defect == "inputs":
        wrong = draw(st.sampled_from(BAD_INPUTS))
        return case._replace(inputs=wrong, is_refused=True)
    if defect == "arguments":
        bad = {**BAD_ARGUMENTS, **(bad or {})}
        name = draw(st.sampled_from(sorted({*bad} & {*arguments})))
        change = {name: draw(st.sampled_from(bad[name]))}
        return case._replace(arguments={**arguments, **change}, is_refused=True)
    return case


# The sine/cosine encoding.


@st.composite
def positional(draw):
    shape = draw(shapes())
    time, width = shape[-2:]
    arguments = {"max_wavelength": draw(wavelengths()), "layout": draw(layouts())}
    bounds = None
    if draw(st.booleans()):
        # A table of that is no larger than an input; none is made of the largest.
        most = max(time, 2**19 // width) if draw(st.booleans()) else time + 3
        length = draw(seldom(st.just(2**31), sizes(max(1, time), max(1, most))))
        arguments["max_length"], bounds = length, (0, length - 1)
    return draw(cases(arguments, shape, bounds))


@generated(positional(), share=3)
def test_positional_encoding_layer(case):
    _, result = case.run(keras_pe.PositionalEncoding)
    return case.check(result, functools.partial(encoded, case))


def encoded(case, x, places):
    """Return `x + P`, and by how much it may be off."""
    arguments, dtype = case.arguments, case.policy
    wavelength, width = arguments["max_wavelength"], x.shape[-1]
    x = in_dtype(x, dtype)
    traced = case.way in ("graph", "xla")
    if (
        case.steps.is_known
        and dtype == "float32"
        and wavelength == 10000
        and not (case.unknown and traced)
        and is_of_a_table(case)
    ):
        rows = recipe_rows(places.astype(int), width, arguments["layout"])
        rows = rows.astype("float32")
        return exact(x.astype("float32") + rows), 0
    rows = rows_at(places, width, max_wavelength=wavelength, layout=arguments["layout"])
    error = error_of_rows(places, dtype, wavelength, is_table=True)
    return x + rows, error_of_sum(dtype, x, rows, error)


def is_of_a_table(case):
    """Return whether float32 rows of a known run are promised bit for bit."""
    row, length = 4 * case.shape[-1], case.arguments.get("max_length")
    if length is not None and row * length <= 2**28:
        return case.steps.places.min(initial=0) >= 0
    return row * case.shape[-2] <= 2**22


def in_dtype(x, dtype):
    return exact(numbers_as(x, dtype))


def numbers_as(x, dtype):
    # Backends make a half type of float64 by way of float32.
    x = x if dtype == "float64" else x.astype("float32")
    return x.astype(dtype_called(dtype))


# The learned encoding.


@st.composite
def learned(draw):
    shape = draw(shapes())
    time, width = shape[-2:]
    length = draw(sizes(max(1, time), max(time + 3, 2**18 // width)))
    initializers = ["zeros", "sinusoidal", "uniform"]
    arguments = {
        "max_length": length,
        "initializer": draw(st.sampled_from(initializers)),
    }
    bad = {"initializer": ["no such", 1, None, [[1.0]]]}
    return draw(cases(arguments, shape, (0, length - 1), bad=bad))


@generated(learned(), share=1.5)
def test_learned_positional_encoding(case):
    length, width = case.arguments["max_length"], case.shape[-1]
    dtype = case.arguments["dtype"]
    stored = "float32" if dtype.startswith("mixed") else dtype_of(dtype)
    weights = []
    if case.arguments["initializer"] == "zeros" and not case.is_refused:
        weights = [numbers((length, width), seed=case.seed + 1)]
        weights = [numbers_as(weights[0], stored)]
    layer, result = case.run(keras_pe.LearnedPositionalEncoding, weights)
    if result is None:
        return REFUSED
    table = exact(weights[0] if weights else to_numpy(layer.embeddings))
    if case.arguments["initializer"] == "sinusoidal":
        wanted = numbers_as(recipe_rows(np.arange(length), width), stored)
        np.testing.assert_array_equal(table, exact(wanted))
    return case.check(result, functools.partial(interpolated, case, table))


def interpolated(case, table, x, places):
    """Return `x + E`, and by how much it may be off."""
    is_row = (places >= 0) & (places <= len(table) - 1)
    near = np.where(is_row, places, 0)
    below = np.floor(near).astype(int)
    above = np.minimum(below + 1, len(table) - 1)
    part = (near - below)[..., None]
    rows = table[below] * (1 - part) + table[above] * part
    # Where there is nothing between, it is exact.
    size = np.abs(table[below]) + np.abs(table[above])
    error = np.where(part == 0, 0, 2 * UNIT["float32"]) * size
    rows = np.where(is_row[..., None], rows, np.nan)
    x = in_dtype(x, case.policy)
    return x + rows, error_of_sum(case.policy, x, rows, error)


@st.composite
def tables_resized(draw):
    old, width = draw(sizes(1, 300)), draw(sizes(1, 20))
    new = draw(seldom(st.sampled_from([0, -1, 2.5, True, None]), sizes(1, 300)))
    return old, new, width, draw(st.integers(0, 3))


@generated(tables_resized())
def test_resized(case):
    old, new, width, seed = case
    layer = keras_pe.LearnedPositionalEncoding(max_length=old)
    layer.build((None, None, width))
    table = numbers((old, width), seed=seed)
    layer.set_weights([table])
    is_refused = type(new) is not int or new < 1
    other = outcome("eager", is_refused, lambda: layer.resized(new))
    if is_refused:
        return REFUSED
    found, table = to_numpy(other.embeddings), exact(table)
    for row, values in enumerate(found):
        # The first and the last row stay, and the others spread evenly.
        at = Fraction(row * (old - 1), max(new - 1, 1))
        low = math.floor(at)
        high, part = min(low + 1, old - 1), float(at - low)
        expected = table[low] * (1 - part) + table[high] * part
        np.testing.assert_allclose(values, expected, rtol=0, atol=1e-6)
    assert found.shape == (new, width)
    return COMPARED


# The encoding of a grid.


@st.composite
def axial(draw):
    rank = draw(st.integers(3, 5))
    axes = list(range(1, rank - 1))
    chosen = draw(st.sampled_from([None, *axes, [axes[-1]], axes, axes[:1]]))
    listed = [chosen] if isinstance(chosen, int) else chosen or axes
    shape = draw(shapes(ranks=(rank, rank), widths=(2 * len(listed) - 1, 300)))
    if draw(st.booleans()) and chosen is not None:
        chosen = [axis - rank for axis in listed]
    arguments = {
        "axes": chosen,
        "max_wavelength": draw(wavelengths()),
        "layout": draw(layouts()),
    }
    bad = {"axes": [[], [1, 1], 1.5, True, "1", [0], rank - 1, -1, -rank]}
    case = draw(cases(arguments, shape, bad=bad, with_steps=False))
    grid = [shape[axis] for axis in listed]
    places = np.moveaxis(np.indices(grid, float), 0, -1)
    case = case._replace(steps=Steps({}, places, is_known=True))
    defect = not case.refused and draw(st.integers(0, 7)) == 3
    if defect or case.steps.is_refused:
        return case._replace(steps=draw(_wrong_places(shape[0], grid)))
    if draw(st.booleans()):
        lead = draw(st.sampled_from([(), (1,), shape[:1]]))
        given = draw(positions((*lead, *grid, len(grid))))
        case = case._replace(
            steps=Steps({"positions": given.given}, given.places),
        )
    return case


@st.composite
def _wrong_places(draw, batch, grid):
    axes = len(grid)
    sizes = [grid, (*grid, axes + 1), (batch + 2, *grid, axes), (1, 1, *grid, axes)]
    sizes += [
        (*(n + 1 for n in grid), axes),
        (*(1 if n > 1 else 2 for n in grid), axes),
    ]
    shape = draw(st.sampled_from([tuple(size) for size in sizes]))
    form = draw(st.sampled_from([np.asarray, ops.convert_to_tensor]))
    wrong = form(np.zeros(shape, "int32"))
    nowhere = np.full((*grid, axes), np.nan)
    call = draw(st.sampled_from([{"positions": wrong}] * 3 + [{"start_index": 1}]))
    return Steps(call, nowhere, True)


@generated(axial(), share=1.5)
def test_axial_positional_encoding(case):
    _, result = case.run(keras_pe.AxialPositionalEncoding)
    if result is None:
        return REFUSED
    assert keras_dtype(result.dtype) == case.policy
    assert tuple(result.shape) == case.shape
    expected, most = on_grid(case, exact(case.array()), case.steps.places)
    assert_near(to_numpy(result), expected, most, case.refused)
    return REFUSED if case.refused else compared(expected)


def on_grid(case, x, places):
    """Return `x + P`, and by how much it may be off. Places are `(..., axes)`."""
    rank, arguments, dtype = x.ndim, case.arguments, case.policy
    axes = arguments["axes"]
    axes = range(1, rank - 1) if axes is None else np.atleast_1d(axes) % rank
    kwargs = dict(
        max_wavelength=arguments["max_wavelength"], layout=arguments["layout"]
    )
    rows, errors = [], []
    for i, width in enumerate(widths_of(x.shape[-1], len(axes))):
        place = places[..., i]
        rows.append(rows_at(place, width, **kwargs))
        error = error_of_rows(place, dtype, kwargs["max_wavelength"], is_table=True)
        errors.append(np.broadcast_to(error, rows[-1].shape))
    shape = [n if axis in axes else 1 for axis, n in enumerate(x.shape[:-1])]
    shape[0] = len(places) if places.ndim == len(axes) + 2 else 1
    rows, errors = (
        np.concatenate(parts, axis=-1).reshape(*shape, x.shape[-1])
        for parts in (rows, errors)
    )
    x = in_dtype(x, dtype)
    return x + rows, error_of_sum(dtype, x, rows, errors)


# The rotary embedding.


@st.composite
def scalings(draw):
    kind = draw(st.sampled_from(["default", "linear", "llama3", "yarn"]))
    scaling = {draw(st.sampled_from(["rope_type", "type"])): kind}
    if kind != "default":
        scaling["factor"] = draw(st.floats(1, 64) | st.integers(1, 64))
    if kind in ("llama3", "yarn"):
        scaling["original_max_position_embeddings"] = draw(st.integers(16, 2**17))
    if kind == "llama3":
        low = draw(st.floats(0.25, 8))
        scaling["low_freq_factor"] = low
        scaling["high_freq_factor"] = low + draw(st.floats(0, 8))
    if kind == "yarn":
        for name, values in {
            "beta_fast": st.floats(8, 64),
            "beta_slow": st.floats(0.5, 4),
            "attention_factor": st.floats(0.5, 2),
            "mscale": st.floats(0.5, 2),
            "mscale_all_dim": st.floats(0.5, 2),
            "truncate": st.booleans(),
        }.items():
            if draw(st.integers(0, 2)) == 1:
                scaling[name] = draw(values)
    return scaling


BAD_SCALINGS = [
    "linear",
    {},
    {"rope_type": "linear"},
    {"type": "dynamic", "factor": 2.0},
    {"type": "linear", "factor": 0.5},
    {"type": "linear", "factor": math.nan},
    {"type": "linear", "factor": 2.0, "beta_fast": 32},
    {"type": "linear", "factor": 2.0, "rope_theta": 1e4},
    {"type": "yarn", "factor": 2.0},
    {"type": "new", "factor": 2.0},
]


@st.composite
def rotary(draw):
    batch, *middle, time, width = draw(shapes(widths=(2, 300)))
    shape = (batch, *middle, time, width)
    axis = draw(st.integers(1, len(shape) - 2))
    shape = (batch, *middle[: axis - 1], time, *middle[axis - 1 :], width)
    scaling = draw(st.none() | scalings())
    arguments = {
        "max_wavelength": draw(wavelengths(2 if scaling else 1e-3)),
        "layout": draw(layouts()),
        "sequence_axis": draw(st.sampled_from([axis, axis - len(shape)])),
        "scaling": scaling,
        "rotary_dim": 2 * draw(sizes(1, width // 2)),
    }
    if width % 2 == 0 and draw(st.booleans()):
        arguments["rotary_dim"] = None
    bad = {
        "rotary_dim": [3, 0, -2, 4.0, True, 2 * width, *[None] * (width % 2)],
        "sequence_axis": [0, -1, 1.5, None, len(shape) - 1, -len(shape), 9],
        "scaling": BAD_SCALINGS,
    }
    return draw(cases(arguments, shape, axis=axis, bad=bad))


@generated(rotary(), share=2)
def test_rotary_embedding(case):
    _, result = case.run(keras_pe.RotaryEmbedding)
    axis = case.arguments["sequence_axis"]
    truth = functools.partial(turned, case)
    return case.check(result, truth, 1 if case.refused and result is None else axis)


def turned(case, x, places):
    """Return `x` with its pairs turned, and by how much it may be off."""
    arguments, dtype = {**case.arguments}, case.policy
    for name in ("dtype", "sequence_axis"):
        del arguments[name]
    expected, size = turn(x, places, **arguments)
    error = error_of_rows(places, dtype, arguments["max_wavelength"], is_table=True)
    if arguments["scaling"]:
        # Of rates that are float64 two ways differ by some units.
        places = np.where(np.isfinite(places), np.abs(places), 0)
        error = error + 2.0**-49 * places[..., None]
    unit = UNIT["float64" if dtype == "float64" else "float32"]
    most = size * (error + 4 * unit)
    return expected, error_of_sum(dtype, 0, expected, most)
