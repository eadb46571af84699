"""`synth import`: a schedule of another program as a schedule of this one, replayed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from synth.commands.framework.options import (
    FILE,
    coll_option,
    machine_if_named,
    machine_options,
    point_option,
    quiet_option,
)
from synth.commands.framework.output import check_writable, note, save
from synth.commands.framework.progress import waiting
from synth.commands.framework.types import Ranks
from synth.commands.root import CONTEXT
from synth.errors import UsageError


@click.command("import", context_settings=CONTEXT, short_help="Read another program's schedule, and replay it.")
@click.argument("file", type=FILE)
@machine_options
@coll_option("The collective of a file that does not name it (MSCCL-IR, ForestColl's trees).")
@click.option("--root", type=Ranks(), metavar="0", help="The root of a rooted collective.")
@point_option("The N-th point of FILE, where it is a frontier.")
@click.option("-o", "--output", metavar="FILE", help="Write the schedule; - is stdout.")
@quiet_option
def import_(file: Path, coll: str | None, root: list[int] | None, point: Any, output: str | None, **flags: Any) -> None:
    """Read FILE, a schedule of another program, and replay it: MSCCL-IR (of msccl-tools, TACCL, TE-CCL or others),
    TE-CCL's JSON, ForestColl's tree XML. The kind follows from the content.

    The steps are the fewest that the data allow. Without --topo each pair of ranks that the file uses is a link of
    1 GB/s. A dump of a machine is for `synth topo import`.

    \b
    Example:
      synth solve --topo dgx1 --coll allgather --chunks 6 --steps 3 --rounds 7 -o s.json
      synth export s.json -o theirs.xml && synth import theirs.xml --topo dgx1 -o ours.json
    """
    from synth.commands import api
    from synth.model.collective import COLLECTIVES, canonical_name
    from synth.model.rational import show

    check_writable(output)
    machine = machine_if_named(flags)
    with waiting(f"reading {file}"):
        found = api.import_schedule(file, machine, collective=coll, roots=root or (), point=point)
    schedule = found.schedule
    if canonical_name(coll or "") in COLLECTIVES and schedule.collective.name != canonical_name(coll or ""):
        raise UsageError(f"{file} says that it is {schedule.collective.name}; leave --coll {coll} out")
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
