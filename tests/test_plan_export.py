"""`synth export --plan`: who gets which sizes, the files that say so, what is said of the rest, and what the selector
beside MSCCL++ plans takes for which request."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from functools import cache
from itertools import pairwise
from types import SimpleNamespace

import pytest
import strict_msccl
import strict_mscclpp
from hypothesis import given, settings
from hypothesis import strategies as st
from test_export import ring_schedule, slow_schedule
from test_forged_at_scale import changed

from synth.commands import api
from synth.errors import SynthError, UsageError
from synth.export.plans.size_ranges import Offer, drop_to_fit, shares, unserved, within
from synth.model.schedule import Send, Step
from synth.model.tuning_plan import Algorithm, Plan, Range, Table
from tests.command_line import synth

SMALL, LARGE = 4096, 1 << 20
RING_LL128 = (("algorithm", "Ring"), ("protocol", "LL128"), ("channels", "8"))


@cache
def plan() -> Plan:
    """allgather on a ring of 4: mpi first up to 4 KiB, one chunk in LL up to 1 MiB, two chunks up to 64 MiB, NCCL's
    ring above."""
    algorithms = (
        Algorithm("S2 C1 LL", "synth", slow_schedule(), "LL", 1, 4),
        Algorithm("S3 C2", "synth", ring_schedule(4), "Simple", 1, 8),
        Algorithm("NCCL's ring", "nccl", options=RING_LL128),
        Algorithm("MPI", "mpi"),
    )
    ranges = (
        Range(0, SMALL, (3, 0, 2)), Range(SMALL + 1, LARGE, (0, 1)), Range(LARGE + 1, 64 << 20, (1, 2)),
        Range((64 << 20) + 1, None, (2, 1)),
    )  # fmt: skip
    table = Table("allgather", 4, ranges, (1024, SMALL, 8192, LARGE, 4 << 20, 128 << 20), element=4)
    return Plan(algorithms, (table,), "model", "no machine was asked", slow_schedule().network)


def change(number: int, **changes: object) -> Plan:
    """The plan with one algorithm changed."""
    old = plan()
    return replace(
        old, algorithms=tuple(replace(a, **changes) if i == number else a for i, a in enumerate(old.algorithms))
    )


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan().to_json()))
    return path


def ends(text: str, runtime: str = "msccl-executor") -> tuple[int, int]:
    """The sizes that a file offers itself for, read by the strict reader first."""
    strict_msccl.load(text, runtime)
    low, high = (int(re.search(rf'{key}="(\d+)"', text)[1]) for key in ("minBytes", "maxBytes"))
    return low, high - 1 if runtime == "msccl" else high


def runs(path, size, **options):
    checked = api.run(path, size=size, bound=False, **options).checked
    assert checked is not None and checked.elements


# ---------------------------------------------------------------- who gets what

OFFER = st.builds(Offer, st.integers(0, 40), st.one_of(st.none(), st.integers(20, 90)), st.sampled_from([1, 2, 3, 5]))
OFFERS = st.fixed_dictionaries({}, optional=dict.fromkeys(range(4), OFFER))


@st.composite
def tables(draw):
    ends = sorted(draw(st.sets(st.integers(0, 100), min_size=1, max_size=4)))
    lows, highs = [0, *(e + 1 for e in ends)], [*ends, None]
    order = st.permutations(range(4)).flatmap(lambda p: st.integers(1, 4).map(lambda n: tuple(p[:n])))
    ranges = tuple(Range(low, high, draw(order)) for low, high in zip(lows, highs, strict=True))
    return Table("allgather", 4, ranges, tuple(sorted(draw(st.sets(st.integers(0, 110), max_size=8)))))


@settings(max_examples=300, deadline=None)
@given(tables(), OFFERS)
def test_shares_leave_no_gap_and_judged_sizes_get_the_first_that_serves_them(table, offers):
    found = shares(table, offers, {})
    assert found.shares[0].low == 0 and found.shares[-1].high is None
    for a, b in pairwise(found.shares):
        assert a.high is not None and b.low == a.high + 1 and a.choice != b.choice
    for size in range(115):
        got = next(s.choice for s in found.shares if s.low <= size and (s.high is None or size <= s.high))
        assert got is None or (within(size, offers[got]) and got in table.at(size).order)
        order = [i for i in table.at(size).order if i in offers]
        if size in table.sizes and any(offers[i].admits(size) for i in order):
            assert got == next(i for i in order if offers[i].admits(size))
        elif not table.sizes:
            assert got == next((i for i in order if within(size, offers[i])), None)


@settings(max_examples=100, deadline=None)
@given(st.lists(tables(), min_size=1, max_size=3), OFFERS, st.integers(1, 6))
def test_no_more_files_than_the_runtime_loads(many, offers, most):
    cut = drop_to_fit(
        [shares(table, offers, {}) for table in many], lambda s: 0 if s.choice is None else 2, most, "too many"
    )
    assert sum(2 for found in cut for s in found.shares if s.choice is not None) <= most
    for found, table in zip(cut, many, strict=True):
        assert found.table is table and all(why == "too many" for why in found.refused.values())


def test_what_goes_where_files_are_too_many_is_what_loses_least():
    """Without one algorithm three sizes take a tenth longer, without the other one size takes twice as long; by length
    it would go."""
    times = ((1.0, 1.1), (1.0, 1.1), (1.0, 1.1), (1.0, 2.0))
    ranges = (Range(0, LARGE, (0, 2)), Range(LARGE + 1, None, (1, 2)))
    table = Table("allgather", 4, ranges, (10, 100, 1000, 2 * LARGE), best=(1.0,) * 4, times=times)
    offers = {0: Offer(0, None, 1), 1: Offer(0, None, 1), 2: Offer(0, None, 1)}
    (cut,) = drop_to_fit([shares(table, offers, {})], lambda s: s.choice in (0, 1), 1, "too many")
    assert [s.choice for s in cut.shares] == [2, 1] and cut.refused == {0: "too many"}


def test_a_size_that_no_chunks_divide_is_said():
    table = Table("allgather", 4, (Range(0, None, (0, 1)),), (64, 96, 128))
    found = shares(table, {1: Offer(0, 100, 96)}, {0: "it is none"})
    assert found.shares == ((0, 100, 1), (101, None, None))
    assert unserved(replace(plan(), tables=(table,)), found, "another runs") == [
        "allgather on 4 ranks: S2 C1 LL: it is none",
        "allgather on 4 ranks: 64, 128 bytes are not served (multiples of 96 bytes are): another runs",
    ]
    assert shares(table, {1: Offer(0, None, 100)}, {}).shares == ((0, None, None),)  # divides none that was judged


# ---------------------------------------------------------------- MSCCL-IR


@pytest.mark.parametrize("runtime", ["msccl-executor", "rccl", "msccl"])
def test_a_folder_of_msccl_ir_serves_the_ranges_of_the_plan(file, tmp_path, runtime):
    folder = tmp_path / "algorithms"
    said = synth("export", "--plan", file, "--to", "msccl-dir", "--runtime", runtime, "-o", folder)
    found = {}
    for path in sorted(folder.iterdir()):
        low, high = ends(path.read_text(), runtime)
        found.setdefault((low, high), []).append(path)
        runs(path, (low // 64 + 1) * 64, in_place="in-place" in path.name, runtime=runtime)
    assert list(found) == [(0, LARGE), (LARGE + 1, 64 << 20)]
    assert [len(paths) for paths in found.values()] == [2, 2] if runtime == "msccl" else [1, 1]
    assert "allgather on 4 ranks: MPI: it is mpi's, which no file for this runtime can name" in said.stderr
    assert "sizes at which NCCL's own algorithms are faster have no file" in said.stderr
    env = (tmp_path / "algorithms.env").read_text()
    assert (f"MSCCL_XML_FILES={folder}/01-" in env) if runtime == "msccl" else f"MSCCL_ALGO_DIR={folder}\n" in env
    page = (tmp_path / "algorithms.md").read_text()
    assert "| S3 C2 | 1048577 to 67108864 bytes |" in page and "falls back" in page and "MPI: it is mpi's" in page


def test_msccl_gets_four_files_for_all_collectives_together():
    back = replace(slow_schedule(), steps=()).network
    scatter = Algorithm("RS", "synth", slow_schedule().reversed(), "Simple", 1, 4)
    extra = Table("reduce-scatter", 4, (Range(0, None, (4,)),))
    both = replace(plan(), algorithms=(*plan().algorithms, scatter), tables=(*plan().tables, extra), topology=back)
    made = api.export_plan(both, "msccl-dir", runtime="msccl")
    assert [name.partition("-")[2] for name, _ in made.files] == [
        "allgather-S2-R2-C1-LL.xml", "allgather-S2-R2-C1-LL-in-place.xml",
        "reduce-scatter-S2-R2-C1.xml", "reduce-scatter-S2-R2-C1-in-place.xml",
    ]  # fmt: skip
    assert any("S3 C2: msccl loads at most 4 files" in line for line in made.remarks)
    assert len(api.export_plan(both, "msccl-dir", runtime="msccl", in_place="out").files) == 3
    assert len(api.export_plan(both, "msccl-dir").files) == 3


def test_a_program_that_is_safe_only_to_a_size_ends_there():
    made = api.export_plan(plan(), max_size=2 << 20)
    assert [ends(text)[1] for _, text in made.files] == [LARGE, 2 << 20]


def test_what_the_runtime_lacks_is_listed_and_the_next_takes_its_place():
    made = api.export_plan(change(0, protocol="LL128"))  # a ring of unknown links
    assert [ends(text)[0] for _, text in made.files] == [SMALL + 1]
    assert sum("S2 C1 LL: LL128 corrupts data" in line for line in made.remarks) == 1
    plus = api.export_plan(change(0, protocol="LL128"), assume_nvlink=True)
    assert [ends(text)[0] for _, text in plus.files] == [0, LARGE + 1]
    made = api.export_plan(change(1, protocol="LL128"), "mscclpp-dir")
    assert sum("S3 C2: MSCCL++ has no protocol LL128" in line for line in made.remarks) == 1
    named = api.export_plan(change(0, schedule=None))
    assert any("the plan knows it by name only" in line for line in named.remarks)
    alone = replace(plan().tables[0], ranges=(Range(0, None, (0,)),))
    for to in ("msccl-dir", "mscclpp-dir"):
        with pytest.raises(SynthError, match=r"no range of the plan can be exported: .*LL128"):
            api.export_plan(replace(change(0, protocol="LL128"), tables=(alone,)), to)


def test_an_algorithm_whose_chunks_divide_no_judged_size_is_not_chosen():
    odd = replace(plan().tables[0], sizes=(1 << 12, 1 << 13, 1 << 20), ranges=(Range(0, None, (1, 0)),))
    steps = []
    for step in ring_schedule(4).steps:
        sends = [Send(s.chunk // 2 * 6 + s.chunk % 2 * 3 + k, s.src, s.dst) for s in step.sends for k in range(3)]
        steps.append(Step(3, tuple(sorted(sends))))
    three = replace(ring_schedule(4), chunks=6, steps=tuple(steps))
    made = api.export_plan(replace(change(1, schedule=three, divisor=24), tables=(odd,)))
    assert [name for name, _ in made.files] == ["01-allgather-S2-R2-C1-LL.xml"]
    alone = replace(odd, ranges=(Range(0, None, (1,)),))
    with pytest.raises(SynthError, match="4096, 8192, 1048576 bytes are not served"):
        api.export_plan(replace(change(1, schedule=three, divisor=24), tables=(alone,)))
    mixed = replace(odd, sizes=(96, 4096, 9600))
    made = api.export_plan(replace(change(1, schedule=three, divisor=24), tables=(mixed,)))
    assert [ends(text) for _, text in made.files] == [(0, 4095), (4096, 4096), (4097, 0)]


# ---------------------------------------------------------------- MSCCL++


def test_a_folder_of_mscclpp_plans_serves_the_ranges_of_the_plan(file, tmp_path):
    folder = tmp_path / "plans"
    synth("export", "--plan", file, "--to", "mscclpp-dir", "-o", folder)
    sizes = {}
    for path in sorted(folder.glob("*.json")):
        document = strict_mscclpp.check(path.read_text())
        assert document["name"] == path.stem
        sizes.setdefault(document["inplace"], []).append((document["min_message_size"], document["max_message_size"]))
        runs(path, (document["min_message_size"] // 128 + 1) * 128, in_place=document["inplace"])
    assert sizes == {False: [(0, LARGE), (LARGE + 1, 64 << 20)], True: [(0, LARGE), (LARGE + 1, 64 << 20)]}
    assert "MSCCLPP_ENABLE_NCCL_FALLBACK=TRUE" in (tmp_path / "plans.env").read_text()
    assert "register.register(rank, ranks, ranks_per_node)" in (tmp_path / "plans.md").read_text()
    synth("export", "--plan", file, "--to", "mscclpp-dir", "-o", folder)  # an earlier export is replaced
    (folder / "mine.txt").write_text("")
    assert "holds mine.txt" in synth("export", "--plan", file, "--to", "mscclpp-dir", "-o", folder, code=1).stderr


def fake_mscclpp(monkeypatch, version="0.10") -> tuple[list, list]:
    """Stand in for MSCCL++'s Python modules. Return the lists of what is added to them, and of the selectors set."""

    class Algorithm(SimpleNamespace):
        Constraint = staticmethod(lambda ranks, per_node: (ranks, per_node))

    added, selectors = [], []
    builder = SimpleNamespace(add_algorithm_builder=added.append, set_algorithm_selector=selectors.append)
    types = SimpleNamespace(float32="float32", uint8="uint8")
    fake = SimpleNamespace(Algorithm=Algorithm, DataType=types, ExecutionPlan=lambda path, rank: (path, rank))
    ext = SimpleNamespace()
    (fake if version == "0.9" else ext).AlgorithmCollectionBuilder = lambda: builder
    monkeypatch.setitem(sys.modules, "mscclpp", fake)
    monkeypatch.setitem(sys.modules, "mscclpp.ext", ext)
    return added, selectors


