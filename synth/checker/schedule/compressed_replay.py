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
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from synth.checker.exact_sums import check_fits
from synth.checker.fields import need
from synth.checker.orbit_labels import orbit_labels
from synth.errors import VerificationError
from synth.model.compressed_schedule import COPY, REDUCE, CompressedSchedule
from synth.model.link_table import ends, members, widths
from synth.model.scale_collectives import COLLECTIVES, ROOTED
from synth.model.topology import bandwidths

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
    topology, collective, ranks = schedule.topology, schedule.collective, schedule.topology.ranks
    need(collective in COLLECTIVES, "is none that is known", "collective")
    root, rooted = schedule.root, collective in ROOTED
    right = type(root) is int and 0 <= root < ranks if rooted else root is None
    need(right, f"expected {'a rank' if rooted else 'none'}, found {root!r}", "root")
    need(type(schedule.chunks) is int and schedule.chunks >= 1, "must be a whole number, at least 1", "chunks")
    widest = [*bandwidths(topology.links), *bandwidths(topology.limits)]
    need(all(width >= 0 for width in widest), "a bandwidth is negative", "width")

    # rounds of each step, and of each send a step, a chunk, a path and a kind that are there
    steps, count = schedule.step_count, len(schedule.step)
    need(steps <= MOST_STEPS, f"{steps} steps; at most {MOST_STEPS} are replayed", "rounds")
    need(not steps or int(schedule.step_rounds.min()) >= 1, "every step has at least one round", "rounds")
    check_fits(sum(schedule.step_rounds.tolist()), "rounds", "rounds")
    below = {"step": steps, "chunk": schedule.units * schedule.chunks, "path": len(schedule.paths), "kind": 2}
    for name, most in below.items():
        column = getattr(schedule, name)
        need(len(column) == count, f"has {len(column)} entries, step has {count}", name)
        inside = not count or (int(column.min()) >= 0 and int(column.max()) < most)
        need(inside, f"lies outside 0..{most - 1}", name)
    _check_paths(schedule)

    # each send stands for all of its images
    orbit, orbit_of_rank, group = _symmetries(schedule)
    listed = _listed_chunks(schedule, orbit_of_rank, group)
    busiest = _busiest(schedule, orbit, group)

    # who holds what is sent, and what must arrive
    every = np.ones(count, bool)
    if collective == "allreduce":
        _allreduce(listed)
    elif collective in ("reduce-scatter", "reduce"):
        need((schedule.kind == REDUCE).all(), "a reduction copies", "kind")
        _spread(listed, listed.starts, every, reverse=True)
    else:
        need((schedule.kind == COPY).all(), f"{collective} sums", "kind")
        _spread(listed, listed.starts, every, reverse=False)
    return CompressedReplay(count * group, group, steps, schedule.rounds_per_chunk, busiest)


def _check_paths(schedule: CompressedSchedule) -> None:
    """Check that each path leads over links from a rank through switches to another rank."""
    src, dst = ends(schedule.topology.links)
    ranks = schedule.topology.ranks
    for p, path in enumerate(schedule.paths):
        place = f"paths[{p}]"
        need(path and all(0 <= i < len(src) for i in path), "names no links", place)
        tails, heads = src[list(path)], dst[list(path)]
        joined = (heads[:-1] == tails[1:]).all() and (heads[:-1] >= ranks).all()
        need(joined, "is not joined through switches", place)
        need(tails[0] < ranks and heads[-1] < ranks, "does not lead from rank to rank", place)
        need(tails[0] != heads[-1], "leads back to where it starts", place)


