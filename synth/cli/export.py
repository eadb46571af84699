"""`synth export`: a point, a schedule or a program in the form of a runtime; a frontier as a folder."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from synth.cli.framework import folders
from synth.cli.framework.options import FILE, instances_option, one_of, point_option
from synth.cli.framework.output import check_writable, note, write
from synth.cli.framework.progress import waiting
from synth.cli.framework.types import Ranks, Size
from synth.cli.root import CONTEXT
from synth.errors import SynthError, UsageError

if TYPE_CHECKING:
    from synth.export.exported_files import ExportResult

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

NOT_OF_PLANS = ("point", "every", "protocol", "instances", "sizes", "dtype", "size", "coll", "root")


class Sizes(click.ParamType):
    """Several sizes: ``64KB,1MB``."""

    name = "sizes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """As bytes, in the order given."""
        if isinstance(value, tuple):
            return value
        return tuple(Size().convert(part, param, ctx) for part in str(value).split(","))


@click.command(context_settings=CONTEXT, short_help="Files that the runtimes load: MSCCL-IR, MSCCL++ plans, timelines.")
@click.argument("file", type=FILE, required=False)
@click.option(
    "--plan",
    type=FILE,
    metavar="FILE",
    help="A tuner's plan: to msccl-dir, mscclpp-dir, nccl-tuner-csv, json or mcrdl-csv.",
)
@click.option(
    "--to", metavar="FORMAT", help="The format (`synth list exporters`); msccl-xml unless given, of a plan msccl-dir."
)
@click.option(
    "--runtime", default="", metavar="NAME", help="executor, msccl or rccl for msccl-xml; executor unless given."
)
@point_option("The K-th point of a frontier, in the order of its table, from 1.", "K")
@click.option(
    "--all", "every", is_flag=True, help="All points, each for the sizes at which it is predicted fastest: a folder."
)
@click.option(
    "-o", "--output", metavar="FILE|DIR", help="Where to; - or nothing is stdout. With --all a folder, notes beside it."
)
@click.option(
    "--protocol", type=click.Choice(["Simple", "LL", "LL128"], case_sensitive=False), help="Simple unless given."
)
@instances_option("Copies side by side, each for its share of the data; 1 unless given.")
@click.option(
    "--in-place",
    type=click.Choice(["in", "out", "both"], case_sensitive=False),
    help="For which calls; both where that can be.",
)
@click.option("--topo", metavar="NAME", help="The machine it is for; what the schedule names unless given.")
@click.option("--topo-file", type=FILE, metavar="FILE", help="The machine it is for, as a topology file or a dump.")
@click.option("--rank-map", type=Ranks(), metavar="1,2,0", help="The machine's rank of each rank of the schedule.")
@click.option("--assume-root", type=click.IntRange(0), metavar="R", help="Every call of the job has this root.")
@click.option("--assume-nvlink", is_flag=True, help="All links are NVLink: LL128 is safe.")
@click.option("--assume-one-node", is_flag=True, help="All ranks are in one box.")
@click.option(
    "--sizes",
    type=Sizes(),
    default=(),
    metavar="1MB,64MB",
    help="Sizes to be served: prefer points whose chunks divide them.",
)
@click.option(
    "--dtype", type=click.Choice(list(ELEMENTS), case_sensitive=False), default="float32", help="The type of --sizes."
)
@click.option("--min-size", type=Size(), metavar="SIZE", help="Offer it from this size on.")
@click.option(
    "--max-size",
    type=Size(),
    metavar="SIZE",
    help="Offer it up to this size; as far as it is proved safe unless given.",
)
@click.option("--size", type=Size(), metavar="SIZE", help="The size that a timeline is drawn for.")
@click.option("--coll", metavar="NAME", help="What a foreign file computes, where it does not say.")
@click.option(
    "--root",
    type=click.IntRange(0),
    metavar="R",
    help="The root of a foreign file's collective, where it does not follow.",
)
def export(file: Path | None, **given: Any) -> None:
    """Write FILE (a frontier, a schedule, a program, or a file of a runtime) in the form that a runtime loads.

    \b
    Examples:
      synth export frontier.json --point 2 --runtime executor -o allgather.xml
      synth export frontier.json --all --runtime executor -o algorithms
      synth export --plan plan.json --to msccl-dir -o algorithms
    """
    if given["plan"] is not None:
        _plan(file, given)
        return
    if file is None:
        raise UsageError("name the FILE to export, or a tuner's plan with --plan")
    output, every = given["output"], given["every"]
    if every and (output in (None, "-") or given["point"] is not None):
        raise UsageError("--all writes a folder of all points: name it with -o DIR, and leave --point out")
    check_writable(output)
    if every:
        folders.check(Path(output))
    with waiting(f"exporting {file.name}"):
        made = _made(file, given)
    if every:
        from synth.export import folder_notes

        folders.write_all(Path(output), made, partial(folder_notes.env, _runtime(given)))
    else:
        _write(output, made)
    for line in made.remarks:
        note(line)


def _plan(file: Path | None, given: dict[str, Any]) -> None:
    from synth import api
    from synth.api import plans
    from synth.export import folder_notes

    source = click.get_current_context().get_parameter_source
    wrong = [
        f"--{name.replace('every', 'all')}" for name in NOT_OF_PLANS if source(name) is ParameterSource.COMMANDLINE
    ]
    if file is not None or wrong:
        raise UsageError(f"{wrong[0] if wrong else file}: a plan says that itself; leave it out with --plan")
    to, output = (given["to"] or "msccl-dir").lower(), given["output"]
    folder = to in plans.FOLDERS
    if folder and output in (None, "-"):
        raise UsageError(f"{to} writes a folder: name it with -o DIR")
    check_writable(output)
    if folder:
        folders.check(Path(output))
    name, path = one_of("topo", "topo_file")
    made = api.export_plan(
        given["plan"],
        to,
        runtime=given["runtime"],
        in_place=given["in_place"],
        topology=name or path,
        rank_map=given["rank_map"],
        assume_root=given["assume_root"],
        assume_nvlink=given["assume_nvlink"],
        assume_one_node=given["assume_one_node"],
        min_size=given["min_size"] or 0,
        max_size=given["max_size"],
    )
    if folder:
        folders.write_all(
            Path(output), made, partial(folder_notes.env, "mscclpp" if to == "mscclpp-dir" else _runtime(given))
        )
    elif len(made.files) > 1:
        _tables(output, made, to)
    else:
        _write(output, made)
    for line in made.remarks:
        note(line)


def _tables(output: str | None, made: ExportResult, to: str) -> None:
    """A file for each table of a plan, into a folder."""
    if output in (None, "-"):
        raise UsageError(
            f"the plan has {len(made.files)} tables, and {to} is a file for each: name a folder with -o DIR"
        )
    folder = Path(str(output))
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise SynthError(
            f"cannot write {folder}: {error.strerror}; {to} of several tables goes into a folder"
        ) from None
    for name, text in made.files:
        write(folder / name, text)
        note(f"wrote {folder / name}")


def _made(file: Path, given: dict[str, Any]) -> ExportResult:
    from synth import api

    name, path = one_of("topo", "topo_file")
    task = None
    if given["coll"] is not None:
        program = api.load_program(file)
        task = api.collective(given["coll"], program.ranks, () if given["root"] is None else [given["root"]])
    return api.export_program(
        file,
        given["to"] or "msccl-xml",
        runtime=given["runtime"],
        point=given["point"],
        every=given["every"],
        protocol=_protocol(given["protocol"]),
        instances=given["instances"],
        in_place=given["in_place"],
        topology=name or path,
        rank_map=given["rank_map"],
        assume_root=given["assume_root"],
        assume_nvlink=given["assume_nvlink"],
        assume_one_node=given["assume_one_node"],
        sizes=given["sizes"],
        element=ELEMENTS[given["dtype"].lower()],
        min_size=given["min_size"] or 0,
        max_size=given["max_size"],
        size=given["size"],
        collective=task,
        root=given["root"],
    )


def _protocol(name: str | None) -> str | None:
    return None if name is None else {"simple": "Simple", "ll": "LL", "ll128": "LL128"}[name.lower()]


def _runtime(given: dict[str, Any]) -> str:
    return given["runtime"].lower() or "executor"


def _write(output: str | None, made: ExportResult) -> None:
    if output in (None, "-"):
        if len(made.files) > 1:
            raise UsageError(
                "this runtime wants a file for calls in place and one for others: give -o FILE, or choose with "
                "--in-place"
            )
        click.echo("".join(text for _, text in made.files), nl=False)
        return
    path = Path(str(output))
    for suffix, text in made.files:
        target = path.with_name(path.stem + suffix + path.suffix) if suffix else path
        write(target, text)
        note(f"wrote {target}")
