"""Programs with prebuilt TensorRT engines, read by the official package: delegates, compile specs, and payloads in the official form."""
import json
import struct

import pytest

from conftest import ROOT, pteron

ENGINES = ROOT / "tests" / "archives" / "engines"


def delegates(path):
    from executorch.exir._serialize._program import deserialize_pte_binary

    read = deserialize_pte_binary(path.read_bytes())
    program = getattr(read, "program", read)
    return [(d.id, {s.key: bytes(s.value).decode() for s in d.compile_specs if d.id == "TensorRTBackend"}, bytes(program.backend_delegate_data[d.processed.index].data))
            for d in program.execution_plan[0].delegates]


def opened(payload):
    """(magic, metadata, engine) of a payload."""
    magic, at, size, engine_at, engine_size, reserved = struct.unpack("<4sIIIQQ", payload[:32])
    assert at == 32 and engine_at % 16 == 0 and reserved == 1 and engine_at + engine_size == len(payload)
    return magic, json.loads(payload[at:at + size]), payload[engine_at:]


@pytest.mark.parametrize("profile", ["pteron", "executorch"])
def test_the_official_package_reads_the_delegates(tmp_path, profile):
    pteron("compile", ENGINES / "object.pt2", "-o", tmp_path / "m.pte", "--profile", profile)
    engines = [d for d in delegates(tmp_path / "m.pte") if d[0] == "TensorRTBackend"]
    assert len(engines) == 2 and engines[0] == engines[1]
    assert engines[0][1] == {"target_device": "cuda:0"}
    magic, metadata, engine = opened(engines[0][2])
    assert magic == b"TR01" and engine == b"in x f32 4\nin y f32 4\nout p_0 add x y\nout q_1 sub x y\n"
    assert [(b["name"], b["is_input"]) for b in metadata["io_bindings"]] == [("x", True), ("y", True), ("p_0", False), ("q_1", False)]
    assert metadata["device_id"] == 0 and metadata["target_platform"] == "linux_x86_64" and metadata["aliased_io"] == []


def test_caches_and_devices(tmp_path):
    pteron("compile", ENGINES / "cache.pt2", "-o", tmp_path / "m.pte", "--profile", "executorch")
    (_, specs, payload), = delegates(tmp_path / "m.pte")
    magic, metadata, _ = opened(payload)
    assert magic == b"TR02" and metadata["aliased_io"] == [{"output": "n_1", "input": "cache", "kind": "kv_cache_update"}]
    assert specs["target_device"] == "cuda:0"
    pteron("compile", ENGINES / "two.pt2", "-o", tmp_path / "m.pte")
    labels = [(specs["target_device"], opened(payload)[1]["device_id"]) for name, specs, payload in delegates(tmp_path / "m.pte") if name == "TensorRTBackend"]
    assert labels == [("cuda:0", 0), ("cuda:1", 1)]
