"""The contract of the verbs: outputs, JSON, files written and not written."""
import json
import os
import pathlib
import shutil
import time
import zipfile

import pytest

from tensor_files import floats, read_safetensors, safetensors

PHASES = ["import", "resolve", "functionalize", "decompose", "optimize", "partition", "emit", "write"]


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


def test_edge_text_is_the_graph_after_the_backends(pteron, sample, tmp_path):
    model = sample / "mlp_float32" / "model.pt2"
    pteron("compile", model, "-o", tmp_path / "a.pte", "--edge-text", tmp_path / "graph.txt")
    pteron("compile", model, "-o", tmp_path / "b.pte")
    assert (tmp_path / "a.pte").read_bytes() == (tmp_path / "b.pte").read_bytes()
    text = (tmp_path / "graph.txt").read_text()
    assert text.startswith("const 0:") and "pteron::delegate" in text and 'method "forward"' in text
    dumped = pteron("compile", model, "-o", tmp_path / "a.pte", "--dump-after", "partition").stdout
    assert text in dumped
    for path, code, said in ((model, 2, "is the input"), (tmp_path / "a.pte", 2, "is the program"), ("", 2, "names no file"), (tmp_path / "no" / "g.txt", 6, "g.txt")):
        done = pteron("compile", model, "-o", tmp_path / "a.pte", "--edge-text", path)
        assert done.returncode == code and said in done.stderr, done.stderr
    done = pteron("compile", model, "-o", tmp_path / "a.pte", "--etrecord", "--edge-text", tmp_path / "a_etrecord.bin")
    assert done.returncode == 2 and "is the record of --etrecord" in done.stderr, done.stderr
    # No text without its program.
    (tmp_path / "folder").mkdir()
    assert pteron("compile", model, "-o", tmp_path / "folder", "--edge-text", tmp_path / "t.txt").returncode == 6
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.pte", "b.pte", "folder", "graph.txt"]


def test_only_saves_write_data_files(pteron, sample, tmp_path):
    """A text, a page or a bundle never takes the place of weights."""
    model, inputs = sample / "mlp_float32" / "model.pt2", sample / "mlp_float32" / "inputs.safetensors"
    pteron("compile", model, "-o", tmp_path / "m.pte", "--external-weights")
    weights = (tmp_path / "m.ptd").read_bytes()
    for words in (["compile", model, "-o", tmp_path / "x.pte", "--edge-text", tmp_path / "m.ptd"], ["inspect", tmp_path / "m.pte", "--html", tmp_path / "m.ptd"],
                  ["bundle", tmp_path / "m.pte", "--inputs", inputs, "-o", tmp_path / "m.PTD"]):
        done = pteron(*words)
        assert done.returncode == 2 and "named like a data file" in done.stderr, done.stderr
    assert (tmp_path / "m.ptd").read_bytes() == weights and sorted(p.name for p in tmp_path.iterdir()) == ["m.ptd", "m.pte"]


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


def test_cap_of_the_processor(pteron, sample, program, tmp_path):
    """PTERON_CPU_MAX: known names give the same results within rounding, others are refused by name."""
    inputs = sample / "mlp_float32" / "inputs.safetensors"
    for name in ("avx2", "avx512", "avx512_vnni", "avx512_bf16", "amx", ""):
        env = {**os.environ, "PTERON_CPU_MAX": name}
        done = pteron("compare", program, sample / "mlp_float32" / "expected.safetensors", "--inputs", inputs, env=env)
        assert done.returncode == 0, done.stderr
    capped = json.loads(pteron("doctor", "--json", env={**os.environ, "PTERON_CPU_MAX": "avx2"}).stdout)
    assert capped["units"] == "avx2"
    for words in (("run", program, "--inputs", inputs, "--outputs", tmp_path / "o.safetensors"), ("doctor",)):
        done = pteron(*words, env={**os.environ, "PTERON_CPU_MAX": "avx9"})
        assert done.returncode == 5, done.stderr
        assert "PTERON_CPU_MAX is 'avx9', expected one of avx2, avx512, avx512_vnni, avx512_bf16, amx" in done.stderr


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


