"""Code that registers a folder of MSCCL++ plans, in Python and C++: one table and one selector.

API of microsoft/mscclpp 0.9 (include/mscclpp/algorithm.hpp, ext/collectives/algorithm_collection_builder.hpp and their
Python bindings). A request carries one rank's bytes for allgather and the input's for all others; MSCCL++ takes the
in-place reduce-scatter for out of place, so the addresses are compared here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from synth.export.mscclpp.emit import collective_name, message_sizes
from synth.program import plan_limits as limits
from synth.program.program import Program


class PlanRegistration(NamedTuple):
    """The calls that one plan serves: sizes from `low` to `high` bytes, multiples of `divisor`.

    Sizes are MSCCL++'s: the input's bytes, for allgather the output's.
    """

    collective: str
    ranks: int
    low: int
    high: int
    divisor: int
    in_place: bool
    name: str

    @staticmethod
    def of(program: Program) -> PlanRegistration:
        """Return the entry of a one-sided program whose range of sizes has an end; its file has the program's name."""
        name = collective_name(program)
        divisor = limits.ALIGNMENT * max(limits.chunk_counts(gpu)[limits.counted_side(program)] for gpu in program.gpus)
        low, high = message_sizes(program)
        return PlanRegistration(name, program.ranks, low, high, divisor, program.in_place == "in", program.name)


def python(entries: Sequence[PlanRegistration]) -> str:
    """Return a module with `register(rank, ranks, ranks_per_node)` and `select(algorithms, request)`."""
    rows = "".join(f"    {tuple(entry)!r},\n" for entry in entries)
    return f'''"""Registers the MSCCL++ plans of this folder: call register() on every rank before the first communicator is made."""

import os

# collective, ranks, least and greatest size (bytes of the input, for allgather of the output), divisor, in place, name
PLANS = [
{rows}]


def register(rank, ranks, ranks_per_node, folder=os.path.dirname(os.path.abspath(__file__))):
    """Loads the plans for so many ranks and installs the selector; keep what it returns for as long as they are used."""
    import mscclpp

    try:
        from mscclpp.ext import AlgorithmCollectionBuilder
    except ImportError:
        AlgorithmCollectionBuilder = mscclpp.AlgorithmCollectionBuilder
    builder, kept = AlgorithmCollectionBuilder(), []
    where = mscclpp.Algorithm.Constraint(ranks, ranks_per_node)
    for _, wanted, _, _, _, _, name in PLANS:
        if wanted == ranks:
            plan = mscclpp.ExecutionPlan(os.path.join(folder, name + ".json"), rank)
            algorithm = mscclpp.Algorithm(id=name, execution_plan=plan, constraint=where)
            builder.add_algorithm_builder(algorithm)
            kept.append(algorithm)
    builder.set_algorithm_selector(select)
    return kept


def select(algorithms, request):
    """The plan for a request, None where MSCCL++ shall choose."""
    size, shift = request.message_size, 0
    if request.collective == "allgather":
        size, shift = size * request.world_size, -request.rank * size
    elif request.collective == "reducescatter":
        shift = request.rank * (size // request.world_size)
    in_place = request.output_buffer == request.input_buffer + shift
    for collective, ranks, low, high, divisor, place, name in PLANS:
        if (collective, ranks, place) == (request.collective, request.world_size, in_place):
            if low <= size <= high and size % divisor == 0:
                return algorithms.get(collective, {{}}).get(name)
    return None
'''


def cpp(entries: Sequence[PlanRegistration]) -> str:
    """Return a C++ header with the same functions: `synth_plans::registerPlans(folder, rank, ranks, ranksPerNode)`."""
    rows = "".join(
        f'    {{"{e.collective}", {e.ranks}, {e.low}ull, {e.high}ull, {e.divisor}ull, {str(e.in_place).lower()}, '
        f'"{e.name}"}},\n'
        for e in entries
    )
    return f"""// Registers the MSCCL++ plans of this folder: call registerPlans() on every rank before the first communicator is made.
#pragma once
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>

#include <mscclpp/algorithm.hpp>
#include <mscclpp/ext/collectives/algorithm_collection_builder.hpp>

namespace synth_plans {{

struct Entry {{
  const char* collective;
  int ranks;
  size_t low, high;  // bytes of the input, for allgather of the output
  size_t divisor;
  bool inPlace;
  const char* name;
}};

inline const Entry plans[] = {{
{rows}}};

using Algorithms = std::unordered_map<std::string, std::unordered_map<std::string, std::shared_ptr<mscclpp::Algorithm>>>;

// The plan for a request; nothing where MSCCL++ shall choose.
inline std::shared_ptr<mscclpp::Algorithm> select(const Algorithms& algorithms, const mscclpp::CollectiveRequest& request) {{
  size_t size = request.messageSize;
  const char* start = static_cast<const char*>(request.inputBuffer);
  if (request.collective == "allgather") {{
    start -= request.rank * size;
    size *= request.worldSize;
  }} else if (request.collective == "reducescatter") {{
    start += request.rank * (size / request.worldSize);
  }}
  const bool inPlace = start == static_cast<const char*>(request.outputBuffer);
  for (const Entry& plan : plans) {{
    if (request.collective != plan.collective || request.worldSize != plan.ranks || inPlace != plan.inPlace) continue;
    if (size < plan.low || size > plan.high || size % plan.divisor != 0) continue;
    auto named = algorithms.find(request.collective);
    if (named == algorithms.end()) return nullptr;
    auto found = named->second.find(plan.name);
    return found == named->second.end() ? nullptr : found->second;
  }}
  return nullptr;
}}

// Loads the plans for so many ranks and installs the selector.
inline void registerPlans(const std::string& folder, int rank, int ranks, int ranksPerNode) {{
  auto builder = mscclpp::collective::AlgorithmCollectionBuilder::getInstance();
  const mscclpp::Algorithm::Constraint where{{ranks, ranksPerNode}};
  for (const Entry& plan : plans) {{
    if (plan.ranks != ranks) continue;
    mscclpp::ExecutionPlan loaded(folder + "/" + plan.name + ".json", rank);
    std::unordered_map<std::string, uint64_t> tags;
    builder->addAlgorithmBuilder(std::make_shared<mscclpp::DslAlgorithm>(plan.name, loaded, tags, where));
  }}
  builder->setAlgorithmSelector(select);
}}

}}  // namespace synth_plans
"""
