"""The notebooks run, and print what they show; the snippets of docs/python.md and README.md run; the pictures can be
made."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench import notebooks

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
DOCUMENTS = [ROOT / "README.md", ROOT / "docs" / "python.md", ROOT / "docs" / "tutorial" / "notebook.md"]


def _printed(cell: dict) -> str:
    text = "".join("".join(output["text"]) for output in cell.get("outputs", []) if output["output_type"] == "stream")
    assert not any(output["output_type"] == "error" for output in cell.get("outputs", []))
    return text


def _kinds(cell: dict) -> list[list[str]]:
    return [sorted(output["data"]) for output in cell.get("outputs", []) if "data" in output]


def test_there_are_three_notebooks():
    assert [path.name for path in NOTEBOOKS] == ["first_frontier.ipynb", "own_collective.ipynb", "your_machine.ipynb"]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_prints_what_it_shows(path, tmp_path):
    pytest.importorskip("nbclient", reason="nbclient is not installed; run: pip install 'ccl-synth[test]'")
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed; run: pip install 'ccl-synth[test]'")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed; run: pip install 'ccl-synth[test]'")
    pytest.importorskip("matplotlib", reason="matplotlib is not installed; run: pip install 'ccl-synth[plot]'")
    before, notebook = nbformat.read(path, as_version=4), notebooks.executed(path, tmp_path)
    shown = [(_printed(cell), _kinds(cell)) for cell in before.cells if cell.cell_type == "code"]
    again = [(_printed(cell), _kinds(cell)) for cell in notebook.cells if cell.cell_type == "code"]
    assert again == shown
    assert any(printed for printed, _ in shown)
    assert any("text/html" in kinds for _, outputs in shown for kinds in outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_tidy(path):
    document = json.loads(path.read_text(encoding="utf-8"))
    assert path.stat().st_size < 100_000
    code = [cell for cell in document["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert all(cell["metadata"] == {} for cell in document["cells"])
    assert "<iframe" not in path.read_text(encoding="utf-8"), "run python -m bench.notebooks"


def _snippets() -> list:
    found = []
    for path in DOCUMENTS:
        for number, code in enumerate(
            re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL), 1
        ):
            found.append(pytest.param(code, id=f"{path.stem}-{number}"))
    return found


@pytest.mark.parametrize("code", _snippets())
def test_snippet_runs_and_prints_what_it_says(code, tmp_path):
    """Every snippet stands alone; comments ``#> text`` are what the line above prints."""
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=300,
        env={**os.environ, "SYNTH_CACHE": str(tmp_path)}, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == re.findall(r"^\s*#> (.*)$", code, re.MULTILINE)


def test_the_first_output_of_the_readme_is_what_the_command_prints(tmp_path):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"^\$ synth (pareto --topo dgx1 --coll allgather)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert shown is not None
    command = [str(Path(sys.executable).with_name("synth")), *shown[1].split()]
    environment = {**os.environ, "SYNTH_CACHE": str(tmp_path), "COLUMNS": "120"}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert [line.rstrip() for line in run.stdout.strip().splitlines()] == [
        line.rstrip() for line in shown[2].strip().splitlines()
    ]
