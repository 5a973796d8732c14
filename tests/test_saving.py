"""Files and SavedModels: what comes back, and in which process."""

import json
import zipfile

import keras
import numpy as np
import pytest
from processes import run

import keras_pe
from keras_pe import PositionalEncoding

pytestmark = pytest.mark.tensorflow

ARGUMENTS = dict(max_length=70, max_wavelength=500.0, layout="halves", trainable=False)


def make(*args, **kwargs):
    inputs = keras.Input((None, 4), name="x")
    return keras.Model(inputs, PositionalEncoding(*args, **kwargs)(inputs))


def make_with(name, shape, dtype="int32", **kwargs):
    """A model that has `positions` or `start_index` as its second input."""
    inputs = keras.Input((None, 4), name="x")
    second = keras.Input(shape, dtype=dtype, name=name)
    layer = PositionalEncoding(**kwargs)
    return keras.Model([inputs, second], layer(inputs, **{name: second}))


def make_from_mask():
    inputs = keras.Input((None, 4), name="x")
    mask = keras.Input((None,), dtype="bool", name="mask")
    positions = keras_pe.positions_from_mask(mask)
    outputs = PositionalEncoding()(inputs, positions=positions)
    return keras.Model([inputs, mask], outputs)


def make_function():
    positions = keras.Input((None,), dtype="int32", name="positions")
    return keras.Model(positions, keras_pe.sinusoidal_encoding(positions, 4))


def make_classifier():
    text = keras.Input((), dtype="string", name="text")
    words = keras.layers.TextVectorization(vocabulary=["a", "b", "c"])(text)
    x = keras.layers.Embedding(5, 4, mask_zero=True)(words)
    x = PositionalEncoding()(x)
    x = keras.layers.GlobalAveragePooling1D()(x)
    return keras.Model(text, keras.layers.Dense(2, activation="softmax")(x))


MODELS = {
    "plain": make,
    "arguments": lambda: make(name="pos", **ARGUMENTS),
    "mixed": lambda: make(dtype="mixed_float16"),
    "half": lambda: make(dtype=keras.DTypePolicy("bfloat16")),
    "positions": lambda: make_with("positions", (None,)),
    "fractions": lambda: make_with("positions", (None,), "float32", max_length=70),
    "start": lambda: make_with("start_index", (), max_length=70),
    "mask": make_from_mask,
    "function": make_function,
    "text": make_classifier,
}


