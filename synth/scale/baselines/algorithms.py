"""Schedules of known algorithms whose ways on the same links are searched for.

Each is a Schedule, so it is replayed by `verify`, lowered and executed as any other. The rounds of a step follow from
its load. Reductions are the reversals of copies, and an allreduce is a reduce-scatter followed by an allgather, except
where the algorithm says otherwise.

ring         round every cycle of `rings` at once, as many chunks side by side as the cycle has units (Patarasuk and
             Yuan, J. Parallel Distrib. Comput. 69, 2009); broadcast down the same rings in pieces
tree         allreduce up and down two binary trees, each for half of the data, in pieces (Sanders, Speck and Träff,
             Parallel Comput. 35, 2009; the trees are NCCL's, placed on the ranks so that their edges are links)
direct       every message along a shortest path, the least loaded link among equals; one step where all ranks are
             joined
hierarchical, two-step, few-messages   by boxes (`by_boxes`)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import gcd

from synth.errors import UsageError
from synth.model.collective import Collective
from synth.model.schedule import Schedule, Send
from synth.model.step_routes import routes_by_pair, step_of_sends
from synth.model.topology import Network
from synth.scale.baselines import by_boxes
from synth.scale.baselines.double_binary_tree import Parents, binary_trees
from synth.scale.baselines.schedule_steps import Moves, schedule_of_moves, shortest_path_tree, with_reversals

Ring = tuple[tuple[int, ...], int]  # ranks in order, units

# Pieces that a pipelined broadcast, or the half of a tree's data, is cut into. More make the pipeline tighter and the
# schedule longer.
PIECES = 8
# Placements of a node that the search for a placement of the trees tries.
MAXIMUM_PLACEMENTS = 200_000
SUMMARIES: Mapping[str, str] = {
    "ring": "all edge-disjoint rings of the links at once",
    "tree": "NCCL's double binary tree, for allreduce",
    "direct": "every message along a shortest path",
    "hierarchical": "between boxes and inside them, in phases",
    "two-step": "alltoall inside the boxes, then between them",
    "few-messages": "two-step, inside the boxes by the digits of the distance",
}


def baseline_schedule(
    name: str,
    network: Network,
    collective: Collective,
    *,
    rings: Sequence[Ring] = (),
    pieces: int = PIECES,
    nodes: Sequence[int] = (),
) -> Schedule:
    """Return the schedule of the baseline called `name`, of `SUMMARIES`, not yet replayed.

    `rings` fit the links together. `nodes`: the box of each rank; () where it is to be
    derived from latencies. Raises UsageError where the algorithm does not do the collective, or a link is missing.
    """
    match name:
        case "ring":
            return ring(network, collective, rings, pieces)
        case "tree":
            return tree(network, collective, binary_trees(network.ranks), pieces)
        case "direct":
            return direct(network, collective)
        case "hierarchical":
            return by_boxes.hierarchical(network, collective, nodes)
        case "few-messages":
            return by_boxes.few_messages(network, collective, nodes)
    return by_boxes.two_step(network, collective, nodes)


def ring(network: Network, collective: Collective, rings: Sequence[Ring], pieces: int = PIECES) -> Schedule:
    """Return a broadcast, reduce, allgather, reduce-scatter or allreduce round all `rings`. Raises UsageError."""
    if not rings:
        raise UsageError(f"no ring through all ranks of {network.name} was found")
    width = sum(units for _, units in rings)

    def copying(net: Network, target: Collective, reversed_network: bool) -> Schedule:
        direction = -1 if reversed_network else 1
        cycles = [(cycle[::direction], units) for cycle, units in rings]
        if target.name == "broadcast":
            return schedule_of_moves(net, target, width * pieces, _pipelined_broadcast(cycles, target.roots[0], pieces))
        return schedule_of_moves(net, target, width, _ring_allgather(cycles, width))

    return with_reversals("ring", network, collective, ("broadcast", "allgather"), copying)


def in_channels(rings: Sequence[Ring], channels: int) -> list[Ring]:
    """Return `rings` with their units divided by a common divisor: the least that leaves at most `channels` units.

    It is the greatest where none leaves so few. A round then carries less than it can, so it is for programs alone.
    """
    shares = [units for _, units in rings]
    width, common = sum(shares), gcd(*shares)
    divisors = [k for k in range(1, common + 1) if common % k == 0]
    divisor = next((k for k in divisors if width // k <= channels), common)
    return [(cycle, units // divisor) for cycle, units in rings]


def _ring_allgather(rings: Sequence[Ring], width: int) -> Moves:
    """Allgather: each rank sends its own chunks, then those that it received in the step before."""
    ranks = len(rings[0][0])
    moves: Moves = [[] for _ in range(ranks - 1)]
    first = 0
    for cycle, units in rings:
        for t, row in enumerate(moves):
            for p in range(ranks):
                owner, src, dst = cycle[(p - t) % ranks], cycle[p], cycle[(p + 1) % ranks]
                row += [(owner * width + c, src, dst) for c in range(first, first + units)]
        first += units
    return moves


def _pipelined_broadcast(rings: Sequence[Ring], root: int, pieces: int) -> Moves:
    """Broadcast: piece after piece down each ring from the root."""
    ranks = len(rings[0][0])
    moves: Moves = [[] for _ in range(ranks - 2 + pieces)]
    first = 0
    for cycle, units in rings:
        at = cycle.index(root)
        chain = cycle[at:] + cycle[:at]
        for p in range(ranks - 1):
            for piece in range(pieces):
                chunks = range(first + piece * units, first + (piece + 1) * units)
                moves[p + piece] += [(c, chain[p], chain[p + 1]) for c in chunks]
        first += units * pieces
    return moves


def direct(network: Network, collective: Collective) -> Schedule:
    """Return a schedule of sends along shortest paths, each unit from the nearest rank that has it.

    For copying collectives, their reversals, and allreduce. Raises UsageError for others.
    """

    def copying(net: Network, target: Collective, reversed_network: bool) -> Schedule:
        load: Counter[tuple[int, int, int]] = Counter()
        moves: Moves = [[] for _ in range(net.ranks)]
        for unit, (owners, targets) in enumerate(zip(target.pre, target.post, strict=True)):
            for step, src, dst in shortest_path_tree(net, owners, targets, load):
                moves[step].append((unit, src, dst))
        return schedule_of_moves(net, target, 1, moves)

    return with_reversals("direct", network, collective, None, copying)


def tree(network: Network, collective: Collective, trees: Sequence[Parents], pieces: int = PIECES) -> Schedule:
    """Return an allreduce up each tree and down again, piece after piece. Raises UsageError."""
    if collective.name != "allreduce":
        raise UsageError(f"double binary trees are for allreduce, as in NCCL; {collective.name}: ring or direct")
    rank_of = _placement(network, trees)
    if rank_of is None:
        raise UsageError(f"no way to place the double binary tree on the links of {network.name} was found")
    rows: dict[int, list[Send]] = {}
    for k, parents in enumerate(trees):
        heights = _heights(parents)
        root = parents.index(None)
        for v, parent in enumerate(parents):
            if parent is None:
                continue
            down = heights[root] + _depth(parents, parent)
            for piece in range(pieces):
                chunk, a, b = k * pieces + piece, rank_of[v], rank_of[parent]
                rows.setdefault(heights[v] + piece, []).append(Send(chunk, a, b, "reduce"))
                rows.setdefault(down + piece, []).append(Send(chunk, b, a, "copy"))
    routes = routes_by_pair(network)
    steps = tuple(step_of_sends(network, routes, rows[s]) for s in sorted(rows))
    return Schedule(network, collective, len(trees) * pieces, steps)


def _heights(parents: Parents) -> list[int]:
    """Height of each node of a tree: the first step at which it may send up, after all of its children."""
    heights = [0] * len(parents)
    for v in range(len(parents)):
        height, at = 0, parents[v]
        while at is not None:
            height += 1
            heights[at] = max(heights[at], height)
            at = parents[at]
    return heights


def _depth(parents: Parents, v: int) -> int:
    at, depth = parents[v], 0
    while at is not None:
        at, depth = parents[at], depth + 1
    return depth


def _placement(network: Network, trees: Sequence[Parents]) -> list[int] | None:
    """Return the rank of each node of the trees such that tree edges are links both ways.

    A depth-first search that places the node with the most placed neighbors next; None where it finds no placement
    within `MAXIMUM_PLACEMENTS` trials.
    """
    n = network.ranks
    linked = {(route.src, route.dst) for route in network.routes}
    neighbors: list[set[int]] = [set() for _ in range(n)]
    for parents in trees:
        for v, parent in enumerate(parents):
            if parent is not None:
                neighbors[v].add(parent)
                neighbors[parent].add(v)
    order: list[int] = [max(range(n), key=lambda v: len(neighbors[v]))]
    while len(order) < n:
        remaining = (v for v in range(n) if v not in order)
        order.append(max(remaining, key=lambda v: (len(neighbors[v] & set(order)), len(neighbors[v]))))
    rank_of: dict[int, int] = {}

    def fits(v: int, rank: int) -> bool:
        return all({(rank, rank_of[w]), (rank_of[w], rank)} <= linked for w in neighbors[v] if w in rank_of)

    stack = [iter(range(n))]  # the ranks still to try for each node of `order`
    for _ in range(MAXIMUM_PLACEMENTS):
        v = order[len(stack) - 1]
        rank_of.pop(v, None)
        used = {rank_of[w] for w in order[: len(stack) - 1]}
        rank = next((r for r in stack[-1] if r not in used and fits(v, r)), None)
        if rank is None:
            stack.pop()
            if not stack:
                return None
            continue
        rank_of[v] = rank
        if len(rank_of) == n:
            return [rank_of[v] for v in range(n)]
        stack.append(iter(range(n)))
    return None
