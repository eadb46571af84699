"""`synth export`: a point, a schedule or a program in the form of a runtime; a frontier as a folder."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from synth.cli.framework import folders
from synth.cli.framework.completion import names_of
from synth.cli.framework.options import (
    FILE,
    coll_option,
    given_options,
    instances_option,
    one_of,
    onesided_options,
    plan_version_option,
    point_option,
    protocol_option,
    quiet_option,
    runtime_option,
)
from synth.cli.framework.output import check_writable, note, save, write, wrote
from synth.cli.framework.progress import waiting
from synth.cli.framework.types import Ranks, Size
from synth.cli.root import CONTEXT
from synth.errors import SynthError, UsageError

if TYPE_CHECKING:
    from synth.export.exported_files import ExportResult
    from synth.export.request import ExportRequest
    from synth.model.frontier import ParetoFrontier

ELEMENTS = {
    "float64": 8,
    "int64": 8,
    "uint64": 8,
    "float32": 4,
    "int32": 4,
    "uint32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int8": 1,
    "uint8": 1,
}

# options that ExportRequest calls the same
SAME = (
    "rank_map", "in_place", "assume_root", "assume_nvlink", "assume_one_node", "max_size", "point", "every",
    "instances", "sizes", "size", "root", "plan_version", "blocks", "reads",
)  # fmt: skip
TRACE_FILES = ("system.json", "network.yml")
NOT_OF_TRACES = (
    "runtime", "every", "protocol", "instances", "in_place", "rank_map", "assume_root", "assume_nvlink",
    "assume_one_node", "sizes", "dtype", "min_size", "max_size", "coll", "root", "plan_version",
    "blocks", "reads",
)  # fmt: skip
NOT_OF_PLANS = (
    "point", "step", "every", "protocol", "instances", "sizes", "dtype", "size", "coll", "root", "blocks",
    "reads",
)  # fmt: skip


class SizeList(click.ParamType):
    """Several sizes: ``64KB,1MB``."""

    name = "sizes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """As bytes, in the order given."""
        if isinstance(value, tuple):
            return value
        return tuple(Size().convert(part, param, ctx) for part in str(value).split(","))


def _format(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Return the named format, also by another name; None for the default, which is MSCCL-IR."""
    return {"msccl": None, "astra-sim": "chakra"}.get((value or "").lower(), value)


