"""State: updated where it lives, exact with aliases and branches, private to a method unless shared."""
import pytest
import torch
from torch import nn

from whole import check_calls, compile_model, pteron, run, save

SLOTS, WIDTH = 2048, 32
CACHE_BYTES = 2 * SLOTS * WIDTH * 4


class Cache(nn.Module):
    """One attention step over a cache that `write` updates."""

    def __init__(self, write, shape=(1, 2, SLOTS, WIDTH)):
        super().__init__()
        self.write = write
        self.register_buffer("keys", torch.zeros(shape))
        self.register_buffer("values", torch.zeros(shape))

    def forward(self, k, pos):
        self.write(self.keys, k, pos)
        self.write(self.values, k * 2, pos)
        return torch.nn.functional.scaled_dot_product_attention(k, self.keys.view(1, 2, SLOTS, WIDTH), self.values.view(1, 2, SLOTS, WIDTH))


def index_copy(cache, k, pos):
    cache.index_copy_(2, pos, k)


def index_put(cache, k, pos):
    cache[:, :, pos] = k


def narrow_item(cache, k, pos):
    start = pos.item()
    torch._check(start >= 0)
    torch._check(start + 1 <= cache.shape[2])
    cache.narrow(2, start, 1).copy_(k)


def nested_slices(cache, k, pos):
    cache[:1, :, 5:6] = k


def through_select(cache, k, pos):
    cache[0].index_copy_(1, pos, k[0])


def through_two_views(cache, k, pos):
    cache[0][:, 3:9].mul_(0.5).add_(1)


def whole(cache, k, pos):
    cache.mul_(0.5).add_(k)


FORMS = [index_copy, index_put, narrow_item, nested_slices, through_select, through_two_views, whole]


