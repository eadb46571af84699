"""`synth lint`: the faults of a program, or the proof that it has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from synth.commands.framework.options import FILE, coll_option, point_option, quiet_option, runtime_option
from synth.commands.framework.output import check_writable, emit, printable
from synth.commands.framework.progress import waiting
from synth.commands.framework.types import Ranks
from synth.commands.root import CONTEXT
from synth.errors import SynthError, UsageError
from synth.model.documents.text_file import files_of
from synth.model.frontier import StepCount

EXIT_CODES = {"right": 0, "not analysed": 4, "wrong": 5}


@click.command(context_settings=CONTEXT, short_help="Report a program's faults, or prove that it has none.")
@click.argument("files", type=FILE, nargs=-1, required=True, metavar="FILE|DIR...")
@runtime_option(
    "The runtime whose rules it must obey: msccl, msccl-executor, rccl, mscclpp; by default mscclpp for a "
    "MSCCL++ plan, else synth's own."
)
@coll_option("The program's collective, or a file of one, if the program does not name it.")
@click.option(
    "--root",
    type=Ranks(),
    metavar="0",
    help="The root of a rooted collective; by default as the data flow shows.",
)
@click.option(
    "--in-place",
    type=click.Choice(["out", "in", "both"], case_sensitive=False),
    help="The calls it serves; by default as the file claims.",
)
@point_option("The N-th point of a frontier.")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Write the report to FILE too, as JSON unless --format says text; - is stdout.",
)
@click.option("--format", "form", type=click.Choice(["text", "json"], case_sensitive=False), help="Form of the output.")
@quiet_option
def lint(
    files: tuple[Path, ...],
    runtime: str | None,
    coll: str | None,
    root: list[int] | None,
    in_place: str | None,
    point: int | StepCount | None,
    output: str | None,
    form: str | None,
) -> int:
    """Check each FILE (MSCCL-IR, a MSCCL++ plan, a program, a schedule), or each .json and .xml file in DIR, without
    running it: the rules of the runtime's loader, that every output ends right in every order in which the thread
    blocks can run, and up to which size no rank waits for ever. Every finding names the gpu, the thread block and the
    step.

    \b
    Example:
      synth solve --topo dgx1 --coll allgather --chunks 6 --steps 3 --rounds 7 -o s.json && synth lint s.json

    Exit code 5 where an error was found, 4 where something was not analysed; docs/lint.md lists the rules.
    """
    from synth.commands import api
    from synth.program.runtimes import RUNTIMES

    check_writable(output)
    if runtime is not None and runtime not in RUNTIMES:
        raise UsageError(f"unknown runtime {runtime!r}; {', '.join(RUNTIMES)} exist")
    way = in_place.lower() if in_place else None
    options = {"runtime": runtime, "collective": coll, "roots": root or (), "in_place": way, "point": point}
    if len(files) == 1 and not files[0].is_dir():
        with waiting(f"linting {files[0]}"):
            report = api.lint(files[0], **options)

        def show() -> None:
            for line in report.lines():
                click.echo(printable(line))

        emit(report.to_json, show, output, "table" if form and form.lower() == "text" else form)
        return EXIT_CODES[report.verdict]
    if output or form:
        raise UsageError("-o and --format are for one file")
    return max(_checked(file, options) for file in files_of(files))


def _checked(file: Path, options: dict[str, Any]) -> int:
    from synth.commands import api

    try:
        with waiting(f"linting {file}"):
            report = api.lint(file, **options)
    except SynthError as error:
        click.echo(printable(f"{file}: not checked: {str(error).removeprefix(f'{file}: ')}"))
        return error.exit_code
    for line in report.lines():
        click.echo(printable(f"{file}: {line}"))
    return EXIT_CODES[report.verdict]
