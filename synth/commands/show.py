"""`synth show`: a program as text, and as a picture."""

from __future__ import annotations

from pathlib import Path

import click

from synth.commands.framework.options import (
    FILE,
    instances_option,
    point_option,
    protocol_option,
    quiet_option,
    runtime_option,
)
from synth.commands.framework.output import check_writable, save
from synth.commands.framework.types import Ranks
from synth.commands.root import CONTEXT
from synth.errors import UsageError
from synth.model.frontier import StepCount
from synth.model.rational import counted


@click.command(context_settings=CONTEXT, short_help="Print a program, or draw it.")
@click.argument("file", type=FILE)
@point_option("The N-th point of a frontier.")
@runtime_option("Lower for this runtime: msccl, msccl-executor, rccl; by default for synth's own.")
@protocol_option("Simple, LL or LL128, for a schedule.", default="Simple", show_default=True)
@instances_option("Copies of a schedule's program, each for a share of the data.", default=1)
@click.option(
    "--in-place",
    type=click.Choice(["out", "in", "both"], case_sensitive=False),
    help="For a schedule: the calls it serves; by default both where possible.",
)
@click.option(
    "--root",
    type=Ranks(),
    metavar="0",
    help="The root of a broadcast or reduce, if the data flow does not show it.",
)
@click.option(
    "--svg",
    type=FILE,
    metavar="FILE",
    help="Draw to FILE, - is stdout: thread blocks downwards, time to the right, messages as arrows.",
)
@click.option("-o", "--output", metavar="FILE", help="Write to FILE instead; - is stdout.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"], case_sensitive=False),
    default="text",
    help="Form of the output.",
)
@quiet_option
def show(
    file: Path,
    point: int | StepCount | None,
    runtime: str | None,
    protocol: str,
    instances: int,
    in_place: str | None,
    root: list[int] | None,
    svg: Path | None,
    output: str | None,
    form: str,
) -> None:
    """Print the program in FILE (MSCCL-IR, a MSCCL++ plan, a program; a schedule or a frontier's point is lowered
    first), one line for each instruction of each thread block.

    \b
    Example:
      synth solve --topo ring:4 --coll allgather --chunks 2 --steps 2 --rounds 3 -o s.json && synth show s.json
    """
    import json

    from synth.commands import api
    from synth.program.text import dump

    to_stdout = str(svg) == "-"
    if to_stdout and output == "-":
        raise UsageError("--svg - and -o - both write to stdout; give one a file")
    check_writable(output, svg)
    way = in_place.lower() if in_place else None
    program = api.load_program(
        file, point=point, root=root[0] if root else None, runtime=runtime, protocol=protocol, instances=instances,
        in_place=way,  # type: ignore[arg-type]
    )  # fmt: skip
    if svg is not None:
        from synth.view.space_time_diagram import program_svg

        drawing = program_svg(program)
        if to_stdout:
            click.echo(drawing, nl=False)
        else:
            save(svg, drawing, counted(program.ops, "instruction"))
        if output is None:
            return
    content = dump(program) if form.lower() == "text" else json.dumps(program.to_json(), indent=1) + "\n"
    if output in (None, "-"):
        click.echo(content, nl=False)
    else:
        save(str(output), content)
