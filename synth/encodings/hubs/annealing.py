"""Local search for chunks that fill every link in every step: one send after the other is moved, until no load is too
high.

Each chunk goes up a tree to its hub, or to two that swap, and down another tree. A proposal moves a send: a rank passes
its sum on, or receives the total, at another step or over another route; or a hub and the last rank that reached it
become two hubs that swap, or the other way round. It is taken with the probability of simulated annealing (Kirkpatrick
et al., Science 220, 1983) at one temperature. What the random walk favours, loads in the middle steps say, is balanced
by prices that rise where there is too much load for long and fall where there is too little.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from synth.model.topology import Network

TEMPERATURE = 0.25
STEP, PACE = 0.01, 500  # how much prices change by, and after how many proposals
FROM_HIGH, TO_LOW = (
    0.45,
    0.9,
)  # shares of the proposals that move a send from where there is too much, and to where there is room
HUBS = 0.3  # of the others: those that change hubs
A_SECOND = 200_000  # proposals, about

Place = tuple[int, int]  # a step, from 1 on, and a route


@dataclass
class Chunk:
    """How a chunk goes: its one or two `hubs`, which swap in step `swap`; when and on which route others send up and
    receive."""

    hubs: tuple[int, ...]
    swap: int
    up: dict[int, Place]
    down: dict[int, Place]

    def mirrored(self, steps: int, back: Sequence[int]) -> Chunk:
        """The same read backwards: what went up goes down. `back` gives the route the other way."""

        def turned(table: dict[int, Place]) -> dict[int, Place]:
            return {n: (steps + 1 - step, back[i]) for n, (step, i) in table.items()}

        return Chunk(self.hubs, self.swap and steps + 1 - self.swap, turned(self.down), turned(self.up))

    def sends(self, route: Mapping[tuple[int, int], int]) -> Iterator[tuple[int, int, str]]:
        """``(step, route, kind)`` of each send; `route` gives that from one rank to another."""
        yield from ((step, i, "reduce") for step, i in self.up.values())
        yield from ((step, i, "copy") for step, i in self.down.values())
        if len(self.hubs) == 2:
            a, b = self.hubs
            yield self.swap, route[a, b], "reduce"
            yield self.swap, route[b, a], "reduce"


@dataclass(frozen=True)
class Rows:
    """Loads that are limited: `of[route][step]` are those that a send adds one to, `room` is the most of each. Steps
    begin at 1."""

    of: list[list[tuple[int, ...]]]
    room: list[int]


def even_out(
    chunks: Sequence[Chunk], network: Network, steps: int, limits: Rows, proposals: int, seed: int
) -> tuple[bool, float]:
    """Changes `chunks` until no load is above its most, or after so many proposals. Whether that is so; and the work.

    Of `network` there may be one route at most from rank to rank.
    """
    moves = _Moves(network, steps, seed)
    chance, exp, count = moves.random, math.exp, len(chunks)
    rows, room = limits.of, limits.room
    places: list[list[Place]] = [[] for _ in room]
    for i, mine in enumerate(rows):
        for step in range(1, steps + 1):
            for row in mine[step]:
                places[row].append((step, i))
    load, price = [0] * len(room), [0.0] * len(room)
    for chunk in chunks:
        for step, i, _ in chunk.sends(moves.route):
            for row in rows[i][step]:
                load[row] += 1
    high, low = _uneven(load, room)
    for turn in range(proposals):
        if not high:
            return True, turn / A_SECOND
        if turn % PACE == 0:
            price = [p + STEP * (n - most) for p, n, most in zip(price, load, room, strict=True)]
        chunk, drawn = chunks[int(chance() * count)], chance()
        if drawn < FROM_HIGH:
            move = moves.away(chunk, places[high[int(chance() * len(high))]])
        elif drawn < TO_LOW and low:
            into = places[low[int(chance() * len(low))]]
            move = moves.onto(chunk, into[int(chance() * len(into))])
        else:
            move = moves.any(chunk)
        if move is None:
            continue
        changes, commit = move
        change, drift = 0, 0.0
        for (step, i), (later, j) in changes:
            for row in rows[i][step]:
                change -= load[row] > room[row]
                drift -= price[row]
                load[row] -= 1
            for row in rows[j][later]:
                change += load[row] >= room[row]
                drift += price[row]
                load[row] += 1
        if change + drift <= 0 or chance() < exp(-(change + drift) / TEMPERATURE):
            commit()
            high, low = _uneven(load, room)
            continue
        for (step, i), (later, j) in changes:
            for row in rows[i][step]:
                load[row] += 1
            for row in rows[j][later]:
                load[row] -= 1
    return not high, proposals / A_SECOND


def _uneven(load: Sequence[int], room: Sequence[int]) -> tuple[list[int], list[int]]:
    """The rows with too much load, and those with room left."""
    left = [most - n for n, most in zip(load, room, strict=True)]
    return [k for k, n in enumerate(left) if n < 0], [k for k, n in enumerate(left) if n > 0]


Move = tuple[
    Sequence[tuple[Place, Place]], Callable[[], None]
]  # where sends are and where they would be, and what makes it so


class _Moves:
    """Proposals, each for one chunk; None where what was drawn makes no right schedule."""

    def __init__(self, network: Network, steps: int, seed: int) -> None:
        self.random = random.Random(seed).random
        self.steps, self.ranks = steps, network.ranks
        self.src, self.dst = [r.src for r in network.routes], [r.dst for r in network.routes]
        self.out, self.into = network.out, network.into
        self.route = {(r.src, r.dst): i for i, r in enumerate(network.routes)}

    def _one(self, options: Sequence) -> int:
        return options[int(self.random() * len(options))]

    def away(self, chunk: Chunk, places: Sequence[Place]) -> Move | None:
        """A send at one of `places` goes elsewhere."""
        found = [(n, True) for n, place in chunk.up.items() if place in places]
        found += [(n, False) for n, place in chunk.down.items() if place in places]
        if not found:
            return self.hubs(chunk)
        n, rises = found[int(self.random() * len(found))]
        return (
            self.up(chunk, n, self._one(self.out[n]), 0) if rises else self.down(chunk, n, self._one(self.into[n]), 0)
        )

    def onto(self, chunk: Chunk, place: Place) -> Move | None:
        """Some send goes to `place`."""
        step, route = place
        if self.random() < 0.5:
            return self.up(chunk, self.src[route], route, step)
        return self.down(chunk, self.dst[route], route, step)

    def any(self, chunk: Chunk) -> Move | None:
        """Whatever comes up."""
        n, drawn = int(self.random() * self.ranks), self.random()
        if drawn < HUBS:
            return self.hubs(chunk)
        return (
            self.up(chunk, n, self._one(self.out[n]), 0)
            if self.random() < 0.5
            else self.down(chunk, n, self._one(self.into[n]), 0)
        )

    def up(self, chunk: Chunk, n: int, route: int, step: int) -> Move | None:
        """Rank n passes its sum on over another route or at another step, at any that is right where `step` is 0."""
        up, dst = chunk.up, self.dst
        if n not in up:
            return None
        onto = at = dst[route]
        while at in up:
            if at == n:
                return None  # it comes from there
            at = dst[up[at][1]]
        low = 1 + max((step for step, i in up.values() if dst[i] == n), default=0)
        high = up[onto][0] - 1 if onto in up else self._full(chunk, onto)
        step = step or low + int(self.random() * (high - low + 1))
        place = (step, route)
        return (
            None if not low <= step <= high or place == up[n] else (((up[n], place),), lambda: up.__setitem__(n, place))
        )

    def down(self, chunk: Chunk, n: int, route: int, step: int) -> Move | None:
        """Rank n receives the total over another route or at another step, as `up`."""
        down, src = chunk.down, self.src
        if n not in down:
            return None
        of = at = src[route]
        while at in down:
            if at == n:
                return None
            at = src[down[at][1]]
        high = min((step for step, i in down.values() if src[i] == n), default=self.steps + 1) - 1
        low = 1 + (down[of][0] if of in down else chunk.swap or self._summed(chunk, of))
        step = step or low + int(self.random() * (high - low + 1))
        place = (step, route)
        return (
            None
            if not low <= step <= high or place == down[n]
            else (((down[n], place),), lambda: down.__setitem__(n, place))
        )

    def _summed(self, chunk: Chunk, hub: int) -> int:
        """The step after which a hub has what others send up to it."""
        return max((step for step, i in chunk.up.values() if self.dst[i] == hub), default=0)

    def _full(self, chunk: Chunk, hub: int) -> int:
        """The last step at which something may still come up to a hub."""
        return chunk.swap - 1 if chunk.swap else self._spread(chunk, hub) - 1

    def _spread(self, chunk: Chunk, hub: int) -> int:
        """The step at which a hub first sends the total down."""
        return min((step for step, i in chunk.down.values() if self.src[i] == hub), default=self.steps + 1)

    def hubs(self, chunk: Chunk) -> Move | None:
        """The last rank to reach a hub becomes one too, and they swap; or the other way round; or they swap at another
        step."""
        if not chunk.swap:
            return self._join(chunk)
        return self._part(chunk) if self.random() < 0.5 else self._shift(chunk)

    def _join(self, chunk: Chunk) -> Move | None:
        hub = chunk.hubs[0]
        swap = self._summed(chunk, hub)
        last = [n for n, (step, i) in chunk.up.items() if step == swap and self.dst[i] == hub]
        if len(last) != 1 or self.src[chunk.down[last[0]][1]] != hub:
            return None
        other = last[0]
        step, route = chunk.down[other]

        def commit() -> None:
            del chunk.up[other], chunk.down[other]
            chunk.hubs, chunk.swap = (hub, other), swap

        return (((step, route), (swap, route)),), commit

    def _part(self, chunk: Chunk) -> Move | None:
        hub, other = chunk.hubs if self.random() < 0.5 else chunk.hubs[::-1]
        later = self._spread(chunk, other) - 1 - chunk.swap
        if later < 1:
            return None
        swap, there, back = chunk.swap, self.route[hub, other], self.route[other, hub]
        step = swap + 1 + int(self.random() * later)

        def commit() -> None:
            chunk.up[other], chunk.down[other] = (swap, back), (step, there)
            chunk.hubs, chunk.swap = (hub,), 0

        return (((swap, there), (step, there)),), commit

    def _shift(self, chunk: Chunk) -> Move | None:
        a, b = chunk.hubs
        low = max(self._summed(chunk, a), self._summed(chunk, b)) + 1
        high = min(self._spread(chunk, a), self._spread(chunk, b)) - 1
        step, swap = low + int(self.random() * (high - low + 1)), chunk.swap
        if step == swap:
            return None

        def commit() -> None:
            chunk.swap = step

        return tuple(((swap, self.route[pair]), (step, self.route[pair])) for pair in ((a, b), (b, a))), commit
