"""Known algorithms in about log2(ranks) steps, for small sizes: few messages, one after the other.

halving-doubling  allreduce, reduce-scatter and allgather by exchanges of halves with partners at distance 1, 2, 4, ..
                  (Rabenseifner, ICCS 2004; Thakur, Rabenseifner and Gropp, IJHPCA 19, 2005)
binomial          broadcast, reduce, gather and scatter along a binomial tree in rank numbers, and an allreduce as a
                  reduce followed by a broadcast (Thakur, Rabenseifner and Gropp, IJHPCA 19, 2005)
bruck             alltoall in which data travel the powers of two of their distance (Bruck, Ho, Kipnis, Upfal and
                  Weathersby, IEEE Trans. Parallel Distrib. Syst. 8, 1997)
"""

from __future__ import annotations

from itertools import product

from synth.errors import UsageError
from synth.model.collective import Collective
from synth.model.schedule import Schedule
from synth.model.topology import Network
from synth.scale.baselines.schedule_steps import Moves, schedule_of_moves, with_reversals


def halving_doubling(network: Network, collective: Collective) -> Schedule:
    """Return an allreduce, reduce-scatter or allgather by recursive halving and doubling.

    In an allreduce of a number of ranks that is no power of two, the ranks beyond the power first give their data to a
    partner, and take the result from it in the end. Raises UsageError for other collectives, for other numbers of ranks
    in a reduce-scatter or allgather, and where a link is missing.
    """
    n = network.ranks
    power = 1 << (n.bit_length() - 1)
    if collective.name == "allreduce":
        return _halving_doubling_allreduce(network, collective, power)
    if power != n and collective.name in ("allgather", "reduce-scatter"):
        raise UsageError(
            f"halving-doubling of {collective.name} needs a power of two of ranks; {network.name} has {n} (an allreduce"
            f" takes any number)"
        )

    def copying(net: Network, target: Collective, reversed_network: bool) -> Schedule:
        moves: Moves = []
        for bit in reversed(_bits(n)):
            row = []
            for rank in range(n):
                held = [unit for unit in range(n) if (unit ^ rank) % (2 * bit) == 0]
                row += [(unit, rank, rank ^ bit) for unit in held]
            moves.append(row)
        return schedule_of_moves(net, target, 1, moves)

    return with_reversals("halving-doubling", network, collective, ("allgather",), copying)


def _halving_doubling_allreduce(network: Network, collective: Collective, power: int) -> Schedule:
    """Return the allreduce of halving-doubling among `power` ranks, `power` chunks; other ranks have a partner."""
    beyond = network.ranks - power
    ranks = [*range(0, 2 * beyond, 2), *range(2 * beyond, network.ranks)]
    pairs = [(2 * v, 2 * v + 1) for v in range(beyond)]
    bits = _bits(power)
    places = [_reversed_bits(chunk, len(bits)) for chunk in range(power)]
    gifts = list(product(range(power), pairs))
    sums: Moves = [[(chunk, odd, even) for chunk, (even, odd) in gifts]]
    copies: Moves = []
    for bit in bits:
        sent, returned = [], []
        for v in range(power):
            for chunk, place in enumerate(places):
                if (place ^ v) % (2 * bit) == bit:
                    sent.append((chunk, ranks[v], ranks[v ^ bit]))
                if (place ^ v) % (2 * bit) == 0:
                    returned.append((chunk, ranks[v], ranks[v ^ bit]))
        sums.append(sent)
        copies.insert(0, returned)
    copies.append([(chunk, even, odd) for chunk, (even, odd) in gifts])
    halving = schedule_of_moves(network, collective, power, sums, "reduce")
    doubling = schedule_of_moves(network, collective, power, copies)
    return Schedule(network, collective, power, halving.steps + doubling.steps)


def binomial(network: Network, collective: Collective) -> Schedule:
    """Return a broadcast, reduce, gather, scatter or allreduce along a binomial tree of any number of ranks.

    Raises UsageError for other collectives, and where a link is missing.
    """
    n = network.ranks
    if collective.name == "allreduce":
        down = _binomial_broadcast(n, 0)
        sums = schedule_of_moves(network, collective, 1, _backwards(down), "reduce")
        copies = schedule_of_moves(network, collective, 1, down)
        return Schedule(network, collective, 1, sums.steps + copies.steps)
    if collective.name in ("gather", "scatter"):
        return schedule_of_moves(network, collective, 1, _binomial_parts(collective))

    def copying(net: Network, target: Collective, reversed_network: bool) -> Schedule:
        return schedule_of_moves(net, target, 1, _binomial_broadcast(n, target.roots[0]))

    return with_reversals("binomial", network, collective, ("broadcast",), copying)


def _binomial_broadcast(n: int, root: int) -> Moves:
    """Return the moves of chunk 0 from `root` to all ranks; in each step all ranks that have it send it."""
    moves: Moves = []
    for bit in _bits(n):
        senders = range(min(bit, n - bit))
        moves.append([(0, (root + v) % n, (root + v + bit) % n) for v in senders])
    return moves


def _binomial_parts(collective: Collective) -> Moves:
    """Return the moves of a gather or a scatter: a rank passes on the parts of all ranks below it in the tree."""
    n, root = collective.ranks, collective.roots[0]
    ends = collective.pre if collective.name == "gather" else collective.post
    moves: Moves = []
    for bit in _bits(n):
        row = []
        for unit, (rank,) in enumerate(ends):
            v = (rank - root) % n
            if v & bit:
                low = v - v % bit
                row.append((unit, (root + low) % n, (root + low - bit) % n))
        moves.append(row)
    if collective.name == "gather":
        return moves
    return _backwards(moves)


def _backwards(moves: Moves) -> Moves:
    """Return the moves in the opposite direction, the last step first."""
    rows: Moves = []
    for row in reversed(moves):
        rows.append([(chunk, dst, src) for chunk, src, dst in row])
    return rows


def bruck(network: Network, collective: Collective) -> Schedule:
    """Return an alltoall in which a message from rank i to rank i + k travels the powers of two in k, least first.

    Raises UsageError for other collectives, and where a link is missing.
    """
    if collective.name != "alltoall":
        raise UsageError(f"bruck does not do {collective.name}; direct does")
    n = network.ranks
    moves: Moves = []
    for bit in _bits(n):
        row = []
        for unit, ((src,), (dst,)) in enumerate(zip(collective.pre, collective.post, strict=True)):
            distance = (dst - src) % n
            if distance & bit:
                holder = src + distance % bit
                row.append((unit, holder % n, (holder + bit) % n))
        moves.append(row)
    return schedule_of_moves(network, collective, 1, moves)


def _bits(n: int) -> list[int]:
    """Return the powers of two below `n`, ascending."""
    return [1 << k for k in range((n - 1).bit_length())]


def _reversed_bits(value: int, count: int) -> int:
    """Return `value` with its `count` lowest bits in reverse order."""
    return sum(1 << (count - 1 - k) for k in range(count) if value >> k & 1)
