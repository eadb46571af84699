"""`check`: every analysis of a program, one after the other, as far as what was found before leaves it a meaning."""

from __future__ import annotations

from synth.errors import UsageError
from synth.program.analysis import (
    deadlock,
    onesided_order,
    rules,
    rules_onesided,
    structure,
    symbolic_execution,
    symbolic_execution_onesided,
)
from synth.program.analysis.connection_tables import Wiring, unflagged, wire
from synth.program.analysis.finding import Finding, Wait, error
from synth.program.analysis.report import WORDS, Report, size_text
from synth.program.buffer_layout import Layout
from synth.program.program import InPlace, Program
from synth.program.runtimes import FIFO_DEPTH, RUNTIMES, Runtime

NAMED = 6  # waits of a cycle that a finding names
ENDLESS = 1 << 40


def check(program: Program, runtime: str | Runtime | None = None, in_place: InPlace | None = None) -> Report:
    """Analyse `program` for `runtime` (default: this project's own executors), called as `in_place` says (default: as
    it claims).

    Believes nothing and raises nothing but UsageError for an unknown runtime: whatever is wrong is a Finding.
    """
    if isinstance(runtime, str) and runtime not in RUNTIMES:
        raise UsageError(f"unknown runtime {runtime!r}; {', '.join(RUNTIMES)} exist")
    target = RUNTIMES[runtime or "synth"] if not isinstance(runtime, Runtime) else runtime
    faults = structure.faults(program)
    if faults:
        return Report(program.name, target.name, tuple(faults), 0, (), 0, 0, _ops(program))
    if program.one_sided:
        return _one_sided(program, target, in_place)
    return _two_sided(program, target, in_place)


def _ops(program: Program) -> int:
    return sum(len(block.ops) for gpu in program.gpus for block in gpu.blocks)


def _two_sided(program: Program, runtime: Runtime, in_place: InPlace | None) -> Report:
    wired = wire(program)
    broken = [*wired.faults]
    hidden = unflagged(program)
    findings = [*rules.check(program, runtime), *hidden, *rules.uses(program), *broken]
    if broken:
        return Report(program.name, runtime.name, tuple(findings), 0, (), 0, 0, program.ops)
    done, waits = _order(wired)
    if waits:
        findings.append(_deadlock(waits, "waits for ever, whatever the size"))
    safe, waits = deadlock.first_deadlock(program, wired, runtime)
    if len(done) < program.ops or any(f.severity == "error" for f in hidden):
        safe = 0
    elif waits:
        findings.append(_bounded(program, runtime, safe or 0, waits))
    outcomes = {mode: symbolic_execution.run(program, wired, done, mode == "in") for mode in modes(program, in_place)}
    return _report(program, runtime, findings, safe, outcomes, len(done) == program.ops)


def _order(wired: Wiring) -> tuple[list[tuple[int, int]], list[Wait]]:
    """An order of all ops that keeps few messages under way, and who waits where there is none however deep the FIFOs
    are."""
    done: list[tuple[int, int]] = []
    waits: list[Wait] = []
    for depth in (*sorted(set(FIFO_DEPTH.values())), ENDLESS):
        done = []
        waits = deadlock.stuck(wired, depth, ENDLESS, done)
        if not waits:
            break
    return done, waits


def _one_sided(program: Program, runtime: Runtime, in_place: InPlace | None) -> Report:
    findings = [
        *rules.buffers(program),
        *symbolic_execution_onesided.shared_ports(program),
        *rules_onesided.pairs(program),
    ]
    findings += [*rules_onesided.counts(program), *rules_onesided.halves(program)]
    findings += [*rules_onesided.check(program, runtime), *unflagged(program)]
    done, waits = onesided_order.order(program)
    if waits:
        findings.append(_deadlock(waits, "waits for ever"))
    outcomes = {mode: symbolic_execution_onesided.run(program, done, mode == "in") for mode in modes(program, in_place)}
    safe = 0 if waits or any(f.rule == "dep-unflagged" for f in findings) else None
    return _report(program, runtime, findings, safe, outcomes, not waits)


def modes(program: Program, in_place: InPlace | None = None) -> tuple[str, ...]:
    """``out``, ``in`` or both: how `program` is called; never in place where the collective cannot be."""
    asked = in_place or program.in_place
    placeable = program.collective is None or Layout(program.collective, program.chunks).placeable
    wanted = ("out", "in") if asked == "both" else (asked,)
    return tuple(mode for mode in wanted if mode == "out" or (placeable and program.collective is not None)) or ("out",)


def _report(
    program: Program,
    runtime: Runtime,
    findings: list[Finding],
    safe: int | None,
    outcomes: dict[str, symbolic_execution.Outcome],
    complete: bool,
) -> Report:
    where: dict[Finding, list[str]] = {}
    for mode, outcome in outcomes.items():
        for finding in outcome.findings:
            where.setdefault(finding, []).append(mode)
    for finding, found in where.items():
        only = f" ({WORDS[found[0]]})" if len(found) < len(outcomes) else ""
        findings.append(finding._replace(message=finding.message + only))
    outputs = max(outcome.outputs for outcome in outcomes.values())
    accesses = sum(outcome.accesses for outcome in outcomes.values())
    analysed = tuple(outcomes) if complete else ()
    return Report(program.name, runtime.name, tuple(findings), safe, analysed, outputs, accesses, program.ops)


def _bounded(program: Program, runtime: Runtime, safe: int, waits: list[Wait]) -> Finding:
    """A deadlock above `safe` bytes: an error where the program is offered for such sizes, a warning where it sets no
    limit."""
    top = program.max_bytes
    what = (
        f"waits for ever above {size_text(safe)}"
        if safe
        else "waits for ever at every size, with FIFOs as short as the runtime's"
    )
    advice = (
        f"set its largest size to {safe}, or receive before so much is sent"
        if safe
        else "receive before so much is sent"
    )
    finding = _deadlock(waits, what, advice)
    if safe and top is None and program.min_bytes <= safe:
        return finding._replace(severity="warning")
    if safe and top is not None and top - (not runtime.inclusive_max) <= safe:
        text = f"would wait for ever above {size_text(safe)}, for which it is not offered"
        return finding._replace(severity="remark", message=text)
    return finding


def _deadlock(waits: list[Wait], what: str, advice: str = "") -> Finding:
    first = waits[0]
    chain = "; ".join(f"gpu {w.gpu} block {w.block} step {w.op} waits {w.reason}" for w in waits[:NAMED])
    more = f"; and {len(waits) - NAMED} more blocks" if len(waits) > NAMED else ""
    return error(
        "deadlock", (first.gpu, first.block, first.op), f"{what}: {chain}{more}" + (f". {advice}" if advice else "")
    )
