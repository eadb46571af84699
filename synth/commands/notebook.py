"""Values in notebooks: the tables of the command line, and the page of `synth report` in a frame.

The page draws machines, stairs of bounds and the step player with its own script, in a frame that may run scripts and
nothing else: it has no access to the notebook. Values know these functions by name (`synth.model.registry.NOTEBOOK`).
"""

from __future__ import annotations

from dataclasses import replace
from html import escape

from synth.model.build_result import BuildResult
from synth.model.frontier import Frontier
from synth.model.schedule import Schedule
from synth.model.topology import Topology
from synth.program.program import Program
from synth.view.frontier_text import Report
from synth.view.tables import report_html

# Maximum characters of a packed schedule in a frame; a report has larger ones.
ROOM = 400_000
# Maximum links of a machine, and instructions of a program, that are drawn.
MOST_LINKS, MOST_OPS = 2_000, 1_500
HEIGHT = 640  # of a frame, pixels


def topology_svg(machine: Topology) -> str | None:
    """Return the drawing of a machine; None where it has more than `MOST_LINKS` links."""
    from synth.view.drawings.topology_svg import topology_svg as drawing

    return drawing(machine) if len(machine.links) <= MOST_LINKS else None


def frontier_html(found: Frontier) -> str:
    """Return the table of a frontier, and its page."""
    from synth.view import frontier_text

    title = f"{found.collective_name} on {found.machine.name}"
    return report_html(frontier_text.report(found)) + _frame(found, title)


def schedule_html(schedule: Schedule) -> str:
    """Return the page of a schedule, with the step player."""
    title = f"{schedule.collective.name} on {schedule.network.name}"
    return _frame(schedule, title, times=False)


def _frame(value: Frontier | Schedule, title: str, times: bool = True) -> str:
    from synth.catalog.report import collect
    from synth.view.page import html
    from synth.view.page.frontier_section import Times

    # In a notebook the page is a frame of limited size: large schedules are left out.
    sheets = collect([value], verify=False).sheets
    if not times:
        sheets = [replace(sheet, times=Times()) for sheet in sheets]
    page = html.page(sheets, title, room=ROOM)
    style = f"width:100%;height:{HEIGHT}px;border:1px solid #ccc"
    return f'<iframe sandbox="allow-scripts" title="{escape(title)}" style="{style}" srcdoc="{escape(page)}"></iframe>'


def program_html(program: Program) -> str | None:
    """Return the space-time diagram of a program; None where it has more than `MOST_OPS` instructions."""
    from synth.view.drawings.space_time_diagram import program_svg

    if program.ops > MOST_OPS:
        return None
    return f'<div style="overflow:auto;max-height:{HEIGHT}px">{program_svg(program)}</div>'


def run_html(doc: dict) -> str:
    """Return the table of a run, of its document."""
    from synth.view import run_table

    return report_html(run_table.execution(doc))


def measured_html(doc: dict) -> str:
    """Return the table of measurements, of their document."""
    from synth.view import run_table

    return report_html(run_table.measured(doc))


def build_html(result: BuildResult) -> str:
    """Return the tables of a build."""
    from synth.view import build

    return _tables(build.reports(result))


def _tables(reports: list[Report]) -> str:
    return "".join(map(report_html, reports))
