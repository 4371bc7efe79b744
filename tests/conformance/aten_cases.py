#!/usr/bin/env python3
"""Operators that PyTorch's operator database calls under other names or not at all: gradients (training programs hold them), dense linear
algebra, quantization, 8-bit floats, short-time Fourier transforms back, torchvision's operators of detectors (where it is installed)."""
import argparse
import re
import time

import torch
import torch.ao.quantization.fx._decomposed  # noqa: F401  registers quantized_decomposed

from caselib import SHORT, Report, seed_all, write_case

aten = torch.ops.aten
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
WIDE = (torch.float32, torch.float64)
ROWS = []


def row(name, function, make, dtypes=FLOATS, forms=("nc",), accumulates=False, **options):
    """make(dtype) gives the tensors of one call, function takes them. Forms: nc = every tensor strided, core = decomposed."""
    ROWS.append((name, function, make, dtypes, forms, accumulates, options))


class Call(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *tensors):
        result = self.function(*tensors)
        return tuple(result) if isinstance(result, tuple) else result  # plain tuples for torch.return_types


def strided(v):
    """The same values, every second element of a larger tensor."""
    if not isinstance(v, torch.Tensor) or v.dim() == 0:
        return v
    wide = torch.zeros([2 * s for s in v.shape], dtype=v.dtype)
    view = wide[tuple(slice(None, None, 2) for _ in v.shape)]
    view.copy_(v)
    return view


def randn(*size, scale=1.0):
    return lambda t: (torch.randn(size) * scale).to(t)


def pair(*size):
    return lambda t: (torch.randn(size).to(t), (torch.randn(size) * 2).to(t))


# Pointwise gradients: [grad, input] of a matrix, an empty tensor and a number.
POINTWISE = {
    "sigmoid_backward": lambda g, x: aten.sigmoid_backward(g, x.sigmoid()),
    "tanh_backward": lambda g, x: aten.tanh_backward(g, x.tanh()),
    "silu_backward": aten.silu_backward,
    "gelu_backward": aten.gelu_backward,
    "gelu_backward_tanh": lambda g, x: aten.gelu_backward(g, x, approximate="tanh"),
    "hardsigmoid_backward": lambda g, x: aten.hardsigmoid_backward(g, x * 2),
    "hardswish_backward": lambda g, x: aten.hardswish_backward(g, x * 2),
    "hardtanh_backward": lambda g, x: aten.hardtanh_backward(g, x, -0.5, 0.75),
    "leaky_relu_backward": lambda g, x: aten.leaky_relu_backward(g, x, 0.1, False),
    "elu_backward": lambda g, x: aten.elu_backward(g, 1.5, 0.5, 2.0, False, x),
    "elu_backward_result": lambda g, x: aten.elu_backward(g, 1.5, 0.5, 2.0, True, x),
    "log_sigmoid_backward": lambda g, x: aten.log_sigmoid_backward(g, x, aten.log_sigmoid_forward(x)[1]),
    "logit_backward": lambda g, x: aten.logit_backward(g, x.sigmoid(), 0.2),
    "logit_backward_plain": lambda g, x: aten.logit_backward(g, x),
    "mish_backward": aten.mish_backward,
    "softplus_backward": lambda g, x: aten.softplus_backward(g, x, 2.0, 1.5),
    "threshold_backward": lambda g, x: aten.threshold_backward(g, x, 0.25),
    "hardshrink_backward": lambda g, x: aten.hardshrink_backward(g, x, 0.5),
    "softshrink_backward": lambda g, x: aten.softshrink_backward(g, x, 0.5),
    "native_dropout_backward": lambda g, x: aten.native_dropout_backward(g, x > 0, 1.25),
    "mse_loss_backward": lambda g, x: aten.mse_loss_backward(g, x, x * 0.5, 0),
    "smooth_l1_loss_backward": lambda g, x: aten.smooth_l1_loss_backward(g, x, x * 0.5, 0, 0.5),
    "huber_loss_backward": lambda g, x: aten.huber_loss_backward(g, x, x * 0.5, 0, 0.5),
    "binary_cross_entropy_backward": lambda g, x: aten.binary_cross_entropy_backward(g, x.sigmoid(), (x > 0).to(x), None, 0),
    "soft_margin_loss_backward": lambda g, x: aten.soft_margin_loss_backward(g, x, x.sign(), 0),
}
for _name, _function in POINTWISE.items():
    row(_name, _function, pair(3, 5), forms=("nc", "core"))
    row(_name + "_empty", _function, pair(2, 0), dtypes=(torch.float32,), forms=())
    row(_name + "_0d", _function, pair(), dtypes=(torch.float32, torch.bfloat16), forms=())
