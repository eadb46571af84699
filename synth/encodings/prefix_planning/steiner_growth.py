"""Growth of one tree of the prioritized planner (`synth.encodings.prefix_planning.prioritized_planner`): the terms of
one sum travel through free slots, one step each, into the slot that is to hold the sum."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from synth.encodings.prefix_planning.plan_cells import Cell, Decomposition, PlanningFailed, Slot
from synth.encodings.prefix_planning.settings import SETTINGS

if TYPE_CHECKING:
    from synth.encodings.prefix_planning.prioritized_planner import Planner


Source = tuple[int, int]  # (rank, sum), sum 0 for the plain input of the rank


class _Entry(NamedTuple):
    """A slot at which a source may enter the tree, the cost of its send, and the route (None: the rank's own)."""

    slot: Slot
    cost: float
    route: int | None


class SteinerGrowth:
    """Tree that brings the terms of one sum together in the slot `root`.

    It is grown backwards from the root by breadth, with the cheapest successor of each slot, until each term can enter
    it somewhere. Then terms are joined one after another (the shortest-path heuristic for Steiner trees). The plan is
    changed only when the whole tree is valid.
    """

    def __init__(self, planner: Planner, root: Slot, terms: Decomposition, total: int) -> None:
        self.planner, self.root, self.terms, self.total = planner, root, terms, total
        self.detours: dict[Slot, tuple[int, int, int]] = {}  # slots whose waiting sum is stored on a neighbour
        self.reserved: dict[Slot, int] = {}  # sums that other ranks are to hold for this tree
        self.used: dict[Slot, Cell] = {root: Cell()}
        self.cost: dict[Slot, float] = {root: 0.0}  # of the path to the root
        self.successor: dict[Slot, tuple[Slot, float, int | None]] = {}  # next slot, cost, route (None: it waits)
        self.claims: list[tuple[list[Slot], int]] = []

    def grow(self) -> bool:
        """Enter a tree of least depth into the plan; return False if the search finds none."""
        sources = [(rank, total) for total, rank in self.terms.sums]
        sources += [(rank, 0) for rank in self.terms.inputs]
        missing = [s for s in sources if s != (self.root[0], 0)]
        front = [self.root]
        entries: dict[Source, list[_Entry]] = {s: [] for s in sources}
        for depth in range(self.planner.reach):
            for slot in front:
                for source in sources:
                    entries[source] += self._entries(source, slot)
            missing = [s for s in missing if not entries[s]]
            if not missing:
                return self._attach(sources, entries)
            if depth + 1 < self.planner.reach:
                front = self._predecessors(front)
        return False

    def _predecessors(self, front: list[Slot]) -> list[Slot]:
        """Return the free slots a step earlier that lead to `front`, each with its cheapest successor entered."""
        cheapest: dict[Slot, tuple[float, float, Slot, float, int | None]] = {}
        network, planner = self.planner.network, self.planner
        planner.poll()
        planner.examined_moves += sum(len(network.into[slot[0]]) for slot in front)
        if planner.examined_moves > SETTINGS.effort:
            raise PlanningFailed
        for slot in front:
            rank, time = slot
            origins: list[tuple[int, int | None]] = [(rank, None)]
            origins += [(network.routes[r].src, r) for r in network.into[rank]]
            for u, route in origins:
                before = (u, time - 1)
                step_cost = 0.0 if route is None else planner.send_cost(route, time)
                offer = (self.cost[slot] + step_cost, planner.rng.random(), slot, step_cost, route)
                if not planner.is_free(before):
                    if not planner.allow_detours or not planner.detours(before):
                        continue
                    offer = (self.cost[slot] + step_cost + SETTINGS.detour_cost, *offer[1:])
                if before not in cheapest or offer[:2] < cheapest[before][:2]:
                    cheapest[before] = offer
        for before, (cost, _, slot, step_cost, route) in cheapest.items():
            self.cost[before], self.successor[before] = cost, (slot, step_cost, route)
        return list(cheapest)

    def _entries(self, source: Source, slot: Slot) -> Iterator[_Entry]:
        """Yield the entries of a source into the tree at `slot`."""
        (rank, total), (at, time) = source, slot
        if total and self.planner.slots_to_claim((rank, time - 1), total) is None:
            return
        if rank == at:
            yield _Entry(slot, 0.0, None)
            return
        for r in self.planner.routes_between.get((rank, at), ()):
            yield _Entry(slot, self.planner.send_cost(r, time), r)

    def _attach(self, sources: list[Source], entries: dict[Source, list[_Entry]]) -> bool:
        """Join every source to the tree by its cheapest path, sums first, then the farthest inputs; then enter the
        tree into the plan. Return False if a source has no free path."""
        distance: dict[Source, float] = {}
        for source in sources:
            distance[source] = min((self.cost[e.slot] + e.cost for e in entries[source]), default=0.0)
        for source in sorted(sources, key=lambda s: (not s[1], -distance[s])):
            rank, total = source
            if not total and self._add_input_inside(rank):
                continue
            entry = self._cheapest_entry(source, entries[source])
            if entry is None or not self._join(entry.slot):
                return False
            cell = self.used[entry.slot]
            if total:
                before = (rank, entry.slot[1] - 1)
                slots = self.planner.slots_to_claim(before, total) or []
                self.claims.append((slots, total))
                self.reserved |= dict.fromkeys([*slots, before], total)
                if entry.route is None:
                    cell.keeps = True
                else:
                    cell.sum_routes.append(entry.route)
            elif entry.route is None:
                cell.adds_own_input = True
            else:
                cell.input_routes.append(entry.route)
        return self._commit()

    def _cheapest_entry(self, source: Source, entries: list[_Entry]) -> _Entry | None:
        """Return the entry with the cheapest path to the tree, the latest one among equals; None if all are blocked."""
        rank, total = source
        usable = [e for e in entries if not total or self._is_claimable((rank, e.slot[1] - 1), total)]
        best, least = None, inf
        for entry in usable:
            cost = self._path_cost(entry.slot) + entry.cost
            if cost < least or (cost == least and best is not None and entry.slot[1] > best.slot[1]):
                best, least = entry, cost
        return best

    def _add_input_inside(self, rank: int) -> bool:
        """Add the input of a rank in its last slot of the tree; return False if the tree does not visit the rank."""
        times = [t for r, t in self.used if r == rank]
        if times:
            self.used[rank, max(times)].adds_own_input = True
        return bool(times)

    def _is_claimable(self, slot: Slot, total: int) -> bool:
        """Return True if a slot can hold a sum beside all that this tree uses."""
        slots = self.planner.slots_to_claim(slot, total)
        return slots is not None and not any(self._is_touched(s) and self.reserved.get(s) != total for s in slots)

    def _path_cost(self, slot: Slot) -> float:
        """Return the cost of the path from a slot to the tree, infinite if another part of the tree blocks it."""
        cost = 0.0
        while slot not in self.used:
            if slot in self.reserved or self._holds_detour(slot):
                return inf
            slot, step_cost, _ = self.successor[slot]
            cost += step_cost
        return cost

    def _join(self, slot: Slot) -> bool:
        """Add the path from a slot to the tree; return False if a slot of it is taken."""
        path = []
        while slot not in self.used:
            if self._is_touched(slot):
                return False
            if slot in self.planner.sums:
                # The second of two detours in adjacent steps would send from the slot that the first one empties.
                adjacent = {(slot[0], slot[1] - 1), (slot[0], slot[1] + 1)}
                if adjacent & self.detours.keys() or self._precedes_claim(slot):
                    return False
                options = self.planner.detours(slot)
                detour = next((d for d in options if not self._is_touched((d[0], slot[1]))), None)
                if detour is None:
                    return False
                self.detours[slot] = detour
            self.used[slot] = Cell()
            path.append(slot)
            slot = self.successor[slot][0]
        for at in path:
            then, _, route = self.successor[at]
            if route is None:
                self.used[then].keeps = True
            else:
                self.used[then].sum_routes.append(route)
        return True

    def _precedes_claim(self, slot: Slot) -> bool:
        """Return True if a sum that this tree claims is kept from what waits in `slot`."""
        return any(slot[0] == s[0] and slot[1] + 1 == s[1] for slots, _ in self.claims for s in slots)

    def _holds_detour(self, slot: Slot) -> bool:
        """Return True if a detour of this tree stores a sum in `slot`."""
        return any(slot == (detour[0], s[1]) for s, detour in self.detours.items())

    def _is_touched(self, slot: Slot) -> bool:
        """Return True if this tree uses a slot in any way."""
        return slot in self.used or slot in self.reserved or self._holds_detour(slot)

    def _commit(self) -> bool:
        """Enter the tree into the plan; return False if its terms do not add up to the sum."""
        planner, value = self.planner, dict(self.reserved)
        for slot in sorted(self.used, key=lambda s: s[1]):
            rank, time = slot
            cell = self.used[slot]
            terms = [1 << planner.network.routes[r].src for r in cell.input_routes]
            terms += [1 << rank] * cell.adds_own_input
            terms += [value.get((planner.network.routes[r].src, time - 1), 0) for r in cell.sum_routes]
            terms += [value.get((rank, time - 1), 0)] * cell.keeps
            value[slot] = sum(terms)
        if value[self.root] != self.total:
            return False
        for slot, detour in self.detours.items():
            planner.take_detour(slot, detour)
        for slot, cell in self.used.items():
            planner.sums[slot], planner.cells[slot] = value[slot], cell
            planner.senders |= {(planner.network.routes[r].src, slot[1] - 1) for r in cell.sum_routes}
            for route in (*cell.sum_routes, *cell.input_routes):
                planner.loads[route, slot[1]] = planner.loads.get((route, slot[1]), 0) + 1
        for slots, total in self.claims:
            planner.claim([s for s in slots if s not in planner.sums], total)
        return True
