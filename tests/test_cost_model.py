"""The cost model: planted coefficients are found again, terms are those of the schedule, residuals and blanks are
message."""

import json
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth import api
from synth.catalog.tuner.cost_model import MeasuredTime, TimeModel, fit, lines, nominal
from synth.catalog.tuner.cost_terms import Shape, shape, terms
from synth.model.topology import Network, Route
from synth.program.message_cost import MessageCost
from synth.program.overheads import NCCL
from synth.runtime.reference.program_times import ProgramTimes

RING = api.baseline("ring", "full:4", "allgather")
DIRECT = api.baseline("direct", "full:4", "allgather")
SIZES = [1 << k for k in range(8, 28, 2)]


def rows(model, shapes, ways=(("Simple", 1),), sizes=SIZES, noise=lambda i: 1.0):
    made = [(found, protocol, n, size) for found in shapes for protocol, n in ways for size in sizes]
    return [MeasuredTime(*row, model.seconds(*row) * noise(i)) for i, row in enumerate(made)]


def flat(steps, cost):
    """Of a ring: its busiest link is the same in each step."""
    return Shape(Fraction(1, 4), (("7/10", steps),), (("7/10", cost),), (("7/10", cost),))


FLAT = [flat(1, 3e-11), flat(3, 2e-11), flat(5, 1e-11)]


def shapes():
    return [shape(s, api.lower(s)) for s in (RING, DIRECT)]


def test_the_terms_are_those_of_the_schedule():
    found = shape(RING)
    name = str(RING.network.latency)
    assert found.steps == ((name, 3),)
    row, links = terms(found, "Simple", 1, 4 << 20)
    assert row["launch Simple"] == 1
    assert row[f"step {name} Simple"] == 3
    seconds = RING.rounds_per_chunk * (1 << 20) / (RING.network.unit * 10**9)  # a unit is a quarter of the size
    assert row[f"wire {name} Simple"] == pytest.approx(float(seconds))
    assert (
        links[f"step {name} Simple"] == 1 and links[f"wire {name} Simple"] == row[f"wire {name} Simple"]
    )  # a ring's links never rest
    assert row["op"] == 0  # no program: blocks are not known


def test_instances_hide_latency_behind_each_other():
    name = str(RING.network.latency)
    chain, links = terms(shape(RING), "Simple", 2, 4 << 20)
    once = terms(shape(RING), "Simple", 1, 4 << 20)[0][f"wire {name} Simple"]
    assert chain[f"wire {name} Simple"] == pytest.approx(
        once * (1 / 2 + 1 / 2 / 3)
    )  # its half, and one of three steps of the other's
    assert links[f"wire {name} Simple"] == once
    model = nominal(RING.network)
    assert model.seconds(shape(RING), "LL", 2, 1 << 16) < model.seconds(shape(RING), "LL", 1, 1 << 16)


def test_slices_follow_at_the_pace_of_the_busiest_link():
    """Recursive doubling uses other links in each step: many slices fill them all at once."""
    found = shape(api.baseline("recursive-doubling", "full:4", "allreduce"))
    name = found.steps[0][0]
    assert found.links[0][1] < found.wire[0][1]
    few, many = (terms(found, "Simple", 1, size)[0][f"wire {name} Simple"] / size for size in (1 << 20, 1 << 32))
    assert few == pytest.approx(found.wire[0][1]) and many == pytest.approx(found.links[0][1], rel=0.01)


def test_slices_and_instances_show_in_operations_and_blocks():
    found = shape(RING, api.lower(RING))
    once, twice = terms(found, "Simple", 1, 64 << 20)[0], terms(found, "Simple", 2, 64 << 20)[0]
    assert found.ops > 0 and found.block > 0
    assert twice["block Simple"] == once["block Simple"] / 2
    assert once["op"] > terms(found, "Simple", 1, 1 << 20)[0]["op"]
    assert terms(found, "LL", 1, 64 << 20)[0]["op"] > once["op"]  # smaller slices


def test_links_of_two_latencies_are_two_classes():
    fast, slow = Route(0, 1, 4, (), Fraction(1)), Route(1, 2, 1, (), Fraction(5))
    routes = (fast, slow, fast._replace(src=1, dst=0), slow._replace(src=2, dst=1))
    network = Network("pair", 3, routes, unit=Fraction(10))
    found = shape(api.baseline("direct", network, "allgather"))
    assert {name for name, _ in found.steps} <= {"1", "5"}
    assert [name for name, _ in found.wire] == ["5"]  # the slow link holds every step up


PLANTED = TimeModel("fitted", {"step 7/10 Simple": 2e-6, "wire 7/10 Simple": 1.25, "launch Simple": 5e-6}, "")


