"""Random programs of the chunk language, and an interpreter of them that works with sets alone.

A plan is a list of operations on numbered values; the first values are the inputs of all ranks, unit by unit.
("to", value, rank), ("add", value, value), ("part", value, i, n).
"""

import random
from fractions import Fraction
from itertools import count as count_from

import synth
from synth.errors import SynthError
from synth.language import ChunkAlgorithm
from synth.language.algorithm import CompileOptions
from synth.model.collective import COLLECTIVES
from synth.model.collective import collective as collective_named
from synth.model.topology import Link, Topology

OUTPUTS = -1  # the fault of a plan whose operations make sense, but not all outputs


def fault(task, linked, plan):
    """Return the place of the first operation of a plan that makes no sense, `OUTPUTS`, or None for a right plan: by
    sets of (unit, atom) and contributions alone."""
    atoms = range(12)
    values = [
        (rank, {(unit, atom): frozenset([rank]) for atom in atoms})
        for rank in range(task.ranks)
        for unit in range(task.units)
        if rank in task.pre[unit]
    ]
    for place, (kind, first, second, *count) in enumerate(plan):
        rank, held = values[first]
        if kind == "part":
            keys, n = sorted(held), count[0]
            size = len(keys) // n
            values.append((rank, {key: held[key] for key in keys[second * size : (second + 1) * size]}))
        elif kind == "to":
            if rank != second and (rank, second) not in linked:
                return place
            values.append((second, held))
        else:
            other, added = values[second]
            if not task.combining or (other != rank and (other, rank) not in linked):
                return place
            if held.keys() != added.keys() or any(held[key] & added[key] for key in held):
                return place
            values.append((rank, {key: held[key] | added[key] for key in held}))
    got = {}
    for rank, held in values:
        for (unit, atom), contributions in held.items():
            got.setdefault((rank, unit, atom), set()).add(contributions if task.combining else True)
    for unit, ranks in enumerate(task.post):
        for rank in ranks:
            want = task.wanted(unit, rank) if task.combining else True
            if any(want not in got.get((rank, unit, atom), ()) for atom in atoms):
                return OUTPUTS
    return None


def play(a, plan):
    """Do a plan in the language."""
    values = []
    for rank in a.ranks:
        values += [a.input(rank).unit(unit) for unit in a.input(rank).units]
    for kind, first, second, *count in plan:
        if kind == "part":
            values.append(values[first].part(second, count[0]))
        elif kind == "to":
            values.append(values[first].to(second))
        else:
            values.append(values[first].add(values[second]))


def machine(draw):
    """Return a machine of 2 to 5 ranks, each reachable from each."""
    if draw.random() < 0.3:
        return synth.topology(
            draw.choice(("ring:4", "fully-connected:3", "hypercube:4", "star:4", "switch:3", "line:3"))
        )
    ranks = draw.randint(2, 5)
    circle = draw.sample(range(ranks), ranks)
    pairs = {(circle[i - 1], circle[i]) for i in range(ranks)}
    pairs |= {(a, b) for a in range(ranks) for b in range(ranks) if a != b and draw.random() < 0.4}
    links = [Link(a, b, Fraction(draw.choice((1, 1, 2, 3))), Fraction(draw.randint(0, 3))) for a, b in sorted(pairs)]
    switches = ("s",) if draw.random() < 0.3 else ()
    for r in range(ranks) if switches else ():
        links += [Link(r, ranks, Fraction(2), Fraction(1)), Link(ranks, r, Fraction(2), Fraction(1))]
    return Topology("random", ranks, tuple(links), (), switches)


def task(name, ranks, draw):
    """Return the collective called `name`, with random roots or sizes where it takes them."""
    takes = COLLECTIVES[name][1]
    roots = draw.sample(range(ranks), min(ranks, 2) if name.startswith("multi-") else 1) if "root" in takes else ()
    sizes = None
    if name == "alltoallv":
        sizes = [[int(a != b) * draw.randint(0, 2) for b in range(ranks)] for a in range(ranks)]
        sizes[0][1] += 1
    elif "sizes" in takes and name.endswith("v"):
        sizes = [draw.randint(0, 2) for _ in range(ranks)]
        sizes[draw.randrange(ranks)] += 1
    return collective_named(name, ranks, roots, sizes)


