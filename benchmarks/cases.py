"""The cases in which a call is timed, and the grids that are made of them."""

from itertools import product
from typing import NamedTuple

SHAPES = (
    (1, 128, 128),
    (1, 2048, 512),
    (32, 128, 128),
    (32, 512, 512),
    (8, 2048, 512),
    (1, 32768, 128),
)
STARTS = ("zero", "tensor", "positions")
FIRST = 1000
DECODED = (0, 1000, 100_000)
LENGTHS = tuple(2**power for power in range(10, 18))


class Case(NamedTuple):
    """One way to call a layer, on one input."""

    backend: str  # "tensorflow" or "jax"
    mode: str  # "graph", "XLA" or "eager"; on JAX "jit"
    dtype: str  # of input and output: "float32" or "bfloat16"
    length: str  # "known" or "unknown" when traced
    start: str  # "zero", "tensor" (`start_index`) or "positions"
    shape: tuple  # (batch, time, width)
    first: int  # the first position

    @property
    def positions(self):
        return range(self.first, self.first + self.shape[1])

    @property
    def max_length(self):
        """Return the length of the table of those who need one."""
        return max(4096, self.positions.stop)


def case(backend, mode, dtype, length, start, shape):
    first = 0 if start == "zero" else FIRST
    return Case(backend, mode, dtype, length, start, shape, first)


def every(shapes=SHAPES, dtypes=("float32", "bfloat16")):
    """Return the product of all that a call can be."""
    ways = [
        *product(("tensorflow",), ("graph", "XLA"), dtypes, ("known", "unknown")),
        *product(("tensorflow",), ("eager",), dtypes, ("known",)),
        *product(("jax",), ("jit",), dtypes, ("known",)),
    ]
    return [
        case(*way, start, shape) for shape in shapes for way in ways for start in STARTS
    ]


def decoding(firsts=DECODED):
    """Return calls on one token, far from the first."""
    modes = (("tensorflow", "graph"), ("tensorflow", "XLA"), ("jax", "jit"))
    return [
        Case(*mode, "float32", "known", "tensor", (1, 1, 512), first)
        for mode in modes
        for first in firsts
    ]


def growth(lengths=LENGTHS):
    return [
        case("tensorflow", mode, "float32", "unknown", "zero", (1, length, 128))
        for mode in ("graph", "XLA")
        for length in lengths
    ]
