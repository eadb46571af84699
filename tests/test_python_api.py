"""The functions and values of `synth` for Python: documentation whose examples run, and what they take."""

from __future__ import annotations

import doctest
import inspect
import os
import pkgutil
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

import synth
from synth.errors import ArgumentError, FormatError, SynthError, UsageError

MORE = ("baseline", "bench", "lint", "lower", "report")  # of synth.api
PUBLIC = {name: getattr(synth, name) for name in synth.__all__} | {name: getattr(synth.api, name) for name in MORE}
NAMES = sorted(PUBLIC)
HALO = {"name": "halo", "pre": {0: 0, 1: 1}, "post": {0: {1}, 1: {0, 2}}}


def examples(value: object) -> list[doctest.DocTest]:
    found = doctest.DocTestFinder(recurse=False).find(value, module=False, globs={})
    return [test for test in found if test.examples]


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_of_each_public_name_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SYNTH_CACHE", str(tmp_path))
    tests = examples(PUBLIC[name])
    assert tests
    for test in tests:
        said: list[str] = []
        result = doctest.DocTestRunner().run(test, out=said.append)
        assert result.failed == 0, "".join(said)


@pytest.mark.parametrize("name", NAMES)
def test_each_public_name_is_a_function_or_class_with_documentation(name):
    value = PUBLIC[name]
    assert inspect.isfunction(value) or inspect.isclass(value)
    doc = inspect.getdoc(value)
    assert doc is not None and len(doc.splitlines()[0]) < 120
    if not inspect.isfunction(value):
        return
    for section in ("Parameters", "Returns", "Raises", "Examples"):
        assert f"\n{section}\n{'-' * len(section)}\n" in doc


@pytest.mark.parametrize("name", sorted(synth.api.__all__))
def test_the_parameters_of_a_docstring_are_those_of_the_function_and_have_types(name):
    value = getattr(synth.api, name)
    if inspect.ismodule(value):
        return
    signature, doc = inspect.signature(value), inspect.getdoc(value)
    assert doc and signature.return_annotation is not inspect.Signature.empty
    assert all(one.annotation is not inspect.Parameter.empty for one in signature.parameters.values())
    if "Parameters\n-----" in doc:
        listed = doc.split("Parameters\n----------\n")[1].split("\n\n")[0]
        heads = [line.split(" : ")[0] for line in listed.splitlines() if not line.startswith(" ")]
        assert {word for head in heads for word in head.split(", ")} == set(signature.parameters)


@pytest.mark.parametrize("limit", ["5s", float("nan")])
def test_a_time_limit_is_a_number_of_seconds(limit, tmp_path):
    calls = (
        lambda: synth.frontier("ring:4", "allgather", time_limit=limit),
        lambda: synth.solve("ring:4", "allgather", 1, 2, 4, time_limit=limit),
        lambda: synth.bound("ring:4", "allgather", time_limit=limit),
        lambda: synth.tune("ring:4", "allgather", time_limit=limit),
        lambda: synth.build("ring:4", "allgather", tmp_path, time_limit=limit),
    )
    for call in calls:
        with pytest.raises(UsageError, match="is not a number of seconds, such as 20"):
            call()


def test_types_are_shipped():
    assert (Path(synth.__file__).parent / "py.typed").is_file()


def test_networkx_graphs_are_machines():
    ring = nx.cycle_graph(4)
    nx.set_edge_attributes(ring, 12.5, "bandwidth")
    machine = synth.topology(ring)
    assert machine.ranks == 4 and len(machine.links) == 8
    assert machine.links[0] == synth.Link(0, 1, Fraction(25, 2), 1)
    assert synth.frontier(ring, "allgather", multicast=False).points[0].rounds_per_chunk == Fraction(3, 2)
    directed = nx.DiGraph(unit=25)
    directed.add_edge("a", "b", units=np.int64(2), latency=np.float32(0.7), kind="nvlink")
    directed.add_edge("b", "a", units=1)
    links = synth.topology(directed).links
    assert links[0] == synth.Link(0, 1, 50, Fraction(7, 10), "nvlink") and links[1].bandwidth == 25
    parallel = nx.MultiDiGraph([(4, 7, {"bandwidth": 1}), (4, 7, {"bandwidth": 2}), (7, 4, {"bandwidth": 2})])
    machine = synth.topology(parallel)
    assert [link.bandwidth for link in machine.links] == [3, 2] and machine.labels == (4, 7)
    assert "edges without a bandwidth count 1 GB/s" in synth.topology(nx.DiGraph([(0, 1)])).notes
    switched = nx.Graph()
    switched.add_node("sw", switch=True)
    switched.add_edges_from([(0, "sw", {"bandwidth": 1}), (1, "sw", {"bandwidth": 1})])
    assert (synth.topology(switched).ranks, synth.topology(switched).switches) == (2, ("sw",))


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ({"bandwith": 3}, "did you mean bandwidth"),
        ({"bandwidth": "x"}, "expected a number such as"),
        ({"bandwidth": float("nan")}, "expected a number such as"),
        ({"bandwidth": -1}, "must be positive"),
        ({"units": "many"}, "not a number"),
    ],
)
def test_a_graph_that_makes_no_sense_is_refused(attributes, says):
    with pytest.raises(FormatError, match=says):
        synth.topology(nx.Graph([(0, 1, attributes)]))


