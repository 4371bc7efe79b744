"""Operators that PyTorch gives another dtype to when there are no elements; pools at random places; calls that only ask for a dtype."""
import pytest
import torch
from torch import nn

from whole import check_calls, compile_model, pteron, run, save


class Bincount(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.count = count

    def forward(self, x, w):
        if self.count is None:
            return torch.bincount(x, w, minlength=3)
        return torch.bincount(x[:self.count], w[:self.count], minlength=3)


class Trapezoid(nn.Module):
    def forward(self, x):
        return torch.trapezoid(x[:0]), torch.trapezoid(x)


def test_bincount_of_nothing(tmp_path):
    """int64 in PyTorch, whatever the weights; the archive says float64: refused, not given as float."""
    args = torch.tensor([1, 2, 2]), torch.rand(3, dtype=torch.float64)
    save(Bincount(0), args, tmp_path / "m.pt2")
    assert "PyTorch gives int64 there" in pteron("compile", tmp_path / "m.pt2", "-o", tmp_path / "m.pte", "--max-size", "8", expect=4).stderr
    check_calls(Bincount(3), [args], tmp_path, "--max-size", "8")


def test_bincount_of_nothing_at_run_time(tmp_path):
    n = torch.export.Dim("n", min=0, max=8)
    program, _ = compile_model(Bincount(None), (torch.tensor([1, 2, 2]), torch.rand(3)), tmp_path, "--max-size", "8", dynamic_shapes={"x": {0: n}, "w": {0: n}})
    assert "PyTorch gives int64 there" in run(program, [(torch.zeros(0, dtype=torch.int64), torch.zeros(0))], tmp_path, expect=5)


def test_trapezoid_of_nothing(tmp_path):
    check_calls(Trapezoid(), [(torch.arange(5),)], tmp_path)


class Fractional(nn.Module):
    def __init__(self, kernel, to):
        super().__init__()
        self.kernel, self.to = kernel, to

    def forward(self, x, samples):
        pool = torch.ops.aten.fractional_max_pool2d if len(self.to) == 2 else torch.ops.aten.fractional_max_pool3d
        return pool(x, self.kernel, self.to, samples)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape,kernel,to", [((2, 3, 11, 13), [2, 3], [5, 4]), ((3, 17, 19), [2, 2], [9, 7]), ((1, 2, 6, 7), [6, 7], [1, 1]), ((2, 3, 7, 9, 8), [2, 3, 2], [3, 4, 1])])
def test_fractional_max_pool(tmp_path, dtype, shape, kernel, to):
    torch.manual_seed(0)
    planes = shape[:len(shape) - len(to)]
    calls = [(torch.randn(shape).to(dtype), torch.rand(planes[0] if len(planes) == 2 else 1, planes[-1], len(to)).to(dtype)) for _ in range(2)]
    calls[1][0].view(-1)[5] = float("nan")
    check_calls_nan(Fractional(kernel, to), calls, tmp_path)


def check_calls_nan(module, calls, folder):
    program, _ = compile_model(module, calls[0], folder)
    for got, call in zip(run(program, calls, folder), calls):
        for a, b in zip(got, module(*call)):
            torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


def test_fractional_max_pool_samples_are_checked(tmp_path):
    program, _ = compile_model(Fractional([2, 2], [3, 3]), (torch.randn(1, 1, 8, 8), torch.rand(1, 1, 2)), tmp_path)
    assert "a random sample of 7" in run(program, [(torch.randn(1, 1, 8, 8), torch.full((1, 1, 2), 7.0))], tmp_path, expect=5)


class AsksForDtypes(nn.Module):
    def forward(self, a, b):
        wide = torch.promote_types(torch.result_type(a, b), torch.float64)
        ask = torch.result_type(a, 2.0), torch.result_type(2, b), torch.result_type(1, 2.0)
        return a.to(wide if torch.can_cast(wide, torch.float64) else ask[0]) + b


@pytest.mark.parametrize("profile", ["pteron", "executorch"])
def test_calls_that_only_ask(tmp_path, profile):
    check_calls(AsksForDtypes(), [(torch.arange(3), torch.rand(3))], tmp_path, "--profile", profile)
