"""The example's export and the golden SavedModel pass each rung; bad models fail it."""

import json
import shutil

import cpp_models
import keras
import ladder
import make_golden
import numpy as np
import pytest
from cpp import each_library
from likeness import first_of

import keras_pe
from keras_pe import warmup
from keras_pe.serving import export

pytestmark = pytest.mark.tensorflow

TEXTS = ["alpha w1 beta", "", "w3", "never seen words", "w1 alpha w2 beta " * 40]
IDS = [[5], [2, 3, 4, 5, 6], [], [*range(2, 12)] * 6]
OUTPUTS = {"label": ("string",), "probabilities": ("float32", 2)}


# What passes.


@pytest.fixture(scope="module")
def example(trained):
    """The example's first version, requests of several lengths, and Keras's answers."""
    model = keras.saving.load_model(trained / "out" / "model.keras")
    classifier = model.get_layer("classifier")
    requests = [("serving_default", {"text": texts}) for texts in (TEXTS, TEXTS[:1])]
    requests += [("serving_default", {"text": [text]}) for text in TEXTS]
    requests += [("serve_ids", {"ids": [row]}) for row in IDS if row]
    requests += [("serve_ids", {"ids": [IDS[1], IDS[1][::-1], [7, 8, 0, 0, 0]]})]
    answers = []
    for signature, inputs in requests:
        [(name, values)] = inputs.items()
        texts = signature == "serving_default"
        inputs[name] = np.array([v.encode() for v in values] if texts else values)
        inputs[name] = inputs[name].astype(object if texts else "int32")
        probabilities = np.array((model if texts else classifier)(values_of(inputs)))
        labels = np.array([[b"down", b"up"][i] for i in probabilities.argmax(-1)])
        answers.append({"label": labels.astype(object), "probabilities": probabilities})
    return trained / "saved" / "1", requests, answers


def values_of(inputs):
    import tensorflow as tf

    [array] = inputs.values()
    return tf.constant(array)


def golden(name):
    """A golden version, one request a text, and the oracle's answers."""
    folder = make_golden.folder(name)
    record = json.loads((folder / "expected.json").read_text("utf-8"))
    requests = [
        ("serving_default", {"ids": np.array([ids], "int32")}) for ids in record["ids"]
    ]
    answers = [{"scores": np.array([row], "float32")} for row in record["scores"]]
    return folder / "1", requests, answers


def test_static(example):
    ladder.static(
        example[0],
        {
            "serving_default": ({"text": ("string",)}, OUTPUTS),
            "serve_ids": ({"ids": ("int32", None)}, OUTPUTS),
        },
    )


def test_without_keras(example):
    ladder.without_keras(*example)


# The others' are asked by C++ below, which has no Keras either.
@pytest.mark.long
@pytest.mark.parametrize("name", ["sinusoidal", "attention"])
def test_golden_without_keras(name):
    ladder.without_keras(*golden(name))


@each_library
def test_in_cpp(example, libraries):
    ladder.in_cpp(*example, libraries)


@each_library
@pytest.mark.parametrize("name", first_of(make_golden.NAMES, 3))
def test_golden_in_cpp(name, libraries):
    ladder.in_cpp(*golden(name), libraries)


@pytest.mark.parametrize(
    ("signature", "rows"),
    [
        ("serving_default", [np.array(text.encode(), object) for text in TEXTS]),
        ("serve_ids", [np.array(ids, "int32") for ids in IDS]),
    ],
)
def test_alone(example, signature, rows):
    ladder.alone(example[0], signature, rows)


def test_warmup(example):
    ladder.warmup(example[0], records=16)


# What fails.


def refused(rung, *args, match):
    with pytest.raises(AssertionError, match=match):
        rung(*args)


@pytest.fixture
def doubles(tf, tmp_path):
    """A model that passes, to be made one that does not; with a request."""
    x = np.array([[1, 2], [3, 4]], "float32")
    inputs = keras.Input((2,), name="x")
    model = keras.Model(inputs, {"y": inputs * 2.0})
    version = export(model, tmp_path / "base", samples=x)
    return version, [("serving_default", {"x": x})], [{"y": x * 2}]


