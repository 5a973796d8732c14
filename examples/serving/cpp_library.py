"""TensorFlow's C API through ctypes: the library, its errors and its tensors."""

import contextlib
import ctypes
import importlib.util
import math
import sys
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path

import numpy as np
from messages import DTYPES, STRING

NAME = f"libtensorflow_cc.{'2.dylib' if sys.platform == 'darwin' else 'so.2'}"
DISABLE_XLA = "_ZN10tensorflow21DisableXlaCompilationEv"
STRING_SIZE = 24  # of a TF_TString

CODES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED"),
    *("NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED"),
    *("FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL"),
    *("UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)


class Error(Exception):
    """An error of the runtime: `code` is the number that TensorFlow and gRPC give it.

    `Error("NOT_FOUND", message)`, or the number.
    """

    def __init__(self, code, message):
        self.code = CODES.index(code) if isinstance(code, str) else code
        self.message = message
        super().__init__(f"{CODES[self.code]}: {message}")


class Buffer(ctypes.Structure):
    _fields_ = (("data", c_void_p), ("length", c_size_t), ("deallocator", c_void_p))


class Output(ctypes.Structure):
    _fields_ = (("operation", c_void_p), ("index", c_int))


_OUTPUTS, _TENSORS, _BUFFER = POINTER(Output), POINTER(c_void_p), POINTER(Buffer)
# What a function returns, then what it takes. Pointers that stay closed: c_void_p.
_FUNCTIONS = {
    DISABLE_XLA: (None,),
    "TF_Version": (c_char_p,),
    "TF_NewStatus": (c_void_p,),
    "TF_GetCode": (c_int, c_void_p),
    "TF_Message": (c_char_p, c_void_p),
    "TF_DeleteStatus": (None, c_void_p),
    "TF_NewBuffer": (_BUFFER,),
    "TF_NewBufferFromString": (_BUFFER, c_char_p, c_size_t),
    "TF_DeleteBuffer": (None, _BUFFER),
    "TF_NewGraph": (c_void_p,),
    "TF_GraphOperationByName": (c_void_p, c_void_p, c_char_p),
    "TF_DeleteGraph": (None, c_void_p),
    "TF_NewSessionOptions": (c_void_p,),
    "TF_DeleteSessionOptions": (None, c_void_p),
    "TF_LoadSessionFromSavedModel": (
        *(c_void_p, c_void_p, c_void_p, c_char_p, POINTER(c_char_p), c_int),
        *(c_void_p, _BUFFER, c_void_p),
    ),
    "TF_SessionRun": (
        *(None, c_void_p, c_void_p, _OUTPUTS, _TENSORS, c_int, _OUTPUTS, _TENSORS),
        *(c_int, c_void_p, c_int, c_void_p, c_void_p),
    ),
    "TF_CloseSession": (None, c_void_p, c_void_p),
    "TF_DeleteSession": (None, c_void_p, c_void_p),
    "TF_AllocateTensor": (c_void_p, c_int, POINTER(c_int64), c_int, c_size_t),
    "TF_TensorFromProto": (None, _BUFFER, c_void_p, c_void_p),
    "TF_TensorType": (c_int, c_void_p),
    "TF_NumDims": (c_int, c_void_p),
    "TF_Dim": (c_int64, c_void_p, c_int),
    "TF_TensorData": (c_void_p, c_void_p),
    "TF_DeleteTensor": (None, c_void_p),
    "TF_StringGetDataPointer": (c_void_p, c_void_p),
    "TF_StringGetSize": (c_size_t, c_void_p),
}
_loaded = {}


def load(folder=None):
    """Returns the library in `folder`, or of the installed wheel, with XLA off.

    That is how TF Serving starts: with XLA, a model could run here and fail there.
    """
    folder = Path(folder or _wheel()).resolve()
    if folder not in _loaded:
        if _loaded or "tensorflow.python" in sys.modules:
            raise Error(
                "FAILED_PRECONDITION",
                "A process must have one TensorFlow, and none in Python. Received: "
                f"{str(folder)!r} beside {[*map(str, _loaded)] or 'Python TensorFlow'}",
            )
        _loaded[folder] = _open(folder / NAME)
    return _loaded[folder]


def _wheel():
    spec = importlib.util.find_spec("tensorflow")
    if spec is None:
        raise Error("NOT_FOUND", "The package tensorflow is not installed.")
    return spec.submodule_search_locations[0]


def _open(path):
    if not path.exists():
        raise Error("NOT_FOUND", f"No {NAME} in {str(path.parent)!r}")
    try:
        library = ctypes.CDLL(str(path), ctypes.RTLD_LOCAL)
        for name, (result, *arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        message = f"Cannot use {str(path)!r}: {error}"
        raise Error("FAILED_PRECONDITION", message) from error
    getattr(library, DISABLE_XLA)()
    return library


@contextlib.contextmanager
def checked(library):
    """Gives a status to a call, and raises the error that the call puts there."""
    status = library.TF_NewStatus()
    try:
        yield status
        if code := library.TF_GetCode(status):
            raise Error(code, library.TF_Message(status).decode(errors="replace"))
    finally:
        library.TF_DeleteStatus(status)


def new_tensor(library, proto):
    """Returns a tensor with the content of a `TensorProto`; delete it after use."""
    data = proto.SerializeToString()
    buffer = library.TF_NewBufferFromString(data, len(data))
    tensor = library.TF_AllocateTensor(1, (c_int64 * 1)(0), 1, 0)
    try:
        with checked(library) as status:
            library.TF_TensorFromProto(buffer, tensor, status)
    except Error:
        library.TF_DeleteTensor(tensor)
        raise
    finally:
        library.TF_DeleteBuffer(buffer)
    return tensor


def read_tensor(library, tensor):
    """Returns a copy of the tensor as an array."""
    number = library.TF_TensorType(tensor)
    if number not in DTYPES:
        raise Error("UNIMPLEMENTED", f"No array can hold TensorFlow's type {number}")
    rank = library.TF_NumDims(tensor)
    shape = [library.TF_Dim(tensor, i) for i in range(rank)]
    array = np.empty(shape, DTYPES[number])
    data = library.TF_TensorData(tensor)
    if number != STRING:
        ctypes.memmove(array.ctypes.data, data, array.nbytes)
        return array
    for i in range(math.prod(shape)):
        string = data + i * STRING_SIZE
        size = library.TF_StringGetSize(string)
        start = library.TF_StringGetDataPointer(string)
        array.flat[i] = ctypes.string_at(start, size)
    return array
