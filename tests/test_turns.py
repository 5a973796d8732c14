"""The row maker: exact rates, exact phases, and the rows that come from them."""

import decimal
import itertools
import math
from fractions import Fraction

import keras
import mpmath
import numpy as np
import pytest
from keras import ops
from oracle import exact_rows, exact_rows_fast, formula_rows, turn_bits

from keras_pe import turns
from keras_pe.rates import Rates, exact_angles, sinusoid_turns, turns_of_rates
from keras_pe.rows import Rows
from keras_pe.turns import rows_at, rows_from

WAVELENGTHS = [10000.0, 1000.0, 500000.0, 1.0, 0.37, 1e-3, 1e-45, 1e30, 1.7e308]
WAVELENGTHS += [1e-300, 5e-324]
EDGES = [0, 1, -1, 2**15, 2**30, 2**30 - 1, 1 - 2**30, -(2**30), 2**31 - 1, -(2**31)]
NEAR = [edge + step for edge in (2**29, 2**30, -(2**30)) for step in range(-9, 10)]
# JAX has no float64 unless it is asked to: its rows are then float32 ones.
FLOAT64 = {"jax": ("float32", 3e-7)}.get(keras.config.backend(), ("float64", 1e-9))


def random_positions(size=2000, seed=1):
    drawn = np.random.default_rng(seed).integers(-(2**31), 2**31, size)
    return np.concatenate([drawn, EDGES, NEAR]).astype("int32")


def rows(maker, dtype, d_model, max_wavelength, layout, *args, **kwargs):
    made = sinusoid_turns(d_model, max_wavelength, layout)
    return ops.convert_to_numpy(maker(Rows(*args, **kwargs), made, dtype))


def at(positions, d_model=16, max_wavelength=10000.0, layout="interleaved", **kwargs):
    whole = ops.convert_to_tensor(np.array(positions, "int32"))
    return rows(rows_at, "float32", d_model, max_wavelength, layout, whole, **kwargs)


@pytest.mark.parametrize("max_wavelength", [10000.0, 0.01])
@pytest.mark.parametrize("layout", ["interleaved", "halves"])
@pytest.mark.parametrize("d_model", [1, 5, 6])
def test_the_oracles_agree(d_model, layout, max_wavelength):
    positions = [0, 1, -3, 0.5, 1e6 - 0.3, np.float32(70000.7), np.int32(99), -77777]
    kwargs = {"max_wavelength": max_wavelength, "layout": layout}
    exact = exact_rows(positions, d_model, **kwargs)
    fast = exact_rows_fast(positions, d_model, **kwargs)
    formula = formula_rows(map(float, positions), d_model, **kwargs)
    assert np.abs(fast - exact).max() < 4e-15
    assert np.abs(formula - exact).max() < 1e-15 + 1e6 * 2**-52 / min(max_wavelength, 1)


def test_the_fast_oracle_is_exact_at_every_position():
    positions = [*random_positions(50).tolist(), 2**31, 2.0**31 - 0.25, -12345678.875]
    difference = exact_rows_fast(positions, 10) - exact_rows(positions, 10)
    assert np.abs(difference).max() < 4e-15


@pytest.mark.parametrize("max_wavelength", WAVELENGTHS)
@pytest.mark.parametrize("d_model", [1, 2, 5, 64])
def test_rates_hold_62_exact_bits_of_a_turn(d_model, max_wavelength):
    made = sinusoid_turns(d_model, max_wavelength, "interleaved")
    wanted = [bits % 2**62 for bits in turn_bits(d_model, 62, max_wavelength)]
    step = made.step
    high = step.high.view("uint32").tolist()
    middle, lowest = step.middle.tolist(), (step.lowest * 2.0**15).tolist()
    assert made.first.tolist() == [channel % 2 * 2**30 for channel in range(d_model)]
    for channel, bits in enumerate(wanted):
        parts = (high[channel] << 30) + (middle[channel] << 15) + int(lowest[channel])
        assert parts == bits
        assert step.low[channel] == np.float32(bits % 2**30 / 2**30)


