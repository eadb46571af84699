"""The machine that this process runs on, from the tools of its GPUs."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from synth.errors import UsageError
from synth.model.topology import Topology
from synth.topologies import importers

# Commands that print how the GPUs are connected, in the order in which they are tried.
COMMANDS = (("nvidia-smi", "topo", "-m"), ("rocm-smi", "--showtopo"))
SECONDS = 60.0  # seconds after which such a command is given up
ADVICE = "name one, such as dgx1, or give a dump: `nvidia-smi topo -m > topo.txt` there, then topo.txt here"


def this_machine() -> Topology:
    """Return the topology that `nvidia-smi topo -m` or `rocm-smi --showtopo` prints here.

    Raises UsageError where neither command is installed or prints GPUs.
    """
    missing = []
    for command in COMMANDS:
        if shutil.which(command[0]) is None:
            missing.append(command[0])
            continue
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UsageError(f"no topology given, and `{' '.join(command)}` fails here ({error}); {ADVICE}") from None
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()[:1]
            raise UsageError(f"no topology given, and `{' '.join(command)}` fails here ({''.join(said)}); {ADVICE}")
        with tempfile.TemporaryDirectory() as folder:
            dump = Path(folder) / "this-machine"
            dump.write_text(done.stdout)
            return importers.load(dump)
    raise UsageError(f"no topology given, and this machine has no {' or '.join(missing)}; {ADVICE}")
