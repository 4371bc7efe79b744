"""Small quantized models as torch.export archives: static 8-bit by two quantizers, dynamic, weight-only with 8 and 4 bits. Used by test_quantized.py;
`python quantized_models.py FOLDER [NAME...]` writes archives, inputs and expected results."""
import pathlib
import sys
import warnings

import torch
from torch import nn
from torch.export import export


class Residual(nn.Module):
    """Convolutions of all kinds, a residual addition, pools, a join and a slice."""

    def __init__(self, width=32):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width)
        self.second, self.depthwise = nn.Conv2d(width, width, 3, 1, 1), nn.Conv2d(width, width, 3, 1, 1, groups=width)
        self.grouped, self.point = nn.Conv2d(width, width, 3, 1, 2, dilation=2, groups=2), nn.Conv2d(width, 2 * width, 1, 2, bias=False)
        self.last = nn.Linear(2 * width, 10)

    def forward(self, x):
        x = nn.functional.max_pool2d(self.norm(self.first(x)).relu(), 3, 2, 1)
        y = self.depthwise(self.second(x).relu())
        x = (x + y).relu()
        x = (self.grouped(x) + x).relu()
        x = self.point(torch.cat([x, y], 1)[:, : x.shape[1]])
        return self.last(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Mlp(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width, bias=False), nn.ReLU(), nn.Linear(width, 32))

    def forward(self, x):
        return self.layers(x)


class Block(nn.Module):
    """One layer of a decoder, with its embedding left in float."""

    def __init__(self, width=128, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width, bias=False)
        self.up, self.gate, self.down = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c))
        y = self.norm2(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


def by_quantizer(model, inputs, quantizer):
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    prepared = prepare_pt2e(export(model, inputs).module(), quantizer)
    for _ in range(2):
        prepared(*inputs)
    return convert_pt2e(prepared)


def xnnpack(per_channel=True, dynamic=False):
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
    return XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=per_channel, is_dynamic=dynamic))


def x86():
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as q
    return q.X86InductorQuantizer().set_global(q.get_default_x86_inductor_quantization_config())


def by_config(model, config):
    from torchao import quantization
    from torchao.utils import unwrap_tensor_subclass
    quantization.quantize_(model, config)
    return unwrap_tensor_subclass(model)


def configs():
    from torchao import quantization as q
    from torchao.quantization.granularity import PerAxis, PerGroup
    return {
        "w8": q.Int8WeightOnlyConfig(),
        "w8_group": q.IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=PerGroup(64)),
        "w4_32": q.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)),
        "w4_64": q.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(64)),
        "w4_128": q.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(128)),
        "d8": q.Int8DynamicActivationInt8WeightConfig(),
        "d8_w8": q.Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int8, weight_granularity=PerAxis(0)),
        "d8_w4": q.Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32)),
    }


IMAGE = (1, 3, 64, 64)
STATIC = {
    "conv_xnnpack": (lambda: Residual(), IMAGE, lambda: xnnpack()),
    "conv_xnnpack_tensor": (lambda: Residual(), IMAGE, lambda: xnnpack(per_channel=False)),
    "conv_x86": (lambda: Residual(), IMAGE, x86),
    "conv_batch": (lambda: Residual(), (2, *IMAGE[1:]), lambda: xnnpack()),
    "mlp_xnnpack": (lambda: Mlp(), (7, 128), lambda: xnnpack()),
    "mlp_x86": (lambda: Mlp(), (7, 128), x86),
    "mlp_dynamic": (lambda: Mlp(), (7, 128), lambda: xnnpack(dynamic=True)),
}
CONFIGURED = {"mlp": (lambda: Mlp(), (7, 128)), "row": (lambda: Mlp(), (1, 128)), "block": (lambda: Block(), (1, 24, 128)), "step": (lambda: Block(), (1, 1, 128))}
NAMES = [*STATIC, *(f"{m}_{c}" for m in CONFIGURED for c in ("w8", "w8_group", "w4_32", "w4_64", "w4_128", "d8", "d8_w8", "d8_w4"))]


def make(name):
    """The float model, the quantized one, and its inputs."""
    warnings.filterwarnings("ignore")
    torch.manual_seed(len(name))
    if name in STATIC:
        build, shape, quantizer = STATIC[name]
        model, inputs = build().eval(), (torch.randn(shape),)
        with torch.no_grad():
            return model, by_quantizer(model, inputs, quantizer()), inputs
    model_name, config = name.split("_", 1)
    build, shape = CONFIGURED[model_name]
    torch.manual_seed(1)
    model = build().eval()
    torch.manual_seed(1)
    copy = build().eval()
    with torch.no_grad():
        return model, by_config(copy, configs()[config]), (torch.randn(shape),)


def main():
    from safetensors.torch import save_file
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or NAMES:
        model, quantized, inputs = make(name)
        with torch.no_grad():
            torch.export.save(export(model, inputs), out / f"{name}.float.pt2")
            torch.export.save(export(quantized, inputs), out / f"{name}.pt2")
            save_file({"0": inputs[0]}, out / f"{name}.in.safetensors")
            save_file({"0": quantized(*inputs).contiguous()}, out / f"{name}.out.safetensors")


if __name__ == "__main__":
    main()
