"""The job file of a catalog: what it may say, and one clear line, with file, line and key, for what it may not."""

from __future__ import annotations

import pytest

from synth.catalog.jobs import job_file_reader, plan
from synth.catalog.jobs.job_file import TaskOptions, TopologyChange
from synth.errors import FormatError

WHOLE = """\
# a team's machines
topologies:
  - dgx1
  - {name: dgx1, allocations: all, collectives: [allgather], options: {time-limit: 5s}}
  - name: ring:4
    degraded:
      - 0-1
      - without: [0-3]
        degrade: "1-2:1/2"
collectives:
  - AllReduce
  - {name: broadcast, roots: [3]}
  - {name: allgatherv, sizes: [2, 1]}
options:
  - {max-steps: 8, max-chunks: 64, time-limit: 1m30s, memory: 2GB, seed: 7, engine: exact, deterministic: true}
  - {}
budget: {time: 2h, tasks: 100}
slurm: {queue: batch, cores: 2, memory: 8GB, walltime: "01:00:00", job_extra_directives: [--exclusive]}
"""


def load(tmp_path, text):
    path = tmp_path / "fleet.yaml"
    path.write_text(text)
    return job_file_reader.load(path)


def test_everything_it_may_say(tmp_path):
    found = load(tmp_path, WHOLE)
    plain, classes, ring = found.machines
    assert (plain.name, plain.allocations, plain.degraded, plain.collectives) == ("dgx1", None, (), None)
    assert classes.allocations == "all"
    assert classes.options == (TaskOptions(time_limit=5.0),)
    assert [c.name for c in classes.collectives] == ["allgather"]
    assert ring.degraded == (
        TopologyChange(without=("0-1",), place="topologies[2].degraded[0]"),
        TopologyChange(("0-3",), ("1-2:1/2",), None, "topologies[2].degraded[1]"),
    )
    assert [(c.name, c.roots, c.sizes) for c in found.collectives] == [
        ("allreduce", (), None), ("broadcast", (3,), None), ("allgatherv", (), (2, 1)),
    ]  # fmt: skip
    assert found.options == (TaskOptions(8, 64, "exact", 90.0, 2 << 30, 7, True), TaskOptions())
    assert (found.seconds, found.tasks) == (7200.0, 100)
    assert found.slurm == {
        "queue": "batch", "cores": 2, "memory": "8GB", "walltime": "01:00:00", "job_extra_directives": ["--exclusive"],
    }  # fmt: skip


