"""Switches that multicast and reduce: topologies, replay of their sends, and what the checker refuses."""

import copy
import json
import random
from dataclasses import replace
from fractions import Fraction

import pytest

from synth.checker.certificates.cuts import KEYS, check
from synth.checker.schedule import replay
from synth.commands import api
from synth.encodings import bounds
from synth.encodings.bounds.multicast import bound_at_steps, multicast_bound, operations_bound, step_cuts_bound
from synth.errors import FormatError, SynthError, VerificationError
from synth.model import symmetry
from synth.model.collective import collective
from synth.model.frontier import LowerBound
from synth.model.schedule import Schedule, Send, Step, SwitchSend, problem_fingerprint
from synth.model.sends.bitwise_equality import same_bits
from synth.model.topology import (
    MULTICAST_NOTE,
    Cap,
    Limit,
    Link,
    Multicast,
    MulticastSwitch,
    Network,
    SwitchPort,
    Topology,
)
from synth.topologies import topology
from synth.topologies.modify import with_ranks
from synth.topologies.topology_files import load
from tests.automorphisms import route_permutation
from tests.command_line import synth
from tests.finer_units import finer

EVERYONE = (0, 1, 2, 3)


def machine(own: str, ranks: int = 4) -> Network:
    return topology(f"switch:{ranks}:multicast={own}").multicast_network()


def switch_send(chunk: int, rank: int, kind: str) -> SwitchSend:
    return SwitchSend(chunk, rank, EVERYONE, kind, "switch")


def fetch_then_multicast(network: Network) -> Schedule:
    """Allreduce of one chunk a rank: each rank fetches the sum of its chunk, then multicasts it."""
    first = tuple(switch_send(rank, rank, "fetch-reduce") for rank in EVERYONE)
    last = tuple(switch_send(rank, rank, "multicast") for rank in EVERYONE)
    rounds = 4 if network.multicast[0].own == "through" else 3
    return Schedule(network, collective("allreduce", 4), 4, (Step(rounds, (), first), Step(rounds, (), last)))


def least_rounds(schedule: Schedule) -> list[int]:
    """The rounds of each step below which the replay refuses the schedule."""
    found = []
    for t, step in enumerate(schedule.steps):
        for rounds in range(1, 99):
            steps = [*schedule.steps[:t], step._replace(rounds=rounds), *schedule.steps[t + 1 :]]
            try:
                replay.schedule(Schedule(schedule.network, schedule.collective, schedule.chunks, tuple(steps)))
            except VerificationError:
                continue
            found.append(rounds)
            break
    return found


@pytest.mark.parametrize(("own", "rounds"), [("through", [4, 4]), ("local", [3, 3])])
def test_the_issuers_own_port_counts_with_through_alone(own: str, rounds: list[int]) -> None:
    schedule = fetch_then_multicast(machine(own))
    assert least_rounds(schedule) == rounds
    assert same_bits(schedule)


@pytest.mark.parametrize("own", ["through", "local"])
def test_a_port_counts_fetches_upwards_and_multicasts_downwards(own: str) -> None:
    network = machine(own)
    fetch = [switch_send(chunk, 0, "fetch-reduce") for chunk in range(2)]
    reduce = Schedule(network, collective("reduce", 4), 2, (Step(9, (), tuple(fetch)),))
    assert least_rounds(reduce) == [2]
    copies = [switch_send(chunk, 0, "multicast") for chunk in range(2)]
    broadcast = Schedule(network, collective("broadcast", 4), 2, (Step(9, (), tuple(copies)),))
    assert least_rounds(broadcast) == [2]
    assert least_rounds(broadcast.reversed()) == [2]
    assert broadcast.reversed().steps[0].switch_sends[0].kind == "fetch-reduce"


def test_links_and_switch_sends_share_a_port() -> None:
    network = machine("local")
    sends = (Send(1, 0, 1), Send(1, 0, 2), Send(1, 0, 3))
    step = Step(9, sends, (switch_send(0, 0, "multicast"),))
    assert least_rounds(Schedule(network, collective("broadcast", 4), 2, (step,))) == [4]


