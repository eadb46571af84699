"""The tree bound: least R/C at S steps of schedules whose chunks travel whole, with a certificate in sums of integers.

Column generation (`columns`) finds prices at which every tree costs at least its share of the bound; `branching` proves
it for one representative unit of each orbit. What comes out is checked by `check` without any of this.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from fractions import Fraction
from math import lcm

import numpy as np

from synth import bounds
from synth.bounds.cut_lp import entered
from synth.bounds.trees.branch_and_price import Branch, Cases, Leaf, leaves, rational
from synth.bounds.trees.column_generation import Columns, FoldedProblem, generate
from synth.bounds.trees.time_expanded_trees import Tree
from synth.errors import InfeasibleError
from synth.model.collective import Collective
from synth.model.frontier import LowerBound
from synth.model.outcome import Budget
from synth.model.schedule import problem_fingerprint
from synth.model.symmetry.stabilisers import Generator
from synth.model.topology import Network

DENOMINATORS = (60, 1_000, 20_000, 1_000_000)
LARGEST_SCALE = 10**12
MOST_PROGRAMS = 400


def tree_bound(
    network: Network,
    collective: Collective,
    steps: int,
    budget: Budget | None = None,
    generators: Sequence[Generator] | None = None,
) -> LowerBound | None:
    """A bound on R/C at `steps` steps, for every number of chunks, that is above the flow bound; None where none was
    found.

    For collectives that do not combine. `generators` are automorphisms of the problem, found by `symmetry` when not
    given.
    """
    budget = budget or Budget()
    began = time.process_time()
    if collective.combining:
        return None
    group = _group(network, collective) if generators is None else generators
    try:
        flow = bounds.flow(network, collective, steps, group).value
    except InfeasibleError:
        return None
    prover = Prover(network, steps, budget, began)
    columns = generate(
        network,
        collective,
        steps,
        group,
        target=float(flow),
        seconds=budget.seconds,
        seed=budget.seed,
        exact=prover.cheapest,
    )
    if columns is None or columns.value <= float(flow) * (1 + 1e-6):
        return None
    best: LowerBound | None = None
    for most in DENOMINATORS:
        found = _certified(columns, prover, most)
        if found is not None and found.value > max(flow, best.value if best else flow):
            best = found
        if best is not None and float(best.value) >= columns.value * (1 - 1e-9):
            break
    return best


def _group(network: Network, collective: Collective) -> list[Generator]:
    from synth.model.symmetry import generators

    return [Generator(g.ranks, g.routes, g.units) for g in generators(network, collective)]


class Prover:
    """Case trees at given prices, within one budget."""

    def __init__(self, network: Network, steps: int, budget: Budget, began: float) -> None:
        self.network, self.steps, self.budget = network, steps, budget
        self.until = float("inf") if budget.seconds is None else began + budget.seconds

    def cases(self, folded: FoldedProblem, unit: int, prices: np.ndarray) -> Cases:
        """The cases of a unit at prices per route and step."""
        collective = folded.collective
        return Cases(
            self.network,
            self.steps,
            sorted(collective.pre[unit]),
            sorted(collective.post[unit]),
            prices,
            self.budget.seed,
            self.until,
        )

    def most(self) -> int:
        """How many linear programs a case tree may take now."""
        return 1 if time.process_time() > self.until else MOST_PROGRAMS

    def cheapest(self, folded: FoldedProblem, unit: int, prices: np.ndarray, limit: float) -> tuple[float, Tree | None]:
        """Exact pricing for `columns.generate`: a lower bound on any tree's price, and a tree below `limit` if there is
        one."""
        clean = np.where(prices < 1e-9, 0.0, prices)
        cases = self.cases(folded, unit, clean)
        found = cases.prove(limit * (1 - 1e-7), self.most())
        if isinstance(found, Branch | Leaf):
            return min(found.value, limit), None
        return 0.0, found


def _certified(columns: Columns, prover: Prover, most: int) -> LowerBound | None:
    """The certificate that prices with denominators up to `most` give, and its value."""
    folded = columns.folded
    exact = [[rational(y, most) for y in row] for row in columns.prices]
    scale = lcm(*(y.denominator for row in exact for y in row))
    if scale > LARGEST_SCALE:
        return None
    table = [[int(y * scale) for y in row] for row in exact]
    for t in range(columns.steps):
        if sum(int(c) * row[t] for c, row in zip(folded.capacity, table, strict=True)) > scale:
            return None
    prices = (folded.use @ np.array(table, dtype=float)).round()
    proofs: dict[int, Branch | Leaf] = {}
    for unit in folded.units:
        goal = columns.unit_duals[unit] / folded.weight[unit] * scale
        found = prover.cases(folded, unit, prices).prove(goal * (1 - 1e-9), prover.most())
        if not isinstance(found, Branch | Leaf):
            return None
        proofs[unit] = found
    weights = [rational(w, 2520) for proof in proofs.values() for leaf in leaves(proof) for w, _ in leaf.cuts or ()]
    factor = lcm(*(w.denominator for w in weights))
    if factor * scale > LARGEST_SCALE:
        factor = 1
    whole = [[y * factor for y in row] for row in table]
    packer = _Packer(folded, columns.steps, whole, factor)
    cuts, total = {}, 0
    for unit, proof in proofs.items():
        doc, value = packer.tree(proof, {})
        if value is None:
            return None
        cuts[str(unit)] = doc["cuts"] if doc.keys() == {"cuts"} else doc
        total += folded.weight[unit] * value
    certificate = {
        "kind": "deadline-cut-trees",
        "problem": problem_fingerprint(folded.network, folded.collective),
        "steps": columns.steps,
        "scale": scale * factor,
        "prices": packer.rows(),
        "cuts": cuts,
        "generators": [packer.generator(g) for g in folded.generators],
    }
    return LowerBound(Fraction(total, scale * factor), certificate)


class _Packer:
    """Writes certificates: whole weights that whole prices pay for."""

    def __init__(self, folded: FoldedProblem, steps: int, table: list[list[int]], factor: int) -> None:
        self.folded, self.steps, self.factor = folded, steps, factor
        self.price = [table[o] for o in folded.orbit]
        network = folded.network
        self.room = [list(self.price[i]) for i in range(len(network.routes))]
        for k, cap in enumerate(network.caps):
            for i in cap.routes:
                self.room[i] = [a + b for a, b in zip(self.room[i], self.price[len(network.routes) + k], strict=True)]

    def rows(self) -> list[list]:
        """The prices as a certificate writes them."""
        network, found = self.folded.network, []
        for i, row in enumerate(self.price):
            if not any(row):
                continue
            if i < len(network.routes):
                r = network.routes[i]
                found.append(["link", r.src, r.dst, *([list(r.via)] if r.via else []), *row])
            else:
                found.append(["limit", i - len(network.routes), *row])
        return found

    def generator(self, g: Generator) -> list:
        """A generator as a certificate writes it: parallel links need their own permutation."""
        routes = self.folded.network.routes
        parallel = len({(r.src, r.dst) for r in routes}) < len(routes)
        return [list(g.ranks), list(g.units), *([list(g.routes)] if parallel else [])]

    def tree(self, proof: Branch | Leaf, gone: dict[int, int]) -> tuple[dict, int | None]:
        """The case tree as JSON, and the least total weight over its leaves (None: no case can happen)."""
        if isinstance(proof, Branch):
            n, t = proof.node
            yes, low = self.tree(proof.has, gone)
            no, high = self.tree(proof.hasnot, gone | {n: max(t, gone.get(n, t))})
            return {"node": [n, t], "has": yes, "not": no}, min((v for v in (low, high) if v is not None), default=None)
        if proof.cuts is None:
            return {"dead": list(proof.dead or ())}, None
        rows, total = [], 0
        left: dict[tuple[int, int], int] = {}
        for weight, cut in sorted(proof.cuts, reverse=True):
            places = [
                (i, t)
                for i, t in entered(self.folded.network, cut, self.steps)
                if t > gone.get(self.folded.network.routes[i].dst, 0)
            ]
            room = [left.setdefault(place, self.room[place[0]][place[1] - 1]) for place in places]
            whole = min([round(weight * self.factor), *room])
            if whole > 0:
                rows.append([whole, *cut])
                total += whole
                for place in places:
                    left[place] -= whole
        return {"cuts": rows}, total
