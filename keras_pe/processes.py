"""Runs Python code in a fresh process, also in one that lacks some packages."""

import os
import subprocess
import sys
import textwrap

# TensorFlow looks for Keras as it is imported, without using it. So the packages are
# found here, and fail when they are run.
_WITHOUT = """
import sys
from importlib.machinery import ModuleSpec

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages}:
            return ModuleSpec(name, self)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        raise ImportError(f"this process is to run without {{module.__name__}}")

sys.meta_path.insert(0, Without())
"""


def run(code, *args, without=(), cwd=None, env=None):
    """Run `code` in a process that finds the modules that this one does.

    Args:
        code: Python source, indented as it stands. `args` are its `sys.argv[1:]`.
        without: Names of top-level packages; importing one is to fail.
        cwd: Folder to run in.
        env: Environment variables beside those of this process.

    Returns:
        The `subprocess.CompletedProcess`, with what was printed as text.
    """
    code = textwrap.dedent(code)
    if without:
        code = _WITHOUT.format(packages=sorted(without)) + code
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, args)],
        capture_output=True,
        cwd=cwd,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": path, **(env or {})},
    )
