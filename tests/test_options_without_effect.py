"""An option that would change nothing is an error of usage with the reason, on the command line and in Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import synth
from synth.cli.root import root
from synth.errors import UsageError

# Each command line would give the same result without its last option.
ROWS = """
pareto --topo ring:4 --coll allreduce --solver z3
pareto --topo ring:4 --coll allreduce --encoding quotient
pareto --topo ring:4 --coll allreduce --sweep blind
pareto --topo ring:4 --coll allreduce --max-chunks 1
pareto --topo ring:4 --coll allreduce --max-extra-rounds 1
pareto --topo ring:4 --coll allgather --engine flow --solver z3
pareto --topo ring:4 --coll allgather --engine flow --encoding step
pareto --topo ring:4 --coll allgather --engine flow --log log
pareto --topo ring:4 --coll allgather --engine flow --seed 3
pareto --topo ring:4 --coll allgather --engine flow --cross-check
pareto --topo ring:80 --coll allgather --solver z3
pareto --topo ring:80 --coll allgather --log log
pareto --topo ring:4 --coll allgather --part 64
pareto --topo ring:4 --coll allgather --root 1
pareto --topo ring:4 --coll allgather --no-overheads
pareto --topo ring:4 --coll allgather --per-send 1us
solve --topo ring:4 --coll allreduce --chunks 1 --steps 2 --rounds 2 --solver z3
solve --topo ring:4 --coll allreduce --chunks 1 --steps 2 --rounds 2 --encoding step
solve --topo ring:4 --coll allgather --chunks 2 --steps 2 --rounds 3 --encoding tree --solver z3
solve --topo ring:4 --coll allgather --chunks 2 --steps 2 --rounds 3 --encoding sccl --solver cadical
bound --topo ring:4 --coll allgather --protocol LL
bound --topo ring:4 --coll allgather --sizes 1KB --max-steps 3
bound --topo ring:4 --coll allgather --sizes 1KB --engine exact
bound --topo ring:4 --coll allgather --engine flow --max-steps 3
bound --topo ring:80 --coll allgather --max-steps 60
build ring:3 --coll allgather --root 1
tune --from frontier.json --in-place
explain schedule.json --step 2
explain schedule.json --counts 1,1,1,1
explain --topo ring:4 --coll allgather --point 1
show program.xml --protocol LL
show program.xml --instances 2
show program.xml --in-place in
show program.xml --step 2
show schedule.json --step 2
show schedule.json --root 1
lint program.xml --step 2
lint schedule.json --step 2
lint schedule.json --root 1
run program.xml --instances 2
run program.xml --step 2
run program.xml --threads 64
run program.xml --clock logical
run schedule.json --no-data --seed 3
tune --from frontier.json --jobs 2
import schedule.json --step 2
export frontier.json --step 2 --to msccl-xml --reads
export frontier.json --step 2 --to msccl-xml --blocks 4
export program.xml --to msccl-xml --instances 2
export frontier.json --step 2 --to chakra -o traces --runtime msccl
""".strip().splitlines()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("options")
    frontier = synth.frontier("ring:4", "allgather")
    (folder / "frontier.json").write_text(json.dumps(frontier.to_json()))
    (folder / "schedule.json").write_text(json.dumps(frontier.points[0].schedule.to_json()))
    synth.export_program(frontier.points[0].schedule, "msccl-xml", runtime="msccl-executor").write(
        folder / "program.xml"
    )
    return folder


@pytest.mark.parametrize("line", ROWS)
def test_an_option_that_would_change_nothing_is_refused(line, folder, monkeypatch):
    monkeypatch.chdir(folder)
    said = CliRunner().invoke(root, line.split())
    assert said.exit_code == 2 and said.stderr.count("\n") == 1, said.output
    assert "unknown command" not in said.stderr
    assert not Path("log").exists()


def test_python_refuses_them_too():
    for options in ({"solver": "z3"}, {"encoding": "step"}, {"sweep": "blind"}, {"max_chunks": 1}):
        with pytest.raises(UsageError, match="engines of its own"):
            synth.frontier("ring:4", "allreduce", **options)
    with pytest.raises(UsageError, match="have no --seed"):
        synth.frontier("ring:4", "allgather", engine="flow", seed=1)
    assert synth.frontier("ring:4", "allreduce", solver="cadical").points
