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


REFUSALS = []


def refusal(*row):
    """name, good case whose program it is, function that makes the inputs, expected exit code, note."""
    REFUSALS.append(row)


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


# torch._check_tensor_all reads one bool as a number (sym_ite) and asserts it.
@function("check_tensor_all_true", lambda: [(torch.rand(3) + v,) for v in (1, 2)])
def _check_all(x):
    torch._check_tensor_all(x > 0, lambda: "x must be positive")
    return x.log()


refusal("check_tensor_all_false", "check_tensor_all_true", lambda: (torch.tensor([1.0, -1.0, 2.0]),), 6, "a run-time check that fails")
refusal("check_tensor_all_nan", "check_tensor_all_true", lambda: (torch.tensor([1.0, float("nan"), 2.0]),), 6, "a run-time check that fails")


@function("assert_async_true", lambda: [(torch.rand(4) + 1,)])
def _assert_async(x):
    torch._assert_async((x > 0).all(), "every element must be positive")
    return x * 2


refusal("assert_async_false", "assert_async_true", lambda: (torch.tensor([1.0, 2.0, -3.0, 4.0]),), 6, "_assert_async of a result")


@function("check_number_true", lambda: [(torch.tensor(3), torch.rand(4))])
def _check_number(n, x):
    k = n.item()
    torch._check(k > 1, lambda: "n must be above one")
    return x * k


refusal("check_number_false", "check_number_true", lambda: (torch.tensor(1), torch.ones(4)), 6, "_check of a number read from a tensor")


# A squeeze of a dim that varies keeps it in the exported program; PyTorch drops it where it is 1.
function("squeeze_of_rows_by_mask", lambda: [(torch.arange(8.0).reshape(4, 2), torch.tensor(m)) for m in ([True, False, True, True], [False] * 4)])(
    lambda x, m: (x[m] * 2).squeeze())
refusal("squeeze_of_one_row_by_mask", "squeeze_of_rows_by_mask", lambda: (torch.arange(8.0).reshape(4, 2), torch.tensor([False, True, False, False])), 6,
        "squeeze of a dim whose size depends on data, at size 1")
function("squeeze_of_dynamic_dim", lambda: [(torch.randn(n, 2),) for n in (4, 2)], dynamic_shapes=(({0: torch.export.Dim("n", min=1, max=9)},),))(
    lambda x: x.squeeze(0) * 2)
refusal("squeeze_of_dynamic_dim_one", "squeeze_of_dynamic_dim", lambda: (torch.randn(1, 2),), 6, "squeeze of a dim that varies, at size 1")


@function("sym_ite_of_sizes", lambda: [(torch.randn(n, 3),) for n in (3, 5, 9, 2)], dynamic_shapes=(({0: torch.export.Dim("n", min=2, max=12)},),))
def _sym_ite(x):
    n = torch.sym_ite(x.shape[0] > 4, x.shape[0] - 1, 2 * x.shape[0] + 1)
    return x * n, torch.full((2,), 1) + n, x.sum(0) / torch.sym_ite(x.shape[0] == 5, 2.0, 0.5)


@function("powers_and_roots_of_sizes", lambda: [(torch.randn(n, 3),) for n in (6, 2, 7, 9)], dynamic_shapes=(({0: torch.export.Dim("n", min=2, max=9)},),))
def _powers_of_sizes(x):
    n = x.shape[0]
    scaled = torch.softmax(x @ x.T / n**0.5, -1)
    return x / n**0.5, x * torch.sym_sqrt(n), scaled @ x, x * n**-1.5, torch.full((2,), 1.0) + torch.sym_float(n)**0.25


@function("sym_ite_of_data", lambda: [(torch.tensor(v), torch.randn(3)) for v in (True, False)])
def _sym_ite_data(flag, x):
    return x * torch.sym_ite(flag.item(), 3, -2), x + torch.sym_ite(torch.sym_not(flag.item()), 1, 0)


class ConstantBase(nn.Module):
    """Writes through views of tensors that are constants of the program: literals start anew in every call, attributes live on."""

    def __init__(self):
        super().__init__()
        self.kept = torch.arange(6.0)
        self.register_buffer("table", torch.ones(3, 4))

    def forward(self, x):
        literal = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
        before = literal[1:3] * 1
        literal[1:3] = x
        literal[::2].mul_(2)
        zeros = torch.zeros(3, 4)
        zeros[1, 1:3].copy_(x)
        zeros.t()[0].add_(1)
        self.kept[2:4] += x
        self.table[:, 1].fill_(x.shape[0])
        self.table[0].add_(x[0])
        return literal, before, zeros, self.kept * 2, self.table[:2].clone()


