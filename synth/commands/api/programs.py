"""Programs: lowered from schedules, read from files, linted and exported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from synth.commands.api.inputs import CollectiveLike, TopologyLike, integers, named_topology, size_in_bytes
from synth.commands.api.inputs import collective as task_of
from synth.errors import FormatError, SynthError, UsageError
from synth.export.request import ExportRequest
from synth.model.collective import Collective
from synth.model.frontier import ParetoFrontier, Point, StepCount
from synth.model.number_text import size_text
from synth.model.schedule import Schedule
from synth.model.topology import Network, Topology
from synth.program.lowering_options import LoweringOptions

if TYPE_CHECKING:
    from synth.export.exported_files import ExportResult
    from synth.export.program_reader import SizeChoice
    from synth.export.request import Machine
    from synth.program.analysis.report import LintReport
    from synth.program.events import OpEvent
    from synth.program.program import InPlace, Program
    from synth.program.send_hints import SendHints


def lower(
    schedule: Schedule,
    *,
    runtime: str = LoweringOptions.runtime,
    protocol: str = LoweringOptions.protocol,
    instances: int = LoweringOptions.instances,
    in_place: InPlace | None = LoweringOptions.in_place,
    fuse: bool = LoweringOptions.fuse,
    aggregate: bool = LoweringOptions.aggregate,
    lanes: int | None = LoweringOptions.lanes,
    hints: SendHints | None = LoweringOptions.hints,
    name: str | None = LoweringOptions.name,
) -> Program:
    """Return the program of a schedule, which is replayed first.

    Parameters
    ----------
    schedule : a schedule with every send listed.
    runtime : the runtime whose form and limits count; "synth" for this project's executors.
    protocol : Simple, LL or LL128.
    instances : copies of the schedule side by side, each for its share of the data.
    in_place : the calls that it is for: "in", "out" or "both". None: all that a two-sided program can serve, calls out
        of place for a one-sided one.
    fuse : receives may forward, where the runtime has such instructions. Of two-sided programs alone, as the next two.
    aggregate : neighbouring chunks travel as one message.
    lanes : the most connections of one route. None: its units, fewer where the runtime's limits demand it.
    hints : thread blocks, channels, connections and pieces of single sends, such as `Compiled.hints` of a program.
    name : of the program. None: of collective, machine and C, S, R.

    Returns
    -------
    The `Program`: the instructions of each thread block of each rank.

    Raises
    ------
    VerificationError for a wrong schedule; SynthError naming the limit of the runtime that is met; UsageError for too
    many sends.

    Examples
    --------
    >>> import synth
    >>> ring = synth.api.baseline("ring", "ring:4", "allgather")
    >>> synth.api.lower(ring, protocol="LL").protocol
    'LL'
    """
    from synth.program import checked_lowering

    return checked_lowering.lower(
        schedule, LoweringOptions(runtime, protocol, instances, in_place, name, fuse, aggregate, lanes, hints)
    )


def read(
    path: Path, collective: Collective | None = None, root: int | None = None, runtime: str | None = None
) -> Program | Schedule | ParetoFrontier:  # fmt: skip
    """Return the program, schedule or frontier in a file. A compressed schedule (``.npz``) is written out.

    Raises FormatError, TooManySendsError.
    """
    if path.suffix == ".npz":
        from synth.checker.documents import schedule_archive
        from synth.program.checked_lowering import check_sends

        schedule = schedule_archive.load(path)
        check_sends(schedule.sends)
        return schedule.written_out()
    from synth.export.program_reader import load

    try:
        return load(path, collective, root, runtime)
    except FormatError as error:
        from synth.export.foreign.read import kind_of_other

        kind = kind_of_other(path)
        if not kind:
            raise
        raise FormatError(f"is {kind}: `synth import {path}` reads it", str(path)) from error


def size_choice(
    source: object, found: Program | Schedule | ParetoFrontier, element_type: str = "float32"
) -> SizeChoice | None:
    """Return the size and the protocol that the file `source` of `found` was chosen for by `synth pareto --size`.

    The size is rounded down to whole elements. None where `source` is no such file. Raises FormatError.
    """
    from synth.export import program_reader
    from synth.runtime.dtypes import dtype
    from synth.runtime.slicing import whole_elements

    if not isinstance(source, str | Path) or not isinstance(found, Schedule) or Path(source).suffix == ".npz":
        return None
    chosen = program_reader.size_choice(Path(source))
    if chosen is None:
        return None
    return chosen._replace(size=whole_elements(found.collective.buffer_units, chosen.size, dtype(element_type)))


def lowered(
    given: Program | Schedule | ParetoFrontier,
    point: int | StepCount | None,
    size: int | None,
    options: LoweringOptions,
) -> tuple[Program, Network | None]:
    """Return the program of a schedule, or of the point that `chosen_point` takes of a frontier, and its network.

    That network has no switches that multicast, because programs emulate their sends. A program is returned as it is,
    with None. Raises UsageError for a `point`, or for several instances, of what has no such choice.
    """
    from synth.program import checked_lowering

    if isinstance(given, ParetoFrontier):
        given = given.schedule_of(chosen_point(given, point, size), checked_lowering.MAX_SENDS)
    elif point is not None:
        raise UsageError("a point is chosen from a frontier; this is none")
    if isinstance(given, Schedule):
        return checked_lowering.lower(given, options), replace(given.network, multicast=())
    if options.instances != 1:
        raise UsageError("instances are made when a schedule is lowered; this is a program already")
    return given, None


def chosen_point(frontier: ParetoFrontier, point: int | StepCount | None, size: int | None) -> Point:
    """Return the point of that number (from 1) or of so many steps; None: the fastest at `size` bytes, or at 1 MiB."""
    if not frontier.points:
        raise SynthError("this frontier has no point")
    if point is None:
        return frontier.best(size or 1 << 20)
    return frontier.points[frontier.number_of(point) - 1]


def load_program(
    path: str | Path,
    *,
    point: int | StepCount | None = None,
    collective: Collective | None = None,
    root: int | None = None,
    runtime: str | None = None,
    protocol: str = LoweringOptions.protocol,
    instances: int = LoweringOptions.instances,
    in_place: InPlace | None = LoweringOptions.in_place,
) -> Program:
    """Return the program in a file of any kind.

    Parameters
    ----------
    path : a Program as JSON or text, MSCCL-IR, a MSCCL++ plan; or a schedule or frontier, which is lowered. One at
        scale is taken as long as the schedule is small enough to write out.
    point : the number of a frontier's point, from 1, or its `StepCount`. None: its only one.
    collective, root : the collective of a foreign file that does not say it.
    runtime : the runtime that MSCCL-IR's sizes are for, and schedules are lowered for. None: this project's executors.
    protocol, instances, in_place : with which a schedule is lowered.

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

    found = read(Path(path), collective, root, runtime)
    if point is not None and not isinstance(found, ParetoFrontier):
        raise UsageError(f"{path} is no frontier, which --point and --step choose from")
    if not isinstance(found, ParetoFrontier | Schedule):
        defaults = LoweringOptions()
        if (protocol, instances, in_place) != (defaults.protocol, defaults.instances, defaults.in_place):
            raise UsageError(
                f"{path} is a program already; leave --protocol, --instances and --in-place out, which schedules are "
                f"lowered with"
            )
        return found
    if root is not None:
        raise UsageError(f"{path} says its root itself; leave --root out")
    if isinstance(found, ParetoFrontier):
        if point is None and len(found.points) > 1:
            raise UsageError(f"{path} has {len(found.points)} points; choose one with --point K or --step S")
        found = found.schedule_of(chosen_point(found, point, None), MAX_SENDS)
    return lower(found, runtime=runtime or "synth", protocol=protocol, instances=instances, in_place=in_place)


