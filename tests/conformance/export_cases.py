#!/usr/bin/env python3
"""Cases by the form of the export: strict and non-strict, autocast and no_grad regions, and operators that public models keep whole."""
import argparse
import pathlib
import re

import torch
from torch import nn

import caselib

CASES = {}


def case(name, calls, **options):
    """Registers a module class whose __init__ takes nothing; calls: a function that makes the list of calls."""
    def register(cls):
        CASES[name] = (cls, calls, options)
        return cls
    return register


def one(*sizes):
    return lambda: [tuple(torch.randn(s) for s in sizes)]


class Blocks(nn.Module):
    """What both kinds of tracer see: a module tree, a shared layer, a buffer that counts calls, a nested result."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Sequential(nn.LayerNorm(6), nn.GELU())
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("scale", torch.tensor(0.5), persistent=False)

    def forward(self, x, more):
        self.calls.add_(1)
        y = self.second(self.first(self.first(x) + more["bias"]))
        return {"y": y * self.scale, "parts": (y[:, :2], [self.calls.clone(), y.sum(-1)])}


def block_calls():
    return [(torch.randn(3, 6), {"bias": torch.randn(6)}) for _ in range(2)]


case("export_non_strict", block_calls)(Blocks)
case("export_strict", block_calls, strict=True)(Blocks)
case("export_strict_decomposed", block_calls, strict=True, decompose=True)(Blocks)


class Dynamic(nn.Module):
    def forward(self, x):
        return x.reshape(x.shape[0] // 2, -1) @ torch.ones(x.shape[1] * 2, 3)


case("export_strict_dynamic", lambda: [(torch.randn(2 * n, 5),) for n in (3, 1, 4)], strict=True,
     dynamic_shapes=({0: 2 * torch.export.Dim("half", min=1, max=8)},))(Dynamic)


class Autocast(nn.Module):
    """Products in bfloat16 (enabled), all as it is (disabled), or one inside the other."""

    def __init__(self, *enabled):
        super().__init__()
        self.enabled, self.inner, self.outer = enabled, nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.enabled[0]):
            y = self.outer(x).softmax(-1)
            z = y @ y.transpose(-1, -2)
            if len(self.enabled) > 1:
                with torch.autocast("cpu", torch.bfloat16, enabled=self.enabled[1]):
                    z = self.inner(z.float()) + x
        return y, z, torch.matmul(x, self.inner.weight)


for _name, _enabled in (("enabled", (True,)), ("disabled", (False,)), ("nested_off", (True, False)), ("nested_on", (False, True))):
    case(f"autocast_{_name}", one((8, 8)))(lambda e=_enabled: Autocast(*e))
case("autocast_enabled_strict", one((8, 8)), strict=True)(lambda: Autocast(True))
# Strict and nested is not here: PyTorch's own exported program stops at its dtype checks.
case("autocast_disabled_decomposed", one((8, 8)), decompose=True)(lambda: Autocast(False))


class NoGrad(nn.Module):
    """A region without gradients that writes to a tensor of the outside and to a buffer, with a region inside."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        y = self.layer(x)
        with torch.no_grad():
            self.mean.mul_(0.9).add_(y.mean(0), alpha=0.1)
            y[:, 0] = 1.0
            with torch.enable_grad():
                z = y * self.mean
            z = z + 1
        return z, y


case("no_grad_regions", lambda: [(torch.randn(3, 4),) for _ in range(2)], grad=True)(NoGrad)
case("no_grad_regions_strict", lambda: [(torch.randn(3, 4),) for _ in range(2)], grad=True, strict=True)(NoGrad)


class Function(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, *args):
        return self.f(*args)


def function(name, calls, **options):
    return lambda f: case(name, calls, **options)(lambda: Function(f))


function("is_all_true", lambda: [(torch.tensor([True, v, True]),) for v in (True, False)])(
    lambda m: (torch.ops.aten._is_all_true(m), torch.ops.aten._is_any_true(m), torch.ops.aten._is_all_true(m[:0]), torch.ops.aten._is_any_true(m[:0])))
function("norm_except_dim", one((3, 4, 5), (6,)))(
    lambda v, w: (*(torch.norm_except_dim(v, 2, d) for d in (-1, 0, 1, 2)), torch.norm_except_dim(w, 2, 0), torch.norm_except_dim(v, 1, 1)))


@function("checks_of_numbers", lambda: [(torch.tensor(v), torch.arange(6.0)) for v in (4, 2)])
def _checks(count, x):
    n = count.item()
    torch._check(n >= 0)
    torch._check(n <= 6)
    torch._check(n != 5)
    torch._check(n % 2 == 0)
    return x[:n] * 2, torch.zeros(n)


@function("parts_of_complex", one((3, 4)))
def _parts(x):
    z = torch.fft.fft(x)
    y = z.clone()
    y.real.mul_(2.0)
    y.imag[0] = 1.0
    return z.real, z.imag[1:], z.t().imag, torch.real(x), torch.view_as_real(y), y.real + y.imag


def _grouped_calls():
    offs = torch.tensor([3, 3, 8], dtype=torch.int32)
    return [tuple(x.bfloat16() for x in (torch.randn(8, 16), torch.randn(3, 16, 24), torch.randn(24, 8).t())) + (offs,)]


@function("grouped_products", _grouped_calls)  # other dtypes need other processors
def _grouped(x, experts, wide, offs):
    product = torch.ops.aten._grouped_mm
    return (product(x, experts, offs), product(x.t().contiguous().t(), experts, offs), product(experts.transpose(1, 2), x.t(), offs),
            product(x.t(), wide, offs), product(experts.transpose(1, 2), experts))


class WeightNorm(nn.Module):
    """The old and the new parametrization, along every dim."""

    def __init__(self, dtype):
        super().__init__()
        self.layers = nn.ModuleList([nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 4, 3, padding=1, dtype=dtype), dim=d) for d in (0, 1, 2)])

    def forward(self, x):
        out = [x]
        for layer in self.layers:
            out.append(layer(out[-1]))
        return out[1:]


for _name, _dtype in (("float32", torch.float32), ("float64", torch.float64), ("bfloat16", torch.bfloat16)):
    case(f"weight_norm_{_name}", lambda d=_dtype: [(torch.randn(1, 4, 6, dtype=d),)])(lambda d=_dtype: WeightNorm(d))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True)
    parser.add_argument("--cases", default="", help="regular expression on the case name")
    options = parser.parse_args()
    report = caselib.Report()
    for name, (make, calls, given) in CASES.items():
        if not re.search(options.cases, name):
            continue

        def write():
            caselib.seed_all(caselib.PUBLIC_SALT, name)
            caselib.write_case(pathlib.Path(options.out), name, make(), calls(), kind="model", op=name, source="own", **given)
        report.attempt(name, write)
    report.print(options.out, True)


if __name__ == "__main__":
    main()
