"""The GPU bench: what one GPU reaches with 8 virtual ranks, beside its own memory copy, and the targets.

python -m bench.gpu [--executor cuda|host] [--small] [--only WORD] [-o FILE.json]      (make bench-gpu)

Direct allgather and ring allreduce, as bytes that must move / time, against a device-to-device copy; time per dependent
hop with packets and through FIFOs; every point of the DGX-1's frontiers at 1 KiB .. 1 GiB with the ring beside. All
ranks share one GPU's memory: none of these times says anything about links. `--executor host` rehearses it on CPU
threads at small sizes; its figures mean nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import lcm
from statistics import linear_regression
from time import perf_counter
from typing import Any

from bench.gpu_common import Suite, build, compared, frontier, group, known, library, start
from synth.commands import api
from synth.model.schedule import Schedule
from synth.program.program import Block, Gpu, Op, Program, Span
from synth.runtime.benchmark.document import Measured
from synth.runtime.kernel import sources

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
CHECKED = 64 * MIB  # sizes up to which every element of what is timed is compared with the definition
INSTANCES = (1, 4, 16)
COPIES = 20  # copies that are timed together
CHAINS = (2, 4, 8, 16, 32)
GOALS = {"allgather": 0.85, "allreduce": 0.70, "LL": 2.0, "FIFO": 4.0}


def mandatory(schedule: Schedule, size: int, in_place: bool) -> int:
    """Bytes that `schedule` must read and write: of each copy its source and its result, of each sum both operands and
    its result, and out of place the copies of what a rank keeps. What FIFOs add is not counted."""
    task = schedule.collective
    chunk = size * task.unit_share / schedule.chunks
    moved = sum(3 if send.kind == "reduce" else 2 for step in schedule.steps for send in step.sends)
    if not in_place and not task.combining:
        moved += 2 * schedule.chunks * sum(len(pre & post) for pre, post in zip(task.pre, task.post, strict=True))
    return int(moved * chunk)


def _bench(suite: Suite, source: Any, sizes: Sequence[int], **words: Any) -> list[Measured]:
    """Times of all sizes: the checked ones and the others, on a GPU without fetching what came out."""
    words = {"repeats": 3 if suite.small else 20, "warmup": 1 if suite.small else 3} | words
    if suite.executor == "host":
        words |= {"threads": 1}
    small, large = [s for s in sizes if s <= CHECKED], [s for s in sizes if s > CHECKED]
    found = [api.bench(source, small, suite.executor, check=True, **words)] if small else []
    words |= {"fetch": False} if suite.executor == "cuda" else {}
    return found + ([api.bench(source, large, suite.executor, check=False, **words)] if large else [])


def copy_rate(suite: Suite, size: int) -> float:
    """Bytes a second that plain copies of `size` bytes read and write: the GPU's, or on CPU threads NumPy's."""
    arrays = library(suite)
    source, target = arrays.zeros(size, "u1"), arrays.zeros(size, "u1")
    for _ in range(2):  # the second time counts
        begin = perf_counter()
        for _ in range(COPIES):
            target[:] = source
        if suite.executor == "cuda":
            arrays.cuda.Device().synchronize()
    return 2 * size * COPIES / (perf_counter() - begin)


def against_copy(suite: Suite, algorithm: str, collective: str) -> None:
    """Bytes that must move / time against those of a copy, by size and instances; the largest sizes are compared
    too."""
    schedule, best = known(algorithm, f"full:{suite.ranks}", collective), 0.0
    sizes = (64 * KIB,) if suite.small else (MIB, 16 * MIB, 256 * MIB, GIB)
    for instances in INSTANCES[:1] if suite.small else INSTANCES:
        for measured in _bench(suite, schedule, sizes, instances=instances):
            copies = {size: copy_rate(suite, suite.ranks * size) for size in {row.size for row in measured.rows}}
            for row in measured.rows:
                rate = mandatory(schedule, row.size, row.in_place) / row.median
                share = rate / copies[row.size]
                best = max(best, share if row.size >= 256 * MIB else 0)
                how = f"{instances} instance{'s' if instances > 1 else ''}{', in place' if row.in_place else ''}"
                name, said = f"{algorithm} {collective} {row.size} B, {how}", f"{100 * share:5.1f}% of the copy"
                values = {"seconds": row.median, "least": row.seconds[0], "most": row.seconds[-1]}
                values |= {"right": row.right, "share": share, "instances": instances}
                suite.row(name, f"{rate / 1e9:8.1f} GB/s moved, {said}", None, **values)
    if not suite.small:  # the size of the goal, compared with the definition
        each = 4 * api.lower(schedule).loop_chunks
        done = api.run(schedule, executor=suite.executor, size=256 * MIB // each * each, bound=False)
        suite.row(f"{algorithm} {collective} 256 MiB", f"{compared(done)} elements compared", compared(done) > 0)
    goal = GOALS[collective]
    found = f"{100 * best:.1f}% at best from 256 MiB on; the goal is {100 * goal:.0f}%"
    good = None if suite.small else best >= goal
    suite.row(f"GOAL: {algorithm} {collective} against the copy", "only rehearsed" if suite.small else found, good)


def chain(ranks: int) -> Program:
    """A broadcast from rank to rank: `ranks` - 1 hops, each waits for the one before."""

    def ops(r: int) -> tuple[Op, ...]:
        if r == 0:
            return (Op("s", (Span("i", 0),)), Op("cpy", (Span("i", 0),), (Span("o", 0),)))
        return (Op("rcs" if r < ranks - 1 else "r", (), (Span("o", 0),)),)

    blocks = [Block(r + 1 if r < ranks - 1 else None, r - 1 if r else None, 0, ops(r)) for r in range(ranks)]
    gpus = tuple(Gpu(r, 0 if r else 1, 1, 0, (block,)) for r, block in enumerate(blocks))
    return Program(f"chain-{ranks}", api.collective("broadcast", ranks), 1, gpus)


def hops(suite: Suite) -> None:
    """Microseconds a dependent hop of 8 bytes: the slope of the time over the hops, by least squares."""
    for name, protocol, words in (("LL", "LL", {}), ("FIFO", "Simple", {"direct": False}), ("direct", "Simple", {})):
        points = []
        for ranks in CHAINS[:3] if suite.small else CHAINS:
            program = replace(chain(ranks), protocol=protocol)
            measured = _bench(suite, program, (8,), dtype="float64", **words)[0]
            points.append((ranks - 1, 1e6 * measured.rows[0].median))
        slope = linear_regression(*zip(*points, strict=True)).slope
        goal = GOALS.get(name)
        good = None if suite.small or goal is None else slope <= goal
        said = f"{slope:.2f} us{f'; the goal is {goal:g}' if goal else ''}{' (only rehearsed)' if suite.small else ''}"
        suite.row(f"{'GOAL: ' if goal else ''}per hop, {name}", said, good, microseconds=slope, points=points)


def points(suite: Suite, name: str) -> None:
    """Every point of a DGX-1's frontier, the ring beside, at every size."""
    found = frontier(name)
    schedules = (api.baseline("ring", "dgx1", name), *(point.schedule for point in found.points))
    each = 4 * lcm(*(api.lower(schedule).loop_chunks for schedule in schedules))  # the sizes that all of them divide
    sizes = (4 * KIB, 64 * KIB) if suite.small else tuple(KIB * 4**k for k in range(11))
    rounded = [max(each, size // each * each) for size in sizes]
    for measured in _bench(suite, found, rounded, baselines=("ring",)):
        doc = measured.to_json()
        suite.more.setdefault("measured", []).append(doc)
        for size in sorted({row["size"] for row in doc["rows"]}):
            here = [row for row in doc["rows"] if row["size"] == size and not row["in_place"]]
            said = ", ".join(f"{doc['programs'][row['program']]['label']} {1e6 * row['seconds']:.1f}" for row in here)
            suite.row(f"DGX-1 {name} {size} B, us", said, all(row["right"] is not False for row in here))


def main(arguments: Sequence[str]) -> int:
    suite, given = start(__doc__, "gpu", arguments)
    wanted = [group(name, feature) for name in ("copy", "f32") for feature in sources.FEATURES]
    sections: dict[str, Callable[[], None]] = {
        "kernels": partial(build, suite, wanted),
        "copy allgather": partial(against_copy, suite, "direct", "allgather"),
        "copy allreduce": partial(against_copy, suite, "ring", "allreduce"),
        "hops": partial(hops, suite),
        "points allgather": partial(points, suite, "allgather"),
        "points allreduce": partial(points, suite, "allreduce"),
    }
    return suite.run(sections, given.only, given.output)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
