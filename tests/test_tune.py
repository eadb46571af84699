"""synth tune: plans from the model, from measurements and from logs; documents, tables and errors."""

import json
from dataclasses import replace
from fractions import Fraction
from itertools import groupby, pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nccl_tests_output import Run, text

from synth.catalog.tuner.request import SIZES
from synth.commands import api
from synth.commands.framework.types import Sizes
from synth.commands.tuning import tune
from synth.errors import FormatError, SynthError, UsageError
from synth.export.plans import read
from synth.model.frontier import Frontier, LowerBound, Point
from synth.model.topology import MULTICAST_NOTE
from synth.model.tuning_plan import Plan
from synth.scale.time_bound import time_bound
from synth.view import plans
from tests.command_line import synth

KIB = 1 << 10
PCIE = """
	GPU0	GPU1	GPU2	GPU3	CPU Affinity	NUMA Affinity
GPU0	 X 	PIX	PHB	PHB	0-15	0
GPU1	PIX	 X 	PHB	PHB	0-15	0
GPU2	PHB	PHB	 X 	PIX	0-15	0
GPU3	PHB	PHB	PIX	 X 	0-15	0
"""


def made(*names, topology="full:4", collective="allgather"):
    found = [api.baseline(name, topology, collective) for name in names]
    points = tuple(Point.of(s, LowerBound(Fraction(1), {"kind": "none"}), "by hand") for s in found)
    return Frontier(found[0].network, found[0].collective, points)


FRONTIER = made("direct", "ring")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("f.json").write_text(json.dumps(FRONTIER.to_json()))
    return tmp_path


def sound(plan):
    """Check the promises of every plan."""
    read.check(plan)
    for table in plan.tables:
        assert (table.ranges[0].low, table.ranges[-1].high) == (table.sizes[0], table.sizes[-1])
        for before, after in pairwise(table.ranges):
            assert after.low == before.high + 1
        for i, size in enumerate(table.sizes):
            chosen = plan.choose(table.collective, size, table.element)
            assert chosen == (None if table.chosen[i] is None else plan.algorithms[table.chosen[i]])
            assert (chosen is None) == (table.seconds[i] is None)
            assert chosen is None or table.seconds[i] >= table.best[i]
            assert table.seconds[i] is None or table.seconds[i] == table.times[i][0]
            assert table.best[i] == min(t for t in (table.ours[i], table.library[i]) if t is not None)
    doc = json.loads(json.dumps(plan.to_json()))
    assert Plan.from_json(doc).to_json() == doc == plan.to_json()
    for report in plans.reports(plan):
        assert all(len(row) == len(report.columns) for row in report.rows)
    assert "<table>" in plan._repr_html_() and "Plan of" in repr(plan)
    return plan


def test_without_measurements_the_model_decides():
    plan = sound(api.tune(frontiers=[FRONTIER]))
    (table,) = plan.tables
    assert plan.source == "model" and "not measured" in plan.says
    assert table.sizes == SIZES
    protocols = [plan.algorithms[row.order[0]].protocol for row in table.ranges]
    assert [key for key, _ in groupby(protocols)] == ["LL", "Simple"]
    assert plan.choose("allgather", 1 << 10).schedule == FRONTIER.points[0].schedule
    assert set(table.losses) == {0.0}
    assert any("LL128 is not offered, for the kinds of links are not known" in note for note in plan.notes)
    assert "LL128" in {a.protocol for a in sound(api.tune(frontiers=[FRONTIER], protocols=["LL128"])).algorithms}


def test_measurements_decide_where_there_are_any():
    """The ring is worse by the model at every size; the times say otherwise above 64 KiB."""
    doc = api.bench(FRONTIER, [1 << k for k in range(10, 23, 2)]).to_json()
    for row in doc["rows"]:
        factor = 0.5 if (row["size"] > 64 * KIB) == (row["program"] == 1) else 2
        time = row["size"] * 1e-9 * factor + 1e-6
        row["seconds"] = row["least"] = row["most"] = time
    asked = {"frontiers": [FRONTIER], "sizes": [1 << k for k in range(10, 23)]}
    plan = sound(api.tune(measured=[doc], **asked))
    assert plan.source == "model" and plan.model["allgather"]["kind"] == "fitted"  # its executor reads no clock
    plan = sound(api.tune(measured=[doc | {"modelled": False}], **asked))
    assert plan.source == "measured"
    direct, ring = (p.schedule for p in FRONTIER.points)
    assert plan.choose("allgather", 16 * KIB).schedule == direct
    assert plan.choose("allgather", 1 << 20).schedule == ring
    (table,) = plan.tables
    assert len(table.ranges) == 2 and 64 * KIB < table.ranges[1].low <= 256 * KIB


