"""Values in notebooks: their tables, drawings and pages, with every name escaped, and their plots."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

import synth
from synth.errors import MissingDependencyError, UsageError
from synth.model import registry
from synth.model.frontier import Frontier
from synth.program.program import Program
from synth.runtime.benchmark.document import Measured
from synth.runtime.run_result import RunResult

EVIL = "<img src=x onerror=alert(1)>$\\frac"


@pytest.fixture(scope="module")
def found() -> Frontier:
    frontier = synth.frontier("ring:4", "allgather", multicast=False)
    point = frontier.points[0]
    network = replace(frontier.network, name=EVIL)
    schedule = replace(point.schedule, network=network)
    return replace(frontier, machine=network, points=(replace(point, source=schedule),), notes=(EVIL,))


@pytest.fixture(scope="module")
def program(found: Frontier) -> Program:
    return replace(synth.api.lower(found.points[0].schedule), name=EVIL)


@pytest.fixture(scope="module")
def done(program: Program, found: Frontier) -> RunResult:
    ran = synth.run(found.points[0].schedule, size="64KB")
    return replace(ran, program=program)


@pytest.fixture(scope="module")
def measured(found: Frontier) -> Measured:
    return synth.api.bench(found, [1024, 65536], baselines=["ring"])


def test_a_frontier_is_a_table_and_a_page(found):
    text = found._repr_html_()
    table, _, frame = text.partition("<iframe")
    assert table.count("<tr>") == 2
    assert 'sandbox="allow-scripts"' in frame and "allow-same-origin" not in frame
    page = html.unescape(re.search(r'srcdoc="([^"]*)"', frame)[1])
    assert page.startswith("<!DOCTYPE html>") and "Content-Security-Policy" in page and '"sends":24}' in page
    (srcdoc,) = re.findall(r'srcdoc="([^"]*)"', found.points[0].schedule._repr_html_())
    assert '"sends":24}' in html.unescape(srcdoc) and '"lines":[]' in html.unescape(srcdoc)  # the player alone
    large = synth.frontier("torus:4x4", "allgather", engine="flow", time_limit=5)
    assert "<table>" in large._repr_html_() and "<iframe" in large._repr_html_()


def test_machines_and_programs_are_drawn(program):
    machine = replace(synth.topology("dgx1"), name=EVIL)
    drawn = ElementTree.fromstring(machine._repr_svg_())
    assert sum(element.tag.endswith("circle") for element in drawn.iter()) == 8
    assert synth.topology("dgx-h100*128")._repr_svg_() is None
    assert program._repr_html_().count("<g><title>") == program.ops
    many = replace(program, gpus=program.gpus * 100)
    assert many._repr_html_() is None


def test_runs_measurements_and_builds_are_tables(done, measured, tmp_path):
    assert "busiest links" in done._repr_html_()
    assert measured._repr_html_().count("<tr>") == 1 + 4
    made = synth.build("ring:4", "allgather", tmp_path, sizes=["64KB"], time_limit=600)
    assert "<table>" in made._repr_html_() and "<table>" in made.plan._repr_html_()


def test_no_name_becomes_markup(found, program, done, measured):
    machine = replace(synth.topology("dgx1"), name=EVIL)
    shown = [found._repr_html_(), found.points[0].schedule._repr_html_(), program._repr_html_(), done._repr_html_()]
    for text in [*shown, machine._repr_svg_(), measured._repr_html_()]:
        assert "<img" not in text
        for frame in re.findall(r'srcdoc="([^"]*)"', text):
            assert "<img" not in html.unescape(frame)


def test_reprs_are_one_short_line(found, program, done, measured):
    bounds = synth.time_bound("ring:4", "allgather", [1 << k for k in range(10, 20)])
    made = synth.export_program(synth.frontier("ring:4", "allgather"), "msccl-xml")
    for value in (found, program, done, measured, bounds, made, found.points[0].bound):
        assert "\n" not in repr(value) and len(repr(value)) < 160 and repr(value).startswith("<"), repr(value)
    ring = synth.api.baseline("ring", "ring:4", "allgather")
    start = "<RunResult of allgather-ring:4-C2-S3-R3, 1048576 B on reference: 1048576 elements right, "
    assert repr(synth.run(ring)).startswith(start)


def test_plots_are_drawn_in_given_axes(found, done):
    figure = pytest.importorskip("matplotlib.figure", reason="matplotlib is not installed; pip install matplotlib")
    for value in (found, done):
        axes = figure.Figure().subplots()
        assert value.plot(ax=axes) is axes and axes.has_data()
        assert value.plot()._repr_svg_().startswith("<?xml")
    bars = done.plot().axes[0].patches
    busy = done.execution.links[0].busy / done.execution.picoseconds
    assert bars[0].get_height() == pytest.approx(100 * busy)


def test_a_run_without_times_is_not_plotted(program):
    ran = synth.run(program, size="64KB")
    with pytest.raises(UsageError, match="no times of links"):
        ran.plot()


def test_without_matplotlib_a_plot_names_the_command(found, done, monkeypatch):
    monkeypatch.setattr(registry, "installed", lambda module: False)
    for value in (found, done):
        with pytest.raises(MissingDependencyError, match="pip install 'ccl-synth\\[plot\\]'"):
            value.plot()


@pytest.mark.parametrize("name", registry.NOTEBOOK)
def test_every_name_that_values_know_is_there(name):
    assert callable(registry.load(registry.NOTEBOOK[name]))
