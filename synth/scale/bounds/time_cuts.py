"""Candidate cuts for lower bounds in time: which bytes must cross, and in which windows of the time their links can
carry them.

Cuts are tried around ranks, boxes, groups of ranks that fast or near links join and balls of latency around ranks; on
few ranks all sets are. Of each cut units count that come from far behind it, or go far beyond it, as well as all. Times
are in floating point here; `synth.checker.certificates.time_bounds` computes that of the chosen cut exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np

from synth.checker.certificates.time_bounds import CollectiveData
from synth.errors import InfeasibleError
from synth.model.documents.int_ranges import runs
from synth.model.link_table import LinkTable, ends, members
from synth.model.topology import Topology
from synth.scale.fabric.graphs import components


@dataclass(frozen=True)
class TimeCutSettings:
    """Numbers of cuts that are tried.

    Attributes:
        matrix: Nodes up to which the latencies between all pairs of nodes are computed.
        subsets: Ranks up to which every set of ranks is tried as a cut.
        boxes: Boxes up to which every set of boxes is tried as a cut.
        alike: Cuts around single ranks, or single boxes, on machines with more nodes than `matrix`.
        thresholds: Latencies to a cut that are tried.
        few_thresholds: The same on machines of many nodes.
    """

    matrix: int = 320
    subsets: int = 9
    boxes: int = 6
    alike: int = 4
    thresholds: int = 12
    few_thresholds: int = 4


SETTINGS = TimeCutSettings()


class TimeCut(NamedTuple):
    """A candidate: its certificate's fields, the units that cross, and the windows of the links in use.

    `offsets` (µs, ascending) and `capacity` (GB/s, cumulative): from T = `offsets[i]` on `capacity[i]` is in use.
    """

    inside: np.ndarray
    sources: np.ndarray
    targets: np.ndarray
    limits: tuple[int, ...]
    units: int
    offsets: np.ndarray
    capacity: np.ndarray

    def microseconds(self, kilobytes: float) -> float:
        """Return the least time in which `kilobytes` (1000 bytes) a unit cross."""
        gained = np.concatenate([self.capacity[:1], np.diff(self.capacity)])
        times = (self.units * kilobytes + np.cumsum(gained * self.offsets)) / self.capacity
        return float(times.min())

    def certificate(self) -> dict:
        """Return the ``time-cut`` certificate."""
        return {
            "kind": "time-cut",
            "inside": runs(np.flatnonzero(self.inside).tolist()),
            "sources": runs(np.flatnonzero(self.sources).tolist()),
            "targets": runs(np.flatnonzero(self.targets).tolist()),
            "limits": list(self.limits),
        }


class _Links(NamedTuple):
    """Links sorted by the node at which a search arrives, for least latencies by relaxation."""

    tails: np.ndarray
    heads: np.ndarray
    weights: np.ndarray

    @staticmethod
    def sorted(tails: np.ndarray, heads: np.ndarray, weights: np.ndarray) -> _Links:
        """Return the links in the order of their heads."""
        order = np.argsort(heads, kind="stable")
        return _Links(tails[order], heads[order], weights[order])

    def distances(self, start: np.ndarray) -> np.ndarray:
        """Return the least `start[n]` + weights of a path from some node n to each node (Bellman and Ford)."""
        far = start.copy()
        if not len(self.heads):
            return far
        first = np.flatnonzero(np.r_[True, self.heads[1:] != self.heads[:-1]])
        nodes = self.heads[first]
        while True:
            nearer = np.minimum(far[nodes], np.minimum.reduceat(far[self.tails] + self.weights, first))
            if (nearer >= far[nodes]).all():
                return far
            far[nodes] = nearer


class CandidateCuts:
    """The candidate cuts of a collective on a machine, as `cuts`.

    `providers`, `wanting`: Boolean arrays of the ranks that have, or want, data.
    """

    def __init__(self, topology: Topology, demand: CollectiveData, providers: np.ndarray, wanting: np.ndarray) -> None:
        self.topology, self.demand, self.providers, self.wanting = topology, demand, providers, wanting
        self.ranks = topology.ranks
        self.nodes = topology.ranks + len(topology.switches)
        table = topology.links if isinstance(topology.links, LinkTable) else LinkTable.of(topology.links)
        self.src, self.dst = ends(table)
        self.latency = np.array([float(s.latency) for s in table.sorts] or [0.0])[table.sort]
        self.width = np.array([float(s.bandwidth) for s in table.sorts] or [0.0])[table.sort]
        held = members(topology.limits)
        self.holder = np.repeat(np.arange(len(held)), [len(m) for m in held])
        self.held = np.concatenate([np.zeros(0, np.int64), *held])
        self.limit_width = np.array([float(limit.bandwidth) for limit in topology.limits])
        self.forward = _Links.sorted(self.src, self.dst, self.latency)
        self.backward = _Links.sorted(self.dst, self.src, self.latency)
        self.matrix = self._all_pairs() if self.nodes <= SETTINGS.matrix else None
        self.cuts = list(self._cuts())

    def path(self, cut: TimeCut) -> str:
        """Return the nearest source and target of a cut in words; nothing on machines with many nodes."""
        if self.matrix is None:
            return ""
        sources, targets = np.flatnonzero(cut.sources), np.flatnonzero(cut.targets)
        between = self.matrix[np.ix_(sources, targets)]
        s, t = np.unravel_index(int(between.argmin()), between.shape)
        return f" {sources[s]}→{targets[t]}"

    # ------------------------------------------------------------ latencies

    def distances(self, start: np.ndarray, back: bool = False) -> np.ndarray:
        """Return the least latency from (`back`: to) the nodes where `start` is true, infinite where there is none."""
        if self.matrix is None:
            return (self.backward if back else self.forward).distances(np.where(start, 0.0, np.inf))
        rows = self.matrix[:, start].T if back else self.matrix[start]
        return rows.min(axis=0, initial=np.inf)

    def _all_pairs(self) -> np.ndarray:
        """Return the least latencies between all pairs of nodes (Floyd and Warshall)."""
        matrix = np.full((self.nodes, self.nodes), np.inf)
        np.minimum.at(matrix, (self.src, self.dst), self.latency)
        np.fill_diagonal(matrix, 0.0)
        for middle in range(self.nodes):
            np.minimum(matrix, matrix[:, middle, None] + matrix[middle], out=matrix)
        return matrix

    # ------------------------------------------------------------ sets of ranks

    def _cuts(self) -> Iterator[TimeCut]:
        """Yield the candidates. Sets of ranks that look alike are tried once."""
        seen: set[tuple] = set()
        for ranks_inside in self._rank_sets():
            mask = np.zeros(self.ranks, bool)
            mask[ranks_inside] = True
            if not mask.any() or mask.all():
                continue
            for inside in self._with_switches(mask):
                yield from self._of(inside, seen)

    def _rank_sets(self) -> Iterator[np.ndarray]:
        everyone = np.arange(self.ranks)
        if self.ranks <= SETTINGS.subsets:
            for count in range(1, self.ranks):
                for some in combinations(range(self.ranks), count):
                    yield np.array(some)
            return
        for rank in self._unlike_ranks():
            yield np.array([rank])
            yield np.delete(everyone, rank)
        for group in self._groupings():
            labels = group[: self.ranks]
            boxes = [np.flatnonzero(labels == b) for b in np.unique(labels)]
            if len(boxes) > SETTINGS.boxes:
                boxes = boxes[: SETTINGS.alike] if self.matrix is None else boxes
                yield from boxes
                yield from (np.setdiff1d(everyone, box) for box in boxes)
                continue
            for count in range(1, len(boxes)):
                for some in combinations(boxes, count):
                    yield np.concatenate(some)
        if self.matrix is not None:
            between = self.matrix[: self.ranks, : self.ranks]
            for rank in range(self.ranks):
                for distances in (between[rank], between[:, rank]):
                    for radius in np.unique(distances[np.isfinite(distances)])[:-1]:
                        ball = distances <= radius + 1e-9
                        yield np.flatnonzero(ball)
                        yield np.flatnonzero(~ball)

    def _unlike_ranks(self) -> list[int]:
        """Return all ranks of a small machine; of a large one a few whose links differ most in what they carry."""
        if self.matrix is not None:
            return list(range(self.ranks))
        into = np.bincount(self.dst, self.width, self.nodes)[: self.ranks]
        out = np.bincount(self.src, self.width, self.nodes)[: self.ranks]
        _, first = np.unique(np.stack([into, out], axis=1), axis=0, return_index=True)
        return first[: SETTINGS.alike].tolist()

    def _groupings(self) -> Iterator[np.ndarray]:
        """Yield labels of nodes: boxes, and the components that the nearest or the widest links join."""
        if len(set(self.topology.nodes)) > 1:
            yield np.array(self.topology.nodes)
        joined = [self.latency <= latency for latency in np.unique(self.latency)[:-1]]
        joined += [self.width >= width for width in np.unique(self.width)[1:]]
        for near in joined:
            yield components(self.nodes, self.src[near], self.dst[near])

    def _with_switches(self, ranks_inside: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the nodes inside for the ranks inside: switches all outside, all inside, or where most links lead."""
        switches = self.nodes - self.ranks
        if not switches:
            yield ranks_inside
            return
        for side in (False, True):
            yield np.concatenate([ranks_inside, np.full(switches, side)])
        inside = np.concatenate([ranks_inside, np.zeros(switches, bool)])
        for _ in range(4):  # from the ranks to switches of switches
            sign = np.where(inside, 1.0, -1.0)
            if not inside[self.ranks :].any():
                sign[self.ranks :] = 0.0
            pull = np.bincount(self.src, self.width * sign[self.dst], self.nodes)
            pull += np.bincount(self.dst, self.width * sign[self.src], self.nodes)
            inside[self.ranks :] = pull[self.ranks :] > 0
        yield inside

    # ------------------------------------------------------------ windows

    def _of(self, inside: np.ndarray, seen: set[tuple]) -> Iterator[TimeCut]:
        """Yield the cut with these nodes inside, with all sources and targets, and with those far from the cut."""
        ranks = self.ranks
        crossing = np.flatnonzero(inside[self.src] & ~inside[self.dst])
        sources = inside[:ranks] & self.providers
        targets = ~inside[:ranks] & self.wanting
        if not self.demand.crossing(sources, targets):
            return
        if not len(crossing):
            some, other = int(np.flatnonzero(sources)[0]), int(np.flatnonzero(targets)[0])
            raise InfeasibleError(f"{self.topology.name}: no link leads from where rank {some} is to rank {other}")
        limits, limit_of = self._covering(crossing)
        tails = np.zeros(self.nodes, bool)
        heads = np.zeros(self.nodes, bool)
        tails[self.src[crossing]] = heads[self.dst[crossing]] = True
        behind = np.round(self.distances(tails, back=True)[:ranks], 9)
        beyond = np.round(self.distances(heads)[:ranks], 9)
        key = (
            round(float(self.width[crossing].sum()), 6), len(limits), int(inside.sum()),
            tuple(np.sort(behind[sources]).tolist()), tuple(np.sort(beyond[targets]).tolist()),
            tuple(np.sort(self.latency[crossing]).tolist()),
        )  # fmt: skip
        if self.ranks > SETTINGS.subsets and key in seen:
            return
        seen.add(key)
        window = _Window(self, inside, crossing, limits, limit_of)
        for least_behind in self._thresholds(behind[sources]):
            for least_beyond in self._thresholds(beyond[targets]):
                some = sources & (behind >= least_behind)
                others = targets & (beyond >= least_beyond)
                units = self.demand.crossing(some, others)
                if units:
                    offsets, capacity = window.of(some, others)
                    if len(offsets):
                        yield TimeCut(inside, some, others, limits, units, offsets, capacity)

    def _thresholds(self, values: np.ndarray) -> np.ndarray:
        """Return the different values; of many a few, the least and the greatest among them."""
        distinct = np.unique(values)
        most = SETTINGS.thresholds if self.matrix is not None else SETTINGS.few_thresholds
        if len(distinct) <= most:
            return distinct
        return distinct[np.linspace(0, len(distinct) - 1, most).round().astype(int)]

    def _covering(self, crossing: np.ndarray) -> tuple[tuple[int, ...], np.ndarray]:
        """Return the limits that are narrower than their crossing links, and for each crossing link its limit or -1."""
        which = np.full(len(crossing), -1, np.int64)
        if not len(self.holder):
            return (), which
        place = np.full(len(self.src), -1, np.int64)
        place[crossing] = np.arange(len(crossing))
        at = place[self.held]
        owner, at = self.holder[at >= 0], at[at >= 0]
        chosen: list[int] = []
        loads = np.bincount(owner, self.width[crossing[at]], len(self.limit_width))
        order = np.argsort(self.limit_width - loads, kind="stable")
        order = order[self.limit_width[order] < loads[order] * (1 + 1e-9)]  # the others are wider than all their links
        bounds = np.searchsorted(owner, np.arange(len(self.limit_width) + 1))
        for k in order.tolist():
            links = at[bounds[k] : bounds[k + 1]]
            links = links[which[links] < 0]
            if len(links) and self.limit_width[k] < self.width[crossing[links]].sum():
                which[links] = len(chosen)
                chosen.append(k)
        return tuple(chosen), which


