"""The values that the page shows of one entry, as text and numbers.

Sheet         id topology collective ranks status mood facts title says columns algorithms stairs times machine proofs
              provenance
AlgorithmRow  name cells proof move lack              a row of the table; `move` is its schedule, packed
Stairs        floor dots open                         the frontier's plot
Times         lines floor wins marks notes            time against size
Mark          label of says modelled points           measured times
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from synth.view.page.animation_data import MachineDrawing, PackedSchedule

GOOD, PART, BAD = "good", "part", "bad"


@dataclass(frozen=True)
class AlgorithmRow:
    """A row of the table. `cells`: under `Sheet.columns`. `steps` 0: unknown. `lack`: why there is no `move`."""

    name: str
    cells: tuple[str, ...]
    proof: str = ""
    steps: int = 0
    move: PackedSchedule | None = None
    lack: str = ""


@dataclass(frozen=True)
class Stairs:
    """The plot of a frontier: a staircase of lower bounds, with points and open intervals on or above it.

    `floor`: (first step of a tread, least rounds per chunk, the same as text) by growing steps. `end`: the last step
    with a bound; None: the last tread has no end. `dots`: (steps, rounds per chunk, the same as text, proved optimal,
    index in `Sheet.algorithms`). `open`: (steps, low, high or None).
    """

    floor: tuple[tuple[int, float, str], ...]
    end: int | None
    dots: tuple[tuple[int, float, str, bool, int], ...]
    open: tuple[tuple[int, float, float | None], ...] = ()


@dataclass(frozen=True)
class Mark:
    """Times of one program.

    `points`: (size in bytes, seconds, least, most) by growing size. `of`: index of its algorithm, if known.
    `library`: an algorithm of another library.
    """

    label: str
    points: tuple[tuple[int, float, float, float], ...]
    says: str
    modelled: bool = False
    of: int | None = None
    library: bool = False


@dataclass(frozen=True)
class Times:
    """The chart of time against size.

    `lines`: (algorithm, seconds, seconds per byte) of each prediction. `floor`: (seconds, seconds per byte), whose
    least is a lower bound; `bound`: (size, seconds) of a certified one. `bus`: nccl-tests' bus bandwidth over size /
    time, None for collectives that it does not measure. `wins`, under `title`: (first size, end or None, name of the
    fastest, its index if known), with sizes in bytes.
    """

    lines: tuple[tuple[int, float, float], ...] = ()
    floor: tuple[tuple[float, float], ...] = ()
    wins: tuple[tuple[float, float | None, str, int | None], ...] = ()
    marks: tuple[Mark, ...] = ()
    notes: tuple[str, ...] = ()
    title: str = "Best by synchronous steps"
    bound: tuple[tuple[int, float], ...] = ()
    bus: float | None = None


@dataclass(frozen=True)
class Sheet:
    """One entry of the page.

    `status`: a few words. `mood`: their colour. `least`: predicted seconds of the smallest message. `rate`: predicted
    GB/s of the largest; both None where unknown. `proofs`: (claim, proof). `provenance`: (name, value).
    """

    id: str
    topology: str
    collective: str
    ranks: int
    status: str
    mood: str
    title: str
    says: tuple[str, ...] = ()
    columns: tuple[tuple[str, str], ...] = ()
    algorithms: tuple[AlgorithmRow, ...] = ()
    least: float | None = None
    rate: float | None = None
    stairs: Stairs | None = None
    times: Times = Times()
    machine: MachineDrawing | None = None
    proofs: tuple[tuple[str, str], ...] = ()
    provenance: tuple[tuple[str, str], ...] = ()
    tables: tuple[dict, ...] = ()

    def to_json(self) -> dict:
        """Return the JSON that the page reads; the page stores the machine separately."""
        return asdict(replace(self, machine=None))

    def head(self) -> dict:
        """Return the values that the list of entries shows."""
        # Counts and extremes stand for the parts that are not in the list.
        return {
            **{key: getattr(self, key) for key in ("id", "topology", "collective", "ranks", "status", "mood")},
            "algorithms": len(self.algorithms),
            "least": self.least,
            "rate": self.rate,
            "measured": sum(len(mark.points) for mark in self.times.marks if not mark.modelled),
        }
