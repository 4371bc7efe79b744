"""Users' own operators: the example is built with a C compiler, compiled and run; libraries that are wrong are refused with a reason."""
import pathlib
import shutil
import subprocess
import sys

import pytest
import torch

from whole import ROOT, pteron, read_tensors, run, write_tensors

EXAMPLE = ROOT / "examples" / "own_op"
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def build(source, out):
    subprocess.run([COMPILER, "-std=c99", "-Wall", "-Wextra", "-Werror", "-O2", "-fPIC", "-shared", "-I", ROOT / "include", source, "-o", out], check=True)
    return out


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    library = build(EXAMPLE / "own_op.c", folder / "libown_op.so")
    subprocess.run([sys.executable, EXAMPLE / "export.py", folder / "m.pt2"], check=True)
    pteron("compile", "--kernels", library, folder / "m.pt2", "-o", folder / "m.pte")
    return folder


def test_it_runs_with_every_size(made):
    calls = [(torch.randn(n, 4), torch.randn(4, n)) for n in (3, 8, 1)]
    for got, (x, y) in zip(run(made / "m.pte", calls, made, "--kernels", made / "libown_op.so"), calls):
        torch.testing.assert_close(got[0], (x.relu() + 0.5 * y.t()) * 2)


def test_bench_takes_it(made):
    assert "mine::" not in pteron("bench", "--kernels", made / "libown_op.so", made / "m.pte", "--min-time", "0.01", "--threads", "1").stderr


def test_without_the_library_it_is_named(made):
    message = pteron("compile", made / "m.pt2", "-o", made / "other.pte", expect=4).stderr
    assert "mine::scaled_add" in message and "export.py:" in message
    write_tensors(made / "i.safetensors", [torch.randn(3, 4), torch.randn(4, 3)])
    assert "mine::scaled_add" in pteron("run", made / "m.pte", "--inputs", made / "i.safetensors", expect=4).stderr


def test_the_official_profile_refuses_it(made):
    assert "mine::scaled_add" in pteron("compile", "--profile", "executorch", "--kernels", made / "libown_op.so", made / "m.pt2", "-o", made / "e.pte", expect=4).stderr


HEAD = '#include <pteron/ops.h>\n#include <stdio.h>\n'
SHAPE = "static int shape(const pteron_value* a, size_t n, pteron_tensor* r, size_t m, pteron_message t) { (void)n; (void)m; (void)t; r[0] = *a[0].tensors; return 0; }\n"
KERNEL = "static int kernel(const pteron_value* a, size_t n, const pteron_tensor* r, size_t m, pteron_message t) { (void)a; (void)n; (void)r; (void)m; (void)t; return 0; }\n"
FAILING = KERNEL.replace("return 0", 'snprintf(t.text, t.size, "out of luck"); return 1').replace("(void)t; ", "")
WIDER = SHAPE.replace("return 0", "r[0].sizes[0] += 1; return 0")
SCHEMA = '"mine::scaled_add(Tensor x, Tensor y, float scale=1.0) -> Tensor"'


def source(schema=SCHEMA, shape="shape", kernel="kernel", abi="PTERON_OPS_ABI", body=SHAPE + KERNEL, more=""):
    table = f"static const pteron_op ops[] = {{{{{schema}, {shape}, {kernel}}}{more}}};\n"
    return HEAD + body + table + f'static const pteron_op_library lib = {{{abi}, "bad", sizeof ops / sizeof ops[0], ops}};\n' \
        "const pteron_op_library* pteron_ops(void) { return &lib; }\n"


UNUSED = "#pragma GCC diagnostic ignored \"-Wunused-function\"\n"
BAD = {
    "no_entry": (HEAD + "int nothing(void); int nothing(void) { return 0; }\n", "exports no pteron_ops()"),
    "null": (HEAD + "const pteron_op_library* pteron_ops(void) { return 0; }\n", "gave null"),
    "old": (source(abi="0u"), "interface version 0"),
    "no_schema": (source(schema="0"), "has no schema"),
    "no_arrow": (source(schema='"mine::f(Tensor x)"'), "expected NAMESPACE::NAME"),
    "no_namespace": (source(schema='"f(Tensor x) -> Tensor"'), "no namespace"),
    "taken": (source(schema='"aten::relu(Tensor x) -> Tensor"'), "namespace 'aten' is taken"),
    "bad_type": (source(schema='"mine::f(Tensor) -> Tensor"'), "mine::f"),
    "no_shape": (source(shape="0"), "no shape function"),
    "no_kernel": (source(kernel="0"), "no kernel"),
    "twice": (source(more=f", {{{SCHEMA}, shape, kernel}}"), "there twice"),
    "shape_differs": (source(body=WIDER + KERNEL), "its shape function gives result 0"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_libraries_are_refused(made, tmp_path, name):
    text, reason = BAD[name]
    (tmp_path / "bad.c").write_text(UNUSED + text)
    library = build(tmp_path / "bad.c", tmp_path / "bad.so")
    archive = made / "m.pt2"
    if name == "shape_differs":
        subprocess.run([sys.executable, "-c", "import sys, torch; sys.path.insert(0, sys.argv[1]); import export as e; "
                        "torch.export.save(torch.export.export(e.Model(), (torch.randn(3, 4), torch.randn(4, 3))), sys.argv[2])", EXAMPLE, tmp_path / "s.pt2"], check=True)
        archive = tmp_path / "s.pt2"
    done = subprocess.run([str(ROOT / "build" / "release" / "bin" / "pteron"), "compile", "--kernels", library, archive, "-o", tmp_path / "m.pte"],
                          capture_output=True, text=True)
    assert done.returncode == (5 if name == "shape_differs" else 3), done.stderr
    assert reason in done.stderr and not (tmp_path / "m.pte").exists()


def test_not_a_library(made, tmp_path):
    (tmp_path / "text.so").write_text("hello")
    assert "text.so" in pteron("compile", "--kernels", tmp_path / "text.so", made / "m.pt2", "-o", tmp_path / "m.pte", expect=3).stderr
    assert "no such file" in pteron("compile", "--kernels", tmp_path / "none.so", made / "m.pt2", "-o", tmp_path / "m.pte", expect=3).stderr


def test_a_failing_kernel_says_why(made, tmp_path):
    (tmp_path / "fails.c").write_text(source(body=SHAPE + FAILING))
    library = build(tmp_path / "fails.c", tmp_path / "fails.so")
    message = run(made / "m.pte", [(torch.randn(3, 4), torch.randn(4, 3))], tmp_path, "--kernels", library, expect=6)
    assert "out of luck" in message and "mine::scaled_add" in message
