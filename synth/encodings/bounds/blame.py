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
from collections.abc import Mapping, Sequence
from fractions import Fraction

from synth.checker.certificates.cuts import prices
from synth.model.bounds.blame import Blame, IdleLink, LineParts, RoundParts
from synth.model.documents.int_ranges import runs
from synth.model.frontier import LowerBound
from synth.model.schedule import Schedule
from synth.model.topology import Network

# The source line of each send, by step (from 1), chunk, source and destination.
Places = Mapping[tuple[int, int, int, int], object]


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

    def at(row: tuple[int, ...], t: int) -> int:
        return row[0] if len(row) == 1 else row[t - 1]  # one price where the bound is for every number of steps

    # links and limits alike: the routes that count, the units, and the prices of a unit
    resources: list[tuple[Sequence[int], int, tuple[int, ...]]] = []
    for i, (route, row) in enumerate(zip(network.routes, priced.links, strict=True)):
        resources.append(((i,), route.units, row))
    for cap, row in zip(network.caps, priced.limits, strict=True):
        resources.append((cap.routes, cap.units, row))

    # the sends of each step: chunk, route, price (of the link and its limits) and line; what each chunk's sends cost
    sends: list[list[tuple[int, int, int, str]]] = []
    spent = Counter[int]()
    for t, step in enumerate(schedule.steps, 1):
        sends.append([])
        for send in step.unicast_sends:
            if send.local:
                continue
            i = network.route_index[send.src, send.dst, send.via]
            price = at(priced.links[i], t) + sum(at(priced.limits[k], t) for k in network.caps_of[i])
            place = None if places is None else places.get((t, send.chunk, send.src, send.dst))
            sends[-1].append((send.chunk, i, price, "" if place is None else str(place)))
            spent[send.chunk] += price

    steps: list[RoundParts] = []
    lines: dict[str, RoundParts] = {}
    idle_links: list[IdleLink] = []
    for t, (step, rows) in enumerate(zip(schedule.steps, sends, strict=True), 1):
        # what each send costs: its chunk's detour counts for its sends in proportion to their prices
        total, loads = RoundParts(), Counter(i for _, i, _, _ in rows)
        for chunk, _, price, line in rows:
            parts = RoundParts()
            if price:
                cost = Fraction(price, priced.scale)
                needed = cost * Fraction(priced.units[chunk // schedule.chunks], spent[chunk])
                parts = RoundParts(needed=needed, detours=cost - needed)
            total += parts
            lines[line] = lines.get(line, RoundParts()) + parts

        # idle links and limits with a price; those with as many idle rounds are one row; bandwidth without a price
        alike: dict[Fraction, list[int]] = {}
        unpriced, needed_rounds = priced.scale, []
        for k, (routes, units, row) in enumerate(resources):
            load = sum(loads[i] for i in routes)
            needed_rounds.append(Fraction(load, units))
            unpriced -= units * at(row, t)
            if at(row, t) and units * step.rounds != load:
                alike.setdefault(Fraction(at(row, t) * (units * step.rounds - load), priced.scale), []).append(k)
        for rounds, members in alike.items():
            idle_links.append(IdleLink(t, _name(network, members[0]), len(members), rounds))
        idle = sum((rounds * len(members) for rounds, members in alike.items()), Fraction(0))
        slack = step.rounds * Fraction(unpriced, priced.scale)
        steps.append(total + RoundParts(idle=idle, slack=slack))

        # both are due to the lines whose sends fill the links and limits that need the most rounds
        most, full = max(needed_rounds, default=Fraction(0)), set[int]()
        for (routes, _, _), rounds in zip(resources, needed_rounds, strict=True):
            if rounds == most:
                full.update(routes)
        busiest = Counter(line for _, i, _, line in rows if i in full) or Counter([""])
        for line, count in busiest.items():
            share = Fraction(count, busiest.total())
            lines[line] = lines.get(line, RoundParts()) + RoundParts(idle=idle * share, slack=slack * share)

    times = Counter(line for rows in sends for _, _, _, line in rows)
    found = [LineParts(line, times[line], parts) for line, parts in lines.items()]
    found.sort(key=lambda row: (-row.parts.lost, row.line))
    idle_links.sort(key=lambda row: (-row.rounds * row.count, row.step))
    any_steps = bound.certificate.get("steps") is None
    return Blame(bound.value, bound.certificate["kind"], any_steps, tuple(steps), tuple(found), tuple(idle_links))


def _name(network: Network, k: int) -> str:
    """Return the ends of link k, or of a limit's routes: they leave or enter one rank, or cross between two sets."""
    if k < len(network.routes):
        return f"{network.routes[k].src} -> {network.routes[k].dst}"
    routes = [network.routes[i] for i in network.caps[k - len(network.routes)].routes]
    texts: list[str] = []
    sources = {route.src for route in routes}
    destinations = {route.dst for route in routes}
    for ranks in (sources, destinations):
        blocks = []
        for first, last in runs(sorted(ranks)):
            blocks.append(str(first) if first == last else f"{first}-{last}")
        texts.append(",".join(blocks))
    return f"{texts[0]} -> {texts[1]} (shared)"
