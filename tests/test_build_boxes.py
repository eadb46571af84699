"""`synth build --boxes`: plans of one machine in several sizes, the code that registers them all, and what no plan can
hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_plan_export import call, fake_mscclpp

import synth
from synth.encodings.multicast_pipelining import MulticastPipelining
from synth.errors import SynthError, UsageError
from synth.export.plans import registration_code
from synth.model.build_result import BuildResult, PlanRegistration
from synth.model.collective import collective
from synth.program import plan_limits
from synth.program.checked_lowering import too_many_ranks_for_plan
from tests import command_line

SIZES = (1 << 10, 1 << 16)
ENOUGH = 600.0  # seconds: more than any search here takes


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[BuildResult, ...]]:
    """Return the folder and the builds of one and of two switches of 3 ranks."""
    folder = tmp_path_factory.mktemp("boxes") / "plans"
    options = {"runtime": "mscclpp", "sizes": SIZES, "time_limit": ENOUGH}
    return folder, synth.build_boxes("switch:3", [2, 1], "allgather", folder, **options)


def test_each_number_of_boxes_has_plans_for_calls_in_place_and_for_others(made):
    builds = made[1]
    assert [Path(build.folder).name for build in builds] == ["boxes-1", "boxes-2"]
    for build, ranks in zip(builds, (3, 6), strict=True):
        assert {plan.in_place for plan in build.registrations} == {False, True}
        for plan in build.registrations:
            document = json.loads((Path(build.folder) / "mscclpp" / f"{plan.name}.json").read_text())
            assert len(document["gpus"]) == plan.ranks == ranks
            assert (document["inplace"], document["max_message_size"]) == (plan.in_place, plan.high)
            assert plan.ranks_per_node == 3
        for row in build.tables[0].rows:  # parts of whole 16 bytes
            assert row.size % (16 * ranks) == 0
            for file in row.files[:1]:
                path = Path(build.folder, file)
                done = synth.run(path, topology=build.topology, size=row.size, runtime="mscclpp", data=False)
                assert float(done.execution.picoseconds) * 1e-12 == pytest.approx(row.seconds)


def test_a_job_gets_the_plans_for_its_ranks_and_boxes(made, monkeypatch):
    folder, builds = made
    scope: dict = {"__file__": f"{folder}/register.py"}
    exec((folder / "register.py").read_text(), scope)
    added, _ = fake_mscclpp(monkeypatch, "0.9")
    for build, ranks in zip(builds, (3, 6), strict=True):
        added.clear()
        scope["register"](0, ranks, 3)
        assert [one.id for one in added] == [
            f"boxes-{ranks // 3}/mscclpp/{plan.name}" for plan in build.registrations
        ]  # fmt: skip
        assert all(Path(one.execution_plan[0]).is_file() for one in added)
        known = f"there are plans for .*{ranks} ranks, 3 of a node"
        with pytest.warns(UserWarning, match=f"no plan is loaded for {ranks} ranks, 1 of a node; {known}"):
            scope["register"](0, ranks, 1)
    plan = next(plan for plan in builds[1].registrations if not plan.in_place)
    name = f"boxes-2/mscclpp/{plan.name}"
    request = call("allgather", 6, 1, plan.low // 6 or 16)
    assert scope["select"]({"allgather": {name: "this"}}, request) == "this"


def test_the_pages_have_the_commands_of_their_number_of_boxes(made):
    """For two boxes of 3 they started 6 ranks in one, and said that nccl-tests measures the plans."""
    for build, torchrun, mpirun in zip(
        made[1],
        ("torchrun --nproc-per-node 3 train.py", "torchrun --nnodes 2 --nproc-per-node 3 "),
        ("mpirun -np 3 ./run.sh", "mpirun -np 6 --map-by ppr:3:node ./run.sh"),
        strict=True,
    ):
        page, script = ((Path(build.folder) / name).read_text() for name in ("README.txt", "run.sh"))
        assert torchrun in page and torchrun in script and mpirun in page
        assert f"register.register(rank, {build.tables[0].ranks}, 3)" in page
        assert "nccl-tests does not call it, so it runs none of these plans" in page and "to compare" not in page
        assert 'export MSCCLPP_NCCL_LIB_PATH="${MSCCLPP_NCCL_LIB_PATH:-libnccl.so.2}"' in script
        assert "MSCCL++ 0.10" in (Path(build.folder) / "mscclpp.md").read_text()


@pytest.mark.parametrize(("given", "names"), [(None, ("broadcast", "allreduce")), (1, ("broadcast",))])
def test_calls_that_would_get_wrong_data_are_said_wherever_the_plans_are(tmp_path, given, names):
    """They were said in the page beside the folder alone, and the root 0 was assumed without a word."""
    options = {"runtime": "mscclpp", "sizes": SIZES, "time_limit": ENOUGH, "root": given}
    made = synth.build("fully-connected:4", names, tmp_path, **options)
    warning = f"these files also serve a broadcast with a root other than {given or 0}, with wrong data"
    sums = "MSCCL++'s executor sums whatever the operator"
    assert sum("broadcast: root 0 is assumed" in note for note in made.notes) == (given is None)
    for name in ("README.txt", "mscclpp.md", "mscclpp/register.py"):
        text = " ".join((tmp_path / name).read_text().split())
        assert text.count(warning) == 1 and text.count(sums) == ("allreduce" in names)


def test_switch_channels_are_not_taken_for_types_of_8_bits(monkeypatch):
    entries = [PlanRegistration("allreduce", 8, 8, 0, 1 << 20, 16, False, True, "nvls")]
    scope: dict = {"__file__": "register.py"}
    exec(registration_code.python(entries, "0.10"), scope)
    fake_mscclpp(monkeypatch)
    for dtype, found in (("float32", "nvls"), ("uint8", None)):
        request = call("allreduce", 8, 0, 1024, dtype=dtype)
        assert scope["select"]({"allreduce": {"nvls": "nvls"}}, request) == found


def test_version_0_9_has_no_gstore():
    network = synth.topology("switch:3:multicast=local").multicast_network()
    schedule = MulticastPipelining(network, synth.collective("broadcast", 3)).schedule(1)
    made = synth.export_program(schedule, "mscclpp", assume_root=0, plan_version="0.10")
    assert '"gstore"' in made.text and "the plan has the format of MSCCL++ 0.10" in made.remarks
    with pytest.raises(SynthError, match=r"gstore is an operation of MSCCL\+\+ 0.10, not of 0.9"):
        synth.export_program(schedule, "mscclpp", assume_root=0, plan_version="0.9")


def test_collectives_of_more_sends_than_plans_have_are_refused_before_a_search(tmp_path, monkeypatch):
    """Every schedule of an allgather, a reduce-scatter or an alltoall on n ranks has n(n-1) sends."""
    monkeypatch.setattr(plan_limits, "PLAN_SENDS", 11)
    monkeypatch.setattr("synth.commands.tuning.build._planned", lambda *_: pytest.fail("searched"))
    for name in ("allgather", "reduce-scatter", "alltoall"):
        assert too_many_ranks_for_plan(collective(name, 3)) is None
        with pytest.raises(SynthError, match=f"no MSCCL.. plan can hold {name} on 4 ranks: it has at least 12 sends"):
            synth.build("ring:4", name, tmp_path / name, runtime="mscclpp")
    with pytest.raises(SynthError, match="allreduce on 4 ranks is left to the library: NCCL's ring has at least 24"):
        synth.build("ring:4", "allreduce", tmp_path / "allreduce", runtime="mscclpp")
    assert too_many_ranks_for_plan(collective("allreduce", 100)) is None


def test_wrong_input_is_one_line(tmp_path):
    for box, boxes, words in (
        ("switch:3*2", [2], "is a cluster: name one box"),
        ("switch:3", [], "no number of boxes is given"),
        ("switch:3", [0, 2], "no number of boxes is given"),
        ("swich:3", [2], "did you mean switch"),
    ):
        with pytest.raises(UsageError, match=words):
            synth.build_boxes(box, boxes, output=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_the_command_builds_for_each_number_of_boxes(tmp_path):
    line = f"build switch:2 --boxes 1-2 --coll allgather --sizes 64KB --for nccl-tuner --time-limit 600s -o {tmp_path}"
    shown = command_line.synth(line)
    assert "4 ranks, for nccl-tuner" in shown.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["boxes-1", "boxes-2"]
    assert f"1 file of nccl-tuner to {tmp_path}/boxes-2: see {tmp_path}/boxes-2/README.txt" in shown.stderr
