"""Attention with turned queries, a bias and a cache, beside plain arithmetic."""

import inspect

import keras
import numpy as np
import pytest
from keras import ops
from likeness import first_of

import keras_pe
from keras_pe import ALiBi, MultiHeadAttention, RotaryEmbedding

JIT_COMPILE = (False, True)
HEADS, DIM, WIDTH = 2, 4, 6


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def make(heads=HEADS, dim=DIM, **kwargs):
    kwargs = {"bias_initializer": "random_normal", **kwargs}
    return MultiHeadAttention(heads, dim, **kwargs)


def array(tensor):
    tensor = ops.stop_gradient(ops.convert_to_tensor(tensor))
    return ops.convert_to_numpy(ops.cast(tensor, "float32")).astype("float64")


def softmax(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def attend(layer, query, value, key=None, *, bias=0, mask=True, places=None):
    """The output and the probabilities, in float64, of the layer's weights.

    `bias` and `mask` broadcast against `(batch, heads, query, key)`; queries and keys
    are turned to `places`, in the layout "halves".
    """
    weights = [array(weight) for weight in layer.weights]
    heads = []
    for side, (kernel, shift) in zip(
        (query, value if key is None else key, value),
        (weights[0:2], weights[2:4], weights[4:6]),
        strict=True,
    ):
        heads.append(np.einsum("btd,dnh->btnh", side, kernel) + shift)
    q, k, v = heads
    if places is not None:
        q, k = turned(q, places), turned(k, places)
    scores = np.einsum("btnh,bsnh->bnts", q, k) / q.shape[-1] ** 0.5 + bias
    probabilities = softmax(np.where(mask, scores, -1e30))
    output = np.einsum("bnts,bsnh->btnh", probabilities, v)
    return np.einsum("btnh,nhd->btd", output, weights[6]) + weights[7], probabilities


def turned(x, places):
    half = x.shape[-1] // 2
    angles = np.array(places)[..., None, None] * 10000.0 ** (-np.arange(half) / half)
    cosine, sine, a, b = np.cos(angles), np.sin(angles), x[..., :half], x[..., half:]
    return np.concatenate([a * cosine - b * sine, b * cosine + a * sine], axis=-1)


def causal(queries, keys, first=0):
    return np.arange(keys) <= first + np.arange(queries)[:, None]


# Without rotary, bias and cache: Keras's layer.

# For which Keras's layer fails on JAX.
OWN_VALUES = pytest.param({"value_dim": 3}, marks=pytest.mark.tensorflow)
PLAIN = {
    "self": lambda x, y: dict(query=x, value=x),
    "cross": lambda x, y: dict(query=x, value=y),
    "key": lambda x, y: dict(query=x, value=y, key=2 * y),
    "scores": lambda x, y: dict(query=x, value=y, return_attention_scores=True),
    "causal": lambda x, y: dict(query=x, value=x, use_causal_mask=True),
    "mask": lambda x, y: dict(query=x, value=y, attention_mask=np.eye(5, 7) > 0),
    "value mask": lambda x, y: dict(query=x, value=y, value_mask=y[..., 0] > 0),
    "all masks": lambda x, y: dict(
        query=x,
        value=x,
        query_mask=x[..., 0] > -1,
        key_mask=x[..., 1] > -1,
        value_mask=x[..., 2] > -1,
        use_causal_mask=True,
        training=True,
    ),
}


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("kwargs", [{}, {"dropout": 0.3, "seed": 7}, OWN_VALUES])
def test_alone_it_is_keras_layer_bit_for_bit(name, kwargs):
    call = PLAIN[name](numbers(2, 5, WIDTH), numbers(2, 7, WIDTH, seed=1))
    theirs, ours = keras.layers.MultiHeadAttention(HEADS, DIM, **kwargs), make(**kwargs)
    theirs(call["query"], call["value"])
    ours(call["query"], call["value"])
    ours.set_weights(theirs.get_weights())
    results = []
    for layer in (theirs, ours):
        keras.utils.set_random_seed(3)
        results.append(layer(**call))
    for a, b in zip(*map(keras.tree.flatten, results), strict=True):
        np.testing.assert_array_equal(array(a), array(b))


def test_weights_of_keras_layer_load(tmp_path):
    def model(kind, **kwargs):
        x = keras.Input((None, WIDTH))
        return keras.Model(x, kind(HEADS, DIM, dropout=0.1, **kwargs)(x, x))

    theirs = model(keras.layers.MultiHeadAttention)
    ours = model(MultiHeadAttention)
    turning = model(MultiHeadAttention, rotary=RotaryEmbedding())
    path = tmp_path / "model.weights.h5"
    theirs.save_weights(path)
    x = numbers(2, 5, WIDTH)
    for other in (ours, turning):
        other.load_weights(path)
        for a, b in zip(theirs.get_weights(), other.get_weights(), strict=True):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(array(ours(x)), array(theirs(x)))


# Values.


@pytest.mark.parametrize("with_scores", [False, True])
@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("heads", [1, HEADS])
@pytest.mark.parametrize(
    "value_dim", [None, pytest.param(3, marks=pytest.mark.tensorflow)]
)
def test_values(with_scores, rotary, heads, value_dim):
    turning = RotaryEmbedding() if rotary else None
    layer = make(heads, rotary=turning, value_dim=value_dim)
    x, y = numbers(2, 5, WIDTH), numbers(2, 5, WIDTH, seed=1)
    bias, mask = numbers(2, heads, 5, 5, seed=2), numbers(2, 5, 5, seed=3) > -1
    mask |= np.eye(5, dtype=bool)
    call = dict(positions=[[0, 1, 5, 2, 3], [7, 7, 8, 0, 1]]) if rotary else {}
    places = call.get("positions")
    for given in (
        {},
        {"bias": bias},
        {"attention_mask": mask},
        {"use_causal_mask": True},
        {"bias": bias[:1], "attention_mask": mask, "use_causal_mask": True},
    ):
        result = layer(
            x, y, 2 * y, return_attention_scores=with_scores, **given, **call
        )  # fmt: skip
        allowed = np.array(given.get("attention_mask", True))
        allowed = allowed[:, None] if allowed.ndim else allowed
        if "use_causal_mask" in given:
            allowed = allowed & causal(5, 5)
        arguments = dict(bias=given.get("bias", 0), mask=allowed, places=places)
        output, scores = attend(layer, x, y, 2 * y, **arguments)
        if with_scores:
            np.testing.assert_allclose(array(result[1]), scores, rtol=0, atol=1e-6)
            result = result[0]
        np.testing.assert_allclose(array(result), output, rtol=0, atol=2e-6)


@pytest.mark.parametrize("start", [0, 10**6, np.array(10**6)], ids=str)
def test_rotary_sees_distances_alone(start):
    layer, x = make(rotary=RotaryEmbedding()), numbers(2, 5, WIDTH)
    layer.build(x.shape, x.shape)
    expected, _ = attend(layer, x, x, places=range(5))
    result = array(layer(x, x, start_index=start))
    np.testing.assert_allclose(result, expected, rtol=0, atol=2e-6)


def test_cross_attention_takes_a_bias():
    layer, alibi = make(), ALiBi(num_heads=HEADS)
    x, y = numbers(2, 5, WIDTH), numbers(2, 7, WIDTH, seed=1)
    bias = alibi(x, y)
    result = array(layer(x, y, bias=bias))
    expected, _ = attend(layer, x, y, bias=array(bias))
    np.testing.assert_allclose(result, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("rotary", [None, RotaryEmbedding(dtype="mixed_bfloat16")])
def test_half_precision_is_near(dtype, rotary):
    layer = make(dtype=dtype, rotary=rotary)
    x, bias = numbers(2, 5, WIDTH), numbers(1, HEADS, 5, 5)
    result = layer(x, x, bias=bias)
    assert keras.backend.standardize_dtype(result.dtype) == dtype[6:]
    places = None if rotary is None else range(5)
    expected, _ = attend(layer, x, x, bias=bias, places=places)
    np.testing.assert_allclose(array(result), expected, rtol=0, atol=0.05)
    for part in layer(x, x, bias=bias, return_attention_scores=True):
        assert keras.backend.standardize_dtype(part.dtype) == dtype[6:]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("dim", [64, 32])
@pytest.mark.parametrize("with_scores", [False, True])
def test_scores_that_are_large_until_they_are_scaled(dtype, dim, with_scores):
    """Products of 50 * 50 * 32 are beyond float16."""
    layer = MultiHeadAttention(1, dim, use_bias=False, dtype=f"mixed_{dtype}")
    x = np.ones((1, 3, dim), "float32")
    bias = np.zeros((1, 1, 3, 3), "float32")
    layer(x, x)
    layer.set_weights(
        [
            weight * 0 + np.eye(dim).reshape(weight.shape) * size
            for weight, size in zip(layer.get_weights(), (50, 50, 1, 1), strict=True)
        ]
    )
    output = layer(x, x, bias=bias, return_attention_scores=with_scores)
    output = output[0] if with_scores else output
    np.testing.assert_allclose(array(output), np.ones((1, 3, dim)), atol=0.01)


# Masks.


def test_masks_of_the_inputs_count_and_stay():
    embed = keras.layers.Embedding(9, WIDTH, mask_zero=True)
    ids = np.array([[5, 6, 7, 0, 0], [1, 2, 3, 4, 5]])
    layer, x = make(rotary=RotaryEmbedding()), embed(ids)
    result = layer(x, x)
    kept = ids != 0
    for tensor in (x, result):
        mask = keras.src.backend.get_keras_mask(tensor)
        np.testing.assert_array_equal(ops.convert_to_numpy(mask), kept)
    mask = kept[:, None, :, None] & kept[:, None, None, :]
    expected, _ = attend(layer, array(x), array(x), mask=mask, places=range(5))
    np.testing.assert_allclose(array(result), expected, rtol=0, atol=2e-6)


def test_padding_changes_nothing():
    inputs = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(9, WIDTH, mask_zero=True)(inputs)
    y = make(rotary=RotaryEmbedding())(x, x)
    x = keras.layers.Add()([x, y])
    y = make()(x, x, bias=ALiBi(num_heads=HEADS)(x))
    x = keras.layers.Add()([x, y])
    model = keras.Model(inputs, keras.layers.GlobalAveragePooling1D()(x))
    short = model.predict(np.array([[5, 6]]), verbose=0)
    long = model.predict(np.array([[5, 6, 0, 0, 0]]), verbose=0)
    np.testing.assert_allclose(long, short, rtol=0, atol=1e-6)


def test_a_bias_is_not_rounded_to_a_half_type():
    """bfloat16 makes 256 of 257."""
    layer, x = make(dtype="mixed_bfloat16"), numbers(1, 2, WIDTH)
    layer.build(x.shape, x.shape)
    layer.set_weights([0 * weight for weight in layer.get_weights()])
    bias = np.array([[[[256.0, 257.0]] * 2] * HEADS], "float32")
    _, found = layer(x, x, bias=bias, return_attention_scores=True)
    wanted = softmax(np.array([256.0, 257.0]))
    np.testing.assert_allclose(array(found)[0, 0, 0], wanted, rtol=0, atol=4e-3)


@pytest.mark.parametrize("kwargs", [{}, {"rotary": RotaryEmbedding()}])
def test_dropout_is_for_training(kwargs):
    layer = make(dropout=0.5, **kwargs)
    x, bias = numbers(2, 9, WIDTH), np.zeros((1, HEADS, 9, 9), "float32")
    still = [array(layer(x, x, bias=bias)) for _ in range(2)]
    np.testing.assert_array_equal(*still)
    moving = [array(layer(x, x, bias=bias, training=True)) for _ in range(2)]
    assert (moving[0] != moving[1]).any() and (moving[0] != still[0]).any()


# The cache.


def decoded(layer, x, sizes, bias=None, **kwargs):
    """The output of parts of `x`, of such sizes, one after the other."""
    cache, start, outputs = layer.init_cache(len(x), x.shape[1] + 2), 0, []
    for size in sizes:
        part = {k: v[:, start : start + size] for k, v in kwargs.items()}
        piece = x[:, start : start + size]
        given = {}
        if bias is not None:
            given["bias"] = bias(piece, cache["mask"], start_index=start)
        output, cache = layer(
            piece,
            piece,
            start_index=start,
            cache=cache,
            use_causal_mask=True,
            **given,
            **part,
        )
        outputs.append(array(output))
        start += size
    return np.concatenate(outputs, axis=1), cache


@pytest.mark.parametrize("sizes", [[1] * 8, [3] + [1] * 5, [4, 4], [8]], ids=str)
@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_steps_with_a_cache_are_those_of_the_whole(sizes, rotary, biased):
    layer = make(rotary=RotaryEmbedding() if rotary else None)
    bias = ALiBi(num_heads=HEADS) if biased else None
    x = numbers(2, 8, WIDTH)
    given = {"bias": bias(x)} if biased else {}
    whole = array(layer(x, x, use_causal_mask=True, **given))
    found, cache = decoded(layer, x, sizes, bias)
    np.testing.assert_allclose(found, whole, rtol=0, atol=1e-5)
    assert array(cache["mask"]).sum(axis=1).tolist() == [8, 8]


@pytest.mark.parametrize("rotary", [False, True])
def test_left_padding_in_a_cache(rotary):
    layer = make(rotary=RotaryEmbedding() if rotary else None)
    bias = ALiBi(num_heads=HEADS)
    x = numbers(2, 8, WIDTH)
    kept = np.arange(8) >= np.array([[3], [0]])
    found, cache = decoded(layer, x, [4, 1, 1, 1, 1], bias, value_mask=kept)
    np.testing.assert_array_equal(array(cache["mask"])[:, :8], kept)
    for row, skipped in enumerate((3, 0)):
        alone = x[row : row + 1, skipped:]
        whole = array(layer(alone, alone, use_causal_mask=True, bias=bias(alone)))
        np.testing.assert_allclose(found[row, skipped:], whole[0], rtol=0, atol=1e-5)


def test_positions_beside_a_slot():
    layer, x = make(rotary=RotaryEmbedding()), numbers(1, 3, WIDTH)
    places = [[4, 9, 2]]
    layer.build(x.shape, x.shape)
    whole, _ = attend(layer, x, x, mask=causal(3, 3), places=places)
    found, _ = decoded(layer, x, [1, 1, 1], positions=np.array(places))
    np.testing.assert_allclose(found, whole, rtol=0, atol=1e-5)


def test_a_new_cache_is_empty():
    layer = make(value_dim=3, dtype="mixed_bfloat16")
    cache = layer.init_cache(batch_size=2, max_length=5)
    assert {name: tuple(slots.shape) for name, slots in cache.items()} == {
        "key": (2, 5, HEADS, DIM),
        "value": (2, 5, HEADS, 3),
        "mask": (2, 5),
    }
    dtypes = [keras.backend.standardize_dtype(slots.dtype) for slots in cache.values()]
    assert dtypes == ["bfloat16", "bfloat16", "bool"]
    assert not any(array(slots).any() for slots in cache.values())


@pytest.mark.parametrize("start", [5, 4, -1, 2**30])
def test_a_full_cache_is_an_error(start):
    layer, x = make(), numbers(2, 2, WIDTH)
    cache = layer.init_cache(2, 5)
    with pytest.raises(ValueError, match=r"takes positions 0 to 4.*Received: 2 steps"):
        layer(x, x, cache=cache, start_index=start)


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", JIT_COMPILE)
@pytest.mark.parametrize("start", first_of([4, -1, 5, 2**30], 2))
def test_a_full_cache_in_a_graph(tf, start, jit_compile):
    layer, x = make(rotary=RotaryEmbedding()), numbers(2, 2, WIDTH)
    _, cache = layer(x, x, cache=layer.init_cache(2, 5))

    @tf.function(jit_compile=jit_compile)
    def call(start):
        given = dict(cache=cache, start_index=start)
        return layer(x, x, return_attention_scores=True, **given)

    assert np.isfinite(call(tf.constant(3))[0]).all()
    if not jit_compile:
        with pytest.raises(tf.errors.InvalidArgumentError, match="multi_head_att"):
            call(tf.constant(start))
        return
    output, scores, after = call(tf.constant(start))
    assert np.isnan(output).all() and np.isnan(scores).all()
    for name in cache:
        np.testing.assert_array_equal(array(after[name]), array(cache[name]))


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", JIT_COMPILE)
@pytest.mark.parametrize(
    ("query", "key", "mask", "slots"),
    first_of(
        [
            ((2, 1), (2, 3), (2, 3), (2, 5)),
            ((2, 3), (2, 3), (2, 3), (1, 5)),
            ((2, 3), (2, 1), (2, 1), (2, 5)),
            ((2, 3), (1, 3), (2, 3), (2, 5)),
            ((2, 3), (2, 3), (2, 5), (2, 5)),
            ((2, 3), (2, 3), (2, 1), (2, 5)),
            ((1, 3), (1, 3), (1, 3), (2, 5)),
        ],
        2,
    ),
    ids=str,
)
def test_sizes_that_do_not_fit_in_a_graph(tf, query, key, mask, slots, jit_compile):
    layer = make(rotary=RotaryEmbedding())
    layer.build((None, None, WIDTH), (None, None, WIDTH))
    cache = layer.init_cache(slots[0], slots[1])
    specs = [
        tf.TensorSpec((None, None, WIDTH)),
        tf.TensorSpec((None, None, WIDTH)),
        tf.TensorSpec((None, None), tf.bool),
        {n: tf.TensorSpec((None, *c.shape[1:]), c.dtype) for n, c in cache.items()},
    ]

    @tf.function(input_signature=specs, jit_compile=jit_compile)
    def call(query, key, mask, cache):
        return layer(query, key, value_mask=mask, cache=cache, start_index=1)

    right = tf.ones((2, 3, WIDTH)), tf.ones((2, 3, WIDTH)), tf.ones((2, 3), tf.bool)
    assert np.isfinite(call(*right, layer.init_cache(2, 5))[0]).all()
    wrong = tf.ones((*query, WIDTH)), tf.ones((*key, WIDTH)), tf.ones(mask, tf.bool)
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)):
        call(*wrong, cache)


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", JIT_COMPILE)
@pytest.mark.parametrize(
    ("name", "shape"),
    first_of(
        [
            ("bias", (1, HEADS, 3, 3)),
            ("attention_mask", (1, 1, 3, 3)),
            ("value_mask", (1, 3)),
            ("attention_mask", (1, 3, 3)),
            ("attention_mask", (1, HEADS, 3, 3)),
            ("query_mask", (1, 3)),
            ("key_mask", (1, 3)),
            ("positions", (1, 3)),
        ],
    ),
    ids=str,
)
def test_one_row_is_never_made_two(tf, name, shape, jit_compile):
    layer = make(rotary=RotaryEmbedding())
    dtypes = {"bias": "float32", "positions": "int32"}
    dtype = dtypes.get(name, "bool")
    specs = [
        tf.TensorSpec((None, None, WIDTH)),
        tf.TensorSpec([None] * len(shape), dtype),
    ]

    @tf.function(input_signature=specs, jit_compile=jit_compile)
    def call(x, given):
        return layer(x, x, return_attention_scores=True, **{name: given})

    x = numbers(2, 3, WIDTH)
    for rows in (1, 2):  # one is for all
        whole = call(x, tf.ones((rows, *shape[1:]), dtype))
        assert np.isfinite(whole[0]).all()
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)):
        call(x[:1], tf.ones((2, *shape[1:]), dtype))


