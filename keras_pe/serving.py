"""SavedModels for TensorFlow Serving: versioned, warmed up, complete or not there."""

import contextlib
import logging
import re
import threading
from collections.abc import Iterable, Mapping, Set

import keras
import numpy as np

from keras_pe import loading, model_card, signatures, versions, warmup
from keras_pe.checks import tensorflow_mode

DEFAULT = "serving_default"
_NAME = re.compile("[A-Za-z][A-Za-z0-9_]*")


def export(model, base_dir, *, samples=None, labels=None, endpoints=None):
    """Export a Keras model as the next version in a folder of TensorFlow Serving's.

    The version is written aside, loaded as the server loads it, asked each of the
    `samples`, and only then moved to `base_dir/N`, N being one more than the largest
    number there. If anything fails, nothing is left, and what was there stays; what an
    export leaves that is killed, the next one removes. It is for any model, with layers
    of this package or without.

    Inputs are named after the model's `Input`s and keep their unknown lengths; the
    batch is always unknown. Outputs are named by the keys of a dict, else `output_0`,
    `output_1` and so on. Each variable is stored once.

    Example:

    >>> import tempfile
    >>> import tensorflow as tf
    >>> import keras_pe
    >>> ids = keras.Input((None,), dtype="int32", name="ids")
    >>> x = keras.layers.Embedding(100, 8, mask_zero=True)(ids)
    >>> x = keras_pe.PositionalEncoding()(x)
    >>> x = keras.layers.GlobalAveragePooling1D()(x)
    >>> x = keras.layers.Dense(2, activation="softmax")(x)
    >>> model = keras.Model(ids, x)
    >>> with tempfile.TemporaryDirectory() as base:
    ...     path = keras_pe.serving.export(
    ...         model, base, samples=[[1, 2, 3], [4, 5]], labels=["bad", "good"]
    ...     )
    ...     served = tf.saved_model.load(path).signatures["serving_default"]
    ...     outputs = served(ids=tf.constant([[1, 2, 3]]))
    >>> path.name, sorted(outputs)
    ('1', ['label', 'probabilities'])

    Args:
        model: A built Keras model, on the TensorFlow backend. A subclassed one takes
            the first argument of its first call, of any length where it answers such
            as well; for more arguments, or for dtypes other than its `input_dtype`,
            wrap it in a functional model.
        base_dir: Folder of the versions; made if it is not there.
        samples: Inputs to warm the server up with, at most 1,000 rows: a list or array
            for a model of one input; for several a dict by their names, or a list in
            their order. Rows may differ in length, so they are asked one by one; an
            element that has the rank of a batch is asked as one. The export has to
            answer each nearly as the model does.
        labels: Names of the classes, for a model that ends in their probabilities, of
            shape `(batch, ..., classes)`. The outputs are then `probabilities` and
            `label`, a string, empty where a probability is not finite. That they are
            such is only checked on `samples`.
        endpoints: Further models by the name of their signatures, such as one that
            takes ids where `model` takes text. `labels` are theirs too; `samples`, as
            a dict, may hold their inputs: all of a model's, or none. Inputs of one name
            get the same rows. A row of an input that is one number is a number.

    Returns:
        The `pathlib.Path` of the new version. In it, `model_card.json` tells the
        signatures, the size of each file but itself in bytes, and the versions of what
        wrote it.

    Raises:
        ValueError: If the backend is another, or a graph is being built; if the model
            is not built, or an output
            has no batch; if a graph cannot run in TensorFlow Serving (Python functions,
            functions that XLA must compile); if `samples`, `labels`, `endpoints` or
            `base_dir` do not fit.
        OSError: If the files cannot be written; `tf.errors.OpError` if TensorFlow
            cannot write them.
    """
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            "The Keras backend must be 'tensorflow': save the model as a `.keras` "
            "file, and export it in a process with KERAS_BACKEND=tensorflow. "
            f"Received: backend {keras.backend.backend()!r}"
        )
    if tensorflow_mode() == "graph":
        raise ValueError(
            "A model must be exported outside of a `tf.function` or a `tf.Graph`. "
            f"Received: model={model!r} within one"
        )
    labels = _check_labels(labels)
    models = {DEFAULT: model, **_check_endpoints(endpoints)}
    with _quiet():
        archive, functions, specs = keras.export.ExportArchive(), {}, {}
        for name, part in models.items():
            functions[name], specs[name] = _add(archive, name, part, labels)
        requests = [] if samples is None else warmup.requests(samples, specs)
        with versions.new_version(base_dir) as (written, move):
            archive.write_out(str(written), verbose=False)
            meta_graph = loading.read(written)
            loading.check_graph(meta_graph)
            answers = loading.ask(written, requests)
            loading.check_answers(requests, answers, functions)
            if labels is not None:
                _check_probabilities(answers)
            if requests:
                warmup.write(written / warmup.FILE, requests)
            model_card.write(written, meta_graph, models, labels, len(requests))
            return move()