def test_inspect_archive(pteron, sample):
    report = json.loads(pteron("inspect", sample / "dynamic_batch_mlp" / "model.pt2", "--json").stdout)
    assert report["kind"] == "pt2" and report["inputs"] == [{"name": "input", "type": "f32[s31,16]"}]
    assert report["sizes"] == [{"name": "s31", "min": 1, "max": 16}]
    assert sum(w["size_bytes"] for w in report["weights"]) == 7976
    assert {o["name"]: o["nodes"] for o in report["operators"]}["aten::linear"] == 3
    text = pteron("inspect", sample / "dynamic_batch_mlp" / "model.pt2", "--weights").stdout
    assert "size s31 in [1,16]" in text and "parameter 5.weight: float32 [10,32]" in text


def test_inspect_names_unknown_operators(pteron, sample):
    report = json.loads(pteron("inspect", sample / "file_unknown_operator" / "model.pt2", "--json").stdout)
    assert [o["name"] for o in report["operators"] if o["state"] == "unknown"] == ["mylib::twist"]


@pytest.mark.parametrize("name,profile", [("cnn", "pteron"), ("attention_causal", "pteron"), ("lstm", "executorch")])
def test_bisect_of_equal_programs(pteron, sample, tmp_path, name, profile):
    model, inputs = sample / name / "model.pt2", sample / name / "inputs.safetensors"
    assert pteron("compile", model, "-o", tmp_path / "m.pte", "--profile", profile, "--backend", "portable").returncode == 0
    done = pteron("compare", model, tmp_path / "m.pte", "--inputs", inputs, "--bisect", "--json")
    assert done.returncode == 0, done.stderr + done.stdout
    report = json.loads(done.stdout)
    assert not report["departs"] and report["compared"] >= 0.8 * report["results_b"] > 0


def test_bisect_looks_into_delegates(pteron, sample, tmp_path):
    model, inputs = sample / "attention_causal" / "model.pt2", sample / "attention_causal" / "inputs.safetensors"
    compared = {}
    for backend in ("cpu", "null:all", "portable"):
        assert pteron("compile", model, "-o", tmp_path / "m.pte", "--backend", backend).returncode == 0
        done = pteron("compare", model, tmp_path / "m.pte", "--inputs", inputs, "--bisect", "--json")
        assert done.returncode == 0, done.stderr + done.stdout
        compared[backend] = json.loads(done.stdout)["compared"]
    assert 1 <= compared["cpu"] <= compared["null:all"] and compared["null:all"] == compared["portable"]


def test_bisect_names_the_node_whose_weight_changed(pteron, sample, tmp_path):
    """The weights of the last of three layers are spoilt in the file: everything before it still agrees."""
    model, inputs = sample / "mlp_float32" / "model.pt2", sample / "mlp_float32" / "inputs.safetensors"
    assert pteron("compile", model, "-o", tmp_path / "m.pte", "--backend", "portable").returncode == 0
    good = json.loads(pteron("compare", model, tmp_path / "m.pte", "--inputs", inputs, "--bisect", "--json").stdout)
    graph = pteron("compile", model, "-o", tmp_path / "x.pte", "--dump-after", "optimize").stdout
    weight = [w for w in json.loads(pteron("inspect", model, "--json").stdout)["weights"] if w["kind"] == "parameter"][-1]
    content = tmp_path / "content"
    with zipfile.ZipFile(model) as archive:
        named = json.loads(next(archive.read(n) for n in archive.namelist() if n.endswith("model_weights_config.json")))["config"][weight["name"]]
        content = next(archive.read(n) for n in archive.namelist() if n.endswith("/" + named["path_name"]))
    data = (tmp_path / "m.pte").read_bytes()
    assert data.count(content) == 1 and weight["name"] in graph
    (tmp_path / "m.pte").write_bytes(data.replace(content, bytes(len(content))))
    done = pteron("compare", model, tmp_path / "m.pte", "--inputs", inputs, "--bisect", "--json")
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    assert report["departs"] and 1 < report["compared"] < good["compared"]
    assert report["place_a"].startswith("node ") and report["place_b"].startswith("instruction ")
    assert "departs at node" in pteron("compare", model, tmp_path / "m.pte", "--inputs", inputs, "--bisect").stdout


