"""Mixtures of trees that are pipelined together, as if they were one template with fractional loads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from synth.scale.composition.phases import Template, merged
from synth.scale.composition.pipelining_lp import TOLERANCE, Pipelining, rounds
from synth.solvers.rationalise import largest_remainders


@dataclass(frozen=True, eq=False)
class Mixture:
    """Templates whose phases of one name pass together, each with its share of its unit and the loads of its phases."""

    parts: tuple[tuple[Template, float, np.ndarray], ...]

    @cached_property
    def merged(self) -> Template:
        """One template with the phases of all, of unit 0."""
        return merged([template for template, _, _ in self.parts], 0)

    def loads(self) -> np.ndarray:
        """Return ``loads[phase, resource]`` of one chunk of each unit."""
        total = np.zeros((len(self.merged.phases), self.parts[0][2].shape[1]))
        for template, share, loads in self.parts:
            total[self.places(template)] += share * loads
        return total

    def places(self, template: Template) -> list[int]:
        """Return for each phase of a part the index of that of `merged`."""
        place = {phase.name: p for p, phase in enumerate(self.merged.phases)}
        return [place[phase.name] for phase in template.phases]


def mixed_pipelining(
    mixtures: Sequence[Mixture], tables: Sequence[np.ndarray], chunks: int, capacity: np.ndarray
) -> Pipelining:
    """Return the pipelining of about `chunks` chunks of each unit, in which the shares of mixtures are `tables`.

    The chunks of a mixture pass its phases in one order for each unit, in which those of each part are spread evenly.
    """
    templates: list[Template] = []
    passed: list[np.ndarray] = []
    each = max(template.weight for mixture in mixtures for template, _, _ in mixture.parts)
    totals = largest_remainders([float(table[0, -1]) for table in tables], -(-chunks // each))
    for mixture, table, total in zip(mixtures, tables, totals, strict=True):
        if not total:
            continue
        started = np.floor(table / table[0, -1] * total + TOLERANCE).astype(np.int64)
        for unit in sorted({template.unit for template, _, _ in mixture.parts}):
            members = [(template, share) for template, share, _ in mixture.parts if template.unit == unit]
            counts = largest_remainders([share * template.weight for template, share in members], total)
            owner = _evenly(counts)
            for i, (template, _) in enumerate(members):
                before = np.concatenate([[0], np.cumsum(owner == i)])
                templates.append(template)
                passed.append(before[started[mixture.places(template)]])
    loads = np.concatenate([loads for mixture, total in zip(mixtures, totals, strict=True) if total
                            for _, _, loads in sorted(mixture.parts, key=_unit)])  # fmt: skip
    return Pipelining(tuple(templates), tuple(passed), sum(totals) * each, rounds(passed, loads, capacity))


def _unit(part: tuple[Template, float, np.ndarray]) -> int:
    return part[0].unit


def _evenly(counts: Sequence[int]) -> np.ndarray:
    """Return a sequence in which each index i stands `counts[i]` times, at even distances."""
    position = np.concatenate([(np.arange(count) + 0.5) / count for count in counts if count])
    index = np.repeat(np.arange(len(counts)), counts)
    return index[np.argsort(position, kind="stable")]
