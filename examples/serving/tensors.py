"""Read the TensorProtos of an answer into NumPy arrays, without TensorFlow."""

import numpy as np
from messages import DTYPES

# By the number of the type: where its values are if they are not in `tensor_content`.
FIELDS = {
    **{1: "float_val", 2: "double_val", 7: "string_val", 9: "int64_val"},
    **dict.fromkeys((3, 4, 5, 6, 17), "int_val"),
    **{10: "bool_val", 14: "half_val", 19: "half_val"},
    **{22: "uint32_val", 23: "uint64_val"},
}


def from_proto(proto):
    """Returns the array of a TensorProto; strings are bytes in an array of objects."""
    if proto.dtype not in FIELDS:
        raise ValueError(
            f"The type of a tensor must be one of {sorted(FIELDS)}, as in types.proto. "
            f"Received: {proto.dtype}"
        )
    dtype, field = DTYPES[proto.dtype], FIELDS[proto.dtype]
    if proto.tensor_content:
        array = np.frombuffer(proto.tensor_content, dtype)
    elif field == "half_val":  # which holds the bits
        array = np.array(proto.half_val, "uint16").view(dtype)
    else:
        array = np.array(getattr(proto, field), dtype)
    return array.reshape([dim.size for dim in proto.tensor_shape.dim])