def archives(sample):
    return [p for p in sorted(sample.glob("*/model.pt2")) if not p.parent.name.startswith("file_")]


@pytest.mark.parametrize("profile", ["pteron", "executorch"])
def test_text_form_survives_every_pass(pteron, sample, tmp_path, profile):
    """parse(print(graph)) prints the same after import and after each pass."""
    checked = 0
    for model in archives(sample):
        done = pteron("compile", model, "-o", tmp_path / "x.pte", "--check-text", "--profile", profile)
        assert done.returncode in (0, 4), f"{model.parent.name}: {done.stderr}"
        checked += done.returncode == 0
    assert checked > 30


def test_list_of_refusals_is_current(pteron):
    done = pteron("ops", "--unsupported")
    assert done.returncode == 0, done.stderr
    document = pathlib.Path(__file__).resolve().parents[2] / "docs" / "unsupported.md"
    assert done.stdout == document.read_text(), "run: pteron ops --unsupported > docs/unsupported.md"


def test_refusals_are_found_by_trial(pteron):
    """Operators that a decomposition leads to others without an official kernel, and those that refuse complex numbers, are listed as well."""
    text = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "unsupported.md").read_text()
    numbers = text[text.index("## Complex numbers"):text.index("## With `--profile executorch`")]
    assert "`aten::linalg_solve`" in numbers and "`aten::linalg_qr`" in numbers and "`aten::mul.Tensor`" not in numbers and "`aten::exp`" not in numbers
    official = text[text.index("Operators whose small call"):]
    rows = {name.strip(): (cells[1].strip(), cells[2].strip()) for line in official.splitlines() if line.startswith("| `") for cells in [line.strip("|").split("|")] for name in cells[0].split(",")}
    assert rows["`aten::linalg_svd`"] == ("every dtype", "`aten::_linalg_svd`") and rows["`aten::hypot`"] == ("float64", "`aten::hypot`")
    assert "`aten::linear`" not in rows and "`aten::softmax.int`" not in rows


def test_coverage_counts_core_aten_and_official_kernels(pteron):
    text = pteron("ops", "--coverage").stdout
    rows = {line[:34].strip(): [int(n) for n in line[34:].split()] for line in text.splitlines()[1:5]}
    for total, *parts in rows.values():
        assert total == sum(parts) and total > 150
    assert rows["core ATen, pteron"][-1] == 0, "every core operator has a kernel or a decomposition"
    assert "official kernels missing here: none" in text
    trials = {line[:34].strip(): [int(n) for n in line[34:].split()] for line in text.splitlines() if line.startswith(("core ATen, float", "core ATen, int", "core ATen, bool"))}
    assert len(trials) >= 8
    for ran, refused, untried, on_cpu in trials.values():
        assert ran + refused + untried == trials["core ATen, float32"][0] + trials["core ATen, float32"][1] + trials["core ATen, float32"][2] and on_cpu <= ran
    assert trials["core ATen, float32"][0] > 150 and trials["core ATen, float32"][2] < 10
    assert "official kernels that run here: " in text


def test_size_bound_opens_a_compilation(pteron, tmp_path):
    torch = pytest.importorskip("torch")

    class Repeat(torch.nn.Module):
        def forward(self, x, n):
            return torch.repeat_interleave(x, n)

    archive = tmp_path / "repeat.pt2"
    torch.export.save(torch.export.export(Repeat(), (torch.arange(3.0), torch.tensor([1, 0, 2]))), archive)
    refused = pteron("compile", archive)
    assert refused.returncode == 4 and "--max-size" in refused.stderr and not (tmp_path / "repeat.pte").exists()
    assert pteron("compile", archive, "--max-size", "8").returncode == 0
    assert pteron("compile", archive, "--max-size", "nosuch=8").returncode == 2
    pytest.importorskip("safetensors.torch").save_file({"0": torch.arange(3.0), "1": torch.tensor([4, 4, 4])}, tmp_path / "many.safetensors")
    assert pteron("compile", archive, "-o", tmp_path / "repeat.pte", "--max-size", "8").returncode == 0
    beyond = pteron("run", tmp_path / "repeat.pte", "--inputs", tmp_path / "many.safetensors")
    assert beyond.returncode == 5 and "a larger --max-size" in beyond.stderr, beyond.stderr


