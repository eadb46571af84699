"""Every instantiation of the kernel compiled by NVRTC for each architecture, without a driver: no spills, no errors."""

import pytest

from synth.errors import MissingDependencyError, SynthError
from synth.runtime import kernels, nvrtc

ARCHITECTURES = (75, 80, 90, 100)
needs_nvrtc = pytest.mark.skipif(nvrtc.where() is None, reason="NVRTC is not installed: pip install -e '.[test-cuda]'")


def compiled(group, arch, major=None):
    """Compiles a group and checks what it uses; prints it (pytest -s)."""
    found = nvrtc.compile_group(group, arch, major=major)
    assert found.cubin[:4] == b"\x7fELF"
    for symbol in kernels.symbols(group):
        used = found.used[symbol]
        print(f"sm_{arch} {symbol}: {used.registers} registers, {used.stack} bytes of stack, {used.stores + used.loads} spilled")
        assert used.registers <= 128  # two blocks of 256 threads on a multiprocessor
        assert used.stores + used.loads == 0
    assert group == kernels.COPY or f"synth_{group}_divide" in found.used


@needs_nvrtc
@pytest.mark.parametrize("group", [kernels.COPY, "bf16"])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_compiles(group, arch):
    compiled(group, arch)


@needs_nvrtc
@pytest.mark.slow
@pytest.mark.parametrize("group", kernels.GROUPS)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_instantiation_compiles(group, arch):
    compiled(group, arch)


@pytest.mark.slow
@pytest.mark.skipif(nvrtc.where(12) is None, reason="V100 needs NVRTC of CUDA 12: pip install nvidia-cuda-nvrtc-cu12")
@pytest.mark.parametrize("group", kernels.GROUPS)
def test_every_instantiation_compiles_for_the_v100(group):
    compiled(group, 70, 12)


@needs_nvrtc
def test_across_devices():
    """The scope of the system, for ranks on several GPUs."""
    assert nvrtc.compile_group(kernels.COPY, 90, ('-DSYNTH_SCOPE="sys"',)).cubin


@needs_nvrtc
def test_an_error_is_one_line():
    with pytest.raises(SynthError) as error:
        nvrtc.compile_source("nonsense", 90)
    assert "sm_90" in str(error.value) and "\n" not in str(error.value)


def test_without_nvrtc(monkeypatch):
    monkeypatch.setattr(nvrtc, "where", lambda major=None: None)
    nvrtc._library.cache_clear()
    with pytest.raises(MissingDependencyError, match="pip install nvidia-cuda-nvrtc"):
        nvrtc.compile_group(kernels.COPY, 90)
    nvrtc._library.cache_clear()
