"""One-sided programs of the frontiers of a DGX-1 and a DGX H100 by the host executor: 1000 launches, all outputs
compared, and ThreadSanitizer.

python -m bench.launches [--minutes 10] [--launches 1000] [--frontiers DIR] [-o FILE.json]

Every point of the frontiers of allgather, allreduce, reduce-scatter and alltoall, those with multicast too, is lowered
for {memory channels, port channels} × {Simple, LL} × {out of place, in place}; through switches for memory channels
alone. Each program runs three launches under ThreadSanitizer with 1 and with 4 threads a block, and then the launches
without it, each with data of its own; each rank launches for itself. Results are kept after each program, and the same
command goes on with those that are missing or whose program has changed. It ends with 1 if a program is wrong or
reported.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

from bench import measure
from synth import api
from synth.errors import SynthError
from synth.model.frontier import Frontier
from synth.model.schedule import Schedule
from synth.pareto.log import default_directory
from synth.program.checked_lowering import onesided
from synth.program.lowering_options import LoweringOptions
from synth.program.program import InPlace, Program
from synth.runtime.host.thread_sanitizer import Executable, RaceReport, find_races

MACHINES = ("dgx1", "dgx-h100")
COLLECTIVES = ("allgather", "allreduce", "reduce-scatter", "alltoall")
CHANNELS = ("memory", "port")
WATCHED = 3  # launches under ThreadSanitizer
ELEMENTS = 9  # of a chunk: divisible by little
SILENT = RaceReport((), False, True)
SECONDS = 300.0  # of wall, of one run
SEARCH = 60.0  # wall seconds of a frontier
FOLDER = default_directory() / "bench-launches"  # of the frontiers


class Case(NamedTuple):
    """A program to run: of a point of a frontier, with multicast or not."""

    machine: str
    collective: str
    schedule: Schedule
    channels: str
    protocol: str
    place: InPlace

    @property
    def name(self) -> str:
        """Return the words of the row, which no other case has."""
        one = self.schedule
        switches = " multicast" if one.uses_multicast else ""
        point = f"({one.chunks},{one.step_count},{one.rounds}){switches}"
        return f"{self.machine} {self.collective} {point} {self.channels} {self.protocol} {self.place}"

    def program(self) -> Program:
        """Return the program. Raises SynthError for one that a runtime's limit refuses."""
        ranks = self.schedule.collective.ranks
        nodes = [0] * ranks if self.channels == "memory" else list(range(ranks))
        return onesided(self.schedule, LoweringOptions(protocol=self.protocol, in_place=self.place, nodes=nodes))


def frontier(machine: str, collective: str, folder: Path) -> Frontier:
    """Return the frontier, from `folder` if it is there."""
    path = folder / f"{machine}-{collective}.json"
    if not path.is_file():
        found = api.frontier(machine, collective, time_limit=SEARCH, jobs=1, multicast=machine == "dgx-h100")
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found.to_json()))
    return Frontier.from_json(json.loads(path.read_text()))


def cases(folder: Path) -> Iterator[Case]:
    """Yield all cases, the schedules of few sends first."""
    schedules: list[tuple[str, str, Schedule]] = []
    for machine, collective in product(MACHINES, COLLECTIVES):
        found = frontier(machine, collective, folder)
        schedules += [(machine, collective, point.schedule) for point in found.points]
    for machine, collective, schedule in sorted(schedules, key=lambda one: one[2].sends):
        channels = CHANNELS[:1] if schedule.uses_multicast else CHANNELS
        protocols = ("Simple",) if schedule.uses_multicast else ("Simple", "LL")
        places: tuple[InPlace, ...] = ("out",) if collective == "alltoall" else ("out", "in")
        for way, protocol, place in product(channels, protocols, places):
            yield Case(machine, collective, schedule, way, protocol, place)


