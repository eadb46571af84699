"""Allocations of a machine up to isomorphism, and their optimal rates: the setting of Blink (Wang et al., MLSys 2020).

A scheduler hands out some GPUs of a box; which ones decides how fast a collective can be. Allocations whose induced
networks are isomorphic form one *class*: DGX-1 V100 has 46 classes of 3 to 8 GPUs that its NVLinks connect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, combinations
from math import comb

from synth.encodings import spanning_tree_packing
from synth.errors import UsageError
from synth.model import symmetry
from synth.model.frontier import Frontier
from synth.model.topology import Cap, Network, Route, Topology
from synth.scale.baselines.rings import disjoint_rings
from synth.solvers.deadline import check_deadline

# Subsets of one size that are listed. Each is compared with the classes so far, so more would take minutes.
MAXIMUM_SUBSETS = 1 << 16
# Collectives with a known optimal rate on any allocation.
RATED = ("broadcast", "allgather", "reduce-scatter", "allreduce")


@dataclass(frozen=True)
class Allocation:
    """A class of allocations.

    `ranks`: its lexicographically least member. `members`: the number of allocations in it. `network`: the induced
    network, whose links lead from every rank to every other.
    """

    ranks: tuple[int, ...]
    members: int
    network: Network


@dataclass(frozen=True)
class Rates:
    """Algorithmic bandwidths (size / time) in units of the network's unit bandwidth.

    `best[name]`: an upper bound for all schedules, which packed trees attain for the names in `attained`. `composed`:
    the optimal reduce-scatter followed by the optimal allgather, for allreduce. `ring[name]`: all rings found together,
    which have `ring_units` units. `rings_proved_maximum`: it is proved that no more fit.
    """

    best: dict[str, Fraction]
    attained: frozenset[str]
    composed: Fraction | None
    ring: dict[str, Fraction]
    ring_units: int
    rings_proved_maximum: bool


def induced(network: Network, ranks: Sequence[int]) -> Network:
    """Return the routes among `ranks`, which become 0, 1, ... in the order given; limits keep their units.

    Routes without capacity are left out.
    """
    down = {i for i, r in enumerate(network.routes) if not r.units}
    for cap in network.caps:
        if not cap.units:
            down.update(cap.routes)
    new_rank = {r: i for i, r in enumerate(ranks)}
    new_route: dict[int, int] = {}
    routes: list[Route] = []
    for i, r in enumerate(network.routes):
        if r.src in new_rank and r.dst in new_rank and i not in down:
            new_route[i] = len(routes)
            routes.append(Route(new_rank[r.src], new_rank[r.dst], r.units, r.via, r.latency))
    caps = []
    for cap in network.caps:
        members = tuple(new_route[i] for i in cap.routes if i in new_route)
        if sum(routes[i].units for i in members) > cap.units:  # otherwise the routes themselves are stricter
            caps.append(Cap(members, cap.units))
    name = f"{network.name}[{','.join(map(str, ranks))}]"
    return Network(name, len(ranks), tuple(routes), tuple(caps), network.unit)


def allocation_classes(network: Network, sizes: Sequence[int] | None = None) -> Iterator[Allocation]:
    """Yield the classes of allocations of 3 ranks or more (or of `sizes`) that the links connect, the small ones first.

    Raises UsageError where there are too many subsets to list, TimeUp at the end of a time limit
    (`synth.solvers.deadline`).
    """
    wanted = sorted(set(sizes if sizes is not None else range(3, network.ranks + 1)))
    if any(not 2 <= n <= network.ranks for n in wanted):
        sizes_text = ",".join(map(str, wanted))
        raise UsageError(f"allocations of {sizes_text} ranks: {network.name} has them of 2 to {network.ranks}")
    for size in wanted:
        subsets = comb(network.ranks, size)
        if subsets > MAXIMUM_SUBSETS:
            raise UsageError(
                f"{network.name} has {subsets} allocations of {size} ranks, more than {MAXIMUM_SUBSETS}; choose other "
                f"sizes"
            )
    for size in wanted:
        by_invariant: dict[tuple, list[list]] = {}  # (least ranks, network, members) of each class
        for ranks in combinations(range(network.ranks), size):
            check_deadline()
            net = induced(network, ranks)
            if any(d is None for row in net.distances for d in row):
                continue
            candidates = by_invariant.setdefault(_invariant(net), [])
            same = next((entry for entry in candidates if symmetry.isomorphism(entry[1], net) is not None), None)
            if same is None:
                candidates.append([ranks, net, 1])
            else:
                same[2] += 1
        for ranks, net, members in sorted(chain.from_iterable(by_invariant.values())):
            yield Allocation(ranks, members, net)


def _invariant(net: Network) -> tuple:
    """A value that is equal for isomorphic networks: colors of the ranks, refined twice by those of their neighbors."""
    colors = [0] * net.ranks
    for _ in range(2):
        refined = []
        for r in range(net.ranks):
            leaving = sorted((net.routes[i].units, colors[net.routes[i].dst], len(net.caps_of[i])) for i in net.out[r])
            entering = sorted(
                (net.routes[i].units, colors[net.routes[i].src], len(net.caps_of[i])) for i in net.into[r]
            )
            refined.append(hash((tuple(leaving), tuple(entering))))
        colors = refined
    return tuple(sorted(colors)), tuple(sorted((len(cap.routes), cap.units) for cap in net.caps))


def optimal_rates(
    network: Network,
    bound: Callable[[Topology, str], Frontier],
    names: Sequence[str] = ("broadcast", "allgather", "allreduce"),
) -> Rates:
    """Return the exact optimal rates of the collectives `names`, which `bound` bounds by cuts.

    Raises UsageError for one that is not in `RATED`.
    """
    unrated = [name for name in names if name not in RATED]
    if unrated:
        raise UsageError(f"rates are known for {', '.join(RATED)}; not for {unrated[0]}")
    machine, units = network.as_topology(), {}
    halves = ("reduce-scatter", "allgather") if "allreduce" in names else ()
    for name in dict.fromkeys((*names, *halves)):
        frontier = bound(machine, name)
        units[name] = frontier.bound_gbps / network.unit
    seconds_per_gb = sum((1 / units[name] for name in halves), Fraction(0))
    rings = disjoint_rings(network)
    return Rates(
        best={name: units[name] for name in names},
        attained=frozenset(name for name in names if attained(network, name)),
        composed=1 / seconds_per_gb if seconds_per_gb else None,
        ring={name: rings.units * ring_rate(name, network.ranks) for name in names},
        ring_units=rings.units,
        rings_proved_maximum=rings.proved_maximum,
    )


def attained(network: Network, name: str) -> bool:
    """Return True if packed trees attain the bound by cuts or partitions: no limits, for allreduce equal links both
    ways (Edmonds, "Edge-disjoint branchings", 1973; Nash-Williams and Tutte, 1961)."""
    return spanning_tree_packing.applies(network) if name == "allreduce" else not network.caps


def ring_rate(name: str, ranks: int) -> Fraction:
    """Return the algorithmic bandwidth of collective `name` on a ring of one unit, in units."""
    part = Fraction(ranks, ranks - 1)
    return {"broadcast": Fraction(1), "allgather": part, "reduce-scatter": part, "allreduce": part / 2}[name]
