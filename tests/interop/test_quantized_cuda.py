"""Quantized models on the CUDA engine (in the stand-in driver): it takes every node, gives eager's results, and the weights keep 8 bits."""
import sys

import pytest
import torch
from torch.export import export

from conftest import ROOT, equal, pteron, run_here

quantized_models = pytest.importorskip("quantized_models")
pytest.importorskip("torchao.quantization.pt2e.quantize_pt2e", reason="executorch: torchao is not installed")
from test_quantized import Exact  # noqa: E402

EMULATED = ["--backend", "cuda", "--spec", "cuda:arch=source", "--strict"]


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    driver = ROOT / "build" / "release" / "lib" / "libpteron_cuda_emulator.so"
    assert driver.is_file(), f"{driver} is missing: run ./dev build"
    monkeypatch.setenv("PTERON_CUDA_DRIVER", str(driver))
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)


def compiled(module, inputs, folder, name="q"):
    """The program, and the bytes of its weights: what is outside of the program, without the text of the kernels."""
    (folder / name).mkdir()
    with torch.no_grad():
        torch.export.save(export(module, inputs), folder / f"{name}.pt2")
    pteron("compile", folder / f"{name}.pt2", "-o", folder / f"{name}.pte", "--external-weights", "--spec", f"cuda:dump_kernels={folder / name}", *EMULATED)
    return folder / f"{name}.pte", (folder / f"{name}.ptd").stat().st_size - sum(text.stat().st_size for text in (folder / name).glob("*.cu"))


def check(quantized, inputs, folder, tolerance):
    """Results are eager's, or at ties between two levels those of the graph in double. Returns the bytes of the weights."""
    program, size = compiled(quantized, inputs, folder)
    got = run_here(program, [list(inputs)], folder)[0][0]
    with torch.no_grad():
        want = quantized(*inputs)
        if not torch.allclose(got, want, rtol=tolerance, atol=tolerance):
            exact = Exact(export(quantized, inputs).module()).run(*inputs)
            want = (exact[0] if isinstance(exact, (tuple, list)) else exact).to(got.dtype)
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)
    return size


@pytest.mark.parametrize("name", ["conv_xnnpack", "mlp_xnnpack", "mlp_x86", "mlp_dynamic", "row_w8", "mlp_w4_32", "block_w8_group", "step_w4_64", "row_d8_w8", "block_d8_w4"])
def test_equal_to_eager(tmp_path, name):
    model, quantized, inputs = quantized_models.make(name)
    size = check(quantized, inputs, tmp_path, 1e-6 if name in quantized_models.STATIC else 1e-5)
    assert size < 0.5 * compiled(model, inputs, tmp_path, "float")[1]


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_every_8_bit_float(tmp_path, dtype):
    """All 256 values become floats and come back; numbers between them, too large ones and NaN are rounded as PyTorch rounds them."""

    class Kept(torch.nn.Module):
        """The bytes of another dtype are no view that the engine takes: they stay in constants."""

        def __init__(self):
            super().__init__()
            self.register_buffer("codes", torch.arange(256).to(torch.uint8).view(dtype).view(16, 16))

        def forward(self, x):
            return self.codes.float() + 0 * x[:256].view(16, 16), x.to(dtype).float(), x.to(torch.bfloat16).to(dtype).to(torch.float16)

    finfo = torch.finfo(dtype)
    x = torch.cat([torch.randn(256) * 4, torch.randn(256) * 0.01, torch.tensor([0.0, -0.0, finfo.max, 1.03 * finfo.max, -1.1 * finfo.max, 2.0 * finfo.max, 2**-10, 2**-17])])
    program, _ = compiled(Kept(), (x,), tmp_path)
    for got, want in zip(run_here(program, [[x]], tmp_path)[0], Kept()(x)):
        assert torch.equal(got.nan_to_num(nan=12345.0), want.nan_to_num(nan=12345.0))
