"""ForestColl's tree XML: the spanning trees of an allgather, each root's chunks shared among its trees.

Format: liangyuRain/ForestColl. ``<Algo nchunkspernode="k">`` has ``<tree root index nchunks height>``, whose
``<send src dst path>`` come parents first. A node is ``(box, 'kind', i)``; the ranks are the GPUs in the order of
(box, i). A path names the switches between, and each GPU on it gets the data too.
"""

from __future__ import annotations

import re
from itertools import pairwise

from synth.errors import FormatError, UsageError, VerificationError
from synth.language.place import SourceLine
from synth.language.recorded_moves import MAX_RANKS, RecordedMoves
from synth.model.collective import collective
from synth.model.documents.xml_tree import Element, parse
from synth.model.topology import Topology

COLLECTIVES = ("allgather", "reduce-scatter", "allreduce")
# Bounds of a file that is read.
MAX_ELEMENTS, MAX_CHUNKS = 1 << 18, 4096
_NODE = re.compile(r"\(\s*(-?\d{1,9})\s*,\s*'([\w .:-]{1,40})'\s*,\s*(-?\d{1,9})\s*\)")
_PATH = re.compile(rf"{_NODE.pattern}(?:\s*,\s*{_NODE.pattern})*")
Node = tuple[int, str, int]


def recorded(text: str, machine: Topology | None, file: str, name: str = "allgather") -> RecordedMoves:
    """Return the moves of a file.

    `name`: the collective, which the file does not say. A reduce-scatter sums along the trees towards their roots, an
    allreduce does so and spreads the sums along them. Raises FormatError, VerificationError for trees that do not span
    all GPUs, UsageError for another collective.
    """
    if name not in COLLECTIVES:
        raise UsageError(f"{file}: trees are read as {', '.join(COLLECTIVES)}, not as {name}")
    root = parse(text, file, MAX_ELEMENTS)
    _attributes(root, "Algo", {"nchunkspernode"}, file)
    chunks = _number(root, "nchunkspernode", MAX_CHUNKS, file)
    rank = _ranks(root, file)
    parts = chunks * len(rank) if name == "allreduce" else chunks
    moves = RecordedMoves(collective(name, len(rank)), parts, machine, file)
    # The trees of a root share its chunks one after another.
    used = [0] * len(rank)
    for tree in root.children:
        source = rank[_node(tree, "root", file)]
        count = _number(tree, "nchunks", MAX_CHUNKS, file)
        first = used[source]
        used[source] += count
        if used[source] > chunks:
            raise FormatError(f"the trees of this root have more than {chunks} chunks together", file, tree.line)
        edges = _edges(tree, source, rank, file)
        for chunk in range(source * chunks + first, source * chunks + used[source]):
            # summed towards the root, spread from it, or both
            held = {source: moves.input(chunk, source)}
            if name != "allgather":
                held = {rank: moves.input(chunk, rank) for rank in range(moves.task.ranks)}
                for src, dst, place in reversed(edges):
                    held[src] = moves.add(held[src], held[dst], place)
            for src, dst, place in edges if name != "reduce-scatter" else ():
                held[dst] = moves.copy(held[src], dst, place)
    for source, count in enumerate(used):
        if count != chunks:
            raise VerificationError(f"the trees of rank {source} have {count} of its {chunks} chunks", file)
    return moves


def _edges(tree: Element, source: int, rank: dict[Node, int], file: str) -> list[tuple[int, int, SourceLine]]:
    """Return the sends (src, dst, place) of a tree from GPU to GPU, parents first.

    Raises VerificationError where they are no spanning tree.
    """
    # Sends to switches pass to the next GPU on the path, which must not have the data yet.
    edges = []
    reached = {source}
    for send in tree.children:
        place = SourceLine(file, send.line)
        path = [rank[node] for node in _path(send, file) if node in rank]
        for src, dst in pairwise(path):
            if src not in reached:
                raise VerificationError(f"rank {src} sends what it does not have", str(place))
            if dst in reached:
                raise VerificationError(f"rank {dst} gets the chunks of this tree twice", str(place))
            reached.add(dst)
            edges.append((src, dst, place))
    if len(reached) != len(rank):
        missing = min(set(rank.values()) - reached)
        raise VerificationError(f"the tree does not reach rank {missing}", str(SourceLine(file, tree.line)))
    return edges


def _ranks(root: Element, file: str) -> dict[Node, int]:
    # Every GPU is a root or an end of a send; their order is that of the ranks.
    nodes = set()
    for tree in root.children:
        _attributes(tree, "tree", {"root", "nchunks", "index", "height"}, file)
        nodes.add(_node(tree, "root", file))
        for send in tree.children:
            _attributes(send, "send", {"src", "dst", "path"}, file)
            if send.children:
                raise FormatError("a <send> holds no elements", file, send.children[0].line)
            ends = _node(send, "src", file), _node(send, "dst", file)
            nodes |= set(ends)
            path = _path(send, file)
            if (path[0], path[-1]) != ends:
                raise FormatError("its path does not lead from src to dst", file, send.line)
    kinds = {kind for _, kind, _ in nodes}
    if len(kinds) > 1:
        raise FormatError(f"trees have nodes of several kinds: {', '.join(sorted(kinds))}", file)
    if not 2 <= len(nodes) <= MAX_RANKS:
        raise FormatError(f"has trees over {len(nodes)} nodes; 2 to {MAX_RANKS} are read", file)
    return {node: i for i, node in enumerate(sorted(nodes))}


def _attributes(element: Element, tag: str, needed: set[str], file: str) -> None:
    if element.tag != tag:
        raise FormatError(f"<{element.tag[:24]}> stands where ForestColl's trees have <{tag}>", file, element.line)
    for name in sorted(needed ^ element.attributes.keys()):
        fault = "is missing" if name in needed else "is not known"
        raise FormatError(f"<{tag}> attribute {name[:24]!r} {fault}", file, element.line)


def _number(element: Element, name: str, maximum: int, file: str) -> int:
    text = element.attributes[name]
    if not text.isdecimal() or len(text) > 9 or not 1 <= int(text) <= maximum:
        raise FormatError(f"{name}={text[:24]!r}: expected a whole number from 1 to {maximum}", file, element.line)
    return int(text)


def _node(element: Element, name: str, file: str) -> Node:
    text = element.attributes[name]
    match = _NODE.fullmatch(text.strip())
    if match is None:
        raise FormatError(f"{name}={text[:40]!r}: expected a node (box, 'kind', number)", file, element.line)
    return int(match[1]), match[2], int(match[3])


def _path(element: Element, file: str) -> list[Node]:
    text = element.attributes["path"]
    if len(text) > 4096 or not _PATH.fullmatch(text.strip()):
        raise FormatError("path: expected nodes (box, 'kind', number), .. with commas", file, element.line)
    return [(int(box), kind, int(i)) for box, kind, i in _NODE.findall(text)]
