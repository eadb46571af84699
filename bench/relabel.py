"""The same problem in another order: ranks renumbered and links shuffled, by a seed.

Solvers are sensitive to the order of their input, and a solver's own seed may change nothing at all (z3's does not on
the path encoding). Both sides of a comparison get the same renumbered problem, so a median over seeds is over the same
problems for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from synth import api
from synth.model.schedule import Problem
from synth.model.topology import Cap, Network, Route


def problem(
    topology: str, collective: str, chunks: int, steps: int, rounds: int, roots: Sequence[int] = (), seed: int = 0
) -> Problem:
    """The named problem; any `seed` but 0 renumbers it."""
    network = api.topology(topology).network()
    order = list(range(network.ranks))
    if seed:
        network = relabelled(network, order, Random(f"{topology} {collective} {chunks} {steps} {rounds} {seed}"))
    named = api.collective(collective, network.ranks, roots).roots  # a root that nobody named moves too
    task = api.collective(collective, network.ranks, [order[root] for root in named])
    return Problem(network, task, chunks, steps, rounds)


def relabelled(network: Network, order: list[int], random: Random) -> Network:
    """`network` with rank n called ``order[n]`` and its links shuffled; `order` is shuffled in place."""
    random.shuffle(order)
    places = list(range(len(network.routes)))
    random.shuffle(places)  # new route i is old route places[i]
    at = {old: new for new, old in enumerate(places)}
    old = network.routes
    routes = tuple(
        Route(order[old[i].src], order[old[i].dst], old[i].units, old[i].via, old[i].latency) for i in places
    )
    caps = [Cap(tuple(sorted(at[r] for r in cap.routes)), cap.units) for cap in network.caps]
    random.shuffle(caps)
    wires = tuple((_end(a, order), _end(b, order), units) for a, b, units in network.wires)
    generators = tuple(_conjugate(image, order) for image in network.generators)
    return Network(network.name, network.ranks, routes, tuple(caps), network.unit, wires, generators)


def _end(end: int | str, order: Sequence[int]) -> int | str:
    return order[end] if isinstance(end, int) else end


def _conjugate(image: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    moved = [0] * len(order)
    for rank, to in enumerate(image):
        moved[order[rank]] = order[to]
    return tuple(moved)
