"""Other programs' schedules: imported with the meaning that they have, refused with the place, audited."""

import json
from itertools import product
from pathlib import Path

import foreign_schedules
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import synth
from synth.commands import api
from synth.errors import FormatError, SynthError, UsageError, VerificationError
from synth.language.library import LIBRARY
from tests import command_line

RING = synth.topology("ring:4")


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def written(document: object, name: str = "s.json") -> Path:
    """Return the path of a file with a JSON document, or a text."""
    Path(name).write_text(document if isinstance(document, str) else json.dumps(document))
    return Path(name)


def sends(schedule):
    """Return how often each chunk crosses each link with each effect."""
    return sorted((s.chunk, s.src, s.dst, s.kind[:4]) for step in schedule.steps for s in step.sends if not s.local)


# ---------------------------------------------------------------- MSCCL-IR

CASES = [one for one in LIBRARY if one.collective in ("allgather", "allreduce", "alltoall", "reduce-scatter")]


def slow_but_third(cases):
    """Return parameters, of which the first and each third one after it are quick."""
    return [pytest.param(*case, marks=pytest.mark.slow if place % 3 else ()) for place, case in enumerate(cases)]


def identity(value):
    return value if isinstance(value, str) else f"{value.name}-{value.collective}"


@pytest.mark.parametrize(
    ("one", "in_place"),
    slow_but_third([*((one, "out") for one in CASES), *((one, "in") for one in CASES[::6])]),
    ids=identity,
)
def test_a_schedule_comes_back_from_msccl_ir(one, in_place):
    machine = synth.topology("torus:2x4" if one.name.startswith("torus") else "fully-connected:8")
    try:
        schedule = one.schedule(machine)
        api.export_program(schedule, "msccl-xml", in_place=in_place, runtime="msccl").write("a.xml")
    except UsageError:
        pytest.skip("not on this machine")
    except SynthError as refused:
        assert "in place" in str(refused)
        return
    found = api.import_schedule("a.xml", machine).schedule
    assert found.step_count <= schedule.step_count
    if found.chunks == schedule.chunks:
        assert sends(found) == sends(schedule)
    assert len(sends(found)) * schedule.chunks == len(sends(schedule)) * found.chunks


def test_sums_in_scratch_are_sends_that_add():
    """Rank 0 gets two inputs in scratch, adds them to each other and then to its own."""
    text = """<algo name="a" nchannels="1" nchunksperloop="1" proto="Simple" coll="reduce" ngpus="3" inplace="0"
 outofplace="1" minBytes="0" maxBytes="0">
<gpu id="0" i_chunks="1" o_chunks="1" s_chunks="2">
<tb id="0" send="-1" recv="1" chan="0">STEP0</tb><tb id="1" send="-1" recv="2" chan="0">STEP1</tb>
</gpu>SENDER1SENDER2</algo>"""
    step = (
        '<step s="{}" type="{}" srcbuf="{}" srcoff="{}" dstbuf="{}" dstoff="{}" cnt="1" depid="{}" deps="{}" '
        'hasdep="{}"/>'
    )
    one = step.format(0, "r", "i", 0, "s", 0, -1, -1, 1)
    two = step.format(0, "r", "i", 0, "s", 1, -1, -1, 0) + step.format(1, "re", "s", 0, "s", 1, 0, 0, 0)
    two += step.format(2, "cpy", "i", 0, "o", 0, -1, -1, 0) + step.format(3, "re", "s", 1, "o", 0, -1, -1, 0)
    text = text.replace("STEP0", one).replace("STEP1", two)
    for rank in (1, 2):
        sender = f'<gpu id="{rank}" i_chunks="1" o_chunks="0" s_chunks="0"><tb id="0" send="0" recv="-1" chan="0">'
        sender += step.format(0, "s", "i", 0, "o", 0, -1, -1, 0) + "</tb></gpu>"
        text = text.replace(f"SENDER{rank}", sender)
    found = api.import_schedule(written(text, "a.xml")).schedule
    assert found.collective.name == "reduce"
    assert [row[:3] for row in sends(found)] == [(0, 1, 0), (0, 2, 0)]
    assert found.step_count == 1


