"""Pteron and PyTorch on one GPU: eager, CUDA graph, torch.compile (several modes) and AOTInductor.

    python baselines.py --out DIR [--models policy,resnet50|all] [--dtypes bf16,fp32] [--methods eager,cudagraph]
                        [--budget-seconds 560]
    python baselines.py --merge A/baselines.json B/baselines.json --out DIR

Every (model, dtype, method) runs in a process of its own with a time limit; a hang or a crash costs that row only.
DIR receives baselines.json, baselines.md and log.txt, rewritten after each row.
"""
import os

os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # lets the parent stay clear of the CUDA driver
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
if "CUDA_HOME" not in os.environ and os.path.isdir("/usr/local/cuda"):
    os.environ["CUDA_HOME"] = "/usr/local/cuda"

import argparse
import gc
import json
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

# method: (time limit in s, least remaining budget in s for a start)
METHODS = {
    "eager": (90, 12), "cudagraph": (90, 12), "cudagraph_nhwc": (90, 12),
    "compile": (400, 30), "compile_reduce": (400, 30), "aoti": (450, 40),
    "autotune": (480, 60), "autotune_graph": (480, 60), "pteron": (240, 12),
}
LABEL = {"eager": "eager", "cudagraph": "eager + CUDA graph", "cudagraph_nhwc": "CUDA graph, channels last",
         "compile": "compile (default)", "compile_reduce": "compile reduce-overhead", "aoti": "AOTInductor package",
         "autotune": "compile max-autotune-no-cudagraphs", "autotune_graph": "compile max-autotune",
         "pteron": "pteron, tensors on the host"}
MODE = {"compile": None, "compile_reduce": "reduce-overhead", "autotune": "max-autotune-no-cudagraphs",
        "autotune_graph": "max-autotune"}
DTYPES = ["bf16", "fp32", "tf32", "fp16"]
FALLBACK = {"bf16_tflops": 790.0, "fp16_tflops": 790.0, "tf32_tflops": 395.0, "fp32_tflops": 55.0, "copy_tbs": 4.3}


# ---------------------------------------------------------------- worker
def pteron_row(mod, ins, row, sec):
    """Exports, compiles and runs with the tool named by PTERON -> outputs, figures of the device alone; figures of whole calls go into the row."""
    import safetensors.torch as st
    import torch
    tool = os.environ.get("PTERON", "pteron")
    with tempfile.TemporaryDirectory(prefix="pteron_") as tmp:
        t0 = time.perf_counter()
        torch.export.save(torch.export.export(mod, ins, strict=False), f"{tmp}/m.pt2")
        row["export_s"] = time.perf_counter() - t0
        st.save_file({str(i): t.cpu().contiguous() for i, t in enumerate(ins)}, f"{tmp}/in.safetensors")

        def call(*command):
            done = subprocess.run([tool, *command], capture_output=True, text=True)
            if done.returncode != 0:
                raise RuntimeError(f"pteron {command[0]}: exit {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")
            return done.stdout
        extra = ["--spec", "cuda:tf32=1"] if row["dtype"] == "tf32" else []
        t0 = time.perf_counter()
        said = call("compile", f"{tmp}/m.pt2", "-o", f"{tmp}/m.pte", "--backend", "cuda", *extra)
        row["compile_s"] = time.perf_counter() - t0
        row["delegated"] = [line for line in said.splitlines() if "backend" in line]
        call("run", f"{tmp}/m.pte", "--inputs", f"{tmp}/in.safetensors", "--outputs", f"{tmp}/out.safetensors")
        out = st.load_file(f"{tmp}/out.safetensors")
        b = json.loads(call("bench", f"{tmp}/m.pte", "--inputs", f"{tmp}/in.safetensors", "--min-time", str(sec), "--json"))
    row["load_s"] = b["load_ms"] / 1e3
    lat, cuda = b["latency_ms"], b.get("cuda")
    row.update(median_ms=lat["median"], p10_ms=lat["p10"], p90_ms=lat["p90"], min_ms=lat["min"], runs=b["calls"], back_to_back_ms=lat["median"],
               launch_ms=cuda["enqueue_ms"] if cuda else lat["median"], kernels=cuda["kernels"] if cuda else [])
    device = None
    if cuda:
        row.update(to_device_ms=cuda["to_device_ms"], to_host_ms=cuda["to_host_ms"], kernel_calls=cuda["kernel_calls"])
        k = cuda["kernels_ms"]
        device = dict(median_ms=k, p10_ms=k, p90_ms=k, launch_ms=cuda["enqueue_ms"], back_to_back_ms=k)
    return [out[k] for k in sorted(out, key=int)], device


