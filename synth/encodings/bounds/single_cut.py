"""Cut-set bound: a quick lower bound on rounds per chunk for any number of steps, by the best single cut of a few.

The certificate is of kind ``static-cuts``, with one set of ranks. Every link into the set is paid for by its own price
or by that of a limit that it counts against. Each unit wanted inside enters at least once, and sums that differ from
rank to rank as often as there are linearly independent ones among those wanted inside, restricted to contributions from
outside (docs/proofs.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction
from math import lcm

from synth.checker.certificates.cuts import check
from synth.checker.certificates.instance import MOST_WORK
from synth.encodings.bounds.demands import sends_of_a_chunk
from synth.encodings.bounds.distance import steps
from synth.encodings.bounds.dual_rounding import price_rows
from synth.model.collective import Collective
from synth.model.frontier import LowerBound
from synth.model.gc_pause import collector_off
from synth.model.schedule import problem_fingerprint
from synth.model.topology import Network
from synth.solvers.deadline import current_deadline

Ranks = frozenset[int]
Prices = dict[tuple[str, int], tuple[int, Fraction]]  # by link or limit: its units, and its price if a send pays 1


@collector_off()
def single_cut_bound(network: Network, collective: Collective, sets: Iterable[Ranks] | None = None) -> LowerBound:
    """Return the greatest bound on R/C by a single cut of a few, for any number of chunks and steps.

    For allreduce the number of all sends gives a bound, too. `sets`: the sets of ranks to try as the inside of a cut
    (default: blocks of ranks, and boxes). At the ambient deadline no more are tried. The bound is 0 where each rank has
    all that it wants. Raises InfeasibleError where data cannot reach a rank.
    """
    least = steps(network, collective)
    if not least.value:
        return LowerBound(Fraction(0), least.certificate)
    demands = _Demands(collective, _checkable_units(network, collective))
    inside, counted = frozenset[int](), 0 if network.multicast else sends_of_a_chunk(collective)
    prices, best, deadline = None, Fraction(0), current_deadline()
    if counted:
        prices = route_prices(network, set(range(len(network.routes))))
        best = Fraction(counted) / capacity(prices)
    for ranks in dict.fromkeys(_candidate_sets(network) if sets is None else sets):
        sends = sum(demands.sends(unit, ranks) for unit in demands.parted(ranks))
        if sends:
            prices_into = _prices_into(network, ranks)
            value = Fraction(sends) / capacity(prices_into)
            if value > best:
                best, inside, prices, counted = value, ranks, prices_into, 0
        if best and deadline.over:
            break
    if prices is None:  # data enter none of the sets
        prices = route_prices(network, set(range(len(network.routes))))

    weight, fields = price_fields(network, prices)
    theta = [-1] * network.ranks
    for rank in inside:
        theta[rank] = 1
    certificate = {
        "kind": "static-cuts",
        "problem": problem_fingerprint(network, collective),
        "steps": None,
        **fields,
        "cuts": {str(unit): [[weight, *theta]] for unit in demands.parted(inside)},
        "generators": [],
    }
    if counted:
        certificate["count"] = weight
    return LowerBound(check(certificate, network, collective.document), certificate)


def _entering(network: Network, inside: Ranks) -> set[int]:
    """Return the routes into `inside` from outside, found from the side with fewer ranks."""
    if 2 * len(inside) <= network.ranks:
        return {i for rank in inside for i in network.into[rank] if network.routes[i].src not in inside}
    outside = frozenset(range(network.ranks)) - inside
    return {i for rank in outside for i in network.out[rank] if network.routes[i].dst in inside}


def capacity(prices: Prices) -> Fraction:
    """Return the capacity in units that the prices pay for: the sum of the units of links and limits times prices."""
    return sum((units * price for units, price in prices.values()), Fraction(0))


def price_fields(network: Network, prices: Prices) -> tuple[int, dict]:
    """Return the whole number that stands for the price 1, and the fields "scale" and "prices" of a certificate in it.

    `prices`: for each link or limit its units, and its price as a fraction of the price of a send, which is 1.
    """
    weight = lcm(*(price.denominator for _, price in prices.values()))  # so that all prices are integers
    rows: dict[str, dict[int, list[int]]] = {"link": {}, "limit": {}}
    for (kind, i), (_, price) in prices.items():
        rows[kind][i] = [int(price * weight)]
    fields = {"scale": int(weight * capacity(prices)), "prices": price_rows(network, rows["link"], rows["limit"], ())}
    return weight, fields


def _checkable_units(network: Network, collective: Collective) -> int:
    """Return the number of units whose cuts the checker takes in one certificate; the cuts of others are left out.

    All units have the same cut. The checker adds up the sends into it once, and reads it again for each unit.
    """
    ranks, routes = network.ranks, len(network.routes)
    once = routes + len(network.caps) + sum(len(cap.routes) for cap in network.caps) + ranks + 2 * routes
    for switch in network.multicast:
        listed = sum(len(port.up) + len(port.down) for port in switch.ports)
        once += listed + len(switch.ports) + len(switch.ports) ** 2 // 2
    each = ranks
    if collective.wants is not None:
        each += 2 * ranks**2
    return max(1, (MOST_WORK - once) // each)


def _candidate_sets(network: Network) -> Iterator[Ranks]:
    """Yield sets of ranks: blocks of 1, 2, 4, ... consecutive ranks and the union of every other block; the boxes that
    slower links join; and the complement of each."""
    ranks, sets = network.ranks, list[Ranks]()
    for k in range(ranks.bit_length()):
        size = 1 << k
        blocks = [frozenset(range(at, min(at + size, ranks))) for at in range(0, ranks, size)]
        sets += blocks
        if len(blocks) > 2:
            sets.append(frozenset().union(*blocks[1::2]))

    # boxes: the connected components of the links that are faster than each bandwidth in turn
    for slow in sorted({route.units for route in network.routes}):
        component = list(range(ranks))
        for route in network.routes:
            joined, lost = component[route.src], component[route.dst]
            if route.units > slow and joined != lost:
                for rank, label in enumerate(component):
                    component[rank] = joined if label == lost else label
        members: dict[int, list[int]] = {}
        for rank, label in enumerate(component):
            members.setdefault(label, []).append(rank)
        sets += map(frozenset, members.values())

    everyone = frozenset(range(ranks))
    for inside in sets:
        if len(inside) < ranks:
            yield inside
            yield everyone - inside


def _prices_into(network: Network, ranks: Ranks) -> Prices:
    """Return priced links and limits that pay for every send into the set `ranks`.

    Sends through a switch that multicasts are paid for by the ports of its ranks inside, or of those outside.
    """
    into = _entering(network, ranks)
    prices: Prices = {}
    for switch in network.multicast:
        sides: list[list[int]] = [[], []]
        for port in switch.ports:
            inside = port.rank in ranks
            sides[inside].append(min(port.down if inside else port.up, key=lambda k: network.caps[k].units))
        if all(sides):
            for k in min(sides, key=lambda side: sum(network.caps[k].units for k in side)):
                prices["limit", k] = network.caps[k].units, Fraction(1)
                into.difference_update(network.caps[k].routes)
    return prices | route_prices(network, into)


def route_prices(network: Network, routes: set[int]) -> Prices:
    """Return prices of links and limits by which a send over any of `routes` costs at least 1.

    The priced capacity is kept small by a greedy weighted set cover: the limit that saves most is priced first, as long
    as it has less capacity than the links of `routes` in it. Each link that no such limit holds has a price of its own.
    """
    unpaid, members = set(routes), dict[int, list[int]]()
    for i in sorted(routes):
        for k in dict.fromkeys(network.caps_of[i]):
            members.setdefault(k, []).append(i)
    saved, times = dict[int, int](), dict[int, int]()  # the ratios that are saved, times their common denominator
    one = lcm(*(network.caps[k].units for k in members))
    for k, inside in members.items():
        times[k] = min([network.caps_of[i].count(k) for i in inside])  # a send counts so often against the limit
        saved[k] = sum([network.routes[i].units for i in inside]) * times[k] * one // network.caps[k].units
    taken: list[int] = []
    while saved:
        best = max(saved, key=saved.__getitem__)
        if saved.pop(best) <= one:
            break
        taken.append(best)
        for i in unpaid.intersection(members[best]):
            unpaid.discard(i)
            for k in dict.fromkeys(network.caps_of[i]):
                if k in saved:
                    saved[k] -= network.routes[i].units * times[k] * one // network.caps[k].units
    payers = Counter(i for k in taken for i in members[k])
    prices: Prices = {}
    for k in taken:
        if all(payers[i] > 1 for i in members[k]):  # later limits pay for all its links
            payers.subtract(members[k])
        else:
            prices["limit", k] = network.caps[k].units, Fraction(1, times[k])
    return prices | {("link", i): (network.routes[i].units, Fraction(1)) for i in sorted(unpaid)}


class _Demands:
    """The units that must enter a set of ranks; of many, the first `most`, which is what the checker takes."""

    def __init__(self, collective: Collective, most: int) -> None:
        self.collective, self.most = collective, most
        self._wanted: list[list[tuple[int, int]]] = []  # by unit: bit masks (ranks that want, contributions wanted)
        for unit in range(collective.units):
            if collective.wants is None:
                self._wanted.append([(_mask(collective.post[unit]), _mask(collective.pre[unit]))])
                continue
            rows: list[tuple[int, int]] = []
            for rank, wanted in sorted(dict(collective.wants[unit]).items()):
                rows.append((1 << rank, _mask(wanted)))
            self._wanted.append(rows)

    def parted(self, inside: Ranks) -> list[int]:
        """Return the units of which a rank inside wants something that is outside alone."""
        here, parted = _mask(inside), []
        whole = not self.collective.combining  # one holder inside is enough
        for unit, rows in enumerate(self._wanted):
            if len(parted) == self.most:
                break
            for wanting, wanted in rows:
                if wanting & here and wanted & ~here and not (whole and wanted & here):
                    parted.append(unit)
                    break
        return parted

    def sends(self, unit: int, inside: Ranks) -> int:
        """Return the number of sends of each chunk that must enter: the rank modulo 2 of what is wanted inside."""
        if self.collective.wants is None:
            return 1
        here, pivots = _mask(inside), dict[int, int]()
        for rank, wanted in self._wanted[unit]:
            row = wanted & ~here if rank & here else 0
            while row and row.bit_length() in pivots:
                row ^= pivots[row.bit_length()]
            if row:
                pivots[row.bit_length()] = row
        return len(pivots)


def _mask(ranks: Iterable[int]) -> int:
    return sum(1 << rank for rank in ranks)
