"""The joint bound of process groups: prices of links and limits that make all groups together pay the most, by one
linear program.

What a group pays is bounded from below as `synth.checker.certificates.process_groups` says: an alltoall by distances,
exactly; the others by weights of families of regions. The families tried, each left and entered, are partitions: every
rank on its own, the boxes, the groups of a kind, these cut by boxes, the ranks of a kind one by one with all others as
one region or box by box, and cells, each rank with the member of a group that is nearest; and single regions: each
rank, box, group and cell. So the bound is the best of these, not of all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from synth.checker.certificates.process_groups import check, crossings, digest
from synth.errors import InfeasibleError, SynthError
from synth.model.process_groups import Group
from synth.model.rational import show
from synth.model.topology import Network
from synth.solvers.highs import linear

# Rows of the linear program that still end within a minute; without these distances, single ranks as regions are left
# out.
MOST_ROWS = 120_000
FEW_RANKS = 64
FEW_GROUPS = 8
FINE = 5040
INFINITE = 1 << 30


@dataclass(frozen=True)
class Bound:
    """All groups together take at least `seconds`, with sizes in GB; `certificate` proves it to
    `synth.checker.certificates.process_groups.check`."""

    seconds: Fraction
    certificate: dict


def bound(network: Network, nodes: Sequence[int], groups: Sequence[Group]) -> Bound:
    """The joint bound; `nodes[r]` is the box of rank r. Raises InfeasibleError where a rank cannot hear from one that
    it must."""
    for g, group in enumerate(groups):
        for a, b in {(a, b) for have, want in group.parts for a in have for b in want}:
            if network.distances[a][b] is None:
                raise InfeasibleError(
                    f"{network.name}: rank {b} cannot hear from rank {a}, as the {group.collective} of group {g} asks"
                )
    return _Program(network, nodes, groups).run()


def _kinds(groups: Sequence[Group]) -> list[list[int]]:
    """Groups that run the same collective over as many bytes and ranks: they share their weights."""
    found: dict[tuple, list[int]] = {}
    for g, group in enumerate(groups):
        found.setdefault((group.collective, group.size, len(group.ranks)), []).append(g)
    return list(found.values())


class _Program:
    def __init__(self, network: Network, nodes: Sequence[int], groups: Sequence[Group]) -> None:
        self.network, self.nodes, self.groups = network, list(nodes) or [0] * network.ranks, groups
        self.kinds = _kinds(groups)
        routes = network.routes
        self.ends = np.array([(r.src, r.dst) for r in routes], np.int64).reshape(-1, 2)
        self.bare = [
            i for i, r in enumerate(routes) if all(network.caps[k].units > r.units for k in network.caps_of[i])
        ]
        self.exact = sum(len(groups[g].ranks) for g in self._asked()) * len(routes) <= MOST_ROWS
        self.families = self._families()

    def _asked(self) -> list[int]:
        return [g for g, group in enumerate(self.groups) if group.collective == "alltoall"]

    def _families(self) -> list[tuple[bool, np.ndarray]]:
        kept: dict[tuple[bool, bytes], tuple[bool, np.ndarray]] = {}
        for label in self._labels():
            for leaving in (True, False):
                kept.setdefault((leaving, label.tobytes()), (leaving, label))
        return list(kept.values())

    def _labels(self) -> Iterator[np.ndarray]:
        ranks = self.network.ranks
        boxes = np.array(self.nodes)
        yield np.arange(ranks)
        shapes = [boxes]
        for kind in self.kinds:
            label = np.arange(ranks) + len(self.groups)
            for g in kind:
                label[list(self.groups[g].ranks)] = g
            alone = np.arange(ranks)
            alone[label >= len(self.groups)] = ranks  # the members one by one, all others together
            shapes += [label, label * (ranks + 1) + boxes, alone, np.where(alone < ranks, alone, ranks + boxes)]
        cells = [c for kind in self.kinds for g in kind[:FEW_GROUPS] for c in self._cells(self.groups[g].ranks)]
        for shape in [*shapes, *cells]:
            label = np.unique(shape, return_inverse=True)[1].astype(np.int64)
            if label.max() > 0:
                yield label
        single = [[r] for r in range(ranks)] if ranks <= FEW_RANKS else []
        single += [np.flatnonzero(boxes == b).tolist() for b in sorted(set(self.nodes))]
        single += [list(group.ranks) for group in self.groups] if len(self.groups) <= FEW_RANKS else []
        single += [np.flatnonzero(c == r).tolist() for c in cells for r in np.unique(c)] if ranks <= FEW_RANKS else []
        for region in single:
            if len(region) < ranks:
                label = np.full(ranks, -1, np.int64)
                label[region] = 0
                yield label

    def _cells(self, members: Sequence[int]) -> Iterator[np.ndarray]:
        """For each rank the nearest of the members, of several the first, or the last."""
        far = [[INFINITE if d is None else d for d in self.network.distances[m]] for m in members]
        for order in (1, -1):
            yield np.array(members)[::order][np.argmin(np.array(far)[::order], axis=0)]

    def run(self) -> Bound:
        cost, matrix, room = self._matrix()
        found = linear(-cost, A_ub=matrix, b_ub=room, bounds=(0, None), method="highs")
        if found.x is None:
            raise SynthError(
                f"{self.network.name}: the linear program of the joint bound ended without an answer: {found.message}"
            )
        certificate = self._certificate(found.x)
        return Bound(check(certificate, self.network, self.groups), certificate)

    def _matrix(self) -> tuple[np.ndarray, Any, np.ndarray]:
        """Columns: prices of caps, prices of bare routes, weights of each kind's families, distances from each source
        of alltoalls."""
        from scipy import sparse

        network, routes = self.network, len(self.network.routes)
        caps, bare = len(network.caps), len(self.bare)
        self.weights: list[tuple[int, int]] = []
        cost = [0.0] * (caps + bare)
        rows, columns, values = [], [], []
        place = np.full(routes, -1, np.int64)
        place[self.bare] = caps + np.arange(bare)
        priced = [(i, k) for i in range(routes) for k in network.caps_of[i]]
        route_of = np.array([i for i, _ in priced] + self.bare, np.int64)
        column_of = np.array([k for _, k in priced] + place[self.bare].tolist(), np.int64)
        at = 0
        for kind, members in enumerate(self.kinds):
            if self.exact and self.groups[members[0]].collective == "alltoall":
                continue
            rows.append(at + route_of)
            columns.append(column_of)
            values.append(np.full(len(route_of), -1.0))
            for f, (leaving, label) in enumerate(self.families):
                worth = sum((crossings(self.groups[g], leaving, label) for g in members), Fraction(0))
                if not worth:
                    continue
                hit = np.flatnonzero(_crossed(self.ends, leaving, label))
                rows.append(at + hit)
                columns.append(np.full(len(hit), len(cost)))
                values.append(np.ones(len(hit)))
                self.weights.append((kind, f))
                cost.append(float(worth))
            at += routes
        for g in self._asked() if self.exact else ():
            group = self.groups[g]
            for s in group.ranks:
                start = len(cost)
                keep = self.ends[:, 1] != s
                count = int(keep.sum())
                number = np.cumsum(keep) - 1
                # distances of the ranks but s, numbered by rank: far[b] - far[a] <= price
                column = start + np.arange(network.ranks) - (np.arange(network.ranks) > s)
                cost += [float(group.part) if r in group.ranks else 0.0 for r in range(network.ranks) if r != s]
                a, b = self.ends[keep, 0], self.ends[keep, 1]
                used = keep[route_of]
                rows += [at + np.arange(count), at + np.flatnonzero(a != s), at + number[route_of[used]]]
                columns += [column[b], column[a[a != s]], column_of[used]]
                values += [np.ones(count), np.full(int((a != s).sum()), -1.0), np.full(int(used.sum()), -1.0)]
                at += count
        units = [c.units for c in network.caps] + [network.routes[i].units for i in self.bare]
        rows.append(np.full(len(units), at))
        columns.append(np.arange(len(units)))
        values.append(np.array(units, float))
        shape = (at + 1, len(cost))
        matrix = sparse.csr_matrix(
            (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape=shape
        )
        room = np.zeros(at + 1)
        room[at] = 1
        return np.array(cost), matrix, room

    def _certificate(self, answer: np.ndarray) -> dict:
        """Simple fractions near the answer; where a route's price falls short of what crosses it, it is raised."""
        network, caps = self.network, len(self.network.caps)
        first = caps + len(self.bare)
        last = first + len(self.weights)
        top = max(answer[:first].max(initial=0.0), 1e-12)
        near = [
            Fraction(float(x / top)).limit_denominator(FINE) if x > 1e-9 * top else Fraction(0) for x in answer[:last]
        ]
        near = [max(x, Fraction(0)) for x in near]
        own = dict(zip(self.bare, near[caps:first], strict=True))
        base = [sum((near[k] for k in network.caps_of[i]), Fraction(0)) for i in range(len(network.routes))]
        packings = []
        for kind, members in enumerate(self.kinds):
            used = [
                (x, *self.families[f])
                for x, (c, f) in zip(near[first:last], self.weights, strict=True)
                if c == kind and x
            ]
            if not used:
                continue
            packings.append(
                {
                    "groups": members,
                    "families": [
                        [show(x), "leaving" if leaving else "entering", label.tolist()] for x, leaving, label in used
                    ],
                }
            )
            load = [Fraction(0)] * len(base)
            for x, leaving, label in used:
                for i in np.flatnonzero(_crossed(self.ends, leaving, label)).tolist():
                    load[i] += x
            for i, weight in enumerate(load):
                if weight > base[i] + own.get(i, 0):
                    own[i] = weight - base[i]
        return {
            "kind": "groups-prices",
            "problem": digest(network, self.groups),
            "routes": [[i, show(x)] for i, x in sorted(own.items()) if x],
            "caps": [[k, show(x)] for k, x in enumerate(near[:caps]) if x],
            "packings": packings,
        }


def _crossed(ends: np.ndarray, leaving: bool, label: np.ndarray) -> np.ndarray:
    a, b = (label[ends[:, 0]], label[ends[:, 1]]) if leaving else (label[ends[:, 1]], label[ends[:, 0]])
    return (a >= 0) & (a != b)
