"""What a sweep says of the steps that it did not take: why an infinite frontier ends where it does."""

from __future__ import annotations

from fractions import Fraction

from synth import bounds
from synth.model.frontier import LowerBound
from synth.model.rational import show
from synth.pareto.sweep_state import Ledger


def followed(best: Fraction | None, steps: int, floor: Fraction) -> str:
    """Why an infinite frontier ends at so many steps: what more can gain over the best found, the bound at S being lost
    or not."""
    told = f"followed to {steps} steps"
    if best is None:
        return told
    return f"{told}: more can lower rounds/chunk by {float(1 - floor / best):.1%} at most, as the bounds say"


def unattained(ledger: Ledger, steps: int, bound: Fraction, floor: LowerBound) -> str:
    """What is known of the least R/C over all numbers of steps where `steps` of them, at `bound` at the least, do not
    attain `floor`.

    Where every unit goes to every rank, the bound for every S is a packing of spanning trees (Edmonds, 1973), and
    pipelining them comes as near to it as one likes.
    """
    from synth.bounds.attainment import never_attained

    network, collective = ledger.forwards()
    everyone = frozenset(range(ledger.network.ranks))
    told = f"with any number of steps at least {show(floor.value)} rounds per chunk are needed"
    if all(post == everyone for post in collective.post):
        told += ", and pipelined spanning trees come as near to that as one likes"
    copying = bounds.flow(network, collective, None) if ledger.collective.combining else floor
    never = copying.value == floor.value and never_attained(network, collective, copying)
    ever = "no number of steps attains it" if never else "whether it ever is, is not known"
    return f"{told}; up to {steps} steps it is not attained (at least {show(bound)}), and {ever}"
