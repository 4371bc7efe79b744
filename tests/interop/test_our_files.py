"""Programs written with --profile executorch load in the official runtime with outputs equal to PyTorch's and to our runtime's."""
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim, export

from conftest import equal, pteron, run_here, run_official


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)
        self.norm.running_mean.normal_()

    def forward(self, x):
        y = F.relu(self.norm(self.conv(x)))
        return self.head(y.mean((2, 3))), y[:, ::2, 1:]


class Steps(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.tensor([3.0]))

    def forward(self, x):
        self.count += 1
        return x * self.count


def compiled(module, args, tmp_path, **more):
    torch.export.save(export(module.eval(), args, **more), str(tmp_path / "m.pt2"))
    pteron("compile", tmp_path / "m.pt2", "-o", tmp_path / "m.pte", "--profile", "executorch")
    return tmp_path / "m.pte"


CASES = {
    "convolution": (Block(), (torch.randn(2, 3, 8, 8),)),
    "attention": (nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), (torch.randn(2, 5, 16),)),
    "embedding": (nn.Embedding(20, 6), (torch.tensor([[1, 4, 19]]),)),
    "layer_norm": (nn.Sequential(nn.LayerNorm(6), nn.GELU()), (torch.randn(3, 6),)),
}


@pytest.mark.parametrize("name", CASES)
def test_equal_outputs(tmp_path, name):
    torch.manual_seed(0)
    module, args = CASES[name]
    with torch.no_grad():
        want = module.eval()(*args)
    want = list(want) if isinstance(want, tuple) else [want]
    program = compiled(module, args, tmp_path)
    equal(run_official(program, [args])[0], want, 1e-4)
    equal(run_here(program, [args], tmp_path)[0], want, 1e-4)


def test_dynamic_batch(tmp_path):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 6), nn.Tanh())
    calls = [(torch.randn(n, 4),) for n in (2, 7, 1)]
    program = compiled(module, calls[0], tmp_path, dynamic_shapes=({0: Dim("n", min=1, max=8)},))
    with torch.no_grad():
        for call, official, ours in zip(calls, run_official(program, calls), run_here(program, calls, tmp_path)):
            equal(official, [module(*call)])
            equal(ours, [module(*call)])


def test_initial_state_is_kept(tmp_path):
    x = torch.tensor([1.0, 10.0])
    program = compiled(Steps(), (x,), tmp_path)
    for got in (run_official(program, [(x,), (x,)]), run_here(program, [(x,), (x,)], tmp_path)):
        equal(got[0], [x * 4])
        equal(got[1], [x * 5])


def test_inputs_of_another_layout_are_told(tmp_path):
    """The official runtime reads bytes as they lie: who exported with channels-last inputs hears of it, for that profile only."""
    class Net(torch.nn.Module):
        def forward(self, x):
            return x * 2

    x = torch.randn(2, 3, 4, 5)
    for example, told in ((x, False), (x.to(memory_format=torch.channels_last), True)):
        torch.export.save(torch.export.export(Net(), (example,)), str(tmp_path / "m.pt2"))
        said = pteron("compile", tmp_path / "m.pt2", "-o", tmp_path / "m.pte", "--profile", "executorch").stderr
        assert ("input 'x' was exported in another layout" in said) == told, said
        assert "another layout" not in pteron("compile", tmp_path / "m.pt2", "-o", tmp_path / "m.pte").stderr


def test_extremes_of_one_number(tmp_path):
    class Net(nn.Module):
        def forward(self, x):
            return x.amax(0), x.amin(-1, keepdim=True), x.log_softmax(0), x.logsumexp(0)

    x = torch.tensor(2.5)
    program = compiled(Net(), (x,), tmp_path)
    equal(run_official(program, [(x,)])[0], list(Net()(x)))


