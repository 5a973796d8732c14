"""Positions out of a mask and out of segment ids."""

import re

import keras
import ml_dtypes
import numpy as np
import pytest
from keras import ops

from keras_pe import positions_from_mask, positions_from_segments

T, F = True, False


def numpy_of(tensor):
    assert keras.backend.standardize_dtype(tensor.dtype) == "int32"
    return ops.convert_to_numpy(tensor)


def loop_over_mask(mask):
    rows = []
    for row in mask:
        kept, numbers = 0, []
        for step in row:
            kept += bool(step)
            numbers.append(max(kept - 1, 0))
        rows.append(numbers)
    return rows


def loop_over_segments(segment_ids):
    rows = []
    for row in segment_ids:
        numbers = []
        for step, segment in enumerate(row):
            same = step > 0 and segment == row[step - 1]
            numbers.append(numbers[-1] + 1 if same else 0)
        rows.append(numbers)
    return rows


@pytest.mark.parametrize(
    ("mask", "length", "positions"),
    [
        ([[F, F, T, T]], None, [[0, 0, 0, 1]]),
        ([[T, F, T]], None, [[0, 0, 1]]),
        ([[F, T, F, F, T, T]], None, [[0, 0, 0, 0, 1, 2]]),
        ([[T, T, F, F]], None, [[0, 1, 1, 1]]),
        ([[F, F, F]], None, [[0, 0, 0]]),
        ([[T]], None, [[0]]),
        ([[T, T, T], [F, T, T], [F, F, F]], None, [[0, 1, 2], [0, 0, 1], [0, 0, 0]]),
        ([[T, T, T, T, T]], 1, [[4]]),
        ([[F, T, T, T, T]], 2, [[2, 3]]),
        ([[T, T, F], [F, T, T]], 1, [[1], [1]]),
        ([[T, T, T]], 3, [[0, 1, 2]]),
        ([[T, T, T]], np.int8(2), [[1, 2]]),
        ([[0, 2, -1]], None, [[0, 0, 1]]),
        ([[0.0, 0.25, 1.0]], None, [[0, 0, 1]]),
    ],
)
def test_positions_from_mask(mask, length, positions):
    assert numpy_of(positions_from_mask(mask, length)).tolist() == positions
    tensor = ops.convert_to_tensor(np.array(mask))
    assert numpy_of(positions_from_mask(tensor, length)).tolist() == positions


@pytest.mark.torch
def test_arrays_that_torch_compiles():
    """They then answer to more than they can."""
    import torch

    ids, one = np.array([[5, 5, 7]]), torch.ones(1)
    for function in (positions_from_mask, positions_from_segments):
        compiled = torch.compile(lambda x, f=function: f(ids) + x, backend="eager")
        np.testing.assert_array_equal(compiled(one), function(ids) + 1)


@pytest.mark.parametrize(
    "dtype",
    [
        *("bool", "bfloat16", "float16", "float32", "float64"),
        *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    ],
)
def test_a_mask_and_segments_of_any_dtype(dtype):
    mask = np.array([[0, 0] + [1] * 300, [1] * 302])
    mask = mask.astype(getattr(ml_dtypes, dtype, dtype))
    kept = [[0, 0, *range(300)], [*range(302)]]
    packed = [[0, 1, *range(300)], [*range(302)]]
    # torch has no tensors of the longest.
    no_tensor = keras.config.backend() == "torch" and dtype == "uint64"
    for given in (mask,) if no_tensor else (mask, ops.convert_to_tensor(mask)):
        assert numpy_of(positions_from_mask(given)).tolist() == kept
        assert numpy_of(positions_from_segments(given)).tolist() == packed


@pytest.mark.parametrize(
    ("segment_ids", "positions"),
    [
        ([[7, 7, 9, 9, 9]], [[0, 1, 0, 1, 2]]),
        ([[5, 5, 5]], [[0, 1, 2]]),
        ([[1, 2, 3]], [[0, 0, 0]]),
        ([[1, 1, 2, 1, 1, 1]], [[0, 1, 0, 0, 1, 2]]),
        ([[0, 0, -1, -1]], [[0, 1, 0, 1]]),
        ([[0.5, 0.5, 0.25]], [[0, 1, 0]]),
        ([[True, True, False]], [[0, 1, 0]]),
        ([[3]], [[0]]),
        ([[3], [4]], [[0], [0]]),
        ([[1] * 300 + [2] * 2], [[*range(300), 0, 1]]),
        ([[1, 1, 2], [1, 2, 2], [1, 1, 1]], [[0, 1, 0], [0, 0, 1], [0, 1, 2]]),
    ],
)
def test_positions_from_segments(segment_ids, positions):
    assert numpy_of(positions_from_segments(segment_ids)).tolist() == positions
    tensor = ops.convert_to_tensor(np.array(segment_ids))
    assert numpy_of(positions_from_segments(tensor)).tolist() == positions


@pytest.mark.parametrize("seed", range(20))
def test_random_rows_equal_a_plain_loop(seed):
    rng = np.random.default_rng(seed)
    values = rng.integers(0, rng.integers(2, 5), (3, 40))
    mask, ids = values > 0, values
    assert numpy_of(positions_from_mask(mask)).tolist() == loop_over_mask(mask)
    assert numpy_of(positions_from_segments(ids)).tolist() == loop_over_segments(ids)


@pytest.mark.parametrize("function", [positions_from_mask, positions_from_segments])
@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
def test_nothing_to_number(function, shape):
    assert numpy_of(function(np.zeros(shape, "int32"))).shape == shape


