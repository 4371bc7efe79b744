"""as_strided counts in the memory of the tensor that owns it, whatever view it is called on: equal to PyTorch, written through or only read."""
import pytest
import torch
from torch.export import export

from conftest import pteron, run_here


def scaled(view, *strided):
    """A function that multiplies a strided part of a view by 5 in place and returns the owner."""
    def call(x):
        owner = x.clone()
        view(owner).as_strided(*strided).mul_(5)
        return owner
    return call


READS = {
    "plain": lambda x: x.as_strided((2, 3), (6, 2), 1),
    "explicit offset on a later view": lambda x: x[1:].as_strided((2, 3), (6, 2), 1),
    "offset of the view": lambda x: x[1:].as_strided((2, 3), (6, 2)),
    "offset before the view": lambda x: x[2:].as_strided((2, 2), (1, 6), 0),
    "chain": lambda x: x[1:, 2:].as_strided((2, 2), (6, 1)).as_strided((2,), (1,)),
    "chain beyond the first": lambda x: x[1:, 2:].as_strided((2, 2), (6, 1), 3).as_strided((2,), (1,), 4),
    "transposed": lambda x: x.t().as_strided((3, 4), (4, 1), 2),
    "select": lambda x: x.select(0, 2).as_strided((2, 2), (2, 1), 7),
    "after an operator": lambda x: (x + 1)[1:].as_strided((2, 3), (3, 1), 2),
    "column-major result": lambda x: (x.t() + 1).as_strided((4, 6), (6, 1), 0),
    "split": lambda x: x.split(2)[1].as_strided((2, 3), (1, 2), 3),
    "expanded": lambda x: x[1:2].expand(3, 6).as_strided((3, 2), (1, 1), 6),
    "permuted": lambda x: x.view(2, 2, 6).permute(2, 0, 1)[1:].as_strided((5,), (2,), 1),
    "diagonal": lambda x: x.diagonal().as_strided((2, 2), (6, 1), 1),
    "scatter": lambda x: torch.as_strided_scatter(x, torch.ones(2, 2), (2, 2), (6, 1), 7),
    "scatter into a view": lambda x: torch.as_strided_scatter(x[1:], torch.ones(2, 2), (2, 2), (6, 1), 7),
}
WRITES = {
    "written at an offset of its own": scaled(lambda y: y[1:], (2, 2), (6, 1), 3),
    "written at the view's offset": scaled(lambda y: y[1:], (2, 2), (6, 1)),
    "written transposed": scaled(lambda y: y.t(), (2, 2), (6, 1), 4),
    "written after in-place": scaled(lambda y: y.add_(1)[2:], (3,), (2,), 1),
}


@pytest.mark.parametrize("name", [*READS, *WRITES])
def test_equals_pytorch(tmp_path, name):
    class Net(torch.nn.Module):
        def forward(self, x):
            return {**READS, **WRITES}[name](x)

    x = torch.arange(24.0).view(4, 6)
    want = Net()(x)
    torch.export.save(export(Net(), (x.clone(),)), str(tmp_path / "m.pt2"))
    pteron("compile", tmp_path / "m.pt2", "-o", tmp_path / "m.pte")
    assert torch.equal(run_here(tmp_path / "m.pte", [[x]], tmp_path)[0][0], want)
