"""A free group acting on the ranks, as a table: which element takes its orbit's least rank to each rank.

Methods that look at one receiver of each orbit see the same from every other through this table, and their sends are
carried to the listed units of a bulk schedule.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synth.errors import SynthError
from synth.model.compressed_schedule import COPY, Bulk
from synth.scale.fabric.automorphisms import free_group, orbits, symmetries
from synth.scale.fabric.fabric import Fabric

# Entries of the table.
MOST = 1 << 26


class Copies:
    """`reps`: the least rank of each orbit; `least[u]`: that of rank u; `to[u]`: the element that takes it to u;
    `back[u]` undoes it."""

    def __init__(self, fabric: Fabric, group: Sequence[np.ndarray] | None = None) -> None:
        moves = free_group(symmetries(fabric), fabric.ranks) if group is None else tuple(group)
        if fabric.ranks // max(1, len(moves)) and fabric.ranks * fabric.nodes > MOST:
            raise SynthError(f"{fabric.name}: {fabric.ranks} ranks are too many for this method")
        self.generators = tuple(moves)
        self.least = orbits(fabric.ranks, [pi[: fabric.ranks] for pi in moves])
        self.reps = np.unique(self.least)
        size = fabric.ranks // len(self.reps)
        made = [np.arange(fabric.nodes)]
        seen = {made[0][: fabric.ranks].tobytes()}
        for element in made:
            for pi in moves:
                image = pi[element]
                key = image[: fabric.ranks].tobytes()
                if key not in seen:
                    seen.add(key)
                    made.append(image)
        if len(made) != size:
            raise SynthError(f"{fabric.name}: the symmetries fix a rank")
        self.order = size
        self.to = np.empty((fabric.ranks, fabric.nodes), np.int32)
        for element in made:
            self.to[element[self.reps]] = element
        self.back = np.argsort(self.to, axis=1).astype(np.int32)


def listed(
    fabric: Fabric,
    copies: Copies,
    chunks: int,
    rounds: np.ndarray,
    step: np.ndarray,
    owner: np.ndarray,
    part: np.ndarray,
    edge: np.ndarray,
) -> Bulk:
    """An allgather from the sends that the listed receivers see, `part[i]` of `owner[i]`'s chunks over `edge[i]`,
    carried to listed owners.

    The fabric's edges are links of the topology.
    """
    a, b = copies.back[owner, fabric.src[edge]].astype(np.int64), copies.back[owner, fabric.dst[edge]]
    keys = fabric.src * fabric.nodes + fabric.dst
    order = np.argsort(keys, kind="stable")
    links = (
        fabric.link[order[np.searchsorted(keys[order], a * fabric.nodes + b)]]
        if copies.generators
        else fabric.link[edge]
    )
    used, path = np.unique(links, return_inverse=True)
    paths = tuple((int(link),) for link in used)
    generators = tuple(tuple(pi[: fabric.ranks].tolist()) for pi in copies.generators)
    chunk = copies.least[owner] * chunks + part
    return Bulk(
        fabric.topology,
        "allgather",
        None,
        chunks,
        rounds,
        step,
        chunk,
        path,
        np.full(len(step), COPY),
        paths,
        generators,
    )
