"""LP diving: fix the rounds of each step, then whole chunks on trees, and price new trees after each decision.

Column generation ends with fractions, which a dive rounds: the rounds first, then the trees with the largest shares.
After each decision it solves the linear program of the remaining chunks and prices new trees for it (Sadykov et al.,
INFORMS J. on Computing 31, 2019). Only for groups under which no automorphism but the identity fixes a unit, so that
every tree may be taken alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import nsmallest
from math import floor
from typing import Any, Protocol

import numpy as np

from synth.encodings.trees.column_generation import FoldedProblem, RestrictedMaster
from synth.encodings.trees.time_expanded_trees import Tree
from synth.solvers.column_generation import generate_columns
from synth.solvers.deadline import Deadline

# Tolerance for comparisons of rounds and shares.
TOLERANCE = 1e-6
# Rounds of pricing after a decision, at most; before the first one 40.
PRICINGS = 4
# Choices that are tried for one decision.
CANDIDATES = 12
# Trees of a unit that join in a round of exact pricing, and of heuristic pricing.
NEW, NEW_HEURISTIC = 10, 40
# Known trees that heuristic pricing starts from, and trees that a search returns.
KNOWN, POOL = 72, 48
# Remaining chunks from which CP-SAT is tried for all of them, and again for half as many.
LAST = 12
# Most seconds of CP-SAT's deterministic time, and most chunks times routes times steps of its program.
SECONDS, MAX_PLACES = 3.0, 12_000
# Divisions of the rounds among the steps that are looked through, at most.
DIVISIONS = 1_000
# Amount by which shares are perturbed, so that other seeds decide otherwise.
NOISE = 0.2


class Pricer(Protocol):
    """A pricer: returns cheap trees of a unit."""

    @property
    def exact(self) -> bool:
        """True if the first tree that it returns is a cheapest."""
        ...

    def search(self, prices: np.ndarray, known: Sequence[Tree], size: int, turns: int) -> list[tuple[float, Tree]]:
        """Return trees with their costs at ``prices[route, step - 1]``, a cheapest first."""
        ...


@dataclass(frozen=True)
class LastChunks:
    """The last chunks of a dive: `need[u]` more trees of each unit, beside those `taken`, whose loads are `loads`.

    `rounds`: those of each step. `known`: the trees of each unit that the dive knows. `seconds`: a limit, in CP-SAT's
    deterministic time.
    """

    folded: FoldedProblem
    rounds: Sequence[int]
    loads: np.ndarray
    need: Mapping[int, int]
    taken: dict[int, list[Tree]]
    known: Mapping[int, Sequence[Tree]]
    seconds: float
    seed: int

    @property
    def capacity(self) -> np.ndarray:
        """Load that each orbit of constraints has left in each step."""
        return self.folded.capacity[:, None] * np.array(self.rounds) - self.loads


def dive(
    folded: FoldedProblem, chunks: int, rounds: int, trees: Mapping[int, Sequence[Tree]], seed: int, deadline: Deadline,
    pricers: Mapping[int, Pricer] | None = None, complete: Callable[[LastChunks], bool] | None = None,
) -> tuple[dict[int, list[Tree]] | None, list[int] | None]:  # fmt: skip
    """Return `chunks` trees of each unit and the rounds of each step, `rounds` in all, into which their loads fit.

    No rounds where the linear program has no solution at any that were tried. No trees where a decision has no choice
    that leaves it one, and at the deadline. `trees`: those of each unit to begin with. `pricers` and `complete`: for
    columns that are no trees from the holders of a unit to all ranks that want it. `complete` adds the last chunks to
    those taken, and returns False where it finds none.
    """
    random = np.random.default_rng(seed)
    pricers = pricers or {u: folded.pricer(u, seed + 31 * u) for u in folded.units}
    complete = complete or complete_by_sends
    exact = all(pricer.exact for pricer in pricers.values())
    efforts = (1,) if exact else (1, 3)  # turns of heuristic pricing, more where the first finds no new tree
    master = RestrictedMaster(folded, 1.0)
    for u in folded.units:
        for tree in trees[u]:
            master.add(u, tree)
    taken: dict[int, list[Tree]] = {u: [] for u in folded.units}
    loads, least = folded.no_loads(), [1] * folded.steps

    def need() -> dict[int, int]:
        """Return the number of remaining chunks of each unit."""
        return {u: chunks - len(mine) for u, mine in taken.items()}

    def add_cheap_trees(effort: int) -> int:
        """Add trees of the remaining chunks that are cheap at the master's prices; return their number."""
        price, added, most = folded.use @ master.prices, 0, NEW if exact else NEW_HEURISTIC
        for u, pricer in pricers.items():
            if len(taken[u]) < chunks:
                known = () if exact else master.cheapest(u, price, KNOWN)
                priced = pricer.search(price, known, POOL, effort)[:most]
                added += master.add_improving(u, (tree for _, tree in priced), most)
        return added

    def feasible(pricings: int = PRICINGS) -> bool:
        """Return True if the linear program has a solution for the remaining chunks, after pricing."""
        demand = {u: float(n) for u, n in need().items()}
        master.set_demand(demand, loads, [float(n) for n in least])

        def stop() -> bool:
            return deadline.over or master.value <= rounds + TOLERANCE

        pricing = [partial(add_cheap_trees, effort) for effort in efforts]
        solved = generate_columns(master.solve, stop, pricing, pricings + 1).ending != "unsolved"
        return solved and master.value <= rounds + TOLERANCE

    def finish() -> bool:
        seconds = min(SECONDS, deadline.remaining())
        return complete(LastChunks(folded, least, loads, need(), taken, master.trees, seconds, seed))

    # the rounds: whole ones near the fractions; those without a solution give a Benders cut, which excludes others
    if not feasible(10 * PRICINGS):
        return None, None
    fractions = np.array(master.rounds) * rounds / sum(master.rounds)
    heads: list[tuple[float, float, list[int]]] = [(0.0, 0.0, [])]  # of the first steps: distance in all, of the sum
    for fraction in fractions:
        longer = []
        for away, excess, head in heads:
            for n in range(max(1, floor(fraction) - 2), floor(fraction) + 4):
                longer.append((away + abs(n - fraction), excess + n - fraction, [*head, n]))
        heads = nsmallest(DIVISIONS, longer, lambda item: (item[0] + abs(item[1]), item[2]))
    heads.sort(key=lambda item: item[0] + NOISE * random.random())
    vectors = np.array([head for _, _, head in heads if sum(head) == rounds])
    while vectors.size:
        least = vectors[0].tolist()
        if feasible(10 * PRICINGS):
            break
        value = master.value + (vectors[1:] - vectors[0]) @ np.array(master.slack)
        vectors = vectors[1:][value <= rounds + TOLERANCE]
    else:
        return None, None

    # the trees: those that the linear program takes whole, or else one with a large share; the last ones by CP-SAT
    tried = chunks * len(folded.units)
    while not deadline.over:
        remaining = sum(need().values())
        if remaining <= min(tried // 2, LAST):
            tried = remaining
            if finish():
                return taken, least
        choices = []
        for u, shares in master.share.items():
            for i, share in enumerate(shares):
                if share > TOLERANCE and len(taken[u]) < chunks:
                    choices.append((share if share > 1 - TOLERANCE else share + NOISE * random.random(), share, u, i))
        whole = [(u, i, int(share + TOLERANCE)) for _, share, u, i in choices if share > 1 - TOLERANCE]
        single = [[(u, i, 1)] for _, _, u, i in sorted(choices, reverse=True)[:CANDIDATES]]
        before = loads
        for decision in [whole] if whole else single:
            sizes = {u: len(mine) for u, mine in taken.items()}
            for u, i, times in decision:  # the program may give a unit more trees than it needs
                times = min(times, chunks - len(taken[u]))
                taken[u] += [master.trees[u][i]] * times
                loads = loads + times * folded.weight[u] * folded.loads(master.trees[u][i])
            if feasible():
                break
            loads = before
            for u, size in sizes.items():
                del taken[u][size:]
        else:
            return taken if finish() else None, least
    return None, least


def complete_by_sends(last: LastChunks) -> bool:
    """Choose the trees of the last chunks by CP-SAT, send by send."""
    from synth.solvers.cp_sat import new_program, solve_program

    folded, network, model = last.folded, last.folded.network, new_program()
    size = sum(last.need.values()) * len(network.routes) * folded.steps
    if size > MAX_PLACES or (last.capacity < 0).any():
        return False
    terms: dict[tuple[int, int], list] = {}
    chosen: list[tuple[int, dict[tuple[int, int], Any]]] = []
    for unit in last.need:
        pre, post, weight = folded.collective.pre[unit], folded.collective.post[unit], folded.weight[unit]

        # a send may lie on a path from a holder to a destination in time
        early, late = network.distances_from(sorted(pre)), network.reversed().distances_from(sorted(post))
        places = []
        for i, route in enumerate(network.routes):
            before, after = early[route.src], late[route.dst]
            if route.dst not in pre and before is not None and after is not None:
                places += [(i, t) for t in range(before + 1, folded.steps - after + 1)]

        for _ in range(last.need[unit]):
            send = {place: model.new_bool_var("") for place in places}
            chosen.append((unit, send))
            into: dict[int, list] = {n: [] for n in range(network.ranks)}
            for (i, t), x in send.items():
                into[network.routes[i].dst].append((t, x))
                for o in np.flatnonzero(folded.use[i]):
                    terms.setdefault((int(o), t), []).append(int(weight * folded.use[i, o]) * x)

            # a destination receives once, any other rank at most once, and a rank sends what it received before
            for n, received in into.items():
                add = model.add_exactly_one if n in post - pre else model.add_at_most_one
                add([x for _, x in received])
            for (i, t), x in send.items():
                src = network.routes[i].src
                if src not in pre:
                    model.add_bool_or([~x, *(y for s, y in into[src] if s < t)])
    for (o, t), row in terms.items():
        model.add(sum(row) <= int(last.capacity[o, t - 1]))
    solver = solve_program(model, last.seconds, last.seed)
    if solver is None:
        return False
    for unit, send in chosen:
        last.taken[unit].append(tuple(sorted((t, i) for (i, t), x in send.items() if solver.value(x))))
    return True
