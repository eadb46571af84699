"""The GPU suite: is every element right, whatever the type, operator, protocol, collective, size, stream and launch.

python -m bench.gpu_checks [--executor cuda|host] [--small] [--only WORD] [-o FILE.json]      (make test-gpu)

8 virtual ranks on one GPU, also as 4 launches side by side; 1000 launches back to back; after an aborted launch; in a
CUDA graph; beyond 4 GiB; logical time against the reference executor; MSCCL++ plans of the frontiers of a DGX-1 and
through switches. Ends with 1 if anything is wrong. `--executor host` rehearses it all on CPU threads, at small sizes.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

import synth
from bench.gpu_common import Suite, build, compared, frontier, group, library, start
from synth.commands import api
from synth.encodings.multicast_pipelining import MulticastPipelining
from synth.errors import SynthError
from synth.program.buffer_layout import Layout
from synth.program.checked_lowering import onesided
from synth.program.lowering_options import LoweringOptions
from synth.program.program import Block, Gpu, Op, Program, Span
from synth.runtime import reference_data
from synth.runtime.dtypes import DTYPES, OPERATORS, dtype
from synth.runtime.kernel import sources
from synth.runtime.reference.deadlock_diagnosis import DeadlockError

HOW: dict[str, dict] = {"direct": {}, "packets": {"protocol": "LL"}, "fifo": {"direct": False}}
COLLECTIVES = (
    ("binomial", "broadcast"), ("binomial", "reduce"), ("ring", "allgather"), ("ring", "reduce-scatter"),
    ("ring", "allreduce"), ("tree", "allreduce"), ("recursive-doubling", "allreduce"), ("direct", "allgather"),
    ("direct", "alltoall"), ("direct", "gather"), ("direct", "scatter"), ("direct", "sendrecv"),
    ("direct", "alltonext"), ("direct", "allreduce"),
)  # fmt: skip
ODD = 61  # elements of a chunk: divisible by nothing
ELEMENTS = 9  # of a chunk of a plan
MOST = 10_000_000  # elements of a rank's buffer
LAUNCHES = 1000
KIND = dtype("int32")
GIB = 1 << 30


def _right(suite: Suite, name: str, cases: Sequence[tuple[str, Program, dict]]) -> None:
    """A row for many runs in each of the ways to send: how many were right, and the first that was not."""
    for how, more in HOW.items():
        elements, wrong = 0, ""
        for label, program, words in cases:
            try:
                elements += compared(api.run(program, executor=suite.executor, **words, **more))
            except SynthError as error:
                wrong = wrong or f"; first wrong: {label}: {error}"
        found = f"{len(cases)} runs, {elements} elements compared{wrong}"
        suite.row(f"{name}, {how}", found, not wrong and len(cases) > 0, runs=len(cases), elements=elements)


def _bytes(program: Program, elements: int, size: int = 4) -> int:
    return program.loop_chunks * elements * size


def types(suite: Suite) -> None:
    """Every type × operator × protocol of a sum that goes round, in place and not."""
    program = suite.program("ring", "allreduce")
    kinds = [kind for kind in DTYPES if not suite.small or kind.name in ("float32", "bfloat16", "int8")]
    for kind in kinds:
        cases = []
        for op, inside in itertools.product(OPERATORS, (False, True)):
            words = {"dtype": kind.name, "op": op, "size": _bytes(program, ODD, kind.size), "in_place": inside}
            cases.append((op, program, words))
        _right(suite, f"ring allreduce {kind.name}: {', '.join(OPERATORS)}", cases)


def collectives(suite: Suite) -> None:
    """Every collective of the baselines × protocol."""
    cases = []
    for algorithm, name in COLLECTIVES[::3] if suite.small else COLLECTIVES:
        program = suite.program(algorithm, name)
        for kind in ("uint8",) if suite.small else ("uint8", "float64"):
            size = _bytes(program, ODD, dtype(kind).size)
            cases.append((f"{algorithm} {name} {kind}", program, {"dtype": kind, "size": size}))
    _right(suite, "collectives", cases)


def sizes(suite: Suite) -> None:
    """No element, one, few, and numbers that nothing divides."""
    counts = (0, 1, 3, 1021) if suite.small else (0, 1, 2, 3, 7, 31, 1021, 65_537, 1_048_583)
    cases = []
    for program in (suite.program("ring", "allreduce"), suite.program("direct", "allgather")):
        for count, kind in itertools.product(counts, ("float16", "int32")):
            words = {"dtype": kind, "size": _bytes(program, count, dtype(kind).size)}
            if count * program.loop_chunks <= MOST:
                cases.append((f"{program.name} {count}", program, words))
    _right(suite, f"sizes: {', '.join(map(str, counts))} elements a chunk", cases)


def frontiers(suite: Suite) -> None:
    """Every point of the DGX-1's frontiers: right, and its logical time the reference executor's."""
    for name in ("allgather", "allreduce"):
        found = frontier(name)
        cases, times = [], []
        for k, point in enumerate(found.points, 1):
            program = api.lower(point.schedule)
            cases.append((f"point {k}", program, {"size": _bytes(program, 5)}))
            for elements in (3,) if suite.small else (1, 3, 1000, 30_000):
                times.append((program, _bytes(program, elements)))
        _right(suite, f"DGX-1 {name}: {len(found.points)} points", cases)
        apart = []
        for program, size in times:
            words = {"size": size, "topology": "dgx1", "bound": False}
            model = api.run(program, data=False, **words).execution.picoseconds
            kept = api.run(program, executor=suite.executor, clock="logical", **words).execution.picoseconds
            apart += [] if kept == model else [f"; {program.name} {size} B: {kept} ps, not {model}"]
        found = f"{len(times)} runs{''.join(apart[:2])}"
        suite.row(f"DGX-1 {name}: logical clock against the reference", found, not apart)


def _plans() -> Iterator[tuple[str, Program]]:
    """Yield sums through switches and the points of the DGX-1's frontiers as one-sided programs, with their words."""
    # Sums and stores through a multicast address, as NVLS does them.
    network = api.topology("switch:8:multicast=through").multicast_network()
    for size in (4096, 1 << 20):
        schedule = MulticastPipelining(network, api.collective("allreduce", 8)).plain((size,), 16)
        yield f"allreduce through switches, planned for {size} B", onesided(schedule)
    for name in ("allgather", "allreduce"):
        for k, point in enumerate(frontier(name).points, 1):
            for channels, protocol, place in itertools.product(("memory", "port"), ("Simple", "LL"), ("out", "in")):
                ranks = point.schedule.collective.ranks
                nodes = [0] * ranks if channels == "memory" else list(range(ranks))
                options = LoweringOptions(protocol=protocol, in_place=place, nodes=nodes)
                yield f"{name} point {k} {channels} {protocol} {place}", onesided(point.schedule, options)


