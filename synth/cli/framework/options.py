"""The options that commands share, and what they say together: a topology, a collective, a budget."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from synth.cli.framework.types import Counts, Duration, Positive, Ranks
from synth.errors import UsageError
from synth.model.collective import Collective
from synth.model.topology import Topology

Function = TypeVar("Function", bound=Callable[..., Any])
FILE = click.Path(path_type=Path)


def _together(*options: Callable[[Any], Any]) -> Callable[[Function], Function]:
    def decorate(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


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
        metavar="NAME",
        help="A machine or family: dgx1, ring:8, torus:4x4, dgx1*2:cross=0+2 (`synth topo list`).",
    ),
    click.option(
        "--topo-file",
        type=FILE,
        metavar="FILE",
        help="A topology file or a dump of a real machine (`synth topo import -h`).",
    ),
    *_changes,
)

change_options = _together(*_changes)

collective_options = _together(
    click.option("--coll", metavar="NAME", help="A collective, or a file that defines one (`synth list collectives`)."),
    click.option(
        "--root",
        type=Ranks(),
        metavar="0,3",
        help="The root, 0 unless given; the roots of a multi-root one, 0,1 unless given.",
    ),
    click.option(
        "--sizes",
        type=Counts(),
        metavar="2,1,3",
        help="Chunk counts per rank; per pair in rows split by ';', or a file.",
    ),
)

engine_options = _together(
    click.option(
        "--encoding", default="auto", metavar="NAME", help="auto, step, quotient, sccl, ... (`synth list encodings`)."
    ),
    click.option(
        "--solver", default="auto", metavar="NAME", help="auto, cadical, z3, cpsat, ... (`synth list solvers`)."
    ),
    click.option(
        "--time-limit", type=Duration(), metavar="5m", help="Wall time to spend; what was found by then is kept."
    ),
    click.option(
        "--jobs", type=Positive(), metavar="N", help="Processes at a time; as many as there are cores unless given."
    ),
    click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Seed of every random choice."),
    click.option(
        "--deterministic", is_flag=True, help="One solver and one seed, no race: the same schedules each time."
    ),
    click.option(
        "--proof", type=FILE, metavar="DIR", help="Write a checkable proof file for each refutation that needs one."
    ),
    click.option(
        "--extra-memory",
        type=click.IntRange(0),
        metavar="M",
        help="A rank relays M chunks at most (SCCL's encoding decides).",
    ),
    click.option("-v", "--verbose", is_flag=True, help="Say on stderr what is asked, and which solver answered what."),
)

output_options = _together(
    click.option(
        "-o",
        "--output",
        metavar="FILE",
        help="Write the result to FILE too, as JSON unless --format says table; - is stdout.",
    ),
    click.option(
        "--format", "form", type=click.Choice(["table", "json"], case_sensitive=False), help="What to print or write."
    ),
)


def chosen_machine(given: dict[str, Any]) -> Topology:
    """The topology that --topo or --topo-file and the options beside them describe. Raises UsageError when none or both
    do."""
    from synth import api

    name, file = one_of("topo", "topo_file")
    if not name and file is None:
        raise UsageError("no topology given; add --topo NAME (`synth topo list` shows them) or --topo-file FILE")
    return api.topology(name or str(file), file=file, **changes(given))


def machine_if_named(given: dict[str, Any]) -> Topology | None:
    """As `chosen_machine`, None where no topology is named. Raises UsageError for a change of none on the command
    line."""
    if given["topo"] or given["topo_file"]:
        return chosen_machine(given)
    context = click.get_current_context()
    for name in changes(given):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(f"--{name} changes a machine, and none is named; add --topo NAME or --topo-file FILE")
    return None


def changes(given: dict[str, Any]) -> dict[str, Any]:
    """The options that change a topology, as `api.topology` takes them."""
    return {key: given[key] for key in ("ranks", "without", "degrade", "links")}


def chosen_collective(given: dict[str, Any], topology: Topology) -> Collective:
    """The collective that --coll, --root and --sizes describe, over the ranks of `topology`. Raises UsageError."""
    from synth import api

    if given["coll"] is None:
        raise UsageError("no collective given; add --coll NAME (`synth list collectives` shows them)")
    return api.collective(given["coll"], topology.ranks, given["root"] or (), given["sizes"])


# Ranks above which a collective's units are not written out for the flow methods.
LISTED = 256


def task(given: dict[str, Any], topology: Topology) -> Collective | str:
    """The collective; by its name alone where only flow methods will see it, as thousands of ranks make millions of
    units."""
    named = (
        given["coll"] is not None
        and given["sizes"] is None
        and Path(given["coll"]).suffix not in (".yaml", ".yml", ".json")
    )
    if named and given["method"].lower() != "exact" and topology.ranks > LISTED:
        from synth.model.collective import collective

        small = collective(str(given["coll"]), topology.ranks if given["root"] else 2, given["root"] or ())
        return small if small.roots and given["root"] else small.name
    return chosen_collective(given, topology)


def engine(given: dict[str, Any]) -> dict[str, Any]:
    """The engine options, as `api.frontier` and `api.solve` take them."""
    return {
        key: given[key]
        for key in ("encoding", "solver", "time_limit", "jobs", "seed", "deterministic", "proof", "extra_memory")
    }


def one_of(first: str, second: str) -> tuple[Any, Any]:
    """The values of two options that exclude each other: the one that ranks higher (flag > environment > file) wins."""
    context = click.get_current_context()
    strength = {ParameterSource.COMMANDLINE: 3, ParameterSource.ENVIRONMENT: 2, ParameterSource.DEFAULT_MAP: 1}
    values = {name: context.params[name] for name in (first, second)}
    rank = dict.fromkeys(values, 0)
    for name, value in values.items():
        source = context.get_parameter_source(name)
        if value is not None and source is not None:
            rank[name] = strength.get(source, 0)
    if values[first] is None or values[second] is None:
        return values[first], values[second]
    if rank[first] == rank[second]:
        raise UsageError(f"--{first.replace('_', '-')} and --{second.replace('_', '-')} exclude each other; give one")
    return (values[first], None) if rank[first] > rank[second] else (None, values[second])
