"""Tensors that share memory in eager and are written afterwards: conj views, einsum of one operand, memory formats, sizes of one."""
import pytest
import torch

from whole import Call, check_calls, compile_model, pteron, run

torch.manual_seed(0)
X, PAIRS = torch.randn(4, 6), torch.randn(3, 2)


def both_ways(view):
    """The view after a write to its base, and the base after a write to its view."""
    def run_both(x):
        a = x.clone()
        v = view(a)
        a.add_(1)
        b = x.clone()
        w = view(b)
        w.mul_(2)
        return v * 1, b, w * 1
    return run_both


VIEWS = {
    "einsum ij->ji": lambda x: torch.einsum("ij->ji", x),
    "einsum ii->i": lambda x: torch.einsum("ii->i", x[:, :4]),
    "einsum ij->ij": lambda x: torch.einsum("ij->ij", x),
    "einsum ijk->kji": lambda x: torch.einsum("ijk->kji", x.view(2, 2, 6)),
    "einsum ...->...": lambda x: torch.einsum("...->...", x),
    "einsum with a sum": lambda x: torch.einsum("ijk->jk", x[None]),
    "lift": lambda x: torch.ops.aten.lift(x),
    "to channels last, one image": lambda x: x[None, None].to(memory_format=torch.channels_last),
    "to channels last, no pixels": lambda x: x.view(4, 6, 1, 1).to(memory_format=torch.channels_last),
    "to channels last, no width": lambda x: x.view(2, 2, 6, 1).to(memory_format=torch.channels_last),
    "to channels last, full": lambda x: x.view(1, 2, 2, 6).to(memory_format=torch.channels_last),
    "to channels last, is": lambda x: x.view(1, 2, 2, 6).permute(0, 3, 1, 2).to(memory_format=torch.channels_last),
    "to row-major": lambda x: x.t().to(memory_format=torch.contiguous_format),
    "contiguous in channels last": lambda x: x[None, None].contiguous(memory_format=torch.channels_last),
    "contiguous in channels last, no pixels": lambda x: x.view(4, 6, 1, 1).contiguous(memory_format=torch.channels_last),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views(name, tmp_path):
    check_calls(Call(both_ways(VIEWS[name])), [(X,)], tmp_path)


def conj_then_write(x):
    z = torch.view_as_complex(x).clone()
    w, twice, copy = z.conj(), z.conj().conj(), z.conj().resolve_conj()
    z.add_(1)
    return torch.view_as_real(w.resolve_conj()), torch.view_as_real(twice), torch.view_as_real(copy), w.abs()


def write_through_conj(x):
    z = torch.view_as_complex(x).clone()
    w = z.conj()
    w.mul_(2j)
    w[0] = 3 + 1j
    return torch.view_as_real(z), torch.view_as_real(w.resolve_conj())


def parts_of_conj(x):
    z = torch.view_as_complex(x).clone()
    real, imag, copy = z.conj().real, z.conj().imag, z.conj().imag.resolve_neg()
    z.add_(z * 1j)
    first = imag + 0
    imag.mul_(3)
    return first, real + 0, copy + 0, torch.view_as_real(z)


def transposed(x):
    z = torch.view_as_complex(x).clone().view(3, 1)
    h, a = z.mH, z.adjoint()
    z.add_(1j)
    product = z @ h
    a.mul_(2)
    return torch.view_as_real(product), torch.view_as_real(z)


@pytest.mark.parametrize("fn", (conj_then_write, write_through_conj, parts_of_conj, transposed))
def test_conj(fn, tmp_path):
    check_calls(Call(fn), [(PAIRS,)], tmp_path)


def copy_then_write(x):
    a = x.clone()
    y, z = a.t().contiguous(), a.t().reshape(-1)
    a.add_(1)
    return y, z


def write_the_copy(x):
    a = x.clone()
    y = a.t().contiguous()
    y.add_(1)
    return y, a


def nothing_shared(x):
    a = x.clone()
    a.add_(1)
    y = a.t().contiguous()
    y.mul_(2)
    return y, y.sum()


DYNAMIC = {"dynamic_shapes": (({0: torch.export.Dim("n", min=1, max=8)},),)}


@pytest.mark.parametrize("fn", (copy_then_write, write_the_copy))
def test_sizes_that_decide(fn, tmp_path):
    """At one row the copy would be the tensor itself: that size is refused, others are right."""
    check_calls(Call(fn), [(torch.randn(n, 4),) for n in (3, 2, 8)], tmp_path, **DYNAMIC)
    program, _ = compile_model(Call(fn), (torch.randn(3, 4),), tmp_path, **DYNAMIC)
    assert "is below two: PyTorch makes a tensor there that shares memory" in run(program, [(torch.randn(1, 4),)], tmp_path, expect=6)


def test_sizes_that_do_not_show(tmp_path):
    """Writes that only their own tensor sees refuse no size."""
    check_calls(Call(nothing_shared), [(torch.randn(n, 4),) for n in (3, 1)], tmp_path, **DYNAMIC)


def part_of(view, write):
    """A write to a part of a view that shows elements of its base in several places."""
    def program(x):
        base = x.clone()
        shown = view(base)
        write(shown)
        return base, shown * 1
    return program


REPEATED = {
    "row of an expand, added to": part_of(lambda y: y[0].unsqueeze(0).expand(3, 6), lambda z: z[1].add_(5)),
    "row of an expand, set": part_of(lambda y: y[0].expand(3, 6), lambda z: z[2].copy_(z[0] * 2)),
    "piece of a row of an expand": part_of(lambda y: y[:, :1].expand(4, 3), lambda z: (z[:, 2].add_(1), z[1:3, 0].mul_(5))),
    "inside of other views": part_of(lambda y: y[1:3].unsqueeze(1).expand(2, 3, 6), lambda z: z[:, 1, ::2].sub_(4)),
    "broadcast tensors": part_of(lambda y: torch.broadcast_tensors(y[0], torch.zeros(2, 6))[0], lambda z: z[1].add_(1)),
    "meshgrid": part_of(lambda y: torch.meshgrid(y[0], torch.arange(2.0), indexing="ij")[0], lambda z: z[:, 1].add_(3)),
    "all of an expand, filled": part_of(lambda y: y[0].expand(3, 6), lambda z: z.fill_(7)),
    "rows of an expand, zeroed": part_of(lambda y: y[0].expand(3, 6), lambda z: z[1:].zero_()),
    "an expand of nothing": part_of(lambda y: y[:0].unsqueeze(1).expand(0, 3, 6), lambda z: z.index_fill_(1, torch.tensor([2]), 0.5)),
    "window of an unfold": part_of(lambda y: y.unfold(1, 2, 1), lambda z: z[0, 0].zero_()),
    "windows of an unfold that do not meet": part_of(lambda y: y.unfold(1, 3, 1), lambda z: z[:, 1::3, 1:].add_(10)),
    "windows with gaps, all of them": part_of(lambda y: y.view(4, 3, 2).unfold(1, 1, 2), lambda z: z.neg_()),
    "row of as_strided": part_of(lambda y: y.view(-1).as_strided((2, 3), (1, 1)), lambda z: z[0].fill_(5)),
    "rows of as_strided, one after the other": part_of(lambda y: y.view(-1).as_strided((2, 3), (1, 1)), lambda z: (z[1].add_(2), z[0].mul_(2))),
}


@pytest.mark.parametrize("name", REPEATED)
def test_parts_of_views_with_repeated_elements(name, tmp_path):
    check_calls(Call(REPEATED[name]), [(X,)], tmp_path)


MASK = torch.tensor([[True] + [False] * 5, [False, True] + [False] * 4])
ORDERED = {
    "masked_fill_": lambda z: z.masked_fill_(MASK, -9.0),
    "index_put_": lambda z: z.index_put_((torch.tensor([1]),), torch.tensor(7.0)),
    "index_fill_": lambda z: z.index_fill_(0, torch.tensor([1]), 3.0),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ORDERED)
def test_writes_to_repeated_elements_are_refused(name, tmp_path):
    torch.export.save(torch.export.export(Call(part_of(lambda y: y[0].expand(2, 6), ORDERED[name])), (X,)), str(tmp_path / "m.pt2"))
    said = pteron("compile", tmp_path / "m.pt2", "-o", tmp_path / "m.pte", expect=4).stderr
    assert "writes to a view whose elements share memory" in said and not (tmp_path / "m.pte").exists(), said
