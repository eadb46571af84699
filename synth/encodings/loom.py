"""Schedules for one chunk of a combining collective, planned backwards in time, without a solver.

A *slot* is what one rank holds after one step: one sum, as a schedule has one address for each chunk on each rank. Planning
begins with the slots after the last step, which hold what the ranks want. Each sum that is needed somewhere is taken apart: into a
few sums that other ranks are to hold (`Parts`, the plan's choice), which become needs themselves, and inputs, which any rank may
send at any time. These come together on a tree through slots that nothing else uses, each a step earlier than the one it leads
to: the tree of the cheapest ways, cheap being few sends over links that carry little in that step. What is planned later lies
earlier, so time begins where the planning ends. This is prioritized planning on the time-expanded graph (Silver, "Cooperative
pathfinding", AIIDE 2005), from the goal.

A plan that gets stuck says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from random import Random
from typing import NamedTuple

from synth.schedule import Send
from synth.topology import Network

Slot = tuple[int, int]  # a rank and a time: 0 after the last step, -1 before it
BUSY = 2.0  # what a send costs more for each round's worth that its link carries in that step already
EARLIER = 30  # steps by which a sum may be complete before it is needed, at most
LENT = 3.0  # what it costs to put something out of the way
NEEDS = 12  # for each rank: sums that are put together, at most, before a plan is given up
EFFORT = 600_000  # ways between slots that are looked at before it is


class Parts(NamedTuple):
    """What a sum is made of: ``(sum, rank)`` that are to be held somewhere, and the ranks whose inputs are added. Sums are bit sets."""

    sums: tuple[tuple[int, int], ...]
    inputs: tuple[int, ...]


class Stuck(Exception):
    """There is no free way for something that is needed."""


@dataclass(eq=False)
class Cell:
    """How a slot comes to hold its sum: whether it keeps what it held, adds its rank's input, and what arrives over which routes."""

    keeps: bool = False
    own: bool = False
    totals: list[int] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)


