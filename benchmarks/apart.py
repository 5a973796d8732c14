"""Measure in a fresh process: `apart` calls the `measure` of modules there."""

import importlib
import json
import os
import subprocess
import sys


class Died(Exception):
    """The process ended before it had measured."""


def apart(calls, backend="tensorflow"):
    """Return what modules measure in a new process, by their names.

    Keras has one backend a process, and peak memory is that of a process.

    Args:
        calls: For each name of a module here, the arguments of its `measure`.
        backend: Of Keras.
    """
    environment = {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.apart"],
        input=json.dumps(calls),
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, **environment},
    )
    if done.returncode:
        print(done.stderr[-3000:], file=sys.stderr)
        raise Died(f"its process ended with code {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def main():
    measured = {}
    for name, arguments in json.load(sys.stdin).items():
        module = importlib.import_module(f"benchmarks.{name}")
        measured[name] = module.measure(**arguments)
    print("\n" + json.dumps(measured))


if __name__ == "__main__":
    main()
