#!/usr/bin/env python3
"""Installs the build into a scratch folder, builds examples/embed against it, compiles and runs a model there, and checks what was linked."""
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


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def foreign_symbols(path):
    return [line for line in run("nm", "-C", path).splitlines() if FOREIGN.search(line)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("build", "source", "cmake", "compiler"):
        parser.add_argument(f"--{name}", required=True)
    args = parser.parse_args()
    source = pathlib.Path(args.source)
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        prefix = scratch / "prefix"
        run(args.cmake, "--install", args.build, "--prefix", prefix)
        run(args.cmake, "-S", source / "examples" / "embed", "-B", scratch / "embed", f"-DCMAKE_PREFIX_PATH={prefix}",
            f"-DCMAKE_CXX_COMPILER={args.compiler}", "-DCMAKE_BUILD_TYPE=Release")
        run(args.cmake, "--build", scratch / "embed")

        model = scratch / "model.pte"
        run(prefix / "bin" / "pteron", "compile", source / "tests" / "conformance" / "sample" / "bug_add_alpha" / "model.pt2", "-o", model)
        printed = run(scratch / "embed" / "embed", model)
        if not re.fullmatch(r"\d+ elements\n", printed):
            sys.exit(f"embed printed {printed!r}")
        missing = subprocess.run([scratch / "embed" / "embed", scratch / "none.pte"], capture_output=True, text=True)
        if missing.returncode != 3 or "none.pte" not in missing.stderr:
            sys.exit(f"a missing program: exit {missing.returncode}, {missing.stderr!r}")

        library = next(prefix.glob("lib*/**/libpteron.so")).resolve()
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
