"""What a Keras model takes: its inputs, as `KerasTensor`s with names."""

import inspect

import keras
import numpy as np

from keras_pe.loading import are_alike


def find_inputs(model):
    """Find the structure of `KerasTensor`s that a model is called on.

    Those of its `Input`s; else what Keras has kept of the first call, with its lengths
    unknown where the model does the same with them.

    Raises:
        ValueError: If the model is not built, or takes more than Keras has kept.
    """
    if not isinstance(model, keras.Model):
        raise ValueError(f"`model` must be a Keras model. Received: model={model!r}")
    if not model.built:
        raise ValueError(
            "`model` must be built: call it once, or start it with an `Input`. "
            f"Received: model={model.name!r}, which is not built"
        )
    inputs = getattr(model, "inputs", None)
    if inputs and not isinstance(model, keras.Sequential):
        return model.input
    if inputs and inputs[0].shape[0] is None:
        return inputs[0]
    called = _first_call(model)
    opened = keras.tree.map_structure(_opened, called)
    return opened if _does_the_same(model, called, opened) else called


def _first_call(model):
    """The first argument of the first call, which is all that Keras has kept."""
    shapes = (model.get_build_config() or {}).get("input_shape")
    first, *others = inspect.signature(model.call).parameters.values()
    needed = [
        p.name
        for p in others
        if p.default is p.empty
        and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        and p.name not in ("training", "mask")  # which Keras gives
    ]
    if shapes is None or needed or first.kind is first.KEYWORD_ONLY:
        raise ValueError(
            "`model` must have `Input`s, or take one argument. Wrap it: make a "
            "`keras.Input` for each, and export `keras.Model(inputs, model(...))`. "
            f"Received: model={model.name!r}, a {type(model).__name__} that takes "
            f"{', '.join([first.name, *needed])}"
        )
    return _tensors(shapes, first.name, model.input_dtype)


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


def _does_the_same(model, called, opened):
    """Whether a model traced with unknown lengths answers as it does without a trace.

    It may not: a size that is unknown as the model is traced is None in its code.
    """
    import tensorflow as tf

    specs = [tf.TensorSpec(t.shape, t.dtype) for t in keras.tree.flatten(opened)]

    @tf.function(input_signature=specs, autograph=False)
    def traced(*tensors):
        return model(keras.tree.pack_sequence_as(opened, list(tensors)))

    lengths = zip(keras.tree.flatten(called), keras.tree.flatten(opened), strict=True)
    try:
        tensors = [_ones(first, tensor) for first, tensor in lengths]
        answers = keras.tree.flatten(traced(*tensors))
        wanted = model(keras.tree.pack_sequence_as(opened, tensors))
        return are_alike(answers, keras.tree.flatten(wanted))
    except Exception:  # whatever a model does that needs its length
        return False


def _ones(called, opened):
    """Ones of the first call's features, and a step more where it may differ."""
    sizes = zip(called.shape[1:], opened.shape[1:], strict=True)
    shape = [size if known else (size or 4) + 1 for size, known in sizes]
    return keras.ops.convert_to_tensor(np.ones((3, *shape)), opened.dtype)
