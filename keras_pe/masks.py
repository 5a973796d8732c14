"""The masks of attention, in the shape of its scores: `(batch, heads, query, key)`."""

import functools

from keras import ops

from keras_pe.rows import fit


def joined(*masks):
    """Return where all masks that are not None are True, or None."""
    masks = [mask for mask in masks if mask is not None]
    return functools.reduce(ops.logical_and, masks) if masks else None


def of_steps(owner, name, mask, batch, steps):
    """Return a mask `(batch, time)`, checked, or None."""
    if mask is None:
        return None
    mask = ops.cast(ops.convert_to_tensor(mask), "bool")
    return fit(owner, name, mask, {"batch": batch, "time": steps})


def between(query, key):
    """Return masks `(batch, time)` of both sides as one, `(batch, 1, query, key)`."""
    query = None if query is None else query[:, None, :, None]
    key = None if key is None else key[:, None, None, :]
    return joined(query, key)


def forms_of_mask(sizes, num_heads):
    """Return the sizes that an attention mask may have: without a batch, or heads."""
    (batch, rows), *rest = sizes.items()
    heads = {"1": 1}, {"heads": num_heads}
    return [dict(rest), sizes, *({batch: rows, **n, **dict(rest)} for n in heads)]


def with_heads(owner, mask, sizes):
    """Return an attention mask with an axis for the heads, and one for the batch."""
    mask = ops.cast(ops.convert_to_tensor(mask), "bool")
    while len(mask.shape) < 4:
        mask = ops.expand_dims(mask, -3)
    (batch, rows), *rest = sizes.items()
    sizes = {batch: rows, "heads": ops.shape(mask)[1], **dict(rest)}
    return fit(owner, "attention_mask", mask, sizes)


def causal_mask(queries, keys, first):
    """Return which keys are not after a query, `(1, 1, query, key)`."""
    query = ops.arange(queries, dtype="int32") + first
    key = ops.arange(keys, dtype="int32")
    return (key <= ops.expand_dims(query, -1))[None, None]
