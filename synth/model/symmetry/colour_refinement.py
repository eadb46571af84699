"""A network (and a collective on it) as a coloured graph, and the colour refinement that searches run on.

    vertices   ranks, then switches, then units of data that are neither one rank's nor everyone's, then caps, then the
               parts of switches that multicast
    edges      routes and wires with their units, the other vertices with the ranks that they concern, caps with ports

An automorphism of the network is one of the graph; the converse is checked on every permutation found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from synth.model.collective import Collective
from synth.model.topology import Network


class Spent(Exception):
    """The budget of a search ran out."""


@dataclass
class EdgeBudget:
    """Edges that may still be looked at: a deterministic measure of time."""

    edges: int

    def spend(self, edges: int) -> None:
        """Raises Spent once nothing is left."""
        self.edges -= edges
        if self.edges < 0:
            raise Spent


@dataclass(frozen=True)
class Graph:
    """A network, and a collective on it, as a graph with coloured vertices and labelled edges.

    The first `named` vertices are the ranks, then the switches; the others stand for units, limits and ports.
    `colours[v]`: the colour of v. `near[v]`: the (label, neighbour) pairs of its edges.
    """

    ranks: int
    switches: tuple[str, ...]
    colours: tuple[int, ...]
    near: tuple[tuple[tuple[int, int], ...], ...]

    @property
    def named(self) -> int:
        """Number of vertices that are ranks or switches: a permutation is read off from them."""
        return self.ranks + len(self.switches)

    @property
    def size(self) -> int:
        """Edges seen in one round of refinement."""
        return sum(map(len, self.near)) + len(self.near)


def graph(network: Network, collective: Collective | None, scale: int, names: dict[Hashable, int]) -> Graph:
    """The graph of `network`, units divided by `scale`. Graphs that share `names` can be compared."""
    switches = tuple(dict.fromkeys(s for r in network.routes for s in r.via))
    place: dict[int | str, int] = {s: network.ranks + i for i, s in enumerate(switches)}

    # Edges between ranks and switches: the links where they are known, else the hops of routes.
    between: dict[tuple[int, int], list] = {}
    if network.wires:
        for a, b, units in network.wires:
            if (a in place or isinstance(a, int)) and (b in place or isinstance(b, int)):
                between.setdefault((place.get(a, a), place.get(b, b)), []).append(units // scale)  # type: ignore[arg-type]
    else:
        for r in network.routes:
            ends = [r.src, *(place[s] for s in r.via), r.dst]
            for pair in pairwise(ends):
                between.setdefault(pair, []).append(r.units // scale)
    colours: list[Hashable] = [*[("rank",)] * network.ranks, *[("switch",)] * len(switches)]
    edges: list[tuple[int, int, Hashable]] = []
    if collective is not None:
        _add_collective(collective, between, colours, edges)
    edges += [(a, b, ("link", *sorted(map(str, units)))) for (a, b), units in between.items()]
    for cap in network.caps:
        _add_cap(network, cap.routes, cap.units // scale, scale, colours, edges)
    _add_multicast(network, len(colours) - len(network.caps), colours, edges)

    # An edge is seen from both ends, with a label that tells them apart.
    near: list[list[tuple[int, int]]] = [[] for _ in colours]
    for a, b, label in edges:
        code = 2 * names.setdefault(label, len(names))
        near[a].append((code, b))
        near[b].append((code + 1, a))
    codes = tuple(names.setdefault(c, len(names)) for c in colours)
    return Graph(network.ranks, switches, codes, tuple(map(tuple, near)))


def _add_cap(network: Network, routes: Sequence[int], units: int, scale: int, colours: list, edges: list) -> None:
    outs: dict[int, list[int]] = {}
    ins: dict[int, list[int]] = {}
    for i in routes:
        r = network.routes[i]
        outs.setdefault(r.src, []).append(r.units // scale)
        ins.setdefault(r.dst, []).append(r.units // scale)
    vertex = len(colours)
    colours.append(("cap", units, len(routes)))
    for rank in outs.keys() | ins.keys():
        edges.append((vertex, rank, ("cap", tuple(sorted(outs.get(rank, ()))), tuple(sorted(ins.get(rank, ()))))))


def _add_multicast(network: Network, first_cap: int, colours: list, edges: list) -> None:
    """Add a vertex for each switch that multicasts, and join its ranks to it and to the caps of their ports.

    `first_cap`: the vertex of the first cap.
    """
    for switch in network.multicast:
        vertex = len(colours)
        colours.append(("multicast", switch.own))
        for port in switch.ports:
            edges.append((vertex, port.rank, ("port",)))
            edges += [(first_cap + k, port.rank, ("port", "up")) for k in port.up]
            edges += [(first_cap + k, port.rank, ("port", "down")) for k in port.down]


def _add_collective(coll: Collective, between: dict[tuple[int, int], list], colours: list, edges: list) -> None:
    """One rank's units colour it, messages from one rank to one other label the pair, other units are vertices."""
    # Units by their shape. Those that every rank has, or gets, tell no rank from another.
    messages: Counter[tuple[int, int]] = Counter()
    marks: list[list] = [[] for _ in range(coll.ranks)]
    units: list[tuple] = []
    for u, (pre, post) in enumerate(zip(coll.pre, coll.post, strict=True)):
        if coll.wants is not None:
            for rank, want in coll.wants[u]:
                marks[rank].append(("wants", u, len(want)))
        if len(pre) == 1 and len(post) == 1:
            messages[next(iter(pre)), next(iter(post))] += 1
        elif len(pre) == 1 and len(post) == coll.ranks:
            marks[next(iter(pre))].append("source")
        elif len(post) == 1 and len(pre) == coll.ranks:
            marks[next(iter(post))].append("sink")
        elif len(pre) < coll.ranks or len(post) < coll.ranks:
            units.append((pre, post))
    for rank in range(coll.ranks):
        own = messages.pop((rank, rank), 0)
        colours[rank] = ("rank", own, *sorted(map(str, marks[rank])))
    everyone = len(messages) == coll.ranks * (coll.ranks - 1) and len(set(messages.values())) == 1
    if not everyone:
        for pair, count in messages.items():
            between.setdefault(pair, []).append(("messages", count))
    for pre, post in units:
        vertex = len(colours)
        colours.append(("unit",))
        edges += [(vertex, r, ("pre",)) for r in pre]
        edges += [(vertex, r, ("post",)) for r in post]


