"""`LintReport`: the results of one analysis, as text and JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from synth.errors import UncheckedError, VerificationError
from synth.model.number_text import bytes_text
from synth.model.rational import counted
from synth.program.analysis.finding import NOT_ANALYSED, SEVERITIES, Finding

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
    def verdict(self) -> str:
        """``right`` (proved), ``wrong`` (there is an error), or ``not analysed``: neither, findings say why."""
        if self.errors:
            return "wrong"
        unknown = any(f.severity == NOT_ANALYSED for f in self.findings)
        return NOT_ANALYSED if unknown or not self.analysed else "right"

    @property
    def ok(self) -> bool:
        """True if the verdict is ``right``."""
        return self.verdict == "right"

    def require_right(self, subject: str) -> None:
        """Raise VerificationError if the program is wrong, UncheckedError if it is not analysed. `subject`: it."""
        if self.ok:
            return
        first = self.ranked[0]
        more = len(self.errors) - 1
        text = f"{subject} is {self.verdict}: {first.place}: {first.message} [{first.rule}]"
        if self.verdict == NOT_ANALYSED:
            raise UncheckedError(text)
        raise VerificationError(text + (f" (and {more} more; see synth lint)" if more else ""))

    @property
    def ranked(self) -> list[Finding]:
        """The findings, worst first."""
        return sorted(self.findings, key=lambda f: SEVERITIES.index(f.severity))

    def lines(self) -> Iterator[str]:
        """Yield the findings, worst first, then the safe sizes, the proved properties, and what was judged."""
        # a rule that is broken many times is shown a few times and then counted
        seen = Counter()
        for finding in self.ranked:
            seen[finding.rule] += 1
            if seen[finding.rule] <= SHOWN:
                yield str(finding)
        for rule, n in sorted(seen.items()):
            if n > SHOWN:
                yield f"... and {n - SHOWN} more [{rule}]"
        # a wrong program is not said to be safe, though it may wait for nobody
        sizes = "at any size" if self.safe is None else "at no size"
        if self.safe:
            sizes = f"up to {size_text(self.safe)}"
        wrong = len(self.errors)
        unknown = sum(f.severity == NOT_ANALYSED for f in self.findings)
        result = f"safe {sizes}" if not wrong or self.safe == 0 else f"no rank waits for ever {sizes}"
        if wrong:
            result = f"wrong: {counted(wrong, 'error')}; {result}"
        elif not self.ok:
            result = f"not analysed, for {counted(unknown, 'reason')}: nothing is proved, and no error was found"
        yield f"{result} (runtime {self.runtime}, its default buffer sizes)"
        if self.ok and self.analysed:
            modes = " and ".join(WORDS[mode] for mode in self.analysed)
            yield (
                f"proved {modes}, in every order of execution of {self.ops} steps: all {self.outputs} output chunks "
                f"right, {self.accesses} accesses ordered"
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
            "verdict": self.verdict,
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
