"""The sheets of a report and the file they become: data, words, times, what is refused. The page itself:
test_report_page."""

from __future__ import annotations

import base64
import hashlib
import html as markup
import json
import re
import subprocess
import zlib
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, pairwise
from pathlib import Path

import pytest

from synth.catalog import report
from synth.checker.certificates.cuts import KEYS
from synth.commands import api
from synth.errors import FormatError
from synth.model.frontier import Frontier, LowerBound, Open, Point
from synth.model.schedule import SEND_KINDS, Schedule, Send, Step
from synth.model.topology import Limit, Link, Topology
from synth.model.tuning_plan import Algorithm, LibraryTimes, Plan, Range, Table
from synth.view.page import animation_data, certificate_text, html, sections, time_chart
from synth.view.page.frontier_section import Sheet
from tests.command_line import synth
from tests.needs import need

HOSTILE = "</script><img src=x onerror=alert(1)>&<!--\u2028'\""


@pytest.fixture(scope="module")
def dgx1(tmp_path_factory) -> Frontier:
    return api.frontier("dgx1", "allgather", jobs=1, engine="exact", log=tmp_path_factory.mktemp("log") / "log")  # type: ignore[return-value]


@pytest.fixture(scope="module")
def ring(tmp_path_factory) -> Frontier:
    return api.frontier("ring:4", "reduce-scatter", jobs=1, engine="exact", log=tmp_path_factory.mktemp("log") / "log")  # type: ignore[return-value]


def blocks(page: str) -> dict[str, object]:
    """The data of a page by id."""
    found = re.findall(r'<script type="application/json" id="([\w-]+)">(.*?)</script>', page)
    return {name: json.loads(text) for name, text in found}


def unpacked(data: str) -> dict:
    return json.loads(zlib.decompress(base64.b64decode(data), -15))


def sends(doc: dict, schedule: Schedule) -> list[list[tuple]]:
    """Return the sends of a packed schedule, step by step, as (chunk, src, dst, kind, via)."""
    routes = schedule.network.routes
    return [
        sorted(
            (chunk, routes[r].src, routes[r].dst, SEND_KINDS[kind], routes[r].via)
            for r, chunk, kind in zip(accumulate(more), chunks, kinds or [0] * len(chunks), strict=True)
        )
        for more, chunks, kinds in doc["sends"]
    ]


def named(found: Frontier, name: str) -> Frontier:
    """The same on a machine of another name."""
    network = replace(found.network, name=name)
    points = tuple(replace(p, source=replace(p.schedule, network=network)) for p in found.points)
    return replace(found, machine=network, points=points)


def through_switches() -> Schedule:
    """Sends of every kind over routes through switches; what they do is of no matter here."""
    network = api.topology("fat-tree:4").network()
    steps = []
    for t in range(2):
        sends = []
        for k, r in enumerate(network.routes[t::2]):
            sends.append(Send((5 * k + t) % 8, r.src, r.dst, SEND_KINDS[(k + t) % 4], r.via))
        steps.append(Step(t + 1, tuple(sends)))
    return Schedule(network, api.collective("allreduce", 4), 8, tuple(steps))


def test_a_packed_schedule_is_the_schedule(dgx1, ring):
    for schedule in [*(p.schedule for p in (*dgx1.points, *ring.points)), through_switches()]:
        doc = unpacked(animation_data.pack_schedule(schedule).data)
        assert doc["rounds"] == [step.rounds for step in schedule.steps]
        assert doc["chunks"] == schedule.chunks and doc["combining"] == schedule.collective.combining
        assert sends(doc, schedule) == [
            sorted((s.chunk, s.src, s.dst, s.kind, s.via) for s in step.sends) for step in schedule.steps
        ]


def test_switches_are_drawn_with_their_wires():
    network = api.topology("fat-tree:4").network()
    drawn = animation_data.machine(network)
    assert [end[2] for end in drawn.ends if end[3]] == ["leaf0", "leaf1", "spine0", "spine1"]
    names = [end[2] for end in drawn.ends]
    assert [(names[a], names[b], units) for a, b, units, *_ in drawn.links] == [
        (str(a), str(b), units) for a, b, units in network.wires
    ]
    for (src, dst, way), route in zip(drawn.routes, network.routes, strict=True):
        stops = [str(route.src), *route.via, str(route.dst)]
        assert (src, dst) == (route.src, route.dst)
        assert [(names[drawn.links[k][0]], names[drawn.links[k][1]]) for k in way] == list(pairwise(stops))
    assert network.caps and drawn.caps == ()  # each cap of this network is a wire, which has its own line


