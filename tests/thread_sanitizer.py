"""Programs under ThreadSanitizer: the kernel and a dumped program as a separate executable.

With one thread a block, a reported race is one of the program: accesses that no FIFO and no dependency orders. With
several threads, it may also be one of the kernel, such as a missing barrier or too weak an atomic, even where the
results are right. Packets and direct puts are checked likewise: a packet orders only itself, and a direct put writes
when it is sent.
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
from synth.runtime.slicing import written_out

FLAGS = ("-fsanitize=thread", "-g", "-O1")
KIND = "int32"
RACE = Path(__file__).with_name("race.cpp")
SOURCE = f'#define SYNTH_FEATURE {{}}\n#include "{RACE}"\n'
_SAFE = "int main() { return 0; }\n"


class RaceReport(NamedTuple):
    """The result of a run: `races` reported (a summary of each), `stuck`: blocks waited for ever, `right`: all outputs
    of all launches were right."""

    races: tuple[str, ...]
    stuck: bool
    right: bool


class Executable(NamedTuple):
    """A way to run programs: the `folder` of the kernel's files; with ThreadSanitizer (`watch`) or, faster, without it.

    A run longer than `limit` seconds counts as stuck.
    """

    folder: Path = sources.FOLDER
    watch: bool = True
    limit: float = 300.0


@cache
def missing() -> str | None:
    """Return None where programs can be built and run with ThreadSanitizer, else the reason."""
    if build_host.compiler() is None:
        return build_host.MISSING
    with tempfile.TemporaryDirectory() as work:
        probe = Path(work) / "probe"
        try:
            build_host.build(_SAFE, probe, FLAGS)
        except SynthError as error:
            return f"no ThreadSanitizer here: {error}"
        done = subprocess.run([*_still(), str(probe)], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return None
        return f"ThreadSanitizer does not run here: {(done.stderr.splitlines() or ['no message'])[0]}"


@cache
def _still() -> tuple[str, ...]:
    """Return a command prefix that turns off address randomisation, which ThreadSanitizer may not support."""
    try:
        done = subprocess.run(["setarch", "-R", "true"], capture_output=True, check=False)
    except OSError:
        return ()
    return ("setarch", "-R") if done.returncode == 0 else ()


def build(feature: str = sources.PLAIN, folder: Path = sources.FOLDER, flags: tuple[str, ...] = FLAGS) -> Path:
    """Return the executable built from the kernel's files in `folder`, cached if possible. Raises SynthError."""
    source = SOURCE.format(feature.upper() or 0)
    target = (
        build_host.cache_directory() / f"race-{sources.fingerprint(source, RACE.read_text(), *flags, folder=folder)}"
    )
    if not build_host.is_cached(target):
        build_host.build(source, target, flags, folder)
    return target


WATCHED = Executable()


def find_races(
    program: Program,
    *,
    threads: int,
    elements: int = 9,
    launches: int = 1,
    in_place: bool = False,
    executable: Executable = WATCHED,
    **options: Any,
) -> RaceReport:
    """Run `program` on int32 under ThreadSanitizer, and return the races that it reports.

    `threads`: of each block. `elements`: of a chunk. `launches`: runs one after the other, each with data of its own,
    all of whose outputs are compared. `options`: those of `Host` (protocol LL for packets, direct, clock, ranks_on).
    Without ThreadSanitizer in `executable` no race is reported. Raises SynthError where the program cannot run.
    """
    collective = program.collective
    if collective is None:
        raise SynthError(f"{program.name} does not say which collective it computes")
    kind, chunks = dtype(KIND), program.chunks
    program = written_out(program, elements * kind.size * chunks)
    elements = -(-elements * chunks // program.chunks)
    layout = Layout(collective, program.chunks)
    machine, arena = Host(**{"threads": threads, "timeout": 5.0} | options).load(
        program, elements, kind, in_place=in_place
    )
    given = reference_data.random_inputs(layout, elements, kind, "sum", 0)
    arena.fill(given, layout, len(machine.cut.bounds))
    tables, memory = machine.tables, arena.data or []
    starts = [
        arena.view(r, b, 1).__array_interface__["data"][0] - m.__array_interface__["data"][0]
        for r, m in enumerate(memory)
        for b in "ios"
    ]
    width = memory[0].shape[1] if memory else 0  # elements of a chunk
    launch_rows = []
    for launch in machine.launches:
        ranks = (0, len(memory)) if launch.rank is None else (launch.rank, 1)
        launch_rows.append((launch.first, launch.count, *ranks))
    image = np.zeros(0, np.uint8) if machine.clock is None else machine.clock.image(0, kind.size)
    sizes = [
        len(tables.ops), len(tables.acts), len(tables.terms), len(tables.deps), len(machine.conns),
        machine.fifo.shape[1], len(memory), len(image), len(machine.launches),
    ]  # fmt: skip
    parts = [
        machine.prog,
        np.array(sizes, np.int64),
        tables.blocks,
        tables.ops,
        tables.acts,
        tables.terms,
        machine.deps,
        np.array([m.nbytes for m in memory], np.int64),
        np.array(starts, np.int64),
        np.array([(len(i) * width, len(o) * width) for i, o in zip(layout.inputs, layout.outputs, strict=True)]),
        np.array(launch_rows, np.int64),
        image,
        *memory,
    ]
    with tempfile.TemporaryDirectory() as work:
        dump, out = Path(work) / "dump", Path(work) / "out"
        dump.write_bytes(b"".join(part.tobytes() for part in parts))
        command = [
            *_still(),
            str(build(machine.feature, executable.folder, FLAGS if executable.watch else ())),
            str(dump),
            str(out),
            str(threads),
            str(launches),
        ]
        code, said = _done(command, executable.limit)
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
            right = _right(layout, given, outputs) and not any(line.startswith("wrong in launch") for line in said)
        return RaceReport(races, "stuck" in said, right)


def _done(command: list[str], limit: float) -> tuple[int, list[str]]:
    """Run a command. Returns its exit code (4 after `limit` seconds) and the lines of its stderr."""
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