def test_mappings_are_machines():
    links = (synth.Link(0, 1, 25, 1), synth.Link(1, 0, Fraction(3, 2), Fraction(27, 10), "net"))
    other = {"bandwidth": Decimal("1.5"), "kind": "net"}
    assert synth.topology({(0, 1): 25.0, (1, 0): other}).links == links
    assert synth.topology({0: {1: np.int32(25)}, 1: {0: other}}).links == links
    document = {"ranks": 2, "links": [{"src": 0, "dst": 1, "bandwidth": 0.1, "both": True}]}
    assert [link.bandwidth for link in synth.topology(document).links] == [Fraction(1, 10)] * 2
    with pytest.raises(FormatError, match="expected \\(source, destination\\)"):
        synth.topology({3: 4})
    with pytest.raises(FormatError, match="'ranks' is missing"):
        synth.topology({})


def test_numbers_of_links_are_exact():
    assert synth.Link(np.int64(0), 1, 0.1).bandwidth == Fraction(1, 10)
    assert synth.Link(0, 1, np.float64(0.1), "1/3") == synth.Link(0, 1, "0.1", Fraction(1, 3))
    assert synth.Limit("port", {1, 0}, 2.5) == synth.Limit("port", (0, 1), Fraction(5, 2))
    machine = synth.Topology("pair", 2, [synth.Link(0, 1, 2)], [synth.Limit("x", [0], 1)])
    assert machine.unit_bandwidth() == 1 and isinstance(machine.limits, tuple)
    for wrong in (float("inf"), float("nan"), True, None, "wide"):
        with pytest.raises(UsageError, match="bandwidth of the link 0-1: "):
            synth.Link(0, 1, wrong)  # type: ignore[arg-type]


def test_collectives_of_sets_and_mappings():
    own = synth.Collective("own", 3, [{0}, 1, [2, np.int64(1)]], [1, (2,), {0}])
    assert own.pre == (frozenset({0}), frozenset({1}), frozenset({1, 2}))
    assert own == synth.Collective("own", 3, own.pre, own.post)
    halo = synth.collective(HALO, 3)
    assert halo == synth.Collective("halo", 3, [0, 1], [1, {0, 2}])
    assert synth.collective({**HALO, "pre": [(0, 0), (1, {1})]}, np.int64(3)) == halo
    assert synth.frontier("ring:3", HALO).points[0].steps == synth.frontier("ring:3", halo).points[0].steps == 1
    assert synth.bound("ring:3", HALO)[0][1].value == 1
    sums = synth.Collective("sums", 2, [{0, 1}], [{0, 1}], True, wants=[{1: [0, 1], 0: 0}])
    assert sums.wants == (((0, frozenset({0})), (1, frozenset({0, 1}))),)
    with pytest.raises(FormatError, match="found 9"):
        synth.collective({**HALO, "post": {0: 9}}, 3)


