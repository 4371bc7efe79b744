"""Data files (.ptd): what compile refuses before it reads anything, what a save never replaces, and what load refuses. A test a rule."""
import json
import os
import shutil
import struct
import subprocess
import zipfile

import pytest

safetensors = pytest.importorskip("safetensors.numpy")
np = pytest.importorskip("numpy")


@pytest.fixture
def model(sample):
    return sample / "mlp_float32" / "model.pt2"


@pytest.fixture
def inputs(sample):
    return sample / "mlp_float32" / "inputs.safetensors"


@pytest.fixture
def other(sample):
    return sample / "mlp_float16" / "model.pt2"


def refused(done, code, *words):
    assert done.returncode == code, (done.returncode, done.stderr)
    for word in words:
        assert word in done.stderr, done.stderr


def listing(folder):
    return sorted(p.name for p in folder.iterdir())


@pytest.fixture
def saved(pteron, model, tmp_path):
    """A program with its weights beside it."""
    out = tmp_path / "m.pte"
    done = pteron("compile", model, "-o", out, "--external-weights")
    assert done.returncode == 0, done.stderr
    assert listing(tmp_path) == ["m.ptd", "m.pte"]
    return out


NAMES = [
    ("empty", "", "is empty"),
    ("folder", "a/b", "names a folder"),
    ("backslash", "a\\b", "names a folder"),
    ("drive", "c:x", "names a drive"),
    ("space", "a b", "found ' '"),
    ("not ASCII", "caf\u00e9", "found byte"),
    ("dot first", ".a", "first, found '.'"),
    ("dash first", "-a", "first, found '-'"),
    ("too long", "a" * 201, "201 characters, at most 200"),
    ("extension", "m.PTD", "leave '.ptd' away"),
    ("device", "Nul", "for a device"),
    ("device with extension", "com7.x", "for a device"),
]


@pytest.mark.parametrize("name,words", [row[1:] for row in NAMES], ids=[row[0] for row in NAMES])
@pytest.mark.parametrize("by_spec", [False, True])
def test_names_are_checked_before_anything_is_read(pteron, tmp_path, name, words, by_spec):
    option = ["--spec", f"cpu:data_name={name}"] if by_spec else [f"--external-weights={name}"]
    refused(pteron("compile", tmp_path / "none.pt2", "-o", tmp_path / "m.pte", *option), 2, words)
    assert listing(tmp_path) == []


def test_the_longest_name_is_written(pteron, model, tmp_path):
    assert pteron("compile", model, "-o", tmp_path / "m.pte", "--external-weights=" + "a" * 200).returncode == 0
    assert listing(tmp_path) == ["a" * 200 + ".ptd", "m.pte"]


def test_a_stem_that_breaks_the_rules_asks_for_a_name(pteron, model, tmp_path):
    refused(pteron("compile", model, "-o", tmp_path / "my model.pte", "--external-weights"), 2, "'my model'", "--external-weights=NAME")
    assert pteron("compile", model, "-o", tmp_path / "my model.pte", "--external-weights=mine").returncode == 0
    assert listing(tmp_path) == ["mine.ptd", "my model.pte"]


@pytest.mark.parametrize("path", ["m.ptd", "m.PTD", "m.ptd.", "m.ptd "])
def test_programs_are_not_named_like_data_files(pteron, tmp_path, path):
    refused(pteron("compile", tmp_path / "none.pt2", "-o", tmp_path / path), 2, "(.ptd)")
    assert listing(tmp_path) == []


def test_two_names_are_refused_with_both(pteron, tmp_path):
    compile = ["compile", "--method", f"a={tmp_path}/none.pt2", "--method", f"b={tmp_path}/none.pt2", "-o", tmp_path / "m.pte", "--backend", "cpu,null:all"]
    refused(pteron(*compile, "--external-weights=x", "--spec", "cpu:data_name=y"), 2, "'x'", "'y'", "backend cpu")
    refused(pteron(*compile, "--spec", "cpu@a:data_name=x", "--spec", "cpu@b:data_name=y"), 2, "method a", "'x'", "method b", "'y'")
    refused(pteron(*compile, "--spec", "cpu:data_name=x", "--spec", "null:all:data_name=y"), 2, "backend cpu", "backend null:all")
    refused(pteron(*compile, "--external-weights=x", "--external-weights=x"), 2, "twice")
    assert listing(tmp_path) == []


