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
            f"{owner} takes a `cache` as its `init_cache` makes it, for a batch of "
            f"{batch}, {num_heads} heads, {key_dim} and {value_dim} features, and the "
            f"dtype {dtype}. Received: a cache of {found or cache}"
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
        return cache, start_index, None
    rows = find_rows(_named(owner), batch, time, None, start_index, slots)
    cache = {
        name: fit(owner, "cache", old, {"rows": batch, "slots": slots, **_rest(old)})
        for name, old in cache.items()
    }
    if steps["mask"] is None:
        steps = {**steps, "mask": ops.ones((batch, time), "bool")}
    step = ops.arange(slots, dtype="int32") - rows.whole
    new = (step >= 0) & (step < rows.length)
    if rows.valid is not None:
        new = new & rows.valid
    step = ops.clip(step, 0, ops.maximum(rows.length - 1, 0))
    result = {}
    for name, old in cache.items():
        # Even where a compiler drops that check, the batch is that of the steps.
        old = ops.reshape(old, (batch, *ops.shape(old)[1:]))
        is_new = ops.reshape(new, (1, slots) + (1,) * (len(old.shape) - 2))
        # One step goes to one slot, and needs no choice of its own.
        latest = steps[name]
        if not isinstance(time, int):
            # There may be none, of which a gather takes none.
            rest = [[0, 0]] * (len(latest.shape) - 2)
            latest = ops.pad(latest, [[0, 0], [0, 1], *rest])
        if not (isinstance(time, int) and time == 1):
            latest = ops.take(latest, step, axis=1)
        latest = ops.cast(latest, old.dtype)
        result[name] = ops.where(is_new, latest, old)
    return result, rows.whole, rows.valid


def _rest(tensor):
    return {f"axis {i}": tensor.shape[i] for i in range(2, len(tensor.shape))}
