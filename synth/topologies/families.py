"""Generic families. Links are 1 GB/s = 1 unit and 1 µs unless `units=` and `latency=` say otherwise; ranks are all in
node 0."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

from synth.errors import UsageError
from synth.model.graphs import components
from synth.model.permutations import Permutation, symmetric_group
from synth.model.rational import rational
from synth.model.topology import Multicast, Topology, check_multicast
from synth.topologies.builders import (  # fmt: skip
    MAX_LINKS,
    MAX_RANKS,
    Nic,
    TopologyBuilder,
    counted,
    crossbar,
    duplex,
    with_generators,
)
from synth.topologies.clusters import cluster

# Tori and meshes of any number of dimensions, the last one fastest: their edges and symmetries.


def grid(sizes: tuple[int, ...], wrap: bool) -> tuple[list[tuple[int, int]], list[Permutation]]:
    """Edges, rank by rank, and permutations: shifts (where it wraps), mirrors, exchanges of equal dimensions."""
    places = list(itertools.product(*map(range, sizes)))
    rank = {place: i for i, place in enumerate(places)}

    def at(place: tuple[int, ...], d: int, x: int) -> int:
        return rank[(*place[:d], x, *place[d + 1 :])]

    edges = []
    for place in places:
        for d, size in enumerate(sizes):
            if size > 1 and (wrap or place[d] + 1 < size):
                edges.append((rank[place], at(place, d, (place[d] + 1) % size)))
    symmetries: list[Permutation] = []
    for d, size in enumerate(sizes):
        if wrap:
            symmetries.append(tuple(at(place, d, (place[d] + 1) % size) for place in places))
        last = size if wrap else size - 1
        symmetries.append(tuple(at(place, d, (last - place[d]) % size) for place in places))
        # The exchange with the next dimension of this size.
        e = next((e for e in range(d + 1, len(sizes)) if sizes[e] == size), d)
        if e > d:
            exchanged = [*range(d), e, *range(d + 1, e), d, *range(e + 1, len(sizes))]
            symmetries.append(tuple(rank[tuple(map(place.__getitem__, exchanged))] for place in places))
    return edges, symmetries


Options = dict[str, str]
COMMON = {"units": "bandwidth of a link in units of 1 GB/s (1)", "latency": "µs of a link (1)"}


def _integer(options: Options, key: str, default: int, low: int = 1) -> int:
    text = options.get(key, str(default))
    if not text.isdecimal() or len(text) > 9 or int(text) < low:
        raise UsageError(f"{key}={text} is not a whole number of at least {low}")
    return int(text)


def _number(options: Options, key: str, default: int, low: int = 0) -> Fraction:
    text = options.get(key, str(default))
    try:
        value = rational(text)
    except ValueError as error:
        raise UsageError(f"{key}: {error}") from None
    if value < low or (value == low == 0 and key != "latency"):
        raise UsageError(f"{key}={text} must {'not be negative' if key == 'latency' else 'be positive'}")
    return value


def _direct(
    name: str,
    ranks: int,
    edges: Iterable[tuple[int, int]],
    options: Options,
    symmetries: Iterable[Sequence[int]] = (),
) -> Topology:
    """Links both ways along each edge, one however often it is given."""
    units, latency = _number(options, "units", 1), _number(options, "latency", 1)
    links = duplex(counted({(min(e), max(e)): None for e in edges}, name), units, latency, "unknown")
    if len(links) > MAX_LINKS:
        raise UsageError(f"{name} has {len(links)} links, at most {MAX_LINKS} are supported; ask for fewer ranks")
    return with_generators(Topology(name, ranks, links, nodes=(0,) * ranks), symmetries)


def _cyclic(n: int) -> list[Permutation]:
    turn = tuple((i + 1) % n for i in range(n))
    mirror = tuple(-i % n for i in range(n))
    return [turn, mirror]


def ring(n: int, options: Options) -> Topology:
    """A cycle, both directions."""
    return _direct(f"ring:{n}", n, ((i, (i + 1) % n) for i in range(n)), options, _cyclic(n))


def line(n: int, options: Options) -> Topology:
    """A path, both directions."""
    return _direct(f"line:{n}", n, ((i, i + 1) for i in range(n - 1)), options, [tuple(range(n))[::-1]])


def star(n: int, options: Options) -> Topology:
    """Rank 0 in the centre, a link each way to every other rank; the centre's links are its own and share nothing."""
    return _direct(f"star:{n}", n, ((0, i) for i in range(1, n)), options, symmetric_group(range(1, n), n))


