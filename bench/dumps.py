"""Random machines, printed as each tool prints them, read back, damaged as pastes are, and read again.

    python -m bench.dumps --seed 1 --cases 20000

A dump as printed must give the machine; a damaged one the same machine or a refusal in one line. The printers, and the
reckoning of the links and limits that a dump must give, share no code with the importers. Forms: nvidia-smi (columns
by tabs or spaces, NICs by name or number, affinities or none, legends, GPUs named or not), XML of NCCL and RCCL (bare
metal, virtual machines, several hosts). What a text does not say is a note: a machine that
differs from the printed one counts as noted only if a new note of `NOTED` says so.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, groupby, permutations
from pathlib import Path
from random import Random

import networkx as nx

from synth.errors import FormatError
from synth.topologies.importers import load

Pair = tuple[int, int]
# GB/s of an NVLink each way, links of a GPU, compute capability; of an xGMI link, links of a GPU, gfx name.
NVIDIA = {
    "Tesla P100-SXM2-16GB": (20, 4, 60),
    "Tesla V100-SXM2-32GB": (25, 6, 70),
    "NVIDIA A100-SXM4-80GB": (25, 12, 80),
    "NVIDIA A800-SXM4-80GB": (25, 8, 80),
    "NVIDIA GeForce RTX 3090": (Fraction("14.0625"), 4, 86),
    "NVIDIA H100 80GB HBM3": (25, 18, 90),
    "NVIDIA H800": (25, 8, 90),
    "NVIDIA B200": (50, 18, 100),
}
AMD = {
    "AMD Instinct MI50": (24, 2, "gfx906"),
    "AMD Instinct MI100": (24, 6, "gfx908"),
    "AMD Instinct MI250X": (50, 8, "gfx90a"),
    "AMD Instinct MI300X": (64, 7, "gfx942"),
    "AMD Instinct MI355X": (Fraction("76.8"), 7, "gfx950"),
}
LANE = {"2.5": Fraction(3, 16), "5": Fraction(3, 8), "8": Fraction(3, 4), "16": Fraction(3, 2), "32": Fraction(3)}
INTEL = 'vendor="GenuineIntel" modelid='
SOCKETS = {f'{INTEL}"85"': 10, f'{INTEL}"143"': 40, 'vendor="AuthenticAMD"': 16}
# Words of the notes that say what a damaged dump no longer tells.
NOTED = (
    "which is no GPU of the file", "has no <gpu> and is left out", "others are left out", "links of a single GPU",
    "fewer links into switches", "listed at one end only", "of the GPUs 0 to", "in no <cpu>", "no CPU affinity",
    "begins a table of another kind", "prints no NVLink bandwidth", "prints no bandwidth", "is not known",
    "assumed between two CPUs", "no known speed or width is stated",
)  # fmt: skip


@dataclass(frozen=True)
class Machine:
    """`links[u, v]` with u < v: links between two GPUs; `ports[u]`: links into the switch of `domain[u]`; `place[u]`:
    host, socket, host bridge, outer and inner PCIe switch; `named`: the text names the GPUs."""

    model: str
    ranks: int
    links: dict[Pair, int]
    ports: dict[int, int]
    domain: tuple[int, ...]
    place: tuple[tuple[int, ...], ...]
    named: bool


def canonical(topology) -> tuple:
    """Return what two readings must agree in: ranks, boxes, links, limits."""
    ends = [(link.src, link.dst) for link in topology.links]
    links = {pair: (link.bandwidth, link.kind) for pair, link in zip(ends, topology.links, strict=True)}
    limits = {(frozenset(map(ends.__getitem__, limit.links)), limit.bandwidth) for limit in topology.limits}
    return topology.ranks, topology.nodes, links, limits


def reckoned(machine: Machine, kind: str, gbps, groups, sockets, between) -> tuple:
    """Return the `canonical` of a machine whose GPUs share PCIe ports (`groups`: GPUs, GB/s); `between` GB/s go from
    one of the `sockets` to another."""
    links: dict[Pair, tuple] = {}
    limits: set = set()
    graph = nx.Graph(list(machine.links))
    graph.add_nodes_from(range(machine.ranks))
    for (u, v), count in machine.links.items():
        links[u, v] = links[v, u] = (gbps * count, kind)
    for u, v in permutations(machine.ports, 2):
        if machine.domain[u] == machine.domain[v]:
            links[u, v] = (gbps * min(machine.ports[u], machine.ports[v]), kind)
            graph.add_edge(u, v)
    for u, count in machine.ports.items():
        for side in (0, 1):
            ends = frozenset(pair for pair in links if pair[side] == u and pair[1 - side] in machine.ports)
            if len(ends) > 1:
                limits.add((ends, gbps * count))
    socket = {u: i for i, members in enumerate(sockets) for u in members}
    users: dict[tuple, list[Pair]] = {}
    for u, v in permutations(range(machine.ranks), 2):
        if nx.has_path(graph, u, v) or machine.place[u][0] != machine.place[v][0]:
            continue
        crossed = {}
        for i, (members, width) in enumerate(groups):
            if (u in members) != (v in members):
                crossed["group", i, u in members] = width
        if socket[u] != socket[v]:
            crossed["bridge", socket[u], socket[v]] = between
        links[u, v] = (min(crossed.values()), "pcie")
        for name, width in crossed.items():
            users.setdefault((*name, width), []).append((u, v))
    offers: dict[frozenset[Pair], Fraction] = {}
    for (*_, width), pairs in users.items():
        ends = frozenset(pairs)
        offers[ends] = min(width, offers[ends]) if ends in offers else width
    for ends, width in offers.items():
        if sum(links[pair][0] for pair in ends) > width:
            limits.add((ends, width))
    hosts = list(dict.fromkeys(place[0] for place in machine.place))
    return machine.ranks, tuple(hosts.index(place[0]) for place in machine.place), links, limits


def places(rng: Random, ranks: int, hosts: int = 1) -> tuple[tuple[int, ...], ...]:
    """A random PCIe tree, the same on each host."""
    inside = ranks // hosts
    sockets, per_switch, per_outer, per_bridge = (rng.choice([1, 2, 2, 4]) for _ in range(4))
    found = []
    for u in range(ranks):
        i = u % inside
        switches = i // (per_switch * per_outer * per_bridge), i // (per_switch * per_outer), i // per_switch
        found.append((u // inside, i * sockets // inside, *switches))
    return tuple(found)


def distance(machine: Machine, u: int, v: int) -> str:
    """The word of nvidia-smi for two GPUs that no NVLink joins."""
    for depth, word in ((5, "PIX"), (4, "PXB"), (3, "PHB"), (2, "NODE")):
        if machine.place[u][:depth] == machine.place[v][:depth]:
            return word
    return "SYS"


def connected(rng: Random, ranks: int, most: int) -> dict[Pair, int]:
    """A random graph of GPUs with at most `most` links each, in one part or several."""
    free = [most] * ranks
    links: dict[Pair, int] = {}
    shape = rng.choice(["ring", "pairs", "mesh", "cube", "random"])
    pairs = list(combinations(range(ranks), 2))
    if shape == "ring":
        pairs = [(u, v) for u, v in pairs if v - u in (1, ranks - 1)]
    elif shape == "pairs":
        pairs = [(u, v) for u, v in pairs if u ^ v == 1]
    elif shape == "cube":
        pairs = [(u, v) for u, v in pairs if (u ^ v).bit_count() == 1]
    elif shape == "random":
        rng.shuffle(pairs)
        pairs = pairs[: rng.randint(1, len(pairs))]
    count = rng.choice([1, 1, 2, 4])
    for u, v in pairs:
        number = min(rng.randint(1, count) if shape == "random" else count, free[u], free[v])
        if number > 0:
            links[u, v] = number
            free[u], free[v] = free[u] - number, free[v] - number
    # No board joins three GPUs alone: links that four of them could not have all around are those of a switch.
    for members in nx.connected_components(nx.Graph(list(links))):
        inside = [pair for pair in links if pair[0] in members]
        whole = len(members) > 2 and 2 * len(inside) == len(members) * (len(members) - 1)
        if whole and len({links[pair] for pair in inside}) == 1 and 3 * links[inside[0]] > most:
            links |= dict.fromkeys(inside, 1)
    return links


def nvidia_machine(rng: Random, hosts: int = 1, parts: bool = False) -> Machine:
    """A random machine with NVIDIA's GPUs: switches (`parts`: two in a host) that some GPUs lack, a graph, or PCIe."""
    model = rng.choice(list(NVIDIA))
    most = NVIDIA[model][1]
    ranks = hosts * rng.choice([2, 3, 4, 4, 5, 8, 8, 8, 10, 16])
    inside = ranks // hosts
    place, kind = places(rng, ranks, hosts), rng.choice(["switch", "switch", "graph", "graph", "pcie"])
    links: dict[Pair, int] = {}
    ports: dict[int, int] = {}
    domain = tuple(u // inside for u in range(ranks))
    named = rng.random() < 0.5
    if kind == "switch" and most >= 6 and inside > 2:
        lacking = {u for u in range(ranks) if rng.random() < 0.05}
        ports = {u: most for u in range(ranks) if u not in lacking}
        if parts and inside >= 8 and rng.random() < 0.3:
            domain = tuple(u // (inside // 2) for u in range(ranks))
        if hosts > 1 and NVIDIA[model][2] >= 90:
            domain = (0,) * ranks
        # A switch with one GPU is none, and with two nothing tells it from links between them.
        small = {d for d, n in Counter(domain[u] for u in ports).items() if n < 3}
        ports = {u: n for u, n in ports.items() if domain[u] not in small}
        # NV6 among three or four GPUs may be six links a pair: the text cannot say, unless it names the GPUs.
        named = named or (most == 6 and any(n < 5 for n in Counter(domain[u] for u in ports).values()))
    elif kind == "graph":
        for host in range(hosts):
            for (u, v), number in connected(rng, inside, most).items():
                links[u + host * inside, v + host * inside] = number
    return Machine(model, ranks, links, ports, domain, place, named)


def amd_machine(rng: Random) -> Machine:
    """A random machine with AMD's GPUs, whose hives are the parts of the graph of their links."""
    model = rng.choice(list(AMD))
    ranks = rng.choice([2, 3, 4, 4, 8, 8, 8, 16])
    links = {} if rng.random() < 0.1 else connected(rng, ranks, AMD[model][1])
    if ranks <= 8 and rng.random() < 0.3 and AMD[model][1] >= ranks - 1:
        links = dict.fromkeys(combinations(range(ranks), 2), 1)
    return Machine(model, ranks, links, {}, (0,) * ranks, places(rng, ranks), rng.random() < 0.5)


def classes(machine: Machine, joined: Callable[[int, int], bool]) -> list[frozenset[int]]:
    """The classes of GPUs that `joined` joins."""
    graph = nx.Graph([pair for pair in combinations(range(machine.ranks), 2) if joined(*pair)])
    graph.add_nodes_from(range(machine.ranks))
    return [frozenset(members) for members in nx.connected_components(graph)]


LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""


def nvidia_smi(machine: Machine, rng: Random) -> tuple[str, tuple]:
    """The text of `nvidia-smi topo -m`, and the machine that it must give."""
    old = rng.random() < 0.2
    cells = {}
    for u, v in permutations(range(machine.ranks), 2):
        count = machine.links.get((min(u, v), max(u, v)))
        if count:
            cells[u, v] = f"NV{count}"
        elif u in machine.ports and v in machine.ports and machine.domain[u] == machine.domain[v]:
            cells[u, v] = f"NV{min(machine.ports[u], machine.ports[v])}"
        else:
            cells[u, v] = distance(machine, u, v).replace("SYS", "SOC" if old else "SYS")
    number, numbered = rng.choice([0, 0, 2, 5, 10, 12]), rng.random() < 0.5 and not old
    nics = [f"NIC{i}" if numbered else f"mlx5_{i}" for i in range(number)]
    titles = ["CPU Affinity", "NUMA Affinity", "GPU NUMA ID"][: rng.randrange(4)]
    if any(cell.startswith("NV") and machine.place[u][1] != machine.place[v][1] for (u, v), cell in cells.items()):
        titles = titles or ["CPU Affinity"]  # nothing else tells the sockets of GPUs that NVLink joins
    gpus = [f"GPU{u}" for u in range(machine.ranks)]
    rows = [["", *gpus, *nics, *titles]]
    for u, gpu in enumerate(gpus):
        socket = machine.place[u][1]
        tail = [f"{16 * socket}-{16 * socket + 15},{64 + 16 * socket}-{79 + 16 * socket}", str(socket), "N/A"]
        row = [" X " if u == v else cells[u, v] for v in range(machine.ranks)]
        rows.append([gpu, *row, *(rng.choice(["PIX", "NODE", "SYS"]) for _ in nics), *tail[: len(titles)]])
    for i, nic in enumerate(nics):
        column = [row[1 + machine.ranks + i] for row in rows[1 : 1 + machine.ranks]]
        rows.append([nic, *column, *(" X " if i == j else "SYS" for j in range(len(nics)))])
    if rng.random() < 0.5:
        text = "\n".join("\t".join(row) for row in rows)
    else:
        width, inner = max(8, *(2 + len(nic) for nic in nics), 0), 1 + machine.ranks + len(nics)
        lines = []
        for row in rows:
            lines.append("".join(cell.ljust(width) for cell in row[:inner]) + "    ".join(row[inner:]))
        text = "\n".join(lines)
    if rng.random() < 0.7:
        text += f"\n{LEGEND}"
        if numbered and nics:
            text += "\nNIC Legend:\n\n" + "\n".join(f"  {nic}: mlx5_{i}" for i, nic in enumerate(nics)) + "\n"
    gbps = Fraction(25)
    if machine.named:
        gbps = Fraction(NVIDIA[machine.model][0])
        form = rng.choice(["GPU {}: {}", "GPU {}: {} (UUID: GPU-0)"])
        text = "\n".join(form.format(u, machine.model) for u in range(machine.ranks)) + f"\n\n{text}"
    elif machine.ranks == 8 and not machine.ports and all(n == 1 for n in machine.links.values()):
        degrees = Counter(u for pair in machine.links for u in pair)
        gbps = Fraction(20) if set(degrees.values()) == {4} and len(degrees) == 8 else gbps
    # What is seen of the PCIe tree: GPUs that NVLink joins are not seen to share a switch.
    groups = [(frozenset([u]), Fraction(12)) for u in range(machine.ranks)]
    for words in (("PIX",), ("PIX", "PXB")):
        groups += [(members, Fraction(12)) for members in classes(machine, lambda u, v, w=words: cells[u, v] in w)]
    sockets = classes(machine, lambda u, v: machine.place[u][1] == machine.place[v][1])
    return text, reckoned(machine, "nvlink", gbps, groups, sockets, Fraction(10))


def xml(machine: Machine, rng: Random) -> tuple[str, tuple]:
    """The XML of NCCL or RCCL: cpu > pci > pci > gpu > nvlink, hosts by host_hash."""
    amd = machine.model in AMD
    virtual, vendor = rng.random() < 0.2, rng.choice(list(SOCKETS))
    buses, hosts = {}, len({place[0] for place in machine.place})
    for u, place in enumerate(machine.place):
        i = u - min(w for w in range(machine.ranks) if machine.place[w][0] == place[0])
        buses[u] = f"{i:04x}:{0x10 + i:02x}:00.0"
    groups: list[tuple] = []

    def port(members, bus, inner, kind="0x060400"):
        speed, width = rng.choice(["8", "16", "32"]), rng.choice([8, 16, 16])
        stated = f'link_speed="{speed}.0 GT/s PCIe" link_width="{width}"'
        gbps = LANE[speed] * width
        if virtual:
            stated, gbps = 'link_speed="" link_width="0"', Fraction(12)
        groups.append((frozenset(members), gbps))
        return [
            f'<pci busid="{bus}" class="{kind}" vendor="0x10de" device="0x1" {stated}>',
            *(f"  {line}" for line in inner),
            "</pci>",
        ]

    def gpu(u):
        name = f'sm="{NVIDIA[machine.model][2]}"' if not amd else f'sm="90" gcn="{AMD[machine.model][2]}"'
        tag = "xgmi" if amd else "nvlink"
        links = []
        for (a, b), count in machine.links.items():
            if u in (a, b):
                links.append(f'<{tag} target="{buses[a + b - u]}" count="{count}" tclass="0x030200"/>')
        if u in machine.ports:
            count = machine.ports[u]
            if switches:
                links += [f'<nvlink target="0000:c{i}:00.0" count="{count // 2}" tclass="0x068000"/>' for i in range(2)]
            else:
                links.append(f'<nvlink target="fffffff:ffff:ff" count="{count}" tclass="0x068000"/>')
        head = f'gpu dev="{u if hosts == 1 else int(buses[u][:4], 16)}" {name} rank="{u}" gdr="1"'
        inner = [f"<{head}>", *(f"  {line}" for line in links), "</gpu>"] if links else [f"<{head}/>"]
        return port([u], buses[u], inner, "0x120000" if amd else "0x030200")

    switches = rng.random() < 0.5

    def alike(gpus: list[int], depth: int) -> list[list[int]]:
        """The GPUs with the same place down to a depth."""
        return [list(some) for _, some in groupby(gpus, key=lambda u: machine.place[u][:depth])]

    cpus = alike(list(range(machine.ranks)), 2)
    order = rng.sample(cpus, len(cpus))
    lines, number = ['<system version="1">'], 0
    for within in sorted(order, key=lambda gpus: machine.place[gpus[0]][0]):
        host, socket, *_ = machine.place[within[0]]
        lines.append(f'  <cpu host_hash="0x{host + 7:x}" numaid="{socket}" affinity="ffff" arch="x86_64" {vendor}>')
        for outer in alike(within, 4):
            body, inner = [], alike(outer, 5)
            for gpus in inner:
                members = [line for u in gpus for line in gpu(u)]
                number += 1
                body += port(gpus, f"0000:{number:02x}:01.0", members) if len(gpus) > 1 else members
            number += 1
            body = port(outer, f"0000:{number:02x}:02.0", body) if len(inner) > 1 else body
            lines += [f"    {line}" for line in body]
        lines.append("  </cpu>")
    lines.append("</system>")
    sockets = [frozenset(gpus) for gpus in cpus]
    gbps = Fraction(AMD[machine.model][0] if amd else NVIDIA[machine.model][0])
    seen = reckoned(machine, "xgmi" if amd else "nvlink", gbps, groups, sockets, Fraction(SOCKETS[vendor]))
    return "\n".join(lines) + "\n", seen


def printed(rng: Random) -> tuple[str, str, tuple]:
    """A form, the text of a random machine in it, and the machine that the text must give."""
    form = rng.choice(["nvidia-smi", "nvidia-smi", "nvidia-smi", "nccl-xml", "rccl-xml"])
    if form == "nvidia-smi":
        return form, *nvidia_smi(nvidia_machine(rng, parts=True), rng)
    return form, *xml(nvidia_machine(rng, rng.choice([1, 1, 2, 3])) if form == "nccl-xml" else amd_machine(rng), rng)


def cut_end(text: str, rng: Random) -> str:
    return text[: rng.randint(1, len(text))]


def cut_lines(text: str, rng: Random) -> str:
    """Cut one to three lines, of XML at most one: without both ends of a link, or with a tag opened here and closed
    there, what is left is the file of another machine."""
    lines = text.split("\n")
    for _ in range(min(len(lines), 1 if text.startswith("<") else rng.randint(1, 3))):
        del lines[rng.randrange(len(lines))]
    return "\n".join(lines)


def cut_width(text: str, rng: Random) -> str:
    width = rng.choice([64, 80, 100, 120, 132])
    return "\n".join(line.expandtabs(8)[:width] for line in text.split("\n"))


def wrap(text: str, rng: Random) -> str:
    width, strip = rng.choice([64, 80, 100, 120, 132]), rng.random() < 0.4
    lines = []
    for line in text.split("\n"):
        line = line.expandtabs(8)
        pieces = [line[i : i + width] for i in range(0, len(line), width)] or [""]
        lines += [piece.rstrip() if strip else piece for piece in pieces]
    return "\n".join(lines)


def drop_column(text: str, rng: Random) -> str:
    """One word of each line, or one range of characters, is lost."""
    lines = text.split("\n")
    if rng.random() < 0.5:
        start = rng.randrange(100)
        size = rng.randint(1, 16)
        return "\n".join(line.expandtabs(8)[:start] + line.expandtabs(8)[start + size :] for line in lines)
    place, shorter = rng.randrange(12), []
    for line in lines:
        words = line.split()
        shift = 0 if line[:1].isspace() else 1
        del words[place + shift : place + shift + 1]
        shorter.append(("        " if not shift else "") + "    ".join(words))
    return "\n".join(shorter)


def spaces(text: str, rng: Random) -> str:
    how = rng.choice(["\xa0", "one", "expand", "strip", "&nbsp;", "\u200b"])
    if how == "one":
        return "\n".join((" " if line[:1].isspace() else "") + " ".join(line.split()) for line in text.split("\n"))
    if how == "expand":
        return text.expandtabs(8)
    if how == "strip":
        return "\n".join(line.strip() for line in text.split("\n"))
    return text.replace("  ", f"{how} ")


DAMAGE = (cut_end, cut_lines, cut_width, wrap, drop_column, spaces)


def outcome(path: Path, text: str, expected: tuple, before: tuple[str, ...] = ()) -> tuple[str, str]:
    """Read `text`; return "same", "refused", "noted" or "silent", and the refusal or the notes."""
    path.write_bytes(text.encode())
    try:
        topology = load(path)
    except FormatError as error:
        fine = "\n" not in str(error) and "YAML" not in str(error)
        return "refused" if fine else "badly refused", str(error)
    notes = [note for note in topology.notes if note not in before]
    if canonical(topology) == expected:
        return "same", ""
    return "noted" if any(word in note for note in notes for word in NOTED) else "silent", " | ".join(topology.notes)


def case(seed: int, number: int, path: Path) -> list[tuple[str, str, str, str, str]]:
    """Return (form, damage, outcome, why, text) of a dump as printed and of the same dump damaged once or twice."""
    rng = Random(f"{seed}-{number}")
    form, text, expected = printed(rng)
    result, why = outcome(path, text, expected)
    found = [(form, "none", result, why, text)]
    if result != "same":
        return found
    chosen = [rng.choice(DAMAGE) for _ in range(rng.choice([1, 1, 2]))]
    notes = load(path).notes
    for damage in chosen:
        text = damage(text, rng) or " "
    found.append((form, "+".join(damage.__name__ for damage in chosen), *outcome(path, text, expected, notes), text))
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--show", type=int, default=3, help="print as many faults, with their texts")
    options = parser.parse_args(arguments)
    table: Counter[tuple[str, str]] = Counter()
    faults: list[tuple] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.cases):
            for form, damage, result, why, text in case(options.seed, number, Path(folder) / "dump.txt"):
                for row in [f"{form}, {'as printed' if damage == 'none' else 'damaged'}", *damage.split("+")]:
                    table[row, result] += 1
                if result in ("silent", "badly refused") or (damage == "none" and result != "same"):
                    faults.append((number, form, damage, result, why, text))
    results = ("same", "refused", "noted", "silent", "badly refused")
    print(f"{'dumps':34}" + "".join(f"{name:>15}" for name in results))
    for row in sorted({row for row, _ in table} - {"none"}):
        print(f"{row:34}" + "".join(f"{table[row, name]:15}" for name in results))
    for number, form, damage, result, why, text in faults[: options.show]:
        print(f"\ncase {number}, {form}, {damage}: {result}: {why}\n{text}")
    print(f"{options.cases} dumps of seed {options.seed}: {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
