"""`check`: all analyses of a program, one after the other; a fault that leaves later ones without meaning ends it."""

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
from synth.program.analysis.call_sizes import call_sizes
from synth.program.analysis.connection_tables import build_connection_tables, unflagged
from synth.program.analysis.finding import Finding, WaitingBlock, error, not_analysed
from synth.program.analysis.report import WORDS, LintReport, option_text, size_text
from synth.program.analysis.symbolic_execution import ExecutionOutcome
from synth.program.buffer_layout import Layout
from synth.program.program import InPlace, Program
from synth.program.runtimes import FIFO_DEPTH, RUNTIMES, Runtime

NAMED_WAITS = 6  # waits of a cycle that a finding names
ENDLESS = 1 << 40  # a FIFO depth in parts, and a part size in chunks, that no program reaches


def check(program: Program, runtime: str | Runtime | None = None, in_place: InPlace | None = None) -> LintReport:
    """Analyse `program` for `runtime` (default: this project's own executors).

    `in_place`: the calls to analyse (default: those that the program is offered for). Nothing in the program is
    trusted: each fault is a Finding. Raises UsageError for an unknown runtime only.
    """
    if isinstance(runtime, str) and runtime not in RUNTIMES:
        raise UsageError(f"unknown runtime {runtime!r}; {', '.join(RUNTIMES)} exist")
    target = RUNTIMES[runtime or "synth"] if not isinstance(runtime, Runtime) else runtime
    faults = structure.faults(program)
    if faults:
        return LintReport(*_subject(program), target.name, tuple(faults), 0, (), 0, 0, program.ops)
    if program.one_sided:
        return _one_sided(program, target, in_place)
    return _two_sided(program, target, in_place)


def _subject(program: Program) -> tuple[str, str | None, int]:
    """Return the name, the collective and the number of ranks of a report."""
    return program.name, None if program.collective is None else program.collective.name, program.ranks


def _two_sided(program: Program, runtime: Runtime, in_place: InPlace | None) -> LintReport:
    wired = build_connection_tables(program)
    broken = [*wired.faults]
    hidden = unflagged(program)
    findings = [*rules.check(program, runtime), *hidden, *broken]
    if broken:
        return LintReport(*_subject(program), runtime.name, tuple(findings), 0, (), 0, 0, program.ops)

    # An order of all ops that keeps few messages under way. Blocks wait only if none exists, at any depth of the FIFOs.
    done, waits = [], []
    for depth in (*sorted(set(FIFO_DEPTH.values())), ENDLESS):
        done = []
        waits = deadlock.run_with_fifos(wired, depth, ENDLESS, done)
        if not waits:
            break
    if waits:
        findings.append(_deadlock(waits, "waits for ever, whatever the size"))
    safe, waits = deadlock.first_deadlock(program, wired, runtime)
    if len(done) < program.ops or hidden:
        safe = 0
    elif waits:
        findings.append(_deadlock_above(program, runtime, safe or 0, waits))
    # The data flow, by one order of execution, for each kind of call.
    outcomes = {}
    for mode in modes(program, in_place):
        outcomes[mode] = symbolic_execution.execute_two_sided(program, wired, done, mode == "in")
    return _report(program, runtime, findings, safe, outcomes, len(done) == program.ops)


