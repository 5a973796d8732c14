"""Find out what a graph of the layer spends its time on.

`python -m benchmarks.profile` lists the operations that take longest, by TensorFlow's
own trace, and writes `results/profile.json`.
"""

import collections
import statistics

import numpy as np
import tensorflow as tf

from benchmarks.measure import save
from keras_pe import PositionalEncoding

SHAPES = ((1, 2048, 512), (8, 2048, 512), (1, 32768, 128))
CALLS = {
    "start 0": lambda layer, x, p: layer(x),
    "`positions`": lambda layer, x, p: layer(x, positions=p),
}
RUNS = 30
SHOWN = 6


def main():
    profiles = [
        {"call": name, "shape": shape, **profile(call, shape)}
        for name, call in CALLS.items()
        for shape in SHAPES
    ]
    save("profile", "python -m benchmarks.profile", {"profiles": profiles})


def profile(call, shape):
    """Return the median microseconds of the operations of a graph, longest first."""
    width, layer = shape[-1], PositionalEncoding()
    function = tf.function(
        lambda x, p: call(layer, x, p),
        input_signature=[
            tf.TensorSpec((None, None, width)),
            tf.TensorSpec((None,), tf.int32),
        ],
    ).get_concrete_function()
    taken = collections.defaultdict(list)
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(function.graph.as_graph_def(), name="")
        fed = [np.zeros(shape, "float32"), np.arange(shape[1], dtype="int32")]
        names = [tensor.name for tensor in function.inputs]
        feed = dict(zip(names, fed, strict=True))
        with tf.compat.v1.Session() as session:
            for run in range(2 * RUNS):
                nodes = traced(session, function.outputs[0].name, feed)
                # The first runs make what the later ones use.
                for node in nodes if run >= RUNS else ():
                    microseconds = node.op_end_rel_micros - node.op_start_rel_micros
                    taken[node.node_name].append(microseconds)
        kinds = {operation.name: operation.type for operation in graph.get_operations()}
    medians = {name: statistics.median(times) for name, times in taken.items()}
    longest = sorted(medians, key=medians.get, reverse=True)
    return {
        "operations": [
            {"kind": kind(name, kinds), "microseconds": medians[name]}
            for name in longest[:SHOWN]
        ],
        "others": len(longest[SHOWN:]),
        "others_microseconds": sum(medians[name] for name in longest[SHOWN:]),
    }


def traced(session, output, feed):
    """Return what TensorFlow notes of every operation of one run."""
    options = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)
    notes = tf.compat.v1.RunMetadata()
    session.run(output, feed, options=options, run_metadata=notes)
    return [node for device in notes.step_stats.dev_stats for node in device.node_stats]


def kind(name, kinds):
    """Return the type of an operation; an optimizer makes some that are not in it."""
    return kinds.get(name, "addition" if "AddOps" in name else "other")


if __name__ == "__main__":
    main()
