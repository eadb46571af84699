"""A set of MSCCL++ plans for one machine in several sizes: a build for each, one index, one registration."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from synth.api.arguments import keywords_checked
from synth.api.builds import SETTINGS, build, tell
from synth.api.inputs import named_topology, size_in_bytes
from synth.api.inputs import topology as changed_topology
from synth.catalog.tuner.request import SIZES, TuningRequest
from synth.errors import SynthError, UsageError, VerificationError
from synth.export.folder_notes import call_warnings
from synth.export.plans import registration_code
from synth.export.request import HOST_RANKS, ExportRequest
from synth.model.collective import canonical_name
from synth.model.documents.whole_file import write
from synth.model.plan_registration import PlanRegistration
from synth.model.plan_set import PlanSet, PlanSetPart
from synth.model.topology import Topology
from synth.program.plan_limits import NEWEST

if TYPE_CHECKING:
    from synth.pareto.events import Event, Listener

INDEX = "index.json"


@dataclass(frozen=True)
class _Machine:
    """One size of the machine.

    `hosts`: whether a box is one host, as MSCCL++ counts ranks of a node. `notes`: a sentence on which GPUs they are,
    where they do not fill their boxes.
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
    sizes: Iterable[int | str] = SIZES,
    dtype: str = TuningRequest.dtype,
    root: int | None = None,
    plan_version: str = NEWEST,
    time_limit: float | None = None,
    jobs: int | None = None,
    on_event: Listener | None = None,
) -> PlanSet:
    """Write MSCCL++ plans for a machine in several sizes into the folder `output`, each linted and run.

    Parameters
    ----------
    machine : the name of one box, such as "dgx-a100"; options of clusters may follow: "dgx-a100:net=rail".
    boxes : numbers of boxes.
    collective : the name of one collective, or of several.
    output : the folder, new, empty, or of an earlier call, which is continued.
    gpus : further numbers of GPUs: the first of each box, in as few equal boxes as have so many.
    sizes : bytes, or texts such as "1MB", as nccl-tests counts them, at which algorithms are compared.
    dtype : the type of the elements for which they are compared. Plans serve all types.
    root : the root of rooted collectives, by default 0. The job must use no other.
    plan_version : the version of MSCCL++ whose plan format is written.
    time_limit : wall seconds of all searches. None: 30 for each number of ranks.
    jobs : processes of a search. None: one for each core.
    on_event : called with each line of progress.

    Returns
    -------
    The plans with the calls that each serves, and for each size the predicted time of what runs and of the library.
    ``index.json`` has the same; ``register.py`` and ``register.hpp`` register all of them. All three are written after
    each collective, so a call that is interrupted leaves what it has found, and the same call goes on from there.

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
    judged = tuple(size_in_bytes(size, "sizes") for size in sizes)
    machines = _machines(machine, boxes, gpus)
    seconds = (SETTINGS.time_limit if time_limit is None else time_limit / len(machines)) / len(names)
    options = [metadata.version("ccl-synth"), machine, judged, dtype, root, plan_version, seconds]
    key = hashlib.sha256(json.dumps(options).encode()).hexdigest()[:12]
    folder = Path(output)
    known = _known(folder, machine, key)
    result = PlanSet(machine, plan_version, str(folder), ())
    for place, one in enumerate(machines, 1):
        part = PlanSetPart(one.name, one.topology.ranks, key, notes=one.notes)
        before = result
        for note in one.notes:
            tell(on_event, f"{one.name}: {note}")
        for name in names:
            done = _of_collective(known.get(one.name, part), name)
            if done is None or not all((folder / f"{plan.name}.json").is_file() for plan in done.plans):
                listen = None if on_event is None else _labelled(on_event, f"{one.name} ({place} of {len(machines)})")
                try:
                    made = build(
                        one.topology, name, folder / one.name / name, runtime="mscclpp", sizes=judged, dtype=dtype,
                        root=root, plan_version=plan_version, time_limit=seconds, jobs=jobs, on_event=listen,
                    )  # fmt: skip
                except (UsageError, VerificationError):
                    raise
                except SynthError as error:
                    done = replace(part, plans=(), tables=(), refused=((name, str(error)),))
                else:
                    registered = tuple(_placed(plan, one, name) for plan in made.registrations)
                    done = PlanSetPart(one.name, one.topology.ranks, key, registered, made.tables, made.notes)
            part = _with(part, done)
            result = replace(before, parts=(*before.parts, part))
            _write(folder, result)
    if not any(part.tables for part in result.parts):
        reasons = [f"{part.name}: {reason}" for part in result.parts for _, reason in part.refused]
        raise SynthError(f"no plan is written: {'; '.join(reasons)}")
    return result


def _of_collective(part: PlanSetPart, name: str) -> PlanSetPart | None:
    """Return what an earlier call found for one collective; None where it did not come to it."""
    tables = tuple(table for table in part.tables if table.collective == name)
    refused = tuple(pair for pair in part.refused if pair[0] == name)
    if not tables and not refused:
        return None
    plans = tuple(plan for plan in part.plans if plan.name.startswith(f"{part.name}/{name}/"))
    others = {table.collective for table in part.tables} - {name}
    notes = tuple(note for note in part.notes if note.partition(": ")[0] not in others)
    return replace(part, plans=plans, tables=tables, notes=notes, refused=refused)


def _with(part: PlanSetPart, more: PlanSetPart) -> PlanSetPart:
    """Return the part with the plans of one more collective."""
    notes = tuple(dict.fromkeys((*part.notes, *more.notes)))
    return replace(
        part, plans=(*part.plans, *more.plans), tables=(*part.tables, *more.tables), notes=notes,
        refused=(*part.refused, *more.refused),
    )  # fmt: skip


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


def _known(folder: Path, machine: str, key: str) -> dict[str, PlanSetPart]:
    """Return the parts of an earlier call with the same options by name, and make the folder.

    Raises SynthError for a folder that holds anything else.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        index = folder / INDEX
        if not index.is_file():
            if any(folder.iterdir()):
                raise SynthError(f"{folder} holds other files; give a new or empty folder, or that of earlier plans")
            write(index, json.dumps(PlanSet(machine, "", str(folder), ()).to_json()) + "\n")
        earlier = PlanSet.from_json(json.loads(index.read_text()), str(folder))
    except OSError as error:
        reason = "it is a file; name a folder" if folder.is_file() else error.strerror or error
        raise SynthError(f"cannot write {folder}: {reason}") from None
    except (KeyError, TypeError, ValueError):
        raise SynthError(f"{folder / INDEX} is no index of plans; give a new folder") from None
    if earlier.machine != machine:
        raise SynthError(f"{folder} holds plans of {earlier.machine}, not of {machine}; give a new folder")
    return {part.name: part for part in earlier.parts if part.key == key}


def _placed(plan: PlanRegistration, machine: _Machine, name: str) -> PlanRegistration:
    """Return the entry with its path in the set; where a box is several hosts, for any number of ranks a node.

    `name`: the collective.
    """
    per_node = plan.ranks_per_node if machine.hosts else 0
    return plan._replace(name=f"{machine.name}/{name}/mscclpp/{plan.name}", ranks_per_node=per_node)


def _labelled(listener: Listener, label: str) -> Listener:
    def listen(event: Event) -> None:
        """Pass the event on, its text after the label."""
        listener(replace(event, text=f"{label}: {event.text}"))

    return listen
