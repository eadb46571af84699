"""Step, quotient and SCCL's encoding: known answers, agreement on random problems, and the pieces they stand on."""

import itertools
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from synth.checker.schedule import replay
from synth.encodings import sccl
from synth.encodings.sccl import ScclQuestions
from synth.encodings.step import StepEncoding
from synth.errors import UsageError
from synth.model.collective import collective
from synth.model.outcome import Sat, Unknown, Unsat
from synth.model.schedule import Problem
from synth.model.symmetry import subgroups
from synth.model.topology import Cap, Network, Route
from synth.solvers.boolean_model import Model
from synth.solvers.deadline import Budget, Deadline
from synth.solvers.python_sat import Cadical, MiniCard
from synth.solvers.z3_solvers import Z3Sat
from synth.topologies import topology

quick = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def network(ranks, links, caps=()):
    return Network("test", ranks, tuple(Route(u, v, n) for u, v, n in links), tuple(caps))


STEP, CADICAL = StepEncoding(), Cadical()


def decide(problem, encoding=STEP, solver=CADICAL):
    """True or False; a schedule is replayed before it counts."""
    model, inverse = encoding.apply(problem)
    answer = solver.solve(model)
    assert answer.status in ("sat", "unsat")
    if answer.status == "sat":
        schedule = encoding.invert(inverse, answer.values)
        replay.schedule(schedule)
        asked = problem.chunks, problem.steps, problem.rounds
        assert (schedule.chunks, len(schedule.steps), schedule.rounds) == asked
    return answer.status == "sat"


def sccl_decides(problem):
    """The same by SCCL's encoding."""
    verdict = sccl.solve(problem, Budget(Deadline.after(60)))
    assert isinstance(verdict, Sat | Unsat)
    if isinstance(verdict, Sat):
        found = replay.schedule(verdict.schedule)
        assert (found.chunks, found.steps, found.rounds) == (problem.chunks, problem.steps, problem.rounds)
    return isinstance(verdict, Sat)


@st.composite
def problems(draw, most_ranks=4):
    ranks = draw(st.integers(3, most_ranks))
    pairs = [(u, v) for u in range(ranks) for v in range(ranks) if u != v]
    joined = draw(st.lists(st.sampled_from(pairs), unique=True, min_size=ranks))
    links = [(u, v, draw(st.integers(1, 2))) for u, v in joined]
    caps = []
    if draw(st.booleans()):
        routes = draw(st.lists(st.integers(0, len(links) - 1), min_size=2, max_size=6))
        caps.append(Cap(tuple(routes), draw(st.integers(1, 2))))
    names = ["allgather", "broadcast", "alltoall", "gather", "scatter", "multi-broadcast", "alltonext"]
    name = draw(st.sampled_from(names))
    steps = draw(st.integers(1, 3))
    rounds = steps + draw(st.integers(0, 2))
    return Problem(network(ranks, links, caps), collective(name, ranks), draw(st.integers(1, 2)), steps, rounds)


@quick
@given(problems())
def test_encodings_and_solvers_agree(problem):
    want = decide(problem)
    assert decide(problem, StepEncoding(), Cadical(seed=3)) is want
    assert decide(problem, StepEncoding(), Z3Sat()) is want
    assert decide(problem, StepEncoding(), MiniCard()) is want
    for generators in subgroups(problem.network, problem.collective):
        found = decide(problem, StepEncoding(generators))
        assert want or not found
        assert decide(problem, StepEncoding(generators), MiniCard()) is found


@settings(quick, max_examples=25)
@given(problems(3))
def test_sccl_agrees_with_step(problem):
    assert sccl_decides(problem) is decide(problem)


