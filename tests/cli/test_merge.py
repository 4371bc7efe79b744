"""pteron merge: several programs become one that runs like each of them."""
import json
import shutil

import pytest

FORMS = {
    "cpu": [],
    "portable": ["--backend", "portable"],
    "executorch": ["--profile", "executorch"],
}
MODELS = ("mlp_float32", "dynamic_batch_mlp", "cnn", "state_window", "cond", "scalar_inputs")


@pytest.fixture
def tool(pteron):
    def run(*words, expect=0, **more):
        done = pteron(*words, **more)
        assert done.returncode == expect, f"{words}: exit {done.returncode}\n{done.stderr}{done.stdout}"
        return done
    return run


def inputs_of(sample, name):
    """The first of its calls."""
    return sorted((sample / name).glob("inputs*.safetensors"))[0]


def results(tool, program, sample, name, method, folder):
    """The bytes of the outputs of one call."""
    out = folder / "out.safetensors"
    tool("run", program, "--method", method, "--inputs", inputs_of(sample, name), "--outputs", out)
    return out.read_bytes()


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_merged_methods_run_as_before(tool, sample, tmp_path, form, external):
    # Weights of the kernels keep the model's names outside: two models with layers of one name would contradict each other.
    models = MODELS if form == "cpu" or not external else [name for name in MODELS if name != "dynamic_batch_mlp"]
    programs, renames, expected = [], [], {}
    for i, name in enumerate(models):
        program = tmp_path / f"{name}.pte"
        tool("compile", sample / name / "model.pt2", "-o", program, *FORMS[form], *(["--external-weights"] if external else []))
        expected[name] = results(tool, program, sample, name, "forward", tmp_path)
        programs.append(program)
        renames += ["--rename", f"{name}:forward=m{i}"]
    (tmp_path / "merged").mkdir()
    merged = tmp_path / "merged" / "all.pte"
    report = json.loads(tool("merge", *programs, "-o", merged, *renames, "--json").stdout)
    assert report["methods"] == [f"m{i}" for i in range(len(models))]
    assert [f["path"] for f in report["data_files"]] == ([str(tmp_path / "merged" / "all.ptd")] if external else [])
    for file in [*programs, *tmp_path.glob("*.ptd")]:  # it stands alone
        file.unlink()
    for i, name in enumerate(models):
        assert results(tool, merged, sample, name, f"m{i}", tmp_path) == expected[name], name
    described = json.loads(tool("inspect", merged, "--json").stdout)
    assert [m["name"] for m in described["methods"]] == report["methods"]
    if external:
        tool("inspect", merged.with_suffix(".ptd"), "--verify-data")
    # Merged anew it has everything in the order of the file that was read; from then on nothing changes.
    for i in range(3):
        folder = tmp_path / f"again{i}"
        folder.mkdir()
        tool("merge", merged, "-o", folder / "all.pte")
        assert i == 0 or (folder / "all.pte").read_bytes() == merged.read_bytes()
        merged = folder / "all.pte"
    for i, name in enumerate(models):
        assert results(tool, merged, sample, name, f"m{i}", tmp_path) == expected[name], name


@pytest.mark.parametrize("words", [[], ["--external-weights"]])
def test_equal_weights_are_stored_once(tool, sample, tmp_path, words):
    for name in "ab":
        tool("compile", sample / "cnn" / "model.pt2", "-o", tmp_path / f"{name}.pte", *words)
    done = json.loads(tool("merge", tmp_path / "a.pte", tmp_path / "b.pte", "-o", tmp_path / "c.pte", "--rename", "b:forward=again", "--json").stdout)
    weights = json.loads(tool("compile", sample / "cnn" / "model.pt2", "-o", tmp_path / "a.pte", *words, "--json").stdout)["weight_bytes"]
    assert done["shared_bytes"] >= weights * 0.9
    size = sum(f.stat().st_size for f in tmp_path.glob("a.pt?"))
    assert sum(f.stat().st_size for f in tmp_path.glob("c.pt?")) < 2 * size - weights * 0.9


