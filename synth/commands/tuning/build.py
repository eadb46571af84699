"""`synth build` and `synth.build`: from a machine to a folder of checked algorithms in one call.

Synthesis, choice by size, export, and the check of each file.

The answers of finished searches are kept in the cache directory: a build of the same machine, in any folder, has the
same files, and the same call continues after an end.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from synth.catalog.tuner.request import SIZES, TuningRequest
from synth.commands.framework.declaration import command, flags_not_default, function, option
from synth.commands.framework.output import note, wrote
from synth.commands.framework.progress import progress
from synth.commands.framework.shared import (
    Changes,
    Quiet,
    changed,
    dtype_option,
    jobs_option,
    names_option,
    sizes_option,
    time_limit_option,
)
from synth.commands.framework.types import Ranks, names_of
from synth.commands.inputs import collective as collective_of
from synth.commands.inputs import named_topology, sizes_in_bytes
from synth.commands.programs.sources import load_plan
from synth.commands.root import INTERRUPTED
from synth.commands.tuning.kept_searches import PLAN, KeptSearch, machine_digest
from synth.errors import SynthError, UsageError
from synth.export.request import Machine
from synth.model.build_result import BuildResult, BuildRow, BuiltTable, LibraryTime, PlanRegistration
from synth.model.collective import COLLECTIVES, canonical_name
from synth.model.documents.whole_file import write
from synth.model.rational import counted
from synth.model.topology import Topology
from synth.model.tuning_plan import OURS, Plan, joined
from synth.program import plan_limits
from synth.program.checked_lowering import too_many_ranks_for_plan
from synth.program.overheads import NCCL, describe
from synth.program.plan_limits import ALIGNMENT, NEWEST
from synth.solvers.deadline import Deadline, time_limited

if TYPE_CHECKING:
    from synth.commands.inputs import TopologyLike
    from synth.export.job_files import JobShape
    from synth.export.plans.folder import PlanExport
    from synth.export.plans.size_ranges import SizeShares
    from synth.model.collective import Collective
    from synth.pareto.events import Listener
    from synth.program.program import Program

# The format and the runtime of `synth export --plan`, and the protocols, () for those of the links.
RUNTIMES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "msccl-executor": ("msccl-dir", "msccl-executor", ()),
    "msccl": ("msccl-dir", "msccl", ()),
    "rccl": ("msccl-dir", "rccl", ()),
    "mscclpp": ("mscclpp-dir", "", ("Simple", "LL")),
    "nccl-tuner": ("nccl-tuner-csv", "", ()),
    "torch": ("", "synth", ("Simple",)),
}
TORCH = "torch"  # the backend `synth` of PyTorch, which takes the plan itself
TUNER = "nccl-tuner"  # the runtime that takes a file of rules instead of algorithms
SUMMARY = "build.json"
# Wall seconds of all searches of a build by default; the part of them for frontiers, the rest being for schedules of
# one size and for predicted times; the seconds of the report at least; and the CPU seconds of runs where none is left.
TIME_LIMIT, FOR_FRONTIERS, FOR_REPORT, FOR_RUNS = 30.0, 0.4, 0.3, 1.0


@dataclass(frozen=True)
class Building:
    """The options of a build."""

    topology: TopologyLike | None = option(
        "topology", default=None, required=False, metavar="[NAME|FILE]",
        shell_complete=names_of("topologies"),
        doc="the machine: a name, a path, a `Topology`, a graph of networkx or a mapping, as `synth.topology` takes. "
        "None: this machine.",
    )  # fmt: skip
    collective: str | Sequence[str] = names_option(
        "Collectives, with commas or repeated; by default allreduce,allgather.",
        "the name of one collective, or of several.", default=("allreduce", "allgather"),
    )  # fmt: skip
    output: str | Path = option(
        "-o", "--output", default="algorithms", show_default=True, metavar="DIR",
        help="The folder to write.", doc="the folder, new, empty, or of an earlier build.",
    )  # fmt: skip
    _: KW_ONLY
    runtime: str | None = option(
        "--for", default=None, type=click.Choice(list(RUNTIMES), case_sensitive=False),
        help="Runtime that loads the files; by default rccl with xGMI links, else msccl-executor.",
    )  # fmt: skip
    sizes: int | str | Iterable[int | str] = sizes_option(
        "Sizes to compare algorithms at, as nccl-tests counts.",
        'bytes, or texts such as "1MB", one or several, as nccl-tests counts them, at which algorithms are compared.',
        SIZES, 2, "1KiB:1GiB",
    )  # fmt: skip
    dtype: str = dtype_option("Type of the elements.")
    root: int | None = option(
        "--root", default=None, type=int, metavar="0",
        help="The root of rooted collectives, by default 0; the job must use no other.",
    )  # fmt: skip
    plan_version: str = option(default=NEWEST, doc="the version of MSCCL++ whose plan format mscclpp files have.")
    time_limit: float = time_limit_option(
        "Wall time of all searches; by default 30 s.", "wall seconds of all searches.", default=TIME_LIMIT
    )
    jobs: int | None = jobs_option(
        "Processes of a search; by default the number of cores.", "processes of a search. None: one for each core."
    )
    fresh: bool = option(
        "--fresh", default=False,
        help="Search anew, whatever earlier builds, or the catalog in the package, have.",
        doc="search anew. False: a search of the same machine and options is not repeated, its answer is in the cache "
        "directory; one that was interrupted, or had less time, is continued.",
    )  # fmt: skip
    on_event: Listener | None = option(default=None, doc="called with each line of progress.")


@function(Building)
def build(asked: Building) -> BuildResult:
    """Synthesize, choose, export and check algorithms for a machine, and write them into the folder `output`.

    Returns
    -------
    The predicted time of what runs at each size beside NCCL's ring and tree, the certified bound, and the files.

    Raises
    ------
    UsageError for an unknown machine, collective or runtime, SynthError where the folder cannot be written or the
    runtime takes no algorithm, VerificationError for a file that fails its check.

    Examples
    --------
    >>> import synth
    >>> made = synth.build("ring:4", "allgather", "built", sizes=["64KB"], time_limit=4)
    >>> [table.collective for table in made.tables]
    ['allgather']
    """
    from synth.export.job_files import JobShape
    from synth.pareto.events import Event
    from synth.topologies.importers import this_machine

    # The machine, the collectives and the runtime.
    root, listener = asked.root, asked.on_event or (lambda event: None)
    machine, match = _recognised(named_topology(this_machine() if asked.topology is None else asked.topology))
    names = [asked.collective] if isinstance(asked.collective, str) else asked.collective
    for name in map(canonical_name, names):
        if name in COLLECTIVES and name.endswith("v"):
            raise UsageError(
                f"{name} has chunk counts, and a build is for calls with the same count on all ranks; `synth pareto "
                f"--coll {name} --counts 2,1,...` finds its schedules, `synth export` writes one"
            )
    roots = () if root is None else (root,)
    every = [collective_of(name, machine.ranks, roots) for name in names]
    tasks = list({task.name: task for task in every}.values())
    if not tasks:
        raise UsageError("no collective given; name one, such as allreduce")
    xgmi = any(link.kind == "xgmi" for link in machine.links)
    runtime = (asked.runtime or ("rccl" if xgmi else "msccl-executor")).lower()
    if runtime not in RUNTIMES:
        raise UsageError(f"unknown runtime {runtime!r}; there are {', '.join(RUNTIMES)}")
    form, loader, protocols = RUNTIMES[runtime]
    plans_alone = runtime == "mscclpp"
    for task in tasks if plans_alone else ():
        _check_ranks(task)
    boxes = len(set(machine.nodes))
    if runtime == TORCH and boxes > 1:
        raise SynthError(f"programs in a PyTorch job run on one host, and {machine.name} has {boxes} boxes: name one")

    # The folder: new, empty, or of an earlier build, whose frontiers of other collectives stay.
    folder = Path(asked.output)
    frontiers = {task.name: folder / "frontiers" / f"{task.name}.json" for task in tasks}
    try:
        if folder.is_dir() and not (folder / "frontiers").is_dir() and any(folder.iterdir()):
            raise SynthError(f"{folder} holds other files; give a new folder, an empty one or that of an earlier build")
        (folder / "frontiers").mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        earlier = sorted(set((folder / "frontiers").glob("*.json")) - set(frontiers.values()))
    except OSError as error:
        reason = "it is a file; name a folder" if folder.is_file() else error.strerror or error
        raise SynthError(f"cannot write {folder}: {reason}") from None

    # One plan for each collective, from the cache or by a search within its part of the time that is left.
    request = TuningRequest(
        machine, (), sizes_in_bytes(asked.sizes), root=root, protocols=protocols, dtype=asked.dtype, jobs=asked.jobs,
        multicast=plans_alone, plans=plans_alone,
    )  # fmt: skip
    end = Deadline.after(asked.time_limit).end
    plans, rounded = [], []
    for place, task in enumerate(tasks):
        seconds = max(0.5, (end - time.monotonic()) / (len(tasks) - place))
        sizes, said = _whole_elements(task, request)
        rounded += [f"{task.name}: {text}" for text in said]
        kept = KeptSearch.of(
            machine_digest(machine), task.to_json(1), sizes, protocols, asked.dtype, plans_alone,
            asked.time_limit / len(tasks), describe(NCCL),
        )  # fmt: skip
        plan = None if asked.fresh else kept.load(folder / "frontiers")
        if plan is None:
            searched = replace(request, sizes=sizes, time_limit=seconds)
            plan = _planned(task, searched, frontiers[task.name], asked.fresh, listener)
            kept.save(plan, sorted((folder / "frontiers").glob(f"{task.name}.*")))
        plans.append(plan)
    in_all = set.intersection(*(set(plan.notes) for plan in plans))
    assumed = [note for note in machine.notes if note in in_all]
    write(folder / PLAN, json.dumps(joined(plans).to_json()) + "\n")
    plan = load_plan(folder / PLAN)  # replays every schedule; the report reads the same, so bounds are found once

    # The files of the runtime, and the pages.
    listener(Event("query", "files of the runtime: lowered and proved"))
    rooted = [task.roots[0] for task in tasks if len(task.roots) == 1]
    options = {"to": form, "runtime": loader, "assume_root": rooted[0] if rooted else None,
               "plan_version": asked.plan_version}  # fmt: skip
    written = _written_for_runtime(plan, machine, runtime, folder, options, listener)
    notes = [*assumed, *rounded, *_notes_on_time(plans)]
    for table in written.tables:
        if root is None and table.root is not None and any(row.files for row in table.rows):
            notes.append(f"{table.collective}: root {table.root} is assumed, since no --root was given")
    notes += written.notes
    if earlier:
        names = ", ".join(path.name for path in earlier)
        notes.append(f"of an earlier build, and in none of these files: {names} in {folder / 'frontiers'}")
    result = BuildResult(
        machine.name, match, runtime, str(folder), written.tables, written.files, plan, tuple(notes),
        written.registrations,
    )  # fmt: skip
    with time_limited(Deadline(end).at_least(FOR_REPORT)):  # a page is drawn with the rings so far
        job = JobShape.of(Machine.of(machine)) if written.files else None
        _write_pages(result, job, list(frontiers.values()), folder)
    return result


def build_boxes(
    box: str,
    boxes: Iterable[int],
    collective: str | Sequence[str] = ("allreduce", "allgather"),
    output: str | Path = "algorithms",
    **options: Any,
) -> tuple[BuildResult, ...]:
    """Build for several sizes of a cluster: for each number of boxes the folder ``boxes-N`` in `output`.

    Parameters
    ----------
    box : the name of one box, such as "dgx-a100"; options of clusters may follow: "dgx-a100:net=rail".
    boxes : the numbers of boxes.
    collective, options : as `build` takes them; `time_limit` is for all, and each number of boxes has an equal part.
    output : the folder. Folders of other numbers of boxes stay in it.

    Returns
    -------
    The builds by rising number of boxes. Of MSCCL++ plans, ``register.py`` in `output` registers
    those of all these builds: a job loads the ones for its number of ranks.

    Raises
    ------
    As `build`; what was built for fewer boxes stays.

    Examples
    --------
    >>> import synth
    >>> made = synth.build_boxes("switch:2", [1, 2], "allgather", "set", sizes=["64KB"], time_limit=4)
    >>> [build.tables[0].ranks for build in made]
    [2, 4]
    """
    return _boxes(Building(box, collective, output, **options), boxes)


def _boxes(asked: Building, boxes: Iterable[int]) -> tuple[BuildResult, ...]:
    """Build as `build_boxes` does, with all options as one value."""
    from synth.export import folder_notes
    from synth.export.plans import registration_code

    box, counts = asked.topology, sorted(set(boxes))
    if not counts or counts[0] < 1:
        raise UsageError("no number of boxes is given; boxes=(2, 4) and --boxes 2,4 name two")
    if not isinstance(box, str):
        raise UsageError("--boxes takes the NAME of one box, such as dgx-a100, and no changes of it")
    if len(set(named_topology(box).nodes)) > 1:
        raise UsageError(f"{box} is a cluster: name one box, and the numbers of boxes beside it")
    name, mark, net = box.rpartition(":")
    if "=" not in net:
        name, mark, net = box, "", ""
    built: list[BuildResult] = []
    plans: list[PlanRegistration] = []
    calls: list[tuple[str, int | None]] = []
    for count in counts:
        machine = box if count == 1 else f"{name}*{count}{mark}{net}"
        folder = Path(asked.output) / f"boxes-{count}"
        limit = asked.time_limit / len(counts)
        built.append(build.of(replace(asked, topology=machine, output=folder, time_limit=limit)))

        # The code that registers all plans so far: one module for jobs of every size.
        for plan in built[-1].registrations:
            plans.append(plan._replace(name=f"{folder.name}/mscclpp/{plan.name}"))
        for table in built[-1].tables:
            if any(row.files for row in table.rows):
                calls.append((table.collective, table.root))
        if plans:
            version, warnings = asked.plan_version, folder_notes.call_warnings("mscclpp", calls)
            write(Path(asked.output) / "register.py", registration_code.python(plans, version, warnings))
    return tuple(built)


def _whole_elements(task: Collective, request: TuningRequest) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the sizes of the request in whole elements for each part of the data, as calls have them, and a sentence.

    MSCCL++ takes chunks of whole 16 bytes alone. For its plans parts are whole multiples of these, of whose number only
    the first 6 binary digits are kept: so large parts are multiples of a power of two, which several chunks divide.
    """
    from synth.runtime.dtypes import dtype
    from synth.runtime.slicing import rounding_text, whole_elements

    parts, kind = task.buffer_units, dtype(request.dtype)
    rounded = {size: whole_elements(parts, size, kind) for size in request.sizes}
    said = rounding_text(parts, request.sizes, kind)
    if request.plans:
        parts = task.ranks if task.name == "allreduce" else parts
        for size in request.sizes:
            units = size // (ALIGNMENT * parts)
            dropped = max(0, units.bit_length() - 6)
            rounded[size] = (units >> dropped << dropped) * ALIGNMENT * parts or rounded[size]
        changes = [f"{size} to {run}" for size, run in rounded.items() if run != size]
        more = f" and {len(changes) - 4} more" if len(changes) > 4 else ""
        why = f"sizes are rounded to parts of whole 16 bytes, {parts} of them, as MSCCL++ takes no others"
        said = (f"{why}: {', '.join(changes[:4])}{more} bytes",) if changes else ()
    return tuple(sorted(set(rounded.values()))), said


