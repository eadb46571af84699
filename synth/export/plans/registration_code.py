"""Code that registers a folder of MSCCL++ plans in Python: one table and one selector.

API of microsoft/mscclpp 0.9 and 0.10 (include/mscclpp/algorithm.hpp, ext/collectives/algorithm_collection_builder.hpp
and their Python bindings). A request carries one rank's bytes for allgather and the input's for all others; MSCCL++
takes the in-place reduce-scatter for out of place, so the addresses are compared here. It also carries the type of the
elements: plans serve all, but the kernel's switch channels sum no 8-bit types.
"""

from __future__ import annotations

from collections.abc import Sequence

from synth.export.mscclpp.emit import collective_name, message_sizes, switch_channels
from synth.export.request import Machine
from synth.model.build_result import PlanRegistration
from synth.program import plan_limits as limits
from synth.program.program import Program

# MSCCL++'s types that its kernel sums through switch channels.
SWITCH_TYPES = ("float32", "float16", "bfloat16", "int32", "uint32")


def registration(program: Program, machine: Machine | None) -> PlanRegistration:
    """Return the entry of a one-sided program whose range of sizes has an end; its file has the program's name.

    `machine`: the boxes of its ranks, if they are known.
    """
    divisor = limits.ALIGNMENT * max(limits.chunk_counts(gpu)[limits.counted_side(program)] for gpu in program.gpus)
    per_node = 0 if machine is None else machine.ranks_per_host
    return PlanRegistration(
        collective_name(program), program.ranks, per_node, *message_sizes(program), divisor, program.in_place == "in",
        bool(switch_channels(program)), program.name,
    )  # fmt: skip


def python(entries: Sequence[PlanRegistration], version: str, warnings: Sequence[str] = ()) -> str:
    """Return a module with `register(rank, ranks, ranks_per_node)` and `select(algorithms, request)`.

    `version`: the version of MSCCL++ whose format the plans have. `warnings`: a sentence for each kind of call that
    the plans would answer with wrong data (`folder_notes.call_warnings`).
    """
    rows = "".join(f"    {tuple(entry)!r},\n" for entry in entries)
    said = "".join(f"\nWarning: {warning}.\n" for warning in warnings)
    return f'''"""Registers the plans of this folder, of the format of MSCCL++ {version}.

Call register() on every rank before the first communicator is made.
{said}"""

import os
import warnings

# collective, ranks, ranks of a node (0: any), least and greatest size (bytes of the input, for allgather of the output),
# divisor, in place, uses switch channels, name
PLANS = [
{rows}]


def register(rank, ranks, ranks_per_node, folder=os.path.dirname(os.path.abspath(__file__))):
    """Loads the plans for such jobs and installs the selector; keep what it returns for as long as they are used.

    Warns where no plan is for such jobs.
    """
    import mscclpp

    try:
        from mscclpp.ext import AlgorithmCollectionBuilder
    except ImportError:
        AlgorithmCollectionBuilder = mscclpp.AlgorithmCollectionBuilder
    builder, kept = AlgorithmCollectionBuilder(), []
    where = mscclpp.Algorithm.Constraint(ranks, ranks_per_node)
    for _, wanted, per_node, _, _, _, _, _, name in PLANS:
        if wanted == ranks and per_node in (0, ranks_per_node):
            plan = mscclpp.ExecutionPlan(os.path.join(folder, name + ".json"), rank)
            algorithm = mscclpp.Algorithm(id=name, execution_plan=plan, constraint=where)
            builder.add_algorithm_builder(algorithm)
            kept.append(algorithm)
    if not kept:
        known = dict.fromkeys(f"{{plan[1]}} ranks, {{plan[2] or 'any number'}} of a node" for plan in PLANS)
        asked = f"{{ranks}} ranks, {{ranks_per_node}} of a node"
        warnings.warn(f"no plan is loaded for {{asked}}; there are plans for {{'; '.join(known) or 'no job'}}", stacklevel=2)
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
    for collective, ranks, _, low, high, divisor, place, switches, name in PLANS:
        if (collective, ranks, place) == (request.collective, request.world_size, in_place):
            if low <= size <= high and size % divisor == 0 and not (switches and _narrow(request.dtype)):
                return algorithms.get(collective, {{}}).get(name)
    return None


def _narrow(dtype):
    """True for a type that switch channels do not sum."""
    import mscclpp

    return dtype not in [getattr(mscclpp.DataType, name, None) for name in {SWITCH_TYPES!r}]
'''
