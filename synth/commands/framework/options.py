"""The options that several commands have, each defined once, and the values they describe: a topology, a collective."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from synth.commands.framework.completion import names_of
from synth.commands.framework.output import QUIET
from synth.commands.framework.sizes import Sizes
from synth.commands.framework.types import Counts, Duration, PerSend, Places, Positive, Ranks
from synth.errors import UsageError
from synth.model.collective import Collective
from synth.model.frontier import StepCount
from synth.model.topology import Topology
from synth.program.plan_limits import NEWEST, VERSIONS
from synth.program.program import PROTOCOLS

Function = TypeVar("Function", bound=Callable[..., Any])
FILE = click.Path(path_type=Path, readable=False)  # what reads it says why it cannot, as for a missing one
STEP = "synth.step"  # the key of --step in a context, until --point is read


def _together(*options: Callable[[Any], Any]) -> Callable[[Function], Function]:
    def decorate(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def coll_option(help: str) -> Callable[[Function], Function]:
    """Return --coll, the name of one collective."""
    return click.option("--coll", metavar="NAME", shell_complete=names_of("collectives"), help=help)


def time_limit_option(help: str, metavar: str = "5m") -> Callable[[Function], Function]:
    """Return --time-limit, in seconds of wall time."""
    return click.option("--time-limit", type=Duration(), metavar=metavar, help=help)


def jobs_option(help: str) -> Callable[[Function], Function]:
    """Return --jobs, a number of processes."""
    return click.option("--jobs", type=Positive(), metavar="N", help=help)


def _point(context: click.Context, _: click.Parameter, number: int | None) -> int | StepCount | None:
    steps = context.meta.pop(STEP, None)
    if number is not None and steps is not None:
        raise UsageError("--point and --step exclude each other; give one")
    return number if steps is None else StepCount(steps)


def point_option(help: str, metavar: str = "N") -> Callable[[Function], Function]:
    """Return --point and --step, the number of a frontier's point, from 1, or its steps."""
    return _together(
        click.option("--point", type=Positive(), metavar=metavar, callback=_point, help=help),
        click.option(
            "--step", type=Positive(), metavar="S", is_eager=True, expose_value=False,
            callback=lambda context, _, steps: context.meta.update({STEP: steps}),
            help="The point of a frontier with S steps.",
        ),
    )  # fmt: skip


def instances_option(help: str, **attributes: Any) -> Callable[[Function], Function]:
    """Return --instances, the number of copies of a program that share the data."""
    return click.option("--instances", type=Positive(), metavar="N", help=help, **attributes)


onesided_options = _together(
    click.option(
        "--blocks",
        type=Positive(),
        metavar="N",
        help="Of MSCCL++ plans: thread blocks of a rank to start from, as far as there are chunks; by default 16 "
        "for each instance, fewer where a rank would have more than 256 port channels. Each block has channels, "
        "and between boxes queue pairs, of its own.",
    ),
    click.option(
        "--reads/--no-reads",
        default=None,
        help="Of MSCCL++ plans: sums read what other GPUs of the box have, or have it put; by default "
        "they read where no GPU takes several sums at once.",
    ),
)


def executor_option(help: str) -> Callable[[Function], Function]:
    """Return --executor, the name of an executor."""
    return click.option(
        "--executor",
        default="reference",
        show_default=True,
        metavar="NAME",
        help=help,
        shell_complete=names_of("executors"),
    )


def runtime_option(help: str) -> Callable[[Function], Function]:
    """Return --runtime, the name of the runtime that loads a program."""
    return click.option("--runtime", metavar="NAME", callback=lambda *given: given[2] and given[2].lower(), help=help)


def protocol_option(help: str, *names: str, **attributes: Any) -> Callable[[Function], Function]:
    """Return --protocol, the name of a protocol in any case."""
    protocols = click.Choice(PROTOCOLS, case_sensitive=False)
    return click.option("--protocol", *names, type=protocols, metavar="NAME", help=help, **attributes)


def threads_option(help: str) -> Callable[[Function], Function]:
    """Return --threads, the threads of each thread block."""
    return click.option("--threads", type=Positive(), metavar="N", help=help)


def engine_option(help: str) -> Callable[[Function], Function]:
    """Return --engine, as the parameter `method`."""
    engines = click.Choice(["auto", "exact", "flow"], case_sensitive=False)
    return click.option("--engine", "method", type=engines, default="auto", show_default=True, help=help)


multicast_option = click.option(
    "--multicast/--no-multicast",
    default=True,
    show_default=True,
    help="Count what switches that multicast and reduce (NVLS) allow / links alone.",
)