def test_limits_that_are_no_ports_are_rows_of_their_own():
    links = (Link(0, 1, Fraction(1)), Link(0, 2, Fraction(1)), Link(1, 2, Fraction(1)))
    network = Topology("m", 3, links, (Limit("out", (0, 1), Fraction(1)), Limit("all", (1, 2), Fraction(1)))).network()
    drawn = animation_data.machine(network)
    assert [(a, b) for a, b, *_ in drawn.links] == [(0, 1), (0, 2), (1, 2)]
    assert drawn.caps == (("all out of 0", 1, (0, 1)), ("all into 2", 1, (1, 2)))


def test_no_name_becomes_markup(dgx1):
    found = named(dgx1, HOSTILE)
    page = api.report(found, title=HOSTILE).html
    skeleton = re.sub(r"<script>.*?</script>|<style>.*?</style>", "", page, flags=re.DOTALL)
    assert "<img" not in page and "<!--" not in skeleton
    assert len(re.findall("</script", page)) == len(re.findall("<script", page)) == len(blocks(page)) + 1
    assert f"<title>{markup.escape(HOSTILE)}</title>" in page
    assert blocks(page)["head"]["entries"][0]["topology"] == HOSTILE == blocks(page)["head"]["title"]  # type: ignore[index]
    assert "\u2028" not in skeleton.replace(markup.escape(HOSTILE), "")


def test_a_name_that_is_no_unicode_text_can_be_written(dgx1):
    page = api.report(named(dgx1, "broken\ud800"), title="\udfff").html
    assert blocks(page.encode().decode())["head"]["entries"][0]["topology"] == "broken\ud800"  # type: ignore[index]


def test_the_policy_allows_the_script_and_the_style_of_the_page_and_nothing_else(dgx1):
    page = api.report(dgx1).html
    policy = markup.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1])  # type: ignore[index]
    parts = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    for what, tag in (("script-src", "script"), ("style-src", "style")):
        inside = re.search(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)[1]  # type: ignore[index]
        assert parts[what] == f"'sha256-{base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()}'"
    assert parts["default-src"] == parts["base-uri"] == parts["form-action"] == "'none'"
    assert not re.search(r"""(src|href)=["']?(https?:|//)""", page) and "@import" not in page and "url(" not in page


def test_the_same_report_is_the_same_bytes(dgx1, ring):
    assert api.report([dgx1, ring]).html == api.report([dgx1, ring]).html


def test_the_scripts_name_every_file():
    folder = Path(html.__file__).parent / "assets"
    scripts = {f"{name}.js" for name in html.SCRIPTS}
    assert scripts | {"page.html", "page.css"} == {path.name for path in folder.iterdir()}
    assert not [name for name in scripts if re.search("</script|innerHTML", html.asset(name))]


def test_the_script_of_a_page_can_be_parsed(dgx1):
    need("node")
    script = api.report(dgx1).html.rpartition("<script>")[2].partition("</script>")[0]
    done = subprocess.run(["node", "--check", "-"], input=script, capture_output=True, text=True, check=False)
    assert script and done.returncode == 0, done.stderr


def test_machines_are_written_once(dgx1):
    found = blocks(api.report([dgx1, dgx1]).html)
    assert [name for name in found if name.startswith("machine")] == ["machine-0"]
    assert found["entry-0"]["machine"] == found["entry-1"]["machine"] == 0  # type: ignore[index]


# Certificates in words.


def test_schedules_that_do_not_fit_are_left_out_with_a_note(dgx1):
    sheet = sections.of_frontier(dgx1, sections.EntryContext("x"))
    short, long = sorted(len(a.move.data) for a in sheet.algorithms if a.move)
    for room, kept in ((short + long, 2), (short + long - 1, 1), (short - 1, 0)):
        rows = blocks(html.page([sheet], room=room))["entry-0"]["algorithms"]  # type: ignore[index]
        assert [row["move"] is not None for row in rows].count(True) == kept
        assert all("left out" in row["lack"] for row in rows if row["move"] is None)


@pytest.mark.parametrize("kind", [*KEYS, "throughput-cut", "throughput-cuts", "alltoall-lengths", "allreduce-parts"])
def test_each_kind_of_certificate_has_words(kind):
    said = certificate_text.check_in_words({"kind": kind})
    assert f"Certificate: {kind}" in said and said.count(". ") >= 1
    assert "checked without a solver" in said


