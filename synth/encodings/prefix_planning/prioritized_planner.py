"""Schedules for one chunk of a combining collective, planned backwards in time, without a solver.

A *slot* is the memory of one rank after one step. It holds one sum, as a schedule has one address for each chunk on
each rank. Planning begins with the slots after the last step, which hold the sums that the ranks want. Each *demand*
(a sum that a slot must receive) is decomposed: into a few smaller sums that other ranks are to hold (`Decomposition`),
which become demands themselves, and into inputs, which any rank may send at any time. A tree brings these terms
together (`synth.encodings.prefix_planning.steiner_growth`). It consists of free slots, each a step earlier than its
successor, and of cheapest paths: few sends, over links that carry little in that step. Later demands reach further
back, so the schedule begins where planning ends.

This is prioritized planning on the time-expanded graph (Silver, "Cooperative pathfinding", AIIDE 2005), from the goal.
It is a heuristic: a plan that fails proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random

from synth.encodings.prefix_planning.plan_cells import Cell, Decomposition, PlanningFailed, Slot
from synth.encodings.prefix_planning.settings import SETTINGS
from synth.encodings.prefix_planning.steiner_growth import SteinerGrowth
from synth.model.schedule import Send
from synth.model.topology import Network


@dataclass
class Planner:
    """Prioritized planner of one chunk over `network`.

    Attributes:
        decompositions: `decompositions(sum, rank)` returns the candidate decompositions of a demand, the best first.
        reach: maximum depth of a tree, in steps.
        guard: number of steps directly before a demand that other trees may not occupy.
        latest_first: plan the demand with the latest time first; otherwise the one with the most inputs.
        allow_detours: a sum that is only waiting in a slot may be stored on a neighbour for one step.
        poll: called periodically; it may raise to abort.
        sums: the sum in each slot that is in use.
        cells: the origin of each of these sums.
        demands: the first slots of sums that are not planned yet.
        planned_demands: number of demands planned so far.
        examined_moves: number of moves between slots examined so far, compared with `steiner_growth.EFFORT`.
        senders: slots whose sum is sent.
        loads: number of sends by (route, time of arrival).
    """

    network: Network
    rng: Random
    decompositions: Callable[[int, int], Sequence[Decomposition]]
    reach: int
    guard: int = 1
    latest_first: bool = False
    allow_detours: bool = True
    poll: Callable[[], None] = lambda: None
    sums: dict[Slot, int] = field(default_factory=dict)
    cells: dict[Slot, Cell] = field(default_factory=dict)
    demands: dict[Slot, int] = field(default_factory=dict)
    planned_demands: int = 0
    examined_moves: int = 0
    senders: set[Slot] = field(default_factory=set)
    loads: dict[Slot, int] = field(default_factory=dict)

    @cached_property
    def routes_between(self) -> dict[tuple[int, int], list[int]]:
        """Routes by (source, destination)."""
        routes: dict[tuple[int, int], list[int]] = {}
        for i, route in enumerate(self.network.routes):
            routes.setdefault((route.src, route.dst), []).append(i)
        return routes

    def plan(self, wanted: Sequence[tuple[int, int]]) -> dict[int, list[Send]]:
        """Return sends of chunk 0, by time of arrival, that bring each ``(sum, rank)`` of `wanted` to its rank at time
        0.

        Raises:
            PlanningFailed: a demand has no free path, or the effort is spent.
        """
        for total, rank in wanted:
            self.claim([(rank, 0)], total)
        while self.demands:
            self.poll()
            slot = max(self.demands, key=self._priority)
            self._plan_demand(slot, self.demands.pop(slot))
        # Detours and claims move sums after trees were planned, so the whole plan is added up once more.
        if any(self._arriving(slot) != total for slot, total in self.sums.items()):
            raise PlanningFailed
        return self._sends()

    def _priority(self, slot: Slot) -> tuple[int, int]:
        if self.latest_first:
            return slot[1], self.demands[slot]
        return self.demands[slot].bit_count(), slot[1]

    def _arriving(self, slot: Slot) -> int:
        """Return the sum of all terms that come together in a slot.

        Terms are added as integers, so an input that arrives twice changes the sum. The replay of the whole schedule
        decides in the end.
        """
        (rank, time), cell, routes = slot, self.cells[slot], self.network.routes
        total = (1 << rank) * cell.adds_own_input
        if cell.keeps:
            total += self.sums.get((rank, time - 1), 0)
        total += sum(1 << routes[r].src for r in cell.input_routes)
        return total + sum(self.sums.get((routes[r].src, time - 1), 0) for r in cell.sum_routes)

    # ------------------------------------------------------------ slots

    def is_free(self, slot: Slot) -> bool:
        """Return True if a tree may use a slot: it holds nothing, and no demand of its rank follows within `guard`
        steps, which may have to be met through this slot."""
        rank, time = slot
        return slot not in self.sums and not any(
            (rank, t) in self.demands for t in range(time + 1, time + 1 + self.guard)
        )

    def slots_to_claim(self, slot: Slot, total: int) -> list[Slot] | None:
        """Return the slots to claim so that `slot` holds a sum: an empty list if it does already, None if it cannot.

        If the rank demands the same sum later, or had it earlier, the slots in between are included.
        """
        if slot in self.sums:
            return [] if self.sums[slot] == total else None
        rank, time = slot
        until_demand = [slot]
        for t in range(time + 1, 1):
            if (rank, t) in self.sums:
                if self.demands.get((rank, t)) == total:
                    return until_demand
                break
            until_demand.append((rank, t))
        since_held = [slot]
        for t in range(time - 1, time - 1 - SETTINGS.earlier, -1):
            if (rank, t) in self.sums:
                if self.sums[rank, t] == total:
                    return since_held
                break
            since_held.append((rank, t))
        return [slot] if self.is_free(slot) else None

    def claim(self, slots: list[Slot], total: int) -> None:
        """Enter that a sum is held in these consecutive slots of one rank, which `slots_to_claim` returned.

        The first slot becomes a demand unless the rank holds the sum already a step earlier. A demand for the same sum
        directly after the last slot is met.
        """
        if not slots:
            return
        rank = slots[0][0]
        times = sorted(t for _, t in slots)
        for t in times:
            self.sums[rank, t] = total
            self.cells[rank, t] = Cell(keeps=t > times[0])
        after = (rank, times[-1] + 1)
        if self.demands.get(after) == total:
            del self.demands[after]
            self.cells[after].keeps = True
        if self.sums.get((rank, times[0] - 1)) == total:
            self.cells[rank, times[0]].keeps = True
        else:
            self.demands[rank, times[0]] = total

    def detours(self, slot: Slot) -> list[tuple[int, int, int]]:
        """Return ``(neighbour, route to it, route back)`` for each neighbour that can store the sum of `slot` for that
        step; none if the sum does more than wait there."""
        (rank, time), total = slot, self.sums.get(slot)
        cell, after = self.cells.get(slot), self.cells.get((rank, time + 1))
        waits = {self.sums.get((rank, t)) for t in (time - 1, time, time + 1)} == {total}
        if cell is None or after is None or not (waits and cell.keeps and after.keeps) or slot in self.senders:
            return []
        detours = []
        for back in self.network.into[rank]:
            neighbour = self.network.routes[back].src
            outward = self.routes_between.get((rank, neighbour))
            if outward and self.is_free((neighbour, time)):
                detours.append((neighbour, min(outward, key=lambda r: self.loads.get((r, time), 0)), back))
        return detours

    def take_detour(self, slot: Slot, detour: tuple[int, int, int]) -> None:
        """Store the sum that waits in `slot` on a neighbour for that step."""
        (rank, time), (neighbour, outward, back) = slot, detour
        self.sums[neighbour, time] = self.sums[slot]
        self.cells[neighbour, time] = Cell(sum_routes=[outward])
        self.cells[rank, time + 1] = Cell(sum_routes=[back])
        self.senders |= {(rank, time - 1), (neighbour, time)}
        for route, t in ((outward, time), (back, time + 1)):
            self.loads[route, t] = self.loads.get((route, t), 0) + 1

    # ------------------------------------------------------------ trees

    def _plan_demand(self, demand: Slot, total: int) -> None:
        """Plan a tree for one demand.

        The sum is completed at the latest time at which one of its decompositions has a tree. If there is none, a
        neighbour is to hold the sum meanwhile.
        """
        rank, due = demand
        self.planned_demands += 1
        if self.planned_demands > SETTINGS.demands * self.network.ranks:
            raise PlanningFailed
        neighbours = list(dict.fromkeys(self.network.routes[r].src for r in self.network.into[rank]))
        self.rng.shuffle(neighbours)
        at_neighbours = [Decomposition(((total, u),), ()) for u in neighbours]
        for choices in (self.decompositions(total, rank), at_neighbours):
            for time in range(due, due - SETTINGS.earlier, -1):
                if time < due and self.sums.get((rank, time)) == total:
                    self._keep(rank, time + 1, due, total)
                    return
                if time < due and not self.is_free((rank, time)):
                    break
                if any(SteinerGrowth(self, (rank, time), terms, total).grow() for terms in choices):
                    self._keep(rank, time + 1, due, total)
                    return
        raise PlanningFailed

    def _keep(self, rank: int, first: int, last: int, total: int) -> None:
        """Keep a sum on its rank from time `first` to time `last`."""
        for t in range(first, last + 1):
            self.sums[rank, t] = total
            self.cells[rank, t] = Cell(keeps=True)

    def send_cost(self, route: int, time: int) -> float:
        """Return the cost of a send over `route` in the step that ends at `time`."""
        return 1.0 + SETTINGS.busy_cost * self.loads.get((route, time), 0) / self.network.routes[route].units

    def _sends(self) -> dict[int, list[Send]]:
        sends_at: dict[int, list[Send]] = {}
        routes = self.network.routes
        for (rank, time), cell in sorted(self.cells.items()):
            arriving = [(r, "") for r in sorted(cell.sum_routes)]
            arriving += [(r, "-input") for r in sorted(cell.input_routes)]
            sends = [Send(0, routes[r].src, rank, "reduce" + suffix, routes[r].via) for r, suffix in arriving]
            if cell.adds_own_input:
                sends.append(Send(0, rank, rank, "reduce-input"))
            if sends and not cell.keeps:  # the first term overwrites the memory instead of being added to it
                sends[0] = sends[0]._replace(kind="copy" + sends[0].kind.removeprefix("reduce"))
            sends_at.setdefault(time, []).extend(sends)
        return sends_at