@pytest.mark.parametrize(
    "value", [T, [T, F], [[[T]]], np.zeros((2, 3, 4))], ids=["0", "1", "3", "3 too"]
)
def test_other_ranks_are_refused(value):
    with pytest.raises(ValueError, match=r"`mask` .*\(batch, time\).* Received: mask"):
        positions_from_mask(value)
    with pytest.raises(ValueError, match=r"`segment_ids` .* Received: segment_ids"):
        positions_from_segments(value)
    symbolic = keras.KerasTensor(np.shape(value))
    with pytest.raises(ValueError, match=r"`mask` .*\(batch, time\).* Received: mask"):
        positions_from_mask(symbolic)
    shape = re.escape(str(np.shape(value)))
    with pytest.raises(ValueError, match=f"Received: mask of shape {shape}$"):
        positions_from_mask(ops.ones(np.shape(value), "bool"))


@pytest.mark.parametrize("length", [0, -1, True, 2.5, "1", [1]], ids=repr)
def test_a_bad_length_is_refused(length):
    with pytest.raises(ValueError, match=r"`length` .* at least 1. Received: length"):
        positions_from_mask([[T, T, T]], length)


@pytest.mark.parametrize("mask", [np.ones((1, 3)), keras.KerasTensor((None, 3))])
def test_a_length_beyond_the_mask_is_refused(mask):
    with pytest.raises(ValueError, match=r"at most the length of `mask`, 3.*length=4"):
        positions_from_mask(mask, 4)


def test_symbolic_shapes():
    mask = keras.KerasTensor((None, None), "bool")
    assert positions_from_mask(mask).shape == (None, None)
    assert positions_from_mask(mask).dtype == "int32"
    assert positions_from_mask(keras.KerasTensor((2, 7)), 3).shape == (2, 3)
    assert positions_from_segments(mask).shape == (None, None)
    assert positions_from_segments(keras.KerasTensor((2, 7))).shape == (2, 7)
    assert positions_from_segments(keras.KerasTensor((2, 7))).dtype == "int32"


@pytest.mark.parametrize("time", [None, 6])
def test_a_functional_model_is_saved_and_reloaded(time, tmp_path):
    mask = keras.Input((time,), dtype="bool")
    ids = keras.Input((time,), dtype="int32")
    outputs = [
        positions_from_mask(mask),
        positions_from_mask(mask, 2),
        positions_from_segments(ids),
    ]
    model = keras.Model([mask, ids], outputs)
    model.save(tmp_path / "model.keras")
    reloaded = keras.saving.load_model(tmp_path / "model.keras")
    inputs = np.array([[F, T, T, F, T, T]] * 2), np.array([[1, 1, 2, 2, 2, 1]] * 2)
    for each in (model, reloaded):
        kept, last, packed = map(numpy_of, each([*map(ops.convert_to_tensor, inputs)]))
        assert kept.tolist() == [[0, 0, 1, 1, 2, 3]] * 2
        assert last.tolist() == [[2, 3]] * 2
        assert packed.tolist() == [[0, 1, 0, 1, 2, 0]] * 2


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_unknown_sizes_in_a_graph(jit_compile):
    import tensorflow as tf

    @tf.function(
        input_signature=[tf.TensorSpec((None, None), tf.int32)], jit_compile=jit_compile
    )
    def graph(values):
        return (
            positions_from_mask(values > 0),
            positions_from_mask(values > 0, 1),
            positions_from_segments(values),
        )

    for shape in [(3, 8), (1, 1)]:
        values = np.random.default_rng(1).integers(0, 3, shape)
        kept, last, packed = map(numpy_of, graph(tf.constant(values, tf.int32)))
        assert kept.tolist() == loop_over_mask(values)
        assert last.tolist() == [row[-1:] for row in loop_over_mask(values)]
        assert packed.tolist() == loop_over_segments(values)
    assert graph.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("value", [None, [["a"]], [[1j]], [[None, 1]]], ids=repr)
def test_other_than_bools_and_numbers_are_refused(value):
    with pytest.raises(ValueError, match=r"`mask` must be a dense .* Received: mask="):
        positions_from_mask(value)
    with pytest.raises(
        ValueError, match=r"`segment_ids` must be a dense .* Received: "
    ):
        positions_from_segments(value)


def test_rows_of_several_lengths_are_refused():
    with pytest.raises(
        ValueError, match=r"^`mask` must be an array\. Received: \[\[1, 1\], \[0\]\]$"
    ):
        positions_from_mask([[1, 1], [0]])


@pytest.mark.tensorflow
def test_ragged_and_unknown_rank_are_refused(tf):
    ragged = tf.ragged.constant([[1, 1], [0]])
    unknown = tf.function(positions_from_mask, input_signature=[tf.TensorSpec(None)])
    with pytest.raises(ValueError, match="`mask` must be a dense tensor"):
        positions_from_mask(ragged)
    with pytest.raises(ValueError, match=r"`mask` must be .* known rank"):
        unknown.get_concrete_function()


def test_numbers_are_read_before_a_backend_cuts_them():
    far = np.array([[1, 2**32 + 1, 2**32 + 1, 2**33]])
    assert numpy_of(positions_from_segments(far)).tolist() == [[0, 0, 1, 0]]
    assert numpy_of(positions_from_segments([[0.1, 0.1 + 1e-12]])).tolist() == [[0, 0]]
    mask = np.array([[0, 2**32, 2**33, 1]])
    assert numpy_of(positions_from_mask(mask)).tolist() == [[0, 0, 1, 2]]
