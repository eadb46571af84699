"""Files, caches and folders of strangers: read within bounds, printed without commands, not followed, not executed."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import synth
from synth.commands import api, pareto
from synth.commands.framework.documents import write_schedules
from synth.commands.framework.output import PlainStream
from synth.commands.root import root
from synth.errors import FormatError, SynthError
from synth.model.documents import text_file
from synth.model.documents.own_file import is_own
from synth.pareto.log import Log
from synth.runtime.kernel import build_host
from synth.view.frontier_text import Report
from synth.view.tables import report_lines

ESC = "\x1b]0;title\x07\x1b[2J"


def run(*words: object):
    return CliRunner().invoke(root, list(map(str, words)))


# ------------------------------------------------------------ reading


@pytest.mark.parametrize(
    "command",
    ["verify FILE", "report FILE -o out.html", "run FILE", "show FILE", "lint FILE", "explain FILE", "export FILE",
     "import FILE", "topo import FILE", "bound --topo FILE --coll allgather", "tune --from FILE",
     "bound --topo ring:4 --coll FILE", "pareto --topo rail:2x2 --coll "
     "allgather --sketch FILE", "catalog build FILE"],
)  # fmt: skip
def test_no_command_reads_a_device(command, tmp_path, monkeypatch):
    """`synth verify /dev/zero` filled the memory."""
    monkeypatch.chdir(tmp_path)
    said = run(*command.replace("FILE", "/dev/zero").split())
    assert said.exit_code in (1, 2) and "internal" not in said.stderr, command
    if said.exit_code == 1:
        assert "/dev/zero" in said.stderr, command


def test_a_pipe_is_read_up_to_the_limit(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for size, fits in ((10, True), (11, False)):
        writer = subprocess.Popen([sys.executable, "-c", f"open({str(pipe)!r}, 'w').write('x' * {size})"])
        if fits:
            assert text_file.text_of(pipe, 10) == "x" * 10
        else:
            with pytest.raises(FormatError, match="more than 10 bytes; at most 10 are read"):
                text_file.text_of(pipe, 10)
        writer.wait()
    with pytest.raises(FormatError, match="is not a file"):
        text_file.head_of(pipe, 4)


def rewritten(path: Path, target: Path, **arrays: np.ndarray) -> Path:
    """Write the archive at `path` with other arrays, compressed as well as it goes."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as new:
        for name in old.namelist():
            data = old.read(name)
            if (key := name.removesuffix(".npy")) in arrays:
                buffer = io.BytesIO()
                np.lib.format.write_array(buffer, arrays[key], (1, 0))
                data = buffer.getvalue()
            new.writestr(name, data)
    return target


def test_an_archive_that_unpacks_to_far_more_is_refused(tmp_path, monkeypatch):
    """An archive of 264 KB took 2.4 GB."""
    frontier = api.frontier("ring:4", "allgather", engine="flow")
    (name, *_) = [name for _, name in write_schedules(frontier, tmp_path)]
    zeros = np.zeros(20_000_000, np.int8)
    for arrays, says in (
        ({"step": zeros}, "more than a schedule has"),
        ({"header": np.full(4_000_000, 32, np.uint8)}, "to a header of 4000000"),
    ):
        bomb = rewritten(tmp_path / name, tmp_path / "bomb.npz", **arrays)
        assert bomb.stat().st_size < 30_000
        with pytest.raises(FormatError, match=says):
            synth.verify(bomb)
    assert synth.verify(rewritten(tmp_path / name, tmp_path / "same.npz"))


# ------------------------------------------------------------ printing


def test_rows_of_a_strangers_catalog_reach_no_terminal_as_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("fleet.yaml").write_text("topologies: [ring:3]\ncollectives: [allgather]\n")
    assert run("catalog", "build", "fleet.yaml", "--db", "c.db", "--jobs", "1").exit_code == 0
    with sqlite3.connect("c.db") as base:
        (row,) = base.execute("SELECT row FROM entries").fetchone()
        forged = json.loads(row) | {"topology": f"ring{ESC}\nforged", "collective": f"all{ESC}"}
        base.execute("UPDATE entries SET row = ?", (json.dumps(forged),))
    base.close()
    for command in ("ls", "verify -v", f"show {forged['id']}"):
        said = run("catalog", *command.split(), "--db", "c.db")
        assert "\x1b" not in said.output and "\nforged" not in said.output, command


