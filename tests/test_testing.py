"""The public check of a layer: it passes the right ones, and names each defect."""

import re
import tempfile

import keras
import numpy as np
import pytest
from keras import ops
from likeness import first_of

import keras_pe
from keras_pe import contract
from keras_pe.testing import check_layer

SHAPE = (2, 5, 4)
# These cost a process each.
SLOW = {contract.check_reloads_bit_for_bit, contract.check_serves_without_keras}
registered = keras.saving.register_keras_serializable(package="keras_pe_testing_tests")


@registered
class Steps(keras.layers.Layer):
    """Adds a sine to each step, rightly. Those below break one thing each."""

    def __init__(self, scale=0.001, **kwargs):
        super().__init__(**kwargs)
        self.scale = scale
        self.supports_masking = True

    def call(self, inputs):
        return inputs + ops.cast(self.rows(inputs), self.compute_dtype)

    def rows(self, inputs, dtype="float32", scale=None):
        steps = ops.arange(ops.shape(inputs)[-2], dtype="int32")
        return ops.sin(ops.cast(steps, dtype)[:, None] * (scale or self.scale))

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "scale": self.scale}


@registered
class ForgetsAnArgument(Steps):
    def get_config(self):
        config = super().get_config()
        del config["scale"]
        return config


@registered
class ForgetsANeededArgument(ForgetsAnArgument):
    def __init__(self, scale, **kwargs):
        super().__init__(scale, **kwargs)


@registered
class HasAnArrayInItsConfig(Steps):
    def get_config(self):
        return {**super().get_config(), "scale": np.float32(self.scale)}


@registered
class HasATupleInItsConfig(Steps):
    def __init__(self, axes=(1, 2), **kwargs):
        super().__init__(**kwargs)
        self.axes = axes

    def get_config(self):
        return {**super().get_config(), "axes": self.axes}


@registered
class SaysAnotherValue(Steps):
    def get_config(self):
        return {**super().get_config(), "scale": round(self.scale, 1)}


@registered
class ChangesItsConfig(Steps):
    def call(self, inputs):
        self.scale = float(self.scale) + 1e-9
        return super().call(inputs)


@registered
class WidensItsInput(Steps):
    def call(self, inputs):
        return ops.concatenate([inputs, inputs], axis=-1)


@registered
class ForgetsItsShape(Steps):
    compute_output_shape = keras.layers.Layer.compute_output_shape


@registered
class StaysInFloat32(Steps):
    def call(self, inputs):
        return ops.cast(inputs, "float32") + self.rows(inputs)


@registered
class DividesByZero(Steps):
    def call(self, inputs):
        return super().call(inputs) / 0.0


@registered
class CannotBeCalled(Steps):
    def call(self, inputs):
        raise TypeError("not with these")


@registered
class KeepsItsFirstLength(Steps):
    first = None

    def rows(self, inputs):
        self.first = self.first or inputs.shape[-2]
        rows = super().rows(inputs)
        return rows if self.first is None else ops.minimum(rows, self.first * 0.001)


@registered
class SizesItsWeightsByTheFirstLength(Steps):
    def build(self, input_shape):
        self.table = self.add_weight(shape=(input_shape[-2] or 64, 1))

    def rows(self, inputs):
        return ops.take(self.table, ops.arange(ops.shape(inputs)[-2]) % 64, axis=0)


@registered
class SubtractsTheMeanOfTheBatch(Steps):
    def call(self, inputs):
        return super().call(inputs) - ops.mean(inputs, axis=0)


@registered
class SharesWhatTheFirstOneKnew(Steps):
    known = None

    def rows(self, inputs):
        cls = SharesWhatTheFirstOneKnew
        cls.known = cls.known or self.scale
        return super().rows(inputs, scale=cls.known)


@registered
class SharesWhatTheLastOneKnew(Steps):
    def __init__(self, scale=0.001, **kwargs):
        super().__init__(scale, **kwargs)
        SharesWhatTheLastOneKnew.known = scale

    def rows(self, inputs):
        return super().rows(inputs, scale=self.known)


