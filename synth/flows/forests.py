"""One forest for a collective on any fabric: symmetric where the machine is, packed where it is not, with the bound beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from synth.errors import UndecidedError
from synth.flows.automorphisms import free_group, symmetries
from synth.flows.balance import balanced
from synth.flows.cuts import ROOTED, Throughput, throughput
from synth.flows.fabric import Fabric
from synth.flows.packing import pack
from synth.flows.symmetric import grow
from synth.flows.trees import Grown, finished
from synth.forest import Forest

METHODS = ("symmetric", "packing")
# Roots times ranks (steps of growth) times edges up to which trees are packed one by one: about a minute of CPU.
PACKED = 80_000_000
# Where nothing is found at the bound, these many times slower is tried.
SLOWER = tuple(Fraction(n, d) for n, d in ((33, 32), (17, 16), (9, 8), (5, 4), (3, 2), (2, 1), (3, 1)))


@dataclass(frozen=True, eq=False)
class Built:
    """A forest and the bound it is measured against: optimal when `gap` is 0."""

    forest: Forest
    bound: Throughput

    @property
    def gap(self) -> Fraction:
        """How much slower than the bound, as a fraction of the bound."""
        return self.forest.time * self.bound.fabric.unit / self.bound.time - 1


def build(
    fabric: Fabric,
    collective: str = "allgather",
    root: int = 0,
    *,
    methods: Sequence[str] = METHODS,
    progress: Callable[[str], None] = lambda text: None,
) -> Built:
    """The best forest that the methods find, in their order; the search ends with one that meets the bound.

    Not yet verified: pass `built.forest` to `synth.forestcheck.verify`. Raises InfeasibleError where a rank cannot be
    reached, UsageError for another collective or root, UndecidedError where no forest is found.
    """
    moves = symmetries(fabric)
    bound = throughput(fabric, collective, root, moves)
    progress(f"no schedule is faster than {float(bound.bandwidth):.6g} GB/s")
    for method, graph, time in _plans(fabric, bound, moves, methods):
        group = () if collective in ROOTED or method != "symmetric" else free_group(moves, fabric.ranks)
        grown = _grown(method, graph, time, bound.shards, group)
        if grown is not None:
            limit = Throughput(graph, collective, root, bound.shards, time, bound.inside, 0)
            return Built(finished(graph, limit, grown, group, method), bound)
        reached = int(bound.shards.sum()) * graph.unit / time
        progress(f"{method} finds no forest at {float(reached):.6g} GB/s")
    raise UndecidedError(
        f"{fabric.name}: no forest found for {collective} by {' or '.join(methods)}; that proves nothing: the bound is"
        f" {float(bound.bandwidth):.6g} GB/s"
    )


def _plans(
    fabric: Fabric, bound: Throughput, moves: Sequence[np.ndarray], methods: Sequence[str]
) -> Iterator[tuple[str, Fabric, Fraction]]:
    """What to try: at the bound, then at the bound of the balanced fabric, then slower and slower."""
    for method in methods:
        yield method, bound.fabric, bound.time
    even = balanced(bound.fabric)
    graph, time = bound.fabric, bound.time
    if even is not None and even is not bound.fabric:
        plain = even.reversed() if even.flipped else even
        kept = symmetries(plain, [pi[: fabric.ranks] for pi in moves])
        graph, time = even, throughput(plain, bound.collective, bound.root, kept).time
        for method in methods:
            yield method, graph, time
    for slower in SLOWER:
        for method in methods:
            yield method, graph, time * slower


def _grown(method: str, graph: Fabric, time: Fraction, shards: np.ndarray, group: Sequence[np.ndarray]) -> Grown | None:
    if method == "symmetric":
        return grow(graph, group, time, program=not _packable(graph, shards)) if group else None
    return pack(graph, time, shards) if _packable(graph, shards) else None


def _packable(graph: Fabric, shards: np.ndarray) -> bool:
    return int(shards.sum()) * graph.ranks * len(graph.src) <= PACKED