def test_size_bound_reaches_padding_to_a_multiple(pteron, tmp_path):
    torch = pytest.importorskip("torch")
    safetensors_torch = pytest.importorskip("safetensors.torch")

    class Pad(torch.nn.Module):
        def forward(self, x):
            b, h, c = x.shape
            return torch.nn.functional.pad(x, (0, 0, 0, (-h) % 4)).view(b, -1, 4, c).mean(2)

    archive, program = tmp_path / "pad.pt2", tmp_path / "pad.pte"
    torch.export.save(torch.export.export(Pad(), (torch.randn(2, 6, 3),), dynamic_shapes={"x": {1: torch.export.Dim.AUTO}}), archive)
    done = pteron("compile", archive, "-o", program, "--max-size", "32")
    assert done.returncode == 0, done.stderr
    for h in (2, 8, 31, 32):
        x = torch.randn(2, h, 3)
        safetensors_torch.save_file({"0": x}, tmp_path / "x.safetensors")
        safetensors_torch.save_file({"0": Pad()(x)}, tmp_path / "want.safetensors")
        done = pteron("compare", program, tmp_path / "want.safetensors", "--inputs", tmp_path / "x.safetensors")
        assert done.returncode == 0, done.stdout + done.stderr


def test_size_bound_is_the_smaller_one(pteron, sample, tmp_path):
    """An archive's bound of 16: a smaller one replaces it, a larger one does not."""
    archive = sample / "dynamic_batch_mlp" / "model.pt2"
    for words, expected in ((["--max-size", "4"], 4), (["--max-size", "64"], 16), (["--max-size", "s31=8"], 8), (["--max-size", "9", "--max-size", "s31=12"], 9)):
        assert pteron("compile", archive, "-o", tmp_path / "x.pte", *words).returncode == 0
        method = json.loads(pteron("inspect", tmp_path / "x.pte", "--json").stdout)["methods"][0]
        assert method["inputs"][0]["dims"][0]["max"] == expected
    (tmp_path / "five.safetensors").write_bytes(safetensors({"0": floats(5, 16)}))
    assert pteron("compile", archive, "-o", tmp_path / "x.pte", "--max-size", "4").returncode == 0
    assert pteron("run", tmp_path / "x.pte", "--inputs", tmp_path / "five.safetensors").returncode == 5
    done = pteron("compile", sample / "mlp_float32" / "model.pt2", "-o", tmp_path / "y.pte", "--max-size", "4")
    assert done.returncode == 0 and "changes nothing" in done.stderr


def test_outputs_in_the_format_of_their_name(pteron, program, tmp_path):
    (tmp_path / "in.safetensors").write_bytes(safetensors({"0": ("F32", [4, 16], bytes(range(256)))}))
    files = [tmp_path / f"y{suffix}" for suffix in (".npy", ".npz", ".safetensors", "")]
    for path in files:
        assert pteron("run", program, "--inputs", tmp_path / "in.safetensors", "-o", path).returncode == 0
    expected = read_safetensors(files[2])["0"][2]
    assert files[0].read_bytes().startswith(b"\x93NUMPY") and files[0].read_bytes().endswith(expected)
    with zipfile.ZipFile(files[1]) as archive:
        assert archive.namelist() == ["0.npy"] and archive.read("0.npy") == files[0].read_bytes()
    assert files[3].read_bytes() == files[2].read_bytes()
    assert pteron("compare", files[0], files[2]).returncode == 0