@registered
class LosesTheMask(Steps):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = False


@registered
class CountsInHalfPrecision(Steps):
    def rows(self, inputs):
        return super().rows(inputs, self.compute_dtype)


@registered
class AddsNothingWhenCompiled(Steps):
    def call(self, inputs):
        try:
            ops.convert_to_numpy(inputs)
        except Exception:  # there are no numbers yet
            return ops.copy(inputs)
        return super().call(inputs)


@registered
class StopsGradients(Steps):
    def call(self, inputs):
        return super().call(ops.stop_gradient(inputs))


@registered
class LeavesItsWeightOut(Steps):
    def build(self, input_shape):
        self.unused = self.add_weight(shape=(2,), name="unused")


@registered
class DropsInTraining(Steps):
    def call(self, inputs, training=False):
        return super().call(inputs) * (0.5 if training else 1.0)


class IsNotRegistered(Steps):
    pass


@registered
class DoesNotSaveItsWeight(Steps):
    def build(self, input_shape):
        self.weight = self.add_weight(shape=(), initializer="glorot_uniform")

    def rows(self, inputs):
        return super().rows(inputs) * self.weight

    def save_own_variables(self, store):
        pass

    def load_own_variables(self, store):
        pass


@registered
class CallsPython(Steps):
    def rows(self, inputs):
        import tensorflow as tf

        steps = tf.numpy_function(np.arange, [ops.shape(inputs)[-2]], "int64")
        steps = tf.ensure_shape(steps, (None,))
        return ops.sin(ops.cast(steps[:, None], "float32") * self.scale)


@registered
class DemandsACompiler(Steps):
    def rows(self, inputs):
        import tensorflow as tf

        return tf.function(super().rows, jit_compile=True)(inputs)


# The defect, the check that names it, and words of what that says.
DEFECTS = [
    (ForgetsAnArgument, "config_holds_every_argument", "leaves out scale"),
    (ForgetsANeededArgument, "config_holds_every_argument", "leaves out scale"),
    (ForgetsANeededArgument, "is_made_anew_and_called", "scale"),
    (HasAnArrayInItsConfig, "config_holds_every_argument", "float32"),
    (HasATupleInItsConfig, "config_holds_every_argument", "for axes"),
    (SaysAnotherValue, "config_holds_every_argument", "says scale=0.0, .* scale=0.001"),
    (ChangesItsConfig, "config_holds_every_argument", "after a call. .* in scale"),
    (WidensItsInput, "shape_is_kept_eager_and_symbolic", r"\(2, 5, 8\)"),
    (ForgetsItsShape, "shape_is_kept_eager_and_symbolic", "compute_output_shape"),
    (StaysInFloat32, "shape_is_kept_eager_and_symbolic", "output is float32"),
    (StaysInFloat32, "half_precision_is_float32_rounded", "output is float32"),
    (DividesByZero, "is_made_anew_and_called", "infinite"),
    (CannotBeCalled, "is_made_anew_and_called", "TypeError: not with these$"),
    (KeepsItsFirstLength, "any_length_in_any_order", "depends on the length"),
    (SizesItsWeightsByTheFirstLength, "any_length_in_any_order", ""),
    (SubtractsTheMeanOfTheBatch, "rows_of_a_batch_are_apart", "nothing from the batch"),
    (SharesWhatTheFirstOneKnew, "instances_do_not_touch_each_other", "share"),
    (SharesWhatTheLastOneKnew, "instances_do_not_touch_each_other", "has run"),
    (LosesTheMask, "mask_reaches_the_next_layer", "supports_masking"),
    (CountsInHalfPrecision, "half_precision_is_float32_rounded", "in float32"),
    (AddsNothingWhenCompiled, "compiled_equals_eager", "something else than called"),
    (StopsGradients, "a_training_step", "before/kernel"),
    (LeavesItsWeightOut, "a_training_step", "unused"),
    (DropsInTraining, "training_changes_nothing", "training=True"),
    (IsNotRegistered, "reloads_bit_for_bit", "Could not locate class"),
    (DoesNotSaveItsWeight, "reloads_bit_for_bit", "add_weight"),
    (CallsPython, "serves_without_keras", "PyFunc"),
    (DemandsACompiler, "serves_without_keras", "XLA must compile"),
]
# Beside the check that is to name it: a defect is often seen from several sides.
OTHERS_SEE_TOO = {
    ForgetsANeededArgument: 1,
    CannotBeCalled: 1,
    ChangesItsConfig: 9,
    WidensItsInput: 9,
    ForgetsItsShape: 9,
    StaysInFloat32: 1,
    KeepsItsFirstLength: 9,
    SizesItsWeightsByTheFirstLength: 9,
    SharesWhatTheFirstOneKnew: 9,
    AddsNothingWhenCompiled: 9,
}


