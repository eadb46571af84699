"""Sketch: the links of a machine that schedules may use, as in TACCL's communication sketches, and its files.

A *place* is the position of a rank in its box, from 0. A sketch makes a machine with fewer links of a machine, so
searches, bounds and checks under a sketch are those of that machine. It is written by hand as YAML; nothing in a file
is executed:

across: rail                # links between boxes: between ranks of the same place in their boxes; or [0-1, 2-3]:
                            # place 0 of a box sends to place 1 of others, 2 to 3
inside: [0-1, 1-2, 2-3]     # links inside boxes, from place to place
without: [3-11]             # no link from rank 3 to rank 11
symmetric: [[4, 8]]         # turning each 8 ranks by 4 keeps the links that are left; or the image of each rank

Shah et al., "TACCL: Guiding Collective Algorithm Synthesis using Communication Sketches", NSDI 2023.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from synth.errors import FormatError, UsageError
from synth.model.documents.file_reader import Fields, parse_yaml
from synth.model.documents.text_file import text_of
from synth.model.topology import Limit, Topology
from synth.topologies.builders import preserves, with_generators

RAIL = "rail"
KEYS = ("across", "inside", "without", "symmetric")
MAX_BYTES = 1 << 20
# Pairs, and symmetries, of one rule that are read.
MAX_ROWS = 1 << 14
Pair = tuple[int, int]
_PAIR = re.compile(r"(\d{1,6}) ?- ?(\d{1,6})")


@dataclass(frozen=True)
class Sketch:
    """Rules for the links that schedules may use. Links in no rule are allowed.

    Parameters
    ----------
    name : of the sketch, in messages.
    across : links between boxes that may be used: "rail" for those between ranks of the same place, or pairs
        (place of the sender, place of the receiver). None: all.
    inside : the same for links inside boxes, by pairs. None: all.
    without : pairs of ranks (source, destination) whose links are not used.
    symmetric : symmetries of the links that are left, by which searches begin: permutations, as the image of each rank,
        or TACCL's (offset, size), which turns each group of `size` ranks by `offset`.

    Examples
    --------
    >>> import synth
    >>> machine = synth.topology("dgx-a100*2")
    >>> rails = synth.Sketch("rails", across="rail")
    >>> len(machine.links), len(rails.applied(machine).links)
    (240, 128)
    """

    name: str = "sketch"
    across: str | tuple[Pair, ...] | None = None
    inside: tuple[Pair, ...] | None = None
    without: tuple[Pair, ...] = ()
    symmetric: Sequence[Sequence[int]] = ()

    def __post_init__(self) -> None:
        if isinstance(self.across, str) and self.across != RAIL:
            raise UsageError(f"across={self.across!r}: {RAIL!r}, or pairs of places such as ((0, 1), (2, 3))")

    def applied(self, topology: Topology) -> Topology:
        """Return the machine with the allowed links alone.

        Raises UsageError for a machine with switches of its own, and for a rule that none of its links can meet, with
        its place in the sketch, such as ``without[2]``.
        """
        if topology.switches:
            raise UsageError(f"{topology.name} has switches of its own; a sketch needs links between ranks")
        boxes = topology.nodes or (0,) * topology.ranks
        # The position of each rank among the ranks of its box.
        counts: dict[int, int] = {}
        places = []
        for box in boxes:
            places.append(counts.get(box, 0))
            counts[box] = places[-1] + 1
        # No rule may be about links that the machine has not.
        ranks, near, far = set[Pair](), set[Pair](), set[Pair]()
        for link in topology.links:
            ranks.add((link.src, link.dst))
            pair = places[link.src], places[link.dst]
            (near if boxes[link.src] == boxes[link.dst] else far).add(pair)
        for rule, pairs in (("across", self.across), ("inside", self.inside)):
            if pairs is not None and len(set(boxes)) == len(boxes):
                raise UsageError(f"{rule}: each rank of {topology.name} is a box of its own, with one place alone")
        if self.across is not None and not far:
            raise UsageError(f"across: {topology.name} has no links between boxes")
        rows = (("across", self.across, far, "place"), ("inside", self.inside, near, "place"),
                ("without", self.without, ranks, "rank"))  # fmt: skip
        for key, pairs, known, what in rows:
            for i, (a, b) in enumerate(() if pairs is None or isinstance(pairs, str) else pairs):
                if (a, b) not in known:
                    raise UsageError(f"{key}[{i}]: {topology.name} has no such link from {what} {a} to {what} {b}")
        # Keep the links that the rules allow, and of each limit what is left of its links.
        number: dict[int, int] = {}
        for i, link in enumerate(topology.links):
            pair = places[link.src], places[link.dst]
            listed = self.inside if boxes[link.src] == boxes[link.dst] else self.across
            allowed = pair[0] == pair[1] if isinstance(listed, str) else listed is None or pair in listed
            if allowed and (link.src, link.dst) not in self.without:
                number[i] = len(number)
        limits = []
        for limit in topology.limits:
            members = [number[i] for i in limit.links if i in number]
            if members:
                limits.append(Limit(limit.name, members, limit.bandwidth))
        note = (
            f"sketch {self.name} keeps {len(number)} of {len(topology.links)} links of {topology.name}: what is proved "
            "here says nothing about schedules over the others"
        )
        under = replace(
            topology, name=f"{topology.name} under {self.name}", links=tuple(topology.links[i] for i in number),
            limits=tuple(limits), multicast=(), notes=(*topology.notes, note),
        )  # fmt: skip
        # The symmetries as images of ranks.
        images = []
        for i, row in enumerate(self.symmetric):
            image = tuple(row)
            if len(row) == 2 and 0 < row[0] < row[1] and under.ranks % row[1] == 0:
                offset, size = row
                image = tuple(rank - rank % size + (rank + offset) % size for rank in range(under.ranks))
            if not preserves(under, image):
                message = f"{list(row)} does not keep the links and limits of {under.name}"
                raise UsageError(f"symmetric[{i}]: {message}")
            images.append(image)
        return with_generators(under, [*images, *topology.generators])


def load(path: Path, topology: Topology) -> Topology:
    """Return the machine that the sketch in a YAML file leaves of `topology`.

    Raises FormatError, with the place, for anything but a sketch, and for a rule that does not fit the machine.
    """
    read = Fields(str(path))
    rules: dict[str, Any] = {}
    for key, value in read.mapping(parse_yaml(text_of(path, MAX_BYTES), read.file), None, KEYS).items():
        if key == "across" and isinstance(value, str):
            rules[key] = value
            continue
        rows: list[tuple[int, ...]] = []
        for i, row in enumerate(read.sequence(value, key, MAX_ROWS)):
            place = f"{key}[{i}]"
            if key == "symmetric":
                listed = read.sequence(row, place, topology.ranks)
                rows.append(tuple(read.integer(rank, place, 0, topology.ranks) for rank in listed))
            else:
                pair = _PAIR.fullmatch(read.string(row, place))
                if pair is None:
                    read.fail(f"expected a pair such as 0-1, found {str(row)[:40]!r}", place)
                rows.append((int(pair[1]), int(pair[2])))
        rules[key] = tuple(rows)
    try:
        return Sketch(path.stem, **rules).applied(topology)
    except UsageError as error:
        raise FormatError(str(error), read.file) from None
