"""Calls of CUDA programs on the stand-in driver: buffers that stay on the device, sizes that change, what bench says."""
import json
import subprocess
import sys

import pytest
import torch
from torch import nn

from whole import ROOT, check_calls, compile_model, pteron

EMULATED = ["--backend", "cuda", "--spec", "cuda:arch=source"]


@pytest.fixture(autouse=True)
def stand_in(monkeypatch, tmp_path):
    driver = ROOT / "build" / "release" / "lib" / "libpteron_cuda_emulator.so"
    if not driver.is_file():
        pytest.fail(f"{driver} is missing: run ./dev build")
    monkeypatch.setenv("PTERON_CUDA_DRIVER", str(driver))
    monkeypatch.setenv("PTERON_EMULATOR_CACHE", str(tmp_path / "translated"))
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)


class Cache(nn.Module):
    """A window of rows: the oldest leaves, the sum of all comes out."""

    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.zeros(4, 6))

    def forward(self, x, place):
        self.rows.index_copy_(0, place, x)
        return torch.softmax(self.rows, -1).sum(0) + x


def test_buffers_stay_on_the_device(tmp_path):
    calls = [(torch.randn(1, 6), torch.tensor([i % 4])) for i in range(7)]
    check_calls(Cache(), calls, tmp_path, *EMULATED)


class Scaled(nn.Module):
    def forward(self, x):
        return torch.softmax(x * 2 + 1, -1) + x.mean(0, keepdim=True)


def test_sizes_that_change(tmp_path):
    sizes = [3, 3, 3, 5, 3, 5, 5, 1, 3, 8, 8, 8, 5]
    check_calls(Scaled(), [(torch.randn(n, 6),) for n in sizes], tmp_path, *EMULATED, dynamic_shapes=({0: torch.export.Dim("n", min=1, max=8)},))


def test_bench_says_where_the_time_goes(tmp_path):
    program, _ = compile_model(Scaled(), (torch.randn(3, 6),), tmp_path, *EMULATED)
    said = json.loads(pteron("bench", program, "--min-time", "0.05", "--json").stdout)["cuda"]
    assert said["kernels_ms"] > 0 and said["enqueue_ms"] > 0
    assert said["kernel_calls"] == sum(kernel["calls"] for kernel in said["kernels"]) >= 1
    text = pteron("bench", program, "--min-time", "0.05", "--profile").stdout
    assert "cuda: enqueue" in text and said["kernels"][0]["name"] in text


def test_without_a_driver(tmp_path, monkeypatch):
    program, _ = compile_model(Scaled(), (torch.randn(3, 6),), tmp_path, *EMULATED)
    monkeypatch.setenv("PTERON_CUDA_DRIVER", str(tmp_path / "libcuda.so.1"))
    assert "the CUDA driver was not found" in pteron("bench", program, expect=6).stderr
    report = json.loads(pteron("doctor", "--json").stdout)["cuda"]
    assert report["ready"] is False and "the CUDA driver was not found" in report["why_not"]


def test_doctor_asks_every_library(tmp_path, monkeypatch):
    found = {library["name"]: library for library in json.loads(pteron("doctor", "--json").stdout)["cuda"]["libraries"]}
    assert found["driver"]["ready"] and found["driver"]["path"].endswith("libpteron_cuda_emulator.so") and found["driver"]["version"] == "13.0"
    assert found["NVRTC"]["ready"] and "libnvrtc" in found["NVRTC"]["path"] and int(found["NVRTC"]["version"].split(".")[0]) >= 12
    # Of libraries that are not here: a small one that answers, and one that lacks the function.
    source = tmp_path / "fake.c"
    for name, text in (("libcublasLt.so.13", "unsigned long cublasLtGetVersion(void) { return 130105; }"), ("libcudnn.so.9", "int other;")):
        source.write_text(text)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / name, source], check=True)
    monkeypatch.setenv("PTERON_CUDA_PATH", str(tmp_path))
    found = {library["name"]: library for library in json.loads(pteron("doctor", "--json").stdout)["cuda"]["libraries"]}
    assert found["cuBLASLt"]["version"] == "13.1.5" and found["cuBLASLt"]["path"] == str(tmp_path / "libcublasLt.so.13")
    assert not found["cuDNN"]["ready"] and "cudnnGetVersion" in found["cuDNN"]["why_not"]
    assert "cuBLASLt 13.1.5" in pteron("doctor").stdout
    monkeypatch.delenv("PTERON_CUDA_PATH")
    monkeypatch.delenv("VIRTUAL_ENV")
    missing = json.loads(pteron("doctor", "--json").stdout)["cuda"]["libraries"]
    assert all(library["ready"] or library["why_not"] for library in missing)