def _launched(suite: Suite, program: Program) -> tuple[int, int]:
    """Launches of a program, and elements compared: out of place 1000 back to back, compared at the end and once more
    on new data; in place three runs, each compared. Raises SynthError."""
    if program.in_place != "in":
        repeats = 20 if suite.small else LAUNCHES
        return repeats + 1, back_to_back(suite, program, ELEMENTS, repeats)
    words = {"executor": suite.executor, "size": _bytes(program, ELEMENTS), "in_place": True}
    return 3, sum(compared(api.run(program, seed=seed, **words)) for seed in range(3))


def plans(suite: Suite) -> None:
    """One-sided programs of the DGX-1's frontiers and through switches, launched many times."""
    made = list(itertools.islice(_plans(), 4 if suite.small else None))
    runs, elements, wrong = 0, 0, ""
    for name, program in made:
        try:
            launched, found = _launched(suite, program)
            runs, elements = runs + launched, elements + found
        except SynthError as error:
            wrong = wrong or f"; first wrong: {name}: {error}"
    found = f"{len(made)} plans, {runs} launches, {elements} elements compared{wrong}"
    suite.row("MSCCL++ plans", found, not wrong and elements > 0, plans=len(made), launches=runs, elements=elements)


def stuck() -> Program:
    """Three ranks that all send more than their connections hold before they receive."""
    ops = (*(Op("s", (Span("i", c),)) for c in range(9)), *(Op("r", (), (Span("o", c),)) for c in range(9)))
    gpus = tuple(Gpu(r, 9, 9, 0, (Block((r + 1) % 3, (r - 1) % 3, 0, ops),)) for r in range(3))
    return Program("all-send-first", api.collective("sendrecv", 3), 9, gpus)


