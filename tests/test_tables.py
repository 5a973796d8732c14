"""The tables that graphs hold as constants, and that eager calls share."""

import numpy as np
import pytest

from keras_pe import PositionalEncoding, positional_encoding, tables

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize("max_length", [None, 12])
@pytest.mark.parametrize("first", ["eager", "graph"])
def test_eager_calls_and_graphs_do_not_get_in_each_others_way(first, max_length, tf):
    tables._shared_tensor.cache_clear()
    layer = PositionalEncoding(max_length=max_length)
    calls = [layer, tf.function(layer)]
    x, wanted = tf.zeros((2, 7, 6)), positional_encoding(7, 6).numpy()
    for call in calls if first == "eager" else reversed(calls):
        for _ in range(3):
            np.testing.assert_array_equal(call(x)[1:], wanted)


@pytest.mark.parametrize("max_length", [None, 12])
def test_eager_calls_share_one_table(max_length, tf):
    tables._shared_tensor.cache_clear()
    layer = PositionalEncoding(max_length=max_length)
    x = tf.zeros((1, 7, 6))
    for _ in range(3):
        layer(x)
    assert tables._shared_tensor.cache_info().misses == 1
    assert tables._shared_tensor.cache_info().hits == 2


@pytest.mark.parametrize("max_length", [None, 12])
@pytest.mark.parametrize("start", [0, 3])
def test_a_graph_of_tensorflow_1(start, max_length, tf):
    layer = PositionalEncoding(max_length=max_length)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, (2, None, 6))
        rows = session.run(layer(x, start_index=start), {x: np.zeros((2, 7, 6))})
    wanted = positional_encoding(start + 7, 6)[0, start:]
    np.testing.assert_allclose(rows[1], wanted, rtol=0, atol=3e-7)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("max_length", [None, 12])
def test_a_half_type_halves_the_constant_of_a_graph(max_length, dtype, tf):
    """And its values are the float32 ones, rounded once."""
    layer = PositionalEncoding(max_length=max_length, dtype=dtype)
    graph = tf.function(layer).get_concrete_function(tf.TensorSpec((1, 7, 6), dtype))
    constants = [op for op in graph.graph.get_operations() if op.type == "Const"]
    sizes = {
        op.outputs[0].dtype.name for op in constants if op.outputs[0].shape.rank == 2
    }
    assert sizes == {dtype}
    wanted = tf.cast(positional_encoding(7, 6), dtype)
    tf.debugging.assert_equal(graph(tf.zeros((1, 7, 6), dtype)), wanted)
