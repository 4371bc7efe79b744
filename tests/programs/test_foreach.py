"""torch._foreach_*: an operator on every tensor of a list, functional and in place, also where tensors of the list share memory."""
import pytest
import torch
from torch import nn

from whole import Call, check_calls

torch.manual_seed(0)
A, B, C = torch.randn(3, 4), torch.randn(5), torch.rand(2, 2) + 0.5
P, Q, R = torch.rand(3, 4) + 0.5, torch.rand(5) + 0.5, torch.rand(2, 2) + 0.5
UNARY = ("abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac", "lgamma", "log", "log10", "log1p", "log2", "neg", "reciprocal",
         "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc")
BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "clamp_max", "clamp_min", "pow")


def of_two(name):
    function = getattr(torch, f"_foreach_{name}")

    def run(a, b, p, q):
        return tuple(function([p, q], [a, b])) + tuple(function([p, q], 1.5)) + tuple(function([p, q], [2.0, 0.5]))
    return run


CASES = {name: (of_two(name), (A, B, P, Q)) for name in BINARY}
CASES |= {
    "a number each": (lambda p, q: torch._foreach_mul([p, q], [2.0, 0.5]), (P, Q)),
    "one tensor for all": (lambda p, q, c: torch._foreach_mul([p, q], c.sum()) + torch._foreach_add([p, q], c.sum(), alpha=2), (P, Q, C)),
    "factors": (lambda a, b: torch._foreach_add([a, b], [a, b], alpha=3) + torch._foreach_sub([a, b], [a, b], alpha=0.5), (A, B)),
    "integers": (lambda a, b: torch._foreach_add([a, b], 2) + torch._foreach_div([a, b], 2) + torch._foreach_mul([a, b], 1.5), (torch.arange(4), torch.arange(3, dtype=torch.int16))),
    "three": (lambda a, b, p, q: torch._foreach_addcmul([a, b], [p, q], [a, b], value=2) + torch._foreach_addcdiv([a, b], [a, b], [p, q], [0.5, 2.0])
              + torch._foreach_lerp([a, b], [p, q], 0.3) + torch._foreach_lerp([a, b], [p, q], [p, q]), (A, B, P, Q)),
    "norms": (lambda a, b: torch._foreach_norm([a, b]) + torch._foreach_norm([a, b], 1) + torch._foreach_max([a, b]), (A, B)),
    "number to powers": (lambda p, q: torch._foreach_pow(2.0, [p, q]), (P, Q)),
}


@pytest.mark.parametrize("name", CASES)
def test_lists(name, tmp_path):
    fn, args = CASES[name]
    check_calls(Call(lambda *x: tuple(fn(*x))), [args], tmp_path)


def test_unary(tmp_path):
    x, y = torch.rand(3, 4) * 0.9 + 0.05, torch.rand(5) * 0.9 + 0.05
    check_calls(Call(lambda a, b: tuple(t for name in UNARY for t in getattr(torch, f"_foreach_{name}")([a, b]))), [(x, y)], tmp_path)


def in_place(a, b, p, q):
    x, y = a.clone(), b.clone()
    torch._foreach_add_([x, y], 1)
    torch._foreach_mul_([x, y], [p, q])
    torch._foreach_addcdiv_([x, y], [p, q], [p, q], value=2)
    torch._foreach_sqrt_([p.clone(), x.abs_()])
    torch._foreach_clamp_max_([y], 2.0)
    z = torch.empty_like(y)
    torch._foreach_copy_([z], [y])
    torch._foreach_zero_([y])
    return x, y, z


def shared(a):
    """Two names of one row, and a row of it: sums add up."""
    x = a.clone()
    torch._foreach_add_([x, x[1:], x], [a, a[1:], a[:1]])
    torch._foreach_mul_([x.t(), x[0]], [2.0, 3.0])
    return x, x[0] * 1


@pytest.mark.parametrize("fn,args", ((in_place, (A, B, P, Q)), (shared, (A,))))
def test_in_place(fn, args, tmp_path):
    check_calls(Call(fn), [args], tmp_path)


class Average(nn.Module):
    """Buffers that move towards what comes in."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3, 4))
        self.register_buffer("square", torch.zeros(3, 4))

    def forward(self, x):
        torch._foreach_lerp_([self.mean, self.square], [x, x * x], 0.25)
        return self.mean + 0, self.square - self.mean


def test_buffers(tmp_path):
    check_calls(Average(), [(A,), (A * 2,), (A - 1,)], tmp_path)
