"""The archives of tests/archives: torch 2.11, 2.13 and 2.14, one with the device fields of a CUDA machine, and small public architectures.
Compiled, run and compared."""
import json
import re
import subprocess
import sys

import pytest

from conftest import ROOT, TOOL

ARCHIVES = ROOT / "tests" / "archives"
NAMES = ("torch_2_11", "torch_2_13", "torch_2_14", "torch_2_14_cuda")
MODELS = ("hf_llama", "hf_smolvlm", "hf_t5_encoder", "hf_wav2vec2", "tv_convnext_small_config")


def imported(pteron, name):
    done = pteron("compile", ARCHIVES / name / "model.pt2", "--stop-after", "import", "--dump-after", "import")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("extra", ([], ["--executorch"]), ids=("pteron", "executorch"))
def test_archives_run_and_equal_pytorch(tmp_path, extra):
    if extra:
        pytest.importorskip("executorch", reason="no package executorch")
        extra = [*extra, "--name", "torch_"]
    report = tmp_path / "report.json"
    command = [sys.executable, ROOT / "tests" / "conformance" / "check.py", "--pteron", TOOL, "--cases", ARCHIVES, "--json", report, *extra]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    results = {r["name"]: r["outcome"] for r in json.loads(report.read_text())["results"]}
    assert results == dict.fromkeys(NAMES if extra else NAMES + MODELS, "pass"), done.stdout


def test_versions_give_the_same_program(pteron):
    texts = [re.sub(r' at "[^"]*"', "", imported(pteron, name)) for name in NAMES[:3]]
    assert texts[0] == texts[1] == texts[2]


@pytest.mark.parametrize("name", NAMES)
def test_weights_keep_their_form(pteron, name):
    text = imported(pteron, name)
    for line in ('f32[3,2,3,3]{18,1,6,2} "conv.weight" parameter',  # channels-last
                 'f32[3,3]{1,3} "turned" parameter', 'f16[3] "small" parameter', 'bf16[3] "brief" parameter', 'i64[] "calls" buffer',
                 'bool[3] "mask" buffer', 'i8[2] "narrow" buffer', 'f32[0] "empty" buffer', 'f32[] "scale" buffer', 'f32[3] "lifted_tensor_0" constant'):
        assert line in text
    assert 'symbol s77: int in [1,8]' in text
    assert text.count('"layer.weight"') + text.count('"same.weight"') == 1  # shared weights are one constant
    assert ("cuda" in text) == name.endswith("_cuda")


def test_devices_are_kept_and_never_touched(pteron, tmp_path):
    on_cpu, on_cuda = imported(pteron, "torch_2_14"), imported(pteron, "torch_2_14_cuda")
    assert "p_conv_weight = const 1 on cuda:0" in on_cuda and "device:cuda:0" in on_cuda
    assert re.sub("@cuda:0| on cuda:0", "", on_cuda).replace("device:cuda:0", "device:cpu:0") == on_cpu
    files = []
    for name in ("torch_2_14", "torch_2_14_cuda"):
        files.append(tmp_path / f"{name}.pte")
        done = pteron("compile", ARCHIVES / name / "model.pt2", "-o", files[-1])
        assert done.returncode == 0, done.stderr
    run = [pteron("inspect", file, "--json") for file in files]
    assert [r.returncode for r in run] == [0, 0]
    assert "cuda" not in run[1].stdout and json.loads(run[1].stdout)["methods"][0]["arena_devices"] == ["cpu"]