def fully_connected(n: int, options: Options) -> Topology:
    """A link each way between every two ranks."""
    return _direct(f"fully-connected:{n}", n, _all_pairs(n, "fully-connected"), options, symmetric_group(range(n), n))


def _all_pairs(n: int, name: str) -> Iterable[tuple[int, int]]:
    if n * (n - 1) > MAX_LINKS:
        raise UsageError(f"{name}:{n} has {n * (n - 1)} links, at most {MAX_LINKS} are supported; ask for fewer ranks")
    return itertools.combinations(range(n), 2)


def switch(n: int, options: Options) -> Topology:
    """One non-blocking switch: every pair is a link of `units`, under a limit of `units` out of and into each rank.

    With the option `multicast`, through or local, the switch multicasts and reduces.
    """
    _all_pairs(n, "switch")
    links, limits = crossbar(n, _number(options, "units", 1), _number(options, "latency", 1), "unknown")
    multicast = ()
    if "multicast" in options:
        multicast = (Multicast("switch", tuple(range(n)), options["multicast"]),)
        check_multicast(multicast[0], n, ())
    machine = Topology(f"switch:{n}", n, links, limits, nodes=(0,) * n, multicast=multicast)
    return with_generators(machine, symmetric_group(range(n), n))


def hypercube(n: int, options: Options) -> Topology:
    """Ranks differing in one bit are joined; the size is the number of ranks, a power of two."""
    bits = n.bit_length() - 1
    if n != 1 << bits:
        raise UsageError(
            f"hypercube:{n}: the size counts ranks and must be a power of two, such as {1 << bits} or {2 << bits}"
        )
    edges = ((i, i ^ (1 << b)) for i in range(n) for b in range(bits) if i < i ^ (1 << b))
    symmetries: list[list[int]] = []
    if bits:
        symmetries.append([i ^ 1 for i in range(n)])  # one bit of all ranks flipped
        symmetries.append([((i << 1) | (i >> (bits - 1))) & (n - 1) for i in range(n)])  # bits rotated
    if bits > 1:
        symmetries.append([(i & ~3) | ((i & 1) << 1) | ((i >> 1) & 1) for i in range(n)])  # two bits exchanged
    return _direct(f"hypercube:{n}", n, edges, options, symmetries)


def _grid(sizes: tuple[int, ...], options: Options, name: str, wrap: bool) -> Topology:
    n = math.prod(sizes)
    edges, symmetries = grid(sizes, wrap)
    return _direct(f"{name}:{'x'.join(map(str, sizes))}", n, edges, options, symmetries)


def torus(sizes: tuple[int, ...], options: Options) -> Topology:
    """A grid that wraps round in every dimension, the last one fastest; a dimension of 2 has one link, not two."""
    return _grid(sizes, options, "torus", True)


def mesh(sizes: tuple[int, ...], options: Options) -> Topology:
    """A grid without wrap-around, the last dimension fastest."""
    return _grid(sizes, options, "mesh", False)


def circulant(n: int, options: Options) -> Topology:
    """Ranks i and i ± o are joined for each of `offsets`, such as 1+3."""
    text = options.get("offsets", "1")
    parts = text.split("+")
    if not all(p.isdecimal() and len(p) < 6 and 0 < int(p) < n for p in parts):
        raise UsageError(f"offsets={text} must be numbers from 1 to {n - 1} joined by +, such as offsets=1+3")
    edges = ((i, (i + int(p)) % n) for p in parts for i in range(n))
    return _direct(f"circulant:{n}", n, edges, options, _cyclic(n))


