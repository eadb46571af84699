"""Single changes of good programs: caught by lint, or right however they are run. All of them: python -m
bench.mutations."""

from random import Random

import pytest

from bench import mutants, mutations
from synth.program import analysis
from synth.program.program import Block, Dep, Gpu, Op, Program, Span
from tests import programs
from tests.programs import I0, O0, S0

SCHEDULES = (
    ("ring:4", "allgather", 2, 2, 3, (("msccl-executor", "Simple", 1), ("mscclpp", "LL", 1))),
    ("ring:4", "reduce-scatter", 2, 2, 3, (("synth", "Simple", 1), ("mscclpp", "Simple", 1))),
)


@pytest.mark.parametrize("number", range(4))
def test_no_change_is_missed(number):
    base = list(mutations.bases(SCHEDULES))[number]
    verdicts = {"caught": 0, "harmless": 0}
    for kind, seed, program, text in mutations.changes(base, 2):
        verdict, rules, ran = mutations.judge(base, program, 1)
        assert verdict != "missed", f"{base.name} {kind} {seed}: {text}: {ran}"
        assert (verdict == "caught") == bool(rules), (kind, seed, text)
        verdicts[verdict] += 1
    assert verdicts["caught"] >= 15
    assert verdicts["harmless"] >= 2


def test_the_executor_alone_would_see_what_a_blind_lint_misses(monkeypatch):
    """The judge is no rubber stamp: with a lint that finds nothing, wrong programs are misses."""
    base = next(mutations.bases(SCHEDULES))
    blind = analysis.check(base.program, base.runtime)
    monkeypatch.setattr(mutations.analysis, "check", lambda program, runtime: blind)
    for kind in ("source-moved", "target-moved"):
        program, _ = mutants.change(kind, base.program, Random(1))
        assert mutations.judge(base, program, 1)[0] == "missed"


def test_every_kind_changes_one_thing_and_the_same_seed_the_same():
    two, one = programs.recursive_doubling_allreduce(4, 2), programs.put_allgather(4)
    applied = set()
    for program in (two, one, mixed()):
        for kind in mutants.KINDS:
            made = mutants.change(kind, program, Random(7))
            if made is not None:
                applied.add(kind)
                assert made[0] != program
                assert made == mutants.change(kind, program, Random(7))
    assert applied == set(mutants.KINDS)


def mixed():
    """One rank that has what the others lack: packets, ops with several ports, more than one flag."""
    ports = tuple(programs.Port("memory", 1, k) for k in (0, 1))
    ops = (
        Op("signal", ports=(0, 1)), Op("put", S0, (Span("s", 1, 1, True),), ports=(0,), deps=(Dep(1, 0),)),
        Op("nop", flag=True),
    )  # fmt: skip
    other = Block(None, None, 0, (Op("cpy", I0, S0, flag=True), Op("nop", flag=True)))
    gpus = (Gpu(0, 1, 1, 2, (Block(None, None, 0, ops, (), ports), other)), Gpu(1, 1, 1, 2, ()), Gpu(2, 1, 1, 2, ()))
    return Program("mixed", None, 1, gpus)


def test_dependencies_follow_the_ops_they_meant():
    wait = Block(None, None, 0, (Op("cpy", I0, (Span("o", 1),), deps=(Dep(0, 1),)),))
    first = Block(None, None, 0, (Op("nop"), Op("cpy", I0, O0, flag=True)))
    gpu = Gpu(0, 1, 2, 0, (first, wait))
    assert mutants._removed(gpu, 0, 0).blocks[1].ops[0].deps == (Dep(0, 0),)
    assert mutants._inserted(gpu, 0, 0, Op("nop")).blocks[1].ops[0].deps == (Dep(0, 2),)
    gone = mutants._removed(gpu, 0, 1)
    assert gone.blocks[1].ops[0].deps == (Dep(0, 0),)
    assert gone.blocks[0].ops[0].flag
