"""The least price of one chunk of a combining collective, with a proof in steps of LRAT.

Chunks of a schedule share bandwidth and nothing else: the sends of each are a schedule for one chunk. So if every
schedule of S steps for one chunk of a unit pays at least V at the prices given, C chunks pay at least C·V. That none
pays less is that a formula is unsatisfiable, which is written here from the problem alone (`formula`), and which the
proof refutes.
"""

from __future__ import annotations

import base64
import binascii
import lzma
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, count, islice
from typing import TYPE_CHECKING

from synth.checker.certificates import lrat
from synth.checker.certificates.instance import Instance
from synth.checker.fields import mapping, need
from synth.errors import VerificationError
from synth.model.documents.json_reader import items, number

if TYPE_CHECKING:
    from synth.checker.certificates.cuts import PricedCuts

# Maximum characters of a packed proof in a certificate, and maximum bytes of its lines.
MOST_PACKED, MOST_TEXT = 20_000, 1 << 20


class Variables:
    """The variables of a schedule of `steps` steps for one chunk of `unit`. Step t (from 0) leads to the contents after
    t + 1 steps.

    has[t][n][i]         rank n holds the contribution of rank i after t steps
    keep[t][n]           what n holds after step t includes what it held before
    own[t][n]            and its own input, added in this step
    sent[t][link][raw]   the link carries what its tail holds (raw = 0) or what that rank had at the start (raw = 1)
    """

    def __init__(self, problem: Instance, unit: int, steps: int) -> None:
        self.fresh = count(1)
        ranks, sources = problem.ranks, sorted(problem.pre[unit])
        self.has: list[list[dict[int, int]]] = []
        for _ in range(steps + 1):
            self.has.append([dict(zip(sources, self.fresh, strict=False)) for _ in range(ranks)])
        self.keep = [list(islice(self.fresh, ranks)) for _ in range(steps)]
        self.own = [list(islice(self.fresh, ranks)) for _ in range(steps)]
        self.sent: list[list[tuple[int, int]]] = []
        for _ in range(steps):
            self.sent.append([(next(self.fresh), next(self.fresh)) for _ in problem.links])


def formula(problem: Instance, unit: int, steps: int) -> Iterator[list[int]]:
    """Yield clauses that every schedule of `steps` steps for one chunk of `unit` satisfies.

    Variables are those of `Variables`, then auxiliary ones.

    What a rank holds after a step is made of what it kept, its own input and what it received, and nothing counts
    twice: of the things that would bring one contribution at most one is there, and the contribution is held exactly
    where one is.
    """
    names = Variables(problem, unit, steps)
    has, keep, own, sent = names.has, names.keep, names.own, names.sent
    for n in range(problem.ranks):
        for i in problem.pre[unit]:
            yield [has[0][n][i] if n == i else -has[0][n][i]]
            if n in problem.post[unit]:
                yield [has[steps][n][i] if problem.wants(unit, n, i) else -has[steps][n][i]]
    for t in range(steps):
        for (u, _, _), (total, raw) in zip(problem.links, sent[t], strict=True):
            yield [-total, *has[t][u].values()]  # something is sent
            if t == 0 or u not in problem.pre[unit]:
                yield [-raw]  # what a rank holds before the first step is what it had at the start: called total
        for n in range(problem.ranks):
            into = [(u, *sent[t][link]) for link, (u, v, _) in enumerate(problem.links) if v == n]
            if n not in problem.pre[unit]:
                yield [-own[t][n]]
            yield [
                keep[t][n],
                own[t][n],
                *(x for _, *both in into for x in both),
            ]  # only what comes replaces what is there
            for i in sorted(problem.pre[unit]):
                pairs = [(keep[t][n], has[t][n][i]), *((total, has[t][u][i]) for u, total, _ in into)]
                ways = [next(names.fresh) for _ in pairs]
                for way, (move, there) in zip(ways, pairs, strict=True):
                    yield from ([-way, move], [-way, there], [way, -move, -there])
                ways += [own[t][n]] * (n == i) + [raw for u, _, raw in into if u == i]
                after = has[t + 1][n][i]
                yield [-after, *ways]
                yield from ([-way, after] for way in ways)
                yield from ([-a, -b] for a, b in combinations(ways, 2))


