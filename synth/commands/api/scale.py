"""Machines of any size by flow methods: bounds, frontiers, allocations, and NCCL-like algorithms beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from synth.commands.api.inputs import (
    CollectiveLike,
    TopologyLike,
    collective_or_name,
    integers,
    named_topology,
    sizes_in_bytes,
)
from synth.commands.api.inputs import collective as task_of
from synth.errors import InfeasibleError, SynthError, UndecidedError, UsageError
from synth.model import collective as named
from synth.model.collective import Collective
from synth.model.collective import collective as named_collective
from synth.model.rational import counted
from synth.model.topology import Network, Topology
from synth.pareto.engine_choice import engine_of, flow_collective, with_machine_names
from synth.program.lowering_options import LoweringOptions
from synth.program.overheads import NCCL

if TYPE_CHECKING:
    from synth.model.scale_frontier import ScaleFrontier
    from synth.model.time_bound import TimeBound
    from synth.scale.baselines.allocations import Allocation, Rates
    from synth.scale.baselines.comparison import Explanation


# Ranks up to which rings are looked for.
EXPLAINED = 1024
# Ranks up to which every unit of a collective given by its name is written out.
WRITTEN = 256


def scale_bound(
    topology: TopologyLike,
    collective: CollectiveLike,
    *,
    roots: Sequence[int] = (),
    engine: str = "flow",
    time_limit: float | None = None,
) -> ScaleFrontier | None:
    """Return the lower bound of a machine of any size by flow methods, with its certificate.

    None where `engine` is "auto" and the machine is small enough for `bound`. After `time_limit` seconds it is the best
    bound so far, and `ScaleFrontier.unfinished` says that there may be a higher one.
    """
    from synth.commands.api.multicast import with_multicast_note
    from synth.scale.search import bound as flow_bound

    machine = named_topology(topology)
    roots, collective = integers(roots, "roots"), collective_or_name(collective, machine.ranks)
    if engine_of(engine, machine, collective) == "exact":
        return None
    name, root = flow_collective(machine, collective, roots)
    try:
        return with_multicast_note(flow_bound(machine, name, root, time_limit=time_limit))
    except InfeasibleError as error:
        raise with_machine_names(error, machine) from None


def time_bound(
    topology: TopologyLike,
    collective: CollectiveLike,
    size: int | str | Iterable[int | str],
    *,
    roots: int | Iterable[int] = (),
    sizes: Sequence | None = None,
    protocol: str | None = None,
    time_limit: float | None = None,
) -> TimeBound:
    """Return lower bounds in time: no program on the machine, with whatever messages, is faster.

    A bound is the greater of the latency of the farthest pair, and of one latency and the time that the bytes take by
    the certified bound on rounds per chunk. It holds with multicasts and sums in switches, where the machine has those.

    Parameters
    ----------
    topology, collective, roots, sizes : as in `synth.frontier`.
    size : bytes, or a text such as "1MB", or several of them; nccl-tests' size, 1 KB = 1024 bytes.
    protocol : by the clock of predicted times in this protocol, launch included. None: on bare links.
    time_limit : wall seconds of the search for the greatest rate of a large machine. None: no limit.

    Returns
    -------
    For each size the µs that no program can beat, and the reason in words; the certificate of rounds per chunk.

    Raises
    ------
    InfeasibleError where data cannot reach a rank; UsageError for an unknown name or what is no size.

    Examples
    --------
    >>> import synth
    >>> for row in synth.time_bound("dgx1", "allgather", ["1KB", "1MB"]).rows:
    ...     print(row.size, float(row.microseconds))
    1024 1.4
    1048576 6.816693333333333
    """
    from synth.scale.time_bound import time_bound as bound_of
    from synth.solvers.deadline import Deadline, time_limited

    machine = named_topology(topology)
    roots, collective = integers(roots, "roots"), collective_or_name(collective, machine.ranks)
    in_bytes = sizes_in_bytes(size, "size")
    by_name = isinstance(collective, str) and sizes is None and machine.ranks > WRITTEN
    if by_name and named.canonical_name(str(collective)) in named.COLLECTIVES:
        name, root = flow_collective(machine, collective, roots)
        task: str | Collective = name
    else:
        task, root = task_of(collective, machine.ranks, roots, sizes), 0
    try:
        with time_limited(Deadline.after(time_limit)):
            if protocol is None:
                return bound_of(machine, task, in_bytes, root=root)
            protocols = (LoweringOptions(protocol=protocol).protocol,)
            return bound_of(machine, task, in_bytes, root=root, overheads=NCCL, protocols=protocols)
    except InfeasibleError as error:
        raise with_machine_names(error, machine) from None


def explain(
    topology: TopologyLike, collective: CollectiveLike, *, time_limit: float | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Explanation:  # fmt: skip
    """Compare the optimal rate of a collective with rings on the same links.

    The result names the cut or partition that limits all of them. After `time_limit` seconds it holds the rates so far,
    and `Explanation.open` names the missing ones. Raises
    InfeasibleError, with two ranks as its certificate, where the links do not connect the ranks, UsageError for more
    than `EXPLAINED` ranks.
    """
    from synth.scale.baselines.comparison import explain as explained
    from synth.solvers.deadline import Deadline, time_limited

    machine = named_topology(topology)
    if machine.ranks > EXPLAINED:
        raise UsageError(
            f"{machine.name} has {machine.ranks} ranks: rings are looked for on up to {EXPLAINED}; `synth bound` "
            f"says its optimum"
        )
    machine = machine.live()
    task = task_of(collective, machine.ranks)
    root = task.roots[0] if task.roots else 0

    def by_flows(name: str) -> ScaleFrontier:
        from synth.scale.search import bound

        return bound(machine, name, root)

    with time_limited(Deadline.after(time_limit)):
        found = explained(machine, task.name, by_flows, progress)
    if found.rates[0].units == 0:
        apart = _apart(machine.network(), task)
        if apart is not None:
            raise with_machine_names(apart, machine)
    return _with_multicast(found, machine, task)


def _with_multicast(found: Explanation, machine: Topology, task: Collective) -> Explanation:
    from synth.commands.api.multicast import multicast_bounds
    from synth.scale.baselines.comparison import MethodRate

    beside = multicast_bounds(machine, task)
    if beside is None:
        return found
    bound = next((bound for steps, bound in beside.bounds if steps is None), None)
    if bound is None or not bound.value:
        return found
    remark = "their upper bound; `synth pareto` has schedules"
    rate = MethodRate("switches multicast and reduce", 1 / (bound.value * task.unit_share), remark, multicast=True)
    return replace(found, rates=(*found.rates, rate))


def unreachable(topology: TopologyLike, collective: Collective) -> tuple[Network, dict] | None:
    """Return the network of the links that carry anything, and the certificate that data cannot reach a rank over them.

    None where every rank can be reached."""
    try:
        network = named_topology(topology).live().network()
    except SynthError:
        return None
    found = _apart(network, collective)
    return None if found is None or found.certificate is None else (network, found.certificate)


def _apart(network: Network, collective: Collective) -> InfeasibleError | None:
    from synth.encodings import bounds

    try:
        bounds.steps(network, collective)
    except InfeasibleError as error:
        return error
    return None


class FewerAllocations(UndecidedError):
    """The time limit came before all classes were rated: `found` are those that were, `open` says in words which are
    missing."""

    def __init__(self, found: list[tuple[Allocation, Rates]], first: int) -> None:
        self.found, self.open = found, f"classes of {first} GPUs or more that are not listed"
        super().__init__(f"the time limit is over; {counted(len(found), 'class')} of allocations rated")


def allocations(
    topology: TopologyLike,
    names: Sequence[str] = ("broadcast", "allgather", "allreduce"),
    sizes: Sequence[int] | None = None,
    *,
    time_limit: float | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> list[tuple[Allocation, Rates]]:
    """Return the classes of allocations of a machine up to isomorphism, with the optimal rates of `names`.

    `sizes`: numbers of GPUs, by default 3 and more. After `time_limit` seconds FewerAllocations is raised with the
    classes so far.
    """
    from synth.scale.baselines import allocations as flows
    from synth.scale.search import bound
    from synth.solvers.deadline import Deadline, TimeUp, check_deadline, time_limited

    names = tuple(named_collective(name, 2).name for name in names)
    network = named_topology(topology).network()
    found: list[tuple[Allocation, Rates]] = []
    with time_limited(Deadline.after(time_limit)):
        try:
            for made in flows.allocation_classes(network, sizes):
                rates = flows.optimal_rates(made.network, bound, names)
                check_deadline()  # or rings may have been looked for less than elsewhere
                found.append((made, rates))
                progress(f"{counted(len(found), 'class')}, the last of {len(made.ranks)} GPUs")
        except TimeUp:
            raise FewerAllocations(found, len(found[-1][0].ranks) if found else min(sizes or (3,))) from None
    return found
