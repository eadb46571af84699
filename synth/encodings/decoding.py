"""From the sends an engine chose to a clean schedule: no send that nothing needs, exactly the rounds asked for."""

from __future__ import annotations

from collections.abc import Sequence

from synth.model.schedule import Problem, Schedule, Send, Step


def assemble(problem: Problem, steps: Sequence[Sequence[tuple[int, int]]]) -> Schedule:
    """The schedule of ``(chunk, route)`` copies per step.

    Receives of what is already held and copies that reach no destination are dropped; rounds are the fewest that the
    loads allow, the last step being filled up to the rounds of the problem. Not a check: `verify` decides.
    """
    net, coll, chunks = problem.network, problem.collective, problem.chunks
    held = {(u * chunks + i, n) for u in range(coll.units) for i in range(chunks) for n in coll.pre[u]}
    kept: list[list[tuple[int, int]]] = []
    for sends in steps:
        fresh = []
        for c, r in sorted(sends):
            if (c, net.routes[r].dst) not in held:
                held.add((c, net.routes[r].dst))
                fresh.append((c, r))
        kept.append(fresh)
    needed = {(u * chunks + i, n) for u in range(coll.units) for i in range(chunks) for n in coll.post[u]}
    for t in range(len(kept) - 1, -1, -1):
        kept[t] = [(c, r) for c, r in kept[t] if (c, net.routes[r].dst) in needed]
        needed.update((c, net.routes[r].src) for c, r in kept[t])
    rounds = [_rounds(problem, sends) for sends in kept]
    if rounds:
        rounds[-1] += max(0, problem.rounds - sum(rounds))
    rows = []
    for r_t, sends in zip(rounds, kept, strict=True):
        rows.append(
            Step(r_t, tuple(Send(c, net.routes[r].src, net.routes[r].dst, "copy", net.routes[r].via) for c, r in sends))
        )
    return Schedule(net, coll, chunks, tuple(rows))


def _rounds(problem: Problem, sends: Sequence[tuple[int, int]]) -> int:
    """The fewest rounds, at least one, in which the links and caps carry `sends`."""
    net = problem.network
    load = [0] * len(net.routes)
    for _, r in sends:
        load[r] += 1
    most = 1
    for n, route in zip(load, net.routes, strict=True):
        most = max(most, -(-n // route.units))
    for cap in net.caps:
        most = max(most, -(-sum(load[r] for r in cap.routes) // cap.units))
    return most
