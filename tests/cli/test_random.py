"""Operators that draw random numbers: refused by default, with --allow-random compiled; seeds, shapes and distributions."""
import math

import pytest

torch = pytest.importorskip("torch")
from safetensors.torch import load_file, save_file  # noqa: E402

COUNT = 40000


class Draws(torch.nn.Module):
    """Each result is one distribution over as many elements as x has."""

    def forward(self, x):
        p = x * 0 + 0.3
        return (torch.rand_like(x), torch.randn_like(x), torch.randint_like(x, -3, 5), torch.bernoulli(p), torch.nn.functional.dropout(x + 1, 0.25, True),
                x.clone().uniform_(-2, 6), x.clone().normal_(1, 2), x.clone().exponential_(2.0), x.clone().geometric_(0.25), torch.poisson(p * 10), torch.poisson(p * 100),
                torch.normal(p, 0.5), x.clone().log_normal_(0, 0.25), x.clone().bernoulli_(0.1), x.clone().random_(7), x.clone().cauchy_(1, 2),
                torch.nn.functional.rrelu(x - 1, 0.25, 0.75, True))


# mean and standard deviation of every result; None where there is none
EXPECTED = [(0.5, 1 / math.sqrt(12)), (0, 1), (0.5, math.sqrt(63 / 12)), (0.3, math.sqrt(0.21)), (1, math.sqrt(1 / 3)), (2, 8 / math.sqrt(12)), (1, 2), (0.5, 0.5),
            (4, math.sqrt(12)), (3, math.sqrt(3)), (30, math.sqrt(30)), (0.3, 0.5), (math.exp(1 / 32), math.exp(1 / 32) * math.sqrt(math.expm1(1 / 16))), (0.1, 0.3),
            (3, 2), None, (-0.5, 0.5 / math.sqrt(12))]


@pytest.fixture(scope="module")
def draws(pteron, tmp_path_factory):
    folder = tmp_path_factory.mktemp("random")
    torch.export.save(torch.export.export(Draws(), (torch.zeros(COUNT // 200, 200),)), folder / "draws.pt2")
    save_file({"0": torch.zeros(COUNT // 200, 200)}, folder / "in.safetensors")
    refused = pteron("compile", folder / "draws.pt2")
    assert refused.returncode == 4 and "--allow-random" in refused.stderr and "aten::rand_like" in refused.stderr
    assert not (folder / "draws.pte").exists()
    done = pteron("compile", folder / "draws.pt2", "--allow-random")
    assert done.returncode == 0, done.stderr
    return folder


def run(pteron, folder, *options, calls=1):
    outs = [folder / f"out{i}.safetensors" for i in range(calls)]
    arguments = [a for out in outs for a in ("--inputs", folder / "in.safetensors", "--outputs", out)]
    done = pteron("run", folder / "draws.pte", *arguments, *options)
    assert done.returncode == 0, done.stderr
    return [load_file(out) for out in outs]


def test_distributions(pteron, draws):
    results = run(pteron, draws)[0]
    for i, expected in enumerate(EXPECTED):
        got = results[str(i)].double()
        assert got.shape == (COUNT // 200, 200)
        if expected is None:
            assert abs(got.median().item() - 1) < 0.1
            continue
        mean, deviation = expected
        assert abs(got.mean().item() - mean) < 5 * deviation / math.sqrt(COUNT), f"result {i}: mean {got.mean()}"
        assert abs(got.std().item() - deviation) < 0.06 * deviation + 0.01, f"result {i}: deviation {got.std()}"
    uniform, normal = results["0"], results["1"]
    assert 0 <= uniform.min() and uniform.max() < 1 and uniform.unique().numel() > 0.99 * COUNT * 0.98
    assert torch.histc(uniform, 10, 0, 1).sub(COUNT / 10).abs().max() < 6 * math.sqrt(COUNT / 10)
    assert (normal.abs() < 1).double().mean().sub(0.6827).abs() < 0.015
    assert sorted(results["2"].unique().tolist()) == list(range(-3, 5))
    assert sorted(results["14"].unique().tolist()) == list(range(7))
    assert set(results["4"].unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    assert abs(torch.corrcoef(torch.stack([uniform[:, :-1].flatten(), uniform[:, 1:].flatten()]))[0, 1]) < 0.03


def same(a, b):
    return all(torch.equal(a[k], b[k]) for k in a)


def test_seeds(pteron, draws):
    first, second = run(pteron, draws, "--seed", "7", calls=2)
    again = run(pteron, draws, "--seed", "7", "--threads", "1")[0]
    other = run(pteron, draws, "--seed", "8")[0]
    assert same(first, again), "the same seed gives the same numbers on any number of threads"
    assert not torch.equal(first["0"], second["0"]), "the second call goes on in the stream"
    assert not torch.equal(first["0"], other["0"])


class Whole(torch.nn.Module):
    def forward(self, x, p):
        return torch.randperm(50), torch.randperm(x.shape[0]), torch.multinomial(p, 4), torch.multinomial(p, 3000, True), torch.nn.functional.dropout(x, 0.5, False)


def test_permutations_and_samples(pteron, tmp_path):
    weights = torch.tensor([[0.1, 0.2, 0.0, 0.3, 0.4], [1.0, 1.0, 2.0, 4.0, 0.0]])
    x = torch.randn(6, 3)
    archive = tmp_path / "whole.pt2"
    torch.export.save(torch.export.export(Whole(), (x, weights)), archive)
    save_file({"0": x, "1": weights}, tmp_path / "in.safetensors")
    assert pteron("compile", archive, "--allow-random").returncode == 0
    done = pteron("run", tmp_path / "whole.pte", "--inputs", tmp_path / "in.safetensors", "--outputs", tmp_path / "out.safetensors")
    assert done.returncode == 0, done.stderr
    out = load_file(tmp_path / "out.safetensors")
    assert sorted(out["0"].tolist()) == list(range(50)) and out["0"].tolist() != list(range(50))
    assert sorted(out["1"].tolist()) == list(range(6))
    assert [sorted(r) for r in out["2"].tolist()] == [[0, 1, 3, 4], [0, 1, 2, 3]]
    for row, p in zip(out["3"], weights):
        share = torch.bincount(row, minlength=5) / 3000
        assert (share - p / p.sum()).abs().max() < 0.05
    assert torch.equal(out["4"], x)
