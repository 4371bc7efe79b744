"""Tensors on the device, each case in a process of its own (tests/cuda/device_cases.cpp): addresses off the boundary, sizes that change, wrong memory, streams and
graphs of the caller, sessions beside each other."""
import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from whole import ROOT, compile_model


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory):
    driver, cases = ROOT / "build" / "release" / "lib" / "libpteron_cuda_emulator.so", ROOT / "build" / "release" / "bin" / "cuda_device_cases"
    for path in (driver, cases):
        if not path.is_file():
            pytest.fail(f"{path} is missing: run ./dev build")
    return {**os.environ, "PTERON_CUDA_DRIVER": str(driver), "PTERON_EMULATOR_CACHE": str(tmp_path_factory.mktemp("translated")), "VIRTUAL_ENV": sys.prefix}


class Rows(nn.Module):
    """Several kernels, a product between them."""

    def __init__(self, dtype):
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(24, 24).to(dtype))

    def forward(self, x):
        h = torch.softmax(x * 2 + 1, -1)
        return torch.mm(h, self.weight) + x.mean(0, keepdim=True)


@pytest.fixture(scope="module", params=["float32", "float16"])
def program(request, stand_in, tmp_path_factory):
    dtype = getattr(torch, request.param)
    folder = tmp_path_factory.mktemp(request.param)
    rows = torch.export.Dim("n", min=1, max=8)
    made, _ = compile_model(Rows(dtype), (torch.randn(5, 24).to(dtype),), folder, "--backend", "cuda", "--spec", "cuda:arch=source", "--device-inputs", "--device-outputs",
                            dynamic_shapes=({0: rows},))
    return made


@pytest.mark.parametrize("case", ["input", "output", "both", "sizes", "refusals", "stream", "sessions"])
def test_case(case, program, stand_in):
    done = subprocess.run([ROOT / "build" / "release" / "bin" / "cuda_device_cases", case, program], env=stand_in, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
