"""Shared by the tests against the official ExecuTorch package; skipped with a reason where it is not installed."""
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "build" / "release" / "bin" / "pteron"

torch = pytest.importorskip("torch", reason="executorch: torch is not installed")
pytest.importorskip("executorch.exir", reason="executorch: the official package is not installed")


def pteron(*words, expect=0):
    done = subprocess.run([str(TOOL), *map(str, words)], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    assert done.returncode == expect, f"{done.returncode}: {done.stderr}"
    return done


def save(path, tensors):
    from safetensors.torch import save_file
    save_file({str(i): t.contiguous() for i, t in enumerate(tensors)}, str(path))


def load(path):
    from safetensors.torch import load_file
    found = load_file(str(path))
    return [found[k] for k in sorted(found, key=int)]


def run_here(program, calls, folder, *more):
    """Outputs of each call of a program in our runtime."""
    words = ["run", program, *more]
    for i, call in enumerate(calls):
        save(folder / f"in_{i}.safetensors", call)
        words += ["--inputs", folder / f"in_{i}.safetensors", "--outputs", folder / f"out_{i}.safetensors"]
    pteron(*words)
    return [load(folder / f"out_{i}.safetensors") for i in range(len(calls))]


def run_official(program, calls, method="forward"):
    """Outputs of each call in the official runtime."""
    from executorch.runtime import Runtime
    loaded = Runtime.get().load_program(str(program)).load_method(method)
    return [[v.clone() for v in loaded.execute(list(call))] for call in calls]


def equal(got, want, tolerance=1e-5):
    assert len(got) == len(want)
    for a, b in zip(got, want):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
