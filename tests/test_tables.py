"""The tables that graphs hold as constants, and that eager calls share."""

import numpy as np
import pytest

from keras_pe import PositionalEncoding, positional_encoding, sinusoid_rows, tables
from keras_pe.rows import Rows
from keras_pe.sinusoid_rows import Sinusoids

pytestmark = pytest.mark.tensorflow

ENCODING = Sinusoids(6, 10000.0, "interleaved")


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
    tables._shared_tensor.cache_clear()
    layer = PositionalEncoding(max_length=max_length)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, (2, None, 6))
        rows = session.run(layer(x, start_index=start), {x: np.zeros((2, 7, 6))})
    wanted = positional_encoding(start + 7, 6)[0, start:]
    np.testing.assert_allclose(rows[1], wanted, rtol=0, atol=3e-7)
    # What is kept is no tensor of that graph.
    rows = layer(tf.zeros((2, 7, 6)), start_index=start)
    np.testing.assert_array_equal(rows[1], wanted)


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


def test_rows_of_a_table_are_a_tensor(tf):
    def make():
        ways = [
            Rows(3, length=2),
            Rows(3, length=tf.constant(2)),
            Rows(tf.constant([3, 4]), valid=tf.constant([True, True])),
        ]
        made = [tables.rows_of_table(rows, 12, ENCODING, "float32") for rows in ways]
        made.append(tables.run_of_table(3, 2, ENCODING, "float32"))
        assert all(map(tf.is_tensor, made))
        return made

    for rows in (*make(), *tf.function(make)()):
        np.testing.assert_array_equal(rows, positional_encoding(5, 6)[0, 3:])


def test_an_eager_call_copies_no_table(tf):
    first, second = (
        tables._shared(tables._bounded_table, 12, ENCODING, "float32") for _ in "ab"
    )
    assert tf.is_tensor(first)
    assert first is second


def test_a_step_without_a_limit_makes_no_table(tf):
    """Each would be another one."""
    tables._shared_tensor.cache_clear()
    PositionalEncoding()(tf.zeros((1, 1, 6)), start_index=tf.constant(3))
    assert tables._shared_tensor.cache_info().misses == 0


def test_few_tables_are_kept():
    for kept in (tables._shared_tensor, tables._array):
        assert kept.cache_info().maxsize == 8


# Of the rows as they are made: float32 for the half types.
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_table_that_is_too_large_is_not_kept(dtype, monkeypatch, tf):
    monkeypatch.setattr(sinusoid_rows, "LARGEST_TABLE", 7 * 6 * 4 - 1)
    monkeypatch.setattr(tables, "LARGEST_TABLE", 7 * 6 * 4 - 1)
    tables._shared_tensor.cache_clear()
    layer = PositionalEncoding(max_length=7, dtype=dtype)
    wanted = tf.cast(positional_encoding(7, 6), dtype)
    x = tf.zeros((1, 7, 6), dtype)
    np.testing.assert_array_equal(layer(x), wanted)
    assert tables._shared_tensor.cache_info().currsize == 0
    np.testing.assert_array_equal(layer(x[:, :6]), wanted[:, :6])
    assert tables._shared_tensor.cache_info().currsize == 1
    monkeypatch.setattr(tables, "LARGEST_TABLE", 7 * 6 * 4)
    np.testing.assert_array_equal(layer(x), wanted)
    assert tables._shared_tensor.cache_info().currsize == 2


def test_rows_that_are_not_kept_are_a_tensor(monkeypatch, tf):
    monkeypatch.setattr(tables, "LARGEST_TABLE", 1)
    rows = tables.run_of_table(3, 2, ENCODING, "float32")
    assert tf.is_tensor(rows)
    np.testing.assert_array_equal(rows, positional_encoding(5, 6)[0, 3:])


def test_one_row_of_nan_follows_the_rows_of_a_limit():
    table = tables._bounded_table(12, ENCODING, "float32")
    np.testing.assert_array_equal(table[:12], positional_encoding(12, 6)[0])
    np.testing.assert_array_equal(table[12:], np.full((1, 6), np.nan))


@pytest.mark.parametrize(("max_length", "taken_in"), [(2**17 - 1, 0), (2**17, 1)])
def test_a_graph_takes_in_a_table_above_4_mib(max_length, taken_in, tf):
    graph = tf.function(PositionalEncoding(max_length=max_length))
    graph = graph.get_concrete_function(tf.TensorSpec((1, None, 8)))
    assert len(graph.captured_inputs) == taken_in


def test_a_graph_of_a_known_length_holds_no_other_rows(tf):
    graph = tf.function(PositionalEncoding(max_length=500))
    graph = graph.get_concrete_function(tf.TensorSpec((1, 7, 6))).graph
    shapes = [op.outputs[0].shape for op in graph.get_operations() if op.outputs]
    assert max(shape.num_elements() for shape in shapes) == 7 * 6


def test_a_graph_of_an_unknown_length_slices_the_table(tf):
    graph = tf.function(PositionalEncoding(max_length=500))
    graph = graph.get_concrete_function(tf.TensorSpec((1, None, 6))).graph
    kinds = {operation.type for operation in graph.get_operations()}
    assert "StridedSlice" in kinds
    assert not {kind for kind in kinds if "Gather" in kind}
