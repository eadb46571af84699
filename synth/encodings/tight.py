"""Cuts that a schedule of (C, S, R) must use to the full: redundant constraints that make tight instances easy.

A cut is a set of ranks W. Every chunk that no rank of W holds and some rank of W needs must enter W; what enters in R
rounds is at most R times the bandwidth into W. Where the two are equal every route into W is full at every step, each of
those chunks enters exactly once, and no other chunk enters at all.
"""

from __future__ import annotations

from fractions import Fraction

from synth.collective import Collective
from synth.schedule import Problem
from synth.topology import Network

ALL_SUBSETS = 8  # ranks up to which every set of ranks is tried; above, single ranks and their complements


def tight_cuts(problem: Problem) -> list[frozenset[int]]:
    """The cuts of `problem` without slack. Empty too where a cut shows the problem infeasible: the solver will find out."""
    ratio, cuts = _critical(problem.network, problem.collective)
    return cuts if ratio and ratio * problem.chunks == problem.rounds else []


def full_wires(net: Network, cuts: list[frozenset[int]]) -> tuple[set[int], set[int]]:
    """Routes, and caps, that tight cuts make full at every step."""
    routes: set[int] = set()
    caps: set[int] = set()
    for cut in cuts:
        entering = {i for i, r in enumerate(net.routes) if r.dst in cut and r.src not in cut}
        whole = sum(net.routes[i].units for i in entering)
        room = min([whole, *(cap.units for cap in net.caps if entering <= set(cap.routes))])
        if room == whole:
            routes |= entering
        caps |= {k for k, cap in enumerate(net.caps) if cap.units == room and set(cap.routes) == entering}
    return routes, caps


def _critical(net: Network, coll: Collective) -> tuple[Fraction | None, list[frozenset[int]]]:
    """The greatest chunks per bandwidth over the cuts tried, and the cuts that have it."""
    everyone = (1 << net.ranks) - 1
    if net.ranks <= ALL_SUBSETS:
        sets = range(1, everyone)
    else:
        sets = [1 << n for n in range(net.ranks)] + [everyone ^ (1 << n) for n in range(net.ranks)]
    routes = [(1 << r.src, 1 << r.dst, r.units) for r in net.routes]
    demands: dict[tuple[int, int], int] = {}
    for pre, post in zip(coll.pre, coll.post, strict=True):
        key = sum(1 << n for n in pre), sum(1 << n for n in post)
        demands[key] = demands.get(key, 0) + 1
    needs = [(pre, post, n) for (pre, post), n in demands.items() if post & ~pre]
    best, cuts = Fraction(0), []
    top, bottom = 0, 1  # best as two integers: fractions are slow
    for w in sets:
        need = sum([n for pre, post, n in needs if post & w and not pre & w])
        if not need:
            continue
        room = sum([units for u, v, units in routes if v & w and not u & w])
        if net.caps:
            room = _capped(net, w, room)
        if not room:
            return None, []
        if need * bottom > top * room:
            top, bottom, cuts = need, room, []
        if need * bottom == top * room:
            cuts.append(w)
    best = Fraction(top, bottom)
    return best, [frozenset(n for n in range(net.ranks) if w >> n & 1) for w in cuts]


def _capped(net: Network, w: int, room: int) -> int:
    """Bandwidth into w when one cap holds all the routes into it."""
    entering = {i for i, r in enumerate(net.routes) if w >> r.dst & 1 and not w >> r.src & 1}
    return min([room, *(cap.units for cap in net.caps if entering <= set(cap.routes))])
