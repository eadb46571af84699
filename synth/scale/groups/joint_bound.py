"""Joint bound of process groups by one linear program: prices of links and limits for which the groups pay the most.

The price that a group pays is bounded from below as in `synth.checker.certificates.process_groups`: for an alltoall by
distances, exactly; for the others by weights of families of regions. The families, each once leaving and once entering,
are partitions and single regions. The partitions: single ranks; boxes; the groups of a kind, whole or cut by boxes; the
ranks of a kind one by one, with all others as one region or box by box; and cells, each rank with its nearest member of
a group. The single regions: each rank, box, group and cell. The bound is the best over these families, not over all.
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
from synth.solvers.rationalise import simple_fractions


@dataclass(frozen=True)
class JointBoundSettings:
    """Limits of the bound of several groups together.

    Attributes:
        maximum_rows: Rows of the linear program that are solved within a minute. Above, alltoalls are bounded
            by families too.
        single_regions: Ranks up to which single ranks and cells are regions, and groups up to which each group
            is one.
        cell_groups: Groups of each kind that cells are made for.
        maximum_denominator: Largest denominator of a price; prices are relative to the highest one.
        infinite: Distance of ranks that are not connected, beyond any number of links.
    """

    maximum_rows: int = 120_000
    single_regions: int = 64
    cell_groups: int = 8
    maximum_denominator: int = 5040
    infinite: int = 1 << 30


SETTINGS = JointBoundSettings()


@dataclass(frozen=True)
class JointBound:
    """Least time of all groups together: `seconds`, with sizes in GB.

    `certificate` proves it to `synth.checker.certificates.process_groups.check`.
    """

    seconds: Fraction
    certificate: dict


def joint_bound(network: Network, nodes: Sequence[int], groups: Sequence[Group]) -> JointBound:
    """Return the joint bound; `nodes[r]` is the box of rank r.

    Raises InfeasibleError where a rank cannot be reached from a rank whose data it needs, SynthError where the linear
    program fails.
    """
    for g, group in enumerate(groups):
        pairs = {(a, b) for owners, targets in group.parts for a in owners for b in targets}
        for a, b in pairs:
            if network.distances[a][b] is None:
                raise InfeasibleError(
                    f"{network.name}: rank {b} cannot hear from rank {a}, as the {group.collective} of group {g} asks"
                )
    return _Program(network, nodes, groups).run()


def _kinds(groups: Sequence[Group]) -> list[list[int]]:
    """Groups by kind: those of one collective, size and number of ranks. They share their weights."""
    kinds: dict[tuple, list[int]] = {}
    for g, group in enumerate(groups):
        kinds.setdefault((group.collective, group.size, len(group.ranks)), []).append(g)
    return list(kinds.values())


class _Rows:
    """A sparse matrix that grows by blocks of rows. `worth`: of each column, which grows with the columns."""

    def __init__(self, worth: list[float]) -> None:
        self.worth, self.rows = worth, 0
        self._entries: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def add(self, rows: np.ndarray, columns: np.ndarray, values: np.ndarray) -> None:
        """Add entries of the present block of rows; `rows` are numbered from its first one."""
        self._entries.append((self.rows + rows, columns, values))

    def end(self, rows: int) -> None:
        """End the present block, which has this many rows."""
        self.rows += rows

    def matrix(self) -> Any:
        """Return the matrix of all blocks."""
        from scipy import sparse

        rows, columns, values = (np.concatenate(parts) for parts in zip(*self._entries, strict=True))
        return sparse.csr_matrix((values, (rows, columns)), shape=(self.rows, len(self.worth)))


class _Program:
    """The linear program.

    `kinds`: group numbers by kind. `bare`: routes that no cap keeps as narrow, which have prices of their own. `exact`:
    alltoalls are bounded by distances. `families`: (leaving, region of each rank or -1).
    """

    def __init__(self, network: Network, nodes: Sequence[int], groups: Sequence[Group]) -> None:
        self.network, self.nodes, self.groups = network, list(nodes) or [0] * network.ranks, groups
        self.kinds = _kinds(groups)
        routes = network.routes
        self.ends = np.array([(r.src, r.dst) for r in routes], np.int64).reshape(-1, 2)
        self.bare: list[int] = []
        for i, route in enumerate(routes):
            if all(network.caps[k].units > route.units for k in network.caps_of[i]):
                self.bare.append(i)
        self.exact = sum(len(groups[g].ranks) for g in self._alltoalls()) * len(routes) <= SETTINGS.maximum_rows
        self.families = self._families()

    def _alltoalls(self) -> list[int]:
        return [g for g, group in enumerate(self.groups) if group.collective == "alltoall"]

    def _families(self) -> list[tuple[bool, np.ndarray]]:
        families: dict[tuple[bool, bytes], tuple[bool, np.ndarray]] = {}
        for label in self._labels():
            for leaving in (True, False):
                families.setdefault((leaving, label.tobytes()), (leaving, label))
        return list(families.values())

    def _labels(self) -> Iterator[np.ndarray]:
        """Region of each rank, or -1, for each family of the module's list."""
        ranks = self.network.ranks
        boxes = np.array(self.nodes)
        yield np.arange(ranks)
        partitions = [boxes]
        for kind in self.kinds:
            label = np.arange(ranks) + len(self.groups)
            for g in kind:
                label[list(self.groups[g].ranks)] = g
            alone = np.arange(ranks)
            alone[label >= len(self.groups)] = ranks  # the members one by one, all others together
            alone_by_box = np.where(alone < ranks, alone, ranks + boxes)
            partitions += [label, label * (ranks + 1) + boxes, alone, alone_by_box]
        cells = [
            c for kind in self.kinds for g in kind[: SETTINGS.cell_groups] for c in self._cells(self.groups[g].ranks)
        ]
        for partition in [*partitions, *cells]:
            label = np.unique(partition, return_inverse=True)[1].astype(np.int64)
            if label.max() > 0:
                yield label
        regions: list[list[int]] = []
        if ranks <= SETTINGS.single_regions:
            regions += [[r] for r in range(ranks)]
        regions += [np.flatnonzero(boxes == b).tolist() for b in sorted(set(self.nodes))]
        if len(self.groups) <= SETTINGS.single_regions:
            regions += [list(group.ranks) for group in self.groups]
        if ranks <= SETTINGS.single_regions:
            regions += [np.flatnonzero(c == r).tolist() for c in cells for r in np.unique(c)]
        for region in regions:
            if len(region) < ranks:
                label = np.full(ranks, -1, np.int64)
                label[region] = 0
                yield label

    def _cells(self, members: Sequence[int]) -> Iterator[np.ndarray]:
        """The nearest member of each rank, of several the first in one array, the last in the other."""
        distances = np.full((len(members), self.network.ranks), SETTINGS.infinite, np.int64)
        for row, member in zip(distances, members, strict=True):
            for r, distance in enumerate(self.network.distances[member]):
                if distance is not None:
                    row[r] = distance
        for order in (1, -1):
            yield np.array(members)[::order][np.argmin(distances[::order], axis=0)]

    def run(self) -> JointBound:
        """Solve the linear program and check its certificate."""
        worth, matrix, upper = self._matrix()
        solution = linear(-worth, A_ub=matrix, b_ub=upper, bounds=(0, None), method="highs")
        if solution.x is None:
            raise SynthError(
                f"{self.network.name}: the linear program of the joint bound ended without an answer: "
                f"{solution.message}"
            )
        certificate = self._certificate(solution.x)
        return JointBound(check(certificate, self.network, self.groups), certificate)

    def _matrix(self) -> tuple[np.ndarray, Any, np.ndarray]:
        """Return (worth of each column, matrix, upper bounds of the rows).

        Columns: prices of caps, prices of bare routes, weights of each kind's families, distances from each source of
        alltoalls. Rows: the families of a kind that a route crosses weigh at most its price; distances grow by at most
        the price of a route; all capacities at their prices cost at most 1.
        """
        network, caps = self.network, len(self.network.caps)
        self.weights: list[tuple[int, int]] = []
        program = _Rows([0.0] * (caps + len(self.bare)))
        # the price of route route_of[n] contains the column column_of[n]
        priced = [(i, k) for i in range(len(network.routes)) for k in network.caps_of[i]]
        priced += [(i, caps + n) for n, i in enumerate(self.bare)]
        route_of, column_of = np.array(priced, np.int64).reshape(-1, 2).T
        for kind, members in enumerate(self.kinds):
            if not (self.exact and self.groups[members[0]].collective == "alltoall"):
                self._family_rows(program, kind, members, route_of, column_of)
        for g in self._alltoalls() if self.exact else ():
            for source in self.groups[g].ranks:
                self._distance_rows(program, self.groups[g], source, route_of, column_of)
        units = [cap.units for cap in network.caps]
        units += [network.routes[i].units for i in self.bare]
        program.add(np.zeros(len(units), np.int64), np.arange(len(units)), np.array(units, float))
        program.end(1)
        upper = np.zeros(program.rows)
        upper[-1] = 1
        return np.array(program.worth), program.matrix(), upper

    def _family_rows(
        self, program: _Rows, kind: int, members: Sequence[int], route_of: np.ndarray, column_of: np.ndarray
    ) -> None:
        """Add a row for each route: the weights of the families of a kind that it crosses, less its price, are <= 0."""
        program.add(route_of, column_of, np.full(len(route_of), -1.0))
        for f, (leaving, label) in enumerate(self.families):
            crossing_bytes = sum((crossings(self.groups[g], leaving, label) for g in members), Fraction(0))
            if crossing_bytes:
                crossed = np.flatnonzero(_crossed(self.ends, leaving, label))
                program.add(crossed, np.full(len(crossed), len(program.worth)), np.ones(len(crossed)))
                program.worth.append(float(crossing_bytes))
                self.weights.append((kind, f))
        program.end(len(self.network.routes))

    def _distance_rows(
        self, program: _Rows, group: Group, source: int, route_of: np.ndarray, column_of: np.ndarray
    ) -> None:
        """Add a row for each route from a to b != source: distance[b] - distance[a] less its price is <= 0."""
        ranks = np.arange(self.network.ranks)
        keep = self.ends[:, 1] != source
        number = np.cumsum(keep) - 1  # of each kept route
        column = len(program.worth) + ranks - (ranks > source)  # distances of the other ranks, by rank
        for r in range(self.network.ranks):
            if r != source:
                program.worth.append(float(group.part) if r in group.ranks else 0.0)
        a, b = self.ends[keep, 0], self.ends[keep, 1]
        beyond, used = np.flatnonzero(a != source), keep[route_of]
        program.add(np.arange(len(b)), column[b], np.ones(len(b)))
        program.add(beyond, column[a[beyond]], np.full(len(beyond), -1.0))
        program.add(number[route_of[used]], column_of[used], np.full(int(used.sum()), -1.0))
        program.end(len(b))

    def _certificate(self, answer: np.ndarray) -> dict:
        """Return a certificate from simple fractions near the answer.

        Where the price of a route falls short of the weights of the families that cross it, its own price is raised.
        """
        network, caps = self.network, len(self.network.caps)
        first = caps + len(self.bare)
        last = first + len(self.weights)
        highest = max(answer[:first].max(initial=0.0), 1e-12)
        fractions = simple_fractions(np.maximum(answer[:last], 0.0) / highest, SETTINGS.maximum_denominator)
        own_price = dict(zip(self.bare, fractions[caps:first], strict=True))
        cap_price = []
        for i in range(len(network.routes)):
            cap_price.append(sum((fractions[k] for k in network.caps_of[i]), Fraction(0)))
        packings = []
        for kind, members in enumerate(self.kinds):
            used: list[tuple[Fraction, bool, np.ndarray]] = []
            for x, (c, f) in zip(fractions[first:last], self.weights, strict=True):
                if c == kind and x:
                    used.append((x, *self.families[f]))
            if not used:
                continue
            packings.append({"groups": members, "families": [_family(*weighted) for weighted in used]})
            load = [Fraction(0)] * len(cap_price)
            for x, leaving, label in used:
                for i in np.flatnonzero(_crossed(self.ends, leaving, label)).tolist():
                    load[i] += x
            for i, weight in enumerate(load):
                if weight > cap_price[i] + own_price.get(i, 0):
                    own_price[i] = weight - cap_price[i]
        return {
            "kind": "groups-prices",
            "problem": digest(network, self.groups),
            "routes": [[i, show(x)] for i, x in sorted(own_price.items()) if x],
            "caps": [[k, show(x)] for k, x in enumerate(fractions[:caps]) if x],
            "packings": packings,
        }


def _family(weight: Fraction, leaving: bool, label: np.ndarray) -> list:
    """A weighted family as it is written in the certificate."""
    return [show(weight), "leaving" if leaving else "entering", label.tolist()]


def _crossed(ends: np.ndarray, leaving: bool, label: np.ndarray) -> np.ndarray:
    """Mask of the routes that leave (or enter) a region of the family."""
    src, dst = label[ends[:, 0]], label[ends[:, 1]]
    a, b = (src, dst) if leaving else (dst, src)
    return (a >= 0) & (a != b)
