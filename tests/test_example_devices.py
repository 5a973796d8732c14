"""The example on several devices: it trains, saves and serves as on one."""

import json

import devices
import keras
import numpy as np
import pytest
from classifier import TEXTS, example
from processes import run

pytestmark = pytest.mark.tensorflow


def options(*given):
    return example.make_parser().parse_args(given)


def test_the_devices_of_an_option(tf, capsys):
    assert example.make_strategy(options()) is tf.distribute.get_strategy()
    assert capsys.readouterr().out == ""
    strategy = example.make_strategy(options("--distribute", "mirrored"))
    devices = tf.config.list_logical_devices("GPU") or ["the CPU"]
    assert isinstance(strategy, tf.distribute.MirroredStrategy)
    assert strategy.num_replicas_in_sync == len(devices)
    assert capsys.readouterr().out.split() == ["replicas", str(len(devices))]


@pytest.mark.parametrize("replicas", [2, 3])
def test_batches_fall_into_equal_parts(tf, replicas):
    sizes = [6, 5, 1, 2]
    ids, labels = np.arange(28, dtype="int32").reshape(14, 2), np.arange(14)
    rows = tf.data.Dataset.from_tensor_slices((ids, labels))
    batches = rows.batch(6).take(1).concatenate(rows.skip(6).batch(5).take(1))
    batches = batches.concatenate(rows.skip(11).batch(1).take(1))
    batches = batches.concatenate(rows.skip(12).batch(2))
    filled = devices.evenly(batches, replicas)
    assert len(filled) == len(sizes)
    for (ids, labels), (more_ids, more_labels) in zip(batches, filled, strict=True):
        size, more = len(labels), len(more_labels)
        assert more % replicas == 0 and more - size < replicas
        assert more_labels.numpy().tolist() == [labels[i % size] for i in range(more)]
        assert more_ids.numpy().tolist() == [
            ids[i % size].numpy().tolist() for i in range(more)
        ]


TRAIN_ON_TWO = """
import sys
import tensorflow as tf

[cpu] = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration()] * 2
)
from pathlib import Path
import classifier

data, folder, *options = sys.argv[1:]
classifier.train(data, Path(folder), "--distribute", "mirrored", *options)
"""


@pytest.mark.long
def test_two_replicas(tf, data, trained, tmp_path):
    """No batch of 15 has a half, nor has many a rest; the results are alike."""
    given = ["--epochs", "8", "--batch-size", "15"]
    printed = run(TRAIN_ON_TWO, data, tmp_path, *given)
    assert ["replicas", "2"] in [line.split() for line in printed.splitlines()]
    out = tmp_path / "out"
    assert sorted(path.name for path in out.iterdir()) == sorted(example.RESULTS)
    metrics, alone = (
        json.loads((folder / "out" / "metrics.json").read_text(encoding="utf-8"))
        for folder in (tmp_path, trained)
    )
    assert metrics["settings"]["distribute"] == "mirrored"
    for same in ("classes", "texts", "vocabulary", "parameters"):
        assert metrics[same] == alone[same]
    assert np.sum(metrics["test"]["confusion"]) == metrics["texts"]["test"]
    for result in (metrics, alone):
        assert result["test"]["accuracy"] > 0.85
    model = keras.saving.load_model(out / "model.keras")
    expected = model(tf.constant(TEXTS), training=False).numpy()
    served = tf.saved_model.load(str(tmp_path / "saved" / "1"))
    found = served.signatures["serving_default"](text=tf.constant(TEXTS))
    np.testing.assert_allclose(found["probabilities"], expected, rtol=0, atol=1e-5)
    assert found["label"].numpy()[:2].tolist() == [b"up", b"down"]
    lines = run(
        """
        import sys
        from classifier import example
        example.main(["--saved-models", sys.argv[1], "--predict", *sys.argv[2:]])
        """,
        tmp_path / "saved",
        *TEXTS[:2],
        without_keras=True,
    ).splitlines()
    assert [line.split("\t")[0] for line in lines] == ["up", "down"]
