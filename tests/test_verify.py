"""The replay accepts right schedules and says where wrong ones go wrong."""

import copy
import json
import pickle
import random
import re
from dataclasses import replace
from fractions import Fraction

import pytest

from synth.checker.schedule import replay as verify
from synth.errors import VerificationError
from synth.model.collective import collective, pattern
from synth.model.schedule import Schedule, Send, Step
from synth.model.topology import Limit, Link, Topology
from synth.topologies import topology
from tests.finer_units import finer


def ring_allgather(n):
    """Every rank's chunk once round the ring in one direction."""
    steps = [Step(1, tuple(Send((i - t) % n, i, (i + 1) % n) for i in range(n))) for t in range(n - 1)]
    return Schedule(topology(f"ring:{n}").network(), collective("allgather", n), 1, tuple(steps))


def swap_allreduce():
    step = Step(1, (Send(0, 0, 1, "reduce"), Send(0, 1, 0, "reduce")))
    return Schedule(topology("line:2").network(), collective("allreduce", 2), 1, (step,))


def test_a_right_schedule_is_measured():
    replay = verify.schedule(ring_allgather(5))
    assert (replay.chunks, replay.steps, replay.rounds, replay.sends) == (1, 4, 4, 20)
    assert verify.schedule(swap_allreduce()).rounds == 1


def test_round_trip_between_processes():
    made = swap_allreduce()
    through = Send(0, 0, 1, "copy", ("s0",))
    made = replace(made, steps=(*made.steps, Step(2, ()), Step(1, (through, Send(0, 1, 0, "reduce-input")))))
    again = pickle.loads(pickle.dumps(made))
    assert again == made
    assert all(isinstance(step, Step) and all(isinstance(send, Send) for send in step.sends) for step in again.steps)


# the place in the document = its new value, or + what is appended, or - for what is left out | the sentence
WRONG = r"""
steps.0.sends.0.0 = 3            | steps[0].sends[0]: rank 0 sends chunk 3
steps.0.sends.0.2 = 2            | steps[0].sends[0]: there is no link 0 -> 2
steps.0.sends + [0, 0, 1, "copy"] | carries 2 chunks
steps.2.sends.0 -                | ends without chunk
steps.0.rounds = 0               | steps[0].rounds
steps.0.rounds = true            | whole number
steps.0.sends.0.3 = "reduce"     | does not combine
steps.1.sends.0.3 = "reduce"     | steps[1].sends[0]: kind 'reduce'
steps.0.sends.1.0 = true         | sends[1][0]: expected a whole number, found True
steps.0.sends.1.1 = 1.0          | sends[1][1]: expected a whole number, found 1.0
steps.0.sends.1.2 = -2           | sends[1][2]: expected a number in 0..3, found -2
steps.0.sends.1.0 = 4            | sends[1][0]: expected a number in 0..3, found 4
steps.0.sends.1.3 = ["copy"]     | sends[1][3]: expected one of copy, reduce, copy-input, reduce-input, found ['copy']
steps.0.sends.1.3 -              | sends[1]: expected [chunk, src, dst, kind]
steps.0.sends.1 = "copy"         | sends[1]: expected [chunk, src, dst, kind]
collective.pre + [0, 0]          | pre[4]: chunk 0 at rank 0 is listed twice
collective.pre.1.0 = true        | pre[1][0]: expected a whole number, found True
collective.post.3.1 = 4          | post[3][1]: expected a number in 0..3, found 4
collective.post.0 -              | pre and post are not those of allgather
collective.combining = true      | combining
topology.links + [0, 1, 1]       | listed twice
topology.links.0.2 = -1          | links[0][2]
topology.links.0.2 = 1.5         | whole number
chunks = 3                       | not a multiple
steps -                          | 'steps' is missing
stepz = 1                        | not a known field
"""


@pytest.mark.parametrize("row", WRONG.strip().splitlines())
def test_what_is_wrong_is_named(row):
    change, says = (part.strip() for part in row.split(" | "))
    path, sign, value = (change + " ").split(" ", 2)
    doc = ring_allgather(4).to_json()
    del doc["fingerprint"]
    *way, last = (int(key) if key.isdigit() else key for key in path.split("."))
    inner = doc
    for key in way:
        inner = inner[key]
    if sign == "-":
        del inner[last]
    elif sign == "+":
        inner[last].append(json.loads(value))
    else:
        inner[last] = json.loads(value)
    with pytest.raises(VerificationError, match=re.escape(says)):
        verify.schedule(doc)


def test_a_contribution_may_not_count_twice():
    made = swap_allreduce()
    with pytest.raises(VerificationError, match="counts twice"):
        verify.schedule(replace(made, steps=(*made.steps, Step(1, (Send(0, 0, 1, "reduce"),)))))


def test_copies_land_before_reductions_and_inputs_survive():
    net, task = topology("fully-connected:3").network(), collective("reduce", 3, [1])
    first = Step(1, (Send(0, 0, 1, "copy"), Send(0, 2, 1, "reduce")))
    doc = Schedule(net, task, 1, (first,)).to_json()
    with pytest.raises(VerificationError, match="lacks rank 1's contribution"):
        verify.schedule(doc)
    both = (first, Step(1, (Send(0, 1, 2, "copy-input"),)), Step(1, (Send(0, 2, 1, "reduce"),)))
    verify.schedule(Schedule(net, task, 1, both).to_json())


def test_limits_bind():
    links = tuple(Link(a, b, Fraction(1)) for a in range(3) for b in range(3) if a != b)
    out = Limit("rank 0 out", (0, 1), Fraction(1))
    net = Topology("k3", 3, links, (out,)).network()
    task = pattern(3, [(0, 1), (0, 2)])
    sends = (Send(0, 0, 1), Send(1, 0, 2))
    with pytest.raises(VerificationError, match="limit 0 carries 2 chunks, 1 rounds allow 1"):
        verify.schedule(Schedule(net, task, 1, (Step(1, sends),)))
    verify.schedule(Schedule(net, task, 1, (Step(2, sends),)))


def test_physical_wires_bind_and_paths_must_exist():
    links = tuple(link for r in range(3) for link in (Link(r, 3, Fraction(2)), Link(3, r, Fraction(2))))
    net = finer(Topology("star", 3, links, switches=("s0",)).network(), 2)
    task = pattern(3, [(0, 1), (0, 2), (1, 2)])
    good = Schedule(
        net, task, 1, (Step(1, (Send(0, 0, 1, via=("s0",)), Send(1, 0, 2, via=("s0",)), Send(2, 1, 2, via=("s0",)))),)
    )
    verify.schedule(good)
    doc = good.to_json()
    doc["topology"]["limits"] = []
    doc["topology"]["wires"][0][2] = 1
    doc.pop("fingerprint")
    with pytest.raises(VerificationError, match="wire 0 -> s0 carries 2"):
        verify.schedule(doc)


def test_a_number_changed_in_the_head_does_not_fit_the_fingerprint():
    doc = ring_allgather(4).to_json()
    doc["topology"]["links"][0][2] = 2
    with pytest.raises(VerificationError, match="fingerprint"):
        verify.schedule(doc)


def test_a_changed_chunk_or_destination_is_never_accepted():
    rng = random.Random(7)
    base = ring_allgather(6).to_json()
    for _ in range(300):
        doc = copy.deepcopy(base)
        send = rng.choice(rng.choice(doc["steps"])["sends"])
        place = rng.choice([0, 2])  # another source may be just as right
        send[place] = rng.choice([x for x in range(-1, 7) if x != send[place]])
        with pytest.raises(VerificationError):
            verify.schedule(doc)
