#!/usr/bin/env python3
"""Changes a C++ source one place at a time and runs a command that has to fail for each change.

    python3 tests/tools/mutate.py SOURCE --command 'sh -c "build && test"' [--lines 10-40]
    python3 tests/tools/mutate.py --names        the rules of data names, with their unit test alone

Changes: conditions become true and false, comparisons and && || their opposites, numbers one more and one less, characters their neighbours, ! goes away,
statements that return or continue go away. A change that the compiler refuses does not count. Prints the changes that no test noticed, and the share that one did.
"""
import argparse
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SWAPS = {"==": ("!=",), "!=": ("==",), ">=": (">", "<"), "<=": ("<", ">"), " < ": (" <= ", " >= "), " > ": (" >= ", " <= "), "&&": ("||",), "||": ("&&",), " + ": (" - ",), " - ": (" + ",),
         "true": ("false",), "false": ("true",), "ends_with": ("starts_with",), "rfind": ("find",), "find_last_of": ("find_first_of",), "find_last_not_of": ("find_first_not_of",)}
TOKEN = re.compile(r"==|!=|>=|<=| < | > |&&|\|\|| \+ | - |\btrue\b|\bfalse\b|ends_with|rfind|find_last_of|find_last_not_of")


def closing(text, at):
    """The place behind the parenthesis that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return i + 1
    return len(text)


def mutants(line):
    """Changed forms of a line of code."""
    code = re.sub(r"\s*//.*$", "", line)
    if not code.strip() or code.lstrip().startswith(("#", "namespace", "using")):
        return
    strings = [m.span() for m in re.finditer(r'"(?:[^"\\]|\\.)*"', code)]
    inside = lambda at: any(a <= at < b for a, b in strings)
    for m in TOKEN.finditer(code):
        if not inside(m.start()):
            for other in SWAPS[m.group()]:
                yield code[:m.start()] + other + code[m.end():]
    for m in re.finditer(r"\b(?:if|while) \(", code):
        end = closing(code, m.end() - 1)
        for value in ("true", "false"):
            if m.group().startswith("if") or value == "false":
                yield f"{code[:m.end()]}{value}{code[end - 1:]}"
    for m in re.finditer(r"(?<![\w.'])\d+(?![\w.'])", code):
        if not inside(m.start()):
            for step in (1, -1):
                yield f"{code[:m.start()]}{int(m.group()) + step}{code[m.end():]}"
    for m in re.finditer(r"'([^'\\])'", code):
        if not inside(m.start()):
            for step in (1, -1):
                yield f"{code[:m.start(1)]}{chr(ord(m.group(1)) + step)}{code[m.end(1):]}"
    for m in re.finditer(r"!(?=[\w(])", code):
        if not inside(m.start()):
            yield code[:m.start()] + code[m.end():]
    if re.match(r"\s*(?:return ok_status\(\)|continue|PTERON_TRY\(.*\)|[\w.>-]+ = .*);$", code):
        yield ";"
    for a, b in strings:  # words of a table; sentences are compared by a few of their words only
        if " " not in code[a:b] and b - a > 3:
            yield code[:a + 1] + chr(ord(code[a + 1]) ^ 1) + code[a + 2:]


def run(command, limit):
    try:
        return subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=limit, check=False).returncode
    except subprocess.TimeoutExpired:
        return 124


def names_command(folder):
    """Compiles the rules of data names with their test; 200: the compiler refused."""
    rules, test = ROOT / "src/format/data_name.cpp", ROOT / "src/format/data_name_test.cpp"
    flags = "-std=c++20 -O0 -Wno-sign-conversion -Isrc -Iinclude"
    base = " ".join(f"src/base/{name}.cpp" for name in ("status",))
    subprocess.run(f"g++ {flags} -c {test} -o {folder}/test.o && g++ {flags} -c {base} -o {folder}/base.o", shell=True, cwd=ROOT, check=True)
    return ["sh", "-c", f"g++ {flags} -c {rules} -o {folder}/rules.o || exit 200; g++ {folder}/rules.o {folder}/test.o {folder}/base.o -lgtest -lgtest_main -lpthread -o {folder}/test && {folder}/test"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?", type=pathlib.Path)
    parser.add_argument("--names", action="store_true")
    parser.add_argument("--command", help="exit status 0: the tests passed; 200: the source does not compile")
    parser.add_argument("--lines", default="1-1000000")
    parser.add_argument("--timeout", type=int, default=120)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = ROOT / "src/format/data_name.cpp" if options.names else options.source.resolve()
        command = names_command(folder) if options.names else shlex.split(options.command)
        if run(command, options.timeout) != 0:
            sys.exit("the command fails without a change")
        original = source.read_text()
        lines = original.split("\n")
        first, last = map(int, options.lines.split("-"))
        killed, survivors = 0, []
        try:
            for number, line in enumerate(lines[first - 1:last], first):
                for changed in mutants(line):
                    source.write_text("\n".join([*lines[:number - 1], changed, *lines[number:]]))
                    status = run(command, options.timeout)
                    if status == 200:
                        continue
                    killed += status != 0
                    if status == 0:
                        survivors.append(f"{source.name}:{number}: {changed.strip()}")
        finally:
            source.write_text(original)
        print(*survivors, sep="\n")
        total = killed + len(survivors)
        print(f"{killed} of {total} changes noticed, {100 * killed / max(total, 1):.1f} %")


if __name__ == "__main__":
    main()
