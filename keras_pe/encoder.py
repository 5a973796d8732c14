"""What every encoder does: it takes positions, and keeps the shape of its input."""

import keras
from keras import ops

from keras_pe.arguments import check_call, standardize
from keras_pe.checks import check_float_dtype, dtype_name, has_rank, is_dense
from keras_pe.rows import find_rows


class Encoder(keras.layers.Layer):
    """Adds rows to its input, of the positions that it is called with.

    A layer of a kind has its own `_encode(rows, d_model)`: the `Rows` that a call
    needs in, a tensor of the compute dtype out, `(time, d_model)` or with a batch
    before. `max_length` is the number of positions there are, or None.
    """

    def __init__(self, **kwargs):
        # Keras would cast float positions to a half type before `call`, where 257 is
        # 256: so this layer casts its input itself.
        super().__init__(autocast=False, **kwargs)
        check_float_dtype("dtype", self.compute_dtype)
        self.supports_masking = True

    def build(self, input_shape):
        self._check_shape(input_shape)

    def __call__(self, *args, **kwargs):
        # Before Keras converts the arguments: on JAX that cuts int64 to int32.
        self._check_inputs(args[0] if args else kwargs.get("inputs"))
        return super().__call__(*args, **self._standardize(kwargs))

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

    def _standardize(self, kwargs):
        if "positions" in kwargs or "start_index" in kwargs:
            kwargs["positions"], kwargs["start_index"] = standardize(
                self._owner, kwargs.get("positions"), kwargs.get("start_index", 0)
            )
        return kwargs

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
