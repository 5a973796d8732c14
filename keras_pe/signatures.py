"""What the signatures of a SavedModel take and give, by names."""

import inspect
import keyword
import re

import keras

# What TensorFlow takes as the name of an argument and of a node at once.
_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.>-]*")


def make(model, labels=None):
    """Make the function that a signature calls, and the specs of what it takes.

    Args:
        model: A built Keras model.
        labels: Names of the classes that the model gives the probabilities of.

    Returns:
        A function of one tensor for each input, which gives a dict of tensors, and a
        list of `tf.TensorSpec`s: the names, dtypes and shapes of the inputs, their
        batch unknown.

    Raises:
        ValueError: If the model is not built, or its inputs cannot be named.
    """
    inputs, opened = _inputs(model)
    _check_inputs(keras.tree.flatten(inputs))
    if opened is not None and _can_be_traced(*_function(model, opened, labels)):
        inputs = opened
    return _function(model, inputs, labels)


def _can_be_traced(function, specs):
    import tensorflow as tf

    try:
        tf.function(function, specs, autograph=False).get_concrete_function()
    except Exception:  # whatever a model does that needs its length
        return False
    return True


def _inputs(model):
    """Find the structure of `KerasTensor`s that a model is called on.

    Returns:
        That structure, and, where Keras only knows the first call, also one with every
        length unknown; else `None`.
    """
    if not isinstance(model, keras.Model):
        raise ValueError(f"`model` must be a Keras model. Received: model={model!r}")
    if not model.built:
        raise ValueError(
            "`model` must be built: call it once, or start it with an `Input`. "
            f"Received: model={model.name!r}, which is not built"
        )
    if isinstance(model, keras.Sequential):
        [inputs] = model.inputs
        if inputs.shape[0] is None:
            return inputs, None
    elif getattr(model, "inputs", None):
        return model.input, None
    shapes = (model.get_build_config() or {}).get("input_shape")
    if shapes is None:
        raise ValueError(
            "`model` must have inputs of known shapes. Wrap it: make a `keras.Input` "
            "for each, and export `keras.Model(inputs, model(...))`. "
            f"Received: model={model.name!r}, a {type(model).__name__}"
        )
    first = next(iter(inspect.signature(model.call).parameters))
    inputs = _tensors(shapes, first, model.input_dtype)
    return inputs, keras.tree.map_structure(_opened, inputs)


def _tensors(shapes, name, dtype):
    if isinstance(shapes, dict):
        return {key: _tensors(shape, key, dtype) for key, shape in shapes.items()}
    if all(isinstance(size, (int, type(None))) for size in shapes):
        return keras.KerasTensor(shapes, dtype, name=name)
    return [_tensors(s, f"{name}_{i}", dtype) for i, s in enumerate(shapes)]


def _opened(tensor):
    """Forget every size but that of the features."""
    features = tensor.shape[-1:] if len(tensor.shape) > 2 else ()
    lengths = (None,) * (len(tensor.shape) - len(features))
    return keras.KerasTensor(lengths + features, tensor.dtype, name=tensor.name)


def _check_inputs(inputs):
    # TensorFlow writes other characters of an argument as underscores.
    arguments = [re.sub(r"\W", "_", tensor.name) for tensor in inputs]
    for tensor, argument in zip(inputs, arguments, strict=True):
        if (
            not _NAME.fullmatch(tensor.name)
            or keyword.iskeyword(tensor.name)
            or tensor.name == "self"
            or arguments.count(argument) > 1
        ):
            raise ValueError(
                "The name of an `Input` must be ASCII letters, digits and underscores, "
                "no word of Python's, and unlike the others. Give it another in a "
                "wrapper: `inputs = keras.Input(..., name=...)`, "
                "`keras.Model(inputs, model(inputs))`. "
                f"Received: name={tensor.name!r}"
            )
        if tensor.sparse or getattr(tensor, "ragged", False):
            raise ValueError(
                "An exported model must take dense tensors: densify in front of it. "
                f"Received: the sparse or ragged input {tensor.name!r}"
            )


def _function(model, inputs, labels):
    import tensorflow as tf

    def serve(*tensors):
        outputs = model(keras.tree.pack_sequence_as(inputs, list(tensors)))
        return _named(outputs) if labels is None else _labelled(outputs, labels)

    return serve, [
        tf.TensorSpec((None, *tensor.shape[1:]), tensor.dtype, name=tensor.name)
        for tensor in keras.tree.flatten(inputs)
    ]


def check_outputs(outputs):
    """Refuse outputs by name, of which one is known not to have the batch in front."""
    for name, output in outputs.items():
        shape = output.shape
        if shape.rank is not None and (shape.rank == 0 or shape[0] is not None):
            raise ValueError(
                "Each output must have the batch as its first axis, since TensorFlow "
                "Serving splits and joins batches along it. "
                f"Received: the output {name!r} of shape {tuple(shape)}"
            )


def _named(outputs):
    """Outputs by the keys of a dict, else as output_0, output_1 and so on."""
    if isinstance(outputs, dict):
        named = {}
        for path, tensor in keras.tree.flatten_with_path(outputs):
            named["_".join(map(str, path))] = tensor
    else:
        named = {f"output_{i}": t for i, t in enumerate(keras.tree.flatten(outputs))}
    if (
        not named
        or None in named.values()
        or len(named) < len(keras.tree.flatten(outputs))
    ):
        raise ValueError(
            "`model` must return tensors, in a dict with keys of their own or in a "
            f"list. Received: {keras.tree.map_structure(type, outputs)}"
        )
    return named


def _labelled(outputs, labels):
    import tensorflow as tf

    [probabilities, *others] = keras.tree.flatten(outputs)
    shape = getattr(probabilities, "shape", ())
    if others or len(shape) != 2 or shape[-1] != len(labels):
        raise ValueError(
            "`labels` must name each of the classes that the model gives the "
            "probabilities of, one output of shape (batch, classes). "
            f"Received: {len(labels)} labels, and outputs of the shapes "
            f"{[tuple(t.shape) for t in (probabilities, *others)]}"
        )
    label = tf.gather(tf.constant(labels), tf.argmax(probabilities, axis=-1))
    return {"label": label, "probabilities": probabilities}
