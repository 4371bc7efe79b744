#!/usr/bin/env python3
"""Property test: random small programs (programs.py) are exported, compiled, run, and compared with PyTorch eager.

    python property_test.py --pteron build/release/bin/pteron --count 2000 --jobs 2 --out build/tests/property
    python property_test.py --pteron build/release/bin/pteron --replay build/tests/property/failed_17.json

Seeds are --first, --first + 1, ...: the same programs in every run. A failing program is shrunk and written to OUT/failed_SEED.json.
--backend NAME and --executorch test other ways through the tool.
Exit 1 if a program is wrong, crashes the tool, is refused with another code than 4, or if more than 2 % are refused."""
import argparse
import concurrent.futures
import json
import logging
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")
import torch
from safetensors.torch import load_file, save_file

import programs

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "conformance"))
import check as judge

logging.disable(logging.ERROR)
EPSILON = {torch.float64: 1e-12, torch.float32: 4e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}


class NotExported(Exception):
    """torch.export does not take the program: no business of the tool."""


def export(spec, path):
    """Writes the archive; says which dims stayed dynamic: {(input, dim): (low, high)}."""
    module = programs.Program(spec).eval()
    inputs = programs.make_inputs(spec, 0)
    shapes = None
    if spec["dynamic"]:
        shapes = (tuple({d: torch.export.Dim.AUTO(min=1, max=8) for d, n in enumerate(x["shape"][:2]) if n > 1} or None for x in spec["inputs"]),)
    try:
        program = torch.export.export(module, inputs, dynamic_shapes=shapes, strict=False)
        torch.export.save(program, path)
    except Exception as error:
        raise NotExported(f"{type(error).__name__}: {error}"[:200]) from None
    free = {}
    placeholders = [n for n in program.graph.nodes if n.op == "placeholder"][-len(inputs):]
    for i, node in enumerate(placeholders):
        for d, size in enumerate(node.meta["val"].shape):
            if isinstance(size, torch.SymInt):
                free[(i, d)] = size.node.expr
    return program, free


def other_sizes(program, free):
    """Other sizes for the dims that are plain symbols of their own range."""
    sizes = {}
    symbols = {}
    for at, expression in free.items():
        if not expression.is_Symbol:
            return None
        bounds = program.range_constraints.get(expression)
        low, high = (max(int(bounds.lower), 1), min(int(bounds.upper), 8)) if bounds is not None else (1, 8)
        symbols.setdefault(expression, high if high < 8 else max(low, 7))
        sizes[at] = symbols[expression]
    return sizes


def expected(spec, calls):
    """Eager results. Inputs are made anew, in the layout that was exported: a clone of a strided tensor is dense, and views become copies."""
    module = programs.Program(spec).eval()
    with torch.no_grad():
        return [[v.clone() for v in module(*programs.make_inputs(spec, *call))] for call in calls]


def scales_of(spec, calls):
    """For each call: the largest magnitude of any value, and the largest unit in the last place. Differences are measured against them.
    Buffers go on from call to call, and with them the magnitude that their errors came from."""
    module = programs.Program(spec)
    buffers = [getattr(module, f"b{i}") for i in range(len(spec["buffers"]))]
    scale, unit, scales = 1.0, max([EPSILON[torch.float32]] + [EPSILON[programs.dtype_of(name)] for step in spec["steps"] for name in inner_dtypes(step)
                                                              if programs.dtype_of(name) in EPSILON]), []

    def watch(value):
        nonlocal scale, unit
        unit = max(unit, EPSILON.get(value.dtype, 0))
        if value.is_floating_point() and value.numel():
            scale = max(scale, float(value.abs().nan_to_num(0, 0, 0).max()))

    for call in calls:
        scale = scale if buffers else 1.0
        values = [*programs.make_inputs(spec, *call), *buffers]
        for value in values:
            watch(value)
        with torch.no_grad():
            for step in spec["steps"]:
                programs.apply(step, values, watch)
        scales.append((scale, unit))
    return scales


def inner_dtypes(step):
    """Dtypes that a step or the steps of its branches convert to."""
    bodies = [step[k] for k in ("true", "false", "body") if k in step]
    return ([step["dtype"]] if step["op"] == "to" else []) + [name for body in bodies for inner in body["steps"] for name in inner_dtypes(inner)]


def difference(got, want, scale, unit):
    if len(got) != len(want):
        return f"{len(got)} outputs, expected {len(want)}"
    for i, w in enumerate(want):
        g = got.get(str(i))
        if g is None:
            return f"output {i} is missing"
        if g.dtype != w.dtype or g.shape != w.shape:
            return f"output {i}: {g.dtype} {list(g.shape)}, expected {w.dtype} {list(w.shape)}"
        if not w.is_floating_point():
            if not torch.equal(g, w):
                return f"output {i}: {g.flatten()[:8].tolist()}, expected {w.flatten()[:8].tolist()}"
            continue
        bound = (unit if w.dtype != torch.float64 or unit > EPSILON[torch.float32] else EPSILON[torch.float32]) * scale
        error = (g.double() - w.double()).abs()
        bad = (error > bound) | (g.isnan() != w.isnan())
        bad &= ~((g == w) | (g.isnan() & w.isnan()))
        if bad.any():
            return f"output {i}: off by {float(error.nan_to_num(0)[bad].max()):.3g} (allowed {bound:.3g})"
    return None


