"""`synth export`, `synth.export_program` and `synth.api.export_plan`: files that runtimes load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from synth.commands.framework.declaration import command, function, option, part
from synth.commands.framework.output import check_writable, note, save, write, wrote
from synth.commands.framework.progress import waiting
from synth.commands.framework.shared import (
    FILE,
    Blocks,
    Quiet,
    StepOption,
    collective_option,
    flags_typed,
    in_place_option,
    instances_option,
    point_option,
    protocol_option,
    runtime_option,
    topology_option,
)
from synth.commands.framework.types import AnySize, LowerCase, Ranks, Size, names_of
from synth.commands.inputs import collective as task_of
from synth.commands.inputs import integers, named_topology, size_in_bytes
from synth.commands.programs.show import load_program
from synth.commands.programs.sources import load_plan, placed, read, size_choice
from synth.errors import SynthError, UsageError
from synth.export.request import ExportRequest
from synth.model.frontier import Frontier, StepCount
from synth.model.number_text import size_text
from synth.model.rational import counted
from synth.model.schedule import Schedule
from synth.model.tuning_plan import Plan
from synth.program.lowering_options import LoweringOptions
from synth.program.plan_limits import NEWEST, VERSIONS

if TYPE_CHECKING:
    from synth.commands.inputs import CollectiveLike, TopologyLike
    from synth.export.chakra import TraceFiles
    from synth.export.exported_files import ExportResult
    from synth.export.request import Target
    from synth.model.topology import Network
    from synth.program.events import OpEvent
    from synth.program.program import InPlace, Program
    from synth.program.send_hints import SendHints

PLAN_FORMATS = ("msccl-dir", "mscclpp-dir", "nccl-tuner-csv", "mcrdl-csv")
FOLDERS = ("msccl-dir", "mscclpp-dir")
NOT_OF_TRACES = (
    "runtime", "protocol", "instances", "in-place", "rank-map", "assume-root", "assume-nvlink", "assume-one-node",
    "min-size", "max-size", "coll", "root", "plan-version", "blocks", "reads",
)  # fmt: skip
NOT_OF_PLANS = ("point", "step", "protocol", "instances", "size", "coll", "root", "blocks", "reads")


@dataclass(frozen=True)
class ExportOptions(Blocks):
    """The options of an export."""

    source: str | Path | Frontier | Schedule | Program = option(
        "file", type=FILE, required=False, doc="a frontier, schedule or program, or a file of one."
    )
    to: str = option(
        "--to", default="msccl-xml", type=LowerCase(), metavar="FORMAT",
        shell_complete=names_of("exporters"),
        help="The format (`synth list exporters`); by default msccl-xml, for a plan msccl-dir.",
        doc="the format (`synth list exporters`).",
    )  # fmt: skip
    _: KW_ONLY
    runtime: str = runtime_option(
        "msccl-executor, msccl or rccl for msccl-xml; by default msccl-executor.",
        'one of the format\'s runtimes. "": the first of them.', "",
    )  # fmt: skip
    point: int | StepCount | None = point_option(
        "The N-th point of a frontier, in the order of its table, from 1.",
        "the number of a frontier's point, from 1, or its `StepCount`. None: the only one.",
    )
    protocol: str | None = protocol_option(
        "Simple, LL or LL128; by default Simple.", doc="with which a schedule is lowered. None: the exporter's choice."
    )
    instances: int | None = instances_option(
        "Copies of the program, each for a share of the data; by default 1.", None,
        "with which a schedule is lowered. None: the exporter's choice.",
    )  # fmt: skip
    in_place: InPlace | None = in_place_option(
        "The calls it serves; by default both where possible.",
        "the calls that it is for. None: both where that can be.",
    )
    topology: TopologyLike | None = topology_option(
        "the machine that it is for, from which kinds of links are taken. None: the one that the schedule names, if "
        "its links are the same.",
        default=None,
    )
    rank_map: Sequence[int] | None = option(
        "--rank-map", default=None, type=Ranks(), metavar="1,2,0",
        help="The machine's rank of each rank of the schedule.",
        doc="the machine's rank of each rank of the schedule. None: the labels of an allocation, or a match.",
    )  # fmt: skip
    assume_root: int | None = option(
        "--assume-root", default=None, type=click.IntRange(0), metavar="R",
        help="Every call of the job has this root.",
    )  # fmt: skip
    assume_nvlink: bool = option("--assume-nvlink", default=False, help="All links are NVLink: LL128 is safe.")
    assume_one_node: bool = option("--assume-one-node", default=False, help="All ranks are in one box.")
    min_size: int | str = option(
        "--min-size", default=0, type=AnySize(), metavar="SIZE", help="Least size that the file serves."
    )
    max_size: int | str | None = option(
        "--max-size", default=None, type=Size(), metavar="SIZE",
        help="Greatest size that the file serves; by default as far as it is proved safe.",
    )  # fmt: skip
    size: int | str | None = option(
        "--size", default=None, type=Size(), metavar="SIZE",
        help="The size of a timeline, or of the call of traces (chakra).",
        doc="the bytes of the call that a timeline shows. None: the executor's own.",
    )  # fmt: skip
    collective: CollectiveLike | None = collective_option(
        "The collective of a foreign file that does not name it.", default=None
    )
    root: int | None = option(
        "--root", default=None, type=click.IntRange(0), metavar="R",
        help="The root of a foreign file's collective, if the data flow does not show it.",
    )  # fmt: skip
    plan_version: str = option(
        "--plan-version", default=NEWEST, type=click.Choice(VERSIONS), show_default=True,
        help="The version of MSCCL++ whose plan format is written.",
    )  # fmt: skip
    lanes: int | None = option(
        default=None,
        doc="the most connections of one route. None: its units, fewer where the runtime's limits demand it.",
    )
    hints: SendHints | None = option(
        default=None,
        doc="thread blocks, channels, connections and pieces of single sends, such as `Compiled.hints` of a program; "
        "not of MSCCL++ plans.",
    )


@function(ExportOptions)
def export_program(options: ExportOptions) -> ExportResult:
    """Return the file of a program for another runtime.

    Returns
    -------
    The texts of the files, with `remarks` on their sizes and limits; `write(path)` writes them.

    Raises
    ------
    SynthError naming the limit of the runtime that the program exceeds; UsageError for an unknown format or links that
    the machine does not have.

    Examples
    --------
    >>> import synth
    >>> made = synth.export_program(synth.frontier("ring:4", "allgather"), "msccl-xml")
    >>> made.text.splitlines()[0][:50]
    '<algo name="allgather-ring:4-C2-S2-R3" proto="Simp'
    """
    from synth.export import exported_files
    from synth.export.request import Machine, Target
    from synth.model.registry import find
    from synth.runtime import call as calls

    # The source: a value, or what its file holds, with a collective that the file does not name.
    source, request = options.source, _request(options)
    find("exporters", request.to, exported_files.EXPORTERS, exported_files.OF_SCHEDULES)  # a wrong name comes first
    found: Any = source
    if isinstance(source, str | Path):
        task, root = request.collective, request.root
        if isinstance(task, str | Path | Mapping):
            task = task_of(task, load_program(source).ranks, () if root is None else (root,))
        found = read(Path(source), task, root)
    chosen = size_choice(source, found)
    if isinstance(found, Frontier):
        exported_files.named_point(found, request)  # refused before anything is made of its machine

    # The target: ranks and links of the machine, and a choice of `synth pareto --size` in the file.
    machine: Any = request.topology
    ranks, said, facts = request.rank_map, [], None if machine is None else Machine.of(machine)
    links = None if machine is None else machine.network()
    if isinstance(found, Frontier | Schedule):
        labels = found.labels if isinstance(found, Frontier) else ()
        ranks, facts, said = placed(found.network, labels, machine, request.rank_map)
    else:
        links = calls.timed_links(machine, found)
    # A schedule that was chosen for a size is written in the protocol of the choice, unless another is asked for.
    if chosen is not None:
        exporter = find("exporters", request.to, exported_files.EXPORTERS, exported_files.OF_SCHEDULES)()
        runtime = request.runtime.lower() or exporter.runtimes[0]
        protocol = request.protocol or chosen.protocol or LoweringOptions.protocol
        if request.protocol is None and runtime == "mscclpp" and protocol == "LL128":
            protocol = "Simple"  # MSCCL++ has no LL128
        how = f"{chosen.protocol or 'no protocol'}, written in {protocol}, as {request.to}"
        if protocol == chosen.protocol:
            how = f"{protocol}, as {request.to}"
        form = "" if request.to == runtime else f" for {runtime}"
        said += [f"the schedule chosen at {size_text(chosen.size)} in {how}{form}"]
        request = replace(request, protocol=protocol, size=request.size or chosen.size)
    placing = None if ranks is None else tuple(ranks)
    target = Target(request, ranks=placing, links=links, machine=facts, timeline=_timeline)
    made = exported_files.export_point(found, target)
    return replace(made, remarks=(*said, *made.remarks))


def _request(options: ExportOptions) -> ExportRequest:
    size = options.size
    return part(
        ExportRequest, options,
        topology=None if options.topology is None else named_topology(options.topology),
        rank_map=None if options.rank_map is None else integers(options.rank_map, "rank_map"),
        min_size=size_in_bytes(options.min_size, "min_size") if options.min_size else 0,
        max_size=None if options.max_size is None else size_in_bytes(options.max_size, "max_size"),
        size=None if size is None else size_in_bytes(size),
    )  # fmt: skip


def _timeline(program: Program, network: Network, size: int | None) -> Sequence[OpEvent]:
    from synth.runtime import call as calls
    from synth.runtime.run_request import RunRequest

    request = RunRequest(size=size, in_place=program.in_place == "in", data=False, bound=False, options={"trace": True})
    return calls.run(calls.Call(program, network, request)).execution.events or ()


def export_plan(
    source: str | Path | Plan, to: str = "msccl-dir", *, topology: TopologyLike | None = None, **options: Any
) -> ExportResult:
    """Return the files of a plan in the format `to`, one of `PLAN_FORMATS`, with a remark on each thing that it cannot
    say.

    The options are those of `synth.export_program`. Raises SynthError, with the reasons, where no part of the plan can
    be exported, and UsageError for another format.
    """
    from synth.export.plans import read as plans
    from synth.export.request import Machine, Target
    from synth.topologies import rank_placement

    # The plan, replayed, and the format.
    machine = None if topology is None else named_topology(topology)
    request = ExportRequest(to.lower(), topology=machine, **options)
    plan = load_plan(source) if isinstance(source, str | Path) else source
    if isinstance(source, Plan):
        plans.check(plan)
    kind, network = request.to, plan.topology
    if kind not in PLAN_FORMATS:
        raise UsageError(f"a plan is exported to {', '.join(PLAN_FORMATS)}; {to!r} is none of them")
    if request.runtime and kind != "msccl-dir":
        raise UsageError(f"--runtime is for msccl-dir; {kind} is for one runtime")
    if kind == "mcrdl-csv":
        from synth.export.plans import mcrdl

        return mcrdl.export(plan)
    runtime = "mscclpp" if kind == "mscclpp-dir" else request.runtime.lower() or "msccl-executor"
    if kind == "msccl-dir" and runtime not in ("msccl", "msccl-executor", "rccl"):
        raise UsageError(f"msccl-dir is not for the runtime {request.runtime!r}; it is for msccl-executor, msccl, rccl")
    request = replace(request, to="mscclpp" if runtime == "mscclpp" else "msccl-xml", runtime=runtime)

    # The target of schedules on a network: the machine of the request, or the one whose network it is.
    @cache
    def target(links: Network) -> Target:
        labels = plan.labels if network is not None and network.ranks == links.ranks else ()
        ranks, facts, _ = placed(links, labels, machine, request.rank_map)
        if sorted(ranks) != list(range(links.ranks)):
            raise UsageError(f"rank map {','.join(map(str, ranks))}: expected each of 0..{links.ranks - 1} once")
        if machine is None and network is not None and rank_placement.same(network, links):
            facts = Machine.of_plan(plan, ranks) or facts
        return Target(request, tuple(ranks), None if machine is None else machine.network(), facts)

    # Rules for a tuner name algorithms of the library; the other formats hold programs.
    if kind == "nccl-tuner-csv":
        from synth.export.plans.nccl_tuner_csv import csv

        facts = None if network is None else target(network).machine
        return csv(plan, len(set(facts.nodes)) if facts is not None and facts.nodes else -1)
    from synth.export.plans.folder import folder

    # A plan of part of a machine is for these devices alone.
    made, labels = folder(plan, target, runtime, request.plan_version), sorted(plan.labels)
    if machine is not None or labels == list(range(len(labels))):
        return made
    devices = f"made for the devices {','.join(map(str, labels))}, which must be ranks 0 to {len(labels) - 1} of the"
    return replace(made, remarks=(f"{devices} communicator", *made.remarks))


def chakra(
    source: Schedule | str | Path,
    *,
    size: int | str | None = None,
    point: int | StepCount | None = None,
    topology: TopologyLike | None = None,
) -> TraceFiles:
    """Return Chakra execution traces of a schedule, one file for each rank.

    Parameters
    ----------
    source : a schedule; its file, or that of a frontier or of another program.
    size : of the call, nccl-tests' (``1 << 20`` or ``"1MB"``). None: 1 MiB.
    point : the number of the frontier's point, from 1.
    topology : the machine of another program's file.

    Examples
    --------
    >>> import synth
    >>> schedule = synth.api.baseline("ring", "ring:4", "allgather")
    >>> [name for name, _ in synth.api.chakra(schedule, size="64KB").files][:2]
    ['collective.0.et', 'collective.1.et']
    """
    from synth.checker.schedule import replay
    from synth.commands.programs.import_ import import_schedule
    from synth.export import program_reader
    from synth.export.chakra import traces
    from synth.export.exported_files import named_point
    from synth.export.foreign.read import FrontierGivenError
    from synth.program.checked_lowering import MAX_SENDS

    # A frontier has a point chosen, and whatever comes from a file is replayed.
    try:
        schedule = source if isinstance(source, Schedule) else import_schedule(source, topology).schedule
    except FrontierGivenError:
        frontier = program_reader.load(Path(str(source)))
        assert isinstance(frontier, Frontier)
        number = named_point(frontier, ExportRequest(point=point))
        schedule = frontier.schedule_of(frontier.points[number - 1], MAX_SENDS)
    replay.schedule(schedule)
    return traces(schedule, 1 << 20 if size is None else size_in_bytes(size))


@dataclass(frozen=True, kw_only=True)
class Export(Quiet, StepOption, ExportOptions):
    """The options of `synth export`."""

    plan: Path | None = option(
        "--plan", default=None, type=FILE, metavar="FILE",
        help="A tuner's plan: to msccl-dir, mscclpp-dir, nccl-tuner-csv or mcrdl-csv.",
    )  # fmt: skip
    output: str | None = option(
        "-o", "--output", default=None, metavar="FILE|DIR",
        help="The output file or folder; by default, and with -, stdout.",
    )  # fmt: skip


@command(Export)
def export_command(options: Export) -> None:
    """Write FILE (a frontier, a schedule, a program, or a file of a runtime) in the form that a runtime loads.

    \b
    Examples:
      synth export frontier.json --point 2 --runtime msccl-executor -o allgather.xml
      synth export --plan plan.json --to msccl-dir -o algorithms
    """
    # A plan, one program, or the folder of traces.
    file, to = options.source, options.to
    if options.plan is not None:
        _plan(options)
        return
    if file is None:
        raise UsageError("name the FILE to export, or a tuner's plan with --plan")
    if to in PLAN_FORMATS:
        raise UsageError(f"{to} is made of a tuner's plan: `synth tune -o plan.json`, then --plan plan.json --to {to}")
    if to != "chakra":
        export_source(options, getattr(file, "name", str(file)))
        return

    # The folder of traces.
    for flag in flags_typed(*NOT_OF_TRACES):
        raise UsageError(f"{flag} means nothing for traces; leave it out with --to chakra")
    if options.output in (None, "-"):
        raise UsageError("chakra writes a folder: name it with -o DIR")
    check_writable(options.output, folder=True)
    with waiting(f"exporting {file}"):
        made = chakra(file, point=options.point, topology=options.topology, size=options.size)  # type: ignore[arg-type]
    folder = Path(str(options.output))
    if folder.is_dir() and any(path.suffix != ".et" for path in folder.iterdir()):
        raise SynthError(f"{folder} holds other files; name an empty folder")
    folder.mkdir(exist_ok=True)
    for name, content in made.files:
        write(folder / name, content)
    wrote(folder, f"{len(made.files)} files")
    for line in made.remarks:
        note(line)


def export_source(options: ExportOptions, name: str) -> None:
    """Export a file, or a frontier called `name`, by the options of `synth export`."""
    output = options.output  # type: ignore[attr-defined]
    check_writable(output)
    with waiting(f"exporting {name}"):
        form = "msccl-xml" if options.to == "msccl" else options.to
        result = export_program.of(replace(options, to=form))
    _write(output, result)


def _plan(options: Export) -> None:
    """Export a tuner's plan."""
    from synth.export import export_folder, folder_notes

    # What the plan itself says is refused.
    wrong = flags_typed(*NOT_OF_PLANS)
    if options.source is not None or wrong:
        raise UsageError(f"{wrong[0] if wrong else options.source}: a plan says that itself; leave it out with --plan")
    default = click.get_current_context().get_parameter_source("to") is ParameterSource.DEFAULT
    to, output = "msccl-dir" if default else options.to, options.output
    folder = Path(str(output)).absolute()
    if to in FOLDERS:
        if output in (None, "-"):
            raise UsageError(f"{to} writes a folder: name it with -o DIR")
        check_writable(output, folder=True)
        export_folder.check(folder)
    else:
        check_writable(output, folder=to == "mcrdl-csv" and not folder.is_file())
    # Folders are written whole or not at all; other formats are one file, or one a table.
    plan: Any = options.plan
    keys = ("runtime", "topology", "rank_map", "in_place", "assume_root", "assume_nvlink", "assume_one_node",
            "min_size", "max_size", "plan_version")  # fmt: skip
    with waiting(f"exporting {plan}"):
        result = export_plan(plan, to, **{key: getattr(options, key) for key in keys})
    if to not in FOLDERS:
        _write(output, result)
        return
    runtime = "mscclpp" if to == "mscclpp-dir" else options.runtime or "msccl-executor"
    export_folder.write_folder(folder, result, folder_notes.env(runtime, str(folder), result.env))
    wrote(f"{counted(len(result.files), 'file')} to {folder}, and beside it {folder.name}.env and {folder.name}.md")
    for line in result.remarks:
        note(line)


def _write(output: str | None, result: ExportResult) -> None:
    """Write the files and the remarks: one file, two of both kinds of call, or a file for each table into a folder."""
    # Files of one program differ by suffixes such as -in-place; those of a table have names.
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
