"""Rings side by side: as many permutations as rings are wanted, that fit together, and then a search that joins their
cycles.

First an integer program says how often each hop is taken when every node is left and entered as often as there are
rings; those hops fall into so many permutations (König). Then moves that keep everything within the links' room: two
permutations exchange the hops of an alternating cycle (a Kempe chain), or one permutation takes other hops along an
alternating path. A move that leaves fewer cycles is taken, one that leaves more sometimes (simulated annealing, in a
fixed pseudo-random order).
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np

from synth.scale.baselines.rings.folded_network import Hops
from synth.scale.baselines.rings.kempe_annealing import Layer, Search
from synth.solvers.highs import integer
from synth.solvers.processes.deadline import check, left

# Seconds that one of its programs may take; few take more than a tenth of one.
PATIENCE = 10.0
# Times that the program is told of a set of nodes that its hops do not leave.
MOST_CUTS = 12
# Hops from which the program is made of a part of them first, and how many for each that is wanted.
MANY, SPARE = 4_000, 3.0


def most(hops: Hops, wanted: int, width: int, seed: int = 0, often: int | None = None) -> tuple[int, list[int]]:
    """Rings of `width` units, `wanted` at most, as far as degrees and room go, and how often each hop is then taken.

    `often`: no hop more often than that.
    """
    wanted = min(wanted, _ports(hops, width, wanted if often is None else often))
    if not wanted:
        return 0, []
    key = wanted, width, seed, often or wanted
    if key not in hops.counted:
        hops.counted[key] = _all_or_part(hops, wanted, width, seed, often)
    return hops.counted[key]


def fitting(hops: Hops, wanted: int, width: int) -> int:
    """As many rings as `most` says. Where all may fit, hops are first taken as seldom as `rings` will take them."""
    often = _seldom(hops, wanted, width)
    if often < wanted <= _ports(hops, width, wanted) and most(hops, wanted, width, often=often)[0] == wanted:
        return wanted
    return most(hops, wanted, width)[0]


def _seldom(hops: Hops, wanted: int, width: int) -> int:
    """How often hops must be taken at least, as far as ports tell: layers that differ leave a search more to
    exchange."""
    often = min(wanted, -(-2 * wanted // hops.nodes))
    while often < wanted and _ports(hops, width, often) < wanted:
        often = min(wanted, 2 * often)
    return often


def _all_or_part(hops: Hops, wanted: int, width: int, seed: int, often: int | None) -> tuple[int, list[int]]:
    share = SPARE * wanted * hops.nodes / max(1, len(hops.src))
    if len(hops.src) > MANY and share < 0.7:  # a part of very many hops may have room for all
        part = np.flatnonzero(np.random.default_rng(seed).random(len(hops.src)) < share).tolist()
        count, times = _most(_only(hops, part), wanted, width, seed, often)
        if count == wanted:
            every = np.zeros(len(hops.src), int)
            every[part] = times
            return count, every.tolist()
    return _most(hops, wanted, width, seed, often)


def _ports(hops: Hops, width: int, often: int) -> int:
    """How many rings at most leave and enter every node, each hop taken `often` at most: hops that share a resource
    share its room."""
    if not hops.src:
        return 0
    room, (k, times) = np.array(hops.room, np.int64) // width, hops.narrowest
    much = np.minimum(often, room[k] // times)
    least = []
    for ends in (hops.src, hops.dst):
        pairs, which = np.unique(np.array(ends) * len(room) + k, return_inverse=True)
        total, through = np.zeros(len(pairs), np.int64), np.zeros(hops.nodes, np.int64)
        np.add.at(total, which, much)
        np.add.at(through, pairs // len(room), np.minimum(total, room[pairs % len(room)]))
        least.append(int(through.min()))
    return min(least)


def _only(hops: Hops, part: list[int]) -> Hops:
    src, dst, turn, uses, link = (
        [row[h] for h in part] for row in (hops.src, hops.dst, hops.turn, hops.uses, hops.link)
    )
    return replace(hops, src=tuple(src), dst=tuple(dst), turn=tuple(turn), uses=tuple(uses), link=tuple(link))


def _most(hops: Hops, wanted: int, width: int, seed: int, often: int | None) -> tuple[int, list[int]]:
    from scipy.sparse import csr_matrix

    count, n = len(hops.src), hops.nodes
    if not count:
        return 0, []
    room = [units // width for units in hops.room]
    rows, columns, values = [], [], []
    for h in range(count):
        rows += [hops.src[h], n + hops.dst[h], *(2 * n + k for k, _ in hops.uses[h])]
        columns += [h] * (2 + len(hops.uses[h]))
        values += [1, 1, *(times for _, times in hops.uses[h])]
    rows += range(2 * n)
    columns += [count] * (2 * n)
    values += [-1] * (2 * n)
    low, high = [0.0] * (2 * n) + [-np.inf] * len(room), [0.0] * (2 * n) + [float(units) for units in room]
    sides = [np.array(hops.turn) != 0] if hops.order > 1 else []
    shake = np.append(np.random.default_rng(seed).random(count) / (4 * count * max(1, wanted)), -1.0)
    src, dst = np.array(hops.src), np.array(hops.dst)
    # near enough that no ring is given away; which of equal answers is the first by the random costs does not matter
    options = {
        "node_limit": 50,
        "time_limit": PATIENCE if (time := left()) is None else min(PATIENCE, max(time, 0.01)),
        "mip_rel_gap": 0.4 / wanted if wanted else 0.4,
    }
    answer: tuple[int, list[int]] = 0, []
    for _ in range(MOST_CUTS):
        check()
        more = [(len(low) + c, h, 1) for c, side in enumerate(sides) for h in np.flatnonzero(side).tolist()]
        more += [(len(low) + c, count, -1) for c in range(len(sides))]
        cells = np.array([*zip(rows, columns, values, strict=True), *more])
        matrix = csr_matrix(
            (cells[:, 2].astype(float), (cells[:, 0], cells[:, 1])), shape=(len(low) + len(sides), count + 1)
        )
        fits = matrix, np.array([*low, *[0.0] * len(sides)]), np.array([*high, *[np.inf] * len(sides)])
        upper = np.append(np.full(count, float(often or wanted)), float(wanted))
        found = integer(shake, [fits], upper, **options)
        if found.x is None or round(found.x[-1]) < 1:
            return answer if found.x is None else (0, [])
        times = np.rint(found.x[:-1]).astype(int)
        answer = round(found.x[-1]), times.tolist()
        apart = _apart(n, src[times > 0], dst[times > 0])
        if apart is None:
            break
        sides += [apart[src] & ~apart[dst]]
    return answer


def _apart(n: int, src: np.ndarray, dst: np.ndarray) -> np.ndarray | None:
    """Nodes that the hops do not leave, None where the hops connect all; as many hops enter a node as leave it."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    parts, label = connected_components(coo_matrix((np.ones(len(src)), (src, dst)), shape=(n, n)), directed=False)
    return None if parts == 1 else label == np.argmin(np.bincount(label))


