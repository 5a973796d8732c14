"""Converts models to LiteRT and ONNX, runs them without TensorFlow, and checks them."""

import tempfile
from pathlib import Path

import numpy as np


def to_litert(model, signature=None):
    """Return the bytes of a `.tflite` file."""
    with tempfile.TemporaryDirectory() as folder:
        signature = signature or signature_of(model)
        model.export(folder, verbose=False, input_signature=signature)
        return saved_model_to_litert(folder)


def saved_model_to_litert(folder, quantize=False):
    """Return the bytes of a `.tflite` file, which may need TensorFlow's operators."""
    import tensorflow as tf

    converter = tf.lite.TFLiteConverter.from_saved_model(str(folder))
    sets = tf.lite.OpsSet.TFLITE_BUILTINS, tf.lite.OpsSet.SELECT_TF_OPS
    converter.target_spec.supported_ops = sets
    converter.optimizations = [tf.lite.Optimize.DEFAULT] if quantize else []
    return converter.convert()


def run_litert(content, arrays):
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=content)
    inputs = interpreter.get_signature_runner().get_input_details()
    for name, array in arrays.items():
        if array.shape:  # a scalar's makes ai-edge-litert 1.0 crash
            index = inputs[name]["index"]
            # Unless it is strict, sizes that are fixed can be changed too.
            interpreter.resize_tensor_input(index, array.shape, strict=True)
    interpreter.allocate_tensors()
    for name, array in arrays.items():
        interpreter.set_tensor(inputs[name]["index"], array)
    interpreter.invoke()
    [output] = interpreter.get_output_details()
    return interpreter.get_tensor(output["index"])


def to_onnx(model, signature=None):
    """Return the bytes of an `.onnx` file."""
    add_erfc_to_tf2onnx()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        signature = signature or signature_of(model)
        model.export(path, format="onnx", verbose=False, input_signature=signature)
        return path.read_bytes()


def run_onnx(content, arrays):
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    [output] = session.run(None, arrays)
    return output


def add_erfc_to_tf2onnx():
    """Teach tf2onnx the operation of "gelu" in newer versions of TensorFlow."""
    from tf2onnx.handler import tf_op

    @tf_op("Erfc")
    class Erfc:
        @classmethod
        def version_9(cls, context, node, **kwargs):
            one = context.make_const(f"{node.name}/one", np.float32(1))
            [erf] = node.output
            node.type = "Erf"
            context.insert_new_node_on_output("Sub", erf, inputs=[one.output[0], erf])


CONVERTERS = {"litert": (to_litert, run_litert), "onnx": (to_onnx, run_onnx)}


def signature_of(model):
    """The inputs of a model as they are; Keras makes a scalar one a vector."""
    import tensorflow as tf

    specs = [tf.TensorSpec(x.shape, x.dtype, x.name) for x in model.inputs]
    return specs if len(specs) == 1 else [specs]


def run_keras(model, arrays):
    arrays = list(arrays.values())
    return np.array(model(arrays[0] if len(arrays) == 1 else arrays))


def check_same(run, expected, inputs, atol):
    """`run` gives what `expected` does, for each dict of arrays."""
    for arrays in inputs:
        shapes = {name: array.shape for name, array in arrays.items()}
        try:
            outputs = run(arrays)
        except Exception as error:
            raise AssertionError(f"does not run at {shapes}") from error
        np.testing.assert_allclose(
            outputs, expected(arrays), rtol=0, atol=atol, err_msg=str(shapes)
        )


def check_never_wrong(run, arrays, expected):
    """`run` refuses, or gives the expected rows, or NaN in the place of some."""
    try:
        outputs = run(arrays)
    except Exception as error:
        # Not an error of the test's own making.
        assert not isinstance(error, (AttributeError, NameError, TypeError)), error
        return
    assert outputs.shape == expected.shape
    kept = ~np.isnan(outputs).any(axis=-1)
    np.testing.assert_allclose(outputs[kept], expected[kept], rtol=0, atol=1e-6)


def check_padding(run):
    """Padding leaves the scores of a row as they are, and one without tokens finite."""
    ids = np.array([[5, 6]], "int32")
    padded = np.pad(ids, [[0, 2], [0, 70]])
    scores = run({"ids": padded})
    np.testing.assert_allclose(scores[:1], run({"ids": ids}), rtol=0, atol=1e-5)
    np.testing.assert_allclose(scores.sum(axis=-1), 1, rtol=0, atol=1e-5)


def check_order_matters(run):
    ids = np.array([[5, 6, 7, 3]], "int32")
    backwards = np.ascontiguousarray(ids[:, ::-1])
    assert np.abs(run({"ids": ids}) - run({"ids": backwards})).max() > 0.1


def check_builtin(content):
    """A `.tflite` file has operators of LiteRT alone, no Flex ones of TensorFlow."""
    from tensorflow.lite.python import schema_py_generated as schema

    model = schema.Model.GetRootAs(content)
    codes = [model.OperatorCodes(i) for i in range(model.OperatorCodesLength())]
    custom = [code.CustomCode().decode() for code in codes if code.CustomCode()]
    assert codes and not custom, custom


def check_quantized(content, full):
    """A `.tflite` file has weights of eight bits, and is that much the smaller."""
    from ai_edge_litert.interpreter import Interpreter

    tensors = Interpreter(model_content=content).get_tensor_details()
    weights = sum(np.prod(t["shape"]) for t in tensors if t["dtype"] == np.int8)
    assert weights > 10_000, weights
    assert len(content) < len(full) - 2 * weights, (len(content), len(full))


def check_labels(probabilities, expected):
    """The same label wherever the best two are not almost as probable."""
    ranked = np.sort(expected, axis=-1)
    clear = ranked[:, -1] - ranked[:, -2] > 0.02
    assert clear.mean() > 0.9 and len(set(expected.argmax(axis=-1))) > 1
    found = probabilities.argmax(axis=-1)[clear]
    np.testing.assert_array_equal(found, expected.argmax(axis=-1)[clear])
