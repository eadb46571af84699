"""The code beside a folder of MSCCL++ plans: what its selector takes for which request."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from test_plan_export import LARGE, SMALL, plan

from synth.commands import api
from synth.model.tuning_plan import Algorithm, Range, Table


def fake_mscclpp(monkeypatch, version="0.10") -> tuple[list, list]:
    """Stand in for MSCCL++'s Python modules. Return the lists of what is added to them, and of the selectors set."""

    class Algorithm(SimpleNamespace):
        Constraint = staticmethod(lambda ranks, per_node: (ranks, per_node))

    added, selectors = [], []
    builder = SimpleNamespace(add_algorithm_builder=added.append, set_algorithm_selector=selectors.append)
    types = SimpleNamespace(float32="float32", uint8="uint8")
    fake = SimpleNamespace(Algorithm=Algorithm, DataType=types, ExecutionPlan=lambda path, rank: (path, rank))
    ext = SimpleNamespace()
    (fake if version == "0.9" else ext).AlgorithmCollectionBuilder = lambda: builder
    monkeypatch.setitem(sys.modules, "mscclpp", fake)
    monkeypatch.setitem(sys.modules, "mscclpp.ext", ext)
    return added, selectors


def call(collective, ranks, rank, size, given=0, out=1 << 40, dtype="any"):
    """Return a request as MSCCL++ hands it to the selector."""
    return SimpleNamespace(
        collective=collective, world_size=ranks, rank=rank, message_size=size, input_buffer=given, output_buffer=out,
        dtype=dtype,
    )  # fmt: skip


@pytest.fixture(scope="module")
def files():
    """allgather and reduce-scatter on 4 ranks."""
    scatter = Algorithm("RS", "synth", plan().algorithms[0].schedule.reversed(), "Simple", 1, 4)
    more = Table("reduce-scatter", 4, (Range(0, SMALL, (2,)), Range(SMALL + 1, None, (4,))))
    both = replace(plan(), algorithms=(*plan().algorithms, scatter), tables=(*plan().tables, more))
    return dict(api.export_plan(both, "mscclpp-dir").files)


def requests():
    """(collective, ranks, rank, message size, input, output), what is to be taken."""
    start, far = 1 << 40, 1 << 41
    small, large, rs = "allgather-S2-R2-C1-LL", "allgather-S3-R3-C2", "reduce-scatter-S2-R2-C1"
    rank = 1
    for size, want in [
        (64, small),
        (SMALL, small),
        (LARGE, small),
        (72, None),
        (LARGE + 128, large),
        (LARGE + 64, None),
        (1 << 30, None),
    ]:
        part = size // 4
        yield ("allgather", 4, rank, part, start + rank * part, start), want and want + "-in-place"
        yield ("allgather", 4, rank, part, start, far), want
        yield ("allgather", 8, rank, part, start, far), None
        yield ("allreduce", 4, rank, part, start, far), None
    for size, want in [(64, None), (SMALL, None), (SMALL + 64, rs), (SMALL + 68, None), (1 << 20, rs)]:
        yield ("reducescatter", 4, rank, size, start, start + rank * (size // 4)), want and want + "-in-place"
        yield ("reducescatter", 4, rank, size, start, far), want


def number_off(name):
    return name and name.partition("-")[2]


def test_python_selects_and_registers(files, monkeypatch):
    scope = {"__file__": "/plans/register.py"}
    exec(files["register.py"], scope)
    added, selectors = fake_mscclpp(monkeypatch)
    kept = scope["register"](1, 4, 4)
    assert kept == added and selectors == [scope["select"]]
    assert sorted(a.id + ".json" for a in added) == sorted(name for name in files if name.endswith(".json"))
    assert all(a.execution_plan == (f"/plans/{a.id}.json", 1) and a.constraint == (4, 4) for a in added)
    with pytest.warns(UserWarning, match="no plan is loaded for 8 ranks, 8 of a node; there are plans for 4 ranks, "):
        assert scope["register"](1, 8, 8) == []
    known = {}
    for name in (row[-1] for row in scope["PLANS"]):
        known.setdefault("reducescatter" if "reduce" in name else "allgather", {})[name] = name
    for asked, want in requests():
        request = call(*asked)
        assert number_off(scope["select"](known, request)) == want, asked
    assert scope["select"]({}, request) is None


def test_the_code_says_which_calls_get_wrong_data(files):
    sums = "MSCCL++'s executor sums whatever the operator"
    gathered = dict(api.export_plan(plan(), "mscclpp-dir").files)
    assert files["register.py"].count(sums) == 1 and sums not in gathered["register.py"]
    assert "with a root other than" not in files["register.py"]
