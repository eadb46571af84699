"""Programs and plans: read from files, lowered from schedules, placed on machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from synth.errors import FormatError, SynthError, UsageError
from synth.model.collective import Collective
from synth.model.frontier import Frontier, Point, StepCount
from synth.model.schedule import Schedule
from synth.model.topology import Network, Topology
from synth.program.lowering_options import LoweringOptions

if TYPE_CHECKING:
    from synth.export.program_reader import SizeChoice
    from synth.export.request import Machine
    from synth.model.tuning_plan import Plan
    from synth.program.program import InPlace, Program
    from synth.program.send_hints import SendHints


def lower(
    schedule: Schedule,
    *,
    runtime: str = LoweringOptions.runtime,
    protocol: str = LoweringOptions.protocol,
    instances: int = LoweringOptions.instances,
    in_place: InPlace | None = LoweringOptions.in_place,
    fuse: bool = LoweringOptions.fuse,
    aggregate: bool = LoweringOptions.aggregate,
    lanes: int | None = LoweringOptions.lanes,
    hints: SendHints | None = LoweringOptions.hints,
    name: str | None = LoweringOptions.name,
) -> Program:
    """Return the program of a schedule, which is replayed first.

    Parameters
    ----------
    schedule : a schedule with every send listed.
    runtime : the runtime whose form and limits count; "synth" for this project's executors.
    protocol : Simple, LL or LL128.
    instances : copies of the schedule side by side, each for its share of the data.
    in_place : the calls that it is for: "in", "out" or "both". None: all that a two-sided program can serve, calls out
        of place for a one-sided one.
    fuse : receives may forward, where the runtime has such instructions. Of two-sided programs alone, as the next two.
    aggregate : neighbouring chunks travel as one message.
    lanes : the most connections of one route. None: its units, fewer where the runtime's limits demand it.
    hints : thread blocks, channels, connections and pieces of single sends, such as `Compiled.hints` of a program.
    name : of the program. None: of collective, machine and C, S, R.

    Returns
    -------
    The `Program`: the instructions of each thread block of each rank.

    Raises
    ------
    VerificationError for a wrong schedule; SynthError naming the limit of the runtime that is met; UsageError for too
    many sends.

    Examples
    --------
    >>> import synth
    >>> ring = synth.api.baseline("ring", "ring:4", "allgather")
    >>> synth.api.lower(ring, protocol="LL").protocol
    'LL'
    """
    from synth.program import checked_lowering

    return checked_lowering.lower(
        schedule, LoweringOptions(runtime, protocol, instances, in_place, name, fuse, aggregate, lanes, hints)
    )


def read(
    path: Path, collective: Collective | None = None, root: int | None = None, runtime: str | None = None
) -> Program | Schedule | Frontier:  # fmt: skip
    """Return the program, schedule or frontier in a file. A compressed schedule (``.npz``) is written out.

    Raises FormatError, TooManySendsError.
    """
    # Archives hold compressed schedules, which are written out if they are not too large.
    if path.suffix == ".npz":
        from synth.checker.documents import schedule_archive
        from synth.program.checked_lowering import check_sends

        schedule = schedule_archive.load(path)
        check_sends(schedule.sends)
        return schedule.written_out()
    # A file that only `synth import` reads is named as such.
    from synth.export.program_reader import load

    try:
        return load(path, collective, root, runtime)
    except FormatError as error:
        from synth.export.foreign.read import kind_of_other

        kind = kind_of_other(path)
        if not kind:
            raise
        raise FormatError(f"is {kind}: `synth import {path}` reads it", str(path)) from error


def size_choice(
    source: object, found: Program | Schedule | Frontier, element_type: str = "float32"
) -> SizeChoice | None:
    """Return the size and the protocol that the file `source` of `found` was chosen for by `synth pareto --size`.

    The size is rounded down to whole elements. None where `source` is no such file. Raises FormatError.
    """
    from synth.export import program_reader
    from synth.runtime.dtypes import dtype
    from synth.runtime.slicing import whole_elements

    if not isinstance(source, str | Path) or not isinstance(found, Schedule) or Path(source).suffix == ".npz":
        return None
    chosen = program_reader.size_choice(Path(source))
    if chosen is None:
        return None
    return chosen._replace(size=whole_elements(found.collective.buffer_units, chosen.size, dtype(element_type)))


def lowered(
    given: Program | Schedule | Frontier,
    point: int | StepCount | None,
    size: int | None,
    options: LoweringOptions,
) -> tuple[Program, Network | None]:
    """Return the program of a schedule, or of the point that `chosen_point` takes of a frontier, and its network.

    That network has no switches that multicast, because programs emulate their sends. A program is returned as it is,
    with None. Raises UsageError for a `point`, or for several instances, of what has no such choice.
    """
    from synth.program import checked_lowering

    if isinstance(given, Frontier):
        given = given.schedule_of(chosen_point(given, point, size), checked_lowering.MAX_SENDS)
    elif point is not None:
        raise UsageError("a point is chosen from a frontier; this is none")
    if isinstance(given, Schedule):
        return checked_lowering.lower(given, options), replace(given.network, multicast=())
    if options.instances != 1:
        raise UsageError("instances are made when a schedule is lowered; this is a program already")
    return given, None


def chosen_point(frontier: Frontier, point: int | StepCount | None, size: int | None) -> Point:
    """Return the point of that number (from 1) or of so many steps; None: the fastest at `size` bytes, or at 1 MiB."""
    if not frontier.points:
        raise SynthError("this frontier has no point")
    if point is None:
        return frontier.best(size or 1 << 20)
    return frontier.points[frontier.number_of(point) - 1]


def placed(
    network: Network, labels: Sequence[int], machine: Topology | None, rank_map: Sequence[int] | None
) -> tuple[Sequence[int], Machine | None, list[str]]:
    """Return the machine's rank of each rank of `network`, the kinds of its links with its boxes, and remarks.

    `labels`: the machine's own numbers of the ranks, () for 0, 1, 2, … `machine` None: the known one whose links
    `network` has; kinds and boxes are None where there is none. `rank_map` None: by the labels, or by a match of the
    links. Raises UsageError where the machine has another number of ranks.
    """
    from synth.export import rank_map as rankmap
    from synth.export.request import Machine
    from synth.topologies import rank_placement

    # By the labels of an allocation, or by a match of the links.
    links, said = None if machine is None else machine.network(), []
    if links is not None and links.ranks != network.ranks:
        raise UsageError(f"{links.name} has {links.ranks} ranks, the schedule is for {network.ranks}")
    default = rankmap.ranks_from_labels(labels, network.ranks)
    ranks = default if rank_map is None else rank_map
    if rank_map is None and links is not None:
        ranks, matched = rank_placement.place(network, links, default)
        if matched:
            said.append(f"ranks of {network.name} matched to those of {links.name}: {','.join(map(str, ranks))}")
    # The kinds of links: of the machine, or of the built-in one that has these links.
    if machine is not None:
        return ranks, Machine.of(machine), said
    made_for, facts = rank_placement.known(network), None
    if made_for is not None and sorted(ranks) == list(range(network.ranks)):
        facts = Machine.of(made_for).relabelled(ranks)
    return ranks, facts, said


def load_plan(path: str | Path) -> Plan:
    """The plan in a file, its schedules replayed and its ranges checked. Raises FormatError, VerificationError."""
    from synth.export.plans.read import load

    return load(Path(path))
