"""Rules of sketches for whole schedules: symmetries and fixed sends, in encoding, bound, replay, documents alike."""

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
from synth.checker.documents import exact_frontier
from synth.checker.schedule import replay
from synth.cli.root import root
from synth.encodings.quotient import Quotient
from synth.encodings.step import StepEncoding
from synth.errors import FormatError, InfeasibleError, UsageError, VerificationError
from synth.model.collective import Collective
from synth.model.schedule import Problem, Schedule, Send, Step, problem_fingerprint
from synth.model.send_mask import send_mask
from synth.model.symmetry import subgroups
from synth.model.topology import Network
from synth.solvers.cadical import Cadical
from synth.topologies import sketch_files

MACHINE = synth.topology("rail:2x3")  # ranks 0-2 and 3-5; rails 0-3, 1-4, 2-5


def under(machine=MACHINE, **rules):
    return synth.Sketch("rules", **rules).applied(machine).network()


def found_by(encoding, network, collective, chunks, steps, rounds):
    """Return a replayed schedule, None where the encoding has none."""
    problem = Problem(network, collective, chunks, steps, rounds)
    plain = problem.reversed() if collective.combining else problem
    model, inverse = encoding.apply(plain)
    answer = Cadical(seed=0).solve(model)
    if answer.status != "sat":
        return None
    found = encoding.invert(inverse, answer.values)
    found = found.reversed() if collective.combining else found
    schedule = Schedule(network, collective, chunks, found.steps)
    replay.schedule(schedule)
    return schedule


def every_schedule(network, collective, steps):
    """Yield, as rows of (unit, src, dst) of each step, the schedules of one chunk and steps of one round, in which a
    rank gets a chunk once."""

    def search(held, made):
        if all(want <= have for want, have in zip(collective.post, held, strict=True)):
            yield made + [[]] * (steps - len(made))
        if len(made) == steps:
            return
        options = []
        for route in network.routes:
            fresh: list[tuple | None] = [None]
            for unit, have in enumerate(held):
                if route.src in have and route.dst not in have:
                    fresh.append((unit, route.src, route.dst))
            options.append(fresh)
        for chosen in itertools.product(*options):
            rows = [row for row in chosen if row]
            if not rows or len({(unit, dst) for unit, _, dst in rows}) < len(rows):
                continue
            after = list(held)
            for unit, _, dst in rows:
                after[unit] |= {dst}
            yield from search(after, [*made, rows])

    yield from search([frozenset(held) for held in collective.pre], [])


def invariant(permutations, units):
    def keeps(rows):
        for ranks, image in zip(permutations, units, strict=True):
            for step in rows:
                if {(image[u], ranks[a], ranks[b]) for u, a, b in step} != set(step):
                    return False
        return True

    return keeps


RING = [(0, 1), (1, 2), (2, 3), (3, 0)]
PARTS = [(RING, 3), ([*RING, (1, 0), (3, 2)], 2), ([(0, 1), (1, 0), (2, 3), (3, 2), (0, 3), (1, 2)], 2)]


def test_symmetric_schedules_are_those_of_a_search_of_all():
    """On parts of a square, for data that the symmetry may move or not."""
    rng, answers, refused = random.Random(7), [], 0
    turns = [(1, 4), (2, 4), (1, 0, 3, 2), (0, 3, 2, 1), (1, 0, 2, 3)]
    tasks = [synth.collective("broadcast", 4, 0), Collective("all", 4, [0, 2], [set(range(4))] * 2)]
    tasks += [Collective("half", 4, [1, 3], [{0, 2}] * 2), Collective("swap", 4, [0, 2], [{2}, {0}])]
    tasks += [Collective("turn", 4, [0, 1], [{1}, {0}]), Collective("next", 4, [0, 2], [{1, 2}, {3, 0}])]
    for _ in range(120):
        links, most = rng.choice(PARTS)
        machine = synth.Topology("m", 4, [synth.Link(*pair, 1) for pair in links], nodes=(0,) * 4)
        collective, steps = rng.choice(tasks), rng.randint(1, most)
        try:
            network = under(machine, symmetric=rng.sample(turns, rng.choice([1, 1, 2])))
            mask = send_mask(network, collective)
        except UsageError as error:
            assert "does not keep" in str(error)
            refused += 1
            continue
        assert mask is not None
        keeps = invariant([s.ranks for s in mask.symmetries], [s.units for s in mask.symmetries])
        expected = any(map(keeps, every_schedule(network, collective, steps)))
        assert (found_by(StepEncoding(), network, collective, 1, steps, steps) is not None) == expected
        answers.append(expected)
    assert {True, False} == set(answers) and refused