def call(collective, ranks, rank, size, given=0, out=1 << 40, dtype="any"):
    """Return a request as MSCCL++ hands it to the selector."""
    return SimpleNamespace(
        collective=collective, world_size=ranks, rank=rank, message_size=size, input_buffer=given, output_buffer=out,
        dtype=dtype,
    )  # fmt: skip


@pytest.fixture(scope="module")
def files():
    """allgather and reduce-scatter on 4 ranks."""
    scatter = Algorithm("RS", "synth", plan().algorithms[0].schedule.reversed(), "Simple", 1, 4)
    more = Table("reduce-scatter", 4, (Range(0, SMALL, (2,)), Range(SMALL + 1, None, (4,))))
    both = replace(plan(), algorithms=(*plan().algorithms, scatter), tables=(*plan().tables, more))
    return dict(api.export_plan(both, "mscclpp-dir").files)


def requests():
    """(collective, ranks, rank, message size, input, output), what is to be taken."""
    start, far = 1 << 40, 1 << 41
    small, large, rs = "allgather-S2-R2-C1-LL", "allgather-S3-R3-C2", "reduce-scatter-S2-R2-C1"
    rank = 1
    for size, want in [
        (64, small),
        (SMALL, small),
        (LARGE, small),
        (72, None),
        (LARGE + 128, large),
        (LARGE + 64, None),
        (1 << 30, None),
    ]:
        part = size // 4
        yield ("allgather", 4, rank, part, start + rank * part, start), want and want + "-in-place"
        yield ("allgather", 4, rank, part, start, far), want
        yield ("allgather", 8, rank, part, start, far), None
        yield ("allreduce", 4, rank, part, start, far), None
    for size, want in [(64, None), (SMALL, None), (SMALL + 64, rs), (SMALL + 68, None), (1 << 20, rs)]:
        yield ("reducescatter", 4, rank, size, start, start + rank * (size // 4)), want and want + "-in-place"
        yield ("reducescatter", 4, rank, size, start, far), want


def number_off(name):
    return name and name.partition("-")[2]


def test_python_selects_and_registers(files, monkeypatch):
    scope = {"__file__": "/plans/register.py"}
    exec(files["register.py"], scope)
    added, selectors = fake_mscclpp(monkeypatch)
    kept = scope["register"](1, 4, 4)
    assert kept == added and selectors == [scope["select"]]
    assert sorted(a.id + ".json" for a in added) == sorted(name for name in files if name.endswith(".json"))
    assert all(a.execution_plan == (f"/plans/{a.id}.json", 1) and a.constraint == (4, 4) for a in added)
    with pytest.warns(UserWarning, match="no plan is loaded for 8 ranks, 8 of a node; there are plans for 4 ranks, "):
        assert scope["register"](1, 8, 8) == []
    known = {}
    for name in (row[-1] for row in scope["PLANS"]):
        known.setdefault("reducescatter" if "reduce" in name else "allgather", {})[name] = name
    for asked, want in requests():
        request = call(*asked)
        assert number_off(scope["select"](known, request)) == want, asked
    assert scope["select"]({}, request) is None


def test_the_code_says_which_calls_get_wrong_data(files):
    sums = "MSCCL++'s executor sums whatever the operator"
    gathered = dict(api.export_plan(plan(), "mscclpp-dir").files)
    assert files["register.py"].count(sums) == 1 and sums not in gathered["register.py"]
    assert "with a root other than" not in files["register.py"]


# ---------------------------------------------------------------- NCCL's tuner, JSON


def plugin(text: str, coll: str, size: int, ranks: int, nodes: int) -> tuple | None:
    """Return the line that NCCL's example tuner plugin applies: the first match among lines up to 255 characters."""
    for line in text.splitlines():
        assert len(line) < 255
        if line.startswith("#") or not line:
            continue
        kind, low, high, algorithm, protocol, channels, wants_nodes, wants_ranks, pipe, reg = line.split(",")
        assert kind in ("broadcast", "reduce", "allgather", "reducescatter", "allreduce")
        assert (pipe, reg) == ("-1", "-1")
        assert algorithm in ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
        assert protocol in ("ll", "ll128", "simple")
        near = int(wants_nodes) in (-1, nodes) and int(wants_ranks) in (-1, ranks)
        if kind == coll and int(low) <= size <= int(high) < 1 << 64 and near:
            return algorithm, protocol, int(channels)
    return None


def test_the_tuner_gets_the_ranges_where_nccl_is_preferred(file, tmp_path):
    out = tmp_path / "tuner.csv"
    said = synth("export", "--plan", file, "--to", "nccl-tuner-csv", "-o", out)
    text = out.read_text()
    for size in (0, SMALL, LARGE, 64 << 20):
        assert plugin(text, "allgather", size, 4, 1) is None
    for size in ((64 << 20) + 1, 1 << 30, 1 << 40):
        assert plugin(text, "allgather", size, 4, 1) == ("ring", "ll128", 8)
    assert plugin(text, "allgather", 1 << 30, 5, 1) is None and plugin(text, "allreduce", 1 << 30, 4, 1) is None
    assert "MPI is mpi's, which no tuner can name" in said.stderr


LARGEST = "allgather,67108865,18446744073709551615"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ((("algorithm", "NVLSTree"), ("protocol", "Simple")), f"{LARGEST},nvls_tree,simple,-1,1,4,-1,-1"),
        ((("algorithm", "CollnetDirect"), ("protocol", "ll")), f"{LARGEST},collnet_direct,ll,-1,1,4,-1,-1"),
        ((("algorithm", "hypercube"), ("protocol", "ll")), "does not say which algorithm"),
        ((("algorithm", "ring"),), "does not say which protocol"),
        ((), "does not say which algorithm"),
        ((("algorithm", "ring"), ("protocol", "ll"), ("channels", "0")), "channels of NCCL's ring is '0'"),
    ],
)
def test_names_of_nccl(options, line):
    made = api.export_plan(change(2, options=options), "nccl-tuner-csv")
    assert line in (made.files[0][1].splitlines()[-1] if line.startswith("allgather,") else " ".join(made.remarks))
    assert line.startswith("allgather,") or "the file has no line" in made.remarks[-1]


