"""ETDumps of ours in the official inspector, with and without an ETRecord, and the official runtime's in `pteron inspect`."""
import json
import time

import pytest
import torch
from torch import nn
from torch.export import export

from conftest import pteron, save

devtools = pytest.importorskip("executorch.devtools", reason="executorch: its developer tools are not installed")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(64, 128), nn.Linear(128, 4)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))


def recorded(folder, *words, calls=3, net=None, x=None):
    """Event blocks of a few calls, and the milliseconds that the tool took for everything."""
    torch.manual_seed(0)
    x = torch.randn(32, 64) if x is None else x
    torch.export.save(export((net or Net()).eval(), (x,)), folder / "m.pt2")
    pteron("compile", folder / "m.pt2", "-o", folder / "m.pte", "--etrecord", *words)
    save(folder / "in.safetensors", [x])
    begin = time.perf_counter()
    pteron("run", folder / "m.pte", "--inputs", folder / "in.safetensors", "--repeat", calls, "--etdump", folder / "m.etdp", "--print", "none")
    took = (time.perf_counter() - begin) * 1e3
    inspector = devtools.Inspector(etdump_path=str(folder / "m.etdp"), etrecord=str(folder / "m_etrecord.bin"))
    return inspector, took


def of(inspector, block):
    return [event for one in inspector.event_blocks if one.name == block for event in one.events]


def test_operators_and_times(tmp_path):
    inspector, took = recorded(tmp_path, "--profile", "executorch")
    assert [e.name for e in of(inspector, "Default")] == ["Program::load", "Method::init", "Program::load_method"]
    events = of(inspector, "Execute")
    names = [e.name for e in events]
    assert names == ["native_call_addmm.out", "OPERATOR_CALL", "native_call_relu.out", "OPERATOR_CALL", "native_call_addmm.out", "OPERATOR_CALL", "Method::execute"]
    assert [e.op_types for e in events if e.name.startswith("native_call")] == [["addmm.default"], ["relu.default"], ["addmm.default"]]
    assert [e._instruction_id for e in events] == [0, 0, 1, 1, 2, 2, -1]
    assert all("in forward" in trace for e in events[:-1] for trace in e.stack_traces.values())
    whole = events[-1].perf_data.raw
    for call in range(3):
        parts = [e.perf_data.raw[call] for e in events if e.name == "OPERATOR_CALL"]
        assert all(p > 0 for p in parts) and sum(parts) <= whole[call]
    assert sum(whole) + sum(e.perf_data.raw[0] for e in of(inspector, "Default") if e.name != "Method::init") < took
    starts = [e.start_time[0] for e in events if e.name == "OPERATOR_CALL"]
    assert starts == sorted(starts)
    frame = inspector.to_dataframe()
    assert len(frame) == 10 and set(frame["event_block_name"]) == {"Default", "Execute"}


def test_parts_of_a_delegate(tmp_path):
    inspector, _ = recorded(tmp_path)
    events = of(inspector, "Execute")
    inside, (call, whole) = events[:-2], events[-2:]
    assert call.delegate_backend_name == "PteronCpuBackend" and {e.delegate_backend_name for e in inside} == {"PteronCpuBackend"}
    assert call.debug_handles is not None and all(e.debug_handles == [call.debug_handles] for e in inside)
    assert call.name == "DELEGATE_CALL" and whole.name == "Method::execute" and len(inside) >= 2
    for event in inside:
        number, kernel = event.name.split(": ")
        assert number.isdigit() and kernel.startswith("pteron_cpu::") and event.is_delegated_op and event._instruction_id == call._instruction_id
    for run in range(3):
        assert 0 < sum(e.perf_data.raw[run] for e in inside) <= call.perf_data.raw[run] <= whole.perf_data.raw[run]


