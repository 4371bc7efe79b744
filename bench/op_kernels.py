#!/usr/bin/env python3
"""Portable kernels against PyTorch eager: every operator of the public op cases at about a million elements, one thread each.

    OMP_NUM_THREADS=1 python bench/op_kernels.py --pteron build/release/bin/pteron --table bench/OP_KERNELS.md
    OMP_NUM_THREADS=1 python bench/op_kernels.py --pteron build/release/bin/pteron --ops 'sort|topk'

A program of one operator is exported, compiled and measured with `pteron bench --threads 1` on the same inputs as eager; the two take turns, and the
fastest call of each counts, in processor time: other load on the machine then matters little. Exit 1 if an operator is slower than --limit times eager (default 3) or does
not compile. Rows that torch.export itself refuses are shown as "not exported" with its reason; they do not count."""
import argparse
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import time
import warnings

warnings.filterwarnings("ignore")
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

N = 1024
ROWS = {}


def op(name, function, *inputs):
    """inputs: tensors, or functions that make them (called when the row runs)."""
    ROWS[name] = (function, inputs)


def f(*shape, dtype=torch.float32):
    return lambda: torch.randn(shape or (N, N)).to(dtype)


def pos(*shape):
    return lambda: torch.rand(shape or (N, N)) + 0.5


def unit(*shape):
    return lambda: torch.rand(shape or (N, N)) * 1.8 - 0.9


def i(*shape, high=100, low=-100, dtype=torch.int64):
    return lambda: torch.randint(low, high, shape or (N, N), dtype=dtype)


def b(*shape):
    return lambda: torch.rand(shape or (N, N)) < 0.5


# ---------------------------------------------------------------- elementwise

for _name in """abs acosh asinh atan ceil cos cosh deg2rad erf erfc exp exp2 expm1 floor frac neg positive rad2deg reciprocal relu round sgn sigmoid sign signbit
        sin sinc sinh square tan tanh trunc nan_to_num isfinite isinf isnan isneginf isposinf isreal angle i0 logit digamma lgamma log log10 log1p log2 rsqrt sqrt acos asin atanh
        erfinv conj_physical""".split():
    _maker = pos() if _name in ("log", "log10", "log2", "rsqrt", "sqrt", "lgamma", "digamma", "reciprocal", "log1p") else unit() if _name in ("acos", "asin", "atanh", "erfinv") else f()
    if _name == "acosh":
        _maker = lambda: torch.rand(N, N) + 1.1
    op(_name, (lambda x: x.logit(1e-6)) if _name == "logit" else getattr(torch, _name), _maker)
for _name in "bessel_j0 erfcx entr ndtr log_ndtr ndtri i0e i1 i1e xlog1py".split():
    if _name == "xlog1py":
        op("special.xlog1py", torch.special.xlog1py, f(), pos())
    elif _name != "bessel_j0":
        op("special." + _name, getattr(torch.special, _name), (lambda: torch.rand(N, N) * 0.8 + 0.1) if _name == "ndtri" else f())
for _name in """gelu silu mish softplus elu selu celu hardswish hardsigmoid hardtanh hardshrink softshrink leaky_relu logsigmoid relu6 softsign tanhshrink threshold prelu rrelu glu""".split():
    if _name == "threshold":
        op("nn.threshold", lambda x: F.threshold(x, 0.1, 2.0), f())
    elif _name == "prelu":
        op("nn.prelu", F.prelu, f(), f(1))
    elif _name != "rrelu":
        op("nn." + _name, getattr(F, _name), f())
