"""The rotary embedding: queries and keys turned by their positions."""

import keras
import numpy as np
import pytest
from keras import ops
from oracle import exact_rows_fast

from keras_pe import RotaryEmbedding, positions_from_mask
from keras_pe.scaling import check_scaling, scaled_rates

LAYOUTS = ("halves", "interleaved")
LLAMA = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
FAR = 10**6


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def turn(x, call=None, **kwargs):
    result = RotaryEmbedding(**kwargs)(x, **(call or {}))
    return ops.convert_to_numpy(ops.cast(result, "float32")).astype("float64")


def turned(x, positions, *, layout="halves", rotary_dim=None, max_wavelength=10000.0):
    """The truth, as loops: `x` `(batch, time, heads, dim)`, `positions` `(time,)`."""
    x, dim = x.astype("float64"), rotary_dim or x.shape[-1]
    rows = exact_rows_fast(positions, dim, max_wavelength=max_wavelength)
    result = x.copy()
    for pair in range(dim // 2):
        halves = layout == "halves"
        i, j = (pair, pair + dim // 2) if halves else (2 * pair, 2 * pair + 1)
        sine, cosine = rows[:, 2 * pair, None], rows[:, 2 * pair + 1, None]
        result[..., i] = x[..., i] * cosine - x[..., j] * sine
        result[..., j] = x[..., j] * cosine + x[..., i] * sine
    return result


def assert_close(result, expected, x):
    """Within what sines of 3e-7 and float32 products make of inputs of this size."""
    assert np.abs(result - expected).max() <= 5e-7 * np.abs(x).max()


# Values.


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rotary_dim", [None, 2, 4, 8])
@pytest.mark.parametrize(
    ("call", "positions"),
    [
        ({}, range(5)),
        (dict(start_index=1000), range(1000, 1005)),
        (dict(start_index=np.array([FAR, FAR])), range(FAR, FAR + 5)),
        (dict(start_index=-3), range(-3, 2)),
        (dict(positions=[0, 7, FAR, 2**30 - 1, -9]), [0, 7, FAR, 2**30 - 1, -9]),
        (dict(positions=[[0.5, 2.25, 0, 1, -1.5]]), [0.5, 2.25, 0, 1, -1.5]),
    ],
    ids=str,
)
def test_pairs_are_turned(layout, rotary_dim, call, positions):
    x = numbers(2, 5, 3, 8)
    arguments = dict(layout=layout, rotary_dim=rotary_dim, max_wavelength=500.0)
    result = turn(x, call, **arguments)
    assert_close(result, turned(x, positions, **arguments), x)
    if rotary_dim is not None:
        np.testing.assert_array_equal(result[..., rotary_dim:], x[..., rotary_dim:])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axis", [2, -2])
def test_heads_may_come_first(layout, axis):
    x = numbers(2, 5, 3, 8)
    first = x.transpose(0, 2, 1, 3)
    call = dict(positions=np.array([[0, 1, 2, 3, 4], [9, 8, 7, 6, 5]]))
    result = turn(first, call, layout=layout, sequence_axis=axis)
    expected = turn(x, call, layout=layout)
    np.testing.assert_array_equal(result, expected.transpose(0, 2, 1, 3))


def test_other_ranks():
    x = numbers(2, 5, 3, 8)
    np.testing.assert_array_equal(turn(x[:, :, 0]), turn(x)[:, :, 0])
    stacked = np.stack([x, 2 * x], axis=2)
    np.testing.assert_array_equal(turn(stacked)[:, :, 1], 2 * turn(x))


def test_each_row_of_a_batch_has_its_own_positions():
    x = numbers(1, 4, 3, 8).repeat(2, axis=0)
    result = turn(x, dict(start_index=[0, 6]))
    assert_close(result[0], turned(x, range(4))[0], x)
    assert_close(result[1], turned(x, range(6, 10))[1], x)
    mask = np.array([[False, False, True, True], [True] * 4])
    result = turn(x, dict(positions=positions_from_mask(mask)))
    assert_close(result[0], turned(x, [0, 0, 0, 1])[0], x)


def test_no_number_gives_nan_in_its_own_step():
    result = turn(numbers(1, 3, 2, 8), dict(positions=[0.0, np.nan, np.inf]))
    assert np.isfinite(result[:, 0]).all() and np.isnan(result[:, 1:]).all()


def test_position_zero_turns_nothing():
    x = numbers(2, 1, 3, 8)
    for layout in LAYOUTS:
        np.testing.assert_array_equal(turn(x, layout=layout), x)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("dtype", "error"),
    [("float16", 2**-11), ("mixed_bfloat16", 2**-8), ("bfloat16", 2**-8)],
)
def test_half_types_are_rounded_once(layout, dtype, error):
    """Also in sums that nearly cancel out, where a half-precision product is lost."""
    x = numbers(1, 300, 2, 16)
    x = ops.convert_to_numpy(ops.cast(ops.cast(x, dtype[-8:]), "float32"))
    call = dict(start_index=np.array(FAR))
    truth = turned(x, range(FAR, FAR + 300), layout=layout)
    result = turn(x, call, layout=layout, dtype=dtype)
    assert (np.abs(result - truth) <= error * np.abs(truth) + 3e-6).all()


def test_float64():
    # JAX has none unless it is asked to: it turns in float32 then.
    error = 2e-6 if keras.config.backend() == "jax" else 1e-8
    x = np.random.default_rng(0).normal(size=(1, 40, 2, 8))
    layer = RotaryEmbedding(dtype="float64")
    for start in (0, np.array(FAR - 40)):
        result = ops.convert_to_numpy(layer(x, start_index=start))
        expected = turned(x, range(int(start), int(start) + 40))
        np.testing.assert_allclose(result, expected, rtol=0, atol=error)


# What it is for.


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("start", [0, FAR, 2**30 - 20])
def test_lengths_stay(layout, start):
    x = numbers(1, 20, 2, 64)
    result = turn(x, dict(start_index=np.array(start)), layout=layout)
    lengths = [np.linalg.norm(part, axis=-1) for part in (result, x)]
    np.testing.assert_allclose(*lengths, rtol=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("dtype", "error"), [("float32", 2e-6), ("float16", 2e-3), ("mixed_bfloat16", 1e-2)]
)
def test_products_depend_on_the_distance_alone(layout, dtype, error):
    query, key = numbers(1, 1, 1, 64), numbers(1, 1, 1, 64, seed=1)
    size = np.linalg.norm(query) * np.linalg.norm(key)
    for distance in (0, 1, 17, 300):
        products = []
        for first in (0, 1000, FAR):
            starts = first, first + distance
            q, k = (
                turn(x, dict(start_index=start), layout=layout, dtype=dtype)
                for x, start in zip((query, key), starts, strict=True)
            )
            products.append((q * k).sum() / size)
        assert np.ptp(products) <= error


def test_steps_of_a_cache_are_those_of_the_whole():
    x, layer = numbers(2, 12, 3, 8), RotaryEmbedding(scaling=LLAMA)
    whole = ops.convert_to_numpy(layer(x, start_index=FAR))
    for step in range(12):
        start = ops.convert_to_tensor(np.array(FAR + step, "int32"))
        found = ops.convert_to_numpy(layer(x[:, step : step + 1], start_index=start))
        np.testing.assert_allclose(found[:, 0], whole[:, step], rtol=0, atol=3e-6)


# Scalings.


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("scaling", [LLAMA, YARN, {"type": "linear", "factor": 3.0}])
@pytest.mark.parametrize("start", [0, np.array(FAR)], ids=["known", "tensor"])
@pytest.mark.parametrize("width", [16, 19])
def test_scaled_rates_turn(layout, scaling, start, width):
    x = numbers(1, 6, 2, width)
    made = scaled_rates(16, 500.0, check_scaling(scaling))
    assert (made.attention_factor != 1) == (scaling is YARN)
    arguments = dict(layout=layout, max_wavelength=500.0, scaling=scaling)
    if width > 16:
        arguments["rotary_dim"] = 16
    result = turn(x, dict(start_index=start), **arguments)
    angles = (int(start) + np.arange(6))[:, None] * made.rates
    for pair, angle in enumerate(angles.T):
        i, j = (pair, pair + 8) if layout == "halves" else (2 * pair, 2 * pair + 1)
        cosine, sine = np.cos(angle)[:, None], np.sin(angle)[:, None]
        expected = x[..., i] * cosine - x[..., j] * sine
        error = np.abs(result[..., i] - expected * made.attention_factor).max()
        assert error <= 3e-6
        expected = x[..., j] * cosine + x[..., i] * sine
        error = np.abs(result[..., j] - expected * made.attention_factor).max()
        assert error <= 3e-6


def test_the_default_scaling_is_none():
    x = numbers(1, 6, 2, 16)
    for start in (0, np.array(FAR)):
        call = dict(start_index=start)
        expected = turn(x, call)
        result = turn(x, call, scaling={"rope_type": "default"})
        np.testing.assert_array_equal(result, expected)


def test_a_later_change_of_the_scaling_changes_no_layer():
    given = {"type": "linear", "factor": 3.0}
    layer = RotaryEmbedding(scaling=given)
    given["factor"] = 9.0
    config = layer.get_config()
    assert config["scaling"] == {"rope_type": "linear", "factor": 3.0}
    config["scaling"]["factor"] = 9.0
    assert layer.get_config()["scaling"]["factor"] == 3.0
    assert RotaryEmbedding.from_config(config).scaling["factor"] == 9.0


# Beside others: head 0 of the input `sin(1 + k)`, k = 0, 1 ... over (1, 3, 2, 8), at
# the positions 0, 5 and 1000.

WAVE = np.sin(1 + np.arange(48)).astype("float32").reshape(1, 3, 2, 8)
PLACES = [0, 5, 1000]
OTHERS = {
    # transformers 5.24.0 on torch 2.13.0: `LlamaRotaryEmbedding` and
    # `apply_rotary_pos_emb` of modeling_llama. keras-hub 0.32.0 on TensorFlow 2.21,
    # `RotaryEmbedding()`, gives the same to 1.5e-7.
    "Llama 2": ({}, [
        [0.84147096, 0.90929741, 0.14112, -0.7568025,
         -0.95892429, -0.27941549, 0.65698659, 0.98935825],
        [0.52957726, -0.65480971, 0.19198328, 0.91746169,
         1.159235, -0.36781022, -0.83767211, -0.90100235],
        [1.09445798, 0.60630888, 0.88360089, -1.16285145,
         0.46489429, -0.01234511, -0.57575279, -0.43196675]]),
    # As there, of a config with `rope_theta` 500000 and the scaling LLAMA.
    "Llama 3": ({"max_wavelength": 5e5, "scaling": LLAMA}, [
        [0.84147096, 0.90929741, 0.14112, -0.7568025,
         -0.95892429, -0.27941549, 0.65698659, 0.98935825],
        [0.52957726, -0.75057179, 0.15062511, 0.91297537,
         1.159235, -0.02649827, -0.84608763, -0.90554804],
        [1.09445798, 0.29019263, -0.59100026, -0.9967103,
         0.46489429, -0.53249514, 0.87347615, 0.73850352]]),
    # As there, with the scaling YARN, whose attention factor is 1.1386. keras-hub,
    # `RotaryEmbedding(rope_type="yarn", scaling_factor=4.0,
    # original_max_position_embeddings=64)`, gives the same to 1.5e-7.
    "YaRN": ({"scaling": YARN}, [
        [0.95812362, 1.03535283, 0.16068339, -0.86171758,
         -1.09185946, -0.3181507, 0.74806428, 1.12651241],
        [0.6029923, -0.81058359, 0.18268511, 1.04079449,
         1.31993902, -0.27247974, -0.96132308, -1.02981806],
        [1.24618208, 0.67950177, -0.2661761, -1.30406189,
         0.52934241, 0.12277386, -1.17095947, 0.54264736]]),
    # As there, `create_sinusoidal_positions(2048, 4)` and `apply_rotary_pos_emb` of
    # modeling_gptj on the first four features.
    "GPT-J": ({"layout": "interleaved", "rotary_dim": 4}, [
        [0.84147096, 0.90929741, 0.14112, -0.7568025,
         -0.95892429, -0.27941549, 0.65698659, 0.98935825],
        [-0.99285203, 0.70888066, 0.10406166, 0.91929507,
         0.83665562, -0.00885131, -0.84622043, -0.90557837],
        [0.12484178, 1.12435174, -0.18027276, 1.06511378,
         -0.64353812, 0.29636857, 0.9637954, 0.74511343]]),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_others_turn_so_too(name):
    arguments, expected = OTHERS[name]
    result = turn(WAVE, dict(positions=PLACES), **arguments)
    np.testing.assert_allclose(result[0, :, 0], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "ours"), [("float32", 3e-7), ("mixed_bfloat16", 4e-3)]
)
def test_far_from_the_start_ours_is_the_truth(dtype, ours):
    # keras-hub 0.32.0 on TensorFlow 2.21, `RotaryEmbedding` on the same ones: 0.031 in
    # float32, 0.033 under mixed_bfloat16. The cosines of transformers 5.24.0 for Llama
    # on torch 2.13.0 are 0.022 off.
    x = np.ones((1, 64, 1, 64), "float32")
    truth = turned(x, range(FAR, FAR + 64))
    for start in (FAR, np.array([FAR])):
        result = turn(x, dict(start_index=start), dtype=dtype)
        assert np.abs(result - truth).max() <= ours


# In graphs.


@pytest.mark.tensorflow
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("jit_compile", [False, True])
def test_sizes_known_only_in_a_graph(tf, layout, jit_compile):
    layer = RotaryEmbedding(layout=layout, rotary_dim=4, sequence_axis=2)
    specs = [tf.TensorSpec((None, None, None, 6)), tf.TensorSpec((None,), tf.int32)]
    call = tf.function(
        lambda x, start: layer(x, start_index=start),
        input_signature=specs,
        jit_compile=jit_compile,
    )
    for heads, time in ((2, 3), (3, 1), (1, 600), (2, 0)):
        x = numbers(2, heads, time, 6)
        result = call(x, tf.constant([0, FAR])).numpy().transpose(0, 2, 1, 3)
        x = x.transpose(0, 2, 1, 3)
        for row, start in enumerate((0, FAR)):
            positions = range(start, start + time)
            expected = turned(x, positions, layout=layout, rotary_dim=4)[row]
            np.testing.assert_allclose(result[row], expected, rtol=0, atol=3e-6)
    assert call.experimental_get_tracing_count() == 1
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)):
        call(tf.zeros((2, 1, 3, 6)), tf.zeros((3,), tf.int32))


