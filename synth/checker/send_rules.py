"""Rules for the sends of a schedule, read from a topology's document: ways by a unit's owner, phases, and others.

`rules` : {"boxes": [box of each rank], "ways": ["own rail", "home"], "phases": {"across" or "inside": [first, last]},
"symmetric": [[image of each rank] or [offset, size], ...], "fixed": [[unit, src, dst, step], ...], "fan": peers of a
rank in a step, "relay_memory": units of data}. A unit's *owner* is the one rank that holds it first, or if units are
summed the one that wants the sum. This shares no code with what applies the rules in a search.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from synth.checker.fields import need
from synth.model.documents import json_reader
from synth.model.rational import counted

MOST_STEPS = 1 << 14
MOST_RANKS = 1 << 16
MOST_SYMMETRIES = 32
MOST_FIXED = 1 << 12
MOST_NUMBER = 1 << 20


@dataclass(frozen=True)
class CheckedRules:
    """The rules of a document.

    Attributes:
        boxes, places: of each rank its box, and its position in it.
        own_rail, home: the ways that units have to take.
        across, inside: the first and the last step of links between boxes, and inside; the last is None for no end.
        symmetries: the image of each rank under each symmetry that maps the schedule to itself.
        fixed: (unit, source, destination, step) of sends that the schedule has, of all chunks of the unit. Their
            receivers get the unit by no other send; where units are summed, their senders send it in no other.
        fan: the most ranks that a rank sends to in a step, and that it gets data from. None: no limit.
        relay_memory: the most units that a rank holds after a step to pass them on, of those that it neither has
            first nor wants, and that no fixed send brings it (where units are summed: takes from it). None: no limit.
    """

    boxes: tuple[int, ...]
    places: tuple[int, ...]
    own_rail: bool
    home: bool
    across: tuple[int, int | None]
    inside: tuple[int, int | None]
    symmetries: tuple[tuple[int, ...], ...] = ()
    fixed: tuple[tuple[int, int, int, int], ...] = ()
    fan: int | None = None
    relay_memory: int | None = None

    @staticmethod
    def read(doc: object, ranks: int, place: str) -> CheckedRules:
        """Read the object `rules` of a topology. Raises VerificationError."""
        known = {"ways", "phases", "symmetric", "fixed", "fan", "relay_memory"}
        fields = json_reader.fields(doc, place, {"boxes"}, known)
        boxes = []
        for i, box in enumerate(json_reader.items(fields["boxes"], f"{place}.boxes")):
            boxes.append(json_reader.number(box, f"{place}.boxes[{i}]", 0))
        need(len(boxes) == ranks, f"names {len(boxes)} boxes for {ranks} ranks", f"{place}.boxes")
        ways = json_reader.items(fields.get("ways", []), f"{place}.ways")
        for i, way in enumerate(ways):
            json_reader.one_of(way, ("own rail", "home"), f"{place}.ways[{i}]")
        need(len(set(ways)) == len(ways), "names one twice", f"{place}.ways")
        windows: dict[str, tuple[int, int | None]] = {}
        phases = json_reader.fields(fields.get("phases", {}), f"{place}.phases", set(), {"across", "inside"})
        for links, steps in phases.items():
            here = f"{place}.phases.{links}"
            need(len(json_reader.items(steps, here)) == 2, "expected [first, last]", here)
            first, end = json_reader.number(steps[0], here, 1, MOST_STEPS + 1), steps[1]
            last = None if end is None else json_reader.number(end, here, first, MOST_STEPS + 1)
            windows[links] = first, last
        symmetries = _read_symmetries(fields.get("symmetric", []), ranks, f"{place}.symmetric")
        fixed = _read_fixed(fields.get("fixed", []), ranks, f"{place}.fixed")
        fan = relay_memory = None
        if "fan" in fields:
            fan = json_reader.number(fields["fan"], f"{place}.fan", 1, MOST_NUMBER + 1)
        if "relay_memory" in fields:
            relay_memory = json_reader.number(fields["relay_memory"], f"{place}.relay_memory", 0, MOST_NUMBER + 1)
        need(
            bool(ways or phases or symmetries or fixed or {"fan", "relay_memory"} & fields.keys()), "has no rule", place
        )
        always = (1, None)
        return CheckedRules(
            tuple(boxes), tuple(positions(boxes)),
            "own rail" in ways, "home" in ways, windows.get("across", always), windows.get("inside", always),
            symmetries, fixed, fan, relay_memory,
        )  # fmt: skip

    @property
    def of_boxes(self) -> bool:
        """True where a rule speaks of boxes."""
        return self.own_rail or self.home or (self.across, self.inside) != ((1, None), (1, None))

    def allowed_way(self, owner: int | None, src: int, dst: int, combining: bool) -> bool:
        """Return True where a unit of this owner may go from rank `src` to rank `dst`."""
        if owner is None or self.boxes[src] == self.boxes[dst]:
            return True
        if self.own_rail and {self.places[src], self.places[dst]} != {self.places[owner]}:
            return False
        return not self.home or self.boxes[dst if combining else src] == self.boxes[owner]

    def allowed_steps(self, src: int, dst: int) -> tuple[int, int | None]:
        """Return the first and the last step, or None, in which rank `src` may send to rank `dst`."""
        return self.inside if self.boxes[src] == self.boxes[dst] else self.across

    def owner(self, first: frozenset[int], wanted: frozenset[int], combining: bool, place: str) -> int | None:
        """Return the owner of a unit that the ranks `first` have and the ranks `wanted` want; None without ways.

        Raises VerificationError for a unit with several.
        """
        if not (self.own_rail or self.home):
            return None
        ranks = wanted if combining else first
        need(len(ranks) == 1, f"has ways, which a unit with {len(ranks)} owners does not", place)
        return min(ranks)

    def fixed_of(self, combining: bool) -> dict[int, dict[int, tuple[int, int, int]]]:
        """Return, by unit and by the rank that gets it (if units are summed: sends it) once, each fixed send's source,
        destination and step. Raises VerificationError where a rank has two."""
        found: dict[int, dict[int, tuple[int, int, int]]] = {}
        for unit, src, dst, step in self.fixed:
            once = src if combining else dst
            sends = found.setdefault(unit, {})
            need(once not in sends, f"has two fixed sends of unit {unit} at rank {once}", "rules.fixed")
            sends[once] = src, dst, step
        return found

    def words(self) -> str:
        """Return the rules in words."""
        parts = []
        if self.own_rail:
            parts.append("units cross boxes on their owner's rail alone")
        if self.home:
            parts.append("units cross boxes from or to their owner's box alone")
        for links, (first, last) in (("across", self.across), ("inside", self.inside)):
            if (first, last) != (1, None):
                until = f"from step {first} on" if last is None else f"in steps {first} to {last}"
                if last == first:
                    until = f"in step {first}"
                parts.append(f"links {links} boxes carry data {until} alone")
        if self.symmetries:
            parts.append(f"each is its own image under {counted(len(self.symmetries), 'symmetry')} of ranks")
        if self.fixed:
            parts.append(f"each has {counted(len(self.fixed), 'fixed send')}")
        if self.fan is not None:
            parts.append(f"a rank sends to at most {self.fan} and gets data from at most {self.fan} in a step")
        if self.relay_memory is not None:
            parts.append(f"a rank holds at most {counted(self.relay_memory, 'unit')} at once to pass on")
        return "; ".join(parts)


def rules_stated(topology: dict, but: str = "") -> list[str]:
    """Return a line on the rules for sends in the topology of a document, which its claims are under; none without.

    `but`: the claims of the document that are not under them, in words.
    """
    if "rules" not in topology:
        return []
    rules = CheckedRules.read(topology["rules"], topology["ranks"], "$.topology.rules")
    boxes = ""
    if rules.of_boxes:
        boxes = f", by boxes that the document states ({boxes_in_words(rules.boxes)})"
    return [f"all of this{but} is of schedules that keep rules{boxes}: {rules.words()}"]


def _read_symmetries(doc: object, ranks: int, place: str) -> tuple[tuple[int, ...], ...]:
    """Return the image of each rank under each symmetry of a document. Raises VerificationError."""
    symmetries = []
    rows = json_reader.items(doc, place)
    need(len(rows) <= MOST_SYMMETRIES, f"lists {len(rows)}; at most {MOST_SYMMETRIES} are checked", place)
    for i, row in enumerate(rows):
        here, images = f"{place}[{i}]", []
        for value in json_reader.items(row, here):
            images.append(json_reader.number(value, here, 0, MOST_RANKS))
        if len(images) == 2 and 0 < images[0] < images[1]:
            offset, size = images
            need(ranks % size == 0, f"turns groups of {size} ranks, of which {ranks} are not made", here)
            images = [rank - rank % size + (rank + offset) % size for rank in range(ranks)]
        need(sorted(images) == list(range(ranks)), f"is no permutation of {ranks} ranks", here)
        symmetries.append(tuple(images))
    return tuple(symmetries)


def _read_fixed(doc: object, ranks: int, place: str) -> tuple[tuple[int, int, int, int], ...]:
    """Return the fixed sends of a document. Raises VerificationError."""
    rows = json_reader.items(doc, place)
    need(len(rows) <= MOST_FIXED, f"lists {len(rows)}; at most {MOST_FIXED} are checked", place)
    fixed = []
    for i, row in enumerate(rows):
        here = f"{place}[{i}]"
        need(len(json_reader.items(row, here)) == 4, "expected [unit, src, dst, step]", here)
        unit, src, dst, step = row
        unit = json_reader.number(unit, here, 0)
        src, dst = (json_reader.number(rank, here, 0, ranks) for rank in (src, dst))
        fixed.append((unit, src, dst, json_reader.number(step, here, 1, MOST_STEPS + 1)))
    return tuple(fixed)


def positions(boxes: Sequence[int]) -> list[int]:
    """Return the position of each rank in its box."""
    counts: Counter[int] = Counter()
    found = []
    for box in boxes:
        found.append(counts[box])
        counts[box] += 1
    return found


def boxes_in_words(boxes: Sequence[int]) -> str:
    """Return the box of each rank in words."""
    size = boxes.count(boxes[0])
    if len(boxes) % size == 0 and all(box == rank // size for rank, box in enumerate(boxes)):
        return f"{counted(len(boxes) // size, 'box')} of {counted(size, 'rank')}"
    return f"by rank {' '.join(map(str, boxes))}"
