"""Rules of sketches for the sends of each unit: ways and phases, in encoding, bound, replay and documents alike."""

import copy
import itertools
import json
import math
import random
from fractions import Fraction
from typing import Any

import pytest

import synth
from synth import api, bounds
from synth.bounds import distance
from synth.checker.certificates import cuts
from synth.checker.certificates.instance import Instance
from synth.checker.documents import exact_frontier
from synth.checker.documents.dispatch import check_document
from synth.checker.schedule import replay
from synth.checker.schedule.machine import machine_of
from synth.checker.send_rules import CheckedRules
from synth.cli.framework.distance_report import distance_document
from synth.cli.root import root
from synth.encodings.step import StepEncoding
from synth.errors import InfeasibleError, UncheckedError, UsageError, VerificationError
from synth.model.collective import Collective
from synth.model.frontier import Frontier
from synth.model.schedule import Problem, Schedule, Send, Step
from synth.model.send_mask import send_mask
from synth.model.send_rules import SendRules
from synth.model.topology import Cap, Network, Route
from synth.pareto.portfolio.selection import select_members
from synth.solvers.cadical import Cadical
from synth.topologies import sketch_files
from synth.view.page import sections

MACHINE = synth.topology("rail:2x3")  # ranks 0-2 and 3-5; rails 0-3, 1-4, 2-5
BOXES = (0, 0, 0, 1, 1, 1)


def under(machine=MACHINE, **rules):
    return synth.Sketch("rules", **rules).applied(machine).network()


def decided(network, collective, chunks, steps, rounds):
    """Return True if there is a schedule, by the step encoding; a schedule is replayed."""
    problem = Problem(network, collective, chunks, steps, rounds)
    plain = problem.reversed() if collective.combining else problem
    model, inverse = StepEncoding().apply(plain)
    answer = Cadical(seed=0).solve(model)
    if answer.status != "sat":
        return False
    found = StepEncoding().invert(inverse, answer.values)
    found = found.reversed() if collective.combining else found
    replay.schedule(Schedule(network, collective, chunks, found.steps))
    return True


def layered(machine, collective, allowed):
    """The same problem on a machine with ranks of its own for each unit, joined by the links that it may use."""
    ranks, routes, members = machine.ranks, [], [[] for _ in machine.routes]
    for unit, (r, route) in itertools.product(range(collective.units), enumerate(machine.routes)):
        if allowed(unit, route.src, route.dst):
            members[r].append(len(routes))
            routes.append(Route(unit * ranks + route.src, unit * ranks + route.dst, route.units))
    caps = [Cap(tuple(same), machine.routes[r].units) for r, same in enumerate(members) if same]
    for cap in machine.caps:
        caps.append(Cap(tuple(i for r in cap.routes for i in members[r]), cap.units))
    ends = []
    for sets in (collective.pre, collective.post):
        ends.append([{unit * ranks + rank for rank in held} for unit, held in enumerate(sets)])
    size = ranks * collective.units
    task = Collective("layers", size, ends[0], ends[1], collective.combining)
    return Network("layers", size, tuple(routes), tuple(caps)), task


@pytest.mark.parametrize("name", ["allgather", "reducescatter", "scatter"])
@pytest.mark.parametrize("way", ["own rail", "home"])
def test_bounds_of_ways_are_those_of_a_machine_with_ranks_for_each_unit(name, way):
    collective = synth.collective(name, 6)
    network = under(ways=way)

    def allowed(unit, src, dst):
        owner = min(collective.post[unit] if collective.combining else collective.pre[unit])
        if BOXES[src] == BOXES[dst]:
            return True
        if way == "own rail":
            return src % 3 == dst % 3 == owner % 3
        return BOXES[dst if collective.combining else src] == BOXES[owner]

    layers = layered(MACHINE.network(), collective, allowed)
    for steps in (None, 2):
        assert bounds.flow(network, collective, steps).value == bounds.flow(*layers, steps).value
    assert distance.steps(network, collective).value == distance.steps(*layers).value


