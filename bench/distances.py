"""Distance and blame of known algorithms on known machines: steps, rounds and the parts that the rounds are split in.

python -m bench.distances FOLDER [--time-limit 60]
python -m bench.distances --table          the table again, from the JSON

FOLDER has programs of msccl-tools (microsoft/msccl-tools 030a750), named by their example and its arguments. The others
are programs of the chunk language. `KNOWN` has the values that an independent computation gave. A row is right where
steps and rounds per chunk are these, where the factors, rounded up in their last digit, are at most these, and where
the blame comes to the rounds exactly, as a whole and in each step. A schedule may be better than its known one: the
choice of steps and chunks has improved since.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from bench import measure
from synth import api
from synth.algorithms import hierarchical, ring
from synth.api.interchange import AuditRow
from synth.errors import SynthError
from synth.export import program_reader
from synth.interchange import program_moves
from synth.language import RankGroup, algorithm
from synth.language.algorithm import Compiled, CompileOptions
from synth.model.rational import rational, show
from synth.program.program import Program

RESULTS = measure.RESULTS / "distances.json"
Source = str | Callable[[str], Compiled]


class Known(NamedTuple):
    """Values of one algorithm on one machine; None for a factor that is not known.

    `source`: a file of the folder without its ending, or the function that compiles a program for the machine.
    """

    name: str
    machine: str
    source: Source
    steps: int
    rate: Fraction
    at_steps: str | None
    at_any: str | None
    static: str | None


@algorithm("allreduce")
def flat_ring(group: RankGroup) -> None:
    """Sum each rank's part once round the ring of all ranks, then pass it once round."""
    totals = {}
    for i, owner in enumerate(group.ranks):
        pieces = {rank: group.input(rank).part(i, group.size) for rank in group.ranks}
        totals[owner] = ring.sum_around(group, pieces, owner, 1)
    ring.allgather_one_way(group, totals)


def _by(program: object, multiple: int | None = None) -> Callable[[str], Compiled]:
    return lambda machine: program.compile(machine, None, CompileOptions(multiple=multiple))  # type: ignore


BOX, TWO, FOUR, H100 = "dgx-a100", "dgx-a100*2", "dgx-a100*4", "dgx-h100*2"
ONE, SWITCH = Fraction(7, 12), Fraction(7, 48)
KNOWN = (
    Known("ring allgather", BOX, "allgather_ring_8_1_1", 7, ONE, "1.00", "1.00", "1.00"),
    Known("all-pairs allgather", BOX, "allgather_allpairs_8_1", 1, ONE, "1.00", "1.00", "1.00"),
    Known("recursive doubling allgather", BOX, "allgather_recursive_doubling_8_1", 3, ONE, "1.00", "1.00", "1.00"),
    Known("all-pairs alltoall", BOX, "alltoall_allpairs_8_1", 1, ONE, "1.00", "1.00", "1.00"),
    Known("ring allreduce", BOX, "allreduce_a100_ring_8_1_1", 14, SWITCH, "1.00", "1.00", "1.00"),
    Known("all-pairs allreduce", BOX, "allreduce_a100_allpairs_8_1", 2, SWITCH, "1.00", "1.00", "1.00"),
    Known("all-pairs allreduce, v2", BOX, "allreduce_a100_allpairs_v2_8_1", 2, SWITCH, "1.00", "1.00", "1.00"),
    Known("halving-doubling", BOX, "allreduce_recursive_doubling_halving_8_1", 6, SWITCH, "1.00", "1.00", "1.00"),
    Known("one-shot allreduce", BOX, "allreduce_1step_8_1", 1, ONE, "1.00", "4.00", "4.00"),
    Known("hierarchical allreduce", TWO, "hierarchical_allreduce_8_2_1", 16, Fraction(17, 64), "1.84", "1.84", "1.01"),
    Known("all-pairs, two boxes", TWO, "allreduce_a100_multinode_allpairs_8_1", 3, Fraction(13, 48), "1.15", "1.88",
          "1.01"),
    Known("two-step alltoall", FOUR, "alltoall_a100_two_step_4_8", 2, Fraction(24), "1.00", "1.00", "1.00"),
    Known("library: hierarchical allgather", TWO, _by(hierarchical.allgather), 2, Fraction(19, 12), "1.07", "1.37",
          None),
    Known("library: hierarchical allgather", H100, _by(hierarchical.allgather), 2, Fraction(11, 12), "1.13", "1.22",
          None),
    Known("library: hierarchical allreduce", TWO, _by(hierarchical.allreduce, 6), 4, Fraction(23, 96), "1.30", "1.66",
          None),
    Known("library: hierarchical allreduce", H100, _by(hierarchical.allreduce, 6), 4, Fraction(7, 48), "1.44", "1.56",
          None),
    Known("flat ring allreduce", TWO, _by(flat_ring), 30, Fraction(15, 8), None, "13.0", None),
    Known("library: rail-rotated rings", TWO, _by(hierarchical.rail_rings), 30, Fraction(15, 64), None, "1.63", None),
)  # fmt: skip


def compiled(known: Known, folder: Path) -> tuple[Compiled, str]:
    """Return the schedule of a row, and what is wrong with the file that it is from: "" for nothing."""
    if not isinstance(known.source, str):
        return known.source(known.machine), ""
    file, machine = folder / f"{known.source}.xml", api.topology(known.machine)
    (audited,) = api.audit([file], machine, bounds=False)
    program = program_reader.load(file)
    assert isinstance(program, Program)
    # Where only the order of the file's instructions is wrong, its data have steps all the same.
    found = program_moves.recorded(program, machine, file.name).compiled()
    return found, audited.reason if audited.verdict == "wrong" else ""