def gathered(copies: str = "") -> str:
    """Return MSCCL-IR of an allgather in place between two ranks, with elements `copies` in each gpu."""
    lines = ['<algo name="a" nchannels="1" nchunksperloop="2" proto="Simple" coll="allgather" ngpus="2" inplace="1">']
    for rank in (0, 1):
        lines.append(f'<gpu id="{rank}" i_chunks="1" o_chunks="2" s_chunks="0">{copies}')
        lines.append(f'<tb id="0" send="{1 - rank}" recv="{1 - rank}" chan="0">')
        for number, (kind, offset) in enumerate([("s", rank), ("r", 1 - rank)]):
            spans = f'srcbuf="o" srcoff="{offset}" dstbuf="o" dstoff="{offset}"'
            lines.append(f'<step s="{number}" type="{kind}" {spans} cnt="1" depid="-1" deps="-1" hasdep="0"/>')
        lines.append("</tb></gpu>")
    return "\n".join([*lines, "</algo>"])


def test_copy_elements_are_skipped_with_a_warning():
    path = written(gathered('<copy i_off="0" o_off="0"/><!-- <copy/> -->'), "a.xml")
    found = api.import_schedule(path)
    assert found.notes[0] == "2 <copy> elements are skipped, as every loader does"
    assert found.schedule.step_count == 1
    warnings = [finding for finding in api.lint(path).findings if finding.rule == "skipped"]
    assert [(one.severity, one.message[:10]) for one in warnings] == [("warning", "2 <copy> e")]
    plain = api.lint(written(gathered(), "b.xml"))
    assert plain.ok
    assert not [finding for finding in plain.findings if finding.rule == "skipped"]
    with pytest.raises(FormatError, match="<copy> stands inside <tb>"):
        api.lint(written(gathered().replace("<step", "<copy/><step", 1), "c.xml"))


def test_a_wrong_program_is_refused_with_its_place():
    path = written(
        gathered().replace('srcoff="0" dstbuf="o" dstoff="0"', 'srcoff="1" dstbuf="o" dstoff="1"', 1), "a.xml"
    )
    with pytest.raises(VerificationError, match="gpu 0 block 0 step 0"):
        api.import_schedule(path)


# ---------------------------------------------------------------- TE-CCL


@pytest.mark.parametrize(
    "one", slow_but_third([(one,) for one in LIBRARY if one.collective in ("allgather", "alltoall")]), ids=identity
)
def test_a_schedule_comes_back_from_teccl(one):
    machine = synth.topology("fully-connected:8")
    try:
        schedule = one.schedule(machine)
    except UsageError:
        pytest.skip("not on this machine")
    path = written(foreign_schedules.teccl(schedule, {(0, 1): 40, (2, 3): 41}))
    found = api.import_schedule(path, machine).schedule
    assert found.collective == schedule.collective
    assert found.step_count <= schedule.step_count
    assert len(sends(found)) * schedule.chunks == len(sends(schedule)) * found.chunks


