"""The values that the page shows of one entry, as text and numbers.

Sheet         id topology collective ranks status mood facts title says columns algorithms stairs times machine proofs
              provenance
AlgorithmRow  name cells proof move lack              a row of the table; `move` is its schedule, packed
Stairs        floor dots open                         the frontier's plot
Times         lines floor wins marks notes            time against size
Mark          label of says modelled points           measured times
"""

from __future__ import annotations

from dataclasses import dataclass, field

from synth.view.page.animation_data import MachineDrawing, PackedSchedule

GOOD, PART, BAD = "good", "part", "bad"


@dataclass(frozen=True)
class AlgorithmRow:
    """A row of the table. `cells`: under `Sheet.columns`. `steps` 0: unknown. `lack`: why there is no `move`."""

    name: str
    cells: tuple[str, ...]
    proof: str = ""
    steps: int = 0
    move: PackedSchedule | None = None
    lack: str = ""

    def to_json(self) -> dict:
        """Return the JSON that the page reads; the page stores `move` separately."""
        move = None
        if self.move is not None:
            move = {"sends": self.move.sends, "data": self.move.data}
        return {
            "name": self.name,
            "cells": list(self.cells),
            "proof": self.proof,
            "steps": self.steps,
            "move": move,
            "lack": self.lack,
        }


@dataclass(frozen=True)
class Stairs:
    """The plot of a frontier: a staircase of lower bounds, with points and open intervals on or above it.

    `floor`: (first step of a tread, least rounds per chunk, the same as text) by growing steps. `end`: the last step
    with a bound; None: the last tread has no end. `dots`: (steps, rounds per chunk, the same as text, proved optimal,
    index in `Sheet.algorithms`). `open`: (steps, low, high or None).
    """

    floor: tuple[tuple[int, float, str], ...]
    end: int | None
    dots: tuple[tuple[int, float, str, bool, int], ...]
    open: tuple[tuple[int, float, float | None], ...] = ()

    def to_json(self) -> dict:
        """Return the JSON that the page reads."""
        return {
            "floor": [list(row) for row in self.floor],
            "dots": [list(row) for row in self.dots],
            "open": [list(row) for row in self.open],
            "end": self.end,
        }


@dataclass(frozen=True)
class Mark:
    """Times of one program.

    `points`: (size in bytes, seconds, least, most) by growing size. `of`: index of its algorithm, if known.
    `library`: an algorithm of another library.
    """

    label: str
    points: tuple[tuple[int, float, float, float], ...]
    says: str
    modelled: bool = False
    of: int | None = None
    library: bool = False

    def to_json(self) -> dict:
        """Return the JSON that the page reads."""
        points = [list(point) for point in self.points]
        return {
            "label": self.label,
            "of": self.of,
            "says": self.says,
            "modelled": self.modelled,
            "points": points,
            "library": self.library,
        }


@dataclass(frozen=True)
class Times:
    """The chart of time against size.

    `lines`: (algorithm, seconds, seconds per byte) of each prediction. `floor`: (seconds, seconds per byte), whose
    least is a lower bound; `bound`: (size, seconds) of a certified one. `bus`: nccl-tests' bus bandwidth over size /
    time, None for collectives that it does not measure. `wins`, under `title`, and `measured_wins`: (first size, end or
    None, name of the fastest, its index if known), with sizes in bytes.
    """

    lines: tuple[tuple[int, float, float], ...] = ()
    floor: tuple[tuple[float, float], ...] = ()
    wins: tuple[tuple[float, float | None, str, int | None], ...] = ()
    measured_wins: tuple[tuple[float, float | None, str, int | None], ...] = ()
    marks: tuple[Mark, ...] = ()
    notes: tuple[str, ...] = ()
    title: str = "Best by synchronous steps"
    bound: tuple[tuple[int, float], ...] = ()
    bus: float | None = None

    def to_json(self) -> dict:
        """Return the JSON that the page reads."""
        return {
            "lines": [list(x) for x in self.lines],
            "floor": [list(x) for x in self.floor],
            "wins": [list(x) for x in self.wins],
            "measured": [list(x) for x in self.measured_wins],
            "marks": [m.to_json() for m in self.marks],
            "notes": list(self.notes),
            "title": self.title,
            "bound": [list(x) for x in self.bound],
            "bus": self.bus,
        }


@dataclass(frozen=True)
class Sheet:
    """One entry of the page.

    `status`: a few words. `mood`: their colour. `least`: predicted seconds of the smallest message. `rate`: predicted
    GB/s of the largest; both None where unknown. `proofs`: (claim, proof). `provenance`: (name, value). `commands`:
    (purpose, command), with {steps} for the steps of the chosen algorithm.
    """

    id: str
    topology: str
    collective: str
    ranks: int
    status: str
    mood: str
    title: str
    says: tuple[str, ...] = ()
    columns: tuple[tuple[str, str], ...] = ()
    algorithms: tuple[AlgorithmRow, ...] = ()
    least: float | None = None
    rate: float | None = None
    stairs: Stairs | None = None
    times: Times = Times()
    machine: MachineDrawing | None = None
    proofs: tuple[tuple[str, str], ...] = ()
    provenance: tuple[tuple[str, str], ...] = ()
    tables: tuple[dict, ...] = field(default=())
    commands: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> dict:
        """Return the JSON that the page reads; the page stores the machine separately."""
        return {
            **self._identity(),
            "title": self.title,
            "says": list(self.says),
            "columns": [list(c) for c in self.columns],
            "algorithms": [a.to_json() for a in self.algorithms],
            "stairs": self.stairs.to_json() if self.stairs else None,
            "times": self.times.to_json(),
            "proofs": [list(p) for p in self.proofs],
            "provenance": [list(p) for p in self.provenance],
            "tables": list(self.tables),
            "commands": [list(c) for c in self.commands],
        }

    def _identity(self) -> dict:
        return {
            "id": self.id,
            "topology": self.topology,
            "collective": self.collective,
            "ranks": self.ranks,
            "status": self.status,
            "mood": self.mood,
        }

    def head(self) -> dict:
        """Return the values that the list of entries shows."""
        return {
            **self._identity(),
            "algorithms": len(self.algorithms),
            "least": self.least,
            "rate": self.rate,
            "measured": sum(len(mark.points) for mark in self.times.marks if not mark.modelled),
        }
