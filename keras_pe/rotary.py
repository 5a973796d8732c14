"""The layer that turns queries and keys by their positions."""

import keras
from keras import ops

from keras_pe.checks import check_layout, check_size, check_wavelength
from keras_pe.encoder import Encoder
from keras_pe.scaling import check_scaling, scaled_rates
from keras_pe.sinusoid_rows import Rotations, Sinusoids, sinusoid_rows
from keras_pe.turns import precision_of


@keras.saving.register_keras_serializable(package="keras_pe")
class RotaryEmbedding(Encoder):
    """Turn the features of a query or key by its positions (RoPE).

    For attention: call it on the query and on the key, after their projection and
    never on the value, and their products depend on the distance of two steps alone.
    The positions of Llama, Qwen, Mistral and GPT-J. It turns what it is given, so use
    it in place of a query; it is not to be added. It has no weights and no limit.

    The features form pairs, `(x[i], x[i + dim / 2])` in the layout "halves". At the
    position p a pair `(a, b)` becomes `(a cos - b sin, b cos + a sin)` of the angle
    `p / max_wavelength ** (2i / dim)`: its length stays.

    >>> import numpy as np
    >>> query = np.array([1, 0, 0, 0], "float32") * np.ones((1, 3, 1, 4), "float32")
    >>> np.array(RotaryEmbedding()(query))[0, :, 0].round(4)
    array([[ 1.    ,  0.    ,  0.    ,  0.    ],
           [ 0.5403,  0.    ,  0.8415,  0.    ],
           [-0.4161,  0.    ,  0.9093,  0.    ]], dtype=float32)

    Args:
        max_wavelength: Real number above 0, with `scaling` above 1: `rope_theta` in
            the config of a model. The slowest pair comes close to a period of
            `2 * pi * max_wavelength` steps.
        layout: Which features form pairs: "halves" for `(x[i], x[i + dim / 2])` (Llama
            as Hugging Face has it, keras-hub) or "interleaved" for
            `(x[2i], x[2i + 1])` (GPT-J, RoFormer). Weights know one of them.
        rotary_dim: None for all features, or an even integer of at least 2: only so
            many, the first ones, are turned, with the rates of that `dim`.
        sequence_axis: Integer, the axis of the steps: 1 for inputs
            `(batch, time, heads, dim)`, 2 or -2 for `(batch, heads, time, dim)`.
        scaling: None, or the dict `rope_scaling` from the config of a Hugging Face
            model, whose `rope_type` (or `type`) is "default", "linear", "llama3" or
            "yarn": slower rates, for longer texts than the model first knew. It is kept
            with its type as `rope_type`, and without keys that are None. A
            `rope_theta` within it goes to `max_wavelength`, and a
            `partial_rotary_factor` to `rotary_dim`.
        **kwargs: `name`, `dtype`, `trainable`, as for every Keras layer.

    Call arguments:
        inputs: Float tensor `(batch, time, heads, dim)`, or any other with a batch
            first, features last, and steps at `sequence_axis`. `time` may be unknown.
        positions: Int or float tensor, array or list, `(time,)` or `(batch, time)`:
            the position of each step, also negative or fractional. Pass integers
            where you can: what a half-precision model has rounded stays so. None
            counts from `start_index`.
        start_index: The position of the first step: int, or int tensor of shape
            `()` or `(batch,)`. Only without `positions`.
        mask: Bool tensor, or None. It is not read, and passed on.

    Input shape:
        At least of rank 3, such as `(batch, time, heads, dim)`. `dim` is known, even
        unless there is a `rotary_dim`, and at least that.

    Output shape:
        The input's.

    Precision and masks:
        The output has the layer's compute dtype, to which it is rounded once: float16
        and bfloat16 are turned in float32. Sines and cosines are those of
        `PositionalEncoding`, within 3e-7 in float32 for integers below 2**30 in size;
        the rates of a `scaling` are float64. Masks pass through. NaN and infinite
        positions give NaN in the turned features of their own steps.

    Raises:
        ValueError: for an argument not as above; for inputs that are not float, dense,
            of rank 3 or more, or too narrow, or have no such axis; for `positions` or
            `start_index` of a shape that does not fit, or beyond int32. Where only a
            running TensorFlow graph knows, the last two are
            `tf.errors.InvalidArgumentError`; where a compiler drops that check, an
            error or NaN.

    References:
        Su et al., 2021, "RoFormer: Enhanced Transformer with Rotary Position
        Embedding", section 3.2. Scalings: Chen et al., 2023, "Extending Context Window
        of Large Language Models via Positional Interpolation"; Peng et al., 2023,
        "YaRN: Efficient Context Window Extension of Large Language Models".
    """

    _place = "a query or a key, after its projection"

    def __init__(
        self,
        *,
        max_wavelength=10000.0,
        layout="halves",
        rotary_dim=None,
        sequence_axis=1,
        scaling=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.max_wavelength = check_wavelength(max_wavelength)
        self.layout = check_layout(layout)
        self.rotary_dim = None if rotary_dim is None else _check_even(rotary_dim)
        self.sequence_axis = _check_axis(sequence_axis)
        self.scaling = None if scaling is None else check_scaling(scaling)
        if scaling is not None and self.max_wavelength <= 1:
            raise ValueError(
                "`max_wavelength` must be above 1 where there is a `scaling`. "
                f"Received: max_wavelength={max_wavelength!r}, scaling={scaling!r}"
            )

    def get_config(self):
        return {
            **super().get_config(),
            "max_wavelength": self.max_wavelength,
            "layout": self.layout,
            "rotary_dim": self.rotary_dim,
            "sequence_axis": self.sequence_axis,
            "scaling": None if self.scaling is None else {**self.scaling},
        }

    def _check_shape(self, shape):
        rank = len(shape)
        if rank < 3 or not shape[-1]:
            raise ValueError(
                f"{self._owner} takes inputs of rank 3 or more, such as (batch, time, "
                "heads, dim), with a known dim. "
                f"Received: inputs of shape {tuple(shape)}"
            )
        if not (-rank < self.sequence_axis < rank - 1):
            raise ValueError(
                f"{self._owner}: `sequence_axis` must lie between batch and features, "
                f"in 1..{rank - 2} or {1 - rank}..-2. Received: sequence_axis="
                f"{self.sequence_axis} for inputs of shape {tuple(shape)}"
            )
        if self.rotary_dim is None and shape[-1] % 2:
            raise ValueError(
                f"{self._owner} turns pairs of features, and so takes an even dim, or "
                f"an even `rotary_dim`. Received: inputs of shape {tuple(shape)}"
            )
        if self.rotary_dim is not None and self.rotary_dim > shape[-1]:
            raise ValueError(
                f"{self._owner}: `rotary_dim` must be at most the dim of the input. "
                f"Received: rotary_dim={self.rotary_dim} for inputs of shape "
                f"{tuple(shape)}"
            )

    def _encode(self, rows, d_model):
        """Return sines, then cosines, float32 at least, `(..., time, rotary_dim)`."""
        dim, precision = self.rotary_dim or d_model, precision_of(self.compute_dtype)
        if self.scaling is None or self.scaling["rope_type"] == "default":
            encoding = Sinusoids(dim, self.max_wavelength, "halves")
            return sinusoid_rows(rows, encoding, precision)
        scaled = scaled_rates(dim, self.max_wavelength, self.scaling)
        encoding = Rotations(tuple(scaled.rates.tolist()))
        return sinusoid_rows(rows, encoding, precision) * scaled.attention_factor

    def _combine(self, inputs, rows):
        dim = self.rotary_dim or inputs.shape[-1]
        parts = _split(inputs, dim) if dim < inputs.shape[-1] else [inputs]
        parts[:1] = _turned(parts[0], *_split(rows, dim // 2), self.layout)
        parts = [ops.cast(part, self.compute_dtype) for part in parts]
        return parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=-1)


def _turned(x, sine, cosine, layout):
    """Return `x` with its pairs of features turned, in parts, in the dtype of sines.

    Args:
        x: Tensor `(..., dim)`.
        sine, cosine: Tensors `(..., dim / 2)` that broadcast against it, one number for
            each pair.
        layout: Of the pairs.
    """
    if layout == "halves":
        a, b = (ops.cast(half, sine.dtype) for half in _split(x, x.shape[-1] // 2))
        return [a * cosine - b * sine, b * cosine + a * sine]
    # To turn each pair round is faster than to take every second feature.
    x = ops.cast(x, sine.dtype)
    around = ops.reshape(ops.flip(_in_pairs(x), axis=-1), ops.shape(x))
    return [x * _paired(cosine, cosine) + around * _paired(-sine, sine)]


def _in_pairs(x):
    return ops.reshape(x, (*ops.shape(x)[:-1], x.shape[-1] // 2, 2))


def _paired(a, b):
    """Return `a` and `b`, `(..., n)`, in turns: `(..., 2 * n)`."""
    shape = (*ops.shape(a)[:-1], 2 * a.shape[-1])
    return ops.reshape(ops.stack([a, b], axis=-1), shape)


def _split(x, size):
    return list(ops.split(x, [size], axis=-1))


def _check_even(value):
    size = check_size("rotary_dim", value, minimum=2)
    if size % 2:
        raise ValueError(
            f"`rotary_dim` must be even, or None. Received: rotary_dim={value!r}"
        )
    return size


def _check_axis(value):
    axis = check_size("sequence_axis", value, minimum=-(2**31))
    if axis in (0, -1):
        raise ValueError(
            "`sequence_axis` must not be that of the batch (0) or of the features (-1)."
            f" Received: sequence_axis={value!r}"
        )
    return axis
