"""Lower bounds in time on small random machines, against an exhaustive search for asynchronous schedules.

python -m bench.time_bounds [--count 500] [--seed 0]
python -m bench.time_bounds --table             the table again, from the JSON

Machine i of a seed has 2 to 4 ranks, up to one switch, one-way links of 1 to 4 GB/s and 0 to 5 µs, and
limits on random sets of links. `bench/asynchronous_search.py`, which shares no code with `synth`, looks for the fastest
schedule: all schedules of one chunk a unit and of two where these are few, and greedy ones of up to twelve where
nothing is summed. A bound above the time of any of them is a *contradiction*.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import NamedTuple

from bench import measure
from bench.asynchronous_search import Machine, Search, Unit
from synth import api
from synth.errors import InfeasibleError
from synth.model.collective import Collective, collective
from synth.model.rational import show
from synth.model.topology import Limit, Link, Topology
from synth.scale.time_bound import time_bound

COLLECTIVES = (
    "allgather", "reduce-scatter", "broadcast", "reduce", "allreduce", "alltoall", "scatter", "gather", "sendrecv",
)  # fmt: skip
SIZES = (12, 600, 2400, 12_000, 120_000)  # bytes; 1000 bytes take a µs at 1 GB/s
STATES = 1_500  # of a search through all schedules
CHUNKS = (3, 6, 12)  # of greedy schedules
RESULTS = measure.RESULTS / "time_bounds.json"


class Instance(NamedTuple):
    """A machine, a collective over its ranks, and a size in bytes."""

    machine: Machine
    collective: Collective
    size: int


def instance(seed: int, number: int) -> Instance:
    """Return the random instance of a seed and a number."""
    random = Random(f"{seed} {number}")
    ranks, switches = random.randint(2, 4), random.choice((0, 0, 1))
    latencies = random.choice(((0,), (1,), (0, 1, 5), (1, 2, 3)))
    links = []
    for a in range(ranks + switches):
        for b in range(ranks + switches):
            often = 0.95 if max(a, b) >= ranks else 0.75
            if a != b and random.random() < often:
                links.append((a, b, Fraction(random.choice((1, 1, 2, 4))), Fraction(random.choice(latencies))))
    limits = []
    for _ in range(random.choice((0, 0, 1, 2))):
        if len(links) > 1:
            some = tuple(sorted(random.sample(range(len(links)), random.randint(2, min(4, len(links))))))
            limits.append((some, Fraction(random.choice((1, 2, 3)))))
    task = collective(random.choice(COLLECTIVES), ranks)
    return Instance(Machine(ranks, tuple(links), tuple(limits)), task, random.choice(SIZES))


def topology(machine: Machine) -> Topology:
    """Return the machine as `synth` knows it."""
    nodes = max((max(a, b) for a, b, _, _ in machine.links), default=0) + 1
    links = tuple(Link(a, b, gbps, late) for a, b, gbps, late in machine.links)
    limits = tuple(Limit(f"l{i}", some, gbps) for i, (some, gbps) in enumerate(machine.limits))
    switches = tuple(f"s{i}" for i in range(nodes - machine.ranks))
    return Topology("random", machine.ranks, links, limits, switches)


def units(task: Collective, size: int) -> list[Unit]:
    """Return the data of a collective, without what is where it must be."""
    share = size * task.unit_share
    result = []
    for pre, post in zip(task.pre, task.post, strict=True):
        result.append(Unit(tuple(sorted(pre)), tuple(sorted(post)), share))
    return result


def least_time(case: Instance, states: int = STATES) -> tuple[Fraction | None, bool]:
    """Return the time in µs of the fastest schedule that is found, and True where all of one chunk were seen."""
    data, combining = units(case.collective, case.size), case.collective.combining
    whole = Search(case.machine, data, combining, 1, states).run()
    times = [whole.time, Search(case.machine, data, combining, 2, states // 4).run().time]
    for chunks in () if combining else CHUNKS:
        if chunks * len(data) <= 24:
            times.append(Search(case.machine, data, combining, chunks, 0).greedy(Random(chunks), 2))
    reached = [time for time in times if time is not None]
    return (min(reached) if reached else None), whole.exhausted


def examine(case: Instance, states: int = STATES) -> dict:
    """Return a row of the results: the bound, the least time found, and their relation in a word."""
    reached, exhausted = least_time(case, states)
    row: dict = {"collective": case.collective.name, "ranks": case.machine.ranks, "size": case.size}
    try:
        found = time_bound(topology(case.machine), case.collective, [case.size])
    except InfeasibleError:
        return row | {"answer": "contradiction" if reached is not None else "impossible"}
    bound = found.rows[0].microseconds
    row |= {"bound": show(bound), "reached": None if reached is None else show(reached), "exhausted": exhausted}
    if found.rows[0].certificate is not None:
        api.verify(json.loads(json.dumps(found.to_json())))
        row["kind"] = found.rows[0].certificate["kind"]
    if reached is None:
        return row | {"answer": "no schedule found"}
    if bound > reached:
        return row | {"answer": "contradiction"}
    return row | {"answer": "equal" if bound == reached else "below"}


def main(arguments: Sequence[str]) -> int:
    """Exit code 1 where a bound lies above the time of a schedule."""
    parser = argparse.ArgumentParser(prog="python -m bench.time_bounds", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--count", type=int, default=500, help="machines (default: 500)")
    parser.add_argument("--seed", type=int, default=0, help="other machines for another seed")
    parser.add_argument("--table", action="store_true", help="write the table of the results that are there again")
    given = parser.parse_args(arguments)
    if given.table:
        document = json.loads(RESULTS.read_text(encoding="utf-8"))
    else:
        rows = []
        for i in range(given.count):
            rows.append({"number": i} | examine(instance(given.seed, i)))
            if rows[-1]["answer"] == "contradiction":
                print(json.dumps(rows[-1]), file=sys.stderr)
        document = {"where": measure.where(), "seed": given.seed, "rows": rows}
    measure.keep(document, table(document), RESULTS)
    answers = Counter(row["answer"] for row in document["rows"])
    print(json.dumps(answers))
    return 1 if answers["contradiction"] else 0


def table(document: dict) -> str:
    """Return the results by collective."""
    lines = []
    for name in (*COLLECTIVES, "all"):
        rows = [row for row in document["rows"] if name in (row["collective"], "all")]
        answers = Counter(row["answer"] for row in rows)
        factors = []
        for row in rows:
            if row.get("reached") and Fraction(row["bound"]):
                factors.append(float(Fraction(row["reached"]) / Fraction(row["bound"])))
        factors.sort()
        middle = f"{factors[len(factors) // 2]:.3f}" if factors else ""
        ninth = f"{factors[len(factors) * 9 // 10]:.3f}" if factors else ""
        all_seen = sum(bool(row.get("exhausted")) for row in rows)
        counts = [str(answers[key]) for key in ("equal", "below", "contradiction", "impossible")]
        lines.append([name, str(len(rows)), *counts, str(all_seen), middle, ninth])
    head = ["collective", "machines>", "time = bound>", "above>", "below the bound>", "impossible>",
            "all schedules seen>", "median factor>", "90%>"]  # fmt: skip
    return (
        "# Lower bounds in time against exhaustive asynchronous search\n\n"
        f"{len(document['rows'])} random machines of 2 to 4 ranks, seed {document['seed']}. The time is that of the "
        "fastest schedule that `bench/asynchronous_search.py` finds; the factor is time / bound. The search sends at "
        'most a few chunks a unit, so a factor above 1 says nothing against the bound. "All schedules seen": with one '
        "chunk a unit.\n\n" + measure.markdown(head, lines) + "\n" + measure.setting(document["where"]) + "\n"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
