#!/usr/bin/env python3
"""Cases at the edges of the operators: lists of mixed dtypes, 0-d results, ranks up to 16, large antialiased resizes."""
import argparse
import pathlib
import re

import torch
import torch.nn.functional as F
from torch import nn

import caselib
from export_cases import Function

CASES = {}


def case(name, calls, **options):
    """Registers a function; calls: a function that makes the list of calls."""
    def register(f):
        CASES[name] = (f, calls, options)
        return f
    return register


def numbers(*shape, dtype=torch.float32, low=-9, high=9):
    values = torch.randint(low, high, shape)
    return (values > 0) if dtype == torch.bool else values.to(dtype)


# ---------------------------------------------------------------- lists of mixed dtypes

KINDS = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64, "i32": torch.int32, "i16": torch.int16,
         "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool}
MIXES = [("f32", "i64"), ("i64", "f32", "bool"), ("f16", "bf16"), ("bf16", "f32", "f16"), ("u8", "i8"), ("u8", "i8", "i16"), ("bool", "u8"), ("bool", "i64", "f16"),
         ("i32", "i64"), ("f32", "f64"), ("bool", "bool", "i8"), ("i16", "f16", "f64")]
for _mix in MIXES:
    def _make(mix=_mix):
        return [tuple(numbers(2, 3, dtype=KINDS[k], low=0 if k == "u8" else -9) for k in mix)]

    @case("cat_mixed_" + "_".join(_mix), _make)
    def _cat(*x):
        # A 0-d tensor takes part in the promotion as what it is: cat and stack look at dtypes only. An empty 1-d tensor counts too.
        return torch.cat(x, 1), torch.cat([x[0], x[-1][:1]]), torch.stack(x, -1), torch.hstack(x), torch.vstack(x), torch.cat([torch.zeros(0, dtype=x[1].dtype), x[0]], 0)

    @case("stack_mixed_scalars_" + "_".join(_mix), lambda mix=_mix: [tuple(numbers(dtype=KINDS[k], low=0 if k == "u8" else -9) for k in mix)])
    def _stack(*x):
        return torch.stack(x), torch.stack([x[0], x[1]], 0), torch.hstack(x), torch.cat([t.reshape(1) for t in x])


@case("cat_mixed_in_place", lambda: [(torch.zeros(4, 3), numbers(2, 3, dtype=torch.int64), numbers(2, 3, dtype=torch.bool))])
def _cat_in_place(out, a, b):
    y = out.clone()
    y[:2] = torch.cat([a[:1], b[:1]])
    y[2:].add_(torch.cat([a[1:], b[1:]]))
    return y, torch.cat([a, b]) + out, torch.stack([a, b]).sum(0)


# ---------------------------------------------------------------- 0-d results


@case("nansum_into_dtypes", lambda: [(torch.tensor([[1.5, float("nan"), -2.25], [float("nan")] * 3]), torch.tensor([float("nan"), 7.75], dtype=torch.float64))])
def _nansum_into_dtypes(x, y):
    # Elements become integers one by one; NaN counts as nothing, not as what a cast makes of it.
    return [f for t in (x, y, x.half(), x.bfloat16()) for f in (t.nansum(), t.nansum(-1), t.nansum(dtype=torch.int64), t.nansum(-1, dtype=torch.int32), t.nansum(dtype=torch.float64))]


for _kind in KINDS.values():
    @case("select_to_scalar_" + str(_kind).removeprefix("torch."), lambda k=_kind: [(numbers(5, dtype=k, low=0), numbers(3, 4, dtype=k, low=0))])
    def _scalars(x, y):
        a, b, c = x[2], x.select(0, -1), y[1, 3]
        d = x.clone()
        d[3] = a
        d.select(0, 0).copy_(c)
        e = y.clone()
        e[2, 1] = b
        return a, b, c, d, e, y[-1].unbind()[0], x.select(0, 1).reshape(1), x[0].unsqueeze(0).expand(3), y.t()[3][0], torch.stack([a, b, c]), a.view(1, 1), y.diagonal()[1]


