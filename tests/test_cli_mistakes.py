"""Mistakes of an engineer with a deadline, odd values, odd files: one line that helps and the exit code of its
kind, never an internal error, and no file is touched."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import synth
from synth.commands import root
from synth.errors import SynthError, UsageError
from synth.program.text import parse

SMI = """\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity
GPU0\t X \tNV2\tNV2\tNV2\t0-15
GPU1\tNV2\t X \tNV2\tNV2\t0-15
GPU2\tNV2\tNV2\t X \tNV2\t0-15
GPU3\tNV2\tNV2\tNV2\t X \t0-15

Legend:

  NV#  = Connection traversing a bonded set of # NVLinks
"""
FILES: dict[str, bytes] = {
    "topo.txt": SMI.encode(),
    "crlf.txt": SMI.replace("\n", "\r\n").encode(),
    "utf16.txt": SMI.encode("utf-16"),
    "bom.txt": SMI.encode("utf-8-sig"),
    "prompt.txt": f"me@gpu1:~$ nvidia-smi topo -m\n{SMI}me@gpu1:~$ \n".encode(),
    "colour.txt": SMI.replace("\tGPU0", "\t\x1b[4mGPU0", 1).replace("Affinity", "Affinity\x1b[0m").encode(),
    "spaces.txt": SMI.replace("\t", "    ").encode(),
    "smi.txt": b"| NVIDIA-SMI 550.54.15    Driver Version: 550.54.15    CUDA Version: 12.4 |\n",
    "list.txt": b"GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1234)\n",
    "empty.txt": b"",
    "empty.json": b"",
    "list.json": b"[1, 2]",
    "other.json": b'{"a": 1}',
    "index.json": b'{"schema": "synth.build/1"}',
    "program.json": b'{"name": "x", "collective": "allgather", "gpus": []}',
    "pairs.yaml": b"pre: [0, 1, 2]\npost: [[0, 1]]\n",
    "cut.json": b'{"name": "x", "links": [[0, 1',
    "cut.xml": b'<algo name="x" proto="Simple" nchannels="1"><gpu id="0"',
    "page.html": b"<!DOCTYPE html><html><body>x</body></html>",
    "notes.txt": b"hello\n",
    "program.py": b"from synth.language import algorithm\n",
    "bytes.json": bytes(range(256)),
    "deep.json": b'{"a": ' * 100_000,
    "torn.json": b'{"a": 1,\n "b"',
    "twice.json": b'{"a": 1, "a": 2}',
    "nines.json": b"9" * 5000,
    "nan.json": b'{"schema": NaN}',
    "theirs.json": b'{"theirs": "%s"}' % (b"x" * 100),
    "zeros.json": b"\0\0\0",
    "deep.yaml": b"[" * 5000,
    "keys.yaml": b"1: 2\nfoo: 3\npre: [[0, 0]]\npost: [[0, 1]]\n",
    "unit.yaml": b"pre: [[%s, 0]]\npost: [[0, 1]]\n" % (b"a" * 3000),
    "rank.yaml": b"pre: [[0, %s]]\npost: [[0, 1]]\n" % (b"b" * 3000),
    "fleet.yaml": b"topologies: ['ring:4']\ncollectives: [allgather]\n",
    "keys.fleet.yaml": b"topologies: [dgx1]\ncolls: [allgather]\n",
    "ranks.yaml": b"pre: [[0, 0]]\npost: [[0, 1]]\nranks: %s\n" % (b"x" * 3000),
}
HUGE = "999999999999999999999"
# Documents that no command can read, and what each says of them.
UNREADABLE = {
    "deep.json": "deep.json: is nested too deeply",
    "torn.json": "torn.json:2:5: is not JSON: Expecting ':' delimiter",
    "twice.json": "twice.json: is not JSON: the field 'a' is given twice",
    "empty.json": "empty.json: is empty",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Return a folder with the files above, a schedule s.json, a frontier f.json of two points, a folder dir, and of an
    allgather on ring:4 frontier.json, schedule.json and program.xml."""
    made = tmp_path_factory.mktemp("mistakes")
    for name, content in FILES.items():
        (made / name).write_bytes(content)
    (made / "dir").mkdir()
    (made / "dgx1").mkdir()
    for words in (
        f"solve --topo ring:3 --coll allgather --chunks 1 --steps 1 --rounds 1 -o {made}/s.json",
        f"pareto --topo fully-connected:4 --coll broadcast --max-steps 2 -o {made}/f.json",
    ):
        assert CliRunner().invoke(root, words.split()).exit_code == 0
    frontier = synth.frontier("ring:4", "allgather")
    (made / "frontier.json").write_text(json.dumps(frontier.to_json()))
    schedule = frontier.points[0].schedule
    (made / "schedule.json").write_text(json.dumps(schedule.to_json()))
    synth.export_program(schedule, "msccl-xml", runtime="msccl-executor").write(made / "program.xml")
    return made


