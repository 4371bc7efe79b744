"""quantize and dequantize per tensor, channel, token and group: equal to PyTorch here and in the official runtime's profile."""
import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers the operators
from torch.export import export

from conftest import pteron, run_here, run_official

Q = torch.ops.quantized_decomposed
X = torch.linspace(-3, 3, 48).reshape(6, 8)
SCALE, ZERO = torch.linspace(0.01, 0.06, 6), torch.arange(-3, 3)
CASES = {
    "tensor": lambda x: Q.dequantize_per_tensor(Q.quantize_per_tensor(x, 0.02, 3, -128, 127, torch.int8), 0.02, 3, -128, 127, torch.int8),
    "bytes": lambda x: Q.quantize_per_tensor(x, 0.05, 128, 0, 255, torch.uint8),
    "channel": lambda x: Q.dequantize_per_channel(Q.quantize_per_channel(x, SCALE, ZERO, 0, -128, 127, torch.int8), SCALE, ZERO, 0, -128, 127, torch.int8),
    "token": lambda x: Q.quantize_per_token(x, SCALE[:, None], ZERO[:, None], -128, 127, torch.int8),
    "group": lambda x: Q.quantize_per_channel_group(x, torch.linspace(0.01, 0.06, 12), torch.zeros(12), -8, 7, torch.int8, 4),
    "parameters": lambda x: Q.choose_qparams_per_token_asymmetric(x, torch.int8),
}


@pytest.mark.parametrize("profile", ["pteron", "executorch"])
@pytest.mark.parametrize("name", CASES)
def test_equal_to_pytorch(tmp_path, name, profile):
    class Model(torch.nn.Module):
        def forward(self, x):
            return CASES[name](x)

    archive, program = tmp_path / "m.pt2", tmp_path / "m.pte"
    torch.export.save(export(Model(), (X,)), archive)
    pteron("compile", archive, "-o", program, "--profile", profile)
    expected = CASES[name](X)
    expected = list(expected) if isinstance(expected, tuple) else [expected]
    results = [run_here(program, [[X]], tmp_path)[0]]
    if profile == "executorch":
        results.append(run_official(program, [[X]])[0])
    for outputs in results:
        assert len(outputs) == len(expected)
        for got, want in zip(outputs, expected):
            assert got.dtype == want.dtype
            torch.testing.assert_close(got, want, rtol=2e-7 if want.is_floating_point() else 0, atol=0)
