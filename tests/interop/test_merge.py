"""pteron merge on files of the official tools: the merged file runs here and in the official runtime like its parts."""
import pytest
import torch
from executorch.exir import ExecutorchBackendConfig, to_edge, to_edge_transform_and_lower
from torch import nn
from torch.export import export

from conftest import equal, pteron, run_here, run_official


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a, self.b = nn.Linear(6, width), nn.Linear(width, 3)

    def forward(self, x):
        return torch.relu(self.a(x)), self.b(torch.tanh(self.a(x)))


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x):
        self.total.add_(x)
        return self.total * 2


def write(path, module, example, **options):
    manager = to_edge(export(module.eval(), (example,))).to_executorch(ExecutorchBackendConfig(**options))
    path.write_bytes(manager.buffer)
    return manager


def test_official_and_ours(tmp_path):
    torch.manual_seed(0)
    one, two, x = Net(8), Net(16), torch.randn(4, 6)
    write(tmp_path / "one.pte", one, x)
    torch.export.save(export(two.eval(), (x,)), tmp_path / "two.pt2")
    pteron("compile", tmp_path / "two.pt2", "-o", tmp_path / "two.pte", "--profile", "executorch")
    write(tmp_path / "count.pte", Counter(), torch.ones(3))
    pteron("merge", tmp_path / "one.pte", tmp_path / "two.pte", tmp_path / "count.pte", "-o", tmp_path / "all.pte", "--rename", "one:forward=first", "--rename", "two:forward=second",
           "--rename", "count:forward=count")
    for method, net in (("first", one), ("second", two)):
        want = [o.detach() for o in net(x)]
        equal(run_here(tmp_path / "all.pte", [(x,)], tmp_path, "--method", method)[0], want)
        equal(run_official(tmp_path / "all.pte", [(x,)], method)[0], want)
    ones = torch.ones(3)
    for run in (lambda: run_here(tmp_path / "all.pte", [(ones,), (ones,)], tmp_path, "--method", "count"), lambda: run_official(tmp_path / "all.pte", [(ones,), (ones,)], "count")):
        got = run()
        equal(got[0], [ones * 2])
        equal(got[1], [ones * 4])


def test_weights_of_one_model_are_shared(tmp_path):
    torch.manual_seed(1)
    net, x = nn.Linear(64, 64), torch.randn(2, 64)
    write(tmp_path / "a.pte", net, x)
    write(tmp_path / "b.pte", nn.Sequential(net, nn.ReLU()), x)
    pteron("merge", tmp_path / "a.pte", tmp_path / "b.pte", "-o", tmp_path / "c.pte", "--rename", "a:forward=plain")
    assert (tmp_path / "c.pte").stat().st_size < (tmp_path / "a.pte").stat().st_size + 4000
    equal(run_official(tmp_path / "c.pte", [(x,)], "plain")[0], [net(x).detach()])
    equal(run_official(tmp_path / "c.pte", [(x,)])[0], [net(x).relu().detach()])


def test_external_constants(tmp_path):
    """Official data files have no manifest: they are named, and one with ours comes out."""
    torch.manual_seed(2)
    net, x = Net(8), torch.randn(4, 6)
    manager = write(tmp_path / "m.pte", net, x, external_constants=True)
    manager.write_tensor_data_to_file(str(tmp_path))
    data, = tmp_path.glob("*.ptd")
    said = pteron("merge", tmp_path / "m.pte", "-o", tmp_path / "c.pte", expect=2).stderr
    assert "is in none of the data files; name the one that has it (--data FILE)" in said
    pteron("merge", tmp_path / "m.pte", "--data", data, "-o", tmp_path / "c.pte", "--rename", "forward=go")
    want = [o.detach() for o in net(x)]
    equal(run_here(tmp_path / "c.pte", [(x,)], tmp_path, "--method", "go")[0], want)
    from executorch.runtime import Runtime
    loaded = Runtime.get().load_program(str(tmp_path / "c.pte"), data_path=str(tmp_path / "c.ptd")).load_method("go")
    equal([v.clone() for v in loaded.execute([x])], want)


def test_delegates_keep_their_payloads(tmp_path):
    partitioner = pytest.importorskip("executorch.backends.xnnpack.partition.xnnpack_partitioner", reason="executorch: no XNNPACK")
    torch.manual_seed(3)
    net, x = Net(8), torch.randn(4, 6)
    manager = to_edge_transform_and_lower(export(net.eval(), (x,)), partitioner=[partitioner.XnnpackPartitioner()]).to_executorch()
    (tmp_path / "x.pte").write_bytes(manager.buffer)
    write(tmp_path / "p.pte", Net(4), x)
    pteron("merge", tmp_path / "x.pte", tmp_path / "p.pte", "-o", tmp_path / "c.pte", "--rename", "p:forward=plain")
    equal(run_official(tmp_path / "c.pte", [(x,)])[0], [o.detach() for o in net(x)], 1e-4)
