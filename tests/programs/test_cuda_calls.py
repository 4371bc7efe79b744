"""Calls of CUDA programs on the stand-in driver: buffers that stay on the device, sizes that change, what bench says."""
import copy
import json
import subprocess

import pytest
import torch
from torch import nn

from whole import EMULATED, check_calls, compile_model, eager, pteron, run, save


@pytest.fixture(autouse=True)
def translated(stand_in, monkeypatch, tmp_path):
    monkeypatch.setenv("PTERON_EMULATOR_CACHE", str(tmp_path / "translated"))


class Cache(nn.Module):
    """A window of rows: the oldest leaves, the sum of all comes out."""

    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.zeros(4, 6))

    def forward(self, x, place):
        self.rows.index_copy_(0, place, x)
        return torch.softmax(self.rows, -1).sum(0) + x


def test_buffers_stay_on_the_device(tmp_path):
    calls = [(torch.randn(1, 6), torch.tensor([i % 4])) for i in range(7)]
    check_calls(Cache(), calls, tmp_path, *EMULATED)


class Scaled(nn.Module):
    def forward(self, x):
        return torch.softmax(x * 2 + 1, -1) + x.mean(0, keepdim=True)


def test_sizes_that_change(tmp_path):
    sizes = [3, 3, 3, 5, 3, 5, 5, 1, 3, 8, 8, 8, 5]
    check_calls(Scaled(), [(torch.randn(n, 6),) for n in sizes], tmp_path, *EMULATED, dynamic_shapes=({0: torch.export.Dim("n", min=1, max=8)},))


def test_bench_says_where_the_time_goes(tmp_path):
    program, _ = compile_model(Scaled(), (torch.randn(3, 6),), tmp_path, *EMULATED)
    said = json.loads(pteron("bench", program, "--min-time", "0.05", "--json").stdout)["cuda"]
    assert said["kernels_ms"] > 0 and said["enqueue_ms"] > 0
    assert said["kernel_calls"] == sum(kernel["calls"] for kernel in said["kernels"]) >= 1
    text = pteron("bench", program, "--min-time", "0.05", "--profile").stdout
    assert "cuda: enqueue" in text and said["kernels"][0]["name"] in text and "of peak" in text


def test_bench_compares_kernels_with_the_peaks(tmp_path):
    """The emulator's device: 4 multiprocessors at 1 GHz, 128 GB/s."""
    class Product(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(64, 32))

        def forward(self, x):
            return torch.softmax(torch.mm(x, self.weight), -1)

    program, _ = compile_model(Product(), (torch.randn(48, 64),), tmp_path, *EMULATED)
    kernels = {kernel["name"]: kernel for kernel in json.loads(pteron("bench", program, "--min-time", "0.05", "--json").stdout)["cuda"]["kernels"]}
    product = kernels.pop("pteron_cuda::product.out")
    assert product["flops"] == 2 * 48 * 32 * 64 and product["bytes"] == 4 * (48 * 64 + 64 * 32 + 48 * 32)
    assert product["least_ms"] == pytest.approx(1e3 * max(product["bytes"] / 128e9, product["flops"] / (2 * 128 * 4e9)))
    (softmax,) = kernels.values()
    assert softmax["flops"] == 0 and softmax["bytes"] == 4 * 2 * 48 * 32 and softmax["least_ms"] == pytest.approx(1e3 * softmax["bytes"] / 128e9)


def test_without_a_driver(tmp_path, monkeypatch):
    program, _ = compile_model(Scaled(), (torch.randn(3, 6),), tmp_path, *EMULATED)
    monkeypatch.setenv("PTERON_CUDA_DRIVER", str(tmp_path / "libcuda.so.1"))
    assert "the CUDA driver was not found" in pteron("bench", program, expect=6).stderr
    report = json.loads(pteron("doctor", "--json").stdout)["cuda"]
    assert report["ready"] is False and "the CUDA driver was not found" in report["why_not"]


def test_doctor_asks_every_library(tmp_path, monkeypatch):
    found = {library["name"]: library for library in json.loads(pteron("doctor", "--json").stdout)["cuda"]["libraries"]}
    assert found["driver"]["ready"] and found["driver"]["path"].endswith("libpteron_cuda_emulator.so") and found["driver"]["version"] == "13.0"
    assert found["NVRTC"]["ready"] and "libnvrtc" in found["NVRTC"]["path"] and int(found["NVRTC"]["version"].split(".")[0]) >= 12
    # Of libraries that are not here: a small one that answers, and one that lacks the function.
    source = tmp_path / "fake.c"
    for name, text in (("libcublasLt.so.13", "unsigned long cublasLtGetVersion(void) { return 130105; }"), ("libcudnn.so.9", "int other;")):
        source.write_text(text)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / name, source], check=True)
    monkeypatch.setenv("PTERON_CUDA_PATH", str(tmp_path))
    found = {library["name"]: library for library in json.loads(pteron("doctor", "--json").stdout)["cuda"]["libraries"]}
    assert found["cuBLASLt"]["version"] == "13.1.5" and found["cuBLASLt"]["path"] == str(tmp_path / "libcublasLt.so.13")
    assert not found["cuDNN"]["ready"] and "cudnnGetVersion" in found["cuDNN"]["why_not"]
    assert "cuBLASLt 13.1.5" in pteron("doctor").stdout
    monkeypatch.delenv("PTERON_CUDA_PATH")
    monkeypatch.delenv("VIRTUAL_ENV")
    missing = json.loads(pteron("doctor", "--json").stdout)["cuda"]["libraries"]
    assert all(library["ready"] or library["why_not"] for library in missing)


