#!/usr/bin/env python3
"""Runs every test stage and prints a line per stage with its time, the skipped tests with their reasons, and `N passed, N failed, N skipped`.

--quick leaves out sanitizers and most conformance cases; --full runs every conformance case and the models of the big libraries.
PTERON_REQUIRE=executorch,... turns skips for that reason into failures."""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import time
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
JOBS = str(os.environ.get("JOBS") or os.cpu_count())
WORK = ROOT / "build" / "tests"
REQUIRED = set(filter(None, os.environ.get("PTERON_REQUIRE", "").split(",")))
# Variables that change what tests do never reach them.
DROPPED = re.compile(r"^(GTEST_|OMP_|PTERON_|PYTEST_ADDOPTS$|MALLOC_|LD_PRELOAD$)")


def clean_environment():
    # PyTorch lists some of its samples from sets: with a fixed hash seed every run has the same cases.
    return dict({k: v for k, v in os.environ.items() if not DROPPED.match(k)}, PYTHONHASHSEED="0")


class Results:
    def __init__(self):
        self.passed, self.failed, self.skipped, self.stages = 0, [], [], []

    def add_junit(self, path, stage):
        if not path.is_file():
            self.failed.append(f"{stage}: no report {path.name}")
            return
        cases = list(ElementTree.parse(path).getroot().iter("testcase"))
        if not cases:
            self.failed.append(f"{stage}: {path.name} has no tests")
        for case in cases:
            name = f"{stage}: {case.get('classname', '')}.{case.get('name')}"
            skip = case.find("skipped")
            if skip is not None:
                self.skip(name, (skip.get("message") or "").strip())
            elif case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
                self.failed.append(name)
            else:
                self.passed += 1

    def skip(self, name, reason):
        if any(word and word in reason for word in REQUIRED):
            self.failed.append(f"{name}: skipped although required: {reason}")
        else:
            self.skipped.append((name, reason))


