"""A service of a compose file as one container of plain Docker, removed in the end."""

import contextlib
import http.client
import json
import shutil
import signal
import subprocess
import time
import urllib.request
import uuid

GRPC, REST = 8500, 8501  # in the container


class ServeError(Exception):
    """The exit code, and what to tell without a traceback."""


def check_docker(image):
    if shutil.which("docker") is None:
        raise ServeError(3, f"Cannot run {image}: no `docker` was found.")
    run_docker(image, "version")
    if docker("image", "inspect", image).returncode:
        print(f"Pulling {image}", flush=True)
        run_docker(image, "pull", image)


def run_docker(image, *args):
    """Docker's part before the server runs: without it the image cannot be run."""
    done = docker(*args)
    if done.returncode:
        raise ServeError(3, f"Cannot run {image}: {last_line(done)}")


def docker(*args):
    return subprocess.run(
        ["docker", *args], capture_output=True, encoding="utf-8", errors="replace"
    )


def last_line(done):
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return lines[-1] if lines else f"`docker` ended with code {done.returncode}"


@contextlib.contextmanager
def container(service, sources):
    """Run a service of a compose file, and remove it however the block ends.

    Args:
        service: The service, as the file has it. Its ports become free ones.
        sources: What is mounted, the folder or file for each path in the container.
    """
    # A name of its own, known before the container is there: whenever this is
    # interrupted, that one is removed and no other.
    name = f"keras_pe-{uuid.uuid4().hex}"
    try:
        run_docker(service["image"], *run_arguments(service, sources, name))
        yield name
    finally:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        done = docker("rm", "--force", name)
        signal.signal(signal.SIGINT, before)
        if done.returncode and "No such container" not in done.stderr:
            raise ServeError(
                1, f"Remove the container {name} yourself: {last_line(done)}"
            )


def run_arguments(service, sources, name):
    args = ["run", "--detach", "--name", name]
    if service.get("init"):
        args.append("--init")
    for port in (GRPC, REST):
        args += ["--publish", f"127.0.0.1::{port}"]
    for target, source in sources.items():
        # Comma-separated values, of which a quoted one may have commas.
        args += ["--mount", f'type=bind,"source={source}",target={target},readonly']
    return [*args, service["image"], *service["command"]]


def address(name, port):
    """Where this machine finds the container's port."""
    lines = docker("port", name, str(port)).stdout.split()
    if not lines:
        raise stopped(name)
    return lines[0]


def wait(name, url, seconds):
    """Wait until the status at `url` has a version of the model that is available."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        state = docker("inspect", "--format", "{{.State.Running}}", name)
        if state.stdout.strip() != "true":
            raise stopped(name)
        if is_available(url):
            return
        time.sleep(0.2)
    raise ServeError(
        1, f"The model was not available after {seconds:g} seconds.{tail(name)}"
    )


def stopped(name):
    return ServeError(1, f"The server stopped before it had the model.{tail(name)}")


def tail(name):
    done = docker("logs", "--tail", "20", name)
    return f" Its log ends:\n{done.stdout}{done.stderr}".rstrip()


def is_available(url):
    # A proxy of the environment is not for this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=2) as reply:
            versions = json.load(reply)["model_version_status"]
    # Docker takes calls before the server does, and hangs up.
    except (OSError, http.client.HTTPException, ValueError, KeyError):
        return False
    return any(version["state"] == "AVAILABLE" for version in versions)
