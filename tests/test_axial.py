"""The axial encoding: where on a grid a step is."""

import keras
import numpy as np
import pytest
from keras import ops
from oracle import formula_rows

from keras_pe import AxialPositionalEncoding, PositionalEncoding


def encode(shape, call=None, **kwargs):
    layer = AxialPositionalEncoding(**kwargs)
    result = layer(np.zeros(shape, "float32"), **(call or {}))
    return ops.convert_to_numpy(ops.cast(result, "float32"))


def grid_rows(places, widths, **kwargs):
    """The paper's formula on each axis, as loops: `places` `(n, axes)`."""
    parts = []
    for axis, width in enumerate(widths):
        parts.append(formula_rows([place[axis] for place in places], width, **kwargs))
    return np.concatenate(parts, axis=-1)


def places_of(*sizes):
    return list(np.ndindex(*sizes))


# Values.


@pytest.mark.parametrize(
    ("sizes", "d_model", "widths"),
    [
        ((5,), 7, [7]),
        ((4, 6), 8, [4, 4]),
        ((4, 6), 10, [6, 4]),
        ((4, 6), 7, [4, 3]),
        ((4, 6), 3, [2, 1]),
        ((3, 1, 4), 12, [4, 4, 4]),
        ((3, 2, 4), 16, [6, 6, 4]),
        ((2, 3, 2, 2), 9, [4, 2, 2, 1]),
    ],
    ids=str,
)
@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_each_axis_has_its_channels(sizes, d_model, widths, layout):
    result = encode((2, *sizes, d_model), layout=layout, max_wavelength=300)
    kwargs = dict(max_wavelength=300, layout=layout)
    expected = grid_rows(places_of(*sizes), widths, **kwargs)
    expected = expected.reshape(*sizes, d_model)
    np.testing.assert_allclose(result[0], expected, rtol=0, atol=3e-7)
    np.testing.assert_array_equal(result[1], result[0])


