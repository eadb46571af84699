"""Reader of plan documents from any source, which are checked before they are used.

The schema is docs/formats.md's `synth.plan/1`. Schedules are replayed, ranges must leave no gap, and every number that
points at an algorithm must find one that does the table's collective.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from synth.checker.documents import exact_frontier
from synth.checker.schedule import replay
from synth.errors import FormatError, SynthError, VerificationError
from synth.model.documents.json_reader import schema_text
from synth.model.topology import KINDS
from synth.model.tuning_plan import OURS, SCHEMA, Algorithm, Plan, Table
from synth.program.program import PROTOCOLS
from synth.topologies import rank_placement


def load(path: Path) -> Plan:
    """Return the plan in `path`. Raises FormatError with the place of the fault, VerificationError for a wrong
    schedule."""
    doc = exact_frontier.read(path)
    if doc.get("schema") != SCHEMA:
        raise FormatError(f"{schema_text(doc.get('schema'))}, expected {SCHEMA!r}: what `synth tune` writes", str(path))
    try:
        plan = Plan.from_json(rank_placement.marked(doc))
        check(plan)
    except FormatError as error:
        raise FormatError(str(error), str(path)) from None
    except SynthError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise FormatError(f"malformed plan: {error!r}"[:200], str(path)) from None
    return plan


def check(plan: Plan) -> None:
    """Raise FormatError with the place of an inconsistency of `plan`, VerificationError for a wrong schedule."""
    if plan.labels and (
        plan.topology is None or len(plan.labels) != plan.topology.ranks or len(set(plan.labels)) < len(plan.labels)
    ):
        raise FormatError("each rank of the topology has a label of its own, or there are none", place="$.labels")
    if plan.kinds and (
        plan.topology is None
        or len(plan.kinds) != len(plan.topology.routes)
        or not set().union(*plan.kinds) <= set(KINDS)
    ):
        raise FormatError(f"each link of the topology has its kinds ({', '.join(KINDS)}), or none has", place="$.kinds")
    if plan.nodes and (plan.topology is None or len(plan.nodes) != plan.topology.ranks):
        raise FormatError("each rank of the topology has its box, or none has", place="$.nodes")
    for i, algorithm in enumerate(plan.algorithms):
        place = f"$.algorithms[{i}]"
        for key in ("divisor", "instances"):
            _whole(getattr(algorithm, key), 1, f"{place}.{key}")
        if algorithm.backend == OURS and algorithm.protocol not in PROTOCOLS:
            fault = f"protocol {algorithm.protocol!r}; known are {', '.join(PROTOCOLS)}"
            raise FormatError(fault, place=f"{place}.protocol")
        if algorithm.schedule is None:
            continue
        if algorithm.backend != OURS:
            raise FormatError(f"the backend {algorithm.backend} takes no schedule", place=f"{place}.schedule")
        try:
            replay.schedule(algorithm.schedule)
        except VerificationError as error:
            raise VerificationError(str(error), f"{place}.schedule") from None
    # A call finds its table by collective, ranks and root.
    seen = set()
    for t, table in enumerate(plan.tables):
        place = f"$.tables[{t}]"
        key = (table.collective, table.ranks, table.root)
        if key in seen:
            raise FormatError(f"a second table of {table.collective} on {table.ranks} ranks", place=place)
        seen.add(key)
        _table(table, plan, place)


def _table(table: Table, plan: Plan, place: str) -> None:
    _whole(table.ranks, 1, f"{place}.ranks")
    _whole(table.element, 1, f"{place}.element")
    for i, row in enumerate(table.ranges):
        here = f"{place}.ranges[{i}]"
        _whole(row.low, 0, f"{here}.low")
        if row.high is not None:
            _whole(row.high, row.low, f"{here}.high")
        if not row.order:
            raise FormatError("names no algorithm", place=f"{here}.order")
        for k, number in enumerate(row.order):
            _whole(number, 0, f"{here}.order[{k}]", len(plan.algorithms) - 1)
            _serves(plan.algorithms[number], table, f"{here}.order[{k}]")
    for i, (before, after) in enumerate(pairwise(table.ranges), 1):
        if before.high is None or after.low != before.high + 1:
            end = "has no end" if before.high is None else f"ends at {before.high}"
            raise FormatError(f"starts at {after.low}, and the range before {end}", place=f"{place}.ranges[{i}]")
    if list(table.sizes) != sorted(set(table.sizes)):
        raise FormatError("sizes grow", place=f"{place}.sizes")
    for i, size in enumerate(table.sizes):
        _whole(size, 0, f"{place}.sizes[{i}]")
    # Columns have an entry for each judged size, or are empty.
    columns = [(f"libraries.{name}", seconds) for name, seconds in table.libraries]
    for key in ("seconds", "best", "chosen", "ours", "library", "times"):
        if getattr(table, key):
            columns.append((key, getattr(table, key)))
    for name, column in columns:
        if len(column) != len(table.sizes):
            raise FormatError(f"has {len(column)} entries for {len(table.sizes)} sizes", place=f"{place}.{name}")
    for i, row in enumerate(table.times):
        found = table.at(table.sizes[i])
        if found is None or len(row) != len(found.order):
            raise FormatError("has a time for each algorithm of the order at that size", place=f"{place}.times[{i}]")


def _serves(algorithm: Algorithm, table: Table, place: str) -> None:
    if algorithm.schedule is None:
        return
    task = algorithm.schedule.collective
    if (task.name, task.ranks) != (table.collective, table.ranks):
        found = f"{task.name} on {task.ranks} ranks"
        raise FormatError(
            f"{algorithm.label} does {found}, the table is {table.collective} on {table.ranks}", place=place
        )
    if table.root is not None and task.roots and task.roots != (table.root,):
        raise FormatError(f"{algorithm.label} has root {task.roots[0]}, the table root {table.root}", place=place)


def _whole(value: object, least: int, place: str, most: int | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        upto = "" if most is None else f" and at most {most}"
        raise FormatError(f"expected a whole number of at least {least}{upto}, found {value!r}", place=place)
