"""Helpers of every measurement: the machine, the cost of a subprocess, and the folder of the results.

CPU is user + system seconds, of a command with all the helper processes it waited for. Wall times depend on what else
the machine does; CPU seconds less so.
"""

from __future__ import annotations

import json
import os
import platform
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results"
LIBRARIES = ("ccl-synth", "z3-solver", "python-sat", "ortools", "scipy", "numpy", "networkx")


def where() -> dict:
    """The machine, the versions, the commit and the date of a measurement."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "libraries": {name: metadata.version(name) for name in LIBRARIES},
        "commit": commit(),
        "changed": bool(_git("status", "--porcelain", "--untracked-files=no", "--", "synth")),
        "date": datetime.now(UTC).date().isoformat(),
    }


def commit() -> str:
    """Return the commit of this checkout; "" where there is none."""
    return _git("rev-parse", "--short=12", "HEAD")


def _cpu_model() -> str:
    about = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*:\s*(.+)$", about.read_text() if about.exists() else "", re.MULTILINE)
    return found.group(1).strip() if found else platform.processor() or platform.machine()


def _git(*arguments: str) -> str:
    try:
        said = subprocess.check_output(["git", *arguments], cwd=ROOT, text=True, stderr=subprocess.DEVNULL)
        return said.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


@dataclass(frozen=True)
class Run:
    """A finished command: exit code, output, wall and CPU seconds."""

    code: int
    stdout: str
    stderr: str
    wall: float
    cpu: float


def command(arguments: Sequence[str], timeout: float | None = None) -> Run:
    """Runs a command with nothing remembered from earlier ones, nor known from the catalog in the package.

    Exit code -1 means that it was stopped at `timeout`.
    """
    with tempfile.TemporaryDirectory(prefix="synth-bench-") as empty:
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        env = {**os.environ, "SYNTH_CACHE": empty, "SYNTH_FRESH": "1"}
        pipe = subprocess.PIPE
        process = subprocess.Popen(arguments, stdout=pipe, stderr=pipe, text=True, env=env, cwd=ROOT)
        try:
            out, err = process.communicate(timeout=timeout)
            code = process.returncode
        except subprocess.TimeoutExpired:
            (out, err), code = _interrupted(process), -1
        wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return Run(code, out, err, wall, cpu)


def _interrupted(process: subprocess.Popen) -> tuple[str, str]:
    """As Ctrl-C does, so that helper processes are waited for and counted; killed when that is not heard."""
    process.send_signal(signal.SIGINT)
    try:
        return process.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()


def synth(*arguments: str, timeout: float | None = None) -> Run:
    """Runs the command line of this environment."""
    return command([str(Path(sys.executable).with_name("synth")), *arguments], timeout)


def seconds(value: float) -> str:
    """Two significant digits below 10 s, whole seconds above 100."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2g}" if value >= 0.1 else f"{value:.4f}"


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; columns whose head ends with ``>`` are aligned to the right."""
    names = [name.rstrip(">") for name in head]
    rule = ["---:" if name.endswith(">") else "---" for name in head]
    lines = [names, rule, *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def setting(at: dict) -> str:
    """One sentence on where a measurement was made."""
    versions = ", ".join(f"{name} {version}" for name, version in at["libraries"].items())
    changed = " with uncommitted changes" if at["changed"] else ""
    return (
        f"{at['cpu']}, {at['cores']} cores, Python {at['python']}, {versions}; commit {at['commit']}{changed}, "
        f"{at['date']}."
    )


def keep(document: dict, table: str, path: Path) -> None:
    """Writes the JSON to `path` and its table beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text(table, encoding="utf-8")
