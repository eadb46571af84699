"""`LintReport`: the results of one analysis, as text and JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from synth.model.number_text import bytes_text
from synth.model.rational import counted
from synth.program.analysis.finding import SEVERITIES, Finding

SCHEMA = "synth.lint/1"
SHOWN = 20  # findings of one rule that are printed; the others are counted
WORDS = {"out": "out of place", "in": "in place"}


@dataclass(frozen=True)
class LintReport:
    """The results of one analysis of a program, of `collective` (None: the file names none) on `ranks` ranks.

    `safe`: the largest size in bytes at which no rank waits for ever, for default buffer sizes (None: any size, 0:
    none). It says nothing about other faults: see `ok`. `analysed`: the modes (``out``, ``in``) whose data flow was
    followed to the end. `outputs`: the output chunks compared with the collective's demand in each mode. `accesses`:
    the accesses to memory that were proved to be ordered, in all modes together.
    """

    name: str
    collective: str | None
    ranks: int
    runtime: str
    findings: tuple[Finding, ...]
    safe: int | None
    analysed: tuple[str, ...]
    outputs: int
    accesses: int
    ops: int

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that make the program wrong or unloadable."""
        return tuple(f for f in self.findings if f.severity == "error")

    @property
    def ok(self) -> bool:
        """True if there is no error."""
        return not self.errors

    @property
    def ranked(self) -> list[Finding]:
        """The findings, worst first."""
        return sorted(self.findings, key=lambda f: SEVERITIES.index(f.severity))

    def lines(self) -> Iterator[str]:
        """Yield the findings, worst first, then the safe sizes, the proved properties, and what was judged."""
        seen: Counter[str] = Counter()
        for finding in self.ranked:
            seen[finding.rule] += 1
            if seen[finding.rule] <= SHOWN:
                yield str(finding)
        for rule, n in sorted(seen.items()):
            if n > SHOWN:
                yield f"... and {n - SHOWN} more [{rule}]"
        sizes = "at any size" if self.safe is None else "at no size"
        if self.safe:
            sizes = f"up to {size_text(self.safe)}"
        wrong = len(self.errors)
        result = f"safe {sizes}" if not wrong or self.safe == 0 else f"no rank waits for ever {sizes}"
        if wrong:
            result = f"wrong: {wrong} error{'' if wrong == 1 else 's'}; {result}"
        yield f"{result} (runtime {self.runtime}, its default buffer sizes)"
        if self.ok and self.analysed:
            modes = " and ".join(WORDS[mode] for mode in self.analysed)
            proved = f"all {self.outputs} output chunks right" if self.outputs else "no race (outputs not compared)"
            yield (
                f"proved {modes}, in every order of execution of {self.ops} steps: {proved}, {self.accesses} "
                f"accesses ordered"
            )
        yield f"judged: {self.collective or 'unknown collective'}, {counted(self.ranks, 'rank')}, program {self.name}"

    def to_json(self) -> dict:
        """Return the document of ``--format json``."""
        return {
            "schema": SCHEMA,
            "name": self.name,
            "collective": self.collective,
            "ranks": self.ranks,
            "runtime": self.runtime,
            "ok": self.ok,
            "safe_bytes": self.safe if self.ok else 0,
            "analysed": list(self.analysed),
            "outputs": self.outputs,
            "accesses": self.accesses,
            "steps": self.ops,
            "findings": [finding.to_json() for finding in self.ranked],
        }


def size_text(size: int) -> str:
    """Return a size in bytes as text, such as ``8 MiB`` or ``1572865 bytes``."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << power and size % (1 << power) == 0:
            return f"{size >> power} {unit}"
    return bytes_text(size)


def option_text(size: int) -> str:
    """Return a size in bytes as an option takes it, such as ``8MiB`` or ``1572864``."""
    return size_text(size).removesuffix("bytes").replace(" ", "")
