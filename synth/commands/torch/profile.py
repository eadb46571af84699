"""`synth torch profile`: what a step of a training job communicates, and how long it takes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from synth.commands.framework.declaration import command, option
from synth.commands.framework.output import emit
from synth.commands.framework.shared import FILE, Output

if TYPE_CHECKING:
    from synth.torch import profile


@dataclass(frozen=True, kw_only=True)
class TorchProfile(Output):
    """The options of `synth torch profile`."""

    log: Path = option("log", type=FILE, doc="the folder of SYNTH_LOG, or a dump of torch's flight recorder.")
    plan: Path | None = option(
        "--plan", default=None, type=FILE, metavar="FILE",
        help="A plan.json, whose times stand beside those of the log.",
    )  # fmt: skip


@command(TorchProfile, brief="Show what a step of a job communicates.")
def profile_command(options: TorchProfile) -> None:
    """Show which collectives of which sizes and groups a step of a job issues, and their time with the library and
    with the plan: of a LOG, the folder that SYNTH_LOG named or a dump of torch's flight recorder, as JSON or as it is.

    Nothing in a stranger's dump is run.

    \b
    Examples:
      synth torch profile log
      synth torch profile nccl_trace_rank_0 --plan plan.json
    """
    from synth.commands.programs.sources import load_plan
    from synth.model.number_text import microseconds
    from synth.torch import profile
    from synth.view.frontier_text import Report
    from synth.view.tables import print_report

    step = profile.step_of(profile.load(options.log), load_plan(options.plan) if options.plan else None)

    def table() -> None:
        rows = []
        for row in step.rows:
            kind = row.kind
            times = [microseconds(seconds) for seconds in (row.seconds, row.library, row.plan)]
            where = kind.group, f"{kind.ranks or ''}"
            rows.append((kind.collective, f"{kind.bytes}", kind.type, *where, f"{row.calls}", *times, row.ran))
        heads = (
            "collective", ">bytes", "type", "group", ">ranks", ">calls", ">µs", ">library µs", ">plan µs", "ran",
        )  # fmt: skip
        title = f"a step of {step.period} calls" if step.period else "all calls, whose order does not repeat"
        if step.seconds:
            title += f", {step.seconds * 1e3:.3g} ms"
        print_report(Report.of(title, heads, rows, _sums(step)))

    emit(lambda: asdict(step), table, options)


def _sums(step: profile.StepProfile) -> list[str]:
    """Return a sentence for each sum of times, over the rows that have it."""
    said = ["µs: of one call, the median as it ran, by the library, and by the best program of the plan"]
    for name, what in (("seconds", "as it ran"), ("library", "by the library"), ("plan", "by the plan")):
        known = [row for row in step.rows if getattr(row, name) is not None]
        if not known:
            continue
        total = sum(row.calls * getattr(row, name) for row in known)
        share = f", {total / step.seconds:.0%} of the step" if step.seconds and name == "seconds" else ""
        said.append(f"{what}: {total * 1e3:.3g} ms for {sum(row.calls for row in known)} calls{share}")
    return said
