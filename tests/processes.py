"""Runs Python code in a fresh process that has to succeed, also without Keras."""

import os
from pathlib import Path

from keras_pe import processes

ROOT = Path(__file__).parents[1]


def run(code, *args, without_keras=False, cwd=None, env=None):
    """Return what `code` prints in a fresh process, which has to succeed.

    Args:
        code: Python source, indented as it stands. `args` are its `sys.argv[1:]`. It
            finds the modules of the tests.
        without_keras: Whether `import keras` and `import keras_pe` are to fail.
        cwd: Folder to run in.
        env: Environment variables beside those of this process.
    """
    folders = str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH")
    path = os.pathsep.join(filter(None, folders))
    done = processes.run(
        code,
        *args,
        without=("keras", "keras_pe") if without_keras else (),
        cwd=cwd,
        env={"PYTHONPATH": path, **(env or {})},
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout
