"""What differs between backends, for a benchmark that runs on any of them."""

import functools
import platform
import re
from pathlib import Path
from typing import NamedTuple

import keras

# An accelerator answers before it is done, and works in order: it is given this many
# calls in a row, and the last is waited for. A wait for each would weigh more than an
# addition. A CPU may work out of order, and is waited for after each.
CALLS = 16


class Device(NamedTuple):
    name: str
    calls: int  # in a row before a wait
    # By name: `compile(function, inputs, unknown)`, with axes of size `unknown` open.
    modes: dict
    wait: object  # called with a result: returns when it is there


def find_device():
    """Return the `Device` that Keras's backend works on."""
    backends = {"tensorflow": _tensorflow, "jax": _jax, "torch": _torch}
    return backends[keras.config.backend()]()


def burst(call, device):
    """Return a function that makes `device.calls` calls and waits till all are done."""

    def run():
        for _ in range(device.calls):
            result = call()
        device.wait(result)

    return run


def _tensorflow():
    import tensorflow as tf

    def graph(function, inputs, unknown, jit_compile=False):
        shapes = [[None if n == unknown else n for n in x.shape] for x in inputs]
        specs = [tf.TensorSpec(n, x.dtype) for n, x in zip(shapes, inputs, strict=True)]
        return tf.function(function, input_signature=specs, jit_compile=jit_compile)

    name, gpus = _processor(), tf.config.list_physical_devices("GPU")
    if gpus:
        details = tf.config.experimental.get_device_details(gpus[0])
        name = details.get("device_name", "GPU")
    modes = {"graph": graph, "XLA": functools.partial(graph, jit_compile=True)}
    wait = tf.test.experimental.sync_devices
    return Device(name, CALLS if gpus else 1, modes, lambda _: wait())


def _jax():
    import jax

    device = jax.devices()[0]
    modes = {"jit": lambda function, *_: jax.jit(function)}
    if device.platform == "cpu":
        return Device(_processor(), 1, modes, jax.block_until_ready)
    return Device(device.device_kind, CALLS, modes, jax.block_until_ready)


def _torch():
    import torch

    modes = {"compile": lambda function, *_: torch.compile(function)}
    if not torch.cuda.is_available():
        return Device(_processor(), 1, modes, lambda _: None)
    name, wait = torch.cuda.get_device_name(), torch.cuda.synchronize
    return Device(name, CALLS, modes, lambda _: wait())


def _processor():
    path = Path("/proc/cpuinfo")
    text = path.read_text("utf-8") if path.exists() else ""
    found = re.search(r"model name\s*: (.+)", text)
    return found[1] if found else platform.processor() or "CPU"
