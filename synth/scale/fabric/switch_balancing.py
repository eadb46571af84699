"""Capacity balancing: fabrics whose switches have equal capacities in and out, as edge splitting needs."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import lcm

import numpy as np

from synth.scale.fabric.fabric import Fabric

# Limit on the passes over all switches.
PASSES = 12
# Limit on the common denominator of the narrowed capacities.
MOST_SCALE = 1 << 20


def balance_switches(fabric: Fabric) -> Fabric | None:
    """Return `fabric` with the edges on the wider side of each unbalanced switch narrowed in proportion.

    It is `fabric` itself where all switches are balanced. None where `PASSES` do not balance all switches, or the
    denominators grow too large. Forests of the result are forests of `fabric`, but its bound may be lower in bandwidth.
    """
    cap = [Fraction(c) for c in fabric.cap.tolist()]
    into, out = fabric.entering, fabric.leaving
    switches = sorted(range(fabric.ranks, fabric.nodes), key=lambda n: len(into[n]) + len(out[n]))
    narrowed = False
    for _ in range(PASSES):
        settled = True
        for n in switches:
            enters = sum((cap[e] for e in into[n]), Fraction(0))
            leaves = sum((cap[e] for e in out[n]), Fraction(0))
            if enters != leaves:
                settled, narrowed = False, True
                wide, share = (into[n], leaves / enters) if enters > leaves else (out[n], enters / leaves)
                for e in wide:
                    cap[e] *= share
        if settled:
            break
    else:
        return None
    if not narrowed:
        return fabric
    scale = lcm(*(c.denominator for c in cap))
    if scale > MOST_SCALE:
        return None
    return replace(fabric, cap=np.array([int(c * scale) for c in cap], np.int64), unit=fabric.unit / scale)
