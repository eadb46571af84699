"""The step of each operation: as soon as possible, by the program's blocks, or with limited rounds a step.

Constraints are `step(later) >= step(earlier) + lag` with lag 0 or 1. Exchanged sums make cycles of lag 0; a cycle with
a lag of 1 has no schedule.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from synth.errors import UsageError
from synth.language.chunk_operations import Operations, replaced_too_early
from synth.language.place import error_at
from synth.model.schedule import Send
from synth.model.sends.step_routes import routes_by_pair
from synth.model.topology import Network

MODES = ("asap", "written", "paced")
# Sweeps over all operations after which a cycle of constraints is looked for, and again after each further such number.
# Most programs need two or three sweeps.
SWEEPS_BEFORE_CYCLE_SEARCH = 16
# Of each operation, the ones that come at least `lag` steps before it: (operation, lag).
Constraints = dict[int, list[tuple[int, int]]]


class StepRanges(NamedTuple):
    """The first and the last step, from 1, that each needed operation may have in a schedule with the fewest steps."""

    earliest: dict[int, int]
    latest: dict[int, int]


def step_ranges(ops: Operations, blocks: Sequence[tuple[int, ...]] = ()) -> StepRanges:
    """Return the steps that operations may have.

    `blocks`: the ranks of the handle of each `with a.step()` block; operations of one block share a step, and blocks of
    one handle follow each other. Raises UsageError where no steps fit.
    """
    before, order = _constraints(ops, blocks)
    after: Constraints = {i: [] for i in order}
    for i in order:
        for j, lag in before[i]:
            after[j].append((i, lag))
    earliest = _longest_paths(ops, order, before)
    remaining = _longest_paths(ops, order[::-1], after)
    last = max(remaining.values(), default=0)
    latest = {i: last + 1 - remaining[i] for i in ops.needed}
    return StepRanges({i: earliest[i] for i in ops.needed}, latest)


def _constraints(ops: Operations, blocks: Sequence[tuple[int, ...]]) -> tuple[Constraints, list[int]]:
    """Return the constraints on operations and on a node for each block, and the order in which to visit these."""
    before = dict(ops.before)
    members: dict[int, list[int]] = {}
    for i in ops.needed if blocks else ():
        if ops.rows[i].step >= 0:
            members.setdefault(ops.rows[i].step, []).append(i)

    # A block's node and its operations hold each other in one step; the next block of the handle is a step behind.
    node_behind = {}
    last_of: dict[tuple[int, ...], int] = {}
    for block, inside in sorted(members.items()):
        node = node_behind[inside[-1]] = len(ops.rows) + block
        before[node] = [(i, 0) for i in inside]
        for i in inside:
            before[i] = [*before[i], (node, 0)]
        if blocks[block] in last_of:
            before[node].append((last_of[blocks[block]], 1))
        last_of[blocks[block]] = node

    # Each node is visited behind its operations.
    order = []
    for i in ops.needed:
        order.append(i)
        if i in node_behind:
            order.append(node_behind[i])
    return before, order


def _longest_paths(ops: Operations, order: Sequence[int], before: Constraints) -> dict[int, int]:
    """Return one more than the length of the longest path to each node: repeated sweeps (Bellman and Ford)."""
    # Most constraints point forward in the order, so few sweeps settle them.
    steps = dict.fromkeys(order, 1)
    cause: dict[int, int] = {}
    sweeps = 0
    changed = True
    while changed:
        changed = False
        for i in order:
            least = steps[i]
            for j, lag in before[i]:
                if steps[j] + lag > least:
                    least = steps[j] + lag
                    cause[i] = j
            if least > steps[i]:
                steps[i] = least
                changed = True
        sweeps += 1
        if changed and sweeps % SWEEPS_BEFORE_CYCLE_SEARCH == 0:
            _refuse_cycle(ops, cause)
    return steps


def _refuse_cycle(ops: Operations, cause: dict[int, int]) -> None:
    """Raise UsageError where the causes of steps form a cycle, which has no schedule."""
    done: set[int] = set()
    for start in cause:
        path: list[int] = []
        at: int | None = start
        while at is not None and at not in done:
            done.add(at)
            path.append(at)
            at = cause.get(at)
        if at in path:
            cycle = path[path.index(at) :]
            raise _cycle_error(ops, [i for i in cycle if i < len(ops.rows)])


def _cycle_error(ops: Operations, cycle: list[int]) -> UsageError:
    """Return the error of a read of a value that an operation of the cycle replaces, or makes in the same step."""
    rows = ops.rows
    inside = set(cycle)
    # Look for a read of a value that an operation of the cycle replaces.
    late_reads: list[tuple[int, int, int]] = []
    for i in cycle:
        source = rows[i].source
        if source < 0 or rows[source].kind == "input":
            continue
        writes = ops.writes.get((rows[source].chunk, rows[source].rank), [])
        later = writes[writes.index(source) + 1 :] if source in writes else []
        if later and later[0] in inside:
            late_reads.append((i - later[0], i, later[0]))
    if late_reads:
        _, i, replacing = max(late_reads)  # the one that the program writes latest
        source = rows[rows[i].source]
        return replaced_too_early(rows[i].place, source.rank, source.place, rows[replacing].place)
    reader = next((i for i in cycle if rows[i].source in inside), cycle[0])
    return error_at(
        rows[reader].place,
        f"reads what {rows[rows[reader].source].place} makes in the same or a later step; sends of a step read the "
        "state before it: write each hop in a step() of its own, or no step()",
    )


class ListScheduling:
    """List scheduling of operations: steps of limited rounds, the longest remaining path first.

    Operations that must share a step (a cycle of constraints without lag) are placed together, as a group.
    """

    def __init__(self, ops: Operations, network: Network) -> None:
        latest = step_ranges(ops).latest  # refuses what has no schedule
        self._network, self._routes = network, routes_by_pair(network)
        self._groups, group_of = _simultaneous(ops)
        self._latest = [latest[group[0]] for group in self._groups]
        self._after: list[dict[int, int]] = [{} for _ in self._groups]  # of each group the later ones, with the lag
        for i in ops.needed:
            for j, lag in ops.before[i]:
                a, b = group_of[j], group_of[i]
                if a != b:
                    self._after[a][b] = max(lag, self._after[a].get(b, 0))
        # The pairs of ranks between which the operations of each group send.
        self._pairs: list[list[tuple[int, int]]] = [[] for _ in self._groups]
        for g, group in enumerate(self._groups):
            for row in map(ops.rows.__getitem__, group):
                if row.source >= 0 and ops.rows[row.source].rank != row.rank:
                    self._pairs[g].append((ops.rows[row.source].rank, row.rank))

    def steps(self, rounds: int) -> dict[int, int]:
        """Return the step of each needed operation, where a step has at most `rounds` rounds."""
        # Of each group the number of groups that must be placed before it.
        remaining = [0] * len(self._groups)
        for later in self._after:
            for b in later:
                remaining[b] += 1
        earliest = [1] * len(self._groups)
        step_of: dict[int, int] = {}
        ready = [(self._latest[g], g) for g, count in enumerate(remaining) if not count]
        step = 1
        while ready:
            capacity = _StepCapacity(self._network, self._routes, rounds)
            heapq.heapify(ready)
            deferred = []
            while ready:
                priority, g = heapq.heappop(ready)
                if earliest[g] > step or not capacity.takes(self._pairs[g]):
                    deferred.append((priority, g))
                    continue
                step_of.update(dict.fromkeys(self._groups[g], step))
                for b, lag in self._after[g].items():
                    earliest[b] = max(earliest[b], step + lag)
                    remaining[b] -= 1
                    if not remaining[b]:
                        heapq.heappush(ready, (self._latest[b], b))
            ready = deferred
            step += 1
        return step_of

    def fewest_rounds(self, steps: int, rounds: int) -> dict[int, int] | None:
        """Return the steps with the least limit of rounds, up to `rounds`, at which `steps` steps are enough.

        None where none is. The limit is the result of a bisection, as if fewer rounds never allowed fewer steps.
        """
        best = None
        low = 1
        while low <= rounds:
            middle = (low + rounds) // 2
            step_of = self.steps(middle)
            if max(step_of.values(), default=0) <= steps:
                best, rounds = step_of, middle - 1
            else:
                low = middle + 1
        return best


def _simultaneous(ops: Operations) -> tuple[list[list[int]], dict[int, int]]:
    """Return the strongly connected components of the constraints, and that of each operation."""
    import numpy as np
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    index = {i: k for k, i in enumerate(ops.needed)}
    ends: list[tuple[int, int]] = []
    for i in ops.needed:
        ends += [(index[j], index[i]) for j, _ in ops.before[i]]
    row, column = np.array(ends, dtype=np.int64).reshape(-1, 2).T
    graph = coo_array((np.ones(len(ends), dtype=np.int8), (row, column)), shape=(len(index), len(index)))
    count, labels = connected_components(graph.tocsr(), directed=True, connection="strong")
    groups: list[list[int]] = [[] for _ in range(count)]
    for i, k in index.items():
        groups[labels[k]].append(i)
    return groups, {i: int(labels[k]) for i, k in index.items()}


class _StepCapacity:
    """The loads of routes and limits in a step of some rounds."""

    def __init__(self, network: Network, routes: Mapping[tuple[int, int], list[int]], rounds: int) -> None:
        self._network, self._routes, self._rounds = network, routes, rounds
        self._load = [0] * len(network.routes)
        self._cap_load = [0] * len(network.caps)
        self._empty = True

    def takes(self, pairs: Sequence[tuple[int, int]]) -> bool:
        """Add a chunk between each pair of ranks and return True, if all fit or the step is empty."""
        load, cap_load = list(self._load), list(self._cap_load)
        for src, dst in pairs:
            routes = self._routes[src, dst]
            # Even an empty step cannot carry it: it is sent anyway, and the step has more rounds.
            fitting = [i for i in routes if self._fits(i, load, cap_load)]
            if not fitting and not self._empty:
                return False
            route = min(fitting or routes, key=lambda i: (load[i] + 1) / self._network.routes[i].units)
            load[route] += 1
            for k in self._network.caps_of[route]:
                cap_load[k] += 1
        self._load, self._cap_load = load, cap_load
        self._empty = self._empty and not pairs
        return True

    def _fits(self, route: int, load: list[int], cap_load: list[int]) -> bool:
        """Return True if a route and the limits that it crosses, once or more, have capacity for another chunk."""
        if load[route] >= self._network.routes[route].units * self._rounds:
            return False
        crossed = self._network.caps_of[route]
        limits = {k: self._network.caps[k].units * self._rounds - crossed.count(k) for k in crossed}
        return all(cap_load[k] <= limit for k, limit in limits.items())


def sends_by_step(ops: Operations, step_of: dict[int, int]) -> list[list[Send]]:
    """Return the sends of each step.

    A send is of the rank's input where another value has its place by then.
    """
    # A rank's input stays readable beside the value that takes its place, as input.
    replaced: dict[tuple[int, int], int] = {}  # the first step in which the input of a rank is replaced
    for key, row in ops.writes.items():
        replaced[key] = min(step_of[i] for i in row)
    steps: list[list[Send]] = [[] for _ in range(max(step_of.values(), default=0))]
    for i in ops.needed:
        row, step = ops.rows[i], step_of[i]
        if row.kind == "restore":
            steps[step - 1].append(Send(row.chunk, row.rank, row.rank, "copy-input"))
            continue
        source = ops.rows[row.source]
        kind = "copy" if row.kind == "copy" else "reduce"
        gone = source.rank == row.rank or replaced.get((source.chunk, source.rank), step) < step
        if source.kind == "input" and ops.collective.combining and gone:
            kind += "-input"
        steps[step - 1].append(Send(row.chunk, source.rank, row.rank, kind))
    return [row for row in steps if row]
