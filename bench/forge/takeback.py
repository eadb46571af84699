"""Each mend taken back alone, by putting the function that had the fault in the place of the mended one while a
campaign runs.

V1  a certificate that names no pair proves that nothing is to be done
V2  of each unit the first chunk alone is compared with the collective asked for
V3  rounds of compact schedules are added modulo 2^64
V4  lengths are added modulo 2^64
V5  certificates of the reversed problem count units that no rank wants
V7  an open interval without a certificate takes any lower end
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import numpy as np

from synth.checker.certificates import cuts, path_lengths
from synth.checker.certificates.instance import Instance
from synth.checker.documents import exact_frontier
from synth.checker.schedule import collective as tasks
from synth.checker.schedule import compressed_replay
from synth.model import compressed_schedule
from synth.model.documents import json_reader
from synth.model.rational import show

Patch = tuple[Any, str, Any]  # module or class, name, what stands there instead


def _v1() -> list[Patch]:
    return [(cuts, "nothing_to_do", lambda problem: True)]


def _v2() -> list[Patch]:
    defined = tasks._as_defined

    def as_defined(task: tasks.ReplayCollective, roots: list[int], c: int, place: str) -> bool:
        return task.name not in (*tasks.ROOTED, *tasks.UNROOTED) or defined(task, roots, c, place)

    return [(tasks, "_as_defined", as_defined)]


def _fits(most: int, what: str, place: str) -> None:
    """Any sum fits."""


def _wrapped(values: np.ndarray) -> int:
    return int(values.sum())


def _v3() -> list[Patch]:
    rate = property(lambda self: Fraction(_wrapped(self.rounds), self.chunks))
    return [(compressed_replay, "fits", _fits), (compressed_schedule.CompressedSchedule, "rounds_per_chunk", rate)]


def _v4() -> list[Patch]:
    return [(path_lengths, "total", _wrapped)]


def _v5() -> list[Patch]:
    made = Instance.__init__

    def init(self: Instance, topology: dict, collective: dict, turned: object) -> None:
        made(self, topology, collective, turned)
        if turned:  # what was held before is wanted by who contributed it, whether or not anybody asked for it
            plain = Instance(topology, collective, False)
            self.post = [dict.fromkeys(held) for held in plain.pre]

    def separates(self: cuts.PricedCuts, theta: list[int], unit: int, has: tuple = ()) -> bool:
        if any(theta[n] >= t for n, t in has) and all(theta[s] < 0 for s in self.problem.pre[unit]):
            return True
        ends = [d for d in self.problem.post[unit] if theta[d] >= self.layers]
        return any(all(theta[s] < 0 for s in source) for d in ends for source in self.problem.sources(unit, d))

    return [(Instance, "__init__", init), (cuts.PricedCuts, "separates", separates)]


def _v7() -> list[Patch]:
    mended = exact_frontier._open

    def left_open(doc: dict, entry: dict, points: list, bounds: list, place: str) -> tuple[int, str]:
        if "certificate" in entry:
            return mended(doc, entry, points, bounds, place)
        json_reader.fields(entry, place, {"steps", "lower", "upper", "reason"})
        steps, lower = (
            json_reader.number(entry["steps"], f"{place}.steps", 1),
            json_reader.fraction(entry["lower"], f"{place}.lower"),
        )
        return steps, f"R/C ≥ {show(lower)} is proved"

    return [(exact_frontier, "_open", left_open)]


MENDS: dict[str, Callable[[], list[Patch]]] = {
    "V1": _v1,
    "V2": _v2,
    "V3": _v3,
    "V4": _v4,
    "V5": _v5,
    "V7": _v7,
}


@contextmanager
def without(name: str) -> Iterator[None]:
    """While it lasts the mend is undone; processes that are forked meanwhile lack it too."""
    patches = MENDS[name]()
    before = [(owner, key, getattr(owner, key)) for owner, key, _ in patches]
    for owner, key, value in patches:
        setattr(owner, key, value)
    try:
        yield
    finally:
        for owner, key, value in before:
            setattr(owner, key, value)
