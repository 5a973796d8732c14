"""What `export` writes, and that it writes all of it or nothing."""

import errno
import fcntl
import json
import os
import threading
from pathlib import Path

import keras
import numpy as np
import pytest
from processes import run

import keras_pe
from keras_pe import versions
from keras_pe.serving import export

pytestmark = pytest.mark.tensorflow

layers = keras.layers


def make_ids_model(units=2, activation="softmax"):
    ids = keras.Input((None,), dtype="int32", name="ids")
    x = layers.Embedding(
        20, 4, keras.initializers.RandomNormal(stddev=3.0), mask_zero=True
    )(ids)
    x = keras_pe.PositionalEncoding()(x)
    x = layers.GlobalAveragePooling1D()(x)
    return keras.Model(ids, layers.Dense(units, activation=activation)(x), name="ids")


def make_text_model(ids_model):
    text = keras.Input((), dtype="string", name="text")
    vectorize = layers.TextVectorization(vocabulary=["a", "b", "c"])
    tokenizer = keras.Sequential([keras.Input((), dtype="string"), vectorize])
    return keras.Model(text, ids_model(tokenizer(text)), name="text")


@pytest.fixture(scope="module")
def model():
    return make_ids_model()


def signatures(version):
    return json.loads((version / "model_card.json").read_text("utf-8"))["signatures"]


def load(tf, version, name="serving_default"):
    return tf.saved_model.load(version).signatures[name]


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


# Names, dtypes and shapes.


def spec(dtype, *shape):
    return {"dtype": dtype, "shape": [None, *shape]}


def make_of_inputs(wrap):
    a = keras.Input((None,), dtype="int32", name="b")
    b = keras.Input((3,), batch_size=4, name="a")
    c = keras.Input((), dtype="bool", name="c-1.x")
    last = keras.ops.max(a, axis=1, keepdims=True)
    x = layers.Concatenate()([b, keras.ops.cast(last, "float32")])
    return keras.Model(wrap(a, b, c), keras.ops.where(c[:, None], x, -x))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda a, b, c: [a, b, c],
        lambda a, b, c: {"x": a, "y": b, "z": c},
        lambda a, b, c: {"x": (c, a), "y": [b]},
    ],
    ids=["list", "dict", "nested"],
)
@pytest.mark.filterwarnings("ignore:When providing `inputs` as a dict")
def test_inputs_are_named_after_the_inputs_and_keep_what_is_unknown(tf, tmp_path, wrap):
    version = export(make_of_inputs(wrap), tmp_path)
    assert signatures(version)["serving_default"] == {
        "inputs": {
            "a": spec("float32", 3),
            "b": spec("int32", None),
            "c-1.x": spec("bool"),
        },
        "outputs": {"output_0": spec("float32", 4)},
    }
    served = load(tf, version)
    outputs = served(
        a=tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
        b=tf.constant([[7, 9], [8, 0]]),
        **{"c_1_x": tf.constant([True, False])},
    )["output_0"]
    assert outputs.numpy().tolist() == [[1, 2, 3, 9], [-4, -5, -6, -8]]


@pytest.mark.parametrize("name", ["my input", "文", "class", "self", "_x", "a:0"])
def test_input_with_a_name_that_tensorflow_changes_is_refused(tmp_path, name):
    inputs = keras.Input((3,), name=name)
    with pytest.raises(ValueError, match=f"The name of an `Input`.*name='{name}'"):
        export(keras.Model(inputs, inputs * 2.0), tmp_path)


def test_inputs_whose_names_become_alike_are_refused(tmp_path):
    inputs = [keras.Input((3,), name=name) for name in ("a.b", "a_b")]
    with pytest.raises(ValueError, match="unlike the others"):
        export(keras.Model(inputs, inputs[0] + inputs[1]), tmp_path)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda x: {"score": x * 2.0, "copy": x * 1.0}, ["copy", "score"]),
        (lambda x: [x * 2.0, x * 1.0], ["output_0", "output_1"]),
        (lambda x: {"a": {"b": x * 2.0, "c": [x * 1.0]}}, ["a_b", "a_c_0"]),
        (lambda x: x * 2.0, ["output_0"]),
    ],
    ids=["dict", "list", "nested", "one"],
)
def test_outputs_are_named_by_their_keys(tf, tmp_path, make, names):
    inputs = keras.Input((3,), name="x")
    version = export(keras.Model(inputs, make(inputs)), tmp_path)
    outputs = load(tf, version)(x=tf.ones((2, 3)))
    assert sorted(outputs) == names
    assert sorted(signatures(version)["serving_default"]["outputs"]) == names