def report(layer, **kwargs):
    """Return the reasons by the names of the checks, and the whole error."""
    with pytest.raises(AssertionError) as caught:
        check_layer(layer, SHAPE, **kwargs)
    lines = str(caught.value).splitlines()
    reasons = dict(line[2:].split(": ", 1) for line in lines if line[:2] == "- ")
    assert all(len(reason) < 450 for reason in reasons.values())
    return reasons, str(caught.value)


def leave_out(monkeypatch, checks):
    kept = [check for check in contract.CHECKS if check not in checks]
    monkeypatch.setattr(contract, "CHECKS", kept)


def _defects():
    """Each as a parameter: the first that a check finds, the others as long ones.

    Where the checks compile nothing, on torch, they cannot find what only that shows.
    """
    found, parameters = set(), []
    for layer, name, words in DEFECTS:
        if layer is AddsNothingWhenCompiled and True not in contract.JIT_COMPILE:
            continue
        marks = [pytest.mark.tensorflow] if "serves" in name else []
        marks += [pytest.mark.long] if name in found else []
        found.add(name)
        label = f"{layer.__name__}-{name}"
        parameters.append(pytest.param(layer, name, words, id=label, marks=marks))
    return parameters


@pytest.mark.parametrize(("layer", "name", "words"), _defects())
@pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:RuntimeWarning")
def test_a_defect_is_named(layer, name, words, monkeypatch):
    check = getattr(contract, f"check_{name}")
    leave_out(monkeypatch, {*contract.CHECKS} - {check} if check in SLOW else SLOW)
    kwargs = {"scale": 0.001} if layer is ForgetsANeededArgument else {}
    other = None
    if layer in (SharesWhatTheFirstOneKnew, SharesWhatTheLastOneKnew):
        other = layer(scale=0.002)
    reasons, _ = report(layer(**kwargs), other=other)
    assert name in reasons
    assert re.search(words, reasons[name]), reasons[name]
    assert len(reasons) <= 1 + OTHERS_SEE_TOO.get(layer, 0), reasons


def test_every_check_names_a_defect():
    names = {f"check_{name}" for _, name, _ in DEFECTS}
    assert names == {check.__name__ for check in contract.CHECKS}


def test_every_check_is_documented():
    for check in contract.CHECKS:
        name = check.__name__.removeprefix("check_")
        assert f"- `{name}`" in check_layer.__doc__


@pytest.mark.filterwarnings("ignore:Gradients do not exist:UserWarning")
def test_the_error_has_every_check_that_failed(monkeypatch):
    leave_out(monkeypatch, SLOW)

    class Many(LosesTheMask, CountsInHalfPrecision, StopsGradients):
        pass

    reasons, text = report(Many())
    assert list(reasons) == [
        "mask_reaches_the_next_layer",
        "half_precision_is_float32_rounded",
        "a_training_step",
    ]
    assert text.startswith("Many fails 3 checks for inputs of shape (2, 5, 4):\n- ")


def test_what_cannot_be_made_is_not_checked_further():
    reasons, text = report(CannotBeCalled())
    assert "is_made_anew_and_called" in reasons and len(reasons) <= 2
    assert text.endswith("have not run.")


