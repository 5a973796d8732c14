"""The documents are true: examples run, numbers are the measured ones, links lead."""

import doctest
import importlib
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib import pyplot

from benchmarks import documents, study_plots
from examples.plot_encodings import PICTURES

ROOT = Path(__file__).parents[1]
MARKDOWN = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in (ROOT, ROOT / "docs", ROOT / "saved_models")
    for path in folder.glob("*.md")
)
LONG = {"docs/decoding.md"}  # whose examples take as long as those of all others
PAGES = "choosing", "mathematics"
MODULES = sorted(path.stem for path in (ROOT / "keras_pe").glob("*.py"))
FENCE = re.compile(r"^```([\w{}-]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def read(name):
    return (ROOT / name).read_text("utf-8")


@pytest.fixture(autouse=True)
def no_figure_stays():
    yield
    pyplot.close("all")


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    module = importlib.import_module(f"keras_pe.{name}".removesuffix(".__init__"))
    assert doctest.testmod(module).failed == 0


def test_public_names_have_examples():
    modules = [importlib.import_module(f"keras_pe.{name}") for name in MODULES]
    found = [
        test for module in modules for test in doctest.DocTestFinder().find(module)
    ]
    assert sum(len(test.examples) for test in found) >= 14


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] if name in LONG else [])
        for name in MARKDOWN
    ],
)
def test_document_examples(name, capsys, tmp_path, monkeypatch):
    """Sessions are doctests; a script's output is the block of text that follows it."""
    monkeypatch.chdir(tmp_path)
    names, printed = {}, ""
    for number, (language, code) in enumerate(FENCE.findall(read(name))):
        label = f"{name}, example {number}"
        if language == "text":
            assert code == printed, label
        elif language == "python" and ">>>" in code:
            example = doctest.DocTestParser().get_doctest(code, names, label, name, 0)
            runner, report = doctest.DocTestRunner(), []
            runner.run(example, out=report.append, clear_globs=False)
            names = example.globs
            assert runner.summarize(verbose=False).failed == 0, "".join(report)
        elif language == "python":
            capsys.readouterr()
            exec(compile(code, label, "exec"), names)
            printed = capsys.readouterr().out
        else:
            assert ">>>" not in code


@pytest.mark.parametrize("name", documents.DOCUMENTS)
def test_numbers_are_the_measured_ones(name):
    text = read(name)
    assert documents.MARKED.search(text)
    assert text.count("<!-- numbers: ") == len(documents.MARKED.findall(text))
    assert documents.render(text) == text


@pytest.mark.parametrize("name", MARKDOWN)
def test_links_lead_somewhere(name):
    for target in re.findall(r"\]\(([^)#]+)\)", FENCE.sub("", read(name))):
        if not target.startswith("https://"):
            assert (ROOT / name).parent.joinpath(target).exists(), target


@pytest.mark.parametrize("draw", PICTURES, ids=lambda draw: draw.__name__)
def test_pictures_are_what_the_script_draws(draw, tmp_path):
    name = f"{draw.__name__}.png"
    assert any(f"]({name})" in read(f"docs/{page}.md") for page in PAGES)
    draw().savefig(tmp_path / name, dpi=120)
    drawn, shown = map(blocks, (tmp_path / name, ROOT / "docs" / name))
    # Versions of matplotlib set letters, and so the axes, a little differently.
    assert np.abs(drawn - shown).mean() < 0.04


def test_pictures_of_the_study_are_drawn_of_its_results(tmp_path):
    study_plots.draw(documents.load("study"), tmp_path)
    paths = sorted(tmp_path.iterdir())
    assert len(paths) == len(re.findall(r"\]\(study-\w+.png\)", read("docs/study.md")))
    for path in paths:
        drawn, shown = map(blocks, (path, ROOT / "docs" / path.name))
        assert np.abs(drawn - shown).mean() < 0.04


def blocks(path):
    """Return the means of blocks of 12 x 12 pixels of a picture."""
    pixels = pyplot.imread(path)[..., :3]
    height, width = (size // 12 for size in pixels.shape[:2])
    return pixels.reshape(height, 12, width, 12, 3).mean(axis=(1, 3))


@pytest.mark.parametrize("name", MARKDOWN)
def test_make_commands_exist(name):
    targets = re.findall(r"^([\w-]+):", read("Makefile"), re.MULTILINE)
    for command in re.findall(r"make ([a-z]\w+)", read(name)):
        used = f"`make {command}`" in read(name) or f"\nmake {command}" in read(name)
        assert command in targets or not used, command


def test_nothing_speaks_of_the_machine_it_was_made_on():
    folders = ("keras_pe", "tests", "benchmarks", "examples", "docs", ".ci")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    for path in [*paths, *ROOT.glob("*.*")]:
        if path.suffix in (".py", ".md", ".json", ".cfg", ".toml", ".txt"):
            words = re.findall(r"/(?:tmp|home|root|work)/\w+", path.read_text("utf-8"))
            assert not words, (path, words)