@pytest.mark.parametrize(("own", "rounds"), [("through", 4), ("local", 3)])
def test_multicasts_that_add_make_an_allreduce_in_one_step(own: str, rounds: int) -> None:
    sends = tuple(switch_send(0, rank, "multicast-reduce") for rank in EVERYONE)
    schedule = Schedule(machine(own), collective("allreduce", 4), 1, (Step(9, (), sends),))
    assert least_rounds(schedule) == [rounds]
    assert not same_bits(schedule)


def test_documents_keep_switches_and_sends() -> None:
    schedule = fetch_then_multicast(machine("through"))
    again = Schedule.from_json(schedule.to_json())
    assert again == Schedule(without_generators(schedule.network), schedule.collective, 4, schedule.steps)
    assert schedule.network.reversed().reversed() == schedule.network
    replay.schedule(schedule.to_json())


def without_generators(network: Network) -> Network:
    return Network.from_json(network.to_json())


# What is done to a document and its first or last step.
MUTANTS = {
    "dropped": lambda doc, step: step["switch_sends"].pop(),
    "doubled": lambda doc, step: step["switch_sends"].append(step["switch_sends"][0]),
    "port": lambda doc, step: step.update(rounds=step["rounds"] - 1),  # than the busiest port takes
    "rank outside": lambda doc, step: doc["topology"]["multicast"][0]["ports"].pop(),
    "issuer missing": lambda doc, step: step["switch_sends"][0][2].remove(step["switch_sends"][0][1]),
    "unknown switch": lambda doc, step: step["switch_sends"][0].__setitem__(4, "another"),
}


@pytest.mark.parametrize("kind", ["multicast", "multicast-reduce", "fetch-reduce"])
@pytest.mark.parametrize("own", ["through", "local"])
@pytest.mark.parametrize("change", MUTANTS)
def test_a_mutant_of_each_kind_is_refused(own: str, kind: str, change: str) -> None:
    network = machine(own)
    schedule = fetch_then_multicast(network)
    if kind == "multicast-reduce":
        sends = tuple(switch_send(0, rank, kind) for rank in EVERYONE)
        schedule = Schedule(network, collective("allreduce", 4), 1, (Step(4 if own == "through" else 3, (), sends),))
    replay.schedule(schedule.to_json())
    mutant = copy.deepcopy(schedule.to_json())
    MUTANTS[change](mutant, mutant["steps"][1 if kind == "multicast" else 0])
    if change in ("port", "rank outside"):
        mutant.pop("fingerprint")
    with pytest.raises(VerificationError):
        replay.schedule(mutant)


def test_a_bound_without_multicast_proves_nothing_with_it() -> None:
    network, task = machine("local"), collective("allreduce", 4)
    plain = topology("switch:4").network()
    certificate = bounds.flow(plain, task, None).certificate | {"problem": problem_fingerprint(network, task)}
    with pytest.raises(VerificationError):
        check(certificate, network.document, task.document)


def test_a_port_without_limits_is_refused() -> None:
    doc = fetch_then_multicast(machine("local")).to_json()
    doc["topology"]["multicast"][0]["ports"][0][1] = []
    with pytest.raises(VerificationError, match="names no limit"):
        replay.schedule(doc)


def test_explicit_switches_have_the_wires_of_their_ranks_as_ports() -> None:
    links = []
    for rank in range(3):
        links += [Link(rank, 3, Fraction(2)), Link(3, rank, Fraction(2))]
    limits = (Limit("slot", (0,), Fraction(1)),)
    made = Topology("star", 3, tuple(links), limits, ("sw",), multicast=(Multicast("sw"),))
    network = made.multicast_network()
    units = [[network.caps[k].units for k in port.up] for port in network.multicast[0].ports]
    assert units == [[2, 1], [2], [2]]
    sends = tuple(SwitchSend(chunk, 0, (0, 1, 2), "multicast", "sw") for chunk in range(2))
    schedule = Schedule(network, collective("broadcast", 3), 2, (Step(9, (), sends),))
    assert least_rounds(schedule) == [2]  # the slot's limit holds the wire of rank 0
    doc = schedule.to_json()
    doc["steps"][0]["rounds"] = 1
    del doc["fingerprint"]
    machine = doc["topology"]
    for limit in machine["limits"]:
        limit["units"] = 9  # the wires are no wider for it
    replay.schedule(doc)
    machine["wires"] = [[a, b, 1] for a, b, _ in machine["wires"]]
    machine["links"] = [[u, v, 1, via] for u, v, _, via in machine["links"]]
    with pytest.raises(VerificationError, match="wire 0 -> sw carries 2 chunks"):
        replay.schedule(doc)
    machine["wires"], machine["links"] = [[0, "sw", 2], ["sw", 1, 2]], [[0, 1, 1, ["sw"]]]
    machine["limits"] = [{"links": [], "units": 9} for _ in machine["limits"]]
    with pytest.raises(VerificationError, match="no wire sw -> "):
        replay.schedule(doc)


