"""Random verified schedules of collectives that nobody named: whatever random moves lead to is what was wanted."""

import random
from dataclasses import replace
from fractions import Fraction

from synth.model.collective import Collective
from synth.model.schedule import Schedule, Send, Step
from synth.model.sends.step_routes import rounds_for
from synth.model.topology import Limit, Link, Multicast, Route, Topology


def network(rng, ranks):
    """Random links of one to three units; half of the machines have two switches as well, so that some pairs have two
    routes."""
    links = [
        Link(a, b, Fraction(rng.choice((1, 1, 2, 3))))
        for a in range(ranks)
        for b in range(ranks)
        if a != b and rng.random() < 0.6
    ] or [Link(0, 1, Fraction(1))]
    switches = ("s0", "s1") if rng.random() < 0.5 else ()
    for r in range(ranks) if switches else ():
        for switch in (ranks, ranks + 1):
            links += [Link(r, switch, Fraction(2)), Link(switch, r, Fraction(2))] if rng.random() < 0.8 else []
    made = Topology("random", ranks, tuple(links), (), switches).network()
    return made if any(route.via for route in made.routes) else replace(made, wires=())


def schedule(seed):
    """A schedule over 2 to 5 ranks: every kind of send, exchanges, several arrivals of one step, replaced values."""
    rng = random.Random(seed)
    ranks, units, chunks, combining = rng.randint(2, 5), rng.randint(1, 4), rng.choice((1, 1, 2, 3)), rng.random() < 0.6
    net = network(rng, ranks)
    pre = tuple(
        frozenset(r for r in range(ranks) if rng.random() < (0.8 if combining else 0.3)) or frozenset([0])
        for _ in range(units)
    )
    value = {(u, r): frozenset([r]) for u in range(units) for r in pre[u]}
    steps = []
    for _ in range(rng.randint(1, 6)):
        before, copied, sends = dict(value), set(), []
        moves = [(u, route, rng.random()) for u in range(units) for route in net.routes if rng.random() < 0.4]
        if combining:  # inputs that are added again where they are, or put back
            moves += [
                (u, Route(r, r, 1), rng.random()) for u in range(units) for r in sorted(pre[u]) if rng.random() < 0.2
            ]
        rng.shuffle(moves)
        moves.sort(key=lambda move: combining and move[2] < 0.7)  # copies first, as they land first
        for u, route, draw in moves:
            local = route.src == route.dst
            own = local or (draw < 0.3 and combining and route.src in pre[u])
            sent, held = (
                frozenset([route.src]) if own else before.get((u, route.src)),
                value.get((u, route.dst), frozenset()),
            )
            if sent is None or (not combining and draw < 0.5 and held):
                continue
            if combining and draw < 0.7:
                if held & sent:
                    continue
                value[u, route.dst], kind = held | sent, "reduce"
            else:
                if (u, route.dst) in copied:
                    continue
                value[u, route.dst], kind = (sent if combining else frozenset([0])), "copy"
                copied.add((u, route.dst))
            kind += "-input" if own else ""
            sends += [Send(u * chunks + i, route.src, route.dst, kind, route.via) for i in range(chunks)]
        steps.append(Step(1, tuple(sends)))
    ends = [sorted(r for r in range(ranks) if (u, r) in value) for u in range(units)]
    post = tuple(frozenset(r for r in end if rng.random() < 0.7) or frozenset(end[:1]) for end in ends)
    wants = tuple(tuple((r, value[u, r]) for r in sorted(post[u])) for u in range(units)) if combining else None
    made = Schedule(net, Collective("custom", ranks, pre, post, combining, (), wants), chunks, tuple(steps))
    return replace(made, steps=tuple(Step(rounds_for(made.network, step.sends), step.sends) for step in steps))


def machine(seed: int, number: int) -> Topology:
    """Return the random machine of a seed and a number; each rank reaches each other."""
    rng = random.Random(f"{seed} {number}")
    ranks, boxes, switches = rng.randint(2, 6), rng.choice((1, 1, 2)), rng.choice((0, 0, 1, 2))
    latencies = rng.choice(((0,), (1,), (0, 1, 5), (Fraction(1, 3), 2, 9)))
    ends = [(a, (a + 1) % ranks) for a in range(ranks)]  # so that all are reached
    for a in range(ranks):
        ends += [(a, b) for b in range(ranks) if a != b and rng.random() < rng.choice((0.1, 0.5))]
    for s in range(ranks, ranks + switches):
        for rank in range(ranks):
            if rng.random() < 0.9:
                ends += [(rank, s), (s, rank)]
    links = [Link(a, b, rng.choice((1, 1, 2, 4, 10)), rng.choice(latencies)) for a, b in dict.fromkeys(ends)]
    limits = []
    for k in range(rng.choice((0, 0, 1, 3))):
        some = tuple(sorted(rng.sample(range(len(links)), rng.randint(1, min(4, len(links))))))
        limits.append(Limit(f"limit {k}", some, rng.choice((1, 2, 3))))
    names = tuple(f"s{k}" for k in range(switches))
    joined = [Multicast(name, (), rng.choice(("through", "local"))) for name in names if rng.random() < 0.7]
    nodes = tuple(rank * boxes // ranks for rank in range(ranks))
    return Topology(f"random-{seed}-{number}", ranks, links, limits, names, nodes, multicast=joined)
