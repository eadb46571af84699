"""Lower bounds on schedules whose switches multicast and reduce, for any number of steps (docs/proofs.md)."""

from __future__ import annotations

from synth.bounds.partition import partition_bound
from synth.bounds.single_cut import single_cut_bound
from synth.checker.certificates.cuts import check
from synth.model.collective import Collective
from synth.model.frontier import LowerBound
from synth.model.schedule import problem_fingerprint
from synth.model.topology import Network


def multicast_bound(network: Network, collective: Collective) -> LowerBound:
    """Return the greatest bound on R/C by a cut, by a partition or by the count of operations, with multicast.

    Raises InfeasibleError where data cannot reach a rank.
    """
    bounds = [single_cut_bound(network, collective), operations_bound(network, collective)]
    bounds.append(parts_bound(network, collective))
    return max((bound for bound in bounds if bound is not None), key=lambda bound: bound.value)


def operations_bound(network: Network, collective: Collective) -> LowerBound | None:
    """Return the bound by the ports that an allreduce through one switch uses; None for other problems.

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
    certificate = {"kind": "switch-operations", "problem": problem_fingerprint(network, collective), "ports": rows}
    return LowerBound(check(certificate, network.document, collective.document), certificate)


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
