"""The kernel for CPU threads: built by g++ at first use, kept in the cache directory, called by ctypes."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from synth.errors import MissingDependencyError, SynthError
from synth.model.documents.own_file import belongs, is_own
from synth.runtime.kernel import sources

FLAGS = ("-std=c++17", "-O2", "-pthread", "-fno-strict-aliasing", "-Wall")
MISSING = "needs g++: apt install g++"


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


@cache
def library(group: str, main: str = "host", flags: tuple[str, ...] = ()) -> ctypes.CDLL:
    """Load the compiled kernels of one group, built unless cached. Raises MissingDependencyError, SynthError.

    `main`: the source file that launches them, host (threads for one call) or pool (threads that stay). `flags`: more
    of the compiler's.
    """
    command = compiler()
    if command is None:
        raise MissingDependencyError(f"the host executor {MISSING}")
    known = sources.fingerprint(command, *FLAGS, *flags, sources.lines(group))
    target = cache_directory() / f"{main}-{group}-{known}.so"
    if not is_cached(target):
        build(f'#include "{main}.cpp"\n' + sources.lines(group), target, ("-shared", "-fPIC", *flags))
    try:
        return ctypes.CDLL(str(target))
    except OSError as error:
        raise SynthError(f"{target} cannot be loaded: {error}; delete it") from None