ASKED = "--topo ring:3 --coll allgather"
MISTAKES = [
    ("pareto --topo dgx1 dgx2 --coll allgather", 2, "extra argument (dgx2)"),
    # commands
    ("paretto", 2, "did you mean pareto?"),
    ("topo shwo", 2, "did you mean show?"),
    ("list machines", 2, "topologies, collectives"),
    # machines
    ("bound --coll allgather --topo ring8", 2, "did you mean ring:8?"),
    ("bound --coll allgather --topo ring(8)", 2, "did you mean ring:8?"),
    ("bound --coll allgather --topo torus-4x4", 2, "did you mean torus:4x4?"),
    ("bound --coll allgather --topo torus:4,4", 2, "such as 8 or 4x4"),
    ("bound --topo ring:3 --coll dir", 2, "dir is a folder and no collective; the name of a file that defines one"),
    ("bound --topo ring:3 --coll=", 2, "error: the name of the collective is empty; `synth list collectives`"),
    (
        "explain --topo ring:3 --coll scan",
        2,
        "not for scan: `synth pareto -o FILE` finds its schedules, `synth explain",
    ),
    ("run index.json", 1, "index.json: is the summary of a folder of programs: name a file in it"),
    ("lint dir/nothere", 1, "dir/nothere: does not exist"),
    ("tune --from dir --coll allgather", 1, "dir: is a folder; name a file in it"),
    ("verify bytes.json", 1, "bytes.json: is not UTF-8 text: byte 128 is 0x80"),
    ("bound --coll allgather --topo nothere.txt", 1, "nothere.txt: does not exist"),
    ("bound --coll allgather --topo smi.txt", 1, "`nvidia-smi topo -m`"),
    ("build list.txt", 1, "`nvidia-smi topo -m`"),
    ("bound --coll allgather --topo empty.txt", 1, "is empty"),
    ("bound --coll allgather --topo notes.txt", 1, "is neither a dump"),
    ("bound --coll allgather --topo f.json", 1, "schema 'synth.frontier/1', not a topology file"),
    ("bound --coll allgather --topo other.json", 1, "is neither a dump"),
    ("bound --coll allgather --topo cut.json", 1, "is not JSON"),
    ("bound --coll allgather --topo bytes.json", 1, "is not UTF-8 text"),
    (f"bound {ASKED} --ranks 3", 2, "there is no rank 3"),
    (f"bound {ASKED} --ranks 2-1", 2, "such as 0,1,5 or 0-3"),
    (f"bound {ASKED} --without 0", 2, "such as 0-3"),
    (f"bound {ASKED} --degrade 0-1", 2, "such as 0-3:1/2"),
    # collectives
    ("bound --topo ring:3", 2, "add --coll NAME"),
    ("bound --topo ring:3 --coll allgatherr", 2, "did you mean allgather"),
    ("bound --topo ring:3 --coll alltoallv", 2, "--counts"),
    ("bound --topo ring:3 --coll broadcast --root 9", 2, "root 9 is not a rank of 0..2"),
    ("bound --topo ring:3 --coll allgather --root 0", 2, "remove --root"),
    # numbers
    (f"pareto {ASKED} --jobs 0", 2, "whole number >= 1"),
    (f"pareto {ASKED} --time-limit 0", 2, "leave it out for no limit"),
    (f"pareto {ASKED} --time-limit 5x", 2, "such as 30s, 5m or 1h30m"),
    ("run s.json --size -1", 2, "such as 512, 64KB, 1MB"),
    ("bench f.json --sizes 1GB:1KB", 2, "begins above its end"),
    ("bench f.json --sizes 1KB-1MB", 2, "1KiB:1GiB:x4 or 1KB,6MB"),
    ("bench f.json --sizes 0", 2, "less than one byte"),
    ("bench f.json --sizes 1KB:1MB:x1", 2, "such as x4"),
    # a machine where a file is meant, and what a command does not do
    ("build ring:3 --coll AllGatherV", 2, "allgatherv has chunk counts"),
    ("show s.json --svg - -o -", 2, "both write to stdout"),
    ("run f.json --point 9", 2, "points 1 to 2"),
    ("show f.json", 2, "--point K or --step S"),
    # names of executors and the like
    ("run s.json --protocol ll256", 2, "'ll256' is not one of"),
    ("run s.json --dtype int3", 2, "unknown element type 'int3'"),
    ("run s.json --op add", 2, "there are sum, prod, min, max, avg"),
    ("run s.json --executor gpu", 2, "`synth list executors`"),
    ("export s.json --to xml", 2, "did you mean msccl-xml?"),
    ("lint s.json --runtime nccl", 2, "msccl-executor"),
    (f"pareto {ASKED} --solver z33", 2, "did you mean z3?"),
    ("topo draw dgx1 -o a.png", 2, "a.svg"),
    # files of another kind
    ("verify cut.xml", 1, "`synth lint` checks MSCCL-IR"),
    ("verify topo.txt", 1, "not JSON"),
    ("verify program.json", 1, "`synth lint` checks it"),
    ("verify list.json", 1, "found a list"),
    ("pareto --topo ring:3 --coll pairs.yaml", 1, "[unit, rank] or [unit, [ranks]]"),
    ("show page.html", 1, "is an HTML page"),
    ("run empty.json", 1, "is empty"),
    ("run list.json", 1, "is no schedule"),
    ("run cut.xml", 1, "cut.xml:1"),
    ("run cut.json", 1, "cut.json:1:30: is not JSON"),
    ("run dir", 1, "dir: is a folder; name a file in it"),
    ("run nothere.json", 1, "nothere.json: does not exist"),
    ("lint dir", 2, "no .json and no .xml"),
    ("catalog ls --db notes.txt", 1, "is no catalog"),
    ("tune --from f.json --measured f.json", 1, "`synth bench -o` writes such files"),
    ("build", 2, "nvidia-smi topo -m > topo.txt"),
    # tuning, runs, catalogs
    ("tune", 2, "which collective"),
    ("tune --coll allgather", 2, "nothing to choose from"),
    ("tune --coll allgahter --topo full:4", 2, "allgather"),
    ("tune --topo full:4 --coll allgather --log nccl", 2, "BACKEND=FILE"),
    ("tune --topo full:4 --coll allgather --log nccl=none.txt", 1, "none.txt: does not exist"),
    ("tune --from f.json --measured none.json", 1, "none.json: does not exist"),
    ("tune --from f.json --protocol LL64", 2, "LL64"),
    ("tune --from f.json --topo dgx1", 2, "a plan is for one machine"),
    ("tune --from f.json --dtype int3", 2, "int3"),
    ("tune --from f.json -o no/such/p.json", 1, "the folder no/such does not exist"),
    ("tune --from f.json --import t.csv", 2, "--from"),
    ("tune --import none.csv", 1, "does not exist"),
    ("run program.xml --depth 9", 2, "1 to 8"),
    ("run program.xml --size 4TB", 1, "at most 4 GiB are allocated"),
    ("run program.xml --topo line:4", 1, "no such link"),
    ("run program.xml --topo ring:8", 1, "is for 4 ranks, ring:8 has 8"),
    ("run program.xml --point 1", 2, "this is none"),
    ("run program.xml --instances 2", 2, "program already"),
    ("run s.json --runtime nccl", 2, "unknown runtime"),
    ("run program.xml --runtime nccl", 2, "unknown runtime"),
    ("catalog build none.yaml", 1, "none.yaml: does not exist"),
    ("catalog build keys.fleet.yaml", 1, "keys.fleet.yaml: unknown key 'colls'"),
    ("catalog build fleet.yaml --db none/catalog.db", 1, "none/catalog.db: "),
    ("catalog build fleet.yaml --db fleet.yaml", 1, "fleet.yaml: is no catalog"),
    ("catalog ls", 1, "there is no catalog catalog.db"),
    ("catalog ls", 1, "`synth catalog ls --shipped` lists that of the package"),
    ("catalog build fleet.yaml --dask nowhere", 2, "such as tcp://host:8786"),
    ("catalog gc", 2, "gc"),
    # schedules of other programs, programs of the chunk language, builds
    ("import f.json -o a.json", 2, "choose a point with --point K or --step S"),
    ("import s.json --step 2", 2, "s.json is no frontier"),
    ("import s.json --topo ring:3 --coll allreduce", 2, "says that it is allgather; leave --coll allreduce out"),
    ("import s.json --topo ring:4", 2, "has 4"),
    ("import nothere.xml", 1, "nothere.xml: does not exist"),
    ("audit nothere --topo ring:3", 1, "nothere: does not exist"),
    ("audit dir --topo ring:3", 2, "no .json and no .xml"),
    ("explain f.json", 2, "choose a point with --point K or --step S"),
    ("explain f.json --point 9", 2, "points 1 to 2"),
    (f"explain {ASKED} --step 2", 2, "name its FILE"),
    ("explain s.json --coll allreduce", 2, "leave --coll out"),
    ("explain program.py --topo ring:3", 2, "`synth compile program.py`"),
    ("compile nothere.py --topo ring:3", 1, "nothere.py: does not exist"),
    ("compile nothere.json --topo ring:3", 1, "nothere.json: does not exist"),
    ("compile s.json --topo ring:3", 2, "`synth explain` takes a schedule"),
    ("compile two_shot --topo ring:3", 2, "did you mean two-shot"),
    ("compile torus.allreduce --topo ring:8", 2, "did you mean torus"),
    ("compile ring --topo ring:3", 2, "choose with --coll"),
    ("compile program.py --topo ring:3 --to msccl", 2, "-o FILE"),
    ("compile program.py --topo ring:3 --protocol LL", 2, "--to msccl-xml"),
    ("algorithms --coll nosuch", 2, "it has some for allgather, allreduce"),
    ("algorithms --size 1MB", 2, "add --topo NAME and --coll NAME"),
    ("algorithms --topo ring:3", 2, "add --coll NAME"),
    ("build --boxes 2", 2, "takes the NAME of one box"),
    ("build dgx-a100*2 --boxes 2", 2, "name one box"),
    ("build dgx1 --boxes 2 --ranks 0,1", 2, "and no changes of it"),
    ("build dgx1 --boxes 2,2", 2, "twice"),
    ("build dgx1 --boxs 2", 2, "'--boxes'"),
    ("export s.json --to chakra", 2, "-o DIR"),
    ("export s.json --to chakra -o notes.txt", 1, "it is a file; name a folder"),
    ("export f.json --protocol LL --to chakra -o dir", 2, "leave it out with --to chakra"),
    (f"pareto {ASKED} --sketch notes.txt", 1, "notes.txt: expected a mapping"),
    (f"pareto {ASKED} --sketch nothere.yaml", 1, "nothere.yaml: does not exist"),
    ("build ring:3 -o notes.txt", 1, "it is a file; name a folder"),
    # points and programs that an export does not take
    ("export f.json", 2, "has 2 points; choose one with --point K"),
    ("export f.json --point 3 -o x.xml", 2, "points 1 to 2"),
    ("export f.json --point 0", 2, "not a whole number"),
    ("export f.json --all -o d", 2, "o such option"),
    ("export s.json --to mscclpp --protocol LL --reads", 2, "use the Simple protocol for reads"),
    ("export s.json --to nccl-tuner-csv", 2, "nccl-tuner-csv is made of a tuner's plan: `synth tune -o plan.json`"),
    ("export s.json --runtime nccl", 2, "it is for msccl-executor, msccl, rccl"),
    ("export s.json --runtime msccl", 2, "give -o FILE"),
    ("export s.json -o no/such/x.xml", 1, "the folder no/such does not exist"),
    ("export s.json --topo dgx9", 2, "dgx9"),
    ("export s.json --protocol LL128", 1, "is unknown"),
    ("export s.json --max-size 1QB", 2, "not a size"),
    ("export s.json --rank-map 0,1", 2, "each of 0..2 once"),
    ("export s.json --min-size 2 --max-size 1", 1, "serves no size"),
    # outputs that cannot be written
    (f"bound {ASKED} -o dir", 1, "it is a folder; name a file in it"),
    (f"bound {ASKED} -o no/such/a.json", 1, "cannot write no/such/a.json: the folder no/such does not exist"),
    ("export s.json -o dir", 1, "it is a folder"),
    ("report nothere.json -o no/such/r.html", 1, "cannot write no/such/r.html"),
    # odd values
    ("list", 2, "name what to list: topologies, collectives, encodings"),
    ("bound --topo= --coll allgather", 2, "no topology given"),
    ("bound --topo . --coll allgather", 1, ".: is a folder; name a file in it"),
    (f"solve {ASKED} --chunks 2 --steps 2 --rounds {HUGE}", 2, "can be asked for"),
    (f"solve {ASKED} --chunks {HUGE} --steps 2 --rounds {HUGE}", 2, "can be asked for"),
    (f"solve {ASKED} --chunks 2 --steps {HUGE} --rounds {HUGE}", 2, "can be asked for"),
    ("run s.json --seed -1", 2, "--seed"),
    ("pareto --topo ring:4 --coll broadcast --root 7", 2, "root 7 is not a rank of 0..3"),
    ("pareto --topo ring:4 --coll multi-broadcast --root 7,9", 2, "root 7 is not a rank of 0..3"),
    ("pareto --topo ring:4 --coll multi-broadcast --root 0,8", 2, "root 8 is not a rank of 0..3"),
    ("pareto --topo ring:3 --coll allgatherv --sizes 1,2,3", 2, "--sizes"),
    ("bench f.json --links none.csv", 2, "--links changes a machine, and none is named"),
    ("run s.json --without 0-1", 2, "--without changes a machine, and none is named"),
    ("run s.json --degrade 0-1:1/2", 2, "--degrade changes a machine, and none is named"),
    ("run s.json --ranks 0-1", 2, "--ranks changes a machine, and none is named"),
    ("export f.json --to chakkra", 2, "unknown exporter 'chakkra'; did you mean chakra"),
    (
        "run --topo ring:6 --coll allreduce --baseline halving-doubling",
        2,
        "error: halving-doubling: ring:6 has no link 2 -> 0",
    ),
    *((f"{name} s.json --instances {HUGE}", 2, "at most 256") for name in ("show", "run", "export", "bench")),
    ("export s.json --to mscclpp --instances 257 -o a.json", 2, "at most 256"),
    ("explain --topo ring:1025 --coll allgather", 2, "1024"),
    ("allocations --topo switch:24", 2, "65536"),
    # odd files
    ("bound --topo ring:3 --coll deep.yaml", 1, "is nested too deeply"),
    ("bound --topo ring:3 --coll keys.yaml", 1, "unknown key '1'"),
    ("bound --topo ring:3 --coll unit.yaml", 1, "expected a whole number"),
    ("bound --topo ring:3 --coll rank.yaml", 1, "from 0 to 2"),
    ("bound --topo ring:3 --coll ranks.yaml", 1, "ranks: expected a whole number"),
    ("tune --from f.json --measured deep.json", 1, "is nested too deeply"),
    ("tune --from f.json --measured nines.json", 1, "is not JSON: "),
    ("verify other.json", 1, "other.json: has no schema"),
    ("verify nan.json", 1, "nan.json: "),
    ("verify nothere.json", 1, "nothere.json: does not exist"),
    *(
        (f"{command} {name}", 1, says)
        for command in ("lint", "run", "verify", "import", "export", "explain")
        for name, says in UNREADABLE.items()
    ),
]


