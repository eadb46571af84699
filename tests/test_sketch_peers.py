"""Rules of sketches that are one number: the peers of a rank in a step, and the memory of relays; applied alike."""

import copy
import itertools
import json
import random
from fractions import Fraction
from typing import Any

import pytest

import synth
from synth import api, bounds
from synth.checker.certificates import cuts
from synth.checker.documents import exact_frontier, sketches
from synth.checker.schedule import replay
from synth.cli.root import root
from synth.encodings.quotient import Quotient
from synth.encodings.step import StepEncoding
from synth.errors import FormatError, InfeasibleError, UsageError, VerificationError
from synth.model.collective import Collective
from synth.model.schedule import Problem, Schedule, Send, Step, problem_fingerprint
from synth.model.symmetry import subgroups
from synth.model.topology import Cap
from synth.solvers.cadical import Cadical
from synth.topologies import sketch_files
from tests.test_sketch_schedules import every_schedule, everywhere, found_by, refused


def under(machine, **rules):
    return synth.Sketch("rules", **rules).applied(synth.topology(machine)).network()


def peers(rows):
    """Return the most peers of a rank, on one side, in a step of rows of (unit, src, dst)."""
    counts = [0]
    for step in rows:
        links = {(a, b) for _, a, b in step}
        for rank in range(8):
            counts += [sum(a == rank for a, _ in links), sum(b == rank for _, b in links)]
    return max(counts)


def relayed(rows, collective):
    """Return the most units that a rank which neither has nor wants them holds between two steps."""
    spans = []
    for unit, rank in itertools.product(range(collective.units), range(collective.ranks)):
        if rank in collective.pre[unit] or rank in collective.post[unit]:
            continue
        got = [t for t, step in enumerate(rows) if any((u, b) == (unit, rank) for u, _, b in step)]
        sent = [t for t, step in enumerate(rows) if any((u, a) == (unit, rank) for u, a, _ in step)]
        if sent:
            spans.append((rank, min(got), max(sent)))
    most = 0
    for rank, t in itertools.product(range(collective.ranks), range(len(rows))):
        most = max(most, sum(at == rank and first <= t < last for at, first, last in spans))
    return most


LINKS = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3), (3, 0)]
TASKS = [
    Collective("all", 4, [0], [set(range(4))]),
    Collective("two", 4, [0, 0], [{3}, {2, 3}]),
    Collective("apart", 4, [0, 3], [{3}, {1}]),
    Collective("more", 4, [0, 0, 0], [{3}, {3}, {3}]),
]


@pytest.mark.parametrize("turned", [False, True])
def test_schedules_are_those_of_a_search_of_all(turned):
    """And bounds hold for all of them; where sums are the reversal, too."""
    rng, answers = random.Random(3), set()
    for case in range(60):
        links = rng.sample(LINKS, rng.randint(4, 5))
        machine = synth.Topology("m", 4, [synth.Link(*pair[::-1] if turned else pair, 1) for pair in links])
        collective, steps = rng.choice(TASKS), rng.randint(1, 3)
        rules: dict[str, Any] = {"fan": 1} if case % 3 else {"relay_memory": rng.randint(0, 1)}
        if case % 3 == 2:
            rules["relay_memory"] = 1
        network = under(machine, **rules)
        task = collective.reversed() if turned else collective
        free = synth.Topology("m", 4, [synth.Link(*pair, 1) for pair in links]).network()

        def keeps(rows, rules=rules, collective=collective):
            few = peers(rows) <= rules.get("fan", 9)
            return few and relayed(rows, collective) <= rules.get("relay_memory", 9)

        expected = any(map(keeps, every_schedule(free, collective, steps)))
        assert (found_by(StepEncoding(), network, task, 1, steps, steps) is not None) == expected
        if expected:
            assert bounds.steps(network, task).value <= steps >= bounds.flow(network, task, steps).value
        answers.add((case % 3, expected))
    assert len(answers) == 6


