"""``python -m bench.multicast``: bounds with switches that multicast, against exhaustive search on two to four ranks.

The search shares no code with synth. A schedule of many chunks is a mixture of schedules of one chunk that share the
ports, so the least R/C of any number of steps and chunks is a linear program over schedules of one chunk, whose columns
a shortest-path search over the contents of all ranks prices. It is made twice: `strict`, where contributions must be
disjoint and only one send is carried out at a time, and relaxed, where ranks may hold any sums. The true value lies
between the two. A bound must not lie above the relaxed value.
"""

from __future__ import annotations

import argparse
import heapq
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

import numpy as np
from scipy.optimize import linprog

from bench.measure import RESULTS, keep, where
from synth.bounds.multicast import multicast_bound
from synth.model.collective import collective
from synth.model.topology import Limit, Link, Multicast, Network, Topology

COLLECTIVES = ("allreduce", "broadcast", "reduce", "allgather", "reduce-scatter", "alltoall")
INSTANCES = 360
CLOSE = 1e-7

State = tuple[int, ...]  # the contributions that each rank holds, as bits


@dataclass(frozen=True)
class Instance:
    """One switch with `up[r]` and `down[r]` units of port, whose issuer's own data use them where `through`."""

    collective: str
    up: tuple[int, ...]
    down: tuple[int, ...]
    through: bool

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.up)

    def network(self) -> Network:
        """Return the network of the instance with multicast."""
        n = self.ranks
        pairs = [(a, b) for a in range(n) for b in range(n) if a != b]
        widest = Fraction(max(self.up + self.down))
        links = tuple(Link(a, b, widest) for a, b in pairs)
        limits = []
        for r in range(n):
            out = tuple(i for i, (a, _) in enumerate(pairs) if a == r)
            into = tuple(i for i, (_, b) in enumerate(pairs) if b == r)
            limits += [Limit(f"{r} out", out, Fraction(self.up[r])), Limit(f"{r} in", into, Fraction(self.down[r]))]
        own = "through" if self.through else "local"
        switch = Multicast("switch", tuple(range(n)), own)
        machine = Topology("ports", n, links, tuple(limits), unit=Fraction(1), multicast=(switch,))
        return machine.multicast_network()

    def units(self) -> list[tuple[State, State]]:
        """Return the contents before and after of one chunk of each unit."""
        n = self.ranks
        own, everything = tuple(1 << r for r in range(n)), (1 << n) - 1
        match self.collective:
            case "allreduce":
                return [(own, (everything,) * n)]
            case "reduce":
                return [(own, (everything, *own[1:]))]
            case "reduce-scatter":
                return [(own, tuple(everything if r == d else own[r] for r in range(n))) for d in range(n)]
            case "broadcast":
                return [((1,) + (0,) * (n - 1), (1,) * n)]
            case "allgather":
                return [(tuple(int(r == s) for r in range(n)), (1,) * n) for s in range(n)]
        units = []
        for s in range(n):
            for d in range(n):
                units.append((tuple(int(r == s) for r in range(n)), tuple(int(r in (s, d)) for r in range(n))))
        return units


def operations(instance: Instance) -> list[tuple[str, int, tuple[int, ...], np.ndarray]]:
    """Return each kind of send with its rank, the other ranks, and its loads: upwards, then downwards."""
    n, found = instance.ranks, []
    for rank in range(n):
        others = [r for r in range(n) if r != rank]
        for size in range(1, n):
            for group in combinations(others, size):
                for kind in ("multicast", "multicast-reduce", "fetch-reduce"):
                    load = np.zeros(2 * n)
                    one, many = (n, 0) if kind == "fetch-reduce" else (0, n)
                    load[one + rank] += 1
                    for member in (*group, rank) if instance.through else group:
                        load[many + member] += 1
                    found.append((kind, rank, group, load))
        for other in others:  # a link: one port upwards, one downwards
            load = np.zeros(2 * n)
            load[rank] = load[n + other] = 1
            kinds = ("multicast", "multicast-reduce", "copy-input", "reduce-input")
            found += [(kind, rank, (other,), load) for kind in kinds]
    return found


def results(state: State, kind: str, rank: int, group: tuple[int, ...], strict: bool) -> State | None:
    """Return the contents after a send; None where it cannot be made, or changes nothing."""
    after = list(state)
    if kind == "fetch-reduce":
        pairs = [(state[member], rank) for member in group]
    else:
        value = 1 << rank if kind.endswith("input") and strict else state[rank]
        pairs = [(value, member) for member in group]
    for value, place in pairs:
        if not value:
            return None
        if not strict:
            after[place] |= value
        elif kind in ("multicast", "copy-input"):
            after[place] = value
        elif after[place] & value:
            return None
        else:
            after[place] |= value
    return tuple(after) if tuple(after) != state else None


