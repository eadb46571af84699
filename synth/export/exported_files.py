"""From a frontier, schedule or program to the files of one format: what `synth export` and `synth.export_program` do.

Wish      what the user asked for
Exported  the texts that answer it, and what the user should know
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from synth.errors import SynthError, UsageError, VerificationError
from synth.export import EXPORTERS, point_choice, rank_map
from synth.export import folder_notes as notes
from synth.export.msccl_xml.limits import root_warning
from synth.export.point_choice import Candidate
from synth.export.request import Request
from synth.model.frontier import Frontier
from synth.model.registry import find
from synth.model.schedule import Schedule
from synth.model.topology import Network
from synth.program.analysis import check, safe_sizes
from synth.program.checked_lowering import lower, onesided
from synth.program.program import InPlace, Program
from synth.program.runtimes import RUNTIMES

MSCCL_FILES = 4
SCRATCH_SIZE = 1 << 30  # msccl reserves scratch for the largest size at the start: this one, where nobody says another


@dataclass(frozen=True)
class Wish:
    """`ranks`: the machine's rank of each rank of the schedule; `links`: the machine's, to be checked (None: not
    known).

    `sizes` in bytes, of elements of `element` bytes, are to be served; `low` and `high` bound the sizes offered.
    `protocol` and `instances` None: Simple and 1, or as the program has them.
    """

    to: str = "msccl-xml"
    request: Request = field(default_factory=Request)
    protocol: str | None = None
    instances: int | None = None
    in_place: InPlace | None = None
    ranks: tuple[int, ...] | None = None
    links: Network | None = None
    point: int | None = None
    sizes: tuple[int, ...] = ()
    element: int = 4
    low: int = 0
    high: int | None = None


@dataclass(frozen=True)
class Exported:
    """`files`: name → text, "" for the only one; more than one only of a folder or where a runtime wants two.

    `env` and `notes` belong beside a folder.
    """

    files: tuple[tuple[str, str], ...]
    suffix: str
    remarks: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    notes: str = ""


def one(source: Frontier | Schedule | Program, wish: Wish) -> Exported:
    """One program's file, or two where the runtime wants one in place and one out of place. Raises SynthError,
    UsageError."""
    exporter, wish = _exporter(wish)
    remarks: list[str] = []
    if isinstance(source, Frontier):
        candidate = _chosen(source, wish, remarks)
        program, task = candidate.program, candidate.point.schedule
        remarks.insert(0, candidate.text)
    else:
        program = offered(source, wish)
        task = source if isinstance(source, Schedule) else None
    network = rank_map.network(task.network, wish.ranks or range(task.network.ranks)) if task else wish.links
    request = replace(wish.request, network=network)
    files = [(suffix, exporter.emit(placed, request)) for suffix, placed in places(program, wish)]
    proved(program, wish)
    if wish.to == "msccl-xml":
        remarks.append(f"serves {notes.span(program.min_bytes, program.max_bytes)} where {notes.divisor(program)}")
        remarks += [warning] if (warning := root_warning(program)) else []
    elif hasattr(exporter, "remarks"):
        remarks += exporter.remarks(program)
    return Exported(tuple(files), exporter.suffix, (*remarks, *placement(source, wish)))


def folder(frontier: Frontier, wish: Wish) -> Exported:
    """All points of `frontier`, each for the sizes at which it is predicted fastest. Raises SynthError, UsageError."""
    exporter, wish = _exporter(wish)
    if wish.to != "msccl-xml":
        raise UsageError(f"--all writes a folder of MSCCL-IR files; export points to {wish.to} one by one with --point")
    lost: list[str] = []
    able = _able(frontier, wish, lost)
    kept = [c for c in able if not any(point_choice.indivisible(c.program, size, wish.element) for size in wish.sizes)]
    for c in able:
        if kept and c not in kept:
            lost.append(f"{c.text}: {_reasons(c, wish)}")
    most = MSCCL_FILES // len(places(able[0].program, wish)) if wish.request.runtime == "msccl" else None
    served, out = point_choice.fewest(frontier, kept or able, most)
    lost += [f"{c.text}: msccl loads at most {MSCCL_FILES} files; export it alone with --point {c.number}" for c in out]
    used = {item.candidate.number for item in served}
    lost += [f"{c.text}: predicted slower than the others at every size that it may serve" for c in kept or able
             if c.number not in used and c not in out]  # fmt: skip
    request = replace(wish.request, network=frontier.network)
    files: list[tuple[str, str]] = []
    rows = []
    for item in served:
        names = []
        for suffix, program in places(item.program, wish):
            point = item.candidate.point
            stem = f"{frontier.collective.name}-S{point.steps}-R{point.rounds}-C{point.chunks}"
            names.append(f"{len(files) + 1:02d}-{stem}{suffix}{exporter.suffix}")
            files.append((names[-1], exporter.emit(program, request)))
        rows.append((item, names))
    remarks = (
        [f"{frontier.network.name} gives its links no latency, so the prediction favours bandwidth alone"]
        if not frontier.network.latency
        else []
    )
    remarks += [warning] if (warning := root_warning(served[0].candidate.program)) else []
    remarks += (
        [f"no point divides every one of the listed sizes: {'; '.join(_reasons(c, wish) for c in able)}"]
        if not kept
        else []
    )
    remarks += placement(frontier, wish)
    runtime = wish.request.runtime
    page = notes.notes(runtime, f"{frontier.collective.name} on {frontier.network.name}", rows, lost, remarks)
    return Exported(tuple(files), exporter.suffix, (*lost, *remarks), tuple(name for name, _ in files), page)


def placement(source: Frontier | Schedule | Program, wish: Wish) -> list[str]:
    """What a user must know of the ranks: which devices they are, and that links were not checked."""
    said = []
    if wish.links is None and wish.ranks and list(wish.ranks) != sorted(wish.ranks):
        said.append(
            "the ranks are renumbered, and the machine's links are not known, so none was checked; name it with --topo"
        )
    labels = sorted(source.labels) if isinstance(source, Frontier) else []
    if wish.links is None and labels and labels != list(range(len(labels))):
        said.append(
            f"made for the devices {','.join(map(str, labels))}, which must be ranks 0 to {len(labels) - 1} of the "
            f"communicator"
        )
    return said


def _exporter(wish: Wish) -> tuple:
    exporter = find("exporters", wish.to, EXPORTERS)()
    runtime = wish.request.runtime.lower() or exporter.runtimes[0]
    if runtime not in exporter.runtimes:
        raise UsageError(f"{wish.to} is not for the runtime {runtime!r}; it is for {', '.join(exporter.runtimes)}")
    return exporter, replace(wish, to=wish.to.lower(), request=replace(wish.request, runtime=runtime))


def _chosen(frontier: Frontier, wish: Wish, remarks: list[str]) -> Candidate:
    points = frontier.points
    if not points:
        raise SynthError("the frontier has no point")
    if wish.point is not None:
        if not 1 <= wish.point <= len(points):
            raise UsageError(
                f"--point {wish.point}: the frontier has points 1 to {len(points)}, in the order of its table"
            )
        point = points[wish.point - 1]
        return Candidate(wish.point, point, offered(point.schedule, wish))
    if len(points) == 1:
        return Candidate(1, points[0], offered(points[0].schedule, wish))
    if not wish.sizes:
        raise UsageError(
            f"the frontier has {len(points)} points; choose with --point K, with --sizes, or export --all of them"
        )
    able = _able(frontier, wish, remarks)
    best = point_choice.preferred(frontier, able, wish.sizes, wish.element)
    remarks += [f"{c.text}: {why}" for c in able if (why := _reasons(c, wish))]
    return best


def _able(frontier: Frontier, wish: Wish, lost: list[str]) -> list[Candidate]:
    """The points that the runtime takes; why not the others goes to `lost`."""
    able: list[Candidate] = []
    error: SynthError | None = None
    for number, point in enumerate(frontier.points, 1):
        try:
            program = offered(point.schedule, wish)
            for _, placed in places(program, wish):
                find("exporters", wish.to, EXPORTERS)().emit(placed, replace(wish.request, network=frontier.network))
            proved(program, wish)
            able.append(Candidate(number, point, program))
        except (UsageError, VerificationError):
            raise
        except SynthError as refused:
            error = error or refused
            lost.append(f"point {number} (S={point.steps}, R={point.rounds}, C={point.chunks}): {refused}")
    if not able:
        raise error or SynthError("the frontier has no point")
    return able


def _reasons(candidate: Candidate, wish: Wish) -> str:
    return "; ".join(why for size in wish.sizes if (why := point_choice.serves(candidate.program, size, wish.element)))


def offered(source: Schedule | Program, wish: Wish) -> Program:
    """The program for the wish's runtime, with the sizes at which it may be used."""
    runtime = wish.request.runtime
    if isinstance(source, Program):
        if wish.instances is not None or wish.ranks is not None:
            raise UsageError(
                "a program has its instances and ranks already; --instances and --rank-map are for schedules"
            )
        program = replace(source, protocol=wish.protocol or source.protocol, in_place=wish.in_place or source.in_place)
    else:
        program = _lowered(source, wish)
    if runtime not in RUNTIMES or runtime == "synth":
        return program
    safe = safe_sizes(program, runtime)
    if safe == 0:
        raise SynthError(f"{program.name} does not run on {runtime}: {_first(program, runtime)}")
    tops = [size for size in (program.max_bytes, safe, wish.high) if size is not None]
    if not tops and runtime == "msccl" and any(gpu.scratch for gpu in program.gpus):
        tops = [SCRATCH_SIZE]
    return replace(program, min_bytes=max(program.min_bytes, wish.low), max_bytes=min(tops, default=None))