def cost_clauses(costs: Sequence[tuple[int, int]], least: int, fresh: int) -> Iterator[list[int]]:
    """Yield clauses that are satisfiable if the true variables of the (variable, cost) pairs cost less than `least`.

    New variables are numbered from `fresh` on.

    Row by row, sums[j - 1] is true if the costs so far come to j or more (Hölldobler, Manthey and Steinke, "A compact
    encoding of pseudo-Boolean constraints into SAT", KI 2012).
    """
    before: Sequence[int] = ()
    for x, cost in costs:
        sums = range(fresh, fresh + min(least - 1, len(before) + cost))
        fresh += len(sums)
        yield from ([-a, b] for a, b in zip(before, sums, strict=False))
        yield from ([-x, b] for b in sums[:cost])
        for j, a in enumerate(before):
            yield [-x, -a, *sums[j + cost : j + cost + 1]]
        if cost >= least:
            yield [-x]
        before = sums


def clauses(problem: Instance, unit: int, steps: int, prices: Sequence[Sequence[int]], least: int) -> list[list[int]]:
    """Return the clauses that a schedule for one chunk of `unit` fulfils if its sends cost less than `least`.

    It has `steps` steps; a send costs ``prices[link][step]``.
    """
    sent = Variables(problem, unit, steps).sent
    costs = [
        (x, prices[link][t]) for t in range(steps) for link, both in enumerate(sent[t]) for x in both if prices[link][t]
    ]
    problem.spend(2 * len(costs) * least + _clause_count(problem, unit, steps))
    rules = list(formula(problem, unit, steps))
    return [*rules, *cost_clauses(costs, least, 1 + max((abs(x) for clause in rules for x in clause), default=0))]


def check_no_schedule(problem: Instance, unit: int, steps: int, proof: object) -> None:
    """Check the packed LRAT proof that no chunk of `unit` has a schedule of `steps` steps.

    Raises VerificationError where the proof does not show it.
    """
    need(problem.combining, "is for collectives that combine", "kind")
    problem.spend(_clause_count(problem, unit, steps))
    lrat.check(list(formula(problem, unit, steps)), unpacked(proof, "proof"))


def _clause_count(problem: Instance, unit: int, steps: int) -> int:
    """Return about how many clauses and variables `formula` has."""
    degree = Counter(v for _, v, _ in problem.links)
    return steps * (len(problem.pre[unit]) + 1) * sum((2 * degree[n] + 2) ** 2 for n in range(problem.ranks))


def total_price(packing: PricedCuts, given: dict) -> int:
    """Return the sum over all units of the least price of one chunk, after checking the proofs.

    `given`: [least price, packed LRAT proof] of one unit of each orbit, by its number. Raises VerificationError.
    """
    problem, sum_of_prices = packing.problem, 0
    need(problem.combining, "is for collectives that combine", "kind")
    sizes = Counter(packing.orbits["unit"].of(u) for u in range(len(problem.pre)))
    for name, row in mapping(given, "chunk").items():
        unit, place = packing.index(name, len(problem.pre)), f"chunk.{name}"
        least, proof = items(row, place)
        size = sizes.pop(packing.orbits["unit"].of(unit), 0)
        need(size > 0, "is in the orbit of another unit", place)
        sum_of_prices += size * number(least, place, 1)
        lrat.check(clauses(problem, unit, packing.layers, packing.room, least), unpacked(proof, place))
    return sum_of_prices


def packed(lines: Sequence[str]) -> str:
    """Return a proof as it stands in a certificate: its lines, compressed, in base 64."""
    return base64.b64encode(lzma.compress("\n".join(lines).encode("ascii"))).decode("ascii")


def unpacked(text: object, place: str) -> list[str]:
    """Return the lines of a packed proof. Raises VerificationError for any other text, or one that is too long."""
    need(
        isinstance(text, str) and len(text) <= MOST_PACKED,
        f"expected at most {MOST_PACKED} characters of base 64",
        place,
    )
    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=256 << 20)
    try:
        data = unpacker.decompress(base64.b64decode(str(text), validate=True), MOST_TEXT)
        need(unpacker.eof and not unpacker.unused_data, "is cut short or too long", place)
        return data.decode("ascii").splitlines()
    except (binascii.Error, lzma.LZMAError, EOFError, UnicodeDecodeError) as error:
        raise VerificationError(f"is no packed proof: {error}", place) from None