for _how in (1, 2):
    row(f"mse_loss_backward_{_how}", lambda g, x, h=_how: aten.mse_loss_backward(g, x, x * 0.5, h), lambda t: (torch.randn(()).to(t), torch.randn(4, 3).to(t)))
    row(f"binary_cross_entropy_backward_{_how}", lambda g, x, w, h=_how: aten.binary_cross_entropy_backward(g, x.sigmoid(), (x > 0).to(x), w, h),
        lambda t: (torch.randn(()).to(t), torch.randn(4, 3).to(t), torch.rand(3).to(t)))
    row(f"smooth_l1_loss_backward_{_how}", lambda g, x, h=_how: aten.smooth_l1_loss_backward(g, x, x * 0.5, h, 1.0), lambda t: (torch.randn(()).to(t), torch.randn(4, 3).to(t)))
row("threshold_backward_int", lambda g, x: aten.threshold_backward(g, x, 1), lambda t: (torch.randint(-5, 5, (3, 4)).to(t), torch.randint(-3, 4, (3, 4)).to(t)),
    dtypes=(torch.int64, torch.int32, torch.uint8))
row("glu_backward", lambda g, x: aten.glu_backward(g, x, 1), lambda t: (torch.randn(3, 2).to(t), torch.randn(3, 4).to(t)))
row("_prelu_kernel_backward", aten._prelu_kernel_backward, lambda t: (torch.randn(2, 3).to(t), torch.randn(2, 3).to(t), torch.rand(1, 3).to(t)))
for _reduction in (0, 1, 2):
    row(f"nll_loss_backward_{_reduction}", lambda g, x, w, y, r=_reduction: aten.nll_loss_backward(g, x, y, w, r, 1, aten.nll_loss_forward(x, y, w, r, 1)[1]),
        lambda t, r=_reduction: (torch.randn(5 if r == 0 else ()).to(t), torch.randn(5, 4).to(t), torch.rand(4).to(t) + 0.5, torch.tensor([0, 1, 3, 2, 1])), dtypes=WIDE)
row("nll_loss2d_backward", lambda g, x, y: aten.nll_loss2d_backward(g, x, y, None, 1, 2, aten.nll_loss2d_forward(x, y, None, 1, 2)[1]),
    lambda t: (torch.randn(()).to(t), torch.randn(2, 3, 2, 2).to(t), torch.randint(0, 3, (2, 2, 2))), dtypes=WIDE)

# Softmax and norms.
row("_softmax_backward_data", lambda g, x: aten._softmax_backward_data(g, x.softmax(1), 1, x.dtype), pair(3, 5), accumulates=True)
row("_log_softmax_backward_data", lambda g, x: aten._log_softmax_backward_data(g, x.log_softmax(-1), -1, x.dtype), pair(2, 3, 4), accumulates=True)
row("_softmax_backward_data_0d", lambda g, x: aten._softmax_backward_data(g, x.softmax(0), 0, x.dtype), pair(), dtypes=WIDE, forms=())


def layer_norm(g, x, w, b, mask=(True, True, True)):
    _, mean, rstd = aten.native_layer_norm(x, [5], w, b, 1e-5)
    return [v for v in aten.native_layer_norm_backward(g, x, [5], mean, rstd, w, b, mask) if v is not None]


row("native_layer_norm_backward", layer_norm, lambda t: (torch.randn(2, 3, 5).to(t), torch.randn(2, 3, 5).to(t), torch.rand(5).to(t), torch.randn(5).to(t)), accumulates=True)
row("native_layer_norm_backward_masked", lambda g, x, w, b: layer_norm(g, x, w, b, (True, False, True)),
    lambda t: (torch.randn(2, 5).to(t), torch.randn(2, 5).to(t), torch.rand(5).to(t), torch.randn(5).to(t)), dtypes=WIDE, accumulates=True)
