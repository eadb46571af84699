"""The job file of a catalog: what it may say, and one clear line, with file and key, for what it may not."""

from __future__ import annotations

import pytest
from catalog_jobs import planned

from synth.encodings.engine import Options
from synth.errors import FormatError

WHOLE = """\
# a team's machines
topologies:
  - ring:4
  - {name: dgx1, allocations: [3], collectives: [allgather], options: {time-limit: 5s}}
  - name: ring:4
    degraded:
      - 0-1
      - 3:1/2
collectives:
  - AllReduce
  - {name: broadcast, roots: [2]}
options: {max-steps: 8, max-chunks: 64, time-limit: 1m30s, memory: 2GB, seed: 7, deterministic: true}
"""


def test_everything_it_may_say(tmp_path):
    found = planned(tmp_path, WHOLE)
    names = dict.fromkeys(task.topology.name for task in found)
    changed = ["ring:4 --without 0-1", "ring:4 --degrade 3:1/2"]
    assert [name for name in names if name.startswith("ring")] == ["ring:4", *changed]
    assert len([name for name in names if name.startswith("dgx1-v100 --ranks")]) == len(names) - 3 > 1
    ring = [task for task in found if task.topology.name == "ring:4"]
    assert [task.name for task in ring[:2]] == ["allreduce on ring:4", "broadcast from 2 on ring:4"]
    assert ring[0].options == Options(8, 64, time_limit=90.0, jobs=1, seed=7, deterministic=True, memory=2 << 30)
    assert ring[0].answer_options == {"max-steps": "8", "max-chunks": "64"}
    classes = [task for task in found if task.topology.name.startswith("dgx1")]
    assert {task.collective.name for task in classes} == {"allgather"}
    assert {task.options for task in classes} == {Options(jobs=1, time_limit=5.0)}
    assert {task.options.time_limit for task in planned(tmp_path, WHOLE, 3.0)} == {3.0}


def test_every_link_every_root_and_files_beside_the_job(tmp_path):
    (tmp_path / "halo.yaml").write_text("pre: [[0, 0]]\npost: [[0, [1, 2]]]\n")
    (tmp_path / "three.yaml").write_text("name: three\nranks: 3\nlinks: [{src: 0, dst: 1, bandwidth: 1, both: true}]\n")
    text = "topologies: [{name: 'line:3', degraded: all}, {file: three.yaml}]\n"
    found = planned(tmp_path, text + "collectives: [{name: broadcast, roots: all}, {file: halo.yaml}]\n")
    names = ["line:3", "line:3 --without 0-1", "line:3 --without 1-2", "three"]
    assert list(dict.fromkeys(task.topology.name for task in found)) == names
    assert [task.collective.roots for task in found[:4]] == [(0,), (1,), (2,), ()]
    assert found[3].collective.name == "halo"


ALL = "\ncollectives: [allgather]"
ONE = "topologies: [dgx1]\ncollectives: "
WRONG = [
    ("topologies: [dgx1]\ncolectives: [allgather]", "unknown key 'colectives'; the keys here are"),
    ("topologies:\n  - name: dgx1\n    degarded: all" + ALL, "topologies[0]: unknown key 'degarded'; the keys here"),
    ("collectives: [allgather]", "the key 'topologies' is missing"),
    ("topologies: []" + ALL, "topologies: names no topology"),
    ("topologies:\n  - dgx1\n  - dgx2", "topologies[0]: has no collective; add the key collectives"),
    (ONE + "\n  - allgather\n  - allgathr", "collectives[1]: unknown collective 'allgathr'"),
    ("topologies:\n  - dgx1\n  - dgx9" + ALL, "topologies[1]: unknown topology 'dgx9'"),
    ("topologies: [[dgx1]]" + ALL, "topologies[0]: expected a mapping, found a list"),
    (ONE + "[allgather]\noptions: {time-limit: soon}", "options.time-limit: 'soon' is not a duration"),
    (ONE + "[allgather]\noptions: {max-steps: -1}", "options.max-steps: expected a whole number from 1 to 999999999, "),
    ("topologies:\n  - {name: dgx1,\n     file: x.yaml}" + ALL, "topologies[0]: give a name or a file, one of them"),
    ("topologies:\n  - file: x.yaml" + ALL, "topologies[0]: "),
    ("topologies:\n  - {name: dgx1, allocations: some}" + ALL,
     "topologies[0].allocations[0]: expected a whole number from 2 to 8, found some"),
    ("topologies:\n  - {name: 'ring:4', degraded: [0-2]}" + ALL, "topologies[0].degraded[0]: "),
    (ONE + "\n  - {name: broadcast, roots: [8]}", "collectives[0].roots[0]: expected a whole number from 0 to 7"),
    (ONE + "\n  - {name: allgather, roots: all}", "collectives[0]: allgather has no single root"),
    ("topologies: ['ring:128']" + ALL, "topologies[0]: 128 ranks are too many for a catalog"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "says"), WRONG)
def test_what_it_may_not_say(tmp_path, text, says):
    with pytest.raises(FormatError) as error:
        planned(tmp_path, text)
    assert "fleet.yaml:" in str(error.value) and says in str(error.value) and "\n" not in str(error.value)
