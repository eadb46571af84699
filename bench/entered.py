"""The share of the code that the commands of README.md enter: python -m bench.entered [--list] [-o FILE.json]

Each command runs as a reader would run it, with a profiler in every process of it that notes the functions that are
called. The lines of a function count as entered once it was called; failure branches (blocks that end by raising, and
handlers of exceptions) count nowhere. `--list` names the modules of which nothing was entered.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from bench.measure import ROOT, where
from tests.documented_commands import commands, run

# Written as sitecustomize.py, which every Python process imports at its start. Lines are written at the first call of a
# function, so that a process that is killed has written them, too.
PROFILER = """
import os, sys, threading
out = os.open(os.environ["SYNTH_ENTERED"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
seen = set()
def note(frame, event, argument):
    code = frame.f_code
    if event == "call" and code not in seen:
        seen.add(code)
        if os.environ["SYNTH_PACKAGE"] in code.co_filename:
            os.write(out, f"{code.co_filename}:{code.co_firstlineno}\\n".encode())
threading.setprofile(note)
sys.setprofile(note)
"""


def functions(path: Path) -> Iterator[tuple[int, str, int]]:
    """Yield first line (of its decorators), name and number of lines of each function, those of inner functions and of
    failure branches not counted."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if not isinstance(node, kinds):
            continue
        lines = set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        for inner in ast.walk(node):
            if inner is not node and isinstance(inner, kinds):
                lines -= set(range(inner.lineno, (inner.end_lineno or inner.lineno) + 1))
            if not isinstance(inner, ast.If | ast.ExceptHandler):
                continue
            if isinstance(inner, ast.ExceptHandler) or isinstance(inner.body[-1], ast.Raise):
                lines -= set(range(inner.body[0].lineno, (inner.body[-1].end_lineno or 0) + 1))
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        yield first, node.name, len(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run the commands, and print how many lines of functions were entered by each and by all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name the modules of which nothing was entered")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.json")
    given = parser.parse_args(arguments)
    package = ROOT / "synth"
    sizes = {f"{path}:{first}": n for path in sorted(package.rglob("*.py")) for first, _, n in functions(path)}
    rows, entered = [], set()
    with tempfile.TemporaryDirectory(prefix="synth-bench-") as name:
        folder = Path(name)
        (folder / "sitecustomize.py").write_text(PROFILER, encoding="utf-8")
        (folder / "page").mkdir()
        os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), str(ROOT)])
        os.environ["SYNTH_PACKAGE"] = f"{package}{os.sep}"
        for number, command in enumerate(commands(ROOT / "README.md", every=True)):
            if command.text.startswith("synth torch") and find_spec("torch") is None:
                continue
            log = folder / f"{number}.txt"
            os.environ["SYNTH_ENTERED"] = str(log)
            run(command, folder / "page", folder)
            if not command.text:
                continue
            here = set(log.read_text(encoding="utf-8").split("\n")) & set(sizes)
            lines = sum(sizes[place] for place in here)
            new = sum(sizes[place] for place in here - entered)
            entered |= here
            rows.append({"command": command.text.partition("  #")[0].strip(), "lines": lines, "new": new})
            print(f"{lines:7} lines, {new:6} of them new: {rows[-1]['command']}", flush=True)

    total, reached = sum(sizes.values()), sum(sizes[place] for place in entered)
    print(f"{reached} of {total} lines of functions are entered: {100 * reached / total:.1f}%")
    if given.list:
        modules = {place.rpartition(":")[0] for place in sizes} - {place.rpartition(":")[0] for place in entered}
        print(*(str(Path(module).relative_to(ROOT)) for module in sorted(modules)), sep="\n")
    if given.output is not None:
        found = {"setting": where(), "entered": reached, "lines": total, "commands": rows}
        given.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