row("native_layer_norm_backward_plain", lambda g, x: aten.native_layer_norm_backward(g, x, [5], *aten.native_layer_norm(x, [5], None, None, 1e-5)[1:], None, None, (True, False, False))[0],
    pair(4, 5), dtypes=WIDE, accumulates=True)


def group_norm(g, x, w=None, mask=(True, True, True)):
    n, c, p = x.shape[0], x.shape[1], x[0, 0].numel()
    _, mean, rstd = aten.native_group_norm(x, w, None, n, c, p, 2, 1e-5)
    return [v for v in aten.native_group_norm_backward(g, x, mean, rstd, w, n, c, p, 2, mask) if v is not None]


row("native_group_norm_backward", group_norm, lambda t: (torch.randn(2, 4, 3, 2).to(t), torch.randn(2, 4, 3, 2).to(t), torch.rand(4).to(t)), dtypes=WIDE, accumulates=True)
row("native_group_norm_backward_plain", lambda g, x: group_norm(g, x, None, (True, False, False)), pair(2, 4, 6), dtypes=WIDE, accumulates=True)
for _train in (True, False):
    row(f"native_batch_norm_backward_{_train}", lambda g, x, w, m, v, t=_train: aten.native_batch_norm_backward(
        g, x, w, m, v, x.mean((0, 2)), (x.var((0, 2), correction=0) + 1e-5).rsqrt(), t, 1e-5, (True, True, True)),
        lambda t: (torch.randn(3, 4, 5).to(t), torch.randn(3, 4, 5).to(t), torch.rand(4).to(t), torch.randn(4).to(t), torch.rand(4).to(t) + 0.5), dtypes=WIDE, accumulates=True)

# Convolutions and pools.
for _n, _x, _w, _a in (
        ("1d", (2, 4, 9), (6, 4, 3), ([2], [1], [1], False, [0], 1)),
        ("2d", (2, 4, 7, 6), (6, 2, 3, 2), ([1, 2], [1, 0], [1, 2], False, [0, 0], 2)),
        ("2d_pointwise", (1, 8, 5, 5), (3, 8, 1, 1), ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)),
        ("2d_depthwise", (1, 4, 6, 6), (4, 1, 3, 3), ([1, 1], [1, 1], [1, 1], False, [0, 0], 4)),
        ("3d", (1, 2, 4, 5, 4), (3, 2, 2, 3, 2), ([1, 2, 1], [0, 1, 1], [1, 1, 1], False, [0, 0, 0], 1)),
        ("transposed", (2, 4, 5, 4), (4, 3, 3, 3), ([2, 1], [1, 1], [1, 1], True, [1, 0], 1)),
        ("transposed_groups", (1, 4, 5), (4, 2, 3), ([2], [0], [2], True, [0], 2)),
        ("empty_batch", (0, 2, 5, 5), (3, 2, 3, 3), ([1, 1], [0, 0], [1, 1], False, [0, 0], 1))):
    def _grad_size(x, w, a):
        return aten.convolution(torch.zeros(x), torch.zeros(w), None, *a).shape
    row(f"convolution_backward_{_n}", lambda g, x, w, a=_a: aten.convolution_backward(g, x, w, [g.shape[1]], *a, (True, True, True)),
        lambda t, x=_x, w=_w, s=_grad_size(_x, _w, _a): (torch.randn(s).to(t), torch.randn(x).to(t), torch.randn(w).to(t)),
        dtypes=WIDE if _n != "2d" else (*WIDE, torch.bfloat16), accumulates=True)
row("convolution_backward_masked", lambda g, x, w: aten.convolution_backward(g, x, w, None, [1], [0], [1], False, [0], 1, (False, True, False))[1],
    lambda t: (torch.randn(2, 3, 4).to(t), torch.randn(2, 2, 6).to(t), torch.randn(3, 2, 3).to(t)), dtypes=WIDE, accumulates=True)
