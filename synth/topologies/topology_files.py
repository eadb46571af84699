"""Users' topology files: YAML or JSON by hand. The form: docs/topologies.md."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from math import lcm
from pathlib import Path
from typing import Any

from synth.errors import FormatError, SynthError, unknown
from synth.model.documents.file_reader import Fields, Plain, parse_json, parse_yaml, plain
from synth.model.documents.text_file import text_of
from synth.model.rational import rational
from synth.model.topology import KINDS, Limit, Link, Multicast, Topology, check_multicast
from synth.topologies.builders import MAX_LINKS, is_permutation, preserves

MAX_FILE_RANKS = 4096
MAX_LIMITS = 1 << 16
MAX_UNITS = 1 << 40
KEYS = (
    "name", "ranks", "links", "limits", "switches", "nodes", "connection", "symmetries", "labels", "notes", "multicast",
)  # fmt: skip
LINK_KEYS = ("src", "dst", "bandwidth", "latency", "kind", "both")
LIMIT_KEYS = ("name", "links", "bandwidth")
MULTICAST_KEYS = ("switch", "ranks", "own")
# Where a link states no latency: NCCL's defaults by kind (see machines.py); 1 µs, as in the families, for an unknown
# one.
LATENCY = {
    "nvlink": Fraction(3, 5),
    "xgmi": Fraction(3, 5),
    "pcie": Fraction(1),
    "net": Fraction(27, 10),
    "unknown": Fraction(1),
}


def load(path: Path) -> Topology:
    """Return the topology in a user's file. Raises FormatError, one line with the file and the place in it."""
    path = Path(path)
    text, file = text_of(path), str(path)
    suffix = path.suffix.lower()
    # A truncated JSON file is better reported as such than as odd YAML.
    is_json = suffix == ".json" or (suffix not in (".yaml", ".yml") and text.lstrip().startswith(("{", "[")))
    doc = parse_json(text, file) if is_json else parse_yaml(text, file)
    return from_document(doc, file, path.stem)


