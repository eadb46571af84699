"""The adversary of the verifier, shortly: no mutant that is accepted is false, and its oracle can tell. More: python -m
bench.forge."""

import ast
import copy
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest

from bench.forge import __main__ as forge
from bench.forge import campaign, operators, oracle, search, seeds
from bench.forge.search import Machine, Task

SEED = 15
MUTANTS = range(0, 2000, 5)  # every cell of the table is reached by python -m bench.forge


@pytest.fixture(scope="module")
def made() -> list[seeds.Case]:
    return seeds.cases()


@pytest.fixture(scope="module")
def documents(made: list[seeds.Case]) -> dict[str, seeds.Case]:
    return {case.name: case for case in made}


def test_what_is_right_verifies_and_the_oracle_agrees(made: list[seeds.Case]) -> None:
    assert {case.schema for case in made} == {name.removeprefix("synth.") for name in oracle.JUDGES}
    for case in made:
        answer, lines = campaign.verified(case)
        assert answer == "accepted", (case.name, lines)
        assert oracle.judge(case.doc, lines) == ("true", ""), case.name


def test_every_kind_of_certificate_is_attacked(made: list[seeds.Case]) -> None:
    kinds = {str(certificate["kind"]) for case in made for certificate in operators.certificates(case.doc)}
    assert kinds == {
        "distance", "unreachable", "static-cuts", "deadline-cuts", "too-few-steps", "throughput-cut", "throughput-cuts",
        "alltoall-lengths", "allreduce-parts",
    }  # fmt: skip
    fields = {key for case in made for certificate in operators.certificates(case.doc) for key in certificate}
    assert {"covers", "count", "averaged", "generators"} <= fields


def test_no_false_document_is_accepted(made: list[seeds.Case], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "CHUNKS", 2)
    monkeypatch.setattr(campaign, "SECONDS", 60.0)
    count: Counter[str] = Counter()
    for number in MUTANTS:
        done = campaign.examine(made, SEED, number)
        if done is not None:
            (*_, answer), finding = done
            assert answer in ("refused", "true", "undecided"), finding
            count[answer] += 1
    assert count["refused"] > 200 and count["true"] > 10 and count["undecided"] < 5


def test_a_mutant_is_the_same_for_the_same_seed_and_number(made: list[seeds.Case]) -> None:
    first = [campaign.mutant(made, 3, number) for number in range(40)]
    again = [campaign.mutant(made, 3, number) for number in range(40)]
    assert first == again
    assert first != [campaign.mutant(made, 4, number) for number in range(40)]


def test_every_operator_changes_documents_of_every_schema(made: list[seeds.Case]) -> None:
    from random import Random

    for schema in {case.schema for case in made}:
        some = [case for case in made if case.schema == schema]
        for name, change in operators.OPERATORS.items():
            changed = 0
            for k in range(30):
                case = some[k % len(some)].copy()
                before = copy.deepcopy(case.doc)
                change(case, Random(k), made)
                changed += case.doc != before
            assert changed, (schema, name)


# ---------------------------------------------------------------- the oracle can tell true from false


def judged(case: seeds.Case, lines: list[str] | None = None) -> str:
    return oracle.judge(case.doc, campaign.verified(case)[1] if lines is None else lines)[0]


def edited(case: seeds.Case, *steps: tuple[list, object]) -> seeds.Case:
    case = case.copy()
    for (*path, last), value in steps:
        at = case.doc
        for key in path:
            at = at[key]
        at[last] = value
    return case


