"""The numbers that tune prefix planning: costs in sends, and limits of the search."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PrefixPlanningSettings:
    """Costs and limits of the planner of one chunk of a scan.

    Attributes:
        alternatives: Most further decompositions of one sum, beside the one of the rule.
        near: Greatest diameter of the network, in steps, at which blocked rules are tried: beyond it they
            rarely find capacity.
        busy_cost: Cost of a send for each round's worth of load on its link in the same step. A free send costs
            1.
        earlier: Most steps by which a sum may be complete before its demand.
        demands: Most demands per rank before a plan is given up, so that loops of detours end.
        detour_cost: Cost of moving a waiting sum out of a slot. It takes two sends, and is worth avoiding.
        effort: Most moves between slots that one plan examines before it is given up.
    """

    alternatives: int = 6
    near: int = 2
    busy_cost: float = 2.0
    earlier: int = 30
    demands: int = 12
    detour_cost: float = 3.0
    effort: int = 600_000


SETTINGS = PrefixPlanningSettings()
