"""Weights in data files, both ways: the official runtime takes our .ptd, ours takes the official one; several methods, constant methods and state."""
import pytest
import torch
from torch import nn
from torch.export import Dim, export

from conftest import equal, pteron, run_here


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 40), nn.LayerNorm(40), nn.Linear(40, 3)
        self.register_buffer("seen", torch.tensor([2.0]))

    def forward(self, x):
        self.seen += 1
        return self.last(torch.tanh(self.norm(self.first(x)))) * self.seen


class Head(nn.Module):
    """Shares two weights with the net."""

    def __init__(self, net):
        super().__init__()
        self.first, self.last = net.first, net.last

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))


def official(program, data, method, calls):
    from executorch.extension.pybindings.portable_lib import _load_for_executorch
    module = _load_for_executorch(str(program), str(data) if data is not None else None)
    return [[v.clone() for v in module.run_method(method, call)] for call in calls]


@pytest.fixture
def pair(tmp_path):
    torch.manual_seed(0)
    net = Net().eval()
    torch.export.save(export(net, (torch.randn(2, 6),), dynamic_shapes=({0: Dim("n", min=1, max=4)},)), str(tmp_path / "net.pt2"))
    torch.export.save(export(Head(net).eval(), (torch.randn(2, 6),)), str(tmp_path / "head.pt2"))
    return net


def want(net, calls, method):
    net.seen.fill_(2.0)
    with torch.no_grad():
        return [[(net if method == "net" else Head(net))(*call)] for call in calls]


@pytest.mark.parametrize("profile", [["--profile", "executorch"], ["--backend", "portable"], ["--backend", "cpu"]], ids=["executorch", "portable", "cpu"])
def test_our_files(tmp_path, pair, profile):
    out = tmp_path / "both.pte"
    pteron("compile", "--method", f"net={tmp_path}/net.pt2", "--method", f"head={tmp_path}/head.pt2", "--constant", "get_size=40", "-o", out, "--external-weights=shared_1", *profile)
    data = tmp_path / "shared_1.ptd"
    floats = sum(p.numel() for p in pair.parameters())
    assert 4 * floats <= data.stat().st_size < 4 * floats + 14000  # shared weights are stored once; entries start at multiples of 128
    for method, calls in (("net", [(torch.randn(n, 6),) for n in (2, 4, 1)]), ("head", [(torch.randn(2, 6),)] * 2)):
        expected = want(pair, calls, method)
        for more in ([], ["--data", data, "--verify-data"]):
            for got, value in zip(run_here(out, calls, tmp_path, "--method", method, *more), expected):
                equal(got, value)
        if profile[0] == "--profile":
            for got, value in zip(official(out, data, method, calls), expected):
                equal(got, value)
    if profile[0] == "--profile":
        from executorch.extension.pybindings.portable_lib import _load_for_executorch
        assert _load_for_executorch(str(out), str(data)).run_method("get_size", ()) == [40]


def test_names_are_the_models(tmp_path, pair):
    pteron("compile", tmp_path / "head.pt2", "-o", tmp_path / "h.pte", "--external-weights", "--profile", "executorch")
    listed = pteron("inspect", tmp_path / "h.ptd").stdout
    for name, p in Head(pair).named_parameters():
        assert f"  {name}: float32 [{','.join(map(str, p.shape))}]" in listed or name.endswith("weight"), listed


def test_the_official_runtime_misses_them(tmp_path, pair):
    pteron("compile", tmp_path / "head.pt2", "-o", tmp_path / "h.pte", "--external-weights", "--profile", "executorch")
    with pytest.raises(RuntimeError):
        official(tmp_path / "h.pte", None, "forward", [(torch.randn(2, 6),)])


def test_official_data_is_not_replaced(tmp_path, pair):
    from executorch.exir import ExecutorchBackendConfig, to_edge
    made = to_edge(export(Head(pair).eval(), (torch.randn(2, 6),))).to_executorch(ExecutorchBackendConfig(external_constants=True))
    made.write_tensor_data_to_file(str(tmp_path))
    name = "_default_external_constant"
    before = (tmp_path / f"{name}.ptd").read_bytes()
    done = pteron("compile", tmp_path / "head.pt2", "-o", tmp_path / "h.pte", f"--external-weights={name}", expect=2)
    assert "no program in its folder records" in done.stderr and (tmp_path / f"{name}.ptd").read_bytes() == before
    # An official program runs with its own data, and not with ours.
    made.save(str(tmp_path / "o.pte"))
    calls = [(torch.randn(2, 6),)]
    for got, value in zip(run_here(tmp_path / "o.pte", calls, tmp_path, "--data", tmp_path / f"{name}.ptd"), want(pair, calls, "head")):
        equal(got, value)
    pteron("compile", tmp_path / "net.pt2", "-o", tmp_path / "n.pte", "--external-weights", "--backend", "cpu")
    assert "is in none of the 1 data files" in pteron("run", tmp_path / "o.pte", "--inputs", tmp_path / "in_0.safetensors", "--data", tmp_path / "n.ptd", expect=3).stderr