@pytest.mark.tensorflow
@pytest.mark.parametrize("scaling", [None, LLAMA])
@pytest.mark.parametrize(("time", "held"), [(4096, True), (4097, False)])
def test_a_graph_holds_4_mib_of_rows_at_most(tf, scaling, time, held):
    layer = RotaryEmbedding(scaling=scaling)
    call = tf.function(lambda x: layer(x))
    graph = call.get_concrete_function(tf.TensorSpec((1, time, 256))).graph
    sizes = [
        operation.outputs[0].shape.num_elements()
        for operation in graph.get_operations()
        if operation.type == "Const"
    ]
    assert (max(sizes) == time * 256) == held and max(sizes) <= 2**20


@pytest.mark.tensorflow
def test_no_product_of_matrices(tf):
    """Which a GPU may round to TF32, and a TPU to bfloat16."""
    for layout in LAYOUTS:
        layer = RotaryEmbedding(layout=layout, scaling=LLAMA)
        call = tf.function(lambda x, start, layer=layer: layer(x, start_index=start))
        graph = call.get_concrete_function(tf.zeros((2, 5, 3, 8)), tf.constant(3)).graph
        kinds = {operation.type for operation in graph.get_operations()}
        assert not {kind for kind in kinds if "MatMul" in kind or "Einsum" in kind}