def test_numbers_sets_and_texts_where_they_are_clear():
    assert synth.collective("broadcast", 8, roots=3).roots == (3,)
    assert synth.collective("multi-broadcast", 8, roots={5, 3}).roots == (3, 5)
    assert synth.collective("broadcast", np.int64(8), roots=np.array([3])).to_json(1)["root"] == 3
    one = synth.topology("dgx1", without="0-3", degrade={(0, 1): 0.5}, ranks={0, 1, 2, 3})
    assert one == synth.topology("dgx1", without=[(0, 3)], degrade=["0-1:1/2"], ranks="0,1,2,3")
    schedule = synth.frontier("ring:4", "allgather").points[0].schedule
    assert synth.run(schedule, size="64KB").size == synth.run(schedule, size=np.float64(65536)).size == 65536
    assert [row.size for row in synth.time_bound("ring:4", "allgather", ("1KB", 2048.0)).rows] == [1024, 2048]
    with pytest.raises(ArgumentError, match=r"0\.5 is not a size in bytes"):
        synth.run(schedule, size=0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: synth.run(ring_schedule(), sise=64), "no such option: sise; did you mean size"),
        (lambda: synth.frontier("ring:4", "allgather", encoding=3), "encoding: 3 is not a text"),
        (lambda: synth.frontier("ring:4", "allgather", fresh="no"), "fresh: 'no' is not True or False"),
        (lambda: synth.frontier("ring:4", "allgather", max_steps="3"), "max_steps: '3' is not a whole number >= 1"),
        (lambda: synth.frontier("ring:4", "allgather", jobs="2"), "jobs: '2' is not a whole number >= 1"),
        (lambda: synth.frontier("ring:4", "allgather", seed=1.5), "seed: 1.5 is not a whole number"),
        (lambda: synth.frontier("ring:4", "allgather", sweep="wild"), "unknown sweep 'wild'; there are guided, blind"),
        (lambda: synth.solve("ring:4", "allgather", 1, 0, 1), "steps: 0 is not a whole number >= 1"),
        (lambda: synth.frontier(3, "allgather"), "a topology is a name, .* not the type int: 3"),
        (lambda: synth.frontier({1, 2}, "allgather"), "not the type set"),
        (lambda: synth.frontier("ring:4", 3), "a collective is a name, .* not the type int: 3"),
        (lambda: synth.frontier("ring:4", "broadcast", roots="0"), "roots: expected whole numbers"),
        (lambda: synth.topology("dgx1", without=[3]), "expected a pair of ranks"),
        (lambda: synth.frontier("ring:4", synth.Collective("x", 4, [9], [1])), "unit 0 is on rank 9"),
        (lambda: synth.frontier("ring:4", synth.Collective("x", 4, [1], [])), "pre has 1 units and post 0"),
        (lambda: synth.frontier("ring:4", synth.Collective("x", 4, [()], [1])), "on no rank before"),
    ],
)
def test_arguments_that_no_function_takes(call, says):
    with pytest.raises(ArgumentError, match=says) as caught:
        call()
    assert isinstance(caught.value, TypeError) and isinstance(caught.value, SynthError)


def ring_schedule() -> synth.Schedule:
    return synth.frontier("ring:4", "allgather").points[0].schedule


def test_no_module_hides_a_function():
    """A submodule named as a function of its package is that name for type checkers, and after `import`."""
    modules = {found.name for found in pkgutil.iter_modules(synth.__path__)}
    assert modules & set(synth.__all__) == set()


SCRIPT = Path(__file__).parent / "fixtures" / "user_script.py"


@pytest.mark.slow
def test_a_users_script_is_typed_and_runs(tmp_path):
    pyright = Path(sys.executable).with_name("pyright")
    if not pyright.is_file():
        pytest.skip("pyright is not installed; run: pip install 'ccl-synth[dev]'")
    root = SCRIPT.parent.parent.parent
    done = subprocess.run([pyright, SCRIPT], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    wrong = SCRIPT.read_text().replace("max_steps=2", 'max_steps="2"').replace("done.gbps is", "done.speed is")
    (tmp_path / "wrong.py").write_text(wrong)
    python = f"--pythonpath={sys.executable}"
    done = subprocess.run(
        [pyright, python, tmp_path / "wrong.py"], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert '"max_steps"' in done.stdout and '"speed"' in done.stdout


@pytest.mark.slow
def test_a_users_script_runs(tmp_path):
    environment = {**os.environ, "SYNTH_CACHE": str(tmp_path)}
    command = [sys.executable, str(SCRIPT), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "4 2 1.5 True" and lines[-3:] == ["Sat 1", "1", "2"]


@pytest.mark.parametrize("size", ["64KB", 65536, ["64KB"]])
def test_one_size_need_not_stand_in_a_list(size):
    """A text was read letter by letter: "sizes: '6' ... 'K' is not a size"."""
    found = synth.frontier("ring:4", "allgather")
    assert synth.tune(frontiers=[found], sizes=size).tables[0].sizes == (65536,)
    assert synth.api.bench(found, size, point=1).to_json()["rows"][0]["size"] == 65536
    for wrong in ("64 parsecs", [None]):
        with pytest.raises(UsageError, match=r"sizes: .* is not a size in bytes, such as 65536 or '64KB'"):
            synth.tune(frontiers=[found], sizes=wrong)  # type: ignore[arg-type]


def test_the_best_point_for_no_size_is_an_error_of_one_line():
    found = synth.frontier("ring:3", "allgather")
    assert found.best("64KB") == found.best(65536)
    with pytest.raises(UsageError, match="'64 parsecs' is not a size such as 512, 64KB, 1MB or 1GB"):
        found.best("64 parsecs")
    with pytest.raises(SynthError, match="this frontier has no point"):
        replace(found, points=()).best("64KB")


def test_dir_lists_what_is_offered_and_nothing_else():
    assert set(dir(synth)) == {*synth.__all__, "__version__", "api"}
    assert set(dir(synth.api)) == set(synth.api.__all__)
