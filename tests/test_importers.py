import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.errors import FormatError, SynthError, UsageError
from synth.model.topology import Topology
from synth.topologies.importers import load, sniff
from synth.topologies.match import match
from synth.topologies.topology_files import dump as document
from tests.command_line import synth

FIXTURES = Path(__file__).parent / "fixtures"
SAMPLES = Path(__file__).parents[2] / "shared" / "topo-samples"

# file -> format, ranks, GB/s of pairs joined fast (count of directed links of each), PCIe links, limits
DUMPS = [path for path in sorted(FIXTURES.glob("n*-*")) + sorted(FIXTURES.glob("r*-*")) if path.name != "nccl-bare.xml"]


@pytest.mark.parametrize("path", DUMPS, ids=[path.name for path in DUMPS])
def test_the_content_decides_and_not_the_extension(path, tmp_path):
    other = tmp_path / f"{path.stem}.json"
    other.write_bytes(path.read_bytes())
    assert path.name.startswith(sniff(path.read_text()).replace("nccl-xml", path.name[:2]))
    assert load(other) == load(path)


def test_bandwidths_can_be_given():
    made = load(FIXTURES / "nvidia-smi-bridges.txt", gbps_per_link="12.5", pcie_gbps=24)
    assert {k.bandwidth for k in made.links if k.kind == "nvlink"} == {50}
    assert {m.bandwidth for m in made.limits} == {10}  # slots of 24 do not bind
    assert {k.bandwidth for k in load(FIXTURES / "nccl-ring.xml", gbps_per_link=20).links} == {20, 40}
    for wrong in ("fast", "-3", float("nan")):
        with pytest.raises(UsageError):
            load(FIXTURES / "nccl-ring.xml", gbps_per_link=wrong)


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


def pcis(*ids):
    """PCI devices alone: the bus id and number of each GPU."""
    return "<system>" + "".join(f'<pci busid="{a}"><gpu dev="{b}" sm="70"/></pci>' for a, b in ids) + "</system>"


def nvlinks(*ends):
    return [(target, count, "0x030200") for target, count in ends]


def devices(ids, order=range(8), extra=""):
    """A file of PCI devices alone: one GPU of `ids` (vendor and device) for each bus of `order`."""
    attributes = "" if ids is None else f'vendor="{ids[0]}" device="{ids[1]}" '
    body = "".join(f'<pci busid="0000:{bus:02x}:00.0" class="0x030200" {attributes}/>' for bus in order)
    return f'<system><cpu numaid="0" vendor="GenuineIntel" modelid="85">{body}{extra}</cpu></system>'


V100, H100 = ("0x10de", "0x1db5"), ("0x10de", "0x2330")


def test_gpus_of_a_bare_file_are_ranked_by_bus_id(tmp_path):
    straight = read(tmp_path, devices(V100))
    assert read(tmp_path, devices(V100, [5, 0, 7, 2, 1, 6, 3, 4])).links == straight.links
    assert match(straight).machine == "dgx1-v100"
    assert any("assumed" in note for note in straight.notes)
    assert {(k.src, k.dst): k.bandwidth for k in straight.links}[0, 3] == 50


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


def test_titles_that_are_wrapped(tmp_path):
    title = "== Weight between two GPUs =="
    text = rocm_text(RING).replace("===== Weight between two GPUs =====", title)
    for cut in range(3, len(title)):
        made = read(tmp_path, text.replace(title, f"{title[:cut]}\n{title[cut:]}"))
        assert set(pairs_of(made, "xgmi")) == RING_PAIRS


SWITCH = ("fffffff:ffff:ff", 18, "0x068000")


PIX4 = [["X", "PIX", "PXB", "PXB"], ["PIX", "X", "PXB", "PXB"], ["PXB", "PXB", "X", "PIX"], ["PXB", "PXB", "PIX", "X"]]


