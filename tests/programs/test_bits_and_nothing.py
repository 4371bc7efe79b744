"""Tensors read as another dtype; matrices without elements; dtypes and operators that are refused when compiling, never first in a run."""
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from whole import Call, check_calls, compile_model, pteron, run, save

PROFILES = [(), ("--backend", "portable")]


@pytest.mark.parametrize("words", PROFILES)
@pytest.mark.parametrize("order,size", [(order, size) for order in (1, -1, 2, float("inf"), "fro", "nuc") for size in ((3, 0), (0, 0), (2, 0, 3), (2, 3, 3))
                                        if not isinstance(order, str) or size[-1] == size[-2]])
def test_condition_numbers(tmp_path, order, size, words):
    torch.manual_seed(0)
    check_calls(Call(lambda x: torch.linalg.cond(x, order)), [(torch.randn(size),)], tmp_path, *words)


@pytest.mark.parametrize("order", [1, "fro"])
def test_condition_number_of_singular_matrices(tmp_path, order):
    x = torch.stack([torch.zeros(2, 2), torch.tensor([[1.0, 2], [2, 4]]), torch.eye(2)])
    program, _ = compile_model(Call(lambda x: torch.linalg.cond(x, order)), (x,), tmp_path)
    found = run(program, [(x,)], tmp_path)[0][0]
    torch.testing.assert_close(found, torch.linalg.cond(x, order))


@pytest.mark.parametrize("call", [lambda x: torch.linalg.pinv(x, hermitian=True), lambda x: torch.linalg.matrix_rank(x, hermitian=True)])
def test_hermitian_matrix_of_nothing(tmp_path, call):
    check_calls(Call(call), [(torch.zeros(2, 0, 0),)], tmp_path)


def bits_written(x):
    y = x.clone()
    bits = y.view(torch.int32)
    bits.add_(1)
    small = y.view(torch.uint8)
    small[0, :4] = 0
    return y, bits, small, y.view(torch.int16), y.sum(1)


BITS = {
    "same size": lambda x: (x.view(torch.int32), x.clone().view(torch.int32) + 1, x.t().view(torch.int32)),
    "other sizes": lambda x: (x.view(torch.uint8), x.view(torch.int16) + 1, x.view(torch.int64), x.view(torch.float64).view(torch.int32)),
    "written": bits_written,
    "input written": lambda x: (x.view(torch.int32)[0].zero_(), x + 1)[1],
    "bools": lambda x: (x > 0).view(torch.uint8) + (x > 0).to(torch.uint8).view(torch.bool),
}


@pytest.mark.parametrize("words", PROFILES)
@pytest.mark.parametrize("name", BITS)
def test_views_as_another_dtype(tmp_path, name, words):
    torch.manual_seed(0)
    check_calls(Call(BITS[name]), [(torch.randn(4, 6),), (torch.randn(4, 6),)], tmp_path, *words)


class Buffers(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("b", torch.arange(4.0))
        self.register_buffer("bits", torch.zeros(4, dtype=torch.int32))

    def forward(self, x):
        self.bits.copy_((x + self.b).view(torch.int32))
        self.b.view(torch.int32)[0] = self.bits[1]
        return self.bits.view(torch.float32) * 2, self.b


@pytest.mark.parametrize("words", PROFILES)
def test_buffers_written_as_another_dtype(tmp_path, words):
    torch.manual_seed(0)
    check_calls(Buffers(), [(torch.randn(4),), (torch.randn(4),)], tmp_path, *words)


NOTHING = {
    "index_fill": (lambda x: x.index_fill(1, torch.tensor([5]), 9.0), (0, 0)),
    "cummax": (lambda x: tuple(x.cummax(1)), (0,)),
}


@pytest.mark.parametrize("name", NOTHING)
def test_indices_of_nothing(tmp_path, name):
    call, size = NOTHING[name]
    check_calls(Call(call), [(torch.zeros(size),)], tmp_path)


DTYPES = [torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64]
CALLS = {
    "eq": lambda x: x == x,
    "ne": lambda x: x != 3,
    "mul": lambda x: x * 2,
    "and": lambda x: x & 3,
    "sum": lambda x: x.sum(),
    "flip": lambda x: x.flip(0),
    "pad": lambda x: F.pad(x, (1, 1)),
    "where": lambda x: torch.where(x.to(torch.complex64).real > 3, x, x),
    "inv": lambda x: torch.linalg.inv(x),
    "logsumexp": lambda x: x.logsumexp(0),
    "logcumsumexp": lambda x: x.logcumsumexp(0),
    "sinc": lambda x: x.sinc(),
    "std": lambda x: x.std(),
    "householder": lambda x: torch.linalg.householder_product(x, x[0]),
    "nuclear": lambda x: torch.linalg.matrix_norm(x, "nuc"),
    "sort": lambda x: torch.sort(x)[0],
    "scatter": lambda x: x.scatter(0, torch.zeros(1, 3, dtype=torch.int64), x),
}


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_rare_dtype_runs_or_is_refused_when_compiling(tmp_path, dtype):
    """Never a clean compile and a run that does not take the dtype."""
    x = torch.tensor([[1.0, 7, 3], [4, 5, 6], [2, 9, 1]]).to(dtype)
    refused = []
    for name, call in CALLS.items():
        try:
            want = call(x)
            save(Call(call), (x,), tmp_path / "m.pt2")
        except (RuntimeError, NotImplementedError):
            continue
        done = pteron_either(tmp_path)
        if done.returncode == 4:
            assert "unsupported operator" in done.stderr and "aten::" in done.stderr
            refused.append(name)
            continue
        assert done.returncode == 0, done.stderr
        found = run(tmp_path / "m.pte", [(x,)], tmp_path)[0][0]
        if found.dtype in DTYPES[:5]:
            found, want = found.to(torch.float64), want.to(torch.float64)
        torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-4, msg=name)
    if dtype in (torch.uint16, torch.uint32):
        assert refused == []
    if dtype == torch.complex64:
        assert {"sinc", "nuclear"} <= set(refused) and not {"sum", "inv", "std", "logsumexp"} & set(refused)


