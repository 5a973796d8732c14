"""The contract of an encoder, one check a function: what `testing.check_layer` runs.

A check takes a `Case`, and raises AssertionError with a sentence or two for who has
written the layer. It knows nothing of any one layer: only Keras's public API.
"""

import dataclasses
import inspect
import json
import sys
import tempfile
import warnings
from pathlib import Path

import keras
import numpy as np
from keras import ops

from keras_pe import loading, processes

BACKEND = keras.config.backend()
_PLAIN = (bool, int, float, str)
# torch.compile needs a C++ compiler on the machine, and minutes.
JIT_COMPILE = (False,) if BACKEND == "torch" else (False, True)


@dataclasses.dataclass(frozen=True)
class Case:
    """A layer, and an input shape `(batch, ..., time, features)` to check it with.

    The layer itself is never called: checks make it anew from its config.
    """

    layer: keras.layers.Layer
    shape: tuple
    other: keras.layers.Layer | None = None  # one that gives another result
    max_length: int | None = None
    roundings: int = 4  # of a half type, by which a result may differ from float32

    def make(self, like=None, shape=None, **changes):
        """Return the layer anew, in float32 unless `changes` has another dtype.

        With a layer `like`, which has been called, it gets the weights of that, and
        has been called on `shape` first.
        """
        layer = _remade(self.layer, **changes)
        if like is not None and like.weights:
            run(layer, shape or self.shape)
            layer.set_weights(like.get_weights())
        return layer

    def called(self):
        """Return the layer anew, which has its weights, and what it gives."""
        layer = self.make()
        return layer, run(layer, self.shape)

    def shapes(self, *lengths, batch=None):
        """Return the shape with each of these lengths, as far as the layer takes it."""
        most = self.max_length or max(lengths)
        lengths = dict.fromkeys(min(length, most) for length in lengths)
        batch = self.shape[0] if batch is None else batch
        return [(batch, *self.shape[1:-2], n, self.shape[-1]) for n in lengths]

    def input(self, name=None):
        """Return an `Input` of which only the number of features is known."""
        shape = (*(None,) * (len(self.shape) - 2), self.shape[-1])
        return keras.Input(shape, dtype="float32", name=name)

    def normal(self):
        return np.random.default_rng(0).normal(size=self.shape).astype("float32")


def check_config_holds_every_argument(case):
    kind, config = type(case.layer), case.layer.get_config()
    base = set(inspect.signature(keras.layers.Layer.__init__).parameters)
    needed = {*arguments_of(kind)} - base | {"name", "trainable", "dtype"}
    whose = "" if "get_config" in vars(kind) else ", which is not of its own,"
    _require(
        needed <= set(config),
        f"`get_config`{whose} leaves out {', '.join(sorted(needed - set(config)))}: "
        "the layer comes back without. Add each constructor argument to "
        "`super().get_config()`",
    )
    try:
        copy = json.loads(json.dumps(config))
    except (TypeError, ValueError) as error:
        raise AssertionError(
            f"`get_config` must give numbers, strings, None, lists and dicts: {error}"
        ) from error
    changed = [key for key in config if copy.get(key) != config[key]]
    _require(
        not changed,
        f"`get_config` gives what JSON does not keep, for {', '.join(changed)}: write "
        "lists rather than tuples, and names or strings as keys",
    )
    for name in sorted(needed):
        has, says = getattr(case.layer, name, None), config[name]
        plain = isinstance(has, _PLAIN) and isinstance(says, _PLAIN)
        _require(
            not plain or has == says,
            f"`get_config` says {name}={says!r}, and the layer has {name}={has!r}: "
            "give each argument as it is",
        )
    config = {**_unbuilt(config), "name": "it", "trainable": False}
    layer = kind.from_config(config)
    for when in ("as it was made", "after a call"):
        again = _unbuilt(layer.get_config())
        changed = [key for key in config if again.get(key) != config[key]]
        _require(
            again == config,
            f"a layer made from a config has another one, {when}. It differs in "
            f"{', '.join(changed or {*again} - {*config})}: keep each argument "
            "unchanged, under its own name",
        )
        run(layer, case.shape)


def check_is_made_anew_and_called(case):
    _, output = case.called()
    _require(
        np.isfinite(output).all(), "of ones the layer makes a NaN or an infinite number"
    )


