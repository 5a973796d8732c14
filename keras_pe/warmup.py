"""Requests that TensorFlow Serving answers to itself before it answers others."""

from collections.abc import Mapping

import numpy as np

# Where TensorFlow Serving looks for them, and how many it reads.
FILE = "assets.extra/tf_serving_warmup_requests"
MOST = 1_000


def requests(samples, signatures):
    """Sort samples into requests, and fit them to what a model takes.

    Args:
        samples: What `keras_pe.serving.export` was given.
        signatures: The `tf.TensorSpec`s of the inputs by their names, by the name of
            the signature; the default one comes first.

    Returns:
        A list of pairs: the name of a signature, and an array for each of its inputs.

    Raises:
        ValueError: If they do not fit.
    """
    samples = _by_name(samples, signatures)
    found = []
    for signature, specs in signatures.items():
        given = [name for name in specs if name in samples]
        if not given:
            continue
        counts = {name: len(samples[name]) for name in given}
        if len(given) < len(specs) or len(set(counts.values())) > 1:
            raise ValueError(
                f"`samples` must have as many rows for each input of {signature!r}: "
                f"{', '.join(specs)}. Received: {counts}"
            )
        for rows in zip(*(samples[name] for name in specs), strict=True):
            named = zip(specs, rows, strict=True)
            inputs = {name: _fit(name, row, specs[name]) for name, row in named}
            if len({len(array) for array in inputs.values() if array.ndim}) > 1:
                shapes = {name: array.shape for name, array in inputs.items()}
                raise ValueError(
                    "The inputs of one request must be as many rows each. Received: "
                    f"samples with the shapes {shapes}"
                )
            found.append((signature, inputs))
    default = next(iter(signatures))
    if not any(signature == default for signature, _ in found):
        raise ValueError(
            f"`samples` must have at least one row for {default!r}. Received: none"
        )
    if len(found) > MOST:
        raise ValueError(
            f"`samples` must be at most {MOST} rows, which is all that TensorFlow "
            f"Serving reads. Received: {len(found)}"
        )
    return found


def _by_name(samples, signatures):
    specs = next(iter(signatures.values()))
    known = {name: None for specs in signatures.values() for name in specs}
    if isinstance(samples, Mapping):
        if unknown := [name for name in samples if name not in known]:
            raise ValueError(
                f"`samples` must be rows for the inputs {', '.join(known)}. "
                f"Received: {', '.join(map(repr, unknown))}"
            )
    elif len(specs) == 1:
        samples = {name: samples for name in specs}
    elif isinstance(samples, (list, tuple)) and len(samples) == len(specs):
        samples = dict(zip(specs, samples, strict=True))
    else:
        raise ValueError(
            "`samples` must be a dict with rows for each of the inputs "
            f"{', '.join(specs)}, or a list of them in that order. "
            f"Received: {type(samples).__name__}"
        )
    return {name: _rows(name, rows) for name, rows in samples.items()}


def _rows(name, rows):
    if isinstance(rows, (list, tuple, range)):
        return rows
    array = np.asarray(rows) if hasattr(rows, "__array__") else np.array(None)
    if array.ndim == 0:
        raise ValueError(
            f"`samples` must be a list or an array of rows for the input {name!r}. "
            f"Received: {rows!r:.80}"
        )
    return array


def _fit(name, row, spec):
    """Make an array for an input of one row or of a batch of them."""
    dtype = spec.dtype.as_numpy_dtype
    try:
        array = _cast(row, dtype)
    except (AttributeError, TypeError, ValueError) as error:
        raise _misfit(name, spec, f"{row!r:.80}") from error
    if array.ndim == spec.shape.rank - 1:
        array = array[None]
    if not spec.shape.is_compatible_with(array.shape) or array.shape[:1] == (0,):
        raise _misfit(name, spec, f"an array of shape {array.shape}")
    return array


def _cast(row, dtype):
    if dtype is object:  # strings
        array = np.asarray(row, object)
        texts = [
            text if isinstance(text, bytes) else text.encode() for text in array.flat
        ]
        return np.array(texts, object).reshape(array.shape)
    array = np.asarray(row)
    # What may become what. V: the types of ml_dtypes, bfloat16 among them.
    kinds = {"b": "b", "i": "iu", "u": "iu", "c": "iufcV"}
    if array.size and array.dtype.kind not in kinds.get(np.dtype(dtype).kind, "iufV"):
        raise TypeError(f"{array.dtype} cannot become {np.dtype(dtype)}.")
    with np.errstate(over="ignore"):
        cast = array.astype(dtype)
    whole = cast.dtype.kind in "iu"
    if (cast != array if whole else np.isinf(cast) & ~np.isinf(array)).any():
        raise ValueError(f"The values are beyond {cast.dtype}.")
    return cast


def _misfit(name, spec, received):
    shape = tuple(spec.shape)
    return ValueError(
        f"`samples` must fit the signature: for the input {name!r} rows of shape "
        f"{shape[1:]}, or batches of shape {shape}, and of dtype {spec.dtype.name}. "
        f"Received: {received}"
    )


def write(path, found):
    """Write the file of requests.

    A record is a `PredictionLog` of TensorFlow Serving, of which a request is a small
    part. It is written by hand, since installing `tensorflow-serving-api` for it takes
    the newest TensorFlow along.
    """
    import tensorflow as tf

    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as file:
        for signature, inputs in found:
            # ModelSpec.signature_name = 3, in PredictRequest.model_spec = 1
            request = _field(1, _field(3, signature.encode()))
            for name, array in inputs.items():
                tensor = tf.make_tensor_proto(array, array.dtype, array.shape)
                # An entry of the map PredictRequest.inputs = 2: key = 1, value = 2
                request += _field(
                    2, _field(1, name.encode()) + _field(2, tensor.SerializeToString())
                )
            # PredictLog.request = 1, in PredictionLog.predict_log = 6
            file.write(_field(6, _field(1, request)))


def _field(number, content):
    """A field of bytes in the protocol buffers' wire format."""
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(number):
    *low, high = [
        number >> shift & 127 for shift in range(0, number.bit_length() or 1, 7)
    ]
    return bytes([digit | 128 for digit in low] + [high])