def test_streams_and_tables_escape_what_a_terminal_obeys():
    stream = PlainStream(io.StringIO())
    print(f"a\tb{ESC}\u202e é 漢", file=stream)
    assert stream.stream.getvalue() == "a\tb\\x1b]0;title\\x07\\x1b[2J\\u202e é 漢\n"
    lines = report_lines(Report(f"title{ESC}", (("a", "left"),), ((f"x{ESC}\ny",),), (f"said{ESC}",)))
    assert not any("\x1b" in line or "\n" in line for line in lines)


def test_names_of_files_in_errors_are_escaped(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = f"a{ESC.replace('/', '')}.json"
    Path(name).write_text("[]")
    for command, *options in (("verify",), ("show",), ("report", "-o", "page.html"), ("lint",)):
        said = run(command, name, *options)
        assert said.exit_code and "\x1b" not in said.output and "\\x1b" in said.output, command


# ------------------------------------------------------------ caches and plug-ins


def test_a_log_that_is_a_link_is_left_alone(tmp_path, monkeypatch):
    """A link in a shared cache folder made the sweep truncate its target."""
    monkeypatch.setenv("SYNTH_CACHE", str(tmp_path))
    begun = []
    monkeypatch.setattr("synth.pareto.synthesize.Log", lambda path, *more: begun.append(path) or Log(path, *more))
    api.frontier("ring:3", "allgather")
    victim = tmp_path / "victim"
    victim.write_text("precious")
    begun[0].symlink_to(victim)
    found = api.frontier("ring:3", "allgather")
    assert victim.read_text() == "precious" and found.complete
    assert any("is a link" in note for note in found.notes)


def test_answers_that_others_may_write_are_not_taken(tmp_path, monkeypatch):
    monkeypatch.setenv("SYNTH_CACHE", str(tmp_path / "cache"))
    options = {"sizes": (1024,), "time_limit": 600.0}
    synth.build("line:2", "allgather", tmp_path / "a", **options)
    (answer,) = (tmp_path / "cache" / "builds").iterdir()
    assert is_own(answer)
    answer.chmod(0o777)

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pareto, "frontier", stop)
    with pytest.raises(KeyboardInterrupt):  # it searches anew
        synth.build("line:2", "allgather", tmp_path / "b", **options)


def test_compiled_code_of_others_is_not_loaded(tmp_path, monkeypatch):
    monkeypatch.setenv("SYNTH_CACHE", str(tmp_path))
    code = build_host.cache_directory() / "host-x.so"
    assert not build_host.is_cached(code)
    build_host.write_atomically(code, b"code")
    assert build_host.is_cached(code)
    code.chmod(0o777)
    with pytest.raises(SynthError, match="may write it"):
        build_host.is_cached(code)
    code.chmod(0o755)
    code.parent.chmod(0o777)
    with pytest.raises(SynthError, match="may write it"):
        build_host.is_cached(code)
    code.parent.chmod(0o700)
    code.rename(tmp_path / "code")
    code.symlink_to(tmp_path / "code")
    with pytest.raises(SynthError, match="is a link"):
        build_host.is_cached(code)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert not is_own(tmp_path / "code")


def test_the_working_folder_brings_no_plugins(tmp_path):
    """`python -m synth` ran the module that a folder's entry_points.txt named."""
    folder = tmp_path / "evil-1.0.dist-info"
    folder.mkdir()
    (folder / "entry_points.txt").write_text("[synth.plugins]\ntopologies.evil = evil:make\n")
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (tmp_path / "evil.py").write_text("open('ran', 'w').close()\ndef make(sizes, options):\n    raise SystemExit(7)\n")
    environment = os.environ | {"PYTHONPATH": str(Path(synth.__file__).parents[1])}
    command = [sys.executable, "-m", "synth", "topo", "show", "evil:4"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "unknown topology" in done.stderr
    assert not (tmp_path / "ran").exists()
    assert json.loads(
        subprocess.run(
            [*command[:3], "topo", "show", "ring:3", "--format", "json"], cwd=tmp_path, env=environment,
            capture_output=True, text=True, check=True,
        ).stdout
    )["ranks"] == 3  # fmt: skip
