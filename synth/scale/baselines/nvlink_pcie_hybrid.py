"""NVLink and PCIe at once: the hybrid transfer of Blink (Wang et al., MLSys 2020).

Blink: "Fast and Generic Collectives for Distributed ML". The data is split so that both fabrics finish at the same
time. Switching peer access between them costs time t (the paper's T_dpa), which the PCIe part pays:
d_pcie / b_pcie + t = d_nvlink / b_nvlink.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from synth.errors import UsageError
from synth.model.rational import gcd
from synth.model.topology import Cap, Network, Route


@dataclass(frozen=True)
class MessageSplit:
    """Split of a message: `slow` of its bytes go over the slow fabric; `gbps` is size over time with both."""

    slow: Fraction
    gbps: Fraction


def split(size: int, fast: Fraction, slow: Fraction, switching: Fraction) -> MessageSplit:
    """Return the best split of `size` bytes between fabrics of `fast` and `slow` GB/s.

    Using the slow one costs `switching` µs. All bytes go over the fast fabric where the slow one does not pay, and over
    the slow one where `fast` is 0. Raises UsageError when neither carries anything.
    """
    if size < 1 or fast < 0 or slow < 0 or switching < 0 or fast + slow == 0:
        raise UsageError(f"{size} bytes over {fast} and {slow} GB/s with {switching} µs: there is nothing to split")
    if fast == 0:
        return MessageSplit(Fraction(size), Fraction(size) / (Fraction(size) / slow + switching * 1000))
    if slow == 0:
        return MessageSplit(Fraction(0), fast)
    # in bytes and ns: 1 GB/s is 1 byte/ns
    share = max(Fraction(0), (size / fast - switching * 1000) / (1 / fast + 1 / slow))
    return MessageSplit(share, Fraction(size) / ((size - share) / fast))


def with_pcie(network: Network, gbps: Fraction) -> Network:
    """Add a route over PCIe between any two ranks; each rank sends and receives `gbps` there over all of them together.

    The host's bridges are assumed to be wide enough for all ranks. The unit becomes the common divisor of both fabrics.
    Raises UsageError for `gbps` of 0 or less.
    """
    if gbps <= 0:
        raise UsageError(f"PCIe at {gbps} GB/s; it must be above 0")
    unit = gcd([network.unit, gbps])
    scale, units = int(network.unit / unit), int(gbps / unit)
    routes = [Route(r.src, r.dst, r.units * scale, r.via, r.latency) for r in network.routes]
    caps = [Cap(cap.routes, cap.units * scale) for cap in network.caps]
    pairs = [(a, b) for a in range(network.ranks) for b in range(network.ranks) if a != b]
    first = len(routes)
    routes += [Route(a, b, units, ("pcie",)) for a, b in pairs]
    if network.ranks > 2:
        for end in range(network.ranks):
            caps.append(Cap(tuple(first + i for i, (a, _) in enumerate(pairs) if a == end), units))
            caps.append(Cap(tuple(first + i for i, (_, b) in enumerate(pairs) if b == end), units))
    return Network(f"{network.name}+pcie", network.ranks, tuple(routes), tuple(caps), unit)


def rates_with_pcie(
    network: Network, best: dict[str, Fraction], connected: bool, pcie: Fraction, switching: Fraction, size: int
) -> dict[str, Fraction]:
    """Return GB/s of each collective for `size` bytes when PCIe of `pcie` GB/s a rank is used beside `network`.

    `best`: units of each collective on `network` alone. `connected`: its links connect all ranks; then the data is
    split between both fabrics. Elsewhere one packing uses both, which for allreduce is the optimal reduce-scatter
    followed by the optimal allgather. `switching`: µs, as in `split`.
    """
    from synth.scale.baselines.allocations import optimal_rates

    if connected:
        pcie_alone = with_pcie(Network(network.name, network.ranks, (), (), pcie), pcie)
        units_on_pcie = optimal_rates(pcie_alone, tuple(best)).attainable_rates()
        return {
            name: split(size, units * network.unit, units_on_pcie[name] * pcie, switching).gbps
            for name, units in best.items()
        }
    both = with_pcie(network, pcie)
    units_on_both = optimal_rates(both, tuple(best)).attainable_rates()
    return {name: split(size, Fraction(0), units_on_both[name] * both.unit, switching).gbps for name in best}
