"""Steps that last parts of a round: replay, documents, and every command on a frontier with such a point."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
import randoms
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from test_catalog_store import entry

import synth
from synth import api
from synth.api import catalog
from synth.bounds.single_cut import single_cut_bound
from synth.catalog.entry import OPEN
from synth.checker.schedule import column_replay, replay
from synth.cli import root
from synth.encodings.fewer_chunks import FewerChunks
from synth.errors import UsageError, VerificationError
from synth.model.collective import collective
from synth.model.dead_sends import prune, with_fewest_rounds
from synth.model.frontier import Frontier, Open, Point
from synth.model.outcome import Cost
from synth.model.rational import name_text, number_or_text, whole
from synth.model.schedule import MOST_PARTS, Schedule, Send, Step, SwitchSend
from synth.model.topology import Limit, Link, Topology
from synth.model.unicast import unicast
from synth.pareto.combining import point_query, rs_ag_composition
from synth.pareto.cross_check import cross_check
from synth.pareto.events import Options
from synth.pareto.log import Log
from synth.pareto.resume import point_record, points_from_records
from synth.pareto.sweep_state import SweepState
from synth.solvers.processes.deadline import NEVER, Budget
from synth.view import tables
from synth.view.page import html
from tests.needs import need

EIGHTH = Fraction(1, 8)


def two_boxes(limits: tuple[Limit, ...] = ()) -> Topology:
    """Ranks 0, 1 and 2, 3: links of 25 GB/s in the boxes, of 8 GB/s from 0 to 2 and from 1 to 3."""
    links = []
    for a, b, width in ((0, 1, 25), (2, 3, 25), (0, 2, 8), (1, 3, 8)):
        for src, dst in ((a, b), (b, a)):
            links.append(Link(src, dst, Fraction(width), Fraction(1)))
    return Topology("two-boxes", 4, tuple(links), limits, nodes=(0, 0, 1, 1))


NETWORK = two_boxes().network()


def pipeline(pairs: int, rounds: int | Fraction = EIGHTH) -> Schedule:
    """A broadcast from 0 of `pairs` pairs of chunks: one of each goes 0, 2, 3 and 0, 1, the other 0, 1, 3, 2."""
    rows: list[list[Send]] = [[] for _ in range(pairs + 2)]
    for t in range(pairs):
        a, b = 2 * t, 2 * t + 1
        rows[t] += [Send(a, 0, 1), Send(a, 0, 2), Send(b, 0, 1)]
        rows[t + 1] += [Send(a, 2, 3), Send(b, 1, 3)]
        rows[t + 2] += [Send(b, 3, 2)]
    steps = tuple(Step(rounds, tuple(sorted(row))) for row in rows)
    return Schedule(NETWORK, collective("broadcast", 4), 2 * pairs, steps)


def with_point(schedule: Schedule) -> Frontier:
    """A frontier of this one point, with the cut-set bound."""
    task = schedule.collective
    bound = single_cut_bound(schedule.network, task)
    point = Point.of(schedule, bound, "best-known", "by hand")
    opened = Open(point.steps, bound.value, point.rounds_per_chunk, "effort", bound.certificate)
    return Frontier(schedule.network, task, (point,), (opened,), max_steps=point.steps, bounds=((None, bound),))


def in_whole_rounds(schedule: Schedule, parts: int) -> Schedule:
    """The schedule of `parts` times as many chunks, which travel together, in whole rounds."""
    steps = []
    for step in schedule.steps:
        sends = [send._replace(chunk=send.chunk * parts + j) for send in step.sends for j in range(parts)]
        steps.append(Step(whole(step.rounds * parts), tuple(sends)))
    return replace(schedule, chunks=schedule.chunks * parts, steps=tuple(steps))


def accepted(schedule: Schedule) -> replay.Replay | None:
    """The replay by its document, which that by columns agrees with; None where it is refused."""
    try:
        found = replay.schedule(schedule.document)
    except VerificationError:
        found = None
    if not schedule.uses_multicast:
        assert column_replay.by_columns(schedule) == found
    return found


# ---------------------------------------------------------------- replay


def test_a_pipeline_takes_a_part_of_a_round_a_step():
    schedule = pipeline(4)
    assert accepted(schedule) == replay.Replay(8, 6, Fraction(3, 4), 24)
    assert (schedule.rounds, schedule.parts_of_round) == (Fraction(3, 4), 8)
    assert schedule.rounds_per_chunk == Fraction(3, 32) < pipeline(4, 1).rounds_per_chunk
    assert repr(schedule) == "<Schedule of broadcast on two-boxes: C=8, S=6, R=3/4, 24 sends>"
    assert accepted(pipeline(6)).rounds == 1 and type(pipeline(6).rounds) is int
    assert accepted(schedule.reversed()) == accepted(schedule)


def sent(network, count: int, rounds: Fraction, src: int = 0, dst: int = 1, via: tuple[str, ...] = ()) -> Schedule:
    """`count` chunks over one route in one step."""
    task = synth.Collective("custom", network.ranks, (frozenset([src]),), (frozenset([dst]),))
    sends = tuple(Send(chunk, src, dst, "copy", via) for chunk in range(count))
    return Schedule(network, task, count, (Step(rounds, sends),))


def test_a_link_at_its_capacity_and_one_send_above_it():
    assert accepted(sent(NETWORK, 3, EIGHTH)) and accepted(sent(NETWORK, 1, EIGHTH, 0, 2))
    assert not accepted(sent(NETWORK, 4, EIGHTH)) and not accepted(sent(NETWORK, 2, EIGHTH, 0, 2))
    with pytest.raises(VerificationError, match=r"link 0 -> 1 carries 4 chunks, 1/8 rounds allow 25/8"):
        replay.schedule(sent(NETWORK, 4, EIGHTH))
    assert accepted(sent(NETWORK, 25, Fraction(1))) and not accepted(sent(NETWORK, 25, Fraction(24, 25)))


def test_a_limit_at_its_capacity_and_one_send_above_it():
    limited = two_boxes((Limit("port", (0, 4), Fraction(16)),)).network()
    assert accepted(sent(limited, 2, EIGHTH)) and not accepted(sent(limited, 3, EIGHTH))
    with pytest.raises(VerificationError, match=r"limit 0 carries 3 chunks, 1/8 rounds allow 2\b"):
        replay.schedule(sent(limited, 3, EIGHTH))


def test_a_wire_at_its_capacity_and_one_send_above_it():
    """Both ranks send to rank 2 through the switch, over one wire."""
    ends = ((0, 3), (1, 3), (3, 2))
    links = tuple(Link(a, b, Fraction(16)) for a, b in ends)
    network = Topology("star", 3, links, (), ("s",), unit=Fraction(1)).network()
    assert network.wires
    task = synth.Collective("custom", 3, (frozenset([0]), frozenset([1])), (frozenset([2]), frozenset([2])))

    def both(chunks: int) -> Schedule:
        sends = [Send(i, i // chunks, 2, "copy", ("s",)) for i in range(2 * chunks)]
        return Schedule(network, task, chunks, (Step(EIGHTH, tuple(sends)),))

    assert accepted(both(1)) and not accepted(both(2))
    with pytest.raises(VerificationError, match=r"carries 4 chunks, 1/8 rounds allow 2\b"):
        replay.schedule(both(2))


def test_a_switch_send_counts_by_parts_of_a_round():
    network = api.topology("switch:4:multicast=through").multicast_network()
    task = collective("broadcast", 4)
    units = min(cap.units for cap in network.caps)

    def copies(chunks: int) -> Schedule:
        sends = tuple(SwitchSend(chunk, 0, (0, 1, 2, 3), "multicast", "switch") for chunk in range(chunks))
        return Schedule(network, task, chunks, (Step(Fraction(3, 2), (), sends),))

    most = 3 * units // 2
    assert accepted(copies(most)) and not accepted(copies(most + 1))
    plain = unicast(copies(most))
    assert plain.steps[0].rounds.denominator in (1, 2) and accepted(plain)


@given(st.integers(0, 400), st.sampled_from([2, 3, 8, 25]), st.data())
def test_it_is_accepted_as_that_of_more_chunks_in_whole_rounds_is(seed, parts, data):
    schedule = randoms.schedule(seed)
    steps = []
    for step in schedule.steps:
        rounds = data.draw(st.integers(1, step.rounds * parts + 2))
        steps.append(Step(whole(Fraction(rounds, parts)), step.sends))
    made = replace(schedule, steps=tuple(steps))
    found, split = accepted(made), accepted(in_whole_rounds(made, parts))
    assert (found is None) == (split is None)
    if found is not None:
        assert split.rounds_per_chunk == found.rounds_per_chunk == made.rounds_per_chunk
    parts = made.parts_of_round
    problem = in_whole_rounds(made, parts).problem
    assert made.problem == problem and type(problem.rounds) is int


# ---------------------------------------------------------------- documents


def test_a_document_is_read_as_it_was_written():
    schedule = pipeline(5)
    document = json.loads(json.dumps(schedule.to_json()))
    assert document["steps"][0]["rounds"] == "1/8"
    again = Schedule.from_json(document)
    assert again == schedule and again.to_json() == document and again.fingerprint == document["fingerprint"]
    assert {type(step.rounds) for step in pipeline(5, Fraction(2)).steps} == {Fraction}
    assert pipeline(5, Fraction(2)).to_json() == pipeline(5, 2).to_json()
    point = json.loads(json.dumps(with_point(schedule).to_json()))["points"][0]
    assert (point["rounds"], point["bandwidth"]) == ("7/8", "7/80")
    assert Point.from_json(point).rounds == Fraction(7, 8)


@pytest.mark.parametrize(
    "rounds", ["6/4", "5/1", "1", "0", "0/3", "-1/2", "1/0", "", "1/2 ", " 1/2", "+1/2", "0.5", "1/8/2", "½", 0.5, True]
)
def test_other_forms_of_rounds_are_refused(rounds):
    document = pipeline(2).to_json()
    document.pop("fingerprint")
    assert replay.schedule(document)
    document["steps"][0]["rounds"] = rounds
    with pytest.raises(VerificationError, match=r"steps\[0\].rounds"):
        replay.schedule(document)


@pytest.mark.parametrize("rounds", [0.5, None, [1], "a half", "1/0"])
def test_what_is_no_number_is_no_schedule(rounds):
    document = pipeline(2).to_json()
    document["steps"][0]["rounds"] = rounds
    with pytest.raises(ValueError):
        Schedule.from_json(document)


def test_parts_too_small_are_refused_soon():
    """20,000 steps without a common part: their sum would have a denominator of millions of digits."""
    document = pipeline(2).to_json()
    document.pop("fingerprint")
    document["steps"][0]["rounds"] = f"1/{MOST_PARTS}"
    assert MOST_PARTS % 8 == 0 and column_replay.by_columns(Schedule.from_json(document)) is None
    with pytest.raises(VerificationError, match="link 0 -> 1 carries 2 chunks"):
        replay.schedule(document)
    for first in (f"1/{MOST_PARTS + 1}", f"1/{10**17 + 3}"):
        rows = [{"rounds": f"1/{10**17 + 3 + i}", "sends": []} for i in range(20_000)]
        long = document | {"steps": [document["steps"][0] | {"rounds": first}, *document["steps"][1:], *rows]}
        began = time.process_time()
        with pytest.raises(VerificationError, match=r"steps\[0\].rounds: .*no common part"):
            replay.schedule(long)
        with pytest.raises(ValueError, match="no common part"):
            Schedule.from_json(long)
        assert time.process_time() - began < 10


def test_a_forged_point_is_refused():
    document = with_point(pipeline(5)).to_json()
    assert api.verify(json.loads(json.dumps(document)))
    point = document["points"][0]
    for key, value in (("rounds", "6/8"), ("rounds", "3/4"), ("rounds", 1), ("rounds", 0.875), ("bandwidth", "3/40")):
        with pytest.raises(VerificationError, match=rf"points\[0\].{key}"):
            api.verify(document | {"points": [point | {key: value}]})
    bound = point["bound"] | {"scope": "this-chunks"}
    with pytest.raises(VerificationError, match=r"bound.scope"):
        api.verify(document | {"points": [point | {"bound": bound}]})
    shorter = json.loads(json.dumps(document))
    for step in shorter["points"][0]["schedule"]["steps"]:
        step["rounds"] = "1/9"
    shorter["points"][0]["schedule"].pop("fingerprint")
    with pytest.raises(VerificationError, match="1/9 rounds allow"):
        api.verify(shorter)


def test_texts_of_rounds():
    assert [name_text(value) for value in (3, Fraction(55, 8))] == ["3", "55_8"]
    assert [number_or_text(value) for value in (3, Fraction(3), Fraction(55, 8))] == [3, 3, "55/8"]


# ---------------------------------------------------------------- what is made of such schedules


def test_pruning_keeps_the_parts_of_a_round():
    schedule = pipeline(4)
    assert prune(schedule) == with_fewest_rounds(schedule) == schedule
    to_one = replace(schedule, collective=synth.Collective("custom", 4, (frozenset([0]),), (frozenset([2]),)))
    fewer = prune(to_one)
    assert fewer.sends == 4 + 3 * 4 and {step.rounds for step in fewer.steps} == {EIGHTH} and accepted(fewer)
    longer = replace(to_one, steps=(to_one.steps[0]._replace(rounds=Fraction(5, 8)), *to_one.steps[1:]))
    assert prune(longer) == fewer
    assert [step.rounds for step in prune(pipeline(4, 2)).steps] == [1] * 6


@given(st.integers(0, 300), st.sampled_from([2, 3, 8]))
def test_pruning_never_adds_rounds(seed, parts):
    schedule = randoms.schedule(seed)
    steps = tuple(step._replace(rounds=whole(Fraction(step.rounds * parts, parts + 1))) for step in schedule.steps)
    made = replace(schedule, steps=steps)
    if accepted(made):
        fewer = prune(made)
        assert accepted(fewer)
        assert all(a.rounds <= b.rounds for a, b in zip(fewer.steps, made.steps, strict=True))


def test_some_chunks_keep_the_parts_of_a_round():
    fewer = FewerChunks(pipeline(5)).of(4)
    assert accepted(fewer) and fewer.chunks == 4 and fewer.parts_of_round == 8 and fewer.rounds <= Fraction(7, 8)


def test_an_allreduce_is_composed_of_parts_of_a_round():
    """Two allgathers of two ranks that take half a round each, of two chunks and of three."""
    network = Topology("pair", 2, (Link(0, 1, Fraction(6)), Link(1, 0, Fraction(6))), unit=Fraction(1)).network()
    parts = []
    for chunks in (2, 3):
        sends = tuple(Send(rank * chunks + i, rank, 1 - rank) for rank in (0, 1) for i in range(chunks))
        parts.append(Schedule(network, collective("allgather", 2), chunks, (Step(Fraction(1, 2), sends),)))
        assert accepted(parts[-1])
    made = rs_ag_composition.compose(*parts, collective("allreduce", 2))
    assert accepted(made) and [step.rounds for step in made.steps] == [1, 1] and made.chunks == 12


def test_a_query_has_no_schedule_in_parts_of_a_round():
    schedule = pipeline(4)
    assert point_query.fit_to_query(schedule, replace(schedule.problem, chunks=8, rounds=6)) is None
    found = point_query.fit_to_query(schedule, schedule.problem)
    assert found is not None and accepted(found).rounds == 6 and {type(s.rounds) for s in found.steps} == {int}
    for rounds in (Fraction(7, 2), 3.5, "7/2"):
        with pytest.raises(UsageError, match="whole numbers"):
            synth.solve("ring:4", "allgather", chunks=2, steps=2, rounds=rounds)


def test_a_sweep_enters_and_resumes_such_a_point_without_a_record(tmp_path):
    for pairs in (4, 6):  # 6: eight steps of 1/8 round are one whole round, and no schedule in whole rounds
        point = with_point(pipeline(pairs)).points[0]
        state = SweepState(NETWORK, point.schedule.collective, Options(), Log(None, "key"))
        assert state.allowed(point.schedule)
        state.add_point(point)
        assert state.points and not state.answers
        records = [json.loads(json.dumps(point_record(point)))]
        (again,) = points_from_records(NETWORK, point.schedule.collective, records)
        assert again.schedule == point.schedule and again.rounds == point.rounds


def test_z3_is_asked_for_whole_rounds():
    network = Topology("wide", 2, (Link(0, 1, Fraction(2)), Link(1, 0, Fraction(1)))).network()
    task = collective("broadcast", 2)
    half = Schedule(network, task, 1, (Step(Fraction(1, 2), (Send(0, 0, 1),)),))
    bound = single_cut_bound(network, task)
    assert accepted(half).rounds_per_chunk == bound.value
    frontier = Frontier(network, task, (Point.of(half, bound, "optimal", "by hand"),))
    (answer,) = cross_check(frontier, Budget(NEVER)).answers
    assert (answer.question, answer.verdict) == ((2, 1, 1), "schedule")


# ---------------------------------------------------------------- commands


@pytest.fixture
def saved(tmp_path, monkeypatch) -> Frontier:
    """A frontier of one point of 7/8 rounds in f.json, in the working directory, and its schedule in s.json."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SYNTH_CACHE", str(tmp_path / "cache"))
    for name in [name for name in os.environ if name.startswith("SYNTH_") and name != "SYNTH_CACHE"]:
        monkeypatch.delenv(name)
    found = with_point(pipeline(5))
    Path("f.json").write_text(json.dumps(found.to_json()))
    Path("s.json").write_text(json.dumps(found.points[0].schedule.to_json()))
    return found


