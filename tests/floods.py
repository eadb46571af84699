"""Random verified schedules of every named collective: each chunk goes its own random way through a random machine."""

import random
from dataclasses import replace
from fractions import Fraction

from synth.model.collective import COLLECTIVES, collective
from synth.model.schedule import Schedule, Send, Step
from synth.model.sends.dead_sends import prune
from synth.model.sends.step_routes import rounds_for
from synth.model.topology import Link, Topology
from synth.topologies import topology

NAMED = ("ring:4", "fully-connected:3", "hypercube:4", "star:4", "switch:3", "mesh:2x2", "line:3", "torus:2x2")


def machine(rng, ordered):
    """A machine of 2 to 5 ranks, all reachable from all; `ordered`: with a link from each rank to the next."""
    if rng.random() < 0.3 and not ordered:
        return topology(rng.choice(NAMED))
    ranks = rng.randint(2, 5)
    circle = list(range(ranks)) if ordered else rng.sample(range(ranks), ranks)
    pairs = {(circle[i - 1], circle[i]) for i in range(ranks)}
    pairs |= {(a, b) for a in range(ranks) for b in range(ranks) if a != b and rng.random() < 0.4}
    links = [Link(a, b, Fraction(rng.choice((1, 1, 2, 3))), Fraction(rng.randint(0, 3))) for a, b in sorted(pairs)]
    switches = ("s",) if rng.random() < 0.3 else ()
    for r in range(ranks) if switches else ():
        links += [Link(r, ranks, Fraction(2), Fraction(1)), Link(ranks, r, Fraction(2), Fraction(1))]
    return Topology("random", ranks, tuple(links), (), switches)


def task(name, ranks, rng):
    """The collective called `name`, with random roots or sizes where it takes them."""
    takes = COLLECTIVES[name][1]
    roots = rng.sample(range(ranks), min(ranks, 2) if name.startswith("multi-") else 1) if "root" in takes else ()
    sizes = None
    if name == "alltoallv":
        sizes = [[int(a != b) * rng.randint(0, 2) for b in range(ranks)] for a in range(ranks)]
        sizes[0][1] += 1
    elif "sizes" in takes and name.endswith("v"):
        sizes = [rng.randint(0, 2) for _ in range(ranks)]
        sizes[rng.randrange(ranks)] += 1
    return collective(name, ranks, roots, sizes)


def schedule(name, seed):
    """A schedule of the collective `name`: floods from where the data is, with needless sends, waits and empty steps at
    times."""
    rng = random.Random(f"{name} {seed}")
    net = machine(rng, name == "scan").network()
    wanted = task(name, net.ranks, rng)
    chunks, alike = rng.choice((1, 1, 2, 3, 8)), rng.random() < 0.7
    steps: list[list[Send]] = []
    for unit in range(wanted.units):
        way = None
        for i in range(chunks):
            if way is None or not alike:
                way = _way(rng, net, wanted, unit)
                start = rng.choice((0, 0, 0, 1, 2))
            steps += [[] for _ in range(start + len(way) - len(steps))]
            for at, moves in enumerate(way, start):
                steps[at] += [Send(unit * chunks + i, *move) for move in moves]
    for sends in steps:
        sends.sort() if rng.random() < 0.5 else rng.shuffle(sends)
    made = Schedule(net, wanted, chunks, tuple(Step(1, tuple(sends)) for sends in steps) or (Step(1, ()),))
    made = replace(made, steps=tuple(Step(rounds_for(made.network, step.sends), step.sends) for step in made.steps))
    return prune(made) if rng.random() < 0.3 else made


def _way(rng, net, wanted, unit):
    """A list of moves (src, dst, kind, via) for each step, with which one chunk of `unit` gets where it is wanted."""
    pre, post = wanted.pre[unit], wanted.post[unit]
    if not wanted.combining:
        return _flood(rng, net, pre, post, needless=rng.choice((0, 0, 0.2)))
    if wanted.wants is not None:
        return _prefixes(rng, net)
    root = rng.choice(sorted(post))
    there = [
        [_turned(move) for move in moves] for moves in reversed(_flood(rng, net.reversed(), {root}, pre, tree=True))
    ]
    return there + _flood(rng, net, {root}, post, needless=rng.choice((0, 0.2)))


def _turned(move):
    src, dst, _, via = move
    return dst, src, "reduce", via[::-1]


def _flood(rng, net, pre, post, needless=0.0, tree=False):
    """Copies from those who have it to those who do not, until all of `post` do. `tree`: none that `post` does not
    need."""
    held, steps = set(pre), []
    while not held >= set(post):
        before, got, moves = set(held), set(), []
        for route in rng.sample(net.routes, len(net.routes)):
            chance = 0.5 if route.dst not in held else needless
            if route.src in before and route.dst not in got and rng.random() < chance:
                moves.append((route.src, route.dst, "copy", route.via))
                got.add(route.dst)
        held |= got
        if moves or rng.random() < 0.1:
            steps.append(moves)
    if tree:
        needed = set(post)
        for t in range(len(steps) - 1, -1, -1):
            steps[t] = [move for move in steps[t] if move[1] in needed]
            needed |= {move[0] for move in steps[t]}
    return steps


def _prefixes(rng, net):
    """Scan: rank after rank, or at doubling distances where the links are there."""
    routes = {}
    for route in net.routes:
        routes.setdefault((route.src, route.dst), []).append(route)
    hops = [1 << k for k in range(net.ranks.bit_length()) if 1 << k < net.ranks]
    doubling = [[(r, r + hop) for r in range(net.ranks - hop)] for hop in hops]
    if all(pair in routes for pairs in doubling for pair in pairs) and rng.random() < 0.7:
        ways = doubling
    else:
        ways = [[(r, r + 1)] for r in range(net.ranks - 1)]
    return [[(a, b, "reduce", rng.choice(routes[a, b]).via) for a, b in pairs] for pairs in ways]
