"""Comparison of the optimum of a collective with NCCL-like rings on the same links, and what limits it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from synth.errors import SynthError, UsageError
from synth.model.documents import int_ranges
from synth.model.scale_frontier import ScaleFrontier
from synth.model.topology import Topology
from synth.scale.baselines.allocations import RATED, RateBound, rate_bound, ring_rate, tree_packing_bound
from synth.scale.baselines.rings import Rings, disjoint_rings, links_of
from synth.scale.fabric.graphs import components
from synth.solvers.processes.deadline import TimeUp, current_deadline, give_up, given_up, time_limited
from synth.solvers.processes.pool import run_in_process

Progress = Callable[[str], None]
ScaleBound = Callable[[str], ScaleFrontier]
# A sentence, and the labels of the ranks of each set that it is about.
Sentence = tuple[str, tuple[tuple[int, ...], ...]]

# Ranks up to which packed trees are searched on the routes from rank to rank, and up to which a linear program over
# steps gives the bound where packed trees do not attain it. Above, the scale engine gives the bound.
LISTED_RANKS, PROGRAM_RANKS = 128, 16
# Share of a time limit that trees and linear programs may take; rings and other bounds need the rest.
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
    machine: Topology, name: str, scale_bound: ScaleBound, progress: Progress = lambda text: None, root: int = 0
) -> Explanation:
    """Return the optimum of collective `name` beside disjoint rings.

    `root`: of a broadcast. `scale_bound`: bounds a collective by cuts. It is called above `PROGRAM_RANKS` ranks where
    no trees are known to attain the bound, and for the cut that limits. A time limit
    (`synth.solvers.processes.deadline`) leaves the rates found by then. Raises UsageError for a collective that is not
    in `RATED`, and for a single rank.
    """
    if name not in RATED:
        raise UsageError(
            f"rates are known for {', '.join(RATED)}; not for {name}: `synth pareto -o FILE` finds its schedules, "
            "`synth explain FILE --point K` says why one is slower than the bound"
        )
    if machine.ranks < 2:
        raise UsageError(f"{machine.name} has one rank: there is nothing to send")
    links = links_of(machine)
    if components(machine.ranks, links.src, links.dst, strong=True).any():
        return Explanation(name, (MethodRate("optimum", Fraction(0)),), "the links do not connect these ranks")
    bounds = _Bounds(machine, name, scale_bound, root)
    progress("a bound for any number of steps")
    bound = bounds.bound(name)
    if bound is None:
        rates = [MethodRate("upper bound", None, "none within the time limit")]
    elif bound.attained:
        rates = [MethodRate("optimum", bound.units, "packed trees attain it")]
    else:
        rates = [MethodRate("upper bound", bound.units)]
    if name == "allreduce":
        rates.append(_composed_rate(bounds))

    # Rings, where time is left. Ctrl-C ends the search, and nothing more is begun.
    progress("rings")
    rings = Rings(complete=False)
    if not current_deadline().over:
        try:
            rings = disjoint_rings(machine, progress=progress)
        except KeyboardInterrupt:
            give_up()
    if not rings.complete:
        bounds.open.append("more rings" if rings.rings else "rings")
    rates.append(_ring_rate(machine, name, rings))
    limit, parts = _limit(machine, name, bound, bounds.at_scale.get(name))
    return Explanation(name, tuple(rates), limit, parts, rings, tuple(bounds.open), given_up())


class _Bounds:
    """Bounds of collectives on one machine: `open` is what was cut short, `at_scale` the scale engine's bounds."""

    def __init__(self, machine: Topology, name: str, scale_bound: ScaleBound, root: int) -> None:
        self.machine, self.name, self.scale_bound, self.root = machine, name, scale_bound, root
        self.open: list[str] = []
        self.at_scale: dict[str, ScaleFrontier] = {}

    def bound(self, name: str) -> RateBound | None:
        """Return the bound of collective `name`; None where time ran out.

        By trees or linear programs; by the scale engine where they take longer, do not apply, or are higher.
        """
        if current_deadline().over and name != self.name:
            self.open.append(f"the bound of {name}")
            return None
        bound = None
        if self.machine.ranks <= LISTED_RANKS:
            method = rate_bound if self.machine.ranks <= PROGRAM_RANKS else tree_packing_bound
            try:
                with time_limited(current_deadline().share(BOUND_SHARE)):
                    bound = run_in_process(method, self.machine.network(), name, self.root)
            except TimeUp:
                self.open.append(f"a tighter bound of {name}, or trees that attain it")
        if bound is not None and (bound.attained or bound.cut or name != self.name):
            return bound
        try:
            if name not in self.at_scale:
                self.at_scale[name] = self.scale_bound(name)
        except SynthError:
            if bound is None:
                raise
            return bound
        frontier = self.at_scale[name]
        if frontier.unfinished and not any(name in line for line in self.open):
            self.open.append(f"a tighter bound of {name}")
        cut = RateBound(frontier.bound_gbps / frontier.unit, (), False)
        return cut if bound is None or cut.units < bound.units else bound


def _composed_rate(bounds: _Bounds) -> MethodRate:
    """Return the rate of an allreduce as the optimal reduce-scatter followed by the optimal allgather."""
    names = ("reduce-scatter", "allgather")
    method = "optimal reduce-scatter, then allgather"
    try:
        halves = [bounds.bound(name) for name in names]
    except KeyboardInterrupt:
        give_up()
        bounds.open += [f"the bound of {name}" for name in names]
        halves = []
    rates = [bound.units for bound in halves if bound is not None]
    if len(rates) < len(names) or not all(rates):
        return MethodRate(method, None, "no bound within the time limit")
    if any(bounds.at_scale[name].unfinished for name in names if name in bounds.at_scale):
        return MethodRate(method, None, "only bounds of the two within the time limit, no rates")
    return MethodRate(method, 1 / sum((1 / units for units in rates), Fraction(0)))


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


def _limit(machine: Topology, name: str, bound: RateBound | None, at_scale: ScaleFrontier | None) -> Sentence:
    """Return the sentence about the reason of the bound, and the labels of the ranks in it."""
    if bound is None:
        return "not known: the time limit came first", ()
    parts: list[list[int]] = []
    if bound.cut and name != "allreduce":
        return _side_sentence(machine, name, bound.cut, bound.units)
    if bound.cut:
        for part in dict.fromkeys(bound.cut):
            parts.append([rank for rank, other in enumerate(bound.cut) if other == part])
    elif at_scale is None or at_scale.bound_gbps / at_scale.unit != bound.units:
        return "the linear program over all cuts and times (`synth bound` prints the certificate)", ()
    elif at_scale.certificate["kind"] == "throughput-cut":
        nodes = [n for first, last in at_scale.certificate["inside"] for n in range(first, last + 1)]
        return _side_sentence(machine, name, [n for n in nodes if n < machine.ranks], bound.units)
    elif at_scale.certificate["kind"] == "allreduce-parts":
        for region in at_scale.certificate["regions"]:
            parts.append([n for n in region if n < machine.ranks])
    else:
        return "cuts of the fabric that share limits (`synth bound --engine flow` prints the certificate)", ()
    labels = tuple(_labels(machine, part) for part in parts)
    shown = " | ".join(_runs(part) for part in labels[:LISTED_PARTS])
    more = f" | and {len(parts) - LISTED_PARTS} more" if len(parts) > LISTED_PARTS else ""
    return f"the parts {shown}{more}: each byte crosses between them at least {2 * (len(parts) - 1)} times", labels


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