def _notes_on_time(plans: Sequence[Plan]) -> list[str]:
    """Return what plans note on candidates that were not run, and a sentence on the searches that the time limit ended.

    Both follow from the notes of a plan, which are all that the cache keeps of its search.
    """
    from synth.commands.tuning.tune import LEAST, NOT_COMPLETE, NOT_TIMED

    cut, said = [], []
    for plan in plans:
        name = plan.tables[0].collective
        said += [f"{name}: {note}" for note in plan.notes if LEAST in note or NOT_TIMED in note]
        if any(note.startswith(("the time limit", NOT_COMPLETE)) for note in plan.notes):
            cut.append(name)
    if cut:
        more = "the same command with a longer --time-limit goes on from here and may find faster schedules"
        said.append(f"{', '.join(cut)}: not searched to the end; {more}")
    return said


def _check_ranks(task: Collective) -> None:
    reason = too_many_ranks_for_plan(task)
    if reason is None and task.name == "allreduce" and not plan_limits.holds_all_pairs(task.ranks):
        reason = (
            f"allreduce on {task.ranks} ranks is left to the library: NCCL's ring has at least "
            f"{2 * task.ranks * (task.ranks - 1)} sends, too many to compare plans with, which are made of at most "
            f"{plan_limits.PLAN_SENDS}"
        )
    if reason is not None:
        raise SynthError(reason)


