"""The kernel compiled by NVRTC for each architecture, without a driver: no spills, no errors. `python -m
bench.kernels`, which CI runs, takes every instantiation; here each feature."""

import pytest
from needs import need

from bench import kernels as bench
from synth.errors import MissingDependencyError, SynthError
from synth.runtime.kernel import nvrtc, sources

ARCHITECTURES = bench.ARCHITECTURES


@pytest.fixture
def needs_nvrtc():
    need("nvrtc")


def compiled(group, arch, major=None):
    """Compiles a group and checks what it uses; prints it (pytest -s)."""
    found = nvrtc.compile_group(group, arch, major=major)
    assert found.cubin[:4] == b"\x7fELF"
    for symbol in sources.symbols(group):
        used = found.used[symbol]
        print(
            f"sm_{arch} {symbol}: {used.registers} registers, {used.stack} bytes of stack, "
            f"{used.stores + used.loads} spilled"
        )
        assert used.registers <= 128  # two blocks of 256 threads on a multiprocessor
        assert used.stores + used.loads == 0
    assert ("divide" in "".join(found.used)) == (group in sources.GROUPS[1:11])


@pytest.mark.usefixtures("needs_nvrtc")
@pytest.mark.parametrize("feature", sources.FEATURES)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_compiles(feature, arch):
    compiled(f"copy-{feature}".rstrip("-"), arch)


@pytest.mark.slow
@pytest.mark.usefixtures("needs_nvrtc")
def test_a_type():
    compiled("bf16", 90)
    compiled("f64-ll", 90)


@pytest.mark.slow
@pytest.mark.skipif(
    nvrtc.library_path(12) is None, reason="V100 needs NVRTC of CUDA 12: pip install nvidia-cuda-nvrtc-cu12"
)
@pytest.mark.parametrize("group", sources.GROUPS)
def test_every_instantiation_compiles_for_the_v100(group):
    compiled(group, 70, 12)


@pytest.mark.slow
@pytest.mark.usefixtures("needs_nvrtc")
def test_the_bench_tells_what_spills_and_what_does_not_compile(monkeypatch, capsys):
    monkeypatch.setattr(sources, "GROUPS", ("copy", "copy-ll"))
    assert bench.main(["--arch", "90", "--jobs", "1"]) == 0
    said = capsys.readouterr().out
    assert "sm_90 copy_ll: " in said and "2 instantiations for sm_90: 0 failed" in said
    assert bench.main(["--arch", "35", "--jobs", "1"]) == 1
    assert "FAILED copy for sm_35" in capsys.readouterr().out
    monkeypatch.setattr(bench, "MOST", 16)
    assert bench.main(["--arch", "90", "--jobs", "1"]) == 1


@pytest.mark.usefixtures("needs_nvrtc")
def test_across_devices():
    """The scope of the system, for ranks on several GPUs."""
    assert nvrtc.compile_group(sources.COPY, 90, ('-DSYNTH_SCOPE="sys"',)).cubin


@pytest.mark.usefixtures("needs_nvrtc")
def test_an_error_is_one_line():
    with pytest.raises(SynthError) as error:
        nvrtc.compile_source("nonsense", 90)
    assert "sm_90" in str(error.value) and "\n" not in str(error.value)


def test_without_nvrtc(monkeypatch):
    monkeypatch.setattr(nvrtc, "library_path", lambda major=None: None)
    nvrtc._library.cache_clear()
    with pytest.raises(MissingDependencyError, match="pip install nvidia-cuda-nvrtc"):
        nvrtc.compile_group(sources.COPY, 90)
    nvrtc._library.cache_clear()
