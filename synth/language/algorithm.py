"""Algorithms: functions of the language with their collective, and their way to a schedule."""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import lcm
from typing import Any

from synth.checker.schedule import replay
from synth.errors import ArgumentError, SynthError, UsageError
from synth.language.chunk_operations import operations
from synth.language.data import Data
from synth.language.groups import RankGroup
from synth.language.place import SourceLine, error_at, short_path
from synth.language.step_assignment import MODES
from synth.language.step_plan import StepPlan, best_multiple, levelled, planned, routed
from synth.language.trace import MAX_CHUNKS, AlgorithmTrace
from synth.model.collective import Collective, canonical_name
from synth.model.collective import collective as collective_named
from synth.model.schedule import Schedule
from synth.model.topology import Network, Topology
from synth.program.send_hints import SendHints


@dataclass(frozen=True)
class CompileOptions:
    """Options of the way from a trace to a schedule.

    Attributes
    ----------
    steps : "asap": the fewest steps that the data allow, and in them few rounds; "written": the same, but each
        `with a.step()` block is one step; "paced" or "paced=R": at most R rounds a step, 1 by default. None: as the
        algorithm says.
    multiple : the chunks of a unit, as a multiple of the fewest that the program's fractions need. None: the least
        multiple at which no step wastes a part of a round, so far as there is one.
    parameters : values for the keywords of the function.
    """

    steps: str | None = None
    multiple: int | None = None
    parameters: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Compiled:
    """A schedule that was replayed, with the lines of the program.

    Attributes
    ----------
    plan, multiple : the steps of the operations, and the chunks into which the schedule cuts each chunk of these.
    """

    schedule: Schedule
    plan: StepPlan
    multiple: int = 1

    @property
    def unused(self) -> tuple[tuple[SourceLine | None, int], ...]:
        """The number of operations that no output needs and that are left out, by place."""
        return tuple(self.plan.ops.unused.items())

    @functools.cached_property
    def places(self) -> dict[tuple[int, int, int, int], SourceLine]:
        """The line of each send between ranks, by (step from 1, chunk, source, destination)."""
        return self.plan.places(self.multiple)

    @functools.cached_property
    def hints(self) -> SendHints:
        """The hint of each send for the lowering, by the same numbers; empty without `a.hints`."""
        return self.plan.hints(self.multiple)


@dataclass(frozen=True)
class ChunkAlgorithm:
    """A function of the language with its collective. `synth.language.algorithm` makes it.

    Called with a group and ``{rank: data}`` it is a part of another algorithm, and returns the data of the ranks then.

    Attributes
    ----------
    function : called with the handle; with ``{rank: data}`` behind it where its second parameter is `held`.
    collective, name : names.
    steps : how steps are made where the user does not say: written, asap or paced=R.
    formula, paper, home : of the library's: S and R/C, the source, and a machine for which it is made.

    Examples
    --------
    >>> from synth.language.library import ring
    >>> ring.allgather.schedule("ring:8")
    <Schedule of allgather on ring:8: C=2, S=7, R=7, 112 sends>
    """

    function: Callable[..., Any]
    collective: str
    name: str
    steps: str = "written"
    formula: str = ""
    paper: str = ""
    home: str = ""

    def __call__(self, group: RankGroup, held: Mapping[int, Data] | None = None, **parameters: Any) -> dict[int, Data]:
        """Do the algorithm's part on a group; `held[rank]` is what its rank begins with, by default its input."""
        if held is None and not self._takes_held:
            return self.function(group, **parameters)
        # As a part of another program it takes what that one holds, rank by rank.
        given = group.inputs() if held is None else dict(held)
        for rank in group.ranks:
            if rank not in given:
                raise error_at(group.trace.place(), f"{self.name} is called without data of rank {rank}")
            if given[rank].rank != rank:
                group.trace.refuse_other_rank(given[rank].segments, given[rank].rank, rank)
        return self.function(group, given, **parameters) if self._takes_held else self.function(group, **parameters)

    @property
    def place(self) -> SourceLine:
        """The line of the function."""
        code = self.function.__code__
        return SourceLine(code.co_filename, code.co_firstlineno)

    @functools.cached_property
    def _takes_held(self) -> bool:
        return list(inspect.signature(self.function).parameters)[1:2] == ["held"]

    def _traced(
        self, machine: Topology | Network, collective: Collective | None, parameters: Mapping[str, Any]
    ) -> AlgorithmTrace:
        """Call the function on all ranks of a machine and return the record of its values."""
        try:
            task = collective or collective_named(self.collective, machine.ranks)
        except UsageError as error:
            raise error_at(self.place, str(error)) from None
        # The first parameters are the handle, and the held data where the function takes them.
        known = list(inspect.signature(self.function).parameters)[1 + self._takes_held :]
        unknown = [key for key in parameters if key not in known]
        if unknown:
            raise UsageError(f"{self.name} has no parameter {unknown[0]!r}; it has {', '.join(known) or 'none'}")
        trace = AlgorithmTrace(task, machine, _call.__code__)
        _call(self, RankGroup(tuple(range(task.ranks)), trace), parameters)
        trace.begin()
        return trace

    def compile(
        self,
        topology: Topology | Network | str,
        collective: Collective | None = None,
        options: CompileOptions | None = None,
    ) -> Compiled:
        """Trace the function on a machine and return its schedule, which was replayed.

        Raises UsageError with the line of a program that makes no sense, VerificationError where outputs are missing.
        """
        chosen = options or CompileOptions()
        machine = _machine(topology)
        trace = self._traced(machine, collective, chosen.parameters or {})
        mode = chosen.steps or self.steps
        _mode(mode)  # first: a wrong mode is the user's mistake, whatever the program does
        # each part, and each piece of a hint, must be whole chunks
        denominators = set()
        for value in trace.values:
            denominators |= {value.lo.denominator, value.hi.denominator}
            if value.hint is not None and value.hint.pieces:
                denominators.add(((value.hi - value.lo) / value.hint.pieces).denominator)
        chunks = lcm(*denominators) * (chosen.multiple or 1)
        if chunks > MAX_CHUNKS:
            raise UsageError(f"{self.name} needs {chunks} chunks of a unit; at most {MAX_CHUNKS} are supported")
        file = short_path(self.function.__code__.co_filename)
        return compiled(trace, mode, chunks, file, chosen.multiple)

    def schedule(
        self, topology: Topology | Network | str, collective: Collective | None = None, steps: str | None = None,
        chunks: int | None = None, **parameters: Any,
    ) -> Schedule:  # fmt: skip
        """Return the `Schedule` on a machine, by its name or as a value. `chunks`: `CompileOptions.multiple`."""
        return self.compile(topology, collective, CompileOptions(steps, chunks, parameters)).schedule


