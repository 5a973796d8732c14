"""Asks TensorFlow's C++ runtime, in processes without TensorFlow in Python."""

import os
import textwrap
from pathlib import Path

import processes
import pytest

SERVING = processes.ROOT / "examples" / "serving"

# Folders with the libraries of other versions of TensorFlow, beside the installed one.
_FOLDERS = os.environ.get("KERAS_PE_CPP_LIBRARIES", "").split(os.pathsep)
each_library = pytest.mark.parametrize(
    "libraries",
    ["", *filter(None, _FOLDERS)],
    ids=lambda folder: Path(folder).name or "installed",
)

_BEFORE = """
import sys
from pathlib import Path
import numpy as np
from cpp_runtime import Error, Runtime

libraries = sys.argv.pop(1) or None

def load(path):
    return Runtime(path, libraries)

def error_of(function, *args):
    try:
        function(*args)
    except Error as error:
        return error
    raise AssertionError("there was no error")
"""
# Whatever was asked: it was not Python's TensorFlow, and no other library, that ran.
_AFTER = """
assert "tensorflow.python" not in sys.modules
maps = Path("/proc/self/maps")
mapped = {line.split()[-1] for line in maps.open()} if maps.exists() else set()
assert not [path for path in mapped if "_pywrap" in path]
folders = {Path(path).parent for path in mapped if "/libtensorflow_" in path}
assert len(folders) < 2 and (not libraries or folders <= {Path(libraries).resolve()})
"""


def ask(code, *args, libraries=""):
    """Return what `code` prints in a process that has NumPy and `load(path)`."""
    code = _BEFORE + textwrap.dedent(code) + _AFTER
    return processes.run(code, libraries, *args, env={"PYTHONPATH": str(SERVING)})
