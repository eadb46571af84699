"""The frontier, schedule or program that a command runs: a file, or the frontier of a named machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synth.commands.framework.progress import progress
from synth.commands.framework.shared import chosen_collective, time_limit_option
from synth.errors import UsageError
from synth.model.topology import Topology

if TYPE_CHECKING:
    from synth.model.frontier import Frontier

SECONDS = 10.0  # default wall seconds of a search: a small machine's frontier is complete by then


@dataclass(frozen=True, kw_only=True)
class SearchLimit:
    """--time-limit of commands that search where they get no file."""

    time_limit: float | None = time_limit_option(
        "Wall time of the search where there is no FILE; by default 10 s.", metavar="10s"
    )


def file_or_frontier(file: Path | None, options: Any, machine: Topology | None) -> Path | Frontier:
    """Return FILE, or without one the frontier of --coll on `machine`, of schedules over links alone.

    Raises UsageError where there is neither.
    """
    from synth.commands.pareto import frontier

    if file is not None:
        return file
    if machine is None:
        raise UsageError("name a FILE, or a machine and a collective: --topo NAME --coll NAME")
    collective = chosen_collective(options, machine)
    with progress(f"{collective.name} on {machine.name}") as listen:
        limit = options.time_limit or SECONDS
        return frontier(machine, collective, time_limit=limit, on_event=listen, multicast=False)