def document(known: Known, made: Compiled, time_limit: float) -> dict:
    """Return the JSON row of an algorithm, compiled for its machine."""
    schedule = made.schedule.written_out()
    found = api.distance(schedule, known.machine, time_limit=time_limit)
    row = {
        "name": known.name, "machine": known.machine, "chunks": schedule.chunks, "rounds": schedule.rounds,
        **found.to_json(), "static": str(AuditRow("", "", "", "", schedule).busiest),
    }  # fmt: skip
    if found.bound is not None:
        blame = api.blame(schedule, found.bound, places=made.places)
        row["certificate"] = found.bound.certificate["kind"]
        if blame is not None:
            steps = [parts.rounds == step.rounds for parts, step in zip(blame.steps, schedule.steps, strict=True)]
            row["blame"] = blame.total.to_json()
            row["exact"] = blame.total.rounds == schedule.rounds and all(steps)
    return row


def factors(row: dict) -> list[Fraction | None]:
    """Return how many times the bounds the rounds are: at its steps, at any; and those of the busiest link at any."""
    rate = rational(row["rounds_per_chunk"])
    at_steps, at_any = (None if row[key] is None else rational(row[key]) for key in ("bound_at_steps", "bound"))
    ends = ((rate, at_steps), (rate, at_any), (rational(row["static"]), at_any))
    return [here / bound if bound else None for here, bound in ends]


def faults(known: Known, row: dict) -> list[str]:
    """Return how a row differs from what is known; nothing where it is right."""
    found = []
    if row["steps"] != known.steps:
        found.append(f"{row['steps']} steps, known {known.steps}")
    if rational(row["rounds_per_chunk"]) > known.rate:
        found.append(f"R/C {row['rounds_per_chunk']}, known {known.rate}")
    names = ("factor at its steps", "at any", "busiest link")
    for name, mine, theirs in zip(names, factors(row), (known.at_steps, known.at_any, known.static), strict=True):
        if theirs is not None and (mine is None or mine > Fraction(theirs) + _half_digit(theirs)):
            found.append(f"{name} {mine}, known {theirs}")
    if not row.get("exact"):
        found.append("the blame does not come to the rounds")
    return found


def _half_digit(text: str) -> Fraction:
    return Fraction(1, 2 * 10 ** len(text.partition(".")[2]))


def table(rows: Sequence[dict]) -> str:
    """Return the rows as Markdown."""
    head = [
        "algorithm", "machine", "S>", "R/C>", "at S>", "known>", "at any S>", "known>", "busiest link>", "known>",
        "R>", "needed>", "detours>", "idle>", "slack>", "sum>", "",
    ]  # fmt: skip
    lines = []
    for known, row in zip(KNOWN, rows, strict=True):
        cells = [known.name, known.machine, _beside(row["steps"], known.steps)]
        cells.append(_beside(show(rational(row["rounds_per_chunk"])), show(known.rate)))
        for mine, theirs in zip(factors(row), (known.at_steps, known.at_any, known.static), strict=True):
            cells += ["" if mine is None else f"{float(mine):.2f}", theirs or ""]
        parts = [rational(row["blame"][name]) for name in ("needed", "detours", "idle", "slack")]
        cells += [str(row["rounds"]), *[f"{float(part):.2f}" for part in parts], show(sum(parts, Fraction(0)))]
        lines.append([*cells, "; ".join(faults(known, row)) or _verdict(known, row)])
    wrong = [f"- {row['name']} on {row['machine']}: {row['file_is_wrong']}\n" for row in rows if row["file_is_wrong"]]
    return measure.markdown(head, lines) + ("\nFiles that are wrong, whose data have steps all the same:\n\n"
                                            + "".join(wrong) if wrong else "")  # fmt: skip


def _verdict(known: Known, row: dict) -> str:
    return "as known" if rational(row["rounds_per_chunk"]) == known.rate else "better"


def _beside(mine: object, known: object) -> str:
    return str(mine) if mine == known else f"{mine} (known {known})"


def page(found: dict) -> str:
    """Return the results as Markdown."""
    exact = sum(bool(row.get("exact")) for row in found["rows"])
    text = (
        f"# Distance and blame\n\n{len(found['rows'])} algorithms on their machines: programs of msccl-tools, read "
        "from their files, and of the chunk language. Factors over the certified bounds, at as many steps and at any; "
        "known: by an independent computation, whose schedules may be worse. Rounds R by the prices of the bound's "
        f"certificate; the parts come to R exactly in {exact}.\n\n"
    )  # fmt: skip
    return text + table(found["rows"]) + f"\n{measure.setting(found['where'])}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the JSON and the table; exit code 1 where a row is not as known."""
    parser = argparse.ArgumentParser(prog="bench.distances", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--time-limit", type=float, default=60)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args(arguments)
    if options.table:
        found = json.loads(RESULTS.read_text())
    elif options.folder is None or not options.folder.is_dir():
        raise SynthError("name the folder with the programs of msccl-tools")
    else:
        found = {"where": measure.where(), "rows": []}
        for known in KNOWN:
            made, fault = compiled(known, options.folder)
            found["rows"].append(document(known, made, options.time_limit) | {"file_is_wrong": fault})
            print(known.name, known.machine, "; ".join(faults(known, found["rows"][-1])) or "ok", flush=True)
    measure.keep(found, page(found), RESULTS)
    return int(any(faults(known, row) for known, row in zip(KNOWN, found["rows"], strict=True)))


if __name__ == "__main__":
    sys.exit(main())
