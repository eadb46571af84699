"""Random command lines and altered files, to find what ends in a traceback, an abort, a hang or an exit code that is
not documented.

    python -m bench.fuzz --seed 1 --cases 200          the same cases each time
    python -m bench.fuzz --replay fuzz-cases/1-17.json

The commands and their options are read off the command line itself, so that a new option takes part by itself; `VALUES`
says what is written after an option of some name, and one in eight values is nonsense. Files are those that synth
itself wrote for small machines, and dumps of the forms that it imports; half of them are altered: bytes, numbers,
lines, JSON values. Half of the machines are random: boxes, one-way links, uneven units, switches that multicast, limits
and odd names. Each case runs in a process and a folder of its own, in `MEMORY` bytes and `SECONDS` seconds at
most. A failure is saved with its files and can be replayed.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from itertools import repeat
from pathlib import Path
from random import Random

import click

from bench.measure import ROOT
from synth.commands import root

DOCUMENTED = (0, 1, 2, 3, 4, 5, 130)  # exit codes of docs/cli.md
SECONDS = 300.0  # of a case, all of which have short time limits; what takes longer counts as a hang
MEMORY = 16 << 30  # bytes of address space of a case's process
NONSENSE = 1 / 8  # share of values that are nonsense
SKIPPED = {"dask", "slurm", "help"}  # options that speak to other machines
JUNK = (
    "", " ", "-1", "0", "1", "1/0", "nan", "inf", "1e400", "99999999999999999999", "-", "--", "é", "\u202e",
    "a" * 300, "0-", "3-1", "1,,2", "/", ".", "..", "nowhere/nothing", "/dev/null", "{}", "[]", "null", "0x10", "½",
    "1_000", "%s", "$HOME", "*", "a:b=c", "ring:", ":", "*2",
)  # fmt: skip
NUMBERS = (0, 1, -1, 2, 7, 1 << 31, (1 << 31) - 1, 1 << 53, 1 << 63, 1 << 64, -(1 << 63), 10**30)
MACHINES = (
    "ring:{n}", "line:{n}", "star:{n}", "fully-connected:{n}", "switch:{n}", "hypercube:4", "hypercube:8",
    "torus:2x3", "mesh:3x3", "dgx1", "dgx1-p100", "dgx2", "dgx-a100", "dgx-h100", "mi250", "mi50-z52", "mi300x",
    "ring:{n}*2", "dgx1*2:cross=0+2", "ring:2*2:nics=1", "random-regular:8:seed={n}", "ring:{n}:units=2",
    "dgx-a100*2:net=rail", "ndv2", "gb200-nvl72", "binary-tree:7", "ring",
)  # fmt: skip
COLLECTIVES = (
    "allgather", "allreduce", "alltoall", "broadcast", "reduce", "gather", "scatter", "reduce-scatter", "scan",
    "alltonext", "sendrecv", "multi-broadcast", "allgatherv", "all_reduce",
)  # fmt: skip
# Documents that the cases begin with, made once: the name of a file, and the command that writes it.
MADE = {
    "frontier.json": "pareto --topo ring:4 --coll allgather -o frontier.json",
    "sum.json": "pareto --topo line:3 --coll allreduce -o sum.json",
    "schedule.json": "solve --topo ring:4 --coll broadcast --chunks 2 --steps 2 --rounds 2 -o schedule.json",
    "bounds.json": "bound --topo ring:4 --coll alltoall -o bounds.json",
    "large.json": "pareto --topo ring:3*2 --coll allgather --engine flow -o large.json",
    "apart.json": "bound --topo apart.yaml --coll allgather -o apart.json",
    "plan.json": "tune --from frontier.json --sizes 1KB:1MB -o plan.json",
    "program.xml": "export frontier.json --to msccl-xml --runtime msccl-executor -o program.xml",
    "plan-mscclpp.json": "export frontier.json --to mscclpp -o plan-mscclpp.json",
    "steps.txt": "show frontier.json -o steps.txt",
    "measured.json": "bench frontier.json --executor reference --sizes 1KB:4KB -o measured.json",
    "catalog.db": "catalog build fleet.yaml --db catalog.db --jobs 1",
}
WRITTEN = {
    "machine.yaml": "name: four\nranks: 4\nlinks:\n- {src: 0, dst: 1, bandwidth: 25, both: true}\n"
    "- {src: 1, dst: 2, bandwidth: 50, both: true}\n"
    "- {src: 2, dst: 3, bandwidth: 25, both: true}\n- {src: 3, dst: 0, bandwidth: 50, both: true, latency: 2}\n",
    "switches.json": '{"ranks": 3, "switches": ["s"], "links": [{"src": 0, "dst": "s", "bandwidth": 2, "both": true}, '
    '{"src": 1, "dst": "s", "bandwidth": 2, "both": true}, {"src": 2, "dst": "s", "bandwidth": 1, "both": true}, '
    '{"src": 0, "dst": 1, "bandwidth": 1}], '
    '"limits": [{"name": "port", "links": [[0, "s"], ["s", 0]], "bandwidth": 2}]}',
    "apart.yaml": "name: apart\nranks: 3\nlinks:\n- {src: 0, dst: 1, bandwidth: 1, both: true}\n",
    "one.json": '{"ranks": 1, "links": []}',
    "custom.yaml": "combining: true\npre: [[0, 1], [0, 2]]\npost: [[0, [0, 1]]]\n",
    "copies.yaml": "pre: [[0, 0], [1, 2]]\npost: [[0, [1, 2]], [1, 0]]\n",
    "fleet.yaml": "topologies: [ring:3]\ncollectives: [allgather, broadcast]\n",
    "links.csv": "src,dst,gbps,us\n0,1,20,1\n1,0,20,1\n",
    "smi.txt": "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV2\t0-7\nGPU1\tNV2\t X \t0-7\n",
    "notes.txt": "nothing that anybody reads\n",
}
TOPOLOGIES = (
    "machine.yaml", "switches.json", "apart.yaml", "one.json", "smi.txt", "nccl-ring.xml", "rocm-smi-pairs.txt",
    "frontier.json",
)  # fmt: skip
RANDOM = "random.json"  # a machine of its own in each case
DOCUMENTS = (*MADE, "large.schedules/*.npz", "notes.txt", "machine.yaml", RANDOM)
Value = Callable[[Random], str]


def _one(*values: str) -> Value:
    return lambda rng: rng.choice(values)


def _machine(rng: Random) -> str:
    if rng.random() < 0.5:
        return RANDOM
    return rng.choice(MACHINES).format(n=rng.randint(1, 6))


def _ranks(rng: Random) -> str:
    some = sorted(rng.sample(range(8), rng.randint(1, 5)))
    return rng.choice((",".join(map(str, some)), f"{some[0]}-{some[-1]}"))


def _pair(rng: Random) -> str:
    return f"{rng.randrange(4)}-{rng.randrange(4)}"


_size = _one("1", "1KB", "64KB", "1000", "1MB", "3MB", "1GB", "1.5KB")
# What is written after an option, or for an argument, of this name. Others get small numbers.
VALUES: dict[str, Value] = {
    **dict.fromkeys(("size", "min_size", "max_size"), _size),
    **dict.fromkeys(("file", "files", "from", "measured"), _one(*DOCUMENTS)),
    "topo": _machine,
    "name": lambda rng: rng.choice((_machine(rng), rng.choice(TOPOLOGIES), "1", "ring")),
    "coll": lambda rng: rng.choice((*COLLECTIVES, "custom.yaml", "copies.yaml")),
    "ranks": _ranks,
    "root": _one("0", "1", "0,1", "3"),
    "without": _pair,
    "degrade": lambda rng: f"{_pair(rng)}:{rng.choice(('1/2', '0.3', '0', '2'))}",
    "links": _one("links.csv", "notes.txt"),
    "sizes": _one("2,1,0,3", "1,1,1,1", "1KB:1MB", "1KB,4KB", "1KB:64KB:x4", "0,1;1,0"),
    "encoding": _one("auto", "step", "quotient", "quotient@1", "sccl", "path", "tree", "step/z3"),
    "solver": _one("auto", "cadical", "z3", "minicard"),
    "time_limit": _one("1s", "2s", "0.5s"),
    "fleet": _one("fleet.yaml", "notes.txt"),
    "plan": _one("plan.json", "frontier.json"),
    "db": _one("catalog.db"),
    "import": _one("links.csv", "measured.json"),
    "output": _one("out.json", "-", "out", "no/such/folder/out", "out.svg", "out.html", "frontier.json"),
    "svg": _one("out.svg"),
    "trace": _one("out.json"),
    "to": _one("msccl-xml", "mscclpp", "msccl-dir", "mscclpp-dir", "nccl-tuner-csv", "mcrdl-csv", "timeline"),
    "dtype": _one("float32", "float16", "int8", "bfloat16"),
    "op": _one("sum", "max", "prod", "avg"),
    "executor": _one("reference", "host", "mpi", "cuda"),
    "baseline": _one("ring", "tree", "direct"),
    "clock": _one("model", "wall", "logical"),
    "kind": _one("topologies", "collectives", "solvers", "encodings", "exporters", "executors"),
    "rank_map": _one("0,1,2,3", "3,2,1,0", "1,2,0"),
    "gpus": _one("2,3", "2"),
    "ranks_on": _one("0,0,0,0", "0"),
    "log": _one("nccl=notes.txt", "mscclpp=measured.json"),
    "title": _one("A title", ""),
    "gbps_per_link": _one("25", "20.5"),
    "pcie_gbps": _one("12"),
    "timeout": _one("20"),
    "threads": _one("1", "2", "8"),
    "repeats": _one("1", "2"),
    "warmup": _one("1"),
}


@dataclass(frozen=True)
class Case:
    """A command line, and the files (base 64) of its folder that are not those of every case."""

    arguments: tuple[str, ...]
    files: dict[str, str]


@dataclass(frozen=True)
class Ended:
    """The end of a case: `fault` is empty where the end is as documented."""

    code: int | None
    fault: str
    said: str


@cache
def commands() -> tuple[tuple[tuple[str, ...], click.Command], ...]:
    """Every command with the words that call it."""
    found: list[tuple[tuple[str, ...], click.Command]] = []

    def walk(command: click.Command, words: tuple[str, ...], context: click.Context | None) -> None:
        if not isinstance(command, click.Group):
            found.append((words, command))
            return
        inner = click.Context(command, parent=context, info_name="synth")
        for name in command.list_commands(inner):
            child = command.get_command(inner, name)
            if child is not None:
                walk(child, (*words, name), inner)

    walk(root, (), None)
    return tuple(found)


def command_line(rng: Random) -> tuple[str, ...]:
    """A random command with random options."""
    called, command = rng.choice(commands())
    words = list(called)
    for parameter in command.params:
        name = parameter.name or ""
        likely = 0.9 if name in ("topo", "coll", "file") else 0.15
        if name in SKIPPED or rng.random() >= (1.0 if parameter.required or name == "time_limit" else likely):
            continue
        if isinstance(parameter, click.Argument):
            words += [_value(rng, parameter) for _ in range(rng.randint(1, 2) if parameter.nargs == -1 else 1)]
        elif getattr(parameter, "is_flag", False):
            words.append(parameter.opts[0])
        else:
            words += [parameter.opts[0], _value(rng, parameter)]
    if rng.random() < 0.02:
        words.insert(rng.randrange(len(words) + 1), rng.choice(JUNK))
    return tuple(words)


def _value(rng: Random, parameter: click.Parameter) -> str:
    if rng.random() < NONSENSE and parameter.name != "time_limit":
        return rng.choice(JUNK)
    if isinstance(parameter.type, click.Choice) and rng.random() < 0.9:
        return str(rng.choice(parameter.type.choices))
    named = VALUES.get(parameter.name or "")
    return named(rng) if named else str(rng.randint(1, 6))


def altered(data: bytes, rng: Random) -> bytes:
    """A file with one or a few things changed: a JSON value, a number, a line, a span of bytes."""
    try:
        document = json.loads(data)
    except ValueError:
        document = None
    if isinstance(document, dict | list) and rng.random() < 0.6:
        return json.dumps(_alter(document, rng)).encode()
    kind = rng.randrange(5)
    at = rng.randrange(len(data) + 1)
    end = min(len(data), at + rng.choice((1, 1, 4, 40, 4000)))
    lines = data.splitlines(keepends=True)
    match kind:
        case 0:
            return data[:at] + data[end:]
        case 1:
            return data[:at] + data[at:end] * 2 + data[end:]
        case 2:
            return data[:at] + bytes(rng.randrange(256) for _ in range(end - at)) + data[end:]
        case 3 if lines:
            k = rng.randrange(len(lines))
            without, twice, turned = lines[:k] + lines[k + 1 :], lines[: k + 1] + lines[k:], lines[k:] + lines[:k]
            return b"".join(rng.choice((without, twice, turned)))
        case _:
            numbers = list(re.finditer(rb"-?\d+", data))
            if not numbers:
                return b""
            hit = rng.choice(numbers)
            return data[: hit.start()] + str(_number(rng)).encode() + data[hit.end() :]


def _number(rng: Random) -> int:
    return rng.choice((*NUMBERS, rng.randint(-9, 99)))


def _alter(value: object, rng: Random) -> object:
    """The JSON value with one random place of it changed."""
    inner = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    if inner and rng.random() < 0.85:
        key = rng.choice(inner)
        copy = dict(value) if isinstance(value, dict) else list(value)  # type: ignore[call-overload]
        if rng.random() < 0.1:
            del copy[key]
        else:
            copy[key] = _alter(copy[key], rng)
        return copy
    other = (None, True, False, "", "x", [], {}, 1.5, _number(rng), _number(rng), [value], {"x": value})
    if isinstance(value, list) and value and rng.random() < 0.5:
        return rng.choice((value + value[-1:], value[::-1], value[:-1]))
    return rng.choice(other)


def random_machine(rng: Random) -> dict:
    """Return the document of a random machine of up to 6 ranks, with one-way links, in one box or more."""
    ranks, switches = rng.randint(1, 6), [f"s{i}" for i in range(rng.choice((0, 0, 0, 1, 2)))]
    ends: list[int | str] = [*range(ranks), *switches]
    links: list[dict] = []
    for src in ends:
        for dst in ends:
            if src != dst and rng.random() < rng.choice((0.4, 0.9)):
                width = rng.choice((1, 1, 2, 5, "1/3", "0.1", 0, 10**9))
                links.append({"src": src, "dst": dst, "bandwidth": width})
                if rng.random() < 0.2:
                    links[-1] |= {"latency": rng.choice((0, "0.7", 3)), "kind": rng.choice(("nvlink", "pcie", "net"))}
    document: dict = {"ranks": ranks, "links": links, "switches": switches}
    document["name"] = rng.choice(("fuzz", "ring:4", "dgx1", "a b", "é", "x" * 70, "-", "*", "../up"))
    if rng.random() < 0.6:
        document["nodes"] = [rng.randrange(rng.randint(1, 3)) for _ in range(ranks)]
    if rng.random() < 0.2:
        document["labels"] = rng.sample(range(20), ranks)
    if rng.random() < 0.25 and ranks > 1:
        document["multicast"] = [{"switch": rng.choice(("m", *switches)), "ranks": rng.sample(range(ranks), 2)}]
        document["multicast"][0]["own"] = rng.choice(("through", "local"))
    limits = []
    for i in range(rng.choice((0, 0, 1, 3)) if links else 0):
        held = rng.sample(links, rng.randint(1, min(4, len(links))))
        members = [[link["src"], link["dst"]] for link in held]
        limits.append({"name": f"L{i}", "links": members, "bandwidth": rng.choice((1, 2, "1/2"))})
    return document | {"limits": limits}


def case(seed: int, index: int, folder: Path) -> Case:
    """Case `index` of `seed`; its files are made of those in `folder`."""
    rng = Random(f"{seed}:{index}")
    words = list(command_line(rng))
    files: dict[str, str] = {}
    for k, word in enumerate(words):
        if "*" in word and (choices := sorted(folder.glob(word))):
            word = words[k] = str(rng.choice(choices).relative_to(folder))
        if word == RANDOM:
            files[word] = base64.b64encode(json.dumps(random_machine(rng)).encode()).decode()
            continue
        source = folder / word if word and len(word) < 100 and "\0" not in word else None
        if source is not None and source.is_file() and rng.random() < 0.5:
            data = source.read_bytes()
            for _ in range(rng.choice((1, 1, 3))):
                data = altered(data, rng)
            files[word] = base64.b64encode(data).decode()
    return Case(tuple(words), files)


def run(asked: Case, folder: Path) -> Ended:
    """Carry out a case in a copy of `folder`."""
    with tempfile.TemporaryDirectory(prefix="synth-fuzz-") as place:
        here = Path(place) / "work"
        shutil.copytree(folder, here)
        for name, data in asked.files.items():
            (here / name).write_bytes(base64.b64decode(data))
        try:
            done = subprocess.run(
                [sys.executable, "-m", "synth", *(word.replace("\0", "") for word in asked.arguments)],
                cwd=here, timeout=SECONDS, stdin=subprocess.DEVNULL, capture_output=True,
                env=_environment(Path(place)),
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
            )  # fmt: skip
        except subprocess.TimeoutExpired as late:
            said = (late.stderr or b"").decode(errors="replace")[-2000:]
            return Ended(None, f"still running after {SECONDS:g} s", said)
    said = done.stderr.decode(errors="replace")
    wrong = fault(done.returncode, said or done.stdout.decode(errors="replace"))
    return Ended(done.returncode, wrong, said[-2000:])


def fault(code: int, said: str) -> str:
    """Return the fault in the end of a command that printed `said` on stderr, else on stdout; "" for none."""
    faults = {
        f"ended by signal {-code}": code < 0,
        f"exit code {code} is not documented": code not in DOCUMENTED,
        "a traceback": "Traceback (most recent call last)" in said,
        "an internal error": "internal error" in said,
        f"exit code {code} without a word": code in (1, 2, 3, 5) and not said.strip(),
    }
    return next((what for what, holds in faults.items() if holds), "")


def _environment(place: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SYNTH_")}
    return kept | {
        "SYNTH_CACHE": str(place / "cache"),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    }


def prepare(folder: Path) -> None:
    """Write the files that cases begin with. Raises SystemExit where synth itself fails at that."""
    for name, text in WRITTEN.items():
        (folder / name).write_text(text)
    for name in TOPOLOGIES:
        if not (folder / name).exists() and (ROOT / "tests/fixtures" / name).exists():
            shutil.copy(ROOT / "tests/fixtures" / name, folder / name)
    for words in MADE.values():
        command = [sys.executable, "-m", "synth", *words.split()]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=_environment(folder))
        if done.returncode not in (0, 3, 4) or fault(done.returncode, done.stderr):
            raise SystemExit(f"synth {words}: exit code {done.returncode}\n{done.stderr}")


def explore(seed: int, cases: int, jobs: int, folder: Path, saved: Path) -> int:
    """Run so many cases; the number that failed, each saved."""
    codes: Counter[str] = Counter()
    failed = 0
    with ThreadPoolExecutor(jobs) as pool:
        asked = [case(seed, index, folder) for index in range(cases)]
        for index, ended in enumerate(pool.map(run, asked, repeat(folder))):
            codes[str(ended.code)] += 1
            if ended.fault:
                failed += 1
                saved.mkdir(exist_ok=True)
                path = saved / f"{seed}-{index}.json"
                path.write_text(json.dumps({"case": asdict(asked[index]), "ended": asdict(ended)}, indent=1) + "\n")
                print(f"\n{path}: {ended.fault}: synth {' '.join(asked[index].arguments)}", flush=True)
    ends = ", ".join(f"{count} with exit code {code}" for code, count in sorted(codes.items()))
    print(f"seed {seed}: {cases} commands, {failed} failed ({ends})")
    return failed


def main(arguments: list[str] | None = None) -> int:
    """The command line; 1 where a case failed."""
    parser = argparse.ArgumentParser(prog="python -m bench.fuzz", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1, help="of the cases")
    parser.add_argument("--cases", type=int, default=100, help="how many")
    parser.add_argument("--jobs", type=int, default=2, help="commands at a time")
    parser.add_argument("--saved", type=Path, default=Path("fuzz-cases"), help="folder for the cases that fail")
    parser.add_argument("--replay", type=Path, help="run a saved case again")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="synth-fuzz-files-") as place:
        prepare(Path(place))
        if given.replay:
            asked = Case(**json.loads(given.replay.read_text())["case"])
            ended = run(asked, Path(place))
            print(f"synth {' '.join(asked.arguments)}")
            print(f"exit code {ended.code}: {ended.fault or 'as documented'}\n{ended.said}")
            return 1 if ended.fault else 0
        return 1 if explore(given.seed, given.cases, given.jobs, Path(place), given.saved) else 0


if __name__ == "__main__":
    sys.exit(main())