def test_a_document_without_switches_does_not_name_them() -> None:
    doc = topology("switch:4").network().to_json()
    doc["multicast"] = None
    with pytest.raises(VerificationError, match="expected a list"):
        replay.problem(doc, collective("broadcast", 4).to_json(1))


def test_two_ranks_have_ports_too() -> None:
    two = with_ranks(topology("dgx-h100"), [3, 5])
    network = two.multicast_network()
    assert [port.rank for port in network.multicast[0].ports] == [0, 1]
    assert {network.caps[k].units for port in network.multicast[0].ports for k in (*port.up, *port.down)} == {1}
    assert not with_ranks(topology("dgx-h100"), [3]).multicast


def test_boxes_of_a_cluster_have_switches_of_their_own() -> None:
    network = topology("dgx-h100*2").multicast_network()
    assert [switch.switch for switch in network.multicast] == ["box0.nvswitch", "box1.nvswitch"]
    assert [port.rank for port in network.multicast[1].ports] == list(range(8, 16))
    units = {network.caps[k].units for switch in network.multicast for port in switch.ports for k in port.up}
    assert units == {9}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{switch: nvs, ranks: [0, 1, 1]}", "names rank 1 twice"),
        ("{switch: nvs, ranks: []}", "multicast[0].ranks: is empty"),
        ("{switch: nvs, ranks: [0, 1]}\n- {switch: nvs, ranks: [0, 1]}", "multicasts is listed twice"),
        ("{switch: nvs}", "has no ranks"),
        ("{switch: nvs, ranks: [0]}", "has rank 0 alone"),
        ("{switch: nvs, ranks: [0, 7]}", "multicast[0].ranks[1]"),
        ("{switch: nvs, ranks: [0, 1], own: away}", "own is 'away'; through and local exist"),
    ],
)
def test_a_group_that_makes_no_sense_is_refused_in_one_line(tmp_path, row: str, message: str) -> None:
    path = tmp_path / "machine.yaml"
    path.write_text(f"ranks: 2\nlinks:\n- {{src: 0, dst: 1, bandwidth: 1, both: true}}\nmulticast:\n- {row}\n")
    with pytest.raises(FormatError) as error:
        load(path)
    assert message in str(error.value)
    assert len(str(error.value).splitlines()) == 1


KNOWN = [(ranks, units, own) for ranks in (2, 3, 4, 8) for units in (1, 3) for own in ("local", "through")]


@pytest.mark.parametrize(("ranks", "units", "own"), KNOWN)
def test_bounds_in_one_box_are_the_known_answers(ranks: int, units: int, own: str) -> None:
    made = finer(topology(f"switch:{ranks}:multicast={own}").multicast_network(), units)
    through = own == "through" and ranks > 2
    answers = {
        "allreduce": Fraction(ranks + 1, ranks * units) if through else Fraction(1, units),
        "broadcast": Fraction(1, units),
        "reduce": Fraction(1, units),
        "allgather": Fraction(ranks - 1, units),
        "reduce-scatter": Fraction(ranks - 1, units),
        "alltoall": Fraction(ranks - 1, units),
    }
    for name, value in answers.items():
        task = collective(name, ranks)
        bound = multicast_bound(made, task)
        assert bound.value == value == check(bound.certificate, made.document, task.document)


