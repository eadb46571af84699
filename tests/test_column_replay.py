"""The replay by columns accepts a schedule exactly if the replay of its document does."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import multicast_schedules
import pytest
import randoms

from synth.checker.schedule import column_replay, machine, replay
from synth.errors import VerificationError
from synth.language.library import ring
from synth.model.schedule import Send, Step
from synth.topologies import topology


def by_document(schedule):
    try:
        return replay.schedule(schedule.document)
    except VerificationError:
        return None


def chain_scans(network):
    """Yield schedules of the scan along a chain."""
    for pieces in (1, 400):
        yield ring.scan.schedule(network, pieces=pieces)


def changed(schedule, rng):
    """`schedule` with one thing that may be wrong: a field of a send, a send twice, none, or fewer rounds."""
    steps = [list(step.sends) for step in schedule.steps]
    rounds = [step.rounds for step in schedule.steps]
    t = rng.randrange(len(steps))
    draw = rng.randrange(9)
    if draw == 0 and rounds[t] > 0:
        rounds[t] = rng.choice((rounds[t] - 1, True, rounds[t] + 1))
    elif not steps[t]:
        return schedule
    else:
        i = rng.randrange(len(steps[t]))
        send = steps[t][i]
        ranks = schedule.network.ranks
        if draw == 1:
            steps[t].append(send)
        elif draw == 2:
            del steps[t][i]
        elif draw == 3:
            other = rng.randrange(len(steps))
            steps[other].append(steps[t].pop(i))
        else:
            other = rng.choice(
                [
                    {"chunk": rng.choice((send.chunk + 1, send.chunk - 1, 1 << 70, float(send.chunk), True))},
                    {"src": rng.choice((rng.randrange(ranks), -1, ranks, "0"))},
                    {"dst": rng.choice((rng.randrange(ranks), send.src, False))},
                    {"kind": rng.choice(("copy", "reduce", "copy-input", "reduce-input", "multicast", None))},
                    {"via": rng.choice(((), ("s0",), ("s1", "s0"), ("none",), (0,)))},
                ]
            )
            steps[t][i] = send._replace(**other)
    made = tuple(Step(r, tuple(row)) for r, row in zip(rounds, steps, strict=True))
    return replace(schedule, steps=made)


@pytest.mark.parametrize("word", [32, 2])
def test_it_accepts_what_the_replay_of_the_document_accepts(word, monkeypatch):
    """With words of two bits the contributions of five ranks lie in three words."""
    monkeypatch.setattr(column_replay, "WORD", word)
    rng, seen = Random(word), Counter()
    for seed in range(150):
        schedule = randoms.schedule(seed)
        for case in (schedule, *(changed(schedule, rng) for _ in range(8))):
            wanted = by_document(case)
            assert column_replay.by_columns(case) == wanted, case.steps
            seen[wanted is not None, case.collective.combining] += 1
    assert len(seen) == 4 and min(seen.values()) > 100, seen


def test_many_ranks_and_chunks():
    network = topology("ring:70").network()
    schedule = max(chain_scans(network), key=lambda schedule: schedule.sends)
    assert schedule.sends > column_replay.MANY_SENDS
    assert column_replay.schedule(schedule) == replay.schedule(schedule.document)
    rng = Random(0)
    for _ in range(6):
        case = changed(schedule, rng)
        assert column_replay.by_columns(case) == by_document(case)


def test_a_wrong_schedule_of_many_sends_is_blamed_where_it_is_wrong():
    network = topology("ring:70").network()
    schedule = max(chain_scans(network), key=lambda schedule: schedule.sends)
    first = schedule.steps[7].sends[3]._replace(kind="copy")
    wrong = schedule.steps[7]._replace(sends=(*schedule.steps[7].sends, first))
    steps = (*schedule.steps[:7], wrong._replace(rounds=9), *schedule.steps[8:])
    with pytest.raises(VerificationError, match=r"steps\[\d+\]"):
        column_replay.schedule(replace(schedule, steps=steps))


def test_sends_of_switches_are_left_to_the_document():
    schedule = multicast_schedules.random_schedule(Random(1), 4)
    assert by_document(schedule) is not None and column_replay.by_columns(schedule) is None


def test_what_is_no_send_is_not_accepted():
    schedule = randoms.schedule(1)
    for row in ((0, 0, 1, "copy"), [0, 0, 1, "copy", ()], Send(0, 0, 1, "copy", ["s0"])):
        steps = (Step(9, (row,)), *schedule.steps)
        assert column_replay.by_columns(replace(schedule, steps=steps)) is None


def test_the_machine_of_a_network_is_read_once_and_no_longer_than_the_network_is_there():
    network = topology("ring:5").network()
    schedule = replace(next(chain_scans(topology("ring:5").network())), network=network)
    replay.schedule(schedule)
    place = id(network)
    read = machine._machines[place]
    replay.schedule(schedule)
    assert machine._machines[place] is read
    del schedule, network
    assert place not in machine._machines


def test_a_schedule_of_many_sends_is_replayed_by_columns_once(monkeypatch):
    """It enters a frontier after a replay where it was made. Another value with the same sends is another one."""
    found = next(chain_scans(topology("ring:4").network()))
    monkeypatch.setattr(column_replay, "MANY_SENDS", 1)
    calls = []
    by_columns = column_replay.by_columns
    monkeypatch.setattr(column_replay, "by_columns", lambda given: calls.append(given) or by_columns(given))
    assert column_replay.schedule(found) == column_replay.schedule(found)
    assert len(calls) == 1
    same = replace(found)
    assert column_replay.schedule(same) == column_replay.schedule(found)
    assert len(calls) == 2
    wrong = replace(found, steps=found.steps[:-1])
    for _ in range(2):
        with pytest.raises(VerificationError):
            column_replay.schedule(wrong)
