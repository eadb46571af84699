"""Decoding of the sends that an engine chose to a schedule without dead sends and with exactly the requested rounds."""

from __future__ import annotations

from collections.abc import Sequence

from synth.model.schedule import Problem, Schedule, Send, Step


def assemble(problem: Problem, steps: Sequence[Sequence[tuple[int, int]]]) -> Schedule:
    """Return the schedule of ``(chunk, route)`` copies for each step.

    Repeated receives and copies that reach no destination are dropped. Each step has
    the fewest rounds that its loads allow; the last step is filled up to the rounds of the problem. This is no check:
    `verify` decides.
    """
    net, coll, chunks = problem.network, problem.collective, problem.chunks
    held = {(u * chunks + i, n) for u in range(coll.units) for i in range(chunks) for n in coll.pre[u]}
    useful: list[list[tuple[int, int]]] = []
    for sends in steps:
        fresh = []
        for c, r in sorted(sends):
            if (c, net.routes[r].dst) not in held:
                held.add((c, net.routes[r].dst))
                fresh.append((c, r))
        useful.append(fresh)
    needed = {(u * chunks + i, n) for u in range(coll.units) for i in range(chunks) for n in coll.post[u]}
    for t in range(len(useful) - 1, -1, -1):
        useful[t] = [(c, r) for c, r in useful[t] if (c, net.routes[r].dst) in needed]
        needed.update((c, net.routes[r].src) for c, r in useful[t])
    rounds = [_rounds(problem, sends) for sends in useful]
    if rounds:
        rounds[-1] += max(0, problem.rounds - sum(rounds))
    rows = []
    for r_t, sends in zip(rounds, useful, strict=True):
        rows.append(
            Step(r_t, tuple(Send(c, net.routes[r].src, net.routes[r].dst, "copy", net.routes[r].via) for c, r in sends))
        )
    return Schedule(net, coll, chunks, tuple(rows))


def _rounds(problem: Problem, sends: Sequence[tuple[int, int]]) -> int:
    """Return the fewest rounds, at least one, in which the links and shared limits carry `sends`."""
    net = problem.network
    load = [0] * len(net.routes)
    for _, r in sends:
        load[r] += 1
    rounds = 1
    for n, route in zip(load, net.routes, strict=True):
        rounds = max(rounds, -(-n // route.units))
    for cap in net.caps:
        rounds = max(rounds, -(-sum(load[r] for r in cap.routes) // cap.units))
    return rounds
