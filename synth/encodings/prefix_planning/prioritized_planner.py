"""Schedules for one chunk of a combining collective, planned backwards in time, without a solver.

A *slot* is what one rank holds after one step: one sum, as a schedule has one address for each chunk on each rank.
Planning begins with the slots after the last step, which hold what the ranks want. Each sum that is needed somewhere is
taken apart: into a few sums that other ranks are to hold (`Parts`, the plan's choice), which become needs themselves,
and inputs, which any rank may send at any time. These come together on a tree through slots that nothing else uses,
each a step earlier than the one it leads to: the tree of the cheapest ways, cheap being few sends over links that carry
little in that step. What is planned later lies earlier, so time begins where the planning ends. This is prioritized
planning on the time-expanded graph (Silver, "Cooperative pathfinding", AIIDE 2005), from the goal.

A plan that gets stuck says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random

from synth.encodings.prefix_planning.plan_cells import Cell, Parts, Slot, Stuck
from synth.encodings.prefix_planning.steiner_growth import Tree
from synth.model.schedule import Send
from synth.model.topology import Network

BUSY = 2.0  # what a send costs more for each round's worth that its link carries in that step already
EARLIER = 30  # steps by which a sum may be complete before it is needed, at most
NEEDS = 12  # for each rank: sums that are put together, at most, before a plan is given up


@dataclass
class Loom:
    """The plan of one chunk over `network`.

    `parts(sum, rank)` says what a sum may be made of, the best first. Trees reach at most `reach` steps back. `guard`:
    steps before a need that stay free for what it is made of. `latest`: the latest need is met first, else that of the
    most inputs.
    `lends`: what only stays in a slot may be elsewhere for a step. `look` is called now and then, and may raise.
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
            self.claim([(rank, 0)], total)
        while self.needs:
            self.look()
            slot = max(
                self.needs, key=lambda s: (s[1], self.needs[s]) if self.latest else (self.needs[s].bit_count(), s[1])
            )
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

    def empty(self, slot: Slot) -> bool:
        """Whether a tree may use a slot: nothing is held there, and no need is near that could only be met before
        it."""
        rank, time = slot
        return slot not in self.held and not any(
            (rank, t) in self.needs for t in range(time + 1, time + 1 + self.guard)
        )

    def room(self, slot: Slot, total: int) -> list[Slot] | None:
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
        return [slot] if self.empty(slot) else None

    def claim(self, slots: list[Slot], total: int) -> None:
        """Notes that a sum is held in these slots of one rank, which `room` gave."""
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
            if away and self.empty((u, time)):
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
        """Puts a sum together, in time: at the latest time at which any of the choices has room; else another rank
        keeps it meanwhile."""
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
                if time < due and not self.empty((rank, time)):
                    break
                if any(Tree(self, (rank, time), asked, total).grow() for asked in choices):
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
