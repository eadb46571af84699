"""Cuts that prices of links and limits pay for, checked by sums of integers: what docs/proofs.md calls packings.

A cut is a list theta of times: rank n is inside it from time 0 through theta[n], or never where that is -1.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from synth.checker.certificates.instance import Instance
from synth.checker.fields import mapping, need, permutation
from synth.checker.orbits import Orbits
from synth.checker.schedule.machine import Switch
from synth.errors import VerificationError
from synth.model.documents.json_reader import items, number
from synth.model.gc_pause import collector_off

TIMED = "deadline-cuts"  # the kind for one number of steps, where links have a price at each of them

Cut = tuple[int, tuple[int, ...]]  # weight and times


class PricedCuts:
    """The prices of a certificate, checked, and the checks that cuts are paid for by them.

    Attributes:
        layers: number of steps with prices of their own; 1 where the bound is for every number of steps, and times of
            cuts are then 1 (inside for ever) or -1.
        prices: for "link" and "limit" the prices of each one, by step.
        send_prices: for each link and step the price of a send: that of the link and of its limits, less `count`.
        slack: for each step `scale` less Σ units · price.
        orbits: orbits of units, ranks, links and limits under the generators of the certificate.
    """

    @collector_off()
    def __init__(self, certificate: dict, problem: Instance) -> None:
        self.problem, self.kind = problem, certificate["kind"]
        self.layers = layers = certificate["steps"] if self.kind == TIMED else 1
        self._entering: dict[tuple[int, ...], list[tuple[int, int]]] = {}  # by cut
        self._paid: set[tuple[Cut, ...]] = set()  # cuts that are together paid by the prices alone
        self.scale = number(certificate["scale"], "scale", 1)
        self.count = number(certificate.get("count", 0), "count", 0)
        need(not problem.switches or not self.count, "does not hold where switches multicast", "count")
        listed = sum(len(links) for links, _ in problem.limits)
        problem.spend(layers * (len(problem.links) + len(problem.limits) + listed))

        # symmetries: what they map to each other is one orbit
        ranks, links, limits = problem.ranks, len(problem.links), len(problem.limits)
        sizes = {"unit": len(problem.pre), "rank": ranks, "link": links, "limit": limits}
        self.orbits = {what: Orbits(size) for what, size in sizes.items()}
        for g, generator in enumerate(items(certificate["generators"], "generators")):
            for what, image in self.images(generator, f"generators[{g}]").items():
                self.orbits[what].join(image)

        # a price is given for one link or limit of an orbit, and is that of all; the others are free
        free = (0,) * layers
        given: dict[str, dict[int, tuple[int, ...]]] = {"link": {}, "limit": {}}
        for p, row in enumerate(items(certificate["prices"], "prices")):
            place = f"prices[{p}]"
            what, orbit, prices = self._price(row, place)
            same = given[what].setdefault(orbit, prices) == prices
            need(same, "differs from the price of a link or limit like it", place)
        self.prices: dict[str, list[tuple[int, ...]]] = {}
        for what, by_orbit in given.items():
            orbits = map(self.orbits[what].of, range(sizes[what]))
            self.prices[what] = [by_orbit.get(orbit, free) for orbit in orbits]

        # all bandwidth together costs no more than the scale at any step
        self.slack = [self.scale] * layers
        for what, parts in (("link", problem.links), ("limit", problem.limits)):
            for part, row in zip(parts, self.prices[what], strict=True):
                units = part[-1]
                if row is not free:
                    self.slack = [rest - units * price for rest, price in zip(self.slack, row, strict=True)]
        need(min(self.slack) >= 0, "come to more than the scale", "prices")

        # a send pays its link and each limit as often as it counts there; the count is taken off every price
        self.send_prices = list(self.prices["link"])
        for (members, _), row in zip(problem.limits, self.prices["limit"], strict=True):
            if not any(row):
                continue
            for i in members:
                both = zip(self.send_prices[i], row, strict=True)
                self.send_prices[i] = tuple([own + more for own, more in both])
        if self.count:
            for i, row in enumerate(self.send_prices):
                need(min(row) >= self.count, "is more than the price of a link", "count")
                self.send_prices[i] = tuple([price - self.count for price in row])

    def _price(self, row: list, place: str) -> tuple[str, int, tuple[int, ...]]:
        """Return the kind, the orbit of links or limits, and its price at each step."""
        what, key, *rest = items(row, place)
        need(what in ("link", "limit"), "expected link or limit", place)
        if what == "link":
            ends = number(key, place, 0, self.problem.ranks), number(rest.pop(0), place, 0, self.problem.ranks)
            path = tuple(rest.pop(0)) if rest and type(rest[0]) is list else ()
            need((*ends, path) in self.problem.names, f"no link {ends}", place)
            key = self.problem.names[(*ends, path)]
        orbits = self.orbits[what]
        number(key, place, 0, len(orbits.parent))
        need(len(rest) == self.layers, f"expected {self.layers} prices", place)
        return what, orbits.of(key), tuple(number(y, place, 0) for y in rest)

    def images(self, generator: list, place: str) -> dict[str, list[int]]:
        """Return how a generator permutes units, ranks, links and limits.

        Raises VerificationError where that is no symmetry of the links, the limits and the collective.
        """
        p = self.problem
        p.spend(p.ranks + sum(len(links) for links, _ in p.limits))
        for held, wanted in zip(p.pre, p.post, strict=True):
            p.spend(len(held) + len(wanted))
        need(len(items(generator, place)) in (2, 3), "expected ranks, units and perhaps links", place)
        ranks = permutation(generator[0], p.ranks, place)
        units = permutation(generator[1], len(p.pre), place)

        # links go to links of as many units
        if len(generator) == 3:
            links = permutation(generator[2], len(p.links), place)
        else:
            ends = {(u, v): i for i, (u, v, _) in enumerate(p.links)}
            need(len(ends) == len(p.links), "parallel links need a permutation of links", place)
            links = [ends.get((ranks[u], ranks[v]), -1) for u, v, _ in p.links]
        for (u, v, b), j in zip(p.links, links, strict=True):
            if j < 0 or p.links[j] != (ranks[u], ranks[v], b):
                raise VerificationError(f"link {u} to {v} has no such image", place)

        # limits go to limits of as many units; equal ones keep their order
        places: defaultdict[tuple, list[int]] = defaultdict(list)
        for k, (inside, b) in enumerate(p.limits):
            places[tuple(sorted(inside)), b].append(k)
        limits = []
        for inside, b in p.limits:
            image = places[tuple(sorted([links[i] for i in inside])), b]
            need(image, "limits are not kept", place)
            limits.append(image.pop(0))

        # switches go to switches, with the limits of their ports
        here: Counter[tuple] = Counter()
        there: Counter[tuple] = Counter()
        for switch in p.switches:
            here[_switch_key(switch, range(p.ranks), range(len(limits)))] += 1
            there[_switch_key(switch, ranks, limits)] += 1
        need(here == there, "switches that multicast are not kept", place)

        # units go to units that as many ranks hold and want, contribution by contribution
        for u, w in enumerate(units):
            post: dict[int, frozenset[int] | None] = {}
            for r, want in p.post[u].items():
                post[ranks[r]] = want and frozenset([ranks[i] for i in want])
            pre = {ranks[r] for r in p.pre[u]}
            need(pre == p.pre[w] and post == p.post[w], f"unit {u} is not kept", place)
        return {"unit": units, "rank": ranks, "link": links, "limit": limits}

    def unit_values(self, certificate: dict) -> list[int]:
        """Return the value of each unit, after checking the cuts of one unit of each orbit.

        The value of a unit is a lower bound on the price of each of its chunks, the same for all units of an orbit.
        """
        p = self.problem
        if self.kind == "allreduce-partition":
            return [self._crossings(certificate["parts"], certificate["weight"])]
        if self.count:
            symmetric = all(map(p.symmetric, range(len(p.pre))))
            need(symmetric, "is known only where those who contribute want it all", "count")
        cuts, covers = mapping(certificate["cuts"], "cuts"), mapping(certificate.get("covers", {}), "covers")
        averaged = mapping(certificate.get("averaged", {}), "averaged")
        need(averaged.keys() <= cuts.keys() - covers.keys(), "names a unit without cuts, or with covers", "averaged")

        # one unit of each orbit is listed, by its number in decimal digits without a leading zero
        values: dict[int, int] = {}
        for name in cuts | covers:
            digits = name.isascii() and name.isdecimal() and len(name) < 9
            need(digits and str(int(name)) == name, f"{name!r}", "cuts")
            unit = number(int(name), "cuts", 0, len(p.pre))
            orbit = self.orbits["unit"].of(unit)
            need(orbit not in values, "is in the orbit of another unit", f"cuts.{name}")
            means = items(averaged[name], "averaged") if name in averaged else None
            values[orbit] = self._value(unit, cuts.get(name, []), covers.get(name, []), means)

        # an allreduce of m contributors takes 2 (m - 1) sends, each of which pays the count beside its cuts
        found = []
        for unit, held in enumerate(p.pre):
            sends = 2 * (len(held) - 1) if held else 0
            found.append(self.count * sends + values.get(self.orbits["unit"].of(unit), 0))
        return found

    def _value(self, unit: int, rows: list, covers: list, averaged: list | None) -> int:
        """Return the value of `unit`: the sum of the weights of the cuts `rows`, and of `covers` times their sends.

        Checks that each is a cut or cover, and that the price of every send is at least the weight of those that it
        enters. With `averaged` each cut stands for the mean of its images under the group of these generators,
        symmetries that keep the unit: the images are cuts of it, too, so the sends over the links of an orbit share
        their load, and pay for it together. Raises VerificationError.
        """
        p, place = self.problem, f"cuts.{unit}"
        total = 0
        cuts: list[Cut] = []
        for c, row in enumerate(items(rows, place)):
            cuts.append(self._cut(row, unit, f"{place}[{c}]"))
            total += cuts[-1][0]
        if averaged is None and not covers and tuple(cuts) in self._paid:
            return total
        need(not p.switches or not covers, "do not hold where switches multicast", "covers")
        need(not p.switches or averaged is None, "do not hold where switches multicast", "averaged")
        for switch in p.switches:
            for step in range(1, self.layers + 1):
                self._switch_sends_pay(switch, cuts, step, place)

        # the links that share a load
        orbits = Orbits(len(p.links) if averaged is not None else 0)
        together: defaultdict[int, list[int]] = defaultdict(list)
        if averaged is not None:
            p.spend(len(p.links) * self.layers)
            for g, generator in enumerate(averaged):
                here = f"averaged.{unit}[{g}]"
                images = self.images(generator, here)
                need(images["unit"][unit] == unit, f"does not keep unit {unit}", here)
                orbits.join(images["link"])
            for i in range(len(p.links)):
                together[orbits.of(i)].append(i)

        # what the sends over each link, or over each orbit of links, enter at each step
        load: Counter[tuple[int, int]] = Counter()
        for weight, theta in cuts:
            for i, t in self.entering_sends(theta):
                load[orbits.of(i) if together else i, t] += weight
        for c, row in enumerate(items(covers, "covers")):
            gain, entries = self._cover(row, unit, f"covers[{c}]")
            total += gain
            for entry in entries:
                load[entry] += row[0]
        for (i, t), weight in load.items():
            same = together[i] if together else (i,)
            for k in same:
                if weight > len(same) * self.send_prices[k][t - 1]:
                    raise VerificationError(f"overload link {p.links[k][:2]} at step {t}", place)
        if averaged is None and not covers:
            self._paid.add(tuple(cuts))
        return total

    def _cut(self, row: list, unit: int, place: str) -> Cut:
        """Return the weight of a cut of `unit` and its times, from [weight, time of each rank].

        Some send of each chunk must enter it: all ranks of a source are outside, and a destination that must have its
        data is inside at the end. No holder at all leaves no schedule, which is for `unreachable` to prove: an empty
        source is parted from nothing.
        """
        p = self.problem
        whole = type(row) is list and len(row) == 1 + p.ranks
        need(whole, f"expected a weight and {p.ranks} times", place)
        weight = number(row[0], place, 0)
        theta = tuple([number(time, place, -1, self.layers + 1) for time in row[1:]])
        need(self.kind == TIMED or 0 not in theta, "is -1 or 1 in a bound for every number of steps", place)
        for destination in p.post[unit]:
            if theta[destination] >= self.layers:
                for source in p.sources(unit, destination):
                    if source and all(theta[s] < 0 for s in source):
                        return weight, theta
        raise VerificationError("does not part a source from a destination", place)

    def entering_sends(self, theta: Sequence[int]) -> list[tuple[int, int]]:
        """Return each (link, step) that enters the cut: tail outside before the step, head inside after it.

        Links are looked through from the side with fewer ranks, once for each cut: many units may share one.
        """
        key, p = tuple(theta), self.problem
        if key in self._entering:
            p.spend(p.ranks + len(self._entering[key]))
            return self._entering[key]
        heads = [v for v, time in enumerate(theta) if time > 0]
        tails = [u for u, time in enumerate(theta) if time + 2 <= self.layers]
        sides = p.links_into if len(heads) <= len(tails) else p.links_out
        crossing, seen = [], p.ranks
        for rank in min(heads, tails, key=len):
            seen += len(sides[rank])
            for i in sides[rank]:
                u, v, _ = p.links[i]
                first, last = max(1, theta[u] + 2), min(self.layers, theta[v])
                crossing += [(i, t) for t in range(first, last + 1)]
        p.spend(seen + len(crossing))
        self._entering[key] = crossing
        return crossing

    def _cover(self, row: list, unit: int, place: str) -> tuple[int, list[tuple[int, int]]]:
        """Return weight × sends, which a cover adds to a bound, and each (link, step) whose sends it counts.

        A cover says that a unit needs at least `sends` sends on the links of one rank: into it in the steps after
        `time` ("in"), or out of it in the steps up to `time` ("out"). `row`: [weight, "in" or "out", rank, time,
        sends]. Raises VerificationError where fewer sends are enough.
        """
        p = self.problem
        weight, side, rank, time, sends = items(row, place)
        number(weight, place, 0)
        need(side in ("in", "out"), "expected in or out", place)
        number(rank, place, 0, p.ranks)
        number(time, place, 0, self.layers + 1)
        number(sends, place, 1, 9)
        needed = p.needs(unit, side, rank, time, sends, self.layers)
        need(needed, f"rank {rank} does not need {sends} sends", place)
        links = p.links_into[rank] if side == "in" else p.links_out[rank]
        window = range(time + 1, self.layers + 1) if side == "in" else range(1, time + 1)
        return weight * sends, [(i, t) for i in links for t in window]

    def _switch_sends_pay(self, switch: Switch, cuts: list[Cut], step: int, place: str) -> None:
        """Check that no send of the switch at `step` enters cuts of more weight than the prices of its ports.

        A multicast from s enters a cut if s is outside and a member inside. A part of the weight of each cut is paid at
        the ports of all ranks inside, as far as the price of each one lasts, and the rest at the port of s. A fetched
        sum is the same with the directions exchanged. Data that do not combine are not fetched.
        """
        prices = self.prices["limit"]
        price: dict[bool, dict[int, int]] = {}  # of each rank's port, True for the way into the switch
        for upwards, side in ((True, switch.up), (False, switch.down)):
            price[upwards] = {}
            for rank, limits in side.items():
                self.problem.spend(len(limits))
                price[upwards][rank] = sum(prices[k][step - 1] for k in limits)

        # the cuts that some send of the switch enters: (weight, ranks outside, ranks inside)
        entered: list[tuple[int, list[int], list[int]]] = []
        for weight, theta in cuts:
            outside = [rank for rank in switch.up if step - 1 > theta[rank]]
            inside = [rank for rank in switch.up if step <= theta[rank]]
            self.problem.spend(len(switch.up) + 2 * len(outside) * len(inside))
            if outside and inside:
                entered.append((weight, outside, inside))
        fetched = [(weight, inside, outside) for weight, outside, inside in entered]
        ways = [("multicasts", True, entered), ("fetches", False, fetched)]
        for what, upwards, sides in ways if self.problem.combining else ways[:1]:
            for rank, weight in _paid_by_issuer(sides, price[not upwards]).items():
                paid = price[upwards][rank] + (price[not upwards][rank] if switch.through else 0)
                need(weight <= paid, f"overload {what} of rank {rank} at step {step}", place)

    def _crossings(self, parts: list, weight: int) -> int:
        """Return the least price of the sends of a chunk between the parts of a partition, for one allreduce.

        The parts hold each rank once. A send between parts is a message of one way. The first part to hold all
        contributions needs one out of every other part, and afterwards every other part must still be entered.
        `weight`: the least price of a send between parts. The ranks of a switch that multicasts are in one part, so
        that no switch send is between parts. Raises VerificationError.
        """
        p, home = self.problem, dict[int, int]()
        one = len(p.pre) == 1 and p.symmetric(0)
        need(one and len(p.pre[0]) > 1, "is for one allreduce", "kind")
        for k, part in enumerate(items(parts, "parts")):
            place = f"parts[{k}]"
            for rank in items(part, place):
                need(number(rank, place, 0, p.ranks) not in home, f"names rank {rank} again", place)
                home[rank] = k
            need(any(rank in p.pre[0] for rank in part), "holds no rank of the allreduce", place)
        need(len(home) == p.ranks, f"hold {len(home)} of {p.ranks} ranks", "parts")
        for switch in p.switches:
            need(len({home[rank] for rank in switch.up}) == 1, "divide the ranks of a switch that multicasts", "parts")
        number(weight, "weight", 1)
        for (u, v, _), (price,) in zip(p.links, self.send_prices, strict=True):
            need(home[u] == home[v] or weight <= price, f"overload link {u} to {v}", "weight")
        return 2 * (len(parts) - 1) * weight


def _switch_key(switch: Switch, ranks: Sequence[int], limits: Sequence[int]) -> tuple:
    """Return what a switch is with its ranks and limits renumbered: equal for switches that are the same."""
    ports = []
    for rank, up in switch.up.items():
        sides = (frozenset(map(limits.__getitem__, side)) for side in (up, switch.down[rank]))
        ports.append((ranks[rank], *sides))
    return switch.through, frozenset(ports)


def _paid_by_issuer(cuts: list[tuple[int, list[int], list[int]]], member_prices: dict[int, int]) -> Counter[int]:
    """Return the weight that each issuer of a switch send has to pay at its own port, at most.

    `cuts`: (weight, issuers, members) of each cut that a send between any of these enters. A part of the weight is paid
    by every member. A send to a group enters a cut with a member in it, so it suffices that the parts of the cuts of
    each member come to at most its price, and that the issuer pays the rest. Cuts of few members come first.
    """
    rest: Counter[int] = Counter()
    left: dict[int, dict[int, int]] = {}  # of the price of each member, for the sends of each issuer
    for weight, issuers, members in sorted(cuts, key=lambda cut: len(cut[2])):
        for issuer in issuers:
            own = left.setdefault(issuer, dict(member_prices))
            part = min(weight, *(own[member] for member in members))
            for member in members:
                own[member] -= part
            rest[issuer] += weight - part
    return rest
