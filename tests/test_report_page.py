"""The page of a report in headless Chromium: it opens without errors and requests, its controls work, it fits a
phone."""

from __future__ import annotations

import json
import time
from fractions import Fraction

import pytest
from test_report import measured, named

from bench import chromium
from synth.checker.schedule.replay import schedule as replayed
from synth.commands import api
from synth.model.collective import Collective
from synth.model.frontier import Frontier, LowerBound, Point
from synth.model.schedule import Schedule, Send, Step
from synth.model.topology import Limit, Link, Topology
from synth.view.page import html
from synth.view.page.sections import EntryContext, of_schedule
from tests.needs import need

HOSTILE = "</script><img src=x onerror=window.hacked=1><svg onload=window.hacked=1>"


def allreduce() -> Frontier:
    """Copies, sums, and inputs sent by a rank that has summed already: what it sends then is its own alone."""
    network, task = api.topology("line:3").network(), api.collective("allreduce", 3)
    back = Send(1, 1, 0, "reduce-input")
    steps = (
        Step(2, (Send(0, 0, 1, "reduce"), Send(1, 2, 1, "reduce"))),
        Step(2, (Send(0, 1, 2, "reduce-input"), Send(0, 2, 1, "reduce"), Send(1, 0, 1, "reduce"), back)),
        Step(2, (Send(0, 1, 0), Send(0, 1, 2), Send(1, 1, 0), Send(1, 1, 2))),
    )
    made = Schedule(network, task, 2, steps)
    replayed(made.to_json())  # it is right, or this raises
    point = Point.of(made, LowerBound(Fraction(1), {"kind": "none"}), "by hand")
    return Frontier(network, task, (point,))


# Of the first point, in µs the power of two that the size is.
ROWS = [
    {"program": 0, "size": 1 << k, "in_place": False, "seconds": 1e-6 * k, "least": 9e-7 * k, "most": 2e-6 * k}
    for k in (10, 20)
]


@pytest.fixture(scope="module")
def browser():
    need("chromium")
    with chromium.Chromium() as made:
        yield made


@pytest.fixture(scope="module")
def gather(tmp_path_factory) -> Frontier:
    return api.frontier("dgx1", "allgather", jobs=1, engine="exact", log=tmp_path_factory.mktemp("log") / "log")  # type: ignore[return-value]


@pytest.fixture(scope="module")
def path(gather, tmp_path_factory):
    """Entries: 1 an allgather with measurements, 2 an allreduce, 3 with hostile names, 4 of the flow engine, 5 with
    switches."""
    folder = tmp_path_factory.mktemp("report")
    few = measured()["programs"][0] | {"label": "point 1"}
    (folder / "measured.json").write_text(json.dumps(measured(programs=[few], rows=ROWS)))
    large = api.frontier("dgx-h100*2", "allgather", engine="flow")
    switched = api.frontier(
        "fat-tree:4", "allgather", max_steps=2, jobs=1, engine="exact", log=tmp_path_factory.mktemp("log") / "log"
    )
    given = [gather, allreduce(), named(gather, HOSTILE), large, switched, folder / "measured.json"]
    page = api.report(given, title=HOSTILE, verify=False)  # type: ignore[arg-type]
    assert page.entries == 5 and page.wrong == ()
    (folder / "report.html").write_text(page.html)
    return folder / "report.html"


@pytest.fixture
def at(browser, path):
    """`at(k)` opens entry k in a fresh page; without k the list."""

    def go(entry: int | None = None, width: int = 1200, height: int = 900, dark: bool = False):
        browser.window(width, height, dark)
        browser.open(path, f"#{entry}" if entry else "")
        if entry:
            browser.wait("!!document.querySelector('#stage').textContent")
            browser.run(
                "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
            )  # plots have taken their room
        return browser

    yield go
    assert browser.complaints() == []
    assert {url.partition("#")[0] for url in browser.requests()} <= {path.resolve().as_uri(), "about:blank"}


def text(page, selector: str) -> str:
    return page.run(f"document.querySelector({selector!r}).textContent")


def texts(page, selector: str) -> list[str]:
    return page.run(f"[...document.querySelectorAll({selector!r})].map(e => e.textContent)")


def count(page, selector: str) -> int:
    return page.run(f"document.querySelectorAll({selector!r}).length")


