"""Programs of the CUDA engine: generated kernels run in the stand-in driver and give what eager gives; NVRTC translates them."""
import copy
import re

import pytest
import torch
from torch import nn

from whole import EMULATED, Call, check_calls, compile_model, eager, pteron, run

pytestmark = pytest.mark.usefixtures("stand_in")


class Norms(nn.Module):
    """Rows with what is around them: an embedding, norms, softmax over both dims, a variance."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words, self.places = nn.Embedding(50, 96), nn.Embedding(8, 96)
        self.norm, self.groups = nn.LayerNorm(96), nn.GroupNorm(4, 8)

    def forward(self, ids):
        h = self.norm(self.words(ids) + self.places(torch.arange(ids.shape[1]))[None])
        g = torch.nn.functional.gelu(self.groups(h)) + h
        scale = torch.rsqrt(g.pow(2).mean(-1, keepdim=True) + 1e-5)
        return g * scale, torch.softmax(g, 1), torch.log_softmax(g * 2, -1), g.var(1), g.argmax(-1), g.amax((0, 2))


def test_rows(tmp_path):
    check_programs(Norms(), [(torch.randint(0, 50, (3, 8)),)], tmp_path)


def check_programs(module, calls, folder, **more):
    check_calls(module, calls, folder, *EMULATED, **more)


class Places(nn.Module):
    """Views as index arithmetic, joins, pads, gathers."""

    def forward(self, x, index):
        a, b = x.chunk(2, -1)
        turned = torch.cat([-b, a], -1).transpose(0, 1)
        padded = torch.nn.functional.pad(turned, (1, 2, 0, 1), value=3.0)
        return (turned.reshape(-1)[::3], padded.flip(1), torch.stack([x, x * 2], 1).permute(2, 0, 1, 3), x[index], x.gather(1, index.clamp(0, 3)[:, None, None].expand(-1, 4, 2)),
                torch.roll(x, 1, 2), x.unfold(1, 2, 1).sum(-1), torch.tril(x))


def test_places(tmp_path):
    check_programs(Places(), [(torch.randn(5, 4, 6), torch.tensor([4, 0, 2, -1, 1]))], tmp_path)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bit_floats_round_after_each_operator(tmp_path, dtype):
    def chain(x, y):
        return (x + y) * 3 - x, torch.relu(x * y) / 7, (x > y * 0.1), (x * 100).to(torch.int32), x.float() + y
    x, y = torch.randn(33, 64).to(dtype), torch.randn(64).to(dtype)
    program, _ = compile_model(Call(chain), (x, y), tmp_path, *EMULATED)
    for got, want in zip(run(program, [(x, y)], tmp_path)[0], eager(Call(chain), [(x, y)])[0]):
        assert torch.equal(got, want)


def test_integers_follow_python_and_wrap(tmp_path):
    def whole(x, y):
        return (x // y, x % y, torch.fmod(x, y), torch.div(x, y, rounding_mode="trunc"), x * 100000007 * x, x ** 3, x << 2, x >> 1, -x, ~x, torch.maximum(x, y),
                (x > y) & (y > 0), x.sum(0), x.prod(1), x.to(torch.int8))
    x = torch.tensor([[7, -7, 0], [2147483647, -5, 13]], dtype=torch.int32)
    y = torch.tensor([[2, 2, -3], [-1, -3, 5]], dtype=torch.int32)
    program, _ = compile_model(Call(whole), (x, y), tmp_path, *EMULATED)
    for got, want in zip(run(program, [(x, y)], tmp_path)[0], eager(Call(whole), [(x, y)])[0]):
        assert torch.equal(got, want)


def test_means_of_integers_are_left_to_others(tmp_path):
    """PyTorch rounds the weights of such images to fixed point."""
    def resized(x):
        return torch.nn.functional.interpolate(x, size=(9, 23), mode="bilinear"), torch.nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear"), x + 1
    x = torch.randint(0, 256, (1, 3, 7, 13), dtype=torch.uint8)
    program, _ = compile_model(Call(resized), (x,), tmp_path, *EMULATED)
    for got, want in zip(run(program, [(x,)], tmp_path)[0], eager(Call(resized), [(x,)])[0]):
        assert torch.equal(got, want)


def test_nan_goes_where_aten_lets_it(tmp_path):
    nan, inf = float("nan"), float("inf")
    x, y = torch.tensor([nan, 1.0, inf, -inf, -0.0]), torch.tensor([1.0, nan, -inf, 2.0, 0.0])

    def tests(x, y):
        return (torch.maximum(x, y), torch.minimum(x, y), torch.fmax(x, y), x.clamp(-1, 1), torch.relu(x), x.amax(0), x.argmax(0), torch.remainder(x, y),
                torch.nan_to_num(x), x == y, torch.floor_divide(x, y), torch.sign(x), x.isnan())
    program, _ = compile_model(Call(tests), (x, y), tmp_path, *EMULATED)
    for got, want in zip(run(program, [(x, y)], tmp_path)[0], eager(Call(tests), [(x, y)])[0]):
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


def test_sizes_of_the_call(tmp_path):
    class Sized(nn.Module):
        def forward(self, x):
            y = x.transpose(0, 1).reshape(x.shape[1] * x.shape[0], -1)
            return torch.softmax(x, 1), y + torch.arange(y.shape[0])[:, None], torch.cat([x, x[:1]]), x.mean((0, 1))

    n, m = torch.export.Dim("n", min=1, max=64), torch.export.Dim("m", min=2, max=300)
    calls = [(torch.randn(a, b, 8),) for a, b in ((3, 5), (1, 2), (64, 300), (7, 33))]
    check_programs(Sized(), calls, tmp_path, dynamic_shapes={"x": {0: n, 1: m}})


class Cache(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("keys", torch.zeros(1, 16, 4))
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x, at):
        self.keys.index_put_((torch.zeros(1, dtype=torch.long), at), x)
        self.total.add_(x.sum())
        return self.keys.sum(1) + self.total[0], self.keys[:, :4].clone()


def test_buffers_are_written_in_place(tmp_path):
    calls = [(torch.randn(2, 4), torch.tensor([i, i + 1])) for i in (0, 3, 3, 9)]
    check_programs(Cache(), calls, tmp_path)


def test_scans_and_orders(tmp_path):
    def ordered(x, y):
        values, places = torch.topk(x, 3, -1)
        return (x.cumsum(0), x.cumsum(1), torch.cumprod(y, 0), y.to(torch.int16).cumsum(-1), values, places, *torch.sort(x * 2, 1, descending=True), *torch.sort(y, stable=True),
                torch.topk(x, 2, 0, largest=False).values)

    args = torch.randn(5, 70), torch.tensor([2.0, float("nan"), 1.0, 2.0, -3.0]).repeat(9)
    program, _ = compile_model(Call(ordered), args, tmp_path, *EMULATED)
    for got, want in zip(run(program, [args], tmp_path)[0], eager(Call(ordered), [args])[0]):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5, equal_nan=True)


def test_windows_and_resizes(tmp_path):
    class Image(nn.Module):
        def forward(self, x):
            f = nn.functional
            return (f.max_pool2d(x, 3, 2, 1), f.avg_pool2d(x, 2, padding=1, count_include_pad=False), f.adaptive_avg_pool2d(x, (3, 2)),
                    f.interpolate(x, scale_factor=2.0, mode="nearest"), f.interpolate(x, size=(9, 5), mode="bilinear"),
                    f.interpolate(x, size=(9, 5), mode="bilinear", align_corners=True), f.pixel_shuffle(x, 2))

    check_programs(Image(), [(torch.randn(2, 4, 7, 10),)], tmp_path)


def test_nvrtc_translates_for_every_architecture(tmp_path):
    ids = torch.randint(0, 50, (3, 8))
    program, _ = compile_model(Norms(), (ids,), tmp_path, "--backend", "cuda", "--spec", "cuda:arch=sm_90,compute_80", "--spec", f"cuda:dump_kernels={tmp_path}")
    data = program.read_bytes()
    assert b".target sm_80" in data and b"\x7fELF" in data
    def ordered(x):
        return x.cumsum(1), x.cumsum(0), *torch.topk(x, 3, -1), torch.logsumexp(x, 0), x.argmax(1)
    compile_model(Call(ordered), (torch.randn(40, 64).to(torch.bfloat16),), tmp_path, "--backend", "cuda")
    text = "".join(path.read_text() for path in tmp_path.glob("*.cu"))
    assert "PTERON_KERNEL native_layer_norm" in text


@pytest.mark.parametrize("arch", ["sm_9x", "", "sm_90,sm_90", "sm_12"])
def test_architectures_are_checked(tmp_path, arch):
    torch.export.save(torch.export.export(Call(torch.relu), (torch.randn(3),)), tmp_path / "m.pt2")
    done = pteron("compile", tmp_path / "m.pt2", "-o", tmp_path / "m.pte", "--backend", "cuda", "--spec", f"cuda:arch={arch}", expect=2)
    assert "architecture" in done.stderr and not (tmp_path / "m.pte").exists()


def test_arch_is_an_option_of_its_own(tmp_path):
    """Machine code of each architecture, and PTX of the newest for later ones."""
    torch.export.save(torch.export.export(Call(torch.relu), (torch.randn(3),)), tmp_path / "m.pt2")
    words = "compile", tmp_path / "m.pt2", "-o", tmp_path / "m.pte", "--backend"
    pteron(*words, "cuda", "--arch", "sm_80,sm_89,sm_90,sm_100")
    data = (tmp_path / "m.pte").read_bytes()
    assert data.count(b"\x7fELF\x02") == 4 and b".target sm_100" in data
    pteron(*words, "cuda", "--arch", "sm_90", "--arch", "compute_80")
    data = (tmp_path / "m.pte").read_bytes()
    assert data.count(b"\x7fELF\x02") == 1 and b".target sm_80" in data and b".target sm_90" not in data
    for more, said in ((["cuda", "--arch", "sm_12"], "'sm_12' is no CUDA architecture"), (["cuda", "--arch", "sm_91"], "it knows sm_"), (["cuda", "--arch="], "missing"),
                       (["cuda", "--arch", "sm_90", "--spec", "cuda:arch=sm_90"], "same thing"), (["cpu", "--arch", "sm_90"], "not among the program's backends")):
        assert said in pteron(*words, *more, expect=2).stderr, more


def test_without_nvrtc_compiling_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.delenv("VIRTUAL_ENV")
    monkeypatch.delenv("PTERON_CUDA_PATH", raising=False)
    torch.export.save(torch.export.export(Call(torch.relu), (torch.randn(3),)), tmp_path / "m.pt2")
    import ctypes
    try:
        ctypes.CDLL("libnvrtc.so.13")
    except OSError:
        done = pteron("compile", tmp_path / "m.pt2", "-o", tmp_path / "m.pte", "--backend", "cuda", expect=6)
        assert "nvidia-cuda-nvrtc" in done.stderr


class Block(nn.Module):
    """Products, attention and convolutions between generated kernels."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.patches = nn.Conv2d(3, 32, 4, 4)
        self.norm, self.qkv, self.out = nn.LayerNorm(32), nn.Linear(32, 96), nn.Linear(32, 32)
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, image):
        h = torch.relu(self.patches(image)).flatten(2).transpose(1, 2)
        q, k, v = self.qkv(self.norm(h)).reshape(h.shape[0], -1, 3, 4, 8).permute(2, 0, 3, 1, 4)
        a = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        h = h + self.out(a)
        return h + self.down(nn.functional.gelu(self.up(self.norm(h))))


