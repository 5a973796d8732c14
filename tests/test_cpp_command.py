"""The command that loads a SavedModel in C++, and the warm-up requests that it runs."""

import json
import os
import re
import shutil
import subprocess
import sys

import cpp_models
import pytest
from cpp import SERVING, ask

pytestmark = pytest.mark.tensorflow

# What a server refuses, after one good request; and what is said of it.
BAD = {
    "raw": "Record 1 must be a PredictionLog",
    "other": "Record 1 must be a PredictionLog with `predict_log`.*regress_log",
    "signature": "record 1: `signature` must be of .*'serving_default'.*'none'",
    "key": "record 1: `inputs` must be of .'text'.*'texts'",
    "output": "record 1: `outputs` must be of .'length', 'upper'.*'size'",
    "dtype": "record 1: .*string.*int32",
    "rank": r"record 1: In\[0\]",
    "many": "at most 1000",
    "cut": "record is cut off",
    "damaged": "record is damaged",
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Versions 2 and 10, a good warm-up for each, and copies with a bad one."""
    folder = tmp_path_factory.mktemp("models")
    cpp_models.write_texts(folder / "texts" / "10")
    (folder / "texts" / "11.tmp").mkdir()
    (folder / "texts" / "\u0661\u0662").mkdir()  # digits, but not ASCII's
    shutil.copytree(folder / "texts" / "10", folder / "texts" / "2")
    write_warmup(folder / "texts" / "10", *make_good_logs())
    for name in BAD:
        version = shutil.copytree(folder / "texts" / "2", folder / name / "1")
        write_bad_warmup(version, name)
    return folder


def write_warmup(version, *logs):
    import tensorflow as tf

    path = version / "assets.extra" / "tf_serving_warmup_requests"
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for log in logs:
            writer.write(log.SerializeToString())
    return path


def make_log(values, name="", key="text", outputs=()):
    import tensorflow as tf
    from tensorflow_serving.apis import prediction_log_pb2

    log = prediction_log_pb2.PredictionLog()
    request = log.predict_log.request
    request.model_spec.signature_name = name
    request.inputs[key].CopyFrom(tf.make_tensor_proto(values))
    request.output_filter.extend(outputs)
    return log


def make_good_logs():
    numbers = make_log([[0.5, 2.0]], "numbers", "x")
    numbers.predict_log.request.inputs["x"].ClearField("tensor_content")
    numbers.predict_log.request.inputs["x"].float_val.append(0.5)  # for both of them
    return [
        make_log(["a" * length for length in range(500)], outputs=["length"]),
        make_log(["\u8d28\u91cf"], "serving_default"),
        make_log([["a"], ["b"]], "column"),
        numbers,
    ]


def write_bad_warmup(version, name):
    from tensorflow_serving.apis import prediction_log_pb2

    good = make_log(["a"])
    other = prediction_log_pb2.PredictionLog()
    other.regress_log.request.model_spec.name = "texts"
    bad = {
        "raw": good.predict_log.request,
        "other": other,
        "signature": make_log(["a"], "none"),
        "key": make_log(["a"], key="texts"),
        "output": make_log(["a"], outputs=["size"]),
        "dtype": make_log([1]),
        "rank": make_log([0.5, 2.0], "numbers", "x"),
    }
    path = write_warmup(version, good, bad.get(name, good))
    if name == "many":
        write_warmup(version, *[good] * 1001)
    elif name == "cut":
        path.write_bytes(path.read_bytes()[:-5])
    elif name == "damaged":
        data = bytearray(path.read_bytes())
        data[-6] ^= 1
        path.write_bytes(data)


def command(*args, **env):
    env = {**os.environ, "PYTHONPATH": "", **env}
    script = [sys.executable, SERVING / "cpp_runtime.py", *args]
    return subprocess.run(
        script, capture_output=True, encoding="utf-8", env=env, timeout=60
    )


def test_the_newest_version_its_warmup_and_texts(tf, models):
    (models / "texts" / "11").write_text("no folder")
    done = command(models / "texts", "\u8d28\u91cf", "abc", "")
    assert done.returncode == 0, done.stderr
    version = re.escape(str(models / "texts" / "10"))
    first, *lines = done.stdout.splitlines()
    assert re.fullmatch(rf"{version}, in TensorFlow {re.escape(tf.__version__)}", first)
    assert lines == [
        "column",
        "  input   text: string (None, 1)",
        "  output  length: int32 (None, 1)",
        "  output  upper: string (None, 1)",
        "numbers",
        "  input   x: float32 (None, 2)",
        "  output  y: float32 (None, 1)",
        "serving_default",
        "  input   text: string (None,)",
        "  output  length: int32 (None,)",
        "  output  upper: string (None,)",
        "4 warm-up requests ran",
        "length: [2, 3, 0]",
        "upper: ['\u8d28\u91cf', 'ABC', '']",
    ]


def test_other_ways_to_call_it(models, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "saved_model.pb").write_bytes(b"no model")
    texts, choice = models / "texts", "TEXT needs .*'column', 'numbers', 'serving_de"
    cases = [
        (0, r"upper: string \(None,\)\n$", texts / "2"),
        (
            0,
            r"upper: \[\['A'\], \['BC'\]\]\n$",
            texts,
            "--signature",
            "column",
            "a",
            "bc",
        ),
        (1, "folders 1, 2, .*none", models / "none"),
        (1, "folders 1, 2, .*empty", tmp_path / "empty"),
        (1, ": Cannot load '.*broken': ", tmp_path / "broken"),
        (1, "must have one TensorFlow.*empty", texts, "--libraries", "empty"),
        (2, choice, texts, "--signature", "numbers", "a"),
        (2, choice, texts, "a", "--signature", "none"),
        (2, "MODEL"),
        (2, "--version", texts, "--version"),
        *((1, message, models / name) for name, message in BAD.items()),
        (1, "need `pip install tensorflow-serving-api`", texts),
    ]
    ask(
        """
        import contextlib, io, json, re
        import cpp_runtime

        for code, message, *args in json.loads(sys.argv[1]):
            if "serving-api" in message:
                sys.modules["tensorflow_serving.apis"] = None
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                try:
                    got = cpp_runtime.main(args) or 0
                except SystemExit as error:
                    got = error.code
            out, err = out.getvalue(), err.getvalue()
            assert got == code, (args, got, out, err)
            assert re.search(message, err if code else out), (message, out, err)
            assert not code or "requests ran" not in out
        """,
        json.dumps(cases, default=str),
    )