@pytest.mark.parametrize(
    "odd", [{}, {"kind": 7}, {"kind": None}, {"kind": "x" * 10_000}, {"kind": "distance", "pair": {"a": 1}}]
)
def test_words_for_odd_certificates_are_short(odd):
    assert 0 < len(certificate_text.check_in_words(odd)) < 300


def test_a_point_is_only_called_optimal_where_its_bound_is_met(dgx1):
    point = dgx1.points[1]
    claim, _ = certificate_text.of_point(point)
    assert "fewer than 7/6 rounds per chunk" in claim and "any number of chunks" in claim and "it is optimal." in claim
    worse = replace(point, bound=LowerBound(Fraction(1), point.bound.certificate))
    claim, _ = certificate_text.of_point(worse)
    assert "fewer than 1 rounds" in claim and "16.7% more" in claim and "not proved optimal" in claim
    here = replace(point, bound=LowerBound(Fraction(7, 6), point.bound.certificate, "this-chunks"))
    claim, _ = certificate_text.of_point(here)
    assert "with 6 chunks per part" in claim and "optimal at this number of chunks" in claim


def test_completeness_is_only_claimed_where_it_is():
    assert certificate_text.completeness(made((2, 2)))[0].startswith("Not proved complete")
    assert "any number of steps" in certificate_text.completeness(made((2, 2), complete=True))[0]
    assert "up to 5 steps" in certificate_text.completeness(made((2, 2), complete=True, max_steps=5))[0]


# Plots.


def made(*points: tuple[int, int], bounds=(), latency: Fraction = Fraction(1), **more) -> Frontier:
    """Broadcasts on two ranks with the given (steps, rounds) of one chunk."""
    network = api.topology("line:2").network()
    network = replace(network, routes=tuple(r._replace(latency=latency) for r in network.routes))
    task = api.collective("broadcast", 2)
    found = []
    for steps, rounds in points:
        rows = [Step(1, (Send(0, 0, 1),)), *[Step(1, ()) for _ in range(steps - 2)], Step(rounds - steps + 1, ())]
        schedule = Schedule(network, task, 1, tuple(rows[:steps]))
        found.append(Point.of(schedule, LowerBound(Fraction(rounds), {"kind": "test"}), "by hand"))
    known = tuple((s, LowerBound(Fraction(v), {"kind": "test"})) for s, v in bounds)
    return Frontier(network, task, tuple(found), bounds=known, **more)


def test_stairs_hold_bounds_for_fewer_steps_and_end_where_nothing_is_known():
    found = made((2, 9), bounds=((0, 2), (5, 4)))
    stairs = time_chart.stairs(found)
    assert stairs.floor == ((2, 9.0, "9"), (3, 4.0, "4"))  # the bound at 5 steps holds at 3 and 4 too
    assert stairs.end == 5
    assert time_chart.of_frontier(found).floor == ()  # more than 5 steps might take no time on the wire


def test_stairs_go_on_where_a_bound_for_any_steps_is_known():
    found = made((2, 9), bounds=((0, 2), (5, 4), (None, 3)), open=(Open(7, Fraction(1), None, "time"),))
    stairs = time_chart.stairs(found)
    assert stairs.floor == ((2, 9.0, "9"), (3, 4.0, "4"), (6, 3.0, "3")) and stairs.end is None
    share = float(found.collective.unit_share / (found.network.unit * 10**9))
    assert time_chart.of_frontier(found).floor == tuple(
        (steps * 1e-6, value * share) for steps, value in ((2, 9), (3, 4), (6, 3))
    )


def test_a_bound_at_one_number_of_chunks_is_no_stair(dgx1):
    point = replace(dgx1.points[0], bound=replace(dgx1.points[0].bound, scope="this-chunks", value=Fraction(99)))
    assert max(value for _, value, _ in time_chart.stairs(replace(dgx1, points=(point,))).floor) < 99


def test_no_time_lies_below_the_floor(dgx1):
    seen = time_chart.of_frontier(dgx1)
    for size in [1 << k for k in range(8, 31)]:
        least = min(a + b * size for a, b in seen.floor)
        assert least > 0
        best = min(dgx1.seconds_at(p, size) for p in dgx1.points)
        assert best >= least * (1 - 1e-12)
        assert best == pytest.approx(least)  # this frontier is complete: there is nothing between


