"""Algorithms of the chunk language: the library, files of the user's, and their distance from the bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synth.commands.api.inputs import TopologyLike, named_topology
from synth.errors import SynthError, UsageError
from synth.model.schedule import Schedule

if TYPE_CHECKING:
    from synth.encodings.bounds.blame import Places
    from synth.language.algorithm import ChunkAlgorithm
    from synth.model.blame import Blame
    from synth.model.compressed_schedule import CompressedSchedule
    from synth.model.frontier import LowerBound

# Wall seconds after which `distance` is content with the bounds that it has.
DISTANCE_SECONDS = 20.0


@dataclass(frozen=True)
class Distance:
    """The steps and the rounds per chunk of a schedule beside the lower bounds; None for a bound that is not known.

    Attributes
    ----------
    steps, rounds_per_chunk : of the schedule.
    least_steps : no schedule takes fewer steps.
    at_steps : no schedule of so many steps takes fewer rounds per chunk.
    at_any : nor does one of any number of steps.
    bound : the bound at its steps with its certificate; None where it is not known, or one of bandwidth alone.
    unfinished : True if the time limit came before all bounds.
    """

    steps: int
    rounds_per_chunk: Fraction
    least_steps: int | None
    at_steps: Fraction | None
    at_any: Fraction | None
    bound: LowerBound | None = None
    unfinished: bool = False

    @property
    def factor(self) -> Fraction | None:
        """Rounds per chunk divided by the bound for any number of steps."""
        return self.rounds_per_chunk / self.at_any if self.at_any else None

    def to_json(self) -> dict[str, Any]:
        """Return the distance as a JSON document."""
        return {
            "steps": self.steps, "rounds_per_chunk": str(self.rounds_per_chunk), "least_steps": self.least_steps,
            "bound_at_steps": _text(self.at_steps), "bound": _text(self.at_any), "unfinished": self.unfinished,
        }  # fmt: skip


def _value(bound: LowerBound | None) -> Fraction | None:
    return None if bound is None else bound.value


def _text(value: Fraction | None) -> str | None:
    return None if value is None else str(value)


def distance(
    schedule: Schedule | CompressedSchedule, topology: TopologyLike, *, time_limit: float | None = None
) -> Distance:
    """Return how far a schedule is from the certified lower bounds of its machine and collective.

    Parameters
    ----------
    schedule : a schedule of this machine.
    topology : the machine.
    time_limit : wall seconds for the bounds. None: `DISTANCE_SECONDS`.

    Examples
    --------
    >>> import synth
    >>> from synth.language.library import ring
    >>> found = synth.api.distance(ring.allgather.schedule("ring:5"), "ring:5")
    >>> found.steps, found.least_steps, found.rounds_per_chunk, found.at_any
    (4, 2, Fraction(2, 1), Fraction(2, 1))
    """
    return distances([schedule], topology, time_limit=time_limit)[0]


def distances(
    schedules: Sequence[Schedule | CompressedSchedule], topology: TopologyLike, *, time_limit: float | None = None
) -> tuple[Distance, ...]:
    """Return how far schedules of one collective are from its lower bounds, which are computed once; as `distance`."""
    from synth.commands.api.scale import scale_bound
    from synth.commands.api.synthesis import FewerBounds, bound

    machine = named_topology(topology)
    task = schedules[0].collective
    seconds = DISTANCE_SECONDS if time_limit is None else time_limit
    large = scale_bound(machine, task, engine="auto", time_limit=seconds)
    unfinished, found = False, []
    if large is None:
        counts = {schedule.step_count for schedule in schedules}
        try:
            found = bound(machine, task, steps=counts, time_limit=seconds)
        except FewerBounds as fewer:
            found, unfinished = fewer.found, True
    known = dict(found)
    at_any, least_steps = known.get(None), known.get(0)
    rows = []
    for schedule in schedules:
        steps, rate = schedule.step_count, schedule.rounds_per_chunk
        if large is not None:
            over = bool(large.unfinished)
            rows.append(Distance(steps, rate, large.least_steps, large.bound, large.bound, unfinished=over))
            continue
        here = known.get(steps, at_any)
        least = 0 if least_steps is None else int(least_steps.value)
        rows.append(Distance(steps, rate, least, _value(here), _value(at_any), here, unfinished))
    return tuple(rows)


def blame(
    schedule: Schedule, bound: LowerBound, *, topology: TopologyLike | None = None, places: Places | None = None
) -> Blame | None:  # fmt: skip
    """Return where the rounds of a schedule go, by the certificate of a bound: needed, detours, idle links and slack.

    Parameters
    ----------
    schedule : a schedule.
    bound : at its number of steps, as `distance` has it, or for any number.
    topology : the machine of the bound, on which the schedule is replayed: under a sketch its own has fewer links.
        None: its own.
    places : the source line of each send by (step, chunk, source, destination), such as `Compiled.places`.

    Returns
    -------
    Parts that come to the schedule's rounds exactly. None where the certificate has no prices.

    Raises
    ------
    VerificationError where the machine does not carry the schedule, or the bound is not of it.

    Examples
    --------
    >>> import synth
    >>> from synth.language.library import recursive_doubling
    >>> schedule = recursive_doubling.allgather.schedule("hypercube:8")
    >>> found = synth.api.blame(schedule, synth.api.distance(schedule, "hypercube:8").bound)
    >>> found.total.rounds == schedule.rounds
    True
    """
    from synth.checker.schedule import replay
    from synth.encodings.bounds.blame import blame

    network = schedule.network
    if topology is not None and not schedule.uses_multicast:
        network = named_topology(topology).network()
    if network.document != schedule.network.document:
        schedule = replace(schedule, network=network)
        replay.schedule(schedule)
    return blame(schedule, bound, places)


def library(collective: str | None = None) -> tuple[ChunkAlgorithm, ...]:
    """Return the algorithms of the library and of plug-ins, all or those of a collective.

    Examples
    --------
    >>> import synth
    >>> "ring" in [one.name for one in synth.api.library("allgather")]
    True
    """
    from synth.language.algorithm import ChunkAlgorithm
    from synth.language.library import LIBRARY
    from synth.model.collective import canonical_name
    from synth.model.registry import load, table

    known = [*LIBRARY]
    for name, target in table("algorithms", [one.name for one in LIBRARY]).items():
        one = load(target)
        if not isinstance(one, ChunkAlgorithm):
            raise SynthError(f"the plug-in {target} is no algorithm; decorate its function with @algorithm")
        known.append(replace(one, name=name))
    chosen = [one for one in known if collective is None or one.collective == canonical_name(collective)]
    return tuple(chosen)


def load_algorithm(source: str, collective: str | None = None) -> ChunkAlgorithm:
    """Return an algorithm of a file, ``FILE.py`` or ``FILE.py:NAME``, or of the library by its name.

    The file is run. Raises UsageError where several are possible.
    """
    from synth.language.source_file import algorithms_in

    file, _, name = source.partition(".py:")
    if source.endswith(".py") or name:
        path = Path(f"{file}.py" if name else source)
        found = algorithms_in(path)
        if name and name not in found:
            raise UsageError(f"{path} defines no algorithm {name!r}; there are {', '.join(found)}")
        if len(found) > 1 and not name:
            raise UsageError(f"{path} defines several algorithms; name one: {path}:{next(iter(found))}")
        return found[name] if name else next(iter(found.values()))
    named = [one for one in library() if one.name == source]
    if not named and Path(source).is_file():
        raise UsageError(f"{source} is no program of the chunk language, FILE.py; `synth explain` takes a schedule")
    if not named:
        words = [source, source.partition(".")[0], source.replace("_", "-")]
        names = [one.name for one in library()]
        near = next((name for word in words for name in get_close_matches(word.lower(), names, 1, 0.8)), None)
        hint = "name a file FILE.py, or one of `synth algorithms`" if near is None else f"did you mean {near}?"
        raise UsageError(f"unknown algorithm {source!r}; {hint}")
    fitting = [one for one in named if collective is None or one.collective == collective]
    if len(fitting) != 1:
        does = ", ".join(one.collective for one in named)
        raise UsageError(f"{source} does {does}; choose with --coll")
    return fitting[0]


def parameter(text: str) -> tuple[str, Any]:
    """Return the name and the value of ``key=value``: a number, a family of the library, or text."""
    from synth.language.library import FAMILIES

    key, equals, value = text.partition("=")
    if not equals or not key.isidentifier():
        raise UsageError(f"-p {text}: write key=value")
    if value in FAMILIES:
        return key, FAMILIES[value]
    try:
        number = Fraction(value)
    except ValueError:
        return key, value
    return key, int(number) if number.denominator == 1 else number


@dataclass(frozen=True)
class LibraryRow:
    """An algorithm of the library on a machine: its schedule, or why there is none.

    `factor`: its rounds per chunk divided by the bound for any number of steps; None where that is not known.
    """

    algorithm: ChunkAlgorithm
    schedule: Schedule | None
    refusal: str = ""
    factor: Fraction | None = None

    def microseconds(self, size: int) -> float | None:
        """Return the time of synchronous steps at `size` bytes: latencies of the steps and rounds per chunk."""
        if self.schedule is None:
            return None
        network, task = self.schedule.network, self.schedule.collective
        gigabytes = self.schedule.rounds_per_chunk * size * task.unit_share / 10**9
        return float(self.schedule.latency + gigabytes / network.unit * 10**6)


def library_on(
    topology: TopologyLike,
    collective: str,
    *,
    size: int = 1 << 20,
    bounds: bool = True,
    time_limit: float | None = None,
) -> tuple[LibraryRow, ...]:
    """Return the library's algorithms for a collective on a machine, the fastest first; the refused ones last.

    Parameters
    ----------
    topology : the machine.
    collective : a name.
    size : bytes at which times of synchronous steps are compared.
    bounds : compute the lower bound.
    time_limit : wall seconds for it. None: `DISTANCE_SECONDS`.

    Examples
    --------
    >>> import synth
    >>> [row.algorithm.name for row in synth.api.library_on("ring:6", "allreduce", bounds=False) if row.schedule]
    ['ring', 'packed-trees']
    """
    machine = named_topology(topology)
    rows = []
    for one in library(collective):
        try:
            rows.append(LibraryRow(one, one.schedule(machine)))
        except UsageError as error:
            rows.append(LibraryRow(one, None, str(error)))
    schedules = [row.schedule for row in rows if row.schedule is not None]
    if bounds and schedules:
        slowest = max(schedules, key=lambda schedule: schedule.step_count)
        least = distance(slowest, machine, time_limit=time_limit).at_any
        for i, row in enumerate(rows):
            if row.schedule is not None and least:
                rows[i] = replace(row, factor=row.schedule.rounds_per_chunk / least)
    return tuple(sorted(rows, key=lambda row: (row.schedule is None, row.microseconds(size) or 0.0)))
