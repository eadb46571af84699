"""Independent replay of compressed schedules in NumPy, by orbits: it shares no code with what builds them.

Checks: each path leads over links from a rank through switches to a rank; each generator maps links onto links
and limits onto limits of the same bandwidth; the generators commute and no element but the identity fixes a rank, so
that the images of a send are as many as the group has elements; the listed sends belong to one unit of each orbit; who
sends a chunk holds it; all that must be received is; for reductions each rank's contribution is counted once (each
chunk is summed up a tree: the time reversal of a copy in which every rank receives once; or, in an allreduce in which
ranks exchange sums, contributions are followed one by one); loads of links and limits,
step by step, over all images. No sum can wrap: numbers are shown to be small before arrays of them are added, and loads
are compared with bandwidth times rounds as Python integers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from synth.checker.exact_sums import fits
from synth.checker.fields import need
from synth.checker.orbit_labels import orbit_labels
from synth.errors import VerificationError
from synth.model.compressed_schedule import COPY, REDUCE, CompressedSchedule
from synth.model.link_table import LinkTable, ends, members, widths
from synth.model.scale_frontier import COLLECTIVES, ROOTED

MOST_STEPS = 1 << 22  # each is an entry of arrays
MOST_GENERATORS = 64  # of which each but the first at least doubles the group, or adds nothing
MOST_HELD = 1 << 33  # chunks times ranks: who holds what is a table of bytes
MOST_CONTRIBUTIONS = 1 << 30  # chunks times ranks squared: which contributions each value contains, in bytes


@dataclass(frozen=True)
class CompressedReplay:
    """The result of a replay: `sends` of the whole schedule, `group` images of each listed one.

    `busiest` is the greatest load of a link or limit in a step, as a part of its capacity in that step.
    """

    sends: int
    group: int
    steps: int
    rounds_per_chunk: Fraction
    busiest: Fraction


def replay(given: CompressedSchedule) -> CompressedReplay:
    """Replay `given` and add its loads up. Raises VerificationError with the place of what is wrong."""
    return _Replay(given).run()


class _Replay:
    def __init__(self, given: CompressedSchedule) -> None:
        self.given, self.topology = given, given.topology
        self.ranks = given.topology.ranks
        self.nodes = self.ranks + len(given.topology.switches)
        # what symmetries move: units of data, or for a symmetric allreduce the block of chunks that each rank sums up
        self.moved = self.ranks if given.collective == "allreduce" and given.generators else given.units
        self.per = given.chunks * given.units // self.moved
        links = given.topology.links
        self.links = links if isinstance(links, LinkTable) else LinkTable.of(links)
        self.src, self.dst = ends(links)

    def run(self) -> CompressedReplay:
        given = self.given
        self._ranges()
        self._paths()
        orbit, size = self._group()
        self._units(size)
        busiest = self._loads(orbit, size)
        starts, every = np.repeat(self.sources, self.per), np.ones(len(given.step), bool)
        if given.collective in ("reduce-scatter", "reduce"):
            need((given.kind == REDUCE).all(), "a reduction copies", "kind")
            self._spread(starts, every, reverse=True, once=True)
        elif given.collective == "allreduce":
            self._allreduce()
        else:
            need((given.kind == COPY).all(), f"{given.collective} sums", "kind")
            self._spread(starts, every, reverse=False, once=False)
        return CompressedReplay(len(given.step) * size, size, given.steps, given.rounds_per_chunk, busiest)

    def _ranges(self) -> None:
        given = self.given
        need(given.collective in COLLECTIVES, "is none that is known", "collective")
        need(type(given.chunks) is int and given.chunks >= 1, "must be a whole number, at least 1", "chunks")
        need(given.steps <= MOST_STEPS, f"{given.steps} steps; at most {MOST_STEPS} are replayed", "rounds")
        count = len(given.step)
        for name, most in (
            ("step", given.steps),
            ("chunk", given.units * given.chunks),
            ("path", len(given.paths)),
            ("kind", 2),
        ):
            column = getattr(given, name)
            need(len(column) == count, f"has {len(column)} entries, step has {count}", name)
            need(
                count == 0 or (int(column.min()) >= 0 and int(column.max()) < most), f"lies outside 0..{most - 1}", name
            )
        need(self.per <= MOST_HELD, f"{self.per} of each unit; at most {MOST_HELD} are followed", "chunks")
        need(self.per * self.moved == given.chunks * given.units, f"are no multiple of {self.moved} blocks", "chunks")
        need(given.steps == 0 or int(given.rounds.min()) >= 1, "every step has at least one round", "rounds")
        fits(sum(given.rounds.tolist()), "rounds", "rounds")
        rooted = given.collective in ROOTED
        need((given.root is not None) == rooted, "is for rooted collectives", "root")
        need(not rooted or (type(given.root) is int and 0 <= given.root < self.ranks), "is no rank", "root")
        slow = [m for m in (*self.links.sorts, *self.topology.limits) if m.bandwidth < 0]
        need(not slow, "a bandwidth is negative", "width")

    def _enough(self, units: int, sources: int) -> None:
        """Check that as many sends are listed as the chunks need, and that the chunks are not too many.

        A table of which rank holds which chunk is made later. A few numbers of the document set its size.
        """
        given, rows = self.given, units * self.per
        if given.collective == "alltoall":
            least = (units - sources) * self.per  # a rank has what it sends itself
        else:
            least = rows * (self.ranks - 1) * (2 if given.collective == "allreduce" else 1)
        need(
            len(given.step) >= least,
            f"lists {len(given.step)} sends, where so many chunks take {least} at least",
            "step",
        )
        need(
            rows * self.ranks <= MOST_HELD,
            f"{rows} chunks for {self.ranks} ranks; at most {MOST_HELD} in all are followed",
            "chunks",
        )

    def _paths(self) -> None:
        count = len(self.src)
        for p, path in enumerate(self.given.paths):
            place = f"paths[{p}]"
            need(path and all(0 <= i < count for i in path), "names no links", place)
            inner = self.dst[list(path[:-1])]
            need(
                (inner == self.src[list(path[1:])]).all() and (inner >= self.ranks).all(),
                "is not joined through switches",
                place,
            )
            need(
                self.src[path[0]] < self.ranks and self.dst[path[-1]] < self.ranks,
                "does not lead from rank to rank",
                place,
            )
            need(self.src[path[0]] != self.dst[path[-1]], "leads back to where it starts", place)

    def _group(self) -> tuple[np.ndarray, int]:
        """Return the orbit of each link, and the order of the group, after checking the generators."""
        moves = [np.array(pi, np.int64) for pi in self.given.generators]
        links = np.arange(len(self.src))
        if not moves:
            return links, 1
        need(len(moves) <= MOST_GENERATORS, f"{len(moves)}; at most {MOST_GENERATORS} are followed", "generators")
        _, width = widths(self.topology.links)
        keys = self.src * self.nodes + self.dst
        order = np.argsort(keys, kind="stable")
        need((np.diff(keys[order]) > 0).all(), "generators need one link at most between two ends", "generators")
        held = members(self.topology.limits)
        slow = [m.bandwidth for m in self.topology.limits]
        named = Counter((np.sort(m).tobytes(), w) for m, w in zip(held, slow, strict=True))
        images = []
        for g, pi in enumerate(moves):
            place = f"generators[{g}]"
            need(
                len(pi) == self.nodes and (np.sort(pi) == np.arange(self.nodes)).all(),
                "is no permutation of ranks and switches",
                place,
            )
            need(self.ranks == self.nodes or pi[: self.ranks].max() < self.ranks, "takes a rank to a switch", place)
            moved = pi[self.src] * self.nodes + pi[self.dst]
            at = np.searchsorted(keys[order], moved)
            need(
                (at < len(keys)).all() and (keys[order][np.minimum(at, len(keys) - 1)] == moved).all(),
                "takes a link to none",
                place,
            )
            image = order[at]
            need((width[image] == width).all(), "changes a bandwidth", place)
            taken = Counter((np.sort(image[m]).tobytes(), w) for m, w in zip(held, slow, strict=True))
            need(taken == named, "takes a limit to none", place)
            for other in moves[:g]:
                need((pi[other] == other[pi]).all(), "does not commute with those before", place)
            images.append(image)
        return orbit_labels(len(links), images), self._order(moves)

    def _order(self, moves: list[np.ndarray]) -> int:
        """Return the order of a commuting group, after checking that it acts freely on the ranks."""
        label = orbit_labels(self.nodes, moves)
        self.orbit_of_rank = label[: self.ranks]
        sizes = np.unique(self.orbit_of_rank, return_counts=True)[1]
        need(len(set(sizes.tolist())) == 1, "orbits of ranks differ in size", "generators")
        # an element is known by where it takes one rank or switch of each orbit, as the group commutes
        starts = np.unique(label)
        found = {starts.tobytes()}
        queue = [starts]
        for image in queue:
            for pi in moves:
                made = pi[image]
                if made.tobytes() not in found:
                    need(len(found) < sizes[0], "an element that is not the identity fixes a rank", "generators")
                    found.add(made.tobytes())
                    queue.append(made)
        return int(sizes[0])

    def _units(self, group: int) -> None:
        """Find the listed units: exactly one of each orbit."""
        given = self.given
        if group == 1:
            self._enough(self.moved, self.ranks)
            self.wanted = np.arange(self.moved)
            self.sources = self._sources(self.wanted)
            return
        need(
            given.collective not in ("broadcast", "reduce"), f"{given.collective} has no free symmetries", "generators"
        )
        listed = np.unique(given.chunk // self.per)
        # a unit's orbit is known by its first rank's: the group moves it freely, and one source of each orbit is listed
        first = listed if self.moved == self.ranks else listed // self.ranks
        sources = np.unique(first)
        need(len(np.unique(self.orbit_of_rank[sources])) == len(sources), "lists two units of one orbit", "chunk")
        need(
            len(sources) * group == self.ranks,
            f"lists units of {len(sources)} orbits of {self.ranks // group}",
            "chunk",
        )
        self._enough(len(sources) * (self.moved // self.ranks), len(sources))
        self.wanted = (
            sources if self.moved == self.ranks else (sources[:, None] * self.ranks + np.arange(self.ranks)).ravel()
        )
        self.sources = self._sources(self.wanted)

    def _sources(self, units: np.ndarray) -> np.ndarray:
        given = self.given
        if given.collective in ("allgather", "reduce-scatter", "allreduce"):
            return units  # of an allreduce they are looked for later
        if given.collective == "alltoall":
            return units // self.ranks
        return np.full(len(units), given.root if given.root is not None else 0)

    def _loads(self, orbit: np.ndarray, group: int) -> Fraction:
        """Return the greatest load of a link or limit in a step, as a part of its capacity, which is 1 at most."""
        given, names = self.given, self.topology.limits
        unit = self.topology.unit_bandwidth()
        sizes = np.bincount(orbit, minlength=len(orbit))
        lengths = np.fromiter((len(p) for p in given.paths), np.int64, len(given.paths))
        flat = np.fromiter((i for p in given.paths for i in p), np.int64, sum(map(len, given.paths)))
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        held = members(names)
        inside = np.concatenate([np.zeros(0, np.int64), *held])
        holder = np.repeat(np.arange(len(held)), [len(m) for m in held])
        # whatever a step puts on links or limits, over all images
        fits(len(given.step) * max(map(len, given.paths), default=0) * group * max(1, len(inside)), "loads", "step")
        wide, which = widths(self.topology.links)
        narrow, of_limit = widths(names)
        room = [int(width / unit) for width in wide]
        limit_room = [int(width / unit) for width in narrow]
        busiest = Fraction(0)
        order = np.argsort(given.step, kind="stable")
        bounds = np.searchsorted(given.step[order], np.arange(given.steps + 1))
        for t in range(given.steps):
            paths = given.path[order[bounds[t] : bounds[t + 1]]]
            if not len(paths):
                continue
            times = np.bincount(paths, minlength=len(given.paths))
            used = np.flatnonzero(times)
            counts = lengths[used]
            hops = flat[
                np.repeat(starts[used] - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
                + np.arange(counts.sum())
            ]
            total = np.zeros(len(orbit), np.int64)
            np.add.at(total, orbit[hops], np.repeat(times[used], counts))
            load = total[orbit] * group // sizes[orbit]
            rounds = int(given.rounds[t])
            busiest = max(busiest, *_fullest(load, which, room, rounds, self._link, f"steps[{t}]"))
            if held:
                sums = np.zeros(len(held), np.int64)
                np.add.at(sums, holder, load[inside])
                busiest = max(
                    busiest,
                    *_fullest(sums, of_limit, limit_room, rounds, lambda k: f"limit {names[k].name}", f"steps[{t}]"),
                )
        return busiest

    def _link(self, i: int) -> str:
        return f"link {self.src[i]} -> {self.dst[i]}"

    def _spread(self, starts: np.ndarray, mask: np.ndarray, *, reverse: bool, once: bool) -> None:
        """Follow copies from the start of each listed chunk to all ranks that want it.

        Reductions are followed backwards in time; there each rank receives `once`.
        """
        given = self.given
        first, last = given.ends
        step, chunk, path = given.step[mask], given.chunk[mask], given.path[mask]
        src, dst = (last[path], first[path]) if reverse else (first[path], last[path])
        time = given.steps - 1 - step if reverse else step
        place = self._places(chunk)
        held = np.zeros((len(self.wanted) * self.per, self.ranks), bool)
        held[np.arange(len(held)), starts] = True
        order = np.argsort(time, kind="stable")
        ends = np.searchsorted(time[order], np.arange(given.steps + 1))
        for t in range(given.steps):
            now = order[ends[t] : ends[t + 1]]
            shown = f"steps[{given.steps - 1 - t if reverse else t}]"
            bad = np.flatnonzero(~held[place[now], src[now]])
            if len(bad):
                i = now[bad[0]]
                what = "adds its part to" if reverse else "sends"
                when = "after it was sent on" if reverse else "before it has it"
                raise VerificationError(f"rank {src[i]} {what} chunk {chunk[i]} {when}", shown)
            if once:
                keys = place[now] * self.ranks + dst[now]
                again = held[place[now], dst[now]].any() or len(np.unique(keys)) < len(keys)
                need(not again, "a contribution is counted twice", shown)
            held[place[now], dst[now]] = True
        if given.collective == "alltoall":
            done = held[np.arange(len(held)), np.repeat(self.wanted % self.ranks, self.per)]
            lacking = np.flatnonzero(~done)
            ranks = (self.wanted % self.ranks)[lacking // self.per]
        else:
            lacking, ranks = np.nonzero(~held)
        if len(lacking):
            chunk_id = int(self.wanted[lacking[0] // self.per]) * self.per + int(lacking[0]) % self.per
            raise VerificationError(
                f"rank {ranks[0]} ends without chunk {chunk_id}" + (" being summed" if reverse else ""), "$"
            )

    def _places(self, chunk: np.ndarray) -> np.ndarray:
        """Return the row of each chunk among the listed ones."""
        row_of = np.full(self.moved, -1, np.int64)
        row_of[self.wanted] = np.arange(len(self.wanted))
        row = row_of[chunk // self.per]
        need((row >= 0).all(), "lists a unit that is an image of another", "chunk")
        return row * self.per + chunk % self.per

    def _allreduce(self) -> None:
        """Check that each chunk is summed up a tree to its root, and copied from there after the last sum arrived.

        Where ranks exchange sums instead, so that a chunk has no such root, follow contributions one by one.
        """
        given = self.given
        first, last = given.ends
        up = given.kind == REDUCE
        place = self._places(given.chunk)
        # the root of a chunk is the rank that never passes its sum on
        passes = np.zeros((len(self.wanted) * self.per, self.ranks), bool)
        keys = place[up] * self.ranks + first[given.path[up]]
        passes.ravel()[keys] = True
        if len(np.unique(keys)) < len(keys) or ((~passes).sum(axis=1) != 1).any():
            self._contributions(place)
            return
        roots = np.argmin(passes, axis=1)
        final = np.full(len(roots), -1, np.int64)
        into = roots[place[up]] == last[given.path[up]]
        np.maximum.at(final, place[up][into], given.step[up][into])
        early = np.flatnonzero(given.step[~up] <= final[place[~up]])
        if len(early):
            i = np.flatnonzero(~up)[early[0]]
            raise VerificationError(f"chunk {given.chunk[i]} is copied before it is summed", f"steps[{given.step[i]}]")
        for reverse, mask in ((True, up), (False, ~up)):
            self._spread(roots, mask, reverse=reverse, once=reverse)

    def _contributions(self, place: np.ndarray) -> None:
        """Follow which contributions each rank's value of each listed chunk contains, step by step.

        Sends of a step read the state before it; its copies land before its reductions add.
        """
        given, ranks, rows = self.given, self.ranks, len(self.wanted) * self.per
        size = rows * ranks * ranks
        need(size <= MOST_CONTRIBUTIONS, f"{size} contributions; at most {MOST_CONTRIBUTIONS} are followed", "chunks")
        first, last = given.ends
        src, dst = first[given.path], last[given.path]
        held = np.zeros((rows * ranks, ranks), bool)
        held[np.arange(rows * ranks), np.tile(np.arange(ranks), rows)] = True
        order = np.lexsort((given.kind, given.step))
        bounds = np.searchsorted(given.step[order], np.arange(given.steps + 1))
        for t in range(given.steps):
            now = order[bounds[t] : bounds[t + 1]]
            sent = held[place[now] * ranks + src[now]]
            into, adds = place[now] * ranks + dst[now], given.kind[now] == REDUCE
            copied = into[~adds]
            need(len(np.unique(copied)) == len(copied), "two copies arrive at one rank", f"steps[{t}]")
            held[copied] = sent[~adds]
            targets, row = np.unique(into[adds], return_inverse=True)
            total = held[targets].astype(np.int64)
            np.add.at(total, row, sent[adds])
            need((total <= 1).all(), "a contribution is counted twice", f"steps[{t}]")
            held[targets] = total.astype(bool)
        lacking = np.flatnonzero(~held.all(axis=1))
        if len(lacking):
            row, rank = divmod(int(lacking[0]), ranks)
            chunk = int(self.wanted[row // self.per]) * self.per + row % self.per
            raise VerificationError(f"rank {rank} ends without all contributions to chunk {chunk}", "$")


def _fullest(
    load: np.ndarray, which: np.ndarray, room: list[int], rounds: int, named: Callable[[int], str], place: str
) -> Iterator[Fraction]:
    """Yield the greatest load over room times rounds for each room; item i has room[which[i]].

    Raises VerificationError where one exceeds 1.
    """
    most = np.zeros(len(room), np.int64)
    np.maximum.at(most, which, load)
    for k, found in enumerate(most.tolist()):
        if found > room[k] * rounds:
            i = int(np.flatnonzero((which == k) & (load == found))[0])
            raise VerificationError(f"{named(i)} carries {found} chunks in {rounds} rounds of {room[k]}", place)
        yield Fraction(found, room[k] * rounds) if found else Fraction(0)