def measured(**more) -> dict:
    """Two programs of the allgather on dgx1, timed in place and not."""
    head = {"schema": "synth.measured/1", "executor": "cuda", "modelled": False, "says": "measured somewhere"}
    head |= {"topology": "dgx1-v100", "collective": "allgather", "ranks": 8, "root": None}
    way = {"protocol": "Simple", "channels": 1, "chunks": 1}
    programs = [
        {"label": label, "point": point, "steps": steps, "bandwidth": text} | way
        for label, point, steps, text in (("few", 1, 2, "3/2"), ("many", 2, 3, "7/6"))
    ]
    times = [(0, 1024, 3e-6), (1, 1024, 4e-6), (0, 4096, 5e-6), (1, 4096, 4e-6), (1, 8192, 5e-6)]
    rows = [
        {"program": p, "size": size, "in_place": here, "seconds": t * (1 + here), "least": t * 0.9, "most": t * 3}
        for p, size, t in times
        for here in (True, False)
    ]
    return head | {"programs": programs, "rows": rows} | more


def test_measured_times_belong_to_their_points(dgx1):
    few, many = time_chart.marks_of(measured(), dgx1)
    assert (few.of, many.of) == (0, 1)
    # out of place where both are there
    assert few.points == ((1024, 3e-6, 3e-6 * 0.9, 3e-6 * 3), (4096, 5e-6, 5e-6 * 0.9, 5e-6 * 3))
    wrong = measured()
    wrong["programs"][0] |= {"steps": 9}
    assert time_chart.marks_of(wrong, dgx1)[0].of is None
    assert time_chart.marks_of(measured(), None)[0].of is None


def save(path: Path, doc: dict) -> Path:
    path.write_text(json.dumps(doc))
    return path


def test_measurements_go_to_the_frontier_of_their_problem(dgx1, tmp_path):
    one = save(tmp_path / "frontier.json", dgx1.to_json())
    mine, other = save(tmp_path / "mine.json", measured()), save(tmp_path / "other.json", measured(ranks=4))
    first, second = report.collect([mine, one, other]).sheets
    assert [m.label for m in first.times.marks] == ["few", "many", "nccl-ring"] and first.algorithms[0].move is not None
    assert (second.id, second.status, len(second.times.marks)) == ("other.json", "measured", 2)


def test_a_frontier_that_fails_its_check_is_not_drawn(dgx1, tmp_path):
    doc = dgx1.to_json()
    doc["points"][0]["bound"]["value"] = "8/5"
    good, bad = save(tmp_path / "good.json", dgx1.to_json()), save(tmp_path / "bad.json", doc)
    found = report.collect([good, bad])
    assert [s.status for s in found.sheets] == ["complete", "failed its check"]
    assert found.sheets[1].algorithms == () and found.sheets[1].machine is None
    assert len(found.wrong) == 1 and found.wrong[0].startswith("bad.json: ") and "8/5" in found.wrong[0]
    assert "bad.json" in synth("report", good, bad, "-o", tmp_path / "r.html", code=5).output
    assert (tmp_path / "r.html").is_file()
    unchecked = report.collect([bad], verify=False)
    assert unchecked.wrong == [] and dict(unchecked.sheets[0].provenance)["certificates"].startswith("not re-checked")


@pytest.mark.parametrize(("content", "says"), [
    ("{", "not JSON"),
    ("[]", "found a list"),
    ('{"schema": "other/1"}', "schema is 'other/1'; a report shows"),
    ('{"schema": "synth.frontier/1"}', "is malformed"),
    ('{"schema": "synth.plan/1", "algorithms": 3}', "is malformed"),
    ('{"schema": "synth.measured/1"}', "is malformed"),
    ('{"schema": "synth.large/1", "topology": {"name": "nothing"}}', "is malformed"),
    *((json.dumps(measured(rows=[measured()["rows"][0] | odd])), "is malformed") for odd in (
        {"size": 10**400}, {"size": 0}, {"seconds": 1e300}, {"seconds": "1"}, {"most": 0}, {"least": None},
    )),
])  # fmt: skip
def test_other_files_and_times_that_no_machine_has_are_refused_in_one_line(content, says, tmp_path):
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(FormatError, match=r"x\.json") as caught:
        report.collect([path])
    assert says in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(FormatError, match=r"none\.json: does not exist"):
        report.collect([tmp_path / "none.json"])


