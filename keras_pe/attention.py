"""Keras's attention, which takes positions: turned, as a bias, and with a cache."""

import math

import keras
import numpy as np
from keras import ops

from keras_pe.arguments import check_shape, standardize, standardize_positions
from keras_pe.cache import check_cache, check_start, empty_cache, written
from keras_pe.checks import (
    check_size,
    dtype_name,
    has_rank,
    is_dense,
    is_plain,
    tensorflow_mode,
)
from keras_pe.legacy import refuse_keras_2
from keras_pe.masks import (
    between,
    causal_mask,
    forms_of_mask,
    joined,
    of_steps,
    with_heads,
)
from keras_pe.rotary import RotaryEmbedding
from keras_pe.rows import fit
from keras_pe.turns import precision_of

_NEVER = np.finfo("float32").min  # in place of the score of a key that is masked
_SCORES = ("batch", "heads", "query", "key")
_ALONE = ("use_gate", "sliding_window", "attention_axes")


@keras.saving.register_keras_serializable(package="keras_pe")
class MultiHeadAttention(keras.layers.MultiHeadAttention):
    """Keras's layer of that name, which takes relative positions and a cache.

    `rotary` turns queries and keys after their projection, `bias` is added to their
    scores, and `cache` holds the keys and values of the steps before, so that a decoder
    goes on step by step. Without these it is Keras's own layer, bit for bit; only that
    with `dropout` and no `seed` it takes one more from Keras's generator. With any of
    them it leaves the masks on its inputs.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(1, 5, 8))
    >>> layer = MultiHeadAttention(2, 4, rotary=RotaryEmbedding())
    >>> whole = layer(x, x, use_causal_mask=True)
    >>> cache = layer.init_cache(batch_size=1, max_length=5)
    >>> for step in range(5):
    ...     token = x[:, step : step + 1]
    ...     last, cache = layer(token, token, start_index=step, cache=cache)
    >>> np.allclose(last[:, 0], whole[:, -1], atol=1e-5)
    True

    Args:
        num_heads: Integer of at least 1.
        key_dim: Integer of at least 1: the features of a query and a key in each head.
        rotary: None, or a `RotaryEmbedding` with steps at axis 1.
        **kwargs: The other arguments of `keras.layers.MultiHeadAttention`, by their
            names. Its gates, sliding windows and attention axes go with neither of the
            three.

    Call arguments:
        query: Float tensor `(batch, query, d_model)`.
        value: Float tensor `(batch, key, d_model)`.
        key: Such a tensor, or None for `value`.
        query_mask: Bool tensor `(batch, query)`. By itself the mask of the input.
        value_mask: Bool tensor `(batch, key)`, as the former.
        key_mask: Bool tensor `(batch, key)`, as the former.
        attention_mask: Bool tensor `(batch, query, key)`, True where a query may look;
            or `(query, key)`, or `(batch, num_heads, query, key)`. With a cache it has
            a key for each slot.
        return_attention_scores: True to return the probabilities, too.
        training: True for dropout.
        use_causal_mask: True to hide the keys after a query.
        bias: None, or a float tensor `(1 or batch, num_heads, query, key)` to add to
            the scores, as `ALiBi` and `RelativePositionBias` make it. With a cache it
            has a key for each slot.
        positions: Int or float tensor, array or list, `(query,)` or `(batch, query)`:
            where `rotary` turns query and key to. None counts from `start_index`.
        start_index: Int, or int tensor of shape `()`: the position of the first query,
            and the slot of a cache that it goes to.
        cache: None, or what `init_cache` or the last call returned.

    Input shape:
        `(batch, time, d_model)`, and any other that Keras's layer takes, where it is
        alone.

    Output shape:
        That of the query; then, if asked for, probabilities `(batch, num_heads, query,
        key)`; then, if given, the cache with the new steps in it.

    Raises:
        ValueError: for an argument not as above, or one that does not fit; for a cache
            that is full. Where only a running TensorFlow graph knows, it is
            `tf.errors.InvalidArgumentError`; where a compiler drops that check, an
            output of NaN and the cache as it was.

    References:
        Vaswani et al., 2017, "Attention Is All You Need", section 3.2; and those of
        `RotaryEmbedding`, `ALiBi` and `RelativePositionBias`.
    """

    def __init__(self, num_heads, key_dim, *, rotary=None, **kwargs):
        num_heads = check_size("num_heads", num_heads)
        key_dim = check_size("key_dim", key_dim)
        # Keras would cast a bias and positions to a half type before `call`. What is
        # projected the projections cast.
        super().__init__(num_heads, key_dim, **{**kwargs, "autocast": False})
        self.rotary = rotary
        self._flash = kwargs.get("flash_attention")
        self._alone = [name for name in _ALONE if kwargs.get(name)]
        # A built layer of Keras says so of the axis that all of its inputs have.
        if kwargs.get("attention_axes") in (1, (1,), [1]):
            self._alone.remove("attention_axes")
        if rotary is not None:
            self._check_rotary()
        # Not that of Keras's layer, which is no public one.
        policy = self.dtype_policy
        self.dropping = keras.layers.Dropout(self.dropout, seed=self.seed, dtype=policy)

    def build(self, query_shape, value_shape, key_shape=None):
        super().build(query_shape, value_shape, key_shape)
        # Unlike Keras's layer, this one leaves the masks on its inputs.
        for dense in (self.query_dense, self.key_dense, self.value_dense):
            dense.supports_masking = True

    def init_cache(self, batch_size, max_length):
        """Return an empty cache, to be given to the first call.

        Args:
            batch_size: Integer of at least 1.
            max_length: Integer of at least 1: the number of slots, one for each step of
                the text, prompt and padding included.

        Returns:
            A dict of tensors: "key" and "value" of the compute dtype, `(batch_size,
            max_length, num_heads, ...)`, and "mask" `(batch_size, max_length)`, True
            where a slot holds a step that counts.

        Raises:
            ValueError: If an argument is not as above.
        """
        batch_size = check_size("batch_size", batch_size)
        max_length = check_size("max_length", max_length)
        dims = self.num_heads, self.key_dim, self.value_dim
        return empty_cache(batch_size, max_length, *dims, self.compute_dtype)

    def __call__(self, *args, **kwargs):
        refuse_keras_2(self._owner, *args, *kwargs.values())
        # Before Keras converts the arguments: on JAX that cuts int64 to int32.
        if "positions" in kwargs or "start_index" in kwargs:
            kwargs["positions"], kwargs["start_index"] = self._standardize(
                kwargs.get("positions"),
                kwargs.get("start_index", 0),
                kwargs.get("cache"),
            )
        return super().__call__(*args, **kwargs)

    def call(
        self,
        query,
        value,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        return_attention_scores=False,
        training=None,
        use_causal_mask=False,
        *,
        bias=None,
        positions=None,
        start_index=0,
        cache=None,
    ):
        key = value if key is None else key
        if bias is not None and is_plain(bias):
            bias = ops.convert_to_tensor(np.asarray(bias))
        masks = query_mask, value_mask, key_mask, attention_mask
        positions, start_index = self._check(
            query, value, key, masks, bias, positions, start_index, cache
        )
        if self._is_plain(bias, cache):
            return super().call(
                query,
                value,
                key,
                query_mask=query_mask,
                value_mask=value_mask,
                key_mask=key_mask,
                attention_mask=attention_mask,
                return_attention_scores=return_attention_scores,
                training=training,
                use_causal_mask=use_causal_mask,
            )
        sides = self._of_one_length(query, key, value, cache)
        key, value = sides[0], sides[-1]
        batch, steps, keys = *ops.shape(query)[:2], ops.shape(key)[1]
        query_mask = of_steps(self._owner, "query_mask", query_mask, batch, steps)
        value_mask = of_steps(self._owner, "value_mask", value_mask, batch, keys)
        key_mask = of_steps(self._owner, "key_mask", key_mask, batch, keys)
        query, key = self.query_dense(query), self.key_dense(key)
        value, valid, start = self.value_dense(value), None, 0
        if self.rotary is not None:
            at = {} if positions is not None else {"start_index": start_index}
            query = self.rotary(query, positions=positions, **at)
            key = self.rotary(key, positions=positions, **at)
        kept = joined(value_mask, key_mask)
        if cache is not None:
            new = {"key": key, "value": value, "mask": kept}
            cache, start, valid = written(self._owner, cache, new, start_index)
            key, value, kept = (cache[name] for name in ("key", "value", "mask"))
            keys = key.shape[1]
        if attention_mask is not None:
            sizes = {"batch": batch, "query": steps, "key": keys}
            attention_mask = with_heads(self._owner, attention_mask, sizes)
        mask = joined(between(query_mask, kept), attention_mask)
        output, scores = self._attend(
            query,
            key,
            value,
            bias,
            mask,
            start if use_causal_mask else None,
            training,
            return_attention_scores,
        )
        results = [self.output_dense(output)]
        if return_attention_scores:
            results.append(scores)
        # Even where a compiler drops the checks, a row is that of its query.
        results = [ops.reshape(r, (batch, *ops.shape(r)[1:])) for r in results]
        if valid is not None:
            results = [ops.where(valid, r, ops.cast(np.nan, r.dtype)) for r in results]
        if cache is not None:
            results.append(cache)
        return tuple(results) if len(results) > 1 else results[0]

    def compute_output_spec(
        self,
        query,
        value,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        return_attention_scores=False,
        training=None,
        use_causal_mask=False,
        *,
        bias=None,
        positions=None,
        start_index=0,
        cache=None,
    ):
        key = value if key is None else key
        masks = query_mask, value_mask, key_mask, attention_mask
        self._check(query, value, key, masks, bias, positions, start_index, cache)
        shape = self.compute_output_shape(query.shape, value.shape, key.shape)
        results = [keras.KerasTensor(shape, self.compute_dtype)]
        if return_attention_scores:
            keys = key if cache is None else cache["key"]
            shape = query.shape[0], self.num_heads, query.shape[1], keys.shape[1]
            results.append(keras.KerasTensor(shape, self.compute_dtype))
        if cache is not None:
            results.append(
                {
                    name: keras.KerasTensor(slots.shape, slots.dtype)
                    for name, slots in cache.items()
                }
            )
        return tuple(results) if len(results) > 1 else results[0]

    def rematerialized_call(self, layer_call, *args, **kwargs):
        # TensorFlow takes what is given by name for a constant: a trained bias would
        # get no gradient under `keras.RematScope`.
        if kwargs.get("bias") is None:
            return super().rematerialized_call(layer_call, *args, **kwargs)

        def call(bias, *args, **kwargs):
            return layer_call(*args, bias=bias, **kwargs)

        again = super().rematerialized_call(call, *args, **kwargs)
        return lambda *args, bias, **kwargs: again(bias, *args, **kwargs)

    def get_config(self):
        rotary = self.rotary
        if rotary is not None:
            rotary = keras.saving.serialize_keras_object(rotary)
        # Which Keras 3.15 leaves out.
        flash = {"flash_attention": self._flash}
        return {**super().get_config(), **flash, "rotary": rotary}

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        if isinstance(config.get("rotary"), dict):
            rotary = keras.saving.deserialize_keras_object(config["rotary"])
            config["rotary"] = rotary
        return cls(**config)

    @property
    def _owner(self):
        return f"{type(self).__name__} layer '{self.name}'"

    def _attend(self, query, key, value, bias, mask, first, training, with_scores):
        """Return the heads' outputs, `(batch, query, num_heads, ...)`, and scores.

        `first` is the position of the first query among the keys, under a causal mask,
        or None.
        """
        dropped = training and self.dropout > 0
        causal = isinstance(first, int) and first == 0
        fused = bias is None and mask is None and (causal or first is None)
        # Of values of another width JAX's fails.
        fused = fused and not (dropped or with_scores or self.value_dim != self.key_dim)
        # TensorFlow's is none, and LiteRT has not all of its operations.
        if fused and tensorflow_mode() is None:
            # With a mask or a bias, what some devices have for this drops it, or a part
            # of it.
            flash = self._flash or keras.config.is_flash_attention_enabled()
            output = ops.dot_product_attention(
                query, key, value, is_causal=causal, flash_attention=flash
            )
            return output, None
        if first is not None:
            steps = ops.shape(query)[1], ops.shape(key)[1]
            mask = joined(mask, causal_mask(*steps, first))
        # The product alone a float16 might not hold. A power of two rounds nothing.
        scale = self.key_dim**-0.5
        power = 2.0 ** math.floor(math.log2(scale))
        query = query * ops.cast(power, query.dtype)
        scores = ops.einsum("btnh,bsnh->bnts", query, key)
        scores = ops.cast(scores, precision_of(self.compute_dtype))
        scores = scores * (scale / power)
        if bias is not None:
            sizes = dict(zip(_SCORES, ops.shape(scores), strict=True))
            bias = fit(self._owner, "bias", bias, sizes)
            scores = scores + ops.cast(bias, scores.dtype)
        if mask is not None:
            scores = ops.where(mask, scores, ops.cast(_NEVER, scores.dtype))
        scores = ops.cast(ops.softmax(scores), self.compute_dtype)
        dropped = self.dropping(scores, training=training)
        return ops.einsum("bnts,bsnh->btnh", dropped, value), scores

    def _is_plain(self, bias, cache):
        return self.rotary is None and bias is None and cache is None

    def _standardize(self, positions, start_index, cache):
        if cache is None:
            return standardize(self._owner, positions, start_index)
        # With a cache both are allowed: a start says the slot, positions the turn.
        _, start_index = standardize(self._owner, None, start_index)
        if positions is not None:
            positions = standardize_positions(self._owner, positions)
        return positions, start_index

    def _check(self, query, value, key, masks, bias, positions, start_index, cache):
        """Raise for what is known before the numbers; return standard arguments."""
        positions, start_index = self._standardize(positions, start_index, cache)
        started = not (isinstance(start_index, int) and start_index == 0)
        if self.rotary is None and (
            positions is not None or (started and cache is None)
        ):
            raise ValueError(
                f"{self._owner} has no `rotary`, which alone takes `positions`; a bias "
                "has its own, and `start_index` else is for a cache. Received: "
                f"positions={positions}, start_index={start_index}"
            )
        if self._is_plain(bias, cache):
            return positions, start_index
        self._check_alone()
        for side in (query, value, key):
            dense = is_dense(side) and has_rank(side) and len(side.shape) == 3
            if not (dense and "float" in dtype_name(side)):
                raise ValueError(
                    f"{self._owner} with a `rotary`, a `bias` or a `cache` takes dense "
                    f"float tensors (batch, time, d_model). Received: {side}"
                )
        for mask in masks:
            if not (mask is None or (is_dense(mask) and has_rank(mask))):
                raise ValueError(
                    f"{self._owner} takes dense masks of a known rank. Received: {mask}"
                )
        sizes = dict(zip(("rows", "steps"), query.shape[:2], strict=True))
        alike = self.rotary is not None or cache is not None
        of_key = sizes if alike else {**sizes, "steps": key.shape[1]}
        for name, side in _sides(key, value):
            wanted = {**of_key, "features": side.shape[2]}
            check_shape(self._owner, name, side, [wanted])
        batch, queries, keys = *query.shape[:2], key.shape[1]
        for name, mask, steps in zip(
            ("query_mask", "value_mask", "key_mask"),
            masks,
            (queries, keys, keys),
            strict=False,
        ):
            if mask is not None:
                wanted = {"batch": batch, "time": steps}
                check_shape(self._owner, name, mask, [wanted])
        if cache is not None:
            dims = self.num_heads, self.key_dim, self.value_dim
            keys = check_cache(self._owner, cache, batch, *dims, self.compute_dtype)
            check_start(self._owner, start_index, batch, queries, keys)
        sizes = {"batch": batch, "query": queries, "key": keys}
        if masks[-1] is not None:
            forms = forms_of_mask(sizes, self.num_heads)
            check_shape(self._owner, "attention_mask", masks[-1], forms)
        if bias is not None:
            self._check_bias(bias, sizes)
        return positions, start_index

    def _of_one_length(self, query, key, value, cache):
        """Return key and value, or what is both, checked as a graph runs."""
        sizes = dict(zip(("rows", "steps"), ops.shape(query)[:2], strict=True))
        if self.rotary is None and cache is None:
            sizes["steps"] = ops.shape(key)[1]
        return [
            fit(self._owner, name, side, {**sizes, "features": side.shape[2]})
            for name, side in _sides(key, value)
        ]

    def _check_alone(self):
        if self._alone:
            raise ValueError(
                f"{self._owner} takes `rotary`, `bias` and `cache` only without "
                f"{', '.join(f'`{name}`' for name in _ALONE)}. "
                f"Received: {', '.join(f'`{name}`' for name in self._alone)}"
            )

    def _check_rotary(self):
        if not isinstance(self.rotary, RotaryEmbedding):
            raise ValueError(
                "`rotary` must be a RotaryEmbedding, or None. "
                f"Received: rotary={self.rotary!r}"
            )
        if self.rotary.sequence_axis not in (1, -3):
            raise ValueError(
                "`rotary` must have its `sequence_axis` at 1, for queries are (batch, "
                "time, heads, dim) here. "
                f"Received: sequence_axis={self.rotary.sequence_axis}"
            )
        self._check_alone()
        # It knows what it cannot turn.
        self.rotary.compute_output_shape((None, None, self.num_heads, self.key_dim))

    def _check_bias(self, bias, sizes):
        if "float" not in dtype_name(bias):
            raise ValueError(
                f"{self._owner}: `bias` must be of floats. A mask is for "
                f"`attention_mask`. Received: bias of dtype {dtype_name(bias)}"
            )
        batch, *rest = sizes.items()
        wanted = dict([batch, ("heads", self.num_heads), *rest])
        check_shape(self._owner, "bias", bias, [wanted])


def _sides(key, value):
    sides = [("value", value)]
    return sides if key is value else [("key", key), *sides]
