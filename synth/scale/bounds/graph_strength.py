"""Graph strength of a directed fabric: the partition that gives the best lower bound on allreduce, exactly.

f(S) is the least capacity that leaves a region with the ranks S and no other rank. It is submodular, whatever switches
and limits the machine has. The strength is the minimum of (sum of f over the parts) / (m - 1) over all partitions of
the ranks into m >= 2 parts. Newton's method starts from a ratio L and asks for a partition with a lesser ratio, which
gives the next L. A greedy algorithm answers: take the greatest vector x with x(S) <= f(S) - L for all S. Its entries
add up to the minimum of the sum of f - L over the parts of a partition. The sets S where x is tight, united where they
intersect, are the parts (Cunningham, "Optimal attack and reinforcement of a network", JACM 32, 1985; Dilworth's
truncation, see Frank and Tardos, "Generalized polymatroids and submodular flows", 1988). Ranks of the same orbit under
the symmetries get equal entries of x at once, so that an orbit takes a few flows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from synth.scale.fabric.automorphisms import orbits
from synth.scale.fabric.fabric import Fabric
from synth.solvers.max_flow import MaxFlow, check_capacity_sum


def partitions(
    fabric: Fabric, ratio: Fraction, generators: Sequence[np.ndarray] = ()
) -> Iterator[tuple[Fraction, np.ndarray]]:
    """Yield (ratio, part of each rank) with falling ratios below `ratio`. The last ratio is the minimum.

    The ratio of a partition is (sum of f over its parts) / (parts - 1). Nothing is yielded where no partition is below
    `ratio`. `generators`: symmetries of the fabric. Raises CapacityOverflowError for capacities beyond 64 bits, TimeUp.
    """
    search = _Greedy(fabric, generators)
    while ratio > 0 and (better := search.parts(ratio)) is not None:
        ratio = better[0]
        yield better


class _Greedy:
    """The greedy algorithm: sets the entries of x orbit by orbit, each a multiple of one fraction of a unit."""

    def __init__(self, fabric: Fabric, generators: Sequence[np.ndarray]) -> None:
        self.fabric = fabric
        self.ranks = ranks = fabric.ranks
        label = orbits(ranks, [np.asarray(pi[:ranks]) for pi in generators])
        self.moves = [np.asarray(pi[:ranks]).tolist() for pi in generators]
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
        """Return a lesser ratio and its partition; None where `ratio` is the minimum."""
        scale, price = ratio.denominator, ratio.numerator
        parent = list(range(self.ranks))  # the finest partition that divides no tight set
        x = np.zeros(self.ranks, np.int64)
        self.done = np.zeros(self.ranks, bool)
        refinement = 1  # x holds integers: its entries times scale * refinement
        for orbit in self.orbits:
            entry = Fraction(scale * self.leaving[orbit[0]] - price)
            while True:
                finer = entry.denominator // np.gcd(entry.denominator, refinement)
                refinement, x = refinement * int(finer), x * finer
                x[orbit] = int(entry * refinement)
                inside, slack = self._tight(int(orbit[0]), orbit, x, scale * refinement, price * refinement)
                if not slack:
                    break
                entry += Fraction(slack, refinement * int(np.isin(orbit, inside).sum()))
            self.done[orbit] = True
            _united(parent, self.moves, inside.tolist())
        names, label = np.unique(parent, return_inverse=True)
        count = len(names)
        least = Fraction(int(x.sum()), refinement)
        if least + price >= 0:
            return None
        return (least + count * price) / (scale * (count - 1)), label

    def _tight(self, rank: int, orbit: np.ndarray, x: np.ndarray, scale: int, price: int) -> tuple[np.ndarray, int]:
        """Return the ranks S that minimise f(S) - L - x(S) among sets with `rank`, and this minimum, which is <= 0.

        S is a subset of the ranks with an entry already. L and f are scaled: `price` is L, capacities are times
        `scale`.
        """
        more = scale * self.total + 1
        check_capacity_sum(3 * more + int(np.abs(x).sum()), self.fabric.name)
        decided = self.done.copy()
        decided[orbit] = True
        gain = np.where(decided, np.maximum(x, 0), 0)
        cost = np.where(decided, np.maximum(-x, 0), more)
        gain[rank], cost[rank] = more, 0
        self.flow.set_capacities(np.r_[self.fabric.cap * scale, gain, cost])
        value = self.flow.value(self.source, self.sink)
        inside = np.flatnonzero(self.flow.source_side(self.ranks))
        # The cut's capacity is f(S), the positive entries outside S and the negative ones inside, but for x[rank].
        return inside, value - (int(gain.sum()) - more) - int(x[rank]) - price


def _united(parent: list[int], moves: Sequence[Sequence[int]], ranks: Sequence[int]) -> None:
    """Unite the parts of `ranks` in a union-find, and the parts of each of their images."""

    def representative(a: int) -> int:
        while parent[a] != a:
            parent[a] = parent[parent[a]]
            a = parent[a]
        return a

    pairs = [(ranks[0], other) for other in ranks[1:]]
    for a, b in pairs:
        first, second = representative(a), representative(b)
        if first != second:
            parent[second] = first
            pairs += [(pi[a], pi[b]) for pi in moves]
    for a in range(len(parent)):
        parent[a] = representative(a)
