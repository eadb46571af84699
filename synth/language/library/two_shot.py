"""Two-shot allreduce (all pairs): every rank adds up its part of the data, and sends the sum to all others."""

from __future__ import annotations

from synth.language import RankGroup, algorithm
from synth.language.library import direct
from synth.language.library.trees import Held

PAPER = "Cowan et al., MSCCLang, ASPLOS 2023"


@algorithm("allreduce", name="two-shot", formula="S = 2, R/C = 2/n; switch of u units: 2(n-1)/(nu)", paper=PAPER,
           home="dgx-a100")  # fmt: skip
def allreduce(group: RankGroup, held: Held) -> Held:
    """Sum every rank's part there, then gather the sums."""
    return direct.allgather(group, direct.reduce_scatter(group, held))
