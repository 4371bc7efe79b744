"""Control flow: exact with views, aliases and outer values inside branches; loop-carried tensors are not copied in the loop."""
import pytest
import torch
from torch import nn
from torch._higher_order_ops import associative_scan, map as map_op, scan, while_loop

from whole import check_calls, compile_model, pteron, run, save


def model(forward, **buffers):
    net = type("Model", (nn.Module,), {"forward": forward})()
    for name, value in buffers.items():
        net.register_buffer(name, value)
    return net


def instructions(program):
    lines = pteron("inspect", "--instructions", program).stdout.splitlines()
    return [line.split()[1] for line in lines if line.startswith("  ") and line.split()[0].isdigit()]


def branches(self, a):
    row = a[1]
    def yes(a, row):
        inner = torch.cond(row.sum() > 1, lambda r: r.detach() * 2, lambda r: r[:].clone(), (row,))
        return a.t().contiguous().view(a.shape) + 1, inner
    def no(a, row):
        return a.clone(), a[2].detach() - row
    y, z = torch.cond(a.sum() > 0, yes, no, (a, row))
    return y + a, z * row


def loop(self, a):
    def more(i, v, w):
        return i < 5
    def body(i, v, w):
        return i + 1, v * 0.5 + w, w + v.sum()
    return while_loop(more, body, (torch.tensor(0), a, a * 2))


def swapping(self, a):
    def more(i, v, w):
        return i < 3
    def body(i, v, w):
        return i + 1, w.clone(), v + w
    return while_loop(more, body, (torch.tensor(0), a, a * 2))


def outer_values(self, a):
    scale = a.abs().max()
    def more(i, v):
        return i < 4
    def body(i, v):
        return i + 1, torch.where(v > scale, v - scale, v + self.w[1])
    return while_loop(more, body, (torch.tensor(0), a))[1] + scale


def scanned(self, a):
    def step(c, x):
        c = c * 0.5 + x
        return c.clone(), (c * 2).clone()
    return scan(step, a[0] * 0, a, dim=0)


def mapped(self, a):
    return map_op(lambda x, s: x.cumsum(0) * s, a, a[0])


def nested_loops(self, a):
    def inner(v, k):
        return while_loop(lambda i, u: i < k, lambda i, u: (i + 1, u + 1), (torch.tensor(0), v))[1]
    return while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, torch.cond(v.sum() > 0, lambda u: u - 1, lambda u: u + 2, (v,))), (torch.tensor(0), a))


CASES = {"branches": branches, "loop": loop, "swapping": swapping, "outer_values": outer_values, "scanned": scanned, "mapped": mapped, "nested_loops": nested_loops}


@pytest.mark.parametrize("profile", ["pteron", "executorch"])
@pytest.mark.parametrize("name", CASES)
def test_exact(tmp_path, name, profile):
    calls = [(torch.randn(3, 4),), (-torch.ones(3, 4),), (torch.ones(3, 4),)]
    net = model(CASES[name], w=torch.randn(3, 4))
    try:
        torch.export.export(net, calls[0])
    except Exception as error:
        pytest.skip(f"torch.export does not take it: {type(error).__name__}: {error}"[:200])
    check_calls(net, calls, tmp_path, "--profile", profile)


@pytest.mark.parametrize("profile", ["pteron", "executorch"])
@pytest.mark.parametrize("decompose", [False, True])
def test_associative_scan(tmp_path, decompose, profile):
    """As exported it holds operators of vmap's own machinery; decomposed it is a plain program."""
    net = model(lambda self, a: associative_scan(lambda x, y: x + y, a, 0, combine_mode="generic"))
    try:
        exported = torch.export.export(net, (torch.randn(4, 3),))
    except Exception as error:
        pytest.skip(f"torch.export does not take it: {type(error).__name__}")
    torch.export.save(exported.run_decompositions() if decompose else exported, str(tmp_path / "m.pt2"))
    pteron("compile", tmp_path / "m.pt2", "-o", tmp_path / "m.pte", "--profile", profile)
    a = torch.randn(4, 3)
    torch.testing.assert_close(run(tmp_path / "m.pte", [(a,)], tmp_path)[0][0], net(a))


def test_a_loop_copies_no_carry(tmp_path):
    """Each iteration computes into the carry's own memory: no clone between the loop's test and its jump back."""
    def forward(self, a):
        return while_loop(lambda i, v: i < 5, lambda i, v: (i + 1, v * 0.5 + 1), (torch.tensor(0), a))
    program, _ = compile_model(model(forward), (torch.randn(3, 4),), tmp_path)
    listed = instructions(program)
    first, last = listed.index("jump_false"), len(listed) - 1 - listed[::-1].index("jump_false")
    assert not any("clone" in name or "copy" in name for name in listed[first:last]), listed


def test_a_branch_computes_its_result_in_place(tmp_path):
    def forward(self, a):
        return torch.cond(a.sum() > 0, lambda a: a * 2, lambda a: a + 1, (a,))
    program, _ = compile_model(model(forward), (torch.randn(3, 4),), tmp_path)
    assert not any("clone" in name for name in instructions(program))


def test_a_conversion_that_the_export_lost_is_refused(tmp_path):
    """Strict exports take a.float() for a itself inside a region without autocast; their own program fails as well."""
    class Lost(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                a = self.linear(x)
                with torch.autocast("cpu", enabled=False):
                    b = self.linear(a.float())
            return a, b

    save(Lost(), (torch.randn(2, 8),), tmp_path / "strict.pt2", strict=True)
    assert "the export asserts that" in pteron("compile", tmp_path / "strict.pt2", "-o", tmp_path / "m.pte", expect=4).stderr
    save(Lost(), (torch.randn(2, 8),), tmp_path / "free.pt2", strict=False)
    pteron("compile", tmp_path / "free.pt2", "-o", tmp_path / "m.pte")


def test_refusals_come_all_at_once(tmp_path):
    """An operator that is refused and a form that a decomposition refuses, in one message."""
    def forward(self, x, y):
        return torch.bernoulli(x.sigmoid()), torch.linalg.solve(y, y)
    save(model(forward), (torch.randn(2, 4, 4, 4), torch.randn(3, 3, dtype=torch.complex64)), tmp_path / "m.pt2")
    said = pteron("compile", tmp_path / "m.pt2", "-o", tmp_path / "m.pte", expect=4).stderr
    assert "aten::bernoulli" in said and "linalg_solve" in said


def test_official_antialiased_resize_takes_no_batch_that_varies(tmp_path):
    def forward(self, x):
        return torch.nn.functional.interpolate(x, size=(5, 6), mode="bilinear", antialias=True)
    save(model(forward), (torch.randn(2, 3, 9, 8),), tmp_path / "m.pt2", dynamic_shapes=[{0: torch.export.Dim("b", max=5)}])
    pteron("compile", tmp_path / "m.pt2", "-o", tmp_path / "m.pte", "--profile", "executorch")
    assert "upsample_bilinear2d_aa" not in pteron("inspect", tmp_path / "m.pte").stdout  # taken apart
