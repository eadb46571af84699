"""Tables on stdout. Each `print_*` has a `*_document` or `to_json` beside it with the same content as JSON."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence

from synth.model.bounds.time_bound import TimeBound
from synth.model.collective import Collective
from synth.model.frontier import Frontier, LowerBound
from synth.model.outcome import Cost
from synth.model.rational import counted, show
from synth.model.schedule import Schedule, SwitchSend
from synth.model.topology import MULTICAST_NOTE, Network, Topology
from synth.view import frontier_text
from synth.view.algorithm_times import AlgorithmTime
from synth.view.frontier_text import WHY, Report
from synth.view.table_layout import report_lines

__all__ = [
    "WHY",
    "bounds_document",
    "choice_document",
    "print_bounds",
    "print_choice",
    "print_frontier",
    "print_multicast_bounds",
    "print_report",
    "print_schedule",
]


def print_report(content: Report) -> None:
    """Print title, table and sentences, on a terminal no wider than it."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in report_lines(content, width):
        print(line)


def frontier_report(frontier: Frontier) -> Report:
    """Return the table of `synth pareto`."""
    return frontier_text.report(frontier)


def print_frontier(frontier: Frontier) -> None:
    """Print the table of `synth pareto`."""
    print_report(frontier_report(frontier))


def print_choice(
    frontier: Frontier,
    size: int,
    bound: TimeBound | None = None,
    times: Sequence[AlgorithmTime] = (),
) -> None:
    """Print the table of `synth pareto --size`.

    `bound`: the lower bound in time at `size`. `times`: predicted times of programs.
    """
    print_report(frontier_text.choice(frontier, size, bound, times))


def choice_document(frontier: Frontier, size: int, times: Sequence[AlgorithmTime] = ()) -> dict:
    """Return the content of `print_choice`: predicted seconds of each point at `size` bytes, and the best one.

    `seconds` are those of synchronous steps. Each point has the range of sizes for which it is the best by these.
    `program_seconds`: those of its fastest program among `times`.
    """
    best = frontier_text.best_point(frontier, size, times) if frontier.points else None
    programs = frontier_text.point_times(frontier, times)
    points = []
    for point, span in zip(frontier.points, frontier_text.fastest_sizes(frontier), strict=True):
        low, high = (None, None) if span is None else span
        time = programs.get(id(point))
        points.append(
            {
                "steps": point.steps,
                "rounds": point.rounds,
                "chunks": point.chunks,
                "bandwidth": show(point.rounds_per_chunk),
                "status": point.status,
                "seconds": frontier.seconds_at(point, size),
                "gbps": frontier.gbps(point, size),
                "program_seconds": None if time is None else time.seconds,
                "protocol": None if time is None else time.protocol,
                "model": None if time is None else time.model,
                "best_from": None if low is None else float(low),
                "best_to": None if high is None else float(high),
            }
        )
    return {
        "schema": "synth.choice/1",
        "topology": frontier.network.name,
        "collective": frontier.collective.name,
        "size": size,
        "complete": frontier.complete,
        "steps": best.steps if best else None,
        "points": points,
        "schedule": best.schedule.to_json() if best else None,
    }


