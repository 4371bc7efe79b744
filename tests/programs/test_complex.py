"""Complex Python numbers as arguments: they become tensors, or are refused with everything else."""
import pytest
import torch

from whole import Call, check_calls, compile_model, pteron, save


def written(write):
    def run(x):
        y = x.clone()
        write(y)
        return y
    return run


def set_row(y):
    y[0] = 2j


torch.manual_seed(0)
REAL, COMPLEX, INTS, MASK = torch.randn(3, 4), torch.randn(3, 4, dtype=torch.complex64), torch.arange(12).reshape(3, 4), torch.rand(3, 4) > 0.5
CASES = {
    "product of floats": (lambda x: x * 2j, (REAL,)),
    "product of complex": (lambda x: x * (1 + 2j), (COMPLEX,)),
    "product of ints": (lambda x: x * 2j, (INTS,)),
    "product of doubles": (lambda x: torch.view_as_real(x * 0.1j), (REAL.double(),)),
    "product of 0-d doubles": (lambda x: torch.view_as_real(x * 0.1j), (REAL.double().sum(),)),
    "sums": (lambda x: (x + 2j, 2j + x, x - 2j, 2j - x), (REAL,)),
    "quotients": (lambda x: (x / 2j, 2j / x), (COMPLEX,)),
    "powers": (lambda x: (x ** 2j, 2j ** x), (COMPLEX,)),
    "powers in double": (lambda x: (torch.view_as_real(x.float_power(1j)), torch.view_as_real(x.float_power(3)), torch.view_as_real(torch.float_power(2, x))), (COMPLEX,)),
    "inside vmap": (lambda x: torch.vmap(lambda row: row * 2j + torch.full_like(row, 1j))(x), (COMPLEX,)),
    "branches": (lambda x: torch.cond(x.abs().sum() > 1, lambda x: x * 2j, lambda x: x + 1j, (x,)), (COMPLEX,)),
    "comparisons": (lambda x: (x == 2j, x != 2j), (COMPLEX,)),
    "full": (lambda x: (torch.full((2, 3), 1 + 2j), torch.full_like(x, 2j), x.new_full((2,), 2j), torch.tensor(2j) * x), (COMPLEX,)),
    "where": (lambda x, m: (torch.where(m, x, 2j), torch.where(m, 2j, x), torch.where(m, 2j, 1.0)), (COMPLEX, MASK)),
    "masked_fill": (lambda x, m: x.masked_fill(m, 2j), (COMPLEX, MASK)),
    "index_fill": (lambda x: x.index_fill(0, torch.tensor([0]), 2j), (COMPLEX,)),
    "scatter": (lambda x: x.scatter(0, torch.zeros(1, 4, dtype=torch.long), 2j), (COMPLEX,)),
    "factors": (lambda x: (torch.add(x, x, alpha=2j), torch.sub(x, x, alpha=2j), torch.addcmul(x, x, x, value=2j)), (COMPLEX,)),
    "in place": (written(lambda y: y.mul_(2j)), (COMPLEX,)),
    "fill": (written(lambda y: y.fill_(2j)), (COMPLEX,)),
    "assignment": (written(set_row), (COMPLEX,)),
    "spread": (lambda x: (x.var(), x.std(0), x.var(1, correction=2, keepdim=True), *torch.var_mean(x, (0, 1), correction=0), *torch.std_mean(x, 1), x.t().var(0), x[:1].var(0).isnan()), (COMPLEX,)),
    "spread in double": (lambda x: (x.to(torch.complex128).var(0), torch.view_as_real(torch.std_mean(x.to(torch.complex128).t(), 1)[1])), (COMPLEX,)),
    "sums of exponentials": (lambda x: (x.logsumexp(0), x.logsumexp((0, 1), True), (x * 300).logsumexp(1), torch.view_as_real(x.to(torch.complex128).t().logsumexp(0))), (COMPLEX,)),
    "inverse": (lambda x: (x[:, :3].inverse(), torch.linalg.inv(torch.stack([x[:, 1:], x[:, :3] * 2])), torch.view_as_real(torch.linalg.inv_ex(x[:, :3].to(torch.complex128))[0]), torch.linalg.det(x[:, :3])), (COMPLEX,)),
    "rotation": (lambda x: torch.exp(x * 2j).real, (REAL,)),
}


