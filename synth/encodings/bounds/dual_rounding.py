"""Dual rounding: from the float dual of a flow bound to an exact certificate, by rationals and a pass over capacities.

Every feasible packing of cuts proves a bound, so rounding can only make a bound weaker, never wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from synth.encodings.bounds.cut_lp import CutLP, CutOrCover, UnitOrbit, cap_permutation, counted_sends, least_sends
from synth.encodings.bounds.receive_covers import Cover
from synth.model.collective import Collective
from synth.model.schedule import problem_fingerprint
from synth.model.symmetry.stabilisers import Generator, orbit, orbits
from synth.model.topology import Network
from synth.solvers.rationalise import Rounding, roundings

DENOMINATORS = (100, 1_000, 10_000, 100_000, 1_000_000)  # maximum denominators of the dual values, in trying order
MAX_SCALE = 10**9  # maximum scale of a certificate, and the scale at which values are rounded down in the end
MAX_IMAGES = 5_000  # maximum orbit of a cut; a larger one is represented by the cut alone, for a weaker bound
AVERAGED = 17  # least number of ranks from which on cuts stand for the mean of their images, which are not listed


@dataclass
class IntegerDual:
    """An exact dual solution: integer prices, and weighted cuts that the prices pay for.

    Attributes:
        steps: number of steps, None where prices are the same in every step.
        scale: maximum of Σ units · price in each step; the bound on R/C is the total weight divided by it.
        links: price in each step, by route; routes of price 0 may be missing. `limits`: the same by shared limit.
        cuts: (weight, cut or cover) rows of each representative unit.
        orbits: number of units in the orbit of each representative unit.
        averaged: for representative units whose cuts stand for the mean of their images, the generators of a group that
            fixes the unit and, for each route, the first one of its orbit.
        count: price of each send beside those of its links, if each chunk needs `sends` sends in all.
    """

    network: Network
    collective: Collective
    steps: int | None
    scale: int
    generators: tuple[Generator, ...]
    links: dict[int, list[int]]
    limits: dict[int, list[int]]
    cuts: dict[int, list[tuple[int, CutOrCover]]]
    orbits: dict[int, int]
    count: int = 0
    sends: int = 0
    averaged: dict[int, tuple[tuple[Generator, ...], list[int]]] = field(default_factory=dict)
    kind: str = field(init=False)

    def __post_init__(self) -> None:
        self.kind = "static-cuts" if self.steps is None else "deadline-cuts"

    @property
    def layers(self) -> int:
        """Number of steps with prices of their own: one if prices are the same in every step."""
        return self.steps or 1

    def capacity(self, route: int, step: int) -> int:
        """Return the maximum total weight of the cuts that a send over `route` in step `step` may enter: its price."""
        y = self.links[route][step - 1] if route in self.links else 0
        for k in self.network.caps_of[route]:
            y += self.limits[k][step - 1] if k in self.limits else 0
        return y - self.count

    def slacks(self) -> list[int]:
        """Return `scale` - Σ units · price over all links and limits, for each step."""
        slack = [self.scale] * self.layers
        for table, resources in ((self.links, self.network.routes), (self.limits, self.network.caps)):
            for k, row in table.items():
                for t, y in enumerate(row):
                    slack[t] -= resources[k].units * y
        return slack

    @property
    def value(self) -> Fraction:
        """The bound on R/C for any number of chunks."""
        return Fraction(self._total(), self.scale)

    def _total(self) -> int:
        total = 0
        for u, size in self.orbits.items():
            value = sum(w * least_sends(item) for w, item in self.cuts.get(u, ()))
            total += size * (value + self.sends * self.count)
        return total

    def fit(self) -> bool:
        """Reduce the weights of cuts, in place, until each send can pay for the cuts that it enters.

        The heaviest cuts come first. Returns False if the prices exceed `scale`, which no weights can mend.
        """
        if self.count < 0 or min(self.slacks(), default=0) < 0:
            return False
        if self.count and any(
            self.capacity(i, t) < 0 for i in range(len(self.network.routes)) for t in range(1, self.layers + 1)
        ):
            return False
        for unit, rows in self.cuts.items():
            _, same = self.averaged.get(unit, ((), range(len(self.network.routes))))
            size = Counter(same)
            capacity: dict[tuple[int, int], int] = {}
            fitted = []
            for weight, cut in sorted(rows, key=_order, reverse=True):
                places = Counter((same[i], t) for i, t in counted_sends(self.network, cut, self.layers))
                for i, t in places:
                    if (i, t) not in capacity:
                        capacity[i, t] = size[i] * self.capacity(i, t)
                weight = min([weight, *(capacity[p] // count for p, count in places.items())])
                if weight > 0:
                    fitted.append((weight, cut))
                    for place, count in places.items():
                        capacity[place] -= weight * count
            self.cuts[unit] = fitted
        return True

    def certificate(self) -> dict:
        """Return the certificate as JSON (docs/proofs.md)."""
        doc: dict = {
            "kind": self.kind, "problem": problem_fingerprint(self.network, self.collective), "steps": self.steps,
            "scale": self.scale, "prices": price_rows(self.network, self.links, self.limits, self.generators),
            "cuts": self._rows(False),
            "generators": [generator_row(g, self.network) for g in self.generators],
        }  # fmt: skip
        covers = self._rows(True)
        if self.count:
            doc["count"] = self.count
        if covers:
            doc["covers"] = covers
        for unit, (group, _) in sorted(self.averaged.items()):
            if str(unit) in doc["cuts"]:
                doc.setdefault("averaged", {})[str(unit)] = [generator_row(g, self.network) for g in group]
        return doc

    def _rows(self, covers: bool) -> dict[str, list]:
        shown: dict[str, list] = {}
        for u, rows in sorted(self.cuts.items()):
            mine = [[w, *item] for w, item in rows if isinstance(item, Cover) == covers]
            if mine:
                shown[str(u)] = mine
        return shown


def _order(row: tuple[int, CutOrCover]) -> tuple:
    return row[0], isinstance(row[1], Cover), row[1]


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
    prices, cuts, count = master.duals()
    images: dict[int, list[tuple[float, CutOrCover]]] = {}
    averaged = {}
    if master.network.ranks >= AVERAGED and not master.static:
        averaged = {share.unit: (_needed(share), share.routes) for share in master.shares if not share.covers}
    for share, cut, weight in cuts:
        same = [cut]
        if share.unit not in averaged:
            same = orbit(cut, share.group, _move_cut, MAX_IMAGES) or [cut]
        images.setdefault(share.unit, []).extend((weight / len(same), c) for c in same)
    best: IntegerDual | None = None
    values = [*prices.values(), *(w for rows in images.values() for w, _ in rows), count]
    for rounding in roundings(values, DENOMINATORS, MAX_SCALE):
        packing = _rounded(master, rounding, prices, images, count)
        packing.averaged = averaged
        if packing.fit():
            if best is None or packing.value > best.value:
                best = packing
            if float(best.value) >= master.program.optimum - 1e-9:
                break
    if best is None:
        raise ArithmeticError("no exact packing could be made")
    return best


def _needed(share: UnitOrbit) -> tuple[Generator, ...]:
    """Return those of the generators of a unit's stabiliser that make the orbits of routes."""
    kept: list[Generator] = []
    count = len(share.routes)
    for g in share.group:
        fewer = len(set(orbits(len(share.routes), [*(k.routes for k in kept), g.routes])))
        if fewer < count:
            kept.append(g)
            count = fewer
    return tuple(kept)


