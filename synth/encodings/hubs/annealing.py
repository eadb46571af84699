"""Allreduce through hubs by chunks that fill every link in every step: fractions by column generation, made whole by
simulated annealing.

The chunks are images of few representatives under a group. Each is summed up along a tree that ends at one hub, or at
two neighbours that swap their sums, and spreads along another tree from there: 2(N - 1) sends, the fewest possible.
Column generation (`synth.encodings.hubs.column_generation`) says how much of the data goes through which trees. These
shares are rounded to whole chunks. Then sends are moved one at a time, to another step or route, until no load exceeds
its limit. Moves are accepted with the probability of simulated annealing (Kirkpatrick et al., Science 220, 1983) at one
fixed temperature. The random walk favours some rows, such as the loads of the middle steps. Dynamic penalties (prices)
balance that: the price of a row rises while its load is too high and falls while it is too low.

To find none proves nothing: other schedules may do with less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from random import Random

from synth.encodings.hubs.column_generation import HubMixture
from synth.encodings.hubs.exchanges import Sends
from synth.encodings.translated_chunks import TranslatedChunks
from synth.model.schedule import Schedule
from synth.model.topology import Network
from synth.solvers.rationalise import largest_remainders

# Annealings from the same fractions, and proposals of one of them, at most.
RUNS, PROPOSALS = 2, 60_000
# Temperature of the acceptance probability, in units of load.
TEMPERATURE = 0.25
# Change of a price for each unit of load too much, and proposals between two changes.
STEP, PACE = 0.01, 500
# Shares of proposals: away from a row with too much load; that, and to one with room.
FROM_HIGH, TO_LOW = 0.45, 0.9
# Proposals in a second of a core, and seconds of an iteration of column generation.
A_SECOND, A_TURN = 200_000, 0.01
# Tolerance for float comparisons, relative to R/C.
SURE = 1e-7

Place = tuple[int, int]  # (step, route): steps begin at 1, the route is an index into `Network.routes`


@dataclass
class HubChunk:
    """A chunk: `trees` has the place of the send up of each rank, and that of the send down to it, as seen backwards in
    time: step 1 is the last one. So both trees grow towards the hubs, by the same rules.

    `swap`: the step in which two hubs swap over the routes `swaps`; 0 for one hub.
    """

    trees: tuple[dict[int, Place], dict[int, Place]]
    swap: int = 0
    swaps: tuple[int, ...] = ()

    @classmethod
    def of(cls, sends: Sends, network: Network, steps: int) -> HubChunk:
        """Return the chunk of a path through one hub or two."""
        chunk = cls(({}, {}))
        ends = {(t, network.routes[i].src, network.routes[i].dst) for t, i, _ in sends}
        for t, i, kind in sends:
            route = network.routes[i]
            if kind == "copy":
                chunk.trees[1][route.dst] = steps + 1 - t, i
            elif (t, route.dst, route.src) in ends:
                chunk.swap, chunk.swaps = t, (*chunk.swaps, i)
            else:
                chunk.trees[0][route.src] = t, i
        return chunk

    def sends(self, steps: int) -> list[tuple[int, int, str]]:
        """Return (step, route, kind) of all sends."""
        up, down = self.trees
        found = [(t, i, "reduce") for t, i in up.values()]
        found += [(steps + 1 - t, i, "copy") for t, i in down.values()]
        return found + [(self.swap, i, "reduce") for i in self.swaps]

    def reversed(self, steps: int, back: Sequence[int]) -> HubChunk:
        """Return the chunk reversed in time: what went up goes down. ``back[i]``: the route opposite to route i."""
        up = {n: (t, back[i]) for n, (t, i) in self.trees[0].items()}
        down = {n: (t, back[i]) for n, (t, i) in self.trees[1].items()}
        return HubChunk((down, up), self.swap and steps + 1 - self.swap, tuple(back[i] for i in self.swaps))


@dataclass(frozen=True)
class LoadLimits:
    """``rows[route][step]``: the rows to whose load a send adds one; a row is a limit in one step. `capacity`: the
    maximum load of each row. `back`: the opposite route of each, where half of the chunks are the others reversed in
    time, else []."""

    rows: list[list[tuple[int, ...]]]
    capacity: list[int]
    back: list[int]


def solve(
    translation: TranslatedChunks, steps: int, rounds: int, starts: int, seed: int
) -> tuple[Schedule | None, float]:
    """Search for an allreduce schedule of the chunks of `translation` with `rounds_of` rounds in each step.

    `translation` has no stabilizer group. If routes are alike in both directions and the numbers allow it, half of the
    chunks are the other half reversed in time, which leaves about half as much to search. The search begins at most
    `starts` times, each time from other fractions. Deterministic. Returns the schedule, or None where none was found,
    and a deterministic measure of the time spent, about seconds of a core.
    """
    work, goal, each = 0.0, rounds / translation.chunks, rounds_of(rounds, steps)
    limits = load_limits(translation, each)
    count = len(translation.representatives) // (2 if limits.back else 1)
    for start in range(starts):
        # fractions of chunks on trees
        mixture = HubMixture(translation, steps, seed + start, alike=True, most_hubs=2)
        master = mixture.master
        master.set_demand({0: 1.0}, mixture.folded.no_loads(), [mixture.copies * r / translation.chunks for r in each])
        feasible = mixture.learn(goal)
        work += mixture.iterations * A_TURN
        if not feasible or mixture.value > goal * (1 + SURE):
            return None, work

        # whole chunks near them
        for run in range(RUNS):
            chunks: list[HubChunk] = []
            for tree, times in zip(master.trees[0], largest_remainders(master.share[0], count), strict=True):
                for _ in range(times):
                    chunks.append(HubChunk.of(mixture.kinds[tree], translation.network, steps))
            proposals = anneal(chunks, translation.network, steps, limits, RUNS * (seed + start) + run)
            work += (PROPOSALS if proposals is None else proposals) / A_SECOND
            if proposals is None:
                continue
            if limits.back:
                chunks += [chunk.reversed(steps, limits.back) for chunk in chunks]
            sends: list[dict[int, list[tuple[int, str]]]] = [{} for _ in range(steps)]
            for representative, chunk in enumerate(chunks):
                for t, i, kind in chunk.sends(steps):
                    sends[t - 1].setdefault(representative, []).append((i, kind))
            return translation.expand(sends), work
    return None, work


def rounds_of(rounds: int, steps: int) -> list[int]:
    """Return the rounds of each step: nearly equal, symmetric in time, with the remainder at both ends."""
    each, remainder = divmod(rounds, steps)
    result = [each] * steps
    if remainder % 2 and steps % 2:
        result[steps // 2] += 1
    for t in range(remainder // 2):
        result[t] += 1
        result[-1 - t] += 1
    if remainder % 2 and not steps % 2:
        result[remainder // 2] += 1
    return result


def load_limits(translation: TranslatedChunks, rounds: Sequence[int]) -> LoadLimits:
    """Return the limits of loads in each step. A load and its reversal in time are one row where chunks are paired."""
    network, steps = translation.network, len(rounds)
    weights = [dict(load.weights) for load in translation.loads]

    # the opposite route of each route, and the load that each load becomes when it is reversed; -1 where there is none
    ends = {(r.src, r.dst, r.units): i for i, r in enumerate(network.routes)}
    back = [ends.get((r.dst, r.src, r.units), -1) for r in network.routes]
    opposite = []
    for weight in weights:
        image = {back[i]: w for i, w in weight.items()}
        opposite.append(weights.index(image) if image in weights else -1)
    paired = len(ends) == len(network.routes) and -1 not in back and -1 not in opposite
    paired = paired and len(translation.representatives) % 2 == 0 and list(rounds) == list(rounds)[::-1]

    row_of: dict[tuple[int, int], int] = {}
    capacity: list[int] = []
    for k, load in enumerate(translation.loads):
        for t in range(steps):
            other, most = (opposite[k], steps - 1 - t) if paired else (k, t), load.max_count(rounds[t])
            if other in row_of:
                row_of[k, t] = row_of[other]
                capacity[row_of[other]] = min(capacity[row_of[other]], most)
            else:  # a load that is its own reversal counts each chunk and its reversal: half of it is for either
                row_of[k, t] = len(capacity)
                capacity.append(most // 2 if paired and other == (k, t) else most)
    rows: list[list[tuple[int, ...]]] = []
    for i in range(len(network.routes)):
        rows.append([()])  # steps begin at 1
        for t in range(steps):
            of_step: list[int] = []
            for k, weight in enumerate(weights):
                of_step += [row_of[k, t]] * weight.get(i, 0)
            rows[-1].append(tuple(of_step))
    return LoadLimits(rows, capacity, back if paired else [])


def anneal(chunks: Sequence[HubChunk], network: Network, steps: int, limits: LoadLimits, seed: int) -> int | None:
    """Change `chunks` in place until no load exceeds its limit, and return the number of proposals that it took.

    None after `PROPOSALS` proposals. Deterministic.
    """
    draw, capacity = Random(seed).random, limits.capacity

    # of each tree: the ends of routes, near to the hubs and far; the routes from a rank; the rows, in the tree's time
    sources = [route.src for route in network.routes]
    near = [route.dst for route in network.routes], sources
    far, ways = near[::-1], (network.out, network.into)
    rows = limits.rows, [[(), *row[:0:-1]] for row in limits.rows]
    places: list[list[Place]] = [[] for _ in capacity]
    for i, row_of_step in enumerate(limits.rows):
        for t, members in enumerate(row_of_step):
            for row in members:
                places[row].append((t, i))
    load, price = [0] * len(capacity), [0.0] * len(capacity)
    for chunk in chunks:
        for t, i, _ in chunk.sends(steps):
            for row in limits.rows[i][t]:
                load[row] += 1

    changed, high, low = True, [], []
    for proposal in range(PROPOSALS):
        if changed:
            slack = [most - n for n, most in zip(load, capacity, strict=True)]
            high = [row for row, n in enumerate(slack) if n < 0]
            low = [row for row, n in enumerate(slack) if n > 0]
            changed = False
        if not high:
            return proposal
        if proposal % PACE == 0:
            price = [p + STEP * (n - most) for p, n, most in zip(price, load, capacity, strict=True)]

        # a send of a chunk, by its tree k and rank n, and a new place: any step where `step` is 0
        chunk, drawn, step = chunks[int(draw() * len(chunks))], draw(), 0
        k, n = int(draw() * 2), int(draw() * network.ranks)
        if FROM_HIGH <= drawn < TO_LOW and low:
            options = places[low[int(draw() * len(low))]]
            step, route = options[int(draw() * len(options))]
            step, n = steps + 1 - step if k else step, far[k][route]
        else:
            if drawn < FROM_HIGH:
                heavy, sends = high[int(draw() * len(high))], []
                for j in (0, 1):
                    sends += [(j, rank) for rank, (t, i) in chunk.trees[j].items() if heavy in rows[j][i][t]]
                if sends:
                    k, n = sends[int(draw() * len(sends))]
            route = ways[k][n][int(draw() * len(ways[k][n]))]
        tree = chunk.trees[k]
        if n not in tree:  # a hub
            continue

        # steps between the last arrival at n and its parent's own send, a swap, or what the hub sends in the other tree
        parent = at = near[k][route]
        while at in tree and at != n:
            at = near[k][tree[at][1]]
        if at == n:  # the move would close a cycle
            continue
        first = 1 + max([t for t, i in tree.values() if near[k][i] == n], default=0)
        if parent in tree:
            last = tree[parent][0] - 1
        elif chunk.swap:
            last = (steps + 1 - chunk.swap if k else chunk.swap) - 1
        else:
            last = steps - max([t for t, i in chunk.trees[1 - k].values() if near[1 - k][i] == parent], default=0)
        step = step or first + int(draw() * (last - first + 1))
        if not first <= step <= last or tree[n] == (step, route):
            continue

        # The objective is the total excess over the limits plus the priced loads. Loads are changed first, and back
        # again if the move is rejected.
        t, i = tree[n]
        before, after = rows[k][i][t], rows[k][route][step]
        excess, penalty = 0, 0.0
        for row in before:
            excess -= load[row] > capacity[row]
            penalty -= price[row]
            load[row] -= 1
        for row in after:
            excess += load[row] >= capacity[row]
            penalty += price[row]
            load[row] += 1
        changed = excess + penalty <= 0 or draw() < exp(-(excess + penalty) / TEMPERATURE)
        if changed:
            tree[n] = step, route
            continue
        for row in before:
            load[row] += 1
        for row in after:
            load[row] -= 1
    return None
