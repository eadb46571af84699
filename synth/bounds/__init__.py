"""Lower bounds on steps and on rounds per chunk, each with a certificate that `synth.checker.certificates.cuts`
re-checks.

    steps      the least number of steps                              distance, unreachable
    flow       R/C at S steps or at any, for every number of chunks   deadline-cuts, static-cuts
    rounds     the least R at one number of chunks and steps          deadline-cuts
    completing R/C at any S, by the rank that completes first         allreduce-cuts
    allreduce  the greater of flow and completing

What is proved, and how, is in docs/proofs.md. The linear solver is imported when a bound is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from synth.bounds.distance import steps
from synth.errors import InfeasibleError
from synth.model.collective import Collective
from synth.model.frontier import LowerBound
from synth.model.schedule import canonical
from synth.model.topology import Network

LONG = 12_000  # bytes of JSON

__all__ = ["allreduce", "completes", "completing", "flow", "rounds", "steps"]


def flow(
    network: Network,
    collective: Collective,
    steps: int | None,
    generators: Sequence[Any] | None = None,
    cycles: int | None = None,
) -> LowerBound:
    """R/C of every schedule of `steps` steps, or of any number when None, is at least this.

    Holds for every number of chunks. For combining collectives each wanted contribution must flow to who wants it.
    `generators`: automorphisms (`ranks`, `routes`, `units`) to use; None asks `synth.model.symmetry`.
    `cycles`: how often violated cuts are sought, as often as it takes unless given: fewer give less of a bound, sooner.
    Where the certificate would be long and the bound for every number of steps is as good, it is that one's.
    Raises InfeasibleError (with its certificate) when no schedule of so many steps exists.
    """
    from synth.bounds.dual_rounding import exact

    found = _checked(
        network, collective, exact(_solved(network, collective, steps, generators, cycles=cycles)).certificate(), steps
    )
    if steps is not None and len(canonical(found.certificate)) > LONG:
        always = _checked(network, collective, flow(network, collective, None, generators).certificate, steps)
        return always if always.value == found.value else found
    return found


def rounds(
    network: Network, collective: Collective, steps: int, chunks: int, bound: LowerBound | None = None,
    generators: Sequence[Any] | None = None,
) -> tuple[int, LowerBound]:  # fmt: skip
    """The least R that `chunks` chunks per unit can take in `steps` steps, and the bound R / chunks that proves it.

    The packing is chosen anew for this number of chunks, as every step has at least one round: this is more than
    rounding up `bound` (an any-chunks bound at `steps`, used where it gives more).
    """
    from synth.bounds.dual_rounding import exact

    certificate = exact(_solved(network, collective, steps, generators, 1 / chunks)).certificate()
    found = [
        _checked(network, collective, made, steps, chunks)
        for made in (certificate, *([bound.certificate] if bound else []))
    ]
    best = max(found, key=lambda b: b.value)
    return int(best.value * chunks), best


def allreduce(
    network: Network, collective: Collective, steps: int | None, generators: Sequence[Any] | None = None
) -> LowerBound:
    """As `flow`, for collectives that combine: the greatest of it and of the bounds that are valid for every S.

    These are the flow's own, and for allreduce the one by the rank that completes first.
    """
    found = flow(network, collective, steps, generators)
    if steps is not None and collective.wants is not None:
        always = flow(network, collective, None, generators)
        found = max(found, _checked(network, collective, always.certificate, steps), key=lambda b: b.value)
    other = completing(network, collective, steps, generators)
    return found if other is None else max(found, other, key=lambda b: b.value)


def completes(collective: Collective) -> bool:
    """Whether `completing` says something of `collective`."""
    return collective.units == 1 and _count(collective) > 0


def completing(
    network: Network, collective: Collective, steps: int | None = None, generators: Sequence[Any] | None = None
) -> LowerBound | None:  # fmt: skip
    """A bound on R/C of a collective that combines, by the rank that completes first, at any S; None where that says
    nothing."""
    from synth.bounds.first_completion import by_roots

    if not completes(collective):
        return None
    return _checked(
        network, collective, by_roots(network, collective, _own(network, collective, generators)).certificate, steps
    )


def _checked(
    network: Network, collective: Collective, certificate: dict, steps: int | None, chunks: int | None = None
) -> LowerBound:
    """The bound with the value that the checker finds: what is returned has been checked."""
    from synth.checker.certificates.cuts import check

    value = check(certificate, network.to_json(), collective.to_json(1), steps=steps, chunks=chunks)
    return LowerBound(value, certificate, "any-chunks" if chunks is None else "this-chunks")


def _solved(
    network: Network, collective: Collective, steps: int | None, generators: Sequence[Any] | None, floor: float = 0.0,
    cycles: int | None = None,
) -> Any:  # fmt: skip
    from synth.bounds.cut_lp import Master

    least = _steps(network, collective)
    if steps is not None and steps < least.value:
        raise InfeasibleError(
            f"{collective.name} on {network.name} needs at least {least.value} steps, {steps} were asked for;"
            f" unit {least.certificate['pair'][0]} is that far from rank {least.certificate['pair'][1]}",
            least.certificate,
        )
    master = Master(network, collective, steps, _own(network, collective, generators), floor, _count(collective))
    master.run(cycles)
    return master


_steps = steps


def _own(network: Network, collective: Collective, given: Sequence[Any] | None) -> list[Any]:
    from synth.model.symmetry import generators

    return list(generators(network, collective) if given is None else given)


def _count(collective: Collective) -> int:
    """Sends that a chunk needs at least, counted by who completes first (docs/proofs.md); 0 where that says nothing."""
    if (
        collective.combining
        and collective.wants is None
        and collective.units == 1
        and collective.pre == collective.post
    ):
        return 2 * (len(collective.pre[0]) - 1)
    return 0
