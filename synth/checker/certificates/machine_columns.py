"""A machine of any size as arrays."""

from __future__ import annotations

import numpy as np

from synth.model.link_table import ends, members, widths
from synth.model.topology import Topology


class MachineColumns:
    """Ends of links, numbers of the bandwidths of links and limits, members of limits."""

    def __init__(self, topology: Topology) -> None:
        (wide, link), (narrow, limit) = widths(topology.links), widths(topology.limits)
        self.names = sorted({*wide, *narrow})
        number = {width: i for i, width in enumerate(self.names)}
        self.ranks, self.nodes = topology.ranks, topology.ranks + len(topology.switches)
        self.src, self.dst = ends(topology.links)
        self.link = np.array([number[w] for w in wide], np.int64)[link]
        self.limit = np.array([number[w] for w in narrow], np.int64)[limit]
        self.counts = np.fromiter((len(m.links) for m in topology.limits), np.int64, len(topology.limits))
        self.members = np.concatenate([np.zeros(0, np.int64), *members(topology.limits)])
