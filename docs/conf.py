"""The site of these documents: `make docs` builds it into `site/`."""

import inspect
import re

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

import keras_pe

project = "keras_pe"
version = release = keras_pe.__version__
author = copyright = "The keras_pe contributors"
html_title = f"keras_pe {release}"

# The folder of sources is the repository, so that links lead to the same file here and
# where the documents are read as they are.
root_doc = "docs/index"
include_patterns = ["docs/**", "README.md", "CHANGELOG.md", "CONTRIBUTING.md"]
exclude_patterns = [".*", "site", "build", "dist", "runs", "saved_models"]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4

# A reference that leads nowhere is an error, as is any other warning.
nitpicky = True
nitpick_ignore = [("py:exc", "AssertionError"), ("py:exc", "ValueError")]

toc_object_entries = False  # headings name them
autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_custom_sections = [
    ("Call arguments", "params_style"),
    *["Input shape", "Output shape", "Precision and masks"],
]

highlight_language = "text"  # of code that names no other

html_theme = "furo"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_copy_source = False
html_use_index = False
html_domain_indices = False
html_math_renderer = "mathml"

CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)(\w?)")


def write_code(app, what, name, obj, options, lines):
    """Turn `code` of a docstring from Markdown into what Sphinx reads, with links."""

    def written(found):
        code, after = found.groups()
        if code in keras_pe.__all__ and callable(getattr(keras_pe, code)):
            code = f":py:obj:`~keras_pe.{code}`"
        else:
            code = f"``{code}``"
        return f"{code}\\ {after}" if after else code

    lines[:] = CODE.sub(written, "\n".join(lines)).split("\n")


def write_signature(app, what, name, obj, options, signature, returns):
    """Give a layer the signature of its `__init__`, which Keras's `__new__` hides."""
    if what != "class":
        return signature, returns
    return str(inspect.signature(obj)), returns


def write_math(block):
    """Return what writes a formula as MathML, which browsers read without a script."""

    def write(self, node):
        self.body.append(tex2mathml(node.astext(), as_block=block))
        raise nodes.SkipNode

    return write


def setup(app):
    app.connect("autodoc-process-docstring", write_code, priority=100)
    app.connect("autodoc-process-signature", write_signature)
    app.add_html_math_renderer(
        "mathml", (write_math(block=False), None), (write_math(block=True), None)
    )