@pytest.mark.parametrize("name", ["allgather", "reducescatter"])
def test_subgroups_of_the_portfolio_keep_the_sketch_too(name):
    network, collective = under(symmetric=((3, 6),)), synth.collective(name, 6)
    problem = Problem(network, collective, 1, 2, 3)
    plain = problem.reversed() if collective.combining else problem
    for group in subgroups(plain.network, plain.collective):
        found_by(Quotient(group), network, collective, 1, 2, 3)  # replays what it finds
    assert found_by(StepEncoding(), network, collective, 1, 2, 3)


@pytest.mark.parametrize("name", ["reducescatter", "alltoall"])
def test_bounds_are_those_without_symmetries(name):
    """They are averages over symmetries, so that a symmetric sketch has the same; the schedule is its own image."""
    found = api.sketched_frontier("rail:2x2", name, synth.Sketch("turn", symmetric=((2, 4), (1, 2))), max_steps=2)
    point = found.frontier.points[-1]
    assert point.rounds_per_chunk == point.bound.value == found.free_bound(2) and found.cost(2) == 0
    for turn in ((1, 0, 3, 2), (2, 3, 0, 1)):
        units = synth.collective(name, 4).unit_permutation(turn)
        assert units
        for step in point.schedule.steps:
            rows = {(send.chunk, send.src, send.dst) for send in step.sends}
            images = set()
            for chunk, src, dst in rows:
                unit, i = divmod(chunk, point.chunks)
                images.add((units[unit] * point.chunks + i, turn[src], turn[dst]))
            assert images == rows


def test_what_symmetries_do_not_fit():
    wrong: list[tuple[Any, str]] = [
        (((0, 1, 1, 2, 3, 4),), "the image of each rank, or"),
        (((4, 4),), "the image of each rank, or"),
        (((2,),), "the image of each rank, or"),
        (((1, 2),) * 33, "33 symmetries; at most 32"),
        (((1, 0, 2),), "is no permutation of ranks 0 to 5"),
        (((1, 4),), "turns groups of 4 ranks, which 6 ranks are not made of"),
        (((1, 0, 2, 3, 4, 5),), "does not keep the links and limits of rail:2x3 under s"),
    ]
    for symmetric, says in wrong:
        with pytest.raises(UsageError, match=says):
            synth.Sketch("s", symmetric=symmetric).applied(MACHINE)
    with pytest.raises(UsageError, match="does not keep broadcast"):
        send_mask(under(symmetric=((3, 6),)), synth.collective("broadcast", 6, 0))
    with pytest.raises(UsageError, match="collectives that copy"):
        send_mask(under(symmetric=((3, 6),)), synth.collective("allreduce", 6))
    machine = synth.Topology("all", 4, [synth.Link(a, b, 1) for a, b in itertools.permutations(range(4), 2)],
                             nodes=(0, 0, 1, 1))  # fmt: skip
    with pytest.raises(UsageError, match="does not keep the other rules of the sketch"):
        send_mask(under(machine, ways="home", symmetric=((0, 2, 1, 3),)), synth.collective("allgather", 4))


