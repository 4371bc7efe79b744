"""What every backend must do with a program: empty tensors, results in their dtype, groups beside nodes that stay outside."""
import json

import pytest
import torch
from torch import nn

from whole import check_calls, compile_model, pteron, run, save

BACKENDS = ["portable", "cpu", "null:all"]


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x):
        y = torch.nn.functional.gelu(self.a(x))
        return self.b(y) + 1, torch.softmax(y, -1), y.sum(0)


class Image(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.c, self.d = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, x):
        return torch.relu(self.d(torch.relu(self.c(x))))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("module, shape", [(Layers(), (6,)), (Image(), (3, 8, 8))], ids=["layers", "image"])
def test_no_rows(tmp_path, backend, module, shape):
    calls = [(torch.randn(n, *shape),) for n in (3, 0, 2, 0)]
    check_calls(module, calls, tmp_path, "--backend", backend, dynamic_shapes={"x": {0: torch.export.Dim("n", min=0, max=4)}})


class Dtypes(nn.Module):
    """Dtypes cross the edge of a group in both directions; nonzero stays outside."""

    def forward(self, x, y):
        picked = torch.nonzero(y > 0).sum()
        half = (x * 2).to(torch.float16)
        return half, half > 1, (y + picked).to(torch.int16), x.double() * picked, (x.to(torch.bfloat16) + 1) * 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_dtypes_at_the_edge(tmp_path, backend):
    calls = [(torch.randn(5), torch.tensor([1, -1, 2, 0, 5], dtype=torch.int32))]
    check_calls(Dtypes(), calls, tmp_path, "--backend", backend)


class Unread(nn.Module):
    """An input that nobody reads, and one whose only use falls away in the group."""

    def forward(self, a, unused, b, sized):
        return a - b, torch.zeros_like(sized) + b


@pytest.mark.parametrize("backend", BACKENDS)
def test_inputs_keep_their_position(tmp_path, backend):
    check_calls(Unread(), [tuple(torch.full((3,), float(n)) for n in (5, 7, 2, 9))], tmp_path, "--backend", backend)


def test_two_backends_share_a_program(tmp_path):
    program, said = compile_model(Layers(), (torch.randn(2, 6),), tmp_path, "--backend", "null,cpu")
    assert [(b["name"], b["nodes"] > 0) for b in said["backends"]] == [("null", False), ("cpu", True)]
    program, said = compile_model(Layers(), (torch.randn(2, 6),), tmp_path, "--backend", "null:all,cpu")
    assert [(b["name"], b["nodes"] > 0) for b in said["backends"]] == [("null:all", True), ("cpu", False)]


def test_weights_of_two_methods_are_stored_once(tmp_path):
    module = nn.Sequential(nn.Linear(128, 128), nn.ReLU()).eval()
    save(module, (torch.randn(1, 128),), tmp_path / "a.pt2")
    save(module, (torch.randn(7, 128),), tmp_path / "b.pt2")
    pteron("compile", "--method", f"one={tmp_path / 'a.pt2'}", "--method", f"many={tmp_path / 'b.pt2'}", "-o", tmp_path / "m.pte")
    assert 128 * 128 * 4 < (tmp_path / "m.pte").stat().st_size < 1.5 * 128 * 128 * 4
    x = torch.randn(7, 128)
    with torch.no_grad():
        torch.testing.assert_close(run(tmp_path / "m.pte", [(x,)], tmp_path, "--method", "many")[0][0], module(x), rtol=1e-4, atol=1e-4)


def test_packed_weights_are_in_memory_once(tmp_path):
    layers = nn.Sequential(*[nn.Linear(2048, 2048, bias=False) for _ in range(4)])
    program, said = compile_model(layers, (torch.randn(1, 2048),), tmp_path)
    peak = json.loads(pteron("bench", program, "--json", "--threads", "1", "--min-time", "0.01").stdout)["peak_rss_bytes"]
    tool = json.loads(pteron("bench", compile_small(tmp_path), "--json", "--threads", "1", "--min-time", "0.01").stdout)["peak_rss_bytes"]
    assert peak - tool < 1.5 * said["weight_bytes"], (peak, tool)


class ByANumber(nn.Module):
    """A float that is known at run time goes into a group, a flag too."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(5, 5)

    def forward(self, x, y):
        largest = y.max().item()
        return self.linear(x).clamp(-1, largest) * largest, x.clamp(-1, y.max()), x + y.isinf().any().item()


@pytest.mark.parametrize("backend", BACKENDS)
def test_run_time_floats_enter_a_group(tmp_path, backend):
    torch.manual_seed(0)
    calls = [(torch.randn(3, 5), torch.randn(3, 5)) for _ in range(3)] + [(torch.randn(3, 5), torch.full((3, 5), torch.inf))]
    check_calls(ByANumber(), calls, tmp_path, "--backend", backend)


def test_backends_report_their_memory(tmp_path):
    program, said = compile_model(nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)), (torch.randn(64, 512),), tmp_path)
    weights, values = 2 * 512 * 512 * 4, 64 * 512 * 4
    [report] = json.loads(pteron("bench", program, "--json", "--threads", "1", "--min-time", "0.01").stdout)["delegates"]
    assert report["name"] == "PteronCpuBackend"
    assert weights <= report["shared_bytes"] < 1.1 * weights
    assert values <= report["own_bytes"] < 8 * values


def compile_small(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    return compile_model(nn.Linear(4, 4), (torch.randn(1, 4),), folder)[0]
