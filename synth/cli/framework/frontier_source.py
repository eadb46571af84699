"""The frontier, schedule or program that a command runs: a file, or the frontier of a named machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from synth.cli.framework.options import chosen_collective, time_limit_option
from synth.cli.framework.output import note
from synth.cli.framework.progress import progress
from synth.errors import UsageError
from synth.model.topology import Topology

if TYPE_CHECKING:
    from synth.model.frontier import ParetoFrontier

SECONDS = 10.0  # default wall seconds of a search: a small machine's frontier is complete by then

search_limit_option = time_limit_option("Wall time of the search where there is no FILE; by default 10 s.", "10s")


def file_or_frontier(
    file: Path | None, flags: dict[str, Any], machine: Topology | None = None
) -> Path | ParetoFrontier:
    """Return FILE, or without one the frontier of --coll on `machine`; with --multicast the one beside it.

    Raises UsageError where there is neither, or no frontier with multicast.
    """
    from synth import api

    if file is not None:
        return _with_multicast(file) if flags["multicast"] else file
    if machine is None:
        raise UsageError("name a FILE, or a machine and a collective: --topo NAME --coll NAME")
    collective = chosen_collective({"counts": None} | flags, machine)
    with progress(f"{collective.name} on {machine.name}") as listen:
        found = api.frontier(
            machine,
            collective,
            time_limit=flags["time_limit"] or SECONDS,
            on_event=listen,
            multicast=flags["multicast"],
        )
    return _with_multicast(found) if flags["multicast"] else found


def _with_multicast(source: Path | ParetoFrontier) -> ParetoFrontier:
    from synth.api import programs

    found = programs.multicast_frontier(source)
    note(
        "multicasts and fetched sums through switches run as sends to and from each rank: times do not show their gain"
    )
    return found
