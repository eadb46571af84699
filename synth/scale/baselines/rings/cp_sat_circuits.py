"""Decision by CP-SAT of how many rings fit together: a constraint program with one circuit for each ring."""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import gcd, prod

from synth.scale.baselines.rings.quotient_network import QuotientNetwork, prime_divisors
from synth.solvers.cp_sat_circuits import LIBRARY, CircuitProblem, solve
from synth.solvers.processes.pool import run_in_process

# Arcs of all rings together for which a constraint program is made.
MAXIMUM_VARIABLES = 30_000


def fit(quotient: QuotientNetwork, count: int, width: int, effort: float) -> list[list[int]] | None:
    """Find `count` rings of `width` units that fit together, each a closed walk of arcs through all nodes.

    Returns [] if it is proved that there are none, None if undecided. `effort` is in seconds of CP-SAT's own
    deterministic clock, so that the answer is the same everywhere.
    """
    if len(quotient.src) * count > MAXIMUM_VARIABLES or quotient.nodes < 2:
        return None
    # over two nodes a closed form shows that there is none, without the time that the solver takes to load
    if quotient.nodes == 2 and not _has_two_node_ring(quotient, width):
        return []
    capacity = tuple(units // width for units in quotient.capacity)
    problem = CircuitProblem(
        count, quotient.nodes, quotient.order, quotient.src, quotient.dst, quotient.voltage, quotient.uses, capacity
    )
    return run_in_process(solve, problem, effort, imports=LIBRARY)


def _has_two_node_ring(quotient: QuotientNetwork, width: int) -> bool:
    """True if there is one ring over two nodes.

    Arcs with equal uses and equal voltage modulo the radical of the order (the product of its primes) are equivalent,
    because coprimality to the order depends on the voltage modulo the radical only.
    """
    order = quotient.order
    radical = prod(prime_divisors(order))
    leaving: tuple[set, set] = (set(), set())
    for h, node in enumerate(quotient.src):
        leaving[node].add((quotient.uses[h], quotient.voltage[h] % radical))
    for (there, one), (back, two) in product(*leaving):
        load = Counter(dict(there))
        load.update(dict(back))
        if gcd(one + two, radical) == 1 and all(quotient.capacity[k] // width >= n for k, n in load.items()):
            return True
    return False
