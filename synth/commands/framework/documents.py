"""Documents of results: a frontier with the schedules beside it, and the proof that a problem is infeasible."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from synth.commands.framework.output import note, write, wrote
from synth.commands.framework.progress import progress
from synth.commands.framework.shared import LISTED
from synth.commands.inputs import collective as task_of
from synth.commands.inputs import named_topology
from synth.commands.root import INTERRUPTED
from synth.errors import FormatError, InfeasibleError, SynthError, VerificationError
from synth.model.collective import Collective
from synth.model.frontier import Frontier
from synth.model.rational import counted, show

if TYPE_CHECKING:
    from synth.commands.inputs import CollectiveLike, TopologyLike
    from synth.model.topology import Network, Topology


def frontier_document(frontier: Frontier, files: Mapping[int, str] | None = None) -> dict:
    """Return a frontier as a JSON document that `synth verify` checks alone.

    That of exact synthesis holds its schedules. That of flow methods names their `files`,
    by the index of the point, and holds the links of its machine unless the machine's name gives the same machine.
    """
    if frontier.engine == "exact":
        return frontier.to_json()
    from synth.topologies import topology_or_none

    machine, named = frontier.topology, topology_or_none(frontier.topology.name)
    keys = ("ranks", "switches", "connection", "links", "limits")
    known = named is not None and all(getattr(machine, key) == getattr(named, key) for key in keys)
    return frontier.to_json(dict(files or {}), links=not known)


def write_schedules(
    frontier: Frontier, folder: Path, announce: Callable[[str], None] = lambda text: None
) -> Iterator[tuple[int, str]]:
    """Write the schedule of each point to a file in `folder`; yield (index of the point, name of the file) after each.

    Schedules that are not there are left out: those of too many sends to list, or too large for the catalog that they
    come from. Raises OSError.
    """
    for number, point in enumerate(frontier.points, 1):
        stem = f"{number:02}-{frontier.collective_name}-S{point.steps}"
        announce(f"writing {stem}, {number} of {len(frontier.points)}")
        try:
            schedule = point.schedule
        except (FormatError, VerificationError):
            raise
        except SynthError:
            continue
        name = stem + schedule.suffix
        schedule.save(folder / name)
        yield number - 1, name


class SavedFrontier(NamedTuple):
    """A frontier, with a note on each schedule that no file holds; `files` by the index of their point; an exit code.

    The names in `files` are relative to the folder of the document.
    """

    frontier: Any
    files: dict[int, str]
    code: int = 0

    def document(self) -> dict:
        """Return the frontier's JSON document."""
        return frontier_document(self.frontier, self.files)


def save_schedules(frontier: Frontier, output: str | None, form: str | None = None) -> SavedFrontier:
    """Write the schedules that the document `output` does not hold into FILE.schedules; none unless it is a JSON file.

    A folder that cannot be written costs a message and exit code 1, and Ctrl-C the file in hand and those after it.
    """
    path = Path(str(output))
    is_file = output not in (None, "-") and (path.is_file() or not path.exists())
    if not is_file or form == "table" or frontier.engine == "exact" or not frontier.points:
        return SavedFrontier(frontier, {})
    folder, files, code = path.with_suffix(".schedules"), {}, 0
    try:
        folder.mkdir(exist_ok=True)
        with progress("writing schedules") as listen:
            for i, name in write_schedules(frontier, folder, listen):
                files[i] = os.path.join(folder.name, name)
    except KeyboardInterrupt:
        note("interrupted; the schedules so far are kept")
        code = INTERRUPTED
    except OSError as error:  # the frontier is not lost for it
        note(f"error: cannot write {folder}: {error.strerror or error}")
        code = 1
    # A document says which of its schedules nobody can replay.
    missing = [str(point.steps) for i, point in enumerate(frontier.points) if i not in files]
    if missing:
        absent = f"not written out, so not replayed by `synth verify`: the schedules of {', '.join(missing)} steps"
        frontier = replace(frontier, notes=(*frontier.notes, absent))
    if folder.is_dir():
        wrote(f"{counted(len(files), 'schedule')} to {folder}; `synth verify` replays them")
    return SavedFrontier(frontier, files, code)


SCHEMA = "synth.infeasible/1"


def infeasible_document(
    topology: TopologyLike,
    collective: CollectiveLike,
    error: InfeasibleError,
    *,
    roots: Sequence[int] = (),
    max_steps: int | None = None,
) -> dict | None:
    """The document (docs/formats.md) of an InfeasibleError that `pareto` or `bound` raised with these arguments.

    None where the error has no certificate. `max_steps`: what was allowed, where that is the reason.
    """
    machine, certificate = named_topology(topology), error.certificate or {}
    kind = certificate.get("kind")

    def document(where: dict, task: Any, proof: dict, most: int | None = None) -> dict:
        return {"schema": SCHEMA, "topology": where, "collective": task, "max_steps": most, "certificate": proof}

    # The certificate as it is; that of a rank out of reach; or, of many ranks, with the collective by its name.
    if "problem" in certificate and kind in ("unreachable", "distance", "too-few-steps"):
        task = task_of(collective, machine.ranks, roots).to_json(1)
        most = None if kind == "unreachable" else max_steps
        return document(machine.network().to_json(), task, certificate, most)
    if isinstance(collective, Collective) or machine.ranks <= LISTED:
        task = task_of(collective, machine.ranks, roots)
        found = unreachable(machine, task)
        if found is not None:
            return document(found[0].to_json(), task.to_json(1), found[1])
    if kind != "unreachable":
        return None
    try:
        live = machine.live()
    except SynthError:
        return None
    from synth.model.documents import link_columns  # loads NumPy

    head = {"name": live.name, "ranks": live.ranks, "unit_gbps": show(live.unit_bandwidth())}
    return document(head | link_columns.columns(live), certificate["collective"], certificate)


def unreachable(topology: TopologyLike, collective: Collective) -> tuple[Network, dict] | None:
    """Return the network of the links that carry anything, and the certificate that data cannot reach a rank over them.

    None where every rank can be reached."""
    from synth.encodings import bounds

    try:
        network = named_topology(topology).live().network()
    except SynthError:
        return None
    try:
        bounds.steps(network, collective)
    except InfeasibleError as error:
        return None if error.certificate is None else (network, error.certificate)
    return None


@contextmanager
def write_infeasible_document(
    options: Any, topology: Topology, collective: Collective | str, max_steps: int | None = None
) -> Iterator[None]:
    """An InfeasibleError on its way out leaves a document (synth.infeasible/1) where ``-o`` or ``--format json`` ask
    for one."""
    try:
        yield
    except InfeasibleError as error:
        if options.output is None and options.form != "json":
            raise
        document = infeasible_document(topology, collective, error, max_steps=max_steps)
        if document is None:
            raise
        # As the document of a result: on stdout, or in the file of -o, which the error then names.
        text = json.dumps(document, separators=(", ", ": ")) + "\n"
        if options.output in (None, "-"):
            click.echo(text, nl=False)
            raise
        write(Path(options.output), text)
        raise InfeasibleError(f"{error}; the proof is in {options.output}", error.certificate) from error
