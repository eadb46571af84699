"""Size of code and pages, and the budget that `make check` holds it to: `python -m bench.count`.

AST nodes measure how much there is to read: they do not depend on formatting, comments or docstrings' length. A change
that goes over `BUDGET` fails `make check`. Raising a figure is one line with its reason, by an issue's allotment.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

TOPS = ("synth", "tests", "bench")
BUDGET = {
    "synth nodes": 586_400,  # 876,855 before the cut; some 22,000 are for PyTorch jobs
    "tests lines": 33_500,
    "bench lines": 5_470,
    "docs words": 38_600,  # the page on PyTorch jobs
    "bench/results KB": 260,
    "CHANGELOG KB": 8,
}


@dataclass
class Size:
    """Counts of the Python files of one folder. `code`: lines that are neither empty, comments nor docstrings.
    `imports`: pairs of sub-packages of which the first imports the second."""

    files: int = 0
    lines: int = 0
    code: int = 0
    comments: int = 0
    nodes: int = 0
    packages: set[str] = field(default_factory=set)
    imports: set[tuple[str, str]] = field(default_factory=set)

    def add(self, path: Path) -> None:
        """Count one file, whose path begins with its top folder."""
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        docstrings: set[int] = set()
        for node in ast.walk(tree):
            self.nodes += 1
            documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            if documented and ast.get_docstring(node):
                first = node.body[0]
                docstrings.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
        self.files += 1
        self.lines += text.count("\n")
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip().startswith("#"):
                self.comments += 1
            elif line.strip() and number not in docstrings:
                self.code += 1
        if len(path.parts) > 2:
            self.packages.add(path.parts[1])
            self.imports |= {
                (path.parts[1], other) for other in imported(tree, path.parts[0]) if other != path.parts[1]
            }


def imported(tree: ast.AST, top: str) -> Iterator[str]:
    """Yield the sub-packages of `top` that a module imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        else:
            continue
        for module in modules:
            first, *rest = module.split(".")
            if first == top and rest and Path(top, rest[0]).is_dir():
                yield rest[0]


def sizes() -> tuple[dict[str, Size], dict[str, int]]:
    """Return the counts of each top folder, and the figures that the budget limits. Run in the project's root."""
    found = {}
    for top in TOPS:
        found[top] = Size()
        for path in sorted(Path(top).rglob("*.py")):
            found[top].add(path)
    words = sum(len(path.read_text(encoding="utf-8").split()) for path in Path("docs").rglob("*.md"))
    results = sum(path.stat().st_size for path in Path("bench", "results").rglob("*") if path.is_file())
    figures = {
        "synth nodes": found["synth"].nodes,
        "tests lines": found["tests"].lines,
        "bench lines": found["bench"].lines,
        "docs words": words,
        "bench/results KB": results // 1024,
        "CHANGELOG KB": Path("CHANGELOG.md").stat().st_size // 1024,
    }
    return found, figures


def over_budget(figures: dict[str, int]) -> list[str]:
    """Return a line for each figure that is over its budget."""
    return [
        f"{name}: {figures[name]:,}, the budget is {most:,}" for name, most in BUDGET.items() if figures[name] > most
    ]


def main() -> int:
    """Print the counts; 1 where a figure is over its budget."""
    found, figures = sizes()
    for top, size in found.items():
        dense, share = size.nodes / size.code, 100 * size.comments / size.code
        print(f"{top}: {size.files} files, {size.lines:,} lines, {size.code:,} of code, {size.nodes:,} AST nodes")
        print(f"  {dense:.1f} nodes a line of code, {share:.1f} lines of comments per 100")
    synth = found["synth"]
    print(f"{len(synth.packages)} packages, {len(synth.imports)} imports between them")
    print(*(f"{name}: {value:,} of {BUDGET[name]:,}" for name, value in figures.items()), sep="\n")
    lines = over_budget(figures)
    print(*lines, sep="\n" if lines else "", end="\n" if lines else "", file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