def _rounded(master: CutLP, rounding: Rounding, prices: dict, images: dict, count: float) -> IntegerDual:
    spent = _spent(master, prices)

    def whole(x: float) -> int:
        return rounding(x, spent)

    tables: dict[str, dict[int, list[int]]] = {"link": {}, "limit": {}}
    for kind, same in (("link", master.routes), ("limit", master.caps)):
        for k, representative in enumerate(same):
            row = [whole(prices.get((kind, representative, t), 0.0)) for t in range(1, master.steps + 1)]
            if any(row):
                tables[kind][k] = row
    cuts: dict[int, list[tuple[int, CutOrCover]]] = {}
    for u, rows in images.items():
        cuts[u] = [(whole(w), c) for w, c in rows if whole(w)]
    steps = None if master.static else master.steps
    sizes = {share.unit: share.orbit for share in master.shares}
    return IntegerDual(
        master.network,
        master.collective,
        steps,
        rounding.scale,
        master.generators,
        tables["link"],
        tables["limit"],
        cuts,
        sizes,
        whole(count),
        master.count,
    )


def _spent(master: CutLP, prices: dict[tuple[str, int, int], float]) -> float:
    """Return the value of all bandwidth in the most expensive step: 1 up to the solver's tolerance."""
    units: Counter[tuple[str, int]] = Counter()
    for i, route in enumerate(master.network.routes):
        units["link", master.routes[i]] += route.units
    for k, cap in enumerate(master.network.caps):
        units["limit", master.caps[k]] += cap.units
    spent: Counter[int] = Counter()
    for (kind, k, t), price in prices.items():
        spent[t] += price * units[kind, k]  # type: ignore[assignment]
    return float(max(spent.values(), default=0.0))


def _move_cut(g: Generator, item: CutOrCover) -> CutOrCover:
    if isinstance(item, Cover):
        return item._replace(rank=g.ranks[item.rank])
    moved = [0] * len(item)
    for n, theta in enumerate(item):
        moved[g.ranks[n]] = theta
    return tuple(moved)
