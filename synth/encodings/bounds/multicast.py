"""Lower bounds on schedules whose switches multicast and reduce, for any number of steps (docs/proofs.md)."""

from __future__ import annotations

from itertools import permutations

from synth.checker.certificates.cuts import check
from synth.encodings.bounds.partition import partition_bound
from synth.encodings.bounds.single_cut import single_cut_bound
from synth.errors import VerificationError
from synth.model.collective import Collective
from synth.model.frontier import LowerBound
from synth.model.schedule import problem_fingerprint
from synth.model.topology import Network

# Maximum of ranks³ · steps of a bound at one number of steps, whose certificate lists about so many numbers.
MOST_NUMBERS = 20_000


def multicast_bound(network: Network, collective: Collective) -> LowerBound:
    """Return the greatest bound on R/C by a cut, by a partition or by the count of operations, with multicast.

    Raises InfeasibleError where data cannot reach a rank.
    """
    bounds = [single_cut_bound(network, collective), operations_bound(network, collective)]
    bounds.append(parts_bound(network, collective))
    return max((bound for bound in bounds if bound is not None), key=lambda bound: bound.value)


def bound_at_steps(network: Network, collective: Collective, steps: int, floor: LowerBound) -> LowerBound:
    """Return a bound on R/C at `steps` steps: `floor`, which holds for any number, or a greater one.

    That is by deadline cuts (`step_cuts_bound`) or by the count of operations, which gives
    ((n + 1) / n + (1 − 3/n) / (S − 1)) / u for n ≥ 3 equal ports of u units and `own: through` in S ≥ 2 steps.
    """
    if steps > 1 and network.ranks > 2:
        counted = operations_bound(network, collective, steps)
        if counted is not None and counted.value > floor.value:
            floor = counted
    return step_cuts_bound(network, collective, steps, floor)


def step_cuts_bound(network: Network, collective: Collective, steps: int, floor: LowerBound) -> LowerBound:
    """Return a bound on R/C at `steps` steps: `floor`, or a greater one by deadline cuts.

    The cuts are for an allreduce through one switch that has ports for all ranks. A cut has rank i outside at all
    times, rank d inside at all times, and the others inside until time k: one for each i, d and k < `steps`, all of one
    weight. With n equal ports of u units the bound is nS / (nS − n + 2) / u for `own: local`, (n + 1) / (2u) and
    (n − 1)S / ((n − 1)S − n + 2) / u for `own: through` in one and in S ≥ 2 steps (docs/proofs.md).
    """
    n = network.ranks
    whole = [switch for switch in network.multicast if len(switch.ports) == n]
    if not whole or not _is_allreduce(network, collective) or collective.units != 1 or n < 3:
        return floor
    if n * n * n * steps > MOST_NUMBERS:
        return floor
    weight, prices = _step_prices(n, steps, whole[0].own == "through")
    ups, downs = zip(*prices, strict=True)
    rows: dict[int, list[int]] = {}
    for port in whole[0].ports:
        for limits, row in ((port.up, ups), (port.down, downs)):
            k = min(limits, key=lambda k: network.caps[k].units)
            rows[k] = [a + b for a, b in zip(rows.get(k, [0] * steps), row, strict=True)]
    cuts = []
    for i, d in permutations(range(n), 2):
        for k in range(steps):
            theta = [k] * n
            theta[i], theta[d] = -1, steps
            cuts.append([weight, *theta])
    spent = [0] * steps
    for k, row in rows.items():
        spent = [total + network.caps[k].units * price for total, price in zip(spent, row, strict=True)]
    certificate = {
        "kind": "deadline-cuts", "problem": problem_fingerprint(network, collective), "steps": steps,
        "scale": max(spent), "prices": [["limit", k, *row] for k, row in sorted(rows.items())],
        "cuts": {"0": cuts}, "generators": [],
    }  # fmt: skip
    try:
        value = check(certificate, network, collective.document, steps=steps)
    except VerificationError:  # other switches or links bypass the ports
        return floor
    return LowerBound(value, certificate) if value > floor.value else floor


def _step_prices(n: int, steps: int, through: bool) -> tuple[int, list[tuple[int, int]]]:
    """Return the weight of a cut, and for each step the prices of a port upwards and downwards, for n ranks."""
    if through and steps == 1:
        return n + 1, [(n - 1, n - 1)]
    if through:
        later = [((n - 1) * (steps - t) + 1, (n - 1) * (t - 1)) for t in range(2, steps + 1)]
        return 1, [((n - 1) * (steps - 1), 1), *later]
    prices = []
    for t in range(1, steps + 1):
        prices.append(((n - 1) * (n * (steps - t) + 1), (n - 1) * (n * (t - 1) + 1)))
    return n, prices


def operations_bound(network: Network, collective: Collective, steps: int | None = None) -> LowerBound | None:
    """Return the bound by the ports that an allreduce through one switch uses, at `steps` ≥ 2 steps of three ranks or
    more (None: at any number of steps); None for other problems.

    The issuer's own data use its port, the ports of all ranks are limits of their own, and every route uses two.
    """
    if not _is_allreduce(network, collective):
        return None
    if len(network.multicast) != 1 or network.multicast[0].own != "through" or network.ranks < 2:
        return None
    ports = network.multicast[0].ports
    if len(ports) < network.ranks:
        return None
    rows = []
    for port in ports:
        rows.append([min(side, key=lambda k: network.caps[k].units) for side in (port.up, port.down)])
    limits = {k for row in rows for k in row}
    members = {k: frozenset(network.caps[k].routes) for k in limits}
    for i, route in enumerate(network.routes):
        if i not in members[rows[route.src][0]] or i not in members[rows[route.dst][1]]:
            return None
    if len(limits) < 2 * network.ranks:
        return None
    certificate: dict = {
        "kind": "switch-operations",
        "problem": problem_fingerprint(network, collective),
        "ports": rows,
    }
    if steps is not None:
        certificate["steps"] = steps
    return LowerBound(check(certificate, network, collective.document, steps=steps), certificate)


def parts_bound(network: Network, collective: Collective) -> LowerBound | None:
    """Return the bound of one allreduce by what is sent between parts; None for other problems, and for one part.

    Ranks with ports at one switch that multicasts are in one part. Each other rank is a part.
    """
    if not _is_allreduce(network, collective) or collective.units != 1:
        return None
    part = list(range(network.ranks))
    for switch in network.multicast:
        joined = {part[port.rank] for port in switch.ports}
        for rank, label in enumerate(part):
            part[rank] = min(joined) if label in joined else label
    members: dict[int, list[int]] = {}
    for rank, label in enumerate(part):
        members.setdefault(label, []).append(rank)
    return partition_bound(network, collective, list(members.values())) if len(members) > 1 else None


def _is_allreduce(network: Network, collective: Collective) -> bool:
    everyone = frozenset(range(network.ranks))
    units = zip(map(frozenset, collective.pre), map(frozenset, collective.post), strict=True)
    sums = collective.combining and collective.wants is None
    return sums and all(pre == everyone and post == everyone for pre, post in units)
