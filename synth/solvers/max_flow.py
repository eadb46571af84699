"""Maximum flow on one fixed set of arcs whose capacities change from call to call: what cuts, splitting and packing
share.

Capacities are whole numbers below `MOST`; the sum of those leaving the source is checked too, so that int64 never
wraps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from synth.errors import SynthError
from synth.solvers.processes.deadline import check

MOST = 1 << 61


class TooLarge(SynthError):
    """Capacities do not fit exact 64-bit flows: says nothing about what exists."""


class MaxFlow:
    """Arcs tail → head. `value(source, sink)` after `set` of their capacities; `inside()` is the least cut's source
    side."""

    def __init__(self, tail: Sequence[int] | np.ndarray, head: Sequence[int] | np.ndarray) -> None:
        from ortools.graph.python.max_flow import SimpleMaxFlow

        self._flow: Any = SimpleMaxFlow()  # its stubs give arrays the wrong type
        self._arcs = self._flow.add_arcs_with_capacity(
            np.asarray(tail, np.int32), np.asarray(head, np.int32), np.zeros(len(tail), np.int64)
        )
        self._nodes = self._flow.num_nodes()
        self.calls = 0

    def set(self, capacity: np.ndarray) -> None:
        """Capacities of all arcs, in the order given to the constructor."""
        self._flow.set_arcs_capacity(self._arcs, capacity)

    def set_one(self, arc: int, capacity: int) -> None:
        """The capacity of one arc."""
        self._flow.set_arc_capacity(arc, capacity)

    def value(self, source: int, sink: int) -> int:
        """The greatest flow. Raises TooLarge where capacities are too large to add up, TimeUp when the time limit is
        over."""
        check()
        self.calls += 1
        status = self._flow.solve(source, sink)
        if status != self._flow.OPTIMAL:
            raise TooLarge("capacities are too large for exact 64-bit flows; round the bandwidths to fewer digits")
        return self._flow.optimal_flow()

    def inside(self, nodes: int) -> np.ndarray:
        """After `value`: for each of the first `nodes` nodes whether the source still reaches it; False for nodes on no
        arc."""
        found = np.zeros(max(nodes, self._nodes), bool)
        found[self._flow.get_source_side_min_cut()] = True
        return found[:nodes]

    def flows(self) -> np.ndarray:
        """After `value`: the flow on every arc."""
        return np.asarray(self._flow.flows(self._arcs), np.int64)


def checked(total: int, what: str) -> None:
    """Raises TooLarge where `total` does not fit exact int64 flows."""
    if total >= MOST:
        raise TooLarge(
            f"{what}: capacities add up to {total}, too large for exact 64-bit flows; round the bandwidths to fewer "
            f"digits"
        )


def growing_flow() -> Any:
    """Return an empty `SimpleMaxFlow` of OR-tools, to which arcs are added one by one by its own methods.

    For graphs whose arcs are not known at once, and for the cut on the sink's side, which `MaxFlow` does not give.
    """
    from ortools.graph.python.max_flow import SimpleMaxFlow

    return SimpleMaxFlow()
