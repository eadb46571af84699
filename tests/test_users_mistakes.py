"""Mistakes in a user's Python file end with the file and the line, never as an internal error."""

from __future__ import annotations

import importlib
import sys

import pytest
from click.testing import CliRunner

from synth.commands.root import root
from synth.model import registry

HEAD = "import synth\nfrom synth.language import algorithm\n"
# The program after `HEAD`, the line of the mistake, and words of the error.
PROGRAMS = [
    ("@algorithm(synth.collective('allgather', 4))\ndef f(a): pass\n", 3, "found <Collective allgather"),
    ("@algorithm\ndef f(a): pass\n", 3, "write the name in parentheses"),
    ("@algorithm(3)\ndef f(a): pass\n", 3, "found 3"),
    ("@algorithm(None)\ndef f(a): pass\n", 3, "found None"),
    ("@algorithm(['allgather'])\ndef f(a): pass\n", 3, "found ['allgather']"),
    ("@algorithm({'pre': []})\ndef f(a): pass\n", 3, "found {'pre': []}"),
    ("@algorithm('allgather', nothing=1)\ndef f(a): pass\n", 3, "unexpected keyword argument 'nothing'"),
    ("@algorithm('allgather')\nclass F: pass\n", 3, "for a plain function"),
    ("@algorithm('allgather')\ndef f(a): yield 1\n", 3, "without yield"),
    ("@algorithm('allgather')\nasync def f(a): pass\n", 3, "async"),
    ("@algorithm('allgather')\ndef f(): pass\n", 3, "takes 0 positional arguments"),
    ("@algorithm('allgather')\ndef f(a, b): pass\n", 3, "missing 1 required positional argument: 'b'"),
    ("@algorithm('allgather')\ndef f(a):\n    a.nothing()\n", 5, "no attribute 'nothing'"),
    ("@algorithm('allgather')\ndef f(a):\n    1 / 0\n", 5, "ZeroDivisionError"),
    ("@algorithm('allgather')\ndef f(a):\n    raise SystemExit(9)\n", 5, "SystemExit: 9"),
    ("@algorithm('allgather')\ndef f(a):\n    f.function(a)\n", 5, "RecursionError"),
    ("@algorithm('allgather')\ndef f(a):\n    raise ValueError('two\\nlines')\n", 5, "two lines"),
    ("@algorithm('allgather')\ndef f(a:\n    pass\n", 4, "never closed"),
    ("import nothing_here\n", 3, "No module named"),
    ("raise SystemExit\n", 3, "SystemExit"),
    ("synth.topology('nowhere')\n", 3, "unknown topology"),
    ("synth.collective('allgather', 'four')\n", 3, ""),
]


@pytest.mark.parametrize(("text", "line", "words"), PROGRAMS, ids=range(len(PROGRAMS)))
def test_a_mistake_has_its_line(text, line, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(HEAD + text)
    said = CliRunner().invoke(root, ["compile", "mine.py", "--topo", "ring:4"])
    assert said.exit_code == 2 and said.stderr.splitlines()[-1].startswith(f"synth: error: mine.py:{line}: ")
    assert words in said.stderr and "internal" not in said.stderr


def test_a_file_that_is_no_python_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("\0")
    said = CliRunner().invoke(root, ["compile", "mine.py", "--topo", "ring:4"])
    assert said.exit_code == 2 and "error: mine.py" in said.stderr


@pytest.mark.parametrize("kind", ["topologies", "collectives"])
@pytest.mark.parametrize(
    ("body", "words"), [("    return None.x\n", ":2: AttributeError"), ("    return 5\n", "returned 5")]
)
def test_a_plug_in_that_fails_is_named_with_its_line(kind, body, words, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "their_plugin.py").write_text(f"def make(*_):\n{body}")
    sys.modules.pop("their_plugin", None)
    importlib.invalidate_caches()
    added = {"theirs": "their_plugin:make"}
    monkeypatch.setattr(registry, "plugins", lambda table: added if table == kind else {})
    machine, task = ("theirs:4", "allgather") if kind == "topologies" else ("ring:4", "theirs")
    said = CliRunner().invoke(root, ["bound", "--topo", machine, "--coll", task])
    assert said.exit_code in (1, 2) and "their_plugin:make" in said.stderr and words in said.stderr, said.stderr