@pytest.mark.parametrize("name", ["allgather", "reducescatter", "alltoall", "broadcast", "reduce", "gather", "scatter"])
@pytest.mark.parametrize(("ranks", "fan", "least"), [(4, 1, 2), (5, 1, 3), (8, 1, 3), (9, 2, 2), (10, 2, 3), (6, 5, 1)])
def test_the_least_steps_of_a_fan(name, ranks, fan, least):
    """(1 + fan)^s ranks are reached in s steps, and none more; the certificate is checked."""
    network, collective = under(f"fully-connected:{ranks}", fan=fan), synth.collective(name, ranks)
    bound = bounds.steps(network, collective)
    assert bound.value == least == cuts.check(bound.certificate, network.document, collective.document)
    for wrong in (least + 1, least - 1):
        with pytest.raises(VerificationError, match=f"says {wrong}, found {least}"):
            cuts.check(bound.certificate | {"distance": wrong}, network.document, collective.document)
    if ranks == 5 and name != "alltoall":
        assert found_by(StepEncoding(), network, collective, 1, least, 8)
    if least > 1:
        free = synth.topology(f"fully-connected:{ranks}").network()
        renamed = bound.certificate | {"problem": problem_fingerprint(free, collective)}
        with pytest.raises(VerificationError, match=f"says {least}, found 1"):
            cuts.check(renamed, free.document, collective.document)


def test_steps_of_data_that_several_ranks_have():
    """Two holders reach six ranks of fan 1 in two steps; what three others have comes to one in two."""
    network = under("fully-connected:6", fan=1)
    for task, least in (
        (Collective("spread", 6, [{0, 1}], [set(range(6))]), 2),
        (Collective("meet", 6, [1, 2, 3], [{0}] * 3), 2),
        (Collective("several units", 6, [0] * 3, [{1}, {2}, {3}]), 2),
    ):
        bound = bounds.steps(network, task)
        assert bound.value == least == cuts.check(bound.certificate, network.document, task.document)
        assert found_by(StepEncoding(), network, task, 1, least, 6)


def test_the_fan_limits_what_the_links_of_a_rank_carry():
    wide = [synth.Link(a, b, 1 + (b == 0)) for a, b in itertools.permutations(range(4), 2)]
    three = tuple(i for i, link in enumerate(wide) if link.src == 3)
    machine = synth.Topology("m", 4, wide, [synth.Limit("port", three, 3), synth.Limit("first", three[:1], 1)])
    caps = under(machine, fan=1).caps
    assert caps[:2] == (Cap(three, 2), Cap(three[:1], 1))
    assert sorted(cap.units for cap in caps[2:]) == [1, 1, 1, 1, 2, 2, 2]
    assert under(machine, fan=3).caps == machine.network().caps
    assert [cap.units for cap in under("dgx-a100", fan=1).caps] == [cap.units for cap in under("dgx-a100").caps]


def test_a_fan_costs_rounds_and_both_bounds_say_so():
    found = api.sketched_frontier("fully-connected:4", "allgather", synth.Sketch("one", fan=1), max_steps=3)
    assert [(p.steps, p.rounds_per_chunk, p.status) for p in found.frontier.points] == [(2, Fraction(3), "optimal")]
    assert found.frontier.complete and found.free_bound(2) == 1 and found.cost(2) == 2
    assert all(peers([[(s.chunk, s.src, s.dst) for s in step.sends]]) == 1
               for step in found.frontier.points[0].schedule.steps)  # fmt: skip


def test_a_schedule_of_one_chunk_stands_before_the_bound_is_met(monkeypatch):
    """No other method than a solver's keeps rules: where the bound is out of reach, that is all there is."""
    tried = []

    def in_vain(state, steps, bound, _):
        tried.append((steps, [p.steps for p in state.points]))
        return None, "time", bound

    monkeypatch.setattr("synth.pareto.close_step_count.meet_bound", in_vain)
    found = api.sketched_frontier("rail:2x2", "alltoall", synth.Sketch("one", fan=1), max_steps=4).frontier
    assert found.points and found.points[0].status == "best-known"
    first = found.points[0].steps
    assert dict(tried)[first] == [first]


@pytest.mark.parametrize("name", ["alltoall", "reducescatter"])
def test_subgroups_of_the_portfolio_keep_the_rules_too(name):
    network, collective = under("rail:2x3", fan=2, relay_memory=2), synth.collective(name, 6)
    problem = Problem(network, collective, 1, 2, 4)
    plain = problem.reversed() if collective.combining else problem
    answers = [found_by(Quotient(group), network, collective, 1, 2, 4) for group in subgroups(
        plain.network, plain.collective)]  # replays what it finds  # fmt: skip
    assert any(answers) == (found_by(StepEncoding(), network, collective, 1, 2, 4) is not None)


