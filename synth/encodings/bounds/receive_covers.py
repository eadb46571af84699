"""Cover inequalities on receives: a chunk must arrive several times where no single neighbour can know enough, which
flows do not see.

A rank that wants many contributions and receives, after step `time`, from one neighbour only, ends with the
contributions within distance `time` and those that the neighbour can know by the step before the last. If that leaves
a contribution out, the rank receives at least twice after `time`, and so on. For sends the same holds reversed in time.
The least sufficient number of neighbours is found by trying all small sets of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from synth.encodings.bounds.demands import Demand
from synth.model.topology import Network

# Greatest number of sends that a cover requires; sets of that many neighbours are not tried.
MOST_SENDS = 4


class Cover(NamedTuple):
    """At least `sends` sends of each chunk go into `rank` after step `time` ("in"), or leave it by step `time`
    ("out")."""

    side: str
    rank: int
    time: int
    sends: int


def covered_sends(network: Network, cover: Cover, steps: int) -> list[tuple[int, int]]:
    """Return the (route, step) pairs whose sends the cover counts."""
    if cover.side == "in":
        return [(i, t) for i in network.into[cover.rank] for t in range(cover.time + 1, steps + 1)]
    return [(i, t) for i in network.out[cover.rank] for t in range(1, cover.time + 1)]


def covers(network: Network, demands: Sequence[Demand], steps: int) -> list[Cover]:
    """Return the covers of one unit that require two sends or more, each for the fewest steps in which it holds.

    `demands`: those of the unit; the ones with several sources are ignored. `steps`: number of steps.
    """
    back = network.reversed()
    far = [network.distances_from([n]) for n in range(network.ranks)]
    result: list[Cover] = []
    for rank in sorted({d.dst for d in demands}):
        sources = [min(d.sources) for d in demands if d.dst == rank and len(d.sources) == 1]
        near: dict[int, list[int | None]] = {}
        for b in {network.routes[i].src for i in network.into[rank]}:
            near[b] = [far[i][b] for i in sources]
        result += _side("in", rank, [far[i][rank] for i in sources], near, steps)
    for rank in sorted({min(d.sources) for d in demands if len(d.sources) == 1}):
        ends = [d.dst for d in demands if d.sources == {rank}]
        near = {}
        for b in {back.routes[i].src for i in back.into[rank]}:
            near[b] = [far[b][d] for d in ends]
        result += _side("out", rank, [far[rank][d] for d in ends], near, steps)
    return result


def _side(side: str, rank: int, own: list[int | None], near: dict[int, list[int | None]], steps: int) -> list[Cover]:
    brings = sorted({_mask(row, steps - 1) for row in near.values()}, reverse=True)
    found: list[Cover] = []
    for idle in range(steps):
        needs = _mask([0] * len(own), 0) & ~_mask(own, idle)
        sends = _least(needs, brings)
        if sends < 2:
            break
        narrowest = Cover(side, rank, idle if side == "in" else steps - idle, sends)
        if found and found[-1].sends == sends:
            found.pop()
        found.append(narrowest)
    return found


def _mask(hops: Sequence[int | None], within: int) -> int:
    return sum(1 << k for k, d in enumerate(hops) if d is not None and d <= within)


def _least(needs: int, brings: Sequence[int]) -> int:
    """Return the least number of sets of `brings` whose union contains `needs`, at most `MOST_SENDS`."""
    for size in range(MOST_SENDS):
        for some in combinations(brings, size):
            union = 0
            for mask in some:
                union |= mask
            if not needs & ~union:
                return size
    return MOST_SENDS
