"""What limits a collective, in words: the sentences of `synth explain` about cuts and partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from synth.model.documents.int_ranges import runs as stretches
from synth.scale.baselines.rings.ring_network import Roads

# Parts and runs of ranks that a sentence names.
FEW = 4

Said = tuple[str, tuple[tuple[int, ...], ...]]


@dataclass(frozen=True)
class Words:
    """About collective `name` on ranks that are called `labels`; each sentence with the labels of the ranks that it is
    about."""

    name: str
    labels: Sequence[int]

    def parts(self, cut: Sequence[int], wires: Roads) -> Said:
        """The sentence of a partition, given as the part of each rank, on links alike both ways."""
        found: dict[int, list[int]] = {}
        for rank, part in enumerate(cut):
            found.setdefault(part, []).append(self.labels[rank])
        parts = tuple(tuple(ranks) for ranks in found.values())
        label = np.array(cut)
        across = int(wires.units[label[wires.src] != label[wires.dst]].sum())
        times = f"each byte crosses {len(parts)} parts at least {2 * (len(parts) - 1)} times"
        return f"{self.listed(parts)}: {units_of(across // 2)} of links between them, and {times}", parts

    def listed(self, parts: tuple[tuple[int, ...], ...]) -> str:
        """``the parts 0,1 | 2,3``; of many the first ones."""
        shown = " | ".join(runs(part) for part in parts[:FEW])
        if len(parts) > FEW:
            size = len(parts[0])
            each = f", {_of(size)} each" if all(len(part) == size for part in parts) else ""
            return f"the {len(parts)} parts {shown} | and {len(parts) - FEW} more{each}"
        return f"the parts {shown}"

    def side(self, side: Sequence[int], rate: Fraction) -> Said:
        """The sentence of a cut: the units across it follow from the rate that it allows."""
        ranks = len(self.labels)
        units = rate if self.name in ("broadcast", "allreduce") else rate * len(side) / ranks
        across = units_of(int(units)) if units.denominator == 1 else f"{float(units):.6g} units"
        shown = self.ranks(side)
        named = (tuple(self.labels[r] for r in sorted(side)),)
        one = len(side) == 1
        if self.name == "reduce-scatter":
            return (
                f"{shown} take{'s' if one else ''} in {across} from the others, for {len(side)} of {ranks} results",
                named,
            )
        if self.name == "allreduce":
            whose = "its" if one else "their"
            return (
                f"{shown} send{'s' if one else ''} {across} to the others, which need {whose} part of every sum",
                named,
            )
        wanted = "the whole buffer" if self.name == "broadcast" else f"{len(side)} of {ranks} parts"
        return (
            f"{shown} send{'s' if one else ''} {across} to the others, which must get {wanted} from "
            f"{'it' if one else 'them'}",
            named,
        )

    def ranks(self, side: Sequence[int]) -> str:
        """``rank 3``, ``ranks 0-3``."""
        return ("rank " if len(side) == 1 else "ranks ") + runs([self.labels[r] for r in sorted(side)])


def units_of(n: int) -> str:
    """``1 unit``, ``2 units``."""
    return f"{n} unit{'' if n == 1 else 's'}"


def _of(n: int) -> str:
    return f"{n} rank{'' if n == 1 else 's'}"


def runs(ranks: Sequence[int]) -> str:
    """``0,1,2``, or ``0-7,16-23`` where many follow each other; of very many runs the first ones."""
    shown = [
        str(a) if a == b else f"{a},{b}" if b == a + 1 else f"{a}-{b}" if b > a + 2 else f"{a},{a + 1},{b}"
        for a, b in stretches(ranks)
    ]
    return (
        ",".join(shown)
        if len(shown) <= 2 * FEW
        else f"{','.join(shown[: 2 * FEW])} and {len(shown) - 2 * FEW} runs more"
    )
