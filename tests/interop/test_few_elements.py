"""Sizes of 0 in files for the official runtime: results keep all their sizes."""
import pytest

torch = pytest.importorskip("torch", reason="executorch: torch is not installed")
from conftest import pteron, run_here, run_official  # noqa: E402

n = torch.export.Dim("n", min=0, max=6)


class Join(torch.nn.Module):
    def forward(self, x, y):
        z = torch.cat([x, y], 1)
        return z, z.sum(0), torch.cat([z, z], 0), torch.cat([z.t(), z.t()], 0).sum(1)


class JoinOf(torch.nn.Module):
    """The pieces of every call are empty."""

    def forward(self, x, y):
        return torch.cat([x[:0], y[:0]], 1), torch.cat([x[:0] + 1j, y[:0] * 1j], 1).abs()


def test_cat_of_sizes_of_zero(tmp_path):
    calls = [(torch.randn(k, 3), torch.randn(k, 4)) for k in (3, 0, 6, 0, 1)]
    torch.export.save(torch.export.export(Join(), calls[0], dynamic_shapes=({0: n}, {0: n})), tmp_path / "m.pt2")
    pteron("compile", tmp_path / "m.pt2", "-o", tmp_path / "m.pte", "--profile", "executorch")
    for got in (run_here(tmp_path / "m.pte", calls, tmp_path), run_official(tmp_path / "m.pte", calls)):
        for outs, call in zip(got, calls):
            for a, b in zip(outs, Join()(*call), strict=True):
                torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_cat_of_nothing(tmp_path):
    call = torch.randn(2, 3), torch.randn(2, 4)
    torch.export.save(torch.export.export(JoinOf(), call), tmp_path / "m.pt2")
    pteron("compile", tmp_path / "m.pt2", "-o", tmp_path / "m.pte", "--profile", "executorch")
    for got in (run_here(tmp_path / "m.pte", [call], tmp_path), run_official(tmp_path / "m.pte", [call])):
        for a, b in zip(got[0], JoinOf()(*call), strict=True):
            assert a.shape == b.shape
