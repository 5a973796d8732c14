"""Stand-ins for what cannot be had in a test: Docker, and the server's status."""

import contextlib
import http.server
import json
import shlex
import threading


class FakeDocker:
    """A `docker` in a folder, which says what it is told to and notes its calls."""

    # A command's answer is in files named after it: what it prints, its errors, what
    # it does and its exit code. `docker port NAME PORT` has them for each port.
    SCRIPT = """#!/bin/sh
cd {folder}
echo "$@" >> calls
key=$1
[ "$1" = port ] && key=$1$3
[ -f "$key.out" ] && cat "$key.out"
[ -f "$key.err" ] && cat "$key.err" >&2
[ -f "$key.sh" ] && . "./$key.sh"
[ -f "$key.code" ] && exit "$(cat "$key.code")"
exit 0
"""

    def __init__(self, folder):
        self.folder = folder
        self.path = f"{folder}:/usr/bin:/bin"
        (folder / "docker").write_text(
            self.SCRIPT.format(folder=shlex.quote(str(folder)))
        )
        (folder / "docker").chmod(0o755)
        self.answer("inspect", out="true\n")

    def answer(self, command, out="", err="", code=0):
        for suffix, text in (("out", out), ("err", err), ("code", str(code))):
            (self.folder / f"{command}.{suffix}").write_text(text)

    @property
    def calls(self):
        file = self.folder / "calls"
        return file.read_text().splitlines() if file.exists() else []


@contextlib.contextmanager
def serve_status(states_of):
    """Yield the address of a server that says which states a model's versions are in.

    Args:
        states_of: Gives them for a path, or None where there is no such model.
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            states = states_of(self.path)
            self.send_response(404 if states is None else 200)
            self.end_headers()
            versions = [
                {
                    "version": str(number),
                    "state": state,
                    "status": {
                        "error_code": "OK" if state == "AVAILABLE" else "UNAVAILABLE"
                    },
                }
                for number, state in enumerate(states or [], 1)
            ]
            status = {"model_version_status": versions}
            self.wfile.write(json.dumps(status, indent=1).encode())

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
