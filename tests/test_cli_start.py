"""The command line imports only the modules that it needs. The tests look at the loaded modules, never at a clock."""

import subprocess
import sys

import click
import pytest

from synth.commands.root import COMMANDS, root


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_where_the_table_says(name: str) -> None:
    command = root.get_command(click.Context(root), name)
    assert command is not None
    assert command.name == name and COMMANDS[name].endswith(".")


def test_help_loads_no_command() -> None:
    code = "import sys\nfrom synth.commands import root\ntry: root(['--help'])\nexcept SystemExit: print(*sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "pareto       Find the frontier" in printed
    loaded = set(printed.splitlines()[-1].split())
    assert "synth.commands.root" in loaded
    assert not loaded & {
        "synth.commands.pareto",
        "synth.commands.api",
        "synth.model.topology",
        "synth.model.collective",
        "json",
    }
    assert not loaded & {"z3", "networkx", "scipy", "numpy", "pysat", "ortools", "matplotlib", "rich", "yaml"}


def test_help_of_no_command_loads_a_numerical_library_or_a_solver() -> None:
    code = (
        "import sys\nfrom synth.commands.root import COMMANDS, root\n"
        "for name in COMMANDS:\n    try: root([name, '--help'])\n    except SystemExit: pass\nprint(*sys.modules)"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = set(printed.splitlines()[-1].split())
    assert "synth.commands.tuning.tune" in loaded
    assert not loaded & {"z3", "networkx", "scipy", "numpy", "pysat", "ortools", "matplotlib", "yaml"}


def test_the_package_runs_as_the_command_does() -> None:
    command = [sys.executable, "-m", "synth", "paretoo"]
    wrong = subprocess.run(command, capture_output=True, text=True, check=False)
    assert wrong.returncode == 2 and "did you mean pareto" in wrong.stderr


def test_verify_loads_no_engine_no_solver_and_no_numerical_library(tmp_path) -> None:
    file = tmp_path / "frontier.json"
    made = subprocess.run(
        [sys.executable, "-m", "synth", "pareto", "--topo", "ring:3", "--coll", "allgather", "-o", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    code = (
        "import sys\nfrom synth.commands import main\nsys.argv = ['synth', 'verify', sys.argv[1]]\n"
        "try: main()\nfinally: print(*sys.modules)"
    )
    printed = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True).stdout
    assert "verified" in printed
    loaded = set(printed.splitlines()[-1].split())
    assert "synth.checker.schedule.replay" in loaded
    assert not loaded & {"numpy", "scipy", "networkx", "z3", "pysat", "ortools"}
    # the checker, values, built-in machines, and the command line with the names that its options take: no engine,
    # search or deadline
    packages = {name.split(".")[1] for name in loaded if name.startswith("synth.")}
    assert packages == {"checker", "commands", "errors", "model", "program", "topologies", "version"}
    assert not {name for name in loaded if name.startswith(("synth.model.symmetry", "synth.program."))} - {
        "synth.program.message_cost",
        "synth.program.plan_limits",
        "synth.program.program",
    }


def test_synthesis_loads_no_part_of_the_interface_that_it_does_not_need() -> None:
    code = "import sys, synth.commands.pareto\nfrom synth.commands import api\napi.frontier\nprint(*sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = set(printed.split())
    assert "synth.commands.pareto" in loaded
    assert not loaded & {
        "synth.commands.tuning.build",
        "synth.commands.tuning.tune",
        "synth.export.request",
        "synth.runtime.call",
        "numpy",
        "scipy",
    }
