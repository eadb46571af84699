"""Refutations in LRAT: reverse unit propagation along the hints of each step, and no other rule.

Format: Cruz-Filipe et al., "Efficient certified RAT verification", CADE 2017, text form, without the RAT steps: a line
``id literals 0 hints 0`` adds a clause, ``id d ids 0`` forgets some. Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from synth.errors import VerificationError


def check(clauses: Iterable[Sequence[int]], lines: Iterable[str]) -> int:
    """Check that `lines` refute `clauses` (numbered from 1), and return the number of steps that were checked.

    Raises VerificationError, with the line, for a step that does not follow and for a proof that never ends.
    """
    known: dict[int, Sequence[int]] = dict(enumerate(clauses, 1))
    checked = 0
    for number, line in enumerate(lines, 1):
        place = f"line {number}"
        try:
            words = line.split()
            if len(words) > 1 and words[1] == "d":
                for word in words[2:-1]:
                    known.pop(int(word), None)
                continue
            numbers = [int(word) for word in words]
            end = numbers.index(0, 1)
            name, clause, hints = numbers[0], numbers[1:end], numbers[end + 1 : -1]
        except (ValueError, IndexError):
            raise VerificationError("not a step of an LRAT proof", place) from None
        if numbers[-1] != 0 or len(numbers) < end + 2:
            raise VerificationError("a step must end with 0", place)
        if name in known or name < 1:
            raise VerificationError(f"clause {name} exists already", place)
        _follows(known, clause, hints, place)
        checked += 1
        if not clause:
            return checked
        known[name] = clause
    raise VerificationError("the proof ends without the empty clause")


def _follows(known: dict[int, Sequence[int]], clause: Sequence[int], hints: Sequence[int], place: str) -> None:
    """Check that the negation of `clause` propagates along `hints` into a conflict."""
    true = {-x for x in clause}
    if any(x in true for x in clause):
        return  # a tautology
    for hint in hints:
        row = known.get(hint)
        if row is None:
            raise VerificationError(f"clause {hint} is unknown here", place)
        rest = {x for x in row if -x not in true}
        if not rest:
            return
        if len(rest) > 1:
            raise VerificationError(f"clause {hint} is not a unit here", place)
        true |= rest
    raise VerificationError("the hints end without a conflict", place)