def set_tf32(on):
    import torch
    torch.set_float32_matmul_precision("high" if on else "highest")
    torch.backends.cudnn.allow_tf32 = bool(on)


class Clock:
    """CUDA events, or the host clock where there is no GPU (self-test)."""

    def __init__(self, device):
        import torch
        self.torch, self.gpu = torch, device == "cuda"

    def sync(self):
        if self.gpu:
            self.torch.cuda.synchronize()

    def pair(self):
        return [self.torch.cuda.Event(enable_timing=True) for _ in range(2)] if self.gpu else None

    def timed(self, fn):
        """-> device ms, launch ms, wall ms of one isolated call"""
        ev = self.pair()
        self.sync()
        t0 = time.perf_counter()
        if ev:
            ev[0].record()
        fn()
        if ev:
            ev[1].record()
        t1 = time.perf_counter()
        self.sync()
        t2 = time.perf_counter()
        return (ev[0].elapsed_time(ev[1]) if ev else (t2 - t0) * 1e3), (t1 - t0) * 1e3, (t2 - t0) * 1e3

    def batch(self, fn, n):
        """-> ms a call of n calls queued back to back"""
        ev = self.pair()
        self.sync()
        t0 = time.perf_counter()
        if ev:
            ev[0].record()
        for _ in range(n):
            fn()
        if ev:
            ev[1].record()
        self.sync()
        return (ev[0].elapsed_time(ev[1]) if ev else (time.perf_counter() - t0) * 1e3) / n


def quantile(v, q):
    v = sorted(v)
    return v[min(len(v) - 1, int(q * len(v)))]


def measure(fn, device, seconds=2.0, runs=50):
    c = Clock(device)
    t0, n = time.perf_counter(), 0
    while n < 3 or (n < 30 and time.perf_counter() - t0 < 0.5):
        fn()
        c.sync()
        n += 1
    if device == "cuda":
        c.torch.cuda.reset_peak_memory_stats()
    rows, t0 = [], time.perf_counter()
    while True:
        rows.append(c.timed(fn))
        el = time.perf_counter() - t0
        if len(rows) >= 3 and (el >= seconds or (len(rows) >= runs and el >= seconds / 4) or len(rows) >= 40 * runs):
            break
    dev, launch, wall = zip(*rows)
    med = statistics.median(dev)
    r = {"median_ms": med, "p10_ms": quantile(dev, .1), "p90_ms": quantile(dev, .9), "min_ms": min(dev),
         "launch_ms": statistics.median(launch), "wall_ms": statistics.median(wall), "runs": len(rows), "warmup_runs": n}
    r["back_to_back_ms"] = c.batch(fn, max(3, min(200, int(500 / max(med, 1e-3)))))
    if device == "cuda":
        import torch
        free, total = torch.cuda.mem_get_info()
        r["peak_alloc_mb"] = torch.cuda.max_memory_allocated() / 2**20
        r["device_used_mb"] = (total - free) / 2**20
    return r


