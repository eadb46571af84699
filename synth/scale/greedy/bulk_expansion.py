"""Bulk schedules written out: every image of every send, and the ordinary Schedule of a small one."""

from __future__ import annotations

import numpy as np

from synth.errors import UsageError
from synth.model.collective import collective
from synth.model.compressed_schedule import REDUCE, Bulk, elements
from synth.model.schedule import Schedule, Send, Step

MOST = 1 << 22


class TooLarge(UsageError):
    """More than `MOST` sends: `sends` of them."""

    def __init__(self, sends: int, text: str) -> None:
        super().__init__(text)
        self.sends = sends


def whole(given: Bulk) -> Bulk:
    """The same schedule with every send listed and no generators. Raises TooLarge above `MOST` sends."""
    if not given.generators:
        return given
    group = elements(given)
    if len(group) * len(given.step) > MOST:
        count = len(group) * len(given.step)
        raise TooLarge(count, f"{count} sends in all; at most {MOST} are written out, the short form verifies as it is")
    where = {(k.src, k.dst): i for i, k in enumerate(given.topology.links)}
    links = given.topology.links
    paths: dict[tuple[int, ...], int] = {}
    ranks = given.topology.ranks
    chunks = given.chunks // ranks if given.collective == "allreduce" else given.chunks  # of what the symmetries move
    unit, rest = given.chunk // chunks, given.chunk % chunks
    parts = []
    for pi in group:
        moved = np.array(
            [
                paths.setdefault(tuple(where[int(pi[links[i].src]), int(pi[links[i].dst])] for i in p), len(paths))
                for p in given.paths
            ]
        )
        image = pi[unit // ranks] * ranks + pi[unit % ranks] if given.collective == "alltoall" else pi[unit]
        parts.append((image * chunks + rest, moved[given.path]))
    chunk, path = (np.concatenate(column) for column in zip(*parts, strict=True))
    step, kind = np.tile(given.step, len(group)), np.tile(given.kind, len(group))
    return Bulk(
        given.topology, given.collective, given.root, given.chunks, given.rounds, step, chunk, path, kind, tuple(paths)
    )


def schedule(given: Bulk) -> Schedule:
    """As an ordinary schedule, which lowers, exports and runs like any other. Raises TooLarge above `MOST` sends."""
    full = whole(given)
    if len(full.step) > MOST:
        raise TooLarge(len(full.step), f"{len(full.step)} sends; at most {MOST} make an ordinary schedule")
    topology = full.topology
    network = topology.network()
    roots = () if full.root is None else (full.root,)
    task = collective(full.collective, topology.ranks, roots)
    links, names = topology.links, topology.switches
    ways = [
        (links[p[0]].src, links[p[-1]].dst, tuple(names[links[i].dst - topology.ranks] for i in p[:-1]))
        for p in full.paths
    ]
    known = {(r.src, r.dst, r.via) for r in network.routes}
    missing = next((way for way in ways if way not in known), None)
    if missing is not None:
        through = ", ".join(missing[2])
        raise UsageError(
            f"{topology.name}: the way {missing[0]} -> {missing[1]} through {through} is neither a link nor a "
            f"shortest one"
        )
    rows: list[list[Send]] = [[] for _ in range(full.steps)]
    for t, c, p, k in zip(full.step.tolist(), full.chunk.tolist(), full.path.tolist(), full.kind.tolist(), strict=True):
        src, dst, via = ways[p]
        rows[t].append(Send(c, src, dst, "reduce" if k == REDUCE else "copy", via))
    steps = tuple(Step(int(n), tuple(sorted(row))) for n, row in zip(full.rounds.tolist(), rows, strict=True))
    return Schedule(network, task, full.chunks, steps)
