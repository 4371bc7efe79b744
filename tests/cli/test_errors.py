"""One row per expected failure of the tool: exit code and a stable part of the message; nothing is left behind."""
import pytest

MLP = "{sample}/mlp_float32/model.pt2"
ROWS = [
    # name, words, exit code, text on stderr
    ("unknown verb names the nearest", ["complie"], 2, "did you mean 'compile'"),
    ("unknown flag names the nearest", ["compile", MLP, "--outptu", "x"], 2, "did you mean --output"),
    ("no model", ["compile"], 2, "name a MODEL.pt2"),
    ("too many arguments", ["run", "a", "b"], 2, "usage: pteron run"),
    ("unknown profile", ["compile", MLP, "--profile", "tflite"], 2, "pteron or executorch"),
    ("odd alignment", ["compile", MLP, "--alignment", "48"], 2, "power of two"),
    ("alignment is no number", ["compile", MLP, "--alignment", "big"], 5, "expects a number"),
    ("unknown phase", ["compile", MLP, "--stop-after", "link"], 2, "no phase 'link'"),
    ("unknown backend", ["compile", MLP, "-o", "{out}", "--backend", "tpu"], 4, "backend 'tpu' does not exist"),
    ("missing archive", ["compile", "{tmp}/none.pt2", "-o", "{out}"], 3, "none.pt2"),
    ("a directory as archive", ["compile", "{tmp}", "-o", "{out}"], 3, "is a directory"),
    ("text as archive", ["compile", "{text}", "-o", "{out}"], 3, "zip"),
    ("program as archive", ["compile", "{program}", "-o", "{out}"], 3, "zip"),
    ("archive as program", ["run", MLP], 3, "ET12"),
    ("missing program", ["run", "{tmp}/none.pte"], 3, "none.pte"),
    ("unknown operator", ["compile", "{sample}/file_unknown_operator/model.pt2", "-o", "{out}"], 4, "unsupported operator"),
    ("future schema", ["compile", "{sample}/file_schema_from_future/model.pt2", "-o", "{out}"], 3, "schema"),
    ("short weight", ["compile", "{sample}/file_weight_short/model.pt2", "-o", "{out}"], 3, "bytes"),
    ("method twice", ["compile", "--method", "a=" + MLP, "--method", "a=" + MLP, "-o", "{out}"], 5, "two methods named 'a'"),
    ("method without file", ["compile", "--method", "a", "-o", "{out}"], 5, "NAME=FILE"),
    ("unknown method", ["run", "{program}", "--method", "backward", "--inputs", "{sample}/mlp_float32/inputs.safetensors"], 3, "backward"),
    ("no inputs", ["run", "{program}"], 5, "input 0"),
    ("wrong dtype", ["run", "{program}", "--inputs", "{sample}/refuse_dtype/inputs.safetensors"], 5, "float32"),
    ("extra input", ["run", "{program}", "--inputs", "{sample}/refuse_extra_input/inputs.safetensors"], 5, "is no input"),
    ("other static size", ["run", "{program}", "--inputs", "{sample}/refuse_static_shape/inputs.safetensors"], 5, "expected float32 [4,16]"),
    ("inputs that are no tensors", ["run", "{program}", "--inputs", "{text}"], 3, "notes.txt"),
    ("outputs into a missing folder", ["run", "{program}", "--inputs", "{sample}/mlp_float32/inputs.safetensors", "-o", "{tmp}/no/out.safetensors"], 6, "no/out.safetensors"),
    ("program into a missing folder", ["compile", MLP, "-o", "{tmp}/no/x.pte"], 6, "no/x.pte"),
]


@pytest.mark.parametrize("name,words,code,text", ROWS, ids=[r[0].replace(" ", "_") for r in ROWS])
def test_error(pteron, sample, program, tmp_path, name, words, code, text):
    (tmp_path / "notes.txt").write_text("no tensors here, only text that is long enough to be looked at\n" * 4)
    before = sorted(p.name for p in tmp_path.iterdir())
    places = dict(sample=sample, tmp=tmp_path, out=tmp_path / "out.pte", program=program, text=tmp_path / "notes.txt")
    done = pteron(*[w.format(**places) for w in words])
    assert done.returncode == code, done.stderr
    assert text in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_output_that_is_the_input_is_refused(pteron, sample, tmp_path):
    source = tmp_path / "m.pt2"
    source.write_bytes((sample / "mlp_float32" / "model.pt2").read_bytes())
    done = pteron("compile", source, "-o", source)
    assert done.returncode == 5 and "is the input" in done.stderr
    assert source.read_bytes() == (sample / "mlp_float32" / "model.pt2").read_bytes()


def test_failed_compile_keeps_the_old_output(pteron, sample, tmp_path):
    out = tmp_path / "x.pte"
    out.write_text("old")
    assert pteron("compile", sample / "file_unknown_operator" / "model.pt2", "-o", out).returncode == 4
    assert out.read_text() == "old"
