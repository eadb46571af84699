"""The tuner: from frontiers, measurements and logs to a plan of what to run at which size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from synth.api.inputs import collective as task_of
from synth.api.inputs import named_topology
from synth.api.programs import read
from synth.api.running import baseline
from synth.api.synthesis import pareto
from synth.collective import Collective
from synth.errors import SynthError, UsageError
from synth.frontier import Frontier, LowerBound, Point
from synth.large import Large
from synth.plan import OURS, Plan
from synth.topology import Network, Topology

if TYPE_CHECKING:
    from synth.catalog.fit import Model
    from synth.catalog.tune import Answer
    from synth.catalog.tune_candidates import Named
    from synth.catalog.tune_measured import Measurement
    from synth.pareto.events import Listener

SIZES = tuple(1 << k for k in range(10, 31))  # 1 KiB to 1 GiB
REFERENCE_PROTOCOLS = (
    "the reference executor cuts slices as a protocol does, and charges nothing else for it: a choice between protocols by its times"
    " is no evidence for a GPU"
)


class _Work(NamedTuple):
    """One collective: its frontiers and the network that they share (None: there are logs only)."""

    name: str
    ranks: int | None
    root: int | None
    network: Network | None
    frontiers: tuple[Frontier, ...]
    measured: tuple[Measurement, ...]


class _Wish(NamedTuple):
    """What holds for every collective."""

    sizes: tuple[int, ...]
    element: int
    tolerance: float
    baselines: tuple[str, ...]
    ways: tuple[tuple[str, int], ...] | None


def tune(
    topology: str | Path | Topology | None = None,
    collective: str | Sequence[str] = (),
    sizes: Sequence[int] = SIZES,
    *,
    frontiers: Sequence[Frontier | str | Path] = (),
    measured: Sequence[str | Path | dict] = (),
    catalog: str | Path | None = None,
    logs: Sequence[tuple[str, str | Path]] = (),
    baselines: Sequence[str] = (),
    root: int | None = None,
    protocols: Sequence[str] = (),
    instances: Sequence[int] = (),
    tolerance: float | None = None,
    dtype: str = "float32",
    in_place: bool = False,
    ranks: int | None = None,
    max_chunks: int | None = None,
    time_limit: float | None = None,
    jobs: int | None = None,
    on_event: Listener | None = None,
) -> Plan:
    """What to run at which size: of every point of the frontiers in every way, the `baselines`, and other backends' logs.

    `collective`: one name or several (default: those of the frontiers and the measurements). Their frontiers are those given
    (values or files), else synthesized for `topology`; with `max_chunks` a second time with at most so many chunks, for sizes
    that few chunks divide. `measured`: documents that ``synth bench`` wrote, or files of them; `catalog`: a database whose
    measurements count too; `logs`: (backend, file) of nccl-tests' or OSU's output. Without any of these the cost model
    decides. `protocols`, `instances`: the ways to run a schedule (default: those that were measured; by the model Simple, LL
    and LL128 in one instance). `tolerance`: the loss, as a share, that is accepted to save a switch (default: 1%). `dtype`:
    of the elements that must divide into chunks. `ranks`: for logs without a topology.

    Raises UsageError, FormatError with file and place, SynthError where nothing says how long anything takes.
    """
    from synth.catalog import tune as tuner
    from synth.runtime.dtypes import dtype as element_type

    chosen = tuple(sorted(set(sizes)))
    if not chosen or chosen[0] < 1:
        raise UsageError("no sizes to tune for; sizes are bytes, at least 1")
    share = tuner.TOLERANCE if tolerance is None else tolerance
    if not 0 <= share < 1:
        raise UsageError(f"tolerance {share}: a share of the best time, at least 0 and below 1")
    wish = _Wish(chosen, element_type(dtype).size, share, tuple(baselines), _ways(protocols, instances))
    search = {"time_limit": time_limit, "jobs": jobs, "on_event": on_event}
    machine, opened = None if topology is None else named_topology(topology), [_frontier(given) for given in frontiers]
    name = machine.name if machine else next((f.network.name for f in opened), None)
    held = _measurements(measured, catalog, name, in_place)
    works = _works(machine, collective, root, ranks, opened, held, max_chunks, search)
    works = [work._replace(measured=(*work.measured, *_logs(logs, work, in_place))) for work in works]
    return _plan(works, [_answer(work, wish, len(works) > 1) for work in works])


def import_plan(path: str | Path, collective: str | None = None, ranks: int | None = None) -> Plan:
    """The plan in a tuning table of MCR-DL's form; operation and ranks where the file does not say them. Raises FormatError."""
    from synth.catalog.mcrdl import load

    return load(Path(path), collective, ranks)


