"""Runs Python code in a fresh process, also in one that has no Keras."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[1]

# TensorFlow looks for Keras as it is imported, without using it. So the packages are
# found here, and fail when they are run.
_WITHOUT_KERAS = """
import sys
from importlib.machinery import ModuleSpec

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("keras", "keras_pe"):
            return ModuleSpec(name, self)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        raise ImportError(f"this process is to run without {module.__name__}")

sys.meta_path.insert(0, Without())
"""


def run(code, *args, without_keras=False, cwd=None, env=None):
    """Return what `code` prints in a fresh process, which has to succeed.

    Args:
        code: Python source, indented as it stands. `args` are its `sys.argv[1:]`.
        without_keras: Whether `import keras` and `import keras_pe` are to fail.
        cwd: Folder to run in.
        env: Environment variables beside those of this process.
    """
    code = textwrap.dedent(code)
    if without_keras:
        code = _WITHOUT_KERAS + code
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, args)],
        capture_output=True,
        cwd=cwd,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": path, **(env or {})},
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout
