"""The pictures of the README, made again: python -m bench.pictures [FOLDER]; those of the report where Chromium is
installed."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import synth
from bench import chromium
from bench.measure import ROOT
from synth.commands import api
from synth.view.drawings.plot import image
from synth.view.drawings.topology_svg import topology_svg

FOLDER = ROOT / "docs" / "img"


def main(arguments: list[str] | None = None) -> int:
    """Write the drawings and plots to a folder, by default docs/img."""
    given = sys.argv[1:] if arguments is None else arguments
    folder = Path(given[0]) if given else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for machine in ("dgx1", "dgx-h100x2"):
        (folder / f"{machine}.svg").write_text(topology_svg(synth.topology(machine)), encoding="utf-8")
    for name, collective, last in (("allgather", "allgather", None), ("broadcast", "broadcast", 8)):
        frontier = synth.frontier("dgx1", collective, max_steps=last, fresh=True, engine="exact")
        assert isinstance(frontier, synth.Frontier)  # what the exact engine returns
        (folder / f"dgx1-{name}.svg").write_bytes(image(frontier.plot(), "svg"))
        points = [f"{p.steps}: {p.rounds_per_chunk}, {p.status}" for p in frontier.points]
        print(f"{folder / f'dgx1-{name}.svg'}: {points}")
    print(chromium.missing() or report_pictures(frontier, folder))
    return 0


def report_pictures(frontier: synth.Frontier, folder: Path) -> str:
    """Draw an entry of `synth report`, its schedule in motion at the second step, and the chart of a plan; returns
    a line on what was written."""
    with tempfile.TemporaryDirectory(prefix="synth-pictures-") as made, chromium.Chromium() as browser:
        page = Path(made) / "report.html"
        page.write_text(api.report(frontier).html, encoding="utf-8")
        browser.window(1040, 1010)
        browser.open(page)
        browser.run("document.querySelectorAll('input[type=radio]')[2].click()")
        browser.wait("document.getElementById('step-text')?.textContent.includes('of 4')")
        browser.wait("document.querySelectorAll('.series.chosen').length > 0")
        (folder / "report.png").write_bytes(browser.picture())
        browser.run("document.getElementById('forth').click()")
        browser.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        (folder / "report-steps.png").write_bytes(browser.picture("[aria-label=Schedule]"))
        plan = api.tune("dgx1", "allreduce", [1 << k for k in range(10, 31)], instances=(1, 2))
        page.write_text(api.report(plan).html, encoding="utf-8")
        browser.open(page)
        browser.run("mode.value = 'bus'; mode.dispatchEvent(new Event('change'))")
        browser.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        (folder / "report-times.png").write_bytes(browser.picture("[aria-label='Time against size']"))
    return f"{folder / 'report*.png'}: the reports of {frontier!r} and {plan!r}"


if __name__ == "__main__":
    sys.exit(main())