def test_it_adds():
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 8)).astype("float32")
    result = ops.convert_to_numpy(AxialPositionalEncoding()(x))
    np.testing.assert_allclose(result, x + encode(x.shape), rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16", "mixed_bfloat16", "float64"])
def test_one_axis_is_the_positional_encoding(dtype):
    x = np.random.default_rng(0).normal(size=(2, 300, 9)).astype("float32")
    layers = [cls(dtype=dtype) for cls in (AxialPositionalEncoding, PositionalEncoding)]
    results = [ops.convert_to_numpy(ops.cast(layer(x), "float32")) for layer in layers]
    np.testing.assert_array_equal(*results)


def test_axes_are_chosen_and_the_others_share_the_rows():
    result = encode((2, 3, 4, 5, 8), axes=[1, 3])
    expected = grid_rows(places_of(3, 5), [4, 4]).reshape(3, 1, 5, 8)
    np.testing.assert_allclose(
        result[0], np.broadcast_to(expected, (3, 4, 5, 8)), rtol=0, atol=3e-7
    )
    np.testing.assert_array_equal(encode((2, 3, 4, 5, 8), axes=[-4, -2]), result)
    time = encode((2, 3, 4, 8), axes=1)
    np.testing.assert_array_equal(time[:, :, :1], encode((2, 3, 1, 8), axes=1))
    np.testing.assert_array_equal(time, np.repeat(time[:, :, :1], 4, axis=2))
    last = ops.convert_to_numpy(PositionalEncoding()(np.zeros((2, 3, 4, 8), "float32")))
    np.testing.assert_array_equal(encode((2, 3, 4, 8), axes=-2), last)


def test_rows_of_a_channel_or_two_depend_on_one_axis():
    result = encode((1, 5, 6, 12))[0]
    assert (result[:, :1, :6] == result[:, :, :6]).all()
    assert (result[:1, :, 6:] == result[:, :, 6:]).all()


# Positions.


PLACES = np.array([[[0, 0], [2, 5], [-1, 7]], [[100, 3], [0, 1], [9, 9]]])


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
def test_positions(dtype):
    places = PLACES.astype(dtype)
    result = encode((2, 2, 3, 8), dict(positions=places))
    expected = grid_rows(PLACES.reshape(-1, 2).tolist(), [4, 4]).reshape(2, 3, 8)
    np.testing.assert_allclose(result[0], expected, rtol=0, atol=3e-7)
    np.testing.assert_array_equal(result[1], result[0])
    batch = np.stack([places, places[::-1]])
    result = encode((2, 2, 3, 8), dict(positions=batch))
    np.testing.assert_allclose(result[1], expected[::-1], rtol=0, atol=3e-7)


def test_fractions_and_what_is_no_number():
    places = np.array([[0.5, 2.0], [np.nan, 1.0]], "float32")[:, None]
    result = encode((1, 2, 1, 8), dict(positions=places))[0, :, 0]
    expected = grid_rows([(0.5, 2.0)], [4, 4])
    np.testing.assert_allclose(result[0], expected[0], rtol=0, atol=3e-7)
    assert np.isnan(result[1, :4]).all() and np.isfinite(result[1, 4:]).all()


def test_positions_share_the_axes_that_have_none():
    places = np.array([[3], [1], [4]])
    result = encode((2, 3, 5, 8), dict(positions=places), axes=1)
    expected = formula_rows([3, 1, 4], 8)[:, None].repeat(5, axis=1)
    np.testing.assert_allclose(result[0], expected, rtol=0, atol=3e-7)


def test_half_types_get_exact_positions():
    places = np.array([[[256, 2049], [257, 2050]]])
    result = encode((1, 1, 2, 8), dict(positions=places), dtype="mixed_bfloat16")
    expected = grid_rows(places[0].tolist(), [4, 4])
    np.testing.assert_allclose(result[0, 0], expected, rtol=0, atol=0.004)


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_sizes_known_only_in_a_graph(tf, jit_compile):
    layer = AxialPositionalEncoding()
    # XLA compiles for each size anew; the traced function knows none.
    spec = tf.TensorSpec((None, None, None, 8))
    call = tf.function(
        lambda x: layer(x), input_signature=[spec], jit_compile=jit_compile
    )
    for sizes in ((2, 3), (5, 1), (300, 4), (0, 2)):
        result = call(tf.zeros((2, *sizes, 8))).numpy()
        expected = grid_rows(places_of(*sizes), [4, 4]).reshape(*sizes, 8)
        np.testing.assert_allclose(result[1], expected, rtol=0, atol=3e-7)
    assert call.experimental_get_tracing_count() == 1


@pytest.mark.tensorflow
def test_positions_of_sizes_that_do_not_fit_in_a_graph(tf):
    layer = AxialPositionalEncoding()
    call = tf.function(
        lambda x, p: layer(x, positions=p),
        input_signature=[
            tf.TensorSpec((None, None, None, 8)),
            tf.TensorSpec((None, None, 2), tf.int32),
        ],
    )
    assert call(tf.zeros((2, 3, 4, 8)), tf.zeros((3, 4, 2), tf.int32)).shape[1] == 3
    for sizes in ((4, 3), (1, 4), (3, 1), (1, 1)):
        with pytest.raises(tf.errors.InvalidArgumentError, match="must fit the input"):
            call(tf.zeros((2, 3, 4, 8)), tf.zeros((*sizes, 2), tf.int32))


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("grid", "axes"), [((2, 3), 2), ((6, 1), 2), ((3, 2), 1), ((3, 2), 3), ((3, 2), 0)]
)
def test_compiled_positions_of_another_grid_are_no_places(tf, grid, axes):
    layer = AxialPositionalEncoding()
    call = tf.function(
        lambda x, p: layer(x, positions=p),
        input_signature=[
            tf.TensorSpec((None, None, None, 8)),
            tf.TensorSpec((None, None, None, None), tf.int32),
        ],
        jit_compile=True,
    )
    x = tf.zeros((1, 3, 2, 8))
    right = np.moveaxis(np.indices((3, 2), "int32"), 0, -1)[None]
    expected = layer(x).numpy()
    np.testing.assert_allclose(call(x, right).numpy(), expected, rtol=0, atol=3e-7)
    try:
        result = call(x, np.ones((1, *grid, axes), "int32")).numpy()
    except (tf.errors.InvalidArgumentError, ValueError):
        return
    assert np.isnan(result).all()


# The rows of positional-encodings 6.0.3 on TensorFlow 2.21, to 1.2e-7 at these sizes,
# where all axes have the same even number of channels. Else it gives each the larger
# number and cuts off what is too much: of 10 channels on two axes, 6 and 4 of 6, so
# that the rates of the second axis are others (0.18 apart on 5 x 6).