def test_a_plan_becomes_a_sheet_for_each_table(dgx1, tmp_path):
    first = dgx1.points[0].schedule
    algorithms = (Algorithm("ours", schedule=first, divisor=16), Algorithm(HOSTILE, "nccl"))
    ranges = (Range(1, 4096, (0, 1)), Range(4097, None, (1,)))
    table = Table("allgather", 8, ranges, (1024, 8192), (1e-6, 3e-6), (1e-6, 2e-6))
    tables = (table, Table("allreduce", 8, (Range(1, None, (1,)),)))
    notes = ("allgather: one", "allreduce: two", "both: three")
    plan = Plan(algorithms, tables, "measured", "measured by hand", dgx1.network, notes=notes)
    ours, theirs = report.collect([save(tmp_path / "plan.json", plan.to_json())]).sheets
    one, other = ours.algorithms
    assert (one.name, other.name) == ("ours", HOSTILE) and one.move and other.lack
    assert ours.tables[0]["rows"] == [["1 B to 4 KB", "ours", HOSTILE], ["4 KB and more", HOSTILE, ""]]
    assert [(m.label, m.modelled) for m in ours.times.marks] == [
        ("the best at each size", False),
        ("what the plan takes", False),
    ]
    assert "at most 50.00% slower" in " ".join(ours.says)
    assert ours.says[-2:] == ("note: allgather: one", "note: both: three") and "note: allreduce: two" in theirs.says
    assert theirs.algorithms[0].name == HOSTILE and theirs.times.marks == ()


def test_the_chart_of_a_plan_has_the_lines_of_other_libraries(tmp_path):
    direct = api.baseline("direct", "full:4", "allgather")
    algorithms = (Algorithm("direct", schedule=direct, divisor=4), Algorithm("nccl", "nccl"))
    ranges = (Range(1, 4096, (0, 1)), Range(4097, 8192, (0,)), Range(8193, None, (1,)))
    lines = (LibraryTimes("nccl-ring", (3e-6, None)),)
    table = Table("allgather", 4, ranges, (4096, 8192), (2e-6, 4e-6), (2e-6, 4e-6), libraries=lines)
    plan = Plan(algorithms, (table,), "model", "by hand", direct.network)
    (sheet,) = report.collect([save(tmp_path / "plan.json", plan.to_json())]).sheets
    assert [(m.label, m.library, len(m.points)) for m in sheet.times.marks] == [
        ("what the plan takes", False, 2),
        ("nccl-ring", True, 1),
    ]
    assert sheet.times.bus == 0.75 and [size for size, _ in sheet.times.bound] == [4096, 8192]
    assert sheet.times.wins == ((1.0, 8192.0, "direct", 0), (8193.0, None, "nccl", 1))


def test_the_chart_of_a_frontier_has_the_ring_of_nccl_by_the_model_of_its_points(tmp_path):
    found = api.frontier("ring:3", "allreduce", max_steps=4)
    (sheet,) = report.collect([found]).sheets
    ring, tree = sheet.times.marks
    assert (ring.label, tree.label, ring.library, ring.modelled) == ("nccl-ring", "nccl-tree", True, True)
    own = api.baseline("ring", "ring:3", "allreduce")
    for size, seconds, *_ in (ring.points[0], ring.points[-1]):
        wire = float(own.rounds_per_chunk * own.collective.unit_share * size / own.network.unit) * 1e-9
        assert seconds == pytest.approx(len(own.steps) * float(own.network.latency) * 1e-6 + wire)
        assert seconds >= min(a + b * size for a, b in sheet.times.floor) * (1 - 1e-12)


def test_a_plan_of_a_wrong_schedule_is_not_shown(dgx1, tmp_path):
    table = Table("allgather", 8, (Range(1, None, (0,)),))
    doc = Plan((Algorithm("ours", schedule=dgx1.points[0].schedule),), (table,), "model", "so").to_json()
    doc["algorithms"][0]["schedule"]["steps"][0]["sends"].pop()
    found = report.collect([save(tmp_path / "plan.json", doc)])
    assert [s.status for s in found.sheets] == ["failed its check"] and found.wrong[0].startswith("plan.json: ours: ")


