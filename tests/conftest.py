"""Shared by the tests of the command line tool (cli, error); tests of a folder may have more of their own."""
import pathlib
import subprocess

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
def sample():
    return SAMPLE


@pytest.fixture
def program(pteron, sample, tmp_path):
    """A compiled small model."""
    out = tmp_path / "mlp.pte"
    done = pteron("compile", sample / "mlp_float32" / "model.pt2", "-o", out)
    assert done.returncode == 0, done.stderr
    return out
