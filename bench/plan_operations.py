"""Operations and times of our plans for MSCCL++ beside upstream's plans for the same algorithm.

python -m bench.plan_operations FOLDER
python -m bench.plan_operations --table    the table again, from the JSON

FOLDER has plans of the example programs and default algorithms of microsoft/mscclpp 1f5f065d (s_*, d_*.json). Ours are
lowered from the library's algorithm of the same kind, for as many ranks and instances, and with one instance beside.
Counted are the operations of the rank with the most: those that move data, signals, waits, barriers and nops; blocks;
and entries of port channels, each of which is a queue pair (QP). Operations in pipelines count once. Times are the
reference executor's, with the clock of synth/program/overheads.py, at sizes that both plans serve.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from bench import measure
from synth import api
from synth.algorithms import hierarchical, one_shot, two_shot
from synth.encodings.multicast_pipelining import MulticastPipelining
from synth.errors import SynthError
from synth.export.mscclpp.emit import document
from synth.export.request import Machine
from synth.model.number_text import size_text
from synth.model.schedule import Schedule
from synth.program.checked_lowering import onesided
from synth.program.lowering_options import LoweringOptions
from synth.program.program import Program

RESULTS = measure.RESULTS / "plan_operations.json"
SIZES = tuple(1 << k for k in (10, 14, 17, 20, 21, 24, 27))
SYNCS = {"signal": "signals", "rlxsignal": "signals", "wait": "waits", "rlxwait": "waits", "barrier": "barriers"}
SYNCS |= {"nop": "nops", "flush": "flushes", "sem_acquire": "semaphores", "sem_release": "semaphores"}
FUSED = {"pws": ("signals",), "pwsf": ("signals", "flushes")}  # beside the put
COUNTED = ("data", "signals", "waits", "nops", "barriers", "blocks", "port channels")
GOAL = 1.1  # of data operations, signals and waits
TIME_GOAL = 1.01


class Pair(NamedTuple):
    """A plan of upstream's and the schedule of the same algorithm, with the options by which it is lowered."""

    name: str
    file: str
    machine: str
    schedule: Callable[[], Schedule]
    options: LoweringOptions
    equal: bool = True  # as many instances as upstream's plan has: the goals are for these


def switched() -> Schedule:
    """Return the plain allreduce through the switch of a DGX H100: each rank sums and multicasts one chunk."""
    network = api.topology("dgx-h100").multicast_network()
    return MulticastPipelining(network, api.collective("allreduce", network.ranks)).plain((1 << 20,), 16)


def _pairs() -> tuple[Pair, ...]:
    place = LoweringOptions(in_place="in")
    eight = LoweringOptions(in_place="in", instances=8, blocks=8, reads=True)
    packets = LoweringOptions(in_place="in", protocol="LL")

    def both_shots() -> Schedule:
        return two_shot.allreduce.schedule("dgx-h100", chunks=1)

    def boxes() -> Schedule:
        return hierarchical.allreduce.schedule("dgx-h100*2", chunks=1, across=one_shot)

    two, through = "s_allreduce.json", "s_allreduce_nvls_zero_copy.json"
    return (
        Pair("two-shot, 8 instances in 8 blocks", two, "dgx-h100", both_shots, eight),
        Pair("two-shot, 1 instance", two, "dgx-h100", both_shots, place, equal=False),
        Pair("all pairs, packets", "s_allreduce_pkt.json", "dgx-h100", both_shots, packets),
        Pair("hierarchical 2x8, packets", "d_allreduce_2x8_tbg1.json", "dgx-h100*2", boxes, packets),
        Pair("NVLS, 8 instances in 8 blocks", through, "dgx-h100", switched, eight),
        Pair("NVLS, 1 instance", through, "dgx-h100", switched, place, equal=False),
    )


def counts(plan: dict) -> dict[str, int]:
    """Return the numbers of operations, blocks and port channels of the rank with the most of each."""
    most: Counter[str] = Counter()
    for gpu in plan["gpus"]:
        found = Counter({"blocks": len(gpu["threadblocks"])})
        for block in gpu["threadblocks"]:
            _count(block["ops"], found)
        for channel in gpu["channels"]:
            if channel["channel_type"] == "port":
                found["port channels"] += len(channel["connected_to"])
        most |= found
    return {name: most[name] for name in COUNTED}


