"""synth bench: figures against those worked out by hand, documents, errors."""

import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from needs import need
from programs import ring_allgather

from synth.commands import api
from synth.commands.framework.types import Sizes
from synth.errors import UsageError, VerificationError
from synth.model.frontier import Frontier, LowerBound, Point
from synth.program.overheads import NCCL
from synth.runtime.dtypes import dtype
from synth.runtime.mpi import environment
from synth.runtime.reference.executor import Reference
from synth.runtime.slicing import padding
from tests.command_line import synth


@pytest.fixture
def frontier(tmp_path, monkeypatch):
    """Of allgather on 4 joined ranks: one step, and three round the ring; in f.json of the working directory."""
    monkeypatch.chdir(tmp_path)
    made = [api.baseline("direct", "full:4", "allgather"), api.baseline("ring", "full:4", "allgather")]
    points = tuple(Point.of(s, LowerBound(Fraction(1), {"kind": "none"}), "by hand") for s in made)
    found = Frontier(made[0].network, made[0].collective, points)
    (tmp_path / "f.json").write_text(json.dumps(found.to_json()))
    return found


def test_sizes_are_ranges_or_lists():
    convert = Sizes().convert
    assert convert("1KiB:1MiB:x4", None, None) == (1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20)
    assert convert("64:300:2", None, None) == (64, 128, 256)
    assert convert("6MB,1KB,1KB", None, None) == (1024, 6 << 20)


@pytest.mark.parametrize("text", ["1MB:1KB", "1KB:1MB:x1", "1KB:1MB:+4", "1KB:2KB:x2:3", "", "a:b", "1:1TB:x2,"])
def test_sizes_that_make_no_sense_are_one_line(text, frontier):
    assert len(synth(f"bench f.json --sizes={text}", code=2).stderr.splitlines()) == 1


def test_bench_of_the_reference_is_its_time_and_says_that_it_is_modelled(frontier):
    table = synth("bench f.json --sizes 4KB,64KB --baseline direct -o m.json").stdout
    assert "modelled, not measured" in table
    doc = json.loads(Path("m.json").read_text())
    assert (doc["schema"], doc["modelled"], doc["executor"]) == ("synth.measured/1", True, "reference")
    assert [p["label"] for p in doc["programs"]] == ["point 1", "point 2", "direct"]
    assert doc["programs"][0]["fingerprint"] == doc["programs"][2]["fingerprint"] != doc["programs"][1]["fingerprint"]
    assert len(doc["rows"]) == 3 * 2 * 2
    for row in doc["rows"]:
        program = api.lower(frontier.points[row["program"] % 2].schedule)
        time = (
            Reference(NCCL.links(frontier.network, "Simple"))
            .time(program, padding(program, row["size"], dtype("float32")).elements, in_place=row["in_place"])
            .picoseconds
        )
        assert row["seconds"] == (time + NCCL.launch("Simple")) / 1e12
        assert row["algbw_gbps"] == pytest.approx(row["size"] / row["seconds"] / 1e9)
        assert row["busbw_gbps"] == pytest.approx(row["algbw_gbps"] * 3 / 4)
        assert row["right"] is None
    assert {"synth", "python", "numpy"} == set(doc["versions"])


def test_bench_rounds_sizes_down_and_checks_when_asked(frontier):
    found = api.bench("f.json", (1, 1000), check=True, dtype="float16", point=2)
    each = frontier.points[1].schedule.collective.buffer_units * 2
    assert [row.size for row in found.rows if not row.in_place] == [each, 1000 // each * each]
    assert all(row.right for row in found.rows)


def test_bench_of_the_host_executor_reads_a_clock(frontier):
    need("g++")
    table = synth("bench f.json --executor host --sizes 4KB --point 1 --repeats 3 -o m.json").stdout
    doc = json.loads(Path("m.json").read_text())
    assert "CPU threads" in table
    assert not doc["modelled"]
    for row in doc["rows"]:
        assert 0 < row["least"] <= row["seconds"] <= row["most"]
        assert (row["repeats"], row["right"]) == (3, True)


def test_a_clock_that_gives_wrong_outputs_is_an_error(frontier, monkeypatch):
    def wrong(self, program, arrays, *, repetitions, **how):
        outputs = self.run(program, arrays, **how).outputs
        outputs[1][0, 0] += 1
        return outputs, [1e-6] * repetitions.timed

    monkeypatch.setattr(Reference, "measure", wrong, raising=False)
    with pytest.raises(VerificationError, match="rank 1 output chunk 0 element 0"):
        api.bench("f.json", (4096,))
    assert api.bench("f.json", (4096,), check=False).rows[0].right is None


def test_bench_refuses_what_has_no_times(frontier, monkeypatch):
    with pytest.raises(UsageError, match="needs the times of the links"):
        api.bench(ring_allgather(4), (4096,))
    assert api.bench(ring_allgather(4), (4096,), topology="ring:4").rows[0].seconds[0] > 0
    with pytest.raises(UsageError, match="a program already"):
        api.bench(ring_allgather(4), (4096,), topology="ring:4", baselines=("ring",))
    monkeypatch.setattr(environment, "missing", lambda: None)
    with pytest.raises(UsageError, match="the mpi executor gives no times"):
        api.bench("f.json", (4096,), "mpi")


def test_the_command_line_starts_quickly_and_without_cupy():
    code = (
        "import sys; from synth.commands.programs import bench, run; print(sorted({'cupy', 'mpi4py', 'scipy', "
        "'z3'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
