"""Exhaustive search for the fastest asynchronous execution of a collective on a machine of a few ranks.

It shares no code with `synth`. A transfer of a chunk begins when the chunk is there and its route is free, takes bytes
over bandwidth, is served by each limit of its links in the order of the begins, and arrives the latency of the route
after its end. Ranks may keep any number of partial sums. The times of schedules that the search finds are upper bounds
of the least time, whether or not the search has seen all; with one chunk a unit and a search that ended they are it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from random import Random
from typing import NamedTuple

NEVER = Fraction(10**12)


class Machine(NamedTuple):
    """Links (source, destination, GB/s, µs), where ends from `ranks` on are switches, and limits (links, GB/s)."""

    ranks: int
    links: tuple[tuple[int, int, Fraction, Fraction], ...]
    limits: tuple[tuple[tuple[int, ...], Fraction], ...] = ()


class Unit(NamedTuple):
    """Data of `size` bytes: `sources` have it, or add to it where units are sums; `targets` must get it.

    `parts`: the contributions that each target wants, where these are not all.
    """

    sources: tuple[int, ...]
    targets: tuple[int, ...]
    size: Fraction
    parts: tuple[tuple[int, ...], ...] = ()


class Route(NamedTuple):
    """A path from rank to rank over links: its ends, µs per 1000 bytes, µs, and its shared resources."""

    src: int
    dst: int
    pace: Fraction
    latency: Fraction
    shared: tuple[int, ...]


class Outcome(NamedTuple):
    """The least time in µs of a schedule, None without one. `exhausted`: all schedules of these chunks were seen."""

    time: Fraction | None
    exhausted: bool
    states: int


def routes(machine: Machine) -> tuple[list[Route], list[Fraction]]:
    """Return direct links and shortest paths through switches, and the µs per 1000 bytes of what they share.

    They share links that lead through switches, and limits.
    """
    paths: list[tuple[int, ...]] = []
    for start in range(machine.ranks):
        for i, (a, b, _, _) in enumerate(machine.links):
            if a == start and b < machine.ranks and b != start:
                paths.append((i,))
        front = [(i,) for i, link in enumerate(machine.links) if link[0] == start and link[1] >= machine.ranks]
        shortest: dict[int, int] = {}
        while front:
            longer = []
            for path in front:
                passed = {machine.links[i][1] for i in path}
                for i, (a, b, _, _) in enumerate(machine.links):
                    if a != machine.links[path[-1]][1] or b == start or b in passed:
                        continue
                    if b >= machine.ranks:
                        if shortest.setdefault(b, len(path) + 1) >= len(path) + 1:
                            longer.append((*path, i))
                    elif shortest.setdefault(b, len(path) + 1) >= len(path) + 1:
                        paths.append((*path, i))
            front = longer
    wires = sorted({i for path in paths if len(path) > 1 for i in path})
    resource = {i: k for k, i in enumerate(wires)}
    pace = [1 / machine.links[i][2] for i in wires]
    result = []
    for path in paths:
        shared = [resource[i] for i in path if i in resource]
        for k, (members, _) in enumerate(machine.limits):
            shared += [len(wires) + k] * sum(i in members for i in path)
        slowest = min(machine.links[i][2] for i in path)
        latency = sum((machine.links[i][3] for i in path), Fraction(0))
        result.append(Route(machine.links[path[0]][0], machine.links[path[-1]][1], 1 / slowest, latency, tuple(shared)))
    return result, pace + [1 / gbps for _, gbps in machine.limits]


class Search:
    """A depth-first search over the transfers in the order of their begins.

    `chunks` of each unit are sent whole. `states`: limit on visited states.
    """

    def __init__(self, machine: Machine, units: Sequence[Unit], combining: bool, chunks: int, states: int) -> None:
        self.routes, self.paces = routes(machine)
        self.combining, self.most_states, self.states = combining, states, 0
        self.best, self.exhausted = NEVER, True
        self.near = self._distances(machine.ranks)
        self.free = [Fraction(0)] * len(self.routes)
        self.served = [Fraction(0)] * len(self.paces)
        # by chunk and rank: value -> µs at which it is there; a value is the set of contributions, 1 for copied data
        self.there: list[list[dict[int, Fraction]]] = []
        self.kilobytes: list[Fraction] = []
        self.wanted: list[list[tuple[int, int]]] = []  # by chunk: (rank, value)
        for unit in units:
            parts = unit.parts or (unit.sources,) * len(unit.targets)
            values = [sum(1 << r for r in part) if combining else 1 for part in parts]
            for _ in range(chunks):
                held: list[dict[int, Fraction]] = [{} for _ in range(machine.ranks)]
                for r in unit.sources:
                    held[r][1 << r if combining else 1] = Fraction(0)
                self.there.append(held)
                self.kilobytes.append(unit.size / chunks / 1000)
                self.wanted.append(list(zip(unit.targets, values, strict=True)))

    def _distances(self, ranks: int) -> list[list[Fraction]]:
        near = [[NEVER if a != b else Fraction(0) for b in range(ranks)] for a in range(ranks)]
        for route in self.routes:
            near[route.src][route.dst] = min(near[route.src][route.dst], route.latency)
        for k in range(ranks):
            for a in range(ranks):
                for b in range(ranks):
                    near[a][b] = min(near[a][b], near[a][k] + near[k][b])
        return near

    def run(self) -> Outcome:
        """Search, and return the least time."""
        self._visit(Fraction(0), -1, ())
        return Outcome(self.best if self.best < NEVER else None, self.exhausted, self.states)

    def greedy(self, random: Random, rounds: int) -> Fraction | None:
        """Return the least time of `rounds` schedules that send what can begin first, and of that what arrives first.

        Chance decides between transfers that arrive at nearly the same time."""
        start = [[dict(values) for values in held] for held in self.there]
        best = NEVER
        for _ in range(rounds):
            self.there = [[dict(values) for values in held] for held in start]
            self.free = [Fraction(0)] * len(self.routes)
            self.served = [Fraction(0)] * len(self.paces)
            noise, now = Fraction(random.choice((0, 0, 1, 3))), Fraction(0)
            while self._unfinished():
                options = []
                for move in self._moves():
                    begin, _, arrival = self._times(move, now)
                    options.append((begin, arrival + noise * Fraction(random.randrange(8), 8), move))
                if not options:
                    break
                now = self._carry_out(min(options)[2], now)[0]
            if not self._unfinished():
                best = min(best, self._least())
        return best if best < NEVER else None

    # ------------------------------------------------------------ states

    def _unfinished(self) -> bool:
        return any(value not in self.there[c][r] for c, rows in enumerate(self.wanted) for r, value in rows)

    def _least(self) -> Fraction:
        """Return a time before which this state cannot end: arrivals so far, and latencies to ranks that still want."""
        least = Fraction(0)
        for c, rows in enumerate(self.wanted):
            for rank, value in rows:
                if value in self.there[c][rank]:
                    least = max(least, self.there[c][rank][value])
                    continue
                if self.combining:
                    contributions = [1 << r for r in range(len(self.near)) if value >> r & 1]
                else:
                    contributions = [1]
                for part in contributions:
                    first = NEVER
                    for r, values in enumerate(self.there[c]):
                        for held, time in values.items():
                            if held & part:
                                first = min(first, time + self.near[r][rank])
                    least = max(least, first)
        return least

    def _moves(self) -> Iterator[tuple[int, int, int]]:
        """Yield (chunk, route, value) of every transfer that brings a rank something it will not have otherwise."""
        for c, held in enumerate(self.there):
            if all(value in held[rank] for rank, value in self.wanted[c]):
                continue
            for i, route in enumerate(self.routes):
                for value in held[route.src]:
                    if value not in held[route.dst]:
                        yield c, i, value

    def _times(self, move: tuple[int, int, int], now: Fraction) -> tuple[Fraction, Fraction, Fraction]:
        c, i, value = move
        route = self.routes[i]
        begin = max(now, self.free[i], self.there[c][route.src][value])
        end = begin + self.kilobytes[c] * route.pace
        served: dict[int, Fraction] = {}
        for k in route.shared:
            served[k] = max(served.get(k, self.served[k]), begin) + self.kilobytes[c] * self.paces[k]
            end = max(end, served[k])
        return begin, end, end + route.latency

    def _carry_out(self, move: tuple[int, int, int], now: Fraction) -> tuple[Fraction, tuple]:
        """Carry out a transfer; return its begin, and what `_undo` needs."""
        c, i, value = move
        route = self.routes[i]
        begin, end, arrival = self._times(move, now)
        served = [(k, self.served[k]) for k in set(route.shared)]
        undo = (i, self.free[i], served, c, route.dst, dict(self.there[c][route.dst]))
        for k in route.shared:
            self.served[k] = max(self.served[k], begin) + self.kilobytes[c] * self.paces[k]
        self.free[i] = end
        self._add(self.there[c][route.dst], value, arrival)
        return begin, undo

    def _undo(self, undo: tuple) -> None:
        i, free, served, c, rank, held = undo
        self.free[i] = free
        for k, before in served:
            self.served[k] = before
        self.there[c][rank] = held

    def _add(self, held: dict[int, Fraction], value: int, time: Fraction) -> None:
        """Add a value, and the sums of it with disjoint ones, at the times at which both are there."""
        if held.get(value, NEVER) <= time:
            return
        held[value] = time
        if self.combining:
            for other, since in list(held.items()):
                if not other & value:
                    self._add(held, other | value, max(time, since))

    def _visit(self, now: Fraction, last: int, last_shared: tuple[int, ...]) -> None:
        self.states += 1
        if self.states > self.most_states:
            self.exhausted = False
            return
        if self._least() >= self.best:
            return
        if not self._unfinished():
            self.best = self._least()
            return
        options = []
        for move in self._moves():
            begin, _, arrival = self._times(move, now)
            apart = not set(last_shared) & set(self.routes[move[1]].shared)
            if arrival < self.best and not (
                begin == now and move[1] < last and apart and self._was_possible(move, now)
            ):
                options.append((arrival, begin, move))
        for _, begin, move in sorted(options):
            undo = self._carry_out(move, now)[1]
            self._visit(begin, move[1], self.routes[move[1]].shared)
            self._undo(undo)
            if self.states > self.most_states:
                return

    def _was_possible(self, move: tuple[int, int, int], now: Fraction) -> bool:
        """Return True where the transfer might have gone before the last one: its data was there, its route free."""
        c, i, value = move
        return self.there[c][self.routes[i].src][value] <= now and self.free[i] <= now
