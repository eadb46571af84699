"""Every instantiation of the kernel compiled by NVRTC, without a driver: registers, stack and spills, by architecture.

python -m bench.kernels [--arch 75 80 90 100] [--major 13] [--jobs 2]

Needs the extra test-cuda (or nvidia-cuda-nvrtc-cu12, for sm_70). Prints a line a kernel; ends with 1 where one does not
compile, spills, or takes so many registers that two blocks of 256 threads do not fit a multiprocessor.
"""

import argparse
import itertools
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from synth.errors import SynthError
from synth.runtime.kernel import nvrtc, sources

ARCHITECTURES = (75, 80, 90, 100)
MOST = 128  # registers a thread
Row = tuple[str, int, nvrtc.Used]  # kernel, architecture, what it uses


def compiled(case: tuple[str, int, int | None]) -> tuple[list[Row], str | None, float]:
    """The kernels of a group for an architecture; the error, if they do not compile; CPU seconds."""
    group, arch, major = case
    start = time.process_time()
    try:
        found = nvrtc.compile_group(group, arch, major=major)
        rows = [(symbol.removeprefix("synth_"), arch, found.used[symbol]) for symbol in sources.symbols(group)]
        return rows, None, time.process_time() - start
    except (SynthError, KeyError) as error:
        return [], f"{group} for sm_{arch}: {error}", time.process_time() - start


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", type=int, nargs="+", default=list(ARCHITECTURES))
    parser.add_argument("--major", type=int, default=None)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args(arguments)
    if nvrtc.library_path(given.major) is None:
        print(nvrtc.MISSING, file=sys.stderr)
        return 1
    cases = [(group, arch, given.major) for group, arch in itertools.product(sources.GROUPS, given.arch)]
    rows, failed, spent = [], [], 0.0
    with ProcessPoolExecutor(given.jobs) as pool:
        for found, error, seconds in pool.map(compiled, cases):
            spent += seconds
            failed += [error] if error else []
            for name, arch, used in found:
                spilled = used.stores + used.loads
                takes = f"{used.registers} registers, {used.stack} bytes of stack, {spilled} spilled"
                said = f"sm_{arch} {name}: {takes}"
                print(said, flush=True)
                failed += [said] if used.registers > MOST or spilled else []
            rows += found
    for line in failed:
        print(f"FAILED {line}")
    names = ", ".join(f"sm_{arch}" for arch in given.arch)
    print(f"{len(rows)} instantiations for {names}: {len(failed)} failed, {spent:.0f} CPU s")
    return int(bool(failed) or not rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
