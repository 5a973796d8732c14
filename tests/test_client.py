"""The client of TensorFlow Serving, against the fixtures of both protocols."""

import contextlib
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import keras
import numpy as np
import pytest
import rest_fixture
from classifier import example
from processes import run

from keras_pe.serving import export

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "serving"))

import client
import protocols
import tensors

pytestmark = pytest.mark.tensorflow

ROOT = Path(__file__).parents[1]
SCRIPT = Path(client.__file__)
TEXTS = ["a b", "", "b a c zz", "한국어 \U0001f600 a\tb\n", "a " * 5_000, "nul \0 a"]
PROTOCOLS = ("rest", "grpc")


@pytest.fixture(scope="module")
def model():
    """What the example makes, untrained."""
    keras.utils.set_random_seed(0)
    args = example.make_parser().parse_args(["--dim", "16", "--split", "words"])
    tokenizer = example.make_tokenizer(["a b c"], args)
    vocabulary = tokenizer.get_layer("vectorize").vocabulary_size()
    classifier = example.make_classifier(vocabulary, 3, args)
    text = keras.Input((), dtype="string", name="text")
    return keras.Model(text, classifier(tokenizer(text)))


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    from serving_models import write_models

    folder = tmp_path_factory.mktemp("served")
    write_models(folder)
    export(model, folder / "text_classification", labels=["x", "y y", "z"])
    shutil.copytree(
        folder / "text_classification" / "1", folder / "text_classification" / "10"
    )
    return folder


@pytest.fixture(scope="module")
def target(folder):
    """The gRPC fixture, in a process of its own."""
    command = [sys.executable, ROOT / "tests" / "grpc_fixture.py", folder]
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with subprocess.Popen(command, **pipes) as server:
        yield f"127.0.0.1:{int(server.stdout.readline())}"
        server.stdin.close()
        assert server.wait(timeout=30) == 0


@pytest.fixture
def recorded():
    with rest_fixture.serve_records() as url:
        yield url


@contextlib.contextmanager
def serve(status=200, content=None):
    """A stub that labels each text with the text; its requests, and its URL."""
    bodies = []

    def answer(path, body):
        bodies.append(json.loads(body))
        rows = [
            {"label": row["text"], "probabilities": [0.25, 0.75]}
            for row in bodies[-1]["instances"]
        ]
        return status, content or json.dumps({"predictions": rows}).encode()

    with rest_fixture.serve(answer) as url:
        yield url, bodies


def option(protocol, server):
    """Options for the client; `server` is a port or an address."""
    server = f"127.0.0.1:{server}" if isinstance(server, int) else server
    address = server if protocol == "grpc" or "//" in server else f"http://{server}"
    return [f"--{protocol}", address]


def check_fails(capsys, options, message):
    assert client.main([*options, "abc"]) == 1
    out, error = capsys.readouterr()
    assert out == ""
    assert error.count("\n") == 1 and error.endswith("\n")
    with pytest.raises(ValueError, match=message):
        raise ValueError(error)


# What is answered.


def test_grpc_gives_what_keras_gives(tf, model, target):
    expected = model(tf.constant(TEXTS)).numpy()
    answers = client.predict_grpc(TEXTS, target, "text_classification")
    rows = [answer["probabilities"] for answer in answers]
    np.testing.assert_allclose(rows, expected, atol=1e-5)
    assert [list(answer) for answer in answers] == [["label", "probabilities"]] * 6
    labels = [answer["label"] for answer in answers]
    assert labels == [["x", "y y", "z"][row.argmax()] for row in expected]


def test_script_asks_by_grpc_without_starting_tensorflow(tf, model, target):
    printed = run(
        """
        import sys
        sys.path.insert(0, sys.argv[1])
        import client
        assert client.main(sys.argv[2:]) == 0
        print("started", {"tensorflow.python", "keras", "requests"} & set(sys.modules))
        """,
        *(SCRIPT.parent, "--grpc", target, *TEXTS[:4]),
        env={"PYTHONIOENCODING": "utf-8"},
    )
    expected = model(tf.constant(TEXTS[:4])).numpy()
    assert printed.splitlines() == [
        f"{['x', 'y y', 'z'][row.argmax()]}\t{row.max():.4f}\t{' '.join(text.split())}"
        for text, row in zip(TEXTS[:4], expected, strict=True)
    ] + ["started set()"]


