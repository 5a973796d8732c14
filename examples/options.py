"""The options that the examples share, and what is checked before any work."""

import argparse
import contextlib
import importlib.util
import math
import os
import signal
import sys
from pathlib import Path


class InputError(ValueError):
    """The options, the data or a folder cannot be used; told without a traceback."""


class Parser(argparse.ArgumentParser):
    """A parser that shows the first line of a script's docstring, and the defaults."""

    def __init__(self, doc):
        super().__init__(
            description=doc.partition("\n")[0],
            formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        )

    def error(self, message):
        self.exit(2, f"{self.prog}: error: {message}\n")

    @contextlib.contextmanager
    def errors_told(self):
        """Make one line and an exit code of what a user can mend, or an interrupt."""
        try:
            yield
        except (InputError, OSError) as error:
            self.error(str(error))
        except KeyboardInterrupt:
            self.exit(130, f"\n{self.prog}: interrupted\n")


def run(parser, argv, train, predict):
    """Train, or with `--predict` use what was trained, as the arguments say."""
    args = parser.parse_args(argv)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with parser.errors_told():
        check_options(args)
        if "predict" in args:
            predict(args)
        else:
            train(args)


def run_script(main):
    # As Ctrl-C, so that what is half written is removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())


def filled(path):
    # Path("") would be the folder that the process happens to be in.
    if not path:
        raise argparse.ArgumentTypeError("must be a path, not empty. Received: ''")
    return path


def folder(path):
    return Path(filled(path))


def add_options(parser, name, **defaults):
    """Add the options of model, training and results of the example of that name.

    `defaults` are its own, by the names that the options have in Python.
    """
    add = parser.add_argument
    add(
        "--encoding",
        choices=("sinusoidal", "learned", "rotary", "alibi", "relative", "none"),
        default="sinusoidal",
        help="what the model knows of positions: added to the embeddings (the first "
        "two), or in the attention (the next three)",
    )
    add("--blocks", type=int, default=1, help="attention blocks")
    add("--heads", type=int, default=4, help="attention heads, a divisor of DIM")
    add("--dim", type=int, default=64, help="size of the embedding")
    add("--max-tokens", type=int, default=10_000, help="size of the vocabulary")
    add("--length", type=int, default=200, help="tokens that it takes at once")
    add("--dropout", type=float, default=0.4, help="rate of the dropout layers")
    add("--epochs", type=int, default=8, help="passes over the training texts at most")
    add("--batch-size", type=int, default=64, help="texts of LENGTH a training step")
    add(
        "--learning-rate",
        type=float,
        default=2e-3,
        help="AdamW's, falling to 0 along a cosine",
    )
    add(
        "--precision",
        choices=("float32", "mixed_bfloat16", "mixed_float16"),
        default="float32",
        help="dtype policy; what the model gives is always float32",
    )
    add(
        "--distribute",
        choices=("none", "mirrored"),
        default="none",
        help="devices to train on: one, or a batch in parts on all local GPUs",
    )
    add("--seed", type=int, default=0, help="same seed, same machine, same result")
    add("--out", type=folder, default=f"runs/{name}", help="folder of the results")
    add(
        "--saved-models",
        type=folder,
        default=f"saved_models/{name}",
        help="folder of the exported versions 1, 2, ...",
    )
    parser.set_defaults(**defaults)


def check_options(args):
    for option, ok, allowed in (
        ("blocks", args.blocks >= 0, "at least 0"),
        ("heads", args.heads >= 1, "at least 1"),
        ("dim", args.dim >= 1, "at least 1"),
        ("max_tokens", args.max_tokens >= 3, "at least 3"),
        ("length", args.length >= 1, "at least 1"),
        ("dropout", 0 <= args.dropout < 1, "at least 0 and below 1"),
        ("epochs", args.epochs >= 1, "at least 1"),
        ("batch_size", args.batch_size >= 1, "at least 1"),
        ("learning_rate", 0 < args.learning_rate < math.inf, "positive and finite"),
        ("seed", 0 <= args.seed < 2**32, "at least 0 and below 2**32"),
    ):
        if not ok:
            raise InputError(
                f"`--{option.replace('_', '-')}` must be {allowed}. "
                f"Received: {getattr(args, option)}"
            )
    if args.dim % args.heads:
        raise InputError(
            "`--dim` must be a multiple of `--heads`. "
            f"Received: --dim {args.dim} --heads {args.heads}"
        )
    if args.encoding == "rotary" and args.dim // args.heads % 2:
        raise InputError(
            "`--encoding rotary` turns pairs of features: `--dim` divided by `--heads` "
            f"must be even. Received: --dim {args.dim} --heads {args.heads}"
        )


def check_packages(*more):
    for name in ("tensorflow", "keras_pe", "matplotlib", *more):
        if importlib.util.find_spec(name) is None:
            raise InputError(
                f"The package {name} is not installed: `pip install '.[examples]'`."
            )
