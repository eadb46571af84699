"""Simulated annealing for allreduce chunks that fill every link in every step: sends are moved one at a time until no
load exceeds its limit.

Each chunk is reduced up a tree to its hub, or to two hubs that swap, and broadcast down another tree. A move changes
one send: a rank passes its sum on, or receives the total, at another step or over another route. Or it changes the
hubs: a hub and the last rank that reached it become two hubs that swap, or the reverse. Moves are accepted with the
probability of simulated annealing (Kirkpatrick et al., Science 220, 1983) at one fixed temperature. The random walk
favours some rows, such as the loads of the middle steps. Dynamic penalties (prices) balance that: the price of a row
rises while its load is too high and falls while it is too low.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from synth.model.topology import Network


@dataclass(frozen=True)
class AnnealingSettings:
    """Parameters of the annealing.

    Attributes:
        temperature: Temperature of the acceptance probability, in units of load.
        step: Change of a price for each unit of load above or below its limit.
        pace: Number of proposals between two changes of the prices.
        from_high: Share of the proposals that move a send away from a row with too much load.
        to_low: That share and the share of the proposals that move a send to a row with capacity left.
        hubs: Share of the other proposals that change hubs.
        a_second: Proposals that a core makes in a second, about; it converts proposals into seconds of work.
    """

    temperature: float = 0.25
    step: float = 0.01
    pace: int = 500
    from_high: float = 0.45
    to_low: float = 0.9
    hubs: float = 0.3
    a_second: int = 200_000


SETTINGS = AnnealingSettings()

Place = tuple[int, int]  # (step, route): steps begin at 1, the route is an index into `Network.routes`


@dataclass
class ChunkTrees:
    """Trees of one chunk.

    Attributes:
        hubs: one hub, or two that swap.
        swap: the step in which two hubs swap; 0 for one hub.
        up: step and route of the send with which each other rank passes its sum on.
        down: step and route of the send with which each other rank receives the total.
    """

    hubs: tuple[int, ...]
    swap: int
    up: dict[int, Place]
    down: dict[int, Place]

    def mirrored(self, steps: int, back: Sequence[int]) -> ChunkTrees:
        """Return the chunk reversed in time, within `steps` steps: what went up goes down. ``back[i]`` is the route
        opposite to route i."""

        def reverse(table: dict[int, Place]) -> dict[int, Place]:
            return {n: (steps + 1 - step, back[i]) for n, (step, i) in table.items()}

        return ChunkTrees(self.hubs, self.swap and steps + 1 - self.swap, reverse(self.down), reverse(self.up))

    def sends(self, route: Mapping[tuple[int, int], int]) -> Iterator[tuple[int, int, str]]:
        """Yield ``(step, route, kind)`` of each send; `route` maps (source, destination) to the route."""
        yield from ((step, i, "reduce") for step, i in self.up.values())
        yield from ((step, i, "copy") for step, i in self.down.values())
        if len(self.hubs) == 2:
            a, b = self.hubs
            yield self.swap, route[a, b], "reduce"
            yield self.swap, route[b, a], "reduce"


@dataclass(frozen=True)
class LoadLimits:
    """Limits of loads: a row is a resource, or an orbit of resources, in one step.

    Attributes:
        rows: ``rows[route][step]`` are the rows to whose load a send adds one; steps begin at 1.
        capacity: the maximum load of each row.
    """

    rows: list[list[tuple[int, ...]]]
    capacity: list[int]


def anneal_loads(
    chunks: Sequence[ChunkTrees], network: Network, steps: int, limits: LoadLimits, proposals: int, seed: int
) -> tuple[bool, float]:
    """Change `chunks` in place until no load exceeds its limit, or after `proposals` proposals.

    `network` has at most one route from each rank to each other rank. Deterministic.

    Returns:
        True if no load exceeds its limit, and the work in seconds of a core.
    """
    moves = _Moves(network, steps, seed)
    uniform, exp, count = moves.random, math.exp, len(chunks)
    rows, capacity = limits.rows, limits.capacity
    places: list[list[Place]] = [[] for _ in capacity]
    for i, rows_of_route in enumerate(rows):
        for step in range(1, steps + 1):
            for row in rows_of_route[step]:
                places[row].append((step, i))
    load, price = [0] * len(capacity), [0.0] * len(capacity)
    for chunk in chunks:
        for step, i, _ in chunk.sends(moves.route):
            for row in rows[i][step]:
                load[row] += 1
    high, low = _unbalanced_rows(load, capacity)
    for proposal in range(proposals):
        if not high:
            return True, proposal / SETTINGS.a_second
        if proposal % SETTINGS.pace == 0:
            price = [p + SETTINGS.step * (n - maximum) for p, n, maximum in zip(price, load, capacity, strict=True)]
        chunk, drawn = chunks[int(uniform() * count)], uniform()
        if drawn < SETTINGS.from_high:
            move = moves.away_from(chunk, places[high[int(uniform() * len(high))]])
        elif drawn < SETTINGS.to_low and low:
            candidates = places[low[int(uniform() * len(low))]]
            move = moves.onto(chunk, candidates[int(uniform() * len(candidates))])
        else:
            move = moves.any(chunk)
        if move is None:
            continue
        # The objective is the total excess over the limits plus the priced loads. Loads are changed first, and back
        # again if the move is rejected.
        excess, penalty = 0, 0.0
        for (step, i), (later, j) in move.changes:
            for row in rows[i][step]:
                excess -= load[row] > capacity[row]
                penalty -= price[row]
                load[row] -= 1
            for row in rows[j][later]:
                excess += load[row] >= capacity[row]
                penalty += price[row]
                load[row] += 1
        if excess + penalty <= 0 or uniform() < exp(-(excess + penalty) / SETTINGS.temperature):
            move.commit()
            high, low = _unbalanced_rows(load, capacity)
            continue
        for (step, i), (later, j) in move.changes:
            for row in rows[i][step]:
                load[row] += 1
            for row in rows[j][later]:
                load[row] -= 1
    return not high, proposals / SETTINGS.a_second


def _unbalanced_rows(load: Sequence[int], capacity: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the rows whose load exceeds its limit, and the rows with capacity left."""
    slack = [maximum - n for n, maximum in zip(load, capacity, strict=True)]
    high = [k for k, n in enumerate(slack) if n < 0]
    return high, [k for k, n in enumerate(slack) if n > 0]


