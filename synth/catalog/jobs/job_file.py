"""The job file of a catalog: its machines, collectives, options and budget.

    topologies:
      - dgx1                                                     # a name of the grammar in docs/topologies.md
      - {name: dgx1, allocations: all, collectives: [allgather]} # up to isomorphism; or sizes: [3, 4]
      - {file: dump.xml, degraded: all}                          # the machine, and a variant without each of its links
      - {name: dgx1, degraded: [0-3, {without: [0-3, 0-1], degrade: "4-5:1/2"}]}
    collectives: [allgather, {name: broadcast, roots: all}, {name: allgatherv, sizes: [2, 1]}, {file: halo.yaml}]
    options: {max-steps: 8, max-chunks: 64, time-limit: 30s, memory: 4GB, seed: 0, engine: auto}   # or a list of such
    budget: {time: 2h, tasks: 100}                               # of one run of the whole job
    slurm: {queue: batch, cores: 2, memory: 8GB, walltime: "01:00:00"}

Paths of files are relative to the job file. `collectives` and `options` of a topology replace the general ones. `sizes`
shorter than the number of ranks are repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

from synth.errors import FormatError, SynthError, unknown
from synth.topologies.file_reader import Fields

Sizes = tuple[int, ...] | tuple[tuple[int, ...], ...]


class TopologyChange(NamedTuple):
    """A variant of a machine, given by the values of --without, --degrade and --ranks."""

    without: tuple[str, ...] = ()
    degrade: tuple[str, ...] = ()
    ranks: str | None = None
    place: str = ""


class CollectiveRequest(NamedTuple):
    """A collective by name, or by the file that defines it. `roots` "all": one task for each rank as the root."""

    name: str
    file: Path | None = None
    roots: tuple[int, ...] | Literal["all"] = ()
    sizes: Sizes | None = None
    place: str = ""


@dataclass(frozen=True)
class TaskOptions:
    """The options of one task: `time_limit` in wall seconds, `memory` in bytes of each of its processes; None for no
    limit."""

    max_steps: int | None = None
    max_chunks: int | None = None
    engine: str = "auto"
    time_limit: float | None = None
    memory: int | None = 4 << 30
    seed: int = 0
    deterministic: bool = False


class MachineRequest(NamedTuple):
    """A machine by name or file, with its variants.

    `allocations`: "all", or the numbers of ranks; these allocations then replace the machine itself.
    """

    name: str
    file: Path | None = None
    allocations: tuple[int, ...] | Literal["all"] | None = None
    degraded: tuple[TopologyChange, ...] | Literal["all"] = ()
    collectives: tuple[CollectiveRequest, ...] | None = None
    options: tuple[TaskOptions, ...] | None = None
    place: str = ""


class LocatedFields(Fields):
    """A reader of checked values from a YAML document; every error names the file, the line and the key."""

    def __init__(self, file: str, lines: Mapping[str, int]) -> None:
        super().__init__(file)
        self.lines = lines

    def fail(self, message: str, place: str | None) -> NoReturn:
        """Raise FormatError at the line of `place`, or of its nearest enclosing key."""
        key = place or ""
        while key and key not in self.lines:
            key = key[: max(key.rfind("."), key.rfind("["), 0)]
        raise FormatError(f"{place}: {message}" if place else message, self.file, self.lines.get(key))

    def mapping(
        self, value: Any, place: str | None, allowed: Iterable[str], needed: Iterable[str] = ()
    ) -> dict[str, Any]:
        """Return the mapping as `Fields.mapping` does; the error for an unknown key suggests the nearest known one."""
        allowed = list(allowed)
        for key in value if isinstance(value, dict) else ():
            if key not in allowed:
                self.choice(key, "key", allowed, f"{place}.{key}" if place else key)
        return super().mapping(value, place, allowed, needed)

    def choice(self, value: Any, kind: str, known: Iterable[str], place: str) -> str:
        """Return `value`, which must be one of the `known` words."""
        word, known = self.string(value, place), list(known)
        if word not in known:
            line, _, hint = unknown(kind, word[:40], known, "").partition("; ")
            self.fail(f"{line}; {hint if hint.startswith('did you mean') else 'there are ' + ', '.join(known)}", place)
        return word

    def reraise(self, error: SynthError, place: str) -> NoReturn:
        """Raise `error`, which a value of the document caused, as a FormatError at the line of `place`."""
        self.fail(str(error), place)


@dataclass(frozen=True)
class JobFile:
    """The content of a job file. `seconds` (wall time) and `tasks` limit one run of the job; None for no limit."""

    machines: tuple[MachineRequest, ...]
    collectives: tuple[CollectiveRequest, ...] = ()
    options: tuple[TaskOptions, ...] = (TaskOptions(),)
    seconds: float | None = None
    tasks: int | None = None
    slurm: Mapping[str, Any] = field(default_factory=dict)
    read: LocatedFields = field(default=LocatedFields("fleet", {}), compare=False, repr=False)
