"""Training by several processes, as a cluster runs it: one model, the same numbers."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest
from positioned import LAYERS, assert_alike, make, predict, train

pytestmark = [pytest.mark.tensorflow, pytest.mark.long]

STEPS = 6
SECONDS = 600  # until a worker is given up
PREPARE = """
import json
import os
import signal
import sys

import numpy as np
import tensorflow as tf

# Before all else: it starts the server that the others connect to.
strategy = tf.distribute.MultiWorkerMirroredStrategy()
assert strategy.num_replicas_in_sync == 2
import keras
from positioned import IDS, LABELS, LAYERS, make

task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
with strategy.scope():
    model = make(*LAYERS)
    optimizer = model.optimizer
"""
TRAIN = (
    PREPARE
    + """
folder, steps, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def read(context):
    data = tf.data.Dataset.from_tensor_slices((IDS, LABELS))
    data = data.shard(context.num_input_pipelines, context.input_pipeline_id)
    return data.batch(context.get_per_replica_batch_size(len(IDS))).repeat()


@tf.function
def step(batch):
    def train(ids, labels):
        with tf.GradientTape() as tape:
            errors = keras.losses.mean_squared_error(labels, model(ids, training=True))
            loss = tf.nn.compute_average_loss(errors, global_batch_size=len(IDS))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    return strategy.reduce("SUM", strategy.run(train, args=batch), axis=None)


with strategy.scope():
    done = tf.Variable(0, dtype="int64")
    optimizer.build(model.trainable_variables)
checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, done=done)
latest = tf.train.latest_checkpoint(f"{folder}/0")
if latest:
    checkpoint.restore(latest).assert_consumed()
# All of them save, for some variables are of all; the first one's is read.
manager = tf.train.CheckpointManager(checkpoint, f"{folder}/{task}", max_to_keep=2)
batches = iter(strategy.distribute_datasets_from_function(read))
while done.numpy() < steps:
    print(json.dumps([int(done.numpy()), float(step(next(batches)))]), flush=True)
    done.assign_add(1)
    manager.save()
    if task == 1 and done.numpy() == last:
        os.kill(os.getpid(), signal.SIGKILL)
np.savez(f"{folder}/weights-{task}.npz", *model.get_weights())
"""
)


@contextlib.contextmanager
def workers(code, *args):
    """Start two processes that know each other by TF_CONFIG, and end them at last."""
    with contextlib.ExitStack() as ports:
        found = [ports.enter_context(socket.socket()) for _ in range(2)]
        for port in found:
            port.bind(("127.0.0.1", 0))
        addresses = ["{}:{}".format(*port.getsockname()) for port in found]
    started = []
    try:
        for index in range(2):
            task = {"type": "worker", "index": index}
            config = json.dumps({"cluster": {"worker": addresses}, "task": task})
            started.append(
                subprocess.Popen(
                    [sys.executable, "-c", code, *map(str, args)],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    encoding="utf-8",
                    env={
                        **os.environ,
                        "TF_CONFIG": config,
                        "CUDA_VISIBLE_DEVICES": "",
                        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                    },
                )
            )
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def printed_by(process):
    out, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, f"{out}\n{errors}"
    return [json.loads(line) for line in out.splitlines()]


@pytest.fixture(scope="module")
def alone():
    """The losses and the weights of one process, trained by `fit`."""
    model = make(*LAYERS)
    return train(model, STEPS), model.get_weights()


def assert_trained_as_alone(folder, alone):
    for index in range(2):
        with np.load(folder / f"weights-{index}.npz") as weights:
            assert_alike(weights.values(), alone[1])


def test_two_workers(alone, tmp_path):
    with workers(TRAIN, tmp_path, STEPS, -1) as started:
        for process in started:
            losses = printed_by(process)
            assert [done for done, _ in losses] == [*range(STEPS)]
            assert_alike([[loss for _, loss in losses]], alone[:1])
    assert_trained_as_alone(tmp_path, alone)


def test_a_killed_worker(alone, tmp_path):
    """The other one cannot go on. Both are started again, and go on where it was."""
    with workers(TRAIN, tmp_path, STEPS, 3) as (left, killed):
        killed.communicate(timeout=SECONDS)
        assert killed.returncode == -signal.SIGKILL
        left.kill()
        before = [json.loads(line) for line in left.communicate()[0].splitlines()]
    assert not list(tmp_path.glob("*.npz"))
    with workers(TRAIN, tmp_path, STEPS, -1) as started:
        after, other = map(printed_by, started)
    # The checkpoint of the last step may have been cut off.
    assert after == other and 3 <= len(after) <= 4
    losses = dict([*before, *after])
    assert [*losses] == [*range(STEPS)]
    assert_alike([[*losses.values()]], alone[:1])
    assert_trained_as_alone(tmp_path, alone)


def test_what_keras_does_of_itself():
    """`predict` works; `fit` and `evaluate` cannot read what is of two processes."""
    code = (
        PREPARE
        + """
for method in (model.fit, model.evaluate):
    try:
        method(IDS, LABELS, batch_size=16, verbose=0)
    except Exception as error:
        print(json.dumps(f"{type(error).__name__}: {error}"))
print(json.dumps(model.predict(IDS, batch_size=16, verbose=0).tolist()))
"""
    )
    expected = predict(make(*LAYERS))
    with workers(code) as started:
        for process in started:
            *messages, found = printed_by(process)
            assert len(messages) == 2
            for message in messages:
                assert message.startswith("ValueError: Attempt to convert a value (Per")
            assert_alike([found], [expected])
