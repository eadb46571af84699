"""KeptRules: replay of the rules for sends that a topology's document has; each send by those for its unit and step."""

from __future__ import annotations

from collections import Counter

from synth.checker.fields import need
from synth.checker.schedule.collective import ReplayCollective
from synth.checker.send_rules import CheckedRules
from synth.errors import VerificationError


class KeptRules:
    """The rules for the sends of one schedule. Call `step` for each step in order, then `finish`.

    Raises VerificationError for a collective that the rules cannot be about.
    """

    def __init__(self, rules: CheckedRules, task: ReplayCollective, copies: int, place: str) -> None:
        """`copies`: chunks of each unit; `place`: of the rules in the document."""
        self.rules, self.combining = rules, task.combining
        self._read_ends(task)
        self.owners: list[int | None] = []
        for first, wanted in zip(self.first, self.wanted, strict=True):
            self.owners.append(rules.owner(first, wanted, task.combining, place))
        self.fixed, self.copies = rules.fixed_of(task.combining), copies
        self.fixed_place, self.left = f"{place}.fixed", dict[int, set[tuple[int, int, int]]]()
        for unit, src, dst, step in rules.fixed:
            need(unit * copies < task.chunks, f"names unit {unit}, which does not exist", self.fixed_place)
            self.left.setdefault(step, set()).update((unit * copies + i, src, dst) for i in range(copies))
        self.images = []
        for i, ranks in enumerate(rules.symmetries):
            self.images.append((ranks, self._image_of_chunks(ranks, copies, f"{place}.symmetric[{i}]")))
        self.got, self.sent = dict[tuple[int, int], int](), dict[tuple[int, int], int]()
        self.memory_place = f"{place}.relay_memory"

    def _read_ends(self, task: ReplayCollective) -> None:
        """Note of each chunk the ranks that have it first, and those that want it."""
        first: list[set[int]] = [set() for _ in range(task.chunks)]
        wanted: list[set[int]] = [set() for _ in range(task.chunks)]
        for held, addresses in ((first, task.pre), (wanted, task.post)):
            for address in addresses:
                held[address // task.ranks].add(address % task.ranks)
        self.first, self.wanted = list(map(frozenset, first)), list(map(frozenset, wanted))

    def _image_of_chunks(self, ranks: tuple[int, ...], copies: int, place: str) -> list[int]:
        """Return the image of each chunk: of the unit that the images of its ranks have first and want.

        Units that no rank tells apart keep their order, and so do the chunks of a unit.
        """
        units = range(0, len(self.first), copies)
        alike: dict[tuple, list[int]] = {}
        for chunk in units:
            alike.setdefault((self.first[chunk], self.wanted[chunk]), []).append(chunk)
        taken: Counter[tuple] = Counter()
        images = []
        for chunk in units:
            moved = []
            for held in (self.first[chunk], self.wanted[chunk]):
                moved.append(frozenset(map(ranks.__getitem__, held)))
            key = tuple(moved)
            found = alike.get(key, [])
            need(taken[key] < len(found), f"does not keep unit {chunk // copies}", place)
            start = found[taken[key]]
            taken[key] += 1
            images.extend(range(start, start + copies))
        return images

    def step(self, rows: list, step: int, place: str) -> None:
        """Raise VerificationError for a send of step `step`, from 1, that the rules do not allow.

        `rows`: sends of the right form.
        """
        rules = self.rules
        for i, (chunk, src, dst, *_) in enumerate(rows):
            if src == dst:
                continue
            first, last = rules.allowed_steps(src, dst)
            if not first <= step <= (step if last is None else last):
                until = "on" if last is None else f"to {last}"
                raise VerificationError(
                    f"link {src} -> {dst} is for steps {first} {until}, not {step}", f"{place}[{i}]"
                )
            if not rules.allowed_way(self.owners[chunk], src, dst, self.combining):
                raise VerificationError(
                    f"chunk {chunk} of rank {self.owners[chunk]} may not go {src} -> {dst}: {rules.words()}",
                    f"{place}[{i}]",
                )
        self._check_symmetries(rows, place)
        self._check_fixed(rows, step, place)
        self._check_fan(rows, place)
        self._note_relays(rows, step)

    def _check_fan(self, rows: list, place: str) -> None:
        """Raise VerificationError for a rank with more peers in a step than the rules allow."""
        fan = self.rules.fan
        if fan is None:
            return
        peers: dict[tuple[str, int], set[int]] = {}
        for i, (_, src, dst, *_) in enumerate(rows):
            if src == dst:
                continue
            for what, rank, other in (("sends to", src, dst), ("gets data from", dst, src)):
                others = peers.setdefault((what, rank), set())
                others.add(other)
                need(len(others) <= fan, f"rank {rank} {what} more than {fan} in this step", f"{place}[{i}]")

    def _note_relays(self, rows: list, step: int) -> None:
        """Note the first step in which a rank gets a chunk that it can only pass on, and the last in which it does."""
        if self.rules.relay_memory is None:
            return
        for chunk, src, dst, *_ in rows:
            if src == dst:
                continue
            if self._passes_on(chunk, dst):
                self.got.setdefault((chunk, dst), step)
            if self._passes_on(chunk, src):
                self.sent[chunk, src] = step

    def _passes_on(self, chunk: int, rank: int) -> bool:
        ends = self.first[chunk], self.wanted[chunk], self.fixed.get(chunk // self.copies, ())
        return not any(rank in ranks for ranks in ends)

    def _check_memory(self) -> None:
        """Raise VerificationError where a rank holds more chunks at once to pass them on than the rules allow."""
        if self.rules.relay_memory is None:
            return
        changes: dict[int, Counter[int]] = {}
        for (chunk, rank), last in self.sent.items():
            first = self.got.get((chunk, rank), last)
            if first < last:
                changes.setdefault(rank, Counter()).update({first: 1})
                changes[rank].update({last: -1})
        for rank, steps in sorted(changes.items()):
            held = 0
            for step in sorted(steps):
                held += steps[step]
                message = f"rank {rank} holds {held} chunks after step {step} to pass them on, {self.copies} a unit"
                need(held <= self.rules.relay_memory * self.copies, message, self.memory_place)

    def _check_fixed(self, rows: list, step: int, place: str) -> None:
        """Tick off the fixed sends of a step. Raises VerificationError for a send in place of a fixed one."""
        for i, (chunk, src, dst, *_) in enumerate(rows if self.fixed else []):
            sends = self.fixed.get(chunk // self.copies, {})
            fixed = sends.get(src if self.combining else dst, (src, dst, step))
            if fixed != (src, dst, step):
                raise VerificationError(
                    f"chunk {chunk} goes {fixed[0]} -> {fixed[1]} in step {fixed[2]} by a fixed send, "
                    f"not {src} -> {dst} in step {step}",
                    f"{place}[{i}]",
                )
            self.left.get(step, set()).discard((chunk, src, dst))

    def finish(self) -> None:
        """Raise VerificationError where the schedule lacks a fixed send, or relays need more memory than they have."""
        self._check_memory()
        for step, sends in sorted(self.left.items()):
            if sends:
                chunk, src, dst = min(sends)
                unit = chunk // self.copies
                raise VerificationError(
                    f"the schedule does not send all of unit {unit} {src} -> {dst} in step {step}", self.fixed_place
                )

    def _check_symmetries(self, rows: list, place: str) -> None:
        """Raise VerificationError where a symmetry of the rules does not map the sends of a step to themselves."""
        for ranks, chunks in self.images:
            left = Counter((chunk, src, dst, kind) for chunk, src, dst, kind, *_ in rows)
            for i, (chunk, src, dst, kind, *_) in enumerate(rows):
                image = chunks[chunk], ranks[src], ranks[dst], kind
                if not left[image]:
                    raise VerificationError(
                        f"has its image under a symmetry of the sketch, chunk {image[0]} {image[1]} -> {image[2]}, "
                        f"not in this step",
                        f"{place}[{i}]",
                    )
                left[image] -= 1