def rings(hops: Hops, wanted: int, width: int, steps: int, seed: int = 0) -> list[Layer]:
    """Up to `wanted` rings of `width` units each that fit together: each a list of hops, closed, through all nodes."""
    often = _seldom(hops, wanted, width)
    count, times = most(hops, wanted, width, seed, often)
    while (
        count < wanted and often < wanted
    ):  # layers that differ leave the search more to exchange than a few, each many times over
        often = min(wanted, 2 * often)
        count, times = most(hops, wanted, width, seed, often)
    if not count:
        return []
    search = Search(hops, width, _layers(hops, times, count, seed), Random(seed))
    search.run(steps)
    return [search.ring(i) for i in range(count) if not search.energy[i]]


def _layers(hops: Hops, times: list[int], count: int, seed: int) -> list[Layer]:
    """The hops in `count` permutations: layer[u] is the hop out of u."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import maximum_bipartite_matching

    n, shuffle = hops.nodes, Random(seed)
    left: dict[tuple[int, int], list[int]] = {}
    for h, much in enumerate(times):
        if much:
            left.setdefault((hops.src[h], hops.dst[h]), []).extend([h] * much)
    for row in left.values():
        shuffle.shuffle(row)
    made = []
    for _ in range(count):
        name = list(range(n))
        shuffle.shuffle(name)
        pairs = [(u, name[v]) for u, v in left]
        matrix = csr_matrix((np.ones(len(pairs)), tuple(zip(*pairs, strict=True))), shape=(n, n))
        real = {name[v]: v for v in range(n)}
        layer = []
        for u, v in enumerate(maximum_bipartite_matching(matrix, "column").tolist()):
            pair = (u, real[v])
            layer.append(left[pair].pop())
            if not left[pair]:
                del left[pair]
        made.append(layer)
    return made