def from_document(doc: Any, file: str, name: str = "topology") -> Topology:
    """Return the topology in a parsed document (see `reading`); `file` is named in errors. Raises FormatError."""
    read = Fields(file)
    if isinstance(doc, dict) and "ranks" not in doc and isinstance(doc.get("nodes"), list):
        raise FormatError("is node-link JSON: in Python, synth.topology(networkx.node_link_graph(...)) reads it", file)
    if isinstance(doc, dict) and "schema" in doc:
        raise FormatError(f"is a document of schema {str(doc['schema'])[:40]!r}, not a topology file", file)
    doc = read.mapping(doc, None, KEYS, ("ranks", "links"))
    ranks = read.integer(doc["ranks"], "ranks", 1, MAX_FILE_RANKS)
    value = doc.get("switches")
    names = [
        read.string(x, f"switches[{i}]", 64)
        for i, x in enumerate(read.sequence(value or [], "switches", MAX_FILE_RANKS))
    ]
    for i, switch in enumerate(names):
        if switch.lstrip("-").isdecimal():
            read.fail(f"{switch!r} would be taken for a rank; give the switch a name with a letter", f"switches[{i}]")
        if names.index(switch) < i:
            read.fail(f"the switch {switch!r} is listed twice", f"switches[{i}]")
    switches = tuple(names)
    ends = {name: ranks + i for i, name in enumerate(switches)}
    found: dict[tuple[int, int], Link] = {}
    repeated: dict[tuple[int, int], int] = {}
    for i, item in enumerate(read.sequence(doc["links"], "links", MAX_LINKS)):
        place = f"links[{i}]"
        row = read.mapping(item, place, LINK_KEYS, ("src", "dst", "bandwidth"))
        src, dst = (_end(read, row[key], f"{place}.{key}", ranks, ends) for key in ("src", "dst"))
        if src == dst:
            read.fail(f"a link from {row['src']} to itself", place)
        kind = read.string(row["kind"], f"{place}.kind").lower() if row.get("kind") is not None else "unknown"
        if kind not in KINDS:
            read.fail(
                unknown("kind of link", kind, KINDS, "").partition("; `")[0] + f"; the kinds are {', '.join(KINDS)}",
                f"{place}.kind",
            )
        bandwidth = read.number(row["bandwidth"], f"{place}.bandwidth")
        latency = (
            read.number(row["latency"], f"{place}.latency", zero=True)
            if row.get("latency") is not None
            else LATENCY[kind]
        )
        both = row.get("both") is not None and read.boolean(row["both"], f"{place}.both")
        for a, b in ((src, dst), (dst, src)) if both else ((src, dst),):
            link = Link(a, b, bandwidth, latency, kind)
            if (a, b) in found:
                repeated[a, b] = repeated.get((a, b), 1) + 1
                one = found[a, b]
                kind = one.kind if one.kind == link.kind else "unknown"
                link = Link(one.src, one.dst, one.bandwidth + link.bandwidth, max(one.latency, link.latency), kind)
            found[a, b] = link
    if len(found) > MAX_LINKS:
        read.fail(f"has {len(found)} links, at most {MAX_LINKS} are supported", "links")
    names = {end: name for name, end in ends.items()}
    shown = [f"{names.get(a, a)}→{names.get(b, b)} ({n} entries)" for (a, b), n in list(repeated.items())[:4]]
    more = f" and {len(repeated) - 4} more" if len(repeated) > 4 else ""
    links, notes = tuple(found.values()), [f"parallel links added up: {', '.join(shown)}{more}"] if shown else []
    places = {(k.src, k.dst): i for i, k in enumerate(links)}
    limits = []
    for i, item in enumerate(read.sequence(doc.get("limits") or [], "limits", MAX_LIMITS)):
        place = f"limits[{i}]"
        row = read.mapping(item, place, LIMIT_KEYS, ("links", "bandwidth"))
        title = read.string(row["name"], f"{place}.name") if row.get("name") is not None else f"limit {i}"
        limited: dict[int, None] = {}
        for j, pair in enumerate(read.sequence(row["links"], f"{place}.links", MAX_LINKS)):
            spot = f"{place}.links[{j}]"
            src, dst = (_end(read, end, spot, ranks, ends) for end in read.sequence(pair, spot, 2, 2))
            index = places.get((src, dst))
            if index is None:
                read.fail(f"there is no link {pair[0]}→{pair[1]}", spot)
            if index in limited:
                read.fail(f"the link {pair[0]}→{pair[1]} is listed twice in this limit", spot)
            limited[index] = None
        if not limited:
            read.fail("the limit has no links", f"{place}.links")
        limits.append(Limit(title, tuple(limited), read.number(row["bandwidth"], f"{place}.bandwidth")))
    limits = tuple(limits)
    connection = None if doc.get("connection") is None else read.number(doc["connection"], "connection")
    _check_units(read, [(f"links {_ends(k, switches, ranks)}", k.bandwidth) for k in links], limits)
    nodes = _integers(read, doc.get("nodes"), "nodes", ranks) or (0,) * ranks
    labels = _integers(read, doc.get("labels"), "labels", ranks)
    if len(set(labels)) < len(labels):
        read.fail("two ranks have the same label", "labels")
    notes += [
        read.string(x, f"notes[{i}]", 1000) for i, x in enumerate(read.sequence(doc.get("notes") or [], "notes", 100))
    ]
    title = read.string(doc["name"], "name") if doc.get("name") is not None else name
    # The switches that multicast: each is listed once, and names no rank twice.
    multicast: list[Multicast] = []
    for i, item in enumerate(read.sequence(doc.get("multicast") or [], "multicast", MAX_FILE_RANKS)):
        place = f"multicast[{i}]"
        row = read.mapping(item, place, MULTICAST_KEYS, ("switch",))
        rows = read.sequence(row.get("ranks") or [], f"{place}.ranks", MAX_FILE_RANKS)
        if row.get("ranks") == []:
            read.fail("is empty; leave it out for all ranks that have links from and to the switch", f"{place}.ranks")
        members = tuple(read.integer(x, f"{place}.ranks[{j}]", 0, ranks - 1) for j, x in enumerate(rows))
        own = "through" if row.get("own") is None else read.string(row["own"], f"{place}.own").lower()
        multicast.append(Multicast(read.string(row["switch"], f"{place}.switch", 64), members, own))
        try:
            check_multicast(multicast[-1], ranks, switches)
        except SynthError as error:
            read.fail(str(error), place)
        if multicast[-1].switch in [earlier.switch for earlier in multicast[:-1]]:
            read.fail(f"the switch {multicast[-1].switch!r} that multicasts is listed twice", place)
    topology = Topology(
        title, ranks, links, limits, switches, nodes, connection, (), labels, tuple(dict.fromkeys(notes)), multicast
    )
    # A declared symmetry is a claim, which is checked.
    generators = []
    for i, item in enumerate(read.sequence(doc.get("symmetries") or [], "symmetries", 64)):
        place = f"symmetries[{i}]"
        pi = _integers(read, item, place, topology.ranks)
        if not is_permutation(pi, topology.ranks):
            read.fail(f"is not a permutation of the ranks 0..{topology.ranks - 1}", place)
        if not preserves(topology, pi):
            read.fail("does not map links to links of equal bandwidth and limits to limits", place)
        generators.append(pi)
    return replace(topology, generators=tuple(generators))


def from_mapping(given: Mapping, name: str) -> Topology:
    """Return the topology of a mapping in memory; `name` stands for a file in errors. Raises FormatError.

    It is the document of a topology file; or bandwidths, or the fields of links, by (source, destination) or by source
    and destination: ``{(0, 1): 25}``, ``{0: {1: 25}}``.
    """
    named = all(isinstance(key, str) for key in given)
    doc: Any = plain(given) if named else _of_pairs(given, name)
    return from_document(doc, name, name)


