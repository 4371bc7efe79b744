"""One row per expected failure of the tool: exit code and a stable part of the message; nothing is left behind. api_test.cpp has those of the API."""
import resource

import pytest

from conftest import floats, safetensors

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
    ("verification level", ["compile", MLP, "--verify", "often"], 2, "each, phase or off"),
    ("alignment is negative", ["compile", MLP, "--alignment", "-64"], 5, "expects a number"),
    ("unknown pass to leave out", ["compile", MLP, "-o", "{out}", "--disable", "inline"], 2, "no pass 'inline'"),
    ("unknown pass to print", ["compile", MLP, "-o", "{out}", "--dump-after", "linking"], 2, "no phase or pass 'linking'"),
    ("a folder as output", ["compile", MLP, "-o", "{tmp}"], 6, "{tmp}"),
    ("half an archive", ["compile", "{sample}/file_cut_half/model.pt2", "-o", "{out}"], 3, "zip"),
    ("empty archive", ["compile", "{sample}/file_empty/model.pt2", "-o", "{out}"], 3, "model.pt2"),
    ("one method of two is missing", ["compile", "--method", "a=" + MLP, "--method", "b={tmp}/none.pt2", "-o", "{out}"], 3, "none.pt2"),
    # run
    ("half a program", ["run", "{cut_program}"], 3, "cut.pte"),
    ("empty program", ["run", "{empty}"], 3, "empty"),
    ("missing inputs file", ["run", "{program}", "--inputs", "{tmp}/none.safetensors"], 3, "none.safetensors"),
    ("missing data file", ["run", "{program}", "--data", "{tmp}/none.ptd", "--inputs", "{good}"], 3, "none.ptd"),
    ("text as data file", ["run", "{program}", "--data", "{text}", "--inputs", "{good}"], 3, "notes.txt"),
    ("threads are no number", ["run", "{program}", "--inputs", "{good}", "--threads", "two"], 5, "expects a number, found 'two'"),
    ("unknown input name", ["run", "{program}", "--inputs", "{other_name}"], 5, "key 'picture' is no input; the method has 1: [input]"),
    ("input given twice", ["run", "{program}", "--inputs", "{twice}"], 5, "given twice"),
    ("other rank", ["run", "{program}", "--inputs", "{other_rank}"], 5, "expected float32 [4,16], found float32 [16]"),
    ("no tensor in the inputs", ["run", "{program}", "--inputs", "{no_tensors}"], 5, "input 0 (input"),
    ("cut inputs", ["run", "{program}", "--inputs", "{cut_inputs}"], 3, "cut.safetensors"),
    ("size beyond the bound", ["run", "{dynamic}", "--inputs", "{batch_17}"], 5, "expected float32 [s31 in 1..16,16], found float32 [17,16]"),
    ("size below the bound", ["run", "{dynamic}", "--inputs", "{batch_0}"], 5, "found float32 [0,16]"),
    ("more outputs than calls", ["run", "{program}", "--inputs", "{good}", "-o", "{tmp}/a", "-o", "{tmp}/b"], 2, "2 --outputs for 1 call"),
    ("fewer outputs than calls", ["run", "{program}", "--inputs", "{good}", "--inputs", "{good}", "-o", "{tmp}/a"], 2, "1 --outputs for 2 calls"),
    ("one output for two calls", ["run", "{program}", "--inputs", "{good}", "--inputs", "{good}", "-o", "{tmp}/a", "-o", "{tmp}/a"], 5, "is named twice"),
    ("an output over the program", ["run", "{program}", "--inputs", "{good}", "-o", "{program}"], 5, "is the input"),
    ("a device as output", ["compile", MLP, "-o", "/dev/full"], 6, "not a regular file"),
    ("empty output name", ["compile", MLP, "-o", ""], 2, "names no file"),
    ("strict without a backend", ["compile", MLP, "-o", "{out}", "--strict"], 2, "--strict needs a --backend"),
    # bench
    ("bench of a missing program", ["bench", "{tmp}/none.pte"], 3, "none.pte"),
    ("bench of an archive", ["bench", MLP], 3, "ET12"),
    ("bench for no time", ["bench", "{program}", "--min-time", "soon"], 5, "--min-time"),
    # compare
    ("compare with a missing file", ["compare", "{program}", "{tmp}/none.pte", "--inputs", "{good}"], 3, "none.pte"),
    ("compare without inputs", ["compare", "{program}", "{program}"], 5, "input 0"),
    ("tolerance is no number", ["compare", "{program}", "{program}", "--inputs", "{good}", "--rtol", "small"], 5, "--rtol expects a number from 0 on, found 'small'"),
    ("negative tolerance", ["compare", "{program}", "{program}", "--inputs", "{good}", "--atol", "-1"], 5, "--atol expects"),
    ("bisection of tensors", ["compare", "{program}", "{good}", "--inputs", "{good}", "--bisect"], 5, "--bisect compares programs"),
    ("bisection of strangers", ["compare", "{sample}/cumsum.f32.3/model.pt2", "{unrelated}", "--inputs", "{sample}/cumsum.f32.3/inputs.safetensors", "--bisect"], 5, "input"),
    # inspect, explain
    ("inspect of nothing", ["inspect"], 2, "usage: pteron inspect"),
    ("inspect of a missing file", ["inspect", "{tmp}/none.ptd"], 3, "none.ptd"),
    ("inspect of text", ["inspect", "{text}"], 3, "notes.txt"),
    ("inspect of half a program", ["inspect", "{cut_program}"], 3, "cut.pte"),
    ("inspect of half an archive", ["inspect", "{sample}/file_cut_half/model.pt2"], 3, "model.pt2"),
    ("inspect of a damaged data file", ["inspect", "{bad_data}"], 3, "bad.ptd"),
    ("explain of a missing archive", ["explain", "{tmp}/none.pt2"], 3, "none.pt2"),
    ("explain for an unknown profile", ["explain", MLP, "--profile", "tflite"], 5, "pteron or executorch"),
    ("explain of an unknown node", ["explain", MLP, "--node", "conv9"], 3, "no node is named 'conv9'"),
    # opt, ops, doctor
    ("opt of nothing", ["opt"], 2, "name a FILE.ir"),
    ("opt of a missing file", ["opt", "{tmp}/none.ir", "--pass", "dce"], 3, "none.ir"),
    ("opt of text that is no program", ["opt", "{text}", "--pass", "dce"], 3, "notes.txt"),
    ("opt with an unknown pass", ["opt", "{ir}", "--pass", "shrink"], 5, "no pass is named 'shrink'"),
    ("ops with an argument", ["ops", "aten::add", "more"], 2, "usage: pteron ops"),
    ("doctor with an argument", ["doctor", "now"], 2, "usage: pteron doctor"),
    ("no verb", [], 2, "usage"),
]


