"""Files that somebody changed: clear words, and nothing in them that runs."""

import io
import json
import marshal
import pickle
import sys
import zipfile
from base64 import b64encode

import keras
import numpy as np
import pytest

import keras_pe
from keras_pe.contract import arguments_of

# As `tests/test_saving.py` has them for `PositionalEncoding`.
LAYERS = {
    "axial": lambda: keras_pe.AxialPositionalEncoding(axes=[1]),
    "learned": lambda: keras_pe.LearnedPositionalEncoding(max_length=9),
    "rotary": lambda: keras_pe.RotaryEmbedding(),
    "alibi": lambda: keras_pe.ALiBi(num_heads=2),
    "relative": lambda: keras_pe.RelativePositionBias(num_heads=2),
    "attention": lambda: keras_pe.MultiHeadAttention(
        2, 4, rotary=keras_pe.RotaryEmbedding()
    ),
}
LACKS = object()  # as a value: the key is not there
UNKNOWN = {"module": "elsewhere", "class_name": "Unknown", "config": {}}
DENSE = keras.saving.serialize_keras_object(keras.layers.Dense(2))
CHANGES = [
    ("axial", {"axes": "all"}, "`axes` must be None, or one or more integers"),
    ("axial", {"axes": [1.5]}, "`axes` must be None, or one or more integers"),
    ("axial", {"axes": {}}, "`axes` must be None, or one or more integers"),
    ("axial", {"max_wavelength": "1"}, "`max_wavelength` must be a finite real"),
    ("axial", {"layout": 1}, "`layout` must be one of"),
    ("axial", {"axis": 1}, "axis"),
    ("learned", {"max_length": LACKS}, "max_length"),
    ("learned", {"max_length": None}, "`max_length` must be an integer"),
    ("learned", {"max_length": [9]}, "`max_length` must be an integer"),
    ("learned", {"initializer": None}, "`initializer` must be 'sinusoidal' or an ini"),
    ("learned", {"initializer": 5}, "`initializer` must be 'sinusoidal' or an init"),
    ("learned", {"initializer": "os.system"}, "`initializer` must be 'sinusoidal' or"),
    ("learned", {"initializer": []}, "`initializer` must be 'sinusoidal' or an init"),
    ("learned", {"initializer": {}}, "`initializer` must be 'sinusoidal' or an init"),
    ("learned", {"initializer": UNKNOWN}, "`initializer` must be 'sinusoidal' or an"),
    ("learned", {"initializer": {"class_name": 5, "config": 5}}, "`initializer` must"),
    ("learned", {"initializer": DENSE}, "`initializer` must be 'sinusoidal' or an"),
    ("rotary", {"max_wavelength": []}, "`max_wavelength` must be a finite real"),
    ("rotary", {"layout": "quarters"}, "`layout` must be one of"),
    ("rotary", {"rotary_dim": "4"}, "`rotary_dim` must be an integer"),
    ("rotary", {"rotary_dim": 3}, "`rotary_dim` must be even"),
    ("rotary", {"sequence_axis": None}, "`sequence_axis` must be an integer"),
    ("rotary", {"sequence_axis": 0}, "`sequence_axis` must not be"),
    ("rotary", {"scaling": "yarn"}, "`scaling` must be a dict"),
    ("rotary", {"scaling": {"rope_type": "new"}}, "`scaling` must have as its"),
    ("rotary", {"scaling": {"rope_type": ["yarn"]}}, "`scaling` must have as its"),
    ("rotary", {"scaling": {"rope_type": "linear"}}, "lacks factor"),
    (
        "rotary",
        {"scaling": {"rope_type": "linear", "factor": "2"}},
        "`scaling` must have a number",
    ),
    ("alibi", {"num_heads": LACKS}, "num_heads"),
    ("alibi", {"num_heads": "2"}, "`num_heads` must be an integer"),
    ("alibi", {"slopes": [1]}, "slopes"),
    ("relative", {"num_heads": 2.5}, "`num_heads` must be an integer"),
    ("relative", {"num_buckets": "32"}, "`num_buckets` must be an integer"),
    ("relative", {"max_distance": None}, "`max_distance` must be an integer"),
    ("relative", {"bidirectional": "no"}, "`bidirectional` must be True or False"),
    ("relative", {"initializer": {"a": 1}}, "`initializer` must be an initializer"),
    ("attention", {"num_heads": LACKS}, "num_heads"),
    ("attention", {"num_heads": "2"}, "`num_heads` must be an integer"),
    ("attention", {"key_dim": 4.0}, "`key_dim` must be an integer"),
    ("attention", {"rotary": "rotary"}, "`rotary` must be a RotaryEmbedding"),
    ("attention", {"rotary": [1]}, "`rotary` must be a RotaryEmbedding"),
    ("attention", {"rotary": {}}, "`rotary` must be a RotaryEmbedding"),
    ("attention", {"rotary": DENSE}, "`rotary` must be a RotaryEmbedding"),
    ("attention", {"rotary": UNKNOWN}, "Could not locate class 'Unknown'"),
    ("attention", {"rotary": {"class_name": 5}}, "`rotary` must be a RotaryEmbedding"),
    ("attention", {"bias": 1}, "bias"),
    # What all layers have, of those that only we check.
    ("axial", {"dtype": "int8"}, "dtype"),
    ("rotary", {"dtype": {"a": 1}}, "config={'a': 1}"),
]


