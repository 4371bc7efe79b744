"""Operators that the CUDA engine spells out in others, and forms that are easily got wrong: nothing is left to another backend, and the results are eager's."""
import pytest
import torch
from torch.nn import functional

from whole import ROOT, Call, check_calls, compile_model, pteron, run

EMULATED = ["--backend", "cuda", "--spec", "cuda:arch=source"]


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    driver = ROOT / "build" / "release" / "lib" / "libpteron_cuda_emulator.so"
    if not driver.is_file():
        pytest.fail(f"{driver} is missing: run ./dev build")
    monkeypatch.setenv("PTERON_CUDA_DRIVER", str(driver))


def check_whole(fn, args, folder, **more):
    """All nodes are the delegate's, and the results those of eager."""
    check_calls(Call(fn), [args], folder, *EMULATED, **more)
    said = pteron("explain", folder / "m.pt2", "--backend", "cuda").stdout
    assert "not on cuda" not in said, said


def test_rows_of_one_element(tmp_path):
    """What reads the row beside its sum stands outside of the loop over the columns."""
    check_whole(lambda x: (x.sum(1) + x[:, 0], torch.softmax(x, 1) * x), (torch.randn(5, 1),), tmp_path)


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
