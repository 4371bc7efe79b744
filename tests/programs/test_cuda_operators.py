"""Operators that the CUDA engine spells out in others, and forms that are easily got wrong: nothing is left to another backend, and the results are eager's."""
import pytest
import torch
from torch.nn import functional

from whole import EMULATED, Call, check_calls, compile_model, pteron, run

pytestmark = pytest.mark.usefixtures("stand_in")


def check_whole(fn, args, folder, **more):
    """All nodes are the delegate's, and the results those of eager."""
    check_calls(Call(fn), [args], folder, *EMULATED, **more)
    said = pteron("explain", folder / "m.pt2", "--backend", "cuda").stdout
    assert "not on cuda" not in said, said


def test_rows_of_one_element(tmp_path):
    """What reads the row beside its sum stands outside of the loop over the columns."""
    def sums(x):
        y = x.exp()
        return y.sum(1) + y[:, 0], torch.softmax(y, 1) * y
    check_whole(sums, (torch.randn(5, 1),), tmp_path)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_group_norms_of_16_bits_are_rounded_once(tmp_path, dtype):
    norm = torch.nn.GroupNorm(2, 6).to(dtype)
    with torch.no_grad():
        norm.weight.uniform_(0.5, 2)
        norm.bias.normal_()
    x = (torch.randn(3, 6, 5, 4) * 3).to(dtype)
    program, _ = compile_model(norm, (x,), tmp_path, *EMULATED)
    got = run(program, [(x,)], tmp_path)[0][0]
    exact = functional.group_norm(x.double(), 2, norm.weight.double(), norm.bias.double(), norm.eps)
    assert got.dtype == dtype
    assert (got.double() - exact).abs().max() <= (norm(x).double() - exact).abs().max() * 1.01
    assert "not on cuda" not in pteron("explain", tmp_path / "m.pt2", "--backend", "cuda").stdout


def test_operators_that_decompositions_spell_out(tmp_path):
    def spelled(x, y, i):
        return (torch.cummax(x, 1)[0], torch.cummin(x, 0)[1], x.median(1)[0], torch.kthvalue(x, 2, 0)[0], torch.quantile(x, 0.3, 1), torch.bucketize(x, y), torch.isin(i, i[:2]),
                torch.diag_embed(x), x.index_fill(0, i[:1], 2.0), torch.take(x, i), torch.logcumsumexp(x, 1), torch.round(x, decimals=1), torch.special.entr(x.abs()), torch.erfinv(x * 0.1),
                functional.smooth_l1_loss(x, x.flip(0)))
    check_whole(spelled, (torch.randn(4, 6), torch.tensor([-1.0, 0.0, 0.5]), torch.tensor([2, 0, 1])), tmp_path)


def test_resizes_that_decompositions_spell_out(tmp_path):
    def resized(x):
        return (functional.interpolate(x, size=(9, 5), mode="bicubic"), functional.interpolate(x, size=(3, 4), mode="bilinear", antialias=True), functional.max_pool1d(x[0], 2),
                functional.unfold(x, 2))
    check_whole(resized, (torch.randn(1, 2, 6, 8),), tmp_path)


def test_scatters_fold_any_dtype(tmp_path):
    """By atomic exchanges of the word around an element, where the device has no atomic operation."""
    def fold(x, i, y, b, half):
        made = [x.scatter_reduce(0, i, y, r, include_self=s) for r in ("sum", "prod", "amax", "amin", "mean") for s in (True, False)]
        return (*made, x.index_reduce(0, i[:, 0], y, "amax"), b.scatter_add(0, i, y.to(torch.uint8)), b.index_add(0, i[:, 0], y.to(torch.uint8)), half.index_put((i[:, 0],), y.half(), accumulate=True))
    torch.manual_seed(0)
    x, y = torch.randint(-4, 5, (4, 3)), torch.randint(1, 5, (6, 3))
    i = torch.randint(0, 4, (6, 3))
    check_whole(fold, (x, i, y, torch.randint(0, 9, (4, 3), dtype=torch.uint8), torch.randn(4, 3).half()), tmp_path, tolerance=1e-2)


def test_products_that_no_library_takes(tmp_path):
    def products(a, b, x, w, empty, double):
        return (a @ b, torch.addmm(a[:, :2], a, b, alpha=2, beta=3), functional.conv2d(x, w, padding=1, groups=2), functional.conv_transpose1d(double, double.transpose(0, 1)[:, :, :2], stride=2),
                empty @ b[:0].float(), empty[:, None, :] @ empty[:, :, None])
    check_whole(products, (torch.randint(-9, 9, (3, 4)), torch.randint(-9, 9, (4, 2)), torch.randint(-9, 9, (1, 4, 5, 5)), torch.randint(-9, 9, (6, 2, 3, 3)), torch.randn(3, 0),
                           torch.randn(2, 3, 5, dtype=torch.float64)), tmp_path)


def test_fourier_transforms_and_complex_numbers(tmp_path):
    def transforms(x):
        spectrum = torch.fft.rfft2(x)
        product = torch.fft.fft(x)
        return torch.view_as_real(spectrum), torch.fft.irfft2(spectrum, s=x.shape[-2:]), torch.view_as_real(torch.fft.ifft(product, norm="ortho") + product), product.conj().imag
    check_whole(transforms, (torch.randn(2, 6, 9),), tmp_path)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_samplers(tmp_path, mode):
    def sample(x, g, v, h):
        planes = [functional.grid_sample(x, g, mode=mode, padding_mode=p, align_corners=c) for p in ("zeros", "border", "reflection") for c in (True, False)]
        return (*planes, functional.grid_sample(v, h, mode="nearest" if mode == "nearest" else "bilinear", align_corners=False))
    check_whole(sample, (torch.randn(2, 3, 5, 4), torch.rand(2, 6, 7, 2) * 3 - 1.5, torch.randn(1, 2, 3, 4, 5), torch.rand(1, 2, 3, 4, 3) * 2.4 - 1.2), tmp_path)


def test_masks_as_indices(tmp_path):
    def masked(x, m, rows, source):
        y = x.clone()
        y[m] = 3.0
        z = x.clone()
        z[rows] = -1.0
        return y, z, x.masked_scatter(m, source), torch.cdist(x, x[:2], p=1.0), torch.pdist(x), torch.nextafter(x, -x), torch.diagonal_scatter(x, source[:4])
    check_whole(masked, (torch.randn(4, 5), torch.rand(4, 5) > 0.5, torch.tensor([True, False, True, True]), torch.randn(20)), tmp_path)
