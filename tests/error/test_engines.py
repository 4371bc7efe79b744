"""Prebuilt TensorRT engines in archives: what compile makes of them, and every record that it refuses. Archives: tests/archives/make_engines.py."""
import json
import pathlib
import zipfile

import pytest

ENGINES = pathlib.Path(__file__).resolve().parents[1] / "archives" / "engines"
PLACEHOLDER = "torch.ops.tensorrt.no_op_placeholder_for_execute_engine.default"


def edited(source, target, edit, drop=()):
    """A copy of an archive with edit(model) applied to its model.json, without the entries whose names end as `drop` says."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith("models/model.json"):
                model = json.loads(content)
                edit(model)
                content = json.dumps(model)
            if not name.endswith(tuple(drop) or "\0"):
                new.writestr(name, content)
    return target


def graph_of(model):
    return model["graph_module"]["graph"]


def engine_of(model):
    return next(node for node in graph_of(model)["nodes"] if "tensorrt" in node["target"])


def slot(index, text):
    """An edit that changes a slot of the record."""

    def edit(model):
        engine_of(model)["inputs"][1 + index]["arg"] = {"as_string": text}

    return edit


def drop_input(model):
    engine_of(model)["inputs"][0]["arg"]["as_tensors"].pop()


def elide_update(model):
    """The cache's new value is no result any more, and is copied nowhere."""
    nodes = graph_of(model)["nodes"]
    engine_of(model)["outputs"][0]["as_tensors"].pop()
    nodes[:] = [node for node in nodes if "copy_" not in node["target"]]


def drop_slot(model):
    engine_of(model)["inputs"].pop()


def other_engine(model):
    engine_of(model)["inputs"][4]["arg"] = {"as_tensor": {"name": "p_weight"}}


def number_slot(model):
    engine_of(model)["inputs"][3]["arg"] = {"as_int": 3}


def no_tensors(model):
    engine_of(model)["inputs"][0]["arg"] = {"as_int": 3}


def unknown_object(model):
    engine_of(model)["inputs"][1]["arg"]["as_custom_obj"]["name"] = "other"


ROWS = [
    # name, archive, edit, exit code, text
    ("version", "buffer", slot(0, "9"), 3, "slot 0 is '9', expected version 10"),
    ("device", "buffer", slot(2, "x%8%0"), 3, "slot 2 is 'x%8%0', expected a device"),
    ("input names", "buffer", slot(4, "x"), 3, "has inputs [x], the node gives 2"),
    ("a name twice", "buffer", slot(4, "x%x"), 3, "two bindings are named 'x'"),
    ("an empty name", "buffer", slot(4, "x%"), 3, "a binding has no name"),
    ("output names", "buffer", slot(5, "p_0%q_1"), 3, "has outputs [p_0,q_1], the node gives 1"),
    ("no output", "buffer", slot(5, ""), 3, "has outputs [], the node gives 1"),
    ("a missing result that is no update", "elided", slot(12, ""), 3, "has outputs [p_0,n_1], the node gives 1"),
    ("another result less", "cache", lambda model: (elide_update(model), slot(12, "")(model)), 3, "has outputs [p_0,n_1], the node gives 1"),
    ("hardware compatible", "buffer", slot(6, "yes"), 3, "slot 6 is 'yes', expected 0 or 1"),
    ("output allocator", "buffer", slot(9, "1"), 4, "needs an output allocator"),
    ("several devices", "buffer", slot(11, "1"), 4, "runs on several devices at once"),
    ("an alias of another form", "cache", slot(12, "n_1@cache"), 3, "expected output@input@kind"),
    ("a kind of alias", "cache", slot(12, "n_1@cache@copy"), 3, "expected output@input@kind"),
    ("an alias of no input", "cache", slot(12, "n_1@p_0@user"), 3, "which is no input"),
    ("an alias of no output", "cache", slot(12, "m@cache@user"), 3, "'m', which is written in place, is no output"),
    ("an alias twice", "cache", slot(12, "n_1@cache@user%p_0@cache@user"), 4, "are written in place twice"),
    ("base64", "buffer", slot(3, "a$b="), 3, "no base64"),
    ("no engine", "buffer", slot(3, ""), 3, "has no bytes"),
    ("another buffer", "buffer", other_engine, 3, "are float32 [4], expected uint8"),
    ("an input less", "buffer", drop_input, 3, "has inputs [x,w], the node gives 1"),
    ("a slot less", "buffer", drop_slot, 3, "a record of 12 slots, expected 13"),
    ("a number as slot", "buffer", number_slot, 3, "slot 2 of the record is no text"),
    ("no list of inputs", "buffer", no_tensors, 3, "its first argument is no list of tensors"),
    ("an object that is not there", "object", unknown_object, 3, "object 'other' is no constant of the program"),
]


