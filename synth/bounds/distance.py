"""Lower bound on the number of steps: the greatest distance that any piece of data must travel."""

from __future__ import annotations

from fractions import Fraction

from synth.bounds.demands import Demand, demands
from synth.errors import InfeasibleError
from synth.model.collective import Collective
from synth.model.frontier import LowerBound
from synth.model.schedule import problem_fingerprint
from synth.model.send_mask import SendMask, send_mask
from synth.model.topology import Network


def steps(network: Network, collective: Collective) -> LowerBound:
    """Return the lower bound on steps, with the (unit, rank) pair that needs them (certificate kind ``distance``).

    A rank needs as many steps as its distance from the nearest holder, or from the farthest contributor that it
    wants. Raises InfeasibleError when some rank cannot be reached at all; its certificate (kind ``unreachable``)
    names the pair and a set of ranks that no route leaves, with every source inside and the rank outside. Under rules
    for sends the steps are those after which the unit can be there, and the set is the ranks that it can reach; under
    a fan they are also those after which data can be at, or come from, as many ranks as these.
    """
    problem, mask = problem_fingerprint(network, collective), send_mask(network, collective)
    worst, pair, distances = 0, [], {}
    crowds = None if mask is None or mask.rules.fan is None else _Crowds(collective, mask.rules.fan)
    for unit in range(collective.units):
        for demand in demands(collective, unit):
            key = (None if mask is None else mask.groups[unit], demand.sources)
            hops = distances.get(key)
            if hops is None:
                hops = distances[key] = _hops(network, mask, unit, demand.sources)
            d = hops[demand.dst]
            if d is None:
                closed = [n for n, h in enumerate(hops) if h is not None]
                certificate = {"kind": "unreachable", "problem": problem, "pair": [unit, demand.dst], "closed": closed}
                origin = f"from rank {min(demand.sources)}" if demand.sources else "from anywhere, as no rank holds it"
                mend = "add a link or leave the rank out (--ranks)" if mask is None else "its sketch allows no way"
                raise InfeasibleError(
                    f"{collective.name} on {network.name}: unit {unit} must reach rank {demand.dst} but cannot {origin}"
                    f"; {mend}",
                    certificate,
                )
            if crowds is not None:
                d = max(d, crowds.steps(demand))
            if d > worst:
                worst, pair = d, [unit, demand.dst]
    return LowerBound(Fraction(worst), {"kind": "distance", "problem": problem, "pair": pair, "distance": worst})


class _Crowds:
    """The ranks that data from the same ranks have to come to, and those that the data of one rank come from.

    With `fan` peers a step, data that p ranks have are at no more than p·(1 + fan)^s ranks after s steps, and those of
    a rank come from no more than (1 + fan)^s.
    """

    def __init__(self, collective: Collective, fan: int) -> None:
        self.fan = fan
        self.reached: dict[frozenset[int], set[int]] = {}
        self.origins: dict[int, set[int]] = {}
        for unit in range(collective.units):
            for sources, dst in demands(collective, unit):
                self.reached.setdefault(sources, set(sources)).add(dst)
                if len(sources) == 1:
                    self.origins.setdefault(dst, {dst}).update(sources)

    def steps(self, demand: Demand) -> int:
        """Return the least number of steps that a fan allows for what `demand` is a part of.

        That is to bring data from its sources to all that want them, and what its rank wants from where it is.
        """
        sources, dst = demand
        pairs = ((len(sources), len(self.reached[sources])), (1, len(self.origins.get(dst, ()))))
        least = 0
        for count, wanted in pairs:
            while count * (1 + self.fan) ** least < wanted:
                least += 1
        return least


def _hops(network: Network, mask: SendMask | None, unit: int, sources: frozenset[int]) -> list[int | None]:
    """Return the fewest steps from `sources` to each rank. Without steps of their own where rules are turned."""
    if mask is None:
        return network.distances_from(sorted(sources))
    return mask.reach(unit, sources) if mask.rules.turned else mask.arrivals(unit, sources)
