"""Wall seconds from process start to the first row of `synth pareto`: a replayed schedule beside a checked bound.

python -m bench.first_rows [--topo NAME ...] [--coll NAME ...] [--limit 10] [-o FILE.json]

Each pair of a machine and a collective is one process, which is ended after its first row, or without one after the
limit. Writes FILE.json: seconds by pair, null where no row came.
"""

import argparse
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

MACHINES = ("dgx1", "dgx2", "dgx1*2", "dgx-a100*4", "dgx-a100*8", "random-regular:64")
COLLECTIVES = ("allgather", "reduce-scatter", "broadcast", "allreduce", "alltoall", "alltonext", "sendrecv")
ROW = " rounds per chunk"


def seconds_to_first_row(machine: str, collective: str, limit: float) -> float | None:
    """Return the wall seconds from the start of a process to its first row, or None where `limit` came first."""
    words = ["pareto", "--topo", machine, "--coll", collective, "--time-limit", f"{limit}s", "--fresh", "--verbose"]
    began = time.monotonic()
    command = [sys.executable, "-m", "synth", *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        timer = threading.Timer(2 * limit, process.kill)
        timer.start()
        row = None
        for line in process.stderr or ():
            text = line.strip().split(" s  ", 1)[-1]
            if text.startswith("S=") and ROW in text and "at least" not in text:
                row = time.monotonic() - began
                break
        timer.cancel()
        process.kill()
    return row


def main() -> int:
    """Measure every pair, print it, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topo", nargs="+", default=MACHINES)
    parser.add_argument("--coll", nargs="+", default=COLLECTIVES)
    parser.add_argument("--limit", type=float, default=10.0)
    parser.add_argument("-o", type=Path, default=Path("bench/results/first_rows.json"))
    options = parser.parse_args()
    rows = []
    for machine in options.topo:
        for collective in options.coll:
            seconds = seconds_to_first_row(machine, collective, options.limit)
            print(f"{machine:20} {collective:16} {'none' if seconds is None else f'{seconds:.2f} s'}", flush=True)
            rows.append({"machine": machine, "collective": collective, "seconds": seconds})
    options.o.write_text(json.dumps({"limit": options.limit, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