def test_a_plan_without_its_option_says_so(file):
    said = synth("export", file, code=1)
    assert "plan.json: is a tuner's plan: `synth export --plan FILE`" in said.stderr


def test_mcrdl_tables_go_into_a_folder_where_they_are_several(tmp_path):
    one = plan()
    other = replace(one.tables[0], ranks=8, ranges=(Range(0, None, (3,)),))
    (tmp_path / "one.json").write_text(json.dumps(one.to_json()))
    (tmp_path / "two.json").write_text(json.dumps(replace(one, tables=(one.tables[0], other)).to_json()))
    synth("export", "--plan", tmp_path / "one.json", "--to", "mcrdl-csv", "-o", tmp_path / "one.csv")
    assert "bytes,backend\n1024," in (tmp_path / "one.csv").read_text()
    out = tmp_path / "tables"
    synth("export", "--plan", tmp_path / "two.json", "--to", "mcrdl-csv", "-o", out)
    assert sorted(path.name for path in out.iterdir()) == ["mcrdl_allgather_4gpu.csv", "mcrdl_allgather_8gpu.csv"]
    assert (out / "mcrdl_allgather_4gpu.csv").read_text() == (tmp_path / "one.csv").read_text()
    assert "a file each: -o DIR" in synth("export", "--plan", tmp_path / "two.json", "--to", "mcrdl-csv", code=2).stderr
    said = synth("export", "--plan", tmp_path / "two.json", "--to", "mcrdl-csv", "-o", tmp_path / "one.csv", code=1)
    assert "one.csv: File exists" in said.stderr


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("schema", "synth.plan/9", "schema is 'synth.plan/9'"),
        ("tables.0.sizes", [4, 4], "sizes grow"),
        ("tables.0.ranges.0.order", [9], r"order\[0\]: expected .* at most 3, found 9"),
        ("tables.0.ranges.0.order", [], r"ranges\[0\].order: names no algorithm"),
        ("tables.0.ranges.1.low", 9, "starts at 9, and the range before ends at 4096"),
        ("tables.0.ranges.1.high", 2, "of at least 4097, found 2"),
        ("tables.0.seconds", [1.0], "1 entries for 6 sizes"),
        ("tables.0.ranks", 8, "does allgather on 4 ranks, the table is allgather on 8"),
        ("algorithms.0.protocol", "ll", "protocol 'll'; known are"),
        ("algorithms.3", {}, "malformed plan"),
        ("algorithms.0.divisor", 0, r"algorithms\[0\].divisor: expected a whole number of at least 1"),
        ("algorithms.0.schedule.steps.0.sends", [], r"algorithms\[0\].schedule"),
        ("labels", [1, 1, 2, 3], "a label of its own"),
        ("algorithms.0.backend", "nccl", "takes no schedule"),
        ("tables", [1], "malformed plan"),
        ("kinds", [["nvlink"]], "each link of the topology has its kinds"),
        ("kinds", [["copper"]] * 4, "has its kinds"),
        ("nodes", [0], "each rank of the topology has its box"),
        ("tables.0.library", [1.0], "1 entries for 6 sizes"),
        ("tables.0.times", [[1.0]] * 6, "has a time for each algorithm of the order at that size"),
    ],
)
def test_a_bad_plan_is_one_line(tmp_path, path, value, words):
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(changed(json.loads(json.dumps(plan().to_json())), path, value)))
    with pytest.raises(SynthError, match=words) as caught:
        api.export_plan(file)
    assert "\n" not in str(caught.value)


def test_requests_that_make_no_sense(file, tmp_path):
    for words, why in [
        (("--to", "msccl-dir"), "name it with -o DIR"),
        (("--to", "xml", "-o", "x"), "'xml' is none of them"),
        (("--point", 2, "-o", "x"), "--point: a plan says that itself"),
        (("--to", "json", "-o", "x"), "'json' is none of them"),
        (("--to", "mcrdl-csv", "--runtime", "rccl"), "--runtime is for msccl-dir"),
        (("--runtime", "mscclpp", "-o", tmp_path / "x"), "is not for the runtime"),
        (("--rank-map", "0,1,2,5", "-o", tmp_path / "x"), "each of 0..3 once"),
        ((file, "-o", "x"), "leave it out with --plan"),
    ]:
        assert why in synth("export", "--plan", file, *words, code=2).stderr
    assert "name the FILE" in synth("export", code=2).stderr
    with pytest.raises(UsageError):
        api.export_plan(plan(), "msccl-xml")
