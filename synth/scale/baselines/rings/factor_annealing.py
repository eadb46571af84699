"""Rings by simulated annealing over factors: two sets of cycles exchange links until each is a single cycle.

A factor is a set of disjoint cycles that visit every node once. An integer program chooses links that fall into as many
factors as rings are wanted. Exchanges keep every factor a factor and the loads as they are. One that leaves fewer
cycles is accepted, one that leaves more sometimes, in a fixed pseudo-random order.

             rings on a quotient network                     rings in opposite pairs
links        arcs                                            edges, each a pair of opposite links
program      a circulation: each node is left and entered    each rank has an even number of edges
             once by each ring
factors      permutations: perfect matchings between tails   2-factors: matchings of the edges oriented along
             and heads (König)                               Euler tours (Petersen, 1891)
exchanges    the arcs of an alternating cycle of two         the edges of a closed alternating trail of two
             (a Kempe chain), or one is rerouted             2-factors, or of one and the edges left over

Petersen: "Die Theorie der regulären graphs". Nikolaev and Kozlova (arXiv 2001.04683) join the cycles of two 2-factors
by exchanges too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import exp, gcd
from random import Random

import numpy as np

from synth.scale.baselines.rings.quotient_network import QuotientNetwork
from synth.scale.baselines.rings.ring_network import RingNetwork
from synth.scale.fabric.graphs import bipartite_matching, components
from synth.solvers.cutting_planes import cutting_planes
from synth.solvers.highs import integer
from synth.solvers.processes.deadline import check_deadline, current_deadline


@dataclass(frozen=True)
class FactorSettings:
    """Parameters of the integer programs and of the annealing.

    Attributes:
        program_seconds: Seconds that one integer program may take; few take more than a tenth of one.
        maximum_cuts: Rounds in which a cut is added for a set of nodes that the chosen arcs do not leave.
        many_arcs: Arcs above which the program is first made of a random part of them.
        arcs_per_node: Arcs of that part for each node and ring.
        temperature: First and last temperature. A move that leaves n more cycles is accepted with probability
            exp(-n / temperature), and the temperature falls linearly over the moves.
        exchange_share: Part of the moves that are exchanges where there are very many layers. Of two layers it is half
            of that, and the other moves reroute a layer.
        initial_exchanges: Random exchanges for each layer before the annealing, because the matchings that layers come
            from resemble each other.
        rerouted_nodes: Nodes that a rerouting may visit.
        rerouting_trials: Arcs out of a node that a rerouting tries at random.
        maximum_edges: Edges up to which opposite pairs are searched, since each move takes time in the number of nodes.
        maximum_states: States (a rank, and which factor is next) that the search for a closed trail visits.
    """

    program_seconds: float = 10.0
    maximum_cuts: int = 12
    many_arcs: int = 4_000
    arcs_per_node: float = 3.0
    temperature: tuple[float, float] = (0.7, 0.25)
    exchange_share: float = 0.85
    initial_exchanges: int = 8
    rerouted_nodes: int = 6
    rerouting_trials: int = 4
    maximum_edges: int = 24_000
    maximum_states: int = 4_000


SETTINGS = FactorSettings()

# Arcs of a factor: that out of node u at index u, or one after the other around a ring.
Layer = list[int]
# (rank, rank, link from the first to the second, link back)
Edge = tuple[int, int, int, int]
# Ranks of a cycle in their order, and the edges from each to the next.
EdgeCycle = tuple[list[int], list[int]]
# Ranks of a ring in their order, and the links from each to the next.
Ring = tuple[np.ndarray, np.ndarray]


def _temperature(step: int, steps: int) -> float:
    """Return the temperature of the annealing after `step` of `steps` moves."""
    first, last = SETTINGS.temperature
    return first + (last - first) * step / steps


def _program_seconds() -> float:
    """Return the seconds that an integer program may take now."""
    return min(SETTINGS.program_seconds, max(current_deadline().remaining(), 0.01))


def _perfect_matchings(
    nodes: int, between: dict[tuple[int, int], list[int]], count: int, random: Random
) -> Iterator[Layer]:
    """Yield `count` perfect matchings of a graph from tails to heads, all of whose degrees are `count` (König).

    `between[u, v]`: the arcs from tail u to head v, which are taken out. A matching has the arc out of u at index u.
    """
    for _ in range(count):
        name = list(range(nodes))  # random names of the heads, so that matchings differ
        random.shuffle(name)
        node = {name[v]: v for v in range(nodes)}
        pairs = [(u, name[v]) for u, v in between]
        layer = []
        for u, v in enumerate(bipartite_matching(nodes, *zip(*pairs, strict=True)).tolist()):
            pair = (u, node[v])
            layer.append(between[pair].pop())
            if not between[pair]:
                del between[pair]
        yield layer


# ---------------------------------------------------------------- rings on a quotient network


def circulation(
    quotient: QuotientNetwork, wanted: int, width: int, seed: int = 0, repeats: int | None = None
) -> tuple[int, list[int]]:
    """Return a number of rings of `width` units, `wanted` at most, and how often each arc is then taken in all.

    Degrees, capacities and connectedness are respected; that the arcs form rings is not. `repeats`: the maximum number
    of times that one arc is taken.
    """
    wanted = min(wanted, _degree_bound(quotient, width, wanted if repeats is None else repeats))
    if not wanted:
        return 0, []
    key = wanted, width, seed, repeats or wanted
    if key not in quotient.circulations:
        quotient.circulations[key] = _sparse_or_full_program(quotient, wanted, width, seed, repeats)
    return quotient.circulations[key]


def circulation_bound(quotient: QuotientNetwork, wanted: int, width: int) -> int:
    """Return the number of rings, `wanted` at most, that a circulation allows.

    Where all may fit, the arcs are first repeated as seldom as `rings` will repeat them: that program is needed anyway.
    """
    repeats = _least_repeats(quotient, wanted, width)
    if repeats < wanted <= _degree_bound(quotient, width, wanted):
        count, _ = circulation(quotient, wanted, width, repeats=repeats)
        if count == wanted:
            return wanted
    return circulation(quotient, wanted, width)[0]


def _least_repeats(quotient: QuotientNetwork, wanted: int, width: int) -> int:
    """The number of times that arcs must be repeated, as far as degrees tell.

    Layers that differ leave the annealing more to exchange, so few repetitions are better.
    """
    repeats = min(wanted, -(-2 * wanted // quotient.nodes))
    while repeats < wanted and _degree_bound(quotient, width, repeats) < wanted:
        repeats = min(wanted, 2 * repeats)
    return repeats


def _sparse_or_full_program(
    quotient: QuotientNetwork, wanted: int, width: int, seed: int, repeats: int | None
) -> tuple[int, list[int]]:
    """Solve the integer program on a random part of very many arcs, and on all of them where that is not enough."""
    share = SETTINGS.arcs_per_node * wanted * quotient.nodes / max(1, len(quotient.src))
    if len(quotient.src) > SETTINGS.many_arcs and share < 0.7:
        part = np.flatnonzero(np.random.default_rng(seed).random(len(quotient.src)) < share).tolist()
        count, part_times = _integer_program(_restricted(quotient, part), wanted, width, seed, repeats)
        if count == wanted:
            times = np.zeros(len(quotient.src), int)
            times[part] = part_times
            return count, times.tolist()
    return _integer_program(quotient, wanted, width, seed, repeats)


def _degree_bound(quotient: QuotientNetwork, width: int, repeats: int) -> int:
    """Upper bound on the rings that leave and enter every node, each arc taken `repeats` times at most.

    Arcs of a node that share their narrowest resource share its capacity.
    """
    if not quotient.src:
        return 0
    capacity, (k, times) = np.array(quotient.capacity, np.int64) // width, quotient.narrowest
    arc_bound = np.minimum(repeats, capacity[k] // times)
    bounds = []
    for ends in (quotient.src, quotient.dst):
        pairs, index = np.unique(np.array(ends) * len(capacity) + k, return_inverse=True)
        total, through = np.zeros(len(pairs), np.int64), np.zeros(quotient.nodes, np.int64)
        np.add.at(total, index, arc_bound)
        np.add.at(through, pairs // len(capacity), np.minimum(total, capacity[pairs % len(capacity)]))
        bounds.append(int(through.min()))
    return min(bounds)


def _restricted(quotient: QuotientNetwork, arcs: list[int]) -> QuotientNetwork:
    """The quotient network with the given arcs alone."""
    return replace(
        quotient,
        src=tuple(quotient.src[h] for h in arcs),
        dst=tuple(quotient.dst[h] for h in arcs),
        voltage=tuple(quotient.voltage[h] for h in arcs),
        uses=tuple(quotient.uses[h] for h in arcs),
        link=tuple(quotient.link[h] for h in arcs),
    )


def _integer_program(
    quotient: QuotientNetwork, wanted: int, width: int, seed: int, repeats: int | None
) -> tuple[int, list[int]]:
    """Maximize the number of rings z, with x_h the times that arc h is taken.

    Rows: each node is left z times and entered z times, each resource stays within its capacity, and at least z arcs of
    each set in `crossing_sets` are taken: arcs of voltage other than 0, and arcs out of sets of nodes that earlier
    answers did not leave. Columns: x, then z.
    """
    from scipy.sparse import csr_matrix

    count, n = len(quotient.src), quotient.nodes
    if not count:
        return 0, []
    capacity = [units // width for units in quotient.capacity]
    rows, columns, values = [], [], []
    for h in range(count):
        rows += [quotient.src[h], n + quotient.dst[h], *(2 * n + k for k, _ in quotient.uses[h])]
        columns += [h] * (2 + len(quotient.uses[h]))
        values += [1, 1, *(times for _, times in quotient.uses[h])]
    rows += range(2 * n)
    columns += [count] * (2 * n)
    values += [-1] * (2 * n)
    low = [0.0] * (2 * n) + [-np.inf] * len(capacity)
    high = [0.0] * (2 * n) + [float(units) for units in capacity]
    crossing_sets = [np.array(quotient.voltage) != 0] if quotient.order > 1 else []
    # random costs, too small to cost a ring, choose among equal answers
    cost = np.append(np.random.default_rng(seed).random(count) / (4 * count * max(1, wanted)), -1.0)
    src, dst = np.array(quotient.src), np.array(quotient.dst)
    # the gap is small enough that no ring is lost; the random costs need no optimum
    options = {
        "node_limit": 50,
        "time_limit": _program_seconds(),
        "mip_rel_gap": 0.4 / wanted if wanted else 0.4,
    }

    def solve() -> tuple[int, list[int]] | None:
        check_deadline()
        cuts = []
        for c, arcs in enumerate(crossing_sets):
            cuts += [(len(low) + c, h, 1) for h in np.flatnonzero(arcs).tolist()]
        cuts += [(len(low) + c, count, -1) for c in range(len(crossing_sets))]
        cells = np.array([*zip(rows, columns, values, strict=True), *cuts])
        shape = (len(low) + len(crossing_sets), count + 1)
        matrix = csr_matrix((cells[:, 2].astype(float), (cells[:, 0], cells[:, 1])), shape=shape)
        cut_low, cut_high = [0.0] * len(crossing_sets), [np.inf] * len(crossing_sets)
        constraint = matrix, np.array([*low, *cut_low]), np.array([*high, *cut_high])
        upper = np.append(np.full(count, float(repeats or wanted)), float(wanted))
        solution = integer(cost, [constraint], upper, **options)
        if solution.x is None:
            return None
        return round(solution.x[-1]), np.rint(solution.x[:-1]).astype(int).tolist()

    def add_violated(answer: tuple[int, list[int]]) -> bool:
        taken = np.array(answer[1]) > 0
        component = _separate_component(n, src[taken], dst[taken]) if answer[0] else None
        if component is not None:
            crossing_sets.append(component[src] & ~component[dst])
        return component is not None

    answer, _ = cutting_planes(solve, add_violated, SETTINGS.maximum_cuts)
    return answer if answer and answer[0] else (0, [])


def _separate_component(n: int, src: np.ndarray, dst: np.ndarray) -> np.ndarray | None:
    """Mask of the smallest component of the arcs over n nodes; None where the arcs connect all nodes.

    In a circulation as many arcs enter a set of nodes as leave it, so weak components are strong ones.
    """
    label = components(n, src, dst)
    return None if not label.any() else label == np.argmin(np.bincount(label))


def rings(quotient: QuotientNetwork, wanted: int, width: int, steps: int, seed: int = 0) -> list[Layer]:
    """Search for up to `wanted` rings of `width` units each that fit together, by at most `steps` moves.

    Each ring is a list of arcs, a closed walk through all nodes. Raises TimeUp.
    """
    repeats = _least_repeats(quotient, wanted, width)
    count, times = circulation(quotient, wanted, width, seed, repeats)
    # layers that differ leave the annealing more to exchange than a few, each many times over
    while count < wanted and repeats < wanted:
        repeats = min(wanted, 2 * repeats)
        count, times = circulation(quotient, wanted, width, seed, repeats)
    if not count:
        return []
    search = _KempeAnnealing(quotient, width, _matchings(quotient, times, count, seed), Random(seed))
    search.run(steps)
    return [search.ring(i) for i in range(count) if not search.energy[i]]


def _matchings(quotient: QuotientNetwork, times: list[int], count: int, seed: int) -> list[Layer]:
    """Decompose the arcs, each taken `times[h]` times, into `count` permutations: layer[u] is the arc out of u."""
    shuffle = Random(seed)
    between: dict[tuple[int, int], list[int]] = {}
    for h, number in enumerate(times):
        if number:
            between.setdefault((quotient.src[h], quotient.dst[h]), []).extend([h] * number)
    for row in between.values():
        shuffle.shuffle(row)
    return list(_perfect_matchings(quotient.nodes, between, count, shuffle))


class _KempeAnnealing:
    """Layers within the capacities. `arc[i][u]` is the arc of layer i out of node u; `energy[i]` is 0 for a ring.

    `after[i][u]` and `before[i][u]` are the nodes that follow and precede node u in layer i, `voltage_sum[i]` the sum
    of its voltages, `remaining[k]` the multiples of `width` left of resource k.
    """

    def __init__(self, quotient: QuotientNetwork, width: int, layers: list[Layer], random: Random) -> None:
        self.quotient, self.arc, self.random = quotient, layers, random
        self.head, self.voltage, self.uses = quotient.dst, quotient.voltage, quotient.uses
        self.remaining = [units // width for units in quotient.capacity]
        self.after: list[list[int]] = []
        for layer in layers:
            self.after.append([self.head[h] for h in layer])
        self.before = [[0] * quotient.nodes for _ in layers]
        for layer, after, before in zip(layers, self.after, self.before, strict=True):
            for u, v in enumerate(after):
                before[v] = u
            for h in layer:
                self._release(h, -1)
        self.voltage_sum: list[int] = []
        for layer in layers:
            self.voltage_sum.append(sum(self.voltage[h] for h in layer))
        self.out: list[list[int]] = [[] for _ in range(quotient.nodes)]
        self.between: dict[tuple[int, int], list[int]] = {}
        for h, (u, v) in enumerate(zip(quotient.src, quotient.dst, strict=True)):
            self.out[u].append(h)
            self.between.setdefault((u, v), []).append(h)
        self.energy = [
            self._energy(after.copy(), voltage) for after, voltage in zip(self.after, self.voltage_sum, strict=True)
        ]
        self.temperature = SETTINGS.temperature[0]

    def _release(self, h: int, sign: int) -> None:
        """Give back what arc h takes (`sign` 1), or take it (-1)."""
        for k, times in self.uses[h]:
            self.remaining[k] += sign * times

    def _fits(self, h: int) -> bool:
        remaining = self.remaining
        for k, times in self.uses[h]:  # noqa: SIM110  called very often
            if remaining[k] < times:
                return False
        return True

    def _fitting(self, u: int, v: int) -> list[int]:
        """Arcs from node u to node v that fit."""
        return [h for h in self.between.get((u, v), ()) if self._fits(h)]

    def _energy(self, after: list[int], voltage: int) -> int:
        """Number of cycles less one, and one more where the lift of a single cycle would not be a single ring.

        `after` is overwritten.
        """
        cycles = -1
        for at in after:
            if at >= 0:
                cycles += 1
                while at >= 0:  # once round; the first node is -1 by then
                    following = after[at]
                    after[at] = -1
                    at = following
        order = self.quotient.order
        return cycles + (order > 1 and gcd(voltage, order) != 1)

    def ring(self, i: int) -> Layer:
        """Arcs of layer i one after the other, from node 0."""
        row, ring = self.arc[i], []
        at = 0
        for _ in row:
            ring.append(row[at])
            at = self.head[row[at]]
        return ring

    def run(self, steps: int) -> None:
        """Make at most `steps` moves, until every layer is a ring. Raises TimeUp."""
        uniform, count, nodes = self.random.random, len(self.arc), self.quotient.nodes
        for _ in range(SETTINGS.initial_exchanges * count if count > 1 else 0):
            i, j = self.random.sample(range(count), 2)
            self._exchange(i, j, int(uniform() * nodes), always=True)
        unfinished = [i for i, e in enumerate(self.energy) if e]
        exchange_share = SETTINGS.exchange_share * (1 - 1 / count)
        for step in range(steps):
            if not unfinished:
                return
            if not step & 255:
                check_deadline()
                self.temperature = _temperature(step, steps)
            i = unfinished[int(uniform() * len(unfinished))]
            u = int(uniform() * nodes)
            j = int(uniform() * count)
            changed = self._exchange(i, j, u) if i != j and uniform() < exchange_share else self._reroute(i, u)
            if changed:
                unfinished = [i for i, e in enumerate(self.energy) if e]

    def _accept(self, increase: int) -> bool:
        return increase <= 0 or self.random.random() < exp(-increase / self.temperature)

    def _exchange(self, i: int, j: int, u: int, always: bool = False) -> bool:
        """Exchange the arcs of the Kempe chain of layers i and j through node u; True if the move is made.

        The chain is closed under "leave by an arc of j, go back along an arc of i", so both layers stay permutations.
        Loads do not change, since both layers are counted together.
        """
        one, two = self.arc[i], self.arc[j]
        if one[u] == two[u]:
            return False
        before, first, second, voltage = self.before[i], self.after[i], self.after[j], self.voltage
        trial, other = first.copy(), second.copy()
        chain, shift, at = [], 0, u
        while True:
            chain.append(at)
            trial[at], other[at] = second[at], first[at]
            shift += voltage[two[at]] - voltage[one[at]]
            at = before[second[at]]
            if at == u:
                break
        energy_i = self._energy(trial, self.voltage_sum[i] + shift)
        energy_j = self._energy(other, self.voltage_sum[j] - shift)
        if not always and not self._accept(energy_i + energy_j - self.energy[i] - self.energy[j]):
            return False
        self.energy[i], self.energy[j] = energy_i, energy_j
        self.voltage_sum[i] += shift
        self.voltage_sum[j] -= shift
        back = self.before[j]
        for w in chain:
            one[w], two[w] = two[w], one[w]
            first[w], second[w] = second[w], first[w]
            before[first[w]] = w
            back[second[w]] = w
        return True

    def _reroute(self, i: int, u: int) -> bool:
        """Reroute layer i along an alternating path from node u; True if the move is made.

        Node u takes a random other arc. The node whose successor it takes then takes another arc, and so on, until a
        node takes the old successor of u. A node that loses its successor releases its arc first, because full ports
        would leave no capacity before.
        """
        row, before, head, uniform = self.arc[i], self.before[i], self.head, self.random.random
        goal = head[row[u]]
        displaced, old = [u], [row[u]]
        self._release(row[u], 1)
        at, closed = u, False
        for depth in range(SETTINGS.rerouted_nodes):
            closing = self._fitting(at, goal) if depth else ()
            if closing:
                row[at] = closing[int(uniform() * len(closing))]
                self._release(row[at], -1)
                closed = True
                break
            out, h = self.out[at], -1
            for _ in range(SETTINGS.rerouting_trials):
                trial = out[int(uniform() * len(out))]
                if trial == old[-1]:
                    continue
                if head[trial] == goal:
                    if self._fits(trial):
                        h = trial
                        break
                    continue
                loser = before[head[trial]]
                if loser in displaced:
                    continue
                self._release(row[loser], 1)
                if self._fits(trial):
                    h = trial
                    break
                self._release(row[loser], -1)
            if h < 0:
                break
            row[at] = h
            self._release(h, -1)
            if head[h] == goal:
                closed = True
                break
            at = before[head[h]]
            displaced.append(at)
            old.append(row[at])
        if closed:
            after, voltage = self.after[i].copy(), self.voltage_sum[i]
            for w, h in zip(displaced, old, strict=True):
                after[w] = head[row[w]]
                voltage += self.voltage[row[w]] - self.voltage[h]
            energy = self._energy(after, voltage)
            if self._accept(energy - self.energy[i]):
                self.energy[i], self.voltage_sum[i] = energy, voltage
                for w in displaced:
                    self.after[i][w] = head[row[w]]
                    before[head[row[w]]] = w
                return True
        # undo: of a path that was not closed, the last node holds no arc
        for w in displaced if closed else displaced[:-1]:
            self._release(row[w], 1)
        for w, h in zip(displaced, old, strict=True):
            row[w] = h
            self._release(h, -1)
        return False


# ---------------------------------------------------------------- rings in opposite pairs


def opposite_pairs(
    network: RingNetwork, widths: Sequence[int], known: int, maximum: int, steps: int
) -> Iterator[tuple[int, list[Ring]]]:
    """Yield (width, rings as ranks and links), each time with more units together than `known` and than before.

    The width is that of `widths` for which degrees allow the most units, `maximum` in all. Each attempt takes at most
    `steps` exchanges. Raises TimeUp.
    """
    pairs, width = 0, 0
    edges: list[Edge] = []
    for candidate in widths:
        candidate_edges = _edges(network, candidate)
        degree = int(_degrees(network.ranks, candidate_edges).min())
        count = min(maximum // candidate, degree) // 2
        if count * candidate > pairs * width:
            pairs, width, edges = count, candidate, candidate_edges
            if 2 * count * candidate == maximum:
                break
    reduction = 0  # fewer pairs are tried where all that degrees allow were not found
    while 2 * (pairs - reduction) * width > known:
        found = cycles(network.ranks, edges, pairs - reduction, steps)
        if 2 * len(found) * width > known:
            known = 2 * len(found) * width
            rings: list[Ring] = []
            for cycle in found:
                rings += _both_directions(cycle, edges)
            yield width, rings
        reduction = max(1, 2 * reduction)


def _both_directions(cycle: EdgeCycle, edges: list[Edge]) -> tuple[Ring, Ring]:
    """The ring along a cycle and the opposite ring."""
    order, numbers = cycle
    forward, backward = [], []
    for rank, e in zip(order, numbers, strict=True):
        start, _, there, back = edges[e]
        forward.append(there if start == rank else back)
        backward.append(back if start == rank else there)
    opposite = np.roll(order[::-1], 1), np.array(backward[::-1])
    return (np.array(order), np.array(forward)), opposite


def _degrees(ranks: int, edges: list[Edge]) -> np.ndarray:
    return np.bincount(np.array([edge[:2] for edge in edges], np.int64).reshape(-1), minlength=ranks)


def _edges(network: RingNetwork, width: int) -> list[Edge]:
    """An edge for every `width` units of links both ways; [] where there are limits or too many edges."""
    if len(network.members):
        return []
    times = network.units // width
    if int(times.sum()) > 2 * SETTINGS.maximum_edges:
        return []
    links_of: dict[tuple[int, int], list[int]] = {}
    for link, (a, b, count) in enumerate(zip(network.src.tolist(), network.dst.tolist(), times.tolist(), strict=True)):
        links_of.setdefault((a, b), []).extend([link] * count)
    edges = []
    for (a, b), links in links_of.items():
        if a < b:
            opposite = links_of.get((b, a), ())
            edges += [(a, b, there, back) for there, back in zip(links, opposite, strict=False)]
    return edges


def cycles(ranks: int, edges: list[Edge], wanted: int, steps: int, seed: int = 0) -> list[EdgeCycle]:
    """Search for up to `wanted` edge-disjoint Hamiltonian cycles by at most `steps` exchanges. Raises TimeUp."""
    random = Random(seed)
    subset = _regular_subset(ranks, edges, 2 * wanted, seed)
    if subset is None:
        return []
    search = _FactorAnnealing(ranks, edges, _two_factors(ranks, edges, subset, wanted, random), wanted, random)
    search.run(steps)
    return [search.cycle(i) for i in range(wanted) if not search.energy[i]]


def _regular_subset(ranks: int, edges: list[Edge], degree: int, seed: int) -> list[int] | None:
    """Edges with `degree` at each rank, by an integer program with random costs; None where none were found."""
    degrees = _degrees(ranks, edges)
    if (degrees < degree).any():
        return None
    if (degrees == degree).all():
        return list(range(len(edges)))
    from scipy.sparse import csr_matrix

    count = len(edges)
    ends = np.array([edge[:2] for edge in edges], np.int64)
    rows = csr_matrix((np.ones(2 * count), (ends.reshape(-1), np.repeat(np.arange(count), 2))), shape=(ranks, count))
    cost = np.random.default_rng(seed).random(count)
    solution = integer(cost, [(rows, degree, degree)], 1, time_limit=_program_seconds(), node_limit=50, mip_rel_gap=0.5)
    return None if solution.x is None else np.flatnonzero(np.rint(solution.x)).tolist()


def _two_factors(ranks: int, edges: list[Edge], subset: list[int], count: int, random: Random) -> list[int]:
    """2-factor of each edge, a number below `count`; `count` for the edges outside `subset`.

    The edges are oriented along Euler tours. Then each rank has `count` edges out and in, and these fall into perfect
    matchings between tails and heads (Petersen).
    """
    incident: list[list[int]] = [[] for _ in range(ranks)]
    order = subset.copy()
    random.shuffle(order)
    for e in order:
        incident[edges[e][0]].append(e)
        incident[edges[e][1]].append(e)
    oriented = [False] * len(edges)
    between: dict[tuple[int, int], list[int]] = {}
    for start in range(ranks):  # all degrees are even: a walk ends only where it began
        at = start
        while incident[at]:
            e = incident[at].pop()
            if not oriented[e]:
                oriented[e] = True
                other = edges[e][1] if edges[e][0] == at else edges[e][0]
                between.setdefault((at, other), []).append(e)
                at = other
    factor = [count] * len(edges)
    for k, layer in enumerate(_perfect_matchings(ranks, between, count, random)):
        for e in layer:
            factor[e] = k
    return factor


class _FactorAnnealing:
    """Simulated annealing over 2-factors.

    `incident[k][v]` are the edges of factor k at rank v (factor `count`: the edges left over); `energy[k]` is the
    number of cycles of factor k less one.
    """

    def __init__(self, ranks: int, edges: list[Edge], factor: list[int], count: int, random: Random) -> None:
        self.ranks, self.count, self.random = ranks, count, random
        self.end_sum = [a + b for a, b, *_ in edges]  # minus one end it is the other end
        self.start = [a for a, *_ in edges]
        self.incident: list[list[list[int]]] = []
        for _ in range(count + 1):
            self.incident.append([[] for _ in range(ranks)])
        for e, (a, b, *_) in enumerate(edges):
            self.incident[factor[e]][a].append(e)
            self.incident[factor[e]][b].append(e)
        self.partners = [k for k in range(count + 1) if k < count or any(self.incident[count])]
        self.energy = [self._energy(k) for k in range(count)]

    def _energy(self, k: int) -> int:
        """Number of cycles of factor k, less one."""
        incident, ends = self.incident[k], self.end_sum
        seen = [False] * self.ranks
        energy = -1
        for start in range(self.ranks):
            if not seen[start]:
                energy += 1
                at, e = start, -1
                while not seen[at]:
                    seen[at] = True
                    one, two = incident[at]
                    e = two if e == one else one
                    at = ends[e] - at
        return energy

    def cycle(self, k: int) -> EdgeCycle:
        """Ranks of cycle k in their order, from rank 0, and the edges between them."""
        order: list[int] = []
        numbers: list[int] = []
        at, e = 0, -1
        for _ in range(self.ranks):
            one, two = self.incident[k][at]
            e = two if e == one else one
            order.append(at)
            numbers.append(e)
            at = self.end_sum[e] - at
        return order, numbers

    def run(self, steps: int) -> None:
        """Make at most `steps` exchanges, until every factor is one cycle. Raises TimeUp."""
        uniform, energy = self.random.random, self.energy
        for step in range(steps):
            if not step & 63:
                check_deadline()
            unfinished = [k for k in range(self.count) if energy[k]]
            if not unfinished or len(self.partners) < 2:
                return
            i = unfinished[int(uniform() * len(unfinished))]
            j = i
            while j == i:
                j = self.partners[int(uniform() * len(self.partners))]
            trail = self._alternating_trail(int(uniform() * self.ranks), i, j)
            if not trail:
                continue
            self._exchange(trail, i, j)
            energy_i = self._energy(i)
            energy_j = self._energy(j) if j < self.count else 0
            increase = energy_i + energy_j - energy[i] - (energy[j] if j < self.count else 0)
            if increase <= 0 or uniform() < exp(-increase / _temperature(step, steps)):
                energy[i] = energy_i
                if j < self.count:
                    energy[j] = energy_j
            else:
                self._exchange(trail, j, i)

    def _alternating_trail(self, u: int, i: int, j: int) -> list[int]:
        """A shortest closed trail from u with edges of factors i and j in turn, in random order; [] if none is found.

        A breadth-first search over states 2 x rank + (1 if the next edge is one of j). Trails that repeat an edge are
        refused.
        """
        incident, ends, uniform = (self.incident[i], self.incident[j]), self.end_sum, self.random.random
        came_from: dict[int, tuple[int, int]] = {}
        queue = deque([2 * u])
        while queue and len(came_from) < SETTINGS.maximum_states:
            state = queue.popleft()
            at, side = state >> 1, state & 1
            row = incident[side][at]
            for e in reversed(row) if uniform() < 0.5 else row:
                after = 2 * (ends[e] - at) + 1 - side
                if after not in came_from:
                    came_from[after] = (state, e)
                    if after == 2 * u:
                        return self._traced(after, came_from)
                    queue.append(after)
        return []

    def _traced(self, state: int, came_from: dict[int, tuple[int, int]]) -> list[int]:
        """The edges back from `state` to itself; [] where one repeats."""
        trail: list[int] = []
        goal = state
        while True:
            state, e = came_from[state]
            trail.append(e)
            if state == goal:
                return trail if len(set(trail)) == len(trail) else []

    def _exchange(self, trail: list[int], i: int, j: int) -> None:
        """Move the edges of j on the trail to i, and those of i to j. The trail begins with an edge of j."""
        for place, e in enumerate(trail):
            old, new = (i, j) if place & 1 else (j, i)
            for end in (self.start[e], self.end_sum[e] - self.start[e]):
                self.incident[old][end].remove(e)
                self.incident[new][end].append(e)
