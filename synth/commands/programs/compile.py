"""`synth compile`: a program of the chunk language to a schedule, a file of a runtime, and its distance."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from synth.commands.explain import blame, distance, distance_document, distance_reports
from synth.commands.framework.declaration import command, flags_not_default, option, part
from synth.commands.framework.output import emit, note, save
from synth.commands.framework.progress import waiting
from synth.commands.framework.shared import (
    Blocks,
    Changes,
    Output,
    chosen_machine,
    collective_option,
    instances_option,
    protocol_option,
    runtime_option,
    time_limit_option,
    topology_option,
)
from synth.commands.framework.types import Positive, Ranks, names_of
from synth.commands.inputs import FILES
from synth.commands.inputs import collective as task_of
from synth.commands.programs.algorithms import library
from synth.commands.programs.export import ExportOptions, export_program
from synth.errors import FormatError, SynthError, UsageError, suggest

if TYPE_CHECKING:
    from synth.commands.inputs import TopologyLike
    from synth.language.algorithm import ChunkAlgorithm

OF_FILES = ("runtime", "protocol", "instances", "lanes", "blocks", "reads")  # options of --to alone


def load_algorithm(source: str, collective: str | None = None) -> ChunkAlgorithm:
    """Return an algorithm of a file, ``FILE.py`` or ``FILE.py:NAME``, or of the library by its name.

    The file is run. Raises UsageError where several are possible.
    """
    from synth.language.source_file import algorithms_in

    # A file of the user, which is run.
    file, _, name = source.partition(".py:")
    if source.endswith(".py") or name:
        path = Path(f"{file}.py" if name else source)
        found = algorithms_in(path)
        if name and name not in found:
            raise UsageError(f"{path} defines no algorithm {name!r}; there are {', '.join(found)}")
        if len(found) > 1 and not name:
            raise UsageError(f"{path} defines several algorithms; name one: {path}:{next(iter(found))}")
        return found[name] if name else next(iter(found.values()))
    # A name of the library.
    named = [one for one in library() if one.name == source]
    if not named and Path(source).is_file():
        raise UsageError(f"{source} is no program of the chunk language, FILE.py; `synth explain` takes a schedule")
    if not named and Path(source).suffix.lower() in FILES:
        raise FormatError("does not exist", source)
    if not named:
        names, hint = [one.name for one in library()], "name a file FILE.py, or one of `synth algorithms`"
        raise UsageError(suggest("algorithm", source.partition(".")[0], names, hint))  # torus.allreduce means torus
    # The library has some names for several collectives.
    fitting = [one for one in named if collective is None or one.collective == collective]
    if len(fitting) != 1:
        does = ", ".join(one.collective for one in named)
        raise UsageError(f"{source} does {does}; choose with --coll")
    return fitting[0]


def parameter(text: str) -> tuple[str, Any]:
    """Return the name and the value of ``key=value``: a number, a family of the library, or text."""
    from synth.language.library import FAMILIES

    # Families are functions of the library that programs take as arguments; numbers stay exact.
    key, equals, value = text.partition("=")
    if not equals or not key.isidentifier():
        raise UsageError(f"-p {text}: write key=value")
    if value in FAMILIES:
        return key, FAMILIES[value]
    try:
        number = Fraction(value)
    except ValueError:
        return key, value
    return key, int(number) if number.denominator == 1 else number


@dataclass(frozen=True, kw_only=True)
class Compile(Output, Changes, Blocks):
    """The options of `synth compile`."""

    source: str = option("source", metavar="FILE.py[:NAME]|NAME")
    topology: TopologyLike | None = topology_option(default=None)
    collective: str | None = collective_option(
        "The collective, where the library has several algorithms of the name.", default=None
    )
    roots: Sequence[int] = option("--root", default=(), type=Ranks(), metavar="0", help="The root, by default 0.")
    parameters: Sequence[str] = option(
        "-p", "--parameter", default=(), multiple=True, metavar="KEY=VALUE",
        help="A keyword of the program's function: a number, a family of the library, or text (repeatable).",
    )  # fmt: skip
    steps: str | None = option(
        "--steps", default=None, metavar="MODE",
        help="asap, written (each step() block is one step), paced or paced=R (at most R rounds a step); by default as "
        "the program says, else written.",
    )  # fmt: skip
    chunks: int | None = option(
        "--chunks", default=None, type=Positive(), metavar="M",
        help="Chunks of a unit, as a multiple of the fewest that the program needs; by default as many as let no "
        "step waste a part of a round.",
    )  # fmt: skip
    to: str | None = option(
        "--to", default=None, metavar="FORMAT", shell_complete=names_of("exporters"),
        help="The form of -o: msccl-xml, mscclpp, ... (`synth list exporters`); by default the schedule as JSON.",
    )  # fmt: skip
    runtime: str | None = runtime_option("The runtime of --to.")
    protocol: str | None = protocol_option("Of --to: Simple, LL or LL128.")
    instances: int | None = instances_option("Of --to: copies of the program, each for a share of the data.", None)
    lanes: int | None = option(
        "--lanes", default=None, type=Positive(), metavar="N",
        help="Of --to: the most connections of a route; by default its units. 1 makes the fewest thread blocks and "
        "instructions.",
    )  # fmt: skip
    bounds: bool = option(
        "--bounds/--no-bounds", default=True, show_default=True, help="Compare with the lower bounds."
    )
    time_limit: float | None = time_limit_option("Wall time for the bounds; by default 20s.", metavar="20s")
    output: str | None = option(
        "-o", "--output", default=None, metavar="FILE",
        help="Write the schedule, or with --to the file of a runtime; - is stdout, which then has nothing else.",
    )  # fmt: skip


@command(Compile)
def compile_command(options: Compile) -> None:
    """Run FILE.py, which is Python code, and compile its algorithm for a machine; or compile one of the library.

    Print whether every rank ends with what it must, or the line that is wrong; the steps and rounds; how far they
    are from the proved lower bounds; and where the rounds beyond them go, by step and line.

    \b
    Examples:
      synth compile my.py --topo 'dgx-a100*2'
      synth compile ring --coll allgather --topo ring:8 --to msccl-xml -o ring.xml
    """
    from synth.language.algorithm import CompileOptions

    to, output, source, roots = options.to, options.output, options.source, options.roots
    # Options of --to without it would change nothing.
    for flag in flags_not_default(options, *OF_FILES) if to is None else ():
        formats = "--to mscclpp" if flag in ("--blocks", "--reads") else "--to msccl-xml or --to mscclpp"
        raise UsageError(f"{flag} is of a file for a runtime; write {formats}")
    if to is not None and output is None:
        raise UsageError("--to needs the name of its file: -o FILE, or -o - for stdout")
    # Running a file of the user is said, since it is code.
    machine = chosen_machine(options)
    if (source.endswith(".py") or ".py:" in source) and Path(source.partition(".py:")[0]).with_suffix(".py").is_file():
        note(f"running {source} as Python code")
    task = None if options.collective is None else task_of(options.collective, machine.ranks, roots)
    program = load_algorithm(source, None if task is None else task.name)
    if task is None and roots:
        task = task_of(program.collective, machine.ranks, roots)
    if task is not None and task.name != program.collective:
        raise UsageError(f"{program.name} does {program.collective}, not {task.name}")

    # The schedule, its distance from the bounds, and why.
    far, why = None, None
    with waiting(f"{program.collective} on {machine.name}", options.time_limit):
        how = CompileOptions(options.steps, options.chunks, dict(map(parameter, options.parameters)))
        compiled = program.compile(machine, task, how)
        schedule = compiled.schedule
        if options.bounds:
            far = distance(schedule, machine, time_limit=options.time_limit)
        if far is not None and far.bound is not None:
            why = blame(schedule, far.bound, places=compiled.places)
    for place, count in compiled.unused:
        note(f"{place} used by nobody ({count} chunk send{'' if count == 1 else 's'}): left out")
    # With -o - stdout is for the file alone.
    if output != "-":
        unused = [{"place": str(place), "sends": count} for place, count in compiled.unused]
        document = distance_document(program.name, schedule, far, why) | {"unused": unused}
        table = distance_reports(program.name, schedule, far, why)
        emit(lambda: document, lambda: table, replace(options, output=None))
    if far is not None and far.unfinished:
        note("the time limit came before all bounds; --time-limit allows more")
    if output is None:
        return

    # The file: the schedule, or that of a runtime.
    hints = compiled.hints
    if hints and (to is None or to.lower() == "mscclpp"):
        note("hints are left out: only --to a two-sided program of the schedule as written has them")
        hints = {}
    text = json.dumps(schedule.to_json()) + "\n"
    if to is not None:
        try:
            written = export_program.of(part(
                ExportOptions, options, source=schedule, to=to, runtime=options.runtime or "", topology=machine,
                hints=hints, collective=None,
            ))  # fmt: skip
        except UsageError:
            raise
        except SynthError as error:  # a limit of the runtime
            raise SynthError(f"{program.place}: {error}") from None
        text = written.text
        for line in written.remarks:
            note(line)
    if output == "-":
        click.echo(text, nl=False)
    else:
        save(output, text)
