"""What befalls a layer in a model: copied, nested, shared, trained, quantized."""

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
from likeness import first_of
from small_models import (
    EACH,
    ENCODINGS,
    IN_ATTENTION,
    LONGEST,
    WIDTH,
    answer,
    model_of,
    numbers,
)

import keras_pe
from keras_pe import rates, relative, tables

NAMES = pytest.mark.parametrize("name", EACH)
UNBUILT = "ignore:You are saving a model that has not yet been built"


def check_same(model, other, *lengths):
    for time in lengths or (5, 1, 9):
        x = numbers(time=time)
        np.testing.assert_array_equal(answer(other, x), answer(model, x))


def saved_and_loaded(model, tmp_path):
    model.save(tmp_path / "model.keras")
    return keras.saving.load_model(tmp_path / "model.keras", safe_mode=True)


def config_of(layer):
    """The config, without the shapes that a layer within it was built for."""
    config = layer.get_config()
    if isinstance(config.get("rotary"), dict):
        config["rotary"].pop("build_config", None)
    return config


# Saved, copied, and made anew.


@pytest.mark.filterwarnings(UNBUILT)
@NAMES
def test_saved_before_it_is_built(name, tmp_path):
    model = keras.Sequential([ENCODINGS[name](), keras.layers.Dense(2)])
    loaded = saved_and_loaded(model, tmp_path)
    for each in (model, loaded):
        assert not each.layers[0].built
        answer(each, numbers())
    assert config_of(loaded.layers[0]) == config_of(model.layers[0])
    loaded.set_weights(model.get_weights())
    check_same(model, loaded)


@NAMES
def test_cloned(name):
    model = model_of(name)
    clone = keras.models.clone_model(model)
    layer, other = model.get_layer("encoding"), clone.get_layer("encoding")
    assert layer is not other and type(layer) is type(other)
    assert config_of(layer) == config_of(other)
    assert not {map(id, clone.weights)} & {map(id, model.weights)}
    clone.set_weights(model.get_weights())
    check_same(model, clone)


COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda layer: pickle.loads(pickle.dumps(layer)),
}
# As they stand in a model: a bias and attention are called by what is around them.
ALONE = {
    "alibi": lambda: keras_pe.ALiBi(num_heads=2),
    "relative": lambda: keras_pe.RelativePositionBias(num_heads=2),
    "attention": lambda: keras_pe.MultiHeadAttention(
        2, 4, rotary=keras_pe.RotaryEmbedding()
    ),
}


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("built", [False, True])
@NAMES
def test_copied(name, built, way):
    layer = ALONE.get(name, ENCODINGS[name])()
    sides = [numbers()] * (2 if name == "attention" else 1)
    if built:
        first = answer(layer, *sides)
    other = COPIES[way](layer)
    assert other is not layer and config_of(other) == config_of(layer)
    if built:
        np.testing.assert_array_equal(answer(other, *sides), first)
        # Unlike a plain object's, Keras's copies have weights of their own.
        for weight in other.weights:
            weight.assign(weight + 1)
        np.testing.assert_array_equal(answer(layer, *sides), first)
    else:
        assert answer(other, *sides).shape == answer(layer, *sides).shape


@pytest.mark.parametrize("way", COPIES)
@NAMES
def test_copied_in_a_model(name, way):
    model = model_of(name)
    check_same(model, COPIES[way](model))


# In another model, and twice in one.


@keras.saving.register_keras_serializable(package="keras_pe_tests")
class Holding(keras.Model):
    """A model of a subclass that has a layer, or a model, in an attribute."""

    def __init__(self, inner, **kwargs):
        super().__init__(**kwargs)
        self.inner = inner

    def build(self, input_shape):
        if not self.inner.built:
            self.inner.build(input_shape)

    def call(self, inputs):
        return self.inner(inputs)

    def get_config(self):
        inner = keras.saving.serialize_keras_object(self.inner)
        return {**super().get_config(), "inner": inner}

    @classmethod
    def from_config(cls, config):
        inner = keras.saving.deserialize_keras_object(config.pop("inner"))
        return cls(inner, **config)