DOUBLES = {"serving_default": ({"x": ("float32", 2)}, {"y": ("float32", 2)})}


def write(path, function, shape=(None, 2), **more):
    import tensorflow as tf

    spec = tf.TensorSpec(shape, name="x")
    functions = {"serving_default": (lambda x: {"y": function(x)}, spec), **more}
    cpp_models.write(path, tf.Module(), **functions)


@pytest.mark.long
def test_the_model_that_is_made_bad_is_good(doubles):
    ladder.static(doubles[0], DOUBLES)
    ladder.without_keras(*doubles)
    ladder.in_cpp(*doubles)
    ladder.warmup(doubles[0], records=2)


@pytest.mark.parametrize(
    "signatures",
    [
        {"serving_default": ({"z": ("float32", 2)}, {"y": ("float32", 2)})},
        {"serving_default": ({"x": ("int32", 2)}, {"y": ("float32", 2)})},
        {"serving_default": ({"x": ("float32", None)}, {"y": ("float32", 2)})},
        {"serving_default": ({"x": ("float32", 2)}, {"output_0": ("float32", 2)})},
        {"serve": ({"x": ("float32", 2)}, {"y": ("float32", 2)})},
        {**DOUBLES, "more": ({"x": ("float32", 2)}, {"y": ("float32", 2)})},
    ],
    ids=["input", "dtype", "length", "output", "signature", "missing"],
)
def test_other_signatures_fail(doubles, signatures):
    refused(ladder.static, doubles[0], signatures, match="assert")


def test_batch_of_one_size_fails(tmp_path):
    write(tmp_path, lambda x: x * 2, shape=(4, 2))
    refused(ladder.static, tmp_path, DOUBLES, match="has a batch of 4")


def test_function_for_xla_fails(tf, tmp_path, doubles):
    write(tmp_path / "xla", tf.function(lambda x: x * 2, jit_compile=True))
    refused(ladder.static, tmp_path / "xla", DOUBLES, match="_XlaMustCompile")
    _, requests, answers = doubles
    match = "XLA compilation disabled"
    refused(ladder.in_cpp, tmp_path / "xla", requests, answers, match=match)


@pytest.mark.long
def test_function_of_python_fails(tf, tmp_path, doubles):
    def double(x):
        return tf.ensure_shape(
            tf.py_function(lambda x: x * 2, [x], "float32"), (None, 2)
        )

    write(tmp_path / "python", double)
    _, requests, answers = doubles
    refused(ladder.static, tmp_path / "python", DOUBLES, match="PyFunc")
    refused(
        ladder.without_keras, tmp_path / "python", requests, answers, match="pyfunc"
    )
    refused(ladder.in_cpp, tmp_path / "python", requests, answers, match="PyFunc")


@pytest.mark.long
def test_module_that_holds_a_model_fails_in_cpp_alone(tmp_path, doubles):
    _, requests, _ = doubles
    inputs = keras.Input((2,), name="x")
    model = keras.Model(inputs, keras.layers.Dense(2)(inputs))
    answers = [{"y": np.array(model(inputs["x"]))} for _, inputs in requests]
    cpp_models.write_held(tmp_path / "held", model)
    ladder.static(tmp_path / "held", DOUBLES)
    ladder.without_keras(tmp_path / "held", requests, answers)
    match = "Could not find variable"
    refused(ladder.in_cpp, tmp_path / "held", requests, answers, match=match)


