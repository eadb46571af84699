"""Switches that multicast and reduce: topologies, replay of their sends, and what the checker refuses."""

from __future__ import annotations

import copy
from fractions import Fraction

import pytest

from synth import bounds
from synth.checker.certificates.cuts import check
from synth.checker.schedule import replay
from synth.errors import FormatError, SynthError, VerificationError
from synth.model.bitwise_equality import same_bits
from synth.model.collective import collective
from synth.model.schedule import Schedule, Send, Step, SwitchSend, problem_fingerprint
from synth.model.topology import Limit, Link, Multicast, Network, Topology
from synth.topologies import topology
from synth.topologies.modify import with_ranks
from synth.topologies.topology_files import dump, from_document, load

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


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("dgx-h100", "97b640d83c31ba009afabd68eefea05ab368b3e344ea408dd98197f6b9b9d2b4"),
        ("dgx-h100*2", "9ae12d2549f32f017d1a7be81b06e51bbab1ddc2d2ab7e2570cc4efaa7e6e283"),
    ],
)
def test_networks_without_multicast_keep_their_fingerprints(name: str, digest: str) -> None:
    made = topology(name)
    task = collective("allreduce", made.ranks)
    assert problem_fingerprint(made.network(), task) == digest
    assert "multicast" not in made.network().document
    assert problem_fingerprint(made.multicast_network(), task) != digest


@pytest.mark.parametrize("kind", ["multicast", "multicast-reduce", "fetch-reduce"])
@pytest.mark.parametrize("own", ["through", "local"])
@pytest.mark.parametrize("change", ["dropped", "doubled", "port", "rank outside", "issuer missing", "unknown switch"])
def test_a_mutant_of_each_kind_is_refused(own: str, kind: str, change: str) -> None:
    network = machine(own)
    if kind == "multicast-reduce":
        sends = tuple(switch_send(0, rank, kind) for rank in EVERYONE)
        rounds = 4 if own == "through" else 3
        schedule = Schedule(network, collective("allreduce", 4), 1, (Step(rounds, (), sends),))
    else:
        schedule = fetch_then_multicast(network)
    doc = schedule.to_json()
    replay.schedule(doc)
    mutant = copy.deepcopy(doc)
    step = mutant["steps"][1 if kind == "multicast" else 0]
    rows = step["switch_sends"]
    if change == "dropped":
        rows.pop()
    elif change == "doubled":
        rows.append(rows[0])
    elif change == "port":  # one round less than the busiest port takes
        step["rounds"] -= 1
        mutant.pop("fingerprint")
    elif change == "rank outside":
        mutant["topology"]["multicast"][0]["ports"].pop()
        mutant.pop("fingerprint")
    elif change == "issuer missing":
        rows[0][2] = [rank for rank in EVERYONE if rank != rows[0][1]]
    else:
        rows[0][4] = "another"
    with pytest.raises(VerificationError):
        replay.schedule(mutant)


def test_a_bound_without_multicast_proves_nothing_with_it() -> None:
    network, task = machine("local"), collective("allreduce", 4)
    plain = topology("switch:4").network()
    certificate = bounds.combining(plain, task, None).certificate | {"problem": problem_fingerprint(network, task)}
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
    made = Topology("star", 3, tuple(links), limits, ("sw",), unit=Fraction(1), multicast=(Multicast("sw"),))
    network = made.multicast_network()
    units = [[network.caps[k].units for k in port.up] for port in network.multicast[0].ports]
    assert units == [[2, 1], [2], [2]]
    sends = tuple(SwitchSend(chunk, 0, (0, 1, 2), "multicast", "sw") for chunk in range(2))
    schedule = Schedule(network, collective("broadcast", 3), 2, (Step(9, (), sends),))
    assert least_rounds(schedule) == [2]  # the slot's limit holds the wire of rank 0


def test_two_ranks_have_ports_too() -> None:
    two = with_ranks(topology("dgx-h100"), [3, 5])
    network = two.multicast_network()
    assert [port.rank for port in network.multicast[0].ports] == [0, 1]
    assert {network.caps[k].units for port in network.multicast[0].ports for k in (*port.up, *port.down)} == {18}
    assert not with_ranks(topology("dgx-h100"), [3]).multicast


def test_boxes_of_a_cluster_have_switches_of_their_own() -> None:
    network = topology("dgx-h100*2").multicast_network()
    assert [switch.switch for switch in network.multicast] == ["box0.nvswitch", "box1.nvswitch"]
    assert [port.rank for port in network.multicast[1].ports] == list(range(8, 16))
    units = {network.caps[k].units for switch in network.multicast for port in switch.ports for k in port.up}
    assert units == {18}


def test_files_keep_switches_that_multicast(tmp_path) -> None:
    made = topology("dgx-h100")
    assert from_document(load_json(dump(made)), "file").multicast == made.multicast
    assert from_document(load_json(dump(made)), "file").multicast_network().multicast == (
        made.multicast_network().multicast
    )


def load_json(doc: dict) -> dict:
    import json

    from synth.topologies.file_reader import parse_json

    return parse_json(json.dumps(doc), "file")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{switch: nvs, ranks: [0, 1, 1]}", "names rank 1 twice"),
        ("{switch: nvs, ranks: []}", "has no ranks"),
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


def test_a_family_names_its_kind_of_switch() -> None:
    assert topology("switch:3:multicast=local").multicast == (Multicast("switch", (0, 1, 2), "local"),)
    with pytest.raises(SynthError, match="own is 'no'"):
        topology("switch:3:multicast=no")
