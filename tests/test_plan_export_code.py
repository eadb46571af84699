"""The code beside a folder of MSCCL++ plans: what its selectors, in Python and C++, take for which request.

The stub headers below say of microsoft/mscclpp 0.9 what the generated header uses; MSCCL++ itself is not needed.
"""

from __future__ import annotations

import subprocess
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import needs
import pytest
from test_plan_export import LARGE, SMALL, plan

from synth import api
from synth.model.tuning_plan import Algorithm, Range, Table

ALGORITHM = """
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
namespace mscclpp {
struct ExecutionPlan { ExecutionPlan(const std::string& path, int rank) : path(path), rank(rank) {} std::string path;
int rank; }; struct Algorithm {
  struct Constraint { int worldSize; int nRanksPerNode; };
  virtual ~Algorithm() = default;
  virtual std::string text() const = 0;
};
struct AlgorithmBuilder { virtual ~AlgorithmBuilder() = default; virtual std::shared_ptr<Algorithm> build() = 0; };
struct DslAlgorithm : Algorithm, AlgorithmBuilder, std::enable_shared_from_this<DslAlgorithm> {
  DslAlgorithm(std::string id, ExecutionPlan plan, std::unordered_map<std::string, uint64_t> = {}, Constraint where =
  {})
      : id(id), plan(plan), where(where) {}
  std::shared_ptr<Algorithm> build() override { return shared_from_this(); }
  std::string text() const override { return id; }
  std::string id; ExecutionPlan plan; Constraint where;
};
enum class DataType { INT32, UINT32, FLOAT16, FLOAT32, BFLOAT16, UINT8 };
struct CollectiveRequest {
  int worldSize, nRanksPerNode, rank;
  const void* inputBuffer; void* outputBuffer;
  size_t messageSize;
  const std::string& collective;
  const DataType dtype;
};
using AlgoSelectFunc = std::function<std::shared_ptr<Algorithm>(
    const std::unordered_map<std::string, std::unordered_map<std::string, std::shared_ptr<Algorithm>>>&, const
    CollectiveRequest&)>;
}
"""
BUILDER = """
#pragma once
#include <mscclpp/algorithm.hpp>
#include <vector>
namespace mscclpp { namespace collective {
struct AlgorithmCollectionBuilder {
  static std::shared_ptr<AlgorithmCollectionBuilder> getInstance() {
    static auto one = std::make_shared<AlgorithmCollectionBuilder>();
    return one;
  }
  void addAlgorithmBuilder(std::shared_ptr<AlgorithmBuilder> builder) { builders.push_back(builder); }
  void setAlgorithmSelector(AlgoSelectFunc f) { selector = f; }
  std::vector<std::shared_ptr<AlgorithmBuilder>> builders; AlgoSelectFunc selector;
};
} }
"""
MAIN = """
#include <cstdio>
#include "register.hpp"
int main() {
  synth_plans::registerPlans("/plans", 1, 8, 8);
  synth_plans::registerPlans("/plans", 1, 4, 4);
  auto builder = mscclpp::collective::AlgorithmCollectionBuilder::getInstance();
  std::unordered_map<std::string, std::unordered_map<std::string, std::shared_ptr<mscclpp::Algorithm>>> known;
  for (auto& one : builder->builders) {
    auto algorithm = std::static_pointer_cast<mscclpp::DslAlgorithm>(one->build());
    if (algorithm->plan.path != "/plans/" + algorithm->id + ".json" || algorithm->plan.rank != 1) return 1;
    for (const auto& row : synth_plans::plans) if (algorithm->id == row.name) known[row.collective][algorithm->id] =
    algorithm;
  }
  char name[64]; int ranks, rank; unsigned long long size; long long input, output;
  while (std::scanf("%63s %d %d %llu %lld %lld", name, &ranks, &rank, &size, &input, &output) == 6) {
    const std::string collective = name;
    mscclpp::CollectiveRequest request{ranks, ranks, rank, (const void*)input, (void*)output, (size_t)size, collective,
    mscclpp::DataType::UINT8};
    auto found = builder->selector(known, request);
    std::puts(found ? found->text().c_str() : "-");
  }
}
"""


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
    added, selectors = [], []
    builder = SimpleNamespace(add_algorithm_builder=added.append, set_algorithm_selector=selectors.append)
    fake, ext = ModuleType("mscclpp"), ModuleType("mscclpp.ext")
    ext.AlgorithmCollectionBuilder = lambda: builder
    fake.ExecutionPlan = lambda path, rank: (path, rank)

    class FakeAlgorithm(SimpleNamespace):
        Constraint = staticmethod(lambda ranks, per_node: (ranks, per_node))

    fake.Algorithm = FakeAlgorithm
    monkeypatch.setitem(__import__("sys").modules, "mscclpp", fake)
    monkeypatch.setitem(__import__("sys").modules, "mscclpp.ext", ext)
    kept = scope["register"](1, 4, 4)
    assert kept == added and selectors == [scope["select"]]
    assert sorted(a.id + ".json" for a in added) == sorted(name for name in files if name.endswith(".json"))
    assert all(a.execution_plan == (f"/plans/{a.id}.json", 1) and a.constraint == (4, 4) for a in added)
    with pytest.warns(UserWarning, match="no plan is loaded for 8 ranks, 8 of a node; there are plans for 4 ranks, "):
        assert scope["register"](1, 8, 8) == []
    known = {}
    for name in (row[-1] for row in scope["PLANS"]):
        known.setdefault("reducescatter" if "reduce" in name else "allgather", {})[name] = name
    for (coll, ranks, rank, size, given, out), want in requests():
        request = SimpleNamespace(
            collective=coll, world_size=ranks, rank=rank, message_size=size, input_buffer=given, output_buffer=out
        )
        assert number_off(scope["select"](known, request)) == want, (coll, ranks, size)
    assert scope["select"]({}, request) is None


def test_cpp_selects_the_same(files, tmp_path):
    needs.need("g++")
    for name, text in (("algorithm.hpp", ALGORITHM), ("ext/collectives/algorithm_collection_builder.hpp", BUILDER)):
        path = tmp_path / "mscclpp" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "register.hpp").write_text(files["register.hpp"])
    (tmp_path / "main.cc").write_text(MAIN)
    subprocess.run(["g++", "-std=c++17", "-Wall", "-I.", "main.cc", "-o", "main"], cwd=tmp_path, check=True)
    asked = list(requests())
    given = "".join(" ".join(map(str, request)) + "\n" for request, _ in asked)
    ran = subprocess.run([tmp_path / "main"], input=given, capture_output=True, text=True, check=True)
    said = ran.stdout.split()
    assert [None if line == "-" else number_off(line) for line in said] == [want for _, want in asked]
    (line,) = ran.stderr.splitlines()
    assert line == "synth_plans: no plan is loaded for 8 ranks, 8 of a node; there are plans for 4 ranks, 4 of a node"


def test_the_code_says_which_calls_get_wrong_data(files):
    sums = "MSCCL++'s executor sums whatever the operator"
    gathered = dict(api.export_plan(plan(), "mscclpp-dir").files)
    for name in ("register.py", "register.hpp"):
        assert files[name].count(sums) == 1 and sums not in gathered[name]
        assert "with a root other than" not in files[name]