def deadlock(suite: Suite) -> None:
    """A deadlock is reported as the reference executor reports it, and the process continues."""
    try:
        api.run(stuck(), size=36)
    except DeadlockError as error:
        wanted = error.cycle
    for on in (None, (0, 0, 0)):
        try:
            api.run(stuck(), executor=suite.executor, size=36, timeout=0.5, ranks_on=on)
            found = None
        except DeadlockError as error:
            found = error.cycle
        said = "reported, with its cycle" if found else "not reported"
        suite.row(f"a deadlock, {'3 launches' if on else 'one launch'}", said, found == wanted)
        elements = compared(api.run(suite.program("ring", "allreduce"), executor=suite.executor))
        suite.row("the next run after it", f"{elements} elements compared", elements > 0)


# ---------------------------------------------------------------- on the caller's arrays


def _arrays(suite: Suite, program: Program, elements: int, seed: int) -> tuple[list, list, list]:
    """Random inputs in the host's memory; the same where the executor works; poisoned outputs there."""
    xp, layout = library(suite), Layout(program.collective, program.chunks)  # type: ignore[arg-type]
    given = reference_data.random_inputs(layout, elements, KIND, "sum", seed)
    results = [np.full(len(wanted) * elements, 0x5A5A5A5A, np.int32) for wanted in layout.outputs]
    return given, [xp.asarray(array) for array in given], [xp.asarray(array) for array in results]


def _check(program: Program, given: list, results: list) -> int:
    layout = Layout(program.collective, program.chunks)  # type: ignore[arg-type]
    rows = []
    for array, wanted in zip(results, layout.outputs, strict=True):
        here = array.get() if hasattr(array, "get") else array
        rows.append(here.reshape(len(wanted), -1))
    return reference_data.check(layout, KIND, "sum", given, rows).elements


def launches(suite: Suite) -> None:
    """1000 launches back to back, in one launch each and as 4 side by side; right at the end, and with new data after
    it."""
    kinds = (("ring", "allreduce"), ("direct", "allgather"))
    for (kind, collective), how, on in itertools.product(kinds, HOW, (None, (0, 0, 0, 0))):
        program = api.lower(api.baseline(kind, "full:4", collective))
        count = 20 if suite.small else LAUNCHES
        elements = back_to_back(suite, program, 501, count, **({"ranks_on": on} if on else {}), **HOW[how])
        name = f"{kind} {collective} {how}, {'4 launches side by side' if on else 'one launch'}"
        found = f"{count + 1} launches, {elements} elements compared"
        suite.row(f"back to back: {name}", found, elements > 0, launches=count + 1)


def back_to_back(suite: Suite, program: Program, size: int, count: int, **words: Any) -> int:
    """Start `count` launches of `size` elements a chunk without waiting, compare, and compare one more launch on new
    data. Return how many elements were compared. Raises SynthError. `words`: options of the executor."""
    given, inputs, outputs = _arrays(suite, program, size, 1)
    if suite.executor == "host":
        words["threads"] = 1
    ready = synth.prepare(program, inputs, outputs, suite.executor, **words)
    streams = None
    if suite.executor == "cuda" and "ranks_on" in words:
        streams = [library(suite).cuda.Stream(non_blocking=True) for _ in words["ranks_on"]]
    for _ in range(count):
        ready.launch(streams)
    ready.finish(streams)
    elements = _check(program, given, outputs)
    given, inputs, outputs = _arrays(suite, program, size, 2)
    ready.use(inputs, outputs)
    ready.launch()
    ready.finish()
    return elements + _check(program, given, outputs)