@pytest.mark.parametrize("name", ["mlp_float32", "cnn_channels_last", "nested_inputs_outputs", "scalar_inputs", "none_output"])
def test_compare_takes_the_examples_of_an_archive(pteron, sample, tmp_path, name):
    model = sample / name / "model.pt2"
    assert pteron("compile", model, "-o", tmp_path / "m.pte").returncode == 0
    for words in ([model, tmp_path / "m.pte"], [tmp_path / "m.pte", model], [model, tmp_path / "m.pte", "--bisect"]):
        done = pteron("compare", *words)
        assert done.returncode == 0, done.stderr + done.stdout
        assert done.stdout


def test_bench_with_inputs(pteron, sample, program):
    done = pteron("bench", program, "--json", "--threads", "1", "--min-time", "0.01", "--inputs", sample / "mlp_float32" / "inputs.safetensors")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["calls"] >= 30


def test_bench_measures_as_long_as_it_is_told(pteron, program):
    started = time.monotonic()
    done = pteron("bench", program, "--json", "--threads", "1", "--min-time", "0.01", "--warm-up", "0.5", "--min-runs", "2000")
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - started > 0.5 and json.loads(done.stdout)["calls"] >= 2000
    few = json.loads(pteron("bench", program, "--json", "--threads", "1", "--min-time", "0", "--min-runs", "7").stdout)
    assert few["calls"] == 7
    for words in (["--min-runs", "0"], ["--warm-up", "4000"]):
        done = pteron("bench", program, *words)
        assert done.returncode == 2 and words[0] in done.stderr


@pytest.mark.parametrize("backend", ["cpu", "portable"])
def test_bench_profile_looks_into_delegates(pteron, sample, tmp_path, backend):
    assert pteron("compile", sample / "cnn" / "model.pt2", "-o", tmp_path / "m.pte", "--backend", backend).returncode == 0
    words = ["bench", tmp_path / "m.pte", "--threads", "1", "--min-time", "0.05", "--profile"]
    report = json.loads(pteron(*words, "--json", "--trace", tmp_path / "t.json").stdout)["profile"]
    assert report["machine_gflops"] > 1 and report["machine_gbytes_per_second"] > 0.1 and report["hint"].startswith("bound by ")
    inside = [n for n in report["nodes"] if n["place"].startswith("delegate 0: ")]
    assert bool(inside) == (backend == "cpu")
    products = [n for n in inside or report["nodes"] if "conv" in n["kernel"]]
    assert products and all(n["flops"] > 0 and n["bytes"] > 0 and n["time_ms"] > 0 for n in products)
    assert any(".py:" in n["place"] for n in products)
    # A 3 x 3 convolution of 3 channels into 8, on 2 x 16 x 20 points.
    assert max(n["flops"] for n in products) >= 2 * 27 * 8 * 2 * 16 * 20
    assert sum(n["time_ms"] for n in report["nodes"]) + report["outside_ms"] == pytest.approx(report["total_ms"], rel=1e-6)
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert len(events) >= 5 * len(report["nodes"])
    assert all(e["ph"] == "X" and e["dur"] >= 0 for e in events)
    assert all(a["ts"] + a["dur"] <= b["ts"] + 0.5 for a, b in zip(events, events[1:]))
    text = pteron(*words).stdout
    assert "GFLOP/s" in text and "bound by" in text and products[0]["kernel"] in text


def test_compile_says_what_stays_outside(pteron, sample, tmp_path):
    for backend, outside in (("cpu", False), ("null", True)):
        done = pteron("compile", sample / "mlp_float32" / "model.pt2", "-o", tmp_path / "m.pte", "--backend", backend)
        assert done.returncode == 0, done.stderr
        assert ("backend cpu runs" in done.stdout and "about 100.0 % of the time" in done.stdout) == (backend == "cpu")
        assert ("nodes stay outside, about 100.0 % of the time" in done.stdout and "the null backend takes nothing" in done.stdout) == outside
    report = json.loads(pteron("compile", sample / "mlp_float32" / "model.pt2", "-o", tmp_path / "m.pte", "--json").stdout)
    assert [b["name"] for b in report["backends"]] == ["cpu"] and report["backends"][0]["share_of_time"] == 1 and not report["outside"]
    assert len(report["groups"]) == 1 and report["groups"][0]["kernels"].count("pteron_cpu::linear.out") == 3


