"""Simulated annealing that joins the cycles of permutations into Hamiltonian cycles, in a fixed pseudo-random order.

The state is a list of permutations of the nodes (layers), each with the arcs that it takes, all within the capacities
together. There are two moves: two layers exchange the arcs of an alternating cycle (a Kempe chain), or one layer is
rerouted along an alternating path. A move that leaves fewer cycles is accepted, one that leaves more sometimes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, gcd
from random import Random

from synth.scale.baselines.rings.quotient_network import QuotientNetwork
from synth.solvers.processes.deadline import check_deadline


@dataclass(frozen=True)
class KempeSettings:
    """Parameters of the annealing.

    Attributes:
        temperature: First and last temperature. A move that leaves n more cycles is accepted with probability
            exp(-n / temperature), and the temperature falls linearly over the moves.
        exchange_share: Part of the moves that are exchanges where there are very many layers. Of two layers it
            is half of that.
        initial_exchanges: Random exchanges for each layer before the annealing, because the matchings that
            layers come from resemble each other.
        rerouted_nodes: Nodes that a rerouting may visit.
        rerouting_trials: Arcs out of a node that a rerouting tries at random.
    """

    temperature: tuple[float, ...] = (0.7, 0.25)
    exchange_share: float = 0.85
    initial_exchanges: int = 8
    rerouted_nodes: int = 6
    rerouting_trials: int = 4


SETTINGS = KempeSettings()

Layer = list[int]


class KempeAnnealing:
    """Layers within the capacities. `arc[i][u]` is the arc of layer i out of node u; `energy[i]` is 0 for a ring.

    `after[i][u]` and `before[i][u]` are the nodes that follow and precede node u in layer i, `voltage_sum[i]` the sum
    of its voltages, `remaining[k]` the multiples of `width` left of resource k.
    """

    def __init__(self, quotient: QuotientNetwork, width: int, layers: list[Layer], random: Random) -> None:
        self.quotient, self.arc, self.random = quotient, layers, random
        self.head, self.voltage, self.uses = quotient.dst, quotient.voltage, quotient.uses
        self.remaining = [units // width for units in quotient.capacity]
        self.after: list[list[int]] = []
        for layer in layers:
            self.after.append([self.head[h] for h in layer])
        self.before = [[0] * quotient.nodes for _ in layers]
        for layer, after, before in zip(layers, self.after, self.before, strict=True):
            for u, v in enumerate(after):
                before[v] = u
            for h in layer:
                self._release(h, -1)
        self.voltage_sum: list[int] = []
        for layer in layers:
            self.voltage_sum.append(sum(self.voltage[h] for h in layer))
        self.out: list[list[int]] = [[] for _ in range(quotient.nodes)]
        self.between: dict[tuple[int, int], list[int]] = {}
        for h, (u, v) in enumerate(zip(quotient.src, quotient.dst, strict=True)):
            self.out[u].append(h)
            self.between.setdefault((u, v), []).append(h)
        self.energy = [
            self._energy(after.copy(), voltage) for after, voltage in zip(self.after, self.voltage_sum, strict=True)
        ]
        self.temperature = SETTINGS.temperature[0]

    def _release(self, h: int, sign: int) -> None:
        """Give back what arc h takes (`sign` 1), or take it (-1)."""
        for k, times in self.uses[h]:
            self.remaining[k] += sign * times

    def _fits(self, h: int) -> bool:
        remaining = self.remaining
        for k, times in self.uses[h]:  # noqa: SIM110  called very often
            if remaining[k] < times:
                return False
        return True

    def _fitting(self, u: int, v: int) -> list[int]:
        """Arcs from node u to node v that fit."""
        return [h for h in self.between.get((u, v), ()) if self._fits(h)]

    def _energy(self, after: list[int], voltage: int) -> int:
        """Number of cycles less one, and one more where the lift of a single cycle would not be a single ring.

        `after` is overwritten.
        """
        cycles = -1
        for at in after:
            if at >= 0:
                cycles += 1
                while at >= 0:  # once round; the first node is -1 by then
                    following = after[at]
                    after[at] = -1
                    at = following
        order = self.quotient.order
        return cycles + (order > 1 and gcd(voltage, order) != 1)

    def ring(self, i: int) -> Layer:
        """Arcs of layer i one after the other, from node 0."""
        row, ring = self.arc[i], []
        at = 0
        for _ in row:
            ring.append(row[at])
            at = self.head[row[at]]
        return ring

    def run(self, steps: int) -> None:
        """Make at most `steps` moves, until every layer is a ring. Raises TimeUp."""
        uniform, count, nodes = self.random.random, len(self.arc), self.quotient.nodes
        for _ in range(SETTINGS.initial_exchanges * count if count > 1 else 0):
            i, j = self.random.sample(range(count), 2)
            self._exchange(i, j, int(uniform() * nodes), always=True)
        unfinished = [i for i, e in enumerate(self.energy) if e]
        exchange_share = SETTINGS.exchange_share * (1 - 1 / count)
        for step in range(steps):
            if not unfinished:
                return
            if not step & 255:
                check_deadline()
                self.temperature = (
                    SETTINGS.temperature[0] + (SETTINGS.temperature[1] - SETTINGS.temperature[0]) * step / steps
                )
            i = unfinished[int(uniform() * len(unfinished))]
            u = int(uniform() * nodes)
            j = int(uniform() * count)
            changed = self._exchange(i, j, u) if i != j and uniform() < exchange_share else self._reroute(i, u)
            if changed:
                unfinished = [i for i, e in enumerate(self.energy) if e]

    def _accept(self, increase: int) -> bool:
        return increase <= 0 or self.random.random() < exp(-increase / self.temperature)

    def _exchange(self, i: int, j: int, u: int, always: bool = False) -> bool:
        """Exchange the arcs of the Kempe chain of layers i and j through node u; True if the move is made.

        The chain is closed under "leave by an arc of j, go back along an arc of i", so both layers stay permutations.
        Loads do not change, since both layers are counted together.
        """
        one, two = self.arc[i], self.arc[j]
        if one[u] == two[u]:
            return False
        before, first, second, voltage = self.before[i], self.after[i], self.after[j], self.voltage
        trial, other = first.copy(), second.copy()
        chain, shift, at = [], 0, u
        while True:
            chain.append(at)
            trial[at], other[at] = second[at], first[at]
            shift += voltage[two[at]] - voltage[one[at]]
            at = before[second[at]]
            if at == u:
                break
        energy_i = self._energy(trial, self.voltage_sum[i] + shift)
        energy_j = self._energy(other, self.voltage_sum[j] - shift)
        if not always and not self._accept(energy_i + energy_j - self.energy[i] - self.energy[j]):
            return False
        self.energy[i], self.energy[j] = energy_i, energy_j
        self.voltage_sum[i] += shift
        self.voltage_sum[j] -= shift
        back = self.before[j]
        for w in chain:
            one[w], two[w] = two[w], one[w]
            first[w], second[w] = second[w], first[w]
            before[first[w]] = w
            back[second[w]] = w
        return True

    def _reroute(self, i: int, u: int) -> bool:
        """Reroute layer i along an alternating path from node u; True if the move is made.

        Node u takes a random other arc. The node whose successor it takes then takes another arc, and so on, until a
        node takes the old successor of u. A node that loses its successor releases its arc first, because full ports
        would leave no capacity before.
        """
        row, before, head, uniform = self.arc[i], self.before[i], self.head, self.random.random
        goal = head[row[u]]
        displaced, old = [u], [row[u]]
        self._release(row[u], 1)
        at, closed = u, False
        for depth in range(SETTINGS.rerouted_nodes):
            closing = self._fitting(at, goal) if depth else ()
            if closing:
                row[at] = closing[int(uniform() * len(closing))]
                self._release(row[at], -1)
                closed = True
                break
            out, h = self.out[at], -1
            for _ in range(SETTINGS.rerouting_trials):
                trial = out[int(uniform() * len(out))]
                if trial == old[-1]:
                    continue
                if head[trial] == goal:
                    if self._fits(trial):
                        h = trial
                        break
                    continue
                loser = before[head[trial]]
                if loser in displaced:
                    continue
                self._release(row[loser], 1)
                if self._fits(trial):
                    h = trial
                    break
                self._release(row[loser], -1)
            if h < 0:
                break
            row[at] = h
            self._release(h, -1)
            if head[h] == goal:
                closed = True
                break
            at = before[head[h]]
            displaced.append(at)
            old.append(row[at])
        if closed:
            after, voltage = self.after[i].copy(), self.voltage_sum[i]
            for w, h in zip(displaced, old, strict=True):
                after[w] = head[row[w]]
                voltage += self.voltage[row[w]] - self.voltage[h]
            energy = self._energy(after, voltage)
            if self._accept(energy - self.energy[i]):
                self.energy[i], self.voltage_sum[i] = energy, voltage
                for w in displaced:
                    self.after[i][w] = head[row[w]]
                    before[head[row[w]]] = w
                return True
        # undo: of a path that was not closed, the last node holds no arc
        for w in displaced if closed else displaced[:-1]:
            self._release(row[w], 1)
        for w, h in zip(displaced, old, strict=True):
            row[w] = h
            self._release(h, -1)
        return False