def enter(page, name: str, value: object, event: str = "change") -> None:
    """Give a control of this id a value, as its user does."""
    change = f"e.value = {str(value)!r}; e.dispatchEvent(new Event({event!r}))"
    page.run(f"(e => {{ {change} }})(document.getElementById({name!r}))")


def focus(page, selector: str) -> None:
    page.run(f"document.querySelector({selector!r}).focus()")


def box(page, selector: str) -> list[float]:
    """Scroll to an element; return its left, top, width and height in the window."""
    return page.run(
        f"(e => {{ e.scrollIntoView({{block: 'center'}}); const b = e.getBoundingClientRect();"
        f" return [b.x, b.y, b.width, b.height] }})(document.querySelector({selector!r}))"
    )


def press(page, selector: str) -> None:
    """A click of the mouse in the middle of an element."""
    x, y, width, height = box(page, selector)
    page.point(x + width / 2, y + height / 2, click=True)


def point_at_link(page, link: int, share: float) -> None:
    """The mouse on the line of a link, at a share of its length."""
    x, y = page.run(
        f"(e => {{ e.scrollIntoView({{block: 'center'}}); const p = e.getPointAtLength(e.getTotalLength() * {share})"
        f".matrixTransform(e.getScreenCTM()); return [p.x, p.y] }})(document.querySelector('[data-link=\"{link}\"]'))"
    )
    page.point(x, y)


def message(page) -> str:
    return text(page, "#step-text")


def gauges(page) -> list[int]:
    """Return how much each rank has of what it must have, in percent."""
    shares = page.run("[...document.querySelectorAll('.gauge')].map(g => g.getAttribute('stroke-dasharray'))")
    return [round(float(share.split()[0])) for share in shares]


def shown(browser, folder, report):
    """The page of a report of one entry, opened."""
    (folder / "r.html").write_text(api.report(report).html)
    browser.window(1200, 900)
    browser.open(folder / "r.html")
    browser.wait("!!document.querySelector('#sends button')")
    return browser


def test_nothing_can_be_asked_of_a_network(at, path):
    page = at(1)
    image = (
        "new Promise(done => { const e = document.createElement('img'); e.onload = () => done('loaded');"
        " e.onerror = () => done('refused'); e.src = 'data:image/gif;base64,R0lGODlhAQABAAAAACw=';"
        " document.head.append(e) })"
    )
    markup = "(() => { try { document.body.innerHTML = '<b>x</b>'; return 'set' } catch { return 'refused' } })()"
    fetched = "fetch({}).then(() => 'answered', () => 'refused')"
    fetches = fetched.format("'https://example.com'"), fetched.format("location.href")
    assert [page.run(attempt) for attempt in (*fetches, image, markup)] == ["refused"] * 4
    assert any("Content Security Policy" in said for said in page.complaints())
    page.open(path)  # what this test did wrong on purpose is no complaint about the page


def test_names_are_shown_and_never_run(at):
    page = at()
    assert text(page, "#title") == HOSTILE == page.run("document.title") and HOSTILE in texts(page, ".list a")
    assert HOSTILE in text(at(3), "h2")
    assert page.run("typeof window.hacked") == "undefined" and count(page, "img, [onerror], [onload]") == 0


def test_search_filters_and_sorting(at):
    page = at()
    rows = "[...document.querySelectorAll('.list tbody tr')].map(r => [...r.children].map(c => c.textContent))"
    enter(page, "search", "FAT-tree", "input")
    assert [row[0] for row in page.run(rows)] == ["fat-tree:4"] and text(page, "#count") == "1 of 5 entries"
    enter(page, "search", "", "input")
    enter(page, "filter-collective", "allreduce")
    assert [row[2] for row in page.run(rows)] == ["allreduce"]
    enter(page, "filter-collective", "")
    press(page, ".list th:nth-child(2) button")
    ranks = [int(row[1]) for row in page.run(rows)]
    assert ranks == sorted(ranks) and len(set(ranks)) > 1
    assert page.run("document.querySelector('.list th:nth-child(2)').ariaSort") == "ascending"
    press(page, ".list th:nth-child(2) button")
    assert [int(row[1]) for row in page.run(rows)] == sorted(ranks, reverse=True)
    press(page, ".list tbody tr:last-child a")
    page.wait("location.hash === '#2'")
    page.wait("document.querySelector('h2')?.textContent.startsWith('allreduce on line:3')")
    page.run("history.back()")
    page.wait("!!document.querySelector('.list')")
    assert [int(row[1]) for row in page.run(rows)] == sorted(ranks, reverse=True)  # what was asked for is kept