def operations(ranks: int = 4) -> tuple[Network, dict]:
    network = machine("through", ranks)
    bound = operations_bound(network, collective("allreduce", ranks))
    assert bound is not None
    return network, bound.certificate


@pytest.mark.parametrize(("ranks", "steps"), [(3, 2), (4, 3), (8, 3), (8, 5)])
def test_operations_in_so_many_steps_cost_what_is_proved(ranks: int, steps: int) -> None:
    network, task = machine("through", ranks), collective("allreduce", ranks)
    bound = operations_bound(network, task, steps)
    assert bound is not None and bound.certificate["steps"] == steps
    assert bound.value == Fraction(ranks + 1, ranks) + (1 - Fraction(3, ranks)) / (steps - 1)
    documents = network.document, task.document
    rounds = check(bound.certificate, *documents, steps=steps, chunks=7)
    assert bound.value <= rounds < bound.value + 1 and (7 * rounds).denominator == 1
    for other in (steps - 1, steps + 1, None):
        with pytest.raises(VerificationError, match="steps"):
            check(bound.certificate, *documents, steps=other)
    for stated in (1, 0, None, True, "2"):
        with pytest.raises(VerificationError):
            check(bound.certificate | {"steps": stated}, *documents, steps=1 if stated == 1 else steps)


def test_operations_of_two_ranks_are_counted_without_steps() -> None:
    network, certificate = operations(2)
    with pytest.raises(VerificationError, match="three ranks"):
        check(certificate | {"steps": 2}, network.document, collective("allreduce", 2).document, steps=2)


def without_link(limits: list[dict], link: list[int]) -> None:
    for limit in limits:
        limit["links"] = [other for other in limit["links"] if other != link]


# What is done to the ports of a certificate, and to the machine.
FALSE_COUNTS = {
    "one limit twice": lambda ports, doc: ports.__setitem__(1, ports[0]),
    "another rank's limit": lambda ports, doc: ports.__setitem__(slice(2), ports[1::-1]),
    "local": lambda ports, doc: doc["multicast"][0].update(own="local"),
    "broadcast": lambda ports, doc: None,
    "a link beside": lambda ports, doc: without_link(doc["limits"], [0, 1]),
}


@pytest.mark.parametrize("change", FALSE_COUNTS)
def test_a_false_count_of_operations_is_refused(change: str) -> None:
    network, certificate = operations()
    doc, task = copy.deepcopy(network.to_json()), collective("broadcast" if change == "broadcast" else "allreduce", 4)
    certificate = copy.deepcopy(certificate)
    FALSE_COUNTS[change](certificate["ports"], doc)
    certificate["problem"] = problem_fingerprint(Network.from_json(doc), task)
    with pytest.raises(VerificationError):
        check(certificate, doc, task.document)


def static_cuts(problem: str, prices: list, cuts: dict, scale: int = 1, **more: object) -> dict:
    head = {"kind": "static-cuts", "problem": problem, "steps": None, "scale": scale, "generators": []}
    return head | {"prices": [["limit", *price] for price in prices], "cuts": cuts} | more


def test_cuts_whose_multicasts_do_not_pay_are_refused() -> None:
    network, task = machine("local"), collective("broadcast", 4)
    ports = network.multicast[0].ports
    problem = problem_fingerprint(network, task)
    certificate = static_cuts(problem, [[ports[0].up[0], 1]], {"0": [[1, -1, 1, 1, 1]]})
    assert check(certificate, network.document, task.document) == 1  # what leaves the root, counted once
    apart = {"0": [[1, -1, 1, -1, -1], [1, -1, -1, 1, -1], [1, -1, -1, -1, 1]]}
    prices = [[port.up[0], 1] for port in ports]
    with pytest.raises(VerificationError, match="overload multicasts"):  # a link enters one cut, a multicast three
        check(static_cuts(problem, prices, apart, 4), network.document, task.document)
    plain = topology("switch:4").network()
    certificate = static_cuts(problem_fingerprint(plain, task), prices, apart, 4)
    assert check(certificate, plain.document, task.document) == Fraction(3, 4)