def make(name):
    inputs = keras.Input((None, 8))
    layer = LAYERS[name]()
    outputs = layer(inputs, inputs) if name == "attention" else layer(inputs)
    return keras.Model(inputs, outputs)


def tampered(name, change, path, files=()):
    """Save a model, and change the config of its layer, or other files of it."""
    make(name).save(path)
    with zipfile.ZipFile(path) as old:
        kept = {file: old.read(file) for file in old.namelist()}
    model = json.loads(kept["config.json"])
    [layer] = (entry for entry in model["config"]["layers"][1:])
    change(layer)
    kept["config.json"] = json.dumps(model).encode()
    kept |= dict(files)
    with zipfile.ZipFile(path, "w") as new:
        for file, text in kept.items():
            if text is not None:
                new.writestr(file, text)
    return path


def changed(values):
    def change(layer):
        config = layer["config"]
        config |= {k: v for k, v in values.items() if v is not LACKS}
        for key in values:
            if values[key] is LACKS:
                del config[key]

    return change


@pytest.mark.parametrize(("name", "values", "message"), CHANGES)
def test_a_changed_argument_is_refused(name, values, message, tmp_path):
    path = tampered(name, changed(values), tmp_path / "model.keras")
    with pytest.raises((TypeError, ValueError)) as error:
        keras.saving.load_model(path)
    assert message in str(error.value)


def test_every_own_argument_is_changed():
    given = {(name, key) for name, values, _ in CHANGES for key in values}
    for name, layer in LAYERS.items():
        own = {*arguments_of(type(layer()))} - {"dropout"}
        assert {(name, argument) for argument in own} <= given


# Code in a file. Each of these writes the marker, if anything runs it.


@pytest.fixture
def marker(tmp_path, monkeypatch):
    marker = tmp_path / "marker"
    write = f"open({str(marker)!r}, 'w').close()\n"
    (tmp_path / "planted.py").write_text(f"{write}class Planted: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield marker
    assert not marker.exists()
    # As they are planted, they would.
    (__import__("planted"), sys.modules.pop("planted"))
    assert marker.exists()


def of_a_lambda(marker):
    code = compile(
        f"lambda *args, **kwargs: open({str(marker)!r}, 'w')", "planted", "eval"
    )
    code = b64encode(marshal.dumps(code.co_consts[0])).decode()
    config = {"code": code, "defaults": None, "closure": None}
    return {"class_name": "__lambda__", "config": config}


def of_a_lambda_layer(marker):
    layer = keras.saving.serialize_keras_object(keras.layers.Lambda(len))
    layer["config"]["function"] = of_a_lambda(marker)
    return layer


def of_a_module(marker):
    planted = {"module": "planted", "class_name": "Planted", "config": {}}
    return {**planted, "registered_name": "Planted"}


def of_a_function(marker):
    return {"module": "planted", "class_name": "function", "config": "Planted"}


def of_a_registered_name(marker):
    return {**of_a_module(marker), "registered_name": "keras_pe>Planted"}


def of_a_loader(marker):
    """Keras's own function that would read another file, unsafely."""
    config = {"filepath": str(marker), "safe_mode": False}
    return {"module": "keras.saving", "class_name": "load_model", "config": config}


PLANTED = [
    of_a_lambda,
    of_a_lambda_layer,
    of_a_module,
    of_a_function,
    of_a_registered_name,
    of_a_loader,
]
WHERE = [("learned", "initializer"), ("relative", "initializer")]
WHERE += [("attention", "rotary"), ("rotary", "scaling"), ("axial", "axes")]


@pytest.mark.parametrize("planted", PLANTED)
@pytest.mark.parametrize(("name", "argument"), WHERE)
def test_code_in_an_argument_is_not_run(name, argument, planted, marker, tmp_path):
    change = changed({argument: planted(marker)})
    path = tampered(name, change, tmp_path / "model.keras")
    with pytest.raises((TypeError, ValueError)):
        keras.saving.load_model(path)
    config = {**LAYERS[name]().get_config(), argument: planted(marker)}
    with pytest.raises((TypeError, ValueError)):
        type(LAYERS[name]()).from_config(config)


@pytest.mark.parametrize("planted", PLANTED)
def test_code_in_the_place_of_a_layer_is_not_run(planted, marker, tmp_path):
    path, given = tmp_path / "model.keras", planted(marker)
    assert not loads(tampered("learned", lambda layer: layer.update(given), path))
    for key in given:
        # By its registered name the right layer may still be found.
        loads(tampered("learned", changing(key, given[key]), path))


def changing(key, value):
    return lambda layer: layer.update({key: value})


def loads(path, others=()):
    try:
        keras.saving.load_model(path)
    except (TypeError, ValueError, *others):
        return False
    return True


class Reduced:
    """What Python runs as it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_a_pickle_in_the_place_of_weights_is_not_run(marker, tmp_path):
    pickled = pickle.dumps(Reduced(marker))
    array = io.BytesIO()
    np.savez(array, __root__=np.array(Reduced(marker), dtype=object))
    for files in (
        {"model.weights.h5": pickled},
        {"model.weights.h5": None, "model.weights.npz": array.getvalue()},
        {"assets/planted.pickle": pickled, "planted.pickle": pickled},
    ):
        path = tampered("learned", lambda _: None, tmp_path / "model.keras", files)
        assert loads(path, [OSError]) == ("planted.pickle" in files)
    np.load(io.BytesIO(array.getvalue()), allow_pickle=True)["__root__"].item()
    assert marker.exists()
    marker.unlink()