def test_orbits_of_a_group_keep_the_fan_of_each_rank():
    """A turn of a complete machine, where one orbit of links may hold several links of a rank."""
    collective = synth.collective("allgather", 4)
    for fan in (1, 2, 3):
        network = under("fully-connected:4", fan=fan, symmetric=((1, 4),))
        for steps in (1, 2):
            found = found_by(StepEncoding(), network, collective, 1, steps, 3)
            assert (found is not None) == ((1 + fan) ** steps >= 4)
            model, _ = StepEncoding().apply(Problem(network, collective, 1, steps, 3))
            assert Cadical(seed=1).solve(model).status == ("sat" if found else "unsat")


def test_no_relays_is_a_rule_for_ways_that_bounds_know():
    """Each rank of a ring of 3 sends the data of the other two itself; on a ring of 5 it cannot."""
    ring = under("ring:3", relay_memory=0)
    assert bounds.flow(ring, synth.collective("alltoall", 3), None).value == 1
    task = Collective("turn", 4, [0, 1], [{1}, {3}])
    links = [(0, 1), (0, 2), (2, 1), (1, 3)]
    machine = synth.Topology("m", 4, [synth.Link(*pair, 1) for pair in links])
    assert bounds.flow(machine.network(), task, None).value == 1
    assert bounds.flow(under(machine, relay_memory=1), task, None).value == 1
    wide = Collective("wide", 4, [0], [{1}])
    assert bounds.flow(machine.network(), wide, None).value == Fraction(1, 2)
    none = under(machine, relay_memory=0)
    bound = bounds.flow(none, wide, None)
    assert bound.value == 1
    renamed = bound.certificate | {"problem": problem_fingerprint(machine.network(), wide)}
    with pytest.raises(VerificationError, match="overload"):
        cuts.check(renamed, machine.network().document, wide.document)
    with pytest.raises(InfeasibleError, match="its sketch allows no way") as error:
        bounds.steps(under("ring:5", relay_memory=0), synth.collective("alltoall", 5))
    assert error.value.certificate is not None
    documents = under("ring:5", relay_memory=0).document, synth.collective("alltoall", 5).document
    assert cuts.check(error.value.certificate, *documents) == 0


def test_what_fixed_sends_bring_is_no_relayed_data():
    network = under("line:3", relay_memory=0, fixed=((0, 0, 1, 1),))
    assert found_by(StepEncoding(), network, Collective("c", 3, [0], [{2}]), 2, 2, 4)
    with pytest.raises(UsageError, match=r"fixed\[0\]: rank 0 has more peers in step 1 than fan 1"):
        under("fully-connected:4", fan=1, fixed=((0, 0, 1, 1), (0, 0, 2, 1)))
    assert under("fully-connected:4", fan=1, fixed=((0, 0, 1, 1), (0, 0, 2, 2)))


def test_replays_count_peers_and_memory():
    task = Collective("c", 4, [0, 0], [{3}, {3}])
    star = (
        Step(2, (Send(0, 0, 1, "copy"), Send(1, 0, 2, "copy"))),
        Step(2, (Send(0, 1, 3, "copy"), Send(1, 2, 3, "copy"))),
    )
    assert replay.schedule(Schedule(under("fully-connected:4", fan=2), task, 1, star))
    with pytest.raises(VerificationError, match="rank 0 sends to more than 1 in this step"):
        replay.schedule(Schedule(under("fully-connected:4", fan=1), task, 1, star))
    apart = (Step(2, star[0].sends[:1]), Step(2, star[0].sends[1:]), star[1])
    with pytest.raises(VerificationError, match="rank 3 gets data from more than 1 in this step"):
        replay.schedule(Schedule(under("fully-connected:4", fan=1), task, 1, apart))
    through = (
        Step(2, (Send(0, 0, 1, "copy"), Send(1, 0, 1, "copy"))),
        Step(2, (Send(0, 1, 3, "copy"), Send(1, 1, 3, "copy"))),
    )
    assert replay.schedule(Schedule(under("fully-connected:4", relay_memory=2), task, 1, through))
    assert replay.schedule(Schedule(under("fully-connected:4", relay_memory=1), task, 1, star))
    with pytest.raises(VerificationError, match="rank 1 holds 2 chunks after step 1 to pass them on, 1 a unit"):
        replay.schedule(Schedule(under("fully-connected:4", relay_memory=1), task, 1, through))


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    folder = tmp_path_factory.mktemp("peers")
    file, output = folder / "s.yaml", folder / "f.json"
    file.write_text("fan: 1\nrelay_memory: 1\n")
    with pytest.raises(SystemExit) as end:
        names = ["--topo", "fully-connected:4", "--coll", "allgather", "--max-steps", "2"]
        root.main(["pareto", *names, "--sketch", str(file), "-o", str(output), "--fresh"])
    assert end.value.code == 0
    return json.loads(output.read_text())


