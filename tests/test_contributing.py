"""The examples of docs/plugins.md, written out as a package, installed by its entry points, and run; and those of
docs/contributing.md, an engine, an importer and a certificate, added to a copy of `synth`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
CHANGES = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ synth (.*)$", PAGE, re.MULTILINE)


def blocks(language: str, page: str = PAGE) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def modules() -> list[str]:
    return [code for code in blocks("python") if not code.startswith("# use.py")]


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A folder with the page's modules and the metadata of an installed package that has its entry points."""
    folder = tmp_path_factory.mktemp("contributed")
    for code in modules():
        name = code.removeprefix("# ").partition(".py\n")[0]
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
    assert len(modules()) == len(tables) < len(COMMANDS) + 1


def run_in(folder: Path, *words: str) -> subprocess.CompletedProcess:
    """Run Python in a folder whose modules come first."""
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": path, "SYNTH_CACHE": str(folder / "cache")}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=folder, env=environment)


def test_the_commands_of_the_page_run(package):
    for words in COMMANDS:
        done = run_in(package, "-m", "synth", *words.split())
        assert done.returncode == 0, (words, done.stderr)
        if "spokes:3" in words:  # a middle and three leaves: the page's function was called
            assert " 4 ranks" in done.stdout
    assert "rank 3: " in (package / "counts.txt").read_text()


def test_python_takes_the_names_of_the_page(package):
    (code,) = [code for code in blocks("python") if code not in modules()]
    done = run_in(package, "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == re.findall(r"^#> (.*)$", code, re.MULTILINE)


def test_a_collective_that_is_none_is_refused(package):
    code = (package / "contributed_collective.py").read_text()
    (package / "contributed_collective.py").write_text(code.replace('"neighbours", ranks', '"neighbours", ranks + 1'))
    done = run_in(package, "-m", "synth", "bound", "--topo", "ring:5", "--coll", "neighbours")
    assert done.returncode == 2
    assert "must return a Collective over 5 ranks" in done.stderr


def patch(folder: Path, diff: str) -> None:
    """Apply a block of lines, marked "+", "-" or " ", to the file that its first line names."""
    first, *lines = diff.splitlines()
    file = folder / first.removeprefix("# ")
    before = "".join(f"{line[1:]}\n" for line in lines if line[0] != "+")
    after = "".join(f"{line[1:]}\n" for line in lines if line[0] != "-")
    text = file.read_text(encoding="utf-8")
    assert text.count(before) == 1, (first, before)
    file.write_text(text.replace(before, after), encoding="utf-8")


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the package with the page's engine, importer and certificate."""
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "synth", folder / "synth", ignore=shutil.ignore_patterns("__pycache__"))
    for code in [*blocks("python", CHANGES), *blocks("text", CHANGES)]:
        name, _, rest = code.removeprefix("# ").partition("\n")
        (folder / name).write_text(rest if name.endswith(".txt") else code, encoding="utf-8")
    for diff in blocks("diff", CHANGES):
        patch(folder, diff)
    return folder


def assert_prints_its_comments(folder: Path, script: str) -> None:
    assert script in re.findall(r"^\$ python (.*)$", CHANGES, re.MULTILINE)
    done = run_in(folder, script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == re.findall(r"^#> (.*)$", (folder / script).read_text(), re.MULTILINE)


def test_the_engine_of_the_page_has_its_point(copy):
    assert_prints_its_comments(copy, "ring_of_five.py")


def test_the_importer_of_the_page_reads_its_file(copy):
    (command,) = re.findall(r"^\$ synth (.*)$", CHANGES, re.MULTILINE)
    done = run_in(copy, "-m", "synth", *command.split())
    assert done.returncode == 0, done.stderr
    assert "3 ranks" in done.stdout and "latencies are assumed" in done.stdout
    (copy / "bad.txt").write_text("link table\n0 1\n")
    refused = run_in(copy, "-m", "synth", "topo", "import", "bad.txt")
    assert refused.returncode == 1 and "line 2: expected: src dst GB/s" in refused.stderr


def test_the_certificate_of_the_page_is_checked(copy):
    script = "receive_bound.py"
    assert_prints_its_comments(copy, script)
    (copy / "rank_8.py").write_text((copy / script).read_text().replace('"rank": 0', '"rank": 8'))
    assert "VerificationError: rank: " in run_in(copy, "rank_8.py").stderr
