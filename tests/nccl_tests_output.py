"""The output of nccl-tests, written as its util.cu writes it: text of several versions, and JSON."""

from typing import NamedTuple

from synth.catalog.tuner.nccl_tests import ROOTED, SUMS

# Collectives whose count argument is the elements of one rank's part, and bytes of an element.
PARTS = ("allgather", "reduce-scatter", "alltoall", "gather", "scatter")
TYPES = {"float": 4, "half": 2, "int8": 1, "double": 8}

TESTS = {
    "allgather": "all_gather", "allreduce": "all_reduce", "reduce-scatter": "reduce_scatter", "alltoall": "alltoall",
    "broadcast": "broadcast", "reduce": "reduce", "gather": "gather", "scatter": "scatter", "sendrecv": "sendrecv",
}  # fmt: skip
NOT_RUN = None


class Run(NamedTuple):
    """A run of a test. `times`: by size the µs out of place and in place. `options`: letters of nccl-tests' options."""

    collective: str
    ranks: int
    times: dict[int, tuple[float | None, float | None]]
    type: str = "float"
    root: int = 0
    version: str = "2.19"
    options: str = ""  # S timestamps, C CPU time, c results not checked, P times of single calls
    each: int = 1  # ranks of a process
    wrong: int = 0

    @property
    def test(self):
        return f"{TESTS[self.collective]}_perf"

    @property
    def redop(self):
        return "sum" if self.collective in (*SUMS, "sendrecv") else "none"  # sendrecv_perf prints what -o says

    @property
    def printed_root(self):
        return self.root if self.collective in ROOTED else -1

    def count(self, size):
        """Return the elements of the count argument of a call."""
        return size // TYPES[self.type] // (self.ranks if self.collective in PARTS else 1)

    def factor(self):
        """Return the bus bandwidth divided by size / time, as doc/PERFORMANCE.md has it."""
        share = (self.ranks - 1) / self.ranks
        return {"allreduce": 2 * share, "broadcast": 1, "reduce": 1, "sendrecv": 1}.get(self.collective, share)


def number(value, width):
    """Return a number in `width` characters, with as many digits as there is room for."""
    power = len(str(int(value))) if value >= 1 else 0
    if power < width - 2:
        return f"{value:{width}.2f}"
    if power < width - 1:
        return f"{value:{width}.1f}"
    if power < width + 1:
        return f"{value:{width}.0f}"
    return f"{value:{width}.1e}" if width >= 7 else f"{value:{width}.0e}"


def lines(run):
    """Return the lines of the text."""
    old = run.version < "2.12"
    sizes = list(run.times)
    found = []
    if run.version >= "2.17":
        found += ["# nccl-tests version 2.19.6 nccl-headers=22907 nccl-library=22907",
                  f"# Collective test starting: {run.test}"]  # fmt: skip
    found.append(
        f"# nThread 1 nGpus {run.each} minBytes {sizes[0]} maxBytes {sizes[-1]} step: 2(factor) warmup iters: 1 "
        "iters: 20 agg iters: 1 validation: 1 graph: 0"
    )
    found += ["#", "# Using devices"]
    for rank in range(run.ranks):
        group = "" if old else " Group  0"
        found.append(
            f"#  Rank {rank:2d}{group} Pid {4000 + rank:6d} on     host-0 device {rank % 8:2d} "
            f"[0000:{16 + rank % 64:02x}:00] NVIDIA H100 80GB HBM3"
        )
    time = "cputime" if "C" in run.options else "time"
    single = ["i_min", "i_max", "i_p99", "i_cv%"] if "P" in run.options else []
    columns = ["size", "count", "type", "redop", "root"]
    if old:
        columns = [*columns[:3], *["redop"] * (run.collective in SUMS), *["root"] * (run.collective in ROOTED)]
    columns += 2 * [time, "algbw", "busbw", "error" if old else "#wrong", *single]
    columns += ["timestamp"] if "S" in run.options else []
    found += ["#", "#" + " " * 62 + "out-of-place                       in-place          "]
    found.append("# " + "  ".join(f"{name:>10}" for name in columns))
    found.append("#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)")
    for size, pair in run.times.items():
        count = run.count(size)
        words = [f"{size:12d}", f"{count:12d}", f"{run.type:>8}"]
        words += [f"{run.redop:>6}"] if "redop" in columns else []
        words += [f"{run.printed_root:6d}"] if "root" in columns else []
        for micro in pair:
            if micro is None:
                words += ["    N/A"] * (4 + len(single))
                continue
            algbw = size / micro / 1000
            words += [number(micro, 7), number(algbw, 6), number(algbw * run.factor(), 6)]
            words.append("N/A" if "c" in run.options else "0e+00" if old else f"{run.wrong:6g}")
            words += [number(micro, 7)] * len(single)
        if "S" in run.options:
            words.append(f"2026-07-10 09:12:{size.bit_length():02d}")
        found.append("  ".join(words))
    found += ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 81.4 ", "#"]
    if run.version >= "2.17":
        found.append(f"# Collective test concluded: {run.test}")
    return [*found, ""]


def text(run):
    """Return the text of a run."""
    return "\n".join(lines(run)) + "\n"


def document(run):
    """Return the JSON document of a run."""
    results = []
    for size, pair in run.times.items():
        row = {
            "size": size, "count": run.count(size), "type": run.type, "redop": run.redop,
            "root": f"{run.printed_root:6d}",
        }  # fmt: skip
        for place, micro in zip(("out_of_place", "in_place"), pair, strict=True):
            row[place] = micro and {
                "cpu_time" if "C" in run.options else "time": round(micro, 6),
                "alg_bw": round(size / micro / 1000, 6),
                "bus_bw": round(size / micro / 1000 * run.factor(), 6),
                "nwrong": None if "c" in run.options else float(run.wrong),
            }
        results.append(row)
    devices = [{"rank": rank, "group": 0, "pid": 4000 + rank} for rank in range(0, run.ranks, run.each)]
    config = {"nthreads": 1, "ngpus": run.each, "step_factor": 2, "devices": devices}
    return {"version": 2, "args": [f"./build/{run.test}", "-J", "x.json"], "config": config, "results": results}
