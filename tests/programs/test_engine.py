"""What every delegate must keep to, seen from outside: numbers of threads, subnormal numbers, calls without elements, what --strict and reports say."""
import json
import os
import subprocess
import time

import pytest

torch = pytest.importorskip("torch")
from safetensors.torch import load_file, save_file  # noqa: E402

from conftest import TOOL  # noqa: E402

F = torch.nn.functional
BACKENDS = ["cpu", "null:all", "portable"]


def export(model, inputs, path, **more):
    torch.export.save(torch.export.export(model.eval(), inputs, **more), path)


def compiled(pteron, folder, backend, *more):
    done = pteron("compile", folder / "m.pt2", "--backend", backend, "-o", folder / "m.pte", *more)
    assert done.returncode == 0, done.stderr
    return folder / "m.pte"


def run(pteron, folder, program, inputs, *more):
    save_file({str(i): x.contiguous() for i, x in enumerate(inputs)}, folder / "in.safetensors")
    done = pteron("run", program, "--inputs", folder / "in.safetensors", "--outputs", folder / "out.safetensors", *more)
    assert done.returncode == 0, done.stderr
    made = load_file(folder / "out.safetensors")
    return [made[k] for k in sorted(made, key=int)]


class Wide(torch.nn.Module):
    """Parts that all engines split over threads."""

    def __init__(self):
        super().__init__()
        self.conv, self.up, self.down = torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.Linear(256, 512), torch.nn.Linear(512, 256)

    def forward(self, image, rows):
        return F.gelu(self.conv(image)).softmax(-1), F.layer_norm(self.down(torch.tanh(self.up(rows))) + rows, (256,))