@pytest.mark.parametrize("kind", ["int", "int32", "int64"])
def test_no_steps_leave_a_cache_as_it_was(kind):
    layer, x = make(), numbers(2, 2, WIDTH)
    _, cache = layer(x, x, cache=layer.init_cache(2, 5))
    start = 2 if kind == "int" else ops.convert_to_tensor(2, kind)
    output, after = layer(
        x[:, :0], x[:, :0], cache=cache, start_index=start, use_causal_mask=True
    )
    assert output.shape == (2, 0, WIDTH)
    for name in cache:
        np.testing.assert_array_equal(array(after[name]), array(cache[name]))


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", JIT_COMPILE)
def test_steps_of_an_unknown_number(tf, jit_compile):
    layer, x = make(), numbers(2, 5, WIDTH)
    whole = layer(
        x, x, use_causal_mask=True, bias=np.zeros((1, HEADS, 5, 5), "float32")
    )
    cache = layer.init_cache(2, 5)
    specs = [
        tf.TensorSpec((None, None, WIDTH)),
        tf.TensorSpec((), tf.int32),
        {n: tf.TensorSpec((None, *c.shape[1:]), c.dtype) for n, c in cache.items()},
    ]

    @tf.function(input_signature=specs, jit_compile=jit_compile)
    def call(x, start, cache):
        return layer(x, x, cache=cache, start_index=start, use_causal_mask=True)

    parts, start = [], 0
    for steps in (2, 0, 1, 2):
        given = x[:, start : start + steps]
        if steps == 0:
            before = cache
            _, cache = call(given, tf.constant(start), cache)
            for name in cache:
                np.testing.assert_array_equal(array(cache[name]), array(before[name]))
            continue
        output, cache = call(given, tf.constant(start), cache)
        parts.append(array(output))
        start += steps
    np.testing.assert_allclose(np.concatenate(parts, 1), array(whole), atol=2e-6)


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", JIT_COMPILE)
def test_an_attention_mask_of_unknown_heads(tf, jit_compile):
    layer, x = make(rotary=RotaryEmbedding()), numbers(2, 3, WIDTH)
    specs = [tf.TensorSpec((None, None, WIDTH)), tf.TensorSpec([None] * 4, tf.bool)]

    @tf.function(input_signature=specs, jit_compile=jit_compile)
    def call(x, mask):
        return layer(x, x, attention_mask=mask)

    mask = np.tril(np.ones((2, HEADS, 3, 3), bool))
    expected = array(layer(x, x, use_causal_mask=True))
    for heads in (1, HEADS):
        np.testing.assert_allclose(call(x, mask[:, :heads]), expected, atol=2e-6)
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)):
        call(x, np.ones((2, 3, 3, 3), bool))