def run(words: str, code: int = 0) -> str:
    """Run `synth` with these words; return what it prints."""
    outcome = CliRunner().invoke(root, words.split())
    assert outcome.exit_code == code, (words, outcome.stdout, outcome.stderr, outcome.exception)
    return outcome.stdout


def test_show_verify_import_and_lint(saved):
    assert "program broadcast-two-boxes-C10-S7-R7_8\n" in run("show f.json --point 1")
    assert "S=7: R/C 7/80 with C=10, 30 sends replayed, bound 1/16" in run("verify f.json")
    assert "schedule: C=10 S=7 R=7/8, 30 sends replayed" in run("verify s.json")
    assert "C=10, S=7, R=7/8: 7/80 rounds per chunk, 30 sends; right (replayed)" in run("import s.json")
    assert "safe at any size" in run("lint s.json")
    assert json.loads(run("audit s.json --format json"))["files"][0]["rounds"] == "7/8"


def test_tables_of_a_frontier_and_a_schedule(saved, capsys):
    tables.print_frontier(saved)
    text = capsys.readouterr().out
    assert [line.split()[:4] for line in text.splitlines() if line.split()[:1] == ["7"]] == [["7", "7/8", "10", "7/80"]]
    tables.print_schedule(saved.points[0].schedule, Cost())
    text = capsys.readouterr().out
    assert "C=10, S=7, R=7/8: 7/80 rounds per chunk" in text and ["1", "1/8", "3"] in [
        row.split()[:3] for row in text.splitlines()
    ]
    assert "7/8" in saved._repr_html_() and "7/8" in saved.points[0].schedule._repr_html_()
    run("report s.json -o s.html")
    assert "7/8" in Path("s.html").read_text()
    choice = tables.choice_document(saved, 1 << 20)
    assert json.loads(json.dumps(choice))["points"][0]["rounds"] == "7/8"


