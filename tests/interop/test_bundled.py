"""Bundled programs of the official tools: run case by case here, against the outputs in them."""
import json

import pytest
import torch
from torch import nn
from torch.export import export

from conftest import pteron

bundled = pytest.importorskip("executorch.devtools.bundled_program.core", reason="executorch: its developer tools are not installed")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x, flag):
        return torch.relu(self.conv(x)), flag.logical_not(), x.sum((2, 3)).to(torch.float16)


def bundle(path, change=0.0):
    from executorch.devtools import BundledProgram
    from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
    from executorch.devtools.bundled_program.serialize import serialize_from_bundled_program_to_flatbuffer
    from executorch.exir import to_edge
    torch.manual_seed(0)
    net = Net().eval()
    calls = [(torch.randn(1, 3, 6, 5), torch.tensor([True, False])) for _ in range(3)]
    program = to_edge(export(net, calls[0])).to_executorch()
    with torch.no_grad():
        cases = [MethodTestCase(inputs=call, expected_outputs=[o + change if o.dtype == torch.float32 else o for o in net(*call)]) for call in calls]
    made = BundledProgram(program, [MethodTestSuite(method_name="forward", test_cases=cases)])
    path.write_bytes(serialize_from_bundled_program_to_flatbuffer(made))


def test_cases_agree(tmp_path):
    bundle(tmp_path / "m.bpte")
    done = pteron("run", tmp_path / "m.bpte", "--bundled")
    assert "9 of 9 expected outputs agree" in done.stdout
    rows = json.loads(pteron("run", tmp_path / "m.bpte", "--json").stdout)
    assert len(rows) == 9 and all(row["ok"] for row in rows) and {row["case"] for row in rows} == {0, 1, 2}


def test_a_case_differs(tmp_path):
    bundle(tmp_path / "m.bpte", change=0.01)
    done = pteron("run", tmp_path / "m.bpte", expect=1)
    assert "6 of 9 expected outputs agree" in done.stdout and "output 0: DIFFERS" in done.stdout
    assert "9 of 9" in pteron("run", "--model_path", tmp_path / "m.bpte", "--bundleio_atol=0.02").stdout


def test_damaged(tmp_path):
    bundle(tmp_path / "m.bpte")
    whole = (tmp_path / "m.bpte").read_bytes()
    for cut in (4, 20, len(whole) // 2, len(whole) * 9 // 10):
        (tmp_path / "c.bpte").write_bytes(whole[:cut])
        done = pteron("run", tmp_path / "c.bpte", expect=3)
        assert "c.bpte" in done.stderr
    (tmp_path / "c.bpte").write_bytes(b"\xff" * 4 + whole[4:])
    pteron("run", tmp_path / "c.bpte", expect=3)


def test_words_that_do_not_fit(tmp_path):
    bundle(tmp_path / "m.bpte")
    assert "leave --inputs" in pteron("run", tmp_path / "m.bpte", "--inputs", tmp_path / "x.npy", expect=2).stderr
    (tmp_path / "p.pte").write_bytes(b"\0\0\0\0ET12" + bytes(64))
    assert "BP08" in pteron("run", tmp_path / "p.pte", "--bundled", expect=3).stderr


@pytest.mark.parametrize("form", [["--profile", "executorch"]])
def test_the_official_runtime_checks_ours(tmp_path, form):
    """Its verifier finds our program's results within what our file expects, and finds a wrong expectation."""
    from conftest import save
    from executorch.extension.pybindings.portable_lib import _load_bundled_program_from_buffer

    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x):
            return torch.relu(self.conv(x)), x.sum((2, 3))

    torch.manual_seed(1)
    net = Plain().eval().to(memory_format=torch.channels_last)
    x = torch.randn(1, 3, 6, 5).contiguous(memory_format=torch.channels_last)
    torch.export.save(export(net, (x,)), tmp_path / "m.pt2")
    pteron("compile", tmp_path / "m.pt2", "-o", tmp_path / "m.pte", *form)
    words = ["bundle", tmp_path / "m.pte", "-o", tmp_path / "m.bpte"]
    for i in range(2):
        save(tmp_path / f"in{i}.safetensors", [torch.randn(1, 3, 6, 5)])
        words += ["--inputs", tmp_path / f"in{i}.safetensors"]
    pteron(*words)
    official = _load_bundled_program_from_buffer((tmp_path / "m.bpte").read_bytes())
    for i in range(2):
        official.verify_result_with_bundled_expected_output("forward", i, 1e-4, 1e-5)
    save(tmp_path / "wrong.safetensors", [torch.zeros(1, 4, 4, 3), torch.zeros(1, 3)])
    pteron(*words[:6], "--expected", tmp_path / "wrong.safetensors")
    wrong = _load_bundled_program_from_buffer((tmp_path / "m.bpte").read_bytes())
    with pytest.raises(RuntimeError):
        wrong.verify_result_with_bundled_expected_output("forward", 0, 1e-4, 1e-5)


def test_a_bundle_of_an_official_program(tmp_path):
    from conftest import save
    from executorch.exir import to_edge
    net, x = nn.Linear(4, 3).eval(), torch.randn(2, 4)
    (tmp_path / "m.pte").write_bytes(to_edge(export(net, (x,))).to_executorch().buffer)
    save(tmp_path / "in.safetensors", [x])
    save(tmp_path / "out.safetensors", [net(x).detach()])
    pteron("bundle", tmp_path / "m.pte", "--inputs", tmp_path / "in.safetensors", "--expected", tmp_path / "out.safetensors", "-o", tmp_path / "m.bpte")
    assert "1 of 1 expected outputs agree" in pteron("run", tmp_path / "m.bpte").stdout