def test_a_backend_with_its_data_inside_refuses_a_name(pteron, tmp_path):
    compile = ["compile", tmp_path / "none.pt2", "-o", tmp_path / "m.pte", "--backend", "null,cpu"]
    refused(pteron(*compile, "--external-weights=x"), 2, "backend null keeps its data in the program", "'x'")
    refused(pteron(*compile, "--spec", "null:data_name=x"), 2, "backend null")
    assert listing(tmp_path) == []


SPECS = [
    ("no colon", "cpu=x", "BACKEND[@METHOD]:KEY=VALUE"),
    ("no value", "cpu:data_name", "BACKEND[@METHOD]:KEY=VALUE"),
    ("no key", "cpu:=x", "BACKEND[@METHOD]:KEY=VALUE"),
    ("unknown backend", "tpu:data_name=x", "backend 'tpu'"),
    ("unknown method", "cpu@go:data_name=x", "method 'go'"),
    ("unknown key", "cpu:speed=x", "no compile spec 'speed'; there are: data_name"),
]


@pytest.mark.parametrize("spec,words", [row[1:] for row in SPECS], ids=[row[0] for row in SPECS])
def test_specs(pteron, tmp_path, spec, words):
    refused(pteron("compile", tmp_path / "none.pt2", "-o", tmp_path / "m.pte", "--spec", spec), 2, words)


def test_weights_inside_are_the_default(pteron, model, tmp_path):
    done = pteron("compile", model, "-o", tmp_path / "m.pte")
    assert done.returncode == 0 and "no data files" in done.stdout and listing(tmp_path) == ["m.pte"]


def test_no_data_file_without_external_data(pteron, sample, tmp_path):
    done = pteron("compile", sample / "add.f32.32" / "model.pt2", "-o", tmp_path / "m.pte", "--external-weights")
    assert done.returncode == 0 and "no data file written" in done.stdout and listing(tmp_path) == ["m.pte"]


def test_report_names_the_file(pteron, model, tmp_path):
    done = pteron("compile", model, "-o", tmp_path / "m.pte", "--external-weights")
    assert f"wrote {tmp_path.resolve()}/m.ptd" in done.stdout and "not its folder" in done.stdout and "data_path=" in done.stdout
    report = json.loads(pteron("compile", model, "-o", tmp_path / "m.pte", "--external-weights", "--json").stdout)
    assert report["data_files"] == [{"path": str(tmp_path.resolve() / "m.ptd"), "file_bytes": (tmp_path / "m.ptd").stat().st_size}]
    assert report["external_weight_bytes"] > 0


@pytest.mark.parametrize("backend", ["cpu", "portable", "null:all"])
def test_outside_is_the_same_as_inside(pteron, model, inputs, tmp_path, backend):
    outputs = []
    for name, more in (("inside", []), ("outside", ["--external-weights"])):
        done = pteron("compile", model, "-o", tmp_path / f"{name}.pte", "--backend", backend, *more)
        assert done.returncode == 0, done.stderr
        done = pteron("run", tmp_path / f"{name}.pte", "--inputs", inputs, "--outputs", tmp_path / f"{name}.safetensors")
        assert done.returncode == 0, done.stderr
        outputs.append(safetensors.load_file(tmp_path / f"{name}.safetensors"))
    for key, value in outputs[0].items():
        assert np.array_equal(outputs[1][key], value)
    assert (tmp_path / "outside.pte").stat().st_size < (tmp_path / "inside.pte").stat().st_size


def test_one_backends_data_alone(pteron, model, tmp_path):
    def outside(*specs):
        done = pteron("compile", model, "-o", tmp_path / "m.pte", "--backend", "cpu,null:all", "--exclude", "linear", "--json", *specs)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        return report["external_weight_bytes"], report["weight_bytes"]

    first, total = outside("--spec", "cpu:data_name=x")
    second, _ = outside("--spec", "null:all:data_name=x")
    assert 0 <= first < second < total * 1.2 and listing(tmp_path) == ["m.pte", "x.ptd"]


# Saving.


