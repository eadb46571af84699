"""Every program of a DGX-1's frontiers by the host executor, 1 and 4 threads a block, every element checked: through
FIFOs, put directly, and as packets (LL).

python -m bench.host [COLLECTIVE ..] [--frontiers DIR] [--time-limit 60] [--tsan] [-o FILE.md]

The frontiers are those of bench.programs (kept in DIR). --tsan also runs each under ThreadSanitizer. Ends with 1
if anything is wrong, or reported.
"""

import argparse
import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.programs import COLLECTIVES, TOPOLOGY, frontier
from synth import api
from synth.errors import SynthError
from synth.pareto.log import default_directory
from synth.program.direct_writes import direct_sends
from synth.program.program import SENDING, Program
from synth.runtime.host import thread_sanitizer

THREADS = (1, 4)
ELEMENTS = 13  # of a chunk: divisible by nothing
WAYS: dict[str, dict[str, Any]] = {"FIFO": {"direct": False}, "direct": {}, "packets": {"protocol": "LL"}}


def programs(names: Sequence[str], folder: Path, limit: float) -> Iterator[tuple[str, Program]]:
    """The points' programs and what they are called: (chunks, steps, rounds)."""
    for name in names:
        for point in frontier(name, folder, limit).points:
            yield f"{name} ({point.chunks},{point.steps},{point.rounds})", api.lower(point.schedule)


def row(name: str, program: Program, way: str, threads: int, tsan: bool) -> tuple[bool, str]:
    """Return True if every result is right, and the line of the table."""
    size, start, good, found = program.loop_chunks * 4 * ELEMENTS, time.process_time(), True, "not run"
    in_place = program.in_place == "in"
    try:
        done = api.run(program, executor="host", threads=threads, size=size, in_place=in_place, **WAYS[way])
        said = f"right, {done.checked.elements if done.checked else 0} elements"
    except SynthError as error:
        good, said = False, f"WRONG: {error}"
    spent = time.process_time() - start
    if tsan:
        raced = thread_sanitizer.find_races(program, threads=threads, elements=ELEMENTS, launches=2, **WAYS[way])
        good = good and raced == thread_sanitizer.RaceReport((), False, True)
        found = "silent" if not raced.races else "; ".join(raced.races)
    blocks = sum(len(gpu.blocks) for gpu in program.gpus)
    put = f"{len(direct_sends(program, in_place, 1 << 20))} of {messages(program)}" if way == "direct" else ""
    return good, f"| {name} | {blocks} | {program.ops} | {way} | {put} | {threads} | {said} | {spent:.2f} | {found} |"


def messages(program: Program) -> int:
    """Ops that send."""
    return sum(op.code in SENDING for gpu in program.gpus for block in gpu.blocks for op in block.ops)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="COLLECTIVE")
    parser.add_argument("--frontiers", type=Path, default=default_directory() / "bench-programs")
    parser.add_argument("--time-limit", type=float, default=60)
    parser.add_argument("--tsan", action="store_true")
    parser.add_argument("-o", type=Path, dest="output")
    given = parser.parse_args(arguments)
    rows, wrong = [], 0
    for name, program in programs(given.names or list(COLLECTIVES), given.frontiers, given.time_limit):
        for way, threads in itertools.product(WAYS, THREADS):
            good, line = row(name, program, way, threads, given.tsan)
            wrong += not good
            rows.append(line)
            print(line, flush=True)
    head = (
        f"# Host executor\n\n{len(rows)} runs of the programs of the {TOPOLOGY}'s frontiers: float32, {ELEMENTS} "
        f"elements a chunk;"
        f" {wrong} wrong.\n"
    )
    columns = (
        "| program (chunks, steps, rounds) | blocks | ops | way | messages put | threads a block | result | CPU s | "
        "ThreadSanitizer |\n"
        "|---|--:|--:|---|--:|--:|---|--:|---|"
    )
    if given.output:
        given.output.write_text("\n".join((head, columns, *rows, "")))
    print(f"{len(rows)} runs, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