def judged(case: Case, program: Program, launches: int) -> dict:
    """Return the row of a case."""
    began = _cpu()
    in_place = case.place == "in"
    reports = {
        "1 thread": find_races(program, threads=1, launches=WATCHED, elements=ELEMENTS, in_place=in_place),
        "4 threads": find_races(program, threads=4, launches=WATCHED, elements=ELEMENTS, in_place=in_place),
    }
    unwatched = Executable(watch=False, limit=SECONDS)
    reports["launches"] = find_races(
        program, threads=1, launches=launches, elements=ELEMENTS, in_place=in_place, executable=unwatched
    )
    faults = [f"{name}: {report}" for name, report in reports.items() if report != SILENT]
    blocks = sum(len(gpu.blocks) for gpu in program.gpus)
    return {
        "blocks": blocks, "ops": program.ops, "launches": launches, "faults": faults, "cpu": round(_cpu() - began, 1),
    }  # fmt: skip


def _cpu() -> float:
    """Return the CPU seconds of this process and its children so far."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def attempt(case: Case, known: dict | None, launches: int) -> dict:
    """Return the row of a case: `known` if it is of the same program, or that of a new run."""
    try:
        program = case.program()
    except SynthError as error:
        return {"refused": str(error)}
    digest = hashlib.sha256(json.dumps(program.to_json(), sort_keys=True).encode()).hexdigest()[:12]
    if known is not None and known.get("program") == digest and known["launches"] >= launches:
        return known
    try:
        return {"program": digest} | judged(case, program, launches)
    except SynthError as error:
        return {"program": digest, "refused": str(error)}


def table(results: dict) -> str:
    """Return the results as Markdown."""
    rows = results["rows"]
    ran = {name: row for name, row in rows.items() if "faults" in row}
    wrong = {name: row for name, row in ran.items() if row["faults"]}
    refused = {name: row["refused"] for name, row in rows.items() if "refused" in row}
    lines = []
    for name, row in ran.items():
        judgement = "; ".join(row["faults"]) or "right, silent"
        numbers = [str(row[key]) for key in ("blocks", "ops", "launches")]
        lines.append([name, *numbers, judgement, str(row["cpu"])])
    text = (
        f"# One-sided programs of the frontiers of {' and '.join(MACHINES)}\n\n{len(ran)} programs: right in every "
        f"launch, compared element by element, and ThreadSanitizer silent with 1 and 4 threads a block, for "
        f"{len(ran) - len(wrong)}; {len(wrong)} wrong or reported; {len(refused)} refused; {len(results['left'])} not "
        f"run. A point is (chunks, steps, rounds).\n\n"
    )
    text += measure.markdown(["program", "blocks>", "ops>", "launches>", "result", "CPU s>"], lines)
    if refused:
        text += "\n" + "".join(f"- {name}: {reason}\n" for name, reason in refused.items())
    if results["left"]:
        text += f"\nNot run: {', '.join(results['left'])}.\n"
    return text + "\n" + measure.setting(results["where"]) + "\n"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.launches", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10, help="of CPU")
    parser.add_argument("--launches", type=int, default=1000)
    parser.add_argument("--frontiers", type=Path, default=FOLDER)
    parser.add_argument("-o", type=Path, dest="output", default=measure.RESULTS / "launches.json")
    given = parser.parse_args(arguments)
    earlier = json.loads(given.output.read_text())["rows"] if given.output.is_file() else {}
    rows: dict[str, dict] = {}
    every = list(cases(given.frontiers))
    for place, case in enumerate(every):
        if _cpu() > given.minutes * 60:
            break
        rows[case.name] = attempt(case, earlier.get(case.name), given.launches)
        print(case.name, rows[case.name], file=sys.stderr)
        left = [one.name for one in every[place + 1 :]]
        results = {"where": measure.where(), "rows": rows, "left": [name for name in left if name not in earlier]}
        results["rows"] = rows | {name: earlier[name] for name in left if name in earlier}
        measure.keep(results, table(results), given.output)
    wrong = [name for name, row in rows.items() if row.get("faults")]
    print(json.dumps({"programs": len(rows), "wrong": wrong, "not run": len(every) - len(rows)}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