def test_script_asks_by_rest(recorded):
    command = [sys.executable, SCRIPT, "--rest", recorded, "--model", "text"]
    done = subprocess.run(command, input=b"abc\nde", capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"echo": "abc", "echo_bytes": {"b64": "YWJj"}, "n": 3, "score": [1.0, 0.1]},
        {
            "echo": "de",
            "echo_bytes": {"b64": "ZGU="},
            "n": 2,
            "score": [0.666666687, 0.1],
        },
    ]


def test_rest_and_grpc_give_the_same_rows(recorded, target):
    [one, two] = (
        ask(["abc", "de"], server, "text")
        for ask, server in (
            (client.predict_rest, recorded),
            (client.predict_grpc, target),
        )
    )
    for row, other in zip(one, two, strict=True):
        np.testing.assert_allclose(row.pop("score"), other.pop("score"), rtol=1e-7)
        assert row == other
    assert one[0] == {"echo": "abc", "echo_bytes": b"abc", "n": 3}
    client.predict_rest(["abc", "de"], recorded, "text", version=1)
    client.predict_grpc(["abc", "de"], target, "text", version=1, signature="alt")


def test_recorded_rest_answers_are_those_of_the_runtime(target):
    """So the gRPC fixture and the recorded pairs are of the same models."""
    checked = 0
    for record in rest_fixture.RECORDS:
        if "predictions" not in (record["response"] or ()):
            continue
        rows = json.loads(record["request"])["instances"]
        content = json.dumps(record["response"]).encode()
        recorded = protocols.read_rest(200, content, len(rows), "")
        answered = predict(target, record["model"], rows)
        for row, other in zip(recorded, answered, strict=True):
            if list(row) == ["predictions"]:
                row = dict.fromkeys(other, *row.values())
            assert row.keys() == other.keys()
            for name in row:
                if np.array(row[name]).dtype.kind in "SU":
                    assert row[name] == other[name]
                else:
                    np.testing.assert_allclose(row[name], other[name], rtol=1e-7)
        checked += 1
    assert checked == 16


def predict(target, model, rows):
    """Asks the gRPC fixture as any client would, with arrays of the model's dtypes."""
    import grpc
    from messages import to_proto
    from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

    name = "text" if model == "text" else "x"
    if isinstance(rows[0], dict) and "b64" not in rows[0]:
        columns = {name: [row[name] for row in rows] for name in rows[0]}
    else:
        columns = {name: rows}
    dtypes = {"text": object, "ids": "int64", "i": "int32", "b": bool}
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    for name, column in columns.items():
        array = np.array(protocols.read_value(column), dtypes.get(name, "float32"))
        request.inputs[name].CopyFrom(to_proto(array))
    with grpc.insecure_channel(target) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        return protocols.read_grpc(stub.Predict(request), len(rows), target)


def test_signature_is_asked_for_as_recorded():
    """The recorded pair has its rows without the input's name, which is as good."""
    [record] = [r for r in rest_fixture.RECORDS if '"alt"' in r["request"]]
    expected = json.loads(record["request"])
    expected["instances"] = [{"text": text} for text in expected["instances"]]
    with serve() as (url, bodies):
        client.predict_rest(["abc"], url, "text", signature="alt")
    assert bodies == [expected]


@pytest.mark.parametrize("dtype", sorted(tensors.FIELDS))
@pytest.mark.parametrize("size", [0, 1, 3])
def test_tensors_are_read_as_tensorflow_writes_them(tf, dtype, size):
    """Above one value that is as bytes; the gRPC fixture writes fields."""
    values = [[b"a"], [b""], [b"\xff"]] if dtype == 7 else [[1], [0], [1]]
    array = np.array(values, tf.as_dtype(dtype).as_numpy_dtype)[:size]
    read = tensors.from_proto(tf.make_tensor_proto(array, dtype))
    np.testing.assert_array_equal(read, array, strict=True)


def test_tensor_of_an_unknown_type_is_refused(tf):
    proto = tf.make_tensor_proto([1j])
    with pytest.raises(ValueError, match=r"type of a tensor must be .* Received: 18"):
        tensors.from_proto(proto)


# Texts in, lines out.


