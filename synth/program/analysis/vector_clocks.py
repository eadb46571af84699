"""Vector clocks that separate accesses to a cell that are ordered in every execution from those that race.

An actor is a thread block, the engine behind a port channel, or the user of a rank's buffers. Time is counted per
actor; ``row[a][b]`` is the last tick of b that is certainly before a's next access. For every cell the last write and
the reads since then are stored. So one pass over any one order of execution finds, for each cell, whether two accesses
of which one writes are unordered (DJIT: Pozniansky and Schuster, "Efficient On-the-fly Data Race Detection in
Multithreaded C++ Programs", 2003).
"""

from __future__ import annotations

import numpy as np

Row = np.ndarray
Place = tuple[int, int]  # (actor, op)


class Clocks:
    """The rows of all actors, and the access history of `cells` cells.

    `races` collects (cell, first access, second access, kinds) for each unordered pair. Only the actors `watched` have
    a column: an access of another actor counts as ordered before all later ones. For many actors the same order of
    execution is analysed once for every part of them.
    """

    def __init__(self, actors: int, cells: int, watched: range) -> None:
        self.watched = watched
        self.rows = np.zeros((actors, len(watched)), np.int32)
        self.now = [0] * actors
        self.writer = [-1] * cells
        self.write_time = [0] * cells
        self.write_op = [0] * cells
        self.readers: list[dict[int, tuple[int, int]] | None] = [None] * cells
        self.races = []

    def double_cells(self) -> None:
        """Add as many cells again, which nobody has accessed."""
        cells = len(self.writer)
        self.writer += [-1] * cells
        self.write_time += [0] * cells
        self.write_op += [0] * cells
        self.readers += [None] * cells

    def tick(self, actor: int) -> Row:
        """Advance the time of `actor` by one; return its row."""
        row = self.rows[actor]
        self.now[actor] += 1
        if actor in self.watched:
            row[actor - self.watched.start] = self.now[actor]
        return row

    def learn(self, actor: int, other: int, time: int) -> None:
        """Record that `other` reached `time` before the next access of `actor`."""
        if other in self.watched and self.rows[actor, other - self.watched.start] < time:
            self.rows[actor, other - self.watched.start] = time

    def before(self, row: Row, actor: int, time: int) -> bool:
        """Return True if whoever has the clock `row` has seen `actor` reach `time`; always for actors that are not
        `watched`."""
        return actor not in self.watched or row[actor - self.watched.start] >= time

    def join(self, actor: int, row: Row) -> None:
        """Order all accesses before `row` before the next access of `actor`."""
        np.maximum(self.rows[actor], row, out=self.rows[actor])

    def read(self, cell: int, actor: int, op: int) -> None:
        """Record that `actor` reads `cell` now, in its op `op`."""
        self._check_writer(cell, actor, op, "write-read")
        # only the last read of each actor can be the first to race with a later write
        readers = self.readers[cell]
        if readers is None:
            self.readers[cell] = {actor: (self.now[actor], op)}
        else:
            readers[actor] = (self.now[actor], op)

    def write(self, cell: int, actor: int, op: int) -> None:
        """Record that `actor` writes `cell` now, in its op `op`."""
        self._check_writer(cell, actor, op, "write-write")
        readers = self.readers[cell]
        if readers is not None:
            # all reads since the last write must have ended
            for reader, (time, read_op) in readers.items():
                if reader != actor and not self.before(self.rows[actor], reader, time):
                    self.races.append((cell, (reader, read_op), (actor, op), "read-write"))
            self.readers[cell] = None
        self.writer[cell], self.write_time[cell], self.write_op[cell] = actor, self.now[actor], op

    def _check_writer(self, cell: int, actor: int, op: int, kind: str) -> None:
        """Record a race of op `op` of `actor` with the last write of `cell`, unless it is ordered behind that."""
        writer = self.writer[cell]
        if writer >= 0 and writer != actor and not self.before(self.rows[actor], writer, self.write_time[cell]):
            self.races.append((cell, (writer, self.write_op[cell]), (actor, op), kind))
