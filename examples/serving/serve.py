"""Serve the newest export in the official TensorFlow Serving image, and ask it.

    make example                                # exports a version
    python examples/serving/serve.py [TEXT ...]

Runs the image, the flags and the mounts of compose.yaml with plain Docker, on free
ports of 127.0.0.1; asks by REST and by gRPC with client.py; compares that with what
Python makes of the export; and removes the container, however it ends. Exit codes:
0 all agree, 1 the server or an answer failed, 2 there is no export, 3 the image cannot
be run here, 130 interrupted.
"""

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

import yaml
from container import GRPC, REST, ServeError, address, check_docker, container, wait

HERE = Path(__file__).resolve().parent
CLIENT = HERE / "client.py"
EXAMPLE = HERE.parent / "text_classification.py"
MODEL = "text_classification"
EXPORTS = HERE.parents[1] / "saved_models" / MODEL
TEXTS = ["质量很好", "再也不买了"]


def main(argv=None):
    args = make_parser().parse_args(argv)
    try:
        check_export(args.saved_models)
        service = read_service()
        check_docker(service["image"])
        with container(service, mounts(service, args.saved_models)) as name:
            rest, grpc = address(name, REST), address(name, GRPC)
            wait(name, f"http://{rest}/v1/models/{MODEL}", args.timeout)
            exports = ("--saved-models", args.saved_models)
            compare(
                REST=ask(CLIENT, "--rest", f"http://{rest}", *args.texts),
                gRPC=ask(CLIENT, "--grpc", grpc, *args.texts),
                Python=ask(EXAMPLE, *exports, "--predict", *args.texts),
            )
    except ServeError as error:
        code, message = error.args
        print(message, file=sys.stderr)
        return code
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 130
    return 0


def make_parser():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("texts", nargs="*", default=TEXTS, metavar="TEXT", help="what to classify")
    add("--saved-models", type=Path, default=EXPORTS, help="folder of the versions")
    add("--timeout", type=float, default=120, help="seconds to wait for the model")
    return parser


def check_export(folder):
    if not any(path.parent.name.isdigit() for path in folder.glob("*/saved_model.pb")):
        raise ServeError(2, f"No exported model in {folder}: run `make example` first.")


def read_service():
    compose = yaml.safe_load((HERE / "compose.yaml").read_text("utf-8"))
    [service] = compose["services"].values()
    return service


def mounts(service, exports):
    sources = {
        volume["target"]: (HERE / volume["source"]).resolve()
        for volume in service["volumes"]
    }
    return {**sources, f"/models/{MODEL}": exports.resolve()}


def ask(script, *args):
    """Return what a script prints: a line a text, of label, probability and text."""
    done = subprocess.run(
        [sys.executable, script, *args],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    if done.returncode:
        output = f"{done.stdout}{done.stderr}".rstrip()
        raise ServeError(1, f"{script.name} ended with {done.returncode}:\n{output}")
    return done.stdout


def compare(**answers):
    for way, printed in answers.items():
        print(f"{way}:\n{printed}", end="", flush=True)
    for way, printed in answers.items():
        if not agree(answers["Python"], printed):
            raise ServeError(1, f"{way} does not answer what Python does.")


def agree(expected, printed):
    expected, rows = (
        [line.split("\t") for line in text.splitlines()] for text in (expected, printed)
    )
    return len(rows) == len(expected) and all(
        (label, text) == (its_label, its_text)
        # In print they differ by one digit where rounding falls on another side.
        and abs(float(probability) - float(its_probability)) < 2e-4
        for (label, probability, text), (its_label, its_probability, its_text) in zip(
            rows, expected, strict=True
        )
    )


if __name__ == "__main__":
    # As Ctrl-C, so that the container is removed.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    sys.exit(main())