def test_long_lists_are_drawn_in_parts(browser, tmp_path):
    sheets = [of_schedule(allreduce().points[0].schedule, EntryContext(f"{k}")) for k in range(301)]
    (tmp_path / "r.html").write_text(html.page(sheets))
    browser.window(1200, 900)
    browser.open(tmp_path / "r.html")
    assert count(browser, ".list tbody tr") == 300 and text(browser, "#count") == "301 entries"
    press(browser, "#more")
    assert count(browser, ".list tbody tr") == 301 and browser.run("document.getElementById('more').hidden") is True


def test_buttons_step_through_the_schedule(at, gather):
    page = at(1)
    says = [f"step {t} of 2: {step.rounds} round{'s' * (step.rounds > 1)}, {len(step.sends)} sends"
            for t, step in enumerate(gather.points[0].schedule.steps, 1)]  # fmt: skip
    assert message(page) == says[0]
    first = texts(page, ".token")
    press(page, "#forth")
    assert message(page) == says[1] and texts(page, ".token") != first
    assert page.run("document.getElementById('forth').disabled") is True
    press(page, "#back")
    assert message(page).startswith("step 1") and texts(page, ".token") == first
    press(page, "#first")
    assert message(page) == "before step 1 of 2" and texts(page, ".token") == []
    assert gauges(page) == [12] * 8  # every rank begins with its own
    press(page, "#end")
    assert message(page).startswith("step 2") and gauges(page) == [100] * 8


def test_sums_are_replayed_as_they_are_added(at):
    page = at(2)
    seen = []
    for _ in range(4):
        seen.append(gauges(page))
        page.press("ArrowRight")
    assert seen == [[33, 67, 33], [50, 100, 50], [100, 100, 100], [100, 100, 100]]


def test_an_input_that_is_added_again_travels_no_link_and_counts(browser, tmp_path):
    """Rank 1 passes 0's input on to 2 and then adds its own: one token moves in the second step, and rank 1 ends with
    all it wants."""
    network, one, two = api.topology("line:3").network(), frozenset({0, 1}), frozenset({0, 2})
    task = Collective("sums", 3, (frozenset({0, 1, 2}),), (frozenset({1, 2}),), True, (), (((1, one), (2, two)),))
    steps = (Step(1, (Send(0, 0, 1),)), Step(1, (Send(0, 1, 1, "reduce-input"), Send(0, 1, 2, "reduce"))))
    made = Schedule(network, task, 1, steps)
    replayed(made.to_json())
    page = shown(browser, tmp_path, made)
    seen = []
    for _ in steps:
        seen.append((gauges(page)[1:], count(page, ".token")))
        page.press("ArrowRight")
    assert seen == [([50, 50], 1), ([100, 100], 1)]  # after each step, and what moved in it
    assert page.complaints() == []


def test_the_keyboard_steps_plays_and_pauses_and_moves_the_slider(at):
    page = at(1)
    page.press("ArrowRight")
    assert message(page).startswith("step 2")
    page.press("ArrowLeft")
    page.press("ArrowLeft")
    assert message(page).startswith("before")
    focus(page, "#step")
    page.press("ArrowRight")
    assert message(page).startswith("step 1")
    assert page.run("document.getElementById('step').getAttribute('aria-valuetext')") == message(page)
    focus(page, "#play")
    page.press("End")
    assert message(page).startswith("step 2")
    page.press("Home")
    assert message(page).startswith("before")
    page.press("Enter")
    assert text(page, "#play") == "pause"
    page.press(" ")
    assert text(page, "#play") == "play"


def test_play_goes_through_all_steps_and_stops(at):
    page = at(1)
    enter(page, "speed", 4)
    press(page, "#first")
    press(page, "#play")
    page.wait("document.getElementById('step-text').textContent.startsWith('step 1')")
    where = "document.querySelector('.token').getAttribute('transform')"
    before = page.run(where)
    page.wait(f"{where} !== {before!r}")  # what travels has moved
    page.wait("document.getElementById('step-text').textContent.startsWith('step 2')")
    page.wait("document.getElementById('play').textContent === 'play'")
    assert message(page).startswith("step 2")