def _ways(protocols: Sequence[str], instances: Sequence[int]) -> tuple[tuple[str, int], ...] | None:
    from synth.program.program import PROTOCOLS

    known = {name.lower(): name for name in PROTOCOLS}
    wrong = [name for name in protocols if name.lower() not in known]
    if wrong:
        raise UsageError(f"unknown protocol {wrong[0]!r}; there are {', '.join(PROTOCOLS)}")
    if not protocols and not instances:
        return None
    return tuple(product([known[name.lower()] for name in protocols] or PROTOCOLS, instances or (1,)))


def _frontier(given: Frontier | str | Path) -> Frontier:
    """A value, or what a file holds. Raises FormatError, UsageError for a file of something else."""
    found = given if isinstance(given, Frontier) else read(Path(given))
    if not isinstance(found, Frontier):
        raise UsageError(f"{given} holds a {type(found).__name__.lower()}, not a frontier; `synth pareto -o` writes one")
    return found


def _measurements(
    measured: Sequence[str | Path | dict], catalog: str | Path | None, machine: str | None, in_place: bool
) -> list[Measurement]:
    """All of the files and documents; of the catalog those of `machine` (None: of every one)."""
    from synth.catalog import tune_measured

    found: list[Measurement] = []
    for given in measured:
        if isinstance(given, dict):
            found += tune_measured.document(given, "measured", in_place)
        else:
            found += tune_measured.load(Path(given), in_place)
    if catalog is not None:
        from synth.catalog.store import Store

        with Store.open(catalog) as store:
            for fingerprint in store.fingerprints():
                for doc in store.measurements(fingerprint):
                    if machine is None or doc.get("topology") in (None, machine):
                        found += tune_measured.document(doc, f"{catalog}, entry {fingerprint[:12]}", in_place)
    return found


def _logs(logs: Sequence[tuple[str, str | Path]], work: _Work, in_place: bool) -> list[Measurement]:
    from synth.catalog import logs as readers

    found = [m for backend, file in logs for m in readers.load(Path(file), backend, work.name, work.ranks, work.root, in_place)]
    counts = {m.ranks for m in (*work.measured, *found)}
    if len(counts) > 1:
        raise UsageError(f"logs and measurements of {work.name} are of {' and '.join(map(str, sorted(counts)))} ranks; say which: ranks")
    return found


def _works(
    machine: Topology | None,
    collective: str | Sequence[str],
    root: int | None,
    ranks: int | None,
    frontiers: Sequence[Frontier],
    held: Sequence[Measurement],
    max_chunks: int | None,
    search: dict[str, Any],
) -> list[_Work]:
    """The collectives that were asked for, each with what is known of it. Raises UsageError where nothing is."""
    network = None if machine is None else machine.network()
    asked = [collective] if isinstance(collective, str) else list(collective)
    names = list(dict.fromkeys(asked)) or list(dict.fromkeys([f.collective.name for f in frontiers] + [m.collective for m in held]))
    if not names:
        raise UsageError("which collective? name one (--coll), or give frontiers or measurements that say")
    found = []
    for name in names:
        count = next((n for n in (ranks, network and network.ranks, *(f.network.ranks for f in frontiers)) if n), None)
        own = [f for f in frontiers if f.collective.name == name.lower() and root in (None, *f.collective.roots)]
        if len({f.collective for f in own}) > 1:
            raise UsageError(f"the frontiers of {name} are of different roots or ranks; give those of one, or say which (--root)")
        timed = any(m.collective == name for m in held)
        task = own[0].collective if own else _task(name, count, root, timed)
        if not own and machine is not None and task is not None:
            own = _synthesized(machine, task, max_chunks, search)
        there = next((f.network for f in own), network)
        for other in (*(f.network for f in own), *((network,) if network else ())):
            if there is not None and not _same(other, there):
                raise UsageError(f"{name}: a frontier of {other.name} and one of {there.name}; a plan is for one machine")
        wanted, title = (None, name) if task is None else (task.roots[0] if len(task.roots) == 1 else None, task.name)
        measured = [m for m in held if m.collective == title and count in (None, m.ranks) and m.root in (None, wanted)]
        found.append(_Work(title, count, wanted, there, tuple(own), tuple(measured)))
    return found


def _task(name: str, ranks: int | None, root: int | None, timed: bool) -> Collective | None:
    """The collective of that name; None for one that only measurements know. Raises UsageError for one that nobody does."""
    try:
        return task_of(name, ranks or 2 + (root or 0), () if root is None else (root,))
    except UsageError:
        if timed:
            return None
        raise


def _same(one: Network, other: Network) -> bool:
    return one is other or (one.to_json() | {"name": ""}) == (other.to_json() | {"name": ""})


