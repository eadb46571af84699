"""Search for the rings that NCCL would run on the same links.

A ring is a directed Hamiltonian cycle over existing links (NCCL makes no ring through a rank that does not take part).
One ring of capacity c runs a broadcast at c units, an allgather at c N/(N-1), an allreduce at c N/(2(N-1)).

Where all Hamiltonian cycles are few, they are listed and packed by an integer program: no rings carry more. Elsewhere
one method finds them (`factor_annealing`). An integer program chooses links that leave and enter every rank equally
often. They fall into factors, sets of cycles through all ranks. Simulated annealing exchanges links of two factors
along alternating cycles until the cycles of each are joined into one. It runs

pairs         on undirected edges, for rings in opposite pairs, where links are symmetric
quotients     on the quotient networks of the declared automorphisms and the network itself, in whole multiples of the
              width that fills the links best, with a few moves first and then with more

until the cut bound is met (`ring_network.ring_cut_bound`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from synth.model.rational import counted
from synth.model.topology import Network, Topology
from synth.scale.baselines.rings import check, factor_annealing, quotient_network, ring_network
from synth.scale.baselines.rings.quotient_network import QuotientNetwork
from synth.scale.baselines.rings.ring_network import Ring, RingNetwork, Rings, merged
from synth.solvers.highs import integer
from synth.solvers.processes.deadline import TimeUp, current_deadline

Progress = Callable[[str], None]
Cycle = tuple[int, ...]


@dataclass(frozen=True)
class RingSearchSettings:
    """Limits and efforts of the ring search.

    searched_ranks         ranks up to which cycles are listed, and the network itself, not only quotients, is searched
    short_moves            annealing moves of a short search, at least
    short_moves_per_arc    annealing moves of a short search for each node and ring
    long_moves             annealing moves of a long search, at least
    long_moves_per_ring    annealing moves of a long search for each ring, on few nodes
    long_rings             rings up to which a long search takes that many moves for each
    few_nodes              nodes on which a move is quick, so that several seeds are tried
    seeds                  seeds tried on few nodes
    nearly_all             a further seed is tried only while one ring in so many, or a single ring, is missing
    long_quotients         quotient networks that are searched again by a long search
    many_arcs              arcs from which a long search tries one seed and few numbers of rings
    many_arcs_reduction    reduction of the number of rings at which a long search on many arcs ends
    pair_exchanges         exchanges of a search for opposite pairs
    listing_steps          steps of the enumeration of cycles; sparse boxes of 8 ranks take a few hundred
    listed_cycles          cycles that are listed; more columns make the integer program slow
    unit_rings             units up to which rings of one unit are tried, so many side by side
    """

    searched_ranks: int = 300
    short_moves: int = 4_000
    short_moves_per_arc: int = 20
    long_moves: int = 60_000
    long_moves_per_ring: int = 16_000
    long_rings: int = 20
    few_nodes: int = 32
    seeds: int = 6
    nearly_all: int = 8
    long_quotients: int = 2
    many_arcs: int = 10_000
    many_arcs_reduction: int = 4
    pair_exchanges: int = 8_000
    listing_steps: int = 20_000
    listed_cycles: int = 600
    unit_rings: int = 160


SETTINGS = RingSearchSettings()
# Numbers of equal rings whose width is tried: the units that rings carry at most, divided by each.
RING_COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 160)


@dataclass(frozen=True)
class _LongSearch:
    """A quotient network worth a long search: `wanted` rings of `width` units, of which a short one found `found`."""

    quotient: QuotientNetwork
    width: int
    wanted: int
    found: int

    @property
    def order(self) -> tuple[int, int]:
        """Sort key: most units that degrees allow first, then most units found."""
        return -self.width * self.wanted, -self.width * self.found


def disjoint_rings(
    topology: Network | Topology, progress: Progress = lambda text: None, network: RingNetwork | None = None
) -> Rings:
    """Search for the rings that carry the most units together.

    A time limit (`synth.solvers.processes.deadline`) ends the search with the best rings so far. `network`: the links
    of the topology as arrays, where they are known already. Raises VerificationError where rings do not fit the links.
    """
    network = ring_network.of_machine(topology) if network is None else network
    if network.ranks < 2 or not network.units.any():
        return Rings((), True)
    bound = ring_network.ring_cut_bound(network)
    best = Rings((), bound.units == 0, bound=bound)
    if bound.units:
        try:
            for rings in _improvements(network, bound.units, progress):
                proved = rings.proved_maximum or rings.units == bound.units
                best = replace(rings, bound=bound, proved_maximum=proved)
                if best.proved_maximum:
                    break
        except TimeUp:
            best = replace(best, complete=False)
    check.check(topology, best.rings, best.links)
    return best


def kept_rings(network: Network) -> tuple[Ring, ...]:
    """Return the rings of `disjoint_rings`. They are kept for later calls, unless a time limit may end the search."""
    return disjoint_rings(network).rings if current_deadline().limited else _kept_rings(network)


@lru_cache(maxsize=64)
def _kept_rings(network: Network) -> tuple[Ring, ...]:
    return disjoint_rings(network).rings


def _improvements(network: RingNetwork, maximum: int, progress: Progress) -> Iterator[Rings]:
    """Yield better and better rings, stage by stage; `maximum` is the cut bound in units."""
    best = Rings((), False)
    if network.ranks <= SETTINGS.searched_ranks:
        listed, complete = cycles(network)
        if complete:
            best = packed(network, sorted(listed))
            yield best
            if not network.parallel:  # with parallel links the enumeration counted only one of them
                return
    long_searches: list[_LongSearch] = []
    stages = [
        lambda: _opposite_pairs(network, maximum, best.units, progress),
        lambda: _short_searches(network, maximum, best.units, long_searches, progress),
        lambda: _long_searches(network, best.units, long_searches, progress),
    ]
    if network.generators:  # quotients are small and quick to search
        stages[:2] = reversed(stages[:2])
    for stage in stages:
        for rings in stage():
            if rings.units > best.units:
                best = rings
                yield best


def cycles(network: RingNetwork) -> tuple[list[Cycle], bool]:
    """Return Hamiltonian cycles from rank 0, in the order of a depth-first search, and True if these are all."""
    found: dict[Cycle, None] = {}
    complete = _enumerate(_neighbors(network), found, SETTINGS.listing_steps, SETTINGS.listed_cycles)
    return list(found), complete


def packed(network: RingNetwork, cycles: Sequence[Cycle]) -> Rings:
    """Pack all Hamiltonian cycles of the network by an integer program, for the most units in all."""
    if not cycles:
        return Rings((), True)

    # the widest of several links between two ranks stands for all of them
    widest = {(int(network.src[i]), int(network.dst[i])): i for i in np.argsort(network.units, kind="stable").tolist()}
    ring_links = []
    for cycle in cycles:
        pairs = zip(cycle, (*cycle[1:], cycle[0]), strict=True)
        ring_links.append(tuple(widest[pair] for pair in pairs))
    loads = np.zeros((len(network.src), len(cycles)))
    for c, links in enumerate(ring_links):
        np.add.at(loads[:, c], list(links), 1)
    rows = np.concatenate([loads, *(loads[links].sum(axis=0, keepdims=True) for links in network.members)])
    capacity = np.concatenate([network.units, network.capacity])
    solution = integer(-np.ones(len(cycles)), [(rows, -np.inf, capacity)], mip_rel_gap=0)
    units = np.zeros(len(cycles), int) if solution.x is None else np.rint(solution.x).astype(int)
    used = np.flatnonzero(units).tolist()
    proved = solution.status == 0 and not network.parallel
    rings = tuple((cycles[c], int(units[c])) for c in used)
    return Rings(rings, proved, tuple(ring_links[c] for c in used))


def _neighbors(network: RingNetwork) -> list[list[int]]:
    """The ranks that each rank has a link to, in ascending order."""
    neighbors: list[set[int]] = [set() for _ in range(network.ranks)]
    for a, b, units in zip(network.src.tolist(), network.dst.tolist(), network.units.tolist(), strict=True):
        if units:
            neighbors[a].add(b)
    return [sorted(row) for row in neighbors]


def _enumerate(neighbors: list[list[int]], found: dict[Cycle, None], steps: int, enough: int) -> bool:
    """Add Hamiltonian cycles through rank 0 to `found`, depth first in the order of `neighbors`.

    Stops after `steps` steps or with `enough` cycles; True if the enumeration came to its end before.
    """
    path, visited, stack = [0], {0}, [iter(neighbors[0])]
    while stack:
        steps -= 1
        if steps < 0 or len(found) >= enough:
            return False
        following = next((b for b in stack[-1] if b not in visited), None)
        if following is None:
            stack.pop()
            visited.discard(path.pop())
            continue
        path.append(following)
        visited.add(following)
        if len(path) == len(neighbors):
            if 0 in neighbors[following]:
                found[tuple(path)] = None
            visited.discard(path.pop())
        else:
            stack.append(iter(neighbors[following]))
    return True


def _opposite_pairs(network: RingNetwork, maximum: int, known: int, progress: Progress) -> Iterator[Rings]:
    """Rings of more than `known` units in opposite pairs, where links are symmetric."""
    widths, exchanges = _widths(maximum), SETTINGS.pair_exchanges
    for width, rings in factor_annealing.opposite_pairs(network, widths, known, maximum, exchanges):
        progress(f"rings: {len(rings)} of {width} units in pairs")
        yield merged([(order, links, width) for order, links in rings])


def _short_searches(
    network: RingNetwork, maximum: int, best: int, long_searches: list[_LongSearch], progress: Progress
) -> Iterator[Rings]:
    """Rings of more than `best` units, each time more, by short searches.

    `long_searches` is filled with the quotient networks that a long search may improve.
    """
    widths = _widths(maximum)
    for quotient in _quotients(network):
        progress(f"rings: through {quotient.nodes} groups of {counted(quotient.order, 'rank')}")
        counts: dict[int, int] = {}
        for w in widths:
            counts[w] = factor_annealing.circulation_bound(quotient, maximum // w, w)
            if counts[w] * w == maximum:
                break
        width = max(counts, key=lambda w: (counts[w] * w, w))
        wanted = counts[width]
        if wanted * width <= best:
            continue
        layers = []
        moves = max(SETTINGS.short_moves, SETTINGS.short_moves_per_arc * quotient.nodes * wanted)
        for seed in range(SETTINGS.seeds if quotient.nodes <= SETTINGS.few_nodes else 1):
            layers = max(layers, factor_annealing.rings(quotient, wanted, width, moves, seed), key=len)
            if not 1 <= wanted - len(layers) <= max(1, wanted // SETTINGS.nearly_all):
                break
        long_searches.append(_LongSearch(quotient, width, wanted, len(layers)))
        if len(layers) * width > best:
            best = len(layers) * width
            yield _lifted(network, quotient, width, layers)


def _long_searches(
    network: RingNetwork, best: int, long_searches: list[_LongSearch], progress: Progress
) -> Iterator[Rings]:
    """Rings of more than `best` units, each time more, by long searches.

    As many rings as degrees allow may be hard to find where no capacity is spare, so smaller numbers are tried too.
    """
    for task in sorted(long_searches, key=lambda task: task.order)[: SETTINGS.long_quotients]:
        quotient, width = task.quotient, task.width
        many = len(quotient.src) >= SETTINGS.many_arcs
        end = SETTINGS.many_arcs_reduction if len(quotient.src) > SETTINGS.many_arcs else task.wanted
        reduction = 0
        while (wanted := task.wanted - reduction) * width > best and reduction < end:
            groups = f"{quotient.nodes} groups of {counted(quotient.order, 'rank')}"
            progress(f"rings: {wanted} of {counted(width, 'unit')} through {groups}")
            moves, seeds = SETTINGS.long_moves, range(1, 3)
            if not reduction and quotient.nodes <= SETTINGS.few_nodes and task.wanted <= SETTINGS.long_rings:
                moves = max(moves, SETTINGS.long_moves_per_ring * task.wanted)
                seeds = range(1, SETTINGS.seeds + 1)
            layers = []
            for seed in seeds[:1] if many else seeds:
                layers = max(layers, factor_annealing.rings(quotient, wanted, width, moves, seed), key=len)
                if len(layers) == wanted:
                    break
            if len(layers) * width > best:
                best = len(layers) * width
                yield _lifted(network, quotient, width, layers)
            reduction = max(1, 2 * reduction)


def _quotients(network: RingNetwork) -> Iterator[QuotientNetwork]:
    """Quotient networks to search, the network itself last."""
    yield from quotient_network.quotients(network)
    if network.ranks <= SETTINGS.searched_ranks:
        trivial = quotient_network.trivial_quotient(network)
        if trivial is not None:
            yield trivial


def _widths(maximum: int) -> list[int]:
    """Widths of rings to try: `maximum` divided by each of `RING_COUNTS`, exact divisors first, the widest first."""
    widths = {maximum // count for count in RING_COUNTS if count <= maximum}
    if maximum <= SETTINGS.unit_rings:
        widths.add(1)
    return sorted(widths, key=lambda width: (maximum % width != 0, -width))


def _lifted(network: RingNetwork, quotient: QuotientNetwork, width: int, layers: list[list[int]]) -> Rings:
    """The rings of `width` units that closed walks of arcs lift to."""
    rings = []
    for layer in layers:
        order = quotient.lift(layer)
        if quotient.order == 1:
            links = np.array([quotient.link[h] for h in layer])
        else:
            links = network.find(order, np.roll(order, -1))
        rings.append((order, links, width))
    return merged(rings)


def widest_ring(topology: Network | Topology, known: Rings, network: RingNetwork | None = None) -> int:
    """Return the units of the widest single ring found, 0 where none was found.

    It is at least as wide as the widest of the `known` rings. The width is found by bisection over the capacities.
    """
    network = ring_network.of_machine(topology) if network is None else network
    best = max((units for _, units in known.rings), default=0)
    maximum = 0 if known.bound is None else known.bound.units
    capacities = {*np.unique(network.units).tolist(), *network.capacity.tolist(), maximum}
    widths = sorted(w for w in capacities if best < w <= maximum and network.connected(w))
    while widths:
        at = len(widths) // 2
        rings = (factor_annealing.rings(q, 1, widths[at], SETTINGS.short_moves) for q in _quotients(network))
        if any(rings):
            best, widths = widths[at], widths[at + 1 :]
        else:
            widths = widths[:at]
    return best