@pytest.mark.parametrize("dtype", ["int32", "float32", "bool"])
def test_masks_of_numbers_are_masks(dtype):
    layer, x = make(rotary=RotaryEmbedding()), numbers(2, 3, WIDTH)
    mask = np.array([[1, 1, 0], [1, 0, 1]]).astype(dtype)
    result = layer(x, x, value_mask=ops.convert_to_tensor(mask))
    wide = mask.astype(bool)[:, None, None]
    expected, _ = attend(layer, x, x, mask=wide, places=range(3))
    np.testing.assert_allclose(array(result), expected, rtol=0, atol=2e-6)


# Saving.


def shared_bias_model():
    """T5's way: one bias for two blocks."""
    x = inputs = keras.Input((None, WIDTH))
    bias = keras_pe.RelativePositionBias(num_heads=HEADS, name="shared")(x)
    for _ in range(2):
        y = make()(x, x, bias=bias)
        x = keras.layers.Add()([x, y])
    return keras.Model(inputs, x)


def test_one_bias_for_two_blocks_stays_one(tmp_path):
    model, x = shared_bias_model(), numbers(2, 5, WIDTH)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    for other in (again, copy):
        assert len(other.weights) == len(model.weights) == 1 + 2 * 8
        np.testing.assert_array_equal(array(other(x)), array(model(x)))
        layer = other.get_layer("shared")
        before = array(other(x))
        layer.set_weights([0 * layer.get_weights()[0] + numbers(32, HEADS)])
        assert np.abs(array(other(x)) - before).max() > 1e-3


