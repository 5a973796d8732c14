"""Results that are kept: a cache that is bounded in bytes, not in numbers alone."""

import collections
import functools
import threading
from typing import NamedTuple

import numpy as np


class CacheInfo(NamedTuple):
    """What a cache has done, and what it holds."""

    hits: int
    misses: int
    count: int
    size: int  # in bytes


def remembered(count, most):
    """Return a decorator that keeps the last results of a function.

    As `functools.lru_cache`, to which eight tables are eight, of kilobytes or of
    gigabytes. A result that has more than `most` bytes by itself is not kept.

    Args:
        count: How many results are kept.
        most: How many bytes they may have together.

    The function takes hashable arguments by position, all that its result depends on,
    and returns an array, a TensorFlow tensor, or a tuple of such. It may run twice if
    two threads ask at once.
    """

    def decorate(make):
        kept, lock, asked = collections.OrderedDict(), threading.Lock(), [0, 0]

        @functools.wraps(make)
        def get(*arguments):
            with lock:
                asked[arguments not in kept] += 1
                if arguments in kept:
                    kept.move_to_end(arguments)
                    return kept[arguments]
            result = make(*arguments)
            if bytes_of(result) <= most:
                with lock:
                    kept[arguments] = result
                    while len(kept) > count or bytes_of((*kept.values(),)) > most:
                        kept.popitem(last=False)
            return result

        def cache_info():
            with lock:
                return CacheInfo(*asked, len(kept), bytes_of((*kept.values(),)))

        def cache_clear():
            with lock:
                kept.clear()
                asked[:] = 0, 0

        get.cache_info, get.cache_clear = cache_info, cache_clear
        get.count, get.most = count, most
        return get

    return decorate


def bytes_of(result):
    """Return the bytes of an array, of a TensorFlow tensor, or of a tuple of them."""
    if isinstance(result, tuple):
        return sum(map(bytes_of, result))
    if isinstance(result, np.ndarray):
        return result.nbytes
    return result.shape.num_elements() * result.dtype.size
