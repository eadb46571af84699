"""Files of process groups, YAML or JSON, as users write them by hand.

groups:
  - {ranks: [0, 1, 2, 3], collective: allreduce, bytes: 1}    # these ranks
  - {size: 8, collective: allreduce, bytes: 1}                # ranks 0-7, 8-15, ...: tensor parallel
  - {stride: 8, collective: reduce-scatter, bytes: 5/2}       # ranks 0,8,16,...; 1,9,17,...: data parallel
  - {size: 4, stride: 8, collective: broadcast, root: 2}      # 0,8,16,24; 1,9,17,25; ...; 32,40,48,56; ...
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

from synth.errors import UsageError
from synth.model.collective import canonical_name
from synth.model.documents.text_file import text_of
from synth.model.process_groups import COLLECTIVES, ROOTED, Group, checked
from synth.topologies.file_reader import Fields, parse_json, parse_yaml

MAX_GROUPS = 4096
KEYS = ("name", "ranks", "size", "stride", "collective", "bytes", "root")


def load(path: Path, ranks: int) -> tuple[Group, ...]:
    """Return the groups that the file `path` defines on a machine of `ranks` ranks.

    Raises FormatError, which names the faulty field.
    """
    text = text_of(path)
    return read((parse_json if path.suffix.lower() == ".json" else parse_yaml)(text, str(path)), str(path), ranks)


def read(doc: Any, file: str, ranks: int) -> tuple[Group, ...]:
    """Return the groups that a parsed document defines; `file`: the name of the document in errors."""
    fields = Fields(file)
    rows = fields.mapping(doc, None, ("groups",), ("groups",))["groups"]
    found: list[Group] = []
    for i, row in enumerate(fields.sequence(rows, "groups", MAX_GROUPS)):
        found += _entry(fields, row, f"groups[{i}]", ranks)
        if len(found) > MAX_GROUPS:
            fields.fail(f"more than {MAX_GROUPS} groups in all", f"groups[{i}]")
    if not found:
        fields.fail("lists no group", "groups")
    return tuple(found)


def _entry(fields: Fields, row: Any, place: str, ranks: int) -> list[Group]:
    row = fields.mapping(row, place, KEYS, ("collective",))
    coll = canonical_name(fields.string(row["collective"], f"{place}.collective"))
    if coll not in COLLECTIVES:
        fields.fail(f"{coll[:40]!r} is not run in groups; {', '.join(COLLECTIVES)} are", f"{place}.collective")
    size = fields.number(row["bytes"], f"{place}.bytes") if "bytes" in row else Fraction(1)
    name = fields.string(row["name"], f"{place}.name", 64) if "name" in row else ""
    root = fields.integer(row["root"], f"{place}.root", 0, ranks - 1) if "root" in row else None
    if root is not None and coll not in ROOTED:
        fields.fail(f"{coll} has no root", f"{place}.root")
    groups = []
    for members in _members(fields, row, place, ranks):
        if root is not None and root >= len(members):
            fields.fail(f"the root is a place in the group, 0 to {len(members) - 1}", f"{place}.root")
        groups.append(Group(members, coll, size, members[root or 0] if coll in ROOTED else None, name))
    try:
        checked(groups, ranks)
    except UsageError as error:
        fields.fail(str(error).partition(": ")[2], place)
    return groups


def _members(fields: Fields, row: dict[str, Any], place: str, ranks: int) -> list[tuple[int, ...]]:
    """The ranks of each group that an entry stands for."""
    if ("ranks" in row) == ("size" in row or "stride" in row):
        fields.fail("give either ranks, or size, stride or both", place)
    if "ranks" in row:
        named = fields.sequence(row["ranks"], f"{place}.ranks", ranks)
        return [tuple(fields.integer(r, f"{place}.ranks[{j}]", 0, ranks - 1) for j, r in enumerate(named))]
    stride = fields.integer(row["stride"], f"{place}.stride", 1, ranks) if "stride" in row else 1
    size = fields.integer(row["size"], f"{place}.size", 2, ranks) if "size" in row else ranks // stride
    if size < 2 or ranks % (size * stride):
        fields.fail(f"{ranks} ranks are not made of groups of {size} ranks with a stride of {stride}", place)
    blocks = range(0, ranks, size * stride)
    return [tuple(range(at + i, at + i + size * stride, stride)) for at in blocks for i in range(stride)]
