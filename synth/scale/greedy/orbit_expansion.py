"""Expansion of orbit-compressed schedules: every image of every send, and the ordinary Schedule of a small one."""

from __future__ import annotations

import numpy as np

from synth.errors import UsageError
from synth.model.collective import collective
from synth.model.compressed_schedule import REDUCE, CompressedSchedule, elements
from synth.model.schedule import Schedule, Send, Step
from synth.model.topology import Network, Topology

# Sends that are written out, each as an object.
MAXIMUM_SENDS = 1 << 22


class TooManySendsError(UsageError):
    """Raised for a schedule of more than `MAXIMUM_SENDS` sends; `sends` is their number."""

    def __init__(self, sends: int, text: str) -> None:
        super().__init__(text)
        self.sends = sends


def expand_orbits(given: CompressedSchedule) -> CompressedSchedule:
    """Return the same schedule with every send listed and no generators.

    Raises TooManySendsError above `MAXIMUM_SENDS` sends.
    """
    if not given.generators:
        return given
    group = elements(given)
    count = len(group) * len(given.step)
    if count > MAXIMUM_SENDS:
        raise TooManySendsError(
            count, f"{count} sends in all; at most {MAXIMUM_SENDS} are written out, the short form verifies as it is"
        )
    links = given.topology.links
    link_of = {(k.src, k.dst): i for i, k in enumerate(links)}
    numbers: dict[tuple[int, ...], int] = {}  # of all images of the paths
    ranks = given.topology.ranks
    # the symmetries move the units of the reduce-scatter and the allgather that an allreduce is made of
    chunks = given.chunks // ranks if given.collective == "allreduce" else given.chunks
    unit, rest = given.chunk // chunks, given.chunk % chunks
    parts = []
    for pi in group:
        images = []
        for path in given.paths:
            image = tuple(link_of[int(pi[links[i].src]), int(pi[links[i].dst])] for i in path)
            images.append(numbers.setdefault(image, len(numbers)))
        if given.collective == "alltoall":  # unit u x ranks + v goes from rank u to rank v
            moved_unit = pi[unit // ranks] * ranks + pi[unit % ranks]
        else:
            moved_unit = pi[unit]
        parts.append((moved_unit * chunks + rest, np.array(images)[given.path]))
    chunk, path = (np.concatenate(column) for column in zip(*parts, strict=True))
    step, kind = np.tile(given.step, len(group)), np.tile(given.kind, len(group))
    return CompressedSchedule(
        given.topology,
        given.collective,
        given.root,
        given.chunks,
        given.rounds,
        step,
        chunk,
        path,
        kind,
        tuple(numbers),
    )


def ordinary_schedule(given: CompressedSchedule) -> Schedule:
    """Return an ordinary schedule, which lowers, exports and runs like any other.

    Raises TooManySendsError above `MAXIMUM_SENDS` sends, UsageError for a path through switches that the network has
    not.
    """
    full = expand_orbits(given)
    if len(full.step) > MAXIMUM_SENDS:
        raise TooManySendsError(
            len(full.step), f"{len(full.step)} sends; at most {MAXIMUM_SENDS} make an ordinary schedule"
        )
    topology = full.topology
    network = topology.network()
    roots = () if full.root is None else (full.root,)
    routes = [_route(topology, path) for path in full.paths]
    _check_routes(topology, network, routes)
    rows: list[list[Send]] = [[] for _ in range(full.steps)]
    for t, c, p, k in zip(full.step.tolist(), full.chunk.tolist(), full.path.tolist(), full.kind.tolist(), strict=True):
        src, dst, via = routes[p]
        rows[t].append(Send(c, src, dst, "reduce" if k == REDUCE else "copy", via))
    steps = tuple(Step(int(n), tuple(sorted(row))) for n, row in zip(full.rounds.tolist(), rows, strict=True))
    return Schedule(network, collective(full.collective, topology.ranks, roots), full.chunks, steps)


def _route(topology: Topology, path: tuple[int, ...]) -> tuple[int, int, tuple[str, ...]]:
    """(source, destination, names of the switches between) of a path of links."""
    links = topology.links
    via = tuple(topology.switches[links[i].dst - topology.ranks] for i in path[:-1])
    return links[path[0]].src, links[path[-1]].dst, via


def _check_routes(topology: Topology, network: Network, routes: list[tuple[int, int, tuple[str, ...]]]) -> None:
    """Raise UsageError where the network has not all of the routes."""
    known = {(r.src, r.dst, r.via) for r in network.routes}
    for src, dst, via in routes:
        if (src, dst, via) not in known:
            raise UsageError(
                f"{topology.name}: the path {src} -> {dst} through {', '.join(via)} is neither a link nor a shortest "
                f"one"
            )
