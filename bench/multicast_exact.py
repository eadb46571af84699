"""``python -m bench.multicast_exact``: frontiers with multicast at each number of steps, against exhaustive search.

The search shares no code with synth. It lists all that the sends of one step can make of the contents of two to four
ranks, with the loads of the ports. A shortest path over the contents after each step is a schedule of one chunk, and a
linear program mixes these, so its value is the least R/C of any number of chunks at that number of steps. `synth` has
to find the same value, a schedule that replays, and a certificate that is checked.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog

from bench.measure import RESULTS, keep, where
from bench.multicast import CLOSE, COLLECTIVES, Instance, State
from synth.bounds.multicast import bound_at_steps, multicast_bound
from synth.checker.schedule import replay
from synth.encodings.multicast_mixtures import MixtureSearch
from synth.model.collective import collective

INSTANCES = 320
SUMS = ("allreduce", "reduce", "reduce-scatter")


Loads = tuple[int, ...]  # of the ports: upwards, then downwards


class Contents(NamedTuple):
    """Contents of all ranks while the sends of one step land: `bits` so far.

    `based`: something is there that sums of switches may be added to: the value before, or what came over a link.
    `closed`: no multicast may replace the value, as it is kept, or another one did.
    """

    bits: State
    based: tuple[bool, ...]
    closed: tuple[bool, ...]

    def landed(self, arrivals: list[tuple[int, int]], kind: str) -> Contents | None:
        """Return the contents after (rank, value) `arrivals`; None where a contribution would count twice."""
        bits, based, closed = list(self.bits), list(self.based), list(self.closed)
        for rank, value in arrivals:
            if bits[rank] & value or (kind == "multicast" and closed[rank]):
                return None
            bits[rank] |= value
            based[rank] |= kind != "add"
            closed[rank] |= kind == "multicast"
        return Contents(tuple(bits), tuple(based), tuple(closed))


def sends(state: State, sums: bool, through: bool) -> list[tuple[list[tuple[int, int]], str, Loads]]:
    """Return all sends that `state` allows: (rank, value) arrivals, kind, and loads.

    Kinds: "any" (over a link, or a rank's own input), "multicast" (replaces), "add" (through the switch).
    """
    n, listed = len(state), []
    ranks = range(n)
    for rank in ranks:
        others = [other for other in ranks if other != rank]
        values = {state[rank], 1 << rank} if sums else {state[rank]}
        for value, other in product(values - {0}, others):
            load = [int(r == rank) for r in ranks] + [int(r == other) for r in ranks]
            listed.append(([(other, value)], "any", tuple(load)))
        if sums:
            listed.append(([(rank, 1 << rank)], "any", (0,) * (2 * n)))
        for group in (group for size in range(2, n) for group in combinations(others, size)):
            counted = {*group, rank} if through else {*group}
            one, many = [int(r == rank) for r in ranks], [int(r in counted) for r in ranks]
            if state[rank]:
                arrivals = [(member, state[rank]) for member in group]
                listed += [(arrivals, kind, (*one, *many)) for kind in ("multicast", "add")[: 1 + sums]]
            values = [state[member] for member in group]
            union = 0
            for value in values:
                union |= value
            if sums and all(values) and union == sum(values):
                listed.append(([(rank, union)], "add", (*many, *one)))
    return listed


@cache
def after_one_step(state: State, sums: bool, through: bool) -> dict[State, list[Loads]]:
    """Return the contents that one step can lead to, each with the loads that no other ones are below."""
    n = len(state)
    found: dict[Contents, set[Loads]] = {}
    for kept in product((True, False), repeat=n):
        if sums or all(keeps or not value for value, keeps in zip(state, kept, strict=True)):
            bits = tuple(value if keeps else 0 for value, keeps in zip(state, kept, strict=True))
            found[Contents(bits, kept, kept)] = {(0,) * (2 * n)}
    for arrivals, kind, load in sends(state, sums, through):
        for contents, loads in list(found.items()):
            after = contents.landed(arrivals, kind)
            if after is not None:
                more = {tuple(a + b for a, b in zip(row, load, strict=True)) for row in loads}
                found[after] = undominated(found.get(after, set()) | more)
    merged: dict[State, set[Loads]] = {}
    for contents, loads in found.items():
        if all(contents.based) or not sums:
            merged.setdefault(contents.bits, set()).update(loads)
    return {bits: sorted(undominated(loads)) for bits, loads in merged.items()}


def undominated(loads: set[Loads]) -> set[Loads]:
    """Return the loads that no other ones are below everywhere."""
    rows: list[Loads] = []
    for row in sorted(loads, key=sum):
        if not any(all(a <= b for a, b in zip(other, row, strict=True)) for other in rows):
            rows.append(row)
    return set(rows)


@dataclass
class Paths:
    """All schedules of one chunk in `steps` steps: from the contents `start` to those that agree with `goal`.

    `goal` has the bits that ranks must end with, None where they may hold anything.
    """

    start: State
    goal: tuple[int | None, ...]
    steps: int
    sums: bool
    through: bool
    layers: list[tuple[list[State], np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=list)

    def __post_init__(self) -> None:
        states = [self.start]
        for t in range(self.steps):
            index: dict[State, int] = {}
            before, after, loads = [], [], []
            for i, state in enumerate(states):
                for target, rows in after_one_step(state, self.sums, self.through).items():
                    if t == self.steps - 1 and not self._ends(target):
                        continue
                    j = index.setdefault(target, len(index))
                    for row in rows:
                        before.append(i)
                        after.append(j)
                        loads.append(row)
            states = list(index)
            self.layers.append((states, np.array(before), np.array(after), np.array(loads)))

    def _ends(self, state: State) -> bool:
        return all(want is None or value == want for value, want in zip(state, self.goal, strict=True))

    def cheapest(self, prices: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the least price of a schedule at `prices` of ports by step, and its loads by step."""
        cost, choices = np.zeros(1), []
        for t, (states, before, after, loads) in enumerate(self.layers):
            total = cost[before] + loads @ prices[t]
            order = np.lexsort((total, after))
            first = order[np.unique(after[order], return_index=True)[1]]
            cost = total[first]
            assert len(cost) == len(states)
            choices.append(first)
        end = int(np.argmin(cost))
        least, taken = float(cost[end]), np.zeros(prices.shape)
        for t in reversed(range(self.steps)):
            chosen = choices[t][end]
            taken[t], end = self.layers[t][3][chosen], int(self.layers[t][1][chosen])
        return least, taken


def goals(instance: Instance) -> list[tuple[State, tuple[int | None, ...]]]:
    """Return the contents before and after of one chunk of each unit."""
    units = []
    for start, goal in instance.units():
        free = instance.collective in ("reduce", "reduce-scatter")
        everything = (1 << instance.ranks) - 1
        wanted = [None if free and bits != everything else bits for bits in goal]
        if instance.collective not in SUMS:  # one contribution, of whoever holds the chunk
            wanted = [bits or None for bits in goal]
        units.append((start, tuple(wanted)))
    return units


def least_value(instance: Instance, steps: int) -> float:
    """Return the least R/C at `steps` steps of any number of chunks, by column generation."""
    ports = np.array(instance.up + instance.down, float)
    sums = instance.collective in SUMS
    units = [paths(start, goal, steps, sums, instance.through) for start, goal in goals(instance)]
    prices = np.full((steps, len(ports)), 1 / ports.sum())
    columns: list[tuple[int, np.ndarray]] = []
    while True:
        total = 0.0
        for u, unit in enumerate(units):
            cost, load = unit.cheapest(prices)
            total += cost
            columns.append((u, load))
        size = len(columns)
        above = np.zeros((steps * len(ports), size + steps))
        equal = np.zeros((len(units), size + steps))
        for k, (u, load) in enumerate(columns):
            above[:, k], equal[u, k] = load.ravel(), 1
        for t in range(steps):
            above[t * len(ports) : (t + 1) * len(ports), size + t] = -ports
        costs = np.r_[np.zeros(size), np.ones(steps)]
        answer = linprog(costs, above, np.zeros(len(above)), equal, np.ones(len(units)), method="highs")
        if total >= answer.fun - CLOSE:
            return float(answer.fun)
        prices = -answer.ineqlin.marginals.reshape(steps, len(ports))


@cache
def paths(start: State, goal: tuple[int | None, ...], steps: int, sums: bool, through: bool) -> Paths:
    """Return all schedules of one chunk, which depend on no width of a port."""
    return Paths(start, goal, steps, sums, through)


def instances(count: int, seed: int = 23) -> Iterator[tuple[Instance, int]]:
    """Yield random instances with ports of 1 to 3 units, and numbers of steps. Four ranks where nothing is summed."""
    rng = random.Random(seed)
    for k in range(count):
        name = ("allreduce", *COLLECTIVES)[k % 7]
        ranks = rng.choice((2, 3, 3) if name in SUMS else (2, 3, 4))
        up, down = (tuple(rng.randint(1, 3) for _ in range(ranks)) for _ in range(2))
        steps = rng.randint(1, 2 if ranks == 3 and name in SUMS else 3)
        yield Instance(name, up, down, rng.random() < 0.5), steps


def judged(instance: Instance, steps: int) -> dict:
    """Return the least value by the search, and the schedule and the bound of `synth`."""
    network, task = instance.network(), collective(instance.collective, instance.ranks)
    floor = bound_at_steps(network, task, steps, multicast_bound(network, task))
    schedule, higher = MixtureSearch(network, task).at_steps(steps, floor.value)
    bound = floor.value if higher is None else higher.value
    value = None if schedule is None else replay.schedule(schedule).rounds_per_chunk
    least = least_value(instance, steps)
    # A step has a round at least, which only the schedule pays where the mixture leaves it empty.
    idle = schedule is not None and any(not step.sends and not step.switch_sends for step in schedule.steps)
    false = float(bound) > least + CLOSE or (value is not None and float(value) < least - CLOSE)
    return {
        "collective": instance.collective, "up": instance.up, "down": instance.down, "through": instance.through,
        "steps": steps, "search": round(least, 9), "bound": str(bound), "schedule": str(value or ""), "false": false,
        "bound met": abs(float(bound) - least) < CLOSE,
        "schedule met": idle or (value is not None and value <= Fraction(least).limit_denominator(5000)),
    }  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Judge all instances, write the table, and return 1 where synth contradicts the search."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=INSTANCES)
    rows = [judged(*each) for each in instances(parser.parse_args(arguments).instances)]
    lines = ["| collective | instances | contradictions | bound met | schedule met |", "|---|--:|--:|--:|--:|"]
    for name in COLLECTIVES:
        own = [row for row in rows if row["collective"] == name]
        counts = [sum(row[key] for row in own) for key in ("false", "bound met", "schedule met")]
        lines.append(f"| {name} | {len(own)} | {' | '.join(map(str, counts))} |")
    text = "\n".join(lines)
    print(text)
    title = (
        "# Schedules and bounds with multicast at each number of steps\n\n"
        "One switch, 2 to 4 ranks, ports of 1 to 3 units, 1 to 3 steps: `python -m bench.multicast_exact`.\n\n"
    )
    keep({"setting": where(), "rows": rows}, f"{title}{text}\n", RESULTS / "multicast_exact.json")
    return int(any(row["false"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