class Scale(keras.Model):
    def __init__(self):
        super().__init__()
        self.scale = layers.Dense(3)

    def call(self, x):
        return self.scale(x)


class Both(Scale):
    def call(self, pair):
        first, second = pair.values() if isinstance(pair, dict) else pair
        return self.scale(first) + self.scale(second)


class Counted(Scale):
    def call(self, x):
        return keras.ops.concatenate([self.scale(x)] * x.shape[1], axis=1)


class Rows(Scale):
    """Adds all of its rows where the length is unknown as it is traced."""

    def __init__(self):
        super().__init__()
        self.rows = self.add_weight(shape=(9, 3))

    def call(self, x):
        return self.scale(x) + self.rows[: x.shape[1]]


class Mean(Scale):
    """Is traced, and then sums, where the length is unknown."""

    def call(self, x):
        return keras.ops.sum(self.scale(x), axis=1) / (x.shape[1] or 1)


class Two(Scale):
    def call(self, x, y):
        return self.scale(x) + y


def test_models_of_several_arguments_are_refused(tmp_path):
    model, x = Two(), np.ones((2, 5, 3), "float32")
    model(x, x)
    with pytest.raises(ValueError, match=r"take one argument. Wrap it.* takes x, y"):
        export(model, tmp_path)


def test_sequential_of_several_tensors_is_refused(tmp_path):
    model, x = keras.Sequential([layers.Add()]), np.ones((2, 3), "float32")
    model([x, x])
    assert model.built
    version = export(model, tmp_path)
    inputs = {"inputs_0": spec("float32", None), "inputs_1": spec("float32", None)}
    assert signatures(version)["serving_default"]["inputs"] == inputs


def test_models_without_weights_yet_are_refused(tmp_path):
    model = Scale()
    model.build((None, 4))
    with pytest.raises(ValueError, match=r"must have its weights.*model='scale"):
        export(model, tmp_path)
    assert names_in(tmp_path) == []


def test_models_without_inputs_take_what_they_were_called_on(tf, tmp_path):
    x = np.ones((2, 5, 3), "float32")
    open_ended, counted = spec("float32", None, 3), spec("float32", 5, 3)
    for model, data, inputs in (
        (Scale(), x, {"x": open_ended}),
        (Both(), [x, x], {"pair_0": open_ended, "pair_1": open_ended}),
        (Both(), {"u": x, "v": x}, {"u": open_ended, "v": open_ended}),
        (Counted(), x, {"x": counted}),
        (keras.Sequential([layers.Dense(3)]), x, {"inputs": open_ended}),
        (Scale(), x[0], {"x": spec("float32", 3)}),
        (Rows(), x, {"x": counted}),
        (Mean(), x, {"x": counted}),
    ):
        expected = np.array(model(data))
        version = export(model, tmp_path)
        assert signatures(version)["serving_default"]["inputs"] == inputs
        arrays = dict(zip(inputs, keras.tree.flatten(data), strict=True))
        served = load(tf, version)(**{k: tf.constant(v) for k, v in arrays.items()})
        np.testing.assert_allclose(served["output_0"], expected, rtol=1e-6)


def test_sequential_with_an_input_keeps_it(tmp_path):
    inputs = keras.Input((5,), dtype="int32", name="ids")
    model = keras.Sequential([inputs, layers.Embedding(9, 2)])
    version = export(model, tmp_path)
    assert signatures(version)["serving_default"] == {
        "inputs": {"ids": spec("int32", 5)},
        "outputs": {"output_0": spec("float32", 5, 2)},
    }


# What is in it.


def test_variables_are_stored_once(tf, tmp_path, model):
    version = export(
        make_text_model(model),
        tmp_path,
        labels=["no", "yes"],
        endpoints={"serve_ids": model},
    )
    stored = tf.train.list_variables(str(version / "variables" / "variables"))
    assert sorted(shape for name, shape in stored if "VARIABLE_VALUE" in name) == [
        [2],
        [4, 2],
        [20, 4],
    ]