def make_inputs(name):
    """Batches of several sizes and lengths, none of them seen as a model is made."""
    if name == "text":
        texts = ["a", "c b a zz b", "a b " * 32]
        return [[np.array([text])] for text in texts] + [[np.array(texts)]]
    inputs = []
    for batch, time in ((1, 1), (2, 5), (3, 64)):
        x = np.random.default_rng(0).normal(size=(batch, time, 4)).astype("float32")
        positions = np.arange(time) + np.arange(batch)[:, None]
        second = {
            "positions": [positions.astype("int32")],
            "fractions": [positions.astype("float32") + 0.25],
            "start": [np.arange(batch, dtype="int32")],
            "mask": [positions >= 3],
        }
        first = [positions.astype("int32")] if name == "function" else [x]
        inputs.append([*first, *second.get(name, [])])
    return inputs


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Every model as a file and as a SavedModel, with what it made of its inputs."""
    folder = tmp_path_factory.mktemp("models")
    for name, make_model in MODELS.items():
        model = make_model()
        model.save(folder / f"{name}.keras")
        model.export(folder / name, verbose=False)
        for i, arrays in enumerate(make_inputs(name)):
            # NumPy's files know no bfloat16.
            outputs = keras.ops.cast(call(model, arrays), "float32")
            arrays = dict(zip(names_of(model), arrays, strict=True))
            np.savez(folder / f"{name}-{i}.npz", **arrays, outputs=outputs)
    return folder


def names_of(model):
    return [tensor.name for tensor in model.inputs]


def call(model, arrays):
    arrays = [keras.ops.convert_to_tensor(array) for array in arrays]
    return model(arrays[0] if len(arrays) == 1 else arrays)


@pytest.mark.long
def test_files_load_in_a_process_that_imports_the_package(folder):
    error, names = run(
        """
        import sys
        from pathlib import Path
        import numpy as np
        import keras

        folder = Path(sys.argv[1])
        try:
            keras.saving.load_model(folder / "plain.keras")
        except Exception as error:
            print(error)
        print("---")

        import keras_pe

        keras.config.set_dtype_policy("mixed_bfloat16")
        for path in sorted(folder.glob("*.keras")):
            model = keras.saving.load_model(path)
            for file in sorted(folder.glob(f"{path.stem}-*.npz")):
                data = np.load(file)
                inputs = [
                    keras.ops.convert_to_tensor(data[tensor.name])
                    for tensor in model.inputs
                ]
                outputs = model(inputs if len(inputs) > 1 else inputs[0])
                outputs = keras.ops.convert_to_numpy(keras.ops.cast(outputs, "float32"))
                if path.stem == "text":
                    np.testing.assert_allclose(outputs, data["outputs"], rtol=1e-6)
                else:
                    np.testing.assert_array_equal(outputs, data["outputs"])
                print(path.stem)
        """,
        folder,
    ).split("---")
    # Without the package, the error says which class of which package is missing.
    assert "PositionalEncoding" in error and "keras_pe" in error
    check_names(names)


def check_names(printed):
    """Each model has been asked once for each of its inputs."""
    expected = [name for name in MODELS for _ in make_inputs(name)]
    assert sorted(printed.split()) == sorted(expected)


def test_saved_models_run_in_a_process_without_keras(folder):
    names = run(
        """
        import sys
        from pathlib import Path
        import numpy as np
        import tensorflow as tf

        for package in ("keras", "keras.ops", "keras_pe"):
            try:
                __import__(package)
                raise SystemExit(f"{package} is here")
            except ImportError as error:
                assert "to run without" in str(error), error
        for path in sorted(Path(sys.argv[1]).glob("*/saved_model.pb")):
            path = path.parent
            serve = tf.saved_model.load(str(path)).signatures["serving_default"]
            for file in sorted(path.parent.glob(f"{path.name}-*.npz")):
                data = np.load(file)
                names = serve.structured_input_signature[1]
                arrays = {name: tf.constant(data[name]) for name in names}
                [outputs] = serve(**arrays).values()
                outputs = tf.cast(outputs, tf.float32)
                tolerance = {"mixed": 1e-3, "half": 2e-2}.get(path.name, 3e-7)
                np.testing.assert_allclose(
                    outputs, data["outputs"], rtol=tolerance, atol=tolerance
                )
                print(path.name)
        """,
        folder,
        without_keras=True,
    )
    check_names(names)


def test_names_of_the_served_text_model(tf, folder):
    serve = tf.saved_model.load(folder / "text").signatures["serving_default"]
    [spec] = serve.structured_input_signature[1].items()
    assert spec == ("text", tf.TensorSpec((None,), tf.string, name="text"))
    assert list(serve.structured_outputs) == ["output_0"]


def test_saved_models_hold_nothing_of_the_layer(tf, folder):
    for name in (
        "plain",
        "arguments",
        "positions",
        "fractions",
        "start",
        "mask",
        "function",
    ):
        assert tf.train.list_variables(folder / name / "variables/variables") == [
            ("_CHECKPOINTABLE_OBJECT_GRAPH", [])
        ]
        assert not list((folder / name / "assets").iterdir())
        assert not resources(folder / name)
    # Of the embedding and the dense layer alone.
    served = tf.saved_model.load(folder / "text")
    shapes = {tuple(variable.shape) for variable in served.variables}
    assert shapes == {(5, 4), (4, 2), (2,)}
    assert resources(folder / "text")


def resources(path):
    """The operations of a SavedModel that hand out variables, tables or the like."""
    from tensorflow.core.protobuf import saved_model_pb2

    saved = saved_model_pb2.SavedModel.FromString(
        (path / "saved_model.pb").read_bytes()
    )
    graph = saved.meta_graphs[0].graph_def
    nodes = [*graph.node, *(n for f in graph.library.function for n in f.node_def)]
    handles = {n.op for n in nodes if "Handle" in n.op or "Table" in n.op}
    return handles - {"LookupTableFindV2", "LookupTableImportV2"}


def test_save_load_save_load(folder, tmp_path):
    model = keras.saving.load_model(folder / "arguments.keras")
    model.save(tmp_path / "again.keras")
    model = keras.saving.load_model(tmp_path / "again.keras")
    layer = model.get_layer("pos")
    assert {name: getattr(layer, name) for name in ARGUMENTS} == ARGUMENTS
    for i in range(3):
        data = np.load(folder / f"arguments-{i}.npz")
        outputs = model.predict(data["x"], verbose=0)
        np.testing.assert_array_equal(outputs, data["outputs"])
        expected = data["x"] + keras_pe.sinusoidal_encoding(
            np.arange(len(outputs[0])), 4, max_wavelength=500.0, layout="halves"
        )
        np.testing.assert_allclose(outputs, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "policy", "dtype"),
    [("mixed", "mixed_float16", "float16"), ("half", "bfloat16", "bfloat16")],
)
def test_dtype_policies_are_kept_in_files(folder, name, policy, dtype):
    keras.config.set_dtype_policy("float64")
    [_, layer] = keras.saving.load_model(folder / f"{name}.keras").layers
    assert (layer.dtype_policy.name, layer.compute_dtype) == (policy, dtype)


def test_dtype_of_the_function_is_kept_in_files(folder):
    keras.config.set_floatx("float64")
    [_, encoding] = keras.saving.load_model(folder / "function.keras").operations
    assert encoding.dtype == "float32"


def test_weights_load_whatever_max_length_was(tmp_path):
    def make_with_dense(max_length):
        inputs = keras.Input((None, 4))
        x = PositionalEncoding(max_length=max_length)(inputs)
        return keras.Model(inputs, keras.layers.Dense(2)(x))

    saved = make_with_dense(8)
    saved.save_weights(tmp_path / "model.weights.h5")
    for max_length in (16, None):
        model = make_with_dense(max_length)
        model.load_weights(tmp_path / "model.weights.h5")
        x = np.ones((1, 8, 4), "float32")
        np.testing.assert_array_equal(model(x), saved(x))
        assert model(np.ones((1, 16, 4), "float32")).shape == (1, 16, 2)


def test_file_holds_the_config_of_the_layer_alone(folder):
    layer = read_config(folder / "arguments.keras")["config"]["layers"][1]
    config = {**layer["config"], "dtype": None}
    assert layer["registered_name"] == "keras_pe>PositionalEncoding"
    assert config == {"name": "pos", "dtype": None, **ARGUMENTS}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(max_len=8), "max_len"),
        (dict(max_length="8"), "`max_length` must be an integer"),
        (dict(max_length=2.5), "`max_length` must be an integer"),
        (dict(max_length=True), "`max_length` must be an integer"),
        (dict(max_wavelength="long"), "`max_wavelength` must be a finite real"),
        (dict(max_wavelength=None), "`max_wavelength` must be a finite real"),
        (dict(layout="thirds"), "`layout` must be one of 'interleaved', 'halves'"),
        (dict(layout=["halves"]), "`layout` must be one of 'interleaved', 'halves'"),
    ],
    ids=repr,
)
def test_file_with_a_bad_config_is_refused(folder, tmp_path, change, message):
    config = read_config(folder / "arguments.keras")
    config["config"]["layers"][1]["config"] |= change
    with zipfile.ZipFile(folder / "arguments.keras") as old:
        with zipfile.ZipFile(tmp_path / "bad.keras", "w") as new:
            for name in old.namelist():
                text = json.dumps(config) if name == "config.json" else old.read(name)
                new.writestr(name, text)
    with pytest.raises(Exception, match=message) as error:
        keras.saving.load_model(tmp_path / "bad.keras")
    assert isinstance(error.value, (TypeError, ValueError))


def read_config(path):
    with zipfile.ZipFile(path) as file:
        return json.loads(file.read("config.json"))


def test_size_of_a_saved_model(tf, tmp_path):
    keras.utils.clear_session()  # else names have the digits of all tests before
    inputs = keras.Input((None, 512))
    model = keras.Model(inputs, PositionalEncoding()(inputs))
    archive = keras.export.ExportArchive()
    archive.track(model)
    spec = tf.TensorSpec((None, None, 512), name="x")
    for endpoint in ("one", "two"):
        archive.add_endpoint(endpoint, lambda x: model(x), [spec])
    archive.write_out(tmp_path / "model", verbose=False)
    assert (tmp_path / "model" / "saved_model.pb").stat().st_size < 100_000