def all_schedules(network, collective, steps, allowed):
    """Return True if a chunk of each unit gets to where it is wanted in steps of one round: by trying all sends."""
    state = [frozenset(held) for held in collective.pre]

    def search(held, step):
        if all(want <= have for want, have in zip(collective.post, held, strict=True)):
            return True
        if step > steps:
            return False
        options = []
        for route in network.routes:
            fresh: list[int | None] = [None]
            for unit, have in enumerate(held):
                if route.src in have and route.dst not in have and allowed(unit, route, step):
                    fresh.append(unit)
            options.append(fresh)
        for chosen in itertools.product(*options):
            after = list(held)
            for route, unit in zip(network.routes, chosen, strict=True):
                if unit is not None:
                    after[unit] |= {route.dst}
            if search(after, step + 1):
                return True
        return False

    return search(state, 1)


def test_the_encoding_agrees_with_a_search_of_all_sends():
    random.seed(20)
    links = [(0, 1), (1, 0), (2, 3), (3, 2), (0, 2), (2, 0), (1, 3), (3, 1), (0, 3)]
    answers = []
    for _ in range(60):
        kept = sorted(random.sample(links, 6))
        machine = synth.Topology("m", 4, [synth.Link(*pair, 1) for pair in kept], nodes=(0, 0, 1, 1))
        if not {(0, 2), (2, 0), (1, 3), (3, 1)} & set(kept):
            continue
        first = random.randint(1, 2)
        window = (first, random.choice([first, first + 1, None]))
        network = under(machine, ways=random.choice([(), "home", "own rail"]), phases={"across": window})
        roots = random.sample(range(4), 2)
        goals = [set(random.sample(range(4), 2)) for _ in roots]
        collective = Collective("c", 4, roots, goals)
        assert network.rules is not None
        ways, steps = network.rules.ways, random.randint(1, 3)

        def allowed(unit, route, step, ways=ways, roots=roots, window=window):
            if route.src // 2 == route.dst // 2:
                return True
            fits = window[0] <= step <= (window[1] or 9)
            if "own rail" in ways:
                fits = fits and route.src % 2 == route.dst % 2 == roots[unit] % 2
            return fits and ("home" not in ways or route.src // 2 == roots[unit] // 2)

        expected = all_schedules(network, collective, steps, allowed)
        assert decided(network, collective, 1, steps, steps) == expected
        try:
            least = distance.steps(network, collective).value
            assert not expected or least <= steps
        except InfeasibleError as error:
            assert not expected
            assert error.certificate is not None
            assert cuts.check(error.certificate, network.document, collective.document) == 0
        answers.append(expected)
    assert {True, False} == set(answers)


def read_as_written(rules, owner, src, dst, step, combining):
    """Return True where a send keeps rules as docs/cli.md has them."""
    boxes = rules["boxes"]
    places = [boxes[:rank].count(box) for rank, box in enumerate(boxes)]
    crosses = boxes[src] != boxes[dst]
    first, last = rules.get("phases", {}).get("across" if crosses else "inside", (1, None))
    good = step >= first and (last is None or step <= last)
    if crosses and "own rail" in rules.get("ways", []):
        good = good and places[src] == places[dst] == places[owner]
    if crosses and "home" in rules.get("ways", []):
        good = good and boxes[dst if combining else src] == boxes[owner]
    return good


def test_masks_certificates_and_replay_allow_the_same_sends():
    """Forwards and reversed in time, in boxes of any sizes and orders."""
    rng, seen = random.Random(12), set()
    names = ["allgather", "reducescatter", "alltoall", "broadcast", "reduce"]
    for case in range(200):
        ranks, steps = rng.randint(2, 4), rng.randint(1, 3)
        pairs = [(a, b) for a in range(ranks) for b in range(ranks) if a != b]
        phases = {}
        for links in rng.sample(("across", "inside"), rng.randint(0, 2)):
            phases[links] = [first := rng.randint(1, 2), rng.choice([first, first + 1, None])]
        ways = rng.sample(["own rail", "home"], rng.randint(0 if phases else 1, 2))
        rules = {"boxes": [rng.randrange(3) for _ in range(ranks)], "ways": ways, "phases": phases}
        network = Network("m", ranks, tuple(Route(*pair, 1) for pair in pairs), rules=SendRules.from_json(rules))
        name = names[case % len(names)]
        rooted = name in ("broadcast", "reduce")
        collective = synth.collective(name, ranks, rng.randrange(ranks)) if rooted else synth.collective(name, ranks)
        mask = send_mask(network, collective)
        views = [(mask, Instance(network.document, collective.document, False), False)]
        if collective.combining:
            back = send_mask(network.reversed(), collective.reversed())
            views.append((back, Instance(network.document, collective.document, True), True))
        judge = CheckedRules.read(network.document["rules"], ranks, "$")
        for unit, (link, pair), step in itertools.product(
            range(collective.units), enumerate(pairs), range(1, steps + 1)
        ):
            (owner,) = collective.post[unit] if collective.combining else collective.pre[unit]
            good = read_as_written(rules, owner, *pair, step, collective.combining)
            first, last = judge.allowed_steps(*pair)
            timely = first <= step <= (last or steps)
            assert (timely and judge.allowed_way(owner if ways else None, *pair, collective.combining)) == good
            for sends, problem, turned in views:
                at = steps + 1 - step if turned else step
                assert sends is not None
                assert sends.allows(unit, link, at, steps) == problem.allows(unit, link, at, steps) == good
                seen.add((turned, good))
    assert len(seen) == 4


@pytest.mark.parametrize("name", ["allgather", "reducescatter"])
def test_frontiers_under_phases_and_their_mirror_images(name):
    """A reduce-scatter that crosses in its last step is an allgather that crosses in its first."""
    window = (1, 1) if name == "allgather" else (2, 2)
    sketch = synth.Sketch("order", ways="own rail", phases={"across": window})
    found = api.sketched_frontier(MACHINE, name, sketch, max_steps=2, time_limit=20)
    (point,) = found.frontier.points
    assert (point.steps, point.rounds_per_chunk, point.status) == (2, Fraction(11, 9), "optimal")
    assert (found.free_bound(2), found.cost(2)) == (Fraction(33, 29), Fraction(11, 9) / Fraction(33, 29) - 1)
    across = {send for send in point.schedule.steps[2 - window[0]].sends if BOXES[send.src] != BOXES[send.dst]}
    assert not across


def test_no_schedule_under_a_sketch_is_proved_of_the_sketch_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text("ways: own rail\nphases: {across: 1}\n")
    flags = ["--topo", "rail:2x3", "--coll", "reducescatter", "--sketch", "s.yaml", "--fresh", "-o", "no.json"]
    with pytest.raises(SystemExit) as end:
        root.main(["pareto", *flags])
    assert end.value.code == 3
    assert "its sketch allows no way" in capsys.readouterr().err
    document = json.loads((tmp_path / "no.json").read_text())
    assert any("keep rules" in line for line in exact_frontier.document(document))
    assert distance.steps(MACHINE.network(), synth.collective("reducescatter", 6)).value == 2
    del document["topology"]["rules"]["phases"]
    with pytest.raises(VerificationError, match="another problem"):
        exact_frontier.document(document)


def test_what_the_rules_do_not_fit():
    for name, says in (("allreduce", "collectives that copy"), ("scan", "collectives that copy")):
        with pytest.raises(UsageError, match=says):
            api.sketched_frontier(MACHINE, name, synth.Sketch("s", phases={"across": (1, 1)}))
    shared = Collective("shared", 6, [{0, 1}], [set(range(6))])
    with pytest.raises(UsageError, match="unit 0 is held by 2 ranks; rules for ways need one"):
        send_mask(under(ways="home"), shared)
    assert send_mask(under(phases={"across": (1, 2)}), shared)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"ways": "rail"}, "each of 'own rail', 'home' at most once"),
        ({"ways": ("home", "home")}, "at most once"),
        ({"phases": {"across": (2, 1)}}, "for across and inside, steps from 1"),
        ({"phases": {"rail": (1, 1)}}, "for across and inside"),
        ({"phases": {"across": (0, 1)}}, "steps from 1"),
    ]
    for rules, says in wrong:
        with pytest.raises(UsageError, match=says):
            synth.Sketch("s", **rules)
    with pytest.raises(UsageError, match=r"phases.across: .* has no links between boxes"):
        synth.Sketch("s", phases={"across": (1, 1)}).applied(synth.topology("ring:4"))
    alone = synth.Topology("alone", 2, [synth.Link(0, 1, 1)], nodes=(0, 1))
    with pytest.raises(UsageError, match="ways: each rank of alone is a box of its own"):
        synth.Sketch("s", ways="home").applied(alone)