def test_explain(saved):
    for file in ("f.json --point 1", "s.json"):
        text = run(f"explain {file}")
        assert "broadcast on two-boxes: 7 steps, 7/8 rounds, C=10" in text and "why 7/8 rounds and not 0.64" in text
        document = json.loads(run(f"explain {file} --format json"))
        assert document["rounds"] == "7/8"
        total = sum((Fraction(part) for part in document["blame"]["total"].values()), Fraction(0))
        assert total == Fraction(7, 8)


def test_exports(saved):
    run("export f.json --point 1 --assume-root 0 --assume-one-node -o a.xml")
    assert 'name="broadcast-two-boxes-C10-S7-R7_8"' in Path("a.xml").read_text()
    assert run("verify a.xml", 1) == "" and "safe" in run("lint a.xml")
    run("export f.json --point 1 --to mscclpp --assume-root 0 -o a.json")
    assert json.loads(Path("a.json").read_text())["name"] == "broadcast-n4-c10-s7-r7_8"
    run("export f.json --all --assume-root 0 --assume-one-node -o all")
    names = sorted(path.name for path in Path("all").iterdir())
    assert any(name.startswith("01-broadcast-S7-R7_8-C10") and name.endswith(".xml") for name in names), names
    run("export s.json --to chakra -o chakra")
    run("export s.json --to trace -o trace.json")


