"""The document's two functions: the same names, the same bits."""

import inspect

import numpy as np
import pytest
from oracle import formula_rows

from keras_pe import get_angles, positional_encoding
from keras_pe.recipe import sinusoids

BAD_SIZES = [-1, 2.5, 4.0, True, np.True_, None, "8", [8]]


def document_get_angles(position, i, d_model):
    angle_rates = 1 / np.power(10000, (2 * (i // 2)) / np.float32(d_model))
    return position * angle_rates


def document_positional_encoding(position, d_model):
    import tensorflow as tf

    angle_rads = document_get_angles(
        np.arange(position)[:, np.newaxis], np.arange(d_model)[np.newaxis, :], d_model
    )

    # apply sin to even indices in the array; 2i
    angle_rads[:, 0::2] = np.sin(angle_rads[:, 0::2])

    # apply cos to odd indices in the array; 2i+1
    angle_rads[:, 1::2] = np.cos(angle_rads[:, 1::2])

    pos_encoding = angle_rads[np.newaxis, ...]

    return tf.cast(pos_encoding, dtype=tf.float32)


@pytest.mark.parametrize(
    ("ours", "names"),
    [
        (get_angles, ["position", "i", "d_model"]),
        (positional_encoding, ["position", "d_model"]),
    ],
)
def test_argument_names_are_the_documents(ours, names):
    assert list(inspect.signature(ours).parameters) == names


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("d_model", [1, 2, 3, 4, 5, 63, 64, 512, 1000, 4096])
def test_get_angles_has_the_documents_bits(d_model, dtype):
    position = np.arange(-300, 3000, 7, dtype)[:, np.newaxis]
    i = np.arange(d_model, dtype=dtype)[np.newaxis, :]
    ours = get_angles(position, i, d_model)
    np.testing.assert_array_equal(ours, document_get_angles(position, i, d_model))
    assert ours.dtype == "float64"


@pytest.mark.parametrize("kind", [np.longdouble, "float16", "int8", list])
def test_get_angles_is_float64_of_other_numbers_too(kind):
    position, i = np.arange(100), np.array(3)
    exact = get_angles(position, i, 6)
    if kind is list:
        given = position.tolist(), i.tolist()
    else:
        given = position.astype(kind), i.astype(kind)
    for ours in (get_angles(given[0], i, 6), get_angles(position, given[1], 6)):
        assert ours.dtype == "float64"
        np.testing.assert_array_equal(ours, exact)


@pytest.mark.parametrize(
    "position",
    [
        3,
        3.0,
        [3],
        (3.0,),
        np.float32(3),
        np.float16(3),
        np.int8(3),
        np.array([3], "uint8"),
        np.array([3], "int16"),
        np.array([[3]], "float32"),
        np.array(3, "int64"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("d_model", [6, np.int8(6), np.uint64(6)], ids=repr)
def test_get_angles_is_float64_for_every_input(position, d_model):
    angles = get_angles(position, np.arange(6, dtype="int8"), d_model)
    wanted = [3 / 10000 ** (2 * (i // 2) / 6) for i in range(6)]
    assert angles.dtype == "float64"
    assert angles.shape == (*np.shape(position)[:-1], 6)
    np.testing.assert_allclose(angles.reshape(6), wanted, rtol=1e-15)


@pytest.mark.parametrize("name", ["position", "i"])
@pytest.mark.parametrize("value", [1j, "1", None, True, [[1], [2, 3]], ["a"]], ids=repr)
def test_get_angles_refuses_what_is_not_real(name, value):
    arguments = {"position": 1, "i": 1, "d_model": 4, name: value}
    with pytest.raises(ValueError, match=f"`{name}` must be real. Received: {name}="):
        get_angles(**arguments)


@pytest.mark.filterwarnings("error")
def test_get_angles_far_from_the_channels():
    assert get_angles(5, -(10**9), 4) == np.inf
    assert get_angles(5, 10**9, 4) == 0
    assert np.isnan(get_angles(np.inf, 10**9, 4))


def test_get_angles_takes_numbers():
    angle = get_angles(7, 5, 8)
    assert angle.dtype == "float64"
    assert angle.shape == ()
    assert angle == pytest.approx(0.07, rel=1e-15)


def test_get_angles_keeps_fractions_and_signs():
    position = np.array([-2.25, 0.5])[:, np.newaxis]
    angles = get_angles(position, np.array([0, 3]), 4)
    np.testing.assert_allclose(angles, [[-2.25, -0.0225], [0.5, 0.005]], rtol=1e-15)


@pytest.mark.parametrize(
    ("position", "i", "shape"),
    [
        ((5, 1), (1, 8), (5, 8)),
        ((5, 1), (8,), (5, 8)),
        ((2, 3, 1), (8,), (2, 3, 8)),
        ((), (8,), (8,)),
        ((4,), (), (4,)),
        ((0, 1), (8,), (0, 8)),
    ],
)
def test_get_angles_broadcasts(position, i, shape):
    angles = get_angles(np.zeros(position, int), np.zeros(i, int), 8)
    assert angles.shape == shape


def test_get_angles_leaves_its_arguments_alone():
    position, i = np.arange(3.0)[:, np.newaxis], np.arange(4.0)
    get_angles(position, i, 4)
    np.testing.assert_array_equal(position[:, 0], [0, 1, 2])
    np.testing.assert_array_equal(i, [0, 1, 2, 3])


@pytest.mark.parametrize("d_model", [0, *BAD_SIZES], ids=repr)
def test_get_angles_refuses_a_bad_size(d_model):
    with pytest.raises(ValueError, match=r"`d_model` .* at least 1. Received: d_model"):
        get_angles(np.arange(3)[:, np.newaxis], np.arange(4), d_model)


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
@pytest.mark.parametrize("max_wavelength", [10000.0, 100.0, 0.5])
@pytest.mark.parametrize("d_model", [1, 2, 5, 8])
def test_sinusoids_are_the_formula(d_model, max_wavelength, layout):
    positions = [0, 1, 2, 7, 500, -3, 0.5]
    ours = sinusoids(positions, d_model, max_wavelength, layout)
    wanted = formula_rows(
        positions, d_model, max_wavelength=max_wavelength, layout=layout
    )
    error = np.abs(ours - wanted).max()
    assert ours.dtype == "float64"
    assert error < 1e-12, f"measured {error}"


@pytest.mark.tensorflow
@pytest.mark.parametrize("position", [0, 1, 2, 65, 1000])
@pytest.mark.parametrize("d_model", [1, 2, 3, 4, 5, 64, 127, 512])
def test_positional_encoding_has_the_documents_bits(position, d_model):
    import tensorflow as tf

    ours = positional_encoding(position, d_model)
    wanted = document_positional_encoding(position, d_model)
    assert isinstance(ours, tf.Tensor)
    assert ours.dtype == tf.float32
    assert ours.shape == (1, position, d_model)
    assert ours.numpy().tobytes() == wanted.numpy().tobytes()


@pytest.mark.tensorflow
def test_positional_encoding_takes_other_integers():
    ours = positional_encoding(np.int16(3), np.uint8(4)).numpy()
    np.testing.assert_array_equal(ours, positional_encoding(3, 4))


@pytest.mark.tensorflow
def test_positional_encoding_is_the_formula():
    error = np.abs(positional_encoding(1000, 6)[0] - formula_rows(range(1000), 6)).max()
    assert error <= 2**-25 + 1e-12, f"measured {error}"


@pytest.mark.tensorflow
def test_positional_encoding_is_fresh_each_time():
    import tensorflow as tf

    @tf.function
    def traced():
        return positional_encoding(5, 4)

    first = traced()
    # A tensor kept from the graph above could not be used out here.
    second, third = positional_encoding(5, 4), positional_encoding(5, 4)
    assert second is not third
    np.testing.assert_array_equal(first, second)


@pytest.mark.tensorflow
@pytest.mark.parametrize("position", BAD_SIZES, ids=repr)
def test_positional_encoding_refuses_a_bad_length(position):
    with pytest.raises(ValueError, match=r"`position` .* at least 0. Received: pos"):
        positional_encoding(position, 4)


@pytest.mark.tensorflow
@pytest.mark.parametrize("d_model", [0, *BAD_SIZES], ids=repr)
def test_positional_encoding_refuses_a_bad_size(d_model):
    with pytest.raises(ValueError, match=r"`d_model` .* at least 1. Received: d_model"):
        positional_encoding(3, d_model)


def test_channels_far_beyond_the_last_do_not_turn():
    found = get_angles(np.array([[3.0]]), np.array([[0, 1, 200]]), 1)
    np.testing.assert_array_equal(found, [[3.0, 3.0, 0.0]])