def test_only_encodings_that_keep_the_rules_take_part():
    problem = Problem(under(ways="home"), synth.collective("allgather", 6), 1, 2, 3)
    members = {member.encoding for member, _ in select_members(problem, "auto", "auto")}
    assert members == {"step", "quotient"}
    for name in ("tree", "sccl"):
        with pytest.raises(UsageError, match=f"encoding {name} keeps no rules of a sketch"):
            select_members(problem, name, "auto")
    machine = synth.Sketch("s", ways="home").applied(MACHINE)
    with pytest.raises(UsageError, match="go with none of"):
        api.frontier(machine, "allgather", engine="exact", cross_check=True)
    with pytest.raises(UsageError, match="go with none of"):
        api.frontier(machine, "allgather", engine="exact", sweep="blind")


def test_files_give_the_rules(tmp_path):
    file = tmp_path / "s.yaml"
    file.write_text("ways: [own rail, home]\nphases: {across: 1-2, inside: 2-}\n")
    sketch = sketch_files.load(file, MACHINE)
    assert sketch == synth.Sketch("s", ways=("own rail", "home"), phases={"inside": (2, None), "across": (1, 2)})
    rules = sketch.applied(MACHINE).network().rules
    assert str(rules) == (
        "ways: own rail, home; links across boxes in steps 1 to 2 alone; links inside boxes from step 2 on"
    )
    network = sketch.applied(MACHINE).network()
    assert Network.from_json(network.to_json()).rules == rules
    assert network.reversed().reversed().rules == rules
    file.write_text("phases: {across: 3}\n")
    assert sketch_files.load(file, MACHINE).rules == {"phases": {"across": [3, 3]}}