def check_shape_is_kept_eager_and_symbolic(case):
    for dtype in ("float32", "mixed_float16"):
        layer = case.make(dtype=dtype)
        output = layer(ones(case.shape))
        _require(
            tuple(output.shape) == case.shape,
            f"inputs of shape {case.shape} give an output of shape "
            f"{tuple(output.shape)}: an encoder keeps the shape",
        )
        _require_dtype(output, layer, dtype)
        unknown = (None, *case.shape[1:-2], None, case.shape[-1])
        for given in (case.shape, unknown):
            layer = case.make(dtype=dtype)
            symbolic = layer(keras.KerasTensor(given))
            computed = tuple(layer.compute_output_shape(given))
            _require(
                tuple(symbolic.shape) == computed == given,
                f"an `Input` of shape {given} gives an output of shape "
                f"{tuple(symbolic.shape)}, and `compute_output_shape` says {computed}",
            )
            _require_dtype(symbolic, layer, dtype)


def check_any_length_in_any_order(case):
    length = case.shape[-2]
    layer, _ = case.called()
    for given in case.shapes(length, 3 * length + 1, 2, 1, 0):
        fresh = case.make(layer, given)
        _require_same(
            run(layer, given),
            run(fresh, given),
            f"{given[-2]} steps after others give what a fresh layer does not: keep "
            "nothing that depends on the length of an input",
        )


def check_rows_of_a_batch_are_apart(case):
    layer, _ = case.called()
    x = np.random.default_rng(1).normal(size=(2, *case.shape[1:])).astype("float32")
    both = to_numpy(layer(x))
    for row in (0, 1):
        alone = to_numpy(layer(x[row : row + 1]))
        _require_close(
            alone,
            both[row : row + 1],
            1e-5 * (1 + np.abs(alone)),
            "a row alone gives what it does not beside another: take nothing from the "
            "batch",
        )


def check_instances_do_not_touch_each_other(case):
    layer, alone = case.called()
    another = _remade(case.other)
    _require(
        not np.array_equal(run(another, case.shape), alone),
        "`other` gives what the layer does. Either it should have arguments that give "
        "another result, or the two share what they keep",
    )
    for get in (lambda: layer, lambda: case.make(layer)):  # each after what was before
        _require_same(
            run(get(), case.shape),
            alone,
            "once `other` has run, the layer gives something else: keep what a layer "
            "knows in the instance, or in a cache by all arguments",
        )


def check_mask_reaches_the_next_layer(case):
    x = ones(case.shape)
    x[..., -1, :] = 0
    for jit_compile in JIT_COMPILE:
        inputs = case.input()
        with warnings.catch_warnings():  # Keras's, of the mask: this says it itself
            warnings.simplefilter("ignore")
            masked = keras.layers.Masking()(inputs)
            model = keras.Model(inputs, Probe()(case.make()(masked)))
            model.compile(jit_compile=jit_compile)
            result = model.predict(x, verbose=0, batch_size=len(x))
        _require(
            np.array_equal(result, (x != 0).any(axis=-1)),
            "the mask does not reach the layer after it: set "
            "`self.supports_masking = True`, or write `compute_mask`",
        )


def check_half_precision_is_float32_rounded(case):
    layer, _ = case.called()
    for given in case.shapes(600, 70_000, batch=1):
        truth_layer = case.make(layer, given)
        for x in (np.zeros(given, "float32"), ones(given)):
            truth = to_numpy(truth_layer(x)).astype("float64")
            for dtype, error in (("float16", 2**-11), ("bfloat16", 2**-8)):
                for policy in (dtype, f"mixed_{dtype}"):
                    half = case.make(layer, given, dtype=policy)
                    output = half(x)
                    _require_dtype(output, half, policy)
                    output = to_numpy(ops.cast(output, "float32"))
                    # Half a unit in the last place, relative: once for the result,
                    # and once for what may have been added to the input.
                    most = error * (np.abs(truth) + x * np.abs(truth - x)) + 6e-8
                    excess = np.abs(output - truth) / (case.roundings * most)
                    if not (excess <= 1).all():
                        _refuse_half(policy, excess, output, truth)


def _refuse_half(policy, excess, output, truth):
    # NaN counts as the worst.
    worst = np.unravel_index(np.nan_to_num(excess, nan=np.inf).argmax(), excess.shape)
    raise AssertionError(
        f"under {policy} step {worst[-2]} of {excess.shape[-2]} has "
        f"{output[worst]:.5g}, and in float32 {truth[worst]:.5g}, which is more than "
        "rounding: make positions and angles in float32, and cast the result to "
        "`self.compute_dtype` last"
    )