row("max_pool2d_with_indices_backward", lambda x: aten.max_pool2d_with_indices_backward(
    aten.max_pool2d_with_indices(x, [3, 2], [2, 1], [1, 0])[0] * 2, x, [3, 2], [2, 1], [1, 0], [1, 1], False, aten.max_pool2d_with_indices(x, [3, 2], [2, 1], [1, 0])[1]),
    lambda t: (torch.randn(2, 3, 7, 6).to(t),), dtypes=WIDE, accumulates=True)
for _pad, _div in ((True, None), (False, None), (True, 3)):
    row(f"avg_pool2d_backward_{_pad}_{_div}", lambda g, x, p=_pad, d=_div: aten.avg_pool2d_backward(g, x, [3, 2], [2, 2], [1, 1], True, p, d),
        lambda t: (torch.randn(2, 3, 4, 3).to(t), torch.randn(2, 3, 6, 5).to(t)), dtypes=WIDE, accumulates=True)
row("_adaptive_avg_pool2d_backward", aten._adaptive_avg_pool2d_backward, lambda t: (torch.randn(2, 3, 3, 2).to(t), torch.randn(2, 3, 7, 5).to(t)), dtypes=WIDE, accumulates=True)

# Gradients of pads, slices and lookups.
for _d, _x, _p in ((1, (2, 3, 5), [1, 3]), (2, (2, 3, 4, 5), [2, 1, 0, 3]), (3, (1, 2, 3, 4, 3), [1, 1, 2, 0, 1, 2])):
    for _kind in ("reflection", "replication"):
        _pad = getattr(aten, f"{_kind}_pad{_d}d")
        _back = getattr(aten, f"{_kind}_pad{_d}d_backward")
        row(f"{_kind}_pad{_d}d_backward", lambda g, x, f=_back, p=_p: f(g, x, p),
            lambda t, x=_x, s=_pad(torch.zeros(_x), _p).shape: (torch.randn(s).to(t), torch.randn(x).to(t)), dtypes=WIDE, accumulates=True)
row("select_backward", lambda g: aten.select_backward(g, [3, 4, 5], 1, -2), randn(3, 5))
row("slice_backward", lambda g: aten.slice_backward(g, [3, 9], 1, 1, 8, 3), randn(3, 3))
row("diagonal_backward", lambda g: aten.diagonal_backward(g, [4, 3, 5], 1, 0, 2), randn(3, 4))
row("unfold_backward", lambda g: aten.unfold_backward(g, [3, 9], 1, 4, 2), randn(3, 3, 4), accumulates=True)
for _freq in (False, True):
    row(f"embedding_dense_backward_{_freq}", lambda g, i, f=_freq: aten.embedding_dense_backward(g, i, 6, 2, f),
        lambda t: (torch.randn(2, 4, 3).to(t), torch.tensor([[0, 2, 5, 5], [5, 1, 2, 0]])), dtypes=WIDE, accumulates=True)
row("resize_smaller", lambda x: aten.resize(x, [2, 3]), randn(3, 4), dtypes=(torch.float32,), forms=())
row("resize_inplace", lambda x: x.clone().resize_(2, 3) * 2, randn(3, 4), dtypes=(torch.float32, torch.float16), forms=())

# Linear algebra. Where vectors may have either sign, what they are made of is compared.
linalg = torch.linalg


def matrices(*size):
    return lambda t: (torch.randn(size).to(t),)


def positive(*size):
    def make(t):
        a = torch.randn(size)
        return ((a @ a.mT + torch.eye(size[-1])).to(t),)
    return make


def square(x):
    return x + x.mT


