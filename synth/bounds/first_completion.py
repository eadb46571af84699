"""Lower bound on allreduce at any number of steps, by the first rank to complete.

Let q be the first rank to hold the sum of a chunk. The useful sends up to then carry every contribution to q. Each
other rank still receives after it. And all sends together connect every pair of ranks. These are three families of
cuts per q, on loads `before` and `after` that share the links, and a chunk has some q:

    minimise R   with   Σ_q λ_q = 1,   Σ_q (before_q + after_q) on k ≤ bandwidth_k · R,
                        before_q crosses every cut around q, after_q enters every other rank, both cross every cut: λ_q
                        times

Time reversal turns an allreduce into another (every pair stays joined), so the reversed network gives a second bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from synth.bounds.cut_lp import SETTINGS, cap_permutation
from synth.bounds.dual_rounding import DENOMINATORS, MAX_SCALE, generator_row, price_rows
from synth.model.collective import Collective
from synth.model.frontier import LowerBound
from synth.model.schedule import problem_fingerprint
from synth.model.symmetry.stabilisers import Generator, orbit, orbits, stabiliser
from synth.model.topology import Network
from synth.solvers.cutting_planes import CutProgram, CutRow
from synth.solvers.linear_program import LinearProgram
from synth.solvers.max_flow import growing_flow
from synth.solvers.rationalise import Rounding, roundings

Side = frozenset[int]  # the ranks inside a cut


@dataclass
class _Root:
    """A rank that may complete first, for its orbit: columns of λ and of the loads before and after, by route."""

    rank: int
    orbit: int
    group: tuple[Generator, ...]
    share: int
    columns: dict[str, list[int]]


RootCut = tuple[_Root, str, Side]  # a cut of the family "before", "after" or "overall"


class FirstCompletionLP:
    """The linear program of the module, on orbits, with cuts separated by maximum flow. Call `run`, then `bound`."""

    def __init__(self, network: Network, collective: Collective, generators: Sequence[Generator]) -> None:
        self.network, self.collective, self.generators = network, collective, tuple(generators)
        self.members = sorted(collective.pre[0])
        same = orbits(network.ranks, [g.ranks for g in generators])
        sizes = Counter(same[r] for r in self.members)
        self.roots: list[_Root] = []
        self.size = 1
        for rank, size in sorted(sizes.items()):
            group = stabiliser(rank, self.generators, lambda g, r: g.ranks[r])
            alike = orbits(len(network.routes), [g.routes for g in group])
            number = {r: k for k, r in enumerate(dict.fromkeys(alike))}
            first = self.size + 1
            columns = {
                "before": [first + number[r] for r in alike],
                "after": [first + len(number) + number[r] for r in alike],
            }
            self.roots.append(_Root(rank, size, group, self.size, columns))
            self.size = first + 2 * len(number)
        lp = LinearProgram([1.0] + [0.0] * (self.size - 1))
        lp.add_rows([(1.0, {root.share: float(root.orbit) for root in self.roots}, None)])
        rows = self._capacity_rows()
        self.capacities = list(rows)
        lp.add_rows([(None, row, 0.0) for row in rows.values()])
        self.program: CutProgram[RootCut] = CutProgram(lp)

    def _capacity_rows(self) -> dict[tuple[str, int], dict[int, float]]:
        """Return the rows of the second constraint, one for each orbit of links or limits."""
        links = orbits(len(self.network.routes), [g.routes for g in self.generators])
        caps = orbits(len(self.network.caps), [cap_permutation(self.network, g) for g in self.generators])
        self.alike = {"link": links, "limit": caps}
        rows: dict[tuple[str, int], dict[int, float]] = {}
        resources = [(("link", links[i]), r.units, (i,)) for i, r in enumerate(self.network.routes)]
        resources += [(("limit", caps[k]), c.units, c.routes) for k, c in enumerate(self.network.caps)]
        for key, units, routes in resources:
            row = rows.setdefault(key, {0: 0.0})
            row[0] -= units
            for root in self.roots:
                for i in routes:
                    for column in (root.columns["before"][i], root.columns["after"][i]):
                        row[column] = row.get(column, 0.0) + root.orbit
        return rows

    def run(self) -> float:
        """Add violated cuts until there are none, and return the optimum R, in rounds per chunk.

        Raises ArithmeticError where the solver fails.
        """
        others = [(root, p) for root in self.roots for p in self.members if p != root.rank]
        everyone = frozenset(range(self.network.ranks))
        self.program.add(self._row(root, "after", frozenset((p,))) for root, p in others)
        self.program.add(self._row(root, "before", frozenset((root.rank,))) for root in self.roots)
        self.program.add(self._row(root, "before", everyone - {p}) for root, p in others)
        self.program.run(self._violated, SETTINGS.max_cycles)
        if not self.program.solution:
            raise ArithmeticError("the linear solver found no optimum")
        return self.program.optimum

    def _row(self, root: _Root, family: str, inside: Side) -> CutRow[RootCut]:
        row: dict[int, float] = {root.share: -1.0}
        for i in self.entering(inside):
            for phase in ("before", "after") if family == "overall" else (family,):
                column = root.columns[phase][i]
                row[column] = row.get(column, 0.0) + 1.0
        return CutRow((root, family, inside), row, 0.0)

    def entering(self, inside: Side) -> list[int]:
        """Return the numbers of the routes into the set `inside` from outside."""
        return [i for i, r in enumerate(self.network.routes) if r.src not in inside and r.dst in inside]

    def _violated(self, x: list[float]) -> Iterator[CutRow[RootCut]]:
        for root in self.roots:
            if x[root.share] >= SETTINGS.tolerance:
                yield from self._violated_of(root, x)

    def _violated_of(self, root: _Root, x: list[float]) -> Iterator[CutRow[RootCut]]:
        before = [x[c] for c in root.columns["before"]]
        total = [a + x[c] for a, c in zip(before, root.columns["after"], strict=True)]
        for family, loads, ends in (("before", before, [root.rank]), ("overall", total, self.members)):
            graph = growing_flow()
            for route, load in zip(self.network.routes, loads, strict=True):
                graph.add_arc_with_capacity(route.src, route.dst, int(max(load, 0.0) * SETTINGS.scale))
            for d in ends:
                for i in self.members:
                    if i != d:
                        graph.solve(i, d)
                        if graph.optimal_flow() < SETTINGS.scale * x[root.share] * (1 - SETTINGS.tolerance):
                            yield self._row(root, family, frozenset(graph.get_sink_side_min_cut()))

    def bound(self, *, turned: bool, original: tuple[Network, Collective]) -> LowerBound:
        """Return the exact bound that rounding the duals gives, with its certificate, after `run`.

        `original`: the problem that the certificate names. `turned`: the program's network is the reversal of that.
        """
        duals = self.program.duals[1:]  # without that of Σ λ = 1
        prices = {key: max(0.0, -mu) for key, mu in zip(self.capacities, duals, strict=True)}
        images: dict[int, list[tuple[float, str, Side]]] = {root.rank: [] for root in self.roots}
        for (root, family, inside), weight in self.program.weights:
            if weight > 1e-12:
                same = orbit(inside, root.group, _move_side) or [inside]
                images[root.rank] += [(weight / root.orbit / len(same), family, s) for s in same]
        best = LowerBound(Fraction(0), {})
        values = [*prices.values(), *(w for rows in images.values() for w, _, _ in rows)]
        for rounding in roundings(values, DENOMINATORS, MAX_SCALE):
            made = self._exact(rounding, prices, images, turned=turned, original=original)
            best = max(best, made, key=lambda b: b.value)
            if best.value >= self.program.optimum - 1e-9:
                break
        return best

    def _exact(
        self, whole: Rounding, prices: dict, images: dict, *, turned: bool, original: tuple[Network, Collective]
    ) -> LowerBound:
        scale = whole.scale
        tables: dict[str, dict[int, list[int]]] = {}
        for kind, same in self.alike.items():
            tables[kind] = {k: [whole(prices[kind, representative])] for k, representative in enumerate(same)}
        spent = sum(r.units * tables["link"][i][0] for i, r in enumerate(self.network.routes))
        if spent + sum(c.units * tables["limit"][k][0] for k, c in enumerate(self.network.caps)) > scale:
            return LowerBound(Fraction(0), {})
        capacity: list[int] = []  # maximum total weight of the cuts that a route enters
        for i, limits in enumerate(self.network.caps_of):
            capacity.append(tables["link"][i][0] + sum(tables["limit"][k][0] for k in limits))
        parts, values = {}, []
        for rank, rows in images.items():
            left = {"before": list(capacity), "after": list(capacity)}
            part: dict = {"before": [], "after": [0] * self.network.ranks, "overall": []}
            total = 0
            whole_rows = [(whole(w), f, s) for w, f, s in rows]
            for weight, family, inside in sorted(whole_rows, key=lambda row: (-row[0], row[1], sorted(row[2]))):
                phases = ("before", "after") if family == "overall" else (family,)
                routes = self.entering(inside)
                fits = min([weight, *(left[phase][i] for phase in phases for i in routes)])
                if fits <= 0:
                    continue
                for phase in phases:
                    for i in routes:
                        left[phase][i] -= fits
                total += fits
                if family == "after":
                    part["after"][min(inside)] += fits
                else:
                    theta = [-1] * self.network.ranks
                    for n in inside:
                        theta[n] = 1
                    part[family].append([fits, *theta])
            parts[str(rank)] = part
            values.append(total)
        network, collective = original
        certificate = {
            "kind": "allreduce-cuts", "problem": problem_fingerprint(network, collective), "scale": scale,
            "prices": price_rows(network, tables["link"], tables["limit"], self.generators), "roots": parts,
            "generators": [generator_row(g, network) for g in self.generators],
        }  # fmt: skip
        return LowerBound(Fraction(min(values), scale), certificate | ({"reversed": True} if turned else {}))


def _move_side(g: Generator, inside: Side) -> Side:
    """Return the image of a set of ranks."""
    return frozenset(g.ranks[r] for r in inside)


def first_completion_bound(network: Network, collective: Collective, generators: Sequence[Generator]) -> LowerBound:
    """Return the bound on R/C of an allreduce of one unit, for every number of chunks and steps.

    It is the greater of those by the network and by its reversal. `generators`: automorphisms of the problem. The
    certificate's kind is ``allreduce-cuts``.
    """
    found = []
    for turned, net in ((False, network), (True, network.reversed())):
        roots = FirstCompletionLP(net, collective, generators)
        roots.run()
        found.append(roots.bound(turned=turned, original=(network, collective)))
    return max(found, key=lambda b: b.value)
