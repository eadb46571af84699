"""One way of lowering one schedule, all the way: analysed, run, timed, written, read back. Used by bench.programs."""

from __future__ import annotations

import importlib
import random
import sys
import time
from dataclasses import replace
from fractions import Fraction
from functools import cache
from types import ModuleType

from bench import measure
from synth import api
from synth.errors import SynthError, UsageError
from synth.export.msccl_xml import read
from synth.export.mscclpp import read as mscclpp_read
from synth.model.collective import Collective
from synth.model.schedule import Schedule
from synth.model.topology import Network
from synth.program import analysis
from synth.program.analysis.analysis import modes
from synth.program.buffer_layout import Layout
from synth.program.checked_lowering import lower, onesided
from synth.program.lowering_options import LoweringOptions
from synth.program.program import Program
from synth.runtime import reference_data
from synth.runtime.dtypes import dtype
from synth.runtime.reference.executor import Reference
from synth.scale.time_bound import time_bound

TYPE, ELEMENTS = "int32", 2
SIZE = 1 << 20  # of the timed runs, or the next size that divides


def made(schedule: Schedule, runtime: str, protocol: str, instances: int) -> list[Program]:
    """The programs for one way of lowering: one for both kinds of call, or one for each."""
    if runtime != "mscclpp":
        return [lower(schedule, LoweringOptions(runtime=runtime, protocol=protocol, instances=instances))]
    places = ("out", "in") if Layout(schedule.collective, 1).can_be_in_place else ("out",)
    return [
        onesided(schedule, LoweringOptions(protocol=protocol, instances=instances, in_place=place)) for place in places
    ]


def written(program: Program, runtime: str, topology: str) -> list[str]:
    """The files of a program, each accepted by the strict reader and read back as the program. Raises AssertionError
    where not."""
    roots = program.collective.roots if program.collective else ()
    to = "mscclpp" if runtime == "mscclpp" else "msccl-xml"
    exported = api.export_program(
        program, to, runtime=runtime, topology=topology, assume_root=roots[0] if roots else None
    )
    for _, content in exported.files:
        if runtime == "mscclpp":
            tests_own("strict_mscclpp").check(content)
            same = mscclpp_read.read(content, task=program.collective) == program
        else:
            tests_own("strict_msccl").load(content, runtime)
            back = read.read(
                content, "f.xml", program.collective if 'coll="custom"' in content else None, runtime=runtime
            )
            changes = {"name": back.name, "max_bytes": back.max_bytes}  # names are shortened; msccl gets a largest size
            changes |= {"in_place": back.in_place} if len(exported.files) > 1 else {}
            same = back == replace(program, **changes)
        if not same:
            raise AssertionError("the file is read back as another program")
    return [content for _, content in exported.files]


def tests_own(name: str) -> ModuleType:
    """A module of the tests: the strict readers share no code with the exporters, the known algorithms none with
    lowering."""
    folder = str(measure.ROOT / "tests")
    sys.path[:0] = [] if folder in sys.path else [folder]
    return importlib.import_module(name)


def right(program: Program, runtime: str, network: Network, seed: int) -> None:
    """Runs the program in every mode, whole and in the finest parts. Raises SynthError where anything is wrong."""
    layout = Layout(program.collective, program.chunks)  # type: ignore[arg-type]
    for mode in modes(program):
        for part in (None, 1):
            given = reference_data.random_inputs(layout, ELEMENTS, dtype(TYPE), "sum", seed)
            executor = Reference(network=network, runtime=runtime, part=part, delays=seed + (part or 0))
            done = executor.run(program, given, dtype=TYPE, in_place=mode == "in")
            reference_data.check(layout, dtype(TYPE), "sum", given, done.outputs or ())


@cache
def bound(network: Network, task: Collective, size: int) -> Fraction:
    """The certified bound on any program's time, ps."""
    return time_bound(network.as_topology(), task, [size]).rows[0].microseconds * 10**6


def ratio(program: Program, runtime: str, network: Network) -> float:
    """Time over the certified bound at about `SIZE` bytes. Raises AssertionError below 1."""
    each = program.loop_chunks * 4
    count = -(-SIZE // each)
    spent = (
        Reference(network=network, runtime=runtime).time(program, count, in_place=program.in_place == "in").picoseconds
    )
    least = bound(network, program.collective, count * each)  # type: ignore[arg-type]
    if spent is None or spent < least:
        raise AssertionError(f"{spent} ps, and the bound is {float(least)}")
    return float(spent / least)


def attempt(schedule: Schedule, runtime: str, protocol: str, instances: int, topology: str, seed: str) -> dict:
    """The result of one way of lowering: `outcome` right, refused or wrong, `why`, and figures of a right program."""
    began = time.process_time()
    try:
        programs = made(schedule, runtime, protocol, instances)
        texts = [text for program in programs for text in written(program, runtime, topology)]
    except UsageError as error:
        return {"outcome": "wrong", "why": f"a way that makes no sense: {error}"}
    except SynthError as error:
        return {"outcome": "refused", "why": str(error)}
    except Exception as error:  # the strict readers' refusals, and whatever nobody thought of
        return {"outcome": "wrong", "why": f"file: {type(error).__name__}: {error}"}
    try:
        for program in programs:
            clean(program, runtime)
            right(program, runtime, schedule.network, random.Random(seed).randrange(10**6))
        most = max(ratio(program, runtime, schedule.network) for program in programs)
    except (SynthError, AssertionError) as error:
        return {"outcome": "wrong", "why": str(error)}
    return {
        "outcome": "right",
        "modes": sorted({mode for program in programs for mode in modes(program)}),
        "ops": programs[0].ops,
        "files": len(texts),
        "bytes": sum(map(len, texts)),
        "ratio": round(most, 4),
        "cpu": round(time.process_time() - began, 2),
    }


def clean(program: Program, runtime: str) -> None:
    """Lint finds nothing, in every mode and at every size. Raises AssertionError with the first finding."""
    report = analysis.check(program, runtime)
    bad = [str(finding) for finding in report.findings if finding.severity != "remark" and finding.rule != "root"]
    if bad or report.safe is not None or report.analysed != modes(program):
        raise AssertionError(f"lint: {[*bad, report.safe, report.analysed][0]}")
