"""The layers under a strategy of several devices give the numbers of one device."""

import pytest
from positioned import LAYERS
from processes import run

pytestmark = pytest.mark.tensorflow

TWO_DEVICES = """
import tensorflow as tf

[cpu] = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration()] * 2
)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
assert strategy.num_replicas_in_sync == 2
"""


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(["rotary", "relative"], id="two"),  # without weights, and with
        pytest.param([*LAYERS], id="all", marks=pytest.mark.long),
    ],
)
def test_mirrored_strategy(names, tmp_path):
    """The numbers of one device; the model is saved, and loaded where it likes."""
    code = """
import sys
import keras
from positioned import assert_alike, make, numbers, predict, train

path, *names = sys.argv[1:]
alone = make(*names)
expected = numbers(alone)
with strategy.scope():
    mirrored = make(*names)
assert all(len(weight.value.values) == 2 for weight in mirrored.weights)
assert_alike(numbers(mirrored), expected)
mirrored.save(path)

outside = keras.saving.load_model(path)
with strategy.scope():
    inside = keras.saving.load_model(path)
assert_alike([predict(outside), predict(inside)], [expected[2]] * 2)
assert_alike([train(inside, 2), predict(inside)], [train(alone, 2), predict(alone)])
print("done")
"""
    printed = run(TWO_DEVICES + code, tmp_path / "model.keras", *names)
    assert printed.endswith("done\n")


@pytest.mark.long
def test_each_replica_starts_where_it_is_told():
    printed = run(
        TWO_DEVICES
        + """
import numpy as np
from keras_pe import PositionalEncoding

with strategy.scope():
    layer = PositionalEncoding(max_length=4)
rows = PositionalEncoding()(tf.zeros((1, 3, 8)))

@tf.function
def step(start):
    call = lambda: layer(tf.zeros((1, 1, 8)), start_index=start)
    return strategy.experimental_local_results(strategy.run(call))

found = step(tf.constant(2))
assert len(found) == 2
for row in found:
    np.testing.assert_allclose(row[0, 0], rows[0, 2], rtol=0, atol=3e-7)
print("done")
"""
    )
    assert printed.endswith("done\n")