def refine(g: Graph, colours: Sequence[int], budget: EdgeBudget) -> tuple[list[int], int]:
    """Return the coarsest equitable refinement of `colours`, and a trace that isomorphic graphs share.

    Colours are numbered in the order of their signatures, so those of two graphs with equal traces correspond.
    """
    trace, classes, size = 0, len(set(colours)), g.size
    current = list(colours)
    while True:
        budget.spend(size)
        signs = []
        for colour, near in zip(current, g.near, strict=True):
            # A sum of hashes does not depend on the order of the neighbours, and needs no sorting.
            signs.append((colour, sum([hash((label, current[w])) for label, w in near])))
        order = {sign: i for i, sign in enumerate(sorted(set(signs)))}
        current = [order[sign] for sign in signs]
        trace = hash((trace, tuple(sorted(signs))))
        if len(order) == classes:
            return current, trace
        classes = len(order)


def split(g: Graph, colours: Sequence[int], vertex: int, budget: EdgeBudget) -> tuple[list[int], int]:
    """Return the refinement of `colours` after `vertex` gets a colour of its own."""
    marked = list(colours)
    marked[vertex] = -1
    return refine(g, marked, budget)


def twins(g: Graph, colours: Sequence[int], budget: EdgeBudget) -> list[list[int]]:
    """Classes of two or more ranks of one colour with the same neighbours, each other aside, by the same labels.

    Candidates: exchanging two of a class changes no link; caps are not looked at.
    """
    rows = []
    for u in range(g.ranks):
        row: dict[int, tuple[int, ...]] = {}
        for label, w in g.near[u]:
            if w < g.named:
                row[w] = (*row.get(w, ()), label)
        rows.append({w: tuple(sorted(labels)) for w, labels in row.items()})

    # A rank joins the first class of which its row differs by the exchange alone.
    classes: list[list[int]] = []
    for u in range(g.ranks):
        for members in classes:
            v = members[0]
            if colours[u] != colours[v] or len(rows[u]) != len(rows[v]):
                continue
            budget.spend(4)
            if rows[u].get(v) == rows[v].get(u) and all(
                rows[v].get(w) == labels for w, labels in rows[u].items() if w != v
            ):
                budget.spend(len(rows[u]))
                members.append(u)
                break
        else:
            classes.append([u])
    return [members for members in classes if len(members) > 1]