def test_windows_of_the_reversed_machine_count_from_the_end():
    collective = synth.collective("reducescatter", 6)
    network = under(phases={"across": (1, 2)}).reversed()
    mask = send_mask(network, collective.reversed())
    assert mask is not None
    across = next(r for r, route in enumerate(network.routes) if BOXES[route.src] != BOXES[route.dst])
    assert [mask.window(0, across, steps) for steps in (1, 2, 4)] == [(1, 1), (1, 2), (3, 4)]


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sends")
    file, output = folder / "rails.yaml", folder / "f.json"
    file.write_text("ways: own rail\nphases: {across: 1}\n")
    names = ["--topo", "rail:2x3", "--coll", "allgather", "--max-steps", "2"]
    with pytest.raises(SystemExit) as end:
        root.main(["pareto", *names, "--sketch", str(file), "-o", str(output), "--fresh"])
    assert end.value.code == 0
    return json.loads(output.read_text())


def test_the_document_is_verified(document):
    lines = exact_frontier.document(document)
    assert any(line.startswith("sketch rails: its rules leave 18 of 18 links") for line in lines)
    assert any("on their owner's rail alone; links across boxes carry data in step 1 alone" in line for line in lines)


def test_times_at_a_size_are_of_points_that_keep_the_rules(document, tmp_path, capsys):
    file, output = tmp_path / "s.yaml", tmp_path / "f.json"
    file.write_text("ways: own rail\nphases: {across: 1}\n")
    output.write_text(json.dumps(document))
    names = ["--topo", "rail:2x3", "--coll", "allgather", "--max-steps", "2", "--sketch", str(file)]
    for command in (["pareto", *names, "--size", "3MB"], ["tune", "--from", str(output), "--sizes", "3MB"]):
        with pytest.raises(SystemExit) as end:
            root.main(command)
        said = capsys.readouterr()
        assert end.value.code == 0
        assert "S2-R" in said.out
        assert "direct" not in said.out


