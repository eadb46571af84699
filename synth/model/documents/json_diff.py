"""The first difference between two JSON values, for readers who look for what was altered."""

from __future__ import annotations

from typing import Any

from synth.model.rational import counted
from synth.model.topology import Topology, columns


def describe(here: object, there: object, other: str) -> str:
    """Return a clause on the first difference; `other` says where the second value is.

    ``links[3] is [0, 5, 2], in the frontier [0, 5, 1]`` where `other` is "in the frontier".
    """
    difference = _first(here, there, "")
    if difference is None:
        return f"nothing that differs from it {other}"
    path, one, two = difference
    return f"{path.removeprefix('.') or 'the whole'} {one}, {other} {two}"


def _first(here: Any, there: Any, path: str) -> tuple[str, str, str] | None:
    """Return the path of the first difference, and a text for each of the two values; None where they are equal."""
    if isinstance(here, dict) and isinstance(there, dict):
        for key in sorted(here.keys() | there.keys(), key=str):
            if key not in here or key not in there:
                one, two = ("stands", "is missing") if key in here else ("is missing", "stands")
                return f"{path}.{key}", one, two
            if difference := _first(here[key], there[key], f"{path}.{key}"):
                return difference
        return None
    # Rows of a few numbers are shown whole; of other lists the first entry that differs, or how many there are.
    if isinstance(here, list | tuple) and isinstance(there, list | tuple):
        row = not any(isinstance(item, dict | list | tuple) for item in (*here, *there))
        if row and list(here) != list(there) and max(len(here), len(there)) <= 8:
            return path, f"is {list(here)}", f"{list(there)}"
        for i, (one, two) in enumerate(zip(here, there, strict=False)):
            if difference := _first(one, two, f"{path}[{i}]"):
                return difference
        same = len(here) == len(there)
        return None if same else (path, f"has {counted(len(here), 'entry')}", str(len(there)))
    if type(here) is type(there) and here == there:
        return None
    return path, f"is {here!r}"[:60], f"{there!r}"[:60]


def plain(topology: Topology) -> dict:
    """Return the machine that certificates speak about as JSON.

    `links` are [src, dst, GB/s], `limits` [GB/s, the numbers of their links].
    """
    src, dst, width = columns(topology.links)
    return {
        "ranks": topology.ranks, "switches": len(topology.switches), "unit": str(topology.unit_bandwidth()),
        "links": [[a, b, str(w)] for a, b, w in zip(src, dst, width, strict=True)],
        "limits": [[str(m.bandwidth), list(m.links)] for m in topology.limits],
    }  # fmt: skip


def size(topology: Topology) -> str:
    """Return a clause on the numbers of ranks, switches, links and limits, for a digest that does not match."""
    texts = [
        counted(topology.ranks, "rank"), counted(len(topology.switches), "switch"),
        counted(len(topology.links), "link"), counted(len(topology.limits), "limit"),
    ]  # fmt: skip
    return f"these {', '.join(texts)}: a number of it was altered, or one of a link or limit here"