def _recognised(machine: Topology) -> tuple[Topology, str]:
    """Return the machine by the name of the known one that it is, and the match in words; "" for a known name."""
    from synth.topologies import rank_placement
    from synth.topologies.match import match

    if rank_placement.known(machine.network()) is not None:
        return machine, ""
    found = match(machine)
    name = f"machine-{machine_digest(replace(machine, name='', notes=()))[:8]}"
    if found is not None and not found.fast_only and found.scale == 1:
        same_order = found.ranks == tuple(range(machine.ranks))
        name = found.machine if same_order else f"renumbered-{found.machine}"
    return replace(machine, name=name), "" if found is None else found.describe()


def _planned(task: Collective, request: TuningRequest, document: Path, fresh: bool, listener: Listener) -> Plan:
    """Return the plan of one collective within the time limit of the request, and write its frontier to `document`.

    `fresh`: the log of an interrupted search is ignored.
    """
    from synth.commands import pareto
    from synth.commands.framework.documents import frontier_document, write_schedules
    from synth.commands.tuning import tune
    from synth.pareto.events import Event

    # The frontier: of the package, or by a search in its share of the time. Schedules at scale have files beside it.
    seconds, machine = request.time_limit or TIME_LIMIT, request.topology
    assert isinstance(machine, Topology)
    began = time.monotonic()
    found = None if fresh else pareto.known_frontier(machine, task)
    found = found or pareto.frontier(
        machine, task, time_limit=seconds * FOR_FRONTIERS, jobs=request.jobs, fresh=fresh, on_event=listener,
        multicast=False,
    )  # fmt: skip
    files = {}
    beside = document.with_suffix(".schedules")
    shutil.rmtree(beside, ignore_errors=True)
    if found.engine == "flow":
        beside.mkdir()
        for place, name in write_schedules(found, beside):
            files[place] = f"{beside.name}/{name}"
    write(document, json.dumps(frontier_document(found, files)) + "\n")

    # The choice by size in what is left. Where a busy machine left no time for a single run, the frontier that was
    # found is not lost for it: runs get CPU time instead, which no other process can take away.
    listener(Event("query", f"{task.name}: predicted times"))
    left = max(0.3, seconds - (time.monotonic() - began))
    request = replace(request, collective=task.name, frontiers=(found,), time_limit=left)
    try:
        return tune.tune_request(request, listener)
    except SynthError as error:
        if not found.points:
            raise SynthError(
                f"no schedule of {task.name} was found within the time limit of {seconds:.3g} s, and the library has "
                f"no time for it; the same command with a longer --time-limit goes on from here"
            ) from error
        with time_limited(Deadline.after(FOR_RUNS, cpu=True)):
            return tune.tune_request(replace(request, time_limit=None), listener)


