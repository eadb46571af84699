"""Programs under ThreadSanitizer: the kernel and a dumped program as an executable of its own.

With one thread a block, what it reports is a race of the program: an order that no FIFO and no dependency makes. With
several, it may also be one of the kernel: a missing barrier, or an atomic that is too weak, though the results be
right. Packets make no order but their own, and what is put directly is written when it is sent: both are looked at
likewise.
"""

from __future__ import annotations

import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from synth.errors import SynthError
from synth.program.buffer_layout import Layout
from synth.program.program import Program
from synth.runtime import reference_data
from synth.runtime.dtypes import dtype
from synth.runtime.host.executor import Host
from synth.runtime.kernel import build_host, sources

FLAGS = ("-fsanitize=thread", "-g", "-O1")
KIND = "int32"
SOURCE = '#define SYNTH_FEATURE {}\n#include "race.cpp"\n'
_SAFE = "int main() { return 0; }\n"


class Raced(NamedTuple):
    """What came out: `races` reported (the first words of each), whether blocks waited for ever, whether every element
    was right."""

    races: tuple[str, ...]
    stuck: bool
    right: bool


@cache
def missing() -> str | None:
    """None where programs can be built and run with ThreadSanitizer, else why not."""
    if build_host.compiler() is None:
        return build_host.MISSING
    with tempfile.TemporaryDirectory() as work:
        probe = Path(work) / "probe"
        try:
            build_host.build(_SAFE, probe, FLAGS)
        except SynthError as error:
            return f"no ThreadSanitizer here: {error}"
        done = subprocess.run([*_still(), str(probe)], capture_output=True, text=True, check=False)
        return (
            None
            if done.returncode == 0
            else f"ThreadSanitizer does not run here: {(done.stderr.splitlines() or ['no message'])[0]}"
        )


@cache
def _still() -> tuple[str, ...]:
    """Addresses where ThreadSanitizer wants them, on kernels that scatter them too far."""
    try:
        done = subprocess.run(["setarch", "-R", "true"], capture_output=True, check=False)
    except OSError:
        return ()
    return ("setarch", "-R") if done.returncode == 0 else ()


def build(feature: str = sources.PLAIN, folder: Path = sources.FOLDER) -> Path:
    """The executable made of the kernel's files in `folder`, from the cache if it is there. Raises SynthError."""
    source = SOURCE.format(feature.upper() or 0)
    target = build_host.cache_directory() / f"race-{sources.fingerprint(source, *FLAGS, folder=folder)}"
    if not target.exists():
        build_host.build(source, target, FLAGS, folder)
    return target


def race(
    program: Program,
    *,
    threads: int,
    elements: int = 9,
    launches: int = 1,
    seed: int = 0,
    folder: Path = sources.FOLDER,
    limit: float = 300.0,
    **options: Any,
) -> Raced:
    """Run `program` on int32 under ThreadSanitizer, `threads` a block, out of place; `options` as those of `Host`:
    protocol LL for packets, direct, clock, ranks_on; `folder`: the kernel's files; what runs longer than
    `limit` seconds is stuck. Raises SynthError where it cannot run."""
    layout, kind = Layout(program.collective, program.chunks) if program.collective else None, dtype(KIND)
    if layout is None:
        raise SynthError(f"{program.name} does not say which collective it computes")
    machine, arena = Host(**{"threads": threads, "timeout": 5.0} | options).load(
        program, elements, kind, in_place=False
    )
    given = reference_data.inputs(layout, elements, kind, "sum", seed)
    arena.fill(given, layout, len(machine.cut.bounds))
    tables, memory = machine.tables, arena.data or []
    starts = [
        arena.view(r, b, 1).__array_interface__["data"][0] - m.__array_interface__["data"][0]
        for r, m in enumerate(memory)
        for b in "ios"
    ]
    image = np.zeros(0, np.uint8) if machine.clock is None else machine.clock.image(0, kind.size)
    sizes = [
        len(tables.ops), len(tables.deps), len(machine.conns), machine.fifo.shape[1], len(memory), len(image),
        len(machine.launches),
    ]  # fmt: skip
    parts = [
        machine.prog,
        np.array(sizes, np.int64),
        tables.blocks,
        tables.ops,
        machine.deps,
        np.array([m.nbytes for m in memory], np.int64),
        np.array(starts, np.int64),
        np.array([(launch.first, launch.count) for launch in machine.launches], np.int64),
        image,
        *memory,
    ]
    with tempfile.TemporaryDirectory() as work:
        dump, out = Path(work) / "dump", Path(work) / "out"
        dump.write_bytes(b"".join(part.tobytes() for part in parts))
        command = [*_still(), str(build(machine.feature, folder)), str(dump), str(out), str(threads), str(launches)]
        code, said = _done(command, limit)
        races = tuple(line.split("SUMMARY: ThreadSanitizer: ")[1] for line in said if "SUMMARY: ThreadSan" in line)
        if code not in (0, 4, 66) or (code == 66 and not races):
            raise SynthError(f"ThreadSanitizer ended with {code}: {(said or ['no message'])[0]}")
        right = False
        if out.exists():
            found = out.read_bytes()
            at = 0
            for m in memory:
                m[...] = np.frombuffer(found[at : at + m.nbytes], m.dtype).reshape(m.shape)
                at += m.nbytes
            outputs = [arena.view(r, "o", len(wanted)) for r, wanted in enumerate(layout.outputs)]
            right = _right(layout, given, outputs)
        return Raced(races, "stuck" in said, right)


def _done(command: list[str], limit: float) -> tuple[int, list[str]]:
    """How a program has ended, and the lines that it said."""
    with tempfile.TemporaryFile("w+") as said:
        try:
            code = subprocess.run(
                command, stderr=said, check=False, env={"TSAN_OPTIONS": "exitcode=66"}, timeout=limit
            ).returncode
        except subprocess.TimeoutExpired:
            code = 4
            said.write("\nstuck\n")
        said.seek(0)
        return code, said.read().splitlines()


def _right(layout: Layout, given: list[np.ndarray], outputs: list[np.ndarray]) -> bool:
    try:
        reference_data.check(layout, dtype(KIND), "sum", given, outputs)
    except SynthError:
        return False
    return True
