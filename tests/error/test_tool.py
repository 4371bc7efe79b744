"""One row per expected failure of the tool: exit code and a stable part of the message; nothing is left behind. Those of the APIs are in facade_test.cpp and library_test.cpp."""
import io
import os
import resource
import subprocess
import zipfile

import pytest

from tensor_files import floats, safetensors

MLP = "{sample}/mlp_float32/model.pt2"
ROWS = [
    # name, words, exit code, text on stderr
    ("unknown verb names the nearest", ["complie"], 2, "did you mean 'compile'"),
    ("unknown flag names the nearest", ["compile", MLP, "--outptu", "x"], 2, "did you mean --output"),
    ("no model", ["compile"], 2, "name a MODEL.pt2"),
    ("too many arguments", ["run", "a", "b"], 2, "usage: pteron run"),
    ("unknown profile", ["compile", MLP, "--profile", "tflite"], 2, "pteron or executorch"),
    ("odd alignment", ["compile", MLP, "--alignment", "48"], 2, "power of two"),
    ("alignment is no number", ["compile", MLP, "--alignment", "big"], 2, "expects a number, found 'big'"),
    ("unknown phase", ["compile", MLP, "--stop-after", "link"], 2, "no phase 'link'"),
    ("unknown backend", ["compile", MLP, "-o", "{out}", "--backend", "tpu"], 2, "backend 'tpu' does not exist"),
    ("missing archive", ["compile", "{tmp}/none.pt2", "-o", "{out}"], 3, "none.pt2"),
    ("a directory as archive", ["compile", "{tmp}", "-o", "{out}"], 3, "is a directory"),
    ("text as archive", ["compile", "{text}", "-o", "{out}"], 3, "zip"),
    ("program as archive", ["compile", "{program}", "-o", "{out}"], 3, "zip"),
    ("archive as program", ["run", MLP], 3, "found a zip archive (a .pt2 has to be compiled first)"),
    ("program as data file", ["run", "{program}", "--inputs", "{good}", "--data", "{program}"], 3, "found a program (.pte)"),
    ("missing program", ["run", "{tmp}/none.pte"], 3, "none.pte"),
    ("unknown operator", ["compile", "{sample}/file_unknown_operator/model.pt2", "-o", "{out}"], 4, "unsupported operator"),
    ("future schema", ["compile", "{sample}/file_schema_from_future/model.pt2", "-o", "{out}"], 3, "schema"),
    ("short weight", ["compile", "{sample}/file_weight_short/model.pt2", "-o", "{out}"], 3, "bytes"),
    ("an archive beside methods", ["compile", MLP, "--method", "f=" + MLP, "-o", "{out}"], 2, "write --method forward="),
    ("edge text of a phase before partition", ["compile", MLP, "--stop-after", "decompose", "--edge-text", "{tmp}/e.txt", "-o", "{out}"], 2, "--edge-text shows the graphs after partition, --stop-after decompose ends before it"),
    ("device of no form", ["compile", "{tmp}/none.pt2", "--device", "gpu0", "-o", "{out}"], 2, "the device is cuda:NUMBER, with a number below 128; found 'gpu0'"),
    ("empty device", ["compile", "{tmp}/none.pt2", "--device", "", "-o", "{out}"], 2, "--device names no device"),
    ("device that nobody computes on", ["compile", MLP, "--device", "cuda:1", "-o", "{out}"], 2, "device cuda:1 is given, and no delegate of the program computes on a device"),
    ("device of the CPU engine", ["compile", "{tmp}/none.pt2", "--backend", "cpu:1", "-o", "{out}"], 2, "backend cpu computes on the host: it takes no device"),
    ("device twice", ["compile", "{tmp}/none.pt2", "--backend", "null:all:1", "--spec", "null:all:target_device=cuda:2", "-o", "{out}"], 2, "target_device is given twice"),
    ("a backend on two devices", ["compile", "{tmp}/none.pt2", "--backend", "null:all:0,null:all:1", "-o", "{out}"], 2, "'null:all' is named twice: the first takes every node that it can, nothing is left for the second"),
    ("method twice", ["compile", "--method", "a=" + MLP, "--method", "a=" + MLP, "-o", "{out}"], 2, "two methods named 'a'"),
    ("method that is no identifier", ["compile", "--method", "a-b={tmp}/none.pt2", "-o", "{out}"], 2, "method name 'a-b' is no identifier"),
    ("method that begins with a digit", ["compile", "--method", "2nd={tmp}/none.pt2", "-o", "{out}"], 2, "method name '2nd' is no identifier"),
    ("method of other letters", ["compile", "--method", "fürwärts={tmp}/none.pt2", "-o", "{out}"], 2, "is no identifier"),
    ("constant that is no identifier", ["compile", "{tmp}/none.pt2", "--constant", "get size=1", "-o", "{out}"], 2, "method name 'get size' is no identifier"),
    ("method without file", ["compile", "--method", "a", "-o", "{out}"], 2, "NAME=FILE"),
    ("unknown method", ["run", "{program}", "--method", "backward", "--inputs", "{sample}/mlp_float32/inputs.safetensors"], 3, "backward"),
    ("no inputs", ["run", "{program}"], 5, "input 0"),
    ("wrong dtype", ["run", "{program}", "--inputs", "{sample}/refuse_dtype/inputs.safetensors"], 5, "float32"),
    ("extra input", ["run", "{program}", "--inputs", "{sample}/refuse_extra_input/inputs.safetensors"], 5, "is no input"),
    ("other static size", ["run", "{program}", "--inputs", "{sample}/refuse_static_shape/inputs.safetensors"], 5, "expected float32 [4,16]"),
    ("inputs that are no tensors", ["run", "{program}", "--inputs", "{text}"], 3, "notes.txt"),
    ("outputs into a missing folder", ["run", "{program}", "--inputs", "{sample}/mlp_float32/inputs.safetensors", "-o", "{tmp}/no/out.safetensors"], 6, "no/out.safetensors"),
    ("program into a missing folder", ["compile", MLP, "-o", "{tmp}/no/x.pte"], 6, "no/x.pte"),
    ("verification level", ["compile", MLP, "--verify", "often"], 2, "each, phase or off"),
    ("alignment is negative", ["compile", MLP, "--alignment", "-64"], 2, "expects a number"),
    ("constant beyond 64 bits", ["compile", MLP, "-o", "{out}", "--constant", "n=99999999999999999999"], 2, "out of range"),
    ("constant beyond a double", ["compile", MLP, "-o", "{out}", "--constant", "n=1e400"], 2, "out of range"),
    ("constant without a value", ["compile", MLP, "-o", "{out}", "--constant", "n="], 2, "is empty"),
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
    ("threads are no number", ["run", "{program}", "--inputs", "{good}", "--threads", "two"], 2, "expects a number, found 'two'"),
    ("unknown input name", ["run", "{program}", "--inputs", "{other_name}"], 5, "key 'picture' is no input; the method has 1: [input]"),
    ("input given twice", ["run", "{program}", "--inputs", "{twice}"], 5, "given twice"),
    ("other rank", ["run", "{program}", "--inputs", "{other_rank}"], 5, "expected float32 [4,16], found float32 [16]"),
    ("no tensor in the inputs", ["run", "{program}", "--inputs", "{no_tensors}"], 5, "input 0 (input"),
    ("program as inputs", ["run", "{program}", "--inputs", "{program}"], 3, "tensors are expected, found a program (.pte)"),
    ("archive as inputs", ["run", "{program}", "--inputs", MLP], 3, "found an archive of torch.export.save (.pt2)"),
    ("torch file as inputs", ["run", "{program}", "--inputs", "{torch_file}"], 3, "found a torch.save file"),
    ("cut inputs", ["run", "{program}", "--inputs", "{cut_inputs}"], 3, "cut.safetensors"),
    ("size beyond the bound", ["run", "{dynamic}", "--inputs", "{batch_17}"], 5, "expected float32 [s31 in 1..16,16], found float32 [17,16]"),
    ("size below the bound", ["run", "{dynamic}", "--inputs", "{batch_0}"], 5, "found float32 [0,16]"),
    ("more outputs than calls", ["run", "{program}", "--inputs", "{good}", "-o", "{tmp}/a", "-o", "{tmp}/b"], 2, "2 --outputs for 1 call"),
    ("fewer outputs than calls", ["run", "{program}", "--inputs", "{good}", "--inputs", "{good}", "-o", "{tmp}/a"], 2, "1 --outputs for 2 calls"),
    ("one output for two calls", ["run", "{program}", "--inputs", "{good}", "--inputs", "{good}", "-o", "{tmp}/a", "-o", "{tmp}/a"], 2, "is named twice"),
    ("an output over the program", ["run", "{program}", "--inputs", "{good}", "-o", "{program}"], 2, "is the input"),
    ("a device as output", ["compile", MLP, "-o", "/dev/full"], 6, "not a regular file"),
    ("empty output name", ["compile", MLP, "-o", ""], 2, "names no file"),
    ("bound of sizes is no number", ["compile", MLP, "-o", "{out}", "--max-size", "s31=many"], 2, "expects N or NAME=N, found 's31=many'"),
    ("bound of sizes without a name", ["compile", MLP, "-o", "{out}", "--max-size", "=4"], 2, "expects N or NAME=N, found '=4'"),
    ("bound of sizes beyond 2^31", ["compile", MLP, "-o", "{out}", "--max-size", "2147483648"], 2, "at most 2^31-1"),
    ("bound of a size that is not there", ["compile", "{sample}/dynamic_batch_mlp/model.pt2", "-o", "{out}", "--max-size", "rows=4"], 2, "no size named rows; those that may vary are [s31]"),
    ("bound of sizes below the least", ["compile", "{sample}/dynamic_batch_mlp/model.pt2", "-o", "{out}", "--max-size", "0"], 2, "size s31 is at least 1, a bound of 0 is given"),
    ("constant without a sign", ["compile", MLP, "-o", "{out}", "--constant", "size"], 2, "NAME=VALUE"),
    ("constant twice", ["compile", MLP, "-o", "{out}", "--constant", "n=1", "--constant", "n=2"], 2, "two methods named 'n'"),
    ("constant named like a method", ["compile", MLP, "-o", "{out}", "--constant", "forward=1"], 2, "two methods named 'forward'"),
    ("shared state that is not there", ["compile", MLP, "-o", "{out}", "--share-state", "cache"], 2, "no method has a buffer 'cache' to share"),
    ("damaged weight", ["compile", "{bad_weight}", "-o", "{out}"], 3, "is damaged: checksum"),
    ("a pipe as archive", ["compile", "{pipe}", "-o", "{out}"], 3, "pipe is a pipe, a regular file is expected"),
    ("a device as archive", ["compile", "/dev/zero", "-o", "{out}"], 3, "/dev/zero is a device, a regular file is expected"),
    ("a pipe as operators", ["compile", MLP, "-o", "{out}", "--kernels", "{pipe}"], 3, "not a regular file"),
    ("a folder as operators", ["compile", MLP, "-o", "{out}", "--kernels", "{tmp}"], 3, "not a regular file"),
    ("a pipe as program", ["run", "{pipe}", "--inputs", "{good}"], 3, "pipe is a pipe, a regular file is expected"),
    ("a folder as program", ["run", "{tmp}", "--inputs", "{good}"], 3, "is a directory"),
    ("a pipe as inputs", ["run", "{program}", "--inputs", "{pipe}"], 3, "is a pipe"),
    ("a folder as inputs", ["run", "{program}", "--inputs", "{tmp}"], 3, "is a directory"),
    ("a pipe as data file", ["run", "{program}", "--inputs", "{good}", "--data", "{pipe}"], 3, "is a pipe"),
    ("two outputs in one array file", ["run", "{two_outputs}", "--inputs", "{two_inputs}", "-o", "{tmp}/y.npy"], 2, "y.npy: a .npy holds one array, method forward has 4 outputs"),
    ("outputs with an unknown ending", ["run", "{program}", "--inputs", "{good}", "-o", "{tmp}/y.tensors"], 2, "written as .safetensors, .npz or .npy"),
    ("outputs for torch.load", ["run", "{program}", "--inputs", "{good}", "-o", "{tmp}/y.pt"], 2, "written as .safetensors, .npz or .npy"),
    ("bfloat16 for numpy", ["run", "{bfloat16}", "--inputs", "{sample}/mlp_bfloat16/inputs.safetensors", "-o", "{tmp}/y.npy"], 2, "numpy has no dtype bfloat16"),
    ("methods and inputs that do not pair", ["run", "{program}", "-m", "a", "-m", "b", "-m", "c", "-i", "{good}", "-i", "{good}"], 2, "3 --method for 2 --inputs"),
    ("strict without a backend", ["compile", MLP, "-o", "{out}", "--strict", "--backend", "portable"], 2, "--strict needs a backend"),
    ("strict with nodes outside", ["compile", MLP, "-o", "{out}", "--strict", "--backend", "null"], 4, "no backend takes"),
    # bench
    ("bench of a missing program", ["bench", "{tmp}/none.pte"], 3, "none.pte"),
    ("bench of an archive", ["bench", MLP], 3, "ET12"),
    ("bench for no time", ["bench", "{program}", "--min-time", "soon"], 2, "--min-time expects a number from 0 on, found 'soon'"),
    ("bench for hours", ["bench", "{program}", "--min-time", "4000"], 2, "from 0 to 3600"),
    ("bench with foreign inputs", ["bench", "{program}", "--inputs", "{other_rank}"], 5, "expected float32 [4,16], found float32 [16]"),
    # compare
    ("compare with an archive without examples", ["compare", "{no_examples}", "{program}"], 5, "is missing; give --inputs FILE ({no_examples} has no sample inputs"),
    ("compare with a missing file", ["compare", "{program}", "{tmp}/none.pte", "--inputs", "{good}"], 3, "none.pte"),
    ("compare without inputs", ["compare", "{program}", "{program}"], 5, "input 0"),
    ("tolerance is no number", ["compare", "{program}", "{program}", "--inputs", "{good}", "--rtol", "small"], 2, "--rtol expects a number from 0 on, found 'small'"),
    ("negative tolerance", ["compare", "{program}", "{program}", "--inputs", "{good}", "--atol", "-1"], 2, "--atol expects"),
    ("bisection of tensors", ["compare", "{program}", "{good}", "--inputs", "{good}", "--bisect"], 2, "--bisect compares programs"),
    ("bisection of strangers", ["compare", "{sample}/cumsum.f32.3/model.pt2", "{unrelated}", "--inputs", "{sample}/cumsum.f32.3/inputs.safetensors", "--bisect"], 5, "input"),
    # inspect, explain
    ("inspect of nothing", ["inspect"], 2, "usage: pteron inspect"),
    ("inspect of a missing file", ["inspect", "{tmp}/none.ptd"], 3, "none.ptd"),
    ("inspect of text", ["inspect", "{text}"], 3, "notes.txt"),
    ("inspect of half a program", ["inspect", "{cut_program}"], 3, "cut.pte"),
    ("inspect of half an archive", ["inspect", "{sample}/file_cut_half/model.pt2"], 3, "model.pt2"),
    ("inspect of a damaged data file", ["inspect", "{bad_data}"], 3, "bad.ptd"),
    ("explain of a missing archive", ["explain", "{tmp}/none.pt2"], 3, "none.pt2"),
    ("explain for an unknown profile", ["explain", MLP, "--profile", "tflite"], 2, "pteron or executorch"),
    ("explain for an unknown backend", ["explain", MLP, "--backend", "tpu"], 2, "backend 'tpu' does not exist"),
    ("explain for a backend of another runtime", ["explain", MLP, "--backend", "cpu", "--profile", "executorch"], 2, "leave it out"),
    ("ops for an unknown profile", ["ops", "--profile", "tflite"], 2, "pteron or executorch"),
    ("explain of an unknown node", ["explain", MLP, "--node", "conv9"], 3, "no node is named 'conv9'"),
    # opt, ops, doctor
    ("opt of nothing", ["opt"], 2, "name a FILE.ir"),
    ("opt of a missing file", ["opt", "{tmp}/none.ir", "--pass", "dce"], 3, "none.ir"),
    ("opt of text that is no program", ["opt", "{text}", "--pass", "dce"], 3, "notes.txt"),
    ("opt of a program file", ["opt", "{program}", "--pass", "dce"], 3, "is no text: a program in text form is expected"),
    ("opt of characters that are none", ["opt", "{high_bytes}", "--pass", "dce"], 3, "found '\\xff\\xfe\\x01abc'"),
    ("opt with an unknown pass", ["opt", "{ir}", "--pass", "shrink"], 2, "no pass is named 'shrink'"),
    ("ops with an argument", ["ops", "aten::add", "more"], 2, "usage: pteron ops"),
    ("doctor with an argument", ["doctor", "now"], 2, "usage: pteron doctor"),
    ("no verb", [], 2, "usage"),
]