BACKENDS = ["portable", "cpu", "null:all"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("write", FORMS, ids=lambda f: f.__name__)
def test_a_cache_is_not_copied(tmp_path, write, backend):
    calls = [(torch.randn(1, 2, 1, WIDTH), torch.tensor([n])) for n in (0, 1, 2)]
    said = check_calls(Cache(write), calls, tmp_path, "--backend", backend)
    # Planned memory is where a copy would have to be: there is room for the two caches and not for a third.
    arena = said["methods"][0]["arena_bytes"] + sum(group["memory_bytes"] for group in said["groups"])
    assert 2 * CACHE_BYTES <= arena < 2 * CACHE_BYTES + CACHE_BYTES // 2
    kernels = said["operators"] + [name for group in said["groups"] for name in group["kernels"]]
    assert kernels and not any("copy_" in name or "clone" in name for name in kernels if write is not narrow_item), kernels


def instructions(program):
    lines = [line.split() for line in pteron("inspect", "--instructions", program).stdout.splitlines()]
    return [words for words in lines if words and words[0].isdigit()]


def test_instructions_write_the_cache_in_place(tmp_path):
    program, _ = compile_model(Cache(index_put), (torch.randn(1, 2, 1, WIDTH), torch.tensor([0])), tmp_path, "--backend", "portable")
    puts = [words for words in instructions(program) if "index_put" in words[1]]
    assert len(puts) == 2
    for words in puts:
        numbers = [w.strip("[],") for w in words[2:]]
        assert numbers[0] == numbers[-1], words  # self and out are one value


def test_a_delegate_gets_one_value_for_old_and_new_cache(tmp_path):
    program, _ = compile_model(Cache(index_put), (torch.randn(1, 2, 1, WIDTH), torch.tensor([0])), tmp_path)
    calls = instructions(program)
    assert len(calls) == 1 and calls[0][1] == "delegate"
    args = [int(w) for w in calls[0][3].strip("[]").split(",")]
    inputs, outputs = args[:-3], args[-3:]
    assert len(set(inputs) & set(outputs)) == 2, calls[0]


class OldValueLeaves(nn.Module):
    """The old bytes are results or read outside of the group: they must survive the write."""

    def __init__(self, split):
        super().__init__()
        self.split = split
        self.register_buffer("b", torch.arange(4096.0))
        self.register_buffer("c", torch.zeros(4096))

    def forward(self, x):
        old = self.b * 1
        before = self.b.clone()
        self.b.add_(x)
        if self.split:  # nonzero stays outside of every group, between two writes
            self.b.mul_(torch.nonzero(self.b > 1).sum() * 0 + 2)
        self.c.copy_(before)
        return old, self.b, before, self.c + self.b


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_old_values_survive(tmp_path, backend, split):
    calls = [(torch.randn(4096),) for _ in range(3)]
    check_calls(OldValueLeaves(split), calls, tmp_path, "--backend", backend)


class Mutates(nn.Module):
    def forward(self, x, y):
        x.mul_(2)
        y[0] = x.sum()
        return x + 1, y


@pytest.mark.parametrize("backend", BACKENDS)
def test_mutated_inputs_are_the_callers(tmp_path, backend):
    check_calls(Mutates(), [(torch.randn(8), torch.randn(3)), (torch.randn(8), torch.randn(3))], tmp_path, "--backend", backend)


def test_the_official_runtime_keeps_the_cache(tmp_path):
    pytest.importorskip("executorch.exir", reason="executorch: the official package is not installed")
    from executorch.runtime import Runtime
    module = Cache(index_put)
    calls = [(torch.randn(1, 2, 1, WIDTH), torch.tensor([n])) for n in (0, 7)]
    program, _ = compile_model(module, calls[0], tmp_path, "--profile", "executorch")
    method = Runtime.get().load_program(str(program)).load_method("forward")
    fresh = Cache(index_put)
    for call in calls:
        with torch.no_grad():
            torch.testing.assert_close(method.execute(list(call))[0], fresh(*call), rtol=1e-4, atol=1e-4)


class Views(nn.Module):
    """Reads old and new values around writes, through views that share memory."""

    def __init__(self):
        super().__init__()
        self.register_buffer("b", torch.arange(12.0).reshape(3, 4))
        self.register_buffer("c", torch.ones(3, 4))

    def forward(self, x):
        old = self.b * 1
        row = self.b[1]
        self.b[1] += x
        seen = row * 2                     # a view sees the write
        self.b.mul_(2)
        before = self.c + 0
        self.c.copy_(self.b.t().reshape(3, 4))
        self.b.t().add_(before.t())
        return old, row.clone(), seen, self.b, before, self.c[2]


class Overlap(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("w", torch.arange(8.0))

    def forward(self, x):
        last = self.w.clone()
        self.w[1:] = last[:-1]
        self.w[0] = x
        self.w += self.w.flip(0)
        return self.w.sum(), self.w.view(2, 4)[1], last


class Swap(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("a", torch.zeros(4))
        self.register_buffer("b", torch.ones(4))

    def forward(self, x):
        a = self.a.clone()
        self.a.copy_(self.b)
        self.b.copy_(a + x)
        return self.a, self.b, self.a + self.b


class MovingMean(nn.Module):
    """The old value is read after the new one is computed: the new one waits for its place."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x):
        shifted = x - self.mean
        self.mean.lerp_(x.mean(0), 0.25)
        return shifted, self.mean


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.zeros(4))

    def forward(self, x):
        y = torch.cond(x.sum() > 0, lambda n, x: n + x, lambda n, x: n * 2 - x, (self.n, x))
        kept = self.n * 3
        self.n.copy_(y)
        return y, kept, self.n.sum()


class ReadAfter(nn.Module):
    """The old value is an operand of what comes after the write: no place for the new one but a second one."""

    def __init__(self):
        super().__init__()
        self.register_buffer("s", torch.arange(6.0))

    def forward(self, x):
        old = self.s.clone()
        self.s.add_(x)
        return torch.cat([old, self.s]), (old * self.s).cumsum(0)


@pytest.mark.parametrize("module", [Views(), Overlap(), Swap(), Branches(), ReadAfter(), MovingMean()], ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("option", ["--profile=executorch", *(f"--backend={name}" for name in BACKENDS)])
def test_exact(tmp_path, module, option):
    size = {"Views": (4,), "Overlap": (), "Swap": (4,), "Branches": (4,), "ReadAfter": (6,), "MovingMean": (4, 3)}[type(module).__name__]
    calls = [(torch.randn(size),) for _ in range(4)]
    check_calls(module, calls, tmp_path, *option.split("="))


class Counter(nn.Module):
    def __init__(self, start, step):
        super().__init__()
        self.register_buffer("count", torch.tensor(float(start)))
        self.step = step

    def forward(self, x):
        self.count += self.step
        return x * 0 + self.count


class Peek(nn.Module):
    def __init__(self, start):
        super().__init__()
        self.register_buffer("count", torch.tensor(float(start)))

    def forward(self, x):
        return x * 0 + self.count


def two_methods(tmp_path, first, second, *words, expect=0):
    x = torch.zeros(2)
    save(first, (x,), tmp_path / "a.pt2")
    save(second, (x,), tmp_path / "b.pt2")
    return pteron("compile", "--method", f"prefill={tmp_path / 'a.pt2'}", "--method", f"decode={tmp_path / 'b.pt2'}", "-o", tmp_path / "m.pte", *words, expect=expect)


def call_in_turn(tmp_path, *names):
    words = [w for name in names for w in ("--method", name)]
    return [float(out[0][0]) for out in run(tmp_path / "m.pte", [(torch.zeros(2),)] * len(names), tmp_path, *words)]


def test_equal_names_are_two_buffers(tmp_path):
    two_methods(tmp_path, Counter(10, 1), Counter(100, 1))
    assert call_in_turn(tmp_path, "prefill", "decode", "prefill", "decode") == [11, 101, 12, 102]


def test_a_shared_state_is_one_buffer(tmp_path):
    two_methods(tmp_path, Counter(10, 1), Counter(10, 5), "--share-state", "count")
    assert call_in_turn(tmp_path, "prefill", "decode", "prefill", "decode") == [11, 16, 17, 22]


def test_a_shared_state_that_one_method_only_reads(tmp_path):
    two_methods(tmp_path, Counter(3, 1), Peek(3), "--share-state", "count")
    assert call_in_turn(tmp_path, "decode", "prefill", "decode") == [3, 4, 4]


def test_what_cannot_be_shared_is_refused(tmp_path):
    assert "different initial values" in two_methods(tmp_path, Counter(1, 1), Counter(2, 1), "--share-state", "count", expect=2).stderr
    assert "no method has a buffer 'cache'" in two_methods(tmp_path, Counter(1, 1), Counter(1, 1), "--share-state", "cache", expect=2).stderr


def test_the_official_runtime_keeps_methods_apart(tmp_path):
    pytest.importorskip("executorch.exir", reason="executorch: the official package is not installed")
    from executorch.runtime import Runtime
    two_methods(tmp_path, Counter(10, 1), Counter(100, 1), "--profile", "executorch")
    # Its Python package gives all methods of one loaded program the same memory: two programs.
    prefill, decode = (Runtime.get().load_program(str(tmp_path / "m.pte")).load_method(name) for name in ("prefill", "decode"))
    x = torch.zeros(2)
    assert [float(m.execute([x])[0][0]) for m in (prefill, decode, prefill, decode)] == [11, 101, 12, 102]