def everywhere(document, change):
    """Apply a change to the rules of the frontier's topology, and of each schedule's."""
    change(document["topology"])
    for point in document["points"]:
        change(point["schedule"]["topology"])
        del point["schedule"]["fingerprint"]


def moved(document):
    """Let the first chunk that crosses do so in the second step, too late for the rule."""
    steps = document["points"][0]["schedule"]["steps"]
    late = next(i for i, send in enumerate(steps[0]["sends"]) if BOXES[send[1]] != BOXES[send[2]])
    steps[1]["sends"].append(steps[0]["sends"].pop(late))


def other_rail(document):
    """Send a chunk of rank 0 over the rail of rank 1."""
    sends = document["points"][0]["schedule"]["steps"][0]["sends"]
    next(send for send in sends if send[1:3] == [1, 4])[0] = 0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d["sketch"]["rules"].update(ways=["home"]), "are not the"),
        (lambda d: d["sketch"]["rules"].update(phases={"across": [1, 2]}), "are not the rules for sends"),
        (lambda d: d["sketch"]["rules"].pop("phases"), "are not the rules for sends"),
        (lambda d: d["sketch"]["rules"].pop("ways"), "are not the rules for sends"),
        (lambda d: d["sketch"].update(nodes=[0, 1, 1, 0, 0, 1]), "are not the rules for sends"),
        (lambda d: d["topology"].pop("rules"), "another topology"),
        (lambda d: everywhere(d, lambda t: t.pop("rules")), "another problem"),
        (lambda d: everywhere(d, lambda t: t["rules"].pop("phases")), "another problem"),
        (lambda d: everywhere(d, lambda t: t["rules"].update(boxes=[0, 1, 1, 0, 0, 1])), ""),
        (lambda d: everywhere(d, lambda t: t["rules"].update(boxes=[0])), "names 1 boxes for 6 ranks"),
        (lambda d: everywhere(d, lambda t: t.update(rules={"boxes": [0] * 6})), "has no rule"),
        (lambda d: everywhere(d, lambda t: t["rules"].update(ways=["any"])), "expected one of own rail, home"),
        (lambda d: everywhere(d, lambda t: t["rules"].update(ways=["home", "home"])), "names one twice"),
        (lambda d: everywhere(d, lambda t: t["rules"].update(fans=2)), "not a known field"),
        (lambda d: everywhere(d, lambda t: t["rules"]["phases"].update(across=[2, 1])), "expected a number in 2"),
        (lambda d: everywhere(d, lambda t: t["rules"]["phases"].update(across=[1])), "expected [first, last]"),
        (lambda d: everywhere(d, lambda t: t["rules"]["phases"].update(across=[True, 1])), "whole number"),
        (lambda d: everywhere(d, lambda t: t["rules"]["phases"].update(rail=[1, 1])), "not a known field"),
        (lambda d: d["sketch"]["topology"].update(rules=d["topology"]["rules"]), "has rules for sends"),
        (moved, "is for steps 1 to 1, not 2"),
        (other_rail, "may not go 1 -> 4: units cross boxes on their owner's rail alone"),
        (lambda d: d["points"][0]["bound"].update(value="12/9"), "the certificate proves 11/9"),
        (lambda d: d["bounds"][0].update(value="3"), "the certificate proves 2"),
    ],
)
def test_forged_documents_are_refused(document, change, says):
    forged = copy.deepcopy(document)
    change(forged)
    with pytest.raises(VerificationError) as error:
        exact_frontier.document(forged)
    assert says in str(error.value)