def print_schedule(schedule: Schedule, cost: Cost, labels: Sequence[int] = ()) -> None:
    """Print the steps of a schedule: rounds, and the path of each chunk. `labels`: the machine's names of its ranks."""
    columns = (">step", ">rounds", ">sends", "what")
    arrow = {"copy": ">", "reduce": "+>", "copy-input": "in>", "reduce-input": "in+>"}
    rows = []
    for i, step in enumerate(schedule.steps, 1):
        sends = [f"{send.chunk}:{send.src}{arrow[send.kind]}{send.dst}" for send in step.sends]
        sends += [_switch_send(send) for send in step.switch_sends]
        remote = sum(not send.local for send in step.sends) + len(step.switch_sends)
        rows.append(
            (
                str(i),
                str(step.rounds),
                str(remote),
                (" ".join(sends) if len(sends) <= 8 else f"{' '.join(sends[:8])} and {len(sends) - 8} more"),
            )
        )
    by = f", found by {cost.engine} in {cost.cpu:.2f} s of CPU" if cost.engine else ""
    cost_line = (
        f"C={schedule.chunks}, S={len(schedule.steps)}, R={schedule.rounds}: {show(schedule.rounds_per_chunk)} rounds "
        f"per chunk{by}"
    )
    key = "chunk:source>destination; +> adds, in> sends the original contribution"
    if any(s.local for step in schedule.steps for s in step.sends):
        key += ", to the rank itself: adds it again, without a link"
    if schedule.uses_multicast:
        key += "; 0>{0-7} is a multicast, 0<+{0-7} fetches a sum"
    key += "; --format json has all sends"
    print_report(
        Report.of(frontier_text.title(schedule.network, schedule.collective, labels), columns, rows, (cost_line, key))
    )


def _switch_send(send: SwitchSend) -> str:
    arrow = {"multicast": ">", "multicast-reduce": "+>", "fetch-reduce": "<+"}[send.kind]
    group = send.group
    if group == tuple(range(group[0], group[-1] + 1)):
        members = f"{group[0]}-{group[-1]}"
    else:
        members = ",".join(map(str, group))
    return f"{send.chunk}:{send.rank}{arrow}{{{members}}}"


def bounds_document(network: Network, collective: Collective, found: Sequence[tuple[int | None, LowerBound]]) -> dict:
    """Return the content of `print_bounds` as JSON, with complete certificates.

    `found`: (steps, bound); steps None: a bound for any number of steps.
    """
    bounds = [{"steps": steps} | bound.to_json() for steps, bound in found]
    return {
        "schema": "synth.bounds/1",
        "topology": network.to_json(),
        "collective": collective.to_json(1),
        "bounds": bounds,
    }


def print_bounds(topology: Topology, collective: Collective, found: Sequence[tuple[int | None, LowerBound]]) -> None:
    """Print a row for each bound: its subject, its value, the kind and size of its certificate."""
    columns = ("bound on", "for", ">at least", "certificate", ">bytes")
    rows = []
    for steps, bound in found:
        what, kind = _subject(bound)
        scope = "any schedule" if steps is None or what == "steps" else counted(steps, "step")
        size = len(json.dumps(bound.certificate, separators=(",", ":")))
        rows.append((what, scope, show(bound.value), kind, str(size)))
    lines = [
        "each holds for any number of chunks; --format json prints the certificates, which `synth verify` re-checks"
    ]
    lines += [MULTICAST_NOTE] if topology.multicast else []
    print_report(Report.of(frontier_text.title(topology.network(), collective, topology.labels), columns, rows, lines))


def print_multicast_bounds(
    network: Network, collective: Collective, found: Sequence[tuple[int | None, LowerBound]], labels: Sequence[int]
) -> None:
    """Print a row for each bound where the switches of `network` multicast and reduce."""
    columns = ("bound on", ">at least", ">GB/s at most", "certificate")
    rows = []
    for steps, bound in found:
        what, kind = _subject(bound)
        gbps = f"{float(network.unit / (bound.value * collective.unit_share)):.6g}" if steps is None else ""
        rows.append((what, show(bound.value), gbps, kind))
    title = frontier_text.title(network, collective, labels)
    print_report(Report.of(title, columns, rows, ("for schedules with the sends of these switches, too",)))


def _subject(bound: LowerBound) -> tuple[str, str]:
    """Return what is bounded, and the kind of the certificate."""
    kind = str(bound.certificate.get("kind", ""))
    return ("steps" if kind in ("distance", "too-few-steps") else "rounds/chunk"), kind


def print_reports(contents: Sequence[Report]) -> None:
    """Print several tables, one after another; an empty line precedes each title but the first."""
    for i, content in enumerate(contents):
        if i and content.title:
            print()
        print_report(content)