@pytest.mark.tensorflow
def test_one_bias_for_two_blocks_is_exported(tf, tmp_path):
    model, x = shared_bias_model(), numbers(2, 5, WIDTH)
    model.export(tmp_path / "served", verbose=False)
    served = tf.saved_model.load(str(tmp_path / "served"))
    np.testing.assert_allclose(array(served.serve(x)), array(model(x)), atol=1e-6)
    # The bias, and eight weights of each attention.
    assert len(served.variables) == len(model.weights) == 17


def test_rotary_comes_back_from_the_config():
    scaling = {"rope_type": "linear", "factor": 2.0}
    layer = make(rotary=RotaryEmbedding(scaling=scaling, name="turn"), name="it")
    config = layer.get_config()
    again = MultiHeadAttention.from_config(config)
    assert again.get_config() == config
    assert again.rotary.get_config() == layer.rotary.get_config()
    assert make().get_config()["rotary"] is None


@pytest.mark.parametrize("flash", [None, False])
def test_every_argument_is_in_the_config(flash):
    layer = make(flash_attention=flash)
    arguments = inspect.signature(keras.layers.MultiHeadAttention.__init__).parameters
    config = layer.get_config()
    assert {*arguments} - {"self", "kwargs"} <= {*config, "use_gate"}
    assert config["flash_attention"] is flash
    assert MultiHeadAttention.from_config(config).get_config() == config


