"""`synth allocations` and `synth.api.allocations`: the optimal rates of each set of GPUs that may be assigned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from synth.commands.framework.declaration import command, option
from synth.commands.framework.output import emit
from synth.commands.framework.progress import waiting
from synth.commands.framework.shared import (
    Changes,
    Output,
    chosen_machine,
    names_option,
    time_limit_option,
    topology_option,
)
from synth.commands.framework.types import Ranks
from synth.commands.inputs import named_topology
from synth.commands.root import UNDECIDED
from synth.errors import UndecidedError, UsageError
from synth.model.collective import collective as named_collective
from synth.model.rational import counted, show

if TYPE_CHECKING:
    from synth.commands.inputs import TopologyLike
    from synth.scale.baselines.allocations import Allocation, Rates

NAMES = ("broadcast", "allgather", "allreduce")


class FewerAllocations(UndecidedError):
    """The time limit came before all classes were rated: `found` are those that were, `open` says in words which are
    missing."""

    def __init__(self, found: list[tuple[Allocation, Rates]], first: int) -> None:
        self.found, self.open = found, f"classes of {first} GPUs or more that are not listed"
        super().__init__(f"the time limit is over; {counted(len(found), 'class')} of allocations rated")


def allocations(
    topology: TopologyLike,
    names: Sequence[str] = NAMES,
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

    # Each class of allocations is rated once, by its first member.
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


@dataclass(frozen=True, kw_only=True)
class Allocations(Output, Changes):
    """The options of `synth allocations`."""

    topology: TopologyLike | None = topology_option(default=None)
    names: Sequence[str] = names_option("Collectives, with commas or repeated.", default=NAMES, show_default=True)
    sizes: Sequence[int] | None = option(
        "--gpus", default=None, type=Ranks("numbers of GPUs"), metavar="3,4,8",
        help="Sizes of the allocations; by default 3 and more.",
    )  # fmt: skip
    time_limit: float | None = time_limit_option("Wall time; results so far are printed when it ends.")


@command(Allocations)
def allocations_command(options: Allocations) -> int:
    """List the classes of allocations of a machine up to isomorphism, with the optimal rate of each collective, of as
    many GPUs the best first.

    \b
    Example:
      synth allocations --topo dgx1-v100 --coll broadcast,allgather,allreduce
    """
    from synth.view import rate_tables

    topology, limit = chosen_machine(options), options.time_limit
    names = tuple(name.lower() for name in options.names)
    if not names:
        raise UsageError("no collective given; --coll broadcast,allgather,allreduce")
    missing = ()
    try:
        with waiting(f"allocations of {topology.name}", limit) as tell:
            rows = allocations(topology, names, options.sizes, time_limit=limit, progress=tell)
    except FewerAllocations as fewer:
        rows, missing = fewer.found, (fewer.open,)
    # Of as many GPUs the best first.
    names = tuple(rows[0][1].best) if rows else names
    rows = sorted(rows, key=lambda row: (len(row[0].ranks), [-row[1].best[name] for name in names], row[0].ranks))
    unit = topology.network().unit
    content = rate_tables.allocations(
        f"allocations of {topology.name}: 1 unit = {show(unit)} GB/s", unit, names, rows, missing
    )

    # The same as JSON, with fractions as text.
    def document() -> dict:
        classes = []
        for a, r in rows:
            rates = {name: show(r.best[name]) for name in names}
            composed = None if r.composed is None else show(r.composed)
            row = {
                "ranks": list(a.ranks), "alike": a.members,
                "ring_units": r.ring_units, "rings_proved": r.rings_proved_maximum,
                "rates": rates, "attained": sorted(r.attained), "reduce_scatter_allgather": composed,
            }  # fmt: skip
            classes.append(row)
        doc = {"topology": topology.name, "unit_gbps": show(unit), "classes": classes}
        return doc | {"open": list(missing)} if missing else doc

    emit(document, lambda: content, options)
    return UNDECIDED if missing else 0
