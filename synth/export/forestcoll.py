"""Export of a schedule as ForestColl's tree XML: one spanning tree of the ranks for each chunk.

Format: liangyuRain/ForestColl; `synth.interchange.forestcoll` reads it. A tree is an allgather's, and starts at its
root. A reduce-scatter is written as the trees along which it sums, turned round, and an allreduce as those along which
it sums and spreads; the paths are those of its copies. The file says neither, as ForestColl's trees do not.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from synth.errors import SynthError
from synth.model.schedule import Schedule, Send

COLLECTIVES = ("allgather", "reduce-scatter", "allreduce")
GPU = "GPU"
# A switch's name as a kind and a number.
_NAME = re.compile(r"([A-Za-z][A-Za-z .:_-]{0,30})(\d{0,9})")


class _Edge(NamedTuple):
    """A send of a tree from parent to child, through the switches `via`."""

    src: int
    dst: int
    via: tuple[str, ...]


class _Tree(NamedTuple):
    """A spanning tree: its edges by depth, then by ranks, so that equal trees are equal values."""

    root: int
    edges: tuple[_Edge, ...]
    height: int


def document(schedule: Schedule, places: Sequence[tuple[int, int]]) -> str:
    """Return the XML of a schedule that was replayed. `places`: the box of each rank, and its number there.

    Raises SynthError for a schedule that is not a forest: another collective, a multicast, a chunk that is not sent
    along one tree, roots of unlike numbers of chunks.
    """
    counts = Counter(_trees(schedule))
    chunks = Counter[int]()
    for tree, count in counts.items():
        chunks[tree.root] += count
    roots = {chunks[rank] for rank in range(schedule.collective.ranks)}
    if len(roots) > 1:
        raise SynthError(
            f"no forest: between {min(roots)} and {max(roots)} of the chunks are summed at a rank, and ForestColl's "
            f"trees start at each rank for as many"
        )
    switches = _switches(schedule, [box for box, _ in places])
    gpus = [f"({box}, '{GPU}', {number})" for box, number in places]
    lines = [f'<Algo nchunkspernode="{roots.pop()}">']
    index = Counter[int]()
    for tree in sorted(counts, key=lambda tree: places[tree.root]):
        head = f'root="{gpus[tree.root]}" index="{index[tree.root]}" nchunks="{counts[tree]}"'
        lines.append(f'  <tree {head} height="{tree.height}">')
        index[tree.root] += 1
        for src, dst, via in tree.edges:
            path = ",".join((gpus[src], *(switches[name] for name in via), gpus[dst]))
            lines.append(f'    <send src="{gpus[src]}" dst="{gpus[dst]}" path="{path}"/>')
        lines.append("  </tree>")
    return "\n".join([*lines, "</Algo>"]) + "\n"


def _trees(schedule: Schedule) -> list[_Tree]:
    """Return the tree of each chunk."""
    task = schedule.collective
    if task.name not in COLLECTIVES:
        raise SynthError(f"ForestColl's trees are of {', '.join(COLLECTIVES)}; this is a schedule of {task.name}")
    sent: list[list[Send]] = [[] for _ in range(schedule.chunks * len(task.pre))]
    for step in schedule.steps:
        if step.switch_sends:
            raise SynthError("no forest: ForestColl's trees have no sends of switches that multicast")
        for send in step.sends:
            if send.local:
                raise SynthError(f"no forest: rank {send.src} puts its input in the place of chunk {send.chunk} again")
            sent[send.chunk].append(send)
    return [_tree(chunk, sends, task.name, task.ranks) for chunk, sends in enumerate(sent)]


def _tree(chunk: int, sends: Sequence[Send], collective: str, ranks: int) -> _Tree:
    """Return the tree of a chunk. Raises SynthError where its sends are none."""
    spread = [_Edge(send.src, send.dst, send.via) for send in sends if send.kind.startswith("copy")]
    summed = [_Edge(send.dst, send.src, send.via[::-1]) for send in sends if not send.kind.startswith("copy")][::-1]
    if (collective == "allgather" and summed) or (collective == "reduce-scatter" and spread):
        raise SynthError(f"no forest: chunk {chunk} of the {collective} is both copied and summed")
    trees = []
    if collective != "allgather":
        trees.append(_spanning(chunk, summed, "sends", ranks))
    if collective != "reduce-scatter":
        trees.append(_spanning(chunk, spread, "gets", ranks))
    if _pairs(trees[0]) != _pairs(trees[-1]):
        raise SynthError(f"no forest: chunk {chunk} is spread along another tree than that along which it is summed")
    return trees[-1]


def _pairs(tree: _Tree) -> set[tuple[int, int]]:
    return {(edge.src, edge.dst) for edge in tree.edges}


def _spanning(chunk: int, edges: Sequence[_Edge], verb: str, ranks: int) -> _Tree:
    """Return the tree of edges in the order in which they happen from the root on, or raise SynthError.

    `verb`: what a child does with the chunk.
    """
    children = Counter(edge.dst for edge in edges)
    for rank, count in children.items():
        if count > 1:
            raise SynthError(f"no forest: rank {rank} {verb} chunk {chunk} {count} times")
    roots = [rank for rank in range(ranks) if rank not in children]
    depth = dict.fromkeys(roots[:1], 0)
    for edge in edges:
        if edge.src in depth:
            depth[edge.dst] = depth[edge.src] + 1
    if len(roots) != 1 or len(depth) < ranks:
        raise SynthError(f"no forest: the sends of chunk {chunk} are no tree of all ranks")
    return _Tree(roots[0], tuple(sorted(edges, key=lambda edge: (depth[edge.dst], edge))), max(depth.values()))


def _switches(schedule: Schedule, boxes: Sequence[int]) -> Mapping[str, str]:
    """Return the node of each switch: in the box of all ranks that it connects, or in box -1."""
    beside: dict[str, set[int]] = {}
    for route in schedule.network.routes:
        for name in route.via:
            beside.setdefault(name, set()).update((boxes[route.src], boxes[route.dst]))
    nodes = {}
    for name, around in beside.items():
        match = _NAME.fullmatch(name)
        if match is not None and match[1] != GPU:
            nodes[name] = (min(around) if len(around) == 1 else -1, match[1], int(match[2] or 0))
    if len(set(nodes.values())) < len(beside):
        nodes = {name: (-1, "switch", number) for number, name in enumerate(beside)}
    return {name: f"({box}, '{kind}', {number})" for name, (box, kind, number) in nodes.items()}
