"""One process of a lane: python -m tests.lane_job FOLDER RANK RANKS CASE. Ranks meet in FOLDER; each prints a line."""

import os
import signal
import sys
import time
import traceback
from pathlib import Path

import numpy as np

from synth.errors import SynthError
from synth.language.library import LIBRARY
from synth.model.collective import collective
from synth.model.schedule import Schedule
from synth.program import checked_lowering
from synth.runtime.dtypes import dtype
from synth.runtime.shared.lane import Lane
from synth.topologies import topology

SIZES = (1, 5, 1000, 70_001, 3, 400_000, 64)  # elements of a chunk: some fill a slot of a FIFO several times
TYPES = (("float32", "sum"), ("int64", "max"), ("float16", "sum"), ("uint8", "min"))


class FolderStore:
    """The store of a group, as files."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def set(self, key, value):
        made = self.folder / f"{key.replace('/', '-')}.{os.getpid()}"
        made.write_text(value)
        os.replace(made, self.folder / key.replace("/", "-"))

    def get(self, key):
        while not (self.folder / key.replace("/", "-")).exists():
            time.sleep(0.001)
        return (self.folder / key.replace("/", "-")).read_bytes()


def program(name, task, ranks):
    machine, wanted = topology(f"fully-connected:{ranks}"), collective(task, ranks)
    made = next(one for one in LIBRARY if (one.name, one.collective) == (name, task)).schedule(machine, wanted)
    return checked_lowering.lower(Schedule(machine.network(), wanted, made.chunks, made.steps))


def at(array):
    return array.__array_interface__["data"][0]


def everything(lane, rank, ranks, launches=0, sizes=SIZES):
    """Return the number of calls whose result is right: programs of two collectives and four types, in many sizes.

    `launches`: how many each program is said to have made before.
    """
    reduce = [lane.load(program(name, "allreduce", ranks), in_place=True) for name in ("ring", "two-shot")]
    gather = lane.load(program("direct", "allgather", ranks), in_place=False)
    for loaded in (*reduce, gather) if launches else ():
        _, _, done, runs, _ = loaded.kept
        runs[:], done[:, 0] = launches, (launches - 1) << 40
    right = 0
    for number, elements in enumerate(sizes):
        name, op = TYPES[number % len(TYPES)]
        kind = dtype(name)
        for loaded in reduce:
            count = elements * loaded.program.chunks
            inputs = [np.random.default_rng(other).integers(0, 9, count).astype(kind.numpy) for other in range(ranks)]
            data = inputs[rank].copy()
            lane.begin(b"allreduce")
            lane.call(loaded, elements, kind, op, at(data), at(data))
            wanted = {"sum": np.add, "max": np.maximum, "min": np.minimum}[op].reduce(inputs)
            right += int((data == wanted).all())
        count = elements * gather.program.chunks
        inputs = [np.full(count, other + 1, kind.numpy) for other in range(ranks)]
        out = np.zeros(ranks * count, kind.numpy)
        lane.begin(b"allgather")
        lane.call(gather, elements, kind, "sum", at(inputs[rank]), at(out))
        right += int((out == np.concatenate(inputs)).all())
    return right


def main():
    folder, rank, ranks, case = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    lane = Lane(FolderStore(folder), rank, ranks, 2.0 if case == "late" else 60.0)
    mapped = [line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/dev/shm/synth" in line]
    assert mapped == ["(deleted)"], mapped
    if case in ("right", "wrapped"):
        print(everything(lane, rank, ranks, (1 << 24) - 3 if case == "wrapped" else 0))
        return
    if case == "sizes":  # each is a launch of its own
        print(everything(lane, rank, ranks, sizes=range(1, 300)), max(len(one.prepared) for one in lane._programs))
        return
    if case == "forked":
        child = os.fork()
        if not child:
            try:
                lane.begin(b"allreduce")
            except SynthError as error:
                print(error, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        return
    if case == "idle":  # one block waits for a message, another for that block
        loaded, data = lane.load(program("ring", "allreduce", ranks), in_place=True), np.ones(8, np.float32)
        for late in (0, 1):
            time.sleep(late * rank)
            before = time.process_time()
            lane.begin(b"allreduce")
            lane.call(loaded, 8 // loaded.program.chunks, dtype("float32"), "sum", at(data), at(data))
        print(time.process_time() - before)
        return
    loaded, data = lane.load(program("ring", "allreduce", ranks), in_place=True), np.ones(1024, np.float32)
    try:
        for call in range(3):
            if rank == 1 and call == 2 and case == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if rank == 1 and call == 2 and case == "interrupted":
                time.sleep(1)
                os.kill(lane._processes[0][0], signal.SIGINT)
                while not lane._flags[0]:
                    time.sleep(0.01)
            if rank == 1 and call == 2 and case == "late":
                Path(folder, "waits").touch()
                while len(list(Path(folder).glob("gave-up-*"))) < ranks - 1:
                    time.sleep(0.01)
            lane.begin(b"alltoall" if rank == 1 and call == 2 and case == "another" else b"allreduce")
            lane.call(loaded, 1024 // loaded.program.chunks, dtype("float32"), "sum", at(data), at(data))
        print("right")
    except KeyboardInterrupt:
        for _ in range(2):
            try:
                lane.begin(b"allreduce")
            except SynthError as error:
                print(error, error is not lane.broken, len(list(traceback.walk_tb(error.__traceback__))))
    except SynthError as error:
        Path(folder, f"gave-up-{rank}").touch()
        print(error)


if __name__ == "__main__":
    main()