def _check_labels(labels):
    if labels is None:
        return None
    # Not the unordered ones.
    if isinstance(labels, Iterable) and not isinstance(labels, (str, Mapping, Set)):
        labels = list(labels)
        if all(isinstance(label, str) and _is_utf8(label) for label in labels):
            return [str(label) for label in labels]  # also NumPy's strings
    raise ValueError(f"`labels` must be a list of strings. Received: labels={labels!r}")


def _is_utf8(text):
    return text.encode(errors="ignore").decode() == text


def _check_endpoints(endpoints):
    # The rest are attributes of what Keras saves.
    taken = {
        DEFAULT,
        "signatures",
        "variables",
        "trainable_variables",
        "non_trainable_variables",
    }
    if endpoints is None:
        return {}
    if isinstance(endpoints, Mapping):
        bad = [
            name
            for name in endpoints
            if not (isinstance(name, str) and _NAME.fullmatch(name)) or name in taken
        ]
    else:
        bad = [endpoints]
    if bad:
        raise ValueError(
            "`endpoints` must be a dict of models by names, each of ASCII letters, "
            "digits and underscores, the first a letter, and none of "
            f"{', '.join(sorted(taken))}. Received: {bad[0]!r}"
        )
    return dict(endpoints)


@contextlib.contextmanager
def _quiet():
    """Keep TensorFlow from telling of each file, and that its loader is an old one."""
    logger, thread = logging.getLogger("tensorflow"), threading.get_ident()

    def keep(record):
        return record.thread != thread or record.levelno >= logging.ERROR

    logger.addFilter(keep)
    try:
        yield
    finally:
        logger.removeFilter(keep)


def _add(archive, name, model, labels):
    """Add a signature to what will be written; return its function and input specs."""
    import tensorflow as tf

    weights = len(getattr(model, "variables", ()))
    try:
        serve, specs = signatures.make(model, labels)
        # Keras stores the variables of a model that it tracks twice. Those that the
        # functions use it finds by itself, but no lookup tables.
        for part in tf.train.TrackableView(model).descendants():
            if isinstance(part, tf.saved_model.experimental.TrackableResource):
                archive.track(part)
        function = archive.add_endpoint(name, serve, specs)
        signatures.check_outputs(function.get_concrete_function().structured_outputs)
        if len(model.variables) > weights:
            raise ValueError(
                "`model` must have its weights: call it once, and train it or load "
                f"them. Received: model={model.name!r}, which makes weights as it is "
                "called"
            )
    except ValueError as error:
        if name == DEFAULT:
            raise
        raise ValueError(f"In the signature {name!r}: {error}") from error
    return serve, {spec.name: spec for spec in specs}


def _check_probabilities(answers):
    for outputs in answers:
        values = outputs["probabilities"].astype("float64")
        if not np.isfinite(values).all():
            raise ValueError(
                "With `labels`, the probabilities of `samples` must be finite. "
                "(GlobalAveragePooling1D divides by zero where a whole row is masked.) "
                f"Received: the outputs {values[0].tolist()}"
            )
        if not ((values >= 0).all() and (abs(values.sum(-1) - 1) < 0.05).all()):
            raise ValueError(
                "With `labels`, the model must end in probabilities that add up to 1: "
                "give its last layer a softmax. "
                f"Received: the outputs {values[0].tolist()}"
            )
