"""What a SavedModel for TensorFlow Serving has to pass, one rung after the other.

Each raises `AssertionError`. Requests are pairs, a signature's name and an array for
each input; answers have an array for each output.
"""

import pickle
import shutil
import tempfile
from pathlib import Path

import cpp
import numpy as np
import processes

_COMPARE = """
def compare(outputs, expected):
    assert set(outputs) == set(expected), (set(outputs), set(expected))
    for name, array in expected.items():
        got = np.asarray(outputs[name])
        assert got.shape == array.shape and got.dtype == array.dtype, (name, got)
        if got.dtype == object:
            assert got.tolist() == array.tolist(), (name, got, array)
        else:
            np.testing.assert_allclose(got, array, rtol=0, atol=1e-5, err_msg=name)
"""


def static(path, signatures):
    """Names, dtypes and shapes are these; nothing in the graph stops the server.

    Args:
        path: Folder of the version.
        signatures: Pairs of dicts, inputs and outputs, by the name of the signature:
            of the dtype and what follows the batch in the shape.
    """
    from tensorflow.core.protobuf import saved_model_pb2

    saved = saved_model_pb2.SavedModel.FromString(
        (path / "saved_model.pb").read_bytes()
    )
    [meta_graph] = saved.meta_graphs
    assert list(meta_graph.meta_info_def.tags) == ["serve"]
    found = dict(meta_graph.signature_def)
    found.pop("__saved_model_init_op", None)
    assert set(found) == set(signatures)
    for name, (inputs, outputs) in signatures.items():
        assert found[name].method_name == "tensorflow/serving/predict"
        assert _described(found[name].inputs) == inputs
        assert _described(found[name].outputs) == outputs
    graph = meta_graph.graph_def
    nodes = [*graph.node, *(n for f in graph.library.function for n in f.node_def)]
    python = {node.op for node in nodes if "PyFunc" in node.op or "Numpy" in node.op}
    assert not python
    for holder in (*nodes, *graph.library.function):
        assert not [key for key in holder.attr if key.startswith("_Xla")]


def _described(tensors):
    import tensorflow as tf

    described = {}
    for name, tensor in tensors.items():
        batch, *rest = (dim.size for dim in tensor.tensor_shape.dim)
        assert batch == -1, f"{name} has a batch of {batch}"
        rest = [None if size == -1 else size for size in rest]
        described[name] = (tf.as_dtype(tensor.dtype).name, *rest)
    return described


def without_keras(path, requests, answers):
    """Python's TensorFlow answers alike, in a process that cannot import Keras."""
    with tempfile.TemporaryDirectory() as folder:
        file = _written(folder, requests, answers)
        processes.run(_COMPARE + _WITHOUT_KERAS, path, file, without_keras=True)


_WITHOUT_KERAS = """
import pickle, sys
import numpy as np
import tensorflow as tf

try:
    import keras.ops
except ImportError as error:
    assert "to run without" in str(error)
model = tf.saved_model.load(sys.argv[1])
with open(sys.argv[2], "rb") as file:
    for (signature, inputs), expected in pickle.load(file):
        inputs = {name: tf.constant(array) for name, array in inputs.items()}
        outputs = model.signatures[signature](**inputs)
        compare({name: tensor.numpy() for name, tensor in outputs.items()}, expected)
"""


def in_cpp(path, requests, answers, libraries=""):
    """TensorFlow's C++ loader answers alike, without Python, where it was moved to.

    Args:
        path: Folder of the version.
        requests, answers: What to ask, and what to be told.
        libraries: Folder of the libraries of another version of TensorFlow.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = _written(folder, requests, answers)
        moved = shutil.copytree(path, Path(folder, "elsewhere", "77"))
        cpp.ask(_COMPARE + _IN_CPP, moved, file, libraries=libraries)


_IN_CPP = """
import pickle

with open(sys.argv[2], "rb") as file, load(sys.argv[1]) as runtime:
    for (signature, inputs), expected in pickle.load(file):
        compare(runtime.run(signature, inputs), expected)
"""


def _written(folder, requests, answers):
    file = Path(folder, "requests")
    pairs = list(zip(requests, answers, strict=True))
    assert pairs
    file.write_bytes(pickle.dumps(pairs))
    return file


def alone(path, signature, rows):
    """A row is answered alone as in any batch, with any neighbours, by C++.

    Args:
        path: Folder of the version.
        signature: The name of a signature of one input.
        rows: Arrays without a batch. In a batch they are padded with zeros at the end.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows")
        file.write_bytes(pickle.dumps([np.asarray(row) for row in rows]))
        cpp.ask(
            """
            import itertools, pickle

            path, signature, file = sys.argv[1:]
            runtime = load(path)
            [name] = runtime.signatures[signature].inputs
            with open(file, "rb") as file:
                rows = pickle.load(file)

            def answer(numbers):
                length = max(rows[i].size for i in numbers)
                batch = [rows[i] for i in numbers]
                if rows[0].ndim:
                    batch = [np.pad(row, (0, length - row.size)) for row in batch]
                return runtime.run(signature, {name: np.stack(batch)})

            everyone = list(range(len(rows)))
            batches = [everyone, everyone[::-1], everyone * 3]
            batches += itertools.permutations(everyone, 2)
            expected = [answer([i]) for i in everyone]
            for batch in batches:
                for key, array in answer(batch).items():
                    for i, got in zip(batch, array, strict=True):
                        [single] = expected[i][key]
                        if array.dtype == object:
                            assert got == single, (i, batch, got, single)
                        else:
                            np.testing.assert_allclose(
                                got, single, rtol=0, atol=1e-6, err_msg=f"{i}, {batch}"
                            )
            """,
            path,
            signature,
            file,
        )


def warmup(path, records):
    """The warm-up file has so many `PredictionLog`s, which fit, and C++ answers."""
    printed = cpp.ask(
        """
        from cpp_runtime import run_warmup
        from records import read_warmup

        path = Path(sys.argv[1])
        with load(path) as runtime:
            ran = run_warmup(runtime, path)
            # What C++ does with other shapes depends on the operations.
            for i, log in enumerate(read_warmup(path)):
                request = log.predict_log.request
                specs = runtime.signatures[request.model_spec.signature_name].inputs
                for key, tensor in request.inputs.items():
                    got = [dim.size for dim in tensor.tensor_shape.dim]
                    fits = len(got) == len(specs[key].shape) and all(
                        size in (None, n)
                        for size, n in zip(specs[key].shape, got, strict=True)
                    )
                    assert fits, f"record {i} has the shape {got}"
            print(ran)
        """,
        path,
    )
    assert int(printed) == records
