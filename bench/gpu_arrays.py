"""Parts of the GPU suite that work on the caller's arrays: launch after launch, graphs, beyond 4 GiB.

With `--executor host` the arrays are NumPy's, and what needs a GPU's streams is left out and said so.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

import synth
from bench.gpu_common import Suite
from synth.commands import api
from synth.program.buffer_layout import Layout
from synth.program.program import Program
from synth.runtime import reference_data
from synth.runtime.dtypes import dtype

HOW: dict[str, dict] = {"direct": {}, "packets": {"protocol": "LL"}, "fifo": {"direct": False}}
LAUNCHES = 1000
KIND = dtype("int32")
GIB = 1 << 30


def library(suite: Suite) -> Any:
    """Whose arrays: CuPy's or NumPy's."""
    if suite.executor != "cuda":
        return np
    from synth.runtime.cuda.executor import _cupy

    return _cupy()


def _host(array: Any) -> np.ndarray:
    return array.get() if hasattr(array, "get") else array


def _arrays(suite: Suite, program: Program, elements: int, seed: int) -> tuple[list, list, list]:
    """Random inputs in the host's memory; the same where the executor works; poisoned outputs there."""
    xp, layout = library(suite), Layout(program.collective, program.chunks)  # type: ignore[arg-type]
    given = reference_data.random_inputs(layout, elements, KIND, "sum", seed)
    results = [np.full(len(wanted) * elements, 0x5A5A5A5A, np.int32) for wanted in layout.outputs]
    return given, [xp.asarray(array) for array in given], [xp.asarray(array) for array in results]


def _check(program: Program, given: list, results: list) -> int:
    layout = Layout(program.collective, program.chunks)  # type: ignore[arg-type]
    rows = [_host(array).reshape(len(wanted), -1) for array, wanted in zip(results, layout.outputs, strict=True)]
    return reference_data.check(layout, KIND, "sum", given, rows).elements


def launches(suite: Suite) -> None:
    """1000 launches back to back, in one launch each and as 4 side by side; right at the end, and with new data after
    it."""
    four = "full:4"
    programs = {
        f"{kind} {name}": api.lower(api.baseline(kind, four, name))
        for kind, name in (("ring", "allreduce"), ("direct", "allgather"))
    }
    for (label, program), how, on in itertools.product(programs.items(), HOW, (None, (0, 0, 0, 0))):
        count = 20 if suite.small else LAUNCHES
        words: dict[str, Any] = {"ranks_on": on} if on else {}
        elements = back_to_back(suite, program, 501, count, **words, **HOW[how])
        name = f"{label} {how}, {'4 launches side by side' if on else 'one launch'}"
        suite.row(
            f"back to back: {name}",
            f"{count + 1} launches, {elements} elements compared",
            elements > 0,
            launches=count + 1,
        )


def back_to_back(suite: Suite, program: Program, elements: int, count: int, **words: Any) -> int:
    """Start `count` launches without waiting, compare, and compare one more launch on new data; of `elements` a chunk.
    Return how many elements were compared. Raises SynthError. `words`: options of the executor."""
    given, inputs, outputs = _arrays(suite, program, elements, 1)
    if suite.executor == "host":
        words["threads"] = 1
    ready = synth.prepare(program, inputs, outputs, suite.executor, **words)
    streams = None
    if suite.executor == "cuda" and "ranks_on" in words:
        streams = [library(suite).cuda.Stream(non_blocking=True) for _ in words["ranks_on"]]
    for _ in range(count):
        ready.launch(streams)
    ready.finish(streams)
    compared = _check(program, given, outputs)
    given, inputs, outputs = _arrays(suite, program, elements, 2)
    ready.use(inputs, outputs)
    ready.launch()
    ready.finish()
    return compared + _check(program, given, outputs)


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
        suite.row(
            f"a CUDA graph of 3 launches {how}{', 4 side by side' if on else ''}",
            f"{elements} elements compared",
            elements > 0,
        )


def large(suite: Suite) -> None:
    """Buffers beyond 4 GiB: of 2 ranks, each output 5 GiB; every byte is compared, on the GPU."""
    xp, program = library(suite), api.lower(api.baseline("direct", "full:2", "allgather"))
    part = (5 * GIB // 2 if not suite.small else 3 << 20) + 13
    if suite.executor == "cuda":
        free = xp.cuda.runtime.memGetInfo()[0]
        if free < 12 * part:
            suite.row(
                "beyond 4 GiB",
                f"not run: {free / GIB:.0f} GiB of the GPU's memory are free, {12 * part / GIB:.0f} are needed",
                None,
            )
            return
    for how in HOW:
        if how == "packets" and not suite.small:
            continue  # flags would double what is moved, and say nothing about offsets that FIFOs do not
        inputs = [(xp.arange(part, dtype=xp.uint32) >> 8 * rank).astype(xp.uint8) for rank in range(2)]
        outputs = [xp.zeros(2 * part, dtype=xp.uint8) for _ in range(2)]
        ready = synth.prepare(program, inputs, outputs, suite.executor, **HOW[how])
        ready.launch()
        ready.finish()
        good = all(
            bool((out[rank * part : (rank + 1) * part] == inputs[rank]).all()) for out in outputs for rank in range(2)
        )
        suite.row(f"outputs of {2 * part / GIB:.2f} GiB, {how}", f"{4 * part} bytes compared", good)
        del ready, inputs, outputs
