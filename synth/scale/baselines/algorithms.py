"""Schedules of known algorithms on the same links: ring, double binary tree, recursive doubling and direct.

Each is a Schedule, so it is replayed by `verify`, lowered and executed as any other. The rounds of a step follow from
its load. Reductions are the reversals of copies, and an allreduce is a reduce-scatter followed by an allgather, except
where the algorithm says otherwise.

ring         round every cycle of `rings` at once, as many chunks side by side as the cycle has units (Patarasuk and
             Yuan, J. Parallel Distrib. Comput. 69, 2009); broadcast down the same rings in pieces
tree         allreduce up and down two binary trees, each for half of the data, in pieces (Sanders, Speck and Träff,
             Parallel Comput. 35, 2009; the trees are NCCL's, placed on the ranks so that their edges are links)
recursive-doubling   partners at distance 1, 2, 4, .. in rank numbers (Thakur, Rabenseifner and Gropp, IJHPCA 19, 2005)
direct       every message along a shortest path, the least loaded link among equals; one step where all ranks are
             joined
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from synth.errors import UsageError, unknown
from synth.model.collective import Collective
from synth.model.collective import collective as collective_named
from synth.model.schedule import Schedule, Send, Step
from synth.model.topology import Network

Ring = tuple[tuple[int, ...], int]  # ranks in order, units
Parents = tuple[int | None, ...]  # parent of each node of a tree, None for the root
Move = tuple[int, int, int]  # chunk, source, destination
Moves = list[list[Move]]  # moves of each step
# A schedule of copies on a network; the last argument is True where the network is reversed.
Copying = Callable[[Network, Collective, bool], Schedule]

# Pieces that a pipelined broadcast, or the half of a tree's data, is cut into. More make the pipeline tighter and the
# schedule longer.
PIECES = 8
# Placements of a node that the search for a placement of the trees tries.
MAXIMUM_PLACEMENTS = 200_000
SUMMARIES: Mapping[str, str] = {
    "ring": "all edge-disjoint rings of the links at once",
    "tree": "NCCL's double binary tree, for allreduce",
    "recursive-doubling": "partners at distance 1, 2, 4, ...",
    "direct": "every message along a shortest path",
}


def baseline_schedule(
    name: str,
    network: Network,
    collective: Collective,
    *,
    rings: Sequence[Ring] = (),
    trees: Sequence[Parents] = (),
    pieces: int = PIECES,
) -> Schedule:
    """Return the schedule of the baseline called `name`, not yet replayed.

    `rings` fit the links together. `trees` are parents by node. Raises UsageError where the algorithm does not do the
    collective, or a link is missing.
    """
    lowered = name.lower()
    if lowered not in SUMMARIES:
        message = unknown("baseline", name, list(SUMMARIES), "").partition(";")[0]
        raise UsageError(f"{message}; there are {', '.join(SUMMARIES)}")
    if lowered == "ring":
        return ring(network, collective, rings, pieces)
    if lowered == "tree":
        return tree(network, collective, trees, pieces)
    return (direct if lowered == "direct" else recursive_doubling)(network, collective)


def ring(network: Network, collective: Collective, rings: Sequence[Ring], pieces: int = PIECES) -> Schedule:
    """Return a broadcast, reduce, allgather, reduce-scatter or allreduce round all `rings`. Raises UsageError."""
    if not rings:
        raise UsageError(f"no ring through all ranks of {network.name} was found")
    width = sum(units for _, units in rings)

    def copying(net: Network, target: Collective, reversed_network: bool) -> Schedule:
        direction = -1 if reversed_network else 1
        cycles = [(cycle[::direction], units) for cycle, units in rings]
        if target.name == "broadcast":
            return _schedule(net, target, width * pieces, _pipelined_broadcast(cycles, target.roots[0], pieces))
        return _schedule(net, target, width, _ring_allgather(cycles, width))

    return _with_reversals("ring", network, collective, ("broadcast", "allgather"), copying)


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


def recursive_doubling(network: Network, collective: Collective) -> Schedule:
    """Return a broadcast, reduce, allgather or reduce-scatter, or an allreduce that exchanges whole buffers.

    Raises UsageError unless the number of ranks is a power of two.
    """
    n = network.ranks
    if n & (n - 1):
        raise UsageError(f"recursive doubling needs a power of two of ranks; {network.name} has {n}")
    bits = [1 << k for k in range(n.bit_length() - 1)]
    if collective.name == "allreduce":
        exchanges: Moves = []
        for bit in bits:
            exchanges.append([(0, r, r ^ bit) for r in range(n)])
        return _schedule(network, collective, 1, exchanges, "reduce")

    def copying(net: Network, target: Collective, reversed_network: bool) -> Schedule:
        moves: Moves = []
        for bit in bits:
            if target.name == "broadcast":
                root = target.roots[0]
                moves.append([(0, root ^ r, root ^ r ^ bit) for r in range(bit)])
            else:
                moves.append([(r & -bit | c, r, r ^ bit) for r in range(n) for c in range(bit)])
        return _schedule(net, target, 1, moves)

    return _with_reversals("recursive doubling", network, collective, ("broadcast", "allgather"), copying)


def direct(network: Network, collective: Collective) -> Schedule:
    """Return any copying collective, its reversal, or an allreduce, over shortest paths.

    Each unit comes from the nearest rank that has it. Raises UsageError.
    """

    def copying(net: Network, target: Collective, reversed_network: bool) -> Schedule:
        load: Counter[tuple[int, int, int]] = Counter()
        moves: Moves = [[] for _ in range(net.ranks)]
        for unit, (owners, targets) in enumerate(zip(target.pre, target.post, strict=True)):
            for step, src, dst in _shortest_path_tree(net, owners, targets, load):
                moves[step].append((unit, src, dst))
        return _schedule(net, target, 1, [row for row in moves if row])

    return _with_reversals("direct", network, collective, None, copying)


def _shortest_path_tree(
    network: Network, owners: frozenset[int], targets: frozenset[int], load: Counter
) -> Iterator[tuple[int, int, int]]:
    """Yield (step, src, dst) of shortest paths from `owners` to `targets`.

    `load` counts the transfers of each (step, src, dst) over all units, and is updated. Raises UsageError.
    """
    distance = dict.fromkeys(owners, 0)
    order = sorted(owners)
    for u in order:
        for i in network.out[u]:
            v = network.routes[i].dst
            if v not in distance:
                distance[v] = distance[u] + 1
                order.append(v)
    unreachable = sorted(targets - distance.keys())
    if unreachable:
        raise UsageError(f"rank {unreachable[0]} of {network.name} cannot be reached from rank {min(owners)}")
    tree = set(targets) | owners
    for v in reversed(order):
        if v not in tree or distance[v] == 0:
            continue
        units_from = {
            network.routes[i].src: network.routes[i].units
            for i in network.into[v]
            if distance.get(network.routes[i].src) == distance[v] - 1
        }
        # prefer a rank that gets the unit anyway, then the link with the most capacity left in this step
        src = min(units_from, key=lambda u: (u not in tree, (load[distance[v], u, v] + 1) / units_from[u], u))
        load[distance[v], src, v] += 1
        tree.add(src)
        yield distance[v] - 1, src, v


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
    routes = _routes_by_pair(network)
    steps = tuple(_step(network, routes, rows[s]) for s in sorted(rows))
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


def _with_reversals(
    name: str, network: Network, collective: Collective, supported: tuple[str, ...] | None, copying: Copying
) -> Schedule:
    """Return `collective` from `copying`, as it is, reversed, or both for an allreduce.

    `supported`: names of the collectives that `copying` can do, None: all. Raises UsageError for others.
    """
    target = collective
    if collective.name == "allreduce":
        target = collective_named("allgather", collective.ranks)
    elif collective.combining:
        target = collective.reversed()
    if target.combining or (collective.combining and collective.name != "allreduce" and not collective.reversible):
        raise UsageError(f"{name} does not do {collective.name}")
    if supported is not None and target.name not in supported:
        raise UsageError(f"{name} does not do {collective.name}; direct does")
    copies = None
    if not collective.combining or collective.name == "allreduce":
        copies = copying(network, target, False)
    if not collective.combining and copies is not None:
        return copies
    sums = copying(network.reversed(), target, True).reversed()
    sums = Schedule(network, sums.collective, sums.chunks, sums.steps)
    if copies is None:
        return Schedule(network, collective, sums.chunks, sums.steps)
    # rank r reduces the chunks of unit r of the allgather: both halves have the same chunk numbers
    return Schedule(network, collective, copies.chunks * collective.ranks, sums.steps + copies.steps)


def _schedule(network: Network, collective: Collective, chunks: int, moves: Moves, kind: str = "copy") -> Schedule:
    routes = _routes_by_pair(network)
    steps = []
    for row in moves:
        steps.append(_step(network, routes, [Send(chunk, src, dst, kind) for chunk, src, dst in row]))
    return Schedule(network, collective, chunks, tuple(steps))


def _routes_by_pair(network: Network) -> dict[tuple[int, int], list[int]]:
    """Routes of each pair of ranks."""
    routes: dict[tuple[int, int], list[int]] = {}
    for i, route in enumerate(network.routes):
        routes.setdefault((route.src, route.dst), []).append(i)
    return routes


def _step(network: Network, routes: Mapping[tuple[int, int], Sequence[int]], sends: Sequence[Send]) -> Step:
    """Return one step, each send on the least loaded of its pair's `routes`.

    It has as many rounds as the fullest route or limit needs. Raises UsageError where a pair has no route.
    """
    load: Counter[int] = Counter()
    cap_load: Counter[int] = Counter()
    routed = []
    for send in sends:
        if (send.src, send.dst) not in routes:
            raise UsageError(
                f"{network.name} has no link from rank {send.src} to rank {send.dst}, which this algorithm needs"
            )
        i = min(routes[send.src, send.dst], key=lambda i: ((load[i] + 1) / network.routes[i].units, i))
        load[i] += 1
        routed.append(send._replace(via=network.routes[i].via))
    for i, count in load.items():
        for k in network.caps_of[i]:
            cap_load[k] += count
    rounds = [-(-count // network.routes[i].units) for i, count in load.items()]
    rounds += [-(-count // network.caps[k].units) for k, count in cap_load.items()]
    return Step(max(rounds, default=1), tuple(sorted(routed)))
