"""The table of collectives: who holds what before and after, sizes, reversal, permutations, files."""

from fractions import Fraction

import pytest

from synth.errors import FormatError, SynthError, UsageError
from synth.model.collective import COLLECTIVES, Collective, canonical_name, collective
from synth.model.documents.collective_files import load

SUM = "combining: true\npre: [[0, [0, 1]]]\npost: "
SIZES = {"allgatherv": [1, 2, 0, 3], "reduce-scatterv": [1, 2, 0, 3], "alltoallv": [[0, 1, 2, 0]] * 4}


def made(name):
    return collective(name, 4, sizes=SIZES.get(name))


@pytest.mark.parametrize(
    ("name", "units", "share", "combining"),
    [
        ("broadcast", 1, 1, False), ("reduce", 1, 1, True), ("allreduce", 1, 1, True), ("scan", 1, 1, True),
        *((name, 4, Fraction(1, 4), False) for name in ("scatter", "gather", "allgather")),
        ("reduce-scatter", 4, Fraction(1, 4), True), ("alltoall", 16, Fraction(1, 4), False),
        ("multi-broadcast", 2, Fraction(1, 2), False), ("multi-reduce", 2, Fraction(1, 2), True),
        ("multi-scatter", 8, Fraction(1, 4), False), ("multi-gather", 8, Fraction(1, 4), False),
        ("alltonext", 3, 1, False), ("sendrecv", 4, 1, False), ("allgatherv", 6, Fraction(1, 6), False),
        ("reduce-scatterv", 6, Fraction(1, 6), True), ("alltoallv", 12, Fraction(1, 8), False),
    ],
)  # fmt: skip
def test_units_shares_and_kinds(name, units, share, combining):
    task = made(name)
    assert (task.units, task.unit_share, task.combining) == (units, share, combining)


def test_every_collective_of_the_table_is_tested():
    names = {row[0] for row in test_units_shares_and_kinds.pytestmark[0].args[1]}
    assert names == set(COLLECTIVES)


@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize("chunks", [1, 3])
def test_json_round_trip(name, chunks):
    task = made(name)
    assert Collective.from_json(task.to_json(chunks), chunks) == task


def test_reversal():
    assert collective("reduce", 5, [3]).reversed() == collective("broadcast", 5, [3])
    assert collective("allgather", 5).reversed() == collective("reduce-scatter", 5)
    assert not collective("allreduce", 4).reversible
    assert not collective("scan", 4).reversible
    assert collective("reduce", 4).reversible


@pytest.mark.parametrize(
    ("written", "name"),
    [
        *[(name, "allreduce") for name in ("all_reduce", "all-reduce", "AllReduce", " ALL_REDUCE ", "ar")],
        *[(name, "allgather") for name in ("all_gather", "all-gather", "AG")],
        *[(name, "reduce-scatter") for name in ("reduce_scatter", "reducescatter", "ReduceScatter", "rs")],
        *[(name, "alltoall") for name in ("all_to_all", "all-to-all", "a2a")],
        *[(name, "allgatherv") for name in ("all_gather_v", "AllGatherV")],
        ("send_recv", "sendrecv"),
        ("bcast", "broadcast"),
    ],
)
def test_a_name_is_taken_in_every_usual_spelling(written, name):
    assert canonical_name(written) == name
    if not name.endswith("v"):
        assert collective(written, 4).name == name


def test_scan_wants_prefixes():
    assert collective("scan", 4).wanted(0, 2) == {0, 1, 2}


def test_unit_permutations_follow_ranks():
    turn = (1, 2, 3, 0)
    assert collective("allgather", 4).unit_permutation(turn) == turn
    assert collective("alltoall", 4).unit_permutation(turn)[0 * 4 + 1] == 1 * 4 + 2
    assert collective("broadcast", 4).unit_permutation(turn) is None
    assert collective("broadcast", 4).unit_permutation((0, 2, 1, 3)) == (0,)
    assert collective("scan", 4).unit_permutation((1, 0, 2, 3)) is None


