"""Inputs of a tuning plan, by collective: frontiers, measurements of their programs, other libraries' logs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from synth.commands import pareto
from synth.commands.inputs import collective as task_of
from synth.commands.programs.sources import read
from synth.errors import FormatError, TooManySendsError, UsageError
from synth.model.collective import Collective, canonical_name
from synth.model.frontier import Frontier
from synth.model.number_text import number, size_text
from synth.model.topology import Network, Topology
from synth.solvers.deadline import current_deadline

if TYPE_CHECKING:
    from synth.catalog.tuner.measurements import Measurement
    from synth.catalog.tuner.request import TuningRequest
    from synth.pareto.events import Listener

# Fraction by which a measured time may be below a lower bound: logs print three digits.
ROUNDING = 0.005


class CollectiveInputs(NamedTuple):
    """The inputs of one collective: its frontiers, and the network that they share (None: there are logs only)."""

    name: str
    ranks: int | None
    root: int | None
    network: Network | None
    frontiers: tuple[Frontier, ...]
    measured: tuple[Measurement, ...]
    notes: tuple[str, ...] = ()


def frontier(given: Frontier | str | Path) -> Frontier:
    """Return a frontier from a value or a file. Raises FormatError, UsageError for something else."""
    found = read(Path(given)) if isinstance(given, str | Path) else given
    if not isinstance(found, Frontier):
        raise UsageError(
            f"{given} holds a {type(found).__name__.lower()}, not a frontier; `synth pareto -o` writes one"
        )
    return found


def measurements(measured: Sequence[str | Path | dict], in_place: bool) -> list[Measurement]:
    """Return the measurements of all files and documents."""
    from synth.catalog.tuner import measurements as tune_measured

    found: list[Measurement] = []
    for given in measured:
        if isinstance(given, dict):
            found += tune_measured.from_document(given, "measured", in_place)
        else:
            found += tune_measured.load(Path(given), in_place)
    return found


def logged(logs: Sequence[tuple[str, str | Path]], inputs: CollectiveInputs, in_place: bool) -> list[Measurement]:
    """Return the measurements of the collective of `inputs` in the logs.

    Raises FormatError for a bad log, UsageError where numbers of ranks differ.
    """
    from synth.catalog.tuner import nccl_tests

    found = []
    for backend, file in logs:
        found += nccl_tests.load(Path(file), backend, inputs.name, inputs.ranks, inputs.root, in_place)
    counts = {m.ranks for m in (*inputs.measured, *found)}
    if len(counts) > 1:
        raise UsageError(
            f"logs and measurements of {inputs.name} are of {' and '.join(map(str, sorted(counts)))} ranks; name the "
            "machine (--topo)"
        )
    return found


def check_times(inputs: CollectiveInputs, machine: Topology | None) -> None:
    """Raise FormatError where a measured time is below the least that any program takes on the machine.

    Such times are of another machine or another collective, or the links are faster than the topology says.
    """
    from synth.scale.time_bound import time_bound

    if machine is None and inputs.network is not None:
        machine = inputs.network.as_topology()
    timed = [measurement for measurement in inputs.measured if not measurement.modelled]
    if machine is None or not timed or not inputs.frontiers:
        return
    task = inputs.frontiers[0].collective
    sizes = sorted({sample.size for measurement in timed for sample in measurement.samples})
    least = time_bound(machine, task, sizes).seconds
    for measurement in timed:
        for sample in measurement.samples:
            bound = least.get(sample.size, 0.0)
            if measurement.ranks == machine.ranks and sample.seconds < bound * (1 - ROUNDING):
                least_text = f"{task.name} on {machine.name} takes at least {number(bound * 1e6)} µs"
                raise FormatError(
                    f"{number(sample.seconds * 1e6)} µs at {size_text(sample.size)}: {least_text}; the times are of"
                    " another machine or collective, or the links are faster than the topology says",
                    measurement.file,
                )


def collective_inputs(
    name: str,
    request: TuningRequest,
    machine: Topology | None,
    frontiers: Sequence[Frontier],
    held: Sequence[Measurement],
    on_event: Listener | None,
) -> CollectiveInputs:
    """Return the inputs of one collective: its frontiers among `frontiers`, else a shipped or synthesized one.

    `held`: measurements of any collectives. What is synthesized ends with the ambient deadline. Raises UsageError for a
    collective that nobody knows.
    """
    name, root = canonical_name(name), request.root
    network = None if machine is None else machine.network()
    sizes = [network and network.ranks, *(found.machine.ranks for found in frontiers)]
    ranks = next((size for size in sizes if size), None)
    own: list[Frontier] = []
    notes: list[str] = []
    for given in frontiers:
        if given.collective_name == name and root in (None, *given.roots):
            own.append(_written_out(given, notes, replayed=True))
    if len({found.collective for found in own}) > 1:
        raise UsageError(
            f"the frontiers of {name} are of different roots or ranks; give those of one, or say which (--root)"
        )
    timed = name in {one.collective for one in held}
    task = own[0].collective if own else _task(name, ranks, root, timed)
    if not own and machine is not None and task is not None:
        limit = current_deadline().remaining() if current_deadline().limited else None
        made = pareto.known_frontier(machine, task) or pareto.frontier(
            machine, task, time_limit=limit, jobs=request.jobs, on_event=on_event, multicast=False
        )
        own = [_written_out(made, notes, replayed=False)]
    # One plan is for one machine, whatever its files call it.
    there = own[0].network if own else network
    for other in (*(found.network for found in own), network):
        if there is None or other is None or other is there:
            continue
        if other.to_json() | {"name": ""} != there.to_json() | {"name": ""}:
            raise UsageError(f"{name}: a frontier of {other.name} and one of {there.name}; a plan is for one machine")
    if task is not None:
        name, root = task.name, task.roots[0] if len(task.roots) == 1 else None
    measured = []
    for one in held:
        if one.collective == name and ranks in (None, one.ranks) and one.root in (None, root):
            measured.append(one)
    return CollectiveInputs(name, ranks, root, there, tuple(own), tuple(measured), tuple(notes))


def _task(name: str, ranks: int | None, root: int | None, timed: bool) -> Collective | None:
    """The collective of that name; None for one that only measurements know. Raises UsageError for one that nobody
    does."""
    try:
        return task_of(name, ranks or 2 + (root or 0), () if root is None else (root,))
    except UsageError:
        if timed:
            return None
        raise


def _written_out(found: Frontier, notes: list[str], replayed: bool) -> Frontier:
    """The frontier with every send of its schedules listed, those of the fewest steps first, while there is time.

    `notes` gets those of points that are left out. `replayed`: each schedule is, which raises VerificationError.
    """
    from synth.checker.schedule import replay

    # Half of the time is for the schedules; the rest is for their runs.
    deadline = current_deadline()
    enough = deadline.share(1 / 2)
    written, lacking = found.written_out(lambda point: not enough.over)
    late = []
    for point, error in lacking:
        if error is None:
            late.append(str(point.steps))
        else:
            why = "cannot be written out"
            if isinstance(error, TooManySendsError):
                why = f"is too large to write out ({error.sends} sends)"
            notes.append(f"the point of {point.steps} steps {why}: not a candidate")
    if late:
        notes.append(f"the time limit left no time to write out the points of {', '.join(late)} steps: not candidates")
    for point in written.points if replayed else ():
        replay.schedule(point.schedule)
    return written
