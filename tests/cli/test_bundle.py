"""pteron bundle: programs with their inputs and expected outputs, run by pteron run."""
import json
import shutil
import struct

import pytest

from tensor_files import read_safetensors, safetensors

MODELS = ("mlp_float32", "dynamic_batch_mlp", "cnn_channels_last", "scalar_inputs", "state_window", "nested_inputs_outputs", "mlp_bfloat16", "topk.f32.12.core")


@pytest.fixture
def tool(pteron):
    def run(*words, expect=0, **more):
        done = pteron(*words, **more)
        assert done.returncode == expect, f"{words}: exit {done.returncode}\n{done.stderr}{done.stdout}"
        return done
    return run


@pytest.mark.parametrize("name", MODELS)
def test_computed_outputs_agree(tool, sample, tmp_path, name):
    inputs = sorted((sample / name).glob("inputs*.safetensors"))[0]
    tool("compile", sample / name / "model.pt2", "-o", tmp_path / "m.pte")
    report = json.loads(tool("bundle", tmp_path / "m.pte", "--inputs", inputs, "--inputs", inputs, "-o", tmp_path / "m.bpte", "--json").stdout)
    assert report["cases"] == 2 and report["file_bytes"] == (tmp_path / "m.bpte").stat().st_size
    rows = json.loads(tool("run", tmp_path / "m.bpte", "--rtol", "0", "--atol", "0", "--json").stdout)  # also for the state: each case begins anew
    assert {row["case"] for row in rows} == {0, 1} and all(row["ok"] for row in rows)


def test_expected_outputs_are_what_is_compared(tool, sample, tmp_path):
    inputs = sample / "mlp_float32" / "inputs.safetensors"
    tool("compile", sample / "mlp_float32" / "model.pt2", "-o", tmp_path / "m.pte")
    tool("run", tmp_path / "m.pte", "--inputs", inputs, "--outputs", tmp_path / "good.safetensors")
    (name, (dtype, sizes, raw)), = read_safetensors(tmp_path / "good.safetensors").items()
    words = ["bundle", tmp_path / "m.pte", "--inputs", inputs, "--inputs", inputs, "--method", "forward", "-o", tmp_path / "m.bpte"]
    tool(*words, "--expected", tmp_path / "good.safetensors", "--expected", tmp_path / "good.safetensors")
    assert "2 of 2 expected outputs agree" in tool("run", tmp_path / "m.bpte").stdout
    out = json.loads(tool("inspect", tmp_path / "m.pte", "--json").stdout)["methods"][0]["outputs"][0]["name"]
    (tmp_path / "bad.safetensors").write_bytes(safetensors({out: (dtype, sizes, raw[:-4] + struct.pack("<f", 3.5))}))
    tool(*words, "--expected", tmp_path / "good.safetensors", "--expected", tmp_path / "bad.safetensors")
    assert "1 of 2 expected outputs agree" in tool("run", tmp_path / "m.bpte", expect=1).stdout
    assert "1 --expected for 2 --inputs" in tool(*words, "--expected", tmp_path / "good.safetensors", expect=2).stderr


def test_several_methods_and_weights_outside(tool, sample, tmp_path):
    models = {"one": "mlp_float32", "two": "cnn"}
    tool("compile", *[w for method, name in models.items() for w in ("--method", f"{method}={sample / name / 'model.pt2'}")], "--external-weights", "-o", tmp_path / "m.pte")
    tool("bundle", tmp_path / "m.pte", *[w for method, name in models.items() for w in ("--method", method, "--inputs", sample / name / "inputs.safetensors")], "-o", tmp_path / "m.bpte")
    rows = json.loads(tool("run", tmp_path / "m.bpte", "--data", tmp_path / "m.ptd", "--json").stdout)
    assert {row["method"] for row in rows} == {"one", "two"} and all(row["ok"] for row in rows)


ROWS = [
    ("no output", ["{p}", "--inputs", "{good}"], 2, "name the bundled program to write"),
    ("over the program", ["{p}", "--inputs", "{good}", "-o", "{p}"], 2, "is the input"),
    ("over the inputs", ["{p}", "--inputs", "{good}", "-o", "{good}"], 2, "is the input"),
    ("no inputs", ["{p}", "-o", "{out}"], 5, "method forward, case 0: input 0"),
    ("missing inputs", ["{p}", "--inputs", "{tmp}/none.safetensors", "-o", "{out}"], 3, "none.safetensors"),
    ("missing program", ["{tmp}/none.pte", "--inputs", "{good}", "-o", "{out}"], 3, "none.pte"),
    ("an archive", ["{model}", "--inputs", "{good}", "-o", "{out}"], 3, "a .pt2 has to be compiled first"),
    ("no such method", ["{p}", "--inputs", "{good}", "--method", "backward", "-o", "{out}"], 3, "backward"),
    ("methods and inputs", ["{p}", "--inputs", "{good}", "--method", "forward", "--method", "forward", "-o", "{out}"], 2, "2 --method for 1 --inputs"),
    ("other outputs", ["{p}", "--inputs", "{good}", "--expected", "{good}", "-o", "{out}"], 5, "output"),
    ("an output of another dtype", ["{p}", "--inputs", "{good}", "--expected", "{int_output}", "-o", "{out}"], 5, "found int64 [4,10]"),
    ("an output of another rank", ["{p}", "--inputs", "{good}", "--expected", "{flat_output}", "-o", "{out}"], 5, "found float32 [40]"),
    ("a missing output", ["{p}", "--inputs", "{good}", "--expected", "{no_output}", "-o", "{out}"], 5, "is missing"),
    ("a bundle", ["{bundle}", "--inputs", "{good}", "-o", "{out}"], 2, "is a bundled program already"),
    ("a missing folder", ["{p}", "--inputs", "{good}", "-o", "{tmp}/no/m.bpte"], 6, "no/m.bpte"),
]


