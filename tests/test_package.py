"""The package as it is built and installed, and the rules of its source."""

import ast
import configparser
import email
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# The extras that are for users of what they run in.
OPTIONAL = ("plots", "serving", "litert", "onnx")
SOURCES = sorted((ROOT / "keras_pe").glob("*.py"))


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build in a copy, since a build leaves folders beside the source."""
    folder = tmp_path_factory.mktemp("built")
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "keras_pe", folder / "keras_pe", ignore=ignored)
    run(folder, "-m", "build", "--no-isolation", "--outdir", "dist", ".")
    return folder / "dist"


def run(folder, *command):
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_wheel_holds_the_package_and_what_it_needs(built):
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith("/METADATA"))
        metadata = email.message_from_bytes(archive.read(metadata))
    files = {name for name in names if ".dist-info/" not in name}
    assert files == {f"keras_pe/{path.name}" for path in SOURCES} | {
        "keras_pe/py.typed"
    }
    assert any(name.endswith("LICENSE") for name in names)
    assert metadata["Name"] == "keras_pe"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert set(metadata.get_all("Provides-Extra")) == {
        *OPTIONAL,
        "benchmark",
        "docs",
        "examples",
        "test",
    }
    needed = metadata.get_all("Requires-Dist")
    assert {line.partition(">")[0] for line in needed if "extra ==" not in line} == {
        "keras",
        "numpy",
        "tensorflow",
    }
    examples = [line for line in needed if 'extra == "examples"' in line]
    assert {line.partition(">")[0] for line in examples} == {
        "matplotlib",
        "nervaluate",
        "scikit-learn",
        "snownlp",
    }


def test_sdist_holds_what_a_build_needs(built):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"setup.cfg", "pyproject.toml", "README.md", "LICENSE"}
    assert wanted | {"keras_pe/turns.py", "keras_pe/py.typed"} <= names


def test_installed_wheel_runs_elsewhere(built, tmp_path):
    (wheel,) = built.glob("*.whl")
    install = ("pip", "install", "--quiet", "--no-deps", "--no-index", "--no-cache-dir")
    run(tmp_path, "-m", *install, "--target", "installed", wheel)
    code = """if True:
        import sys
        sys.path.insert(0, "installed")
        import keras
        before = set(sys.modules)
        import keras_pe, numpy as np
        new = {name.partition(".")[0] for name in set(sys.modules) - before}
        assert not new & {"tensorflow", "matplotlib"}, new
        assert keras_pe.__file__.startswith(sys.argv[1]), keras_pe.__file__
        rows = keras_pe.PositionalEncoding()(np.zeros((1, 2, 4), "float32"))
        print(np.array(rows).round(6)[0, 1].tolist())
    """
    printed = run(tmp_path, "-c", code, tmp_path)
    values = ast.literal_eval(printed.splitlines()[-1])
    assert values == pytest.approx([0.841471, 0.540302, 0.01, 0.99995], abs=1e-6)


def test_editable_clone_is_found_beside_a_folder_of_its_name(built):
    """By its path: a finder comes after a folder `keras_pe` of where Python starts."""
    code = "from setuptools import build_meta; build_meta.build_editable('editable')"
    (built.parent / "editable").mkdir()
    run(built.parent, "-c", code)
    [wheel] = (built.parent / "editable").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name).decode() for name in archive.namelist()}
    [path] = (text for name, text in files.items() if ".dist-info/" not in name)
    assert Path(path.strip()) == built.parent


def test_lower_bounds_are_the_versions_that_are_tested():
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(ROOT / "setup.cfg")
    extras = setup["options.extras_require"]
    required = setup["options"]["install_requires"].split()
    required += [line for name in OPTIONAL for line in extras[name].split()]
    pinned = [
        line.partition("==")[::2]
        for line in (ROOT / ".ci" / "oldest.txt").read_text("utf-8").splitlines()
        if not line.startswith("#")
    ]
    bounds = [line.partition(",")[0].lower().partition(">=")[::2] for line in required]
    assert len(bounds) == len(pinned)
    for (name, bound), (other, pin) in zip(bounds, pinned, strict=True):
        assert name == other
        assert pin == bound + ".0" * (2 - bound.count("."))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_source_keeps_to_public_names_of_few_packages(path):
    tree = ast.parse(path.read_text("utf-8"))
    assert ast.get_docstring(tree)
    allowed = {"keras", "numpy", "keras_pe", *sys.stdlib_module_names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module, *(alias.name for alias in node.names)]
        else:
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                names = [node.value.id, node.attr]
                own = names[0] in ("self", "cls")
                # Names as `__version__` are Python's own.
                if not (own or re.fullmatch("__[a-z]+__", node.attr)):
                    assert not node.attr.startswith("_"), names
            continue
        assert not any(name.startswith(("keras.src", "_")) for name in names)
        if node in tree.body:
            assert names[0].partition(".")[0] in allowed