def error(out, ref):
    """Largest absolute error and ||out-ref||/||ref|| over all float outputs."""
    from models_gpu import flatten
    mx, num, den, big, fin = 0.0, 0.0, 0.0, 0.0, True
    for o, r in zip(flatten(out), ref):
        if not r.is_floating_point():
            continue
        o, r = o.detach().double(), r.to(o.device).double()
        d = (o - r).abs()
        fin = fin and bool(o.isfinite().all())
        mx, big = max(mx, d.max().item()), max(big, r.abs().max().item())
        num, den = num + d.pow(2).sum().item(), den + r.pow(2).sum().item()
    return {"max_abs_err": mx, "rel_err": (num / max(den, 1e-300)) ** .5, "ref_max_abs": big, "finite": fin}


def graph_of(fn, warm=3):
    """Captures fn() into a CUDA graph -> (replay, static outputs, capture seconds)."""
    import torch
    s = torch.cuda.Stream()
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        for _ in range(warm):
            fn()
    torch.cuda.current_stream().wait_stream(s)
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        out = fn()
    torch.cuda.synchronize()
    return g.replay, out, time.perf_counter() - t0


def emit(path, row):
    with open(path + ".tmp", "w") as f:
        json.dump(row, f)
    os.replace(path + ".tmp", path)


def work(job, path):
    """One row; written to path as soon as the main figures are there, rewritten with the extras."""
    import torch
    import models_gpu as M
    device, tiny, method = job["device"], job["tiny"], job["method"]
    row = dict(job, status="ok", tf32=job["dtype"] == "tf32", torch=torch.__version__)
    spec = M.REGISTRY[job["model"]]
    sec, runs = job["seconds"], job["runs"]
    clock = Clock(device)
    torch.set_grad_enabled(False)
    torch.backends.cudnn.benchmark = True
    set_tf32(False)
    t0 = time.perf_counter()
    mod, ins = spec.build(device, tiny), spec.inputs(device, tiny)
    clock.sync()
    row["build_s"] = time.perf_counter() - t0
    out = M.flatten(mod(*ins))
    wb = 4 if job["dtype"] in ("fp32", "tf32") else 2
    row["bytes"] = M.io_bytes(mod, ins, out, wb)
    row["params_m"] = sum(p.numel() for p in mod.parameters()) / 1e6
    ref = [o.detach().cpu() for o in out]
    if method == "eager":
        try:
            row["flops"] = M.flops(mod, ins)
        except Exception as e:
            row["flops_error"] = repr(e)[:200]
    if spec.phases:
        row["phases"] = spec.phases(tiny, wb)
    del out
    mod, ins = spec.cast(mod, ins, job["dtype"])
    set_tf32(job["dtype"] == "tf32")
    gc.collect()
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    extras = None

    if method == "eager":
        fn = lambda: mod(*ins)
    elif method in ("cudagraph", "cudagraph_nhwc"):
        if method == "cudagraph_nhwc":
            mod = mod.to(memory_format=torch.channels_last)
            ins = tuple(t.contiguous(memory_format=torch.channels_last) if t.dim() == 4 else t for t in ins)
        if device == "cuda":
            fresh = [t.clone() for t in ins]
            replay, static, row["capture_s"] = graph_of(lambda: mod(*ins))
            fn = lambda: (replay(), static)[1]

            def copied():
                for a, b in zip(ins, fresh):
                    a.copy_(b)
                replay()
            extras = lambda: {"with_input_copy": measure(copied, device, sec / 4, runs)}
        else:
            fn = lambda: mod(*ins)
    elif method in MODE:
        import torch._dynamo
        torch._dynamo.config.cache_size_limit = 64
        kw = {"mode": MODE[method]} if MODE[method] else {}
        mark = MODE[method] in ("reduce-overhead", "max-autotune") and device == "cuda"
        if spec.split:
            pre, step = torch.compile(mod.prefix_m, fullgraph=True, **kw), torch.compile(mod.step_m, fullgraph=True, **kw)
            call = lambda: mod(*ins, prefix=pre, step=step)
        else:
            comp = torch.compile(mod, fullgraph=True, **kw)
            call = lambda: comp(*ins)

        def fn():
            if mark:
                torch.compiler.cudagraph_mark_step_begin()
            return call()
        t0 = time.perf_counter()
        fn()
        clock.sync()
        row["compile_s"] = time.perf_counter() - t0
        t0 = time.perf_counter()
        fn()
        clock.sync()
        row["second_call_s"] = time.perf_counter() - t0
    elif method == "aoti":
        import torch._inductor
        tmp = tempfile.mkdtemp(prefix="aoti_")

        def package(m, args, name):
            t0 = time.perf_counter()
            ep = torch.export.export(m, args, strict=False)
            t1 = time.perf_counter()
            p = torch._inductor.aoti_compile_and_package(ep, package_path=f"{tmp}/{name}.pt2")
            t2 = time.perf_counter()
            row["export_s"] = row.get("export_s", 0) + t1 - t0
            row["compile_s"] = row.get("compile_s", 0) + t2 - t0
            row["package_mb"] = row.get("package_mb", 0) + os.path.getsize(p) / 2**20
            return p
        if spec.split:
            sargs = (*mod.prefix_m(*ins[:4]), ins[4], mod.time(0))
            pp, ps = package(mod.prefix_m, ins[:4], "prefix"), package(mod.step_m, sargs, "step")
            times, steps = [mod.time(i) for i in range(mod.c.steps)], mod.c.steps
            del mod
            t0 = time.perf_counter()
            lp, ls = torch._inductor.aoti_load_package(pp), torch._inductor.aoti_load_package(ps)

            def fn():
                k, v, valid = lp(*ins[:4])
                x = ins[4]
                for i in range(steps):
                    x = ls(k, v, valid, x, times[i])
                return x
        else:
            p = package(mod, ins, "model")
            del mod
            t0 = time.perf_counter()
            loaded = torch._inductor.aoti_load_package(p)
            fn = lambda: loaded(*ins)
        row["load_s"] = time.perf_counter() - t0
        t0 = time.perf_counter()
        fn()
        clock.sync()
        row["first_run_s"] = time.perf_counter() - t0
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()

            def extras():
                replay, static, cap = graph_of(fn)
                replay()
                return {"with_cuda_graph": dict(measure(replay, device, sec / 2, runs), capture_s=cap, **error(static, ref))}
    elif method == "pteron":
        out, on_device = pteron_row(mod, ins, row, sec)
        row.update(error(out, ref))
        if on_device:
            row["on_device"] = on_device
        emit(path, row)
        return
    else:
        raise ValueError(method)

    out = fn()
    clock.sync()
    row.update(error(out, ref))
    del out
    row.update(measure(fn, device, sec, runs))
    emit(path, row)
    if extras:
        try:
            row.update(extras())
        except Exception as e:
            row["extras_error"] = repr(e)[:300]
        emit(path, row)
    if method == "aoti":
        shutil.rmtree(tmp, ignore_errors=True)