def run_tool(command):
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=120)
    except subprocess.TimeoutExpired:
        return 124, "timeout"
    return done.returncode, done.stderr.decode(errors="replace").strip()


class Tool:
    """The tool as it is tested: its path, a backend or "", and whether the official runtime is a second reader."""

    def __init__(self, path, backend="", executorch=False):
        self.path, self.backend, self.executorch, self._official = path, backend, executorch, None

    def options(self):
        return (["--backend", self.backend] if self.backend else []) + (["--profile", "executorch"] if self.executorch else [])

    def official(self, program, inputs, outputs):
        """None, or what the official runtime says."""
        if self._official is None:
            self._official = judge.Official()
        answer = self._official.run(program, inputs, outputs, [], 120)
        return None if answer == "ok" else answer


def takes(program, spec, call):
    """True if the exported program itself accepts the call: an export may fix a size that depends on data (`u0 == 2`), and a squeeze that it noted for
    sizes that vary has a result of another rank where one of them is 1."""
    try:
        results = program.module()(*programs.make_inputs(spec, *call))
    except Exception:  # an assertion or guard of the export
        return False
    noted = [n.meta["val"] for n in program.graph.output_node().args[0][-len(results):]]
    return all(r.dim() == v.dim() for r, v in zip(results, noted))


def exported_differs(program, spec, call, want, scale, unit):
    """True if PyTorch's own run of the exported program departs from eager (an associative scan of nothing loses a row). Programs with state are not asked."""
    if spec["buffers"] and program.graph_signature.buffers_to_mutate:
        return False
    with torch.no_grad():
        results = program.module()(*programs.make_inputs(spec, *call))
    return difference({str(i): r for i, r in enumerate(results)}, want, scale, unit) is not None


def run_calls(spec, calls, pteron, folder):
    """Exit code and messages of `pteron run` with all calls: i0, i1, ... in the folder give o0, o1, ..."""
    command = [pteron.path, "run", str(folder / "m.pte"), "--threads", "1"]
    for k, call in enumerate(calls):
        save_file({str(i): x.contiguous() for i, x in enumerate(programs.make_inputs(spec, *call))}, str(folder / f"i{k}.safetensors"))
        command += ["--inputs", str(folder / f"i{k}.safetensors"), "--outputs", str(folder / f"o{k}.safetensors")]
    return run_tool(command)


