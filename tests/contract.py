"""The contract of a layer: what every public encoder owes, one check a function.

A check takes `make`, which builds the layer from keyword arguments on top of those
of the case, and `shape`, a shape `(batch, ..., time, features)` that it accepts. It
raises AssertionError, and knows nothing of any one layer: only Keras's public API.
"""

import inspect
import json
import re
import warnings

import keras
import numpy as np
import processes
from keras import ops

BACKEND = keras.config.backend()
# torch.compile needs a C++ compiler on the machine, and minutes.
JIT_COMPILE = (False,) if BACKEND == "torch" else (False, True)


def check_config_holds_every_argument(make, shape):
    layer = make(name="it", trainable=False)
    config = layer.get_config()
    arguments = {*arguments_of(type(layer)), "name", "trainable", "dtype"}
    assert set(config) == arguments
    assert json.loads(json.dumps(config)) == config
    assert type(layer).from_config(config).get_config() == config
    saved = keras.saving.serialize_keras_object(layer)
    again = keras.saving.deserialize_keras_object(json.loads(json.dumps(saved)))
    assert type(again) is type(layer) and again.get_config() == config
    layer(ones(shape))
    assert layer.get_config() == config


def check_docstring_names_every_argument(make, shape):
    layer = type(make())
    sections = sections_of(layer.__doc__)
    assert [name for name in sections["Args"] if name != "**kwargs"] == [
        *arguments_of(layer)
    ]
    call = [name for name in inspect.signature(layer.call).parameters if name != "self"]
    assert sections["Call arguments"] == call
    for section in ("Input shape", "Output shape", "Raises", "References"):
        assert section in sections
    for method in (layer.__init__, layer.build, layer.call):
        assert method.__doc__ is None or method.__doc__ == ""


def check_shape_is_kept_eager_and_symbolic(make, shape):
    layer = make()
    output = layer(ones(shape))
    assert tuple(output.shape) == shape
    unknown = (None, *shape[1:-2], None, shape[-1])
    for given in (shape, unknown):
        layer = make()
        symbolic = layer(keras.KerasTensor(given))
        assert tuple(symbolic.shape) == given
        assert tuple(layer.compute_output_shape(given)) == given
        assert symbolic.dtype == layer.compute_dtype


def check_any_length_in_any_order(make, shape):
    layer = make()
    for length in (shape[-2], 3 * shape[-2] + 1, 2, 1, 0):
        given = (*shape[:-2], length, shape[-1])
        np.testing.assert_array_equal(run(layer, given), run(make(), given))


def check_instances_do_not_touch_each_other(make, shape, other):
    alone = run(make(), shape)
    layer, another = make(), other()
    assert not np.array_equal(run(another, shape), alone)
    np.testing.assert_array_equal(run(layer, shape), alone)
    np.testing.assert_array_equal(run(make(), shape), alone)


def check_mask_reaches_the_next_layer(make, shape):
    ids = np.ones((shape[0], shape[-2]), "int32")
    ids[:, -1] = 0
    for jit_compile in JIT_COMPILE:
        inputs = keras.Input((None,), dtype="int32")
        x = keras.layers.Embedding(3, shape[-1], mask_zero=True)(inputs)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = keras.Model(inputs, Probe()(make()(x)))
        model.compile(jit_compile=jit_compile)
        np.testing.assert_array_equal(model.predict(ids, verbose=0), ids != 0)


def check_half_precision_is_float32_rounded(make, shape):
    for length in (600, 70_000):
        given = (1, *shape[1:-2], length, shape[-1])
        for x in (np.zeros(given, "float32"), ones(given)):
            truth = to_numpy(make(dtype="float32")(x)).astype("float64")
            for dtype, error in (("float16", 2**-11), ("bfloat16", 2**-8)):
                for policy in (dtype, f"mixed_{dtype}"):
                    output = make(dtype=policy)(x)
                    assert keras.backend.standardize_dtype(output.dtype) == dtype
                    output = to_numpy(ops.cast(output, "float32"))
                    # Half a unit in the last place, relative: once for the result,
                    # and once for what may have been added to the input.
                    most = error * (np.abs(truth) + x * np.abs(truth - x)) + 6e-8
                    assert (np.abs(output - truth) <= most).all()


def check_compiled_equals_eager(make, shape):
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    inputs = keras.Input((*(None,) * (len(shape) - 2), shape[-1]))
    layer = make()
    model = keras.Model(inputs, layer(inputs))
    for jit_compile in JIT_COMPILE:
        model.compile(jit_compile=jit_compile)
        result = model.predict(x, verbose=0, batch_size=shape[0])
        np.testing.assert_allclose(result, to_numpy(layer(x)), rtol=1e-6, atol=1e-6)