row("linalg_cholesky", linalg.cholesky, positive(2, 4, 4), WIDE, ("nc", "core"), True)
row("linalg_cholesky_upper", lambda x: linalg.cholesky(x, upper=True), positive(3, 3), WIDE, ("nc",), True)
row("linalg_cholesky_ex", lambda x: linalg.cholesky_ex(square(x)).info, matrices(4, 3, 3), WIDE, ())
row("cholesky_solve", lambda x, b: torch.cholesky_solve(b, linalg.cholesky(x)), lambda t: (*positive(4, 4)(t), torch.randn(4, 2).to(t)), WIDE, ("nc",), True)
row("cholesky_inverse", lambda x: torch.cholesky_inverse(linalg.cholesky(x)), positive(2, 4, 4), WIDE, ("nc",), True)
row("linalg_solve", linalg.solve, lambda t: (torch.randn(3, 4, 4).to(t) + 3 * torch.eye(4).to(t), torch.randn(3, 4, 2).to(t)), WIDE, ("nc", "core"), True)
row("linalg_solve_vector", linalg.solve, lambda t: (torch.randn(4, 4).to(t) + 3 * torch.eye(4).to(t), torch.randn(4).to(t)), WIDE, ("nc",), True)
row("linalg_solve_broadcast", linalg.solve, lambda t: (torch.randn(2, 1, 3, 3).to(t) + 3 * torch.eye(3).to(t), torch.randn(5, 3, 2).to(t)), WIDE, ("nc",), True)
row("linalg_solve_right", lambda a, b: linalg.solve(a, b, left=False), lambda t: (torch.randn(3, 3).to(t) + 3 * torch.eye(3).to(t), torch.randn(2, 3).to(t)), WIDE, ("nc",), True)
row("linalg_solve_empty", linalg.solve, lambda t: (torch.randn(0, 3, 3).to(t), torch.randn(0, 3, 2).to(t)), (torch.float32,), ())
for _upper in (True, False):
    for _left in (True, False):
        row(f"linalg_solve_triangular_{_upper}_{_left}", lambda a, b, u=_upper, left=_left: linalg.solve_triangular(a, b, upper=u, left=left),
            lambda t, left=_left: (torch.randn(2, 3, 3).to(t) + 3 * torch.eye(3).to(t), torch.randn((2, 3, 4) if left else (2, 4, 3)).to(t)), WIDE, ("nc",), True)
row("triangular_solve", lambda b, a: torch.triangular_solve(b, a, upper=False, transpose=True)[0], lambda t: (torch.randn(3, 2).to(t), torch.randn(3, 3).to(t) + 3 * torch.eye(3).to(t)), WIDE, ("nc",), True)
row("linalg_eigh", lambda x: (lambda w, v: (w, (v * w.unsqueeze(-2)) @ v.mT))(*linalg.eigh(square(x))), matrices(2, 6, 6), WIDE, ("nc", "core"), True)
row("linalg_eigvalsh", lambda x: linalg.eigvalsh(square(x), "U"), matrices(3, 5, 5), WIDE, ("nc",), True)
for _size in ((2, 5, 3), (3, 5), (4, 4), (3, 1)):
    _id = "x".join(map(str, _size))
    row(f"linalg_svd_{_id}", lambda x: (lambda u, s, vh: (s, (u * s.unsqueeze(-2)) @ vh))(*linalg.svd(x, full_matrices=False)), matrices(*_size), WIDE, ("nc",), True)
    row(f"linalg_svd_full_{_id}", lambda x: (lambda u, s, vh: (s, u @ u.mT, vh @ vh.mT))(*linalg.svd(x)), matrices(*_size), WIDE, (), True, atol=1e-5)
    row(f"linalg_qr_{_id}", linalg.qr, matrices(*_size), WIDE, ("nc",), True)
    row(f"linalg_qr_complete_{_id}", lambda x: linalg.qr(x, mode="complete"), matrices(*_size), WIDE, (), True)
    row(f"linalg_pinv_{_id}", linalg.pinv, matrices(*_size), WIDE, ("nc",), True)
    row(f"linalg_lu_{_id}", linalg.lu, matrices(*_size), WIDE, ("nc",), True)
    row(f"linalg_matrix_rank_{_id}", linalg.matrix_rank, matrices(*_size), WIDE, ("core",))
