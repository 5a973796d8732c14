"""What every encoder does: it takes positions, and keeps the shape of its input."""

import keras
from keras import ops

from keras_pe.arguments import check_call, standardize
from keras_pe.checks import check_float_dtype, dtype_name, has_rank, is_dense
from keras_pe.legacy import refuse_keras_2
from keras_pe.rows import find_rows


class Encoder(keras.layers.Layer):
    """Gives its input the positions that it is called with.

    A layer of a kind has its own `_encode(rows, d_model)`: the `Rows` that a call
    needs in, a float tensor out, `(time, n)` or with a batch before. Its `_combine`
    makes the output of the input and these rows: their sum, unless it has its own.
    """

    max_length = None  # or how many positions there are
    _place = "put it after an Embedding layer, not on token ids"
    sequence_axis = -2  # of the steps that `positions` and `start_index` are of

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
        inputs = args[0] if args else kwargs.get("inputs")
        refuse_keras_2(self._owner, inputs, *kwargs.values())
        self._check_inputs(inputs)
        return super().__call__(*args, **self._standardize(kwargs))

    def call(self, inputs, *, positions=None, start_index=0, mask=None):
        positions, start_index = self._check(inputs, positions, start_index)
        shape, axis = ops.shape(inputs), self._time_axis(inputs.shape)
        sizes = shape[0], shape[axis]
        rows = find_rows(self._owner, *sizes, positions, start_index, self.max_length)
        rows = self._encode(rows, inputs.shape[-1])
        if len(rows.shape) == 2 and axis == len(shape) - 2:
            return self._combine(inputs, rows)
        broadcast = [1] * len(shape)
        broadcast[0] = 1 if len(rows.shape) == 2 else ops.shape(rows)[0]
        broadcast[axis], broadcast[-1] = ops.shape(rows)[-2:]
        combined = self._combine(inputs, ops.reshape(rows, broadcast))
        # Rows of another batch than the input's must not make it larger.
        return ops.reshape(combined, shape)

    def compute_output_spec(self, inputs, positions=None, start_index=0, mask=None):
        self._check(inputs, positions, start_index)
        return keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)

    def compute_output_shape(self, input_shape):
        self._check_shape(input_shape)
        return input_shape

    def _combine(self, inputs, rows):
        """Return the output, of rows that broadcast against the input."""
        return ops.cast(inputs, self.compute_dtype) + rows

    def _time_axis(self, shape):
        return self.sequence_axis % len(shape)

    def _standardize(self, kwargs):
        if "positions" in kwargs or "start_index" in kwargs:
            positions, start = kwargs.get("positions"), kwargs.pop("start_index", 0)
            positions, start = standardize(self._owner, positions, start)
            kwargs["positions"] = positions
            # Unless it is the default, which `jax.checkpoint` would make a tensor.
            if positions is None:
                kwargs["start_index"] = start
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
                f"{self._owner} takes a float tensor: {self._place}. "
                f"Received: inputs of dtype {dtype_name(inputs)}"
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
        sizes = inputs.shape[0], inputs.shape[self._time_axis(inputs.shape)]
        check_call(self._owner, *sizes, positions, start_index, self.max_length)
        return positions, start_index
