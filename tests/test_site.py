"""The site of the documents: all of them in its navigation, all public names on a page.

What is built of them is checked as it is built: `make docs`.
"""

import inspect
import re
from pathlib import Path

import pytest

import keras_pe

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
# Those that no folder of documents holds.
OTHERS = ("../README", "../CHANGELOG", "../CONTRIBUTING")
DIRECTIVE = re.compile(
    r"^\.\. auto(class|function):: (\S+)\n(?:   :members: (.*)\n)?", re.MULTILINE
)


def described():
    """Return the kind and the members of each name that a page describes, in order."""
    pages = "".join(page.read_text("utf-8") for page in PAGES)
    return [(name, kind, members) for kind, name, members in DIRECTIVE.findall(pages)]


def public_names():
    for name in keras_pe.__all__:
        value = getattr(keras_pe, name)
        if not inspect.ismodule(value):
            yield f"keras_pe.{name}", value
            continue
        for part, function in vars(value).items():
            own = getattr(function, "__module__", None) == value.__name__
            if own and not part.startswith("_"):
                yield f"keras_pe.{name}.{part}", function


def test_each_document_is_in_the_navigation_once():
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    trees = re.findall(r"^```{toctree}\n(.*?)^```$", index, re.MULTILINE | re.DOTALL)
    listed = re.findall(r"^.+ <(\S+)>$", "".join(trees), re.MULTILINE)
    pages = ["self" if page.stem == "index" else page.stem for page in PAGES]
    assert sorted(listed) == sorted([*pages, *OTHERS])


def test_each_public_name_is_on_a_page_once():
    names = [name for name, _, _ in described()]
    assert sorted(names) == sorted(name for name, _ in public_names())


@pytest.mark.parametrize("name", [name for name, _ in public_names()])
def test_it_is_described_as_what_it_is(name):
    value = dict(public_names())[name]
    ((kind, members),) = [found[1:] for found in described() if found[0] == name]
    assert kind == ("class" if inspect.isclass(value) else "function")
    parts = vars(value).items() if kind == "class" else ()
    # Those that every layer of Keras has too have no docstring of their own.
    methods = [k for k, v in parts if not k.startswith("_") and inspect.isfunction(v)]
    assert members == ", ".join(k for k in methods if getattr(value, k).__doc__)
