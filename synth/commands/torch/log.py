"""`synth torch log`: what ran where in a job, by collective and size."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from synth.commands.framework.declaration import command, option
from synth.commands.framework.output import emit
from synth.commands.framework.shared import FILE, Output

if TYPE_CHECKING:
    from synth.torch.record import Summary


@dataclass(frozen=True, kw_only=True)
class TorchLog(Output):
    """The options of `synth torch log`."""

    folder: Path = option("folder", type=FILE, doc="the folder that SYNTH_LOG named.")


@command(TorchLog, brief="Show what ran where in a job.")
def log_command(options: TorchLog) -> None:
    """Show what a job's collectives ran, why, and how long they took: of the FOLDER that SYNTH_LOG named.

    \b
    Example:
      SYNTH_LOG=log torchrun --nproc-per-node 2 train.py && synth torch log log
    """
    from synth.torch import record

    summaries = record.read(options.folder)

    def table() -> None:
        for job, rows in groupby(summaries, key=lambda one: one.job):
            _print(job, list(rows))

    emit(lambda: [asdict(one) for one in summaries], table, options)


def _print(job: str, summaries: list[Summary]) -> None:
    """Print the table of one job."""
    from synth.model.number_text import microseconds, number
    from synth.view.frontier_text import Report
    from synth.view.tables import print_report

    rows = []
    for one in summaries:
        rates = ["", ""]
        if one.transfer:
            rate = one.bytes / one.transfer / 1e9
            steps = 2 if one.collective == "allreduce" else 1
            whole = one.collective in ("broadcast", "reduce")
            rates = [number(rate), number(rate * (1 if whole else steps * (one.ranks - 1) / one.ranks))]
        times = [microseconds(seconds) for seconds in (one.median, one.waiting, one.transfer)]
        late = ""
        if one.latest is not None:
            late = f"{one.latest} ({one.late:.0%}, {microseconds(one.behind)} µs)"
        what = one.group, one.collective, f"{one.bytes}", one.type, f"{one.calls}"
        rows.append((*what, *times, *rates, late, one.ran, one.why))
    heads = (
        "group", "collective", ">bytes", "type", ">calls", ">µs", ">waiting µs", ">transfer µs", ">GB/s", ">bus GB/s",
        "last", "ran", "why",
    )  # fmt: skip
    sentences = (
        "µs: medians, each on the rank where it is longest: of a call, until the last rank came, from then on",
        "last: the rank that came last most often, in how many of the calls, and how long after the one before it",
    )
    title = f"job {job}, {max(one.ranks for one in summaries)} ranks"
    print_report(Report.of(title, heads, rows, sentences))
