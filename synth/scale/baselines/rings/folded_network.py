"""What rings are searched over: hops between nodes, on a machine as it is or folded by a symmetry of it.

Folded: a permutation of the ranks that moves all of them in turns of one length B makes N / B nodes out of N ranks. A
hop of the folded machine stands for B hops, one after the other turned on; a closed walk through all nodes stands for a
ring through all ranks if the turns that it makes add up to a number prime to B. That is how rings of 1024 ranks are
found on one box. What the folding promises is not believed: rings are unfolded and checked link by link
(`synth.scale.baselines.rings.check`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from synth.scale.baselines.rings.ring_network import Roads

# Hops up to which all are kept; of more, those that turn by little; and how many are too many.
MOST_HOPS, MOST_SEARCHED = 3_000, 24_000
# Permutations that are made of the declared ones, and how many that fold to equally many nodes are looked at.
POOL = 200
ALIKE = 2
# Links from which one of each size has to do.
MANY = 100_000


@dataclass(frozen=True, eq=False)
class Hops:
    """Hop h goes from node `src[h]` to node `dst[h]`, turns by `turn[h]` of `order`, and takes `uses[h]`: (resource,
    times).

    `room[k]`: units of resource k. `link[h]`: the link that the hop is at position 0. `rank[node][position]`: who is
    there.
    """

    nodes: int
    order: int
    src: tuple[int, ...]
    dst: tuple[int, ...]
    turn: tuple[int, ...]
    uses: tuple[tuple[tuple[int, int], ...], ...]
    room: tuple[int, ...]
    link: tuple[int, ...]
    rank: np.ndarray

    @cached_property
    def counted(self) -> dict[tuple[int, int, int, int], tuple[int, list[int]]]:
        """Answers of `synth.scale.baselines.rings.permutation_layers.most` so far."""
        return {}

    @cached_property
    def narrowest(self) -> tuple[np.ndarray, np.ndarray]:
        """Of each hop the resource that it fits into least often, and how often it takes that."""
        rows = [min(uses, key=lambda use: self.room[use[0]] // use[1]) for uses in self.uses]
        k, times = np.array(rows, np.int64).reshape(-1, 2).T
        return k, times

    def unfold(self, ring: Sequence[int]) -> np.ndarray:
        """The ranks that a closed walk of hops stands for, in the order of the ring."""
        node = np.array([self.src[h] for h in ring])
        before = np.concatenate([[0], np.cumsum([self.turn[h] for h in ring])])
        position = (before[None, :-1] + before[-1] * np.arange(self.order)[:, None]) % self.order
        return self.rank[np.broadcast_to(node, position.shape), position].reshape(-1)


def plain(roads: Roads) -> Hops | None:
    """The machine as it is; None where it has more links than a search goes through."""
    live = np.flatnonzero(roads.units)
    if len(live) > MOST_HOPS and roads.parallel:  # one link of each pair has to do, another one for each
        order = roads.order[np.isin(roads.order, live)]
        pair = (roads.src * roads.ranks + roads.dst)[order]
        _, start, many = np.unique(pair, return_index=True, return_counts=True)
        live = np.sort(order[start + (roads.src[order[start]] + roads.dst[order[start]]) % many])
    if len(live) > MOST_SEARCHED:
        return None
    return _hops(
        roads,
        live,
        np.zeros(len(live), np.int64),
        np.arange(roads.ranks)[:, None],
        [(k, 1) for k in range(len(roads.members))],
    )


def folded(roads: Roads) -> Iterator[Hops]:
    """The machine folded by its declared symmetries and their products, the most folded first, a few of each size."""
    if roads.parallel:  # which of several links between two ranks a symmetry means is not declared
        return
    made: dict[int, set[int]] = {}
    for order, pi in _folds(roads):
        alike = made.setdefault(roads.ranks // order, set())
        if len(alike) < (ALIKE if len(roads.src) < MANY else 1):
            hops = _fold(roads, pi, order, alike)
            if hops is not None:
                alike.add(len(hops.src))
                yield hops


def _folds(roads: Roads) -> list[tuple[int, np.ndarray]]:
    """Permutations all of whose turns are equally long, with that length, the longest first."""
    given = [np.array(pi, np.int64) for pi in roads.generators]
    pool, known = list(given), {pi.tobytes() for pi in given}
    at = 0
    while at < len(pool) and len(pool) < POOL:
        for pi in given:
            made = pi[pool[at]]
            if made.tobytes() not in known and len(pool) < POOL:
                known.add(made.tobytes())
                pool.append(made)
        at += 1
    found = [(order, k) for k, pi in enumerate(pool) if (order := _order(pi)) > 1]
    return [(order, pool[k]) for order, k in sorted(found, key=lambda row: (-row[0], row[1]))]


def _order(pi: np.ndarray) -> int:
    """The length of the turns where all are equally long, else 0."""
    order, at = 1, int(pi[0])
    while at:
        at = int(pi[at])
        order += 1
    home = np.arange(len(pi))
    if (_power(pi, order) != home).any():
        return 0
    shorter = (order // p for p in range(2, order + 1) if order % p == 0 and all(p % q for q in range(2, p)))
    return order if all((_power(pi, n) != home).all() for n in shorter) else 0


def _power(pi: np.ndarray, n: int) -> np.ndarray:
    made = np.arange(len(pi))
    while n:
        made = pi[made] if n & 1 else made
        pi, n = pi[pi], n >> 1
    return made


def _fold(roads: Roads, pi: np.ndarray, order: int, known: set[int]) -> Hops | None:
    """None where that is no symmetry, and for numbers of hops that are too many or `known`."""
    rank = np.empty((len(pi) // order, order), np.int64)
    left = np.ones(len(pi), bool)
    for node in range(len(rank)):
        at = int(np.argmax(left))
        for p in range(order):
            rank[node, p] = at
            left[at] = False
            at = int(pi[at])
    image = roads.find(pi[roads.src], pi[roads.dst])
    if (image < 0).any() or (roads.units[image] != roads.units).any():
        return None
    turned = _limit_turns(roads, image)
    if turned is None:
        return None
    node, position = np.empty(len(pi), np.int64), np.empty(len(pi), np.int64)
    node[rank] = np.arange(len(rank))[:, None]
    position[rank] = np.arange(order)
    links = np.flatnonzero((position[roads.src] == 0) & (roads.units > 0))
    turns = (position[roads.dst[links]]) % order
    own = node[roads.src[links]] == node[roads.dst[links]]
    keep = ~own if len(rank) > 1 else own
    links, turns = links[keep], turns[keep]
    if len(links) > MOST_HOPS:
        short = np.minimum(turns, order - turns)
        most = max(2, MOST_HOPS // len(rank) ** 2 // 2)
        links, turns = links[short <= most], turns[short <= most]
    if len(links) > MOST_SEARCHED or len(links) in known:
        return None
    return _hops(roads, links, turns, rank, turned, node, order)


def _limit_turns(roads: Roads, image: np.ndarray) -> list[tuple[int, int]] | None:
    """For each limit the least limit that it can be turned to, and how often the turns bring it there; None: not all
    have images."""
    if not roads.members:
        return []
    links = np.concatenate(roads.members)
    start = np.cumsum([0, *(len(m) for m in roads.members[:-1])])
    # a set of links by the sum of their marks: sets that share one by chance would be found out when the rings are
    # checked
    mark = np.random.default_rng(0).integers(1 << 62, size=len(roads.src), dtype=np.uint64)
    before, after = (np.add.reduceat(mark[which], start).tolist() for which in (links, image[links]))
    room = roads.room.tolist()
    names = {key: k for k, key in enumerate(zip(before, room, strict=True))}
    moved = [names.get(key) for key in zip(after, room, strict=True)]
    found: list[tuple[int, int] | None] = [None] * len(moved)
    for k in range(len(moved)):
        if found[k] is None:
            turn, at = [k], moved[k]
            while at is not None and at != k and len(turn) <= len(moved):
                turn.append(at)
                at = moved[at]
            if at != k:
                return None
            for member in turn:
                found[member] = (k, len(turn))
    return [pair for pair in found if pair is not None]


def _hops(
    roads: Roads, links: np.ndarray, turns: np.ndarray, rank: np.ndarray, limits: Sequence[tuple[int, int]],
    node: np.ndarray | None = None, order: int = 1,
) -> Hops:  # fmt: skip
    """Hops of `links`. A limit of (turned to, length of its turn) is taken order / length times by each link in it."""
    node = np.arange(roads.ranks) if node is None else node
    first, which = roads.limits
    room: list[int] = []
    number: dict[int, int] = {}
    uses = []
    for link in links.tolist():
        mine: dict[int, int] = {}
        units = int(roads.units[link])
        for k in which[first[link] : first[link + 1]].tolist():
            least, length = limits[k]
            if least not in number:
                number[least] = len(room)
                room.append(int(roads.room[least]))
            mine[number[least]] = mine.get(number[least], 0) + order // length
        if not any(room[k] // times <= units for k, times in mine.items()):
            mine[len(room)] = 1
            room.append(units)
        uses.append(tuple(mine.items()))
    src, dst = (tuple(node[e[links]].tolist()) for e in (roads.src, roads.dst))
    return Hops(
        len(rank), order, src, dst, tuple(turns.tolist()), tuple(uses), tuple(room), tuple(links.tolist()), rank
    )