CELLS = [["X" if i == j else "NV12" if i // 4 == j // 4 else "SYS" for j in range(8)] for i in range(8)]
TORN = matrix(CELLS).replace("GPU0\tX\tNV12", "GPU0\tX\tPHB").replace("GPU1\tNV12", "GPU1\tPHB")
MESH = [[15 * (u != v) for v in range(8)] for u in range(8)]
DEVICE = '<pci busid="{0}:00.0" class="0x030200"><gpu dev="{0}" sm="80" rank="{0}"/></pci>'
PORT = '<pci busid="{}" class="{}" link_speed="8.0 GT/s PCIe" link_width="16">{}</pci>'
GPUS = [PORT.format(i, "0x030200", f'<gpu dev="{i}" sm="70"/>') for i in range(4)]
HALVES = [PORT.format("ab"[i], "0x060400", GPUS[2 * i] + GPUS[2 * i + 1]) for i in range(2)]
AZURE = "".join(f'<pci busid="{domain:04x}:00:00.0" class="0x030200"/>' for domain in range(1, 9))
NIC = '<pci busid="0101:00:00.0" class="0x020700"/>'
BOTH_WAYS = [[("b", 2, "0x03")], [("a", 2, "0x03")]]


def named(count, name):
    """The lines of `nvidia-smi -L`."""
    return "".join(f"GPU {i}: {name} (UUID: GPU-{i})\n" for i in range(count))


def system(*hosts):
    return f"<system>{''.join(hosts)}</system>"


# Dumps; what they are read as stands in tests/golden/dumps.txt, as `synth topo import` prints it.
CASES = {path.name: path.read_text() for path in DUMPS} | {
    "GPUs 2 and 5": "\tGPU2\tGPU5\nGPU2\tX\tNV2\nGPU5\tNV2\tX\n",
    # one number of links between all: a bridge, boards of four, and parts of machines with switches
    "a bridge": uniform(2, "NV4"),
    "four A100": uniform(4, "NV4"),
    "four H100": uniform(4, "NV6"),
    "four of a DGX A100": uniform(4, "NV12"),
    "eight of a DGX A100": uniform(8, "NV12"),
    "sixteen of a DGX-2": uniform(16, "NV6"),
    "three A800": uniform(3, "NV8"),
    "three with six links": uniform(3, "NV6"),
    "four V100 by name": named(4, "Tesla V100-SXM3-32GB") + uniform(4, "NV6"),
    "three H800 by name": named(3, "NVIDIA H800") + uniform(3, "NV4"),
    "eight B200 by name": named(8, "NVIDIA B200") + uniform(8, "NV18"),
    "an unknown name": named(8, "NVIDIA Q100") + uniform(8, "NV18"),
    "two parts with switches": matrix(CELLS),
    "switches under switches, as text": matrix(PIX4),
    "switches under switches, as XML": system(f'<cpu numaid="0">{PORT.format("r", "0x060400", "".join(HALVES))}</cpu>'),
    # NCCL's XML
    "two hosts": system(*(xml("ab", f"0x{h}", links=[nvlinks(("b", 4)), nvlinks(("a", 4))]) for h in range(2))),
    "odd links": system(xml("ab", links=[nvlinks(("b", 4), ("a", 12), ("x", 2)), []])),
    "switches of another size a GPU": system(
        xml("abc", links=[nvlinks(("fffffff:ffff:ff", count)) for count in (12, 6, 12)])
    ),
    "hosts with the same bus ids on one switch": system(
        *(xml("abcd", f"0x{i}", 'sm="100"', [[SWITCH]] * 4) for i in range(2))
    ),
    "hosts with the same bus ids and a switch each": system(
        *(xml("abcd", f"0x{i}", 'sm="80"', [[SWITCH]] * 4) for i in range(2))
    ),
    "a GPU without its links": system(xml("abc", links=[[SWITCH], [SWITCH], []])),
    "a GPU without its element": system(xml("abc", links=[[SWITCH]] * 3), '<pci busid="d" class="0x030200"/>'),
    "GPUs in no CPU": f'<system version="1">{DEVICE.format(0)}{DEVICE.format(1)}</system>',
    **{
        f"GPUs of {gpu}": system(xml("ab", attributes=gpu, links=BOTH_WAYS))
        for gpu in ('sm="90" gcn="gfx950:sramecc+"', 'sm="90" gcn="gfx1234"', 'sm="60"', 'sm="103"', 'sm="130"')
    },
    # PCI devices alone
    **{
        f"{count} devices {device}": devices(("0x10de", device), range(count))
        for device, count in (("0x1db5", 8), ("0x20b0", 8), ("0x20b2", 4), ("0x2330", 8), ("0x2335", 4), ("0x2901", 8))
    },
    **{
        f"Azure with {cpu}": f"<system><cpu {cpu}>{AZURE}{NIC * nics}</cpu></system>"
        for cpu, nics in (
            ('vendor="GenuineIntel" modelid="85"', 1),
            ('vendor="AuthenticAMD" modelid="49"', 8),
            ('vendor="GenuineIntel" modelid="143"', 8),
        )
    },
    # AMD's tools: pairs several hops apart are no links, and newer drivers print bandwidths
    **{f"a ring by {tool.__name__}": tool(RING) for tool in (rocm_text, rocm_json, amd_text, amd_json)},
    "a mesh": rocm_text(MESH),
    "four links a pair": amd_text(RING, "50000-200000"),
    "a number of links that is not whole": amd_json(RING, "50000-70000"),
    "no bandwidth": amd_text(RING, "0-0"),
    "76.8 GB/s as printed": amd_json(RING, "76800-76800"),
    "gfx908 by name": f"GPU[0]: GFX Version: gfx908\n{rocm_text(RING)}",
    "MI355X by name": f"AMD Instinct MI355X\n{rocm_text(RING)}",
    "gfx1234 by name": f"GPU[0]: GFX Version: gfx1234\n{rocm_text(RING)}",
}


def test_what_dumps_are_read_as(tmp_path, monkeypatch, golden):
    """Links, limits, latencies and notes of every dump, as the command line prints them, and a digest of all fields."""
    monkeypatch.chdir(tmp_path)
    texts = []
    for case, text in CASES.items():
        Path("dump").write_text(text)
        digest = hashlib.sha256(json.dumps(document(load("dump"))).encode()).hexdigest()[:12]
        texts.append(f"# {case}: {digest}\n{synth('topo import dump').stdout}")
    golden("dumps.txt", "\n".join(texts))


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
    (pcis("10"), "at least two"),
    (pcis("10", "11"), "two GPUs"),
    ('<system><cpu><gpu dev="0" sm="70"/><gpu dev="1" sm="70"/></cpu></system>', "busid"),
    (pcis("1x", "21"), "whole number"),
    (pcis("10", "21").replace("/></pci>", '><nvlink target="2" count="-1"/></gpu></pci>', 1), "count"),
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
    (f'<system><cpu vendor="AuthenticAMD" modelid="49">{AZURE}{NIC * 9}</cpu></system>', "8 display-class"),
    # torn tables
    (TORN, "GPU0 and GPU1 have 0 NVLinks"),
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
