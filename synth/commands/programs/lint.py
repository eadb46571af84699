"""`synth lint` and `synth.api.lint`: the faults of a program, or the proof that it has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from synth.commands.framework.declaration import command, function, option
from synth.commands.framework.output import emit, note, printable
from synth.commands.framework.progress import waiting
from synth.commands.framework.shared import (
    FILE,
    Output,
    StepOption,
    collective_option,
    in_place_option,
    point_option,
    runtime_option,
)
from synth.commands.framework.types import Ranks
from synth.commands.inputs import collective as task_of
from synth.commands.programs.show import load_program
from synth.errors import SynthError, UsageError
from synth.model.documents.text_file import files_of
from synth.model.frontier import StepCount

if TYPE_CHECKING:
    from synth.commands.inputs import CollectiveLike
    from synth.program.analysis.report import LintReport
    from synth.program.program import InPlace, Program

EXIT_CODES = {"right": 0, "not analysed": 4, "wrong": 5}


@dataclass(frozen=True)
class Analysis:
    """The options of an analysis."""

    program: Program | str | Path = option(doc="a program, or a file of any kind that `synth.load_program` reads.")
    _: KW_ONLY
    runtime: str | None = runtime_option(
        "The runtime whose rules it must obey: msccl, msccl-executor, rccl, mscclpp; by default mscclpp for a "
        "MSCCL++ plan, else synth's own.",
        "the runtime whose rules and FIFO depths apply. None: mscclpp for one-sided programs, else this project's "
        "executors.",
    )
    collective: CollectiveLike | None = collective_option(
        "The program's collective, or a file of one, if the program does not name it.", default=None
    )
    roots: Sequence[int] = option(
        "--root", default=(), type=Ranks(), metavar="0", doc="the collective of a file that does not say it.",
        help="The root of a rooted collective; by default as the data flow shows.",
    )  # fmt: skip
    in_place: InPlace | None = in_place_option(
        "The calls it serves; by default as the file claims.", "the calls to judge, if not those that it claims."
    )
    point: int | StepCount | None = point_option("The N-th point of a frontier.")


@function(Analysis)
def lint(asked: Analysis) -> LintReport:
    """Analyse a program: its data flow, races, deadlocks and the limits of its runtime.

    Returns
    -------
    The report: the findings, the `verdict` (right, wrong, not analysed), and the properties that are proved.

    Raises
    ------
    FormatError for a file that cannot be read. Every fault of the program is a finding, not an error.

    Examples
    --------
    >>> import synth
    >>> program = synth.api.lower(synth.api.baseline("ring", "ring:4", "allgather"))
    >>> synth.api.lint(program).ok
    True
    """
    from synth.export.msccl_xml.read import skipped_in
    from synth.program.analysis import check
    from synth.program.analysis.finding import skipped_elements

    # A file is read again where the collective that is given is not the one that its data flow shows.
    program, collective, runtime, skipped = asked.program, asked.collective, asked.runtime, 0
    if isinstance(program, str | Path):
        path, rooted = Path(program), collective is None and len(asked.roots) == 1
        skipped = skipped_in(path)
        program = load_program(path, point=asked.point, root=asked.roots[0] if rooted else None, runtime=runtime)
        task = None if collective is None else task_of(collective, program.ranks, asked.roots)
        if task is not None and task != program.collective:
            program = load_program(path, point=asked.point, collective=task, runtime=runtime)
            program = replace(program, collective=task)
    elif collective is not None:
        program = replace(program, collective=task_of(collective, program.ranks, asked.roots))
    # One-sided programs are plans of MSCCL++, and are judged by its rules.
    if runtime is None and program.one_sided:
        runtime = "mscclpp"
    report = check(program, runtime, asked.in_place)
    if skipped:
        report = replace(report, findings=(*report.findings, skipped_elements(skipped)))
    return report


@dataclass(frozen=True, kw_only=True)
class Lint(Output, StepOption, Analysis):
    """The options of `synth lint`."""

    files: tuple[Path, ...] = option("files", type=FILE, nargs=-1, required=True, metavar="FILE|DIR...")


@command(Lint)
def lint_command(options: Lint) -> int:
    """Check each FILE (MSCCL-IR, a MSCCL++ plan, a program, a schedule), or each .json and .xml file in DIR, without
    running it: the rules of the runtime's loader, that every output ends right in every order in which the thread
    blocks can run, and up to which size no rank waits for ever. Every finding names the gpu, the thread block and the
    step.

    \b
    Example:
      synth solve --topo dgx1 --coll allgather --chunks 6 --steps 3 --rounds 7 -o s.json && synth lint s.json

    Exit code 5 where an error was found, 4 where something was not analysed; docs/lint.md lists the rules.
    """
    from synth.program.runtimes import RUNTIMES
    from synth.view.frontier_text import Report

    if options.runtime is not None and options.runtime not in RUNTIMES:
        raise UsageError(f"unknown runtime {options.runtime!r}; {', '.join(RUNTIMES)} exist")
    # One file has a report; several have a line for each finding, and none ends the others.
    files = options.files
    if len(files) == 1 and not files[0].is_dir():
        with waiting(f"linting {files[0]}"):
            report = lint.of(replace(options, program=files[0]))
        emit(report.to_json, lambda: Report.of("", (), (), report.lines()), options)
        # Of MSCCL-IR the file does not say which loader it is for.
        if options.runtime is None and files[0].suffix.lower() == ".xml":
            note("the limits of no loader were checked; --runtime msccl-executor, msccl or rccl checks its own, too")
        return EXIT_CODES[report.verdict]
    if options.output or options.form:
        raise UsageError("-o and --format are for one file")
    return max(_checked(file, options) for file in files_of(files))


def _checked(file: Path, options: Lint) -> int:
    try:
        with waiting(f"linting {file}"):
            report = lint.of(replace(options, program=file))
    except SynthError as error:
        click.echo(printable(f"{file}: not checked: {str(error).removeprefix(f'{file}: ')}"))
        return error.exit_code
    for line in report.lines():
        click.echo(printable(f"{file}: {line}"))
    return EXIT_CODES[report.verdict]