def test_fetches_that_do_not_pay_are_refused() -> None:
    network, task = machine("local"), collective("reduce", 4)
    apart = {"0": [[1, 1, -1, 1, 1], [1, 1, 1, -1, 1], [1, 1, 1, 1, -1]]}
    prices = [[port.down[0], 1] for port in network.multicast[0].ports]
    with pytest.raises(VerificationError, match="overload fetches"):
        check(static_cuts(problem_fingerprint(network, task), prices, apart, 4), network.document, task.document)


def test_generators_must_keep_the_ports() -> None:
    made = topology("switch:3:multicast=local")
    network = replace(made, multicast=(Multicast("switch", (0, 1)),)).multicast_network()
    task = collective("allgather", 3)
    problem = problem_fingerprint(network, task)
    with pytest.raises(VerificationError, match="not kept"):
        turned = static_cuts(problem, [], {}, generators=[[[2, 1, 0], [2, 1, 0]]])
        check(turned, network.document, task.document)


def test_symmetries_keep_the_ports() -> None:
    """Ranks with and without a port at a switch counted as alike."""
    made = topology("switch:3:multicast=local")
    network = replace(made, multicast=(Multicast("switch", (0, 1)),)).multicast_network()
    assert route_permutation(network, (2, 1, 0)) is None
    assert route_permutation(network, (1, 0, 2)) is not None
    assert [one.ranks for one in symmetry.generators(network)] == [(1, 0, 2)]
    other = replace(made, multicast=(Multicast("switch", (1, 2)),)).multicast_network()
    assert symmetry.isomorphism(network, other) == (1, 2, 0)
    assert symmetry.isomorphism(network, made.network()) is None


def test_symmetries_keep_the_limits_of_each_port() -> None:
    """Two ports may count against equal limits, and yet against different ones."""
    network = topology("full:3").network()
    caps = tuple(Cap((0,), 1) for _ in range(3))
    ports = (SwitchPort(0, (0,), (1,)), SwitchPort(1, (0,), (2,)), SwitchPort(2, (2,), (1,)))
    own = replace(network, caps=caps, multicast=(MulticastSwitch("switch", "local", ports),))
    turned = replace(own, multicast=(MulticastSwitch("switch", "local", (*ports[:2], SwitchPort(2, (1,), (1,)))),))
    assert symmetry.isomorphism(own, own) == (0, 1, 2)
    assert symmetry.isomorphism(own, turned) is None


@pytest.mark.parametrize("pairs", [[(0, 1), (1, 2), (2, 3)], [(0, 1), (2, 3)]])
def test_ranks_at_a_switch_that_multicasts_are_one_step_apart(pairs: list[tuple[int, int]]) -> None:
    """Distances along links alone were too long, or called a machine infeasible."""
    links = tuple(Link(a, b, Fraction(1)) for pair in pairs for a, b in (pair, pair[::-1]))
    made = Topology("pairs", 4, links, multicast=(Multicast("switch", EVERYONE),))
    network, task = made.multicast_network(), collective("broadcast", 4)
    least = bounds.steps(network, task)
    assert least.value == check(least.certificate, network.document, task.document) == 1


def test_other_kinds_of_certificates_do_not_hold_with_multicast() -> None:
    network, task = machine("local"), collective("allreduce", 4)
    certificate = dict.fromkeys(KEYS["too-few-steps"][0], 0)
    certificate |= {"kind": "too-few-steps", "problem": problem_fingerprint(network, task)}
    with pytest.raises(VerificationError, match="does not bound schedules whose switches multicast"):
        check(certificate, network.document, task.document, steps=2)


@pytest.mark.parametrize(
    ("name", "bound", "gbps", "without"),
    [("dgx-h100", "9/8", "400", "7/4"), ("gb200-nvl72", "73/72", "887.671", "456.3")],
)
def test_bounds_hold_for_sends_through_switches(tmp_path, name: str, bound: str, gbps: str, without: str) -> None:
    path = tmp_path / "bounds.json"
    words = f"bound --topo {name} --coll allreduce"
    output = synth(words, "-o", path).output
    assert "switches multicast and reduce" in output and gbps in output
    assert f"bound: R/C ≥ {bound} for any S, certificate checked" in api.verify(path)
    doc = json.loads(path.read_text())
    for change in (
        lambda d: d["bounds"][1].update(value="1/15"),
        lambda d: d["topology"].pop("multicast"),
        lambda d: d["topology"]["links"].reverse(),
    ):
        false = copy.deepcopy(doc)
        change(false)
        with pytest.raises((VerificationError, FormatError)):
            api.verify(false)
    plain = synth(words, "--no-multicast").output
    assert MULTICAST_NOTE in plain and without in plain


