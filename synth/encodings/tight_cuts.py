"""Tight cuts, which every schedule of (C, S, R) uses to the full: implied constraints that make tight instances easy.

A cut is a set of ranks W. Every chunk that no rank of W holds and some rank of W needs must enter W. At most R times
the bandwidth into W enters in R rounds. If the two are equal, every route into W is full in every step, each of those
chunks enters exactly once, and no other chunk enters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from operator import add, sub

from synth.model.collective import Collective
from synth.model.schedule import Problem
from synth.model.topology import Cap, Network

ALL_SUBSETS = 8  # number of ranks up to which every set of ranks is a cut; above, single ranks and their complements


def tight_cuts(problem: Problem) -> list[frozenset[int]]:
    """Return the cuts of `problem` without slack; none if a cut shows the problem infeasible, which the solver will
    prove."""
    net, coll, chunks, rounds = problem.network, problem.collective, problem.chunks, problem.rounds
    cuts, capped = [], bool(net.caps)
    candidates = _every_cut(net, coll) if net.ranks <= ALL_SUBSETS else _small_cuts(net, coll)
    for w, need, bandwidth in candidates:
        if need and (capped or need * chunks >= bandwidth * rounds):
            capacity = _capped_bandwidth(net, w, bandwidth) if capped else bandwidth
            slack = capacity * rounds - need * chunks
            if slack < 0:
                return []
            if not slack:
                cuts.append(w)
    return [_members(w, net.ranks) for w in cuts]


def _members(mask: int, ranks: int) -> frozenset[int]:
    return frozenset(n for n in range(ranks) if mask >> n & 1)


def full_resources(net: Network, cuts: list[frozenset[int]]) -> tuple[set[int], set[int]]:
    """Return the numbers of the routes and of the shared limits that are full in every step, because of tight
    `cuts`."""
    routes: set[int] = set()
    caps: set[int] = set()
    for cut in cuts:
        entering = {i for i, r in enumerate(net.routes) if r.dst in cut and r.src not in cut}
        total = sum(net.routes[i].units for i in entering)
        through = [_through(cap, entering) for cap in net.caps]
        bandwidth = min([total, *(limit for limit in through if limit is not None)])
        if bandwidth == total:
            routes |= entering
        caps |= {k for k, cap in enumerate(net.caps) if through[k] == bandwidth and set(cap.routes) == entering}
    return routes, caps


def _every_cut(net: Network, coll: Collective) -> Iterable[tuple[int, int, int]]:
    """Yield each set of ranks as a bit mask, with the units of data that must enter it and the bandwidth into it.

    Sets grow by one rank v: the bandwidth into w ∪ {v} is that into w plus that into v, less that between them.
    """
    into = [0] * net.ranks
    between = [[0] * net.ranks for _ in range(net.ranks)]
    for r in net.routes:
        if r.src == r.dst:
            continue
        into[r.dst] += r.units
        between[r.src][r.dst] += r.units
        between[r.dst][r.src] += r.units
    bandwidths = [0]
    for v in range(net.ranks):
        inner = [0]
        for u in range(v):
            more = between[v][u]
            inner += [x + more for x in inner]
        enters = into[v]
        bandwidths += map(sub, [b + enters for b in bandwidths], inner)
    everyone = len(bandwidths) - 1
    outside = [0] * len(bandwidths)  # of each set: units with no holder outside it
    apart = [0] * len(bandwidths)  # units that nobody outside it holds or needs
    for pre, post in zip(coll.pre, coll.post, strict=True):
        if not post <= pre:
            outside[_mask(pre)] += 1
            apart[_mask(pre | post)] += 1
    _over_subsets(outside, net.ranks)
    _over_subsets(apart, net.ranks)
    needs = list(map(sub, outside, apart))  # of the complement of each set
    return zip(range(1, everyone), needs[-2:0:-1], bandwidths[1:], strict=False)


def _over_subsets(sums: list[int], ranks: int) -> None:
    """Replace each entry by the sum over the subsets of its index (zeta transform), in few long slices for speed."""
    for n in range(ranks):
        bit, size = 1 << n, len(sums)
        if bit * bit < size:
            for with_, without in ((slice(bit + j, size, 2 * bit), slice(j, size, 2 * bit)) for j in range(bit)):
                sums[with_] = map(add, sums[with_], sums[without])
        else:
            for start in range(bit, size, 2 * bit):
                sums[start : start + bit] = map(add, sums[start : start + bit], sums[start - bit : start])


def _small_cuts(net: Network, coll: Collective) -> Iterable[tuple[int, int, int]]:
    """Return the rows of `_every_cut` for single ranks and their complements."""
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


def _capped_bandwidth(net: Network, w: int, bandwidth: int) -> Fraction:
    """Return the bandwidth into w, where shared limits that hold all routes into it are counted."""
    entering = {i for i, r in enumerate(net.routes) if w >> r.dst & 1 and not w >> r.src & 1}
    through = (_through(cap, entering) for cap in net.caps)
    return min([Fraction(bandwidth), *(limit for limit in through if limit is not None)])


def _through(cap: Cap, entering: set[int]) -> Fraction | None:
    """Return the chunks per round that a shared limit allows over the routes `entering` together; None if it does not
    hold all of them."""
    times = Counter(cap.routes)
    if not entering or not entering <= times.keys():
        return None
    return Fraction(cap.units, min(times[i] for i in entering))