def _one_sided(program: Program, runtime: Runtime, in_place: InPlace | None) -> LintReport:
    findings = [
        *rules.buffer_faults(program),
        *rules.unknown_collective(program),
        *rules.empty_range(program),
        *rules.calls_not_analysed(program, in_place or program.in_place),
        *symbolic_execution_onesided.shared_ports(program),
        *rules_onesided.unpaired_ports(program),
    ]
    findings += [*rules_onesided.surplus_signals(program), *rules_onesided.unequal_packet_scratch(program)]
    findings += rules_onesided.unlike_turns(program) if not program.straight else ()
    findings += [*rules_onesided.check(program, runtime), *unflagged(program)]
    sizes = call_sizes(program)
    # all lines together: the outcomes by mode, and the waits of the first line that waits for ever
    outcomes: dict[str, ExecutionOutcome] = {}
    waits = []
    for line in sizes.lines:
        done, line_waits = onesided_order.execution_order(line)
        waits = waits or line_waits
        for mode in modes(program, in_place):
            outcome = symbolic_execution_onesided.execute_one_sided(line, done, mode == "in")
            before = outcomes.get(mode, outcome)
            outcomes[mode] = before._replace(findings=list(dict.fromkeys([*before.findings, *outcome.findings])))
    if waits:
        findings.append(_deadlock(waits, "waits for ever"))
    safe = None
    if sizes.limit is not None:
        safe = sizes.limit.size
        # the program is proved up to the limit only; a warning if it is offered for larger sizes without a largest one
        top = program.max_bytes
        if top is None or top > safe:
            advice = f"set its largest size to {option_text(safe)} (max_message_size in a plan)"
            text = f"above {size_text(safe)} {sizes.limit.reason}, and calls that large are not followed; {advice}"
            finding = not_analysed("scratch", (None, None, None), text)
            warns = top is None and program.min_bytes <= safe
            findings.append(finding._replace(severity="warning") if warns else finding)
    if any((finding.rule, finding.severity) == ("offsets", "warning") for finding in findings):
        reached = rules_onesided.largest_with_short_offsets(program)
        safe = reached if safe is None else min(safe, reached)
    if waits or any(finding.rule == "dep-unflagged" for finding in findings):
        safe = 0
    return _report(program, runtime, findings, safe, outcomes, not waits)


def modes(program: Program, in_place: InPlace | None = None) -> tuple[str, ...]:
    """Return the calls to analyse: ("out",), ("in",) or ("out", "in").

    `in_place`: the calls asked for, by default those that the program is offered for. The result is ("out",) if the
    collective cannot be called in place.
    """
    request = in_place or program.in_place
    can_be_in_place = program.collective is not None and Layout(program.collective, program.chunks).can_be_in_place
    candidates = ("out", "in") if request == "both" else (request,)
    return tuple(mode for mode in candidates if mode == "out" or can_be_in_place) or ("out",)


def _report(
    program: Program,
    runtime: Runtime,
    findings: list[Finding],
    safe: int | None,
    outcomes: dict[str, ExecutionOutcome],
    complete: bool,
) -> LintReport:
    # A finding of one kind of call says so; one of all kinds stands once.
    modes_of = {}
    for mode, outcome in outcomes.items():
        for finding in outcome.findings:
            modes_of.setdefault(finding, []).append(mode)
    for finding, finding_modes in modes_of.items():
        only = f" ({WORDS[finding_modes[0]]})" if len(finding_modes) < len(outcomes) else ""
        findings.append(finding._replace(message=finding.message + only))
    outputs = max(outcome.outputs for outcome in outcomes.values())
    accesses = sum(outcome.accesses for outcome in outcomes.values())
    analysed = tuple(outcomes) if complete else ()
    return LintReport(*_subject(program), runtime.name, tuple(findings), safe, analysed, outputs, accesses, program.ops)


def _deadlock_above(program: Program, runtime: Runtime, safe: int, waits: list[WaitingBlock]) -> Finding:
    """Return the finding for a deadlock above `safe` bytes.

    It is an error if the program is offered for such sizes, a warning if it sets no largest size.
    """
    top = program.max_bytes
    fault = "waits for ever at every size, with FIFOs as short as the runtime's"
    advice = "receive before so much is sent"
    if safe:
        fault = f"waits for ever above {size_text(safe)}"
        text = option_text(safe)
        largest = f"set its largest size to {text} (`synth export --max-size {text}`, maxBytes in MSCCL-IR)"
        advice = f"{largest}, or {advice}"
    finding = _deadlock(waits, fault, advice)
    if safe and top is None and program.min_bytes <= safe:
        return finding._replace(severity="warning")
    if safe and top is not None and top - (not runtime.inclusive_max) <= safe:
        text = f"would wait for ever above {size_text(safe)}, for which it is not offered"
        return finding._replace(severity="remark", message=text)
    return finding


def _deadlock(waits: list[WaitingBlock], fault: str, advice: str = "") -> Finding:
    first = waits[0]
    chain = "; ".join(f"gpu {w.gpu} block {w.block} step {w.op} waits {w.reason}" for w in waits[:NAMED_WAITS])
    more = f"; and {len(waits) - NAMED_WAITS} more blocks" if len(waits) > NAMED_WAITS else ""
    suffix = f". {advice}" if advice else ""
    return error("deadlock", (first.gpu, first.block, first.op), f"{fault}: {chain}{more}{suffix}")
