"""Blame: why a schedule takes more rounds than a lower bound, by the prices of the bound's certificate.

A certificate has prices y[k, t] of a unit of bandwidth of each link or limit k at step t, a scale D that the prices of
all bandwidth never exceed in a step, and for each unit u a price V[u] that the sends of a chunk of it cost at least.
With r[t] rounds and load[k, t] sends,

    D·R = C·ΣV[u] + Σ over chunks (price of its sends - V[u])
          + Σ over k, t of y[k, t]·(units[k]·r[t] - load[k, t]) + Σ over t of r[t]·(D - Σ over k of units[k]·y[k, t])

is an identity: rounds that are needed, detours, idle priced links and slack. No part is negative, since the certificate
holds. So the parts say exactly why R is more than C·ΣV / D.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

from synth.checker.certificates.cuts import BoundPrices, prices
from synth.model.blame import Blame, IdleLink, LineParts, RoundParts
from synth.model.documents.int_ranges import runs
from synth.model.frontier import LowerBound
from synth.model.schedule import Schedule, Send
from synth.model.topology import Network

# The source line of each send, by step (from 1), chunk, source and destination.
Places = Mapping[tuple[int, int, int, int], object]


class _SendPrice(NamedTuple):
    """A send over a route, with the price of the route in the step of the send."""

    step: int
    send: Send
    route: int
    price: int


def blame(schedule: Schedule, bound: LowerBound, places: Places | None = None) -> Blame | None:
    """Return where the rounds of a schedule go, by the certificate of a bound on its rounds per chunk.

    `bound`: for the schedule's number of steps, or for every number. `places`: the line of each send, any object with a
    text, by (step, chunk, source, destination). The result is None for a certificate without prices, and for schedules
    whose switches multicast. Raises VerificationError where the certificate is of another problem, or proves nothing.
    """
    network, task = schedule.network, schedule.collective
    priced = None if schedule.uses_multicast else prices(bound.certificate, network.document, task.document)
    if priced is None:
        return None
    priced_schedule = _PricedSchedule(schedule, priced)
    steps, lines, sends = [], {}, Counter[str]()
    for t, step in enumerate(schedule.steps, 1):
        total = RoundParts()
        for row in priced_schedule.sends[t]:
            line = _line(places, row)
            parts = priced_schedule.parts(row)
            total += parts
            lines[line] = lines.get(line, RoundParts()) + parts
            sends[line] += 1
        idle = sum((rounds for _, rounds in priced_schedule.idle(t)), Fraction(0))
        slack = step.rounds * priced_schedule.slack(t)
        total += RoundParts(idle=idle, slack=slack)
        steps.append(total)
        busiest = Counter(_line(places, row) for row in priced_schedule.busiest(t)) or Counter([""])
        for line, count in busiest.items():
            share = Fraction(count, busiest.total())
            lines[line] = lines.get(line, RoundParts()) + RoundParts(idle=idle * share, slack=slack * share)
    rows = [LineParts(line, sends[line], parts) for line, parts in lines.items()]
    rows.sort(key=lambda row: (-row.parts.lost, row.line))
    any_steps = bound.certificate.get("steps") is None
    return Blame(
        bound.value, bound.certificate["kind"], any_steps, tuple(steps), tuple(rows), priced_schedule.idle_links()
    )


def _line(places: Places | None, row: _SendPrice) -> str:
    place = None if places is None else places.get((row.step, row.send.chunk, row.send.src, row.send.dst))
    return "" if place is None else str(place)


class _PricedSchedule:
    """The sends of a schedule with their prices, and the loads of links and limits."""

    def __init__(self, schedule: Schedule, priced: BoundPrices) -> None:
        self.schedule, self.priced = schedule, priced
        self.network: Network = schedule.network
        self.sends: dict[int, list[_SendPrice]] = {}
        self.loads: dict[int, Counter[int]] = {}  # of each step the chunks over each route
        spent = Counter[int]()
        for t, step in enumerate(schedule.steps, 1):
            rows = self.sends[t] = []
            for send in step.unicast_sends:
                if not send.local:
                    route = self.network.route_index[send.src, send.dst, send.via]
                    rows.append(_SendPrice(t, send, route, self.price(route, t)))
                    spent[send.chunk] += rows[-1].price
            self.loads[t] = Counter(row.route for row in rows)
        self.spent = spent

    def price(self, route: int, t: int) -> int:
        """Return the price of a send over a route at step t: that of the link and of its limits."""
        limits = [self.at(self.priced.limits[k], t) for k in self.network.caps_of[route]]
        return self.at(self.priced.links[route], t) + sum(limits)

    def at(self, row: tuple[int, ...], t: int) -> int:
        """Return the price at step t of a row, which has one price where the bound is for every number of steps."""
        return row[0] if len(row) == 1 else row[t - 1]

    def parts(self, row: _SendPrice) -> RoundParts:
        """Return what a send costs: its chunk's detour counts for its sends in proportion to their prices."""
        if not row.price:
            return RoundParts()
        needed = self.priced.units[row.send.chunk // self.schedule.chunks]
        cost = Fraction(row.price, self.priced.scale)
        share = cost * Fraction(needed, self.spent[row.send.chunk])
        return RoundParts(needed=share, detours=cost - share)

    def slack(self, t: int) -> Fraction:
        """Return the part of a round at step t for which no bandwidth is priced."""
        spent = 0
        for route, row in zip(self.network.routes, self.priced.links, strict=True):
            spent += route.units * self.at(row, t)
        for cap, row in zip(self.network.caps, self.priced.limits, strict=True):
            spent += cap.units * self.at(row, t)
        return 1 - Fraction(spent, self.priced.scale)

    def cap_load(self, k: int, t: int) -> int:
        """Return the chunks that count against a limit at step t."""
        return sum(self.loads[t][route] for route in self.network.caps[k].routes)

    def idle(self, t: int) -> list[tuple[str, Fraction]]:
        """Return the name and the idle rounds of each priced link and limit that has some at step t."""
        rounds, rows = self.schedule.steps[t - 1].rounds, []
        for i, (route, row) in enumerate(zip(self.network.routes, self.priced.links, strict=True)):
            if self.at(row, t):
                unused = route.units * rounds - self.loads[t][i]
                rows.append((f"{route.src} -> {route.dst}", self.at(row, t) * unused))
        for k, (cap, row) in enumerate(zip(self.network.caps, self.priced.limits, strict=True)):
            if self.at(row, t):
                unused = cap.units * rounds - self.cap_load(k, t)
                rows.append((_limit_name(self.network, k), self.at(row, t) * unused))
        return [(name, Fraction(idle, self.priced.scale)) for name, idle in rows if idle]

    def idle_links(self) -> tuple[IdleLink, ...]:
        """Return the idle links and limits of all steps; those of a step with as many idle rounds are one row."""
        rows = []
        for t in self.sends:
            alike: dict[Fraction, list[str]] = {}
            for name, rounds in self.idle(t):
                alike.setdefault(rounds, []).append(name)
            rows += [IdleLink(t, names[0], len(names), rounds) for rounds, names in alike.items()]
        return tuple(sorted(rows, key=lambda row: (-row.rounds * row.count, row.step)))

    def busiest(self, t: int) -> list[_SendPrice]:
        """Return the sends over the links and limits that need the most rounds at step t."""
        members: list[tuple[Fraction, frozenset[int]]] = []
        for i, count in self.loads[t].items():
            members.append((Fraction(count, self.network.routes[i].units), frozenset([i])))
        for k in {k for i in self.loads[t] for k in self.network.caps_of[i]}:
            cap = self.network.caps[k]
            members.append((Fraction(self.cap_load(k, t), cap.units), frozenset(cap.routes)))
        most = max((rounds for rounds, _ in members), default=0)
        routes = frozenset[int]().union(*[routes for rounds, routes in members if rounds == most])
        return [row for row in self.sends[t] if row.route in routes]


def _limit_name(network: Network, k: int) -> str:
    """Return the ends of a limit's routes, where they leave or enter one rank, or cross between two sets of ranks."""
    routes = [network.routes[i] for i in network.caps[k].routes]
    sources = sorted({route.src for route in routes})
    ends = sorted({route.dst for route in routes})
    return f"{_ranks(sources)} -> {_ranks(ends)} (shared)"


def _ranks(ranks: list[int]) -> str:
    """Return ranks as text: ``0-3,8``."""
    texts = []
    for first, last in runs(ranks):
        texts.append(str(first) if first == last else f"{first}-{last}")
    return ",".join(texts)