@pytest.mark.parametrize("file", ["f.json --point 1", "s.json"])
def test_run(saved, file):
    assert "right: 4,000 elements compared, all exactly" in run(f"run {file} --size 4000 --executor reference")


def test_a_catalog_keeps_it(saved):
    with catalog.open("catalog.db", create=True) as store:
        store.put(entry(saved, OPEN))
        again = store.get(entry(saved).id)
    assert again.exact == saved
    run("catalog verify")
    text = run("catalog ls --topo two-boxes --coll broadcast --size 1MB --wide")
    line = next(line for line in text.splitlines() if "7/80" in line)
    assert line.split()[2:6] == ["7", "7/8", "10", "7/80"]
    (row,) = json.loads(run("catalog ls --topo two-boxes --coll broadcast --size 1MB --format json"))
    assert (row["steps"], row["rounds"], row["chunks"], row["bandwidth"]) == (7, "7/8", 10, "7/80")
    assert "7/80" in run(f"catalog show {entry(saved).id}")


PAGE = """
const blocks = JSON.parse(require("fs").readFileSync(0));
(async () => {
  const packed = blocks.entry.algorithms[0].move, machine = blocks.machine;
  const { steps, rounds, total } = await replayOf(packed, machine);
  const document = await scheduleDocument(packed, machine);
  console.log(JSON.stringify({ rounds, most: Math.max(...total), step: [steps[0].rounds, steps[0].text], document }));
})();
"""


def test_the_page_makes_the_document_again(saved):
    page = api.report(saved)
    assert page.wrong == () and "7/80" in page.html
    need("node")
    blocks = {}
    for name in ("entry", "machine"):
        text = page.html.partition(f'<script type="application/json" id="{name}-0">')[2]
        blocks[name] = json.loads(text.partition("</script>")[0])
    script = "".join(html.asset(f"{name}.js") for name in ("numbers", "replay", "files")) + PAGE
    done = subprocess.run(["node", "-e", script], input=json.dumps(blocks), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    schedule = saved.points[0].schedule
    for step in found["document"]["steps"]:
        step["sends"].sort()
    assert found["document"] == schedule.to_json()
    assert (found["rounds"], found["step"]) == (0.875, [0.125, "1/8"])
    assert found["most"] == pytest.approx(5 / (8 * 0.875))  # of the 5 chunks over each link of 8 units