@pytest.mark.parametrize(("arguments", "says"), [
    (("allgathr", 4), "did you mean allgather"), (("broadcast", 4, [4]), "root 4 is not a rank of 0..3"),
    (("multi-broadcast", 4, [1, 1]), "root 1 is given twice"),
    (("broadcast", 4, [0, 1]), "multi-broadcast takes several"), (("allgather", 4, [1]), "has no root"),
    (("allgatherv", 4), "needs a chunk count per rank"), (("allgatherv", 4, (), [1, 2]), "needs 4 chunk counts"),
    (("alltoallv", 4, (), [[1]]), "4 x 4 matrix"), (("allreduce", 4, (), [1]), "takes no sizes"),
])  # fmt: skip
def test_a_wrong_request_gets_one_line(arguments, says):
    with pytest.raises(UsageError, match=says) as error:
        collective(*arguments)
    assert "\n" not in str(error.value)


def test_a_custom_collective_from_a_file(tmp_path):
    with pytest.raises(SynthError, match="does not exist"):
        load(tmp_path / "none.yaml", 4)
    file = tmp_path / "exchange.yaml"
    file.write_text("pre: [[0, 0], [1, 3]]\npost: [[0, [2, 3]], [1, 0]]\n")
    task = load(file, 4)
    assert task.name == "exchange"
    assert task.post == (frozenset({2, 3}), frozenset({0}))
    file.write_text("combining: true\npre: [[0, [0, 1, 2]]]\npost: [[0, 2], [0, 1, [0, 1]]]\n")
    task = load(file, 3)
    assert task.wanted(0, 2) == {0, 1, 2}
    assert task.wanted(0, 1) == {0, 1}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("pre: [[0, 0]]\npost: [[1, 0]]", r"post\[0\]: unit 1 is on no rank"),
        ("pre: [[0, 9]]\npost: [[0, 1]]", r"pre\[0\]: expected a whole number from 0 to 3, found 9"),
        ("pre: [[1, 0]]\npost: [[1, 1]]", "unit 0 is missing"),
        ("pre: [[0, 0]]\npost: [[0, 1]]\nroots: 1", "unknown key 'roots'"),
        ("pre: [[0, 0]]\npost: [[0, 1]]\nname: allgather", "built-in"),
        ("pre: [[0, 0]]\npost: [[0, 1]]\nranks: 5", "over 5 ranks"),
        ("pre: [[0, 0", "exchange.yaml:[12]: is not YAML"),
        ("a: &x [1]\npre: *x\npost: *x", "alias"),
        ("[1, 2]", "expected a mapping"),
        ("pre: [[true, 0]]\npost: [[0, 1]]", "found true"),
        (f"{SUM}[[0, 2], [0, 1, []]]", r"post\[1\]: wants a sum of no contributions; leave"),
        (f"{SUM}[[0, 1, 0]]", r"post\[0\]: expected a list, found 0"),
        (f"{SUM}[[0, 2], [0, [1, 2], [0]]]", r"post\[1\]: rank 2 wants another sum of unit 0 in a row before"),
        ("pre: [[0, 0]]\npost: [[0, []]]", r"post\[0\]: names no rank"),
        ("pre: [[0, 0]]\npre: [[0, 1]]\npost: [[0, 1]]", r"yaml:2: the key 'pre' is given twice"),
        ('name: "a\\nb"\npre: [[0, 0]]\npost: [[0, 1]]', "name: expected a text of 1 to 64 printable characters"),
        ('name: "a\\e[2J"\npre: [[0, 0]]\npost: [[0, 1]]', "printable characters"),
        ("pre: [[0, 0], [1, []]]\npost: [[0, 1]]", r"pre\[1\]: names no rank"),
    ],
)
def test_a_wrong_file_gets_one_line_with_its_place(tmp_path, text, says):
    file = tmp_path / "exchange.yaml"
    file.write_text(text)
    with pytest.raises(FormatError, match=says) as error:
        load(file, 4)
    assert "exchange.yaml" in str(error.value)
    assert "\n" not in str(error.value)


def test_chunks_share_lists_of_contributors_in_the_read_only_document_alone():
    task = collective("scan", 4)
    shared, own = task.document_of(3), task.to_json(3)
    assert shared == own
    of_rank_2 = [[row[2] for row in document["post"] if row[1] == 2] for document in (shared, own)]
    assert [len(set(map(id, lists))) for lists in of_rank_2] == [1, 3]
    own["post"][0][2].append(1)
    assert task.to_json(3) == shared != own
