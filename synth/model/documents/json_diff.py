"""Where two JSON values differ first, for whoever must find what was altered."""

from __future__ import annotations

from synth.errors import json_kind
from synth.model.topology import Topology, columns


def told(here: object, there: object, other: str) -> str:
    """A clause on the first difference: ``links[3] is [0, 5, 2], in the frontier [0, 5, 1]`` where `other` is "in the
    frontier"."""
    found = first(here, there)
    if found is None:
        return f"nothing that differs from it {other}"
    path, one, two = found
    return f"{path.removeprefix('.') or 'the whole'} {one}, {other} {two}"


def first(here: object, there: object, path: str = "") -> tuple[str, str, str] | None:
    """The path of the first value of `here` that is not that of `there`, with what both are; None where they are
    equal."""
    if isinstance(here, dict) and isinstance(there, dict):
        for key in sorted(here.keys() | there.keys(), key=str):
            if key not in here or key not in there:
                return (f"{path}.{key}", *(("stands", "is missing") if key in here else ("is missing", "stands")))
            if found := first(here[key], there[key], f"{path}.{key}"):
                return found
        return None
    if isinstance(here, list | tuple) and isinstance(there, list | tuple):
        rows = [isinstance(item, dict | list | tuple) for doc in (here, there) for item in doc]
        if rows and not any(rows) and list(here) != list(there) and max(len(here), len(there)) <= 8:
            return path, f"is {list(here)}", f"{list(there)}"
        for i, (one, two) in enumerate(zip(here, there, strict=False)):
            if found := first(one, two, f"{path}[{i}]"):
                return found
        return (
            None
            if len(here) == len(there)
            else (path, f"has {len(here)} entr{'y' if len(here) == 1 else 'ies'}", str(len(there)))
        )
    if type(here) is type(there) and here == there:
        return None
    if isinstance(here, dict | list) or isinstance(there, dict | list):
        return path, f"is {json_kind(here)}", json_kind(there)
    return path, f"is {here!r}"[:60], f"{there!r}"[:60]


def plain(topology: Topology) -> dict:
    """What certificates speak about, as JSON: `links` [src, dst, GB/s], `limits` [GB/s, the numbers of its links]."""
    src, dst, width = columns(topology.links)
    return {
        "ranks": topology.ranks, "switches": len(topology.switches), "unit": str(topology.unit_bandwidth()),
        "links": [[a, b, str(w)] for a, b, w in zip(src, dst, width, strict=True)],
        "limits": [[str(m.bandwidth), list(m.links)] for m in topology.limits],
    }  # fmt: skip


def size(topology: Topology) -> str:
    """What a digest cannot tell: how much of everything there is."""
    counts = {
        "rank": topology.ranks,
        "switch": len(topology.switches),
        "link": len(topology.links),
        "limit": len(topology.limits),
    }
    told = ", ".join(f"{n} {what}{'' if n == 1 else 'es' if what == 'switch' else 's'}" for what, n in counts.items())
    return f"these {told}: a number of it was altered, or one of a link or limit here"
