"""The card of an exported model: what a reader of its folder wants to know."""

import datetime
import json
import math
import platform

import keras
import numpy as np

FILE = "model_card.json"


def write(folder, meta_graph, models, labels, requests):
    """Write the card of a SavedModel into its folder, when all else is there.

    Args:
        folder: Folder of the SavedModel.
        meta_graph: What `loading.read` reads there.
        models: The Keras models by the names of their signatures, the default first.
        labels: Names of the classes, or None.
        requests: Number of warm-up requests.
    """
    import tensorflow as tf

    import keras_pe

    packages = {"keras_pe": keras_pe, "keras": keras, "tensorflow": tf, "numpy": np}
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    bytes_of = {
        path.relative_to(folder).as_posix(): path.stat().st_size for path in files
    }
    weights = {id(w): w for model in models.values() for w in model.weights}
    now = datetime.datetime.now(datetime.UTC)
    card = {
        "name": next(iter(models.values())).name,
        "exported": now.isoformat(timespec="seconds"),
        "versions": {
            "python": platform.python_version(),
            **{name: package.__version__ for name, package in packages.items()},
        },
        "signatures": describe(meta_graph),
        "labels": labels,
        "parameters": sum(math.prod(weight.shape) for weight in weights.values()),
        "warmup_records": requests,
        "bytes": {"total": sum(bytes_of.values()), **bytes_of},
    }
    text = json.dumps(card, indent=2, ensure_ascii=False) + "\n"
    (folder / FILE).write_text(text, "utf-8")


def describe(meta_graph):
    """Return each signature's inputs and outputs: their names, dtypes and shapes."""
    return {
        name: {
            "inputs": _describe(signature.inputs),
            "outputs": _describe(signature.outputs),
        }
        for name, signature in sorted(meta_graph.signature_def.items())
        if name != "__saved_model_init_op"
    }


def _describe(tensors):
    import tensorflow as tf

    described = {}
    for name, tensor in sorted(tensors.items()):
        shape = tf.TensorShape(tensor.tensor_shape)
        described[name] = {
            "dtype": tf.as_dtype(tensor.dtype).name,
            "shape": None if shape.rank is None else shape.as_list(),
        }
    return described