op("nn.gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), f())
for _name in """add sub mul maximum minimum fmax fmin atan2 copysign hypot logaddexp logaddexp2 nextafter eq ne lt le gt ge heaviside rsub logical_and logical_or logical_xor isclose
        ldexp float_power""".split():
    op(_name, getattr(torch, _name), f(), pos() if _name in ("float_power",) else f())
op("div", torch.div, f(), pos())
op("div_floor", lambda x, y: torch.div(x, y, rounding_mode="floor"), f(), pos())
op("div_trunc", lambda x, y: torch.div(x, y, rounding_mode="trunc"), f(), pos())
op("floor_divide", torch.floor_divide, f(), pos())
op("remainder", torch.remainder, f(), pos())
op("fmod", torch.fmod, f(), pos())
op("pow", torch.pow, pos(), f())
op("pow_scalar", lambda x: x ** 3, f())
op("pow_scalar_half", lambda x: x ** 1.7, pos())
op("pow_base", lambda x: 2.0 ** x, f())
op("xlogy", torch.xlogy, f(), pos())
op("lerp", lambda x, y: torch.lerp(x, y, 0.3), f(), f())
op("lerp_tensor", torch.lerp, f(), f(), f())
op("addcmul", torch.addcmul, f(), f(), f())
op("addcdiv", torch.addcdiv, f(), f(), pos())
op("clamp", lambda x: x.clamp(-0.5, 0.5), f())
op("clamp_tensors", torch.clamp, f(), f(), f())
op("clamp_min", lambda x: x.clamp_min(0.1), f())
op("clamp_max", lambda x: x.clamp_max(0.1), f())
op("add_scalar", lambda x: x + 2, f())
op("add_broadcast_row", torch.add, f(), f(N))
op("add_broadcast_column", torch.add, f(), f(N, 1))
op("add_transposed", lambda x, y: x + y.t(), f(), f())
op("add_strided", lambda x, y: x[:, ::2] + y[:, ::2], f(N, 2 * N), f(N, 2 * N))
op("add_mixed", lambda x, y: x + y, f(), i())
op("where", torch.where, b(), f(), f())
op("masked_fill", lambda x, m: x.masked_fill(m, 1.5), f(), b())
op("bitwise_and", torch.bitwise_and, i(), i())
op("bitwise_or", torch.bitwise_or, i(), i())
op("bitwise_xor", torch.bitwise_xor, i(), i())
op("bitwise_not", torch.bitwise_not, i())
op("bitwise_left_shift", torch.bitwise_left_shift, i(), i(low=0, high=8))
op("bitwise_right_shift", torch.bitwise_right_shift, i(), i(low=0, high=8))
op("gcd", torch.gcd, i(low=1), i(low=1))
op("lcm", torch.lcm, i(low=1), i(low=1))
op("logical_not", torch.logical_not, f())
op("frexp", torch.frexp, f())
op("round_decimals", lambda x: x.round(decimals=3), f())
op("isin", lambda x: torch.isin(x, torch.arange(20)), i())
for _name, _to in (("double", torch.float64), ("half", torch.float16), ("bfloat16", torch.bfloat16), ("int", torch.int32), ("long", torch.int64), ("bool", torch.bool), ("byte", torch.uint8)):
    op("to_" + _name, lambda x, t=_to: x.to(t), f() if _name != "byte" else i(low=0))
op("from_half", lambda x: x.float(), f(dtype=torch.float16))
op("from_bfloat16", lambda x: x.float(), f(dtype=torch.bfloat16))
op("from_int64", lambda x: x.float(), i())

# ---------------------------------------------------------------- the same in other dtypes

for _tag, _dtype in (("f16", torch.float16), ("bf16", torch.bfloat16), ("f64", torch.float64)):
    for _name in ("add", "mul", "div", "maximum", "lt"):
        op(f"{_name}.{_tag}", getattr(torch, _name), f(dtype=_dtype), f(dtype=_dtype))
    for _name in ("exp", "tanh", "sigmoid", "relu", "sqrt", "sin", "abs"):
        op(f"{_name}.{_tag}", getattr(torch, _name), lambda d=_dtype: (torch.rand(N, N) + 0.5).to(d))
    op(f"gelu.{_tag}", F.gelu, f(dtype=_dtype))
    op(f"silu.{_tag}", F.silu, f(dtype=_dtype))
    op(f"sum_dim.{_tag}", lambda x: x.sum(-1), f(dtype=_dtype))
    op(f"sum_dim0.{_tag}", lambda x: x.sum(0), f(dtype=_dtype))
    op(f"amax.{_tag}", lambda x: x.amax(-1), f(dtype=_dtype))
    op(f"softmax.{_tag}", lambda x: x.softmax(-1), f(dtype=_dtype))
    op(f"layer_norm.{_tag}", lambda x: F.layer_norm(x, (N,)), f(dtype=_dtype))
    op(f"transpose.{_tag}", lambda x: x.t().contiguous(), f(dtype=_dtype))
    op(f"cumsum.{_tag}", lambda x: x.cumsum(-1), f(dtype=_dtype))
    op(f"matmul.{_tag}", torch.matmul, f(512, 512, dtype=_dtype), f(512, 512, dtype=_dtype))
    op(f"where.{_tag}", torch.where, b(), f(dtype=_dtype), f(dtype=_dtype))
    op(f"sort.{_tag}", lambda x: x.sort(-1)[0], f(dtype=_dtype))
for _tag, _dtype in (("i64", torch.int64), ("i32", torch.int32), ("u8", torch.uint8), ("i16", torch.int16)):
    for _name in ("add", "mul", "maximum", "lt", "div", "floor_divide", "remainder"):
        op(f"{_name}.{_tag}", getattr(torch, _name), i(low=1, dtype=_dtype), i(low=1, dtype=_dtype))
    op(f"abs.{_tag}", torch.abs, i(low=0, dtype=_dtype))
    op(f"sum_dim.{_tag}", lambda x: x.sum(-1), i(low=0, dtype=_dtype))
    op(f"sum_dim0.{_tag}", lambda x: x.sum(0), i(low=0, dtype=_dtype))
    op(f"amax.{_tag}", lambda x: x.amax(-1), i(low=0, dtype=_dtype))
    op(f"argmax.{_tag}", lambda x: x.argmax(-1), i(low=0, dtype=_dtype))
    op(f"sort.{_tag}", lambda x: x.sort(-1)[0], i(low=0, dtype=_dtype))
    op(f"cumsum.{_tag}", lambda x: x.cumsum(-1), i(low=0, dtype=_dtype))
    op(f"eq_scalar.{_tag}", lambda x: x == 3, i(low=0, dtype=_dtype))
    op(f"pow.{_tag}", lambda x: x ** 2, i(low=0, high=10, dtype=_dtype))
op("matmul.i64", torch.matmul, i(256, 256), i(256, 256))
op("any.bool", lambda x: x.any(-1), lambda: torch.zeros(N, N, dtype=torch.bool))
op("all.bool", lambda x: x.all(-1), lambda: torch.ones(N, N, dtype=torch.bool))
op("sum.bool", lambda x: x.sum(), b())

# ---------------------------------------------------------------- reductions and scans

for _name in "sum mean prod amax amin argmax argmin std var std_mean var_mean logsumexp nansum nanmean norm count_nonzero all any median nanmedian mode".split():
    _f = getattr(torch, _name)
    op(_name + "_dim", (lambda x, g=_f: g(x, dim=-1)) if _name != "norm" else (lambda x: torch.norm(x, dim=-1)), f(256, 256) if _name == "mode" else f() if _name != "prod" else pos())
    if _name not in ("mode", "median", "nanmedian"):
        op(_name + "_dim0", (lambda x, g=_f: g(x, dim=0)) if _name != "norm" else (lambda x: torch.norm(x, dim=0)), f() if _name != "prod" else pos())
for _name in "sum mean prod amax amin argmax argmin std var norm all any max min median aminmax".split():
    _f = getattr(torch, _name)
    op(_name + "_all", (lambda x, g=_f: tuple(g(x))) if _name == "aminmax" else _f, f() if _name != "prod" else pos())
op("sum_middle", lambda x: x.sum(1), f(64, 256, 64))
op("mean_image", lambda x: x.mean((2, 3)), f(4, 256, 32, 32))
op("max_dim", lambda x: x.max(-1), f())
op("min_dim0", lambda x: x.min(0), f())
op("aminmax_dim", lambda x: tuple(torch.aminmax(x, dim=-1)), f())
op("kthvalue", lambda x: x.kthvalue(10)[0], f())
for _p in (0, 1, 3, float("inf"), -float("inf")):
    op(f"vector_norm_{_p}", lambda x, p=_p: torch.linalg.vector_norm(x, p, -1), f())
op("linalg.matrix_norm", lambda x: torch.linalg.matrix_norm(x), f())
op("nn.normalize", lambda x: F.normalize(x), f())
op("renorm", lambda x: x.renorm(2, 0, 1.0), f())
for _name in "cumsum cumprod logcumsumexp".split():
    op(_name + "_dim", lambda x, g=getattr(torch, _name): g(x, -1), pos())
    op(_name + "_dim0", lambda x, g=getattr(torch, _name): g(x, 0), pos())
op("cummax", lambda x: x.cummax(-1), f())
op("cummin", lambda x: x.cummin(0), f())
op("diff", lambda x: x.diff(), f())
op("trapezoid", lambda x: torch.trapezoid(x), f())
op("cumulative_trapezoid", lambda x: torch.cumulative_trapezoid(x), f())
op("gradient", lambda x: torch.gradient(x), f())
op("quantile", lambda x: x.quantile(0.3, dim=-1), f())
op("nanquantile", lambda x: x.nanquantile(0.3, dim=-1), f())
op("histc", lambda x: x.histc(50, -2, 2), f())
op("bincount", lambda x: torch.bincount(x, minlength=100), i(N * N, low=0))
op("trace", torch.trace, f())
op("dist", torch.dist, f(), f())
op("softmax", lambda x: x.softmax(-1), f())
op("softmax_dim0", lambda x: x.softmax(0), f())
op("softmax_middle", lambda x: x.softmax(1), f(64, 256, 64))
op("log_softmax", lambda x: x.log_softmax(-1), f())
op("log_softmax_dim0", lambda x: x.log_softmax(0), f())
op("softmin", lambda x: F.softmin(x, -1), f())

# ---------------------------------------------------------------- sorting and searching

op("sort", lambda x: x.sort(-1), f())
op("sort_dim0", lambda x: x.sort(0), f())
op("sort_long", lambda x: x.sort(), f(N * N))
op("argsort", lambda x: x.argsort(-1), f())
op("msort", torch.msort, f())
op("topk", lambda x: x.topk(10), f())
op("topk_long", lambda x: x.topk(100), f(N * N))
op("unique", lambda x: x.unique(), i())
op("unique_float", lambda x: x.unique(return_inverse=True, return_counts=True), f())
op("unique_consecutive", lambda x: x.unique_consecutive(), i(N * N, high=3, low=0))
op("searchsorted", lambda s, x: torch.searchsorted(s, x), lambda: torch.randn(N).sort()[0], f())
op("bucketize", lambda x: torch.bucketize(x, torch.linspace(-2, 2, 30)), f())
op("nonzero", lambda x: x.nonzero(), b())
op("argwhere", lambda x: x.argwhere(), b())
op("masked_select", lambda x, m: x.masked_select(m), f(), b())

# ---------------------------------------------------------------- moving data

op("clone", torch.clone, f())
op("transpose_copy", lambda x: x.t().contiguous(), f())
op("permute_copy", lambda x: x.permute(2, 0, 1).contiguous(), f(64, 128, 128))
op("permute_last", lambda x: x.permute(0, 2, 3, 1).contiguous(), f(4, 64, 64, 64))
op("permute_heads", lambda x: x.transpose(1, 2).contiguous(), f(4, 128, 16, 128))
op("to_channels_last", lambda x: x.contiguous(memory_format=torch.channels_last), f(4, 64, 64, 64))
op("cat", lambda x, y: torch.cat([x, y], 1), f(N, 512), f(N, 512))
op("cat_dim0", lambda x, y: torch.cat([x, y]), f(512, N), f(512, N))
op("stack", lambda x, y: torch.stack([x, y], -1), f(N, 512), f(N, 512))
op("hstack", lambda x, y: torch.hstack([x, y]), f(N, 512), f(N, 512))
op("dstack", lambda x, y: torch.dstack([x, y]), f(N, 512), f(N, 512))
op("column_stack", lambda x, y: torch.column_stack([x, y]), f(N, 512), f(N, 512))
op("block_diag", lambda x, y: torch.block_diag(x, y), f(512, 512), f(512, 512))
op("repeat", lambda x: x.repeat(2, 2), f(512, 512))
op("tile", lambda x: x.tile(2, 3), f(512, 512))
op("repeat_interleave", lambda x: x.repeat_interleave(4, 1), f(N, 256))
op("repeat_interleave_tensor", lambda x, n: torch.repeat_interleave(x, n, 0, output_size=4 * N), f(N, 256), lambda: torch.full((N,), 4))
op("expand_copy", lambda x: x.expand(N, N).contiguous(), f(N, 1))
op("flip", lambda x: x.flip(1), f())
op("flip_both", lambda x: x.flip(0, 1), f())
op("roll", lambda x: x.roll((3, 5), (0, 1)), f())
op("rot90", lambda x: x.rot90(1), f())
op("tril", torch.tril, f())
op("triu", torch.triu, f())
op("diag_embed", torch.diag_embed, f(16, 256))
op("diagonal_copy", lambda x: x.diagonal().clone(), f(4 * N, 4 * N))
op("diagonal_scatter", lambda x, y: x.diagonal_scatter(y), f(), f(N))
op("select_scatter", lambda x, y: x.select_scatter(y, 0, 3), f(), f(N))
op("slice_scatter", lambda x, y: x.slice_scatter(y, 0, 0, 512), f(), f(512, N))
op("slice_copy", lambda x: x[:, ::2].clone(), f(N, 2 * N))
op("split_copy", lambda x: [p.clone() for p in x.split(256, 1)], f())
op("unbind_copy", lambda x: [p.clone() for p in x.unbind(1)], f(N * 64, 16))
op("unfold_copy", lambda x: x.unfold(1, 4, 2).contiguous(), f(N, 512))
op("as_strided_copy", lambda x: x.as_strided((N, 512), (512, 1), 3).clone(), f())
op("pad", lambda x: F.pad(x, (1, 2, 3, 4)), f())
op("pad_reflect", lambda x: F.pad(x, (2, 2, 2, 2), mode="reflect"), f(1, 64, 128, 128))
op("pad_replicate", lambda x: F.pad(x, (2, 2, 2, 2), mode="replicate"), f(1, 64, 128, 128))
op("pad_circular", lambda x: F.pad(x, (2, 2, 2, 2), mode="circular"), f(1, 64, 128, 128))
op("pad_reflect3d", lambda x: F.pad(x, (1,) * 6, mode="reflect"), f(1, 4, 64, 64, 64))
op("full", lambda x: torch.full((N, N), 3.0) * 1 + x, f(1))
op("full_like", lambda x: torch.full_like(x, 2), f())
op("ones_like", torch.ones_like, f())
op("zeros_like", torch.zeros_like, f())
op("fill", lambda x: torch.fill(x, 2.0), f())
op("arange", lambda x: torch.arange(x.shape[0]) + 1, f(N * N))
op("linspace", lambda x: torch.linspace(0, 1, N * N) + x, f(1))
op("eye", lambda x: torch.eye(N) + x, f(1))
op("meshgrid", lambda x, y: [t.clone() for t in torch.meshgrid(x, y, indexing="ij")], f(N), f(N))
op("cartesian_prod", torch.cartesian_prod, f(N), f(N))
op("tril_indices", lambda x: torch.tril_indices(N, N) + x, i(1))
op("vander", lambda x: torch.vander(x, 16), f(N * 64))
op("one_hot", lambda x: F.one_hot(x, 100), i(N * 10, low=0))
op("unravel_index", lambda x: torch.unravel_index(x, (N, N)), i(low=0, high=N * N))
op("nn.pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), f(1, 64, 128, 128))
op("nn.pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2), f(1, 64, 128, 128))
op("nn.channel_shuffle", lambda x: F.channel_shuffle(x, 8), f(1, 64, 128, 128))

# ---------------------------------------------------------------- indexing

op("gather", lambda x, n: x.gather(1, n), f(), i(low=0, high=N))
op("gather_dim0", lambda x, n: x.gather(0, n), f(), i(low=0, high=N))
op("index_select", lambda x, n: x.index_select(0, n), f(), i(N, low=0, high=N))
op("index_select_dim1", lambda x, n: x.index_select(1, n), f(), i(N, low=0, high=N))
op("index_row", lambda x, n: x[n], f(), i(N, low=0, high=N))
op("index_pair", lambda x, n, m: x[n, m], f(), i(N * N, low=0, high=N), i(N * N, low=0, high=N))
op("index_mask", lambda x, m: x[m], f(), b())
op("index_put", lambda x, n, v: x.index_put((n,), v), f(), lambda: torch.randperm(N), f())
op("index_put_pair", lambda x, n, m, v: x.index_put((n, m), v), f(), lambda: torch.arange(N * N) // N, lambda: torch.arange(N * N) % N, f(N * N))
op("index_put_accumulate", lambda x, n, v: x.index_put((n,), v, accumulate=True), f(), i(N, low=0, high=N), f())
op("index_put_mask", lambda x, m: x.index_put((m,), torch.tensor(1.0)), f(), b())
op("index_add", lambda x, n, v: x.index_add(0, n, v), f(), i(N, low=0, high=N), f())
op("index_copy", lambda x, n, v: x.index_copy(0, n, v), f(), lambda: torch.randperm(N), f())
op("index_fill", lambda x, n: x.index_fill(1, n, 2.0), f(), i(256, low=0, high=N))
op("index_reduce", lambda x, n, v: x.index_reduce(0, n, v, "amax"), f(), i(N, low=0, high=N), f())
for _how in ("prod", "mean", "amin"):
    op("index_reduce_" + _how, lambda x, n, v, h=_how: x.index_reduce(0, n, v, h), f(), i(N, low=0, high=N), f())
op("scatter", lambda x, n, v: x.scatter(1, n, v), f(), lambda: torch.rand(N, N).argsort(-1), f())
op("scatter_value", lambda x, n: x.scatter(1, n, 2.0), f(), i(low=0, high=N))
op("scatter_add", lambda x, n, v: x.scatter_add(1, n, v), f(), i(low=0, high=N), f())
op("scatter_add_dim0", lambda x, n, v: x.scatter_add(0, n, v), f(), i(low=0, high=N), f())
for _how in ("sum", "prod", "mean", "amax", "amin"):
    op("scatter_reduce_" + _how, lambda x, n, v, h=_how: x.scatter_reduce(1, n, v, h), f(), i(low=0, high=N), f())
op("take", lambda x, n: x.take(n), f(), i(low=0, high=N * N))
op("put", lambda x, n, v: x.put(n, v), f(), lambda: torch.randperm(N * N), f(N * N))
op("take_along_dim", lambda x, n: x.take_along_dim(n, 1), f(), i(low=0, high=N))
op("masked_scatter", lambda x, m, v: x.masked_scatter(m, v), f(), b(), f())
op("embedding", lambda n, w: F.embedding(n, w), i(4096, low=0, high=4000), f(4000, 256))
op("embedding_bag", lambda n, w: F.embedding_bag(n, w), i(N, 16, low=0, high=4000), f(4000, 64))

# ---------------------------------------------------------------- products

op("matmul", torch.matmul, f(), f())
op("matmul_transposed", lambda x, y: x @ y.t(), f(), f())
op("mm", torch.mm, f(512, 512), f(512, 512))
op("bmm", torch.bmm, f(16, 256, 256), f(16, 256, 256))
op("matmul_batch", torch.matmul, f(4, 4, 128, 128), f(128, 128))
op("mv", torch.mv, f(), f(N))
op("vecmat", lambda x, y: x @ y, f(N), f())
op("dot", torch.dot, f(N * N), f(N * N))
op("vdot", torch.vdot, f(N * N), f(N * N))
op("inner", torch.inner, f(512, 512), f(512, 512))
op("outer", torch.outer, f(N), f(N))
op("addmm", torch.addmm, f(512), f(512, 512), f(512, 512))
op("addbmm", torch.addbmm, f(256, 256), f(16, 256, 256), f(16, 256, 256))
op("baddbmm", torch.baddbmm, f(16, 256, 256), f(16, 256, 256), f(16, 256, 256))
op("addmv", torch.addmv, f(N), f(), f(N))
op("addr", torch.addr, f(), f(N), f(N))
op("kron", torch.kron, f(32, 32), f(32, 32))
op("cross", lambda x, y: torch.linalg.cross(x, y), f(N * 256, 3), f(N * 256, 3))
op("linalg.vecdot", torch.linalg.vecdot, f(), f())
op("tensordot", lambda x, y: torch.tensordot(x, y, 2), f(64, 64, 64), f(64, 64, 64))
op("einsum", lambda x, y: torch.einsum("bij,bkj->bik", x, y), f(16, 128, 256), f(16, 128, 256))
op("linalg.multi_dot", lambda x, y, z: torch.linalg.multi_dot([x, y, z]), f(256, 512), f(512, 256), f(256, 512))
op("linalg.matrix_power", lambda x: torch.linalg.matrix_power(x / 512, 3), f(512, 512))
op("linalg.det", lambda x: torch.linalg.det(x), f(64, 32, 32))
op("linalg.inv", lambda x: torch.linalg.inv(x + 20 * torch.eye(256)), f(256, 256))
op("cdist", torch.cdist, f(N, 64), f(N, 64))
op("cdist_1", lambda x, y: torch.cdist(x, y, p=1.0), f(512, 64), f(512, 64))
op("nn.pdist", F.pdist, f(512, 64))
op("nn.linear", F.linear, f(512, 512), f(512, 512), f(512))
op("nn.bilinear", lambda x, y, w: F.bilinear(x, y, w), f(512, 32), f(512, 32), f(32, 32, 32))

# ---------------------------------------------------------------- networks

op("nn.conv1d", lambda x, w: F.conv1d(x, w, padding=1), f(4, 64, 1024), f(64, 64, 3))
op("nn.conv2d", lambda x, w: F.conv2d(x, w, padding=1), f(1, 64, 56, 56), f(64, 64, 3, 3))
op("nn.conv2d_1x1", F.conv2d, f(1, 256, 56, 56), f(64, 256, 1, 1))
op("nn.conv2d_strided", lambda x, w: F.conv2d(x, w, stride=2, padding=3), f(1, 3, 224, 224), f(64, 3, 7, 7))
op("nn.conv2d_depthwise", lambda x, w: F.conv2d(x, w, padding=1, groups=96), f(1, 96, 112, 112), f(96, 1, 3, 3))
op("nn.conv2d_dilated", lambda x, w: F.conv2d(x, w, padding=2, dilation=2), f(1, 64, 56, 56), f(64, 64, 3, 3))
op("nn.conv3d", lambda x, w: F.conv3d(x, w, padding=1), f(1, 16, 32, 32, 32), f(16, 16, 3, 3, 3))
op("nn.conv_transpose1d", F.conv_transpose1d, f(4, 64, 1024), f(64, 32, 4))
op("nn.conv_transpose2d", lambda x, w: F.conv_transpose2d(x, w, stride=2), f(1, 64, 56, 56), f(64, 32, 4, 4))
op("nn.conv_transpose3d", lambda x, w: F.conv_transpose3d(x, w, stride=2), f(1, 16, 16, 16, 16), f(16, 16, 4, 4, 4))
op("nn.max_pool1d", lambda x: F.max_pool1d(x, 3, 2), f(4, 64, 4096))
op("nn.max_pool2d", lambda x: F.max_pool2d(x, 3, 2, 1), f(1, 64, 128, 128))
op("nn.max_pool2d_indices", lambda x: F.max_pool2d(x, 2, return_indices=True), f(1, 64, 128, 128))
op("nn.max_pool3d", lambda x: F.max_pool3d(x, 2), f(1, 16, 32, 64, 32))
op("nn.avg_pool1d", lambda x: F.avg_pool1d(x, 3, 2), f(4, 64, 4096))
op("nn.avg_pool2d", lambda x: F.avg_pool2d(x, 3, 2, 1), f(1, 64, 128, 128))
op("nn.avg_pool3d", lambda x: F.avg_pool3d(x, 2), f(1, 16, 32, 64, 32))
op("nn.adaptive_avg_pool1d", lambda x: F.adaptive_avg_pool1d(x, 100), f(4, 64, 4096))
op("nn.adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, 7), f(1, 64, 128, 128))
op("nn.adaptive_avg_pool3d", lambda x: F.adaptive_avg_pool3d(x, 5), f(1, 16, 32, 64, 32))
op("nn.adaptive_max_pool1d", lambda x: F.adaptive_max_pool1d(x, 100), f(4, 64, 4096))
op("nn.adaptive_max_pool2d", lambda x: F.adaptive_max_pool2d(x, 7), f(1, 64, 128, 128))
op("nn.adaptive_max_pool3d", lambda x: F.adaptive_max_pool3d(x, 5), f(1, 16, 32, 64, 32))
op("nn.lp_pool2d", lambda x: F.lp_pool2d(x, 2, 3), f(1, 64, 128, 128))
op("nn.max_unpool2d", lambda x, n: F.max_unpool2d(x, n, 2), f(1, 64, 64, 64), lambda: F.max_pool2d(torch.randn(1, 64, 128, 128), 2, return_indices=True)[1])
op("nn.unfold", lambda x: F.unfold(x, 3, padding=1), f(1, 16, 96, 96))
op("nn.fold", lambda x: F.fold(x, (98, 98), 3), f(1, 16 * 9, 96 * 96))
op("nn.layer_norm", lambda x, w, c: F.layer_norm(x, (N,), w, c), f(), f(N), f(N))
op("nn.rms_norm", lambda x, w: F.rms_norm(x, (N,), w), f(), f(N))
op("nn.group_norm", lambda x: F.group_norm(x, 8), f(2, 64, 96, 96))
op("nn.instance_norm", lambda x: F.instance_norm(x), f(2, 64, 96, 96))
op("nn.batch_norm", lambda x, m, v: F.batch_norm(x, m, v), f(2, 64, 96, 96), f(64), pos(64))
op("nn.batch_norm_training", lambda x: F.batch_norm(x, None, None, training=True), f(2, 64, 96, 96))
op("nn.local_response_norm", lambda x: F.local_response_norm(x, 3), f(1, 64, 128, 128))
op("nn.attention", F.scaled_dot_product_attention, f(1, 8, 512, 64), f(1, 8, 512, 64), f(1, 8, 512, 64))
op("nn.attention_causal", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), f(1, 8, 512, 64), f(1, 8, 512, 64), f(1, 8, 512, 64))
op("nn.attention_mask", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m), f(1, 8, 512, 64), f(1, 8, 512, 64), f(1, 8, 512, 64), f(512, 512))
op("nn.cosine_similarity", F.cosine_similarity, f(), f())
op("nn.pairwise_distance", F.pairwise_distance, f(), f())
op("nn.upsample_nearest", lambda x: F.interpolate(x, scale_factor=2), f(1, 16, 128, 128))
op("nn.upsample_nearest_exact", lambda x: F.interpolate(x, scale_factor=2, mode="nearest-exact"), f(1, 16, 128, 128))
op("nn.upsample_bilinear", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), f(1, 16, 128, 128))
op("nn.upsample_bilinear_last", lambda x: F.interpolate(x.contiguous(memory_format=torch.channels_last), scale_factor=2, mode="bilinear"), f(1, 16, 128, 128))
op("nn.upsample_bicubic", lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), f(1, 16, 128, 128))
op("nn.upsample_linear", lambda x: F.interpolate(x, scale_factor=2, mode="linear"), f(4, 64, 2048))
op("nn.upsample_trilinear", lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"), f(1, 4, 32, 32, 32))
op("nn.upsample_area", lambda x: F.interpolate(x, size=(100, 100), mode="area"), f(1, 64, 128, 128))
op("bilinear_aa", lambda x: F.interpolate(x, size=(300, 300), mode="bilinear", antialias=True), f(1, 3, 600, 600))
op("bicubic_aa", lambda x: F.interpolate(x, size=(300, 300), mode="bicubic", antialias=True), f(1, 3, 600, 600))
op("nn.grid_sample", lambda x, g: F.grid_sample(x, g, align_corners=False), f(1, 16, 256, 256), lambda: torch.rand(1, 256, 256, 2) * 2 - 1)
op("nn.grid_sample_bicubic", lambda x, g: F.grid_sample(x, g, mode="bicubic", align_corners=False), f(1, 16, 256, 256), lambda: torch.rand(1, 256, 256, 2) * 2 - 1)
op("nn.grid_sample_nearest", lambda x, g: F.grid_sample(x, g, mode="nearest", align_corners=False), f(1, 16, 256, 256), lambda: torch.rand(1, 256, 256, 2) * 2 - 1)
op("nn.grid_sample_3d", lambda x, g: F.grid_sample(x, g, align_corners=False), f(1, 4, 64, 64, 64), lambda: torch.rand(1, 64, 64, 64, 3) * 2 - 1)
op("nn.affine_grid", lambda t: F.affine_grid(t, (1, 3, N, 512), align_corners=False), f(1, 2, 3))
for _name, _kind in (("lstm", torch.nn.LSTM), ("gru", torch.nn.GRU), ("rnn", torch.nn.RNN)):
    op("nn." + _name, _kind(128, 128).eval(), f(128, 16, 128))
for _name in "mse_loss l1_loss smooth_l1_loss huber_loss kl_div soft_margin_loss poisson_nll_loss".split():
    op("nn." + _name, getattr(F, _name), f(), pos() if _name == "kl_div" else f())
op("nn.binary_cross_entropy", F.binary_cross_entropy, lambda: torch.rand(N, N), lambda: torch.rand(N, N))
op("nn.bce_with_logits", F.binary_cross_entropy_with_logits, f(), lambda: torch.rand(N, N))
op("nn.cross_entropy", F.cross_entropy, f(), i(N, low=0, high=N))
op("nn.nll_loss", F.nll_loss, f(), i(N, low=0, high=N))
op("nn.gaussian_nll_loss", F.gaussian_nll_loss, f(), f(), pos())
op("nn.hinge_embedding_loss", F.hinge_embedding_loss, f(), lambda: torch.randint(0, 2, (N, N)) * 2.0 - 1)
op("nn.margin_ranking_loss", F.margin_ranking_loss, f(), f(), lambda: torch.randint(0, 2, (N, N)) * 2.0 - 1)
op("nn.cosine_embedding_loss", F.cosine_embedding_loss, f(), f(), lambda: torch.randint(0, 2, (N,)) * 2.0 - 1)
op("nn.multi_margin_loss", F.multi_margin_loss, f(), i(N, low=0, high=N))
op("nn.multilabel_margin_loss", F.multilabel_margin_loss, f(256, 256), i(256, 256, low=0, high=256))
op("nn.multilabel_soft_margin_loss", F.multilabel_soft_margin_loss, f(), lambda: (torch.rand(N, N) < 0.5).float())
op("nn.triplet_margin_loss", F.triplet_margin_loss, f(), f(), f())
op("fft.fft", lambda x: torch.view_as_real(torch.fft.fft(x)), f())
op("fft.rfft", lambda x: torch.view_as_real(torch.fft.rfft(x)), f())
op("fft.irfft", lambda x: torch.fft.irfft(torch.view_as_complex(x)), f(N, 513, 2))
op("fft.fft2", lambda x: torch.view_as_real(torch.fft.fft2(x)), f(512, 512))
op("fft.rfft_odd", lambda x: torch.view_as_real(torch.fft.rfft(x)), f(N, 1000))
op("fft.rfft_prime", lambda x: torch.view_as_real(torch.fft.rfft(x)), f(256, 1009))
op("fft.fftshift", torch.fft.fftshift, f())
op("stft", lambda x: torch.view_as_real(torch.stft(x, 512, 128, window=torch.hann_window(512), return_complex=True)), f(1, N * 128))


# ---------------------------------------------------------------- measuring

NOT_EXPORTED = "not exported: "  # how the reason of a row begins that never reaches the compiler


class Model(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        out = self.function(*inputs)
        return tuple(out) if isinstance(out, (tuple, list)) else out


def eager_ms(function, inputs, seconds):
    best, calls, start = float("inf"), 0, time.perf_counter()
    while calls < 3 or time.perf_counter() - start < seconds:
        begin = time.process_time()
        function(*inputs)
        best = min(best, time.process_time() - begin)
        calls += 1
    return best * 1e3


def measure(name, pteron, seconds, folder):
    """(eager ms, our ms), or the reason why not."""
    torch.manual_seed(0)
    function, makers = ROWS[name]
    inputs = tuple(m() if callable(m) else m for m in makers)
    model = Model(function).eval()
    with torch.no_grad():
        try:
            torch.export.save(torch.export.export(model, inputs, strict=False), str(folder / "m.pt2"))
        except Exception as error:
            return NOT_EXPORTED + (str(error).strip().splitlines() or [type(error).__name__])[0][:100]
        done = subprocess.run([pteron, "compile", "--no-sync", "--backend", "portable", "--max-size", str(2 * N * N), str(folder / "m.pt2"), "-o", str(folder / "m.pte")], capture_output=True, text=True)
        if done.returncode != 0:
            return f"compile exit {done.returncode}: {done.stderr.strip().splitlines()[-1][:160]}"
        save_file({str(k): x.contiguous() for k, x in enumerate(inputs)}, str(folder / "in.safetensors"))
        best = [float("inf"), float("inf")]
        for _ in range(2):
            best[0] = min(best[0], eager_ms(model, inputs, seconds))
            done = subprocess.run([pteron, "bench", str(folder / "m.pte"), "--inputs", str(folder / "in.safetensors"), "--threads", "1", "--min-time", str(seconds), "--json"],
                                  capture_output=True, text=True)
            if done.returncode != 0:
                return f"bench exit {done.returncode}: {done.stderr.strip()[:160]}"
            best[1] = min(best[1], json.loads(done.stdout)["least_cpu_ms"])
    return best


def processor():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def write_table(path, measured, failed, limit):
    lines = ["# Portable kernels against PyTorch eager", "",
             "Milliseconds of processor time of the fastest call, one thread, about a million elements (the sizes stand in `bench/op_kernels.py`, which writes this file).",
             f"{processor()}, torch {torch.__version__}. A ratio above 1 is slower than eager; none may exceed {limit:g}.", ""]
    slow = [n for n, (e, o) in measured.items() if o > limit * e]
    ratios = sorted(o / e for e, o in measured.values())
    lines += [f"{len(measured)} rows, median ratio {ratios[len(ratios) // 2]:.2f}, {len(slow)} above {limit:g}.", "", "| operator | eager | pteron | ratio |", "|---|---:|---:|---:|"]
    lines += [f"| {n} | {e:.3f} | {o:.3f} | {o / e:.2f} |" for n, (e, o) in sorted(measured.items())]
    lines += [f"| {n} | {why} | | |" for n, why in sorted(failed.items())]
    pathlib.Path(path).write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pteron", required=True)
    parser.add_argument("--ops", default="", help="regular expression on the row's name")
    parser.add_argument("--seconds", type=float, default=0.15, help="of each of the four measurements of a row")
    parser.add_argument("--limit", type=float, default=3)
    parser.add_argument("--table", default="", help="write the table here")
    parser.add_argument("--again", default="", help="keep the rows of this JSON file that --ops does not match; all go back into it")
    options = parser.parse_args()
    torch.set_num_threads(1)
    measured, failed = {}, {}
    if options.again and os.path.exists(options.again):
        measured, failed = json.loads(pathlib.Path(options.again).read_text())
    with tempfile.TemporaryDirectory() as folder:
        for name in ROWS:
            if not re.search(options.ops, name):
                continue
            got = measure(name, str(pathlib.Path(options.pteron).resolve()), options.seconds, pathlib.Path(folder))
            measured.pop(name, None), failed.pop(name, None)
            if isinstance(got, str):
                failed[name] = got
                print(f"{name:<28} {got}", flush=True)
                continue
            measured[name] = got
            print(f"{name:<28} eager {got[0]:9.3f}  pteron {got[1]:9.3f}  ratio {got[1] / got[0]:6.2f}" + ("  SLOW" if got[1] > options.limit * got[0] else ""), flush=True)
    if options.again:
        pathlib.Path(options.again).write_text(json.dumps([measured, failed]))
    if options.table:
        write_table(options.table, measured, failed, options.limit)
    return 1 if any(not why.startswith(NOT_EXPORTED) for why in failed.values()) or any(o > options.limit * e for e, o in measured.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
