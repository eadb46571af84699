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

from bench import gpu_arrays
from bench.gpu_arrays import HOW
from bench.gpu_common import Suite, build, frontier, group, start
from synth.commands import api
from synth.encodings.multicast_pipelining import MulticastPipelining
from synth.errors import SynthError
from synth.program.checked_lowering import onesided
from synth.program.lowering_options import LoweringOptions
from synth.program.program import Block, Gpu, Op, Program, Span
from synth.runtime.dtypes import DTYPES, OPERATORS
from synth.runtime.kernel import sources
from synth.runtime.reference.deadlock_diagnosis import DeadlockError

TYPES, OPS = tuple(kind.name for kind in DTYPES), OPERATORS
COLLECTIVES = (
    ("binomial", "broadcast"), ("binomial", "reduce"), ("ring", "allgather"), ("ring", "reduce-scatter"),
    ("ring", "allreduce"), ("tree", "allreduce"), ("recursive-doubling", "allreduce"), ("direct", "allgather"),
    ("direct", "alltoall"), ("direct", "gather"), ("direct", "scatter"), ("direct", "sendrecv"),
    ("direct", "alltonext"), ("direct", "allreduce"),
)  # fmt: skip
ODD = 61  # elements of a chunk: divisible by nothing
ELEMENTS = 9  # of a chunk of a plan
MOST = 10_000_000  # elements of a rank's buffer


def _right(suite: Suite, name: str, cases: Sequence[tuple[str, Program, dict]]) -> None:
    """One row for many runs: how many were right, and the first that was not."""
    elements, wrong = 0, ""
    count = 0
    for label, program, words in cases:
        count += 1
        try:
            done = api.run(program, executor=suite.executor, **words)
            elements += done.checked.elements if done.checked else 0
        except SynthError as error:
            wrong = wrong or f"; first wrong: {label}: {error}"
    suite.row(
        name,
        f"{count} runs, {elements} elements compared{wrong}",
        not wrong and count > 0,
        runs=count,
        elements=elements,
    )


def _bytes(program: Program, elements: int, size: int = 4) -> int:
    return program.loop_chunks * elements * size


def types(suite: Suite) -> None:
    """Every type × operator × protocol of a sum that goes round, in place and not."""
    program, made = suite.program("ring", "allreduce"), {kind.name: kind for kind in DTYPES}
    names = ("float32", "bfloat16", "int8") if suite.small else TYPES
    for name, how in itertools.product(names, HOW):
        cases = [
            (
                f"{name} {op} {how}",
                program,
                {"dtype": name, "op": op, "size": _bytes(program, ODD, made[name].size), "in_place": inside} | HOW[how],
            )
            for op, inside in itertools.product(OPS, (False, True))
        ]
        _right(suite, f"ring allreduce {name} {how}: {', '.join(OPS)}", cases)


def collectives(suite: Suite) -> None:
    """Every collective of the baselines × protocol."""
    for how in HOW:
        cases = []
        for algorithm, name in COLLECTIVES[::3] if suite.small else COLLECTIVES:
            program = suite.program(algorithm, name)
            for kind in ("uint8",) if suite.small else ("uint8", "float64"):
                size = _bytes(program, ODD, 1 if kind == "uint8" else 8)
                cases.append((f"{algorithm} {name} {kind} {how}", program, {"dtype": kind, "size": size} | HOW[how]))
        _right(suite, f"collectives {how}", cases)


def sizes(suite: Suite) -> None:
    """No element, one, few, and numbers that nothing divides."""
    counts = (0, 1, 3, 1021) if suite.small else (0, 1, 2, 3, 7, 31, 1021, 65_537, 1_048_583)
    for how in HOW:
        cases = [
            (
                f"{program.name} {count} {how}",
                program,
                {"dtype": kind, "size": _bytes(program, count, width)} | HOW[how],
            )
            for program in (suite.program("ring", "allreduce"), suite.program("direct", "allgather"))
            for count, (kind, width) in itertools.product(counts, (("float16", 2), ("int32", 4)))
            if count * program.loop_chunks <= MOST
        ]
        _right(suite, f"sizes {how}: {', '.join(map(str, counts))} elements a chunk", cases)


def frontiers(suite: Suite) -> None:
    """Every point of the DGX-1's frontiers: right, and its logical time the reference executor's."""
    for name in ("allgather", "allreduce"):
        found = frontier(name)
        cases, times = [], []
        for k, point in enumerate(found.points, 1):
            program = api.lower(point.schedule)
            cases += [(f"point {k} {how}", program, {"size": _bytes(program, 5)} | HOW[how]) for how in HOW]
            for elements in (3,) if suite.small else (1, 3, 1000, 30_000):
                times.append((program, _bytes(program, elements)))
        _right(suite, f"DGX-1 {name}: {len(found.points)} points", cases)
        apart = []
        for program, size in times:
            model = api.run(program, size=size, topology="dgx1", data=False, bound=False).execution.picoseconds
            kept = api.run(
                program, executor=suite.executor, size=size, topology="dgx1", clock="logical", bound=False
            ).execution.picoseconds
            apart += [] if kept == model else [f"{program.name} {size} B: {kept} ps, not {model}"]
        suite.row(
            f"DGX-1 {name}: logical clock against the reference",
            f"{len(times)} runs{'; ' if apart else ''}{'; '.join(apart[:2])}",
            not apart,
        )


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
        repeats = 20 if suite.small else gpu_arrays.LAUNCHES
        return repeats + 1, gpu_arrays.back_to_back(suite, program, ELEMENTS, repeats)
    compared = 0
    for seed in range(3):
        done = api.run(program, executor=suite.executor, size=_bytes(program, ELEMENTS), in_place=True, seed=seed)
        compared += done.checked.elements if done.checked else 0
    return 3, compared


def plans(suite: Suite) -> None:
    """One-sided programs of the DGX-1's frontiers and through switches, launched many times."""
    count, runs, elements, wrong = 0, 0, 0, ""
    for name, program in _plans():
        count += 1
        try:
            launched, compared = _launched(suite, program)
            runs += launched
            elements += compared
        except SynthError as error:
            wrong = wrong or f"; first wrong: {name}: {error}"
        if suite.small and count == 12:
            break
    found = f"{count} plans, {runs} launches, {elements} elements compared{wrong}"
    suite.row("MSCCL++ plans", found, not wrong and elements > 0, plans=count, launches=runs, elements=elements)


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
        suite.row(
            f"a deadlock, {'3 launches' if on else 'one launch'}",
            "reported, with its cycle" if found else "not reported",
            found == wanted,
        )
        done = api.run(suite.program("ring", "allreduce"), executor=suite.executor)
        suite.row(
            "the next run after it",
            f"{done.checked.elements if done.checked else 0} elements compared",
            done.checked is not None,
        )


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
        "launches": partial(gpu_arrays.launches, suite),
        "graphs": partial(gpu_arrays.graphs, suite),
        "deadlock": partial(deadlock, suite),
        "large": partial(gpu_arrays.large, suite),
    }
    return suite.run(sections, given.only, given.output)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