class _Window:
    """The windows of a cut's links, for any sources and targets."""

    def __init__(
        self, machine: CandidateCuts, inside: np.ndarray, crossing: np.ndarray, limits: tuple[int, ...],
        limit_of: np.ndarray,
    ) -> None:  # fmt: skip
        self.machine, self.crossing, self.limit_of = machine, crossing, limit_of
        self.limit_width = machine.limit_width[list(limits)] if limits else np.zeros(0)
        self.at_rank = inside & (np.arange(machine.nodes) < machine.ranks)
        within = inside[machine.src] & inside[machine.dst] & (machine.dst >= machine.ranks)
        tails, heads, weights = machine.src[within], machine.dst[within], machine.latency[within]
        self.within = _Links.sorted(tails, heads, np.zeros(len(weights)))
        before = _Links.sorted(tails, heads, weights).distances(np.where(self.at_rank, 0.0, np.inf))
        self.transit = before[machine.src[crossing]] + machine.latency[crossing]

    def of(self, sources: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the ascending offsets (µs) and the cumulative capacity (GB/s) of the windows."""
        machine, crossing = self.machine, self.crossing
        no_switch = np.zeros(machine.nodes - machine.ranks, bool)
        earliest = machine.distances(np.concatenate([sources, no_switch]))
        begin = self.within.distances(np.where(self.at_rank, earliest, np.inf))[machine.src[crossing]]
        onward = machine.distances(np.concatenate([targets, no_switch]), back=True)
        remains = self.transit + onward[machine.dst[crossing]]
        useful = np.isfinite(begin + remains)
        single, shared = useful & (self.limit_of < 0), useful & (self.limit_of >= 0)
        first, last = np.full(len(self.limit_width), np.inf), np.full(len(self.limit_width), np.inf)
        np.minimum.at(first, self.limit_of[shared], begin[shared])
        np.minimum.at(last, self.limit_of[shared], remains[shared])
        used = np.isfinite(first)
        offset = np.concatenate([(begin + remains)[single], (first + last)[used]])
        width = np.concatenate([machine.width[crossing[single]], self.limit_width[used]])
        values, place = np.unique(np.round(offset, 9), return_inverse=True)
        return values, np.cumsum(np.bincount(place, width, len(values)))
