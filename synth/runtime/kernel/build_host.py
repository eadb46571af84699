"""The kernel for CPU threads: built by g++ at first use, kept in the cache directory, called by ctypes."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path

from synth.errors import MissingDependencyError, SynthError
from synth.model.documents.own_file import belongs, is_own
from synth.runtime.kernel import sources

FLAGS = ("-std=c++17", "-O2", "-pthread", "-fno-strict-aliasing", "-Wall")
MISSING = "needs g++: apt install g++"
NOTE_SECONDS = 2.0  # of compiling, until a line says so


def compiler() -> str | None:
    """Return the path of the C++ compiler, $CXX or g++; None where there is none."""
    return shutil.which(os.environ.get("CXX") or "g++")


def cache_directory() -> Path:
    """Return the folder of compiled kernels, kernels/ in the cache.

    The cache is $SYNTH_CACHE, else $XDG_CACHE_HOME/synth, else ~/.cache/synth.
    """
    base = os.environ.get("SYNTH_CACHE")
    if base:
        return Path(base) / "kernels"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "synth" / "kernels"


def write_atomically(path: Path, content: bytes) -> None:
    """Write `content` to the file `path` atomically, since other processes may write it too. Raises SynthError."""
    try:
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(content)
        os.chmod(file.name, 0o755)
        os.replace(file.name, path)
    except OSError as error:
        raise SynthError(
            f"compiled kernels are kept in {path.parent}, which cannot be written: {error}; set SYNTH_CACHE"
        ) from None


def build(source: str, target: Path, flags: tuple[str, ...] = (), folder: Path = sources.FOLDER) -> None:
    """Compile `source` against the kernel's files in `folder` into `target`. Raises SynthError with the compiler's
    first error."""
    command = compiler()
    if command is None:
        raise MissingDependencyError(f"the host executor {MISSING}")
    with tempfile.TemporaryDirectory() as work:
        main, binary = Path(work) / "main.cpp", Path(work) / "made"
        main.write_text(source)
        done = subprocess.run(
            [command, *FLAGS, *flags, f"-I{folder}", str(main), "-o", str(binary)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            lines = done.stderr.splitlines()
            errors = [line for line in lines if "error" in line]
            raise SynthError(f"{command} cannot compile the kernel: {(errors or lines or ['no message'])[0]}")
        write_atomically(target, binary.read_bytes())


def is_cached(target: Path) -> bool:
    """Return True where compiled code is in the cache, False where it has to be compiled.

    Raises SynthError where others may have written it, or may replace it: it would run as this user.
    """
    folder = target.parent
    if folder.is_symlink() and belongs(folder.lstat()):  # the user's own link, to a folder that is judged as any other
        folder = folder.resolve()
    for path in (folder, target):
        if path.is_symlink() or (path.exists() and not is_own(path)):
            raise SynthError(
                f"{path} is not used: it is a link, or another user owns it or may write it; `chmod go-w {path}` if it "
                f"is yours, else set SYNTH_CACHE to a folder of your own"
            )
    return target.exists()


def _build_once(source: str, target: Path, flags: tuple[str, ...], note: str) -> None:
    """Build `target` in one process while others wait for it. Where the file system has no locks, several may."""
    with ExitStack() as held:
        with suppress(OSError):  # a folder that cannot be written is named when the kernel is
            target.parent.mkdir(0o700, parents=True, exist_ok=True)
            fcntl.flock(held.enter_context(open(f"{target}.lock", "w", encoding="ascii")), fcntl.LOCK_EX)
        if is_cached(target):
            return
        timer = threading.Timer(NOTE_SECONDS, print, [note], {"file": sys.stderr, "flush": True})
        if note:
            timer.start()
        try:
            build(source, target, flags)
        finally:
            timer.cancel()
            # whoever waits for this lock finds the kernel, and whoever comes later does not look for the lock
            Path(f"{target}.lock").unlink(missing_ok=True)


@cache
def library(group: str, main: str = "host", flags: tuple[str, ...] = (), only: str = "", note: str = "") -> ctypes.CDLL:
    """Load the compiled kernels of one group, built unless cached. Raises MissingDependencyError, SynthError.

    `main`: the source file that launches them, host (threads for one call) or pool (threads that stay). `flags`: more
    of the compiler's. `only`: the one symbol of the group that is needed. `note`: a line for stderr where compiling
    takes long.
    """
    command = compiler()
    if command is None:
        raise MissingDependencyError(f"the host executor {MISSING}")
    lines = sources.lines(group, only)
    known = sources.fingerprint(command, *FLAGS, *flags, lines)
    target = cache_directory() / f"{main}-{group}-{known}.so"
    if not is_cached(target):
        _build_once(f'#include "{main}.cpp"\n{lines}', target, ("-shared", "-fPIC", *flags), note)
    try:
        return ctypes.CDLL(str(target))
    except OSError as error:
        raise SynthError(f"{target} cannot be loaded: {error}; delete it") from None