def test_files_give_symmetries(tmp_path):
    file = tmp_path / "s.yaml"
    file.write_text("symmetric: [[3, 6], [1, 2, 0, 4, 5, 3]]\n")
    sketch = sketch_files.load(file, MACHINE)
    assert sketch == synth.Sketch("s", symmetric=((3, 6), (1, 2, 0, 4, 5, 3)))
    network = sketch.applied(MACHINE).network()
    assert str(network.rules) == "symmetric under [3, 6] and [1, 2, 0, 4, 5, 3]"
    assert Network.from_json(network.to_json()).rules == network.rules
    for text, says in (
        ("symmetric: 3", ":1: expected a list of 1 to 32 symmetries such as [4, 8]"),
        ("symmetric: []", ":1: expected a list"),
        ("symmetric:\n- [3, 6]\n- [6, 3]", ":3: expected the image of each rank, or an offset below a size, found '6,"),
        ("symmetric:\n- 3", ":2: expected the image of each rank"),
        ("symmetric:\n- [a, b]", ":2: expected the image"),
        ("symmetric:\n- [3, 6]\n- [1, 4]", ":3: [1, 4] turns groups of 4 ranks, which 6 ranks are not made of"),
        ("symmetric:\n- [3, 6]\n- [1, 0, 2, 3, 4, 5]", ":3: [1, 0, 2, 3, 4, 5] does not keep the links and limits"),
    ):  # fmt: skip
        file.write_text(text)
        with pytest.raises(FormatError) as error:
            sketch_files.load(file, MACHINE)
        assert says in str(error.value) and "\n" not in str(error.value)


def written(folder, text, steps=2):
    """Return the document of an allgather under a sketch, which verifies."""
    file, output = folder / "s.yaml", folder / "f.json"
    file.write_text(text)
    names = ["--topo", "rail:2x2", "--coll", "allgather", "--max-steps", str(steps)]
    with pytest.raises(SystemExit) as end:
        root.main(["pareto", *names, "--sketch", str(file), "-o", str(output), "--fresh"])
    assert end.value.code in (0, 4)
    return json.loads(output.read_text())


@pytest.fixture(scope="module")
def symmetric(tmp_path_factory):
    return written(tmp_path_factory.mktemp("symmetric"), "symmetric: [[2, 4], [1, 2]]\n")


def everywhere(document, change):
    """Apply a change to the rules of the frontier's topology, of its sketch, and of each schedule's."""
    for topology in (document["topology"], *(point["schedule"]["topology"] for point in document["points"])):
        change(topology["rules"])
    change(document["sketch"]["rules"])
    for point in document["points"]:
        point["schedule"].pop("fingerprint", None)


def refused(document, change, says):
    forged = copy.deepcopy(document)
    change(forged)
    with pytest.raises(VerificationError) as error:
        exact_frontier.document(forged)
    assert says in str(error.value)


def test_symmetric_documents_are_verified(symmetric):
    lines = exact_frontier.document(symmetric)
    said = "is of schedules that keep rules: each is its own image under 2 symmetries of ranks"
    assert any(line.endswith(said) for line in lines)
    assert not any("boxes" in line for line in lines)


