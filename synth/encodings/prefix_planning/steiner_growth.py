"""The way of the parts of one sum into the slot that is to hold it: a tree through free slots, one step apart
(`synth.encodings.prefix_planning.prioritized_planner`)."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING

from synth.encodings.prefix_planning.plan_cells import Cell, Parts, Slot, Stuck

if TYPE_CHECKING:
    from synth.encodings.prefix_planning.prioritized_planner import Loom

LENT = 3.0  # what it costs to put something out of the way
EFFORT = 600_000  # ways between slots that are looked at before a plan is given up


class Tree:
    """The way of the parts of one sum into the slot `root`."""

    def __init__(self, loom: Loom, root: Slot, asked: Parts, total: int) -> None:
        self.loom, self.root, self.asked, self.total = loom, root, asked, total
        self.lent: dict[Slot, tuple[int, int, int]] = {}  # slots whose sums are elsewhere meanwhile
        self.taken: dict[Slot, int] = {}  # what other ranks are to hold for it
        self.used: dict[Slot, Cell] = {root: Cell()}
        self.cost: dict[Slot, float] = {root: 0.0}
        self.onto: dict[
            Slot, tuple[Slot, float, int | None]
        ] = {}  # the slot that one leads to, the fee, the route (None: kept)
        self.claims: list[tuple[list[Slot], int]] = []

    def grow(self) -> bool:
        """Makes it, with as few steps as do; False where there is no room."""
        sources = [(rank, total) for total, rank in self.asked.sums] + [(rank, 0) for rank in self.asked.inputs]
        missing = [s for s in sources if s != (self.root[0], 0)]
        front = [self.root]
        doors: dict[tuple[int, int], list] = {s: [] for s in sources}
        for depth in range(self.loom.reach):
            for slot in front:
                for source in sources:
                    doors[source] += self._doors(source, slot)
            missing = [s for s in missing if not doors[s]]
            if not missing:
                return self._attach(sources, doors)
            if depth + 1 < self.loom.reach:
                front = self._back(front)
        return False

    def _back(self, front: list[Slot]) -> list[Slot]:
        """The free slots a step earlier that lead to `front`, each by its cheapest way."""
        found: dict[Slot, tuple[float, float, Slot, float, int | None]] = {}
        network, loom = self.loom.network, self.loom
        loom.look()
        loom.seen += sum(len(network.into[slot[0]]) for slot in front)
        if loom.seen > EFFORT:
            raise Stuck
        for slot in front:
            rank, time = slot
            near: list[tuple[int, int | None]] = [
                (rank, None),
                *((network.routes[r].src, r) for r in network.into[rank]),
            ]
            for u, route in near:
                before = (u, time - 1)
                fee = 0.0 if route is None else loom.fee(route, time)
                offer = (self.cost[slot] + fee, loom.rng.random(), slot, fee, route)
                if not loom.empty(before):
                    if not loom.lends or not loom.places(before):
                        continue
                    offer = (self.cost[slot] + fee + LENT, *offer[1:])
                if before not in found or offer[:2] < found[before][:2]:
                    found[before] = offer
        for before, (cost, _, slot, fee, route) in found.items():
            self.cost[before], self.onto[before] = cost, (slot, fee, route)
        return list(found)

    def _doors(self, source: tuple[int, int], slot: Slot) -> Iterator[tuple[Slot, float, int | None]]:
        """Where a source may enter the tree at `slot`: with the fee, and the route."""
        (rank, total), (at, time) = source, slot
        if total and self.loom.room((rank, time - 1), total) is None:
            return
        if rank == at:
            yield slot, 0.0, None
            return
        for r in self.loom.between.get((rank, at), ()):
            yield slot, self.loom.fee(r, time), r

    def _attach(self, sources: list[tuple[int, int]], doors: dict) -> bool:
        """Joins every source to the tree by its cheapest way, sums first, then the farthest inputs."""
        far = {s: min((self.cost[d[0]] + d[1] for d in doors[s]), default=0.0) for s in sources}
        for source in sorted(sources, key=lambda s: (not s[1], -far[s])):
            rank, total = source
            if not total and self._inside(rank):
                continue
            able = [d for d in doors[source] if not total or self._clear((rank, d[0][1] - 1), total)]
            priced = [(self._price(d[0]) + d[1], -d[0][1], d[0], d[2]) for d in able]
            slot, route, least = None, None, inf
            for price, place, at, over in priced:
                if price < least or (price == least and slot is not None and place < -slot[1]):
                    slot, route, least = at, over, price
            if slot is None:
                return False
            if not self._join(slot):
                return False
            cell = self.used[slot]
            if total:
                before = (rank, slot[1] - 1)
                room = self.loom.room(before, total) or []
                self.claims.append((room, total))
                self.taken |= dict.fromkeys([*room, before], total)
                if route is None:
                    cell.keeps = True
                else:
                    cell.totals.append(route)
            elif route is None:
                cell.own = True
            else:
                cell.inputs.append(route)
        return self._commit()

    def _inside(self, rank: int) -> bool:
        """Adds the input of a rank that the tree goes through where it does so last."""
        times = [t for r, t in self.used if r == rank]
        if times:
            self.used[rank, max(times)].own = True
        return bool(times)

    def _clear(self, slot: Slot, total: int) -> bool:
        """Whether a sum can be held in a slot beside what this tree takes."""
        room = self.loom.room(slot, total)
        return room is not None and not any(self._touched(s) and self.taken.get(s) != total for s in room)

    def _price(self, slot: Slot) -> float:
        """What the way from a slot to the tree costs."""
        spent = 0.0
        while slot not in self.used:
            if slot in self.taken or any(slot == (p[0], s[1]) for s, p in self.lent.items()):
                return inf
            slot, fee, _ = self.onto[slot]
            spent += fee
        return spent

    def _join(self, slot: Slot) -> bool:
        """The way from a slot to the tree becomes part of it; False where something is in its way."""
        path = []
        while slot not in self.used:
            if self._touched(slot):
                return False
            if slot in self.loom.held:
                beside = {(slot[0], slot[1] - 1), (slot[0], slot[1] + 1)}
                if beside & self.lent.keys() or self._leans(slot):
                    return False
                place = next((p for p in self.loom.places(slot) if not self._touched((p[0], slot[1]))), None)
                if place is None:
                    return False
                self.lent[slot] = place
            self.used[slot] = Cell()
            path.append(slot)
            slot = self.onto[slot][0]
        for at in path:
            then, _, route = self.onto[at]
            if route is None:
                self.used[then].keeps = True
            else:
                self.used[then].totals.append(route)
        return True

    def _leans(self, slot: Slot) -> bool:
        """Whether a sum that this tree is to take comes from what stays in a slot."""
        return any(slot[0] == s[0] and slot[1] + 1 == s[1] for slots, _ in self.claims for s in slots)

    def _touched(self, slot: Slot) -> bool:
        """Whether this tree takes a slot for something."""
        return slot in self.used or slot in self.taken or any(slot == (p[0], s[1]) for s, p in self.lent.items())

    def _commit(self) -> bool:
        """Enters the tree into the plan, if its sums add up."""
        loom, value = self.loom, dict(self.taken)
        for slot in sorted(self.used, key=lambda s: s[1]):
            rank, time = slot
            cell = self.used[slot]
            terms = [1 << loom.network.routes[r].src for r in cell.inputs] + [1 << rank] * cell.own
            terms += [value.get((loom.network.routes[r].src, time - 1), 0) for r in cell.totals] + [
                value.get((rank, time - 1), 0)
            ] * cell.keeps
            value[slot] = sum(terms)
        if value[self.root] != self.total:
            return False
        for slot, place in self.lent.items():
            loom.lend(slot, place)
        for slot, cell in self.used.items():
            loom.held[slot], loom.cells[slot] = value[slot], cell
            loom.sent |= {(loom.network.routes[r].src, slot[1] - 1) for r in cell.totals}
            for route in (*cell.totals, *cell.inputs):
                loom.load[route, slot[1]] = loom.load.get((route, slot[1]), 0) + 1
        for slots, total in self.claims:
            loom.claim([s for s in slots if s not in loom.held], total)
        return True
