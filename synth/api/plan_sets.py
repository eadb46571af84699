"""A set of MSCCL++ plans for one machine in several sizes: a build for each, one index, one registration."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from synth.api.arguments import keywords_checked
from synth.api.builds import SETTINGS, build, tell
from synth.api.inputs import named_topology, sizes_in_bytes
from synth.api.inputs import topology as changed_topology
from synth.catalog.tuner.request import SIZES, TuningRequest
from synth.errors import FormatError, SynthError, UsageError, VerificationError
from synth.export.folder_notes import call_warnings
from synth.export.job_files import NCCL_TESTS
from synth.export.plans import registration_code
from synth.export.request import HOST_RANKS, ExportRequest
from synth.model.collective import COLLECTIVES, canonical_name
from synth.model.documents import json_reader
from synth.model.documents.text_file import text_of
from synth.model.documents.whole_file import write
from synth.model.plan_registration import PlanRegistration
from synth.model.plan_set import PlanSet, PlanSetPart
from synth.model.topology import Topology
from synth.program.plan_limits import NEWEST
from synth.version import __version__

if TYPE_CHECKING:
    from synth.pareto.events import Event, Listener

INDEX = "index.json"


@dataclass(frozen=True)
class _Machine:
    """One size of the machine.

    `hosts`: True where a box is one host, as MSCCL++ counts ranks of a node. `notes`: a sentence on which GPUs they
    are, where they do not fill their boxes.
    """

    name: str
    topology: Topology
    hosts: bool
    notes: tuple[str, ...] = ()


@keywords_checked
def plans(
    machine: str,
    boxes: Iterable[int] = (1,),
    collective: str | Sequence[str] = ("allreduce", "allgather"),
    output: str | Path = "plans",
    *,
    gpus: Iterable[int] = (),
    sizes: int | str | Iterable[int | str] = SIZES,
    dtype: str = TuningRequest.dtype,
    root: int | None = None,
    plan_version: str = NEWEST,
    time_limit: float | None = None,
    jobs: int | None = None,
    fresh: bool = False,
    on_event: Listener | None = None,
) -> PlanSet:
    """Write MSCCL++ plans for a machine in several sizes into the folder `output`, each linted and run.

    Parameters
    ----------
    machine : the name of one box, such as "dgx-a100"; options of clusters may follow: "dgx-a100:net=rail".
    boxes : numbers of boxes.
    collective : the name of one collective, or of several.
    output : the folder, new, empty, or of an earlier call for the same machine and version. Plans of other numbers of
        ranks and other collectives stay in it. Of those that are named, the ones made with the same sizes, type and
        root are kept, the others are replaced.
    gpus : further numbers of GPUs: the first of each box, in as few equal boxes as have so many.
    sizes : bytes, or texts such as "1MB", one or several, as nccl-tests counts them, at which algorithms are compared.
    dtype : the type of the elements for which they are compared. Plans serve all types.
    root : the root of rooted collectives, by default 0. The job must use no other.
    plan_version : the version of MSCCL++ whose plan format is written.
    time_limit : wall seconds of all searches, of which each number of ranks and collective has an equal part. None: 30
        for each number of ranks. Where the part is longer than an earlier call's, that search is continued.
    jobs : processes of a search. None: one for each core.
    fresh : search anew, and keep nothing of the collectives that are named, unless the search finds nothing.
    on_event : called with each line of progress.

    Returns
    -------
    All plans of the folder with the calls that each serves, and for each size the predicted time of what runs and of
    the library. ``index.json`` has the same; ``register.py`` and ``register.hpp`` register all of them. All three are
    written after each collective, so a call that is interrupted leaves what it has found, and the same call goes on
    from there.

    Raises
    ------
    UsageError for an unknown machine, collective or version, SynthError where the folder cannot be written or no number
    of ranks has a plan, VerificationError for a plan that fails its check.

    Examples
    --------
    >>> import synth
    >>> made = synth.plans("switch:3", [1, 2], "allgather", "set", sizes=["64KB"], time_limit=8)
    >>> [part.ranks for part in made.parts]
    [3, 6]
    """
    ExportRequest(plan_version=plan_version)  # refuses an unknown version before anything is searched
    given = [collective] if isinstance(collective, str) else list(collective)
    names = list(dict.fromkeys(map(canonical_name, given)))
    if not names:
        raise UsageError("no collective given; name one, such as allreduce")
    unknown = next((name for name in names if name in COLLECTIVES and name not in NCCL_TESTS), None)
    if unknown is not None:
        raise UsageError(
            f"NCCL and RCCL have no single call for {unknown}, so none would ask for its plans; `synth export --to "
            "mscclpp` writes one of a schedule, for a job that calls MSCCL++ itself"
        )
    judged = sizes_in_bytes(sizes)
    machines = _machines(machine, boxes, gpus)
    seconds = round((SETTINGS.time_limit if time_limit is None else time_limit / len(machines)) / len(names), 3)
    folder = Path(output)
    least = None if time_limit is None else seconds
    result = _earlier(folder, machine, plan_version)
    named, built = [], set()
    for place, one in enumerate(machines, 1):
        options = [__version__, one.topology.network().to_json(), judged, dtype, root]
        key = hashlib.sha256(json.dumps(options).encode()).hexdigest()[:12]
        for note in one.notes:
            tell(on_event, f"{one.name}: {note}")
        for name in names:
            earlier = _of_collective(result, one.name, name)
            if earlier is not None and not fresh and _serves(earlier, name, key, least, folder):
                named.append(earlier)
                continue
            listen = None if on_event is None else _labelled(on_event, f"{one.name} ({place} of {len(machines)})")
            done = PlanSetPart(one.name, one.topology.ranks, key, notes=one.notes, seconds=((name, seconds),))
            try:
                with tempfile.TemporaryDirectory(prefix=".", dir=folder) as unfinished:
                    made = build(
                        one.topology, name, Path(unfinished) / name, runtime="mscclpp", sizes=judged, dtype=dtype,
                        root=root, plan_version=plan_version, time_limit=seconds, jobs=jobs, fresh=fresh,
                        box_is_host=one.hosts, on_event=listen,
                    )  # fmt: skip
                    _move(Path(unfinished) / name, folder / one.name / name)
            except (UsageError, VerificationError):
                raise
            except SynthError as error:
                if earlier is not None and earlier.plans and _serves(earlier, name, key, None, folder):
                    done = _kept(earlier, name, error)
                else:
                    done = replace(done, refused=((name, str(error)),))
                    built.add(f"{one.name}/{name}")
            else:
                registered = tuple(_placed(plan, one, name) for plan in made.registrations)
                done = replace(done, plans=registered, tables=made.tables, notes=(*one.notes, *made.notes))
                built.add(f"{one.name}/{name}")
            named.append(done)
            result = _earlier(folder, machine, plan_version)  # another call may have added to it meanwhile
            result = _with(_without(result, one.name, name), done)
            _write(folder, result)
    if not any(part.tables for part in named):
        reasons = [f"{part.name}: {reason}" for part in named for _, reason in part.refused]
        raise SynthError(f"no plan is written: {'; '.join(reasons)}")
    _write(folder, result)
    return replace(result, kept=tuple(name for name in result.builds if name not in built))


def _move(build: Path, target: Path) -> None:
    """Put a finished build in place of an earlier one, which serves until then."""
    target.parent.mkdir(exist_ok=True)
    shutil.rmtree(target, ignore_errors=True)
    build.rename(target)


def _of_collective(result: PlanSet, machine: str, name: str) -> PlanSetPart | None:
    """Return what the set has for one machine size and collective; None where it has nothing."""
    for part in result.parts:
        tables = tuple(table for table in part.tables if table.collective == name)
        refused = tuple(pair for pair in part.refused if pair[0] == name)
        if part.name == machine and (tables or refused):
            plans = tuple(plan for plan in part.plans if plan.name.startswith(f"{machine}/{name}/"))
            return replace(part, plans=plans, tables=tables, refused=refused)
    return None


def _serves(done: PlanSetPart, name: str, key: str, seconds: float | None, folder: Path) -> bool:
    """Return True where plans have the options of `key`, their files, and a search of `seconds` or more.

    `seconds`: None where the caller set no time limit.
    """
    searched = dict(done.seconds).get(name, 0.0)
    long_enough = seconds is None or seconds <= searched
    return done.key == key and long_enough and all((folder / f"{plan.name}.json").is_file() for plan in done.plans)


def _kept(earlier: PlanSetPart, name: str, error: SynthError) -> PlanSetPart:
    """Return the earlier plans of a collective, with a note on the search that has just failed with `error`."""
    failed = f"{name}: the last search anew found nothing"
    notes = tuple(note for note in earlier.notes if not note.startswith(failed))
    searched = tuple(pair for pair in earlier.seconds if pair[0] == name)
    return replace(earlier, notes=(*notes, f"{failed} ({error}); the earlier plans are kept"), seconds=searched)


def _without(result: PlanSet, machine: str, name: str) -> PlanSet:
    """Return the set without one collective of one machine size."""
    parts = []
    for part in result.parts:
        if part.name == machine:
            part = replace(
                part,
                plans=tuple(plan for plan in part.plans if not plan.name.startswith(f"{machine}/{name}/")),
                tables=tuple(table for table in part.tables if table.collective != name),
                notes=tuple(note for note in part.notes if note.partition(": ")[0] != name),
                refused=tuple(pair for pair in part.refused if pair[0] != name),
                seconds=tuple(pair for pair in part.seconds if pair[0] != name),
            )
        if part.tables or part.refused:
            parts.append(part)
    return replace(result, parts=tuple(parts))


def _with(result: PlanSet, more: PlanSetPart) -> PlanSet:
    """Return the set with the plans of one more collective, in the part of the same name and key if there is one."""
    parts = []
    for part in result.parts:
        if (part.name, part.key) == (more.name, more.key):
            more = PlanSetPart(
                part.name, part.ranks, part.key, (*part.plans, *more.plans), (*part.tables, *more.tables),
                tuple(dict.fromkeys((*part.notes, *more.notes))), (*part.refused, *more.refused),
                (*part.seconds, *more.seconds),
            )  # fmt: skip
        else:
            parts.append(part)
    return replace(result, parts=tuple(sorted((*parts, more), key=lambda part: part.ranks)))


def _write(folder: Path, result: PlanSet) -> None:
    """Write the index and the code that registers the plans so far: an interrupted call leaves a set of use."""
    write(folder / INDEX, json.dumps(result.to_json(), indent=1) + "\n")
    calls = []
    for part in result.parts:
        registered = {plan.collective for plan in part.plans}
        for table in part.tables:
            if table.collective.replace("-", "") in registered:
                calls.append((table.collective, table.root))
    warnings = call_warnings("mscclpp", calls)
    write(folder / "register.py", registration_code.python(result.plans, result.version, warnings))
    write(folder / "register.hpp", registration_code.cpp(result.plans, result.version, warnings))


def _machines(machine: str, boxes: Iterable[int], gpus: Iterable[int]) -> list[_Machine]:
    """Return the machine in each size, by rising number of ranks; each number once."""
    box = named_topology(machine if "=" not in machine.rpartition(":")[2] else machine.rpartition(":")[0])
    if len(set(box.nodes)) > 1:
        raise UsageError(f"{machine} is a cluster: name one box, and their numbers with --boxes")
    hosts = box.ranks <= HOST_RANKS
    sizes = {count * box.ranks: count for count in boxes}
    for count in gpus:
        sizes.setdefault(count, _equal_boxes(count, box.ranks))
    found = []
    for ranks, count in sorted(sizes.items()):
        if ranks < 2:
            raise UsageError(f"{ranks} GPUs have nothing to send; give at least 2")
        whole = named_topology(_cluster_name(machine, count))
        name = re.sub(r"[^\w.]+", "-", machine).strip("-")
        if ranks == whole.ranks:
            found.append(_Machine(f"{name}x{count}" if count > 1 else name, whole, hosts))
            continue
        share = ranks // count
        allocated = [place * box.ranks + k for place in range(count) for k in range(share)]
        first = "GPU" if share == 1 else f"{share} GPUs"
        of_each = "1 box" if count == 1 else f"each of {count} boxes, the fewest that {ranks} GPUs share evenly"
        note = f"the first {first} of {of_each}"
        found.append(_Machine(f"{name}-{ranks}gpus", changed_topology(whole, ranks=allocated), hosts, (note,)))
    if not found:
        raise UsageError("no number of boxes or GPUs is given; --boxes 1,2 or --gpus 6 do")
    return found


def _equal_boxes(gpus: int, ranks: int) -> int:
    """Return the least number of boxes of `ranks` GPUs that share `gpus` evenly."""
    count = max(1, -(-gpus // ranks))
    while gpus % count:
        count += 1
    return count


def _cluster_name(machine: str, boxes: int) -> str:
    """Return the name of `boxes` boxes; options stay at the end."""
    if boxes == 1:
        return machine
    name, mark, options = machine.rpartition(":")
    return f"{name}*{boxes}:{options}" if mark and "=" in options else f"{machine}*{boxes}"


def _earlier(folder: Path, machine: str, version: str) -> PlanSet:
    """Return the set of an earlier call, without parts where there is none, and make the folder.

    Raises SynthError for a folder that holds anything else.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        index = folder / INDEX
        if not index.is_file():
            if any(folder.iterdir()):
                raise SynthError(f"{folder} holds other files; give a new or empty folder, or that of earlier plans")
            write(index, json.dumps(PlanSet(machine, version, str(folder), ()).to_json()) + "\n")
        earlier = PlanSet.from_json(json_reader.document(text_of(index), str(index)), str(folder))
    except OSError as error:
        reason = "it is a file; name a folder" if folder.is_file() else error.strerror or error
        raise SynthError(f"cannot write {folder}: {reason}") from None
    except (FormatError, KeyError, TypeError, ValueError):
        raise SynthError(f"{folder / INDEX} is no index of plans; give a new folder") from None
    if earlier.machine != machine:
        raise SynthError(f"{folder} holds plans of {earlier.machine}, not of {machine}; give a new folder")
    if not earlier.parts:
        return replace(earlier, version=version)
    if earlier.version != version:
        raise SynthError(f"{folder} holds plans of MSCCL++ {earlier.version}, not of {version}; give a new folder")
    return earlier


def _placed(plan: PlanRegistration, machine: _Machine, name: str) -> PlanRegistration:
    """Return the entry with its path in the set. `name`: the collective."""
    return plan._replace(name=f"{machine.name}/{name}/mscclpp/{plan.name}")


def _labelled(listener: Listener, label: str) -> Listener:
    def listen(event: Event) -> None:
        """Pass the event on, its text after the label."""
        listener(replace(event, text=f"{label}: {event.text}"))

    return listen