@pytest.mark.parametrize("archive, edit, code, text", [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_refused(pteron, tmp_path, archive, edit, code, text):
    model = edited(ENGINES / f"{archive}.pt2", tmp_path / "m.pt2", edit)
    done = pteron("compile", model, "-o", tmp_path / "m.pte")
    assert done.returncode == code, done.stderr
    assert text in done.stderr, done.stderr
    assert not (tmp_path / "m.pte").exists()


def test_an_object_without_its_file_is_refused(pteron, tmp_path):
    model = edited(ENGINES / "object.pt2", tmp_path / "m.pt2", lambda m: None, drop=["custom_obj_0"])
    done = pteron("compile", model, "-o", tmp_path / "m.pte")
    assert done.returncode == 3 and "custom_obj_0 is missing" in done.stderr, done.stderr


def test_the_engine_as_text_is_the_same_program(pteron, tmp_path):
    import base64

    with zipfile.ZipFile(ENGINES / "buffer.pt2") as archive:
        engine = b"in x f32 4\nin w f32 4\nout p_0 add x w\n"
        assert any(archive.read(n)[:len(engine)] == engine for n in archive.namelist())
    text = edited(ENGINES / "buffer.pt2", tmp_path / "text.pt2", slot(3, base64.b64encode(engine).decode()))
    for name, model in (("a", ENGINES / "buffer.pt2"), ("b", text)):
        done = pteron("compile", model, "-o", tmp_path / f"{name}.pte")
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "a.pte").read_bytes() == (tmp_path / "b.pte").read_bytes()


def test_an_engine_goes_with_its_last_user(pteron, tmp_path):
    """Without a user of its result, a node, its placeholder and its bytes are gone."""

    def only_first(model):
        add = next(node for node in graph_of(model)["nodes"] if "add" in node["target"])
        first = engine_of(model)["outputs"][0]["as_tensors"][0]["name"]
        add["inputs"][1]["arg"] = {"as_tensor": {"name": first}}

    model = edited(ENGINES / "two.pt2", tmp_path / "m.pt2", only_first)
    for name, source in (("both", ENGINES / "two.pt2"), ("one", model)):
        done = pteron("compile", source, "-o", tmp_path / f"{name}.pte")
        assert done.returncode == 0, done.stderr
    assert b"scale x 3" in (tmp_path / "both.pte").read_bytes()
    assert b"scale x 3" not in (tmp_path / "one.pte").read_bytes()
    assert b"scale x 2" in (tmp_path / "one.pte").read_bytes()


def test_reports(pteron, tmp_path):
    out = tmp_path / "m.pte"
    done = pteron("compile", ENGINES / "cache.pt2", "-o", out)
    assert "backend tensorrt on cuda:0 runs 1 nodes in 1 group" in done.stderr + done.stdout
    shown = pteron("inspect", out).stdout
    assert "engine for cuda:0" in shown and "n_1 written in place of cache" in shown and "target_device = cuda:0" in shown
    assert pteron("compile", ENGINES / "cache.pt2", "-o", out, "--backend", "portable").returncode == 0  # an engine runs nowhere else
    assert "TensorRTBackend" in pteron("inspect", out).stdout


def test_the_executorch_profile_has_engines(pteron, tmp_path):
    done = pteron("compile", ENGINES / "object.pt2", "-o", tmp_path / "m.pte", "--profile", "executorch")
    assert done.returncode == 0, done.stderr


def test_a_build_without_tensorrt_says_so_at_load(pteron, tmp_path):
    assert pteron("compile", ENGINES / "cache.pt2", "-o", tmp_path / "m.pte").returncode == 0
    done = pteron("run", tmp_path / "m.pte")
    if "no TensorRT" not in done.stderr:
        pytest.skip("this build has TensorRT")
    assert done.returncode == 6 and "its headers were not found when Pteron was built" in done.stderr


def test_a_missing_data_file_is_refused(pteron, tmp_path):
    done = pteron("compile", ENGINES / "cache.pt2", "-o", tmp_path / "m.pte", "--external-weights")
    assert done.returncode == 0, done.stderr
    (tmp_path / "m.ptd").unlink()
    done = pteron("run", tmp_path / "m.pte")
    assert done.returncode == 3 and "m.ptd" in done.stderr, done.stderr


def grown(target, size):
    """buffer.pt2 with an engine of `size` bytes: newlines behind the text, which the fake library passes over."""
    engine = b"in x f32 4\nin w f32 4\nout p_0 add x w\n"

    def edit(model):
        graph_of(model)["tensor_values"]["b__trt_engine_0"]["sizes"] = [{"as_int": size}]

    with zipfile.ZipFile(edited(ENGINES / "buffer.pt2", target.with_suffix(".edited"), edit)) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            if name.endswith("weights/weight_1"):
                with new.open(zipfile.ZipInfo(name), "w", force_zip64=True) as entry:
                    entry.write(engine)
                    block = b"\n" * (1 << 20)
                    for at in range(len(engine), size, len(block)):
                        entry.write(block[: min(len(block), size - at)])
            elif name.endswith("model_weights_config.json"):
                config = json.loads(old.read(name))
                config["config"]["_trt_engine_0"]["tensor_meta"]["sizes"] = [{"as_int": size}]
                new.writestr(name, json.dumps(config))
            else:
                new.writestr(name, old.read(name))
    return target


def test_a_program_is_smaller_by_the_engine_in_its_data_file(pteron, tmp_path):
    size = 300_000
    model = grown(tmp_path / "m.pt2", size)
    for name, words in (("inside", []), ("outside", ["--external-weights"])):
        done = pteron("compile", model, "-o", tmp_path / f"{name}.pte", *words)
        assert done.returncode == 0, done.stderr
    inside, outside, data = ((tmp_path / name).stat().st_size for name in ("inside.pte", "outside.pte", "outside.ptd"))
    assert abs(inside - outside - size) < 1024 and data > size
    engine = b"out p_0 add x w" + b"\n" * 1000
    assert engine in (tmp_path / "outside.ptd").read_bytes() and engine in (tmp_path / "inside.pte").read_bytes()


def test_strict_counts_engines_as_taken(pteron, tmp_path):
    done = pteron("compile", ENGINES / "two.pt2", "-o", tmp_path / "m.pte", "--strict")
    assert done.returncode == 0, done.stderr


def test_an_archive_with_engines_is_inspected(pteron):
    for name in ("object", "buffer"):
        done = pteron("inspect", ENGINES / f"{name}.pt2")
        assert done.returncode == 0, done.stderr


def test_two_methods_with_one_engine_store_it_once(pteron, tmp_path):
    model = ENGINES / "buffer.pt2"
    done = pteron("compile", "--method", f"a={model}", "--method", f"b={model}", "-o", tmp_path / "m.pte")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "m.pte").read_bytes().count(b"out p_0 add x w") == 1