def in_functional(inner):
    inputs = keras.Input((None, WIDTH))
    return keras.Model(inputs, inner(keras.layers.Dense(WIDTH)(inputs)))


def in_sequential(inner):
    return keras.Sequential([keras.Input((None, WIDTH)), inner])


NESTS = {"sequential": in_sequential, "functional": in_functional, "subclass": Holding}


@pytest.mark.parametrize("nest", NESTS)
@NAMES
def test_nested(name, nest, tmp_path):
    inner = model_of(name)
    model = NESTS[nest](NESTS["sequential"](inner))
    expected = answer(model, numbers())
    assert set(map(id, inner.weights)) <= set(map(id, model.weights))
    loaded = saved_and_loaded(model, tmp_path)
    np.testing.assert_array_equal(answer(loaded, numbers()), expected)
    check_same(model, loaded)


@NAMES
def test_shared_twice(name, tmp_path):
    layer = ENCODINGS[name](name="encoding")
    inputs = [keras.Input((None, WIDTH), name=name) for name in "ab"]
    model = keras.Model(inputs, keras.layers.Concatenate()([*map(layer, inputs)]))
    for each in (model, saved_and_loaded(model, tmp_path)):
        encoding = each.get_layer("encoding")
        assert len(each.layers) == 4  # two inputs, the layer, the concatenation
        assert len(each.weights) == len(layer.weights) == len(encoding.weights)
        both = answer(each, [numbers(), numbers()])
        np.testing.assert_array_equal(*np.split(both, 2, axis=-1))
        np.testing.assert_array_equal(both[..., :WIDTH], answer(layer, numbers()))


