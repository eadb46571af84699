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

from synth.checker.exact_sums import check_fits
from synth.checker.fields import need
from synth.checker.orbit_labels import orbit_labels
from synth.errors import VerificationError
from synth.model.compressed_schedule import COPY, REDUCE, CompressedSchedule
from synth.model.link_table import LinkTable, ends, members, widths
from synth.model.scale_collectives import COLLECTIVES, ROOTED

MOST_STEPS = 1 << 22  # each is an entry of arrays
MOST_GENERATORS = 64  # of which each but the first at least doubles the group, or adds nothing
MOST_HELD = 1 << 33  # chunks times ranks: who holds what is a table of bytes
MOST_CONTRIBUTIONS = 1 << 30  # chunks times ranks squared: which contributions each value contains, in bytes


@dataclass(frozen=True)
class CompressedReplay:
    """The result of a replay.

    Attributes:
        sends: number of sends of the whole schedule.
        group: order of the group, which is the number of images of each listed send.
        steps: number of steps.
        rounds_per_chunk: R/C.
        busiest: the greatest load of a link or limit in a step, as a fraction of its capacity in that step.
    """

    sends: int
    group: int
    steps: int
    rounds_per_chunk: Fraction
    busiest: Fraction


def replay(schedule: CompressedSchedule) -> CompressedReplay:
    """Replay `schedule` and add its loads up. Raises VerificationError with the place of what is wrong."""
    return _Replay(schedule).run()