def test_fabrics_of_too_many_paths_are_refused_at_once() -> None:
    wide, deep, links = 10, 6, []
    for layer in range(deep + 1):
        for a in range(wide if layer else 1):
            for b in range(wide if layer < deep else 1):
                src = 2 + (layer - 1) * wide + a if layer else 0
                dst = 2 + layer * wide + b if layer < deep else 1
                links.append(Link(src, dst, Fraction(1)))
    names = tuple(f"s{i}" for i in range(wide * deep))
    with pytest.raises(SynthError, match="describe the fabric with limits"):
        Topology("layers", 2, tuple(links), (), names).network()


@pytest.mark.parametrize(("ranks", "units", "own"), [row for row in KNOWN if row[0] > 2])
def test_bounds_at_each_number_of_steps_are_the_formula(ranks: int, units: int, own: str) -> None:
    made = finer(topology(f"switch:{ranks}:multicast={own}").multicast_network(), units)
    task = collective("allreduce", ranks)
    floor = multicast_bound(made, task)
    for steps in (1, 2, 3, 5):
        value = Fraction(ranks * steps, ranks * steps - ranks + 2)
        if own == "through":
            value = Fraction((ranks - 1) * steps, (ranks - 1) * steps - ranks + 2)
            value = Fraction(ranks + 1, 2) if steps == 1 else value
        cuts = step_cuts_bound(made, task, steps, floor)
        assert cuts.value == max(value / units, floor.value)
        if own == "through" and steps > 1:
            value = Fraction(ranks + 1, ranks) + (1 - Fraction(3, ranks)) / (steps - 1)
        assert bound_at_steps(made, task, steps, floor).value == max(value / units, floor.value)


@pytest.mark.parametrize(("own", "at"), [("through", "fetches"), ("local", "multicasts")])
def test_cuts_at_steps_that_weigh_a_little_more_are_refused(own: str, at: str) -> None:
    network, task = machine(own), collective("allreduce", 4)
    certificate = step_cuts_bound(network, task, 2, multicast_bound(network, task)).certificate
    assert certificate["kind"] == "deadline-cuts"
    prices = [[*row[:2], *(10 * price for price in row[2:])] for row in certificate["prices"]]
    cuts = [[10 * weight, *theta] for weight, *theta in certificate["cuts"]["0"]]
    same = certificate | {"prices": prices, "scale": 10 * certificate["scale"], "cuts": {"0": cuts}}
    check(same, network.document, task.document, steps=2)
    heavier = same | {"cuts": {"0": [[weight + 1, *theta] for weight, *theta in cuts]}}
    with pytest.raises(VerificationError, match="overload"):
        check(heavier, network.document, task.document, steps=2)


def test_no_schedule_with_random_sends_pays_less_than_its_cuts() -> None:
    for own in ("through", "local"):
        network, rng = machine(own), random.Random(3)
        switch = network.multicast[0]
        for steps in (1, 2, 3):
            none = LowerBound(Fraction(0), {})
            certificate = step_cuts_bound(network, collective("allreduce", 4), steps, none).certificate
            price = {k: row for _, k, *row in certificate["prices"]}
            for _ in range(100):
                t, rank, fetches = rng.randint(1, steps), rng.randrange(4), rng.random() < 0.5
                group = [r for r in EVERYONE if r == rank or rng.random() < 0.6]
                entered = 0
                for weight, *theta in certificate["cuts"]["0"]:
                    pairs = [(r, rank) if fetches else (rank, r) for r in group if r != rank]
                    entered += weight * any(theta[a] < t - 1 and t <= theta[b] for a, b in pairs)
                assert entered <= sum(price[k][t - 1] for k in switch.caps(rank, group, fetches=fetches))
