"""What the two runs of the benchmark measure: all of it, and a small part of it."""

from typing import NamedTuple

from benchmarks.cases import STARTS, case, decoding, every, growth

SAVED = ("unlimited", "bounded", "pasted", "keras-hub", "positional-encodings")
HELD = ("floor", "ready", "unlimited", "bounded", "pasted", "keras-hub")


class Plan(NamedTuple):
    """The grids of a run, by the names that they have in the results."""

    times: list
    decoding: list
    growth: list
    rounds: int
    seconds: float  # in which a candidate repeats its call, each round
    memory: list  # of mode and candidate
    repeats: int  # of a measurement of memory
    steps: dict  # the arguments of `steps.measure`
    sizes: tuple
    retraces: tuple = SAVED
    together: int = 30  # so many cases share a process

    @property
    def each_round(self):
        return {"rounds": self.rounds, "seconds": self.seconds}


FULL = Plan(
    times=every(),
    decoding=decoding(),
    growth=growth(),
    rounds=7,
    seconds=0.06,
    memory=[(mode, name) for mode in ("graph", "XLA") for name in HELD],
    repeats=3,
    steps={"modes": ("graph", "XLA"), "shape": (32, 256)},
    sizes=SAVED,
)


SMALL, BATCH, LONG = (1, 2048, 512), (8, 2048, 512), (1, 32768, 128)


def quick_cases():
    """Return a case or more for every bar."""
    tensorflow = [
        (("graph", "float32", "unknown", "zero"), (SMALL, BATCH, LONG)),
        (("graph", "float32", "unknown", "tensor"), (SMALL, BATCH, LONG)),
        (("graph", "float32", "unknown", "positions"), (SMALL, BATCH, LONG)),
        (("XLA", "float32", "unknown", "zero"), (SMALL, BATCH)),
        (("XLA", "float32", "unknown", "tensor"), (SMALL, BATCH)),
        (("graph", "float32", "known", "zero"), (SMALL, LONG)),
        (("XLA", "float32", "known", "zero"), (SMALL,)),
        (("graph", "bfloat16", "unknown", "zero"), (SMALL,)),
        (("eager", "float32", "known", "zero"), (SMALL,)),
    ]
    jitted = ("jax", "jit", "float32", "known")
    return [
        *(case("tensorflow", *way, at) for way, shapes in tensorflow for at in shapes),
        *(case(*jitted, start, at) for at in (SMALL, BATCH) for start in STARTS),
    ]


QUICK = Plan(
    times=quick_cases(),
    decoding=[at for at in decoding((1000,)) if at.mode == "graph"],
    growth=growth((1024, 4096, 16384)),
    rounds=5,
    seconds=0.02,
    memory=[("graph", name) for name in ("ready", "unlimited", "bounded")],
    repeats=1,
    steps={"modes": ("graph",), "shape": (8, 64)},
    sizes=("unlimited", "keras-hub"),
    together=100,
)
