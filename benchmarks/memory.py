"""Measure by how much the memory of a process grows as a candidate is built and run."""

import pathlib
import resource

import keras

from benchmarks.calls import compiled
from benchmarks.candidates import CANDIDATES
from benchmarks.cases import Case
from benchmarks.reasons import reason


def measure(candidate, mode, shape):
    """Return the growth of the peak in bytes, over what stood before; length unknown.

    For a process that does nothing else. What stands before is Keras, the input, and
    what a first graph leaves behind.
    """
    case = Case("tensorflow", mode, "float32", "unknown", "zero", tuple(shape), 0)
    # On a small input: what TensorFlow frees of a large one it keeps, and uses again.
    compiled(case, lambda x: x * 2)(keras.ops.ones((1, 1, shape[-1])))
    x = keras.ops.ones(shape)
    how = forget_peak()
    before = peak()
    try:
        if candidate == "ready":
            add = CANDIDATES["floor"](case._replace(mode="eager"))
        else:
            add = CANDIDATES[candidate](case)
        function = compiled(case, add)
        function(x)
        function(x)
    except Exception as problem:
        return {"reason": reason(problem)}
    return {"growth": peak() - before, "how": how}


def forget_peak():
    """Make the peak what is resident now, where Linux lets a process do that."""
    try:
        pathlib.Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return "over the peak before"
    return "over the resident size before"


def peak():
    """Return the peak resident size of this process, in bytes."""
    status = pathlib.Path("/proc/self/status")
    if status.exists():
        # Unlike `getrusage`, this knows that the peak was forgotten.
        line = next(s for s in status.read_text().splitlines() if "VmHWM" in s)
        return int(line.split()[1]) * 1024
    # In bytes on macOS, which has no /proc.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
