"""Static analysis of Programs: the rules of runtimes, the final data, and the sizes at which no rank waits for ever.

The analysis works on Program values alone and shares no code with the lowering or the executors. `check` is the one
entry, `largest_safe_size` the part of it that exporters use. docs/lint.md lists the rules.
"""

from synth.program.analysis.analysis import check
from synth.program.analysis.deadlock import largest_safe_size
from synth.program.analysis.finding import Finding
from synth.program.analysis.report import LintReport

__all__ = ["Finding", "LintReport", "check", "largest_safe_size"]
