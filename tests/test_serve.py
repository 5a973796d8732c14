"""`make serve`: each way to end it, with a stand-in for Docker."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fakes import FakeDocker, serve_status

pytestmark = pytest.mark.tensorflow

SERVING = Path(__file__).parents[1] / "examples" / "serving"
STATUS = "/v1/models/text_classification"
ANSWER = "positive\t0.9000\t很好\nnegative\t0.8000\tbad\n"


@pytest.fixture
def docker(tmp_path):
    folder = tmp_path / "docker it's"
    folder.mkdir()
    docker = FakeDocker(folder)
    docker.answer("logs", out="loading\n", err="the end of the log\n")
    for port in (8500, 8501):  # where nobody listens
        docker.answer(f"port{port}", out="127.0.0.1:9\n")
    return docker


@pytest.fixture
def exports(tmp_path):
    (tmp_path / "exports" / "1").mkdir(parents=True)
    (tmp_path / "exports" / "1" / "saved_model.pb").touch()
    return tmp_path / "exports"


@pytest.fixture
def serve(monkeypatch, docker, exports):
    """Runs `serve.py` here, and returns its exit code."""
    monkeypatch.syspath_prepend(SERVING)
    monkeypatch.setenv("PATH", docker.path)
    # Not for this machine's own ports.
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    import serve

    def run(*args):
        return serve.main(["--saved-models", str(exports), "--timeout", "0.3", *args])

    run.module = serve
    return run


def name_of(docker):
    [call] = [call for call in docker.calls if call.startswith("run ")]
    return re.search(r"--name (keras_pe-[0-9a-f]{32}) ", call)[1]


def check_removed(docker):
    """The container is removed, last of all, and none but it."""
    assert docker.calls[-1] == f"rm --force {name_of(docker)}"
    assert sum(call.startswith("rm ") for call in docker.calls) == 1


def test_without_an_export(serve, docker, exports, capsys):
    (exports / "1").rename(exports / "new")
    assert serve() == 2
    assert (
        f"No exported model in {exports}: run `make example`" in capsys.readouterr().err
    )
    assert docker.calls == []


def test_without_docker(serve, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert serve() == 3
    printed = capsys.readouterr().err
    assert printed.startswith("Cannot run tensorflow/serving:")
    assert printed.endswith(": no `docker` was found.\n")


@pytest.mark.parametrize("command", ["version", "pull", "run"])
def test_docker_that_cannot_run_the_image(serve, docker, capsys, command):
    docker.answer("image", code=1)
    docker.answer(command, err="Using a default\nIt is down.\n\n", code=125)
    docker.answer("rm", err="Error: No such container: x\n", code=1)
    assert serve() == 3
    printed = capsys.readouterr()
    assert re.fullmatch(
        r"Cannot run tensorflow/serving:\S+: It is down.\n", printed.err
    )
    assert ("Pulling tensorflow/serving:" in printed.out) == (command != "version")
    if command == "run":
        check_removed(docker)
    else:
        assert not any(call.startswith("run ") for call in docker.calls)


def test_an_image_that_is_here_is_not_pulled(serve, docker):
    serve()
    assert not any(call.startswith("pull") for call in docker.calls)


def test_container_that_stops_at_once(serve, docker, capsys):
    docker.answer("inspect", out="false\n")
    assert serve() == 1
    assert capsys.readouterr().err == (
        "The server stopped before it had the model. Its log ends:\n"
        "loading\nthe end of the log\n"
    )
    assert f"logs --tail 20 {name_of(docker)}" in docker.calls
    check_removed(docker)


def test_container_that_has_no_ports_any_more(serve, docker, capsys):
    docker.answer("port8501", err="No public port", code=1)
    assert serve() == 1
    assert "The server stopped" in capsys.readouterr().err
    check_removed(docker)


def test_model_that_is_never_available(serve, docker, capsys):
    with serve_status(lambda path: ["LOADING"]) as address:
        docker.answer("port8501", out=f"{address}\n")
        assert serve() == 1
    assert capsys.readouterr().err.startswith(
        "The model was not available after 0.3 seconds. Its log ends:\nloading\n"
    )
    check_removed(docker)


@pytest.mark.parametrize("states", [["END"], ["UNKNOWN", "UNLOADING"], [], None])
def test_states_that_are_not_available(serve, states):
    import container

    with serve_status(lambda path: states) as address:
        assert not container.is_available(f"http://{address}{STATUS}")
    assert not container.is_available(f"http://{address}{STATUS}")  # is gone


@pytest.fixture
def server(docker):
    """A server whose model is available after a while."""
    states = iter([None, ["LOADING"], ["LOADING", "AVAILABLE"]])

    def states_of(path):
        assert path == STATUS
        return next(states)

    with serve_status(states_of) as address:
        docker.answer("port8501", out=f"{address}\n")
        docker.answer("port8500", out="127.0.0.1:1234\n")
        yield address


@pytest.fixture
def scripts(serve, monkeypatch, tmp_path):
    """Stand-ins for the client and the example, which print what they are told to."""

    def write(name, printed, code=0):
        script = tmp_path / f"{name.lower()}.py"
        script.write_text(
            "import sys\n"
            f"log = open({str(script.with_suffix('.log'))!r}, 'a')\n"
            "log.write(repr(sys.argv[1:]))\n"
            f"sys.stdout.write({printed!r})\n"
            f"sys.exit({code})\n",
            encoding="utf-8",
        )
        monkeypatch.setattr(serve.module, name, script)

    write("CLIENT", ANSWER)
    write("EXAMPLE", ANSWER)
    return write


def test_answers_that_agree(serve, docker, server, scripts, exports, tmp_path, capsys):
    assert serve("--timeout", "20", "good", "bad") == 0
    printed = capsys.readouterr()
    assert printed.out == f"REST:\n{ANSWER}gRPC:\n{ANSWER}Python:\n{ANSWER}"
    assert printed.err == ""
    rest = ["--rest", f"http://{server}", "good", "bad"]
    grpc = ["--grpc", "127.0.0.1:1234", "good", "bad"]
    assert (tmp_path / "client.log").read_text() == f"{rest}{grpc}"
    example = ["--saved-models", str(exports), "--predict", "good", "bad"]
    assert (tmp_path / "example.log").read_text() == f"{example}"
    check_removed(docker)


def test_answers_that_differ(serve, docker, server, scripts, capsys):
    scripts("EXAMPLE", ANSWER.replace("0.9000", "0.9003"))
    assert serve("--timeout", "20") == 1
    assert capsys.readouterr().err == "REST does not answer what Python does.\n"
    check_removed(docker)


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (ANSWER, True),
        (ANSWER.replace("0.9000", "0.9001"), True),
        (ANSWER.replace("0.8000", "0.7997"), False),
        (ANSWER.replace("positive", "negative"), False),
        (ANSWER.replace("很好", "好"), False),
        (ANSWER.partition("\n")[0] + "\n", False),
        ("", False),
    ],
)
def test_agreement(serve, other, same):
    assert serve.module.agree(ANSWER, other) == same


@pytest.mark.parametrize("name", ["CLIENT", "EXAMPLE"])
def test_script_that_fails(serve, docker, server, scripts, capsys, name):
    scripts(name, "no answer", code=4)
    assert serve("--timeout", "20") == 1
    assert capsys.readouterr().err == f"{name.lower()}.py ended with 4:\nno answer\n"
    check_removed(docker)


def test_container_that_cannot_be_removed(serve, docker, server, scripts, capsys):
    docker.answer("rm", err="device busy\n", code=1)
    assert serve("--timeout", "20") == 1
    name = name_of(docker)
    expected = f"Remove the container {name} yourself: device busy\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interruption(docker, exports, number):
    assert interrupt(docker, exports, number) == (130, "Interrupted.\n")
    check_removed(docker)


def test_interruption_once_more_while_the_container_is_removed(docker, exports):
    # Longer than Python leaves a process that is interrupted with it.
    (docker.folder / "rm.sh").write_text(
        "kill -INT $PPID\nsleep 0.5\necho removed >> calls\n"
    )
    assert interrupt(docker, exports, signal.SIGINT) == (130, "Interrupted.\n")
    assert docker.calls[-1] == "removed"


def interrupt(docker, exports, number):
    """Sends a signal to `serve.py` once it waits for the model."""
    process = subprocess.Popen(
        [sys.executable, SERVING / "serve.py", "--saved-models", exports],
        env={**os.environ, "PATH": docker.path},
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    deadline = time.monotonic() + 20
    while not any(call.startswith("inspect") for call in docker.calls):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    _, printed = process.communicate(timeout=20)
    return process.returncode, printed
