"""The partition that bounds allreduce best of all: exact, by Newton's method on the strength of a directed cut
function.

f(S) is the least capacity that leaves a region holding the ranks S and no other rank: a submodular function, whatever
switches and limits the machine has. Sought is the partition of the ranks into m >= 2 parts of least sum of f over parts
/ (m - 1). Whether a ratio L is the least is asked of a greedy algorithm: the greatest vector x with x(S) <= f(S) - L
for all S adds up to the least of the sum of f - L over parts, and the sets where it is tight, joined where they meet,
are the parts (Cunningham, "Optimal attack and reinforcement of a network", JACM 32, 1985; Dilworth's truncation, see
Frank and Tardos, "Generalized polymatroids and submodular flows", 1988). A worse partition gives the next ratio. Ranks
that symmetries exchange get equal entries of x at once, so that one orbit takes a few flows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from synth.encodings import spanning_tree_packing
from synth.model.topology import Network
from synth.scale.fabric.automorphisms import orbits
from synth.scale.fabric.fabric import Fabric
from synth.solvers.max_flow import MaxFlow, checked


class Graph(NamedTuple):
    """Of a fabric what cuts are made of: edge e carries `cap[e]` from node `src[e]` to node `dst[e]`; the first nodes
    are the ranks."""

    name: str
    ranks: int
    nodes: int
    src: np.ndarray
    dst: np.ndarray
    cap: np.ndarray


def tree_rate(network: Network) -> tuple[Fraction, tuple[int, ...]]:
    """The rate of `synth.encodings.spanning_tree_packing.forest` and a partition that proves it, without the trees:
    that they exist is Tutte's theorem.

    Only where `tau.applies`. The time grows with the ranks, not with the digits of the rate.
    """
    part = spanning_tree_packing.start(network)
    src, dst, cap = (np.array([getattr(r, key) for r in network.routes], np.int64) for key in ("src", "dst", "units"))
    graph = Graph(network.name, network.ranks, network.ranks, src, dst, cap)
    for _, label in partitions(graph, 2 * spanning_tree_packing.partition_rate(network, part)):  # each way for itself
        part = tuple(np.unique(label, return_index=True)[1][label].tolist())  # named by their first ranks
    return spanning_tree_packing.partition_rate(network, part), part


def partitions(
    fabric: Fabric | Graph, ratio: Fraction, generators: Sequence[np.ndarray] = ()
) -> Iterator[tuple[Fraction, np.ndarray]]:
    """(sum of f over the parts / (parts - 1), part of each rank), each less than `ratio` and the one before; the last
    is the least.

    None where no partition is below `ratio`. `generators`: symmetries of the fabric. Raises TooLarge for capacities
    beyond 64 bits, TimeUp.
    """
    search = _Greedy(fabric, generators)
    while ratio > 0 and (found := search.parts(ratio)) is not None:
        ratio = found[0]
        yield found


class _Greedy:
    """Entries of x orbit by orbit, as whole multiples of one fraction of a unit."""

    def __init__(self, fabric: Fabric | Graph, generators: Sequence[np.ndarray]) -> None:
        self.fabric = fabric
        self.ranks = ranks = fabric.ranks
        self.moves = [np.asarray(pi[:ranks]) for pi in generators]
        label = orbits(ranks, self.moves)
        order = np.argsort(label, kind="stable")
        self.orbits = np.split(order, np.flatnonzero(np.diff(label[order])) + 1)
        rank, self.source, self.sink = np.arange(ranks), fabric.nodes, fabric.nodes + 1
        into = np.r_[np.full(ranks, self.source), rank]
        self.flow = MaxFlow(np.r_[fabric.src, into], np.r_[fabric.dst, rank, np.full(ranks, self.sink)])
        self.total = int(fabric.cap.sum())
        leaving = np.zeros(fabric.nodes, np.int64)
        np.add.at(leaving, fabric.src, fabric.cap)
        self.leaving = leaving.tolist()

    def parts(self, ratio: Fraction) -> tuple[Fraction, np.ndarray] | None:
        """A partition of a lesser ratio, with that ratio; None where there is none."""
        scale, price = ratio.denominator, ratio.numerator
        self.join = _Join(self.ranks, self.moves)
        x = np.zeros(self.ranks, np.int64)
        self.done = np.zeros(self.ranks, bool)
        fine = 1  # entries of x are in units of 1 / (scale * fine)
        for orbit in self.orbits:
            entry = Fraction(scale * self.leaving[orbit[0]] - price)
            while True:
                finer = entry.denominator // np.gcd(entry.denominator, fine)
                fine, x = fine * int(finer), x * finer
                x[orbit] = int(entry * fine)
                inside, slack = self._tight(int(orbit[0]), orbit, x, scale * fine, price * fine)
                if not slack:
                    break
                entry += Fraction(slack, fine * int(np.isin(orbit, inside).sum()))
            self.done[orbit] = True
            self.join.together(inside)
        label, count = self.join.labels()
        least = Fraction(int(x.sum()), fine)
        if least + price >= 0:
            return None
        return (least + count * price) / (scale * (count - 1)), label

    def _tight(self, rank: int, orbit: np.ndarray, x: np.ndarray, scale: int, price: int) -> tuple[np.ndarray, int]:
        """The ranks S with `rank` of least f(S) - L - x(S), and that, 0 or less."""
        more = scale * self.total + 1
        checked(3 * more + int(np.abs(x).sum()), self.fabric.name)
        held = self.done.copy()
        held[orbit] = True
        gain = np.where(held, np.maximum(x, 0), 0)
        cost = np.where(held, np.maximum(-x, 0), more)
        gain[rank], cost[rank] = more, 0
        self.flow.set(np.r_[self.fabric.cap * scale, gain, cost])
        value = self.flow.value(self.source, self.sink)
        inside = np.flatnonzero(self.flow.inside(self.ranks))
        # the cut counts what is gained outside and what is lost inside; the first rank's own entry is not among them
        return inside, value - (int(gain.sum()) - more) - int(x[rank]) - price


class _Join:
    """The finest partition, kept by `moves`, in which given sets are not divided."""

    def __init__(self, size: int, moves: Sequence[np.ndarray]) -> None:
        self.up = list(range(size))
        self.moves = [pi.tolist() for pi in moves]

    def _top(self, a: int) -> int:
        while self.up[a] != a:
            self.up[a] = self.up[self.up[a]]
            a = self.up[a]
        return a

    def together(self, ranks: np.ndarray) -> None:
        """Joins the parts of `ranks`, and those of all their images."""
        first, *others = ranks.tolist()
        pairs = [(first, other) for other in others]
        for a, b in pairs:
            one, two = self._top(a), self._top(b)
            if one != two:
                self.up[two] = one
                pairs += [(pi[a], pi[b]) for pi in self.moves]

    def labels(self) -> tuple[np.ndarray, int]:
        """The part of each rank, from 0, and how many there are."""
        names, label = np.unique([self._top(a) for a in range(len(self.up))], return_inverse=True)
        return label, len(names)