PRODUCTS = {
    "mm": (lambda a, b: a @ b, ("m", "k"), ("k", "n")),
    "vector": (lambda a, b: a @ b, ("m", "k"), ("k",)),
    "bmm": (lambda a, b: a @ b, ("b", "m", "k"), ("b", "k", "n")),
    "whole numbers": (lambda a, b: a.int() @ b.int(), ("b", "m", "k"), ("b", "k", "n")),
    "addmm": (lambda a, b: torch.addmm(torch.ones(5), a, b, beta=2), ("m", "k"), ("k", "n")),
    "baddbmm": (lambda a, b: torch.baddbmm(torch.ones(2, 3, 5), a, b, beta=2), ("b", "m", "k"), ("b", "k", "n")),
    "linear": (lambda a, b: F.linear(a, b.mT), ("b", "m", "k"), ("k", "n")),
    "attention": (lambda q, k: F.scaled_dot_product_attention(q, k, k), ("b", "m", "n"), ("b", "k", "n")),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_over_nothing(tmp_path, name):
    """The official mm and bmm leave their result as it was if the inner dim is empty: a call with elements comes first."""
    call, *dims = PRODUCTS[name]

    class Net(nn.Module):
        def forward(self, a, b):
            return call(a, b)

    torch.manual_seed(0)
    sizes = {"b": 2, "m": 3, "n": 5}
    calls = [tuple(torch.randn([{**sizes, "k": k}[d] for d in operand]) for operand in dims) for k in (4, 0, 2)]
    k = Dim("k", min=0, max=8)
    program = compiled(Net(), calls[0], tmp_path, dynamic_shapes=tuple({d: k for d, dim in enumerate(operand) if dim == "k"} or None for operand in dims))
    for args, official, ours in zip(calls, run_official(program, calls), run_here(program, calls, tmp_path)):
        equal(official, [Net()(*args)])
        equal(ours, [Net()(*args)])


def test_product_over_nothing_is_known_at_compile_time(tmp_path):
    class Net(nn.Module):
        def forward(self, x):
            none = x[:, :0]
            return none @ none.mT

    program = compiled(Net(), (torch.randn(3, 4),), tmp_path)
    assert "aten::mm" not in pteron("inspect", program).stdout
    equal(run_official(program, [(torch.randn(3, 4),)])[0], [torch.zeros(3, 3)])


OVER_ROWS = {
    "amax": (lambda x: x.amax(1), ("n", 4)),
    "amin, kept": (lambda x: x.amin((0, 1), keepdim=True), (2, 4, "n")),
    "amax of bytes": (lambda x: (x * 20).to(torch.int8).amax(1), ("n", 4)),
    "amin of bools": (lambda x: (x > 0).amin(1), ("n", 4)),
    "log_softmax": (lambda x: x.log_softmax(1), (3, "n")),
    "log_softmax beside": (lambda x: x.log_softmax(1), (3, 4, "n")),
    "log_softmax of doubles": (lambda x: x.double().log_softmax(1), (3, "n")),
    "logsumexp": (lambda x: x.logsumexp(1), (3, "n")),
    "logsumexp beside": (lambda x: x.logsumexp(1), ("n", 4)),
}


@pytest.mark.parametrize("name", OVER_ROWS)
def test_extremes_without_elements(tmp_path, name):
    """The official amax, amin and log softmax end the process if a call has no elements."""
    call, dims = OVER_ROWS[name]

    class Net(nn.Module):
        def forward(self, x):
            return call(x)

    torch.manual_seed(0)
    calls = [(torch.randn([n if d == "n" else d for d in dims]),) for n in (3, 0, 5, 1)]
    program = compiled(Net(), calls[0], tmp_path, dynamic_shapes=({dims.index("n"): Dim("n", min=0, max=8)},))
    for args, official, ours in zip(calls, run_official(program, calls), run_here(program, calls, tmp_path)):
        equal(official, [Net()(*args)])
        equal(ours, [Net()(*args)])


BYTES, SIGNED = torch.tensor([[3, 22, 61, 245]], dtype=torch.uint8), torch.tensor([[3, 22, 61, -11]], dtype=torch.int8)
NARROW = {
    "clamp": lambda u, s: u.clamp(-2, 4),
    "clamp_min": lambda u, s: u.clamp(min=-1),
    "clamp of tensors": lambda u, s: u.clamp(torch.tensor(-250), torch.tensor(100)),
    "fmod": lambda u, s: (torch.fmod(u, -2), torch.fmod(s, 255)),
    "fmod of tensors": lambda u, s: torch.fmod(u, torch.tensor(-2)),
    "alpha": lambda u, s: (torch.add(u, u, alpha=-2), torch.sub(u, u, alpha=-3)),
    "maximum": lambda u, s: (torch.maximum(u, torch.tensor(-2)), torch.maximum(torch.tensor(255), s)),
    "minimum": lambda u, s: torch.minimum(u, torch.tensor(-250)),
    "compare": lambda u, s: (u < torch.tensor(-2), s == torch.tensor(245), torch.tensor(250) >= u),
    "divide": lambda u, s: (torch.div(u, torch.tensor(-200), rounding_mode="trunc"), torch.floor_divide(s, torch.tensor(255))),
    "logical": lambda u, s: (torch.logical_and(u, torch.tensor(512)), torch.logical_or(u * 0, torch.tensor(512))),
    "power": lambda u, s: torch.pow(u, torch.tensor(128)),
    "addcmul": lambda u, s: torch.addcmul(s, s, s, value=2.5),
}


@pytest.mark.parametrize("name", NARROW)
def test_numbers_that_the_dtype_cannot_hold(tmp_path, name):
    """ATen wraps them and gives a 0-d operand the dtype of the other one; the official kernels refuse them or compute in the wider dtype."""
    class Net(nn.Module):
        def forward(self, u, s):
            return NARROW[name](u, s)

    want = Net()(BYTES, SIGNED)
    program = compiled(Net(), (BYTES, SIGNED), tmp_path)
    for got in (run_official(program, [(BYTES, SIGNED)]), run_here(program, [(BYTES, SIGNED)], tmp_path)):
        equal(got[0], list(want) if isinstance(want, tuple) else [want])