def swapped(document):
    """Exchange two chunks of one rank on their first links, which leaves loads and holdings as they are."""
    sends = document["points"][0]["schedule"]["steps"][0]["sends"]
    first = next(send for send in sends if send[1] == 0)
    other = next(send for send in sends if send[1] == 0 and send[2] != first[2] and send[0] != first[0])
    first[0], other[0] = other[0], first[0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (swapped, "has its image under a symmetry of the sketch"),
        (lambda d: everywhere(d, lambda r: r["symmetric"].append([3, 2, 1, 0])), "another problem"),
        (lambda d: everywhere(d, lambda r: r.update(symmetric=[[0, 3, 2, 1], [1, 2]])), ""),
        (lambda d: everywhere(d, lambda r: r.update(symmetric=[[1, 3]])), "turns groups of 3 ranks"),
        (lambda d: everywhere(d, lambda r: r.update(symmetric=[[0, 0, 1, 2]])), "is no permutation of 4 ranks"),
        (lambda d: everywhere(d, lambda r: r.update(symmetric=[[1 << 16]])), "expected a number"),
        (lambda d: everywhere(d, lambda r: r.update(symmetric=[3])), "expected a list"),
        (lambda d: everywhere(d, lambda r: r.update(symmetric=[[1, 2]] * 33)), "at most 32 are checked"),
        (lambda d: everywhere(d, lambda r: r.pop("symmetric")), ""),
        (lambda d: d["sketch"]["rules"].update(symmetric=[[2, 4]]), "are not the rules for sends of the sketch"),
        (lambda d: d["topology"].pop("rules"), "another topology"),
    ],
)
def test_forged_symmetric_documents_are_refused(symmetric, change, says):
    refused(symmetric, change, says)


def test_a_symmetry_that_moves_data_elsewhere_is_refused():
    network, collective = under(symmetric=((3, 6),)), synth.collective("broadcast", 6, 0)
    schedule = {"schema": "synth.schedule/1", "topology": network.document, "collective": collective.to_json(1)}
    with pytest.raises(VerificationError, match="does not keep unit 0"):
        replay.schedule(schedule | {"chunks": 1, "steps": []})


def test_bounds_under_symmetries_are_of_another_problem_than_without():
    collective = synth.collective("allgather", 6)
    network, free = under(symmetric=((3, 6),)), MACHINE.network()
    bound = bounds.flow(network, collective, 2)
    assert bound.value == bounds.flow(free, collective, 2).value == Fraction(33, 29)
    with pytest.raises(VerificationError, match="another problem"):
        cuts.check(bound.certificate, free.document, collective.document, steps=2)


@pytest.mark.parametrize("turned", [False, True])
def test_schedules_with_fixed_sends_are_those_of_a_search_of_all(turned):
    """And bounds hold for all of them; where sums are the reversal, sends are fixed from the end."""
    rng, answers = random.Random(11), []
    goals = [[{1, 2}, {3, 0}], [set(range(4))] * 2, [{2}, {0}], [{3}, {0}]]
    for _ in range(90):
        links, most = rng.choice(PARTS)
        collective, steps = Collective("c", 4, [0, 2], rng.choice(goals)), rng.randint(1, most)
        sends = set()
        for unit in rng.sample((0, 1), rng.choice([1, 1, 2])):
            sends.add((unit, *rng.choice(links), rng.randint(1, steps)))
        back = {(unit, b, a, steps + 1 - step) for unit, a, b, step in sends}
        machine = synth.Topology("m", 4, [synth.Link(*pair[::-1] if turned else pair, 1) for pair in links])
        task = collective.reversed() if turned else collective
        network = under(machine, fixed=tuple(back if turned else sends))
        try:
            send_mask(network, task)
        except UsageError as error:
            assert ("wants the sum" if turned else "has it before") in str(error)
            continue

        def has(rows, sends=sends):
            return all((unit, a, b) in rows[step - 1] for unit, a, b, step in sends)

        free = synth.Topology("m", 4, [synth.Link(*pair, 1) for pair in links]).network()
        expected = any(map(has, every_schedule(free, collective, steps)))
        assert (found_by(StepEncoding(), network, task, 1, steps, steps) is not None) == expected
        if expected:
            assert bounds.steps(network, task).value <= steps >= bounds.flow(network, task, steps).value
        answers.append(expected)
    assert {True, False} == set(answers)


def test_bounds_count_what_fixed_sends_need():
    """The unit of rank 0 fills the link 0 -> 2 in step 1, so that no other crosses there then."""
    sketch = synth.Sketch("start", fixed=((0, 0, 2, 1),))
    found = api.sketched_frontier("rail:2x2", "allgather", sketch, max_steps=2)
    (point,) = found.frontier.points
    assert (point.rounds_per_chunk, point.status, found.free_bound(2)) == (
        Fraction(11, 10),
        "optimal",
        Fraction(20, 19),
    )
    first = {tuple(send[:3]) for send in point.schedule.steps[0].sends}
    assert first >= {(chunk, 0, 2) for chunk in range(point.chunks)}


