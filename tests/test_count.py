"""The counts that the budget of `make check` limits."""

from pathlib import Path

import pytest

from bench import count

PROGRAM = '''"""A module.

Of three lines.
"""
# a comment
import synth.model.topology


def f():
    """Return one."""
    return 1
'''


def test_docstrings_comments_and_empty_lines_are_no_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = Path("synth", "pareto", "sweep.py")
    path.parent.mkdir(parents=True)
    Path("synth", "model").mkdir()
    path.write_text(PROGRAM)
    size = count.Size()
    size.add(path)
    assert (size.files, size.lines, size.comments, size.code) == (1, 11, 1, 3)
    assert size.imports == {("pareto", "model")}
    # Module, two Exprs of docstrings and their Constants, Import, alias, FunctionDef, arguments, Return, Constant
    assert size.nodes == 11


@pytest.mark.parametrize("name", sorted(count.BUDGET))
def test_a_figure_over_its_budget_is_named(name):
    figures = dict(count.BUDGET)
    assert count.over_budget(figures) == []
    figures[name] += 1
    assert [line.partition(":")[0] for line in count.over_budget(figures)] == [name]
