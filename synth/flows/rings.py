"""What NCCL would run on the same links: rings, and double binary trees.

A ring is a directed Hamiltonian cycle over links that are there (NCCL makes no ring through a rank that does not take
part). One ring of capacity c runs a broadcast at c units, an allgather at c N/(N-1), an allreduce at c N/(2(N-1)).
Double binary trees are NCCL's (src/graph/trees.cc: tree k's parent of a rank flips its lowest set bit; the second tree
is the first shifted by one rank, or mirrored when N is even), each for half of the data; a tree edge without a link of
its own takes a shortest way over others.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from random import Random

from synth.topology import Network

# Steps of the depth-first walks for cycles: all cycles of sparse boxes of 8 take a few hundred.
STEPS = 20_000
RESTARTS = 40
# More cycles than this make the integer program slow and do not help: boxes where all ranks are joined have very many.
COLUMNS = 600


@dataclass(frozen=True)
class Rings:
    """`rings`: ((rank, rank, ..), units): cycles that fit the links together. `most`: proved that no others carry more."""

    rings: tuple[tuple[tuple[int, ...], int], ...]
    most: bool

    @property
    def units(self) -> int:
        """Of all rings together."""
        return sum(units for _, units in self.rings)


def disjoint(network: Network) -> Rings:
    """The most that rings carry together: a small integer program over all cycles, or over many where they are too many to list."""
    cycles, every = _cycles(network, 1)
    if not cycles:
        return Rings((), every)
    import numpy as np
    from scipy.optimize import Bounds, LinearConstraint, milp

    pairs = {pair: k for k, pair in enumerate(sorted({(r.src, r.dst) for r in network.routes}))}
    rows = np.zeros((len(pairs) + len(network.caps), len(cycles)))
    for c, ring in enumerate(cycles):
        for pair in _hops(ring):
            rows[pairs[pair], c] += 1
    room = np.zeros(len(rows))
    for r in network.routes:
        room[pairs[r.src, r.dst]] += r.units
    for k, cap in enumerate(network.caps, len(pairs)):
        # parallel routes of a pair may differ in their caps: a ring is then charged for all of them, which is safe
        rows[k] = rows[[pairs[pair] for pair in sorted({(network.routes[i].src, network.routes[i].dst) for i in cap.routes})]].sum(axis=0)
        room[k] = cap.units
    fits = LinearConstraint(rows, -np.inf, room)  # type: ignore[arg-type]
    found = milp(-np.ones(len(cycles)), integrality=np.ones(len(cycles)), bounds=Bounds(0), constraints=fits)
    times = np.rint(found.x).astype(int) if found.x is not None else np.zeros(len(cycles), int)
    total = int(times.sum())
    rings = tuple((cycles[c], int(n)) for c, n in enumerate(times) if n)
    return Rings(rings, (every and found.status == 0) or total == _degrees(network))


def widest(network: Network) -> int:
    """Units of the one ring whose least link is the widest; 0 where none was found."""
    return max((units for units in {r.units for r in network.routes} if _cycles(network, units, 1)[0]), default=0)


def _hops(ring: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    return zip(ring, (*ring[1:], ring[0]), strict=True)


def _degrees(network: Network) -> int:
    """No rings carry more together than the scarcest rank's links out or in."""
    out, into = Counter(), Counter()
    for r in network.routes:
        out[r.src] += r.units
        into[r.dst] += r.units
    for cap in network.caps:
        for degree, ends, mine in ((out, network.out, "src"), (into, network.into, "dst")):
            ranks = {getattr(network.routes[i], mine) for i in cap.routes}
            for n in ranks:
                if set(ends[n]) <= set(cap.routes) and len(ranks) == 1:
                    degree[n] = min(degree[n], cap.units)
    return min(min(out[n], into[n]) for n in range(network.ranks))


