"""Moves that join the cycles of permutations that fit together into rings, by simulated annealing in a fixed
pseudo-random order.

Two permutations exchange the hops of an alternating cycle (a Kempe chain), or one permutation takes other hops along an
alternating path; what is taken stays within the links' room. A move that leaves fewer cycles is kept, one that leaves
more sometimes.
"""

from __future__ import annotations

from math import exp, gcd
from random import Random

from synth.scale.baselines.rings.folded_network import Hops
from synth.solvers.processes.deadline import check

# A move that leaves more cycles is taken with probability exp(-cycles / heat); heat falls from the first to the second
# of these.
HEAT = (0.7, 0.25)
# Of very many layers the part of moves that are exchanges; of two half of it.
EXCHANGED = 0.85
# Exchanges per layer before: matchings come one like the other.
MIX = 8
# How many nodes a rerouting may reach.
REACH = 6
# Hops out of a node that a rerouting tries.
TRIALS = 4

Layer = list[int]


class Search:
    """Layers within the room, `hop[i][u]` out of node u; `energy[i]` is 0 where layer i is a ring."""

    def __init__(self, hops: Hops, width: int, layers: list[Layer], random: Random) -> None:
        self.hops, self.hop, self.random = hops, layers, random
        self.to, self.turn, self.uses = hops.dst, hops.turn, hops.uses
        self.room = [units // width for units in hops.room]
        self.after = [[self.to[h] for h in layer] for layer in layers]
        self.before = [[0] * hops.nodes for _ in layers]
        for layer, after, before in zip(layers, self.after, self.before, strict=True):
            for u, v in enumerate(after):
                before[v] = u
            for h in layer:
                self._take(h, -1)
        self.turned = [sum(self.turn[h] for h in layer) for layer in layers]
        self.out: list[list[int]] = [[] for _ in range(hops.nodes)]
        self.between: dict[tuple[int, int], list[int]] = {}
        for h, (u, v) in enumerate(zip(hops.src, hops.dst, strict=True)):
            self.out[u].append(h)
            self.between.setdefault((u, v), []).append(h)
        self.energy = [
            self._energy(after.copy(), turned) for after, turned in zip(self.after, self.turned, strict=True)
        ]
        self.heat = HEAT[0]

    def _take(self, h: int, sign: int) -> None:
        for k, times in self.uses[h]:
            self.room[k] += sign * times

    def _fits(self, h: int) -> bool:
        room = self.room
        for k, times in self.uses[h]:  # noqa: SIM110  asked very often
            if room[k] < times:
                return False
        return True

    def _energy(self, after: list[int], turned: int) -> int:
        """Cycles of a permutation less one, and one more where its turns leave some positions out; `after` is used
        up."""
        cycles = -1
        for at in after:
            if at >= 0:
                cycles += 1
                while at >= 0:  # round once, and a step on to the first one, which is -1 then
                    following = after[at]
                    after[at] = -1
                    at = following
        order = self.hops.order
        return cycles + (order > 1 and gcd(turned, order) != 1)

    def ring(self, i: int) -> Layer:
        """The hops of layer i one after the other, from node 0."""
        row, found = self.hop[i], []
        at = 0
        for _ in row:
            found.append(row[at])
            at = self.to[row[at]]
        return found

    def run(self, steps: int) -> None:
        """At most `steps` moves, until every layer is a ring."""
        pick, count, nodes = self.random.random, len(self.hop), self.hops.nodes
        for _ in range(MIX * count if count > 1 else 0):
            i, j = self.random.sample(range(count), 2)
            self._exchange(i, j, int(pick() * nodes), always=True)
        bad = [i for i, e in enumerate(self.energy) if e]
        exchanged = EXCHANGED * (1 - 1 / count)
        for step in range(steps):
            if not bad:
                return
            if not step & 255:
                check()
                self.heat = HEAT[0] + (HEAT[1] - HEAT[0]) * step / steps
            i = bad[int(pick() * len(bad))]
            u = int(pick() * nodes)
            j = int(pick() * count)
            changed = self._exchange(i, j, u) if i != j and pick() < exchanged else self._reroute(i, u)
            if changed:
                bad = [i for i, e in enumerate(self.energy) if e]

    def _accept(self, gain: int) -> bool:
        return gain <= 0 or self.random.random() < exp(-gain / self.heat)

    def _exchange(self, i: int, j: int, u: int, always: bool = False) -> bool:
        one, two = self.hop[i], self.hop[j]
        if one[u] == two[u]:
            return False
        before, first, second, turn = self.before[i], self.after[i], self.after[j], self.turn
        trial, other = first.copy(), second.copy()
        chain, more, at = [], 0, u
        while True:
            chain.append(at)
            trial[at], other[at] = second[at], first[at]
            more += turn[two[at]] - turn[one[at]]
            at = before[second[at]]
            if at == u:
                break
        new = self._energy(trial, self.turned[i] + more), self._energy(other, self.turned[j] - more)
        if not always and not self._accept(sum(new) - self.energy[i] - self.energy[j]):
            return False
        self.energy[i], self.energy[j] = new
        self.turned[i] += more
        self.turned[j] -= more
        back = self.before[j]
        for w in chain:
            one[w], two[w] = two[w], one[w]
            first[w], second[w] = second[w], first[w]
            before[first[w]] = w
            back[second[w]] = w
        return True

    def _reroute(self, i: int, u: int) -> bool:
        """Takes a random hop out of u, then gives whoever lost its successor another one, until someone takes u's old
        one.

        Who loses its successor gives its hop back first: where ports are full there is room for none before.
        """
        row, before, to, pick = self.hop[i], self.before[i], self.to, self.random.random
        goal = to[row[u]]
        lost, old = [u], [row[u]]
        self._take(row[u], 1)
        at, done = u, False
        for turn in range(REACH):
            close = [h for h in self.between.get((at, goal), ()) if self._fits(h)] if turn else ()
            if close:
                row[at] = close[int(pick() * len(close))]
                self._take(row[at], -1)
                done = True
                break
            out, h = self.out[at], -1
            for _ in range(TRIALS):
                trial = out[int(pick() * len(out))]
                if trial == old[-1]:
                    continue
                if to[trial] == goal:
                    if self._fits(trial):
                        h = trial
                        break
                    continue
                loser = before[to[trial]]
                if loser in lost:
                    continue
                self._take(row[loser], 1)
                if self._fits(trial):
                    h = trial
                    break
                self._take(row[loser], -1)
            if h < 0:
                break
            row[at] = h
            self._take(h, -1)
            if to[h] == goal:
                done = True
                break
            at = before[to[h]]
            lost.append(at)
            old.append(row[at])
        if done:
            after, turned = self.after[i].copy(), self.turned[i]
            for w, h in zip(lost, old, strict=True):
                after[w] = to[row[w]]
                turned += self.turn[row[w]] - self.turn[h]
            new = self._energy(after, turned)
            if self._accept(new - self.energy[i]):
                self.energy[i], self.turned[i] = new, turned
                for w in lost:
                    self.after[i][w] = to[row[w]]
                    before[to[row[w]]] = w
                return True
        for w in lost if done else lost[:-1]:  # else the last one has none
            self._take(row[w], 1)
        for w, h in zip(lost, old, strict=True):
            row[w] = h
            self._take(h, -1)
        return False