# What is refused.


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        (dict(rotary_dim=3), "`rotary_dim` must be even, or None. Received"),
        (dict(rotary_dim=0), "`rotary_dim` must be an integer of at least 2"),
        (dict(rotary_dim=-2), "`rotary_dim` must be an integer of at least 2"),
        (dict(rotary_dim=4.0), "`rotary_dim` must be an integer of at least 2"),
        (dict(rotary_dim=True), "`rotary_dim` must be an integer of at least 2"),
        (dict(sequence_axis=0), r"`sequence_axis` must not be .* Received: seq.*=0"),
        (dict(sequence_axis=-1), r"`sequence_axis` must not be .* Received: seq.*=-1"),
        (dict(sequence_axis=1.5), "`sequence_axis` must be an integer"),
        (dict(sequence_axis=None), "`sequence_axis` must be an integer"),
        (dict(layout="llama"), "`layout` must be one of 'interleaved', 'halves'"),
        (dict(max_wavelength=0), "`max_wavelength` must be a finite real number"),
        (dict(max_wavelength=1, scaling=YARN), "above 1 where there is a `scaling`"),
        (dict(scaling="linear"), "`scaling` must be a dict"),
        (dict(scaling={"type": "linear"}), "`scaling` .* lacks factor. It must"),
        (dict(scaling={"type": "dynamic", "factor": 2.0}), "`scaling` .*'dynamic'"),
    ],
    ids=str,
)
def test_bad_arguments_are_refused(kwargs, message):
    with pytest.raises(ValueError, match=message):
        RotaryEmbedding(**kwargs)