def random_plan(seed, name=None):
    """Return a machine, a collective (`name`, or one of six), the pairs that are linked and a plan that is often
    right."""
    draw = random.Random(seed if name is None else f"{name} {seed}")
    if name is None:
        known = ("ring:4", "fully-connected:4", "line:3", "fully-connected:3", "star:4")
        topology = synth.topology(draw.choice(known))
        name = draw.choice(("allgather", "broadcast", "alltoall", "allreduce", "reduce-scatter", "scan"))
    else:
        topology = machine(draw)
    n = topology.ranks
    collective = task(name, n, draw)
    linked = {(route.src, route.dst) for route in topology.network().routes}
    plan, values = [], []
    for rank in range(n):
        values += [
            (rank, unit, frozenset([rank]), ()) for unit in range(collective.units) if rank in collective.pre[unit]
        ]

    def do(kind, first, second, *count):
        rank, unit, held, part = values[first]
        plan.append((kind, first, second, *count))
        if kind == "to":
            values.append((second, unit, held, part))
        elif kind == "part":
            values.append((rank, unit, held, (*part, second, *count)))
        else:
            values.append((rank, unit, held | values[second][2], part))
        return len(values) - 1

    def route(first, goal):
        distance = topology.network().reversed().distances_from([goal])
        while values[first][0] != goal:
            at = values[first][0]
            nearer = [b for a, b in sorted(linked) if a == at and distance[b] == distance[at] - 1]
            first = do("to", first, draw.choice(nearer))
        return first

    for _ in range(draw.randrange(8)):  # legal operations of any kind
        first = draw.randrange(len(values))
        rank, unit, held, part = values[first]
        fitting = [
            i for i, (other, u, contributions, q) in enumerate(values)
            if u == unit and q == part and not contributions & held and (other == rank or (other, rank) in linked)
        ]  # fmt: skip
        if collective.combining and fitting and draw.random() < 0.6:
            do("add", first, draw.choice(fitting))
        elif not part and draw.random() < 0.2:
            do("part", first, draw.randrange(2), 2)
        else:
            do("to", first, draw.choice([b for a, b in sorted(linked) if a == rank]))
    for unit, ranks in enumerate(collective.post):  # what is missing, of values that are there
        for rank in sorted(ranks):
            want = collective.wanted(unit, rank) if collective.combining else None
            candidates = [i for i, (_, u, _, part) in enumerate(values) if u == unit and not part]
            whole = [i for i in candidates if want in (None, values[i][2])]
            if any(values[i][0] == rank for i in whole):
                continue
            if whole and (want is None or draw.random() < 0.9):
                route(draw.choice(whole), rank)
                continue
            total = None
            inputs = candidates[: len(collective.pre[unit])]
            for i in [*draw.sample(candidates, min(3, len(candidates))), *inputs]:
                held = values[i][2]
                if not held <= want or (total is not None and held & values[total][2]):
                    continue
                if total is None:
                    total = route(i, rank)
                else:
                    near = [i] if (values[i][0], rank) in linked or values[i][0] == rank else [route(i, rank)]
                    total = do("add", total, near[0])
    if plan and draw.random() < 0.3:  # one operation is spoilt
        i = draw.randrange(len(plan))
        kind, first, second, *_ = plan[i]
        if kind == "to":
            plan[i] = (kind, first, draw.randrange(n))
        elif kind == "add":
            plan[i] = (kind, first, draw.randrange(min(first, second) + 1))
    return topology, collective, linked, plan


def schedule(seed, name=None):
    """Return the schedule of the first right random program from `seed` on, of the collective `name` if given."""
    for at in count_from(seed):
        topology, collective, linked, plan = random_plan(at, name)
        if fault(collective, linked, plan) is not None:
            continue
        program = ChunkAlgorithm(lambda a, plan=plan: play(a, plan), collective.name, "random")
        try:
            return program.compile(topology, collective, CompileOptions("asap", (1, 2, 3)[at % 3])).schedule
        except SynthError:  # of two sums of a chunk at once, which a schedule cannot say
            continue
    raise AssertionError("seeds do not end")