def lint(
    program: Program | str | Path,
    *,
    runtime: str | None = None,
    collective: CollectiveLike | None = None,
    roots: Sequence[int] = (),
    in_place: InPlace | None = None,
    point: int | StepCount | None = None,
) -> LintReport:
    """Analyse a program: its data flow, races, deadlocks and the limits of its runtime.

    Parameters
    ----------
    program : a program, or a file of any kind that `synth.load_program` reads.
    runtime : the runtime whose rules and FIFO depths apply. None: mscclpp for one-sided programs, else this project's
        executors.
    collective, roots : the collective of a file that does not say it.
    in_place : the calls to judge, if not those that it claims.
    point : the number of a frontier's point, from 1, or its `StepCount`. None: its only one.

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

    skipped = 0
    if isinstance(program, str | Path):
        skipped = skipped_in(Path(program))
        path, rooted = Path(program), collective is None and len(roots) == 1
        program = load_program(path, point=point, root=roots[0] if rooted else None, runtime=runtime)
        if collective is not None:
            task = task_of(collective, program.ranks, roots)
            if task != program.collective:
                program = replace(load_program(path, point=point, collective=task, runtime=runtime), collective=task)
    elif collective is not None:
        program = replace(program, collective=task_of(collective, program.ranks, roots))
    if runtime is None and program.one_sided:
        runtime = "mscclpp"
    report = check(program, runtime, in_place)
    if skipped:
        report = replace(report, findings=(*report.findings, skipped_elements(skipped)))
    return report


def export_program(
    source: str | Path | ParetoFrontier | Schedule | Program,
    to: str = ExportRequest.to,
    *,
    runtime: str = ExportRequest.runtime,
    point: int | StepCount | None = ExportRequest.point,
    protocol: str | None = ExportRequest.protocol,
    instances: int | None = ExportRequest.instances,
    in_place: InPlace | None = ExportRequest.in_place,
    topology: TopologyLike | None = ExportRequest.topology,
    rank_map: Sequence[int] | None = ExportRequest.rank_map,
    assume_root: int | None = ExportRequest.assume_root,
    assume_nvlink: bool = ExportRequest.assume_nvlink,
    assume_one_node: bool = ExportRequest.assume_one_node,
    min_size: int | str = ExportRequest.min_size,
    max_size: int | str | None = ExportRequest.max_size,
    size: int | str | None = ExportRequest.size,
    collective: CollectiveLike | None = ExportRequest.collective,
    root: int | None = ExportRequest.root,
    plan_version: str = ExportRequest.plan_version,
    lanes: int | None = ExportRequest.lanes,
    hints: SendHints | None = ExportRequest.hints,
    blocks: int | None = ExportRequest.blocks,
    reads: bool | None = ExportRequest.reads,
) -> ExportResult:
    """Return the file of a program for another runtime.

    Parameters
    ----------
    source : a frontier, schedule or program, or a file of one.
    to : the format (`synth list exporters`).
    runtime : one of the format's runtimes. "": the first of them.
    point : the number of a frontier's point, from 1, or its `StepCount`. None: the only one.
    protocol, instances : with which a schedule is lowered. None: the exporter's choice.
    in_place : the calls that it is for. None: both where that can be.
    topology : the machine that it is for, from which kinds of links are taken. None: the one that the schedule names,
        if its links are the same.
    rank_map : the machine's rank of each rank of the schedule. None: the labels of an allocation, or a match.
    assume_root : every call of the job has this root.
    assume_nvlink, assume_one_node : all links are NVLink; all ranks are in one box.
    min_size, max_size : the bytes for which the runtime uses the file.
    size : the bytes of the call that a timeline shows. None: the executor's own.
    collective, root : of a file that does not say them.
    plan_version : the version of MSCCL++ whose format a plan has.
    lanes : the most connections of one route. None: its units, fewer where the runtime's limits demand it.
    hints : thread blocks, channels, connections and pieces of single sends, such as `Compiled.hints` of a program; not
        of MSCCL++ plans.
    blocks : of MSCCL++ plans, thread blocks of a rank to start from. None: 16 for each instance.
    reads : of MSCCL++ plans, sums read what other ranks of the box have where it lies. None: where no rank takes
        several sums at once.

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
    machine = None if topology is None else named_topology(topology)
    placing = None if rank_map is None else integers(rank_map, "rank_map")
    least = size_in_bytes(min_size, "min_size") if min_size else 0
    greatest = None if max_size is None else size_in_bytes(max_size, "max_size")
    bytes_of_call = None if size is None else size_in_bytes(size)
    request = ExportRequest(
        to, runtime, machine, placing, in_place, assume_root, assume_nvlink, assume_one_node, least, greatest, point,
        protocol, instances, bytes_of_call, collective, root, plan_version, lanes, hints, blocks, reads,
    )  # fmt: skip
    return export_request(source, request)


