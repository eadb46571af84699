import json
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.errors import FormatError, SynthError, UsageError
from synth.model.topology import Topology
from synth.topologies.importers import load, sniff
from synth.topologies.match import match
from synth.topologies.name_grammar import topology as named

FIXTURES = Path(__file__).parent / "fixtures"
SAMPLES = Path(__file__).parents[2] / "shared" / "topo-samples"

# file -> format, ranks, GB/s of pairs joined fast (count of directed links of each), PCIe links, limits
TABLE = [
    ("nvidia-smi-hybrid-cube-mesh.txt", "nvidia-smi", 8, {25: 16, 50: 16}, 0, 0),
    ("nvidia-smi-nvswitch.txt", "nvidia-smi", 8, {300: 56}, 0, 16),
    ("nvidia-smi-pcie.txt", "nvidia-smi", 8, {}, 56, 26),
    ("nvidia-smi-bridges.txt", "nvidia-smi", 4, {100: 4}, 8, 10),
    ("nccl-ring.xml", "nccl-xml", 4, {25: 4, 50: 4}, 0, 0),
    ("nccl-hidden-switch.xml", "nccl-xml", 4, {450: 12}, 0, 8),
    ("nccl-pci-devices.xml", "nccl-xml", 8, {300: 56}, 0, 16),
    ("rccl-pairs.xml", "nccl-xml", 4, {48: 4}, 8, 10),
    ("rocm-smi-pairs.txt", "rocm-smi", 4, {50: 4}, 8, 10),
]


@pytest.mark.parametrize(("file", "form", "ranks", "fast", "pcie", "limits"), TABLE, ids=[row[0] for row in TABLE])
def test_what_dumps_hold(file, form, ranks, fast, pcie, limits):
    path = FIXTURES / file
    assert sniff(path.read_text()) == form
    made = load(path)
    assert made.ranks == ranks
    assert Counter(k.bandwidth for k in made.links if k.kind != "pcie") == fast
    assert sum(k.kind == "pcie" for k in made.links) == pcie
    assert len(made.limits) == limits
    assert {(k.dst, k.src): k.bandwidth for k in made.links} == {(k.src, k.dst): k.bandwidth for k in made.links}
    network = made.network()
    assert all(d is not None for row in network.distances for d in row)
    assert load(path) == made


def test_the_extension_does_not_matter(tmp_path):
    for file, _, ranks, *_ in TABLE:
        other = tmp_path / "dump.json"
        other.write_bytes((FIXTURES / file).read_bytes())
        assert load(other).ranks == ranks


def test_assumptions_are_notes():
    assert any("25 GB/s a link assumed" in n for n in load(FIXTURES / "nvidia-smi-hybrid-cube-mesh.txt").notes)
    words = "add up to 84, more than the 18 that it can have: taken for an NVSwitch, 12 links a GPU"
    assert any(words in n for n in load(FIXTURES / "nvidia-smi-nvswitch.txt").notes)
    assert any("mlx5_2, mlx5_7" in n for n in load(FIXTURES / "nvidia-smi-nvswitch.txt").notes)
    assert any("by PCIe" in n for n in load(FIXTURES / "nvidia-smi-bridges.txt").notes)
    assert any("24 GB/s each way" in n and "908" in n for n in load(FIXTURES / "rccl-pairs.xml").notes)
    assert any("NVLS" in n for n in load(FIXTURES / "nccl-hidden-switch.xml").notes)
    assert any("mlx5_0 100000 Mbit/s" in n for n in load(FIXTURES / "nccl-ring.xml").notes)


def test_bandwidths_can_be_given():
    made = load(FIXTURES / "nvidia-smi-bridges.txt", gbps_per_link="12.5", pcie_gbps=24)
    assert {k.bandwidth for k in made.links if k.kind == "nvlink"} == {50}
    assert {m.bandwidth for m in made.limits} == {10}  # slots of 24 do not bind
    assert {k.bandwidth for k in load(FIXTURES / "nccl-ring.xml", gbps_per_link=20).links} == {20, 40}
    for wrong in ("fast", "-3", float("nan")):
        with pytest.raises(UsageError):
            load(FIXTURES / "nccl-ring.xml", gbps_per_link=wrong)