@pytest.mark.parametrize(
    ("max_length", "least", "most"), [(None, 0, 100_000), (8192, 2**24, 2**24 + 50_000)]
)
def test_size_with_two_signatures(tmp_path, max_length, least, most):
    keras.utils.clear_session()  # else names have the digits of all tests before
    x = keras.Input((None, 512), name="x")
    model = keras.Model(x, keras_pe.PositionalEncoding(max_length=max_length)(x))
    version = export(model, tmp_path, endpoints={"other": model})
    assert least < (version / "saved_model.pb").stat().st_size < most


class Lookup(layers.Layer):
    """Has a table and a weight of its own."""

    def build(self, shape):
        import tensorflow as tf

        pairs = tf.lookup.KeyValueTensorInitializer(["x", "y"], [3.0, 4.0])
        self.table = tf.lookup.StaticHashTable(pairs, 0.0)
        self.weight = self.add_weight(shape=(), initializer="ones")

    def call(self, x):
        return self.table.lookup(x)[:, None] * self.weight

    def compute_output_shape(self, shape):
        return (*shape, 1)


def test_lookup_tables_come_along(tf, tmp_path, model):
    text = keras.Input((), dtype="string", name="words")
    outputs = {
        "table": Lookup()(text),
        "score": make_text_model(model)(text),
        "number": layers.StringLookup(vocabulary=["x", "y"])(text),
    }
    outer = keras.Model(text, outputs)
    version = export(outer, tmp_path, samples=["x", "a b"])
    texts = tf.constant(["x", "y", "a b c"])
    served = load(tf, version)(words=texts)
    for name, expected in outer(texts).items():
        np.testing.assert_allclose(served[name], expected, rtol=1e-6)
    stored = tf.train.list_variables(str(version / "variables" / "variables"))
    assert len([name for name, _ in stored if "VARIABLE_VALUE" in name]) == 4


def test_labels_are_fixed_in_the_model(tf, tmp_path, model):
    labels = ["schlecht", "很好"]
    version = export(model, tmp_path, labels=(label for label in labels))
    ids = np.arange(20).reshape(10, 2)
    served = load(tf, version)(ids=tf.constant(ids, tf.int32))
    expected = np.array(model(ids))
    np.testing.assert_allclose(served["probabilities"], expected, rtol=1e-6)
    best = [labels[i].encode() for i in expected.argmax(-1)]
    assert served["label"].numpy().tolist() == best and len(set(best)) == 2
    assert json.loads((version / "model_card.json").read_text("utf-8"))["labels"] == (
        labels
    )


def test_labels_of_each_step(tf, tmp_path):
    x = keras.Input((None, 3), name="x")
    model = keras.Model(x, keras.layers.Softmax()(x))
    version = export(model, tmp_path, labels=["a", "b", "c"])
    serve = tf.saved_model.load(version).signatures["serving_default"]
    outputs = serve(x=tf.constant([[[0.0, 9, 1], [7, 0, 0], [np.nan, 0, 0]]]))
    assert outputs["label"].numpy().tolist() == [[b"b", b"a", b""]]
    assert outputs["probabilities"].shape == (1, 3, 3)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["one"], "`labels` must name each of the classes.*Received: 1 labels"),
        (["a", "b", "c"], r"Received: 3 labels, .*\(None, 2\)"),
        ([], "Received: 0 labels"),
        ("ab", "`labels` must be a list of strings. Received: labels='ab'"),
        ({"a"}, "`labels` must be a list of strings"),
        ({"a": 1, "b": 2}, "`labels` must be a list of strings"),
        (["a", "\ud800"], "`labels` must be a list of strings"),
        ([1, 2], r"`labels` must be a list of strings. Received: labels=\[1, 2\]"),
        (7, "`labels` must be a list of strings. Received: labels=7"),
    ],
    ids=repr,
)
def test_bad_labels_are_refused(tmp_path, model, labels, message):
    with pytest.raises(ValueError, match=message):
        export(model, tmp_path / "base", labels=labels)
    assert not (tmp_path / "base").exists()


def test_labels_of_what_is_no_probability_are_refused(tmp_path):
    model = make_ids_model(activation=lambda x: x + 3.0)
    with pytest.raises(
        ValueError, match=r"must end in probabilities.*Received: the outputs"
    ):
        export(model, tmp_path, samples=[[1, 2]], labels=["a", "b"])
    assert names_in(tmp_path) == []


