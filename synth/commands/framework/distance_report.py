"""The distance of a schedule from the certified bounds, and its blame, as text and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from synth.model.schedule import Schedule

if TYPE_CHECKING:
    from synth.commands.explain import Distance
    from synth.model.bounds.blame import Blame
    from synth.model.compressed_schedule import CompressedSchedule

RIGHT = "right: every rank ends with what it must (replayed)"


def print_distance(
    name: str, schedule: Schedule | CompressedSchedule, distance: Distance | None, blame: Blame | None
) -> None:
    """Print what a schedule takes, beside the bounds where they are known, and why it takes more."""
    from synth.model.rational import counted, factor_text, show
    from synth.view import blame_tables
    from synth.view.frontier_text import Report
    from synth.view.tables import print_report, print_reports

    sizes = f"{counted(schedule.step_count, 'step')}, {counted(schedule.rounds, 'round')}"
    title = f"{name}: {' on '.join(_problem(schedule))}: {sizes}, C={schedule.chunks}"
    if distance is None:
        print_report(Report.of(title, (), (), (RIGHT,)))
        return
    # The schedule beside the bounds, at its number of steps and at any.
    columns = ("", ">here", ">at least", ">factor")
    rate = show(schedule.rounds_per_chunk)
    steps, least = distance.steps, distance.least_steps
    rows = [("steps", str(steps), "" if least is None else str(least), factor_text(steps, least))]
    in_steps, in_any = f"in {counted(steps, 'step')}", "in any number of steps"
    for scope, bound in ((in_steps, distance.at_steps), (in_any, distance.at_any)):
        shown = "" if bound is None else show(bound)
        rows.append((f"rounds/chunk {scope}", rate, shown, factor_text(schedule.rounds_per_chunk, bound)))
    tables = [Report.of(title, columns, rows, (RIGHT,))]
    if blame is not None:
        tables += blame_tables.reports(blame)
    print_reports(tables)


def _problem(schedule: Schedule | CompressedSchedule) -> tuple[str, str]:
    if isinstance(schedule, Schedule):
        return schedule.collective.name, schedule.network.name
    return schedule.collective, schedule.topology.name


def distance_document(
    name: str, schedule: Schedule | CompressedSchedule, distance: Distance | None, blame: Blame | None
) -> dict[str, Any]:  # fmt: skip
    """Return the content of `print_distance`."""
    collective, topology = _problem(schedule)
    return {
        "algorithm": name, "collective": collective, "topology": topology,
        "steps": schedule.step_count, "rounds": schedule.rounds, "chunks": schedule.chunks, "sends": schedule.sends,
        "distance": None if distance is None else distance.to_json(),
        "blame": None if blame is None else blame.to_json(),
    }  # fmt: skip
