"""Tighter bounds where a switch takes in more than it lets out, or the other way round: several cuts weighed together.

One cut lets a port that two ranks share serve each of them in full, as if switches could copy. Data passes switches one
for one: so a linear program over what edges carry, balanced at switches, with cuts added as flows find them, is nearer
the truth. Its dual weighs cuts and switches; rounded to fractions, it is a certificate that the checker adds up
exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from synth.checker.certificates import throughput_cuts
from synth.errors import VerificationError
from synth.model.documents.int_ranges import runs
from synth.scale.bounds.throughput_cut import ROOTED, Throughput
from synth.scale.fabric.automorphisms import edge_images, elements, free_group, orbits, symmetries
from synth.scale.fabric.fabric import Fabric
from synth.scale.fabric.switch_balancing import MOST_SCALE, balanced
from synth.solvers.highs import linear
from synth.solvers.max_flow import MaxFlow

MOST_EDGES, MOST_WORK, MOST_ROUNDS = 4_000, 20_000_000, 400
MOST_PAIRED = 200_000  # edges times ranks where cuts between any two ranks are looked at
SCALE = 1 << 24  # flows of the linear program's numbers are those of whole parts of this size
FINEST = 5_040  # denominators of weights


def sharpened(bound: Throughput) -> tuple[Throughput, Fabric | None]:
    """`bound`, or one with a greater time that weighs several cuts; and its fabric with only the capacity that the new
    one uses.

    Every answer is exact; that the bound is the best of all is not promised. None where the fabric is balanced as it
    is, too large, or narrowed by amounts that are no simple fractions.
    """
    graph = bound.fabric
    edges, anywhere = len(graph.src), bound.collective == throughput_cuts.ANYWHERE
    if edges > MOST_EDGES or (anywhere and edges * graph.ranks > MOST_PAIRED) or balanced(graph) is graph:
        return bound, None
    group = () if bound.collective in ROOTED else free_group(symmetries(graph), graph.ranks)
    program = _Program(graph, bound, group)
    proof = program.proof()
    if proof is None:
        return bound, None
    try:
        time = throughput_cuts.check(proof, graph.topology) * graph.unit
    except VerificationError:
        return bound, None
    return replace(bound, time=time, proof=proof) if time > bound.time else bound, program.narrowed()


class _Program:
    """Rates on orbits of edges: variables are what each edge of an orbit carries, and the rate of a shard, which is
    maximised."""

    def __init__(self, graph: Fabric, bound: Throughput, group: Sequence[np.ndarray]) -> None:
        self.graph, self.bound, self.group = graph, bound, group
        images = [image for pi in group if (image := edge_images(graph, pi)) is not None]
        label = orbits(len(graph.src), images)
        self.names, self.orbit = np.unique(label, return_inverse=True)
        self.sizes = np.bincount(self.orbit)
        ranks = orbits(graph.ranks, [pi[: graph.ranks] for pi in group])
        self.sinks = np.flatnonzero(ranks == np.arange(graph.ranks)).tolist()
        self.order = graph.ranks // len(self.sinks) if group else 1
        self.switches = np.arange(graph.ranks, graph.nodes)
        self.shards = np.r_[bound.shards, np.zeros(graph.nodes - graph.ranks, np.int64)]
        self.cuts: list[np.ndarray] = [bound.inside]
        sources = np.flatnonzero(self.shards)
        self.anywhere = (
            bound.collective == throughput_cuts.ANYWHERE
        )  # a cut counts once wherever it lies, and any two ranks are parted
        self.flow = MaxFlow(np.r_[graph.src, np.full(len(sources), graph.nodes)], np.r_[graph.dst, sources])
        self.starts = self.shards[sources]
        self.carried = np.zeros(len(self.names))

    def proof(self) -> dict | None:
        """The dual of the last program as a certificate; None where the rounds run out."""
        for _ in range(MOST_ROUNDS):
            solved = self._solve()
            if solved is None:
                return None
            carried, rate, weights, potentials, prices = solved
            self.carried = carried
            fresh = self._separate(carried, rate)
            if not fresh:
                return self._certificate(weights, potentials, prices)
            self.cuts += fresh
        return None

    def narrowed(self) -> Fabric | None:
        """The fabric with what the last program lets edges carry, in simple fractions that balance at switches."""
        graph = self.graph
        each = [Fraction(float(c)).limit_denominator(FINEST) for c in self.carried]
        scale = math.lcm(*(c.denominator for c in each))
        if scale > MOST_SCALE:
            return None
        cap = np.array([int(c * scale) for c in each], np.int64)[self.orbit]
        net = np.bincount(graph.src, cap, graph.nodes) - np.bincount(graph.dst, cap, graph.nodes)
        if net[graph.ranks :].any() or (cap > graph.cap * scale).any():
            return None
        return replace(graph, cap=cap, unit=graph.unit / scale)

    def _crossing(self, inside: np.ndarray) -> np.ndarray:
        """How many edges of each orbit leave the cut."""
        leaves = inside[self.graph.src] & ~inside[self.graph.dst]
        return np.bincount(self.orbit[leaves], minlength=len(self.names))

    def _solve(self):
        count = len(self.names)
        worth = [1 if self.anywhere else int(self.shards[s].sum()) for s in self.cuts]
        held = [-np.r_[self._crossing(s), -n].astype(float) for s, n in zip(self.cuts, worth, strict=True)]
        through = np.zeros((len(self.switches), count + 1))
        np.add.at(
            through,
            (self.graph.src[(out := self.graph.src >= self.graph.ranks)] - self.graph.ranks, self.orbit[out]),
            1,
        )
        np.add.at(
            through,
            (self.graph.dst[(into := self.graph.dst >= self.graph.ranks)] - self.graph.ranks, self.orbit[into]),
            -1,
        )
        limits = [(0, float(c)) for c in self.graph.cap[self.names]] + [(0, None)]
        found = linear(
            np.r_[np.zeros(count), -1.0],
            A_ub=np.array(held),
            b_ub=np.zeros(len(held)),
            A_eq=through,
            b_eq=np.zeros(len(through)),
            bounds=limits,
            method="highs-ds",
        )
        if found.x is None:
            return None
        return (
            found.x[:count],
            found.x[count],
            -found.ineqlin.marginals,
            found.eqlin.marginals,
            -found.upper.marginals[:count],
        )

    def _separate(self, carried: np.ndarray, rate: float) -> list[np.ndarray]:
        """Cuts that what is carried does not respect."""
        unit = SCALE / max(carried.max(), 1e-9)
        width = np.floor(carried * unit).astype(np.int64)[self.orbit]
        each = math.floor(rate * unit)
        slack = len(self.graph.src) + 1  # as many parts may be lost to rounding
        nodes = self.graph.nodes
        if self.anywhere:
            self.flow.set(np.r_[width, np.zeros(len(self.starts), np.int64)])
            pairs, most = [pair for r in range(1, self.graph.ranks) for pair in ((0, r), (r, 0))], each
        else:
            self.flow.set(np.r_[width, self.starts * each].astype(np.int64))
            pairs, most = [(nodes, sink) for sink in self.sinks], each * int(self.starts.sum())
        found: dict[bytes, np.ndarray] = {}
        for source, sink in pairs:
            if self.flow.value(source, sink) < most - slack:
                inside = self.flow.inside(nodes)
                found[inside.tobytes()] = inside
        return list(found.values())

    def _certificate(self, weights: np.ndarray, potentials: np.ndarray, prices: np.ndarray) -> dict:
        graph, ends = self.graph, self.graph.ranks + len(self.graph.topology.switches)
        top = max(weights.max(), 1e-12)
        kept = [(s, Fraction(w / top).limit_denominator(FINEST)) for s, w in zip(self.cuts, weights, strict=True)]
        cuts: dict[bytes, tuple[list[list[int]], Fraction]] = {}
        most = max(1, MOST_WORK // (len(graph.topology.links) * max(1, sum(w > 0 for _, w in kept))))
        for inside, weight in kept:
            if not weight:
                continue
            for image in self._images(inside, most):
                rows = runs(np.flatnonzero(image[:ends]).tolist())
                key = image[:ends].tobytes()
                cuts[key] = rows, cuts[key][1] + weight if key in cuts else weight
        limits: dict[int, Fraction] = {}
        share = self.order / self.sizes
        for e in np.flatnonzero(graph.limit >= 0).tolist():
            o = int(self.orbit[e])
            price = Fraction(float(prices[o] / top * share[o])).limit_denominator(FINEST)
            if price > 0:
                limits[int(graph.limit[e])] = limits.get(int(graph.limit[e]), Fraction(0)) + price
        heights = {
            n: Fraction(float(potentials[n - graph.ranks] / top * self._turns(n))).limit_denominator(FINEST)
            for n in range(graph.ranks, ends)
        }
        return {
            "kind": "throughput-cuts",
            "topology": throughput_cuts.digest(graph.topology),
            "collective": self.bound.collective,
            "root": self.bound.root if self.bound.collective in ROOTED else None,
            "cuts": [[str(weight), rows] for rows, weight in cuts.values()],
            "limits": [[k, str(price)] for k, price in sorted(limits.items())],
            "potentials": [[n, str(height)] for n, height in heights.items() if height],
        }

    def _images(self, inside: np.ndarray, most: int) -> list[np.ndarray]:
        if not self.group:
            return [inside]
        found = []
        for image in elements(self.group, np.arange(self.graph.nodes), min(self.order, most)):
            moved = np.zeros_like(inside)
            moved[image] = inside
            found.append(moved)
        return found

    def _turns(self, node: int) -> int:
        """How often the group brings each switch of the node's orbit to itself, as cuts are added up over the whole
        group."""
        if not self.group:
            return 1
        label = orbits(self.graph.nodes, self.group)
        return self.order // int((label == label[node]).sum())
