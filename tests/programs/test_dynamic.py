"""Sizes that vary: every form of Dim, sizes that depend on data, checks at call time; a smaller call after a larger one is as right as before."""
import pytest
import torch
from torch import nn
from torch.export import Dim

from whole import check_calls, compile_model, run


def model(forward):
    return type("Model", (nn.Module,), {"forward": lambda self, *args: forward(*args)})()


def x(*sizes):
    return torch.arange(float(torch.Size(sizes).numel())).reshape(sizes) / 7 - 1


n, m = Dim("n", min=1, max=8), Dim("m", min=2, max=6)
AUTO = Dim.AUTO

# name: function, calls, dynamic_shapes, [(refused call, part of the message)]
FORMS = {
    "range": (lambda a: (a.cumsum(0), a.flip(0) @ a.t()), [(x(k, 3),) for k in (3, 8, 1, 5)], ({0: n},), [((x(9, 3),), "input 0 (a")]),
    "derived_odd": (lambda a, b: (a[1:] * 2, torch.cat([a, b])), [(x(2 * k + 1), x(k)) for k in (2, 6, 1)], ({0: 2 * Dim("k", min=1, max=6) + 1}, {0: Dim("k", min=1, max=6)}),
                    [((x(6), x(2)), "input")]),
    "multiple_of_four": (lambda a: a.view(-1, 4).sum(1), [(x(4 * k),) for k in (2, 5, 1)], ({0: 4 * Dim("k", min=1, max=5)},), [((x(6),), "input 0 (a"), ((x(24),), "input 0 (a")]),
    "equal_dims": (lambda a, b, c: a + b * c, [(x(k, 2), x(k, 2), x(k, 1)) for k in (3, 8, 1)], ({0: n}, {0: n}, {0: n}), [((x(3, 2), x(4, 2), x(3, 1)), "input 1 (b")]),
    "shifted": (lambda a, b: a[1:] + b, [(x(k + 1), x(k)) for k in (3, 7, 1)], ({0: Dim("k", min=1, max=7) + 1}, {0: Dim("k", min=1, max=7)}), [((x(3), x(3)), "input")]),
    "two_dims": (lambda a: (a.t().reshape(-1), a.mean(1), a.new_zeros(a.shape[1], a.shape[0])), [(x(i, j),) for i, j in ((3, 4), (8, 2), (1, 6))], ({0: n, 1: m},),
                 [((x(3, 7),), "input 0 (a")]),
    "auto": (lambda a, b: torch.cat([a, b], 1).softmax(1), [(x(3, 4), x(3, 2)), (x(7, 2), x(7, 9)), (x(2, 3), x(2, 3))],
             ({0: Dim.AUTO(min=1, max=16), 1: Dim.AUTO(min=1, max=16)}, {0: Dim.AUTO(min=1, max=16), 1: Dim.AUTO(min=1, max=16)}), [((x(3, 4), x(2, 2)), "input")]),
    "arithmetic": (lambda a: (torch.arange(a.shape[0] * 2 + 1), torch.full((a.shape[0] // 2 + 1,), a.shape[0] % 3), a.new_zeros(a.shape[0] % 3 + 2)),
                   [(x(k),) for k in (4, 8, 1, 3)], ({0: n},), []),
    "window": (lambda a: (a[:: 2], a[-2:], a[1:-1].cumsum(0)), [(x(k),) for k in (5, 8, 4)], ({0: Dim("w", min=4, max=8)},), [((x(3),), "input 0 (a")]),
    "outer": (lambda a, b: (a[:, None] - b[None]).abs().amin(1), [(x(i), x(j)) for i, j in ((3, 4), (8, 6), (1, 2))], ({0: n}, {0: m}), []),
    "pooling": (lambda a: (nn.functional.max_pool2d(a, 2), nn.functional.avg_pool2d(a, 2, 1)), [(x(1, 2, 4, k),) for k in (6, 12, 4)], ({3: Dim("w", min=4, max=12)},), []),
    "matmul_constant_left": (lambda a: torch.ones(2, 3) @ a, [(x(3, k),) for k in (2, 8, 1)], ({1: n},), []),
    "number_of_elements": (lambda a: a.sum() / a.numel() + a.shape[0], [(x(k, 3),) for k in (2, 8, 1)], ({0: n},), []),
}


def names_of(forward):
    return forward.__code__.co_varnames[:forward.__code__.co_argcount]


@pytest.mark.parametrize("name", FORMS)
def test_form(tmp_path, name):
    forward, calls, shapes, refused = FORMS[name]
    source = f"class Model(nn.Module):\n    def __init__(self, f):\n        super().__init__()\n        self.f = f\n    def forward(self, {', '.join(names_of(forward))}):\n" \
             f"        return self.f({', '.join(names_of(forward))})\n"
    space = {"nn": nn}
    exec(source, space)  # inputs get the names of the function's arguments
    check_calls(space["Model"](forward), calls, tmp_path, dynamic_shapes=shapes)
    for call, text in refused:
        assert text in run(tmp_path / "m.pte", [call], tmp_path, expect=5)


def pairs(a, b):
    return a.reshape(-1, 2, 4) * (1 if a.shape[0] > b.shape[0] else -1), b * 2


def test_conditions_name_input_and_dim(tmp_path):
    """What the export assumed of sizes, in the tool's own words."""
    auto = {0: AUTO(min=2, max=16)}
    program, _ = compile_model(model(pairs), (x(8, 4), x(3, 4)), tmp_path, dynamic_shapes=((auto, auto),))
    odd = run(program, [(x(5, 4), x(2, 4))], tmp_path, expect=5)
    assert "input 0 (args_0): size of dim 0: expected " in odd and "==0, found 5" in odd
    other = run(program, [(x(4, 4), x(6, 4))], tmp_path, expect=5)
    assert " = 6 (input 1 (args_1): size of dim 0)" in other and " = 4 (input 0 (args_0): size of dim 0)" in other
    assert "L['" not in odd + other and "size()" not in odd + other


def test_checks_say_what_they_are_about(tmp_path):
    """A condition of torch._check on a number that a tensor holds, and on a number and a size."""
    def forward(a, k):
        k = k.item()
        torch._check(k >= 0)
        torch._check(k % 3 != 2)
        torch._check(k <= a.shape[0])
        return a * k
    program, _ = compile_model(model(forward), (x(6, 3), torch.tensor(4)), tmp_path, dynamic_shapes=(({0: AUTO(min=2, max=16)}, None),))
    for size, k, text in ((6, 5, "where u0 is the number of aten::item at programs/test_dynamic.py:"), (3, 4, "is size of dim 0 of input 'args_0'")):
        said = run(program, [(x(size, 3), torch.tensor(k))], tmp_path, expect=6)
        assert text in said and "Runtime assertion" not in said and "node '" not in said, said


def test_plan_that_fits_no_machine(tmp_path):
    """Terabytes of planned memory: the method, the arena, the bytes, and what there is."""
    import resource
    import subprocess
    huge = {0: Dim("p", min=1, max=10**6), 1: Dim("q", min=1, max=10**6)}
    program, said = compile_model(model(lambda a: (a * 2).cumsum(0).cumsum(1)), (x(2, 3),), tmp_path, "--backend", "portable", dynamic_shapes=((huge,),))
    from whole import TOOL, write_tensors
    write_tensors(tmp_path / "in.safetensors", [x(2, 3)])
    limit = 1 << 34
    done = subprocess.run([str(TOOL), "run", str(program), "--inputs", str(tmp_path / "in.safetensors")], capture_output=True, text=True, timeout=60,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    assert done.returncode == 7, done.stderr
    assert "method forward: arena 1 (planned memory): out of memory: " in done.stderr
    assert "TiB) were asked for" in done.stderr and "the machine has" in done.stderr and "the process may have 16.0 GiB" in done.stderr


def test_two_symbols_of_one_size_stay_two(tmp_path):
    """Both dims are 4 in the example; nothing may tie or freeze them."""
    check_calls(model(lambda a, b: a.sum() + b.cumsum(0)), [(x(4), x(4)), (x(2), x(6))], tmp_path, dynamic_shapes=(({0: Dim("p", min=1, max=8)}, {0: Dim("q", min=1, max=8)}),))


def counted(a, k):
    k = k.item()
    torch._check(k >= 2)
    torch._check(k <= a.shape[0])
    return a[:k].sum(0), torch.arange(k), torch.zeros(k, 3) + a[0]


def test_item_decides_sizes(tmp_path):
    calls = [(x(6, 3), torch.tensor(k)) for k in (4, 6, 2)]
    check_calls(model(counted), calls, tmp_path)
    for k in (1, 7, -1):
        assert "the value is" in run(tmp_path / "m.pte", [(x(6, 3), torch.tensor(k))], tmp_path, expect=6)


def test_item_that_decides_no_size_is_checked_as_well(tmp_path):
    def forward(a, k):
        k = k.item()
        torch._check(k >= 3)
        torch._check(k < 20)
        return a * k
    check_calls(model(forward), [(x(2), torch.tensor(k)) for k in (3, 19)], tmp_path)
    message = run(tmp_path / "m.pte", [(x(2), torch.tensor(20))], tmp_path, expect=6)
    assert "the value is 20" in message and "[3, 19]" in message and "test_dynamic.py" in message


DATA = {
    "nonzero": lambda a: (a.nonzero(), a[a > 0] * 2),
    "mask_rows": lambda a: a[a.sum(1) > 0].cumsum(0),
    "nonzero_of_mask": lambda a: torch.where(a > 0.5)[0] + 1,
    "masked_select": lambda a: a.masked_select(a > 0).cos(),
}


@pytest.mark.parametrize("name", DATA)
def test_sizes_from_data(tmp_path, name):
    few, none, many = x(3, 4), -x(3, 4).abs() - 1, x(3, 4).abs() + 1
    check_calls(model(DATA[name]), [(few,), (many,), (none,), (few,)], tmp_path)


def test_repeated_numbers_of_rows(tmp_path):
    """Every size at its bound, below it, and at it again."""
    net = nn.Sequential(nn.Conv1d(2, 3, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.LazyLinear(4))
    net(x(1, 2, 6))
    calls = [(torch.randn(k, 2, 6),) for k in (8, 1, 8, 3)]
    check_calls(net, calls, tmp_path, dynamic_shapes=({0: n},))


def test_check_tensor_all(tmp_path):
    def forward(a):
        torch._check_tensor_all(a > 0, lambda: "a must be positive")
        return a.log()
    net = model(forward)
    try:
        torch.export.export(net, (x(4).abs() + 1,))
    except Exception as error:
        pytest.skip(f"torch.export does not take it: {type(error).__name__}")
    check_calls(net, [(x(4).abs() + 1,)], tmp_path)
    run(tmp_path / "m.pte", [(x(4) - 5,)], tmp_path, expect=6)


def test_sym_ite(tmp_path):
    def forward(a):
        n = a.shape[0]
        return a.new_ones(torch.sym_ite(n > 5, n, n + 1)) * 2
    net = model(forward)
    try:
        torch.export.export(net, (x(4),), dynamic_shapes=(({0: Dim("p", min=2, max=8)},),))
    except Exception as error:
        pytest.skip(f"torch.export does not take it: {type(error).__name__}")
    check_calls(net, [(x(k),) for k in (4, 8, 5, 6)], tmp_path, dynamic_shapes=(({0: Dim("p", min=2, max=8)},),))


def test_slice_written_on_a_constant_base(tmp_path):
    def forward(a):
        base = torch.zeros(6, 2)
        base[1:4] = a
        base[:, 0] += 1
        return base
    check_calls(model(forward), [(x(3, 2),), (x(3, 2) * 2,)], tmp_path)
