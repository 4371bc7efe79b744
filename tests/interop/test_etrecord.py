"""ETRecords of ours in the official inspector: what it reads, and which node it finds for each event of a profile of the official runtime."""
import zipfile

import pytest
import torch
from torch import nn
from torch.export import Dim, export

from conftest import pteron

etrecord = pytest.importorskip("executorch.devtools.etrecord", reason="executorch: its developer tools are not installed")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.LayerNorm(4), nn.Linear(4, 5)

    def forward(self, x):
        y = torch.relu(self.conv(x))
        a, b = y.chunk(2, dim=1)
        top, where = torch.cat([a * 2, b], dim=1).mean((2, 3)).topk(4)
        return torch.softmax(self.head(self.norm(top)), -1), where.to(torch.int32), y.amax()


def compiled(folder, net, x, *words, **options):
    torch.export.save(export(net.eval(), (x,), **options), folder / "m.pt2")
    said = pteron("compile", folder / "m.pt2", "-o", folder / "m.pte", "--etrecord", *words).stdout
    assert f"wrote {folder / 'm_etrecord.bin'}" in said
    return etrecord.parse_etrecord(str(folder / "m_etrecord.bin"))


def profile(folder, x):
    from executorch.devtools import Inspector
    from executorch.extension.pybindings.portable_lib import _load_for_executorch
    module = _load_for_executorch(str(folder / "m.pte"), enable_etdump=True)
    module.forward((x,))
    module.write_etdump_result_to_file(str(folder / "m.etdp"))
    inspector = Inspector(etdump_path=str(folder / "m.etdp"), etrecord=str(folder / "m_etrecord.bin"))
    return [event for block in inspector.event_blocks if block.name == "Execute" for event in block.events]


def test_the_inspector_finds_nodes_and_lines(tmp_path):
    torch.manual_seed(0)
    x = torch.randn(1, 3, 6, 5)
    record = compiled(tmp_path, Net(), x, "--profile", "executorch")
    graph = record.edge_dialect_program.graph
    nodes = {node.meta["debug_handle"]: node for node in graph.nodes if "debug_handle" in node.meta and "getitem" not in str(node.target)}
    handles = record._debug_handle_map["forward"]
    events = [event for event in profile(tmp_path, x) if event.name.startswith("native_call_")]
    found = 0
    for event in events:
        kernel = event.name.removeprefix("native_call_").split(".")[0]
        if event.debug_handles is None:
            continue
        handle = event.debug_handles if isinstance(event.debug_handles, int) else event.debug_handles[0]
        target = str(nodes[handle].target)
        if kernel in target:  # others are helpers of a node: copies of views, casts
            found += 1
            assert any(kernel in op for op in event.op_types), (event.name, event.op_types)
        if "linear" in target or "convolution" in target or "conv" in target:
            assert any("in forward" in trace for trace in event.stack_traces.values())
            assert any("conv" in str(m) or "head" in str(m) for m in event.module_hierarchy.values())
    assert found >= 6 and set(handles.values()) <= set(nodes)


@pytest.mark.parametrize("words", [[], ["--backend", "portable"], ["--profile", "executorch"]])
def test_every_kind_of_program_is_read(tmp_path, words):
    """Also delegates and varying sizes: these stand at their bound."""
    x = torch.randn(2, 3, 6, 5)
    record = compiled(tmp_path, Net(), x, *words, dynamic_shapes={"x": {0: Dim("n", min=2, max=7)}})
    graph = record.edge_dialect_program.graph
    inputs = [n for n in graph.nodes if n.op == "placeholder" and n.name in ("x",)]
    assert list(inputs[0].meta["val"].shape) == [7, 3, 6, 5]
    assert record._debug_handle_map.keys() == {"forward"} and record.graph_map == {}
    if not words:
        assert any("delegate" in n.name for n in graph.nodes)


def test_control_flow_and_several_methods(tmp_path):
    class Branch(nn.Module):
        def forward(self, p, x):
            return torch.cond(p, lambda x: x.sin() + 1, lambda x: x * 2, (x,))

    torch.export.save(export(Branch(), (torch.tensor(True), torch.randn(4))), tmp_path / "a.pt2")
    torch.export.save(export(Net().eval(), (torch.randn(1, 3, 6, 5),)), tmp_path / "b.pt2")
    pteron("compile", "--method", f"a={tmp_path / 'a.pt2'}", "--method", f"b={tmp_path / 'b.pt2'}", "-o", tmp_path / "m.pte", "--etrecord", "--backend", "portable")
    record = etrecord.parse_etrecord(str(tmp_path / "m_etrecord.bin"))
    assert set(record.edge_dialect_program) == {"a", "b"} == set(record._debug_handle_map)
    names = zipfile.ZipFile(tmp_path / "m_etrecord.bin").namelist()
    assert names[0] == "ETRECORD_V0" and zipfile.ZipFile(tmp_path / "m_etrecord.bin").testzip() is None


def test_the_same_program_gives_the_same_bytes(tmp_path):
    x = torch.randn(1, 3, 6, 5)
    compiled(tmp_path, Net(), x)
    first, program = (tmp_path / "m_etrecord.bin").read_bytes(), (tmp_path / "m.pte").read_bytes()
    pteron("compile", tmp_path / "m.pt2", "-o", tmp_path / "m.pte", "--etrecord")
    assert (tmp_path / "m_etrecord.bin").read_bytes() == first
    (tmp_path / "m_etrecord.bin").unlink()
    pteron("compile", tmp_path / "m.pt2", "-o", tmp_path / "m.pte")
    assert (tmp_path / "m.pte").read_bytes() == program and not (tmp_path / "m_etrecord.bin").exists()
    (tmp_path / "m.pt2").rename(tmp_path / "m_etrecord.bin")  # an archive of that name is not written over
    assert "is the input" in pteron("compile", tmp_path / "m_etrecord.bin", "-o", tmp_path / "m.pte", "--etrecord", expect=2).stderr