class RuntimeFiles(NamedTuple):
    """The files that a runtime loads: what runs at each size, their paths in the folder, and what users must know.

    `registrations`: the calls that MSCCL++ plans serve.
    """

    tables: tuple[BuiltTable, ...]
    files: tuple[str, ...]
    notes: tuple[str, ...]
    registrations: tuple[PlanRegistration, ...]


def _written_for_runtime(
    plan: Plan, machine: Topology, runtime: str, folder: Path, options: dict[str, Any], listener: Listener
) -> RuntimeFiles:
    """Write the files of the runtime below `folder`, and check each of them. `options`: those of `export_plan`."""
    from synth.catalog.tuner.plan_bounds import plan_bounds
    from synth.commands.programs.export import export_plan
    from synth.export import export_folder, folder_notes
    from synth.export.plans import lane
    from synth.export.plans.folder import NoFilesError, PlanExport
    from synth.export.plans.programs import NCCL as LIBRARY
    from synth.export.plans.size_ranges import Offer, shares
    from synth.pareto.events import Event

    target, notes, registrations, chosen, files = folder / runtime, [], (), [], []
    loader = options["runtime"]
    names: dict[int, tuple[str, ...]] = {}  # of the files that serve a share, by its id
    if runtime == TUNER:
        # A tuner names no schedules: of each table the library's own algorithms are left.
        made = export_plan(plan, **options)
        target.mkdir(exist_ok=True)
        write(target / "tuner.csv", made.text)
        files = [f"{TUNER}/tuner.csv"]
        for table in plan.tables:
            known = {k for row in table.ranges for k in row.order}
            offers = {k: Offer(0, None, table.element) for k in known if plan.algorithms[k].backend == LIBRARY}
            chosen.append(shares(table, offers, dict.fromkeys(known - offers.keys(), "a tuner names no schedule")))
    elif runtime == TORCH:
        # A job makes the programs itself; each that it compares is checked here as a file would be.
        for table in plan.tables:
            sizes, programs = lane.table(plan, table)
            for i, program in programs.items():
                listener(Event("query", f"{plan.algorithms[i].label}: linted and run"))
                _check(program, plan.algorithms[i].label, loader, table.collective in lane.IN_PLACE, machine)
            for share in sizes.shares:
                names[id(share)] = (PLAN,)
            chosen.append(sizes)
            notes += [f"{plan.algorithms[i].label} is in no job: {why}" for i, why in sizes.refused.items()]
        if any(sizes.offers for sizes in chosen):
            files.append(PLAN)
    else:
        try:
            made = export_plan(plan, **options)
            assert isinstance(made, PlanExport)
            export_folder.write_folder(target, made, folder_notes.env(runtime, str(target.absolute()), made.env))
            chosen, registrations = made.tables, made.registrations
            files = [f"{runtime}/{name}" for name, _ in made.files]
            for row in made.served:
                names[id(row.share)] = tuple(f"{runtime}/{name}" for name in row.files)
            if registrations:
                notes.append(f"the plans have the format of MSCCL++ {options['plan_version']}")
            calls = [(row.table.collective, row.table.root) for row in made.served]
            notes += folder_notes.call_warnings(runtime, calls)
            _check_files(target, made, runtime, machine, listener)
        except NoFilesError as error:
            chosen = error.tables
            reasons = [reason for table in chosen for reason in table.refused.values()]
            notes = [f"no file is written: {reason}" for reason in dict.fromkeys(reasons)]
    tables = []
    for table, found, bound in zip(plan.tables, chosen, plan_bounds(plan), strict=True):
        rows = _rows(plan, found, names, {} if bound is None else bound.seconds)
        tables.append(BuiltTable(table.collective, table.ranks, table.root, tuple(rows)))
    return RuntimeFiles(tuple(tables), tuple(files), tuple(notes), registrations)