def test_products_between_kernels(tmp_path):
    check_programs(Block(), [(torch.randn(2, 3, 16, 16),)], tmp_path)


def test_a_residual_of_another_dtype_stays_outside(tmp_path):
    def mixed(x, w):
        return torch.mm(x.bfloat16(), w.bfloat16()) + x
    program, _ = compile_model(Call(mixed), (torch.randn(8, 8), torch.randn(8, 8)), tmp_path, *EMULATED)
    calls = [(torch.randn(8, 8), torch.randn(8, 8))]
    got, want = run(program, calls, tmp_path)[0][0], eager(Call(mixed), calls)[0][0]
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)


def test_channels_that_lie_side_by_side(tmp_path):
    """Rows that are neighbours in memory: sums over the places of channels-last images, their norms, pools; and rows without elements."""
    class Images(nn.Module):
        def forward(self, x, none):
            y = torch.relu(x) + 1
            return (nn.functional.adaptive_avg_pool2d(y, 1), torch.softmax(x.flatten(2), -1), x.amax((2, 3)), (x - x.mean((2, 3), keepdim=True)) * 2, y, torch.cat([x, y], 1),
                    torch.linalg.vector_norm(none, dim=1), none.sum(1), torch.logsumexp(x.to(torch.int32), 1))

    args = torch.randn(2, 64, 9, 10).to(memory_format=torch.channels_last), torch.zeros(4, 0)
    check_programs(Images(), [args], tmp_path)