def _count(ops: list[dict], found: Counter[str]) -> None:
    for op in ops:
        if op["name"] == "pipeline":
            _count(op["ops"], found)
            continue
        found[SYNCS.get(op["name"], "data")] += 1
        found.update(FUSED.get(op["name"], ()))


def microseconds(program: Program, machine: str, size: int) -> float | None:
    """Return the time of a call in place; None where the program does not serve the size."""
    try:
        done = api.run(program, size=size, topology=machine, data=False, in_place=True, bound=False)
    except SynthError:
        return None
    time = done.execution.picoseconds
    return None if time is None else time / 10**6


def measured(folder: Path) -> list[dict]:
    """Return a row for each pair."""
    rows = []
    for pair in _pairs():
        nodes = Machine.of(api.topology(pair.machine)).nodes
        ours = onesided(pair.schedule(), replace(pair.options, nodes=nodes))
        theirs = folder / pair.file
        row = {"name": pair.name, "file": pair.file, "machine": pair.machine, "equal": pair.equal}
        row["ours"] = counts(document(ours))
        row["upstream"] = counts(json.loads(theirs.read_text()))
        other, times = api.load_program(theirs), []
        for size in SIZES:
            pairs = [microseconds(program, pair.machine, size) for program in (ours, other)]
            if None not in pairs:
                times.append({"size": size, "ours": pairs[0], "upstream": pairs[1]})
        rows.append(row | {"times": times})
        print(pair.name, row["ours"], row["upstream"], flush=True)
    return rows


def table(results: dict) -> str:
    """Return the results as Markdown: a table of operations, one of times."""
    lines, times = [], []
    for row in results["rows"]:
        cells = [f"{row['ours'][name]} / {row['upstream'][name]}" for name in COUNTED]
        lines.append([row["name"], row["file"], *cells, f"{ratio(row):.2f}"])
        for at in row["times"]:
            found = [f"{at['ours']:.2f}", f"{at['upstream']:.2f}", f"{at['ours'] / at['upstream']:.4f}"]
            times.append([row["name"], size_text(at["size"]), *found])
    heads = ["algorithm", "upstream's plan", *(f"{name}>" for name in COUNTED), "ratio>"]
    return (
        "# Plans beside upstream's\n\n"
        "Operations of a rank, ours / upstream's, and the greatest ratio of data operations, signals and waits (goal: "
        f"at most {GOAL}, at equal instances).\n\n"
        + measure.markdown(heads, lines)
        + f"\nEmulated times, µs, at sizes that both serve (goal: at most {TIME_GOAL} of upstream's, at equal "
        "instances).\n\n"
        + measure.markdown(["algorithm", "size>", "ours>", "upstream's>", "ratio>"], times)
        + "\n"
        + measure.setting(results["where"])
        + "\n"
    )


def ratio(row: dict) -> float:
    """Return the greatest ratio of our data operations, signals and waits to upstream's."""
    found = [0.0]
    for name in ("data", "signals", "waits"):
        ours, theirs = row["ours"][name], row["upstream"][name]
        if ours:
            found.append(ours / theirs if theirs else float("inf"))
    return max(found)


def main(arguments: Sequence[str]) -> int:
    """Count, time, and write the JSON and its table; exit code 1 where a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.plan_operations", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args(arguments)
    if given.table:
        results = json.loads(RESULTS.read_text())
    elif given.folder is None or not given.folder.is_dir():
        parser.error("name the folder with upstream's plans")
    else:
        results = {"where": measure.where(), "rows": measured(given.folder)}
    measure.keep(results, table(results), RESULTS)
    rows = [row for row in results["rows"] if row["equal"]]
    missed = [row["name"] for row in rows if ratio(row) > GOAL]
    for row in rows:
        slow = [at["size"] for at in row["times"] if at["ours"] > TIME_GOAL * at["upstream"]]
        missed += [f"{row['name']} at {size_text(size)}" for size in slow]
    print("missed:", ", ".join(missed) or "none")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
