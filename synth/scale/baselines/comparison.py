"""Comparison of the optimum of a collective with NCCL-like rings and trees on the same links, and what limits it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction

from synth.errors import SynthError, UsageError
from synth.model.scale_frontier import ScaleFrontier
from synth.model.topology import Network, Topology
from synth.scale.baselines.allocations import RATED, RateBound, induced, rate_bound, ring_rate, tree_packing_bound
from synth.scale.baselines.double_binary_tree import tree_rate
from synth.scale.baselines.limit_sentences import LimitSentences, runs, units_phrase
from synth.scale.baselines.rings import ring_network
from synth.scale.baselines.rings import search as rings
from synth.scale.baselines.rings.ring_network import Rings
from synth.solvers.processes.deadline import TimeUp, current_deadline, give_up, given_up, time_limited
from synth.solvers.processes.pool import run_in_process

Progress = Callable[[str], None]
ScaleBound = Callable[[str], ScaleFrontier]


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


@dataclass(frozen=True)
class ComparisonSettings:
    """Sizes up to which baselines are compared.

    Attributes:
        maximum_units: Units of all links together up to which linear programs and 64-bit sums are exact.
        listed_ranks: Ranks up to which packed trees are searched on the links from rank to rank. Above, the
            scale engine gives the bound.
        program_ranks: Ranks up to which a linear program over steps gives the bound where packed trees do not
            attain it.
        reserved_share: Share of a time limit that the search for a bound by trees and linear programs leaves
            for all else.
    """

    maximum_units: int = 1 << 40
    listed_ranks: int = 128
    program_ranks: int = 16
    reserved_share: float = 0.6


SETTINGS = ComparisonSettings()


def explain(
    topology: Network | Topology,
    name: str,
    labels: Sequence[int] = (),
    scale_bound: ScaleBound | None = None,
    progress: Progress = lambda text: None,
    root: int = 0,
) -> Explanation:
    """Return the optimum of collective `name` beside one ring, all disjoint rings and double binary trees.

    `root`: of a broadcast. `labels`: names of the ranks in the sentences. `scale_bound`: bounds a collective by cuts.
    It is called above `SETTINGS.program_ranks` ranks where no trees are known to attain the bound, and for the cut that
    limits.
    A time limit (`synth.solvers.processes.deadline`) leaves the rates found by then. Raises UsageError for a collective
    that is not in `RATED`, SynthError for bandwidths that are negative or need too many units.
    """
    if name not in RATED:
        raise UsageError(
            f"rates are known for {', '.join(RATED)}; not for {name}: `synth pareto -o FILE` finds its schedules, "
            "`synth explain FILE --point K` says why one is slower than the bound"
        )
    network = None
    if isinstance(topology, Network):
        network = topology
    elif topology.ranks <= SETTINGS.listed_ranks:
        network = topology.network()
    if network is not None:
        route_units = [route.units for route in network.routes]
        cap_units = [cap.units for cap in network.caps]
        if min(route_units, default=0) < 0 or min(cap_units, default=0) < 0:
            raise SynthError(f"{network.name}: a bandwidth is negative; a link that is down has 0")
        if sum(route_units) > SETTINGS.maximum_units:
            raise SynthError(
                f"{network.name}: its links are {SETTINGS.maximum_units} units and more together; "
                f"round the bandwidths to fewer digits"
            )
        if not all(route_units) or not all(cap_units):
            network = induced(network, range(network.ranks))
            topology = network if isinstance(topology, Network) else topology
    query = _Query(topology, network, name, list(labels or range(topology.ranks)), scale_bound, progress, root)
    return _Comparison(query).run()


@dataclass(frozen=True)
class _Query:
    """Arguments of `explain`; `network` is the topology from rank to rank, None where it has too many ranks."""

    topology: Network | Topology
    network: Network | None
    name: str
    labels: list[int]
    scale_bound: ScaleBound | None
    progress: Progress
    root: int


class _Comparison:
    """State of one `explain`: `open` is what was cut short, `scale_frontiers` the scale engine's bounds by name."""

    def __init__(self, query: _Query) -> None:
        self.topology, self.network, self.name = query.topology, query.network, query.name
        self.labels, self.scale_bound, self.progress, self.root = (
            query.labels, query.scale_bound, query.progress, query.root
        )  # fmt: skip
        self.words = LimitSentences(query.name, query.labels)
        self.links = ring_network.of_machine(query.topology)
        self.open: list[str] = []
        self.scale_frontiers: dict[str, ScaleFrontier] = {}

    def run(self) -> Explanation:
        """Rate all methods. Raises UsageError for a single rank."""
        if self.topology.ranks < 2:
            raise UsageError(f"{self.topology.name} has one rank: there is nothing to send")
        if not self.links.connected():
            none = (MethodRate("optimum", Fraction(0)),)
            return Explanation(self.name, none, "the links do not connect these ranks")
        self.progress("a bound for any number of steps")
        bound = self._minimum_with_scale_bound(self._bound(self.name))
        if bound is None:
            rates = [MethodRate("upper bound", None, "none within the time limit")]
        elif bound.attained:
            rates = [MethodRate("optimum", bound.units, "packed trees attain it")]
        else:
            rates = [MethodRate("upper bound", bound.units)]
        if self.name == "allreduce":
            rates.append(self._composed_rate())
        # the trees take no time beside a long search for rings, so they come first
        trees = [self._tree_rate()] if self.name in ("broadcast", "allreduce") else []
        self.progress("rings")
        found = self._disjoint_rings()
        rates += [*self._ring_rates(found), *trees]
        limit, parts = self._limit(bound)
        return Explanation(self.name, tuple(rates), limit, parts, found, tuple(self.open), given_up())

    def _disjoint_rings(self) -> Rings:
        """All rings together, none where the time is over. Ctrl-C ends the search, and nothing more is begun."""
        if not current_deadline().over:
            try:
                return rings.disjoint_rings(self.topology, self.progress, self.links)
            except KeyboardInterrupt:
                give_up()
        return Rings((), False, complete=False)

    def _bound(self, name: str, reserved: float = SETTINGS.reserved_share) -> RateBound | None:
        """Bound of collective `name`; None where time ran out.

        Trees and linear programs may take all of a time limit but the share `reserved`. The scale engine gives the
        bound where they take longer or do not apply.
        """
        if current_deadline().over and name != self.name:
            self.open.append(f"the bound of {name}")
            return None
        network, late = self.network, False
        if network is not None:
            try:
                with time_limited(current_deadline().share(1 - reserved)):
                    exact = self.scale_bound is None or network.ranks <= SETTINGS.program_ranks
                    method = rate_bound if exact else tree_packing_bound
                    bound = run_in_process(method, network, name, self.root)
                    if bound is not None:
                        return bound
            except TimeUp:
                late = True
        if late and self.scale_bound is None:
            self.open.append(f"the bound of {name}")
            return None
        if late:
            self.open.append(f"a tighter bound of {name}, or trees that attain it")
        return self._bound_at_scale(name)

    def _minimum_with_scale_bound(self, bound: RateBound | None) -> RateBound | None:
        """The lower of `bound` and the scale engine's, where `bound` comes from a linear program."""
        if bound is None or bound.attained or bound.cut or self.scale_bound is None:
            return bound
        with suppress(SynthError):
            if self.name not in self.scale_frontiers:
                self.scale_frontiers[self.name] = self.scale_bound(self.name)
            frontier = self.scale_frontiers[self.name]
            at_scale = RateBound(frontier.bound_gbps / frontier.unit, (), False)
            return at_scale if at_scale.units < bound.units else bound
        return bound

    def _bound_at_scale(self, name: str) -> RateBound:
        """Bound of collective `name` by the scale engine. Raises UsageError where there is none."""
        if self.scale_bound is None:
            raise UsageError(
                f"{self.topology.name} has {self.topology.ranks} ranks, above {SETTINGS.listed_ranks}; "
                f"`synth bound` prints its optimum"
            )
        if name not in self.scale_frontiers:
            self.scale_frontiers[name] = self.scale_bound(name)
            if self.scale_frontiers[name].unfinished and not any(name in line for line in self.open):
                self.open.append(f"a tighter bound of {name}")
        frontier = self.scale_frontiers[name]
        return RateBound(frontier.bound_gbps / frontier.unit, (), False)

    def _composed_rate(self) -> MethodRate:
        """Rate of an allreduce as the optimal reduce-scatter followed by the optimal allgather."""
        names = ("reduce-scatter", "allgather")
        method = "optimal reduce-scatter, then allgather"
        try:
            bounds = [self._bound(name) for name in names]
        except KeyboardInterrupt:
            give_up()
            self.open += [f"the bound of {name}" for name in names]
            bounds = []
        rates = [bound.units for bound in bounds if bound is not None]
        if len(rates) < len(names) or not all(rates):
            return MethodRate(method, None, "no bound within the time limit")
        if any(self.scale_frontiers[name].unfinished for name in names if name in self.scale_frontiers):
            return MethodRate(method, None, "only bounds of the two within the time limit, no rates")
        return MethodRate(method, 1 / sum((1 / units for units in rates), Fraction(0)))

    def _ring_rates(self, found: Rings) -> list[MethodRate]:
        """Rates of all disjoint rings and of one ring."""
        unit_rate = ring_rate(self.name, self.topology.ranks)
        if not found.units:
            rate, remark = None, "none was found; that does not say there is none"
            if found.proved_maximum:
                rate, remark = Fraction(0), "no ring over these links: NCCL would leave them for PCIe or shared memory"
            if not found.complete:
                self.open.append("rings")
                rate, remark = None, "none was found within the time limit"
            return [MethodRate("all disjoint rings", rate, remark), MethodRate("one ring", rate, remark)]
        if not found.complete:
            self.open.append("more rings")
        remark = f"{units_phrase(found.units)} in all{self._reason(found)}"
        rates = [MethodRate("all disjoint rings", found.units * unit_rate, remark)]
        widest = max(units for _, units in found.rings)
        with suppress(TimeUp):
            widest = rings.widest_ring(self.topology, found, self.links)
        rates.append(MethodRate("one ring", widest * unit_rate, f"{units_phrase(widest)} wide"))
        return rates

    def _reason(self, found: Rings) -> str:
        """The reason why no more rings fit, or how many more might."""
        bound = found.bound
        if found.proved_maximum and (bound is None or bound.units > found.units):
            return ", the most that fit"
        if bound is None:
            return "; more may fit"
        if not found.proved_maximum:
            return f"; more may fit, {bound.units} at most"
        verb = "leave" if bound.leaving else "enter"
        return f": no more {verb} {self.words.ranks(bound.side)}"

    def _tree_rate(self) -> MethodRate:
        method = "double binary trees"
        try:
            rate = tree_rate(self.links, None if self.name == "allreduce" else self.root)
        except (TimeUp, KeyboardInterrupt) as stop:
            if isinstance(stop, KeyboardInterrupt):
                give_up()
            self.open.append(method)
            return MethodRate(method, None, "not within the time limit")
        return MethodRate(method, rate, "in the order of the ranks; an edge without a link follows a shortest path")

    def _limit(self, bound: RateBound | None) -> tuple[str, tuple[tuple[int, ...], ...]]:
        """The sentence about the reason of the bound, and the labels of the ranks in it."""
        if bound is None:
            return "not known: the time limit came first", ()
        if bound.cut:
            if self.name == "allreduce":
                return self.words.parts(bound.cut, self.links)
            return self.words.side(bound.cut, bound.units)
        frontier = self.scale_frontiers.get(self.name)
        if frontier is None or frontier.bound_gbps / frontier.unit != bound.units:
            return "the linear program over all cuts and times (`synth bound` prints the certificate)", ()
        certificate, ranks = frontier.certificate, self.topology.ranks
        if certificate["kind"] == "throughput-cut":
            inside = tuple(n for first, last in certificate["inside"] for n in range(first, last + 1) if n < ranks)
            return self.words.side(inside, bound.units)
        if certificate["kind"] == "allreduce-parts":
            parts = tuple(self._labels_of(region) for region in certificate["regions"])
            sentence = f"each byte crosses between them at least {2 * (len(parts) - 1)} times"
            return f"{self.words.listed(parts)}: {sentence}", parts
        return "cuts of the fabric that share limits (`synth bound --engine flow` prints the certificate)", ()

    def _labels_of(self, region: Sequence[int]) -> tuple[int, ...]:
        """Labels of the ranks of a region, whose other nodes are switches."""
        return tuple(self.labels[n] for n in region if n < self.topology.ranks)


__all__ = ["RATED", "Explanation", "MethodRate", "explain", "runs"]