def test_turns_of_rates_hold_them_to_their_last_bit():
    rates = (1.0, 1 / 3, 0.1234, 1e-5, 3e-9)
    made = turns_of_rates(rates)
    assert made.first.tolist() == [0] * 5 + [2**30] * 5
    assert len(made.last_turns) == 10
    for channel, rate in enumerate(2 * rates):
        with mpmath.workdps(60):
            turn = mpmath.mpf(rate) / (2 * mpmath.pi)
            bits = int(mpmath.floor(turn * 2**62))
            assert made.last_turns[channel] == made.turn[channel] == float(turn)
        high, middle = made.step.high[channel], made.step.middle[channel]
        lowest = int(made.step.lowest[channel] * 2.0**15)
        assert (int(high) << 30) + (int(middle) << 15) + lowest == bits


@pytest.mark.parametrize("max_wavelength", WAVELENGTHS)
@pytest.mark.parametrize("d_model", [1, 2, 5, 64])
def test_float64_turns_are_the_nearest(d_model, max_wavelength):
    made = sinusoid_turns(d_model, max_wavelength, "interleaved")
    for channel in range(d_model):
        with mpmath.workdps(400):
            power = mpmath.mpf(channel - channel % 2) / d_model
            rate = mpmath.mpf(max_wavelength) ** -power
            turn = rate / (2 * mpmath.pi)
            assert made.turn[channel] == float(turn - mpmath.nint(turn))
            for part in made.turn_parts:
                turn /= 2**16
                assert part[channel] == float(turn - mpmath.nint(turn))
            assert made.last_turns[channel] == float(turn)
    # No more parts than there are turns that a step could lose.
    assert max(made.last_turns) <= 1
    assert len(made.turn_parts) <= max(0, -math.log2(max_wavelength)) // 16 + 1
    assert max_wavelength < 1 or not made.turn_parts


@pytest.mark.parametrize("max_wavelength", WAVELENGTHS)
@pytest.mark.parametrize("d_model", [2, 32])
def test_phases_are_exact_for_every_int32_position(d_model, max_wavelength):
    positions = random_positions(500 if d_model == 32 else 2000)
    made = sinusoid_turns(d_model, max_wavelength, "interleaved")
    phases = turns._phases(ops.convert_to_tensor(positions), made.step)
    assert keras.backend.standardize_dtype(phases.dtype) == "int32"
    # In units of 2**-40 turns, of which a phase leaves out the last 8 bits.
    bits = np.array(turn_bits(d_model, 100, max_wavelength), object)
    exact = (positions.astype(object)[:, None] * bits >> 60) % 2**40
    ours = ops.convert_to_numpy(phases).astype(object) * 2**8
    errors = np.abs((ours - exact + 2**39) % 2**40 - 2**39) / 2**8
    error, near = errors.max(), errors[abs(positions.astype("int64")) < 2**30].max()
    assert near < 2.01, f"measured {near} units of 2**-32 turns"
    assert error < 3.01, f"measured {error} units of 2**-32 turns"


def test_the_same_arguments_have_the_same_turns():
    """Decimals take too long to make them at every call."""
    assert sinusoid_turns(6, 50.0, "halves") is sinusoid_turns(6, 50.0, "halves")
    assert turns_of_rates((1.0, 0.5)) is turns_of_rates((1.0, 0.5))
    for kept in (sinusoid_turns, turns_of_rates):
        assert kept.cache_info().maxsize == 32


@pytest.mark.parametrize("wavelength", [10000.0, 1e-30])
def test_turns_are_exact_whatever_decimals_the_program_uses(wavelength):
    def made():
        sinusoid_turns.cache_clear()
        turns_of_rates.cache_clear()
        return (
            sinusoid_turns(6, wavelength, "halves").step,
            turns_of_rates((1.0, 1 / 3, 1e-5)).step,
        )

    expected = made()
    strange = decimal.Context(3, decimal.ROUND_UP, traps=[decimal.Inexact])
    with decimal.localcontext(strange):
        found = made()
    for ours, theirs in zip(found, expected, strict=True):
        for part, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(part, other)


@pytest.mark.parametrize(
    ("wavelength", "parts", "turn_parts"),
    [(10000, 1, 0), (1, 1, 0), (0.5, 2, 0), (0.05, 2, 1)],
)
def test_a_step_has_as_many_parts_as_it_turns_fast(wavelength, parts, turn_parts):
    made = sinusoid_turns(6, wavelength, "halves")
    assert (len(made.parts), len(made.turn_parts)) == (parts, turn_parts)