def _of_pairs(given: Mapping, name: str) -> dict:
    """Return the document of links by source and destination. Raises FormatError for keys of another form."""
    links = []
    for key, value in given.items():
        rows = [(key, value)]
        if not isinstance(key, tuple) and isinstance(value, Mapping):
            rows = [((key, end), width) for end, width in value.items()]
        for ends, fields in rows:
            if not isinstance(ends, tuple) or len(ends) != 2:
                raise FormatError(f"expected (source, destination) as a key, found {str(ends)[:60]}", name)
            data = fields if isinstance(fields, Mapping) else {"bandwidth": fields}
            links.append(plain({"src": ends[0], "dst": ends[1], **data}))
    ends = [-1]
    for link in links:
        ends += [int(end) for end in (link["src"], link["dst"]) if isinstance(end, Plain) and end.isdecimal()]
    return {"ranks": Plain(1 + max(ends)), "links": links}


def dump(topology: Topology) -> dict:
    """The same form, ready for JSON; `from_document` and `load` read it back to an equal topology."""
    names = {topology.ranks + i: name for i, name in enumerate(topology.switches)}

    def ends(link: Link) -> list:
        return [names.get(link.src, link.src), names.get(link.dst, link.dst)]

    doc: dict = {"name": topology.name, "ranks": topology.ranks}
    if topology.connection is not None:
        doc["connection"] = _plain(topology.connection)
    if topology.switches:
        doc["switches"] = list(topology.switches)
    doc["links"] = [
        {
            **dict(zip(("src", "dst"), ends(k), strict=True)),
            "bandwidth": _plain(k.bandwidth),
            "latency": _plain(k.latency),
            "kind": k.kind,
        }
        for k in topology.links
    ]
    if topology.limits:
        doc["limits"] = []
        for limit in topology.limits:
            members = [ends(topology.links[i]) for i in limit.links]
            doc["limits"].append({"name": limit.name, "links": members, "bandwidth": _plain(limit.bandwidth)})
    if topology.multicast:
        doc["multicast"] = []
        for switch in topology.multicast:
            doc["multicast"].append({"switch": switch.switch, "ranks": list(switch.ranks), "own": switch.own})
    lists = {
        "nodes": topology.nodes,
        "symmetries": topology.generators,
        "labels": topology.labels,
        "notes": topology.notes,
    }
    for key, values in lists.items():
        if values:
            doc[key] = []
        for value in values:
            doc[key].append(list(value) if isinstance(value, tuple) else value)
    return doc


def _plain(value: Fraction) -> int | str:
    return value.numerator if value.denominator == 1 else str(value)


def _end(read: Fields, value: Any, place: str, ranks: int, ends: dict[str, int]) -> int:
    if isinstance(value, str) and value in ends:
        return ends[value]
    if isinstance(value, str) and not (isinstance(value, Plain) and value.lstrip("-").isdecimal()):
        read.fail(f"{str(value)[:40]!r} is neither a rank nor one of the switches", place)
    return read.integer(value, place, 0, ranks - 1)


def _check_units(read: Fields, links: Iterable[tuple[str, Fraction]], limits: tuple[Limit, ...]) -> None:
    """Refuses bandwidths whose common unit is so small that counts of it would no longer fit the engines' integers."""
    common, top = 1, Fraction(0)
    for place, value in [*links, *((f"limit {m.name!r}", m.bandwidth) for m in limits)]:
        common, top = lcm(common, value.denominator), max(top, value)
        if common * max(top, 1) > MAX_UNITS:
            read.fail(
                "the bandwidths up to here have no common unit of reasonable size; round them to fewer digits", place
            )


def _ends(link: Link, switches: tuple[str, ...], ranks: int) -> str:
    def name(end: int) -> str:
        return str(end) if end < ranks else switches[end - ranks]

    return f"{name(link.src)}→{name(link.dst)}"


def _integers(read: Fields, value: Any, place: str, ranks: int) -> tuple[int, ...]:
    if value is None:
        return ()
    return tuple(
        read.integer(x, f"{place}[{i}]", 0, 1 << 20) for i, x in enumerate(read.sequence(value, place, ranks, ranks))
    )


# Graphs of networkx as topology documents.
#
# A node is a rank unless its attribute `switch` is true; an edge has `bandwidth` (or `units`, or `weight`; 1 where none
# is given), and optionally `latency` and `kind`. An undirected edge is a link each way. `units` count the graph's
# attribute `unit` in GB/s, 1 where it has none.


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
                # An attribute that is nearly called so is a mistake.
                edge = f"{a}-{b}"
                for attribute in data:
                    near = difflib.get_close_matches(str(attribute).lower(), WIDTHS, 1, 0.7)
                    if near:
                        raise FormatError(f"the edge {edge} has {str(attribute)[:40]!r}; did you mean {near[0]}?", file)
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