def relayed(found) -> int:
    """Return how many chunks of rank 0 for rank 2 go by rank 1."""
    unit = 0 * 3 + 2
    return len({s.chunk for step in found.steps for s in step.sends if s.chunk // found.chunks == unit and s.dst == 1})


@pytest.mark.parametrize(
    ("shares", "parts", "by_node"),
    [
        (("0.5", "0.5"), 2, 1), (("0.75", "0.25"), 4, 1), (("0.3333333", "0.6666667"), 3, 2),
        (("0.333333", "0.666667"), 3, 2), (("0.24999999999999994", "0.75"), 4, 3), (("0.5875", "0.4125"), 80, 33),
        (("0.0009765625", "0.9990234375"), 1024, 1023),
    ],
)  # fmt: skip
def test_volumes_are_parts_of_chunks(shares, parts, by_node):
    found = api.import_schedule(written(foreign_schedules.halves(*shares)), "fully-connected:3").schedule
    assert (found.chunks, relayed(found)) == (parts, by_node)


def test_parts_that_leave_together_stand_once_among_the_flows():
    """The list of flows is a set, and had one of two halves; the schedule was called wrong."""
    document = foreign_schedules.halves(together=True)
    assert len(document["7-Flows"]) == 8
    found = api.import_schedule(written(document), "fully-connected:3").schedule
    assert (found.chunks, relayed(found)) == (2, 2)
    found = api.import_schedule(written(foreign_schedules.halves("0.6", "0.4", together=True)), "fully-connected:3")
    assert (found.schedule.chunks, relayed(found.schedule)) == (5, 5)


@pytest.mark.parametrize(
    ("old", "new", "error", "text"),
    [
        ("1->2 with volume 0.5 in epoch 1", "1->2 with volume 0.25 in epoch 1", VerificationError, "0.25 of a chunk"),
        ("0.5", "0.4", VerificationError, "its paths bring 0.8 of the chunk"),
        ("0.5", "0.49", VerificationError, "its paths bring 0.98 of the chunk"),
        ("0.5", "0.7", VerificationError, "its paths bring 1.4 of the chunk"),
        ("1->3 with volume 0.5", "1->3 with volume 2.5", FormatError, "volume 2.5 is no share"),
        ("2->3 with volume 0.5 in epoch 2", "2->3 with volume 0.5 in epoch 0", VerificationError, "is at node 2"),
        ("2->3 with volume 0.5", "1->3 with volume 0.5", VerificationError, "is at node 2, and the path goes on from"),
        ("1->3 with volume 0.5 in epoch 0", "1->2 with volume 0.5 in epoch 0", VerificationError, "ends at node 2"),
        ("7-chunk paths", "7-paths", FormatError, "has no chunk paths"),
    ],
)
def test_paths_that_do_not_bring_their_chunk_are_wrong(old, new, error, text):
    document = foreign_schedules.halves()
    document = json.loads(json.dumps(document).replace(old, new))
    with pytest.raises(error, match=text):
        api.import_schedule(written(document), "fully-connected:3")


@pytest.mark.parametrize("shares", [("0.4123456", "0.5876544"), ("0.00003", "0.99997")])
def test_volumes_of_too_many_parts_are_refused(shares):
    with pytest.raises(FormatError, match="no whole numbers of up to 1024 parts"):
        api.import_schedule(written(foreign_schedules.halves(*shares)), "fully-connected:3")


def changed(document: dict, **changes: object) -> dict:
    """Return the document with other values of its fields; None removes one."""
    return {key: value for key, value in (document | changes).items() if value is not None}


RING_FLOWS = foreign_schedules.teccl(api.baseline("ring", "ring:4", "allgather"))
FLOW = "Chunk 0 from 1 traveled over 1->2 in epoch 0"


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"7-Flows": []}, FormatError, "expected a list of 1 to"),
        ({"7-Flows": [7]}, FormatError, r"7-Flows\[0\]: 7 is no flow"),
        ({"7-Flows": [FLOW + " and so on"]}, FormatError, "is no flow"),
        ({"7-Flows": [FLOW.replace("in", "with volume 2.0 in")]}, FormatError, "is no share of a chunk"),
        ({"7-Flows": [FLOW + " via switches 2"]}, FormatError, "node 2, which another one names as a switch"),
        ({"8-Chunk paths": None}, FormatError, "no chunk paths"),
        ({"8-Chunk paths": {"Demand": []}}, FormatError, "is no demand"),
        ({"8-Chunk paths": {"Demand at 99 for chunk 0 from 1 met by epoch 0": []}}, FormatError, "node 99"),
        ({"7-Flows": RING_FLOWS["7-Flows"][:-1]}, VerificationError, "outputs are missing"),
        ({"7-Flows": RING_FLOWS["7-Flows"][::-1][:3] + RING_FLOWS["7-Flows"][1:]}, VerificationError, None),
    ],
)
def test_a_malformed_document_is_refused_with_its_place(change, error, text):
    path = written(changed(RING_FLOWS, **change))
    if text is None:
        doc = json.loads(path.read_text())
        doc["7-Flows"] = [
            row.replace("from 1 traveled over 1->2", "from 1 traveled over 3->2") for row in doc["7-Flows"]
        ]
        path, text = written(doc), "does not have that much of it"
    with pytest.raises(error, match=text):
        api.import_schedule(path, RING)


def test_flows_in_any_order_wait_for_their_data():
    """A chunk that goes round, listed from its end."""
    flows, demands, ring = [], {}, 100
    for src in range(ring):
        flows.append(f"Chunk 0 from 0 traveled over {src}->{(src + 1) % ring} in epoch 0")
    for dst, source in product(range(ring), repeat=2):
        if dst != source:
            demands[f"Demand at {dst} for chunk 0 from {source} met by epoch 0"] = []
    with pytest.raises(VerificationError, match="outputs are missing"):
        api.import_schedule(written({"7-Flows": flows[::-1], "8-Chunk paths": demands}))


