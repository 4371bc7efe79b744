"""Concatenations in the CPU engine: what makes their parts writes them in place, whatever else reads the parts, and what cannot is copied."""
import copy

import pytest

torch = pytest.importorskip("torch")

from whole import check_calls, compile_model, eager, run  # noqa: E402

F = torch.nn.functional
cat = torch.cat


class Blocks(torch.nn.Module):
    """A function of x [2, 8, 9, 10] and convolutions a, b, c: 8 to 8, 8 to 12 and 8 to 6 channels, d: 20 to 8; a product; an upsampling; a constant."""

    def __init__(self, fn):
        super().__init__()
        torch.manual_seed(3)
        conv = torch.nn.Conv2d
        self.a, self.b, self.c, self.d = conv(8, 8, 3, padding=1), conv(8, 12, 1), conv(8, 6, 3, padding=1), conv(20, 8, 3, padding=1)
        self.line, self.up = torch.nn.Linear(8, 8), torch.nn.ConvTranspose2d(8, 5, 2, stride=2)
        self.register_buffer("k", torch.randn(2, 3, 9, 10))
        self.fn = fn

    def forward(self, x):
        return self.fn(self, x)


def silu_block(m, x):
    first, second = m.a(x).chunk(2, 1)
    return cat([first, second, F.silu(m.c(x))[:, :4] + second], 1)


# name: (how many concatenations are calls, the function)
CASES = {
    "two_producers": (0, lambda m, x: m.d(cat([F.silu(m.a(x)), m.b(x)], 1))),
    "a_producer_that_others_read": (0, lambda m, x: (lambda a: m.d(cat([a, m.b(a)], 1)) + m.a(a))(F.relu(m.a(x)))),
    "read_after_the_join": (1, lambda m, x: (lambda a: (lambda y: F.relu(y * 2 + 1) + cat([a + 1, m.b(a)], 1))(cat([a, m.b(a)], 1)))(m.a(x))),
    "in_two_joins": (1, lambda m, x: (lambda a: m.d(cat([a, m.b(x)], 1)) + m.d(cat([a, m.b(a)], 1)))(m.a(x))),
    "the_same_value_twice": (1, lambda m, x: (lambda a: cat([a, a, m.b(x)], 1) * 2)(m.a(x))),
    "an_input": (1, lambda m, x: m.d(cat([x, m.b(x)], 1))),
    "a_constant": (1, lambda m, x: cat([m.k, m.b(x)], 1).sigmoid()),
    "a_view": (1, lambda m, x: cat([m.a(x)[:, 1:5], m.b(x)], 1).sigmoid()),
    "a_view_that_is_a_copy": (0, lambda m, x: cat([m.a(x).transpose(2, 3).reshape(2, 8, 9, 10), m.b(x)], 1).sigmoid()),
    "all_parts_of_a_split": (0, lambda m, x: (lambda a: m.d(cat([a[0], a[1], m.b(x)], 1)))(m.a(x).chunk(2, 1))),
    "a_split_part_feeds_the_next": (0, silu_block),
    "parts_of_a_split_in_another_order": (1, lambda m, x: (lambda a: m.d(cat([a[1], a[0], m.b(x)], 1)))(m.a(x).chunk(2, 1))),
    "one_part_of_a_split": (1, lambda m, x: (lambda a: cat([a[0], m.b(x)], 1).sigmoid())(m.a(x).chunk(2, 1))),
    "nothing_but_a_split": (0, lambda m, x: cat(m.a(x).chunk(4, 1), 1).sigmoid()),
    "split_along_rows": (0, lambda m, x: cat(m.a(x).split(4, 2), 2).sigmoid()),
    "a_split_joined_elsewhere": (1, lambda m, x: cat(m.a(x).chunk(2, 1), 0).sigmoid()),
    "activation_and_residual": (0, lambda m, x: (lambda a: m.d(cat([F.silu(m.a(a)) + a, m.b(a)], 1)))(F.silu(m.a(x)))),
    "a_join_of_joins": (0, lambda m, x: cat([cat([m.a(x), m.b(x)], 1), m.c(x)], 1).sigmoid()),
    "a_join_of_joins_read_between": (0, lambda m, x: (lambda y: cat([y, F.relu(m.d(y))], 1).sigmoid())(cat([m.a(x), m.b(x)], 1))),
    "a_part_is_a_result": (1, lambda m, x: (lambda a: (a, m.d(cat([a, m.b(x)], 1))))(m.a(x))),
    "the_join_is_a_result": (0, lambda m, x: cat([m.a(x), m.b(x)], 1)),
    "rows_are_a_result": (0, lambda m, x: cat([m.a(x).flatten(1).relu() * 2, m.b(x).flatten(1).sigmoid() + 1], 1)),
    "joined_batches": (0, lambda m, x: m.c(cat([F.relu(m.a(x)), m.a(m.a(x))], 0))),
    "joined_columns": (0, lambda m, x: cat([m.a(x), F.relu(m.a(m.a(x)))], -1).tanh()),
    "pools": (0, lambda m, x: (lambda a: (lambda b: cat([a, b, F.max_pool2d(b, 3, 1, 1)], 1).tanh())(F.max_pool2d(a, 5, 1, 2)))(F.silu(m.a(x)))),
    "upsampled": (0, lambda m, x: cat([F.interpolate(m.a(x), scale_factor=2.0), F.interpolate(m.b(x), scale_factor=2.0)], 1).tanh()),
    "turned_rows_of_a_product": (0, lambda m, x: m.d(cat([F.relu(m.line(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)), m.b(x)], 1)[:, :20])),
    "a_transposed_convolution": (0, lambda m, x: cat([m.up(x), F.interpolate(m.b(x), scale_factor=2.0)], 1).tanh()),
    "other_dtypes": (1, lambda m, x: cat([m.a(x), (x > 0).to(torch.int32)], 1).tanh()),
    "nothing_at_all": (1, lambda m, x: cat([x[:, :0], m.a(x), torch.zeros(0)], 1).tanh()),
    "a_reader_that_wants_rows": (1, lambda m, x: (lambda a: cat([a, m.b(x)], 1).tanh().sum() + F.layer_norm(a, (9, 10)))(m.a(x))),
}