def random_regular(n: int, options: Options) -> Topology:
    """A connected random graph in which every rank has `degree` neighbours; the same `seed` gives the same graph.

    Pairs free stubs at random and starts again when none can be paired (Steger and Wormald, 1999).
    """
    degree, seed = _integer(options, "degree", min(4, n - 1)), _integer(options, "seed", 0, 0)
    if degree >= n or n * degree % 2 or (degree == 1 and n > 2):
        raise UsageError(
            f"no connected graph of {n} ranks has {degree} links at each: the degree is below the size, their "
            f"product even"
        )
    if n * degree > MAX_LINKS:
        raise UsageError(f"random-regular:{n} has {n * degree} links, at most {MAX_LINKS} are supported")

    # random() is the one generator method whose sequence Python promises to keep.
    draw = random.Random(seed).random
    while True:
        edges = _pairing(n, degree, draw)
        if edges and not any(components(range(n), edges).values()):
            return _direct(f"random-regular:{n}", n, sorted(edges), options)


def _pairing(n: int, degree: int, draw: Callable[[], float]) -> set[tuple[int, int]]:
    stubs = [i for i in range(n) for _ in range(degree)]
    edges: set[tuple[int, int]] = set()
    while stubs:
        for k in range(len(stubs) - 1, 0, -1):
            j = int(draw() * (k + 1))
            stubs[k], stubs[j] = stubs[j], stubs[k]
        left = []
        for a, b in zip(stubs[::2], stubs[1::2], strict=True):
            edge = (min(a, b), max(a, b))
            if a == b or edge in edges:
                left += [a, b]
            else:
                edges.add(edge)
        free = sorted(set(left))
        if left and all(pair in edges for pair in itertools.combinations(free, 2)):
            return set()
        stubs = left
    return edges


