"""Why a machine is as fast as it is: the optimum beside what NCCL-like rings and trees reach on the same links."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from synth.errors import SynthError
from synth.flows import rings
from synth.flows.allocations import RATED, Rates, induced, rates
from synth.topology import Network


@dataclass(frozen=True)
class Way:
    """One way to run the collective: units of algorithmic bandwidth (size / time), and a remark."""

    name: str
    units: Fraction
    remark: str = ""


@dataclass(frozen=True)
class Explanation:
    """`ways`: the bound first. `limit`: in words, what the bound rests on."""

    collective: str
    rates: Rates
    ways: tuple[Way, ...]
    limit: str


# Units of all routes together that linear programs and 64-bit sums still take exactly.
MOST_UNITS = 1 << 40


def explain(network: Network, name: str, labels: Sequence[int] = (), bound: Callable[[str], Fraction] | None = None) -> Explanation:
    """The optimum of collective `name` and, as far as the links allow them, one ring, all disjoint rings and double binary trees.

    `labels`: what the ranks are called in the sentences. `bound`: as `rates` takes it.
    Raises UsageError for a collective without a rate (see `RATED`).
    """
    if any(r.units < 0 for r in network.routes) or any(cap.units < 0 for cap in network.caps):
        raise SynthError(f"{network.name}: a bandwidth is negative; a link that is down has 0")
    if sum(r.units for r in network.routes) > MOST_UNITS:
        raise SynthError(f"{network.name}: its links are {MOST_UNITS} units and more together; round the bandwidths to fewer digits")
    if not all(r.units for r in network.routes) or not all(cap.units for cap in network.caps):
        network = induced(network, range(network.ranks))
    made = rates(network, (name,), bound)
    best = made.best[name]
    packed = "packed trees attain it" if best and name in made.attained else ""
    top = Way("optimum" if name in made.attained else "upper bound", best, packed)
    ways = [top]
    if made.composed is not None and name == "allreduce":
        ways.append(Way("optimal reduce-scatter, then allgather", made.composed))
    none = "no ring over these links: NCCL would leave them for PCIe or shared memory" if made.rings_most else "no ring was found"
    shares = made.ring[name] / made.ring_units if made.ring_units else Fraction(0)
    several = f"{_units(made.ring_units)} in all" + ("" if made.rings_most else "; more may fit")
    ways.append(Way("all disjoint rings", made.ring[name], several if made.ring_units else none))
    one = rings.widest(network) if made.ring_units else 0
    ways.append(Way("one ring", one * shares, f"{_units(one)} wide" if one else none))
    if name in ("broadcast", "allreduce"):
        trees = rings.tree_rate(network, up=name == "allreduce", down=True)
        ways.append(Way("double binary trees", trees, "in the order of the ranks; an edge without a link goes a shortest way"))
    limit = _limit(network, name, made, labels or range(network.ranks), bound is not None)
    return Explanation(name, made, tuple(ways), limit)


def _limit(network: Network, name: str, made: Rates, labels: Sequence[int], flow: bool) -> str:
    if not made.best[name]:
        return "the links do not connect these ranks"
    if name not in made.cuts or not made.cuts[name]:
        what = "cuts of the fabric" if flow else "the linear program over all cuts and times"
        return f"{what} (`synth bound{' --engine flow' if flow else ''}` prints the certificate)"
    if name == "allreduce":
        parts: dict[int, list[int]] = {}
        for rank, part in enumerate(made.cuts[name]):
            parts.setdefault(part, []).append(labels[rank])
        across = sum(r.units for r in network.routes if made.cuts[name][r.src] != made.cuts[name][r.dst])
        shown = " | ".join(",".join(map(str, ranks)) for ranks in parts.values())
        return (
            f"the parts {shown}: {_units(across // 2)} of links between them, and each byte crosses {len(parts)} parts"
            f" at least {2 * (len(parts) - 1)} times"
        )
    side = set(made.cuts[name])
    if name == "reduce-scatter":
        units = sum(r.units for r in network.routes if r.src not in side and r.dst in side)
        return f"{_ranks(side, labels)} take in {_units(units)} from the others, for {len(side)} of {network.ranks} results"
    units = sum(r.units for r in network.routes if r.src in side and r.dst not in side)
    wanted = "the whole buffer" if name == "broadcast" else f"{len(side)} of {network.ranks} parts"
    return f"{_ranks(side, labels)} send {_units(units)} to the others, which must get {wanted} from them"


def _units(n: int) -> str:
    return f"{n} unit{'' if n == 1 else 's'}"


def _ranks(side: set[int], labels: Sequence[int]) -> str:
    return ",".join(str(labels[r]) for r in sorted(side))


__all__ = ["RATED", "Explanation", "Way", "explain"]
