"""Dual rounding: from the float dual of a flow bound to an exact certificate, by rationals and a pass over capacities.

Every feasible packing of cuts proves a bound, so rounding can only make a bound weaker, never wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from synth.encodings.bounds.cut_lp import CutLP, CutOrCover, cap_permutation, counted_sends, least_sends
from synth.encodings.bounds.receive_covers import Cover
from synth.model.schedule import problem_fingerprint
from synth.model.symmetry.stabilisers import Generator, orbit, orbits
from synth.model.topology import Network
from synth.solvers.rationalise import roundings

# Maximum denominators of the dual values, in trying order.
DENOMINATORS = (100, 1_000, 10_000, 100_000, 1_000_000)
# Maximum scale of a certificate, and the scale at which values are rounded down in the end.
MAX_SCALE = 10**9
# Maximum orbit of a cut; a larger one is represented by the cut alone, for a weaker bound.
MAX_IMAGES = 5_000
# Least number of ranks from which on cuts stand for the mean of their images, which are not listed.
AVERAGED = 17


@dataclass
class IntegerDual:
    """An exact dual solution: integer prices, and weighted cuts that the prices pay for.

    Attributes:
        master: the program; a bound for every number of steps has one price for all of them.
        scale: maximum of Σ units · price in each step; the bound on R/C is the total weight divided by it.
        links: price in each step, by route; routes of price 0 may be missing. `limits`: the same by shared limit.
        cuts: (weight, cut or cover) rows of each representative unit.
        count: price of each send beside those of its links, if each chunk needs a number of sends in all.
        averaged: for representative units whose cuts stand for the mean of their images, the generators of a group that
            fixes the unit and, for each route, the first one of its orbit.
    """

    master: CutLP
    scale: int
    links: dict[int, list[int]]
    limits: dict[int, list[int]]
    cuts: dict[int, list[tuple[int, CutOrCover]]]
    count: int
    averaged: dict[int, tuple[tuple[Generator, ...], list[int]]]

    def capacity(self, route: int, step: int) -> int:
        """Return the maximum total weight of the cuts that a send over `route` in step `step` may enter: its price."""
        y = self.links[route][step - 1] if route in self.links else 0
        for k in self.master.network.caps_of[route]:
            y += self.limits[k][step - 1] if k in self.limits else 0
        return y - self.count

    @property
    def value(self) -> Fraction:
        """The bound on R/C for any number of chunks."""
        total = 0
        for share in self.master.shares:
            weight = sum(w * least_sends(item) for w, item in self.cuts.get(share.unit, ()))
            total += share.orbit * (weight + self.master.count * self.count)
        return Fraction(total, self.scale)

    def fit(self) -> bool:
        """Reduce the weights of cuts, in place, until each send can pay for the cuts that it enters.

        The heaviest cuts come first. Returns False if the prices exceed `scale`, which no weights can mend.
        """
        network, steps = self.master.network, self.master.steps
        slack = [self.scale] * steps
        for table, resources in ((self.links, network.routes), (self.limits, network.caps)):
            for k, row in table.items():
                for t, y in enumerate(row):
                    slack[t] -= resources[k].units * y
        if self.count < 0 or min(slack) < 0:
            return False
        places = [(i, t) for i in range(len(network.routes)) for t in range(1, steps + 1)]
        if self.count and any(self.capacity(*place) < 0 for place in places):
            return False
        for unit, rows in self.cuts.items():
            _, same = self.averaged.get(unit, ((), range(len(network.routes))))
            size = Counter(same)
            capacity: dict[tuple[int, int], int] = {}
            fitted = []
            for weight, cut in sorted(rows, key=lambda row: (row[0], isinstance(row[1], Cover), row[1]), reverse=True):
                paid = Counter((same[i], t) for i, t in counted_sends(network, cut, steps))
                for i, t in paid:
                    if (i, t) not in capacity:
                        capacity[i, t] = size[i] * self.capacity(i, t)
                weight = min([weight, *(capacity[place] // count for place, count in paid.items())])
                if weight > 0:
                    fitted.append((weight, cut))
                    for place, count in paid.items():
                        capacity[place] -= weight * count
            self.cuts[unit] = fitted
        return True

    def certificate(self) -> dict:
        """Return the certificate as JSON (docs/proofs.md)."""
        master, network = self.master, self.master.network
        rows: dict[str, dict[str, list]] = {"cuts": {}, "covers": {}}
        for u, items in sorted(self.cuts.items()):
            for weight, item in items:
                kind = "covers" if isinstance(item, Cover) else "cuts"
                rows[kind].setdefault(str(u), []).append([weight, *item])
        doc: dict = {
            "kind": "static-cuts" if master.static else "deadline-cuts",
            "problem": problem_fingerprint(network, master.collective),
            "steps": None if master.static else master.steps,
            "scale": self.scale,
            "prices": price_rows(network, self.links, self.limits, master.generators),
            "cuts": rows["cuts"],
            "generators": [generator_row(g, network) for g in master.generators],
        }
        if self.count:
            doc["count"] = self.count
        if rows["covers"]:
            doc["covers"] = rows["covers"]
        for unit, (group, _) in sorted(self.averaged.items()):
            if str(unit) in doc["cuts"]:
                doc.setdefault("averaged", {})[str(unit)] = [generator_row(g, network) for g in group]
        return doc


def price_rows(
    network: Network, links: dict[int, list[int]], limits: dict[int, list[int]], generators: Sequence[Generator]
) -> list[list]:  # fmt: skip
    """Return the rows of a certificate's prices: ``["link", src, dst, price in each step...]``, or ``["limit", k,
    ...]``.

    There is one for each orbit of links or limits under `generators` with a price above 0. The switches of a link
    through switches follow `dst`.
    """
    shown: list[list] = []
    of_route = orbits(len(network.routes), [g.routes for g in generators])
    of_limit = orbits(len(network.caps), [cap_permutation(network, g) for g in generators])
    for i, row in sorted(links.items()):
        r = network.routes[i]
        if any(row) and of_route[i] == i:
            shown.append(["link", r.src, r.dst, *([list(r.via)] if r.via else []), *row])
    return shown + [["limit", k, *row] for k, row in sorted(limits.items()) if any(row) and of_limit[k] == k]


def generator_row(g: Generator, network: Network) -> list:
    """Return a generator as a certificate has it: [ranks, units], and routes where the ranks do not determine them."""
    parallel = len({(r.src, r.dst) for r in network.routes}) < len(network.routes)
    return [list(g.ranks), list(g.units), *([list(g.routes)] if parallel else [])]


def round_duals(master: CutLP) -> IntegerDual:
    """Return the best exact packing that comes of rounding the duals of `master`, after its `run`.

    Raises ArithmeticError where no rounding gives one.
    """
    network = master.network
    prices, cuts, count = master.duals()

    # units whose cuts stand for the mean of their images: those generators of the stabiliser that make the orbits
    averaged: dict[int, tuple[tuple[Generator, ...], list[int]]] = {}
    for share in master.shares:
        if network.ranks >= AVERAGED and not master.static and not share.covers:
            kept: list[Generator] = []
            orbits_left = len(share.routes)
            for g in share.group:
                fewer = len(set(orbits(len(share.routes), [*(k.routes for k in kept), g.routes])))
                if fewer < orbits_left:
                    kept.append(g)
                    orbits_left = fewer
            averaged[share.unit] = tuple(kept), share.routes

    # the cuts of the others, with all their images
    images: dict[int, list[tuple[float, CutOrCover]]] = {}
    for share, cut, weight in cuts:
        same = [cut]
        if share.unit not in averaged:
            same = orbit(cut, share.group, _move_cut, MAX_IMAGES) or [cut]
        images.setdefault(share.unit, []).extend((weight / len(same), c) for c in same)

    # the value of all bandwidth in the most expensive step: 1 up to the solver's tolerance
    units: Counter[tuple[str, int]] = Counter()
    for i, route in enumerate(network.routes):
        units["link", master.routes[i]] += route.units
    for k, cap in enumerate(network.caps):
        units["limit", master.caps[k]] += cap.units
    values = [0.0] * master.steps
    for (kind, k, t), price in prices.items():
        values[t - 1] += price * units[kind, k]
    spent = max(values)

    best: IntegerDual | None = None
    floats = [*prices.values(), *(w for rows in images.values() for w, _ in rows), count]
    for rounding in roundings(floats, DENOMINATORS, MAX_SCALE):
        tables: dict[str, dict[int, list[int]]] = {"link": {}, "limit": {}}
        for kind, same in (("link", master.routes), ("limit", master.caps)):
            for k, first in enumerate(same):
                row = [rounding(prices.get((kind, first, t), 0.0), spent) for t in range(1, master.steps + 1)]
                if any(row):
                    tables[kind][k] = row
        weighted: dict[int, list[tuple[int, CutOrCover]]] = {}
        for u, rows in images.items():
            weighted[u] = [(n, c) for w, c in rows if (n := rounding(w, spent))]
        links, limits = tables["link"], tables["limit"]
        packing = IntegerDual(master, rounding.scale, links, limits, weighted, rounding(count, spent), averaged)
        if packing.fit():
            if best is None or packing.value > best.value:
                best = packing
            if float(best.value) >= master.program.optimum - 1e-9:
                break
    if best is None:
        raise ArithmeticError("no exact packing could be made")
    return best


def _move_cut(g: Generator, item: CutOrCover) -> CutOrCover:
    if isinstance(item, Cover):
        return item._replace(rank=g.ranks[item.rank])
    moved = [0] * len(item)
    for n, theta in enumerate(item):
        moved[g.ranks[n]] = theta
    return tuple(moved)
