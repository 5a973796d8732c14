"""The documents are true: examples run, numbers are the measured ones, links lead."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

from benchmarks import documents

ROOT = Path(__file__).parents[1]
MARKDOWN = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in (ROOT, ROOT / "docs", ROOT / "saved_models")
    for path in folder.glob("*.md")
)
MODULES = sorted(path.stem for path in (ROOT / "keras_pe").glob("*.py"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def read(name):
    return (ROOT / name).read_text("utf-8")


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    module = importlib.import_module(f"keras_pe.{name}".removesuffix(".__init__"))
    assert doctest.testmod(module).failed == 0


def test_public_names_have_examples():
    modules = [importlib.import_module(f"keras_pe.{name}") for name in MODULES]
    tried = sum(doctest.testmod(module).attempted for module in modules)
    assert tried >= 14


@pytest.mark.parametrize("name", MARKDOWN)
def test_document_examples(name):
    names = {}
    for number, (language, code) in enumerate(FENCE.findall(read(name))):
        if language != "python":
            assert ">>>" not in code
        elif ">>>" in code:
            example = doctest.DocTestParser().get_doctest(
                code, names, f"{name}, example {number}", name, 0
            )
            runner = doctest.DocTestRunner()
            printed = []
            runner.run(example, out=printed.append, clear_globs=False)
            names = example.globs
            assert runner.summarize(verbose=False).failed == 0, "".join(printed)
        else:
            exec(compile(code, f"{name}, example {number}", "exec"), names)


@pytest.mark.parametrize("name", documents.DOCUMENTS)
def test_numbers_are_the_measured_ones(name):
    text = read(name)
    assert documents.MARKED.search(text)
    assert text.count("<!-- numbers: ") == len(documents.MARKED.findall(text))
    assert documents.render(text) == text


@pytest.mark.parametrize("name", MARKDOWN)
def test_links_lead_somewhere(name):
    for target in re.findall(r"\]\(([^)#]+)\)", read(name)):
        if not target.startswith("https://"):
            assert (ROOT / name).parent.joinpath(target).exists(), target


@pytest.mark.parametrize("name", MARKDOWN)
def test_make_commands_exist(name):
    targets = re.findall(r"^([\w-]+):", read("Makefile"), re.MULTILINE)
    for command in re.findall(r"make ([a-z]\w+)", read(name)):
        used = f"`make {command}`" in read(name) or f"\nmake {command}" in read(name)
        assert command in targets or not used, command
