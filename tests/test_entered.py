"""Which lines of functions count as entered."""

from bench.entered import functions

PROGRAM = """
@decorator
def outer(a):
    if a < 0:
        raise ValueError("a")
    def inner():
        return a
    try:
        return inner()
    except KeyError:
        return None
"""


def test_inner_functions_and_failure_branches_are_left_out(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(PROGRAM)
    assert list(functions(path)) == [(2, "outer", 5), (6, "inner", 2)]
