"""Tensors read as another dtype; matrices without elements; dtypes and operators that are refused when compiling, never first in a run."""
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from whole import check_calls, compile_model, pteron, run, save

PROFILES = [(), ("--backend", "portable")]


class Call(nn.Module):
    def __init__(self, call):
        super().__init__()
        self.call = call

    def forward(self, *args):
        return self.call(*args)


@pytest.mark.parametrize("words", PROFILES)
@pytest.mark.parametrize("order", [1, -1, 2, float("inf"), "fro", "nuc"])
@pytest.mark.parametrize("size", [(3, 0), (0, 0), (2, 0, 3), (2, 3, 3)])
def test_condition_numbers(tmp_path, order, size, words):
    if isinstance(order, str) and size[-1] != size[-2]:
        return
    torch.manual_seed(0)
    check_calls(Call(lambda x: torch.linalg.cond(x, order)), [(torch.randn(size),)], tmp_path, *words)


@pytest.mark.parametrize("order", [1, "fro"])
def test_condition_number_of_singular_matrices(tmp_path, order):
    x = torch.stack([torch.zeros(2, 2), torch.tensor([[1.0, 2], [2, 4]]), torch.eye(2)])
    program, _ = compile_model(Call(lambda x: torch.linalg.cond(x, order)), (x,), tmp_path)
    found = run(program, [(x,)], tmp_path)[0][0]
    torch.testing.assert_close(found, torch.linalg.cond(x, order))


@pytest.mark.parametrize("call", [lambda x: torch.linalg.pinv(x, hermitian=True), lambda x: torch.linalg.matrix_rank(x, hermitian=True)])
def test_hermitian_matrix_of_nothing(tmp_path, call):
    check_calls(Call(call), [(torch.zeros(2, 0, 0),)], tmp_path)


def bits_written(x):
    y = x.clone()
    bits = y.view(torch.int32)
    bits.add_(1)
    small = y.view(torch.uint8)
    small[0, :4] = 0
    return y, bits, small, y.view(torch.int16), y.sum(1)


BITS = {
    "same size": lambda x: (x.view(torch.int32), x.clone().view(torch.int32) + 1, x.t().view(torch.int32)),
    "other sizes": lambda x: (x.view(torch.uint8), x.view(torch.int16) + 1, x.view(torch.int64), x.view(torch.float64).view(torch.int32)),
    "written": bits_written,
    "input written": lambda x: (x.view(torch.int32)[0].zero_(), x + 1)[1],
    "bools": lambda x: (x > 0).view(torch.uint8) + (x > 0).to(torch.uint8).view(torch.bool),
}


@pytest.mark.parametrize("words", PROFILES)
@pytest.mark.parametrize("name", BITS)
def test_views_as_another_dtype(tmp_path, name, words):
    torch.manual_seed(0)
    check_calls(Call(BITS[name]), [(torch.randn(4, 6),), (torch.randn(4, 6),)], tmp_path, *words)


class Buffers(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("b", torch.arange(4.0))
        self.register_buffer("bits", torch.zeros(4, dtype=torch.int32))

    def forward(self, x):
        self.bits.copy_((x + self.b).view(torch.int32))
        self.b.view(torch.int32)[0] = self.bits[1]
        return self.bits.view(torch.float32) * 2, self.b


@pytest.mark.parametrize("words", PROFILES)
def test_buffers_written_as_another_dtype(tmp_path, words):
    torch.manual_seed(0)
    check_calls(Buffers(), [(torch.randn(4),), (torch.randn(4),)], tmp_path, *words)
