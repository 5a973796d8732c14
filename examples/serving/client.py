"""Ask a TensorFlow Serving server for the class of texts.

    python examples/serving/client.py TEXT ...                        # by REST
    python examples/serving/client.py --grpc 127.0.0.1:8500 TEXT ...  # by gRPC
    python examples/serving/client.py < texts.txt                     # one a line

Prints label, probability and text, one line a text, in order; or, of a model without
the outputs `label` and `probabilities`, all outputs as JSON. A blank line is an empty
text, and what is not UTF-8 becomes U+FFFD: each line in gives one line out. gRPC needs
`pip install '.[serving]'`.
"""

import argparse
import base64
import json
import os
import sys
from urllib.parse import urlsplit

from protocols import ServerError, clean, predict_grpc, predict_rest

# Fuller batches are sent in parts, whatever `--batch-size`: below 64 MB a request, of
# the 2 GB that gRPC can take.
MAX_CHARACTERS = 2**24


def main(argv=None):
    parser = make_parser()
    args = parser.parse_args(argv)
    check_options(parser, args)
    # Rather than an error where the terminal's encoding lacks a character.
    sys.stdout.reconfigure(errors="backslashreplace")
    ask, server = (predict_grpc, args.grpc) if args.grpc else (predict_rest, args.rest)
    options = {
        "model": args.model,
        "input_name": args.input,
        "signature": args.signature,
        "version": args.version,
        "timeout": args.timeout,
    }
    try:
        texts = args.texts or read_lines(sys.stdin.buffer)
        for batch in split(texts, args.batch_size):
            answers = ask(batch, server, **options)
            for text, outputs in zip(batch, answers, strict=True):
                print(format_line(text, outputs))
            sys.stdout.flush()
    except (ServerError, ImportError) as error:
        hint = "" if isinstance(error, ServerError) else ": pip install '.[serving]'"
        print(f"{parser.prog}: error: {error}{hint}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Who reads, like `head`, has enough; Python flushes once more as it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return 130
    return 0


# Options.


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"{self.prog}: error: {message}\n")


def make_parser():
    parser = Parser(
        description=__doc__.partition("\n")[0],
        allow_abbrev=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("texts", nargs="*", metavar="TEXT", help="none: the lines of standard input")
    server = parser.add_mutually_exclusive_group()
    server.add_argument(
        "--rest", default="http://127.0.0.1:8501", metavar="URL", help="server"
    )
    server.add_argument("--grpc", metavar="HOST:PORT", help="server, asked by gRPC")
    add("--model", default="text_classification", help="its name on the server")
    add("--version", type=int, metavar="N", help="None: the newest")
    add("--signature", help="None: serving_default")
    add("--input", default="text", help="name of the one input")
    add("--batch-size", type=int, default=64, help="texts a request")
    add("--timeout", type=float, default=10.0, help="seconds for each request")
    return parser


def check_options(parser, args):
    for option, ok, allowed in (
        ("rest", is_url(args.rest), "a URL like http://127.0.0.1:8501"),
        ("grpc", is_url(f"http://{args.grpc}", port=True), "like 127.0.0.1:8500"),
        ("model", args.model, "a name"),
        ("version", 0 <= (args.version or 0) < 2**63, "at least 0 and below 2**63"),
        ("batch_size", args.batch_size >= 1, "at least 1"),
        ("timeout", 0 < args.timeout <= 86400, "above 0 and at most a day, 86400"),
    ):
        if not ok and getattr(args, option) is not None:
            parser.error(
                f"`--{option.replace('_', '-')}` must be {allowed}. "
                f"Received: {getattr(args, option)!r}"
            )


def is_url(text, port=False):
    try:
        url = urlsplit(text)
        return (
            url.scheme in ("http", "https")
            and bool(url.hostname)
            and url.port != 0
            and not (url.query or url.fragment or any(map(str.isspace, text)))
            and not (port and (url.port is None or url.path or url.username))
        )
    except ValueError:
        return False


# Texts in, lines out.


def read_lines(file):
    for line in file:
        yield line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace")


def split(texts, size):
    """Yields lists of at most `size` texts, shorter ones of long texts."""
    batch, characters = [], 0
    for text in texts:
        if batch and characters + len(text) > MAX_CHARACTERS:
            yield batch
            batch, characters = [], 0
        batch.append(text)
        characters += len(text)
        if len(batch) == size:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def format_line(text, outputs):
    match outputs:
        case {
            "label": str(label),
            "probabilities": [_, *_] as probabilities,
        } if all(is_probability(number) for number in probabilities):
            # One line, three fields: tabs and newlines become spaces.
            label, text = (" ".join(field.split()) for field in clean([label, text]))
            return f"{label}\t{max(probabilities):.4f}\t{text}"
    return json.dumps(outputs, ensure_ascii=False, sort_keys=True, default=encode_bytes)


def is_probability(value):
    return isinstance(value, (int, float)) and 0 <= value < 1.001  # rounded, maybe


def encode_bytes(value):
    return {"b64": base64.b64encode(value).decode()}


if __name__ == "__main__":
    sys.exit(main())
