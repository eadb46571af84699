"""Lower bounds on steps and on rounds per chunk, each with a certificate that `synth.checker.certificates.cuts`
re-checks.

    steps               the least number of steps                              distance, unreachable
    flow                R/C at S steps or at any, for every number of chunks   deadline-cuts, static-cuts
    rounds              the least R at one number of chunks and steps          deadline-cuts

The proofs are in docs/proofs.md. The linear solver is imported when a bound is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from synth.encodings.bounds.demands import sends_of_a_chunk
from synth.encodings.bounds.distance import steps
from synth.encodings.bounds.distance import steps as least_steps
from synth.errors import InfeasibleError
from synth.model.collective import Collective
from synth.model.documents.canonical_json import canonical
from synth.model.frontier import LowerBound
from synth.model.topology import Network

# Bytes of JSON of a certificate, above which a shorter one of the same bound is preferred.
LONG = 12_000

__all__ = ["flow", "rounds", "steps"]


def flow(
    network: Network,
    collective: Collective,
    steps: int | None,
    generators: Sequence[Any] | None = None,
) -> LowerBound:
    """Return a lower bound on R/C of every schedule of `steps` steps, or of any number of steps if None.

    It holds for every number of chunks. For combining collectives each wanted contribution must flow to the ranks that
    want it. `generators`: automorphisms of the problem (None: computed by `synth.model.symmetry`). The bound for every
    number of steps is returned where it is greater, or as great with a shorter certificate. Raises
    InfeasibleError (with its certificate) if no schedule of `steps` steps exists.
    """
    from synth.encodings.bounds.dual_rounding import round_duals

    packing = round_duals(_solved(network, collective, steps, generators))
    bound = _checked(network, collective, packing.certificate(), steps)
    long = len(canonical(bound.certificate)) > LONG
    if steps is not None and (long or collective.wants is not None):
        always = _checked(network, collective, flow(network, collective, None, generators).certificate, steps)
        if always.value > bound.value or (long and always.value == bound.value):
            return always
    return bound


def rounds(
    network: Network, collective: Collective, steps: int, chunks: int, bound: LowerBound | None = None,
    generators: Sequence[Any] | None = None,
) -> tuple[int, LowerBound]:  # fmt: skip
    """Return a lower bound on R for schedules of `chunks` chunks per unit in `steps` steps, and it as a bound on R/C.

    Each step has at least one round. A linear program with this constraint can give more than `bound`, a bound on R/C
    for every number of chunks at `steps` steps, rounded up. The better of the two is returned. Raises as `flow`.
    """
    from synth.encodings.bounds.dual_rounding import round_duals

    certificate = round_duals(_solved(network, collective, steps, generators, 1 / chunks)).certificate()
    candidates = [_checked(network, collective, certificate, steps, chunks)]
    if bound:
        candidates.append(_checked(network, collective, bound.certificate, steps, chunks))
    best = max(candidates, key=lambda b: b.value)
    return int(best.value * chunks), best


def _checked(
    network: Network, collective: Collective, certificate: dict, steps: int | None, chunks: int | None = None
) -> LowerBound:
    """Return the bound with the value that the checker computes, so that every bound has been checked."""
    from synth.checker.certificates.cuts import check

    value = check(certificate, network, collective.document, steps=steps, chunks=chunks)
    return LowerBound(value, certificate, "any-chunks" if chunks is None else "this-chunks")


def _solved(
    network: Network, collective: Collective, steps: int | None, generators: Sequence[Any] | None, floor: float = 0.0
) -> Any:  # fmt: skip
    from synth.encodings.bounds.cut_lp import CutLP
    from synth.model.symmetry import generators as automorphisms

    least = least_steps(network, collective)
    if steps is not None and steps < least.value:
        raise InfeasibleError(
            f"{collective.name} on {network.name} needs at least {least.value} steps, {steps} were asked for;"
            f" unit {least.certificate['pair'][0]}, which rank {least.certificate['pair'][1]} wants, takes that many",
            least.certificate,
        )
    group = automorphisms(network, collective) if generators is None else generators
    master = CutLP(network, collective, steps, group, floor, sends_of_a_chunk(collective))
    master.run()
    return master