def test_planted_coefficients_are_found_again():
    found = fit(rows(PLANTED, FLAT, (("Simple", 1), ("Simple", 4))))
    for name, value in PLANTED.coefficients.items():
        assert found.coefficients[name] == pytest.approx(value, rel=1e-6)
    assert found.greatest < 1e-6
    said = " ".join(lines(found.to_json(), 25))
    for words in ("2 µs a step", "80% of the nominal", "20 GB/s a unit", "5 µs a launch (Simple)"):
        assert words in said


@settings(max_examples=25, deadline=None)
@given(st.floats(1e-7, 1e-4), st.floats(0.5, 4), st.floats(0, 1e-4), st.integers(0, 1 << 30))
def test_noise_of_a_share_is_off_by_no_more_than_that_share(step, wire, launch, seed):
    from random import Random

    random = Random(seed)
    model = TimeModel("fitted", {"step 7/10 Simple": step, "wire 7/10 Simple": wire, "launch Simple": launch}, "")
    found = fit(rows(model, FLAT, noise=lambda i: 1 + random.uniform(-0.02, 0.02)))
    assert all(value >= 0 for value in found.coefficients.values())
    assert found.greatest < 0.06
    assert found.typical <= found.greatest


def test_what_cannot_be_distinguished_is_left_out_and_said():
    alone = [flat(3, 2e-11)]
    found = fit(rows(PLANTED, alone))
    assert found.left_out == ("launch Simple",)  # one schedule: 3 steps and a launch come always together
    assert found.greatest < 1e-6
    assert "do not tell apart: launch" in lines(found.to_json())[1]


def test_a_fit_predicts_what_it_knows_and_nothing_else():
    found = fit(rows(nominal(RING.network), shapes(), (("Simple", 1), ("LL", 1))))
    assert found.seconds(shapes()[0], "LL", 1, 1 << 20) is not None
    assert found.seconds(shapes()[0], "LL128", 1, 1 << 20) is None
    with pytest.raises(ValueError):
        fit([])
    with pytest.raises(ValueError):
        fit([MeasuredTime(shapes()[0], "Simple", 1, 1024, 0.0)])


def test_the_nominal_model_is_the_prediction_of_the_frontier_plus_the_protocol():
    model, size = nominal(RING.network), 1 << 20
    plain = float(len(RING.steps) * RING.network.latency) * 1e-6
    wire = float(RING.rounds_per_chunk * size * RING.collective.unit_share / (RING.network.unit * 10**9))
    for protocol, cost in NCCL.by_protocol:
        expected = float(cost.launch + 3 * cost.hop) * 1e-6 + plain + float(cost.wire) * wire
        assert model.seconds(shape(RING), protocol, 1, size) == pytest.approx(expected)
    assert "not measured" in model.says
    assert lines(model.to_json()) == []


def test_a_model_is_json():
    doc = fit(rows(PLANTED, [flat(3, 2e-11)])).to_json()
    assert json.loads(json.dumps(doc)) == doc
    assert doc["kind"] == "fitted" and doc["rows"] == len(SIZES)


def test_planted_costs_of_messages_are_found_by_protocol():
    coefficients = {}
    for protocol, step, message in (("Simple", 4e-6, 3e-7), ("LL", 1e-6, 1e-7)):
        coefficients |= {f"step 7/10 {protocol}": step, f"wire 7/10 {protocol}": 1.1, f"message {protocol}": message}
    found = [flat(steps, 2e-11)._replace(messages=messages) for steps, messages in ((1, 6), (3, 0), (2, 9), (7, 0))]
    fitted = fit(rows(TimeModel("fitted", coefficients, ""), found, (("Simple", 1), ("LL", 1))))
    for name, value in coefficients.items():
        assert fitted.coefficients[name] == pytest.approx(value, rel=1e-6)
    assert "--per-send LL=0.1us,Simple=0.3us" in lines(fitted.to_json())[0]
    assert lines(fitted.to_json())[1] == "the fit is off by 0.0% typically, 0.0% at most"


@pytest.mark.parametrize("cost", ["LL=0.4us", "LL=0us"])
def test_the_cost_of_messages_is_found_from_times_of_programs(cost):
    """The executor counts each message at both ends; the fit sees times of whole calls alone."""
    timed = []
    algorithms = (("direct", "allgather"), ("binomial", "broadcast"))
    for (name, task), machine in product(algorithms, ("full:4", "full:8", "full:16")):
        schedule = api.baseline(name, machine, task)
        program = api.lower(schedule, protocol="LL")
        times = ProgramTimes(program, schedule.network, MessageCost.parse(cost))
        for size in (64, 128, 256):
            timed.append(MeasuredTime(shape(schedule), "LL", 1, size, times.seconds(size)))
    fitted = fit(timed)
    planted = float(MessageCost.parse(cost).microseconds("LL"))
    assert fitted.coefficients["message LL"] * 1e6 == pytest.approx(planted, abs=0.03)
    assert fitted.greatest < 0.05