def _symmetries(schedule: CompressedSchedule) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the orbit of each link and of each rank, and the order of the group, after checking the generators."""
    topology, ranks = schedule.topology, schedule.topology.ranks
    nodes = ranks + len(topology.switches)
    src, dst = ends(topology.links)
    moves = [np.array(pi, np.int64) for pi in schedule.generators]
    if not moves:
        return np.arange(len(src)), np.arange(ranks), 1
    need(len(moves) <= MOST_GENERATORS, f"{len(moves)}; at most {MOST_GENERATORS} are followed", "generators")

    # a link is known by its ends, a limit by its links and bandwidth
    keys = src * nodes + dst
    order = np.argsort(keys, kind="stable")
    sorted_keys = keys[order]
    need((np.diff(sorted_keys) > 0).all(), "generators need one link at most between two ends", "generators")
    _, width = widths(topology.links)
    held = list(zip(members(topology.limits), [limit.bandwidth for limit in topology.limits], strict=True))
    named = Counter((np.sort(links).tobytes(), bandwidth) for links, bandwidth in held)

    # each generator maps links and limits to such of the same bandwidth, and commutes with those before
    images = []
    for g, pi in enumerate(moves):
        place = f"generators[{g}]"
        permutes = len(pi) == nodes and (np.sort(pi) == np.arange(nodes)).all()
        need(permutes, "is no permutation of ranks and switches", place)
        need((pi[:ranks] < ranks).all(), "takes a rank to a switch", place)
        moved = pi[src] * nodes + pi[dst]
        at = np.minimum(np.searchsorted(sorted_keys, moved), len(keys) - 1)
        need((sorted_keys[at] == moved).all(), "takes a link to none", place)
        image = order[at]
        need((width[image] == width).all(), "changes a bandwidth", place)
        taken = Counter((np.sort(image[links]).tobytes(), bandwidth) for links, bandwidth in held)
        need(taken == named, "takes a limit to none", place)
        for other in moves[:g]:
            need((pi[other] == other[pi]).all(), "does not commute with those before", place)
        images.append(image)

    # an element is known by where it takes one rank or switch of each orbit, as the group commutes. There are as many
    # elements as ranks in an orbit, if only the identity fixes a rank
    label = orbit_labels(nodes, moves)
    sizes = np.unique(label[:ranks], return_counts=True)[1]
    need(len(set(sizes.tolist())) == 1, "orbits of ranks differ in size", "generators")
    starts = np.unique(label)
    seen, queue = {starts.tobytes()}, [starts]
    for image in queue:
        for pi in moves:
            product = pi[image]
            if product.tobytes() not in seen:
                need(len(seen) < sizes[0], "an element that is not the identity fixes a rank", "generators")
                seen.add(product.tobytes())
                queue.append(product)
    return orbit_labels(len(src), images), label[:ranks], int(sizes[0])


@dataclass(frozen=True)
class _Listed:
    """The chunks that a schedule lists, the others being their images, and its sends.

    `blocks`: what symmetries permute, of `size` chunks each: units of data, or of a symmetric allreduce the chunks that
    each rank sums up. `wanted`: the blocks that are listed. `starts`: the rank that each listed chunk spreads from.
    `row`: for each send its chunk's place among the listed ones. `src`, `dst`: the ranks of each send.
    """

    schedule: CompressedSchedule
    size: int
    wanted: np.ndarray
    starts: np.ndarray
    row: np.ndarray
    src: np.ndarray
    dst: np.ndarray

    @property
    def count(self) -> int:
        """Number of listed chunks."""
        return len(self.wanted) * self.size

    def chunk(self, row: int) -> int:
        """Return the number of a listed chunk in the whole schedule."""
        return int(self.wanted[row // self.size]) * self.size + row % self.size


def _listed_chunks(schedule: CompressedSchedule, orbit_of_rank: np.ndarray, group: int) -> _Listed:
    """Find the listed blocks: exactly one of each orbit."""
    ranks, collective, chunks = schedule.topology.ranks, schedule.collective, schedule.chunks * schedule.units
    blocks = ranks if collective == "allreduce" and schedule.generators else schedule.units
    size = chunks // blocks
    need(size * blocks == chunks, f"are no multiple of {blocks} blocks", "chunks")
    need(size <= MOST_HELD, f"{size} of each unit; at most {MOST_HELD} are followed", "chunks")

    # a block's orbit is known by its first rank's: the group moves it freely, and one source of each orbit is listed
    sources, many = np.arange(ranks), blocks
    if group > 1:
        need(collective not in ROOTED, f"{collective} has no free symmetries", "generators")
        named = np.unique(schedule.chunk // size)
        sources = np.unique(named if blocks == ranks else named // ranks)
        need(len(np.unique(orbit_of_rank[sources])) == len(sources), "lists two units of one orbit", "chunk")
        orbits = f"lists units of {len(sources)} orbits of {ranks // group}"
        need(len(sources) * group == ranks, orbits, "chunk")
        many = len(sources) * (blocks // ranks)

    # as many sends as the chunks need. A few numbers of the document set the size of the table of who holds which
    rows = many * size
    if collective == "alltoall":
        least = (many - len(sources)) * size  # a rank has what it sends itself
    else:
        least = rows * (ranks - 1) * (2 if collective == "allreduce" else 1)
    sends = len(schedule.step)
    need(sends >= least, f"lists {sends} sends, where so many chunks take {least} at least", "step")
    most = f"{rows} chunks for {ranks} ranks; at most {MOST_HELD} in all are followed"
    need(rows * ranks <= MOST_HELD, most, "chunks")

    # the rank that each listed chunk starts from; of an allreduce it is looked for later
    wanted = np.arange(blocks)
    if group > 1:
        wanted = sources if blocks == ranks else (sources[:, None] * ranks + np.arange(ranks)).ravel()
    if collective in ROOTED:
        starts = np.full(len(wanted), schedule.root)
    else:
        starts = wanted // ranks if collective == "alltoall" else wanted
    row_of = np.full(blocks, -1, np.int64)
    row_of[wanted] = np.arange(len(wanted))
    row = row_of[schedule.chunk // size]
    need((row >= 0).all(), "lists a unit that is an image of another", "chunk")
    first, last = schedule.ends
    row = row * size + schedule.chunk % size
    return _Listed(schedule, size, wanted, np.repeat(starts, size), row, first[schedule.path], last[schedule.path])


def _busiest(schedule: CompressedSchedule, orbit: np.ndarray, group: int) -> Fraction:
    """Return the greatest load of a link or limit in a step, as a part of its capacity, which is 1 at most."""
    topology = schedule.topology
    src, dst = ends(topology.links)
    sizes = np.bincount(orbit, minlength=len(orbit))

    # the links of all paths, one path after another, and the links of all limits
    lengths = np.fromiter((len(p) for p in schedule.paths), np.int64, len(schedule.paths))
    flat = np.fromiter((i for p in schedule.paths for i in p), np.int64, int(lengths.sum()))
    starts = np.cumsum(lengths) - lengths
    limit_links = members(topology.limits)
    inside = np.concatenate([np.zeros(0, np.int64), *limit_links])
    limit_of = np.repeat(np.arange(len(limit_links)), [len(links) for links in limit_links])

    # whatever a step puts on links or limits, over all images
    sends = len(schedule.step) * group
    most = sends * int(lengths.max(initial=0)) * max(1, len(inside))
    check_fits(most, "loads", "step")
    unit = topology.unit_bandwidth()
    rooms = []
    for things in (topology.links, topology.limits):
        different, which = widths(things)
        rooms.append(([int(width / unit) for width in different], which))

    busiest = Fraction(0)
    order = np.argsort(schedule.step, kind="stable")
    bounds = np.searchsorted(schedule.step[order], np.arange(schedule.step_count + 1))
    for t, rounds in enumerate(schedule.step_rounds.tolist()):
        # how often each path is taken, then each link: the images of a send share the links of an orbit evenly
        now = order[bounds[t] : bounds[t + 1]]
        times = np.bincount(schedule.path[now], minlength=len(lengths))
        used = np.flatnonzero(times)
        counts = lengths[used]
        offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        hops = flat[np.repeat(starts[used], counts) + offsets]
        total = np.zeros(len(orbit), np.int64)
        np.add.at(total, orbit[hops], np.repeat(times[used], counts))
        load = total[orbit] * group // sizes[orbit]
        sums = np.zeros(len(limit_links), np.int64)
        np.add.at(sums, limit_of, load[inside])

        # compared with bandwidth times rounds as Python integers
        for loads, (room, which) in zip((load, sums), rooms, strict=True):
            greatest = np.zeros(len(room), np.int64)
            np.maximum.at(greatest, which, loads)
            for k, found in enumerate(greatest.tolist()):
                if found > room[k] * rounds:
                    i = int(np.flatnonzero((which == k) & (loads == found))[0])
                    name = f"link {src[i]} -> {dst[i]}" if loads is load else f"limit {topology.limits[i].name}"
                    fault = f"{name} carries {found} chunks in {rounds} rounds of {room[k]}"
                    raise VerificationError(fault, f"steps[{t}]")
                if found:
                    busiest = max(busiest, Fraction(found, room[k] * rounds))
    return busiest


def _spread(listed: _Listed, starts: np.ndarray, mask: np.ndarray, *, reverse: bool) -> None:
    """Follow copies from the start of each listed chunk to all ranks that want it.

    Reductions are followed backwards in time: there each rank receives once.
    """
    schedule, ranks = listed.schedule, listed.schedule.topology.ranks
    step, row, chunk = schedule.step[mask], listed.row[mask], schedule.chunk[mask]
    src, dst = listed.src[mask], listed.dst[mask]
    time = step
    if reverse:
        src, dst, time = dst, src, schedule.step_count - 1 - step
    held = np.zeros((listed.count, ranks), bool)
    held[np.arange(len(held)), starts] = True
    order = np.argsort(time, kind="stable")
    bounds = np.searchsorted(time[order], np.arange(schedule.step_count + 1))
    for t in range(schedule.step_count):
        now = order[bounds[t] : bounds[t + 1]]
        place = f"steps[{schedule.step_count - 1 - t if reverse else t}]"
        bad = now[~held[row[now], src[now]]]
        if len(bad):
            i = bad[0]
            early = f"rank {src[i]} sends chunk {chunk[i]} before it has it"
            late = f"rank {src[i]} adds its part to chunk {chunk[i]} after it was sent on"
            raise VerificationError(late if reverse else early, place)
        if reverse:
            keys = row[now] * ranks + dst[now]
            again = held[row[now], dst[now]].any() or len(np.unique(keys)) < len(keys)
            need(not again, "a contribution is counted twice", place)
        held[row[now], dst[now]] = True

    # an alltoall's chunk is for one rank, any other one for all
    lacking = ~held
    if schedule.collective == "alltoall":
        asked = np.arange(ranks) == np.repeat(listed.wanted % ranks, listed.size)[:, None]
        lacking &= asked
    rows, missing = np.nonzero(lacking)
    if len(rows):
        summed = " being summed" if reverse else ""
        fault = f"rank {missing[0]} ends without chunk {listed.chunk(int(rows[0]))}{summed}"
        raise VerificationError(fault, "$")


def _allreduce(listed: _Listed) -> None:
    """Check that each chunk is summed up a tree to its root, and copied from there after the last sum arrived.

    Where ranks exchange sums instead, so that a chunk has no such root, follow contributions one by one.
    """
    schedule, ranks = listed.schedule, listed.schedule.topology.ranks
    up = schedule.kind == REDUCE

    # the root of a chunk is the rank that never passes its sum on
    passes = np.zeros((listed.count, ranks), bool)
    keys = listed.row[up] * ranks + listed.src[up]
    passes.ravel()[keys] = True
    if len(np.unique(keys)) < len(keys) or ((~passes).sum(axis=1) != 1).any():
        _contributions(listed)
        return
    roots = np.argmin(passes, axis=1)
    final = np.full(len(roots), -1, np.int64)  # the step of the last sum that arrives there
    into = up & (roots[listed.row] == listed.dst)
    np.maximum.at(final, listed.row[into], schedule.step[into])
    early = np.flatnonzero(~up & (schedule.step <= final[listed.row]))
    if len(early):
        fault = f"chunk {schedule.chunk[early[0]]} is copied before it is summed"
        raise VerificationError(fault, f"steps[{schedule.step[early[0]]}]")
    _spread(listed, roots, up, reverse=True)
    _spread(listed, roots, ~up, reverse=False)


def _contributions(listed: _Listed) -> None:
    """Follow which contributions each rank's value of each listed chunk contains, step by step.

    Sends of a step read the state before it; its copies land before its reductions add.
    """
    schedule, ranks, rows = listed.schedule, listed.schedule.topology.ranks, listed.count
    size = rows * ranks * ranks
    need(size <= MOST_CONTRIBUTIONS, f"{size} contributions; at most {MOST_CONTRIBUTIONS} are followed", "chunks")
    held = np.zeros((rows * ranks, ranks), bool)
    held[np.arange(rows * ranks), np.tile(np.arange(ranks), rows)] = True
    order = np.lexsort((schedule.kind, schedule.step))
    bounds = np.searchsorted(schedule.step[order], np.arange(schedule.step_count + 1))
    for t in range(schedule.step_count):
        now = order[bounds[t] : bounds[t + 1]]
        sent = held[listed.row[now] * ranks + listed.src[now]]
        into = listed.row[now] * ranks + listed.dst[now]
        adds = schedule.kind[now] == REDUCE
        copied = into[~adds]
        need(len(np.unique(copied)) == len(copied), "two copies arrive at one rank", f"steps[{t}]")
        held[copied] = sent[~adds]
        targets, at = np.unique(into[adds], return_inverse=True)
        total = held[targets].astype(np.int64)
        np.add.at(total, at, sent[adds])
        need((total <= 1).all(), "a contribution is counted twice", f"steps[{t}]")
        held[targets] = total.astype(bool)
    lacking = np.flatnonzero(~held.all(axis=1))
    if len(lacking):
        row, rank = divmod(int(lacking[0]), ranks)
        raise VerificationError(f"rank {rank} ends without all contributions to chunk {listed.chunk(row)}", "$")
