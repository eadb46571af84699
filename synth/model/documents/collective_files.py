"""Custom collectives from YAML or JSON files: pre, post and combining, written by hand.

name: my-exchange            # optional
combining: false             # optional; true: `pre` lists the contributors of a unit
pre:  [[0, 0], [1, 3]]       # [unit, rank] pairs
post: [[0, 2], [1, [0, 1]]]  # [unit, rank or ranks]; combining: [unit, rank, [contributors]] for a partial sum
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from synth.model.collective import COLLECTIVES, MAX_UNITS, Collective
from synth.model.documents.file_reader import Fields, parse_yaml, plain
from synth.model.documents.text_file import MAX_BYTES, text_of

KEYS = ("name", "ranks", "combining", "pre", "post")


def load(path: Path, ranks: int) -> Collective:
    """Return the collective that the file `path` defines over `ranks` ranks. Raises FormatError with the place."""
    return from_document(parse_yaml(text_of(path), str(path)), ranks, str(path), path.stem)


def from_mapping(given: Mapping, ranks: int) -> Collective:
    """Return the collective of a mapping in memory, of the form of a file. Raises FormatError with the place.

    Sets, tuples and NumPy's integers count as lists and integers, and `pre` and `post` may map each unit to its rank or
    ranks.
    """
    doc = {}
    for key, value in given.items():
        doc[str(key)] = plain(list(value.items()) if isinstance(value, Mapping) else value)
    return from_document(doc, ranks, "collective", "collective")


def from_document(doc: Any, ranks: int, file: str, name: str) -> Collective:
    """Return the collective of a parsed document, called `name` where it gives none; `file` is named in errors.

    Raises FormatError with the place.
    """
    read = Fields(file)
    doc = read.mapping(doc, None, KEYS, ("pre", "post"))
    if doc.get("ranks") is not None and read.integer(doc["ranks"], "ranks", 1, MAX_UNITS) != ranks:
        read.fail(f"is over {doc['ranks']} ranks, the topology has {ranks}", "ranks")
    combining = doc.get("combining") is not None and read.boolean(doc["combining"], "combining")
    name = read.string(doc.get("name") or name, "name", 64)
    if name in COLLECTIVES:
        read.fail(f"{name!r} is a built-in collective; choose another name", "name")

    # A row is a unit, its ranks and, for a partial sum, the contributions that these want.
    rows: dict[str, list[tuple[int, list[int], frozenset[int] | None]]] = {"pre": [], "post": []}
    for key, most in (("pre", 2), ("post", 3 if combining else 2)):
        for i, value in enumerate(read.sequence(doc[key], key, MAX_BYTES)):
            place = f"{key}[{i}]"
            if not isinstance(value, list) or not 2 <= len(value) <= most:
                read.fail("expected [unit, rank] or [unit, [ranks]]", place)
            unit = read.integer(value[0], place, 0, MAX_UNITS - 1)
            listed = value[1] if isinstance(value[1], list) else [value[1]]
            members = [read.integer(rank, place, 0, ranks - 1) for rank in listed]
            if not members:
                read.fail("names no rank", place)
            want = None
            if len(value) == 3:
                want = frozenset(
                    read.integer(rank, place, 0, ranks - 1) for rank in read.sequence(value[2], place, ranks)
                )
                if not want:
                    read.fail("wants a sum of no contributions; leave the row out, or name some", place)
            rows[key].append((unit, members, want))

    # Units are numbered without gaps, and what is wanted of one is there before.
    pre: dict[int, set[int]] = {}
    for unit, members, _ in rows["pre"]:
        pre.setdefault(unit, set()).update(members)
    for unit in range(len(pre)):
        if unit not in pre:
            read.fail(f"units are numbered from 0 without gaps; unit {unit} is missing", "pre")
    wants: list[dict[int, frozenset[int]]] = [{} for _ in pre]
    for i, (unit, members, want) in enumerate(rows["post"]):
        if unit not in pre:
            read.fail(f"unit {unit} is on no rank before", f"post[{i}]")
        contributions = frozenset(pre[unit]) if want is None else want
        if not contributions <= pre[unit]:
            read.fail(f"ranks {sorted(contributions - pre[unit])} do not contribute to unit {unit}", f"post[{i}]")
        for rank in members:
            if wants[unit].setdefault(rank, contributions) != contributions:
                read.fail(f"rank {rank} wants another sum of unit {unit} in a row before", f"post[{i}]")
    if not pre or not rows["post"]:
        read.fail("lists no unit", "post" if pre else "pre")

    # Sums of all contributions need no list of what is wanted.
    partial = any(want is not None for _, _, want in rows["post"])
    before = [pre[unit] for unit in range(len(pre))]
    return Collective(name, ranks, before, map(list, wants), combining, (), wants if partial else None)
