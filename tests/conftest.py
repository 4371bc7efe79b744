"""Shared by the tests of the command line tool (cli, error); tests of a folder may have more of their own."""
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
TOOL = ROOT / "build" / "release" / "bin" / "pteron"
SAMPLE = ROOT / "tests" / "conformance" / "sample"


class Tool:
    path = TOOL

    def __call__(self, *words, **more):
        return subprocess.run([str(TOOL), *map(str, words)], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, **more)


@pytest.fixture(scope="session")
def pteron():
    if not TOOL.is_file():
        pytest.fail(f"{TOOL} is missing: run ./dev build")
    return Tool()


@pytest.fixture
def stand_in(monkeypatch):
    """CUDA programs run in the stand-in for the driver; NVRTC is that of this Python."""
    driver = ROOT / "build" / "release" / "lib" / "libpteron_cuda_emulator.so"
    if not driver.is_file():
        pytest.fail(f"{driver} is missing: run ./dev build")
    monkeypatch.setenv("PTERON_CUDA_DRIVER", str(driver))
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)


@pytest.fixture
def sample():
    return SAMPLE


@pytest.fixture
def program(pteron, sample, tmp_path):
    """A compiled small model."""
    out = tmp_path / "mlp.pte"
    done = pteron("compile", sample / "mlp_float32" / "model.pt2", "-o", out)
    assert done.returncode == 0, done.stderr
    return out
