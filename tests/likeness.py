"""Tests that are alike: what `make test` runs of them, and what only `.ci/run` does."""

import pytest


def first_of(values, count=1):
    """Return the values as parameters, all but the first `count` of them long.

    A value is what a test takes: a tuple, if that is several arguments.
    """
    values = list(values)
    rest = [value if isinstance(value, tuple) else (value,) for value in values[count:]]
    return [
        *values[:count],
        *(pytest.param(*value, marks=pytest.mark.long) for value in rest),
    ]