def machine(job, path):
    """Facts about the machine, and its measured ceilings."""
    import torch
    row = {"status": "ok", "torch": torch.__version__, "python": sys.version.split()[0], "cpus": os.cpu_count(),
           "time": time.strftime("%Y-%m-%d %H:%M:%S")}
    if job["device"] == "cuda":
        p = torch.cuda.get_device_properties(0)
        row.update(gpu=p.name, sms=p.multi_processor_count, mem_gb=p.total_memory / 2**30, cuda=torch.version.cuda,
                   cudnn=torch.backends.cudnn.version())
        torch.zeros(1, device="cuda").add_(1).item()
        emit(path, row)
        if not job["ceilings"]:
            return
        torch.set_grad_enabled(False)
        for d in DTYPES:
            set_tf32(d == "tf32")
            dt = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(d, torch.float32)
            n = 8192 if dt != torch.float32 else 4096
            a, b = (torch.randn(n, n, device="cuda", dtype=dt) for _ in range(2))
            r = measure(lambda: torch.mm(a, b), "cuda", 0.4, 10)
            row[d + "_tflops"] = 2 * n**3 / r["median_ms"] / 1e9
        src = torch.empty(1 << 30, device="cuda", dtype=torch.float32).normal_()
        dst = torch.empty_like(src)
        row["copy_tbs"] = 2 * src.numel() * 4 / measure(lambda: dst.copy_(src), "cuda", 0.4, 10)["median_ms"] / 1e9
    emit(path, row)