def test_ten_thousand_texts_are_answered_in_order(target, monkeypatch, capsys):
    texts = [f"text {i}" for i in range(10_000)]
    with serve() as (url, bodies):
        assert client.main([*option("rest", url), *texts]) == 0
    assert [len(body["instances"]) for body in bodies] == [64] * 156 + [16]
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"{text}\t0.7500\t{text}" for text in texts]
    feed(monkeypatch, "\n".join(texts).encode())
    assert client.main([*option("grpc", target), "--model=text"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["echo"] for line in lines] == texts


def feed(monkeypatch, content):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_first_batch_is_answered_before_the_input_ends(target):
    options = [*option("grpc", target), "--model=text", "--batch-size=1"]
    with start(options, stdin=subprocess.PIPE) as process:
        for text in ("one", "", "two"):
            process.stdin.write(f"{text}\n".encode())
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["echo"] == text
        process.stdin.close()
        assert process.wait(timeout=30) == 0


@contextlib.contextmanager
def start(options, **kwargs):
    """The script in a process of its own, which is not waited for without end."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, **kwargs)
    with subprocess.Popen([sys.executable, SCRIPT, *options], **pipes) as process:
        timer = threading.Timer(30, process.kill)
        timer.start()
        try:
            yield process
            process.wait()
        finally:
            timer.cancel()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_bytes_that_are_not_utf8_and_blank_lines(protocol, target, monkeypatch, capsys):
    feed(monkeypatch, b"a\xffb\r\n\n\xe4\xb8\n \tx\x85\n\xed\xa0\x80")
    with serve() as (url, bodies):
        server = {"rest": url, "grpc": target}[protocol]
        assert client.main([*option(protocol, server), "--model=text"]) == 0
    lines = capsys.readouterr().out.split("\n")
    expected = ["a\ufffdb", "", "\ufffd", " \tx\ufffd", "\ufffd" * 3]
    if protocol == "rest":
        assert [row["text"] for row in bodies[0]["instances"]] == expected
        expected = ["a\ufffdb", "", "\ufffd", "x\ufffd", "\ufffd" * 3]
        assert lines == [f"{text}\t0.7500\t{text}" for text in expected] + [""]
    else:
        assert [json.loads(line)["echo"] for line in lines[:-1]] == expected


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_arguments_that_are_not_utf8(protocol, target, capsys):
    with serve() as (url, _):
        server = {"rest": url, "grpc": target}[protocol]
        options = [*option(protocol, server), "--model=text"]
        assert client.main([*options, "a\udcffb", "", "\ud800"]) == 0
    first, second, third = capsys.readouterr().out.splitlines()
    assert "a\ufffdb" in first and "\ufffd" in third and "\ufffd" not in second


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_texts_ask_nothing(protocol, monkeypatch, capsys):
    feed(monkeypatch, b"")
    assert client.main(option(protocol, 1)) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_large_texts(protocol, target):
    """A batch of 8 MB in, and over gRPC 16 MB out, four times gRPC's default limit."""
    texts = [f"{i} " * 500_000 for i in range(8)]
    with serve() as (url, _):
        if protocol == "rest":
            rows = client.predict_rest(texts, url, "text", timeout=60)
            assert [row["label"] for row in rows] == texts
        else:
            rows = client.predict_grpc(texts, target, "text", timeout=60)
            assert [row["echo"] for row in rows] == texts


def test_batches_are_split_by_their_size_too(monkeypatch):
    monkeypatch.setattr(client, "MAX_CHARACTERS", 10)
    texts = ["aaaa", "bbbb", "cc", "d", "", "e" * 30, "f", "g", "h", "i"]
    assert list(client.split(iter(texts), 3)) == [
        ["aaaa", "bbbb", "cc"],
        ["d", ""],
        ["e" * 30],
        ["f", "g", "h"],
        ["i"],
    ]


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ({"label": "a\tb", "probabilities": [0.1, 0.9]}, "a b\t0.9000\tx y"),
        ({"label": "a", "probabilities": [1]}, "a\t1.0000\tx y"),
        ({"label": "a", "probabilities": [0.5, None]}, None),
        ({"label": "a", "probabilities": [0.5, "x"]}, None),
        ({"label": "a", "probabilities": [10**400]}, None),
        ({"label": "\ud800", "probabilities": [0.5]}, "\ufffd\t0.5000\tx y"),
        ({"label": "a"}, '{"label": "a"}'),
        ({"label": "a", "probabilities": []}, '{"label": "a", "probabilities": []}'),
        ({"label": 1, "probabilities": [0.5]}, '{"label": 1, "probabilities": [0.5]}'),
        ({"b": b"\xff", "a": [float("nan")]}, '{"a": [NaN], "b": {"b64": "/w=="}}'),
        ({"predictions": "\u8d28\n"}, '{"predictions": "\u8d28\\n"}'),
    ],
)
def test_line_of_an_answer(outputs, expected):
    line = client.format_line("x\t\ny", outputs)
    assert line == (json.dumps(outputs) if expected is None else expected)


# What goes wrong.