def dragonfly(sizes: tuple[int, ...], options: Options) -> Topology:
    """`GxA`: G groups of A fully connected ranks, and one link between every two groups (Kim et al., ISCA 2008).

    Group g's links to groups g+1, g+2, ... leave its ranks in order, evenly (the relative arrangement), so that turning
    the groups round is a symmetry. `global` is the bandwidth of the links between groups, in units.
    """
    if len(sizes) != 2:
        raise UsageError("dragonfly needs groups x ranks per group, such as dragonfly:9x4")
    groups, size = sizes
    n, share = groups * size, -(-(groups - 1) // size) or 1
    local = counted(
        ((g * size + a, g * size + b) for g in range(groups) for a, b in itertools.combinations(range(size), 2)),
        "dragonfly",
    )

    def door(g: int, h: int) -> int:
        return g * size + ((h - g) % groups - 1) // share

    far = counted(((door(g, h), door(h, g)) for g, h in itertools.combinations(range(groups), 2)), "dragonfly")
    latency = _number(options, "latency", 1)
    links = duplex(local, _number(options, "units", 1), latency, "unknown") + duplex(
        far, _number(options, "global", 1), latency, "net"
    )
    turn = [(i + size) % n for i in range(n)]
    mirror = [-(i // size) % groups * size + size - 1 - i % size for i in range(n)]
    machine = Topology(f"dragonfly:{groups}x{size}", n, links, nodes=tuple(i // size for i in range(n)))
    return with_generators(machine, [turn, mirror])


def fat_tree(n: int, options: Options) -> Topology:
    """A folded Clos of explicit switches: `leaf` ranks per leaf switch, every leaf joined to `spines` spine switches.

    By default the leaf is the greatest divisor of the size up to its square root, and there are as many spines, so that
    nothing blocks.
    """
    leaf = _integer(options, "leaf", max(d for d in range(1, math.isqrt(n) + 1) if n % d == 0))
    spines = _integer(options, "spines", leaf)
    if n % leaf:
        raise UsageError(f"leaf={leaf} does not divide the {n} ranks")
    leaves = n // leaf
    if leaves * spines > MAX_LINKS:
        raise UsageError(f"fat-tree:{n} with {spines} spines has more than {MAX_LINKS} links")
    pairs = [(i, n + i // leaf) for i in range(n)]
    pairs += [(n + b, n + leaves + s) for b in range(leaves) for s in range(spines)]
    names = [f"leaf{b}" for b in range(leaves)]
    names += [f"spine{s}" for s in range(spines)]
    links = duplex(pairs, _number(options, "units", 1), _number(options, "latency", 1) / 2, "unknown")
    symmetries = [*symmetric_group(range(leaf), n)]
    symmetries += [_blockwise(pi, leaf) for pi in symmetric_group(range(leaves), leaves)]
    return with_generators(Topology(f"fat-tree:{n}", n, links, (), names, (0,) * n, Fraction(1)), symmetries)


def _blockwise(pi: Sequence[int], size: int) -> Permutation:
    return tuple(p * size + i for p in pi for i in range(size))


def rail(sizes: tuple[int, ...], options: Options) -> Topology:
    """`BxG`: B boxes of G ranks. Inside a box a switch of `inner` units; rank g of every box on rail switch g of
    `units`.

    `inner` is 9 by default, the ratio of NVLink to network bandwidth on a DGX H100.
    """
    if len(sizes) != 2:
        raise UsageError("rail needs boxes x ranks per box, such as rail:4x8")
    boxes, size = sizes
    box = switch(size, {**options, "units": options.get("inner", "9")})
    nic = Nic(_number(options, "units", 1), _number(options, "latency", 1))
    return cluster(box, boxes, nic, {"net": "rail"}, f"rail:{boxes}x{size}")


def _family(summary: str, build: Callable[..., Topology], sizes: str = "N", **more: str) -> TopologyBuilder:
    many, least = "x" in sizes, 2
    options = {**COMMON, **more}

    def make(given: tuple[int, ...], chosen: Options) -> Topology:
        name = build.__name__.replace("_", "-")
        if not given or (len(given) > 1 and not many):
            raise UsageError(f"{name} needs a size, as in {name}:{'4x4' if many else '8'}")
        if min(given) < 1 or math.prod(given) < least or math.prod(given) > MAX_RANKS:
            raise UsageError(f"{name}:{'x'.join(map(str, given))}: between {least} and {MAX_RANKS} ranks are supported")
        for key in chosen:
            if key not in options:
                raise UsageError(f"{name} has no option {key!r}; it takes {', '.join(options)}")
        return build(given if many else math.prod(given), chosen)

    return TopologyBuilder(summary, make, Nic(Fraction(1), Fraction(1)), sizes, options)


FAMILIES: dict[str, TopologyBuilder] = {
    "ring": _family("a cycle, both directions", ring),
    "line": _family("a path, both directions", line),
    "star": _family("rank 0 joined to all others", star),
    "fully-connected": _family("a link between every two ranks", fully_connected),
    "switch": _family(
        "one non-blocking switch",
        switch,
        units="bandwidth of each rank's port (1)",
        multicast="through or local: it multicasts and reduces (no)",
    ),
    "hypercube": _family("ranks that differ in one bit; the size counts ranks", hypercube),
    "mesh": _family("a grid", mesh, "AxBx..."),
    "torus": _family("a grid that wraps round", torus, "AxBx..."),
    "circulant": _family("ranks i and i ± offset", circulant, offsets="numbers joined by +, such as 1+3 (1)"),
    "random-regular": _family(
        "a random graph of equal degrees", random_regular, degree="links at each rank (4)", seed="which graph (0)"
    ),
    "dragonfly": _family(
        "complete groups, a link between every two", dragonfly, "GxA", **{"global": "units between groups (1)"}
    ),
    "fat-tree": _family(
        "a folded Clos of explicit switches",
        fat_tree,
        leaf="ranks per leaf switch",
        spines="spine switches (leaf)",
    ),
    "rail": _family(
        "boxes with a switch inside, a switch per rail", rail, "BxG", inner="units of a port inside a box (9)"
    ),
}