def _rows(plan: Plan, found: SizeShares, names: dict[int, tuple[str, ...]], bounds: dict[int, float]) -> list[BuildRow]:
    """Return for each judged size what runs, with its time, the library's and that of the best schedule."""
    table, rows = found.table, []
    for place, (size, times) in enumerate(zip(table.sizes, table.times, strict=False)):
        order = table.at(size)
        if order is None:
            continue
        seconds = dict(zip(order.order, times, strict=True))
        schedules = []
        for i, offer in found.offers.items():
            if plan.algorithms[i].backend == OURS and offer.admits(size) and seconds.get(i) is not None:
                schedules.append(seconds[i])
        libraries = tuple(LibraryTime(library.name, library.seconds[place]) for library in table.libraries)
        row = BuildRow(
            size, "", "", (), None, min(schedules, default=None), libraries, bounds.get(size), table.estimates(place)
        )
        # A schedule of the plan, or the fastest of the library's own algorithms.
        number = found.runs(size)
        if number is not None and plan.algorithms[number].backend == OURS:
            algorithm = plan.algorithms[number]
            label = algorithm.label.removeprefix(f"{table.collective}-").removesuffix(f"-{algorithm.protocol}")
            files = names.get(id(found.at(size)), ())
            row = row._replace(algorithm=label, protocol=algorithm.protocol, files=files, seconds=seconds[number])
        elif row.library is not None:
            row = row._replace(seconds=row.library.seconds)
        rows.append(row)
    return rows


