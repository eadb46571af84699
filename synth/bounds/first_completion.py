"""Allreduce at any number of steps: what must move before the first rank completes, and after.

Let q be the first rank to hold the sum of a chunk. The sends that matter up to then carry every contribution to q; each
other rank still receives after it; and all sends together join every pair. These are three families of cuts per q, on
loads `before` and `after` that share the links, and a chunk has some q:

    minimise R   with   Σ_q λ_q = 1,   Σ_q (before_q + after_q) on k ≤ bandwidth_k · R,
                        before_q crosses every cut around q, after_q enters every other rank, both cross every cut: λ_q
                        times

Time reversal turns an allreduce into another (every pair stays joined), so the reversed network gives a second bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import lcm

from synth.bounds.cut_lp import MAX_CYCLES, SCALE, TOLERANCE, cap_permutation
from synth.bounds.dual_rounding import DENOMINATORS, FLOOR_SCALE, show_generator, show_prices
from synth.model.collective import Collective
from synth.model.frontier import LowerBound
from synth.model.schedule import problem_fingerprint
from synth.model.symmetry.stabilisers import Generator, orbit, orbits, stabiliser
from synth.model.topology import Network
from synth.solvers.linear_program import LinearProgram

Side = frozenset[int]  # the ranks inside a cut


@dataclass
class _Root:
    """A rank that may complete first, for its orbit: columns of λ and of the loads before and after, by route."""

    rank: int
    orbit: int
    group: tuple[Generator, ...]
    share: int
    columns: dict[str, list[int]]
    known: set[tuple] = field(default_factory=set)


class Roots:
    """The linear program above, on orbits, with cuts added where a maximum flow finds one violated."""

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
        self.lp = LinearProgram([1.0] + [0.0] * (self.size - 1))
        self.lp.add_rows([(1.0, {root.share: float(root.orbit) for root in self.roots}, None)])
        self.capacities = self._add_capacities()
        self.order: list[tuple[_Root, str, Side]] = []

    def _add_capacities(self) -> list[tuple[str, int]]:
        links = orbits(len(self.network.routes), [g.routes for g in self.generators])
        caps = orbits(len(self.network.caps), [cap_permutation(self.network, g) for g in self.generators])
        self.alike = {"link": links, "limit": caps}
        rows: dict[tuple[str, int], dict[int, float]] = {}
        for kind, same, units, inside in (
            ("link", links, [r.units for r in self.network.routes], [[i] for i in range(len(links))]),
            ("limit", caps, [c.units for c in self.network.caps], [c.routes for c in self.network.caps]),
        ):
            for k, routes in enumerate(inside):
                row = rows.setdefault((kind, same[k]), {0: 0.0})
                row[0] -= units[k]
                for root in self.roots:
                    for i in routes:
                        for column in (root.columns["before"][i], root.columns["after"][i]):
                            row[column] = row.get(column, 0.0) + root.orbit
        self.lp.add_rows([(None, row, 0.0) for row in rows.values()])
        return list(rows)

    def run(self) -> float:
        """The optimum of the linear program."""
        others = {root.rank: [n for n in self.members if n != root.rank] for root in self.roots}
        found = [(root, "after", frozenset((p,))) for root in self.roots for p in others[root.rank]]
        found += [(root, "before", frozenset((root.rank,))) for root in self.roots]
        everyone = frozenset(range(self.network.ranks))
        found += [(root, "before", everyone - {p}) for root in self.roots for p in others[root.rank]]
        for _ in range(MAX_CYCLES):
            if not self._add(found):
                break
            answer = self.lp.solve()
            if answer is None:
                raise ArithmeticError("the linear solver found no optimum")
            self.optimum, x, self.duals = answer
            found = [cut for root in self.roots for cut in self._violated(root, x)]
        return self.optimum

    def _add(self, found: list[tuple[_Root, str, Side]]) -> bool:
        rows = []
        for root, family, inside in found:
            row: dict[int, float] = {}
            for i in self.entering(inside):
                for phase in ("before", "after") if family == "overall" else (family,):
                    column = root.columns[phase][i]
                    row[column] = row.get(column, 0.0) + 1.0
            key = (family, *sorted(row.items()))
            if key not in root.known:
                root.known.add(key)
                self.order.append((root, family, inside))
                rows.append((0.0, row | {root.share: -1.0}, None))
        if rows:
            self.lp.add_rows(rows)
        return bool(rows)

    def entering(self, inside: Side) -> list[int]:
        """Routes into the set."""
        return [i for i, r in enumerate(self.network.routes) if r.src not in inside and r.dst in inside]

    def _violated(self, root: _Root, x: list[float]) -> list[tuple[_Root, str, Side]]:
        from ortools.graph.python.max_flow import SimpleMaxFlow

        share = x[root.share]
        if share < TOLERANCE:
            return []
        before = [x[c] for c in root.columns["before"]]
        total = [a + x[c] for a, c in zip(before, root.columns["after"], strict=True)]
        found = []
        for family, loads, ends in (("before", before, [root.rank]), ("overall", total, self.members)):
            graph = SimpleMaxFlow()
            for route, load in zip(self.network.routes, loads, strict=True):
                graph.add_arc_with_capacity(route.src, route.dst, int(max(load, 0.0) * SCALE))
            for d in ends:
                for i in self.members:
                    if i != d:
                        graph.solve(i, d)
                        if graph.optimal_flow() < SCALE * share * (1 - TOLERANCE):
                            found.append((root, family, frozenset(graph.get_sink_side_min_cut())))
        return found

    def bound(self, *, turned: bool, original: tuple[Network, Collective]) -> LowerBound:
        """The best exact packing from the last dual, as a certificate (`original`: what was asked, before any
        reversal)."""
        n = len(self.capacities)
        prices = {key: max(0.0, -mu) for key, mu in zip(self.capacities, self.duals[1:], strict=False)}
        images: dict[int, list[tuple[float, str, Side]]] = {root.rank: [] for root in self.roots}
        for (root, family, inside), weight in zip(self.order, self.duals[n + 1 :], strict=True):
            if weight > 1e-12:
                same = orbit(inside, root.group, lambda g, s: frozenset(g.ranks[r] for r in s)) or [inside]
                images[root.rank] += [(weight / root.orbit / len(same), family, s) for s in same]
        best = LowerBound(Fraction(0), {})
        for most in (*DENOMINATORS, None):
            values = [*prices.values(), *(w for rows in images.values() for w, _, _ in rows)]
            scale = lcm(*(Fraction(v).limit_denominator(most).denominator for v in values)) if most else FLOOR_SCALE
            if scale > FLOOR_SCALE:
                continue
            made = self._exact(scale, prices, images, near=most is not None, turned=turned, original=original)
            best = max(best, made, key=lambda b: b.value)
            if best.value >= self.optimum - 1e-9:
                break
        return best

    def _exact(
        self, scale: int, prices: dict, images: dict, *, near: bool, turned: bool, original: tuple[Network, Collective]
    ) -> LowerBound:
        whole = (lambda v: round(v * scale)) if near else (lambda v: int(v * scale * (1 - 1e-12)))
        tables = {
            kind: {k: [whole(prices[kind, same[k]])] for k in range(len(same))} for kind, same in self.alike.items()
        }
        spent = sum(r.units * tables["link"][i][0] for i, r in enumerate(self.network.routes))
        if spent + sum(c.units * tables["limit"][k][0] for k, c in enumerate(self.network.caps)) > scale:
            return LowerBound(Fraction(0), {})
        room = [
            tables["link"][i][0] + sum(tables["limit"][k][0] for k in self.network.caps_of[i])
            for i in range(len(self.network.routes))
        ]
        parts, values = {}, []
        for rank, rows in images.items():
            left = {"before": list(room), "after": list(room)}
            part: dict = {"before": [], "after": [0] * self.network.ranks, "overall": []}
            total = 0
            for weight, family, inside in sorted(
                ((whole(w), f, s) for w, f, s in rows), key=lambda row: (-row[0], row[1], sorted(row[2]))
            ):
                phases = ("before", "after") if family == "overall" else (family,)
                ways = self.entering(inside)
                fits = min([weight, *(left[phase][i] for phase in phases for i in ways)])
                if fits <= 0:
                    continue
                for phase in phases:
                    for i in ways:
                        left[phase][i] -= fits
                total += fits
                if family == "after":
                    part["after"][min(inside)] += fits
                else:
                    part[family].append([fits, *(1 if n in inside else -1 for n in range(self.network.ranks))])
            parts[str(rank)] = part
            values.append(total)
        network, collective = original
        certificate = {
            "kind": "allreduce-cuts", "problem": problem_fingerprint(network, collective), "scale": scale,
            "prices": show_prices(network, tables["link"], tables["limit"], self.generators), "roots": parts,
            "generators": [show_generator(g, network) for g in self.generators],
        }  # fmt: skip
        return LowerBound(Fraction(min(values), scale), certificate | ({"reversed": True} if turned else {}))


def by_roots(network: Network, collective: Collective, generators: Sequence[Generator]) -> LowerBound:
    """The greater of the bound and the bound of the reversed network. Certificate kind ``allreduce-cuts``."""
    found = []
    for turned, net in ((False, network), (True, network.reversed())):
        roots = Roots(net, collective, generators)
        roots.run()
        found.append(roots.bound(turned=turned, original=(network, collective)))
    return max(found, key=lambda b: b.value)