def test_the_same_program_is_saved_again(pteron, model, other, saved, tmp_path):
    before = (tmp_path / "m.ptd").read_bytes()
    assert pteron("compile", model, "-o", saved, "--external-weights").returncode == 0
    assert (tmp_path / "m.ptd").read_bytes() == before
    done = pteron("compile", other, "-o", saved, "--external-weights")  # its own weights may change
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "m.ptd").read_bytes() != before


def test_weights_of_another_program_are_not_replaced(pteron, other, saved, inputs, tmp_path):
    before = (tmp_path / "m.ptd").read_bytes()
    refused(pteron("compile", other, "-o", tmp_path / "n.pte", "--external-weights=m"), 2, "m.ptd", "m.pte uses it", "--force")
    assert listing(tmp_path) == ["m.ptd", "m.pte"] and (tmp_path / "m.ptd").read_bytes() == before
    assert pteron("compile", other, "-o", tmp_path / "n.pte", "--external-weights=m", "--force").returncode == 0
    refused(pteron("run", saved, "--inputs", inputs), 3, "another program's", "m.ptd")


def test_equal_weights_are_shared(pteron, model, saved, inputs, tmp_path):
    assert pteron("compile", model, "-o", tmp_path / "n.pte", "--external-weights=m").returncode == 0
    assert pteron("run", saved, "--inputs", inputs).returncode == 0
    assert pteron("run", tmp_path / "n.pte", "--inputs", inputs).returncode == 0


@pytest.mark.parametrize("content", [b"", b"left over", None])
def test_a_data_file_that_no_program_records_is_not_replaced(pteron, model, saved, tmp_path, content):
    if content is None:
        os.remove(saved)  # its program is gone
        (tmp_path / "m.ptd").write_bytes((tmp_path / "m.ptd").read_bytes()[:-1])
    else:
        (tmp_path / "m.ptd").write_bytes(content)
    before = (tmp_path / "m.ptd").read_bytes()
    refused(pteron("compile", model, "-o", tmp_path / "m.pte", "--external-weights"), 2, "m.ptd", "no program in its folder records")
    assert (tmp_path / "m.ptd").read_bytes() == before
    assert pteron("compile", model, "-o", tmp_path / "m.pte", "--external-weights", "--force").returncode == 0


def test_names_that_differ_in_case_are_told(pteron, model, saved, tmp_path):
    done = pteron("compile", model, "-o", tmp_path / "n.pte", "--external-weights=M")
    assert done.returncode == 0 and "M.ptd and m.ptd" in done.stderr and "case" in done.stderr


def test_a_save_that_fails_leaves_the_old_pair(pteron, sample, saved, tmp_path):
    before = {name: (tmp_path / name).read_bytes() for name in listing(tmp_path)}
    refused(pteron("compile", sample / "file_unknown_operator" / "model.pt2", "-o", saved, "--external-weights"), 4)
    (tmp_path / "taken").mkdir()
    refused(pteron("compile", sample / "mlp_float16" / "model.pt2", "-o", tmp_path / "taken", "--external-weights=m"), 2)
    (tmp_path / "taken").rmdir()
    assert {name: (tmp_path / name).read_bytes() for name in listing(tmp_path)} == before


@pytest.mark.parametrize("words", [[], ["--external-weights"], ["--backend", "portable"], ["--backend", "portable", "--external-weights"], ["--stop-after", "emit"],
                                   ["--stop-after", "decompose"]], ids=" ".join)
def test_a_damaged_archive_replaces_nothing(pteron, other, saved, tmp_path, words):
    """Its weights are compared while the files are written."""
    (tmp_path / "in").mkdir()
    archive = bytearray(other.read_bytes())
    with zipfile.ZipFile(other) as entries:
        weight = next(entry for entry in entries.infolist() if "/weight_" in entry.filename and entry.file_size > 8)
    begin = weight.header_offset + 30 + struct.unpack_from("<H", archive, weight.header_offset + 26)[0] + struct.unpack_from("<H", archive, weight.header_offset + 28)[0]
    archive[begin + 5] ^= 1
    (tmp_path / "in" / "bad.pt2").write_bytes(archive)
    before = {name: (tmp_path / name).read_bytes() for name in ("m.pte", "m.ptd")}
    refused(pteron("compile", tmp_path / "in" / "bad.pt2", "-o", saved, "--force", *words), 3, "bad.pt2", "weight '", "is damaged: checksum")
    assert {name: (tmp_path / name).read_bytes() for name in before} == before and listing(tmp_path) == ["in", "m.ptd", "m.pte"]


