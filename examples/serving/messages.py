"""The protobuf messages of TensorFlow and TF Serving, without starting TensorFlow."""

import importlib.util
import sys

import ml_dtypes
import numpy as np

# By the number that TensorFlow gives a type. Strings are bytes in arrays of objects.
DTYPES = {
    1: np.dtype("float32"),
    2: np.dtype("float64"),
    3: np.dtype("int32"),
    4: np.dtype("uint8"),
    5: np.dtype("int16"),
    6: np.dtype("int8"),
    7: np.dtype("object"),
    8: np.dtype("complex64"),
    9: np.dtype("int64"),
    10: np.dtype("bool"),
    14: np.dtype(ml_dtypes.bfloat16),
    17: np.dtype("uint16"),
    18: np.dtype("complex128"),
    19: np.dtype("float16"),
    22: np.dtype("uint32"),
    23: np.dtype("uint64"),
}
STRING = 7


def import_messages():
    """Lets `tensorflow.core` and `tensorflow_serving.apis` be imported on their own.

    Their modules need nothing of TensorFlow, but importing them starts it, which takes
    seconds, unless a package without content stands in its place. Nothing changes in a
    process that has imported TensorFlow. After this, `import tensorflow` gives that
    empty package: call it only in programs that need no more.
    """
    if "tensorflow" in sys.modules:
        return
    spec = importlib.util.find_spec("tensorflow")
    if spec is None:
        raise ImportError(
            "The messages come with the package tensorflow, which is not installed: "
            "`pip install tensorflow`."
        )
    sys.modules["tensorflow"] = importlib.util.module_from_spec(spec)


def to_proto(array):
    """Returns an array as a `TensorProto`; strings are str or bytes, of any dtype."""
    import_messages()
    from tensorflow.core.framework import tensor_pb2

    array = np.asarray(array)
    proto = tensor_pb2.TensorProto()
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    if array.dtype.kind in "OSUT":
        proto.dtype = STRING
        proto.string_val.extend(map(_to_bytes, array.ravel().tolist()))
        return proto
    native = array.astype(array.dtype.newbyteorder("="))
    numbers = [number for number, dtype in DTYPES.items() if dtype == native.dtype]
    if not numbers:
        raise TypeError(
            f"dtype must be string or one of {', '.join(map(str, DTYPES.values()))}. "
            f"Received: {array.dtype}"
        )
    [proto.dtype] = numbers
    proto.tensor_content = native.tobytes()
    return proto


def _to_bytes(string):
    if isinstance(string, str):
        return string.encode()
    if isinstance(string, bytes):
        return string
    raise TypeError(f"Strings must be str or bytes. Received: {string!r}")