def test_a_certificate_under_rules_proves_nothing_without_them():
    collective = synth.collective("allgather", 6)
    network, free = under(ways="own rail"), MACHINE.network()
    bound = bounds.flow(network, collective, 2)
    assert bound.value == Fraction(11, 9) > bounds.flow(free, collective, 2).value
    renamed = bound.certificate | {"problem": bounds.flow(free, collective, 2).certificate["problem"]}
    with pytest.raises(VerificationError, match="overload link"):
        cuts.check(renamed, free.document, collective.document, steps=2)


def test_symmetries_of_a_certificate_keep_the_rules():
    """A turn of one box keeps links and limits of a machine with all links across, but not the rails."""
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    machine = synth.Topology("all", 4, [synth.Link(a, b, 1) for a, b in pairs], nodes=(0, 0, 1, 1))
    network, collective = under(machine, phases={"across": (1, 1)}), synth.collective("allgather", 4)
    bound = bounds.flow(network, collective, 2)
    turn = [0, 2, 1, 3]  # exchanges ranks of two boxes
    forged = bound.certificate | {"generators": [*bound.certificate["generators"], [turn, turn]]}
    with pytest.raises(VerificationError, match="does not keep the steps of links"):
        cuts.check(forged, network.document, collective.document, steps=2)
    network = under(machine, ways="home")
    bound = bounds.flow(network, collective, 2)
    forged = bound.certificate | {"generators": [*bound.certificate["generators"], [turn, turn]]}
    with pytest.raises(VerificationError, match="does not keep the ways of unit"):
        cuts.check(forged, network.document, collective.document, steps=2)


@pytest.mark.parametrize("boxes", [BOXES, (0, 0, 1, 1, 2, 2), (0, 0, 0, 0, 1, 1)])
def test_every_document_under_rules_says_so(boxes):
    """Whatever the machine is called, and by whatever boxes: a refutation, a bound, and the one line of a folder."""
    collective = synth.collective("allgather", 6)
    network = under(phases={"across": (1, 2)})
    topology = network.document | {"name": "rail:2x3", "rules": network.document["rules"] | {"boxes": list(boxes)}}
    certificate = bounds.flow(Network.from_json(topology), collective, 2).certificate
    value = cuts.check(certificate, topology, collective.document, steps=2)
    problem = {"topology": topology, "collective": collective.document}
    refuted = {"chunks": 18, "steps": 2, "rounds": math.ceil(18 * value) - 1, "certificate": certificate}
    bound = {"steps": 2, "value": str(value), "scope": "any-chunks", "certificate": certificate}
    documents = [{"schema": "synth.refutation/1", **problem, **refuted}, {"schema": "synth.bounds/1", **problem}]
    documents[1]["bounds"] = [bound]
    stated = {BOXES: "2 boxes of 3 ranks", (0, 0, 1, 1, 2, 2): "3 boxes of 2 ranks"}.get(boxes, "by rank 0 0 0 0 1 1")
    for doc in documents:
        lines = check_document(doc, None, lambda name: None)
        assert any(f"states ({stated}): links across boxes carry data in steps 1 to 2 alone" in line for line in lines)
        assert lines.subject == "allgather on rail:2x3 with rules for sends, 6 ranks"


def test_bounds_without_the_sketch_are_not_said_to_be_under_it(document):
    assert any(line.startswith("all of this but the bounds without the sketch is") for line in
               exact_frontier.document(document))  # fmt: skip
    document = document | {"sketch": document["sketch"] | {"bounds": []}}
    assert any(line.startswith("all of this is") for line in exact_frontier.document(document))


