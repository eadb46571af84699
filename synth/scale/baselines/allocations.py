"""The allocations of a machine up to isomorphism, and what each can do: the setting of Blink (Wang et al., MLSys 2020).

A scheduler hands out some GPUs of a box; which ones decides how fast a collective can be. Allocations whose induced
networks are isomorphic are one *class*: DGX-1 V100 has 46 classes of 3 to 8 GPUs that its NVLinks connect.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import comb
from typing import NamedTuple

from synth import bounds
from synth.encodings import spanning_tree_packing
from synth.errors import InfeasibleError, SynthError, UsageError
from synth.model import symmetry
from synth.model.collective import collective
from synth.model.topology import Cap, Network, Route
from synth.scale.baselines.rings import search
from synth.scale.bounds import graph_strength, subset_cuts
from synth.solvers.processes.deadline import check

MOST_SUBSETS = 1 << 16
RATED = ("broadcast", "allgather", "reduce-scatter", "allreduce")


@dataclass(frozen=True)
class Allocation:
    """A class: its lexicographically least member, how many allocations are like it, and the links among its ranks."""

    ranks: tuple[int, ...]
    members: int
    network: Network
    connected: bool


@dataclass(frozen=True)
class Rates:
    """Algorithmic bandwidths (size / time) in units of the network's unit bandwidth; 0 where the links do not connect
    the ranks.

    `best[name]`: what no schedule exceeds; packed trees attain it for the names in `attained`. `composed`: the optimal
    reduce-scatter followed by the optimal allgather, for allreduce. `ring[name]`: all disjoint rings together.
    `rings_most`: proved that no more fit. `cuts[name]`: the ranks whose outgoing links limit, where the bound is a cut
    (for reduce-scatter, incoming links); for allreduce the part of each rank.
    """

    best: dict[str, Fraction]
    attained: frozenset[str]
    composed: Fraction | None
    ring: dict[str, Fraction]
    ring_units: int
    rings_most: bool
    cuts: dict[str, tuple[int, ...]]

    def composed_best(self) -> dict[str, Fraction]:
        """`best`, where an allreduce that may not be attained is replaced by reduce-scatter + allgather, which is."""
        return {
            name: self.composed
            if name == "allreduce" and name not in self.attained and self.composed is not None
            else rate
            for name, rate in self.best.items()
        }


def induced(network: Network, ranks: Sequence[int]) -> Network:
    """The routes among `ranks`, which become 0, 1, ... in the order given; limits keep their units.

    Routes that carry nothing are left out.
    """
    dead = {i for cap in network.caps if not cap.units for i in cap.routes} | {
        i for i, r in enumerate(network.routes) if not r.units
    }
    new = {r: i for i, r in enumerate(ranks)}
    kept = {
        i: k
        for k, i in enumerate(
            i for i, r in enumerate(network.routes) if r.src in new and r.dst in new and i not in dead
        )
    }
    routes = tuple(Route(new[r.src], new[r.dst], r.units, r.via, r.latency) for r in (network.routes[i] for i in kept))
    caps = []
    for cap in network.caps:
        riders = tuple(kept[i] for i in cap.routes if i in kept)
        if sum(routes[i].units for i in riders) > cap.units:  # else the routes themselves are stricter
            caps.append(Cap(riders, cap.units))
    return Network(f"{network.name}[{','.join(map(str, ranks))}]", len(ranks), routes, tuple(caps), network.unit)


def classes(network: Network, sizes: Sequence[int] | None = None, *, every: bool = False) -> Iterator[Allocation]:
    """The classes of allocations of 3 ranks or more (or of `sizes`), the small ones first; those that are not connected
    too if `every`.

    Raises UsageError where there are too many subsets to list, TimeUp at the end of a time limit
    (`synth.solvers.processes.deadline`).
    """
    wanted = sorted(set(sizes if sizes is not None else range(3, network.ranks + 1)))
    if any(not 2 <= n <= network.ranks for n in wanted):
        raise UsageError(f"allocations of {wanted} of {network.ranks} ranks; sizes lie between 2 and {network.ranks}")
    for size in wanted:
        if (many := comb(network.ranks, size)) > MOST_SUBSETS:
            raise UsageError(
                f"{network.name} has {many} allocations of {size} ranks, more than {MOST_SUBSETS}; choose other sizes"
            )
    for size in wanted:
        found: dict[tuple, list[list]] = {}
        for ranks in combinations(range(network.ranks), size):
            check()
            net = induced(network, ranks)
            connected = all(d is not None for row in net.distances for d in row)
            if not connected and not every:
                continue
            alike = found.setdefault(_invariant(net), [])
            same = next((entry for entry in alike if symmetry.isomorphism(entry[1], net) is not None), None)
            if same is None:
                alike.append([ranks, net, connected, 1])
            else:
                same[3] += 1
        for ranks, net, connected, members in sorted(entry for alike in found.values() for entry in alike):
            yield Allocation(ranks, members, net, connected)


def _invariant(net: Network) -> tuple:
    """Equal for isomorphic networks: what each rank sees, twice refined."""
    seen: list[object] = [0] * net.ranks
    caps = [[len(cap.routes), cap.units] for cap in net.caps]
    for _ in range(2):
        seen = [
            hash(
                (
                    tuple(
                        sorted(
                            (net.routes[i].units, hash(seen[net.routes[i].dst]), len(net.caps_of[i]))
                            for i in net.out[r]
                        )
                    ),
                    tuple(
                        sorted(
                            (net.routes[i].units, hash(seen[net.routes[i].src]), len(net.caps_of[i]))
                            for i in net.into[r]
                        )
                    ),
                )
            )
            for r in range(net.ranks)
        ]
    return tuple(sorted(map(hash, seen))), tuple(sorted(map(tuple, caps)))


def rates(network: Network, names: Sequence[str] = ("broadcast", "allgather", "allreduce")) -> Rates:
    """What `network` can do for each of `names`, exactly. Raises UsageError for a name that has no rate here."""
    odd = [name for name in names if name not in RATED]
    if odd:
        raise UsageError(f"rates are known for {', '.join(RATED)}; not for {odd[0]}")
    if any(d is None for row in network.distances for d in row):
        none = dict.fromkeys(names, Fraction(0))
        return Rates(none, frozenset(names), Fraction(0), dict(none), 0, True, {})
    made = {name: best(network, name) for name in names}
    composed = None
    if "allreduce" in names:
        both = [best(network, name).units for name in ("reduce-scatter", "allgather")]
        composed = 1 / sum((1 / rate for rate in both), Fraction(0))
    found = search.disjoint(network)
    attained = frozenset(name for name in names if made[name].attained)
    ring = {name: found.units * share(name, network.ranks) for name in names}
    units, cuts = {name: b.units for name, b in made.items()}, {name: b.cut for name, b in made.items()}
    return Rates(units, attained, composed, ring, found.units, found.most, cuts)


class Best(NamedTuple):
    """Units of algorithmic bandwidth that no schedule exceeds; `cut` as in `Rates.cuts`; whether packed trees attain
    it."""

    units: Fraction
    cut: tuple[int, ...]
    attained: bool


def share(name: str, ranks: int) -> Fraction:
    """What a ring of one unit carries of collective `name`, in units of algorithmic bandwidth."""
    part = Fraction(ranks, ranks - 1)
    return {"broadcast": Fraction(1), "allgather": part, "reduce-scatter": part, "allreduce": part / 2}[name]


def best(network: Network, name: str, root: int = 0) -> Best:
    """The bound of collective `name`: by trees where they attain it, else by the linear program on any number of
    steps."""
    return by_trees(network, name, root) or Best(_bound(network, name, root), (), False)


def by_trees(network: Network, name: str, root: int = 0) -> Best | None:
    """The bound of collective `name` where packed trees attain it and all cuts are looked at; None elsewhere."""
    if name == "allreduce":
        return Best(*graph_strength.tree_rate(network), True) if spanning_tree_packing.applies(network) else None
    turned = network.reversed() if name == "reduce-scatter" else network
    if subset_cuts.applies(turned):
        cut = subset_cuts.broadcast(turned, root) if name == "broadcast" else subset_cuts.allgather(turned)
        return Best(cut.value, cut.side, True)
    return None


def _bound(network: Network, name: str, root: int) -> Fraction:
    """By the linear program on any number of steps: units of algorithmic bandwidth."""
    task = collective(name, network.ranks, (root,)) if name == "broadcast" else collective(name, network.ranks)
    try:
        value = (bounds.allreduce if name == "allreduce" else bounds.flow)(network, task, None).value
    except InfeasibleError:
        return Fraction(0)
    if not value:
        raise SynthError(f"{name} on {network.name} needs no time at all; nothing limits it")
    return 1 / (value * task.unit_share)
