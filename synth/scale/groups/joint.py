"""Process groups that run at once: their joint bound, the bound of each group alone, and one schedule for all.

Together   network groups task bound alone proofs schedule open interrupted
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from synth.errors import UndecidedError, UsageError
from synth.model.process_groups import Group, Units, checked, units
from synth.model.schedule import Schedule
from synth.model.symmetry import generators
from synth.model.topology import Network, Topology
from synth.scale.groups.joint_bound import JointBound, joint_bound
from synth.scale.groups.step_assignment import assign_steps
from synth.scale.groups.tree_columns import pack_trees
from synth.solvers.highs import LIBRARY
from synth.solvers.processes.deadline import TimeUp, check_deadline, give_up, given_up
from synth.solvers.processes.pool import run_in_process

# Routes from rank to rank up to which the linear programs end within a minute.
MAXIMUM_ROUTES = 20_000
# Images of one group under automorphisms that are listed to share its bound.
MAXIMUM_IMAGES = 2000

# A set of ranks and the root of a rooted collective.
_Members = tuple[frozenset[int], int | None]


@dataclass(frozen=True)
class Proof:
    """Proof of a group's bound: the certificate of group `of`, and an automorphism that maps its ranks to the group's.

    `moved[r]` is the image of rank r.
    """

    of: int
    moved: tuple[int, ...]
    certificate: dict


@dataclass(frozen=True)
class JointSynthesis:
    """Bounds and a schedule of process groups. With sizes in GB, times are in seconds; in bytes, nanoseconds.

    `bound`: the joint bound. `alone[g]`: the least time of group g with the machine to itself, None where time ran out
    before; `proofs[g]` proves it. `schedule` (not yet verified) moves chunks of `task.unit` / C. `open`: what a time
    limit or Ctrl-C cut short. `interrupted`: it was Ctrl-C.
    """

    network: Network
    groups: tuple[Group, ...]
    task: Units
    bound: JointBound
    alone: tuple[Fraction | None, ...]
    proofs: tuple[Proof | None, ...]
    schedule: Schedule | None
    open: tuple[str, ...] = ()
    interrupted: bool = False

    @property
    def seconds(self) -> Fraction | None:
        """Time of the schedule without latency."""
        return None if self.schedule is None else self.schedule.rounds_per_chunk * self.task.unit / self.network.unit

    @property
    def gap(self) -> Fraction | None:
        """Time of the schedule over the joint bound, less 1."""
        return None if self.seconds is None else self.seconds / self.bound.seconds - 1


def synthesize_jointly(
    topology: Topology,
    groups: Sequence[Group],
    *,
    chunks: int | None = None,
    search: bool = True,
    progress: Callable[[str], None] = lambda text: None,
) -> JointSynthesis:
    """Return the joint bound of the groups, that of each alone, and unless `search` is off a schedule of all.

    `chunks`: chunks of each unit of data. A time limit (`synth.solvers.processes.deadline`), or Ctrl-C inside one,
    leaves the results so far; UndecidedError where there is no joint bound by then. Raises UsageError for groups that
    do not exist on the machine, InfeasibleError where ranks of a group cannot reach each other.
    """
    groups = checked(groups, topology.ranks)
    network = topology.network()
    if len(network.routes) > MAXIMUM_ROUTES:
        raise UsageError(
            f"{network.name} has {len(network.routes)} links from rank to rank; groups are looked at on up to "
            f"{MAXIMUM_ROUTES}"
        )
    task = units(groups, network.ranks)
    progress("the bound of all groups together")
    try:
        joint = run_in_process(joint_bound, network, topology.nodes, groups, imports=LIBRARY)
    except TimeUp:
        raise UndecidedError(
            f"{network.name}: the time limit came before the bound of all groups together; allow more time"
        ) from None
    unfinished: list[str] = []
    progress("the bound of each group alone")
    alone = _bounds_alone(network, topology.nodes, groups)
    if None in alone:
        unfinished.append(f"the bound of {sum(a is None for a in alone)} groups alone")
    schedule = None
    if search:
        progress(f"a schedule; none takes less than {float(joint.seconds):.6g} s per GB of relative size 1")
        try:
            check_deadline()
            packings, packing_complete = pack_trees(network, groups)
            schedule, assignment_complete = assign_steps(network, task, packings, chunks)
            if not (packing_complete and assignment_complete):
                optimal = schedule.rounds_per_chunk * task.unit / network.unit == joint.seconds
                unfinished.append("a schedule of fewer steps" if optimal else "a better schedule")
        except (TimeUp, KeyboardInterrupt) as stop:
            _give_up_after_interrupt(stop)
            unfinished.append("a schedule")
    seconds, proofs = zip(*(row or (None, None) for row in alone), strict=True)
    return JointSynthesis(network, groups, task, joint, seconds, proofs, schedule, tuple(unfinished), given_up())


def _give_up_after_interrupt(stop: BaseException) -> None:
    """After Ctrl-C, begin nothing more."""
    if isinstance(stop, KeyboardInterrupt):
        give_up()


def _bounds_alone(
    network: Network, nodes: Sequence[int], groups: Sequence[Group]
) -> tuple[tuple[Fraction, Proof] | None, ...]:
    """(bound in seconds, proof) of each group on its own, None where time ran out.

    Groups that an automorphism of the machine maps to each other share one bound.
    """
    permutations = [g.ranks for g in generators(network)]
    known: dict[tuple, tuple[Fraction, Proof] | None] = {}
    rows = []
    over = False
    for g, group in enumerate(groups):
        members = (frozenset(group.ranks), group.root)
        kind = (group.collective, group.size)
        if (*members, *kind) not in known:
            result = None
            if not over:
                try:
                    result = run_in_process(joint_bound, network, nodes, [group], imports=LIBRARY)
                except (TimeUp, KeyboardInterrupt) as stop:
                    _give_up_after_interrupt(stop)
                    over = True
            for image, moved in _images(members, network.ranks, permutations).items():
                row = None if result is None else (result.seconds, Proof(g, moved, result.certificate))
                known[*image, *kind] = row
        rows.append(known[*members, *kind])
    return tuple(rows)


def _images(members: _Members, ranks: int, permutations: Sequence[Sequence[int]]) -> dict[_Members, tuple[int, ...]]:
    """Images of a group under products of the permutations, each with a product that leads to it."""
    images, queue = {members: tuple(range(ranks))}, [members]
    while queue and len(images) < MAXIMUM_IMAGES:
        group_ranks, root = last = queue.pop()
        for pi in permutations:
            image_root = None if root is None else pi[root]
            image = (frozenset([pi[r] for r in group_ranks]), image_root)
            if image not in images:
                images[image] = tuple(pi[r] for r in images[last])
                queue.append(image)
    return images
