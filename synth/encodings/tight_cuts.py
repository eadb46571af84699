"""Cuts that a schedule of (C, S, R) must use to the full: redundant constraints that make tight instances easy.

A cut is a set of ranks W. Every chunk that no rank of W holds and some rank of W needs must enter W; what enters in R
rounds is at most R times the bandwidth into W. Where the two are equal every route into W is full at every step, each
of those chunks enters exactly once, and no other chunk enters at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from operator import add, sub

from synth.model.collective import Collective
from synth.model.schedule import Problem
from synth.model.topology import Cap, Network

ALL_SUBSETS = 8  # ranks up to which every set of ranks is tried; above, single ranks and their complements


def tight_cuts(problem: Problem) -> list[frozenset[int]]:
    """The cuts of `problem` without slack. Empty too where a cut shows the problem infeasible: the solver will find
    out."""
    net, coll, chunks, rounds = problem.network, problem.collective, problem.chunks, problem.rounds
    cuts, capped = [], bool(net.caps)
    for w, need, room in _every_cut(net, coll) if net.ranks <= ALL_SUBSETS else _small_cuts(net, coll):
        if need and (capped or need * chunks >= room * rounds):
            slack = _capped(net, w, room) * rounds - need * chunks if capped else room * rounds - need * chunks
            if slack < 0:
                return []
            if not slack:
                cuts.append(w)
    return [frozenset(n for n in range(net.ranks) if w >> n & 1) for w in cuts]


def full_wires(net: Network, cuts: list[frozenset[int]]) -> tuple[set[int], set[int]]:
    """Routes, and caps, that tight cuts make full at every step."""
    routes: set[int] = set()
    caps: set[int] = set()
    for cut in cuts:
        entering = {i for i, r in enumerate(net.routes) if r.dst in cut and r.src not in cut}
        whole = sum(net.routes[i].units for i in entering)
        through = [_through(cap, entering) for cap in net.caps]
        room = min([whole, *(most for most in through if most is not None)])
        if room == whole:
            routes |= entering
        caps |= {k for k, cap in enumerate(net.caps) if through[k] == room and set(cap.routes) == entering}
    return routes, caps


def _every_cut(net: Network, coll: Collective) -> Iterable[tuple[int, int, int]]:
    """Each set of ranks as a bit mask, with the units of data that must enter it and the bandwidth into it.

    Sets grow by one rank at a time: what enters w and v is what enters w and what enters v, less what goes between
    them.
    """
    into = [0] * net.ranks
    between = [[0] * net.ranks for _ in range(net.ranks)]
    for r in net.routes:
        if r.src == r.dst:
            continue
        into[r.dst] += r.units
        between[r.src][r.dst] += r.units
        between[r.dst][r.src] += r.units
    rooms = [0]
    for v in range(net.ranks):
        inner = [0]
        for u in range(v):
            more = between[v][u]
            inner += [x + more for x in inner]
        enters = into[v]
        rooms += map(sub, [room + enters for room in rooms], inner)
    everyone = len(rooms) - 1
    outside = [0] * len(rooms)  # of each set: units with no holder outside it
    apart = [0] * len(rooms)  # units that nobody outside it holds or needs
    for pre, post in zip(coll.pre, coll.post, strict=True):
        if not post <= pre:
            outside[_mask(pre)] += 1
            apart[_mask(pre | post)] += 1
    _over_subsets(outside, net.ranks)
    _over_subsets(apart, net.ranks)
    needs = list(map(sub, outside, apart))  # of the complement of each set
    return zip(range(1, everyone), needs[-2:0:-1], rooms[1:], strict=False)


def _over_subsets(sums: list[int], ranks: int) -> None:
    """Replaces each entry by the sum over the subsets of its index; in few, long slices, for speed."""
    for n in range(ranks):
        bit, size = 1 << n, len(sums)
        if bit * bit < size:
            for with_, without in ((slice(bit + j, size, 2 * bit), slice(j, size, 2 * bit)) for j in range(bit)):
                sums[with_] = map(add, sums[with_], sums[without])
        else:
            for start in range(bit, size, 2 * bit):
                sums[start : start + bit] = map(add, sums[start : start + bit], sums[start - bit : start])


def _small_cuts(net: Network, coll: Collective) -> Iterable[tuple[int, int, int]]:
    """As `_every_cut`, for single ranks and their complements."""
    into, out = [0] * net.ranks, [0] * net.ranks
    for r in net.routes:
        if r.src != r.dst:
            into[r.dst] += r.units
            out[r.src] += r.units
    everyone = (1 << net.ranks) - 1
    entering, leaving = [0] * net.ranks, [0] * net.ranks
    for pre, post in zip(coll.pre, coll.post, strict=True):
        for n in post - pre:
            entering[n] += 1
        if len(pre) == 1 and post - pre:
            leaving[next(iter(pre))] += 1
    rows = [(1 << n, entering[n], into[n]) for n in range(net.ranks)]
    return rows + [(everyone ^ 1 << n, leaving[n], out[n]) for n in range(net.ranks)]


def _mask(ranks: Iterable[int]) -> int:
    return sum([1 << n for n in ranks])


def _capped(net: Network, w: int, room: int) -> Fraction:
    """Bandwidth into w when one cap holds all the routes into it."""
    entering = {i for i, r in enumerate(net.routes) if w >> r.dst & 1 and not w >> r.src & 1}
    through = (_through(cap, entering) for cap in net.caps)
    return min([Fraction(room), *(most for most in through if most is not None)])


def _through(cap: Cap, entering: set[int]) -> Fraction | None:
    """Chunks per round that a cap lets over the routes of `entering` together; None where it does not hold all of
    them."""
    times = Counter(cap.routes)
    return Fraction(cap.units, min(times[i] for i in entering)) if entering and entering <= times.keys() else None
