"""Export of a frontier, schedule or program to the files of one format, for `synth export` and `synth.export_program`.

ExportResult  the files, and remarks for the user
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from synth.errors import SynthError, UsageError
from synth.export import EXPORTERS, OF_SCHEDULES, rank_map
from synth.export.folder_notes import divisor, span
from synth.export.msccl_xml.limits import root_warning, unnamed_remark
from synth.export.request import ExportRequest, Target
from synth.model.documents import whole_file
from synth.model.frontier import Frontier
from synth.model.rational import counted
from synth.model.registry import find
from synth.model.schedule import Schedule
from synth.program import checked_lowering
from synth.program.analysis import check, largest_safe_size
from synth.program.lowering_options import LoweringOptions
from synth.program.program import Program
from synth.program.runtimes import RUNTIMES

# the largest size in bytes of a program with scratch for msccl, which reserves scratch for it at the start, if neither
# the program nor the user sets one
SCRATCH_SIZE = 1 << 30


@dataclass(frozen=True)
class ExportResult:
    """The result of an export.

    `files`: (name, text) of each file. A single file has the name "". Two files for the two kinds of call have the
    suffixes "" and "-in-place" as names; files of a folder have their full names. `suffix`: of the file name, such as
    ".xml". `remarks`: sentences for the user. `env`: the file names that the variables of a folder list. `notes`: the
    Markdown page beside a folder.
    """

    files: tuple[tuple[str, str], ...]
    suffix: str
    remarks: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    notes: str = ""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {counted(len(self.files), f'{self.suffix} file')}>"

    @property
    def text(self) -> str:
        """The text of the only file. Raises UsageError where there are several."""
        if len(self.files) > 1:
            raise UsageError(f"the export has {len(self.files)} files; `files` has their names and texts")
        return "".join(text for _, text in self.files)

    def write(self, path: str | Path) -> list[Path]:
        """Write the files, and return their paths. Raises SynthError where one cannot be written.

        `path` is the file, beside which the second of two kinds of call goes; or the folder of files with full names.
        """
        # Names that are more than a suffix make a folder.
        path, full_names = Path(path), any(name and not name.startswith("-") for name, _ in self.files)
        if full_names:
            path.mkdir(parents=True, exist_ok=True)
        written = []
        for name, text in self.files:
            target = path / name if full_names else path.with_name(path.stem + name + path.suffix)
            whole_file.write(target, text)
            written.append(target)
        return written


def export_point(source: Frontier | Schedule | Program, target: Target) -> ExportResult:
    """Export a program, a schedule or one point of a frontier, as one file or two (out of place and in place).

    Of a frontier, the point is the request's, or the only one. Raises UsageError if the request contradicts itself,
    SynthError if the runtime cannot take the program.
    """
    exporter = find("exporters", target.request.to, EXPORTERS, OF_SCHEDULES)()
    to, runtime = target.request.to, target.request.runtime.lower() or exporter.runtimes[0]
    if runtime not in exporter.runtimes:
        raise UsageError(f"{to} is not for the runtime {runtime!r}; it is for {', '.join(exporter.runtimes)}")
    target = replace(target, request=replace(target.request, to=to.lower(), runtime=runtime))
    remarks = []
    if isinstance(source, Frontier):
        number = named_point(source, target.request)
        point = source.points[number - 1]
        program = program_for_runtime(source.schedule_of(point, checked_lowering.MAX_SENDS), target)
        remarks.append(f"this is point {number} (S={point.steps}, R={point.rounds}, C={point.chunks}) of the frontier")
    else:
        program = program_for_runtime(source, target)
    # The network of what is exported: the machine's, or the schedule's own on the ranks there.
    network = target.links
    if not isinstance(source, Program):
        network = rank_map.network(source.network, target.ranks or range(source.network.ranks))
    placed_target = replace(target, network=network)
    files = [(suffix, exporter.emit(placed, placed_target)) for suffix, placed in program_variants(program, target)]
    check_program(program, target)
    if target.request.to == "msccl-xml":
        sizes = span(program.min_bytes, program.max_bytes)
        remarks.append(f"the file serves {sizes} where {divisor(program, target.request.runtime)}")
        said = (root_warning(program), unnamed_remark(program, RUNTIMES[target.request.runtime]))
        remarks += filter(None, said)
    elif hasattr(exporter, "remarks"):
        remarks += exporter.remarks(program, target)
    return ExportResult(tuple(files), exporter.suffix, (*remarks, *rank_remarks(source, target)))


def rank_remarks(source: Frontier | Schedule | Program, target: Target) -> list[str]:
    """Return remarks where the machine's links are unknown: that none was checked, and the devices of the ranks."""
    remarks = []
    if target.links is None and target.ranks and list(target.ranks) != sorted(target.ranks):
        remarks.append(
            "the ranks are renumbered, and the machine's links are not known, so none was checked; name it with --topo"
        )
    labels = sorted(source.labels) if isinstance(source, Frontier) else []
    if target.links is None and labels and labels != list(range(len(labels))):
        remarks.append(
            f"made for the devices {','.join(map(str, labels))}, which must be ranks 0 to {len(labels) - 1} of the "
            f"communicator"
        )
    return remarks


