"""The layer under a strategy of several devices."""

import pytest
from processes import run

pytestmark = pytest.mark.tensorflow


def test_mirrored_strategy(tmp_path):
    printed = run(
        """
        import sys
        import numpy as np
        import tensorflow as tf

        [cpu] = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * 2
        )
        import keras
        from keras_pe import PositionalEncoding

        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        assert strategy.num_replicas_in_sync == 2
        ids = np.array([[1, 2, 0], [3, 4, 5], [6, 0, 0], [7, 8, 1]])
        x = np.ones((4, 3, 8), "float32")

        def check(model):
            result = model.layers[1](x)
            np.testing.assert_array_equal(result, x + PositionalEncoding()(0 * x))

        with strategy.scope():
            model = keras.Sequential(
                [
                    keras.layers.Embedding(9, 8, mask_zero=True),
                    PositionalEncoding(max_length=4),
                    keras.layers.Dense(3),
                ]
            )
            model.compile("adam", "mse")
        before = model.predict(ids, verbose=0)
        history = model.fit(ids, np.ones((4, 3, 3)), batch_size=4, verbose=0).history
        assert np.isfinite(history["loss"]).all()
        expected = model.predict(ids, verbose=0)
        assert np.abs(expected - before).max() > 1e-4
        check(model)
        model.save(sys.argv[1])

        outside = keras.saving.load_model(sys.argv[1])
        with strategy.scope():
            inside = keras.saving.load_model(sys.argv[1])
        for loaded in (outside, inside):
            check(loaded)
            result = loaded.predict(ids, verbose=0)
            np.testing.assert_allclose(result, expected, rtol=0, atol=1e-6)
        inside.fit(ids, np.ones((4, 3, 3)), batch_size=4, verbose=0)
        check(inside)

        @tf.function
        def step(start):
            call = lambda: inside.layers[1](tf.zeros((1, 1, 8)), start_index=start)
            return strategy.experimental_local_results(strategy.run(call))

        for row in step(tf.constant(2)):
            rows = PositionalEncoding()(0 * x)
            np.testing.assert_allclose(row[0, 0], rows[0, 2], rtol=0, atol=3e-7)
        print("done")
        """,
        tmp_path / "model.keras",
    )
    assert printed.endswith("done\n")
