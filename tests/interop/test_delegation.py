"""Programs of several backends: what each takes, where weights are, what the official package reads of the file. Archives: tests/archives/make_delegates.py."""
import json

import numpy as np
import pytest
import torch
from conftest import ROOT, pteron as tool
from safetensors.numpy import load_file, save_file

DELEGATES = ROOT / "tests" / "archives" / "delegates"


def pteron(*words):
    return tool(*words).stdout


def plans_of(path):
    from executorch.exir._serialize._program import deserialize_pte_binary
    read = deserialize_pte_binary(path.read_bytes())
    return getattr(read, "program", read).execution_plan


@pytest.mark.parametrize("external", [False, True])
def test_a_mixed_program(tmp_path, external):
    archive, program = DELEGATES / "mixed.pt2", tmp_path / "m.pte"
    report = json.loads(pteron("compile", archive, "-o", program, "--backend", "cpu,null:all:1", "--exclude", "cpu=mm", "--exclude", "cpu=erfinv", "--json",
                               *(["--external-weights=w"] if external else [])))
    kernels = {}
    for group in report["groups"]:
        kernels.setdefault(group["backend"], []).extend(group["kernels"])
    assert any(k.startswith("aten::mm") for k in kernels["null:all"]) and any(k.startswith("aten::erfinv") for k in kernels["null:all"])
    assert not any("mm" in k or "erfinv" in k for k in kernels["cpu"]) and report["operators"] == []
    assert [b["devices"] for b in report["backends"]] == [[], ["cuda:1"]]
    assert (tmp_path / "w.ptd").exists() == external
    if external:
        entries = json.loads(pteron("inspect", tmp_path / "w.ptd", "--json"))
        assert any(e.get("size_bytes") == 6 * 6 * 4 for e in entries["entries"]), entries
    x = np.random.default_rng(3).standard_normal((4, 6), dtype=np.float32)
    save_file({"x": x}, tmp_path / "x.safetensors")
    pteron("run", program, "--inputs", tmp_path / "x.safetensors", "--outputs", tmp_path / "y.safetensors")
    eager = torch.export.load(archive).module()(torch.from_numpy(x))
    (found,) = load_file(tmp_path / "y.safetensors").values()
    np.testing.assert_allclose(found, eager.detach().numpy(), rtol=1e-5, atol=1e-6)
    (plan,) = plans_of(program)
    devices = {d.id: [bytes(s.value) for s in d.compile_specs if s.key == "target_device"] for d in plan.delegates}
    assert devices == {"PteronCpuBackend": [], "PteronNullBackend": [b"cuda:1"]}
    shown = pteron("inspect", program)
    assert "target_device = cuda:1" in shown


def test_one_delegate_has_no_data_file(tmp_path):
    pteron("compile", DELEGATES / "mixed.pt2", "-o", tmp_path / "m.pte")
    assert [p.name for p in tmp_path.iterdir()] == ["m.pte"]
    (plan,) = plans_of(tmp_path / "m.pte")
    assert [d.id for d in plan.delegates] == ["PteronCpuBackend"]


def test_methods_with_and_without_delegates(tmp_path):
    pteron("compile", "--method", f"a={DELEGATES / 'mixed.pt2'}", "--method", f"b={DELEGATES / 'residual.pt2'}", "--backend", "null", "-o", tmp_path / "m.pte")
    assert all(not plan.delegates for plan in plans_of(tmp_path / "m.pte"))
    save_file({"x": np.ones((3, 10), np.float32)}, tmp_path / "x.safetensors")
    pteron("run", tmp_path / "m.pte", "--method", "b", "--inputs", tmp_path / "x.safetensors")


def test_memory_of_devices_is_the_official_form(tmp_path):
    """The official reader sees whose memory it is; its Python runtime, which has no device, asks for it."""
    program = tmp_path / "m.pte"
    pteron("compile", ROOT / "tests" / "archives" / "engines" / "buffer.pt2", "-o", program, "--device-outputs")
    (plan,) = plans_of(program)
    assert [(d.buffer_idx, int(d.device_type), d.device_index) for d in plan.non_const_buffer_device] == [(2, 1, 1)]
    assert len(plan.non_const_buffer_sizes) == 3
    operators = [f"{op.name}.{op.overload}" for op in plan.operators]
    assert operators == ["et_copy::_h2d_copy.out", "et_copy::_d2h_copy.out"]
    for value in (v.val for v in plan.values):
        info = getattr(value, "allocation_info", None)
        if info is not None:
            extra = value.extra_tensor_info
            device = (0, 0) if extra is None else (int(extra.device_type), extra.device_index)
            assert device == ((1, 1) if info.memory_id == 2 else (0, 0))
    from executorch.runtime import Runtime
    with pytest.raises(RuntimeError, match="on device 1:1"):
        Runtime.get().load_program(program).load_method("forward")
