"""How generated tests run: how many examples, how they are called, how they may end.

A test draws a case, and checks that its result is the truth, within what is promised,
or that it is refused as is documented. It says which: at least half must be compared.

By itself a run is the same every time, so that CI is. `--hypothesis-profile=long` draws
16 times as many, by another seed each time, which the end of the run prints. What it
finds becomes a test of its own.
"""

import collections
import random

import hypothesis
import keras
import numpy as np
import pytest
from keras import ops

BACKEND = keras.config.backend()
# How often, in all. To trace costs ten times what a call does, to compile fifty times.
WAYS = {
    "tensorflow": ["eager"] * 12 + ["graph"] * 3 + ["xla"],
    "jax": ["eager"] * 3 + ["jit"],
}.get(BACKEND, ["eager"])
COMPILED = ("xla", "jit")
COMPARED, REFUSED, EMPTY = ENDS = "compared", "refused", "empty"


def configure(config):
    """Make the profiles, and a seed for one that is asked for."""
    common = dict(
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
        print_blob=True,
    )
    hypothesis.settings.register_profile(
        "default", max_examples=25, derandomize=True, **common
    )
    hypothesis.settings.register_profile("long", max_examples=400, **common)
    hypothesis.settings.load_profile("default")
    if config.getoption("--hypothesis-profile") == "long":
        if config.getoption("--hypothesis-seed") is None:
            config.option.hypothesis_seed = random.randrange(10**6)


def generated(cases, share=1):
    """Make a test of a check, which takes a case and returns one of `ENDS`.

    Args:
        cases: Strategy.
        share: How many times the examples of a profile it gets.
    """

    def decorate(check):
        examples = int(share * hypothesis.settings.default.max_examples)
        counts = collections.Counter()

        @hypothesis.settings(max_examples=examples)
        @hypothesis.given(cases)
        def run(case):
            counts[check(case)] += 1

        def test(record_property):
            counts.clear()
            try:
                run()
            finally:
                for name in ENDS:
                    record_property(f"examples {name}", counts[name])
            # Else it would ask for little more than errors.
            assert 2 * counts[COMPARED] >= counts.total(), counts

        run.__name__ = run.__qualname__ = test.__name__ = check.__name__
        test.__doc__, test.__module__ = check.__doc__, check.__module__
        return pytest.mark.generated(test)

    return decorate


def summary(config, reports):
    """Return lines that say how many examples each generated test tried."""
    totals, lines = collections.Counter(), []
    for report in reports:
        found = {
            name.removeprefix("examples "): count
            for name, count in getattr(report, "user_properties", ())
            if name.startswith("examples ")
        }
        if found and report.when == "call":
            totals.update(found)
            name = report.nodeid.rpartition("::")[2]
            lines.append(f"{name}: {_shares(found)}")
    if lines:
        lines.append(f"all generated tests: {_shares(totals)}")
        if (seed := config.getoption("--hypothesis-seed")) is not None:
            lines.append(f"drawn by --hypothesis-seed={seed}")
    return lines


def _shares(counts):
    return ", ".join(f"{counts[name]} {name}" for name in ENDS)


def compared(result):
    """Return how an example ended whose numbers are right."""
    return COMPARED if np.size(result) else EMPTY


def call(way, function, tensors, unknown=()):
    """Return what `function` gives for keyword arguments that are tensors.

    Args:
        way: Of `WAYS`.
        function: Takes the tensors by name.
        tensors: Dict of tensors, or of dicts of them.
        unknown: Dict of the axes of each that a trace does not know, by name.
    """
    if way == "eager":
        return function(**tensors)
    if way == "jit":
        import jax

        return jax.jit(function)(**tensors)
    import tensorflow as tf

    def spec(name, tensor):
        if isinstance(tensor, dict):
            return {key: spec(name, part) for key, part in tensor.items()}
        axes = unknown.get(name, ())
        sizes = [None if axis in axes else n for axis, n in enumerate(tensor.shape)]
        return tf.TensorSpec(sizes, tensor.dtype)

    specs = {name: spec(name, tensor) for name, tensor in tensors.items()}
    graph = tf.function(function, jit_compile=way == "xla")
    return graph.get_concrete_function(**specs)(**tensors)


def outcome(way, is_refused, attempt):
    """Return what `attempt()` gives, or None where it raises as is documented.

    Only a compiler may give a result where an error is due.
    """
    if not is_refused:
        return attempt()
    try:
        result = attempt()
    except errors(way):
        return None
    assert way in COMPILED, f"{way}, not refused"
    return result


def errors(way):
    """Return the errors that are documented for a call."""
    if BACKEND != "tensorflow" or way == "eager":
        return (ValueError,)
    import tensorflow as tf

    return (ValueError, tf.errors.InvalidArgumentError)


def assert_near(result, expected, most, may_be_nan=False):
    """Assert that arrays of one shape differ by `most`, and are NaN in the same place.

    Args:
        may_be_nan: True where a compiler drops the check: NaN in place of a number.
    """
    assert result.shape == np.shape(expected)
    nan = np.isnan(result)
    missing = nan & ~np.isnan(expected)
    assert may_be_nan or not missing.any(), f"NaN at {first(missing)}"
    with np.errstate(invalid="ignore"):
        wrong = ~nan & ~(np.abs(result - expected) <= most)
    assert not wrong.any(), (
        f"{result[wrong][0]!r}, not {expected[wrong][0]!r}, at {first(wrong)}"
        f"; off by {np.abs(result - expected)[wrong].max():.3g} at most"
    )


def first(places):
    return tuple(int(axis[0]) for axis in places.nonzero()) if places.any() else None


def to_numpy(tensor):
    """Return a tensor as float64: no dtype of a result has more."""
    tensor = ops.stop_gradient(ops.convert_to_tensor(tensor))
    if keras.backend.standardize_dtype(tensor.dtype) == "bfloat16":
        tensor = ops.cast(tensor, "float32")
    return ops.convert_to_numpy(tensor).astype("float64")