def test_a_row_of_nan_has_no_label(tf, tmp_path, model):
    # All of it is padding, of which the model takes the mean.
    with pytest.raises(ValueError, match=r"must be finite.*Received: .*nan"):
        export(model, tmp_path / "base", samples=[[0, 0]], labels=["a", "b"])
    assert not (tmp_path / "base").exists()
    version = export(model, tmp_path / "base", labels=["a", "b"])
    outputs = load(tf, version)(ids=tf.constant([[0, 0], [1, 2]]))
    assert np.isnan(outputs["probabilities"].numpy()).tolist() == [
        [True] * 2,
        [False] * 2,
    ]
    empty, label = outputs["label"].numpy()
    assert empty == b"" and label in (b"a", b"b")


def test_labels_of_two_outputs_are_refused(tmp_path):
    x = keras.Input((2,))
    with pytest.raises(ValueError, match=r"one float output.*\(None, 2\), \(None, 2\)"):
        export(keras.Model(x, [x * 1.0, x * 2.0]), tmp_path, labels=["a", "b"])


def test_card_tells_the_truth(tf, tmp_path, model):
    version = export(model, tmp_path, samples=[[1], [2, 3]], labels=["a", "b"])
    card = json.loads((version / "model_card.json").read_text("utf-8"))
    sizes = card.pop("bytes")
    exported = card.pop("exported")
    assert card.pop("versions")["keras_pe"] == keras_pe.__version__
    assert card == {
        "name": "ids",
        "signatures": {
            "serving_default": {
                "inputs": {"ids": spec("int32", None)},
                "outputs": {
                    "label": spec("string"),
                    "probabilities": spec("float32", 2),
                },
            }
        },
        "labels": ["a", "b"],
        "parameters": model.count_params(),
        "warmup_records": 2,
    }
    assert exported.endswith("+00:00")
    files = {p for p in version.rglob("*") if p.is_file()} - {
        version / "model_card.json"
    }
    assert sizes.pop("total") == sum(sizes.values())
    assert sizes == {p.relative_to(version).as_posix(): p.stat().st_size for p in files}
    assert os.stat(version).st_mode & 0o777 == 0o777 & ~_umask()


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_model_that_was_trained_under_xla_is_exported_without(tf, tmp_path):
    model = make_ids_model()
    model.compile("adam", "sparse_categorical_crossentropy", jit_compile=True)
    ids, labels = np.ones((4, 3), "int32"), np.array([0, 1, 0, 1])
    model.fit(ids, labels, epochs=1, verbose=0)
    model.predict(ids, verbose=0)
    version = export(model, tmp_path, samples=[[1, 2, 3]])
    assert b"_XlaMustCompile" not in (version / "saved_model.pb").read_bytes()
    served = load(tf, version)(ids=tf.constant(ids))["output_0"]
    np.testing.assert_allclose(served, model(ids), rtol=1e-6)
    stored = tf.train.list_variables(str(version / "variables" / "variables"))
    assert len([name for name, _ in stored if "VARIABLE_VALUE" in name]) == 3


# Endpoints.


@pytest.mark.parametrize(
    "name",
    [
        "serving_default",
        "variables",
        "trainable_variables",
        "a-b",
        "",
        3,
        "_a",
        "1",
        "\u6587",
    ],
)
def test_bad_names_of_endpoints_are_refused(tmp_path, model, name):
    with pytest.raises(ValueError, match=f"`endpoints` must.*Received: {name!r}"):
        export(model, tmp_path, endpoints={name: model})


def test_endpoints_that_are_no_models_are_refused(tmp_path, model):
    with pytest.raises(ValueError, match="`endpoints` must be a dict of models"):
        export(model, tmp_path, endpoints=[model])
    with pytest.raises(ValueError, match="`endpoints` must be a dict of models"):
        export(model, tmp_path, endpoints="name")
    with pytest.raises(ValueError, match=r"`model` must be a Keras model. Received"):
        export(model, tmp_path, endpoints={"other": len})
    assert names_in(tmp_path) == []


# Models that cannot be served.


def test_other_backends_are_refused(tmp_path, model, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match=r"must be 'tensorflow'.*backend 'jax'"):
        export(model, tmp_path)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Scale(), "must be built.*Received: model='scale"),
        (lambda: keras.Sequential([layers.Dense(2)]), "must be built"),
        (lambda: layers.Dense(2), "`model` must be a Keras model. Received"),
        (lambda: None, "`model` must be a Keras model. Received: model=None"),
    ],
    ids=["subclass", "sequential", "layer", "none"],
)
def test_what_is_no_built_model_is_refused(tmp_path, make, message):
    with pytest.raises(ValueError, match=message):
        export(make(), tmp_path / "base")
    assert not (tmp_path / "base").exists()


