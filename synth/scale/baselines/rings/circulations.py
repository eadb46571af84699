"""Rings side by side: an integer program chooses arcs, which fall into permutations, whose cycles are then joined.

The integer program says how often each arc is taken when every node is left and entered once by each of the rings (a
circulation). The arcs fall into as many perfect matchings between tails and heads (König), which are permutations of
the nodes. Then simulated annealing joins the cycles of each permutation (`kempe_annealing`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

import numpy as np

from synth.scale.baselines.rings.kempe_annealing import KempeAnnealing, Layer
from synth.scale.baselines.rings.quotient_network import QuotientNetwork
from synth.scale.fabric.graphs import components
from synth.solvers.cutting_planes import cutting_planes
from synth.solvers.highs import integer
from synth.solvers.processes.deadline import check_deadline, current_deadline


@dataclass(frozen=True)
class CirculationSettings:
    """Limits of the integer program.

    Attributes:
        program_seconds: Seconds that one integer program may take; few take more than a tenth of one.
        maximum_cuts: Rounds in which a cut is added for a set of nodes that the chosen arcs do not leave.
        many_arcs: Arcs above which the program is first made of a random part of them.
        arcs_per_node: Arcs of that part for each node and ring.
    """

    program_seconds: float = 10.0
    maximum_cuts: int = 12
    many_arcs: int = 4_000
    arcs_per_node: float = 3.0


SETTINGS = CirculationSettings()


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
        "time_limit": min(SETTINGS.program_seconds, max(current_deadline().remaining(), 0.01)),
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
    search = KempeAnnealing(quotient, width, _matchings(quotient, times, count, seed), Random(seed))
    search.run(steps)
    return [search.ring(i) for i in range(count) if not search.energy[i]]


def _matchings(quotient: QuotientNetwork, times: list[int], count: int, seed: int) -> list[Layer]:
    """Decompose the arcs, each taken `times[h]` times, into `count` permutations: layer[u] is the arc out of u."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import maximum_bipartite_matching

    n, shuffle = quotient.nodes, Random(seed)
    remaining: dict[tuple[int, int], list[int]] = {}
    for h, number in enumerate(times):
        if number:
            remaining.setdefault((quotient.src[h], quotient.dst[h]), []).extend([h] * number)
    for row in remaining.values():
        shuffle.shuffle(row)
    layers = []
    for _ in range(count):
        name = list(range(n))  # random names of the heads, so that matchings differ
        shuffle.shuffle(name)
        pairs = [(u, name[v]) for u, v in remaining]
        matrix = csr_matrix((np.ones(len(pairs)), tuple(zip(*pairs, strict=True))), shape=(n, n))
        node = {name[v]: v for v in range(n)}
        layer = []
        for u, v in enumerate(maximum_bipartite_matching(matrix, "column").tolist()):
            pair = (u, node[v])
            layer.append(remaining[pair].pop())
            if not remaining[pair]:
                del remaining[pair]
        layers.append(layer)
    return layers
