"""`synth export`: a point, a schedule or a program in the form of a runtime; a frontier as a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from synth.commands.framework.completion import names_of
from synth.commands.framework.options import (
    FILE,
    coll_option,
    given_options,
    instances_option,
    onesided_options,
    plan_version_option,
    point_option,
    protocol_option,
    quiet_option,
    runtime_option,
)
from synth.commands.framework.output import check_writable, note, save, write, wrote
from synth.commands.framework.progress import waiting
from synth.commands.framework.types import Ranks, Size
from synth.commands.root import CONTEXT
from synth.errors import SynthError, UsageError
from synth.model.rational import counted

if TYPE_CHECKING:
    from synth.export.exported_files import ExportResult
    from synth.export.request import ExportRequest
    from synth.model.frontier import ParetoFrontier

# options that ExportRequest calls the same
SAME = (
    "rank_map", "in_place", "assume_root", "assume_nvlink", "assume_one_node", "max_size", "point", "instances",
    "size", "root", "plan_version", "blocks", "reads", "protocol",
)  # fmt: skip
NOT_OF_TRACES = (
    "runtime", "protocol", "instances", "in_place", "rank_map", "assume_root", "assume_nvlink", "assume_one_node",
    "min_size", "max_size", "coll", "root", "plan_version", "blocks", "reads",
)  # fmt: skip
NOT_OF_PLANS = (
    "point", "step", "protocol", "instances", "size", "coll", "root", "blocks", "reads",
)  # fmt: skip


@click.command(
    context_settings=CONTEXT, short_help="Write files that runtimes load: MSCCL-IR, MSCCL++ plans, timelines."
)
@click.argument("file", type=FILE, required=False)
@click.option(
    "--plan",
    type=FILE,
    metavar="FILE",
    help="A tuner's plan: to msccl-dir, mscclpp-dir, nccl-tuner-csv or mcrdl-csv.",
)
@click.option(
    "--to",
    metavar="FORMAT",
    shell_complete=names_of("exporters"),
    help="The format (`synth list exporters`); by default msccl-xml, for a plan msccl-dir.",
)
@runtime_option("msccl-executor, msccl or rccl for msccl-xml; by default msccl-executor.")
@point_option("The K-th point of a frontier, in the order of its table, from 1.", "K")
@click.option("-o", "--output", metavar="FILE|DIR", help="The output file or folder; by default, and with -, stdout.")
@protocol_option("Simple, LL or LL128; by default Simple.")
@instances_option("Copies of the program, each for a share of the data; by default 1.")
@onesided_options
@click.option(
    "--in-place",
    type=click.Choice(["in", "out", "both"], case_sensitive=False),
    help="The calls it serves; by default both where possible.",
)
@click.option(
    "--topo",
    metavar="NAME|FILE",
    shell_complete=names_of("topologies"),
    help="The target machine; by default the schedule's.",
)
@click.option("--rank-map", type=Ranks(), metavar="1,2,0", help="The machine's rank of each rank of the schedule.")
@click.option("--assume-root", type=click.IntRange(0), metavar="R", help="Every call of the job has this root.")
@click.option("--assume-nvlink", is_flag=True, help="All links are NVLink: LL128 is safe.")
@click.option("--assume-one-node", is_flag=True, help="All ranks are in one box.")
@click.option("--min-size", type=Size(), metavar="SIZE", help="Least size that the file serves.")
@click.option(
    "--max-size",
    type=Size(),
    metavar="SIZE",
    help="Greatest size that the file serves; by default as far as it is proved safe.",
)
@click.option("--size", type=Size(), metavar="SIZE", help="The size of a timeline, or of the call of traces (chakra).")
@coll_option("The collective of a foreign file that does not name it.")
@click.option(
    "--root",
    type=click.IntRange(0),
    metavar="R",
    help="The root of a foreign file's collective, if the data flow does not show it.",
)
@plan_version_option
@quiet_option
def export(file: Path | None, **flags: Any) -> None:
    """Write FILE (a frontier, a schedule, a program, or a file of a runtime) in the form that a runtime loads.

    \b
    Examples:
      synth export frontier.json --point 2 --runtime msccl-executor -o allgather.xml
      synth export --plan plan.json --to msccl-dir -o algorithms
    """
    if flags["plan"] is not None:
        _plan(file, flags)
        return
    if file is None:
        raise UsageError("name the FILE to export, or a tuner's plan with --plan")
    from synth.commands.api import plan_export

    to = _form(flags).lower()
    if to in plan_export.FORMATS:
        raise UsageError(f"{to} is made of a tuner's plan: `synth tune -o plan.json`, then --plan plan.json --to {to}")
    if to == "chakra":
        _chakra(file, flags)
        return
    export_source(file, file.name, flags)


def export_source(source: Path | ParetoFrontier, name: str, flags: dict[str, Any]) -> None:
    """Export a file, or a frontier called `name`, by the options of `synth export`."""
    from synth.commands.api import programs

    check_writable(flags["output"])
    with waiting(f"exporting {name}"):
        result = programs.export_request(source, _request(flags, _form(flags)))
    _write(flags["output"], result)


def _chakra(file: Path, flags: dict[str, Any]) -> None:
    """Write the folder of traces."""
    from synth.commands import api

    for option in given_options(NOT_OF_TRACES):
        raise UsageError(f"{option} means nothing for traces; leave it out with --to chakra")
    output = flags["output"]
    if output in (None, "-"):
        raise UsageError("chakra writes a folder: name it with -o DIR")
    check_writable(output, folder=True)
    with waiting(f"exporting {file}"):
        made = api.chakra(file, point=flags["point"], topology=flags["topo"], size=flags["size"])
    folder = Path(output)
    if folder.is_dir() and any(path.suffix != ".et" for path in folder.iterdir()):
        raise SynthError(f"{folder} holds other files; name an empty folder")
    folder.mkdir(exist_ok=True)
    for name, content in made.files:
        write(folder / name, content)
    wrote(folder, f"{len(made.files)} files")
    for line in made.remarks:
        note(line)


def _plan(file: Path | None, flags: dict[str, Any]) -> None:
    """Export a tuner's plan."""
    from synth.commands.api import plan_export
    from synth.export import export_folder, folder_notes

    wrong = given_options(NOT_OF_PLANS)
    if file is not None or wrong:
        raise UsageError(f"{wrong[0] if wrong else file}: a plan says that itself; leave it out with --plan")
    to, output = (flags["to"] or "msccl-dir").lower(), flags["output"]
    if to not in plan_export.FOLDERS:
        check_writable(output, folder=to == "mcrdl-csv" and not Path(str(output)).is_file())
        with waiting(f"exporting {flags['plan']}"):
            result = plan_export.export_request(flags["plan"], _request(flags, to))
        _write(output, result)
        return
    if output in (None, "-"):
        raise UsageError(f"{to} writes a folder: name it with -o DIR")
    folder = Path(output).absolute()
    check_writable(output, folder=True)
    export_folder.check(folder)
    with waiting(f"exporting {flags['plan']}"):
        result = plan_export.export_request(flags["plan"], _request(flags, to))
    runtime = "mscclpp" if to == "mscclpp-dir" else flags["runtime"] or "msccl-executor"
    export_folder.write_folder(folder, result, folder_notes.env(runtime, str(folder), result.env))
    wrote(f"{counted(len(result.files), 'file')} to {folder}, and beside it {folder.name}.env and {folder.name}.md")
    for line in result.remarks:
        note(line)


def _form(flags: dict[str, Any]) -> str:
    return "msccl-xml" if (flags["to"] or "msccl").lower() == "msccl" else flags["to"]


def _request(flags: dict[str, Any], to: str) -> ExportRequest:
    from synth.export.request import ExportRequest

    return ExportRequest(
        to,
        runtime=flags["runtime"] or "",
        topology=flags["topo"],
        min_size=flags["min_size"] or 0,
        collective=flags["coll"],
        **{key: flags[key] for key in SAME},
    )


def _write(output: str | None, result: ExportResult) -> None:
    """Write the files and the remarks: one file, two of both kinds of call, or a file for each table into a folder."""
    tables = any(not name.startswith("-") for name, _ in result.files[1:])
    if output in (None, "-"):
        if len(result.files) > 1:
            reason = "there is a file for calls in place and one for others: give -o FILE, or choose with --in-place"
            raise UsageError(f"there are {len(result.files)} tables, a file each: -o DIR" if tables else reason)
        click.echo(result.text, nl=False)
    else:
        path = Path(output)
        if tables:
            path.mkdir(exist_ok=True)
        for name, text in result.files:
            save(path / name if tables else path.with_name(path.stem + name + path.suffix), text)
    for line in result.remarks:
        note(line)