@dataclass
class Loom:
    """The plan of one chunk over `network`.

    `parts(sum, rank)` says what a sum may be made of, the best first. Trees reach at most `reach` steps back. `guard`: steps before a
    need that stay free for what it is made of. `latest`: the latest need is met first, else that of the most inputs. `lends`: what only
    stays in a slot may be elsewhere for a step. `look` is called now and then, and may raise.
    """

    network: Network
    rng: Random
    parts: Callable[[int, int], Sequence[Parts]]
    reach: int
    guard: int = 1
    latest: bool = False
    lends: bool = True
    look: Callable[[], None] = lambda: None
    held: dict[Slot, int] = field(default_factory=dict)
    cells: dict[Slot, Cell] = field(default_factory=dict)
    needs: dict[Slot, int] = field(default_factory=dict)  # the first slots of sums that are not made yet
    woven: int = 0
    seen: int = 0
    sent: set[Slot] = field(default_factory=set)  # slots that something is sent from
    load: dict[Slot, int] = field(default_factory=dict)  # sends over each route in the step that leads to a time

    @cached_property
    def between(self) -> dict[tuple[int, int], list[int]]:
        """The routes from one rank to another."""
        found: dict[tuple[int, int], list[int]] = {}
        for i, route in enumerate(self.network.routes):
            found.setdefault((route.src, route.dst), []).append(i)
        return found

    def plan(self, wanted: Sequence[tuple[int, int]]) -> dict[int, list[Send]]:
        """Sends of chunk 0, by time, after which each ``(sum, rank)`` is where it is wanted at time 0. Raises Stuck."""
        for total, rank in wanted:
            self._claim([(rank, 0)], total)
        while self.needs:
            self.look()
            slot = max(self.needs, key=lambda s: (s[1], self.needs[s]) if self.latest else (self.needs[s].bit_count(), s[1]))
            self._weave(slot, self.needs.pop(slot))
        if any(self._arriving(slot) != total for slot, total in self.held.items()):
            raise Stuck
        return self._sends()

    def _arriving(self, slot: Slot) -> int:
        """What comes together in a slot."""
        (rank, time), cell, routes = slot, self.cells[slot], self.network.routes
        total = (1 << rank) * cell.own + (self.held.get((rank, time - 1), 0) if cell.keeps else 0)
        total += sum(1 << routes[r].src for r in cell.inputs)
        return total + sum(self.held.get((routes[r].src, time - 1), 0) for r in cell.totals)

    # ------------------------------------------------------------ slots

    def _empty(self, slot: Slot) -> bool:
        """Whether a tree may use a slot: nothing is held there, and no need is near that could only be met before it."""
        rank, time = slot
        return slot not in self.held and not any((rank, t) in self.needs for t in range(time + 1, time + 1 + self.guard))

    def _room(self, slot: Slot, total: int) -> list[Slot] | None:
        """The slots to claim so that a sum is held in `slot`: none where it is; None where it cannot be."""
        if slot in self.held:
            return [] if self.held[slot] == total else None
        rank, time = slot
        later = [slot]
        for t in range(time + 1, 1):  # until it is needed again
            if (rank, t) in self.held:
                if self.needs.get((rank, t)) == total:
                    return later
                break
            later.append((rank, t))
        before = [slot]
        for t in range(time - 1, time - 1 - EARLIER, -1):  # since it was there
            if (rank, t) in self.held:
                if self.held[rank, t] == total:
                    return before
                break
            before.append((rank, t))
        return [slot] if self._empty(slot) else None

    def _claim(self, slots: list[Slot], total: int) -> None:
        """Notes that a sum is held in these slots of one rank, which `_room` gave."""
        if not slots:
            return
        rank = slots[0][0]
        times = sorted(t for _, t in slots)
        for t in times:
            self.held[rank, t] = total
            self.cells[rank, t] = Cell(keeps=t > times[0])
        after = (rank, times[-1] + 1)
        if self.needs.get(after) == total:
            del self.needs[after]
            self.cells[after].keeps = True
        if self.held.get((rank, times[0] - 1)) == total:
            self.cells[rank, times[0]].keeps = True
        else:
            self.needs[rank, times[0]] = total

    def places(self, slot: Slot) -> list[tuple[int, int, int]]:
        """Where a sum that only stays in `slot` may be meanwhile: a rank, the route to it, and the route back."""
        (rank, time), total = slot, self.held.get(slot)
        cell, after = self.cells.get(slot), self.cells.get((rank, time + 1))
        stays = {self.held.get((rank, t)) for t in (time - 1, time, time + 1)} == {total}
        if cell is None or after is None or not (stays and cell.keeps and after.keeps) or slot in self.sent:
            return []
        found = []
        for back in self.network.into[rank]:
            u = self.network.routes[back].src
            away = self.between.get((rank, u))
            if away and self._empty((u, time)):
                found.append((u, min(away, key=lambda r: self.load.get((r, time), 0)), back))
        return found

    def lend(self, slot: Slot, place: tuple[int, int, int]) -> None:
        """Puts what stays in `slot` into another one for that time."""
        (rank, time), (u, away, back) = slot, place
        self.held[u, time] = self.held[slot]
        self.cells[u, time] = Cell(totals=[away])
        self.cells[rank, time + 1] = Cell(totals=[back])
        self.sent |= {(rank, time - 1), (u, time)}
        for route, t in ((away, time), (back, time + 1)):
            self.load[route, t] = self.load.get((route, t), 0) + 1

    # ------------------------------------------------------------ trees

    def _weave(self, need: Slot, total: int) -> None:
        """Puts a sum together, in time: at the latest time at which any of the choices has room; else another rank keeps it meanwhile."""
        rank, due = need
        self.woven += 1
        if self.woven > NEEDS * self.network.ranks:
            raise Stuck
        near = list(dict.fromkeys(self.network.routes[r].src for r in self.network.into[rank]))
        self.rng.shuffle(near)
        for choices in (self.parts(total, rank), [Parts(((total, u),), ()) for u in near]):
            for time in range(due, due - EARLIER, -1):
                if time < due and self.held.get((rank, time)) == total:
                    self._hold(rank, time + 1, due, total)
                    return
                if time < due and not self._empty((rank, time)):
                    break
                if any(_Tree(self, (rank, time), asked, total).grow() for asked in choices):
                    self._hold(rank, time + 1, due, total)
                    return
        raise Stuck

    def _hold(self, rank: int, first: int, last: int, total: int) -> None:
        """A sum stays where it is."""
        for t in range(first, last + 1):
            self.held[rank, t] = total
            self.cells[rank, t] = Cell(keeps=True)

    def fee(self, route: int, time: int) -> float:
        """What a send over a route costs in the step that leads to a time."""
        return 1.0 + BUSY * self.load.get((route, time), 0) / self.network.routes[route].units

    def _sends(self) -> dict[int, list[Send]]:
        made: dict[int, list[Send]] = {}
        routes = self.network.routes
        for (rank, time), cell in sorted(self.cells.items()):
            arriving = [(r, "") for r in sorted(cell.totals)] + [(r, "-input") for r in sorted(cell.inputs)]
            sends = [Send(0, routes[r].src, rank, "reduce" + suffix, routes[r].via) for r, suffix in arriving]
            if cell.own:
                sends.append(Send(0, rank, rank, "reduce-input"))
            if sends and not cell.keeps:
                sends[0] = sends[0]._replace(kind="copy" + sends[0].kind.removeprefix("reduce"))
            made.setdefault(time, []).extend(sends)
        return made


class _Tree:
    """The way of the parts of one sum into the slot `root`."""

    def __init__(self, loom: Loom, root: Slot, asked: Parts, total: int) -> None:
        self.loom, self.root, self.asked, self.total = loom, root, asked, total
        self.lent: dict[Slot, tuple[int, int, int]] = {}  # slots whose sums are elsewhere meanwhile
        self.taken: dict[Slot, int] = {}  # what other ranks are to hold for it
        self.used: dict[Slot, Cell] = {root: Cell()}
        self.cost: dict[Slot, float] = {root: 0.0}
        self.onto: dict[Slot, tuple[Slot, float, int | None]] = {}  # the slot that one leads to, the fee, the route (None: kept)
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
            near: list[tuple[int, int | None]] = [(rank, None), *((network.routes[r].src, r) for r in network.into[rank])]
            for u, route in near:
                before = (u, time - 1)
                fee = 0.0 if route is None else loom.fee(route, time)
                offer = (self.cost[slot] + fee, loom.rng.random(), slot, fee, route)
                if not loom._empty(before):
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
        if total and self.loom._room((rank, time - 1), total) is None:
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
                room = self.loom._room(before, total) or []
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
        room = self.loom._room(slot, total)
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
            loom._claim([s for s in slots if s not in loom.held], total)
        return True