@case("scalars_through_everything", lambda: [(torch.tensor(2.5), torch.tensor(3), torch.tensor(True))])
def _zero_dims(x, n, f):
    return (x + n, x.sum(), x.sum(-1), x.softmax(0), x.cumsum(0), x.sort()[0], x.max(0)[1], x.argmax(), x.unsqueeze(0).squeeze(), x.reshape(1, 1), x.flatten(), torch.where(f, x, n),
            x.index_select(0, torch.tensor([0])), x.gather(0, torch.tensor(0)), x.expand(2, 3), x.transpose(0, 0), x.permute(()), n.bitwise_and(1), x.amax(), x.std(unbiased=False),
            x.topk(1)[0], x.flip(0), x.roll(0), x.clone().masked_fill_(f, 7), x[None, ..., None], x.nonzero(), x.repeat(2), x.all(), x.prod(0), x.logsumexp(0))


# ---------------------------------------------------------------- high ranks

def deep(rank, dtype=torch.float32):
    return numbers(*[2 if d % 3 == 0 and d < 12 else 1 for d in range(rank - 1)], 3, dtype=dtype)


for _rank in (5, 6, 7, 8, 9, 12, 15, 16):
    @case(f"rank_{_rank}", lambda r=_rank: [(deep(r), deep(r)[:1], numbers(3))])
    def _deep(x, y, v):
        r = x.dim()
        turned = x.permute(*reversed(range(r)))
        z = x.clone()
        z.select(0, 1).add_(1)
        z.transpose(0, -1)[0].mul_(2)
        return (x + y, x * v, x.exp(), turned.contiguous(), turned + 1, x.transpose(0, r - 1), x.sum(0), x.sum((0, -1)), x.mean(), x.amax(-1), x.softmax(-1), x.cumsum(0), x.flip(0, -1),
                torch.cat([x, y]), torch.cat([x, x], -1), x[1], x[..., 1:], x.reshape(-1, 3), x.flatten(), torch.where(x > 0, x, y), x.to(torch.int32), x.half().float(), z,
                x.index_select(-1, torch.tensor([2, 0])), x[..., torch.tensor([0, 2])], x.argmax(0), x.expand(*x.shape), x.sort(-1)[0], x.max(0)[0], x.roll(1, -1), F.pad(x, (1, 2), value=3),
                x.clamp(-2, 2), x == y, x.gather(-1, (x > 0).long()), x.clone().index_fill_(-1, torch.tensor([1]), 9), x.masked_fill(x > 2, 0), F.layer_norm(x, (3,)), x.prod(-1), x.any(0))

    @case(f"rank_{_rank}_constant", lambda r=_rank: [(deep(r),)])
    class _DeepConstant(nn.Module):
        def __init__(self, rank=_rank):
            super().__init__()
            self.register_buffer("c", deep(rank))
            self.register_buffer("t", deep(rank).transpose(0, -1))
            self.register_buffer("i", deep(rank, torch.int64))

        def forward(self, x):
            return x + self.c, x * self.i, self.t.transpose(0, -1) - x, self.c.exp(), self.t * 2, self.i // 2, x @ self.c.mT

for _rank in (5, 8, 15):
    case(f"rank_{_rank}_grows", lambda r=_rank: [(deep(r),)])(
        lambda x: (torch.stack([x, x + 1]), x.unsqueeze(1).expand(*x.shape[:1], 2, *x.shape[1:]), x[None], x @ torch.ones(3, 2), torch.einsum("...i,ij->...j", x, torch.ones(3, 3))))
for _rank in (5, 6, 8):
    case(f"rank_{_rank}_products", lambda r=_rank: [(deep(r) / 8, deep(r) / 8)])(
        lambda x, y: (x @ y.mT, torch.matmul(x, y[0].mT), x.mT @ y, F.linear(x, torch.ones(4, 3) / 4, torch.ones(4)), F.scaled_dot_product_attention(x, y, y)))


# ---------------------------------------------------------------- antialiased resizes

def resize(mode, size, align=False, last=False):
    def forward(x):
        x = x.contiguous(memory_format=torch.channels_last) if last else x
        return F.interpolate(x, size=size, mode=mode, antialias=True, align_corners=align)
    return forward


def picture(c, h, w, dtype=torch.float32):
    return torch.rand(1, c, h, w).to(dtype)


