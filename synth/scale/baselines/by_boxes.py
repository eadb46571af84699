"""Known algorithms for machines of several boxes, whose links between boxes are slower than those inside.

hierarchical  data travel between boxes once, among ranks at the same place of their boxes, and from there inside each
              box (Karonis et al., IPDPS 2000; over all lanes at once as Träff and Hunold, CLUSTER 2020; an allreduce is
              BlueConnect's, Cho et al., MLSys 2019)
two-step      alltoall in which a rank first gives the data for a place of all boxes to the rank at that place in its
              own box, which sends each box one message (Hwang et al., Tutel, MLSys 2023; NCCL's PXN)
few-messages  two-step whose first step is the index algorithm of radix `RADIX` (Bruck et al., IEEE Trans. Parallel
              Distrib. Syst. 8, 1997): inside the boxes data travel the digits of their distance, least first
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from synth.errors import UsageError
from synth.model.collective import Collective
from synth.model.schedule import Schedule
from synth.model.topology import Network
from synth.scale.baselines.schedule_steps import Moves, schedule_of_moves, shortest_path_tree, with_reversals

Boxes = list[list[int]]
# A rank on the way from a source to a destination.
Stop = Callable[[int, int], int]

# Radix of the index algorithm: of 8 ranks in a box it takes two messages less in one step more than radix 8, and as
# many messages in one step less than radix 2.
RADIX = 4


def hierarchical(network: Network, collective: Collective, nodes: Sequence[int] = ()) -> Schedule:
    """Return a broadcast, reduce, allgather, reduce-scatter or allreduce between the boxes and inside them.

    `nodes`: the box of each rank. Raises UsageError for other collectives, one box, and ranks that cannot be reached.
    """
    boxes = boxes_of_ranks("hierarchical", network, nodes)

    def copying(net: Network, target: Collective, reversed_network: bool) -> Schedule:
        inside = _inside(net, boxes)
        holders, between = [], []
        load: Counter[tuple[int, int, int]] = Counter()
        for unit, owners in enumerate(target.pre):
            (owner,) = owners
            moves = list(shortest_path_tree(net, owners, frozenset(_same_place(boxes, owner)), load))
            between.append([(step, (unit, src, dst)) for step, src, dst in moves])
            holders.append(owners | {dst for _, _, dst in moves})
        rows = _rows(between)
        spread = []
        load = Counter()
        for unit, held in enumerate(holders):
            for box in boxes:
                moves = shortest_path_tree(inside, held & set(box), frozenset(box), load)
                spread.append([(len(rows) + step, (unit, src, dst)) for step, src, dst in moves])
        return schedule_of_moves(net, target, 1, rows + _rows(spread)[len(rows) :])

    return with_reversals("hierarchical", network, collective, ("broadcast", "allgather"), copying)


def two_step(network: Network, collective: Collective, nodes: Sequence[int] = ()) -> Schedule:
    """Return an alltoall inside the boxes, then between ranks at the same place of their boxes.

    `nodes`: the box of each rank. Raises UsageError for other collectives, one box, and ranks that cannot be reached.
    """
    boxes = _boxes_of_alltoall("two-step", network, collective, nodes)
    home = _box_of(boxes)

    def relay(src: int, dst: int) -> int:
        (rank,) = set(_same_place(boxes, dst)) & set(boxes[home[src]])
        return rank

    return _over_stops(network, collective, boxes, [relay], between=1)


def few_messages(network: Network, collective: Collective, nodes: Sequence[int] = ()) -> Schedule:
    """Return an alltoall by the index algorithm over the places of a box, and then between ranks at the same place.

    `nodes`: the box of each rank. Raises UsageError for other collectives, boxes of unequal sizes, and ranks that
    cannot be reached.
    """
    boxes = _boxes_of_alltoall("few-messages", network, collective, nodes)
    size = len(boxes[0])
    if {len(box) for box in boxes} != {size}:
        raise UsageError(f"few-messages needs boxes of equal sizes; those of {network.name} differ")
    home = _box_of(boxes)

    def moved(power: int) -> Stop:
        """Return the stop where the digits of the distance below this power of the radix are travelled."""

        def stop(src: int, dst: int) -> int:
            box = boxes[home[src]]
            place = box.index(src)
            distance = (boxes[home[dst]].index(dst) - place) % size
            return box[(place + distance % power) % size]

        return stop

    powers = [RADIX]
    while powers[-1] < size:
        powers.append(powers[-1] * RADIX)
    stops = [moved(power) for power in powers]
    return _over_stops(network, collective, boxes, stops, between=len(stops))


def _boxes_of_alltoall(name: str, network: Network, collective: Collective, nodes: Sequence[int]) -> Boxes:
    if collective.name != "alltoall":
        raise UsageError(f"{name} is for alltoall; {collective.name}: hierarchical or direct")
    return boxes_of_ranks(name, network, nodes)


def _over_stops(
    network: Network, collective: Collective, boxes: Boxes, stops: Sequence[Stop], between: int
) -> Schedule:
    """Return an alltoall in which data go over the `stops` in turn, each in steps of its own.

    The stops before number `between` are in the box of the source, and are reached inside it.
    """
    inside = _inside(network, boxes)
    at = [min(src) for src in collective.pre]
    ends = [min(dst) for dst in collective.post]
    sources = list(at)
    rows: Moves = []
    for number in range(len(stops) + 1):
        reached, load = [], Counter[tuple[int, int, int]]()
        net = inside if number < between else network
        for unit, (src, dst) in enumerate(zip(sources, ends, strict=True)):
            stop = stops[number](src, dst) if number < len(stops) else dst
            moves = shortest_path_tree(net, frozenset([at[unit]]), frozenset([stop]), load)
            reached.append([(len(rows) + step, (unit, a, b)) for step, a, b in moves])
            at[unit] = stop
        rows += _rows(reached)[len(rows) :]
    return schedule_of_moves(network, collective, 1, rows)


def boxes_of_ranks(name: str, network: Network, nodes: Sequence[int] = ()) -> Boxes:
    """Return the ranks of each box, ascending.

    `nodes`: the box of each rank. Without it the ranks of a box are those that routes of less than the greatest latency
    join. Raises UsageError, which names the algorithm `name`, where there is one box only.
    """
    box_of = list(nodes)
    if not box_of:
        box_of = list(range(network.ranks))
        for route in network.routes:
            a, b = box_of[route.src], box_of[route.dst]
            if route.latency < network.latency and a != b:
                joined = [rank for rank, box in enumerate(box_of) if box == b]
                for rank in joined:
                    box_of[rank] = a
    boxes: dict[int, list[int]] = {}
    for rank, box in enumerate(box_of):
        boxes.setdefault(box, []).append(rank)
    if not 1 < len(boxes) < network.ranks:
        raise UsageError(f"{name} needs several boxes of several ranks; {network.name} names none")
    return list(boxes.values())


def _box_of(boxes: Boxes) -> dict[int, int]:
    """Return the index of each rank's box."""
    home: dict[int, int] = {}
    for b, box in enumerate(boxes):
        home |= dict.fromkeys(box, b)
    return home


def _same_place(boxes: Boxes, rank: int) -> list[int]:
    """Return the rank of each box at the place of `rank` in its own; smaller boxes count their places again."""
    home = boxes[_box_of(boxes)[rank]]
    place = home.index(rank)
    members = [box[place % len(box)] for box in boxes]
    members[_box_of(boxes)[rank]] = rank
    return members


def _inside(network: Network, boxes: Boxes) -> Network:
    """Return the network of the routes inside boxes alone, without limits."""
    home = _box_of(boxes)
    routes = tuple(route for route in network.routes if home[route.src] == home[route.dst])
    return Network(f"{network.name} inside its boxes", network.ranks, routes, unit=network.unit)


def _rows(moves: Sequence[Sequence[tuple[int, tuple[int, int, int]]]]) -> Moves:
    """Return the moves by step, of lists of (step, move)."""
    rows: Moves = []
    for listed in moves:
        for step, move in listed:
            while len(rows) <= step:
                rows.append([])
            rows[step].append(move)
    return rows
