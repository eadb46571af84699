"""What is run beside a synthesized schedule: ring, double binary tree, recursive doubling and direct, on the same
links.

Each is a Schedule, so it is replayed by `verify`, lowered and executed as any other. Rounds follow from the load of
each step. Reductions are the reversals of copies, and an allreduce is a reduce-scatter followed by an allgather, except
where the algorithm says otherwise.

ring         round every cycle of `rings` at once, as many chunks side by side as the cycle has units (Patarasuk and
             Yuan,
             J. Parallel Distrib. Comput. 69, 2009); broadcast down the same rings in pieces
tree         allreduce up and down two binary trees, each for half of the data, in pieces (Sanders, Speck and Träff,
             Parallel
             Comput. 35, 2009; the trees are NCCL's, placed on the ranks so that their edges are links)
recursive-doubling   partners at distance 1, 2, 4, .. in rank numbers (Thakur, Rabenseifner and Gropp, IJHPCA 19, 2005)
direct       every message along a shortest way, the least loaded link among equals; one step where all ranks are joined
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from synth.errors import UsageError, unknown
from synth.model.collective import Collective, collective
from synth.model.schedule import Schedule, Send, Step
from synth.model.topology import Network

Ring = tuple[tuple[int, ...], int]  # ranks in order, units
Parents = tuple[int | None, ...]
Moves = list[list[tuple[int, int, int]]]  # by step: chunk, src, dst
PIECES = 8  # that a pipelined broadcast, or half of a tree's data, is cut into
TRIES = 200_000  # places tried for the trees
SUMMARIES: Mapping[str, str] = {
    "ring": "all edge-disjoint rings of the links at once",
    "tree": "NCCL's double binary tree, for allreduce",
    "recursive-doubling": "partners at distance 1, 2, 4, ...",
    "direct": "every message along a shortest way",
}


def baseline(
    name: str,
    network: Network,
    task: Collective,
    *,
    rings: Sequence[Ring] = (),
    trees: Sequence[Parents] = (),
    pieces: int = PIECES,
) -> Schedule:
    """The baseline called `name`, not yet replayed. `rings` fit the links together, `trees` are parents by rank.

    Raises UsageError where the algorithm does not do the collective, or the links do not carry it.
    """
    known = name.lower()
    if known not in SUMMARIES:
        raise UsageError(
            unknown("baseline", name, list(SUMMARIES), "").partition(";")[0] + f"; there are {', '.join(SUMMARIES)}"
        )
    if known == "ring":
        return ring(network, task, rings, pieces)
    if known == "tree":
        return tree(network, task, trees, pieces)
    return (direct if known == "direct" else recursive_doubling)(network, task)


def ring(network: Network, task: Collective, rings: Sequence[Ring], pieces: int = PIECES) -> Schedule:
    """broadcast, reduce, allgather, reduce-scatter or allreduce round `rings`."""
    if not rings:
        raise UsageError(f"no ring through all ranks of {network.name} was found")
    width = sum(units for _, units in rings)

    def spread(net: Network, wanted: Collective, back: bool) -> Schedule:
        ways = [(cycle[::-1] if back else cycle, units) for cycle, units in rings]
        if wanted.name == "broadcast":
            return _schedule(net, wanted, width * pieces, _chains(ways, wanted.roots[0], pieces))
        return _schedule(net, wanted, width, _rounds(ways, width))

    return _made("ring", network, task, ("broadcast", "allgather"), spread)


def _rounds(rings: Sequence[Ring], width: int) -> Moves:
    """Allgather: each rank sends its own chunks, then what came in last."""
    ranks = len(rings[0][0])
    moves: Moves = [[] for _ in range(ranks - 1)]
    first = 0
    for cycle, units in rings:
        for t, row in enumerate(moves):
            row += [
                (cycle[(p - t) % ranks] * width + c, cycle[p], cycle[(p + 1) % ranks])
                for p in range(ranks)
                for c in range(first, first + units)
            ]
        first += units
    return moves


def _chains(rings: Sequence[Ring], root: int, pieces: int) -> Moves:
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


def recursive_doubling(network: Network, task: Collective) -> Schedule:
    """broadcast, reduce, allgather, reduce-scatter, or allreduce by exchanges of whole buffers; ranks are a power of
    two."""
    n = network.ranks
    if n & (n - 1):
        raise UsageError(f"recursive doubling needs a power of two of ranks; {network.name} has {n}")
    bits = [1 << k for k in range(n.bit_length() - 1)]
    if task.name == "allreduce":
        return _schedule(network, task, 1, [[(0, r, r ^ bit) for r in range(n)] for bit in bits], "reduce")

    def spread(net: Network, wanted: Collective, back: bool) -> Schedule:
        if wanted.name == "broadcast":
            root = wanted.roots[0]
            return _schedule(net, wanted, 1, [[(0, root ^ r, root ^ r ^ bit) for r in range(bit)] for bit in bits])
        return _schedule(
            net, wanted, 1, [[(r & -bit | c, r, r ^ bit) for r in range(n) for c in range(bit)] for bit in bits]
        )  # fmt: skip

    return _made("recursive doubling", network, task, ("broadcast", "allgather"), spread)


def direct(network: Network, task: Collective) -> Schedule:
    """Any collective that copies, the reversals, and allreduce: each unit from the nearest rank that has it, by
    shortest ways."""

    def spread(net: Network, wanted: Collective, back: bool) -> Schedule:
        load: Counter[tuple[int, int, int]] = Counter()
        moves: Moves = [[] for _ in range(net.ranks)]
        for unit, (held, wants) in enumerate(zip(wanted.pre, wanted.post, strict=True)):
            for step, src, dst in _shortest(net, held, wants, load):
                moves[step].append((unit, src, dst))
        return _schedule(net, wanted, 1, [row for row in moves if row])

    return _made("direct", network, task, None, spread)


def _shortest(
    network: Network, held: frozenset[int], wants: frozenset[int], load: Counter
) -> Iterator[tuple[int, int, int]]:
    """(step, src, dst) of the ways from `held` to `wants`; `load` counts the transfers of each link and step."""
    far = dict.fromkeys(held, 0)
    order = sorted(held)
    for u in order:
        for i in network.out[u]:
            v = network.routes[i].dst
            if v not in far:
                far[v] = far[u] + 1
                order.append(v)
    lost = sorted(wants - far.keys())
    if lost:
        raise UsageError(f"rank {lost[0]} of {network.name} cannot be reached from rank {min(held)}")
    tree = set(wants) | held
    for v in reversed(order):
        if v not in tree or far[v] == 0:
            continue
        before = {
            network.routes[i].src: network.routes[i].units
            for i in network.into[v]
            if far.get(network.routes[i].src) == far[v] - 1
        }
        # a rank that has the unit anyway first, then the link with the most room left in this step
        src = min(before, key=lambda u: (u not in tree, (load[far[v], u, v] + 1) / before[u], u))
        load[far[v], src, v] += 1
        tree.add(src)
        yield far[v] - 1, src, v


def tree(network: Network, task: Collective, trees: Sequence[Parents], pieces: int = PIECES) -> Schedule:
    """allreduce: up each tree and down again, piece after piece."""
    if task.name != "allreduce":
        raise UsageError(f"double binary trees are for allreduce, as in NCCL; {task.name}: ring or direct")
    places = _placed(network, trees)
    if places is None:
        raise UsageError(f"no way to place the double binary tree on the links of {network.name} was found")
    rows: dict[int, list[Send]] = {}
    for k, parents in enumerate(trees):
        up = _heights(parents)
        root = parents.index(None)
        for v, parent in enumerate(parents):
            if parent is None:
                continue
            depth = up[root] + _depth(parents, parent)
            for piece in range(pieces):
                chunk, a, b = k * pieces + piece, places[v], places[parent]
                rows.setdefault(up[v] + piece, []).append(Send(chunk, a, b, "reduce"))
                rows.setdefault(depth + piece, []).append(Send(chunk, b, a, "copy"))
    ways = _pairs(network)
    return Schedule(network, task, len(trees) * pieces, tuple(_step(network, ways, rows[s]) for s in sorted(rows)))


def _heights(parents: Parents) -> list[int]:
    """The first step at which each place may send up: after all of its children."""
    up = [0] * len(parents)
    for v in range(len(parents)):
        steps, at = 0, parents[v]
        while at is not None:
            steps += 1
            up[at] = max(up[at], steps)
            at = parents[at]
    return up


def _depth(parents: Parents, v: int) -> int:
    at, depth = parents[v], 0
    while at is not None:
        at, depth = parents[at], depth + 1
    return depth


def _placed(network: Network, trees: Sequence[Parents]) -> list[int] | None:
    """The rank of each place of the trees such that their edges are links both ways; None where a bounded search finds
    none."""
    n = network.ranks
    linked = {(route.src, route.dst) for route in network.routes}
    near: list[set[int]] = [set() for _ in range(n)]
    for parents in trees:
        for v, parent in enumerate(parents):
            if parent is not None:
                near[v].add(parent)
                near[parent].add(v)
    order: list[int] = [max(range(n), key=lambda v: len(near[v]))]
    while len(order) < n:
        order.append(
            max((v for v in range(n) if v not in order), key=lambda v: (len(near[v] & set(order)), len(near[v])))
        )
    places: dict[int, int] = {}
    stack = [iter(range(n))]
    for _ in range(TRIES):
        v = order[len(stack) - 1]
        places.pop(v, None)
        used = {places[w] for w in order[: len(stack) - 1]}
        rank = next(
            (
                r
                for r in stack[-1]
                if r not in used and all({(r, places[w]), (places[w], r)} <= linked for w in near[v] if w in places)
            ),
            None,
        )
        if rank is None:
            stack.pop()
            if not stack:
                return None
            continue
        places[v] = rank
        if len(places) == n:
            return [places[v] for v in range(n)]
        stack.append(iter(range(n)))
    return None


def _made(
    name: str,
    network: Network,
    task: Collective,
    spreads: tuple[str, ...] | None,
    spread: Callable[[Network, Collective, bool], Schedule],
) -> Schedule:
    """`task` from `spread`, which makes schedules of copies: as it is, reversed, or both for allreduce.

    `spreads`: the copying collectives that it can make, None: all. Its last argument: the network is turned round.
    """
    wanted = task
    if task.name == "allreduce":
        wanted = collective("allgather", task.ranks)
    elif task.combining:
        wanted = task.reversed()
    if wanted.combining or (task.combining and task.name != "allreduce" and not task.reversible):
        raise UsageError(f"{name} does not do {task.name}")
    if spreads is not None and wanted.name not in spreads:
        raise UsageError(f"{name} does not do {task.name}; direct does")
    copies = spread(network, wanted, False) if not task.combining or task.name == "allreduce" else None
    if not task.combining and copies is not None:
        return copies
    sums = spread(network.reversed(), wanted, True).reversed()
    sums = Schedule(network, sums.collective, sums.chunks, sums.steps)
    if copies is None:
        return Schedule(network, task, sums.chunks, sums.steps)
    # rank r's share of an allreduce are the chunks of unit r of an allgather: the same numbers
    return Schedule(network, task, copies.chunks * task.ranks, sums.steps + copies.steps)


def _schedule(network: Network, task: Collective, chunks: int, moves: Moves, kind: str = "copy") -> Schedule:
    ways = _pairs(network)
    steps = tuple(_step(network, ways, [Send(c, a, b, kind) for c, a, b in row]) for row in moves)
    return Schedule(network, task, chunks, steps)


def _pairs(network: Network) -> dict[tuple[int, int], list[int]]:
    """The routes of each pair of ranks."""
    found: dict[tuple[int, int], list[int]] = {}
    for i, route in enumerate(network.routes):
        found.setdefault((route.src, route.dst), []).append(i)
    return found


def _step(network: Network, ways: Mapping[tuple[int, int], Sequence[int]], sends: Sequence[Send]) -> Step:
    """One step: each send on the least loaded of its pair's `ways`, and as many rounds as the fullest route or limit
    needs."""
    load: Counter[int] = Counter()
    through: Counter[int] = Counter()
    found = []
    for send in sends:
        if (send.src, send.dst) not in ways:
            raise UsageError(
                f"{network.name} has no link from rank {send.src} to rank {send.dst}, which this algorithm needs"
            )
        i = min(ways[send.src, send.dst], key=lambda i: ((load[i] + 1) / network.routes[i].units, i))
        load[i] += 1
        found.append(send._replace(via=network.routes[i].via))
    for i, count in load.items():
        for k in network.caps_of[i]:
            through[k] += count
    rounds = [-(-count // network.routes[i].units) for i, count in load.items()]
    rounds += [-(-count // network.caps[k].units) for k, count in through.items()]
    return Step(max(rounds, default=1), tuple(sorted(found)))