def test_what_fixed_sends_do_not_fit(tmp_path):
    for row in ((0, 0, 3), (0, 0, 3, 0), (0, -1, 3, 1)):
        with pytest.raises(UsageError, match="the step from 1"):
            synth.Sketch("s", fixed=(row,))
    with pytest.raises(UsageError, match="2 sends; at most 4096, each once"):
        synth.Sketch("s", fixed=((0, 0, 3, 1),) * 2)
    file = tmp_path / "s.yaml"
    for text, says in (
        ("fixed: 3", ":1: expected a list of 1 to 4096 sends such as {unit: 0, link: 0-3, step: 1}"),
        ("fixed:\n- {unit: 0, link: 0-3}", ":2: expected a send such as {unit: 0, link: 0-3, step: 1}, each once"),
        ("fixed:\n- {unit: 0, link: 0-3, step: 0}", ":2: expected a send"),
        ("fixed:\n- {unit: 0, link: 03, step: 1}", ":2: expected a send"),
        ("fixed:\n- {unit: 0, link: [0-3], step: 1}", ":2: expected a send"),
        ("fixed:\n- {unit: x, link: 0-3, step: 1}", ":2: expected a send"),
        ("fixed:\n- {unit: 0, link: 0-4, step: 1}", ":2: rail:2x3 under s has no link from rank 0 to rank 4"),
        ("phases: {across: 2}\nfixed:\n- {unit: 0, link: 0-3, step: 1}", ":3: phases do not open the link"),
    ):  # fmt: skip
        file.write_text(text)
        with pytest.raises(FormatError) as error:
            sketch_files.load(file, MACHINE)
        assert says in str(error.value) and "\n" not in str(error.value)
    file.write_text("fixed: [{unit: 1, link: 1-4, step: 2}]")
    sketch = sketch_files.load(file, MACHINE)
    assert sketch == synth.Sketch("s", fixed=((1, 1, 4, 2),))
    network = sketch.applied(MACHINE).network()
    assert str(network.rules) == "fixed sends: 1" and Network.from_json(network.to_json()).rules == network.rules
    gather, reduction = synth.collective("allgather", 6), synth.collective("reducescatter", 6)
    for rules, collective, says in (
        ({"fixed": ((6, 0, 3, 1),)}, gather, "allgather has units 0 to 5"),
        ({"fixed": ((3, 0, 3, 1),)}, gather, "rank 3 has it before"),
        ({"fixed": ((0, 0, 3, 1),)}, reduction, "rank 0 wants the sum"),
        ({"fixed": ((0, 0, 3, 1), (0, 4, 3, 2))}, gather, "rank 3 gets it in another fixed send"),
        ({"fixed": ((0, 3, 0, 1), (0, 3, 4, 2))}, reduction, "rank 3 sends it in another fixed send"),
        ({"fixed": ((1, 0, 3, 2),), "ways": "own rail"}, gather, "the other rules of the sketch do not allow"),
        ({"fixed": ((0, 0, 3, 1),), "symmetric": ((3, 6),)}, gather, "does not keep the other rules"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=says):
            send_mask(under(**rules), collective)
    both = under(fixed=((0, 0, 3, 1), (3, 3, 0, 1)), symmetric=((3, 6),))
    assert found_by(StepEncoding(), both, gather, 1, 2, 3)
    early = under(fixed=((0, 1, 4, 1),))  # before rank 1 can have it
    with pytest.raises(InfeasibleError, match="its sketch allows no way") as none:
        bounds.steps(early, gather)
    assert none.value.certificate and cuts.check(none.value.certificate, early.document, gather.document) == 0
    with pytest.raises(VerificationError, match="is left by a link"):
        free = MACHINE.network()
        renamed = none.value.certificate | {"problem": problem_fingerprint(free, gather)}
        cuts.check(renamed, free.document, gather.document)


@pytest.fixture(scope="module")
def fixed(tmp_path_factory):
    return written(tmp_path_factory.mktemp("fixed"), "fixed: [{unit: 0, link: 0-2, step: 1}]\n")


def without_one(document):
    """Take one chunk of the fixed send to the second step, in which its link has room."""
    steps = document["points"][0]["schedule"]["steps"]
    steps[0]["sends"] = [send for send in steps[0]["sends"] if send[:3] != [0, 0, 2]]


def second_way(document):
    """Send a chunk that a fixed send brings a second time."""
    steps = document["points"][0]["schedule"]["steps"]
    steps[1]["sends"] = [[0, 0, 2, "copy"], *(send for send in steps[1]["sends"] if send[1:3] != [0, 2])]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (without_one, ""),
        (second_way, "chunk 0 goes 0 -> 2 in step 1 by a fixed send, not 0 -> 2 in step 2"),
        (lambda d: everywhere(d, lambda r: r.update(fixed=[[0, 0, 2, 2]])), "by a fixed send, not 0 -> 2 in step 1"),
        (lambda d: everywhere(d, lambda r: r.update(fixed=[[4, 0, 2, 1]])), "names"),
        (
            lambda d: everywhere(d, lambda r: r.update(fixed=[[0, 0, 2, 1], [0, 3, 2, 1]])),
            "has two fixed sends of unit 0",
        ),
        (lambda d: everywhere(d, lambda r: r.update(fixed=[[0, 0, 2]])), "expected [unit, src, dst, step]"),
        (lambda d: everywhere(d, lambda r: r.update(fixed=[[0, 0, 4, 1]])), "expected a number"),
        (lambda d: everywhere(d, lambda r: r.update(fixed=[[0, 0, 2, 1]] * 4097)), "at most 4096 are checked"),
        (lambda d: everywhere(d, lambda r: r.pop("fixed")), ""),
        (lambda d: d["sketch"]["rules"].pop("fixed"), "are not the rules for sends"),
    ],
)
def test_forged_documents_of_fixed_sends_are_refused(fixed, change, says):
    assert any("each has 1 fixed send" in line for line in exact_frontier.document(fixed))
    refused(fixed, change, says)