def _cycles(network: Network, units: int, enough: int = COLUMNS) -> tuple[list[tuple[int, ...]], bool]:
    """Hamiltonian cycles over pairs of at least `units`, and whether these are all."""
    room: Counter[tuple[int, int]] = Counter()
    for r in network.routes:
        room[r.src, r.dst] += r.units
    peers = [sorted(b for (a, b), n in room.items() if a == rank and n >= units) for rank in range(network.ranks)]
    found: dict[tuple[int, ...], None] = {}
    if _walk(peers, found, STEPS, enough):
        return sorted(found), True
    # too many: a few from each of many random orders differ more than the first ones of one order
    found, shuffle = {}, Random(0)
    for k in range(RESTARTS):
        for rank, row in enumerate(peers):
            shuffle.shuffle(row)
            if k % 2 == 0:  # wide links first: a ring that stays in a box as long as it can
                row.sort(key=lambda b: -room[rank, b])
        _walk(peers, found, STEPS // RESTARTS, min(enough, (k + 1) * -(-enough // RESTARTS)))
    return sorted(found), False


def _walk(peers: list[list[int]], found: dict[tuple[int, ...], None], steps: int, enough: int) -> bool:
    """Adds cycles through rank 0 to `found`, depth first in the order of `peers`; whether the walk came to its end."""
    path, seen, waiting = [0], {0}, [iter(peers[0])]
    while waiting:
        steps -= 1
        if steps < 0 or len(found) >= enough:
            return False
        step = next((b for b in waiting[-1] if b not in seen), None)
        if step is None:
            waiting.pop()
            seen.discard(path.pop())
            continue
        path.append(step)
        seen.add(step)
        if len(path) == len(peers):
            if 0 in peers[step]:
                found[tuple(path)] = None
            seen.discard(path.pop())
        else:
            waiting.append(iter(peers[step]))
    return True


def binary_trees(ranks: int) -> tuple[tuple[int | None, ...], tuple[int | None, ...]]:
    """NCCL's two trees: the parent of each rank, None for the root."""
    first = tuple(_parent(ranks, r) for r in range(ranks))
    if ranks % 2 == 0:  # mirrored
        second = tuple(None if (p := first[ranks - 1 - r]) is None else ranks - 1 - p for r in range(ranks))
    else:  # shifted by one
        second = tuple(None if (p := first[(r - 1) % ranks]) is None else (p + 1) % ranks for r in range(ranks))
    return first, second


def _parent(ranks: int, rank: int) -> int | None:
    if rank == 0:
        return None
    bit = rank & -rank
    up = (rank ^ bit) | (bit << 1)
    return rank ^ bit if up >= ranks else up


def tree_rate(network: Network, *, up: bool, down: bool) -> Fraction:
    """Units of algorithmic bandwidth of the double binary trees: reduced up, broadcast down, or both at once. 0: not connected."""
    load: Counter[tuple[int, int]] = Counter()
    for parents in binary_trees(network.ranks):
        for child, parent in enumerate(parents):
            if parent is None:
                continue
            for wanted, a, b in ((up, child, parent), (down, parent, child)):
                way = _way(network, a, b) if wanted else ()
                if way is None:
                    return Fraction(0)
                for hop in way:
                    load[hop] += 1
    units: Counter[tuple[int, int]] = Counter()
    for r in network.routes:
        units[r.src, r.dst] += r.units
    rates = [Fraction(2 * units[pair], n) for pair, n in load.items()]
    for cap in network.caps:
        pairs = {(network.routes[i].src, network.routes[i].dst) for i in cap.routes}
        total = sum(n for pair, n in load.items() if pair in pairs)
        if total:
            rates.append(Fraction(2 * cap.units, total))
    return min(rates)


def _way(network: Network, a: int, b: int) -> tuple[tuple[int, int], ...] | None:
    """The pairs along a shortest way from a to b; the widest first link among equals."""
    before: dict[int, int] = {a: a}
    queue = deque([a])
    while queue and b not in before:
        u = queue.popleft()
        for i in sorted(network.out[u], key=lambda i: (-network.routes[i].units, network.routes[i].dst)):
            v = network.routes[i].dst
            if v not in before:
                before[v] = u
                queue.append(v)
    if b not in before:
        return None
    way = []
    while b != a:
        way.append((before[b], b))
        b = before[b]
    return tuple(reversed(way))
