"""Style that linters have no rule for: `python .ci/style.py [PATH ...]` prints each place that breaks one, exit code 1.

Without paths it looks at the package, the tests and the benches; in the latter two only at docstrings and words.

- A comprehension or a ternary inside another one, or two of them on one line: write a loop, or name the inner one.
- The first line of a docstring begins with What, Whether, How, That or Those: name the object, or begin with a verb.
- A name, docstring or comment uses a private picture for a thing that the literature has a word for.
- More functions than `LONG_FUNCTIONS` have more than six parameters (the constructors of dataclasses aside: these have
  a parameter for each field, written out or not).
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

MOST_PARAMETERS = 6
LONG_FUNCTIONS = 15  # functions with more parameters than that, in the whole package: to be lowered, never raised
WORDS_ONLY = ("tests", "bench")  # folders in which comprehensions and parameters are not counted
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.IfExp)
RIDDLE = re.compile(r"(What|Whether|How|That|Those)\b")
PICTURES = re.compile(
    r"(?i)(?<![a-z])(loom|weave|woven|weaving|evening|even_out|roads?|nursery|nurseries|racers?|entrants?|told|tau|fences?|"
    r"fenced|desk|crews?|scribe|awaited|sharpened|sharper|until\.apart)(?![a-z])"
)


def places(path: Path) -> Iterator[tuple[int, str]]:
    """Line and reason of each place in the file that breaks a rule."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    if path.parts[0] not in WORDS_ONLY:
        yield from _dense(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring and (match := RIDDLE.match(docstring)):
                line = node.body[0].lineno
                yield line, f"a docstring begins with {match.group()!r}: begin with a verb or the object's name"
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.NAME, tokenize.COMMENT, tokenize.STRING):
            for match in PICTURES.finditer(token.string):
                line = token.start[0] + token.string.count("\n", 0, match.start())
                yield line, f"{match.group()!r} is no term of the field (see docs/glossary.md)"


def _dense(tree: ast.AST) -> Iterator[tuple[int, str]]:
    found = [node for node in ast.walk(tree) if isinstance(node, COMPREHENSIONS)]
    lines: dict[int, int] = {}
    for node in found:
        inner = next((n for n in ast.walk(node) if n is not node and isinstance(n, COMPREHENSIONS)), None)
        if inner is not None:
            yield node.lineno, "a comprehension or ternary inside another: write a loop, or name the inner one"
        lines[node.lineno] = lines.get(node.lineno, 0) + 1
    for line, count in lines.items():
        if count > 1:
            yield line, "two comprehensions or ternaries on one line"


def long_functions(path: Path) -> Iterator[tuple[int, str]]:
    """Line and name of each function of the file with more than `MOST_PARAMETERS` parameters, `self` not counted."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    constructors = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(use) for use in node.decorator_list):
            constructors |= {id(part) for part in node.body if getattr(part, "name", "") == "__init__"}
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if id(node) in constructors:
            continue
        names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        if len(names) - (names[:1] in (["self"], ["cls"])) > MOST_PARAMETERS:
            yield node.lineno, node.name


def main(arguments: list[str]) -> int:
    """Print every place; 1 where there is any."""
    roots = [Path(name) for name in arguments or ["synth", *WORDS_ONLY]]
    files = sorted(file for root in roots for file in ([root] if root.is_file() else root.rglob("*.py")))
    count = 0
    for file in files:
        for line, reason in sorted(set(places(file))):
            print(f"{file}:{line}: {reason}")
            count += 1
    long = [(file, *row) for file in files if file.parts[0] not in WORDS_ONLY for row in long_functions(file)]
    if len(long) > LONG_FUNCTIONS:
        for file, line, name in long:
            print(f"{file}:{line}: {name} has more than {MOST_PARAMETERS} parameters")
        print(
            f"{len(long)} functions with more than {MOST_PARAMETERS} parameters; at most {LONG_FUNCTIONS} are allowed"
        )
        count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
