"""The chunks that ranks hold while a schedule is replayed, or sums, in which each contribution counts once."""

from __future__ import annotations

from synth.checker.schedule.collective import ReplayCollective
from synth.errors import VerificationError


def _place(row: list, i: int, place: str) -> str:
    """Return the place of a send: of the switch send that it is a part of, or its own, send `i` of the step."""
    return row[5] if len(row) > 5 else f"{place}.sends[{i}]"


class HeldChunks:
    """The addresses (chunk · ranks + rank) of the chunks that ranks hold, where chunks are copied."""

    def __init__(self, task: ReplayCollective, place: str) -> None:
        self.task, self.place, self.held = task, place, set(task.pre)

    def step(self, moves: list, place: str) -> None:
        """Apply the sends of one step, all at once. Raises VerificationError for the first that is wrong."""
        ranks = self.task.ranks
        copies = all(row[3] == "copy" for row in moves)
        if not copies or not self.held.issuperset([row[0] * ranks + row[1] for row in moves]):
            self._blame(moves, place)
        self.held.update([row[0] * ranks + row[2] for row in moves])

    def _blame(self, moves: list, place: str) -> None:
        """Raise VerificationError for the first send of a step that is wrong."""
        for i, row in enumerate(moves):
            chunk, src, dst, kind = row[:4]
            if kind != "copy":
                raise VerificationError(
                    f"kind {kind!r} in {self.task.name}, which does not combine", _place(row, i, place)
                )
            if chunk * self.task.ranks + src not in self.held:
                raise VerificationError(
                    f"rank {src} sends chunk {chunk} to {dst} before it holds it", _place(row, i, place)
                )

    def finish(self) -> None:
        """Raise VerificationError unless every rank holds all that it must end with."""
        if not self.held.issuperset(self.task.post):
            chunk, rank = divmod(min(self.task.post.keys() - self.held), self.task.ranks)
            raise VerificationError(f"rank {rank} ends without chunk {chunk}", f"{self.place}.steps")


class HeldSums:
    """The contributions in the value at each address (chunk · ranks + rank), as bit sets of ranks, where chunks are
    summed."""

    def __init__(self, task: ReplayCollective, place: str) -> None:
        self.task, self.place = task, place
        self.value = {at: 1 << at % task.ranks for at in task.pre}
        self.total: dict[int, int] = {}
        for at in task.pre:
            chunk, rank = divmod(at, task.ranks)
            self.total[chunk] = self.total.get(chunk, 0) | 1 << rank

    def step(self, moves: list, place: str) -> None:
        """Apply the sends of one step, all at once. Raises VerificationError for the first that is wrong."""
        ranks = self.task.ranks
        copies: dict[int, int] = {}
        adds: list[tuple[int, int, str]] = []
        for i, row in enumerate(moves):
            chunk, src, dst, kind = row[:4]
            at, to = chunk * ranks + src, chunk * ranks + dst
            if kind.endswith("-input"):
                value = 1 << src if at in self.task.pre else 0
            else:
                value = self.value.get(at, 0)
            if not value:
                raise VerificationError(f"rank {src} has nothing of chunk {chunk} to send", _place(row, i, place))
            if kind.startswith("copy"):
                if to in copies:
                    raise VerificationError(
                        f"a second copy of chunk {chunk} lands on rank {dst} in one step", _place(row, i, place)
                    )
                copies[to] = value
            else:
                adds.append((to, value, _place(row, i, place)))
        self.value.update(copies)
        for to, value, where in adds:
            held = self.value.get(to, 0)
            if held & value:
                twice, (chunk, dst) = (held & value).bit_length() - 1, divmod(to, ranks)
                fault = f"the contribution of rank {twice} to chunk {chunk} counts twice on rank {dst}"
                raise VerificationError(fault, where)
            self.value[to] = held | value

    def finish(self) -> None:
        """Raise VerificationError unless every rank holds all that it must end with."""
        sums: dict[frozenset[int], int] = {}  # by the contributors that are wanted
        for at, want in sorted(self.task.post.items()):
            chunk, rank = divmod(at, self.task.ranks)
            bits = self.total.get(chunk, 0)
            if want is not None:
                bits = sums[want] = sums.get(want) or sum(1 << r for r in want)
            held = self.value.get(at, 0)
            if held != bits:
                wrong = (held ^ bits).bit_length() - 1
                fault = "lacks" if bits >> wrong & 1 else "has too much:"
                raise VerificationError(
                    f"rank {rank} ends: chunk {chunk} {fault} rank {wrong}'s contribution", f"{self.place}.steps"
                )