def test_exact_angles_are_less_than_a_turn():
    angles = exact_angles(np.array([7, -1000, 12345]), np.arange(0, 6, 2), 6, 1e-5)
    assert 3 < np.abs(angles).max() < 2 * np.pi


def test_whole_turns_fall_away():
    # A step of 2**32 units is a whole turn, so the position wraps as the phase does.
    no_bits, no_part = np.zeros(1, "int32"), np.zeros(1, "float32")
    made = Rates(np.array([2**30 + 1], "int32"), no_bits, no_part, no_part)
    positions = random_positions(100)
    phases = turns._phases(ops.convert_to_tensor(positions), made)
    wanted = positions.astype("int64") * (2**30 + 1)
    np.testing.assert_array_equal(
        ops.convert_to_numpy(phases)[:, 0], wanted.astype("int32")
    )


@pytest.mark.parametrize("max_wavelength", WAVELENGTHS)
@pytest.mark.parametrize("d_model", [1, 2, 7, 16])
def test_rows_at_any_int32_position(d_model, max_wavelength):
    positions = random_positions(300)
    ours = at(positions, d_model, max_wavelength)
    exact = exact_rows_fast(positions, d_model, max_wavelength=max_wavelength)
    error = np.abs(ours - exact).max()
    assert ours.dtype == "float32"
    assert error < 1.5e-7, f"measured {error}"


@pytest.mark.parametrize(
    "start", [0, 1, 255, 256, -70, 2**20 + 3, 2**30 - 300, 2**31 - 600]
)
@pytest.mark.parametrize("length", [0, 1, 256, 257, 600])
def test_rows_from_a_start(start, length):
    run = rows(rows_from, "float32", 6, 10000.0, "halves", start, length=length)
    exact = exact_rows_fast(range(start, start + length), 6, layout="halves")
    error = np.abs(run - exact).max(initial=0)
    assert run.shape == (length, 6)
    assert error < 3e-7, f"measured {error}"


def test_rows_from_several_starts():
    starts = [5, 0, 2**29, -1000]
    whole = ops.convert_to_tensor(np.array(starts, "int32"))
    runs = rows(rows_from, "float32", 6, 10000.0, "interleaved", whole, length=200)
    assert runs.shape == (4, 200, 6)
    for run, start in zip(runs, starts, strict=True):
        error = np.abs(run - exact_rows_fast(range(start, start + 200), 6)).max()
        assert error < 3e-7, f"measured {error} from {start}"


@pytest.mark.parametrize("towards", [0.0, 1.0])
def test_rows_from_where_a_step_is_a_quarter_turn(towards):
    wavelength = quarter_turns(towards)
    for start in (0, 1, -1000, 2**29):
        run = rows(rows_from, "float32", 4, wavelength, "halves", start, length=300)
        check_quarter_turns(run, start, wavelength)


@pytest.mark.tensorflow
@pytest.mark.parametrize("towards", [0.0, 1.0])
def test_rows_from_where_a_step_is_a_quarter_turn_in_a_graph(towards, tf):
    wavelength = quarter_turns(towards)
    made = sinusoid_turns(4, wavelength, "halves")
    steps = turns._sine_and_cosine(turns._phases(ops.arange(2), made.step))
    cosine = float(steps[1][1][1])
    assert cosine == 0 if towards == 0 else 0 < cosine < 2e-9
    graph = tf.function(
        lambda start: rows_from(Rows(start, length=300), made, "float32")
    )
    for start in (0, 1, -1000, 2**29):
        run = graph(tf.constant(start)).numpy()
        check_quarter_turns(run, start, wavelength)


def quarter_turns(towards):
    """Return a wavelength whose last channels turn a quarter in a step, or almost."""
    return float(np.nextafter((2 / np.pi) ** 2, towards))


def check_quarter_turns(run, start, wavelength):
    exact = exact_rows_fast(
        range(start, start + 300), 4, max_wavelength=wavelength, layout="halves"
    )
    error = np.abs(run - exact).max()
    assert error < 3e-7, f"measured {error} from {start}"