def test_programs_without_their_files(tool, sample, tmp_path):
    model = sample / "mlp_float32" / "model.pt2"
    tool("compile", model, "-o", tmp_path / "a.pte", "--external-weights=weights")
    (tmp_path / "far").mkdir()
    (tmp_path / "weights.ptd").rename(tmp_path / "far" / "weights.ptd")
    assert "a.pte needs its data file weights.ptd; there is no" in tool("merge", tmp_path / "a.pte", "-o", tmp_path / "c.pte", expect=3).stderr
    tool("merge", tmp_path / "a.pte", "-o", tmp_path / "c.pte", "--data", tmp_path / "far" / "weights.ptd", "--rename", "forward=run_it")
    assert "--rename expects" in tool("merge", tmp_path / "a.pte", "-o", tmp_path / "c.pte", "--rename", "forward", expect=2).stderr
    tool("run", tmp_path / "c.pte", "--method", "run_it", "--inputs", sample / "mlp_float32" / "inputs.safetensors")
    tool("compile", sample / "dynamic_batch_mlp" / "model.pt2", "-o", tmp_path / "b.pte", "--external-weights=weights", "--force")  # another program's weights
    said = tool("merge", tmp_path / "a.pte", "-o", tmp_path / "d.pte", expect=3).stderr
    assert "a.pte needs its data file weights.ptd" in said and "is another one" in said
    assert not (tmp_path / "d.pte").exists() and not (tmp_path / "d.ptd").exists()


def test_equal_keys_with_other_bytes_are_refused(tool, sample, tmp_path):
    """In the executorch profile weights keep the model's names."""
    for name in ("mlp_float32", "dynamic_batch_mlp"):
        tool("compile", sample / name / "model.pt2", "-o", tmp_path / f"{name}.pte", "--external-weights", "--backend", "portable")
    said = tool("merge", tmp_path / "mlp_float32.pte", tmp_path / "dynamic_batch_mlp.pte", "-o", tmp_path / "c.pte", "--rename", "mlp_float32:forward=a", expect=2).stderr
    assert "is not the same in" in said and "mlp_float32.ptd" in said and "dynamic_batch_mlp.ptd" in said
    assert not list(tmp_path.glob("c.*"))


ROWS = [
    ("no program", [], 2, "usage"),
    ("no output", ["{a}"], 2, "name the program to write"),
    ("the output is an input", ["{a}", "{b}", "-o", "{a}"], 2, "is the input"),
    ("a data file's name", ["{a}", "-o", "{out}.ptd"], 2, ".ptd"),
    ("one program twice", ["{a}", "{a}", "-o", "{out}"], 2, "is given twice"),
    ("one name twice", ["{a}", "{b}", "-o", "{out}"], 2, "method 'forward' is in {a} and in {b}; rename one (--rename b:forward=NAME)"),
    ("rename makes them equal", ["{a}", "{b}", "-o", "{out}", "--rename", "a:forward=x", "--rename", "b:forward=x"], 2, "method 'x' is in"),
    ("no such program", ["{a}", "{b}", "-o", "{out}", "--rename", "c:forward=x"], 2, "a method of 'c' is to be renamed: none of the programs"),
    ("no such method", ["{a}", "{b}", "-o", "{out}", "--rename", "a:backward=x"], 2, "has no method 'backward' to rename; there are [forward]"),
    ("which program", ["{a}", "{b}", "-o", "{out}", "--rename", "forward=x"], 2, "there are 2 programs: say of which"),
    ("two programs of that name", ["{a}", "{other_a}", "-o", "{out}", "--rename", "a:forward=x"], 2, "give the path"),
    ("renamed twice", ["{a}", "-o", "{out}", "--rename", "forward=x", "--rename", "forward=y"], 2, "is renamed twice"),
    ("no identifier", ["{a}", "-o", "{out}", "--rename", "forward=a-b"], 2, "is no identifier"),
    ("half a rename", ["{a}", "-o", "{out}", "--rename", "a:=x"], 2, "--rename expects"),
    ("missing program", ["{tmp}/none.pte", "-o", "{out}"], 3, "none.pte"),
    ("an archive", ["{model}", "-o", "{out}"], 3, "a .pt2 has to be compiled first"),
    ("half a program", ["{cut}", "-o", "{out}"], 3, "cut.pte"),
    ("a program as data", ["{a}", "-o", "{out}", "--data", "{b}"], 3, "found a program (.pte)"),
    ("odd alignment", ["{a}", "-o", "{out}", "--alignment", "48"], 2, "power of two"),
    ("a name that is no name", ["{a}", "-o", "{out}", "--data-name", "x/y"], 2, "--data-name"),
    ("a missing folder", ["{a}", "-o", "{tmp}/no/c.pte"], 6, "no/c.pte"),
]


