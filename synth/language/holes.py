"""Holes of a program: a collective on a group of ranks, answered by a synthesizer on the links among these ranks.

    HoleQuery  machine collective steps chunks

The synthesizer is given to the compiler; this package imports none. Its answers are taken as those of strangers: each
is compared with the query and replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from synth.errors import InfeasibleError, UndecidedError, UsageError
from synth.language.place import SourceLine, error_at
from synth.model.collective import Collective
from synth.model.schedule import Schedule
from synth.model.topology import Limit, Network, Topology


@dataclass(frozen=True)
class HoleQuery:
    """A request for a schedule. Equal queries have one answer.

    Attributes
    ----------
    machine : the ranks of the group, from 0 in its order, with the links among them and what limits these; those that
        a sketch leaves.
    collective : on these ranks; its root is the first one.
    steps, chunks : the most steps, and the most chunks of a unit; None: as many as are best.
    """

    machine: Topology
    collective: Collective
    steps: int | None = None
    chunks: int | None = None


# Returns a schedule, or raises InfeasibleError where none is possible, UndecidedError where none was found in time.
Synthesizer = Callable[[HoleQuery], Schedule]


def machine_of_group(network: Network, ranks: Sequence[int], nodes: Sequence[int] = ()) -> Topology:
    """Return the machine that a network leaves to some ranks: the links among them, and their limits.

    A limit that holds other links, too, keeps all of its bandwidth: what other groups do at the same time is counted
    when the whole program gets its steps. `nodes`: the box of each of these ranks, for a sketch; () for none.
    """
    whole = network.without_parallel_routes().as_topology()
    position = {rank: i for i, rank in enumerate(ranks)}
    number: dict[int, int] = {}
    links = []
    for i, link in enumerate(whole.links):
        if link.src in position and link.dst in position:
            number[i] = len(links)
            links.append(type(link)(position[link.src], position[link.dst], link.bandwidth, link.latency))
    order = sorted(range(len(links)), key=lambda i: (links[i].src, links[i].dst))
    place = {i: k for k, i in enumerate(order)}
    shared = set()
    for limit in whole.limits:
        inside = tuple(sorted(place[number[i]] for i in limit.links if i in number))
        if inside:
            shared.add((inside, limit.bandwidth))
    limits = [Limit(f"limit {k}", inside, bandwidth) for k, (inside, bandwidth) in enumerate(sorted(shared))]
    name = f"{len(position)} ranks of {network.name}"
    return Topology(
        name, len(position), tuple(links[i] for i in order), limits, nodes=tuple(nodes), connection=whole.connection
    )


def answer(query: HoleQuery, synthesizer: Synthesizer | None, place: SourceLine, ranks: Sequence[int]) -> Schedule:
    """Return the schedule of a synthesizer, after comparing it with the query. `ranks`: those of the group, in errors.

    Raises UsageError, InfeasibleError or UndecidedError with the line of the program.
    """
    what = f"a.solve of {query.collective.name} on ranks {', '.join(map(str, ranks))}"
    if synthesizer is None:
        raise error_at(
            place, f"{what}: no synthesizer was given; `synth compile` has one, in Python synth.api.hole_synthesizer()"
        )
    try:
        schedule = synthesizer(query)
    except InfeasibleError as error:
        raise InfeasibleError(f"{place}: {what}: {error}", error.certificate) from None
    except UndecidedError as error:
        raise UndecidedError(f"{place}: {what}: {error}") from None
    except UsageError as error:
        raise error_at(place, f"{what}: {error}") from None
    asked = schedule.collective == query.collective
    fits = schedule.step_count <= (query.steps or schedule.step_count)
    if not asked or not fits or schedule.chunks > (query.chunks or schedule.chunks):
        raise error_at(place, f"{what}: the synthesizer answered another question")
    return schedule
