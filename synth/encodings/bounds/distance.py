"""Lower bound on the number of steps: the greatest distance that any piece of data must travel."""

from __future__ import annotations

from fractions import Fraction

from synth.encodings.bounds.demands import demands
from synth.errors import InfeasibleError
from synth.model.collective import Collective
from synth.model.frontier import LowerBound
from synth.model.schedule import problem_fingerprint
from synth.model.topology import Network


def steps(network: Network, collective: Collective) -> LowerBound:
    """Return the lower bound on steps, with the (unit, rank) pair that needs them (certificate kind ``distance``).

    A rank needs as many steps as its distance from the nearest holder, or from the farthest contributor that it
    wants. Raises InfeasibleError when some rank cannot be reached at all; its certificate (kind ``unreachable``)
    names the pair and a set of ranks that no route leaves, with every source inside and the rank outside.
    """
    problem = problem_fingerprint(network, collective)
    worst, pair, distances = 0, [], {}
    for unit in range(collective.units):
        for demand in demands(collective, unit):
            hops = distances.get(demand.sources)
            if hops is None:
                hops = distances[demand.sources] = network.distances_from(sorted(demand.sources))
            d = hops[demand.dst]
            if d is None:
                closed = [n for n, h in enumerate(hops) if h is not None]
                certificate = {"kind": "unreachable", "problem": problem, "pair": [unit, demand.dst], "closed": closed}
                origin = f"from rank {min(demand.sources)}" if demand.sources else "from anywhere, as no rank holds it"
                raise InfeasibleError(
                    f"{collective.name} on {network.name}: unit {unit} must reach rank {demand.dst} but cannot {origin}"
                    "; add a link or leave the rank out (--ranks)",
                    certificate,
                )
            if d > worst:
                worst, pair = d, [unit, demand.dst]
    return LowerBound(Fraction(worst), {"kind": "distance", "problem": problem, "pair": pair, "distance": worst})