def named_point(frontier: Frontier, request: ExportRequest) -> int:
    """Return the number of the point that `request` names, or of the only one.

    Raises UsageError where it names none, TooManySendsError where no program is made of so large a schedule.
    """
    points = frontier.points
    if not points:
        raise SynthError("the frontier has no point")
    # A frontier of one point needs no choice.
    point = 1 if request.point is None and len(points) == 1 else request.point
    if point is None:
        raise UsageError(
            f"the frontier has {len(points)} points; choose one with --point K or --step S, or let `synth build` or "
            f"`synth tune --from FILE` choose for each size"
        )
    number = frontier.number_of(point)
    frontier.check_sends(points[number - 1], checked_lowering.MAX_SENDS)
    return number


def program_for_runtime(source: Schedule | Program, target: Target) -> Program:
    """Return the program for the runtime of `target`, offered only for sizes at which no rank waits for ever.

    A schedule is lowered; a program keeps its ops. Raises UsageError if the request has options for schedules only,
    VerificationError if no size is safe.
    """
    request, runtime = target.request, target.request.runtime
    if isinstance(source, Program):
        if request.instances is not None or target.ranks is not None:
            raise UsageError(
                "a program has its instances and ranks already; --instances and --rank-map are for schedules"
            )
        if request.blocks is not None or request.reads is not None:
            raise UsageError("a program has its thread blocks and ops already; --blocks and --reads are for schedules")
        in_place = request.in_place or source.in_place
        program = replace(source, protocol=request.protocol or source.protocol, in_place=in_place)
    else:
        program = _lowered(source, target)
    if runtime not in RUNTIMES or runtime == "synth":
        return program
    # Up to this size no rank waits for ever, as the FIFOs are deep enough.
    safe = largest_safe_size(program, runtime)
    if safe == 0:
        check(program, runtime).require_right(program.name)
    tops = [size for size in (program.max_bytes, safe, request.max_size) if size is not None]
    if not tops and runtime == "msccl" and any(gpu.scratch for gpu in program.gpus):
        tops = [SCRATCH_SIZE]
    return replace(program, min_bytes=max(program.min_bytes, request.min_size), max_bytes=min(tops, default=None))


def check_program(program: Program, target: Target) -> None:
    """Prove the program right by the analysis of its data flow. Raises VerificationError with the first finding."""
    runtime = target.request.runtime
    if runtime in RUNTIMES and runtime != "synth":
        check(program, runtime).require_right(program.name)


def _lowered(schedule: Schedule, target: Target) -> Program:
    if schedule.uses_multicast and target.request.runtime not in ("synth", "mscclpp"):
        raise UsageError(
            f"files for {target.request.runtime} hold no sends of switches that multicast; take a schedule without "
            "(`synth pareto --no-multicast`), --to mscclpp, or `synth run`, which emulates them"
        )
    request = target.request
    if request.hints and target.ranks and list(target.ranks) != sorted(target.ranks):
        raise UsageError("hints name the schedule's own ranks; they take no rank map")
    schedule = rank_map.relabelled(schedule, target.ranks) if target.ranks else schedule
    if target.links is not None:
        rank_map.check_links(schedule, target.links)
    options = LoweringOptions(
        request.runtime,
        request.protocol or LoweringOptions.protocol,
        request.instances or LoweringOptions.instances,
        request.in_place,
    )
    if options.runtime == "mscclpp":
        if request.lanes is not None or request.hints:
            raise UsageError("lanes and hints are of two-sided programs; a MSCCL++ plan has none")
        nodes = target.machine.nodes if target.machine else None
        onesided = replace(options, nodes=nodes, blocks=request.blocks, reads=request.reads)
        return checked_lowering.onesided(schedule, onesided)
    if request.blocks is not None or request.reads is not None:
        raise UsageError("--blocks and --reads are of MSCCL++ plans; leave them out for other formats")
    return checked_lowering.lower(schedule, replace(options, lanes=request.lanes, hints=request.hints))


def program_variants(program: Program, target: Target) -> Sequence[tuple[str, Program]]:
    """Return (suffix, program) of each file: two if the program is for both kinds of call and the runtime needs a file
    for each, else one."""
    if (
        program.in_place == "both"
        and target.request.runtime in RUNTIMES
        and RUNTIMES[target.request.runtime].exact_in_place
    ):
        return (("", replace(program, in_place="out")), ("-in-place", replace(program, in_place="in")))
    return (("", program),)
