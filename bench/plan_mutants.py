"""Plans of MSCCL++ with one random change each, judged by lint and by an interpreter.

A change that lint lets pass runs in `bench.plan_threads`, thread by thread, under random priorities: a wrong output or
a run that hangs is a *miss*. A change that lint catches runs there a few times too, to see whether it goes wrong in
fact: lint also refuses what is right by luck. The plans themselves must be right there, and lint must let them pass:
else it is a false alarm. Plans named with --wrong are wrong as they stand, and are not changed.

    python -m bench.plan_mutants FOLDER --count 160 --wrong m_sendrecv.json

Prints the verdicts. Ends with 1 where lint missed something or raised a false alarm.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
from collections import Counter
from pathlib import Path

from bench.plan_threads import Document, Machine, Wrong
from synth.errors import SynthError
from synth.export.mscclpp.read import read
from synth.program import analysis

KINDS = ("drop", "wait", "duplicate", "swap", "move", "offset", "buffer", "channel", "share", "unit")
WAITING = ("wait", "rlxwait", "nop", "barrier", "flush", "sem_acquire")
FEW = 4  # runs of a change that lint catches


def machine(plan: Document, units: int, seed: int) -> Machine | None:
    """Return the machine that runs `plan`; None if its collective has no definition here."""
    ranks, gpu = len(plan["gpus"]), plan["gpus"][0]
    every, own, share = (1 << ranks) - 1, gpu["input_chunks"], gpu["output_chunks"]
    name = plan["collective"]
    if name == "allreduce":
        return Machine(plan, units, lambda r, u: (u, 1 << r), lambda _, u: (u, every), lambda _: 0, seed)
    if name == "reducescatter":
        part = share * units

        def scattered(rank: int, unit: int) -> tuple:
            return rank * part + unit, every

        return Machine(plan, units, lambda r, u: (u, 1 << r), scattered, lambda r: r * share, seed)
    part = own * units if name == "allgather" else own // ranks * units

    def gathered(_: int, unit: int) -> tuple:
        return (unit // part, unit % part), 1 << unit // part

    def exchanged(rank: int, unit: int) -> tuple:
        return (unit // part, rank * part + unit % part), 1 << unit // part

    if name == "allgather":
        return Machine(plan, units, lambda r, u: ((r, u), 1 << r), gathered, lambda r: -r * own, seed)
    if name == "alltoall":
        return Machine(plan, units, lambda r, u: ((r, u), 1 << r), exchanged, lambda _: 0, seed)
    return None


def fault(plan: Document, units: int, seeds: range) -> str | None:
    """Return what goes wrong in some run of `plan`; None if all are right."""
    for seed in seeds:
        built = machine(plan, units, seed)
        if built is None:
            return None
        try:
            built.run()
        except Wrong as wrong:
            return str(wrong)
    return None


def changed(plan: Document, chance: random.Random) -> tuple[str, Document] | None:
    """Return a copy of `plan` with one random change, and its name; None if the change drawn does not apply."""
    copied = copy.deepcopy(plan)
    lists = []
    for gpu in copied["gpus"]:
        for block in gpu["threadblocks"]:
            lists.append(block["ops"])
            lists += [op["ops"] for op in block["ops"] if "ops" in op]
    ops = chance.choice([entries for entries in lists if entries])
    i = chance.randrange(len(ops))
    buffers = [*ops[i].get("src_buff", ()), *ops[i].get("dst_buff", ())]
    name = chance.choice(KINDS)
    if name == "wait":
        waiting = [k for k, op in enumerate(ops) if op["name"] in WAITING]
        if not waiting:
            return None
        del ops[chance.choice(waiting)]
    elif name == "drop":
        del ops[i]
    elif name == "duplicate":
        ops.insert(i, copy.deepcopy(ops[i]))
    elif name == "swap":
        j = chance.randrange(len(ops))
        ops[i], ops[j] = ops[j], ops[i]
    elif name == "move":
        ops.insert(chance.randrange(len(ops)), ops.pop(i))
    elif name == "offset" and buffers:
        chance.choice(buffers)["index"] += chance.choice([-1, 1])
    elif name == "buffer" and any("type" in buffer for buffer in buffers):
        chance.choice([buffer for buffer in buffers if "type" in buffer])["type"] = chance.choice("ios")
    elif name == "channel" and ops[i].get("channel_ids"):
        ops[i]["channel_ids"][0] = chance.randrange(3)
    elif name == "share" and "tbg_info" in ops[i]:
        ops[i]["tbg_info"]["tb_id"] = chance.randrange(ops[i]["tbg_info"]["tbg_size"])
    elif name == "unit" and "iter_context" in ops[i]:
        ops[i]["iter_context"]["unit_size"] *= 2
    return None if copied == plan else (name, copied)


def accepted(plan: Document) -> bool:
    """True if lint has nothing to say against `plan` at the sizes that it names."""
    try:
        report = analysis.check(read(json.dumps(plan)), "mscclpp")
    except SynthError:
        return False
    return not [finding for finding in report.findings if finding.rule not in ("offsets", "scratch", "buffers")]


def units_of(plan: Document) -> int:
    """Return the units of a chunk with which `plan` is run: two turns of a pipeline and a bit, else nine."""
    lists = [block["ops"] for gpu in plan["gpus"] for block in gpu["threadblocks"]]
    units = [op["iter_context"]["unit_size"] // 16 for ops in lists for op in ops if "iter_context" in op]
    return 2 * units[0] + 1 if units else 9


def verdict(plan: Document, runs: int) -> tuple[str, str | None]:
    """Return how lint judges a changed plan (caught, passed or missed), and what goes wrong in the interpreter."""
    if accepted(plan):
        wrong = fault(plan, units_of(plan), range(runs))
        return "passed" if wrong is None else "missed", wrong
    try:
        return "caught", fault(plan, units_of(plan), range(FEW))
    except (LookupError, ValueError, StopIteration, RuntimeError) as error:  # a plan that no runtime would load
        return "caught", f"cannot run: {type(error).__name__}"


def shortened(plan: Document) -> Document:
    """Return `plan` with pieces of a few units in its pipelines, so that runs stay small."""
    copied = copy.deepcopy(plan)
    for gpu in copied["gpus"]:
        for block in gpu["threadblocks"]:
            for op in block["ops"]:
                if "iter_context" in op:
                    op["iter_context"]["unit_size"] = 64
    return copied


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=100, help="changes of each plan")
    parser.add_argument("--runs", type=int, default=12, help="runs of each plan that lint lets pass")
    parser.add_argument("--wrong", nargs="*", default=[], help="names of plans that are wrong as they stand")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance, total = random.Random(options.seed), Counter[str]()
    for path in sorted(options.folder.glob("*.json")):
        if path.name in options.wrong:
            continue
        plan = shortened(json.loads(path.read_text()))
        wrong = fault(plan, units_of(plan), range(options.runs))
        if wrong is not None or not accepted(plan):
            total["alarms"] += 1
            print(f"{path.name}: lint {'accepts' if accepted(plan) else 'refuses'} it; in the interpreter: {wrong}")
        mine: Counter[str] = Counter()
        while mine.total() < options.count:
            pair = changed(plan, chance)
            if pair is None:
                continue
            judged, wrong = verdict(pair[1], options.runs)
            mine[judged] += 1
            if judged == "missed":
                print(f"{path.name}: {pair[0]} is missed: {wrong}", flush=True)
        total += mine
        print(f"{path.name}: {dict(mine)}", flush=True)
    print(dict(total))
    return int(total["alarms"] + total["missed"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
