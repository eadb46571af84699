"""The parts of a frontier document are read strictly: a field more, or a value of another kind, is refused with its
place."""

from __future__ import annotations

import copy
import json

import pytest

from synth import api
from synth.errors import VerificationError

WHOLE = json.loads(json.dumps(api.frontier("ring:4", "allgather").to_json()))  # type: ignore[union-attr]
OPEN = {"steps": 1, "lower": "3/2", "upper": None, "reason": "effort"}


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        ("points.0.extra", 1, r"points\[0\]: 'extra' is not a known field"),
        ("points.0.construction", 7, r"points\[0\].construction: "),
        ("points.0.bound.extra", 1, r"points\[0\].bound: 'extra'"),
        ("bounds.0.extra", 1, r"bounds\[0\]: 'extra'"),
        ("notes", "x", "notes: "),
        ("notes", [1], r"notes\[0\]: "),
        ("labels", 5, "labels: "),
        ("open", [OPEN | {"extra": 1}], r"open\[0\]: 'extra'"),
        ("open", [OPEN | {"reason": 3}], r"open\[0\].reason: "),
        ("open", [OPEN | {"steps": "1"}], r"open\[0\].steps: "),
    ],
)
def test_anything_else_is_refused_with_its_place(path, value, place):
    doc = copy.deepcopy(WHOLE)
    *way, last = (int(key) if key.isdigit() else key for key in path.split("."))
    inner = doc
    for key in way:
        inner = inner[key]
    inner[last] = value
    api.verify(copy.deepcopy(WHOLE))
    with pytest.raises(VerificationError, match=r"^\$\." + place):
        api.verify(doc)