def _synthesized(machine: Topology, task: Collective, max_chunks: int | None, search: dict[str, Any]) -> list[Frontier]:
    found = []
    for limit in (None, *([max_chunks] if max_chunks else [])):
        made = pareto(machine, task, max_chunks=limit, **search)
        if isinstance(made, Frontier):
            found.append(made)
        else:
            return [_written_out(made, machine.network())]  # flow methods take as many chunks as they need
    return found


def _written_out(found: Large, network: Network) -> Frontier:
    """The points of the flow methods as ordinary schedules. Raises UsageError where they are too large to be written out."""
    from synth.flows.expand import schedule

    bound = LowerBound(found.bound, found.certificate)
    made = tuple(replace(schedule(point.make()), network=network) for point in found.points)
    points = tuple(
        Point(one, bound, "optimal" if one.bandwidth == found.bound else "best-known", point.engine)
        for one, point in zip(made, found.points, strict=True)
    )
    return Frontier(network, made[0].collective, points, notes=found.notes)


def _answer(work: _Work, wish: _Wish, several: bool) -> tuple[Answer, Model | None, tuple[Measurement, ...]]:
    from synth.catalog import fit, tune, tune_candidates, tune_measured

    measured = tuple(tune_measured.merged(work.measured))
    if not measured and not work.frontiers:
        raise UsageError(f"nothing to choose from for {work.name}: give a topology, frontiers, measurements or logs")
    prefix = f"{work.name}-" if several else ""
    found = tune_candidates.candidates(_schedules(work, wish), measured, wish.ways, prefix)
    says = "; ".join(dict.fromkeys(m.says for m in measured))
    model = tune.fitted(found.candidates, says)
    if model is None and not measured and work.network is not None:
        model = fit.nominal(work.network)
    ranks = work.ranks or measured[0].ranks
    question = tune.Question(work.name, ranks, wish.sizes, wish.element, wish.tolerance, work.root)
    answer = tune.answer(question, found.candidates, model)
    return answer._replace(notes=(*found.notes, *answer.notes)), model, measured


def _schedules(work: _Work, wish: _Wish) -> list[Named]:
    """Every point, the baselines asked for, and those that measurements name and the links carry."""
    from synth.catalog.tune_candidates import Named
    from synth.runtime.baselines import SUMMARIES

    made = [Named(f"S{p.steps}-R{p.rounds}-C{p.chunks}", p.schedule) for f in work.frontiers for p in f.points]
    if work.network is None or not work.frontiers:
        if wish.baselines:
            raise UsageError("baselines run on the links of a machine: name it, or give its frontier")
        return made
    task = work.frontiers[0].collective
    seen = [m.label for m in work.measured if m.backend == OURS and m.label in SUMMARIES]
    for name in dict.fromkeys((*wish.baselines, *seen)):
        try:
            made.append(Named(name.lower(), baseline(name, work.network, task)))
        except SynthError:
            if name in wish.baselines:
                raise
    return made


def _plan(works: Sequence[_Work], answers: Sequence[tuple[Answer, Model | None, tuple[Measurement, ...]]]) -> Plan:
    from synth.catalog import fit

    algorithms: list = []
    tables, models, says, notes = [], {}, [], []
    networks = [work.network for work in works if work.network]
    for work, (answer, model, measured) in zip(works, answers, strict=True):
        shift = len(algorithms)
        algorithms += answer.algorithms
        moved = tuple(row._replace(order=tuple(k + shift for k in row.order)) for row in answer.table.ranges)
        chosen = tuple(None if k is None else k + shift for k in answer.table.chosen)
        tables.append(replace(answer.table, ranges=moved, chosen=chosen))
        if model is not None:
            unit = float(work.network.unit) if work.network else None
            models[work.name] = model.to_json() | {"words": fit.lines(model.to_json(), unit)}
        says += [m.says for m in measured] or [model.says if model else ""]
        before = f"{work.name}: " if len(works) > 1 else ""
        notes += [before + note for note in answer.notes]
        notes += [before + "the frontier is not complete: what is open may hold better points" for f in work.frontiers if not f.complete][
            :1
        ]
        if len({m.modelled for m in measured}) > 1:
            notes.append(before + "modelled and measured times are compared here, which says little about a machine")
        if len({m.protocol for m in measured if m.modelled}) > 1:
            notes.append(before + REFERENCE_PROTOCOLS)
    labels = next((f.labels for work in works for f in work.frontiers if f.labels), ())
    source = "measured" if any(measured for _, _, measured in answers) else "model"
    said = "; ".join(dict.fromkeys(text for text in says if text))
    return Plan(
        tuple(algorithms), tuple(tables), source, said, networks[0] if networks else None, labels, models, tuple(dict.fromkeys(notes))
    )