def smi(query="name,driver_version,clocks.sm,clocks.mem,power.draw,temperature.gpu"):
    try:
        return subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True,
                              timeout=20).stdout.strip().splitlines()[0]
    except Exception as e:
        return repr(e)[:80]


# ---------------------------------------------------------------- parent
def child_main(fn, job, path, log):
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    code = 0
    try:
        if job.get("cold_cache"):
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="ind_")
            os.environ["TRITON_CACHE_DIR"] = os.environ["TORCHINDUCTOR_CACHE_DIR"] + "/triton"
        fn(job, path)
    except BaseException as e:
        traceback.print_exc()
        msg = "error: " + repr(e).replace("\\n", " ").replace("\n", " ")[:400]
        row = dict(job, status=msg)
        if os.path.exists(path):
            with open(path) as f:
                row = json.load(f)
            if "median_ms" in row:
                row["extras_error"] = msg
            else:
                row["status"] = msg if row["status"] == "ok" else row["status"] + "; " + msg
        emit(path, row)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def launch(kind, job, path, log, limit, spawn):
    """Runs one job in a child process -> row."""
    if os.path.exists(path):
        os.remove(path)
    t0 = time.time()
    if spawn:
        cmd = [sys.executable, os.path.abspath(__file__), "--child", kind, json.dumps(job), path, log]
        proc = subprocess.Popen(cmd)
        pid = proc.pid
        poll = lambda: proc.poll() is not None
    else:
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            child_main(work if kind == "work" else machine, job, path, log)
        poll = lambda: os.waitpid(pid, os.WNOHANG)[0] != 0

    def stop():
        try:
            os.killpg(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
        proc.wait() if spawn else os.waitpid(pid, 0)
    timed_out = False
    try:
        while not poll():
            if time.time() - t0 > limit:
                timed_out = True
                stop()
                break
            time.sleep(0.02)
    except BaseException:
        stop()
        raise
    try:
        with open(path) as f:
            row = json.load(f)
        if timed_out:
            row["note"] = f"stopped after {limit:.0f} s, while measuring extras"
    except Exception:
        row = dict(job, status=f"timeout after {limit:.0f} s" if timed_out else "crashed: see log.txt")
    row["total_s"] = time.time() - t0
    return row


def limits(row, ceil):
    """-> (FLOPs, bytes, floor in ms): the sum over phases of the larger of arithmetic and memory time."""
    d = row["dtype"]
    f_peak = (ceil.get(d + "_tflops") or FALLBACK[d + "_tflops"]) * 1e12
    b_peak = (ceil.get("copy_tbs") or FALLBACK["copy_tbs"]) * 1e12
    ph = row.get("phases") or [("all", row.get("flops") or 0, row["bytes"]["total"])]
    return sum(p[1] for p in ph), sum(p[2] for p in ph), sum(max(p[1] / f_peak, p[2] / b_peak) for p in ph) * 1e3


def report(data, out):
    with open(os.path.join(out, "baselines.json.tmp"), "w") as f:
        json.dump(data, f, indent=1)
    os.replace(os.path.join(out, "baselines.json.tmp"), os.path.join(out, "baselines.json"))
    ceil = data["machine"]
    flops = {r["model"]: r["flops"] for r in data["rows"] if r.get("flops")}
    L = ["# PyTorch baselines", "", "Machine: " + json.dumps(ceil), "",
         "Times in ms: median (p10 to p90) of isolated calls by CUDA events; `launch`: host time of the call; `queued`: a call when calls "
         "are queued back to back. `floor`: arithmetic or memory limit; `x floor`: median over floor. Memory in MiB "
         "(allocator peak / device in use). Errors against fp32 eager with TF32 off.", ""]
    names = []
    for r in data["rows"]:
        if r["model"] not in names:
            names.append(r["model"])
    for n in names:
        rows = [r for r in data["rows"] if r["model"] == n]
        for r in rows:
            if n in flops and "flops" not in r:
                r["flops"] = flops[n]
        L += [f"## {n}", ""]
        head = next((r for r in rows if "bytes" in r), None)
        if head:
            L += [f"{head['params_m']:.1f} M parameters" + (f", {flops[n] / 1e9:.2f} GFLOP counted" if n in flops else ""), ""]
        L += ["| dtype | method | median (p10 to p90) | launch | queued | x floor | floor | memory | compile s | load s | max abs err | rel err |",
              "|---|---|---|---|---|---|---|---|---|---|---|---|"]
        for r in rows:
            if "median_ms" not in r:
                L.append(f"| {r['dtype']} | {LABEL[r['method']]} | {r['status'][:140].replace('|', '/')} | | | | | | | | | |")
                continue
            fl, by, floor = limits(r, ceil)

            def line(label, m, comp, load):
                mem = f"{m['peak_alloc_mb']:.0f} / {m['device_used_mb']:.0f}" if "peak_alloc_mb" in m else ""
                e = m if "max_abs_err" in m else r
                bad = "" if e.get("finite", True) else " (not finite)"
                L.append(f"| {r['dtype']} | {label} | {m['median_ms']:.4f} ({m['p10_ms']:.4f} to {m['p90_ms']:.4f}) | {m['launch_ms']:.4f} | "
                         f"{m['back_to_back_ms']:.4f} | {m['median_ms'] / max(floor, 1e-9):.2f} | {floor:.4f} | {mem} | {comp} | {load} | "
                         f"{e['max_abs_err']:.3g}{bad} | {e['rel_err']:.3g} |")
            num = lambda k: f"{r[k]:.2f}" if k in r else ""
            line(LABEL[r["method"]], r, num("compile_s") or num("capture_s"), num("load_s"))
            for k, lab in (("with_input_copy", "with input copies"), ("with_cuda_graph", "captured in a CUDA graph"), ("on_device", "its kernels alone")):
                if k in r:
                    line(f"... {lab}", r[k], "", "")
        L.append("")
    L += ["## Limits", "", "| model | dtype | GFLOP | MB moved at least | floor ms |", "|---|---|---|---|---|"]
    done = set()
    for r in data["rows"]:
        if "bytes" in r and (r["model"], r["dtype"]) not in done:
            done.add((r["model"], r["dtype"]))
            fl, by, floor = limits(r, ceil)
            L.append(f"| {r['model']} | {r['dtype']} | {fl / 1e9:.2f} | {by / 1e6:.1f} | {floor:.4f} |")
    with open(os.path.join(out, "baselines.md"), "w") as f:
        f.write("\n".join(L) + "\n")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", required=True)
    ap.add_argument("--models", default="all")
    ap.add_argument("--dtypes", default="bf16,fp32,tf32,fp16")
    ap.add_argument("--methods", default="eager,cudagraph,cudagraph_nhwc,compile,compile_reduce,aoti,autotune,autotune_graph,pteron")
    ap.add_argument("--budget-seconds", type=float, default=560)
    ap.add_argument("--method-limit", type=float, help="one limit in seconds for every row instead of the table's")
    ap.add_argument("--seconds", type=float, default=2.0, help="measuring time a row")
    ap.add_argument("--runs", type=int, default=50)
    ap.add_argument("--order", default="model", choices=["model", "method"], help="outer loop")
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--tiny", action="store_true", help="small shapes, for a self-test")
    ap.add_argument("--cold-cache", action="store_true", help="an empty compiler cache for each row")
    ap.add_argument("--start", default="auto", choices=["auto", "fork", "spawn"])
    ap.add_argument("--no-ceilings", action="store_true", help="skip measuring the machine's ceilings")
    ap.add_argument("--merge", nargs="+", metavar="JSON")
    a = ap.parse_args()
    os.makedirs(a.out, exist_ok=True)
    if a.merge:
        data = {"machine": {}, "rows": []}
        for p in a.merge:
            with open(p) as f:
                d = json.load(f)
            data["machine"].update(d["machine"])
            data["rows"] += d["rows"]
        report(data, a.out)
        return
    t_start = time.time()
    deadline = t_start + a.budget_seconds
    log = os.path.join(a.out, "log.txt")
    import torch  # noqa: F401  children forked below start with these already imported
    import torchvision  # noqa: F401
    import models_gpu as M
    tmp = tempfile.mkdtemp(prefix="rows_")
    base = {"device": a.device, "tiny": a.tiny, "seconds": a.seconds, "runs": a.runs, "cold_cache": a.cold_cache}
    spawn = a.start == "spawn"
    mjob = dict(base, ceilings=not a.no_ceilings)
    mach = launch("machine", mjob, f"{tmp}/m.json", log, 90, spawn)
    if a.start == "auto" and mach["status"] != "ok":
        spawn = True
        mach = launch("machine", mjob, f"{tmp}/m.json", log, 90, spawn)
    mach.update(start="spawn" if spawn else "fork", smi_before=smi() if a.device == "cuda" else "",
                inductor_cache="cold for each row" if a.cold_cache else "shared by the rows of a run")
    data = {"machine": mach, "rows": []}
    print("machine", json.dumps(mach), flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))

    models = list(M.REGISTRY) if a.models == "all" else a.models.split(",")
    dtypes, methods = a.dtypes.split(","), a.methods.split(",")
    for x in methods:
        assert x in METHODS, f"unknown method {x}"
    for x in models:
        assert x in M.REGISTRY, f"unknown model {x}"
    if a.order == "model":
        plan = [(m, d, k) for m in models for d in dtypes for k in methods]
    else:
        plan = [(m, d, k) for k in methods for m in models for d in dtypes]
    plan = [(m, d, k) for m, d, k in plan if not (k == "cudagraph_nhwc" and not M.REGISTRY[m].conv)
            and not (m == "policy_split" and k in ("eager", "cudagraph"))]
    skipped = 0
    try:
        for i, (m, d, k) in enumerate(plan):
            lim, least = METHODS[k]
            left = deadline - time.time() - 3
            if left < (least if not a.tiny else 3):
                skipped += 1
                data["rows"].append({"model": m, "dtype": d, "method": k, "status": "skipped: time budget spent"})
                continue
            job = dict(base, model=m, dtype=d, method=k)
            row = launch("work", job, f"{tmp}/r.json", log, min(a.method_limit or lim, left), spawn)
            data["rows"].append(row)
            report(data, a.out)
            s = f"{row['median_ms']:.4f} ms  launch {row['launch_ms']:.4f}  err {row['max_abs_err']:.3g}/{row['rel_err']:.2g}" \
                if "median_ms" in row else row["status"][:200]
            if "median_ms" in row:
                s += f"  x floor {row['median_ms'] / max(limits(row, mach)[2], 1e-9):.2f}"
            for x in ("with_cuda_graph", "with_input_copy", "on_device"):
                if x in row:
                    s += f"  {x} {row[x]['median_ms']:.4f}"
            if "compile_s" in row:
                s += f"  compile {row['compile_s']:.1f} s"
            print(f"[{time.time() - t_start:5.0f} s {i + 1}/{len(plan)}] {m} {d} {k}: {s}  ({row['total_s']:.1f} s)", flush=True)
    finally:
        if a.device == "cuda":
            mach["smi_after"] = smi()
        mach["wall_s"] = time.time() - t_start
        report(data, a.out)
        shutil.rmtree(tmp, ignore_errors=True)
    print(f"done: {len(data['rows']) - skipped} rows, {skipped} skipped, {time.time() - t_start:.0f} s", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] == "--child":
        kind, job, path, log = sys.argv[2:6]
        child_main(work if kind == "work" else machine, json.loads(job), path, log)
    main()
