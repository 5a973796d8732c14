"""The house rules of a public layer, beside `keras_pe.contract`, one check a function.

They take the same `Case`, and raise AssertionError.
"""

import inspect
import re

from keras_pe.contract import arguments_of


def check_config_holds_nothing_else(case):
    config, arguments = case.layer.get_config(), arguments_of(type(case.layer))
    assert set(config) == {*arguments, "name", "trainable", "dtype"}


def check_arguments_are_keyword_only(case):
    parameters = inspect.signature(type(case.layer).__init__).parameters
    own = [parameters[name] for name in arguments_of(type(case.layer))]
    assert all(p.kind is p.KEYWORD_ONLY for p in own)


def check_docstring_names_every_argument(case):
    layer = type(case.layer)
    sections = sections_of(layer.__doc__)
    assert [name for name in sections["Args"] if name != "**kwargs"] == [
        *arguments_of(layer)
    ]
    call = [name for name in inspect.signature(layer.call).parameters if name != "self"]
    assert sections["Call arguments"] == call
    for section in ("Input shape", "Output shape", "Raises", "References"):
        assert section in sections
    for method in (layer.__init__, layer.build, layer.call):
        assert method.__doc__ is None or method.__doc__ == ""


def sections_of(docstring):
    """Return the headings of a docstring, each with the names that it explains."""
    sections = {}
    for line in inspect.cleandoc(docstring).splitlines():
        if heading := re.fullmatch(r"([A-Z][a-z ]+):", line):
            names = sections[heading[1]] = []
        elif sections and (name := re.match(r"    ([\w*]+): ", line)):
            names.append(name[1])
    return sections
