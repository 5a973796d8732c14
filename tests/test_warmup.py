"""The requests that an export writes for TensorFlow Serving to warm up with."""

from collections import UserDict

import keras
import numpy as np
import pytest

import keras_pe
from keras_pe.serving import export
from keras_pe.warmup import FILE

pytestmark = pytest.mark.tensorflow


def make_model(*shape, dtype="int32", name="x", **kwargs):
    x = keras.Input(shape, dtype=dtype, name=name, **kwargs)
    if dtype == "string":
        return keras.Model(x, keras.layers.StringLookup(vocabulary=["a"])(x))
    return keras.Model(x, x + x if dtype != "bool" else keras.ops.logical_not(x))


def make_pair():
    ids = keras.Input((None,), dtype="int64", name="ids")
    w = keras.Input((None,), name="w")
    return keras.Model([ids, w], keras.ops.cast(ids, "float32") * w)


def records(version):
    """The requests of a version, as the official messages read them."""
    import tensorflow as tf
    from google.protobuf.unknown_fields import UnknownFieldSet
    from tensorflow_serving.apis import prediction_log_pb2

    found = []
    for data in tf.data.TFRecordDataset(str(version / FILE)).as_numpy_iterator():
        log = prediction_log_pb2.PredictionLog.FromString(data)
        assert not UnknownFieldSet(log) and not UnknownFieldSet(log.predict_log)
        request = log.predict_log.request
        inputs = {k: tf.make_ndarray(tensor) for k, tensor in request.inputs.items()}
        found.append((request.model_spec.signature_name, inputs))
    return found


@pytest.mark.parametrize(
    ("model", "samples", "expected"),
    [
        (dict(shape=(None,)), [[1, 2, 3], [4]], [[[1, 2, 3]], [[4]]]),
        (dict(shape=(None,)), np.arange(4).reshape(2, 2), [[[0, 1]], [[2, 3]]]),
        (dict(shape=(None,)), [np.ones((2, 3), int)], [[[1, 1, 1], [1, 1, 1]]]),
        (dict(shape=(None,)), {"x": [[], [5]]}, [[[]], [[5]]]),
        (dict(shape=()), range(3), [[0], [1], [2]]),
        (dict(shape=(), dtype="string"), ["a", "\u00e9", b"\0z\0"], None),
        (dict(shape=(1,), dtype="string"), [["a"], ["b"]], None),
        (dict(shape=(2,), dtype="float32"), [[1, 2]], [[[1.0, 2.0]]]),
        (dict(shape=(1,), dtype="float32"), [[np.inf]], [[[np.inf]]]),
        (dict(shape=(2,), dtype="bfloat16"), [[1.0, 2.5]], [[[1.0, 2.5]]]),
        (dict(shape=(1,), dtype="bool"), [[True]], [[[True]]]),
    ],
    ids=lambda value: str(value)[:40],
)
def test_each_row_is_a_request(tf, tmp_path, model, samples, expected):
    version = export(
        make_model(*model.pop("shape"), **model), tmp_path, samples=samples
    )
    found = records(version)
    assert {name for name, _ in found} == {"serving_default"}
    arrays = [inputs["x"] for _, inputs in found]
    assert len(arrays) == len(samples["x"] if isinstance(samples, dict) else samples)
    if expected is None:
        texts = [array.ravel()[0] for array in arrays]
        given = [text[0] if isinstance(text, list) else text for text in samples]
        assert texts == [t.encode() if isinstance(t, str) else t for t in given]
        assert {a.shape for a in arrays} <= {(1,), (1, 1)}
    else:
        assert [array.tolist() for array in arrays] == expected


def test_an_input_of_one_number_is_for_all_rows(tf, tmp_path):
    x = keras.Input((None,), name="x")
    start = keras.Input(batch_shape=(), dtype="int32", name="start")
    model = keras.Model([x, start], x + keras.ops.cast(start, "float32"))
    samples = {"x": [[1.0, 2.0], np.ones((3, 1))], "start": [5, np.int32(7)]}
    version = export(model, tmp_path, samples=samples)
    for (_, inputs), wanted in zip(records(version), (5, 7), strict=True):
        assert inputs["start"].shape == () and inputs["start"] == wanted
    serve = tf.saved_model.load(str(version)).signatures["serving_default"]
    given = {"x": tf.ones((2, 3)), "start": tf.constant(4)}
    assert serve(**given)["output_0"].numpy().tolist() == [[5.0] * 3] * 2
    samples["start"] = [[5], [7]]
    with pytest.raises(ValueError, match=r"for the input 'start'.*Received: an array"):
        export(model, tmp_path, samples=samples)


class Frame:
    """Has rows as an array, and names of columns as an iterable, as in pandas."""

    def __array__(self, dtype=None, copy=None):
        return np.array([[1, 2], [3, 4]], dtype)

    def __len__(self):
        return 2

    def __iter__(self):
        return iter("ab")


@pytest.mark.parametrize("kind", ["constant", "Variable", "frame", "mapping"])
def test_tensors_and_the_like_are_samples_too(tf, tmp_path, kind):
    rows = [[1, 2], [3, 4]]
    samples = {"frame": Frame(), "mapping": UserDict({"x": rows})}.get(kind)
    samples = samples or getattr(tf, kind)(rows)
    version = export(make_model(None), tmp_path, samples=samples)
    assert [inputs["x"].tolist() for _, inputs in records(version)] == [
        [[1, 2]],
        [[3, 4]],
    ]


