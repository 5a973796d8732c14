"""What the signatures of a SavedModel take and give, and inputs made for them."""

from typing import NamedTuple

import numpy as np
from cpp_library import Error
from messages import DTYPES, STRING, import_messages, to_proto


class Tensor(NamedTuple):
    """An input or output: `shape` is None, or has None, where the model leaves it open.

    `dtype` is NumPy's name of it, or "string".
    """

    name: str
    dtype: str
    shape: tuple | None


class Signature(NamedTuple):
    """The inputs and outputs of a signature: `{key: Tensor}`."""

    inputs: dict
    outputs: dict


def read_signatures(meta):
    """Returns the signatures of a serialized `MetaGraphDef` by name."""
    import_messages()
    from tensorflow.core.protobuf import meta_graph_pb2

    definitions = meta_graph_pb2.MetaGraphDef.FromString(meta).signature_def
    return {
        name: Signature(*map(read_tensors, (signature.inputs, signature.outputs)))
        for name, signature in sorted(definitions.items())
        if name != "__saved_model_init_op"
    }


def read_tensors(infos):
    tensors = {}
    for key, info in sorted(infos.items()):
        dtype = DTYPES.get(info.dtype, f"type {info.dtype}")
        shape = tuple(
            None if dim.size < 0 else dim.size for dim in info.tensor_shape.dim
        )
        tensors[key] = Tensor(
            info.name,
            "string" if info.dtype == STRING else str(dtype),
            None if info.tensor_shape.unknown_rank else shape,
        )
    return tensors


def check_keys(name, keys, allowed):
    if unknown := [key for key in keys if key not in allowed]:
        raise Error(
            "INVALID_ARGUMENT",
            f"`{name}` must be of {list(allowed)}. Received: {unknown}",
        )


def make_protos(inputs, tensors):
    """Returns a `TensorProto` for each of a signature's inputs, in their order."""
    check_keys("inputs", inputs, tensors)
    if missing := [key for key in tensors if key not in inputs]:
        raise Error("INVALID_ARGUMENT", f"`inputs` must also have {missing}")
    return [_make_proto(key, inputs[key], tensors[key].dtype) for key in tensors]


def _make_proto(key, value, dtype):
    from tensorflow.core.framework import tensor_pb2

    if isinstance(value, tensor_pb2.TensorProto):
        return value
    try:
        if not isinstance(value, np.ndarray | np.generic):
            value = _to_array(value, dtype)
        return to_proto(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise Error("INVALID_ARGUMENT", f"Input {key!r}: {error}") from error


def _to_array(value, dtype):
    if dtype == "string":
        return np.array(value, object)
    given = np.array(value)
    array = np.array(value, dtype)
    # NumPy would read numbers in strings, and cut fractions off.
    if given.dtype.kind not in "biufc" or (
        array.dtype.kind in "biu" and not np.array_equal(array, given)
    ):
        raise ValueError(f"must be of dtype {dtype}. Received: {value!r}")
    return array