def most_threads(words, cpus, seconds):
    """Largest number of threads that the process has while it runs, seen every few milliseconds."""
    process = subprocess.Popen([str(TOOL), *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=lambda: os.sched_setaffinity(0, cpus))
    most, end = 0, time.monotonic() + seconds + 30
    while process.poll() is None and time.monotonic() < end:
        try:
            most = max(most, len(os.listdir(f"/proc/{process.pid}/task")))
        except FileNotFoundError:
            break
        time.sleep(0.003)
    assert process.wait(30) == 0, process.stderr.read()
    return most


@pytest.mark.parametrize("backend", ["cpu", "portable"])
def test_never_more_threads_than_cpus(pteron, tmp_path, backend):
    export(Wide(), (torch.randn(1, 3, 64, 64), torch.randn(64, 256)), tmp_path / "m.pt2")
    program = compiled(pteron, tmp_path, backend)
    cpus = sorted(os.sched_getaffinity(0))
    assert most_threads(["bench", program, "--threads", 16, "--min-time", 0.3], set(cpus[:1]), 1) == 1
    assert most_threads(["bench", program, "--threads", 1, "--min-time", 0.3], set(cpus), 1) == 1
    if len(cpus) > 1:
        assert most_threads(["bench", program, "--min-time", 0.3], set(cpus[:2]), 1) == 2
        assert most_threads(["bench", program, "--threads", 64, "--min-time", 0.3], set(cpus[:2]), 1) == 2


class Small(torch.nn.Module):
    """Results near 1e-40: below the smallest normal number, 1.2e-38."""

    def forward(self, x, y):
        return F.elu(x), torch.exp(y), x + x * 0.5, F.elu(x) * 2 + torch.exp(y), x * 0.25, torch.relu(x), F.silu(x), x.sum(-1), torch.maximum(x, -x)


@pytest.mark.parametrize("backend", BACKENDS)
def test_subnormal_numbers_are_kept(pteron, tmp_path, backend):
    x = torch.tensor([1e-40, -1e-40, 3e-39, -5e-45, 1.4e-45, 1.1e-38, -1.1e-38, 0.0] * 5)
    y = torch.linspace(-103.5, -87, 40)
    export(Small(), (x, y), tmp_path / "m.pt2")
    got = run(pteron, tmp_path, compiled(pteron, tmp_path, backend), (x, y))
    for i, (a, b) in enumerate(zip(got, Small()(x, y), strict=True)):
        assert torch.all((a == 0) == (b == 0)), i
        # Two steps of the subnormal range, and what exp may differ by.
        torch.testing.assert_close(a, b, rtol=3e-6, atol=4e-45, msg=lambda m, i=i: f"result {i}: {m}")


class Many(torch.nn.Module):
    """All that the engine has kernels of its own for, in the first dim of n rows."""

    def __init__(self):
        super().__init__()
        self.conv, self.depthwise, self.line = torch.nn.Conv2d(4, 16, 3, padding=1), torch.nn.Conv2d(16, 16, 3, groups=16), torch.nn.Conv1d(6, 8, 3)
        self.group, self.instance, self.batch = torch.nn.GroupNorm(4, 16), torch.nn.GroupNorm(16, 16), torch.nn.BatchNorm2d(16)
        self.q, self.out, self.norm = torch.nn.Linear(24, 72), torch.nn.Linear(24, 24), torch.nn.LayerNorm(24)
        self.lstm, self.gru = torch.nn.LSTM(24, 8, batch_first=True), torch.nn.GRU(24, 8, batch_first=True)

    def forward(self, image, rows):
        y = self.instance(self.group(F.relu(self.batch(self.conv(image)))))
        y = F.interpolate(F.hardswish(self.depthwise(y)), scale_factor=2, mode="nearest")
        q, k, v = self.q(self.norm(rows)).unflatten(-1, (9, 8)).transpose(1, 2).chunk(3, 1)
        rows = rows + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        rms = rows * torch.rsqrt(rows.pow(2).mean(-1, keepdim=True) + 1e-5)
        line = self.line(rows[:, :6])
        return F.max_pool2d(y, 2), rms, line, torch.cat([self.lstm(rows)[0], self.gru(rows)[0]], -1), rows.softmax(-1), y.mean((2, 3)), rows.sum(0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_calls_without_elements(pteron, tmp_path, backend):
    torch.manual_seed(1)
    model = Many().eval()
    n = torch.export.Dim("n", min=0, max=8)
    inputs = lambda count: (torch.randn(count, 4, 7, 6), torch.randn(count, 10, 24))  # noqa: E731
    export(model, inputs(3), tmp_path / "m.pt2", dynamic_shapes=({0: n}, {0: n}))
    program = compiled(pteron, tmp_path, backend)
    for count in (0, 3, 0, 1, 8):
        given = inputs(count)
        with torch.no_grad():
            want = model(*given)
        for a, b in zip(run(pteron, tmp_path, program, given), want, strict=True):
            assert a.shape == b.shape
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


class Sums(torch.nn.Module):
    """Sums behind chains: the first four are the engine's in one pass, the last two are not over the last dims, or read twice."""

    def forward(self, x, y):
        twice = torch.exp(x - y)
        length = (x * x + y * y).sum(-1, keepdim=True)
        return x / length.sqrt(), torch.sigmoid(x + 1).mean((-2, -1)), (x - y).abs().sum(-1), (x * 2).mean(-1, keepdim=True), (x * y).sum(0), twice.sum(-1) + twice[..., 0]


def test_sums_behind_chains(pteron, tmp_path):
    n = torch.export.Dim("n", min=1, max=40)
    inputs = lambda count: (torch.randn(count, 9, 33), torch.randn(count, 9, 33))  # noqa: E731
    export(Sums(), inputs(6), tmp_path / "m.pt2", dynamic_shapes=({0: n}, {0: n}))
    report = json.loads(pteron("compile", tmp_path / "m.pt2", "-o", tmp_path / "m.pte", "--json").stdout)
    assert sum(g["kernels"].count("pteron_cpu::pointwise_sum.out") for g in report["groups"]) == 4
    for count in (6, 1, 40):
        given = inputs(count)
        for a, b in zip(run(pteron, tmp_path, tmp_path / "m.pte", given), Sums()(*given), strict=True):
            torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-5)


class Squeezed(torch.nn.Module):
    """Squeeze and excitation before a 1x1 convolution; the second product is read twice, the third has one factor for all channels."""

    def __init__(self):
        super().__init__()
        conv = torch.nn.Conv2d
        self.wide, self.less, self.more, self.back = conv(8, 24, 3, padding=1), conv(24, 6, 1), conv(6, 24, 1), conv(24, 8, 1)

    def squeeze(self, y):
        return torch.sigmoid(self.more(F.silu(self.less(F.adaptive_avg_pool2d(y, 1)))))

    def forward(self, x):
        y = F.silu(self.wide(x))
        first = x + self.back(self.squeeze(y) * y)
        twice = y * self.squeeze(y).flip(1)
        return first, self.back(twice) + twice.sum(), self.back(y * y.mean((1, 2, 3), keepdim=True)), F.hardswish(self.back(y * self.squeeze(y.mean((2, 3), keepdim=True))))


@pytest.mark.parametrize("backend", BACKENDS)
def test_gates_before_convolutions(pteron, tmp_path, backend):
    torch.manual_seed(2)
    n, h = torch.export.Dim("n", min=1, max=4), torch.export.Dim("h", min=2, max=20)
    inputs = lambda count, height: (torch.randn(count, 8, height, 9),)  # noqa: E731
    model = Squeezed().eval()
    export(model, inputs(2, 7), tmp_path / "m.pt2", dynamic_shapes=({0: n, 2: h},))
    program = compiled(pteron, tmp_path, backend)
    if backend == "cpu":
        report = json.loads(pteron("compile", tmp_path / "m.pt2", "-o", tmp_path / "m.pte", "--json").stdout)
        assert sum(g["kernels"].count("pteron_cpu::gated_conv2d.out") for g in report["groups"]) == 2
    for count, height in ((2, 7), (1, 20), (4, 2)):
        given = inputs(count, height)
        with torch.no_grad():
            want = model(*given)
        for a, b in zip(run(pteron, tmp_path, program, given), want, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


class Outside(torch.nn.Module):
    """A node whose result's size depends on data: no backend takes it."""

    def forward(self, x):
        return torch.nonzero(x).sum(), torch.relu(x) + 1


def test_strict_names_what_stays_outside(pteron, tmp_path):
    export(Outside(), (torch.randn(4, 5),), tmp_path / "m.pt2")
    report = json.loads(pteron("compile", tmp_path / "m.pt2", "-o", tmp_path / "m.pte", "--json").stdout)
    assert [(o["op"], o["nodes"], o["reason"]) for o in report["outside"]] == [("aten::nonzero", 1, "a result whose size depends on data")]
    assert report["backends"][0]["nodes_outside"] == 1 and report["backends"][0]["nodes"] >= 2
    assert 0 < report["backends"][0]["share_of_time"] < 1
    text = pteron("compile", tmp_path / "m.pt2", "-o", tmp_path / "m.pte").stdout
    assert "cpu does not take aten::nonzero (1, first nonzero): a result whose size depends on data" in text and "1 node stays outside" in text
    done = pteron("compile", tmp_path / "m.pt2", "-o", tmp_path / "strict.pte", "--strict")
    assert done.returncode == 4 and "no backend takes 1 node: aten::nonzero (1, first nonzero), cpu: a result whose size depends on data" in done.stderr
    assert not (tmp_path / "strict.pte").exists()


class Products(torch.nn.Module):
    """One weight [k, n] that is multiplied with as it lies and read by rows."""

    def __init__(self, bias):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(48, 80))
        self.bias = torch.nn.Parameter(torch.randn(80)) if bias else None

    def forward(self, x, rows):
        product = x @ self.weight if self.bias is None else torch.addmm(self.bias, x, self.weight)
        return product, self.weight[rows]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("where", [(), ("--external-weights",)])
def test_weights_of_products_stay_as_they_lie(pteron, tmp_path, bias, where):
    """The engine multiplies with [n, k]; a weight [k, n] is stored once, untouched, whoever reads it."""
    torch.manual_seed(0)
    model, inputs = Products(bias), (torch.randn(7, 48), torch.tensor([5, 0, 47]))
    export(model, inputs, tmp_path / "m.pt2")
    program = compiled(pteron, tmp_path, "cpu", *where)
    for found, expected in zip(run(pteron, tmp_path, program, inputs), model(*inputs)):
        torch.testing.assert_close(found, expected)
    stored = (tmp_path / "m.ptd" if where else program).read_bytes()
    weight = model.weight.detach()
    assert stored.count(weight.numpy().tobytes()) == 1
    assert stored.count(weight.T.contiguous().numpy().tobytes()) == 0