class Applied(layers.Layer):
    """Applies a function that is given the layer, to look like anything at all."""

    def __init__(self, function, shape=None):
        super().__init__()
        self.function, self.shape = function, shape

    def call(self, x):
        return self.function(x)

    def compute_output_shape(self, shape):
        return shape if self.shape is None else self.shape


def make_applied(function, shape=None):
    x = keras.Input((2,), name="x")
    return keras.Model(x, Applied(function, shape)(x))


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: keras.ops.sum(x), ()),
        (lambda x: keras.ops.ones((3, 2)), (3, 2)),
        (lambda x: keras.ops.sum(x, axis=0, keepdims=True), (1, 2)),
    ],
    ids=["scalar", "table", "sum"],
)
def test_output_without_a_batch_is_refused(tmp_path, function, shape):
    with pytest.raises(
        ValueError, match=r"batch as its first axis.*'output_0' of shape"
    ):
        export(make_applied(function, shape), tmp_path / "base")
    assert not (tmp_path / "base").exists()


def test_output_whose_first_axis_is_not_the_batch_is_refused(tmp_path):
    model = make_applied(lambda x: keras.ops.reshape(x, (-1,)), (None,))
    with pytest.raises(ValueError, match=r"\(1, 2\).*'output_0' of shape \(2,\)"):
        export(model, tmp_path, samples=[[1.0, 2.0]])
    assert names_in(tmp_path) == []


def test_python_functions_are_refused(tf, tmp_path):
    def function(x):
        return tf.ensure_shape(tf.py_function(abs, [x], tf.float32), (None, 2))

    with pytest.raises(ValueError, match=r"Python functions.*Received: EagerPyFunc"):
        export(make_applied(function), tmp_path)
    assert names_in(tmp_path) == []


def test_functions_that_xla_must_compile_are_refused(tf, tmp_path):
    model = make_applied(tf.function(lambda x: x * 2.0, jit_compile=True))
    with pytest.raises(ValueError, match=r"XLA must compile.*Received: "):
        export(model, tmp_path)
    assert names_in(tmp_path) == []


@pytest.mark.parametrize(
    "make",
    [
        lambda tf, x: tf.sparse.from_dense(x),
        lambda tf, x: tf.RaggedTensor.from_tensor(x),
        lambda tf, x: np.ones((2, 2)),
        lambda tf, x: None,
        lambda tf, x: {},
        lambda tf, x: {"": x},
        lambda tf, x: {"\ud800": x},
        lambda tf, x: {"a": {"b": x}, "a_b": x},
    ],
    ids=[
        "sparse",
        "ragged",
        "array",
        "none",
        "empty",
        "nameless",
        "surrogate",
        "alike",
    ],
)
@pytest.mark.parametrize("labels", [None, ["a", "b"]])
def test_outputs_that_cannot_be_served_are_refused(tf, tmp_path, make, labels):
    class Other(keras.Model):
        def call(self, x):
            return make(tf, x)

    model = Other()
    model(np.ones((2, 2), "float32"))
    message = "`model` must return dense tensors.*Received: "
    with pytest.raises(ValueError, match=message):
        export(model, tmp_path, labels=labels)
    assert names_in(tmp_path) == []


def test_answers_that_are_not_the_models_are_refused(tmp_path):
    x = keras.Input((None, 4), name="x")
    model = make_applied(
        lambda x: keras.ops.sum(x, axis=1, keepdims=True) / (x.shape[0] or 1), (None, 1)
    )
    with pytest.raises(ValueError, match="answer `samples` as the model does"):
        export(model, tmp_path, samples=[np.ones((3, 2))])
    assert names_in(tmp_path) == []
    # Numbers that are random are nobody's fault, nor those of a half type.
    noise = make_applied(lambda x: x + keras.random.normal((1, 2)))
    assert export(noise, tmp_path, samples=[[1.0, 2.0]]).name == "1"
    x = keras.Input((64,), name="x")
    half = keras.Model(x, layers.Dense(64, dtype="mixed_bfloat16")(x))
    assert export(half, tmp_path, samples=[np.linspace(-9, 9, 64)]).name == "2"


