"""Files of sketches, YAML, as users write them by hand; nothing in them is executed.

across: rail                # links between boxes: between ranks of the same place in their boxes; or [0-1, 2-3]:
                            # place 0 of a box sends to place 1 of others, 2 to 3
inside: [0-1, 1-2, 2-3]     # links inside boxes, from place to place
without: [3-11]             # no link from rank 3 to rank 11
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from synth.errors import FormatError
from synth.model.documents.text_file import text_of
from synth.model.sketch import RAIL, Pair, RuleError, Sketch
from synth.model.topology import Topology
from synth.topologies.file_reader import parse_yaml

MAX_BYTES = 1 << 20
MAX_PAIRS = 1 << 14
KEYS = ("across", "inside", "without")
_PAIR = re.compile(r"(\d{1,6}) ?- ?(\d{1,6})")


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
