"""Multi-cut LP bound: several weighted cuts together, for fabrics where a switch has unequal capacities in and out.

A single cut lets a port that two ranks share serve each of them at full rate, as if switches could copy. But a switch
sends out each byte once. So the linear program maximises the rate over the loads of edges, with flow balance at
switches and cut constraints that maximum flows separate. Its dual weighs cuts and gives potentials to switches. Rounded
to fractions, it is a certificate that the checker adds up exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from synth.checker.certificates import machine_digest, throughput_cuts
from synth.errors import VerificationError
from synth.model.documents.int_ranges import runs
from synth.model.scale_collectives import ROOTED
from synth.scale.bounds.throughput_cut import Throughput
from synth.scale.fabric.automorphisms import edge_orbits, free_group, group_images, orbits, symmetries
from synth.scale.fabric.fabric import Fabric
from synth.scale.fabric.switch_balancing import MOST_SCALE, balance_switches
from synth.solvers.linear_program import LinearProgram, cutting_planes
from synth.solvers.max_flow import MaxFlow
from synth.solvers.rationalise import common_denominator, simple_fractions

# Limit on the edges of a fabric, whose balance at switches is a dense matrix.
MOST_EDGES = 4_000
# Limit on (images of cuts) x (links) in a certificate: bounds its size and the time of the check.
MOST_WORK = 20_000_000
# Limit on the rounds of the cutting-plane loop.
MOST_ROUNDS = 400
# Steps into which the greatest load is cut, for maximum flows over the loads in the linear program.
SCALE = 1 << 24
# Limit on the denominators of weights, prices, potentials and narrowed capacities: 5040 is divisible by 1 to 10.
FINEST = 5_040


def multi_cut_bound(bound: Throughput) -> tuple[Throughput, Fabric | None]:
    """Return the better of `bound` and the multi-cut bound, and the fabric with only the capacity that the latter uses.

    Both are exact, but the bound need not be the best possible. The fabric is None where all switches are balanced
    already, the fabric is too large, or the used capacities are no simple fractions.
    """
    graph = bound.fabric
    if len(graph.src) > MOST_EDGES or balance_switches(graph) is graph:
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


class _Answer(NamedTuple):
    """Load of an edge of each orbit, rate, weight of each cut, potential of each switch, price of each orbit."""

    carried: np.ndarray
    rate: float
    weights: np.ndarray
    potentials: np.ndarray
    prices: np.ndarray


class _Program:
    """Cutting-plane LP on orbits of edges: the variables are the load of an edge of each orbit, and the rate of a
    shard, which is maximised.
    """

    def __init__(self, graph: Fabric, bound: Throughput, group: Sequence[np.ndarray]) -> None:
        self.graph, self.bound, self.group = graph, bound, group
        self.names, self.orbit = np.unique(edge_orbits(graph, group), return_inverse=True)
        ranks = orbits(graph.ranks, [pi[: graph.ranks] for pi in group])
        self.sinks = np.flatnonzero(ranks == np.arange(graph.ranks)).tolist()
        self.order = graph.ranks // len(self.sinks) if group else 1
        self.shards = np.r_[bound.shards, np.zeros(graph.nodes - graph.ranks, np.int64)]
        sources = np.flatnonzero(self.shards)
        self.flow = MaxFlow(np.r_[graph.src, np.full(len(sources), graph.nodes)], np.r_[graph.dst, sources])
        self.starts = self.shards[sources]
        self.capacity = graph.cap[self.names].astype(float)
        self.carried = np.zeros(len(self.names))
        # balance[switch, orbit]: the edges of an orbit that leave the switch, less those that enter it
        self.balance = np.zeros((graph.nodes - graph.ranks, len(self.names)))
        out, into = graph.src >= graph.ranks, graph.dst >= graph.ranks
        np.add.at(self.balance, (graph.src[out] - graph.ranks, self.orbit[out]), 1)
        np.add.at(self.balance, (graph.dst[into] - graph.ranks, self.orbit[into]), -1)

        # Without cuts: rows of capacities, then of the balance at switches. The variables are the unused capacity of
        # each edge, so that edges have full loads where nothing speaks against it: forests need them. The last one is
        # the rate.
        count = len(self.names)
        self.program = LinearProgram([0.0] * count + [-1.0])
        self.program.add_rows([(None, {i: 1.0}, float(c)) for i, c in enumerate(self.capacity)])
        for row, total in zip(self.balance, self.balance @ self.capacity, strict=True):
            self.program.add_rows([(total, _sparse(row), total)])
        self.cuts: list[np.ndarray] = [bound.inside]
        self.crossings: list[np.ndarray] = []  # of the cuts that the program has: edges of each orbit that leave

    def proof(self) -> dict | None:
        """Return the dual of the last program as a certificate; None where it has no answer or the rounds run out."""
        answer, complete = cutting_planes(self._solve, self._add_violated, MOST_ROUNDS)
        if answer is None:
            return None
        self.carried = answer.carried
        return self._certificate(answer) if complete else None

    def narrowed(self) -> Fabric | None:
        """Return the fabric with the edge loads of the last program as capacities.

        None where they are no simple fractions, or are no longer balanced at switches when rounded.
        """
        graph = self.graph
        each = simple_fractions(self.carried, FINEST)
        scale = common_denominator(each)
        if scale > MOST_SCALE:
            return None
        cap = np.array([int(c * scale) for c in each], np.int64)[self.orbit]
        net = np.bincount(graph.src, cap, graph.nodes) - np.bincount(graph.dst, cap, graph.nodes)
        if net[graph.ranks :].any() or (cap > graph.cap * scale).any():
            return None
        return replace(graph, cap=cap, unit=graph.unit / scale)

    def _solve(self) -> _Answer | None:
        """Return the answer of the linear program with the cuts so far; None without one."""
        # rate * (shards that start in the cut) - (load that leaves it) <= 0
        rows = []
        for inside in self.cuts[len(self.crossings) :]:
            leaves = inside[self.graph.src] & ~inside[self.graph.dst]
            crossing = np.bincount(self.orbit[leaves], minlength=len(self.names))
            row = _sparse(np.r_[crossing, int(self.shards[inside].sum())])
            rows.append((None, row, float(crossing @ self.capacity)))
            self.crossings.append(crossing)
        self.program.add_rows(rows)
        solution = self.program.solve()
        if solution is None:
            return None
        value, x, duals = solution
        count = len(self.names)
        _, switches, cuts = np.split(np.array(duals), [count, count + len(self.balance)])
        prices = np.maximum(0.0, -cuts @ np.array(self.crossings) - switches @ self.balance)
        return _Answer(self.capacity - np.array(x[:count]), -value, -cuts, -switches, prices)

    def _add_violated(self, answer: _Answer) -> bool:
        """Add the cuts whose load does not suffice for the rate; return False if there are none."""
        unit = SCALE / max(answer.carried.max(), 1e-9)
        width = np.floor(answer.carried * unit).astype(np.int64)[self.orbit]
        each = math.floor(answer.rate * unit)
        slack = len(self.graph.src) + 1  # rounding down loses less than one step on each edge, and one of the rate
        nodes, wanted = self.graph.nodes, each * int(self.starts.sum())
        self.flow.set_capacities(np.r_[width, self.starts * each].astype(np.int64))
        violated: dict[bytes, np.ndarray] = {}
        for sink in self.sinks:
            if self.flow.value(nodes, sink) < wanted - slack:
                inside = self.flow.source_side(nodes)
                violated[inside.tobytes()] = inside
        self.cuts += violated.values()
        return bool(violated)

    def _certificate(self, answer: _Answer) -> dict:
        """Return the certificate of kind ``throughput-cuts``: rounded duals, and images of the cuts under the group."""
        graph, ends = self.graph, self.graph.ranks + len(self.graph.topology.switches)
        top = max(answer.weights.max(), 1e-12)
        rounded = simple_fractions(answer.weights / top, FINEST)
        cuts: dict[bytes, tuple[list[list[int]], Fraction]] = {}
        most = max(1, MOST_WORK // (len(graph.topology.links) * max(1, sum(w > 0 for w in rounded))))
        identity = np.arange(graph.nodes)
        images = list(group_images(self.group, identity, min(self.order, most))) if self.group else [identity]
        for inside, weight in zip(self.cuts, rounded, strict=True):
            for image in images if weight else ():
                moved = np.zeros_like(inside)
                moved[image] = inside
                key = moved[:ends].tobytes()
                before = cuts[key][1] if key in cuts else Fraction(0)
                cuts[key] = runs(np.flatnonzero(moved[:ends]).tolist()), before + weight

        # The price of each limit; cuts are added up over the whole group, so the potential of a switch counts once for
        # each element that fixes it.
        limits: dict[int, Fraction] = {}
        orbit_prices = simple_fractions(answer.prices / top * (self.order / np.bincount(self.orbit)), FINEST)
        for e in np.flatnonzero(graph.limit >= 0).tolist():
            price = orbit_prices[int(self.orbit[e])]
            if price > 0:
                limits[int(graph.limit[e])] = limits.get(int(graph.limit[e]), Fraction(0)) + price
        fixed = np.ones(graph.nodes)
        if self.group:
            label = orbits(graph.nodes, self.group)
            fixed = self.order // np.bincount(label)[label]
        nodes = range(graph.ranks, ends)
        heights = answer.potentials[: len(nodes)] / top * fixed[graph.ranks : ends]
        potentials = zip(nodes, simple_fractions(heights, FINEST), strict=True)
        return {
            "kind": "throughput-cuts",
            "topology": machine_digest.digest(graph.topology),
            "collective": self.bound.collective,
            "root": self.bound.root if self.bound.collective in ROOTED else None,
            "cuts": [[str(weight), rows] for rows, weight in cuts.values()],
            "limits": [[k, str(price)] for k, price in sorted(limits.items())],
            "potentials": [[n, str(height)] for n, height in potentials if height],
        }


def _sparse(row: np.ndarray) -> dict[int, float]:
    """Return the entries of a row that are not 0, by column."""
    return {i: float(row[i]) for i in np.flatnonzero(row).tolist()}
