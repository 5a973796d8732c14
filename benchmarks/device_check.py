"""Check the numbers of `PositionalEncoding` on the device at hand, and time it there.

`python -m benchmarks.device_check` prints a table, writes `results/device-NAME.json`,
and exits with 1 where a number is wrong. It takes the backend of KERAS_BACKEND, or the
first of TensorFlow, JAX and torch that is installed, and needs nothing more than that,
Keras and NumPy. Under 3 minutes.
"""

import argparse
import functools
import importlib.util
import math
import os
import re
import statistics
import sys
import time
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault(
    "KERAS_BACKEND",
    next(filter(importlib.util.find_spec, ("tensorflow", "jax", "torch")), ""),
)

import keras
import numpy as np
from keras import ops

from benchmarks.device_table import STARTS, cells
from benchmarks.devices import burst, find_device
from benchmarks.markdown import table
from benchmarks.measure import RESULTS, ratios, save
from keras_pe import PositionalEncoding, positional_encoding
from keras_pe.recipe import sinusoids
from tests.oracle import formula_rows

LIMITS = {"float32": 3e-7, "mixed_bfloat16": 0.004}
GIVEN = {
    "start_index": lambda start, steps: ops.convert_to_tensor(start, "int32"),
    "positions": lambda start, steps: ops.arange(start, start + steps, dtype="int32"),
}


class Size(NamedTuple):
    batch: int = 8
    steps: int = 2048
    width: int = 512
    rounds: int = 5
    seconds: float = 0.05


PROMISED = Size()


def main(options=None, size=PROMISED):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out-dir", type=Path, default=RESULTS)
    folder = parser.parse_args(options).out_dir.resolve()
    start, device, rows = time.perf_counter(), find_device(), []
    for mode in ("eager", *device.modes):
        for dtype in LIMITS:
            rows += rows_of(device, mode, dtype, size)
    rows.append(mask_row())
    print(table(cells(rows)))
    backend, seconds = keras.config.backend(), time.perf_counter() - start
    result = {"device": device.name, "backend": backend, "took_seconds": seconds}
    result |= {"size": size._asdict(), "rows": rows}
    slug = re.sub(r"\W+", "-", device.name.lower()).strip("-")
    command = "python -m benchmarks.device_check"
    # `save` joins this to its own folder, where a whole path stays as it is.
    save(str(folder / f"device-{slug}"), command, result, (backend, "keras", "numpy"))
    return int(not all(row["ok"] for row in rows))


def rows_of(device, mode, dtype, size):
    """Return a row for each way to say the positions, in one mode and dtype."""
    compiled = device.modes.get(mode, lambda function, *_: function)
    layer = PositionalEncoding(dtype=dtype)
    x = ops.zeros((size.batch, size.steps, size.width), layer.compute_dtype)
    ready = ops.cast(recipe(size.steps, size.width), layer.compute_dtype)
    floor = compiled(lambda x, ready: x + ready, (x, ready), None)
    known = compiled(lambda x: layer(x), (x,), None)
    calls = {"floor": lambda: floor(x, ready), "nothing": lambda: known(x)}
    errors = {"nothing": {"0": error(known(x), 0)}}
    same = np.array_equal(float32(known(x)), float32(floor(x, ready)))
    for given, tensor in GIVEN.items():
        inputs = {start: (x, tensor(start, size.steps)) for start in STARTS}
        # A graph of TensorFlow does not know this length: that is the dear case.
        free = compiled(with_argument(layer, given), inputs[0], size.steps)
        errors[given] = {
            str(start): error(free(*inputs[start]), start) for start in STARTS
        }
        calls[given] = functools.partial(free, *inputs[STARTS[-1]])
    quotients, microseconds = times(calls, device, size)
    return [
        {
            "mode": mode,
            "dtype": dtype,
            "given": given,
            "errors": found,
            "ok": max(found.values()) <= LIMITS[dtype] and (same or given != "nothing"),
            "ratio": quotients[given],
            "addition_microseconds": microseconds,
        }
        for given, found in errors.items()
    ]


def with_argument(layer, name):
    return lambda x, tensor: layer(x, **{name: tensor})


def recipe(steps, width):
    """Return the recipe's table, which a known length has bit for bit."""
    if keras.config.backend() == "tensorflow":
        return positional_encoding(steps, width)[0]
    return ops.convert_to_tensor(sinusoids(np.arange(steps), width).astype("float32"))


def float32(tensor):
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))


def error(result, start):
    rows = float32(result)
    worst = np.abs(rows - truth(start, *rows.shape[1:])).max()
    return float(worst) if np.isfinite(worst) else math.inf


@functools.cache
def truth(start, steps, width):
    # In float64, whose angles are within 1e-9 up to the last of these positions.
    return formula_rows(range(start, start + steps), width)


def times(calls, device, size):
    """Return each call's time over that of "floor", and that in microseconds."""
    bursts = {name: burst(call, device) for name, call in calls.items()}
    quotients = ratios(bursts, "floor", size.rounds, size.seconds)
    stamps = [time.perf_counter()]
    for _ in range(4 * size.rounds):
        bursts["floor"]()
        stamps.append(time.perf_counter())
    seconds = statistics.median(np.diff(stamps)) / device.calls
    return quotients, seconds * 1e6


def mask_row():
    """Return the row of the mask: a mean that heeds it leaves the last step out."""
    x = keras.layers.Embedding(9, 4, mask_zero=True)(np.array([[3, 4, 0]]))
    y = PositionalEncoding()(x)
    means = keras.layers.GlobalAveragePooling1D()(y), ops.mean(y[:, :2], axis=1)
    ok = np.allclose(*map(float32, means), rtol=0, atol=1e-6)
    return {"mode": "eager", "dtype": "float32", "given": "a mask", "ok": ok}


if __name__ == "__main__":
    sys.exit(main())