def check_compiled_equals_eager(case):
    # `predict` makes this of what it is given.
    x = to_numpy(ops.cast(case.normal(), keras.config.floatx()))
    inputs, layer = case.input(), case.make()
    model = keras.Model(inputs, layer(inputs))
    for jit_compile in JIT_COMPILE:
        model.compile(jit_compile=jit_compile)
        result = model.predict(x, verbose=0, batch_size=len(x))
        _require_close(
            result,
            to_numpy(layer(x)),
            1e-6 * (1 + np.abs(result)),
            f"compiled with jit_compile={jit_compile}, the layer gives something else "
            "than called: leave Python's conditions, counters and random numbers out "
            "of `call`",
        )


def check_a_training_step(case):
    x = case.normal()
    for jit_compile in JIT_COMPILE:
        before_it = keras.layers.Dense(case.shape[-1], name="before")
        layer, after_it = case.make(), keras.layers.Dense(1, name="after")
        model = keras.Sequential([before_it, layer, after_it])
        model.compile("sgd", "mse", jit_compile=jit_compile)
        model(x)
        weights = model.trainable_weights
        start = [to_numpy(weight) for weight in weights]
        target = np.ones((*case.shape[:-1], 1), "float32")
        history = model.fit(x, target, verbose=0, batch_size=len(x)).history
        _require(np.isfinite(history["loss"]).all(), "the loss is NaN or infinite")
        still = [
            weight.path
            for weight, first in zip(weights, start, strict=True)
            if np.array_equal(first, to_numpy(weight))
        ]
        _require(
            not still,
            f"a step of training leaves {', '.join(still)} as it was: gradients must "
            "reach each weight, and through the layer the one `before`. Compute in "
            "`keras.ops`, not in NumPy",
        )


def check_training_changes_nothing(case):
    layer, first = case.called()
    inputs = case.input()
    model = keras.Model(inputs, layer(inputs))
    for training in (True, False, True):
        _require_same(
            to_numpy(model(ones(case.shape), training=training)),
            first,
            f"with training={training} the layer gives another result: leave dropout "
            "and noise to layers of their own",
        )


def check_reloads_bit_for_bit(case):
    inputs, layer = case.input(), case.make()
    # By itself, since of a model Keras says little more than that it does not load.
    keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    model = keras.Model(inputs, layer(inputs))
    expected = _answers(model, case.shapes(1, case.shape[-2], 40))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.keras"
        model.save(path)
        results = _reloaded_elsewhere(type(layer), folder, expected)
        if results is None:
            loaded = keras.saving.load_model(path)
            results = _answers(loaded, [rows.shape for rows in expected.values()])
    for length, rows in expected.items():
        _require_same(
            results[length],
            rows,
            f"of {length} steps the reloaded layer makes something else: what it draws "
            "or learns belongs into weights, by `add_weight` in `build`",
        )


def _reloaded_elsewhere(kind, folder, expected):
    """Return what the saved model gives in another process, or None.

    That has to import the layer's module, which it cannot if the class is made in a
    notebook, in a function or in the script that runs.
    """
    name, module = kind.__module__, sys.modules.get(kind.__module__)
    if name == "__main__" or getattr(module, kind.__qualname__, None) is not kind:
        return None
    return _asked_elsewhere(
        """
        try:
            importlib.import_module(sys.argv[1])
        except ImportError:
            sys.exit()
        import keras
        model = keras.saving.load_model("model.keras")
        ask = lambda x: keras.ops.convert_to_numpy(keras.ops.stop_gradient(model(x)))
        """,
        name,
        folder=folder,
        expected=expected,
    )


def check_serves_without_keras(case):
    inputs = case.input("x")
    model = keras.Model(inputs, {"y": case.make()(inputs)})
    shapes = case.shapes(1, 7, 64)
    expected = _answers(model, shapes, lambda output: output["y"])
    own = type(case.layer).__module__.partition(".")[0]
    with tempfile.TemporaryDirectory() as folder:
        model.export(Path(folder) / "served", verbose=False)
        try:
            loading.check_graph(loading.read(Path(folder) / "served"))
        except ValueError as error:
            raise AssertionError(str(error)) from error
        results = _asked_elsewhere(
            """
            import tensorflow as tf
            serve = tf.saved_model.load("served").signatures["serving_default"]
            ask = lambda x: serve(x=tf.constant(x))["y"].numpy()
            """,
            folder=folder,
            expected=expected,
            without={"keras", "keras_pe", own} - {"__main__"},
        )
    for length, rows in expected.items():
        _require_close(
            results[length],
            rows,
            3e-7 * np.maximum(2, np.abs(rows)),
            f"of {length} steps the exported SavedModel makes something else",
        )


