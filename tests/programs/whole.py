"""Shared by the tests of whole programs: export with torch, compile and run with the tool, compare with eager."""
import json
import pathlib
import subprocess

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "build" / "release" / "bin" / "pteron"
EMULATED = ["--backend", "cuda", "--spec", "cuda:arch=source"]  # with the fixture stand_in


class Call(torch.nn.Module):
    """A function as a module."""

    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, *args):
        return self.fn(*args)


def pteron(*words, expect=0):
    done = subprocess.run([str(TOOL), *map(str, words)], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    assert done.returncode == expect, f"exit {done.returncode}: {done.stderr}"
    return done


def save(module, args, path, **more):
    torch.export.save(torch.export.export(module.eval(), args, **more), str(path))
    return path


def compile_model(module, args, folder, *words, **more):
    """(program, what compile --json said)."""
    save(module, args, folder / "m.pt2", **more)
    said = pteron("compile", folder / "m.pt2", "-o", folder / "m.pte", "--json", *words).stdout
    return folder / "m.pte", json.loads(said)


def write_tensors(path, tensors):
    from safetensors.torch import save_file
    save_file({str(i): t.contiguous() for i, t in enumerate(tensors)}, str(path))


def read_tensors(path):
    from safetensors.torch import load_file
    found = load_file(str(path))
    return [found[k] for k in sorted(found, key=int)]


def run(program, calls, folder, *words, expect=0):
    """Outputs of each call; with another `expect`, the message."""
    command = ["run", program, *words]
    for i, call in enumerate(calls):
        write_tensors(folder / f"in_{i}.safetensors", call)
        command += ["--inputs", folder / f"in_{i}.safetensors", "--outputs", folder / f"out_{i}.safetensors"]
    done = pteron(*command, expect=expect)
    return done.stderr if expect else [read_tensors(folder / f"out_{i}.safetensors") for i in range(len(calls))]


def eager(module, calls):
    with torch.no_grad():
        made = []
        for call in calls:
            out = module(*[x.clone() for x in call])
            made.append([v.clone() for v in (out if isinstance(out, (tuple, list)) else [out])])
        return made


def check_calls(module, calls, folder, *words, tolerance=1e-4, **more):
    """Compiles from a copy, so that the module's state is still fresh, and compares every call."""
    import copy
    program, said = compile_model(copy.deepcopy(module), calls[0], folder, *words, **more)
    for got, want in zip(run(program, calls, folder), eager(copy.deepcopy(module), calls)):
        assert len(got) == len(want)
        for a, b in zip(got, want):
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
    return said