class Both(nn.Module):
    """Parts that differ in their operators, so that each can be kept from a backend; a buffer between them."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(12, 12)
        self.register_buffer("sum", torch.zeros(3, 12))

    def forward(self, x):
        a = torch.softmax(self.linear(x), -1)
        self.sum.add_(a)
        return torch.cumsum(torch.tanh(self.sum) + a, 0), a


@pytest.mark.parametrize("order, outside", [("cuda,cpu", "aten::tanh"), ("cuda,cpu", "aten::linear,aten::_softmax"), ("cpu,cuda", "aten::tanh"),
                                            ("cpu,cuda", "aten::linear,aten::_softmax")])
@pytest.mark.parametrize("edge", [[], ["--device-inputs", "--device-outputs"]])
def test_two_backends_in_both_orders(order, outside, edge, tmp_path):
    first = order.split(",")[0]
    words = [word for op in outside.split(",") for word in ("--exclude", f"{first}={op}")]
    calls = [(torch.randn(3, 12),) for _ in range(5)]
    model = copy.deepcopy(Both())
    program, said = compile_model(copy.deepcopy(model), calls[0], tmp_path, "--backend", order, "--spec", "cuda:arch=source", *words, *edge)
    assert {share["name"] for share in said["backends"] if share["nodes"]} == {"cpu", "cuda"}, said["backends"]
    for got, want in zip(run(program, calls, tmp_path), eager(model, calls)):
        for a, b in zip(got, want):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


class Decoder(nn.Module):
    """A layer with a cache of keys and values: the same weights for a prompt and for single tokens."""

    def __init__(self, width=16, heads=2, room=80):
        super().__init__()
        torch.manual_seed(0)
        self.heads = heads
        self.words = nn.Embedding(31, width)
        self.qkv, self.out, self.norm = nn.Linear(width, 3 * width), nn.Linear(width, 31), nn.LayerNorm(width)
        self.register_buffer("keys", torch.zeros(1, heads, room, width // heads))
        self.register_buffer("values", torch.zeros(1, heads, room, width // heads))

    def forward(self, tokens, places):
        h = self.norm(self.words(tokens))
        q, k, v = self.qkv(h).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        self.keys.index_copy_(2, places, k)
        self.values.index_copy_(2, places, v)
        mask = torch.arange(self.keys.shape[2])[None, :] <= places[:, None]
        a = nn.functional.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask)
        return self.out(a.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("words", [["--backend", "cuda"], ["--backend", "cuda,cpu", "--exclude", "cuda=aten::embedding"]])
def test_prefill_and_decode_share_a_cache(words, tmp_path):
    """Every one of 64 steps gives the tokens that eager gives, from one cache that two methods write."""
    model = Decoder().eval()
    prompt = (torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]]), torch.arange(8))
    step = (torch.tensor([[7]]), torch.tensor([8]))
    save(copy.deepcopy(model), prompt, tmp_path / "prefill.pt2")
    save(copy.deepcopy(model), step, tmp_path / "decode.pt2")
    pteron("compile", "--method", f"prefill={tmp_path / 'prefill.pt2'}", "--method", f"decode={tmp_path / 'decode.pt2'}", "--share-state", "keys,values", "-o",
           tmp_path / "m.pte", *words, "--spec", "cuda:arch=source")
    with torch.no_grad():
        want = [model(*prompt)]
        calls, methods = [prompt], ["prefill"]
        for i in range(64):
            calls.append((want[-1][:, -1:].argmax(-1), torch.tensor([8 + i])))
            methods.append("decode")
            want.append(model(*calls[-1]))
    got = run(tmp_path / "m.pte", calls, tmp_path, *[word for method in methods for word in ("--method", method)])
    for i, (a, b) in enumerate(zip(got, want)):
        torch.testing.assert_close(a[0], b, rtol=1e-4, atol=1e-4, msg=f"call {i}")
        assert torch.equal(a[0].argmax(-1), b.argmax(-1)), i