def test_graph_around_it_is_refused(tf, tmp_path, model):
    with tf.Graph().as_default():
        with pytest.raises(ValueError, match=r"outside of a `tf.function`"):
            export(model, tmp_path)


def test_loggers_are_left_alone(tf, tmp_path, model):
    logger = tf.get_logger()

    def write():
        for _ in range(3):
            export(model, tmp_path)

    before = logger.level, list(logger.filters)
    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (logger.level, logger.filters) == before
    assert sorted(map(int, names_in(tmp_path))) == list(range(1, 10))


def test_sparse_inputs_are_refused(tmp_path):
    x = keras.Input((4,), sparse=True, name="x")
    with pytest.raises(ValueError, match=r"densify.*input 'x'"):
        export(keras.Model(x, layers.Dense(2)(x)), tmp_path)


# Versions.


def test_takes_the_next_number_and_moves_over_nothing(tmp_path, model, monkeypatch):
    # As TensorFlow Serving reads names: 007 is 7; what is no int64 is none of its.
    junk = ["2", "007", "keep", "11x", "-30", "4.5", "\u0663\u0664", "9" * 20, ".20"]
    for name in junk:
        (tmp_path / name).mkdir()
    (tmp_path / "10").write_text("a file")
    rename = os.rename

    def late(source, target):
        # Another process takes the number in the last moment.
        if Path(target).name == "11":
            (Path(target) / "variables").mkdir(parents=True)
        rename(source, target)

    monkeypatch.setattr(os, "rename", late)
    assert export(model, tmp_path) == tmp_path / "12"
    assert names_in(tmp_path) == sorted([*junk, "10", "11", "12"])
    assert (tmp_path / "10").read_text() == "a file"


def test_base_is_made_and_may_be_a_string(tmp_path, model):
    base = tmp_path / "a" / "b"
    assert export(model, str(base)) == base / "1"
    assert export(model, base) == base / "2"
    assert names_in(base) == ["1", "2"]


def test_base_that_is_a_file_or_below_one_is_refused(tmp_path, model):
    file = tmp_path / "file"
    file.write_text("precious")
    for base in (file, file / "below", file / "far" / "below"):
        with pytest.raises(ValueError, match=f"`base_dir` must.*'{base}'"):
            export(model, base)
    assert file.read_text() == "precious"


@pytest.mark.parametrize("base", [None, 3, b"bytes", "", "nul\0", ["x"]])
def test_base_that_is_no_path_is_refused(model, base):
    with pytest.raises(
        ValueError, match=r"`base_dir` must be a folder.*Received: base"
    ):
        export(model, base)


def test_dangling_link_is_no_base(tmp_path, model):
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="`base_dir` must be a folder"):
        export(model, tmp_path / "link")


def test_last_number_of_all(tmp_path, model):
    last = tmp_path / str(2**63 - 1)
    (tmp_path / str(2**63 - 2)).mkdir()
    assert export(model, tmp_path) == last
    with pytest.raises(ValueError, match=f"a number left, of at most {last.name}"):
        export(model, tmp_path)
    assert names_in(tmp_path) == [str(2**63 - 2), last.name]


