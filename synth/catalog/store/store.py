"""Store: the catalog's database. Two processes may write at once; what is put is there whole or not at all.

with Store.open("catalog.db") as store:
    store.put(entry)
    found = store.find(network, collective, options)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from synth.catalog.entry import FAILED, Entry, Options, fingerprint
from synth.catalog.isomorphism import Relabelling, invariant
from synth.catalog.store import programs as store_programs
from synth.catalog.store.blobs import Blob, pack
from synth.catalog.store.find import Alias, search
from synth.catalog.store.reader import Reader
from synth.catalog.store.rows import WORTH, Packed, packed
from synth.catalog.store.sqlite_file import said, transaction
from synth.errors import SynthError
from synth.model.collective import Collective
from synth.model.frontier import Frontier
from synth.model.topology import Network
from synth.program.program import Program


class Store(Reader):
    """An open catalog that is also written to. Errors of the database are SynthErrors of one line each."""

    def put(self, given: Entry) -> bool:
        """Keep `given`, whole or not at all; True unless what is there under its fingerprint is worth as much.

        An entry that is done stays; a failed one never replaces another. Measurements are added to those that are
        there.
        """
        return self.put_all([given])[0]

    def put_all(self, given: Sequence[Entry]) -> list[bool]:
        """The same for several entries at once: all of them or none."""
        ready = [packed(one) for one in given]
        with said(self.path), transaction(self.base):
            return [self._put(one) for one in ready]

    def _put(self, given: Packed) -> bool:
        fingerprint, state = given.columns["fingerprint"], given.columns["state"]
        old = self.base.execute("SELECT id, state FROM entries WHERE fingerprint = ?", (fingerprint,)).fetchone()
        fresh = old is None or WORTH[state] > WORTH.get(old[1], 0) or (state == old[1] and WORTH[state] < 2)
        number = old[0] if old is not None else None
        if fresh or number is None:
            number = self._write(given, number)
        for executor, blob in given.measurements:
            self.attach(number, executor, blob, ())
        return fresh

    def _write(self, given: Packed, number: int | None) -> int:
        if number is None:
            names = ", ".join(given.columns)
            marks = ", ".join("?" * len(given.columns))
            values = tuple(given.columns.values())
            number = int(self.base.execute(f"INSERT INTO entries ({names}) VALUES ({marks})", values).lastrowid or 0)
        else:
            names = ", ".join(f"{name} = ?" for name in given.columns)
            self.base.execute(f"UPDATE entries SET {names} WHERE id = ?", (*given.columns.values(), number))
            for table in ("points", "blobs", "programs"):  # programs were lowered from points that are gone
                self.base.execute(f"DELETE FROM {table} WHERE entry = ?", (number,))
        self.base.executemany(
            "INSERT INTO points VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", [(number, *row) for row in given.points]
        )
        rows = [(number, name, blob.sum, len(blob.body), blob.size, blob.body) for name, blob in given.blobs.items()]
        self.base.executemany(
            "INSERT INTO blobs (entry, name, sum, packed, size, body) VALUES (?, ?, ?, ?, ?, ?)", rows
        )
        return number

    def attach(self, number: int, executor: str, blob: Blob, programs: Sequence[str]) -> bool:
        """A measured document for the entry in row `number`, and which of its programs it times; part of a
        transaction."""
        made = self.base.execute(
            "INSERT OR IGNORE INTO measurements (entry, executor, sum, size, body) VALUES (?, ?, ?, ?, ?)",
            (number, executor, blob.sum, blob.size, blob.body),
        )
        place = self.base.execute(
            "SELECT id FROM measurements WHERE entry = ? AND sum = ?", (number, blob.sum)
        ).fetchone()[0]
        rows = [(place, program) for program in programs]
        self.base.executemany("INSERT OR IGNORE INTO measured (measurement, program) VALUES (?, ?)", rows)
        return made.rowcount > 0

    def find(
        self,
        network: Network,
        collective: Collective,
        options: Options = (),
        labels: Sequence[int] = (),
        *,
        remember: bool = False,
    ) -> tuple[Entry, Relabelling | None] | None:
        """The entry that answers this problem, for `network` as it is given: its numbering, name, GB/s and latencies;
        None: there is none.

        An entry of a problem that is equal up to numbering is moved over: its schedules and certificates are checked
        again. The relabelling is None where the entry has this very numbering. A failed entry is no answer. With
        `remember` the machine is kept as an alias of the entry: `has`, `get`, `ls` and `lookup` know it from then on.
        """
        problem = fingerprint(network, collective, options)
        known = self._known(problem)
        if known is not None:
            number, alias = known
            found = self.entry(number)
            other = Alias(network, collective, tuple(labels), None if alias is None else alias.map)
            made = other, other.of(found)
            unlike = not _same(found, other)
        else:
            with said(self.path):
                text = "SELECT id FROM entries WHERE invariant = ? AND state != ? ORDER BY id"
                rows = self.base.execute(text, (invariant(network, collective, options), FAILED)).fetchall()
            searched = search(
                network, collective, options, labels, ((row[0], partial(self.entry, row[0])) for row in rows)
            )
            if searched is None:
                return None
            number, made, unlike = searched[0], searched[1:], True
        if remember and unlike:
            self._remember(problem, number, made[0])
        return made[1], made[0].map

    def _known(self, problem: str) -> tuple[int, Alias | None] | None:
        """The entry of exactly this problem, or the one that an alias leads to."""
        with said(self.path):
            row = self.base.execute(
                "SELECT id FROM entries WHERE fingerprint = ? AND state != ?", (problem, FAILED)
            ).fetchone()
            if row is not None:
                return row[0], None
            row = self.base.execute(
                "SELECT entry, sum, size, body FROM aliases WHERE problem = ? LIMIT 1", (problem,)
            ).fetchone()
        return None if row is None else (row[0], self._alias(problem, Blob(*row[1:])))

    def _remember(self, problem: str, number: int, alias: Alias) -> None:
        own, blob = alias.packed(problem)
        roots = ",".join(map(str, alias.collective.roots))
        net, task = alias.network, alias.collective
        row = (own, problem, number, net.name, task.name, roots, float(net.latency), float(net.unit), *blob)
        with said(self.path), transaction(self.base):
            self.base.execute(
                "INSERT OR IGNORE INTO aliases (fingerprint, problem, entry, topology, collective, roots, alpha, "
                "unit, sum, size, body)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                row,
            )

    def add_measurement(self, name: str, document: dict) -> bool:
        """Attach a document ``synth.measured/1`` to an entry; False where it is there already.

        Raises FormatError for another document, SynthError where none of its programs was lowered from the entry's
        points.
        """
        rows, entry = store_programs.measured(document), self.get(name)
        found = [made for row in rows if (made := store_programs.lowered(entry, row)) is not None]
        if not found:
            raise SynthError(f"none of its {len(rows)} programs was lowered from a point of entry {entry.id}")
        number, blob = self.row_of(name), pack(document)
        with said(self.path), transaction(self.base):
            for kept, program in found:
                store_programs.write(self.base, number, program, kept)
            return self.attach(number, document["executor"], blob, [kept.fingerprint for kept, _ in found])

    def put_program(
        self, name: str, point: int, program: Program, *, runtime: str = "synth", instances: int = 1
    ) -> bool:
        """Keep a program that was lowered from point `point` (from 1) of an entry; False where it is there already."""
        number = self.row_of(name)
        kept = store_programs.Kept(store_programs.fingerprint(program), point, runtime, program.protocol, instances)
        with said(self.path), transaction(self.base):
            return store_programs.write(self.base, number, program, kept)

    def delete(self, name: str) -> None:
        """Remove an entry with all that belongs to it, or one machine that an entry answers for too. Raises UsageError:
        there is none."""
        number, fingerprint, blob = self._named(name)
        with said(self.path), transaction(self.base):
            if blob is None:
                self.base.execute("DELETE FROM entries WHERE id = ?", (number,))
            else:
                self.base.execute("DELETE FROM aliases WHERE fingerprint = ?", (fingerprint,))


def _same(found: Entry, other: Alias) -> bool:
    """Whether the entry is of this very machine, names and speeds and labels included."""
    own = found.frontier
    return isinstance(own, Frontier) and own.network.to_json() == other.network.to_json() and own.labels == other.labels