def test_loops_and_several_methods(tmp_path):
    """Every time an instruction runs is an event; the runs of two methods stay apart."""
    class Count(nn.Module):
        def forward(self, x):
            return torch._higher_order_ops.while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x + 1), (torch.tensor(0), x))

    torch.export.save(export(Count(), (torch.zeros(2),)), tmp_path / "a.pt2")
    torch.export.save(export(nn.ReLU(), (torch.zeros(2),)), tmp_path / "b.pt2")
    pteron("compile", "--method", f"a={tmp_path / 'a.pt2'}", "--method", f"b={tmp_path / 'b.pt2'}", "-o", tmp_path / "m.pte", "--backend", "portable")
    save(tmp_path / "in.safetensors", [torch.zeros(2)])
    given = tmp_path / "in.safetensors"
    pteron("run", tmp_path / "m.pte", "--inputs", given, "--inputs", given, "--method", "a", "--method", "b", "--etdump", tmp_path / "m.etdp", "--print", "none")
    runs = json.loads(pteron("inspect", tmp_path / "m.etdp", "--json").stdout)["runs"]
    assert [r["name"] for r in runs] == ["Default", "Default", "Execute", "Default", "Execute"]
    adds = [e for e in runs[2]["events"] if e["name"] == "native_call_add.Scalar_out"]
    assert len(adds) == 10 and len({e["instruction"] for e in adds}) == 2
    assert [e["name"] for e in runs[4]["events"]] == ["native_call_relu.out", "OPERATOR_CALL", "Method::execute"]
    assert all(e["start"] <= e["end"] for r in runs for e in r["events"])


def test_cases_of_a_bundle(tmp_path):
    torch.export.save(export(nn.ReLU(), (torch.randn(3),)), tmp_path / "m.pt2")
    pteron("compile", tmp_path / "m.pt2", "-o", tmp_path / "m.pte", "--profile", "executorch")
    for i in range(2):
        save(tmp_path / f"{i}.safetensors", [torch.randn(3)])
    pteron("bundle", tmp_path / "m.pte", "--inputs", tmp_path / "0.safetensors", "--inputs", tmp_path / "1.safetensors", "-o", tmp_path / "m.bpte")
    pteron("run", "--model_path", tmp_path / "m.bpte", f"--etdump_path={tmp_path / 'm.etdp'}")
    inspector = devtools.Inspector(etdump_path=str(tmp_path / "m.etdp"))
    assert [b.bundled_input_index for b in inspector.event_blocks if b.name == "Execute"] == [0, 1]


def test_an_official_dump_is_read(tmp_path):
    from executorch.extension.pybindings.portable_lib import _load_for_executorch
    x = torch.randn(32, 64)
    recorded(tmp_path, "--profile", "executorch", x=x)
    module = _load_for_executorch(str(tmp_path / "m.pte"), enable_etdump=True)
    module.forward((x,))
    module.forward((x,))
    module.write_etdump_result_to_file(str(tmp_path / "official.etdp"))
    runs = json.loads(pteron("inspect", tmp_path / "official.etdp", "--json").stdout)["runs"]
    theirs = devtools.Inspector(etdump_path=str(tmp_path / "official.etdp"))
    assert [r["name"] for r in runs] == ["Default", "Execute", "Execute"]
    for number, run in enumerate(runs[1:]):
        expected = [(e.name, e.perf_data.raw[number]) for e in of(theirs, "Execute")]
        assert [(e["name"], pytest.approx((e["end"] - e["start"]) / 1e6)) for e in run["events"]] == expected
    text = pteron("inspect", tmp_path / "official.etdp").stdout
    assert "run Execute: 2 times" in text and "native_call_relu.out" in text


def test_files_that_are_not_written_over_and_not_read(tmp_path):
    recorded(tmp_path, "--external-weights")
    dump = (tmp_path / "m.etdp").read_bytes()
    for file in ("m.pte", "in.safetensors"):
        before = (tmp_path / file).read_bytes()
        assert "is the input" in pteron("run", tmp_path / "m.pte", "--inputs", tmp_path / "in.safetensors", "--etdump", tmp_path / file, expect=2).stderr
        assert (tmp_path / file).read_bytes() == before
    assert "named like a data file" in pteron("run", tmp_path / "m.pte", "--etdump", tmp_path / "m.ptd", expect=2).stderr
    assert "also named by --outputs" in pteron("run", tmp_path / "m.pte", "--inputs", tmp_path / "in.safetensors", "--outputs", tmp_path / "o.npz", "--etdump",
                                               tmp_path / "o.npz", expect=2).stderr
    (tmp_path / "cut.etdp").write_bytes(dump[:-1])
    assert f"says that it has {len(dump)} bytes, found {len(dump) - 1}" in pteron("inspect", tmp_path / "cut.etdp", expect=3).stderr
    (tmp_path / "bad.etdp").write_bytes(dump[:4] + b"\xff\xff\xff\x7f" + dump[8:])
    assert "table is damaged" in pteron("inspect", tmp_path / "bad.etdp", expect=3).stderr