@pytest.mark.parametrize(
    ("status", "content", "message"),
    [
        (200, b"<html>hello</html>", "answered 200, and not as TensorFlow Serving"),
        (200, b"[" * 100_000, "answered 200, and not as TensorFlow Serving"),
        (200, b"\xff\x00", "answered 200, and not as TensorFlow Serving"),
        (200, b'{"predictions": "a"}', "answered 200, and not as TensorFlow Serving"),
        (200, b'{"predictions": {"a": 1}}', "answered 200, and not as TensorFlow Se"),
        (200, b"null", "answered 200, and not as TensorFlow Serving"),
        (200, b'{"outputs": [1]}', "answered 200, and not as TensorFlow Serving"),
        (200, b'{"predictions": [1, 2]}', "answered 200, and not as TensorFlow Serv"),
        (200, b'{"predictions": [{"b64": "a"}]}', "answered 200, and not as TensorF"),
        (302, b"moved", "answered 302, and not as TensorFlow Serving does: 'moved'"),
        (404, b"Not found", "answered 404, and not as TensorFlow Serving does: 'Not"),
        (502, b"<h1>Bad\nGateway</h1>" * 99, r"answered 502, and not .*'<h1>Bad\\nG"),
        (503, b'{"error": "not\\nready"}', "http://.* answered 503: not ready\n"),
        (400, json.dumps({"error": "x" * 5000}).encode(), r"400: x{398} \.\.\.\n"),
    ],
)
def test_bad_rest_answers(status, content, message, capsys):
    with serve(status, content) as (url, _):
        check_fails(capsys, option("rest", url), message)


def test_a_rest_server_without_the_model(recorded, capsys):
    options = option("rest", recorded)
    message = r"404: Servable not found for request: Latest\(text_classification\)"
    check_fails(capsys, options, message)
    check_fails(capsys, [*options, "--model=a/b"], r"404: .*Latest\(a%2Fb\)")
    message = r"404: Servable not found for request: Specific\(text, 3\)"
    check_fails(capsys, [*options, "--model=text", "--version=3"], message)


def test_a_wrong_input_for_rest(recorded, capsys, monkeypatch):
    options = ["client.py", *option("rest", recorded), "--model=text", "--input=nope"]
    monkeypatch.setattr(sys, "argv", [*options, "x"])
    assert client.main() == 1
    assert "answered 400: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model=nope"], r"answered NOT_FOUND: Servable .* Latest\(nope\)"),
        (["--version=3"], r"answered NOT_FOUND: Servable .* Specific\(text, 3\)"),
        (["--signature=nope"], 'FAILED_PRECONDITION: Serving signature key "nope" not'),
        (["--input=nope"], r"answered INVALID_ARGUMENT: .*nope"),
        (["--model=single", "--input=x"], "INVALID_ARGUMENT: .*float but string"),
    ],
)
def test_what_a_grpc_server_refuses(options, message, target, capsys):
    check_fails(capsys, [*option("grpc", target), "--model=text", *options], message)


def test_grpc_outputs_without_a_row_for_each_text(tf):
    from tensorflow_serving.apis import predict_pb2

    for output in ([1.0], 1.0, [[1.0, 2.0]]):
        response = predict_pb2.PredictResponse()
        response.outputs["y"].CopyFrom(tf.make_tensor_proto(output))
        with pytest.raises(client.ServerError, match="s answered 'y' wrongly: 2 rows"):
            protocols.read_grpc(response, 2, "s")
    response.outputs["y"].tensor_shape.dim[0].size = 2
    with pytest.raises(client.ServerError, match="wrongly: cannot reshape"):
        protocols.read_grpc(response, 2, "s")


def test_a_host_that_cannot_be(capsys):
    options = option("rest", f"http://{'a' * 70}.x")
    check_fails(capsys, options, "Cannot reach a server at http://aaa")