@pytest.mark.tensorflow
def test_ragged_masks_are_refused(tf):
    mask = tf.RaggedTensor.from_row_lengths(np.ones(5, bool), [3, 2])
    for name in ("query_mask", "value_mask", "key_mask", "attention_mask"):
        with pytest.raises(ValueError, match="takes dense masks"):
            make(**TURNING)(ONES, ONES, **{name: mask})


def test_weights_of_eight_bits():
    """In one process: Keras 3.15 loads no file of its own such layer either."""
    x = keras.Input((None, 16))
    y = make(2, 8, rotary=RotaryEmbedding())(x, x)
    y = make(2, 8)(y, y, bias=ALiBi(num_heads=2)(y))
    model, given = keras.Model(x, y), numbers(2, 9, 16)
    expected = array(model(given))
    model.quantize("int8")
    result = array(model(given))
    assert (result != expected).any()
    np.testing.assert_allclose(result, expected, rtol=0, atol=0.05)


# What is refused.


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        (dict(heads=0), "`num_heads` must be an integer of at least 1"),
        (dict(dim=2.5), "`key_dim` must be an integer of at least 1"),
        (dict(rotary="halves"), "`rotary` must be a RotaryEmbedding, or None. Rec"),
        (dict(rotary=RotaryEmbedding), "`rotary` must be a RotaryEmbedding, or None"),
        (dict(rotary=RotaryEmbedding(sequence_axis=2)), "its `sequence_axis` at 1"),
        (dict(rotary=RotaryEmbedding(rotary_dim=6)), "`rotary_dim` must be at most"),
        (dict(rotary=RotaryEmbedding(), dim=3), "an even dim, or an even `rotary_dim`"),
        (dict(rotary=RotaryEmbedding(), attention_axes=(1, 2)), "`attention_axes`"),
    ],
    ids=str,
)  # fmt: skip
def test_bad_arguments_are_refused(kwargs, message):
    with pytest.raises(ValueError, match=message):
        make(**kwargs)


