"""The frontier, schedule or program that a command runs: a file, or the frontier of a named machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from synth.commands.framework.options import chosen_collective, time_limit_option
from synth.commands.framework.progress import progress
from synth.errors import UsageError
from synth.model.topology import Topology

if TYPE_CHECKING:
    from synth.model.frontier import ParetoFrontier

SECONDS = 10.0  # default wall seconds of a search: a small machine's frontier is complete by then

search_limit_option = time_limit_option("Wall time of the search where there is no FILE; by default 10 s.", "10s")


def file_or_frontier(
    file: Path | None, flags: dict[str, Any], machine: Topology | None = None
) -> Path | ParetoFrontier:
    """Return FILE, or without one the frontier of --coll on `machine`, of schedules over links alone.

    Raises UsageError where there is neither.
    """
    from synth.commands import api

    if file is not None:
        return file
    if machine is None:
        raise UsageError("name a FILE, or a machine and a collective: --topo NAME --coll NAME")
    collective = chosen_collective({"counts": None} | flags, machine)
    with progress(f"{collective.name} on {machine.name}") as listen:
        limit = flags["time_limit"] or SECONDS
        return api.frontier(machine, collective, time_limit=limit, on_event=listen, multicast=False)
