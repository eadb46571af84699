"""CompressedSchedule: up to hundreds of millions of sends, as arrays of representatives and the symmetries that make
the rest.

    CompressedSchedule  topology collective root chunks rounds step chunk path kind paths generators

The whole schedule is every image of the listed sends under the group that `generators` (permutations of ranks, then
switches) make: a permutation moves links, ranks and units of data at once, and keeps a chunk's number within its unit.
The one unit of an allreduce is then cut into a block of chunks for each rank, and blocks are moved.
Units and chunk ids are those of `synth.model.collective`; `paths[p]` are the topology's links that a send takes, one
unless it passes switches. Times are those of `synth.model.schedule`: sends of a step read the state before it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from synth.errors import SynthError
from synth.model.link_table import LinkTable, members
from synth.model.rational import show
from synth.model.topology import KINDS, Topology

SCHEMA = "synth.bulk/1"
COPY, REDUCE = 0, 1


@dataclass(frozen=True, eq=False)
class CompressedSchedule:
    """A schedule by representatives: the images of its sends under the group of `generators` are all sends.

    Attributes:
        rounds: rounds of each step, int64.
        step, chunk, path, kind: for listed send i its step (from 0), chunk, index in `paths`, and COPY or REDUCE.
        paths: sequences of links, as indices in the topology's links.
    """

    topology: Topology
    collective: str
    root: int | None
    chunks: int
    rounds: np.ndarray
    step: np.ndarray
    chunk: np.ndarray
    path: np.ndarray
    kind: np.ndarray
    paths: tuple[tuple[int, ...], ...]
    generators: tuple[tuple[int, ...], ...] = ()

    @property
    def steps(self) -> int:
        """S."""
        return len(self.rounds)

    @property
    def rounds_per_chunk(self) -> Fraction:
        """R / C."""
        return Fraction(sum(self.rounds.tolist()), self.chunks)  # Python integers: NumPy's wrap

    @property
    def units(self) -> int:
        """Number of units of data."""
        n = self.topology.ranks
        return {"allgather": n, "reduce-scatter": n, "alltoall": n * n}.get(self.collective, 1)

    @property
    def unit_share(self) -> Fraction:
        """Bytes of one unit divided by the size, in nccl-tests' sense."""
        n = self.topology.ranks
        return Fraction(1, n) if self.collective in ("allgather", "reduce-scatter", "alltoall") else Fraction(1)

    @cached_property
    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Two arrays: the first rank and the last rank of each path."""
        links = self.topology.links
        first = np.fromiter((links[p[0]].src for p in self.paths), np.int64, len(self.paths))
        last = np.fromiter((links[p[-1]].dst for p in self.paths), np.int64, len(self.paths))
        return first, last

    def seconds(self, size: int, latency: Fraction) -> Fraction:
        """Predicted time of `size` bytes (nccl-tests' sense): S α + R/C · unit bytes / unit bandwidth; `latency` in
        µs."""
        wire = self.rounds_per_chunk * size * self.unit_share / (self.topology.unit_bandwidth() * 10**9)
        return self.steps * latency / 10**6 + wire

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
        header = {
            "schema": SCHEMA,
            "collective": self.collective,
            "root": self.root,
            "chunks": self.chunks,
            "topology": {
                "name": self.topology.name,
                "ranks": self.topology.ranks,
                "switches": list(self.topology.switches),
                "unit": None if self.topology.unit is None else show(self.topology.unit),
                "widths": list(map(show, widths)),
                "latencies": list(map(show, lates)),
                "limits": [m.name for m in limits],
            },
        }
        columns = {
            "rounds": self.rounds,
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
        part = path.with_name(path.name + ".part")
        try:
            with part.open("wb") as file:
                text = np.frombuffer(json.dumps(header).encode(), np.uint8)
                packed: dict[str, Any] = {name: _narrow(values) for name, values in columns.items()}
                np.savez_compressed(file, header=text, **packed)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)

    def digest(self) -> str:
        """Return the SHA-256 of the sends, which identifies the schedule among those of one topology."""
        found = hashlib.sha256(
            f"{self.topology.name} {self.collective} {self.root} {self.chunks} {self.paths} {self.generators}".encode()
        )
        for column in (self.rounds, self.step, self.chunk, self.path, self.kind):
            found.update(np.ascontiguousarray(column, np.int64).tobytes())
        return found.hexdigest()


def over_links(
    topology: Topology, collective: str, root: int | None, chunks: int, rounds: np.ndarray, table: np.ndarray
) -> CompressedSchedule:
    """Return a schedule whose sends take one link each; a row of `table` is (step, chunk, link, kind) of a send."""
    used, path = np.unique(table[:, 2], return_inverse=True)
    paths = tuple((int(i),) for i in used)
    return CompressedSchedule(
        topology, collective, root, chunks, rounds, table[:, 0], table[:, 1], path, table[:, 3], paths
    )


def _narrow(values: np.ndarray) -> np.ndarray:
    """In the fewest bytes that hold it."""
    values = np.asarray(values)
    if not values.size:
        return values.astype(np.int32)
    kinds: Sequence[type] = (np.uint8, np.uint16, np.int32)
    low, high = int(values.min()), int(values.max())
    return values.astype(next((k for k in kinds if np.iinfo(k).min <= low and high <= np.iinfo(k).max), np.int64))


def elements(schedule: CompressedSchedule) -> np.ndarray:
    """Every permutation of ranks and switches in the group of `generators`, one a row. Raises SynthError where there
    are too many."""
    size = schedule.topology.ranks + len(schedule.topology.switches)
    found = {tuple(range(size)): None}
    queue = list(found)
    for image in queue:
        for pi in schedule.generators:
            made = tuple(pi[x] for x in image)
            if made not in found:
                if len(found) * size > 1 << 26:
                    raise SynthError(f"{schedule.topology.name}: the symmetries make too many copies to list")
                found[made] = None
                queue.append(made)
    return np.array(queue, np.int64)