def dtype_option(help: str = "float64 .. float16, bfloat16, int8 .. uint64.") -> Callable[[Function], Function]:
    """Return --dtype, the type of the elements."""
    return click.option("--dtype", default="float32", show_default=True, metavar="TYPE", help=help)


def sizes_option(help: str, default: str = "1KiB:1GiB", factor: int = 4) -> Callable[[Function], Function]:
    """Return --sizes, a row of sizes in bytes, each `factor` times the one before unless the value says a factor."""
    return click.option(
        "--sizes", type=Sizes(factor), default=default, show_default=True, metavar="LOW:HIGH[:xF]", help=help
    )


def baselines_option(help: str) -> Callable[[Function], Function]:
    """Return --baseline, names of known algorithms, as the parameter `baselines`."""
    return click.option("--baseline", "baselines", multiple=True, metavar="NAME", help=help)


def _split_names(_: click.Context, __: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    return tuple(name.strip() for value in values for name in value.split(",") if name.strip())


def collectives_option(help: str) -> Callable[[Function], Function]:
    """Return --coll, the names of several collectives, repeated or with commas."""
    return click.option(
        "--coll",
        multiple=True,
        metavar="NAME",
        callback=_split_names,
        help=help,
        shell_complete=names_of("collectives"),
    )


# Collectives and sizes of the commands that write algorithms for a machine.
machine_job_options = _together(
    collectives_option("Collectives, with commas or repeated; by default allreduce,allgather."),
    sizes_option("Sizes to compare algorithms at, as nccl-tests counts.", factor=2),
    click.option(
        "--root",
        type=int,
        metavar="0",
        help="The root of rooted collectives, by default 0; the job must use no other.",
    ),
    dtype_option("Type of the elements."),
)
plan_version_option = click.option(
    "--plan-version",
    type=click.Choice(VERSIONS),
    default=NEWEST,
    show_default=True,
    help="The version of MSCCL++ whose plan format is written.",
)
# Options of commands that run programs.
per_send_option = click.option(
    "--per-send",
    type=PerSend(),
    metavar="0.3us",
    help="Cost of a message for its sender and for its receiver: 0.3us, or by protocol Simple=1us,LL=300ns.",
)
overheads_option = click.option(
    "--overheads/--no-overheads",
    default=True,
    show_default=True,
    help="Times include a launch and each protocol's costs / count the α and β of bare links alone.",
)
op_option = click.option("--op", default="sum", show_default=True, metavar="OP", help="sum, prod, min, max or avg.")
data_root_option = click.option(
    "--root", type=Ranks(), metavar="0", help="The root of --coll, or of a file's broadcast or reduce."
)
ranks_on_option = click.option(
    "--ranks-on",
    type=Places(),
    metavar="0,1,2,3",
    help="The GPU of each rank, for host and cuda; each rank gets a launch of its own.",
)
timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(0.01),
    metavar="SECONDS",
    help="Stop when no block has moved for so long, for host and cuda.",
)

_changes = (
    click.option("--ranks", type=Ranks(), metavar="0-3,7", help="Use only these ranks, renumbered from 0."),
    click.option(
        "--without", multiple=True, metavar="0-3", help="Remove the links between two ranks, both ways (repeatable)."
    ),
    click.option("--degrade", multiple=True, metavar="0-3:1/2", help="Scale the links between two ranks (repeatable)."),
    click.option(
        "--links", type=FILE, metavar="FILE.csv", help="Measured bandwidths and latencies that override nominal ones."
    ),
)

machine_options = _together(
    click.option(
        "--topo",
        metavar="NAME|FILE",
        shell_complete=names_of("topologies"),
        help="A machine or family: dgx1, ring:8, torus:4x4 (`synth topo list`), or the file or dump of one "
        "(`synth topo import -h`).",
    ),
    *_changes,
)

change_options = _together(*_changes)

collective_options = _together(
    click.option(
        "--coll",
        metavar="NAME",
        help="A collective, or a file that defines one (`synth list collectives`).",
        shell_complete=names_of("collectives"),
    ),
    click.option(
        "--root",
        type=Ranks(),
        metavar="0,3",
        help="The root, by default 0; the roots of a multi-root collective, by default 0,1.",
    ),
    click.option(
        "--counts",
        type=Counts(),
        metavar="2,1,3",
        help="Chunk counts per rank; per pair in rows split by ';', or a file.",
    ),
)