def test_pcie_is_limited_at_ports_switches_and_sockets():
    made = load(FIXTURES / "nvidia-smi-pcie.txt")
    across = next(m for m in made.limits if m.name == "sockets 0-1 out")
    assert {(made.links[i].src // 4, made.links[i].dst // 4) for i in across.links} == {(0, 1)}
    assert len(across.links) == 16
    shared = set()
    for limit in made.limits:
        if limit.name.startswith("PCIe switch") and limit.name.endswith("out"):
            shared.add(tuple(sorted({made.links[i].src for i in limit.links})))
    assert shared == {(0, 1), (2, 3), (4, 5), (6, 7)}  # what leaves 0 to 3 leaves a socket, too
    assert {k.kind for k in made.links} == {"pcie"}


def test_the_tree_of_xml_gives_the_slowest_port_on_the_way():
    made = load(FIXTURES / "rccl-pairs.xml")
    assert {k.bandwidth for k in made.links if k.kind == "pcie"} == {16}
    assert {m.bandwidth for m in made.limits} == {16, 24}


def matrix(cells, tail=()):
    head = "\t" + "\t".join(f"GPU{i}" for i in range(len(cells)))
    return "\n".join([head, *(f"GPU{i}\t" + "\t".join([*row, *tail]) for i, row in enumerate(cells))])


def uniform(n, link):
    return matrix([["X" if i == j else link for j in range(n)] for i in range(n)])


def read(tmp_path, text, **given):
    path = tmp_path / "dump"
    path.write_text(text)
    return load(path, **given)


def pairs_of(made, kind):
    return {(k.src, k.dst): k.bandwidth for k in made.links if k.kind == kind and k.src < k.dst}


def test_numbers_of_gpus_are_kept(tmp_path):
    assert read(tmp_path, "\tGPU2\tGPU5\nGPU2\tX\tNV2\nGPU5\tNV2\tX\n").labels == (2, 5)


def refusal(path, text):
    """Return the one line that refuses a file with this text, which names the file."""
    path.write_text(text)
    with pytest.raises(FormatError) as caught:
        load(path)
    line = str(caught.value)
    assert str(path) in line and "\n" not in line and len(line) < len(str(path)) + 400
    return line


def xml(gpus, host="0x1", attributes='sm="80"', links=()):
    """One host of an XML: `links[u]` lists (target, count, class) of a GPU."""
    body = ""
    for u, bus in enumerate(gpus):
        inner = "".join(
            f'<{"xgmi" if "gcn" in attributes else "nvlink"} target="{target}" count="{count}" tclass="{kind}"/>\n'
            for target, count, kind in (links[u] if links else ())
        )
        body += f'<pci busid="{bus}" class="0x030200">\n<gpu dev="{u}" {attributes}>\n{inner}</gpu>\n</pci>\n'
    return f'<cpu host_hash="{host}" numaid="0">\n{body}</cpu>\n'


def nvlinks(*ends):
    return [(target, count, "0x030200") for target, count in ends]


def test_hosts_of_one_file_are_boxes(tmp_path):
    hosts = [xml("ab", f"0x{h}", links=[nvlinks(("b", 4)), nvlinks(("a", 4))]) for h in range(2)]
    made = read(tmp_path, f"<system>{''.join(hosts)}</system>")
    assert made.nodes == (0, 0, 1, 1)
    assert made.labels == ()
    assert {(k.src, k.dst) for k in made.links} == {(0, 1), (1, 0), (2, 3), (3, 2)}  # no PCIe from host to host


def test_odd_links_are_noted(tmp_path):
    made = read(tmp_path, f"<system>{xml('ab', links=[nvlinks(('b', 4), ('a', 12), ('x', 2)), []])}</system>")
    assert {(k.src, k.dst): k.bandwidth for k in made.links} == {(0, 1): 100, (1, 0): 100}
    for words in ("from a GPU to itself", "links to x", "at one end only"):
        assert any(words in note for note in made.notes), words


def test_switches_of_another_size_a_gpu(tmp_path):
    switch = "fffffff:ffff:ff"
    made = read(tmp_path, f"<system>{xml('abc', links=[nvlinks((switch, count)) for count in (12, 6, 12)])}</system>")
    assert pairs_of(made, "nvlink") == {(0, 1): 150, (0, 2): 300, (1, 2): 150}
    assert {m.name: m.bandwidth for m in made.limits}["switch port 1 in"] == 150


def devices(ids, order=range(8), extra=""):
    """A file of PCI devices alone: one GPU of `ids` (vendor and device) for each bus of `order`."""
    attributes = "" if ids is None else f'vendor="{ids[0]}" device="{ids[1]}" '
    body = "".join(f'<pci busid="0000:{bus:02x}:00.0" class="0x030200" {attributes}/>' for bus in order)
    return f'<system><cpu numaid="0" vendor="GenuineIntel" modelid="85">{body}{extra}</cpu></system>'


V100, H100 = ("0x10de", "0x1db5"), ("0x10de", "0x2330")
DEVICES = [
    (V100, 8, {25: 16, 50: 16}, 0, Fraction(7, 10)),
    (("0x10de", "0x20b0"), 8, {300: 56}, 16, Fraction(3, 5)),
    (("0x10de", "0x20b2"), 4, {100: 12}, 0, Fraction(3, 5)),
    (H100, 8, {450: 56}, 16, Fraction(3, 5)),
    (("0x10de", "0x2335"), 4, {150: 12}, 0, Fraction(3, 5)),
    (("0x10de", "0x2901"), 8, {900: 56}, 16, Fraction(3, 5)),
]


@pytest.mark.parametrize(("ids", "count", "fast", "limits", "latency"), DEVICES)
def test_links_of_the_board_where_a_file_lists_pci_devices_alone(tmp_path, ids, count, fast, limits, latency):
    made = read(tmp_path, devices(ids, range(count)))
    assert Counter(k.bandwidth for k in made.links) == fast
    assert {k.latency for k in made.links} == {latency}
    assert len(made.limits) == limits
    assert bool(made.multicast) == (450 in fast or 900 in fast)
    assert any(f"{ids[0][2:]}:{ids[1][2:]}" in note for note in made.notes)
    assert any("nvidia-smi topo -m" in note for note in made.notes)


def test_gpus_of_a_bare_file_are_ranked_by_bus_id(tmp_path):
    straight = read(tmp_path, devices(V100))
    assert read(tmp_path, devices(V100, [5, 0, 7, 2, 1, 6, 3, 4])).links == straight.links
    assert match(straight).machine == "dgx1-v100"
    assert any("assumed" in note for note in straight.notes)
    assert {(k.src, k.dst): k.bandwidth for k in straight.links}[0, 3] == 50


def test_machines_of_azure_are_known_by_their_shape(tmp_path):
    gpus = "".join(f'<pci busid="{domain:04x}:00:00.0" class="0x030200"/>' for domain in range(1, 9))
    nic = '<pci busid="0101:00:00.0" class="0x020700"/>'
    for cpu, nics, fast in (
        ('vendor="GenuineIntel" modelid="85"', 1, {25, 50}),
        ('vendor="AuthenticAMD" modelid="49"', 8, {300}),
        ('vendor="GenuineIntel" modelid="143"', 8, {450}),
    ):
        made = read(tmp_path, f"<system><cpu {cpu}>{gpus}{nic * nics}</cpu></system>")
        assert {k.bandwidth for k in made.links} == fast
        assert any("Azure" in note for note in made.notes)
        with pytest.raises(FormatError, match="8 display-class"):
            read(tmp_path, f"<system><cpu {cpu}>{gpus}{nic * (nics + 1)}</cpu></system>")


def test_a_dump_has_the_latency_of_the_machine_that_it_is():
    made = load(FIXTURES / "nvidia-smi-hybrid-cube-mesh.txt")
    assert {k.latency for k in made.links} == {k.latency for k in named(match(made).machine).links}


def test_huge_files_are_not_read(tmp_path):
    path = tmp_path / "huge.txt"
    with path.open("wb") as out:
        out.truncate(100 << 20)
    with pytest.raises(FormatError, match="at most"):
        load(path)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_torn_files_are_read_or_refused(tmp_path_factory, data):
    source = data.draw(st.sampled_from(sorted(p.name for p in FIXTURES.iterdir())))
    raw = (FIXTURES / source).read_bytes()
    cut = data.draw(st.integers(0, len(raw)))
    drop = data.draw(st.integers(0, 40))
    noise = data.draw(st.sampled_from([b"", b"\x00", b"-", b"9" * 30, b'"', b"<", b"NV", b"{", b"\xff"]))
    raw = raw[:cut] + noise + raw[cut + drop :] if data.draw(st.booleans()) else raw[:cut]
    path = tmp_path_factory.getbasetemp() / "torn"
    path.write_bytes(raw)
    try:
        made = load(path)
    except SynthError as error:
        assert "\n" not in str(error)
    else:
        assert isinstance(made, Topology)
        made.network()


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the samples of real machines are not beside the checkout")
def test_every_sample_is_read_or_refused_in_one_line():
    lacking = {"h200-baremetal-fragment.xml"}
    others = {"taccl", "teccl", "astra-sim"}
    files = [p for p in SAMPLES.rglob("*") if p.is_file() and p.suffix != ".md" and p.parent.name not in others]
    assert files
    for path in files:
        if path.name in lacking:
            with pytest.raises(FormatError) as caught:
                load(path)
            assert "\n" not in str(caught.value)
            continue
        made = load(path)
        assert all(d is not None for row in made.network().distances for d in row), path


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the samples of real machines are not beside the checkout")
@pytest.mark.parametrize(
    ("file", "machine"),
    [
        ("nvidia-smi/dgx1-v100.txt", "dgx1-v100"),
        ("nvidia-smi/h200x8.txt", "dgx-h100"),
        ("rocm-smi/mi300x8.txt", "mi300x"),
        ("nccl-xml/rccl-16p1h.xml", "mi250"),
        ("nccl-xml/rccl-8p_940.xml", "mi300x"),
        ("nccl-xml/rccl-4p3l_2h.xml", "mi100-4p3l"),
        ("nccl-xml/aws-p4d.xml", "dgx-a100"),
        ("nccl-xml/azure-ndv2.xml", "dgx1-v100"),
    ],
)
def test_samples_are_the_machines_they_are(file, machine):
    found = match(load(SAMPLES / file))
    assert found is not None
    assert found.machine == machine


RING = [[0, 15, 30, 15], [15, 0, 15, 30], [30, 15, 0, 15], [15, 30, 15, 0]]
RING_PAIRS = {(0, 1), (1, 2), (2, 3), (0, 3)}


def rocm_text(weights):
    """rocm-smi --showtopo of GPUs that xGMI joins, hops 1 everywhere."""
    names = [f"GPU{i}" for i in range(len(weights))]
    out = ["===== ROCm System Management Interface ====="]
    tables = {
        "Weight": lambda u, v: weights[u][v],
        "Hops": lambda u, v: int(u != v),
        "Link Type": lambda u, v: "XGMI" if u != v else 0,
    }
    for title, cell in tables.items():
        out += [f"===== {title} between two GPUs =====", "       " + "".join(f"{name:13}" for name in names)]
        for u, name in enumerate(names):
            out.append(f"{name:7}" + "".join(f"{cell(u, v):<13}" for v in range(len(names))))
        out.append("")
    return "\n".join(out)


def rocm_json(weights):
    system = {}
    for u, row in enumerate(weights):
        for v in range(u + 1, len(weights)):
            system[f"(Topology) Weight between DRM devices {u} and {v}"] = str(row[v])
            system[f"(Topology) Hops between DRM devices {u} and {v}"] = "1"
            system[f"(Topology) Link type between DRM devices {u} and {v}"] = "XGMI"
    return json.dumps({"system": system, **{f"card{u}": {"(Topology) Numa Node": "0"} for u in range(len(weights))}})


def amd_text(weights, mbps="50000-50000"):
    buses = [f"0000:{16 * i:02x}:00.0" for i in range(len(weights))]
    out = []
    tables = {
        "ACCESS": lambda u, v: "ENABLED",
        "WEIGHT": lambda u, v: weights[u][v],
        "HOPS": lambda u, v: int(u != v),
        "LINK TYPE": lambda u, v: "XGMI" if u != v else "SELF",
        "NUMA BW": lambda u, v: "N/A" if u == v else mbps if weights[u][v] == 15 else "0-0",
    }
    for title, cell in tables.items():
        out += [f"{title} TABLE:", " " * 13 + "".join(f"{bus:13}" for bus in buses)]
        for u, bus in enumerate(buses):
            out.append(f"{bus:13}" + "".join(f"{cell(u, v):<13}" for v in range(len(buses))))
        out.append("")
    return "\n".join([*out, "Legend:", "  SELF = Current GPU", "  <BW from>-<BW to>"])


def amd_json(weights, mbps="50000-50000"):
    rows = []
    for u, row in enumerate(weights):
        links = []
        for v, weight in enumerate(row):
            kind = "XGMI" if u != v else "SELF"
            width = mbps if weight == 15 else "N/A"
            links.append({"gpu": v, "weight": weight, "link_type": kind, "num_hops": int(u != v), "bandwidth": width})
        rows.append({"gpu": u, "bdf": f"0000:{u:02x}:00.0", "links": links})
    return json.dumps(rows, indent=4)


@pytest.mark.parametrize("tool", [rocm_text, rocm_json, amd_text, amd_json])
def test_amd_pairs_several_hops_apart_are_no_links(tmp_path, tool):
    made = read(tmp_path, tool(RING))
    assert set(pairs_of(made, "xgmi")) == RING_PAIRS
    assert set(pairs_of(made, "xgmi").values()) == {50}
    assert any("0-2, 1-3 over other GPUs" in note for note in made.notes)
    mesh = [[15 * (u != v) for v in range(8)] for u in range(8)]
    assert set(pairs_of(read(tmp_path, tool(mesh)), "xgmi").values()) == {64}


def test_amd_smi_tells_the_links_of_a_pair_and_newer_drivers_their_bandwidth(tmp_path):
    for tool in (amd_text, amd_json):
        assert set(pairs_of(read(tmp_path, tool(RING, "50000-200000")), "xgmi").values()) == {200}
        made = read(tmp_path, tool(RING, "50000-70000"))
        assert set(pairs_of(made, "xgmi").values()) == {50}
        assert any("0-1, 0-3, 1-2, 2-3 do not tell how many links" in note for note in made.notes)
        assert set(pairs_of(read(tmp_path, tool(RING, "0-0")), "xgmi")) == RING_PAIRS
        made = read(tmp_path, tool(RING, "76800-76800"))
        assert set(pairs_of(made, "xgmi").values()) == {Fraction("76.8")}
        assert any("as printed in MB/s" in note for note in made.notes)


def test_titles_that_are_wrapped(tmp_path):
    title = "== Weight between two GPUs =="
    text = rocm_text(RING).replace("===== Weight between two GPUs =====", title)
    for cut in range(3, len(title)):
        made = read(tmp_path, text.replace(title, f"{title[:cut]}\n{title[cut:]}"))
        assert set(pairs_of(made, "xgmi")) == RING_PAIRS


def test_amd_gpus_that_the_text_names(tmp_path):
    for line, gbps in (("GPU[0]: GFX Version: gfx908", 24), ("AMD Instinct MI355X", Fraction("76.8"))):
        assert set(pairs_of(read(tmp_path, f"{line}\n{rocm_text(RING)}"), "xgmi").values()) == {gbps}
    unknown = read(tmp_path, f"GPU[0]: GFX Version: gfx1234\n{rocm_text(RING)}").notes
    assert any("gfx1234, which is not known: 50 GB/s" in note and "--gbps-per-link" in note for note in unknown)


def test_gpus_that_are_not_known_are_named(tmp_path):
    ends = [[("b", 2, "0x03")], [("a", 2, "0x03")]]
    for attributes, gbps, words in (
        ('sm="90" gcn="gfx950:sramecc+"', Fraction("76.8"), "gfx950"),
        ('sm="90" gcn="gfx1234"', 24, "gcn gfx1234 are not known: 24 GB/s"),
        ('sm="60"', 20, "sm 60"),
        ('sm="103"', 50, "sm 103"),
        ('sm="130"', 50, "sm 130 are not known: 50 GB/s"),
    ):
        made = read(tmp_path, f"<system>{xml('ab', attributes=attributes, links=ends)}</system>")
        assert {k.bandwidth for k in made.links} == {2 * gbps}
        assert any(words in note and ("--gbps-per-link" in note) == ("not known" in words) for note in made.notes)


SWITCH = ("fffffff:ffff:ff", 18, "0x068000")


@pytest.mark.parametrize(("sm", "limits", "switches"), [("100", {900}, 1), ("80", {450}, 2)])
def test_bus_ids_are_unique_within_a_host_only(tmp_path, sm, limits, switches):
    hosts = [xml("abcd", f"0x{i}", f'sm="{sm}"', [[SWITCH]] * 4) for i in range(2)]
    made = read(tmp_path, f"<system>{''.join(hosts)}</system>")
    assert made.nodes == (0, 0, 0, 0, 1, 1, 1, 1)
    assert len(made.links) == {1: 56, 2: 24}[switches]
    assert len(made.multicast) == switches
    assert {m.bandwidth for m in made.limits} == limits
    assert any("2 hosts in one file" in note for note in made.notes) == (switches == 1)


def test_gpus_without_their_links_are_named(tmp_path):
    made = read(tmp_path, f"<system>{xml('abc', links=[[SWITCH], [SWITCH], []])}</system>")
    assert any("rank 2: fewer links into switches" in note for note in made.notes)
    bare = '<pci busid="d" class="0x030200"/>'
    made = read(tmp_path, f"<system>{xml('abc', links=[[SWITCH]] * 3)}{bare}</system>")
    assert any("the GPU d has no <gpu>" in note for note in made.notes)


@pytest.mark.parametrize(
    ("n", "link", "names", "gbps", "limits"),
    [
        (2, "NV4", "", 100, 0),  # a bridge
        (4, "NV4", "", 100, 0),  # four A100 joined directly: 12 links each
        (4, "NV6", "", 150, 0),  # four H100 joined directly: 18 links each
        (4, "NV12", "", 300, 8),  # four of the GPUs of an NVSwitch machine
        (8, "NV12", "", 300, 16),
        (16, "NV6", "", 150, 32),
        (3, "NV8", "", 200, 6),  # A800, H800: three GPUs of a machine with switches
        (3, "NV6", "", 150, 0),
        (4, "NV6", "Tesla V100-SXM3-32GB", 150, 8),
        (3, "NV4", "NVIDIA H800", 100, 6),
        (8, "NV18", "NVIDIA B200", 900, 16),
        (8, "NV18", "NVIDIA Q100", 450, 16),
    ],
)
def test_switch_or_mesh_by_the_links_of_the_gpu_that_the_text_names(tmp_path, n, link, names, gbps, limits):
    lines = "".join(f"GPU {i}: {names} (UUID: GPU-{i})\n" for i in range(n if names else 0))
    made = read(tmp_path, f"{lines}{uniform(n, link)}\n")
    assert {k.bandwidth for k in made.links} == {gbps}
    assert [limit.bandwidth for limit in made.limits] == [gbps] * limits
    assert any(names in note for note in made.notes)
    if names == "NVIDIA Q100":
        assert any("Q100, whose NVLink is not known: 25 GB/s" in note for note in made.notes)


def test_parts_of_a_machine_with_switches_of_their_own(tmp_path):
    cells = [["X" if i == j else "NV12" if i // 4 == j // 4 else "SYS" for j in range(8)] for i in range(8)]
    made = read(tmp_path, matrix(cells))
    assert {(u // 4, v // 4) for u, v in pairs_of(made, "nvlink")} == {(0, 0), (1, 1)}
    cells[0][1] = cells[1][0] = "PHB"
    assert "GPU0 and GPU1 have 0 NVLinks" in refusal(tmp_path / "torn.txt", matrix(cells))


PIX4 = [["X", "PIX", "PXB", "PXB"], ["PIX", "X", "PXB", "PXB"], ["PXB", "PXB", "X", "PIX"], ["PXB", "PXB", "PIX", "X"]]


def test_ports_of_switches_under_switches_are_shared_in_text_as_in_xml(tmp_path):
    port = '<pci busid="{}" class="0x060400" link_speed="8.0 GT/s PCIe" link_width="16">{}</pci>'
    device = port.replace("0x060400", "0x030200")
    gpus = [device.format(i, f'<gpu dev="{i}" sm="70"/>') for i in range(4)]
    tree = port.format("r", port.format("a", gpus[0] + gpus[1]) + port.format("b", gpus[2] + gpus[3]))
    limits = []
    for text in (matrix(PIX4), f'<system><cpu numaid="0">{tree}</cpu></system>'):
        made = read(tmp_path, text)
        limits.append({(m.links, m.bandwidth) for m in made.limits})
        assert any("PCIe 3.0 x16 assumed" in note and "--pcie-gbps 24" in note for note in made.notes) == ("X" in text)
    assert limits[0] == limits[1]
    assert not any("assumed" in note for note in read(tmp_path, matrix(PIX4), pcie_gbps=24).notes)


P2P = "\n\n$ nvidia-smi topo -p2p r\n \tGPU0\tGPU1\tGPU2\tGPU3\n" + "".join(
    f"GPU{i}\t" + "\t".join(" X " if i == j else "OK" for j in range(4)) + "\n" for i in range(4)
)
LAID = "\n".join(line.expandtabs(8) for line in matrix(PIX4, ["0-15", "0"]).split("\n"))
LAID = LAID.replace("GPU3\n", "GPU3    CPU Affinity    NUMA Affinity\n", 1)
PASTED = {
    "quote": "\n".join(f"> {line}" for line in LAID.split("\n")),
    "tag of mpirun": "\n".join(f"[1,0]<stdout>:{line}" for line in LAID.split("\n")),
    "two ranks": "\n".join(f"[1,{i}]<stdout>:{line}" for line in LAID.split("\n") for i in range(2)),
    "times": "\n".join(f"2026-11-27T10:00:{i:02} {line}" for i, line in enumerate(LAID.split("\n"))),
    "no-break spaces": LAID.replace("  ", "\xa0 "),
    "code block": f"Here it is:\n```\n{LAID}\n```\n",
    "entities": LAID.replace(" ", "&nbsp;"),
    "escape codes": LAID.replace("GPU0", "\x1b[4mGPU0").replace("GPU3", "GPU3\x1b[0m\x1b]0;a title\x07"),
    "second table": LAID + P2P,
    "the same twice": f"{LAID}\n\n{LAID}\n",
    "wrapped": "\n".join(line[i : i + 26] for line in LAID.split("\n") for i in range(0, len(line), 26)),
    "wrapped, ends stripped": "\n".join(
        line[i : i + 24].rstrip() for line in LAID.split("\n") for i in range(0, len(line), 24)
    ),
    "header ran together": LAID.replace("GPU3    CPU", "GPU3CPU"),
    "cells ran together": LAID.replace("PXB     PXB", "PXBPXB"),
}


@pytest.mark.parametrize("how", PASTED)
def test_tables_are_found_in_what_people_paste(tmp_path, how):
    plain = read(tmp_path, LAID)
    made = read(tmp_path, PASTED[how])
    assert (made.links, made.limits) == (plain.links, plain.limits)
    left = [note for note in made.notes if "is left out" in note]
    assert len(left) == (how in ("second table", "the same twice", "two ranks"))


XML = (FIXTURES / "nccl-ring.xml").read_text()
GFX906 = 'gcn="906"'
THREE_LINKS = [[(other, 1, "0x03") for other in "abcd" if other != one] for one in "abcd"]
REFUSED = [
    ("", "is empty"),
    ("hello", "neither a dump"),
    ("links: hello", "missing"),
    ("\tGPU0\tGPU1\nGPU0\tX\tNV1\n", "no row for GPU1"),
    ("\tGPU0\tGPU1\nGPU0\tX\nGPU1\tNV1\tX\n", "1 of 2 columns"),
    ("\tGPU0\tGPU1\nGPU0\tX\tNV1\nGPU1\tNV2\tX\n", "back it is"),
    ("\tGPU0\tGPU1\nGPU0\tX\tNVX\nGPU1\tNV2\tX\n", "'NVX'"),
    ("\tGPU0\tGPU1\nGPU0\tNV1\tX\nGPU1\tX\tNV1\n", "GPU0 to GPU0"),
    ("\tGPU0\tGPU0\nGPU0\tX\tNV1\n", "twice"),
    ("\tGPU0\nGPU0\tX\n", "one GPU"),
    ("<system><cpu></system>", "not well-formed"),
    ("<system><cpu>", "not well-formed"),
    ('<!DOCTYPE x [<!ENTITY a "b">]><system><cpu>&a;</cpu></system>', "document type"),
    ("<topology><cpu/></topology>", "<topology>"),
    ("<system>" + "<pci>" * 100 + "</pci>" * 100 + "</system>", "deeper"),
    ("<system>" + "<pci/>" * 20_000 + "</system>", "elements"),
    ('<system><pci busid="1"><gpu dev="0" sm="70"/></pci></system>', "at least two"),
    (
        '<system><pci busid="1"><gpu dev="0" sm="70"/></pci><pci busid="1"><gpu dev="1" sm="70"/></pci></system>',
        "two GPUs",
    ),
    ('<system><cpu><gpu dev="0" sm="70"/><gpu dev="1" sm="70"/></cpu></system>', "busid"),
    (
        '<system><pci busid="1"><gpu dev="x" sm="70"/></pci><pci busid="2"><gpu dev="1" sm="70"/></pci></system>',
        "whole number",
    ),
    (
        '<system><pci busid="1"><gpu dev="0" sm="70"><nvlink target="2" count="-1"/></gpu></pci>'
        '<pci busid="2"><gpu dev="1" sm="70"/></pci></system>',
        "count",
    ),
    ("=== ROCm System Management Interface ===\n", "lacks the tables"),
    ("Weight between two GPUs\n     GPU0 GPU1\nGPU0 0 15\n", "cut off"),
    ("Weight between two GPUs\n     GPU0 GPU1\nGPU0 0 15\nGPU1 40 0\n", "back it is"),
    # PCI devices of unknown boards
    (devices(None), "8 display-class <pci> devices but no <gpu>"),
    (devices(("0x10de", "0x20f1")), "8 display-class"),  # A100 PCIe: a card
    (devices(("0x1002", "0x1db5")), "8 display-class"),  # another vendor's number
    (devices(H100, range(7)), "7 display-class"),
    (devices(V100, range(4)), "4 display-class"),
    (devices(V100, range(7), devices(H100, [7])[8:].split("</cpu>")[0].split(">", 1)[1]), "8 display-class"),
    (devices(H100, [0, 1, 2, 3, 4, 5, 6, 6]), "two GPUs have the bus id 0000:06:00.0"),
    (devices(H100).replace("0000:03:00.0", "here"), 'busid="here"'),
    # torn tables
    (LAID.replace("GPU3    CPU", "CPU"), "has rows for GPU3 and no columns"),
    ("\n".join(line[:30] for line in LAID.split("\n")), "has rows for GPU3"),
    (LAID.rsplit("\n", 1)[0], "no row for GPU3"),
    (f"{LAID}\n\n{LAID.replace('PXB', 'SYS')}", "two tables that differ"),
    (LAID.replace("GPU1    GPU2", "GPU1 GPU1 GPU2", 1), "twice"),
    (LAID.replace("PIX", "PI"), "'PI' is not one of"),
    (P2P, "no table of links"),
    ("GPU0GPU1x GPU2\nGPU0 X NV1\n", "GPU"),
    (LAID.replace("GPU", "0000:00:00."), "PCI addresses"),
    (f"{LAID}\n" * 80, "more than 64 tables"),
    (LAID.replace("PIX", "TNS" * 5000 + "!"), "is not one of"),  # in linear time
    (rocm_text(RING).replace("30", "9" * 5000), "is not one of"),
    (rocm_text(RING).replace("GPU2         GPU3", "GPU2"), "has rows for GPU3"),
    (rocm_text(RING).replace("15           30", "1530", 1), "columns"),
    (rocm_text(RING) + "\nGPU[0] : (Topology) Numa Node: 0\n", "lacks the NUMA node of GPU 1"),
    (amd_json(RING).replace('"gpu": 3', '"gpu": 7', 1), "not in the list"),
    (rocm_json(RING).replace("Weight between DRM devices 0 and 3", "W", 1), "weight of GPU0 to GPU3 is missing"),
    ("Hi, this is\nno: dump of mine\n", "begins with 'Hi, this is'"),
    ('{"msccl_type": "algorithm"}', "msccl-tools"),
    (rocm_text(RING).replace("XGMI", "a" * 5000, 1), "is not one of"),
    # the line of GPUs above the weights was cut off, and each pair was taken for a link
    (
        rocm_text(RING).replace(" " * 7 + "GPU0         GPU1         GPU2         GPU3         \n", "", 1),
        "no line that names its GPUs",
    ),
    *((matrix(PIX4, ["0-15", "0"]).rpartition("\t0-15")[0] + rest, "it is cut off") for rest in ("\t0-15", "\t0-", "")),
    ((FIXTURES / "nccl-bare.xml").read_text(), "no <gpu>"),
    (XML + XML, "two <system>"),
    (XML.replace('busid="0000', 'busid="0\n000', 1), "end of a line"),
    (f"<system>{xml('aab')}</system>", "bus id a"),
    (f"<system>{xml('abcd', attributes=GFX906, links=THREE_LINKS)}</system>", "3 xGMI links here and at most 2"),
]


@pytest.mark.parametrize(("text", "what"), REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_refused_in_one_line(tmp_path, text, what):
    line = refusal(tmp_path / "dump.txt", text)
    assert what in line and "YAML" not in line


@pytest.mark.parametrize(
    "text",
    [
        f"```xml\n{XML}\n```",
        f"host1:1:1 [0] NCCL INFO NCCL_TOPO_DUMP_FILE set\n{XML}host1:1:1 [0] done\n",
        "\n".join(f"> {line}" for line in XML.split("\n")),
        "\n".join(f"[1,0]<stdout>:{line}" for line in XML.split("\n")),
        XML.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;"),
    ],
)
def test_xml_is_found_in_what_people_paste(tmp_path, text):
    plain, made = read(tmp_path, XML), read(tmp_path, text)
    assert (made.links, made.limits, made.notes) == (plain.links, plain.limits, plain.notes)


def test_bandwidths_that_would_change_nothing_are_refused(tmp_path):
    file = tmp_path / "m.yaml"
    file.write_text("ranks: 2\nlinks:\n- {src: 0, dst: 1, bandwidth: 50, both: true}\n")
    with pytest.raises(UsageError, match="states its bandwidths"):
        load(file, gbps_per_link="3")
    dump = tmp_path / "topo.txt"
    dump.write_text(rocm_text(RING))
    with pytest.raises(UsageError, match="above 0"):
        load(dump, gbps_per_link="0")


def test_gpus_in_the_device_of_something_else_are_refused(tmp_path):
    """Lines were cut, and what is left is well-formed XML of another tree."""
    device = '<pci busid="{0:02x}:00.0" class="{1}" link_speed="16.0 GT/s PCIe" link_width="16">{2}</pci>'
    gpus = [f'<gpu dev="{k}" sm="80" rank="{k}"/>' for k in range(2)]
    own = [device.format(16 + k, "0x030200", gpu) for k, gpu in enumerate(gpus)]
    system = '<system version="1"><cpu numaid="0" arch="x86_64" vendor="GenuineIntel">{0}</cpu></system>'
    assert read(tmp_path, system.format(device.format(1, "0x060400", "".join(own)))).ranks == 2
    with pytest.raises(FormatError, match="stands in a bridge"):
        read(tmp_path, system.format(device.format(1, "0x060400", own[0] + gpus[1])))
    with pytest.raises(FormatError, match="in the <pci> of another GPU"):
        read(tmp_path, system.format(device.format(16, "0x030200", gpus[0] + own[1])))


def test_gpus_in_no_cpu_are_a_note(tmp_path):
    device = '<pci busid="{0}:00.0" class="0x030200"><gpu dev="{0}" sm="80" rank="{0}"/></pci>'
    made = read(tmp_path, f'<system version="1">{device.format(0)}{device.format(1)}</system>')
    assert any("2 GPUs stand in no <cpu>" in note for note in made.notes)
