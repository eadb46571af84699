"""Process groups that run at once: the joint bound, each group's own, and one schedule for all.

Together   network groups bound alone schedule replay
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
from synth.scale.groups.joint_bound import Bound, bound
from synth.scale.groups.step_assignment import scheduled
from synth.scale.groups.tree_columns import packed
from synth.solvers.highs import LIBRARY
from synth.solvers.processes.deadline import TimeUp, apart, check, give_up, given_up

# Routes from rank to rank up to which linear programs end within a minute.
MOST_ROUTES = 20_000
# Images of a group under automorphisms that are looked at.
MOST_IMAGES = 2000


@dataclass(frozen=True)
class Proof:
    """The proof of a group's bound: the certificate of group `of`, and `moved`, an automorphism that maps that group's
    ranks to its own."""

    of: int
    moved: tuple[int, ...]
    certificate: dict


@dataclass(frozen=True)
class Together:
    """Sizes count as GB and times as seconds: with sizes in bytes, times are in nanoseconds.

    `alone[g]`: group g takes at least so long with the machine to itself, None where time ran out before; `proofs[g]`
    says why.
    `schedule` (not yet verified) moves chunks of `task.unit` / C. `open`: what a time limit or Ctrl-C cut short;
    `interrupted`: it was Ctrl-C.
    """

    network: Network
    groups: tuple[Group, ...]
    task: Units
    bound: Bound
    alone: tuple[Fraction | None, ...]
    proofs: tuple[Proof | None, ...]
    schedule: Schedule | None
    open: tuple[str, ...] = ()
    interrupted: bool = False

    @property
    def seconds(self) -> Fraction | None:
        """What the schedule takes without latency."""
        return None if self.schedule is None else self.schedule.bandwidth * self.task.unit / self.network.unit

    @property
    def gap(self) -> Fraction | None:
        """How much slower than the joint bound the schedule is, as a fraction of the bound."""
        return None if self.seconds is None else self.seconds / self.bound.seconds - 1


def together(
    topology: Topology,
    groups: Sequence[Group],
    *,
    chunks: int | None = None,
    search: bool = True,
    progress: Callable[[str], None] = lambda text: None,
) -> Together:
    """The joint bound of the groups, that of each alone, and unless `search` is off a schedule of all.

    Under a time limit (`synth.solvers.processes.deadline`), and after Ctrl-C inside one, it is what was found by then;
    UndecidedError where the time is over before the joint bound.
    Raises UsageError for groups that the machine has not, InfeasibleError where ranks of a group cannot reach each
    other.
    """
    groups = checked(groups, topology.ranks)
    network = topology.network()
    if len(network.routes) > MOST_ROUTES:
        raise UsageError(
            f"{network.name} has {len(network.routes)} links from rank to rank; groups are looked at on up to "
            f"{MOST_ROUTES}"
        )
    task = units(groups, network.ranks)
    progress("the bound of all groups together")
    try:
        joint = apart(bound, network, topology.nodes, groups, imports=LIBRARY)
    except TimeUp:
        raise UndecidedError(
            f"{network.name}: the time limit came before the bound of all groups together; allow more time"
        ) from None
    missing: list[str] = []
    progress("the bound of each group alone")
    alone = _alone(network, topology.nodes, groups)
    if None in alone:
        missing.append(f"the bound of {sum(a is None for a in alone)} groups alone")
    made = None
    if search:
        progress(f"a schedule; none takes less than {float(joint.seconds):.6g} s per GB of relative size 1")
        try:
            check()
            packings, whole = packed(network, groups)
            made, every = scheduled(network, task, packings, chunks)
            if not (whole and every):
                fast = made.bandwidth * task.unit / network.unit == joint.seconds
                missing.append("a schedule of fewer steps" if fast else "a better schedule")
        except (TimeUp, KeyboardInterrupt) as stop:
            _noted(stop)
            missing.append("a schedule")
    seconds = tuple(None if found is None else found[0] for found in alone)
    proofs = tuple(None if found is None else found[1] for found in alone)
    return Together(network, groups, task, joint, seconds, proofs, made, tuple(missing), given_up())


def _noted(stop: BaseException) -> None:
    """After Ctrl-C nothing more is begun."""
    if isinstance(stop, KeyboardInterrupt):
        give_up()


def _alone(
    network: Network, nodes: Sequence[int], groups: Sequence[Group]
) -> tuple[tuple[Fraction, Proof] | None, ...]:
    """The bound of each group on its own; groups that an automorphism of the machine carries onto each other have the
    same."""
    moves = [g.ranks for g in generators(network)]
    known: dict[tuple, tuple[Fraction, Proof] | None] = {}
    found = []
    over = False
    for g, group in enumerate(groups):
        key = (frozenset(group.ranks), group.root)
        what = (group.collective, group.size)
        if (*key, *what) not in known:
            made = None
            if not over:
                try:
                    made = apart(bound, network, nodes, [group], imports=LIBRARY)
                except (TimeUp, KeyboardInterrupt) as stop:
                    _noted(stop)
                    over = True
            images, queue = {key: tuple(range(network.ranks))}, [key]
            while queue and len(images) < MOST_IMAGES:
                ranks, root = last = queue.pop()
                for pi in moves:
                    image = (frozenset([pi[r] for r in ranks]), None if root is None else pi[root])
                    if image not in images:
                        images[image] = tuple(pi[r] for r in images[last])
                        queue.append(image)
            for image, moved in images.items():
                known[*image, *what] = None if made is None else (made.seconds, Proof(g, moved, made.certificate))
        found.append(known[*key, *what])
    return tuple(found)