@pytest.mark.parametrize("words, code, text", [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_refusals(tool, sample, tmp_path, words, code, text):
    model = sample / "mlp_float32" / "model.pt2"
    names = {"a": tmp_path / "a.pte", "b": tmp_path / "b.pte", "out": tmp_path / "c.pte", "tmp": tmp_path, "model": model, "cut": tmp_path / "cut.pte",
             "other_a": tmp_path / "other" / "a.pte"}
    tool("compile", model, "-o", names["a"])
    shutil.copy(names["a"], names["b"])
    (tmp_path / "other").mkdir()
    shutil.copy(names["a"], names["other_a"])
    names["cut"].write_bytes(names["a"].read_bytes()[:1000])
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    said = tool("merge", *[w.format(**names) for w in words], expect=code).stderr
    assert text.format(**names) in said, said
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_names_may_be_swapped(tool, sample, tmp_path):
    words = [w for name, model in (("one", "mlp_float32"), ("two", "dynamic_batch_mlp")) for w in ("--method", f"{name}={sample / model / 'model.pt2'}")]
    tool("compile", *words, "-o", tmp_path / "a.pte", "--constant", "get_size=7")
    tool("merge", tmp_path / "a.pte", "-o", tmp_path / "b.pte", "--rename", "one=two", "--rename", "two=one", "--rename", "a:get_size=size")
    for old, new, model in (("one", "two", "mlp_float32"), ("two", "one", "dynamic_batch_mlp")):
        assert results(tool, tmp_path / "a.pte", sample, model, old, tmp_path) == results(tool, tmp_path / "b.pte", sample, model, new, tmp_path)
    assert "7" in tool("run", tmp_path / "b.pte", "--method", "size").stdout


def test_states_stay_with_their_program(tool, sample, tmp_path):
    """Buffers that the methods of one program share are not those of another, though they have one name."""
    model, inputs = sample / "state_window" / "model.pt2", inputs_of(sample, "state_window")
    tool("compile", model, "-o", tmp_path / "s.pte")
    state = json.loads(tool("inspect", tmp_path / "s.pte", "--json").stdout)["methods"][0]["states"][0]["name"]
    for name in "ab":
        tool("compile", "--method", f"{name}1={model}", "--method", f"{name}2={model}", "--share-state", state, "-o", tmp_path / f"{name}.pte")
    tool("merge", tmp_path / "a.pte", tmp_path / "b.pte", "-o", tmp_path / "c.pte")

    def calls(program, methods):
        words, outs = [], []
        for i, method in enumerate(methods):
            outs.append(tmp_path / f"{program}{i}.safetensors")
            words += ["--method", method, "--inputs", inputs, "--outputs", outs[-1]]
        tool("run", tmp_path / f"{program}.pte", *words)
        return [out.read_bytes() for out in outs]

    a, b = calls("a", ["a1", "a2", "a1"]), calls("b", ["b1", "b2"])
    assert a[0] != a[1] and a[:2] == b
    assert calls("c", ["a1", "b1", "a2", "b2", "a1"]) == [a[0], b[0], a[1], b[1], a[2]]
    # A merged program has arenas of several programs: merged once more, they stay apart too.
    tool("merge", tmp_path / "c.pte", tmp_path / "a.pte", "-o", tmp_path / "d.pte", "--rename", "a:a1=x1", "--rename", "a:a2=x2")
    assert calls("d", ["a1", "b1", "x1", "a2", "x2", "b2"]) == [a[0], b[0], a[0], a[1], a[1], b[1]]


def test_data_files_of_one_name_go_to_the_programs_that_record_them(tool, sample, tmp_path):
    """Two programs in two folders, both with a w.ptd: each gets the one whose manifest it records, in either order."""
    expected, data = {}, {}
    for name in ("mlp_float32", "mlp_float16"):
        (tmp_path / name).mkdir()
        tool("compile", sample / name / "model.pt2", "-o", tmp_path / name / f"{name}.pte", "--external-weights=w")
        expected[name] = results(tool, tmp_path / name / f"{name}.pte", sample, name, "forward", tmp_path)
        (tmp_path / "data" / name).mkdir(parents=True)
        data[name] = (tmp_path / name / "w.ptd").rename(tmp_path / "data" / name / "w.ptd")
    programs = [tmp_path / name / f"{name}.pte" for name in expected]
    words = ["merge", *programs, "-o", tmp_path / "all.pte", "--rename", "mlp_float32:forward=a", "--rename", "mlp_float16:forward=b"]
    for order in (list(data.values()), list(data.values())[::-1]):
        tool(*words, "--data", order[0], "--data", order[1])
        for name, method in (("mlp_float32", "a"), ("mlp_float16", "b")):
            assert results(tool, tmp_path / "all.pte", sample, name, method, tmp_path) == expected[name]
    for file in ("all.pte", "all.ptd"):
        (tmp_path / file).unlink()
    said = tool(*words, "--data", data["mlp_float32"], expect=3).stderr  # of that name, and not what the other records
    assert "mlp_float16.pte needs its data file w.ptd" in said and f"{data['mlp_float32']} is another one" in said
    other = tmp_path / "third" / "w.ptd"
    other.parent.mkdir()
    shutil.copy(data["mlp_float32"], other)
    said = tool(*words, "--data", data["mlp_float32"], "--data", other, expect=3).stderr
    assert str(data["mlp_float32"]) in said and str(other) in said  # all that were tried
    assert not (tmp_path / "all.pte").exists() and not (tmp_path / "all.ptd").exists()


def test_an_output_that_gives_no_name_for_the_data_file(tool, sample, tmp_path):
    tool("compile", sample / "mlp_float32" / "model.pt2", "-o", tmp_path / "m.pte", "--external-weights")
    said = tool("merge", tmp_path / "m.pte", "-o", tmp_path / "nul.pte", expect=2).stderr
    assert "for a device" in said and "--data-name NAME" in said and not (tmp_path / "nul.pte").exists()
    tool("merge", tmp_path / "m.pte", "-o", tmp_path / "nul.pte", "--data-name", "w")
    tool("compile", sample / "mlp_float32" / "model.pt2", "-o", tmp_path / "in.pte")
    tool("merge", tmp_path / "in.pte", "-o", tmp_path / "con.pte")  # without a data file the name does not matter


def test_the_program_of_a_bundle_is_merged(tool, sample, tmp_path):
    inputs = inputs_of(sample, "mlp_float32")
    tool("compile", sample / "mlp_float32" / "model.pt2", "-o", tmp_path / "m.pte", "--external-weights")
    expected = results(tool, tmp_path / "m.pte", sample, "mlp_float32", "forward", tmp_path)
    tool("bundle", tmp_path / "m.pte", "--inputs", inputs, "-o", tmp_path / "m.bpte")
    (tmp_path / "m.pte").unlink()
    tool("compile", sample / "cnn" / "model.pt2", "-o", tmp_path / "c.pte")
    said = tool("merge", tmp_path / "m.bpte", tmp_path / "c.pte", "-o", tmp_path / "all.pte", "--rename", "c:forward=image").stderr
    assert "their cases stay in the bundles" in said
    assert results(tool, tmp_path / "all.pte", sample, "mlp_float32", "forward", tmp_path) == expected
