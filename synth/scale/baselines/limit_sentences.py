"""Sentences of `synth explain` about the cut or partition that limits a collective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from synth.model.documents.int_ranges import runs as intervals
from synth.scale.baselines.rings.ring_network import RingNetwork

# Parts that a sentence lists, and half of the runs of ranks that it lists, so that it stays readable.
LISTED_PARTS = 4

# A sentence, and the labels of the ranks of each set that it is about.
Sentence = tuple[str, tuple[tuple[int, ...], ...]]


@dataclass(frozen=True)
class LimitSentences:
    """Sentences about collective `name` on ranks with `labels`, each with the labels of the ranks it is about."""

    name: str
    labels: Sequence[int]

    def parts(self, cut: Sequence[int], network: RingNetwork) -> Sentence:
        """Return the sentence of a partition on symmetric links; `cut[r]` is the part of rank r."""
        members: dict[int, list[int]] = {}
        for rank, part in enumerate(cut):
            members.setdefault(part, []).append(self.labels[rank])
        parts = tuple(tuple(ranks) for ranks in members.values())
        label = np.array(cut)
        across = int(network.units[label[network.src] != label[network.dst]].sum())
        times = f"each byte crosses {len(parts)} parts at least {2 * (len(parts) - 1)} times"
        return f"{self.listed(parts)}: {units_phrase(across // 2)} of links between them, and {times}", parts

    def listed(self, parts: tuple[tuple[int, ...], ...]) -> str:
        """Return ``the parts 0,1 | 2,3``; of many parts the first ones and their number."""
        shown = " | ".join(runs(part) for part in parts[:LISTED_PARTS])
        if len(parts) > LISTED_PARTS:
            size = len(parts[0])
            equal = all(len(part) == size for part in parts)
            each = f", {_ranks_of(size)} each" if equal else ""
            return f"the {len(parts)} parts {shown} | and {len(parts) - LISTED_PARTS} more{each}"
        return f"the parts {shown}"

    def side(self, side: Sequence[int], rate: Fraction) -> Sentence:
        """Return the sentence of a cut; the units across it follow from the rate that it allows, in units."""
        ranks = len(self.labels)
        units = rate if self.name in ("broadcast", "allreduce") else rate * len(side) / ranks
        across = units_phrase(int(units)) if units.denominator == 1 else f"{float(units):.6g} units"
        shown = self.ranks(side)
        labels = (tuple(self.labels[r] for r in sorted(side)),)
        one = len(side) == 1
        ending = "s" if one else ""
        if self.name == "reduce-scatter":
            sentence = f"{shown} take{ending} in {across} from the others, for {len(side)} of {ranks} results"
            return sentence, labels
        if self.name == "allreduce":
            whose = "its" if one else "their"
            return f"{shown} send{ending} {across} to the others, which need {whose} part of every sum", labels
        data = "the whole buffer" if self.name == "broadcast" else f"{len(side)} of {ranks} parts"
        sender = "it" if one else "them"
        return f"{shown} send{ending} {across} to the others, which must get {data} from {sender}", labels

    def ranks(self, side: Sequence[int]) -> str:
        """Return ``rank 3`` or ``ranks 0-3``."""
        labels = [self.labels[r] for r in sorted(side)]
        return ("rank " if len(side) == 1 else "ranks ") + runs(labels)


def units_phrase(n: int) -> str:
    """Return ``1 unit``, ``2 units``."""
    return f"{n} unit{'' if n == 1 else 's'}"


def _ranks_of(n: int) -> str:
    return f"{n} rank{'' if n == 1 else 's'}"


def runs(ranks: Sequence[int]) -> str:
    """Return ``0,1,2``, or ``0-7,16-23`` for longer runs of consecutive ranks; of very many runs the first ones."""
    shown = [_run(first, last) for first, last in intervals(ranks)]
    maximum = 2 * LISTED_PARTS
    if len(shown) <= maximum:
        return ",".join(shown)
    return f"{','.join(shown[:maximum])} and {len(shown) - maximum} runs more"


def _run(first: int, last: int) -> str:
    """One run of consecutive ranks: up to three are listed, more are written as an interval."""
    if last > first + 2:
        return f"{first}-{last}"
    return ",".join(str(rank) for rank in range(first, last + 1))
