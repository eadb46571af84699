"""Free group action on the ranks as a table: the element that takes the least rank of an orbit to each other rank.

Methods that look at one receiver of each orbit (a representative) see the same from every other rank through this
table. Their sends are carried to the representative owners of a compressed schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from synth.errors import SynthError
from synth.model.compressed_schedule import COPY, REDUCE, CompressedSchedule
from synth.scale.fabric.automorphisms import free_group, orbits, symmetries
from synth.scale.fabric.fabric import Fabric

# Entries of the table (ranks x nodes); at 4 bytes each, two tables take half a gigabyte.
MAXIMUM_ENTRIES = 1 << 26


class GroupAction:
    """A free group of automorphisms of a fabric.

    `representatives`: the least rank of each orbit. `representative[u]`: that of the orbit of rank u. `to[u]`: the
    element, a permutation of the nodes, that takes it to u. `back[u]`: the inverse of `to[u]`. `order`: the number of
    elements.
    """

    def __init__(self, fabric: Fabric, group: Sequence[np.ndarray] | None = None) -> None:
        """`group`: generators; by default those of a free subgroup of the fabric's symmetries.

        Raises SynthError where the table is too large, or the group is not free.
        """
        generators = free_group(symmetries(fabric), fabric.ranks) if group is None else tuple(group)
        if fabric.ranks // max(1, len(generators)) and fabric.ranks * fabric.nodes > MAXIMUM_ENTRIES:
            raise SynthError(f"{fabric.name}: {fabric.ranks} ranks are too many for this method")
        self.generators = tuple(generators)
        self.representative = orbits(fabric.ranks, [pi[: fabric.ranks] for pi in generators])
        self.representatives = np.unique(self.representative)
        self.order = fabric.ranks // len(self.representatives)
        elements = [np.arange(fabric.nodes)]
        known = {elements[0][: fabric.ranks].tobytes()}
        for element in elements:  # grows while it is read: the closure under the generators
            for pi in generators:
                image = pi[element]
                key = image[: fabric.ranks].tobytes()
                if key not in known:
                    known.add(key)
                    elements.append(image)
        if len(elements) != self.order:
            raise SynthError(f"{fabric.name}: the symmetries fix a rank")
        self.to = np.empty((fabric.ranks, fabric.nodes), np.int32)
        for element in elements:
            self.to[element[self.representatives]] = element
        self.back = np.argsort(self.to, axis=1).astype(np.int32)


@dataclass(frozen=True)
class ArrivalColumns:
    """Sends into the representatives, as columns: chunk `part[i]` of rank `owner[i]` over `edge[i]` in `step[i]`."""

    step: np.ndarray
    owner: np.ndarray
    part: np.ndarray
    edge: np.ndarray


def compressed_allgather(
    fabric: Fabric, action: GroupAction, chunks: int, rounds: np.ndarray, arrivals: ArrivalColumns
) -> CompressedSchedule:
    """Return the allgather whose sends into the representatives are `arrivals`, as a compressed schedule.

    Each send is moved by the element that takes its owner to the owner's representative. The fabric's edges must be
    links of the topology; on a flipped one the schedule is a reduce-scatter, in which time runs backwards. `rounds[t]`:
    rounds of step t.
    """
    owner, edge = arrivals.owner, arrivals.edge
    src = action.back[owner, fabric.src[edge]].astype(np.int64)
    dst = action.back[owner, fabric.dst[edge]]
    links = fabric.link[edge]
    if action.generators:
        keys = fabric.src * fabric.nodes + fabric.dst
        order = np.argsort(keys, kind="stable")
        links = fabric.link[order[np.searchsorted(keys[order], src * fabric.nodes + dst)]]
    used, path = np.unique(links, return_inverse=True)
    kind, step = COPY, arrivals.step
    if fabric.flipped:
        kind, step, rounds = REDUCE, len(rounds) - 1 - step, rounds[::-1].copy()
    generators = tuple(tuple(pi[: fabric.ranks].tolist()) for pi in action.generators)
    return CompressedSchedule(
        fabric.topology, "reduce-scatter" if fabric.flipped else "allgather", None, chunks, rounds, step,
        action.representative[owner] * chunks + arrivals.part, path, np.full(len(step), kind),
        tuple((int(link),) for link in used), generators,
    )  # fmt: skip
