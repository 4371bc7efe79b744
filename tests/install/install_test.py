#!/usr/bin/env python3
"""Installs the build into a scratch folder, builds the examples against it, compiles and runs models there, and checks what was
linked and exported."""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

# Rooms of the compiler and what only they use: none of it may be in the run-time library.
FOREIGN = re.compile(r"pteron::(ir|importer|passes|plan|emit|compiler|interp)::|simdjson|inflate|CLI::")
# What the dynamic linker may load for the run-time library.
ALLOWED = re.compile(r"^(libstdc\+\+|libm|libc|libgcc_s|libpthread|ld-linux)")


# The errors of include/pteron/compile.h that an archive or a path can cause: words, exit code, part of the message.
SAMPLE = "{source}/tests/conformance/sample"
API_FAILURES = (
    (["{scratch}/none.pt2"], 3, "none.pt2"),
    ([SAMPLE + "/file_cut_half/model.pt2"], 3, "zip"),
    ([SAMPLE + "/file_unknown_operator/model.pt2"], 4, "mylib::twist"),
    ([SAMPLE + "/bug_add_alpha/model.pt2", SAMPLE + "/bug_add_alpha/model.pt2"], 5, "is the input"),
    ([SAMPLE + "/bug_add_alpha/model.pt2", "{scratch}/none/x.pte"], 6, "none/x.pte"),
    ([SAMPLE + "/bug_add_alpha/model.pt2", "{scratch}/prefix"], 6, "folder"),
    ([SAMPLE + "/file_unknown_operator/model.pt2", "{scratch}/refused.pte"], 4, "mylib::twist"),
)


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def foreign_symbols(path):
    return [line for line in run("nm", "-C", path).splitlines() if FOREIGN.search(line)]


def check_segments(path):
    """What becomes read-only after loading lies in what is loaded, else the dynamic linker refuses the file."""
    segments = re.findall(r"^ *(LOAD|GNU_RELRO) +\S+ +(0x\S+) +\S+ +\S+ +(0x\S+)", run("readelf", "-lW", path), re.M)
    spans = [(kind, int(address, 16), int(address, 16) + int(size, 16)) for kind, address, size in segments]
    for _, begin, end in [s for s in spans if s[0] == "GNU_RELRO"]:
        if not any(kind == "LOAD" and first <= begin < last for kind, first, last in spans):
            sys.exit(f"{path.name}: GNU_RELRO {begin:#x} to {end:#x} begins outside of what is loaded: {spans}")


def check_search_path(path):
    """Libraries are looked for beside the file and where the system has them, never in the folder that a user happens to be in (an empty entry)."""
    for entry in re.findall(r"\((?:RUNPATH|RPATH)\) +Library r(?:un)?path: \[(.*)\]", run("readelf", "-dW", path)):
        if not all(part.startswith("$ORIGIN") for part in entry.split(":")):
            sys.exit(f"{path}: libraries are searched in '{entry}'")


