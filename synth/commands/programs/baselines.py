"""Known algorithms by name, for `run --baseline`, `bench` and `tune`: the library's, and those that follow the links.

The second kind is of `scale/baselines`: rings that fit a machine's links together, and sends along shortest paths.
They are no programs of the chunk language, because the links decide what is sent.
"""

from __future__ import annotations

from collections.abc import Sequence

from synth.commands.inputs import CollectiveLike, TopologyLike, named_topology
from synth.commands.inputs import collective as task_of
from synth.commands.programs.algorithms import library
from synth.errors import UsageError, unknown
from synth.model.collective import Collective
from synth.model.schedule import Schedule
from synth.model.topology import Network, Topology

# Names that are another one's in the library, by collective.
_ALIASES = {
    ("tree", "allreduce"): "double-tree",
    ("recursive-doubling", "reduce-scatter"): "recursive-halving",
    ("recursive-doubling", "broadcast"): "binomial",
    ("recursive-doubling", "reduce"): "binomial",
}


def baseline_summaries() -> dict[str, str]:
    """Return a line about each baseline, by name: those that follow the links, then the library's.

    Raises SynthError for a plug-in that clashes with the library.
    """
    from synth.scale.baselines.algorithms import SUMMARIES

    # Names of the library stand once, with all collectives that they do.
    does: dict[str, list[str]] = {}
    for one in library():
        does.setdefault(one.name, []).append(one.collective)
    known = {name: f"of the library: {', '.join(collectives)}" for name, collectives in does.items()}
    known["tree"] = "NCCL's double binary tree, for allreduce"
    return {**SUMMARIES, **{name: text for name, text in known.items() if name not in SUMMARIES}}


def baseline(
    name: str,
    topology: TopologyLike | Network,
    collective: CollectiveLike,
    *,
    roots: Sequence[int] = (),
    pieces: int | None = None,
    channels: int | None = None,
) -> Schedule:
    """Return the schedule of a known algorithm on the links of a machine, replayed.

    Parameters
    ----------
    name : ring, tree, direct, hierarchical, ... (docs/run.md), or an algorithm of the library.
    topology : the machine, as `synth.topology` takes it, or a `Network`.
    collective, roots : the collective, as `synth.collective` takes it.
    pieces : of pipelined broadcasts and trees.
    channels : chunks that rings have side by side at most, if the units of the rings have a common divisor. None: one
        for each unit, which fills whole rounds; fewer make a shorter program that takes about the same time.

    Returns
    -------
    The `Schedule`.

    Raises
    ------
    UsageError where the algorithm does not do the collective, or the links do not carry it.

    Examples
    --------
    >>> import synth
    >>> synth.api.baseline("ring", "ring:4", "allgather").step_count
    3
    """
    from synth.scale.baselines.algorithms import SUMMARIES

    # The name comes last: a wrong machine or collective is the graver mistake.
    machine = topology if isinstance(topology, Network) else named_topology(topology)
    task = task_of(collective, machine.ranks, roots)
    # A near name, or all of them.
    known, lowered = baseline_summaries(), name.lower()
    if lowered not in known:
        message, _, hint = unknown("baseline", name, list(known), "").partition("; ")
        hint = hint if hint.startswith("did you mean") else f"there are {', '.join(known)}"
        raise UsageError(f"{message}; {hint}")
    if lowered in SUMMARIES:
        return _on_links(lowered, machine, task, pieces, channels)
    return _of_library(lowered, machine, task, pieces)


def _on_links(
    name: str, machine: Topology | Network, task: Collective, pieces: int | None, channels: int | None
) -> Schedule:
    """Return rings or direct sends on the links of a machine, replayed."""
    from synth.checker.schedule import replay
    from synth.scale.baselines import algorithms
    from synth.scale.baselines.rings import kept_rings

    network, nodes = (machine, ()) if isinstance(machine, Network) else (machine.network(), machine.nodes)
    if name == "direct":
        made = algorithms.direct(network, task)
    else:
        rings = kept_rings(network, nodes)
        if rings and channels is not None:
            rings = algorithms.in_channels(rings, channels)
        made = algorithms.ring(network, task, rings, pieces or algorithms.PIECES)
    replay.schedule(made)
    return made


def _of_library(name: str, machine: Topology | Network, task: Collective, pieces: int | None) -> Schedule:
    """Return the schedule of an algorithm of the library, in as few chunks as it needs."""
    from synth.language import CompileOptions

    # As few chunks as the program needs: the tuner makes others itself.
    title = _ALIASES.get((name, task.name), name)
    fitting = [one for one in library(task.name) if one.name == title]
    if not fitting:
        raise UsageError(f"{name} does not do {task.name}; direct does")
    parameters = {} if pieces is None else {"pieces": pieces}
    try:
        made = fitting[0].compile(machine, task, CompileOptions(multiple=1, parameters=parameters)).schedule
    except UsageError as error:  # what a program's author could write instead is left out
        raise UsageError(f"{name}: {str(error).partition('; ')[0]}") from None
    assert isinstance(made, Schedule)
    return made
