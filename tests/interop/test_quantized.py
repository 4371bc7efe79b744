"""Quantized models: the CPU engine takes every node, runs products on integers, gives eager's results, and the file keeps 8 and 4 bits."""
import json
import os
import re
import subprocess

import pytest
import torch
from torch.export import export

from conftest import ROOT, TOOL, equal, pteron, run_here

quantized_models = pytest.importorskip("quantized_models")
pytest.importorskip("torchao.quantization.pt2e.quantize_pt2e", reason="executorch: torchao is not installed")

# Parameters besides the weights of products (scales, biases, norms) count too, so small models need some room below the bound.
LIMITS = {"w4": 0.3, "d8_w4": 0.3}


class Exact(torch.fx.Interpreter):
    """The graph with every float as double: what quantize and dequantize say without rounding errors between them."""

    def call_function(self, target, args, kwargs):
        name = str(target)
        wide = torch.utils._pytree.tree_map(lambda v: v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v, args)
        if name.startswith("quantized_decomposed.quantize_per_tensor"):
            x, scale, zero, low, high, dtype = wide
            return torch.clamp(torch.round(x / scale) + zero, low, high).to(dtype)
        if name.startswith("quantized_decomposed.dequantize_per_tensor"):
            return (wide[0].double() - wide[2]) * wide[1]
        if name.startswith("quantized_decomposed.dequantize_per_channel"):
            shape = [1] * wide[0].dim()
            shape[wide[3]] = -1
            return (wide[0].double() - wide[2].double().view(shape)) * wide[1].view(shape)
        return super().call_function(target, wide, kwargs)


def kernels_of(report):
    if isinstance(report, dict):
        return [k for key, value in report.items() for k in (value if key == "kernels" else kernels_of(value))]
    return [k for item in report for k in kernels_of(item)] if isinstance(report, list) else []


def compile_pair(name, folder):
    """The quantized program, the size of the float one, the models, the inputs, and the kernels inside."""
    model, quantized, inputs = quantized_models.make(name)
    with torch.no_grad():
        torch.export.save(export(model, inputs), folder / "float.pt2")
        torch.export.save(export(quantized, inputs), folder / "q.pt2")
    pteron("compile", folder / "float.pt2", "-o", folder / "float.pte")
    report = pteron("compile", folder / "q.pt2", "-o", folder / "q.pte", "--strict", "--json").stdout
    return quantized, inputs, kernels_of(json.loads(report))


def ratio(folder, program="q.pte"):
    return (folder / program).stat().st_size / (folder / "float.pte").stat().st_size


def limit_of(name):
    return next((limit for key, limit in LIMITS.items() if f"_{key}" in f"_{name.split('_', 1)[1]}"), 0.5)


@pytest.mark.parametrize("name", quantized_models.NAMES)
def test_equal_to_eager(tmp_path, name):
    quantized, inputs, kernels = compile_pair(name, tmp_path)
    assert "pteron_cpu::qlinear.out" in kernels
    assert not {"pteron_cpu::linear.out", "pteron_cpu::conv2d.out", "pteron::dequantize.out", "aten::mm.out"} & set(kernels), "a product runs in float"
    assert ratio(tmp_path) < limit_of(name)
    got = run_here(tmp_path / "q.pte", [list(inputs)], tmp_path)[0][0]
    with torch.no_grad():
        want = quantized(*inputs)
    if name not in quantized_models.STATIC or "dynamic" in name:
        # A level of a dynamic activation may flip at a tie: one level is 1/255 of the range.
        torch.testing.assert_close(got, want, rtol=1e-3, atol=2e-3 * want.abs().max().item())
        return
    if torch.allclose(got, want, rtol=1e-6, atol=1e-6):
        return
    # Eager's sums in float fall on the other side where the exact value is at a tie between two levels.
    with torch.no_grad():
        exact = Exact(export(quantized, inputs).module()).run(*inputs)
    exact = exact[0] if isinstance(exact, (tuple, list)) else exact
    torch.testing.assert_close(got.double(), exact, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_do_not_matter(tmp_path, threads):
    quantized, inputs, _ = compile_pair("conv_batch", tmp_path)
    got = run_here(tmp_path / "q.pte", [list(inputs)], tmp_path, "--threads", threads)[0]
    equal(got, [quantized(*inputs)], 1e-6)


def test_size_check_fails_for_float_weights(tmp_path):
    """Controls of the size check: a model that is not quantized, and one whose weights are stored as the floats that they stand for."""
    model, quantized, inputs = quantized_models.make("mlp_w4_32")
    compile_pair("mlp_w4_32", tmp_path)
    assert ratio(tmp_path) < 0.3
    assert ratio(tmp_path, "float.pte") >= 0.5
    torch.export.save(export(quantized, inputs), tmp_path / "q.pt2")
    pteron("compile", tmp_path / "q.pt2", "-o", tmp_path / "unpacked.pte", "--profile", "executorch")
    assert ratio(tmp_path, "unpacked.pte") >= 0.5


def test_embedding_keeps_its_bytes(tmp_path):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(1000, 64)

        def forward(self, i):
            return self.table(i)

    from torchao import quantization as q
    from torchao.quantization.granularity import PerGroup
    from torchao.utils import unwrap_tensor_subclass
    model, ids = Model().eval(), torch.tensor([[3, 999, 0]])
    torch.export.save(export(model, (ids,)), tmp_path / "float.pt2")
    pteron("compile", tmp_path / "float.pt2", "-o", tmp_path / "float.pte")
    config = q.IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=PerGroup(32))
    q.quantize_(model, config, lambda m, _: isinstance(m, torch.nn.Embedding))
    model = unwrap_tensor_subclass(model)
    torch.export.save(export(model, (ids,)), tmp_path / "q.pt2")
    pteron("compile", tmp_path / "q.pt2", "-o", tmp_path / "q.pte", "--strict")
    assert ratio(tmp_path) < 0.5
    equal(run_here(tmp_path / "q.pte", [[ids]], tmp_path)[0], [model(ids)], 1e-6)