def run(command, log, limit, **more):
    """Exit code; output goes to a log file whose tail is shown on failure."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "w") as out:
        try:
            code = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=ROOT,
                                  env=dict(clean_environment(), **more), timeout=limit).returncode
        except subprocess.TimeoutExpired:
            code = -1
            out.write(f"\nended after {limit} s\n")
    if code != 0:
        print("\n".join(log.read_text(errors="replace").splitlines()[-40:]), flush=True)
    return code


def require(results, what, code):
    if code == 0:
        results.passed += 1
    else:
        results.failed.append(f"{what} (exit {code})")
    return code == 0


def newest_clang():
    for version in range(30, 15, -1):
        if shutil.which(f"clang++-{version}"):
            return f"clang++-{version}"
    return None


def build(results, preset, *arguments, targets=()):
    code = run(["cmake", "--preset", preset, *arguments], WORK / f"configure-{preset}.log", 600)
    if code == 0:
        command = ["cmake", "--build", "--preset", preset]
        if targets:
            command += ["--target", *targets]
        code = run([*command, "--", "-j", JOBS], WORK / f"build-{preset}.log", 3600)
    return require(results, f"build {preset}", code)


def unit_tests(results, preset, limit=1200, **environment):
    report = WORK / f"ctest-{preset}.xml"
    report.unlink(missing_ok=True)
    run(["ctest", "--test-dir", f"build/{preset}", "--output-junit", str(report), "--output-on-failure", "-j", JOBS],
        WORK / f"ctest-{preset}.log", limit, **environment)
    results.add_junit(report, preset)


def stage_release(results, options):
    if build(results, "release"):
        unit_tests(results, "release")


# Tests that need no kernels of the op rooms: their sanitizer build takes minutes, that of the kernels half an hour. --full builds and runs all.
ROOM_TESTS = ("base_test", "tensor_test", "format_test", "ir_text_test", "import_test", "passes_test", "plan_test", "runtime_test", "damage_test",
              "tensorrt_blob_test", "tensorrt_runtime_test")
FUZZ_KINDS = ("program", "run", "data_file", "meta", "safetensors", "npy", "zip", "archive", "model_json", "sample_inputs", "pickle", "ir_text", "bundle",
              "etdump", "weights", "tensorrt_blob", "engine_record", "cuda_module", "merge")
FUZZ_SECONDS = 4


def stage_sanitizers(results, options):
    clang = newest_clang()
    if clang is None:
        results.skip("address and undefined sanitizers", "no clang 16 or newer")
        return
    targets = () if options.full else (*ROOM_TESTS, "fuzz")
    if not build(results, "asan", f"-DCMAKE_CXX_COMPILER={clang}", targets=targets):
        return
    environment = dict(ASAN_OPTIONS="detect_stack_use_after_return=1:allocator_may_return_null=1", UBSAN_OPTIONS="print_stacktrace=1")
    if options.full:
        unit_tests(results, "asan", limit=3600, **environment)
        return
    corpus = WORK / "corpus"
    shutil.rmtree(corpus, ignore_errors=True)
    with tarfile.open(ROOT / "tests" / "fuzz" / "corpus.tar.xz") as archive:
        archive.extractall(corpus)
    commands = {f"asan {test}": [f"build/asan/bin/{test}"] for test in ROOM_TESTS}
    for kind in FUZZ_KINDS:
        commands[f"fuzz {kind}"] = ["build/asan/bin/fuzz", f"--kind={kind}", "-seed=1", "-max_len=16384", f"-max_total_time={FUZZ_SECONDS}", "-timeout=20", "-rss_limit_mb=4096", str(corpus / kind),
                                    f"-artifact_prefix={WORK}/{kind}-"]
    with concurrent.futures.ThreadPoolExecutor(int(JOBS)) as pool:
        codes = pool.map(lambda item: run(item[1], WORK / f"{item[0].replace(' ', '-')}.log", 600, **environment), commands.items())
        for name, code in zip(commands, codes):
            require(results, name, code)


def stage_threads(results, options):
    clang = newest_clang()
    if clang is None:
        results.skip("thread sanitizer", "no clang 16 or newer")
        return
    targets = ("base_test", "runtime_test", "cpu_threads_test", "cpu_narrow_test")
    if build(results, "tsan", f"-DCMAKE_CXX_COMPILER={clang}", targets=targets):
        for target in targets:
            require(results, f"tsan {target}", run([f"build/tsan/bin/{target}"], WORK / f"tsan-{target}.log", 600))


def generators_key():
    """Changes with every generator of cases and with what they need."""
    files = [*sorted((ROOT / "tests" / "conformance").glob("*.py")), *sorted((ROOT / "tests").glob("requirements*.txt"))]
    return hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()[:16]


def make_cases(options):
    """Generates conformance cases once; every n-th operator sample unless --full."""
    cases, every = WORK / "cases", 1 if options.full else 24 if options.quick else 3
    stamp = cases / "made.txt"
    key = f"{every} {generators_key()}"
    if stamp.is_file() and stamp.read_text() == key:
        return cases
    shutil.rmtree(cases, ignore_errors=True)
    folder = ROOT / "tests" / "conformance"
    jobs = [["opinfo_cases.py", "--out", cases / "op", "--every", every], ["model_cases.py", "--out", cases / "model", "--section", "A"],
            ["bug_cases.py", "--out", cases / "bug"], ["export_cases.py", "--out", cases / "export"], ["aten_cases.py", "--out", cases / "aten"],
            ["edge_cases.py", "--out", cases / "edge"], ["pte_cases.py", "--out", cases / "pte"]]
    # Two at a time: each generator works on one core.
    running = []
    for job in jobs:
        log = open(WORK / f"make-{pathlib.Path(str(job[2])).name}.log", "w")
        running.append(subprocess.Popen([sys.executable, *map(str, job)], cwd=folder, stdout=log, stderr=subprocess.STDOUT, env=clean_environment()))
        while sum(p.poll() is None for p in running) >= 2:
            time.sleep(0.2)
    if any(p.wait() != 0 for p in running):
        return None
    stamp.write_text(key)
    return cases


MODELS_PYTHON = ROOT / ".venv-models" / "bin" / "python"


def stage_models(results, options):
    """Public architectures and trained models with the newest PyTorch (--full): section B, forms of export, ./dev demo --real."""
    if not (ROOT / ".venv-models" / ".ready").is_file():
        results.skip("models", "the environment of packages for models (.venv-models) could not be made; ./dev demo --real says why")
        return
    folder, cases = ROOT / "tests" / "conformance", WORK / "cases-models"
    stamp = cases / "made.txt"
    if not stamp.is_file() or stamp.read_text() != generators_key():
        shutil.rmtree(cases, ignore_errors=True)
        for script, name, *more in (("model_cases.py", "model", "--section", "B"), ("real_cases.py", "real"), ("export_cases.py", "export"),
                                    ("aten_cases.py", "aten", "--ops", "nms|roi_")):
            code = run([str(MODELS_PYTHON), str(folder / script), "--out", str(cases / name), *more], WORK / f"make-models-{name}.log", 3000)
            if not require(results, f"make cases of {script} with the newest PyTorch", code):
                return
        stamp.write_text(generators_key())
    for name in ("model", "export"):  # a library that is missing or changed shows here
        for line in (cases / name / "skipped.txt").read_text().splitlines():
            results.failed.append(f"models: not made: {line}")
    require(results, "demo --real", run([str(MODELS_PYTHON), "examples/real/demo.py"], WORK / "demo-real.log", 1200))
    check_cases(results, "models", cases, [], "conformance_allowed.txt")
    check_cases(results, "models executorch", cases, ["--executorch"], "conformance_executorch_allowed.txt")


def check_cases(results, name, cases, extra, allowed, **environment):
    report = WORK / f"conformance-{name.replace(' ', '-')}.json"
    report.unlink(missing_ok=True)
    run([sys.executable, "tests/conformance/check.py", "--pteron", "build/release/bin/pteron", "--cases", str(cases), "--jobs", JOBS, "--json", str(report),
         "--allow-unsupported", *extra], WORK / f"conformance-{name.replace(' ', '-')}.log", 3000, **environment)
    count_conformance(results, name, report, ROOT / "tests" / allowed)


def stage_conformance(results, options):
    WORK.mkdir(parents=True, exist_ok=True)
    cases = make_cases(options)
    if not require(results, "make conformance cases", 0 if cases else 1):
        return
    check_texts(results, cases)
    for name, extra, allowed in (("pteron", [], "conformance_allowed.txt"), ("portable", ["--backend", "portable"], "conformance_allowed.txt"),
                                 ("backend null", ["--backend", "null:all"], "conformance_allowed.txt"),
                                 ("executorch", ["--executorch"], "conformance_executorch_allowed.txt")):
        check_cases(results, name, cases, [*extra, "--kind", "model,dynamic,state,control,bug"] if extra else [], allowed)
    # Kernels are translated by the host's compiler, so only models.
    check_cases(results, "backend cuda", cases, ["--backend", "cuda", "--kind", "model,dynamic,state,control"], "conformance_allowed.txt",
                PTERON_CUDA_DRIVER=str(ROOT / "build" / "release" / "lib" / "libpteron_cuda_emulator.so"))


def check_texts(results, cases):
    """parse(print(graph)) after import and each pass, for every archive of the model cases."""
    archives = sorted((cases / "model").glob("*/model.pt2"))
    refused = []
    with concurrent.futures.ThreadPoolExecutor(int(JOBS)) as pool:
        command = ["build/release/bin/pteron", "compile", "--check-text", "--stop-after", "optimize", "--quiet"]
        done = pool.map(lambda path: subprocess.run([*command, path], cwd=ROOT, env=clean_environment(), capture_output=True, text=True, timeout=300), archives)
        for path, one in zip(archives, done):
            if one.returncode == 4:
                refused.append(path.parent.name)
            elif one.returncode == 0:
                results.passed += 1
            else:
                results.failed.append(f"text form {path.parent.name}: {one.stderr.strip()[:160]}")
    print(f"    text form: {len(archives) - len(refused)} programs checked after every pass", flush=True)


def count_conformance(results, name, report, allowed_file):
    """A case must pass, or be refused, or stand in the list of known gaps with a reason. Wrong, crash and timeout are failures."""
    if not report.is_file():
        results.failed.append(f"conformance {name}: no report")
        return
    allowed = {}
    for line in allowed_file.read_text().splitlines() if allowed_file.is_file() else []:
        if line.strip() and not line.startswith("#"):
            case, _, reason = line.partition(" ")
            allowed[case] = reason.strip()
    data = json.loads(report.read_text())["results"]
    totals = {}
    for r in data:
        totals[r["outcome"]] = totals.get(r["outcome"], 0) + 1
        label = f"conformance {name}: {r['name']}"
        if r["outcome"] == "pass":
            if r["name"] in allowed:
                results.failed.append(f"{label} passes now: take it off {allowed_file.name}")
            else:
                results.passed += 1
        elif r["name"] in allowed or "gap" in r:
            results.skip(label, r.get("gap") or allowed[r["name"]])
        elif r["outcome"] == "unsupported" and r["kind"] == "op":
            results.skip(label, f"refused: {r['detail'][:120]}")
        elif r["outcome"] == "unsupported" and name.endswith("executorch"):
            results.skip(label, f"refused: {r['detail'][:120]}")
        else:
            results.failed.append(f"{label}: {r['outcome']}: {r['detail'][:160]}")
    print(f"    {name}: " + ", ".join(f"{v} {k}" for k, v in sorted(totals.items())), flush=True)


def stage_property(results, options):
    """Random programs against PyTorch; failing ones lie, shrunk, in build/tests/property."""
    count = 2000 if options.full else 24 if options.quick else 60
    code = run([sys.executable, "tests/property/property_test.py", "--pteron", "build/release/bin/pteron", "--count", str(count), "--jobs", JOBS, "--out",
                str(WORK / "property")], WORK / "property.log", 7200, OMP_NUM_THREADS="1")
    require(results, f"{count} random programs", code)


PYTHON_TESTS = ("tests/cli", "tests/error", "tests/interop", "tests/programs", "tests/lint")


def stage_python(results, options):
    # A process for each folder: a hang fails one of them only, and conftest.py of a folder hides no other.
    for folder in PYTHON_TESTS:
        name = folder.replace("/", "-")
        report = WORK / f"pytest-{name}.xml"
        report.unlink(missing_ok=True)
        run([sys.executable, "-m", "pytest", "-q", "-x" if options.quick else "-q", "--junitxml", str(report), folder], WORK / f"pytest-{name}.log", 1800)
        results.add_junit(report, "python")
    if options.full:  # five minutes
        require(results, "the conformance checker catches wrong answers", run([sys.executable, "tests/conformance/tests/test_check.py"], WORK / "test-check.log", 1800, OMP_NUM_THREADS="1"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--only", default="", help="comma separated stages: release, sanitizers, threads, conformance, property, models, python")
    options = parser.parse_args()
    stages = [("release", stage_release), ("sanitizers", stage_sanitizers), ("threads", stage_threads), ("conformance", stage_conformance), ("property", stage_property),
              ("models", stage_models), ("python", stage_python)]
    chosen = set(filter(None, options.only.split(",")))
    results = Results()
    for name, stage in stages:
        if name == "models" and not options.full and name not in chosen:
            continue
        if chosen and name not in chosen or options.quick and name in ("sanitizers", "threads"):
            continue
        begin = time.time()
        failed_before = len(results.failed)
        stage(results, options)
        print(f"{name:<12} {time.time() - begin:7.1f} s  {'ok' if len(results.failed) == failed_before else 'FAILED'}", flush=True)
    reasons = {}
    for name, reason in results.skipped:
        reasons.setdefault(reason, []).append(name)
    for reason, names in sorted(reasons.items(), key=lambda item: -len(item[1])):
        print(f"skipped {names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {reason}")
    for name in results.failed:
        print(f"failed {name}")
    print(f"{results.passed} passed, {len(results.failed)} failed, {len(results.skipped)} skipped")
    return 1 if results.failed else 0


if __name__ == "__main__":
    sys.exit(main())
