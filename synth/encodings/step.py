"""The `step` encoding: pure Boolean and time-expanded; and `quotient`, the same on orbits of a group.

For a chunk c, rank n, route r and step t: ``has[c, n, t]`` (n holds c after step t) and ``send[c, r, t]``; both exist
only between the earliest arrival (distance from a holder) and the latest use (distance to a destination). Rounds stay
variables: ``level[t, j]`` says that step t has at least j + 2 rounds, and bounds the loads of that step.
The model follows Cai et al., "Synthesizing Optimal Collective Algorithms" (SCCL), PPoPP 2021, section 3, with time made
explicit instead of integer, as in Kautz and Selman, "Planning as satisfiability", ECAI 1992.

Of `quotient` the variables are those of orbit representatives, so that the formula shrinks by about the order of the
group, as in the orbit programs of Margot, "Symmetry in integer linear programming", 2010. The group acts on
(unit, chunk index) as (unit image, same index).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from synth.encodings.decoding import assemble
from synth.encodings.quotient_orbits import Automorphism, QuotientOrbits, orbits
from synth.errors import UsageError
from synth.model.schedule import Problem, Schedule
from synth.solvers.boolean_model import Model


class UnitVariables(NamedTuple):
    """The variables of the chunks of a unit: `size` of each, from `base` on.

    Attributes:
        sends: for each representative route of the unit (offset of step 0, first step, last step).
    """

    base: int
    size: int
    sends: dict[int, tuple[int, int, int]]

    def at(self, place: tuple[int, int, int], time: int, copies: int) -> range:
        """Return the variable of each chunk for a row of `sends` at a time; none where it has none."""
        offset, first, last = place
        if not first <= time <= last:
            return range(0)
        start = self.base - 1 + offset + time
        return range(start, start + self.size * copies, self.size)


@dataclass(frozen=True)
class Inverse:
    """Data for `invert`: the orbits, and the variables of the representative of each unit."""

    problem: Problem
    orbits: QuotientOrbits
    places: list[UnitVariables]


@dataclass(frozen=True)
class StepEncoding:
    """Encoding of the schedules that are invariant under `generators`, automorphisms of the network and collective.

    Without generators it is that of the whole problem, and `complete`: "unsat" is a proof. A schedule may use fewer
    rounds than requested, never more: ``apply`` bounds the sum of rounds from above.
    """

    generators: tuple[Automorphism, ...] = ()

    @property
    def complete(self) -> bool:
        """True where every schedule is a solution."""
        return not self.generators

    def apply(self, problem: Problem) -> tuple[Model, Inverse]:
        """Return the model, and the data to read a schedule from its solution. Raises UsageError for combining
        collectives."""
        coll = problem.collective
        if coll.combining:
            raise UsageError(f"{coll.name} combines: encode its reversal, or use the direct or hub engine")
        quotient = orbits(problem, self.generators)
        model = Model()
        spare = problem.rounds - problem.steps
        if spare < 0 or problem.steps < 1:
            model.clause([])
            return model, Inverse(problem, quotient, [])
        levels: list[list[int]] = []
        for _ in range(problem.steps):
            first = model.block(spare)
            levels.append(list(range(first, first + spare)))
        for row in levels:
            model.clauses.extend([[-row[j + 1], row[j]] for j in range(spare - 1)])
        if spare:
            model.at_most([x for row in levels for x in row], spare, (), (spare,) * problem.steps)
        places = []
        for unit in range(coll.units):
            rep = quotient.unit_rep[unit]
            places.append(_chunks(model, problem, quotient, unit) if rep == unit else places[rep])
        _loads(model, problem, quotient, places, levels)
        return model, Inverse(problem, quotient, places)

    def invert(self, inverse: Inverse, values: Sequence[bool]) -> Schedule:
        """Return the schedule of a solution, expanded over the group, with exactly the requested steps and rounds."""
        problem, quotient = inverse.problem, inverse.orbits
        routes, copies = problem.network.routes, problem.chunks
        steps: list[list[tuple[int, int]]] = [[] for _ in range(problem.steps)]
        for unit, variables in enumerate(inverse.places):
            rep = quotient.route_rep[unit]
            for r in range(len(routes)):
                if (place := variables.sends.get(rep[r])) is None:
                    continue
                for t in range(place[1], place[2] + 1):
                    for i, x in enumerate(variables.at(place, t, copies)):
                        if values[x]:
                            steps[t - 1].append((unit * copies + i, r))
        return assemble(problem, steps)


def _chunks(model: Model, problem: Problem, quotient: QuotientOrbits, unit: int) -> UnitVariables:
    """Add variables and clauses of the chunks of one representative unit: written once, copied for each chunk."""
    net, steps, copies = problem.network, problem.steps, problem.chunks
    pre = problem.collective.pre[unit]
    goals = problem.collective.post[unit] - pre
    if not goals:
        return UnitVariables(0, 0, {})
    rank_rep, route_rep = quotient.rank_rep[unit], quotient.route_rep[unit]
    # Of each rank the earliest time at which it can hold a chunk, and the latest at which that is of use.
    near: list[int] = []
    late: list[int] = []
    for n in range(net.ranks):
        near.append(min((d for s in pre if (d := net.distances[s][n]) is not None), default=steps + 1))
        late.append(steps - min((d for g in goals if (d := net.distances[n][g]) is not None), default=steps + 1))

    rows: list[list[int]] = []
    ones: list[list[int]] = []  # at most one of each
    size = 0
    holds: dict[int, int] = {}  # representative rank -> offset: has[n, t] is offset + t
    for n in range(net.ranks):
        if rank_rep[n] == n and n not in pre and near[n] <= late[n]:
            last = late[n] - (n in goals)  # at the end a destination must hold: no variable
            holds[n] = size + 1 - near[n]
            size += max(0, last - near[n] + 1)
    sends: dict[int, tuple[int, int, int]] = {}
    for r, route in enumerate(net.routes):
        u, v = route.src, route.dst
        first, last = near[u] + 1, late[v]
        if route_rep[r] != r or v in pre or first > last or u == v:
            continue
        sends[r] = (size + 1 - first, first, last)
        size += last + 1 - first
    for r, (at, first, last) in sends.items():
        src = net.routes[r].src
        if src in pre:
            continue
        held = holds[rank_rep[src]] - 1
        rows.extend([[-(at + t), held + t] for t in range(first, last + 1)])
    for n, at in holds.items():
        goal, last = n in goals, late[n]
        entering = dict.fromkeys(route_rep[r] for r in net.into[n])
        into = [sends[r] for r in entering if r in sends]
        for t in range(near[n], last + 1):
            arriving = [x + t for x, first, until in into if first <= t <= until]
            end = goal and t == last
            kept = [at + t - 1] if t > near[n] else []
            rows.append(kept + arriving if end else [-(at + t), *kept, *arriving])
        ones.append([x + t for t in range(near[n], last + 1) for x, first, until in into if first <= t <= until])
    variables = UnitVariables(model.block(size * copies), size, sends)
    clauses = model.clauses
    if any(near[g] > steps for g in goals):
        model.clause([])
        return variables
    for start in range(variables.base - 1, variables.base - 1 + size * copies, size) if size else ():
        clauses.extend([_offset(row, start) for row in rows])
        for row in ones:
            model.at_most([x + start for x in row], 1)
    return variables


def _offset(clause: list[int], start: int) -> list[int]:
    """Return a clause whose variables are moved up by `start`."""
    moved = []
    for x in clause:
        moved.append(x + start if x > 0 else x - start)
    return moved


def _loads(
    model: Model, problem: Problem, quotient: QuotientOrbits, places: list[UnitVariables], levels: list[list[int]]
) -> None:  # fmt: skip
    """Add the load limits, for one route and one shared limit of each orbit: at most units times rounds a step."""
    net, copies = problem.network, problem.chunks
    resources = [((r,), net.routes[r].units) for r in quotient.routes]
    resources += [(net.caps[k].routes, net.caps[k].units) for k in quotient.caps]
    for routes, units in resources:
        loads: list[list[int]] = [[] for _ in levels]
        for unit, variables in enumerate(places):
            rep = quotient.route_rep[unit]
            for r in routes:
                if (place := variables.sends.get(rep[r])) is None:
                    continue
                for t in range(place[1], place[2] + 1):
                    loads[t - 1].extend(variables.at(place, t, copies))
        for t, load in enumerate(loads):
            model.at_most(load, units, levels[t])