def test_specs_need_no_backend_option(pteron, tmp_path):
    for words in ([], ["--profile", "executorch"]):
        done = pteron("compile", ENGINES / "two.pt2", "-o", tmp_path / "m.pte", *words, "--spec", "tensorrt:weight_streaming_budget=8589934592")
        assert done.returncode == 0, done.stderr
        assert pteron("inspect", tmp_path / "m.pte").stdout.count("weight_streaming_budget = 8589934592") == 2
    done = pteron("compile", ENGINES / "two.pt2", "-o", tmp_path / "n.pte", "--spec", "tensorrt:budget=1")
    assert done.returncode == 2 and "there are: data_name, weight_streaming_budget, target_device" in done.stderr, done.stderr
    assert not (tmp_path / "n.pte").exists()


def test_an_update_that_is_no_result_makes_the_buffer_state(pteron, tmp_path):
    archive = edited(ENGINES / "cache.pt2", tmp_path / "m.pt2", elide_update)
    for name, path in (("full", ENGINES / "cache.pt2"), ("elided", archive)):
        done = pteron("compile", path, "-o", tmp_path / f"{name}.pte")
        assert done.returncode == 0, done.stderr
    described = {name: json.loads(pteron("inspect", tmp_path / f"{name}.pte", "--json").stdout)["methods"][0] for name in ("full", "elided")}
    assert described["elided"]["states"] == described["full"]["states"] and described["elided"]["states"][0]["name"] == "cache"
    assert described["elided"]["payloads"] == described["full"]["payloads"]
