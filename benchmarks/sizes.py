"""Measure what a candidate adds to the files that a model is saved in."""

import pathlib
import tempfile

import keras
import tensorflow as tf

from benchmarks.candidates import CANDIDATES
from benchmarks.cases import Case
from benchmarks.reasons import Cannot, reason

WIDTH = 512
ROWS = 8192
CASE = Case(
    "tensorflow", "graph", "float32", "unknown", "zero", (1, ROWS, WIDTH), first=0
)


def measure(candidates):
    """Return for each candidate the bytes it adds to each file, or why it cannot."""
    nothing = keras.layers.Activation("linear")
    found = []
    for name in candidates:
        record = {"candidate": name}
        for file, size in FILES.items():
            try:
                record[file] = size(CANDIDATES[name](CASE)) - size(nothing)
            except Exception as problem:
                record[file] = reason(problem)
        found.append(record)
    return found


def model_of(add):
    x = keras.Input((None, WIDTH))
    return keras.Model(x, add(x))


def spec():
    return tf.TensorSpec((None, None, WIDTH), name="x")


def saved_model_bytes(add, endpoints):
    """Return the bytes of `saved_model.pb`."""
    model = model_of(add)
    archive = keras.export.ExportArchive()
    archive.track(model)
    for endpoint in range(endpoints):
        archive.add_endpoint(f"serve_{endpoint}", lambda x: model(x), [spec()])
    with tempfile.TemporaryDirectory() as folder:
        archive.write_out(folder, verbose=False)
        return (pathlib.Path(folder) / "saved_model.pb").stat().st_size


def keras_bytes(add):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.keras"
        model_of(add).save(path)
        return path.stat().st_size


def litert_bytes(add):
    model = model_of(add)
    function = tf.function(lambda x: model(x), input_signature=[spec()])
    concrete = function.get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete], function)
    try:
        return len(converter.convert())
    except Exception as problem:
        if "Select TF ops" in str(problem):
            raise Cannot("it needs TensorFlow's own ops") from problem
        raise


FILES = {
    "saved_model.pb, one endpoint": lambda add: saved_model_bytes(add, 1),
    "saved_model.pb, two endpoints": lambda add: saved_model_bytes(add, 2),
    "model.keras": keras_bytes,
    "LiteRT": litert_bytes,
}
