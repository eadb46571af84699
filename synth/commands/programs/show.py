"""`synth show` and `synth.load_program`: a program as text, and as a picture."""

from __future__ import annotations

import json
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from synth.commands.framework.declaration import command, flags_not_default, function, option
from synth.commands.framework.output import check_writable, save
from synth.commands.framework.shared import (
    FILE,
    Quiet,
    StepOption,
    in_place_option,
    instances_option,
    point_option,
    protocol_option,
    runtime_option,
)
from synth.commands.programs.sources import chosen_point, lower, read
from synth.errors import UsageError
from synth.model.frontier import Frontier, StepCount
from synth.model.rational import counted
from synth.model.schedule import Schedule

if TYPE_CHECKING:
    from synth.model.collective import Collective
    from synth.program.program import InPlace, Program


@dataclass(frozen=True)
class Loaded:
    """The file of a program, and how a schedule becomes one."""

    path: str | Path = option(
        "file", type=FILE,
        doc="a Program as JSON or text, MSCCL-IR, a MSCCL++ plan; or a schedule or frontier, which is lowered. One at "
        "scale is taken as long as the schedule is small enough to write out.",
    )  # fmt: skip
    _: KW_ONLY
    point: int | StepCount | None = point_option(
        "The N-th point of a frontier.",
        "the number of a frontier's point, from 1, or its `StepCount`. None: its only one.",
    )
    collective: Collective | None = option(default=None, doc="of a foreign file that does not say it.")
    root: int | None = option(
        "--root", default=None, type=click.IntRange(0), metavar="0", doc="of a foreign file that does not say it.",
        help="The root of a broadcast or reduce, if the data flow does not show it.",
    )  # fmt: skip
    runtime: str | None = runtime_option(
        "Lower for this runtime: msccl, msccl-executor, rccl; by default for synth's own.",
        "the runtime that MSCCL-IR's sizes are for, and schedules are lowered for. None: this project's executors.",
    )
    protocol: str = protocol_option(
        "Simple, LL or LL128, for a schedule.", "Simple", "with which a schedule is lowered.", show_default=True
    )
    instances: int = instances_option(
        "Copies of a schedule's program, each for a share of the data.", doc="with which a schedule is lowered."
    )
    in_place: InPlace | None = in_place_option(
        "For a schedule: the calls it serves; by default both where possible.", "with which a schedule is lowered."
    )


@function(Loaded)
def load_program(loaded: Loaded) -> Program:
    """Return the program in a file of any kind.

    Returns
    -------
    The `Program`: the instructions of each thread block of each rank.

    Raises
    ------
    FormatError with the place for a file that cannot be read; UsageError for a frontier of several points where none is
    chosen.

    Examples
    --------
    >>> import synth
    >>> schedule = synth.frontier("ring:4", "allgather").points[0].schedule
    >>> _ = synth.export_program(schedule, "msccl-xml").write("allgather.xml")
    >>> program = synth.load_program("allgather.xml")
    >>> program.collective, program.ranks, program.protocol
    (<Collective allgather: 4 ranks, 4 units>, 4, 'Simple')
    """
    from synth.program.checked_lowering import MAX_SENDS

    # Options of lowering are refused for what is a program already.
    path, point = loaded.path, loaded.point
    found = read(Path(path), loaded.collective, loaded.root, loaded.runtime)
    if point is not None and not isinstance(found, Frontier):
        raise UsageError(f"{path} is no frontier, which --point and --step choose from")
    if not isinstance(found, Frontier | Schedule):
        if flags_not_default(loaded, "protocol", "instances", "in_place"):
            raise UsageError(
                f"{path} is a program already; leave --protocol, --instances and --in-place out, which schedules are "
                f"lowered with"
            )
        return found
    # A schedule, or a point of a frontier, is lowered.
    if loaded.root is not None:
        raise UsageError(f"{path} says its root itself; leave --root out")
    if isinstance(found, Frontier):
        if point is None and len(found.points) > 1:
            raise UsageError(f"{path} has {len(found.points)} points; choose one with --point K or --step S")
        found = found.schedule_of(chosen_point(found, point, None), MAX_SENDS)
    return lower(
        found, runtime=loaded.runtime or "synth", protocol=loaded.protocol, instances=loaded.instances,
        in_place=loaded.in_place,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Show(Quiet, StepOption, Loaded):
    """The options of `synth show`."""

    svg: Path | None = option(
        "--svg", default=None, type=FILE, metavar="FILE",
        help="Draw to FILE, - is stdout: thread blocks downwards, time to the right, messages as arrows.",
    )  # fmt: skip
    output: str | None = option(
        "-o", "--output", default=None, metavar="FILE", help="Write to FILE instead; - is stdout."
    )
    form: str = option(
        "--format", default="text", type=click.Choice(["text", "json"], case_sensitive=False),
        help="Form of the output.",
    )  # fmt: skip


@command(Show)
def show_command(options: Show) -> None:
    """Print the program in FILE (MSCCL-IR, a MSCCL++ plan, a program; a schedule or a frontier's point is lowered
    first), one line for each instruction of each thread block.

    \b
    Example:
      synth solve --topo ring:4 --coll allgather --chunks 2 --steps 2 --rounds 3 -o s.json && synth show s.json
    """
    from synth.program.text import dump

    output, svg = options.output, options.svg
    to_stdout = str(svg) == "-"
    if to_stdout and output == "-":
        raise UsageError("--svg - and -o - both write to stdout; give one a file")
    check_writable(svg)
    program = load_program.of(options)
    if svg is not None:
        from synth.view.drawings.space_time_diagram import program_svg

        drawing = program_svg(program)
        if to_stdout:
            click.echo(drawing, nl=False)
        else:
            save(svg, drawing, counted(program.ops, "instruction"))
        if output is None:
            return
    # The text, or with -o FILE the file alone.
    content = dump(program) if options.form == "text" else json.dumps(program.to_json(), indent=1) + "\n"
    if output in (None, "-"):
        click.echo(content, nl=False)
    else:
        save(str(output), content)
