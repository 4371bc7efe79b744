"""Files of the official exporter run here with equal outputs: delegates aside, every feature that its 1.5.1 emits."""
import json

import pytest
import torch
from executorch.exir import ExecutorchBackendConfig, to_edge
from torch import nn
from torch.export import Dim, export

from conftest import equal, pteron, run_here


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x):
        return self.body(x).softmax(-1)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x):
        self.total.add_(x)
        return self.total * 2


def write(path, programs, **config):
    manager = to_edge(programs).to_executorch(ExecutorchBackendConfig(**config))
    path.write_bytes(manager.buffer)
    return manager


def test_static(tmp_path):
    torch.manual_seed(1)
    net, x = Net().eval(), torch.randn(4, 6)
    write(tmp_path / "m.pte", export(net, (x,)))
    equal(run_here(tmp_path / "m.pte", [(x,)], tmp_path)[0], [net(x).detach()])


def test_constant_alignment_of_64(tmp_path):
    torch.manual_seed(2)
    net, x = Net().eval(), torch.randn(2, 6)
    write(tmp_path / "m.pte", export(net, (x,)), constant_tensor_alignment=64)
    equal(run_here(tmp_path / "m.pte", [(x,)], tmp_path)[0], [net(x).detach()])


def test_dynamic_batch(tmp_path):
    torch.manual_seed(3)
    net = Net().eval()
    calls = [(torch.randn(n, 6),) for n in (3, 1, 8)]
    write(tmp_path / "m.pte", export(net, calls[0], dynamic_shapes=({0: Dim("n", min=1, max=8)},)))
    for got, call in zip(run_here(tmp_path / "m.pte", calls, tmp_path), calls):
        equal(got, [net(*call).detach()])


def test_external_constants(tmp_path):
    torch.manual_seed(4)
    net, x = Net().eval(), torch.randn(4, 6)
    manager = write(tmp_path / "m.pte", export(net, (x,)), external_constants=True)
    manager.write_tensor_data_to_file(str(tmp_path))
    data, = tmp_path.glob("*.ptd")
    equal(run_here(tmp_path / "m.pte", [(x,)], tmp_path, "--data", data)[0], [net(x).detach()])
    report = json.loads(pteron("inspect", data, "--json").stdout)
    assert report["kind"] == "ptd" and sorted(e["size_bytes"] for e in report["entries"]) == sorted(4 * p.numel() for p in net.parameters())
    assert f"{len(report['entries'])} entries, no manifest" in pteron("inspect", data).stdout


def test_external_constants_missing(tmp_path):
    from conftest import save
    x = torch.randn(4, 6)
    write(tmp_path / "m.pte", export(Net().eval(), (x,)), external_constants=True)
    save(tmp_path / "in.safetensors", [x])
    done = pteron("run", tmp_path / "m.pte", "--inputs", tmp_path / "in.safetensors", expect=3)
    assert "weight" in done.stderr or "data" in done.stderr


def test_several_methods(tmp_path):
    torch.manual_seed(5)
    net, x = Net().eval(), torch.randn(4, 6)
    other = nn.Linear(6, 2)
    write(tmp_path / "m.pte", {"first": export(net, (x,)), "second": export(other, (x,))})
    equal(run_here(tmp_path / "m.pte", [(x,)], tmp_path, "--method", "second")[0], [other(x).detach()])
    equal(run_here(tmp_path / "m.pte", [(x,)], tmp_path, "--method", "first")[0], [net(x).detach()])


def test_state_survives_calls(tmp_path):
    x = torch.tensor([1.0, 2.0, 3.0])
    write(tmp_path / "m.pte", export(Counter(), (x,)))
    got = run_here(tmp_path / "m.pte", [(x,), (x,)], tmp_path)
    equal(got[0], [x * 2])
    equal(got[1], [x * 4])


@pytest.mark.parametrize("flag", [True, False])
def test_cond(tmp_path, flag):
    class Branch(nn.Module):
        def forward(self, p, x):
            return torch.cond(p, lambda x: x.sin() + 1, lambda x: x * 2, (x,))
    x = torch.randn(4)
    write(tmp_path / "m.pte", export(Branch(), (torch.tensor(True), x)))
    equal(run_here(tmp_path / "m.pte", [(torch.tensor(flag), x)], tmp_path)[0], [x.sin() + 1 if flag else x * 2])


def test_nonzero_rows_are_in_order(tmp_path):
    class Indices(nn.Module):
        def forward(self, x):
            return x.nonzero()
    x = torch.tensor([[0.0, 1.0], [2.0, 0.0], [0.0, 3.0]])
    write(tmp_path / "m.pte", export(Indices(), (x,)))
    equal(run_here(tmp_path / "m.pte", [(x,)], tmp_path)[0], [x.nonzero()])


def test_channels_last_input_takes_contiguous_data(tmp_path):
    torch.manual_seed(6)
    net = nn.Conv2d(3, 4, 3).eval().to(memory_format=torch.channels_last)
    x = torch.randn(1, 3, 6, 6).contiguous(memory_format=torch.channels_last)
    write(tmp_path / "m.pte", export(net, (x,)))
    equal(run_here(tmp_path / "m.pte", [(x,)], tmp_path)[0], [net(x).detach()], 1e-4)
