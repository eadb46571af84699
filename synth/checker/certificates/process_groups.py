"""The bound on process groups that run at once: prices of links and limits, added up in fractions; no solver.

Give every route and every cap of the network a price >= 0 per chunk; a chunk over a route pays the route's and those of
its caps. In one second no more can be paid than Σ bandwidth · price. Each group must pay at least

- an alltoall: for each pair the price of the cheapest path between the two;
- any collective: Σ weights · crossings, over *families* of disjoint regions (sets of ranks) whose weights, added up
over the
  regions that a route leaves (or enters), are at most the route's price. Crossings of a region are the bytes that must
  leave (or enter) it. An allreduce whose ranks lie in h regions of a family that covers all ranks makes 2 (h - 1)
  crossings in all: before the first region has the whole sum of a byte the contributions of h - 1 others have left
  them, and from then on each of those others must still be entered, by a send that leaves another region.

So all groups together take at least what they pay by what can be paid in a second. No sum can wrap: all that is paid
for is shown to be small first, in Python integers.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np

from synth.checker.exact_sums import MAX_SUM, check_fits, exact_sum
from synth.checker.fields import need
from synth.errors import VerificationError, malformed
from synth.model.documents import json_reader
from synth.model.process_groups import Group
from synth.model.topology import Network

KEYS = {"kind", "problem", "routes", "caps", "packings"}
# Maximum of families times links, and of starts of distances times links, so that array operations stay bounded.
MOST_WORK = 200_000_000

ALTERED = (
    "speaks about other groups or another topology than these: a number of it was altered, or one in the "
    "links, limits or groups here"
)


def digest(network: Network, groups: Sequence[Group]) -> str:
    """Return the SHA-256 of the links, limits and groups, by which a certificate names the problem."""
    sha256 = hashlib.sha256(f"{network.ranks} {network.unit}\n".encode())
    sha256.update("\n".join(f"{r.src} {r.dst} {r.units}" for r in network.routes).encode())
    sha256.update("".join(f"\n{c.units} {c.routes}" for c in network.caps).encode())
    sha256.update("".join(f"\n{g.ranks} {g.collective} {g.size} {g.root}" for g in groups).encode())
    return sha256.hexdigest()


def check(certificate: dict, network: Network, groups: Sequence[Group]) -> Fraction:
    """Return the bound that the certificate proves: the least seconds of all groups together, with `Group.size` in GB.

    Raises VerificationError, with the place, for anything that proves no bound.
    """
    try:
        return _check(certificate, network, groups)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise VerificationError(malformed(error, "certificate")) from None


def _check(certificate: dict, network: Network, groups: Sequence[Group]) -> Fraction:
    json_reader.fields(certificate, "$", KEYS)
    need(certificate["kind"] == "groups-prices", "is no groups-prices", "kind")
    need(not network.multicast, "does not bound schedules whose switches multicast", "problem")
    need(certificate["problem"] == digest(network, groups), ALTERED, "problem")
    need(
        all(part.units > 0 for part in (*network.routes, *network.caps)),
        "has links or limits of no units",
        "problem",
    )
    need(network.unit > 0, "has a unit of no bandwidth", "problem")
    own = _prices(certificate["routes"], len(network.routes), "routes")
    caps = _prices(certificate["caps"], len(network.caps), "caps")
    budget = sum((p * network.routes[i].units for i, p in own.items()), Fraction(0))
    budget += sum((p * network.caps[k].units for k, p in caps.items()), Fraction(0))
    need(budget > 0, "nothing has a price, so nothing is proved", "routes")
    # whole numbers: every price and weight times `scale`
    rows = enumerate(json_reader.items(certificate["packings"], "packings"))
    packings = [_packing(row, network.ranks, len(groups), f"packings[{i}]") for i, row in rows]
    weights = [weight for _, families in packings for weight, _, _ in families]
    scale = lcm(*(x.denominator for x in (*own.values(), *caps.values(), *weights)))
    check_fits(int(sum(weights) * scale), "weights", "packings")
    price = _route_prices(network, own, caps, scale)
    ends = np.array([(r.src, r.dst) for r in network.routes], np.int64).reshape(-1, 2)
    paid = [Fraction(0)] * len(groups)
    seen: set[int] = set()
    for i, (members, families) in enumerate(packings):
        need(not seen & set(members), "weighs a group of another packing again", f"packings[{i}]")
        seen |= set(members)
        need(len(families) * len(ends) <= MOST_WORK, "is too much to check", f"packings[{i}]")
        need((_load(families, ends, scale) <= price).all(), "weighs more than a route's price", f"packings[{i}]")
        for g in members:
            paid[g] = sum(
                (weight * crossings(groups[g], leaving, label) for weight, leaving, label in families), Fraction(0)
            )
    for g, total in _alltoall_prices(groups, ends, price, network.ranks):
        paid[g] = max(paid[g], Fraction(total, scale) * groups[g].part)
    need(sum(paid) > 0, "has no packing, so nothing is proved", "packings")
    return sum(paid, Fraction(0)) / (budget * network.unit)


def _route_prices(network: Network, own: dict[int, Fraction], caps: dict[int, Fraction], scale: int) -> np.ndarray:
    """Return the price of each route times `scale`: its own, and those of its limits, as often as they list it.

    Raises VerificationError where the prices along a path might not fit an int64.
    """
    times = {k: np.unique(np.array(network.caps[k].routes, np.int64), return_counts=True) for k in caps}
    dearest = sum(int(p * scale) for p in own.values())
    dearest += sum(int(p * scale) * int(times[k][1].max(initial=0)) for k, p in caps.items())
    check_fits(dearest * network.ranks, "the prices of a way", "routes")
    price = np.zeros(len(network.routes), np.int64)
    for i, p in own.items():
        price[i] = int(p * scale)
    for k, p in caps.items():
        price[times[k][0]] += int(p * scale) * times[k][1]
    return price


def _load(families: Sequence[tuple[Fraction, bool, np.ndarray]], ends: np.ndarray, scale: int) -> np.ndarray:
    """Return for each route the weights, times `scale`, of the families whose regions it leaves or enters."""
    load = np.zeros(len(ends), np.int64)
    for weight, leaving, label in families:
        inner, outer = (ends[:, 0], ends[:, 1]) if leaving else (ends[:, 1], ends[:, 0])
        crosses = (label[inner] >= 0) & (label[inner] != label[outer])
        load += np.where(crosses, int(weight * scale), 0)
    return load


def _alltoall_prices(
    groups: Sequence[Group], ends: np.ndarray, price: np.ndarray, ranks: int
) -> Iterator[tuple[int, int]]:
    """Yield (number, total) of each group of an alltoall: the distances by `price` between all pairs of its ranks.

    Raises VerificationError where ranks of a group do not reach each other.
    """
    asked = [g for g, group in enumerate(groups) if group.collective == "alltoall"]
    starts = sorted({r for g in asked for r in groups[g].ranks})
    need(len(starts) * len(ends) <= MOST_WORK, "asks for too many distances", "routes")
    far = {r: _distances(ends, price, r, ranks) for r in starts}
    for g in asked:
        members = list(groups[g].ranks)
        reached = all((far[r][members] < MAX_SUM).all() for r in members)
        need(reached, f"group {g} cannot be run: ranks do not reach each other", "problem")
        yield g, sum(exact_sum(far[r][members]) for r in members)


def crossings(group: Group, leaving: bool, label: np.ndarray) -> Fraction:
    """Return the data that `group` must send out of (or, unless `leaving`, into) the regions of a family, all added up.

    It is in multiples of `group.size`. ``label[rank]``: number of the rank's region, or -1 for none.
    """
    m = len(group.ranks)
    home = label[list(group.ranks)]
    held = np.bincount(home[home >= 0], minlength=1).tolist()
    sizes = [n for n in held if n > 0]
    apart = [n for n in sizes if n < m]
    if group.collective == "alltoall":
        return sum(n * (m - n) for n in apart) * group.part
    if group.collective == "allreduce":
        whole = 2 * (len(sizes) - 1) if (label >= 0).all() else 0
        return max(whole, len(apart)) * group.part
    inside = sum(apart)
    # a region is left by the shards inside it, and entered by those outside; a reduction is the reversal
    out = inside if (group.collective == "allgather") == leaving else m * len(apart) - inside
    if group.collective in ("allgather", "reduce-scatter"):
        return out * group.part
    # one region at most holds the root
    root = int(label[group.root] >= 0 and held[int(label[group.root])] < m)  # type: ignore[index]
    return (root if (group.collective == "broadcast") == leaving else len(apart) - root) * group.part


def is_automorphism(network: Network, moved: Sequence[Any]) -> bool:
    """Return True where the map of rank r to ``moved[r]`` is an automorphism of links and limits with their units.

    False, too, where two links join the same ranks, so that the image of each is not determined.
    """
    ends = {(r.src, r.dst): i for i, r in enumerate(network.routes)}
    good = len(moved) == network.ranks and all(type(r) is int and 0 <= r < network.ranks for r in moved)
    if not good or len(set(moved)) < network.ranks or len(ends) < len(network.routes):
        return False
    image = [ends.get((moved[r.src], moved[r.dst])) for r in network.routes]
    if any(j is None or network.routes[j].units != r.units for j, r in zip(image, network.routes, strict=True)):
        return False
    limits, images = Counter(), Counter()
    for cap in network.caps:
        limits[cap.units, tuple(sorted(cap.routes))] += 1
        images[cap.units, tuple(sorted(image[i] for i in cap.routes))] += 1  # type: ignore[type-var]
    return limits == images


def _prices(rows: list, count: int, place: str) -> dict[int, Fraction]:
    prices: dict[int, Fraction] = {}
    for j, row in enumerate(json_reader.items(rows, place)):
        here = f"{place}[{j}]"
        need(isinstance(row, list) and len(row) == 2, "is no price", here)
        i = json_reader.number(row[0], f"{here}[0]", 0, count)
        need(i not in prices, "is given a price again", here)
        prices[i] = json_reader.fraction(row[1], f"{here}[1]")
    return prices


def _packing(
    row: dict, ranks: int, groups: int, place: str
) -> tuple[list[int], list[tuple[Fraction, bool, np.ndarray]]]:
    json_reader.fields(row, place, {"groups", "families"})
    members = [
        json_reader.number(g, f"{place}.groups[{j}]", 0, groups)
        for j, g in enumerate(json_reader.items(row["groups"], f"{place}.groups"))
    ]
    need(members and len(set(members)) == len(members), "names no groups, or one twice", place)
    families = []
    for j, family in enumerate(json_reader.items(row["families"], f"{place}.families")):
        here = f"{place}.families[{j}]"
        need(
            isinstance(family, list) and len(family) == 3, "expected a weight, a way and the region of each rank", here
        )
        weight, way, label = (
            json_reader.fraction(family[0], f"{here}[0]"),
            family[1],
            json_reader.items(family[2], f"{here}[2]"),
        )
        need(way in ("leaving", "entering"), "is neither leaving nor entering", here)
        good = len(label) == ranks and all(type(x) is int and -1 <= x < ranks for x in label)
        need(good, f"gives no region for each of {ranks} ranks", here)
        families.append((weight, way == "leaving", np.array(label, np.int64)))
    return members, families


def _distances(ends: np.ndarray, price: np.ndarray, start: int, ranks: int) -> np.ndarray:
    """Return the price of the cheapest path from `start` to every rank, by relaxation (Bellman and Ford)."""
    far = np.full(ranks, MAX_SUM, np.int64)
    far[start] = 0
    for _ in range(ranks):
        reached = far[ends[:, 0]] < MAX_SUM
        fresh = far.copy()
        np.minimum.at(fresh, ends[reached, 1], far[ends[reached, 0]] + price[reached])
        if (fresh == far).all():
            break
        far = fresh
    return far