ONES = np.ones((2, 3, WIDTH), "float32")
CACHE = make().init_cache(2, 5)
TURNING = dict(rotary=RotaryEmbedding())


@pytest.mark.parametrize(
    ("kwargs", "call", "message"),
    [
        ({}, dict(positions=[0, 1, 2]), "has no `rotary`.*Received: positions"),
        ({}, dict(start_index=1), "has no `rotary`.*Received: positions"),
        ({}, dict(bias=np.zeros((1, 3, 3, 3))), r"`bias` must be of shape \(batch, "),
        ({}, dict(bias=np.zeros((1, 2, 3, 4))), "`bias` must be of shape"),
        ({}, dict(bias=np.zeros((1, 2, 1, 3))), "`bias` must be of shape"),
        ({}, dict(bias=np.zeros((3, 2, 3, 3))), "`bias` must be of shape"),
        ({}, dict(bias=np.zeros((2, 3, 3))), "`bias` must be of shape"),
        ({}, dict(cache={}), "`cache` as its `init_cache` makes it.*: a dict of {}"),
        ({}, dict(cache=[CACHE]), "makes it, one dict,.*Received: a list of {}"),
        ({}, dict(cache=make().init_cache(3, 5)), "`cache` as .* for a batch of 2"),
        ({}, dict(cache=make(3).init_cache(2, 5)), "takes a `cache` as"),
        ({}, dict(cache=make(dim=2).init_cache(2, 5)), "takes a `cache` as"),
        ({}, dict(cache=CACHE, start_index=[0, 1]), "one number where"),
        ({}, dict(cache=CACHE, value=ONES[:, :2]), r"`value` must be of shape"),
        (TURNING, dict(value=ONES[:, :2]), r"`value` must be of shape \(rows, steps"),
        (TURNING, dict(key=ONES[:, :2]), "`value` and `key`"),
        (TURNING, dict(positions=[0, 1]), "`positions` must be of"),
        (TURNING, dict(positions=[0, 1, 2], start_index=1), "not both"),
        (dict(attention_axes=(1, 2)), dict(cache=CACHE), "`attention_axes`"),
        ({}, dict(cache=CACHE, value=np.ones((1, 3, WIDTH))), "`value` must be of"),
        ({}, dict(cache=CACHE, key=ONES, value=ONES[:, :2]), "`value` and `key`"),
        ({}, dict(cache=CACHE, value_mask=np.ones((2, 5))), "`value_mask` must be of"),
        (TURNING, dict(query_mask=np.ones((2, 1))), "`query_mask` must be of shape"),
        (TURNING, dict(key_mask=np.ones(3)), "`key_mask` must be of shape"),
        (TURNING, dict(attention_mask=np.ones((2, 1, 1))), "query, key.*1, q.*heads"),
        (TURNING, dict(attention_mask=np.ones(3)), "`attention_mask` must be of shape"),
        ({}, dict(cache=CACHE, attention_mask=np.ones((2, 3))), "`attention_mask`"),
        ({}, dict(bias=np.ones((1, 2, 3, 3), bool)), "`bias` must be of floats"),
        ({}, dict(bias=1.5), "`bias` must be of shape"),
        (TURNING, dict(value=ONES.astype("int32")), "takes dense float tensors"),
        ({}, dict(cache=dict(CACHE, key=ops.cast(CACHE["key"], "int8"))), "the dtype"),
    ],
)  # fmt: skip
def test_bad_calls_are_refused(kwargs, call, message):
    layer = make(**kwargs)
    with pytest.raises(ValueError, match=message):
        layer(ONES, **{"value": ONES, **call})