def check_transform(source, scratch):
    """The example of docs/transform.md: its pass is the one of the page, and does what the page says."""
    code = (source / "examples" / "transform" / "main.cpp").read_text()
    page = (source / "docs" / "transform.md").read_text()
    example = re.search(r"```cpp\n(.*?)```", page, re.S).group(1)
    for part in filter(None, example.split("\n\n")):
        if part.strip() not in code:
            sys.exit(f"docs/transform.md shows what examples/transform does not have:\n{part}")
    printed = run(scratch / "transform" / "transform", source / "tests" / "conformance" / "sample" / "mlp_float32" / "model.pt2", scratch / "transformed.pte")
    if "aten::hardtanh(linear, 0.0, 6.0)" not in printed or "aten::relu" in printed:
        sys.exit(f"examples/transform made {printed}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("build", "source", "cmake", "compiler"):
        parser.add_argument(f"--{name}", required=True)
    args = parser.parse_args()
    source, build = pathlib.Path(args.source), pathlib.Path(args.build)
    for made in [build / "bin" / "pteron", *sorted(build.glob("**/libpteron*.so"))]:
        check_search_path(made)
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        prefix = scratch / "prefix"
        run(args.cmake, "--install", args.build, "--prefix", prefix)
        for example in ("embed", "compile", "transform"):
            run(args.cmake, "-G", "Ninja", "-S", source / "examples" / example, "-B", scratch / example, f"-DCMAKE_PREFIX_PATH={prefix}",
                f"-DCMAKE_CXX_COMPILER={args.compiler}", "-DCMAKE_BUILD_TYPE=Release")
            run(args.cmake, "--build", scratch / example)

        model = scratch / "model.pte"
        run(prefix / "bin" / "pteron", "compile", source / "tests" / "conformance" / "sample" / "bug_add_alpha" / "model.pt2", "-o", model)
        printed = run(scratch / "embed" / "embed", model)
        if not re.fullmatch(r"\d+ elements\n", printed):
            sys.exit(f"embed printed {printed!r}")
        missing = subprocess.run([scratch / "embed" / "embed", scratch / "none.pte"], capture_output=True, text=True)
        if missing.returncode != 3 or "none.pte" not in missing.stderr:
            sys.exit(f"a missing program: exit {missing.returncode}, {missing.stderr!r}")

        compiled = scratch / "compiled.pte"
        archive = source / "tests" / "conformance" / "sample" / "bug_add_alpha" / "model.pt2"
        printed = run(scratch / "compile" / "compile", archive, compiled)
        run(prefix / "bin" / "pteron", "compile", "--backend", "cpu", archive, "-o", scratch / "tool.pte")
        if not re.fullmatch(r"\d+ inputs, \d+ outputs, \d+ bytes\n", printed) or compiled.read_bytes() != (scratch / "tool.pte").read_bytes():
            sys.exit(f"compile printed {printed!r}, or its file is not the tool's")
        before = sorted(scratch.iterdir())
        for words, code, text in API_FAILURES:
            done = subprocess.run([scratch / "compile" / "compile", *[w.format(source=source, scratch=scratch) for w in words]], capture_output=True, text=True)
            if done.returncode != code or text not in done.stderr:
                sys.exit(f"compile {words}: exit {done.returncode}, {done.stderr!r}")
        if sorted(scratch.iterdir()) != before:
            sys.exit(f"a failed compilation left {sorted(set(scratch.iterdir()) - set(before))}")
        check_transform(source, scratch)
        exported = [line.split(" ", 2)[2] for line in run("nm", "-CD", "--defined-only", next(prefix.glob("lib*/**/libpteron-compiler.so"))).splitlines()]
        if not 2 <= len(exported) <= 50 or not all(re.match(r"pteron::(export_program|save|EdgeProgram::|CompiledProgram::|GraphEditor::)", name) for name in exported):
            sys.exit(f"libpteron-compiler exports {exported[:10]}")

        library = next(prefix.glob("lib*/**/libpteron.so")).resolve()
        for path in (library, prefix / "bin" / "pteron", next(prefix.glob("lib*/**/libpteron-compiler.so")).resolve()):
            check_segments(path)
        for path in (library, scratch / "embed" / "embed"):
            found = foreign_symbols(path)
            if found:
                sys.exit(f"{path.name} contains compiler code, for example\n" + "\n".join(found[:10]))
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", library))
        extra = [name for name in needed if not ALLOWED.match(name)]
        if extra:
            sys.exit(f"libpteron needs {', '.join(extra)}")
        headers = "\n".join(path.read_text() for path in (prefix / "include" / "pteron").glob("*.h"))
        outside = [name for name in re.findall(r'#include [<"]([^>"]+)[>"]', headers) if "/" in name and not name.startswith("pteron/")]
        if outside:
            sys.exit(f"public headers include {', '.join(outside)}")
    print("installed tree works")


if __name__ == "__main__":
    main()