def test_a_save_killed_between_its_files_is_refused(pteron, other, saved, inputs, tmp_path):
    (tmp_path / "new").mkdir()
    assert pteron("compile", other, "-o", tmp_path / "new" / "m.pte", "--external-weights").returncode == 0
    shutil.copy(tmp_path / "new" / "m.ptd", tmp_path / "m.ptd")  # what a kill after the first rename leaves
    refused(pteron("run", saved, "--inputs", inputs), 3, "needs its data file m.ptd", "another program's")


# Loading.


def test_moved_without_its_weights(pteron, saved, inputs, tmp_path):
    (tmp_path / "far").mkdir()
    shutil.copy(saved, tmp_path / "far" / "m.pte")
    refused(pteron("run", tmp_path / "far" / "m.pte", "--inputs", inputs), 3, "needs its data file m.ptd", str(tmp_path / "far" / "m.ptd"))
    assert pteron("run", tmp_path / "far" / "m.pte", "--inputs", inputs, "--data", tmp_path / "m.ptd").returncode == 0
    os.symlink(saved, tmp_path / "far" / "link.pte")
    assert pteron("run", tmp_path / "far" / "link.pte", "--inputs", inputs).returncode == 0
    (tmp_path / "m.ptd").unlink()
    refused(pteron("run", tmp_path / "far" / "link.pte", "--inputs", inputs), 3, "needs its data file m.ptd", str(tmp_path / "far" / "m.ptd"), str(tmp_path / "m.ptd"))


def test_all_files_that_were_given_are_named(pteron, model, other, saved, inputs, tmp_path):
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
    backends = {"x": "cpu", "y": "portable"}  # keys of their own, so that both can be given
    for name, backend in backends.items():
        assert pteron("compile", other, "-o", tmp_path / name / "m.pte", f"--external-weights={name}", "--backend", backend).returncode == 0
    files = [tmp_path / name / f"{name}.ptd" for name in backends]
    words = [word for file in files for word in ("--data", file)]
    refused(pteron("run", saved, "--inputs", inputs, *words), 3, "another program's", *map(str, files))
    assert pteron("run", saved, "--inputs", inputs, *words, "--data", tmp_path / "m.ptd").returncode == 0


def test_a_folder_beside_the_program_is_no_data_file(pteron, saved, inputs, tmp_path):
    (tmp_path / "m.ptd").unlink()
    (tmp_path / "m.ptd").mkdir()
    refused(pteron("run", saved, "--inputs", inputs), 3, str(tmp_path / "m.ptd"), "is a directory")


def test_inspect_needs_no_weights(pteron, saved, tmp_path):
    done = pteron("inspect", saved)
    assert done.returncode == 0 and "weights in m.ptd: " in done.stdout and ", beside the program\n" in done.stdout
    (tmp_path / "m.ptd").write_bytes(b"other")
    assert "of another size" in pteron("inspect", saved).stdout
    (tmp_path / "m.ptd").unlink()
    record, = json.loads(pteron("inspect", saved, "--json").stdout)["data_files"]
    assert record["name"] == "m.ptd" and record["place"] == "not beside the program" and len(record["manifest"]) == 32


def test_a_folder_is_no_data_file(pteron, saved, inputs, tmp_path):
    refused(pteron("run", saved, "--inputs", inputs, "--data", tmp_path), 3, str(tmp_path), "is a directory")


@pytest.mark.parametrize("cut", [1, 100, 1000])
def test_a_cut_file(pteron, saved, inputs, tmp_path, cut):
    data = tmp_path / "m.ptd"
    data.write_bytes(data.read_bytes()[:-cut])
    refused(pteron("run", saved, "--inputs", inputs), 3, "m.ptd")


def test_a_longer_file(pteron, saved, inputs, tmp_path):
    data = tmp_path / "m.ptd"
    data.write_bytes(data.read_bytes() + b"\0")
    refused(pteron("run", saved, "--inputs", inputs), 3, "m.ptd", "bytes")


def places(data):
    """Offsets of the weights in a data file: what stands in front is the table."""
    return struct.unpack_from("<Q", data, 32)[0]