@pytest.mark.parametrize("sizes", [(7,), (5, 6), (3, 4, 5)])
def test_rows_are_those_of_positional_encodings(sizes):
    d_model = 24
    width = d_model // len(sizes)
    rates = 1 / 10000 ** (np.arange(0, width, 2) / width)
    table = np.zeros((*sizes, d_model))
    for place in np.ndindex(*sizes):
        for axis, step in enumerate(place):
            waves = np.stack([np.sin(step * rates), np.cos(step * rates)], -1).ravel()
            table[place][axis * width : (axis + 1) * width] = waves
    result = encode((1, *sizes, d_model))[0]
    np.testing.assert_allclose(result, table, rtol=0, atol=3e-7)


# What is refused.


@pytest.mark.parametrize("axes", [[], [1, 1], 1.5, True, "1", [1, "2"], [[1]], {1}])
def test_bad_axes_are_refused(axes):
    with pytest.raises(ValueError, match=r"`axes` must be None, or.*Received: axes="):
        AxialPositionalEncoding(axes=axes)


def test_a_config_is_a_copy():
    layer = AxialPositionalEncoding(axes=[1])
    layer.get_config()["axes"].append(2)
    assert layer.axes == [1]


def test_a_start_is_refused():
    with pytest.raises(
        ValueError, match=r"takes `positions` and no `start_index`.*Rec"
    ):
        AxialPositionalEncoding()(np.zeros((1, 2, 2, 4), "float32"), start_index=1)


@pytest.mark.parametrize(
    "axes", [0, 3, -1, -4, 4, [1, 3], [0, 1], [2, 1], [1, -3], [-1, 1]]
)
def test_axes_that_the_input_has_not_are_refused(axes):
    layer = AxialPositionalEncoding(axes=axes)
    message = r"layer 'axial.*`axes` must be in rising order.* in 1..2. Received: axes="
    with pytest.raises(ValueError, match=message):
        layer(np.zeros((1, 2, 3, 8), "float32"))
    with pytest.raises(ValueError, match=message):
        layer.compute_output_shape((None, 2, 3, 8))


@pytest.mark.parametrize(("shape", "needed"), [((1, 2, 2, 2), 3), ((1, 2, 2, 2, 4), 5)])
def test_too_few_channels_are_refused(shape, needed):
    with pytest.raises(ValueError, match=f"d_model of at least {needed}.*Received"):
        encode(shape)


@pytest.mark.parametrize(
    "positions",
    [
        np.zeros((2, 3), int),
        np.zeros((2, 3, 1), int),
        np.zeros((2, 3, 3), int),
        np.zeros((3, 2, 2), int),
        np.zeros((1, 3, 2), int),
        np.zeros((3, 2, 3, 2), int),
        np.zeros((1, 1, 2, 3, 2), int),
    ],
    ids=np.shape,
)
def test_positions_of_another_shape_are_refused(positions):
    message = r"`positions` must be of shape \(axis 1, axis 2, axes\) or .*Received"
    with pytest.raises(ValueError, match=message):
        encode((2, 2, 3, 8), dict(positions=positions))


def test_other_bad_calls_are_refused():
    layer = AxialPositionalEncoding()
    with pytest.raises(ValueError, match="takes a float tensor"):
        layer(np.zeros((1, 2, 2, 8), "int32"))
    with pytest.raises(ValueError, match=r"takes inputs of shape \(batch"):
        layer(np.zeros((2, 8), "float32"))
    with pytest.raises(ValueError, match="must lie in -2147483648"):
        encode((1, 1, 1, 8), dict(positions=[[[0, 2**31]]]))
    with pytest.raises((TypeError, ValueError), match="start_index"):
        encode((1, 1, 1, 8), dict(start_index=1))


def test_no_positions_is_the_default_of_a_symbolic_call():
    x = keras.Input((None, None, 8))
    positions = keras.Input((None, None, 2), dtype="int32")
    outputs = AxialPositionalEncoding()(x, positions=positions)
    model = keras.Model([x, positions], outputs)
    assert outputs.shape == (None, None, None, 8)
    places = np.array(PLACES[None], "int32")
    result = model.predict([np.zeros((1, 2, 3, 8), "float32"), places], verbose=0)
    expected = grid_rows(PLACES.reshape(-1, 2).tolist(), [4, 4]).reshape(1, 2, 3, 8)
    np.testing.assert_allclose(result, expected, rtol=0, atol=3e-7)