row("linalg_svd_rank1", lambda x: (lambda u, s, vh: (s, u @ u.mT, (u * s) @ vh))(*linalg.svd(x[:, None] * x[None])), matrices(4), WIDE, (), True, atol=1e-5)
row("linalg_pinv_hermitian", lambda x: linalg.pinv(square(x), hermitian=True), matrices(4, 4), WIDE, (), True, rtol=1e-3, atol=1e-4)
row("linalg_matrix_rank_tol", lambda x: linalg.matrix_rank(x, atol=1.5, rtol=0.0), matrices(3, 4, 4), WIDE, ())
row("linalg_lu_factor", linalg.lu_factor, matrices(2, 4, 4), WIDE, ("nc", "core"), True)
row("linalg_lu_solve", lambda a, b: linalg.lu_solve(*linalg.lu_factor(a), b), lambda t: (torch.randn(2, 4, 4).to(t) + 3 * torch.eye(4).to(t), torch.randn(2, 4, 3).to(t)), WIDE, ("nc",), True)
row("linalg_slogdet", linalg.slogdet, matrices(5, 4, 4), WIDE, ("nc", "core"), True)
row("logdet", torch.logdet, matrices(5, 3, 3), WIDE, ("nc", "core"), True)
row("linalg_det_core", linalg.det, matrices(2, 4, 4), WIDE, ("core",), True)
row("matrix_exp", torch.matrix_exp, matrices(3, 4, 4), WIDE, ("nc", "core"), True)
row("linalg_cond", linalg.cond, positive(3, 4, 4), WIDE, ("core",), True)
row("linalg_matrix_norm_nuc", lambda x: linalg.matrix_norm(x, "nuc"), matrices(2, 4, 3), WIDE, ("core",), True)
row("linalg_tensorinv", lambda x: linalg.tensorinv(x, 2), lambda t: (torch.randn(2, 3, 6).to(t),), WIDE, (), True)
row("linalg_householder_product", linalg.householder_product, lambda t: (torch.randn(2, 5, 3).to(t), torch.randn(2, 3).to(t)), WIDE, ("nc",), True)
row("vander", lambda x: torch.vander(x, 4), matrices(5), (torch.float32, torch.float64, torch.int64), ())
row("mvlgamma", lambda x: torch.mvlgamma(x.abs() + 3, 4), matrices(3, 4), FLOATS, ())
row("pad_sequence", lambda x, y: torch.nn.utils.rnn.pad_sequence([x, y], True, -1.0), lambda t: (torch.randn(3, 2).to(t), torch.randn(5, 2).to(t)), FLOATS, ())
row("_chunk_cat", lambda x, y: aten._chunk_cat([x, y], 0, 2), lambda t: (torch.randn(3, 2).to(t), torch.randn(4).to(t)), FLOATS, ())

# Short-time Fourier transforms, there and back.
for _id, _kw in (("plain", {}), ("window", {"win_length": 12, "hop_length": 5}), ("length", {"length": 70}), ("raw", {"center": False}), ("normalized", {"normalized": True})):
    row(f"istft_{_id}", lambda x, w, k=_kw: torch.istft(torch.view_as_complex(x), 16, window=w if "win_length" not in k else w[:12], **k),
        lambda t: (torch.randn(2, 9, 14, 2).to(t), torch.hamming_window(16, dtype=t)), WIDE, (), True)
row("istft_core", lambda x, w: torch.istft(torch.view_as_complex(x), 8, window=w), lambda t: (torch.randn(5, 6, 2).to(t), torch.hamming_window(8, dtype=t)), WIDE, ("core",), True)
row("stft_istft", lambda x, w: torch.istft(torch.stft(x, 16, window=w, return_complex=True), 16, window=w, length=64), lambda t: (torch.randn(64).to(t), torch.hann_window(16, dtype=t)), WIDE, (), True)

# Quantization.
for _dtype in (torch.int8, torch.uint8):
    _low, _high = torch.iinfo(_dtype).min, torch.iinfo(_dtype).max
    for _how in ("choose_qparams", "choose_qparams_symmetric"):
        def _choose(x, h=_how, d=_dtype, low=_low, high=_high):
            return getattr(torch.ops.quantized_decomposed, h).tensor(x, low, high, 1.1920928955078125e-07, d)
        row(f"{_how}_{SHORT[_dtype]}", _choose, matrices(3, 7), (torch.float32,), ("nc",))
