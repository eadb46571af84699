"""Files of sketches, YAML, as users write them by hand; nothing in them is executed.

across: rail                # links between boxes: between ranks of the same place in their boxes; or [0-1, 2-3]:
                            # place 0 of a box sends to place 1 of others, 2 to 3
inside: [0-1, 1-2, 2-3]     # links inside boxes, from place to place
without: [3-11]             # no link from rank 3 to rank 11
ways: [own rail, home]      # each unit of data crosses boxes on its owner's rail alone, and out of that box alone
phases:
  across: 1-2               # links between boxes in steps 1 to 2 alone
  inside: 2-                # links inside boxes from step 2 on
symmetric: [[4, 8]]         # a turn of each 8 ranks by 4 maps the schedule to itself; or the image of each rank
fixed: [{unit: 0, link: 0-3, step: 1}]  # unit 0 goes from rank 0 to rank 3 in step 1
fan: 2                      # in each step a rank sends to at most 2 ranks, and gets data from at most 2
relay_memory: 1             # a rank holds at most 1 unit at once only to pass it on
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from synth.errors import FormatError, UsageError
from synth.model.documents.text_file import text_of
from synth.model.send_rules import ACROSS, INSIDE, LEAST, MOST_FIXED, MOST_STEPS, MOST_SYMMETRIES, WAYS
from synth.model.sketch import RAIL, Pair, RuleError, Sketch
from synth.model.topology import Topology
from synth.topologies.file_reader import parse_yaml

MAX_BYTES = 1 << 20
MAX_PAIRS = 1 << 14
KEYS = ("across", "inside", "without", "ways", "phases", "symmetric", "fixed", *LEAST)
_PAIR = re.compile(r"(\d{1,6}) ?- ?(\d{1,6})")
_STEPS = re.compile(r"(\d{1,6})(?: ?- ?(\d{1,6})?)?")


def load(path: Path, topology: Topology) -> Sketch:
    """Return the sketch in a YAML file, which was tried on a machine.

    Raises FormatError, with the line, for anything but a sketch, and for a rule that does not fit the machine.
    """
    lines: dict[str, int] = {}
    doc = parse_yaml(text_of(path, MAX_BYTES), str(path), lines)

    def fail(message: str, place: str) -> FormatError:
        return FormatError(message, str(path), lines.get(place, 1))

    if not isinstance(doc, dict) or not doc:
        raise fail(f"expected a mapping with {', '.join(KEYS)}", "")
    rules: dict[str, Any] = {}
    for key, value in doc.items():
        if key not in KEYS:
            raise fail(f"unknown rule {str(key)[:40]!r}; there are {', '.join(KEYS)}", str(key))
        if key == "across" and value == RAIL:
            rules[key] = RAIL
            continue
        if key in LEAST:
            rules[key] = _whole(value)
            if rules[key] < LEAST[key]:
                raise fail(f"expected a whole number from {LEAST[key]}, found {str(value)[:40]!r}", key)
            continue
        if key in _READERS:
            rules[key] = _READERS[key](value, fail)
            continue
        if not isinstance(value, list):
            rail = "rail, or " if key == "across" else ""
            raise fail(f"expected {rail}a list of pairs such as [0-1, 2-3]", key)
        if len(value) > MAX_PAIRS:
            raise fail(f"{len(value)} pairs; at most {MAX_PAIRS} are read", key)
        pairs: list[Pair] = []
        for i, text in enumerate(value):
            found = _PAIR.fullmatch(text) if isinstance(text, str) else None
            if found is None:
                raise fail(f"expected a pair such as 0-1, found {str(text)[:40]!r}", f"{key}[{i}]")
            pairs.append((int(found[1]), int(found[2])))
        rules[key] = tuple(pairs)
    sketch = Sketch(path.stem, **rules)
    try:
        sketch.applied(topology)
    except RuleError as error:
        place = error.rule if error.rule in lines else error.rule.partition("[")[0]
        raise fail(error.message, place) from None
    return sketch


Fail = Callable[[str, str], FormatError]


def _ways(value: Any, fail: Fail) -> tuple[str, ...]:
    """Return the rules for ways, of which a file names one or lists several."""
    ways = value if isinstance(value, list) else [value]
    for i, way in enumerate(ways):
        if way not in WAYS or way in ways[:i]:
            place = f"ways[{i}]" if isinstance(value, list) else "ways"
            raise fail(f"expected {' or '.join(WAYS)}, each once, found {str(way)[:40]!r}", place)
    return tuple(ways)


def _phases(value: Any, fail: Fail) -> dict[str, tuple[int, int | None]]:
    """Return the steps of links across and inside boxes."""
    if not isinstance(value, dict) or not value:
        raise fail("expected steps such as across: 1-2 or inside: 2-", "phases")
    found: dict[str, tuple[int, int | None]] = {}
    for links, text in value.items():
        place = f"phases.{links}"
        if links not in (ACROSS, INSIDE):
            raise fail(f"unknown links {str(links)[:40]!r}; there are {ACROSS} and {INSIDE}", place)
        steps = _STEPS.fullmatch(str(text)) if isinstance(text, str | int) else None
        first, last = 0, None
        if steps:
            first = int(steps[1])
            last = int(steps[2] or first) if steps[2] or "-" not in str(text) else None
        if not 1 <= first <= (MOST_STEPS if last is None else last) <= MOST_STEPS:
            raise fail(f"expected steps such as 1-2, 3 or 2-, from 1, found {str(text)[:40]!r}", place)
        found[links] = (first, last)
    return found


def _symmetric(value: Any, fail: Fail) -> tuple[tuple[int, ...], ...]:
    """Return symmetries, each the image of every rank or [offset, size]."""
    if not isinstance(value, list) or not value or len(value) > MOST_SYMMETRIES:
        raise fail(
            f"expected a list of 1 to {MOST_SYMMETRIES} symmetries such as [4, 8], a turn of 8 ranks by 4", "symmetric"
        )
    rows = []
    for i, texts in enumerate(value):
        listed = texts if isinstance(texts, list) else [texts]
        row = tuple(map(_whole, listed))
        try:
            Sketch(symmetric=[row])
        except UsageError:
            found = ", ".join(map(str, listed))
            raise fail(
                f"expected the image of each rank, or an offset below a size, found {found[:40]!r}", f"symmetric[{i}]"
            ) from None
        rows.append(row)
    return tuple(rows)


def _fixed(value: Any, fail: Fail) -> tuple[tuple[int, ...], ...]:
    """Return fixed sends, each a mapping with its unit, its link and its step."""
    if not isinstance(value, list) or not 0 < len(value) <= MOST_FIXED:
        raise fail(f"expected a list of 1 to {MOST_FIXED} sends such as {{unit: 0, link: 0-3, step: 1}}", "fixed")
    rows: list[tuple[int, ...]] = []
    for i, send in enumerate(value):
        good = isinstance(send, dict) and send.keys() == {"unit", "link", "step"}
        link = _PAIR.fullmatch(send["link"]) if good and isinstance(send["link"], str) else None
        row = ()
        if link:
            row = (_whole(send["unit"]), int(link[1]), int(link[2]), _whole(send["step"]))
        if not row or row[0] < 0 or not 1 <= row[3] <= MOST_STEPS or row in rows:
            raise fail("expected a send such as {unit: 0, link: 0-3, step: 1}, each once", f"fixed[{i}]")
        rows.append(row)
    return tuple(rows)


def _whole(text: Any) -> int:
    """Return the whole number that a text is, -1 for anything else."""
    return int(text) if isinstance(text, str) and re.fullmatch(r"\d{1,6}", text) else -1


_READERS: dict[str, Callable[[Any, Fail], Any]] = {
    "ways": _ways,
    "phases": _phases,
    "symmetric": _symmetric,
    "fixed": _fixed,
}
