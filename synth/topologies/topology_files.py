"""Users' topology files: YAML or JSON by hand. The form: docs/topologies.md."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial
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


class _Keys(Fields):
    """Values of keys that a mapping may lack; `place` is that of the mapping, "" for the document itself."""

    def optional(self, row: dict, place: str, key: str, read: Callable[[Any, str], Any], default: Any) -> Any:
        """Return what `read` makes of the value of a key; `default` where there is none."""
        if row.get(key) is None:
            return default
        return read(row[key], f"{place}.{key}".lstrip("."))

    def rows(self, row: dict, place: str, key: str, most: int) -> Iterator[tuple[str, Any]]:
        """Yield place and value of each item of a list; nothing where there is none."""
        where = f"{place}.{key}".lstrip(".")
        items = [] if row.get(key) is None else self.sequence(row[key], where, most)
        for i, item in enumerate(items):
            yield f"{where}[{i}]", item


def from_document(doc: Any, file: str, name: str = "topology") -> Topology:
    """Return the topology in a parsed document (see `reading`); `file` is named in errors. Raises FormatError."""
    read = _Keys(file)
    if isinstance(doc, dict) and "ranks" not in doc and isinstance(doc.get("nodes"), list):
        raise FormatError("is node-link JSON: in Python, synth.topology(networkx.node_link_graph(...)) reads it", file)
    if isinstance(doc, dict) and "schema" in doc:
        raise FormatError(f"is a document of schema {str(doc['schema'])[:40]!r}, not a topology file", file)
    doc = read.mapping(doc, None, KEYS, ("ranks", "links"))
    ranks = read.integer(doc["ranks"], "ranks", 1, MAX_FILE_RANKS)

    # Ends of links are ranks, or switches by a name that no rank could have.
    ends: dict[str, int] = {}
    for place, value in read.rows(doc, "", "switches", MAX_FILE_RANKS):
        switch = read.string(value, place, 64)
        if switch.lstrip("-").isdecimal():
            read.fail(f"{switch!r} would be taken for a rank; give the switch a name with a letter", place)
        if switch in ends:
            read.fail(f"the switch {switch!r} is listed twice", place)
        ends[switch] = ranks + len(ends)
    switches = tuple(ends)
    names = [*range(ranks), *switches]

    def end(value: Any, place: str) -> int:
        if isinstance(value, str) and value in ends:
            return ends[value]
        if isinstance(value, str) and not (isinstance(value, Plain) and value.lstrip("-").isdecimal()):
            read.fail(f"{str(value)[:40]!r} is neither a rank nor one of the switches", place)
        return read.integer(value, place, 0, ranks - 1)

    def shown(way: tuple[int, int]) -> str:
        return f"{names[way[0]]}→{names[way[1]]}"

    # The links by their ends; parallel ones are one link with all their bandwidth and the greatest latency.
    links: dict[tuple[int, int], Link] = {}
    entries: Counter[tuple[int, int]] = Counter()
    for place, item in read.rows(doc, "", "links", MAX_LINKS):
        row = read.mapping(item, place, LINK_KEYS, ("src", "dst", "bandwidth"))
        src, dst = end(row["src"], f"{place}.src"), end(row["dst"], f"{place}.dst")
        if src == dst:
            read.fail(f"a link from {row['src']} to itself", place)
        kind = read.optional(row, place, "kind", read.string, "unknown").lower()
        if kind not in KINDS:
            near = unknown("kind of link", kind, KINDS, "").partition("; `")[0]
            read.fail(f"{near}; the kinds are {', '.join(KINDS)}", f"{place}.kind")
        bandwidth = read.number(row["bandwidth"], f"{place}.bandwidth")
        latency = read.optional(row, place, "latency", partial(read.number, zero=True), LATENCY[kind])
        both = read.optional(row, place, "both", read.boolean, False)
        for way in ((src, dst), (dst, src)) if both else ((src, dst),):
            one = links.get(way, Link(*way, bandwidth, latency, kind))
            if way in links:
                same = kind if kind == one.kind else "unknown"
                one = Link(*way, one.bandwidth + bandwidth, max(one.latency, latency), same)
            links[way] = one
            entries[way] += 1
    if len(links) > MAX_LINKS:
        read.fail(f"has {len(links)} links, at most {MAX_LINKS} are supported", "links")
    notes = []
    repeated = [f"{shown(way)} ({count} entries)" for way, count in entries.items() if count > 1]
    if repeated:
        more = f" and {len(repeated) - 4} more" if len(repeated) > 4 else ""
        notes.append(f"parallel links added up: {', '.join(repeated[:4])}{more}")

    # The limits, each on links that there are.
    places = {way: i for i, way in enumerate(links)}
    limits: list[Limit] = []
    for place, item in read.rows(doc, "", "limits", MAX_LIMITS):
        row = read.mapping(item, place, LIMIT_KEYS, ("links", "bandwidth"))
        title = read.optional(row, place, "name", read.string, f"limit {len(limits)}")
        limited: dict[int, None] = {}
        for spot, pair in read.rows(row, place, "links", MAX_LINKS):
            src, dst = (end(value, spot) for value in read.sequence(pair, spot, 2, 2))
            index = places.get((src, dst))
            if index is None:
                read.fail(f"there is no link {pair[0]}→{pair[1]}", spot)
            if index in limited:
                read.fail(f"the link {pair[0]}→{pair[1]} is listed twice in this limit", spot)
            limited[index] = None
        if not limited:
            read.fail("the limit has no links", f"{place}.links")
        limits.append(Limit(title, tuple(limited), read.number(row["bandwidth"], f"{place}.bandwidth")))

    # Counts of the common unit of all bandwidths must fit the engines' integers.
    connection = read.optional(doc, "", "connection", read.number, None)
    widths = [(f"links {shown(way)}", link.bandwidth) for way, link in links.items()]
    widths += [(f"limit {limit.name!r}", limit.bandwidth) for limit in limits]
    common, top = 1, Fraction(1)
    for place, value in widths:
        common, top = lcm(common, value.denominator), max(top, value)
        if common * top > MAX_UNITS:
            said = "the bandwidths up to here have no common unit of reasonable size; round them to fewer digits"
            read.fail(said, place)

    def numbers(value: Any, place: str) -> tuple[int, ...]:
        listed = enumerate(read.sequence(value, place, ranks, ranks))
        return tuple(read.integer(x, f"{place}[{i}]", 0, 1 << 20) for i, x in listed)

    nodes = read.optional(doc, "", "nodes", numbers, (0,) * ranks)
    labels = read.optional(doc, "", "labels", numbers, ())
    if len(set(labels)) < len(labels):
        read.fail("two ranks have the same label", "labels")
    notes += [read.string(text, place, 1000) for place, text in read.rows(doc, "", "notes", 100)]
    title = read.optional(doc, "", "name", read.string, name)

    # The switches that multicast: each is listed once, and names no rank twice.
    multicast: list[Multicast] = []
    for place, item in read.rows(doc, "", "multicast", MAX_FILE_RANKS):
        row = read.mapping(item, place, MULTICAST_KEYS, ("switch",))
        if row.get("ranks") == []:
            read.fail("is empty; leave it out for all ranks that have links from and to the switch", f"{place}.ranks")
        listed = read.rows(row, place, "ranks", MAX_FILE_RANKS)
        members = tuple(read.integer(value, spot, 0, ranks - 1) for spot, value in listed)
        own = read.optional(row, place, "own", read.string, "through").lower()
        multicast.append(Multicast(read.string(row["switch"], f"{place}.switch", 64), members, own))
        try:
            check_multicast(multicast[-1], ranks, switches)
        except SynthError as error:
            read.fail(str(error), place)
        if multicast[-1].switch in [earlier.switch for earlier in multicast[:-1]]:
            read.fail(f"the switch {multicast[-1].switch!r} that multicasts is listed twice", place)
    topology = Topology(
        title, ranks, tuple(links.values()), tuple(limits), switches, nodes, connection, (), labels,
        tuple(dict.fromkeys(notes)), tuple(multicast),
    )  # fmt: skip

    # A declared symmetry is a claim, which is checked.
    generators = []
    for place, item in read.rows(doc, "", "symmetries", 64):
        pi = numbers(item, place)
        if not is_permutation(pi, ranks):
            read.fail(f"is not a permutation of the ranks 0..{ranks - 1}", place)
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

    def number(value: Fraction) -> int | str:
        return value.numerator if value.denominator == 1 else str(value)

    names = [*range(topology.ranks), *topology.switches]
    links, ways, limits = [], [], []
    for link in topology.links:
        ways.append([names[link.src], names[link.dst]])
        links.append({
            "src": names[link.src], "dst": names[link.dst], "bandwidth": number(link.bandwidth),
            "latency": number(link.latency), "kind": link.kind,
        })  # fmt: skip
    for limit in topology.limits:
        members = [[*ways[i]] for i in limit.links]
        limits.append({"name": limit.name, "links": members, "bandwidth": number(limit.bandwidth)})
    doc = {
        "name": topology.name, "ranks": topology.ranks,
        "connection": None if topology.connection is None else number(topology.connection),
        "switches": list(topology.switches), "links": links, "limits": limits,
        "multicast": [{"switch": m.switch, "ranks": list(m.ranks), "own": m.own} for m in topology.multicast],
        "nodes": list(topology.nodes), "symmetries": [*map(list, topology.generators)],
        "labels": list(topology.labels), "notes": list(topology.notes),
    }  # fmt: skip
    return {key: value for key, value in doc.items() if value or key in ("name", "links")}


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
        if not ids:
            raise FormatError("the graph has no node that is a rank", file)

        # Nodes 0, 1, ... are ranks as they are, other numbers the machine's own; names have the order of the graph.
        notes, labels = [], []
        if set(map(str, ids)) == set(map(str, range(len(ids)))):
            rank = {n: int(n) for n in ids}
        elif all(isinstance(n, int) and n >= 0 for n in ids):
            labels = sorted(ids)
            rank = {n: i for i, n in enumerate(labels)}
        else:
            rank = {n: i for i, n in enumerate(ids)}
            shown = [f"{i} is {str(n)[:30]}" for i, n in enumerate(ids[:8])]
            notes.append(f"ranks in the order of the graph: {', '.join(shown)}{', ...' * (len(ids) > 8)}")
        names = {}
        for n in graph.nodes:
            if n in switch:
                names[n] = f"switch {n}" if str(n).lstrip("-").isdecimal() else str(n)

        def end(node: Any) -> Plain | str:
            return Plain(rank[node]) if node in rank else names[node]

        links, plain_edges = [], 0
        for a, b, data in graph.edges(data=True):
            key = next((key for key in WIDTHS if data.get(key) is not None), None)
            width: Any = "1" if key is None else data[key]
            plain_edges += key is None
            # An attribute that is nearly called so is a mistake.
            for attribute in data if key is None else ():
                near = difflib.get_close_matches(str(attribute).lower(), WIDTHS, 1, 0.7)
                if near:
                    raise FormatError(f"the edge {a}-{b} has {str(attribute)[:40]!r}; did you mean {near[0]}?", file)
            if key == "units":
                width = str(rational(width) * rational(graph.graph.get("unit", 1)))
            link = {"src": end(a), "dst": end(b), "bandwidth": _scalar(width), "both": not graph.is_directed()}
            links.append(link | {key: _scalar(data[key]) for key in ("latency", "kind") if data.get(key) is not None})
        if plain_edges:
            notes.append("edges without a bandwidth count 1 GB/s")
        name = graph.graph.get("name")
        return {
            "name": name or None if isinstance(name, str) else None, "ranks": Plain(len(ids)), "links": links,
            "notes": notes, "switches": list(names.values()), "labels": [*map(Plain, labels)] or None,
        }  # fmt: skip
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