row("fake_quantize_per_tensor_affine", lambda x: torch.fake_quantize_per_tensor_affine(x, 0.05, 3, -128, 127), lambda t: (torch.randn(4, 5).to(t) * 4,), (torch.float32,), ("nc", "core"))
row("fake_quantize_per_channel_affine", lambda x, s, z: torch.fake_quantize_per_channel_affine(x, s, z, 1, 0, 255),
    lambda t: (torch.randn(4, 5).to(t) * 4, torch.rand(5) * 0.05 + 0.01, torch.randint(0, 200, (5,), dtype=torch.int32)), (torch.float32,), ("nc", "core"))
row("_int_mm", lambda x, y: torch._int_mm(x, y), lambda t: (torch.randint(-128, 127, (17, 16)).to(t), torch.randint(-128, 127, (16, 8)).to(t)), (torch.int8,), ())
row("_weight_int8pack_mm", lambda x, w, s: aten._weight_int8pack_mm(x, w, s), lambda t: (torch.randn(3, 32).to(t), torch.randint(-128, 127, (16, 32), dtype=torch.int8), torch.rand(16).to(t)),
    (torch.float32, torch.bfloat16), (), True)
row("_weight_int4pack_mm_for_cpu", lambda x, w, s: aten._weight_int4pack_mm_for_cpu(x, aten._convert_weight_to_int4pack_for_cpu(w, 1), 32, s),
    lambda t: (torch.randn(3, 64).to(t), torch.randint(0, 16, (32, 64), dtype=torch.int32), torch.rand(2, 32, 2).to(t)), (torch.float32, torch.bfloat16), (), True)

# 8-bit floats stand between two casts.
for _name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"):
    _f8 = getattr(torch, _name)
    row(f"to_{_name}", lambda x, f=_f8: x.to(f).to(x.dtype), lambda t: (torch.cat([torch.randn(40), torch.randn(40) * 100, torch.randn(40) * 1e-2, torch.tensor(
        [0.0, -0.0, 448.0, 464.0, 465.0, -480.0, 57344.0, 61440.0, 65536.0, 240.0, 248.0, 2.0 ** -9, 2.0 ** -10, 1.5 * 2.0 ** -10, 2.0 ** -17, 1e-12, float("inf"), float("nan")])]).to(t),))
    row(f"cat_{_name}", lambda x, f=_f8: torch.cat([x.to(f), x.to(f)]).reshape(-1)[1:].to(x.dtype), matrices(3, 5), (torch.float32,), ())


# Kernels that round every step to 16 bits, factors of integers that have a fraction, results whose dtype or size does not follow from the name.
for _mode in range(3):
    for _padding in range(3):
        row(f"grid_sampler_2d_rounded_{_mode}_{_padding}", lambda x, g, m=_mode, p=_padding: tuple(aten.grid_sampler_2d(x, g, m, p, align) for align in (True, False)),
            lambda t: ((torch.randn(2, 3, 5, 20) * 4).to(t), (torch.rand(2, 9, 7, 2) * 3 - 1.5).to(t)), dtypes=(torch.float16, torch.bfloat16), forms=())
for _ord in (1.0, 2.0, 3.0, float("inf")):
    row(f"embedding_renorm_{_ord:.0f}", lambda w, o=_ord: aten.embedding_renorm(w, torch.tensor([0, 1, 1, 4]), 1.0, o), lambda t: (torch.randn(6, 7) * 8).to(t))
row("diff_of_order_zero", lambda x, a: torch.diff(x, 0, 0, a, a), lambda t: (torch.randn(4, 3).to(t), torch.randn(2, 3).to(t)))
for _dtype in (torch.int64, torch.int32, torch.uint8):
    row(f"products_with_fractions_{SHORT[_dtype]}", lambda a, x, y: (
        torch.addmm(a, x, y, beta=2.7, alpha=1.6), torch.addmv(a[0, 0], x, y[:, 0], beta=0.2, alpha=1.9), torch.baddbmm(a, x[None], y[None], beta=3.2, alpha=0.6),
        torch.addbmm(a, x[None], y[None], beta=1.5, alpha=2.5)), lambda t: tuple(torch.randint(0, 9, s).to(t) for s in ((2, 4), (2, 3), (3, 4))), dtypes=(_dtype,), forms=())
row("sum_to_size", lambda x: (x[0, 0].sum_to_size(()), x.sum_to_size((1, 3)), x.sum_to_size((3,)), x.sum_to_size((2, 3))), lambda t: torch.randint(0, 2, (2, 3)).to(t),
    dtypes=(torch.int32, torch.uint8, torch.bool))
