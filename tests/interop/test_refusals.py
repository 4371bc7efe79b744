"""What docs/unsupported.md lists for the executorch profile is refused by its name; what looks like it and has another way runs and is right."""
import pytest
import torch
import torch.nn.functional as F
from torch.export import Dim, export

from conftest import ROOT, equal, pteron, run_official

X, WHOLE, INDEX = torch.randn(3, 4), torch.arange(12).view(3, 4), torch.tensor([[0, 1, 1, 0]])

# Name of the refused operator: a call, its argument, which of its dims varies.
REFUSED = {
    "aten::scatter_reduce.two": (lambda x: x.scatter_reduce(0, INDEX, x[:1], "amax"), WHOLE, None),
    "aten::index_reduce": (lambda x: x.index_reduce(0, torch.tensor([0]), x, "prod"), torch.tensor(2.0), None),
    "aten::sort": (lambda x: x.median(0).values, X, 0),
    "aten::unique_consecutive": (lambda x: torch.unique_consecutive(x, dim=0), X, None),
    "aten::cumprod": (lambda x: x.cumprod(0), X, 0),
    "aten::i0": (lambda x: x.i0(), X.double(), None),
    "aten::erfc": (lambda x: x.erfc(), X.double(), None),
    "aten::hypot": (lambda x: torch.hypot(x, x + 1), X.double(), None),
    "aten::upsample_bicubic2d": (lambda x: F.interpolate(x, (6, 6), mode="bicubic"), torch.randn(1, 2, 3, 4), 2),
    "aten::max_pool3d_with_indices": (lambda x: F.max_pool3d(x, 2), torch.randn(1, 2, 5, 4, 4), 2),
    "pteron::as_strided_scatter": (lambda x: torch.as_strided_scatter(x, torch.ones(2, 2), (2, 2), (4, 1), 1), X, None),
    "aten::view_as_complex_copy": (lambda x: torch.view_as_real(torch.view_as_complex(x) * torch.view_as_complex(x)), torch.randn(3, 2), None),
    "aten::view_copy.dtype": (lambda x: x.view(torch.uint8), X, None),
    "aten::bincount": (lambda x: torch.bincount(x[0], minlength=12), WHOLE, None),
}


def exported(call, x, dim, tmp_path):
    class Net(torch.nn.Module):
        def forward(self, x):
            return call(x)

    torch.export.save(export(Net(), (x,), dynamic_shapes=({dim: Dim("n", min=4 if x.dim() == 5 else 1, max=8)},) if dim is not None else None), str(tmp_path / "m.pt2"))
    return tmp_path / "m.pt2"


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(tmp_path, name):
    said = pteron("compile", exported(*REFUSED[name], tmp_path), "-o", tmp_path / "m.pte", "--profile", "executorch", expect=4).stderr
    assert name in said, said
    listed = (ROOT / "docs" / "unsupported.md").read_text().partition("## With `--profile executorch`")[2]
    word = name.partition("::")[2].partition(".")[0].removesuffix("_copy").removesuffix("_with_indices")
    assert word in listed or word.startswith("upsample_") and "resizes" in listed or word == "max_pool3d" and "pools of three dims" in listed, word


def test_a_kernel_missed_late_is_named_with_its_node(tmp_path):
    said = pteron("compile", exported(lambda x: x.view(torch.uint8), X, None, tmp_path), "-o", tmp_path / "m.pte", "--profile", "executorch", expect=4).stderr
    assert "first for node view" in said and "test_refusals.py:" in said, said


def test_arithmetic_of_sizes_without_an_instruction_is_named_with_every_node(tmp_path):
    model = exported(lambda x: (x / x.shape[0]**0.5, x * torch.sym_sqrt(x.shape[0])), X, 0, tmp_path)
    said = pteron("compile", model, "-o", tmp_path / "m.pte", "--profile", "executorch", expect=4).stderr
    assert "2 unsupported operators" in said and "arithmetic pow(" in said and "arithmetic sqrt(" in said, said