def reference(frontier, sizes, ways, **options):
    return [api.bench(frontier, sizes, protocol=p, instances=n, **options).to_json() for p, n in ways]


def test_programs_are_recognised_and_baselines_built_again():
    docs = reference(FRONTIER, [4 * KIB, 256 * KIB], [("Simple", 1), ("LL", 2)], baselines=("recursive-doubling",))
    plan = sound(api.tune(frontiers=[FRONTIER], measured=docs, sizes=[4 * KIB, 256 * KIB]))
    assert all(a.schedule is not None for a in plan.algorithms)
    assert {(a.protocol, a.instances) for a in plan.algorithms} <= {("Simple", 1), ("LL", 2)}
    assert any("no evidence for a GPU" in note for note in plan.notes)
    plan = sound(api.tune(measured=docs, sizes=[4 * KIB]))  # without the frontier: names and times alone
    assert all(a.schedule is None and a.divisor > 1 for a in plan.algorithms)


def test_a_program_of_another_lowering_is_known_by_its_name_alone():
    (doc,) = reference(FRONTIER, [4 * KIB], [("Simple", 1)])
    for program in doc["programs"]:
        program["fingerprint"] = "0" * 64
    plan = sound(api.tune(frontiers=[FRONTIER], measured=[doc], sizes=[4 * KIB]))
    assert all(one.schedule is None for one in plan.algorithms)
    assert any(note.startswith("not measured, so never chosen: ") for note in plan.notes)


