"""Shared by the tests of expected failures: the tool, sample models, and small input files written without a library."""
import json
import pathlib
import struct
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "build" / "release" / "bin" / "pteron"
SAMPLE = ROOT / "tests" / "conformance" / "sample"


class Tool:
    def __call__(self, *words, **more):
        return subprocess.run([str(TOOL), *map(str, words)], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, **more)


@pytest.fixture
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


def safetensors(tensors):
    """Bytes of a file: {name: (dtype, shape, bytes)}."""
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def floats(*shape):
    """A float32 tensor of zeros."""
    count = 1
    for size in shape:
        count *= size
    return ("F32", list(shape), bytes(4 * count))