case("write_on_constant_base", lambda: [(torch.randn(2),) for _ in range(3)])(ConstantBase)
case("write_on_constant_base_strict", lambda: [(torch.randn(2),) for _ in range(3)], strict=True)(ConstantBase)


class LeftConstant(nn.Module):
    """Products whose first factor is a constant: a parameter, a literal, a turned or batched one, a vector."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.w = nn.Parameter(torch.randn(5, 4, dtype=dtype))
        self.register_buffer("batch", torch.randn(2, 3, 4, dtype=dtype))
        self.register_buffer("vector", torch.randn(4, dtype=dtype))

    def forward(self, x, y):
        return (self.w @ x, self.w.t() @ (self.w @ x), self.batch @ x, torch.bmm(self.batch, y), self.vector @ x, torch.tensor([[1.0, 2.0, 3.0, 4.0]], dtype=x.dtype) @ x,
                torch.addmm(self.w[:, :3], self.w, x, alpha=2), torch.einsum("oi,bik->bok", self.w, y), self.batch[0] @ y, torch.mv(self.w, x[:, 0]))


case("left_constant", one((4, 3), (2, 4, 6)))(LeftConstant)
case("left_constant_decomposed", one((4, 3), (2, 4, 6)), decompose=True)(LeftConstant)
case("left_constant_float64", lambda: [(torch.randn(4, 3, dtype=torch.float64), torch.randn(2, 4, 6, dtype=torch.float64))])(lambda: LeftConstant(torch.float64))
case("left_constant_bfloat16", lambda: [(torch.randn(4, 3).bfloat16(), torch.randn(2, 4, 6).bfloat16())])(lambda: LeftConstant(torch.bfloat16))
case("left_constant_dynamic", lambda: [(torch.randn(4, 3), torch.randn(2, 4, n)) for n in (6, 1, 9)],
     dynamic_shapes=(None, {2: torch.export.Dim("n", min=1, max=16)}))(LeftConstant)


class Pieces(nn.Module):
    """The number of pieces is fixed by the export although the dim may vary; sizes with another number are refused."""

    def forward(self, x, y):
        a, b = x.chunk(2)
        *c, d = y.chunk(3, 1)
        return a * 2, b.sum(0), [t.sum() for t in c], d + 1, x.unbind(1)[-1]


case("pieces_of_dynamic_dims", lambda: [(torch.randn(n, 3), torch.randn(2, m)) for n, m in ((4, 6), (6, 9), (8, 8))],
     dynamic_shapes=({0: torch.export.Dim.AUTO(min=2, max=9)}, {1: torch.export.Dim.AUTO(min=2, max=9)}))(Pieces)
refusal("pieces_of_dynamic_dims_other_number", "pieces_of_dynamic_dims", lambda: (torch.randn(4, 3), torch.randn(2, 4)), 5, "two pieces where the export saw three")
function("guarded_sizes", lambda: [(torch.randn(n, 4), torch.randn(m, 4)) for n, m in ((4, 2), (6, 3), (8, 2))],
         dynamic_shapes=(({0: torch.export.Dim.AUTO(min=2, max=16)}, {0: torch.export.Dim.AUTO(min=2, max=16)}),))(
    lambda x, y: (x.reshape(-1, 2, 4) * (1 if x.shape[0] > y.shape[0] else -1), y * 2))
refusal("guarded_sizes_odd", "guarded_sizes", lambda: (torch.randn(5, 4), torch.randn(2, 4)), 5, "an odd size for a reshape into pairs")
refusal("guarded_sizes_other_branch", "guarded_sizes", lambda: (torch.randn(4, 4), torch.randn(6, 4)), 5, "the export took the other branch of a Python if")


@function("pieces_written_to", lambda: [(torch.randn(n, 3),) for n in (6, 7, 8)], dynamic_shapes=(({0: torch.export.Dim.AUTO(min=6, max=8)},),))
def _pieces_written(x):
    """unbind of a dim whose size is an expression, and split and chunk of one that varies, all written through."""
    y = x.clone()
    y.diagonal().unbind()[-1].mul_(2)
    y.split(4)[0][0].add_(1)
    y.chunk(1)[0][1].zero_()
    return y


@function("maybe_the_input_itself", one((4,), (1,)))
def _maybe_input(x, y):
    """Composites that give back their input, or views of it, where nothing is to do."""
    a, b, c, d = x * 1, x * 2, x * 3, x * 4
    torch.meshgrid(a, y, indexing="xy")[0].add_(1)
    torch.cartesian_prod(b).mul_(2)
    c.sum_to_size(4).neg_()
    d.conj_physical()[:2].zero_()
    return a, b, c, d


def _score(model, x):
    return torch.tanh(x @ model["weight"].mT + model["bias"]).sum(-1)


class Ensemble(nn.Module):
    """torch.vmap over stacked weights, nested, with other dims in and out, with an operator that has no rule for slices."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(3, 5, 4)), nn.Parameter(torch.randn(3, 5))
        self.kernels = nn.Parameter(torch.randn(3, 2, 1, 3, 3))

    def forward(self, x, image):
        each = torch.vmap(_score, in_dims=({"weight": 0, "bias": 0}, None))({"weight": self.weight, "bias": self.bias}, x)
        pairs = torch.vmap(lambda a: torch.vmap(lambda b: (a * b).amax() + a[0])(x))(x * 2)
        turned = torch.vmap(lambda a: a.cumsum(0).softmax(-1).sort(descending=True)[0], in_dims=1)(x)
        planes = torch.vmap(lambda k: nn.functional.conv2d(image, k, padding=1).mean())(self.kernels)
        shared = torch.vmap(lambda a: x.sum())(image)
        written = torch.vmap(lambda a: (a * 2).add_(a).index_add_(0, torch.tensor([1, 1]), a[:2]))(x)
        return each, pairs, turned, planes, shared, written