def test_pointing_tells_which_chunk_goes_where(at, gather):
    page = at(1)
    schedule = gather.points[0].schedule
    step = schedule.steps[0]
    link, route = next(
        (k, r)
        for k, r in enumerate(schedule.network.routes)
        if any((s.src, s.dst) == (r.src, r.dst) for s in step.sends)
    )
    going = sorted(s.chunk for s in step.sends if (s.src, s.dst) == (route.src, route.dst))
    room = route.units * step.rounds
    point_at_link(page, link, 0.4)
    said = text(page, "#info")
    assert said.startswith(
        f"{route.src} → {route.dst} ({25 * route.units} GB/s), step 1: {len(going)} of {room} sends, "
        f"{100 * len(going) // room}%"
    )
    assert f"rank {route.src}'s data: chunk{'s' * (len(going) > 1)} {', '.join(map(str, going))}" in said
    assert count(page, ".wire.lit") == 1 and text(page, "#sends .lit").startswith(f"{route.src} → {route.dst}")


def test_the_list_of_sends_tells_the_same_by_keyboard(at):
    page = at(1)
    first, second = texts(page, "#sends b")[:2]
    focus(page, "#sends button")
    assert text(page, "#info").startswith(f"{first} (")
    page.press("ArrowDown")
    assert text(page, "#info").startswith(f"{second} (") and first != second
    assert page.run("document.activeElement.textContent").startswith(second)
    assert count(page, "#sends [tabindex='0']") == 1
    x, y, *_ = box(page, "[data-rank='3']")
    page.point(x + 9, y + 9)
    assert text(page, "#info").startswith("rank 3 ")
    page.point(1, 1)
    assert text(page, "#info").startswith(f"{second} (")  # as the focus is still there
    page.press("ArrowRight")
    assert message(page).startswith("step 2")  # arrows still step


def test_loads_are_coloured_by_step_and_in_total(at):
    page = at(2)
    heat = "[...document.querySelectorAll('.wire')].map(w => w.getAttribute('class'))"
    assert page.run(heat) == ["wire h3", "wire", "wire", "wire h3"]  # 0→1, 1→0, 1→2, 2→1: one send of two
    enter(page, "loads", "total")
    assert page.run(heat) == ["wire h2", "wire h3", "wire h3", "wire h2"]  # two and three sends of six
    assert text(page, '[data-cell="0 1"]') == "0 → 1: step 2, 1 send of 2, 50%"
    press(page, '[data-cell="0 1"]')
    assert message(page).startswith("step 2") and page.run("document.getElementById('loads').value") == "step"


def test_limits_are_shown_beside_their_links(browser, tmp_path):
    links = [Link(a, b, Fraction(1)) for a, b in ((0, 1), (1, 0), (0, 2), (2, 0))]
    machine = Topology("hub", 3, tuple(links), (Limit("out", (0, 2), Fraction(1)),))
    made = api.frontier(machine, "broadcast", max_steps=1, jobs=1, engine="exact", log=tmp_path / "log")
    page = shown(browser, tmp_path, made)
    focus(page, "#sends button")
    said = text(page, "#info")
    assert said.startswith("0 → 1 (1 GB/s), step 1: ") and '(limit "all out of 0": 100%)' in said
    assert texts(page, ".heat text")[2].startswith("all ")  # after the heads: limits come before links


def test_sends_through_a_switch_follow_each_other(browser, tmp_path):
    found = api.frontier("dgx-a100", "allgather", max_steps=1, jobs=1, engine="exact", log=tmp_path / "log")
    page = shown(browser, tmp_path, found)
    assert count(page, ".wire") == 16  # a port in and out for each rank
    for each, attribute, different in ((".token", "transform", 56), (".wire", "class", 1)):
        every = f"[...document.querySelectorAll('{each}')].map(e => e.getAttribute('{attribute}'))"
        assert len(set(page.run(every))) == different
    focus(page, "#sends button")
    assert text(page, "#info").startswith("0 → 1 through switch (300 GB/s), step 1")
    assert page.complaints() == []


def test_one_rank_s_data_can_be_followed(at):
    page = at(1)
    enter(page, "follow", 5)
    sends = texts(page, "#sends button")
    assert sends and all("rank 5's data" in send for send in sends) and len(sends) == count(page, ".token")


