"""A document that bears a built-in machine's name and is not that machine says so, and all that is assumed is named."""

import json
from dataclasses import replace
from fractions import Fraction

import pytest

import synth
from synth.commands import api
from synth.commands.framework.documents import write_schedules
from synth.errors import InfeasibleError
from synth.export import program_reader
from synth.model.topology import Topology
from tests.command_line import synth as cli


def altered(name):
    """Return a machine of the name of a built-in one, with a wider first link."""
    machine = synth.topology(name)
    first, *others = machine.links
    return replace(machine, links=(replace(first, bandwidth=2 * first.bandwidth), *others))


def documents(machine, tmp_path):
    """Yield a document, or its file, of each kind that names its machine, by the kind."""
    found = api.frontier(machine, "broadcast", max_steps=2, engine="exact", multicast=False)
    yield "frontier", found.to_json()
    yield "schedule", found.points[0].schedule.to_json()
    scale = api.frontier(machine, "broadcast", engine="flow")
    yield "at scale", scale.to_json({}, links=True)
    (name, *_) = [name for _, name in write_schedules(scale, tmp_path)]
    yield "archive", tmp_path / name
    rows = [synth.Link(0, 1, 1)]
    with pytest.raises(InfeasibleError) as error:
        synth.frontier(Topology(machine.name, machine.ranks, rows), "broadcast")
    network = Topology(machine.name, machine.ranks, rows).network()
    task = synth.collective("broadcast", machine.ranks)
    yield "infeasible", {
        "schema": "synth.infeasible/1", "topology": network.to_json(), "collective": task.to_json(1), "max_steps": None,
        "certificate": error.value.certificate,
    }  # fmt: skip


def test_every_kind_of_document_of_another_machine_says_so(tmp_path):
    for kind, document in documents(altered("fully-connected:4"), tmp_path):
        claims = synth.verify(document)
        assert claims[0] == claims.differs, kind
        assert claims.differs.startswith("differs: the machine of this document is called 'fully-connected:4'"), kind
        assert "on a machine called fully-connected:4 that is not the built-in one, 4 ranks" in claims.subject, kind


def test_documents_of_the_built_in_machine_say_nothing(tmp_path):
    for kind, document in documents(synth.topology("fully-connected:4"), tmp_path):
        if kind != "infeasible":
            assert not synth.verify(document).differs, kind


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda m: replace(m, links=m.links[:-1], limits=()), "11 links, the built-in one has 12"),
        (lambda m: replace(m, links=(*m.links[:-1], replace(m.links[-1], latency=Fraction(9)))), "9"),
        (lambda m: replace(m, limits=(synth.Limit("port", [0, 1], 1),)), "1 limit, the built-in one has 0"),
        (lambda m: replace(m, links=tuple(replace(k, bandwidth=Fraction(2)) for k in m.links)), "2"),
        (lambda m: replace(m, links=tuple(reversed(m.links))), ""),
    ],
)
def test_any_change_is_named_and_the_order_of_links_is_none(change, says):
    found = api.frontier(change(synth.topology("fully-connected:4")), "broadcast", max_steps=1)
    differs = synth.verify(found.to_json()).differs
    assert (says in differs) if says else not differs


def test_an_invented_switch_is_named(tmp_path):
    """A switch with ports of 10^9 units was none of what is assumed, on a ring that has no switch."""
    document = api.frontier("switch:4:multicast=through", "broadcast", max_steps=1).to_json()
    assert synth.verify(document).differs == ""
    (assumed,) = [line for line in synth.verify(document) if line.startswith("assumed")]
    assert "limits and latencies, and ports of switches that multicast and reduce: switch" in assumed
    text = json.dumps(document).replace('"switch:4:multicast=through"', '"fully-connected:4"')
    assert synth.verify(json.loads(text)).differs


def test_other_commands_call_the_machine_otherwise(tmp_path):
    """`run`, `show`, `explain` and `report` printed a slower machine's times under the built-in name."""
    found = api.frontier(altered("ring:4"), "allgather", max_steps=2)
    file = tmp_path / "frontier.json"
    file.write_text(json.dumps(found.to_json()))
    loaded = program_reader.load(file)
    name = "ring:4-not-the-built-in"
    assert loaded.network.name == name and {point.schedule.network.name for point in loaded.points} == {name}
    for command in (f"run {file} --size 64KB", f"show {file}", f"explain {file} --point 1", f"verify {file}"):
        said = cli(command).stdout
        assert "not" in said and "built-in" in said, command
    assert name in api.report([file]).html
    file.write_text(json.dumps(api.frontier("ring:4", "allgather", max_steps=2).to_json()))
    assert program_reader.load(file).network.name == "ring:4"