def export_request(source: str | Path | ParetoFrontier | Schedule | Program, request: ExportRequest) -> ExportResult:
    """Export as `export_program` does, with all options as one value."""
    from synth.export import exported_files
    from synth.export.request import Machine, Target
    from synth.model.registry import find
    from synth.runtime.call import timed_links

    find("exporters", request.to, exported_files.EXPORTERS, exported_files.OF_SCHEDULES)  # a wrong name comes first
    found = _source(source, request)
    chosen = size_choice(source, found)
    if isinstance(found, ParetoFrontier):
        exported_files.named_point(found, request)  # refused before anything is made of its machine
    machine = None if request.topology is None else named_topology(request.topology)
    ranks, said, facts = request.rank_map, [], None if machine is None else Machine.of(machine)
    if isinstance(found, ParetoFrontier | Schedule):
        labels = found.labels if isinstance(found, ParetoFrontier) else ()
        ranks, facts, said = placed(found.network, labels, machine, request.rank_map)
    if chosen is not None:
        request, text = _as_chosen(request, chosen)
        said += [text]
    links = None if machine is None else machine.network()
    if not isinstance(found, ParetoFrontier | Schedule):
        links = timed_links(machine, found)
    target = Target(
        request,
        ranks=None if ranks is None else tuple(ranks),
        links=links,
        machine=facts,
        timeline=_timeline,
    )
    made = exported_files.export_point(found, target)
    return replace(made, remarks=(*said, *made.remarks))