BAD = {
    "an unknown key": (
        "topologies: [dgx1]\ncolectives: [allgather]",
        "2: colectives: unknown key 'colectives'; did you mean collectives or",
    ),
    "an unknown key inside": (
        "collectives: [allgather]\ntopologies:\n  - name: dgx1\n    degarded: all",
        "4: topologies[0].degarded: unknown key 'degarded'; did you mean degraded?",
    ),
    "nothing near": (
        "topologies: [dgx1]\nzzz: 1",
        "2: zzz: unknown key 'zzz'; there are topologies, collectives, options, budget, slurm",
    ),
    "no topologies": ("collectives: [allgather]", "1: the key 'topologies' is missing"),
    "an empty list": ("topologies: []\ncollectives: [allgather]", "1: topologies: names no topology"),
    "no collective": (
        "topologies:\n  - dgx1\n  - dgx2",
        "2: topologies[0]: has no collective; add the key collectives",
    ),
    "a wrong collective": (
        "topologies: [dgx1]\ncollectives:\n  - allgather\n  - allgathr",
        "4: collectives[1]: unknown collective 'allgathr'; did you mean",
    ),
    "a list for a text": (
        "topologies: [[dgx1]]\ncollectives: [allgather]",
        "1: topologies[0]: expected a mapping, found a list",
    ),
    "no duration": (
        "topologies: [dgx1]\ncollectives: [allgather]\noptions: {time-limit: soon}",
        "3: options.time-limit: 'soon' is not a duration",
    ),
    "too little memory": (
        "topologies: [dgx1]\ncollectives: [allgather]\noptions: {memory: 1KB}",
        "3: options.memory: expected 64MB or more, found 1KB",
    ),
    "a negative number": (
        "topologies: [dgx1]\ncollectives: [allgather]\noptions: {max-steps: -1}",
        "3: options.max-steps: expected a whole number from 1 to 999999999, found -1",
    ),
    "an unknown engine": (
        "topologies: [dgx1]\ncollectives: [allgather]\noptions: {engine: exakt}",
        "3: options.engine: unknown engine 'exakt'; did you mean exact?",
    ),
    "name and file": (
        "topologies:\n  - {name: dgx1,\n     file: x.yaml}\ncollectives: [allgather]",
        "2: topologies[0]: name and file exclude each other",
    ),
    "a file as a name": (
        "topologies: [fleet.yaml]\ncollectives: [allgather]",
        "1: topologies[0]: fleet.yaml is a file: write {file: fleet.yaml}",
    ),
    "allocations of a word": (
        "topologies:\n  - {name: dgx1, allocations: some}\ncollectives: [allgather]",
        "2: topologies[0].allocations: expected all, or sizes such as [3, 4], found 'some'",
    ),
    "a change of nothing": (
        "topologies:\n  - {name: dgx1, degraded: [{}]}\ncollectives: [allgather]",
        "2: topologies[0].degraded[0]: changes nothing",
    ),
    "an unknown slurm key": (
        "topologies: [dgx1]\ncollectives: [allgather]\nslurm:\n  que: x",
        "4: slurm.que: unknown key 'que'; did you mean queue?",
    ),
    "a tag": ("topologies: [!!python/object:os.system dgx1]", "1: the tag"),
    "an alias": ("topologies: &a [dgx1]\ncollectives: *a", "2: the alias *a is refused"),
    "a repeated key": ("topologies: [dgx1]\ntopologies: [dgx2]", "2: the key 'topologies' is given twice"),
    "no YAML": ("topologies: [dgx1", "is not YAML"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_it_may_not_say(tmp_path, case):
    text, message = BAD[case]
    with pytest.raises(FormatError) as error:
        load(tmp_path, text)
    assert str(error.value).startswith(f"{tmp_path / 'fleet.yaml'}:")
    assert message in str(error.value)


# Words that only the machines can judge: found when the tasks are made, and said with the same line and key.
WRONG = {
    "an unknown machine": (
        "topologies:\n  - dgx1\n  - dgx7\ncollectives: [allgather]",
        "3: topologies[1].name: unknown topology 'dgx7'",
    ),
    "a link that is not there": (
        "topologies:\n  - name: dgx1\n    degraded:\n      - 0-1\n      - 0-7\ncollectives: [allgather]",
        "5: topologies[0].degraded[1]: --without 0-7: dgx1-v100 has no link between 0 and 7",
    ),
    "a rank that is not there": (
        "topologies: [dgx1]\ncollectives:\n  - {name: broadcast, roots: [8]}",
        "3: collectives[0]: root 8 is not a rank of 0..7",
    ),
    "roots of none": (
        "topologies: [dgx1]\ncollectives: [{name: allgather, roots: all}]",
        "2: collectives[0]: allgather has no single root",
    ),
    "sizes that are missing": (
        "topologies: [dgx1]\ncollectives: [allgatherv]",
        "2: collectives[0]: allgatherv needs a chunk count per rank",
    ),
    "too many allocations": (
        "topologies:\n  - {name: 'dgx-a100*4',\n     allocations: [16]}\ncollectives: [allgather]",
        "3: topologies[0].allocations: dgx-a100*4 has 601080390 allocations of 16 ranks",
    ),
    "a file that is not there": (
        "topologies:\n  - {file: none.yaml}\ncollectives: [allgather]",
        "2: topologies[0].file: ",
    ),
    "flow methods that do not know it": (
        "topologies: [dgx1]\ncollectives: [scan]\noptions: {engine: flow}",
        "2: collectives[0]: flow methods know",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_the_machines_do_not_have(tmp_path, case):
    text, message = WRONG[case]
    found = load(tmp_path, text)
    with pytest.raises(FormatError) as error:
        plan.tasks(found)
    assert str(error.value).startswith(f"{tmp_path / 'fleet.yaml'}:{message}")


def test_its_size_is_limited(tmp_path):
    with pytest.raises(FormatError, match="at most 1048576 are read"):
        load(tmp_path, "#" * (job_file_reader.MAX_BYTES + 1))
    rows = "\n".join(["topologies:", *["  - dgx1"] * (job_file_reader.MAX_TOPOLOGIES + 1)])
    with pytest.raises(FormatError, match=":1: topologies: has 2001 items"):
        load(tmp_path, rows)


def test_tasks_are_topologies_times_collectives_times_options(tmp_path):
    found = plan.tasks(load(tmp_path, WHOLE))
    names = [(t.topology.name, t.name, t.roots) for t in found]
    assert len(found) == 3 * 2 + 46 + 3 * 3 * 2
    assert names[:6:2] == [
        ("dgx1-v100", "allreduce", ()),
        ("dgx1-v100", "broadcast", (3,)),
        ("dgx1-v100", "allgatherv", ()),
    ]
    assert names[6] == ("dgx1-v100 --ranks 0,1,2", "allgather", ())
    assert {t.topology.name for t in found[52:]} == {
        "ring:4",
        "ring:4 --without 0-1",
        "ring:4 --degrade 1-2:1/2 --without 0-3",
    }
    sizes = next(t for t in found if t.name == "allgatherv").collective
    assert [len([u for u in sizes.pre if r in u]) for r in range(8)] == [2, 1] * 4
    assert found[0].answer_options == (("max-steps", "8"), ("max-chunks", "64"))
    assert len({t.fingerprint for t in found}) == len(found)


def test_every_link_and_every_root(tmp_path):
    text = "topologies: [{name: 'ring:4', degraded: all}]\ncollectives: [{name: broadcast, roots: all}]"
    found = plan.tasks(load(tmp_path, text))
    assert len(found) == 5 * 4
    assert [t.roots for t in found[:4]] == [(0,), (1,), (2,), (3,)]


def test_files_lie_beside_the_job(tmp_path):
    (tmp_path / "two.yaml").write_text("ranks: 2\nlinks: [{src: 0, dst: 1, bandwidth: 25, both: true}]")
    (tmp_path / "swap.yaml").write_text("pre: [[0, 0], [1, 1]]\npost: [[0, 1], [1, 0]]")
    (found,) = plan.tasks(load(tmp_path, "topologies: [{file: two.yaml}]\ncollectives: [{file: swap.yaml}]"))
    assert (found.topology.ranks, found.name) == (2, "swap")
