"""Tree bound: lower bound on R/C at S steps of schedules whose chunks travel whole, with a certificate in integers.

Column generation (`synth.bounds.trees.column_generation`) finds prices at which every tree costs at least its share of
the bound. Branch and bound (`synth.bounds.trees.branch_and_price`) proves it for one representative unit of each orbit.
The checker re-checks the certificate without any of this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from synth import bounds
from synth.bounds.cut_lp import entering_sends
from synth.bounds.trees.branch_and_price import Branching, Cases, Leaf, leaves
from synth.bounds.trees.column_generation import Columns, FoldedProblem, generate
from synth.bounds.trees.time_expanded_trees import Tree
from synth.errors import InfeasibleError
from synth.model.collective import Collective
from synth.model.frontier import LowerBound
from synth.model.schedule import problem_fingerprint
from synth.model.symmetry.stabilisers import Generator
from synth.model.topology import Network
from synth.solvers.processes.deadline import NEVER, UNLIMITED, Budget, Deadline
from synth.solvers.rationalise import Rounding, common_denominator, roundings, simple_fractions


@dataclass(frozen=True)
class TreeBoundSettings:
    """Limits of the certificates of tree bounds.

    Attributes:
        denominators: Maximum denominators of the prices, in trying order.
        largest_scale: Maximum scale of a certificate.
        most_programs: Maximum number of linear programs of one case tree.
    """

    denominators: tuple[int, ...] = (60, 1_000, 20_000, 1_000_000)
    largest_scale: int = 10**12
    most_programs: int = 400


SETTINGS = TreeBoundSettings()


def tree_bound(
    network: Network,
    collective: Collective,
    steps: int,
    budget: Budget = UNLIMITED,
    generators: Sequence[Generator] | None = None,
) -> LowerBound | None:
    """Return a bound on R/C at `steps` steps, for every number of chunks, that exceeds `bounds.flow`.

    None if none is found, if the collective combines, or if it has no schedule of `steps` steps. `generators`:
    automorphisms of the problem (None: computed by `synth.model.symmetry`).
    """
    deadline = budget.cpu_deadline()
    if collective.combining:
        return None
    group = _group(network, collective) if generators is None else generators
    try:
        flow = bounds.flow(network, collective, steps, group).value
    except InfeasibleError:
        return None
    prover = Prover(network, steps, budget.seed, deadline)
    folded = FoldedProblem(network, collective, steps, group)
    columns = generate(folded, float(flow), deadline=deadline, seed=budget.seed, exact=prover.cheapest)
    if columns is None or columns.value <= float(flow) * (1 + 1e-6):
        return None
    best: LowerBound | None = None
    for rounding in roundings(columns.prices.ravel().tolist(), SETTINGS.denominators, SETTINGS.largest_scale):
        if rounding.down and best is not None:
            break
        found = _certified(columns, prover, rounding)
        if found is not None and found.value > max(flow, best.value if best else flow):
            best = found
        if best is not None and float(best.value) >= columns.value * (1 - 1e-9):
            break
    return best


def _group(network: Network, collective: Collective) -> list[Generator]:
    from synth.model.symmetry import generators

    return [Generator(g.ranks, g.routes, g.units) for g in generators(network, collective)]


class Prover:
    """Prover of lower bounds on the prices of trees by branch and bound, up to a deadline."""

    def __init__(self, network: Network, steps: int, seed: int = 0, deadline: Deadline = NEVER) -> None:
        self.network, self.steps, self.seed, self.deadline = network, steps, seed, deadline

    def cases(self, folded: FoldedProblem, unit: int, prices: np.ndarray) -> Cases:
        """Return the branch and bound over the trees of `unit` at ``prices[route, step - 1]``."""
        collective = folded.collective
        return Cases(
            self.network,
            self.steps,
            sorted(collective.pre[unit]),
            sorted(collective.post[unit]),
            prices,
            self.seed,
            self.deadline,
        )

    def program_limit(self) -> int:
        """Return the maximum number of linear programs of the next case tree: one when the time is over."""
        return 1 if self.deadline.over else SETTINGS.most_programs

    def cheapest(self, folded: FoldedProblem, unit: int, prices: np.ndarray, limit: float) -> tuple[float, Tree | None]:
        """Return a lower bound on the price of any tree of `unit`, and a tree that costs less than `limit` or None.

        It is the pricer `exact` of `column_generation.generate`. A bound beside a tree is 0.
        """
        clean = np.where(prices < 1e-9, 0.0, prices)
        cases = self.cases(folded, unit, clean)
        found = cases.prove(limit * (1 - 1e-7), self.program_limit())
        if isinstance(found, Branching | Leaf):
            return min(found.value, limit), None
        return 0.0, found


def _certified(columns: Columns, prover: Prover, rounding: Rounding) -> LowerBound | None:
    """Return the bound whose certificate has the prices that `rounding` makes; None if it cannot be proved."""
    folded, scale = columns.folded, rounding.scale
    table: list[list[int]] = []
    for row in columns.prices.tolist():
        table.append([rounding(y) for y in row])
    for t in range(columns.steps):
        if sum(int(c) * row[t] for c, row in zip(folded.capacity, table, strict=True)) > scale:
            return None
    prices = (folded.use @ np.array(table, dtype=float)).round()
    proofs: dict[int, Branching | Leaf] = {}
    for unit in folded.units:
        goal = columns.unit_duals[unit] / folded.weight[unit] * scale
        found = prover.cases(folded, unit, prices).prove(goal * (1 - 1e-9), prover.program_limit())
        if not isinstance(found, Branching | Leaf):
            return None
        proofs[unit] = found
    weights = [w for proof in proofs.values() for leaf in leaves(proof) for w, _ in leaf.cuts or ()]
    factor = common_denominator(simple_fractions(weights, 2520))
    if factor * scale > SETTINGS.largest_scale:
        factor = 1
    whole: list[list[int]] = []
    for row in table:
        whole.append([y * factor for y in row])
    packer = _CertificateWriter(folded, columns.steps, whole, factor)
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


class _CertificateWriter:
    """Writer of certificates: integer weights of cuts that fit into integer prices."""

    def __init__(self, folded: FoldedProblem, steps: int, table: list[list[int]], factor: int) -> None:
        self.folded, self.steps, self.factor = folded, steps, factor
        self.price = [table[o] for o in folded.orbit]
        network = folded.network
        self.capacity = [list(self.price[i]) for i in range(len(network.routes))]
        for k, cap in enumerate(network.caps):
            for i in cap.routes:
                self.capacity[i] = [
                    a + b for a, b in zip(self.capacity[i], self.price[len(network.routes) + k], strict=True)
                ]

    def rows(self) -> list[list]:
        """Return the prices as rows of the certificate."""
        network, rows = self.folded.network, []
        for i, row in enumerate(self.price):
            if not any(row):
                continue
            if i < len(network.routes):
                r = network.routes[i]
                rows.append(["link", r.src, r.dst, *([list(r.via)] if r.via else []), *row])
            else:
                rows.append(["limit", i - len(network.routes), *row])
        return rows

    def generator(self, g: Generator) -> list:
        """Return a generator as JSON: parallel links need a permutation of their own."""
        routes = self.folded.network.routes
        parallel = len({(r.src, r.dst) for r in routes}) < len(routes)
        return [list(g.ranks), list(g.units), *([list(g.routes)] if parallel else [])]

    def tree(self, proof: Branching | Leaf, gone: dict[int, int]) -> tuple[dict, int | None]:
        """Return the case tree as JSON, and the least total weight over its leaves (None if no case can happen)."""
        if isinstance(proof, Branching):
            n, t = proof.node
            yes, low = self.tree(proof.has, gone)
            no, high = self.tree(proof.hasnot, gone | {n: max(t, gone.get(n, t))})
            values = [v for v in (low, high) if v is not None]
            return {"node": [n, t], "has": yes, "not": no}, min(values, default=None)
        if proof.cuts is None:
            return {"dead": list(proof.dead or ())}, None
        rows, total = [], 0
        left: dict[tuple[int, int], int] = {}
        for weight, cut in sorted(proof.cuts, reverse=True):
            places = [
                (i, t)
                for i, t in entering_sends(self.folded.network, cut, self.steps)
                if t > gone.get(self.folded.network.routes[i].dst, 0)
            ]
            room = [left.setdefault(place, self.capacity[place[0]][place[1] - 1]) for place in places]
            whole = min([round(weight * self.factor), *room])
            if whole > 0:
                rows.append([whole, *cut])
                total += whole
                for place in places:
                    left[place] -= whole
        return {"cuts": rows}, total
