"""`synth torch log`: what ran where in a job, by collective and size."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from synth.commands.framework.declaration import command, option
from synth.commands.framework.output import emit
from synth.commands.framework.shared import FILE, Output


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
    from synth.view.frontier_text import Report
    from synth.view.tables import print_report

    summaries = record.read(options.folder)

    def table() -> None:
        rows = []
        for one in summaries:
            times = ["", "", "", ""]
            if one.median and one.fastest is not None:
                rate = one.bytes / one.median / 1e9
                share = (
                    2 * (one.ranks - 1) / one.ranks if one.collective == "allreduce" else (one.ranks - 1) / one.ranks
                )
                times = [f"{one.median * 1e6:.0f}", f"{rate:.3g}", f"{rate * share:.3g}", f"{one.fastest * 1e6:.0f}"]
            rows.append((one.collective, f"{one.bytes}", one.type, f"{one.calls}", *times, one.ran, one.why))
        heads = (
            "collective", ">bytes", "type", ">calls", ">µs", ">GB/s", ">bus GB/s", ">least µs", "ran", "why",
        )  # fmt: skip
        sentences = (
            "µs: the median on the slowest rank; least: on the fastest, which comes last and waits least for others",
        )
        print_report(Report.of(f"a job of {max(one.ranks for one in summaries)} ranks", heads, rows, sentences))

    emit(lambda: [asdict(one) for one in summaries], table, options)