def _check_files(target: Path, made: PlanExport, runtime: str, machine: Topology, listener: Listener) -> None:
    """Check each program file. Raises VerificationError."""
    from synth.commands.programs.show import load_program
    from synth.pareto.events import Event

    for row in made.served:
        for name in row.files:
            listener(Event("query", f"{name}: linted and run"))
            program = load_program(target / name, collective=row.program.collective, runtime=runtime)
            _check(program, str(target / name), runtime, Path(name).stem.endswith("-in-place"), machine)


def _check(program: Program, name: str, runtime: str, in_place: bool, machine: Topology) -> None:
    """Lint a program, and run it on the reference executor with 16 bytes a chunk, a size that serves for all."""
    from synth.commands.programs.lint import lint
    from synth.commands.programs.run import run

    task = program.collective
    call = {"collective": task, "runtime": runtime, "roots": () if task is None else task.roots}
    lint(program, in_place="in" if in_place else None, **call).require_right(name)
    run(program, size=program.loop_chunks * 16, topology=machine, in_place=in_place, bound=False, **call)


def _write_pages(result: BuildResult, job: JobShape | None, frontiers: Sequence[Path], folder: Path) -> None:
    """Write the report, the script, the README and the summary of a build. `job`: None where it has no files."""
    from synth.commands.report import report
    from synth.export import job_files
    from synth.view.build import reports
    from synth.view.tables import report_lines

    names = [table.collective for table in result.tables]
    title = f"{', '.join(names)} on {result.topology}"
    write(folder / "report.html", report([folder / PLAN, *frontiers], title=title, verify=False).html)
    script = folder / "run.sh"
    script.unlink(missing_ok=True)  # of an earlier build
    if job is not None:
        programs = [Path(name).name for name in result.files if name.endswith((".xml", ".json", ".csv"))]
        write(script, job_files.run_script(result.runtime, programs, job))
        script.chmod(0o755)
    lines = []
    for one in reports(result):
        lines += [*report_lines(one), ""]
    sizes = [row.size for table in result.tables for row in table.rows]
    page = job_files.readme(title, result.runtime, job, names, "\n".join(lines), (min(sizes), max(sizes)))
    write(folder / "README.txt", page)
    write(folder / SUMMARY, json.dumps(result.to_json(), indent=1) + "\n")


