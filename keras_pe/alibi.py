"""The bias that makes scores smaller the farther apart two steps are."""

import math

import keras
import numpy as np
from keras import ops

from keras_pe.bias import PositionBias
from keras_pe.checks import constant


@keras.saving.register_keras_serializable(package="keras_pe")
class ALiBi(PositionBias):
    """Make what to add to attention's scores: less, the farther a key is (ALiBi).

    `bias[head, i, j] = -slope[head] * |position(i) - position(j)|`, with slopes from
    `2 ** (-8 / num_heads)` down to `2 ** -8`. For language models that are to read
    longer texts than they were trained on: MPT, BLOOM. It has no weights and no limit,
    and the embeddings get no positions at all.

    >>> import numpy as np
    >>> np.array(ALiBi(num_heads=2)(np.zeros((1, 3))))[0, 0]
    array([[-0.    , -0.0625, -0.125 ],
           [-0.0625, -0.    , -0.0625],
           [-0.125 , -0.0625, -0.    ]], dtype=float32)

    Args:
        num_heads: Integer of at least 1, of the attention that it is for. Where it is
            no power of two, slopes are as in the code of the paper: those of the power
            below, and every second one of the power above.
        **kwargs: `name`, `dtype`, `trainable`, as for every Keras layer.

    Call arguments:
        query: Tensor `(batch, query, ...)` of any dtype: only its sizes matter.
        key: Such a tensor `(batch, key, ...)`, or None for that of the query.
        positions: Int or float tensor, array or list, `(query,)` or `(batch, query)`:
            the position of each query. None counts from `start_index`.
        key_positions: As `positions`, of each key. None counts from 0; without `key`
            too, keys are where queries are.
        start_index: The position of the first query: int, or int tensor of shape `()`
            or `(batch,)`. Only without `positions`.

    Input shape:
        `(batch, time, ...)`, at least of rank 2.

    Output shape:
        `(1, num_heads, query, key)`, or with the batch in front if positions or starts
        have one. float32 under every policy.

    Raises:
        ValueError: for an argument not as above, or of a shape that does not fit.
            Where only a running TensorFlow graph knows, `InvalidArgumentError`.
            Positions beyond 2**30 in size, NaN and infinite ones give NaN.

    References:
        Press et al., 2022, "Train Short, Test Long: Attention with Linear Biases
        Enables Input Length Extrapolation", section 3.
    """

    def __init__(self, *, num_heads, **kwargs):
        super().__init__(num_heads=num_heads, **kwargs)

    def _bias(self, steps, fraction, valid):
        distance = ops.cast(steps, "float32")
        if fraction is not None:
            distance = distance + fraction
        distance = ops.where(valid, ops.abs(distance), ops.cast(np.nan, "float32"))
        slopes = -np.array(_slopes(self.num_heads), "float32")[:, None, None]
        return ops.expand_dims(distance, -3) * constant(slopes)


def _slopes(num_heads):
    below = 2 ** int(math.log2(num_heads))
    slopes = [2 ** (-8 * (i + 1) / below) for i in range(below)]
    above = [2 ** (-4 * (i + 1) / below) for i in range(2 * below)]
    return slopes + above[0::2][: num_heads - below]