def test_what_is_shown_of_a_frontier_under_rules_says_so(document):
    """The page of a report, the title of a table, and the title of one schedule."""
    found = Frontier.from_json({key: value for key, value in document.items() if key != "sketch"})
    sheet = sections.of_frontier(found, sections.EntryContext("x"))
    claim = (
        "All of this is of schedules that keep rules of a sketch: ways: own rail; links across boxes in step 1 alone."
    )
    assert sheet.proofs[0] == (claim, "")
    said = "schedules keep rules of a sketch (ways: own rail; links across boxes in step 1 alone)"
    assert sheet.title.endswith(said)
    assert sections.of_schedule(found.points[0].schedule, sections.EntryContext("x")).title.endswith(said)


@pytest.mark.parametrize(("machine", "bound"), [([], "11/9"), (["--topo", "rail:2x3"], "33/29")])
def test_schedules_under_rules_are_explained(document, machine, bound, tmp_path, capsys):
    """By the bound under the rules; and of a machine that is named, by that without them."""
    file = tmp_path / "f.json"
    file.write_text(json.dumps(document))
    with pytest.raises(SystemExit) as end:
        root.main(["explain", str(file), "--step", "2", *machine])
    assert end.value.code == 0
    rules = "ways: own rail; links across boxes in step 1 alone"
    title, *lines = capsys.readouterr().out.splitlines()
    assert title.endswith(f"C=9, schedules keep rules of a sketch ({rules})")
    row = next(line for line in lines if line.startswith("rounds/chunk in 2 steps"))
    assert row.split()[4:6] == ["11/9", bound]
    schedule = Schedule.from_json(document["points"][0]["schedule"])
    assert distance_document("f", schedule, None, None)["rules"] == rules


def test_phases_across_need_a_link_between_two_boxes(document):
    forged = copy.deepcopy(document)
    network = under(phases={"inside": (1, 2)}).document
    problem = network | {"rules": {"boxes": [0] * 6, "phases": {"across": [1, 1]}}}
    forged |= {"topology": problem, "points": [], "bounds": [], "open": [], "complete": False}
    forged["sketch"] |= {"rules": {"phases": {"across": [1, 1]}}, "nodes": []}
    with pytest.raises(VerificationError, match="no link between two boxes, of which the rule `phases` speaks"):
        exact_frontier.document(forged)


def test_arrivals_of_many_contributors_count_as_work():
    """A list of a time for each rank for each contributor, of which none can send."""
    ranks = 1 << 12
    rules = {"boxes": [0] * (ranks - 1) + [1], "phases": {"across": [1, 1]}}
    topology = {"name": "pair", "ranks": ranks, "links": [[0, ranks - 1, 1]], "limits": [], "rules": rules}
    topology["unit_gbps"] = "1"
    collective = {"ranks": ranks, "chunks": 1, "combining": True}
    collective |= {"pre": [[0, rank] for rank in range(ranks)], "post": [[0, ranks - 1]]}
    problem = machine_of(topology, "topology").problem_fingerprint(collective)
    certificate = {"kind": "distance", "problem": problem, "pair": [0, ranks - 1], "distance": 1}
    with pytest.raises(UncheckedError, match="too large to check"):
        cuts.check(certificate, topology, collective)


def test_schedules_say_that_they_keep_rules():
    network = under(phases={"across": (1, 1)})
    task = Collective("one", 6, [0], [{3}])
    schedule = Schedule(network, task, 1, (Step(1, (Send(0, 0, 3, "copy"),)),))
    assert any("in step 1 alone" in line for line in exact_frontier.document(schedule.to_json()))
    late = Schedule(network, task, 1, (Step(1, ()), *schedule.steps))
    with pytest.raises(VerificationError, match="link 0 -> 3 is for steps 1 to 1, not 2"):
        replay.schedule(late)