def _as_chosen(request: ExportRequest, chosen: SizeChoice) -> tuple[ExportRequest, str]:
    """Return `request` with the size and the protocol of a choice by size where it names none, and what is written."""
    from synth.export import EXPORTERS, OF_SCHEDULES
    from synth.model.registry import find

    exporter = find("exporters", request.to, EXPORTERS, OF_SCHEDULES)()
    runtime = request.runtime.lower() or exporter.runtimes[0]
    protocol = request.protocol or chosen.protocol or LoweringOptions.protocol
    if request.protocol is None and runtime == "mscclpp" and protocol == "LL128":
        protocol, chosen_in = "Simple", "LL128, which MSCCL++ does not have: written in Simple"
    elif protocol == chosen.protocol:
        chosen_in = protocol
    else:
        chosen_in = f"{chosen.protocol or 'no protocol'}, written in {protocol}"
    target = request.to if request.to == runtime else f"{request.to} for {runtime}"
    text = f"the schedule chosen at {size_text(chosen.size)} in {chosen_in}, as {target}"
    return replace(request, protocol=protocol, size=request.size or chosen.size), text


def _source(
    source: str | Path | ParetoFrontier | Schedule | Program, request: ExportRequest
) -> ParetoFrontier | Schedule | Program:  # fmt: skip
    if not isinstance(source, str | Path):
        return source
    task, root = request.collective, request.root
    if isinstance(task, str | Path | Mapping):
        task = task_of(task, load_program(source).ranks, () if root is None else (root,))
    return read(Path(source), task, root)


def placed(
    network: Network, labels: Sequence[int], machine: Topology | None, rank_map: Sequence[int] | None
) -> tuple[Sequence[int], Machine | None, list[str]]:
    """Return the machine's rank of each rank of `network`, the kinds of its links with its boxes, and remarks.

    `labels`: the machine's own numbers of the ranks, () for 0, 1, 2, … `machine` None: the known one whose links
    `network` has; kinds and boxes are None where there is none. `rank_map` None: by the labels, or by a match of the
    links. Raises UsageError where the machine has another number of ranks.
    """
    from synth.export import rank_map as rankmap
    from synth.export.request import Machine
    from synth.topologies import rank_placement

    links, said = None if machine is None else machine.network(), []
    if links is not None and links.ranks != network.ranks:
        raise UsageError(f"{links.name} has {links.ranks} ranks, the schedule is for {network.ranks}")
    default = rankmap.ranks_from_labels(labels, network.ranks)
    ranks = default if rank_map is None else rank_map
    if rank_map is None and links is not None:
        ranks, matched = rank_placement.place(network, links, default)
        said += (
            [f"ranks of {network.name} matched to those of {links.name}: {','.join(map(str, ranks))}"]
            if matched
            else []
        )
    facts = None if machine is None else Machine.of(machine)
    if (
        machine is None
        and (made_for := rank_placement.known(network)) is not None
        and sorted(ranks) == list(range(network.ranks))
    ):
        facts = Machine.of(made_for).relabelled(ranks)
    return ranks, facts, said


def _timeline(program: Program, network: Network, size: int | None) -> Sequence[OpEvent]:
    from synth.runtime import call as calls
    from synth.runtime.run_request import RunRequest

    request = RunRequest(size=size, in_place=program.in_place == "in", data=False, bound=False, options={"trace": True})
    return calls.run(calls.Call(program, network, request)).execution.events or ()
