"""Fixtures of a REST server: what TensorFlow Serving's request code answered, replayed.

`data/rest_answers.jsonl` was recorded from the request code of TensorFlow Serving at
commit 9d981c5c of 2026-07-30, for the models of serving_models.py: a body, a status
and, where it is OK, the JSON of the answer. Of an error the text was not recorded, nor
of a model that is not there: those `{"error": ...}` are invented.
"""

import contextlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

RECORDS = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "rest_answers.jsonl")
    .read_text("utf-8")
    .splitlines()
]
STATUSES = {"OK": 200, "INVALID_ARGUMENT": 400}
PATH = re.compile(r"/v1/models/([^/:]+)(?:/versions/(\d+))?:predict")


@contextlib.contextmanager
def serve(answer):
    """The URL of a local server that gives `answer(path, body) -> (status, bytes)`."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, content = answer(self.path, body)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            if status == 302:
                self.send_header("Location", "/")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            with contextlib.suppress(BrokenPipeError):  # a client that did not wait
                self.wfile.write(content)

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def serve_records():
    """A server that knows the recorded requests, and fails the test on any other."""
    unknown = []
    answers = {
        (record["model"], canonical(record["request"])): record for record in RECORDS
    }
    models = {record["model"] for record in RECORDS}

    def answer(path, body):
        model, version = PATH.fullmatch(path).groups()
        if model not in models or version not in (None, "1"):
            wanted = f"Specific({model}, {version})" if version else f"Latest({model})"
            return 404, error(f"Servable not found for request: {wanted}")
        record = answers.get((model, canonical(body)))
        if record is None:
            unknown.append((path, body))
            return 599, error("This request was never recorded")
        if record["status"] != "OK":
            return STATUSES[record["status"]], error("invented text of an error")
        return 200, json.dumps(record["response"]).encode()

    with serve(answer) as url:
        yield url
    assert not unknown, f"never recorded: {unknown}"


def canonical(body):
    try:
        return json.dumps(json.loads(body), sort_keys=True)
    except ValueError:
        return body if isinstance(body, str) else body.decode()


def error(text):
    return json.dumps({"error": text}).encode()