def brute_force(problem):
    """Is there a schedule? By trying every set of sends of every step (copies only, one round vector at a time)."""
    net, coll = problem.network, problem.collective
    chunks = [(u, i) for u in range(coll.units) for i in range(problem.chunks)]
    vectors = [
        v for v in itertools.product(range(1, problem.rounds + 1), repeat=problem.steps) if sum(v) == problem.rounds
    ]

    def search(held, t, vector):
        if all((c, n) in held for c in chunks for n in coll.post[c[0]]):
            return True
        if t == problem.steps:
            return False
        choices = []
        for r in net.routes:
            ready = [(c, r.dst) for c in chunks if (c, r.src) in held and (c, r.dst) not in held]
            most = min(len(ready), r.units * vector[t])
            choices.append(list(itertools.combinations(ready, most)))
        for pick in itertools.product(*choices):
            loads = [len(p) for p in pick]
            fits = all(sum(loads[i] for i in cap.routes) <= cap.units * vector[t] for cap in net.caps)
            if fits and search(held | {x for p in pick for x in p}, t + 1, vector):
                return True
        return False

    start = frozenset((c, n) for c in chunks for n in coll.pre[c[0]])
    return any(search(start, 0, vector) for vector in vectors)


@settings(quick, max_examples=60)
@given(problems(3), st.booleans())
def test_step_agrees_with_trying_everything(problem, broadcast):
    uncapped = Network("test", 3, problem.network.routes)
    coll, steps = collective("broadcast" if broadcast else "allgather", 3), min(problem.steps, 2)
    problem = Problem(uncapped, coll, problem.chunks, steps, steps + problem.rounds - problem.steps)
    assert decide(problem) is brute_force(problem)


# machine, collective, and questions (C, S, R) that have a schedule, and that have none
KNOWN = [
    ("dgx1", "allgather", "1/2/2 2/2/3 2/3/3 3/4/4 6/3/7", "3/2/4 6/2/7 6/2/8"),
    ("dgx1", "broadcast", "2/2/2 6/3/3 12/4/4 22/3/9", "3/2/2"), ("dgx1", "alltoall", "1/3/3 1/2/3 3/2/8", "1/2/2"),
    ("mi50-z52", "allgather", "1/4/4 2/4/7", "1/3/3"), ("mi50-z52", "broadcast", "2/4/4", ""),
    ("mi50-z52", "alltoall", "1/4/8", ""), ("dgx2", "allgather", "1/1/15", ""),
]  # fmt: skip
# those that SCCL's encoding is asked, and those that take it long
SCCL = [
    ("dgx1", "allgather", "2/2/3", "3/2/4"),
    ("dgx1", "reduce-scatter", "2/2/3", ""),
    ("mi50-z52", "allgather", "2/4/7", "1/3/4"),
    ("dgx1", "broadcast", "6/3/3", "3/2/2"),
]
SLOW = [
    ("dgx1", "allgather", "", "6/2/8"),
    ("dgx1-p100", "allgather", "4/2/7", ""),
    ("hypercube:8", "allgather", "3/3/7", ""),
    ("dgx2", "allgather", "1/1/15", "1/1/14"),
]


def questions(table, marks=()):
    """The rows of a table as arguments of a test."""
    for name, coll, feasible, infeasible in table:
        for words, want in ((feasible, True), (infeasible, False)):
            for word in words.split():
                yield pytest.param(
                    name, coll, *map(int, word.split("/")), want, id=f"{name} {coll} {word}", marks=marks
                )


@pytest.mark.parametrize(("name", "coll", "chunks", "steps", "rounds", "feasible"), [*questions(KNOWN)])
def test_known_answers(name, coll, chunks, steps, rounds, feasible):
    net = topology(name).network()
    assert decide(Problem(net, collective(coll, net.ranks), chunks, steps, rounds)) is feasible


# what the whole formula finds slowly and a quotient at once; the subgroup is an index
QUOTIENTS = [
    ("dgx1", "allgather", 6, 7, 7),
    ("dgx1", "alltoall", 3, 8, 8),
    ("hypercube:16", "allgather", 4, 4, 15),
    ("ring:16", "allgather", 2, 15, 15),
]


@pytest.mark.parametrize(("name", "coll", "chunks", "steps", "rounds"), QUOTIENTS)
def test_some_quotient_has_a_schedule(name, coll, chunks, steps, rounds):
    net = topology(name).network()
    problem = Problem(net, collective(coll, net.ranks), chunks, steps, rounds)
    groups = subgroups(net, problem.collective)
    assert any(decide(problem, StepEncoding(generators), Cadical(conflicts=None)) for generators in groups)


def test_several_holders_are_used():
    net = network(4, [(0, 2, 1), (1, 3, 1)])
    coll = collective("broadcast", 4)
    two = type(coll)("custom", 4, (frozenset({0, 1}),), (frozenset(range(4)),))
    assert decide(Problem(net, two, 1, 1, 1)) is True
    assert decide(Problem(net, coll, 1, 1, 1)) is False