def cheapest(
    instance: Instance, unit: tuple[State, State], prices: np.ndarray, strict: bool
) -> tuple[float, np.ndarray]:
    """Return the least price of a schedule for one chunk, and its loads (Dijkstra over the contents of all ranks)."""
    start, goal = unit
    sums = instance.collective in ("allreduce", "reduce", "reduce-scatter")
    sends = []
    for kind, rank, group, load in operations(instance):
        if sums or kind == "multicast":
            sends.append((kind, rank, group, float(load @ prices), load))
    best: dict[State, float] = {start: 0.0}
    parent: dict[State, tuple[State, np.ndarray]] = {}
    queue = [(0.0, start)]
    while queue:
        cost, state = heapq.heappop(queue)
        if cost > best[state]:
            continue
        if all(value & want == want for value, want in zip(state, goal, strict=True)):
            return cost, _loads(state, parent, len(prices))
        for after, price, load in _moves(instance, state, sends, sums, strict):
            if cost + price < best.get(after, np.inf) - 1e-12:
                best[after] = cost + price
                parent[after] = state, load
                heapq.heappush(queue, (cost + price, after))
    raise ValueError("no schedule")


def _moves(
    instance: Instance, state: State, sends: list, sums: bool, strict: bool
) -> Iterator[tuple[State, float, np.ndarray]]:
    for kind, rank, group, price, load in sends:
        after = results(state, kind, rank, group, strict)
        if after is not None:
            yield after, price, load
    if not (sums and strict):
        return
    free = np.zeros(2 * instance.ranks)
    for rank, value in enumerate(state):  # a rank keeps its input beside its sum
        for own in {1 << rank, value | 1 << rank} - {value}:
            yield (*state[:rank], own, *state[rank + 1 :]), 0.0, free


def _loads(state: State, parent: dict[State, tuple[State, np.ndarray]], size: int) -> np.ndarray:
    total = np.zeros(size)
    while state in parent:
        state, load = parent[state]
        total += load
    return total


def infimum(instance: Instance, strict: bool) -> float:
    """Return the least R/C over any number of steps and chunks, by column generation."""
    units, ports = instance.units(), np.array(instance.up + instance.down, float)
    prices = np.full(len(ports), 1 / ports.sum())
    columns: list[tuple[int, np.ndarray]] = []
    while True:
        total = 0.0
        for u, unit in enumerate(units):
            cost, load = cheapest(instance, unit, prices, strict)
            total += cost
            columns.append((u, load))
        size = len(columns)
        above = np.zeros((len(ports), size + 1))
        equal = np.zeros((len(units), size + 1))
        for k, (u, load) in enumerate(columns):
            above[:, k], equal[u, k] = load, 1
        above[:, size] = -ports
        answer = linprog(
            np.eye(size + 1)[size], above, np.zeros(len(ports)), equal, np.ones(len(units)), method="highs"
        )
        if total >= answer.fun - CLOSE:
            return float(answer.fun)
        prices = -answer.ineqlin.marginals


def instances(count: int, seed: int = 17) -> Iterator[Instance]:
    """Yield random instances: equal ports first, then ports of 1 to 3 units. Four ranks where nothing is summed."""
    rng = random.Random(seed)
    for k in range(count):
        name = COLLECTIVES[k % len(COLLECTIVES)]
        ranks = rng.choice((2, 3, 3, 4) if name in ("broadcast", "allgather", "alltoall") else (2, 3))
        through = rng.random() < 0.5
        if k < count // 3:
            yield Instance(name, (1,) * ranks, (1,) * ranks, through)
            continue
        up, down = (tuple(rng.randint(1, 3) for _ in range(ranks)) for _ in range(2))
        yield Instance(name, up, down, through)


def judged(instance: Instance) -> dict:
    """Return the bound, the relaxed and the strict least R/C of an instance."""
    bound = multicast_bound(instance.network(), collective(instance.collective, instance.ranks))
    relaxed, strict = (infimum(instance, strict) for strict in (False, True))
    return {
        "collective": instance.collective, "up": instance.up, "down": instance.down, "through": instance.through,
        "bound": str(bound.value), "relaxed": round(relaxed, 9), "strict": round(strict, 9),
        "above": float(bound.value) > relaxed + CLOSE, "equal": abs(float(bound.value) - strict) < CLOSE,
    }  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Judge all instances, write the table, and return 1 where a bound is false."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=INSTANCES)
    count = parser.parse_args(arguments).instances
    rows = [judged(instance) for instance in instances(count)]
    rows += [judged(Instance("allreduce", (1,) * 4, (1,) * 4, through)) for through in (True, False)]
    lines = [
        "| collective | instances | bound above the search | bound met | search: strict and relaxed equal |",
        "|---|--:|--:|--:|--:|",
    ]
    for name in COLLECTIVES:
        own = [row for row in rows if row["collective"] == name]
        alike = sum(row["relaxed"] == row["strict"] for row in own)
        above, met = sum(row["above"] for row in own), sum(row["equal"] for row in own)
        lines.append(f"| {name} | {len(own)} | {above} | {met} | {alike} |")
    text = "\n".join(lines)
    print(text)
    title = (
        "# Bounds with switches that multicast\n\n"
        "One switch, 2 to 4 ranks, equal ports and ports of 1 to 3 units: `python -m bench.multicast`.\n\n"
    )
    keep({"setting": where(), "rows": rows}, f"{title}{text}\n", RESULTS / "multicast.json")
    return int(any(row["above"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
