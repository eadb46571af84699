"""Matrices of nccl-tests' alltoallv: read as numbers of equal parts, refused with file and line."""

from math import gcd
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.cli import root
from synth.errors import FormatError, UsageError
from synth.model.traffic_matrix import MAX_BYTES, MAX_PARTS, load

SIZES = st.integers(0, 40).map(lambda count: 16 * count)
SQUARES = st.integers(2, 5).flatmap(lambda n: st.lists(st.lists(SIZES, min_size=n, max_size=n), min_size=n, max_size=n))
MATRIX = "0 32 16\n\n  48 0\t16 \n16 16 0\n"


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def written(text: str) -> Path:
    Path("m.txt").write_text(text)
    return Path("m.txt")


def test_rows_are_senders_and_the_part_is_the_greatest_common_divisor():
    found = load(written(MATRIX), 3)
    assert found == (((0, 2, 1), (3, 0, 1), (1, 1, 0)), 16, False)
    assert found.size == 64  # that rank 1 sends and rank 0 receives


def test_of_a_larger_matrix_the_first_ranks_count():
    assert load(written(MATRIX), 2).counts == ((0, 2), (3, 0))
    assert load(written("0 32 16\n96 0 16\n16 16 0\n"), 2) == (((0, 1), (3, 0)), 32, False)


@settings(max_examples=60, deadline=None)
@given(SQUARES, st.sampled_from([" ", "  ", "\t", ",", ", ", ";", " ; ", ",\t"]))
def test_separators_are_blanks_commas_or_semicolons(rows, separator):
    """Spreadsheets write CSV."""
    if any(map(any, rows)):
        plain = load(written("\n".join(" ".join(map(str, row)) for row in rows)), len(rows))
        assert load(written("\n".join(separator.join(map(str, row)) for row in rows)), len(rows)) == plain


@settings(max_examples=60, deadline=None)
@given(SQUARES, st.sampled_from([None, 16, 64, 96]))
def test_parts_are_as_many_as_the_bytes_need(rows, part):
    path = written("\n".join(" ".join(map(str, row)) for row in rows))
    if not any(map(any, rows)):
        with pytest.raises(FormatError, match="are 0"):
            load(path, len(rows), part)
        return
    found = load(path, len(rows), part)
    for row, counts in zip(rows, found.counts, strict=True):
        for size, count in zip(row, counts, strict=True):
            assert (count - 1) * found.part < size <= count * found.part if size else count == 0
    assert found.rounded == (part is not None and any(size % part for row in rows for size in row))
    if part is None:
        assert gcd(*(count for row in found.counts for count in row)) == 1


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("0 16 32\n16 0\n", "m.txt:1: has 3 sizes, and the matrix 2 rows"),
        ("0 16\n-16 0\n", "m.txt:2: '-16' is no size in bytes"),
        ("0 16\nnan 0\n", "m.txt:2: 'nan' is no size"),
        ("0 1e6\n16 0\n", "m.txt:1: '1e6' is no size"),
        ("0 ٣\n16 0\n", "m.txt:1: '٣' is no size"),
        (f"0 {'9' * 5000}\n16 0\n", "m.txt:1: '999999999999999999999999' is no size"),
        ("0 16\n17 0\n", "m.txt:2: 17 bytes are no multiple of 16"),
        ("0 0\n0 0\n", "m.txt: all sizes between the 2 ranks are 0"),
        ("a,b\n0,16\n16,0\n", "m.txt:1: 'a' is no size in bytes"),
        ("0,16,\n16,0,\n", "m.txt:1: '' is no size in bytes"),
        ("0,,16\n16,0\n", "m.txt:1: '' is no size in bytes"),
        ("0 16,32\n16 0,16\n", "m.txt:1: '0 16' is no size in bytes"),
        ("0,16;32\n", "m.txt:1: '16;32' is no size in bytes"),
        (
            "0.5,0.5\n1,0\n",
            "m.txt:1: '0.5' is no size in bytes, a whole number from 0 to 281474976710656 (no header, no",
        ),
        ("0,1,024\n1,024,0\n", "m.txt:1: 1 bytes are no multiple of 16"),
        ("\n\n", "m.txt: is empty"),
        ("16\n", "m.txt: is a matrix of 1 ranks; the machine has 2"),
    ],
)
def test_bad_files_are_refused_with_the_line(text, error):
    with pytest.raises(FormatError) as refused:
        load(written(text), 2)
    assert error in str(refused.value) and "\n" not in str(refused.value)


def test_a_large_file_is_refused_by_size():
    with open("m.txt", "wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(FormatError, match=f"has {MAX_BYTES + 1} bytes; at most {MAX_BYTES} are read"):
        load(Path("m.txt"), 2)


def test_too_many_parts_are_refused():
    path = written(f"0 {16 * 1009}\n{16 * 1021} 0\n")
    with pytest.raises(UsageError, match=r"2030 parts of 16 bytes, the greatest common divisor.* --part with more"):
        load(path, 2)
    found = load(path, 2, 32)
    assert sum(map(sum, found.counts)) == 1016 <= MAX_PARTS
    with pytest.raises(UsageError, match="a multiple of 16"):
        load(path, 2, 24)


def command(*words: str, code: int = 0):
    outcome = CliRunner().invoke(root, list(words))
    assert outcome.exit_code == code, (outcome.stdout, outcome.stderr, outcome.exception)
    return outcome


def test_a_frontier_of_a_matrix_is_run():
    written("0 32\n16 0\n")
    words = ("pareto", "--topo", "line:2", "--coll", "alltoallv", "--matrix", "m.txt")
    out = command(*words, "-o", "f.json")
    assert "m.txt: 3 parts of 16 bytes; the size of the call is 32 bytes" in out.stderr
    assert "right" in command("run", "f.json", "--size", "32").stdout
    assert "rounded up" in command(*words, "--part", "32").stderr


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--coll", "alltoall", "--matrix", "m.txt"), "holds the sizes of an alltoallv, not of alltoall"),
        (("--coll", "alltoallv", "--matrix", "m.txt", "--counts", "0,1;1,0"), "leave one out"),
        (("--coll", "alltoall", "--part", "64KB"), "--part is for the sizes of --matrix"),
    ],
)
def test_options_that_do_not_go_together(words, error):
    written("0 16\n16 0\n")
    assert error in command("pareto", "--topo", "line:2", *words, code=2).stderr
