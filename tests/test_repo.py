"""The repository itself: where libraries are imported, what the packaging promises, what the tools are given."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SOURCES = sorted((ROOT / "synth").rglob("*.py"))

# The files that import each heavy library: one a use. A new one is a decision, so it is written down here.
USES: dict[str, set[str]] = {
    "z3": {"solvers/z3_solvers.py"},
    "pysat": {"solvers/python_sat.py"},
    "pysolvers": {"solvers/python_sat.py"},
    "ortools": {"solvers/cp_sat.py", "solvers/max_flow.py"},
    "scipy.optimize": {"solvers/linear_program.py"},
    "matplotlib": set(),  # through registry.need, in view/plot.py
    "rich": {"commands/framework/progress.py"},
}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports(path: Path) -> list[tuple[str, bool]]:
    """(module, whether at the top level of the file) of every import outside ``if TYPE_CHECKING``."""
    found: list[tuple[str, bool]] = []

    def visit(node: ast.AST, top: bool) -> None:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        if isinstance(node, ast.Import):
            found.extend((alias.name, top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.extend((f"{node.module}.{alias.name}", top) for alias in node.names)
        inside = top and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            visit(child, inside)

    visit(tree(path), True)
    return found


def users(library: str) -> set[str]:
    """The files under synth/ that import `library`, a module or something in it, as in `USES`."""
    return {
        path.relative_to(ROOT / "synth").as_posix()
        for path in SOURCES
        if any(f"{name}.".startswith(f"{library}.") for name, _ in imports(path))
    }


@pytest.mark.parametrize("library", USES)
def test_each_heavy_library_stays_in_its_files(library):
    assert users(library) == USES[library]


def test_click_stays_in_the_command_line():
    assert {name.partition("/")[0] for name in users("click")} == {"commands"}


def file_of(name: str) -> Path | None:
    """The file under synth/ that the dotted `name` of a module, or of something in one, comes from."""
    parts = name.split(".")
    while parts:
        for path in (ROOT.joinpath(*parts).with_suffix(".py"), ROOT.joinpath(*parts, "__init__.py")):
            if path.is_file():
                return path
        parts.pop()
    return None


# What `synth verify` executes beside the checker: values, and names of drawings that only a notebook loads.
VALUES = {
    "synth", "synth.errors", "synth.version", "synth.model", "synth.model.sends", "synth.model.sends.bitwise_equality",
    "synth.model.documents.canonical_json", "synth.model.collective", "synth.model.compressed_schedule",
    "synth.model.documents", "synth.model.documents.json_diff", "synth.model.documents.json_reader",
    "synth.model.documents.text_file", "synth.model.documents.whole_file", "synth.model.gc_pause",
    "synth.model.link_table", "synth.model.rational", "synth.model.scale_collectives", "synth.model.schedule",
    "synth.model.topology", "synth.model.registry",
}  # fmt: skip
# The replay and the certificates that all others lead to.
ROOTS = ["schedule.replay", "schedule.state", "schedule.machine", "schedule.collective"]
ROOTS += [f"certificates.{name}" for name in ("cuts", "single_chunk", "unreachable", "partition", "throughput_cuts")]


def executed(*modules: str) -> set[str]:
    """The modules of synth, and the libraries, that `modules` import, at the head of a file or in a function."""
    found: set[str] = set()
    todo = list(modules)
    while todo:
        name = todo.pop()
        if name.partition(".")[0] != "synth":
            found |= {name.partition(".")[0]} - sys.stdlib_module_names
            continue
        path = file_of(name)
        assert path is not None, name
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if module not in found:
            found.add(module)
            todo += [inner for inner, _ in imports(path)]
            todo += [module.rpartition(".")[0]] if "." in module else []
    return found


def test_verification_executes_the_checker_and_listed_values_alone():
    """No encoder, solver, symmetry search or deadline, and for the roots of trust no library either."""
    found, roots = executed("synth.checker.documents.dispatch"), executed(*(f"synth.checker.{name}" for name in ROOTS))
    checker = {name for name in found if name.startswith("synth.checker")}
    assert {"synth.checker.certificates.cuts", "synth.checker.certificates.lrat"} <= checker
    assert found - checker == VALUES | {"numpy"}
    assert roots < found - {"numpy"}


# Modules named by strings: registries, whose entries are imported when asked for, and the entry points of processes.
REGISTRIES = {
    "__init__.py", "commands/api.py",
    "encodings/__init__.py", "export/__init__.py", "model/registry.py", "runtime/__init__.py",
}  # fmt: skip
PROCESSES = {
    "pareto/combining/attempts.py", "pareto/portfolio/members.py",
    "runtime/mpi/executor.py", "torch/bench.py",
}  # fmt: skip


def module_files(name: str) -> list[Path]:
    path = ROOT.joinpath(*name.split("."))
    return [path.with_suffix(".py"), path / "__init__.py"]


def test_each_public_class_name_stands_for_one_thing():
    owners: dict[str, list[str]] = {}
    for path in SOURCES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                owners.setdefault(node.name, []).append(path.relative_to(ROOT / "synth").as_posix())
    assert {name: places for name, places in owners.items() if len(places) > 1} == {}


def test_modules_are_named_by_strings_in_registries_and_for_processes_alone():
    places: dict[str, set[str]] = {}
    for path in SOURCES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                match = re.fullmatch(r"(synth\.[a-z_]+(?:\.[a-z_]+)*)(?::(\w+))?", node.value)
                if match and file_of(match[1]) in module_files(match[1]):
                    places.setdefault(path.relative_to(ROOT / "synth").as_posix(), set()).add(node.value)
    assert set(places) - {"view/page/html.py"} == REGISTRIES | PROCESSES  # that one names its folder of assets
    for names in places.values():
        for name in names:
            module, _, attribute = name.partition(":")
            assert hasattr(importlib.import_module(module), attribute or "__name__"), name


def test_every_extra_that_the_design_names_exists():
    assert {"cuda12", "cuda13", "cluster", "plot", "mpi", "dev", "test"} <= set(
        PROJECT["project"]["optional-dependencies"]
    )
    assert PROJECT["project"]["scripts"] == {"synth": "synth.commands:main"}
    assert PROJECT["project"]["requires-python"] == ">=3.11"


def test_every_library_imported_is_declared():
    declared = {re.split(r"[>=\[]", line)[0].lower() for line in PROJECT["project"]["dependencies"]}
    distribution = {"z3": "z3-solver", "pysat": "python-sat", "pysolvers": "python-sat"}
    distribution |= {"yaml": "pyyaml", "ml_dtypes": "ml-dtypes"}
    for path in SOURCES:
        for name, _ in imports(path):
            top = name.partition(".")[0]
            if top == "torch" and "torch" in path.relative_to(ROOT / "synth").parts:
                continue  # of the extra; nothing else imports that room's files
            if top not in sys.stdlib_module_names and top not in ("synth", "None"):
                assert distribution.get(top, top) in declared, (path.name, name)


def test_version_and_changelog():
    import synth

    assert synth.__version__ == PROJECT["project"]["version"]
    assert "# Changelog" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("target", ["demo", "test", "fuzz", "check", "bench", "clean"])
def test_make_knows_its_targets(target):
    done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_make_says_clearly_when_there_is_no_python(tmp_path):
    places = f"VENV={tmp_path / 'venv'}", f"BIN={tmp_path / 'venv/bin'}"
    command = ["make", "--no-print-directory", "PYTHON=", *places, "demo"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode != 0
    assert "Python >= 3.11" in done.stderr


def test_the_ci_script_is_executable_and_parses():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", str(script)], check=True)


def test_the_map_of_the_code_names_what_is_there():
    page = (ROOT / "docs" / "architecture.md").read_text()
    places = set(re.findall(r"`([a-z_0-9]+/[a-z_0-9/]*(?:\.py|\.cuh)?)`", page))
    assert len(places) > 20 and [place for place in places if not (ROOT / "synth" / place).exists()] == []
    names = re.findall(r"`([\w.]+)` in `([a-z_/]+\.py)`", page)
    assert len(names) > 15
    for name, place in names:  # the last word of `Class.method` is defined in the file
        word = name.rpartition(".")[2]
        source = (ROOT / "synth" / place).read_text()
        assert re.search(rf"^ *(def|class) {word}\b|^{word}\b.* = ", source, re.MULTILINE), (name, place)
    rooms = {name for row in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert {path.name for path in (ROOT / "synth").iterdir() if path.is_dir() and path.name[0] != "_"} <= rooms
