"""The proof that one chunk of a combining collective has no schedule of so many steps, in steps of LRAT.

That it has none is that a formula is unsatisfiable, which is written here from the problem alone (`formula`), and which
the proof refutes.
"""

from __future__ import annotations

import base64
import binascii
import lzma
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, count, islice

from synth.checker.certificates import lrat
from synth.checker.certificates.instance import Instance
from synth.checker.fields import need
from synth.errors import VerificationError

# Maximum characters of a packed proof in a certificate, and maximum bytes of its lines.
MOST_PACKED, MOST_TEXT = 400_000, 1 << 23


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

    # what each rank has before the first step, and a destination after the last one
    first, last = names.has[0], names.has[-1]
    for n in range(problem.ranks):
        for i in problem.pre[unit]:
            yield [first[n][i] if n == i else -first[n][i]]
            if n in problem.post[unit]:
                yield [last[n][i] if problem.wants(unit, n, i) else -last[n][i]]
    for t in range(steps):
        # each send of the step carries something
        for (u, _, _), (total, raw) in zip(problem.links, names.sent[t], strict=True):
            yield [-total, *names.has[t][u].values()]
            if t == 0 or u not in problem.pre[unit]:
                yield [-raw]  # what a rank holds before the first step is what it had at the start: called total
        for n in range(problem.ranks):
            yield from _content_clauses(names, problem, unit, t, n)


def _content_clauses(names: Variables, problem: Instance, unit: int, t: int, n: int) -> Iterator[list[int]]:
    """Yield clauses by which rank `n` holds after step `t` what it kept, its own input and what it received."""
    has, keep, own = names.has[t], names.keep[t][n], names.own[t][n]
    into = []  # the tail of each link that leads here, and its two sends
    for i in problem.links_into[n]:
        total, raw = names.sent[t][i]
        into.append((problem.links[i][0], total, raw))
    if n not in problem.pre[unit]:
        yield [-own]
    # Only what comes replaces what is there.
    replacing = [x for _, *both in into for x in both]
    yield [keep, own, *replacing]
    for i in sorted(problem.pre[unit]):
        # Each term brings contribution i: a move of a holder of i, the own input, or a send of an input.
        pairs = [(keep, has[n][i])]
        pairs += [(total, has[u][i]) for u, total, _ in into]
        terms = [next(names.fresh) for _ in pairs]
        for term, (move, there) in zip(terms, pairs, strict=True):
            yield from ([-term, move], [-term, there], [term, -move, -there])
        terms += [own] * (n == i)
        terms += [raw for u, _, raw in into if u == i]
        after = names.has[t + 1][n][i]
        yield [-after, *terms]
        yield from ([-term, after] for term in terms)
        yield from ([-a, -b] for a, b in combinations(terms, 2))


def check_no_schedule(problem: Instance, unit: int, steps: int, proof: object) -> None:
    """Check the packed LRAT proof that no chunk of `unit` has a schedule of `steps` steps.

    Raises VerificationError where the proof does not show it.
    """
    need(problem.combining, "is for collectives that combine", "kind")
    # about how many clauses and variables `formula` has
    arrivals = Counter(dict.fromkeys(range(problem.ranks), 2))
    for _, v, _ in problem.links:
        arrivals[v] += 2
    problem.spend(steps * (len(problem.pre[unit]) + 1) * sum(count**2 for count in arrivals.values()))
    lrat.check(list(formula(problem, unit, steps)), unpacked(proof, "proof"))


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
