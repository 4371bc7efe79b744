#!/usr/bin/env python3
"""Checks of the tree that need no compiler: file heads, room walls, paths named in documents, sizes (reported only)."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMPILE_ROOMS = {"ir", "import", "passes", "partition", "plan", "emit", "interp", "compiler"}
RUNTIME_ROOMS = {"runtime", "library"}
# Files of an op room by half: op*.cpp belongs to the compiler, kernel*.cpp to the runtime.
ALLOWED_CROSSINGS = {"src/interp"}  # the one room that knows both


def tracked(*suffixes):
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    return [ROOT / n for n in names if n.endswith(suffixes)]


def file_heads():
    for path in tracked(".cpp", ".h"):
        lines = path.read_text().splitlines()
        if not lines or not lines[0].startswith("//"):
            yield f"{path.relative_to(ROOT)}:1: starts without a comment that says what lives here"


def half_of(relative):
    """'compile', 'runtime' or None for files that both halves may use."""
    parts = relative.split("/")
    if parts[0] != "src" or relative.startswith("src/cli/"):
        return None
    if parts[1] in COMPILE_ROOMS and not any(relative.startswith(a) for a in ALLOWED_CROSSINGS):
        return "compile"
    if parts[1] in RUNTIME_ROOMS:
        return "runtime"
    if parts[1] == "backends" and len(parts) > 3:
        return {"api": "compile", "aot": "compile", "runtime": "runtime"}.get(parts[2 if parts[2] == "api" else 3])
    if parts[1] == "ops" and len(parts) > 3:
        return "compile" if parts[3].startswith("op") else "runtime" if parts[3].startswith("kernel") else None
    return None


def walls():
    for path in tracked(".cpp", ".h"):
        relative = str(path.relative_to(ROOT))
        half = half_of(relative)
        if half is None or path.name.endswith("test.cpp"):
            continue
        foreign = RUNTIME_ROOMS if half == "compile" else COMPILE_ROOMS
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = re.match(r'#include "([a-z_]+)/', line)
            if found and found.group(1) in foreign and "interp/evaluator.h" not in line:
                yield f"{relative}:{number}: a {half} file includes {found.group(1)}/"
            other = "runtime" if half == "compile" else "aot"
            if re.match(rf'#include "backends/[a-z]+/{other}/', line) or (half == "runtime" and '#include "backends/api/' in line):
                yield f"{relative}:{number}: a {half} file includes the other half of a backend"


def document_paths():
    for path in tracked(".md"):
        if "conformance" in path.parts:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for name in re.findall(r"`((?:src|include|tests|schema|examples|cmake|bench|docs|python)/[A-Za-z0-9_./-]+)`", line):
                if "NAME" not in name and not (ROOT / name).exists():
                    yield f"{path.relative_to(ROOT)}:{number}: names {name}, which does not exist"


def machine_words():
    """No machine path and no registry host in the tree."""
    pattern = re.compile(r"/(?:root|home/[a-z]+|tmp/w)/|pypi\.org|deb\.debian|/opt/(?:wheels|pypi)")
    for path in tracked(".cpp", ".h", ".py", ".md", ".txt", ".cmake", ".json", ".inc", "dev", ".fbs"):
        if path.name == "lint.py" or path.name.endswith("_test.cpp") or not path.is_file():
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if pattern.search(line):
                yield f"{path.relative_to(ROOT)}:{number}: holds a path or host of one machine"


def locale():
    """The library reads and writes the same text in every locale of its host: <cctype>, and printf with a decimal point, ask the locale."""
    pattern = re.compile(r"#include <(?:cctype|locale|clocale)>|printf\(.*%[-+ #0-9.*l]*[aefgAEFG]|\bstd::(?:strto[df]|sto[dfl]d?|atof)\(")
    for path in tracked(".cpp", ".h"):
        relative = str(path.relative_to(ROOT))
        if not relative.startswith(("src/", "include/")) or relative.startswith("src/cli/") or path.name.endswith(("test.cpp", "fake_library.h", "import_check.cpp")):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if pattern.search(line):
                yield f"{relative}:{number}: depends on the locale: see base/ascii.h, std::to_chars and std::from_chars"


def sizes():
    files = sorted(((len(p.read_text().splitlines()), str(p.relative_to(ROOT))) for p in tracked(".cpp", ".h")), reverse=True)
    print("longest files: " + ", ".join(f"{name} {count}" for count, name in files[:10]))


def main():
    problems = [*file_heads(), *walls(), *document_paths(), *machine_words(), *locale()]
    for problem in problems:
        print(problem)
    sizes()
    print(f"{len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