@pytest.mark.parametrize("words, code, text", [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_refusals(tool, sample, tmp_path, words, code, text):
    names = {"p": tmp_path / "m.pte", "model": sample / "mlp_float32" / "model.pt2", "good": tmp_path / "in.safetensors", "out": tmp_path / "o.bpte", "tmp": tmp_path,
             "int_output": tmp_path / "i.safetensors", "flat_output": tmp_path / "f.safetensors", "no_output": tmp_path / "n.safetensors", "bundle": tmp_path / "b.bpte"}
    shutil.copy(sample / "mlp_float32" / "inputs.safetensors", names["good"])
    tool("compile", names["model"], "-o", names["p"])
    tool("bundle", names["p"], "--inputs", names["good"], "-o", names["bundle"])
    names["int_output"].write_bytes(safetensors({"0": ("I64", [4, 10], bytes(320))}))
    names["flat_output"].write_bytes(safetensors({"0": ("F32", [40], bytes(160))}))
    names["no_output"].write_bytes(safetensors({}))
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    said = tool("bundle", *[w.format(**names) for w in words], expect=code).stderr
    assert text in said, said
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_text_outputs_are_refused(tool, sample, tmp_path):
    tool("compile", sample / "mlp_float32" / "model.pt2", "-o", tmp_path / "m.pte", "--constant", "get_name=small", "--constant", "get_size=3")
    assert "a bundle cannot hold it" in tool("bundle", tmp_path / "m.pte", "--method", "get_name", "-o", tmp_path / "m.bpte", expect=5).stderr
    tool("bundle", tmp_path / "m.pte", "--method", "get_size", "-o", tmp_path / "m.bpte")
    assert "1 of 1" in tool("run", tmp_path / "m.bpte").stdout


@pytest.fixture
def bundle(tool, sample, tmp_path):
    """A bundle whose program has its weights outside."""
    inputs = sample / "mlp_float32" / "inputs.safetensors"
    tool("compile", sample / "mlp_float32" / "model.pt2", "-o", tmp_path / "m.pte", "--external-weights")
    (tmp_path / "b").mkdir()
    tool("bundle", tmp_path / "m.pte", "--inputs", inputs, "--inputs", inputs, "-o", tmp_path / "b" / "m.bpte")
    return tmp_path / "b" / "m.bpte"


def test_weights_outside_lie_beside_the_bundle(tool, sample, bundle, tmp_path):
    said = tool("run", bundle, expect=3).stderr
    assert "are in m.ptd" in said and str(bundle.with_name("m.ptd")) in said and "--data FILE" in said
    shutil.copy(tmp_path / "m.ptd", bundle.parent)
    assert "2 of 2 expected outputs agree" in tool("run", bundle).stdout
    tool("compile", sample / "mlp_float16" / "model.pt2", "-o", tmp_path / "o.pte", "--external-weights")
    shutil.copy(tmp_path / "o.ptd", bundle.with_name("m.ptd"))
    assert "another program's" in tool("run", bundle, expect=3).stderr
    assert "2 of 2" in tool("run", bundle, "--data", tmp_path / "m.ptd").stdout


@pytest.mark.parametrize("words", [["--repeat", "3"], ["--seed", "1"], ["--print", "all"], ["--raw-outputs", "{tmp}/raw"], ["--inputs", "{tmp}/x.safetensors"], ["--method", "forward"]])
def test_what_cases_say_is_no_option(tool, bundle, tmp_path, words):
    said = tool("run", bundle, *[w.format(tmp=tmp_path) for w in words], "--data", tmp_path / "m.ptd", expect=2).stderr
    assert f"leave {words[0]} out" in said
    assert f"leave {words[0]} out" in tool("run", "--bundled", bundle, *[w.format(tmp=tmp_path) for w in words], expect=2).stderr


def test_a_program_is_no_bundle(tool, bundle, tmp_path):
    assert "a bundled program with identifier BP08 at byte 4 is expected, found a program (.pte)" in tool("run", "--bundled", tmp_path / "m.pte", expect=3).stderr


def test_bundles_are_inspected_and_compared(tool, sample, bundle, tmp_path):
    described = json.loads(tool("inspect", bundle, "--json").stdout)
    program = json.loads(tool("inspect", tmp_path / "m.pte", "--json").stdout)
    assert described["kind"] == "bpte" and described["file_bytes"] == bundle.stat().st_size
    assert described["cases"] == [{"method": "forward", "inputs": 1, "expected": 1}] * 2
    assert described["methods"] == program["methods"] and "cases" not in program and program["kind"] == "pte"
    text = tool("inspect", bundle, "--instructions").stdout
    assert "bundled program" in text and "method forward, case 1: 1 inputs, 1 expected outputs" in text and "instructions of forward" in text
    tool("inspect", bundle, "--html", tmp_path / "page.html")
    assert "PteronCpuBackend" in (tmp_path / "page.html").read_text()
    words = ["--inputs", sample / "mlp_float32" / "inputs.safetensors", "--data", tmp_path / "m.ptd"]
    tool("compare", bundle, tmp_path / "m.pte", *words, "--rtol", "0", "--atol", "0")
    tool("compare", sample / "mlp_float32" / "model.pt2", bundle, *words)
    tool("compare", sample / "mlp_float32" / "model.pt2", bundle, "--bisect", *words)
    cut = tmp_path / "cut.bpte"
    cut.write_bytes(bundle.read_bytes()[:200])
    for words in (["inspect", cut], ["run", cut], ["merge", cut, "-o", tmp_path / "x.pte"]):
        assert "cut.bpte" in tool(*words, expect=3).stderr
