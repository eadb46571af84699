"""Certified lower bounds in time: least latencies along paths together with bytes over cuts.

The bound at a size is the greater of two: that of the best candidate cut (`synth.scale.bounds.time_cuts`), and the
bound on bytes per second of `synth bound` with one latency on top. The checker computes both exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from synth.checker.certificates import time_bounds as checker
from synth.errors import InfeasibleError, SynthError
from synth.model.collective import Collective
from synth.model.collective import collective as named_collective
from synth.model.number_text import number, size_text
from synth.model.scale_collectives import COLLECTIVES, ROOTED
from synth.model.time_bound import SizeBound, TimeBound
from synth.model.topology import Topology
from synth.scale.bounds.time_cuts import CandidateCuts
from synth.scale.bounds.unreachability import certificate
from synth.scale.fabric.fabric import fabric

MOST_WRITTEN = 64  # ranks up to which a collective without a name of the scale engine has a bound on its rate
MOST_RATED = 64  # ranks up to which a bound on rates is quick; above it takes seconds


def time_bound(
    topology: Topology,
    collective: str | Collective,
    sizes: Sequence[int],
    *,
    root: int = 0,
    rates: bool | None = True,
    time_limit: float | None = None,
) -> TimeBound:
    """Return certified lower bounds on the time of a collective, one for each of `sizes` (bytes, nccl-tests' size).

    They hold for every program without multicasts in switches, with any number and size of messages, by the links,
    limits and latencies of `topology` (docs/model.md). `root`: of a collective given by name. Without `rates` no bound
    on bytes per second is computed, which takes the most time (None: none above `MOST_RATED` ranks). The result then
    comes from single cuts. `time_limit`: seconds for the search for that bound, where a method for large machines has
    one. Raises InfeasibleError where data cannot reach a rank.
    """
    topology = topology.live()
    if rates is None:
        rates = topology.ranks <= MOST_RATED
    wanted = _named(collective, topology.ranks, root)
    can_be_written = rates and wanted.name is not None and topology.ranks <= MOST_WRITTEN
    try:
        if can_be_written and fabric(topology).inner_limits:  # exact methods do not relax them
            return _bounds(topology, _written(wanted, topology.ranks), sizes, rates, time_limit)
        return _bounds(topology, wanted, sizes, rates, time_limit)
    except InfeasibleError as error:
        if wanted.name is None:
            raise
        proof = certificate(topology, wanted.name, wanted.root or 0)
        raise InfeasibleError(str(error), proof or error.certificate) from error
    except SynthError:  # capacities are too large for flow methods
        if not can_be_written:
            raise
        return _bounds(topology, _written(wanted, topology.ranks), sizes, rates, time_limit)


class _NamedTask(NamedTuple):
    """A collective: its name and root where documents name it, else None; the Collective, unless its name is enough."""

    name: str | None
    task: Collective | None
    root: int | None


def _bounds(
    topology: Topology, wanted: _NamedTask, sizes: Sequence[int], rates: bool, time_limit: float | None
) -> TimeBound:
    """Return the bounds of `time_bound`. Raises SynthError where flow methods cannot read the machine."""
    name, task, root = wanted
    if name is not None:
        demand = checker.named_demand(name, topology.ranks, root)
        providers, wanting = _ends_of(name, topology.ranks, root)
    else:
        assert task is not None
        demand = checker.written_demand(task.to_json(1), topology.ranks, "collective")
        providers = np.isin(np.arange(topology.ranks), list(frozenset().union(*task.pre)))
        wanting = np.isin(np.arange(topology.ranks), list(frozenset().union(*task.post)))
    candidates = CandidateCuts(topology, demand, providers, wanting)
    line = _rate(topology, demand, task, time_limit) if rates and candidates.cuts else None
    rows = tuple(_best(candidates, line, size) for size in sizes)
    if name is not None:
        return TimeBound(topology, name, root, rows)
    assert task is not None
    return TimeBound(topology, task, None, rows)


def _named(collective: str | Collective, ranks: int, root: int) -> _NamedTask:
    """Return the name of a collective that documents need not write out, and the Collective where it was given."""
    if isinstance(collective, str):
        canonical = named_collective(collective, 2).name
        if canonical in COLLECTIVES:
            return _NamedTask(canonical, None, root if canonical in ROOTED else None)
        return _NamedTask(None, named_collective(collective, ranks, (root,) if root else ()), None)
    name = collective.name
    if name in COLLECTIVES and named_collective(name, ranks, collective.roots) == collective:
        return _NamedTask(name, collective, collective.roots[0] if name in ROOTED else None)
    return _NamedTask(None, collective, None)


def _written(wanted: _NamedTask, ranks: int) -> _NamedTask:
    """Return the named collective written out, for exact methods."""
    assert wanted.name is not None
    roots = () if wanted.root is None else (wanted.root,)
    return _NamedTask(None, wanted.task or named_collective(wanted.name, ranks, roots), None)


def _ends_of(name: str, ranks: int, root: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the ranks that have data, and those that want some, of a collective known by its name."""
    everyone = np.ones(ranks, bool)
    at_root = np.arange(ranks) == root
    return {"broadcast": (at_root, everyone), "reduce": (everyone, at_root)}.get(name, (everyone, everyone))


class _Rate(NamedTuple):
    """A bound from bytes per second, `first` + `slope` · size in µs, and its ``time-rate`` certificate."""

    certificate: dict
    first: Fraction
    slope: Fraction


def _rate(
    topology: Topology, demand: checker.CollectiveData, task: Collective | None, time_limit: float | None
) -> _Rate | None:
    """Return the bound of the greatest rate for any number of steps, None where there is none."""
    if demand.name is not None:
        from synth.scale.search import bound

        rate = bound(topology, demand.name, demand.root or 0, time_limit=time_limit).certificate
    elif task is None or topology.ranks > MOST_WRITTEN:
        return None
    else:
        from synth import bounds

        network = topology.network().without_parallel_routes()
        certified = bounds.combining if task.name == "allreduce" else bounds.flow
        rate = certified(network, task, None).certificate
    certificate = {"kind": "time-rate", "rate": rate}
    one, two = (checker.check(certificate, topology, demand, size) for size in (1, 2))
    return _Rate(certificate, 2 * one - two, two - one)


def _best(candidates: CandidateCuts, rate: _Rate | None, size: int) -> SizeBound:
    """Return the greatest bound at `size`, with its certificate checked."""
    cuts, unit_bytes = candidates.cuts, candidates.demand.share * size
    if not cuts:
        return SizeBound(size, Fraction(0), "nothing has to move", None)
    best = max(cuts, key=lambda cut: cut.microseconds(float(unit_bytes) / 1000))
    certificate = best.certificate()
    time = checker.check(certificate, candidates.topology, candidates.demand, size)
    if rate is not None and rate.first + rate.slope * size > time:
        reason = f"{size_text(size)} at the greatest rate, and one latency"
        return SizeBound(size, rate.first + rate.slope * size, reason, rate.certificate)
    amount = size_text(max(1, round(best.units * unit_bytes)))
    latency, width = number(float(best.offsets[0])), number(float(best.capacity[-1]))
    reason = f"{latency} µs path{candidates.path(best)}, then {amount} through {width} GB/s"
    return SizeBound(size, time, reason, certificate)
