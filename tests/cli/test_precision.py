"""compile --precision bf16: whole models within bfloat16's tolerance of eager float32, files of half the size, what stays float32; and models exported in bfloat16 and float16."""
import json

import pytest

torch = pytest.importorskip("torch")
from safetensors.torch import load_file, save_file  # noqa: E402

F = torch.nn.functional


class Images(torch.nn.Module):
    """Convolutions of all kinds: narrow first one, strides, padding, dilation, groups, depthwise; batch norm, residual, activations."""

    def __init__(self):
        super().__init__()
        conv = torch.nn.Conv2d
        self.first, self.norm = conv(3, 40, 7, 2, 3, bias=False), torch.nn.BatchNorm2d(40)
        self.depthwise, self.grouped = conv(40, 40, 3, 1, 1, groups=40), conv(40, 80, 3, 1, 1, groups=2)
        self.wide, self.back = conv(80, 72, 3, 1, 2, dilation=2), conv(72, 40, 1)
        self.down, self.last = conv(40, 96, 1, 2), torch.nn.Linear(96, 50)

    def forward(self, x):
        x = F.relu(self.norm(self.first(x)))
        y = F.hardswish(self.depthwise(x))
        y = F.gelu(self.wide(F.relu6(self.grouped(y))))
        x = F.relu(self.back(y) + x)
        return self.last(F.silu(self.down(x)).mean((2, 3)))


class Tokens(torch.nn.Module):
    """A transformer block with odd sizes, one product with the weight on the right, and one shared weight."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (torch.nn.Linear(76, 76) for _ in range(4))
        self.up, self.down = torch.nn.Linear(76, 210), torch.nn.Linear(210, 76)
        self.right, self.norm = torch.nn.Parameter(torch.randn(76, 33) / 9), torch.nn.LayerNorm(76)

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (4, 19)).transpose(1, 2) for f in (self.q, self.k, self.v))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        x = x + self.down(F.gelu(self.up(self.norm(x))))
        return self.norm(x + self.down(torch.tanh(self.up(x)))) @ self.right


def made(name):
    torch.manual_seed(3)
    if name == "images":
        model, x = Images().eval(), torch.randn(2, 3, 61, 47)
        with torch.no_grad():
            model.norm.running_mean.normal_(0, 0.3), model.norm.running_var.uniform_(0.5, 2)
    else:
        model, x = Tokens().eval(), torch.randn(2, 37, 76)
    return model, x


@pytest.fixture(scope="module", params=["images", "tokens"])
def model(request, pteron, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    net, x = made(request.param)
    torch.export.save(torch.export.export(net, (x,)), folder / "m.pt2")
    save_file({"0": x}, folder / "in.safetensors")
    with torch.no_grad():
        return folder, net(x)


def run(pteron, folder, program):
    done = pteron("run", folder / program, "--inputs", folder / "in.safetensors", "--outputs", folder / "out.safetensors")
    assert done.returncode == 0, done.stderr
    return load_file(folder / "out.safetensors")["0"]


def test_results_are_those_of_bfloat16(pteron, model):
    folder, expected = model
    for precision in ("float32", "bf16"):
        done = pteron("compile", folder / "m.pt2", "--precision", precision, "--strict", "-o", folder / f"{precision}.pte")
        assert done.returncode == 0, done.stderr
    exact, rounded = (run(pteron, folder, f"{precision}.pte") for precision in ("float32", "bf16"))
    assert rounded.dtype == torch.float32 and rounded.shape == expected.shape
    scale = expected.abs().max()
    assert (exact - expected).abs().max() < 1e-4 * scale
    # Rounded operands, and by no more than a few of bfloat16's steps (2^-8).
    error = (rounded - expected).abs().max() / scale
    assert 2e-5 < error < 2e-2, error
    sizes = [(folder / f"{precision}.pte").stat().st_size for precision in ("float32", "bf16")]
    assert sizes[1] < 0.65 * sizes[0], sizes


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
def test_a_model_exported_in_16_bits(pteron, model, dtype):
    folder, expected = model
    net, x = made("images" if (folder / "m.pt2").parent.name.startswith("images") else "tokens")
    net, x = net.to(dtype), x.to(dtype)
    with torch.no_grad():
        eager = net(x).float()
    half = folder / str(dtype)
    half.mkdir(exist_ok=True)
    torch.export.save(torch.export.export(net, (x,)), half / "half.pt2")
    save_file({"0": x}, half / "in.safetensors")
    done = pteron("compile", half / "half.pt2", "--strict", "--json", "-o", half / "m.pte")
    assert done.returncode == 0, done.stderr
    kernels = {k for group in json.loads(done.stdout)["groups"] for k in group["kernels"]}
    assert kernels & {"pteron_cpu::linear16.out", "pteron_cpu::conv2d16.out"}
    assert not kernels & {"aten::linear.out", "aten::mm.out", "aten::addmm.out"}, "a product of weights is not the engine's"
    got = run(pteron, half, "m.pte")
    assert got.dtype == dtype
    scale, own = expected.abs().max(), (eager - expected).abs().max()
    assert (got.float() - expected).abs().max() < 2 * own + (0.01 if dtype == torch.bfloat16 else 1e-3) * scale


def test_refusals(pteron, model):
    folder, _ = model
    done = pteron("compile", folder / "m.pt2", "--precision", "fp8", "-o", folder / "no.pte")
    assert done.returncode == 2 and "--precision is float32 or bf16, found 'fp8'" in done.stderr
    done = pteron("compile", folder / "m.pt2", "--precision", "bf16", "--backend", "portable", "-o", folder / "no.pte")
    assert done.returncode == 2 and "--precision bf16 needs a backend" in done.stderr
    assert not (folder / "no.pte").exists()