def check_a_training_step(make, shape):
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    for jit_compile in JIT_COMPILE:
        layer = make()
        dense = keras.layers.Dense(1)
        model = keras.Sequential([layer, dense])
        model.compile("sgd", "mse", jit_compile=jit_compile)
        model(x)
        before = [to_numpy(weight) for weight in model.trainable_weights]
        loss = model.fit(x, np.ones((*shape[:-1], 1)), verbose=0).history["loss"]
        assert np.isfinite(loss).all()
        after = [to_numpy(weight) for weight in model.trainable_weights]
        assert all((a != b).any() for a, b in zip(before, after, strict=True))


def check_training_changes_nothing(make, shape):
    layer = make()
    first = run(layer, shape)
    inputs = keras.Input((*(None,) * (len(shape) - 2), shape[-1]))
    model = keras.Model(inputs, layer(inputs))
    for training in (True, False, True):
        np.testing.assert_array_equal(
            to_numpy(model(ones(shape), training=training)), first
        )


def check_reloads_bit_for_bit_in_another_process(make, shape, folder):
    inputs = keras.Input((*(None,) * (len(shape) - 2), shape[-1]))
    model = keras.Model(inputs, make()(inputs))
    lengths = [1, shape[-2], 40]
    expected = {}
    for length in lengths:
        given = (*shape[:-2], length, shape[-1])
        expected[str(length)] = to_numpy(model(ones(given)))
    model.save(folder / "model.keras")
    np.savez(folder / "expected.npz", **expected)
    processes.run(
        """
        import keras, keras_pe, numpy as np
        model = keras.saving.load_model("model.keras")
        for key, rows in np.load("expected.npz").items():
            result = keras.ops.convert_to_numpy(model(np.ones(rows.shape, "float32")))
            np.testing.assert_array_equal(result, rows)
        """,
        cwd=folder,
    )


def check_serves_without_keras(make, shape, folder):
    inputs = keras.Input((*(None,) * (len(shape) - 2), shape[-1]), name="x")
    model = keras.Model(inputs, {"y": make()(inputs)})
    model.export(folder / "served", verbose=False)
    expected = {}
    for length in (1, 7, 64):
        given = (*shape[:-2], length, shape[-1])
        expected[str(length)] = to_numpy(model(ones(given))["y"])
    np.savez(folder / "expected.npz", **expected)
    processes.run(
        """
        import numpy as np, tensorflow as tf
        serve = tf.saved_model.load("served").signatures["serving_default"]
        for key, rows in np.load("expected.npz").items():
            result = serve(x=tf.ones(rows.shape))["y"].numpy()
            np.testing.assert_allclose(result, rows, rtol=0, atol=6e-7)
        """,
        cwd=folder,
        without_keras=True,
    )


@keras.saving.register_keras_serializable(package="keras_pe_tests")
class Probe(keras.layers.Layer):
    """Gives back the mask that reaches it."""

    supports_masking = True

    def call(self, inputs, mask=None):
        assert mask is not None, "no mask reached the next layer"
        return mask

    def compute_output_shape(self, input_shape):
        return (input_shape[0], input_shape[-2])

    def compute_output_spec(self, inputs, mask=None):
        return keras.KerasTensor(self.compute_output_shape(inputs.shape), "bool")


def run(layer, shape):
    return to_numpy(layer(ones(shape)))


def ones(shape):
    """Return an input of which every encoder makes another."""
    return np.ones(shape, "float32")


def to_numpy(tensor):
    return ops.convert_to_numpy(ops.stop_gradient(tensor))


def arguments_of(layer):
    """Return the names of the layer's own constructor arguments."""
    parameters = inspect.signature(layer.__init__).parameters.values()
    own = [p for p in parameters if p.kind is not p.VAR_KEYWORD and p.name != "self"]
    assert all(p.kind is p.KEYWORD_ONLY for p in own)
    return [p.name for p in own]


def sections_of(docstring):
    """Return the headings of a docstring, each with the names that it explains."""
    sections = {}
    for line in inspect.cleandoc(docstring).splitlines():
        if heading := re.fullmatch(r"([A-Z][a-z ]+):", line):
            names = sections[heading[1]] = []
        elif sections and (name := re.match(r"    ([\w*]+): ", line)):
            names.append(name[1])
    return sections
