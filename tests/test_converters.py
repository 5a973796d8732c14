"""LiteRT and ONNX files give what Keras does, at lengths that no export has seen."""

from functools import partial

import keras
import numpy as np
import pytest
from classifier import example
from converters import (
    CONVERTERS,
    check_builtin,
    check_labels,
    check_never_wrong,
    check_order_matters,
    check_padding,
    check_quantized,
    check_same,
    run_keras,
    run_litert,
    run_onnx,
    saved_model_to_litert,
    to_litert,
    to_onnx,
)
from likeness import first_of

from keras_pe import (
    ALiBi,
    AxialPositionalEncoding,
    LearnedPositionalEncoding,
    MultiHeadAttention,
    PositionalEncoding,
    RelativePositionBias,
    RotaryEmbedding,
    sinusoidal_encoding,
)

pytestmark = pytest.mark.tensorflow

VOCABULARY = 20
SHAPES = [(1, 1), (2, 3), (3, 70), (1, 300), (5, 7)]


def make_ids(batch, time, seed=0):
    """Rows of ids, padded to one length: each row keeps a step at least."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(1, VOCABULARY, (batch, time))
    kept = np.arange(time) < rng.integers(1, time + 1, (batch, 1))
    return (ids * kept).astype("int32")


def make_classifier():
    """The classifier of the example, untrained."""
    args = example.make_parser().parse_args(["--dropout", "0"])
    return example.make_classifier(VOCABULARY, 3, args)


@pytest.fixture(scope="module")
def classifier():
    """Knows the first id of a row modulo 3, most of the time: so it knows positions."""
    keras.utils.set_random_seed(0)
    model = make_classifier()
    ids = make_ids(1000, 10)
    labels = np.random.default_rng(1).integers(0, 3, len(ids))
    labels = np.where(np.arange(len(ids)) % 5, ids[:, 0] % 3, labels)
    loss = "sparse_categorical_crossentropy"
    model.compile(keras.optimizers.AdamW(5e-3), loss, jit_compile=False)
    model.fit(ids, labels, batch_size=50, epochs=5, verbose=0)
    return model


@pytest.fixture(scope="module")
def converted(classifier, tmp_path_factory):
    """The classifier in each format, its batch and length unknown."""
    folder = tmp_path_factory.mktemp("classifier")
    classifier.export(folder, verbose=False)
    return {
        "litert": saved_model_to_litert(folder),
        "litert, eight bits": saved_model_to_litert(folder, quantize=True),
        "onnx": to_onnx(classifier),
    }


@pytest.fixture(params=first_of(CONVERTERS))
def run(request, converted):
    return partial(CONVERTERS[request.param][1], converted[request.param])


@pytest.mark.long
def test_classifier(classifier, run):
    inputs = [{"ids": make_ids(*shape)} for shape in SHAPES]
    check_same(run, partial(run_keras, classifier), inputs, atol=1e-5)
    check_padding(run)
    check_order_matters(run)


def test_classifier_of_known_length_in_lite_rt(tf, classifier):
    content = to_litert(classifier, [tf.TensorSpec((None, 20), tf.int32, "ids")])
    check_builtin(content)
    run = partial(run_litert, content)
    inputs = [{"ids": make_ids(batch, 20)} for batch in (1, 4)]
    check_same(run, partial(run_keras, classifier), inputs, atol=1e-5)
    with pytest.raises(AssertionError, match="does not run"):
        check_same(run, None, [{"ids": make_ids(1, 1)}], atol=1e-5)


def test_classifier_with_weights_of_eight_bits(classifier, converted):
    content = converted["litert, eight bits"]
    check_builtin(content)
    check_quantized(content, converted["litert"])
    run = partial(run_litert, content)
    inputs = {"ids": make_ids(300, 10, seed=2)}
    expected = run_keras(classifier, inputs)
    assert expected.std() > 0.2
    check_same(run, lambda arrays: expected, [inputs], atol=0.02)
    check_labels(run(inputs), expected)
    check_padding(run)
    check_order_matters(run)


# The layer alone.


def make(shape=(None, 8), second=None, layer=PositionalEncoding, **kwargs):
    """The layer as a model: of `x`, and of `positions` or `start_index` if wanted."""
    x, layer = keras.Input(shape, name="x"), layer(**kwargs)
    if second is None:
        return keras.Model(x, layer(x))
    shape = (None, None) if second == "positions" else ()
    given = keras.Input(batch_shape=shape, dtype="int32", name=second)
    return keras.Model([x, given], layer(x, **{second: given}))


def make_arrays(batch, *sizes, **second):
    x = np.random.default_rng(sum(sizes)).normal(size=(batch, *sizes, 8))
    x = x.astype("float32")
    second = {name: np.asarray(value, "int32") for name, value in second.items()}
    return {"x": x, **second}


def expect(arrays):
    """The input plus its rows. No row is right where positions do not fit the input."""
    x = arrays["x"]
    steps = np.arange(x.shape[1]) + arrays.get("start_index", 0)
    positions = arrays.get("positions", steps)
    if positions.shape[-1] != x.shape[1]:
        return np.full_like(x, np.nan)
    return x + np.array(sinusoidal_encoding(positions, 8))


UNSEEN = [make_arrays(*shape) for shape in SHAPES]
POSITIONS = np.array([[7, 3, 0], [49, 2, 2]])
LAYERS = {
    "any": (make, UNSEEN, []),
    "known": (
        lambda: make((16, 8)),
        [make_arrays(1, 16), make_arrays(5, 16)],
        [make_arrays(1, time) for time in (1, 3, 70)],
    ),
    "one": (
        lambda: make(max_length=1),
        [make_arrays(1, 1), make_arrays(3, 1)],
        [make_arrays(2, 2), make_arrays(1, 3), make_arrays(3, 3)],
    ),
    "limit": (
        lambda: make(max_length=70),
        [make_arrays(2, 3), make_arrays(2, 70)],
        [make_arrays(1, 71), make_arrays(1, 300)],
    ),
    "positions": (
        lambda: make(second="positions"),
        [make_arrays(2, 3, positions=POSITIONS), make_arrays(1, 1, positions=[[9]])],
        [make_arrays(2, 3, positions=[[1]]), make_arrays(2, 3, positions=[[1, 2]])],
    ),
    "positions, limit": (
        lambda: make(second="positions", max_length=50),
        [make_arrays(2, 3, positions=POSITIONS), make_arrays(1, 1, positions=[[9]])],
        [make_arrays(1, 3, positions=[[2, bad, 3]]) for bad in (50, 51, 300, -1)],
    ),
    "start": (
        lambda: make(second="start_index"),
        [make_arrays(*shape, start_index=40) for shape in SHAPES],
        [],
    ),
    "start, limit": (
        lambda: make(second="start_index", max_length=50),
        [make_arrays(2, 3, start_index=4), make_arrays(1, 10, start_index=40)],
        [make_arrays(1, 3, start_index=start) for start in (48, 50, 300, -1)],
    ),
}


@pytest.mark.parametrize("format", CONVERTERS)
@pytest.mark.parametrize("name", first_of(LAYERS, 3))
def test_layer(name, format):
    make_model, good, bad = LAYERS[name]
    convert, run = CONVERTERS[format]
    content = convert(make_model())
    if format == "litert":
        check_builtin(content)
    run = partial(run, content)
    check_same(run, expect, good, atol=1e-6)
    for arrays in bad:
        check_never_wrong(run, arrays, expect(arrays))


# The other layers, beside themselves in Keras.


def make_learned(max_length=50, **kwargs):
    kwargs = {"initializer": keras.initializers.RandomNormal(seed=0), **kwargs}
    return make(layer=LearnedPositionalEncoding, max_length=max_length, **kwargs)


def make_rotary(shape, **kwargs):
    return make(shape, layer=RotaryEmbedding, **kwargs)


HEADS_FIRST = {
    "layout": "interleaved",
    "rotary_dim": 6,
    "sequence_axis": 2,
    "scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 64},
}
OTHERS = {
    "axial": (
        partial(make, (None, None, 8), layer=AxialPositionalEncoding),
        [make_arrays(2, *sizes) for sizes in ((1, 1), (3, 70), (40, 5))],
    ),
    "learned": (make_learned, [make_arrays(2, time) for time in (1, 3, 50)]),
    "learned, positions": (
        partial(make_learned, second="positions"),
        [make_arrays(2, 3, positions=POSITIONS), make_arrays(1, 1, positions=[[9]])],
    ),
    "rotary": (
        partial(make_rotary, (None, 2, 8)),
        [make_arrays(2, time, 2) for time in (1, 3, 70, 300)],
    ),
    "rotary, every argument": (
        partial(make_rotary, (2, None, 8), **HEADS_FIRST),
        [make_arrays(2, 2, time) for time in (1, 3, 70, 300)],
    ),
    "rotary, start": (
        partial(make_rotary, (None, 2, 8), second="start_index"),
        [make_arrays(2, time, 2, start_index=40) for time in (1, 70)],
    ),
    "rotary, positions": (
        partial(make_rotary, (2, None, 8), second="positions", **HEADS_FIRST),
        [make_arrays(2, 2, 3, positions=POSITIONS)],
    ),
}


@pytest.mark.parametrize("format", CONVERTERS)
@pytest.mark.parametrize("name", first_of(OTHERS, 2))
def test_other_layers(name, format):
    make_model, inputs = OTHERS[name]
    model = make_model()
    convert, run = CONVERTERS[format]
    content = convert(model)
    if format == "litert":
        check_builtin(content)
    check_same(partial(run, content), partial(run_keras, model), inputs, atol=2e-6)


def make_attention(way):
    """Causal attention with positions of that way."""
    x = keras.Input((None, 8), name="x")
    bias = {"alibi": ALiBi, "relative": RelativePositionBias}.get(way)
    bias = None if bias is None else bias(num_heads=2)(x)
    rotary = RotaryEmbedding() if way == "rotary" else None
    layer = MultiHeadAttention(2, 4, rotary=rotary)
    return keras.Model(x, layer(x, x, bias=bias, use_causal_mask=True))


@pytest.mark.parametrize("format", CONVERTERS)
@pytest.mark.parametrize("way", first_of(["relative", "rotary", "alibi"]))
def test_attention(way, format):
    model = make_attention(way)
    convert, run = CONVERTERS[format]
    content = convert(model)
    if format == "litert":
        check_builtin(content)
    inputs = [make_arrays(2, time) for time in (1, 3, 70)]
    check_same(partial(run, content), partial(run_keras, model), inputs, atol=2e-6)


@pytest.mark.parametrize("format", CONVERTERS)
@pytest.mark.parametrize("second", first_of(["positions", "start_index", None]))
def test_beyond_the_learned_table(second, format):
    bad = {
        None: [make_arrays(1, 51), make_arrays(1, 300)],
        "positions": [make_arrays(1, 1, positions=[[p]]) for p in (50, 300, -1)],
        "start_index": [make_arrays(1, 1, start_index=p) for p in (50, 300, -1)],
    }
    convert, run = CONVERTERS[format]
    content = convert(make_learned(second=second))
    for arrays in bad[second]:
        x = arrays["x"]
        missing = np.full_like(x, np.nan)
        if second is None:
            table = make_learned().layers[-1].get_weights()[0]
            missing[:, :50] = x[:, :50] + table
        check_never_wrong(partial(run, content), arrays, missing)


@pytest.mark.parametrize("format", CONVERTERS)
def test_a_learned_table_of_one_row_is_not_that_of_all(format):
    model = make_learned(1)
    convert, run = CONVERTERS[format]
    run = partial(run, convert(model))
    check_same(run, partial(run_keras, model), [make_arrays(2, 1)], atol=1e-6)
    for arrays in (make_arrays(2, 3), make_arrays(1, 70)):
        check_never_wrong(run, arrays, np.full_like(arrays["x"], np.nan))


def test_large_table_in_onnx():
    """Over 4 MiB, tf2onnx makes it an input: the file asks for it, or is right."""
    run = partial(run_onnx, to_onnx(make(max_length=140_000)))
    check_never_wrong(run, UNSEEN[1], expect(UNSEEN[1]))


# Each check fails where it should.


@keras.saving.register_keras_serializable(package="keras_pe_tests")
class Frozen(keras.layers.Layer):
    """Has the rows of `length` steps; then the last of them, again and again."""

    length = 16

    def call(self, x):
        steps = keras.ops.arange(keras.ops.shape(x)[1], dtype="int32")
        steps = keras.ops.minimum(steps, self.length - 1)
        rows = keras.ops.convert_to_tensor(sinusoidal_encoding(np.arange(16), 8))
        return x + keras.ops.take(rows, steps, axis=0)


@pytest.mark.parametrize("format", CONVERTERS)
def test_frozen_length_is_found(format):
    x = keras.Input((None, 8), name="x")
    convert, run = CONVERTERS[format]
    run = partial(run, convert(keras.Model(x, Frozen()(x))))
    check_same(run, expect, [make_arrays(2, 16)], atol=1e-6)
    with pytest.raises(AssertionError, match="70"):
        check_same(run, expect, UNSEEN, atol=1e-6)
    with pytest.raises(AssertionError):
        check_never_wrong(run, UNSEEN[2], expect(UNSEEN[2]))


def test_one_row_for_all_is_found():
    arrays = make_arrays(2, 3)
    row = sinusoidal_encoding(np.arange(1), 8)
    with pytest.raises(AssertionError):
        check_never_wrong(
            lambda arrays: np.array(arrays["x"] + row), arrays, expect(arrays)
        )


def test_lost_mask_and_lost_order_are_found():
    ids = keras.Input((None,), dtype="int32", name="ids")
    x = keras.layers.Embedding(VOCABULARY, 8)(ids)
    x = keras.layers.GlobalAveragePooling1D()(x)
    model = keras.Model(ids, keras.layers.Dense(3, activation="softmax")(x))
    for check in (check_padding, check_order_matters):
        with pytest.raises(AssertionError):
            check(partial(run_keras, model))


def test_operators_of_tensorflow_are_found():
    """A layer in float16 needs them: LiteRT has no addition of that type."""
    x = keras.Input((None, 8), dtype="float16", name="x")
    model = keras.Model(x, PositionalEncoding(dtype="float16")(x))
    with pytest.raises(AssertionError, match="Flex"):
        check_builtin(to_litert(model))


def test_weights_and_labels_that_differ_are_found(converted):
    with pytest.raises(AssertionError):
        check_quantized(converted["litert"], converted["litert"])
    probabilities = np.array([[0.9, 0.1], [0.2, 0.8]])
    with pytest.raises(AssertionError):
        check_labels(1 - probabilities, probabilities)