def test_many_at_once_each_get_a_number_of_their_own(tmp_path):
    def write(name):
        for i in range(20):
            with versions.new_version(tmp_path) as (written, move):
                written.mkdir()
                (written / "content").write_text(f"{name} {i}")
                move()

    threads = [threading.Thread(target=write, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    contents = {(path / "content").read_text() for path in tmp_path.iterdir()}
    assert contents == {f"{name} {i}" for name in range(8) for i in range(20)}
    assert sorted(map(int, names_in(tmp_path))) == list(range(1, 161))


def test_next_export_removes_what_killed_ones_left(tmp_path, model):
    (tmp_path / f"{versions.PREFIX}x" / "model" / "variables").mkdir(parents=True)
    kept = [".exporting-elsewhere-x", ".exported", "exporting"]
    for name in kept:
        (tmp_path / name).mkdir()
    # Of a person, who may name things so.
    kept += [f"{versions.PREFIX}book", f"{versions.PREFIX}text"]
    (tmp_path / kept[-2] / "chapter").mkdir(parents=True)
    (tmp_path / kept[-1]).write_text("precious")
    with versions.new_version(tmp_path) as (written, move):
        # One that is not over, in this process or in another, is no such thing.
        assert names_in(tmp_path) == sorted([*kept, written.parent.name])
        assert export(model, tmp_path) == tmp_path / "1"
        written.mkdir()
        assert move() == tmp_path / "2"
    assert names_in(tmp_path) == sorted([*kept, "1", "2"])


def test_folder_that_is_removed_before_it_is_locked(tmp_path, monkeypatch):
    flock, removed = fcntl.flock, []

    def late(descriptor, flags):
        if not removed:
            removed.extend(tmp_path.iterdir())
            removed[0].rmdir()
        flock(descriptor, flags)

    monkeypatch.setattr(fcntl, "flock", late)
    with versions.new_version(tmp_path) as (written, move):
        assert len(removed) == 1 and written.parent != removed[0]
        written.mkdir()
        move()
    assert names_in(tmp_path) == ["1"]


@pytest.mark.parametrize("cause", ["the system", "the file system"])
def test_without_locks_nothing_is_removed(cause, tmp_path, monkeypatch):
    def flock(descriptor, flags):
        raise OSError(errno.ENOLCK, "No locks available")

    if cause == "the system":
        monkeypatch.setattr(versions, "fcntl", None)
    else:
        monkeypatch.setattr(fcntl, "flock", flock)
    left = f"{versions.PREFIX}x"
    (tmp_path / left).mkdir()
    with versions.new_version(tmp_path) as (written, move):
        written.mkdir()
        move()
    assert names_in(tmp_path) == [left, "1"]


def test_a_version_is_complete_when_it_appears(tmp_path, model):
    seen, done = [], threading.Event()

    def watch():
        # As the server does: looks again and again, and takes what has a number.
        while not (done.is_set() and seen):
            for path in tmp_path.glob("[0-9]*"):
                seen.append({p.relative_to(path).as_posix() for p in path.rglob("*")})

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        version = export(model, tmp_path, samples=[[1]])
    finally:
        done.set()
    thread.join()
    files = {p.relative_to(version).as_posix() for p in version.rglob("*")}
    assert "model_card.json" in files and all(names == files for names in seen)


def test_failed_export_leaves_no_base_that_it_made(tmp_path, model):
    (tmp_path / "mine").mkdir()
    for base in ("mine", "mine/not/yet", "not/yet"):
        with pytest.raises(ValueError, match="answered by the exported"):
            export(model, tmp_path / base, samples=[[99]])
    assert [path.name for path in tmp_path.rglob("*")] == ["mine"]


def test_failed_export_leaves_nothing(tf, tmp_path, model, monkeypatch):
    def fail(*args, **kwargs):
        Path(args[1]).mkdir(parents=True)
        Path(args[1], "saved_model.pb").write_text("half")
        raise RuntimeError("the disk is full")

    (tmp_path / "9").mkdir()
    monkeypatch.setattr(tf.saved_model, "save", fail)
    with pytest.raises(RuntimeError, match="the disk is full"):
        export(model, tmp_path)
    assert names_in(tmp_path) == ["9"]


@pytest.mark.long
def test_disk_that_fills_at_any_moment_leaves_nothing(tmp_path):
    printed = run(
        """
        import os, resource, sys
        from pathlib import Path
        import keras, numpy as np, keras_pe

        x = keras.Input((None, 64), name="x")
        outputs = layer = keras.layers.Dense(64)(keras_pe.PositionalEncoding()(x))
        model = keras.Model(x, outputs)
        base = Path(sys.argv[1])
        sample = np.ones((1, 40, 64), "float32")
        version = keras_pe.serving.export(model, base, samples=sample)
        sizes = {p.stat().st_size for p in version.rglob("*") if p.is_file()}
        before = sorted(p.name for p in base.iterdir())
        # No file can grow beyond the limit: each but the largest one is met in turn.
        unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
        for size in sorted(sizes):
            resource.setrlimit(resource.RLIMIT_FSIZE, (size - 1, unlimited[1]))
            try:
                keras_pe.serving.export(model, base, samples=sample)
            except Exception as error:
                print(type(error).__name__)
            else:
                print("exported all the same", size)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
            assert sorted(p.name for p in base.iterdir()) == before == ["1"]
        print(keras_pe.serving.export(model, base).name)
        """,
        tmp_path / "base",
    ).split("\n")
    *errors, last, _ = printed
    assert last == "2" and len(errors) >= 5
    assert not [error for error in errors if "same" in error]
