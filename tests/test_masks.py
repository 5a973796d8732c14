"""Masks: they reach the next layer, and padding does not move a result."""

import warnings

import keras
import numpy as np
import pytest
from keras import ops

import keras_pe
from keras_pe import PositionalEncoding

IDS = np.array([[3, 4, 0, 0], [5, 0, 6, 7]], "int32")


@pytest.fixture(autouse=True)
def no_warning_of_a_lost_mask():
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*mask.*")
        yield


class Probe(keras.layers.Layer):
    """Gives back the mask that it gets, or -1."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs, mask=None):
        if mask is None:
            return ops.full(ops.shape(inputs)[:2], -1, dtype="int32")
        return ops.cast(mask, "int32")

    def compute_output_spec(self, inputs, mask=None):
        return keras.KerasTensor(inputs.shape[:2], dtype="int32")


def make_probed(max_length=None, autocast="float32", **kwargs):
    ids = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(9, 4, mask_zero=True, dtype=autocast)(ids)
    x = PositionalEncoding(max_length=max_length, dtype=autocast)(x, **kwargs)
    # Of the same dtype: to cast its input, Keras before 3.14 drops the mask.
    return keras.Model(ids, Probe(dtype=autocast)(x))


def check(mask, expected=IDS != 0):
    np.testing.assert_array_equal(ops.convert_to_numpy(mask), expected)


@pytest.mark.parametrize("max_length", [None, 4])
@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        dict(start_index=0),
        dict(start_index=np.array([0, 0], "int32")),
        dict(positions=[0, 1, 2, 3]),
        dict(positions=[[0.5, 1, 2, 3], [0, 1, 2, 3]]),
    ],
    ids=lambda kwargs: " ".join(kwargs),
)
def test_mask_reaches_the_next_layer(kwargs, max_length):
    embedding = keras.layers.Embedding(9, 4, mask_zero=True)
    layer = PositionalEncoding(max_length=max_length)
    check(Probe()(layer(embedding(IDS), **kwargs)))
    check(make_probed(max_length, **kwargs)(IDS))


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mask_survives_a_cast(policy):
    check(make_probed(autocast=policy)(IDS))


@pytest.mark.parametrize("jit_compile", [False, True])
def test_mask_reaches_the_next_layer_in_predict(jit_compile):
    model = make_probed()
    model.compile(jit_compile=jit_compile and keras.backend.backend() != "torch")
    check(model.predict(IDS, verbose=0))


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_mask_reaches_the_next_layer_in_a_graph(tf, jit_compile):
    embedding = keras.layers.Embedding(9, 4, mask_zero=True)
    layer, probe = PositionalEncoding(), Probe()

    @tf.function(
        input_signature=[tf.TensorSpec((None, None), tf.int32)], jit_compile=jit_compile
    )
    def find_mask(ids):
        return probe(layer(embedding(ids)))

    check(find_mask(tf.constant(IDS)))


def test_explicit_mask_is_passed_on():
    inputs, mask = np.zeros((2, 3, 4), "float32"), np.array([[1, 0, 1], [0, 0, 1]]) > 0
    for kwargs in ({}, dict(positions=[4, 5, 6]), dict(start_index=2)):
        check(Probe()(PositionalEncoding()(inputs, mask=mask, **kwargs)), mask)


def test_explicit_mask_wins():
    embedding = keras.layers.Embedding(9, 4, mask_zero=True)
    mask = ops.convert_to_tensor(np.array([[True, False, False, True]] * 2))
    check(Probe()(PositionalEncoding()(embedding(IDS), mask=mask)), mask)


def test_mask_of_a_functional_model_as_an_input():
    inputs, mask = keras.Input((None, 4)), keras.Input((None,), dtype="bool")
    model = keras.Model(
        [inputs, mask], Probe()(PositionalEncoding()(inputs, mask=mask))
    )
    given = IDS != 0
    check(model([np.zeros((2, 4, 4), "float32"), given]), given)


def test_no_mask_stays_no_mask():
    result = Probe()(PositionalEncoding()(np.zeros((2, 3, 4), "float32")))
    check(result, -np.ones((2, 3)))


def test_mask_moves_no_row():
    inputs = np.zeros((2, 4, 4), "float32")
    layer = PositionalEncoding()
    masked = layer(inputs, mask=ops.convert_to_tensor(IDS != 0))
    np.testing.assert_array_equal(
        ops.convert_to_numpy(masked), ops.convert_to_numpy(layer(inputs))
    )


# A whole classifier.


def make_classifier(residual):
    """Attention, and the mean of the kept steps: none of them must not divide by 0."""
    ids = keras.Input((None,), dtype="int32", name="ids")
    x = keras.layers.Embedding(9, 8, mask_zero=True)(ids)
    x = PositionalEncoding()(x)
    for _ in range(2):
        y = keras.layers.LayerNormalization()(x)
        y = keras.layers.MultiHeadAttention(2, 4)(y, y)
        x = residual(x, y)
    kept = ops.expand_dims(ops.cast(ops.not_equal(ids, 0), "float32"), -1)
    x = ops.sum(x * kept, axis=1) / ops.maximum(ops.sum(kept, axis=1), 1.0)
    return keras.Model(ids, keras.layers.Dense(3, activation="softmax")(x))


def add(x, y):
    return keras.layers.Add()([x, y])


def scores(model, rows):
    return [ops.convert_to_numpy(model(np.array([row], "int32")))[0] for row in rows]


TEXTS = [[5, 6], [5, 6, 0, 0, 0]]


def test_padding_moves_no_score():
    short, padded = scores(make_classifier(add), TEXTS)
    np.testing.assert_allclose(short, padded, rtol=0, atol=1e-5)


def test_positions_matter_to_the_score():
    one, other = scores(make_classifier(add), [[5, 6, 7], [7, 6, 5]])
    assert np.abs(one - other).max() > 1e-4


def test_a_residual_by_plus_loses_the_mask():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        short, padded = scores(make_classifier(lambda x, y: x + y), TEXTS)
    assert np.abs(short - padded).max() > 1e-4


@pytest.mark.parametrize("jit_compile", [False, True])
def test_padding_moves_no_score_in_predict(jit_compile):
    model = make_classifier(add)
    model.compile(jit_compile=jit_compile and keras.backend.backend() != "torch")
    short, padded = (model.predict(np.array([t]), verbose=0) for t in TEXTS)
    np.testing.assert_allclose(short, padded, rtol=0, atol=1e-5)


def test_an_empty_text_has_finite_scores():
    model = make_classifier(add)
    for result in scores(model, [[0], [0, 0, 0]]):
        np.testing.assert_allclose(result.sum(), 1, rtol=1e-5)
    # In a batch with others, it changes none of them.
    alone, empty = scores(model, [[5, 6], [0, 0]])
    both = ops.convert_to_numpy(model(np.array([[5, 6], [0, 0]], "int32")))
    np.testing.assert_allclose(both, [alone, empty], rtol=0, atol=1e-5)


@pytest.mark.tensorflow
def test_padding_moves_no_score_after_export(tf, tmp_path):
    model = make_classifier(add)
    model.export(tmp_path / "model", verbose=False)
    serve = tf.saved_model.load(tmp_path / "model").signatures["serving_default"]
    rows = [*TEXTS, [0], [0, 0]]
    served = [serve(ids=tf.constant([row]))["output_0"][0].numpy() for row in rows]
    np.testing.assert_allclose(served[0], served[1], rtol=0, atol=1e-5)
    np.testing.assert_allclose(served, scores(model, rows), rtol=0, atol=1e-5)
    assert np.isfinite(served).all()


# Positions that count the kept steps.


def test_left_padding():
    layer = PositionalEncoding()
    inputs = np.zeros((3, 4, 4), "float32")
    mask = np.array([[0, 0, 1, 1], [1, 1, 1, 1], [1, 0, 0, 1]]) > 0
    positions = keras_pe.positions_from_mask(mask)
    result = ops.convert_to_numpy(layer(inputs, positions=positions))
    rows = ops.convert_to_numpy(layer(inputs))[0]
    np.testing.assert_allclose(result[mask], rows[[0, 1, 0, 1, 2, 3, 0, 1]], atol=3e-7)


def test_left_padding_in_a_model_moves_no_kept_step():
    ids = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(9, 8, mask_zero=True)(ids)
    positions = keras_pe.positions_from_mask(ops.not_equal(ids, 0))
    x = PositionalEncoding()(x, positions=positions)
    x = keras.layers.MultiHeadAttention(2, 4)(x, x)
    model = keras.Model(ids, x)
    alone = ops.convert_to_numpy(model(np.array([[5, 6]], "int32")))
    padded = ops.convert_to_numpy(model(np.array([[0, 0, 0, 5, 6]], "int32")))
    np.testing.assert_allclose(padded[:, 3:], alone, rtol=0, atol=1e-5)


def test_a_cached_step_has_the_row_of_its_number():
    mask = np.array([[0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]]) > 0
    positions = keras_pe.positions_from_mask(mask, length=1)
    layer = PositionalEncoding()
    result = layer(np.zeros((2, 1, 4), "float32"), positions=positions)
    rows = ops.convert_to_numpy(layer(np.zeros((1, 6, 4), "float32")))[0]
    np.testing.assert_allclose(
        ops.convert_to_numpy(result), rows[[[4], [5]]], atol=3e-7
    )


def test_packed_segments_count_anew():
    layer = PositionalEncoding(max_length=3)
    positions = keras_pe.positions_from_segments([[7, 7, 9, 9, 9], [1, 2, 3, 3, 1]])
    result = layer(np.zeros((2, 5, 4), "float32"), positions=positions)
    rows = ops.convert_to_numpy(layer(np.zeros((1, 3, 4), "float32")))[0]
    expected = rows[[[0, 1, 0, 1, 2], [0, 0, 0, 1, 0]]]
    np.testing.assert_array_equal(ops.convert_to_numpy(result), expected)