def test_file_of_words_that_is_not_an_asset_fails_when_moved(tf, tmp_path):
    words = tmp_path / "words.txt"
    words.write_text("one\ntwo\n")

    def find(word):
        line = tf.strings.split(tf.io.read_file(str(words)), "\n")
        return {"line": tf.argmax(word[:, None] == line[None], axis=-1)}

    spec = tf.TensorSpec([None], "string", "word")
    cpp_models.write(tmp_path / "model", tf.Module(), serving_default=(find, spec))
    requests = [("serving_default", {"word": np.array([b"two"], object)})]
    answers = [{"line": np.array([1])}]
    ladder.in_cpp(tmp_path / "model", requests, answers)
    words.unlink()
    match = "No such file"
    refused(ladder.in_cpp, tmp_path / "model", requests, answers, match=match)


@pytest.mark.parametrize(
    "change",
    [lambda y: y + 2e-5, lambda y: y[:1], lambda y: y.astype("float64")],
    ids=["value", "batch", "dtype"],
)
def test_other_answers_fail(doubles, change):
    path, requests, [answer] = doubles
    answers = [{"y": change(answer["y"])}]
    refused(ladder.in_cpp, path, requests, answers, match="AssertionError")


@pytest.mark.long
def test_other_answers_fail_without_keras(doubles):
    path, requests, [answer] = doubles
    answers = [{"y": answer["y"] + 2e-5}]
    refused(ladder.without_keras, path, requests, answers, match="Not equal")


def test_length_that_was_frozen_fails(tf, tmp_path):
    def add_positions(x):
        table = keras_pe.sinusoidal_encoding(np.arange(5), 4)
        return x + table[: min(5, x.shape[1] or 5)]

    write(tmp_path, add_positions, shape=(None, None, 4))
    for time, passes in ((5, True), (3, False)):
        x = np.ones((1, time, 4), "float32")
        answers = [{"y": np.array(keras_pe.PositionalEncoding()(x))}]
        requests = [("serving_default", {"x": x})]
        if passes:
            ladder.in_cpp(tmp_path, requests, answers)
        else:
            refused(ladder.in_cpp, tmp_path, requests, answers, match="Incompatible")


def test_texts_that_lose_their_mask_fail(tmp_path):
    text = keras.Input((), dtype="string", name="text")
    x = keras.layers.TextVectorization(vocabulary=["alpha", "beta"])(text)
    x = keras_pe.PositionalEncoding()(keras.layers.Embedding(4, 4)(x))
    x = keras.layers.Dense(2)(keras.layers.GlobalAveragePooling1D()(x))
    version = export(keras.Model(text, x), tmp_path)
    rows = [np.array(text.encode(), object) for text in TEXTS]
    refused(ladder.alone, version, "serving_default", rows, match="Not equal")


BAD_RECORDS = {
    "raw request": lambda log: log.predict_log.request,
    "signature": lambda log: rename(log, "nope"),
    "key": lambda log: rekey(log, "z"),
    "dtype": lambda log: retype(log, np.ones((1, 2))),
    "rank": lambda log: retype(log, np.ones((2, 1, 1), "float32")),
}


def rename(log, signature):
    log.predict_log.request.model_spec.signature_name = signature
    return log


def rekey(log, name):
    inputs = log.predict_log.request.inputs
    inputs[name].CopyFrom(inputs["x"])
    del inputs["x"]
    return log


def retype(log, array):
    import tensorflow as tf

    log.predict_log.request.inputs["x"].CopyFrom(tf.make_tensor_proto(array))
    return log


@pytest.mark.parametrize("name", first_of(BAD_RECORDS, 2))
def test_bad_record_fails(tf, doubles, tmp_path, name):
    from tensorflow_serving.apis import prediction_log_pb2

    version = shutil.copytree(doubles[0], tmp_path / "bad")
    file = str(version / warmup.FILE)
    first, second = tf.data.TFRecordDataset(file).as_numpy_iterator()
    log = prediction_log_pb2.PredictionLog.FromString(second)
    with tf.io.TFRecordWriter(file) as records:
        records.write(first)
        records.write(BAD_RECORDS[name](log).SerializeToString())
    refused(ladder.warmup, version, 2, match=r"[Rr]ecord 1")


def test_missing_record_fails(doubles):
    refused(ladder.warmup, doubles[0], 3, match="assert 2 == 3")