@pytest.mark.parametrize(
    ("length", "blocks"), [(1, (1, 1)), (3, (1, 3)), (256, (1, 256)), (257, (2, 256))]
)
def test_a_run_is_cut_into_blocks_of_256_at_most(length, blocks):
    shapes = []
    reshape = ops.reshape

    def spy(table, shape):
        shapes.append(tuple(table.shape))
        return reshape(table, shape)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ops, "reshape", spy)
        rows(rows_from, "float32", 6, 10000.0, "halves", 3, length=length)
    assert shapes == [(*blocks, 6)]


def test_rows_from_no_start():
    whole = ops.convert_to_tensor(np.zeros(0, "int32"))
    runs = rows(rows_from, "float32", 6, 10000.0, "interleaved", whole, length=7)
    assert runs.shape == (0, 7, 6)


@pytest.mark.parametrize("maker", [rows_at, rows_from])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_that_are_not_valid_are_nan(maker, dtype):
    whole = ops.convert_to_tensor(np.array([3, 4, 5], "int32"))
    valid = ops.convert_to_tensor(np.array([True, False, True]))
    length = {"length": 7} if maker is rows_from else {}
    made = rows(maker, dtype, 6, 1e4, "interleaved", whole, valid=valid, **length)
    assert np.isnan(made[1]).all()
    assert np.isfinite(made[[0, 2]]).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_of_a_batch_of_positions(dtype):
    """Fractions and what is valid lie as the positions do."""
    whole = np.arange(6, dtype="int32").reshape(2, 3)
    fraction = np.array([[0, 0.5, 0.25]] * 2, dtype) * [[1], [-1]]
    valid = np.array([[True, False, True], [True, True, False]])
    made = rows(
        rows_at,
        dtype,
        *(5, 1e4, "interleaved"),
        ops.convert_to_tensor(whole),
        fraction=ops.convert_to_tensor(fraction.astype(dtype)),
        valid=ops.convert_to_tensor(valid),
    )
    exact = exact_rows_fast((whole + fraction).ravel(), 5).reshape(2, 3, 5)
    exact[~valid] = np.nan
    np.testing.assert_allclose(made, exact, rtol=0, atol=3e-7)


def test_blocks_of_a_batch_of_starts():
    starts = np.array([3, 10**6], "int32")
    made = rows(
        rows_from,
        "float32",
        *(5, 1e4, "interleaved"),
        ops.convert_to_tensor(starts),
        length=700,
    )
    for start, run in zip(starts.tolist(), made, strict=True):
        exact = exact_rows_fast(range(start, start + 700), 5)
        np.testing.assert_allclose(run, exact, rtol=0, atol=3e-7)


