"""Why a machine is as fast as it is: the optimum beside what NCCL-like rings and trees reach on the same links."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction

from synth.errors import SynthError, UsageError
from synth.model.scale_frontier import Large
from synth.model.topology import Network, Topology
from synth.scale.baselines.allocations import RATED, Best, best, by_trees, induced, share
from synth.scale.baselines.comparison_text import Words, runs, units_of
from synth.scale.baselines.double_binary_tree import tree_rate
from synth.scale.baselines.rings import ring_network
from synth.scale.baselines.rings import search as rings
from synth.scale.baselines.rings.cut_bound import RingBound
from synth.scale.baselines.rings.search import Rings
from synth.solvers.processes.deadline import TimeUp, apart, give_up, given_up, left, until


@dataclass(frozen=True)
class Way:
    """One way to run the collective: units of algorithmic bandwidth (size / time), None where time ran out, and a
    remark."""

    name: str
    units: Fraction | None
    remark: str = ""


@dataclass(frozen=True)
class Explanation:
    """`ways`: the bound first. `limit`: in words, what the bound rests on. `parts`: the ranks of each part or side that
    it speaks of.

    `rings`: all rings together, and what limits them. `open`: what a time limit or Ctrl-C cut short; `interrupted`: it
    was Ctrl-C.
    """

    collective: str
    ways: tuple[Way, ...]
    limit: str
    parts: tuple[tuple[int, ...], ...] = ()
    rings: Rings | None = None
    open: tuple[str, ...] = ()
    interrupted: bool = False


# Units of all links together that linear programs and 64-bit sums still take exactly.
MOST_UNITS = 1 << 40
# Ranks up to which links are listed from rank to rank to look for trees; above, flows alone say the bound.
LISTED = 128
# Ranks up to which a linear program over steps bounds what trees do not attain.
FEW_RANKS = 16
# The share of a time limit that is left to all else when trees and linear programs look for a bound.
SPARED = 0.6
Tell = Callable[[str], None]
Flows = Callable[[str], Large]


def explain(
    machine: Network | Topology,
    name: str,
    labels: Sequence[int] = (),
    flows: Flows | None = None,
    tell: Tell = lambda text: None,
    root: int = 0,
) -> Explanation:
    """The optimum of collective `name` and, as far as the links allow them, one ring, all disjoint rings and double
    binary trees.

    `root`: of a broadcast. `labels`: what the ranks are called in the sentences. `flows`: bounds a collective by cuts;
    asked above
    `FEW_RANKS` ranks where no trees are known to attain the bound, and for the cut that limits.
    Under a time limit (`synth.solvers.processes.deadline`) what is found by then.
    Raises UsageError for a collective without a rate (see `RATED`).
    """
    if name not in RATED:
        raise UsageError(f"rates are known for {', '.join(RATED)}; not for {name}")
    network = machine if isinstance(machine, Network) else machine.network() if machine.ranks <= LISTED else None
    if network is not None:
        if any(r.units < 0 for r in network.routes) or any(cap.units < 0 for cap in network.caps):
            raise SynthError(f"{network.name}: a bandwidth is negative; a link that is down has 0")
        if sum(r.units for r in network.routes) > MOST_UNITS:
            raise SynthError(
                f"{network.name}: its links are {MOST_UNITS} units and more together; round the bandwidths to fewer "
                f"digits"
            )
        if not all(r.units for r in network.routes) or not all(cap.units for cap in network.caps):
            network = induced(network, range(network.ranks))
            machine = network if isinstance(machine, Network) else machine
    return _Explained(machine, network, name, list(labels or range(machine.ranks)), flows, tell, root).run()


class _Explained:
    def __init__(
        self,
        machine: Network | Topology,
        network: Network | None,
        name: str,
        labels: list[int],
        flows: Flows | None,
        tell: Tell,
        root: int,
    ) -> None:
        self.root = root
        self.machine, self.network, self.name, self.labels, self.flows, self.tell = (
            machine,
            network,
            name,
            labels,
            flows,
            tell,
        )
        self.words = Words(name, labels)
        self.wires = ring_network.of(machine)
        self.open: list[str] = []
        self.known: dict[str, Large] = {}

    def run(self) -> Explanation:
        if self.machine.ranks < 2:
            raise UsageError(f"{self.machine.name} has one rank: there is nothing to send")
        if not self.wires.connected():
            none = (Way("optimum", Fraction(0)),)
            return Explanation(self.name, none, "the links do not connect these ranks")
        self.tell("bound")
        top = self._lesser(self._best(self.name))
        if top is None:
            ways = [Way("upper bound", None, "none within the time limit")]
        else:
            ways = [
                Way(
                    "optimum" if top.attained else "upper bound",
                    top.units,
                    "packed trees attain it" if top.attained else "",
                )
            ]
        if self.name == "allreduce":
            ways.append(self._composed())
        trees = (
            [self._trees()] if self.name in ("broadcast", "allreduce") else []
        )  # which take no time beside a long search for rings
        self.tell("rings")
        found = self._disjoint()
        ways += [*self._rings(found), *trees]
        limit, parts = self._limit(top)
        return Explanation(self.name, tuple(ways), limit, parts, found, tuple(self.open), given_up())

    def _disjoint(self) -> Rings:
        """All rings together, none where the time is over; Ctrl-C ends the search, and nothing more is begun."""
        if left() != 0:
            try:
                return rings.disjoint(self.machine, self.tell, self.wires)
            except KeyboardInterrupt:
                give_up()
        return Rings((), False, whole=False)

    def _best(self, name: str, spared: float = SPARED) -> Best | None:
        """The bound of `name`; under a time limit flows say it where trees and linear programs take too long: a share
        `spared` is left."""
        if left() == 0 and name != self.name:
            self.open.append(f"the bound of {name}")
            return None
        network, late = self.network, False
        if network is not None:
            seconds = left()
            try:
                with until(None if seconds is None else seconds * (1 - spared)):
                    asked = best if self.flows is None or network.ranks <= FEW_RANKS else by_trees
                    if (found := apart(asked, network, name, self.root)) is not None:
                        return found
            except TimeUp:
                late = True
        if late:
            self.open.append(
                f"the bound of {name}" if self.flows is None else f"a sharper bound of {name}, or trees that attain it"
            )
            if self.flows is None:
                return None
        return self._by_flows(name)

    def _lesser(self, top: Best | None) -> Best | None:
        """`top`, or what flows say where a linear program says more."""
        if top is None or top.attained or top.cut or self.flows is None:
            return top
        with suppress(SynthError):
            if self.name not in self.known:
                self.known[self.name] = self.flows(self.name)
            large = self.known[self.name]
            return min(top, Best(large.bound_gbps / large.unit, (), False), key=lambda b: b.units)
        return top

    def _by_flows(self, name: str) -> Best:
        if self.flows is None:
            raise UsageError(
                f"{self.machine.name} has {self.machine.ranks} ranks, above {LISTED}; `synth bound` says its optimum"
            )
        if name not in self.known:
            self.known[name] = self.flows(name)
            if self.known[name].open and not any(name in line for line in self.open):
                self.open.append(f"a sharper bound of {name}")
        large = self.known[name]
        return Best(large.bound_gbps / large.unit, (), False)

    def _composed(self) -> Way:
        names = ("reduce-scatter", "allgather")
        name = "optimal reduce-scatter, then allgather"
        try:
            both = [self._best(name) for name in names]
        except KeyboardInterrupt:
            give_up()
            self.open += [f"the bound of {name}" for name in names]
            both = [None]
        if None in both or not all(b.units for b in both if b is not None):
            return Way(name, None, "no bound within the time limit")
        if any(self.known[name].open for name in names if name in self.known):
            return Way(name, None, "only bounds of the two within the time limit, no rates")
        return Way(name, 1 / sum((1 / b.units for b in both if b is not None), Fraction(0)))

    def _rings(self, found: Rings) -> list[Way]:
        part = share(self.name, self.machine.ranks)
        if not found.units:
            reached, none = None, "none was found; that does not say there is none"
            if found.most:
                reached, none = Fraction(0), "no ring over these links: NCCL would leave them for PCIe or shared memory"
            if not found.whole:
                self.open.append("rings")
                reached, none = None, "none was found within the time limit"
            return [Way("all disjoint rings", reached, none), Way("one ring", reached, none)]
        if not found.whole:
            self.open.append("more rings")
        several = f"{units_of(found.units)} in all{self._why(found)}"
        ways = [Way("all disjoint rings", found.units * part, several)]
        one = max(units for _, units in found.rings)
        with suppress(TimeUp):
            one = rings.widest(self.machine, found, self.wires)
        ways.append(Way("one ring", one * part, f"{units_of(one)} wide"))
        return ways

    def _why(self, found: Rings) -> str:
        """That no more rings fit, and why; or how many might."""
        bound: RingBound | None = found.bound
        if found.most and (bound is None or bound.units > found.units):
            return ", the most that fit"
        if bound is None:
            return "; more may fit"
        if not found.most:
            return f"; more may fit, {bound.units} at most"
        verb = "leave" if bound.leaving else "enter"
        return f": no more {verb} {self.words.ranks(bound.side)}"

    def _trees(self) -> Way:
        name = "double binary trees"
        try:
            rate = tree_rate(self.wires, None if self.name == "allreduce" else self.root)
        except (TimeUp, KeyboardInterrupt) as stop:
            if isinstance(stop, KeyboardInterrupt):
                give_up()
            self.open.append(name)
            return Way(name, None, "not within the time limit")
        return Way(name, rate, "in the order of the ranks; an edge without a link goes a shortest way")

    def _limit(self, top: Best | None) -> tuple[str, tuple[tuple[int, ...], ...]]:
        """What the bound rests on, and the ranks that the sentence is about."""
        if top is None:
            return "not known: the time limit came first", ()
        if top.cut:
            return (
                self.words.parts(top.cut, self.wires)
                if self.name == "allreduce"
                else self.words.side(top.cut, top.units)
            )
        large = self.known.get(self.name)  # by flows: a cut that says no more than the linear program
        if large is None or large.bound_gbps / large.unit != top.units:
            return "the linear program over all cuts and times (`synth bound` prints the certificate)", ()
        certificate, ranks = large.certificate, self.machine.ranks
        if certificate["kind"] == "throughput-cut":
            inside = tuple(n for first, last in certificate["inside"] for n in range(first, last + 1) if n < ranks)
            return self.words.side(inside, top.units)
        if certificate["kind"] == "allreduce-parts":
            parts = tuple(tuple(self.labels[n] for n in region if n < ranks) for region in certificate["regions"])
            return (
                f"{self.words.listed(parts)}: each byte crosses between them at least {2 * (len(parts) - 1)} times",
                parts,
            )
        return "cuts of the fabric that share limits (`synth bound --engine flow` prints the certificate)", ()


__all__ = ["RATED", "Explanation", "Way", "explain", "runs"]