@pytest.mark.parametrize("name", CASES)
def test_joins(tmp_path, name):
    calls, fn = CASES[name]
    model = Blocks(fn).eval()
    x = torch.randn(2, 8, 9, 10)
    program, said = compile_model(copy.deepcopy(model), (x,), tmp_path)
    assert sum(g["kernels"].count("aten::cat.out") for g in said["groups"]) == calls
    inputs = [(x,), (torch.randn(2, 8, 9, 10),)]
    for threads in (1, 2):
        for got, want in zip(run(program, inputs, tmp_path, "--threads", threads), eager(model, inputs), strict=True):
            for a, b in zip(got, want, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


class Lines(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(12, 20), torch.nn.Linear(12, 7)

    def forward(self, x):
        columns = cat([F.gelu(self.a(x)), self.b(x).tanh() + 1, x * 2], -1)
        rows = cat([self.a(x), F.silu(self.a(x)) + self.a(x)], -2)
        return columns * 3, rows.sigmoid()


def test_rows_and_columns_of_products(tmp_path):
    torch.manual_seed(5)
    model, x = Lines().eval(), torch.randn(3, 5, 12)
    _, said = compile_model(copy.deepcopy(model), (x,), tmp_path)
    assert sum(g["kernels"].count("aten::cat.out") for g in said["groups"]) == 0
    check_calls(model, [(x,), (torch.randn(3, 5, 12),)], tmp_path)


def test_sizes_that_vary(tmp_path):
    n, h = torch.export.Dim("n", min=1, max=5), torch.export.Dim("h", min=3, max=20)
    model = Blocks(lambda m, x: m.d(cat([F.silu(m.a(x)) + x, m.b(x)], 1)) + cat(m.a(x).chunk(2, 1), 1)).eval()
    calls = [(torch.randn(*s),) for s in ((2, 8, 9, 10), (1, 8, 3, 10), (5, 8, 20, 10), (3, 8, 7, 10))]
    check_calls(model, calls, tmp_path, dynamic_shapes=({0: n, 2: h},))

