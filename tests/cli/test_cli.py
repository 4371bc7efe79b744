"""The contract of the verbs: outputs, JSON, files written and not written."""
import json
import os
import shutil

import pytest

PHASES = ["import", "resolve", "functionalize", "decompose", "optimize", "emit", "write"]


def test_help_names_every_verb(pteron):
    done = pteron("--help")
    assert done.returncode == 0
    for verb in ("compile", "run", "bench", "inspect", "doctor"):
        assert verb in done.stdout
        one = pteron(verb, "--help")
        assert one.returncode == 0 and f"usage: pteron {verb}" in one.stdout


def test_compile_writes_beside_the_input(pteron, sample, tmp_path):
    shutil.copy(sample / "mlp_float32" / "model.pt2", tmp_path / "net.pt2")
    done = pteron("compile", tmp_path / "net.pt2")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "net.pte").is_file()
    assert "needs at load" in done.stdout and "lower bound" in done.stdout
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.pt2", "net.pte"]


def test_equal_input_gives_equal_bytes(pteron, sample, tmp_path):
    files = []
    for name in ("a", "b"):
        done = pteron("compile", sample / "lstm" / "model.pt2", "-o", tmp_path / name)
        assert done.returncode == 0, done.stderr
        files.append((tmp_path / name).read_bytes())
    assert files[0] == files[1]


def test_phases_are_listed_and_stop(pteron, sample, tmp_path):
    assert pteron("compile", "--list-phases").stdout.split() == PHASES
    done = pteron("compile", sample / "mlp_float32" / "model.pt2", "-o", tmp_path / "x.pte", "--stop-after", "functionalize")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "x.pte").exists()


def test_dump_after_prints_the_graph(pteron, sample, tmp_path):
    done = pteron("compile", sample / "mlp_float32" / "model.pt2", "-o", tmp_path / "x.pte", "--dump-after", "functionalize")
    assert done.returncode == 0
    assert "aten::linear" in done.stdout


def test_compile_json(pteron, sample, tmp_path):
    done = pteron("compile", sample / "mlp_float32" / "model.pt2", "-o", tmp_path / "x.pte", "--json")
    report = json.loads(done.stdout)
    assert [p["name"] for p in report["phases"]] == PHASES
    assert report["file_bytes"] == os.path.getsize(tmp_path / "x.pte")
    assert report["methods"][0]["arena_bytes"] >= report["methods"][0]["arena_lower_bound_bytes"] > 0


def test_inspect_names_inputs(pteron, program):
    report = json.loads(pteron("inspect", program, "--json").stdout)
    method = report["methods"][0]
    assert method["inputs"][0]["name"] == "input"
    assert [d["max"] for d in method["inputs"][0]["dims"]] == [4, 16]
    assert "instructions of forward" in pteron("inspect", program, "--instructions").stdout


def test_bench_json(pteron, program):
    report = json.loads(pteron("bench", program, "--json", "--threads", "1", "--min-time", "0.05").stdout)
    assert report["latency_ms"]["p10"] <= report["latency_ms"]["median"] <= report["latency_ms"]["p90"]
    assert report["load_ms"] > 0 and report["peak_rss_bytes"] > 0


def test_doctor_json(pteron):
    report = json.loads(pteron("doctor", "--json").stdout)
    assert report["kernels"] > 100 and report["operators"] > report["kernels"] / 4


def test_state_carries_over_between_calls(pteron, sample, tmp_path):
    case = sample / "state_window"
    assert pteron("compile", case / "model.pt2", "-o", tmp_path / "s.pte").returncode == 0
    words = ["run", tmp_path / "s.pte"]
    for i in range(3):
        words += ["--inputs", case / f"inputs_{i}.safetensors", "--outputs", tmp_path / f"out_{i}.safetensors"]
    assert pteron(*words).returncode == 0
    assert len({(tmp_path / f"out_{i}.safetensors").read_bytes() for i in range(3)}) == 3


@pytest.mark.parametrize("profile", ["pteron", "executorch"])
def test_no_temporary_files_stay(pteron, sample, tmp_path, profile):
    done = pteron("compile", sample / "mlp_float32" / "model.pt2", "-o", tmp_path / "x.pte", "--profile", profile)
    assert done.returncode == 0, done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["x.pte"]