@pytest.mark.parametrize("name", CASES)
def test_complex_numbers(name, tmp_path):
    fn, args = CASES[name]
    check_calls(Call(fn), [args], tmp_path)


def test_sizes_that_vary(tmp_path):
    module = Call(lambda x: (x * 2j + 1j).abs())
    rows = torch.export.Dim("rows", min=1, max=8)
    check_calls(module, [(torch.randn(5, 4),), (torch.randn(1, 4),), (torch.randn(8, 4),)], tmp_path, dynamic_shapes={"args": ({0: rows},)})


@pytest.mark.parametrize("name", ["product of floats", "product of complex", "sums"])
def test_official_kernels(name, tmp_path):
    fn, args = CASES[name]
    check_calls(Call(fn), [args], tmp_path, "--profile", "executorch")


def test_all_refusals_at_once(tmp_path):
    def several(x):
        return torch.linalg.solve(x[:3, :3], x[:3, 3]), torch.addmm(x[:3, :3], x, x.mT, alpha=2j), torch.linspace(0, 2j, 5), x * 2j
    save(Call(several), (COMPLEX,), tmp_path / "m.pt2")
    said = pteron("compile", tmp_path / "m.pt2", "-o", tmp_path / "m.pte", expect=4).stderr
    for text in ("aten::linalg_solve", "linear algebra of complex64", "aten::addmm", "a complex number as argument 'alpha'", "aten::linspace", "3 unsupported operators:"):
        assert text in said, said
    assert not (tmp_path / "m.pte").exists()


def test_all_refusals_of_the_official_profile_at_once(tmp_path):
    """Missing kernels, forms that official kernels get wrong, and sizes without a bound."""
    def several(x, n):
        return torch.histc(x, 4), torch.view_as_real((x * 2j).exp()), torch.special.erfcx(x.double()), torch.repeat_interleave(x[0], n)
    save(Call(several), (torch.randn(4, 4), torch.tensor([1, 2, 0, 1])), tmp_path / "m.pt2")
    said = pteron("compile", tmp_path / "m.pt2", "-o", tmp_path / "m.pte", "--profile", "executorch", expect=4).stderr
    for text in ("aten::histc", "aten::exp", "takes no complex numbers", "aten::special_erfcx", "size u", "--max-size"):
        assert text in said, said


def test_all_sizes_without_a_bound_at_once(tmp_path):
    def several(x, y, n):
        return torch.repeat_interleave(x, n), torch.repeat_interleave(y, n + 1)
    save(Call(several), (torch.randn(3), torch.randn(3), torch.tensor([1, 2, 0])), tmp_path / "m.pt2")
    said = pteron("compile", tmp_path / "m.pt2", "-o", tmp_path / "m.pte", expect=4).stderr
    assert said.count("  size u") == 2 and said.count("--max-size") == 1 and "first in aten::repeat_interleave.Tensor at " in said, said
    pteron("compile", tmp_path / "m.pt2", "-o", tmp_path / "m.pte", "--max-size", "16")


def test_files_that_hold_no_double_complex(tmp_path):
    """Said before the first call; an .npz holds them."""
    program, _ = compile_model(Call(lambda x: x * 2j), (REAL.double(),), tmp_path)
    from safetensors.torch import save_file
    save_file({"0": REAL.double()}, str(tmp_path / "in.safetensors"))
    said = pteron("run", program, "-i", tmp_path / "in.safetensors", "-o", tmp_path / "y.safetensors", expect=2).stderr
    assert "safetensors have no dtype complex128" in said and ".npz" in said
    pteron("run", program, "-i", tmp_path / "in.safetensors", "-o", tmp_path / "y.npz")
    import numpy
    torch.testing.assert_close(torch.from_numpy(numpy.load(tmp_path / "y.npz")["0"]), REAL.double() * 2j)
