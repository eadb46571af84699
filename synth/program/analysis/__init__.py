"""Static analysis of Programs: whose rules a runtime enforces, what the data end as, and at which sizes nothing waits
for ever.

Works on Program values alone and shares no code with what makes or runs them: `check` is the one entry, `safe_sizes`
the part of it that exporters ask for. docs/lint.md lists the rules.
"""

from synth.program.analysis.analysis import check
from synth.program.analysis.deadlock import safe_sizes
from synth.program.analysis.finding import Finding
from synth.program.analysis.report import Report

__all__ = ["Finding", "Report", "check", "safe_sizes"]
