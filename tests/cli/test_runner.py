"""Raw bytes in and out, repeats, and the command lines of executor_runner."""
import re

import pytest

np = pytest.importorskip("numpy")
safetensors = pytest.importorskip("safetensors.numpy")


@pytest.fixture
def raw(sample, tmp_path):
    x, = safetensors.load_file(sample / "mlp_float32" / "inputs.safetensors").values()
    x.tofile(tmp_path / "x.bin")
    return tmp_path / "x.bin"


@pytest.fixture
def want(pteron, program, sample, tmp_path):
    done = pteron("run", program, "--inputs", sample / "mlp_float32" / "inputs.safetensors", "--outputs", tmp_path / "want.safetensors")
    assert done.returncode == 0, done.stderr
    return safetensors.load_file(tmp_path / "want.safetensors")["0"]


@pytest.mark.parametrize("form", [["--{0}", "{1}"], ["--{0}={1}"], ["-{0}={1}"]], ids=["word", "equals", "one dash"])
def test_runner_command_line(pteron, program, raw, want, tmp_path, form):
    flags = {"model_path": program, "inputs": raw, "output_file": tmp_path / "out", "print_output": "all", "num_executions": 3, "cpu_threads": -1, "method_name": "forward"}
    words = []
    for name, value in flags.items():
        words += [part.format(name, value) for part in (form if name != "inputs" else form[:1] + form[1:] if form[0] != "-{0}={1}" else ["--{0}={1}"])]
    done = pteron("run", *words)
    assert done.returncode == 0, done.stderr
    got = np.fromfile(tmp_path / "out-0.bin", want.dtype).reshape(want.shape)
    assert np.array_equal(got, want)
    line, = done.stdout.splitlines()
    assert len(line.split("]")[1].split()) == want.size and "..." not in line


def test_runner_data_path(pteron, sample, raw, want, tmp_path):
    assert pteron("compile", sample / "mlp_float32" / "model.pt2", "-o", tmp_path / "e.pte", "--external-weights=w").returncode == 0
    (tmp_path / "w.ptd").rename(tmp_path / "moved.ptd")
    done = pteron("run", "--model_path", tmp_path / "e.pte", "--data_path", tmp_path / "moved.ptd", "--inputs", raw, "--output_file", tmp_path / "out", "--print_output=none")
    assert done.returncode == 0 and done.stdout == "", done.stdout + done.stderr
    assert np.array_equal(np.fromfile(tmp_path / "out-0.bin", want.dtype).reshape(want.shape), want)


def test_raw_inputs_of_several_kinds(pteron, sample, tmp_path):
    assert pteron("compile", sample / "where.f32.4" / "model.pt2", "-o", tmp_path / "w.pte").returncode == 0
    tensors = safetensors.load_file(sample / "where.f32.4" / "inputs.safetensors")
    files = []
    for key in sorted(tensors, key=int):
        tensors[key].tofile(tmp_path / f"in{key}.bin")
        files.append(str(tmp_path / f"in{key}.bin"))
    done = pteron("run", tmp_path / "w.pte", "--inputs", ",".join(files), "--raw-outputs", tmp_path / "raw")
    assert done.returncode == 0, done.stderr
    done = pteron("run", tmp_path / "w.pte", "--inputs", sample / "where.f32.4" / "inputs.safetensors", "--outputs", tmp_path / "o.safetensors")
    assert done.returncode == 0
    expected = safetensors.load_file(tmp_path / "o.safetensors")["0"]
    assert np.array_equal(np.fromfile(tmp_path / "raw-0.bin", expected.dtype).reshape(expected.shape), expected, equal_nan=True)
    done = pteron("run", tmp_path / "w.pte", "--inputs", ",".join(files[:-1]))
    assert done.returncode == 5 and "has none" in done.stderr
    done = pteron("run", tmp_path / "w.pte", "--inputs", ",".join(files + files[:1]))
    assert done.returncode == 5 and "the method takes" in done.stderr
    (tmp_path / "in0.bin").write_bytes(b"123")
    done = pteron("run", tmp_path / "w.pte", "--inputs", ",".join(files))
    assert done.returncode == 5 and "raw bytes, found 3" in done.stderr


def test_one_raw_input_of_the_wrong_length_is_told_its_length(pteron, sample, tmp_path):
    program = tmp_path / "p.pte"
    assert pteron("compile", sample / "cumsum.f32.3" / "model.pt2", "-o", program).returncode == 0
    (tmp_path / "x.bin").write_bytes(b"\1" * 100)
    done = pteron("run", program, "--inputs", tmp_path / "x.bin")
    assert done.returncode == 3 and "raw bytes, found 100" in done.stderr, done.stderr


def test_broken_tensor_files_are_no_raw_bytes(pteron, sample, tmp_path):
    """A cut file of tensors whose length is that of the input's raw bytes: by its name, or by its first bytes."""
    program = tmp_path / "p.pte"
    assert pteron("compile", sample / "mlp_float32" / "model.pt2", "-o", program).returncode == 0
    raw = np.arange(64, dtype=np.float32).reshape(4, 16)
    safetensors.save_file({"0": raw}, tmp_path / "whole.safetensors")
    np.save(tmp_path / "whole.npy", raw)
    np.savez(tmp_path / "whole.npz", raw)
    for kind in ("safetensors", "npy", "npz"):
        cut = (tmp_path / f"whole.{kind}").read_bytes()[:raw.nbytes]
        assert len(cut) == raw.nbytes
        for name, content in ((f"cut.{kind}", cut), (f"{kind}.bin", cut), (f"other.{kind}", raw.tobytes())):
            (tmp_path / name).write_bytes(content)
            done = pteron("run", program, "--inputs", tmp_path / name)
            assert done.returncode == 3 and name in done.stderr and "raw bytes" not in done.stderr, (name, done.stderr)
    (tmp_path / "in.bin").write_bytes(raw.tobytes())
    assert pteron("run", program, "--inputs", tmp_path / "in.bin").returncode == 0


ROWS = [
    ("print", ["--print", "some"], "none, summary or all"),
    ("repeat", ["--repeat", "0"], "at least 1"),
    ("flag without a value", ["--num_executions"], "num_executions"),
    ("no such flag", ["--num_execution=2"], "unknown option"),
]


@pytest.mark.parametrize("words,text", [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_wrong_words(pteron, program, raw, words, text):
    done = pteron("run", program, "--inputs", raw, *words)
    assert done.returncode == 2 and text in done.stderr, done.stderr


def test_outputs_do_not_overwrite_inputs(pteron, program, raw, tmp_path):
    taken = tmp_path / "x-0.bin"
    raw.rename(taken)
    done = pteron("run", program, "--inputs", taken, "--raw-outputs", tmp_path / "x")
    assert done.returncode == 2 and "write over" in done.stderr


def test_a_file_of_other_bytes_is_no_raw_input(pteron, program, tmp_path):
    (tmp_path / "x.bin").write_bytes(b"\0" * 7)
    done = pteron("run", program, "--inputs", tmp_path / "x.bin")
    assert done.returncode == 3 and "x.bin" in done.stderr


def test_help_names_the_runners_flags(pteron, sample):
    text = pteron("run", "--help").stdout
    table = (sample.parents[2] / "src" / "cli" / "runner_flags.cpp").read_text().split("kFlags[]")[1].split("};")[0]
    flags = re.findall(r'\{"(\w+)"', table)
    assert len(flags) >= 10 and [flag for flag in flags if f"--{flag} (" not in text] == []
    assert "--etdump FILE" in text and "docs/etdump.md" in text
