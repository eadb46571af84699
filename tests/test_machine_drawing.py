"""The drawing of a machine: switches that only its limits show, groups, grids, lines that pass no other rank."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, pairwise, permutations
from math import dist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synth.commands import api
from synth.model.topology import Limit, Link, Network, Topology
from synth.view.drawings.machine_layout import control, layout
from synth.view.drawings.port_switches import Pairs, wiring
from synth.view.page import animation_data

SWITCHED = ("dgx-h100", "dgx-a100*2", "rail:3x4", "p4d*2", "dgx1*2", "mi250*2", "mi100-4p3l")


def socket_pair() -> Topology:
    """Four ranks at PCIe of 6 GB/s and two at another socket; 5 GB/s between the sockets."""
    links = [Link(a, b, Fraction(6 if (a < 4) == (b < 4) else 5), kind="pcie") for a, b in permutations(range(6), 2)]
    limits = []
    for rank in range(6):
        for side in ("src", "dst"):
            members = tuple(k for k, link in enumerate(links) if getattr(link, side) == rank)
            limits.append(Limit(f"port {rank}", members, Fraction(6)))
    for side in (True, False):
        members = tuple(k for k, x in enumerate(links) if (x.src < 4) == side and (x.dst < 4) != side)
        limits.append(Limit("socket", members, Fraction(5)))
    return Topology("sockets", 6, tuple(links), tuple(limits))


def network_of(name: str) -> Network:
    return socket_pair().network() if name == "sockets" else api.topology(name).network()


@pytest.mark.parametrize("name", [*SWITCHED, "sockets", "dgx1"])
def test_a_line_carries_what_its_limit_counts(name):
    network = network_of(name)
    drawn = animation_data.machine(network)
    users: dict[int, list[int]] = {}
    for route, (src, dst, path) in enumerate(drawn.routes):
        ends = [drawn.links[k][:2] for k in path]
        assert ends[0][0] == src and ends[-1][1] == dst  # from rank to rank without a break
        assert all(before[1] == after[0] for before, after in pairwise(ends))
        for k in path:
            users.setdefault(k, []).append(route)
    lines = {(tuple(routes), drawn.links[k][2]) for k, routes in users.items()}
    rows = {(routes, units) for _, units, routes in drawn.caps}
    assert len(users) == len(drawn.links)
    for cap in network.caps:
        assert (tuple(sorted(cap.routes)), cap.units) in lines | rows
    if name != "dgx1":
        assert len(drawn.links) < len(network.routes) and not drawn.caps


@given(st.data())
def test_any_links_and_limits_are_drawn(data):
    """Each link has a path, what a limit counts has a line or stays, and ends lie apart in the picture."""
    ranks = data.draw(st.integers(1, 9))
    pair = st.tuples(st.integers(0, ranks - 1), st.integers(0, ranks - 1)).filter(lambda ends: ends[0] != ends[1])
    pairs = data.draw(st.lists(pair, max_size=30)) if ranks > 1 else []
    links = [(*ends, data.draw(st.integers(1, 3))) for ends in pairs]
    members = st.lists(st.integers(0, max(0, len(links) - 1)), min_size=1, max_size=8)
    limits = data.draw(st.lists(st.tuples(members, st.integers(1, 3)), max_size=8)) if links else []
    sides: list[tuple[list[int], int]] = []
    for rank in range(ranks if data.draw(st.booleans()) else 0):  # ports, which make switches likely
        for side in (0, 1):
            port = [k for k, link in enumerate(links) if link[side] == rank]
            sides += [(port, 1)] if port else []
    found = wiring(Pairs(ranks, links, [*limits, *sides]))
    ends = ranks + len(found.names)
    for (src, dst, _), path in zip(links, found.paths, strict=True):
        stops = [src, *(found.lines[k][1] for k in path)]
        assert stops[-1] == dst and [found.lines[k][0] for k in path] == stops[:-1]
    users: dict[int, list[int]] = {}
    for link, path in enumerate(found.paths):
        for k in path:
            users.setdefault(k, []).append(link)
    lines = [(sorted(users[k]), found.lines[k][2]) for k in users]
    assert len(users) == len(found.lines)
    for k, (inside, rate) in enumerate([*limits, *sides]):
        assert k in found.limits or (sorted(inside), rate) in lines
    drawn = layout(ranks, found.lines, ends)
    assert len(drawn.spots) == ends and len(drawn.bends) == len(found.lines)
    assert all(0 < x < drawn.width and 0 < y < drawn.height for x, y in drawn.spots)
    assert all(dist(a, b) > 1 for a, b in combinations(drawn.spots[:ranks], 2))


def test_switches_and_networks_have_names():
    names = {name: [end[2] for end in animation_data.machine(network_of(name)).ends if end[3]] for name in SWITCHED}
    assert names["dgx-h100"] == ["switch"] and names["dgx-a100*2"] == ["switch 0", "switch 1", "net"]
    assert names["rail:3x4"] == [*(f"switch {k}" for k in range(3)), *(f"net {k}" for k in range(4))]
    assert names["dgx1*2"] == ["net", "port", "port"]


def test_a_link_slower_than_its_ports_keeps_its_line():
    links = [Link(a, b, Fraction(1 if (a, b) == (0, 1) else 2)) for a, b in permutations(range(3), 2)]
    limits = []
    for rank in range(3):
        limits.append(((*(k for k, x in enumerate(links) if x.src == rank),), 2))
        limits.append(((*(k for k, x in enumerate(links) if x.dst == rank),), 2))
    found = wiring(Pairs(3, [(x.src, x.dst, x.bandwidth) for x in links], limits))
    assert len(found.lines) == 6 and found.names == () and found.limits == tuple(range(6))


def frames_of(name: str) -> list[list[int]]:
    """Return the ranks in each frame."""
    drawn = animation_data.machine(network_of(name))
    found = []
    for x, y, width, height in drawn.frames:
        inside = [k for k, (u, v, *_) in enumerate(drawn.ends) if x < u < x + width and y < v < y + height]
        found.append([k for k in inside if not drawn.ends[k][3]])
    return found


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("dgx1", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("dgx-a100*2", [[*range(8)], [*range(8, 16)]]),
        ("sockets", [[0, 1, 2, 3], [4, 5]]),
        ("pcie-4x2", [[0, 1], [2, 3], [4, 5], [6, 7]]),
        ("mi250", [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]),
        ("mi100-4p3l", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("dgx-h100", []),
        ("torus:4x4", []),
        ("random-regular:8", []),
    ],
)
def test_groups_come_from_the_links(name, groups):
    assert [group for group in frames_of(name) if group in groups] == groups
    if not groups:
        assert frames_of(name) == []


def test_a_grid_is_drawn_in_rows():
    for name, columns in (("torus:4x4", 4), ("mesh:3x5", 5), ("line:4", 4)):
        ends = animation_data.machine(network_of(name)).ends
        for k, (x, y, *_) in enumerate(ends):
            assert (x - ends[0][0], y - ends[0][1]) == pytest.approx((80 * (k % columns), 80 * (k // columns)))


@pytest.mark.parametrize(
    "name", [*SWITCHED, "dgx1", "mi250", "torus:4x4", "hypercube:16", "fat-tree:8", "dragonfly:4x3"]
)
def test_no_two_ends_meet_and_all_are_in_the_picture(name):
    drawn = animation_data.machine(network_of(name))
    spots = [end[:2] for end in drawn.ends]
    assert all(30 < x < drawn.width - 30 and 20 < y < drawn.height - 20 for x, y in spots)
    assert min(dist(a, b) for a, b in combinations(spots, 2)) > 30


def test_lines_bend_alike_in_both_directions_around_what_lies_between():
    found = layout(3, [(0, 1, 1), (1, 0, 1), (1, 2, 1), (2, 1, 1), (0, 2, 1), (2, 0, 1)], 3)
    assert not any(found.bends)  # a triangle
    row = layout(4, [(0, 1, 1), (1, 0, 1), (1, 2, 1), (2, 1, 1), (2, 3, 1), (3, 2, 1)], 4)
    assert not any(row.bends)
    torus = animation_data.machine(network_of("torus:4x4"))
    bends = {(a, b): bend for a, b, _, _, bend in torus.links}
    assert bends[0, 3] == -bends[3, 0] > 0 == bends[0, 1]  # above the first row
    places = layout(16, [(a, b, 1) for a, b in bends], 16)
    assert control(places, (0, 3), bends[0, 3])[1] < places.spots[0][1]


@pytest.mark.parametrize("name", ["dgx-a100*2", "mi250*2", "p4d*2", "fat-tree:16"])
def test_a_line_passes_no_end_that_it_does_not_join(name):
    drawn = animation_data.machine(network_of(name))
    lines = [(a, b, 1) for a, b, *_ in drawn.links]
    picture = layout(network_of(name).ranks, lines, len(drawn.ends))
    for (a, b, _), bend in zip(lines, picture.bends, strict=True):
        start, middle, end = picture.spots[a], control(picture, (a, b), bend), picture.spots[b]
        others = [spot for k, spot in enumerate(picture.spots) if k not in (a, b)]
        for k in range(1, 32):
            t = k / 32
            x, y = (
                (1 - t) ** 2 * u + 2 * t * (1 - t) * v + t**2 * w for u, v, w in zip(start, middle, end, strict=True)
            )
            assert min(dist((x, y), other) for other in others) > 14  # the radius of a rank
