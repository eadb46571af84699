"""Machines that no table names: clusters of unlike boxes, drawn from a seed."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from itertools import combinations
from random import Random

from synth.model.topology import Limit, Link, Topology

WIDTHS = (25, 50, 75, 100)  # GB/s of a link inside a box
NICS = (10, 25, 50)  # GB/s of a NIC


def random_cluster(seed: int) -> Topology:
    """Return the cluster of `seed`: two to five boxes of three to eight ranks, alike or unlike.

    Inside, all ranks of a box are joined, or a ring and random pairs of them, by links that are equal in the whole
    cluster or differ. A NIC serves one rank, two or a whole box. NICs of all boxes reach each other, or only those in
    the same place (rails; a box of fewer NICs has fewer); where all do, the fabric carries what all NICs of a box do,
    a half or a quarter of it.
    """
    random = Random(seed)
    sizes = [random.randint(3, 8) for _ in range(random.randint(2, 5))]
    if random.random() < 0.5:
        sizes = sizes[:1] * len(sizes)
    nodes = [box for box, size in enumerate(sizes) for _ in range(size)]
    boxes = [[rank for rank, node in enumerate(nodes) if node == box] for box in range(len(sizes))]
    links = _links_inside(boxes, random)
    inside, nic = len(links), Fraction(random.choice(NICS))
    per_nic = random.choice((1, 2, max(sizes)))
    rails = random.random() < 0.5
    oversubscription = 1 if rails else random.choice((1, 2, 4))
    place = [rank - boxes[node][0] for rank, node in enumerate(nodes)]
    places = min(sizes)
    for a, b in combinations(range(len(nodes)), 2):
        if nodes[a] != nodes[b] and (not rails or place[a] == place[b] < places):
            links += [Link(a, b, nic), Link(b, a, nic)]
    limits: list[Limit] = []
    for box, ranks in enumerate(boxes):
        groups = [ranks[i : i + per_nic] for i in range(0, len(ranks), per_nic)]
        for number, group in enumerate(groups):
            limits += _limits(f"NIC {number} of box {box}", group, links, inside, nic)
        if oversubscription > 1:
            limits += _limits(f"fabric at box {box}", ranks, links, inside, nic * len(groups) / oversubscription)
    return Topology(f"random:{seed}", len(nodes), tuple(links), tuple(limits), (), tuple(nodes))


def _links_inside(boxes: Iterable[list[int]], random: Random) -> list[Link]:
    """Return the links inside boxes, both ways of each pair that is joined."""
    links, joined, equal = [], random.random() < 0.5, random.random() < 0.5
    width = Fraction(random.choice(WIDTHS))
    for box in boxes:
        for a, b in combinations(box, 2):
            if joined or b - a in (1, len(box) - 1) or random.random() < 0.4:
                own = width if equal else Fraction(random.choice(WIDTHS))
                links += [Link(a, b, own), Link(b, a, own)]
    return links


def _limits(name: str, ranks: list[int], links: list[Link], first: int, width: Fraction) -> list[Limit]:
    """Return a limit on the links from number `first` on that leave `ranks`, and one on those that enter them."""
    limits = []
    for end in ("src", "dst"):
        members = tuple(i for i in range(first, len(links)) if getattr(links[i], end) in ranks)
        if members:
            limits.append(Limit(f"{name}, {end}", members, width))
    return limits
