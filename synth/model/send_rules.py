"""SendRules: what the sends of a schedule have to keep, beside the links themselves.

    SendRules  boxes ways phases symmetric fixed fan relay_memory     of a network under a sketch

The *owner* of a unit is the one rank that holds it first, or where it is summed the one rank that wants the sum. A
link is *across* if it joins ranks of two boxes, else *inside*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from synth.errors import UsageError

OWN_RAIL, HOME = "own rail", "home"
WAYS = (OWN_RAIL, HOME)
ACROSS, INSIDE = "across", "inside"
LEAST = {"fan": 1, "relay_memory": 0}  # rules that are one number, and the least each may be
MOST_STEPS = 1 << 14  # greatest step that a rule can name
MOST_SYMMETRIES = 32
MOST_FIXED = 1 << 12
MOST_NUMBER = 1 << 20  # greatest fan, and greatest memory for relays
Permutation = tuple[int, ...]


class SendPhase(NamedTuple):
    """Links `ACROSS` or `INSIDE` boxes are used in steps `first` to `last` alone, counted from 1; None: to the end."""

    links: str
    first: int
    last: int | None = None


class FixedSend(NamedTuple):
    """All chunks of a unit go from rank `src` to rank `dst` in step `step`, counted from 1."""

    unit: int
    src: int
    dst: int
    step: int


@dataclass(frozen=True)
class SendRules:
    """Rules for the sends of a schedule.

    Attributes
    ----------
    boxes : the box of each rank.
    ways : "own rail": a unit crosses between boxes from and to ranks of the place of its owner alone; "home": it
        crosses out of its owner's box alone, or if it is summed into it.
    phases : the steps of links across, and of links inside.
    symmetric : symmetries that map the schedule to itself: the image of each rank, or (offset, size) for a turn by
        `offset` of each group of `size` ranks in their order. A chunk of a unit goes to the chunk of the same number of
        the unit's image.
    fixed : sends that are in the schedule.
    fan : in each step a rank sends to at most so many ranks, and gets data from at most so many.
    relay_memory : units of data that a rank holds at once, between two steps, to pass them on: units that it neither
        has first nor wants, nor gets by a fixed send (where it is summed: sends by one).
    turned : the network is reversed in time, so steps count from the last one, from 1.
    """

    boxes: tuple[int, ...]
    ways: tuple[str, ...] = ()
    phases: tuple[SendPhase, ...] = ()
    symmetric: tuple[Permutation, ...] = ()
    fixed: tuple[FixedSend, ...] = ()
    fan: int | None = None
    relay_memory: int | None = None
    turned: bool = field(default=False)

    def __str__(self) -> str:
        parts = []
        if self.ways:
            parts.append(f"ways: {', '.join(self.ways)}")
        for links, first, last in self.phases:
            until = f"from step {first} on" if last is None else f"in steps {first} to {last} alone"
            if last == first:
                until = f"in step {first} alone"
            parts.append(f"links {links} boxes {until}")
        if self.symmetric:
            rows = [", ".join(map(str, row)) for row in self.symmetric]
            parts.append(f"symmetric under {' and '.join(f'[{row}]' for row in rows)}")
        if self.fixed:
            parts.append(f"fixed sends: {len(self.fixed)}")
        if self.fan is not None:
            parts.append(f"peers a step: {self.fan}")
        if self.relay_memory is not None:
            parts.append(f"relayed units at a rank: {self.relay_memory}")
        return "; ".join(parts)

    @property
    def document(self) -> dict[str, Any]:
        """The member ``rules`` of a network's document (docs/formats.md)."""
        doc: dict[str, Any] = {"boxes": list(self.boxes)}
        if self.ways:
            doc["ways"] = list(self.ways)
        if self.phases:
            doc["phases"] = {phase.links: [phase.first, phase.last] for phase in self.phases}
        if self.symmetric:
            doc["symmetric"] = list(map(list, self.symmetric))
        if self.fixed:
            doc["fixed"] = list(map(list, self.fixed))
        for key in LEAST:
            if getattr(self, key) is not None:
                doc[key] = getattr(self, key)
        return doc

    @staticmethod
    def from_json(doc: dict[str, Any]) -> SendRules:
        """Return the rules of a document: the inverse of `document`."""
        phases = tuple(SendPhase(links, *steps) for links, steps in doc.get("phases", {}).items())
        symmetric = tuple(map(tuple, doc.get("symmetric", ())))
        fixed = tuple(FixedSend(*row) for row in doc.get("fixed", ()))
        boxes, ways = tuple(doc["boxes"]), tuple(doc.get("ways", ()))
        return SendRules(boxes, ways, phases, symmetric, fixed, doc.get("fan"), doc.get("relay_memory"))

    def reversed(self) -> SendRules:
        """Return the rules of the network reversed in time."""
        return replace(self, turned=not self.turned)

    def kind(self, src: int, dst: int) -> str:
        """Return `ACROSS` or `INSIDE` for a link from rank `src` to rank `dst`."""
        return INSIDE if self.boxes[src] == self.boxes[dst] else ACROSS

    def permutations(self) -> list[Permutation]:
        """Return the image of each rank under each symmetry."""
        return [permutation(row, len(self.boxes)) for row in self.symmetric]


def permutation(row: Permutation, ranks: int) -> Permutation:
    """Return the image of each rank under a symmetry of `SendRules`. Raises UsageError for one of other ranks."""
    if sorted(row) == list(range(ranks)):
        return row
    if len(row) != 2 or not 0 < row[0] < row[1]:
        raise UsageError(f"{list(row)} is no permutation of ranks 0 to {ranks - 1}, and no [offset, size]")
    offset, size = row
    if ranks % size:
        raise UsageError(f"[{offset}, {size}] turns groups of {size} ranks, which {ranks} ranks are not made of")
    return tuple(rank - rank % size + (rank + offset) % size for rank in range(ranks))


def places_in(boxes: Sequence[int]) -> list[int]:
    """Return the position of each rank among the ranks of its box."""
    counts: dict[int, int] = {}
    places = []
    for box in boxes:
        places.append(counts.get(box, 0))
        counts[box] = places[-1] + 1
    return places
