"""The layer that adds the sine/cosine encoding of the positions to its input."""

import keras
import numpy as np
from keras import ops

from keras_pe.arguments import check_call, standardize
from keras_pe.checks import (
    check_float_dtype,
    check_layout,
    check_size,
    check_wavelength,
    dtype_name,
    has_rank,
    is_dense,
)
from keras_pe.rates import sinusoid_turns
from keras_pe.rows import find_rows
from keras_pe.tables import LARGEST_CONSTANT, rows_of_table, run_of_table
from keras_pe.turns import precision_of, rows_at, rows_from

# In bytes: what `max_length` may ask for before its rows are made as without it.
_LARGEST_TABLE = 2**28


@keras.saving.register_keras_serializable(package="keras_pe")
class PositionalEncoding(keras.layers.Layer):
    """Add the sine/cosine encoding of the positions to the input: `inputs + P`.

    For embeddings on their way into attention, which does not know the order of its
    input. It adds, so `x + PositionalEncoding()(x)` would be `2 * x + P`: use the
    layer alone (keras-hub's `SinePositionEncoding` returns P and is to be added).
    `sinusoidal_encoding` gives P alone. It has no weights and, without `max_length`,
    no limit.

    `P[p, 2i] = sin(p / max_wavelength ** (2i / d_model))`, and `P[p, 2i + 1]` is the
    cosine of the same angle: the exponent `2i / d_model` of the paper, in the layout
    "interleaved". Tensor2tensor and fairseq have the layout "halves" and another
    exponent, `i / (d_model / 2 - 1)`: their rows are not these.

    >>> import numpy as np
    >>> layer = PositionalEncoding()
    >>> np.array(layer(np.ones((1, 2, 4), "float32"))).round(4)
    array([[[1.    , 2.    , 1.    , 2.    ],
            [1.8415, 1.5403, 1.01  , 2.    ]]], dtype=float32)

    Args:
        max_length: None for any length, or an integer of at least 1, the number of
            positions there are: then the table of `positional_encoding` is made
            once and sliced, and a later position is an error. Where it would exceed
            256 MiB, or `max_wavelength` is below 1, rows are made as without it.
        max_wavelength: Real number above 0: the slowest channels come close to a
            period of `2 * pi * max_wavelength` steps. 10000 is the paper's.
        layout: "interleaved" (sin, cos, sin, cos: the paper) or "halves" (all
            sines, then all cosines: the same rates in another order).
        **kwargs: `name`, `dtype`, `trainable`, as for every Keras layer.

    Call arguments:
        inputs: Float tensor `(batch, ..., time, d_model)`. `time` may be unknown.
        positions: Int or float tensor, array or list, `(time,)` or `(batch, time)`:
            the position of each step, also negative or fractional. Pass integers
            where you can: what a half-precision model has rounded stays so. None
            counts from `start_index`.
        start_index: The position of the first step: int, or int tensor of shape
            `()` or `(batch,)`. Only without `positions`.
        mask: Bool tensor `(batch, time)`, or None. It is not read, and passed on.

    Input shape:
        `(batch, ..., time, d_model)`, at least of rank 3, `d_model` known. An odd
        `d_model` has one sine more than cosines.

    Output shape:
        The input's.

    Precision and masks:
        The output has the layer's compute dtype. P is made in float32 from exact
        phases and rounded to that dtype once, so float16 and bfloat16 keep every
        position. A run of known length from a known start is bit for bit
        `positional_encoding` (without `max_length`: up to 4 MiB of it); any other way
        is within 3e-7 in float32 for integers below 2**30 in size, 1e-6 up to
        2**31 - 1. float64 is within 1e-9 up to 10**6 on TensorFlow and torch. Masks
        pass through. NaN and infinite positions give NaN in their own rows.

    Raises:
        ValueError: for an argument not as above; for inputs that are not float,
            dense, and of rank 3 or more; for `positions` or `start_index` of a shape
            that does not fit; for a position that does not exist (beyond
            `max_length` or int32). Where only a running TensorFlow graph knows, the
            last two are `tf.errors.InvalidArgumentError`; where a compiler drops
            that check, an error or rows of NaN, never a wrong row.

    References:
        Vaswani et al., 2017, "Attention Is All You Need", section 3.5.
    """

    def __init__(
        self,
        *,
        max_length=None,
        max_wavelength=10000.0,
        layout="interleaved",
        **kwargs,
    ):
        # Keras would cast float positions to a half type before `call`, where 257 is
        # 256: so this layer casts its input itself.
        super().__init__(autocast=False, **kwargs)
        if max_length is not None:
            max_length = check_size("max_length", max_length, maximum=2**31)
        self.max_length = max_length
        self.max_wavelength = check_wavelength(max_wavelength)
        self.layout = check_layout(layout)
        check_float_dtype("dtype", self.compute_dtype)
        self.supports_masking = True

    def build(self, input_shape):
        self._check_shape(input_shape)

    def __call__(self, *args, **kwargs):
        # Before Keras converts the arguments: on JAX that cuts int64 to int32.
        self._check_inputs(args[0] if args else kwargs.get("inputs"))
        if "positions" in kwargs or "start_index" in kwargs:
            kwargs["positions"], kwargs["start_index"] = standardize(
                self._owner, kwargs.get("positions"), kwargs.get("start_index", 0)
            )
        return super().__call__(*args, **kwargs)

    def call(self, inputs, *, positions=None, start_index=0, mask=None):
        positions, start_index = self._check(inputs, positions, start_index)
        rows = find_rows(self._owner, inputs, positions, start_index, self.max_length)
        rows = self._encode(rows, inputs.shape[-1])
        inputs = ops.cast(inputs, self.compute_dtype)
        if len(rows.shape) == 2:
            return inputs + rows
        middle = (1,) * (len(inputs.shape) - 3)
        batch, time, d_model = ops.shape(rows)
        rows = ops.reshape(rows, (batch, *middle, time, d_model))
        # Rows of another batch than the input's must not make it larger.
        return ops.reshape(inputs + rows, ops.shape(inputs))

    def compute_output_spec(self, inputs, positions=None, start_index=0, mask=None):
        self._check(inputs, positions, start_index)
        return keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)

    def compute_output_shape(self, input_shape):
        self._check_shape(input_shape)
        return input_shape

    def get_config(self):
        return {
            **super().get_config(),
            "max_length": self.max_length,
            "max_wavelength": self.max_wavelength,
            "layout": self.layout,
        }

    @property
    def _owner(self):
        return f"{type(self).__name__} layer '{self.name}'"

    def _check_inputs(self, inputs):
        if not is_dense(inputs):
            raise ValueError(
                f"{self._owner} takes a dense tensor: make it one first, with "
                f"`to_tensor()` or the like. Received: inputs={inputs}"
            )
        if not hasattr(inputs, "dtype"):
            raise ValueError(f"{self._owner} takes a tensor. Received: inputs={inputs}")
        if "float" not in dtype_name(inputs):
            raise ValueError(
                f"{self._owner} takes a float tensor: put it after an Embedding layer, "
                f"not on token ids. Received: inputs of dtype {dtype_name(inputs)}"
            )
        if not has_rank(inputs):
            raise ValueError(
                f"{self._owner} takes inputs of a known rank. Received: inputs={inputs}"
            )

    def _check_shape(self, shape):
        # Not in `build` alone: that sees the first input only.
        if len(shape) < 3 or not shape[-1]:
            raise ValueError(
                f"{self._owner} takes inputs of shape (batch, ..., time, d_model) with "
                f"a known d_model. Received: inputs of shape {tuple(shape)}"
            )

    def _check(self, inputs, positions, start_index):
        """Raise for what is known before the numbers; return standard arguments."""
        self._check_inputs(inputs)
        self._check_shape(inputs.shape)
        positions, start_index = standardize(self._owner, positions, start_index)
        check_call(self._owner, inputs.shape, positions, start_index, self.max_length)
        return positions, start_index

    def _encode(self, rows, d_model):
        """Return P in the compute dtype, `(time, d_model)` or with a batch before."""
        dtype = self.compute_dtype
        arguments = d_model, self.max_wavelength, self.layout
        known = isinstance(rows.whole, int) and isinstance(rows.length, int)
        # The float64 angles of the recipe lose their turns under shorter waves.
        if self.max_wavelength >= 1 and rows.fraction is None:
            bounded = self.max_length is not None
            row = np.dtype(precision_of(dtype)).itemsize * d_model
            if bounded and row * self.max_length <= _LARGEST_TABLE:
                return rows_of_table(rows, self.max_length, *arguments, dtype)
            if known and (bounded or row * rows.length <= LARGEST_CONSTANT):
                return run_of_table(rows.whole, rows.length, *arguments, dtype)
        make = rows_at if rows.length is None else rows_from
        turns = sinusoid_turns(*arguments)
        return ops.cast(make(rows, turns, precision_of(dtype)), dtype)
