"""A SavedModel as TensorFlow Serving finds it: its graph, and what it answers."""

import numpy as np

# Operations that call back into the Python that wrote them.
_PYTHON = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}


def read(path):
    """Read the `MetaGraphDef` of the SavedModel in a folder."""
    from tensorflow.core.protobuf import saved_model_pb2

    data = (path / "saved_model.pb").read_bytes()
    [meta_graph] = saved_model_pb2.SavedModel.FromString(data).meta_graphs
    return meta_graph


def check_graph(meta_graph):
    """Refuse a graph that TensorFlow Serving loads, but cannot run.

    Raises:
        ValueError: If it calls Python, or has functions that XLA must compile, which
            the server has switched off by default.
    """
    graph = meta_graph.graph_def
    functions = graph.library.function
    nodes = [*graph.node, *(node for f in functions for node in f.node_def)]
    if found := sorted({node.op for node in nodes} & _PYTHON):
        raise ValueError(
            "A SavedModel cannot hold Python functions (`tf.py_function`, "
            "`tf.numpy_function`): no other process has them. Write them in "
            f"operations of Keras or TensorFlow. Received: {', '.join(found)}"
        )
    compiled = [f.signature.name for f in functions if f.attr["_XlaMustCompile"].b]
    compiled += [node.name for node in nodes if node.attr["_XlaMustCompile"].b]
    if compiled:
        raise ValueError(
            "A model must not hold functions that XLA must compile "
            "(`jit_compile=True`): TensorFlow Serving fails each call of them, since "
            f"its XLA is switched off by default. Received: {compiled[0]!r}"
        )


def ask(path, requests):
    """Load a SavedModel into a session, as the server does, and run requests.

    `tf.saved_model.load` would not do: it finds variables through Python objects, and
    also loads models that the server's C++ loader cannot.

    Args:
        path: Folder of the SavedModel.
        requests: Pairs: the name of a signature, and an array for each input.

    Returns:
        For each request, an array for each output.

    Raises:
        ValueError: If a request fails.
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    with v1.Session(graph=tf.Graph()) as session:
        loaded = v1.saved_model.load(session, [tf.saved_model.SERVING], str(path))
        return [
            _run(session, loaded.signature_def[signature], signature, inputs)
            for signature, inputs in requests
        ]


def _run(session, tensors, signature, inputs):
    import tensorflow as tf

    feeds = {tensors.inputs[name].name: array for name, array in inputs.items()}
    fetches = {name: tensor.name for name, tensor in tensors.outputs.items()}
    shapes = {name: array.shape for name, array in inputs.items()}
    try:
        outputs = session.run(fetches, feeds)
    except tf.errors.OpError as error:
        raise ValueError(
            f"`samples` must be answered by the exported {signature!r}. Received: "
            f"inputs of the shapes {shapes}, which failed: {error.message}"
        ) from error
    batches = [array.shape[:1] for array in inputs.values() if array.ndim]
    for name, output in outputs.items():
        if output.shape[:1] not in batches:
            raise ValueError(
                "Each output must have the batch as its first axis. Received: inputs "
                f"of the shapes {shapes}, and {name!r} of shape {output.shape}"
            )
    return outputs


def check_answers(requests, answers, functions):
    """Refuse answers that are not the model's own.

    Numbers may differ as half types round, and wholly in a model that is random.

    Args:
        requests, answers: As for `ask`, and from it.
        functions: By the name of a signature, what computes its outputs.

    Raises:
        ValueError: If one differs in shape, or in its numbers by more than that.
    """
    import tensorflow as tf

    for (signature, inputs), outputs in zip(requests, answers, strict=True):
        tensors = [tf.constant(array) for array in inputs.values()]
        wanted = functions[signature](*tensors)
        given = [outputs[name] for name in wanted]
        if are_alike(given, wanted.values()):
            continue
        again = functions[signature](*tensors)
        shapes = {name: tuple(tensor.shape) for name, tensor in wanted.items()}
        if shapes == {name: outputs[name].shape for name in wanted} and not are_alike(
            again.values(), wanted.values(), rounding=0.0
        ):
            continue
        raise ValueError(
            f"The exported {signature!r} must answer `samples` as the model does. "
            "Received: other answers for inputs of the shapes "
            f"{[array.shape for array in inputs.values()]}: of the shapes "
            f"{[array.shape for array in given]}, the model's of {[*shapes.values()]}"
        )


def are_alike(outputs, wanted, rounding=0.05):
    """Whether tensors have the shapes of others, and floats nearly their values."""
    for output, other in zip(outputs, wanted, strict=True):
        output, other = np.asarray(output), np.asarray(other)
        if output.shape != other.shape:
            return False
        if output.dtype.kind in "fV":  # V: bfloat16
            output, other = output.astype("float64"), other.astype("float64")
            size = np.abs(other[np.isfinite(other)]).max(initial=1.0)
            if not np.allclose(output, other, 0, rounding * size, equal_nan=True):
                return False
    return True