# Each command line would give the same result without its last option, which is refused.
WITHOUT_EFFECT = """
pareto --topo ring:4 --coll allreduce --solver z3
pareto --topo ring:4 --coll allreduce --encoding quotient
pareto --topo ring:4 --coll allreduce --sweep blind
pareto --topo ring:4 --coll allreduce --max-chunks 1
pareto --topo ring:4 --coll allgather --engine flow --solver z3
pareto --topo ring:4 --coll allgather --engine flow --encoding step
pareto --topo ring:4 --coll allgather --engine flow --cross-check
pareto --topo ring:80 --coll allgather --solver z3
pareto --topo ring:4 --coll allgather --root 1
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
run program.xml --step 2
run program.xml --threads 64
run schedule.json --no-data --seed 3
tune --from frontier.json --jobs 2
import schedule.json --step 2
export frontier.json --step 2 --to msccl-xml --reads
export frontier.json --step 2 --to msccl-xml --blocks 4
export program.xml --to msccl-xml --instances 2
export frontier.json --step 2 --to chakra -o traces --runtime msccl
""".strip().splitlines()


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("words", "code", "says"), [*MISTAKES, *((line, 2, "") for line in WITHOUT_EFFECT)])
def test_a_mistake_gets_one_line_that_helps(words, code, says, folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", "")  # no nvidia-smi
    before = contents(folder)
    found = CliRunner().invoke(root, words.split())
    assert found.exit_code == code, found.output
    assert found.stdout == ""
    (line,) = found.stderr.splitlines()
    assert says in line and line.startswith("synth: error: ") and len(line) < 300, line
    assert "internal" not in line and contents(folder) == before


@pytest.mark.parametrize("name", ["topo", "crlf", "utf16", "bom", "prompt", "colour", "spaces"])
def test_a_dump_is_read_as_it_was_copied(name, folder, monkeypatch):
    monkeypatch.chdir(folder)
    found = CliRunner().invoke(root, ["topo", "show", f"{name}.txt"])
    assert found.exit_code == 0 and found.stdout.startswith(f"{name}: 4 ranks, 12 links"), found.output


@pytest.mark.parametrize(
    "words",
    [
        "BOUND --topo RING:3 --coll All-Gather --format TABLE",
        "bound --topo dgx-1 --coll allgather",
        "run s.json --protocol ll --size 3kb",
        "run s.json --dtype fp16 --size 3k",
        "run s.json --size 0",
        "topo show dgx1",  # a folder of this name is no machine
        "-V",
        "--version",
    ],
)
def test_what_is_meant_is_done(words, folder, monkeypatch):
    monkeypatch.chdir(folder)
    found = CliRunner().invoke(root, words.split())
    assert (found.exit_code, found.stderr) == (0, "") and found.stdout


LONG = "x" * 2000
RANKS = ",".join(map(str, range(600)))


@pytest.mark.parametrize(
    "words",
    [
        ["bound", "--topo", LONG, "--coll", "allgather"],
        ["bound", "--topo", "ring:3", "--coll", LONG],
        ["bound", "--topo", "ring:3", "--coll", "broadcast", "--root", RANKS],
        ["bound", "--topo", "ring:3", "--coll", "allgatherv", "--counts", RANKS],
        ["bound", "--topo", "ring:512", "--coll", "allgatherv", "--engine", "exact"],
        ["bound", "--topo", "ring:3", "--coll", "allgather", "--degrade", LONG],
        ["export", "s.json", "--rank-map", RANKS],
        ["run", "s.json", "--size", LONG],
        ["verify", LONG],
        [LONG],
    ],
)
def test_no_refusal_is_long(words, folder, monkeypatch):
    monkeypatch.chdir(folder)
    found = CliRunner().invoke(root, words)
    (line,) = found.stderr.splitlines()
    assert found.exit_code in (1, 2) and len(line) < 330 and "internal" not in line, line


@pytest.mark.parametrize(("name", "says"), [("notes.txt", "no log of a sweep"), ("/dev/full", "is not a file")])
def test_a_file_that_is_no_log_is_not_overwritten(name, says, folder):
    with pytest.raises(SynthError, match=says):
        synth.frontier("ring:3", "allgather", log=folder / name, fresh=True)


@pytest.mark.parametrize("torn", ["", '{"kind":"he', '{"kind":"head","version":1,"key":"another"}\n{"kind":"po'])
def test_a_log_of_another_question_or_a_torn_one_is_begun_anew(torn, tmp_path):
    path = tmp_path / "log"
    path.write_text(torn)
    synth.frontier("ring:3", "allgather", log=path)
    assert not path.exists()  # a finished sweep needs it no more


def test_a_change_in_the_environment_waits_for_a_machine(folder, monkeypatch):
    monkeypatch.setenv("SYNTH_WITHOUT", "0-1")
    assert CliRunner().invoke(root, ["run", str(folder / "s.json"), "--size", "1KB"]).exit_code == 0


@pytest.mark.parametrize(
    ("closed", "words", "code"), [(">&-", "list topologies", 0), (">&-", "-h", 0), ("2>&-", "list topologees", 2)]
)
def test_a_stream_that_is_closed_is_done_without(closed, words, code):
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "synth", *words.split()]
    result = subprocess.run(shell, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (code, "", "")


def test_an_audit_names_what_is_no_document(folder):
    for name, says in UNREADABLE.items():
        outcome = CliRunner().invoke(root, ["audit", str(folder / name), "--format", "json"])
        assert json.loads(outcome.stdout)["files"][0]["reason"].startswith(says.removeprefix(f"{name}:").lstrip())


def test_a_document_of_others_that_is_too_large_is_refused_alike_by_all_commands(folder, monkeypatch):
    monkeypatch.setattr("synth.export.program_reader.MAX_TEXT", 100)
    monkeypatch.setattr("synth.export.foreign.read.MAX_BYTES", 100)
    for command in ("lint", "run", "import"):
        line = CliRunner().invoke(root, [command, str(folder / "theirs.json")]).stderr
        assert line.endswith("theirs.json: has 114 bytes; at most 100 are read\n"), command


def test_numbers_of_units_are_limited_before_they_are_made():
    with pytest.raises(UsageError, match="parts are supported"):
        synth.collective("alltoall", 100_000)


def test_a_program_whose_collective_is_nested_too_deeply():
    deep = '{"a": ' + "[" * 5000
    with pytest.raises(SynthError, match="recursion"):
        parse(f"program p\ncollective {deep}\nchunks 1 protocol Simple in-place both bytes 0..\n", "p.txt")