@pytest.mark.long
def test_nothing_is_left_and_the_layer_stays_as_it_is(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    layer = keras_pe.LearnedPositionalEncoding(max_length=70_000)
    assert check_layer(layer, SHAPE) is None
    assert not layer.built and not list(tmp_path.iterdir())


def test_a_class_of_a_function_is_reloaded_in_this_process(monkeypatch):
    monkeypatch.setattr(contract, "CHECKS", [contract.check_reloads_bit_for_bit])
    monkeypatch.setattr(contract.processes, "run", None)

    class Local(Steps):
        pass

    assert "Could not locate class" in report(Local())[0]["reloads_bit_for_bit"]
    check_layer(registered(Local)(), SHAPE)


def test_a_limit_of_steps(monkeypatch):
    leave_out(monkeypatch, SLOW)
    layer = keras_pe.LearnedPositionalEncoding(max_length=9)
    check_layer(layer, SHAPE, max_length=9)
    monkeypatch.setattr(contract, "CHECKS", [contract.check_any_length_in_any_order])
    assert "9" in report(layer)[0]["any_length_in_any_order"]


@pytest.mark.parametrize(
    "layer",
    first_of(
        [
            keras_pe.RotaryEmbedding,
            keras_pe.PositionalEncoding,
            keras_pe.AxialPositionalEncoding,
        ]
    ),
)
def test_our_encoders_pass(layer, monkeypatch):
    # The learned one is above. What is slow, tests/test_contract.py has of each.
    leave_out(monkeypatch, SLOW)
    check_layer(layer(), SHAPE, other=layer(max_wavelength=99))


@registered
class Around(Steps):
    """Has a layer among its arguments, as Keras's own wrappers do."""

    def __init__(self, inner, **kwargs):
        super().__init__(**kwargs)
        self.inner = inner

    def call(self, inputs):
        return super().call(ops.cast(self.inner(inputs), self.compute_dtype))

    def get_config(self):
        inner = keras.saving.serialize_keras_object(self.inner)
        return {**super().get_config(), "inner": inner}

    @classmethod
    def from_config(cls, config):
        inner = keras.saving.deserialize_keras_object(config["inner"])
        return cls(**{**config, "inner": inner})


def test_a_layer_in_a_layer(monkeypatch):
    leave_out(monkeypatch, SLOW)
    check_layer(Around(keras.layers.Dense(SHAPE[-1])), SHAPE)


def test_a_half_type_as_floatx(monkeypatch):
    leave_out(monkeypatch, SLOW)
    before = keras.config.floatx()
    keras.config.set_floatx("float16")
    try:
        check_layer(Steps(), SHAPE)
    finally:
        keras.config.set_floatx(before)


def test_a_grid(monkeypatch):
    leave_out(monkeypatch, SLOW)
    grid = (2, 3, 5, 4)
    check_layer(Steps(), grid, other=Steps(scale=0.002))
    monkeypatch.setattr(
        contract, "CHECKS", [contract.check_mask_reaches_the_next_layer]
    )
    with pytest.raises(AssertionError, match=r"fails 1 check .*\n- mask_reaches"):
        check_layer(LosesTheMask(), grid)


def test_a_layer_of_a_half_type_is_checked(monkeypatch):
    leave_out(monkeypatch, SLOW)
    check_layer(Steps(dtype="mixed_bfloat16"), list(SHAPE))


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"layer": Steps}, "`layer` must be an instance"),
        ({"other": Steps}, "`other` must be an instance"),
        (
            {"other": IsNotRegistered()},
            "`other` must be of the class of `layer`, Steps",
        ),
        ({"input_shape": (2, 4)}, "`input_shape` must be"),
        ({"input_shape": {2, 5, 4}}, "`input_shape` must be"),
        ({"input_shape": (2, 1, 4)}, "at least 2 steps"),
        ({"input_shape": (None, 5, 4)}, "`input_shape` must be"),
        ({"input_shape": 5}, "`input_shape` must be"),
        ({"max_length": 4}, "at most 4. Received"),
        ({"max_length": 1}, "`max_length` must be"),
    ],
)
def test_wrong_arguments(arguments, match):
    with pytest.raises(ValueError, match=match):
        check_layer(**{"layer": Steps(), "input_shape": SHAPE, **arguments})
