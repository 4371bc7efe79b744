"""Several methods in one file: weights stored once, constant methods; the same files in the official runtime."""
import json

import pytest
import torch
from torch import nn

from whole import pteron, read_tensors, run, save


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(64, 64)

    def forward(self, x):
        return self.lin(x).relu()


def both(tmp_path, *words):
    torch.manual_seed(0)
    body = Body()
    with_head = nn.Sequential(body, nn.Linear(64, 3)).eval()
    x = torch.randn(2, 64)
    save(body, (x,), tmp_path / "a.pt2")
    save(with_head, (x,), tmp_path / "b.pt2")
    said = pteron("compile", "--method", f"features={tmp_path / 'a.pt2'}", "--method", f"classify={tmp_path / 'b.pt2'}", "-o", tmp_path / "m.pte", "--json", *words)
    with torch.no_grad():
        return json.loads(said.stdout), x, body(x), with_head(x)


def test_weights_are_stored_once(tmp_path):
    said, x, features, classes = both(tmp_path, "--backend", "portable")  # a backend keeps small ones in its payloads
    assert said["weight_bytes"] == (64 * 64 + 64 + 3 * 64 + 3) * 4
    got = run(tmp_path / "m.pte", [(x,), (x,)], tmp_path, "--method", "features", "--method", "classify")
    torch.testing.assert_close(got[0][0], features)
    torch.testing.assert_close(got[1][0], classes)


CONSTANTS = {"get_vocab_size": ("256", 256), "get_scale": ("0.5", 0.5), "use_cache": ("true", True), "get_name": ("tiny", "tiny"), "get_eos": ("1,2,3", [1, 2, 3]),
             "get_minus": ("-7", -7), "get_small": ("1e-3", 1e-3)}


@pytest.mark.parametrize("profile", ["pteron", "executorch"])
def test_constant_methods(tmp_path, profile):
    words = [w for name, (text, _) in CONSTANTS.items() for w in ("--constant", f"{name}={text}")]
    both(tmp_path, "--profile", profile, *words)
    for name, (_, value) in CONSTANTS.items():
        if isinstance(value, str):
            said = pteron("run", tmp_path / "m.pte", "--method", name)
            assert said.stdout == f"0 (value): text {value}\n"
            assert json.loads(pteron("run", tmp_path / "m.pte", "--method", name, "--json").stdout)[0]["outputs"] == [{"output": 0, "name": "value", "dtype": "text", "text": value}]
            refused = pteron("run", tmp_path / "m.pte", "--method", name, "--outputs", tmp_path / "text.safetensors", expect=2).stderr
            assert "gives no tensor; leave the file out" in refused and not (tmp_path / "text.safetensors").exists()
            continue
        pteron("run", tmp_path / "m.pte", "--method", name, "--outputs", tmp_path / "o.safetensors")
        found = [t.item() for t in read_tensors(tmp_path / "o.safetensors")]
        assert found == (value if isinstance(value, list) else [value])


def test_the_official_runtime_reads_them(tmp_path):
    pytest.importorskip("executorch.exir", reason="executorch: the official package is not installed")
    from executorch.runtime import Runtime
    words = [w for name, (text, _) in CONSTANTS.items() for w in ("--constant", f"{name}={text}")]
    _, x, features, classes = both(tmp_path, "--profile", "executorch", *words)
    loaded = Runtime.get().load_program(str(tmp_path / "m.pte"))
    assert set(loaded.method_names) == {"features", "classify", *CONSTANTS}
    torch.testing.assert_close(loaded.load_method("features").execute([x])[0], features)
    torch.testing.assert_close(loaded.load_method("classify").execute([x])[0], classes)
    for name, (_, value) in CONSTANTS.items():
        if isinstance(value, str):
            continue  # the official Python runtime has no string outputs
        assert list(loaded.load_method(name).execute([])) == (value if isinstance(value, list) else [value])


def test_names_are_unique(tmp_path):
    save(Body(), (torch.randn(2, 64),), tmp_path / "a.pt2")
    for words, code in ((["--method", f"a={tmp_path / 'a.pt2'}", "--method", f"a={tmp_path / 'a.pt2'}"], 2), ([tmp_path / "a.pt2", "--constant", "forward=1"], 2),
                        ([tmp_path / "a.pt2", "--constant", "n=1", "--constant", "n=2"], 2)):
        assert "two methods named" in pteron("compile", *words, "-o", tmp_path / "m.pte", expect=code).stderr
    assert "NAME=VALUE" in pteron("compile", tmp_path / "a.pt2", "--constant", "12", "-o", tmp_path / "m.pte", expect=2).stderr


def test_compare_looks_at_text(tmp_path):
    save(Body(), (torch.randn(2, 64),), tmp_path / "a.pt2")
    for name, text in (("a", "tiny"), ("b", "tiny"), ("c", "large\x1b[2J")):
        pteron("compile", tmp_path / "a.pt2", "--constant", f"get_name={text}", "-o", tmp_path / f"{name}.pte")
    pteron("compare", tmp_path / "a.pte", tmp_path / "b.pte", "--method", "get_name")
    assert "the texts differ" in pteron("compare", tmp_path / "a.pte", tmp_path / "c.pte", "--method", "get_name", expect=1).stdout
    assert pteron("run", tmp_path / "c.pte", "--method", "get_name").stdout == "0 (value): text large\\x1b[2J\n"
