"""The examples of docs/contributing.md: written out as a package, installed by its entry points, run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parent.parent / "docs" / "contributing.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ synth (.*)$", PAGE, re.MULTILINE)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A folder with the page's modules and the metadata of an installed package that has its entry points."""
    folder = tmp_path_factory.mktemp("contributed")
    for code in blocks("python"):
        name = re.match(r"# (\w+)\.py\n", code).group(1)
        (folder / f"contributed_{name}.py").write_text(code)
    lines = "".join(blocks("toml")).replace('"', "").replace("= ", "= contributed_")
    metadata = folder / "contributed-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: contributed\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[synth.plugins]\n{lines}")
    return folder


def test_each_kind_of_addition_has_an_example():
    tables = [line.partition(".")[0].strip('"') for line in blocks("toml")]
    assert tables == ["topologies", "collectives", "encodings", "solvers", "exporters", "executors"]
    assert len(blocks("python")) == len(tables) < len(COMMANDS) + 1


def test_the_commands_of_the_page_run(package):
    path = os.pathsep.join([str(package), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": path, "SYNTH_CACHE": str(package / "cache")}
    for words in COMMANDS:
        done = subprocess.run(
            [sys.executable, "-m", "synth", *words.split()],
            capture_output=True,
            text=True,
            cwd=package,
            env=environment,
        )  # fmt: skip
        assert done.returncode == 0, (words, done.stderr)
        if "spokes:3" in words:  # a middle and three leaves: the page's function was called
            assert " 4 ranks" in done.stdout
    assert "rank 3: " in (package / "counts.txt").read_text()


def test_a_collective_that_is_none_is_refused(package):
    code = (package / "contributed_collective.py").read_text()
    (package / "contributed_collective.py").write_text(code.replace('"neighbours", ranks', '"neighbours", ranks + 1'))
    environment = os.environ | {"PYTHONPATH": str(package), "SYNTH_CACHE": str(package / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "synth", "bound", "--topo", "ring:5", "--coll", "neighbours"],
        capture_output=True, text=True, cwd=package, env=environment,
    )  # fmt: skip
    assert done.returncode == 2
    assert "must return a Collective over 5 ranks" in done.stderr


def test_the_places_of_the_architecture_page_exist():
    root = Path(__file__).parent.parent
    page = (root / "docs" / "architecture.md").read_text(encoding="utf-8")
    places = re.findall(r"`([a-z_]+/[a-z_/]*(?:\.py)?)`", page)
    assert len(places) > 20
    assert [place for place in places if not (root / "synth" / place).exists()] == []
    folders = {name for row in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert {path.name for path in (root / "synth").iterdir() if path.is_dir() and path.name[0] != "_"} <= folders
