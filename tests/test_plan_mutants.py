"""Plans with one random change each: what lint lets pass is right, thread by thread, in an interpreter of its own."""

import random

import pytest

from bench.plan_mutants import accepted, changed, fault, units_of
from tests.test_foreign_plans import dealt_out, gpu, packet_allreduce, pipelined, plan, put_with_signal, swap

PLANS = {
    "put-with-signal": plan(
        "allgather", [gpu(r, (1, 2, 0), [put_with_signal("pwsf", r)], "port", "o") for r in (0, 1)]
    ),
    "packets": plan("allreduce", [gpu(r, (2, 2, 4), [packet_allreduce(r)]) for r in (0, 1)], "LL"),
    "alltoall": plan("alltoall", [gpu(r, (2, 2, 1), [swap(r)]) for r in (0, 1)]),
    "group": plan("allgather", [gpu(r, (1, 2, 0), dealt_out(r, 3), remote="o") for r in (0, 1)]),
    "pipeline": pipelined(2, 64),
}


@pytest.mark.parametrize("name", PLANS)
def test_what_lint_lets_pass_is_right(name):
    chosen = PLANS[name]
    assert accepted(chosen)
    assert fault(chosen, units_of(chosen), range(4)) is None
    chance, passed, caught = random.Random(len(name)), 0, 0
    while passed + caught < 12:
        pair = changed(chosen, chance)
        if pair is None:
            continue
        if accepted(pair[1]):
            passed += 1
            assert fault(pair[1], units_of(pair[1]), range(3)) is None, pair[0]
        else:
            caught += 1
    assert caught > 2


def test_the_interpreter_sees_missing_joins_waits_and_flushes():
    def without(name: str, block: int, i: int) -> dict:
        ops = PLANS[name]["gpus"][0]["threadblocks"][block]["ops"]
        gone = [*ops[:i], *ops[i + 1 :]]
        first = PLANS[name]["gpus"][0]
        blocks = [*first["threadblocks"]]
        blocks[block] = {**blocks[block], "ops": gone}
        return {**PLANS[name], "gpus": [{**first, "threadblocks": blocks}, PLANS[name]["gpus"][1]]}

    for name, block, i in (("group", 0, 1), ("group", 0, 5), ("alltoall", 0, 4), ("alltoall", 0, 7), ("packets", 0, 0)):
        assert not accepted(without(name, block, i))
        assert fault(without(name, block, i), 9, range(12)) is not None
    late = plan("allgather", [gpu(r, (1, 2, 0), [put_with_signal("pws", r)], "port", "o") for r in (0, 1)])
    assert fault(late, 9, range(30)) is not None