@pytest.mark.tensorflow
@NAMES
def test_in_a_plain_module(name, tf, tmp_path):
    model = model_of(name)

    class Module(tf.Module):
        def __init__(self):
            self.model = model

        @tf.function(input_signature=[tf.TensorSpec((None, None, WIDTH))])
        def __call__(self, x):
            return self.model(x)

    tf.saved_model.save(Module(), str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    for time in (5, 1, 9):
        x = numbers(time=time)
        np.testing.assert_allclose(loaded(x), answer(model, x), rtol=0, atol=2e-6)


# In training and after.

REMAT = {
    "full": {},
    "activations": {},
    "larger_than": {"output_size_threshold": 1},
    "list_of_layers": {"layer_names": ["encoding"]},
}
QUICK_REMAT = [("sinusoidal", "larger_than"), ("relative", "full")]


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("name", "mode"),
    [
        pytest.param(
            name, mode, marks=[] if (name, mode) in QUICK_REMAT else [pytest.mark.long]
        )
        for name in ENCODINGS
        for mode in REMAT
        # There Keras asks sizes of layers that then lack the shape of their input.
        if mode != "larger_than" or name not in IN_ATTENTION
    ],
)
def test_taken_again_for_the_gradient(name, mode, tf):
    model = model_of(name)
    with keras.RematScope(mode, **REMAT[mode]):
        layer = ENCODINGS[name](name="encoding")
    again = model_of(name, layer)
    answer(again, numbers())
    again.set_weights(model.get_weights())
    x = tf.constant(numbers())
    outputs, gradients = [], []
    for each in (model, again):
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs.append(each(x))
            loss = tf.reduce_sum(outputs[-1] ** 2)
        weights = [weight.value for weight in each.trainable_weights]
        gradients.append(tape.gradient(loss, [x, *weights]))
    np.testing.assert_allclose(outputs[1], outputs[0], rtol=1e-5, atol=1e-6)
    assert len(gradients[0]) > 4
    for a, b in zip(*gradients, strict=True):
        a, b = map(tf.convert_to_tensor, (a, b))
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", first_of(ENCODINGS))
def test_first_called_in_fit(name, tf, tmp_path):
    model = keras.Sequential(
        [keras.layers.Dense(WIDTH), ENCODINGS[name](), keras.layers.Dense(2)]
    )
    model.compile("adam", "mse")
    x, y = numbers(batch=4), np.ones((4, 5, 2), "float32")
    losses = model.fit(x, y, epochs=3, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    predicted = model.predict(x, verbose=0)
    model.export(tmp_path / "model", verbose=False)
    served = tf.saved_model.load(tmp_path / "model").signatures["serving_default"]
    loaded = saved_and_loaded(model, tmp_path)
    [name] = served.structured_input_signature[1]
    [answered] = served(**{name: tf.constant(x)}).values()
    for result in (answer(model, x), answered, answer(loaded, x)):
        np.testing.assert_allclose(result, predicted, rtol=0, atol=2e-6)
    assert model.fit(x, y, verbose=0).history["loss"][0] < losses[0]


@pytest.mark.tensorflow
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@NAMES
def test_quantized(name, tmp_path):
    """Keras quantizes its own layers, and says that it leaves others as they are."""
    model = model_of(name)
    layer = model.get_layer("encoding")
    config, before = config_of(layer), answer(model, numbers())
    alone = answer(layer, numbers())
    weights = layer.get_weights()
    with pytest.warns(UserWarning, match="does not have a `quantize` method"):
        model.quantize("int8")
    assert model.layers[1].kernel.dtype == "int8"
    after = answer(model, numbers())
    assert 0 < np.abs(after - before).max() < 0.03 * np.abs(before).max()
    assert config_of(layer) == config
    if name not in IN_ATTENTION:
        np.testing.assert_array_equal(answer(layer, numbers()), alone)
        for old, new in zip(weights, layer.get_weights(), strict=True):
            np.testing.assert_array_equal(old, new)
        # Attention that it has quantized Keras does not load again, its own neither.
        check_same(model, saved_and_loaded(model, tmp_path))


# From several threads.

THREADS = 8


def from_threads(call):
    """What each of several threads gets from `call`, which they all start at once."""
    start = threading.Barrier(THREADS)

    def wait_and_call(_):
        start.wait()
        return call()

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(wait_and_call, range(THREADS)))


def forget():
    for cached in (
        tables._shared_tensor,
        tables._array,
        rates.sinusoid_turns,
        rates.turns_of_rates,
        relative._buckets,
    ):
        cached.cache_clear()


@NAMES
def test_threads_get_the_same_numbers(name):
    """Also at first, as they race to make what they share."""
    layer = ENCODINGS[name]()
    answer(layer, numbers())  # weights are Keras's to make
    lengths = [1, 5, LONGEST, 2, 3, 17, 33, 40, 41, 42, 43]
    calls = [{}, {"start_index": keras.ops.convert_to_tensor(1)}]
    if name not in ("sinusoidal", "bounded", "learned", "rotary"):
        calls = [{}]  # of the others, attention would need to be told

    def call():
        return [
            answer(layer, numbers(time=time), **call)
            for time in lengths
            for call in calls
            if time + len(call) <= LONGEST
        ]

    expected = call()
    forget()
    for results in from_threads(call):
        for result, rows in zip(results, expected, strict=True):
            np.testing.assert_array_equal(result, rows)


@pytest.mark.tensorflow
@NAMES
def test_threads_share_a_function(name, tf):
    layer = ENCODINGS[name]()
    answer(layer, numbers())
    function = tf.function(
        lambda x: layer(x),
        input_signature=[tf.TensorSpec((None, None, WIDTH))],
    )
    inputs = [numbers(time=time) for time in (1, 5, 64)]
    forget()
    expected = [answer(layer, x) for x in inputs]
    for results in from_threads(lambda: [function(x) for x in inputs]):
        for result, rows in zip(results, expected, strict=True):
            np.testing.assert_allclose(result, rows, rtol=0, atol=2e-6)
    assert function.experimental_get_tracing_count() == 1