# Below a wavelength of 1, a fraction is itself many turns.
@pytest.mark.parametrize("max_wavelength", WAVELENGTHS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_with_a_fraction(max_wavelength, dtype):
    made, bound = ("float32", 3e-7) if dtype == "float32" else FLOAT64
    whole = [0, -1, 7, 1000] + [2**22, -(2**22), 2**30] * (dtype == "float32")
    parts = [0, 0.5, 0.25, 0.999, 2**-20, -0.5, -0.999, 2**-24 - 1, -(2.0**-40)]
    parts = np.array([*parts, 1 / 3, 1.2345e-13, -1e-30], dtype)
    pairs = list(itertools.product(whole, parts))
    positions, fraction = (np.array(side) for side in zip(*pairs, strict=True))
    ours = rows(
        rows_at,
        dtype,
        *(8, max_wavelength, "interleaved"),
        ops.convert_to_tensor(positions.astype("int32")),
        fraction=ops.convert_to_tensor(fraction),
    )
    assert ours.dtype == made
    if made != dtype:  # JAX has read the fractions as float32
        pairs = [(p, np.float32(part)) for p, part in pairs]
    exact = exact_rows(
        [Fraction(p) + Fraction(float(part)) for p, part in pairs],
        8,
        max_wavelength=max_wavelength,
    )
    error = np.abs(ours - exact).max()
    assert error < bound, f"measured {error}"


@pytest.mark.parametrize("d_model", [1, 2, 3, 8, 9])
def test_halves_are_the_same_channels_in_another_order(d_model):
    positions = random_positions(20)
    pairs, halves = at(positions, d_model), at(positions, d_model, layout="halves")
    middle = (d_model + 1) // 2
    np.testing.assert_array_equal(halves[:, :middle], pairs[:, 0::2])
    np.testing.assert_array_equal(halves[:, middle:], pairs[:, 1::2])


def test_two_different_arguments_never_share_a_table():
    sets = list(itertools.product([4, 5], [100.0, 100.5], ["interleaved", "halves"]))
    for d_model, max_wavelength, layout in [*sets, *reversed(sets)]:
        kwargs = {"max_wavelength": max_wavelength, "layout": layout}
        ours = at([17], d_model, **kwargs)
        assert np.abs(ours - formula_rows([17], d_model, **kwargs)).max() < 1.5e-7


def test_the_large_part_of_an_angle_is_exact():
    coarse = np.arange(-(2**12), 2**12 + 1)
    exact = coarse * float(turns._COARSE)
    np.testing.assert_array_equal(coarse.astype("float32") * turns._COARSE, exact)
    left = coarse * (2 * np.pi / 2**14) - exact
    assert np.abs(left).max() < 2**-10


@pytest.mark.tensorflow
def test_what_a_graph_holds(tf):
    """The sines of TensorFlow; of a block no table, which every file would have."""
    made = sinusoid_turns(64, 10000.0, "halves")
    position = tf.TensorSpec((), tf.int32)
    for maker, length in ((rows_at, {}), (rows_from, {"length": 700})):
        graph = tf.function(
            lambda p, make=maker, length=length: make(
                Rows(p, **length), made, "float32"
            )
        ).get_concrete_function(position)
        nodes = graph.graph.as_graph_def().node
        assert "Sin" in {node.op for node in nodes}
        sizes = [
            tf.make_ndarray(node.attr["value"].tensor).size
            for node in nodes
            if node.op == "Const"
        ]
        assert max(sizes) < 256 * 64
        assert sizes.count(64) == 5  # four of the rates, and the start


@pytest.mark.jax
def test_what_jax_traces():
    """A series in place of a sine where each row takes one, and none within a block."""
    import jax

    made = sinusoid_turns(64, 10000.0, "halves")

    def traced(make, **length):
        def call(position):
            return make(Rows(position, **length), made, "float32")

        return str(jax.make_jaxpr(call)(np.int32(7)))

    assert " sin " not in traced(rows_at)
    assert traced(rows_from, length=700).count(" sin ") == 1


def test_within_a_block_the_host_has_made_all():
    made = sinusoid_turns(6, 10000.0, "halves")
    steps = turns._within_block(made, None, 9)
    for part, table in zip(steps, (made.block_tangent, made.block_cosine), strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(part), table[:9])


def test_sines_of_an_angle_that_is_rounded_once():
    """As the start of a block: what is off there is off in all of its rows."""
    phases = np.append(random_positions(300_000), [2**29, -(2**29), -(2**30)])
    sines, cosines = ops.convert_to_numpy(
        turns._sine_and_cosine(ops.convert_to_tensor(phases.astype("int32")))
    )
    angles = phases.astype(np.longdouble) * (np.longdouble(np.pi) / 2**31)
    # Measured: 9.2e-8. Of a rest of another size, 1.2e-7.
    for ours, exact in ((sines, np.sin(angles)), (cosines, np.cos(angles))):
        error = np.abs(ours - exact).max()
        assert error < 1e-7, f"measured {error}"


@pytest.mark.parametrize("max_wavelength", [10000.0, 1e30, 1.0])
def test_float64_rows(max_wavelength):
    dtype, bound = FLOAT64
    positions = np.array([0, 1, -1, 12345, 10**6, -(10**6)], "int32")
    part = np.array([0, 0.5, 0.25, 1 / 3, 0, 0.9])
    args, kwargs = (8, max_wavelength, "halves"), {"max_wavelength": max_wavelength}
    whole, fraction = ops.convert_to_tensor(positions), ops.convert_to_tensor(part)
    ours = rows(rows_at, "float64", *args, whole, fraction=fraction)
    exact = exact_rows(positions + part, 8, layout="halves", **kwargs)
    error = np.abs(ours - exact).max()
    assert ours.dtype == dtype
    assert error < bound, f"measured {error}"
    run = rows(rows_from, "float64", *args, 999_900, length=101)
    exact = exact_rows_fast(range(999_900, 1_000_001), 8, layout="halves", **kwargs)
    error = np.abs(run - exact).max()
    assert run.dtype == dtype
    assert error < bound, f"measured {error}"
