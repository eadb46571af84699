"""The command line imports only the modules that it needs. The tests look at the loaded modules, never at a clock."""

import subprocess
import sys

import click
import pytest

from synth.commands.root import COMMANDS, root
from tests.command_line import synth

LIBRARIES = {"z3", "networkx", "scipy", "numpy", "pysat", "ortools", "matplotlib", "yaml"}


def loaded(code: str, *words: str) -> tuple[str, set[str]]:
    """Return what a program prints, and the modules that are loaded at its end."""
    code = f"import sys\ntry:\n    {code}\nexcept SystemExit: pass\nfinally: print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    return done.stdout, set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_where_the_table_says(name: str) -> None:
    command = root.get_command(click.Context(root), name)
    assert command is not None
    assert command.name == name and COMMANDS[name].endswith(".")


def test_help_loads_no_command() -> None:
    printed, modules = loaded("from synth.commands import root; root(['--help'])")
    assert "pareto       Find the frontier" in printed and "synth.commands.root" in modules
    assert not modules & {"synth.commands.pareto", "synth.commands.api", "synth.model.topology", "json", "rich"}
    assert not modules & (LIBRARIES | {"synth.model.collective"})


def test_help_of_no_command_loads_a_numerical_library_or_a_solver() -> None:
    every = "from synth.commands.root import COMMANDS, root; import contextlib\n    for name in COMMANDS:\n"
    _, modules = loaded(f"{every}        with contextlib.suppress(SystemExit): root([name, '--help'])")
    assert "synth.commands.tuning.tune" in modules and not modules & LIBRARIES


def test_the_package_runs_as_the_command_does() -> None:
    command = [sys.executable, "-m", "synth", "paretoo"]
    wrong = subprocess.run(command, capture_output=True, text=True, check=False)
    assert wrong.returncode == 2 and "did you mean pareto" in wrong.stderr


def test_verify_loads_no_engine_no_solver_and_no_numerical_library(tmp_path) -> None:
    """The checker, values, built-in machines, and the command line with the names that its options take."""
    file = str(tmp_path / "frontier.json")
    synth("pareto --topo ring:3 --coll allgather -o", file)
    printed, modules = loaded("from synth.commands import main; main()", "verify", file)
    assert "verified" in printed and "synth.checker.schedule.replay" in modules and not modules & (LIBRARIES - {"yaml"})
    packages = {name.split(".")[1] for name in modules if name.startswith("synth.")}
    assert packages == {"checker", "commands", "errors", "model", "program", "topologies", "version"}
    programs = {name for name in modules if name.startswith(("synth.model.symmetry", "synth.program."))}
    assert programs <= {f"synth.program.{name}" for name in ("message_cost", "plan_limits", "program")}


def test_synthesis_loads_no_part_of_the_interface_that_it_does_not_need() -> None:
    _, modules = loaded("import synth.commands.pareto; from synth.commands import api; api.frontier")
    assert "synth.commands.pareto" in modules and not modules & {"numpy", "scipy", "synth.runtime.call"}
    assert not modules & {"synth.commands.tuning.build", "synth.commands.tuning.tune", "synth.export.request"}
