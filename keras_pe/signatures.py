"""What the signatures of a SavedModel take and give, by names."""

import keyword
import re

import keras

from keras_pe.checks import dtype_name, is_dense
from keras_pe.model_inputs import find_inputs

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
        batch unknown where they have one.

    Raises:
        ValueError: If the model is not built, or its inputs cannot be named.
    """
    import tensorflow as tf

    inputs = find_inputs(model)
    _check_inputs(keras.tree.flatten(inputs))

    def serve(*tensors):
        outputs = model(keras.tree.pack_sequence_as(inputs, list(tensors)))
        return _named(outputs) if labels is None else _labelled(outputs, labels)

    return serve, [
        tf.TensorSpec(_of_any_batch(tensor.shape), tensor.dtype, name=tensor.name)
        for tensor in keras.tree.flatten(inputs)
    ]


def _of_any_batch(shape):
    """Return a shape with its batch unknown; a scalar, for all rows, has none."""
    return (None, *shape[1:]) if shape else ()


def _check_inputs(inputs):
    # As TensorFlow writes an argument.
    arguments = [re.sub(r"\W", "_", tensor.name).lower() for tensor in inputs]
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
    tensors = keras.tree.flatten(outputs)
    if isinstance(outputs, dict):
        paths = [path for path, _ in keras.tree.flatten_with_path(outputs)]
        names = ["_".join(map(str, path)) for path in paths]
    else:
        names = [f"output_{i}" for i in range(len(tensors))]
    _check_outputs(outputs, tensors, names)
    return dict(zip(names, tensors, strict=True))


def _check_outputs(outputs, tensors, names):
    import tensorflow as tf

    good = all(tf.is_tensor(tensor) and is_dense(tensor) for tensor in tensors)
    # A surrogate is a character that no message can hold.
    named = all(
        name and name.encode(errors="ignore").decode() == name for name in names
    )
    if not (tensors and good and named and len({*names}) == len(names)):
        raise ValueError(
            "`model` must return dense tensors, in a dict with keys of their own or in "
            f"a list. Received: {keras.tree.map_structure(_kind, outputs)}"
        )


def _kind(output):
    return type(output).__name__


def _labelled(outputs, labels):
    import tensorflow as tf

    tensors = list(_named(outputs).values())
    probabilities, shapes = tensors[0], [tuple(tensor.shape) for tensor in tensors]
    if (
        len(labels) < 2
        or len(shapes) != 1
        or shapes[0][1:][-1:] != (len(labels),)
        or "float" not in dtype_name(probabilities)
    ):
        raise ValueError(
            "`labels` must name each of the classes, two or more, that the model gives "
            "the probabilities of: one float output of shape (batch, ..., classes). "
            f"Received: {len(labels)} labels, and outputs of the shapes {shapes}, "
            f"the first of dtype {dtype_name(probabilities)}"
        )
    label = tf.gather(tf.constant(labels), tf.argmax(probabilities, axis=-1))
    # Of a row of NaN it would be the first class.
    finite = tf.reduce_all(tf.math.is_finite(probabilities), axis=-1)
    label = tf.where(finite, label, "")
    return {"label": label, "probabilities": probabilities}
