"""The commands of README.md and docs/: read from the pages, run in order, their output compared or written anew.

    python -m tests.documented_commands PAGE ...   writes the output of each ``$ `` command into the page

A command is a line of a code block that begins with ``synth ``; behind ``$ `` it (or ``cat``) is followed by its
output. All of a page run in one folder, so a later command reads a file of an earlier one. HTML comments say more:

``<!-- before: COMMAND -->``        a command that a reader has run already, not shown here
``<!-- file: NAME = PATH -->``      a file that the reader has, copied from the repository
``<!-- not run: REASON -->``        the next block is not run
``<!-- page not run: REASON -->``   nor is anything below
``<!-- exits: CODE -->``            exit code of the commands in the next block

A command whose comment says that it takes minutes is not run. A page may leave out lines of an output; where it has a
line ``...`` the output is not written anew. Numbers with a unit of time are masked: another machine takes another time.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
SECONDS = 30
MARK = re.compile(r"<!-- (before|file|not run|page not run|exits): (.*?) -->")
BLOCK_END = re.compile(r"^ *```(\w*)$")
TIMES = re.compile(r"\d[\d.]* (?:s|ms|min|hours?)\b")


@dataclass(frozen=True)
class Command:
    """A command of a page.

    `line`: its number in the page, from 1. `text`: as the shell reads it. `shown`: its output in the page, or None.
    `code`: exit code. `copies`: (name, path) of a file that is there before, for which `text` is empty.
    """

    line: int
    text: str
    shown: list[str] | None = None
    code: int = 0
    copies: tuple[str, str] | None = None


def pages() -> list[Path]:
    """Return the pages that have commands."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [path for path in found if any(command.text for command in commands(path))]


def commands(path: Path, every: bool = False) -> Iterator[Command]:
    """Yield the commands of a page in their order. `every`: also those that take minutes or are marked."""
    inside, skipped, code = False, False, 0
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        mark = MARK.search(line)
        if BLOCK_END.match(line):
            inside = not inside
            if not inside:
                skipped, code = False, 0
        elif mark and not inside:
            kind, value = mark.groups()
            if kind == "before":
                yield Command(number, value)
            elif kind == "file":
                name, _, source = value.partition(" = ")
                yield Command(number, "", copies=(name, source))
            elif kind == "exits":
                code = int(value)
            elif kind == "page not run":
                return
            else:
                skipped = not every
        elif inside and not skipped:
            bare = line.strip()
            if "minutes" in bare.partition("  #")[2] and not every:
                continue
            if bare.startswith(("$ synth ", "$ cat ")):
                yield Command(number, bare[2:], _output(lines[number:]), code)
            elif bare.startswith("synth ") and not _is_output(lines, number):
                yield Command(number, bare, None, code)


def _output(lines: list[str]) -> list[str]:
    """Return the lines up to the next command or the end of the block."""
    output = []
    for line in lines:
        if BLOCK_END.match(line) or line.startswith("$ "):
            break
        output.append(line.rstrip())
    while output and not output[-1]:
        output.pop()
    return output


def _is_output(lines: list[str], number: int) -> bool:
    """True for a line below a ``$ `` command of the same block."""
    for line in reversed(lines[: number - 1]):
        if BLOCK_END.match(line):
            return False
        if line.startswith("$ "):
            return True
    return False


def run(command: Command, folder: Path, cache: Path) -> list[str]:
    """Run a command in `folder` and return the lines of its standard output, with its refusal where one is expected.

    Raises AssertionError where its exit code is another one.
    """
    if command.copies is not None:
        name, source = command.copies
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / source, folder / name)
        return []
    shell = os.environ | {
        "SYNTH_CACHE": str(cache), "COLUMNS": "120", "NO_COLOR": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }  # fmt: skip
    if command.text.startswith("synth compile"):
        # bounds and searches of the pages end by themselves; the default limits of 20 s come first on a busy machine
        shell |= {"SYNTH_TIME_LIMIT": "10m", "SYNTH_SOLVE_LIMIT": "10m"}
    done = subprocess.run(
        command.text, shell=True, cwd=folder, env=shell, capture_output=True, text=True, timeout=20 * SECONDS
    )
    said = f"line {command.line}: {command.text}\n{done.stdout}{done.stderr}"
    open_intervals = done.returncode == 4 and "--time-limit" in command.text  # on a slow machine
    assert done.returncode == command.code or open_intervals, f"exit code {done.returncode}, {said}"
    printed = done.stdout.strip("\n").splitlines()
    if command.code:
        printed += [line for line in done.stderr.splitlines() if line.startswith(("synth: error", "synth: infeasible"))]
    return [line.rstrip() for line in printed]


def matches(shown: list[str], printed: list[str]) -> bool:
    """True where each line that the page shows is printed, in that order, times masked; it may leave out lines."""
    wanted = [TIMES.sub("TIME", line) for line in shown if line.strip() not in ("", "...")]
    lines = iter([TIMES.sub("TIME", line) for line in printed])
    return all(line in lines for line in wanted) and bool(wanted) == bool(printed)


def main() -> int:
    """Write the output of each command that a page shows anew, except where it leaves out lines."""
    import tempfile

    for name in sys.argv[1:]:
        path = Path(name)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "page").mkdir()
            found: dict[int, tuple[int, list[str]]] = {}
            for command in commands(path):
                printed = run(command, Path(folder) / "page", Path(folder))
                if command.shown is not None and "..." not in [line.strip() for line in command.shown]:
                    found[command.line] = (len(command.shown), printed)
        lines = path.read_text(encoding="utf-8").splitlines()
        for line in sorted(found, reverse=True):
            count, printed = found[line]
            lines[line : line + count] = printed
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"{name}: {len(found)} outputs written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
