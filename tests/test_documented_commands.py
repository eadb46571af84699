"""Every command of README.md and docs/ runs, and prints what the page shows."""

import pytest

from tests import documented_commands as documented


@pytest.mark.slow
@pytest.mark.parametrize("path", documented.pages(), ids=lambda path: path.stem)
def test_commands_of_the_page_run_and_print_what_it_shows(path, tmp_path):
    folder, cache = tmp_path / "page", tmp_path / "cache"
    folder.mkdir()
    cache.mkdir()
    for command in documented.commands(path):
        printed = documented.run(command, folder, cache)
        if command.shown is not None:
            assert documented.matches(command.shown, printed), "\n".join([command.text, *printed])


def test_commands_are_read_with_their_output_and_marks(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- file: a.txt = README.md -->\n<!-- exits: 4 -->\n```\n$ synth x  # why\none 3.2 s\n\n$ synth y\n```\n"
        "<!-- not run: a GPU -->\n```\nsynth z\n```\n```\nsynth v\nother\n```\n"
    )
    found = list(documented.commands(page))
    assert [(c.text, c.shown, c.code) for c in found] == [
        ("", None, 0),
        ("synth x  # why", ["one 3.2 s"], 4),
        ("synth y", [], 4),
        ("synth v", None, 0),
    ]
    assert found[0].copies == ("a.txt", "README.md")


def test_shown_output_is_compared_with_times_masked_and_lines_left_out():
    assert documented.matches(["took 3 s"], ["took 12.5 s"])
    assert not documented.matches(["took 3 rounds"], ["took 4 rounds"])
    assert documented.matches(["a", "...", "d"], ["a", "b", "c", "d"])
    assert not documented.matches(["a", "...", "d"], ["a", "b", "c"])
    assert not documented.matches(["b", "a"], ["a", "b"])
    assert not documented.matches([], ["a"])