def compiled(pteron, model, out):
    done = pteron("compile", model, "-o", out, "--quiet")
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture
def places(pteron, sample, program, tmp_path):
    """Files that rows name; each is there before the tool runs."""
    files = {
        "text": ("notes.txt", b"no tensors here, only text that is long enough to be looked at\n" * 4),
        "empty": ("empty.pte", b""),
        "cut_program": ("cut.pte", program.read_bytes()[:400]),
        "good": ("good.safetensors", safetensors({"0": floats(4, 16)})),
        "other_name": ("name.safetensors", safetensors({"picture": floats(4, 16)})),
        "twice": ("twice.safetensors", safetensors({"0": floats(4, 16), "input": floats(4, 16)})),
        "other_rank": ("rank.safetensors", safetensors({"0": floats(16)})),
        "no_tensors": ("none.safetensors.empty", safetensors({})),
        "cut_inputs": ("cut.safetensors", safetensors({"0": floats(4, 16)})[:-8]),
        "batch_17": ("17.safetensors", safetensors({"0": floats(17, 16)})),
        "batch_0": ("0.safetensors", safetensors({"0": floats(0, 16)})),
        "bad_data": ("bad.ptd", b"\x10\0\0\0FT01FH01" + bytes(100)),
        "ir": ("small.ir", b"graph(x: f32[2]) {\n  y = aten::relu(x)\n  return y\n}\n"),
    }
    made = dict(sample=sample, tmp=tmp_path, out=tmp_path / "out.pte", program=program)
    for key, (name, content) in files.items():
        made[key] = tmp_path / name
        made[key].write_bytes(content)
    made["dynamic"] = compiled(pteron, sample / "dynamic_batch_mlp" / "model.pt2", tmp_path / "dynamic.pte")
    made["unrelated"] = compiled(pteron, sample / "scalar_inputs" / "model.pt2", tmp_path / "unrelated.pte")
    return made


@pytest.mark.parametrize("name,words,code,text", ROWS, ids=[r[0].replace(" ", "_") for r in ROWS])
def test_error(pteron, places, tmp_path, name, words, code, text):
    before = {p.name: p.stat().st_mtime_ns for p in tmp_path.iterdir()}
    done = pteron(*[w.format(**places) for w in words])
    assert done.returncode == code, done.stderr
    assert text.format(**places) in done.stderr
    assert {p.name: p.stat().st_mtime_ns for p in tmp_path.iterdir()} == before


def limited(megabytes):
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))


def test_out_of_memory(pteron, places):
    """More bytes than may be had: one line and exit 7."""
    size = 1 << 30
    header = safetensors({"0": ("F32", [4, 16], b"")}).replace(b'[0, 0]', f"[0, {size}]".encode())
    big = places["tmp"] / "big.safetensors"
    big.write_bytes(header)
    with open(big, "r+b") as file:
        file.truncate(len(header) + size)
    done = pteron("run", places["program"], "--inputs", big, preexec_fn=limited(256))
    assert done.returncode == 7, done.stderr
    assert "memory" in done.stderr


def test_no_room_for_threads(pteron, places):
    """Without room for worker threads the work is done by fewer."""
    done = pteron("run", places["program"], "--inputs", places["good"], "--threads", "2", preexec_fn=limited(20))
    assert done.returncode == 0, done.stderr


def test_full_disk(pteron, places):
    """A file that cannot grow: exit 6 with its name, and no half file."""
    out = places["tmp"] / "big.pte"

    def limit():
        import signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))

    done = pteron("compile", places["sample"] / "mlp_float32" / "model.pt2", "-o", out, preexec_fn=limit)
    assert done.returncode == 6, done.stderr
    assert "big.pte" in done.stderr
    assert not out.exists() and not [p for p in places["tmp"].iterdir() if p.name.startswith("big.pte")]


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