class _Replay:
    def __init__(self, schedule: CompressedSchedule) -> None:
        self.schedule, self.topology = schedule, schedule.topology
        self.ranks = schedule.topology.ranks
        self.nodes = self.ranks + len(schedule.topology.switches)
        # blocks that symmetries permute: units of data, or for a symmetric allreduce the chunks that each rank sums up
        self.blocks = self.ranks if schedule.collective == "allreduce" and schedule.generators else schedule.units
        self.per_block = schedule.chunks * schedule.units // self.blocks
        links = schedule.topology.links
        self.links = links if isinstance(links, LinkTable) else LinkTable.of(links)
        self.src, self.dst = ends(links)

    def run(self) -> CompressedReplay:
        schedule = self.schedule
        self._ranges()
        self._paths()
        orbit, size = self._group()
        self._units(size)
        busiest = self._loads(orbit, size)
        starts, every = np.repeat(self.sources, self.per_block), np.ones(len(schedule.step), bool)
        if schedule.collective in ("reduce-scatter", "reduce"):
            need((schedule.kind == REDUCE).all(), "a reduction copies", "kind")
            self._spread(starts, every, reverse=True, once=True)
        elif schedule.collective == "allreduce":
            self._allreduce()
        else:
            need((schedule.kind == COPY).all(), f"{schedule.collective} sums", "kind")
            self._spread(starts, every, reverse=False, once=False)
        return CompressedReplay(
            len(schedule.step) * size, size, schedule.step_count, schedule.rounds_per_chunk, busiest
        )

    def _ranges(self) -> None:
        schedule = self.schedule
        need(schedule.collective in COLLECTIVES, "is none that is known", "collective")
        need(type(schedule.chunks) is int and schedule.chunks >= 1, "must be a whole number, at least 1", "chunks")
        need(
            schedule.step_count <= MOST_STEPS,
            f"{schedule.step_count} steps; at most {MOST_STEPS} are replayed",
            "rounds",
        )
        count = len(schedule.step)
        for name, below in (
            ("step", schedule.step_count),
            ("chunk", schedule.units * schedule.chunks),
            ("path", len(schedule.paths)),
            ("kind", 2),
        ):
            column = getattr(schedule, name)
            need(len(column) == count, f"has {len(column)} entries, step has {count}", name)
            need(
                count == 0 or (int(column.min()) >= 0 and int(column.max()) < below),
                f"lies outside 0..{below - 1}",
                name,
            )
        need(self.per_block <= MOST_HELD, f"{self.per_block} of each unit; at most {MOST_HELD} are followed", "chunks")
        need(
            self.per_block * self.blocks == schedule.chunks * schedule.units,
            f"are no multiple of {self.blocks} blocks",
            "chunks",
        )
        need(
            schedule.step_count == 0 or int(schedule.step_rounds.min()) >= 1,
            "every step has at least one round",
            "rounds",
        )
        check_fits(sum(schedule.step_rounds.tolist()), "rounds", "rounds")
        rooted = schedule.collective in ROOTED
        need((schedule.root is not None) == rooted, "is for rooted collectives", "root")
        need(not rooted or (type(schedule.root) is int and 0 <= schedule.root < self.ranks), "is no rank", "root")
        negative = [m for m in (*self.links.sorts, *self.topology.limits) if m.bandwidth < 0]
        need(not negative, "a bandwidth is negative", "width")

    def _enough(self, units: int, sources: int) -> None:
        """Check that as many sends are listed as the chunks need, and that the chunks are not too many.

        A table of which rank holds which chunk is made later. A few numbers of the document set its size.
        """
        schedule, rows = self.schedule, units * self.per_block
        if schedule.collective == "alltoall":
            least = (units - sources) * self.per_block  # a rank has what it sends itself
        else:
            least = rows * (self.ranks - 1) * (2 if schedule.collective == "allreduce" else 1)
        need(
            len(schedule.step) >= least,
            f"lists {len(schedule.step)} sends, where so many chunks take {least} at least",
            "step",
        )
        need(
            rows * self.ranks <= MOST_HELD,
            f"{rows} chunks for {self.ranks} ranks; at most {MOST_HELD} in all are followed",
            "chunks",
        )

    def _paths(self) -> None:
        count = len(self.src)
        for p, path in enumerate(self.schedule.paths):
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
        moves = [np.array(pi, np.int64) for pi in self.schedule.generators]
        links = np.arange(len(self.src))
        if not moves:
            return links, 1
        need(len(moves) <= MOST_GENERATORS, f"{len(moves)}; at most {MOST_GENERATORS} are followed", "generators")
        _, width = widths(self.topology.links)
        keys = self.src * self.nodes + self.dst
        order = np.argsort(keys, kind="stable")
        need((np.diff(keys[order]) > 0).all(), "generators need one link at most between two ends", "generators")
        limit_links = members(self.topology.limits)
        bandwidths = [m.bandwidth for m in self.topology.limits]
        named = Counter((np.sort(m).tobytes(), w) for m, w in zip(limit_links, bandwidths, strict=True))
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
            taken = Counter((np.sort(image[m]).tobytes(), w) for m, w in zip(limit_links, bandwidths, strict=True))
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
        seen = {starts.tobytes()}
        queue = [starts]
        for image in queue:
            for pi in moves:
                product = pi[image]
                if product.tobytes() not in seen:
                    need(len(seen) < sizes[0], "an element that is not the identity fixes a rank", "generators")
                    seen.add(product.tobytes())
                    queue.append(product)
        return int(sizes[0])

    def _units(self, group: int) -> None:
        """Find the listed units: exactly one of each orbit."""
        schedule = self.schedule
        if group == 1:
            self._enough(self.blocks, self.ranks)
            self.wanted = np.arange(self.blocks)
            self.sources = self._sources(self.wanted)
            return
        need(
            schedule.collective not in ("broadcast", "reduce"),
            f"{schedule.collective} has no free symmetries",
            "generators",
        )
        listed = np.unique(schedule.chunk // self.per_block)
        # a unit's orbit is known by its first rank's: the group moves it freely, and one source of each orbit is listed
        first = listed if self.blocks == self.ranks else listed // self.ranks
        sources = np.unique(first)
        need(len(np.unique(self.orbit_of_rank[sources])) == len(sources), "lists two units of one orbit", "chunk")
        need(
            len(sources) * group == self.ranks,
            f"lists units of {len(sources)} orbits of {self.ranks // group}",
            "chunk",
        )
        self._enough(len(sources) * (self.blocks // self.ranks), len(sources))
        self.wanted = (
            sources if self.blocks == self.ranks else (sources[:, None] * self.ranks + np.arange(self.ranks)).ravel()
        )
        self.sources = self._sources(self.wanted)

    def _sources(self, units: np.ndarray) -> np.ndarray:
        schedule = self.schedule
        if schedule.collective in ("allgather", "reduce-scatter", "allreduce"):
            return units  # of an allreduce they are looked for later
        if schedule.collective == "alltoall":
            return units // self.ranks
        return np.full(len(units), schedule.root if schedule.root is not None else 0)

    def _loads(self, orbit: np.ndarray, group: int) -> Fraction:
        """Return the greatest load of a link or limit in a step, as a part of its capacity, which is 1 at most."""
        schedule, names = self.schedule, self.topology.limits
        unit = self.topology.unit_bandwidth()
        sizes = np.bincount(orbit, minlength=len(orbit))
        lengths = np.fromiter((len(p) for p in schedule.paths), np.int64, len(schedule.paths))
        flat = np.fromiter((i for p in schedule.paths for i in p), np.int64, sum(map(len, schedule.paths)))
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        limit_links = members(names)
        inside = np.concatenate([np.zeros(0, np.int64), *limit_links])
        limit_of = np.repeat(np.arange(len(limit_links)), [len(m) for m in limit_links])
        # whatever a step puts on links or limits, over all images
        check_fits(
            len(schedule.step) * max(map(len, schedule.paths), default=0) * group * max(1, len(inside)), "loads", "step"
        )
        link_bandwidths, which = widths(self.topology.links)
        limit_bandwidths, of_limit = widths(names)
        capacity = [int(width / unit) for width in link_bandwidths]
        limit_capacity = [int(width / unit) for width in limit_bandwidths]
        busiest = Fraction(0)
        order = np.argsort(schedule.step, kind="stable")
        bounds = np.searchsorted(schedule.step[order], np.arange(schedule.step_count + 1))
        for t in range(schedule.step_count):
            paths = schedule.path[order[bounds[t] : bounds[t + 1]]]
            if not len(paths):
                continue
            times = np.bincount(paths, minlength=len(schedule.paths))
            used = np.flatnonzero(times)
            counts = lengths[used]
            hops = flat[
                np.repeat(starts[used] - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
                + np.arange(counts.sum())
            ]
            total = np.zeros(len(orbit), np.int64)
            np.add.at(total, orbit[hops], np.repeat(times[used], counts))
            load = total[orbit] * group // sizes[orbit]
            rounds = int(schedule.step_rounds[t])
            busiest = max(busiest, *_fullest(load, which, capacity, rounds, self._link, f"steps[{t}]"))
            if limit_links:
                sums = np.zeros(len(limit_links), np.int64)
                np.add.at(sums, limit_of, load[inside])
                busiest = max(
                    busiest,
                    *_fullest(
                        sums, of_limit, limit_capacity, rounds, lambda k: f"limit {names[k].name}", f"steps[{t}]"
                    ),
                )
        return busiest

    def _link(self, i: int) -> str:
        return f"link {self.src[i]} -> {self.dst[i]}"

    def _spread(self, starts: np.ndarray, mask: np.ndarray, *, reverse: bool, once: bool) -> None:
        """Follow copies from the start of each listed chunk to all ranks that want it.

        Reductions are followed backwards in time; there each rank receives `once`.
        """
        schedule = self.schedule
        first, last = schedule.ends
        step, chunk, path = schedule.step[mask], schedule.chunk[mask], schedule.path[mask]
        src, dst = (last[path], first[path]) if reverse else (first[path], last[path])
        time = schedule.step_count - 1 - step if reverse else step
        place = self._places(chunk)
        held = np.zeros((len(self.wanted) * self.per_block, self.ranks), bool)
        held[np.arange(len(held)), starts] = True
        order = np.argsort(time, kind="stable")
        ends = np.searchsorted(time[order], np.arange(schedule.step_count + 1))
        for t in range(schedule.step_count):
            now = order[ends[t] : ends[t + 1]]
            shown = f"steps[{schedule.step_count - 1 - t if reverse else t}]"
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
        if schedule.collective == "alltoall":
            done = held[np.arange(len(held)), np.repeat(self.wanted % self.ranks, self.per_block)]
            lacking = np.flatnonzero(~done)
            ranks = (self.wanted % self.ranks)[lacking // self.per_block]
        else:
            lacking, ranks = np.nonzero(~held)
        if len(lacking):
            chunk_id = (
                int(self.wanted[lacking[0] // self.per_block]) * self.per_block + int(lacking[0]) % self.per_block
            )
            raise VerificationError(
                f"rank {ranks[0]} ends without chunk {chunk_id}" + (" being summed" if reverse else ""), "$"
            )

    def _places(self, chunk: np.ndarray) -> np.ndarray:
        """Return the row of each chunk among the listed ones."""
        row_of = np.full(self.blocks, -1, np.int64)
        row_of[self.wanted] = np.arange(len(self.wanted))
        row = row_of[chunk // self.per_block]
        need((row >= 0).all(), "lists a unit that is an image of another", "chunk")
        return row * self.per_block + chunk % self.per_block

    def _allreduce(self) -> None:
        """Check that each chunk is summed up a tree to its root, and copied from there after the last sum arrived.

        Where ranks exchange sums instead, so that a chunk has no such root, follow contributions one by one.
        """
        schedule = self.schedule
        first, last = schedule.ends
        up = schedule.kind == REDUCE
        place = self._places(schedule.chunk)
        # the root of a chunk is the rank that never passes its sum on
        passes = np.zeros((len(self.wanted) * self.per_block, self.ranks), bool)
        keys = place[up] * self.ranks + first[schedule.path[up]]
        passes.ravel()[keys] = True
        if len(np.unique(keys)) < len(keys) or ((~passes).sum(axis=1) != 1).any():
            self._contributions(place)
            return
        roots = np.argmin(passes, axis=1)
        final = np.full(len(roots), -1, np.int64)
        into = roots[place[up]] == last[schedule.path[up]]
        np.maximum.at(final, place[up][into], schedule.step[up][into])
        early = np.flatnonzero(schedule.step[~up] <= final[place[~up]])
        if len(early):
            i = np.flatnonzero(~up)[early[0]]
            raise VerificationError(
                f"chunk {schedule.chunk[i]} is copied before it is summed", f"steps[{schedule.step[i]}]"
            )
        for reverse, mask in ((True, up), (False, ~up)):
            self._spread(roots, mask, reverse=reverse, once=reverse)

    def _contributions(self, place: np.ndarray) -> None:
        """Follow which contributions each rank's value of each listed chunk contains, step by step.

        Sends of a step read the state before it; its copies land before its reductions add.
        """
        schedule, ranks, rows = self.schedule, self.ranks, len(self.wanted) * self.per_block
        size = rows * ranks * ranks
        need(size <= MOST_CONTRIBUTIONS, f"{size} contributions; at most {MOST_CONTRIBUTIONS} are followed", "chunks")
        first, last = schedule.ends
        src, dst = first[schedule.path], last[schedule.path]
        held = np.zeros((rows * ranks, ranks), bool)
        held[np.arange(rows * ranks), np.tile(np.arange(ranks), rows)] = True
        order = np.lexsort((schedule.kind, schedule.step))
        bounds = np.searchsorted(schedule.step[order], np.arange(schedule.step_count + 1))
        for t in range(schedule.step_count):
            now = order[bounds[t] : bounds[t + 1]]
            sent = held[place[now] * ranks + src[now]]
            into, adds = place[now] * ranks + dst[now], schedule.kind[now] == REDUCE
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
            chunk = int(self.wanted[row // self.per_block]) * self.per_block + row % self.per_block
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