def compiled(pteron, model, out):
    done = pteron("compile", model, "-o", out, "--quiet")
    assert done.returncode == 0, done.stderr
    return out


def rewritten(archive, flip=None, leave_out=None):
    """Bytes of an archive with one bit flipped behind the checksum of an entry, or without an entry."""
    content = bytearray(archive.read_bytes())
    with zipfile.ZipFile(archive) as zipped:
        if flip:
            entry = next(e for e in zipped.infolist() if e.filename.endswith(flip))
            content[content.index(zipped.read(entry)) + entry.file_size // 2] ^= 1
            return bytes(content)
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as copy:
            for entry in zipped.infolist():
                if leave_out not in entry.filename:
                    copy.writestr(entry, zipped.read(entry))
    return out.getvalue()


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
        "bad_weight": ("bad.pt2", rewritten(sample / "mlp_float32" / "model.pt2", flip="weight_0")),
        "no_examples": ("plain.pt2", rewritten(sample / "mlp_float32" / "model.pt2", leave_out="sample_inputs/")),
        "torch_file": ("inputs.pt", zipfile.ZipFile(sample / "mlp_float32" / "model.pt2").read("model/data/sample_inputs/model.pt")),
        "high_bytes": ("high.ir", b"\xff\xfe\x01abc"),
        "two_inputs": ("two.safetensors", (sample / "nested_inputs_outputs" / "inputs.safetensors").read_bytes()),
        "ir": ("small.ir", b"graph(x: f32[2]) {\n  y = aten::relu(x)\n  return y\n}\n"),
    }
    made = dict(sample=sample, tmp=tmp_path, out=tmp_path / "out.pte", program=program)
    for key, (name, content) in files.items():
        made[key] = tmp_path / name
        made[key].write_bytes(content)
    made["pipe"] = tmp_path / "pipe"
    os.mkfifo(made["pipe"])
    made["two_outputs"] = compiled(pteron, sample / "nested_inputs_outputs" / "model.pt2", tmp_path / "two.pte")
    made["bfloat16"] = compiled(pteron, sample / "mlp_bfloat16" / "model.pt2", tmp_path / "bfloat16.pte")
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


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
def test_full_standard_output(pteron, places):
    """What cannot be printed is an error, not a success."""
    with open("/dev/full", "w") as full:
        done = subprocess.run([str(pteron.path), "inspect", str(places["program"])], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 6 and "standard output" in done.stderr


def test_output_that_is_the_input_is_refused(pteron, sample, tmp_path):
    source = tmp_path / "m.pt2"
    source.write_bytes((sample / "mlp_float32" / "model.pt2").read_bytes())
    done = pteron("compile", source, "-o", source)
    assert done.returncode == 2 and "is the input" in done.stderr
    assert source.read_bytes() == (sample / "mlp_float32" / "model.pt2").read_bytes()


def test_longest_name_of_an_output(pteron, sample, tmp_path):
    program = tmp_path / ("a" * 251 + ".pte")
    done = pteron("compile", sample / "bug_add_alpha" / "model.pt2", "-o", program)
    assert done.returncode == 0 and list(tmp_path.iterdir()) == [program], done.stderr


def test_failed_compile_keeps_the_old_output(pteron, sample, tmp_path):
    out = tmp_path / "x.pte"
    out.write_text("old")
    assert pteron("compile", sample / "file_unknown_operator" / "model.pt2", "-o", out).returncode == 4
    assert out.read_text() == "old"