row("threshold_of_integers", lambda x: torch.nn.functional.threshold(x, -1.5, -2.7), lambda t: torch.arange(-4, 5).to(t), dtypes=(torch.int64, torch.int32), forms=())


def detection():
    import torchvision

    def boxes(t, n=40):
        corner = torch.rand(n, 2) * 50
        return torch.cat([corner, corner + torch.rand(n, 2) * 30 + 1], 1).to(t)
    row("nms", lambda b, s: torchvision.ops.nms(b, s, 0.4), lambda t: (boxes(t), torch.rand(40).to(t)), WIDE)
    row("batched_nms", lambda b, s, i: torchvision.ops.batched_nms(b, s, i, 0.4), lambda t: (boxes(t), torch.rand(40).to(t), torch.randint(0, 3, (40,))), WIDE)
    for sampling in (2, -1):
        for aligned in (True, False):
            row(f"roi_align_{sampling}_{aligned}", lambda x, b, s=sampling, a=aligned: torchvision.ops.roi_align(x, b, (4, 3), 0.5, s, a),
                lambda t: (torch.randn(2, 3, 30, 40).to(t), torch.cat([torch.randint(0, 2, (6, 1)).to(t), boxes(t, 6)], 1)), WIDE, ("nc",), True)
    row("roi_pool", lambda x, b: torchvision.ops.roi_pool(x, b, (3, 4), 0.5), lambda t: (torch.randn(2, 3, 30, 40).to(t), torch.cat([torch.randint(0, 2, (6, 1)).to(t), boxes(t, 6)], 1)), WIDE)


def torchao_models():
    from torchao import quantization as q
    from torchao.utils import unwrap_tensor_subclass

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = torch.nn.Linear(64, 96), torch.nn.Linear(96, 32)

        def forward(self, x):
            return self.b(self.a(x).relu())

    for name, config in (("int8_weight_only", q.Int8WeightOnlyConfig()), ("int8_dynamic", q.Int8DynamicActivationInt8WeightConfig()), ("intx_weight_only", q.IntxWeightOnlyConfig()),
                         ("int8_dynamic_intx", q.Int8DynamicActivationIntxWeightConfig()), ("float8_weight_only", q.Float8WeightOnlyConfig())):
        net = Net().eval()
        q.quantize_(net, config)
        yield f"torchao_{name}", unwrap_tensor_subclass(net), [(torch.randn(5, 64),)]


def generate(out, pattern=""):
    report, start = Report(limit=60), time.time()
    try:
        detection()
    except ImportError:
        print("torchvision is not installed: no cases of nms and roi_align")
    for name, function, make, dtypes, forms, accumulates, options in ROWS:
        for dtype in dtypes:
            case = f"aten_{name}.{SHORT[dtype]}"
            if not re.search(pattern, case):
                continue
            seed_all(case)
            call = make(dtype)
            call = call if isinstance(call, tuple) else (call,)
            variants = [("", call, False)]
            if dtype == torch.float32:
                variants += [("nc", tuple(map(strided, call)), False)] if "nc" in forms else []
                variants += [("core", call, True)] if "core" in forms else []
            for suffix, tensors, decompose in variants:
                full = case + (f".{suffix}" if suffix else "")
                report.attempt(full, lambda: write_case(out, full, Call(function), [tensors], kind="op", op=name, source="aten", dtype=dtype, model=False,
                                                        accumulates=accumulates, decompose=decompose, **options))
    try:
        for name, net, calls in torchao_models():
            if re.search(pattern, name):
                report.attempt(name, lambda: write_case(out, name, net, calls, kind="op", op=name, source="torchao", model=True, accumulates=True))
    except ImportError:
        print("torchao is not installed: no cases of its operators")
    report.print(out, verbose=True)
    print(f"{time.time() - start:.0f} s")


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--out", required=True, help="folder for the cases")
    p.add_argument("--ops", default="", help="regular expression on the case's name")
    a = p.parse_args()
    generate(a.out, a.ops)


if __name__ == "__main__":
    main()
