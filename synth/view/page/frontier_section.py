"""Sheet: everything the page shows of one entry, as text and numbers.

Sheet      id topology collective ranks status mood facts title says columns algorithms stairs times machine proofs
           provenance
Algorithm  name cells proof move lack              a row of the table; `move` is its schedule, packed
Stairs     floor dots open                         the frontier's plot
Times      lines floor wins marks notes            time against size
Mark       label of says modelled points           what was measured
"""

from __future__ import annotations

from dataclasses import dataclass, field

from synth.view.page.animation_data import Machine, Packed

GOOD, PART, BAD = "good", "part", "bad"


@dataclass(frozen=True)
class Algorithm:
    """`cells`: its row under `Sheet.columns`. `steps` 0: not known. `lack` says why there is no `move`."""

    name: str
    cells: tuple[str, ...]
    proof: str = ""
    steps: int = 0
    move: Packed | None = None
    lack: str = ""

    def to_json(self) -> dict:
        """As the page reads it; `move` is set apart by the page."""
        move = None if self.move is None else {"sends": self.move.sends, "data": self.move.data}
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
    """`floor`: (first step of a tread, least rounds per chunk, as text) by growing steps; `dots` and `open` lie on or
    above it.

    `end`: the last step of which anything is known; None: the last tread has no end.
    `dots`: (steps, rounds per chunk, as text, whether proved optimal, place in `Sheet.algorithms`); `open`: (steps,
    low, high or None).
    """

    floor: tuple[tuple[int, float, str], ...]
    end: int | None
    dots: tuple[tuple[int, float, str, bool, int], ...]
    open: tuple[tuple[int, float, float | None], ...] = ()

    def to_json(self) -> dict:
        """As the page reads it."""
        rows = {"floor": self.floor, "dots": self.dots, "open": self.open}
        return {name: [list(row) for row in values] for name, values in rows.items()} | {"end": self.end}


@dataclass(frozen=True)
class Mark:
    """Times of one program: `points` are (size in bytes, seconds, least, most) by growing size; `of`: the algorithm it
    is of, if known."""

    label: str
    points: tuple[tuple[int, float, float, float], ...]
    says: str
    modelled: bool = False
    of: int | None = None

    def to_json(self) -> dict:
        """As the page reads it."""
        points = [list(point) for point in self.points]
        return {"label": self.label, "of": self.of, "says": self.says, "modelled": self.modelled, "points": points}


@dataclass(frozen=True)
class Times:
    """`lines`: (algorithm, seconds, seconds per byte) of each prediction; `floor`: such pairs of which the least is a
    lower bound.

    `wins`, under `title`, and `measured_wins`: (first size, end or None, who is best there, its place if known); sizes
    are bytes.
    """

    lines: tuple[tuple[int, float, float], ...] = ()
    floor: tuple[tuple[float, float], ...] = ()
    wins: tuple[tuple[float, float | None, str, int | None], ...] = ()
    measured_wins: tuple[tuple[float, float | None, str, int | None], ...] = ()
    marks: tuple[Mark, ...] = ()
    notes: tuple[str, ...] = ()
    title: str = "Best by prediction"

    def to_json(self) -> dict:
        """As the page reads it."""
        return {
            "lines": [list(x) for x in self.lines],
            "floor": [list(x) for x in self.floor],
            "wins": [list(x) for x in self.wins],
            "measured": [list(x) for x in self.measured_wins],
            "marks": [m.to_json() for m in self.marks],
            "notes": list(self.notes),
            "title": self.title,
        }


@dataclass(frozen=True)
class Sheet:
    """One entry of the page.

    `status` is a few words and `mood` how they are coloured. `least`: seconds of the smallest message; `rate`: GB/s of
    the largest (both predicted, None: not known). `proofs`: (what is proved, how). `provenance`: (what, value).
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
    algorithms: tuple[Algorithm, ...] = ()
    least: float | None = None
    rate: float | None = None
    stairs: Stairs | None = None
    times: Times = Times()
    machine: Machine | None = None
    proofs: tuple[tuple[str, str], ...] = ()
    provenance: tuple[tuple[str, str], ...] = ()
    tables: tuple[dict, ...] = field(default=())

    def to_json(self) -> dict:
        """As the page reads it; the machine is set apart by the page."""
        return {
            "id": self.id,
            "topology": self.topology,
            "collective": self.collective,
            "ranks": self.ranks,
            "status": self.status,
            "mood": self.mood,
            "title": self.title,
            "says": list(self.says),
            "columns": [list(c) for c in self.columns],
            "algorithms": [a.to_json() for a in self.algorithms],
            "stairs": self.stairs.to_json() if self.stairs else None,
            "times": self.times.to_json(),
            "proofs": [list(p) for p in self.proofs],
            "provenance": [list(p) for p in self.provenance],
            "tables": list(self.tables),
        }

    def head(self) -> dict:
        """What the list of entries shows."""
        return {
            "id": self.id,
            "topology": self.topology,
            "collective": self.collective,
            "ranks": self.ranks,
            "status": self.status,
            "mood": self.mood,
            "algorithms": len(self.algorithms),
            "least": self.least,
            "rate": self.rate,
            "measured": sum(len(mark.points) for mark in self.times.marks if not mark.modelled),
        }
