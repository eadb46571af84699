"""Notes of a frontier: why an infinite one ends where it does, and which bound may be higher than the one shown."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from synth.model.collective import Collective
from synth.model.rational import show
from synth.model.topology import Network

UNPROVEN_BOUND = "the bound for any number of steps may be higher: "


def unproven_bound(why: str) -> str:
    """Return the note of a frontier whose search for a higher bound for any number of steps was ended by `why`."""
    return UNPROVEN_BOUND + why


def drop_unproven_bound(notes: Iterable[str], best: Fraction | None, floor: Fraction | None) -> tuple[str, ...]:
    """Return `notes`, without `unproven_bound` where the best R/C attains the bound `floor`.

    A bound that is attained is the greatest one.
    """
    attained = best is not None and floor is not None and best <= floor
    return tuple(text for text in notes if not (attained and text.startswith(UNPROVEN_BOUND)))


def followed(best: Fraction | None, steps: int, floor: Fraction) -> str:
    """Return the note of an infinite frontier that ends at `steps`: the most that further steps can gain over `best`.

    `floor`: the bound for any number of steps.
    """
    end = f"followed to {steps} steps"
    if best is None:
        return end
    return f"{end}: more can lower rounds/chunk by {float(1 - floor / best):.1%} at most, as the bounds say"


def unattained(network: Network, collective: Collective, steps: int, bound: Fraction, floor: Fraction) -> str:
    """Return the note of a frontier whose `steps` steps, with the bound `bound`, do not attain `floor`.

    It says what is known of the least R/C over all numbers of steps. Where every unit goes to every rank, the bound for
    every S is a packing of spanning trees (Edmonds, 1973), and pipelining them comes as near to it as one likes.
    """
    if collective.combining:
        collective = collective.reversed()
    everyone = frozenset(range(network.ranks))
    limit = f"with any number of steps at least {show(floor)} rounds per chunk are needed"
    if all(post == everyone for post in collective.post):
        limit += ", and pipelined spanning trees come as near to that as one likes"
    return f"{limit}; up to {steps} steps it is not attained (at least {show(bound)})"
