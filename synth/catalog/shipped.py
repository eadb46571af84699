"""Frontiers of well-known machines that come with the package, so that a known machine has its algorithms at once.

`shipped.sqlite` is a catalog (`synth.catalog.store`) that `python -m bench.shipped` makes of what `synth catalog build
examples/shipped.yaml` found, with the commit of the engines in each entry. A machine is found in any numbering of its
ranks. Nothing of the file is trusted: each answer is replayed and its certificates are re-checked when it is read, and
a damaged or forged one is no answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from synth.catalog.entry import Entry, EntryRow
from synth.catalog.store import Store
from synth.encodings.engine import Options
from synth.errors import SynthError
from synth.model.collective import Collective
from synth.model.frontier import Frontier, LowerBound
from synth.model.topology import Network
from synth.pareto.flow import BESIDE, UNWRITTEN
from synth.pareto.found import Found

FILE = Path(__file__).with_name("shipped.sqlite")
LABEL = "catalog: "


class Origin(NamedTuple):
    """The commit of the engines that found a shipped entry, and the command that finds it again."""

    commit: str
    command: str

    @staticmethod
    def of(entry: EntryRow) -> Origin:
        """Return the origin of an entry. The name of a changed machine ends with its options."""
        name, _, changes = entry.topology.partition(" ")
        limit = entry.provenance.get("time_limit")
        words = ["synth pareto --topo", name, changes, "--coll", entry.collective]
        words += [f"--root {','.join(map(str, entry.roots))}" if entry.roots else ""]
        words += [f"--time-limit {limit:g}s" if limit else "", "--fresh"]
        return Origin(entry.provenance.get("versions", {}).get("commit", ""), " ".join(word for word in words if word))


def rows() -> list[tuple[EntryRow, Origin]]:
    """Return the shipped entries, without their frontiers, and their origins. Raises FormatError for a damaged one."""
    with Store.open(FILE) as store:
        return [(row, Origin.of(row)) for row in store.ls()]


def entry_of(network: Network, collective: Collective, labels: Sequence[int] = ()) -> Entry | None:
    """Return the shipped answer to a problem, in the numbering of `network`, replayed and re-checked.

    None where the package has no answer, or one that fails its check.
    """
    try:
        with Store.open(FILE) as store:
            return store.find(network, collective, labels=labels)
    except SynthError:
        return None


def joined(found: Frontier, entry: Entry, options: Options) -> Frontier:
    """Return `found` with the points of a shipped entry that are better, and with its bounds where they are greater.

    A point of the entry is marked by its construction, `LABEL`, and a note says how it was found. `options`: limits on
    the points.
    """
    shipped = entry.frontier
    if found.complete:
        return found

    # bounds of either side hold for both, since the problem is the same
    greatest: dict[int | None, LowerBound] = {}
    for steps, bound in (*_bounds(shipped), *_bounds(found)):
        if steps not in greatest or bound.value > greatest[steps].value:
            greatest[steps] = bound
    floor = greatest.get(None)
    if floor is None:
        return found
    if options.max_steps is not None:
        shipped = _within(shipped, options.max_steps)
    limited = options.max_chunks is not None or options.same_bits or not shipped.points
    beyond = shipped.max_steps is not None and any(point.steps > shipped.max_steps for point in found.points)
    base = shipped if shipped.complete and not limited and not beyond else found
    intervals = []
    for interval in base.open:
        bound = max(greatest.get(interval.steps, floor), floor, key=lambda b: b.value)
        if bound.value > interval.lower:
            interval = replace(interval, lower=bound.value, certificate=bound.certificate)
        intervals.append(interval)
    known = {steps for steps, _ in base.bounds}
    bounds = [(steps, greatest.get(steps, bound)) for steps, bound in base.bounds]
    bounds += [(None, floor)] if None not in known else []
    base = replace(base, bounds=tuple(bounds), open=tuple(intervals))

    # a point that both have is shown as found
    rates = {(point.steps, point.rounds_per_chunk) for point in found.points}
    both = Found.of(base, options, found.points)
    for point in shipped.points:
        allowed = options.allows(point.steps, point.rounds, point.chunks) and (point.same_bits or not options.same_bits)
        if allowed and (point.steps, point.rounds_per_chunk) not in rates:
            both.keep(replace(point, construction=LABEL + point.construction))
    both.update_open()
    result = both.frontier()
    notes = found.notes
    if result.complete:  # no point that the search has left is better
        notes = tuple(note for note in notes if note != BESIDE and not note.startswith(UNWRITTEN))
    if any(point.construction.startswith(LABEL) for point in result.points):
        notes = (*notes, _note(entry))
    return replace(result, seconds=found.seconds, answers=found.answers, notes=notes)


def _within(frontier: Frontier, steps: int) -> Frontier:
    most = steps if frontier.max_steps is None else min(steps, frontier.max_steps)
    points = tuple(point for point in frontier.points if point.steps <= steps)
    bounds = tuple((at, bound) for at, bound in frontier.bounds if at is None or at <= steps)
    intervals = tuple(interval for interval in frontier.open if interval.steps <= steps)
    return replace(frontier, points=points, bounds=bounds, open=intervals, max_steps=most)


def marked(entry: Entry) -> Frontier:
    """Return the frontier of `entry` with all its points marked, and a note that says how it was found."""
    frontier = entry.frontier
    points = tuple(replace(point, construction=LABEL + point.construction) for point in frontier.points)
    return replace(frontier, points=points, notes=(*frontier.notes, _note(entry)))


def _note(entry: Entry) -> str:
    commit, command = Origin.of(entry)
    return f"{LABEL}found earlier by `{command}` at commit {commit}; --fresh leaves it out"


def _bounds(frontier: Frontier) -> Iterator[tuple[int | None, LowerBound]]:
    for steps, bound in (*frontier.bounds, *((point.steps, point.bound) for point in frontier.points)):
        if bound.scope == "any-chunks" and bound.certificate and steps != 0:
            yield steps, bound
    for interval in frontier.open:
        if interval.certificate:
            yield interval.steps, LowerBound(interval.lower, interval.certificate)
