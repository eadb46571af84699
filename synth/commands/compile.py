"""`synth compile`: a program of the chunk language to a schedule, a file of a runtime, and its distance."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from synth.commands.framework.completion import names_of
from synth.commands.framework.distance_report import distance_document, print_distance
from synth.commands.framework.options import (
    chosen_machine,
    coll_option,
    instances_option,
    machine_options,
    onesided_options,
    protocol_option,
    quiet_option,
    runtime_option,
    time_limit_option,
)
from synth.commands.framework.output import check_writable, emit, note, save
from synth.commands.framework.progress import waiting
from synth.commands.framework.types import Positive, Ranks
from synth.commands.root import CONTEXT
from synth.errors import SynthError, UsageError
from synth.model.schedule import Schedule

if TYPE_CHECKING:
    from synth.language.algorithm import ChunkAlgorithm
    from synth.program.send_hints import SendHints


@click.command("compile", context_settings=CONTEXT, short_help="Check and compile a program of the chunk language.")
@click.argument("source", metavar="FILE.py[:NAME]|NAME")
@machine_options
@coll_option("The collective, where the library has several algorithms of the name.")
@click.option("--root", type=Ranks(), metavar="0", help="The root, by default 0.")
@click.option(
    "-p",
    "--parameter",
    "parameters",
    multiple=True,
    metavar="KEY=VALUE",
    help="A keyword of the program's function: a number, a family of the library, or text (repeatable).",
)
@click.option(
    "--steps",
    metavar="MODE",
    help="asap, written (each step() block is one step), paced or paced=R (at most R rounds a step); by default as the "
    "program says, else written.",
)
@click.option(
    "--chunks",
    type=Positive(),
    metavar="M",
    help="Chunks of a unit, as a multiple of the fewest that the program needs; by default as many as let no "
    "step waste a part of a round.",
)
@click.option(
    "--to",
    metavar="FORMAT",
    shell_complete=names_of("exporters"),
    help="The form of -o: msccl-xml, mscclpp, ... (`synth list exporters`); by default the schedule as JSON.",
)
@runtime_option("The runtime of --to.")
@protocol_option("Of --to: Simple, LL or LL128.")
@instances_option("Of --to: copies of the program, each for a share of the data.")
@onesided_options
@click.option("--lanes", type=Positive(), metavar="N", help="Of --to: the most connections of a route; by default its "
              "units. 1 makes the fewest thread blocks and instructions.")  # fmt: skip
@click.option("--bounds/--no-bounds", default=True, show_default=True, help="Compare with the lower bounds.")
@time_limit_option("Wall time for the bounds; by default 20s.", "20s")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Write the schedule, or with --to the file of a runtime; - is stdout, which then has nothing else.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json"], case_sensitive=False),
    help="Form of the printed result.",
)
@quiet_option
def compile_(source: str, **flags: Any) -> None:
    """Run FILE.py, which is Python code, and compile its algorithm for a machine; or compile one of the library.

    Print whether every rank ends with what it must, or the line that is wrong; the steps and rounds; how far they
    are from the proved lower bounds; and where the rounds beyond them go, by step and line.

    \b
    Examples:
      synth compile my.py --topo 'dgx-a100*2'
      synth compile ring --coll allgather --topo ring:8 --to msccl-xml -o ring.xml
    """
    from synth.commands import api
    from synth.commands.api import algorithms
    from synth.language.algorithm import CompileOptions

    check_writable(flags["output"])
    for name in ("runtime", "protocol", "instances", "lanes", "blocks", "reads"):
        if flags[name] is not None and flags["to"] is None:
            formats = "--to mscclpp" if name in ("blocks", "reads") else "--to msccl-xml or --to mscclpp"
            raise UsageError(f"--{name} is of a file for a runtime; write {formats}")
    if flags["to"] is not None and flags["output"] is None:
        raise UsageError("--to needs the name of its file: -o FILE, or -o - for stdout")
    machine = chosen_machine(flags)
    if (source.endswith(".py") or ".py:" in source) and Path(source.partition(".py:")[0]).with_suffix(".py").is_file():
        note(f"running {source} as Python code")
    task = None
    if flags["coll"] is not None:
        task = api.collective(flags["coll"], machine.ranks, flags["root"] or ())
    program = algorithms.load_algorithm(source, None if task is None else task.name)
    if task is None and flags["root"]:
        task = api.collective(program.collective, machine.ranks, flags["root"])
    if task is not None and task.name != program.collective:
        raise UsageError(f"{program.name} does {program.collective}, not {task.name}")
    options = CompileOptions(flags["steps"], flags["chunks"], dict(map(algorithms.parameter, flags["parameters"])))
    distance, blame = None, None
    with waiting(f"{program.collective} on {machine.name}", flags["time_limit"]):
        compiled = program.compile(machine, task, options)
        schedule = compiled.schedule
        if flags["bounds"]:
            distance = algorithms.distance(schedule, machine, time_limit=flags["time_limit"])
        if distance is not None and distance.bound is not None:
            blame = algorithms.blame(schedule, distance.bound, places=compiled.places)
    for place, count in compiled.unused:
        note(f"{place} used by nobody ({count} chunk send{'' if count == 1 else 's'}): left out")
    if flags["output"] != "-":
        unused = [{"place": str(place), "sends": count} for place, count in compiled.unused]
        document = distance_document(program.name, schedule, distance, blame) | {"unused": unused}
        emit(lambda: document, lambda: print_distance(program.name, schedule, distance, blame), None, flags["form"])
    if distance is not None and distance.unfinished:
        note("the time limit came before all bounds; --time-limit allows more")
    if flags["output"] is not None:
        hints = compiled.hints
        if hints and (flags["to"] is None or flags["to"].lower() == "mscclpp"):
            note("hints are left out: only --to a two-sided program of the schedule as written has them")
            hints = {}
        _write(program, schedule, machine, hints, flags)


def _write(program: ChunkAlgorithm, schedule: Schedule, machine: Any, hints: SendHints, flags: dict[str, Any]) -> None:
    import json

    from synth.commands import api

    if flags["to"] is None:
        text, what = json.dumps(schedule.to_json()) + "\n", ""
    else:
        try:
            written = api.export_program(
                schedule, flags["to"], runtime=flags["runtime"] or "", topology=machine,
                protocol=flags["protocol"], instances=flags["instances"], lanes=flags["lanes"], hints=hints,
                blocks=flags["blocks"], reads=flags["reads"],
            )  # fmt: skip
        except UsageError:
            raise
        except SynthError as error:  # a limit of the runtime
            raise SynthError(f"{program.place}: {error}") from None
        text, what = written.text, ""
        for line in written.remarks:
            note(line)
    if flags["output"] == "-":
        click.echo(text, nl=False)
    else:
        save(flags["output"], text, what)
