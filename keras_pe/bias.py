"""What every bias does: it takes positions, and gives what to add to scores."""

import keras
import numpy as np
from keras import ops

from keras_pe.arguments import (
    check_call,
    sizes_fit,
    standardize,
    standardize_positions,
)
from keras_pe.checks import check_size, has_rank, is_dense
from keras_pe.legacy import refuse_keras_2
from keras_pe.rows import find_rows, fit

_FARTHEST = 2**30  # the difference of two such is an int32 still


class PositionBias(keras.layers.Layer):
    """Gives what to add to the scores of queries and keys, from their positions.

    A layer of a kind has its own `_bias(steps, fraction, valid)`: how many steps each
    query is after each key, an int32 tensor `(query, key)` or with a batch before; what
    is behind the point of that, or None; and where it is a number. It returns a float32
    tensor `(heads, query, key)`, or with a batch before.
    """

    def __init__(self, *, num_heads, **kwargs):
        # Of its inputs only the sizes matter: they may be ids.
        super().__init__(autocast=False, **kwargs)
        self.num_heads = check_size("num_heads", num_heads)
        # Masks are the business of attention, which they reach without this layer.
        self.supports_masking = True

    def build(self, query_shape, key_shape=None):
        pass

    def __call__(self, *args, **kwargs):
        sides = dict(zip(("query", "key"), args, strict=False)) | kwargs
        refuse_keras_2(self._owner, *sides.values())
        self._check_input(sides.get("query"))
        if sides.get("key") is not None:
            self._check_input(sides["key"])
        # Before Keras converts the arguments: on JAX that cuts int64 to int32.
        given = [kwargs.get(name) for name in ("positions", "key_positions")]
        given = self._standardize(*given, kwargs.get("start_index", 0))
        kwargs["positions"], kwargs["key_positions"], kwargs["start_index"] = given
        return super().__call__(*args, **kwargs)

    def call(
        self, query, key=None, *, positions=None, key_positions=None, start_index=0
    ):
        sides = self._sides(query, key, positions, key_positions, start_index)
        if key is not None:
            # Of one batch, also where only a running graph knows.
            wanted = dict(enumerate(ops.shape(key))) | {0: ops.shape(query)[0]}
            name, key, *given = sides[-1]
            sides[-1] = (name, fit(self._owner, "key", key, wanted), *given)
        rows = []
        for name, side, *given in sides:
            sizes = ops.shape(side)[:2]
            rows.append(find_rows(self._owner, *sizes, *given, None, name).spread())
        query_rows, key_rows = rows[0], rows[-1]
        bias = self._bias(
            _each(query_rows.whole, key_rows.whole, ops.subtract),
            _fractions(query_rows, key_rows),
            _each(_valid(query_rows), _valid(key_rows), ops.logical_and),
        )
        if len(bias.shape) == 3:
            return ops.expand_dims(bias, 0)
        # Where a compiler drops that check, rows of another batch are no rows.
        fits = sizes_fit(ops.shape(bias)[:1], {"batch": ops.shape(query)[0]})
        return bias if fits is True else ops.where(fits, bias, np.float32(np.nan))

    def compute_output_spec(
        self, query, key=None, *, positions=None, key_positions=None, start_index=0
    ):
        sides = self._sides(query, key, positions, key_positions, start_index)
        lengths = [side.shape[1] for _, side, *_ in (sides[0], sides[-1])]
        batches = {1}
        for *_, positions, start in sides:
            if len(getattr(positions, "shape", ())) == 2:
                batches.add(positions.shape[0])
            elif getattr(start, "shape", ()):
                batches.add(start.shape[0])
        known = batches - {1, None}
        batch = known.pop() if known else None if None in batches else 1
        return keras.KerasTensor((batch, self.num_heads, *lengths), dtype="float32")

    def compute_output_shape(self, query_shape, key_shape=None):
        # Of steps at their own places: other positions may be those of a batch.
        sides = query_shape, key_shape or query_shape
        return (1, self.num_heads, *(side[1] for side in sides))

    def compute_mask(self, inputs, previous_mask):
        return None

    def get_config(self):
        return {**super().get_config(), "num_heads": self.num_heads}

    @property
    def _owner(self):
        return f"{type(self).__name__} layer '{self.name}'"

    def _standardize(self, positions, key_positions, start_index):
        owner = self._owner
        positions, start_index = standardize(owner, positions, start_index)
        if key_positions is not None:
            key_positions = standardize_positions(owner, key_positions, "key_positions")
        return positions, key_positions, start_index

    def _sides(self, query, key, positions, key_positions, start_index):
        """Return, checked, what is known of the query, and if need be of the key."""
        given = self._standardize(positions, key_positions, start_index)
        positions, key_positions, start_index = given
        sides = [("positions", query, positions, start_index)]
        if key is not None or key_positions is not None:
            key = query if key is None else key
            sides.append(("key_positions", key, key_positions, 0))
        for name, side, positions, start in sides:
            self._check_input(side)
            sizes = side.shape[:2]
            check_call(self._owner, *sizes, positions, start, None, name)
        batches = {side.shape[0] for _, side, *_ in sides} - {None}
        if len(batches) > 1:
            raise ValueError(
                f"{self._owner} takes a query and a key of one batch. Received: query "
                f"of shape {tuple(query.shape)}, key of shape {tuple(key.shape)}"
            )
        return sides

    def _check_input(self, tensor):
        if not (hasattr(tensor, "shape") and is_dense(tensor) and has_rank(tensor)):
            raise ValueError(
                f"{self._owner} takes dense tensors of a known rank. Received: {tensor}"
            )
        if len(tensor.shape) < 2:
            raise ValueError(
                f"{self._owner} takes tensors (batch, time, ...). "
                f"Received: a tensor of shape {tuple(tensor.shape)}"
            )


def _valid(rows):
    """Return where positions are numbers whose differences int32 holds."""
    near = (rows.whole >= -_FARTHEST) & (rows.whole <= _FARTHEST)
    return near if rows.valid is None else near & rows.valid


def _each(query, key, combine):
    """Return `combine` of each query with each key: `(query, key)`, or with a batch."""
    return combine(ops.expand_dims(query, -1), ops.expand_dims(key, -2))


def _fractions(query, key):
    """Return how far apart positions are behind the point, or None."""
    if query.fraction is None and key.fraction is None:
        return None
    fractions = [
        ops.zeros_like(rows.whole, dtype="float32")
        if rows.fraction is None
        else ops.cast(rows.fraction, "float32")
        for rows in (query, key)
    ]
    return _each(*fractions, ops.subtract)
