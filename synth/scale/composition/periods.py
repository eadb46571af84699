"""Periods of trees: whole numbers of trees that together fill whole rounds, where steps do not count.

A period moves the same number of chunks of every unit. Periods that follow each other level by level have equal loads
in every step, so that little is lost by rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from synth.scale.composition.phases import Template
from synth.scale.composition.settings import SETTINGS
from synth.solvers.highs import integer

# Tolerance of sums of loads in relation to the capacity.
EXACT = 1e-9
# Rounds for each tree of a unit, rounds of each kind of trees, trees of a unit.
PeriodSize = tuple[float, list[int], int]


@dataclass(frozen=True, eq=False)
class Trees:
    """Trees of which a period is put together.

    ``loads[tree, resource]`` in relation to the capacity. `owners`: the unit of each tree.
    """

    loads: np.ndarray
    owners: Sequence[int]


def period_sizes(values: Sequence[float], below: float) -> list[PeriodSize]:
    """Return sizes of periods, those of the least rounds for each tree first.

    `values`: the least rounds for a tree of each unit, by a linear program, of each kind; kinds follow each other.
    Rounds for each tree are less than `below`.
    """
    sizes = []
    for count in range(1, SETTINGS.most_period + 1):
        rounds = [max(1, ceil(value * count * (1 - SETTINGS.slight))) for value in values]
        sizes.append((sum(rounds) / count, rounds, count))
    return [size for size in sorted(sizes) if size[0] < below][: SETTINGS.periods_tried]


def period(kinds: Sequence[Trees], sizes: Iterable[PeriodSize]) -> tuple[float, list[list[int]]] | None:
    """Return the rounds for each tree of a unit in a period, and the indices of its trees of each kind.

    A period has equally many trees of each unit and kind. `sizes`, of `period_sizes`, are tried in turn. None where no
    such period is found.
    """
    for rate, rounds, count in sizes:
        chosen = []
        for trees, most in zip(kinds, rounds, strict=True):
            selection = _selection(trees, count, most)
            if selection is None:
                break
            chosen.append(selection)
        else:
            return rate, chosen
    return None


def _selection(trees: Trees, count: int, rounds: int) -> list[int] | None:
    """Return the indices of `count` trees of each unit that fit into `rounds`; None where the search ends before.

    An integer program chooses how often each tree is taken.
    """
    owners = np.array(trees.owners)
    members = (owners == np.unique(owners)[:, None]).astype(float)
    rows = [(members, count, count), (trees.loads.T, -np.inf, rounds)]
    solution = integer(np.zeros(len(owners)), rows, count, node_limit=SETTINGS.period_nodes)
    if solution.x is None:
        return None
    times = np.rint(solution.x).astype(np.int64)
    fits = (times @ trees.loads <= rounds + EXACT).all() and (members @ times == count).all()
    return np.repeat(np.arange(len(owners)), times).tolist() if fits else None


def in_succession(template: Template, steps: int, most: int) -> np.ndarray:
    """Return ``passed[phase, step]``, the periods that have passed each phase, where each period follows the one before
    a step later: as many as `steps` steps hold, at most `most`, in the fewest steps.
    """
    heads = np.array(template.heads())
    count = max(0, min(steps - int(heads.max()), most))
    return np.clip(np.arange(1, int(heads.max()) + count + 1) - heads[:, None], 0, count)
