"""CompressedSchedule: up to hundreds of millions of sends, as arrays of representatives and the symmetries that make
the rest.

    CompressedSchedule  topology collective root chunks step_rounds step chunk path kind paths generators

The whole schedule is every image of the listed sends under the group that `generators` (permutations of ranks, then
switches) make: a permutation moves links, ranks and units of data at once, and keeps a chunk's number within its unit.
The one unit of an allreduce is then cut into a block of chunks for each rank, and blocks are moved.
Units and chunk ids are those of `synth.model.collective`; `paths[p]` are the topology's links that a send takes, one
unless it passes switches. Times are those of `synth.model.schedule`: sends of a step read the state before it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from synth.errors import SynthError, TooManySendsError, UsageError
from synth.model.collective import Collective, collective
from synth.model.documents.whole_file import whole_file
from synth.model.gc_pause import collector_off
from synth.model.link_table import LinkTable, members
from synth.model.rational import show
from synth.model.schedule import Schedule, Send, Step, SynchronousSchedule
from synth.model.topology import KINDS, Topology

SCHEMA = "synth.bulk/1"
COPY, REDUCE = 0, 1
# Sends that are written out, each as an object of some 100 bytes.
MAXIMUM_SENDS = 1 << 22
# Entries of the permutations of a group that are listed, 8 bytes each.
MAXIMUM_ENTRIES = 1 << 26


@dataclass(frozen=True, eq=False)
class CompressedSchedule(SynchronousSchedule):
    """A schedule by representatives: the images of its sends under the group of `generators` are all sends.

    Attributes:
        step_rounds: rounds of each step, int64.
        step, chunk, path, kind: for listed send i its step (from 0), chunk, index in `paths`, and COPY or REDUCE.
        paths: sequences of links, as indices in the topology's links.
    """

    suffix: ClassVar[str] = ".npz"

    topology: Topology
    collective: str
    root: int | None
    chunks: int
    step_rounds: np.ndarray
    step: np.ndarray
    chunk: np.ndarray
    path: np.ndarray
    kind: np.ndarray
    paths: tuple[tuple[int, ...], ...]
    generators: tuple[tuple[int, ...], ...] = ()

    @property
    def step_count(self) -> int:
        """S: the number of steps."""
        return len(self.step_rounds)

    @property
    def rounds(self) -> int:
        """R: the rounds of all steps together."""
        return sum(self.step_rounds.tolist())  # Python integers: NumPy's wrap

    @property
    def units(self) -> int:
        """Number of units of data."""
        n = self.topology.ranks
        return {"allgather": n, "reduce-scatter": n, "alltoall": n * n}.get(self.collective, 1)

    @cached_property
    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Two arrays: the first rank and the last rank of each path."""
        links = self.topology.links
        first = np.fromiter((links[p[0]].src for p in self.paths), np.int64, len(self.paths))
        last = np.fromiter((links[p[-1]].dst for p in self.paths), np.int64, len(self.paths))
        return first, last

    @cached_property
    def images(self) -> int:
        """The number of images of each listed send: the order of the group, of which only the identity fixes a rank."""
        orbit = [0]
        seen = {0}
        for rank in orbit:
            images = {pi[rank] for pi in self.generators} - seen
            orbit += images
            seen |= images
        return len(orbit)

    @property
    def sends(self) -> int:
        """The number of sends of the whole schedule."""
        return len(self.step) * self.images

    def save(self, path: Path) -> None:
        """Write a compressed ``.npz`` with a JSON header: whole or not at all. Raises OSError."""
        given, limits = self.topology.links, self.topology.limits
        links = given if isinstance(given, LinkTable) else LinkTable.of(given)
        widths = sorted({item.bandwidth for item in (*links.sorts, *limits)})
        lates = sorted({s.latency for s in links.sorts})
        wide = {bandwidth: i for i, bandwidth in enumerate(widths)}
        late = {latency: i for i, latency in enumerate(lates)}
        sorts = np.array(
            [(wide[s.bandwidth], late[s.latency], KINDS.index(s.kind)) for s in links.sorts], np.int64
        ).reshape(-1, 3)

        # Names and exact numbers stand in the header, once each; columns hold their places.
        header = {
            "schema": SCHEMA,
            "collective": self.collective,
            "root": self.root,
            "chunks": self.chunks,
            "topology": {
                "name": self.topology.name,
                "ranks": self.topology.ranks,
                "switches": list(self.topology.switches),
                "connection": None if self.topology.connection is None else show(self.topology.connection),
                "widths": list(map(show, widths)),
                "latencies": list(map(show, lates)),
                "limits": [m.name for m in limits],
            },
        }

        # Lists of unlike lengths are one column with another one of their ends.
        columns = {
            "rounds": self.step_rounds,
            "step": self.step,
            "chunk": self.chunk,
            "path": self.path,
            "kind": self.kind,
            "path_links": np.fromiter((i for p in self.paths for i in p), np.int64),
            "path_ends": np.cumsum([len(p) for p in self.paths]),
            "generators": np.array(self.generators, np.int64).reshape(
                len(self.generators), -1 if self.generators else 0
            ),
            "src": links.src,
            "dst": links.dst,
            "width": sorts[links.sort, 0],
            "late": sorts[links.sort, 1],
            "sort": sorts[links.sort, 2],
            "limit_links": np.concatenate([np.zeros(0, np.int64), *members(limits)]),
            "limit_ends": np.cumsum([len(m.links) for m in limits]),
            "limit_width": np.fromiter((wide[m.bandwidth] for m in limits), np.int64),
            "nodes": np.array(self.topology.nodes, np.int64),
        }
        with whole_file(path) as part, part.open("wb") as file:
            text = np.frombuffer(json.dumps(header).encode(), np.uint8)
            packed: dict[str, Any] = {name: _narrow(values) for name, values in columns.items()}
            np.savez_compressed(file, header=text, **packed)

    def expanded(self) -> CompressedSchedule:
        """Return the same schedule with every send listed and no generators.

        Raises TooManySendsError above `MAXIMUM_SENDS` sends.
        """
        if self.sends > MAXIMUM_SENDS:
            raise TooManySendsError(self.sends, f"{self.sends} sends; at most {MAXIMUM_SENDS} are written out")
        if not self.generators:
            return self

        # An element moves paths by the ends of their links, and chunks with their units.
        group = self._elements()
        links = self.topology.links
        link_of = {(link.src, link.dst): i for i, link in enumerate(links)}
        numbers: dict[tuple[int, ...], int] = {}  # of all images of the paths
        ranks = self.topology.ranks
        # the symmetries move the units of the reduce-scatter and the allgather that an allreduce is made of
        chunks = self.chunks // ranks if self.collective == "allreduce" else self.chunks
        unit, rest = self.chunk // chunks, self.chunk % chunks
        parts = []
        for pi in group:
            images = []
            for path in self.paths:
                image = tuple(link_of[int(pi[links[i].src]), int(pi[links[i].dst])] for i in path)
                images.append(numbers.setdefault(image, len(numbers)))
            if self.collective == "alltoall":  # unit u x ranks + v goes from rank u to rank v
                moved_unit = pi[unit // ranks] * ranks + pi[unit % ranks]
            else:
                moved_unit = pi[unit]
            parts.append((moved_unit * chunks + rest, np.array(images)[self.path]))
        chunk, path = (np.concatenate(column) for column in zip(*parts, strict=True))
        step, kind = np.tile(self.step, len(group)), np.tile(self.kind, len(group))
        return replace(self, step=step, chunk=chunk, path=path, kind=kind, paths=tuple(numbers), generators=())

    @collector_off()
    def written_out(self, task: Collective | None = None) -> Schedule:
        """Return the schedule with every send listed, as exact synthesis has it.

        `task`: the collective, where `collective` and `root` do not define it. Raises TooManySendsError above
        `MAXIMUM_SENDS` sends, UsageError for a path through switches that the network has not.
        """
        # Each path is a route of the network, which lists links and the shortest ways through switches.
        full = self.expanded()
        network = self.topology.network()
        roots = () if self.root is None else (self.root,)
        links, switches = self.topology.links, self.topology.switches
        routes = []  # source, destination and switches of each path
        for path in full.paths:
            via = tuple(switches[links[i].dst - self.topology.ranks] for i in path[:-1])
            src, dst = links[path[0]].src, links[path[-1]].dst
            if (src, dst, via) not in network.route_index:
                raise UsageError(
                    f"{self.topology.name}: the path {src} -> {dst} through {', '.join(via)} is neither a link nor a "
                    "shortest one"
                )
            routes.append((src, dst, via))

        # Sends of a step in the order of `Schedule`.
        rows: list[list[Send]] = [[] for _ in range(full.step_count)]
        columns = (column.tolist() for column in (full.step, full.chunk, full.path, full.kind))
        for t, c, p, k in zip(*columns, strict=True):
            src, dst, via = routes[p]
            rows[t].append(Send(c, src, dst, "reduce" if k == REDUCE else "copy", via))
        steps = tuple(Step(int(n), tuple(sorted(row))) for n, row in zip(self.step_rounds.tolist(), rows, strict=True))
        if task is None:
            task = collective(self.collective, self.topology.ranks, roots)
        return Schedule(network, task, self.chunks, steps)

    def _elements(self) -> np.ndarray:
        """Return every permutation of ranks and switches in the group of `generators`, one a row.

        Raises SynthError where there are too many, or more than `images`: an element other than the identity fixes a
        rank.
        """
        # Products with the generators from the identity on, until none is new.
        size = self.topology.ranks + len(self.topology.switches)
        if self.images * size > MAXIMUM_ENTRIES:
            raise SynthError(f"{self.topology.name}: the symmetries make too many copies to list")
        queue = [tuple(range(size))]
        found = set(queue)
        for image in queue:
            for pi in self.generators:
                product = tuple(pi[x] for x in image)
                if product not in found:
                    if len(found) == self.images:
                        raise SynthError(f"{self.topology.name}: a symmetry leaves a rank where it is")
                    found.add(product)
                    queue.append(product)
        return np.array(queue, np.int64)


def _narrow(values: np.ndarray) -> np.ndarray:
    """In the fewest bytes that hold it."""
    values = np.asarray(values)
    if not values.size:
        return values.astype(np.int32)
    kinds: Sequence[type] = (np.uint8, np.uint16, np.int32)
    low, high = int(values.min()), int(values.max())
    return values.astype(next((k for k in kinds if np.iinfo(k).min <= low and high <= np.iinfo(k).max), np.int64))
