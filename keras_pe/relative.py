"""The bias with a weight for each bucket of distances."""

import functools

import keras
import numpy as np
from keras import ops

from keras_pe.bias import PositionBias
from keras_pe.checks import (
    check_initializer,
    check_size,
    constant,
    dtype_name,
    on_the_host,
)

_MOST = 2**20


@keras.saving.register_keras_serializable(package="keras_pe")
class RelativePositionBias(PositionBias):
    """Make what to add to attention's scores: a trained weight for each distance (T5).

    Near distances have a bucket each, farther ones share more and more, and from
    `max_distance` on all have the last: `bias[head, i, j] = weights[bucket(position(i)
    - position(j)), head]`. For encoders and decoders that learn what a distance means:
    T5. It has `num_buckets * num_heads` weights and no limit. T5 has one such layer for
    all its blocks: call it once, and give its result to each.

    T5 does not scale its scores, and Keras's attention does, by `1 / sqrt(key_dim)`.
    To load weights of T5, multiply those of the query's projection by `sqrt(key_dim)`.

    >>> import numpy as np
    >>> layer = RelativePositionBias(num_heads=1, num_buckets=4, bidirectional=False)
    >>> layer.build((None, None))
    >>> layer.set_weights([np.array([[0.0], [1.0], [2.0], [3.0]])])
    >>> np.array(layer(np.zeros((1, 4))))[0, 0]
    array([[0., 0., 0., 0.],
           [1., 0., 0., 0.],
           [2., 1., 0., 0.],
           [2., 2., 1., 0.]], dtype=float32)

    Args:
        num_heads: Integer of at least 1, of the attention that it is for.
        num_buckets: Integer of at least 2, and even if `bidirectional`.
        max_distance: Integer: from there on all distances share the last bucket. More
            than half the buckets that a direction has, and at most 2**20.
        bidirectional: True for buckets of their own for keys after the query. False
            puts all of these into bucket 0, for a causal mask to hide.
        initializer: What the weights start from, an initializer of Keras, as its name,
            config or object.
        **kwargs: `name`, `dtype`, `trainable`, as for every Keras layer.

    Call arguments:
        query: Tensor `(batch, query, ...)` of any dtype: only its sizes matter.
        key: Such a tensor `(batch, key, ...)`, or None for that of the query.
        positions: Int tensor, array or list, `(query,)` or `(batch, query)`: the
            position of each query. None counts from `start_index`.
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
            Positions beyond 2**30 in size give NaN.

    References:
        Raffel et al., 2020, "Exploring the Limits of Transfer Learning with a Unified
        Text-to-Text Transformer", section 2.1; the buckets are those of its code.
    """

    def __init__(
        self,
        *,
        num_heads,
        num_buckets=32,
        max_distance=128,
        bidirectional=True,
        initializer="random_normal",
        **kwargs,
    ):
        super().__init__(num_heads=num_heads, **kwargs)
        self.bidirectional = _check_bool("bidirectional", bidirectional)
        self.num_buckets = check_size("num_buckets", num_buckets, minimum=2)
        if bidirectional and self.num_buckets % 2:
            raise ValueError(
                "`num_buckets` must be even where `bidirectional`. "
                f"Received: num_buckets={num_buckets!r}"
            )
        least = self.num_buckets // (4 if bidirectional else 2) + 1
        self.max_distance = check_size("max_distance", max_distance, least, _MOST)
        self.initializer = check_initializer(initializer)

    def build(self, query_shape, key_shape=None):
        super().build(query_shape, key_shape)
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.num_buckets, self.num_heads),
            initializer=self.initializer,
            autocast=False,  # a bias is in float32 under every policy
        )

    def get_config(self):
        return {
            **super().get_config(),
            "num_buckets": self.num_buckets,
            "max_distance": self.max_distance,
            "bidirectional": self.bidirectional,
            "initializer": keras.initializers.serialize(self.initializer),
        }

    def _standardize(self, positions, key_positions, start_index):
        given = super()._standardize(positions, key_positions, start_index)
        for name, value in zip(("positions", "key_positions"), given, strict=False):
            if value is not None and "float" in dtype_name(value):
                raise ValueError(
                    f"{self._owner}: `{name}` must be integers, for there is nothing "
                    f"between two buckets. Received: {name} of dtype "
                    f"{dtype_name(value)}"
                )
        return given

    def _bias(self, steps, fraction, valid):
        arguments = self.num_buckets, self.max_distance, self.bidirectional
        # A weight for each distance first: that is small, and then one look-up does.
        embeddings = ops.transpose(ops.cast(self.embeddings, "float32"))
        weights = ops.take(embeddings, constant(_buckets(*arguments)), axis=1)
        most = self.max_distance
        bias = ops.take(weights, ops.clip(steps, -most, most) + most, axis=1)
        bias = bias if len(bias.shape) == 3 else ops.moveaxis(bias, 0, 1)
        return ops.where(ops.expand_dims(valid, -3), bias, ops.cast(np.nan, "float32"))


@on_the_host
@functools.lru_cache(maxsize=32)
def _buckets(num_buckets, max_distance, bidirectional):
    """Return int32 `(2 * max_distance + 1,)`: the bucket of each distance.

    From a key `max_distance` after the query to one as far before it. Buckets begin at
    distances found in whole numbers, so that no rounded logarithm can move them.
    """
    size = num_buckets // 2 if bidirectional else num_buckets
    exact = size // 2
    starts = [*range(1, exact + 1)]
    rest = size - exact
    for k in range(1, rest):
        # The first n with log(n / exact) / log(max_distance / exact) >= k / rest.
        n = int(exact * (max_distance / exact) ** (k / rest)) - 1
        while n**rest < max_distance**k * exact ** (rest - k):
            n += 1
        starts.append(n)
    before = np.searchsorted(starts, np.arange(max_distance + 1), side="right")
    after = before[:0:-1] + size if bidirectional else np.zeros(max_distance, int)
    return np.concatenate([after, before]).astype("int32")


def _check_bool(name, value):
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"`{name}` must be True or False. Received: {name}={value!r}")
    return bool(value)