class Chunk(nn.Module):
    """Two layers over a chunk of rows: norms, products of the same rows, rotated keys joined to a cache, heads that share keys, a gate, residuals."""

    def __init__(self, dtype):
        super().__init__()
        torch.manual_seed(0)
        self.norms = nn.ParameterList(nn.Parameter(1 + torch.rand(64, dtype=dtype) / 4) for _ in range(2))
        shapes = {"q": (64, 64), "k": (32, 64), "v": (32, 64), "o": (64, 64), "gate": (96, 64), "up": (96, 64), "down": (64, 96)}
        self.weights = nn.ParameterDict({name: nn.Parameter((torch.randn(shape) / shape[1] ** 0.5).to(dtype)) for name, shape in shapes.items()})
        self.bias = nn.Parameter(torch.randn(64).to(dtype))

    def norm(self, x, weight):
        f = x.float()
        return (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * weight

    def forward(self, x, cached, mask):
        w, (b, t, _), linear = self.weights, x.shape, nn.functional.linear
        h = self.norm(x, self.norms[0])
        q = linear(h, w["q"]).view(b, t, 4, 16).transpose(1, 2)
        k, v = (torch.cat((cached, linear(h, w[name]).view(b, t, 2, 16).transpose(1, 2)), 2) for name in "kv")
        k, v = (z[:, :, None].expand(b, 2, 2, z.shape[2], 16).reshape(b, 4, z.shape[2], 16) for z in (k, v))
        a = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + linear(a.transpose(1, 2).reshape(b, t, 64), w["o"])
        h = self.norm(x, self.norms[1])
        x = x + linear(nn.functional.silu(linear(h, w["gate"])) * linear(h, w["up"]), w["down"])
        return x, torch.relu(linear(x, w["q"], self.bias))


def check_16_bit(module, args, folder, kernels):
    """Against eager in float32 with the same weights; `kernels`: names that must be among those of the program, and what none of them may have in its name."""
    wanted, unwanted = kernels
    program, _ = compile_model(module, args, folder, *EMULATED, "--spec", f"cuda:dump_kernels={folder}")
    names = re.findall(r"^PTERON_KERNEL.* (\w+)\(", next(folder.glob("*.cu")).read_text(), re.M)
    for name in wanted:
        assert any(n.startswith(name) for n in names), (name, names)
    assert not [n for n in names if any(part in n for part in unwanted)], names
    wide = tuple(a.float() if a.is_floating_point() else a for a in args)
    for got, want in zip(run(program, [args], folder)[0], eager(copy.deepcopy(module).float(), [wide])[0]):
        torch.testing.assert_close(got.float(), want, rtol=0.02, atol=0.06)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_chunk_of_rows(tmp_path, dtype):
    args = (torch.randn(1, 10, 64).to(dtype), torch.randn(1, 2, 7, 16).to(dtype), torch.rand(1, 1, 10, 17) > 0.3)
    check_16_bit(Chunk(dtype), args, tmp_path, (["normed_few_rows", "gated_few_rows", "few_rows", "attention"], ["rsqrt", "silu", "relu", "expand"]))


class Depthwise(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.wide, self.strided = nn.Conv2d(3, 24, 3, padding=1), nn.Conv2d(24, 24, 7, padding=3, groups=24), nn.Conv2d(24, 24, 3, stride=2, groups=24, bias=False)
        self.norm, self.place = nn.LayerNorm(24), nn.Parameter(torch.randn(25, 24))

    def forward(self, image):
        x = self.first(image)
        x = torch.relu(self.strided(self.wide(x) + x))
        rows = x.flatten(2).transpose(1, 2) + self.place
        return self.norm(rows), rows


def test_each_channel_alone(tmp_path):
    check_16_bit(Depthwise().bfloat16(), (torch.randn(2, 3, 12, 12).bfloat16(),), tmp_path, (["depthwise"], ["copy", "relu"]))