def test_the_frontier_tells_what_is_pointed_at_and_zooms(at):
    page = at(4)
    focus(page, "[data-point='0']")
    assert text(page, "[aria-label=Frontier] .note") == text(page, "[data-point='0'] title")
    every = texts(page, "[aria-label=Frontier] .tick")
    x, y, *_ = box(page, "[aria-label=Frontier] .plot")
    page.drag((x + 70, y + 20), (x + 200, y + 20))
    assert texts(page, "[aria-label=Frontier] .tick") != every
    press(page, "[aria-label=Frontier] > button")
    assert texts(page, "[aria-label=Frontier] .tick") == every


def test_two_algorithms_are_compared(at, gather):
    page = at(1)
    enter(page, "compare", 1)
    rows = "[...document.querySelectorAll('[aria-label=\"differences between two algorithms\"] tbody tr')]"
    page.wait(f"{rows}.length > 5")
    found = {row[0]: row[1:] for row in page.run(f"{rows}.map(r => [...r.children].map(c => c.textContent))")}
    assert found["rounds/chunk"] == ["3/2", "7/6", "× 0.778"] and found["status"] == ["optimal", "optimal", "same"]
    counts = [sum(len(step.sends) for step in point.schedule.steps) for point in gather.points]
    assert found["sends"][:2] == [str(count) for count in counts] and found["links in use"] == ["32", "32", "same"]
    said = "By synchronous steps 2 steps is faster up to 410 KB, 3 steps from there on."
    assert said in text(page, "[aria-label=Differences]")
    press(page, "tbody tr:nth-child(2) input[type=radio]")
    page.wait("document.querySelector('[aria-label=Differences]').textContent.includes('chosen algorithm itself')")


def downloaded(page, folder, name: str) -> str:
    """Press a button of the entry's files; return the content of the file that the browser saves."""
    before = set(folder.iterdir())
    page.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
    page.run(f"[...document.querySelectorAll('button')].find(b => b.textContent === {name!r}).click()")
    for _ in range(500):
        new = [file for file in set(folder.iterdir()) - before if file.suffix not in (".crdownload", ".tmp")]
        if new and new[0].stat().st_size:
            return new[0].read_text()
        time.sleep(0.02)
    raise AssertionError(f"no file came of {name}")


@pytest.mark.parametrize("entry", [1, 2, 5])
def test_schedules_are_downloaded_as_documents(at, gather, entry, tmp_path):
    page = at(entry)
    page.wait("!!document.querySelector('#sends button')")
    doc = json.loads(downloaded(page, tmp_path, "schedule (JSON)"))
    replayed(doc)
    if entry == 5:
        assert any(len(send) == 5 for step in doc["steps"] for send in step["sends"])  # through switches
        return
    made = gather.points[0].schedule.to_json() if entry == 1 else allreduce().points[0].schedule.to_json()
    for step in (*doc["steps"], *made["steps"]):
        step["sends"].sort()
    assert doc == made


def test_tables_and_drawings_are_downloaded(at, tmp_path):
    page = at(1)
    page.wait("!!document.querySelector('#machine')")
    assert downloaded(page, tmp_path, "algorithms (CSV)").splitlines()[1].startswith('"2","3","2","3/2","optimal"')
    times = downloaded(page, tmp_path, "times (CSV)").splitlines()
    assert times[0].split(",")[0] == '"bytes"' and times[1].startswith('"1024"')
    assert downloaded(page, tmp_path, "machine (SVG)").startswith("<svg ")


def test_entries_have_titles_and_lead_to_their_kin(at):
    page = at(1)
    assert page.run("document.title") == f"allgather on dgx1-v100 · {HOSTILE}"
    links = page.run("[...document.querySelectorAll('.links a')].map(a => [a.textContent, a.hash])")
    assert [hash for _, hash in links] == ["#3", "#4", "#5"] and links[0][0] == HOSTILE
    page.run("location.hash = '#2'")
    page.wait("document.title.startsWith('allreduce on line:3')")
    page.run("location.hash = ''")
    page.wait("document.title === document.getElementById('title').textContent")