def test_parallel_routes_through_switches_are_kept_apart():
    routes = (Route(0, 1, 1, ("a",)), Route(0, 1, 1, ("b",)))
    wires = ((0, "a", 1), ("a", 1, 1), (0, "b", 1), ("b", 1, 1))
    net = Network("two", 2, routes, wires=wires)
    assert decide(Problem(net, collective("broadcast", 2), 2, 1, 1)) is True
    assert decide(Problem(net, collective("broadcast", 2), 3, 1, 1)) is False


def test_combining_is_refused():
    net = topology("dgx1").network()
    with pytest.raises(UsageError, match="combines"):
        StepEncoding().apply(Problem(net, collective("reduce", 8), 1, 2, 2))
    with pytest.raises(UsageError, match="allreduce"):
        sccl_decides(Problem(net, collective("allreduce", 8), 1, 2, 2))


@pytest.mark.parametrize(
    ("name", "coll", "chunks", "steps", "rounds", "feasible"), [*questions(SCCL), *questions(SLOW, pytest.mark.slow)]
)
def test_sccl_known_answers(name, coll, chunks, steps, rounds, feasible):
    net = topology(name).network()
    assert sccl_decides(Problem(net, collective(coll, net.ranks), chunks, steps, rounds)) is feasible


@pytest.mark.parametrize(("chunks", "units", "fewest"), [(1, 1, 3), (2, 1, 6), (1, 2, 2), (2, 2, 3)])
@pytest.mark.parametrize(("name", "reverse"), [("broadcast", False), ("reduce", True)])
def test_sccl_counts_the_rounds_of_a_limit(chunks, units, fewest, name, reverse):
    out = [(0, n, 2) for n in (1, 2, 3)]
    links = [(v, u, b) for u, v, b in out] if reverse else out
    limited, task = network(4, links, [Cap((0, 1, 2), units)]), collective(name, 4)
    assert sccl_decides(Problem(limited, task, chunks, 1, fewest))
    assert not sccl_decides(Problem(limited, task, chunks, 1, fewest - 1))


@pytest.mark.parametrize("size", range(1, 6))
def test_counts_mean_what_they_say(size):
    for scale, levels in itertools.product(range(4), range(3)):
        model = Model()
        model.block(size + levels)
        literals, bits = list(range(1, size + 1)), list(range(size + 1, size + levels + 1))
        model.at_most(literals, scale, bits)
        for values in itertools.product((False, True), repeat=size + levels):
            unary = values[size:]
            if any(b and not a for a, b in itertools.pairwise(unary)):
                continue
            fixed = Model()
            fixed.block(model.variables)
            fixed.counts = model.counts
            fixed.clauses = [[v if values[v - 1] else -v] for v in range(1, model.variables + 1)]
            right = sum(values[:size]) <= scale * (1 + sum(unary))
            assert (Cadical().solve(fixed).status == "sat") is right
            assert (MiniCard().solve(fixed).status == "sat") is right


def test_one_solver_has_several_questions_in_sccls_encoding():
    """No answer depends on the questions before, whatever the order of C, S and R."""
    net, coll = topology("ring:4").network(), collective("allgather", 4)
    asked = [(2, 2, 2), (2, 2, 3), (1, 2, 2), (1, 3, 3), (2, 3, 3), (2, 2, 2)]
    questions = ScclQuestions(net, coll)
    for chunks, steps, rounds in asked:
        problem = Problem(net, coll, chunks, steps, rounds)
        verdict, alone = questions.decide(problem), ScclQuestions(net, coll, several=False).decide(problem)
        assert type(verdict) is type(alone)
        if isinstance(verdict, Sat):
            assert replay.schedule(verdict.schedule).rounds_per_chunk == Fraction(rounds, chunks)


def test_z3s_own_steps_end_a_question_undecided():
    net, coll = topology("dgx1").network(), collective("allgather", 8)
    verdict = ScclQuestions(net, coll, several=False).decide(Problem(net, coll, 3, 2, 4), work=10_000)
    assert (type(verdict), verdict.reason) == (Unknown, "gave-up")
