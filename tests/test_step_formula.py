"""The formula that a proof file refutes: written by the checker alone, and the one that the encoder solves."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from synth.checker.certificates import cardinality, step_formula
from synth.checker.certificates.step_formula import FormulaSize
from synth.encodings.step import StepEncoding
from synth.model.collective import Collective, collective
from synth.model.schedule import Problem
from synth.model.topology import Cap, Network, Route
from synth.solvers.boolean_model import Model
from synth.solvers.cadical import Cadical
from synth.topologies import topology

NAMES = ("allgather", "broadcast", "alltoall", "reduce-scatter", "reduce")


def written(problem: Problem) -> tuple[int, list[list[int]]]:
    """The checker's formula, from the documents of a problem."""
    size = FormulaSize(problem.chunks, problem.steps, problem.rounds)
    return step_formula.formula(problem.network.to_json(), problem.collective.to_json(1), size)


def random_problem(seed: int) -> Problem:
    """A machine of a few ranks whose limits may list a link twice, and whose links may lead nowhere."""
    random = Random(seed)
    ranks = random.randint(2, 5)
    pairs = [(a, b) for a in range(ranks) for b in range(ranks) if a != b]
    ends = random.sample(pairs, random.randint(1, len(pairs)))
    routes = tuple(Route(a, b, random.randint(1, 3)) for a, b in ends)
    limits = [random.choices(range(len(routes)), k=random.randint(1, 4)) for _ in range(random.randint(0, 3))]
    caps = tuple(Cap(tuple(links), random.randint(1, 3)) for links in limits)
    if random.random() < 0.3:  # data that some ranks hold and some want, or nobody
        rows = [[frozenset(random.sample(range(ranks), random.randint(0, ranks))) for _ in range(2)] for _ in range(2)]
        task = Collective("own", ranks, tuple(rows[0]), tuple(rows[1]), False)
    else:
        task = collective(random.choice(NAMES), ranks)
    steps = random.randint(1, 4)
    return Problem(
        Network("own", ranks, routes, caps), task, random.randint(1, 3), steps, steps + random.randint(-1, 3)
    )


def test_the_checker_and_the_encoder_write_the_same_clauses() -> None:
    for seed in range(400):
        problem = random_problem(seed)
        plain = problem.reversed() if problem.collective.combining else problem
        variables, encoded = StepEncoding(tight=False).apply(plain)[0].cnf()
        count, clauses = written(problem)
        assert count == variables, seed
        assert Counter(map(frozenset, clauses)) == Counter(map(frozenset, encoded)), seed


# Proofs name clauses by number: these hashes are those of documents that were written before, and must not change.
HASHES = {
    ("dgx1", "allgather", 6, 2, 7): "ea89e544cd366e69053205f94634be7cc7349ae4eb6fd82f9f4474c00ff1693d",
    ("dgx1", "reduce-scatter", 3, 2, 4): "f6577824120154a73f69adc0912fa2c5bfbb529a6af0bf860a5596902cd613ff",
    ("rail:2x2", "broadcast", 2, 3, 5): "0ff411ff1dd9153bae8c08cd348434140fd535ea414afca9ddba0fe482f51618",
    ("ring:4", "alltoall", 2, 2, 3): "026f70eab5643617ea0cdc9d7a023c42d71a865e19b0c0840a16e8203326a134",
}


@pytest.mark.parametrize("name", HASHES)
def test_order_and_numbering_of_the_clauses_stay(name: tuple[str, str, int, int, int]) -> None:
    machine, task, chunks, steps, rounds = name
    network = topology(machine).network()
    problem = Problem(network, collective(task, network.ranks), chunks, steps, rounds)
    assert step_formula.dimacs_hash(*written(problem)) == HASHES[name]


@pytest.mark.parametrize("size", range(1, 8))
def test_a_bound_allows_as_many_as_its_levels_say(size: int) -> None:
    """All assignments of the inputs, against a count; equal literals weigh as often as they are listed."""
    for seed in range(20):
        random = Random(100 * size + seed)
        scale, count = random.randint(1, 3), random.randint(0, 2)
        levels = list(range(size + 1, size + 1 + count))
        vectors = [[x] * random.randint(1, 2) for x in range(1, size + 1)]
        formula = cardinality.Clauses(size + count, [])
        formula.at_most(vectors, scale, levels)
        model = Model()
        model.block(formula.variables)
        chosen = {x for x in range(1, size + 1) if random.random() < 0.5}
        high = random.randint(0, count)
        true = chosen | set(levels[:high])
        model.clauses = [*formula.rows, *([x] if x in true else [-x] for x in range(1, size + count + 1))]
        weight = sum(len(vector) for vector in vectors if vector[0] in chosen)
        assert (Cadical().solve(model).status == "sat") is (weight <= scale * (1 + high)), (vectors, scale, levels)


@pytest.mark.parametrize("size", [1, 2, 4, 5, 9])
def test_at_most_one(size: int) -> None:
    for true in ([], [1], [size], [1, size], [max(1, size - 1), size]):
        formula = cardinality.Clauses(size, [])
        formula.at_most_one(range(1, size + 1))
        model = Model()
        model.block(formula.variables)
        model.clauses = [*formula.rows, *([x] if x in true else [-x] for x in range(1, size + 1))]
        assert (Cadical().solve(model).status == "sat") is (len(set(true)) < 2)