def check(spec, pteron):
    """('pass' | 'refused' | 'skipped' | 'failed', detail)."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        try:
            program, free = export(spec, str(folder / "m.pt2"))
        except NotExported as why:
            return "skipped", str(why)
        calls = [(0,), (1,)]
        if spec["dynamic"] and free:
            sizes = other_sizes(program, free)
            if sizes is not None:
                try:
                    eager = expected(spec, [(2, sizes)])[0]
                    exported = program.module()(*programs.make_inputs(spec, 2, sizes))  # what the export assumed may not hold for these sizes
                    if all(a.shape == b.shape for a, b in zip(eager, exported)):
                        calls[1:1] = [(2, sizes)]
                except Exception:  # a guard of the export says so
                    pass
        try:
            expected(spec, calls)
        except (RuntimeError, IndexError, ValueError):
            return "skipped", "fails eagerly with other inputs"
        code, text = run_tool([pteron.path, "compile", "--no-sync", "--verify", "each", *pteron.options(), str(folder / "m.pt2"), "-o", str(folder / "m.pte")])
        if code == 4:
            return "refused", text
        if code == 2:
            raise SystemExit(f"pteron compile: {text}")
        if code != 0:
            return "failed", f"compile exit {code}: {text}"
        code, text = run_calls(spec, calls, pteron, folder)
        if code in (5, 6) and len(taken := [call for call in calls if takes(program, spec, call)]) < len(calls):
            if not taken:
                return "skipped", "the exported program refuses its own example"
            calls = taken
            code, text = run_calls(spec, calls, pteron, folder)
        if code != 0:
            return "failed", f"run exit {code}: {text}"
        want, scales = expected(spec, calls), scales_of(spec, calls)
        for reader in ("", "official runtime: ") if pteron.executorch else ("",):
            if reader:
                files = [[folder / f"{kind}{k}.safetensors" for k in range(len(calls))] for kind in "ip"]
                detail = pteron.official(folder / "m.pte", *files)
                if detail is not None:
                    return "failed", reader + detail
            for k, (w, (scale, unit)) in enumerate(zip(want, scales)):
                detail = difference(load_file(str(folder / f"{'p' if reader else 'o'}{k}.safetensors")), w, scale, unit)
                if detail is not None and exported_differs(program, spec, calls[k], w, scale, unit):
                    return "skipped", "the exported program itself gives another result than eager"
                if detail is not None:
                    return "failed", f"{reader}call {k}: {detail}"
    return "pass", ""


def drop_step(spec, at):
    """The program without one step and everything that needs its result; None if nothing is left."""
    small = json.loads(json.dumps(spec))
    first = len(spec["inputs"]) + len(spec["buffers"])
    number, renamed, gone = first, {i: i for i in range(first)}, set()
    kept = []
    made = first
    for k, step in enumerate(spec["steps"]):
        produces = step["op"] != "write"
        drop = k == at or any(i in gone for i in step["in"])
        if produces:
            if drop:
                gone.add(made)
            else:
                renamed[made] = number
                number += 1
            made += 1
        if not drop:
            kept.append(dict(step, **{"in": [renamed[i] for i in step["in"]]}))
    small["steps"] = kept
    small["outputs"] = [renamed[i] for i in spec["outputs"] if i not in gone]
    return small if small["outputs"] else None


def shrink(spec, pteron, limit=80):
    """Leaves out steps and outputs as long as the program still fails."""
    tries = 0

    def fails(candidate):
        nonlocal tries
        tries += 1
        try:
            return candidate is not None and check(candidate, pteron)[0] == "failed"
        except Exception:
            return False

    changed = True
    while changed and tries < limit:
        changed = False
        for at in reversed(range(len(spec["steps"]))):
            candidate = drop_step(spec, at)
            if tries < limit and fails(candidate):
                spec, changed = candidate, True
        for i in reversed(range(len(spec["outputs"]))):
            candidate = dict(spec, outputs=spec["outputs"][:i] + spec["outputs"][i + 1:])
            if tries < limit and candidate["outputs"] and fails(candidate):
                spec, changed = candidate, True
        if spec["dynamic"] and fails(dict(spec, dynamic=False)):
            spec, changed = dict(spec, dynamic=False), True
    return spec


_TOOLS = {}  # of this process: the official runtime is started once


def run_seed(seed, tool, out):
    pteron = _TOOLS.setdefault(tool, Tool(*tool))
    torch.set_num_threads(1)
    quiet = os.open(os.devnull, os.O_WRONLY)  # torch.export prints graphs that it refuses
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    os.close(quiet)
    try:
        spec = programs.make_program(seed)
        outcome, detail = check(spec, pteron)
    except Exception as error:  # a fault of the generator: shown, and counted as a failure
        return seed, "failed", f"{type(error).__name__}: {error}"
    if outcome == "failed":
        small = shrink(spec, pteron)
        detail = check(small, pteron)[1] or detail
        small["detail"] = detail
        (out / f"failed_{seed}.json").write_text(json.dumps(small, indent=1))
    return seed, outcome, detail


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pteron", required=True)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", default="build/tests/property")
    parser.add_argument("--backend", default="", help="compile with --backend NAME")
    parser.add_argument("--executorch", action="store_true", help="compile with --profile executorch; the official runtime reads the files too")
    parser.add_argument("--replay", default="")
    options = parser.parse_args()
    tool = (str(pathlib.Path(options.pteron).resolve()), options.backend, options.executorch)
    if options.replay:
        spec = json.loads(pathlib.Path(options.replay).read_text())
        print(json.dumps(spec, indent=1))
        print(*check(spec, Tool(*tool)))
        return 0
    out = pathlib.Path(options.out)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    counts, refused, failed = {}, {}, []
    context = __import__("multiprocessing").get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
        jobs = [pool.submit(run_seed, seed, tool, out) for seed in range(options.first, options.first + options.count)]
        for done in concurrent.futures.as_completed(jobs):
            seed, outcome, detail = done.result()
            counts[outcome] = counts.get(outcome, 0) + 1
            if outcome == "failed":
                failed.append(seed)
                print(f"failed seed {seed}: {detail[:600]}", flush=True)
            elif outcome == "refused":
                refused.setdefault(detail.splitlines()[-1][:160] if detail else "", []).append(seed)
            elif outcome == "skipped":
                counts.setdefault("skip: " + detail[:60], 0)
                counts["skip: " + detail[:60]] += 1
    for text, seeds in sorted(refused.items(), key=lambda item: -len(item[1])):
        print(f"refused {len(seeds)} (seed {seeds[0]}): {text}")
    for text, n in sorted(counts.items()):
        if text.startswith("skip: "):
            print(f"{n} {text}")
    total = options.count
    print(f"{counts.get('pass', 0)} passed, {len(failed)} failed, {counts.get('refused', 0)} refused, {counts.get('skipped', 0)} not exportable, of {total}")
    (out / "report.json").write_text(json.dumps({k: v for k, v in counts.items() if not k.startswith("skip: ")} | {"failed_seeds": sorted(failed)}))
    few = options.executorch or counts.get("refused", 0) <= total * 0.02  # the official runtime lacks many operators
    return 1 if failed or not few else 0


if __name__ == "__main__":
    sys.exit(main())