@pytest.mark.parametrize("as_dict", [True, False])
def test_samples_of_several_inputs(tf, tmp_path, as_dict):
    samples = {"ids": [[1, 2], [3]], "w": [[0.5, 0.25], [1.0]]}
    given = samples if as_dict else list(samples.values())
    [first, second] = records(export(make_pair(), tmp_path, samples=given))
    assert {k: v.tolist() for k, v in first[1].items()} == {
        "ids": [[1, 2]],
        "w": [[0.5, 0.25]],
    }
    assert second[1]["ids"].dtype == "int64" and second[1]["w"].dtype == "float32"


def test_samples_of_several_signatures(tf, tmp_path):
    samples = {"x": [[1], [2, 3]], "y": [[4, 5, 6]]}
    version = export(
        make_model(None),
        tmp_path,
        samples=samples,
        endpoints={"other": make_model(None, name="y"), "same": make_model(None)},
    )
    assert [(name, *inputs) for name, inputs in records(version)] == [
        ("serving_default", "x"),
        ("serving_default", "x"),
        ("other", "y"),
        ("same", "x"),
        ("same", "x"),
    ]


def test_no_samples_no_file(tmp_path):
    assert not (export(make_model(None), tmp_path) / FILE).parent.exists()


def test_long_and_large_requests_are_framed_right(tf, tmp_path):
    samples = [np.arange(n) for n in (1, 30, 31, 127, 128, 4000, 300_000)]
    version = export(make_model(None), tmp_path, samples=samples)
    for (_, inputs), sample in zip(records(version), samples, strict=True):
        np.testing.assert_array_equal(inputs["x"], sample[None])


IDS = dict(shape=(None,))
TEXT = dict(shape=(), dtype="string")


@pytest.mark.parametrize(
    ("model", "samples", "message"),
    [
        (IDS, [[1.5, 2.0]], r"rows of shape \(None,\).*dtype int32. Received: \[1.5"),
        (IDS, [["a"]], "must fit the signature"),
        (IDS, [[True]], "must fit the signature"),
        (IDS, [[2**31]], "must fit the signature"),
        (IDS, [[[[1]]]], r"Received: an array of shape \(1, 1, 1\)"),
        (IDS, [1], r"Received: an array of shape \(\)"),
        (IDS, [[[1, 2], [3]]], "must fit the signature"),
        (IDS, [None], "must fit the signature"),
        (IDS, [np.zeros((0, 3), int)], r"Received: an array of shape \(0, 3\)"),
        (dict(shape=(3,)), [[1, 2]], r"rows of shape \(3,\).* shape \(1, 2\)"),
        (dict(shape=(), dtype="uint8"), [-1], "dtype uint8. Received: -1"),
        (dict(shape=(1,), dtype="bool"), [[1]], "dtype bool"),
        (dict(shape=(1,), dtype="float32"), [[1j]], "dtype float32"),
        (dict(shape=(1,), dtype="float32"), [[1e300]], "dtype float32"),
        (dict(shape=(1,), dtype="float16"), [[70_000]], "dtype float16"),
        (IDS, {(1, 2), (3, 4)}, "must be a list or an array of rows"),
        (IDS, np.array(3), "must be a list or an array of rows"),
        (TEXT, "one text", "must be a list.*input 'x'. Received: 'one text'"),
        (TEXT, [3], "dtype string. Received: 3"),
        (TEXT, ["\ud800"], "dtype string"),
        (IDS, 5, "must be a list or an array of rows"),
        (IDS, [], "at least one row for 'serving_default'"),
        (IDS, {}, "at least one row for 'serving_default'"),
        (IDS, {"y": [[1]]}, "rows for the inputs x. Received: 'y'"),
        (IDS, [[1]] * 1001, "at most 1000 rows.*Received: 1001"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_samples_that_do_not_fit_are_refused(tmp_path, model, samples, message):
    model = make_model(*model["shape"], dtype=model.get("dtype", "int32"))
    with pytest.raises(ValueError, match=f"`samples` .*{message}"):
        export(model, tmp_path / "base", samples=samples)
    assert not (tmp_path / "base").exists()


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ({"ids": [[1]]}, "as many rows for each input.*: ids, w. Received: {'ids': 1}"),
        ({"ids": [[1]], "w": [[1.0]] * 2}, "Received: {'ids': 1, 'w': 2}"),
        ([[[1]]], "must be a dict.*ids, w, or a list.*Received: list"),
        (np.ones((2, 1, 1)), "must be a dict.*Received: ndarray"),
        (
            {"ids": [np.ones((2, 3), int)], "w": [np.ones((1, 3))]},
            r"as many rows each.*'ids': \(2, 3\), 'w': \(1, 3\)",
        ),
    ],
    ids=["missing", "counts", "list", "array", "batches"],
)
def test_samples_that_do_not_fit_several_inputs_are_refused(tmp_path, samples, message):
    with pytest.raises(ValueError, match=message):
        export(make_pair(), tmp_path, samples=samples)


def test_sample_that_the_model_fails_on_is_refused(tf, tmp_path):
    x = keras.Input((None, 4), name="x")
    model = keras.Model(x, keras_pe.PositionalEncoding(max_length=3)(x))
    samples = [np.zeros((3, 4)), np.zeros((5, 4))]
    message = r"answered by the exported 'serving_default'.*\(1, 5, 4\)"
    with pytest.raises(ValueError, match=message):
        export(model, tmp_path, samples=samples)
    assert list(tmp_path.iterdir()) == []


def test_largest_number_of_samples(tf, tmp_path):
    assert len(records(export(make_model(), tmp_path, samples=range(1000)))) == 1000
