"""Every public layer against every check of the contract, and the public names."""

import inspect

import contract
import keras
import pytest

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
CHECKS = [check for name, check in vars(contract).items() if name.startswith("check_")]
NEEDS_TENSORFLOW = {contract.check_serves_without_keras}
# These fix the layout of the input themselves, or cost a process each.
ONE_SHAPE = {
    contract.check_mask_reaches_the_next_layer,
    contract.check_reloads_bit_for_bit_in_another_process,
    contract.check_serves_without_keras,
}


def _parameters():
    parameters = []
    for check in CHECKS:
        marks = [pytest.mark.tensorflow] if check in NEEDS_TENSORFLOW else []
        for case in CASES:
            for shape in list(SHAPES)[: 1 if check in ONE_SHAPE else None]:
                if (case, shape) in REFUSED:
                    continue
                name = f"{case}{shape}-{check.__name__.removeprefix('check_')}"
                parameters.append(
                    pytest.param(check, case, SHAPES[shape], marks=marks, id=name)
                )
    return parameters


@pytest.mark.parametrize(("check", "case", "shape"), _parameters())
def test_contract(check, case, shape, tmp_path):
    layer, arguments, others = CASES[case]
    extra = {}
    wanted = inspect.signature(check).parameters
    if "other" in wanted:
        extra["other"] = lambda **kwargs: layer(**{**others, **kwargs})
    if "folder" in wanted:
        extra["folder"] = tmp_path
    check(lambda **kwargs: layer(**{**arguments, **kwargs}), shape, **extra)


def test_every_public_layer_has_a_case():
    public = [getattr(keras_pe, name) for name in keras_pe.__all__]
    layers = {value for value in public if inspect.isclass(value)}
    assert all(issubclass(layer, keras.layers.Layer) for layer in layers)
    assert layers == {layer for layer, _, _ in CASES.values()}


def test_public_names():
    assert keras_pe.__all__ == sorted(keras_pe.__all__)
    exported = {
        name
        for name, value in vars(keras_pe).items()
        if not name.startswith("_")
        and getattr(value, "__module__", "").startswith("keras_pe")
    }
    assert exported | {"analysis", "serving"} == set(keras_pe.__all__)
    assert keras_pe.__version__.count(".") == 2


def test_public_functions_document_their_arguments():
    functions = [getattr(keras_pe, n) for n in keras_pe.__all__ if n != "analysis"]
    functions = [f for f in functions if inspect.isfunction(f)]
    functions += [keras_pe.analysis.shift_matrix, keras_pe.analysis.offset_similarity]
    functions += [keras_pe.serving.export]
    for function in functions:
        sections = contract.sections_of(function.__doc__)
        assert sections["Args"] == list(inspect.signature(function).parameters)
        assert "Returns" in sections and "Raises" in sections