def proved(program: Program, wish: Wish) -> None:
    """Follows the data through the program before its file is handed out. Raises SynthError with the first finding."""
    runtime = wish.request.runtime
    if runtime in RUNTIMES and runtime != "synth" and not check(program, runtime).ok:
        raise SynthError(f"{program.name} is wrong: {_first(program, runtime)}")


def _first(program: Program, runtime: str) -> str:
    errors = check(program, runtime).errors
    return f"{errors[0]}" + (f" (and {len(errors) - 1} more; see synth lint)" if len(errors) > 1 else "")


def _lowered(schedule: Schedule, wish: Wish) -> Program:
    schedule = rank_map.relabelled(schedule, wish.ranks) if wish.ranks else schedule
    if wish.links is not None:
        rank_map.check_links(schedule, wish.links, wish.links.name)
    runtime, protocol, instances = wish.request.runtime, wish.protocol or "Simple", wish.instances or 1
    if runtime == "mscclpp":
        nodes = wish.request.machine.nodes if wish.request.machine else None
        return onesided(schedule, protocol=protocol, instances=instances, in_place=wish.in_place or "out", nodes=nodes)
    return lower(schedule, runtime=runtime, protocol=protocol, instances=instances, in_place=wish.in_place)


def places(program: Program, wish: Wish) -> Sequence[tuple[str, Program]]:
    """The program, twice where it is right in place and out of place and the runtime wants a file for each."""
    if (
        program.in_place == "both"
        and wish.request.runtime in RUNTIMES
        and RUNTIMES[wish.request.runtime].exact_in_place
    ):
        return (("", replace(program, in_place="out")), ("-in-place", replace(program, in_place="in")))
    return (("", program),)
