"""Holds a layer to what the layers of this package promise."""

import re
from collections.abc import Sequence

import keras

from keras_pe import contract
from keras_pe.checks import check_size


def check_layer(layer, input_shape, *, other=None, max_length=None):
    """Check that a position layer does what the encoders of this package do.

    For a layer of your own that takes a float tensor and gives back the same shape, in
    its compute dtype. All checks run, and the error tells of each that failed:

    - `config_holds_every_argument`, as what JSON keeps and as the layer has it, the
      same before and after use
    - `is_made_anew_and_called`: from its config; without it no other check can run
    - `shape_is_kept_eager_and_symbolic`, and the dtype, also with unknown sizes
    - `any_length_in_any_order`: longer, then shorter, 1 and 0 steps
    - `rows_of_a_batch_are_apart`: a row gives the same beside another
    - `instances_do_not_touch_each_other`, where there is an `other`
    - `mask_reaches_the_next_layer`, eager and compiled
    - `half_precision_is_float32_rounded`: values at 600 and at 70,000 steps are those
      of float32 but for four roundings
    - `compiled_equals_eager`, also under XLA
    - `a_training_step` changes its weights, and those of a layer before it
    - `training_changes_nothing`: the result is the same in training and inference
    - `reloads_bit_for_bit` from a `.keras` file, without `custom_objects`
    - `serves_without_keras`: the exported SavedModel, in a process without Keras and
      without the module of the layer, at lengths not seen before

    The layer itself is not called and stays as it is: checks make it anew from its
    config, in float32 or a half type, and give copies the same weights. Its values are
    yours to test: no check knows what the positions should be.

    >>> import keras
    >>> @keras.saving.register_keras_serializable(package="mine")
    ... class Wave(keras.layers.Layer):
    ...     def call(self, inputs):
    ...         steps = keras.ops.arange(keras.ops.shape(inputs)[-2], dtype="int32")
    ...         steps = keras.ops.cast(steps, self.compute_dtype)  # 257 may be 256
    ...         return inputs + keras.ops.sin(steps)[:, None]
    ...     def compute_output_shape(self, input_shape):
    ...         return input_shape
    >>> check_layer(Wave(), (2, 5, 4))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    AssertionError: Wave fails 2 checks for inputs of shape (2, 5, 4):
    - mask_reaches_the_next_layer: the mask does not reach the layer after it: set ...
    - half_precision_is_float32_rounded: under bfloat16 step ...

    It takes seconds, most of them for other processes. Nothing is compiled on torch,
    and `serves_without_keras` is for TensorFlow alone. The file is reloaded in another
    process if that can import the module which has the class; one made in a notebook,
    in a function or in the script that runs is reloaded in this process, where it needs
    no import.

    Args:
        layer: An instance of a Keras layer.
        input_shape: Shape `(batch, ..., time, features)` of an input that it takes, as
            integers, with 2 steps at least. Small sizes do: longer inputs are made of
            it, of 70,000 steps.
        other: None, or an instance that gives another result, of the same class and
            other arguments: what each keeps must not touch the other.
        max_length: The most steps that the layer takes, where there is a limit.

    Returns:
        None, if the layer passes.

    Raises:
        AssertionError: If it fails a check. It names each one, and why.
        ValueError: If an argument is not as above.
    """
    case = contract.Case(*_checked(layer, input_shape, other, max_length))
    failed = {}
    for check in contract.CHECKS:
        if check in contract.NEED_OTHER and other is None:
            continue
        if check in contract.NEED_TENSORFLOW and contract.BACKEND != "tensorflow":
            continue
        try:
            check(case)
        except Exception as error:
            failed[check] = error
        if contract.check_is_made_anew_and_called in failed:
            break
    if failed:
        reasons = [f"- {_name(check)}: {_reason(e)}" for check, e in failed.items()]
        if contract.check_is_made_anew_and_called in failed:
            reasons.append("The other checks need this, and have not run.")
        elif contract.check_any_length_in_any_order in failed and max_length is None:
            reasons.append("If the layer takes only so many steps, give `max_length`.")
        count = "1 check" if len(failed) == 1 else f"{len(failed)} checks"
        raise AssertionError(
            f"{type(layer).__name__} fails {count} for inputs of shape {case.shape}:\n"
            + "\n".join(reasons)
        ) from next(iter(failed.values()))


def _checked(layer, input_shape, other, max_length):
    layers = {"layer": layer} if other is None else {"layer": layer, "other": other}
    for name, value in layers.items():
        if not isinstance(value, keras.layers.Layer):
            raise ValueError(
                f"`{name}` must be an instance of a Keras layer. "
                f"Received: {name}={value!r}"
            )
    if other is not None and type(other) is not type(layer):
        raise ValueError(
            f"`other` must be of the class of `layer`, {type(layer).__name__}. "
            f"Received: other={other!r}"
        )
    if max_length is not None:
        max_length = check_size("max_length", max_length, minimum=2)
    try:
        in_order = isinstance(input_shape, Sequence)
        shape = tuple(check_size("input_shape", n) for n in input_shape if in_order)
    except (TypeError, ValueError):
        shape = ()
    if len(shape) < 3 or not 2 <= shape[-2] <= (max_length or shape[-2]):
        limit = "" if max_length is None else f" and at most {max_length}"
        raise ValueError(
            "`input_shape` must be (batch, ..., time, features), of integers, with at "
            f"least 2 steps{limit}. Received: input_shape={input_shape!r}"
        )
    return layer, shape, other, max_length


def _name(check):
    return check.__name__.removeprefix("check_")


def _reason(error):
    """Return why a check failed, in a line or two."""
    text = re.sub(r"\x1b\[\d*m", "", str(error))  # Keras writes in bold
    text = re.sub(r"^Exception encountered when calling .*\n", "", text)
    text = re.split(r"Arguments received by|Full object config", text)[0]
    text = " ".join(text.split())
    text = text if len(text) <= 400 else f"{text[:400]} ..."
    if isinstance(error, AssertionError):
        return text
    return f"{type(error).__name__}: {text}"
