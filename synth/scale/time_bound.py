"""Lower bounds in time by size, from the latencies of a machine and a certified bound on its rounds per chunk.

The machine is that of the reference executor (docs/model.md): a transfer over a route begins when its data are there,
occupies the route and the limits of its links, or the ports of a switch that multicasts, for its bytes over their
bandwidth, and arrives the latency of the route after its last byte has left. A call takes no less than

    launch + max(L, l + bytes · R/C)

- L, *latency of the farthest pair*: what a rank wants of another arrives along a chain of transfers. Each begins after
  the one before has arrived, so the chain takes the latencies of a path between the two at least. L is the greatest
  of the least latencies of a path over all that is wanted. A unit that several ranks hold comes from the nearest one.
- R/C, *certified rounds per chunk*: prices of links, limits and ports, by which the transfers of each byte of a unit
  cost 1 in all, whatever the steps, while what all links, limits and ports carry in a time t costs t · C/R at most.
  The order of the transfers is that of some schedule of one transfer a step, so the bound holds for programs.
- l, *least latency* of a route from rank to rank: the last transfer has left l before the end at the latest, and so
  have all others. So the links carry for the time T - l only.

L + bytes · R/C is no bound: the last bytes over the busiest links need not go the longest way. A broadcast to a near
rank over 1 GB/s and 1 µs, and to a far one over 100 GB/s and 50 µs, takes 81 µs for 80,000 bytes. Nor is the mean
latency of the busiest links, in place of l: bytes over the nearer ones may leave later.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from math import lcm
from typing import NamedTuple

import numpy as np

from synth.errors import InfeasibleError, SynthError
from synth.model.bounds.time_bound import SizeBound, TimeBound
from synth.model.collective import Collective
from synth.model.collective import collective as named_collective
from synth.model.frontier import LowerBound
from synth.model.link_table import LinkTable, ends
from synth.model.number_text import number, size_text
from synth.model.scale_collectives import COLLECTIVES, ROOTED
from synth.model.topology import Network, Topology
from synth.program.overheads import NO_OVERHEADS, Overheads
from synth.program.program import PROTOCOLS
from synth.scale.bounds.switches import holds_with_multicast
from synth.scale.bounds.unreachability import certificate
from synth.scale.fabric.fabric import fabric
from synth.scale.fabric.graphs import shortest_path_trees
from synth.solvers.deadline import TimeUp

# Ranks up to which an exact bound on rounds per chunk, for any collective, takes less than a second or two.
MOST_EXACT = 64
# Ranks up to which a collective without a name of the flow methods has a bound by single cuts.
MOST_CUTS = 256
# Ranks up to which the network lists the ports of switches that multicast, as in frontiers.
MOST_PORTS = 128
# Nodes of a machine up to which latencies are computed from every rank. On larger ones, whose ranks are alike, they are
# computed from `SOURCES` ranks, which proves a little less where they are not.
MOST_NODES = 512
SOURCES = 16


def time_bound(
    machine: Topology | Network,
    collective: str | Collective,
    sizes: Sequence[int],
    *,
    root: int = 0,
    overheads: Overheads = NO_OVERHEADS,
    protocols: Sequence[str] = PROTOCOLS,
) -> TimeBound:
    """Return a lower bound on the time of any program of a collective, for each of `sizes` (bytes, nccl-tests' size).

    It is the least of all `protocols`, each with its launch and its links by `overheads` (by default bare links). Where
    switches of the machine multicast it holds for programs with that, too; a Network has them where
    `Topology.multicast_network` made it. `root`: of a collective given by name. At the ambient deadline the bound on
    rounds per chunk is the one so far, where a method for large machines has one. Raises InfeasibleError where data
    cannot reach a rank.
    """
    both = isinstance(machine, Network) and isinstance(collective, Collective)
    return (_kept if both else _bound)(machine, collective, tuple(sizes), root, overheads, tuple(protocols))


def _bound(
    machine: Topology | Network, collective: str | Collective, sizes: tuple[int, ...], root: int, overheads: Overheads,
    protocols: tuple[str, ...],
) -> TimeBound:  # fmt: skip
    # The links, the ranks of each switch that multicasts, and the network with their ports, where it can be listed.
    ports = machine if isinstance(machine, Network) else None
    links = machine.as_topology() if isinstance(machine, Network) else machine.live()
    if ports is None and links.multicast and links.ranks <= MOST_PORTS:
        ports = links.multicast_network()
    switches = links.multicast if ports is None else ports.multicast
    groups = [sorted(switch.ranks) for switch in switches]
    if not groups or links.ranks > MOST_PORTS:
        ports = None

    # The collective, and whether flow methods know it.
    if isinstance(collective, str):
        name = named_collective(collective, 2).name
        known = name in COLLECTIVES
        roots = (root,) if name in ROOTED or (root and not known) else ()
        task = named_collective(name, links.ranks, roots)
    else:
        task, name = collective, collective.name
        known = name in COLLECTIVES and named_collective(name, links.ranks, task.roots) == task
    rate = _rounds_per_chunk(links, ports, groups, task, known) if links.ranks > 1 else None

    # In each protocol the greater of the two bounds; of all protocols the least.
    options: list[list[SizeBound]] = [[] for _ in sizes]
    for cost, protocol in {overheads.of(protocol): protocol for protocol in reversed(protocols)}.items():
        far = _latencies(links, task, known, cost.hop)
        seconds_per_gb = Fraction(0)
        if rate is not None:
            seconds_per_gb = rate.value * task.unit_share * cost.wire / links.unit_bandwidth()
        for place, size in enumerate(sizes):
            time, reason = far.farthest, f"latency from rank {far.pair[0]} to rank {far.pair[1]}"
            moving = far.least + seconds_per_gb * size / 1000
            if seconds_per_gb and moving > time:
                time = moving
                reason = f"{size_text(size)} at {number(1 / seconds_per_gb)} GB/s, then {number(far.least)} µs latency"
            if not time and not (rate and rate.value):
                reason = "nothing has to move" if far.pair[0] == far.pair[1] else "no latency and no rate is known"
            launch = cost.launch if time else Fraction(0)
            options[place].append(SizeBound(size, launch + time, launch, protocol, reason))
    rows = tuple(min(bounds, key=lambda row: row.microseconds) for bounds in options)
    value, proof = (Fraction(0), None) if rate is None else (rate.value, rate.certificate)
    at = task.roots[0] if known and name in ROOTED else None
    return TimeBound(links.name, name, at, bool(groups), value, proof, rows)


_kept = lru_cache(maxsize=8)(_bound)  # a build prints the bounds of its tables and draws them


def _rounds_per_chunk(
    links: Topology, ports: Network | None, groups: Sequence[Sequence[int]], task: Collective, known: bool
) -> LowerBound | None:
    """Return the greatest certified bound on R/C for any number of steps and chunks; None where there is none.

    It holds for multicasts and sums in switches, too, each of which joins the ranks of one of `groups`. `ports`: the
    network with their ports, where it can be listed. `known`: flow methods know the collective.
    """
    from synth.encodings.bounds.multicast import multicast_bound

    root = task.roots[0] if known and task.name in ROOTED else 0
    plain = None
    try:
        plain = _without_switches(links, task, root, known)
    except InfeasibleError as error:
        if not known or groups:
            raise
        proof = certificate(links, task.name, root)
        raise InfeasibleError(str(error), proof or error.certificate) from error
    except TimeUp:
        pass
    found = []
    if plain is not None and holds_with_multicast(links.ranks, groups, plain.certificate):
        found.append(plain)
    if ports is not None:
        found.append(multicast_bound(ports, task))
    return max(found, key=lambda bound: bound.value, default=None)


def _without_switches(links: Topology, task: Collective, root: int, known: bool) -> LowerBound | None:
    """Return the bound without multicasts: by flow methods, for what they do not know exactly or by single cuts."""
    from synth.encodings import bounds
    from synth.encodings.bounds.single_cut import single_cut_bound
    from synth.scale.search import bound as flow_bound

    exact = links.ranks <= MOST_EXACT
    if known and not (exact and fabric(links).inner_limits):  # flow methods relax those
        try:
            found = flow_bound(links, task.name, root)
            return LowerBound(found.bound, found.certificate)
        except InfeasibleError:
            raise
        except SynthError:  # capacities are too large for flow methods
            if not exact:
                raise
    if links.ranks > MOST_CUTS:
        return None
    network = links.network().without_parallel_routes()  # which can do no less
    if exact:
        with suppress(TimeUp):
            return bounds.flow(network, task, None)
    return single_cut_bound(network, task)


class _Latencies(NamedTuple):
    """Latencies in µs: the `farthest` that data have to go, between the ranks `pair`, and the `least` of a transfer."""

    farthest: Fraction
    pair: tuple[int, int]
    least: Fraction


def _latencies(links: Topology, task: Collective, known: bool, hop: Fraction) -> _Latencies:
    """Return the latencies of a collective whose every transfer takes `hop` µs more than its links. `known`: each rank
    wants something of each other, or of the root, or the root of it."""
    ranks, nodes = links.ranks, links.ranks + len(links.switches)
    if ranks < 2 or not len(links.links):
        return _Latencies(Fraction(0), (0, 0), Fraction(0))

    # The least length of a link between two nodes, as whole multiples of 1 / scale µs, which floats hold exactly.
    table = links.links if isinstance(links.links, LinkTable) else LinkTable.of(links.links)
    scale = lcm(hop.denominator, *(sort.latency.denominator for sort in table.sorts))
    src, dst = ends(table)
    lengths = np.array([int(sort.latency * scale) for sort in table.sorts], np.float64)[table.sort]
    lengths = lengths + np.where(src < ranks, float(hop * scale), 0.0)
    order = np.lexsort((lengths, dst, src))
    first = np.ones(len(order), bool)
    first[1:] = (np.diff(src[order]) != 0) | (np.diff(dst[order]) != 0)
    src, dst, lengths = src[order][first], dst[order][first], lengths[order][first]

    # Least latencies of paths: from each source, or where all has to come to the root from each rank to it.
    sources = list(range(ranks))
    if known and nodes > MOST_NODES:
        sources = sorted({k * ranks // SOURCES for k in range(SOURCES)})
    if known and task.name in ROOTED:
        sources = list(task.roots)
    backwards = known and task.name == "reduce"
    tails, heads = (dst, src) if backwards else (src, dst)
    between = shortest_path_trees(nodes, tails, heads, lengths, sources)[0][:, :ranks]

    # The farthest of what is wanted.
    farthest, pair = 0.0, (0, 0)
    if known:
        row, column = np.unravel_index(int(between.argmax()), between.shape)
        farthest, pair = float(between[row, column]), (sources[row], int(column))
        if backwards:
            pair = pair[1], pair[0]
    else:
        for unit, (held, targets) in enumerate(zip(task.pre, task.post, strict=True)):
            for rank in sorted(targets):
                needed = sorted(task.wanted(unit, rank) if task.combining else held)
                if not needed:
                    continue
                column = between[needed, rank]
                k = int(column.argmax() if task.combining else column.argmin())
                if column[k] > farthest:
                    farthest, pair = float(column[k]), (needed[k], rank)
    if np.isinf(farthest):
        raise InfeasibleError(f"{links.name}: no link leads from where rank {pair[0]} is to rank {pair[1]}")

    # The least of a transfer: of a link from a rank, and where that leads into a switch of the way on to some rank.
    onward = np.where(np.arange(nodes) < ranks, 0.0, np.inf)
    inner = src >= ranks
    for _ in range(len(links.switches)):
        nearer = onward.copy()
        np.minimum.at(nearer, src[inner], onward[dst[inner]] + lengths[inner])
        if (nearer == onward).all():
            break
        onward = nearer
    leaving = src < ranks
    least = float((lengths[leaving] + onward[dst[leaving]]).min(initial=np.inf))
    least = 0.0 if np.isinf(least) else least
    return _Latencies(Fraction(int(farthest), scale), pair, Fraction(int(least), scale))