@pytest.mark.parametrize("way", ["row", "dot", "key"])
def test_another_algorithm_is_chosen(at, way):
    page = at(1)
    if way == "row":
        press(page, "tbody tr:nth-child(2) input[type=radio]")
    elif way == "dot":
        press(page, '[data-point="1"] .dot')
    else:
        focus(page, "[data-point='1']")
        page.press("Enter")
    page.wait("document.getElementById('step-text').textContent.includes('of 3')")
    assert text(page, "tr.chosen").startswith("376")  # steps, rounds, ...
    page.wait("document.querySelectorAll('.series.chosen.s1').length === 1")


def test_times_are_read_with_the_slider(at):
    page = at(1)
    assert count(page, ".mark") == 2
    cells = ".map(r => [...r.children].slice(1).map(c => c.textContent))"
    rows = f"[...document.querySelectorAll('[aria-label=\"times at this size\"] tbody tr')]{cells}"
    found = {row[0]: row[1:] for row in page.run(rows)}
    assert found["3 steps predicted, synchronous steps"] == ["8.22 µs", "128", "112"]
    assert found["lower bound proved, synchronous steps"] == ["8.22 µs", "128", "112"]
    assert found["point 1 measured at 1 MB"] == ["20 µs", "52.4", "45.9"]
    focus(page, "#size")
    page.press("Home")
    found = {row[0]: row[1:] for row in page.run(rows)}
    assert found["2 steps predicted, synchronous steps"][0] == "1.41 µs" and "point 1 measured at 1 KB" in found


def test_the_chart_is_read_and_zoomed_with_the_mouse(at):
    page = at(1)
    x, y, width, _ = box(page, ".pair > section .plot")
    page.point(x + 62, y + 100)
    assert text(page, "output[for=size]") == "1 KB" and "1 GB" in texts(page, ".plot .tick")
    page.drag((x + 62, y + 100), (x + (62 + width - 14) / 2, y + 100))  # the left half
    ticks = texts(page, ".plot .tick")
    assert "1 GB" not in ticks and "1 KB" in ticks
    press(page, "[aria-label='all sizes']")
    assert "1 GB" in texts(page, ".plot .tick")
    enter(page, "size", 100, "input")
    press(page, "[aria-label='zoom in around the size']")
    assert "1 GB" not in texts(page, ".plot .tick") and text(page, "output[for=size]") == "1 MB"


def test_the_chart_shows_bandwidth(at):
    page = at(1)
    for name in ("rate", "bus"):
        enter(page, "mode", name)
        ticks = texts(page, ".plot .tick")
        assert "GB/s" in ticks and "0" in ticks and "time" not in ticks
    heights = page.run("document.querySelector('.plot .series.chosen').getBBox().height")
    assert heights > 50  # from almost nothing at 1 KB to near the rate of the links at 1 GB


def test_large_frontiers_have_rates_but_no_player(at):
    page = at(4)
    assert count(page, "#player") == 0 and "not drawn" in text(page, "#stage")
    point_at_link(page, 0, 0.5)
    assert text(page, "#stage .info") == "0 → switch 0: 450 GB/s"
    assert count(page, ".series") > 2 and count(page, ".dot") > 2


@pytest.mark.parametrize("entry", [None, 1, 2, 3, 4, 5])
def test_it_fits_a_phone(at, entry):
    page = at(entry, 360, 740)
    assert text(page, "h2" if entry else "#title") != ""
    assert page.run("document.documentElement.scrollWidth") <= 360
    small = page.run(
        "[...document.querySelectorAll('button, select, input[type=range]')].filter(e => e.offsetParent"
        " && !e.closest('.list') && e.getBoundingClientRect().height < 28).length"
    )
    assert small == 0  # what a finger must hit


def test_every_control_has_a_name_and_shows_the_focus(at):
    page = at(1)
    nameless = page.run(
        "[...document.querySelectorAll('button, select, input, [role=button]')].filter(e => !(e.textContent.trim() "
        "|| e.ariaLabel"
        " || e.labels?.length)).map(e => e.outerHTML.slice(0, 80))"
    )
    assert nameless == []
    for _ in range(4):
        page.press("Tab")
    assert page.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_dark_where_that_is_preferred(at):
    paper = "getComputedStyle(document.body).backgroundColor"
    assert at(1).run(paper) == "rgb(255, 255, 255)"
    assert at(1, dark=True).run(paper) == "rgb(20, 24, 30)"
