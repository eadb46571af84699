"""The options that several commands have, each declared once, and the values that they describe."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from synth.commands.framework.declaration import option
from synth.commands.framework.types import (
    Counts,
    Duration,
    LowerCase,
    PerSend,
    Places,
    Positive,
    Ranks,
    Sizes,
    names_of,
)
from synth.commands.inputs import collective, topology
from synth.errors import UsageError
from synth.model.frontier import StepCount
from synth.program.program import PROTOCOLS

if TYPE_CHECKING:
    from synth.commands.inputs import CollectiveLike, TopologyLike
    from synth.model.collective import Collective
    from synth.model.topology import Topology
    from synth.program.message_cost import MessageCost

FILE = click.Path(path_type=Path, readable=False)  # what reads it says why it cannot, as for a missing one
# The greatest number of ranks for which the units of a collective are written out for the flow methods.
LISTED = 256
# The suffixes of files that define a collective.
SUFFIXES = (".yaml", ".yml", ".json")
MACHINE = "the machine: a name, a path, a `Topology`, a graph of networkx or a mapping, as `synth.topology` takes."


def topology_option(doc: str = MACHINE, **attributes: Any) -> Any:
    """Return --topo, the machine."""
    return option(
        "--topo", required=False, metavar="NAME|FILE", shell_complete=names_of("topologies"), doc=doc, **attributes,
        help="A machine or family: dgx1, ring:8, torus:4x4 (`synth topo list`), or the file or dump of one "
        "(`synth topo import -h`).",
    )  # fmt: skip


def collective_option(help: str, doc: str = "", **attributes: Any) -> Any:
    """Return --coll, the name of one collective."""
    complete = names_of("collectives")
    return option("--coll", required=False, metavar="NAME", shell_complete=complete, help=help, doc=doc, **attributes)


def time_limit_option(
    help: str, doc: str = "wall seconds. None: no limit.", metavar: str = "5m", default: float | None = None
) -> Any:
    """Return --time-limit, in seconds of wall time."""
    return option("--time-limit", default=default, type=Duration(), metavar=metavar, help=help, doc=doc)


def jobs_option(help: str, doc: str) -> Any:
    """Return the option --jobs: the number of processes that run at a time."""
    return option("--jobs", default=None, type=Positive(), metavar="N", help=help, doc=doc)


def engine_option(help: str, doc: str) -> Any:
    """Return --engine."""
    engines = click.Choice(["auto", "exact", "flow"], case_sensitive=False)
    return option("--engine", default="auto", type=engines, show_default=True, help=help, doc=doc)


def multicast_option(doc: str = "") -> Any:
    """Return --no-multicast."""
    says = "Count what switches that multicast and reduce (NVLS) allow / links alone."
    return option("--multicast/--no-multicast", default=True, show_default=True, help=says, doc=doc)


def point_option(help: str, doc: str = "the number of a frontier's point, from 1, or its `StepCount`.") -> Any:
    """Return --point, the number of a frontier's point; `StepOption` is --step beside it."""
    return option("--point", default=None, type=Positive(), metavar="N", help=help, doc=doc)


def instances_option(help: str, default: int | None = 1, doc: str = "", **attributes: Any) -> Any:
    """Return --instances, the number of copies of a program that share the data."""
    metavar = attributes.pop("metavar", "N")
    return option("--instances", default=default, type=Positive(), metavar=metavar, help=help, doc=doc, **attributes)


def protocol_option(help: str, default: str | None = None, doc: str = "", **attributes: Any) -> Any:
    """Return --protocol, the name of a protocol in any case."""
    protocols = click.Choice(PROTOCOLS, case_sensitive=False)
    return option(
        "--protocol", default=default, type=protocols, metavar="NAME", help=help, doc=doc, **attributes,
    )  # fmt: skip


def runtime_option(help: str, doc: str = "", default: str | None = None) -> Any:
    """Return --runtime, the name of the runtime that loads a program."""
    return option("--runtime", default=default, type=LowerCase(), metavar="NAME", help=help, doc=doc)


def executor_option(help: str, **attributes: Any) -> Any:
    """Return --executor, the name of an executor."""
    complete = names_of("executors")
    return option(
        "--executor", default="reference", show_default=True, metavar="NAME", help=help, shell_complete=complete,
        doc="a name (`synth list executors`).", **attributes,
    )  # fmt: skip


def dtype_option(help: str = "float64 .. float16, bfloat16, int8 .. uint64.") -> Any:
    """Return --dtype, the type of the elements."""
    return option(
        "--dtype", default="float32", show_default=True, metavar="TYPE", help=help, doc="type of the elements."
    )


def in_place_option(help: str, doc: str) -> Any:
    """Return --in-place, the calls that a program serves."""
    ways = click.Choice(["in", "out", "both"], case_sensitive=False)
    return option("--in-place", default=None, type=ways, help=help, doc=doc)


