"""Composites inside an autocast region: PyTorch casts the operators that they end in, not the composites themselves."""
import pytest
import torch
from torch import nn

from whole import compile_model, eager, pteron, run, save

torch.manual_seed(0)
A, B, C = torch.randn(4, 6), torch.randn(6), torch.randn(4)
LOW = torch.bfloat16


class Region(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, *args):
        with torch.autocast("cpu", LOW):
            return self.fn(*args)


def check(module, args, folder, tolerance, **more):
    program, _ = compile_model(module, args, folder, **more)
    for a, b in zip(run(program, [args], folder)[0], eager(module, [args])[0], strict=True):
        bound = tolerance if b.dtype == torch.float32 else 2e-2
        torch.testing.assert_close(a, b, rtol=bound, atol=bound)


CASES = {
    "einsum that only arranges": (lambda a: (torch.einsum("ij->ji", a), torch.einsum("ij->i", a)), (A,)),
    "einsum that multiplies": (lambda a, b, c: (torch.einsum("i,j->ij", c, b), torch.einsum("ij,j->ij", a, b), torch.einsum("ij,ij->ij", a, a), torch.einsum("ij,k->i", a, b)),
                               (A, B, C)),
    "einsum that contracts": (lambda a, b, c: (torch.einsum("ij,kj->ik", a, a), torch.einsum("ij,ij->", a, a), torch.einsum("ij,j,i->", a, b, c), torch.einsum("i,j,ij->ij", c, b, a)),
                              (A, B, C)),
    "einsum of two dtypes": (lambda a, b: (torch.einsum("ij,j->ij", a.to(LOW), b), torch.einsum("ij,kj->ik", a, a.to(LOW)), torch.einsum("ij,jk,k->i", a @ a.t(), a, b)), (A, B)),
    "tensordot": (lambda a: (torch.tensordot(a, a, 2), torch.tensordot(a, a, 0), torch.tensordot(a, a, ([1], [1])), torch.inner(a, a), torch.inner(a[0], a[0])), (A,)),
    "matrix_power": (lambda a: tuple(torch.linalg.matrix_power(a[:, :4], p) for p in (0, 1, 3)), (A,)),
    "vectors": (lambda a, b: (a.mv(b), b.dot(b), torch.outer(b, b), torch.kron(a, a), torch.addmv(a[:, 0], a, b)), (A, B)),
}


@pytest.mark.parametrize("strict", (False, True))
@pytest.mark.parametrize("name", CASES)
def test_composites(name, strict, tmp_path):
    fn, args = CASES[name]
    if strict and "two dtypes" in name:
        pytest.skip("torch.export cannot trace it strictly")
    check(Region(fn), args, tmp_path, 1e-5, strict=strict)


@pytest.mark.parametrize("layer,sizes", ((nn.GRUCell(6, 5), ((2, 6), (2, 5))), (nn.LSTMCell(6, 5), ((2, 6),)), (nn.RNNCell(6, 5), ((2, 6),))))
def test_cells(layer, sizes, tmp_path):
    check(Region(layer), tuple(torch.randn(s) for s in sizes), tmp_path, 1e-2)


def flat(layer):
    """Results of a recurrent layer in one tuple."""
    class Flat(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, *args):
            out, last = self.layer(*args)
            return (out, *last) if isinstance(last, tuple) else (out, last)
    return Flat()


LAYERS = {
    "gru": flat(nn.GRU(6, 5)), "two gru layers both ways": flat(nn.GRU(6, 5, 2, bidirectional=True)), "rnn": flat(nn.RNN(6, 5, 2)), "rnn of relu": flat(nn.RNN(6, 5, nonlinearity="relu", bias=False)),
    "projected lstm": flat(nn.LSTM(6, 5, proj_size=3)),
}


@pytest.mark.parametrize("strict", (False, True))
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name, strict, tmp_path):
    check(Region(LAYERS[name]), (torch.randn(7, 2, 6),), tmp_path, 1e-2, strict=strict)


@pytest.mark.parametrize("strict", (False, True))
@pytest.mark.parametrize("bias", (False, True))
def test_bilinear(bias, strict, tmp_path):
    check(Region(nn.Bilinear(6, 6, 3, bias=bias)), (A, A * 0.5), tmp_path, 1e-2, strict=strict)


def test_lstm_is_refused(tmp_path):
    """What PyTorch runs on some processors only, with rounding of oneDNN's own."""
    save(Region(flat(nn.LSTM(6, 5))), (torch.randn(7, 2, 6),), tmp_path / "m.pt2")
    assert "leaves it to oneDNN" in pteron("compile", tmp_path / "m.pt2", "-o", tmp_path / "m.pte", expect=4).stderr
