"""Every public layer against every check of the contract, and the public names."""

import inspect

import contract
import keras
import pytest
from attending import Attending

import keras_pe

YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
# The layer, arguments of the case, and others that give another result.
CASES = {
    "PositionalEncoding": (keras_pe.PositionalEncoding, {}, {"max_wavelength": 99.0}),
    "PositionalEncoding-every-argument": (
        keras_pe.PositionalEncoding,
        {"max_length": 80_000, "max_wavelength": 500, "layout": "halves"},
        {"max_length": 80_000, "max_wavelength": 501, "layout": "halves"},
    ),
    "AxialPositionalEncoding": (
        keras_pe.AxialPositionalEncoding,
        {},
        {"max_wavelength": 99.0},
    ),
    "AxialPositionalEncoding-every-argument": (
        keras_pe.AxialPositionalEncoding,
        {"axes": [-2], "max_wavelength": 500, "layout": "halves"},
        {"axes": -2, "max_wavelength": 501, "layout": "halves"},
    ),
    # Of random numbers each layer has others.
    "LearnedPositionalEncoding": (
        keras_pe.LearnedPositionalEncoding,
        {"max_length": 80_000, "initializer": "sinusoidal"},
        {"max_length": 80_000, "initializer": "ones"},
    ),
    "RotaryEmbedding": (keras_pe.RotaryEmbedding, {}, {"max_wavelength": 99.0}),
    "RotaryEmbedding-every-argument": (
        keras_pe.RotaryEmbedding,
        {
            "max_wavelength": 500,
            "layout": "interleaved",
            "rotary_dim": 4,
            "sequence_axis": -2,
            "scaling": YARN,
        },
        {"layout": "interleaved", "rotary_dim": 4, "sequence_axis": -2},
    ),
}
SHAPES = {"": (4, 5, 6), "-odd": (2, 9, 7), "-grid": (2, 3, 5, 8)}
REFUSED = {("RotaryEmbedding", "-odd")}  # which turns pairs of features
HOUSE_RULES = [
    check for name, check in vars(contract).items() if name.startswith("check_")
]
CHECKS = [*keras_pe.contract.CHECKS, *HOUSE_RULES]
# These cost a process each: seconds.
IN_A_PROCESS = {
    keras_pe.contract.check_reloads_bit_for_bit,
    keras_pe.contract.check_serves_without_keras,
}
ONE_SHAPE = {
    keras_pe.contract.check_mask_reaches_the_next_layer,
    *IN_A_PROCESS,
    *HOUSE_RULES,
}


# And these a second, in each shape.
COMPILE = {
    keras_pe.contract.check_a_training_step,
    keras_pe.contract.check_compiled_equals_eager,
    keras_pe.contract.check_half_precision_is_float32_rounded,
}


def marks_of(check, is_first, shape=""):
    """Return the marks of a check: where it takes long, all but the first are long."""
    marks = []
    if check in keras_pe.contract.NEED_TENSORFLOW:
        marks.append(pytest.mark.tensorflow)
    if (check in IN_A_PROCESS and not is_first) or (check in COMPILE and shape):
        marks.append(pytest.mark.long)
    return marks


def _parameters():
    parameters = []
    for check in CHECKS:
        for case in CASES:
            for shape in list(SHAPES)[: 1 if check in ONE_SHAPE else None]:
                if (case, shape) in REFUSED:
                    continue
                is_first = case == "PositionalEncoding-every-argument"
                marks = marks_of(check, is_first, shape)
                name = f"{case}{shape}-{check.__name__.removeprefix('check_')}"
                parameters.append(
                    pytest.param(check, case, SHAPES[shape], marks=marks, id=name)
                )
    return parameters


@pytest.mark.parametrize(("check", "case", "shape"), _parameters())
def test_contract(check, case, shape):
    layer, arguments, others = CASES[case]
    made = layer(**arguments), shape, layer(**others)
    check(keras_pe.contract.Case(*made, roundings=1))


# Half precision has its own tests: products of attention are rounded many times.
OF_ATTENTION = [
    pytest.param(
        check,
        way,
        marks=marks_of(check, is_first=False),
        id=f"{way}-{check.__name__.removeprefix('check_')}",
    )
    for check in keras_pe.contract.CHECKS
    for way in ("alibi", "relative", "rotary")
    if check is not keras_pe.contract.check_half_precision_is_float32_rounded
]


@pytest.mark.parametrize(("check", "way"), OF_ATTENTION)
def test_contract_of_attention(check, way):
    made = Attending(way), (4, 5, 6), Attending(way, seed=1)
    check(keras_pe.contract.Case(*made, max_length=64))


IN_ATTENTION = {
    keras_pe.ALiBi: {"num_heads": 2},
    keras_pe.RelativePositionBias: {"num_heads": 2},
    keras_pe.MultiHeadAttention: {"num_heads": 2, "key_dim": 4},
}


@pytest.mark.parametrize("layer", IN_ATTENTION)
def test_house_rules_in_attention(layer):
    made = layer(**IN_ATTENTION[layer])
    case = keras_pe.contract.Case(made, (4, 5, 6))
    contract.check_docstring_names_every_argument(case)
    if layer is not keras_pe.MultiHeadAttention:  # which has Keras's arguments, too
        contract.check_config_holds_nothing_else(case)
        contract.check_arguments_are_keyword_only(case)


def test_every_public_layer_has_a_case():
    public = [getattr(keras_pe, name) for name in keras_pe.__all__]
    layers = {value for value in public if inspect.isclass(value)}
    assert all(issubclass(layer, keras.layers.Layer) for layer in layers)
    assert layers == {layer for layer, _, _ in CASES.values()} | {*IN_ATTENTION}


def test_public_names():
    assert keras_pe.__all__ == sorted(keras_pe.__all__)
    exported = {
        name
        for name, value in vars(keras_pe).items()
        if not name.startswith("_")
        and getattr(value, "__module__", "").startswith("keras_pe")
    }
    modules = {"analysis", "plots", "serving", "testing"}
    assert exported | modules == set(keras_pe.__all__)
    assert keras_pe.__version__.count(".") == 2


def test_public_functions_document_their_arguments():
    functions = [getattr(keras_pe, name) for name in keras_pe.__all__]
    for module in (keras_pe.analysis, keras_pe.plots):
        functions += [
            value
            for name, value in vars(module).items()
            if getattr(value, "__module__", "") == module.__name__ and name[0] != "_"
        ]
    functions = [f for f in functions if inspect.isfunction(f)]
    assert keras_pe.analysis.longest_runs in functions
    functions += [keras_pe.serving.export, keras_pe.testing.check_layer]
    for function in functions:
        sections = contract.sections_of(function.__doc__)
        assert sections["Args"] == list(inspect.signature(function).parameters)
        assert "Returns" in sections and "Raises" in sections