@dataclass(frozen=True, kw_only=True)
class Build(Quiet, Changes, Building):
    """The options of `synth build`."""

    boxes: tuple[int, ...] | None = option(
        "--boxes", default=None, type=Ranks("numbers"), metavar="2,4,8",
        help="Build for so many boxes of NAME, each in a folder.",
    )  # fmt: skip


@command(Build)
def build_command(options: Build) -> int:
    """Synthesize algorithms for a machine (a name, a dump, by default this machine), choose one for each size, write
    and check the files of a runtime, and print the predicted times beside NCCL's ring and tree.

    The same machine gets the same files, in any folder: a finished search is not repeated. The same command continues
    an interrupted one.

    \b
    Examples:
      synth build topo.txt --coll allreduce,allgather -o algorithms
      synth build dgx1 --for mscclpp
      synth build dgx-a100 --boxes 2,4,8 --for mscclpp -o plans
    """
    from synth.topologies.importers import this_machine
    from synth.view.build import reports
    from synth.view.tables import print_report

    machine = options.topology
    if flags_not_default(options, "ranks", "without", "degrade", "links"):
        if options.boxes:
            raise UsageError("--boxes takes the NAME of one box, such as dgx-a100, and no changes of it")
        machine = changed(this_machine() if machine is None else machine, options)
    try:
        with progress(f"building for {options.topology or 'this machine'}") as listen:
            asked = replace(options, topology=machine, on_event=listen)
            if options.boxes:
                results = _boxes(asked, options.boxes)
            else:
                results = (build.of(asked),)
    except KeyboardInterrupt:
        note("interrupted; the same command continues from here")
        return INTERRUPTED
    for result in results:
        print_report(*reports(result))
        folder = Path(result.folder)
        if result.files:
            checked = "" if result.runtime.endswith("-tuner") else ", all linted and run,"
            files = counted(len(result.files), "file")
            wrote(f"{files} of {result.runtime}{checked} to {folder}: see {folder}/README.txt")
        else:
            wrote(f"{folder}/README.txt", f"no file for {result.runtime}, all sizes are left to the library")
    return 0
