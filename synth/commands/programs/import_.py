"""`synth import` and `synth.api.import_schedule`: a schedule of another program as a schedule of this one, replayed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from synth.commands.framework.declaration import command, function, option
from synth.commands.framework.output import note, save
from synth.commands.framework.progress import waiting
from synth.commands.framework.shared import (
    FILE,
    Changes,
    Quiet,
    StepOption,
    collective_option,
    machine_if_named,
    point_option,
    topology_option,
)
from synth.commands.framework.types import Ranks
from synth.commands.inputs import collective as task_of
from synth.commands.inputs import named_topology
from synth.errors import UsageError

if TYPE_CHECKING:
    from synth.commands.inputs import CollectiveLike, TopologyLike
    from synth.export.foreign.read import Imported
    from synth.model.frontier import StepCount


@dataclass(frozen=True)
class Foreign:
    """The file of another program."""

    path: str | Path = option(
        "file", type=FILE,
        doc="MSCCL-IR (of msccl-tools, TACCL, TE-CCL or others), TE-CCL's schedule JSON, ForestColl's tree XML, or a "
        "document of this project.",
    )  # fmt: skip
    topology: TopologyLike | None = topology_option(
        "the machine. None: each pair of ranks that the file uses is a link of 1 GB/s.", default=None
    )
    _: KW_ONLY
    collective: CollectiveLike | None = collective_option(
        "The collective of a file that does not name it (MSCCL-IR, ForestColl's trees).",
        "of MSCCL-IR that does not say it. ForestColl's trees are an allgather's, or a reduce-scatter's or allreduce's "
        "if this names it.",
        default=None,
    )
    roots: Sequence[int] = option(
        "--root", default=(), type=Ranks(), metavar="0", help="The root of a rooted collective.",
        doc="of that collective.",
    )  # fmt: skip
    point: int | StepCount | None = point_option("The N-th point of FILE, where it is a frontier.")


@function(Foreign)
def import_schedule(asked: Foreign) -> Imported:
    """Return the schedule that a file of another program describes.

    Returns
    -------
    The schedule, which was replayed; the kind of the file in words; and remarks.

    Raises
    ------
    FormatError for a file that cannot be read; VerificationError, with the place, for one that is wrong; UsageError for
    one whose messages do not fit the machine.

    Examples
    --------
    >>> import synth
    >>> schedule = synth.frontier("ring:4", "allgather").points[0].schedule
    >>> _ = synth.export_program(schedule, "msccl-xml").write("allgather.xml")
    >>> synth.api.import_schedule("allgather.xml", "ring:4").schedule
    <Schedule of allgather on ring:4: C=1, S=2, R=3, 12 sends>
    """
    from synth.export.foreign.read import Request, schedule

    # A collective needs the number of ranks, which the machine says.
    machine = None if asked.topology is None else named_topology(asked.topology)
    task = None
    if asked.collective is not None:
        if machine is None:
            more = "name the machine, too (--topo NAME), or leave --coll out where the file says it"
            raise UsageError(f"{asked.path}: {more}")
        task = task_of(asked.collective, machine.ranks, asked.roots)
    root = asked.roots[0] if len(asked.roots) == 1 else None
    return schedule(Path(asked.path), Request(machine, task, root, asked.point))


@dataclass(frozen=True, kw_only=True)
class Import(Quiet, Changes, StepOption, Foreign):
    """The options of `synth import`."""

    output: str | None = option("-o", "--output", default=None, metavar="FILE", help="Write the schedule; - is stdout.")


@command(Import)
def import_command(options: Import) -> None:
    """Read FILE, a schedule of another program, and replay it: MSCCL-IR (of msccl-tools, TACCL, TE-CCL or others),
    TE-CCL's JSON, ForestColl's tree XML. The kind follows from the content.

    The steps are the fewest that the data allow. Without --topo each pair of ranks that the file uses is a link of
    1 GB/s. A dump of a machine is for `synth topo import`.

    \b
    Example:
      synth solve --topo dgx1 --coll allgather --chunks 6 --steps 3 --rounds 7 -o s.json
      synth export s.json -o theirs.xml && synth import theirs.xml --topo dgx1 -o ours.json
    """
    from synth.model.collective import COLLECTIVES, canonical_name
    from synth.model.rational import show

    output, given = options.output, str(options.collective or "")
    machine = machine_if_named(options)
    with waiting(f"reading {options.path}"):
        found = import_schedule.of(replace(options, topology=machine))
    # A file that says another collective than --coll is not read as that.
    schedule = found.schedule
    if canonical_name(given) in COLLECTIVES and schedule.collective.name != canonical_name(given):
        raise UsageError(f"{options.path} says that it is {schedule.collective.name}; leave --coll {given} out")
    for line in found.notes:
        note(line)
    size = f"C={schedule.chunks}, S={schedule.step_count}, R={schedule.rounds}"
    said = (
        f"{found.kind}: {schedule.collective.name} on {schedule.network.name}: {size}: "
        f"{show(schedule.rounds_per_chunk)} rounds per chunk, {schedule.sends} sends; right (replayed)"
    )
    if output == "-":
        click.echo(json.dumps(schedule.to_json()))
        return
    click.echo(said)
    if output is not None:
        save(output, json.dumps(schedule.to_json()) + "\n")
