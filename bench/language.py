"""Compilation of programs of the chunk language to MSCCL-IR beside msccl-tools': instructions, and CPU seconds.

python -m bench.language [--runs 3]
python -m bench.language --table          the table again, from the JSON

A row is one command, `synth compile PROGRAM --topo T --to msccl-xml --protocol LL --lanes 1 --no-bounds`, from the
start of the process to the written file; its CPU seconds are the median of the runs. Those of msccl-tools
(microsoft/msccl-tools 030a750) were measured once on another machine, and its instructions counted in the files that it
writes for the same algorithm and number of ranks. So ratios of seconds are rough. A row is right where it has at most
1.25 times their instructions, and takes at most a third of their seconds, or what is allowed where they have no such
program.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench import measure
from synth.errors import SynthError

RESULTS = measure.RESULTS / "language.json"
MOST_INSTRUCTIONS = 1.25  # times those of msccl-tools
MOST_SECONDS = 1 / 3  # of those of msccl-tools
TO_XML = ("--to", "msccl-xml", "--protocol", "LL", "--lanes", "1")


class Case(NamedTuple):
    """A program on a machine, and what is known of it.

    `theirs`: instructions of msccl-tools' program. `their_seconds`: CPU seconds in which it is compiled. `most`: the
    CPU seconds that are allowed where it has no such program. None: not known.
    """

    name: str
    words: tuple[str, ...]
    theirs: int | None = None
    their_seconds: float | None = None
    most: float | None = None

    @property
    def allowed(self) -> float | None:
        """The most CPU seconds."""
        return self.most if self.their_seconds is None else self.their_seconds * MOST_SECONDS


CASES = (
    Case("ring allreduce, one way, 8 ranks", ("bench/ring_program.py", "--topo", "ring:8", *TO_XML), 120),
    Case("halving-doubling allreduce, 8 ranks",
         ("halving-doubling", "--coll", "allreduce", "--topo", "dgx-a100", *TO_XML), 104),
    Case("two-shot allreduce, 8 ranks", ("two-shot", "--topo", "dgx-a100", *TO_XML), 298),
    Case("one-shot allreduce, 8 ranks", ("one-shot", "--topo", "dgx-a100", *TO_XML), 1224),
    Case("direct allgather, 8 ranks", ("direct", "--coll", "allgather", "--topo", "dgx-a100", *TO_XML), 112),
    Case("direct alltoall, 8 ranks", ("direct", "--coll", "alltoall", "--topo", "dgx-a100", *TO_XML), 120),
    Case("hierarchical allreduce, rings in 2 boxes of 8, as many chunks",
         ("hierarchical", "--coll", "allreduce", "--topo", "dgx-a100*2", "-p", "inside=ring", "--chunks", "1", *TO_XML),
         544),
    Case("two-step alltoall, 4 boxes of 8", ("two-step", "--coll", "alltoall", "--topo", "dgx-a100*4", *TO_XML), 2784),
    Case("ring allreduce, one way, 64 ranks", ("bench/ring_program.py", "--topo", "ring:64", *TO_XML), None, 5.5),
    Case("two-shot allreduce, 16 ranks", ("two-shot", "--topo", "switch:16:units=16", *TO_XML), None, 15.4),
    Case("two-step alltoall, symmetric, 1024 ranks",
         ("examples/language/symmetric.py", "--topo", "dgx-a100*128"), None, None, 5.0),
)  # fmt: skip


def measured(case: Case, runs: int) -> dict:
    """Return the row of a case: its instructions and the median of its CPU seconds. Raises SynthError if it fails."""
    spent = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("out.xml" if "--to" in case.words else "out.npz")
        for _ in range(runs):
            done = measure.synth("compile", *case.words, "--no-bounds", "-o", str(path))
            if done.code:
                raise SynthError(f"{case.name}: exit code {done.code}, {done.stderr}")
            spent.append(done.cpu)
        instructions = path.read_text().count("<step ") if path.suffix == ".xml" else None
    return {"name": case.name, "instructions": instructions, "cpu": measure.median(spent)}


def short(case: Case, row: dict) -> list[str]:
    """Return what a row misses."""
    missed = []
    if case.theirs is not None and row["instructions"] > MOST_INSTRUCTIONS * case.theirs:
        missed.append(f"{case.name}: {row['instructions']} instructions, theirs {case.theirs}")
    if case.allowed is not None and row["cpu"] > case.allowed:
        missed.append(f"{case.name}: {measure.seconds(row['cpu'])} CPU s, {measure.seconds(case.allowed)} allowed")
    return missed


def page(found: dict) -> str:
    """Return the page of the results."""
    lines, missed = [], []
    for case, row in zip(CASES, found["rows"], strict=True):
        ratio = "" if case.theirs is None else f"{row['instructions'] / case.theirs:.2f}"
        allowed = "" if case.allowed is None else measure.seconds(case.allowed)
        their_seconds = "" if case.their_seconds is None else f"{case.their_seconds:g}"
        count = "" if row["instructions"] is None else str(row["instructions"])
        theirs = "" if case.theirs is None else str(case.theirs)
        lines.append((case.name, count, theirs, ratio, measure.seconds(row["cpu"]), their_seconds, allowed))
        missed += short(case, row)
    head = ("program", "instructions>", "theirs>", "ratio>", "CPU s>", "theirs>", "allowed>")
    misses = "".join(f"- {line}\n" for line in missed) or "- none\n"
    return (
        "# The chunk language beside msccl-tools\n\nInstructions of MSCCL-IR for LL with one connection a route, and "
        "CPU seconds of the whole command `synth compile`, the median of several runs. msccl-tools' seconds are of "
        "another machine; a third of them is allowed, and 1.25 times its instructions.\n\n"
        f"{measure.markdown(head, lines)}\nMissed:\n\n{misses}\n{measure.setting(found['where'])}\n"
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the JSON and the table; exit code 1 where a row misses something."""
    parser = argparse.ArgumentParser(prog="bench.language", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args(arguments)
    if options.table:
        found = json.loads(RESULTS.read_text())
    else:
        found = {"where": measure.where(), "rows": []}
        for case in CASES:
            found["rows"].append(measured(case, options.runs))
            print(json.dumps(found["rows"][-1]), flush=True)
    measure.keep(found, page(found), RESULTS)
    return int(any(short(case, row) for case, row in zip(CASES, found["rows"], strict=True)))


if __name__ == "__main__":
    sys.exit(main())
