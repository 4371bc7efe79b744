"""Quantized models on the CUDA engine (in the stand-in driver): it takes every node, gives eager's results, and the weights keep 8 bits."""
import pytest
import torch
from torch import nn
from torch.export import export

from conftest import equal, pteron, run_here

quantized_models = pytest.importorskip("quantized_models")
pytest.importorskip("torchao.quantization.pt2e.quantize_pt2e", reason="executorch: torchao is not installed")
from test_quantized import Exact  # noqa: E402

EMULATED = ["--backend", "cuda", "--spec", "cuda:arch=source", "--strict"]
pytestmark = pytest.mark.usefixtures("stand_in")


def compiled(module, inputs, folder, name="q"):
    """The program, and the bytes of its weights: what is outside of the program, without the text of the kernels."""
    (folder / name).mkdir()
    with torch.no_grad():
        torch.export.save(export(module, inputs), folder / f"{name}.pt2")
    report = pteron("compile", folder / f"{name}.pt2", "--json", "-o", folder / f"{name}.pte", "--external-weights", "--spec", f"cuda:dump_kernels={folder / name}", *EMULATED)
    (folder / f"{name}.json").write_text(report.stdout)
    return folder / f"{name}.pte", (folder / f"{name}.ptd").stat().st_size - sum(text.stat().st_size for text in (folder / name).glob("*.cu"))


class Call(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, *args):
        return self.fn(*args)


def kernels_of(program):
    """Names of the operators inside of the delegate."""
    report = program.with_suffix(".json").read_text()
    return {word for word in ("pteron_cuda::product", "pteron_cuda::integer_sums", "pteron_cuda::convolution", "pteron_cuda::row_product", "pteron_cuda::narrow_rows") if word in report}


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


@pytest.mark.parametrize("name", ["conv_xnnpack", "conv_batch", "mlp_xnnpack", "mlp_x86", "mlp_dynamic", "row_w8", "mlp_w4_32", "block_w8_group", "step_w4_64", "row_d8_w8", "block_d8_w4"])
def test_equal_to_eager(tmp_path, name):
    model, quantized, inputs = quantized_models.make(name)
    size = check(quantized, inputs, tmp_path, 1e-6 if name in quantized_models.STATIC else 1e-5)
    kernels = kernels_of(tmp_path / "q.pte")
    assert "pteron_cuda::convolution" not in kernels, "a convolution runs in float"
    if "_xnnpack" in name or "batch" in name or "dynamic" in name:
        assert kernels <= {"pteron_cuda::product", "pteron_cuda::integer_sums"} and kernels
    if name.startswith(("row_w", "step_w")):
        assert kernels == {"pteron_cuda::narrow_rows"}, "weights are dequantized in every call"
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


def levels(values, scale, zero, dtype):
    """Through `dtype` and back: what pt2e writes."""
    import torch.ao.quantization.fx._decomposed  # noqa: F401  registers the operators
    ops, info = torch.ops.quantized_decomposed, torch.iinfo(dtype)
    return ops.dequantize_per_tensor(ops.quantize_per_tensor(values, scale, zero, info.min, info.max, dtype), scale, zero, info.min, info.max, dtype)


class Weights(nn.Module):
    """Products and convolutions of all shapes that tiles do not divide, with zero points that padding has to know."""

    def __init__(self, dtype):
        super().__init__()
        torch.manual_seed(3)
        self.dtype = dtype
        for name, shape in {"odd": (10, 20), "one": (1, 33), "whole": (48, 32), "line": (6, 5, 3), "wide": (70, 16, 3, 3), "apart": (12, 1, 3, 3), "groups": (36, 16, 1, 2)}.items():
            self.register_buffer(name, torch.randint(-128, 128, shape, dtype=torch.int8))
            self.register_buffer(name + "_scales", torch.rand(shape[0]) * 0.02 + 0.01)
        self.bias = nn.Parameter(torch.randn(70))

    def weight(self, name):
        w = getattr(self, name)
        return torch.ops.quantized_decomposed.dequantize_per_channel(w, getattr(self, name + "_scales"), torch.zeros(len(w), dtype=torch.int64), 0, -128, 127, torch.int8)

    def forward(self, a, b, c, line, image, apart):
        import torch.nn.functional as f
        q = [levels(v, 0.03, 117 if self.dtype == torch.uint8 else -11, self.dtype) for v in (a, b, c, line, image, apart)]
        return (f.linear(q[0], self.weight("odd"), self.bias[:10]), f.linear(q[1], self.weight("one")), f.linear(q[2], self.weight("whole")), f.conv1d(q[3], self.weight("line"), padding=2),
                f.conv2d(q[4], self.weight("wide"), self.bias, stride=2, padding=1, dilation=2), f.conv2d(q[5], self.weight("apart"), padding=1, groups=12),
                f.conv2d(torch.cat([q[4], q[4]], 1), self.weight("groups"), stride=(1, 2), padding=(0, 1), groups=2).relu())


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
def test_every_shape_is_exact(tmp_path, dtype):
    module, inputs = Weights(dtype).eval(), (torch.randn(7, 20), torch.randn(2, 3, 33), torch.randn(5, 32), torch.randn(2, 5, 9), torch.randn(2, 16, 13, 11), torch.randn(1, 12, 6, 6))
    program, _ = compiled(module, inputs, tmp_path)
    with torch.no_grad():
        exact = Exact(export(module, inputs).module()).run(*inputs)
    for got, want in zip(run_here(program, [list(inputs)], tmp_path)[0], exact):
        torch.testing.assert_close(got, want.float(), rtol=1e-5, atol=2e-5)


def test_products_of_integers(tmp_path):
    def products(a, b, c):
        return torch._int_mm(a, b), torch.mm(a.int(), b.int()), torch.bmm(c, c.transpose(1, 2))
    inputs = (torch.randint(-128, 128, (17, 24), dtype=torch.int8), torch.randint(-128, 128, (24, 8), dtype=torch.int8), torch.randint(-9, 9, (3, 5, 7)))
    program, _ = compiled(Call(products), inputs, tmp_path)
    for got, want in zip(run_here(program, [list(inputs)], tmp_path)[0], products(*inputs)):
        assert torch.equal(got, want)


class Float8(nn.Module):
    """Activations and weights of 8-bit floats: as casts and products, and as aten::_scaled_mm."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        w, v = torch.randn(48, 64), torch.randn(32, 48)
        self.register_buffer("rows", w.abs().amax(1, keepdim=True) / 448)
        self.register_buffer("w", (w / self.rows).to(torch.float8_e4m3fn))
        self.register_buffer("v", (v * 100).to(torch.float8_e4m3fn))
        self.bias = nn.Parameter(torch.randn(48))

    def forward(self, x):
        scale = x.abs().amax(-1, keepdim=True) / 448
        q = (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
        y = torch.nn.functional.linear(q.float() * scale, self.w.float() * self.rows, self.bias).relu()
        one = torch.tensor(0.05)
        z = torch._scaled_mm((y / one).clamp(-448, 448).to(torch.float8_e4m3fn), self.v.t(), one, torch.tensor(0.01), out_dtype=torch.bfloat16)
        return y, z


def test_float8(tmp_path):
    module, inputs = Float8().eval(), (torch.randn(6, 64),)
    program, size = compiled(module, inputs, tmp_path)
    assert size < 0.5 * 4 * (48 * 64 + 32 * 48)
    for got, want in zip(run_here(program, [list(inputs)], tmp_path)[0], module(*inputs)):
        torch.testing.assert_close(got, want, rtol=1e-5 if want.dtype == torch.float32 else 1e-2, atol=1e-5)
