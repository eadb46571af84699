"""Maximum flow on one fixed set of arcs whose capacities change from call to call, for cuts, splitting and packing.

Capacities are integers below `MOST`. The sum of those leaving the source is checked, too, so that int64 never wraps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from synth.errors import SynthError
from synth.solvers.processes.deadline import check_deadline

# Limit of a capacity, and of the sum of capacities. Twice as much still fits int64.
MAX_CAPACITY_SUM = 1 << 61


class CapacityOverflowError(SynthError):
    """Capacities do not fit exact 64-bit flows. This refutes nothing."""


class MaxFlow:
    """Maximum flows over arcs tail → head.

    Call `set` for their capacities, then `value(source, sink)`, then `inside()` for the source side of the minimum cut.
    """

    def __init__(self, tail: Sequence[int] | np.ndarray, head: Sequence[int] | np.ndarray) -> None:
        from ortools.graph.python.max_flow import SimpleMaxFlow

        self._flow: Any = SimpleMaxFlow()  # its stubs give arrays the wrong type
        self._arcs = self._flow.add_arcs_with_capacity(
            np.asarray(tail, np.int32), np.asarray(head, np.int32), np.zeros(len(tail), np.int64)
        )
        self._nodes = self._flow.num_nodes()
        self.calls = 0

    def set(self, capacity: np.ndarray) -> None:
        """Set the capacities of all arcs, in the order of the constructor."""
        self._flow.set_arcs_capacity(self._arcs, capacity)

    def set_one(self, arc: int, capacity: int) -> None:
        """Set the capacity of one arc."""
        self._flow.set_arc_capacity(arc, capacity)

    def value(self, source: int, sink: int) -> int:
        """Return the value of a maximum flow.

        Raises TooLarge where capacities are too large to add up, TimeUp when the time limit is over.
        """
        check_deadline()
        self.calls += 1
        status = self._flow.solve(source, sink)
        if status != self._flow.OPTIMAL:
            raise CapacityOverflowError(
                "capacities are too large for exact 64-bit flows; round the bandwidths to fewer digits"
            )
        return self._flow.optimal_flow()

    def inside(self, nodes: int) -> np.ndarray:
        """Return, after `value`, for each of the first `nodes` nodes True where it is on the source side of the cut.

        Nodes on no arc are not.
        """
        inside = np.zeros(max(nodes, self._nodes), bool)
        inside[self._flow.get_source_side_min_cut()] = True
        return inside[:nodes]

    def flows(self) -> np.ndarray:
        """Return, after `value`, the flow on every arc."""
        return np.asarray(self._flow.flows(self._arcs), np.int64)


def check_capacity_sum(total: int, what: str) -> None:
    """Raise TooLarge where `total` does not fit exact int64 flows. `what`: the capacities, for the message."""
    if total >= MAX_CAPACITY_SUM:
        raise CapacityOverflowError(
            f"{what}: capacities add up to {total}, too large for exact 64-bit flows; round the bandwidths to fewer "
            f"digits"
        )


def growing_flow() -> Any:
    """Return an empty `SimpleMaxFlow` of OR-tools, to which arcs are added one by one by its own methods.

    For graphs whose arcs are not known at once, and for the cut on the sink's side, which `MaxFlow` does not give.
    """
    from ortools.graph.python.max_flow import SimpleMaxFlow

    return SimpleMaxFlow()
