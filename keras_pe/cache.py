"""The keys and values of the steps that attention has seen, for decoding."""

from keras import ops

from keras_pe.arguments import check_call
from keras_pe.checks import dtype_name
from keras_pe.rows import find_rows, fit


def empty_cache(batch, slots, num_heads, key_dim, value_dim, dtype):
    """Return a cache without a step, as `MultiHeadAttention.init_cache` does."""
    return {
        "key": ops.zeros((batch, slots, num_heads, key_dim), dtype),
        "value": ops.zeros((batch, slots, num_heads, value_dim), dtype),
        "mask": ops.zeros((batch, slots), "bool"),
    }


def check_cache(owner, cache, batch, num_heads, key_dim, value_dim, dtype):
    """Return how many slots a cache has, or raise ValueError if it is another's."""
    dims = {"key": (num_heads, key_dim), "value": (num_heads, value_dim), "mask": ()}
    found = {
        name: (dtype_name(tensor), tuple(tensor.shape))
        for name, tensor in (cache.items() if isinstance(cache, dict) else ())
        if hasattr(tensor, "dtype")
    }
    shapes = {name: shape for name, (_, shape) in found.items()}
    sizes = {shape[1] for shape in shapes.values() if len(shape) > 1}
    right = {*shapes} == {*dims} and len(sizes) == 1 and None not in sizes
    for name, wanted in dims.items() if right else ():
        right = right and shapes[name][2:] == wanted
        right = right and found[name][0] == ("bool" if name == "mask" else dtype)
        right = right and (batch is None or shapes[name][0] in (None, batch))
    if not right:
        raise ValueError(
            f"{owner} takes a `cache` as its `init_cache` makes it, one dict, for a "
            f"batch of {batch}, {num_heads} heads, {key_dim} and {value_dim} features, "
            f"and the dtype {dtype}. Received: a {type(cache).__name__} of {found}"
        )
    return sizes.pop()


def check_start(owner, start_index, batch, steps, slots):
    """Raise ValueError where it is known that so many steps do not fit a cache."""
    if not isinstance(start_index, int) and len(start_index.shape):
        raise ValueError(
            f"{owner}: `start_index` must be one number where there is a `cache`. "
            f"Received: start_index of shape {tuple(start_index.shape)}"
        )
    check_call(_named(owner), batch, steps, None, start_index, slots)


def _named(owner):
    return f"{owner}, in its `cache`,"


def written(owner, cache, steps, start_index):
    """Return a cache with new steps in it, from the slot `start_index` on.

    A slice is not updated in place: where it does not fit, backends move it until it
    does, over other steps. So each slot is chosen, new or old.

    Args:
        owner: Who speaks in an error.
        cache: A dict of tensors `(batch, slots, ...)`.
        steps: A dict of tensors `(batch, time, ...)`. Its "mask" may be None.
        start_index: int, or int tensor of shape `()`.

    Returns:
        The cache, the slot of the first step, and whether all steps fit: None where
        that is known, else a bool tensor of shape `()`. Where they do not, the cache
        is as it was.
    """
    slots = cache["key"].shape[1]
    batch, time = ops.shape(steps["key"])[:2]
    if isinstance(time, int) and time == 0:
        return cache, _slot(start_index), None
    rows = find_rows(_named(owner), batch, time, None, start_index, slots)
    cache = {
        name: fit(owner, "cache", old, {"rows": batch, "slots": slots, **_rest(old)})
        for name, old in cache.items()
    }
    if steps["mask"] is None:
        steps = {**steps, "mask": ops.ones((batch, time), "bool")}
    slot = ops.arange(slots, dtype="int32")
    step = slot - rows.whole
    new = (step >= 0) & (step < rows.length)
    if rows.valid is not None:
        new = new & rows.valid
    result = {}
    for name, old in cache.items():
        latest = ops.cast(steps[name], old.dtype)
        if isinstance(time, int) and time == 1:
            is_new = ops.reshape(new, (1, slots) + (1,) * (len(old.shape) - 2))
            result[name] = ops.where(is_new, latest, old)
        else:
            both = ops.concatenate([old, latest], axis=1)
            result[name] = ops.take(both, ops.where(new, slots + step, slot), axis=1)
    return result, rows.whole, rows.valid


def _slot(start_index):
    if isinstance(start_index, int):
        return start_index
    return ops.cast(start_index, "int32")


def _rest(tensor):
    return {f"axis {i}": n for i, n in enumerate(ops.shape(tensor)) if i > 1}
