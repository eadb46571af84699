"""Whether rings are what they are said to be: each a way round through all ranks, and all together within every link's
room.

Reads the machine itself and shares nothing with what looks for rings.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synth.errors import VerificationError
from synth.model.link_table import ends, members, widths
from synth.model.topology import Network, Topology


def check(
    machine: Network | Topology, rings: Sequence[tuple[Sequence[int], int]], ways: Sequence[Sequence[int]]
) -> None:
    """Raises VerificationError unless the rings, each (ranks in their order, units), fit the machine's links together.

    `ways[k][i]` is the link (of a Network or a Topology with switches: the route) from the i-th rank of ring k to the
    next.
    """
    src, dst, room, limits = _read(machine)
    if len(ways) != len(rings):
        raise VerificationError(f"{len(rings)} rings with the links of {len(ways)}")
    total = sum(int(units) for _, units in rings) * machine.ranks
    load = np.zeros(len(room), np.int64 if total < 1 << 62 else object)
    for k, ((order, units), links) in enumerate(zip(rings, ways, strict=True)):
        ranks, taken = np.array(order, np.int64), np.array(links, np.int64)
        if units < 1 or not np.array_equal(np.sort(ranks), np.arange(machine.ranks)) or len(taken) != len(ranks):
            raise VerificationError(f"ring {k} is not once round through all {machine.ranks} ranks")
        if ((taken < 0) | (taken >= len(room))).any():
            raise VerificationError(f"ring {k} takes a link that {machine.name} has not")
        wrong = (src[taken] != ranks) | (dst[taken] != np.roll(ranks, -1))
        if wrong.any():
            at = int(np.argmax(wrong))
            raise VerificationError(f"ring {k}: link {taken[at]} does not lead from rank {ranks[at]} to the next one")
        np.add.at(load, taken, units)
    over = [i for i in np.flatnonzero(load).tolist() if load[i] > room[i]]
    if over:
        raise VerificationError(f"rings take {load[over[0]]} units of link {over[0]}, which has {room[over[0]]}")
    for k, (links, most) in enumerate(limits):
        if load[links].sum() > most:
            raise VerificationError(f"rings take {load[links].sum()} units of limit {k}, which has {most}")


def _read(machine: Network | Topology) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[tuple[np.ndarray, int]]]:
    if isinstance(machine, Topology) and machine.switches:
        machine = machine.network()
    if isinstance(machine, Network):
        src, dst = (np.array([getattr(r, end) for r in machine.routes], np.int64) for end in ("src", "dst"))
        room = np.array([r.units for r in machine.routes], object)
        return src, dst, room, [(np.array(c.routes, np.int64), c.units) for c in machine.caps]
    unit = machine.unit_bandwidth()
    wide, which = widths(machine.links)
    room = np.array([int(w / unit) for w in wide], object)[which]
    sets = zip(members(machine.limits), machine.limits, strict=True)
    return *ends(machine.links), room, [(m, int(limit.bandwidth / unit)) for m, limit in sets]