def test_output_in_an_encoding_that_lacks_a_character(target):
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, SCRIPT, *option("grpc", target), "\u8d28"]
    done = subprocess.run(command, env=env, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(b"\t\\u8d28\n")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_server(protocol, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        options = option(protocol, taken.getsockname()[1])
        message = r"Cannot reach a server at \S*127.*Connection refused"
        check_fails(capsys, options, message)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_server_that_does_not_answer(protocol, capsys):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = option(protocol, silent.getsockname()[1])
        message = r"127\S* did not answer within 0.2 seconds"
        check_fails(capsys, [*options, "--timeout=0.2"], message)


def test_rest_of_a_grpc_server(target, capsys):
    check_fails(capsys, option("rest", target), "does not speak HTTP")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_proxies_are_not_asked_about_this_machine(protocol, target, monkeypatch):
    for name in ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
        monkeypatch.setenv(name.upper(), "http://127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    with serve() as (url, _):
        server = {"rest": url, "grpc": target}[protocol]
        assert client.main([*option(protocol, server), "--model=text", "abc"]) == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_missing_package_names_the_extra(protocol, monkeypatch, capsys):
    package = {"rest": "requests", "grpc": "tensorflow_serving.apis"}[protocol]
    monkeypatch.setitem(sys.modules, package, None)
    message = rf"{package}.*: pip install '\.\[serving\]'"
    check_fails(capsys, option(protocol, 1), message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--batch-size=0"], "`--batch-size` must be at least 1. Received: 0"),
        (["--timeout=0"], "`--timeout` must be above 0 .* Received: 0.0"),
        (["--timeout=nan"], "`--timeout` must be above 0 .* Received: nan"),
        (["--timeout=inf"], "`--timeout` must be above 0 .* Received: inf"),
        (["--version=-1"], "`--version` must be at least 0 .* Received: -1"),
        (["--version=x"], "--version: invalid int value: 'x'"),
        (["--model="], "`--model` must be a name. Received: ''"),
        (["--rest=127.0.0.1:8501"], "`--rest` must be a URL like http://.*'127.0"),
        (["--rest=ftp://x"], "`--rest` must be a URL"),
        (["--rest=http://"], "`--rest` must be a URL"),
        (["--rest=http://x:99999"], "`--rest` must be a URL"),
        (["--rest=http://[::1"], "`--rest` must be a URL"),
        (["--rest=http://x/?y"], "`--rest` must be a URL"),
        (["--grpc=http://127.0.0.1:8500"], "`--grpc` must be like 127.0.0.1:8500. .*h"),
        (["--grpc=127.0.0.1"], "`--grpc` must be like 127.0.0.1:8500"),
        (["--grpc=127.0.0.1:8500/x"], "`--grpc` must be like 127.0.0.1:8500"),
        (["--grpc="], "`--grpc` must be like 127.0.0.1:8500"),
        (["--rest=http://x", "--grpc=x:1"], "--grpc: not allowed with argument --rest"),
    ],
)
def test_bad_options_are_refused(options, message, capsys):
    with pytest.raises(SystemExit) as stop:
        client.main([*options, "abc"])
    assert stop.value.code == 2
    out, error = capsys.readouterr()
    assert (out, error.count("\n")) == ("", 1)
    with pytest.raises(ValueError, match=message):
        raise ValueError(error)


def test_reader_that_stops_reading_ends_it_quietly():
    with serve() as (url, _):
        texts = (f"text {i}" for i in range(5000))
        with start([*option("rest", url), *texts]) as process:
            assert process.stdout.readline() == b"text 0\t0.7500\ttext 0\n"
            process.stdout.close()
            assert process.stderr.read() == b""
        assert process.returncode == 141


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_interrupt_ends_it_quietly(protocol):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = option(protocol, silent.getsockname()[1])
        with start([*options, "abc"]) as process:
            silent.settimeout(30)
            with silent.accept()[0]:
                process.send_signal(signal.SIGINT)
                assert process.communicate(timeout=30) == (b"", b"")
        assert process.returncode == 130


# The fixtures, where no test above would notice.


def test_a_request_that_was_never_recorded_fails_the_test():
    with pytest.raises(AssertionError, match="never seen"):
        with rest_fixture.serve_records() as url:
            with pytest.raises(client.ServerError, match="answered 599"):
                client.predict_rest(["never seen"], url, "text")


def test_grpc_fixture_takes_the_newest_version_and_the_outputs_asked_for(target):
    import grpc
    from messages import to_proto
    from tensorflow_serving.apis import (
        get_model_status_pb2,
        model_service_pb2_grpc,
        predict_pb2,
        prediction_service_pb2_grpc,
    )

    request = predict_pb2.PredictRequest(output_filter=["label"])
    request.model_spec.name = "text_classification"
    request.inputs["text"].CopyFrom(to_proto(["a"]))
    with grpc.insecure_channel(target) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        response = stub.Predict(request)
        status = get_model_status_pb2.GetModelStatusRequest()
        status.model_spec.name = "text_classification"
        stub = model_service_pb2_grpc.ModelServiceStub(channel)
        [version] = stub.GetModelStatus(status).model_version_status
        status.model_spec.name = "nope"
        with pytest.raises(grpc.RpcError, match="NOT_FOUND"):
            stub.GetModelStatus(status)
    assert list(response.outputs) == ["label"]
    spec = response.model_spec
    assert (spec.version.value, spec.signature_name) == (10, "serving_default")
    assert (version.version, version.State.Name(version.state)) == (10, "AVAILABLE")