@pytest.mark.parametrize(
    ("kwargs", "shape", "message"),
    [
        ({}, (2, 3, 7), "an even dim, or an even `rotary_dim`. Received: inputs of"),
        ({}, (2, 8), "takes inputs of rank 3 or more"),
        ({}, (2, 3, 0), "with a known dim"),
        (dict(rotary_dim=10), (2, 3, 4, 8), "`rotary_dim` must be at most the dim"),
        (dict(sequence_axis=3), (2, 3, 4, 8), r"in 1..2 or -3..-2. Received: seq"),
        (dict(sequence_axis=2), (2, 3, 8), r"in 1..1 or -2..-2. Received: seq"),
        (dict(sequence_axis=-4), (2, 3, 4, 8), r"in 1..2 or -3..-2. Received: seq"),
        (dict(sequence_axis=9), (2, 3, 4, 8), r"in 1..2 or -3..-2. Received: seq"),
    ],
    ids=str,
)
def test_bad_inputs_are_refused(kwargs, shape, message):
    layer = RotaryEmbedding(**kwargs)
    message = f"RotaryEmbedding layer 'rotary.*{message}"
    for x in (np.ones(shape, "float32"), keras.KerasTensor(shape)):
        with pytest.raises(ValueError, match=message):
            layer(x)
    with pytest.raises(ValueError, match=message):
        layer.compute_output_shape(shape)


