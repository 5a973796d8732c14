"""Measure each encoder of the family beside its peer: time, error, mask.

`python -m benchmarks.family` writes `results/family.json`, in about 4 minutes. Peers
that are not installed have that as their reason.
"""

import functools

import keras
import numpy as np
import tensorflow as tf

from benchmarks.family_members import MEMBERS, learned_rows, numbers
from benchmarks.family_table import POLICIES
from benchmarks.measure import ratios, save
from benchmarks.promises import keeps_mask
from benchmarks.reasons import reason
from benchmarks.times import short

MODES = ("graph", "XLA")
FIRSTS = (0, 10**6)
ROUNDS, SECONDS = 15, 0.1


def main():
    records = []
    for member in MEMBERS:
        records += measure(member)
        print(member.name, flush=True)
    save(
        "family",
        "python -m benchmarks.family",
        {"family": records},
        packages=("tensorflow", "keras", "numpy", "keras-hub", "positional-encodings"),
    )


def measure(member, rounds=ROUNDS, seconds=SECONDS):
    """Return a record for the encoder, and one for its peer."""
    makers = {member.name: member.ours, member.peer: member.theirs}
    records = {
        name: {
            "member": member.name,
            "candidate": name,
            "shape": member.shape,
            "times": {},
            "errors": errors(member, make),
            "mask": attempt(mask, member, make),
        }
        for name, make in makers.items()
    }
    for mode in MODES:
        for policy in POLICIES:
            found = times(member, makers, mode, policy, rounds, seconds)
            for name, ratio in found.items():
                records[name]["times"][f"{mode}, {policy}"] = ratio
    return list(records.values())


def times(member, makers, mode, policy, rounds, seconds):
    """Return the quartiles of each one's time over that of `ready`, or a reason."""
    x, at = numbers(member.shape), member.place(member.shape, 0)
    floor = traced(member, ready(member, policy), x, {}, mode, policy)
    calls, found = {"ready": floor}, {}
    for name, make in makers.items():
        try:
            call = traced(member, make(dtype=policy), x, at, mode, policy)
            call()
            calls[name] = call
        except Exception as problem:
            found[name] = reason(problem)
    measured = ratios(calls, "ready", rounds, seconds)
    return found | {name: short(measured[name]) for name in calls if name != "ready"}


def ready(member, policy):
    table = tensor(numbers(member.ready), policy)
    return lambda x: x + table


def traced(member, function, x, at, mode, policy):
    """Return a call of a function on `x` and what says where it starts."""

    def call(x, *values):
        return function(x, **dict(zip(at, values, strict=True)))

    arguments = [tensor(x, policy), *map(tf.constant, at.values())]
    x_spec, *specs = [tf.TensorSpec.from_tensor(each) for each in arguments]
    sizes = [None if i in member.unknown else n for i, n in enumerate(x_spec.shape)]
    signature = [tf.TensorSpec(sizes, x_spec.dtype), *map(open_spec, specs)]
    graph = tf.function(call, input_signature=signature, jit_compile=mode == "XLA")
    return functools.partial(graph, *arguments)


def open_spec(spec):
    """Return the spec of a start or of positions, which may be as many as they like."""
    sizes = [None] * min(1, spec.shape.rank) + spec.shape.as_list()[1:]
    return tf.TensorSpec(sizes, spec.dtype)


def tensor(x, policy):
    return keras.ops.convert_to_tensor(x, policy.removeprefix("mixed_"))


def errors(member, make):
    return {
        f"{first}, {policy}": attempt(error, member, make, policy, first)
        for first in FIRSTS
        for policy in POLICIES
    }


def error(member, make, policy, first):
    """Return the largest error in a graph; beyond a learned table what comes there."""
    if member.rows is not None and first >= member.rows:
        return {"beyond": beyond(member, make, policy, first)}
    x = member.probe()
    found = result(member, make, policy, x, first, "graph")
    true = member.true(x, first)
    if found.shape != true.shape:
        raise ValueError(f"a result of shape {found.shape} for {true.shape}")
    if not np.isfinite(found).all():
        raise ValueError("rows that are not finite")
    return short([np.abs(found - true).max()])[0]


def result(member, make, policy, x, first, mode):
    """Return what comes of `x`, as float32."""
    at = member.place(x.shape, first)
    found = traced(member, make(dtype=policy), x, at, mode, policy)()
    return keras.ops.convert_to_numpy(keras.ops.cast(found, "float32"))


def beyond(member, make, policy, first):
    """Return in words which rows XLA takes from where a learned table has none."""
    x = member.probe()[:, :4]
    try:
        found = result(member, make, policy, x, first, "XLA")[0]
    except tf.errors.InvalidArgumentError:
        return "an error"
    rows = tensor(learned_rows(), policy)
    rows = keras.ops.convert_to_numpy(keras.ops.cast(rows, "float32"))
    known = {
        "NaN": np.full_like(found, np.nan),
        "last row": rows[[-1] * len(found)],
        "last rows": rows[-len(found) :],
    }
    for words, expected in known.items():
        if np.array_equal(found, expected, equal_nan=True):
            return words
    return "other rows"


def mask(member, make):
    """Return whether the mask of an Embedding is there after it."""
    ids = np.array([3, 4, 0]).reshape([1] * (len(member.shape) - 2) + [3])
    return keeps_mask(functools.partial(make, dtype="float32"), ids)


def attempt(measure, *arguments):
    """Return what was measured, or in words why it was not."""
    try:
        return measure(*arguments)
    except Exception as problem:
        return reason(problem)


if __name__ == "__main__":
    main()