@settings(max_examples=5, deadline=None)
@given(
    st.lists(st.integers(1, 1 << 24), min_size=1, max_size=10),
    st.sampled_from(["float32", "float16", "float64", "uint8"]),
    st.sets(st.sampled_from([1, 2, 3, 4]), min_size=1),
)
def test_every_size_has_an_answer(sizes, kind, instances):
    """By the executors that pad, and without padding the library's own, or a schedule that divides the size."""
    plan = sound(api.tune(frontiers=[FRONTIER], sizes=sizes, dtype=kind, instances=sorted(instances)))
    element = plan.tables[0].element
    for size in range(min(sizes), min(max(sizes), min(sizes) + 200) + 1):
        chosen, whole = (plan.choose("allgather", size, element, padding=padding) for padding in (True, False))
        assert chosen is not None and (whole is None or size // element % whole.divisor == 0)
        assert size % element or whole is not None


# ---------------------------------------------------------------- logs


def write_logs(nccl, mpi):
    """Times in µs by size."""
    for name, times in (("nccl", nccl), ("mpi", mpi)):
        run = Run("allgather", 4, {size: (micro, micro) for size, micro in times.items()})
        Path(f"{name}.txt").write_text(text(run) if times else "")


@pytest.mark.parametrize("seed", range(4))
def test_logs_give_the_winners_that_they_contain(folder, seed):
    random = Random(seed)
    sizes = [1 << k for k in range(10, 23)]
    won = {size: random.choice(["nccl", "mpi", "synth"]) for size in sizes}
    # beyond the time that the links take
    times = {name: {size: 2e3 if won[size] == name else 4e3 for size in sizes} for name in ("nccl", "mpi", "synth")}
    write_logs(times["nccl"], times["mpi"])
    doc = api.bench(FRONTIER, sizes, point=1).to_json()
    for row in doc["rows"]:
        row["seconds"] = row["least"] = row["most"] = times["synth"][row["size"]] * 1e-6
    Path("m.json").write_text(json.dumps(doc))
    logs = "--log nccl=nccl.txt --log mpi=mpi.txt --measured m.json"
    synth("tune --from f.json --coll allgather --sizes 1KiB:4MiB", logs, "-o p.json")
    plan = sound(api.load_plan("p.json"))
    assert {size: plan.choose("allgather", size, 4).backend for size in sizes} == won


def test_times_below_what_the_links_take_are_refused(folder):
    """They are of another machine or collective; a time in the fourth digit below the bound is one that was rounded."""
    size = 1 << 22
    least = float(time_bound(FRONTIER.network, FRONTIER.collective, [size]).microseconds(size))
    doc = api.bench(FRONTIER, [size], point=1).to_json() | {"modelled": False}
    for share, taken in ((0.5, False), (0.99, False), (0.999, True), (1.5, True)):
        write_logs({size: share * least}, {})
        row = doc["rows"][0] | dict.fromkeys(("seconds", "least", "most"), share * least * 1e-6)
        for times in ({"logs": [("nccl", "nccl.txt")]}, {"measured": [doc | {"rows": [row]}]}):
            if taken:
                sound(api.tune(frontiers=[FRONTIER], sizes=[size], **times))
                continue
            with pytest.raises(FormatError, match="allgather on fully-connected:4 takes at least"):
                api.tune(frontiers=[FRONTIER], sizes=[size], **times)


def test_measurements_of_something_else_are_refused(folder):
    """They were left out without a word, and the model decided."""
    doc = api.bench(FRONTIER, [1 << 20], point=1).to_json()
    for name, machine in (("allreduce", "full:4"), ("allgather", "full:8")):
        with pytest.raises(UsageError, match="measured has times of allgather on 4 ranks; asked for: "):
            api.tune(machine, name, [1 << 20], measured=[doc])


def test_logs_alone_are_a_plan(folder):
    write_logs({1024: 10, 4096: 12}, {1024: 5, 4096: 50})
    said = synth("tune --coll allgather --sizes 1KiB,4KiB --log nccl=nccl.txt --log mpi=mpi.txt -o p.json").stdout
    assert "as nccl-tests printed them" in said and "mpi" in said
    plan = sound(api.load_plan("p.json"))
    assert [plan.choose("allgather", size, 4).backend for size in (1024, 4096)] == ["mpi", "nccl"]
    assert plan.topology is None and plan.tables[0].ranks == 4


# ---------------------------------------------------------------- the command


def test_one_command_synthesizes_and_tunes(folder):
    said = synth("tune --topo ring:4 --coll allgather -o plan.json").stdout
    assert "what to run" in said and "loss" in said and "1 GB" in said
    plan = sound(api.load_plan("plan.json"))
    assert plan.topology is not None and plan.topology.ranks == 4
    assert plan.tables == api.tune("ring:4", "allgather").tables


def test_several_collectives_make_one_plan(folder):
    plan = sound(api.tune("full:4", ["allgather", "broadcast"], [1 << 10, 1 << 20]))
    assert [(t.collective, t.root) for t in plan.tables] == [("allgather", None), ("broadcast", 0)]
    assert {a.schedule.collective.name for a in plan.algorithms if a.schedule} == {"allgather", "broadcast"}
    assert len({a.label for a in plan.algorithms}) == len(plan.algorithms)
    doc = json.loads(synth("tune --topo full:4 --coll allgather,broadcast --sizes 1KiB,1MiB --format json").stdout)
    assert Plan.from_json(doc).tables == plan.tables
    assert doc["tables"][0]["greatest_loss"] == max(doc["tables"][0]["losses"])


ALLREDUCE = made("direct", "ring", topology="dgx1", collective="allreduce")  # 8 and 48 chunks


def test_a_point_that_does_not_divide_a_size_is_chosen_at_its_padded_time():
    """It was left out, and what is three times slower was chosen without loss."""
    plan = sound(api.tune(frontiers=[ALLREDUCE], sizes=[1 << 10, 1 << 30], protocols=["Simple"]))
    (table,) = plan.tables
    ring = next(a for a in plan.algorithms if a.label == "nccl-ring")
    assert plan.choose("allreduce", 1 << 30) is ring and ring.options == (("algorithm", "ring"), ("protocol", "simple"))
    exact = api.tune(frontiers=[ALLREDUCE], sizes=[192 * 10**6, 192 * (10**6 + 1)], protocols=["Simple"])
    padded = api.tune(frontiers=[ALLREDUCE], sizes=[192 * 10**6 + 4], protocols=["Simple"])
    assert padded.tables[0].ours[0] == exact.tables[0].ours[1] > exact.tables[0].ours[0]
    assert padded.tables[0].library[0] <= exact.tables[0].library[1]
    assert table.losses == (0.0, 0.0)


def test_where_nothing_is_predicted_of_the_library_nothing_is_left_to_it(folder):
    """Of logs and measurements only what they name is compared."""
    docs = reference(FRONTIER, [1 << k for k in range(10, 17)], [("Simple", 1)])
    plan = sound(api.tune(frontiers=[FRONTIER], measured=docs, sizes=[1 << k for k in range(10, 17)]))
    assert {a.backend for a in plan.algorithms} == {"synth"} and set(plan.tables[0].library) == {None}


@pytest.mark.parametrize(
    ("machine", "protocols"),
    [("dgx1", {"Simple", "LL", "LL128"}), ("grid:2x2", {"Simple", "LL"}), ("pcie.txt", {"Simple", "LL"})],
)
def test_ll128_is_offered_over_nvlink_alone_and_the_plan_keeps_the_kinds(folder, machine, protocols):
    """Whatever the file of the machine is called: it was believed to be a DGX-1 where it had that name."""
    Path("pcie.txt").write_text(PCIE)
    plan = sound(api.tune(Path(machine) if "." in machine else machine, "alltoall"))
    assert {a.protocol for a in plan.algorithms} <= protocols
    assert ("LL128" in protocols) != any("LL128 is not offered" in note for note in plan.notes)
    kinds = {"dgx1": {"nvlink"}, "grid:2x2": {"unknown"}, "pcie.txt": {"pcie"}}[machine]
    assert set().union(*plan.kinds) == kinds and len(plan.kinds) == len(plan.topology.routes) and set(plan.nodes) == {0}
    forced = Plan.from_json(json.loads(json.dumps(plan.to_json())))
    box, algorithms = replace(forced.topology, name="box"), []
    for one in forced.algorithms:
        schedule = one.schedule and replace(one.schedule, network=box)
        algorithms.append(replace(one, protocol="LL128", schedule=schedule))
    forced = replace(forced, algorithms=tuple(algorithms), topology=box)
    if machine == "dgx1":
        assert api.export_plan(forced).files
        return
    said = f"LL128 corrupts data on links other than NVLink, and the link 0 to 1 is {'|'.join(kinds)}"
    with pytest.raises(SynthError, match=said):
        api.export_plan(forced)


def test_a_wrong_schedule_is_found_out(folder):
    doc = FRONTIER.to_json()
    doc["points"][0]["schedule"]["steps"][0]["sends"].pop()
    Path("wrong.json").write_text(json.dumps(doc))
    synth("tune --from wrong.json", code=5)


def test_sizes_double_unless_said():
    assert Sizes(2).convert("1KiB:1GiB", None, None) == SIZES
    assert len(Sizes().convert("1KiB:1GiB", None, None)) == 11


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda doc: doc.pop("rows"), "'rows'"),
        (lambda doc: doc["rows"][3].update(seconds=0), "rows[3]"),
        (lambda doc: doc["rows"][1].update(program=7), "no program 7"),
        (lambda doc: doc["rows"][1].update(size="big"), "rows[1]"),
        (lambda doc: doc.update(collective=None), "which collective"),
        (lambda doc: doc["programs"][0].update(protocol="X"), "protocol 'X'"),
        (lambda doc: doc.update(programs=3), "int"),
    ],
)
def test_a_damaged_document_is_one_line_with_its_place(folder, change, what):
    (doc,) = reference(FRONTIER, [4 * KIB], [("Simple", 1)])
    change(doc)
    Path("m.json").write_text(json.dumps(doc))
    with pytest.raises(FormatError) as error:
        api.tune(frontiers=["f.json"], measured=["m.json"])
    assert str(error.value).startswith("m.json: ") and what in str(error.value)


