"""Measure the ways of making rows that were tried, side by side, on one contract.

Error, time over the addition of a ready table, bytes in a SavedModel, and whether the
LiteRT converter takes an unknown length: `python -m benchmarks.ways` writes
`results/ways.json`.
"""

import functools
import math
import pathlib
import re
import tempfile
from unittest import mock

import numpy as np
import tensorflow as tf

from benchmarks.measure import ratios, save
from keras_pe import turns
from keras_pe.rates import sinusoid_turns
from keras_pe.recipe import sinusoids
from keras_pe.rows import Rows
from tests.oracle import exact_rows_fast

D_MODEL = 512
STEPS = 2048
TURNS = sinusoid_turns(D_MODEL, 10000.0, "interleaved")
STARTS = (0, 10**4, 10**6, 2**24, 2**29, 2**30 - STEPS)
SPEC = tf.TensorSpec((None, None, D_MODEL))
START = tf.TensorSpec((), tf.int32)


def table_sliced(start, length):
    return tf.constant(table())[start : start + length]


def table_times_one(start, length):
    """Return what a single operation on the rows costs, whatever it is for."""
    return table_sliced(start, length) * tf.cast(length > 0, tf.float32)


def float64_angles(start, length):
    positions = tf.cast(start + tf.range(length), tf.float64)
    angles = positions[:, None] * (2 * math.pi * TURNS.last_turns) + TURNS.start
    return tf.cast(tf.sin(angles), tf.float32)


def turns_a_sine_an_element(start, length):
    return turns.rows_at(Rows(start, length=length).spread(), TURNS, "float32")


def turns_rotated_blocks(start, length):
    return turns.rows_from(Rows(start, length=length), TURNS, "float32")


def turns_rotated_blocks_without_wall(start, length):
    with mock.patch.object(turns, "_wall", lambda table: table):
        return turns_rotated_blocks(start, length)


WAYS = {
    "the recipe's table, sliced": table_sliced,
    "that, times 1": table_times_one,
    "float64 angles in the graph": float64_angles,
    "turns, a sine an element": turns_a_sine_an_element,
    "turns, rotated blocks, no wall": turns_rotated_blocks_without_wall,
    "turns, rotated blocks": turns_rotated_blocks,
}


@functools.cache
def table():
    return sinusoids(np.arange(4 * STEPS), D_MODEL).astype("float32")


def main():
    measured = {name: {} for name in WAYS}
    for name, make in WAYS.items():
        measured[name] = {
            "error": error(make),
            "saved_model_bytes": saved_model_bytes(make),
            "litert": litert(make),
        }
    for column, jit_compile, moving, shape in (
        ("graph 1 x 2048", False, False, (1, STEPS)),
        ("graph 8 x 2048", False, False, (8, STEPS)),
        ("XLA, start 0, 1 x 2048", True, False, (1, STEPS)),
        ("XLA, tensor start, 1 x 2048", True, True, (1, STEPS)),
        ("XLA, tensor start, 8 x 512", True, True, (8, 512)),
    ):
        for name, quartiles in price(jit_compile, moving, shape).items():
            measured[name][column] = quartiles
    save("ways", "python -m benchmarks.ways", {"ways": measured})


def adder(make, moving):
    """Return `x + rows` of unknown length, from `start` if it moves, else from 0."""

    def add(x, start):
        return x + make(start if moving else 0, tf.shape(x)[1])

    return add


def price(jit_compile, moving, shape):
    x = tf.random.normal((*shape, D_MODEL))
    ready = tf.constant(table()[: shape[1]])
    start = tf.constant(0)
    adders = {name: adder(make, moving) for name, make in WAYS.items()}
    adders["floor"] = lambda x, start: x + ready
    calls = {}
    for name, add in adders.items():
        graph = tf.function(add, input_signature=[SPEC, START], jit_compile=jit_compile)
        calls[name] = functools.partial(graph, x, start)
    quotients = ratios(calls, "floor")
    del quotients["floor"]
    return quotients


def error(make):
    """Return the largest error of STEPS rows from each of STARTS, or None: too long."""
    graph = tf.function(make, input_signature=[START, START])
    errors = [0.0]
    for start in STARTS:
        truth = exact_rows_fast(range(start, start + STEPS), D_MODEL)
        rows = graph(start, STEPS).numpy()
        if rows.shape != truth.shape:
            return None
        errors.append(np.abs(rows - truth).max())
    return float(max(errors))


def saved_model_bytes(make):
    """Return what one call in one endpoint adds to `saved_model.pb`."""
    sizes = []
    for add in (adder(make, moving=True), lambda x, start: x + tf.cast(start, x.dtype)):
        module = tf.Module()
        module.serve = tf.function(add, input_signature=[SPEC, START])
        with tempfile.TemporaryDirectory() as folder:
            tf.saved_model.save(module, folder)
            sizes.append((pathlib.Path(folder) / "saved_model.pb").stat().st_size)
    return sizes[0] - sizes[1]


def litert(make):
    """Return the error of the converted graph at a new length, or why there is none."""
    add = tf.function(adder(make, moving=False), input_signature=[SPEC, START])
    concrete = add.get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete], add)
    try:
        model = converter.convert()
    except Exception as problem:
        ops = re.findall(r"(?:TF Select|Custom) ops: (.*)", str(problem))
        return f"no, it wants {', '.join(ops)}" if ops else "no"
    interpreter = tf.lite.Interpreter(model_content=model)
    index = {len(d["shape"]): d["index"] for d in interpreter.get_input_details()}
    interpreter.resize_tensor_input(index[3], (1, 700, D_MODEL))
    interpreter.allocate_tensors()
    interpreter.set_tensor(index[3], np.zeros((1, 700, D_MODEL), "float32"))
    interpreter.invoke()
    rows = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])[0]
    return float(np.abs(rows - exact_rows_fast(range(700), D_MODEL)).max())


if __name__ == "__main__":
    main()