def overheads_option() -> Any:
    """Return --no-overheads."""
    return option(
        "--overheads/--no-overheads", default=True, show_default=True,
        help="Times include a launch and each protocol's costs / count the α and β of bare links alone.",
        doc="predicted times include a launch and each protocol's costs. False: the α and β of bare links alone.",
    )  # fmt: skip


def per_send_option(default: Any = None) -> Any:
    """Return --per-send, the cost of a message."""
    return option(
        "--per-send", default=default, type=PerSend(), metavar="0.3us",
        help="Cost of a message for its sender and for its receiver: such as 0.3us.",
    )  # fmt: skip


def sizes_option(help: str, doc: str, default: tuple[int, ...], factor: int, shown: str, **attributes: Any) -> Any:
    """Return --sizes, a row of sizes in bytes, each `factor` times the one before unless the value says a factor.

    `shown`: the default as the command line writes it.
    """
    return option(
        "--sizes", default=default, type=Sizes(factor), show_default=shown, metavar="LOW:HIGH[:xF]", help=help, doc=doc,
        **attributes,
    )  # fmt: skip


def names_option(help: str, doc: str = "", **attributes: Any) -> Any:
    """Return --coll, the names of several collectives, repeated or with commas."""

    def split(_: click.Context, __: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
        return tuple(name.strip() for value in values for name in value.split(",") if name.strip())

    return option(
        "--coll", multiple=True, metavar="NAME", callback=split, shell_complete=names_of("collectives"), help=help,
        doc=doc, **attributes,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """Thread blocks of MSCCL++ plans."""

    blocks: int | None = option(
        "--blocks", default=None, type=Positive(), metavar="N",
        help="Of MSCCL++ plans: thread blocks of a rank to start from, as far as there are chunks; by default 16 "
        "for each instance, fewer where a rank would have more than 256 port channels. Each block has channels, "
        "and between boxes queue pairs, of its own.",
    )  # fmt: skip
    reads: bool | None = option(
        "--reads/--no-reads", default=None,
        help="Of MSCCL++ plans: sums read what other GPUs of the box have, or have it put; by default "
        "they read where no GPU takes several sums at once.",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class StepOption:
    """--step beside --point."""

    step: int | None = option(
        "--step", default=None, type=Positive(), metavar="S", help="The point of a frontier with S steps."
    )

    def __post_init__(self) -> None:
        point = getattr(self, "point", None)
        if self.step is None or isinstance(point, StepCount):
            return
        if point is not None:
            raise UsageError("--point and --step exclude each other; give one")
        object.__setattr__(self, "point", StepCount(self.step))


@dataclass(frozen=True, kw_only=True)
class ExecutorOptions:
    """Options of runs: the call, the machine that gives the times, and the executor's own."""

    dtype: str = dtype_option()
    op: str = option("--op", default="sum", show_default=True, metavar="OP", help="sum, prod, min, max or avg.")
    topology: TopologyLike | None = topology_option(
        "the machine whose links give the times. None: the network that a schedule brings.", default=None
    )
    collective: CollectiveLike | None = collective_option(
        "The collective, if FILE does not name it.", "of a file that does not say it.", default=None
    )
    roots: int | Iterable[int] = option(
        "--root", default=(), type=Ranks(), metavar="0",
        help="The root of --coll, or of a file's broadcast or reduce.", doc="of that collective.",
    )  # fmt: skip
    overheads: bool = overheads_option()
    per_send: MessageCost | str | None = per_send_option()
    ranks_on: Sequence[int] | None = option(
        "--ranks-on", default=None, type=Places(), metavar="0,1,2,3",
        help="The GPU of each rank, for host and cuda; each rank gets a launch of its own.",
    )  # fmt: skip
    threads: int | None = option(
        "--threads", default=None, type=Positive(), metavar="N",
        help="Threads of each thread block, for host and cuda.",
    )  # fmt: skip
    timeout: float | None = option(
        "--timeout", default=None, type=click.FloatRange(0.01), metavar="SECONDS",
        help="Stop when no block has moved for so long, for host and cuda.",
    )  # fmt: skip


@dataclass(frozen=True)
class TaskOptions:
    """A collective on a machine."""

    topology: TopologyLike = topology_option()
    collective: CollectiveLike = collective_option(
        "A collective, or a file that defines one (`synth list collectives`).",
        "a name, a path, a `Collective` or a mapping, as `synth.collective` takes.",
    )
    _: KW_ONLY
    roots: int | Iterable[int] = option(
        "--root", default=(), type=Ranks(), metavar="0,3", doc="of the collective, as in `synth.collective`.",
        help="The root, by default 0; the roots of a multi-root collective, by default 0,1.",
    )  # fmt: skip
    sizes: Sequence | None = option(
        "--counts", default=None, type=Counts(), metavar="2,1,3", doc="of the collective, as in `synth.collective`.",
        help="Chunk counts per rank; per pair in rows split by ';', or a file.",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Encoding, solver and effort of exact synthesis."""

    encoding: str = option(
        "--encoding", default="auto", metavar="NAME", shell_complete=names_of("encodings"),
        help="auto, step, quotient, sccl, ... (`synth list encodings`).",
    )  # fmt: skip
    solver: str = option(
        "--solver", default="auto", metavar="NAME", shell_complete=names_of("solvers"),
        help="auto, cadical, minicard, z3, ... (`synth list solvers`).",
    )  # fmt: skip
    time_limit: float | None = time_limit_option(
        "Wall time; results so far are kept when it ends.",
        "wall seconds for everything. None: the default effort. A limit that is reached is no error.",
    )
    jobs: int | None = jobs_option(
        "Processes at a time; by default the number of cores.",
        "processes of a search. None: one for each core, at most 8.",
    )
    seed: int = option(default=0, type=int, doc="of every random choice.")
    deterministic: bool = option(
        "--deterministic", default=False,
        help="One solver and one seed, no portfolio: the same schedules each time.",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Changes of the machine of --topo on the command line."""

    ranks: tuple[int, ...] | None = option(
        "--ranks", default=None, type=Ranks(), metavar="0-3,7", help="Use only these ranks, renumbered from 0."
    )
    without: Sequence[str] = option(
        "--without", default=(), multiple=True, metavar="0-3",
        help="Remove the links between two ranks, both ways (repeatable).",
    )  # fmt: skip
    degrade: Sequence[str] = option(
        "--degrade", default=(), multiple=True, metavar="0-3:1/2",
        help="Scale the links between two ranks, or all of one: 0:17/18 (repeatable).",
    )  # fmt: skip
    links: Path | None = option(
        "--links", default=None, type=FILE, metavar="FILE.csv",
        help="Measured bandwidths and latencies that override nominal ones.",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Quiet:
    """--quiet, of each command that shows progress or writes files."""

    quiet: bool = option("-q", "--quiet", default=False, help="No progress, and no line on the files written.")


@dataclass(frozen=True, kw_only=True)
class Output(Quiet):
    """The file and the form of the result."""

    output: str | None = option(
        "-o", "--output", default=None, metavar="FILE",
        help="Write the result to FILE too, as JSON unless --format says table; - is stdout.",
    )  # fmt: skip
    form: str | None = option(
        "--format", default=None, type=click.Choice(["table", "json"], case_sensitive=False), help="Form of the output."
    )


def chosen_machine(options: Any) -> Topology:
    """Return the topology of --topo with the changes of --ranks, --without, --degrade and --links.

    Raises UsageError where none is given.
    """
    if not options.topology:
        raise UsageError("no topology given; add --topo NAME (`synth topo list` shows them) or --topo FILE")
    return changed(options.topology, options)


def changed(spec: TopologyLike, options: Changes) -> Topology:
    """Return a topology with the changes that the command line has."""
    return topology(spec, ranks=options.ranks, without=options.without, degrade=options.degrade, links=options.links)


def machine_if_named(options: Any) -> Topology | None:
    """Return the topology as `chosen_machine` does; None where none is named, and the command line changes none."""
    if options.topology:
        return chosen_machine(options)
    for flag in flags_typed("ranks", "without", "degrade", "links"):
        raise UsageError(f"{flag} changes a machine, and none is named; add --topo NAME or --topo FILE")
    return None


def flags_typed(*names: str) -> list[str]:
    """Return the flags of those options in `names` that the user wrote on the command line.

    `names`: option names without dashes, such as ``max-steps``, whose flag is ``--max-steps``. Defaults, and values of
    the environment or synth.toml, do not count.
    """
    source = click.get_current_context().get_parameter_source
    return [f"--{name}" for name in names if source(name.replace("-", "_")) is ParameterSource.COMMANDLINE]


def refuse_given(reason: str, *names: str) -> None:
    """Raise UsageError where the command line has one of these options, which would change nothing, with the reason."""
    for flag in flags_typed(*names):
        raise UsageError(f"{flag} would change nothing: {reason}; leave it out")


def chosen_collective(options: Any, machine: Topology) -> Collective:
    """Return the collective of --coll, --root and --counts over the ranks of `machine`. Raises UsageError."""
    if options.collective is None:
        raise UsageError("no collective given; add --coll NAME (`synth list collectives` shows them)")
    return collective(options.collective, machine.ranks, options.roots or (), getattr(options, "sizes", None))


def collective_or_name(options: Any, machine: Topology) -> Collective | str:
    """Return the collective; its name alone where only the flow methods use it, since thousands of ranks make millions
    of units of data."""
    # A file, or uneven counts, have units of their own, which are written out.
    name = str(options.collective)
    by_name = options.collective is not None and options.sizes is None and Path(name).suffix not in SUFFIXES
    if not by_name or options.engine == "exact" or machine.ranks <= LISTED:
        return chosen_collective(options, machine)
    small = collective(name, machine.ranks if options.roots else 2, options.roots)
    return small if small.roots and options.roots else small.name