def test_large_sizes_take_the_plain_schedule_through_a_switch_that_multicasts():
    """At 1 MB messages take 1.5 times the size over a port's bandwidth, switches 1.25 times it."""
    machine = replace(api.topology("switch:4:multicast=through"), notes=(MULTICAST_NOTE,))
    frontiers = [made("direct", topology=machine, collective="allreduce")]
    options = {"sizes": [1 << 10, 1 << 20], "frontiers": frontiers, "protocols": ["Simple"]}
    plan = api.tune(machine, "allreduce", **options)
    (table,) = plan.tables
    small, large = (plan.algorithms[k] for k in table.chosen)
    assert large.label.startswith("switch-") and large.through_switches and not small.through_switches
    assert table.seconds[1] == pytest.approx(1.25 * 2**20 / 1e9, rel=0.02)
    assert MULTICAST_NOTE not in plan.notes
    last = plans.reports(plan, api.plan_bounds(plan))[1].rows[-1]
    assert 1 <= float(last[-1]) < 1.1  # the bound holds for the sums of switches
    # a runtime of messages has the next best
    assert any(not plan.algorithms[k].through_switches for k in table.at(1 << 20).order)
    restored = Plan.from_json(json.loads(json.dumps(plan.to_json())))
    assert restored.to_json() == plan.to_json()


def test_a_log_that_is_not_there_is_said_before_any_search(monkeypatch, tmp_path):
    monkeypatch.setattr("synth.commands.tuning.tune.collective_inputs", lambda *given: pytest.fail("searched first"))
    with pytest.raises(FormatError, match="does not exist"):
        tune.tune("ring:4", "allgather", logs=[("nccl", tmp_path / "missing.txt")])


def test_a_long_log_is_read(monkeypatch, tmp_path):
    """Debug output makes logs of tens of megabytes."""
    monkeypatch.chdir(tmp_path)
    write_logs({1024: 5.0}, {})
    with Path("nccl.txt").open("a") as file:
        file.writelines(f"{'#' * 1_000_000}\n" for _ in range(9))
    plan = tune.tune(collective="allgather", sizes=[1024], logs=[("nccl", "nccl.txt")])
    assert plan.tables[0].seconds == pytest.approx((5e-6,))
