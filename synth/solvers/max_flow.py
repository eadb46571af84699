"""Maximum flow on one fixed set of arcs whose capacities change from call to call, for cuts, splitting and packing.

Capacities are integers below `MAX_CAPACITY_SUM`, and so is the sum of those that leave the source (callers see to that
by `check_capacity_sum`), so that int64 never wraps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from synth.errors import SynthError
from synth.solvers.deadline import check_deadline

# Limit of a capacity, and of the sum of capacities. Twice as much still fits int64.
MAX_CAPACITY_SUM = 1 << 61


class CapacityOverflowError(SynthError):
    """Capacities do not fit exact 64-bit flows. This refutes nothing."""


class MaxFlow:
    """Maximum flows over arcs ``tail[i]`` → ``head[i]`` between nodes 0, 1, ...

    Call `set_capacities`, then `value`, then `source_side` for a minimum cut or `flows`. `calls`: number of flows so
    far.
    """

    def __init__(self, tail: Sequence[int] | np.ndarray, head: Sequence[int] | np.ndarray) -> None:
        from ortools.graph.python.max_flow import SimpleMaxFlow

        self._flow: Any = SimpleMaxFlow()  # its stubs give arrays the wrong type
        self._arcs = self._flow.add_arcs_with_capacity(
            np.asarray(tail, np.int32), np.asarray(head, np.int32), np.zeros(len(tail), np.int64)
        )
        self._nodes = self._flow.num_nodes()
        self.calls = 0

    def set_capacities(self, capacity: np.ndarray) -> None:
        """Set the integer capacities of all arcs, in the order of the constructor. They are 0 at first."""
        self._flow.set_arcs_capacity(self._arcs, capacity)

    def set_capacity(self, arc: int, capacity: int) -> None:
        """Set the capacity of one arc."""
        self._flow.set_arc_capacity(arc, capacity)

    def value(self, source: int, sink: int) -> int:
        """Return the value of a maximum flow from `source` to `sink`.

        Raises CapacityOverflowError where capacities are too large to add up, TimeUp at the ambient deadline.
        """
        check_deadline()
        self.calls += 1
        status = self._flow.solve(source, sink)
        if status != self._flow.OPTIMAL:
            raise CapacityOverflowError(
                "capacities are too large for exact 64-bit flows; round the bandwidths to fewer digits"
            )
        return self._flow.optimal_flow()

    def source_side(self, nodes: int) -> np.ndarray:
        """Return, after `value`, a Boolean array: True for each of the first `nodes` nodes on the source side of a
        minimum cut.

        It is False for nodes on no arc.
        """
        inside = np.zeros(max(nodes, self._nodes), bool)
        inside[self._flow.get_source_side_min_cut()] = True
        return inside[:nodes]

    def flows(self) -> np.ndarray:
        """Return, after `value`, the flow on every arc."""
        return np.asarray(self._flow.flows(self._arcs), np.int64)


def check_capacity_sum(total: int, what: str) -> None:
    """Raise CapacityOverflowError where `total` is not below `MAX_CAPACITY_SUM`. `what`: the capacities, for the
    message."""
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
