"""The step of each operation: as soon as possible, by the program's blocks, or with limited rounds a step.

Constraints are `step(later) >= step(earlier) + lag` with lag 0 or 1. Exchanged sums make cycles of lag 0; a cycle with
a lag of 1 has no schedule.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence

from synth.errors import UsageError
from synth.language.chunk_operations import Operations, replaced_too_early
from synth.language.place import error_at
from synth.language.settings import SETTINGS
from synth.model.schedule import Send
from synth.model.sends.step_routes import routes_by_pair
from synth.model.topology import Network

MODES = ("asap", "written", "paced")


def earliest_steps(ops: Operations, blocks: Sequence[tuple[int, ...]] = ()) -> dict[int, int]:
    """Return the least step of each needed operation, from 1.

    `blocks`: the ranks of the handle of each `with a.step()` block; operations of one block share a step, and blocks of
    one handle follow each other. Raises UsageError where no steps fit.
    """
    before, order = _constraints(ops, blocks)
    steps = _longest_paths(ops, order, before)
    return {i: steps[i] for i in ops.needed}


def latest_steps(ops: Operations, blocks: Sequence[tuple[int, ...]] = ()) -> dict[int, int]:
    """Return the last step that each needed operation may have in a schedule with the fewest steps.

    `blocks` as in `earliest_steps`. Raises UsageError where no steps fit.
    """
    before, order = _constraints(ops, blocks)
    after: dict[int, list[tuple[int, int]]] = {i: [] for i in order}
    for i in order:
        for j, lag in before[i]:
            after[j].append((i, lag))
    remaining = _longest_paths(ops, order[::-1], after)
    last = max(remaining.values(), default=0)
    return {i: last + 1 - remaining[i] for i in ops.needed}


def _longest_paths(ops: Operations, order: Sequence[int], before: dict[int, list[tuple[int, int]]]) -> dict[int, int]:
    """Return one more than the length of the longest path to each node: repeated sweeps (Bellman and Ford)."""
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
        if changed and sweeps % SETTINGS.sweeps_before_cycle_search == 0:
            _refuse_cycle(ops, cause, len(ops.rows))
    return steps


def _constraints(
    ops: Operations, blocks: Sequence[tuple[int, ...]]
) -> tuple[dict[int, list[tuple[int, int]]], list[int]]:
    """Return the constraints on operations and blocks, and the order in which to visit these.

    A pair (j, lag) of the constraints on i says that i takes place at least `lag` steps behind j.
    """
    before = dict(ops.before)
    order = list(ops.needed)
    return before, _with_blocks(ops, blocks, before) if blocks else order


def _with_blocks(
    ops: Operations, blocks: Sequence[tuple[int, ...]], before: dict[int, list[tuple[int, int]]]
) -> list[int]:
    """Add a node for each block to the constraints; return the operations and nodes, each block behind its own."""
    members: dict[int, list[int]] = {}
    for i in ops.needed:
        block = ops.rows[i].step
        if block >= 0:
            members.setdefault(block, []).append(i)
    last: dict[tuple[int, ...], int] = {}
    node_of = {}
    for block in sorted(members):
        node = node_of[block] = len(ops.rows) + block
        before[node] = [(i, 0) for i in members[block]]
        for i in members[block]:
            before[i] = [*before[i], (node, 0)]
        if blocks[block] in last:
            before[node].append((last[blocks[block]], 1))
        last[blocks[block]] = node
    order: list[int] = []
    remaining = {block: len(row) for block, row in members.items()}
    for i in ops.needed:
        order.append(i)
        block = ops.rows[i].step
        if block >= 0:
            remaining[block] -= 1
            if not remaining[block]:
                order.append(node_of[block])
    return order


def _refuse_cycle(ops: Operations, cause: dict[int, int], size: int) -> None:
    """Raise UsageError where the causes of steps form a cycle, naming a read of a value that was replaced before."""
    done: set[int] = set()
    for start in cause:
        path: dict[int, int] = {}
        at: int | None = start
        while at is not None and at not in done and at not in path:
            path[at] = len(path)
            at = cause.get(at)
        if at is not None and at in path:
            nodes = list(path)[path[at] :]
            raise _cycle_error(ops, [i for i in nodes if i < size])
        done |= path.keys()


def _cycle_error(ops: Operations, cycle: list[int]) -> UsageError:
    rows = ops.rows
    inside = set(cycle)
    reads: list[tuple[int, int]] = []  # reads of values that an operation of the cycle replaces
    for i in cycle:
        source = rows[i].source
        if source < 0 or rows[source].kind == "input":
            continue
        writes = ops.writes.get((rows[source].chunk, rows[source].rank), [])
        later = writes[writes.index(source) + 1 :] if source in writes else []
        if later and later[0] in inside:
            reads.append((i, later[0]))
    if reads:
        i, replacing = max(reads, key=lambda read: read[0] - read[1])  # the one that the program writes too late
        source = rows[rows[i].source]
        return replaced_too_early(rows[i].place, source.rank, source.place, rows[replacing].place)
    reader = next((i for i in cycle if rows[i].source in inside), cycle[0])
    made = rows[rows[reader].source].place
    return error_at(
        rows[reader].place,
        f"reads what {made} makes in the same or a later step; sends of a step read the state before it: "
        "a way of several hops takes as many steps; write each hop in a step() of its own, or no step()",
    )


class ListScheduling:
    """List scheduling of operations: steps of limited rounds, the longest remaining path first.

    Operations that must share a step (a cycle of constraints without lag) are placed together.
    """

    def __init__(self, ops: Operations, network: Network) -> None:
        earliest_steps(ops)  # refuses what has no schedule
        self._ops, self._network = ops, network
        self._groups, group_of = _simultaneous(ops)
        before: list[dict[int, int]] = [{} for _ in self._groups]
        self._after: list[dict[int, int]] = [{} for _ in self._groups]
        for i in ops.needed:
            for j, lag in ops.before[i]:
                a, b = group_of[j], group_of[i]
                if a != b:
                    before[b][a] = max(lag, before[b].get(a, 0))
                    self._after[a][b] = before[b][a]
        self._tails = _tails(before, self._after)
        self._counts = [len(row) for row in before]

    def steps(self, rounds: int) -> dict[int, int]:
        """Return the step of each needed operation, where a step has at most `rounds` rounds."""
        capacity = _Capacity(self._network, rounds)
        remaining = list(self._counts)
        earliest = [1] * len(remaining)
        step_of: dict[int, int] = {}
        ready = [(-self._tails[g], g) for g, count in enumerate(remaining) if not count]
        heapq.heapify(ready)
        step = 1
        while ready:
            capacity.clear()
            deferred = []
            while ready:
                priority, g = heapq.heappop(ready)
                pairs = [_send(self._ops, i) for i in self._groups[g]]
                if earliest[g] > step or not capacity.takes(pairs):
                    deferred.append((priority, g))
                    continue
                for i in self._groups[g]:
                    step_of[i] = step
                for b, lag in self._after[g].items():
                    earliest[b] = max(earliest[b], step + lag)
                    remaining[b] -= 1
                    if not remaining[b]:
                        heapq.heappush(ready, (-self._tails[b], b))
            ready = deferred
            heapq.heapify(ready)
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


def _send(ops: Operations, i: int) -> tuple[int, int]:
    """Return the source and destination rank of an operation."""
    row = ops.rows[i]
    src = row.rank if row.source < 0 else ops.rows[row.source].rank
    return src, row.rank


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


def _tails(before: Sequence[dict[int, int]], after: Sequence[dict[int, int]]) -> list[int]:
    """Return the length of the longest path that begins at each group."""
    tails = [0] * len(before)
    remaining = [len(row) for row in after]
    stack = [g for g, count in enumerate(remaining) if not count]
    while stack:
        g = stack.pop()
        for a, lag in before[g].items():
            tails[a] = max(tails[a], tails[g] + lag)
            remaining[a] -= 1
            if not remaining[a]:
                stack.append(a)
    return tails


class _Capacity:
    """The loads of routes and limits in a step of some rounds."""

    def __init__(self, network: Network, rounds: int) -> None:
        self._network, self._rounds = network, rounds
        self._routes = routes_by_pair(network)
        self._load: Counter[int] = Counter()
        self._cap_load: Counter[int] = Counter()

    def clear(self) -> None:
        """Begin a step."""
        self._load.clear()
        self._cap_load.clear()

    def takes(self, pairs: Sequence[tuple[int, int]]) -> bool:
        """Add chunks between pairs of ranks if all fit, or if the step is empty, and return True then."""
        taken: list[int] = []
        empty = not self._load
        for src, dst in pairs:
            if src == dst:
                continue
            route = self._free_route(src, dst, must=empty)
            if route is None:
                for i in taken:
                    self._change(i, -1)
                return False
            self._change(route, 1)
            taken.append(route)
        return True

    def _change(self, route: int, by: int) -> None:
        self._load[route] += by
        for k in self._network.caps_of[route]:
            self._cap_load[k] += by

    def _free_route(self, src: int, dst: int, *, must: bool) -> int | None:
        """Return the least loaded route of a pair that has capacity left; with `must` one in any case."""
        routes = sorted(self._routes[src, dst], key=lambda i: (self._load[i] + 1) / self._network.routes[i].units)
        for i in routes:
            if self._load[i] >= self._network.routes[i].units * self._rounds:
                continue
            crossings = Counter(self._network.caps_of[i])
            if all(
                self._cap_load[k] + count <= self._network.caps[k].units * self._rounds
                for k, count in crossings.items()
            ):
                return i
        return routes[0] if must else None


def sends_by_step(ops: Operations, step_of: dict[int, int]) -> list[list[Send]]:
    """Return the sends of each step.

    A send is of the rank's input where another value has its place by then.
    """
    taken: dict[tuple[int, int], int] = {}  # the first step in which the input of a rank is replaced
    for key, row in ops.writes.items():
        taken[key] = min(step_of[i] for i in row)
    steps: list[list[Send]] = [[] for _ in range(max(step_of.values(), default=0))]
    for i in ops.needed:
        row, step = ops.rows[i], step_of[i]
        if row.kind == "restore":
            steps[step - 1].append(Send(row.chunk, row.rank, row.rank, "copy-input"))
            continue
        source = ops.rows[row.source]
        kind = "copy" if row.kind == "copy" else "reduce"
        own = source.rank == row.rank
        gone = own or taken.get((source.chunk, source.rank), step) < step
        if source.kind == "input" and ops.collective.combining and gone:
            kind += "-input"
        steps[step - 1].append(Send(row.chunk, source.rank, row.rank, kind))
    return [row for row in steps if row]