@click.command(
    context_settings=CONTEXT, short_help="Write files that runtimes load: MSCCL-IR, MSCCL++ plans, timelines."
)
@click.argument("file", type=FILE, required=False)
@click.option(
    "--plan",
    type=FILE,
    metavar="FILE",
    help="A tuner's plan: to msccl-dir, mscclpp-dir, nccl-tuner-csv, json or mcrdl-csv.",
)
@click.option(
    "--to",
    metavar="FORMAT",
    shell_complete=names_of("formats"),
    callback=_format,
    help="The format (`synth list exporters`); by default msccl: msccl-xml, for a plan msccl-dir.",
)
@runtime_option("msccl-executor, msccl or rccl for msccl-xml; by default msccl-executor.")
@point_option("The K-th point of a frontier, in the order of its table, from 1.", "K")
@click.option(
    "--all", "every", is_flag=True, help="All points, each for the sizes at which it is predicted fastest: a folder."
)
@click.option(
    "-o", "--output", metavar="FILE|DIR", help="The output file; by default, and with -, stdout. With --all a folder."
)
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
    shell_complete=names_of("topologies", files=True),
    help="The target machine; by default the schedule's.",
)
@click.option("--topo-file", type=FILE, metavar="FILE", hidden=True, help="An older name of --topo FILE.")
@click.option("--rank-map", type=Ranks(), metavar="1,2,0", help="The machine's rank of each rank of the schedule.")
@click.option("--assume-root", type=click.IntRange(0), metavar="R", help="Every call of the job has this root.")
@click.option("--assume-nvlink", is_flag=True, help="All links are NVLink: LL128 is safe.")
@click.option("--assume-one-node", is_flag=True, help="All ranks are in one box.")
@click.option(
    "--sizes",
    type=SizeList(),
    default=(),
    metavar="1MB,64MB",
    help="Sizes to serve: prefer points whose chunks divide them.",
)
@click.option(
    "--dtype", type=click.Choice(list(ELEMENTS), case_sensitive=False), default="float32", help="The type of --sizes."
)
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
      synth export frontier.json --all --runtime msccl-executor -o algorithms
      synth export --plan plan.json --to msccl-dir -o algorithms
    """
    if flags["plan"] is not None:
        _plan(file, flags)
        return
    if file is None:
        raise UsageError("name the FILE to export, or a tuner's plan with --plan")
    from synth.api import plan_export

    to = (flags["to"] or "").lower()
    if to == "ncclx-tuner-csv":
        raise UsageError(f"{to} is no longer written: {plan_export.NCCLX}")
    if to in plan_export.FORMATS:
        raise UsageError(f"{to} is made of a tuner's plan: `synth tune -o plan.json`, then --plan plan.json --to {to}")
    if to == "chakra":
        _chakra(file, flags)
        return

    export_source(file, file.name, flags)


def export_source(source: Path | ParetoFrontier, name: str, flags: dict[str, Any]) -> None:
    """Export a file, or a frontier called `name`, by the options of `synth export`."""
    from synth.api import programs

    output, every = flags["output"], flags["every"]
    if every and (output in (None, "-") or flags["point"] is not None):
        raise UsageError("--all writes a folder of all points: name it with -o DIR, and leave --point and --step out")
    check_writable(output, folder=every)
    if every:
        folders.check(Path(output))
    with waiting(f"exporting {name}"):
        result = programs.export_request(source, _request(flags, flags["to"] or "msccl-xml"))
    if every:
        from synth.export import folder_notes

        folders.write_all(Path(output), result, partial(folder_notes.env, _runtime(flags)))
    else:
        _write(output, result)
    for line in result.remarks:
        note(line)


def _chakra(file: Path, flags: dict[str, Any]) -> None:
    """Write the folder of traces for ASTRA-sim."""
    from synth import api

    for option in given_options(NOT_OF_TRACES):
        raise UsageError(f"{option} means nothing for traces; leave it out with --to chakra")
    output = flags["output"]
    if output in (None, "-"):
        raise UsageError("chakra writes a folder: name it with -o DIR")
    check_writable(output, folder=True)
    size = {} if flags["size"] is None else {"size": flags["size"]}
    machine = one_of("topo", "topo_file")
    with waiting(f"exporting {file}"):
        made = api.astra_sim(file, output, point=flags["point"], topology=machine[0] or machine[1], **size)
    folder = Path(output)
    if folder.is_dir() and any(path.suffix != ".et" and path.name not in TRACE_FILES for path in folder.iterdir()):
        raise SynthError(f"{folder} holds other files; name an empty folder")
    folder.mkdir(exist_ok=True)
    for name, content in made.files:
        write(folder / name, content)
    wrote(folder, f"{len(made.files)} files")
    for line in made.remarks:
        note(line)


def _plan(file: Path | None, flags: dict[str, Any]) -> None:
    from synth.api import plan_export
    from synth.export import folder_notes

    wrong = given_options(NOT_OF_PLANS)
    if file is not None or wrong:
        raise UsageError(f"{wrong[0] if wrong else file}: a plan says that itself; leave it out with --plan")
    to, output = (flags["to"] or "msccl-dir").lower(), flags["output"]
    folder = to in plan_export.FOLDERS
    if folder and output in (None, "-"):
        raise UsageError(f"{to} writes a folder: name it with -o DIR")
    tables = to == "mcrdl-csv" and not Path(str(output)).is_file()  # a file, or for several tables a folder
    check_writable(output, folder=folder or tables)
    if folder:
        folders.check(Path(output))
    with waiting(f"exporting {flags['plan']}"):
        result = plan_export.export_request(flags["plan"], _request(flags, to))
    if folder:
        folders.write_all(
            Path(output), result, partial(folder_notes.env, "mscclpp" if to == "mscclpp-dir" else _runtime(flags))
        )
    elif len(result.files) > 1:
        _tables(output, result, to)
    else:
        _write(output, result)
    for line in result.remarks:
        note(line)


def _tables(output: str | None, result: ExportResult, to: str) -> None:
    """A file for each table of a plan, into a folder."""
    if output in (None, "-"):
        raise UsageError(
            f"the plan has {len(result.files)} tables, and {to} is a file for each: name a folder with -o DIR"
        )
    folder = Path(str(output))
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise SynthError(
            f"cannot write {folder}: {error.strerror}; {to} of several tables goes into a folder"
        ) from None
    for name, text in result.files:
        save(folder / name, text)


def _request(flags: dict[str, Any], to: str) -> ExportRequest:
    from synth.export.request import ExportRequest

    name, path = one_of("topo", "topo_file")
    return ExportRequest(
        to,
        runtime=flags["runtime"] or "",
        topology=name or path,
        protocol=flags["protocol"],
        element=ELEMENTS[flags["dtype"].lower()],
        min_size=flags["min_size"] or 0,
        collective=flags["coll"],
        **{key: flags[key] for key in SAME},
    )


def _runtime(flags: dict[str, Any]) -> str:
    return flags["runtime"] or "msccl-executor"


def _write(output: str | None, result: ExportResult) -> None:
    if output in (None, "-"):
        if len(result.files) > 1:
            raise UsageError(
                "this runtime wants a file for calls in place and one for others: give -o FILE, or choose with "
                "--in-place"
            )
        click.echo("".join(text for _, text in result.files), nl=False)
        return
    path = Path(str(output))
    for suffix, text in result.files:
        target = path.with_name(path.stem + suffix + path.suffix) if suffix else path
        save(target, text)