def test_ids_are_refused():
    with pytest.raises(ValueError, match=r"a float tensor: a query or a key, .*int32"):
        RotaryEmbedding()(np.ones((2, 3, 8), "int32"))


def test_another_input_than_the_first_is_looked_at_too():
    layer = RotaryEmbedding()
    layer(np.ones((1, 2, 3, 8), "float32"))
    with pytest.raises(ValueError, match="an even dim"):
        layer(np.ones((1, 2, 3, 7), "float32"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (dict(positions=[0, 1]), "`positions` must be of shape"),
        (dict(positions=[4]), "`positions` must be of shape"),
        (dict(positions=[[0, 1, 2]] * 3), "`positions` must be of shape"),
        (dict(positions=[0, 1, 2], start_index=1), "not both"),
        (dict(start_index=[0, 1, 2]), "`start_index` must be of shape"),
        (dict(start_index=2**31 - 2), "Received: 3 steps from position 2147483646"),
        (dict(positions=[0, 1, 2**31]), "must lie in"),
    ],
    ids=str,
)
def test_bad_positions_are_refused(call, message):
    with pytest.raises(ValueError, match=f"RotaryEmbedding layer.*{message}"):
        RotaryEmbedding()(np.ones((2, 3, 4, 8), "float32"), **call)
