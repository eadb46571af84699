"""Custom collectives from YAML or JSON files: pre, post and combining, written by hand.

name: my-exchange            # optional
combining: false             # optional; true: `pre` lists the contributors of a unit
pre:  [[0, 0], [1, 3]]       # [unit, rank] pairs
post: [[0, 2], [1, [0, 1]]]  # [unit, rank or ranks]; combining: [unit, rank, [contributors]] for a partial sum
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from pathlib import Path
from typing import Any, SupportsIndex

from synth.errors import FormatError
from synth.model.collective import MAX_UNITS, Collective
from synth.model.documents.text_file import text_of

MAX_BYTES, MAX_DEPTH = 8 << 20, 16
_KEYS = {"name", "ranks", "combining", "pre", "post"}


def load(path: Path, ranks: int) -> Collective:
    """Return the collective that the file `path` defines over `ranks` ranks. Raises FormatError with the place."""
    return from_document(_read(path), ranks, path)


def from_mapping(given: Mapping, ranks: int) -> Collective:
    """Return the collective of a mapping in memory, of the form of a file. Raises FormatError with the place.

    Sets, tuples and NumPy's integers count as lists and integers, and `pre` and `post` may map each unit to its rank or
    ranks.
    """
    return from_document({str(key): _plain(value) for key, value in given.items()}, ranks, Path("collective"))


def _plain(value: Any) -> Any:
    match value:
        case Mapping():
            return [[_plain(unit), _plain(members)] for unit, members in value.items()]
        case set() | frozenset():
            return sorted(map(_plain, value))
        case list() | tuple() | range():
            return [_plain(item) for item in value]
        case SupportsIndex() if not isinstance(value, bool):
            return operator.index(value)
        case _:
            return value


def from_document(doc: dict, ranks: int, path: Path) -> Collective:
    """Return the collective of a document; `path` is named in errors, and its stem where there is no name.

    Raises FormatError with the place.
    """
    for key in sorted(set(doc) - _KEYS, key=str):
        raise FormatError(f"unknown key {repr(key)[:60]}; a collective has {', '.join(sorted(_KEYS))}", str(path), key)
    for key in ("pre", "post"):
        if not isinstance(doc.get(key), list) or not doc[key]:
            raise FormatError(f"{key} must be a list of [unit, rank] or [unit, [ranks]]", str(path), key)
    if doc.get("ranks", ranks) != ranks:
        raise FormatError(f"is over {str(doc['ranks'])[:20]} ranks, the topology has {ranks}", str(path), "ranks")
    combining = doc.get("combining", False)
    if not isinstance(combining, bool):
        raise FormatError(f"expected true or false, found {repr(combining)[:60]}", str(path), "combining")
    pre: dict[int, set[int]] = {}
    post: dict[int, dict[int, frozenset[int] | None]] = {}
    for i, row in enumerate(doc["pre"]):
        unit, members, _ = _row(row, ranks, False, path, f"pre[{i}]")
        pre.setdefault(unit, set()).update(members)
    for i, row in enumerate(doc["post"]):
        unit, members, want = _row(row, ranks, combining, path, f"post[{i}]")
        if unit not in pre:
            raise FormatError(f"unit {unit} is on no rank before", str(path), f"post[{i}]")
        if want is not None and not want <= pre[unit]:
            raise FormatError(
                f"ranks {sorted(want - pre[unit])} do not contribute to unit {unit}", str(path), f"post[{i}]"
            )
        if want is not None and not want:
            who = f"rank{'' if len(members) == 1 else 's'} {', '.join(map(str, members))}"
            raise FormatError(
                f"{who} would want a sum of no contributions; leave the row out, or name some", str(path), f"post[{i}]"
            )
        for rank in members:
            if post.setdefault(unit, {}).setdefault(rank, want) != want:
                raise FormatError(
                    f"rank {rank} wants another sum of unit {unit} in a row before", str(path), f"post[{i}]"
                )
    units = max(pre) + 1
    for unit in range(units):
        if unit not in pre:
            raise FormatError(f"units are numbered from 0 without gaps; unit {unit} is missing", str(path), "pre")
    wants = None
    if any(want is not None for row in post.values() for want in row.values()):
        wants = tuple(_wanted(post.get(unit, {}), frozenset(pre[unit])) for unit in range(units))
    name = doc.get("name", path.stem)
    if not isinstance(name, str) or not 0 < len(name) <= 64 or not name.isprintable():
        raise FormatError("the name is a text of 1 to 64 characters that can be printed", str(path), "name")
    if name in _reserved():
        raise FormatError(f"{name!r} is a built-in collective; choose another name", str(path), "name")
    sources, ends = (
        tuple(frozenset(pre[u]) for u in range(units)),
        tuple(frozenset(post.get(u, ())) for u in range(units)),
    )
    return Collective(name, ranks, sources, ends, combining, (), wants)


def _wanted(
    row: dict[int, frozenset[int] | None], contributors: frozenset[int]
) -> tuple[tuple[int, frozenset[int]], ...]:
    """(rank, the contributions that it must end with) of one unit, by rank; None in `row` stands for all of them."""
    sums = []
    for rank, contributions in sorted(row.items()):
        sums.append((rank, contributors if contributions is None else contributions))
    return tuple(sums)


def _reserved() -> set[str]:
    from synth.model.collective import COLLECTIVES

    return set(COLLECTIVES)


def _row(
    row: object, ranks: int, combining: bool, path: Path, place: str
) -> tuple[int, list[int], frozenset[int] | None]:
    if not isinstance(row, list) or not 2 <= len(row) <= (3 if combining else 2):
        raise FormatError("expected [unit, rank] or [unit, [ranks]]", str(path), place)
    members = row[1] if isinstance(row[1], list) else [row[1]]
    want = row[2] if len(row) == 3 else []
    if not members:
        raise FormatError("names no rank", str(path), place)
    if not isinstance(want, list):
        raise FormatError(f"expected a list of contributors, found {want!r}"[:80], str(path), place)
    if type(row[0]) is not int or not 0 <= row[0] < MAX_UNITS:
        raise FormatError(f"unit {repr(row[0])[:60]} is not a number in 0..{MAX_UNITS - 1}", str(path), place)
    for rank in [*members, *want]:
        if type(rank) is not int or not 0 <= rank < ranks:
            raise FormatError(f"rank {repr(rank)[:60]} is not in 0..{ranks - 1}", str(path), place)
    return row[0], members, frozenset(want) if len(row) == 3 else None


def _read(path: Path) -> dict:
    import yaml

    try:
        text = text_of(path, MAX_BYTES)
        kind: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's, where it is there: ten times as fast
        depth = 0
        for event in yaml.parse(text, Loader=kind):
            if isinstance(event, yaml.AliasEvent):
                raise FormatError("YAML aliases are not accepted", str(path))
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise FormatError("is nested too deeply", str(path), event.start_mark.line + 1)
        loader = kind(text)
        root = loader.get_single_node()
        if isinstance(root, yaml.MappingNode):
            keys = [key.value for key, _ in root.value if isinstance(key, yaml.ScalarNode)]
            for i, key in enumerate(keys):
                if key in keys[:i]:
                    raise FormatError(
                        f"the key {key[:40]!r} is given twice", str(path), root.value[i][0].start_mark.line + 1
                    )
        doc = None if root is None else loader.construct_document(root)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark, problem = getattr(error, "problem_mark", None), str(getattr(error, "problem", error))
        what = "is nested too deeply" if "nesting" in problem else f"not YAML or JSON: {problem}"
        raise FormatError(what, str(path), mark.line + 1 if mark else None) from None
    if not isinstance(doc, dict):
        raise FormatError("expected a mapping with pre and post", str(path))
    return doc
