"""Tables in MCR-DL's form: read as a plan, and written again with the same bytes."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from synth.commands import api, root
from synth.errors import FormatError, SynthError
from synth.export.plans import mcrdl, read
from synth.model.tuning_plan import Algorithm, Plan, Range, Table

TABLE = """\
# A table of the same form, allgather on 16 GPUs
bytes,backend
256,MVAPICH2-GDR
512,MVAPICH2-GDR
4096,NCCL
8192,SCCL
16384,NCCL
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = Path("mcrdl_allgather_16gpu.csv")
    path.write_text(TABLE)
    return path


def test_a_table_is_a_plan(file):
    plan = api.import_plan(file)
    read.check(plan)
    (table,) = plan.tables
    assert (table.collective, table.ranks) == ("allgather", 16)
    assert {a.label: a.backend for a in plan.algorithms} == {"MVAPICH2-GDR": "mpi", "NCCL": "nccl", "SCCL": "sccl"}
    sizes = 256, 300, 4095, 4096, 8191, 9000, 16383, 16384
    names = ["MVAPICH2-GDR"] * 3 + ["NCCL"] * 2 + ["SCCL"] * 2 + ["NCCL"]
    assert [plan.choose("allgather", size).label for size in sizes] == names
    assert plan.choose("allgather", 255) is None and plan.choose("allgather", 16385) is None


def test_by_commands(file):
    run = CliRunner().invoke
    assert run(root, ["tune", "--import", str(file), "-o", "p.json"]).exit_code == 0
    said = run(root, ["export", "--plan", "p.json", "--to", "mcrdl-csv", "-o", "out.csv"])
    assert said.exit_code == 0, said.stderr
    assert Path("out.csv").read_text() == TABLE


backends = st.sampled_from(["NCCL", "MVAPICH2-GDR", "Gloo", "SCCL", "x y"])
tables = st.dictionaries(st.integers(1, 1 << 40), backends, min_size=1, max_size=20)


@given(tables, st.sampled_from(["allreduce", "reduce-scatter", "alltoall"]), st.integers(2, 4096))
def test_any_table_of_the_form_comes_back(tmp_path_factory, rows, name, ranks):
    text = f"# {name} on {ranks} GPUs\nbytes,backend\n" + "".join(f"{size},{rows[size]}\n" for size in sorted(rows))
    path = tmp_path_factory.mktemp("t") / "t.csv"
    path.write_text(text)
    plan = api.import_plan(path)
    read.check(plan)
    assert mcrdl.files(plan) == [(f"mcrdl_{name}_{ranks}gpu.csv", text)]


def test_a_tuned_plan_has_a_table_for_each_operation(file):
    algorithms = (
        Algorithm("S2", schedule=None, divisor=8),
        Algorithm("nccl/ring/LL", "nccl", options=(("algorithm", "ring"),)),
    )
    one = Table("allgather", 4, (Range(8, 100, (0, 1)),), (8, 64, 100), (1.0, 1.0, 1.0), (1.0, 1.0, 1.0))
    plan = Plan(
        algorithms, (one, Table("allreduce", 4, (Range(8, 8, (1,)),), (8,), (1.0,), (1.0,))), "measured", "wall\ntime"
    )
    files = dict(mcrdl.files(plan))
    assert (
        files["mcrdl_allgather_4gpu.csv"]
        == "# allgather on 4 GPUs: wall time\nbytes,backend\n8,synth\n64,synth\n100,synth\n"
    )
    for name, text in files.items():
        Path(name).write_text(text)
        again = api.import_plan(name)
        assert mcrdl.files(again) == [(name, text)]


def test_what_the_form_cannot_say_is_refused():
    comma = Plan(
        (Algorithm("a,b", "nccl"),),
        (Table("allgather", 2, (Range(1, 1, (0,)),), (1,), (1.0,), (1.0,)),),
        "measured",
        "",
    )
    with pytest.raises(SynthError, match="cannot stand in a table"):
        mcrdl.files(comma)
    bare = Plan((Algorithm("x", "nccl"),), (Table("allgather", 2, (Range(1, 9, (0,)),)),), "measured", "")
    with pytest.raises(SynthError, match="judged no sizes"):
        mcrdl.files(bare)


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        (TABLE.replace("512,", "512;"), 4, "'512;MVAPICH2-GDR' is not a number of bytes"),
        (TABLE.replace("4096", "256"), 5, "256 bytes after 512: sizes grow"),
        (TABLE.replace("bytes,backend", "size,lib"), 2, "expected the header"),
        ("# allgather on 16 GPUs\nbytes,backend\n", None, "has no rows"),
        ("bytes,backend\n1,NCCL\n", None, "of which operation"),
        (TABLE.replace("NCCL", ""), 5, "is not a number of bytes and a backend"),
    ],
)
def test_what_is_wrong_has_a_file_and_a_line(tmp_path, text, line, what):
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(FormatError) as error:
        api.import_plan(path)
    assert str(error.value).startswith(f"{path}:" + ("" if line is None else f"{line}:"))
    assert what in str(error.value)


def test_operation_and_ranks_from_the_name_or_the_user(tmp_path):
    path = tmp_path / "x_reduce-scatter_8gpu.csv"
    path.write_text("bytes,backend\n1,NCCL\n")
    for asked in ((), ("reduce_scatter",), ("rs", 8)):
        assert [(t.collective, t.ranks) for t in api.import_plan(path, *asked).tables] == [("reduce-scatter", 8)]
    for asked in (("allgather",), ("reduce-scatter", 4), (None, 4)):  # the user's words replaced the file's
        with pytest.raises(FormatError, match="says 'reduce-scatter_8gpu', but"):
            api.import_plan(path, *asked)
    path.write_text("# allgather on 8 GPUs\nbytes,backend\n1,NCCL\n")
    with pytest.raises(FormatError, match="says 'reduce-scatter_8gpu', but allgather on 8 GPUs is asked for, or said"):
        api.import_plan(path)
    other = tmp_path / "t.csv"
    other.write_text("bytes,backend\n1,NCCL\n")
    assert [(t.collective, t.ranks) for t in api.import_plan(other, "allreduce", 3).tables] == [("allreduce", 3)]
