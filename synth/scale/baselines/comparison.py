"""Comparison of the optimum of a collective with NCCL-like rings on the same links, and what limits it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from synth.errors import UsageError
from synth.model.documents import int_ranges
from synth.model.frontier import Frontier
from synth.model.link_table import ends
from synth.model.topology import Topology
from synth.scale.baselines.allocations import RATED, attained, ring_rate
from synth.scale.baselines.rings import Rings, disjoint_rings
from synth.scale.fabric.graphs import components
from synth.solvers.deadline import current_deadline, time_limited

Progress = Callable[[str], None]
ScaleBound = Callable[[str], Frontier]
# A sentence, and the labels of the ranks of each set that it is about.
Sentence = tuple[str, tuple[tuple[int, ...], ...]]

# Ranks up to which routes from rank to rank are listed, to see whether packed trees attain the bound.
LISTED_RANKS = 128
# Share of a time limit that the bound may take; rings and other bounds need the rest.
BOUND_SHARE = 0.4
# Parts that a sentence lists, so that it stays readable.
LISTED_PARTS = 4


@dataclass(frozen=True)
class MethodRate:
    """Rate of one method: units of algorithmic bandwidth (size / time), None where time ran out, and a remark.

    `multicast`: it is a bound for schedules in which switches multicast and reduce; the other rates are without.
    """

    name: str
    units: Fraction | None
    remark: str = ""
    multicast: bool = False


@dataclass(frozen=True)
class Explanation:
    """Rates of a collective by several algorithms on the same links, and the reason of the bound.

    Attributes:
        rates: the bound first, then the rate of each algorithm.
        limit: a sentence that names the cut or partition behind the bound.
        parts: the labels of the ranks of each part or side in that sentence.
        rings: all rings together, with their bound.
        open: the computations that a time limit or Ctrl-C cut short.
        interrupted: True if it was Ctrl-C.
    """

    collective: str
    rates: tuple[MethodRate, ...]
    limit: str
    parts: tuple[tuple[int, ...], ...] = ()
    rings: Rings | None = None
    open: tuple[str, ...] = ()
    interrupted: bool = False


def explain(
    machine: Topology, name: str, scale_bound: ScaleBound, progress: Progress = lambda text: None
) -> Explanation:
    """Return the optimum of collective `name` beside disjoint rings.

    `scale_bound`: bounds a collective by cuts. A time limit (`synth.solvers.deadline`) leaves the rates found
    by then. Raises UsageError for a collective that is not in `RATED`, and for a single rank.
    """
    if name not in RATED:
        raise UsageError(
            f"rates are known for {', '.join(RATED)}; not for {name}: `synth pareto -o FILE` finds its schedules, "
            "`synth explain FILE --point K` says why one is slower than the bound"
        )
    if machine.ranks < 2:
        raise UsageError(f"{machine.name} has one rank: there is nothing to send")
    nodes = machine.ranks + len(machine.switches)
    label = components(nodes, *ends(machine.links), strong=True)[: machine.ranks]
    if (label != label[0]).any():
        return Explanation(name, (MethodRate("optimum", Fraction(0)),), "the links do not connect these ranks")

    # The bound, and whether packed trees attain it.
    progress("a bound for any number of steps")
    missing: list[str] = []
    with time_limited(current_deadline().share(BOUND_SHARE)):
        frontier = scale_bound(name)
    units = frontier.bound_gbps / frontier.unit
    if frontier.unfinished:
        missing.append(f"a tighter bound of {name}")
    listed = machine.ranks <= LISTED_RANKS and not machine.limits
    if listed and not frontier.unfinished and attained(machine.network(), name):
        rates = [MethodRate("optimum", units, "packed trees attain it")]
    else:
        rates = [MethodRate("upper bound", units)]

    # What else an allreduce could be, and rings, where time is left. Ctrl-C ends the search, and nothing more is begun.
    rings = Rings(complete=False)
    interrupted = False
    try:
        if name == "allreduce":
            rates.append(_composed_rate(scale_bound, missing))
        progress("rings")
        if not current_deadline().over:
            rings = disjoint_rings(machine, progress=progress)
    except KeyboardInterrupt:
        interrupted = True
    if not rings.complete:
        missing.append("more rings" if rings.rings else "rings")
    rates.append(_ring_rate(machine, name, rings))
    limit, parts = _limit(machine, name, units, frontier.certificate)
    return Explanation(name, tuple(rates), limit, parts, rings, tuple(missing), interrupted)


def _composed_rate(scale_bound: ScaleBound, missing: list[str]) -> MethodRate:
    """Return the rate of an allreduce as the optimal reduce-scatter followed by the optimal allgather.

    The bounds that the time limit leaves out are added to `missing`.
    """
    method, seconds_per_gb = "optimal reduce-scatter, then allgather", Fraction(0)
    for name in ("reduce-scatter", "allgather"):
        frontier = None if current_deadline().over else scale_bound(name)
        if frontier is None or frontier.unfinished:
            missing.append(f"the bound of {name}")
        else:
            seconds_per_gb += frontier.unit / frontier.bound_gbps
    if missing:
        return MethodRate(method, None, "no bound within the time limit")
    return MethodRate(method, 1 / seconds_per_gb)


def _ring_rate(machine: Topology, name: str, rings: Rings) -> MethodRate:
    """Return the rate of all rings, with the reason why no more fit, or how many more might."""
    if not rings.units:
        if rings.proved_maximum:
            remark = "no ring over these links: NCCL would leave them for PCIe or shared memory"
            return MethodRate("disjoint rings", Fraction(0), remark)
        remark = "none was found; that does not say there is none"
        return MethodRate("disjoint rings", None, remark if rings.complete else "none was found within the time limit")
    reason = ", the most that fit"
    if not rings.proved_maximum:
        reason = f"; more may fit, {rings.maximum} at most"
    elif rings.side:
        reason = f": no more fit through {_named(machine, rings.side)}"
    units = rings.units * ring_rate(name, machine.ranks)
    return MethodRate("disjoint rings", units, f"{_units(rings.units)} in all{reason}")


def _limit(machine: Topology, name: str, units: Fraction, certificate: dict) -> Sentence:
    """Return the sentence about the reason of the bound of `units`, and the labels of the ranks in it."""
    if certificate["kind"] == "throughput-cut":
        nodes = [n for first, last in certificate["inside"] for n in range(first, last + 1)]
        return _side_sentence(machine, name, [n for n in nodes if n < machine.ranks], units)
    if certificate["kind"] != "allreduce-parts":
        return "cuts of the fabric that share limits (`synth bound --engine flow` prints the certificate)", ()
    labels = []
    for region in certificate["regions"]:
        labels.append(_labels(machine, [n for n in region if n < machine.ranks]))
    shown = " | ".join(_runs(part) for part in labels[:LISTED_PARTS])
    more = f" | and {len(labels) - LISTED_PARTS} more" if len(labels) > LISTED_PARTS else ""
    times = 2 * (len(labels) - 1)
    return f"the parts {shown}{more}: each byte crosses between them at least {times} times", tuple(labels)


def _side_sentence(machine: Topology, name: str, side: Sequence[int], rate: Fraction) -> Sentence:
    """Return the sentence of a cut; the units across it follow from the rate that it allows, in units."""
    whole = name in ("broadcast", "allreduce")
    units = _units(rate if whole else rate * len(side) / machine.ranks)
    share = f"{len(side)} of {machine.ranks} parts"
    labels = (_labels(machine, side),)
    if name == "reduce-scatter":
        return f"{_named(machine, side)}: {units} from the others, for {share} of the result", labels
    data = {"broadcast": "the whole buffer", "allreduce": "their part of every sum"}.get(name, share)
    return f"{_named(machine, side)}: {units} to the others, which must get {data} from there", labels


def _units(units: Fraction | int) -> str:
    """Return ``1 unit``, ``2 units``."""
    number = str(units) if Fraction(units).denominator == 1 else f"{float(units):.6g}"
    return f"{number} unit{'' if units == 1 else 's'}"


def _named(machine: Topology, ranks: Sequence[int]) -> str:
    """Return ``rank 3`` or ``ranks 0-3``."""
    return ("rank " if len(ranks) == 1 else "ranks ") + _runs(_labels(machine, ranks))


def _labels(machine: Topology, ranks: Sequence[int]) -> tuple[int, ...]:
    """Return the ranks, ascending, as the whole machine numbers them that this one is a part of."""
    labels = machine.labels or range(machine.ranks)
    return tuple(labels[rank] for rank in sorted(ranks))


def _runs(ranks: Sequence[int]) -> str:
    """Return ``0-2,5``; of very many runs the first ones."""
    shown = []
    for first, last in int_ranges.runs(ranks):
        shown.append(str(first) if first == last else f"{first}-{last}")
    maximum = 2 * LISTED_PARTS
    more = f" and {len(shown) - maximum} runs more" if len(shown) > maximum else ""
    return ",".join(shown[:maximum]) + more