engine_options = _together(
    click.option(
        "--encoding",
        default="auto",
        metavar="NAME",
        help="auto, step, quotient, sccl, ... (`synth list encodings`).",
        shell_complete=names_of("encodings"),
    ),
    click.option(
        "--solver",
        default="auto",
        metavar="NAME",
        help="auto, cadical, minicard, z3, ... (`synth list solvers`).",
        shell_complete=names_of("solvers"),
    ),
    time_limit_option("Wall time; results so far are kept when it ends."),
    jobs_option("Processes at a time; by default the number of cores."),
    click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Seed of every random choice."),
    click.option(
        "--deterministic", is_flag=True, help="One solver and one seed, no portfolio: the same schedules each time."
    ),
    click.option(
        "-v", "--verbose", is_flag=True, help="Print on stderr each problem, and the solver that answered it."
    ),
)


def _quiet(context: click.Context, _: click.Parameter, quiet: bool) -> None:
    if quiet:
        token = QUIET.set(True)
        context.call_on_close(lambda: QUIET.reset(token))


quiet_option = click.option(
    "-q",
    "--quiet",
    is_flag=True,
    expose_value=False,
    callback=_quiet,
    help="No progress, and no line on the files written.",
)

output_options = _together(
    click.option(
        "-o",
        "--output",
        metavar="FILE",
        help="Write the result to FILE too, as JSON unless --format says table; - is stdout.",
    ),
    click.option(
        "--format", "form", type=click.Choice(["table", "json"], case_sensitive=False), help="Form of the output."
    ),
    quiet_option,
)


def chosen_machine(flags: dict[str, Any]) -> Topology:
    """Return the topology of --topo with the changes of --ranks, --without, --degrade and --links.

    Raises UsageError where none is given.
    """
    from synth.commands import api

    if not flags["topo"]:
        raise UsageError("no topology given; add --topo NAME (`synth topo list` shows them) or --topo FILE")
    return api.topology(flags["topo"], **changes(flags))


def machine_if_named(flags: dict[str, Any]) -> Topology | None:
    """Return the topology as `chosen_machine` does; None where none is named, and the command line changes none."""
    if flags["topo"]:
        return chosen_machine(flags)
    for option in given_options(changes(flags)):
        raise UsageError(f"{option} changes a machine, and none is named; add --topo NAME or --topo FILE")
    return None


def given_options(names: Iterable[str]) -> list[str]:
    """Return the options of these parameters that the command line has."""
    source = click.get_current_context().get_parameter_source
    present = [name for name in names if source(name) is ParameterSource.COMMANDLINE]
    return [f"--{name.replace('_', '-')}" for name in present]


def refuse_given(reason: str, *names: str) -> None:
    """Raise UsageError where the command line has one of these options, which would change nothing, with the reason."""
    for option in given_options(names):
        raise UsageError(f"{option} would change nothing: {reason}; leave it out")


def changes(flags: dict[str, Any]) -> dict[str, Any]:
    """Return the options that change a topology as keyword arguments of `api.topology`."""
    return {key: flags[key] for key in ("ranks", "without", "degrade", "links")}


def chosen_collective(flags: dict[str, Any], topology: Topology) -> Collective:
    """Return the collective of --coll, --root and --counts over the ranks of `topology`. Raises UsageError."""
    from synth.commands import api

    if flags["coll"] is None:
        raise UsageError("no collective given; add --coll NAME (`synth list collectives` shows them)")
    return api.collective(flags["coll"], topology.ranks, flags["root"] or (), flags["counts"])


# The greatest number of ranks for which the units of a collective are written out for the flow methods.
LISTED = 256


def collective_or_name(flags: dict[str, Any], topology: Topology) -> Collective | str:
    """Return the collective; its name alone where only the flow methods use it, since thousands of ranks make millions
    of units of data."""
    by_name = (
        flags["coll"] is not None
        and flags["counts"] is None
        and Path(flags["coll"]).suffix not in (".yaml", ".yml", ".json")
    )
    if by_name and flags["method"].lower() != "exact" and topology.ranks > LISTED:
        from synth.model.collective import collective

        small = collective(str(flags["coll"]), topology.ranks if flags["root"] else 2, flags["root"] or ())
        return small if small.roots and flags["root"] else small.name
    return chosen_collective(flags, topology)


def engine_arguments(flags: dict[str, Any]) -> dict[str, Any]:
    """Return the engine options as keyword arguments of `api.frontier` and `api.solve`."""
    return {key: flags[key] for key in ("encoding", "solver", "time_limit", "jobs", "seed", "deterministic")}
