"""Graphs of networkx as topology documents.

A node is a rank unless its attribute `switch` is true; an edge has `bandwidth` (or `units`, or `weight`; 1 where none
is given), and optionally `latency` and `kind`. An undirected edge is a link each way. `units` count the graph's
attribute `unit` in GB/s, 1 where it has none.
"""

from __future__ import annotations

import difflib
from typing import Any

from synth.errors import FormatError
from synth.model.documents.file_reader import Plain
from synth.model.rational import rational

WIDTHS = ("bandwidth", "units", "weight")


def from_graph(graph: Any, file: str) -> dict:
    """Return the topology document of a networkx graph in memory. Raises FormatError, in which `file` names the graph.

    Nodes that are integers are the machine's own numbers of the ranks, which stand in their order.
    """
    try:
        switch = {n for n, d in graph.nodes(data=True) if str(d.get("switch", "")).lower() in ("true", "1", "yes")}
        ids = [n for n in graph.nodes if n not in switch]
        notes = []
        numbers = set(map(str, range(len(ids))))
        labels: list[int] = []
        if set(map(str, ids)) == numbers:
            rank = {n: int(n) for n in ids}
        elif all(isinstance(n, int) and n >= 0 for n in ids):
            labels = sorted(ids)
            rank = {n: i for i, n in enumerate(labels)}
        else:
            rank = {n: i for i, n in enumerate(ids)}
            shown = [f"{i} is {str(n)[:30]}" for i, n in enumerate(ids[:8])]
            if len(ids) > 8:
                shown.append("...")
            notes.append(f"ranks in the order of the graph: {', '.join(shown)}")
        names = {}
        for n in switch:
            names[n] = f"switch {n}" if str(n).lstrip("-").isdecimal() else str(n)

        def end(node: Any) -> Plain | str:
            return Plain(rank[node]) if node in rank else names[node]

        links, unweighted, unit = [], False, graph.graph.get("unit", 1)
        for a, b, data in graph.edges(data=True):
            key = next((key for key in WIDTHS if data.get(key) is not None), None)
            width: Any = "1" if key is None else data[key]
            if key is None:
                _check_names(data, f"{a}-{b}", file)
                unweighted = True
            elif key == "units":
                width = str(rational(width) * rational(unit))
            link = {"src": end(a), "dst": end(b), "bandwidth": _scalar(width)}
            link |= {key: _scalar(data[key]) for key in ("latency", "kind") if data.get(key) is not None}
            links.append(link if graph.is_directed() else {**link, "both": True})
        if unweighted:
            notes.append("edges without a bandwidth count 1 GB/s")
        if not ids:
            raise FormatError("the graph has no node that is a rank", file)
        doc: dict = {"ranks": Plain(len(ids)), "links": links, "notes": notes}
        if labels:
            doc["labels"] = [Plain(label) for label in labels]
        order = [n for n in graph.nodes if n in switch]
        if order:
            doc["switches"] = [names[n] for n in order]
        if isinstance(graph.graph.get("name"), str) and graph.graph["name"]:
            doc["name"] = graph.graph["name"]
        return doc
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"is no graph of networkx's form: {error}", file) from None


def _check_names(data: dict, edge: str, file: str) -> None:
    """Raise FormatError where an edge without a bandwidth has an attribute that is nearly called so."""
    for key in data:
        near = difflib.get_close_matches(str(key).lower(), WIDTHS, 1, 0.7)
        if near:
            raise FormatError(f"the edge {edge} has {str(key)[:40]!r}; did you mean {near[0]}?", file)


def _scalar(value: Any) -> Any:
    """Return the text of a number as documents have it; other values as they are."""
    if isinstance(value, str):
        return Plain(value)
    if value is None or isinstance(value, bool | list | dict):
        return value
    try:
        return Plain(rational(value))
    except ValueError:
        return Plain(value)  # refused, with its place, by the reader of the document