def test_part_of_a_pattern_stays_plain(tmp_path):
    """Weights with zero points, and a convolution with quantized weights alone, run as they are written."""
    import torch.ao.quantization.fx._decomposed  # noqa: F401  registers the operators
    ops = torch.ops.quantized_decomposed

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("rows", torch.randint(-128, 127, (24, 32), dtype=torch.int8))
            self.register_buffer("image", torch.randint(-128, 127, (8, 3, 3, 3), dtype=torch.int8))
            self.register_buffer("scales", torch.rand(24) * 0.02 + 0.01)
            self.register_buffer("zeros", torch.randint(-5, 5, (24,)))

        def forward(self, x, y):
            rows = ops.dequantize_per_channel(self.rows, self.scales, self.zeros, 0, -128, 127, torch.int8)
            image = ops.dequantize_per_channel(self.image, self.scales[:8], torch.zeros(8, dtype=torch.int64), 0, -128, 127, torch.int8)
            return torch.nn.functional.linear(x, rows), torch.nn.functional.conv2d(y, image)

    model, inputs = Model().eval(), (torch.randn(5, 32), torch.randn(1, 3, 9, 9))
    torch.export.save(export(model, inputs), tmp_path / "q.pt2")
    pteron("compile", tmp_path / "q.pt2", "-o", tmp_path / "q.pte", "--strict")
    equal(run_here(tmp_path / "q.pte", [list(inputs)], tmp_path)[0], list(model(*inputs)), 1e-5)


def test_the_documents_recipes(tmp_path, monkeypatch):
    """docs/quantized.md: every script as it stands there, then the commands; the programs run on quantized kernels and give what the archives give."""
    text = (ROOT / "docs" / "quantized.md").read_text()
    scripts, (commands,) = re.findall(r"```python\n(.*?)```", text, re.S), re.findall(r"```sh\n(.*?)```", text, re.S)
    assert len(scripts) == 3
    monkeypatch.chdir(tmp_path)
    examples = []
    for script in scripts:
        names = {}
        exec(compile(script, "docs/quantized.md", "exec"), names)
        examples.append(names["inputs"])
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", commands], env={**os.environ, "PATH": f"{TOOL.parent}:{os.environ['PATH']}"}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "pteron_cpu::qlinear" in done.stdout
    for name, inputs in zip(("static", "weights4", "dynamic"), examples):
        report = json.loads(pteron("compile", f"{name}.pt2", "-o", f"{name}.again.pte", "--json", "--strict").stdout)
        assert any("pteron_cpu::q" in kernel for group in report["groups"] for kernel in group["kernels"]), name
        want = torch.export.load(f"{name}.pt2").module()(*inputs)
        equal(run_here(tmp_path / f"{name}.pte", [list(inputs)], tmp_path)[0], [want], 0.05)
