"""Count how often TensorFlow traces a candidate over many lengths."""

import tensorflow as tf

from benchmarks.candidates import CANDIDATES
from benchmarks.cases import Case
from benchmarks.reasons import reason

WIDTH = 64


def measure(candidates, lengths=20):
    """Return, for each, its tracings under a signature that leaves the length open."""
    found = []
    for name in candidates:
        try:
            found.append({"candidate": name, **tracings(name, range(1, lengths + 1))})
        except Exception as problem:
            found.append({"candidate": name, "reason": reason(problem)})
    return found


def tracings(name, lengths):
    shape = (1, max(lengths), WIDTH)
    case = Case("tensorflow", "graph", "float32", "unknown", "zero", shape, 0)
    add, seen = CANDIDATES[name](case), []

    @tf.function(input_signature=[tf.TensorSpec((None, None, WIDTH))])
    def graph(x):
        seen.append(x)
        return add(x)

    for length in lengths:
        graph(tf.zeros((1, length, WIDTH)))
    return {
        "lengths": len(lengths),
        "calls of Python": len(seen),
        "tracing count": graph.experimental_get_tracing_count(),
    }