def test_a_changed_weight_is_found_by_who_reads_it(pteron, model, inputs, tmp_path):
    for backend, words in (("cpu", []), ("portable", ["--verify-data"])):
        out = tmp_path / f"{backend}.pte"
        assert pteron("compile", model, "-o", out, "--external-weights", "--backend", backend).returncode == 0
        data = bytearray((tmp_path / f"{backend}.ptd").read_bytes())
        data[places(data) + 5] ^= 1
        (tmp_path / f"{backend}.ptd").write_bytes(data)
        done = pteron("run", out, "--inputs", inputs, "--outputs", tmp_path / "y.npz", *words)
        refused(done, 3, f"{backend}.ptd", "other bytes than its manifest says")
        assert done.stdout == "" and not (tmp_path / "y.npz").exists()


def test_a_record_does_not_lead_out_of_its_folder(pteron, model, inputs, tmp_path):
    (tmp_path / "in").mkdir()
    assert pteron("compile", model, "-o", tmp_path / "in" / "m.pte", "--external-weights=__abcdef").returncode == 0
    program = (tmp_path / "in" / "m.pte").read_bytes()
    assert program.count(b"__abcdef.ptd") == 1
    (tmp_path / "in" / "m.pte").write_bytes(program.replace(b"__abcdef.ptd", b"../abcde.ptd"))
    (tmp_path / "abcde.ptd").write_bytes((tmp_path / "in" / "__abcdef.ptd").read_bytes())
    refused(pteron("run", tmp_path / "in" / "m.pte", "--inputs", inputs), 3, "../abcde.ptd", "no data file may have")


def test_killed_processes_leave_no_half_file(pteron, model, tmp_path):
    """Whatever the moment: afterwards the folder holds complete files only, and no pair that runs with wrong weights."""
    for delay in (0.0, 0.01, 0.02, 0.04):
        process = subprocess.Popen([str(pteron.path), "compile", str(model), "-o", str(tmp_path / "m.pte"), "--external-weights"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(delay)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for name in listing(tmp_path):
            assert pteron("inspect", tmp_path / name).returncode == 0, name


# Exclusions: who takes what.


def test_excluded_nodes_go_to_the_next_backend(pteron, model, tmp_path):
    compile = ["compile", model, "-o", tmp_path / "m.pte", "--backend", "cpu,null:all", "--json"]
    report = json.loads(pteron(*compile, "--exclude", "aten::linear").stdout)
    nodes = {entry["name"]: entry["nodes"] for entry in report["backends"]}
    assert nodes["null:all"] > 0 and report["outside"] == []
    assert all("linear" not in kernel for group in report["groups"] if group["backend"] == "cpu" for kernel in group["kernels"])


EXCLUSIONS = [
    ("no such operator", ["--exclude", "aten::nothing"], 2, "no operator 'aten::nothing'"),
    ("no such node", ["--exclude-node", "nothing"], 2, "no node 'nothing'"),
    ("no such backend", ["--exclude", "tpu=aten::linear"], 2, "backend 'tpu'"),
    ("no backend at all", ["--backend", "portable", "--exclude", "aten::linear"], 2, "no backend to exclude it from"),
    ("no name", ["--exclude", "cpu="], 2, "[BACKEND=]OP"),
    ("no backend name", ["--exclude-node", "=x"], 2, "[BACKEND=]NODE"),
]


@pytest.mark.parametrize("words,code,text", [row[1:] for row in EXCLUSIONS], ids=[row[0] for row in EXCLUSIONS])
def test_exclusions(pteron, model, tmp_path, words, code, text):
    refused(pteron("compile", model, "-o", tmp_path / "m.pte", *words), code, text)
    assert listing(tmp_path) == []


def test_the_documents_example(pteron, sample, tmp_path):
    text = (sample.parents[2] / "docs" / "weights-files.md").read_text()
    script = text.split("```sh\n")[1].split("```")[0]
    for name in ("model.pt2", "inputs.safetensors"):
        shutil.copy(sample / "mlp_float32" / name, tmp_path)
    environment = {**os.environ, "PATH": f"{pteron.path.parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "payloads verified" in done.stdout
    assert sorted(p.name for p in tmp_path.iterdir()) == ["inputs.safetensors", "model.pt2", "policy.pte", "weights"]
