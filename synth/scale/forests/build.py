"""One forest for a collective on any fabric: symmetric where the machine is, packed where it is not, with the bound
beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from synth.errors import InfeasibleError, UndecidedError
from synth.model.spanning_forest import Forest
from synth.scale.bounds.multi_cut_lp import sharpened
from synth.scale.bounds.throughput_cut import ROOTED, Throughput, throughput
from synth.scale.fabric.automorphisms import free_group, symmetries
from synth.scale.fabric.fabric import Fabric
from synth.scale.fabric.switch_balancing import balanced
from synth.scale.forests.arborescence_packing import pack
from synth.scale.forests.partial_trees import Flat, Grown, finished
from synth.scale.forests.symmetric_trees import grow
from synth.solvers.processes.deadline import TimeUp

METHODS = ("symmetric", "packing")
# Ranks of a switched machine from which a broadcast takes the trees of the symmetric allgather: packing them takes many
# seconds.
REROOTED = 64
# Roots times ranks (steps of growth) times edges up to which trees are packed one by one: about a minute of CPU.
PACKED = 80_000_000
# The same for one root where switches are to be split off.
PACKED_SWITCHED = 600_000
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
    bound: Throughput | None = None,
    sharper: Callable[[Throughput], None] = lambda bound: None,
) -> Built:
    """The best forest that the methods find, in their order; the search ends with one that meets the bound.

    `bound`: what `throughput` says, where the caller has it already; `sharper` is told of a sharper one as soon as it
    is held. Not yet verified: pass `built.forest` to `bench.spanning_forest_check.verify`. Raises InfeasibleError
    where a rank cannot be reached, UsageError for another collective or root, UndecidedError where no forest is found,
    TimeUp where a time limit (see
    `synth.solvers.processes.deadline`) ends the search before.
    """
    moves = symmetries(fabric)
    bound = throughput(fabric, collective, root, moves) if bound is None else bound
    progress(f"no schedule is faster than {float(bound.bandwidth):.6g} GB/s")
    best = _rerooted(fabric, bound, moves, methods)
    if best is not None:
        sharper(best.bound)
    if best is not None and (not best.gap or not _packable(bound.fabric, bound.shards)):
        return best
    search = _Search(bound, moves, methods, sharper)
    try:
        return _searched(search, fabric, collective, best, progress)
    except TimeUp:
        if best is None:
            raise
        return Built(best.forest, search.bound)


def _searched(
    search: _Search, fabric: Fabric, collective: str, best: Built | None, progress: Callable[[str], None]
) -> Built:
    """The first forest of the search's plans; `best` where that is no worse, or nothing else is found."""
    bound, moves = search.bound, search.moves
    for method, graph, time in search.plans():
        group = () if collective in ROOTED or method != "symmetric" else free_group(moves, fabric.ranks)
        grown = _grown(method, graph, time, bound.shards, group)
        if best is not None and time / graph.unit >= best.forest.time:
            return Built(best.forest, search.bound)
        if grown is not None:
            reached = replace(bound, fabric=graph, time=time)
            return Built(finished(graph, reached, grown, group, method), search.bound)
        reached = int(bound.shards.sum()) * graph.unit / time
        progress(f"{method} finds no forest at {float(reached):.6g} GB/s")
    if best is not None:
        return Built(best.forest, search.bound)
    raise UndecidedError(
        f"{fabric.name}: no forest found for {collective} by {' or '.join(search.methods)}; that proves nothing: "
        f"the bound is"
        f" {float(search.bound.bandwidth):.6g} GB/s"
    )


def _rerooted(fabric: Fabric, bound: Throughput, moves: Sequence[np.ndarray], methods: Sequence[str]) -> Built | None:
    """A broadcast or reduce on a large symmetric machine with switches by its allgather's trees; None elsewhere."""
    rooted = bound.collective in ROOTED and "symmetric" in methods
    if not rooted or fabric.ranks < REROOTED or fabric.nodes == fabric.ranks:
        return None
    group = free_group(moves, fabric.ranks)
    if not group:
        return None
    from synth.scale.forests.rerooting import rerooted

    every = throughput(fabric, "reduce-scatter" if bound.fabric.flipped else "allgather", 0, moves)
    for slower in (Fraction(1), *SLOWER):
        grown = grow(bound.fabric, group, every.time * slower, program=False)
        if grown is not None:
            made = rerooted(bound.fabric, grown, group, bound.root, bound.time)
            if made is None:
                return None
            trees, time = made
            if time > bound.time:
                bound, _ = sharpened(bound)
            return Built(finished(bound.fabric, replace(bound, time=time), trees, (), "re-rooted"), bound)
    return None


@dataclass
class _Search:
    """What to try: at the bound, then at a sharper one on fabrics narrowed to balance, then slower and slower."""

    bound: Throughput
    moves: Sequence[np.ndarray]
    methods: Sequence[str]
    sharper: Callable[[Throughput], None]

    def plans(self) -> Iterator[tuple[str, Fabric, Fraction]]:
        """Method, fabric and time; `bound` becomes sharper on the way where one cut says too little."""
        first = self.bound
        for method in self.methods:
            yield method, first.fabric, first.time
        self.bound, narrowed = sharpened(first)
        if self.bound is not first:
            self.sharper(self.bound)
        best: tuple[Fabric, Fraction] | None = None
        for even in (narrowed, balanced(first.fabric)):
            if even is None or even is first.fabric:
                continue
            time = self._time(even)
            if time is None:
                continue
            if best is None or time / even.unit < best[1] / best[0].unit:
                best = even, time
            for method in self.methods:
                yield method, even, time
        graph, time = best or (first.fabric, first.time)
        for slower in SLOWER:
            for method in self.methods:
                yield method, graph, time * slower

    def _time(self, even: Fabric) -> Fraction | None:
        """The bound of a narrowed fabric; None where narrowing cut a rank off."""
        plain = even.reversed() if even.flipped else even
        kept = symmetries(plain, [pi[: even.ranks] for pi in self.moves])
        try:
            return throughput(plain, self.bound.collective, self.bound.root, kept).time
        except InfeasibleError:
            return None


def _grown(
    method: str, graph: Fabric, time: Fraction, shards: np.ndarray, group: Sequence[np.ndarray]
) -> Grown | Flat | None:
    if method == "symmetric":
        return grow(graph, group, time, program=not _packable(graph, shards)) if group else None
    return pack(graph, time, shards) if _packable(graph, shards) else None


def _packable(graph: Fabric, shards: np.ndarray) -> bool:
    work = int(shards.sum()) * graph.ranks * len(graph.src)
    return work <= (PACKED_SWITCHED if int(shards.sum()) == 1 and graph.nodes > graph.ranks else PACKED)
