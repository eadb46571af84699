"""Inputs of a tuning plan, by collective: frontiers, measurements of their programs, other libraries' logs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, gcd, inf
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from synth.api import synthesis
from synth.api.inputs import collective as task_of
from synth.api.programs import read
from synth.encodings import spanning_tree_packing
from synth.errors import FormatError, TooManySendsError, UsageError
from synth.model.collective import Collective, canonical_name
from synth.model.frontier import Frontier, ParetoFrontier, Point
from synth.model.number_text import number, size_text
from synth.model.outcome import Sat
from synth.model.schedule import Schedule
from synth.model.topology import Network, Topology
from synth.solvers.processes.deadline import current_deadline

if TYPE_CHECKING:
    from synth.catalog.tuner.measurements import Measurement
    from synth.catalog.tuner.request import TuningRequest
    from synth.pareto.events import Listener


@dataclass(frozen=True)
class TuningInputSettings:
    """Limits and shares of time of the search for the frontiers and schedules of a tuning plan.

    Attributes:
        most_chunks: Maximum number of chunks of a unit in schedules whose chunks divide every size.
        tries: Numbers of chunks that are tried at each number of steps, the least rounds per chunk first.
        seconds: Wall seconds for one such schedule, where there is no time limit.
        dividing_seconds: Wall seconds for all such schedules, where there is no time limit: every run on a machine
            looks for them.
        for_times: Fraction of a time limit for the predicted times of candidates, which come after all frontiers.
        for_list_schedules: Fraction of that which list schedules may take, and the search for rings before them.
        least_for_rings: Seconds for rings at least.
        for_frontiers: Fraction of the rest for frontiers, where dividing schedules are looked for too.
        flows_add: Fraction that flow methods add, about, to the time of a frontier.
        tree_ranks: Maximum number of ranks for which spanning trees are packed: within a second or two.
        worth: Least fraction by which a schedule of more chunks lowers the rounds per chunk.
        few_ranks: Maximum number of ranks for which all points and baselines are candidates though the time is over:
            their steps are counted in milliseconds.
        rounding: Fraction by which a measured time may be below a lower bound: logs print three digits.
        after: Time of a frontier's baselines and predictions, about, over the time to write it out.
    """

    most_chunks: int = 32
    tries: int = 3
    seconds: float = 3.0
    dividing_seconds: float = 20.0
    for_times: float = 0.35
    for_list_schedules: float = 0.3
    least_for_rings: float = 2.0
    for_frontiers: float = 0.6
    flows_add: float = 0.1
    tree_ranks: int = 16
    worth: Fraction = Fraction(1, 50)
    few_ranks: int = 16
    rounding: float = 0.005
    after: float = 3.0


SETTINGS = TuningInputSettings()
QUICK_UNITS = (
    400  # chunks of a schedule that is cut down to fewer within a tenth of a second, after the time limit, too
)


@dataclass(frozen=True)
class SearchOptions:
    """Options of the search for frontiers and schedules.

    `end`: seconds of `clock` at which all of it ends (None: no limit); `limit` is the name of that limit in messages.
    """

    end: float | None = None
    jobs: int | None = None
    on_event: Listener | None = None
    for_frontiers: float = 1.0
    limit: str = "the time limit"
    clock: Callable[[], float] = lambda: time.monotonic()

    @property
    def left(self) -> float | None:
        """Seconds until the end or the ambient deadline, none below 0; None without either."""
        ambient = current_deadline().remaining()
        if self.end is None:
            return None if ambient == inf else ambient
        return min(ambient, max(0.0, self.end - self.clock()))

    def share(self, to_come: int) -> SearchOptions:
        """Return the options of one of `to_come` parts that share what is left."""
        left = self.left
        return self if left is None else replace(self, end=self.clock() + left / to_come)


class CollectiveInputs(NamedTuple):
    """The inputs of one collective: its frontiers, and the network that they share (None: there are logs only)."""

    name: str
    ranks: int | None
    root: int | None
    network: Network | None
    frontiers: tuple[Frontier, ...]
    measured: tuple[Measurement, ...]
    dividing: tuple[Schedule, ...] = ()
    notes: tuple[str, ...] = ()
    flows: bool = False  # the frontier is of flow methods
    through_switches: tuple[Schedule, ...] = ()  # with sends of switches that multicast


def frontier(given: ParetoFrontier | str | Path) -> ParetoFrontier:
    """Return a frontier from a value or a file. Raises FormatError, UsageError for something else."""
    found = read(Path(given)) if isinstance(given, str | Path) else given
    if not isinstance(found, ParetoFrontier):
        raise UsageError(
            f"{given} holds a {type(found).__name__.lower()}, not a frontier; `synth pareto -o` writes one"
        )
    return found


def measurements(
    measured: Sequence[str | Path | dict], catalog: str | Path | None, machine: str | None, in_place: bool
) -> list[Measurement]:
    """Return the measurements of all files and documents, and of the catalog those of `machine` (None: all)."""
    from synth.catalog.tuner import measurements as tune_measured

    found: list[Measurement] = []
    for given in measured:
        if isinstance(given, dict):
            found += tune_measured.from_document(given, "measured", in_place)
        else:
            found += tune_measured.load(Path(given), in_place)
    if catalog is not None:
        from synth.catalog.store.store import Store

        with Store.open(catalog) as store:
            for fingerprint in store.fingerprints():
                for doc in store.measurements(fingerprint):
                    if machine is None or doc.get("topology") in (None, machine):
                        found += tune_measured.from_document(doc, f"{catalog}, entry {fingerprint[:12]}", in_place)
    return found


def check_logs(logs: Sequence[tuple[str, str | Path]]) -> None:
    """Raise FormatError where a log cannot be read, or is too long."""
    from synth.catalog.tuner import logs as readers

    for _, file in logs:
        readers.log_text(Path(file))


def logged(logs: Sequence[tuple[str, str | Path]], inputs: CollectiveInputs, in_place: bool) -> list[Measurement]:
    """Return the measurements of the collective of `inputs` in the logs.

    Raises FormatError for a bad log, UsageError where numbers of ranks differ.
    """
    from synth.catalog.tuner import logs as readers

    found = []
    for backend, file in logs:
        found += readers.load(Path(file), backend, inputs.name, inputs.ranks, inputs.root, in_place)
    counts = {m.ranks for m in (*inputs.measured, *found)}
    if len(counts) > 1:
        raise UsageError(
            f"logs and measurements of {inputs.name} are of {' and '.join(map(str, sorted(counts)))} ranks; say "
            f"which: ranks"
        )
    return found


def check_times(inputs: CollectiveInputs, machine: Topology | None) -> None:
    """Raise FormatError where a measured time is below the least that any program takes on the machine.

    Such times are of another machine or another collective, or the links are faster than the topology says.
    """
    from synth.catalog.tuner.plan_bounds import least_seconds

    if machine is None and inputs.network is not None:
        machine = inputs.network.as_topology()
    timed = [measurement for measurement in inputs.measured if not measurement.modelled]
    if machine is None or not timed or not inputs.frontiers:
        return
    task = inputs.frontiers[0].collective
    sizes = sorted({sample.size for measurement in timed for sample in measurement.samples})
    least = least_seconds(machine, task, sizes)
    for measurement in timed:
        for sample in measurement.samples:
            bound = least.get(sample.size, 0.0)
            if measurement.ranks == machine.ranks and sample.seconds < bound * (1 - SETTINGS.rounding):
                least_text = f"{task.name} on {machine.name} takes at least {number(bound * 1e6)} µs"
                raise FormatError(
                    f"{number(sample.seconds * 1e6)} µs at {size_text(sample.size)}: {least_text}; the times are of"
                    " another machine or collective, or the links are faster than the topology says",
                    measurement.file,
                )


def collective_inputs(
    request: TuningRequest,
    machine: Topology | None,
    frontiers: Sequence[ParetoFrontier],
    held: Sequence[Measurement],
    search: SearchOptions,
) -> list[CollectiveInputs]:
    """Return the inputs of each collective of the request; it names none: of each that frontiers or `held` have.

    The frontiers of a collective are those among `frontiers`, else those of the request's catalog, else synthesized
    ones. `held`: measurements of any collectives. Raises UsageError where no collective is named, or nothing is known
    of one.
    """
    network, root, ranks = None if machine is None else machine.network(), request.root, request.ranks
    asked = [request.collective] if isinstance(request.collective, str) else list(request.collective)
    if not asked:
        asked = [f.collective_name for f in frontiers]
        asked += [m.collective for m in held]
    names = list(dict.fromkeys(map(canonical_name, asked)))
    if not names:
        raise UsageError("which collective? name one (--coll), or give frontiers or measurements that say")
    found = []
    for place, name in enumerate(names):
        sizes = [ranks, network and network.ranks]
        sizes += [f.machine.ranks for f in frontiers]
        count = next((size for size in sizes if size), None)
        given = [f for f in frontiers if f.collective_name == name and root in (None, *f.roots)]
        written = [_replayed(f, search) for f in given]
        own = [f for f, _ in written]
        notes = tuple(note for _, lacking in written for note in lacking)
        flows = any(f.engine == "flow" for f in given)
        if len({f.collective for f in own}) > 1:
            raise UsageError(
                f"the frontiers of {name} are of different roots or ranks; give those of one, or say which (--root)"
            )
        timed = any(m.collective == name for m in held)
        task = own[0].collective if own else _task(name, count, root, timed)
        if not own and machine is not None and task is not None:
            own, notes, flows = _kept(request.catalog, machine, task, search)
            if not own:
                made, notes, flows = _synthesized(machine, task, search, len(names) - place)
                own = [made]
        there = next((f.network for f in own), network)
        networks = [f.network for f in own]
        if network is not None:
            networks.append(network)
        for other in networks:
            if there is not None and not _same(other, there):
                raise UsageError(
                    f"{name}: a frontier of {other.name} and one of {there.name}; a plan is for one machine"
                )
        wanted, title = None, name
        if task is not None:
            wanted, title = task.roots[0] if len(task.roots) == 1 else None, task.name
        measured = [m for m in held if m.collective == title and count in (None, m.ranks) and m.root in (None, wanted)]
        found.append(
            CollectiveInputs(title, count, wanted, there, tuple(own), tuple(measured), notes=notes, flows=flows)
        )
    return found


def _task(name: str, ranks: int | None, root: int | None, timed: bool) -> Collective | None:
    """The collective of that name; None for one that only measurements know. Raises UsageError for one that nobody
    does."""
    try:
        return task_of(name, ranks or 2 + (root or 0), () if root is None else (root,))
    except UsageError:
        if timed:
            return None
        raise


def _same(one: Network, other: Network) -> bool:
    return one is other or (one.to_json() | {"name": ""}) == (other.to_json() | {"name": ""})


def _kept(
    catalog: str | Path | None, machine: Topology, task: Collective, search: SearchOptions
) -> tuple[list[Frontier], tuple[str, ...], bool]:  # fmt: skip
    """The frontier of the catalog that answers this, up to numbering, replayed; notes that say so, and which points it
    lacks; and whether it is of flow methods."""
    if catalog is None:
        return [], (), False
    from synth.catalog.store.store import Store

    with Store.open(catalog) as store:
        entry, _ = store.find(machine.network(), task, labels=machine.labels) or (None, None)
    if entry is None or entry.frontier is None or not entry.frontier.points:
        return [], (), False
    said = f"the frontier of {task.name} is that of the catalog {catalog}, entry {entry.id} ({entry.state})"
    found, notes = _replayed(entry.frontier, search)
    return [found], (said, *notes), entry.frontier.engine == "flow"


def _synthesized(
    machine: Topology, task: Collective, search: SearchOptions, to_come: int
) -> tuple[Frontier, tuple[str, ...], bool]:
    """The frontier of one collective, of `to_come` that share what is left of the time; notes of points that it lacks;
    and whether it is of flow methods."""
    left = search.left
    limit = None if left is None else left * search.for_frontiers / to_come / (1 + SETTINGS.flows_add)
    made = synthesis.known_frontier(machine, task) or synthesis.frontier(
        machine, task, time_limit=limit, jobs=search.jobs, on_event=search.on_event, multicast=False
    )
    return *_written_out(made, search.share(to_come)), made.engine == "flow"


def _replayed(found: ParetoFrontier, search: SearchOptions) -> tuple[Frontier, tuple[str, ...]]:
    """As `_written_out`, with every schedule replayed. Raises VerificationError."""
    from synth.checker.schedule import replay

    written, notes = _written_out(found, search)
    for point in written.points:
        replay.schedule(point.schedule)
    return written, notes


def _written_out(found: ParetoFrontier, search: SearchOptions) -> tuple[Frontier, tuple[str, ...]]:
    """The frontier with every send of its schedules listed, those of the fewest steps first; and notes of points that
    are too large for that, or for which no time is left."""
    written, lacking = found.written_out(_affordable(search))
    notes: list[str] = []
    late: list[str] = []
    for point, error in lacking:
        match error:
            case None:
                late.append(str(point.steps))
            case TooManySendsError():
                notes.append(
                    f"the point of {point.steps} steps is too large to write out ({error.sends} sends): not a candidate"
                )
            case _:
                notes.append(f"the point of {point.steps} steps cannot be written out ({error}): not a candidate")
    if late:
        notes.append(f"{search.limit} left no time to write out the points of {', '.join(late)} steps: not candidates")
    return written, tuple(notes)


def _affordable(search: SearchOptions) -> Callable[[Point], bool]:
    """The judge of points in turn: is there time to write one out, and to use it, if it takes as long for each of its
    chunks as the one before?"""
    start, chunks = search.clock(), 1
    pace, spent = 0.0, 0.0  # seconds a chunk, and in all

    def judge(point: Point) -> bool:
        nonlocal start, chunks, pace, spent
        took = search.clock() - start
        pace, spent = took / chunks, spent + took
        start, chunks = search.clock(), point.chunks
        left = search.left
        return left is None or left > SETTINGS.after * spent + (1 + SETTINGS.after) * pace * point.chunks

    return judge


def dividing(
    found: Frontier, machine: Topology, sizes: Sequence[int], element: int, search: SearchOptions, to_come: int = 1
) -> tuple[list[Schedule], list[int]]:
    """Search for schedules whose chunks divide every one of `sizes`, at most `SETTINGS.most_chunks` of a unit.

    At each number of steps whose point does not divide them there are some of the point's chunks, for the greatest
    size, and a schedule of about the point's rounds per chunk is sought, each if it is better than those of fewer
    steps. For large sizes there are allreduces on spanning trees. Returns the schedules, and the numbers of steps at
    which the time was over first. `to_come`: the number of frontiers that share the remaining time.
    """
    count = 0
    if all(size % element == 0 for size in sizes):
        count = gcd(*sizes) // element
    units = found.collective.buffer_units
    able = [c for c in range(1, SETTINGS.most_chunks + 1) if count and count % (c * units) == 0]
    made = _on_trees(found, able)
    late: list[int] = []
    best = None
    for place, point in enumerate(found.points):
        if point.chunks in able:
            best = point.rounds_per_chunk
            continue
        if search.left == 0 and point.chunks * units > QUICK_UNITS:
            late.append(point.steps)
            continue
        tries = sorted((Fraction(max(point.steps, ceil(c * point.rounds_per_chunk)), c), c) for c in able)  # (R/C, C)
        for rate, chunks in tries[: SETTINGS.tries]:
            if best is not None and rate >= best:
                break
            left = search.left
            if left == 0:
                late.append(point.steps)
                break
            seconds = SETTINGS.seconds if left is None else left / (to_come * (len(found.points) - place))
            answer = synthesis.solve(
                machine, found.collective, chunks, point.steps, int(rate * chunks), time_limit=seconds, jobs=search.jobs
            )
            if isinstance(answer, Sat):
                made.append(answer.schedule)
                best = rate
                break
    return made, late


def _on_trees(found: Frontier, able: Sequence[int]) -> list[Schedule]:
    """Return allreduces on packed spanning trees in numbers of chunks of `able`, for sizes that fill the pipeline.

    A program goes through its chunks piece by piece, so that C chunks on p trees, of which q share a round, tend to
    ceil(C / p) * q / C rounds per chunk. Each schedule has fewer than all points with chunks of `able`, and than those
    on trees with fewer chunks.
    """
    network = found.network
    if found.collective.name != "allreduce" or network.ranks > SETTINGS.tree_ranks:
        return []
    if not spanning_tree_packing.applies(network):
        return []
    packing = spanning_tree_packing.forest(network)
    best = min((point.rounds_per_chunk for point in found.points if point.chunks in able), default=None)
    made = []
    for chunks in able:
        rate = Fraction(ceil(Fraction(chunks, len(packing.trees))) * packing.rate.denominator, chunks)
        if best is None or rate <= best * (1 - SETTINGS.worth):
            best = rate
            made.append(spanning_tree_packing.schedule(packing, found.collective, chunks))
    return made
