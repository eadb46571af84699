"""SendMask: the sends that the rules of one network allow for the units of one collective, and their times."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from synth.errors import UsageError
from synth.model.collective import Collective
from synth.model.send_rules import ACROSS, HOME, MOST_STEPS, OWN_RAIL, FixedSend, SendPhase, SendRules, places_in
from synth.model.topology import Network


class Symmetry(NamedTuple):
    """The image of each rank, route and unit of data under a symmetry that schedules have to keep."""

    ranks: tuple[int, ...]
    routes: tuple[int, ...]
    units: tuple[int, ...]


class SendMask:
    """The sends that the rules of a network allow for the units of a collective.

    Raises UsageError for a collective that the rules cannot speak of.

    Attributes:
        groups: for each unit a number that is equal for units with the same allowed routes.
        symmetries: those that schedules have to keep.
        fixed: for each unit the step of each route with a send that schedules have to have, as the rules count steps.
    """

    def __init__(self, network: Network, collective: Collective, rules: SendRules) -> None:
        self.network, self.rules = network, rules
        if collective.combining and not collective.reversible:
            raise UsageError(
                f"{collective.name}: a sketch's rules for sends are for collectives that copy, and their reversals"
            )
        places = places_in(rules.boxes)
        self.fixed: list[dict[int, int]] = [{} for _ in range(collective.units)]
        for send in rules.fixed:
            self._fix(collective, send)
        numbers: dict[tuple | None, int] = {}
        self.groups: list[int] = []
        self._routes: list[list[bool]] = []
        for unit in range(collective.units):
            owner = _owner(collective, unit) if rules.ways else None
            key: tuple | None = None if owner is None else (rules.boxes[owner], places[owner])
            relays = self.relays(collective, unit) if rules.relay_memory == 0 else frozenset[int]()
            if self.fixed[unit]:
                key = ("fixed", unit)
            elif relays:
                key = (key, relays)
            if key not in numbers:
                numbers[key] = len(self._routes)
                self._routes.append(self._allowed(owner, places, collective.combining))
                for r, route in enumerate(network.routes):
                    self._routes[-1][r] &= not relays & {route.src, route.dst}
                self._leave_fixed(unit, collective.combining)
            self.groups.append(numbers[key])
        kinds = [rules.kind(route.src, route.dst) for route in network.routes]
        phases = {phase.links: phase for phase in rules.phases}
        self._phases = [phases.get(kind) for kind in kinds]
        self.symmetries = tuple(self._symmetry(collective, ranks) for ranks in rules.permutations())

    def _fix(self, collective: Collective, send: FixedSend) -> None:
        """Note a fixed send. Raises UsageError for one that no schedule of the collective has."""
        unit, src, dst, step = send
        place = f"fixed: unit {unit} from rank {src} to rank {dst} in step {step}"
        if unit >= collective.units:
            raise UsageError(f"{place}: {collective.name} has units 0 to {collective.units - 1}")
        sums = collective.combining != self.rules.turned  # before a reversal in time
        ends = collective.post[unit] if collective.combining else collective.pre[unit]
        once, why = (src, "wants the sum") if sums else (dst, "has it before")
        if once in ends:
            raise UsageError(f"{place}: rank {once} {why}")
        route = self.network.route_index.get((dst, src, ()) if self.rules.turned else (src, dst, ()))
        if route is None:
            raise UsageError(f"{place}: {self.network.name} has no such link")
        for other in self.fixed[unit]:
            if once == self._once(other, collective.combining):
                raise UsageError(f"{place}: rank {once} {'sends' if sums else 'gets'} it in another fixed send")
        self.fixed[unit][route] = step

    def _once(self, route: int, combining: bool) -> int:
        """Return the end of a route that a unit passes once: where it is summed the sender, else the receiver."""
        return self.network.routes[route].src if combining else self.network.routes[route].dst

    def _leave_fixed(self, unit: int, combining: bool) -> None:
        """Take from the routes of a unit all that end where a fixed send does. Raises UsageError where the other rules
        do not allow that send."""
        allowed, fixed = self._routes[-1], self.fixed[unit]
        for route in fixed:
            if not allowed[route]:
                raise UsageError(f"fixed: unit {unit}: the other rules of the sketch do not allow the send")
        ends = {self._once(route, combining) for route in fixed}
        for route in range(len(allowed)):
            if route not in fixed and self._once(route, combining) in ends:
                allowed[route] = False

    def relays(self, collective: Collective, unit: int) -> frozenset[int]:
        """Return the ranks that could only pass a unit on: they neither have it first nor want it, and no fixed send
        of it ends there."""
        ends = {self._once(route, collective.combining) for route in self.fixed[unit]}
        return frozenset(range(self.network.ranks)) - collective.pre[unit] - collective.post[unit] - ends

    def _symmetry(self, collective: Collective, ranks: tuple[int, ...]) -> Symmetry:
        """Return the symmetry of network and collective that maps rank r to ``ranks[r]``.

        Raises UsageError where it does not keep the links, the collective or the other rules.
        """
        place = f"symmetric: {list(ranks)}"
        routes, units = self.network.image(ranks), collective.unit_permutation(ranks)
        if routes is None:
            raise UsageError(f"{place} does not keep the links and limits of {self.network.name}")
        if units is None:
            raise UsageError(f"{place} does not keep {collective.name}")
        if not self.keeps(units, routes):
            raise UsageError(f"{place} does not keep the other rules of the sketch")
        return Symmetry(ranks, routes, units)

    def _allowed(self, owner: int | None, places: Sequence[int], combining: bool) -> list[bool]:
        rules, allowed = self.rules, []
        for route in self.network.routes:
            ok = True
            if owner is not None and rules.kind(route.src, route.dst) == ACROSS:
                if OWN_RAIL in rules.ways:
                    ok = places[route.src] == places[route.dst] == places[owner]
                if HOME in rules.ways:
                    ok = ok and rules.boxes[route.dst if combining else route.src] == rules.boxes[owner]
            allowed.append(ok)
        return allowed

    def routes(self, unit: int) -> list[bool]:
        """Return for each route whether it may carry the unit."""
        return self._routes[self.groups[unit]]

    def window(self, unit: int, route: int, steps: int) -> tuple[int, int]:
        """Return the first and the last of `steps` steps in which a route may be used for a unit."""
        phase = self._phases[route]
        if route in self.fixed[unit]:
            step = self.fixed[unit][route]
            phase = SendPhase("", step, step)
        if phase is None:
            return 1, steps
        last = steps if phase.last is None else min(steps, phase.last)
        if self.rules.turned:
            return steps + 1 - last, steps + 1 - phase.first
        return phase.first, last

    def allows(self, unit: int, route: int, step: int, steps: int) -> bool:
        """Return True where a send of the unit over the route in step `step` of `steps` keeps the rules."""
        first, last = self.window(unit, route, steps)
        return self.routes(unit)[route] and first <= step <= last

    def arrivals(self, unit: int, sources: Iterable[int], steps: int = MOST_STEPS) -> list[int | None]:
        """Return for each rank the fewest of `steps` steps after which it can hold the unit, None where it never
        can."""
        return self._times(unit, sources, steps, back=False)

    def lead_times(self, unit: int, goals: Iterable[int], steps: int) -> list[int | None]:
        """Return for each rank how many of `steps` steps before the end it must hold the unit to serve a goal."""
        return self._times(unit, goals, steps, back=True)

    def _times(self, unit: int, starts: Iterable[int], steps: int, back: bool) -> list[int | None]:
        """Return the fewest steps from `starts` to each rank (Dijkstra); `back`: over reversed links, from the end."""
        allowed, routes = self.routes(unit), self.network.routes
        leading = self.network.into if back else self.network.out
        times: list[int | None] = [None] * self.network.ranks
        queue = [(0, n) for n in sorted(set(starts))]
        while queue:
            time, n = heapq.heappop(queue)
            if times[n] is not None:
                continue
            times[n] = time
            for r in leading[n]:
                first, last = self.window(unit, r, steps)
                if back:  # steps are counted from the end
                    first, last = steps + 1 - last, steps + 1 - first
                other = routes[r].src if back else routes[r].dst
                step = max(first, time + 1)
                if allowed[r] and step <= last and times[other] is None:
                    heapq.heappush(queue, (step, other))
        return times

    def reach(self, unit: int, starts: Iterable[int], *, back: bool = False) -> list[int | None]:
        """Return the distance of each rank over allowed routes, without steps; `back`: towards `starts`."""
        allowed, routes = self.routes(unit), self.network.routes
        found: list[int | None] = [None] * self.network.ranks
        queue = sorted(set(starts))
        for n in queue:
            found[n] = 0
        for n in queue:
            for r in self.network.into[n] if back else self.network.out[n]:
                end = routes[r].src if back else routes[r].dst
                if allowed[r] and found[end] is None:
                    found[end] = (found[n] or 0) + 1
                    queue.append(end)
        return found

    def keeps(self, units: Sequence[int], routes: Sequence[int]) -> bool:
        """Return True where a symmetry, which maps unit u to units[u] and route r to routes[r], maps the mask to
        itself."""
        if any(self._phases[r] != self._phases[image] for r, image in enumerate(routes)):
            return False
        for unit, image in enumerate(units):
            moved = {routes[r]: step for r, step in self.fixed[unit].items()}
            if moved != self.fixed[image]:
                return False
        seen: set[tuple[int, int]] = set()
        for unit, image in enumerate(units):
            pair = self.groups[unit], self.groups[image]
            if pair not in seen:
                seen.add(pair)
                before, after = self.routes(unit), self.routes(image)
                if any(before[r] != after[end] for r, end in enumerate(routes)):
                    return False
        return True


def _owner(collective: Collective, unit: int) -> int:
    holders = collective.post[unit] if collective.combining else collective.pre[unit]
    if len(holders) != 1:
        what = "is wanted by" if collective.combining else "is held by"
        raise UsageError(f"{collective.name}: unit {unit} {what} {len(holders)} ranks; rules for ways need one")
    return next(iter(holders))


def send_mask(network: Network, collective: Collective) -> SendMask | None:
    """Return the mask of a network's rules, None where it has none. Raises UsageError as `SendMask`."""
    return None if network.rules is None else _mask(network, collective)


@lru_cache(maxsize=8)
def _mask(network: Network, collective: Collective) -> SendMask:
    assert network.rules is not None
    return SendMask(network, collective, network.rules)