def algorithm(
    collective: str, *, name: str | None = None, steps: str = "written", formula: str = "", paper: str = "",
    home: str = "",
) -> Callable[[Callable[..., Any]], ChunkAlgorithm]:  # fmt: skip
    """Return a decorator that makes a `ChunkAlgorithm` of a function.

    Parameters
    ----------
    collective : the name of the collective that the function does. One of your own has a file, which the command
        names by --coll FILE, and here the name in that file.
    name : by default the function's, with ``-`` for ``_``.
    steps, formula, paper, home : as in `ChunkAlgorithm`.

    Raises ArgumentError for what is no name, and for what is no plain function.

    Examples
    --------
    >>> from synth.language import algorithm
    >>> @algorithm("allreduce")
    ... def one_shot(a):
    ...     for rank in a.ranks:
    ...         a.sum(rank, a.inputs().values())
    >>> one_shot.schedule("fully-connected:4")
    <Schedule of allreduce on fully-connected:4: C=1, S=1, R=1, 12 sends>
    """
    if not isinstance(collective, str):
        found = "a function: write the name in parentheses" if inspect.isfunction(collective) else repr(collective)
        raise ArgumentError(
            f'@algorithm takes the name of a collective, such as @algorithm("allgather"), found {found}'
        )

    def decorate(function: Callable[..., Any]) -> ChunkAlgorithm:
        plain = inspect.isfunction(function)
        if not plain or inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function):
            raise ArgumentError(f"@algorithm is for a plain function, without yield and async, found {function!r}")
        title = name or function.__name__.replace("_", "-")
        return ChunkAlgorithm(function, canonical_name(collective), title, steps, formula, paper, home)

    return decorate


def compiled(trace: AlgorithmTrace, steps: str, chunks: int, file: str, multiple: int | None = None) -> Compiled:
    """Return the schedule of a trace on `chunks` chunks of each unit, which was replayed.

    `steps` and `multiple` as in `CompileOptions`; `chunks` counts the multiple. `file`: the program in errors without a
    line. Raises UsageError where no steps fit, VerificationError where outputs are missing.
    """
    mode, rounds = _mode(steps)
    ops = operations(trace, chunks, file)
    plan = planned(trace, ops, mode, rounds)
    # Unless the user chose one, take the multiple at which no step wastes a part of a round.
    further = 1
    if multiple is None and mode != "paced":
        plan = levelled(trace, plan, mode, file)
        further = best_multiple(plan.loads, plan.ops.chunks, sum(map(len, plan.sends)))
    made = routed(plan.network, plan.sends, further)
    schedule = Schedule(plan.network, plan.ops.collective, plan.ops.chunks * further, made)
    replay.schedule(schedule)
    return Compiled(schedule, plan, further)


def _call(algorithm: ChunkAlgorithm, handle: RankGroup, parameters: Mapping[str, Any]) -> None:
    """Call the function of an algorithm. A Python error becomes a UsageError with the line of the user's file."""
    try:
        algorithm(handle, None, **parameters)
    except SynthError:
        raise
    except (Exception, SystemExit) as error:
        # The innermost frame in the program's own file, if there is one.
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
        frames = [frame for frame in frames if frame.filename == algorithm.place.file] or frames
        where = SourceLine(frames[-1].filename, frames[-1].lineno or 0) if frames else algorithm.place
        raise error_at(where, f"{type(error).__name__}: {error}") from error


def _machine(topology: Topology | Network | str) -> Topology | Network:
    if not isinstance(topology, str):
        return topology
    from synth import topologies

    return topologies.topology(topology)


def _mode(text: str) -> tuple[str, int]:
    """Return the mode of steps, and the rounds of a step."""
    mode, _, number = text.partition("=")
    if mode not in MODES or (number and (mode != "paced" or not number.isdecimal() or int(number) < 1)):
        raise UsageError(f"--steps {text}: there are asap, written, paced and paced=R with R rounds a step")
    return mode, int(number or 1)