def test_it_shares_no_code_with_what_it_judges() -> None:
    own = ("bench.forge",)
    for module in (oracle, search):
        names = list[str]()
        for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                names += [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names += [alias.name for alias in node.names]
        foreign = [name for name in names if name.split(".")[0] in ("synth", "bench") and not name.startswith(own)]
        assert not foreign


@pytest.mark.parametrize(
    ("name", "more"), [("distance", "3"), ("static", "2"), ("deadlines", "2"), ("covers", "5/4"), ("count", "3/2")]
)
def test_a_bound_above_what_a_schedule_attains_is_false(documents: dict[str, seeds.Case], name: str, more: str) -> None:
    case = documents[f"bounds {name}"]
    assert judged(edited(case, (["bounds", 0, "value"], more)), []) == "false"
    assert judged(edited(case, (["bounds", 0, "value"], "1/2")), []) == "true"


def test_a_bound_a_little_above_the_truth_is_false_too(documents: dict[str, seeds.Case]) -> None:
    more = str(Fraction((1 << 63) + 1, 1 << 63))
    assert judged(edited(documents["bounds covers"], (["bounds", 0, "value"], more)), []) == "false"
    assert judged(edited(documents["large broadcast"], (["bound", "value"], str(Fraction(more) * 10))), []) == "false"


def test_frontiers_that_lack_a_point_or_answer_something_else(documents: dict[str, seeds.Case]) -> None:
    found = documents["frontier broadcast"]
    lines = campaign.verified(found)[1]
    assert judged(found, lines) == "true"
    assert (
        judged(edited(found, (["points"], found.doc["points"][:1]), (["max_steps"], 3)), ["complete: up to 3 steps"])
        == "false"
    )
    assert judged(edited(found, (["points"], found.doc["points"][1:])), lines) == "false"
    assert judged(edited(found, (["points"], [])), lines) == "false"
    assert judged(edited(found, (["points", 1, "bandwidth"], "1/2")), lines) == "false"
    halo = documents["frontier halo"].copy()
    inner = halo.doc["points"][0]["schedule"]
    inner["collective"]["post"] = inner["collective"]["post"][:1]
    assert judged(halo, lines) == "false"


@pytest.mark.parametrize("lower", ["0", "3/2", "2", "1000"])
def test_open_intervals(documents: dict[str, seeds.Case], lower: str) -> None:
    case = edited(documents["frontier open"], (["open", 0, "lower"], lower))
    assert judged(case, []) == ("true" if Fraction(lower) <= Fraction(3, 2) else "false")


def test_what_is_possible_is_not_impossible(documents: dict[str, seeds.Case]) -> None:
    for name, most in (("infeasible allgather", 2), ("infeasible allreduce", 3)):
        assert (
            judged(edited(documents[name], (["max_steps"], most)), []) == "false"
            or documents[name].kind == "unreachable"
        )
    assert judged(edited(documents["infeasible at scale broadcast"], (["certificate", "pair"], [0, 3])), []) == "false"


def test_schedules_and_machines(documents: dict[str, seeds.Case]) -> None:
    case = documents["schedule alltoall through a switch"]
    lines = campaign.verified(case)[1]
    assert judged(case, lines) == "true"
    assert judged(edited(case, (["steps", 0, "rounds"], 1)), lines) == "false"
    limits = case.doc["topology"]["limits"]
    verdicts = {
        judged(edited(case, (["topology", "limits", i, "links"], limits[i]["links"] * 2)), lines)
        for i in range(len(limits))
    }
    assert "false" in verdicts  # a route that a limit lists twice counts twice


@pytest.mark.parametrize(
    "name", ["allgather", "reduce-scatter", "broadcast", "reduce", "allreduce", "alltoall", "a shared port"]
)
def test_rates_of_machines_with_switches(documents: dict[str, seeds.Case], name: str) -> None:
    case = documents[f"large {name}"]
    more = str(Fraction(case.doc["bound"]["value"]) * 2)
    assert judged(case, []) == "true"
    assert judged(edited(case, (["bound", "value"], more)), []) == "false"


@pytest.mark.parametrize(
    ("wants", "rounds"),
    [({0: {0, 1, 2}, 2: {0, 1, 2}}, 2), ({1: {0, 1, 2}}, 1), ({0: {0}, 1: {0, 1}, 2: {0, 1, 2}}, 2)],
)
def test_the_search_finds_the_fewest_rounds_of_sums_on_a_line(wants: dict, rounds: int) -> None:
    links = ((0, 1), (1, 0), (1, 2), (2, 1))
    machine = Machine(3, tuple((a, b, ()) for a, b in links), tuple((Fraction(1), ((i, 1),)) for i in range(4)))
    task = Task(3, True, (frozenset(range(3)),), (frozenset((r, frozenset(want)) for r, want in wants.items()),))
    assert search.fewest_rounds(machine, task, 1, None, 20) == (rounds, rounds)


# ---------------------------------------------------------------- the harness


def test_the_table_counts_what_was_found() -> None:
    bulk, exact = ("bulk/1", "sends"), ("frontier/1", "distance")
    text = forge.table(Counter({(*bulk, "false"): 1, (*exact, "refused"): 3, (*exact, "true"): 2}))
    lines = [line.split() for line in text.splitlines()]
    assert ["|", "all", "|", "|", "3", "|", "2", "|", "0", "|", "1", "|", "0", "|", "0", "|"] in lines
    assert ["|", "bulk/1", "|", "sends", "|", "0", "|", "0", "|", "0", "|", "1", "|", "0", "|", "0", "|"] in lines