def test_a_schedule_alone_is_shown_without_claims(dgx1, tmp_path):
    (sheet,) = report.collect([save(tmp_path / "s.json", dgx1.points[1].schedule.to_json())]).sheets
    assert sheet.proofs == () and sheet.algorithms[0].move is not None and sheet.stairs is None
    broken = dgx1.points[1].schedule.to_json()
    broken["steps"][0]["sends"] = broken["steps"][0]["sends"][1:]
    assert report.collect([save(tmp_path / "t.json", broken)]).sheets[0].status == "failed its check"


def test_frontiers_at_scale_show_rates_and_the_bound_in_words(tmp_path):
    large = api.frontier("dgx-h100*2", "allgather", engine="flow")
    doc = large.to_json()  # type: ignore[union-attr]
    known, value = report.collect([save(tmp_path / "l.json", doc)]).sheets[0], report.collect([large]).sheets[0]  # type: ignore[list-item]
    assert known.stairs == value.stairs and known.times == value.times and known.algorithms == value.algorithms
    assert len(known.times.lines) == len(known.algorithms) > 2
    assert [end[2] for end in known.machine.ends if end[3]] == ["switch 0", "switch 1", "net"]
    assert all(a.move is None and "not drawn" in a.lack for a in known.algorithms)
    assert any("GB/s at most" in claim for claim, _ in known.proofs)
    assert any("rounds per chunk are needed" in claim and "throughput-cut" in how for claim, how in known.proofs)
    assert dict(known.provenance)["certificates"].startswith("the bound was added up again")
    for size in (1 << 12, 1 << 20, 1 << 30):
        assert min(a + b * size for _, a, b in known.times.lines) == pytest.approx(
            large.seconds_at(large.best(size), size)
        )  # type: ignore[union-attr]
    wrong = report.collect([save(tmp_path / "w.json", doc | {"bound": doc["bound"] | {"value": "100"}})])
    assert wrong.sheets[0].status == "failed its check" and "100 is claimed" in wrong.wrong[0]
    doc["topology"]["name"] = "nobody's"  # its links stand in the document
    own = report.collect([save(tmp_path / "m.json", doc)]).sheets[0]
    assert own.topology == "nobody's" and own.times == known.times and own.provenance[0] == known.provenance[0]
    for key in ("connection", "switches", "sorts", "links", "limits"):
        del doc["topology"][key]
    with pytest.raises(FormatError, match=r"m\.json.*no machine known by name"):
        report.collect([save(tmp_path / "m.json", doc)])


# The command.


def test_the_command_writes_the_page_and_says_how_large_it_is(ring, tmp_path):
    path = save(tmp_path / "f.json", ring.to_json())
    assert "1 entry" in synth("report", path, "-o", tmp_path / "r.html", "--title Ours").stderr
    page = (tmp_path / "r.html").read_text()
    assert page.startswith("<!DOCTYPE html>") and "<title>Ours</title>" in page
    assert synth("report", path, "-o - --title Ours").stdout == page


def test_the_head_of_a_sheet_fits_its_columns(dgx1):
    head = sections.of_frontier(dgx1, sections.EntryContext("x", measured=(measured(),))).head()
    assert head["algorithms"] == 2 and head["measured"] == 5
    emulated = measured() | {"modelled": True}  # no clock was read
    assert sections.of_frontier(dgx1, sections.EntryContext("x", measured=(emulated,))).head()["measured"] == 0
    assert head["least"] == pytest.approx(2 * 0.7e-6) and head["rate"] == pytest.approx(171.43, abs=0.01)
    assert isinstance(Sheet("i", "t", "c", 1, "s", "good", "title").head()["rate"], type(None))


def test_no_page_or_frontier_names_a_folder_of_its_writer(tmp_path, monkeypatch):
    """The note on a log that could not be written had the path of the cache folder."""
    private = tmp_path / "private-folder"
    private.mkdir()
    (private / "file").touch()
    monkeypatch.setenv("SYNTH_CACHE", str(private / "file" / "cache"))
    found = api.frontier("ring:4", "allgather", max_steps=2)
    assert any(note.startswith("no log: cannot write") for note in found.notes)
    (private / "f.json").write_text(json.dumps(api.frontier_document(found)))
    made = api.build("ring:4", "allgather", private / "built", sizes=["64KB"], time_limit=2)
    page = api.report([private / "f.json", private / "built" / "plan.json"])
    texts = [page.html, (private / "f.json").read_text(), json.dumps(made.plan.to_json())]
    texts += [(private / "built" / name).read_text() for name in ("report.html", "README.txt", *made.files)]
    assert not [text for text in texts if "private-folder" in text]