def test_links_that_the_machine_lacks_are_named():
    path = written(foreign_schedules.teccl(api.baseline("ring", "ring:4", "allgather")))
    with pytest.raises(UsageError, match=r"7-Flows\[\d+\]: line:4 has no link"):
        api.import_schedule(path, "line:4")
    with pytest.raises(UsageError, match="is for 4 ranks; ring:8 has 8"):
        api.import_schedule(path, "ring:8")
    assert api.import_schedule(path).notes[-1].startswith("no machine was named")


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_documents_with_any_change_are_read_or_refused(data):
    text = json.dumps(RING_FLOWS)
    at = data.draw(st.integers(0, len(text) - 1))
    with_change = text[:at] + data.draw(st.sampled_from('0",{[]}->e-9x ')) + text[at + data.draw(st.integers(0, 2)) :]
    try:
        api.import_schedule(written(with_change), RING)
    except SynthError as refused:
        assert "\n" not in str(refused)


# ---------------------------------------------------------------- ForestColl

CHAIN = [{(r + k) % 4: (r + k - 1) % 4 for k in (1, 2, 3)} for r in range(4)]
STAR = [{rank: r for rank in range(4) if rank != r} for r in range(4)]


def test_trees_are_schedules():
    path = written(foreign_schedules.forest(CHAIN, 2, boxes=2), "f.xml")
    found = api.import_schedule(path, "ring:4").schedule
    assert (found.collective.name, found.chunks % 2, found.step_count) == ("allgather", 0, 3)
    assert found.rounds_per_chunk == 3
    star = api.import_schedule(written(foreign_schedules.forest(STAR), "f.xml"), "fully-connected:4").schedule
    assert (star.step_count, star.rounds_per_chunk) == (1, 1)


def test_a_declaration_and_comments_may_stand_before_the_trees():
    text = foreign_schedules.forest(STAR)
    long = '<?xml version="1.0"?>\n<!-- ' + "trees " * 1000 + "-->\n" + text
    assert api.import_schedule(written(long, "f.xml"), "fully-connected:4").schedule.step_count == 1


@pytest.mark.parametrize(
    ("old", "new", "error", "text"),
    [
        ("nchunkspernode", "nchunks", FormatError, "'nchunks' is not known"),
        ('nchunkspernode="1"', 'nchunkspernode="0"', FormatError, "from 1 to 4096"),
        ('nchunks="1"', 'nchunks="2"', FormatError, "f.xml:2: the trees of this root have more than 1 chunks"),
        ("(0, 'GPU', 0)\" index", "0\" index", FormatError, "f.xml:2: root="),
        ("height=\"1\"", "", FormatError, "'height' is missing"),
        ("dst=\"(0, 'GPU', 1)\"", "dst=\"(0, 'GPU', 3)\"", FormatError, "f.xml:3: its path"),
        ("'IB', 0)", "'IB', 0", FormatError, "f.xml:3: path"),
        ("<send src=\"(0, 'GPU', 0)\" dst=\"(0, 'GPU', 1)\" path=\"(0, 'GPU', 0),(-1, 'IB', 0),(0, 'GPU', 1)\"/>", "",
         VerificationError, "does not reach rank 1"),
        ("<send src=\"(0, 'GPU', 0)\" dst=\"(0, 'GPU', 1)\" path=\"(0, 'GPU', 0),",
         "<send src=\"(0, 'GPU', 2)\" dst=\"(0, 'GPU', 1)\" path=\"(0, 'GPU', 2),",
         VerificationError, "f.xml:3: rank 2"),
    ],
)  # fmt: skip
def test_malformed_trees_are_refused_with_the_line(old, new, error, text):
    whole = foreign_schedules.forest(STAR)
    assert old in whole
    with pytest.raises(error, match=text):
        api.import_schedule(written(whole.replace(old, new, 1), "f.xml"), "fully-connected:4")


@pytest.mark.parametrize("name", ["broadcast", "alltoall"])
def test_trees_are_read_as_nothing_else(name):
    path = written(foreign_schedules.forest(CHAIN), "f.xml")
    with pytest.raises(UsageError, match=f"not as {name}"):
        api.import_schedule(path, "ring:4", collective=name)


# ---------------------------------------------------------------- the commands


def test_an_imported_schedule_is_verified():
    path = written(foreign_schedules.teccl(api.baseline("ring", "ring:4", "allgather")))
    out = command_line.synth("import", str(path), "--topo", "ring:4", "-o", "ours.json").stdout
    assert out.startswith("TE-CCL's schedule: allgather on ring:4: C=")
    assert "verified" in command_line.synth("verify", "ours.json").stdout
    assert json.loads(command_line.synth("import", str(path), "-o", "-").stdout)["schema"] == "synth.schedule/1"
