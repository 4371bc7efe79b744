"""What cuBLASLt and cuDNN refuse in a call, a kernel of the payload computes: PTERON_EMULATED_LIBRARIES makes the stand-ins refuse."""
import pytest
import torch
from torch import nn
from torch.nn import functional

from whole import EMULATED, Call, check_calls

pytestmark = pytest.mark.usefixtures("stand_in")


@pytest.fixture(params=["", "plain", "none"])
def libraries(request, monkeypatch):
    """All there, without what follows a sum, without anything."""
    monkeypatch.setenv("PTERON_EMULATED_LIBRARIES", request.param)
    return request.param


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_an_output_padding_of_a_whole_stride(tmp_path, dtype):
    """PyTorch allows it below the dilation; cuDNN takes it for the gradient of no convolution."""
    def up(x, w, b):
        return functional.conv_transpose2d(x, w, b, stride=(3, 2), padding=(1, 2), output_padding=(2, 3), groups=2, dilation=(4, 4))
    args = torch.randn(2, 4, 4, 5), torch.randn(4, 2, 3, 3), torch.randn(4)
    tolerance = {torch.float32: 1e-5, torch.float16: 2e-2, torch.bfloat16: 1e-1}[dtype]
    check_calls(Call(up), [tuple(a.to(dtype) for a in args)], tmp_path, *EMULATED, tolerance=tolerance)


class Convolutions(nn.Module):
    """One to three dims, groups, strides, dilations, both directions, with a residual and relu behind."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.line, self.deep = nn.Conv1d(4, 6, 3, padding=2, dilation=2), nn.Conv3d(2, 4, (2, 3, 1), stride=(1, 2, 1), padding=(1, 1, 0))
        self.plane, self.same = nn.Conv2d(4, 6, 3, stride=2, groups=2), nn.Conv2d(6, 6, 1, bias=False)
        self.up, self.deep_up = nn.ConvTranspose2d(6, 4, 3, stride=2, output_padding=1, groups=2), nn.ConvTranspose3d(4, 2, 2, stride=2)

    def forward(self, line, plane, deep):
        h = self.plane(plane)
        return self.line(line), functional.relu(self.same(h) + h), self.up(h), self.deep_up(self.deep(deep))


def test_convolutions(tmp_path, libraries):
    check_calls(Convolutions(), [(torch.randn(2, 4, 9), torch.randn(2, 4, 11, 8), torch.randn(1, 2, 3, 5, 4))], tmp_path, *EMULATED)


class Products(nn.Module):
    """Rows, batches, a bias, a residual and an activation; a weight that few rows meet, and a gate."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.wide, self.up, self.gate = nn.Linear(32, 48), nn.Linear(64, 96, bias=False), nn.Linear(64, 96, bias=False)

    def forward(self, x, y, row):
        h = torch.relu(self.wide(x))
        gated = functional.silu(self.gate(row)) * self.up(row)
        return functional.gelu(h, approximate="tanh") + h, x @ y, torch.addmm(x[0, :, :7], x[0], y[0], alpha=0.5, beta=2.0), gated, self.up(row) + row.repeat(1, 2)[:, :96]


def test_products(tmp_path, libraries):
    check_calls(Products(), [(torch.randn(2, 9, 32), torch.randn(2, 32, 7), torch.randn(1, 64))], tmp_path, *EMULATED)


def test_products_of_16_bits(tmp_path, libraries):
    check_calls(Products().bfloat16(), [tuple(t.bfloat16() for t in (torch.randn(2, 9, 32), torch.randn(2, 32, 7), torch.randn(1, 64)))], tmp_path, *EMULATED, tolerance=3e-2)


def test_rows_of_a_weight_that_starts_anywhere(tmp_path):
    """A weight that is a part of an input: its rows begin at no multiple of 16 bytes."""
    def part(x, flat):
        return functional.linear(x, flat[1:].view(8, 32))
    check_calls(Call(part), [(torch.randn(2, 32), torch.randn(257))], tmp_path, *EMULATED)


def test_operands_that_overlap(tmp_path):
    """Windows of a line share elements: no matrix of the library has such rows."""
    def windows(x, w):
        return x.unfold(0, 8, 2) @ w
    check_calls(Call(windows), [(torch.randn(40), torch.randn(8, 5))], tmp_path, *EMULATED)


def test_sizes_that_become_zero(tmp_path):
    """A depth, the keys of attention and an image of size 0 are known in the call only."""
    def empty(x, y, q, k):
        return x @ y, functional.scaled_dot_product_attention(q, k, k)
    depth, keys = torch.export.Dim("depth", min=0, max=64), torch.export.Dim("keys", min=0, max=64)
    calls = [(torch.randn(3, n), torch.randn(n, 5), torch.randn(1, 2, 4, 8), torch.randn(1, 2, m, 8)) for n, m in ((6, 9), (0, 9), (6, 0))]
    check_calls(Call(empty), calls, tmp_path, *EMULATED, dynamic_shapes={"args": ({1: depth}, {0: depth}, None, {2: keys})})


def test_more_heads_and_batches_than_a_grid_has(tmp_path):
    def attend(q, m):
        return functional.scaled_dot_product_attention(q, q, q, attn_mask=m), functional.scaled_dot_product_attention(q[:, None], q[:, None], q[:, None])
    torch.manual_seed(0)
    q = torch.randn(65600, 2, 4)
    check_calls(Call(attend), [(q, torch.randn(65600, 2, 2))], tmp_path, *EMULATED)