class SendMove(NamedTuple):
    """A proposal: (present place, new place) of each send that it moves, and a function that changes the chunk so."""

    changes: Sequence[tuple[Place, Place]]
    commit: Callable[[], None]


class _Moves:
    """Random moves, each of one chunk. A method returns None if the move it draws gives no valid schedule."""

    def __init__(self, network: Network, steps: int, seed: int) -> None:
        self.random = random.Random(seed).random
        self.steps, self.ranks = steps, network.ranks
        self.src, self.dst = [], []
        for route in network.routes:
            self.src.append(route.src)
            self.dst.append(route.dst)
        self.out, self.into = network.out, network.into
        self.route = {(r.src, r.dst): i for i, r in enumerate(network.routes)}

    def _choice(self, options: Sequence) -> int:
        return options[int(self.random() * len(options))]

    def away_from(self, chunk: ChunkTrees, places: Sequence[Place]) -> SendMove | None:
        """Move a send at one of `places` elsewhere."""
        sends = [(n, True) for n, place in chunk.up.items() if place in places]
        sends += [(n, False) for n, place in chunk.down.items() if place in places]
        if not sends:
            return self.hubs(chunk)
        n, is_up = sends[int(self.random() * len(sends))]
        if is_up:
            return self.up(chunk, n, self._choice(self.out[n]), 0)
        return self.down(chunk, n, self._choice(self.into[n]), 0)

    def onto(self, chunk: ChunkTrees, place: Place) -> SendMove | None:
        """Move a send to `place`."""
        step, route = place
        if self.random() < 0.5:
            return self.up(chunk, self.src[route], route, step)
        return self.down(chunk, self.dst[route], route, step)

    def any(self, chunk: ChunkTrees) -> SendMove | None:
        """Draw any move."""
        n, drawn = int(self.random() * self.ranks), self.random()
        if drawn < SETTINGS.hubs:
            return self.hubs(chunk)
        if self.random() < 0.5:
            return self.up(chunk, n, self._choice(self.out[n]), 0)
        return self.down(chunk, n, self._choice(self.into[n]), 0)

    def up(self, chunk: ChunkTrees, n: int, route: int, step: int) -> SendMove | None:
        """Let rank n pass its sum on over `route` at `step`; at a random valid step if `step` is 0."""
        up, dst = chunk.up, self.dst
        if n not in up:
            return None
        parent = at = dst[route]
        while at in up:
            if at == n:
                return None  # the new parent is below n: the move would close a cycle
            at = dst[up[at][1]]
        low = 1 + max((step for step, i in up.values() if dst[i] == n), default=0)
        high = up[parent][0] - 1 if parent in up else self._last_arrival(chunk, parent)
        step = step or low + int(self.random() * (high - low + 1))
        place = (step, route)
        if not low <= step <= high or place == up[n]:
            return None
        return SendMove(((up[n], place),), lambda: up.__setitem__(n, place))

    def down(self, chunk: ChunkTrees, n: int, route: int, step: int) -> SendMove | None:
        """Let rank n receive the total over `route` at `step`; at a random valid step if `step` is 0."""
        down, src = chunk.down, self.src
        if n not in down:
            return None
        parent = at = src[route]
        while at in down:
            if at == n:
                return None
            at = src[down[at][1]]
        high = min((step for step, i in down.values() if src[i] == n), default=self.steps + 1) - 1
        low = 1 + (down[parent][0] if parent in down else chunk.swap or self._complete(chunk, parent))
        step = step or low + int(self.random() * (high - low + 1))
        place = (step, route)
        if not low <= step <= high or place == down[n]:
            return None
        return SendMove(((down[n], place),), lambda: down.__setitem__(n, place))

    def _complete(self, chunk: ChunkTrees, hub: int) -> int:
        """Return the step after which a hub has received all sums that others send it."""
        return max((step for step, i in chunk.up.values() if self.dst[i] == hub), default=0)

    def _last_arrival(self, chunk: ChunkTrees, hub: int) -> int:
        """Return the last step in which a hub may still receive a sum."""
        return chunk.swap - 1 if chunk.swap else self._first_copy(chunk, hub) - 1

    def _first_copy(self, chunk: ChunkTrees, hub: int) -> int:
        """Return the step in which a hub first sends the total down."""
        return min((step for step, i in chunk.down.values() if self.src[i] == hub), default=self.steps + 1)

    def hubs(self, chunk: ChunkTrees) -> SendMove | None:
        """Turn the last rank that reaches a hub into a second hub, or the reverse, or move the swap of two hubs to
        another step."""
        if not chunk.swap:
            return self._add_hub(chunk)
        return self._remove_hub(chunk) if self.random() < 0.5 else self._move_swap(chunk)

    def _add_hub(self, chunk: ChunkTrees) -> SendMove | None:
        hub = chunk.hubs[0]
        swap = self._complete(chunk, hub)
        last = [n for n, (step, i) in chunk.up.items() if step == swap and self.dst[i] == hub]
        if len(last) != 1 or self.src[chunk.down[last[0]][1]] != hub:
            return None
        other = last[0]
        step, route = chunk.down[other]

        def commit() -> None:
            del chunk.up[other], chunk.down[other]
            chunk.hubs, chunk.swap = (hub, other), swap

        return SendMove((((step, route), (swap, route)),), commit)

    def _remove_hub(self, chunk: ChunkTrees) -> SendMove | None:
        hub, other = chunk.hubs if self.random() < 0.5 else chunk.hubs[::-1]
        choices = self._first_copy(chunk, other) - 1 - chunk.swap
        if choices < 1:
            return None
        swap, there, back = chunk.swap, self.route[hub, other], self.route[other, hub]
        step = swap + 1 + int(self.random() * choices)

        def commit() -> None:
            chunk.up[other], chunk.down[other] = (swap, back), (step, there)
            chunk.hubs, chunk.swap = (hub,), 0

        return SendMove((((swap, there), (step, there)),), commit)

    def _move_swap(self, chunk: ChunkTrees) -> SendMove | None:
        a, b = chunk.hubs
        low = max(self._complete(chunk, a), self._complete(chunk, b)) + 1
        high = min(self._first_copy(chunk, a), self._first_copy(chunk, b)) - 1
        step, swap = low + int(self.random() * (high - low + 1)), chunk.swap
        if step == swap:
            return None

        def commit() -> None:
            chunk.swap = step

        return SendMove(
            tuple(((swap, self.route[pair]), (step, self.route[pair])) for pair in ((a, b), (b, a))), commit
        )
