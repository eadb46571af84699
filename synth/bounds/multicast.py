"""Lower bounds on schedules whose switches multicast and reduce, for any number of steps (docs/proofs.md)."""

from __future__ import annotations

from synth.bounds.single_cut import single_cut_bound
from synth.checker.certificates.cuts import check
from synth.model.collective import Collective
from synth.model.frontier import LowerBound
from synth.model.schedule import problem_fingerprint
from synth.model.topology import Network


def multicast_bound(network: Network, collective: Collective) -> LowerBound:
    """Return the greatest bound on R/C by a cut or by the count of operations, on a network with multicast.

    Raises InfeasibleError where data cannot reach a rank.
    """
    bounds = [single_cut_bound(network, collective), operations_bound(network, collective)]
    return max((bound for bound in bounds if bound is not None), key=lambda bound: bound.value)


def operations_bound(network: Network, collective: Collective) -> LowerBound | None:
    """Return the bound by the ports that an allreduce through one switch uses; None for other problems.

    The issuer's own data use its port, the ports of all ranks are limits of their own, and every route uses two.
    """
    everyone = frozenset(range(network.ranks))
    sums = collective.combining and collective.wants is None
    if not sums or any(pre != everyone or post != everyone for pre, post in _units(collective)):
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


def _units(collective: Collective) -> list[tuple[frozenset[int], frozenset[int]]]:
    return list(zip(map(frozenset, collective.pre), map(frozenset, collective.post), strict=True))