def graphs(suite: Suite) -> None:
    """Captured in a CUDA graph, in one launch and as 4 on streams of their own; replayed on new data."""
    if suite.executor != "cuda":
        suite.row("CUDA graphs", "not run: the host executor", None)
        return
    cupy, program = library(suite), api.lower(api.baseline("ring", "full:4", "allreduce"))
    for how, on in itertools.product(HOW, (None, (0, 0, 0, 0))):
        _, inputs, outputs = _arrays(suite, program, 777, 1)
        ready = synth.prepare(program, inputs, outputs, "cuda", **({"ranks_on": on} if on else {}), **HOW[how])
        stream = cupy.cuda.Stream(non_blocking=True)
        stream.begin_capture()
        for _ in range(3):
            ready.launch(stream)
        graph = stream.end_capture()
        elements = 0
        for seed in (2, 3):
            given, fresh, poisoned = _arrays(suite, program, 777, seed)
            for old, new in zip((*inputs, *outputs), (*fresh, *poisoned), strict=True):
                old.reshape(-1)[:] = new.reshape(-1)
            cupy.cuda.Device().synchronize()
            graph.launch(stream)
            ready.finish(stream)
            elements += _check(program, given, outputs)
        name = f"a CUDA graph of 3 launches {how}{', 4 side by side' if on else ''}"
        suite.row(name, f"{elements} elements compared", elements > 0)


def large(suite: Suite) -> None:
    """Buffers beyond 4 GiB: of 2 ranks, each output 5 GiB; every byte is compared, on the GPU."""
    xp, program = library(suite), api.lower(api.baseline("direct", "full:2", "allgather"))
    part = (5 * GIB // 2 if not suite.small else 3 << 20) + 13
    if suite.executor == "cuda":
        free = xp.cuda.runtime.memGetInfo()[0]
        if free < 12 * part:
            found = f"{free / GIB:.0f} GiB of the GPU's memory are free, {12 * part / GIB:.0f} are needed"
            suite.row("beyond 4 GiB", f"not run: {found}", None)
            return
    for how in HOW:
        if how == "packets" and not suite.small:
            continue  # flags would double what is moved, and say nothing about offsets that FIFOs do not
        inputs = [(xp.arange(part, dtype=xp.uint32) >> 8 * rank).astype(xp.uint8) for rank in range(2)]
        outputs = [xp.zeros(2 * part, dtype=xp.uint8) for _ in range(2)]
        ready = synth.prepare(program, inputs, outputs, suite.executor, **HOW[how])
        ready.launch()
        ready.finish()
        halves = itertools.product(outputs, range(2))
        good = all(bool((out[rank * part : (rank + 1) * part] == inputs[rank]).all()) for out, rank in halves)
        suite.row(f"outputs of {2 * part / GIB:.2f} GiB, {how}", f"{4 * part} bytes compared", good)
        del ready, inputs, outputs


def main(arguments: Sequence[str]) -> int:
    suite, given = start(__doc__, "gpu_checks", arguments)
    names = ["copy", *(kind.short for kind in DTYPES)]
    features = (sources.PLAIN, sources.DIRECT, sources.LL)
    wanted = [group(name, feature) for name, feature in itertools.product(names, features)]
    wanted += [group(name, feature) for name in ("copy", "f32") for feature in (sources.CLOCK, sources.PORTS)]
    wanted.append(group("i32", sources.PORTS))
    sections = {
        "kernels": partial(build, suite, wanted),
        "types": partial(types, suite),
        "collectives": partial(collectives, suite),
        "sizes": partial(sizes, suite),
        "frontiers": partial(frontiers, suite),
        "plans": partial(plans, suite),
        "launches": partial(launches, suite),
        "graphs": partial(graphs, suite),
        "deadlock": partial(deadlock, suite),
        "large": partial(large, suite),
    }
    return suite.run(sections, given.only, given.output)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
