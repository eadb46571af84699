"""Do all methods say the same? Exact synthesis, flow methods and searches that share no code, on small random machines.

python -m bench.agreement [--count 5000] [--seed 0]
python -m bench.agreement --table            the table again, from the JSON

Machine i of a seed has 2 to 5 ranks, up to 3 switches, one-way and parallel links of 1 to 4 units, and limits on random
sets of links, often both links of a way through a switch; one collective is asked of it. A *contradiction* is any of
these:

- a schedule, of either engine, that does not do what it says when it is carried out over the physical links, every
  crossing of a link of a limit counted (bench/small.py)
- a proved bound, of either engine, above the R/C or the steps of a schedule: one of the other engine, one of its own,
one
  that dynamic programming finds for 1 or 2 steps, or the optimum of a linear program over all steps and chunks
- a schedule below that optimum
- an answer about one (C, S, R), by an encoding drawn at random, other than that of the dynamic programming
- a document that `synth verify` refuses, or a machine that only some methods call disconnected
- a schedule, of either engine, over a way through switches that is longer than another (docs/model.md)

What an engine refuses, or has no answer to in time, is counted by its reason. Results are written as they come; the
same command continues where it was ended.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from random import Random

from bench import measure, small
from synth import api
from synth.errors import InfeasibleError, SynthError
from synth.model.frontier import Frontier
from synth.model.outcome import Sat, Unsat
from synth.model.scale_frontier import ScaleFrontier
from synth.model.topology import Topology
from synth.solvers.processes import pool
from synth.topologies.file_reader import parse_json
from synth.topologies.topology_files import from_document

FLOWS = ("allgather", "reduce-scatter", "broadcast", "reduce", "alltoall", "allreduce")  # drawn alike often
EXACT = ("scatter", "gather")  # half as often: flow methods do not know them
ENCODINGS = ("auto", "step", "quotient", "path", "tree")
MOST_STEPS = 3  # of a frontier, unless more are needed; what is open there is compared too
SECONDS = 2.0  # of an engine
CLOSE = 1e-6  # the linear program's floats
EVERY = 25  # machines between two writes of the results


def machine(rng: Random) -> dict:
    """A random machine in the form of docs/topologies.md."""
    ranks, count = rng.choice((2, 3, 3, 4, 4, 5)), rng.choice((0, 1, 1, 1, 2, 2, 3))
    switches = [f"s{i}" for i in range(count)]
    ends: list[int | str] = [*range(ranks), *switches]
    links: list[dict] = []

    def join(a: int | str, b: int | str, both: bool) -> None:
        links.append({"src": a, "dst": b, "bandwidth": rng.randint(1, 4)} | ({"both": True} if both else {}))

    for r in range(ranks):  # most ranks on a switch, or else in a ring
        if switches and rng.random() < 0.85:
            join(r, rng.choice(switches), rng.random() < 0.9)
        else:
            join(r, (r + 1) % ranks, rng.random() < 0.8)
    for a, b in pairwise(switches):
        join(a, b, rng.random() < 0.9)
    for _ in range(rng.randint(0, 3)):
        a, b = rng.sample(ends, 2)
        join(a, b, rng.random() < 0.4)
    pairs = list(
        dict.fromkeys(
            p for k in links for p in ((k["src"], k["dst"]), (k["dst"], k["src"]))[: 1 + k.get("both", False)]
        )
    )
    limits = [
        {"name": f"limit {k}", "links": row, "bandwidth": rng.randint(1, 4)}
        for k, row in enumerate(_limits(rng, pairs, switches))
    ]
    return {"name": "random", "ranks": ranks, "switches": switches, "links": links, "limits": limits}


def _limits(rng: Random, pairs: list[tuple], switches: list[str]) -> Iterator[list[list]]:
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        near = [p for p in pairs if switches and rng.choice(switches) in p] if rng.random() < 0.6 else pairs
        if near:
            yield [list(p) for p in rng.sample(near, rng.randint(1, min(len(near), 5)))]


Known = tuple[str, int, Fraction]  # who has a schedule, of how many steps, with which R/C
Proved = tuple[str, int | None, Fraction]  # who proves, of how many steps (None: any), which R/C at least


class Case:
    """One collective on one machine: what each method says, and what contradicts what."""

    def __init__(self, doc: dict, name: str, root: int, rng: Random) -> None:
        self.doc, self.name, self.root, self.rng = doc, name, root, rng
        self.truth = small.Machine.read(doc)
        self.topology: Topology = from_document(parse_json(json.dumps(doc), "random"), "random")
        self.roots = (root,) if name in small.ROOTED else ()
        self.least = small.farthest(self.truth, name, root)  # steps; None: disconnected
        self.wrong: list[str] = []
        self.seen: Counter[str] = Counter()

    @staticmethod
    def drawn(seed: int, index: int) -> Case:
        """Machine `index` of a seed, with one collective."""
        rng = Random(f"{seed} {index}")
        doc = machine(rng)
        name = rng.choice((*FLOWS, *FLOWS, *EXACT))
        return Case(doc, name, rng.randrange(doc["ranks"]), rng)

    def run(self) -> None:
        """Ask everyone, and compare."""
        points, bounds, exact = self.compare_exact()
        for found in (self.compare_flow(), (self._searched(), [])):
            points, bounds = points + found[0], bounds + found[1]
        self.seen["disconnected"] += self.least is None
        self.seen["schedules compared"] += len(points)
        self.seen["bounds compared"] += len(bounds)
        for who, s, bound in bounds:
            for other, steps, value in points:
                if value < bound and (s is None or steps == s):
                    self.wrong.append(
                        f"{who} proves R/C >= {bound} at {s or 'any'} steps, {other} has {value} in {steps}"
                    )
        self._dominated(exact, points)

    def compare_exact(self) -> tuple[list[Known], list[Proved], Frontier | None]:
        """The schedules of exact synthesis and what it proves, compared with the physical links and the linear
        program."""
        found = self._ask("exact", self._exact)
        if not isinstance(found, Frontier) or self.least is None:
            return [], [], None
        self._replay_exact(found)
        self._verified("exact", found.to_json())
        least = small.infimum(self.truth, self.name, self.root)
        self._below("exact", (p.rounds_per_chunk for p in found.points), least)
        self._above("exact", (b.value for s, b in found.bounds if s is None), least)
        bounds = [("exact", s, b.value) for s, b in found.bounds if s != 0] + [
            ("exact", o.steps, o.lower) for o in found.open
        ]
        bounds += [("exact", p.steps, p.rounds_per_chunk) for p in found.points if p.status == "optimal"]
        return [("exact", p.steps, p.rounds_per_chunk) for p in found.points], bounds, found

    def compare_flow(self) -> tuple[list[Known], list[Proved]]:
        """The same of the flow methods, whose bounds hold for longer ways through switches too."""
        found = self._ask("flow", self._flow) if self.name in FLOWS else None
        if not isinstance(found, ScaleFrontier) or self.least is None:
            return [], []
        self._replay_flow(found)
        self._verified("flow", found.to_json())
        self._below("flow", (p.rounds_per_chunk for p in found.points), small.infimum(self.truth, self.name, self.root))
        self._above("flow", (found.bound,), small.infimum(self.truth, self.name, self.root, every=True))
        return [("flow", p.steps, p.rounds_per_chunk) for p in found.points], [("flow", None, found.bound)]

    def _dominated(self, exact: object, points: Sequence[Known]) -> None:
        """A frontier that is complete must have a point as good as any other."""
        if not isinstance(exact, Frontier) or not exact.complete:
            return
        self.seen["complete frontiers"] += 1
        for other, steps, value in points:
            within = exact.max_steps is None or steps <= exact.max_steps
            if within and not any(p.steps <= steps and p.rounds_per_chunk <= value for p in exact.points):
                self.wrong.append(f"the complete frontier {exact!r} lacks {other}'s {value} in {steps} steps")

    def _ask(self, who: str, what: Callable[[], Frontier | ScaleFrontier]) -> Frontier | ScaleFrontier | None:
        try:
            found = what()
        except InfeasibleError:
            if self.least is not None:
                self.wrong.append(f"{who} calls a connected machine infeasible")
            return None
        except SynthError as error:
            if self.least is not None:
                self.seen[f"{who} refuses: {_reason(str(error))}"] += 1
            return None
        except Exception as error:  # a crash is a finding, and must not end the campaign
            self.wrong.append(f"{who} crashes: {type(error).__name__}: {error}")
            return None
        self.seen[f"{who} answers"] += 1
        if self.least is None:
            self.wrong.append(f"{who} answers on a disconnected machine")
        return found

    def _exact(self) -> Frontier:
        with tempfile.TemporaryDirectory() as folder:
            found = api.frontier(
                self.topology, self.name, roots=self.roots, engine="exact", max_steps=max(MOST_STEPS, self.least or 0),
                time_limit=SECONDS, jobs=1, log=Path(folder) / "log", fresh=True,
            )  # fmt: skip
        assert isinstance(found, Frontier)
        return found

    def _flow(self) -> ScaleFrontier:
        found = api.frontier(self.topology, self.name, roots=self.roots, engine="flow", time_limit=SECONDS)
        assert isinstance(found, ScaleFrontier)
        return found

    def _verified(self, who: str, doc: dict) -> None:
        try:
            api.verify(json.loads(json.dumps(doc)))
        except SynthError as error:
            self.wrong.append(f"verify refuses the {who} document: {error}")

    def _replay_exact(self, found: Frontier) -> None:
        for p in found.points:
            try:
                steps = [(step.rounds, [self._move(send) for send in step.sends]) for step in p.schedule.steps]
                small.replay(
                    self.truth, self.name, self.root, p.chunks, [(r, [m for m in moves if m]) for r, moves in steps]
                )
            except small.Wrong as error:
                self.wrong.append(f"exact's schedule of {p.steps} steps: {error}")

    def _move(self, send) -> tuple | None:
        return None if send.local else (send.chunk, self.truth.way(send.src, send.dst, send.via), send.kind)

    def _replay_flow(self, found: ScaleFrontier) -> None:
        at = {(a, b): i for i, (a, b, _) in enumerate(self.truth.links)}
        for p in found.points:
            made = p.schedule.expanded()
            links = made.topology.links
            ways = [tuple(at[links[i].src, links[i].dst] for i in path) for path in made.paths]
            steps: list[tuple[int, list]] = [(int(r), []) for r in made.step_rounds]
            for step, chunk, path, kind in zip(made.step, made.chunk, made.path, made.kind, strict=True):
                steps[step][1].append((int(chunk), ways[path], "reduce" if kind else "copy"))
            try:
                if (len(steps), Fraction(sum(r for r, _ in steps), made.chunks)) != (p.steps, p.rounds_per_chunk):
                    raise small.Wrong(f"it is no point of {p.steps} steps and R/C {p.rounds_per_chunk}")
                small.replay(self.truth, self.name, self.root, made.chunks, steps)
            except small.Wrong as error:
                self.wrong.append(f"flow's schedule by {p.construction}: {error}")
            ends = [(self.truth.links[way[0]][0], self.truth.links[way[-1]][1]) for way in ways]
            if not all(way in self.truth.ways[pair] for pair, way in zip(ends, ways, strict=True)):
                self.wrong.append(
                    f"flow's schedule by {p.construction} takes a way through switches that is not a shortest one"
                )

    def _below(self, who: str, values: Iterable[Fraction], least: float | None) -> None:
        if least is not None:
            self.wrong += [
                f"{who} has R/C {v}, the linear program says at least {least}"
                for v in values
                if float(v) < least * (1 - CLOSE)
            ]

    def _above(self, who: str, values: Iterable[Fraction], least: float | None) -> None:
        if least is not None:
            self.wrong += [
                f"{who} proves R/C >= {v}, the linear program has {least}"
                for v in values
                if float(v) > least * (1 + CLOSE)
            ]

    def _searched(self) -> list[Known]:
        """Compare dynamic programming with the exact engine at the same C, S and R, and at one round less."""
        found = []
        for steps, chunks in ((1, 1), (2, 1), (1, 2)):
            value = small.fewest(self.truth, self.name, self.root, steps, chunks)
            if value is None:
                continue
            self.seen["searches by dynamic programming"] += 1
            if value:
                found.append(("search", steps, value))
            if value and self.rng.random() < 0.5:
                self._solved(chunks, steps, int(value * chunks))
        return found

    def _solved(self, chunks: int, steps: int, rounds: int) -> None:
        encoding = self.rng.choice(ENCODINGS)
        for asked, right in ((rounds, Sat), (rounds - 1, Unsat)):
            if asked < steps:
                continue
            try:
                said = api.solve(
                    self.topology,
                    self.name,
                    chunks,
                    steps,
                    asked,
                    roots=self.roots,
                    encoding=encoding,
                    time_limit=SECONDS,
                    jobs=1,
                )
            except SynthError as error:
                self.seen[f"solve refuses: {_reason(str(error))}"] += 1
                continue
            what = f"C={chunks} S={steps} R={asked} by {encoding}"
            self.seen["questions answered" if isinstance(said, Sat | Unsat) else f"questions open by {encoding}"] += 1
            if isinstance(said, Sat | Unsat) and not isinstance(said, right):
                self.wrong.append(f"{what}: {type(said).__name__}, the search finds R = {rounds}")


def _reason(text: str) -> str:
    return re.sub(r"\d+(/\d+)?", "N", text)[:90]


def table(document: dict) -> str:
    """The results as Markdown."""
    seen = document["seen"]
    refused = {key: n for key, n in seen.items() if "refuses" in key or "open" in key}
    rows = [[key, str(n)] for key, n in sorted(seen.items(), key=lambda row: -row[1]) if key not in refused]
    open_ = [[key, str(n)] for key, n in sorted(refused.items(), key=lambda row: -row[1])]
    lines = [
        f"- machine {row['index']}, {row['collective']}: {text}"
        for row in document["contradictions"]
        for text in row["wrong"]
    ]
    return (
        f"# Agreement of the methods\n\n{document['done']} random machines (seed {document['seed']}): "
        f"**{len(document['contradictions'])} contradictions**. {document['cpu'] / max(1, document['done']):.2f} "
        f"CPU s a machine. "
        "Method: bench/agreement.py.\n\n"
        + measure.markdown(["compared", "count>"], rows)
        + ("\nWithout an answer, by reason:\n\n" + measure.markdown(["reason", "count>"], open_) if open_ else "")
        + ("\n" + "\n".join(lines) + "\n" if lines else "")
        + "\n"
        + measure.setting(document["setting"])
        + "\n"
    )


def _cpu() -> float:
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the campaign, from where it was ended; exit code 1 where anything contradicts."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.agreement", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--count", type=int, default=5000, metavar="N", help="machines")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of all random choices")
    parser.add_argument("--table", action="store_true", help="print the table of an earlier run")
    parser.add_argument("-o", "--output", type=Path, default=measure.RESULTS / "agreement.json", metavar="FILE.json")
    given = parser.parse_args(arguments)
    earlier = json.loads(given.output.read_text(encoding="utf-8")) if given.output.exists() else {}
    if given.table:
        print(table(earlier))
        return 0
    setting = measure.where()
    same = earlier.get("seed") == given.seed and earlier["setting"]["commit"] == setting["commit"]
    document = (
        earlier
        if same
        else {"setting": setting, "seed": given.seed, "done": 0, "cpu": 0.0, "seen": {}, "contradictions": []}
    )
    seen, used, began = Counter(document["seen"]), document["cpu"], _cpu()
    stop = pool.stop
    pool.stop = lambda: None  # the helper processes are kept from one machine to the next, until `stop`
    for index in range(document["done"], given.count):
        case = Case.drawn(given.seed, index)
        try:
            case.run()
        except Exception as error:  # one comparison that cannot be made must not end all of them
            case.wrong.append(f"the comparison fails: {type(error).__name__}: {error}")
        seen += case.seen
        if case.wrong:
            row = {"index": index, "collective": case.name, "root": case.root, "wrong": case.wrong, "machine": case.doc}
            document["contradictions"].append(row)
            print(
                f"{index} {case.name} {case.root}: {'; '.join(case.wrong)}\n  {json.dumps(case.doc)}",
                file=sys.stderr,
                flush=True,
            )
        document["done"] = index + 1
        if not (index + 1) % EVERY or index + 1 == given.count:
            stop()
            document |= {"cpu": round(used + _cpu() - began, 1), "seen": dict(seen)}
            measure.keep(document, table(document), given.output)
    print(table(document))
    return int(bool(document["contradictions"]))


if __name__ == "__main__":
    sys.exit(main())
