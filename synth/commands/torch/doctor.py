"""`synth torch doctor`: what a job on this machine can use, and what is missing."""

from __future__ import annotations

from dataclasses import dataclass

from synth.commands.framework.declaration import command
from synth.commands.framework.progress import waiting
from synth.commands.framework.shared import Quiet
from synth.errors import SynthError


@dataclass(frozen=True, kw_only=True)
class Doctor(Quiet):
    """The options of `synth torch doctor`."""


@command(Doctor, brief="Say what a job on this machine can use.")
def doctor_command(options: Doctor) -> None:
    """Check what a PyTorch job on this machine can use: versions, the compiler, shared memory, the plan, and a few
    calls of each collective beside gloo's.

    \b
    Example:
      SYNTH_PLAN=algorithms synth torch doctor
    """
    from synth.torch.bench import measure
    from synth.torch.doctor import facts
    from synth.view.frontier_text import Report
    from synth.view.tables import print_report

    found = facts()
    rows = [(fact.what, fact.found, fact.remark) for fact in found]
    print_report(Report.of("PyTorch jobs on this machine", ("what", "found", "remark"), rows))
    missing = [fact.what for fact in found if fact.fatal]
    if missing:
        raise SynthError(
            f"no program runs in a PyTorch job here, for {', '.join(missing)}; the library carries out all"
        )
    with waiting("calls of each collective on 2 processes"):
        calls = list(measure(2, (1 << 20,), pairs=5))
    for row in calls:
        print(f"{row.collective}: {row.runs}, {row.synth * 1e6:.0f} µs; gloo {row.gloo * 1e6:.0f} µs")
    wrong = [row.collective for row in calls if not row.right]
    if wrong:
        raise SynthError(f"wrong elements in {', '.join(wrong)}")