def test_explain_with_a_backend(pteron, sample):
    plain = json.loads(pteron("explain", sample / "cnn" / "model.pt2", "--json").stdout)
    nodes = json.loads(pteron("explain", sample / "cnn" / "model.pt2", "--backend", "cpu", "--json").stdout)
    assert {n["reason"].split(":")[0] for n in plain} != {"cpu"}
    taken = [n for n in nodes if n["reason"] == "cpu"]
    assert taken and any("conv" in n["operator"] for n in taken)
    loop = json.loads(pteron("explain", sample / "while_loop" / "model.pt2", "--backend", "cpu", "--json").stdout)
    assert any("not on cpu: control flow" in n["reason"] for n in loop)
    one = taken[0]["node"]
    assert pteron("explain", sample / "cnn" / "model.pt2", "--backend", "cpu", "--node", one).stdout.count("\n") == sum(n["node"] == one for n in nodes)


def test_inspect_says_what_a_state_is(pteron, sample, tmp_path):
    assert pteron("compile", sample / "state_window" / "model.pt2", "-o", tmp_path / "s.pte").returncode == 0
    states = json.loads(pteron("inspect", tmp_path / "s.pte", "--json").stdout)["methods"][0]["states"]
    assert len(states) == 1 and states[0]["dtype"] == "float32" and states[0]["dims"]
    assert f"state {states[0]['name']}: float32 [" in pteron("inspect", tmp_path / "s.pte").stdout


def test_every_verb_speaks_json(pteron, sample, program, tmp_path):
    """A document on stdout and nothing else."""
    model, inputs = sample / "mlp_float32" / "model.pt2", sample / "mlp_float32" / "inputs.safetensors"
    (tmp_path / "small.ir").write_text("graph(x: f32[2]) {\n  y = aten::relu(x)\n  return y\n}\n")
    for words in (["compile", model, "-o", tmp_path / "x.pte"], ["compile", "--list-phases"], ["run", program, "-i", inputs], ["run", program, "-i", inputs, "-o", tmp_path / "y.npy"],
                  ["bench", program, "--min-time", "0.01"], ["compare", model, program], ["compare", model, program, "--bisect"], ["inspect", program], ["inspect", model],
                  ["explain", model], ["ops"], ["ops", model], ["opt", tmp_path / "small.ir", "--pass", "dce"], ["opt", "--list"], ["doctor"],
                  ["merge", program, "-o", tmp_path / "y.pte"], ["bundle", program, "-i", inputs, "-o", tmp_path / "y.bpte"]):
        done = pteron(*words, "--json", "--quiet")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) and not done.stderr, words
        assert pteron(*words, "--quiet").stdout == "", words
    run = json.loads(pteron("run", program, "-i", inputs, "--json").stdout)
    assert run[0]["method"] == "forward" and run[0]["outputs"][0]["dtype"] == "float32" and len(run[0]["outputs"][0]["first_values"]) == 8


def test_help_has_one_usage_line(pteron):
    text = pteron("run", "--help").stdout
    assert text.lower().count("usage:") == 1 and "--inputs FILE" in text and "run a .pte program" in text


def test_names_behind_two_dashes(pteron, sample, tmp_path):
    """What stands behind -- is a file, whatever it looks like."""
    shutil.copy(sample / "mlp_float32" / "model.pt2", tmp_path / "--json")
    assert pteron("compile", "-o", "-x.pte", "--", "--json", cwd=tmp_path).returncode == 0
    assert (tmp_path / "-x.pte").is_file()
    assert pteron("inspect", "--json", "--", "-x.pte", cwd=tmp_path).stdout.startswith("{")
    assert pteron("compare", "-q", "--", "-x.pte", "-x.pte", cwd=tmp_path).returncode == 5  # no inputs: the files were found
    for words in (["inspect", "--"], ["inspect", "--", "a", "b"], ["compile", "-o", "--", "m.pt2"]):
        done = pteron(*words, cwd=tmp_path)
        assert done.returncode == 2 and "usage: pteron" in done.stderr, words
