"""Graphs as topology documents: networkx's own in memory, and node-link JSON of other tools.

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


def is_node_link(doc: Any) -> bool:
    """True if a parsed document is networkx's node-link form rather than a topology file."""
    return (
        isinstance(doc, dict)
        and "ranks" not in doc
        and isinstance(doc.get("nodes"), list)
        and ("links" in doc or "edges" in doc)
    )


def from_node_link(doc: dict, file: str) -> dict:
    """Return the topology document of a parsed node-link document. Raises FormatError."""
    edges = doc.get("edges", doc.get("links"))
    nodes = doc["nodes"]
    if not all(isinstance(n, dict) and isinstance(n.get("id"), str) for n in nodes):
        raise FormatError("every node must be a mapping with an id that is a number or a text", file, "nodes")
    known = {n["id"] for n in nodes}
    if len(known) < len(nodes):
        raise FormatError("two nodes have the same id", file, "nodes")
    if not isinstance(edges, list):
        raise FormatError("expected a list of edges", file, "links")
    for i, edge in enumerate(edges):
        for end in ("source", "target"):
            if not isinstance(edge, dict) or not isinstance(edge.get(end), str) or edge[end] not in known:
                raise FormatError(f"the {end} is missing or no node's id", file, f"links[{i}]")
    import networkx as nx

    # A multigraph keeps every parallel edge.
    graph = nx.MultiDiGraph() if str(doc.get("directed")).lower() == "true" else nx.MultiGraph()
    graph.graph.update(doc["graph"] if isinstance(doc.get("graph"), dict) else {})
    graph.add_nodes_from((node["id"], node) for node in nodes)
    graph.add_edges_from((edge["source"], edge["target"], edge) for edge in edges)
    return _document(graph, file)


def from_graph(graph: Any, file: str) -> dict:
    """Return the topology document of a networkx graph in memory. Raises FormatError, in which `file` names the graph.

    Nodes that are integers are the machine's own numbers of the ranks, which stand in their order.
    """
    try:
        return _document(graph, file, "graph")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"is no graph of networkx's form: {error}", file) from None


def _document(graph: Any, file: str, source: str = "file") -> dict:
    """Return the topology document of a graph; `source` is the name of what lists the ranks."""
    switch = {n for n, d in graph.nodes(data=True) if str(d.get("switch", "")).lower() in ("true", "1", "yes")}
    ids = [n for n in graph.nodes if n not in switch]
    notes = []
    numbers = set(map(str, range(len(ids))))
    labels: list[int] = []
    if set(map(str, ids)) == numbers:
        rank = {n: int(n) for n in ids}
    elif all(isinstance(n, int) and n >= 0 for n in ids):  # of a graph in memory
        labels = sorted(ids)
        rank = {n: i for i, n in enumerate(labels)}
    else:
        rank = {n: i for i, n in enumerate(ids)}
        shown = [f"{i} is {str(n)[:30]}" for i, n in enumerate(ids[:8])]
        if len(ids) > 8:
            shown.append("...")
        notes.append(f"ranks in the order of the {source}: {', '.join(shown)}")
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