def test_schedules_without_their_fixed_sends_are_refused():
    network = under(fixed=((0, 0, 3, 1), (0, 0, 1, 2)))
    task = Collective("one", 6, [0], [{3}])
    sends = [Step(1, (Send(0, 0, 3, "copy"),)), Step(1, (Send(0, 0, 1, "copy"),))]
    assert replay.schedule(Schedule(network, task, 1, tuple(sends)))
    for steps in (sends[:1], [sends[0], Step(1, ())]):
        with pytest.raises(VerificationError, match="does not send all of unit 0 0 -> 1 in step 2"):
            replay.schedule(Schedule(network, task, 1, tuple(steps)))


def test_certificates_with_fixed_sends_prove_nothing_without_them():
    collective, free = synth.collective("allgather", 4), synth.topology("rail:2x2").network()
    network = under(synth.topology("rail:2x2"), fixed=((0, 0, 2, 1),))
    bound = bounds.flow(network, collective, 2)
    assert bound.value == Fraction(11, 10) > bounds.flow(free, collective, 2).value
    renamed = bound.certificate | {"problem": problem_fingerprint(free, collective)}
    with pytest.raises(VerificationError, match="overload"):
        cuts.check(renamed, free.document, collective.document, steps=2)
    turn = [2, 3, 0, 1]
    forged = bound.certificate | {"generators": [[turn, turn]]}
    with pytest.raises(VerificationError, match="does not keep the fixed sends of unit 0"):
        cuts.check(forged, network.document, collective.document, steps=2)
