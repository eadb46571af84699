"""`synth verify` executes the checker, a listed few modules of values, and the errors.

No encoder, solver, symmetry search or deadline is reached, also not by an import inside a function.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import synth

PACKAGE = Path(synth.__file__).parent
DOOR = "synth.checker.documents.dispatch"
VALUES = {
    "synth", "synth.errors", "synth.version", "synth.model", "synth.model.sends", "synth.model.sends.bitwise_equality",
    "synth.model.documents.canonical_json", "synth.model.collective",
    "synth.model.compressed_schedule", "synth.model.documents", "synth.model.documents.json_diff",
    "synth.model.documents.json_reader", "synth.model.documents.text_file", "synth.model.documents.whole_file",
    "synth.model.gc_pause", "synth.model.link_table",
    "synth.model.rational", "synth.model.scale_collectives", "synth.model.schedule",
    "synth.model.topology",
    "synth.model.registry",  # names of drawings, loaded when a notebook shows a value and never by verification
}  # fmt: skip
LIBRARIES = {"numpy"}


def source_of(module: str) -> Path | None:
    """The file of a module or package of synth."""
    path = PACKAGE.parent.joinpath(*module.split("."))
    files = [path / "__init__.py", path.with_suffix(".py")]
    return next((file for file in files if file.is_file()), None)


def imports_of(module: str) -> set[str]:
    """Every module that `module` may import when it runs: at its head or in a function, but not for types alone."""
    file = source_of(module)
    assert file is not None, module
    names: set[str] = set()
    stack: list[ast.AST] = [ast.parse(file.read_text(encoding="utf-8"))]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            stack.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level and node.module is not None, f"{module}: relative import"
            names.add(node.module)
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            names.update(name for name in inner if name.startswith("synth.") and source_of(name))
        stack.extend(ast.iter_child_nodes(node))
    parents = {name.rpartition(".")[0] for name in names} if module != "synth" else set()
    return names | {name for name in parents if name}


def closure(start: str) -> dict[str, str]:
    """Each module of synth, and each library, that is reached from `start`: by which module it is imported first."""
    reached, queue = {start: ""}, [start]
    for module in queue:
        for name in sorted(imports_of(module)):
            if not name.startswith("synth"):
                name = name.partition(".")[0]
            if name in reached or name in sys.stdlib_module_names:
                continue
            reached[name] = module
            if name == "synth" or name.startswith("synth."):
                queue.append(name)
    return reached


def test_verification_reaches_the_checker_and_listed_values_alone() -> None:
    reached = closure(DOOR)
    print(*(f"{name} <- {by}" for name, by in sorted(reached.items())), sep="\n")
    checker = {name for name in reached if name.startswith("synth.checker")}
    assert {"synth.checker.certificates.cuts", "synth.checker.certificates.lrat"} <= checker
    assert reached.keys() - checker == VALUES | LIBRARIES
