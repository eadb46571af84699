"""Allreduce out of ways through hubs, priced exactly: what fractions of the data attain at S steps, and whole chunks of
that.

Column generation over the ways of `synth.encodings.hubs.exchanges`, with rounds divided over the steps as they like: it
ends with the least R/C that any mixture of such ways attains. On machines without much symmetry that is mostly the
lower bound itself. Where the solution is of whole chunks already, not too many, that is a schedule; otherwise dives
round it (`synth.encodings.tree_packing.diving`), for numbers of chunks that lose nothing, then for such as lose little.

Finding none proves nothing: ways through hubs are not all there are.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

import numpy as np

from synth.bounds.trees.column_generation import Restricted, Space
from synth.bounds.trees.time_expanded_trees import Tree
from synth.encodings.hubs.exchanges import Sends, Ways
from synth.encodings.hubs.symmetric_column_generation import NEW, SURE, improve
from synth.encodings.tree_packing.completion import solved
from synth.encodings.tree_packing.diving import Dive, Partial
from synth.model.collective import Collective
from synth.model.schedule import Schedule, Send, Step
from synth.model.topology import Network

ITERATIONS = 400
FEW, MOST = 64, 600  # chunks of a solution that is whole already: taken at once, and at most
WHOLE = 4  # numbers of chunks that lose nothing, and R/C as a fraction of so many chunks at most
FINE = 256
LOSSES = (
    (1 / 30, 24),
    (1 / 80, 36),
    (1 / 200, 36),
)  # what may be lost by rounding R up, of how many chunks at least for each step
WHOLE_SHARE, CLOSE_SHARE = 0.4, 0.3
ENOUGH = 0.7  # of the loss: with less it takes longer
VECTORS = 2  # ways to divide the rounds among the steps
LAST, LAST_SECONDS = 24, 1.0  # chunks that are left to CP-SAT, and its time


@dataclass(frozen=True)
class Shared:
    """`value`: the least R/C of fractions (a float), None where no way takes so few steps; `schedule`: one of whole
    chunks, if found."""

    value: float | None
    schedule: Schedule | None


def share_out(
    network: Network,
    collective: Collective,
    steps: int,
    least: Fraction,
    below: Fraction | None,
    seconds: float,
    seed: int,
    alike: bool = False,
) -> Shared:
    """A schedule of `steps` steps with R/C less than `below`, down to `least`, a bound. For allreduce, where
    `Ways.fits`.

    Dives take so many `seconds` of CPU time together. With `alike` all ranks end with the same bits; without, they do
    where that costs nothing.
    """
    made = _Mixture(network, steps, seed, alike=True)
    some = made.learn(float(least))
    if not alike and (not some or made.master.value > float(least) * (1 + SURE)):
        other = _Mixture(network, steps, seed, alike=False)
        if other.learn(float(least)) and not (some and made.master.value <= other.master.value * (1 + SURE)):
            made, some = other, True
    if not some:
        return Shared(None, None)
    if below is not None and made.master.value >= float(below) * (1 - SURE):
        return Shared(made.master.value, None)
    exact = made.exact(MOST if seconds > 0 else FEW)
    at_once = exact is not None and len(exact[0]) <= FEW
    options = [exact] if at_once else [made.dives(below, seconds, seed), exact]
    taken = min((o for o in options if o is not None), key=lambda o: Fraction(sum(o[1]), len(o[0])), default=None)
    schedule = None if taken is None else made.schedule(collective, *taken)
    if schedule is not None and below is not None and schedule.bandwidth >= below:
        schedule = None
    return Shared(made.master.value, schedule)


class _Mixture:
    """The ways that are known, and the linear program over them. For a dive they are trees of its one unit of data."""

    def __init__(self, network: Network, steps: int, seed: int, alike: bool) -> None:
        self.network, self.steps = network, steps
        everyone = frozenset(range(network.ranks))
        self.space = Space(network, Collective("hubs", network.ranks, (frozenset([0]),), (everyone,)), [])
        self.ways = Ways(network, steps, alike)
        self.master = Restricted(self.space, steps, 0.0)
        self.kinds: dict[Tree, Sends] = {}
        self.random = np.random.default_rng(seed)

    def found(self, price: np.ndarray) -> Iterator[tuple[float, Tree]]:
        """The cheapest ways at ``price[route, step - 1]``, as trees."""
        for way in self.ways.price(price)[:NEW]:
            sends = self.ways.sends(way)
            tree = tuple((step, route) for step, route, _ in sends)
            self.kinds.setdefault(tree, sends)
            yield way.cost, tree

    def learn(self, least: float) -> bool:
        """Column generation, to the end or to `least`; False where there is no way at all."""
        master = self.master
        shape = (len(self.space.capacity), self.steps)
        centre = self.random.random(shape) / self.space.capacity.sum()
        for _, tree in self.found(self.space.use @ centre):
            master.add(0, tree)
        improve(master, centre, least, ITERATIONS, self.found)
        return bool(master.columns)

    def exact(self, most: int) -> tuple[list[Tree], list[int]] | None:
        """The solution as whole chunks, where it is one of up to `most`, with the rounds of each step."""
        share = np.array(self.master.share[0])
        used = np.flatnonzero(share > SURE)
        whole = np.array([*share[used], *self.master.rounds])
        for chunks in range(1, most + 1):
            if np.abs(chunks * whole - np.rint(chunks * whole)).max() < 1e-5 and chunks * min(self.master.rounds) > 0.5:
                times = chunks * share[used]
                trees = [
                    self.master.trees[0][i]
                    for i, n in zip(used, np.rint(times).astype(int), strict=True)
                    for _ in range(n)
                ]
                return trees, self.rounds(trees)
        return None

    def rounds(self, trees: Sequence[Tree]) -> list[int]:
        """The rounds that each step needs."""
        loads = sum(
            (self.space.loads(tree, self.steps) for tree in trees), np.zeros((len(self.space.capacity), self.steps))
        )
        return [
            max(1, *(ceil(load / room) for load, room in zip(column, self.space.capacity, strict=True)))
            for column in loads.T
        ]

    def dives(self, below: Fraction | None, seconds: float, seed: int) -> tuple[list[Tree], list[int]] | None:
        """The whole chunks of least R/C that are found near the solution."""
        end, best = time.process_time() + seconds, None
        for chunks, rounds, share in self._sizes():
            now = time.process_time()
            if now >= end:
                break
            if below is not None and Fraction(rounds, chunks) >= below:
                continue
            found = self._dive(chunks, rounds, now + (end - now) * share, seed)
            if found is not None:
                best, below = found, Fraction(rounds, chunks)
        return best

    def _dive(self, chunks: int, rounds: int, until: float, seed: int) -> tuple[list[Tree], list[int]] | None:
        dive = Dive(self.space, self.steps, chunks, rounds, {0: list(self.master.trees[0])}, seed, {0: _Pricer(self)})
        for vector, _ in zip(dive.settle(until), range(VECTORS), strict=False):
            done = dive.run(vector, until, lambda partial, need: self._last(dive, partial, need[0], seed))
            if done is not None:
                return done.taken[0], vector
        return None

    def _sizes(self) -> list[tuple[int, int, float]]:
        """(C, R), and a share of the time left: one that loses some, those that lose nothing, which may fail,
        others."""
        value = self.master.value
        near, whole = Fraction(value).limit_denominator(FINE), []
        if abs(near - value) <= SURE * value:
            first = ceil(Fraction(self.steps, near.numerator))
            whole = [
                (m * near.denominator, m * near.numerator)
                for m in range(first, first + WHOLE)
                if m * near.denominator <= MOST
            ]
        close = []
        for loss, least in LOSSES:
            sizes = ((c, max(self.steps, floor(value * c * (1 + loss)))) for c in range(least * self.steps, MOST + 1))
            close += [
                next(size for size in sizes if size[1] >= value * size[0] * (1 + ENOUGH * loss) or size[0] == MOST)
            ]
        first, *others = [(*size, CLOSE_SHARE) for size in close]
        return [first, *((*size, WHOLE_SHARE) for size in whole), *others]

    def _last(self, dive: Dive, partial: Partial, need: int, seed: int) -> Partial | None:
        """The last chunks, out of all ways that the dive knows."""
        if need > LAST:
            return None
        from ortools.sat.python import cp_model

        room = self.space.capacity[:, None] * np.array(partial.floors) - partial.loads
        trees, model = dive.master.trees[0], cp_model.CpModel()
        use = [model.new_int_var(0, need, "") for _ in trees]
        model.add(sum(use) == need)
        terms: dict[int, list] = {}
        for tree, x in zip(trees, use, strict=True):
            for place, amount in self.space.sparse(tree, self.steps).items():
                terms.setdefault(place, []).append(int(amount) * x)
        for place, row in terms.items():
            model.add(sum(row) <= int(room.flat[place]))
        solver = solved(model, LAST_SECONDS, seed)
        if solver is None:
            return None
        more = [tree for tree, x in zip(trees, use, strict=True) for _ in range(solver.value(x))]
        return Partial({0: partial.taken[0] + more}, partial.loads, partial.floors)

    def schedule(self, collective: Collective, trees: Sequence[Tree], rounds: Sequence[int]) -> Schedule:
        """The schedule in which chunk i goes the i-th way."""
        sends: list[list[Send]] = [[] for _ in range(self.steps)]
        for chunk, tree in enumerate(trees):
            for step, route, kind in self.kinds[tree]:
                r = self.network.routes[route]
                sends[step - 1].append(Send(chunk, r.src, r.dst, kind, r.via))
        steps = tuple(Step(n, tuple(sorted(row))) for n, row in zip(rounds, sends, strict=True))
        return Schedule(self.network, collective, len(trees), steps)


class _Pricer:
    """What a dive asks for cheap trees."""

    exact = True

    def __init__(self, mixture: _Mixture) -> None:
        self.mixture = mixture

    def search(self, prices: np.ndarray, known: Sequence[Tree], size: int, rounds: int) -> list[tuple[float, Tree]]:
        """The cheapest ways at ``prices[route, step - 1]``; the arguments of searches are of no use here."""
        del known, size, rounds
        return list(self.mixture.found(np.maximum(prices, 0.0)))