def pteron_either(folder):
    import subprocess
    from whole import TOOL
    return subprocess.run([str(TOOL), "compile", str(folder / "m.pt2"), "-o", str(folder / "m.pte")], capture_output=True, text=True, timeout=60)


def test_sizes_that_vary_are_tried_too(tmp_path):
    n = torch.export.Dim("n", min=2, max=16)
    x = torch.randn(3, 3, dtype=torch.complex64)
    save(Call(lambda x: x.sinc()), (x,), tmp_path / "m.pt2", dynamic_shapes={"args": ({1: n},)})
    assert "complex64" in pteron("compile", tmp_path / "m.pt2", "-o", tmp_path / "m.pte", expect=4).stderr


class Square(nn.Module):
    def __init__(self, wrap):
        super().__init__()
        self.wrap = wrap

    def forward(self, x):
        return x.clone().fill_diagonal_(3.0, wrap=self.wrap)


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("size", [(3, 3), (3, 5), (9, 3), (3, 3, 3)])
def test_fill_diagonal(tmp_path, size, wrap):
    torch.manual_seed(0)
    check_calls(Square(wrap), [(torch.randn(size),)], tmp_path)


SMALL = {
    "fftfreq": lambda x: (torch.fft.fftfreq(9, 0.5), torch.fft.fftfreq(4), torch.fft.rfftfreq(8, 0.1), torch.fft.rfftfreq(1), x),
    "tensorsolve": lambda x: torch.linalg.tensorsolve(x.view(2, 3, 6), x[0].view(2, 3)),
    "tensorsolve of dims": lambda x: torch.linalg.tensorsolve(x.view(2, 6, 3), x[0].view(2, 3), dims=(1,)),
}


@pytest.mark.parametrize("name", SMALL)
def test_small_composites(tmp_path, name):
    torch.manual_seed(0)
    check_calls(Call(SMALL[name]), [(torch.randn(6, 6) + 4 * torch.eye(6),)], tmp_path)


@torch.library.custom_op("pteron_bits::write", mutates_args={"x"})
def write(x: torch.Tensor, k: float) -> None:
    x.add_(k)


def write_to_copy(x):
    y = x.clone()
    torch.ops.pteron_bits.write(y, 2.0)
    return y


def test_an_operator_that_writes_is_named(tmp_path):
    program = torch.export.export(Call(write_to_copy), (torch.randn(3),)).run_decompositions()
    torch.export.save(program, str(tmp_path / "m.pt2"))
    said = pteron("compile", tmp_path / "m.pt2", "-o", tmp_path / "m.pte", expect=4).stderr
    assert "calls pteron_bits::write, which writes its arguments" in said


class Several(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.LSTM(4, 5)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.layer(x)[0]
        return y, torch.rand(3), write_to_copy(x)


def test_an_early_refusal_names_the_later_ones(tmp_path):
    save(Several(), (torch.randn(3, 2, 4),), tmp_path / "m.pt2")
    said = pteron("compile", tmp_path / "m.pt2", "-o", tmp_path / "m.pte", expect=4).stderr
    for word in ("aten::rand ", "pteron_bits::write"):
        assert word in said, said


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("antialias", [False, True])
def test_bytes_to_a_single_column(tmp_path, mode, antialias):
    """With more than four channels PyTorch gives row-major images every row's weights from the first one; channels-last images would need the layout kept."""
    def call(x):
        return torch.nn.functional.interpolate(x, size=(70, 1), mode=mode, antialias=antialias)

    x = torch.randint(0, 256, (2, 6, 40, 33), dtype=torch.uint8)
    check_calls(Call(call), [(x,)], tmp_path)
    said = pteron("compile", save(Call(call), (x.contiguous(memory_format=torch.channels_last),), tmp_path / "last.pt2"), "-o", tmp_path / "last.pte", expect=4).stderr
    assert "to a single column" in said, said
