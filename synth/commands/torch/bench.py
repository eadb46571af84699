"""`synth torch bench`: calls of a job through `synth` and through gloo, interleaved."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from synth.commands.framework.declaration import command, option
from synth.commands.framework.output import emit
from synth.commands.framework.progress import waiting
from synth.commands.framework.shared import Output, sizes_option
from synth.commands.framework.types import Positive
from synth.model.rational import counted

SIZES = (64, 16 << 10, 1 << 20, 16 << 20)


@dataclass(frozen=True, kw_only=True)
class TorchBench(Output):
    """The options of `synth torch bench`."""

    processes: int = option(
        "-n", "--processes", default=2, type=Positive(), show_default=True, metavar="N", help="Ranks, a process each."
    )
    sizes: tuple[int, ...] = sizes_option(
        "LOW, LOW times F, ... up to HIGH, or 1KB,6MB: bytes of the whole data.", "", SIZES, 4, "64,16KiB,1MiB,16MiB"
    )
    pairs: int = option(
        "--pairs", default=30, type=Positive(), show_default=True, metavar="N",
        help="Pairs of calls, one through synth and one through gloo.",
    )  # fmt: skip


@command(TorchBench, brief="Time collectives of a job beside gloo's.")
def bench_command(options: TorchBench) -> None:
    """Time each collective in a job on this machine, through `synth` and through gloo, call by call in turn.

    A program runs where a race has found it faster than gloo; `runs` names it.

    \b
    Example:
      synth torch bench -n 4 --sizes 1KiB:16MiB -o measured.json
    """
    from synth.torch.bench import COLLECTIVES, measure
    from synth.view.frontier_text import Report
    from synth.view.tables import print_report

    rows = []
    with waiting(
        f"{counted(len(COLLECTIVES) * len(options.sizes), 'cell')} of {options.processes} processes", options.quiet
    ):
        rows += measure(options.processes, options.sizes, options.pairs)

    def table() -> None:
        cells = []
        for row in rows:
            times = f"{row.synth * 1e6:.1f}", f"{row.gloo * 1e6:.1f}", f"{row.ratio:.2f}", f"{row.low:.2f}"
            cells.append((row.collective, f"{row.bytes}", *times, row.runs if row.right else f"WRONG: {row.runs}"))
        heads = ("collective", ">bytes", ">synth µs", ">gloo µs", ">ratio", ">at least", "runs")
        sentences = (
            "ratio: gloo's time over that through synth, the median of pairs; at least: its lower 95% bound",
            "µs: medians, each call as long as on its slowest rank",
        )
        print_report(Report.of(f"{options.processes} processes on this machine, float32", heads, cells, sentences))

    emit(lambda: [asdict(row) for row in rows], table, options)