def byte_resizes(x, mode, last):
    """A single column only of row-major images: what eager makes of it depends on the layout, which a compiled program need not keep."""
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    shapes = ((97, 81), (20, 41), (33, 80), (50, 57), (1, 70), (70, 2 if last else 1))
    sizes = tuple(F.interpolate(x, size=size, mode=mode, align_corners=align) for size in shapes for align in (False, True))
    return sizes + tuple(F.interpolate(x, scale_factor=factor, mode=mode) for factor in (1.3, 2.0, 0.6, (2.7, 0.4)))


DOWN, UP = 2e-5, 2e-4
for _mode in ("bilinear", "bicubic"):
    for _name, _from, _to, _limit in (("2048_to_224", (2048, 2048), (224, 224), DOWN), ("2500_to_3000", (250, 2500), (300, 3000), UP), ("3000_to_2048", (300, 3000), (200, 2048), DOWN),
                                      ("64_to_2048", (64, 64), (2048, 300), UP), ("to_one_row", (2048, 300), (1, 224), DOWN), ("to_one_column", (300, 2048), (224, 1), DOWN),
                                      ("to_one", (777, 999), (1, 1), DOWN), ("from_one", (1, 1), (50, 40), UP), ("odd", (1023, 767), (333, 511), DOWN), ("same", (300, 300), (300, 300), DOWN),
                                      ("down_up", (2048, 100), (100, 2048), UP)):
        case(f"resize_aa_{_mode}_{_name}", lambda h=_from: [(picture(1, *h),)], atol=_limit, rtol=0)(resize(_mode, _to))
    case(f"resize_aa_{_mode}_align", lambda: [(picture(3, 600, 400),)], atol=DOWN, rtol=0)(resize(_mode, (200, 150), align=True))
    case(f"resize_aa_{_mode}_last", lambda: [(picture(3, 600, 400),)], atol=DOWN, rtol=0)(resize(_mode, (200, 150), last=True))
    # Eager has no antialiased resize of float16 and bfloat16 on CPU.
    case(f"resize_aa_{_mode}_u8", lambda: [(torch.randint(0, 256, (1, 3, 300, 200), dtype=torch.uint8),)])(resize(_mode, (100, 150)))
    # Byte images are in fixed point, whose bits depend on the weights at the borders.
    for _channels in (1, 3, 6):
        for _last in (False, True):
            case(f"resize_{_mode}_u8_{_channels}{'_last' if _last else ''}", lambda c=_channels: [(torch.randint(0, 256, (2, c, 33, 57), dtype=torch.uint8),)])(
                lambda x, m=_mode, last=_last: byte_resizes(x, m, last))
    # One program whose calls go down and up.
    case(f"resize_aa_{_mode}_crossing", lambda: [(picture(1, h, w),) for h, w in ((64, 48), (500, 48), (48, 700), (7, 5), (224, 224), (223, 225), (1000, 900))], atol=UP, rtol=0,
         dynamic_shapes=(({2: torch.export.Dim("h", min=4, max=1024), 3: torch.export.Dim("w", min=4, max=1024)},),))(resize(_mode, (224, 224)))
    case(f"resize_aa_{_mode}_factor", lambda: [(picture(1, h, w),) for h, w in ((64, 48), (33, 71))], atol=UP, rtol=0,
         dynamic_shapes=(({2: torch.export.Dim("h", min=4, max=256), 3: torch.export.Dim("w", min=4, max=256)},),))(
        lambda x, m=_mode: F.interpolate(x, size=(x.shape[2] * 2, (x.shape[3] + 1) // 2), mode=m, antialias=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True)
    parser.add_argument("--cases", default="", help="regular expression on the case name")
    options = parser.parse_args()
    report = caselib.Report()
    for name, (f, calls, given) in CASES.items():
        if not re.search(options.cases, name):
            continue

        def write():
            caselib.seed_all(caselib.PUBLIC_SALT, name)
            module = f() if isinstance(f, type) else Function(f)
            caselib.write_case(pathlib.Path(options.out), name, module, calls(), kind="model", op=name, source="own", **given)
        report.attempt(name, write)
    report.print(options.out, True)


if __name__ == "__main__":
    main()
