"""A forest for a collective on any fabric, with its bound: symmetric trees where the machine is symmetric,
re-rooted for a broadcast, and an arborescence packing elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from synth.errors import InfeasibleError, UndecidedError
from synth.model.scale_collectives import ROOTED
from synth.scale.bounds.multi_cut_lp import multi_cut_bound
from synth.scale.bounds.throughput_cut import Throughput, throughput
from synth.scale.fabric.automorphisms import free_group, symmetries
from synth.scale.fabric.fabric import Fabric
from synth.scale.fabric.switch_balancing import balance_switches
from synth.scale.forests.arborescence_packing import pack
from synth.scale.forests.partial_trees import to_forest
from synth.scale.forests.rerooting import reroot
from synth.scale.forests.spanning_forest import SpanningForest
from synth.scale.forests.symmetric_trees import grow

# Limit on (roots) x (ranks) x (edges) of an arborescence packing: about a minute of CPU.
MOST_PACKING_WORK = 80_000_000
# The same limit for a single root on a fabric with switches, which are split off first.
MOST_SWITCHED_WORK = 600_000
# Multiples of the bound's time that are tried in turn where no forest is found at the bound.
SLOWER = (Fraction(33, 32), Fraction(17, 16), Fraction(9, 8), Fraction(5, 4), Fraction(3, 2), Fraction(2), Fraction(3))

METHODS = ("symmetric", "packing")


@dataclass(frozen=True, eq=False)
class BoundedForest:
    """A forest and the bound on its collective. The forest is optimal where `gap` is 0."""

    forest: SpanningForest
    bound: Throughput

    @property
    def gap(self) -> Fraction:
        """(time of the forest) / (time of the bound) - 1."""
        return self.forest.time * self.bound.fabric.unit / self.bound.time - 1


def build(
    fabric: Fabric,
    collective: str = "allgather",
    root: int = 0,
    *,
    methods: Sequence[str] = METHODS,
    progress: Callable[[str], None] = lambda text: None,
    bound: Throughput | None = None,
    on_bound: Callable[[Throughput], None] = lambda bound: None,
    on_forest: Callable[[SpanningForest], None] = lambda forest: None,
) -> BoundedForest:
    """Return the first forest that the methods find: at the bound, or else at times that are ever further above it.

    `bound`: the result of `throughput`, if the caller has it. `on_bound` is called with a higher bound as soon as it is
    proved. `on_forest` is called with the re-rooted trees of a broadcast or reduce. A packing is then searched for that
    is as fast, as its trees may be pipelined better; where there is none, the re-rooted trees are returned. The forest
    is not verified: tests/spanning_forest_check.py does that. Raises InfeasibleError where a rank cannot be reached,
    UsageError for another collective or root, UndecidedError where no forest is found, TimeUp where a time limit (see
    `synth.solvers.deadline`) ends the search before.
    """
    moves = symmetries(fabric)
    bound = throughput(fabric, collective, root, moves) if bound is None else bound
    progress(f"no schedule is faster than {float(bound.bandwidth):.6g} GB/s")
    highest = bound

    def raised(higher: Throughput) -> None:
        nonlocal highest
        highest = higher
        on_bound(higher)

    best = _rerooted(bound, moves) if collective in ROOTED and "symmetric" in methods else None
    if best is not None:
        on_forest(best)
    for graph, own_moves, time in _plans(bound, moves, raised):
        if best is not None and time / graph.unit > best.time:
            break
        for method in methods:
            group: Sequence[np.ndarray] = ()
            if method == "symmetric":
                group = free_group(own_moves, fabric.ranks) if collective not in ROOTED else ()
                grown = grow(graph, group, time) if group else None
            else:
                grown = pack(graph, time, bound.shards) if _packable(graph, bound.shards) else None
            if grown is not None:
                reached = replace(bound, fabric=graph, time=time)
                return BoundedForest(to_forest(graph, reached, grown, group, method), highest)
            rate = int(bound.shards.sum()) * graph.unit / time
            progress(f"{method} finds no forest at {float(rate):.6g} GB/s")
        if best is not None and not BoundedForest(best, bound).gap:
            break  # the next plans are slower
    if best is not None:
        return BoundedForest(best, highest)
    raise UndecidedError(
        f"{fabric.name}: no forest found for {collective} by {' or '.join(methods)}; that proves nothing: "
        f"the bound is {float(highest.bandwidth):.6g} GB/s"
    )


def _rerooted(bound: Throughput, moves: Sequence[np.ndarray]) -> SpanningForest | None:
    """Return the trees of the symmetric allgather, or reduce-scatter, re-rooted; None where there are none.

    On links from rank to rank alone a packing is quick, and is as fast as the bound.
    """
    graph = bound.fabric
    group = free_group(moves, graph.ranks) if graph.nodes > graph.ranks else ()
    if not group:
        return None
    forward = graph.reversed() if graph.flipped else graph
    every = throughput(forward, "reduce-scatter" if graph.flipped else "allgather", 0, moves)
    for slower in (Fraction(1), *SLOWER):
        grown = grow(graph, group, every.time * slower)
        if grown is not None:
            found = reroot(graph, grown, group, bound.root)
            return found and to_forest(graph, replace(bound, time=found[1]), found[0], (), "re-rooted")
    return None


def _plans(
    first: Throughput, moves: Sequence[np.ndarray], raised: Callable[[Throughput], None]
) -> Iterator[tuple[Fabric, Sequence[np.ndarray], Fraction]]:
    """Yield (fabric, its symmetries, time): at the bound, then at the multi-cut bound on fabrics narrowed to balance,
    then ever slower. `raised` is called with a higher bound."""
    yield first.fabric, moves, first.time
    higher, narrowed = multi_cut_bound(first)
    if higher is not first:
        raised(higher)
    best = first.fabric, moves, first.time
    for graph in (narrowed, balance_switches(first.fabric)):
        if graph is None or graph is first.fabric:
            continue
        forward = graph.reversed() if graph.flipped else graph
        own_moves = symmetries(forward, [pi[: graph.ranks] for pi in moves])
        try:
            time = throughput(forward, first.collective, first.root, own_moves).time
        except InfeasibleError:  # a rank is cut off there
            continue
        if best[0] is first.fabric or time / graph.unit < best[2] / best[0].unit:
            best = graph, own_moves, time
        yield graph, own_moves, time
    graph, own_moves, time = best
    for slower in SLOWER:
        yield graph, own_moves, time * slower


def _packable(graph: Fabric, shards: np.ndarray) -> bool:
    """Return True if an arborescence packing of so many roots takes no more than about a minute."""
    work = int(shards.sum()) * graph.ranks * len(graph.src)
    return work <= (MOST_SWITCHED_WORK if int(shards.sum()) == 1 and graph.nodes > graph.ranks else MOST_PACKING_WORK)