def star(document):
    """Let rank 0 send in the first step to a second rank, what it sends there later, over a link with room."""
    steps = document["points"][0]["schedule"]["steps"]
    late = next(send for send in steps[1]["sends"] if send[1] == 0)
    steps[1]["sends"].remove(late)
    steps[0]["sends"].append([0, 0, late[2], "copy"])


def test_documents_are_verified(document):
    lines = exact_frontier.document(document)
    said = "at most 1 in a step; a rank holds at most 1 unit at once to pass on"
    assert any(line.endswith(said) for line in lines)
    assert not any("boxes" in line for line in lines)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (star, ""),
        (lambda d: everywhere(d, lambda r: r.update(fan=2)), ""),
        (lambda d: everywhere(d, lambda r: r.update(fan=0)), "expected a number"),
        (lambda d: everywhere(d, lambda r: r.update(fan=True)), "whole number"),
        (lambda d: everywhere(d, lambda r: r.update(fan="1")), "whole number"),
        (lambda d: everywhere(d, lambda r: r.update(relay_memory=-1)), "expected a number"),
        (lambda d: everywhere(d, lambda r: r.update(relay_memory=2)), "another problem"),
        (lambda d: everywhere(d, lambda r: r.update(relay_memory=None)), "whole number"),
        (lambda d: everywhere(d, lambda r: r.pop("fan")), ""),
        (lambda d: d["sketch"]["rules"].pop("fan"), "are not the rules for sends"),
        (lambda d: d["sketch"]["rules"].update(relay_memory=0), "are not the rules for sends"),
        (lambda d: d["bounds"][0]["certificate"].update(distance=1), "says 1, found 2"),
        (lambda d: d["bounds"][0].update(value="3"), "the certificate proves 2"),
    ],
)
def test_forged_documents_are_refused(document, change, says):
    refused(document, change, says)


def test_the_limits_of_a_fan_are_derived_from_the_machine(document):
    entry, topology = document["sketch"], document["topology"]
    assert sketches.check_links(entry, topology, "$.sketch") == (12, 12)
    looser = [limit | {"units": 2} for limit in topology["limits"]]
    for limits in (looser, topology["limits"][1:], [*topology["limits"], topology["limits"][0]], []):
        with pytest.raises(VerificationError, match="are not what the sketch leaves of the machine's limits"):
            sketches.check_links(entry, topology | {"limits": limits}, "$.sketch")


def test_a_document_whose_limits_stand_in_the_machine_is_read(document):
    """The limits of the fan tighten those of the machine that have the same links."""
    found = api.sketched_frontier("dgx-a100", "broadcast", synth.Sketch("two", fan=2), max_steps=2, time_limit=20)
    doc = copy.deepcopy(found.to_json())
    assert exact_frontier.document(doc)
    assert doc["topology"]["limits"] == doc["sketch"]["topology"]["limits"]


def test_files_give_numbers(tmp_path):
    file, machine = tmp_path / "s.yaml", synth.topology("ring:4")
    file.write_text("fan: 1\nrelay_memory: 0\n")
    sketch = sketch_files.load(file, machine)
    assert sketch == synth.Sketch("s", fan=1, relay_memory=0)
    assert str(sketch.applied(machine).network().rules) == "peers a step: 1; relayed units at a rank: 0"
    for text, says in (
        ("fan: 0", ":1: expected a whole number from 1, found '0'"),
        ("fan: two", "expected a whole number from 1, found 'two'"),
        ("relay_memory: -1", "expected a whole number from 0, found '-1'"),
        ("relay_memory: [1]", "expected a whole number from 0"),
    ):
        file.write_text(text)
        with pytest.raises(FormatError) as error:
            sketch_files.load(file, machine)
        assert says in str(error.value)
    for wrong in (0, True, 1.5, "1"):
        with pytest.raises(UsageError, match="a whole number from 1"):
            synth.Sketch("s", fan=wrong)  # type: ignore[arg-type]