def ensemble_calls():
    return [(torch.randn(6, 4), torch.randn(2, 1, 5, 5)) for _ in range(2)]


case("vmap", ensemble_calls)(Ensemble)
case("vmap_decomposed", ensemble_calls, decompose=True)(Ensemble)
function("vmap_dynamic", lambda: [(torch.randn(n, m), torch.randn(n, m, 3)) for n, m in ((4, 5), (3, 4), (7, 8))],
         dynamic_shapes=(({0: torch.export.Dim.AUTO(max=8), 1: torch.export.Dim.AUTO(max=8)},) * 2,))(
    lambda x, y: (torch.vmap(lambda a, b: (a @ b).relu() + a.mean())(x, y), torch.vmap(lambda a: a.flip(0).cumsum(0)[1:], in_dims=1)(x)))
function("map_of_dynamic_rows", lambda: [(torch.randn(n, m),) for n, m in ((4, 5), (8, 8), (6, 3))],
         dynamic_shapes=(({0: torch.export.Dim("n", max=8), 1: torch.export.Dim("m", max=8)},),))(
    lambda x: torch._higher_order_ops.map(lambda row: row.cumsum(0) * 2, x))
function("where_of_narrow_number", lambda: [(torch.randn(2, 3).bfloat16(), torch.tensor(0.3), torch.tensor([[True], [False]]))])(
    lambda x, number, mask: (torch.where(mask, number, x), torch.where(mask, x, number)))
function("vmap_in_place", lambda: [(torch.randn(3, 4),) for _ in range(2)])(lambda x: (torch.vmap(lambda a: a[1:].add_(1), in_dims=1)(x), x))
function("vmap_promotion", lambda: [(torch.randn(3), torch.randn(2).half(), torch.tensor(1 / 3, dtype=torch.float64))])(
    lambda x, h, d: (torch.vmap(lambda a: a * h)(x), torch.vmap(lambda a: a + d)(x), torch.vmap(lambda a: torch.where(a > 0, a, 2))(x)))


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
    for name, base, inputs, code, note in REFUSALS:
        if re.search(options.cases, name) and re.search(options.cases, base):
            report.attempt(name, lambda: caselib.write_refusal(options.out, name, base, inputs(), kind="bug", op=name, source="own", notes=note, expected_exit=code))
    report.print(options.out, True)


if __name__ == "__main__":
    main()
