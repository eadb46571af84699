"""Fixtures of all tests: hypothesis profiles, a cache directory for each test, golden files.

`--update-golden` writes the golden files anew instead of comparing with them.
"""

import re
import signal
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from synth.runtime.kernel import build_host
from synth.solvers import pool

ROOT = Path(__file__).parent.parent
GOLDEN = ROOT / "tests" / "golden"
FUZZ_CASES = ROOT / "fuzz-cases"

# How fast the machine is decides nothing. `make fuzz` takes the other profile, and a seed.
NO_CLOCK = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)
settings.register_profile("test", NO_CLOCK, derandomize=True)
settings.register_profile("fuzz", NO_CLOCK, derandomize=False, print_blob=True)
settings.load_profile("test")


def pytest_addoption(parser):
    parser.addoption(
        "--update-golden", action="store_true", help="write golden files anew; look at the diff before committing"
    )


def pytest_configure():
    """Where a shell starts the tests in the background Ctrl-C is ignored, by all that they start too."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """An example that `make fuzz` found, with what reproduces it, becomes a file."""
    report = yield
    seed = item.config.getoption("--hypothesis-seed")
    if report.failed and seed is not None:
        FUZZ_CASES.mkdir(exist_ok=True)
        test = re.sub(r"\W+", "-", item.nodeid)
        (FUZZ_CASES / f"{test}-seed-{seed}.txt").write_text(report.longreprtext)
    return report


@pytest.fixture(scope="session", autouse=True)
def quick_kernels(request):
    """Kernels compile in a fourth of the time without optimisation; the slow tests take them as users do."""
    if "not slow" in request.config.option.markexpr:
        build_host.FLAGS = tuple("-O0" if flag == "-O2" else flag for flag in build_host.FLAGS)


@pytest.fixture(scope="session")
def caches(request, tmp_path_factory):
    """New cache directories, one at each call. All share the compiled kernels, whose names say what is in them."""
    kernels = request.config.cache.mkdir("kernels")
    folder, numbers = tmp_path_factory.mktemp("caches"), count()

    def new() -> Path:
        cache = folder / str(next(numbers))
        cache.mkdir()
        (cache / "kernels").symlink_to(kernels)
        return cache

    return new


@pytest.fixture(scope="module", autouse=True)
def module_cache(caches):
    """A cache directory for what the fixtures of a module search for."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SYNTH_CACHE", str(caches()))
        yield


@pytest.fixture(autouse=True)
def own_cache(caches, monkeypatch):
    """No test goes on from what another, or an earlier run, left in a sweep's log."""
    monkeypatch.setenv("SYNTH_CACHE", str(caches()))


@pytest.fixture(autouse=True)
def kept_helpers(monkeypatch):
    """Helper processes, which import solvers for a third of a second, go on to the next test; `pool.stop` ends them
    with this process."""
    monkeypatch.setattr(pool, "stop", lambda: None)


@pytest.fixture
def gpu(monkeypatch):
    """`gpu(**options)`: the stand-in for CuPy, with these options, in CuPy's place."""
    from standin import Cupy

    from synth.runtime.cuda import executor

    def there(**options):
        cupy = Cupy(**options)
        for name, value in (("_cupy", lambda: cupy), ("missing", lambda: None), ("kernel", cupy.kernel)):
            monkeypatch.setattr(executor, name, value)
        monkeypatch.setattr(executor.nvrtc, "version", lambda: (13, 0))
        return cupy

    return there


@pytest.fixture
def golden(request):
    """`golden(name, text)`: `text` is what tests/golden/NAME holds; a missing file fails."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert path.is_file(), f"no golden file {path.name}; run pytest --update-golden and look at it"
        assert text == path.read_text()

    return compare