COMPLEX = {
    "transform": lambda x: torch.view_as_real(torch.fft.fft(x).resolve_conj()),
    "there and back": lambda x: torch.view_as_real(torch.fft.ifft(torch.fft.fft(x)).resolve_neg()),
    "product": lambda x: torch.view_as_real((torch.fft.fft(x) * torch.fft.fft(x + 1)).detach()),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_names_of_complex_numbers_are_no_kernels(tmp_path, name):
    pteron("compile", exported(COMPLEX[name], X, None, tmp_path), "-o", tmp_path / "m.pte", "--profile", "executorch")
    equal(run_official(tmp_path / "m.pte", [(X,)])[0], [COMPLEX[name](X)])


def convolution_backward(dims, transposed=False, mask=(True, True, True)):
    one, nothing = [1] * dims, [0] * dims
    return lambda x: [g for g in torch.ops.aten.convolution_backward(x, x, torch.ones(4, 4, *[1] * dims), [4], one, nothing, one, transposed, nothing, 1, mask) if g is not None]


GRADIENTS = {
    "one dim": (convolution_backward(1), torch.randn(2, 4, 5)),
    "three dims": (convolution_backward(3), torch.randn(2, 4, 2, 3, 2)),
    "transposed": (convolution_backward(2, True), torch.randn(2, 4, 3, 3)),
    "without the bias": (convolution_backward(2, mask=(True, True, False)), torch.randn(2, 4, 3, 3)),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_that_the_official_kernel_refuses(tmp_path, name):
    said = pteron("compile", exported(*GRADIENTS[name], None, tmp_path), "-o", tmp_path / "m.pte", "--profile", "executorch", expect=4).stderr
    assert "aten::convolution_backward" in said and "two spatial dims" in said, said


def test_gradients_that_the_official_kernel_takes(tmp_path):
    call, x = convolution_backward(2), torch.randn(2, 4, 3, 3)
    pteron("compile", exported(call, x, None, tmp_path), "-o", tmp_path / "m.pte", "--profile", "executorch")
    equal(run_official(tmp_path / "m.pte", [(x,)])[0], call(x))


def test_gradient_of_a_pool_starts_from_zeros(tmp_path):
    def call(x):
        values, indices = torch.ops.aten.max_pool2d_with_indices(x, [3, 2], [2, 1], [1, 0])
        return torch.ops.aten.max_pool2d_with_indices_backward(values * 2, x, [3, 2], [2, 1], [1, 0], [1, 1], False, indices)

    x = torch.randn(2, 3, 7, 6)
    pteron("compile", exported(call, x, None, tmp_path), "-o", tmp_path / "m.pte", "--profile", "executorch")
    for result in run_official(tmp_path / "m.pte", [(x,), (x,)]):
        equal(result, [call(x)])


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16, torch.uint32, torch.uint64])
def test_dtypes_that_the_official_runtime_lacks(tmp_path, dtype):
    said = pteron("compile", exported(lambda x: x.abs().to(dtype).to(torch.float32), X, None, tmp_path), "-o", tmp_path / "m.pte", "--profile", "executorch", expect=4).stderr
    assert "8-bit floats and unsigned integers of 16 to 64 bits" in said, said


@pytest.mark.parametrize("call", [lambda x: F.layer_norm(x, (4,)), lambda x: F.layer_norm(x, (4,), torch.arange(4.0).double(), torch.ones(4).double(), 1e-3)])
def test_layer_norm_of_doubles_keeps_its_digits(tmp_path, call):
    x = torch.randn(3, 4, dtype=torch.float64)
    pteron("compile", exported(call, x, None, tmp_path), "-o", tmp_path / "m.pte", "--profile", "executorch")
    torch.testing.assert_close(torch.as_tensor(run_official(tmp_path / "m.pte", [(x,)])[0][0]), call(x), rtol=1e-12, atol=1e-12)


def test_sort_of_one_number(tmp_path):
    call = lambda x: [*x.sum().sort(), *x.sum().argsort()[None]]
    pteron("compile", exported(call, X, None, tmp_path), "-o", tmp_path / "m.pte", "--profile", "executorch")
    equal(run_official(tmp_path / "m.pte", [(X,)])[0], call(X))


def test_integers_beyond_2_to_the_53(tmp_path):
    x = torch.tensor([2**63 - 2, 2**63 - 2, -2**63 + 1, 123456789012345678, -123456789012345671, 7, -7, 2**53 + 1, -9, 9, -8])
    y = torch.tensor([1, 2**63 - 1, 3, 7, 7, 2, 2, 1, 4, -4, -4])

    def call(x):
        return [torch.floor_divide(x, y), torch.div(x, y, rounding_mode="trunc"), torch.fmod(x, y), torch.remainder(x, y), torch.fmod(x, 3), torch.remainder(x, -3),
                torch.div(x, -5, rounding_mode="trunc"), torch.remainder(7, y)]

    pteron("compile", exported(call, x, None, tmp_path), "-o", tmp_path / "m.pte", "--profile", "executorch")
    equal(run_official(tmp_path / "m.pte", [(x,)])[0], call(x))


@pytest.mark.parametrize("call", [lambda x: torch.kthvalue(x, 2, 1), lambda x: x.median(1)])
def test_places_of_equal_integers_are_refused(tmp_path, call):
    said = pteron("compile", exported(lambda x: [*call(x)], WHOLE, None, tmp_path), "-o", tmp_path / "m.pte", "--profile", "executorch", expect=4).stderr
    assert "which of equal integers PyTorch picks" in said, said


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_attention_in_16_bits_has_scores_in_float(tmp_path, dtype):
    q, k, v, mask = (torch.randn(s).to(dtype) * 4 for s in ((2, 3, 8), (2, 6, 8), (2, 6, 8), (3, 6)))
    call = lambda q: F.scaled_dot_product_attention(q, k, v, mask)
    pteron("compile", exported(call, q, None, tmp_path), "-o", tmp_path / "m.pte", "--profile", "executorch")
    torch.testing.assert_close(torch.as_tensor(run_official(tmp_path / "m.pte", [(q,)])[0][0]).float(), call(q).float(), rtol=2e-2, atol=2e-2)