CHECKS = [check for name, check in list(vars().items()) if name.startswith("check_")]
NEED_OTHER = [check_instances_do_not_touch_each_other]
NEED_TENSORFLOW = [check_serves_without_keras]


@keras.saving.register_keras_serializable(package="keras_pe_contract")
class Probe(keras.layers.Layer):
    """Gives back the mask that reaches it, or no True at all."""

    supports_masking = True

    def call(self, inputs, mask=None):
        return ops.zeros(ops.shape(inputs)[:-1], "bool") if mask is None else mask

    def compute_output_shape(self, input_shape):
        return input_shape[:-1]

    def compute_output_spec(self, inputs, mask=None):
        return keras.KerasTensor(self.compute_output_shape(inputs.shape), "bool")


def run(layer, shape):
    return to_numpy(layer(ones(shape)))


def ones(shape):
    """Return an input of which every encoder makes another."""
    return np.ones(shape, "float32")


def to_numpy(tensor):
    return ops.convert_to_numpy(ops.stop_gradient(tensor))


def arguments_of(kind):
    """Return the names of a layer class's own constructor arguments."""
    parameters = inspect.signature(kind.__init__).parameters.values()
    many = inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL
    return [p.name for p in parameters if p.kind not in many and p.name != "self"]


def _unbuilt(config):
    """Return a config without what Keras adds to those of layers that are built."""
    if isinstance(config, dict):
        return {k: _unbuilt(v) for k, v in config.items() if k != "build_config"}
    return [*map(_unbuilt, config)] if isinstance(config, list) else config


def _remade(layer, **changes):
    config = {**layer.get_config(), "dtype": "float32", **changes}
    return type(layer).from_config(config)


def _answers(model, shapes, pick=lambda output: output):
    """Return what the model makes of ones, by their length."""
    return {str(shape[-2]): to_numpy(pick(model(ones(shape)))) for shape in shapes}


def _asked_elsewhere(code, *args, folder, expected, without=()):
    """Return what another process, whose `code` defines `ask`, gives for ones.

    Args:
        code: Python source, which may exit: then the result is None. `args` are its
            `sys.argv[1:]`.
        folder: The process runs there.
        expected: Dict of arrays; ones of their shapes are asked.
        without: Packages that the process cannot import.
    """
    np.savez(Path(folder) / "expected.npz", **expected)
    done = processes.run(
        f"import importlib, sys, numpy as np\n{inspect.cleandoc(code)}\n"
        "given = np.load('expected.npz')\n"
        "results = {k: ask(np.ones(given[k].shape, 'float32')) for k in given}\n"
        "np.savez('results.npz', **results)\n",
        *args,
        without=without,
        cwd=folder,
        env={"KERAS_BACKEND": BACKEND},
    )
    if done.returncode:
        error = done.stderr.rpartition("\nTraceback")[2]
        # What begins a line, after the lines of the calls.
        message = [line for line in error.splitlines()[1:] if line[:1].strip()]
        message = " ".join(message) or f"exit status {done.returncode}"
        raise AssertionError(f"in another process: {message}")
    path = Path(folder) / "results.npz"
    if not path.exists():
        return None
    with np.load(path) as results:
        return dict(results)


def _require(condition, message):
    # Not `assert`, which `python -O` leaves out.
    if not condition:
        raise AssertionError(message)


def _require_dtype(output, layer, policy):
    dtype = keras.backend.standardize_dtype(output.dtype)
    _require(
        dtype == layer.compute_dtype,
        f"under {policy} the output is {dtype}: cast it to `self.compute_dtype`",
    )


def _require_same(result, wanted, message):
    _require_close(result, wanted, 0, message)


def _require_close(result, wanted, most, message):
    """Require arrays of one shape that differ by `most` at most."""
    if result.shape != wanted.shape:
        raise AssertionError(
            f"{message}. (The shape is {result.shape}, not {wanted.shape}.)"
        )
    difference = np.abs(result.astype("float64") - wanted)
    if not (difference <= most).all():
        raise AssertionError(f"{message}. (The difference is {difference.max():.3g}.)")
